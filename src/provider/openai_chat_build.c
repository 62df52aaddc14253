/*
 * Conversation → the body of POST /chat/completions.
 *
 * Theory of operation. Messages come out in the order in which their first item stands. A reply of
 * the model (all items with one reply number, wherever they stand) becomes one assistant message,
 * and right after it one tool message for each of its calls, in the order of the calls, because
 * that is the only order that Chat Completions allows. Results are found by call id, so it does not
 * matter where the client put them; a call that has none gets an error text, since servers refuse a
 * call without.
 *
 * The messages are a function of public fields, and of opaque state that opens, only. Nothing in
 * them depends on where in a turn we are: that is what keeps prompt caches warm. Keys come in one
 * fixed order.
 *
 * Servers differ in which fields they tolerate. OpenAI's own address gets its newest names; all
 * others the names that every compatible server knows, and nothing that a strict one would refuse.
 *
 * Sorting items by reply first keeps the whole n log n for any replayed history.
 */
#include "provider/openai_chat.h"

#include "base/mem.h"
#include "provider/replies.h"
#include "provider/request.h"

#define BODY_MAX    ((size_t)256 << 20)
#define OPAQUE_MAX  ((size_t)8 << 20)
#define OPAQUE_TREE ((size_t)16 << 20)

static const char NO_RESULT[] =
        "{\"error\":\"There is no result: the call was interrupted before it finished.\"}";

struct builder {
	const struct provider_call *pc;
	const struct conversation *c;
	bool openai;     /* api.openai.com itself */
	bool openrouter; /* openrouter.ai */
	struct json_writer w;
	struct replies replies;
	size_t n_messages;
};

/* ---- content ---- */

static bool is_content(const struct part *p)
{
	return request_is_attachment(p) || (request_is_text(p) && p->text.n > 0);
}

static void write_text_part(struct json_writer *w, struct str text)
{
	jw_object(w);
	jw_kcstr(w, "type", "text");
	jw_kstr(w, "text", text);
	jw_end(w);
}

static void write_image(struct json_writer *w, const struct part *p)
{
	jw_object(w);
	jw_kcstr(w, "type", "image_url");
	jw_key(w, "image_url");
	jw_object(w);
	jw_kstr(w, "url", p->url);
	if (str_is(p->detail, "original")) /* a word of the Responses API only */
		jw_kcstr(w, "detail", "high");
	else if (p->detail.n)
		jw_kstr(w, "detail", p->detail);
	jw_end(w);
	jw_end(w);
}

static int write_file(struct builder *b, const struct part *p, struct error *err)
{
	struct json_writer *w = &b->w;

	if (!p->data.n && (!b->openrouter || !p->url.n))
		return error_param(err, ERR_UNSUPPORTED, "input",
		        "this provider takes a file's content (file_data), not its address "
		        "(file_url)");
	jw_object(w);
	jw_kcstr(w, "type", "file");
	jw_key(w, "file");
	jw_object(w);
	if (p->filename.n)
		jw_kstr(w, "filename", p->filename);
	jw_kstr(w, "file_data", p->data.n ? p->data : p->url);
	jw_end(w);
	jw_end(w);
	return 0;
}

static int write_part(struct builder *b, const struct part *p, struct error *err)
{
	struct json_writer *w = &b->w;

	switch (p->type) {
	case PART_TEXT:
	case PART_REFUSAL:
		write_text_part(w, p->text);
		return 0;
	case PART_IMAGE:
		write_image(w, p);
		return 0;
	case PART_FILE:
		return write_file(b, p, err);
	case PART_AUDIO:
		jw_object(w);
		jw_kcstr(w, "type", "input_audio");
		jw_key(w, "input_audio");
		jw_object(w);
		jw_kstr(w, "data", p->data);
		jw_kstr(w, "format", p->detail);
		jw_end(w);
		jw_end(w);
		return 0;
	case PART_SUMMARY:
	case PART_REASONING:
		return 0;
	}
	return 0;
}

static const char *role_name(const struct builder *b, enum role role)
{
	switch (role) {
	case ROLE_SYSTEM:
		return "system";
	case ROLE_DEVELOPER: /* a role that only OpenAI's own models are trained on */
		return b->openai ? "developer" : "system";
	case ROLE_USER:
		return "user";
	case ROLE_ASSISTANT:
		return "assistant";
	}
	return "user";
}

/* A message of the client's side. One text is a plain string: every server reads that. */
static int write_client_message(struct builder *b, const struct item *it, struct error *err)
{
	struct json_writer *w = &b->w;
	const struct part *only = NULL;
	size_t n = 0;
	int r;

	for (size_t i = 0; i < it->n_parts; i++)
		if (is_content(&it->parts[i])) {
			only = &it->parts[i];
			n++;
		}
	if (n == 0)
		return 0; /* servers refuse a message that says nothing */
	b->n_messages++;
	jw_object(w);
	jw_kcstr(w, "role", role_name(b, it->role));
	jw_key(w, "content");
	if (n == 1 && request_is_text(only)) {
		jw_str(w, only->text);
	} else {
		jw_array(w);
		for (size_t i = 0; i < it->n_parts; i++)
			if (is_content(&it->parts[i]) &&
			        (r = write_part(b, &it->parts[i], err)) < 0)
				return r;
		jw_end(w);
	}
	jw_end(w);
	return 0;
}

/* ---- replies ---- */

/* What the reasoning items of one reply come to. */
struct reasoning {
	enum { SPELLED_NOT, SPELLED_CONTENT, SPELLED_PLAIN, SPELLED_THINKING } spelling;
	struct buf text;
	struct buf details; /* elements, joined by commas */
};

static void append_text(struct buf *out, const struct item *it, enum part_type type)
{
	for (size_t i = 0; i < it->n_parts; i++)
		if (it->parts[i].type == type)
			buf_append(out, it->parts[i].text.p, it->parts[i].text.n);
}

/* Opens an item's sealed state; NULL where there is none, it is not ours or it is damaged. */
static struct json_doc *open_opaque(struct builder *b, const struct item *it, struct buf *bytes)
{
	struct json_doc *doc = NULL;

	if (!provider_state(b->pc, it, bytes))
		return NULL;
	if (json_parse((struct str){bytes->data, bytes->len}, OPAQUE_TREE, &doc, NULL) < 0)
		return NULL;
	return doc;
}

static void collect_reasoning(struct builder *b, const struct item *it, struct reasoning *ret)
{
	struct buf bytes _cleanup_buf_ = BUF_INIT(OPAQUE_MAX);
	struct json_doc *doc _cleanup_json_ = open_opaque(b, it, &bytes);
	struct str field = json_str(json_get(json_root(doc), "field"));
	const struct json *details = json_get(json_root(doc), "details");

	if (!doc)
		return; /* without the state we do not know that this server wants it back */
	if (str_is(field, "reasoning_content"))
		ret->spelling = SPELLED_CONTENT;
	else if (str_is(field, "reasoning"))
		ret->spelling = SPELLED_PLAIN;
	else if (str_is(field, "thinking"))
		ret->spelling = SPELLED_THINKING;
	append_text(&ret->text, it, PART_REASONING);
	for (const struct json *d = json_first(details); d; d = json_next(d)) {
		struct str raw = json_raw(d);

		if (ret->details.len)
			buf_putc(&ret->details, ',');
		buf_append(&ret->details, raw.p, raw.n);
	}
}

static void write_reasoning(struct json_writer *w, const struct reasoning *r)
{
	struct str text = {r->text.data, r->text.len};

	if (text.n && r->spelling == SPELLED_CONTENT)
		jw_kstr(w, "reasoning_content", text);
	if (text.n && r->spelling == SPELLED_PLAIN)
		jw_kstr(w, "reasoning", text);
	if (r->details.len) {
		struct buf array _cleanup_buf_ = BUF_INIT(BODY_MAX);

		buf_putc(&array, '[');
		buf_append(&array, r->details.data, r->details.len);
		buf_putc(&array, ']');
		if (buf_error(&array) == 0)
			jw_kraw(w, "reasoning_details", (struct str){array.data, array.len});
	}
}

/* Mistral keeps its thinking inside the content. */
static void write_thinking_content(struct json_writer *w, struct str thinking, struct str text)
{
	jw_array(w);
	jw_object(w);
	jw_kcstr(w, "type", "thinking");
	jw_key(w, "thinking");
	jw_array(w);
	write_text_part(w, thinking);
	jw_end(w);
	jw_end(w);
	if (text.n)
		write_text_part(w, text);
	jw_end(w);
}

static struct str call_id(const struct item *it)
{
	return it->call.upstream_id.n ? it->call.upstream_id : it->call.public_id;
}

static void write_call(struct builder *b, const struct item *it)
{
	struct json_writer *w = &b->w;
	struct buf bytes _cleanup_buf_ = BUF_INIT(OPAQUE_MAX);
	struct json_doc *doc _cleanup_json_ = open_opaque(b, it, &bytes);
	const struct json *extra = json_get(json_root(doc), "extra_content");

	jw_object(w);
	jw_kstr(w, "id", call_id(it));
	jw_kcstr(w, "type", "function");
	jw_key(w, "function");
	jw_object(w);
	request_write_name(w, b->c, it->call.name, REQUEST_NAME_CHARS, 64);
	request_write_arguments(w, it->call.arguments);
	jw_end(w);
	if (json_is(extra, JSON_OBJECT))
		jw_kraw(w, "extra_content", json_raw(extra));
	jw_end(w);
}

/* The text that the model reads for a call. */
static int result_text(const struct item *call, const struct item *res, struct buf *out)
{
	const struct tool *tool = res && res->result.tool ? res->result.tool : call->call.tool;
	bool first = true;

	if (!res && call->call.error.n && tool) {
		struct result none = {.tool = tool, .error = call->call.error};

		return tool->result_text(&none, out);
	}
	if (!res)
		return buf_puts(out, NO_RESULT);
	if (tool && !res->result.n_parts)
		return tool->result_text(&res->result, out);
	for (size_t i = 0; i < res->result.n_parts; i++) {
		const struct part *p = &res->result.parts[i];
		struct str text = request_is_text(p)         ? p->text
		                  : request_is_attachment(p) ? STR("[attached in the next message]")
		                                             : (struct str){NULL, 0};

		if (!text.n)
			continue;
		if (!first)
			buf_putc(out, '\n');
		first = false;
		buf_append(out, text.p, text.n);
	}
	return buf_error(out);
}

static int write_tool_message(struct builder *b, const struct item *call, struct error *err)
{
	const struct item *res = conversation_call_result(b->c, call);
	struct buf text _cleanup_buf_ = BUF_INIT(BODY_MAX);
	struct json_writer *w = &b->w;
	int r = result_text(call, res, &text);

	if (r < 0)
		return error_set(err, ERR_TOO_LARGE, "a tool result is too large to send");
	b->n_messages++;
	jw_object(w);
	jw_kcstr(w, "role", "tool");
	jw_kstr(w, "tool_call_id", call_id(call));
	jw_kstr(w, "content", (struct str){text.data, text.len});
	jw_end(w);
	return 0;
}

/* Tool messages hold text only, so what a client's tools returned besides follows as one user
 * message. */
static int write_attachments(
        struct builder *b, const struct item *const *calls, size_t n, struct error *err)
{
	struct json_writer *w = &b->w;
	bool open = false;
	int r = 0;

	for (size_t i = 0; i < n; i++) {
		const struct item *res = conversation_call_result(b->c, calls[i]);

		for (size_t k = 0; res && k < res->result.n_parts; k++) {
			if (!request_is_attachment(&res->result.parts[k]))
				continue;
			if (!open) {
				b->n_messages++;
				jw_object(w);
				jw_kcstr(w, "role", "user");
				jw_key(w, "content");
				jw_array(w);
				open = true;
			}
			if ((r = write_part(b, &res->result.parts[k], err)) < 0)
				return r;
		}
	}
	if (open) {
		jw_end(w);
		jw_end(w);
	}
	return 0;
}

static void write_assistant(struct builder *b, struct str text, struct str refusal,
        const struct reasoning *re, const struct item *const *calls, size_t n_calls)
{
	struct json_writer *w = &b->w;

	b->n_messages++;
	jw_object(w);
	jw_kcstr(w, "role", "assistant");
	jw_key(w, "content");
	if (re->spelling == SPELLED_THINKING && re->text.len)
		write_thinking_content(w, (struct str){re->text.data, re->text.len}, text);
	else if (text.n)
		jw_str(w, text);
	else
		jw_null(w);
	if (refusal.n)
		jw_kstr(w, "refusal", refusal);
	write_reasoning(w, re);
	if (n_calls) {
		jw_key(w, "tool_calls");
		jw_array(w);
		for (size_t i = 0; i < n_calls; i++)
			write_call(b, calls[i]);
		jw_end(w);
	}
	jw_end(w);
}

/* One reply of the model: an assistant message and its tool messages. refs: its items in order. */
static int write_reply(struct builder *b, const struct reply_ref *refs, size_t n, struct error *err)
{
	struct buf text _cleanup_buf_ = BUF_INIT(BODY_MAX);
	struct buf refusal _cleanup_buf_ = BUF_INIT(BODY_MAX);
	struct reasoning re = {.text = BUF_INIT(BODY_MAX), .details = BUF_INIT(BODY_MAX)};
	const struct item **calls _cleanup_free_ = mem_array(n, sizeof(*calls));
	size_t n_calls = 0;
	int r = 0;

	for (size_t i = 0; i < n; i++) {
		const struct item *it = b->c->items[refs[i].at];

		if (it->type == ITEM_CALL) {
			calls[n_calls++] = it;
		} else if (it->type == ITEM_REASONING) {
			collect_reasoning(b, it, &re);
		} else {
			append_text(&text, it, PART_TEXT);
			append_text(b->openai ? &refusal : &text, it, PART_REFUSAL);
		}
	}
	if (buf_error(&text) || buf_error(&refusal) || buf_error(&re.text) ||
	        buf_error(&re.details))
		r = error_set(err, ERR_TOO_LARGE, "a reply in the history is too large to send");
	/* A reply of reasoning alone says nothing that a chat server would take. */
	else if (text.len || refusal.len || n_calls)
		write_assistant(b, (struct str){text.data, text.len},
		        (struct str){refusal.data, refusal.len}, &re, calls, n_calls);
	buf_free(&re.text);
	buf_free(&re.details);
	for (size_t i = 0; i < n_calls && r == 0; i++)
		r = write_tool_message(b, calls[i], err);
	return r < 0 ? r : write_attachments(b, calls, n_calls, err);
}

static int write_messages(struct builder *b, struct error *err)
{
	int r = 0;

	jw_key(&b->w, "messages");
	jw_array(&b->w);
	for (size_t i = 0; i < b->c->n_items && r == 0; i++) {
		const struct item *it = b->c->items[i];

		if (it->type == ITEM_RESULT)
			continue;
		if (!replies_holds(it)) {
			r = write_client_message(b, it, err);
		} else {
			struct reply_ref alone;
			size_t n;
			const struct reply_ref *first =
			        replies_begin(&b->replies, b->c, i, &alone, &n);

			if (first)
				r = write_reply(b, first, n, err);
		}
	}
	if (r < 0)
		return r;
	jw_end(&b->w);
	if (!b->n_messages)
		return error_param(
		        err, ERR_INVALID, "input", "the input says nothing: it holds no text");
	return 0;
}

/* ---- tools ---- */

static void write_tool(struct json_writer *w, const struct tool_entry *t)
{
	jw_object(w);
	jw_kcstr(w, "type", "function");
	jw_key(w, "function");
	jw_object(w);
	jw_kstr(w, "name", t->name);
	if (t->kind == TOOL_SERVER) {
		jw_kcstr(w, "description", t->tool->description);
		jw_kraw(w, "parameters", str_of(t->tool->schema));
	} else {
		if (t->description.p)
			jw_kstr(w, "description", t->description);
		if (t->parameters.n)
			jw_kraw(w, "parameters", t->parameters);
		if (t->strict >= 0)
			jw_kbool(w, "strict", t->strict == 1);
	}
	jw_end(w);
	jw_end(w);
}

static int refuse_native(const struct tool_entry *t, size_t at, struct error *err)
{
	char path[64];

	str_format(path, sizeof(path), "tools[%zu].type", at);
	return error_param(err, ERR_UNSUPPORTED, path,
	        "this provider has no tool of type %.*s, nor has this server: "
	        "GET /tools lists what it runs",
	        (int)(t->type.n > 64 ? 64 : t->type.n), t->type.p);
}

/* allowed_tools is not sent: few servers know it, and the turn enforces it. The tools stay declared
 * also when none may be called, since they stand at the front of the prompt. */
static int write_tools(struct builder *b, struct error *err)
{
	const struct upstream_call *call = b->pc->call;
	struct json_writer *w = &b->w;
	enum choice_mode mode = call->tools_off ? CHOICE_NONE : call->choice.mode;

	if (!b->c->n_tools)
		return 0;
	jw_key(w, "tools");
	jw_array(w);
	for (size_t i = 0; i < b->c->n_tools; i++) {
		if (b->c->tools[i].kind == TOOL_NATIVE)
			return refuse_native(&b->c->tools[i], i, err);
		write_tool(w, &b->c->tools[i]);
	}
	jw_end(w);
	switch (mode) {
	case CHOICE_AUTO: /* every server's default */
		break;
	case CHOICE_NONE:
		jw_kcstr(w, "tool_choice", "none");
		break;
	case CHOICE_REQUIRED:
		jw_kcstr(w, "tool_choice", "required");
		break;
	case CHOICE_NAMED:
		jw_key(w, "tool_choice");
		jw_object(w);
		jw_kcstr(w, "type", "function");
		jw_key(w, "function");
		jw_object(w);
		jw_kstr(w, "name", call->choice.name);
		jw_end(w);
		jw_end(w);
		break;
	}
	if (b->c->settings.parallel_tool_calls >= 0)
		jw_kbool(w, "parallel_tool_calls", b->c->settings.parallel_tool_calls != 0);
	return 0;
}

/* ---- the request ---- */

static int write_body(struct builder *b, struct error *err)
{
	struct json_writer *w = &b->w;
	int r;

	jw_object(w);
	jw_kcstr(w, "model", b->pc->target->model);
	r = write_messages(b, err);
	if (r < 0)
		return r;
	r = write_tools(b, err);
	if (r < 0)
		return r;
	r = openai_chat_settings_write(w, &b->c->settings, b->openai, b->openrouter, err);
	if (r < 0)
		return r;
	jw_kbool(w, "stream", true);
	jw_key(w, "stream_options");
	jw_object(w);
	jw_kbool(w, "include_usage", true);
	jw_end(w);
	jw_end(w);
	return jw_done(w) < 0 ? error_set(err, ERR_TOO_LARGE,
	                                "the conversation is too large to send to the provider")
	                      : 0;
}

int openai_chat_build(
        const struct provider_call *pc, struct provider_request *ret, struct error *err)
{
	const struct config_provider *config = pc->target->config;
	struct buf body _cleanup_buf_ = BUF_INIT(BODY_MAX);
	struct builder b = {
	        .pc = pc,
	        .c = pc->conversation,
	        .openai = request_is_to(config->base_url, "https://api.openai.com"),
	        .openrouter = request_is_to(config->base_url, "https://openrouter.ai"),
	};
	int r;

	jw_init(&b.w, &body);
	replies_index(&b.replies, b.c);
	r = write_body(&b, err);
	replies_free(&b.replies);
	if (r < 0)
		return r;
	ret->path = mem_strdup("/chat/completions");
	ret->headers = request_headers("Authorization: Bearer ", config->api_key);
	ret->body = buf_steal(&body, &ret->body_len);
	return 0;
}

int openai_chat_relay(const struct provider_call *pc, bool streamed, struct provider_request *ret,
        struct error *err)
{
	ret->path = mem_strdup("/chat/completions");
	ret->headers = request_headers("Authorization: Bearer ", pc->target->config->api_key);
	return 0;
}
