/*
 * The turn's outputs as chunks of a Chat Completions stream, or as one whole answer.
 *
 * Each output is one chunk, or none; the end is up to three small ones. A chunk is written when its
 * output comes and waits, where it is large, in the ropewriter until the client drains: the gateway
 * brings no other output meanwhile. A delta's text is the turn's and lives only until then, so a
 * large one is copied.
 *
 * The first chunk has the role. Calls have their index among the calls. Reasoning is shown twice,
 * as OpenRouter does: as plain text, and as reasoning_details with an item's state at its end. A
 * turn that failed ends with a chunk that has `error` in it, and no [DONE].
 */
#include "api/chat.h"

#include "api/event_queue.h"
#include "base/mem.h"

#include <stdlib.h>

/* Shorter strings are copied as they are written. */
enum { HOLD_FROM = 512 };

struct api_stream {
	enum api_carrier carrier;
	struct chat_answer answer;
	struct turn_totals totals;
	struct error *error; /* why it failed, or NULL */
	bool begun, ended;
	const struct item **calls; /* in order of their index */
	size_t n_calls, cap_calls;
	int64_t thought;          /* index of the reasoning that is open or comes next */
	struct event_queue queue; /* of none: a chunk is written at once */
	struct ropewriter w;
};

static const struct api_echo *echo_of(const struct api_stream *s)
{
	return s->answer.request->echo;
}

/* ---- chunks ---- */

static void chunk_head(struct api_stream *s)
{
	ropewriter_begin(&s->w);
	if (s->carrier == API_SSE)
		ropewriter_literal(&s->w, STR("data: "));
	jw_object(&s->w.json);
	chat_write_head(&s->w, &s->answer, "chat.completion.chunk");
	jw_key(&s->w.json, "choices");
	jw_array(&s->w.json);
}

static void chunk_tail(struct api_stream *s)
{
	jw_end(&s->w.json);
	ropewriter_literal(&s->w, s->carrier == API_SSE ? STR("\n\n") : STR("\n"));
}

/* Up to the inside of `delta`. */
static void delta_begin(struct api_stream *s)
{
	struct json_writer *j = &s->w.json;

	chunk_head(s);
	jw_object(j);
	jw_ki64(j, "index", 0);
	jw_key(j, "delta");
	jw_object(j);
}

static void delta_end(struct api_stream *s, const char *finish)
{
	struct json_writer *j = &s->w.json;

	jw_end(j);
	jw_knull(j, "logprobs");
	jw_kcstr(j, "finish_reason", finish);
	jw_end(j);
	jw_end(j);
	if (echo_of(s)->usage_asked)
		jw_knull(j, "usage");
	if (s->error)
		chat_write_error(&s->w, s->error, s->answer.request->under_v1);
	chunk_tail(s);
}

static int move(struct api_stream *s, struct buf *out)
{
	return event_queue_move(&s->queue, out, EVENT_QUEUE_WHOLE);
}

/* ---- outputs ---- */

static void begin(struct api_stream *s)
{
	if (s->begun)
		return;
	s->begun = true;
	delta_begin(s);
	jw_kcstr(&s->w.json, "role", "assistant");
	jw_kcstr(&s->w.json, "content", "");
	delta_end(s, NULL);
}

static int64_t call_index(const struct api_stream *s, const struct item *it)
{
	for (size_t i = s->n_calls; i > 0; i--)
		if (s->calls[i - 1] == it)
			return (int64_t)i - 1;
	return -1;
}

/* One call's piece: id and name where it begins. */
static void write_call(
        struct api_stream *s, int64_t index, const struct item *it, struct str arguments)
{
	struct json_writer *j = &s->w.json;
	bool legacy = echo_of(s)->legacy_functions;

	if (!legacy) {
		jw_key(j, "tool_calls");
		jw_array(j);
		jw_object(j);
		jw_ki64(j, "index", index);
		if (it) {
			ropewriter_kstr(&s->w, "id", it->call.public_id);
			jw_kcstr(j, "type", "function");
		}
	}
	jw_key(j, legacy ? "function_call" : "function");
	jw_object(j);
	if (it)
		ropewriter_kstr(&s->w, "name", it->call.name);
	ropewriter_kstr(&s->w, "arguments", arguments);
	jw_end(j);
	if (legacy)
		return;
	jw_end(j);
	jw_end(j);
}

static void call_begin(struct api_stream *s, const struct item *it)
{
	mem_grow(&s->calls, &s->cap_calls, s->n_calls, sizeof(*s->calls));
	s->calls[s->n_calls++] = it;
	if (echo_of(s)->legacy_functions && s->n_calls > 1)
		return; /* there is room for one */
	delta_begin(s);
	write_call(s, (int64_t)s->n_calls - 1, it, STR(""));
	delta_end(s, NULL);
}

static void write_thought(struct api_stream *s, enum part_type type, struct str text)
{
	bool summary = type == PART_SUMMARY;
	struct json_writer *j = &s->w.json;

	ropewriter_kstr(&s->w, "reasoning", text);
	jw_key(j, "reasoning_details");
	jw_array(j);
	jw_object(j);
	jw_kcstr(j, "type", summary ? "reasoning.summary" : "reasoning.text");
	ropewriter_kstr(&s->w, summary ? "summary" : "text", text);
	jw_knull(j, "format");
	jw_ki64(j, "index", s->thought);
	jw_end(j);
	jw_end(j);
}

static int delta(struct api_stream *s, const struct turn_output *o)
{
	int64_t index = -1;
	struct str text;
	int rc;

	if (o->text.n == 0)
		return 0;
	if (o->item->type == ITEM_REASONING && echo_of(s)->hide_reasoning)
		return 0;
	if (o->item->type == ITEM_CALL) {
		index = call_index(s, o->item);
		if (index < 0 || (index > 0 && echo_of(s)->legacy_functions))
			return 0;
	}
	rc = event_queue_hold(&s->queue, o, HOLD_FROM, &text);
	if (rc)
		return rc;
	delta_begin(s);
	if (o->item->type == ITEM_CALL)
		write_call(s, index, NULL, text);
	else if (o->item->type == ITEM_REASONING)
		write_thought(s, o->part_type, text);
	else
		ropewriter_kstr(&s->w, o->part_type == PART_REFUSAL ? "refusal" : "content", text);
	delta_end(s, NULL);
	return 0;
}

static void item_end(struct api_stream *s, const struct item *it)
{
	bool thought = it->type == ITEM_REASONING;

	if (it->opaque.n > 0) {
		delta_begin(s);
		jw_key(&s->w.json, "reasoning_details");
		jw_array(&s->w.json);
		chat_write_state(&s->w, it, thought ? s->thought : -1);
		jw_end(&s->w.json);
		delta_end(s, NULL);
	}
	s->thought += thought;
}

static const char *finish_of(const struct api_stream *s, const struct turn_output *o)
{
	if (o->status == TURN_INCOMPLETE && o->incomplete_reason &&
	        strcmp(o->incomplete_reason, "timeout") == 0)
		return "length"; /* the nearest that there is */
	switch (o->finish) {
	case FINISH_LENGTH:
		return "length";
	case FINISH_FILTER:
		return "content_filter";
	case FINISH_CALLS:
	case FINISH_STOP:
	case FINISH_PAUSE:
		break;
	}
	if (s->n_calls == 0)
		return "stop";
	return echo_of(s)->legacy_functions ? "function_call" : "tool_calls";
}

static void whole(struct api_stream *s)
{
	ropewriter_begin(&s->w);
	if (!s->error) {
		chat_write_whole(&s->w, &s->answer);
		return;
	}
	jw_object(&s->w.json);
	chat_write_error(&s->w, s->error, s->answer.request->under_v1);
	jw_kcstr(&s->w.json, "error_type", api_error_name(s->error));
	jw_end(&s->w.json);
}

/* The last chunk, that with the usage, and the mark: all small. */
static int end(struct api_stream *s, const struct turn_output *o, struct buf *out)
{
	struct error canceled;
	int rc;

	s->ended = true;
	s->answer.finish = finish_of(s, o);
	if (o->status == TURN_FAILED || o->status == TURN_CANCELED) {
		error_set(&canceled, ERR_CANCELED, "The turn was cancelled.");
		s->error = error_copy(o->error ? o->error : &canceled);
		s->answer.finish = "error";
	}
	if (s->carrier == API_WHOLE) {
		whole(s);
		return 0;
	}
	begin(s);
	rc = move(s, out);
	delta_begin(s);
	delta_end(s, s->answer.finish);
	if (!rc)
		rc = move(s, out);
	if (rc || s->error)
		return rc;
	if (echo_of(s)->usage_asked) {
		chunk_head(s);
		jw_end(&s->w.json);
		chat_write_usage(&s->w, &s->answer);
		chunk_tail(s);
		rc = move(s, out);
	}
	if (!rc && s->carrier == API_SSE)
		rc = buf_puts(out, "data: [DONE]\n\n");
	return rc;
}

static int take(struct api_stream *s, const struct turn_output *o, struct buf *out)
{
	switch (o->type) {
	case OUT_BEGIN:
		begin(s);
		return 0;
	case OUT_ITEM_BEGIN:
		if (o->item->type == ITEM_CALL)
			call_begin(s, o->item);
		return 0;
	case OUT_DELTA:
		return delta(s, o);
	case OUT_ITEM_END:
		item_end(s, o->item);
		return 0;
	case OUT_END:
		return end(s, o, out);
	case OUT_TOOL_BEGIN: /* there is no server tool on this API */
	case OUT_TOOL_OUTPUT:
	case OUT_TOOL_COMMAND:
	case OUT_TOOL_END:
		return 0;
	}
	return 0;
}

int chat_stream_emit(struct api_stream *s, const struct turn_output *o,
        const struct turn_totals *totals, struct buf *out)
{
	int rc;

	if (s->ended)
		return 0;
	if (o->type == OUT_END && totals)
		s->totals = *totals;
	if (s->carrier == API_WHOLE && o->type != OUT_END) {
		if (o->type == OUT_ITEM_BEGIN && o->item->type == ITEM_CALL)
			s->n_calls++;
		return 0;
	}
	rc = take(s, o, out);
	return rc ? rc : move(s, out);
}

size_t chat_stream_left(const struct api_stream *s)
{
	return event_queue_left(&s->queue);
}

int chat_stream_pull(struct api_stream *s, struct buf *out, size_t room)
{
	return event_queue_move(&s->queue, out, room ? room : 1);
}

/* ONE newline: older clients of this API break on an empty line that ends nothing. */
void chat_stream_keepalive(struct api_stream *s, struct buf *out)
{
	if (s->carrier == API_SSE && ropewriter_left(&s->w) == 0 && !s->ended)
		buf_puts(out, ": ping\n");
}

int chat_stream_status(const struct api_stream *s)
{
	return s->error && s->carrier == API_WHOLE ? error_http_status(s->error) : 200;
}

struct api_stream *chat_stream_open(
        const struct turn_request *r, const struct api_identity *who, enum api_carrier carrier)
{
	struct api_stream *s = mem_alloc(sizeof(*s));

	s->carrier = carrier;
	s->answer = (struct chat_answer){.request = r, .who = who, .totals = &s->totals};
	ropewriter_init(&s->w);
	event_queue_init(&s->queue, NULL, s, &s->w);
	return s;
}

struct api_stream *chat_stream_close(struct api_stream *s)
{
	if (!s)
		return NULL;
	ropewriter_free(&s->w);
	free(s->calls);
	event_queue_free(&s->queue);
	free(s->error);
	free(s);
	return NULL;
}
