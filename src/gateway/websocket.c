/*
 * The Responses API over a WebSocket (Open Responses of 2026-04-24).
 *
 * Theory of operation. The exchange of the GET stays open and is the socket: bytes come by
 * websocket_feed() and leave by http_write(), so high water, a client that takes nothing and one
 * that has gone are noticed as for streams. libwslay reads frames, checks them and answers pings
 * and closes; text is gathered here, bounded like a body and counted with the stored conversations
 * that are in memory. Each message is a request of its own, which turns_handle() runs with this
 * socket as its sink (internal.h): every event is one text message, a large one in several frames.
 *
 * One response is in flight at a time. What it leaves for the next one to go on from, where it is
 * not stored, stands in the sink between turns.
 *
 * Input is always read, also while a turn runs, since a ping or a close may come; but not while
 * more waits to be sent than the client takes: whoever sends rubbish must read the errors. After a
 * piece with messages in it the loop goes round first, which frees what they took.
 */
#include "gateway/internal.h"
#include "gateway/responses_local.h"

#include <stdlib.h>
#include <wslay/wslay.h>

#define SILENT_MS       60000 /* pings went unanswered for so long: nobody is there */
#define TRY_AGAIN_LATER 1013  /* IANA's registry; wslay has no name for it */

struct websocket {
	struct websocket *next, **link; /* in gateway.websockets */
	struct gateway *g;
	struct http_exchange *x;
	const struct config_key *key;
	struct owner owner; /* the exchange's data */
	struct turn_sink sink;
	bool under_v1;
	wslay_event_context_ptr events; /* what comes, and its answers */
	wslay_frame_context_ptr frames; /* what leaves of turns */
	const uint8_t *in;              /* what came and is not read yet */
	size_t in_len;
	struct buf message; /* that is coming */
	size_t charged;     /* its bytes, counted in the gateway's history_bytes */
	bool control;       /* the frame that is coming is no part of it */
	struct buf out;     /* frames that leave with the next write */
	bool within;        /* a message that leaves: its first frame has left */
	bool closing;       /* a close frame was sent, nothing more is read */
	bool handled;       /* a message was, since the piece began */
	struct event *tick, *resume;
	uint64_t opened_ms, heard_ms;
};

static struct websocket *of_sink(struct turn_sink *s)
{
	return (struct websocket *)(void *)((char *)s - offsetof(struct websocket, sink));
}

/* ---- out ---- */

static ssize_t frame_bytes(const uint8_t *data, size_t len, int flags, void *ctx)
{
	struct websocket *ws = ctx;

	return buf_append(&ws->out, data, len) == 0 ? (ssize_t)len : -1;
}

static ssize_t answer_bytes(
        wslay_event_context_ptr c, const uint8_t *data, size_t len, int flags, void *ctx)
{
	return frame_bytes(data, len, flags, ctx);
}

static void out_send(struct websocket *ws)
{
	if (buf_error(&ws->out) != 0)
		http_abort(ws->x);
	else
		http_write(ws->x, (struct str){ws->out.data, ws->out.len});
	buf_free(&ws->out);
}

static void frame_add(struct websocket *ws, uint8_t opcode, struct str payload, bool last)
{
	struct wslay_frame_iocb frame = {
	        .fin = last,
	        .opcode = opcode,
	        .payload_length = payload.n,
	        .data = (const uint8_t *)payload.p,
	        .data_length = payload.n,
	};

	if (wslay_frame_send(ws->frames, &frame) != (ssize_t)payload.n)
		ws->out.err = -ERR_NOMEM;
}

/* A line is a message; what has no end yet goes on in another frame. */
static void sink_write(struct turn_sink *s, struct str bytes)
{
	struct websocket *ws = of_sink(s);

	while (bytes.n > 0) {
		const char *end = memchr(bytes.p, '\n', bytes.n);
		size_t n = end != NULL ? (size_t)(end - bytes.p) : bytes.n;

		frame_add(ws, ws->within ? WSLAY_CONTINUATION_FRAME : WSLAY_TEXT_FRAME,
		        (struct str){bytes.p, n}, end != NULL);
		ws->within = end == NULL;
		n += end != NULL;
		bytes.p += n;
		bytes.n -= n;
	}
	out_send(ws);
}

/* The dialect's error, as an event. Also under /api/v1 with its code as a name: that is what
 * clients of this mode look for. */
static void error_event(struct websocket *ws, const struct error *e)
{
	_cleanup_buf_ struct buf body = BUF_INIT(65536), event = BUF_INIT(65536 + 256);

	api_error_body(e, true, &body);
	buf_printf(&event, "{\"type\":\"error\",\"status\":%d,", error_http_status(e));
	if (body.len > 1)
		buf_append(&event, body.data + 1, body.len - 1);
	frame_add(ws, WSLAY_TEXT_FRAME, (struct str){event.data, event.len}, true);
	out_send(ws);
}

/* ---- the end ---- */

static void message_drop(struct websocket *ws)
{
	buf_free(&ws->message);
	atomic_fetch_sub(&ws->g->history_bytes, ws->charged);
	ws->charged = 0;
}

/* A close frame has left. */
static void end(struct websocket *ws)
{
	ws->closing = true;
	if (ws->sink.turn != NULL)
		turn_run_client_gone(steal(ws->sink.turn));
	message_drop(ws);
	http_finish(ws->x);
}

/* Sends what wslay has to say, and ends where that was a close. */
static void answer(struct websocket *ws)
{
	if (ws->closing)
		return;
	if (wslay_event_send(ws->events) < 0) {
		http_abort(ws->x);
		return;
	}
	if (ws->out.len > 0)
		out_send(ws);
	if (!wslay_event_get_close_sent(ws->events))
		return;
	end(ws);
}

static void close_with(struct websocket *ws, uint16_t code)
{
	wslay_event_queue_close(ws->events, code, NULL, 0);
	answer(ws);
}

static void limit_reached(struct websocket *ws)
{
	unsigned long long minutes = ws->g->config->limits.websocket_ms / 60000;
	struct error e;

	error_set(&e, ERR_INVALID,
	        "Responses websocket connection limit reached (%llu minutes). Create a new "
	        "websocket "
	        "connection to continue.",
	        minutes);
	str_copy(e.type, sizeof(e.type), STR("websocket_connection_limit_reached"));
	error_event(ws, &e);
	close_with(ws, WSLAY_CODE_NORMAL_CLOSURE);
}

/* Between turns: may another one come? */
static void go_on(struct websocket *ws)
{
	if (ws->closing || ws->sink.turn != NULL)
		return;
	if (ws->g->draining)
		close_with(ws, WSLAY_CODE_GOING_AWAY);
	else if (clock_mono_ms() - ws->opened_ms >= ws->g->config->limits.websocket_ms)
		limit_reached(ws);
}

static void sink_refuse(struct turn_sink *s, const struct error *e)
{
	error_event(of_sink(s), e);
	go_on(of_sink(s));
}

static void sink_finish(struct turn_sink *s)
{
	go_on(of_sink(s));
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct websocket *ws = arg;

	if (ws->closing)
		return;
	if (!http_above_high_water(ws->x) && clock_mono_ms() - ws->heard_ms >= SILENT_MS) {
		http_abort(ws->x);
		return;
	}
	go_on(ws);
	if (ws->closing || http_pending(ws->x) > 0)
		return;
	frame_add(ws, WSLAY_PING, (struct str){NULL, 0}, true);
	out_send(ws);
}

/* ---- in ---- */

/* The key was good when the connection was made. */
static bool may_ask(struct websocket *ws, struct error *e)
{
	const struct config_key *key = keys_now(ws->g, ws->key);

	if (key != NULL) {
		ws->key = key;
		return key_limits_request(
		               &ws->g->shared->key_limits, key, clock_mono_ns() / 1000, e) == 0;
	}
	error_set(e, ERR_AUTH, "This API key has expired or was revoked.");
	str_copy(e->type, sizeof(e->type), STR("invalid_api_key"));
	return false;
}

static void message_handle(struct websocket *ws)
{
	struct request r = {
	        .g = ws->g,
	        .x = ws->x,
	        .under_v1 = ws->under_v1,
	        .sink = &ws->sink,
	        .charged = ws->charged,
	};
	struct error e;

	ws->handled = true;
	if (ws->sink.turn != NULL) {
		error_set(&e, ERR_CONFLICT,
		        "A response is in progress on this connection: it takes one at a time.");
		str_copy(e.type, sizeof(e.type), STR("response_in_progress"));
		error_event(ws, &e);
		message_drop(ws);
		return;
	}
	if (!may_ask(ws, &e)) {
		error_event(ws, &e);
		message_drop(ws);
		return;
	}
	r.key = ws->key;
	if (ws->message.data == NULL)
		buf_puts(&ws->message, ""); /* so that there is one */
	r.body = buf_steal(&ws->message, &r.body_len);
	ws->charged = 0;
	turns_handle(&r, &api_responses);
}

static ssize_t take_bytes(wslay_event_context_ptr c, uint8_t *buf, size_t len, int flags, void *ctx)
{
	struct websocket *ws = ctx;
	size_t n = ws->in_len < len ? ws->in_len : len;

	if (n == 0) {
		wslay_event_set_error(c, WSLAY_ERR_WOULDBLOCK);
		return -1;
	}
	memcpy(buf, ws->in, n);
	ws->in += n;
	ws->in_len -= n;
	return (ssize_t)n;
}

static void refuse_message(struct websocket *ws, uint16_t code)
{
	message_drop(ws);
	wslay_event_queue_close(ws->events, code, NULL, 0);
	wslay_event_shutdown_read(ws->events);
}

static void on_frame(wslay_event_context_ptr c,
        const struct wslay_event_on_frame_recv_start_arg *frame, void *ctx)
{
	struct websocket *ws = ctx;

	ws->control = wslay_is_ctrl_frame(frame->opcode);
	if (frame->opcode == WSLAY_BINARY_FRAME)
		refuse_message(ws, WSLAY_CODE_UNSUPPORTED_DATA);
	else if (!ws->control && frame->payload_length > ws->message.max - ws->message.len)
		refuse_message(ws, WSLAY_CODE_MESSAGE_TOO_BIG);
}

static void on_chunk(wslay_event_context_ptr c,
        const struct wslay_event_on_frame_recv_chunk_arg *chunk, void *ctx)
{
	struct websocket *ws = ctx;
	size_t n = chunk->data_length, most = ws->g->config->limits.in_flight_bytes;

	if (ws->control || !wslay_event_get_read_enabled(c))
		return;
	ws->charged += n;
	if (atomic_fetch_add(&ws->g->history_bytes, n) + n > most ||
	        buf_append(&ws->message, chunk->data, n) != 0)
		refuse_message(ws, TRY_AGAIN_LATER);
}

static void on_message(
        wslay_event_context_ptr c, const struct wslay_event_on_msg_recv_arg *message, void *ctx)
{
	struct websocket *ws = ctx;

	if (message->opcode == WSLAY_TEXT_FRAME && wslay_event_get_read_enabled(c))
		message_handle(ws);
}

/* What came is no frame at all; wslay would close without saying why. */
static void no_frame(struct websocket *ws)
{
	static const char code[2] = {
	        WSLAY_CODE_PROTOCOL_ERROR >> 8, (char)(WSLAY_CODE_PROTOCOL_ERROR & 0xff)};

	frame_add(ws, WSLAY_CONNECTION_CLOSE, (struct str){code, sizeof(code)}, true);
	out_send(ws);
	end(ws);
}

void websocket_feed(struct http_exchange *x, const void *data, size_t n)
{
	struct owner *o = http_exchange_data(x);
	struct websocket *ws = o != NULL ? o->self : NULL;
	const struct timeval now = {0, 0};

	if (ws == NULL || ws->closing || n == 0)
		return;
	ws->heard_ms = clock_mono_ms();
	ws->in = data;
	ws->in_len = n;
	if (wslay_event_recv(ws->events) < 0)
		no_frame(ws);
	else
		answer(ws);
	ws->in_len = 0;
	if (http_above_high_water(x) || ws->handled)
		http_body_pause(x, true);
	if (ws->handled)
		evtimer_add(ws->resume, &now);
	ws->handled = false;
}

/* ---- life ---- */

static void websocket_free(struct websocket *ws)
{
	message_drop(ws);
	responses_local_free(ws->sink.local);
	wslay_event_context_free(ws->events);
	wslay_frame_context_free(ws->frames);
	buf_free(&ws->out);
	event_free(ws->resume);
	event_free(ws->tick);
	if (ws->link != NULL) {
		*ws->link = ws->next;
		if (ws->next != NULL)
			ws->next->link = ws->link;
	}
	free(ws);
}

/* What a piece's messages took has been given back since. */
static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	struct websocket *ws = arg;

	if (!http_above_high_water(ws->x))
		http_body_pause(ws->x, false);
}

static void on_drain(void *self)
{
	struct websocket *ws = self;

	http_body_pause(ws->x, false);
	if (ws->sink.turn != NULL)
		turn_run_client_drained(ws->sink.turn);
}

static void on_gone(void *self, enum http_gone why)
{
	struct websocket *ws = self;

	if (ws->sink.turn != NULL)
		turn_run_client_gone(steal(ws->sink.turn));
	websocket_free(ws);
}

static struct websocket *websocket_new(struct request *r)
{
	const struct wslay_event_callbacks on_events = {
	        .recv_callback = take_bytes,
	        .send_callback = answer_bytes,
	        .on_frame_recv_start_callback = on_frame,
	        .on_frame_recv_chunk_callback = on_chunk,
	        .on_msg_recv_callback = on_message,
	};
	const struct wslay_frame_callbacks on_frames = {.send_callback = frame_bytes};
	struct websocket *ws = mem_alloc(sizeof(*ws));

	ws->g = r->g;
	ws->x = r->x;
	ws->key = r->key;
	ws->under_v1 = r->under_v1;
	ws->owner = (struct owner){on_drain, on_gone, ws};
	ws->sink.write = sink_write;
	ws->sink.refuse = sink_refuse;
	ws->sink.finish = sink_finish;
	ws->opened_ms = ws->heard_ms = clock_mono_ms();
	buf_init(&ws->message, r->g->config->limits.body_bytes);
	buf_init(&ws->out, (size_t)4 << 20);
	ws->tick = event_new(r->g->base, -1, EV_PERSIST, on_tick, ws);
	ws->resume = evtimer_new(r->g->base, on_resume, ws);
	if (ws->tick == NULL || ws->resume == NULL ||
	        wslay_event_context_server_init(&ws->events, &on_events, ws) < 0 ||
	        wslay_frame_context_init(&ws->frames, &on_frames, ws) < 0)
		BUG("no memory for a WebSocket");
	wslay_event_config_set_no_buffering(ws->events, 1);
	wslay_event_config_set_max_recv_msg_length(ws->events, r->g->config->limits.body_bytes);
	return ws;
}

void websocket_open(struct request *r)
{
	struct gateway *g = r->g;
	const char *text;
	struct error e;
	int status;

	if (http_request_header(r->x, "upgrade").p == NULL) {
		http_response_header(r->x, "Allow", "POST, GET");
		error_set(&e, ERR_UNSUPPORTED,
		        "This path takes the method POST, or GET with `Upgrade: websocket`.");
		e.http_status = 405;
		respond_error(r->x, r->under_v1, &e);
		return;
	}
	if (g->draining) {
		error_set(&e, ERR_UNAVAILABLE, "The server is about to stop.");
		e.retry_after_ms = 1000;
		respond_error(r->x, r->under_v1, &e);
		return;
	}
	status = http_upgrade_websocket(r->x, &text);
	if (status < 0) {
		error_set(&e, ERR_INVALID, "%s", text);
		e.http_status = -status;
		if (status == -426) {
			http_response_header(r->x, "Upgrade", "websocket");
			http_response_header(r->x, "Sec-WebSocket-Version", "13");
		}
		respond_error(r->x, r->under_v1, &e);
		return;
	}

	uint64_t ms = g->config->limits.keepalive_ms;
	struct timeval every = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};
	struct websocket *ws = websocket_new(r);

	ws->next = g->websockets;
	ws->link = &g->websockets;
	if (ws->next != NULL)
		ws->next->link = &ws->next;
	g->websockets = ws;
	http_exchange_set_data(r->x, &ws->owner);
	event_add(ws->tick, &every);
}

size_t websockets_open(const struct gateway *g)
{
	size_t n = 0;

	for (const struct websocket *ws = g->websockets; ws != NULL; ws = ws->next)
		n++;
	return n;
}

void websockets_drain(struct gateway *g)
{
	for (struct websocket *ws = g->websockets; ws != NULL; ws = ws->next)
		go_on(ws);
}
