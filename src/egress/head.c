/*
 * A head is kept until it is whole and then read line by line. Chunked bodies are followed byte by
 * byte, their data in runs, and pass as they came.
 */
#include "egress/head.h"

#include <string.h>

enum { CHUNK_DIGITS_MAX = 15, TRAILER_MAX = 8192 };

static bool is_token_char(unsigned char c)
{
	if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
		return true;
	return c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static bool is_value_char(unsigned char c)
{
	return (c >= 0x20 && c != 0x7f) || c == '\t';
}

static bool is_token(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (!is_token_char((unsigned char)s.p[i]))
			return false;
	return s.n > 0;
}

long egress_head_end(const char *p, size_t n, size_t *scanned, const char **ret_why)
{
	for (size_t i = *scanned; i < n; i++) {
		unsigned char c = (unsigned char)p[i];

		if (i == EGRESS_HEAD_MAX) {
			*ret_why = "request head too large";
			return -1;
		}
		if (c == '\n' ? i == 0 || p[i - 1] != '\r' : c != '\r' && !is_value_char(c)) {
			*ret_why = "not HTTP";
			return -1;
		}
		if (c != '\n' && i > 0 && p[i - 1] == '\r') {
			*ret_why = "not HTTP";
			return -1;
		}
		if (c == '\n' && i >= 3 && p[i - 2] == '\n')
			return (long)i + 1;
	}
	*scanned = n;
	return 0;
}

bool egress_head_line(struct str *rest, struct str *ret_line)
{
	const char *end = rest->n > 0 ? memchr(rest->p, '\n', rest->n) : NULL;
	size_t n;

	if (!end || end == rest->p || end[-1] != '\r')
		return false;
	n = (size_t)(end - rest->p);
	*ret_line = (struct str){rest->p, n - 1};
	*rest = (struct str){end + 1, rest->n - n - 1};
	return true;
}

bool egress_head_field(struct str line, struct str *ret_name, struct str *ret_value)
{
	const char *colon = line.n > 0 ? memchr(line.p, ':', line.n) : NULL;

	if (!colon)
		return false;
	*ret_name = (struct str){line.p, (size_t)(colon - line.p)};
	*ret_value = str_trim((struct str){colon + 1, line.n - ret_name->n - 1});
	if (!is_token(*ret_name))
		return false;
	for (size_t i = 0; i < ret_value->n; i++)
		if (!is_value_char((unsigned char)ret_value->p[i]))
			return false;
	return true;
}

bool egress_head_host(struct str s, char host[EGRESS_NAME_MAX + 1])
{
	if (str_ends(s, ":80"))
		s.n -= 3;
	if (s.n > 0 && s.p[s.n - 1] == '.')
		s.n--;
	if (s.n == 0 || s.n > EGRESS_NAME_MAX || s.p[0] == '.' ||
	        !str_in_set(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."))
		return false;
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		host[i] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
	}
	host[s.n] = '\0';
	return true;
}

static int refuse(int status, const char **ret_why, const char *why)
{
	*ret_why = why;
	return status;
}

/* "GET /path HTTP/1.1"; *ret_host is an absolute target's, or absent. */
static int read_line(struct str line, struct egress_head *h, int *ret_minor, struct str *ret_host,
        const char **ret_why)
{
	const char *a = memchr(line.p, ' ', line.n), *b = NULL;
	struct str method, target, version;

	if (a)
		b = memchr(a + 1, ' ', line.n - (size_t)(a + 1 - line.p));
	if (!b)
		return refuse(400, ret_why, "request line malformed");
	method = (struct str){line.p, (size_t)(a - line.p)};
	target = (struct str){a + 1, (size_t)(b - a - 1)};
	version = (struct str){b + 1, line.n - (size_t)(b + 1 - line.p)};
	if (str_is(version, "HTTP/2.0"))
		return refuse(520, ret_why, "HTTP/2 without TLS");
	if (!is_token(method) || target.n == 0 ||
	        (!str_is(version, "HTTP/1.1") && !str_is(version, "HTTP/1.0")))
		return refuse(400, ret_why, "request line malformed");
	*ret_minor = version.p[7] - '0';
	if (str_ieq(method, STR("CONNECT")))
		return refuse(520, ret_why, "CONNECT");
	h->is_head = str_is(method, "HEAD");
	for (size_t i = 0; i < target.n; i++)
		if ((unsigned char)target.p[i] <= 0x20)
			return refuse(400, ret_why, "request target malformed");
	*ret_host = (struct str){NULL, 0};
	if (target.p[0] == '/' || (str_is(target, "*") && str_is(method, "OPTIONS")))
		return 0;
	if (target.n <= 7 || !str_ieq((struct str){target.p, 7}, STR("http://")))
		return refuse(400, ret_why, "request target malformed");
	ret_host->p = target.p + 7;
	for (ret_host->n = 0; ret_host->n < target.n - 7; ret_host->n++)
		if (memchr("/?#", ret_host->p[ret_host->n], 3))
			break;
	return 0;
}

/* What is counted over a head's fields. */
struct fields {
	int hosts, lengths, codings, upgrades, settings;
};

static int read_field(struct str name, struct str value, struct egress_head *h, struct fields *f,
        const char **ret_why)
{
	if (str_ieq(name, STR("host"))) {
		if (f->hosts++ > 0)
			return refuse(400, ret_why, "Host doubled");
		if (!egress_head_host(value, h->host))
			return refuse(400, ret_why, "Host malformed");
	} else if (str_ieq(name, STR("content-length"))) {
		if (f->lengths++ > 0 || !str_in_set(value, "0123456789") ||
		        !str_to_u64(value, &h->length) || h->length > INT64_MAX)
			return refuse(400, ret_why, "Content-Length malformed");
	} else if (str_ieq(name, STR("transfer-encoding"))) {
		if (f->codings++ > 0 || !str_ieq(value, STR("chunked")))
			return refuse(400, ret_why, "Transfer-Encoding malformed");
		h->chunked = true;
	} else if (str_ieq(name, STR("upgrade"))) {
		h->websocket = str_ieq(value, STR("websocket"));
		h->h2c = str_ieq(value, STR("h2c"));
		if (f->upgrades++ > 0 || (!h->websocket && !h->h2c))
			return refuse(520, ret_why, "upgrade");
	} else if (str_ieq(name, STR("http2-settings"))) {
		f->settings++;
	}
	return 0;
}

int egress_head_read(struct str head, struct egress_head *ret, const char **ret_why)
{
	char target_host[EGRESS_NAME_MAX + 1];
	struct str line, name, value, host;
	struct fields f = {0};
	int minor, r;

	memset(ret, 0, sizeof(*ret));
	if (!egress_head_line(&head, &line))
		return refuse(400, ret_why, "request line malformed");
	r = read_line(line, ret, &minor, &host, ret_why);
	while (r == 0 && egress_head_line(&head, &line) && line.n > 0) {
		if (line.p[0] == ' ' || line.p[0] == '\t')
			return refuse(400, ret_why, "header folded");
		if (!egress_head_field(line, &name, &value))
			return refuse(400, ret_why, "header malformed");
		r = read_field(name, value, ret, &f, ret_why);
	}
	if (r)
		return r;
	if (f.settings > 0 && !ret->h2c)
		return refuse(520, ret_why, "upgrade");
	if (ret->chunked && (f.lengths > 0 || minor == 0))
		return refuse(400, ret_why, "two lengths");
	if (ret->websocket && (ret->chunked || ret->length > 0))
		return refuse(400, ret_why, "upgrade with a body");
	if (f.hosts == 0)
		return refuse(520, ret_why, "Host missing");
	if (host.p && (!egress_head_host(host, target_host) || strcmp(target_host, ret->host) != 0))
		return refuse(400, ret_why, "Host is not the target's");
	return 0;
}

/* What is left of a Connection field; nothing, where nothing is. Never longer than it was. */
static void write_connection(struct str value, struct buf *out)
{
	bool any = false;

	while (value.n > 0) {
		const char *comma = memchr(value.p, ',', value.n);
		size_t n = comma ? (size_t)(comma - value.p) : value.n;
		struct str option = str_trim((struct str){value.p, n});

		value = (struct str){value.p + n + (comma != NULL), value.n - n - (comma != NULL)};
		if (option.n == 0 || str_ieq(option, STR("upgrade")) ||
		        str_ieq(option, STR("http2-settings")))
			continue;
		buf_puts(out, any ? "," : "Connection:");
		buf_append(out, option.p, option.n);
		any = true;
	}
	if (any)
		buf_puts(out, "\r\n");
}

void egress_head_without_h2c(struct str head, struct buf *out)
{
	struct str line, name, value;
	bool first = true;

	while (egress_head_line(&head, &line)) {
		bool field = !first && egress_head_field(line, &name, &value);

		first = false;
		if (field && str_ieq(name, STR("connection"))) {
			write_connection(value, out);
		} else if (!field || (!str_ieq(name, STR("upgrade")) &&
		                             !str_ieq(name, STR("http2-settings")))) {
			buf_append(out, line.p, line.n);
			buf_puts(out, "\r\n");
		}
	}
}

/* ---- chunks ---- */

enum chunk_state {
	CHUNK_SIZE,
	CHUNK_SIZE_LF,
	CHUNK_DATA,
	CHUNK_DATA_CR,
	CHUNK_DATA_LF,
	TRAILER_START,
	TRAILER_NAME,
	TRAILER_VALUE,
	TRAILER_LF,
	TRAILER_LAST_LF,
};

void egress_chunks_init(struct egress_chunks *k)
{
	memset(k, 0, sizeof(*k));
}

static int size_step(struct egress_chunks *k, char c)
{
	int digit = str_hex_digit(c);

	if (digit >= 0) {
		if (k->digits++ == CHUNK_DIGITS_MAX)
			return -1;
		k->left = k->left * 16 + (unsigned)digit;
		return 0;
	}
	if (c != '\r' || k->digits == 0)
		return -1;
	k->state = CHUNK_SIZE_LF;
	return 0;
}

static int trailer_step(struct egress_chunks *k, unsigned char c)
{
	if (k->trailer_bytes++ == TRAILER_MAX)
		return -1;
	switch ((enum chunk_state)k->state) {
	case TRAILER_START:
		k->state = c == '\r' ? TRAILER_LAST_LF : TRAILER_NAME;
		return c == '\r' || is_token_char(c) ? 0 : -1;
	case TRAILER_NAME:
		if (c == ':')
			k->state = TRAILER_VALUE;
		return c == ':' || is_token_char(c) ? 0 : -1;
	case TRAILER_VALUE:
		if (c == '\r')
			k->state = TRAILER_LF;
		return c == '\r' || is_value_char(c) ? 0 : -1;
	case TRAILER_LF:
		k->state = TRAILER_START;
		return c == '\n' ? 0 : -1;
	case TRAILER_LAST_LF:
		return c == '\n' ? 1 : -1;
	case CHUNK_SIZE:
	case CHUNK_SIZE_LF:
	case CHUNK_DATA:
	case CHUNK_DATA_CR:
	case CHUNK_DATA_LF:
		break;
	}
	return -1;
}

static int chunk_step(struct egress_chunks *k, char c)
{
	switch ((enum chunk_state)k->state) {
	case CHUNK_SIZE:
		return size_step(k, c);
	case CHUNK_SIZE_LF:
		k->state = k->left > 0 ? CHUNK_DATA : TRAILER_START;
		return c == '\n' ? 0 : -1;
	case CHUNK_DATA_CR:
		k->state = CHUNK_DATA_LF;
		return c == '\r' ? 0 : -1;
	case CHUNK_DATA_LF:
		k->state = CHUNK_SIZE;
		k->digits = 0;
		return c == '\n' ? 0 : -1;
	case TRAILER_START:
	case TRAILER_NAME:
	case TRAILER_VALUE:
	case TRAILER_LF:
	case TRAILER_LAST_LF:
		return trailer_step(k, (unsigned char)c);
	case CHUNK_DATA:
		break;
	}
	return -1;
}

int egress_chunks_feed(struct egress_chunks *k, const char *data, size_t n, size_t *ret_used)
{
	size_t i = 0;
	int r = 0;

	while (i < n && r == 0) {
		if (k->state == CHUNK_DATA) {
			size_t run = n - i < k->left ? n - i : (size_t)k->left;

			i += run;
			k->left -= run;
			if (k->left == 0)
				k->state = CHUNK_DATA_CR;
		} else {
			r = chunk_step(k, data[i++]);
		}
	}
	*ret_used = i;
	return r;
}
