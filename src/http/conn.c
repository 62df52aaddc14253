/*
 * Theory of operation.
 *
 * A connection has one edge-triggered event for its whole life, so watching costs one epoll_ctl,
 * and the end of the peer's stream, also of its half, is told whether or not bytes are being read.
 * What the kernel said stays in `readable`, `writable` and `hung_up`.
 *
 * http_conn_run does all there is to do: settle (send, end the exchange when its answer is out,
 * tell the handler that there is room) and input (read, feed the state's consumer), in turn until
 * neither moves. It is called for an event, a timer, or from the ready list; never from inside
 * itself. The public functions only change state, send where the socket has room, and ask for a
 * run.
 *
 * Input is read into the server's scratch buffer. The consumer stops where the state wants no more
 * (a request is being answered, a body is paused, the step's budget is used up); what is left then
 * goes to c->in and is used before anything more is read.
 *
 * A body goes wire → (chunk framing) → (decoder) → handler or memory. A decoder may turn few bytes
 * into many, so it is asked for 16 KiB at a time and counts towards the budget; wire bytes that it
 * has not taken are given back to the framing.
 */
#include "http/conn.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A piece may hold hundreds of messages: the handler can pause after each piece. */
enum { RUN_BUDGET = 256 * 1024, IOV_MAX_HERE = 8, UPGRADED_PIECE = 4096 };

static const char text_memory[] = "There is no memory for this request now.";
static const char text_large[] = "The request body is too large.";

static struct http_handler *conn_enter(struct http_conn *c)
{
	c->server->in_callback = true;
	return &c->server->h;
}

static void conn_leave(struct http_conn *c)
{
	c->server->in_callback = false;
}

/* ---- output ---- */

void http_conn_kick(struct http_conn *c)
{
	if (!c->running)
		http_server_queue(c->server, c);
}

void http_conn_give_up(struct http_conn *c, enum http_gone why)
{
	if (c->dead)
		return;
	c->dead = true;
	c->why = (uint8_t)why;
	http_conn_kick(c);
}

static void conn_keep(struct http_conn *c, const void *data, size_t n)
{
	/* The part that is sent is dropped once it is the larger one: each byte moves at most once.
	 */
	if (c->out_off > 0 && c->out_off >= c->out.len - c->out_off) {
		buf_consume(&c->out, c->out_off);
		c->out_off = 0;
	}
	if (buf_append(&c->out, data, n))
		http_conn_give_up(c, HTTP_GONE_STALLED);
}

static size_t iov_skip(struct iovec *iov, size_t n_iov, size_t n)
{
	size_t i, left = 0;

	for (i = 0; i < n_iov; i++) {
		size_t take = n < iov[i].iov_len ? n : iov[i].iov_len;

		iov[i].iov_base = (char *)iov[i].iov_base + take;
		iov[i].iov_len -= take;
		n -= take;
		left += iov[i].iov_len;
	}
	return left;
}

/* Sends until the kernel takes no more; iov says afterwards what is left. */
static void conn_send_now(struct http_conn *c, struct iovec *iov, size_t n_iov)
{
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n_iov};
	ssize_t r;

	for (;;) {
		r = sendmsg(event_get_fd(&c->event), &msg, MSG_NOSIGNAL);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0 && errno == EAGAIN) {
			c->writable = false;
			return;
		}
		if (r < 0) {
			http_conn_give_up(c, HTTP_GONE_CLIENT);
			return;
		}
		c->moved_out = true;
		if (iov_skip(iov, n_iov, (size_t)r) == 0)
			return;
	}
}

void http_conn_send(struct http_conn *c, const struct iovec *iov, size_t n_iov, bool later)
{
	size_t pending = http_conn_pending(c), i;
	struct iovec all[IOV_MAX_HERE];

	if (c->dead)
		return;
	if (n_iov + 1 > IOV_MAX_HERE)
		BUG("%zu pieces in one write", n_iov);
	all[0] = (struct iovec){c->out.data ? c->out.data + c->out_off : NULL, pending};
	for (i = 0; i < n_iov; i++)
		all[i + 1] = iov[i];
	if (!later && c->writable)
		conn_send_now(c, all, n_iov + 1);
	c->out_off += pending - all[0].iov_len;
	for (i = 1; i <= n_iov && !c->dead; i++)
		if (all[i].iov_len > 0)
			conn_keep(c, all[i].iov_base, all[i].iov_len);
	if (http_conn_pending(c) == 0) {
		buf_free(&c->out);
		c->out_off = 0;
	} else if (later || c->timer != TIMER_WRITE) {
		http_conn_kick(c); /* also sets the timer: the client may never take it */
	}
}

/* ---- the exchange ---- */

static void conn_drop_exchange(struct http_conn *c, enum http_gone why)
{
	struct http_exchange *x = c->x;

	if (!x)
		return;
	x->over = true;
	if (x->announced) {
		c->server->n_exchanges--;
		conn_enter(c)->on_gone(c->server->h.ctx, x, why);
		conn_leave(c);
	}
	c->x = http_request_free(x);
}

/* The answer is out: the connection goes on to the next request, or ends. */
static void conn_end_exchange(struct http_conn *c)
{
	struct http_exchange *x = c->x;
	bool close_now = !x->head.keep_alive && x->wire_done && !c->readable && c->in.len == 0;
	uint64_t rest = x->wire_done ? 0 : x->body_left;

	conn_drop_exchange(c, HTTP_GONE_DONE);
	c->fresh = true;
	if (!c->close) {
		c->state = rest > 0 ? CONN_DRAIN : CONN_HEAD;
		c->drain_left = rest;
	} else if (close_now || c->hung_up || shutdown(event_get_fd(&c->event), SHUT_WR)) {
		http_conn_give_up(c, HTTP_GONE_DONE);
	} else {
		c->state = CONN_LINGER;
	}
}

/* Whether it did something, after which there may be more to do. */
static bool conn_settle(struct http_conn *c)
{
	static const char text_continue[] = "HTTP/1.1 100 Continue\r\n\r\n";
	struct iovec iov = {(void *)(uintptr_t)text_continue, sizeof(text_continue) - 1};
	struct http_exchange *x = c->x;

	if (!c->dead && http_conn_pending(c) > 0 && c->writable)
		http_conn_send(c, NULL, 0, false);
	if (c->dead || !x)
		return false;
	if (x->finished && http_conn_pending(c) == 0) {
		conn_end_exchange(c);
		return true;
	}
	if (x->above && !x->finished && http_conn_pending(c) < c->server->o.low_water) {
		x->above = false;
		conn_enter(c)->on_drain(c->server->h.ctx, x);
		conn_leave(c);
		return true;
	}
	if (c->state == CONN_BODY && x->expecting && !x->paused && !x->discard && !x->started) {
		x->expecting = false;
		http_conn_send(c, &iov, 1, false);
	}
	return false;
}

/* ---- the body ---- */

/* Body bytes as the handler gets them. */
static void conn_body_piece(struct http_conn *c, const char *data, size_t n)
{
	struct http_exchange *x = c->x;
	struct http_server *s = c->server;

	x->decoded += n;
	if (x->decoded > x->body_max) {
		http_response_refuse(x, 413, text_large);
		return;
	}
	if (x->pieces) {
		conn_enter(c)->on_body(s->h.ctx, x, data, n);
		conn_leave(c);
		return;
	}
	if (n > s->o.max_in_flight - s->in_flight || buf_append(&x->body, data, n)) {
		http_response_refuse(x, 503, text_memory);
		return;
	}
	x->charged += n;
	s->in_flight += n;
}

/* Counts what a decoder has come to hold; false, and the request refused, when that is too much. */
static bool conn_charge_decoder(struct http_conn *c)
{
	struct http_exchange *x = c->x;
	size_t held = http_body_memory(x->decoder);
	size_t more = held > x->decoder_charged ? held - x->decoder_charged : 0;

	if (more > c->server->o.max_in_flight - c->server->in_flight) {
		http_response_refuse(x, 503, text_memory);
		return false;
	}
	x->decoder_charged += more;
	x->charged += more;
	c->server->in_flight += more;
	return true;
}

/* Takes wire bytes freed of framing; returns how many. Fewer than n: paused, or the step is over.
 */
static size_t conn_body_bytes(struct http_conn *c, const char *data, size_t n)
{
	struct http_server *s = c->server;
	struct http_exchange *x = c->x;
	size_t took = 0, used, made;

	if (!x->decoder && !x->discard && n > 0)
		conn_body_piece(c, data, n);
	if (!x->decoder || x->discard)
		return n;
	do {
		if (http_body_decode(x->decoder, data + took, n - took, &used, s->decoded,
		            sizeof(s->decoded), &made)) {
			http_response_refuse(
			        x, 400, "The request body is not what its Content-Encoding says.");
			return n;
		}
		if (!conn_charge_decoder(c))
			return n;
		took += used;
		s->budget -= made < s->budget ? made : s->budget;
		if (made > 0)
			conn_body_piece(c, s->decoded, made);
		if (c->dead || x->discard)
			return n;
	} while (!x->paused && s->budget > 0 && (used > 0 || made > 0) &&
	         (took < n || http_body_pending(x->decoder)));
	return took;
}

static void conn_body_end(struct http_conn *c)
{
	struct http_exchange *x = c->x;

	if (x->decoder && !x->discard && !http_body_complete(x->decoder)) {
		http_response_refuse(
		        x, 400, "The request body ends before its Content-Encoding does.");
		return;
	}
	c->state = CONN_WAIT;
	http_request_free_decoder(x);
	if (x->discard)
		return;
	if (x->pieces)
		conn_enter(c)->on_body(c->server->h.ctx, x, NULL, 0);
	else
		conn_enter(c)->on_request(c->server->h.ctx, x);
	conn_leave(c);
}

static size_t conn_take_chunked(struct http_conn *c, const char *data, size_t n)
{
	struct http_exchange *x = c->x;
	const char *text;
	struct str piece;
	size_t used, took;
	int r = http_parse_chunk_feed(&x->chunk, data, n, &used, &piece, &text);

	if (r < 0) {
		http_response_refuse(x, -r, text);
		return used;
	}
	x->wire_done = r > 0;
	if (piece.n > 0) {
		took = conn_body_bytes(c, piece.p, piece.n);
		http_parse_chunk_unread(&x->chunk, piece.n - took);
		used -= piece.n - took;
	}
	return used;
}

static size_t conn_take_body(struct http_conn *c, const char *data, size_t n)
{
	struct http_exchange *x = c->x;

	c->moved_in = true;
	if (x->decoder && !x->discard && http_body_pending(x->decoder)) {
		conn_body_bytes(c, NULL, 0);
		return 0;
	}
	if (x->wire_done) {
		conn_body_end(c);
		return 0;
	}
	if (x->head.chunked)
		return conn_take_chunked(c, data, n);
	n = n < x->body_left ? n : (size_t)x->body_left;
	n = conn_body_bytes(c, data, n);
	x->body_left -= n;
	x->wire_done = x->body_left == 0;
	return n;
}

/* ---- the head ---- */

/* Whether the body that was announced may come. */
static bool conn_admit(struct http_conn *c)
{
	struct http_server *s = c->server;
	struct http_exchange *x = c->x;

	if (x->head.coding == HTTP_CODING_UNKNOWN) {
		http_response_refuse(x, 415,
		        "The Content-Encoding of a request body may be gzip or zstd, or none.");
		return false;
	}
	if (x->body_left > x->body_max) {
		http_response_refuse(x, 413, text_large);
		return false;
	}
	if (!x->pieces && x->body_left > s->o.max_in_flight - s->in_flight) {
		http_response_refuse(x, 503, text_memory);
		return false;
	}
	if (x->head.coding != HTTP_CODING_IDENTITY) {
		x->decoder = http_body_new((enum http_coding)x->head.coding);
		if (!x->decoder) {
			http_response_refuse(x, 503, text_memory);
			return false;
		}
		return conn_charge_decoder(c);
	}
	return true;
}

static void conn_begin(struct http_conn *c)
{
	struct http_exchange *x = c->x;
	bool pieces;

	x->announced = true;
	x->begun_ns = clock_mono_ns();
	c->server->n_exchanges++;
	x->body_left = x->head.length;
	x->wire_done = !x->head.chunked && x->body_left == 0;
	x->expecting = x->head.expect_continue && !x->wire_done;
	x->body_max = c->server->o.max_body;
	http_parse_chunk_init(&x->chunk);
	c->state = CONN_BODY;
	c->close = false;
	pieces = conn_enter(c)->on_head(c->server->h.ctx, x, &x->body_max) == 1;
	conn_leave(c);
	if (c->dead)
		return;
	x->discard = x->finished || (x->started && !pieces);
	x->pieces = pieces;
	if (!x->discard && !x->wire_done)
		conn_admit(c);
}

static size_t conn_take_head(struct http_conn *c, const char *data, size_t n)
{
	struct http_server *s = c->server;
	const char *text;
	size_t used;
	int r;

	if (!c->x) {
		c->x = mem_alloc(sizeof(*c->x));
		c->x->conn = c;
		buf_init(&c->x->body, SIZE_MAX / 2);
		buf_init(&c->x->headers, s->o.max_head);
		http_parse_head_init(&c->x->head, s->o.max_head, s->o.max_headers);
		c->fresh = true;
	}
	r = http_parse_head_feed(&c->x->head, data, n, &used, &text);
	if (used > s->o.max_in_flight - s->in_flight) {
		r = -503;
		text = text_memory;
	} else {
		c->x->charged += used;
		s->in_flight += used;
	}
	if (r < 0)
		http_response_refuse(c->x, -r, text);
	else if (r > 0)
		conn_begin(c);
	return used;
}

/* ---- input ---- */

static bool conn_wants_input(const struct http_conn *c)
{
	switch ((enum conn_state)c->state) {
	case CONN_HEAD:
	case CONN_DRAIN:
	case CONN_LINGER:
		return true;
	case CONN_BODY:
		return c->x->discard || !c->x->paused;
	case CONN_UPGRADED:
		return !c->x->paused && !c->x->finished;
	case CONN_WAIT:
		break;
	}
	return false;
}

/* Whether the consumer can go on without another byte. */
static bool conn_holds_body(const struct http_conn *c)
{
	return c->state == CONN_BODY &&
	       (c->x->wire_done || (c->x->decoder && http_body_pending(c->x->decoder)));
}

/* Feeds bytes to the states they reach; returns how many were used. */
static size_t conn_consume(struct http_conn *c, const char *data, size_t n)
{
	size_t off = 0, used;

	for (;;) {
		while (conn_settle(c))
			;
		if (c->dead || c->server->budget == 0 || !conn_wants_input(c))
			break;
		if (off == n && !conn_holds_body(c))
			break;
		used = 0;
		switch ((enum conn_state)c->state) {
		case CONN_HEAD:
			used = conn_take_head(c, data + off, n - off);
			break;
		case CONN_BODY:
			used = conn_take_body(c, data + off, n - off);
			break;
		case CONN_DRAIN:
			used = n - off < c->drain_left ? n - off : (size_t)c->drain_left;
			c->drain_left -= used;
			c->moved_in = true;
			if (c->drain_left == 0)
				c->state = CONN_HEAD;
			break;
		case CONN_UPGRADED:
			used = n - off < UPGRADED_PIECE ? n - off : UPGRADED_PIECE;
			conn_enter(c)->on_body(c->server->h.ctx, c->x, data + off, used);
			conn_leave(c);
			break;
		case CONN_LINGER:
			used = n - off;
			break;
		case CONN_WAIT:
			break;
		}
		off += used;
		c->server->budget -= used < c->server->budget ? used : c->server->budget;
	}
	return off;
}

static bool conn_read(struct http_conn *c)
{
	struct http_server *s = c->server;
	size_t used;
	ssize_t n;

	n = recv(event_get_fd(&c->event), s->scratch, sizeof(s->scratch), 0);
	if (n < 0) {
		if (errno == EAGAIN)
			c->readable = false;
		else if (errno != EINTR)
			http_conn_give_up(c, HTTP_GONE_CLIENT);
		return errno == EINTR;
	}
	if (n == 0)
		c->hung_up = true;
	/* A short read has emptied the socket, unless an end stands behind it. */
	if (n == 0 || ((size_t)n < sizeof(s->scratch) && !c->hung_up))
		c->readable = false;
	used = conn_consume(c, s->scratch, (size_t)n);
	if (used < (size_t)n && !c->dead && buf_append(&c->in, s->scratch + used, (size_t)n - used))
		http_conn_give_up(c, HTTP_GONE_ABORTED);
	return true;
}

/* One step of input; false when there is nothing to do for now. */
static bool conn_input(struct http_conn *c)
{
	size_t left = c->in.len - c->in_off, used;

	if (!conn_wants_input(c) || (left == 0 && !c->readable && !conn_holds_body(c)))
		return false;
	if (c->server->budget == 0) {
		http_server_queue(c->server, c);
		return false;
	}
	if (left == 0 && !conn_holds_body(c))
		return conn_read(c);
	used = conn_consume(c, c->in.data ? c->in.data + c->in_off : NULL, left);
	c->in_off += used;
	if (c->in_off == c->in.len) {
		buf_free(&c->in);
		c->in_off = 0;
	}
	return true;
}

/* ---- running ---- */

static void conn_update_timer(struct http_conn *c)
{
	enum conn_timer t = TIMER_NONE;
	bool again = c->fresh;

	if (c->state == CONN_LINGER) {
		t = TIMER_LINGER;
		again = false;
	} else if (http_conn_pending(c) > 0) {
		t = TIMER_WRITE;
		again = again || c->moved_out;
	} else if (c->state == CONN_DRAIN || (c->state == CONN_BODY && conn_wants_input(c))) {
		t = TIMER_BODY;
		again = again || c->moved_in;
	} else if (c->state == CONN_HEAD) {
		t = c->x ? TIMER_HEAD : TIMER_IDLE;
	}
	c->fresh = c->moved_in = c->moved_out = false;
	if (t != c->timer || again)
		http_server_set_timer(c->server, c, t);
}

static bool conn_has_input(const struct http_conn *c)
{
	return conn_wants_input(c) && (c->readable || c->in.len > 0 || conn_holds_body(c));
}

void http_conn_run(struct http_conn *c)
{
	c->running = true;
	c->server->budget = RUN_BUDGET;
	do {
		while (conn_settle(c))
			;
	} while (!c->dead && conn_input(c));
	if (!c->dead && c->hung_up && !conn_has_input(c))
		http_conn_give_up(c, HTTP_GONE_CLIENT);
	if (!c->dead && c->server->draining && c->state == CONN_HEAD && !c->x && !conn_has_input(c))
		http_conn_give_up(c, HTTP_GONE_DONE);
	c->running = false;
	if (c->dead)
		http_conn_close(c);
	else
		conn_update_timer(c);
}

void http_conn_timeout(struct http_conn *c)
{
	switch ((enum conn_timer)c->timer) {
	case TIMER_HEAD:
		http_response_refuse(c->x, 408, "The request head did not arrive in time.");
		break;
	case TIMER_BODY:
		if (c->x)
			http_response_refuse(c->x, 408, "The request body did not arrive in time.");
		else
			c->dead = true;
		break;
	case TIMER_WRITE:
		c->dead = true;
		c->why = HTTP_GONE_STALLED;
		break;
	case TIMER_IDLE:
	case TIMER_LINGER:
		c->dead = true;
		break;
	case TIMER_NONE:
	case TIMER_N:
		BUG("a time-out of a timer that is not set");
	}
	http_conn_run(c);
}

static void conn_on_event(evutil_socket_t fd, short what, void *arg)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};
	struct http_conn *c = arg;

	c->readable = c->readable || (what & (EV_READ | EV_CLOSED));
	c->writable = c->writable || (what & EV_WRITE);
	c->hung_up = c->hung_up || (what & EV_CLOSED);
	/*
	 * A reset is told as "readable" and "writable": nobody would read it, or only the bytes
	 * that came before it, where a client left before it was accepted.
	 */
	if ((what & EV_READ) && !c->hung_up && ((what & EV_WRITE) || !conn_wants_input(c)) &&
	        poll(&p, 1, 0) > 0)
		c->hung_up = true;
	http_conn_run(c);
}

struct http_conn *http_conn_new(
        struct http_server *s, evutil_socket_t fd, const union conn_address *peer)
{
	struct http_conn *c = mem_alloc(sizeof(*c));

	c->server = s;
	c->peer = *peer;
	c->writable = true;
	buf_init(&c->in, sizeof(s->scratch));
	buf_init(&c->out, SIZE_MAX / 2);
	if (event_assign(&c->event, s->base, fd,
	            EV_READ | EV_WRITE | EV_CLOSED | EV_ET | EV_PERSIST, conn_on_event, c) ||
	        event_add(&c->event, NULL)) {
		close(fd);
		free(c);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&s->conns, c, all);
	s->n_conns++;
	http_server_set_timer(s, c, TIMER_IDLE);
	return c;
}

void http_conn_close(struct http_conn *c)
{
	struct linger hard = {.l_onoff = 1};
	evutil_socket_t fd = event_get_fd(&c->event);

	c->dead = true;
	c->running = true; /* nobody queues it again */
	conn_drop_exchange(c, (enum http_gone)c->why);
	http_server_forget(c->server, c);
	event_del(&c->event);
	if (c->reset)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(fd);
	buf_free(&c->in);
	buf_free(&c->out);
	free(c);
}
