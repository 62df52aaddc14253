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

static struct json_doc *raw_doc(const struct item *it)
{
	struct json_doc *doc = NULL;

	if (it->raw.n && it->raw_dialect == DIALECT_OPENAI_RESPONSES &&
	        json_parse(it->raw, TREE_MAX, &doc, NULL) == 0)
		return doc;
	return NULL;
}

void responses_raw_id(const struct item *it, char *out, size_t size)
{
	_cleanup_json_ struct json_doc *doc = raw_doc(it);
	struct str id = json_str(json_get(json_root(doc), "id"));

	if (id.n < size)
		str_copy(out, size, id);
}

/* An item must have an id: one that came without it gets the slot's. */
void responses_raw_item(struct ropewriter *w, const struct responses_slot *slot)
{
	_cleanup_json_ struct json_doc *doc = raw_doc(slot->item);
	const struct json *root = json_root(doc);

	if (json_str(json_get(root, "id")).n > 0) {
		ropewriter_raw(w, slot->item->raw);
		return;
	}
	jw_object(&w->json);
	jw_kcstr(&w->json, "id", slot->id);
	for (const struct json *m = json_first(root); m; m = json_next(m)) {
		if (str_is(json_key(m), "id"))
			continue;
		jw_key_str(&w->json, json_key(m));
		ropewriter_raw(w, json_raw(m));
	}
	jw_end(&w->json);
}

bool responses_raw_content(struct ropewriter *w, const struct item *it)
{
	_cleanup_json_ struct json_doc *doc = raw_doc(it);
	const struct json *content = json_get(json_root(doc), "content");

	if (!json_is(content, JSON_ARRAY) || json_count(content) == 0)
		return false;
	jw_key(&w->json, "content");
	ropewriter_raw(w, json_raw(content));
	return true;
}

void responses_raw_extras(struct ropewriter *w, const struct item *it)
{
	static const char *const told[] = {"id", "type", "status", "role", "content", "call_id",
	        "name", "arguments", "encrypted_content", NULL};
	_cleanup_json_ struct json_doc *doc = raw_doc(it);

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
