/*
 * A shell's call and its results as the text of executableCode and codeExecutionResult.
 *
 * Clients of this API keep of these parts only what their types know: id, language, code; id,
 * outcome, output. A replay must say to the model what was said first, so both texts can be read
 * back, whatever they hold:
 *
 *     code     the one command as it is; or, where there is more to say,
 *              # brig: timeout_ms=5000 max_output_length=100 commands=15,7
 *              and the commands, of so many bytes each, joined by newlines; or, for arguments that
 * were no call, # brig: arguments and the arguments. output   what it printed, where it printed to
 * stdout alone and ended with exit code 0, or ran out of time; or stdout, stderr and a last line
 *              [exit code 3; stdout 12 bytes, stderr 6 bytes]
 *              or the reason why nothing was run, and the last line [error].
 *
 * Text that would by chance read as one of the longer forms is written in the longer form itself.
 */
#include "api/gemini.h"

#include "base/mem.h"

#include <stdlib.h>

#define HEAD      "# brig:"
#define ARGUMENTS "# brig: arguments\n"
#define ERROR_END "\n[error]"

enum { COMMANDS_MAX = 1000 };

/* ---- calls ---- */

static bool is_plain(const struct tool_call *t)
{
	return t->n_commands == 1 && !t->has_timeout && !t->has_output &&
	       !str_starts(t->commands[0], HEAD);
}

int gemini_code_write(const struct call *call, struct buf *out)
{
	const struct tool_call *t = call->parsed;

	if (!t) {
		buf_puts(out, ARGUMENTS);
		return buf_append(out, call->arguments.p, call->arguments.n);
	}
	if (is_plain(t))
		return buf_append(out, t->commands[0].p, t->commands[0].n);
	buf_puts(out, HEAD);
	if (t->has_timeout)
		buf_printf(out, " timeout_ms=%lld", (long long)t->asked_timeout);
	if (t->has_output)
		buf_printf(out, " max_output_length=%lld", (long long)t->asked_output);
	for (size_t i = 0; i < t->n_commands; i++)
		buf_printf(out, "%s%zu", i ? "," : " commands=", t->commands[i].n);
	for (size_t i = 0; i < t->n_commands; i++) {
		buf_putc(out, '\n');
		buf_append(out, t->commands[i].p, t->commands[i].n);
	}
	return buf_error(out);
}

static bool skip(struct str *s, const char *what)
{
	size_t n = strlen(what);

	if (!str_starts(*s, what))
		return false;
	s->p += n;
	s->n -= n;
	return true;
}

static bool read_number(struct str *s, uint64_t *ret)
{
	size_t n = 0;

	while (n < s->n && s->p[n] >= '0' && s->p[n] <= '9')
		n++;
	if (!str_to_u64((struct str){s->p, n}, ret) || *ret > INT64_MAX)
		return false;
	s->p += n;
	s->n -= n;
	return true;
}

/* The sizes that stand in the head, and the commands behind it. */
static bool read_commands(struct str sizes, struct str body, struct tool_call *t)
{
	uint64_t n;

	do {
		if (t->n_commands == COMMANDS_MAX || !read_number(&sizes, &n) ||
		        !skip(&body, "\n") || n > body.n)
			return false;
		t->commands[t->n_commands++] = (struct str){body.p, (size_t)n};
		body.p += n;
		body.n -= (size_t)n;
	} while (skip(&sizes, ","));
	return !sizes.n && !body.n;
}

static bool read_head(struct str code, struct tool_call *t)
{
	const char *nl = code.n ? memchr(code.p, '\n', code.n) : NULL;
	struct str head, body;
	uint64_t n;

	if (!nl)
		return false;
	head = (struct str){code.p, (size_t)(nl - code.p)};
	body = (struct str){nl, code.n - head.n};
	if (!skip(&head, HEAD))
		return false;
	if (skip(&head, " timeout_ms=")) {
		t->has_timeout = true;
		if (!read_number(&head, &n))
			return false;
		t->asked_timeout = (int64_t)n;
	}
	if (skip(&head, " max_output_length=")) {
		t->has_output = true;
		if (!read_number(&head, &n))
			return false;
		t->asked_output = (int64_t)n;
	}
	return skip(&head, " commands=") && read_commands(head, body, t);
}

int gemini_code_read(const struct tool *tool, struct str code, struct buf *out)
{
	struct str *commands _cleanup_free_ = NULL;
	struct tool_call t = {0};

	if (str_starts(code, ARGUMENTS))
		return buf_append(out, code.p + strlen(ARGUMENTS), code.n - strlen(ARGUMENTS));
	commands = mem_array(COMMANDS_MAX, sizeof(*commands));
	t.commands = commands;
	if (!read_head(code, &t)) {
		t = (struct tool_call){.commands = commands, .n_commands = 1};
		commands[0] = code;
	}
	return tool->write_arguments(&t, out);
}

/* ---- results ---- */

static struct str last_line(struct str s)
{
	size_t n = 0;

	while (n < s.n && s.p[s.n - n - 1] != '\n')
		n++;
	return (struct str){s.p + s.n - n, n};
}

/* "; WORD name" */
static void read_word(struct str *s, const char *what, struct str *ret)
{
	size_t n = 0;

	if (!skip(s, what))
		return;
	while (n < s->n && s->p[n] != ';' && s->p[n] != ']')
		n++;
	*ret = (struct str){s->p, n};
	s->p += n;
	s->n -= n;
}

static bool read_end(struct str line, struct command_output *o, uint64_t *out_n, uint64_t *err_n)
{
	uint64_t code = 0;

	if (skip(&line, "[exit code ")) {
		o->outcome = OUTCOME_EXIT;
		if (!read_number(&line, &code) || code > INT32_MAX)
			return false;
		o->exit_code = (int)code;
	} else if (skip(&line, "[timeout")) {
		o->outcome = OUTCOME_TIMEOUT;
	} else {
		return false;
	}
	read_word(&line, "; signal ", &o->signal);
	read_word(&line, "; reason ", &o->reason);
	return skip(&line, "; stdout ") && read_number(&line, out_n) &&
	       skip(&line, " bytes, stderr ") && read_number(&line, err_n) &&
	       skip(&line, " bytes]") && !line.n;
}

/* Takes n bytes off, and the newline that was added where they did not end with one. */
static bool take_text(struct str *s, uint64_t n, struct str *ret)
{
	if (n > s->n)
		return false;
	*ret = (struct str){s->p, (size_t)n};
	s->p += n;
	s->n -= (size_t)n;
	return !n || ret->p[n - 1] == '\n' || skip(s, "\n");
}

/* The form with a last line that tells. */
static bool read_long(struct str output, struct command_output *o)
{
	struct command_output got = {.done = true};
	struct str line = last_line(output), rest = {output.p, output.n - line.n};
	uint64_t out_n, err_n;

	if (!read_end(line, &got, &out_n, &err_n) || !take_text(&rest, out_n, &got.out) ||
	        !take_text(&rest, err_n, &got.err) || rest.n)
		return false;
	*o = got;
	return true;
}

bool gemini_code_read_output(
        struct str outcome, struct str output, struct command_output *o, struct str *ret_error)
{
	if (str_ends(output, ERROR_END)) {
		*ret_error = (struct str){output.p, output.n - strlen(ERROR_END)};
		return false;
	}
	if (read_long(output, o))
		return true;
	*o = (struct command_output){.out = output, .err = STR(""), .done = true};
	if (str_is(outcome, "OUTCOME_DEADLINE_EXCEEDED"))
		o->outcome = OUTCOME_TIMEOUT;
	else if (!str_is(outcome, "OUTCOME_OK"))
		o->exit_code = 1;
	return true;
}

static void write_text(struct buf *out, struct str s)
{
	buf_append(out, s.p, s.n);
	if (s.n && s.p[s.n - 1] != '\n')
		buf_putc(out, '\n');
}

/* Can the text of stdout alone stand for it? */
static bool is_short(const struct command_output *o)
{
	struct command_output ignored;

	return !o->err.n && !o->signal.n && !o->reason.n &&
	       (o->outcome == OUTCOME_TIMEOUT || o->exit_code == 0) &&
	       !str_ends(o->out, ERROR_END) && !read_long(o->out, &ignored);
}

const char *gemini_code_write_output(const struct command_output *o, struct buf *out)
{
	if (is_short(o)) {
		buf_append(out, o->out.p, o->out.n);
	} else {
		write_text(out, o->out);
		write_text(out, o->err);
		if (o->outcome == OUTCOME_EXIT)
			buf_printf(out, "[exit code %d", o->exit_code);
		else
			buf_puts(out, "[timeout");
		if (o->signal.n)
			buf_printf(out, "; signal %.*s", (int)o->signal.n, o->signal.p);
		if (o->reason.n)
			buf_printf(out, "; reason %.*s", (int)o->reason.n, o->reason.p);
		buf_printf(out, "; stdout %zu bytes, stderr %zu bytes]", o->out.n, o->err.n);
	}
	if (o->outcome == OUTCOME_TIMEOUT)
		return "OUTCOME_DEADLINE_EXCEEDED";
	return o->exit_code == 0 && !o->signal.n ? "OUTCOME_OK" : "OUTCOME_FAILED";
}

void gemini_code_write_error(struct str error, struct buf *out)
{
	buf_append(out, error.p, error.n);
	buf_puts(out, ERROR_END);
}
