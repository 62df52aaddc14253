/*
 * The answer of POST /chat/completions → canonical events.
 *
 * Theory of operation. Bytes go through the SSE reader (or, when the first byte shows that the
 * server ignored `stream`, are kept until the end). Every data line is one chunk. What a chunk adds
 * is put into a queue of items in the order in which the items first appeared: a run of text, a run
 * of reasoning, a call. Only the head of the queue is open towards the turn and passes its pieces
 * on at once; what belongs to later items waits in them. The head ends when another item has begun
 * and nothing more can come for it: text and reasoning at once, a call when its arguments are a
 * whole JSON object, since servers that interleave parallel calls, or put text between the pieces
 * of one, come back to it. At the end of the answer all that waits is passed on.
 *
 * Which call a piece belongs to is the delicate part, see call_for().
 *
 * A line that is no JSON is skipped. If a call's arguments were still incomplete they may now lack
 * a piece and yet read as JSON, so they are spoiled on purpose: what is left must not run.
 *
 * A reply has ended well only if the server gave a finish_reason; [DONE] alone, or the end of the
 * bytes, does not count. Usage is cumulative: each field's last value stands.
 */
#include "provider/openai_chat.h"

#include "base/id.h"
#include "base/mem.h"
#include "provider/emitter.h"
#include "provider/framing.h"

#include <stdlib.h>

#define EVENT_MAX   ((size_t)16 << 20)
#define TREE_MAX    ((size_t)64 << 20)
#define REPLY_MAX   ((size_t)64 << 20) /* all text, reasoning and arguments of one reply */
#define ARGS_MAX    ((size_t)4 << 20)
#define DETAILS_MAX ((size_t)4 << 20)
#define OPAQUE_MAX  ((size_t)32 << 20)
#define CALLS_MAX   256
#define ITEMS_MAX   10000
#define ID_MAX      1024
#define NAME_MAX    256

#define LEGACY_INDEX INT64_MIN /* delta.function_call, which has none */

/* Not JSON inside a string (a raw line break) and not JSON outside of one. */
static const char SPOILED[] = "\n<a piece of the stream was unreadable>\n";

struct reply_item {
	struct reply_item *next;
	enum item_type type;
	enum part_type part_type;
	struct chat_call *call;
	struct openai_chat_details *details; /* reasoning, or NULL */
	const char *spelling;                /* reasoning: the server's name for it, or NULL */
	struct buf waiting;                  /* not passed on yet */
	bool begun;
};

struct chat_call {
	bool has_index;
	int64_t index;
	struct buf id, name;
	struct buf extra; /* extra_content, raw */
	struct openai_chat_args scan;
	size_t args_len;
	struct reply_item *item; /* NULL once it has ended */
};

struct provider_parser {
	struct framing f;
	struct emitter out;
	bool begun;
	struct reply_item *head, *tail;
	struct chat_call **calls;
	size_t n_calls, cap_calls, n_items, n_bytes;
	bool finish_seen;
	enum finish finish;
};

/* ---- emitting ---- */

static struct str buf_str(const struct buf *b)
{
	return (struct str){b->len ? b->data : NULL, b->len};
}

/* ---- the queue ---- */

static struct reply_item *item_free(struct reply_item *it)
{
	if (it) {
		openai_chat_details_free(it->details);
		buf_free(&it->waiting);
		if (it->call)
			it->call->item = NULL;
		free(it);
	}
	return NULL;
}

static struct reply_item *add_item(struct provider_parser *p, enum item_type type)
{
	struct reply_item *it;

	if (p->n_items == ITEMS_MAX)
		return NULL;
	p->n_items++;
	it = mem_alloc(sizeof(*it));
	it->type = type;
	it->waiting = (struct buf)BUF_INIT(REPLY_MAX);
	if (p->tail)
		p->tail->next = it;
	else
		p->head = it;
	p->tail = it;
	return it;
}

/* The id that the turn will know the call by: the server's, unless it has none or uses it twice. */
static void settle_id(struct provider_parser *p, struct chat_call *c)
{
	char minted[64];
	bool taken = !c->id.len;

	for (size_t i = 0; i < p->n_calls && !taken; i++)
		taken = p->calls[i] != c && (!p->calls[i]->item || p->calls[i]->item->begun) &&
		        str_eq(buf_str(&p->calls[i]->id), buf_str(&c->id));
	if (!taken)
		return;
	id_make(minted, sizeof(minted), "call_", 24);
	buf_reset(&c->id);
	buf_puts(&c->id, minted);
}

static int begin_item(struct provider_parser *p, struct reply_item *it)
{
	struct stream_event ev = {.type = STREAM_ITEM_BEGIN, .item_type = it->type};

	if (it->call) {
		settle_id(p, it->call);
		ev.id = buf_str(&it->call->id);
		ev.name = buf_str(&it->call->name);
	}
	it->begun = true;
	return emitter_emit(&p->out, &ev);
}

static int pass_on(struct provider_parser *p, struct reply_item *it)
{
	struct stream_event ev = {.type = STREAM_DELTA,
	        .item_type = it->type,
	        .part_type = it->part_type,
	        .text = buf_str(&it->waiting)};
	int r = emitter_emit(&p->out, &ev);

	buf_free(&it->waiting);
	return r;
}

static int write_opaque(struct reply_item *it, struct buf *out)
{
	struct buf details _cleanup_buf_ = BUF_INIT(OPAQUE_MAX);
	struct json_writer w;

	if (it->call) {
		if (!it->call->extra.len)
			return 0;
		jw_init(&w, out);
		jw_object(&w);
		jw_kraw(&w, "extra_content", buf_str(&it->call->extra));
		jw_end(&w);
		return jw_done(&w);
	}
	if (!it->spelling && !it->details)
		return 0;
	jw_init(&w, out);
	jw_object(&w);
	if (it->spelling)
		jw_kcstr(&w, "field", it->spelling);
	if (it->details) {
		if (openai_chat_details_write(it->details, &details) < 0)
			return -ERR_TOO_LARGE;
		jw_kraw(&w, "details", buf_str(&details));
	}
	jw_end(&w);
	return jw_done(&w);
}

static int end_item(struct provider_parser *p, struct reply_item *it)
{
	struct buf opaque _cleanup_buf_ = BUF_INIT(OPAQUE_MAX);
	struct stream_event ev = {.type = STREAM_ITEM_END, .item_type = it->type};

	if (write_opaque(it, &opaque) < 0)
		return emitter_fail_text(&p->out, "the provider's reasoning details are too large");
	ev.opaque = buf_str(&opaque);
	if (it->call) {
		ev.id = buf_str(&it->call->id);
		ev.name = buf_str(&it->call->name);
	}
	return emitter_emit(&p->out, &ev);
}

/* Passes on all that may be. last: the answer has ended, so every item is complete. */
static int pump(struct provider_parser *p, bool last)
{
	while (p->head) {
		struct reply_item *it = p->head;
		int r = 0;

		if (!it->begun) {
			if (it->call && !it->call->name.len && !last)
				return 0;
			r = begin_item(p, it);
		}
		if (r == 0 && it->waiting.len)
			r = pass_on(p, it);
		if (r < 0)
			return r;
		if (!last && (!it->next || (it->call && !it->call->scan.whole)))
			return 0;
		r = end_item(p, it);
		p->head = it->next;
		if (!p->head)
			p->tail = NULL;
		item_free(it);
		if (r < 0 || p->out.ended)
			return r;
	}
	return 0;
}

/* ---- text and reasoning ---- */

static int append(struct provider_parser *p, struct reply_item *it, struct str text)
{
	if (text.n > REPLY_MAX - p->n_bytes)
		return emitter_fail_text(&p->out, "the provider's reply is longer than 64 MiB");
	p->n_bytes += text.n;
	if (buf_append(&it->waiting, text.p, text.n) < 0)
		return emitter_fail_text(&p->out, "the provider's reply is longer than 64 MiB");
	return 0;
}

static int add_text(struct provider_parser *p, enum part_type type, struct str text)
{
	struct reply_item *it = p->tail;

	if (!text.n || p->out.ended)
		return 0;
	if (!it || it->type != ITEM_MESSAGE || it->part_type != type) {
		it = add_item(p, ITEM_MESSAGE);
		if (!it)
			return emitter_fail_text(
			        &p->out, "the provider's reply has too many parts");
		it->part_type = type;
	}
	return append(p, it, text);
}

static struct reply_item *reasoning_item(struct provider_parser *p)
{
	struct reply_item *it = p->tail;

	if (!it || it->type != ITEM_REASONING) {
		it = add_item(p, ITEM_REASONING);
		if (it)
			it->part_type = PART_REASONING;
	}
	return it;
}

static int add_reasoning(struct provider_parser *p, const char *spelling, struct str text)
{
	struct reply_item *it;

	if (!text.n || p->out.ended)
		return 0;
	it = reasoning_item(p);
	if (!it)
		return emitter_fail_text(&p->out, "the provider's reply has too many parts");
	if (!it->spelling)
		it->spelling = spelling;
	return append(p, it, text);
}

/* shown: the same reasoning came as plain text too. */
static int add_details(struct provider_parser *p, const struct json *details, bool shown)
{
	struct buf text _cleanup_buf_ = BUF_INIT(REPLY_MAX);
	struct reply_item *it;

	if (!json_is(details, JSON_ARRAY) || !json_count(details) || p->out.ended)
		return 0;
	it = reasoning_item(p);
	if (!it)
		return emitter_fail_text(&p->out, "the provider's reply has too many parts");
	if (!it->details)
		it->details = openai_chat_details_new(DETAILS_MAX);
	if (openai_chat_details_add(it->details, details, shown ? NULL : &text) < 0)
		return emitter_fail_text(&p->out, "the provider's reasoning details are too large");
	return text.len ? append(p, it, buf_str(&text)) : 0;
}

/* vLLM once sent both spellings with the same text: one of them is enough. */
static int read_reasoning(struct provider_parser *p, const struct json *delta)
{
	struct str content = json_str(json_get(delta, "reasoning_content"));
	struct str plain = json_str(json_get(delta, "reasoning"));
	int r = content.n ? add_reasoning(p, "reasoning_content", content)
	                  : add_reasoning(p, "reasoning", plain);

	if (r < 0)
		return r;
	return add_details(p, json_get(delta, "reasoning_details"), content.n || plain.n);
}

static int read_thinking(struct provider_parser *p, const struct json *thinking)
{
	int r = add_reasoning(p, "thinking", json_str(thinking));

	for (const struct json *t = json_first(thinking); t && r == 0; t = json_next(t))
		r = add_reasoning(p, "thinking", json_str(json_get(t, "text")));
	return r;
}

static int read_content(struct provider_parser *p, const struct json *content)
{
	int r = 0;

	if (json_is(content, JSON_STRING))
		return add_text(p, PART_TEXT, json_str(content));
	if (!json_is(content, JSON_ARRAY))
		return 0;
	for (const struct json *c = json_first(content); c && r == 0; c = json_next(c)) {
		struct str type = json_str(json_get(c, "type"));

		if (str_is(type, "thinking"))
			r = read_thinking(p, json_get(c, "thinking"));
		else if (str_is(type, "refusal"))
			r = add_text(p, PART_REFUSAL, json_str(json_get(c, "refusal")));
		else if (str_is(type, "text"))
			r = add_text(p, PART_TEXT, json_str(json_get(c, "text")));
	}
	return r;
}

/* ---- calls ---- */

static int add_arguments(struct provider_parser *p, struct chat_call *c, struct str text)
{
	if (!text.n)
		return 0;
	if (!c->item) /* it was shown as whole: nothing may change it any more */
		return str_trim(text).n
		               ? emitter_fail_text(&p->out,
		                         "the provider added to a tool call that was complete")
		               : 0;
	if (text.n > ARGS_MAX - c->args_len)
		return emitter_fail_text(
		        &p->out, "the provider sent a tool call with over 4 MiB of arguments");
	c->args_len += text.n;
	openai_chat_args_scan(&c->scan, text);
	return append(p, c->item, text);
}

static struct chat_call *add_call(struct provider_parser *p, const int64_t *index)
{
	struct chat_call *c;
	struct reply_item *it;

	if (p->n_calls == CALLS_MAX || !(it = add_item(p, ITEM_CALL)))
		return NULL;
	c = mem_alloc(sizeof(*c));
	c->has_index = index != NULL;
	c->index = index ? *index : 0;
	c->id = (struct buf)BUF_INIT(ID_MAX);
	c->name = (struct buf)BUF_INIT(NAME_MAX);
	c->extra = (struct buf)BUF_INIT(ARGS_MAX);
	c->item = it;
	it->call = c;
	mem_grow(&p->calls, &p->cap_calls, p->n_calls, sizeof(struct chat_call *));
	p->calls[p->n_calls++] = c;
	return c;
}

/* One element of tool_calls. */
struct piece {
	bool has_index;
	int64_t index;
	struct str id, name, arguments;
	const struct json *extra;
};

/* Does this piece, addressed to c, begin another call instead? */
static bool begins_another(const struct chat_call *c, const struct piece *f)
{
	bool other_id = f->id.n && c->id.len && !str_eq(f->id, buf_str(&c->id));
	bool other_name = f->name.n && c->name.len && !str_eq(f->name, buf_str(&c->name));

	if (f->id.n && str_eq(f->id, buf_str(&c->id)))
		return false;
	if (other_id) /* a new id in every piece is a habit of some gateways: not by itself another
	                 call */
		return c->scan.whole || other_name || (f->name.n && !c->args_len);
	if (!f->name.n || !c->name.len)
		return false;
	if (c->scan.whole)
		return other_name || f->arguments.n > 0;
	return !f->has_index && (other_name || f->arguments.n > 0) && c->args_len == 0;
}

/*
 * The call that a piece belongs to; a new one where it begins one; NULL when there are too many. By
 * index where it is given; Google leaves it out, and some servers (Ollama once, OneAPI) label every
 * call 0: then a new id, or a name after whole arguments, begins the next.
 */
static struct chat_call *call_for(struct provider_parser *p, const struct piece *f)
{
	struct chat_call *found = NULL;

	for (size_t i = p->n_calls; i-- > 0 && !found;) {
		struct chat_call *c = p->calls[i];

		if (f->has_index ? c->has_index && c->index == f->index
		                 : f->id.n && str_eq(f->id, buf_str(&c->id)))
			found = c;
	}
	if (!found && !f->has_index && p->n_calls)
		found = p->calls[p->n_calls - 1];
	if (!found || begins_another(found, f))
		return add_call(p, f->has_index ? &f->index : NULL);
	return found;
}

static int add_piece(struct provider_parser *p, const struct piece *f)
{
	struct chat_call *c;

	if (p->out.ended || (!f->id.n && !f->name.n && !f->arguments.n && !f->extra))
		return 0;
	c = call_for(p, f);
	if (!c)
		return emitter_fail_text(
		        &p->out, "the provider made more than 256 tool calls in one reply");
	/* Both are fixed once they were shown. What is too long for us counts as not given. */
	if (!c->id.len && c->item && !c->item->begun && f->id.n <= ID_MAX)
		buf_append(&c->id, f->id.p, f->id.n);
	if (!c->name.len && c->item && !c->item->begun && f->name.n <= NAME_MAX)
		buf_append(&c->name, f->name.p, f->name.n);
	if (json_is(f->extra, JSON_OBJECT)) {
		struct str raw = json_raw(f->extra);

		buf_reset(&c->extra);
		if (buf_append(&c->extra, raw.p, raw.n) < 0)
			return emitter_fail_text(
			        &p->out, "the provider's extra_content is too large");
	}
	return add_arguments(p, c, f->arguments);
}

/* Arguments are a JSON string; a few servers send the object itself. */
static struct str arguments_of(const struct json *function)
{
	const struct json *v = json_get(function, "arguments");

	return json_is(v, JSON_OBJECT) ? json_raw(v) : json_str(v);
}

static int read_calls(struct provider_parser *p, const struct json *delta)
{
	const struct json *legacy = json_get(delta, "function_call");
	int r = 0;

	for (const struct json *t = json_first(json_get(delta, "tool_calls")); t && r == 0;
	        t = json_next(t)) {
		const struct json *fn = json_get(t, "function");
		struct piece f = {.id = json_str(json_get(t, "id")),
		        .name = json_str(json_get(fn, "name")),
		        .arguments = arguments_of(fn),
		        .extra = json_get(t, "extra_content")};

		if (!json_is(t, JSON_OBJECT))
			continue;
		f.has_index = json_i64(json_get(t, "index"), &f.index);
		r = add_piece(p, &f);
	}
	if (r == 0 && json_is(legacy, JSON_OBJECT)) {
		struct piece f = {.has_index = true,
		        .index = LEGACY_INDEX,
		        .name = json_str(json_get(legacy, "name")),
		        .arguments = arguments_of(legacy)};

		r = add_piece(p, &f);
	}
	return r;
}

/* ---- finish ---- */

static int begin(struct provider_parser *p, const struct json *root)
{
	struct stream_event ev = {.type = STREAM_BEGIN,
	        .id = json_str(json_get(root, "id")),
	        .model = json_str(json_get(root, "model"))};

	p->begun = true;
	return emitter_emit(&p->out, &ev);
}

/* What ended the reply: for calls their presence counts, whatever the server calls it. */
static enum finish finish_of(const struct provider_parser *p, struct str reason)
{
	if (str_is(reason, "length") || str_is(reason, "max_tokens"))
		return FINISH_LENGTH;
	if (str_is(reason, "content_filter") || str_is(reason, "safety"))
		return FINISH_FILTER;
	return p->n_calls ? FINISH_CALLS : FINISH_STOP;
}

static int finish(struct provider_parser *p)
{
	struct stream_event ev = {.type = STREAM_END};
	int r = p->begun ? 0 : begin(p, NULL);

	if (r == 0)
		r = pump(p, true);

	if (r < 0 || p->out.ended)
		return r;
	r = emitter_usage(&p->out);
	if (r < 0)
		return r;
	ev.finish = p->finish == FINISH_STOP && p->n_calls ? FINISH_CALLS : p->finish;
	return emitter_emit(&p->out, &ev);
}

/* ---- chunks ---- */

static int fail_json(struct provider_parser *p, const struct json *root)
{
	struct error err = {0};

	openai_chat_error_json(root, &err);
	return emitter_fail(&p->out, &err);
}

static bool is_error(const struct json *root)
{
	const struct json *e = json_get(root, "error");

	if (!json_absent(e) && !json_is(e, JSON_FALSE))
		return true;
	return str_is(json_str(json_get(root, "object")), "error");
}

/* failing: the chunk holds an error beside the choice, which says more than the finish_reason. */
static int read_choice(struct provider_parser *p, const struct json *choice, bool failing)
{
	const struct json *delta = json_get(choice, "delta");
	struct str reason = json_str(json_get(choice, "finish_reason"));
	int r;

	if (!json_is(delta, JSON_OBJECT))
		delta = json_get(choice, "message");
	r = read_reasoning(p, delta);
	if (r == 0)
		r = read_content(p, json_get(delta, "content"));
	if (r == 0)
		r = add_text(p, PART_REFUSAL, json_str(json_get(delta, "refusal")));
	if (r == 0)
		r = read_calls(p, delta);
	if (r < 0 || p->out.ended || failing)
		return r;
	if (is_error(choice))
		return fail_json(p, choice);
	if (str_is(reason, "error") || str_is(reason, "insufficient_system_resource"))
		return emitter_fail_text(
		        &p->out, "the provider gave up in the middle of its answer");
	if (reason.n && !str_is(reason, "null")) {
		p->finish_seen = true;
		p->finish = finish_of(p, reason);
	}
	return 0;
}

static int read_chunk(struct provider_parser *p, const struct json *root)
{
	const struct json *choices = json_get(root, "choices");
	int r = 0;

	/* A first chunk may hold nothing but metadata of a proxy. */
	if (!p->begun && (json_count(choices) || json_str(json_get(root, "id")).n))
		r = begin(p, root);
	if (r < 0)
		return r;
	openai_chat_usage_read(&p->out.usage, json_get(root, "usage"));
	openai_chat_usage_read(&p->out.usage, json_get(json_get(root, "x_groq"), "usage"));
	for (const struct json *c = json_first(choices); c && r == 0; c = json_next(c)) {
		int64_t index = 0;

		if (json_i64(json_get(c, "index"), &index) && index != 0)
			continue; /* n > 1 is never asked for */
		r = read_choice(p, c, is_error(root));
	}
	return r < 0 ? r : pump(p, false);
}

/* One JSON text of the answer. named_error: it came as `event: error`. False when it is no object.
 */
static bool read_json(struct provider_parser *p, struct str text, bool named_error, int *ret)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	const struct json *root;
	bool failed;

	if (json_parse(text, TREE_MAX, &doc, NULL) < 0)
		return false;
	root = json_root(doc);
	if (json_is(root, JSON_ARRAY)) /* Google wraps errors in one */
		root = json_first(root);
	if (!json_is(root, JSON_OBJECT))
		return false;
	p->f.good++;
	failed = is_error(root) ||
	         (!json_get(root, "choices") && (named_error || p->f.mode == FRAMING_JSON));
	*ret = json_get(root, "choices") || !failed ? read_chunk(p, root) : 0;
	if (*ret == 0 && failed && !p->out.ended)
		*ret = fail_json(p, root);
	return true;
}

/* A line was lost: calls whose arguments were not whole must not run. */
static int spoil(struct provider_parser *p)
{
	int r = 0;

	p->f.malformed++;
	for (struct reply_item *it = p->head; it && r == 0 && !p->out.ended; it = it->next)
		if (it->call && !it->call->scan.whole)
			r = add_arguments(p, it->call, STR(SPOILED));
	return r < 0 ? r : pump(p, false);
}

/* An event's data. Servers that forget the blank line between events give several texts in one. */
static int read_data(struct provider_parser *p, struct str data, bool named_error)
{
	int r = 0;

	if (read_json(p, data, named_error, &r))
		return r;
	if (!data.n || !memchr(data.p, '\n', data.n))
		return spoil(p);
	while (data.n && r == 0 && !p->out.ended) {
		const char *nl = memchr(data.p, '\n', data.n);
		struct str line = {data.p, nl ? (size_t)(nl - data.p) : data.n};

		data.p += line.n + (nl ? 1 : 0);
		data.n -= line.n + (nl ? 1 : 0);
		if (!str_trim(line).n)
			continue;
		if (str_is(line, "[DONE]"))
			return p->finish_seen ? finish(p) : 0;
		if (!read_json(p, line, named_error, &r))
			r = spoil(p);
	}
	return r;
}

static int on_event(void *ctx, struct str event, struct str data)
{
	struct provider_parser *p = ctx;

	if (p->out.ended || !str_trim(data).n)
		return 0;
	if (str_is(str_trim(data), "[DONE]"))
		return p->finish_seen ? finish(p) : 0;
	return read_data(p, data, str_is(event, "error"));
}

/* ---- the seam ---- */

struct provider_parser *openai_chat_parse_open(
        const struct provider_call *pc, struct str content_type)
{
	struct provider_parser *p = mem_alloc(sizeof(*p));

	framing_open(&p->f, EVENT_MAX, REPLY_MAX + EVENT_MAX, on_event, p);
	return p;
}

struct provider_parser *openai_chat_parse_close(struct provider_parser *p)
{
	if (!p)
		return NULL;
	while (p->head) {
		struct reply_item *it = p->head;

		p->head = it->next;
		item_free(it);
	}
	for (size_t i = 0; i < p->n_calls; i++) {
		buf_free(&p->calls[i]->id);
		buf_free(&p->calls[i]->name);
		buf_free(&p->calls[i]->extra);
		free(p->calls[i]);
	}
	free(p->calls);
	framing_close(&p->f);
	free(p);
	return NULL;
}

size_t openai_chat_parse_malformed(const struct provider_parser *p)
{
	return p->f.malformed;
}

int openai_chat_parse_feed(
        struct provider_parser *p, const void *data, size_t n, stream_fn fn, void *ctx)
{
	const char *fault;
	int r;

	if (!emitter_begin(&p->out, fn, ctx))
		return 0;
	fault = framing_feed(&p->f, data, n, &r);
	return fault && !p->out.ended ? emitter_fail_text(&p->out, fault) : r;
}

int openai_chat_parse_end(
        struct provider_parser *p, const struct error *cut, stream_fn fn, void *ctx)
{
	int r = 0;

	if (!emitter_begin(&p->out, fn, ctx))
		return 0;
	if (p->f.mode == FRAMING_JSON && !cut)
		r = read_data(p, buf_str(&p->f.body), false);
	if (r < 0 || p->out.ended)
		return r;
	if (p->finish_seen)
		return finish(p);
	if (cut)
		return emitter_fail(&p->out, cut);
	return emitter_fail_text(&p->out, framing_fault(&p->f));
}
