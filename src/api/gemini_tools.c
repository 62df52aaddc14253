/*
 * `tools` and `toolConfig`. An element of `tools` holds functions, or is named by the one key it
 * has: brigShell is the server's shell, any other key a tool of Google's own, which only its models
 * can use and which goes on as it came.
 */
#include "api/gemini.h"

#include "api/tools.h"

enum { TOOLS_MAX = 1024, NAME_MAX_BYTES = 128 };

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-"

/* Room was made for as many as there can be. */
static struct tool_entry *add(struct gemini_parser *p, enum tool_kind kind, struct str type)
{
	struct tool_entry *t = &p->conversation->tools[p->conversation->n_tools++];

	t->kind = kind;
	t->type = type;
	t->strict = -1;
	return t;
}

/* ---- functions ---- */

static int parse_name(
        struct gemini_parser *p, const struct json *v, const char *path, struct str *ret)
{
	int rc = param_need_str(&p->in, v, path, "name", ret);

	if (rc)
		return rc;
	if (ret->n > NAME_MAX_BYTES || !str_in_set(*ret, NAME_CHARS))
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "name",
		        "Invalid '%s.name': a function's name has 1 to %d of the characters a-z, "
		        "A-Z, 0-9, "
		        "'_', '.', ':' and '-'.",
		        path, NAME_MAX_BYTES);
	if (tools_named(p->conversation, *ret))
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "name",
		        "Duplicate function declaration found: '%s'.", param_show(*ret).text);
	return 0;
}

static int parse_parameters(
        struct gemini_parser *p, const struct json *v, const char *path, struct str *ret)
{
	char key[GEMINI_KEY], schema_key[GEMINI_KEY];
	const struct json *parameters, *schema;
	struct buf text;
	bool ok = true;
	int rc;

	rc = param_container(
	        &p->in, v, path, gemini_parse_key(v, "parameters", key), JSON_OBJECT, &parameters);
	if (!rc)
		rc = param_container(&p->in, v, path,
		        gemini_parse_key(v, "parametersJsonSchema", schema_key), JSON_OBJECT,
		        &schema);
	if (rc)
		return rc;
	if (parameters && schema)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, schema_key,
		        "Only one of 'parameters' and 'parametersJsonSchema' may be given.");
	if (schema)
		*ret = json_raw(schema);
	if (!parameters)
		return 0;
	buf_init(&text, json_raw(parameters).n + 1);
	if (gemini_schema_convert(json_raw(parameters), &text) == 0)
		*ret = conversation_copy(
		        p->conversation, (struct str){buf_cstr(&text), text.len}, &ok);
	else
		ok = false;
	buf_free(&text);
	return ok ? 0 : param_fail_memory(&p->in);
}

static int parse_function(struct gemini_parser *p, const struct json *v, const char *path)
{
	struct str name, description, parameters = {NULL, 0};
	struct tool_entry *t;
	int rc;

	if (!json_is(v, JSON_OBJECT))
		return param_fail_type(&p->in, v, path, NULL, "an object");
	rc = parse_name(p, v, path, &name);
	if (!rc)
		rc = param_str(&p->in, v, path, "description", 0, &description);
	if (!rc)
		rc = parse_parameters(p, v, path, &parameters);
	if (rc)
		return rc;
	t = add(p, TOOL_FUNCTION, STR("function"));
	t->name = name;
	t->description = description;
	t->parameters = parameters;
	t->raw = json_raw(v);
	return 0;
}

static int parse_functions(struct gemini_parser *p, const struct json *list, const char *path)
{
	char inner[PARAM_PATH];
	size_t i = 0;
	int rc = 0;

	if (json_is(list, JSON_OBJECT)) /* one, without its brackets */
		return parse_function(p, list, path);
	if (!json_is(list, JSON_ARRAY))
		return param_fail_type(&p->in, list, path, NULL, "an array");
	for (const struct json *v = json_first(list); v && !rc; v = json_next(v), i++) {
		param_index(inner, path, i);
		rc = parse_function(p, v, inner);
	}
	return rc;
}

/* ---- the shell ---- */

struct speller {
	struct buf *out;
	struct str text;
	size_t done;
};

/* containerId → container_id, in keys only. */
static int spell_event(void *ctx, const struct json_event *ev)
{
	struct speller *k = ctx;

	if (ev->type != JSON_EV_KEY || ev->escaped)
		return 0;
	buf_append(k->out, k->text.p + k->done, ev->offset - k->done);
	for (size_t i = 0; i < ev->raw.n; i++) {
		char c = ev->raw.p[i];

		if (c >= 'A' && c <= 'Z') {
			buf_putc(k->out, '_');
			c = (char)(c - 'A' + 'a');
		}
		buf_putc(k->out, c);
	}
	k->done = ev->offset + ev->raw.n;
	return buf_error(k->out);
}

/* The entry as other APIs have it: {"type": "brig:shell", "parameters": …}. */
static int write_entry(struct str raw, struct buf *out)
{
	struct speller k = {.out = out, .text = raw};
	int rc;

	buf_puts(out, "{\"type\":\"brig:shell\",\"parameters\":");
	rc = json_read(raw, spell_event, &k, NULL);
	if (rc)
		return rc;
	buf_append(out, raw.p + k.done, raw.n - k.done);
	buf_putc(out, '}');
	return buf_error(out);
}

/* Takes the word out that other APIs have there: "tools[0].brigShell.parameters.environment". */
static void drop_word(char *text, const char *path)
{
	static const char word[] = ".parameters";
	size_t n = strlen(path), skip = strlen(word);
	char *at = strstr(text, path);

	if (at && str_starts(str_of(at + n), word))
		memmove(at + n, at + n + skip, strlen(at + n + skip) + 1);
}

static void blame(struct gemini_parser *p, const char *path, int rc)
{
	struct error *err = p->in.err;

	if (!err)
		return;
	drop_word(err->param, path);
	drop_word(err->text, path);
	if (!err->type[0])
		str_copy(err->type, sizeof(err->type),
		        rc == -ERR_UNSUPPORTED ? STR("unsupported_value") : STR("invalid_value"));
}

static int parse_shell(struct gemini_parser *p, const struct json *v, const char *path)
{
	const struct tool *tool = tool_find(STR("brig:shell"));
	struct json_doc *doc _cleanup_json_ = NULL;
	struct buf text _cleanup_buf_ = BUF_INIT(json_raw(v).n * 2 + 64);
	struct tool_entry *t;
	void *settings;
	int rc = tools_check_sandbox(&p->in, p->config, "This server", path, NULL);

	if (rc)
		return rc;
	if (p->shell)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, NULL,
		        "Two entries of 'tools' offer a shell: one request has one.");
	if (!json_is(v, JSON_OBJECT))
		return param_fail_type(&p->in, v, path, NULL, "an object");
	if (write_entry(json_raw(v), &text) < 0)
		return param_fail_memory(&p->in);
	rc = json_parse((struct str){text.data, text.len}, (size_t)16 << 20, &doc, p->in.err);
	if (!rc)
		rc = tool->settings(p->conversation->arena, STR("brig:shell"), json_root(doc), path,
		        &settings, p->in.err);
	if (rc) {
		blame(p, path, rc);
		return rc;
	}
	t = add(p, TOOL_SERVER, STR("brig:shell"));
	t->tool = tool;
	t->settings = settings;
	t->raw = json_raw(v);
	p->shell = t;
	p->conversation->has_server_tool = true;
	return 0;
}

static int name_shell(struct gemini_parser *p)
{
	struct tool_entry *shell;
	char text[64];
	bool ok = true;

	if (!p->shell)
		return 0;
	shell = &p->conversation->tools[p->shell - p->conversation->tools];
	shell->name = str_of(shell->tool->name);
	for (size_t i = 0; i < p->conversation->n_tools; i++) {
		const struct tool_entry *t = &p->conversation->tools[i];

		if (t == shell || !str_eq(t->name, shell->name))
			continue;
		str_format(text, sizeof(text), "brig_%s", shell->tool->name);
		if (tools_named(p->conversation, str_of(text)))
			return param_fail(&p->in, ERR_INVALID, "invalid_value", "tools", NULL,
			        "Functions named both '%s' and '%s' leave no name for the server's "
			        "shell: "
			        "rename one.",
			        shell->tool->name, text);
		shell->name = conversation_copy(p->conversation, str_of(text), &ok);
		break;
	}
	return ok ? 0 : param_fail_memory(&p->in);
}

/* ---- Google's own ---- */

static int add_native(
        struct gemini_parser *p, const struct json *element, const struct json *v, const char *path)
{
	struct buf text = BUF_INIT(json_raw(v).n + json_key_raw(v).n + 8);
	struct tool_entry *t;
	struct str type;
	bool ok = true;
	int rc = gemini_parse_is(json_key(v), "codeExecution")
	                 ? tools_check_region(&p->in, p->config, "This server", path, NULL)
	                 : 0;

	if (rc)
		return rc;
	type = conversation_copy(p->conversation, json_key(v), &ok);
	t = add(p, TOOL_NATIVE, type);
	t->raw = json_raw(element);
	if (ok && json_count(element) > 1) {
		buf_putc(&text, '{');
		buf_append(&text, json_key_raw(v).p, json_key_raw(v).n);
		buf_putc(&text, ':');
		buf_append(&text, json_raw(v).p, json_raw(v).n);
		buf_putc(&text, '}');
		t->raw = conversation_copy(
		        p->conversation, (struct str){buf_cstr(&text), text.len}, &ok);
	}
	buf_free(&text);
	return ok ? 0 : param_fail_memory(&p->in);
}

static int parse_element(struct gemini_parser *p, const struct json *element, const char *path)
{
	char inner[PARAM_PATH];
	int rc = 0;

	if (!json_is(element, JSON_OBJECT))
		return param_fail_type(&p->in, element, path, NULL, "an object");
	/* Google refuses what is empty too. Its SDKs make that of a tool that they do not know. */
	if (!json_count(element) || json_is(json_get(element, "type"), JSON_STRING))
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, NULL,
		        "%s names no tool. This server's shell is {\"brigShell\": {}}. Google's "
		        "SDKs leave it out of `tools`: give them {\"tools\": [{\"brigShell\": "
		        "{}}]} as `extraBody` of `httpOptions`.",
		        path);
	for (const struct json *v = json_first(element); v && !rc; v = json_next(v)) {
		struct str key = json_key(v);

		param_join(inner, path, param_show(key).text);
		if (json_absent(v))
			continue;
		if (gemini_parse_is(key, "functionDeclarations"))
			rc = parse_functions(p, v, inner);
		else if (gemini_parse_is(key, "brigShell"))
			rc = parse_shell(p, v, inner);
		else
			rc = add_native(p, element, v, inner);
	}
	return rc;
}

static size_t count_tools(const struct json *tools)
{
	size_t n = 0;

	for (const struct json *e = json_first(tools); e; e = json_next(e)) {
		n += json_count(e);
		n += json_count(gemini_parse_get(e, "functionDeclarations"));
	}
	return n;
}

static int parse_tools(struct gemini_parser *p)
{
	struct conversation *c = p->conversation;
	const struct json *tools = json_get(p->root, "tools");
	char path[PARAM_PATH];
	size_t n, i = 0;
	int rc = 0;

	if (json_absent(tools))
		return 0;
	if (!json_is(tools, JSON_ARRAY))
		return param_fail_type(&p->in, tools, "", "tools", "an array");
	n = count_tools(tools);
	if (n > TOOLS_MAX)
		return param_fail(&p->in, ERR_INVALID, "array_above_max_length", "tools", NULL,
		        "Invalid 'tools': at most %d tools.", TOOLS_MAX);
	c->tools = arena_alloc(c->arena, (n + 1) * sizeof(*c->tools));
	if (!c->tools)
		return param_fail_memory(&p->in);
	for (const struct json *e = json_first(tools); e && !rc; e = json_next(e), i++) {
		param_index(path, "tools", i);
		rc = parse_element(p, e, path);
	}
	return rc ? rc : name_shell(p);
}

/* ---- which may be called ---- */

static int parse_allowed(struct gemini_parser *p, const struct json *list, const char *path)
{
	struct tool_choice *choice = &p->conversation->choice;
	size_t n = json_count(list);
	char inner[PARAM_PATH];

	choice->allowed = arena_alloc(p->conversation->arena, (n + 1) * sizeof(*choice->allowed));
	if (!choice->allowed)
		return param_fail_memory(&p->in);
	for (const struct json *v = json_first(list); v; v = json_next(v)) {
		const struct tool_entry *t;

		param_index(inner, path, choice->n_allowed);
		if (!json_is(v, JSON_STRING))
			return param_fail_type(&p->in, v, inner, NULL, "a string");
		t = gemini_parse_is(json_str(v), "brigShell") && p->shell
		            ? p->shell
		            : tools_named(p->conversation, json_str(v));
		if (!t)
			return param_fail(&p->in, ERR_INVALID, "invalid_value", inner, NULL,
			        "'%s' is not among 'tools'.", param_show(json_str(v)).text);
		choice->allowed[choice->n_allowed++] = t->name;
	}
	choice->restricted = n > 0;
	return 0;
}

static int parse_mode(struct gemini_parser *p, const struct json *calling, const char *path)
{
	static const char *const modes[] = {
	        "AUTO", "ANY", "NONE", "VALIDATED", "MODE_UNSPECIFIED", NULL};
	struct tool_choice *choice = &p->conversation->choice;
	struct str mode;
	int rc = param_choice(&p->in, calling, path, "mode", modes, &mode);

	if (rc)
		return rc;
	if (str_is(mode, "NONE"))
		choice->mode = CHOICE_NONE;
	if (!str_is(mode, "ANY"))
		return 0;
	if (!p->conversation->n_tools)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "mode",
		        "The mode ANY needs at least one function in 'tools'.");
	choice->mode = CHOICE_REQUIRED;
	if (choice->n_allowed == 1) {
		choice->mode = CHOICE_NAMED;
		choice->name = choice->allowed[0];
	}
	return 0;
}

static int parse_choice(struct gemini_parser *p)
{
	char outer[GEMINI_KEY], key[GEMINI_KEY], path[PARAM_PATH], inner[PARAM_PATH];
	const struct json *config, *calling, *allowed;
	int rc;

	gemini_parse_key(p->root, "toolConfig", outer);
	rc = param_container(&p->in, p->root, "", outer, JSON_OBJECT, &config);
	gemini_parse_key(config, "functionCallingConfig", key);
	if (!rc)
		rc = param_container(&p->in, config, outer, key, JSON_OBJECT, &calling);
	if (rc)
		return rc;
	param_join(path, outer, key);
	gemini_parse_key(calling, "allowedFunctionNames", key);
	rc = param_container(&p->in, calling, path, key, JSON_ARRAY, &allowed);
	if (rc)
		return rc;
	param_join(inner, path, key);
	rc = allowed ? parse_allowed(p, allowed, inner) : 0;
	return rc ? rc : parse_mode(p, calling, path);
}

int gemini_tools_parse(struct gemini_parser *p)
{
	int rc = parse_tools(p);

	return rc ? rc : parse_choice(p);
}
