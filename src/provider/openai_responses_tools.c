/*
 * `tools` and `tool_choice`. A client's own entry of this dialect goes as it came, so that members
 * which only the dialect knows are kept; server tools are declared as functions.
 */
#include "provider/openai_responses.h"

#define TREE_MAX ((size_t)16 << 20)

static void write_server_tool(struct json_writer *w, const struct tool_entry *t)
{
	jw_object(w);
	jw_kcstr(w, "type", "function");
	jw_kstr(w, "name", t->name);
	jw_kcstr(w, "description", t->tool->description);
	jw_kraw(w, "parameters", str_of(t->tool->schema));
	/* Left out it would be true here, and the schema read as if each argument had to be given.
	 */
	jw_kbool(w, "strict", false);
	jw_end(w);
}

static void write_function(struct json_writer *w, const struct tool_entry *t)
{
	jw_object(w);
	jw_kcstr(w, "type", "function");
	jw_kstr(w, "name", t->name);
	if (t->description.p)
		jw_kstr(w, "description", t->description);
	jw_kraw(w, "parameters",
	        t->parameters.n ? t->parameters : STR("{\"type\":\"object\",\"properties\":{}}"));
	jw_kbool(w, "strict",
	        t->strict == 1); /* where the other dialects leave it out it is false */
	jw_end(w);
}

static int refuse_native(const struct tool_entry *t, size_t index, struct error *err)
{
	char param[48];

	str_format(param, sizeof(param), "tools[%zu].type", index);
	return error_param(err, ERR_UNSUPPORTED, param,
	        "The tool '%.*s' belongs to another provider's API: the provider of this model has "
	        "no such "
	        "tool.",
	        (int)(t->type.n < 64 ? t->type.n : 64), t->type.p);
}

/* OpenAI's shell or local_shell, in a request of this dialect. */
static bool is_shell(const struct conversation *c, const struct tool_entry *t)
{
	return c->dialect == DIALECT_OPENAI_RESPONSES &&
	       (str_is(t->type, "shell") || str_is(t->type, "local_shell"));
}

/* An entry of our own that the provider's shell serves. */
static bool is_hosted(const struct provider_call *pc, const struct tool_entry *t)
{
	const struct shell_settings *s = provider_shell_settings(t);

	return s && !s->openai && s->may_be_native &&
	       provider_runs_shell(pc->target, pc->conversation);
}

static void write_hosted(struct json_writer *w, const struct tool_entry *t)
{
	const struct shell_settings *s = t->settings;
	bool reference = s->native_container.n > 0;

	jw_object(w);
	jw_kcstr(w, "type", "shell");
	jw_key(w, "environment");
	jw_object(w);
	jw_kcstr(w, "type", reference ? "container_reference" : "container_auto");
	if (reference)
		jw_kstr(w, "container_id", s->native_container);
	else if (s->network)
		jw_kraw(w, "network_policy",
		        s->network[0] ? str_of(s->network) : STR("{\"type\":\"disabled\"}"));
	jw_end(w);
	jw_end(w);
}

/* Our own sandbox runs it: can it do what is asked for? */
static int check_server_shell(const struct tool_entry *t, struct error *err)
{
	const struct shell_settings *s = t->settings;

	if (!s || !s->only_native)
		return 0;
	if (err)
		*err = *s->only_native;
	return -(int)s->only_native->code;
}

static int write_entries(struct json_writer *w, const struct provider_call *pc, struct error *err)
{
	const struct conversation *c = pc->conversation;
	bool own = c->dialect == DIALECT_OPENAI_RESPONSES;
	bool native = provider_runs_shell(pc->target, c);

	for (size_t i = 0; i < c->n_tools; i++) {
		const struct tool_entry *t = &c->tools[i];
		int r = 0;

		if (is_shell(c, t) && native)
			jw_raw(w, t->raw);
		else if (is_hosted(pc, t))
			write_hosted(w, t);
		else if (t->kind == TOOL_SERVER && (r = check_server_shell(t, err)) < 0)
			return r;
		else if (t->kind == TOOL_SERVER)
			write_server_tool(w, t);
		else if (is_shell(c, t))
			write_function(w, t);
		else if (own && t->raw.n)
			jw_raw(w, t->raw);
		else if (t->kind == TOOL_NATIVE)
			return refuse_native(t, i, err);
		else
			write_function(w, t);
	}
	return 0;
}

/* How a choice names an entry. */
static void write_named(struct json_writer *w, const struct provider_call *pc, struct str name)
{
	const struct conversation *c = pc->conversation;
	const struct tool_entry *t = NULL;
	struct json_doc *doc _cleanup_json_ = NULL;
	struct str label = {NULL, 0};

	for (size_t i = 0; i < c->n_tools && !t; i++)
		if (str_eq(c->tools[i].name, name))
			t = &c->tools[i];
	jw_object(w);
	if (t && is_hosted(pc, t)) {
		jw_kcstr(w, "type", "shell");
		jw_end(w);
		return;
	}
	if (!t || (t->kind != TOOL_NATIVE &&
	                  !(is_shell(c, t) && provider_runs_shell(pc->target, c)))) {
		jw_kcstr(w, "type", "function");
		jw_kstr(w, "name", name);
		jw_end(w);
		return;
	}
	jw_kstr(w, "type", t->type);
	if (str_is(t->type, "custom"))
		jw_kstr(w, "name", name);
	if (str_is(t->type, "mcp") && json_parse(t->raw, TREE_MAX, &doc, NULL) == 0)
		label = json_str(json_get(json_root(doc), "server_label"));
	if (label.n)
		jw_kstr(w, "server_label", label);
	jw_end(w);
}

static void write_allowed(
        struct json_writer *w, const struct provider_call *pc, const struct tool_choice *choice)
{
	jw_key(w, "tool_choice");
	jw_object(w);
	jw_kcstr(w, "type", "allowed_tools");
	jw_kcstr(w, "mode", choice->mode == CHOICE_REQUIRED ? "required" : "auto");
	jw_key(w, "tools");
	jw_array(w);
	for (size_t i = 0; i < choice->n_allowed; i++)
		write_named(w, pc, choice->allowed[i]);
	jw_end(w);
	jw_end(w);
}

static void write_choice(struct json_writer *w, const struct provider_call *pc,
        const struct tool_choice *choice, enum choice_mode mode)
{
	switch (mode) {
	case CHOICE_AUTO: /* every server's default */
		if (choice->restricted)
			write_allowed(w, pc, choice);
		break;
	case CHOICE_NONE:
		jw_kcstr(w, "tool_choice", "none");
		break;
	case CHOICE_REQUIRED:
		if (choice->restricted)
			write_allowed(w, pc, choice);
		else
			jw_kcstr(w, "tool_choice", "required");
		break;
	case CHOICE_NAMED:
		jw_key(w, "tool_choice");
		write_named(w, pc, choice->name);
		break;
	}
}

/* The tools stay declared also when none may be called, since they stand at the front of the
 * prompt. */
int openai_responses_tools_write(
        struct json_writer *w, const struct provider_call *pc, struct error *err)
{
	const struct conversation *c = pc->conversation;
	const struct upstream_call *call = pc->call;
	int r;

	if (!c->n_tools)
		return 0;
	jw_key(w, "tools");
	jw_array(w);
	r = write_entries(w, pc, err);
	if (r < 0)
		return r;
	jw_end(w);
	write_choice(w, pc, &call->choice, call->tools_off ? CHOICE_NONE : call->choice.mode);
	if (c->settings.parallel_tool_calls >= 0)
		jw_kbool(w, "parallel_tool_calls", c->settings.parallel_tool_calls != 0);
	return 0;
}
