/*
 * tools and tool_choice.
 *
 * The tools stay declared also when none may be called, since they stand at the front of the
 * prompt. allowed_tools is not sent, except where it leaves one: the API has no such list, and the
 * turn enforces it. `strict` of another dialect is not sent: its rules for schemas differ.
 */
#include "provider/anthropic.h"

#include "base/mem.h"

#define TREE_MAX   ((size_t)64 << 20)
#define NAME_MAX   128
#define CALLED_MAX 64

static const char NAME_CHARS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

static bool is_good_name(struct str name)
{
	return str_in_set(name, NAME_CHARS) && name.n <= NAME_MAX;
}

static void make_good(struct str name, char *out)
{
	size_t n = 0;

	for (; n < name.n && n < NAME_MAX; n++) {
		struct str c = {name.p + n, 1};

		out[n] = str_in_set(c, NAME_CHARS) ? *c.p : '_';
	}
	out[n] = 0;
	if (!n)
		str_copy(out, NAME_MAX + 1, STR("invalid"));
}

/* Which declared tool it is, or n_tools. */
static size_t find_tool(const struct conversation *c, struct str name)
{
	size_t i = 0;

	while (i < c->n_tools && !str_eq(c->tools[i].name, name))
		i++;
	return i;
}

void anthropic_tool_name(const struct conversation *c, struct str name, char *out)
{
	size_t at;

	if (is_good_name(name)) {
		str_copy(out, NAME_MAX + 1, name);
		return;
	}
	make_good(name, out);
	at = find_tool(c, name);
	if (at == c->n_tools)
		return; /* a name that some model made up */
	/* Two that differ only in what was replaced must not become one. */
	if (strlen(out) > NAME_MAX - 8)
		out[NAME_MAX - 8] = 0;
	str_format(out + strlen(out), 8 + 1, "_%zu", at % 1000000);
}

struct str anthropic_tool_name_back(const struct conversation *c, struct str name)
{
	char sent[NAME_MAX + 1];

	for (size_t i = 0; i < c->n_tools; i++) {
		if (is_good_name(c->tools[i].name))
			continue;
		anthropic_tool_name(c, c->tools[i].name, sent);
		if (str_is(name, sent))
			return c->tools[i].name;
	}
	return name;
}

/* The API demands "type":"object" at the top, which other dialects let one leave out. */
static int write_schema(struct json_writer *w, struct str schema, struct error *err)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	const struct json *root;
	int r;

	jw_key(w, "input_schema");
	if (!schema.n) {
		jw_raw(w, STR("{\"type\":\"object\",\"properties\":{}}"));
		return 0;
	}
	r = json_parse(schema, TREE_MAX, &doc, err);
	root = json_root(doc);
	if (r < 0 || !json_is(root, JSON_OBJECT)) {
		jw_null(w);
		return r < 0 ? r
		             : error_param(err, ERR_INVALID, "tools",
		                       "a function's parameters must be a JSON schema object");
	}
	if (json_get(root, "type")) {
		jw_raw(w, schema);
		return 0;
	}
	jw_object(w);
	jw_kcstr(w, "type", "object");
	for (const struct json *v = json_first(root); v; v = json_next(v)) {
		jw_key_str(w, json_key(v));
		jw_raw(w, json_raw(v));
	}
	jw_end(w);
	return 0;
}

/* Of a server tool's entry only this says anything to the provider. */
static int write_cache_control(struct json_writer *w, struct str raw, struct error *err)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	const struct json *cache;
	int r = raw.n ? json_parse(raw, TREE_MAX, &doc, err) : 0;

	if (r < 0)
		return r;
	cache = json_get(json_root(doc), "cache_control");
	if (json_is(cache, JSON_OBJECT))
		jw_kraw(w, "cache_control", json_raw(cache));
	return 0;
}

static int write_tool(
        struct json_writer *w, const struct provider_call *pc, size_t at, struct error *err)
{
	const struct tool_entry *t = &pc->conversation->tools[at];
	bool same = anthropic_same_dialect(pc);
	char name[NAME_MAX + 1];
	int r = 0;

	if (t->kind != TOOL_SERVER && same && t->raw.n) {
		jw_raw(w, t->raw);
		return 0;
	}
	if (t->kind == TOOL_NATIVE) {
		char path[64];

		str_format(path, sizeof(path), "tools[%zu].type", at);
		return error_param(err, ERR_UNSUPPORTED, path,
		        "this provider has no tool of type %.*s, nor has this server: "
		        "GET /tools lists what it runs",
		        (int)(t->type.n > 64 ? 64 : t->type.n), t->type.p);
	}
	anthropic_tool_name(pc->conversation, t->name, name);
	jw_object(w);
	jw_kcstr(w, "name", name);
	if (t->kind == TOOL_SERVER) {
		jw_kcstr(w, "description", t->tool->description);
		jw_kraw(w, "input_schema", str_of(t->tool->schema));
		if (same)
			r = write_cache_control(w, t->raw, err);
	} else {
		if (t->description.n)
			jw_kstr(w, "description", t->description);
		r = write_schema(w, t->parameters, err);
	}
	jw_end(w);
	return r;
}

static void write_choice(struct json_writer *w, const struct provider_call *pc)
{
	const struct tool_choice *choice = &pc->call->choice;
	enum choice_mode mode = pc->call->tools_off ? CHOICE_NONE : choice->mode;
	bool alone = pc->conversation->settings.parallel_tool_calls == 0;
	struct str name = choice->name;
	char sent[NAME_MAX + 1];

	if (mode == CHOICE_REQUIRED && choice->restricted && choice->n_allowed == 1) {
		mode = CHOICE_NAMED;
		name = choice->allowed[0];
	}
	if (mode == CHOICE_AUTO && !alone)
		return; /* what it is anyway */
	jw_key(w, "tool_choice");
	jw_object(w);
	switch (mode) {
	case CHOICE_AUTO:
		jw_kcstr(w, "type", "auto");
		break;
	case CHOICE_NONE:
		jw_kcstr(w, "type", "none");
		break;
	case CHOICE_REQUIRED:
		jw_kcstr(w, "type", "any");
		break;
	case CHOICE_NAMED:
		anthropic_tool_name(pc->conversation, name, sent);
		jw_kcstr(w, "type", "tool");
		jw_kcstr(w, "name", sent);
		break;
	}
	if (alone && mode != CHOICE_NONE)
		jw_kbool(w, "disable_parallel_tool_use", true);
	jw_end(w);
}

/*
 * A history with calls in a request without tools: the API demands that tools are declared, so
 * those that were called are, and none may be called again.
 */
static void write_called(struct json_writer *w, const struct conversation *c)
{
	char names[CALLED_MAX][NAME_MAX + 1];
	size_t n = 0;

	for (size_t i = 0; i < c->n_items && n < CALLED_MAX; i++) {
		size_t k = 0;

		if (c->items[i]->type != ITEM_CALL)
			continue;
		anthropic_tool_name(c, c->items[i]->call.name, names[n]);
		while (k < n && strcmp(names[k], names[n]) != 0)
			k++;
		if (k < n)
			continue;
		if (n == 0) {
			jw_key(w, "tools");
			jw_array(w);
		}
		jw_object(w);
		jw_kcstr(w, "name", names[n++]);
		jw_kraw(w, "input_schema", STR("{\"type\":\"object\"}"));
		jw_end(w);
	}
	if (n == 0)
		return;
	jw_end(w);
	jw_kraw(w, "tool_choice", STR("{\"type\":\"none\"}"));
}

int anthropic_tools_write(struct json_writer *w, const struct provider_call *pc, struct error *err)
{
	const struct conversation *c = pc->conversation;
	int r = 0;

	if (!c->n_tools) {
		write_called(w, c);
		return 0;
	}
	jw_key(w, "tools");
	jw_array(w);
	for (size_t i = 0; i < c->n_tools && r == 0; i++)
		r = write_tool(w, pc, i, err);
	jw_end(w);
	if (r == 0)
		write_choice(w, pc);
	return r;
}
