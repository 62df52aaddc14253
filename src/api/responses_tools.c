/*
 * `tools`, `tool_choice` and the limits of the loop. Function entries are the client's; a server
 * tool's entry belongs to the tool that tool_find() names, which checks its parameters. Nothing is
 * dropped in silence: a type that this version does not run is refused by name.
 */
#include "api/responses.h"

#include "api/body.h"
#include "api/tools.h"
#include "tool/tool.h"

#include <stdarg.h>

enum { TOOLS_MAX = 1024, FUNCTION_NAME_MAX = 64 };

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

static const struct tool_entry *entry_named(const struct conversation *c, struct str name)
{
	for (size_t i = 0; i < c->n_tools; i++)
		if (c->tools[i].kind != TOOL_NATIVE && c->tools[i].name.p &&
		        str_eq(c->tools[i].name, name))
			return &c->tools[i];
	return NULL;
}

static int parse_function_name(
        struct responses_parser *p, const struct json *entry, const char *path, struct str *ret)
{
	int rc = param_str(&p->in, entry, path, "name", 0, ret);

	if (rc)
		return rc;
	if (!ret->p && json_is(json_get(entry, "function"), JSON_OBJECT))
		return param_fail(&p->in, ERR_INVALID, "missing_required_parameter", path, "name",
		        "Missing required parameter: '%s.name'. The Responses API has name, "
		        "description "
		        "and parameters beside type, not inside 'function'.",
		        path);
	if (!ret->p)
		return param_fail_missing(&p->in, path, "name");
	if (ret->n > FUNCTION_NAME_MAX || !str_in_set(*ret, NAME_CHARS))
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "name",
		        "Invalid '%s.name': a function's name has 1 to %d of the characters a-z, "
		        "A-Z, "
		        "0-9, '_' and '-'.",
		        path, FUNCTION_NAME_MAX);
	if (entry_named(p->conversation, *ret))
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "name",
		        "Two tools have the name '%s'.", param_show(*ret).text);
	return 0;
}

static int parse_function(struct responses_parser *p, const struct json *entry, const char *path,
        struct tool_entry *t)
{
	static const char *const demanded[] = {
	        "description", "null", "parameters", "null", "strict", "null", NULL};
	const struct json *parameters;
	int rc;

	t->kind = TOOL_FUNCTION;
	rc = parse_function_name(p, entry, path, &t->name);
	if (!rc)
		rc = param_str(&p->in, entry, path, "description", 0, &t->description);
	if (!rc)
		rc = param_container(&p->in, entry, path, "parameters", JSON_OBJECT, &parameters);
	if (!rc)
		rc = param_bool(&p->in, entry, path, "strict", &t->strict);
	if (rc)
		return rc;
	if (parameters)
		t->parameters = json_raw(parameters);
	return responses_echo_object(
	        p, entry, demanded, &p->echo->tools[t - p->conversation->tools]);
}

static int refuse_type(struct responses_parser *p, const char *path, struct str type)
{
	struct param_shown shown = param_show(type);

	if (str_is(type, "openrouter:bash") || str_is(type, "brig:bash") ||
	        str_starts(type, "bash_"))
		return param_fail(&p->in, ERR_UNSUPPORTED, "unsupported_value", path, "type",
		        "The tool type '%s' belongs to the Messages API. On the Responses API this "
		        "version runs 'shell', 'openrouter:shell' and 'brig:shell'.",
		        shown.text);
	return param_fail(&p->in, ERR_UNSUPPORTED, "unsupported_value", path, "type",
	        "The tool type '%s' is not offered. This version runs 'shell', "
	        "'openrouter:shell' and 'brig:shell', hands calls of 'function' tools to the "
	        "client, and passes on the tools of OpenAI's API to providers that speak it.",
	        shown.text);
}

int responses_only_here(
        struct responses_parser *p, const char *path, const char *key, const char *fmt, ...)
{
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = param_only_here(&p->in, &p->only_here, "unsupported_value", path, key, fmt, ap);
	va_end(ap);
	return rc;
}

/* ---- the provider's own tools ---- */

/* What OpenAI's API knows besides functions and shells. */
static bool is_native(struct str type)
{
	static const char *const types[] = {"apply_patch", "code_interpreter", "computer",
	        "computer_use_preview", "custom", "file_search", "image_generation", "mcp",
	        "namespace", "programmatic_tool_calling", "tool_search", NULL};

	for (size_t i = 0; types[i]; i++)
		if (str_is(type, types[i]))
			return true;
	return str_is(type, "web_search") || str_starts(type, "web_search_");
}

/* The name by which tool_choice means it: its own, a server's label, or the type. */
static int native_name(struct responses_parser *p, const struct json *entry, const char *path,
        struct tool_entry *t)
{
	const char *key = str_is(t->type, "mcp") ? "server_label" : "name";
	int rc = param_str(&p->in, entry, path, key, 0, &t->name);

	if (!rc && str_is(t->type, "custom") && !t->name.n)
		rc = param_fail_missing(&p->in, path, "name");
	if (!t->name.n)
		t->name = t->type;
	return rc;
}

static int parse_native(struct responses_parser *p, const struct json *entry, const char *path,
        struct tool_entry *t)
{
	static const char *const nothing[] = {NULL};
	int rc = tools_executes_code(t->type)
	                 ? tools_check_region(&p->in, p->config, "This server", path, "type")
	                 : 0;

	t->kind = TOOL_NATIVE;
	if (!rc)
		rc = native_name(p, entry, path, t);
	if (!rc)
		rc = responses_only_here(p, path, "type",
		        "The tool type '%s' is OpenAI's own, and the provider of this model does "
		        "not "
		        "speak OpenAI's Responses API. This server itself runs 'shell', "
		        "'openrouter:shell' and 'brig:shell'.",
		        param_show(t->type).text);
	return rc ? rc
	          : responses_echo_object(
	                    p, entry, nothing, &p->echo->tools[t - p->conversation->tools]);
}

/* ---- shells ---- */

static bool is_local_shell(const struct json *entry, struct str type)
{
	const struct json *environment = json_get(entry, "environment");

	if (str_is(type, "local_shell"))
		return true;
	return str_is(type, "shell") &&
	       (json_absent(environment) ||
	               str_is(json_str(json_get(environment, "type")), "local"));
}

static int refuse_second_shell(struct responses_parser *p, const char *path)
{
	if (!p->shell && !p->local)
		return 0;
	return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "type",
	        "Two entries of 'tools' offer a shell: one request has one.");
}

static int check_local_names(struct responses_parser *p, const struct json *entry, const char *path)
{
	static const char *const known[] = {"type", "environment", "allowed_callers", NULL};

	for (const struct json *v = json_first(entry); v; v = json_next(v)) {
		struct param_shown shown = param_show(json_key(v));
		size_t i = 0;

		while (known[i] && !str_is(json_key(v), known[i]))
			i++;
		if (!known[i])
			return param_fail(&p->in, ERR_INVALID, "unknown_parameter", path,
			        shown.text, "Unknown parameter: '%s.%s'.", path, shown.text);
	}
	return 0;
}

/* A shell on the client's own machine: to the model it is a function, to the client an item of
 * OpenAI's. */
static int parse_local_shell(struct responses_parser *p, const struct json *entry, const char *path,
        struct tool_entry *t)
{
	static const char *const nothing[] = {NULL};
	static const char shell_description[] = "Runs shell commands on the user's own computer "
	                                        "and gives back what they print. The "
	                                        "commands of one call may run at the same time, "
	                                        "each in a shell of its own, so join "
	                                        "steps that belong together with &&.";
	static const char local_description[] =
	        "Runs one program on the user's own computer and gives back what it prints. There "
	        "is "
	        "no shell in between: to use one, run [\"bash\", \"-lc\", \"…\"].";
	static const char local_schema[] =
	        "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"array\",\"items\":"
	        "{\"type\":\"string\"},\"description\":\"The program and its arguments.\"},"
	        "\"timeout_ms\":{\"type\":\"integer\"},\"working_directory\":{\"type\":\"string\"}}"
	        ","
	        "\"required\":[\"command\"],\"additionalProperties\":false}";
	bool commands = str_is(t->type, "shell");
	int rc = refuse_second_shell(p, path);

	if (!rc)
		rc = check_local_names(p, entry, path);
	if (rc)
		return rc;
	t->kind = TOOL_FUNCTION;
	t->name = t->type;
	t->description = commands ? STR(shell_description) : STR(local_description);
	t->parameters = commands ? str_of(tool_shell.schema) : STR(local_schema);
	if (entry_named(p->conversation, t->name))
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "type",
		        "Two tools have the name '%s'.", param_show(t->name).text);
	p->local = t;
	return responses_echo_object(
	        p, entry, nothing, &p->echo->tools[t - p->conversation->tools]);
}

static int parse_server_tool(struct responses_parser *p, const struct json *entry, const char *path,
        const struct tool *tool, struct tool_entry *t)
{
	static const char *const nothing[] = {NULL};
	int rc = tools_check_sandbox(&p->in, p->config, "This server", path, "type");

	if (rc)
		return rc;
	rc = refuse_second_shell(p, path);
	if (rc)
		return rc;
	rc = tools_read_settings(&p->in, tool, t->type, entry, path, &t->settings);
	if (rc)
		return rc;
	t->kind = TOOL_SERVER;
	t->tool = tool;
	p->shell = t;
	p->conversation->has_server_tool = true;
	return responses_echo_object(
	        p, entry, nothing, &p->echo->tools[t - p->conversation->tools]);
}

static int parse_tool(
        struct responses_parser *p, const struct json *entry, size_t index, struct tool_entry *t)
{
	const struct tool *tool;
	char path[PARAM_PATH];
	int rc;

	param_index(path, "tools", index);
	if (!json_is(entry, JSON_OBJECT))
		return param_fail_type(&p->in, entry, path, NULL, "an object");
	*t = (struct tool_entry){.strict = -1, .raw = json_raw(entry)};
	rc = param_need_str(&p->in, entry, path, "type", &t->type);
	if (rc)
		return rc;
	if (str_is(t->type, "function"))
		return parse_function(p, entry, path, t);
	if (is_local_shell(entry, t->type))
		return parse_local_shell(p, entry, path, t);
	if (is_native(t->type))
		return parse_native(p, entry, path, t);
	tool = str_is(t->type, "shell") ? &tool_shell : tool_find(t->type);
	return tool == &tool_shell ? parse_server_tool(p, entry, path, tool, t)
	                           : refuse_type(p, path, t->type);
}

static int name_server_tool(struct responses_parser *p)
{
	struct conversation *c = p->conversation;
	struct str name;
	int rc;

	if (!p->shell)
		return 0;
	rc = tools_server_name(&p->in, p->shell->tool, entry_named, &name);
	if (rc)
		return rc;
	if (!name.p)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "tools", NULL,
		        "Functions named both '%s' and 'brig_%s' leave no name for the server's "
		        "shell: rename one.",
		        p->shell->tool->name, p->shell->tool->name);
	c->tools[p->shell - c->tools].name = name;
	return 0;
}

static int parse_tools(struct responses_parser *p)
{
	struct conversation *c = p->conversation;
	const struct json *list, *v;
	size_t i = 0, n;
	int rc = param_container(&p->in, p->root, "", "tools", JSON_ARRAY, &list);

	if (rc)
		return rc;
	n = json_count(list);
	if (n > TOOLS_MAX)
		return param_fail(&p->in, ERR_INVALID, "array_above_max_length", "tools", NULL,
		        "Invalid 'tools': at most %d entries.", TOOLS_MAX);
	c->tools = arena_alloc(c->arena, n * sizeof(*c->tools));
	p->echo->tools = arena_alloc(c->arena, n * sizeof(*p->echo->tools));
	if (!c->tools || !p->echo->tools)
		return param_fail_memory(&p->in);
	for (v = json_first(list); v && !rc; v = json_next(v), i++) {
		rc = parse_tool(p, v, i, &c->tools[i]);
		c->n_tools = i + (rc ? 0 : 1);
	}
	return rc ? rc : name_server_tool(p);
}

/* ---- tool_choice ---- */

static bool is_shell_choice(struct str type)
{
	return str_is(type, "shell") || str_is(type, "local_shell") ||
	       (!str_is(type, "function") && tool_find(type) == &tool_shell);
}

/* Of the tools of one type, the one that is named; without a name the first. */
static int parse_native_choice(struct responses_parser *p, const struct json *v, const char *path,
        struct str type, struct str *ret)
{
	const struct conversation *c = p->conversation;
	struct str name;
	int rc =
	        param_str(&p->in, v, path, str_is(type, "mcp") ? "server_label" : "name", 0, &name);

	if (rc)
		return rc;
	for (size_t i = 0; i < c->n_tools; i++)
		if (c->tools[i].kind == TOOL_NATIVE && str_eq(c->tools[i].type, type) &&
		        (!name.p || str_eq(c->tools[i].name, name))) {
			*ret = c->tools[i].name;
			return 0;
		}
	return param_fail(&p->in, ERR_INVALID, "invalid_value", path, NULL,
	        "Tool choice '%s' is not among 'tools'.", param_show(name.p ? name : type).text);
}

/* One {type, name?}: the model-side name of what it means. */
static int parse_named(struct responses_parser *p, const struct json *v, const char *path,
        struct str type, struct str *ret)
{
	const struct tool_entry *t;
	struct str name;
	int rc;

	if (is_shell_choice(type)) {
		if (!p->shell && !p->local)
			return param_fail(&p->in, ERR_INVALID, "invalid_value", path, NULL,
			        "Tool choice '%s' is not among 'tools'.", param_show(type).text);
		*ret = p->shell ? p->shell->name : p->local->name;
		return 0;
	}
	if (is_native(type))
		return parse_native_choice(p, v, path, type, ret);
	if (!str_is(type, "function"))
		return param_fail(&p->in, ERR_UNSUPPORTED, "unsupported_value", path, "type",
		        "The tool choice '%s' is not offered: use 'function', 'shell', "
		        "'openrouter:shell' or 'brig:shell'.",
		        param_show(type).text);
	rc = param_need_str(&p->in, v, path, "name", &name);
	if (rc)
		return rc;
	t = entry_named(p->conversation, name);
	if (!t)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "name",
		        "Tool choice '%s' is not among 'tools'.", param_show(name).text);
	*ret = t->name;
	return 0;
}

static int parse_allowed(struct responses_parser *p, const struct json *v)
{
	static const char *const modes[] = {"auto", "required", NULL};
	struct tool_choice *choice = &p->conversation->choice;
	const struct json *list, *each;
	char path[PARAM_PATH];
	struct str mode, type;
	size_t n;
	int rc;

	rc = param_choice(&p->in, v, "tool_choice", "mode", modes, &mode);
	if (!rc && !mode.p)
		rc = param_fail_missing(&p->in, "tool_choice", "mode");
	if (!rc)
		rc = param_need_container(&p->in, v, "tool_choice", "tools", JSON_ARRAY, &list);
	if (rc)
		return rc;
	n = json_count(list);
	if (n == 0 || n > TOOLS_MAX)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "tool_choice", "tools",
		        "Invalid 'tool_choice.tools': 1 to %d entries.", TOOLS_MAX);
	choice->allowed = arena_alloc(p->conversation->arena, n * sizeof(*choice->allowed));
	if (!choice->allowed)
		return param_fail_memory(&p->in);
	for (each = json_first(list); each; each = json_next(each)) {
		param_index(path, "tool_choice.tools", choice->n_allowed);
		if (!json_is(each, JSON_OBJECT))
			return param_fail_type(&p->in, each, path, NULL, "an object");
		rc = param_need_str(&p->in, each, path, "type", &type);
		if (!rc)
			rc = parse_named(p, each, path, type, &choice->allowed[choice->n_allowed]);
		if (rc)
			return rc;
		choice->n_allowed++;
	}
	choice->restricted = true;
	choice->mode = str_is(mode, "required") ? CHOICE_REQUIRED : CHOICE_AUTO;
	return 0;
}

static int parse_choice_word(struct responses_parser *p, const struct json *v)
{
	static const struct {
		const char *word;
		enum choice_mode mode;
	} words[] = {{"auto", CHOICE_AUTO}, {"none", CHOICE_NONE}, {"required", CHOICE_REQUIRED}};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		if (!str_is(json_str(v), words[i].word))
			continue;
		if (words[i].mode == CHOICE_REQUIRED && p->conversation->n_tools == 0)
			return param_fail(&p->in, ERR_INVALID, "invalid_value", "tool_choice", NULL,
			        "Tool choice 'required' needs at least one entry in 'tools'.");
		p->conversation->choice.mode = words[i].mode;
		return 0;
	}
	return param_fail(&p->in, ERR_INVALID, "invalid_value", "tool_choice", NULL,
	        "Invalid value: '%s'. Supported values are: 'auto', 'none', 'required', or an "
	        "object.",
	        param_show(json_str(v)).text);
}

static int parse_choice(struct responses_parser *p)
{
	const struct json *v = json_get(p->root, "tool_choice");
	struct str type;
	int rc;

	if (json_absent(v))
		return 0;
	if (json_is(v, JSON_STRING))
		return parse_choice_word(p, v);
	if (!json_is(v, JSON_OBJECT))
		return param_fail_type(&p->in, v, "", "tool_choice", "a string or an object");
	rc = param_need_str(&p->in, v, "tool_choice", "type", &type);
	if (rc)
		return rc;
	if (str_is(type, "allowed_tools"))
		return parse_allowed(p, v);
	p->conversation->choice.mode = CHOICE_NAMED;
	return parse_named(p, v, "tool_choice", type, &p->conversation->choice.name);
}

/* ---- limits of the loop ---- */

/*
 * stop_server_tools_when: of its conditions brig has the count of steps, and every server tool call
 * is a step. The smallest count holds, since the conditions are joined by "or". It takes the place
 * of max_tool_calls.
 */
static int parse_conditions(struct responses_parser *p, const struct json *list, int64_t *ret)
{
	const struct json *v;
	char path[PARAM_PATH];
	int64_t count = 0;
	size_t n = 0;
	struct str type;
	int rc;

	if (json_count(list) == 0)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "stop_server_tools_when",
		        NULL, "Invalid 'stop_server_tools_when': at least one condition.");
	for (v = json_first(list); v; v = json_next(v), n++) {
		param_index(path, "stop_server_tools_when", n);
		if (!json_is(v, JSON_OBJECT))
			return param_fail_type(&p->in, v, path, NULL, "an object");
		rc = param_need_str(&p->in, v, path, "type", &type);
		if (rc)
			return rc;
		if (!str_is(type, "step_count_is"))
			return param_fail(&p->in, ERR_UNSUPPORTED, "unsupported_value", path,
			        "type",
			        "The condition '%s' is not offered yet: this version has "
			        "'step_count_is'.",
			        param_show(type).text);
		if (json_absent(json_get(v, "step_count")))
			return param_fail_missing(&p->in, path, "step_count");
		rc = param_whole(&p->in, v, path, "step_count", 1, INT64_MAX, NULL, &count);
		if (rc)
			return rc;
		if (n == 0 || count < *ret)
			*ret = count;
	}
	return 0;
}

static int parse_limits(struct responses_parser *p)
{
	int64_t wanted = BODY_TOOL_CALLS_MAX;
	const struct json *list;
	int rc = param_whole(&p->in, p->root, "", "max_tool_calls", 1, INT64_MAX, NULL, &wanted);

	if (!rc)
		rc = param_container(
		        &p->in, p->root, "", "stop_server_tools_when", JSON_ARRAY, &list);
	if (!rc && list)
		rc = parse_conditions(p, list, &wanted);
	if (rc)
		return rc;
	p->max_tool_calls = body_tool_calls(p->config, wanted);
	return 0;
}

int responses_tools_parse(struct responses_parser *p)
{
	int rc = parse_tools(p);

	if (!rc)
		rc = parse_choice(p);
	return rc ? rc : parse_limits(p);
}
