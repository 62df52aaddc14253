/*
 * The shell tool: a call is a list of commands, each run in a bash of its own.
 *
 * Models get arguments wrong in a few ways again and again. What is unambiguous is taken:
 * `commands` as one string, or `command` in its place, a number with a fraction, null for "not
 * given", keys that nobody asked for. Everything else is refused with a sentence that says what to
 * do, since that is what the model reads.
 */
#include "tool/internal.h"

#include "base/mem.h"

static const char description[] =
        "Runs shell commands in an isolated Debian Linux container and gives back what they print. "
        "The working directory is /workspace/home; files there last for later calls and "
        "later requests, everything outside it may be lost between requests. The commands of one "
        "call run "
        "in order, each in its own bash: a cd, a variable or an alias does not carry over to the "
        "next command, files do, so join steps that belong together with && or write a script. "
        "You are root, standard input is empty, and there is no terminal: pass flags that keep a "
        "program from asking. There is no network unless the user has allowed it. For each command "
        "you get "
        "stdout, stderr and an outcome, which is its exit code or, when it ran out of time and was "
        "killed, a timeout with what it had printed until then. Long output is shortened in the "
        "middle; "
        "send what is long to a file and read the part you need.";

static const char schema[] =
        "{\"type\":\"object\",\"properties\":{"
        "\"commands\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"description\":"
        "\"The commands, 1 to 100 of them, run in this order. A failed one does not stop those "
        "after it.\"},"
        "\"timeout_ms\":{\"type\":\"integer\",\"description\":"
        "\"Most milliseconds that each command may take. Leave it out for the default (usually "
        "120000); "
        "more than the maximum (usually 300000) counts as the maximum.\"},"
        "\"max_output_length\":{\"type\":\"integer\",\"description\":"
        "\"Most characters that are kept of each command's stdout, and of its stderr. Leave it out "
        "for the "
        "default (usually 16384); more than the maximum (usually 65536) counts as the maximum.\"}},"
        "\"required\":[\"commands\"],\"additionalProperties\":false}";

static bool shell_is_entry(struct str type)
{
	return str_is(type, "openrouter:shell") || str_is(type, "brig:shell");
}

/* ---- arguments ---- */

static int commands_read(struct arena *a, const struct json *root, const struct tool_limits *l,
        struct tool_call *call, struct error *err)
{
	const struct json *v = json_get(root, "commands");
	const struct json *single = json_get(root, "command");
	const struct json *each;
	size_t n, i = 0;
	int r;

	if (!json_absent(v) && !json_absent(single))
		return error_set(err, ERR_INVALID, "Give either commands or command, not both.");
	if (json_absent(v))
		v = single;
	if (json_absent(v))
		return error_set(err, ERR_INVALID,
		        "commands is missing: give a list of 1 to %u strings.", l->commands);
	n = json_is(v, JSON_STRING) ? 1 : json_count(v);
	if (!json_is(v, JSON_STRING) && !json_is(v, JSON_ARRAY))
		return error_set(err, ERR_INVALID, "commands must be a list of strings.");
	if (n == 0)
		return error_set(err, ERR_INVALID, "commands is empty: give at least one.");
	if (n > l->commands)
		return error_set(err, ERR_INVALID,
		        "%zu commands were given; one call takes at most %u. Make several calls, "
		        "or put them "
		        "in a script.",
		        n, l->commands);
	call->commands = arena_alloc(a, n * sizeof(*call->commands));
	if (!call->commands)
		return error_set(err, ERR_NOMEM, "The commands are too large.");
	call->n_commands = n;
	for (each = json_is(v, JSON_STRING) ? v : json_first(v); i < n;
	        each = json_next(each), i++) {
		r = tool_command_read(a, each, i + 1, &call->commands[i], err);
		if (r)
			return r;
	}
	return 0;
}

static int shell_parse(struct arena *a, struct str arguments, const void *settings,
        const struct tool_limits *l, struct tool_call **ret, struct error *err)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	const struct shell_settings *s = settings;
	struct tool_call *call = arena_alloc(a, sizeof(*call));
	const struct json *root;
	int r;

	if (!call)
		return error_set(err, ERR_NOMEM, "The commands are too large.");
	r = tool_arguments_read(arguments, "a list called commands", &doc, err);
	if (r)
		return r;
	root = json_root(doc);
	r = commands_read(a, root, l, call, err);
	if (!r)
		r = tool_limits_read(root, s, l, call, err);
	if (r)
		return r;
	*ret = call;
	return 0;
}

static int shell_write_arguments(const struct tool_call *call, struct buf *out)
{
	struct json_writer w;
	size_t i;

	jw_init(&w, out);
	jw_object(&w);
	jw_key(&w, "commands");
	jw_array(&w);
	for (i = 0; i < call->n_commands; i++)
		jw_str(&w, call->commands[i]);
	jw_end(&w);
	if (call->has_timeout)
		jw_ki64(&w, "timeout_ms", call->asked_timeout);
	if (call->has_output)
		jw_ki64(&w, "max_output_length", call->asked_output);
	jw_end(&w);
	return jw_done(&w);
}

/* ---- results ---- */

static int shell_result_text(const struct result *r, struct buf *out)
{
	struct json_writer w;
	size_t i;

	jw_init(&w, out);
	jw_object(&w);
	if (r->n_outputs > 0 || r->error.n == 0) {
		jw_key(&w, "output");
		jw_array(&w);
		for (i = 0; i < r->n_outputs; i++) {
			jw_object(&w);
			jw_kstr(&w, "stdout", r->outputs[i].out);
			jw_kstr(&w, "stderr", r->outputs[i].err);
			jw_key(&w, "outcome");
			tool_write_outcome(&w, &r->outputs[i]);
			jw_end(&w);
		}
		jw_end(&w);
	}
	if (r->error.n > 0)
		jw_kstr(&w, "error", r->error);
	jw_end(&w);
	return jw_done(&w);
}

static bool shell_replaces_arguments(const void *settings)
{
	const struct shell_settings *s = settings;

	return s && s->own_items;
}

static void shell_id_prefixes(const void *settings, const char **ret_call, const char **ret_result)
{
	const struct shell_settings *s = settings;
	bool own = s && s->own_items;

	*ret_call = own ? "sh_" : "st_tmp_";
	*ret_result = own ? "sho_" : NULL;
}

const struct tool tool_shell = {
        .name = "shell",
        .is_entry = shell_is_entry,
        .settings = shell_settings_read,
        .description = description,
        .schema = schema,
        .parse = shell_parse,
        .result_text = shell_result_text,
        .write_arguments = shell_write_arguments,
        .replaces_arguments = shell_replaces_arguments,
        .id_prefixes = shell_id_prefixes,
};
