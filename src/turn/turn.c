/*
 * Theory of operation: a turn is always in one phase, and each event is looked at in the light of
 * it.
 *
 *     NEW ── start ──▶ UPSTREAM ── reply ended ──▶ (held items) ──▶ TOOL ── call ended ──▶ (held
 * items) … ▲                           │ all done └── the model must go on ───┤ └─▶ STORING (where
 * commands ran) ──▶ DONE
 *
 * Whatever ends a turn early (an error, the time limit, a cancel) sets `ending` and lets the same
 * path run: the item being written is ended, calls that wait are refused, and the end comes by
 * turn_finish(). So every item that began ends, and every call has its result, however the turn
 * ends.
 *
 * Time. At turn_ms a turn that is not streamed ends with what it has. A streamed one has its
 * running commands killed and gets one more reply, with tools off; that has LAST_REPLY_MS. A killed
 * command has KILL_WAIT_MS to report what it had printed.
 *
 * Pauses belong to one upstream call or one tool call: what is paused ends paused, or is resumed
 * once.
 */
#include "turn/internal.h"

#include "base/id.h"
#include "base/mem.h"

#include <stdlib.h>

#define LAST_REPLY_MS  120000
#define KILL_WAIT_MS   10000
#define TEXTS_MAX      ((size_t)64 * 1024 * 1024)
#define PAUSES_MAX     16
#define ITEM_ID_RANDOM 16
#define ITEM_MARK_MAX  99999 /* replies.c reads no higher mark */

struct turn *turn_new(struct conversation *c, const struct turn_options *o)
{
	struct turn *t = mem_alloc(sizeof(*t));

	t->c = c;
	t->o = *o;
	buf_init(&t->texts, TEXTS_MAX);
	reply_init(t);
	buf_init(&t->shown[0], UINT32_MAX);
	buf_init(&t->shown[1], UINT32_MAX);
	return t;
}

struct turn *turn_free(struct turn *t)
{
	if (!t)
		return NULL;
	reply_free(t);
	buf_free(&t->texts);
	buf_free(&t->shown[0]);
	buf_free(&t->shown[1]);
	free(t->queue);
	free(t->error);
	free(t);
	return NULL;
}

/* ---- small things that all files use ---- */

void turn_will_end(struct turn *t, enum turn_status status, const char *reason)
{
	if (t->ending)
		return;
	t->ending = true;
	t->status = status;
	t->reason = reason;
}

void turn_will_fail(struct turn *t, const struct error *err)
{
	if (t->ending && (t->status == TURN_FAILED || t->status == TURN_CANCELED))
		return;
	t->ending = true;
	t->status = TURN_FAILED;
	t->reason = NULL;
	t->error = error_copy(err);
}

void turn_no_memory(struct turn *t)
{
	struct error err;

	error_set(&err, ERR_NOMEM, "The conversation has become larger than this server takes.");
	turn_will_fail(t, &err);
}

struct str turn_copy(struct turn *t, struct str s)
{
	bool ok = true;
	struct str copy = conversation_copy(t->c, s, &ok);

	if (!ok)
		turn_no_memory(t);
	return copy;
}

void turn_make_id(struct turn *t, char *out, size_t size, const char *prefix, size_t n)
{
	if (t->o.make_id)
		t->o.make_id(t->o.make_id_ctx, out, size, prefix, n);
	else
		id_make(out, size, prefix, n);
}

struct str turn_item_id(struct turn *t, const char *prefix)
{
	uint32_t reply = t->upstream.reply < ITEM_MARK_MAX ? t->upstream.reply : ITEM_MARK_MAX;
	char marked[24], id[64];

	if (t->c->has_server_tool)
		str_format(marked, sizeof(marked), "%ss%u_", prefix, reply);
	else
		str_format(marked, sizeof(marked), "%s", prefix);
	turn_make_id(t, id, sizeof(id), marked, ITEM_ID_RANDOM);
	return turn_copy(t, str_of(id));
}

static void arm_timer(struct turn *t, uint64_t in_ms)
{
	t->timer_at = in_ms > UINT64_MAX - t->now_ms ? UINT64_MAX : t->now_ms + in_ms;
	effect_push(t, &(struct turn_effect){.type = EFFECT_ARM_TIMER, .at_ms = t->timer_at});
}

/* ---- the end ---- */

static void turn_end_now(struct turn *t)
{
	struct turn_output end = {
	        .type = OUT_END,
	        .status = t->status,
	        .incomplete_reason = t->reason,
	        .error = t->status == TURN_FAILED ? t->error : NULL,
	        .finish = t->finish,
	        .stop_sequence = t->stop_sequence,
	};

	if (!t->begun && t->status != TURN_FAILED && t->status != TURN_CANCELED)
		effect_emit(t, &(struct turn_output){.type = OUT_BEGIN});
	effect_emit(t, &end);
	effect_simple(t, EFFECT_DONE);
	t->end_ms = t->now_ms;
	t->phase = PHASE_DONE;
}

static void turn_finish(struct turn *t)
{
	turn_will_end(t, TURN_COMPLETED, NULL);
	if (!t->unsaved) {
		turn_end_now(t);
		return;
	}
	t->unsaved = false;
	effect_simple(t, EFFECT_STORE);
	/* Nobody waits for a canceled turn: it is saved, but not held up by that. */
	if (t->status == TURN_CANCELED)
		turn_end_now(t);
	else
		t->phase = PHASE_STORING;
}

/* ---- upstream ---- */

static void call_upstream(struct turn *t)
{
	struct upstream_call *u = &t->upstream;
	bool first = t->n_upstream == 0;

	u->tools_off = !first && calls_last(t);
	u->choice = t->c->choice;
	/* What was forced has been asked for once; asking again would never end (DESIGN section 4).
	 */
	if (!first && (u->choice.mode == CHOICE_REQUIRED || u->choice.mode == CHOICE_NAMED)) {
		u->choice.mode = CHOICE_AUTO;
		u->choice.name = (struct str){NULL, 0};
	}
	if (u->tools_off)
		u->choice.mode = CHOICE_NONE;
	u->reply = t->c->next_reply++;
	t->n_upstream++;
	t->phase = PHASE_UPSTREAM;
	reply_begin(t);
	if (t->time_up)
		arm_timer(t, LAST_REPLY_MS);
	effect_push(t, &(struct turn_effect){.type = EFFECT_CALL_UPSTREAM, .call = *u});
	if (t->client_full) {
		t->upstream_paused = true;
		effect_simple(t, EFFECT_PAUSE_UPSTREAM);
	}
}

/* Some upstreams break a long reply off and want to be called again with what they said. */
static bool asks_again(struct turn *t)
{
	if (t->finish != FINISH_PAUSE)
		t->pauses = 0;
	return t->finish == FINISH_PAUSE && t->pauses++ < PAUSES_MAX;
}

/* Goes on after a reply or a call has ended. */
static void turn_go_on(struct turn *t)
{
	if (!calls_advance(t)) {
		t->phase = PHASE_TOOL;
		return;
	}
	if (t->ending || t->reply_client_call || t->upstream.tools_off ||
	        (t->reply_calls == 0 && !asks_again(t)))
		turn_finish(t);
	else
		call_upstream(t);
}

/* The reply under way is given up. */
static void stop_upstream(struct turn *t, enum cut cut)
{
	effect_simple(t, EFFECT_CANCEL_UPSTREAM);
	reply_end(t, cut);
	turn_go_on(t);
}

static void on_stream(struct turn *t, const struct stream_event *ev)
{
	bool ended;

	if (t->phase != PHASE_UPSTREAM)
		return;
	ended = !reply_feed(t, ev);
	if (ended) {
		if (t->cut == CUT_LENGTH)
			turn_will_end(t, TURN_INCOMPLETE, "max_output_tokens");
		else if (t->cut == CUT_FILTER)
			turn_will_end(t, TURN_INCOMPLETE, "content_filter");
		turn_go_on(t);
	} else if (t->ending) {
		stop_upstream(t, CUT_ERROR);
	}
}

/* ---- the tool ---- */

static void on_tool(struct turn *t, const struct turn_event *ev)
{
	if (t->phase != PHASE_TOOL || ev->call != t->run.call)
		return;
	switch ((int)ev->type) {
	case TURN_TOOL_STARTED:
		calls_started(t, ev->started_container);
		if (ev->container_id.n > 0)
			t->o.container_id = t->run.result->result.container_id = ev->container_id;
		break;
	case TURN_TOOL_OUTPUT:
		calls_started(t, false);
		output_piece(t, ev);
		break;
	case TURN_TOOL_COMMAND:
		calls_started(t, false);
		output_command(t, ev);
		break;
	case TURN_TOOL_DONE:
		output_unfinished(t, t->run.killing, NULL);
		calls_ended(t, (struct str){NULL, 0}, "failed");
		break;
	case TURN_TOOL_FAILED:
		output_unfinished(t, false, "init");
		if (ev->refused && !t->commands_started)
			turn_will_fail(t, ev->refused);
		calls_ended(t, ev->text.n ? ev->text : STR("The sandbox failed."), "failed");
		break;
	default:
		break;
	}
	if (t->run.call && t->ending && t->status == TURN_FAILED) {
		calls_kill(t, false);
		output_unfinished(t, false, NULL);
		calls_ended(t, str_of(t->error->text), "failed");
	}
	if (!t->run.call)
		turn_go_on(t);
}

/* ---- time, client, cancel ---- */

static void time_is_up(struct turn *t)
{
	t->time_up = true;
	if (!t->o.streamed)
		turn_will_end(t, TURN_INCOMPLETE, "timeout");
	if (t->phase == PHASE_TOOL) {
		calls_kill(t, true);
		arm_timer(t, KILL_WAIT_MS);
	} else if (t->o.streamed) {
		/* It may be the answer already. */
		arm_timer(t, LAST_REPLY_MS);
	} else {
		stop_upstream(t, CUT_TIME);
	}
}

static void on_timer(struct turn *t)
{
	if (t->timer_at == 0 || t->now_ms < t->timer_at)
		return;
	if (t->phase != PHASE_UPSTREAM && t->phase != PHASE_TOOL)
		return;
	t->timer_at = 0;
	if (!t->time_up) {
		time_is_up(t);
		return;
	}
	turn_will_end(t, TURN_INCOMPLETE, "timeout");
	if (t->phase == PHASE_UPSTREAM) {
		stop_upstream(t, CUT_TIME);
		return;
	}
	calls_kill(t, false);
	output_unfinished(t, true, NULL);
	calls_ended(t, STR("The commands did not end in time."), "failed");
	turn_go_on(t);
}

static void on_client_full(struct turn *t)
{
	if (t->client_full)
		return;
	t->client_full = true;
	if (t->phase == PHASE_UPSTREAM) {
		t->upstream_paused = true;
		effect_simple(t, EFFECT_PAUSE_UPSTREAM);
	} else if (t->phase == PHASE_TOOL && !t->run.killing) {
		t->run.paused = true;
		effect_simple(t, EFFECT_PAUSE_TOOL);
	}
}

static void on_client_drained(struct turn *t)
{
	if (!t->client_full)
		return;
	t->client_full = false;
	if (t->phase == PHASE_UPSTREAM && t->upstream_paused) {
		t->upstream_paused = false;
		effect_simple(t, EFFECT_RESUME_UPSTREAM);
	} else if (t->phase == PHASE_TOOL && t->run.paused) {
		t->run.paused = false;
		effect_simple(t, EFFECT_RESUME_TOOL);
	}
}

static void on_cancel(struct turn *t)
{
	t->ending = true;
	t->status = TURN_CANCELED;
	t->reason = NULL;
	switch (t->phase) {
	case PHASE_UPSTREAM:
		stop_upstream(t, CUT_CANCEL);
		break;
	case PHASE_TOOL:
		t->cut = CUT_CANCEL;
		calls_kill(t, false);
		output_unfinished(t, false, NULL);
		calls_ended(t, STR("The request was canceled."), "incomplete");
		turn_go_on(t);
		break;
	case PHASE_NEW:
	case PHASE_STORING:
		turn_end_now(t);
		break;
	case PHASE_DONE:
		break;
	}
}

static void on_stored(struct turn *t, struct str failure)
{
	struct error err;

	if (t->phase != PHASE_STORING)
		return;
	if (failure.n > 0) {
		error_set(&err, ERR_IO, "The container's files could not be saved: %.*s",
		        (int)(failure.n < 256 ? failure.n : 256), failure.p);
		turn_will_fail(t, &err);
	}
	turn_end_now(t);
}

static void on_start(struct turn *t)
{
	if (t->phase != PHASE_NEW)
		return;
	if (t->o.turn_ms > 0)
		arm_timer(t, t->o.turn_ms);
	call_upstream(t);
}

void turn_feed(struct turn *t, const struct turn_event *ev)
{
	if (t->phase == PHASE_DONE)
		return;
	t->now_ms = ev->now_ms;
	switch (ev->type) {
	case TURN_START:
		on_start(t);
		break;
	case TURN_STREAM:
		on_stream(t, ev->stream);
		break;
	case TURN_TOOL_STARTED:
	case TURN_TOOL_OUTPUT:
	case TURN_TOOL_COMMAND:
	case TURN_TOOL_DONE:
	case TURN_TOOL_FAILED:
		on_tool(t, ev);
		break;
	case TURN_STORED:
		on_stored(t, ev->text);
		break;
	case TURN_TIMER:
		on_timer(t);
		break;
	case TURN_CLIENT_FULL:
		on_client_full(t);
		break;
	case TURN_CLIENT_DRAINED:
		on_client_drained(t);
		break;
	case TURN_CANCEL:
		on_cancel(t);
		break;
	}
}
