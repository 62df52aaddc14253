/*
 * Theory of operation: where a provider's own shell serves an entry of ours, the client must not
 * notice. The shell's two items, shell_call and shell_call_output, become a call and a result of
 * the server tool, as if a container of ours had run them: every api has a form for those, and a
 * replay brings them back. Their id says whose they are (CONVERSATION_HOSTED). Nothing is run for
 * them, so that they cost no sandbox time.
 *
 * OpenAI's own entry is left alone: its clients know these items as they are.
 */
#include "turn/internal.h"

#include "base/utf8.h"
#include "json/json.h"

#define TREE_MAX   ((size_t)192 << 20)
#define OWN_ID_MAX 28 /* what fits a public id behind its mark and CONVERSATION_HOSTED */
#define ID_CHARS   "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

static const struct tool_entry *hosted_entry(const struct conversation *c)
{
	for (size_t i = 0; i < c->n_tools; i++) {
		const struct tool_entry *e = &c->tools[i];
		const struct shell_settings *s = e->tool == &tool_shell ? e->settings : NULL;

		if (e->kind == TOOL_SERVER && s && s->may_be_native && !s->openai)
			return e;
	}
	return NULL;
}

/* ---- the call ---- */

/* Its own id may be too long for ours; the provider needs one only to match call and result. */
static void set_call_id(struct turn *t, struct item *call, struct str own)
{
	char id[64], made[64], public_id[65];
	bool hashed;

	if (own.n == 0 || own.n > OWN_ID_MAX || !str_in_set(own, ID_CHARS)) {
		turn_make_id(t, made, sizeof(made), "call_", 16);
		own = str_of(made);
	}
	str_format(id, sizeof(id), CONVERSATION_HOSTED "%.*s", (int)own.n, own.p);
	conversation_public_id(call->reply, str_of(id), true, public_id, &hashed);
	call->call.upstream_id = turn_copy(t, str_of(id));
	call->call.public_id = turn_copy(t, str_of(public_id));
}

static struct tool_call *read_action(struct turn *t, const struct json *action)
{
	const struct json *list = json_get(action, "commands");
	struct tool_call *call = arena_alloc(t->c->arena, sizeof(*call));

	if (call)
		call->commands =
		        arena_alloc(t->c->arena, (json_count(list) + 1) * sizeof(*call->commands));
	if (!call || !call->commands) {
		turn_no_memory(t);
		return NULL;
	}
	for (const struct json *v = json_first(list); v; v = json_next(v))
		call->commands[call->n_commands++] = turn_copy(t, json_str(v));
	call->has_timeout = json_i64(json_get(action, "timeout_ms"), &call->asked_timeout);
	call->has_output = json_i64(json_get(action, "max_output_length"), &call->asked_output);
	return call;
}

static void call_begin(struct turn *t, const struct tool_entry *entry, const struct json *root)
{
	struct item *call = conversation_add(t->c, ITEM_CALL), *result;
	struct buf arguments = BUF_INIT(SIZE_MAX / 2);
	struct call *k;

	if (!call) {
		turn_no_memory(t);
		return;
	}
	k = &call->call;
	call->reply = t->upstream.reply;
	call->role = ROLE_ASSISTANT;
	call->output = true;
	call->status = STR("completed");
	k->tool = entry->tool;
	k->entry = entry;
	k->name = entry->name;
	k->container_id =
	        turn_copy(t, json_str(json_get(json_get(root, "environment"), "container_id")));
	set_call_id(t, call, json_str(json_get(root, "call_id")));
	k->parsed = read_action(t, json_get(root, "action"));
	if (!k->parsed)
		return;
	if (entry->tool->write_arguments(k->parsed, &arguments))
		turn_no_memory(t);
	else
		k->arguments = turn_copy(t, (struct str){arguments.data, arguments.len});
	buf_free(&arguments);
	result = calls_result_add(t, call);
	if (!result)
		return;
	result->result.container_id = k->container_id;
	calls_set_ids(t, call, result);
	t->n_requested++;
	t->runs++;
	effect_item(t, OUT_TOOL_BEGIN, call, result);
}

/* ---- its result ---- */

static bool is_waiting(const struct item *it)
{
	return it->type == ITEM_CALL && it->output && it->call.result &&
	       it->call.result->status.n == 0 && conversation_id_is_hosted(it->call.upstream_id);
}

/* The call of this id that has no result yet; where none has it, the first one. */
static struct item *waiting_call(const struct turn *t, struct str own)
{
	size_t n = sizeof(CONVERSATION_HOSTED) - 1;
	struct item *first = NULL;

	for (size_t i = 0; i < t->c->n_items; i++) {
		struct item *it = t->c->items[i];

		if (!is_waiting(it))
			continue;
		if (str_eq((struct str){it->call.upstream_id.p + n, it->call.upstream_id.n - n},
		            own))
			return it;
		if (!first)
			first = it;
	}
	return first;
}

static void read_output(struct turn *t, const struct json *v, struct command_output *o)
{
	const struct json *outcome = json_get(v, "outcome");
	int64_t code = 0;

	o->out = turn_copy(t, json_str(json_get(v, "stdout")));
	o->err = turn_copy(t, json_str(json_get(v, "stderr")));
	o->out_chars = utf8_count(o->out.p ? o->out.p : "", o->out.n);
	o->err_chars = utf8_count(o->err.p ? o->err.p : "", o->err.n);
	if (!o->out.p)
		o->out = STR("");
	if (!o->err.p)
		o->err = STR("");
	if (str_is(json_str(json_get(outcome, "type")), "timeout"))
		o->outcome = OUTCOME_TIMEOUT;
	else if (json_i64(json_get(outcome, "exit_code"), &code) && code >= 0 && code <= 255)
		o->exit_code = (int)code;
	else
		o->exit_code = 1;
	o->done = true;
}

static void show_output(struct turn *t, struct item *call, struct item *result, size_t command)
{
	const struct command_output *o = &result->result.outputs[command];

	for (int stream = 0; stream < 2 && t->o.streamed; stream++) {
		struct str text = stream ? o->err : o->out;

		if (text.n > 0)
			effect_emit(t, &(struct turn_output){
			                       .type = OUT_TOOL_OUTPUT,
			                       .item = call,
			                       .result = result,
			                       .command = command,
			                       .is_stderr = stream == 1,
			                       .text = text,
			               });
	}
	effect_emit(t, &(struct turn_output){
	                       .type = OUT_TOOL_COMMAND,
	                       .item = call,
	                       .result = result,
	                       .command = command,
	               });
}

static void call_over(struct turn *t, struct item *call, const char *error)
{
	struct item *result = call->call.result;

	if (error)
		result->result.error = str_of(error);
	result->status = error ? STR("incomplete") : STR("completed");
	/* As in calls_ended(). */
	if (result->id.n == 0)
		call->status = result->status;
	effect_item(t, OUT_TOOL_END, call, result);
}

static void call_result(struct turn *t, const struct json *root)
{
	struct item *call = waiting_call(t, json_str(json_get(root, "call_id")));
	const struct json *list = json_get(root, "output");
	struct result *r;
	int64_t most = 0;

	if (!call)
		return; /* of nobody's call */
	r = &call->call.result->result;
	r->outputs = arena_alloc(t->c->arena, (json_count(list) + 1) * sizeof(*r->outputs));
	if (!r->outputs) {
		turn_no_memory(t);
		return;
	}
	if (json_i64(json_get(root, "max_output_length"), &most) && most > 0)
		r->max_output_length = most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
	for (const struct json *v = json_first(list);
	        v && r->n_outputs < call->call.parsed->n_commands; v = json_next(v)) {
		read_output(t, v, &r->outputs[r->n_outputs]);
		r->n_outputs++;
		show_output(t, call, call->call.result, r->n_outputs - 1);
	}
	t->n_executed++;
	call_over(t, call, r->n_outputs ? NULL : "The provider's shell gave no output.");
	/* To any other model what was said after a result is a reply of its own. */
	if (!waiting_call(t, (struct str){NULL, 0}))
		t->upstream.reply = t->c->next_reply++;
}

/* ---- the seam ---- */

bool hosted_item(struct turn *t, const struct stream_event *ev)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	const struct tool_entry *entry = hosted_entry(t->c);
	struct str type;

	if (!entry || ev->raw.n == 0 || ev->raw_dialect != DIALECT_OPENAI_RESPONSES ||
	        json_parse(ev->raw, TREE_MAX, &doc, NULL) < 0)
		return false;
	type = json_str(json_get(json_root(doc), "type"));
	if (str_is(type, "shell_call"))
		call_begin(t, entry, json_root(doc));
	else if (str_is(type, "shell_call_output"))
		call_result(t, json_root(doc));
	else
		return false;
	return true;
}

void hosted_end(struct turn *t)
{
	if (!hosted_entry(t->c))
		return;
	for (size_t i = 0; i < t->c->n_items; i++)
		if (is_waiting(t->c->items[i]))
			call_over(t, t->c->items[i],
			        "The provider's shell gave no result for this call.");
}
