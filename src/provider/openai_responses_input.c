/*
 * The items of a conversation as `input`.
 *
 * Theory of operation. Items come out in the order in which their first one stands. A reply of the
 * model (all items with one reply number, wherever they stand) comes out in one piece, in the order
 * in which the model said it, and right after it the output of each of its calls: a model's
 * reasoning belongs to what follows it in the same reply, and the provider refuses a history that
 * tears them apart. Results are found by call id, so it does not matter where the client put them;
 * a call that has none gets a text that says so.
 *
 * What is written is a function of public fields, and of opaque state that opens, only. Nothing in
 * it depends on where in a turn we are: that is what keeps prompt caches warm.
 *
 * Ids. The provider keeps nothing, so an item's id is of no use to it; OpenAI's own address gets
 * none. Other servers of this dialect demand them, and get one by the item's place in the input.
 * Reasoning always has its own: it belongs to what is encrypted.
 */
#include "provider/openai_responses.h"

#include "base/id.h"
#include "base/mem.h"
#include "provider/replies.h"
#include "provider/request.h"

#define TEXT_MAX    ((size_t)256 << 20)
#define STATE_MAX   ((size_t)48 << 20)
#define TREE_MAX    ((size_t)128 << 20)
#define CALL_ID_MAX 64

static const char NO_RESULT[] =
        "{\"error\":\"There is no result: the call was interrupted before it finished.\"}";

struct builder {
	const struct provider_call *pc;
	const struct conversation *c;
	struct openai_responses_place place;
	bool has_reasoning; /* false: the model knows none, and refuses what another one thought */
	bool native_shell;  /* the provider runs the shell itself, and knows its own items again */
	struct json_writer *w;
	struct replies replies;
	size_t n_items; /* written */
};

/* ---- content ---- */

static bool is_content(const struct part *p)
{
	return request_is_attachment(p) || (request_is_text(p) && p->text.n > 0) || p->raw.n > 0;
}

static void write_image(struct json_writer *w, const struct part *p)
{
	jw_kcstr(w, "type", "input_image");
	jw_kstr(w, "image_url", p->url);
	jw_kstr(w, "detail", p->detail.n ? p->detail : STR("auto"));
}

/* OpenAI takes a file's content as a data URL only; what is bare can hardly be anything but a PDF.
 */
static void write_file_data(struct json_writer *w, struct str data)
{
	static const char prefix[] = "data:application/pdf;base64,";
	struct buf url _cleanup_buf_ = BUF_INIT(TEXT_MAX);

	if (str_starts(data, "data:")) {
		jw_kstr(w, "file_data", data);
		return;
	}
	buf_puts(&url, prefix);
	buf_append(&url, data.p, data.n);
	jw_kstr(w, "file_data", (struct str){url.data, url.len});
}

static void write_file(struct json_writer *w, const struct part *p)
{
	jw_kcstr(w, "type", "input_file");
	if (p->filename.n)
		jw_kstr(w, "filename", p->filename);
	else if (p->data.n)
		jw_kcstr(w, "filename", "file");
	if (p->data.n)
		write_file_data(w, p->data);
	else
		jw_kstr(w, "file_url", p->url);
}

static void write_audio(struct json_writer *w, const struct part *p)
{
	jw_kcstr(w, "type", "input_audio");
	jw_key(w, "input_audio");
	jw_object(w);
	jw_kstr(w, "data", p->data);
	jw_kstr(w, "format", p->detail);
	jw_end(w);
}

/* A part of what the model is told. own: raw texts of the item are this dialect's. */
static void write_input_part(struct json_writer *w, const struct part *p, bool own)
{
	if (own && p->raw.n) {
		openai_responses_copy(w, p->raw);
		return;
	}
	jw_object(w);
	switch (p->type) {
	case PART_IMAGE:
		write_image(w, p);
		break;
	case PART_FILE:
		write_file(w, p);
		break;
	case PART_AUDIO:
		write_audio(w, p);
		break;
	case PART_TEXT:
	case PART_REFUSAL:
	case PART_SUMMARY:
	case PART_REASONING:
		jw_kcstr(w, "type", "input_text");
		jw_kstr(w, "text", p->text);
		break;
	}
	jw_end(w);
}

static bool is_own(const struct item *it)
{
	return it->raw_dialect == DIALECT_OPENAI_RESPONSES;
}

/* One text is a plain string, anything else a list. */
static void write_content(struct json_writer *w, const struct part *parts, size_t n, bool own)
{
	const struct part *only = NULL;
	size_t n_content = 0;

	for (size_t i = 0; i < n; i++)
		if (is_content(&parts[i])) {
			only = &parts[i];
			n_content++;
		}
	if (n_content == 0) {
		jw_cstr(w, "");
		return;
	}
	if (n_content == 1 && request_is_text(only) && !(own && only->raw.n)) {
		jw_str(w, only->text);
		return;
	}
	jw_array(w);
	for (size_t i = 0; i < n; i++)
		if (is_content(&parts[i]))
			write_input_part(w, &parts[i], own);
	jw_end(w);
}

static bool says_something(const struct item *it)
{
	for (size_t i = 0; i < it->n_parts; i++)
		if (is_content(&it->parts[i]))
			return true;
	return false;
}

static const char *role_name(enum role role)
{
	switch (role) {
	case ROLE_SYSTEM:
		return "system";
	case ROLE_DEVELOPER:
		return "developer";
	case ROLE_USER:
	case ROLE_ASSISTANT: /* never here: a reply's */
		break;
	}
	return "user";
}

static void item_begin(struct builder *b, const char *type)
{
	b->n_items++;
	jw_object(b->w);
	jw_kcstr(b->w, "type", type);
}

/* A message of the client's side. */
static void write_client_message(struct builder *b, const struct item *it)
{
	if (!says_something(it))
		return; /* servers refuse a message that says nothing */
	item_begin(b, "message");
	jw_kcstr(b->w, "role", role_name(it->role));
	jw_key(b->w, "content");
	write_content(b->w, it->parts, it->n_parts, is_own(it));
	jw_end(b->w);
}

/* ---- items of a reply ---- */

/* "msg_4": see the top of this file. */
static void write_id(struct builder *b, const char *prefix)
{
	char id[32];

	if (b->place.openai)
		return;
	str_format(id, sizeof(id), "%s%zu", prefix, b->n_items - 1);
	jw_kcstr(b->w, "id", id);
}

static const char *status_of(const struct item *it)
{
	return str_is(it->status, "incomplete") ? "incomplete" : "completed";
}

/* What a content part of the provider's own holds besides its text. */
static void write_part_extras(struct json_writer *w, const struct json *own)
{
	static const char *const told[] = {"type", "text", "refusal", "logprobs", NULL};

	if (own)
		openai_responses_copy_members(w, own, told);
	if (json_get(own, "annotations"))
		return;
	jw_key(w, "annotations");
	jw_array(w);
	jw_end(w);
}

static void write_said(struct json_writer *w, bool refusal, struct str text, const struct json *own)
{
	jw_object(w);
	jw_kcstr(w, "type", refusal ? "refusal" : "output_text");
	jw_kstr(w, refusal ? "refusal" : "text", text);
	if (!refusal)
		write_part_extras(w, own);
	jw_end(w);
}

/* A message of the provider's own is written from its own text, in a turn and in a replay alike. */
static void write_own_content(struct json_writer *w, const struct json *content)
{
	for (const struct json *c = json_first(content); c; c = json_next(c)) {
		struct str refusal = json_str(json_get(c, "refusal"));
		struct str text = refusal.n ? refusal : json_str(json_get(c, "text"));

		if (text.n)
			write_said(w, refusal.n > 0, text, c);
	}
}

static void write_message(struct builder *b, const struct item *it)
{
	static const char *const known[] = {"type", "id", "status", "role", "content", NULL};
	struct json_doc *doc _cleanup_json_ = NULL;
	struct json_writer *w = b->w;
	const struct json *content;

	if (!says_something(it))
		return;
	if (is_own(it) && it->raw.n && json_parse(it->raw, TREE_MAX, &doc, NULL) < 0)
		doc = NULL;
	content = json_get(json_root(doc), "content");
	item_begin(b, "message");
	write_id(b, "msg_");
	jw_kcstr(w, "status", status_of(it));
	jw_kcstr(w, "role", "assistant");
	jw_key(w, "content");
	jw_array(w);
	if (json_is(content, JSON_ARRAY) && json_count(content) > 0)
		write_own_content(w, content);
	else
		for (size_t i = 0; i < it->n_parts; i++)
			if (is_content(&it->parts[i]))
				write_said(w, it->parts[i].type == PART_REFUSAL, it->parts[i].text,
				        NULL);
	jw_end(w);
	openai_responses_copy_members(w, json_root(doc), known);
	jw_end(w);
}

static void write_thoughts(struct json_writer *w, const char *key, const char *type,
        const struct item *it, enum part_type kind)
{
	jw_key(w, key);
	jw_array(w);
	for (size_t i = 0; i < it->n_parts; i++) {
		if (it->parts[i].type != kind)
			continue;
		jw_object(w);
		jw_kcstr(w, "type", type);
		jw_kstr(w, "text", it->parts[i].text);
		jw_end(w);
	}
	jw_end(w);
}

static bool has_part(const struct item *it, enum part_type kind)
{
	for (size_t i = 0; i < it->n_parts; i++)
		if (it->parts[i].type == kind)
			return true;
	return false;
}

/* What a client of this dialect has from elsewhere, not through brig's seal: its own id and text.
 */
static bool write_plain_state(struct builder *b, const struct item *it, struct str bytes)
{
	if (str_starts(it->opaque, PROVIDER_SEALED))
		return false;
	item_begin(b, "reasoning");
	if (it->id.n && it->id.n <= CALL_ID_MAX)
		jw_kstr(b->w, "id", it->id);
	jw_kstr(b->w, "encrypted_content", bytes);
	return true;
}

static bool write_state(struct builder *b, const struct item *it)
{
	static const char *const ours[] = {"type", "status", "summary", "content", NULL};
	struct buf bytes _cleanup_buf_ = BUF_INIT(STATE_MAX);
	struct json_doc *doc _cleanup_json_ = NULL;
	struct str text;

	if (!provider_state(b->pc, it, &bytes))
		return false;
	text = (struct str){bytes.data, bytes.len};
	if (json_parse(text, TREE_MAX, &doc, NULL) < 0 || !json_is(json_root(doc), JSON_OBJECT))
		return write_plain_state(b, it, text);
	if (!json_str(json_get(json_root(doc), "id")).n)
		return false;
	if (b->place.openai && !json_str(json_get(json_root(doc), "encrypted_content")).n)
		return false;
	item_begin(b, "reasoning");
	openai_responses_copy_members(b->w, json_root(doc), ours);
	return true;
}

/*
 * Reasoning whose state does not open is none of this provider's and is left out. So is, at OpenAI,
 * reasoning without its encrypted text: what is not stored there cannot be looked up by its id.
 */
static void write_reasoning(struct builder *b, const struct item *it)
{
	if (!b->has_reasoning || !write_state(b, it))
		return;
	write_thoughts(b->w, "summary", "summary_text", it, PART_SUMMARY);
	if (has_part(it, PART_REASONING))
		write_thoughts(b->w, "content", "reasoning_text", it, PART_REASONING);
	jw_end(b->w);
}

/* The id that a call and its output share. One that is too long for the provider is hashed. */
static void write_call_id(struct json_writer *w, const struct item *it)
{
	struct str id = it->call.upstream_id.n ? it->call.upstream_id : it->call.public_id;
	char hex[65], text[48];
	uint8_t hash[32];

	if (id.n <= CALL_ID_MAX) {
		jw_kstr(w, "call_id", id);
		return;
	}
	id_sha256(id, hash);
	id_hex(hash, 16, hex);
	str_format(text, sizeof(text), "call_%s", hex);
	jw_kcstr(w, "call_id", text);
}

static void write_call(struct builder *b, const struct item *it)
{
	static const char *const known[] = {
	        "type", "id", "status", "call_id", "name", "arguments", NULL};
	struct json_doc *doc _cleanup_json_ = NULL;
	struct json_writer *w = b->w;

	item_begin(b, "function_call");
	write_id(b, "fc_");
	write_call_id(w, it);
	request_write_name(w, b->c, it->call.name, REQUEST_NAME_CHARS, 64);
	request_write_arguments(w, it->call.arguments);
	jw_kcstr(w, "status", "completed");
	if (is_own(it) && it->raw.n && !it->call.tool &&
	        json_parse(it->raw, TREE_MAX, &doc, NULL) == 0)
		openai_responses_copy_members(w, json_root(doc), known);
	jw_end(w);
}

/* The text that the model reads for a call of ours; false: there are the client's parts instead. */
static bool result_text(const struct item *call, const struct item *res, struct buf *out)
{
	const struct tool *tool = res && res->result.tool ? res->result.tool : call->call.tool;

	if (!res && call->call.error.n && tool) {
		struct result none = {.tool = tool, .error = call->call.error};

		tool->result_text(&none, out);
		return true;
	}
	if (!res) {
		buf_puts(out, NO_RESULT);
		return true;
	}
	if (!tool || res->result.n_parts)
		return false;
	tool->result_text(&res->result, out);
	return true;
}

static int write_output(struct builder *b, const struct item *call, struct error *err)
{
	const struct item *res = conversation_call_result(b->c, call);
	struct buf text _cleanup_buf_ = BUF_INIT(TEXT_MAX);
	struct json_writer *w = b->w;

	item_begin(b, "function_call_output");
	write_call_id(w, call);
	jw_key(w, "output");
	if (result_text(call, res, &text)) {
		if (buf_error(&text))
			return error_set(err, ERR_TOO_LARGE, "a tool result is too large to send");
		jw_str(w, (struct str){text.data, text.len});
	} else {
		write_content(w, res->result.parts, res->result.n_parts, is_own(res));
	}
	jw_end(w);
	return 0;
}

/* A call that the provider's own shell, or the client's, has made there: its item and its output's,
 * as they were. */
static const struct item *native_result(const struct builder *b, const struct item *call)
{
	const struct item *res;

	if (!b->native_shell)
		return NULL;
	if (openai_responses_is_hosted(call)) {
		res = conversation_call_result(b->c, call);
		return res && !res->result.error.n && res->result.n_outputs ? res : NULL;
	}
	if (!is_own(call) || !call->raw.n)
		return NULL;
	if (!call->call.tool && !str_is(call->call.name, "local_shell"))
		return NULL;
	res = conversation_call_result(b->c, call);
	return res && is_own(res) && res->raw.n ? res : NULL;
}

static void write_native_call(struct builder *b, const struct item *call, const struct item *res)
{
	b->n_items += 2;
	if (!is_own(call) || !call->raw.n) {
		openai_responses_hosted_write(b->w, call, res);
		return;
	}
	openai_responses_copy(b->w, call->raw);
	openai_responses_copy(b->w, res->raw);
}

static void write_other(struct builder *b, const struct item *it)
{
	if (!is_own(it) || !it->raw.n)
		return;
	b->n_items++;
	openai_responses_copy(b->w, it->raw);
}

static void write_item(struct builder *b, const struct item *it)
{
	const struct item *res = it->type == ITEM_CALL ? native_result(b, it) : NULL;

	if (res)
		write_native_call(b, it, res);
	else if (it->type == ITEM_CALL)
		write_call(b, it);
	else if (it->type == ITEM_REASONING)
		write_reasoning(b, it);
	else if (it->type == ITEM_OTHER)
		write_other(b, it);
	else
		write_message(b, it);
}

static int write_outputs(
        struct builder *b, const struct reply_ref *refs, size_t n, struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		const struct item *it = b->c->items[refs[i].at];

		if (it->type == ITEM_CALL && !native_result(b, it))
			r = write_output(b, it, err);
	}
	return r;
}

/*
 * One reply of the model, and the outputs of its calls. refs: its items in order. An item of the
 * dialect's own behind a call comes after that call's output: its id is the provider's, so nothing
 * tells a replay that it belongs to the same reply, and it must read the same both times.
 */
static int write_reply(struct builder *b, const struct reply_ref *refs, size_t n, struct error *err)
{
	bool saw_call = false;
	size_t begin = 0;
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		const struct item *it = b->c->items[refs[i].at];

		if (it->type == ITEM_OTHER && saw_call) {
			r = write_outputs(b, &refs[begin], i - begin, err);
			begin = i;
			saw_call = false;
		}
		saw_call |= it->type == ITEM_CALL;
		write_item(b, it);
	}
	return r < 0 ? r : write_outputs(b, &refs[begin], n - begin, err);
}

/* ---- all of it ---- */

static bool is_plain_text(const struct item *it)
{
	for (size_t i = 0; i < it->n_parts; i++)
		if (!request_is_text(&it->parts[i]))
			return false;
	return true;
}

/* The first message of the system is `instructions`, which every server of this dialect reads.
 * Alone it stays in the input, since an empty one is refused. Returns the item that the input
 * begins with. */
static size_t write_instructions(struct builder *b)
{
	const struct conversation *c = b->c;
	const struct item *first = c->n_items > 1 ? c->items[0] : NULL;
	struct buf text _cleanup_buf_ = BUF_INIT(TEXT_MAX);

	if (!first || first->type != ITEM_MESSAGE || first->role != ROLE_SYSTEM ||
	        !is_plain_text(first) || !says_something(first))
		return 0;
	for (size_t i = 0; i < first->n_parts; i++) {
		if (text.len && first->parts[i].text.n)
			buf_putc(&text, '\n');
		buf_append(&text, first->parts[i].text.p, first->parts[i].text.n);
	}
	jw_kstr(b->w, "instructions", (struct str){text.data, text.len});
	return 1;
}

static int write_items(struct builder *b, struct error *err)
{
	size_t i = write_instructions(b);
	int r = 0;

	jw_key(b->w, "input");
	jw_array(b->w);
	for (; i < b->c->n_items && r == 0; i++) {
		const struct item *it = b->c->items[i];

		if (it->type == ITEM_RESULT)
			continue;
		if (!replies_holds(it)) {
			write_client_message(b, it);
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
	jw_end(b->w);
	if (!b->n_items)
		return error_param(
		        err, ERR_INVALID, "input", "the input says nothing: it holds no text");
	return 0;
}

int openai_responses_input_write(
        struct json_writer *w, const struct provider_call *pc, struct error *err)
{
	struct builder b = {
	        .pc = pc,
	        .c = pc->conversation,
	        .place = openai_responses_place(pc->target->config),
	        .has_reasoning = openai_responses_reasons(pc->target),
	        .native_shell = provider_runs_shell(pc->target, pc->conversation),
	        .w = w,
	};
	int r;

	replies_index(&b.replies, b.c);
	r = write_items(&b, err);
	replies_free(&b.replies);
	return r;
}
