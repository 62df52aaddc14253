/*
 * HTTP/1.x on port 80: each request's Host must be the name that was dialled, also on a connection
 * that is kept alive. One request goes out at a time: the next one is looked at when the answer to
 * the last has ended (or came before the request had). What a container sends meanwhile waits, up
 * to a bound. So a denied request's answer has its place, and an upgrade is known by its answer.
 */
#include "egress/conn.h"

#include "base/mem.h"

#include <string.h>

void egress_http_begin(struct egress_conn *c)
{
	egress_response_begin(&c->http.response, false, false);
}

void egress_http_end(struct egress_conn *c)
{
	egress_response_free(&c->http.response);
}

/* The answer may have ended before the request did. */
static void request_ended(struct egress_http *h)
{
	if (h->phase != EGRESS_HTTP_LAST)
		h->phase = h->waiting ? EGRESS_HTTP_WAIT : EGRESS_HTTP_HEAD;
}

static void send_head(struct egress_conn *c, size_t len)
{
	_cleanup_(buf_free) struct buf plain = BUF_INIT(EGRESS_HEAD_MAX);

	if (!c->http.head.h2c) {
		egress_conn_to_server(c, c->in.data, len);
		return;
	}
	egress_head_without_h2c((struct str){c->in.data, len}, &plain);
	egress_conn_to_server(c, plain.data, plain.len);
}

static void request_begin(struct egress_conn *c, size_t head_len)
{
	struct egress_http *h = &c->http;

	egress_response_begin(&h->response, h->head.is_head, h->head.websocket);
	h->scanned = 0;
	h->waiting = true;
	h->left = h->head.length;
	egress_chunks_init(&h->chunks);
	send_head(c, head_len);
	buf_consume(&c->in, head_len);
	if (h->head.chunked)
		h->phase = EGRESS_HTTP_CHUNKS;
	else if (h->left > 0)
		h->phase = EGRESS_HTTP_LENGTH;
	else
		request_ended(h);
}

/* False: no request is whole, or it was refused. */
static bool read_request(struct egress_conn *c)
{
	struct egress_http *h = &c->http;
	const char *why;
	long end = egress_head_end(c->in.data, c->in.len, &h->scanned, &why);
	int status;

	if (end == 0) {
		if (c->in.len > EGRESS_HEAD_MAX)
			egress_conn_deny(c, 400, "request head too large");
		return false;
	}
	if (end < 0) {
		egress_conn_deny(c, 400, why);
		return false;
	}
	status = egress_head_read((struct str){c->in.data, (size_t)end}, &h->head, &why);
	if (status) {
		egress_conn_deny(c, status, why);
		return false;
	}
	if (!egress_conn_check_name(c, h->head.host, "Host"))
		return false;
	if (c->state == EGRESS_CONN_HEAD) {
		egress_conn_allow(c); /* and this head is read again when the server is there */
		h->scanned = 0;
		return false;
	}
	request_begin(c, (size_t)end);
	return true;
}

/* Lets body bytes through; returns how many. */
static size_t pass_body(struct egress_conn *c, const char *data, size_t n)
{
	struct egress_http *h = &c->http;
	size_t used = n;
	int r = 0;

	if (h->phase == EGRESS_HTTP_LENGTH) {
		used = n < h->left ? n : (size_t)h->left;
		h->left -= used;
		r = h->left == 0;
	} else {
		r = egress_chunks_feed(&h->chunks, data, n, &used);
	}
	if (r < 0) {
		egress_conn_deny(c, 400, "chunked body malformed");
		return n;
	}
	egress_conn_to_server(c, data, used);
	if (r > 0)
		request_ended(h);
	return used;
}

void egress_http_go_on(struct egress_conn *c)
{
	struct egress_http *h = &c->http;
	size_t used;

	while (c->in.len > 0 && (c->state == EGRESS_CONN_OPEN || c->state == EGRESS_CONN_HEAD)) {
		switch (h->phase) {
		case EGRESS_HTTP_HEAD:
			if (!read_request(c))
				return;
			break;
		case EGRESS_HTTP_LENGTH:
		case EGRESS_HTTP_CHUNKS:
			used = pass_body(c, c->in.data, c->in.len);
			buf_consume(&c->in, used < c->in.len ? used : c->in.len);
			break;
		case EGRESS_HTTP_OPAQUE:
			egress_conn_to_server(c, c->in.data, c->in.len);
			buf_free(&c->in);
			break;
		case EGRESS_HTTP_LAST:
			buf_free(&c->in);
			break;
		case EGRESS_HTTP_WAIT:
			return;
		}
	}
	if (c->in.len == 0)
		buf_free(&c->in); /* a connection at rest keeps none */
}

void egress_http_from_client(struct egress_conn *c, const char *data, size_t n)
{
	struct egress_http *h = &c->http;
	size_t used = 0;

	if (c->in.len == 0 && h->phase == EGRESS_HTTP_OPAQUE) {
		egress_conn_to_server(c, data, n);
		return;
	}
	if (c->in.len == 0 && (h->phase == EGRESS_HTTP_LENGTH || h->phase == EGRESS_HTTP_CHUNKS))
		used = pass_body(c, data, n);
	if (used < n && c->state == EGRESS_CONN_OPEN) {
		if (buf_append(&c->in, data + used, n - used))
			egress_conn_abort(c, "too many bytes");
		else
			egress_http_go_on(c);
	}
}

void egress_http_from_server(struct egress_conn *c, const char *data, size_t n)
{
	struct egress_http *h = &c->http;
	enum egress_response_result r;
	size_t used = n;

	if (!h->waiting) {
		/* It says something unasked, or what is no HTTP any more. */
		if (h->phase != EGRESS_HTTP_OPAQUE)
			h->phase = EGRESS_HTTP_LAST;
		egress_conn_to_client(c, data, n);
		return;
	}
	r = egress_response_feed(&h->response, data, n, &used);
	if (r == EGRESS_RESPONSE_BAD) {
		egress_conn_abort(c, "unasked upgrade");
		return;
	}
	egress_conn_to_client(c, data, n);
	if (r == EGRESS_RESPONSE_MORE)
		return;
	h->waiting = false;
	if (r == EGRESS_RESPONSE_SWITCHED)
		h->phase = EGRESS_HTTP_OPAQUE;
	else if (used < n)
		h->phase = EGRESS_HTTP_LAST;
	else if (h->phase == EGRESS_HTTP_WAIT)
		h->phase = EGRESS_HTTP_HEAD;
	egress_http_go_on(c);
}

static const char *status_text(int status)
{
	switch (status) {
	case 400:
		return "Bad Request";
	case 413:
		return "Content Too Large";
	case 429:
		return "Too Many Requests";
	case 502:
		return "Bad Gateway";
	case 504:
		return "Gateway Timeout";
	default:
		return "Denied By Network Policy";
	}
}

static void write_body(const struct egress_conn *c, int status, struct buf *out)
{
	const char *host = c->http.head.host;
	char target[EGRESS_NAME_MAX + 1];

	egress_conn_target(c, target);
	if (status == 520 || status == 400)
		buf_puts(out, "brig: the container's network policy does not let this request "
		              "through.\n");
	else if (status == 429)
		buf_puts(out, "brig: the container has as many connections as it may, or makes "
		              "them too fast.\n");
	else if (status == 413)
		buf_puts(out, "brig: no connection of the container may carry so much.\n");
	else
		buf_puts(out, "brig: this request is allowed, and failed on its way.\n");
	buf_printf(out, "reason: %s\naddressed to: %s\n", c->reason, target);
	if (host[0])
		buf_printf(out, "Host: %s\n", host);
	if (c->rule)
		buf_printf(out, "denied by the rule: %s\n", c->rule);
	if (status == 520 && !c->rule)
		buf_puts(out, "Only what the container's allowlist names is reached, on ports 80 "
		              "and 443, by the name that was resolved.\n");
}

void egress_http_refuse(struct egress_conn *c, int status)
{
	_cleanup_(buf_free) struct buf body = BUF_INIT(2048), all = BUF_INIT(4096);

	/* In the middle of an answer nobody would read this one. */
	if (c->http.waiting && egress_response_begun(&c->http.response)) {
		egress_conn_abort(c, c->reason);
		return;
	}
	write_body(c, status, &body);
	buf_printf(&all,
	        "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=us-ascii\r\n"
	        "Content-Length: %zu\r\nCache-Control: no-store\r\n%sConnection: close\r\n\r\n",
	        status, status_text(status), body.len, status == 429 ? "Retry-After: 1\r\n" : "");
	if (!c->http.head.is_head)
		buf_append(&all, body.data, body.len);
	egress_conn_last(c, all.data, all.len);
}
