/*
 * Theory of operation: the server holds what connections share: the listening sockets, the lists,
 * one timer, one scratch buffer to read into (so a connection that waits owns no buffer).
 *
 * Timers: every time limit has one duration, so connections with the same limit stand in a list in
 * the order of their deadlines: setting one is O(1), and the server needs a single event, armed for
 * the earliest head of those lists. It may fire early, after its connection was moved; then it is
 * armed anew.
 *
 * The ready list holds connections that must run though their socket says nothing: a handler
 * answered outside of a callback, or a run used up its share and lets others go first.
 */
#include "http/conn.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	ACCEPT_BURST = 64,
	ACCEPT_PAUSE_MS = 100,
	LINGER_MS = 5000,
	ANSWER_HEAD_MAX = 1 << 20,
};

void http_server_options_default(struct http_server_options *o)
{
	*o = (struct http_server_options){
	        .max_head = 65536,
	        .max_headers = 100,
	        .max_body = 64u << 20,
	        .max_in_flight = 1u << 30,
	        .max_connections = 16384,
	        .head_timeout_ms = 10000,
	        .body_timeout_ms = 30000,
	        .idle_timeout_ms = 75000,
	        .write_timeout_ms = 120000,
	        .high_water = 262144,
	        .low_water = 65536,
	};
}

/* ---- accepting ---- */

static void server_accepting(struct http_server *s, bool on)
{
	struct listener *l;

	if (s->accepting == on)
		return;
	s->accepting = on;
	TAILQ_FOREACH(l, &s->listeners, link)
	{
		if (on)
			event_add(&l->event, NULL);
		else
			event_del(&l->event);
	}
}

static void server_on_accept_pause(evutil_socket_t fd, short what, void *arg)
{
	struct http_server *s = arg;

	(void)fd;
	(void)what;
	if (!s->draining && s->n_conns < s->o.max_connections)
		server_accepting(s, true);
}

static void server_on_accept(evutil_socket_t fd, short what, void *arg)
{
	struct timeval pause = {0, ACCEPT_PAUSE_MS * 1000};
	struct http_server *s = arg;
	union conn_address peer;
	socklen_t len;
	unsigned i;
	int conn;

	(void)what;
	for (i = 0; i < ACCEPT_BURST; i++) {
		if (s->n_conns >= s->o.max_connections && TAILQ_EMPTY(&s->timed[TIMER_IDLE])) {
			server_accepting(s, false); /* http_server_forget goes on */
			return;
		}
		len = sizeof(peer);
		memset(&peer, 0, sizeof(peer));
		conn = accept4(fd, &peer.any, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (conn < 0) {
			if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO)
				continue;
			if (errno == EAGAIN)
				return;
			/* No descriptors or memory: what waits would wake us at once, for ever. */
			server_accepting(s, false);
			event_add(&s->accept_event, &pause);
			return;
		}
		/* In place of the one that was idle longest, where there is no room. */
		if (s->n_conns >= s->o.max_connections)
			http_conn_close(TAILQ_FIRST(&s->timed[TIMER_IDLE]));
		http_conn_new(s, conn, &peer);
	}
}

int http_server_listen(struct http_server *s, evutil_socket_t fd, struct error *err)
{
	int one = 1, idle = 60, between = 15, count = 4;
	struct listener *l;

	/* Listening again: an earlier server on this socket may have ended that (see below). */
	if (evutil_make_socket_nonblocking(fd) || evutil_make_socket_closeonexec(fd) ||
	        listen(fd, SOMAXCONN) < 0)
		return error_errno(err, errno, "the listening socket");
	/* Linux hands these on to the connections; a unix socket refuses them and needs none. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof(between));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	l = mem_alloc(sizeof(*l));
	if (event_assign(&l->event, s->base, fd, EV_READ | EV_PERSIST, server_on_accept, s) ||
	        (s->accepting && event_add(&l->event, NULL))) {
		free(l);
		return error_set(err, ERR_IO, "the listening socket cannot be watched");
	}
	TAILQ_INSERT_TAIL(&s->listeners, l, link);
	return 0;
}

static void server_close_listeners(struct http_server *s)
{
	struct listener *l;

	while ((l = TAILQ_FIRST(&s->listeners))) {
		TAILQ_REMOVE(&s->listeners, l, link);
		event_del(&l->event);
		/* Others hold it too (whoever bound it): closing alone would leave new clients
		 * waiting in its queue, where nobody takes them. */
		shutdown(event_get_fd(&l->event), SHUT_RD);
		close(event_get_fd(&l->event));
		free(l);
	}
	event_del(&s->accept_event);
}

/* ---- lists ---- */

void http_server_queue(struct http_server *s, struct http_conn *c)
{
	struct timeval now = {0, 0};

	if (c->queued)
		return;
	c->queued = true;
	TAILQ_INSERT_TAIL(&s->ready, c, ready);
	event_add(&s->ready_event, &now);
}

static void server_on_ready(evutil_socket_t fd, short what, void *arg)
{
	struct http_server *s = arg;
	struct http_conn *c;
	size_t n = 0;

	(void)fd;
	(void)what;
	/* Only those that stand here now: what they queue runs in the next step, after the sockets.
	 */
	TAILQ_FOREACH(c, &s->ready, ready)
	{
		n++;
	}
	while (n-- > 0 && (c = TAILQ_FIRST(&s->ready))) {
		TAILQ_REMOVE(&s->ready, c, ready);
		c->queued = false;
		http_conn_run(c);
	}
}

static uint64_t server_duration(const struct http_server *s, enum conn_timer t)
{
	switch (t) {
	case TIMER_HEAD:
		return s->o.head_timeout_ms;
	case TIMER_BODY:
		return s->o.body_timeout_ms;
	case TIMER_IDLE:
		return s->o.idle_timeout_ms;
	case TIMER_WRITE:
		return s->o.write_timeout_ms;
	case TIMER_LINGER:
		return LINGER_MS;
	case TIMER_NONE:
	case TIMER_N:
		break;
	}
	return 0;
}

static void server_arm(struct http_server *s, uint64_t now, uint64_t at)
{
	uint64_t wait = at > now ? at - now : 0;
	struct timeval tv = {(time_t)(wait / 1000), (suseconds_t)(wait % 1000 * 1000)};

	s->timer_at_ms = at;
	event_add(&s->timer_event, &tv);
}

void http_server_set_timer(struct http_server *s, struct http_conn *c, enum conn_timer t)
{
	uint64_t now;

	if (c->timer != TIMER_NONE)
		TAILQ_REMOVE(&s->timed[c->timer], c, timed);
	c->timer = (uint8_t)t;
	if (t == TIMER_NONE)
		return;
	TAILQ_INSERT_TAIL(&s->timed[t], c, timed);
	now = clock_mono_ms();
	c->deadline_ms = now + server_duration(s, t);
	if (s->timer_at_ms == 0 || c->deadline_ms < s->timer_at_ms)
		server_arm(s, now, c->deadline_ms);
}

static void server_on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct http_server *s = arg;
	uint64_t now = clock_mono_ms(), next = 0;
	struct http_conn *c;
	unsigned t;

	(void)fd;
	(void)what;
	s->timer_at_ms = 0;
	for (t = TIMER_HEAD; t < TIMER_N; t++)
		while ((c = TAILQ_FIRST(&s->timed[t])) && c->deadline_ms <= now)
			http_conn_timeout(c);
	for (t = TIMER_HEAD; t < TIMER_N; t++) {
		c = TAILQ_FIRST(&s->timed[t]);
		if (c && (next == 0 || c->deadline_ms < next))
			next = c->deadline_ms;
	}
	if (next)
		server_arm(s, now, next);
}

void http_server_forget(struct http_server *s, struct http_conn *c)
{
	http_server_set_timer(s, c, TIMER_NONE);
	if (c->queued)
		TAILQ_REMOVE(&s->ready, c, ready);
	c->queued = false;
	TAILQ_REMOVE(&s->conns, c, all);
	s->n_conns--;
	if (!s->accepting && !s->draining && !event_pending(&s->accept_event, EV_TIMEOUT, NULL))
		server_accepting(s, true);
}

/* ---- the server ---- */

static void no_body(void *ctx, struct http_exchange *x, const void *data, size_t n)
{
	(void)ctx;
	(void)x;
	(void)data;
	(void)n;
}

static void no_drain(void *ctx, struct http_exchange *x)
{
	(void)ctx;
	(void)x;
}

struct http_server *http_server_new(
        struct event_base *base, const struct http_server_options *o, const struct http_handler *h)
{
	struct http_server *s;
	unsigned t;

	/* Hang-ups are noticed by edge-triggered EV_CLOSED: without it this server would be blind.
	 */
	if ((event_base_get_features(base) & (EV_FEATURE_ET | EV_FEATURE_EARLY_CLOSE)) !=
	        (EV_FEATURE_ET | EV_FEATURE_EARLY_CLOSE))
		BUG("the event loop does not run on epoll");
	s = mem_alloc(sizeof(*s));
	s->base = base;
	s->o = *o;
	s->h = *h;
	if (!s->h.on_body)
		s->h.on_body = no_body;
	if (!s->h.on_drain)
		s->h.on_drain = no_drain;
	s->accepting = true;
	s->date_s = -1;
	buf_init(&s->head, ANSWER_HEAD_MAX);
	TAILQ_INIT(&s->listeners);
	TAILQ_INIT(&s->conns);
	TAILQ_INIT(&s->ready);
	for (t = 0; t < TIMER_N; t++)
		TAILQ_INIT(&s->timed[t]);
	if (evtimer_assign(&s->ready_event, base, server_on_ready, s) ||
	        evtimer_assign(&s->timer_event, base, server_on_timer, s) ||
	        evtimer_assign(&s->accept_event, base, server_on_accept_pause, s))
		BUG("no events for the server");
	return s;
}

void http_server_drain(struct http_server *s)
{
	struct http_conn *c, *next;

	s->draining = true;
	server_close_listeners(s);
	for (c = TAILQ_FIRST(&s->conns); c; c = next) {
		next = TAILQ_NEXT(c, all);
		if (c->x || c->state != CONN_HEAD || c->running)
			continue;
		/* A request that is on its way already is answered. */
		if (c->readable || c->in.len > 0)
			continue;
		http_conn_close(c);
	}
}

size_t http_server_open_exchanges(const struct http_server *s)
{
	return s->n_exchanges;
}

size_t http_server_connections(const struct http_server *s)
{
	return s->n_conns;
}

struct http_server *http_server_free(struct http_server *s)
{
	struct http_conn *c;

	if (!s)
		return NULL;
	if (s->in_callback)
		BUG("the server is freed by one of its callbacks");
	s->draining = true;
	server_close_listeners(s);
	while ((c = TAILQ_FIRST(&s->conns))) {
		c->why = HTTP_GONE_ABORTED;
		http_conn_close(c);
	}
	event_del(&s->ready_event);
	event_del(&s->timer_event);
	event_del(&s->accept_event);
	buf_free(&s->head);
	free(s);
	return NULL;
}

const char *http_server_date(struct http_server *s)
{
	static const char days[] = "SunMonTueWedThuFriSat";
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	int64_t now = clock_wall_s();
	time_t t = (time_t)now;
	struct tm tm;

	if (now == s->date_s)
		return s->date;
	s->date_s = now;
	gmtime_r(&t, &tm);
	str_format(s->date, sizeof(s->date), "%.3s, %02d %.3s %d %02d:%02d:%02d GMT",
	        days + 3 * tm.tm_wday, tm.tm_mday, months + 3 * tm.tm_mon, tm.tm_year + 1900,
	        tm.tm_hour, tm.tm_min, tm.tm_sec);
	return s->date;
}
