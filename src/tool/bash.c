/*
 * The bash tool: a session that goes on from call to call, as Anthropic's bash tool has it, run by
 * brig. The commands of a call run one after another in it, each as if it had been typed: what
 * breaks one does not touch the next. bash_session.h says how.
 *
 * What the model reads is one text of both streams and one exit code, also of several commands: the
 * first that failed counts. It is made of what a replay carries, where several commands have become
 * one output.
 */
#include "tool/internal.h"

#include "base/mem.h"

#define RESULT_MAX ((size_t)64 << 20)
#define TIMED_OUT  124

static const char description[] =
        "Runs commands in a bash session in an isolated Debian Linux container and gives back what "
        "they print, standard output and error together, with the exit code. The session goes on "
        "from "
        "call to call: the working directory, variables, functions and shell options stay as they "
        "were "
        "left; files below /workspace/home, where it begins, last for later requests too. You are "
        "root, "
        "standard input is empty, and there is no terminal: pass flags that keep a program from "
        "asking. "
        "There is no network unless the user has allowed it. Programs that keep running belong in "
        "the "
        "background, with their output in a file. With restart a new session begins in a new, "
        "empty "
        "container. A command that takes too long is killed and has exit code 124; what the "
        "session was "
        "before it stays. Long output is shortened in the middle: send it to a file and read the "
        "part "
        "you need.";

static const char schema[] =
        "{\"type\":\"object\",\"properties\":{"
        "\"command\":{\"type\":\"string\",\"description\":"
        "\"The command to run, of one line or more. Needed unless commands or restart is given.\"},"
        "\"commands\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"description\":"
        "\"Several commands, run in this order. A failed one does not stop those after it; the "
        "exit "
        "code is that of the first that failed.\"},"
        "\"restart\":{\"type\":\"boolean\",\"description\":"
        "\"True begins a new session, before the commands, if there are any.\"},"
        "\"timeout_ms\":{\"type\":\"integer\",\"description\":"
        "\"Most milliseconds that the call may take. Leave it out for the default (usually "
        "120000); "
        "more than the maximum (usually 300000) counts as the maximum.\"},"
        "\"max_output_length\":{\"type\":\"integer\",\"description\":"
        "\"Most characters of output that are kept. Leave it out for the default (usually 16384); "
        "more "
        "than the maximum (usually 65536) counts as the "
        "maximum.\"}},\"additionalProperties\":false}";

static bool bash_is_entry(struct str type)
{
	return str_is(type, "openrouter:bash") || str_is(type, "brig:bash");
}

/* ---- arguments ---- */

static int commands_read(struct arena *a, const struct json *root, const struct tool_limits *l,
        struct tool_call *call, struct error *err)
{
	const struct json *single = json_get(root, "command"), *list = json_get(root, "commands");
	bool one = json_is(list, JSON_STRING); /* what models write for a list of one */
	size_t n = (json_absent(single) ? 0 : 1) + (one ? 1 : json_count(list));
	int r = 0;

	if (!json_absent(list) && !one && !json_is(list, JSON_ARRAY))
		return error_set(err, ERR_INVALID, "commands must be a list of strings.");
	if (n == 0 && !call->restart)
		return error_set(err, ERR_INVALID,
		        "command is missing: give the command to run as a string.");
	if (n > l->commands)
		return error_set(err, ERR_INVALID,
		        "%zu commands were given; one call takes at most %u. Make several calls, "
		        "or put them in a script.",
		        n, l->commands);
	call->commands = arena_alloc(a, (n + 1) * sizeof(*call->commands));
	if (!call->commands)
		return error_set(err, ERR_NOMEM, "The commands are too large.");
	n = 0;
	if (!json_absent(single))
		r = tool_command_read(a, single, n + 1, &call->commands[n], err), n++;
	for (const struct json *v = one ? list : json_first(list); v && !r; v = json_next(v), n++)
		r = tool_command_read(a, v, n + 1, &call->commands[n], err);
	if (n == 0) /* that the new container is there shows by a command that does nothing */
		call->commands[n++] = STR("");
	call->n_commands = n;
	return r;
}

static int bash_parse(struct arena *a, struct str arguments, const void *settings,
        const struct tool_limits *l, struct tool_call **ret, struct error *err)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	struct tool_call *call = arena_alloc(a, sizeof(*call));
	const struct json *restart;
	int r;

	if (!call)
		return error_set(err, ERR_NOMEM, "The commands are too large.");
	r = tool_arguments_read(arguments, "a string called command", &doc, err);
	if (r)
		return r;
	restart = json_get(json_root(doc), "restart");
	if (!json_absent(restart) && !json_is_bool(restart))
		return error_set(err, ERR_INVALID, "restart must be true or false.");
	call->session = true;
	call->restart = json_bool(restart);
	r = commands_read(a, json_root(doc), l, call, err);
	if (!r)
		r = tool_limits_read(json_root(doc), settings, l, call, err);
	if (!r)
		*ret = call;
	return r;
}

static int bash_write_arguments(const struct tool_call *call, struct buf *out)
{
	struct json_writer w;

	jw_init(&w, out);
	jw_object(&w);
	if (call->n_commands == 1) {
		jw_kstr(&w, "command", call->commands[0]);
	} else {
		jw_key(&w, "commands");
		jw_array(&w);
		for (size_t i = 0; i < call->n_commands; i++)
			jw_str(&w, call->commands[i]);
		jw_end(&w);
	}
	if (call->restart)
		jw_kbool(&w, "restart", true);
	if (call->has_timeout)
		jw_ki64(&w, "timeout_ms", call->asked_timeout);
	if (call->has_output)
		jw_ki64(&w, "max_output_length", call->asked_output);
	jw_end(&w);
	return jw_done(&w);
}

/* ---- results ---- */

static int exit_code(const struct result *r)
{
	for (size_t i = 0; i < r->n_outputs; i++) {
		const struct command_output *o = &r->outputs[i];

		if (o->outcome == OUTCOME_TIMEOUT)
			return TIMED_OUT;
		if (o->exit_code != 0)
			return o->exit_code;
	}
	return 0;
}

static void write_joined(struct json_writer *w, const char *key, const struct result *r, bool err)
{
	_cleanup_buf_ struct buf text = BUF_INIT(RESULT_MAX);

	for (size_t i = 0; i < r->n_outputs; i++) {
		struct str piece = err ? r->outputs[i].err : r->outputs[i].out;

		buf_append(&text, piece.p, piece.n);
	}
	jw_kstr(w, key, (struct str){buf_cstr(&text), text.len});
}

static int bash_result_text(const struct result *r, struct buf *out)
{
	const struct command_output *only = r->n_outputs == 1 ? &r->outputs[0] : NULL;
	struct json_writer w;

	jw_init(&w, out);
	jw_object(&w);
	if (r->n_outputs > 0 || r->error.n == 0) {
		write_joined(&w, "stdout", r, false);
		write_joined(&w, "stderr", r, true);
		jw_ki64(&w, "exitCode", exit_code(r));
		if (only &&
		        (only->outcome == OUTCOME_TIMEOUT || only->signal.n || only->reason.n)) {
			jw_key(&w, "outcome");
			tool_write_outcome(&w, only);
		}
	}
	if (r->error.n > 0)
		jw_kstr(&w, "error", r->error);
	jw_end(&w);
	return jw_done(&w);
}

static bool bash_replaces_arguments(const void *settings)
{
	return false;
}

static void bash_id_prefixes(const void *settings, const char **ret_call, const char **ret_result)
{
	*ret_call = "bash_tmp_";
	*ret_result = NULL;
}

const struct tool tool_bash = {
        .name = "bash",
        .is_entry = bash_is_entry,
        .settings = shell_settings_read,
        .description = description,
        .schema = schema,
        .parse = bash_parse,
        .result_text = bash_result_text,
        .write_arguments = bash_write_arguments,
        .replaces_arguments = bash_replaces_arguments,
        .id_prefixes = bash_id_prefixes,
};
