/*
 * `input`: a string, or items. Items of four kinds come in: messages; reasoning; calls and results
 * of the client's own functions; and what brig itself gave out earlier (openrouter:shell,
 * shell_call, shell_call_output), which is history: nothing of it runs again.
 *
 * A call that brig made is told to the model together with its result, so every one needs a result:
 * one whose item has none (its stream broke off, or the client dropped it) gets an error result
 * that says so.
 */
#include "api/responses.h"

#include "api/input.h"
#include "base/mem.h"

enum { ITEMS_MAX = 200000 };

/* Where an element of the whole input stands in what the client sent. */
static void input_path(const struct responses_parser *p, char out[PARAM_PATH], size_t index)
{
	if (index < p->n_history)
		str_copy(out, PARAM_PATH, STR("input"));
	else
		param_index(out, "input", index - p->n_history);
}

struct item *responses_items_add(struct responses_parser *p, enum item_type type, size_t index)
{
	struct item *it = conversation_add(p->conversation, type);

	if (!it) {
		param_fail_memory(&p->in);
		return NULL;
	}
	mem_grow(&p->input_of, &p->cap_input_of, p->n_input_of, sizeof(*p->input_of));
	p->input_of[p->n_input_of++] = (uint32_t)index;
	return it;
}

/* An item of which more must go back to its provider than is read of it. */
static void keep_raw(struct item *it, const struct json *v)
{
	it->raw = json_raw(v);
	it->raw_dialect = DIALECT_OPENAI_RESPONSES;
}

static bool says_something(const struct json *v)
{
	bool container = json_is(v, JSON_ARRAY) || json_is(v, JSON_OBJECT);

	return !json_absent(v) && (!container || json_count(v) > 0);
}

/* Has it members beside these that say something? */
static bool has_more(const struct json *v, const char *const *known)
{
	for (const struct json *m = json_first(v); m; m = json_next(m)) {
		size_t i = 0;

		while (known[i] && !str_is(json_key(m), known[i]))
			i++;
		if (!known[i] && says_something(m))
			return true;
	}
	return false;
}

/* ---- messages ---- */

struct part_rule {
	const char *type;
	const char
	        *from; /* the roles that may use it: "*" all, "a" the assistant, "u" all others */
	int (*parse)(struct responses_parser *p, const struct json *v, const char *path,
	        struct part *part);
};

static int part_text(
        struct responses_parser *p, const struct json *v, const char *path, struct part *part)
{
	part->type = PART_TEXT;
	return param_need_str(&p->in, v, path, "text", &part->text);
}

static int part_refusal(
        struct responses_parser *p, const struct json *v, const char *path, struct part *part)
{
	part->type = PART_REFUSAL;
	return param_need_str(&p->in, v, path, "refusal", &part->text);
}

/* The ids of files that are stored here are replaced by their content before this. */
static int refuse_file_id(struct responses_parser *p, const struct json *v, const char *path)
{
	struct str id;
	int rc = param_str(&p->in, v, path, "file_id", 0, &id);

	if (rc || !id.p)
		return rc;
	return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "file_id",
	        "'%s' is no file that is stored here: upload it with POST /files, or send the "
	        "content itself.",
	        param_show(id).text);
}

static int part_image(
        struct responses_parser *p, const struct json *v, const char *path, struct part *part)
{
	static const char *const details[] = {"low", "high", "auto", "original", NULL};
	int rc;

	part->type = PART_IMAGE;
	rc = refuse_file_id(p, v, path);
	if (!rc)
		rc = param_need_str(&p->in, v, path, "image_url", &part->url);
	if (!rc && !str_starts(part->url, "http://") && !str_starts(part->url, "https://") &&
	        !str_starts(part->url, "data:"))
		rc = param_fail(&p->in, ERR_INVALID, "invalid_value", path, "image_url",
		        "Invalid '%s.image_url': expected an http, https or data URL.", path);
	return rc ? rc : param_choice(&p->in, v, path, "detail", details, &part->detail);
}

static int part_file(
        struct responses_parser *p, const struct json *v, const char *path, struct part *part)
{
	int rc;

	part->type = PART_FILE;
	rc = refuse_file_id(p, v, path);
	if (!rc)
		rc = param_str(&p->in, v, path, "file_data", 0, &part->data);
	if (!rc)
		rc = param_str(&p->in, v, path, "file_url", 0, &part->url);
	if (!rc)
		rc = param_str(&p->in, v, path, "filename", 0, &part->filename);
	if (!rc && !part->data.p && !part->url.p)
		rc = param_fail_missing(&p->in, path, "file_data");
	return rc;
}

static int part_audio(
        struct responses_parser *p, const struct json *v, const char *path, struct part *part)
{
	return input_audio(&p->in, v, path, part);
}

/* Text is text, whoever calls it how: clients mix the names when they build history by hand. */
static const struct part_rule part_rules[] = {
        {"input_text", "*", part_text},
        {"output_text", "*", part_text},
        {"text", "*", part_text},
        {"refusal", "a", part_refusal},
        {"input_image", "u", part_image},
        {"input_file", "u", part_file},
        {"input_audio", "u", part_audio},
};

struct author {
	struct responses_parser *p;
	bool assistant;
};

static int parse_part(void *ctx, const struct json *v, const char *path, struct part *part)
{
	const struct author *author = ctx;
	struct responses_parser *p = author->p;
	bool assistant = author->assistant;
	struct str type;
	int rc;

	if (!json_is(v, JSON_OBJECT))
		return param_fail_type(&p->in, v, path, NULL, "an object");
	rc = param_need_str(&p->in, v, path, "type", &type);
	if (rc)
		return rc;
	for (size_t i = 0; i < sizeof(part_rules) / sizeof(*part_rules); i++) {
		if (!str_is(type, part_rules[i].type))
			continue;
		if (part_rules[i].from[0] == (assistant ? 'u' : 'a'))
			return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "type",
			        "Invalid value: '%s'. %s cannot hold such a part.",
			        param_show(type).text,
			        assistant ? "A message of the assistant"
			                  : "A message of this role");
		return part_rules[i].parse(p, v, path, part);
	}
	return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "type",
	        "Invalid value: '%s'. Supported values are: 'input_text', 'output_text', "
	        "'refusal', "
	        "'input_image', 'input_file' and 'input_audio'.",
	        param_show(type).text);
}

static int parse_content(struct responses_parser *p, const struct json *v, const char *path,
        bool assistant, struct part **ret, size_t *ret_n)
{
	struct author author = {p, assistant};

	return input_content(&p->in, v, path, parse_part, &author, ret, ret_n);
}

int responses_items_head(
        struct responses_parser *p, const struct json *v, const char *path, struct item *it)
{
	int rc = param_str(&p->in, v, path, "id", 0, &it->id);

	return rc ? rc : param_str(&p->in, v, path, "status", 0, &it->status);
}

/* What was cited, phases of an answer: of the assistant's messages all is kept. */
static void keep_message(struct item *it, const struct json *v)
{
	static const char *const of_message[] = {"type", "id", "status", "role", "content", NULL};
	static const char *const of_part[] = {"type", "text", "refusal", NULL};
	bool more = has_more(v, of_message);

	for (const struct json *c = json_first(json_get(v, "content")); c && !more;
	        c = json_next(c))
		more = has_more(c, of_part);
	if (more && it->role == ROLE_ASSISTANT)
		keep_raw(it, v);
}

static int parse_message(
        struct responses_parser *p, const struct json *v, const char *path, size_t index)
{
	static const struct {
		const char *name;
		enum role role;
	} roles[] = {{"user", ROLE_USER}, {"assistant", ROLE_ASSISTANT}, {"system", ROLE_SYSTEM},
	        {"developer", ROLE_DEVELOPER}};
	static const char *const names[] = {"user", "assistant", "system", "developer", NULL};
	const struct json *content = json_get(v, "content");
	struct item *it = responses_items_add(p, ITEM_MESSAGE, index);
	char inner[PARAM_PATH];
	struct str role;
	int rc;

	if (!it)
		return -ERR_NOMEM;
	rc = param_choice(&p->in, v, path, "role", names, &role);
	if (!rc && !role.p)
		rc = param_fail_missing(&p->in, path, "role");
	if (!rc)
		rc = responses_items_head(p, v, path, it);
	if (rc)
		return rc;
	for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
		if (str_is(role, roles[i].name))
			it->role = roles[i].role;
	param_join(inner, path, "content");
	if (json_absent(content))
		return param_fail_missing(&p->in, path, "content");
	keep_message(it, v);
	return parse_content(
	        p, content, inner, it->role == ROLE_ASSISTANT, &it->parts, &it->n_parts);
}

/* ---- reasoning ---- */

static int parse_thoughts(struct responses_parser *p, const struct json *list, const char *path,
        const char *type, enum part_type kind, struct item *it)
{
	char inner[PARAM_PATH];
	size_t i = 0;
	int rc;

	for (const struct json *v = json_first(list); v; v = json_next(v), i++) {
		struct part *part = &it->parts[it->n_parts];
		struct str given;

		param_index(inner, path, i);
		if (!json_is(v, JSON_OBJECT))
			return param_fail_type(&p->in, v, inner, NULL, "an object");
		rc = param_need_str(&p->in, v, inner, "type", &given);
		if (!rc && !str_is(given, type))
			rc = param_fail(&p->in, ERR_INVALID, "invalid_value", inner, "type",
			        "Invalid value: '%s'. Supported values are: '%s'.",
			        param_show(given).text, type);
		if (!rc)
			rc = param_need_str(&p->in, v, inner, "text", &part->text);
		if (rc)
			return rc;
		part->type = kind;
		it->n_parts++;
	}
	return 0;
}

static int parse_reasoning_item(
        struct responses_parser *p, const struct json *v, const char *path, size_t index)
{
	const struct json *summary, *content;
	struct item *it = responses_items_add(p, ITEM_REASONING, index);
	char inner[PARAM_PATH];
	size_t n;
	int rc;

	if (!it)
		return -ERR_NOMEM;
	rc = responses_items_head(p, v, path, it);
	if (!rc)
		rc = param_container(&p->in, v, path, "summary", JSON_ARRAY, &summary);
	if (!rc)
		rc = param_container(&p->in, v, path, "content", JSON_ARRAY, &content);
	if (!rc)
		rc = param_str(&p->in, v, path, "encrypted_content", 0, &it->opaque);
	if (rc)
		return rc;
	n = json_count(summary) + json_count(content);
	it->parts = conversation_parts(p->conversation, n ? n : 1);
	if (!it->parts)
		return param_fail_memory(&p->in);
	param_join(inner, path, "summary");
	rc = parse_thoughts(p, summary, inner, "summary_text", PART_SUMMARY, it);
	param_join(inner, path, "content");
	return rc ? rc : parse_thoughts(p, content, inner, "reasoning_text", PART_REASONING, it);
}

/* ---- the client's functions ---- */

int responses_items_call_id(
        struct responses_parser *p, const struct json *v, const char *path, struct str *ret)
{
	return input_call_id(&p->in, v, path, "call_id", RESPONSES_CALL_ID_MAX, ret);
}

void responses_items_set_call_id(struct responses_parser *p, struct item *call, struct str id)
{
	call->call.public_id = id;
	call->call.upstream_id = conversation_upstream_id(id, p->conversation->has_server_tool);
}

static int parse_function_call(
        struct responses_parser *p, const struct json *v, const char *path, size_t index)
{
	static const char *const known[] = {
	        "type", "id", "status", "call_id", "name", "arguments", NULL};
	struct item *it = responses_items_add(p, ITEM_CALL, index);
	struct str id;
	int rc;

	if (!it)
		return -ERR_NOMEM;
	rc = responses_items_head(p, v, path, it);
	if (!rc)
		rc = responses_items_call_id(p, v, path, &id);
	if (!rc)
		rc = param_need_str(&p->in, v, path, "name", &it->call.name);
	if (!rc)
		rc = param_need_str(&p->in, v, path, "arguments", &it->call.arguments);
	if (!rc)
		rc = input_check_name(&p->in, path, it->call.name);
	if (rc)
		return rc;
	responses_items_set_call_id(p, it, id);
	if (has_more(v, known))
		keep_raw(it, v);
	for (size_t i = 0; i < p->conversation->n_tools; i++) {
		const struct tool_entry *t = &p->conversation->tools[i];

		if (t->kind == TOOL_FUNCTION && str_eq(t->name, it->call.name))
			it->call.entry = t;
	}
	return 0;
}

static int parse_function_output(
        struct responses_parser *p, const struct json *v, const char *path, size_t index)
{
	const struct json *output = json_get(v, "output");
	struct item *it = responses_items_add(p, ITEM_RESULT, index);
	char inner[PARAM_PATH];
	int rc;

	if (!it)
		return -ERR_NOMEM;
	rc = responses_items_head(p, v, path, it);
	if (!rc)
		rc = responses_items_call_id(p, v, path, &it->result.public_id);
	if (!rc && json_absent(output))
		rc = param_fail_missing(&p->in, path, "output");
	if (rc)
		return rc;
	param_join(inner, path, "output");
	return parse_content(p, output, inner, false, &it->result.parts, &it->result.n_parts);
}

/* ---- what only OpenAI's own API knows ---- */

static bool is_native_item(struct str type)
{
	static const char *const types[] = {"additional_tools", "apply_patch_call",
	        "apply_patch_call_output", "code_interpreter_call", "compaction",
	        "compaction_trigger", "computer_call", "computer_call_output",
	        "configuration_update", "custom_tool_call", "custom_tool_call_output",
	        "file_search_call", "image_generation_call", "mcp_approval_request",
	        "mcp_approval_response", "mcp_call", "mcp_list_tools", "program", "program_output",
	        "tool_search_call", "tool_search_output", "web_search_call", NULL};

	for (size_t i = 0; types[i]; i++)
		if (str_is(type, types[i]))
			return true;
	return false;
}

static int parse_native_item(struct responses_parser *p, const struct json *v, const char *path,
        size_t index, struct str type)
{
	struct item *it = responses_items_add(p, ITEM_OTHER, index);
	int rc;

	if (!it)
		return -ERR_NOMEM;
	keep_raw(it, v);
	rc = responses_items_head(p, v, path, it);
	if (rc)
		return rc;
	return responses_only_here(p, path, "type",
	        "Items of type '%s' are OpenAI's own, and the provider of this model does not "
	        "speak "
	        "OpenAI's Responses API.",
	        param_show(type).text);
}

/* ---- all of it ---- */

static int refuse_reference(
        struct responses_parser *p, const struct json *v, const char *path, size_t index)
{
	(void)v;
	(void)index;
	return param_fail(&p->in, ERR_UNSUPPORTED, "unsupported_value", path, "type",
	        "An 'item_reference' cannot be resolved here: send the item itself.");
}

static const struct {
	const char *type;
	int (*parse)(
	        struct responses_parser *p, const struct json *v, const char *path, size_t index);
} item_rules[] = {
        {"message", parse_message},
        {"function_call", parse_function_call},
        {"function_call_output", parse_function_output},
        {"reasoning", parse_reasoning_item},
        {"openrouter:shell", responses_history_shell},
        {"shell_call", responses_history_call},
        {"shell_call_output", responses_history_output},
        {"local_shell_call", responses_history_local_call},
        {"local_shell_call_output", responses_history_local_output},
        {"item_reference", refuse_reference},
};

static int parse_item(
        struct responses_parser *p, const struct json *v, const char *path, size_t index)
{
	struct str type;
	int rc;

	if (!json_is(v, JSON_OBJECT))
		return param_fail_type(&p->in, v, path, NULL, "an object");
	rc = param_str(&p->in, v, path, "type", 0, &type);
	if (rc)
		return rc;
	if (!type.p && json_absent(json_get(v, "role")) && json_get(v, "id"))
		return refuse_reference(p, v, path, index);
	if (!type.p)
		return parse_message(p, v, path, index);
	for (size_t i = 0; i < sizeof(item_rules) / sizeof(*item_rules); i++)
		if (str_is(type, item_rules[i].type))
			return item_rules[i].parse(p, v, path, index);
	if (str_is(type, "compaction") && responses_compact_is_ours(v))
		return responses_compact_item(p, v, path, index);
	if (is_native_item(type))
		return parse_native_item(p, v, path, index, type);
	return param_fail(&p->in, ERR_UNSUPPORTED, "unsupported_value", path, "type",
	        "Items of type '%s' are not offered. This version takes 'message', 'reasoning', "
	        "'function_call', 'function_call_output', 'openrouter:shell', 'shell_call' and "
	        "'shell_call_output'.",
	        param_show(type).text);
}

static int parse_instructions(struct responses_parser *p)
{
	struct str text;
	struct item *it;
	int rc = param_str(&p->in, p->root, "", "instructions", 0, &text);

	if (rc)
		return rc;
	if (text.n == 0)
		return 0; /* some servers refuse an empty message */
	it = responses_items_add(p, ITEM_MESSAGE, 0);
	if (!it)
		return -ERR_NOMEM;
	it->role = ROLE_SYSTEM;
	it->parts = conversation_parts(p->conversation, 1);
	if (!it->parts)
		return param_fail_memory(&p->in);
	it->parts[0] = (struct part){.type = PART_TEXT, .text = text};
	it->n_parts = 1;
	return 0;
}

static int parse_list(struct responses_parser *p, const struct json *input)
{
	char path[PARAM_PATH];
	size_t i = 0;
	int rc = 0;

	if (json_count(input) == 0)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "input", NULL,
		        "Invalid 'input': it holds no item.");
	if (json_count(input) > ITEMS_MAX)
		return param_fail(&p->in, ERR_INVALID, "array_above_max_length", "input", NULL,
		        "Invalid 'input': at most %d items.", ITEMS_MAX);
	for (const struct json *v = json_first(input); v && !rc; v = json_next(v), i++) {
		input_path(p, path, i);
		rc = parse_item(p, v, path, i);
	}
	return rc;
}

static int parse_input(struct responses_parser *p)
{
	const struct json *input = json_get(p->root, "input");
	struct item *it;

	if (json_absent(input))
		return param_fail_missing(&p->in, "", "input");
	if (json_is(input, JSON_ARRAY))
		return parse_list(p, input);
	if (!json_is(input, JSON_STRING))
		return param_fail_type(&p->in, input, "", "input", "a string or an array");
	it = responses_items_add(p, ITEM_MESSAGE, 0);
	if (!it)
		return -ERR_NOMEM;
	it->role = ROLE_USER;
	return parse_content(p, input, "input", false, &it->parts, &it->n_parts);
}

/* ---- calls and results belong together ---- */

static int cut(struct responses_parser *p)
{
	int rc = conversation_cut_replies(p->conversation, p->in.err);
	char path[PARAM_PATH];
	size_t i;

	if (rc == -ERR_INVALID && p->in.err && input_lone_result(p->conversation, &i)) {
		input_path(p, path, p->input_of[i]);
		param_join(path, path, "call_id");
		str_copy(p->in.err->param, sizeof(p->in.err->param), str_of(path));
	}
	return rc;
}

static int refuse_open_call(void *ctx, size_t i)
{
	struct responses_parser *p = ctx;
	struct str id = p->conversation->items[i]->call.public_id;
	char path[PARAM_PATH];

	input_path(p, path, p->input_of[i]);
	return param_fail(&p->in, ERR_INVALID, NULL, path, "call_id",
	        "No tool output found for function call %s.", param_show(id).text);
}

static struct item *add_no_result(void *ctx, size_t i)
{
	struct responses_parser *p = ctx;
	const struct item *call = p->conversation->items[i];
	struct item *result = responses_items_add(p, ITEM_RESULT, p->input_of[i]);

	if (result)
		responses_history_no_result(result, call->status);
	return result;
}

int responses_items_parse(struct responses_parser *p)
{
	int rc = parse_instructions(p);

	if (!rc)
		rc = parse_input(p);
	if (!rc)
		rc = cut(p);
	return rc ? rc : input_complete_calls(&p->in, refuse_open_call, add_no_result, p);
}
