/*
 * One tool of the table as clients read about it. What the tool itself knows (its name, what models
 * are told, its arguments) comes from there; here stands what belongs to the apis: under which
 * types an entry offers it, and what comes back. A type of ours that the table does not know is
 * left out, so the catalogue never offers what a request would be refused.
 */
#include "api/catalogue.h"

#define RESPONSES "openai-responses"
#define MESSAGES  "anthropic-messages"
#define GEMINI    "google-generate-content"

struct output {
	const char *format;
	const char *type; /* of what comes back in that api */
};

struct alias {
	const char *tool;
	const char *type;
	const char *table_type; /* that must be in the table of tools for it */
	struct output outputs[3];
};

static const struct alias aliases[] = {
        {"shell", "openrouter:shell", "openrouter:shell",
                {{RESPONSES, "openrouter:shell"}, {MESSAGES, "openrouter_shell_tool_result"}}},
        {"shell", "brig:shell", "brig:shell",
                {{RESPONSES, "shell_call"}, {MESSAGES, "bash_code_execution_tool_result"}}},
        {"shell", "shell", "brig:shell", {{RESPONSES, "shell_call"}}},
        {"shell", "local_shell", "brig:shell", {{RESPONSES, "local_shell_call"}}},
        {"shell", "brigShell", "brig:shell", {{GEMINI, "codeExecutionResult"}}},
        {"bash", "openrouter:bash", "openrouter:bash", {{MESSAGES, "openrouter_bash_tool_result"}}},
        {"bash", "brig:bash", "brig:bash", {{MESSAGES, "bash_code_execution_tool_result"}}},
        {"bash", "bash_20250124", "openrouter:bash", {{MESSAGES, "tool_use"}}},
};

#define N_ALIASES (sizeof(aliases) / sizeof(*aliases))

static const char parameters[] =
        "{\"type\":\"object\",\"properties\":{"
        "\"engine\":{\"type\":\"string\",\"enum\":[%s],\"default\":\"auto\"},"
        "\"environment\":{\"oneOf\":["
        "{\"type\":\"object\",\"properties\":{\"type\":{\"const\":\"container_auto\"},%s},"
        "\"required\":[\"type\"],\"additionalProperties\":false},"
        "{\"type\":\"object\",\"properties\":{\"type\":{\"const\":\"container_reference\"},"
        "\"container_id\":{\"type\":\"string\",\"pattern\":\"^[A-Za-z0-9_-]{1,40}$\"},%s},"
        "\"required\":[\"type\",\"container_id\"],\"additionalProperties\":false}]},"
        "\"timeout_ms\":{\"type\":\"integer\",\"minimum\":1},"
        "\"max_output_length\":{\"type\":\"integer\",\"minimum\":0}},"
        "\"additionalProperties\":false}";
static const char environment[] =
        "\"file_ids\":{\"type\":\"array\",\"maxItems\":20,\"items\":{\"type\":\"string\"}},"
        "\"network_policy\":{\"oneOf\":["
        "{\"type\":\"object\",\"properties\":{\"type\":{\"const\":\"disabled\"}},"
        "\"required\":[\"type\"]},"
        "{\"type\":\"object\",\"properties\":{\"type\":{\"const\":\"allowlist\"},"
        "\"allowed_domains\":{\"type\":\"array\",\"maxItems\":50,"
        "\"items\":{\"type\":\"string\"}}},"
        "\"required\":[\"type\",\"allowed_domains\"]}]}";
/* What stands in `content` of OpenRouter's result blocks. */
static const char shell_output[] =
        "{\"type\":\"object\",\"properties\":{\"output\":{\"type\":\"array\",\"items\":"
        "{\"type\":\"object\",\"properties\":{"
        "\"stdout\":{\"type\":\"string\"},\"stderr\":{\"type\":\"string\"},"
        "\"outcome\":{\"type\":\"object\",\"properties\":{"
        "\"type\":{\"enum\":[\"exit\",\"timeout\"]},\"exit_code\":{\"type\":\"integer\"}},"
        "\"required\":[\"type\"]}},\"required\":[\"stdout\",\"stderr\",\"outcome\"]}}},"
        "\"required\":[\"output\"]}";
static const char bash_output[] =
        "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\"},"
        "\"stdout\":{\"type\":\"string\"},\"stderr\":{\"type\":\"string\"},"
        "\"exitCode\":{\"type\":\"integer\"}},"
        "\"required\":[\"command\",\"stdout\",\"stderr\",\"exitCode\"]}";

static bool belongs(const struct alias *a, const struct tool *t)
{
	return str_is(str_of(t->name), a->tool) && t->is_entry(str_of(a->table_type));
}

bool catalogue_is_named(const struct tool *t, struct str name)
{
	if (str_is(name, t->name))
		return true;
	for (size_t i = 0; i < N_ALIASES; i++)
		if (belongs(&aliases[i], t) && str_is(name, aliases[i].type))
			return true;
	return false;
}

static size_t n_outputs(const struct alias *a)
{
	size_t n = 0;

	while (n < sizeof(a->outputs) / sizeof(*a->outputs) && a->outputs[n].format)
		n++;
	return n;
}

static void write_alias(struct json_writer *w, const struct alias *a)
{
	jw_object(w);
	jw_kcstr(w, "type", a->type);
	jw_key(w, "api_formats");
	jw_array(w);
	for (size_t i = 0; i < n_outputs(a); i++)
		jw_cstr(w, a->outputs[i].format);
	jw_end(w);
	jw_key(w, "output_names");
	jw_array(w);
	for (size_t i = 0; i < n_outputs(a); i++) {
		jw_object(w);
		jw_kcstr(w, "api_format", a->outputs[i].format);
		jw_kcstr(w, "type", a->outputs[i].type);
		jw_end(w);
	}
	jw_end(w);
	jw_end(w);
}

static bool supports(const struct tool *t, const char *format)
{
	for (size_t i = 0; i < N_ALIASES; i++)
		for (size_t k = 0; belongs(&aliases[i], t) && k < n_outputs(&aliases[i]); k++)
			if (strcmp(aliases[i].outputs[k].format, format) == 0)
				return true;
	return false;
}

static void write_formats(struct json_writer *w, const struct tool *t)
{
	static const char *const formats[] = {RESPONSES, MESSAGES, GEMINI};

	jw_key(w, "aliases");
	jw_array(w);
	for (size_t i = 0; i < N_ALIASES; i++)
		if (belongs(&aliases[i], t))
			write_alias(w, &aliases[i]);
	jw_end(w);
	jw_key(w, "supported_api_formats");
	jw_array(w);
	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
		if (supports(t, formats[i]))
			jw_cstr(w, formats[i]);
	jw_end(w);
}

static void write_engine(struct json_writer *w, const char *id, const char *name, const char *by,
        const struct catalogue_server *s, bool priced)
{
	struct buf price = BUF_INIT(64);

	jw_object(w);
	jw_kcstr(w, "id", id);
	jw_kcstr(w, "name", name);
	jw_kcstr(w, "executed_by", by);
	jw_key(w, "data_regions");
	jw_array(w);
	jw_cstr(w, s->region ? s->region : "global");
	jw_end(w);
	jw_kcstr(w, "byok", "none");
	jw_kcstr(w, "default_mode", priced ? "second" : NULL);
	jw_key(w, "pricing");
	jw_array(w);
	if (priced) {
		money_write(&price, s->price_per_second);
		jw_object(w);
		jw_kcstr(w, "mode", "second");
		jw_kstr(w, "price", (struct str){price.data, price.len});
		jw_kcstr(w, "unit", "second");
		jw_knull(w, "max_units_per_call");
		jw_end(w);
	}
	jw_end(w);
	jw_knull(w, "pricing_source");
	jw_knull(w, "pricing_doc_url");
	jw_end(w);
	buf_free(&price);
}

/* OpenRouter's names of the engines: "openrouter" is the server that answers, so this one. */
static void write_engines(
        struct json_writer *w, const struct tool *t, const struct catalogue_server *s)
{
	bool shell = strcmp(t->name, "shell") == 0;
	bool provider = shell && s->native_providers > 0;

	jw_kcstr(w, "default_engine", "auto");
	jw_kcstr(w, "fallback_engine", shell && s->runs ? "openrouter" : NULL);
	jw_key(w, "engines");
	jw_array(w);
	if (s->runs)
		write_engine(w, "openrouter", "brig", "openrouter", s, true);
	if (provider)
		write_engine(w, "native", "The provider's own", "provider", s, false);
	write_engine(w, shell ? "client" : "native", "The client's own", "client", s, false);
	jw_end(w);
}

static void write_schemas(struct json_writer *w, const struct tool *t)
{
	bool shell = strcmp(t->name, "shell") == 0;
	struct buf text = BUF_INIT(16384);

	buf_printf(
	        &text, parameters, "\"auto\",\"native\",\"openrouter\"", environment, environment);
	jw_kraw(w, "parameters_schema", (struct str){text.data, text.len});
	jw_kcstr(w, "tool_description", t->description);
	jw_kraw(w, "input_schema", str_of(t->schema));
	jw_kraw(w, "output_schema", str_of(shell ? shell_output : bash_output));
	buf_free(&text);
}

void catalogue_write(struct json_writer *w, const struct tool *t, const struct catalogue_server *s)
{
	bool shell = strcmp(t->name, "shell") == 0;

	jw_object(w);
	jw_kcstr(w, "id", t->name);
	jw_kcstr(w, "name", t->name);
	jw_kcstr(w, "summary",
	        shell ? "Runs shell commands in an isolated Linux container."
	              : "A bash session in an isolated Linux container, or the client's own bash.");
	jw_kcstr(w, "status", s->runs ? "active" : "disabled");
	jw_knull(w, "docs_url");
	write_formats(w, t);
	write_engines(w, t, s);
	write_schemas(w, t);
	jw_key(w, "native_support");
	jw_object(w);
	jw_ki64(w, "endpoint_count", shell ? (int64_t)s->native_providers : 0);
	jw_ki64(w, "model_count", shell ? (int64_t)s->native_models : 0);
	jw_end(w);
	jw_end(w);
}
