/*
 * TLS on port 443: the hello's server name must be the name that was dialled; the rest passes
 * unseen. A connection that is refused gets an alert first, so that its client can say more than
 * that the connection broke.
 *
 * In TLS 1.3 a server may ask for another hello (HelloRetryRequest), and some take the name from
 * that one. So what a container sends after its hello waits until the server's first message began,
 * which comes without it; where that is such a request, the second hello is judged as the first.
 */
#include "egress/conn.h"

#include <string.h>

enum { ALERT_ACCESS_DENIED = 49, ALERT_INTERNAL_ERROR = 80, ALERT_UNRECOGNIZED_NAME = 112 };

/* SHA-256 of "HelloRetryRequest", in place of the server's random (RFC 8446, 4.1.3). */
static const uint8_t RETRY[32] = {0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c,
        0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e,
        0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c};

enum { RANDOM_AT = 11, RECORD_CIPHER = 20, RECORD_ALERT, RECORD_HANDSHAKE, RECORD_DATA };

/* Looks at c->in, which begins with the hello. 1: whole, and its name fits; 0: more is needed; -1:
 * it was denied. */
static int look(struct egress_conn *c)
{
	struct egress_hello *h = &c->tls.hello;
	const char *why;
	int r = egress_hello_feed(
	        h, (const uint8_t *)c->in.data + h->seen, c->in.len - h->seen, &why);
	size_t n;

	if (r < 0)
		egress_conn_deny(c, 520, why);
	if (r <= 0)
		return r;
	if (!h->named && c->name) {
		egress_conn_deny(c, 520, "server name missing");
		return -1;
	}
	n = strlen(h->name);
	if (n > 0 && h->name[n - 1] == '.')
		h->name[n - 1] = '\0';
	return egress_conn_check_name(c, h->name, "server name") ? 1 : -1;
}

void egress_tls_look(struct egress_conn *c)
{
	if (look(c) > 0)
		egress_conn_allow(c);
}

static void pass_rest(struct egress_conn *c)
{
	c->tls.phase = EGRESS_TLS_PASS;
	egress_conn_to_server(c, c->in.data, c->in.len);
	buf_free(&c->in);
	egress_hello_free(&c->tls.hello);
}

void egress_tls_opened(struct egress_conn *c)
{
	size_t n = c->tls.hello.seen;

	c->tls.phase = EGRESS_TLS_ANSWER;
	egress_conn_to_server(c, c->in.data, n);
	buf_consume(&c->in, n);
	if (c->in.len == 0)
		buf_free(&c->in);
	egress_hello_free(&c->tls.hello);
}

/* Before the second hello may come early data, which the server drops, and what keeps old machines
 * between the two in good faith. Those records pass; nothing else does. */
static void look_again(struct egress_conn *c)
{
	while (c->tls.phase == EGRESS_TLS_SECOND && c->in.len > 0) {
		const uint8_t *p = (const uint8_t *)c->in.data;
		size_t n;

		if (p[0] != RECORD_CIPHER && p[0] != RECORD_ALERT && p[0] != RECORD_DATA) {
			if (look(c) > 0)
				pass_rest(c);
			return;
		}
		n = c->in.len < 5 ? 5 : 5 + (size_t)(p[3] << 8 | p[4]);
		if (c->in.len < n)
			return;
		egress_conn_to_server(c, p, n);
		buf_consume(&c->in, n);
	}
}

void egress_tls_from_client(struct egress_conn *c, const char *data, size_t n)
{
	if (c->tls.phase == EGRESS_TLS_PASS)
		egress_conn_to_server(c, data, n);
	else if (buf_append(&c->in, data, n))
		egress_conn_abort(c, "too many bytes");
	else
		look_again(c);
}

void egress_tls_from_server(struct egress_conn *c, const uint8_t *data, size_t n)
{
	struct egress_tls *t = &c->tls;
	size_t room = sizeof(t->answer) - t->answer_len, piece = n < room ? n : room;

	egress_conn_to_client(c, data, n);
	if (t->phase != EGRESS_TLS_ANSWER)
		return;
	memcpy(t->answer + t->answer_len, data, piece);
	t->answer_len = (uint8_t)(t->answer_len + piece);
	if (t->answer[0] == RECORD_HANDSHAKE && t->answer_len < sizeof(t->answer))
		return;
	if (t->answer[0] == RECORD_HANDSHAKE && memcmp(t->answer + RANDOM_AT, RETRY, 32) == 0) {
		t->phase = EGRESS_TLS_SECOND;
		egress_hello_init(&t->hello);
		look_again(c);
	} else {
		pass_rest(c);
	}
}

void egress_tls_refuse(struct egress_conn *c, bool denied)
{
	bool name = strcmp(c->reason, "server name") == 0, tls;
	uint8_t alert[] = {21, 3, 1, 0, 2, 2, ALERT_INTERNAL_ERROR};

	if (denied)
		alert[6] = name ? ALERT_UNRECOGNIZED_NAME : ALERT_ACCESS_DENIED;
	/* What is no TLS would not understand it. */
	tls = c->refused || c->tls.hello.message.len > 0 || c->tls.hello.header[0] == 22;
	egress_conn_last(c, alert, tls ? sizeof(alert) : 0);
}
