/*
 * `messages`. One message of the assistant becomes up to three kinds of items: its reasoning, its
 * text, its calls, in that order. What brig does not know in a message is for providers of this
 * dialect, which get the message as it is.
 */
#include "api/chat.h"

#include "api/input.h"
#include "base/mem.h"

enum { MESSAGES_MAX = 200000, CALL_ID_MAX = 1024 };

struct item *chat_messages_add(struct chat_parser *p, enum item_type type, size_t index)
{
	struct item *it = conversation_add(p->conversation, type);

	if (!it) {
		param_fail_memory(&p->in);
		return NULL;
	}
	mem_grow(&p->message_of, &p->cap_message_of, p->n_message_of, sizeof(*p->message_of));
	p->message_of[p->n_message_of++] = (uint32_t)index;
	return it;
}

/* ---- content ---- */

struct part_rule {
	const char *type;
	int (*parse)(
	        struct chat_parser *p, const struct json *v, const char *path, struct part *part);
};

static int part_text(
        struct chat_parser *p, const struct json *v, const char *path, struct part *part)
{
	part->type = PART_TEXT;
	return param_need_str(&p->in, v, path, "text", &part->text);
}

static int part_refusal(
        struct chat_parser *p, const struct json *v, const char *path, struct part *part)
{
	part->type = PART_REFUSAL;
	return param_need_str(&p->in, v, path, "refusal", &part->text);
}

static int part_image(
        struct chat_parser *p, const struct json *v, const char *path, struct part *part)
{
	const struct json *image = json_get(v, "image_url");
	char inner[PARAM_PATH];
	int rc;

	part->type = PART_IMAGE;
	if (json_is(image, JSON_STRING)) /* not in the specification, and often sent */
		return param_need_str(&p->in, v, path, "image_url", &part->url);
	param_join(inner, path, "image_url");
	rc = param_need_container(&p->in, v, path, "image_url", JSON_OBJECT, &image);
	if (!rc)
		rc = param_need_str(&p->in, image, inner, "url", &part->url);
	return rc ? rc : param_str(&p->in, image, inner, "detail", 64, &part->detail);
}

static int part_audio(
        struct chat_parser *p, const struct json *v, const char *path, struct part *part)
{
	return input_audio(&p->in, v, path, part);
}

static int part_file(
        struct chat_parser *p, const struct json *v, const char *path, struct part *part)
{
	const struct json *file;
	char inner[PARAM_PATH];
	int rc;

	part->type = PART_FILE;
	param_join(inner, path, "file");
	rc = param_need_container(&p->in, v, path, "file", JSON_OBJECT, &file);
	if (!rc)
		rc = param_str(&p->in, file, inner, "filename", 0, &part->filename);
	if (!rc)
		rc = param_str(&p->in, file, inner, "file_data", 0, &part->data);
	if (rc)
		return rc;
	if (str_starts(part->data, "http://") || str_starts(part->data, "https://")) {
		part->url = part->data; /* OpenRouter takes an address here */
		part->data = (struct str){NULL, 0};
	}
	if (part->data.p || part->url.p)
		return 0;
	return chat_only_here(p, inner, "file_id",
	        "Files that are stored elsewhere only go to providers that speak chat completions: "
	        "upload them here with POST /files, or send the content itself in 'file_data'.");
}

static const struct part_rule part_rules[] = {
        {"text", part_text},
        {"refusal", part_refusal},
        {"image_url", part_image},
        {"input_audio", part_audio},
        {"file", part_file},
};

static int parse_part(void *ctx, const struct json *v, const char *path, struct part *part)
{
	struct chat_parser *p = ctx;
	struct str type;
	int rc;

	if (!json_is(v, JSON_OBJECT))
		return param_fail_type(&p->in, v, path, NULL, "an object");
	rc = param_need_str(&p->in, v, path, "type", &type);
	if (rc)
		return rc;
	for (size_t i = 0; i < sizeof(part_rules) / sizeof(*part_rules); i++)
		if (str_is(type, part_rules[i].type))
			return part_rules[i].parse(p, v, path, part);
	part->type = PART_TEXT;
	part->text = STR("");
	return chat_only_here(p, path, "type",
	        "Parts of type '%s' only go to providers that speak chat completions. For others "
	        "there are 'text', 'image_url', 'input_audio', 'file' and 'refusal'.",
	        param_show(type).text);
}

/* A string, an array of parts, or nothing. */
static int parse_content(struct chat_parser *p, const struct json *v, const char *path,
        struct part **ret, size_t *ret_n)
{
	*ret_n = 0;
	return json_absent(v) ? 0 : input_content(&p->in, v, path, parse_part, p, ret, ret_n);
}

/* ---- messages of the client's side ---- */

static int parse_plain(
        struct chat_parser *p, const struct json *v, const char *path, size_t index, enum role role)
{
	const struct json *content = json_get(v, "content");
	struct item *it = chat_messages_add(p, ITEM_MESSAGE, index);
	char inner[PARAM_PATH];

	if (!it)
		return -ERR_NOMEM;
	it->role = role;
	if (json_absent(content))
		return param_fail_missing(&p->in, path, "content");
	param_join(inner, path, "content");
	return parse_content(p, content, inner, &it->parts, &it->n_parts);
}

static int parse_system(struct chat_parser *p, const struct json *v, const char *path, size_t index)
{
	return parse_plain(p, v, path, index, ROLE_SYSTEM);
}

static int parse_developer(
        struct chat_parser *p, const struct json *v, const char *path, size_t index)
{
	return parse_plain(p, v, path, index, ROLE_DEVELOPER);
}

static int parse_user(struct chat_parser *p, const struct json *v, const char *path, size_t index)
{
	return parse_plain(p, v, path, index, ROLE_USER);
}

static int parse_result(struct chat_parser *p, const struct json *v, const char *path, size_t index,
        struct str call_id)
{
	struct item *it = chat_messages_add(p, ITEM_RESULT, index);
	char inner[PARAM_PATH];

	if (!it)
		return -ERR_NOMEM;
	it->result.public_id = call_id;
	param_join(inner, path, "content");
	return parse_content(
	        p, json_get(v, "content"), inner, &it->result.parts, &it->result.n_parts);
}

static int parse_tool(struct chat_parser *p, const struct json *v, const char *path, size_t index)
{
	struct str id;
	int rc = input_call_id(&p->in, v, path, "tool_call_id", CALL_ID_MAX, &id);

	return rc ? rc : parse_result(p, v, path, index, id);
}

/* The old result of a function: it belongs to the call before it. */
static int parse_function(
        struct chat_parser *p, const struct json *v, const char *path, size_t index)
{
	if (!p->last_function_id.p)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "role",
		        "Invalid '%s': no function_call stands before this result.", path);
	return parse_result(p, v, path, index, p->last_function_id);
}

/* ---- messages of the assistant ---- */

static int add_call(struct chat_parser *p, const struct json *function, const char *path,
        size_t index, struct str id)
{
	struct item *it = chat_messages_add(p, ITEM_CALL, index);
	int rc;

	if (!it)
		return -ERR_NOMEM;
	it->role = ROLE_ASSISTANT;
	rc = param_need_str(&p->in, function, path, "name", &it->call.name);
	if (!rc)
		rc = param_str(&p->in, function, path, "arguments", 0, &it->call.arguments);
	if (!rc)
		rc = input_check_name(&p->in, path, it->call.name);
	if (rc)
		return rc;
	if (!it->call.arguments.p)
		it->call.arguments = STR("");
	it->call.public_id = id;
	it->call.upstream_id = conversation_upstream_id(id, false);
	for (size_t i = 0; i < p->conversation->n_tools; i++)
		if (str_eq(p->conversation->tools[i].name, it->call.name))
			it->call.entry = &p->conversation->tools[i];
	return 0;
}

/* So that its result finds it. */
static int add_unknown_call(struct chat_parser *p, const char *path, size_t index, struct str id)
{
	struct item *it = chat_messages_add(p, ITEM_CALL, index);

	if (!it)
		return -ERR_NOMEM;
	it->role = ROLE_ASSISTANT;
	it->call = (struct call){
	        .public_id = id, .upstream_id = id, .name = STR("unknown"), .arguments = STR("{}")};
	return chat_only_here(p, path, "type",
	        "Calls that are no function's only go to providers that speak chat completions.");
}

static int parse_call(struct chat_parser *p, const struct json *v, const char *path, size_t index)
{
	const struct json *function = json_get(v, "function");
	char inner[PARAM_PATH];
	struct str id;
	int rc;

	if (!json_is(v, JSON_OBJECT))
		return param_fail_type(&p->in, v, path, NULL, "an object");
	rc = input_call_id(&p->in, v, path, "id", CALL_ID_MAX, &id);
	if (!rc && !function)
		return add_unknown_call(p, path, index, id);
	if (!rc)
		rc = param_need_container(&p->in, v, path, "function", JSON_OBJECT, &function);
	param_join(inner, path, "function");
	return rc ? rc : add_call(p, function, inner, index, id);
}

static int parse_calls(struct chat_parser *p, const struct json *v, const char *path, size_t index)
{
	const struct json *calls, *legacy;
	char inner[PARAM_PATH], made[32];
	size_t i = 0;
	bool ok = true;
	int rc = param_container(&p->in, v, path, "tool_calls", JSON_ARRAY, &calls);

	if (!rc)
		rc = param_container(&p->in, v, path, "function_call", JSON_OBJECT, &legacy);
	for (const struct json *c = json_first(calls); c && !rc; c = json_next(c), i++) {
		char each[PARAM_PATH];

		param_join(inner, path, "tool_calls");
		param_index(each, inner, i);
		rc = parse_call(p, c, each, index);
	}
	if (rc || !legacy)
		return rc;
	/* The same each time the history is sent. */
	str_format(made, sizeof(made), "call_%zu", index);
	p->last_function_id = conversation_copy(p->conversation, str_of(made), &ok);
	if (!ok)
		return param_fail_memory(&p->in);
	param_join(inner, path, "function_call");
	return add_call(p, legacy, inner, index, p->last_function_id);
}

static int parse_refusal(
        struct chat_parser *p, const struct json *v, const char *path, struct item *it)
{
	struct str refusal;
	struct part *parts;
	int rc = param_str(&p->in, v, path, "refusal", 0, &refusal);

	if (rc || refusal.n == 0)
		return rc;
	parts = conversation_parts(p->conversation, it->n_parts + 1);
	if (!parts)
		return param_fail_memory(&p->in);
	if (it->n_parts > 0)
		memcpy(parts, it->parts, it->n_parts * sizeof(*parts));
	parts[it->n_parts] = (struct part){.type = PART_REFUSAL, .text = refusal};
	it->parts = parts;
	it->n_parts++;
	return 0;
}

/* The text. Empty text is none: it stands beside calls. */
static int parse_said(struct chat_parser *p, const struct json *v, const char *path, size_t index)
{
	const struct json *content = json_get(v, "content");
	char inner[PARAM_PATH];
	struct item *it;
	int rc;

	if ((json_absent(content) || (json_is(content, JSON_STRING) && json_str(content).n == 0)) &&
	        json_str(json_get(v, "refusal")).n == 0)
		return 0;
	it = chat_messages_add(p, ITEM_MESSAGE, index);
	if (!it)
		return -ERR_NOMEM;
	it->role = ROLE_ASSISTANT;
	param_join(inner, path, "content");
	rc = parse_content(p, content, inner, &it->parts, &it->n_parts);
	return rc ? rc : parse_refusal(p, v, path, it);
}

/* Entries of reasoning_details that are no reasoning's own, see chat_write_state(). */
static int parse_states(struct chat_parser *p, const struct json *v, const char *path, size_t first)
{
	struct conversation *c = p->conversation;
	int rc = 0;

	for (const struct json *d = json_first(json_get(v, "reasoning_details")); d && !rc;
	        d = json_next(d)) {
		struct str id = json_str(json_get(d, "id"));

		if (id.n == 0 || !json_is(json_get(d, "data"), JSON_STRING))
			continue;
		for (size_t i = first; i < c->n_items && !rc; i++) {
			struct item *it = c->items[i];

			if ((it->type == ITEM_CALL && str_eq(it->call.public_id, id)) ||
			        (it->type == ITEM_MESSAGE && str_is(id, CHAT_STATE_OF_MESSAGE)))
				rc = param_str(&p->in, d, path, "data", 0, &it->opaque);
		}
	}
	return rc;
}

static int parse_assistant(
        struct chat_parser *p, const struct json *v, const char *path, size_t index)
{
	size_t first = p->conversation->n_items;
	int rc = 0;

	if (!json_absent(json_get(v, "audio")))
		rc = chat_only_here(p, path, "audio",
		        "Earlier audio answers only go to providers that speak chat completions.");
	if (!rc)
		rc = chat_reasoning_parse(p, v, path, index);
	if (!rc)
		rc = parse_said(p, v, path, index);
	if (!rc)
		rc = parse_calls(p, v, path, index);
	return rc ? rc : parse_states(p, v, path, first);
}

/* ---- all of them ---- */

static const struct {
	const char *role;
	int (*parse)(struct chat_parser *p, const struct json *v, const char *path, size_t index);
} role_rules[] = {
        {"system", parse_system},
        {"developer", parse_developer},
        {"user", parse_user},
        {"assistant", parse_assistant},
        {"tool", parse_tool},
        {"function", parse_function},
};

static int parse_message(
        struct chat_parser *p, const struct json *v, const char *path, size_t index)
{
	struct str role;
	int rc;

	if (!json_is(v, JSON_OBJECT))
		return param_fail_type(&p->in, v, path, NULL, "an object");
	rc = param_need_str(&p->in, v, path, "role", &role);
	if (rc)
		return rc;
	for (size_t i = 0; i < sizeof(role_rules) / sizeof(*role_rules); i++)
		if (str_is(role, role_rules[i].role))
			return role_rules[i].parse(p, v, path, index);
	return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "role",
	        "Invalid value: '%s'. Supported values are: 'system', 'developer', 'user', "
	        "'assistant', 'tool' and 'function'.",
	        param_show(role).text);
}

/* conversation_cut_replies() has refused a result. Says which message it is. */
static void blame_result(struct chat_parser *p)
{
	const struct conversation *c = p->conversation;
	char path[PARAM_PATH];
	size_t i;

	if (!p->in.err || !input_lone_result(c, &i))
		return;
	param_index(path, "messages", p->message_of[i]);
	param_fail(&p->in, ERR_INVALID, "invalid_value", path, "tool_call_id",
	        "Messages with role 'tool' must be a response to a preceding message with "
	        "'tool_calls': there is none with the id '%s'.",
	        param_show(c->items[i]->result.public_id).text);
}

int chat_messages_parse(struct chat_parser *p)
{
	const struct json *messages;
	char path[PARAM_PATH];
	size_t i = 0;
	int rc = param_need_container(&p->in, p->root, "", "messages", JSON_ARRAY, &messages);

	if (rc)
		return rc;
	if (json_count(messages) == 0)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "messages", NULL,
		        "Invalid 'messages': it holds no message.");
	if (json_count(messages) > MESSAGES_MAX)
		return param_fail(&p->in, ERR_INVALID, "array_above_max_length", "messages", NULL,
		        "Invalid 'messages': at most %d messages.", MESSAGES_MAX);
	for (const struct json *v = json_first(messages); v && !rc; v = json_next(v), i++) {
		param_index(path, "messages", i);
		rc = parse_message(p, v, path, i);
	}
	if (rc)
		return rc;
	rc = conversation_cut_replies(p->conversation, p->in.err);
	if (rc == -ERR_INVALID)
		blame_result(p);
	return rc;
}
