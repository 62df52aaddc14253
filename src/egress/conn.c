/*
 * Theory of operation. A connection is two sockets and, between them, only what one of them did not
 * take at once: bytes are read into one buffer of the process and written from there. Nothing is
 * read from a side while the other has bytes waiting, so a connection holds at most one such buffer
 * for each direction, and none while it rests.
 *
 * What the container sends is kept in `in` until it is judged (tls.c, http.c). Only then is the
 * name resolved and an address dialled. After it, TLS passes both ways unseen (but for a second
 * hello); HTTP is followed.
 *
 * Each callback does its work, which may put the connection into another state, and ends in
 * settle(): it frees what is over, and else asks for the events that the state needs. So nothing is
 * freed while something works on it.
 */
#include "egress/conn.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINGER_MS = 2000, LINGER_BYTES = 1 << 20 };

static const struct egress_limits *limits(const struct egress_conn *c)
{
	return &c->container->egress->limits;
}

void egress_conn_target(const struct egress_conn *c, char out[EGRESS_NAME_MAX + 1])
{
	if (c->name)
		str_copy(out, EGRESS_NAME_MAX + 1, str_of(egress_names_text(c->name)));
	else
		address_text(&c->dialled, out);
}

static void record(struct egress_conn *c)
{
	struct egress_record r = {.time_ms = c->verdict_ms,
	        .bytes_in = c->bytes_in,
	        .bytes_out = c->bytes_out,
	        .verdict = c->verdict,
	        .port = c->port};

	if (c->recorded)
		return;
	c->recorded = true;
	if (c->name)
		str_copy(r.name, sizeof(r.name), str_of(egress_names_text(c->name)));
	if (c->at < c->n_addresses)
		address_text(&c->addresses[c->at], r.address);
	else if (!c->name)
		address_text(&c->dialled, r.address);
	str_copy(r.reason, sizeof(r.reason), str_of(c->reason));
	egress_records_tell(c->container->egress->records, &c->container->record_rate, &r,
	        egress_policy_label(c->container->policy));
}

/* ---- sides ---- */

static void side_close(struct egress_side *s, bool reset)
{
	struct linger now = {1, 0};

	if (s->fd < 0)
		return;
	event_del(&s->rd);
	event_del(&s->wr);
	if (reset)
		setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(s->fd);
	s->fd = -1;
	buf_free(&s->out);
}

/* Writes what the socket takes. Returns how much, or -1 where it takes no more. */
static ssize_t side_write(struct egress_side *s, const void *data, size_t n)
{
	ssize_t w = send(s->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (w < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	return w;
}

static void side_break(struct egress_side *s)
{
	s->broken = true;
	buf_free(&s->out);
}

static void side_send(struct egress_side *s, const void *data, size_t n)
{
	ssize_t w = 0;

	if (s->broken || n == 0)
		return;
	if (s->out.len == 0)
		w = side_write(s, data, n);
	if (w < 0 || ((size_t)w < n && buf_append(&s->out, (const char *)data + w, n - (size_t)w)))
		side_break(s);
}

static void side_flush(struct egress_side *s)
{
	ssize_t w = s->out.len > 0 ? side_write(s, s->out.data, s->out.len) : 0;

	if (w < 0)
		side_break(s);
	else if ((size_t)w == s->out.len)
		buf_free(&s->out);
	else
		buf_consume(&s->out, (size_t)w);
}

static void side_shut(struct egress_side *s)
{
	if (s->fd >= 0 && !s->shut)
		shutdown(s->fd, SHUT_WR);
	s->shut = true;
}

/* How many bytes now lie in scratch; 0: none now; -1: the connection broke. Notes the end. */
static ssize_t side_read(struct egress_side *s, uint8_t *scratch, size_t max)
{
	ssize_t n = recv(s->fd, scratch, max, MSG_DONTWAIT);

	if (n == 0)
		s->eof = true;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	return n;
}

void egress_conn_to_server(struct egress_conn *c, const void *data, size_t n)
{
	side_send(&c->server, data, n);
}

void egress_conn_to_client(struct egress_conn *c, const void *data, size_t n)
{
	side_send(&c->client, data, n);
}

/* ---- ends ---- */

static void cancel(struct egress_conn *c)
{
	if (c->lookup)
		egress_resolve_cancel(steal(c->lookup));
}

void egress_conn_abort(struct egress_conn *c, const char *reason)
{
	if (c->state == EGRESS_CONN_OVER)
		return;
	c->reason = reason;
	if (c->state == EGRESS_CONN_HEAD) {
		/* It ended before there was anything to judge. */
		c->verdict = EGRESS_DENIED;
		c->recorded = c->recorded || c->bytes_out == 0;
	}
	record(c);
	side_close(&c->client, true);
	side_close(&c->server, true);
	c->state = EGRESS_CONN_OVER;
}

static void arm(struct egress_conn *c, uint64_t ms)
{
	struct timeval tv = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};

	event_add(&c->timer, &tv);
}

/* The server is gone; the container may still have to take what waits for it. */
void egress_conn_finish(struct egress_conn *c)
{
	if (c->state == EGRESS_CONN_OVER || c->state == EGRESS_CONN_LINGER)
		return;
	record(c);
	cancel(c);
	side_close(&c->server, c->server.broken);
	c->state = EGRESS_CONN_LINGER;
	buf_free(&c->in);
	arm(c, c->client.out.len > 0 ? limits(c)->idle_ms : LINGER_MS);
}

void egress_conn_last(struct egress_conn *c, const void *data, size_t n)
{
	egress_conn_to_client(c, data, n);
	egress_conn_finish(c);
}

static void refuse(struct egress_conn *c, int status, bool denied)
{
	if (c->port == 443)
		egress_tls_refuse(c, denied);
	else
		egress_http_refuse(c, status);
}

void egress_conn_deny(struct egress_conn *c, int status, const char *reason)
{
	c->verdict = EGRESS_DENIED;
	c->verdict_ms = clock_wall_ms();
	c->reason = reason;
	refuse(c, status, true);
}

void egress_conn_fail(struct egress_conn *c, int status, const char *reason)
{
	c->reason = reason;
	refuse(c, status, false);
}

/* A limit of its life is reached. What is in the middle of an answer, or unseen, can only be cut
 * off; a connection at rest is closed as any server would. */
static void end_at_limit(struct egress_conn *c, int status, const char *reason)
{
	bool open = c->state == EGRESS_CONN_OPEN;

	if (open && (c->port == 443 || c->http.phase == EGRESS_HTTP_OPAQUE)) {
		egress_conn_abort(c, reason);
	} else if (open && !c->http.waiting) {
		c->reason = reason;
		egress_conn_finish(c);
	} else {
		egress_conn_fail(c, status, reason);
	}
}

static void conn_free(struct egress_conn *c)
{
	struct egress_container *k = c->container;

	cancel(c);
	side_close(&c->client, false);
	side_close(&c->server, false);
	event_del(&c->timer);
	buf_free(&c->in);
	if (c->port == 443)
		egress_hello_free(&c->tls.hello);
	else
		egress_http_end(c);
	egress_names_release(k->names, c->name);
	TAILQ_REMOVE(&k->conns, c, link);
	if (c->refused)
		k->n_refused--;
	else
		k->n_conns--;
	k->egress->n_conns--;
	free(c);
}

void egress_conn_kill(struct egress_conn *c)
{
	egress_conn_abort(c, "container ended");
	conn_free(c);
}

static void want(struct event *ev, bool on)
{
	if (on && !event_pending(ev, EV_READ | EV_WRITE, NULL))
		event_add(ev, NULL);
	else if (!on && event_pending(ev, EV_READ | EV_WRITE, NULL))
		event_del(ev);
}

/* In the open state: passes ends of stream on, and ends with the second one. */
static void settle_ends(struct egress_conn *c)
{
	bool http = c->port == 80 && c->http.phase != EGRESS_HTTP_OPAQUE;
	bool cut = http && c->client.eof && c->in.len > 0 && c->http.phase == EGRESS_HTTP_HEAD;

	if (c->client.broken) {
		egress_conn_abort(c, "closed by the container");
		return;
	}
	if (c->client.eof && c->in.len == 0 && c->server.out.len == 0)
		side_shut(&c->server);
	if (cut) /* a request that will never be whole */
		egress_conn_finish(c);
	if (!c->server.eof || cut)
		return;
	if (http || c->client.eof) {
		egress_conn_finish(c);
		return;
	}
	if (c->client.out.len == 0)
		side_shut(&c->client);
}

static void settle(struct egress_conn *c)
{
	bool open, room;

	if (c->state == EGRESS_CONN_OPEN)
		settle_ends(c);
	if (c->state == EGRESS_CONN_LINGER && c->client.out.len == 0)
		side_shut(&c->client);
	if (c->state == EGRESS_CONN_LINGER &&
	        (c->client.broken || (c->client.eof && c->client.out.len == 0)))
		c->state = EGRESS_CONN_OVER;
	if (c->state == EGRESS_CONN_OVER) {
		conn_free(c);
		return;
	}
	open = c->state == EGRESS_CONN_OPEN;
	room = c->in.len <= EGRESS_CONN_IN_MAX && (!open || c->server.out.len == 0);
	want(&c->client.rd, !c->client.eof && room);
	want(&c->client.wr, c->client.out.len > 0);
	if (c->server.fd < 0)
		return;
	want(&c->server.rd, open && !c->server.eof && c->client.out.len == 0);
	want(&c->server.wr, c->state == EGRESS_CONN_DIAL || c->server.out.len > 0);
}

/* ---- what is asked of a name ---- */

/* An address without a name, when all may be reached. */
static const char *dialled_refused(struct egress_conn *c)
{
	struct egress_container *k = c->container;

	if (c->dialled.sa.sa_family != AF_INET)
		return "not allowed";
	if (egress_names_range(ntohl(c->dialled.in.sin_addr.s_addr)))
		return "address of no name";
	if (!egress_policy_all(k->policy))
		return "not allowed";
	return address_refused(k->egress->own, &c->dialled, false);
}

bool egress_conn_check_name(struct egress_conn *c, const char *name, const char *mismatch)
{
	const struct egress_policy *p = c->container->policy;
	char plain[EGRESS_NAME_MAX + 1], address[48];

	if (c->name) {
		if (strcmp(name, egress_names_text(c->name)) == 0)
			return true;
	} else {
		const char *refused = dialled_refused(c);

		if (refused) {
			egress_conn_deny(c, 520, refused);
			return false;
		}
		address_text(&c->dialled, address);
		if (name[0] == '\0' || strcmp(name, address) == 0)
			return true;
		/* Any name that the policy lets be asked for. */
		if (egress_policy_name(str_of(name), plain) &&
		        egress_policy_allows(p, str_of(plain), &c->rule))
			return true;
	}
	egress_conn_deny(c, 520, mismatch);
	return false;
}

/* ---- dialling ---- */

static void on_server_read(evutil_socket_t fd, short what, void *arg);
static void on_server_write(evutil_socket_t fd, short what, void *arg);

/* While open: idle and whole life; bytes only move active_ms, and the timer looks again. */
static void on_open_time(struct egress_conn *c)
{
	uint64_t now = clock_mono_ms(), idle = now - c->active_ms, life = now - c->began_ms;

	if (life >= limits(c)->total_ms)
		end_at_limit(c, 504, "open too long");
	else if (idle >= limits(c)->idle_ms)
		end_at_limit(c, 504, "idle too long");
	else if (limits(c)->total_ms - life < limits(c)->idle_ms - idle)
		arm(c, limits(c)->total_ms - life);
	else
		arm(c, limits(c)->idle_ms - idle);
}

static void opened(struct egress_conn *c)
{
	c->state = EGRESS_CONN_OPEN;
	c->active_ms = clock_mono_ms();
	c->reason = "allowed";
	on_open_time(c);
	if (c->state != EGRESS_CONN_OPEN)
		return;
	if (c->port == 443) {
		egress_tls_opened(c);
	} else {
		egress_http_go_on(c);
	}
}

/* 0: connected or on the way. */
static int dial_one(struct egress_conn *c, const union address *a)
{
	struct egress_side *s = &c->server;
	int one = 1;

	s->fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s->fd < 0)
		return -errno;
	setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	event_assign(
	        &s->rd, c->container->egress->base, s->fd, EV_READ | EV_PERSIST, on_server_read, c);
	event_assign(&s->wr, c->container->egress->base, s->fd, EV_WRITE | EV_PERSIST,
	        on_server_write, c);
	if (connect(s->fd, &a->sa, address_len(a)) < 0 && errno != EINPROGRESS) {
		int errnum = errno;

		side_close(s, false);
		return -errnum;
	}
	return 0;
}

static const char *dial_reason(int errnum)
{
	switch (errnum) {
	case ECONNREFUSED:
		return "connection refused";
	case ETIMEDOUT:
		return "no connection in time";
	default:
		return "unreachable";
	}
}

/* Dials the next address that may be dialled, from c->at on. */
static void dial(struct egress_conn *c, int errnum)
{
	struct egress *e = c->container->egress;
	bool private = c->name && egress_policy_private(c->container->policy);
	uint64_t now = clock_mono_ms(), end = c->allowed_ms + limits(c)->connect_ms;
	const char *refused = NULL, *why;

	for (; c->at < c->n_addresses && now < end; c->at++) {
		why = address_refused(e->own, &c->addresses[c->at], private);
		if (why) {
			refused = refused ? refused : why;
			continue;
		}
		errnum = -dial_one(c, &c->addresses[c->at]);
		if (errnum != 0)
			continue;
		c->state = EGRESS_CONN_DIAL;
		arm(c, c->at + 1 < c->n_addresses && limits(c)->attempt_ms < end - now
		                ? limits(c)->attempt_ms
		                : end - now);
		return;
	}
	if (refused && errnum == 0) {
		c->at = 0;
		egress_conn_deny(c, 520, refused);
	} else {
		c->at = c->n_addresses > 0 ? c->n_addresses - 1 : 0;
		egress_conn_fail(c, errnum == ETIMEDOUT ? 504 : 502, dial_reason(errnum));
	}
}

static void on_resolved(
        void *ctx, const union address *addresses, size_t n, const char *failure)
{
	struct egress_conn *c = ctx;

	c->lookup = NULL;
	if (n > 0)
		memcpy(c->addresses, addresses, n * sizeof(*addresses));
	c->n_addresses = n;
	if (n == 0)
		egress_conn_fail(c, 502, failure);
	else
		dial(c, 0);
	settle(c);
}

void egress_conn_allow(struct egress_conn *c)
{
	struct egress *e = c->container->egress;

	c->verdict = EGRESS_ALLOWED;
	c->verdict_ms = clock_wall_ms();
	c->allowed_ms = clock_mono_ms();
	c->reason = "allowed";
	if (c->name) {
		c->state = EGRESS_CONN_RESOLVE;
		arm(c, limits(c)->connect_ms);
		c->lookup = egress_resolve_start(
		        e->resolver, egress_names_text(c->name), c->port, on_resolved, c);
		return;
	}
	c->addresses[0] = c->dialled;
	c->n_addresses = 1;
	dial(c, 0);
}

/* ---- events ---- */

static void count(struct egress_conn *c, uint64_t *which, size_t n)
{
	*which += n;
	c->active_ms = clock_mono_ms();
	if (c->bytes_in + c->bytes_out > limits(c)->bytes)
		end_at_limit(c, 413, "too many bytes");
}

static void client_bytes(struct egress_conn *c, const char *data, size_t n)
{
	switch (c->state) {
	case EGRESS_CONN_HEAD:
	case EGRESS_CONN_RESOLVE:
	case EGRESS_CONN_DIAL:
		if (buf_append(&c->in, data, n)) {
			egress_conn_abort(c, "too many bytes");
			return;
		}
		if (c->state == EGRESS_CONN_HEAD && c->port == 443)
			egress_tls_look(c);
		else if (c->state == EGRESS_CONN_HEAD)
			egress_http_go_on(c);
		return;
	case EGRESS_CONN_OPEN:
		if (c->port == 443)
			egress_tls_from_client(c, data, n);
		else
			egress_http_from_client(c, data, n);
		return;
	case EGRESS_CONN_LINGER:
		c->lingered += n;
		if (c->lingered > LINGER_BYTES)
			c->state = EGRESS_CONN_OVER;
		return;
	case EGRESS_CONN_OVER:
		return;
	}
}

static void on_client_read(evutil_socket_t fd, short what, void *arg)
{
	struct egress_conn *c = arg;
	uint8_t *scratch = c->container->egress->scratch;
	ssize_t n = side_read(&c->client, scratch, sizeof(c->container->egress->scratch));

	if (n < 0) {
		egress_conn_abort(c, "closed by the container");
	} else if (n > 0) {
		if (c->state != EGRESS_CONN_LINGER)
			count(c, &c->bytes_out, (size_t)n);
		client_bytes(c, (const char *)scratch, (size_t)n);
	} else if (c->client.eof && c->state == EGRESS_CONN_HEAD) {
		egress_conn_abort(c, "closed by the container");
	}
	settle(c);
}

static void on_client_write(evutil_socket_t fd, short what, void *arg)
{
	struct egress_conn *c = arg;

	side_flush(&c->client);
	c->active_ms = clock_mono_ms();
	if (c->state == EGRESS_CONN_LINGER && c->client.out.len == 0)
		arm(c, LINGER_MS);
	settle(c);
}

static void on_server_read(evutil_socket_t fd, short what, void *arg)
{
	struct egress_conn *c = arg;
	uint8_t *scratch = c->container->egress->scratch;
	ssize_t n = side_read(&c->server, scratch, sizeof(c->container->egress->scratch));

	if (n < 0) {
		egress_conn_abort(c, "closed by the server");
	} else if (n > 0) {
		count(c, &c->bytes_in, (size_t)n);
		if (c->state == EGRESS_CONN_OPEN && c->port == 443)
			egress_tls_from_server(c, scratch, (size_t)n);
		else if (c->state == EGRESS_CONN_OPEN)
			egress_http_from_server(c, (const char *)scratch, (size_t)n);
	}
	settle(c);
}

static void on_server_write(evutil_socket_t fd, short what, void *arg)
{
	struct egress_conn *c = arg;

	if (c->state == EGRESS_CONN_DIAL) {
		int errnum = 0;
		socklen_t len = sizeof(errnum);

		getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &len);
		if (errnum == 0) {
			opened(c);
		} else {
			side_close(&c->server, false);
			c->at++;
			dial(c, errnum);
		}
	} else {
		side_flush(&c->server);
		c->active_ms = clock_mono_ms();
	}
	settle(c);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct egress_conn *c = arg;

	switch (c->state) {
	case EGRESS_CONN_HEAD:
		egress_conn_abort(c, "no request in time");
		break;
	case EGRESS_CONN_RESOLVE:
		egress_conn_fail(c, 504, "name not resolved in time");
		break;
	case EGRESS_CONN_DIAL:
		side_close(&c->server, false);
		c->at++;
		dial(c, ETIMEDOUT);
		break;
	case EGRESS_CONN_OPEN:
		on_open_time(c);
		break;
	case EGRESS_CONN_LINGER:
	case EGRESS_CONN_OVER:
		side_close(&c->client, true);
		c->state = EGRESS_CONN_OVER;
		break;
	}
	settle(c);
}

static struct egress_conn *conn_new(struct egress_container *k, int fd, uint16_t port)
{
	struct egress_conn *c = mem_alloc(sizeof(*c));
	socklen_t len = sizeof(c->dialled);
	int one = 1;

	c->container = k;
	c->port = port;
	c->client.fd = fd;
	c->server.fd = -1;
	c->began_ms = c->active_ms = clock_mono_ms();
	c->reason = "";
	buf_init(&c->client.out, 4 * sizeof(k->egress->scratch));
	buf_init(&c->server.out, 4 * sizeof(k->egress->scratch));
	buf_init(&c->in, 2 * EGRESS_CONN_IN_MAX);
	if (port == 443)
		egress_hello_init(&c->tls.hello);
	else
		egress_http_begin(c);
	TAILQ_INSERT_TAIL(&k->conns, c, link);
	k->egress->n_conns++;
	event_assign(&c->client.rd, k->egress->base, fd, EV_READ | EV_PERSIST, on_client_read, c);
	event_assign(&c->client.wr, k->egress->base, fd, EV_WRITE | EV_PERSIST, on_client_write, c);
	event_assign(&c->timer, k->egress->base, -1, 0, on_timer, c);
	/* Without its own address it is one of no name, and nothing is allowed. */
	if (getsockname(fd, &c->dialled.sa, &len) == 0)
		address_unmap(&c->dialled);
	if (c->dialled.sa.sa_family == AF_INET)
		c->name = egress_names_hold(k->names, ntohl(c->dialled.in.sin_addr.s_addr));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return c;
}

void egress_conn_start(struct egress_container *k, int fd, uint16_t port)
{
	struct egress_conn *c = conn_new(k, fd, port);

	k->n_conns++;
	arm(c, limits(c)->head_ms);
	settle(c);
}

void egress_conn_refuse(struct egress_container *k, int fd, uint16_t port, const char *reason)
{
	struct egress_conn *c = conn_new(k, fd, port);

	c->refused = true;
	k->n_refused++;
	egress_conn_deny(c, 429, reason);
	settle(c);
}
