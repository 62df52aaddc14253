/*
 * `tools`, `tool_choice` and the limits of the loop.
 *
 * Entries are of four kinds. Custom tools are the client's. Those of Anthropic that a client runs
 * (bash, the text editor, memory) are the client's too, with a schema of our own words, so that any
 * model can call them; an Anthropic provider gets the entry as it came. Those that only Anthropic's
 * models or servers know go to such a provider as they are. And brig's own, which tool_find()
 * names: of them openrouter:bash and brig:bash are Anthropic's bash tool in the client's hands
 * unless their engine says "openrouter".
 */
#include "api/messages.h"

#include "api/body.h"
#include "api/tools.h"
#include "tool/tool.h"

enum { TOOLS_MAX = 1024, NAME_MAX_CHARS = 128, CONDITIONS_MAX = 64 };

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

/* What is said of client tools that are known by their type alone. */
static const struct client_tool {
	const char *prefix; /* of type */
	const char *name;
	const char *description, *schema;
} client_tools[] = {
        {"bash_", "bash",
                "Runs a command in a bash session that stays the same from call to call: its "
                "working directory, variables and files are kept. With restart a new session "
                "begins.",
                "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\","
                "\"description\":\"The command to run. Needed unless restart is true.\"},"
                "\"restart\":{\"type\":\"boolean\",\"description\":\"Begin a new session.\"}}}"},
        {"text_editor_", "str_replace_based_edit_tool",
                "Looks at text files and changes them. view: path and, for a part, view_range; "
                "create: path and file_text; str_replace: path, old_str, which must occur exactly "
                "once, and new_str; insert: path, insert_line (0 is the top) and insert_text.",
                "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\",\"enum\":["
                "\"view\",\"create\",\"str_replace\",\"insert\"]},\"path\":{\"type\":\"string\"},"
                "\"file_text\":{\"type\":\"string\"},\"old_str\":{\"type\":\"string\"},\"new_str\":"
                "{\"type\":\"string\"},\"insert_line\":{\"type\":\"integer\"},\"insert_text\":"
                "{\"type\":\"string\"},\"view_range\":{\"type\":\"array\",\"items\":{\"type\":"
                "\"integer\"}}},\"required\":[\"command\",\"path\"]}"},
        {"memory_", "memory",
                "Keeps notes in files below /memories. view: path; create: path and file_text; "
                "str_replace: path, old_str and new_str; insert: path, insert_line and "
                "insert_text; delete: path; rename: old_path and new_path.",
                "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\",\"enum\":["
                "\"view\",\"create\",\"str_replace\",\"insert\",\"delete\",\"rename\"]},\"path\":"
                "{\"type\":\"string\"},\"file_text\":{\"type\":\"string\"},\"old_str\":{\"type\":"
                "\"string\"},\"new_str\":{\"type\":\"string\"},\"insert_line\":{\"type\":"
                "\"integer\"},\"insert_text\":{\"type\":\"string\"},\"old_path\":{\"type\":"
                "\"string\"},\"new_path\":{\"type\":\"string\"},\"view_range\":{\"type\":\"array\","
                "\"items\":{\"type\":\"integer\"}}},\"required\":[\"command\"]}"},
};

static int check_name(
        struct messages_parser *p, const char *path, const struct tool_entry *t, bool exact)
{
	if (exact &&
	        (t->name.n == 0 || t->name.n > NAME_MAX_CHARS || !str_in_set(t->name, NAME_CHARS)))
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "name",
		        "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'");
	if (tools_named(p->conversation, t->name))
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "tools", NULL,
		        "Tool names must be unique.");
	return 0;
}

static int parse_custom(
        struct messages_parser *p, const struct json *entry, const char *path, struct tool_entry *t)
{
	const struct json *schema;
	int rc;

	t->kind = TOOL_FUNCTION;
	rc = param_need_str(&p->in, entry, path, "name", &t->name);
	if (!rc)
		rc = check_name(p, path, t, true);
	if (!rc)
		rc = param_str(&p->in, entry, path, "description", 0, &t->description);
	if (!rc)
		rc = param_need_container(
		        &p->in, entry, path, "input_schema", JSON_OBJECT, &schema);
	if (!rc)
		rc = param_bool(&p->in, entry, path, "strict", &t->strict);
	if (!rc)
		t->parameters = json_raw(schema);
	return rc;
}

/* Run by the client: its name is fixed, and any model can be told of it. */
static int parse_client(struct messages_parser *p, const struct json *entry, const char *path,
        const struct client_tool *known, struct tool_entry *t)
{
	int rc = param_str(&p->in, entry, path, "name", 0, &t->name);

	if (rc)
		return rc;
	if (!t->name.p)
		t->name = str_of(known->name);
	t->kind = TOOL_FUNCTION;
	t->description = str_of(known->description);
	t->parameters = str_of(known->schema);
	return check_name(p, path, t, true);
}

static int parse_native(
        struct messages_parser *p, const struct json *entry, const char *path, struct tool_entry *t)
{
	int rc = tools_executes_code(t->type)
	                 ? tools_check_region(&p->in, p->config, "this server", path, "type")
	                 : 0;

	t->kind = TOOL_NATIVE;
	if (!rc)
		rc = param_str(&p->in, entry, path, "name", 0, &t->name);
	if (!rc && t->name.p)
		rc = check_name(p, path, t, false);
	return rc;
}

/* ---- brig's own ---- */

static bool is_bash(struct str type)
{
	return str_is(type, "openrouter:bash") || str_is(type, "brig:bash");
}

/* The bash tool in the client's hands: what an Anthropic provider is told is its own type. */
static int parse_bash_of_client(struct messages_parser *p, const struct json *entry,
        const char *path, struct str engine, struct tool_entry *t)
{
	const struct json *parameters = json_get(entry, "parameters");
	char inner[PARAM_PATH];
	int rc;

	if (engine.p && !str_is(engine, "auto") && !str_is(engine, "native")) {
		param_join(inner, path, "parameters");
		return param_fail(&p->in, ERR_INVALID, "invalid_value", inner, "engine",
		        "must be \"auto\", \"native\" or \"openrouter\".");
	}
	if (parameters && !json_is(parameters, JSON_OBJECT))
		return param_fail_type(&p->in, parameters, path, "parameters", "an object");
	p->own_words = true;
	rc = parse_client(p, entry, path, &client_tools[0], t);
	t->raw = STR("{\"type\":\"bash_20250124\",\"name\":\"bash\"}");
	return rc;
}

static int parse_server_tool(struct messages_parser *p, const struct json *entry, const char *path,
        const struct tool *tool, struct tool_entry *t)
{
	const struct tool_entry **place = is_bash(t->type) ? &p->bash : &p->shell;
	int rc = tools_check_sandbox(&p->in, p->config, "this server", path, "type");

	if (rc)
		return rc;
	if (*place)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "type",
		        "another entry of tools offers the same: one request has one.");
	rc = tools_read_settings(&p->in, tool, t->type, entry, path, &t->settings);
	if (rc)
		return rc;
	t->kind = TOOL_SERVER;
	t->tool = tool;
	*place = t;
	p->conversation->has_server_tool = true;
	return 0;
}

static int parse_own(
        struct messages_parser *p, const struct json *entry, const char *path, struct tool_entry *t)
{
	const struct json *parameters = json_get(entry, "parameters");
	struct str engine = json_str(json_get(parameters, "engine"));
	const struct tool *tool = tool_find(t->type);

	if (is_bash(t->type) && !str_is(engine, "openrouter"))
		return parse_bash_of_client(p, entry, path, engine, t);
	if (tool)
		return parse_server_tool(p, entry, path, tool, t);
	return param_fail(&p->in, ERR_UNSUPPORTED, "unsupported_value", path, "type",
	        "the tool type '%s' is not offered. This version runs 'openrouter:shell', "
	        "'brig:shell', 'openrouter:bash' and 'brig:bash'.",
	        param_show(t->type).text);
}

/* ---- any entry ---- */

static int parse_entry(
        struct messages_parser *p, const struct json *entry, size_t index, struct tool_entry *t)
{
	char path[PARAM_PATH];
	int rc;

	messages_index(path, "tools", index);
	if (!json_is(entry, JSON_OBJECT))
		return param_fail_type(&p->in, entry, path, NULL, "an object");
	*t = (struct tool_entry){.strict = -1, .raw = json_raw(entry)};
	rc = param_str(&p->in, entry, path, "type", 256, &t->type);
	if (rc)
		return rc;
	if (!t->type.p || str_is(t->type, "custom")) {
		t->type = STR("custom");
		return parse_custom(p, entry, path, t);
	}
	if (str_starts(t->type, "openrouter:") || str_starts(t->type, "brig:"))
		return parse_own(p, entry, path, t);
	if (str_is(t->type, "function"))
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "type",
		        "this API's tools have name, description and input_schema, and no type "
		        "'function'.");
	for (size_t i = 0; i < sizeof(client_tools) / sizeof(*client_tools); i++)
		if (str_starts(t->type, client_tools[i].prefix))
			return parse_client(p, entry, path, &client_tools[i], t);
	return parse_native(p, entry, path, t);
}

static int name_server_tool(struct messages_parser *p, const struct tool_entry *of)
{
	struct conversation *c = p->conversation;
	struct str name;
	int rc;

	if (!of)
		return 0;
	rc = tools_server_name(&p->in, of->tool, tools_named, &name);
	if (rc)
		return rc;
	if (!name.p)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "tools", NULL,
		        "tools named both '%s' and 'brig_%s' leave no name for the server's: "
		        "rename one.",
		        of->tool->name, of->tool->name);
	c->tools[of - c->tools].name = name;
	return 0;
}

static int parse_tools(struct messages_parser *p)
{
	struct conversation *c = p->conversation;
	const struct json *list, *v;
	size_t i = 0, n;
	int rc = param_container(&p->in, p->root, "", "tools", JSON_ARRAY, &list);

	if (rc)
		return rc;
	n = json_count(list);
	if (n > TOOLS_MAX)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "tools", NULL,
		        "at most %d entries.", TOOLS_MAX);
	c->tools = arena_alloc(c->arena, (n + 1) * sizeof(*c->tools));
	if (!c->tools)
		return param_fail_memory(&p->in);
	for (v = json_first(list); v && !rc; v = json_next(v), i++) {
		rc = parse_entry(p, v, i, &c->tools[i]);
		c->n_tools = i + (rc ? 0 : 1);
	}
	if (!rc)
		rc = name_server_tool(p, p->shell);
	return rc ? rc : name_server_tool(p, p->bash);
}

/* ---- tool_choice ---- */

/* A server tool goes by its type too: that is the name under which clients know its calls. */
static const struct tool_entry *entry_chosen(const struct messages_parser *p, struct str name)
{
	const struct tool_entry *own[] = {p->shell, p->bash};

	for (size_t i = 0; i < 2; i++) {
		if (!own[i])
			continue;
		if (str_eq(own[i]->type, name) || str_is(name, own[i]->tool->name))
			return own[i];
	}
	return tools_named(p->conversation, name);
}

static int parse_choice(struct messages_parser *p)
{
	struct tool_choice *choice = &p->conversation->choice;
	const struct tool_entry *t;
	const struct json *v;
	struct str type, name;
	int rc = param_container(&p->in, p->root, "", "tool_choice", JSON_OBJECT, &v), alone;

	if (rc || !v)
		return rc;
	rc = param_need_str(&p->in, v, "tool_choice", "type", &type);
	if (!rc)
		rc = param_bool(&p->in, v, "tool_choice", "disable_parallel_tool_use", &alone);
	if (rc)
		return rc;
	if (alone >= 0)
		p->conversation->settings.parallel_tool_calls = !alone;
	if (str_is(type, "auto"))
		return 0;
	if (str_is(type, "none") || str_is(type, "any")) {
		choice->mode = str_is(type, "any") ? CHOICE_REQUIRED : CHOICE_NONE;
		if (choice->mode == CHOICE_REQUIRED && p->conversation->n_tools == 0)
			return param_fail(&p->in, ERR_INVALID, "invalid_value", "tool_choice", NULL,
			        "tool_choice 'any' may only be specified while providing tools.");
		return 0;
	}
	name = type; /* {"type": "openrouter:shell"} */
	if (str_is(type, "tool"))
		rc = param_need_str(&p->in, v, "tool_choice", "name", &name);
	if (rc)
		return rc;
	t = entry_chosen(p, name);
	if (!t || !t->name.p)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "tool_choice", NULL,
		        str_is(type, "tool") ? "Tool '%s' not found in provided tools"
		                             : "'%s' is no tool choice: use auto, any, tool, none "
		                               "or the type of one of the server's tools in tools.",
		        param_show(name).text);
	choice->mode = CHOICE_NAMED;
	choice->name = t->name;
	return 0;
}

/* ---- limits of the loop ---- */

static int parse_cost(
        struct messages_parser *p, const struct json *v, const char *path, struct stop_condition *c)
{
	const struct json *cost = json_get(v, "max_cost_in_dollars");
	double dollars;

	if (json_absent(cost))
		return param_fail_missing(&p->in, path, "max_cost_in_dollars");
	if (!json_is(cost, JSON_NUMBER) || !json_double(cost, &dollars) || dollars < 0 ||
	        dollars > 1e6)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "max_cost_in_dollars",
		        "expected a number from 0 to 1000000.");
	if (!money_parse(json_raw(cost), &c->cost))
		c->cost.pico = (int64_t)(dollars * 1e12);
	return 0;
}

static int parse_count(struct messages_parser *p, const struct json *v, const char *path,
        const char *key, struct stop_condition *c)
{
	int64_t n = 0;
	int rc = json_absent(json_get(v, key))
	                 ? param_fail_missing(&p->in, path, key)
	                 : param_whole(&p->in, v, path, key, 1, INT64_MAX, NULL, &n);

	c->n = (uint64_t)n;
	return rc;
}

/* This API's stop reasons, in the words of the conditions. */
static struct str finish_word(struct str reason)
{
	static const char *const words[][2] = {{"end_turn", "stop"}, {"stop_sequence", "stop"},
	        {"max_tokens", "length"}, {"tool_use", "tool_calls"},
	        {"refusal", "content_filter"}};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (str_is(reason, words[i][0]))
			return str_of(words[i][1]);
	return reason;
}

static int parse_condition(
        struct messages_parser *p, const struct json *v, const char *path, struct stop_condition *c)
{
	struct str type;
	int rc = param_need_str(&p->in, v, path, "type", &type);

	if (rc)
		return rc;
	if (str_is(type, "step_count_is")) {
		c->type = STOP_STEPS;
		return parse_count(p, v, path, "step_count", c);
	}
	if (str_is(type, "max_tokens_used")) {
		c->type = STOP_TOKENS;
		return parse_count(p, v, path, "max_tokens", c);
	}
	if (str_is(type, "has_tool_call")) {
		c->type = STOP_TOOL_CALL;
		return param_need_str(&p->in, v, path, "tool_name", &c->name);
	}
	if (str_is(type, "finish_reason_is")) {
		c->type = STOP_FINISH;
		rc = param_need_str(&p->in, v, path, "reason", &c->name);
		c->name = finish_word(c->name);
		return rc;
	}
	if (str_is(type, "max_cost")) {
		c->type = STOP_COST;
		return parse_cost(p, v, path, c);
	}
	return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "type",
	        "'%s' is no condition: use 'step_count_is', 'has_tool_call', 'max_tokens_used', "
	        "'max_cost' or 'finish_reason_is'.",
	        param_show(type).text);
}

static int parse_conditions(struct messages_parser *p, const struct json *list)
{
	char path[PARAM_PATH];
	size_t n = json_count(list);
	int rc;

	if (n == 0 || n > CONDITIONS_MAX)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "stop_server_tools_when",
		        NULL, "expected 1 to %d conditions.", CONDITIONS_MAX);
	p->stop = arena_alloc(p->conversation->arena, n * sizeof(*p->stop));
	if (!p->stop)
		return param_fail_memory(&p->in);
	for (const struct json *v = json_first(list); v; v = json_next(v)) {
		messages_index(path, "stop_server_tools_when", p->n_stop);
		if (!json_is(v, JSON_OBJECT))
			return param_fail_type(&p->in, v, path, NULL, "an object");
		rc = parse_condition(p, v, path, &p->stop[p->n_stop]);
		if (rc)
			return rc;
		p->n_stop++;
	}
	return 0;
}

/* max_tool_calls does not count where conditions are given. */
static int parse_limits(struct messages_parser *p)
{
	int64_t wanted = BODY_TOOL_CALLS_MAX;
	const struct json *list;
	int rc = param_whole(&p->in, p->root, "", "max_tool_calls", 1, INT64_MAX, NULL, &wanted);

	if (!rc)
		rc = param_container(
		        &p->in, p->root, "", "stop_server_tools_when", JSON_ARRAY, &list);
	if (!rc && list) {
		wanted = BODY_TOOL_CALLS_MAX;
		rc = parse_conditions(p, list);
	}
	if (rc)
		return rc;
	p->max_tool_calls = body_tool_calls(p->config, wanted);
	return 0;
}

int messages_tools_parse(struct messages_parser *p)
{
	int rc = parse_tools(p);

	if (!rc)
		rc = parse_choice(p);
	return rc ? rc : parse_limits(p);
}
