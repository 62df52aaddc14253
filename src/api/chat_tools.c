/*
 * `tools` and `tool_choice`, and their forerunners `functions` and `function_call`. Functions are
 * the client's. This API runs no server tool: an entry that asks for one is refused by name.
 */
#include "api/chat.h"

#include "api/tools.h"

enum { TOOLS_MAX = 1024, FUNCTION_NAME_MAX = 256 };

static bool is_shell(struct str type)
{
	return str_is(type, "openrouter:shell") || str_is(type, "brig:shell") ||
	       str_is(type, "shell") || str_is(type, "local_shell") || tool_find(type);
}

static bool is_bash(struct str type)
{
	return str_is(type, "openrouter:bash") || str_is(type, "brig:bash") ||
	       str_is(type, "bash") || str_starts(type, "bash_");
}

/* 0: no server tool's type. */
static int refuse_server_tool(struct chat_parser *p, const char *path, struct str type)
{
	struct param_shown shown = param_show(type);

	if (is_bash(type))
		return param_fail(&p->in, ERR_UNSUPPORTED, "unsupported_value", path, "type",
		        "The tool type '%s' is not supported on the Chat Completions API. Use it "
		        "on the Messages API (POST /messages).",
		        shown.text);
	if (is_shell(type))
		return param_fail(&p->in, ERR_UNSUPPORTED, "unsupported_value", path, "type",
		        "The tool type '%s' is not supported on the Chat Completions API. Use it "
		        "on the Responses API (POST /responses) or the Messages API (POST "
		        "/messages).",
		        shown.text);
	return 0;
}

static int parse_function(
        struct chat_parser *p, const struct json *function, const char *path, struct tool_entry *t)
{
	const struct json *parameters;
	int rc;

	t->kind = TOOL_FUNCTION;
	rc = param_need_str(&p->in, function, path, "name", &t->name);
	if (!rc && (t->name.n == 0 || t->name.n > FUNCTION_NAME_MAX))
		rc = param_fail(&p->in, ERR_INVALID, "invalid_value", path, "name",
		        "Invalid '%s.name': a function's name has 1 to %d characters.", path,
		        FUNCTION_NAME_MAX);
	if (!rc && tools_named(p->conversation, t->name))
		rc = param_fail(&p->in, ERR_INVALID, "invalid_value", path, "name",
		        "Two tools have the name '%s'.", param_show(t->name).text);
	if (!rc)
		rc = param_str(&p->in, function, path, "description", 0, &t->description);
	if (!rc)
		rc = param_container(
		        &p->in, function, path, "parameters", JSON_OBJECT, &parameters);
	if (!rc)
		rc = param_bool(&p->in, function, path, "strict", &t->strict);
	if (!rc && parameters)
		t->parameters = json_raw(parameters);
	return rc;
}

static int parse_tool(
        struct chat_parser *p, const struct json *entry, size_t index, struct tool_entry *t)
{
	const struct json *function;
	char path[PARAM_PATH], inner[PARAM_PATH];
	int rc;

	param_index(path, "tools", index);
	if (!json_is(entry, JSON_OBJECT))
		return param_fail_type(&p->in, entry, path, NULL, "an object");
	*t = (struct tool_entry){.strict = -1, .raw = json_raw(entry)};
	rc = param_need_str(&p->in, entry, path, "type", &t->type);
	if (!rc)
		rc = refuse_server_tool(p, path, t->type);
	if (!rc && tools_executes_code(t->type))
		rc = tools_check_region(&p->in, p->config, "This server", path, "type");
	if (rc)
		return rc;
	if (!str_is(t->type, "function")) {
		t->kind = TOOL_NATIVE;
		return chat_only_here(p, path, "type",
		        "The tool type '%s' is not offered: this server hands calls of 'function' "
		        "tools to the client. Other types only go to providers that speak chat "
		        "completions.",
		        param_show(t->type).text);
	}
	rc = param_need_container(&p->in, entry, path, "function", JSON_OBJECT, &function);
	param_join(inner, path, "function");
	return rc ? rc : parse_function(p, function, inner, t);
}

static int parse_legacy(
        struct chat_parser *p, const struct json *entry, size_t index, struct tool_entry *t)
{
	char path[PARAM_PATH];

	param_index(path, "functions", index);
	if (!json_is(entry, JSON_OBJECT))
		return param_fail_type(&p->in, entry, path, NULL, "an object");
	*t = (struct tool_entry){.strict = -1, .type = STR("function"), .raw = json_raw(entry)};
	return parse_function(p, entry, path, t);
}

static int parse_list(struct chat_parser *p, const char *key, const struct json *list,
        int (*parse)(
                struct chat_parser *p, const struct json *entry, size_t i, struct tool_entry *t))
{
	struct conversation *c = p->conversation;
	size_t i = 0, n = json_count(list);
	int rc = 0;

	if (n > TOOLS_MAX)
		return param_fail(&p->in, ERR_INVALID, "array_above_max_length", key, NULL,
		        "Invalid '%s': at most %d entries.", key, TOOLS_MAX);
	c->tools = arena_alloc(c->arena, (n + 1) * sizeof(*c->tools));
	if (!c->tools)
		return param_fail_memory(&p->in);
	for (const struct json *v = json_first(list); v && !rc; v = json_next(v), i++) {
		rc = parse(p, v, i, &c->tools[i]);
		c->n_tools = i + (rc ? 0 : 1);
	}
	return rc;
}

/* ---- which may be called ---- */

static int find_named(
        struct chat_parser *p, const struct json *function, const char *path, struct str *ret)
{
	int rc = param_need_str(&p->in, function, path, "name", ret);

	if (!rc && !tools_named(p->conversation, *ret))
		rc = param_fail(&p->in, ERR_INVALID, "invalid_value", path, "name",
		        "Tool choice '%s' is not among the tools.", param_show(*ret).text);
	return rc;
}

/* One {type: function, function: {name}}. */
static int parse_named(
        struct chat_parser *p, const struct json *v, const char *path, struct str *ret)
{
	const struct json *function;
	char inner[PARAM_PATH];
	struct str type;
	int rc;

	if (!json_is(v, JSON_OBJECT))
		return param_fail_type(&p->in, v, path, NULL, "an object");
	rc = param_need_str(&p->in, v, path, "type", &type);
	if (!rc)
		rc = refuse_server_tool(p, path, type);
	if (rc)
		return rc;
	if (!str_is(type, "function"))
		return chat_only_here(p, path, "type",
		        "The tool choice '%s' is not offered: use 'function'.",
		        param_show(type).text);
	rc = param_need_container(&p->in, v, path, "function", JSON_OBJECT, &function);
	param_join(inner, path, "function");
	return rc ? rc : find_named(p, function, inner, ret);
}

static int parse_allowed(struct chat_parser *p, const struct json *v)
{
	static const char *const modes[] = {"auto", "required", NULL};
	static const char where[] = "tool_choice.allowed_tools";
	struct tool_choice *choice = &p->conversation->choice;
	const struct json *allowed, *list;
	char path[PARAM_PATH];
	struct str mode;
	int rc;

	rc = param_need_container(&p->in, v, "tool_choice", "allowed_tools", JSON_OBJECT, &allowed);
	if (!rc)
		rc = param_choice(&p->in, allowed, where, "mode", modes, &mode);
	if (!rc)
		rc = param_need_container(&p->in, allowed, where, "tools", JSON_ARRAY, &list);
	if (rc)
		return rc;
	choice->allowed = arena_alloc(
	        p->conversation->arena, (json_count(list) + 1) * sizeof(*choice->allowed));
	if (!choice->allowed)
		return param_fail_memory(&p->in);
	for (const struct json *each = json_first(list); each; each = json_next(each)) {
		struct str *name = &choice->allowed[choice->n_allowed];

		param_index(path, "tool_choice.allowed_tools.tools", choice->n_allowed);
		rc = parse_named(p, each, path, name);
		if (rc)
			return rc;
		choice->n_allowed += name->p != NULL;
	}
	choice->restricted = true;
	choice->mode = str_is(mode, "required") ? CHOICE_REQUIRED : CHOICE_AUTO;
	return 0;
}

static int parse_word(struct chat_parser *p, const struct json *v, const char *key)
{
	static const struct {
		const char *word;
		enum choice_mode mode;
	} words[] = {{"auto", CHOICE_AUTO}, {"none", CHOICE_NONE}, {"required", CHOICE_REQUIRED}};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (str_is(json_str(v), words[i].word)) {
			p->conversation->choice.mode = words[i].mode;
			return 0;
		}
	return param_fail(&p->in, ERR_INVALID, "invalid_value", key, NULL,
	        "Invalid value: '%s'. Supported values are: 'auto', 'none', 'required', or an "
	        "object.",
	        param_show(json_str(v)).text);
}

static int parse_choice(struct chat_parser *p)
{
	const struct json *v = json_get(p->root, "tool_choice");
	struct tool_choice *choice = &p->conversation->choice;
	int rc;

	if (json_absent(v))
		return 0;
	if (json_is(v, JSON_STRING))
		return parse_word(p, v, "tool_choice");
	if (!json_is(v, JSON_OBJECT))
		return param_fail_type(&p->in, v, "", "tool_choice", "a string or an object");
	if (str_is(json_str(json_get(v, "type")), "allowed_tools"))
		return parse_allowed(p, v);
	rc = parse_named(p, v, "tool_choice", &choice->name);
	if (!rc && choice->name.p)
		choice->mode = CHOICE_NAMED;
	return rc;
}

static int parse_legacy_choice(struct chat_parser *p)
{
	const struct json *v = json_get(p->root, "function_call");
	struct tool_choice *choice = &p->conversation->choice;

	if (json_absent(v))
		return 0;
	if (json_is(v, JSON_STRING))
		return parse_word(p, v, "function_call");
	if (!json_is(v, JSON_OBJECT))
		return param_fail_type(&p->in, v, "", "function_call", "a string or an object");
	choice->mode = CHOICE_NAMED;
	return find_named(p, v, "function_call", &choice->name);
}

int chat_tools_parse(struct chat_parser *p)
{
	const struct json *tools, *functions;
	int rc = param_container(&p->in, p->root, "", "tools", JSON_ARRAY, &tools);

	if (!rc)
		rc = param_container(&p->in, p->root, "", "functions", JSON_ARRAY, &functions);
	if (rc)
		return rc;
	if (functions && !tools) {
		p->echo->legacy_functions = true;
		p->conversation->settings.parallel_tool_calls = 0; /* an answer holds one */
		rc = parse_list(p, "functions", functions, parse_legacy);
		return rc ? rc : parse_legacy_choice(p);
	}
	rc = tools ? parse_list(p, "tools", tools, parse_tool) : 0;
	return rc ? rc : parse_choice(p);
}
