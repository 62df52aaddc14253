/*
 * Records are taken apart first: handshake records of any sizes, nothing between them, until the
 * one message that they carry is whole. Then it is read once from front to back, each length
 * checked against what holds it. A message that two readers could understand differently (two
 * names, two extensions of one kind, bytes behind an end) is refused: the server must see the name
 * that we saw.
 *
 * An encrypted hello (ECH) names the outer server in the plain extension and only that can be
 * judged.
 */
#include "egress/hello.h"

#include <string.h>

enum {
	RECORD_HANDSHAKE = 22,
	RECORD_MAX = 16384,
	CLIENT_HELLO = 1,
	EXTENSION_NAME = 0,
	MESSAGE_HEADER = 4,
};

/* What is left of a vector while it is read. */
struct cursor {
	const uint8_t *p;
	size_t n;
};

static bool take(struct cursor *c, size_t n, struct cursor *ret)
{
	if (n > c->n)
		return false;
	*ret = (struct cursor){c->p, n};
	c->p += n;
	c->n -= n;
	return true;
}

static bool take_number(struct cursor *c, size_t bytes, size_t *ret)
{
	struct cursor v;

	if (!take(c, bytes, &v))
		return false;
	*ret = 0;
	for (size_t i = 0; i < bytes; i++)
		*ret = *ret << 8 | v.p[i];
	return true;
}

/* A vector with its length, of that many bytes, before it. */
static bool take_vector(struct cursor *c, size_t bytes, struct cursor *ret)
{
	size_t n;

	return take_number(c, bytes, &n) && take(c, n, ret);
}

void egress_hello_init(struct egress_hello *h)
{
	memset(h, 0, sizeof(*h));
	buf_init(&h->message, EGRESS_HELLO_MAX);
}

void egress_hello_free(struct egress_hello *h)
{
	buf_free(&h->message);
}

static int refuse(const char **ret_why, const char *why)
{
	*ret_why = why;
	return -1;
}

static int read_server_name(struct egress_hello *h, struct cursor data, const char **ret_why)
{
	struct cursor list, name;
	size_t type;

	if (!take_vector(&data, 2, &list) || data.n > 0 || !take_number(&list, 1, &type) ||
	        !take_vector(&list, 2, &name))
		return refuse(ret_why, "server name malformed");
	if (type != 0)
		return refuse(ret_why, "server name malformed");
	if (list.n > 0)
		return refuse(ret_why, "server name doubled");
	if (name.n == 0 || name.n > EGRESS_NAME_MAX)
		return refuse(ret_why, "server name malformed");
	for (size_t i = 0; i < name.n; i++) {
		uint8_t c = name.p[i];

		if (c <= 0x20 || c >= 0x7f)
			return refuse(ret_why, "server name malformed");
		h->name[i] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
	}
	h->name[name.n] = '\0';
	h->named = true;
	return 1;
}

static int read_extensions(struct egress_hello *h, struct cursor all, const char **ret_why)
{
	struct cursor data;
	size_t type;

	while (all.n > 0) {
		if (!take_number(&all, 2, &type) || !take_vector(&all, 2, &data))
			return refuse(ret_why, "TLS hello malformed");
		if (type != EXTENSION_NAME)
			continue;
		if (h->named)
			return refuse(ret_why, "server name doubled");
		if (read_server_name(h, data, ret_why) < 0)
			return -1;
	}
	return 1;
}

static int read_message(struct egress_hello *h, const char **ret_why)
{
	struct cursor c = {
	        (const uint8_t *)h->message.data + MESSAGE_HEADER, h->message.len - MESSAGE_HEADER};
	struct cursor v;

	/* version and random, session id, cipher suites, compression methods */
	if (!take(&c, 34, &v) || v.p[0] != 3 || !take_vector(&c, 1, &v) ||
	        !take_vector(&c, 2, &v) || !take_vector(&c, 1, &v))
		return refuse(ret_why, "TLS hello malformed");
	if (c.n == 0)
		return 1;
	if (!take_vector(&c, 2, &v) || c.n > 0)
		return refuse(ret_why, "TLS hello malformed");
	return read_extensions(h, v, ret_why);
}

/* A record's header is whole. */
static int check_record(struct egress_hello *h, const char **ret_why)
{
	if (h->header[1] != 3)
		return refuse(ret_why, "not TLS");
	h->record_left = (size_t)(h->header[3] << 8 | h->header[4]);
	if (h->record_left == 0 || h->record_left > RECORD_MAX)
		return refuse(ret_why, "TLS hello malformed");
	return 0;
}

/* More of the message came. */
static int check_message(struct egress_hello *h, const char **ret_why)
{
	const uint8_t *m = (const uint8_t *)h->message.data;
	size_t whole;

	if (m[0] != CLIENT_HELLO)
		return refuse(ret_why, "not a TLS hello");
	if (h->message.len < MESSAGE_HEADER)
		return 0;
	whole = MESSAGE_HEADER + ((size_t)m[1] << 16 | (size_t)m[2] << 8 | m[3]);
	if (whole > EGRESS_HELLO_MAX)
		return refuse(ret_why, "TLS hello too large");
	if (h->message.len < whole)
		return 0;
	if (h->message.len > whole || h->record_left > 0)
		return refuse(ret_why, "TLS hello malformed");
	return read_message(h, ret_why);
}

int egress_hello_feed(struct egress_hello *h, const uint8_t *data, size_t n, const char **ret_why)
{
	int r = 0;

	while (n > 0 && r == 0) {
		size_t piece;

		if (h->seen >= EGRESS_HELLO_MAX)
			return refuse(ret_why, "TLS hello too large");
		if (h->record_left == 0) {
			h->header[h->header_len++] = *data;
			piece = 1;
			/* What is no TLS is known by its first byte, and need not send five. */
			if (h->header[0] != RECORD_HANDSHAKE)
				r = refuse(ret_why,
				        h->message.len > 0 ? "TLS hello malformed" : "not TLS");
			else if (h->header_len == sizeof(h->header)) {
				h->header_len = 0;
				r = check_record(h, ret_why);
			}
		} else {
			piece = n < h->record_left ? n : h->record_left;
			/* However the bytes were cut, what goes over the bound is refused. */
			if (piece > EGRESS_HELLO_MAX - h->seen)
				piece = EGRESS_HELLO_MAX - h->seen;
			if (buf_append(&h->message, data, piece))
				return refuse(ret_why, "TLS hello too large");
			h->record_left -= piece;
			r = check_message(h, ret_why);
		}
		h->seen += piece;
		data += piece;
		n -= piece;
	}
	return r;
}
