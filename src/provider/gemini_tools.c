/*
 * `tools` and `toolConfig`. Schemas go as JSON Schema (parametersJsonSchema), as they came, so that
 * no keyword and no order of keys is lost; a Gemini client's own declarations and the provider's
 * own tools go raw.
 */
#include "provider/gemini.h"

#define TREE_MAX ((size_t)16 << 20)

static bool is_declaration(const struct tool_entry *t)
{
	return t->kind != TOOL_NATIVE;
}

static void write_declaration(
        struct json_writer *w, const struct conversation *c, const struct tool_entry *t)
{
	if (t->kind == TOOL_FUNCTION && c->dialect == DIALECT_GEMINI && t->raw.n) {
		jw_raw(w, t->raw);
		return;
	}
	jw_object(w);
	jw_kstr(w, "name", t->name);
	if (t->kind == TOOL_SERVER) {
		jw_kcstr(w, "description", t->tool->description);
		jw_kraw(w, "parametersJsonSchema", str_of(t->tool->schema));
	} else {
		if (t->description.n)
			jw_kstr(w, "description", t->description);
		if (t->parameters.n)
			jw_kraw(w, "parametersJsonSchema", t->parameters);
	}
	jw_end(w);
}

static int refuse_native(const struct tool_entry *t, size_t index, struct error *err)
{
	char path[32];
	char type[65];

	str_format(path, sizeof(path), "tools[%zu]", index);
	str_copy(type, sizeof(type), t->type);
	return error_param(err, ERR_UNSUPPORTED, path,
	        "The tool '%s' belongs to another provider: the model that was asked for cannot "
	        "use it.",
	        type);
}

static int write_tools(struct json_writer *w, const struct conversation *c, struct error *err)
{
	bool open = false;

	jw_key(w, "tools");
	jw_array(w);
	for (size_t i = 0; i < c->n_tools; i++) {
		if (!is_declaration(&c->tools[i]))
			continue;
		if (!open) {
			jw_object(w);
			jw_key(w, "functionDeclarations");
			jw_array(w);
			open = true;
		}
		write_declaration(w, c, &c->tools[i]);
	}
	if (open) {
		jw_end(w);
		jw_end(w);
	}
	for (size_t i = 0; i < c->n_tools; i++) {
		const struct tool_entry *t = &c->tools[i];

		if (t->kind != TOOL_NATIVE)
			continue;
		if (c->dialect != DIALECT_GEMINI)
			return refuse_native(t, i, err);
		jw_raw(w, t->raw);
	}
	jw_end(w);
	return 0;
}

/* Functions beside the provider's own tools: it wants to be told that we can take both. */
static bool is_mixed(const struct provider_call *pc)
{
	const struct conversation *c = pc->conversation;
	bool declared = false, native = false;

	for (size_t i = 0; i < c->n_tools; i++) {
		declared |= is_declaration(&c->tools[i]);
		native |= !is_declaration(&c->tools[i]);
	}
	return declared && native && gemini_model_is_new(pc->target->model);
}

/* allowedFunctionNames is known with ANY only; beside AUTO the turn enforces it. */
static void write_calling(struct json_writer *w, const struct tool_choice *choice, bool off)
{
	enum choice_mode mode = off ? CHOICE_NONE : choice->mode;

	jw_key(w, "functionCallingConfig");
	jw_object(w);
	jw_kcstr(w, "mode", mode == CHOICE_NONE ? "NONE" : "ANY");
	if (mode == CHOICE_NAMED || (mode == CHOICE_REQUIRED && choice->restricted)) {
		jw_key(w, "allowedFunctionNames");
		jw_array(w);
		if (mode == CHOICE_NAMED)
			jw_str(w, choice->name);
		for (size_t i = 0; mode == CHOICE_REQUIRED && i < choice->n_allowed; i++)
			jw_str(w, choice->allowed[i]);
		jw_end(w);
	}
	jw_end(w);
}

/*
 * config: the client's own toolConfig or NULL; calling: its functionCallingConfig still holds,
 * since the turn wants no other than the client.
 */
static void write_config(struct json_writer *w, const struct provider_call *pc,
        const struct json *config, bool calling)
{
	const struct upstream_call *call = pc->call;
	bool mixed = is_mixed(pc);

	jw_key(w, "toolConfig");
	jw_object(w);
	for (const struct json *v = json_first(config); v; v = json_next(v)) {
		struct str key = json_key(v);

		if (!calling && (str_is(key, "functionCallingConfig") ||
		                        str_is(key, "function_calling_config")))
			continue;
		mixed &= !str_is(key, "includeServerSideToolInvocations") &&
		         !str_is(key, "include_server_side_tool_invocations");
		jw_key_str(w, key);
		jw_raw(w, json_raw(v));
	}
	if (!calling && (call->tools_off || call->choice.mode != CHOICE_AUTO))
		write_calling(w, &call->choice, call->tools_off);
	if (mixed)
		jw_kbool(w, "includeServerSideToolInvocations", true);
	jw_end(w);
}

/* The tools stay declared also when none may be called, since they stand at the front of the
 * prompt. */
int gemini_tools_write(struct json_writer *w, const struct provider_call *pc, struct error *err)
{
	const struct conversation *c = pc->conversation;
	const struct upstream_call *call = pc->call;
	struct json_doc *doc _cleanup_json_ = NULL;
	struct str raw = gemini_extra(c, "toolConfig");
	bool calling;
	int r;

	if (raw.n && json_parse(raw, TREE_MAX, &doc, err) < 0)
		return error_param(err, ERR_INVALID, "toolConfig", "toolConfig cannot be read.");
	calling = !call->tools_off && call->choice.mode == c->choice.mode;
	if (c->n_tools) {
		r = write_tools(w, c, err);
		if (r < 0)
			return r;
	}
	if (json_count(json_root(doc)) || is_mixed(pc) ||
	        (c->n_tools && (call->tools_off || call->choice.mode != CHOICE_AUTO)))
		write_config(w, pc, json_root(doc), doc && calling);
	return 0;
}
