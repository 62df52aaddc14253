/* What a handler may ask about a request, and the memory that belongs to one. */
#include "http/conn.h"

#include "base/mem.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

static const struct str absent = {NULL, 0};

static struct str head_part(const struct http_exchange *x, uint32_t at, uint32_t len)
{
	/* target_len is set with the line as a whole. */
	return x->head.target_len > 0 ? http_parse_head_str(&x->head, at, len) : absent;
}

struct str http_request_method(const struct http_exchange *x)
{
	return x->head.method_len > 0 ? head_part(x, x->head.method, x->head.method_len) : absent;
}

struct str http_request_target(const struct http_exchange *x)
{
	return head_part(x, x->head.target, x->head.target_len);
}

struct str http_request_path(const struct http_exchange *x)
{
	if (x->head.target_len > 0 && x->head.path_len == 0)
		return STR("/");
	return head_part(x, x->head.path, x->head.path_len);
}

struct str http_request_query(const struct http_exchange *x)
{
	return x->head.query_len > 0 ? head_part(x, x->head.query, x->head.query_len) : absent;
}

struct str http_request_header(const struct http_exchange *x, const char *name)
{
	return http_parse_head_field(&x->head, name);
}

size_t http_request_header_count(const struct http_exchange *x, const char *name)
{
	return http_parse_head_count(&x->head, name);
}

struct str http_request_body(const struct http_exchange *x)
{
	return (struct str){x->body.data ? x->body.data : "", x->body.len};
}

char *http_request_take_body(struct http_exchange *x, size_t *ret_len)
{
	x->taken += x->body.len;
	return buf_steal(&x->body, ret_len);
}

static void discharge(struct http_exchange *x, size_t n)
{
	x->charged -= n;
	x->conn->server->in_flight -= n;
}

void http_request_free_decoder(struct http_exchange *x)
{
	discharge(x, x->decoder_charged);
	x->decoder_charged = 0;
	x->decoder = http_body_free(x->decoder);
}

void http_request_release(struct http_exchange *x)
{
	/* What is still being read keeps its counts. */
	if (x->over || x->conn->state == CONN_BODY)
		return;
	x->is_head = str_is(http_request_method(x), "HEAD");
	http_parse_head_free(&x->head);
	buf_free(&x->body);
	http_request_free_decoder(x);
	discharge(x, x->charged - x->taken);
}

struct http_exchange *http_request_free(struct http_exchange *x)
{
	http_request_free_decoder(x);
	discharge(x, x->charged);
	http_parse_head_free(&x->head);
	buf_free(&x->body);
	buf_free(&x->headers);
	x->recorder = http_record_free(x->recorder);
	free(x->peer_text);
	free(x);
	return NULL;
}

void http_body_pause(struct http_exchange *x, bool paused)
{
	if (x->over || x->paused == paused)
		return;
	x->paused = paused;
	if (!paused)
		http_conn_kick(x->conn);
}

/* Decodes as HTML forms are decoded: "+" is a space. False: a bad escape, or out is full. */
static bool query_decode(struct str s, struct buf *out)
{
	size_t i;
	char c;

	for (i = 0; i < s.n; i++) {
		c = s.p[i] == '+' ? ' ' : s.p[i];
		if (c == '%') {
			int hi = s.n - i > 2 ? str_hex_digit(s.p[i + 1]) : -1;
			int lo = s.n - i > 2 ? str_hex_digit(s.p[i + 2]) : -1;

			if (hi < 0 || lo < 0)
				return false;
			c = (char)(hi * 16 + lo);
			i += 2;
		}
		if (buf_putc(out, c))
			return false;
	}
	return true;
}

bool http_query_get(struct str query, const char *name, struct buf *out)
{
	_cleanup_buf_ struct buf key = BUF_INIT(256);
	size_t begin = 0, end, eq;

	for (; begin < query.n; begin = end + 1) {
		for (end = begin; end < query.n && query.p[end] != '&'; end++)
			;
		for (eq = begin; eq < end && query.p[eq] != '='; eq++)
			;
		buf_reset(&key);
		if (!query_decode((struct str){query.p + begin, eq - begin}, &key) ||
		        !str_eq((struct str){buf_cstr(&key), key.len}, str_of(name)))
			continue;
		buf_reset(out);
		begin = eq < end ? eq + 1 : end;
		return query_decode((struct str){query.p + begin, end - begin}, out);
	}
	return false;
}

void http_exchange_set_data(struct http_exchange *x, void *data)
{
	x->data = data;
}

struct http_note *http_exchange_note(struct http_exchange *x)
{
	return &x->note;
}

int http_exchange_status(const struct http_exchange *x)
{
	return x->status;
}

uint64_t http_exchange_begun_ns(const struct http_exchange *x)
{
	return x->begun_ns;
}

enum http_peer http_exchange_peer_kind(const struct http_exchange *x)
{
	const union conn_address *a = &x->conn->peer;
	const struct in6_addr *v6 = &a->v6.sin6_addr;

	bool local;

	if (a->any.sa_family == AF_INET)
		local = ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
	else if (a->any.sa_family == AF_INET6)
		local = IN6_IS_ADDR_LOOPBACK(v6) ||
		        (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
	else
		return HTTP_PEER_UNIX;
	return local ? HTTP_PEER_LOOPBACK : HTTP_PEER_REMOTE;
}

void *http_exchange_data(const struct http_exchange *x)
{
	return x->data;
}

const char *http_exchange_peer(const struct http_exchange *x)
{
	const union conn_address *a = &x->conn->peer;
	char host[INET6_ADDRSTRLEN] = "", text[INET6_ADDRSTRLEN + 16];
	char **cache = &x->conn->x->peer_text;

	if (*cache)
		return *cache;
	if (a->any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &a->v4.sin_addr, host, sizeof(host));
		str_format(text, sizeof(text), "%s:%u", host, ntohs(a->v4.sin_port));
	} else if (a->any.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &a->v6.sin6_addr, host, sizeof(host));
		str_format(text, sizeof(text), "[%s]:%u", host, ntohs(a->v6.sin6_port));
	} else {
		str_format(text, sizeof(text), "local");
	}
	*cache = mem_strdup(text);
	return *cache;
}
