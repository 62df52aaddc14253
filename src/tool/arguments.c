/* What the arguments of all tools that run commands have in common. */
#include "tool/internal.h"

#include <math.h>

/* One argument of execve: the kernel's MAX_ARG_STRLEN without the NUL. */
#define COMMAND_MAX 131071
/* Room for the tree of a call's arguments beyond its strings: far more than any honest call needs.
 */
#define ARGUMENTS_TREE_MAX ((size_t)2 * 1024 * 1024)

int tool_arguments_read(
        struct str arguments, const char *with, struct json_doc **ret, struct error *err)
{
	struct json_doc *doc = NULL;
	int r = json_parse(arguments, ARGUMENTS_TREE_MAX + arguments.n, &doc, err);

	if (r == -ERR_INVALID)
		return error_prefix(err, "The arguments are not valid JSON");
	if (r)
		return error_set(err, ERR_TOO_LARGE, "The arguments are too large.");
	if (!json_is(json_root(doc), JSON_OBJECT)) {
		json_doc_free(doc);
		return error_set(
		        err, ERR_INVALID, "The arguments must be a JSON object with %s.", with);
	}
	*ret = doc;
	return 0;
}

int tool_command_read(
        struct arena *a, const struct json *v, size_t number, struct str *ret, struct error *err)
{
	struct str text = json_str(v);
	char *copy;

	if (!json_is(v, JSON_STRING))
		return error_set(
		        err, ERR_INVALID, "commands must be strings; number %zu is not.", number);
	if (text.n > COMMAND_MAX)
		return error_set(err, ERR_INVALID,
		        "Command %zu has %zu bytes; at most %d fit. Write long text to a file in "
		        "parts.",
		        number, text.n, COMMAND_MAX);
	if (text.n > 0 && memchr(text.p, '\0', text.n))
		return error_set(err, ERR_INVALID,
		        "Command %zu holds a NUL character, which no command can have.", number);
	copy = arena_strndup(a, text.n ? text.p : "", text.n);
	if (!copy)
		return error_set(err, ERR_NOMEM, "The commands are too large.");
	*ret = (struct str){copy, text.n};
	return 0;
}

/* A number above zero; *ret_has is false where it was not given. */
static int number_read(
        const struct json *root, const char *key, bool *ret_has, int64_t *ret, struct error *err)
{
	const struct json *v = json_get(root, key);
	struct str raw = json_raw(v);
	double d = 0;

	*ret_has = false;
	if (json_absent(v))
		return 0;
	if (!json_is(v, JSON_NUMBER))
		return error_set(
		        err, ERR_INVALID, "%s must be a number above 0, or be left out.", key);
	*ret_has = true;
	if (json_i64(v, ret) && *ret > 0)
		return 0;
	if (!json_double(v, &d))
		d = raw.p[0] == '-' ? -1 : HUGE_VAL; /* more than a double holds */
	if (d <= 0)
		return error_set(
		        err, ERR_INVALID, "%s must be a number above 0, or be left out.", key);
	*ret = d >= (double)INT64_MAX ? INT64_MAX : d < 1 ? 1 : (int64_t)d;
	return 0;
}

/* What is in force: the request's own number is default and ceiling, below the server's maximum. */
static uint32_t effective(
        bool has, int64_t asked, uint32_t of_request, uint32_t usual, uint32_t most)
{
	uint32_t ceiling = of_request && of_request < most ? of_request : most;
	uint32_t value = of_request ? ceiling : usual < most ? usual : most;

	if (has)
		value = asked < (int64_t)ceiling ? (uint32_t)asked : ceiling;
	return value;
}

int tool_limits_read(const struct json *root, const struct shell_settings *s,
        const struct tool_limits *l, struct tool_call *call, struct error *err)
{
	int r = number_read(root, "timeout_ms", &call->has_timeout, &call->asked_timeout, err);

	if (!r)
		r = number_read(
		        root, "max_output_length", &call->has_output, &call->asked_output, err);
	if (r)
		return r;
	call->timeout_ms = effective(call->has_timeout, call->asked_timeout, s ? s->timeout_ms : 0,
	        l->timeout_ms, l->max_timeout_ms);
	call->output_chars = effective(call->has_output, call->asked_output,
	        s ? s->max_output_length : 0, l->output_chars, l->max_output_chars);
	return 0;
}
