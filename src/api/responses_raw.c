/*
 * Items that are shown as the provider wrote them, as a whole or in part, and calls for a shell
 * that the client has itself.
 *
 * An item's raw text lies in the conversation, is one line, and outlives the stream, so that its
 * spans are borrowed.
 */
#include "api/responses.h"

#include "tool/tool.h"

#define TREE_MAX ((size_t)128 << 20)

struct json_doc *responses_raw_doc(const struct item *it)
{
	struct json_doc *doc = NULL;

	if (it->raw.n && it->raw_dialect == DIALECT_OPENAI_RESPONSES &&
	        json_parse(it->raw, TREE_MAX, &doc, NULL) == 0)
		return doc;
	return NULL;
}

bool responses_raw_is_shown(const struct item *it)
{
	struct json_doc *doc;
	bool shown;

	if (it->type != ITEM_OTHER)
		return true;
	doc = responses_raw_doc(it);
	shown = json_str(json_get(json_root(doc), "type")).n > 0;
	json_doc_free(doc);
	return shown;
}

void responses_raw_id(const struct item *it, char *out, size_t size)
{
	_cleanup_json_ struct json_doc *doc = responses_raw_doc(it);
	struct str id = json_str(json_get(json_root(doc), "id"));

	if (id.n < size)
		str_copy(out, size, id);
}

/* As it is announced a shell's item holds nothing yet of what its events then tell. */
static void write_announced(
        struct ropewriter *w, const struct responses_slot *slot, const struct json *m)
{
	struct json_writer *j = &w->json;

	if (slot->local && str_is(json_key(m), "status")) {
		jw_kcstr(j, "status", "in_progress");
	} else if (slot->local && str_is(json_key(m), "action")) {
		responses_write_action(w, NULL);
	} else if (slot->result && str_is(json_key(m), "output")) {
		jw_key(j, "output");
		jw_array(j);
		jw_end(j);
	} else {
		jw_key_str(j, json_key(m));
		ropewriter_raw(w, json_raw(m));
	}
}

/* An item must have an id: one that came without it gets the slot's. */
void responses_raw_item(struct ropewriter *w, const struct responses_slot *slot, bool fresh)
{
	_cleanup_json_ struct json_doc *doc = responses_raw_doc(slot->item);
	bool announced = fresh && (slot->local || slot->result);
	const struct json *root = json_root(doc);
	bool has_id = json_str(json_get(root, "id")).n > 0;

	if (has_id && !announced) {
		ropewriter_raw(w, slot->item->raw);
		return;
	}
	jw_object(&w->json);
	if (!has_id)
		jw_kcstr(&w->json, "id", slot->id);
	for (const struct json *m = json_first(root); m; m = json_next(m)) {
		if (str_is(json_key(m), "id") && !has_id)
			continue;
		if (announced) {
			write_announced(w, slot, m);
			continue;
		}
		jw_key_str(&w->json, json_key(m));
		ropewriter_raw(w, json_raw(m));
	}
	jw_end(&w->json);
}

/* ---- a provider's own shell ---- */

static struct str keep(struct conversation *c, const struct json *v)
{
	bool ok = true;

	return conversation_copy(c, json_str(v), &ok);
}

static void read_shell_call(
        struct conversation *c, struct responses_slot *slot, const struct json *root)
{
	const struct json *list = json_get(json_get(root, "action"), "commands");
	struct tool_call *call = arena_alloc(c->arena, sizeof(*call));

	if (!call || !json_is(list, JSON_ARRAY))
		return;
	call->commands = arena_alloc(c->arena, (json_count(list) + 1) * sizeof(*call->commands));
	if (!call->commands)
		return;
	for (const struct json *v = json_first(list); v; v = json_next(v))
		call->commands[call->n_commands++] = keep(c, v);
	slot->local = call;
}

static void read_shell_output(
        struct conversation *c, struct responses_slot *slot, const struct json *root)
{
	const struct json *list = json_get(root, "output");
	struct item *it = arena_alloc(c->arena, sizeof(*it));
	struct result *r;

	if (!it || !json_is(list, JSON_ARRAY))
		return;
	r = &it->result;
	r->outputs = arena_alloc(c->arena, (json_count(list) + 1) * sizeof(*r->outputs));
	if (!r->outputs)
		return;
	for (const struct json *v = json_first(list); v; v = json_next(v)) {
		struct command_output *o = &r->outputs[r->n_outputs++];
		const struct json *outcome = json_get(v, "outcome");
		int64_t code = 0;

		o->out = keep(c, json_get(v, "stdout"));
		o->err = keep(c, json_get(v, "stderr"));
		o->outcome = str_is(json_str(json_get(outcome, "type")), "timeout")
		                     ? OUTCOME_TIMEOUT
		                     : OUTCOME_EXIT;
		if (json_i64(json_get(outcome, "exit_code"), &code))
			o->exit_code = (int)code;
		o->done = true;
	}
	slot->result = it;
}

void responses_raw_shell(struct conversation *c, struct responses_slot *slot)
{
	_cleanup_json_ struct json_doc *doc = responses_raw_doc(slot->item);
	const struct json *root = json_root(doc);
	struct str type = json_str(json_get(root, "type"));

	if (str_is(type, "shell_call"))
		read_shell_call(c, slot, root);
	else if (str_is(type, "shell_call_output"))
		read_shell_output(c, slot, root);
}

bool responses_raw_content(struct ropewriter *w, const struct item *it)
{
	_cleanup_json_ struct json_doc *doc = responses_raw_doc(it);
	const struct json *content = json_get(json_root(doc), "content");

	if (!json_is(content, JSON_ARRAY) || json_count(content) == 0)
		return false;
	jw_key(&w->json, "content");
	ropewriter_raw(w, json_raw(content));
	return true;
}

const struct json *responses_raw_part(const struct json_doc *doc, size_t number)
{
	for (const struct json *c = json_first(json_get(json_root(doc), "content")); c;
	        c = json_next(c)) {
		bool says = json_str(json_get(c, "text")).n > 0 ||
		            json_str(json_get(c, "refusal")).n > 0;

		if (says && number-- == 0)
			return c;
	}
	return NULL;
}

void responses_raw_extras(struct ropewriter *w, const struct item *it)
{
	static const char *const told[] = {"id", "type", "status", "role", "content", "call_id",
	        "name", "arguments", "encrypted_content", NULL};
	_cleanup_json_ struct json_doc *doc = responses_raw_doc(it);

	for (const struct json *m = json_first(json_root(doc)); m; m = json_next(m)) {
		size_t i = 0;

		while (told[i] && !str_is(json_key(m), told[i]))
			i++;
		if (told[i] || json_absent(m))
			continue;
		jw_key_str(&w->json, json_key(m));
		ropewriter_raw(w, json_raw(m));
	}
}

/* ---- shells of the client's ---- */

const struct tool_entry *responses_local_entry(
        const struct conversation *c, const struct item *call)
{
	for (size_t i = 0; i < c->n_tools; i++) {
		const struct tool_entry *t = &c->tools[i];

		if (t->kind == TOOL_FUNCTION && str_eq(t->name, call->call.name) &&
		        (str_is(t->type, "shell") || str_is(t->type, "local_shell")))
			return t;
	}
	return NULL;
}

/* {"type": "exec", "command": […], "env": {}, …} of local_shell; what is no call is an empty one.
 */
static void write_exec(struct ropewriter *w, const struct call *call, bool fresh)
{
	static const char *const members[] = {"timeout_ms", "working_directory"};
	struct json_doc *doc = NULL;
	const struct json *command;
	struct json_writer *j = &w->json;

	if (!fresh && json_parse(call->arguments, TREE_MAX, &doc, NULL) < 0)
		doc = NULL;
	command = json_get(json_root(doc), "command");
	jw_object(j);
	jw_kcstr(j, "type", "exec");
	jw_key(j, "command");
	jw_array(j);
	for (const struct json *v = json_first(command); v; v = json_next(v))
		if (json_is(v, JSON_STRING))
			jw_str(j, json_str(v));
	jw_end(j);
	jw_key(j, "env");
	jw_object(j);
	jw_end(j);
	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
		const struct json *v = json_get(json_root(doc), members[i]);

		if (json_is(v, JSON_STRING))
			jw_kstr(j, members[i], json_str(v));
		else if (json_is(v, JSON_NUMBER))
			jw_kraw(j, members[i], json_raw(v));
	}
	jw_end(j);
	json_doc_free(doc);
}

void responses_raw_local_call(struct ropewriter *w, const struct responses_slot *slot,
        const struct tool_entry *entry, bool fresh)
{
	const struct call *call = &slot->item->call;
	bool commands = str_is(entry->type, "shell");
	struct json_writer *j = &w->json;
	bool good = slot->state == SLOT_ENDED && !str_is(slot->item->status, "incomplete") &&
	            (!commands || slot->local);

	jw_object(j);
	jw_kcstr(j, "id", slot->id);
	jw_kcstr(j, "type", commands ? "shell_call" : "local_shell_call");
	jw_kcstr(j, "status", fresh ? "in_progress" : good ? "completed" : "incomplete");
	if (commands) {
		responses_write_action(w, fresh ? NULL : slot->local);
		jw_key(j, "environment");
		jw_object(j);
		jw_kcstr(j, "type", "local");
		jw_end(j);
	} else {
		jw_key(j, "action");
		write_exec(w, call, fresh);
	}
	jw_kstr(j, "call_id", call->public_id);
	jw_end(j);
}
