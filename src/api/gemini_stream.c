/*
 * The turn's outputs as GenerateContentResponses: a stream of them, or one.
 *
 * Theory of operation. An output of the turn becomes at most two records in a queue, each of which
 * is one part of the answer. Streamed, a record is one response with that part; the last one has
 * the finishReason and the usage. Texts come as they are said; a signature, which is known only at
 * an item's end, follows on an empty text, as Google's own streams have it. A function's call comes
 * whole. Not streamed, records gather until the end and are then written one after the other into
 * one response, so that an answer of many megabytes never exists as a whole.
 *
 * Large texts are borrowed from the conversation and escaped only as the client drains. What is
 * made here (a call's code, a command's output) lies in `scratch` until it was pulled; it is
 * written one at a time.
 *
 * Two framings of a stream: server-sent events, and without alt=sse one JSON array.
 */
#include "api/gemini.h"

#include "api/event_queue.h"
#include "base/mem.h"

#include <stdlib.h>

enum {
	SCRATCH_MAX = 64 * 1024 * 1024,
	SCRATCH_KEEP = 8 * 1024,
};

enum record_kind {
	RECORD_TEXT,      /* text, thought */
	RECORD_SIGNATURE, /* of item, on an empty text */
	RECORD_ITEM,      /* a whole message, thoughts, or a call */
	RECORD_CODE,      /* a call of the shell */
	RECORD_OUTPUT,    /* of its command */
	RECORD_REASON,    /* why it was not run, or not all of it */
	RECORD_END,
	RECORD_FAILURE,
};

struct record {
	enum record_kind kind;
	const struct item *item, *result;
	struct str text;
	size_t command;
	bool thought;
	const char *reply; /* NULL, or what a replay could not tell (write_metadata()) */
};

struct api_stream {
	const struct turn_request *request;
	const struct api_identity *who;
	enum api_carrier carrier;
	bool array;
	bool ended;
	enum turn_status status;
	const char *reason; /* TURN_INCOMPLETE */
	struct error *error;
	struct turn_totals totals;

	struct event_queue queue; /* of records */
	struct ropewriter w;
	struct buf scratch, signature;   /* what a part borrows, until it was pulled */
	uint32_t call_reply, text_reply; /* of the last call, and of a text if that came last */
	const struct item *begun;        /* by its first delta */
	bool first;                      /* nothing of the array was written */
};

/* ---- parts ---- */

static int ignore_event(void *ctx, const struct json_event *ev)
{
	return 0;
}

/* JSON that others wrote, on one line: between values a space says the same as a newline. */
static struct str one_line(struct api_stream *s, struct str raw)
{
	if (!raw.n || (!memchr(raw.p, '\n', raw.n) && !memchr(raw.p, '\r', raw.n)))
		return raw;
	buf_append(&s->scratch, raw.p, raw.n);
	for (size_t i = 0; i < s->scratch.len; i++)
		if (s->scratch.data[i] == '\n' || s->scratch.data[i] == '\r')
			s->scratch.data[i] = ' ';
	return (struct str){buf_cstr(&s->scratch), s->scratch.len};
}

static void write_args(struct api_stream *s, struct str raw)
{
	struct str text = str_trim(raw);

	if (str_starts(text, "{") && json_read(raw, ignore_event, NULL, NULL) == 0) {
		ropewriter_kraw(&s->w, "args", one_line(s, raw));
		return;
	}
	jw_key(&s->w.json, "args");
	jw_object(&s->w.json);
	if (text.n)
		ropewriter_kstr(&s->w, "invalid_arguments", raw);
	jw_end(&s->w.json);
}

static void write_call(struct api_stream *s, const struct item *it)
{
	struct json_writer *w = &s->w.json;

	jw_object(w);
	jw_key(w, "functionCall");
	jw_object(w);
	jw_kstr(w, "id", it->call.public_id);
	jw_kstr(w, "name", it->call.name);
	write_args(s, it->call.arguments);
	jw_end(w);
	gemini_signature_write(&s->w, it, &s->signature);
	jw_end(w);
}

/*
 * Parts do not say to which reply of the model they belong; ids of calls do. "same": a text behind
 * a call is of the call's reply. "next": one behind another text is not of that one's.
 */
static void write_metadata(struct api_stream *s, const char *reply)
{
	if (!reply)
		return;
	jw_key(&s->w.json, "partMetadata");
	jw_object(&s->w.json);
	jw_kcstr(&s->w.json, "reply", reply);
	jw_end(&s->w.json);
}

static void write_text(
        struct api_stream *s, const struct record *r, struct str text, const struct item *signed_by)
{
	struct json_writer *w = &s->w.json;

	jw_object(w);
	ropewriter_kstr(&s->w, "text", text);
	if (r->thought)
		jw_kbool(w, "thought", true);
	if (signed_by)
		gemini_signature_write(&s->w, signed_by, &s->signature);
	write_metadata(s, r->reply);
	jw_end(w);
}

/* A whole item: its last text carries the signature. */
static void write_item(struct api_stream *s, const struct record *r)
{
	const struct item *it = r->item;
	struct record part = *r;

	if (it->type == ITEM_CALL) {
		write_call(s, it);
		return;
	}
	if (it->type == ITEM_OTHER) {
		ropewriter_raw(&s->w, one_line(s, it->raw));
		return;
	}
	part.thought = it->type == ITEM_REASONING && it->n_parts > 0;
	for (size_t i = 0; i < it->n_parts; i++) {
		write_text(s, &part, it->parts[i].text, i + 1 == it->n_parts ? it : NULL);
		part.reply = NULL;
	}
	if (!it->n_parts)
		write_text(s, &part, STR(""), it);
}

/* The id of a shell's call and of its results: with the container, so that a replay finds it again.
 */
static void write_shell_id(struct api_stream *s, const struct item *call, const struct item *result)
{
	struct buf id _cleanup_buf_ = BUF_INIT(4096);

	buf_append(&id, call->call.public_id.p, call->call.public_id.n);
	if (result && result->result.container_id.n) {
		buf_putc(&id, '.');
		buf_append(&id, result->result.container_id.p, result->result.container_id.n);
	}
	if (buf_error(&id) == 0)
		jw_kstr(&s->w.json, "id", (struct str){buf_cstr(&id), id.len});
}

static void write_code(struct api_stream *s, const struct record *r)
{
	struct json_writer *w = &s->w.json;

	gemini_code_write(&r->item->call, &s->scratch);
	jw_object(w);
	jw_key(w, "executableCode");
	jw_object(w);
	write_shell_id(s, r->item, r->result);
	jw_kcstr(w, "language", "LANGUAGE_UNSPECIFIED"); /* this API knows no name but PYTHON */
	ropewriter_kstr(&s->w, "code", (struct str){buf_cstr(&s->scratch), s->scratch.len});
	jw_end(w);
	gemini_signature_write(&s->w, r->item, &s->signature);
	jw_end(w);
}

static void write_output(struct api_stream *s, const struct record *r)
{
	struct json_writer *w = &s->w.json;
	const char *outcome = "OUTCOME_FAILED";

	if (r->kind == RECORD_OUTPUT)
		outcome = gemini_code_write_output(
		        &r->result->result.outputs[r->command], &s->scratch);
	else
		gemini_code_write_error(r->result->result.error, &s->scratch);
	jw_object(w);
	jw_key(w, "codeExecutionResult");
	jw_object(w);
	write_shell_id(s, r->item, r->result);
	jw_kcstr(w, "outcome", outcome);
	ropewriter_kstr(&s->w, "output", (struct str){buf_cstr(&s->scratch), s->scratch.len});
	jw_end(w);
	jw_end(w);
}

static void write_part(struct api_stream *s, const struct record *r)
{
	buf_reset(&s->scratch);
	switch (r->kind) {
	case RECORD_TEXT:
		write_text(s, r, r->text, NULL);
		break;
	case RECORD_SIGNATURE:
	case RECORD_END:
		write_text(s, r, STR(""), r->item);
		break;
	case RECORD_ITEM:
		write_item(s, r);
		break;
	case RECORD_CODE:
		write_code(s, r);
		break;
	case RECORD_OUTPUT:
	case RECORD_REASON:
		write_output(s, r);
		break;
	case RECORD_FAILURE:
		break;
	}
	if (!s->w.err)
		s->w.err = buf_error(&s->scratch);
}

/* ---- responses ---- */

static void write_head(struct api_stream *s)
{
	struct json_writer *w = &s->w.json;

	jw_object(w);
	jw_key(w, "candidates");
	jw_array(w);
	jw_object(w);
	jw_key(w, "content");
	jw_object(w);
	jw_key(w, "parts");
	jw_array(w);
}

static const char *finish_reason(const struct api_stream *s)
{
	struct str reason = str_of(s->reason);

	if (s->status == TURN_COMPLETED)
		return "STOP";
	return str_is(reason, "max_output_tokens") ? "MAX_TOKENS"
	       : str_is(reason, "content_filter")  ? "SAFETY"
	                                           : "OTHER";
}

static void write_usage(struct api_stream *s)
{
	const struct usage *u = &s->totals.usage;
	struct json_writer *w = &s->w.json;

	jw_key(w, "usageMetadata");
	jw_object(w);
	jw_ki64(w, "promptTokenCount", (int64_t)u->input);
	jw_ki64(w, "candidatesTokenCount", (int64_t)(u->output - u->reasoning));
	jw_ki64(w, "totalTokenCount", (int64_t)(u->input + u->output));
	if (u->cached)
		jw_ki64(w, "cachedContentTokenCount", (int64_t)u->cached);
	if (u->reasoning)
		jw_ki64(w, "thoughtsTokenCount", (int64_t)u->reasoning);
	api_write_cost(w, s->who, &s->totals, "upstream_inference_input_cost",
	        "upstream_inference_output_cost", s->request->conversation->has_server_tool);
	jw_end(w);
}

/* last: with what only the last response of a stream has. */
static void write_tail(struct api_stream *s, bool last)
{
	struct json_writer *w = &s->w.json;

	jw_end(w);
	jw_kcstr(w, "role", "model");
	jw_end(w);
	if (last) {
		jw_kcstr(w, "finishReason", finish_reason(s));
		if (s->status == TURN_INCOMPLETE && str_is(str_of(s->reason), "timeout"))
			jw_kcstr(w, "finishMessage", "The time for this request is over.");
	}
	jw_ki64(w, "index", 0);
	jw_end(w);
	jw_end(w);
	if (last)
		write_usage(s);
	jw_kcstr(w, "modelVersion", s->who->model);
	jw_kcstr(w, "responseId", s->who->id);
	if (last && s->who->metadata)
		jw_kraw(w, "openrouter_metadata", str_of(s->who->metadata));
	jw_end(w);
}

static void write_failure(struct api_stream *s)
{
	struct buf body = BUF_INIT(65536);

	api_error_body_google(s->error, &body);
	ropewriter_literal(&s->w, (struct str){buf_cstr(&body), body.len});
	buf_free(&body);
}

/* One record of a stream, framed. */
static void write_event(struct api_stream *s)
{
	const struct record *r = event_queue_next(&s->queue);
	bool last = r->kind == RECORD_END || r->kind == RECORD_FAILURE;

	ropewriter_begin(&s->w);
	if (s->array)
		ropewriter_literal(&s->w, s->first ? STR("[") : STR(",\n"));
	else
		ropewriter_literal(&s->w, STR("data: "));
	s->first = false;
	if (r->kind == RECORD_FAILURE) {
		write_failure(s);
	} else {
		write_head(s);
		write_part(s, r);
		write_tail(s, last);
	}
	if (s->array)
		ropewriter_literal(&s->w, last ? STR("]\n") : STR(""));
	else
		ropewriter_literal(&s->w, STR("\n\n"));
}

/* The one response goes on with its next part, or ends. */
static void whole_step(struct api_stream *s)
{
	const struct record *r = event_queue_next(&s->queue);
	bool last = s->queue.next == s->queue.n;

	/* Clients forget an answer that has no part at all. */
	if (!last || s->queue.n == 1)
		write_part(s, r);
	if (!last)
		return;
	write_tail(s, true);
	s->queue.in_steps = false;
}

static void write_next(struct api_stream *s)
{
	if (s->carrier != API_WHOLE) {
		write_event(s);
		return;
	}
	ropewriter_begin(&s->w);
	if (s->error) {
		write_failure(s);
		s->queue.next = s->queue.n;
		return;
	}
	write_head(s);
	s->queue.in_steps = true;
}

static const struct event_queue_ops queue_ops = {
        .record = sizeof(struct record),
        .write = write_next,
        .step = whole_step,
};

/* ---- from outputs to records ---- */

static struct record *push(struct api_stream *s, enum record_kind kind, const struct item *it)
{
	struct record *r = event_queue_push(&s->queue);

	*r = (struct record){.kind = kind, .item = it};
	return r;
}

/* What the first part of an item says of its reply. */
static const char *note_reply(struct api_stream *s, const struct item *it)
{
	const char *says = NULL;

	if (s->begun == it || it->reply == REPLY_NONE)
		return NULL;
	s->begun = it;
	if (it->type == ITEM_CALL || it->type == ITEM_OTHER) {
		s->call_reply = it->type == ITEM_CALL ? it->reply : s->call_reply;
		s->text_reply = REPLY_NONE;
		return NULL;
	}
	if (it->reply == s->call_reply)
		says = "same";
	else if (s->text_reply != REPLY_NONE && it->reply != s->text_reply)
		says = "next";
	s->text_reply = it->reply;
	return says;
}

static int take_delta(struct api_stream *s, const struct turn_output *o)
{
	struct record *r;

	if (s->carrier == API_WHOLE || o->item->type == ITEM_CALL || !o->text.n)
		return 0;
	r = push(s, RECORD_TEXT, o->item);
	r->thought = o->item->type == ITEM_REASONING;
	r->reply = note_reply(s, o->item);
	return event_queue_hold(&s->queue, o, EVENT_QUEUE_HOLD, &r->text);
}

static void take_item(struct api_stream *s, const struct item *it)
{
	struct record *r;

	if (it->type == ITEM_OTHER && (it->raw_dialect != DIALECT_GEMINI || !it->raw.n))
		return;
	if (s->carrier == API_WHOLE || it->type == ITEM_CALL || it->type == ITEM_OTHER) {
		push(s, RECORD_ITEM, it)->reply = note_reply(s, it);
		return;
	}
	if (!it->opaque.n)
		return;
	r = push(s, RECORD_SIGNATURE, it);
	/* Thoughts of which there is text are told from what has none. */
	r->thought = it->type == ITEM_REASONING && it->n_parts > 0;
	r->reply = note_reply(s, it);
}

static void take_tool(struct api_stream *s, const struct turn_output *o)
{
	struct record *r;

	if (o->type == OUT_TOOL_BEGIN) {
		r = push(s, RECORD_CODE, o->item);
		note_reply(s, o->item);
	} else if (o->type == OUT_TOOL_COMMAND) {
		if (!o->result)
			return;
		r = push(s, RECORD_OUTPUT, o->item);
		r->command = o->command;
	} else {
		if (!o->result || !o->result->result.error.n)
			return;
		r = push(s, RECORD_REASON, o->item);
	}
	r->result = o->result;
}

static void take_end(
        struct api_stream *s, const struct turn_output *o, const struct turn_totals *totals)
{
	struct error canceled;

	if (s->ended)
		return;
	s->ended = true;
	s->status = o->status;
	s->reason = o->incomplete_reason;
	if (totals)
		s->totals = *totals;
	if (o->status == TURN_COMPLETED || o->status == TURN_INCOMPLETE) {
		push(s, RECORD_END, NULL);
		return;
	}
	error_set(&canceled, ERR_CANCELED, "The turn was cancelled.");
	s->error = error_copy(o->error ? o->error : &canceled);
	push(s, RECORD_FAILURE, NULL);
}

static int take(struct api_stream *s, const struct turn_output *o, const struct turn_totals *totals)
{
	switch (o->type) {
	case OUT_BEGIN:
	case OUT_ITEM_BEGIN:
	case OUT_TOOL_OUTPUT: /* a part comes whole: the command's output when it has ended */
		return 0;
	case OUT_DELTA:
		return take_delta(s, o);
	case OUT_ITEM_END:
		take_item(s, o->item);
		return 0;
	case OUT_TOOL_BEGIN:
	case OUT_TOOL_COMMAND:
	case OUT_TOOL_END:
		take_tool(s, o);
		return 0;
	case OUT_END:
		take_end(s, o, totals);
		return 0;
	}
	return 0;
}

/* ---- moving bytes ---- */

static int move(struct api_stream *s, struct buf *out, size_t room)
{
	int rc = event_queue_move(&s->queue, out, room);

	if (!rc && event_queue_left(&s->queue) == 0 && s->scratch.cap > SCRATCH_KEEP)
		buf_free(&s->scratch);
	if (!rc && event_queue_left(&s->queue) == 0 && s->signature.cap > SCRATCH_KEEP)
		buf_free(&s->signature);
	return rc;
}

int gemini_stream_emit(struct api_stream *s, const struct turn_output *o,
        const struct turn_totals *totals, struct buf *out)
{
	int rc = take(s, o, totals);

	if (rc || (s->carrier == API_WHOLE && !s->ended))
		return rc;
	return move(s, out, EVENT_QUEUE_WHOLE);
}

size_t gemini_stream_left(const struct api_stream *s)
{
	if (s->carrier == API_WHOLE && !s->ended)
		return 0;
	return event_queue_left(&s->queue);
}

int gemini_stream_pull(struct api_stream *s, struct buf *out, size_t room)
{
	return move(s, out, room ? room : 1);
}

/* A comment of its own: clients of this API drop an event that a comment stands in. Between the
 * elements of an array space is free. */
void gemini_stream_keepalive(struct api_stream *s, struct buf *out)
{
	if (s->carrier == API_SSE && !event_queue_is_writing(&s->queue) && !s->ended)
		buf_puts(out, s->array ? "\n" : ": ping\n\n");
}

int gemini_stream_status(const struct api_stream *s)
{
	return s->error ? error_http_status(s->error) : 200;
}

struct api_stream *gemini_stream_open(
        const struct turn_request *r, const struct api_identity *who, enum api_carrier carrier)
{
	struct api_stream *s = mem_alloc(sizeof(*s));

	s->request = r;
	s->who = who;
	s->carrier = carrier;
	s->array = carrier == API_SSE && r->echo && r->echo->array;
	s->first = true;
	s->call_reply = s->text_reply = REPLY_NONE;
	buf_init(&s->scratch, SCRATCH_MAX);
	buf_init(&s->signature, SCRATCH_MAX);
	ropewriter_init(&s->w);
	event_queue_init(&s->queue, &queue_ops, s, &s->w);
	return s;
}

struct api_stream *gemini_stream_close(struct api_stream *s)
{
	if (!s)
		return NULL;
	ropewriter_free(&s->w);
	buf_free(&s->scratch);
	buf_free(&s->signature);
	event_queue_free(&s->queue);
	free(s->error);
	free(s);
	return NULL;
}
