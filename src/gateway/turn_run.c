/*
 * A running turn, its client and the world.
 *
 * The state machine says what to do (turn/turn.h), this file does it. Everything that happens comes
 * in by turn_run_feed(), which feeds the event and then performs effects until there are none, or
 * until the client must drain: while an event of many megabytes waits inside the api's stream,
 * effects wait too, and the upstream and the command are paused.
 *
 * An answer begins late on purpose: its status line is sent when the upstream has accepted (or
 * after the first keep-alive interval), so that a refusal before that is an HTTP error in the
 * client's dialect and not a broken stream.
 *
 * A turn_run may be needed further up the stack when it ends, so it is freed from the loop, never
 * from inside a callback.
 */
#include "gateway/turn_run.h"

#include "gateway/event_log.h"
#include "gateway/idempotency.h"
#include "gateway/saving.h"

#include <stdlib.h>

#define PIECE 65536
#define STEP  262144 /* of a large event, in one step of the loop: also a quick client waits */

static void turn_pump(struct turn_run *t);

/* ---- life ---- */

void turn_run_free(struct turn_run *t)
{
	struct api_stream *s = t->stream;

	run_release(t);
	upstream_cancel(t);
	if (s != NULL)
		t->request.api->close(s);
	run_files_free(t);
	recording_free(t);
	responses_state_turn_free(t);
	relay_run_free(t);
	guardrails_report_clear(&t->guard);
	guardrails_report_clear(&t->tool_guard);
	ruleset_rules_free(t->rules);
	turn_free(t->turn);
	turn_request_free(&t->request);
	route_free(&t->route);
	attempts_end(&t->attempts);
	if (t->retry != NULL)
		event_free(t->retry);
	buf_free(&t->out);
	free(t->in.body);
	free(t->session);
	free(t->beta);
	free(t->path_model);
	free(t->model_shown);
	free(t->metadata);
	free(t->job_error);
	free(t->refused);
	if (t->timer != NULL)
		event_free(t->timer);
	if (t->keepalive != NULL)
		event_free(t->keepalive);
	if (t->more != NULL)
		event_free(t->more);
	if (t->link != NULL) {
		*t->link = t->next;
		if (t->next != NULL)
			t->next->link = t->link;
	}
	free(t);
}

static void on_reap(evutil_socket_t fd, short what, void *arg)
{
	turn_run_free(arg);
}

/* When both the turn and the client are through with it. */
void turn_run_reap(struct turn_run *t)
{
	const struct timeval now = {0, 0};

	if (!t->done || t->x != NULL || t->storing || t->building || t->reaping ||
	        t->run.reading > 0)
		return;
	t->reaping = true;
	if (event_base_once(t->g->base, -1, EV_TIMEOUT, on_reap, t, &now) < 0)
		log_text(LOG_ERROR, "turn_leaked", "no memory to free a turn");
}

/* While a request is built on the pool only these two can come. */
static void put_off(struct turn_run *t, enum turn_event_type type)
{
	if (type == TURN_CANCEL) {
		t->cancel_later = true;
		run_release(t);
	} else {
		t->timer_later = true;
	}
}

void turn_run_feed(struct turn_run *t, struct turn_event *ev)
{
	if (t->building) {
		put_off(t, ev->type);
		return;
	}
	ev->now_ms = clock_mono_ms();
	turn_feed(t->turn, ev);
	turn_pump(t);
}

void turn_run_feed_plain(struct turn_run *t, enum turn_event_type type)
{
	struct turn_event ev = {.type = type};

	turn_run_feed(t, &ev);
}

/* ---- bytes to the client ---- */

/* Every answer names itself, in Anthropic's word too where its clients ask. */
void turn_run_id_headers(struct turn_run *t)
{
	http_response_header(t->x, "X-Generation-Id", t->who.id);
	http_response_header(t->x, "X-Request-Id", t->who.id);
	if (t->asks == DIALECT_ANTHROPIC)
		http_response_header(t->x, "request-id", t->who.id);
}

/* Who serves it, once that is known. A name that no header can hold is left out. */
static void served_headers(struct turn_run *t)
{
	if (!t->served)
		return;
	http_response_header(t->x, "X-Brig-Provider", t->who.provider);
	for (const char *p = t->model_shown; *p != 0; p++)
		if (*p <= ' ' || *p > '~')
			return;
	http_response_header(t->x, "X-Brig-Model", t->model_shown);
}

void turn_run_answer_headers(struct turn_run *t, int status)
{
	struct turn_totals totals;

	t->status = status;
	turn_totals(t->turn, clock_mono_ms(), &totals);
	turn_run_id_headers(t);
	served_headers(t);
	if (totals.commands_started && t->ended && t->status >= 400)
		http_response_header(t->x, "X-Should-Retry", "false");
	if (t->failure != NULL && t->status >= 400)
		respond_retry_after(t->x, t->failure);
	t->answered = true;
}

/* The sink goes on without this turn. */
static struct turn_sink *sink_leave(struct turn_run *t)
{
	struct turn_sink *s = t->sink;

	t->sink = NULL;
	t->x = NULL;
	s->turn = NULL;
	s->local = responses_state_turn_leave(t);
	return s;
}

/* All of it was written; or nothing, and this is why. */
void turn_run_sink_end(struct turn_run *t, const struct error *refused)
{
	struct turn_sink *s = sink_leave(t);

	if (refused != NULL)
		s->refuse(s, refused);
	else
		s->finish(s);
}

static void client_write(struct turn_run *t)
{
	struct str bytes = {t->out.data, t->out.len};

	if (t->sink != NULL)
		t->sink->write(t->sink, bytes);
	else
		http_write(t->x, bytes);
	buf_reset(&t->out);
}

/* An error before any byte of a stream was sent: an HTTP error instead. */
void turn_run_answer_error(struct turn_run *t)
{
	struct buf body = BUF_INIT(65536);

	if (t->sink != NULL) {
		t->status = error_http_status(t->failure);
		t->answered = t->finished = true;
		turn_run_sink_end(t, t->failure);
		return;
	}
	turn_run_answer_headers(t, error_http_status(t->failure));
	t->finished = true;
	respond_error_body(t->x, t->asks, t->in.under_v1, t->who.id, t->failure, &body);
	http_respond(t->x, t->status, "application/json", (struct str){body.data, body.len});
	buf_free(&body);
}

static bool answer_begin(struct turn_run *t)
{
	if (t->answered)
		return true;
	if (!t->request.stream && t->relay.owns)
		return relay_run_answer(t);
	if (!t->request.stream) {
		if (!t->ended)
			return false;
		turn_run_answer_headers(t, t->request.api->status(t->stream));
		if (t->request.api->left(t->stream) == 0) {
			t->finished = true;
			http_respond(t->x, t->status, "application/json",
			        (struct str){t->out.data, t->out.len});
			return false;
		}
		http_respond_start(t->x, t->status, "application/json");
		return true;
	}
	if (t->failure != NULL && !t->may_answer) {
		turn_run_answer_error(t);
		return false;
	}
	if (!t->may_answer && !t->ended)
		return false;
	if (t->sink != NULL) {
		t->status = 200;
		return t->answered = true;
	}
	turn_run_answer_headers(t, 200);
	http_response_header(t->x, "Cache-Control", "no-cache");
	http_response_header(t->x, "X-Accel-Buffering", "no");
	http_respond_start(t->x, 200,
	        t->in.path_array ? "application/json" : "text/event-stream; charset=utf-8");
	return true;
}

/* Nobody is waited for, but a large event goes in steps. */
static bool flush_to_log(struct turn_run *t)
{
	const struct api *api = t->request.api;
	size_t sent = 0;

	for (;;) {
		event_log_add(t->state.log, (struct str){t->out.data, t->out.len});
		sent += t->out.len;
		buf_reset(&t->out);
		if (api->left(t->stream) == 0 || sent >= STEP)
			break;
		if (api->pull(t->stream, &t->out, PIECE) < 0) {
			log_text(LOG_ERROR, "emit_failed", "an event could not be written");
			t->state.log = event_log_drop(t->state.log);
			return true;
		}
	}
	return api->left(t->stream) == 0;
}

void turn_run_begin_log(struct turn_run *t)
{
	const struct turn_output begin = {.type = OUT_BEGIN};

	if (t->state.log != NULL && t->request.api->emit(t->stream, &begin, NULL, &t->out) < 0)
		t->state.log = event_log_drop(t->state.log);
}

/* Sends what is there, as far as the client takes it. Returns false while something is left behind.
 */
static bool flush(struct turn_run *t)
{
	const struct api *api = t->request.api;
	size_t sent = 0;

	if (t->state.log != NULL)
		return flush_to_log(t);
	if (t->x == NULL || t->finished) {
		buf_reset(&t->out);
		return true;
	}
	if (!answer_begin(t)) {
		if (t->finished || api->left(t->stream) == 0)
			return true;
		/* The very first event is too large to be kept: the answer begins now. */
		t->may_answer = true;
		answer_begin(t);
	}
	if (t->out.len > 0) {
		client_write(t);
	}
	while (t->x != NULL && api->left(t->stream) > 0 && !http_above_high_water(t->x) &&
	        sent < STEP) {
		if (api->pull(t->stream, &t->out, PIECE) < 0) {
			http_abort(t->x);
			return true;
		}
		sent += t->out.len;
		client_write(t);
	}
	return t->x == NULL || api->left(t->stream) == 0;
}

static void finish_if_sent(struct turn_run *t)
{
	if (t->ended && t->state.log != NULL && t->request.api->left(t->stream) == 0) {
		t->finished = true;
		event_log_end(steal(t->state.log));
	}
	if (t->ended && t->x != NULL && t->request.api->left(t->stream) == 0 && t->out.len == 0 &&
	        !t->finished) {
		t->finished = true;
		if (t->sink != NULL)
			turn_run_sink_end(t, NULL);
		else
			http_finish(t->x);
	}
}

static void note_full(struct turn_run *t)
{
	bool full = t->x != NULL && t->answered && http_above_high_water(t->x);
	struct turn_event ev = {
	        .type = full ? TURN_CLIENT_FULL : TURN_CLIENT_DRAINED, .now_ms = clock_mono_ms()};

	if (full == t->full)
		return;
	t->full = full;
	turn_feed(t->turn, &ev);
}

void turn_run_client_drained(struct turn_run *t)
{
	turn_pump(t);
}

static void on_client_drain(void *self)
{
	struct turn_run *t = self;

	turn_pump(t);
}

static void on_client_gone(void *self, enum http_gone why)
{
	struct turn_run *t = self;

	t->x = NULL;
	if (t->turn != NULL && !t->done)
		turn_run_feed_plain(t, TURN_CANCEL);
	turn_run_reap(t);
}

static void keep_log_alive(struct turn_run *t)
{
	struct buf comment = BUF_INIT(64);

	t->request.api->keepalive(t->stream, &comment);
	event_log_keepalive(t->state.log, (struct str){comment.data, comment.len});
	buf_free(&comment);
}

static void on_keepalive(evutil_socket_t fd, short what, void *arg)
{
	struct turn_run *t = arg;

	if (t->state.log != NULL)
		keep_log_alive(t);
	if (!t->request.stream || t->x == NULL || t->ended)
		return;
	t->may_answer = true;
	if (!flush(t))
		return; /* in the middle of an event, and busy anyway */
	if (t->relay.owns && !relay_between(t->relay.edit))
		return;
	if (t->x != NULL && t->answered && http_pending(t->x) == 0) {
		t->request.api->keepalive(t->stream, &t->out);
		flush(t);
	}
}

void turn_run_client_gone(struct turn_run *t)
{
	t->sink = NULL;
	on_client_gone(t, HTTP_GONE_CLIENT);
}

/* ---- effects ---- */

static void arm_timer(struct turn_run *t, uint64_t at_ms)
{
	uint64_t now = clock_mono_ms(), left = at_ms > now ? at_ms - now : 0;
	struct timeval tv = {(time_t)(left / 1000), (suseconds_t)(left % 1000 * 1000)};

	t->timer_at_ms = at_ms;
	evtimer_add(t->timer, &tv);
}

/* The loop counts from the time at which its step began, so a timer may come too early. */
static void on_turn_timer(evutil_socket_t fd, short what, void *arg)
{
	struct turn_run *t = arg;

	if (clock_mono_ms() < t->timer_at_ms)
		arm_timer(t, t->timer_at_ms);
	else
		turn_run_feed_plain(t, TURN_TIMER);
}

static void store_work(void *arg)
{
	struct turn_run *t = arg;
	struct error e;

	if (row_touch(t->g, t->key, str_of(t->request.container_id), &e) < 0)
		t->job_error = error_copy(&e);
}

static void on_saved(void *ctx, const struct error *err)
{
	struct turn_run *t = ctx;
	struct turn_event ev = {.type = TURN_STORED};

	t->storing = false;
	if (err != NULL)
		ev.text = STR("they could not be saved");
	if (t->job_error != NULL) {
		log_text(LOG_ERROR, "store_failed", "%s", t->job_error->text);
		ev.text = str_of(t->job_error->text);
	} else if (t->run.unsynced) {
		log_text(LOG_ERROR, "sync_failed", "container %s", t->request.container_id);
		ev.text = STR("they could not be written to disk");
	}
	if (!t->done)
		turn_run_feed(t, &ev);
	turn_run_reap(t);
}

static void store_done(void *arg)
{
	struct turn_run *t = arg;
	uint8_t key[SUP_KEY_LEN];

	if (t->g->saving == NULL) {
		on_saved(t, NULL);
		return;
	}
	row_key(t->key, str_of(t->request.container_id), key);
	saving_settle(t->g->saving, key, on_saved, t);
}

static void store_begin(struct turn_run *t)
{
	struct turn_event ev = {.type = TURN_STORED,
	        .text = STR("The server has too much to do."),
	        .now_ms = clock_mono_ms()};

	t->storing = true;
	if (pool_run(t->g->pool, store_work, store_done, t))
		return;
	t->storing = false;
	turn_feed(t->turn, &ev);
}

static void emit(struct turn_run *t, const struct turn_output *o, const struct turn_totals *totals)
{
	if (o->type == OUT_TOOL_BEGIN || o->type == OUT_ITEM_END)
		callids_keep(t, o->item);
	recording_output(t, o);
	if (o->type == OUT_END) {
		t->ended = true;
		t->failure = o->error;
		if (o->error != NULL)
			idempotency_failed(t->x);
	}
	if (t->relay.owns) { /* the client gets the provider's own words */
		if (o->type == OUT_END)
			relay_run_stop(t, o);
		return;
	}
	if (t->request.api->emit(t->stream, o, totals, &t->out) < 0 && t->x != NULL) {
		log_text(LOG_ERROR, "emit_failed", "an event could not be written");
		http_abort(t->x);
	}
}

/* One line for each turn; the ledger and the log page build on it later. */
static void record(struct turn_run *t)
{
	struct turn_totals totals;
	struct buf cost = BUF_INIT(64);

	turn_totals(t->turn, clock_mono_ms(), &totals);
	money_write(&cost, totals.sandbox_cost);
	LOG(LOG_INFO, "turn", LOG_S("id", t->who.id), LOG_S("model", t->who.model),
	        LOG_S("container", t->request.container_id),
	        LOG_N("upstream_calls", totals.upstream_calls),
	        LOG_N("tool_calls", totals.tool_calls_executed),
	        LOG_N("input_tokens", totals.usage.input),
	        LOG_N("output_tokens", totals.usage.output), LOG_N("sandbox_ms", totals.sandbox_ms),
	        LOG_S("sandbox_cost", buf_cstr(&cost)),
	        LOG_S("error", t->failure != NULL ? t->failure->text : NULL));
	buf_free(&cost);
}

static void perform(struct turn_run *t, const struct turn_effect *ef)
{
	struct turn_totals totals;

	switch (ef->type) {
	case EFFECT_CALL_UPSTREAM:
		upstream_start(t, &ef->call);
		break;
	case EFFECT_PAUSE_UPSTREAM:
	case EFFECT_RESUME_UPSTREAM:
		upstream_pause(t, ef->type == EFFECT_PAUSE_UPSTREAM);
		break;
	case EFFECT_CANCEL_UPSTREAM:
		upstream_cancel(t);
		break;
	case EFFECT_RUN_TOOL:
		run_start(t, ef->item, ef->output_bytes);
		break;
	case EFFECT_PAUSE_TOOL:
	case EFFECT_RESUME_TOOL:
		run_pause(t, ef->type == EFFECT_PAUSE_TOOL);
		break;
	case EFFECT_KILL_TOOL:
		run_kill(t, ef->as_timeout);
		break;
	case EFFECT_EMIT:
		if (ef->output.type == OUT_END && responses_state_turn_hold(t, &ef->output))
			break;
		turn_totals(t->turn, clock_mono_ms(), &totals);
		if (ef->output.type == OUT_END)
			recording_hold(t, &ef->output, &totals);
		else
			emit(t, &ef->output, &totals);
		break;
	case EFFECT_ARM_TIMER:
		arm_timer(t, ef->at_ms);
		break;
	case EFFECT_STORE:
		store_begin(t);
		break;
	case EFFECT_DONE:
		t->done = true;
		record(t);
		run_release(t);
		upstream_cancel(t);
		evtimer_del(t->timer);
		break;
	}
}

static void on_more(evutil_socket_t fd, short what, void *arg)
{
	turn_pump(arg);
}

/* The client takes as much as there is, so it will not be told when it has drained. */
static void pump_later(struct turn_run *t)
{
	const struct timeval now = {0, 0};

	if (t->more == NULL)
		t->more = evtimer_new(t->g->base, on_more, t);
	if (t->more == NULL)
		BUG("no memory for a timer");
	evtimer_add(t->more, &now);
}

static void turn_pump(struct turn_run *t)
{
	struct turn_effect ef;

	if (t->pumping || t->turn == NULL)
		return;
	t->pumping = true;
	while (!t->state.holds && flush(t)) {
		note_full(t);
		if (!run_files_next_effect(t, &ef))
			break;
		perform(t, &ef);
	}
	/* While a large event is on its way, or the end of a call waits for its files, no effect is
	 * performed, so nothing more may come in either. */
	t->blocked = (t->x != NULL || t->state.log != NULL) && !t->finished &&
	             t->request.api->left(t->stream) > 0;
	if (t->blocked && (t->x == NULL || !http_above_high_water(t->x)))
		pump_later(t);
	t->blocked = t->blocked || t->files.holds;
	upstream_apply_pause(t);
	run_apply_pause(t);
	finish_if_sent(t);
	if (t->out.len == 0)
		buf_free(&t->out); /* there may be nothing to say for long */
	t->pumping = false;
	turn_run_reap(t);
}

void turn_run_go_on(struct turn_run *t)
{
	turn_pump(t);
}

void turn_run_emit_end(
        struct turn_run *t, const struct turn_output *end, const struct turn_totals *totals)
{
	recording_hold(t, end, totals);
}

void turn_run_emit_settled(
        struct turn_run *t, const struct turn_output *end, const struct turn_totals *totals)
{
	emit(t, end, totals);
	turn_pump(t);
}

bool turn_run_arm(struct turn_run *t)
{
	uint64_t ms = t->g->config->limits.keepalive_ms;
	struct timeval every = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};

	t->timer = evtimer_new(t->g->base, on_turn_timer, t);
	t->keepalive = event_new(t->g->base, -1, EV_PERSIST, on_keepalive, t);
	return t->timer != NULL && t->keepalive != NULL && event_add(t->keepalive, &every) == 0;
}

void turn_run_own(struct turn_run *t)
{
	t->owner = (struct owner){on_client_drain, on_client_gone, t};
	http_exchange_set_data(t->x, &t->owner);
}
