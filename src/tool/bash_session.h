/*
 * The state of a bash session between two commands: working directory, umask, variables, functions
 * and options, as texts that only bash reads. Whoever runs commands gives each one what
 * bash_session_begin() says and hears what it writes to standard error; standard output is both of
 * the command's streams.
 *
 * The state is the guest's own and never leaves its container but to come back: it is bounded, and
 * otherwise not looked at. One owner, one thread, one command at a time.
 */
#ifndef BRIG_TOOL_BASH_SESSION_H
#define BRIG_TOOL_BASH_SESSION_H

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>

struct bash_session {
	struct buf state; /* empty: a new session */
	struct buf heard; /* of the command that runs */
};

#define BASH_SESSION_ARGC 5

void bash_session_init(struct bash_session *s);
/* Forgets everything; also frees it. */
void bash_session_reset(struct bash_session *s);
/* What to run for a command, and its standard input. Borrowed: until the session is next used. */
void bash_session_begin(struct bash_session *s, struct str command,
        struct str ret_argv[BASH_SESSION_ARGC], struct str *ret_input);
void bash_session_hear(struct bash_session *s, const void *data, size_t n);

enum bash_session_end {
	BASH_SESSION_KEPT,      /* the next command goes on where this one ended */
	BASH_SESSION_AS_BEFORE, /* it left nothing (exec, killed): the next one goes on where it
	                           began */
	BASH_SESSION_TOO_LARGE, /* the same, since what it left is over 1 MiB */
};
/* The command has ended and all that it wrote was heard. */
enum bash_session_end bash_session_end(struct bash_session *s);

#endif
