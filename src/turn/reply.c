/*
 * Theory of operation: one reply of the upstream becomes items of the conversation, in its order.
 *
 * Items go to the client as they are written, until the first call that does not belong to the
 * client (or whose name is not known yet). From there on all are held back: what follows a call of
 * ours must be shown after its result, since that is the order in which a replay brings them, and
 * which calls run is known only when the whole reply is there. calls_advance() shows the held ones.
 *
 * An item's end is not passed on when it comes but with the next item or the reply's end, since
 * only that one says whether the last item was cut by the token limit.
 *
 * The name and id that a call begins with are final; what is missing then is taken at its end.
 */
#include "turn/internal.h"

#include "base/mem.h"
#include "json/json.h"

#include <stdlib.h>

/* One part of an item, or a call's arguments. The conversation's own maximum bounds the sum. */
#define PART_BYTES_MAX ((size_t)32 * 1024 * 1024)
#define PARTS_MAX      1024 /* of an item */
#define ITEMS_MAX      1024

void reply_init(struct turn *t)
{
	buf_init(&t->w.text, PART_BYTES_MAX);
}

void reply_begin(struct turn *t)
{
	t->cut = CUT_NONE;
	t->n_held = 0;
	t->next_held = 0;
	t->reply_calls = 0;
	t->reply_runs = 0;
	t->reply_items = 0;
	t->reply_client_call = false;
	t->upstream_paused = false;
	t->finish = FINISH_STOP;
	t->stop_sequence = (struct str){NULL, 0};
	t->w.active = false;
}

void reply_free(struct turn *t)
{
	buf_free(&t->w.text);
	free(t->w.parts);
	free(t->held);
}

static void reply_too_large(struct turn *t)
{
	struct error err;

	error_set(&err, ERR_UPSTREAM, "The model's reply is larger than this server takes.");
	turn_will_fail(t, &err);
}

/* Before the first byte of a reply reaches the client. */
static void reply_ensure_begun(struct turn *t)
{
	if (t->begun)
		return;
	t->begun = true;
	effect_emit(t, &(struct turn_output){.type = OUT_BEGIN});
}

static void reply_hold(struct turn *t, struct item *item)
{
	mem_grow(&t->held, &t->cap_held, t->n_held, sizeof(struct item *));
	t->held[t->n_held++] = item;
}

/* ---- calls: id and name ---- */

/* An upstream that gives no id, or one id twice, gets one of ours. */
static void call_set_id(struct turn *t, struct item *item, struct str id)
{
	char made[64], public_id[65];
	const struct item *same;
	bool hashed;

	for (;;) {
		if (id.n > 0) {
			conversation_public_id(
			        item->reply, id, t->c->has_server_tool, public_id, &hashed);
			same = conversation_find_call(t->c, str_of(public_id));
			if (!same || same->reply != item->reply)
				break;
		}
		turn_make_id(t, made, sizeof(made), "call_", 16);
		id = str_of(made);
	}
	item->call.upstream_id = turn_copy(t, id);
	item->call.public_id = turn_copy(t, str_of(public_id));
}

static void call_begin(struct turn *t, const struct stream_event *ev)
{
	struct item *item = conversation_add(t->c, ITEM_CALL);

	if (!item) {
		turn_no_memory(t);
		return;
	}
	item->reply = t->upstream.reply;
	item->role = ROLE_ASSISTANT;
	item->output = true;
	t->w.item = item;
	if (ev->name.n > 0)
		item->call.name = turn_copy(t, ev->name);
	if (ev->id.n > 0)
		call_set_id(t, item, ev->id);
	if (t->n_held == 0 && ev->id.n > 0 && calls_class(t, item) == CALL_CLIENT) {
		t->w.live = true;
		item->id = turn_item_id(t, "fc_");
		effect_item(t, OUT_ITEM_BEGIN, item, NULL);
	} else {
		reply_hold(t, item);
	}
}

/* ---- what is being written ---- */

static void writing_begin(struct turn *t, const struct stream_event *ev)
{
	struct writing *w = &t->w;

	if (++t->reply_items > ITEMS_MAX) {
		reply_too_large(t);
		return;
	}
	w->active = ev->item_type != ITEM_RESULT; /* no model writes results */
	w->ended = false;
	w->type = ev->item_type;
	w->item = NULL;
	w->live = false;
	w->part_open = false;
	w->n_parts = 0;
	buf_reset(&w->text);
	if (w->type == ITEM_CALL)
		call_begin(t, ev);
}

/* A message or reasoning of which there is something now. */
static void writing_item(struct turn *t)
{
	struct writing *w = &t->w;
	struct item *item = conversation_add(t->c, w->type);

	if (!item) {
		turn_no_memory(t);
		return;
	}
	item->reply = t->upstream.reply;
	item->role = ROLE_ASSISTANT;
	item->output = true;
	item->id = turn_item_id(t, w->type == ITEM_MESSAGE     ? "msg_"
	                           : w->type == ITEM_REASONING ? "rs_"
	                                                       : "it_");
	w->item = item;
	w->live = t->n_held == 0;
	if (w->live)
		effect_item(t, OUT_ITEM_BEGIN, item, NULL);
	else
		reply_hold(t, item);
}

static void writing_end_part(struct turn *t)
{
	struct writing *w = &t->w;

	if (!w->part_open)
		return;
	w->part_open = false;
	mem_grow(&w->parts, &w->cap_parts, w->n_parts, sizeof(*w->parts));
	w->parts[w->n_parts++] = (struct part){
	        .type = w->part_type,
	        .text = turn_copy(t, (struct str){buf_cstr(&w->text), w->text.len}),
	};
	buf_reset(&w->text);
}

static void writing_delta(struct turn *t, const struct stream_event *ev)
{
	struct writing *w = &t->w;

	if (ev->text.n == 0)
		return;
	if (!w->item)
		writing_item(t);
	if (!w->item)
		return;
	if (w->type != ITEM_CALL &&
	        (!w->part_open || w->part_number != ev->part || w->part_type != ev->part_type)) {
		writing_end_part(t);
		if (w->n_parts == PARTS_MAX) {
			reply_too_large(t);
			return;
		}
		w->part_open = true;
		w->part_number = ev->part;
		w->part_type = ev->part_type;
	}
	if (buf_append(&w->text, ev->text.p, ev->text.n)) {
		reply_too_large(t);
		return;
	}
	if (w->live)
		effect_emit_copied(
		        t, &(struct turn_output){
		                   .type = OUT_DELTA,
		                   .item = w->item,
		                   .part_type = w->type == ITEM_CALL ? PART_TEXT : ev->part_type,
		                   .part = w->type == ITEM_CALL ? 0 : (uint32_t)w->n_parts,
		                   .text = ev->text,
		           });
}

static void writing_seal(struct turn *t, struct str opaque)
{
	struct buf sealed = BUF_INIT(PART_BYTES_MAX);

	if (opaque.n == 0 || !t->o.seal)
		return;
	if (t->o.seal(t->o.seal_ctx, opaque, &sealed) && !buf_error(&sealed) && sealed.len > 0) {
		if (!t->w.item)
			writing_item(t);
		if (t->w.item)
			t->w.item->opaque = turn_copy(t, (struct str){sealed.data, sealed.len});
	}
	buf_free(&sealed);
}

static void writing_end(struct turn *t, const struct stream_event *ev)
{
	struct item *item;

	if (t->w.type == ITEM_CALL) {
		item = t->w.item;
		if (!item)
			return;
		if (item->call.name.n == 0 && ev->name.n > 0)
			item->call.name = turn_copy(t, ev->name);
		if (item->call.public_id.n == 0 && ev->id.n > 0)
			call_set_id(t, item, ev->id);
	}
	if (t->w.type == ITEM_OTHER && hosted_item(t, ev)) {
		t->w.ended = true;
		return;
	}
	writing_seal(t, ev->opaque);
	if (ev->raw.n > 0 && !t->w.item && t->w.type == ITEM_OTHER)
		writing_item(t);
	if (t->w.item) {
		t->w.item->redacted = ev->redacted;
		t->w.item->raw = turn_copy(t, ev->raw);
		t->w.item->raw_dialect = ev->raw_dialect;
	}
	if (ev->awaits_client && t->w.type == ITEM_OTHER)
		t->reply_client_call = true;
	t->w.ended = true;
}

/* ---- settling: no more of it will come, and how it ended is known ---- */

static int event_ignore(void *ctx, const struct json_event *ev)
{
	return 0;
}

/* No beginning of a JSON object is one itself. */
static bool json_complete(struct str text)
{
	while (text.n > 0 && memchr(" \t\r\n", text.p[0], 4)) {
		text.p++;
		text.n--;
	}
	return str_starts(text, "{") && json_read(text, event_ignore, NULL, NULL) == 0;
}

static const char *settled_status(const struct turn *t, const struct item *item, enum cut cut)
{
	bool by_limit = cut == CUT_LENGTH || cut == CUT_FILTER;

	if (cut == CUT_NONE)
		return "completed";
	/* Of a call the arguments themselves say whether they are all there. */
	if (item->type == ITEM_CALL && (t->w.ended || by_limit))
		return json_complete(item->call.arguments) ? "completed" : "incomplete";
	return t->w.ended && !by_limit ? "completed" : "incomplete";
}

static void settle_call(struct turn *t, enum cut cut)
{
	struct item *item = t->w.item;

	item->call.arguments = turn_copy(t, (struct str){buf_cstr(&t->w.text), t->w.text.len});
	if (item->call.public_id.n == 0)
		call_set_id(t, item, (struct str){NULL, 0});
	item->status = str_of(settled_status(t, item, cut));
	if (t->w.live) {
		t->reply_client_call = true;
		effect_item(t, OUT_ITEM_END, item, NULL);
	}
}

static void settle_parts(struct turn *t, enum cut cut)
{
	struct writing *w = &t->w;
	struct item *item = w->item;

	writing_end_part(t);
	if (w->n_parts > 0)
		item->parts = conversation_parts(t->c, w->n_parts);
	if (item->parts) {
		memcpy(item->parts, w->parts, w->n_parts * sizeof(*w->parts));
		item->n_parts = w->n_parts;
	} else if (w->n_parts > 0) {
		turn_no_memory(t);
	}
	item->status = str_of(settled_status(t, item, cut));
	if (w->live)
		effect_item(t, OUT_ITEM_END, item, NULL);
}

static void writing_settle(struct turn *t, enum cut cut)
{
	struct writing *w = &t->w;

	if (!w->active)
		return;
	w->active = false;
	if (!w->item)
		return;
	if (w->type == ITEM_CALL)
		settle_call(t, cut);
	else
		settle_parts(t, cut);
}

/* ---- the stream ---- */

void reply_end(struct turn *t, enum cut cut)
{
	t->cut = cut;
	writing_settle(t, cut);
	hosted_end(t);
	accounting_reply_done(t);
}

static enum cut finish_cut(enum finish f)
{
	switch (f) {
	case FINISH_LENGTH:
		return CUT_LENGTH;
	case FINISH_FILTER:
		return CUT_FILTER;
	case FINISH_STOP:
	case FINISH_CALLS:
	case FINISH_PAUSE:
		break;
	}
	return CUT_NONE;
}

/* A held call whose name has come late may be the client's after all: then nothing need wait for
 * it. */
static void release_head(struct turn *t)
{
	if (t->n_held == 1 && calls_class(t, t->held[0]) == CALL_CLIENT) {
		calls_show(t, t->held[0]);
		t->n_held = 0;
	}
}

bool reply_feed(struct turn *t, const struct stream_event *ev)
{
	switch (ev->type) {
	case STREAM_BEGIN:
		reply_ensure_begun(t);
		break;
	case STREAM_ITEM_BEGIN:
		reply_ensure_begun(t);
		writing_settle(t, CUT_NONE);
		release_head(t);
		writing_begin(t, ev);
		break;
	case STREAM_DELTA:
		if (t->w.active && !t->w.ended)
			writing_delta(t, ev);
		break;
	case STREAM_ITEM_END:
		if (t->w.active && !t->w.ended)
			writing_end(t, ev);
		break;
	case STREAM_USAGE:
		accounting_usage(t, &ev->usage);
		break;
	case STREAM_END:
		reply_ensure_begun(t);
		t->finish = ev->finish;
		t->stop_sequence = turn_copy(t, ev->stop_sequence);
		reply_end(t, finish_cut(ev->finish));
		return false;
	case STREAM_ERROR:
		turn_will_fail(t, ev->error);
		reply_end(t, CUT_ERROR);
		return false;
	}
	return true;
}
