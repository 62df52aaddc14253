/*
 * The answer of POST /responses → canonical events.
 *
 * Theory of operation. Bytes go through the SSE reader (or, when the first byte shows that the
 * server ignored `stream`, are kept until the end). Each event is one JSON object that says by its
 * `type` what it adds; `event:` lines, sequence numbers and obfuscation are not looked at. Which
 * item an event is about is said by output_index and item_id. Servers leave out either, repeat
 * indexes, forget to announce an item before its first delta, or give no delta at all: item_for()
 * finds or makes the item, and what the deltas did not bring is taken from the event that ends a
 * part, from the item as a whole, or from the response object at the end.
 *
 * Events that only decorate (in_progress, searching, annotations, which the whole item repeats) are
 * skipped, as is any type that is not known here. A line that is no JSON is skipped and counted.
 *
 * A reply has ended well only with a response object that says how; [DONE] alone, or the end of the
 * bytes, does not count.
 */
#include "provider/openai_chat.h"
#include "provider/openai_responses_items.h"

#include "base/mem.h"
#include "provider/framing.h"

#include <stdlib.h>

/* The last event holds the whole reply once more. */
#define EVENT_MAX ((size_t)96 << 20)
#define TREE_MAX  ((size_t)192 << 20)

struct provider_parser {
	struct framing f;
	bool begun;
	struct buf id, model; /* of the response, once it was named */
	struct responses_items items;
};

/* ---- which item ---- */

static bool is_item(const struct responses_item *it, const struct json *ev, struct str id)
{
	int64_t index;

	if (json_i64(json_get(ev, "output_index"), &index) && it->has_index)
		return it->index == index;
	return id.n && str_eq(id, (struct str){it->id.data, it->id.len});
}

static struct responses_item *find_item(
        struct provider_parser *p, const struct json *ev, struct str id)
{
	struct responses_items *s = &p->items;

	for (size_t i = s->n; i-- > 0;)
		if (is_item(s->list[i], ev, id))
			return s->list[i];
	return NULL;
}

static struct responses_item *new_item(
        struct provider_parser *p, const struct json *ev, enum item_type type)
{
	struct responses_item *it = openai_responses_items_add(&p->items, type);

	if (it)
		it->has_index = json_i64(json_get(ev, "output_index"), &it->index);
	return it;
}

/* The item that a delta is about; where it was not announced, or the last of its kind has ended, a
 * new one. */
static struct responses_item *item_for(
        struct provider_parser *p, const struct json *ev, enum item_type type)
{
	struct responses_items *s = &p->items;
	struct str id = json_str(json_get(ev, "item_id"));
	struct responses_item *it = find_item(p, ev, id);

	if (!it && s->n && json_absent(json_get(ev, "output_index")) && !id.n)
		it = s->list[s->n - 1];
	if (it && it->type == type)
		return it;
	it = new_item(p, ev, type);
	if (it && id.n && id.n <= it->id.max)
		buf_append(&it->id, id.p, id.n);
	return it;
}

/* ---- begin and end ---- */

static struct str buf_str(const struct buf *b)
{
	return (struct str){b->len ? b->data : NULL, b->len};
}

static void keep_name(struct buf *to, struct str name)
{
	if (!to->len && name.n && name.n <= to->max)
		buf_append(to, name.p, name.n);
}

/*
 * The reply is begun with the first thing in it: that the provider has made a response object
 * promises nothing, and what fails right after it can still be tried elsewhere.
 */
static int begin(struct provider_parser *p)
{
	struct stream_event ev = {
	        .type = STREAM_BEGIN, .id = buf_str(&p->id), .model = buf_str(&p->model)};

	if (p->begun)
		return 0;
	p->begun = true;
	return emitter_emit(&p->items.out, &ev);
}

static void name_response(struct provider_parser *p, const struct json *response)
{
	keep_name(&p->id, json_str(json_get(response, "id")));
	keep_name(&p->model, json_str(json_get(response, "model")));
}

/* The item that entry number n of a response's output is: by id, else by place and type. */
static struct responses_item *item_of_output(
        struct provider_parser *p, const struct json *v, size_t n, enum item_type type)
{
	struct responses_items *s = &p->items;
	struct str id = json_str(json_get(v, "id"));

	for (size_t i = 0; i < s->n && id.n; i++)
		if (s->list[i]->type == type &&
		        str_eq(id, (struct str){s->list[i]->id.data, s->list[i]->id.len}))
			return s->list[i];
	return n < s->n && s->list[n]->type == type ? s->list[n] : NULL;
}

/* The response object has every item once more: what the events left out is taken from there. */
static int read_output(struct provider_parser *p, const struct json *response)
{
	size_t n = 0, seen = p->items.n;
	int r = 0;

	for (const struct json *v = json_first(json_get(response, "output")); v && !r;
	        v = json_next(v), n++) {
		enum item_type type = openai_responses_items_type(json_str(json_get(v, "type")));
		struct responses_item *it = NULL;

		if (!json_is(v, JSON_OBJECT))
			continue;
		if (n < seen || seen == 0)
			it = item_of_output(p, v, n, type);
		else
			it = item_of_output(p, v, SIZE_MAX, type);
		if (!it)
			it = openai_responses_items_add(&p->items, type);
		if (!it)
			return 0;
		r = openai_responses_items_read(&p->items, it, v, true);
	}
	return r;
}

static int finish(struct provider_parser *p, enum finish how)
{
	struct stream_event ev = {.type = STREAM_END};
	int r = begin(p);

	if (!r)
		r = openai_responses_items_pump(&p->items, true);
	if (!r)
		r = emitter_usage(&p->items.out);
	if (r < 0)
		return r;
	ev.finish = how == FINISH_STOP && p->items.n_calls ? FINISH_CALLS : how;
	return emitter_emit(&p->items.out, &ev);
}

static enum finish finish_of(const struct json *response)
{
	struct str reason = json_str(json_get(json_get(response, "incomplete_details"), "reason"));

	return str_is(reason, "content_filter") ? FINISH_FILTER : FINISH_LENGTH;
}

static int fail_json(struct provider_parser *p, const struct json *root)
{
	struct error err = {0};

	openai_chat_error_json(root, &err);
	return emitter_fail(&p->items.out, &err);
}

/* A response object that says how the reply has ended. */
static int read_end(struct provider_parser *p, const struct json *response, struct str status)
{
	int r;

	name_response(p, response);
	openai_responses_usage_read(&p->items.out.usage, json_get(response, "usage"));
	if (str_is(status, "failed"))
		return fail_json(p, response);
	if (str_is(status, "cancelled"))
		return emitter_fail_text(&p->items.out, "the provider cancelled its answer");
	r = read_output(p, response);
	if (r < 0 || p->items.out.ended)
		return r;
	return finish(p, str_is(status, "incomplete") ? finish_of(response) : FINISH_STOP);
}

static bool is_end(struct str status)
{
	static const char *const ends[] = {"completed", "incomplete", "failed", "cancelled", NULL};

	return openai_responses_listed(status, ends);
}

/* ---- events ---- */

static int on_added(struct provider_parser *p, const struct json *ev)
{
	const struct json *v = json_get(ev, "item");
	enum item_type type = openai_responses_items_type(json_str(json_get(v, "type")));
	struct str id = json_str(json_get(v, "id"));
	struct responses_item *it = find_item(p, ev, id);

	if (!json_is(v, JSON_OBJECT))
		return 0;
	/* Announced twice, or late; but servers that number every item 0 mean another one. */
	if (it &&
	        (it->type != type || it->complete ||
	                (id.n && it->id.len && !str_eq(id, (struct str){it->id.data, it->id.len}))))
		it = NULL;
	if (!it)
		it = new_item(p, ev, type);
	return it ? openai_responses_items_read(&p->items, it, v, false) : 0;
}

static int on_done(struct provider_parser *p, const struct json *ev)
{
	const struct json *v = json_get(ev, "item");
	enum item_type type = openai_responses_items_type(json_str(json_get(v, "type")));
	struct responses_item *it = find_item(p, ev, json_str(json_get(v, "id")));

	if (!json_is(v, JSON_OBJECT))
		return 0;
	if (!it || it->type != type)
		it = new_item(p, ev, type);
	return it ? openai_responses_items_read(&p->items, it, v, true) : 0;
}

struct text_rule {
	const char *type; /* of the event */
	enum item_type item;
	enum part_type part;
	const char *index; /* NULL: one text an item */
	const char *key;
	bool whole;
};

static const struct text_rule text_rules[] = {
        {"response.output_text.delta", ITEM_MESSAGE, PART_TEXT, "content_index", "delta", false},
        {"response.output_text.done", ITEM_MESSAGE, PART_TEXT, "content_index", "text", true},
        {"response.refusal.delta", ITEM_MESSAGE, PART_REFUSAL, "content_index", "delta", false},
        {"response.refusal.done", ITEM_MESSAGE, PART_REFUSAL, "content_index", "refusal", true},
        {"response.function_call_arguments.delta", ITEM_CALL, PART_TEXT, NULL, "delta", false},
        {"response.function_call_arguments.done", ITEM_CALL, PART_TEXT, NULL, "arguments", true},
        {"response.reasoning_summary_text.delta", ITEM_REASONING, PART_SUMMARY, "summary_index",
                "delta", false},
        {"response.reasoning_summary_text.done", ITEM_REASONING, PART_SUMMARY, "summary_index",
                "text", true},
        {"response.reasoning_text.delta", ITEM_REASONING, PART_REASONING, "content_index", "delta",
                false},
        {"response.reasoning_text.done", ITEM_REASONING, PART_REASONING, "content_index", "text",
                true},
        /* As Open Responses names them. */
        {"response.reasoning.delta", ITEM_REASONING, PART_REASONING, "content_index", "delta",
                false},
        {"response.reasoning.done", ITEM_REASONING, PART_REASONING, "content_index", "text", true},
};

static const struct text_rule *rule_for(struct str type)
{
	for (size_t i = 0; i < sizeof(text_rules) / sizeof(*text_rules); i++)
		if (str_is(type, text_rules[i].type))
			return &text_rules[i];
	return NULL;
}

static int on_text(struct provider_parser *p, const struct json *ev, const struct text_rule *rule)
{
	const struct json *v = json_get(ev, rule->key);
	struct str text =
	        json_is(v, JSON_OBJECT) && rule->item == ITEM_CALL ? json_raw(v) : json_str(v);
	struct responses_item *it;
	int64_t index = 0;

	if (!text.n)
		return 0; /* nothing may be opened for nothing */
	it = item_for(p, ev, rule->item);
	if (!it)
		return 0;
	if (rule->index && !json_i64(json_get(ev, rule->index), &index))
		index = 0;
	/* The name, where the announcement had none. */
	if (rule->item == ITEM_CALL)
		openai_responses_items_read(&p->items, it, ev, false);
	return rule->whole ? openai_responses_items_whole(&p->items, it, rule->part, index, text)
	                   : openai_responses_items_text(&p->items, it, rule->part, index, text);
}

static bool is_error(const struct json *root)
{
	const struct json *e = json_get(root, "error");

	return str_is(json_str(json_get(root, "type")), "error") ||
	       (!json_absent(e) && !json_is(e, JSON_FALSE));
}

/*
 * An event that only tells that the provider is at work, on a tool of its own that may take
 * minutes: the usage so far is a sign of life for who watches. `keepalive` is one only while such a
 * tool runs.
 */
static int on_progress(struct provider_parser *p, struct str type)
{
	static const char *const ornaments[] = {"response.content_part.added",
	        "response.content_part.done", "response.output_text.annotation.added",
	        "response.reasoning_summary_part.added", "response.reasoning_summary_part.done",
	        NULL};
	struct stream_event ev = {.type = STREAM_USAGE, .usage = p->items.out.usage};

	if (openai_responses_listed(type, ornaments))
		return 0;
	if (!str_starts(type, "response.") && !openai_responses_items_at_work(&p->items))
		return 0;
	return emitter_emit(&p->items.out, &ev);
}

static int on_json(struct provider_parser *p, const struct json *ev, bool named_error)
{
	struct str type = json_str(json_get(ev, "type"));
	const struct json *response = json_get(ev, "response");
	const struct text_rule *rule = rule_for(type);
	struct str status;
	int r;

	if (json_is(response, JSON_OBJECT) && str_starts(type, "response.")) {
		status = json_str(json_get(response, "status"));
		if (!is_end(status) && is_end((struct str){type.p + 9, type.n - 9}))
			status = (struct str){type.p + 9, type.n - 9};
		name_response(p, response);
		return is_end(status) ? read_end(p, response, status) : 0;
	}
	if (is_error(ev) || named_error)
		return fail_json(p, ev);
	r = begin(p);
	if (r < 0)
		return r;
	if (str_is(type, "response.output_item.added"))
		r = on_added(p, ev);
	else if (str_is(type, "response.output_item.done"))
		r = on_done(p, ev);
	else if (rule)
		r = on_text(p, ev, rule);
	else
		r = on_progress(p, type);
	return r < 0 ? r : openai_responses_items_pump(&p->items, false);
}

/* An answer that is no stream: a response object, or an error. */
static int on_whole(struct provider_parser *p, const struct json *root)
{
	struct str status = json_str(json_get(root, "status"));

	if (is_end(status))
		return read_end(p, root, status);
	if (json_is(json_get(root, "output"), JSON_ARRAY) && json_absent(json_get(root, "error")))
		return status.n ? emitter_fail_text(
		                          &p->items.out, "the provider's answer is not finished")
		                : read_end(p, root, STR("completed"));
	return fail_json(p, root);
}

/* One JSON text of the answer. False when it is no object. */
static bool read_json(struct provider_parser *p, struct str text, bool named_error, int *ret)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	const struct json *root;

	if (json_parse(text, TREE_MAX, &doc, NULL) < 0)
		return false;
	root = json_root(doc);
	if (!json_is(root, JSON_OBJECT))
		return false;
	p->f.good++;
	*ret = p->f.mode == FRAMING_JSON &&
	                       !str_starts(json_str(json_get(root, "type")), "response.")
	               ? on_whole(p, root)
	               : on_json(p, root, named_error);
	return true;
}

/* An event's data. Servers that forget the blank line between events give several texts in one. */
static int read_data(struct provider_parser *p, struct str data, bool named_error)
{
	int r = 0;

	if (read_json(p, data, named_error, &r))
		return r;
	if (!data.n || !memchr(data.p, '\n', data.n)) {
		p->f.malformed++;
		return 0;
	}
	while (data.n && r == 0 && !p->items.out.ended) {
		const char *nl = memchr(data.p, '\n', data.n);
		struct str line = {data.p, nl ? (size_t)(nl - data.p) : data.n};

		data.p += line.n + (nl ? 1 : 0);
		data.n -= line.n + (nl ? 1 : 0);
		if (!str_trim(line).n || str_is(str_trim(line), "[DONE]"))
			continue;
		if (!read_json(p, line, named_error, &r))
			p->f.malformed++;
	}
	return r;
}

static int on_event(void *ctx, struct str event, struct str data)
{
	struct provider_parser *p = ctx;

	if (p->items.out.ended || !str_trim(data).n || str_is(str_trim(data), "[DONE]"))
		return 0;
	return read_data(p, data, str_is(event, "error"));
}

/* ---- the seam ---- */

struct provider_parser *openai_responses_parse_open(
        const struct provider_call *pc, struct str content_type)
{
	struct provider_parser *p = mem_alloc(sizeof(*p));

	framing_open(&p->f, EVENT_MAX, EVENT_MAX, on_event, p);
	p->id = (struct buf)BUF_INIT(1024);
	p->model = (struct buf)BUF_INIT(1024);
	return p;
}

struct provider_parser *openai_responses_parse_close(struct provider_parser *p)
{
	if (!p)
		return NULL;
	openai_responses_items_free(&p->items);
	buf_free(&p->id);
	buf_free(&p->model);
	framing_close(&p->f);
	free(p);
	return NULL;
}

size_t openai_responses_parse_malformed(const struct provider_parser *p)
{
	return p->f.malformed;
}

int openai_responses_parse_feed(
        struct provider_parser *p, const void *data, size_t n, stream_fn fn, void *ctx)
{
	const char *fault;
	int r;

	if (!emitter_begin(&p->items.out, fn, ctx))
		return 0;
	fault = framing_feed(&p->f, data, n, &r);
	return fault && !p->items.out.ended ? emitter_fail_text(&p->items.out, fault) : r;
}

int openai_responses_parse_end(
        struct provider_parser *p, const struct error *cut, stream_fn fn, void *ctx)
{
	int r = 0;

	if (!emitter_begin(&p->items.out, fn, ctx))
		return 0;
	if (p->f.mode == FRAMING_JSON && !cut)
		r = read_data(p, (struct str){p->f.body.data, p->f.body.len}, false);
	if (r < 0 || p->items.out.ended)
		return r;
	if (cut)
		return emitter_fail(&p->items.out, cut);
	return emitter_fail_text(&p->items.out, framing_fault(&p->f));
}
