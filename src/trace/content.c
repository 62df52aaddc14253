/*
 * Theory of operation
 *
 * A record keeps the request as it came, in the dialect of its api; the four dialects differ in
 * where messages stand and in what a part is called. For each there is one function that writes the
 * parts of one message or item; what they have in common (a text, a call, its result, reasoning, or
 * else only the type's name) is written by the functions at the top. Requests were checked by their
 * api before they were recorded, but nothing here relies on that: what is not as expected is left
 * out.
 */
#include "trace/content.h"

#define CONTENT_MAX                                                                                \
	((size_t)32 << 20) /* of a tree, of a text; a record's request is 4 MiB at most */

/* ---- parts ---- */

static void part_begin(struct json_writer *w, const char *type)
{
	jw_object(w);
	jw_kcstr(w, "type", type);
}

static void part_text(struct json_writer *w, const char *type, struct str text)
{
	part_begin(w, type);
	jw_kstr(w, "content", text);
	jw_end(w);
}

/* What is not text: its type, and none of its bytes. */
static void part_other(struct json_writer *w, struct str type)
{
	jw_object(w);
	jw_kstr(w, "type", type.n > 0 && type.n <= 64 ? type : STR("generic"));
	jw_end(w);
}

/* arguments: an object, or a text that holds one. */
static void part_call(struct json_writer *w, const struct json *id, const struct json *name,
        const struct json *arguments)
{
	part_begin(w, "tool_call");
	if (json_is(id, JSON_STRING))
		jw_kstr(w, "id", json_str(id));
	jw_kstr(w, "name", json_str(name));
	if (json_is(arguments, JSON_STRING))
		jw_kstr(w, "arguments", json_str(arguments));
	else if (!json_absent(arguments))
		jw_kraw(w, "arguments", json_raw(arguments));
	jw_end(w);
}

/* The texts of a string or of a list of parts that have `text`. */
static void texts_write(struct buf *out, const struct json *v)
{
	if (json_is(v, JSON_STRING))
		buf_append(out, json_str(v).p, json_str(v).n);
	if (!json_is(v, JSON_ARRAY))
		return;
	for (const struct json *c = json_first(v); c; c = json_next(c)) {
		struct str text = json_str(json_get(c, "text"));

		if (text.n > 0 && out->len > 0)
			buf_putc(out, '\n');
		buf_append(out, text.p, text.n);
	}
}

static void part_response(struct json_writer *w, const struct json *id, const struct json *result)
{
	_cleanup_buf_ struct buf text = BUF_INIT(CONTENT_MAX);

	part_begin(w, "tool_call_response");
	if (json_is(id, JSON_STRING))
		jw_kstr(w, "id", json_str(id));
	if (json_is(result, JSON_OBJECT)) {
		jw_kraw(w, "response", json_raw(result));
	} else {
		texts_write(&text, result);
		jw_kstr(w, "response", (struct str){text.data, text.len});
	}
	jw_end(w);
}

static struct str type_of(const struct json *v)
{
	return json_str(json_get(v, "type"));
}

/* A string, or a list of parts by their type: as Responses, Chat and Messages have it. */
static void parts_write(struct json_writer *w, const struct json *content)
{
	if (json_is(content, JSON_STRING))
		part_text(w, "text", json_str(content));
	if (!json_is(content, JSON_ARRAY))
		return;
	for (const struct json *c = json_first(content); c; c = json_next(c)) {
		struct str type = type_of(c);

		if (json_is(json_get(c, "text"), JSON_STRING))
			part_text(w, "text", json_str(json_get(c, "text")));
		else if (json_is(json_get(c, "thinking"), JSON_STRING))
			part_text(w, "reasoning", json_str(json_get(c, "thinking")));
		else if (str_is(type, "tool_use") || str_is(type, "server_tool_use"))
			part_call(w, json_get(c, "id"), json_get(c, "name"), json_get(c, "input"));
		else if (str_ends(type, "tool_result"))
			part_response(w, json_get(c, "tool_use_id"), json_get(c, "content"));
		else
			part_other(w, type);
	}
}

static void message_begin(struct json_writer *w, struct str role)
{
	jw_object(w);
	jw_kstr(w, "role", str_is(role, "model") ? STR("assistant") : role);
	jw_key(w, "parts");
	jw_array(w);
}

static void message_end(struct json_writer *w)
{
	jw_end(w);
	jw_end(w);
}

/* ---- the dialects ---- */

static void chat_message(struct json_writer *w, const struct json *m)
{
	const struct json *calls = json_get(m, "tool_calls");
	struct str role = json_str(json_get(m, "role"));

	message_begin(w, role);
	if (str_is(role, "tool"))
		part_response(w, json_get(m, "tool_call_id"), json_get(m, "content"));
	else
		parts_write(w, json_get(m, "content"));
	for (const struct json *c = json_first(calls); c; c = json_next(c)) {
		const struct json *f = json_get(c, "function");

		part_call(w, json_get(c, "id"), json_get(f, "name"), json_get(f, "arguments"));
	}
	message_end(w);
}

static void anthropic_message(struct json_writer *w, const struct json *m)
{
	message_begin(w, json_str(json_get(m, "role")));
	parts_write(w, json_get(m, "content"));
	message_end(w);
}

static void gemini_message(struct json_writer *w, const struct json *m)
{
	struct str role = json_str(json_get(m, "role"));
	const struct json *parts = json_get(m, "parts");

	message_begin(w, role.n > 0 ? role : STR("user"));
	for (const struct json *c = json_first(parts); c; c = json_next(c)) {
		const struct json *call = json_get(c, "functionCall");
		const struct json *result = json_get(c, "functionResponse");
		struct str text = json_str(json_get(c, "text"));

		if (json_is(json_get(c, "text"), JSON_STRING))
			part_text(
			        w, json_bool(json_get(c, "thought")) ? "reasoning" : "text", text);
		else if (json_is(call, JSON_OBJECT))
			part_call(w, json_get(call, "id"), json_get(call, "name"),
			        json_get(call, "args"));
		else if (json_is(result, JSON_OBJECT))
			part_response(w, json_get(result, "id"), json_get(result, "response"));
		else
			part_other(w, json_key(json_first(c)));
	}
	message_end(w);
}

static void responses_item(struct json_writer *w, const struct json *item)
{
	struct str type = type_of(item), role = json_str(json_get(item, "role"));

	if (str_is(type, "function_call") || str_is(type, "function_call_output")) {
		bool call = str_is(type, "function_call");

		message_begin(w, call ? STR("assistant") : STR("tool"));
		if (call)
			part_call(w, json_get(item, "call_id"), json_get(item, "name"),
			        json_get(item, "arguments"));
		else
			part_response(w, json_get(item, "call_id"), json_get(item, "output"));
	} else if (str_is(type, "reasoning")) {
		message_begin(w, STR("assistant"));
		for (const struct json *c = json_first(json_get(item, "summary")); c;
		        c = json_next(c))
			part_text(w, "reasoning", json_str(json_get(c, "text")));
	} else if (role.n > 0) {
		message_begin(w, role);
		parts_write(w, json_get(item, "content"));
	} else {
		message_begin(w, str_ends(type, "_output") ? STR("tool") : STR("assistant"));
		part_other(w, type);
	}
	message_end(w);
}

static void user_text(struct json_writer *w, const struct json *text)
{
	message_begin(w, STR("user"));
	part_text(w, "text", json_str(text));
	message_end(w);
}

struct dialect_shape {
	const char *api;
	const char *messages, *system;
	void (*write)(struct json_writer *w, const struct json *message);
};
static const struct dialect_shape shapes[] = {
        {"responses", "input", "instructions", responses_item},
        {"chat", "messages", NULL, chat_message},
        {"messages", "messages", "system", anthropic_message},
        {"gemini", "contents", "systemInstruction", gemini_message},
};

static const struct dialect_shape *shape_of(const struct content *c)
{
	for (size_t i = 0; c->request && c->api && i < sizeof(shapes) / sizeof(*shapes); i++)
		if (strcmp(shapes[i].api, c->api) == 0)
			return &shapes[i];
	return NULL;
}

/* ---- the whole ---- */

void content_open(struct content *c, const struct record *r)
{
	*c = (struct content){.api = r->api, .finish = r->finish};
	if (r->request && json_parse(str_of(r->request), CONTENT_MAX, &c->request_doc, NULL) == 0)
		c->request = json_root(c->request_doc);
	if (r->answer && json_parse(str_of(r->answer), CONTENT_MAX, &c->answer_doc, NULL) == 0)
		c->answer = json_root(c->answer_doc);
}

void content_close(struct content *c)
{
	c->request_doc = json_doc_free(c->request_doc);
	c->answer_doc = json_doc_free(c->answer_doc);
	c->request = c->answer = NULL;
}

/* Takes back what did not fit. */
static bool finish(struct buf *out, const struct json_writer *w, size_t mark)
{
	if (jw_done(w) == 0)
		return true;
	if (out->len > mark)
		out->len = mark;
	return false;
}

bool content_system(const struct content *c, struct buf *out)
{
	const struct dialect_shape *shape = shape_of(c);
	const struct json *v = shape && shape->system ? json_get(c->request, shape->system) : NULL;
	struct json_writer w;
	size_t mark = out->len;

	if (shape && strcmp(shape->api, "gemini") == 0) {
		if (!v)
			v = json_get(c->request, "system_instruction");
		v = json_get(v, "parts");
	}
	if (json_absent(v) || (json_is(v, JSON_ARRAY) && json_count(v) == 0))
		return false;
	jw_init(&w, out);
	jw_array(&w);
	parts_write(&w, v);
	jw_end(&w);
	return finish(out, &w, mark);
}

bool content_input(const struct content *c, struct buf *out)
{
	const struct dialect_shape *shape = shape_of(c);
	const struct json *v = shape ? json_get(c->request, shape->messages) : NULL;
	struct json_writer w;
	size_t mark = out->len;

	if (!json_is(v, JSON_ARRAY) && !json_is(v, JSON_STRING))
		return false;
	jw_init(&w, out);
	jw_array(&w);
	if (json_is(v, JSON_STRING))
		user_text(&w, v);
	for (const struct json *m = json_is(v, JSON_ARRAY) ? json_first(v) : NULL; m;
	        m = json_next(m))
		shape->write(&w, m);
	jw_end(&w);
	return finish(out, &w, mark);
}

/* The conventions' names for how an answer ended. */
static const char *finish_reason(const char *ours)
{
	if (!ours)
		return "error";
	return strcmp(ours, "tool_calls") == 0 ? "tool_call" : ours;
}

bool content_output(const struct content *c, struct buf *out)
{
	const struct json *text = json_get(c->answer, "completion");
	const struct json *reasoning = json_get(c->answer, "reasoning");
	struct json_writer w;
	size_t mark = out->len;

	if (!json_is(text, JSON_STRING))
		return false;
	jw_init(&w, out);
	jw_array(&w);
	jw_object(&w);
	jw_kcstr(&w, "role", "assistant");
	jw_key(&w, "parts");
	jw_array(&w);
	if (json_is(reasoning, JSON_STRING))
		part_text(&w, "reasoning", json_str(reasoning));
	if (json_str(text).n > 0)
		part_text(&w, "text", json_str(text));
	jw_end(&w);
	jw_kcstr(&w, "finish_reason", finish_reason(c->finish));
	jw_end(&w);
	jw_end(&w);
	return finish(out, &w, mark);
}

/* ---- texts alone ---- */

static void add_line(struct buf *out, struct str text)
{
	if (out->len > 0)
		buf_putc(out, '\n');
	buf_append(out, text.p, text.n);
}

/* The contents and responses of a list of parts, or of messages with parts. */
static void lines_write(struct buf *out, const struct json *list)
{
	for (const struct json *m = json_first(list); m; m = json_next(m)) {
		const struct json *parts = json_get(m, "parts");

		for (const struct json *p = parts ? json_first(parts) : m; p;
		        p = parts ? json_next(p) : NULL) {
			const struct json *text = json_get(p, "content");

			if (!text)
				text = json_get(p, "response");
			if (json_is(text, JSON_STRING))
				add_line(out, json_str(text));
		}
	}
}

static void lines_of(const struct buf *json, struct buf *out)
{
	_cleanup_json_ struct json_doc *doc = NULL;

	if (json_parse((struct str){json->data, json->len}, CONTENT_MAX, &doc, NULL) == 0)
		lines_write(out, json_root(doc));
}

bool content_input_text(const struct record *r, struct buf *out)
{
	_cleanup_buf_ struct buf system = BUF_INIT(CONTENT_MAX);
	_cleanup_buf_ struct buf input = BUF_INIT(CONTENT_MAX);
	struct content c;
	bool found;

	content_open(&c, r);
	found = content_system(&c, &system);
	if (found)
		lines_of(&system, out);
	if (content_input(&c, &input)) {
		lines_of(&input, out);
		found = true;
	}
	content_close(&c);
	return found && buf_error(out) == 0;
}

bool content_output_text(const struct record *r, struct buf *out)
{
	struct content c;
	const struct json *text;
	bool found;

	content_open(&c, r);
	text = json_get(c.answer, "completion");
	found = json_is(text, JSON_STRING);
	if (found)
		buf_append(out, json_str(text).p, json_str(text).n);
	content_close(&c);
	return found && buf_error(out) == 0;
}
