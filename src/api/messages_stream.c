/*
 * The turn's outputs as a Messages stream, or as one message.
 *
 * Theory of operation. An output of the turn becomes a few events in a queue: small records that
 * point to blocks. Events are written one after the other, each into the ropewriter: numbers and
 * small strings at once, large texts borrowed from the conversation and escaped only as the client
 * drains. What fits is in `out` when emit() returns; the rest waits as records, and pull() goes on.
 * The whole message (API_WHOLE) is written in steps, one block at a time.
 *
 * Order: message_start and a ping; for each block its start, deltas and stop; message_delta,
 * message_stop. message_start waits for the first thing there is to say, so that it can tell the
 * input tokens where the provider tells them early. Each part of a message is a block of its own.
 * A server tool's call has its whole input in one delta, its result stands whole in its start, as
 * recorded streams have it.
 */
#include "api/messages.h"

#include "api/event_queue.h"
#include "base/mem.h"
#include "tool/tool.h"

#include <stdlib.h>

enum { RAW_TREE = 64 * 1024 * 1024 };

enum event_kind {
	EVENT_START,
	EVENT_PING,
	EVENT_BLOCK_START,
	EVENT_TEXT,      /* text_delta */
	EVENT_THINKING,  /* thinking_delta */
	EVENT_SIGNATURE, /* signature_delta */
	EVENT_INPUT,     /* input_json_delta: text */
	EVENT_INPUT_ALL, /* input_json_delta: a server tool's whole input */
	EVENT_CITATION,  /* citations_delta: text is JSON */
	EVENT_BLOCK_STOP,
	EVENT_END, /* message_delta */
	EVENT_STOP,
	EVENT_ERROR,
	EVENT_OBJECT, /* API_WHOLE: the message */
};

struct event {
	enum event_kind kind;
	uint32_t block;
	struct str text;
};

struct api_stream {
	enum api_carrier carrier;
	struct messages_state state;
	bool begun;   /* the turn has */
	bool started; /* message_start was queued */
	bool client_called;
	struct error *error;
	struct turn_totals totals;

	struct messages_block *blocks; /* of `content`, in order */
	size_t n_blocks, cap_blocks;

	struct event_queue queue;
	struct ropewriter w; /* the event that is being written */
	size_t next_block;   /* of the whole message */
};

/* ---- queue ---- */

static void push_text(struct api_stream *s, enum event_kind kind, uint32_t block, struct str text)
{
	struct event *e = event_queue_push(&s->queue);

	*e = (struct event){.kind = kind, .block = block, .text = text};
}

static void push(struct api_stream *s, enum event_kind kind, uint32_t block)
{
	push_text(s, kind, block, (struct str){NULL, 0});
}

static void start(struct api_stream *s)
{
	s->begun = true;
	if (s->started)
		return;
	s->started = true;
	push(s, EVENT_START, 0);
	push(s, EVENT_PING, 0);
}

/* ---- blocks ---- */

static struct messages_block *last_block(struct api_stream *s)
{
	return s->n_blocks ? &s->blocks[s->n_blocks - 1] : NULL;
}

static uint32_t last_index(const struct api_stream *s)
{
	return (uint32_t)(s->n_blocks - 1);
}

static void block_stop(struct api_stream *s)
{
	struct messages_block *b = last_block(s);

	if (!b || !b->is_open)
		return;
	b->is_open = false;
	push(s, EVENT_BLOCK_STOP, last_index(s));
}

static struct messages_block *block_start(
        struct api_stream *s, enum messages_block_kind kind, const struct item *item)
{
	struct messages_block *b;

	start(s);
	block_stop(s);
	mem_grow(&s->blocks, &s->cap_blocks, s->n_blocks, sizeof(*s->blocks));
	b = &s->blocks[s->n_blocks++];
	*b = (struct messages_block){.kind = kind, .item = item, .is_open = true};
	push(s, EVENT_BLOCK_START, last_index(s));
	return b;
}

/* The open block of this item (and part), or NULL. */
static struct messages_block *block_of(struct api_stream *s, const struct item *item)
{
	struct messages_block *b = last_block(s);

	return b && b->is_open && b->item == item ? b : NULL;
}

/* ---- items ---- */

static void call_begin(struct api_stream *s, const struct item *item)
{
	if (block_of(s, item))
		return;
	block_start(s, BLOCK_TOOL_USE, item);
	s->client_called = true;
	push_text(s, EVENT_INPUT, last_index(s), STR(""));
}

static void thinking_delta(struct api_stream *s, const struct turn_output *o, struct str text)
{
	struct messages_block *b = block_of(s, o->item);

	if (!b)
		b = block_start(s, BLOCK_THINKING, o->item);
	if (b->part != o->part)
		push_text(s, EVENT_THINKING, last_index(s), STR(MESSAGES_THOUGHT_BREAK));
	b->part = o->part;
	push_text(s, EVENT_THINKING, last_index(s), text);
}

static void text_delta(struct api_stream *s, const struct turn_output *o, struct str text)
{
	struct messages_block *b = block_of(s, o->item);

	if (!b || b->part != o->part) {
		b = block_start(s, BLOCK_TEXT, o->item);
		b->part = o->part;
	}
	push_text(s, EVENT_TEXT, last_index(s), text);
}

static int item_delta(struct api_stream *s, const struct turn_output *o)
{
	struct str text;
	int rc;

	if (o->text.n == 0)
		return 0;
	rc = event_queue_hold(&s->queue, o, EVENT_QUEUE_HOLD, &text);
	if (rc)
		return rc;
	if (o->item->type == ITEM_CALL) {
		call_begin(s, o->item);
		push_text(s, EVENT_INPUT, last_index(s), text);
	} else if (o->item->type == ITEM_REASONING) {
		thinking_delta(s, o, text);
	} else {
		text_delta(s, o, text);
	}
	return 0;
}

static void thinking_end(struct api_stream *s, const struct item *it)
{
	if (!block_of(s, it)) {
		if (it->redacted && it->opaque.n > 0) {
			block_start(s, BLOCK_REDACTED, it);
			return;
		}
		if (it->n_parts == 0 && it->opaque.n == 0)
			return; /* nothing to be shown */
		block_start(s, BLOCK_THINKING, it);
	}
	push(s, EVENT_SIGNATURE, last_index(s));
}

/* What a text rests on: the block as its provider wrote it has it. */
static void citations(struct api_stream *s, const struct item *it)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	const struct json *v;

	if (!block_of(s, it) || it->raw.n == 0 || it->raw_dialect != DIALECT_ANTHROPIC ||
	        json_parse(it->raw, RAW_TREE, &doc, NULL))
		return;
	for (v = json_first(json_get(json_root(doc), "citations")); v; v = json_next(v))
		push_text(s, EVENT_CITATION, last_index(s), json_raw(v));
}

static void item_end(struct api_stream *s, const struct item *it)
{
	switch (it->type) {
	case ITEM_REASONING:
		thinking_end(s, it);
		break;
	case ITEM_CALL:
		call_begin(s, it);
		break;
	case ITEM_OTHER:
		if (it->raw.n > 0 && it->raw_dialect == DIALECT_ANTHROPIC)
			block_start(s, BLOCK_RAW, it);
		break;
	case ITEM_MESSAGE:
		citations(s, it);
		break;
	case ITEM_RESULT:
		break;
	}
	block_stop(s);
}

/* ---- server tools ---- */

static void tool_begin(struct api_stream *s, const struct item *call)
{
	for (size_t i = s->n_blocks; i > 0; i--)
		if (s->blocks[i - 1].item == call)
			return;
	block_start(s, BLOCK_SERVER_CALL, call);
	push(s, EVENT_INPUT_ALL, last_index(s));
	block_stop(s);
}

static void tool_end(struct api_stream *s, const struct item *call, const struct item *result)
{
	tool_begin(s, call);
	for (size_t i = s->n_blocks; i > 0; i--)
		if (s->blocks[i - 1].kind == BLOCK_SERVER_RESULT && s->blocks[i - 1].item == call)
			return;
	block_start(s, BLOCK_SERVER_RESULT, call)->result = result;
	block_stop(s);
}

/* ---- the end ---- */

/* A turn whose time is over can be gone on with: this API's word for that is pause_turn. */
static const char *stop_reason(const struct api_stream *s, const struct turn_output *o)
{
	if (o->status == TURN_INCOMPLETE) {
		if (str_is(str_of(o->incomplete_reason), "max_output_tokens"))
			return "max_tokens";
		return str_is(str_of(o->incomplete_reason), "content_filter") ? "refusal"
		                                                              : "pause_turn";
	}
	if (s->client_called)
		return "tool_use";
	if (o->finish == FINISH_PAUSE)
		return "pause_turn";
	return o->stop_sequence.n > 0 ? "stop_sequence" : "end_turn";
}

static void turn_end(
        struct api_stream *s, const struct turn_output *o, const struct turn_totals *totals)
{
	struct error canceled;

	if (s->state.ended)
		return;
	s->state.ended = true;
	if (totals) {
		s->totals = *totals;
		s->state.totals = &s->totals;
	}
	if (o->status == TURN_FAILED || o->status == TURN_CANCELED) {
		error_set(&canceled, ERR_CANCELED, "The turn was cancelled.");
		s->error = error_copy(o->error ? o->error : &canceled);
		block_stop(s);
		push(s, s->carrier == API_WHOLE ? EVENT_OBJECT : EVENT_ERROR, 0);
		return;
	}
	start(s);
	block_stop(s);
	s->state.stop_reason = stop_reason(s, o);
	if (str_is(str_of(s->state.stop_reason), "stop_sequence"))
		s->state.stop_sequence = o->stop_sequence;
	if (s->carrier == API_WHOLE) {
		push(s, EVENT_OBJECT, 0);
		return;
	}
	push(s, EVENT_END, 0);
	push(s, EVENT_STOP, 0);
}

static int take(struct api_stream *s, const struct turn_output *o, const struct turn_totals *totals)
{
	switch (o->type) {
	case OUT_BEGIN:
		s->begun = true;
		return 0;
	case OUT_ITEM_BEGIN:
		if (o->item->type == ITEM_CALL)
			call_begin(s, o->item);
		return 0;
	case OUT_DELTA:
		return item_delta(s, o);
	case OUT_ITEM_END:
		item_end(s, o->item);
		return 0;
	case OUT_TOOL_BEGIN:
		tool_begin(s, o->item);
		return 0;
	case OUT_TOOL_OUTPUT:
	case OUT_TOOL_COMMAND:
		return 0;
	case OUT_TOOL_END:
		tool_end(s, o->item, o->result);
		return 0;
	case OUT_END:
		turn_end(s, o, totals);
		return 0;
	}
	return 0;
}

/* ---- writing one event ---- */

static const char *const names[] = {
        [EVENT_START] = "message_start",
        [EVENT_PING] = "ping",
        [EVENT_BLOCK_START] = "content_block_start",
        [EVENT_TEXT] = "content_block_delta",
        [EVENT_THINKING] = "content_block_delta",
        [EVENT_SIGNATURE] = "content_block_delta",
        [EVENT_INPUT] = "content_block_delta",
        [EVENT_INPUT_ALL] = "content_block_delta",
        [EVENT_CITATION] = "content_block_delta",
        [EVENT_BLOCK_STOP] = "content_block_stop",
        [EVENT_END] = "message_delta",
        [EVENT_STOP] = "message_stop",
        [EVENT_ERROR] = "error",
        [EVENT_OBJECT] = "message",
};

static void frame_begin(struct api_stream *s, const char *name)
{
	ropewriter_begin(&s->w);
	if (s->carrier != API_SSE)
		return;
	ropewriter_literal(&s->w, STR("event: "));
	ropewriter_literal(&s->w, str_of(name));
	ropewriter_literal(&s->w, STR("\ndata: "));
}

static void frame_end(struct api_stream *s)
{
	ropewriter_literal(&s->w, s->carrier == API_SSE ? STR("\n\n") : STR("\n"));
}

/* The input of a server tool's call, as a string of JSON. */
static void write_input_text(struct api_stream *s, const struct messages_block *b)
{
	struct buf text = BUF_INIT((size_t)512 << 20);
	struct ropewriter input;
	size_t n;

	if (messages_input_is_plain(&s->state, b->item)) {
		ropewriter_kstr(&s->w, "partial_json", b->item->call.arguments);
		return;
	}
	ropewriter_init(&input);
	ropewriter_begin(&input);
	messages_write_input(&input, &s->state, b->item);
	while (ropewriter_left(&input) > 0 &&
	        ropewriter_pull(&input, &text, EVENT_QUEUE_WHOLE) == 0)
		;
	if (buf_error(&text) || input.err)
		s->w.err = -ERR_NOMEM;
	free(s->queue.held);
	s->queue.held = buf_steal(&text, &n);
	ropewriter_kstr(&s->w, "partial_json", (struct str){s->queue.held, n});
	ropewriter_free(&input);
}

static void write_delta(struct api_stream *s, const struct event *e)
{
	const struct messages_block *b = &s->blocks[e->block];
	struct json_writer *j = &s->w.json;

	jw_ki64(j, "index", e->block);
	jw_key(j, "delta");
	jw_object(j);
	switch ((int)e->kind) {
	case EVENT_TEXT:
		jw_kcstr(j, "type", "text_delta");
		ropewriter_kstr(&s->w, "text", e->text);
		break;
	case EVENT_THINKING:
		jw_kcstr(j, "type", "thinking_delta");
		ropewriter_kstr(&s->w, "thinking", e->text);
		break;
	case EVENT_SIGNATURE:
		jw_kcstr(j, "type", "signature_delta");
		jw_key(j, "signature");
		messages_signature_write(&s->w, b->item);
		break;
	case EVENT_CITATION:
		jw_kcstr(j, "type", "citations_delta");
		jw_key(j, "citation");
		messages_write_raw(&s->w, e->text);
		break;
	case EVENT_INPUT:
		jw_kcstr(j, "type", "input_json_delta");
		ropewriter_kstr(&s->w, "partial_json", e->text);
		break;
	default:
		jw_kcstr(j, "type", "input_json_delta");
		write_input_text(s, b);
		break;
	}
	jw_end(j);
}

static void write_start(struct api_stream *s)
{
	struct messages_state shown = s->state;

	/* How it began, whenever it is written. */
	shown.stop_reason = NULL;
	shown.stop_sequence = (struct str){NULL, 0};
	shown.ended = false;
	jw_key(&s->w.json, "message");
	messages_write_head(&s->w, &shown);
	messages_write_tail(&s->w, &shown);
}

static void write_end(struct api_stream *s)
{
	jw_key(&s->w.json, "delta");
	jw_object(&s->w.json);
	messages_write_end(&s->w, &s->state);
	jw_end(&s->w.json);
	jw_key(&s->w.json, "usage");
	messages_write_usage(&s->w, &s->state, false);
}

static void write_error(struct api_stream *s)
{
	struct buf body = BUF_INIT(65536);

	frame_begin(s, "error");
	api_error_body_anthropic(s->error, s->state.who->id, &body);
	ropewriter_literal(&s->w, (struct str){body.data, body.len});
	frame_end(s);
	buf_free(&body);
}

static void object_begin(struct api_stream *s)
{
	ropewriter_begin(&s->w);
	if (s->error) {
		/* The envelope of any other error, and what there is of the answer: commands ran,
		 * and what they printed must not be lost. */
		api_error_body_anthropic(s->error, s->state.who->id, &s->w.text);
		if (s->n_blocks == 0)
			return;
		s->w.text.len--;
		ropewriter_literal(&s->w, STR(",\"response\":"));
	}
	messages_write_head(&s->w, &s->state);
	s->next_block = 0;
	s->queue.in_steps = true;
}

static void object_step(struct api_stream *s)
{
	if (s->next_block < s->n_blocks) {
		messages_write_block(&s->w, &s->state, &s->blocks[s->next_block++], false);
		return;
	}
	messages_write_tail(&s->w, &s->state);
	if (s->error)
		ropewriter_literal(&s->w, STR("}"));
	s->queue.in_steps = false;
}

static void event_write(struct api_stream *s)
{
	const struct event *e = event_queue_next(&s->queue);
	struct json_writer *j = &s->w.json;
	bool whole;

	if (e->kind == EVENT_OBJECT) {
		object_begin(s);
		return;
	}
	if (e->kind == EVENT_ERROR) {
		write_error(s);
		return;
	}
	frame_begin(s, names[e->kind]);
	jw_object(j);
	jw_kcstr(j, "type", names[e->kind]);
	switch ((int)e->kind) {
	case EVENT_START:
		write_start(s);
		break;
	case EVENT_BLOCK_START:
		/* Blocks that have no deltas stand whole in their start. */
		whole = s->blocks[e->block].kind == BLOCK_SERVER_RESULT ||
		        s->blocks[e->block].kind == BLOCK_RAW ||
		        s->blocks[e->block].kind == BLOCK_REDACTED;
		jw_ki64(j, "index", e->block);
		jw_key(j, "content_block");
		messages_write_block(&s->w, &s->state, &s->blocks[e->block], !whole);
		break;
	case EVENT_BLOCK_STOP:
		jw_ki64(j, "index", e->block);
		break;
	case EVENT_END:
		write_end(s);
		break;
	case EVENT_PING:
	case EVENT_STOP:
		break;
	default:
		write_delta(s, e);
		break;
	}
	jw_end(j);
	frame_end(s);
}

/* ---- moving bytes ---- */

static const struct event_queue_ops queue_ops = {
        .record = sizeof(struct event),
        .write = event_write,
        .step = object_step,
};

int messages_stream_emit(struct api_stream *s, const struct turn_output *o,
        const struct turn_totals *totals, struct buf *out)
{
	int rc;

	if (totals && !s->state.ended) {
		s->totals = *totals;
		s->state.totals = &s->totals;
	}
	rc = take(s, o, totals);
	if (rc)
		return rc;
	if (s->carrier == API_WHOLE && !s->state.ended) {
		event_queue_forget(&s->queue);
		return 0;
	}
	if (s->carrier == API_WHOLE)
		event_queue_skip(&s->queue); /* to the message itself */
	return event_queue_move(&s->queue, out, EVENT_QUEUE_WHOLE);
}

size_t messages_stream_left(const struct api_stream *s)
{
	return event_queue_left(&s->queue);
}

int messages_stream_pull(struct api_stream *s, struct buf *out, size_t room)
{
	return event_queue_move(&s->queue, out, room ? room : 1);
}

void messages_stream_keepalive(struct api_stream *s, struct buf *out)
{
	if (s->carrier != API_SSE || s->state.ended || event_queue_left(&s->queue) > 0)
		return;
	if (s->begun && !s->started)
		start(s);
	else
		push(s, EVENT_PING, 0);
	event_queue_move(&s->queue, out, EVENT_QUEUE_WHOLE);
}

int messages_stream_status(const struct api_stream *s)
{
	return s->error ? error_http_status(s->error) : 200;
}

struct api_stream *messages_stream_open(
        const struct turn_request *r, const struct api_identity *who, enum api_carrier carrier)
{
	struct api_stream *s = mem_alloc(sizeof(*s));
	const char *id = who->id;

	if (str_starts(str_of(id), "gen-"))
		id += 4;
	s->carrier = carrier;
	s->state = (struct messages_state){.request = r, .who = who};
	str_format(s->state.id, sizeof(s->state.id), "msg_%s", id);
	ropewriter_init(&s->w);
	event_queue_init(&s->queue, &queue_ops, s, &s->w);
	return s;
}

struct api_stream *messages_stream_close(struct api_stream *s)
{
	if (!s)
		return NULL;
	ropewriter_free(&s->w);
	free(s->blocks);
	event_queue_free(&s->queue);
	free(s->error);
	free(s);
	return NULL;
}
