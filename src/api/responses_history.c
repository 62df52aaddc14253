/*
 * What brig's shell gave out and a client sends back: openrouter:shell, shell_call and
 * shell_call_output. It is history: nothing of it runs again, and a container that is long gone
 * does not matter. What the model reads of a result is a function of the fields read here.
 */
#include "api/outputs.h"
#include "api/responses.h"

#include "tool/tool.h"

/* A container that a replayed item names; the last one of ours in the input is used again. */
static int note_container(struct responses_parser *p, const struct json *v, const char *path,
        struct str call_id, struct str *ret)
{
	int rc = param_str(&p->in, v, path, "container_id", 0, ret);

	if (!rc && ret->p && api_container_id_valid(*ret) && !conversation_id_is_hosted(call_id))
		p->replayed_container = *ret;
	return rc;
}

static int parse_command_list(
        struct responses_parser *p, const struct json *list, const char *path, struct tool_call *t)
{
	char inner[PARAM_PATH];
	int rc;

	t->commands =
	        arena_alloc(p->conversation->arena, (json_count(list) + 1) * sizeof(*t->commands));
	if (!t->commands)
		return param_fail_memory(&p->in);
	for (const struct json *v = json_first(list); v; v = json_next(v)) {
		param_index(inner, path, t->n_commands);
		if (!json_is(v, JSON_STRING))
			return param_fail_type(&p->in, v, inner, NULL, "a string");
		rc = param_keep(&p->in, v, &t->commands[t->n_commands]);
		if (rc)
			return rc;
		t->n_commands++;
	}
	return 0;
}

/* The arguments that an `action` stands for, where the item has no raw ones. */
static int parse_action(struct responses_parser *p, const struct json *action, const char *path,
        const struct tool *tool, struct str *ret)
{
	struct tool_call t = {0};
	const struct json *list;
	char inner[PARAM_PATH];
	struct buf text;
	bool ok = true;
	int rc;

	rc = param_need_container(&p->in, action, path, "commands", JSON_ARRAY, &list);
	if (!rc)
		rc = param_whole(&p->in, action, path, "timeout_ms", INT64_MIN, INT64_MAX, NULL,
		        &t.asked_timeout);
	if (!rc)
		rc = param_whole(&p->in, action, path, "max_output_length", INT64_MIN, INT64_MAX,
		        NULL, &t.asked_output);
	param_join(inner, path, "commands");
	if (!rc)
		rc = parse_command_list(p, list, inner, &t);
	if (rc)
		return rc;
	t.has_timeout = !json_absent(json_get(action, "timeout_ms"));
	t.has_output = !json_absent(json_get(action, "max_output_length"));
	buf_init(&text, p->in.body.n * 8 + 4096);
	rc = tool->write_arguments(&t, &text);
	if (!rc)
		*ret = conversation_copy(p->conversation, (struct str){text.data, text.len}, &ok);
	buf_free(&text);
	return rc || !ok ? param_fail_memory(&p->in) : 0;
}

/* A provider's own shell gets its items back as they were: they name none of our replies. */
static void keep_native(
        struct responses_parser *p, struct item *it, const struct json *v, struct str call_id)
{
	if (conversation_id_reply(call_id) != REPLY_NONE) {
		p->ours = true;
		return;
	}
	it->raw = json_raw(v);
	it->raw_dialect = DIALECT_OPENAI_RESPONSES;
}

/* A shell's call from an item of either form. */
static int parse_shell_words(struct responses_parser *p, const struct json *v, const char *path,
        const struct tool *tool, struct item *it)
{
	const struct json *action;
	char inner[PARAM_PATH];
	int rc;

	it->call.tool = tool;
	if (p->shell && p->shell->tool == tool)
		it->call.entry = p->shell;
	it->call.name = it->call.entry ? it->call.entry->name : str_of(tool->name);
	rc = responses_items_head(p, v, path, it);
	if (!rc)
		rc = param_str(&p->in, v, path, "arguments", 0, &it->call.arguments);
	if (!rc)
		rc = param_container(&p->in, v, path, "action", JSON_OBJECT, &action);
	if (rc)
		return rc;
	if (it->call.arguments.p)
		return 0;
	if (!action)
		return param_fail_missing(&p->in, path, "action");
	param_join(inner, path, "action");
	return parse_action(p, action, inner, tool, &it->call.arguments);
}

/* A result that tells the model why there is none. */
void responses_history_no_result(struct item *result, struct str status)
{
	if (str_is(status, "in_progress"))
		result->result.error =
		        STR("This call was interrupted: it is not known how far it came.");
	else
		result->result.error = STR("The result of this call was not kept.");
}

static int parse_shell_result(struct responses_parser *p, const struct json *v, const char *path,
        const struct tool *tool, struct item *it)
{
	const struct json *list;
	char inner[PARAM_PATH];
	int rc;

	it->result.tool = tool;
	rc = note_container(p, v, path, it->result.public_id, &it->result.container_id);
	if (!rc)
		rc = param_str(&p->in, v, path, "error", 0, &it->result.error);
	if (!rc)
		rc = param_container(&p->in, v, path, "output", JSON_ARRAY, &list);
	if (rc)
		return rc;
	param_join(inner, path, "output");
	if (list)
		rc = outputs_read(&p->in, list, inner, param_index, &it->result);
	if (!rc && !list && !it->result.error.p)
		responses_history_no_result(it, it->status);
	return rc;
}

int responses_history_shell(
        struct responses_parser *p, const struct json *v, const char *path, size_t index)
{
	struct item *call = responses_items_add(p, ITEM_CALL, index), *result;
	struct str id;
	int rc;

	if (!call)
		return -ERR_NOMEM;
	p->ours = true;
	rc = parse_shell_words(p, v, path, &tool_shell, call);
	if (!rc && json_absent(json_get(v, "call_id")) && call->id.n > 0 &&
	        call->id.n <= RESPONSES_CALL_ID_MAX)
		id = call->id; /* call_id may be null there */
	else if (!rc)
		rc = responses_items_call_id(p, v, path, &id);
	if (rc)
		return rc;
	responses_items_set_call_id(p, call, id);
	result = responses_items_add(p, ITEM_RESULT, index);
	if (!result)
		return -ERR_NOMEM;
	result->result.public_id = id;
	result->status = call->status;
	return parse_shell_result(p, v, path, &tool_shell, result);
}

int responses_history_call(
        struct responses_parser *p, const struct json *v, const char *path, size_t index)
{
	struct item *it = responses_items_add(p, ITEM_CALL, index);
	const struct json *environment;
	char inner[PARAM_PATH];
	struct str id, ignored;
	int rc;

	if (!it)
		return -ERR_NOMEM;
	rc = parse_shell_words(p, v, path, &tool_shell, it);
	if (!rc)
		rc = responses_items_call_id(p, v, path, &id);
	if (!rc)
		rc = param_container(&p->in, v, path, "environment", JSON_OBJECT, &environment);
	param_join(inner, path, "environment");
	if (!rc)
		rc = note_container(p, environment, inner, id, &ignored);
	if (rc)
		return rc;
	responses_items_set_call_id(p, it, id);
	keep_native(p, it, v, id);
	return 0;
}

int responses_history_output(
        struct responses_parser *p, const struct json *v, const char *path, size_t index)
{
	struct item *it = responses_items_add(p, ITEM_RESULT, index);
	int64_t length = 0;
	int rc;

	if (!it)
		return -ERR_NOMEM;
	rc = responses_items_head(p, v, path, it);
	if (!rc)
		rc = responses_items_call_id(p, v, path, &it->result.public_id);
	if (!rc)
		rc = param_whole(&p->in, v, path, "max_output_length", 0, INT64_MAX, NULL, &length);
	if (rc)
		return rc;
	it->result.max_output_length = length > UINT32_MAX ? UINT32_MAX : (uint32_t)length;
	keep_native(p, it, v, it->result.public_id);
	return parse_shell_result(p, v, path, &tool_shell, it);
}

/* ---- local_shell: one program on the client's computer ---- */

/* The arguments that its `action` stands for. */
static int local_arguments(struct responses_parser *p, const struct json *action, struct str *ret)
{
	static const char *const members[] = {"command", "timeout_ms", "working_directory"};
	struct buf text = BUF_INIT(p->in.body.n * 8 + 4096);
	struct json_writer w;
	bool ok = true;

	jw_init(&w, &text);
	jw_object(&w);
	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
		const struct json *m = json_get(action, members[i]);

		if (!json_absent(m))
			jw_kraw(&w, members[i], json_raw(m));
	}
	jw_end(&w);
	*ret = conversation_copy(p->conversation, (struct str){text.data, text.len}, &ok);
	buf_free(&text);
	return ok ? 0 : param_fail_memory(&p->in);
}

int responses_history_local_call(
        struct responses_parser *p, const struct json *v, const char *path, size_t index)
{
	struct item *it = responses_items_add(p, ITEM_CALL, index);
	const struct json *action, *command;
	char inner[PARAM_PATH];
	struct str id;
	int rc;

	if (!it)
		return -ERR_NOMEM;
	it->call.name = STR("local_shell");
	rc = responses_items_head(p, v, path, it);
	if (!rc)
		rc = responses_items_call_id(p, v, path, &id);
	if (!rc)
		rc = param_need_container(&p->in, v, path, "action", JSON_OBJECT, &action);
	param_join(inner, path, "action");
	if (!rc)
		rc = param_need_container(&p->in, action, inner, "command", JSON_ARRAY, &command);
	if (!rc)
		rc = local_arguments(p, action, &it->call.arguments);
	if (rc)
		return rc;
	responses_items_set_call_id(p, it, id);
	keep_native(p, it, v, id);
	return 0;
}

/* Its `output` is one text. The call is named by call_id, or, as OpenAI's schema has it, by id. */
int responses_history_local_output(
        struct responses_parser *p, const struct json *v, const char *path, size_t index)
{
	struct item *it = responses_items_add(p, ITEM_RESULT, index);
	struct str output;
	int rc;

	if (!it)
		return -ERR_NOMEM;
	rc = responses_items_head(p, v, path, it);
	if (!rc && json_absent(json_get(v, "call_id")) && it->id.n > 0)
		it->result.public_id = it->id;
	else if (!rc)
		rc = responses_items_call_id(p, v, path, &it->result.public_id);
	if (!rc)
		rc = param_need_str(&p->in, v, path, "output", &output);
	if (rc)
		return rc;
	it->result.parts = conversation_parts(p->conversation, 1);
	if (!it->result.parts)
		return param_fail_memory(&p->in);
	it->result.parts[0] = (struct part){.type = PART_TEXT, .text = output};
	it->result.n_parts = 1;
	keep_native(p, it, v, it->result.public_id);
	return 0;
}
