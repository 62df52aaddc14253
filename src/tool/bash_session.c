/*
 * A bash session without a shell that stays alive: each command is a new bash that loads what the
 * last one left and, when it ends, writes it down for the next.
 *
 * The shell reads the state from standard input, two texts that each end with a NUL, and then has
 * none
 * (/dev/null). It writes the new state to its standard error, which is free: what commands write
 * there goes to standard output, so that both come in the order in which they were written.
 *
 *     in    A NUL B NUL                    A  directory, umask, shopt, variables   evaluated with
 *     out   … NUL S NUL A NUL B NUL E NUL                                          errors thrown
 * away B  functions, `set -o` options          evaluated after it
 *
 * The last whole frame counts; without one (exec, a kill, a shell that the command broke) the state
 * stays as it was. Both texts are bash's own, from `declare -p` and the like, and go back as they
 * came.
 *
 * What a command leaves behind must not break the next one, so the loader relies on nothing that it
 * may have changed. Functions may have any builtin's name: `builtin` comes before each, and a
 * function of that name is not kept. Finding it at the end needs `unset`, which in POSIX mode no
 * function hides; and what turns that mode on is an assignment. Modes that would end the next shell
 * before its command (-n, -t, -v, posix) are not kept, nor are traps and aliases. The state is
 * written after the command, and by the EXIT trap where that is not reached; the command's own EXIT
 * trap takes its place, and runs. What is local where a function exits the shell counts as global.
 *
 * The loader is one line, so that in what bash says of errors the command's lines count from 1. It
 * holds no single quote in what the trap is given.
 */
#include "tool/bash_session.h"

#define STATE_MAX ((size_t)1048576) /* standard input of a command */
#define HEARD_MAX (STATE_MAX + 65536)

#define NAMES(a, b, c, d, e, f, g)                                                                 \
	" \"${!" a "@}\" \"${!" b "@}\" \"${!" c "@}\" \"${!" d "@}\" \"${!" e "@}\" \"${!" f      \
	"@}\" \"${!" g "@}\""

#define EVERY_NAME                                                                                 \
	NAMES("A", "B", "C", "D", "E", "F", "G")                                                   \
	NAMES("H", "I", "J", "K", "L", "M", "N")                                                   \
	NAMES("O", "P", "Q", "R", "S", "T", "U")                                                   \
	NAMES("V", "W", "X", "Y", "Z", "_", "a")                                                   \
	NAMES("b", "c", "d", "e", "f", "g", "h")                                                   \
	NAMES("i", "j", "k", "l", "m", "n", "o")                                                   \
	NAMES("p", "q", "r", "s", "t", "u", "v")                                                   \
	" \"${!w@}\" \"${!x@}\" \"${!y@}\" \"${!z@}\""

/* Variables that bash makes, or that say nothing in another shell. */
#define OTHER_NAMES                                                                                \
	"__brig_*|BASH*|COMP_*|DIRSTACK|EPOCH*|EUID|FUNCNAME|GROUPS|HISTCMD|LINENO|PIPESTATUS|"    \
	"POSIXLY_CORRECT|PPID|PWD|RANDOM|SECONDS|SHELLOPTS|SHLVL|SRANDOM|UID|_"

#define OPTIONS                                                                                    \
	"allexport braceexpand errexit errtrace functrace hashall keyword monitor noclobber "      \
	"noglob nounset physical pipefail xtrace"

#define SAVE                                                                                       \
	"{ __brig_x=$? __brig_o=$SHELLOPTS; if [[ -z ${__brig_d-} ]]; then __brig_d=1; "           \
	"POSIXLY_CORRECT=1; unset -f builtin; set +aefnuvxkCETo posix; unset POSIXLY_CORRECT; "    \
	"builtin trap - DEBUG ERR RETURN; [[ $PWD -ef . ]] || builtin cd .; "                      \
	"{ builtin printf \"\\0S\\0builtin cd -- %q || builtin printf \\\"The working directory "  \
	"%%s is gone; this is %%s.\\\\n\\\" %q \\\"\\$PWD\\\"\\n\" \"${PWD%/.}\" "                 \
	"\"${PWD%/.}\"; builtin umask -p; builtin shopt -p; builtin shopt -u nocasematch; "        \
	"for __brig_n in" EVERY_NAME "; do case $__brig_n in " OTHER_NAMES                         \
	") ;; *) builtin declare -p \"$__brig_n\";; esac; done; builtin printf \"\\0\"; "          \
	"builtin declare -f; builtin declare -Fx; for __brig_n in " OPTIONS                        \
	"; do case :$__brig_o: in *:\"$__brig_n\":*) builtin printf \"builtin set -o %s\\n\" "     \
	"\"$__brig_n\";; *) builtin printf \"builtin set +o %s\\n\" \"$__brig_n\";; esac; done; "  \
	"builtin printf \"\\0E\\0\"; } >&250; fi; } >/dev/null 2>&1"

static const char loader[] =
        "IFS= read -r -d \"\" __brig_a; IFS= read -r -d \"\" __brig_b; __brig_c=$1; shift; "
        "unset BASH_EXECUTION_STRING; "
        "exec 250>&2 2>/dev/null </dev/null; trap '" SAVE "' EXIT; "
        "builtin eval \"$__brig_a\"; exec 2>&1; builtin eval \"unset __brig_a __brig_b; "
        "$__brig_b\"; "
        "{ builtin eval \"$__brig_c\"; " SAVE "; builtin exit $__brig_x; }";

void bash_session_init(struct bash_session *s)
{
	*s = (struct bash_session){.state = BUF_INIT(STATE_MAX), .heard = BUF_INIT(HEARD_MAX)};
}

void bash_session_reset(struct bash_session *s)
{
	buf_free(&s->state);
	buf_free(&s->heard);
}

void bash_session_begin(struct bash_session *s, struct str command,
        struct str ret_argv[BASH_SESSION_ARGC], struct str *ret_input)
{
	buf_reset(&s->heard);
	ret_argv[0] = STR("bash");
	ret_argv[1] = STR("-c");
	ret_argv[2] = (struct str){loader, sizeof(loader) - 1};
	ret_argv[3] = STR("bash");
	ret_argv[4] = command;
	*ret_input = s->state.len ? (struct str){s->state.data, s->state.len} : STR("\0\0");
}

void bash_session_hear(struct bash_session *s, const void *data, size_t n)
{
	buf_append(&s->heard, data, n);
}

/* The text before the NUL at `end`, and where its own beginning is; false: there is none. */
static bool text_before(const struct buf *b, size_t end, struct str *ret, size_t *ret_begin)
{
	size_t begin = end;

	while (begin > 0 && b->data[begin - 1] != 0)
		begin--;
	if (begin == 0)
		return false;
	*ret = (struct str){b->data + begin, end - begin};
	*ret_begin = begin;
	return true;
}

/* Finds the last whole frame: what is from `begin` to `end` is A NUL B NUL. */
static bool find_frame(const struct buf *b, struct str *ret)
{
	for (size_t end = b->len; end > 0; end--) {
		struct str e, second, first, mark;
		size_t at;

		if (b->data[end - 1] != 0)
			continue;
		if (!text_before(b, end - 1, &e, &at) || !str_is(e, "E") ||
		        !text_before(b, at - 1, &second, &at) ||
		        !text_before(b, at - 1, &first, &at) ||
		        !text_before(b, at - 1, &mark, &at) || !str_is(mark, "S"))
			continue;
		*ret = (struct str){first.p, (size_t)(second.p + second.n + 1 - first.p)};
		return true;
	}
	return false;
}

enum bash_session_end bash_session_end(struct bash_session *s)
{
	enum bash_session_end how = BASH_SESSION_AS_BEFORE;
	struct str state;

	if (buf_error(&s->heard)) {
		how = BASH_SESSION_TOO_LARGE;
	} else if (find_frame(&s->heard, &state)) {
		how = state.n > STATE_MAX ? BASH_SESSION_TOO_LARGE : BASH_SESSION_KEPT;
		if (how == BASH_SESSION_KEPT) {
			buf_reset(&s->state);
			buf_append(&s->state, state.p, state.n);
		}
	}
	buf_free(&s->heard);
	return how;
}
