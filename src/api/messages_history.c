/*
 * What brig's own tools gave out and a client sends back: server_tool_use and the result blocks. It
 * is history: nothing of it runs again, and a container that is long gone does not matter. What the
 * model reads of a result is a function of the fields read here.
 *
 * bash_code_execution is Anthropic's name too. Such blocks are brig's where the id is, which no id
 * of Anthropic's looks like; others are kept for an Anthropic provider as they are.
 */
#include "api/messages.h"

#include "api/outputs.h"
#include "tool/tool.h"

#include <limits.h>

enum {
	LOOK_BACK = 512, /* items: a result is behind its call, and not far */
	TIMED_OUT = 124, /* the return code that stands for a timeout */
};

static const struct tool_entry *entry_of(const struct messages_parser *p, const struct tool *tool)
{
	if (p->shell && p->shell->tool == tool)
		return p->shell;
	return p->bash && p->bash->tool == tool ? p->bash : NULL;
}

static const struct tool *bash_tool(void)
{
	return tool_find(STR("openrouter:bash"));
}

static bool is_coded(const struct tool_entry *t)
{
	return t && str_starts(t->type, "brig:");
}

/* Whose call a bash_code_execution is: where both could have made it, a shell's has its commands
 * as one text and as a list. */
static const struct tool *tool_of_code_execution(
        const struct messages_parser *p, const struct json *input)
{
	if (is_coded(p->bash) && !is_coded(p->shell))
		return p->bash->tool;
	if (is_coded(p->bash) && (json_absent(json_get(input, "commands")) ||
	                                 json_absent(json_get(input, "command"))))
		return p->bash->tool;
	return &tool_shell;
}

/* ---- arguments ---- */

static int read_commands(
        struct messages_parser *p, const struct json *input, const char *path, struct tool_call *t)
{
	const struct json *list = json_get(input, "commands"), *v;
	char inner[PARAM_PATH], at[PARAM_PATH];
	int rc = 0;

	t->commands =
	        arena_alloc(p->conversation->arena, (json_count(list) + 1) * sizeof(*t->commands));
	if (!t->commands)
		return param_fail_memory(&p->in);
	if (json_absent(list)) {
		t->n_commands = 1;
		return param_need_str(&p->in, input, path, "command", &t->commands[0]);
	}
	param_join(inner, path, "commands");
	if (!json_is(list, JSON_ARRAY))
		return param_fail_type(&p->in, list, inner, NULL, "an array");
	for (v = json_first(list); v && !rc; v = json_next(v)) {
		messages_index(at, inner, t->n_commands);
		if (!json_is(v, JSON_STRING))
			return param_fail_type(&p->in, v, at, NULL, "a string");
		rc = param_keep(&p->in, v, &t->commands[t->n_commands++]);
	}
	return rc;
}

/* What a model wrote that could not be shown as input. */
static int read_invalid(
        struct messages_parser *p, const struct json *input, bool *ret_is, struct str *ret)
{
	const struct json *text = json_get(input, "invalid_arguments");

	*ret_is = json_count(input) == 1 && json_is(text, JSON_STRING);
	return *ret_is ? param_keep(&p->in, text, ret) : 0;
}

/* The arguments of a shell that the input of a bash_code_execution stands for. */
static int read_shell_input(
        struct messages_parser *p, const struct json *input, const char *path, struct str *ret)
{
	struct tool_call t = {0};
	struct buf text;
	bool ok = true;
	int rc;

	if (json_absent(json_get(input, "command")))
		return messages_compact(p, input, ret); /* of a call that was not run */
	rc = read_commands(p, input, path, &t);
	if (!rc)
		rc = param_whole(&p->in, input, path, "timeout_ms", INT64_MIN, INT64_MAX, NULL,
		        &t.asked_timeout);
	if (!rc)
		rc = param_whole(&p->in, input, path, "max_output_length", INT64_MIN, INT64_MAX,
		        NULL, &t.asked_output);
	if (rc)
		return rc;
	t.has_timeout = !json_absent(json_get(input, "timeout_ms"));
	t.has_output = !json_absent(json_get(input, "max_output_length"));
	buf_init(&text, p->in.body.n * 8 + 4096);
	rc = tool_shell.write_arguments(&t, &text);
	if (!rc)
		*ret = conversation_copy(p->conversation, (struct str){text.data, text.len}, &ok);
	buf_free(&text);
	return rc || !ok ? param_fail_memory(&p->in) : 0;
}

/* ---- calls ---- */

int messages_history_call(
        struct messages_parser *p, const struct json *v, const char *path, bool *ret_known)
{
	struct conversation *c = p->conversation;
	char inner[PARAM_PATH], room[MESSAGES_ID_SIZE];
	const struct tool *tool = NULL;
	const struct json *input;
	struct str name, id;
	struct item *it;
	bool ok = true, coded, invalid;
	int rc = param_need_str(&p->in, v, path, "id", &id);

	*ret_known = false;
	if (!rc)
		rc = param_need_str(&p->in, v, path, "name", &name);
	if (!rc)
		rc = param_need_container(&p->in, v, path, "input", JSON_OBJECT, &input);
	if (rc)
		return rc;
	coded = str_is(name, "bash_code_execution") && messages_id_is_ours(id);
	if (str_is(name, "openrouter:shell"))
		tool = &tool_shell;
	else if (str_is(name, "openrouter:bash"))
		tool = bash_tool();
	else if (coded)
		tool = tool_of_code_execution(p, input);
	if (!tool || id.n == 0)
		return 0;
	*ret_known = true;
	it = messages_items_add(p, ITEM_CALL);
	if (!it)
		return -ERR_NOMEM;
	it->role = ROLE_ASSISTANT;
	it->call.tool = tool;
	it->call.entry = entry_of(p, tool);
	it->call.name = it->call.entry ? it->call.entry->name : str_of(tool->name);
	it->call.public_id = conversation_copy(c, messages_id_read(id, room), &ok);
	it->call.upstream_id = conversation_upstream_id(it->call.public_id, c->has_server_tool);
	param_join(inner, path, "input");
	rc = read_invalid(p, input, &invalid, &it->call.arguments);
	if (rc || invalid)
		return rc;
	if (coded && tool == &tool_shell)
		rc = read_shell_input(p, input, inner, &it->call.arguments);
	else
		rc = messages_compact(p, input, &it->call.arguments);
	return rc || ok ? rc : param_fail_memory(&p->in);
}

/* ---- results ---- */

/* The container that a replayed result names; the last one of ours in the messages is used again.
 */
static int note_container(struct messages_parser *p, const struct json *v, const char *path,
        struct str call_id, struct str *ret)
{
	int rc = param_str(&p->in, v, path, "container_id", 0, ret);

	if (!rc && ret->p && api_container_id_valid(*ret) && !conversation_id_is_hosted(call_id))
		p->replayed_container = *ret;
	return rc;
}

static const struct tool *tool_of_result(
        const struct messages_parser *p, struct str public_id, const struct tool *usual)
{
	const struct conversation *c = p->conversation;

	for (size_t i = c->n_items; i > 0 && c->n_items - i < LOOK_BACK; i--) {
		const struct item *it = c->items[i - 1];

		if (it->type == ITEM_CALL && it->call.tool && str_eq(it->call.public_id, public_id))
			return it->call.tool;
	}
	return usual;
}

/* content: {output: [...], error?}; or the list alone, as one page of documentation draws it. */
static int read_shell_content(
        struct messages_parser *p, const struct json *content, const char *path, struct result *r)
{
	const struct json *list = json_is(content, JSON_ARRAY) ? content : NULL;
	char inner[PARAM_PATH];
	int rc = 0;

	if (!list) {
		rc = param_str(&p->in, content, path, "error", 0, &r->error);
		if (!rc)
			rc = param_container(&p->in, content, path, "output", JSON_ARRAY, &list);
		param_join(inner, path, "output");
	} else {
		str_copy(inner, sizeof(inner), str_of(path));
	}
	if (!rc && list)
		rc = outputs_read(&p->in, list, inner, messages_index, r);
	if (!rc && !list && !r->error.p)
		r->error = STR("The result of this call was not kept.");
	return rc;
}

/* One output whose fields stand in an object, exit code under `key`. */
static int read_single(struct messages_parser *p, const struct json *v, const char *path,
        const char *key, struct result *r)
{
	struct command_output *o = arena_alloc(p->conversation->arena, sizeof(*o));
	int64_t code = 0;
	int rc;

	if (!o)
		return param_fail_memory(&p->in);
	o->done = true;
	rc = param_need_str(&p->in, v, path, "stdout", &o->out);
	if (!rc)
		rc = param_str(&p->in, v, path, "stderr", 0, &o->err);
	if (!rc)
		rc = param_whole(&p->in, v, path, key, INT_MIN, INT_MAX, NULL, &code);
	if (rc)
		return rc;
	if (!o->err.p)
		o->err = STR("");
	o->exit_code = (int)code;
	r->outputs = o;
	r->n_outputs = 1;
	return outputs_read_outcome(&p->in, v, path, o);
}

static int read_bash_content(
        struct messages_parser *p, const struct json *content, const char *path, struct result *r)
{
	int rc = param_str(&p->in, content, path, "error", 0, &r->error);

	if (rc)
		return rc;
	if (!json_absent(json_get(content, "stdout")))
		return read_single(p, content, path, "exitCode", r);
	if (!r->error.p)
		r->error = STR("The result of this call was not kept.");
	return 0;
}

/* bash_code_execution_result, or its error. */
static int read_coded_content(
        struct messages_parser *p, const struct json *content, const char *path, struct result *r)
{
	const struct json *list;
	char inner[PARAM_PATH];
	struct str code;
	int rc;

	if (str_ends(json_str(json_get(content, "type")), "_error")) {
		rc = param_str(&p->in, content, path, "error_message", 0, &r->error);
		if (!rc)
			rc = param_str(&p->in, content, path, "error_code", 0, &code);
		if (!rc && !r->error.n)
			r->error = code.n ? code : STR("The sandbox failed.");
		return rc;
	}
	rc = param_str(&p->in, content, path, "error", 0, &r->error);
	if (!rc)
		rc = param_container(&p->in, content, path, "output", JSON_ARRAY, &list);
	if (rc)
		return rc;
	if (list) {
		param_join(inner, path, "output");
		return outputs_read(&p->in, list, inner, messages_index, r);
	}
	rc = read_single(p, content, path, "return_code", r);
	if (!rc && json_absent(json_get(content, "outcome")) &&
	        r->outputs[0].exit_code == TIMED_OUT &&
	        str_is(json_str(json_get(content, "abort_reason")), "timeout"))
		r->outputs[0].outcome = OUTCOME_TIMEOUT;
	return rc;
}

static const struct {
	const char *type;
	int (*read)(struct messages_parser *p, const struct json *content, const char *path,
	        struct result *r);
	bool coded;
} result_rules[] = {
        {"openrouter_shell_tool_result", read_shell_content, false},
        {"openrouter_bash_tool_result", read_bash_content, false},
        {"bash_code_execution_tool_result", read_coded_content, true},
};

int messages_history_result(struct messages_parser *p, const struct json *v, const char *path,
        struct str type, bool *ret_known)
{
	const struct json *content = json_get(v, "content");
	const size_t n_rules = sizeof(result_rules) / sizeof(*result_rules);
	char inner[PARAM_PATH], room[MESSAGES_ID_SIZE];
	const struct tool *usual;
	struct item *it;
	struct str id;
	bool ok = true;
	size_t i = 0;
	int rc;

	while (i < n_rules && !str_is(type, result_rules[i].type))
		i++;
	*ret_known = i < n_rules;
	if (i == n_rules)
		return 0;
	rc = param_need_str(&p->in, v, path, "tool_use_id", &id);
	usual = result_rules[i].read == read_bash_content ? bash_tool() : &tool_shell;
	*ret_known = !rc && usual && (!result_rules[i].coded || messages_id_is_ours(id));
	if (rc || !*ret_known)
		return rc;
	it = messages_items_add(p, ITEM_RESULT);
	if (!it)
		return -ERR_NOMEM;
	it->result.public_id = conversation_copy(p->conversation, messages_id_read(id, room), &ok);
	if (!ok)
		return param_fail_memory(&p->in);
	it->result.tool = tool_of_result(p, it->result.public_id, usual);
	rc = note_container(p, v, path, it->result.public_id, &it->result.container_id);
	if (rc)
		return rc;
	if (!json_is(content, JSON_OBJECT) && !json_is(content, JSON_ARRAY))
		return param_fail_type(&p->in, content, path, "content", "an object");
	param_join(inner, path, "content");
	return result_rules[i].read(p, content, inner, &it->result);
}
