/*
 * The command line: one file a subcommand, and what they share.
 *
 * A subcommand gets its own arguments (argv[0] is its name) and returns the program's exit code: 0,
 * 1 for a failure that was reported, 2 for wrong usage. Everything here runs on one thread.
 */
#ifndef BRIG_CLI_CLI_H
#define BRIG_CLI_CLI_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum { CLI_FAILED = 1, CLI_USAGE = 2 };

struct cli_command {
	const char *name;
	const char *summary; /* one line for `brig --help`; NULL: not listed */
	int (*run)(int argc, char **argv);
};

/* The values of a flag that may be given more than once. */
#define CLI_LIST_MAX 64
struct cli_list {
	const char *items[CLI_LIST_MAX];
	size_t n;
};

/* One flag. One of text and set is given; neither: its values go to the list of cli_usage. */
struct cli_flag {
	const char *name; /* "--listen" */
	const char *meta; /* "ADDR:PORT"; NULL for a switch */
	const char *doc;
	const char **text; /* gets the value */
	bool *set;         /* becomes true */
};

struct cli_usage {
	const char *line;  /* "brig serve [--config FILE] …" */
	const char *about; /* text of a few lines, ended by a newline */
	const struct cli_flag *flags;
	size_t n_flags;
	struct cli_list *list;
};

/*
 * Reads flags up to the first argument that is none, or behind `--`. Returns the index of what is
 * left in argv, or a negative number when the command is to end: then *ret_exit is its exit code (0
 * after --help, CLI_USAGE after an unknown flag, each with its text printed).
 */
int cli_flags(const struct cli_usage *usage, int argc, char **argv, int *ret_exit);

/* The word behind a command that does several things: `brig keys list`. */
struct cli_verb {
	const char *name;
	int least, most;   /* how many arguments stand behind it, */
	const char *wants; /* and what they are; NULL: none */
	int (*run)(void *ctx, char **args, int n, struct error *err);
};
/*
 * Reads flags, one of the verbs, flags behind it, and moves *argc and *argv to what is left: the
 * verb's arguments, as many as it takes. NULL: as a negative number of cli_flags().
 */
const struct cli_verb *cli_verb(const struct cli_usage *usage, const struct cli_verb *verbs,
        size_t n_verbs, int *argc, char ***argv, int *ret_exit);

/* "brig NAME: text" and how to get help, on standard error. Returns CLI_USAGE. */
int cli_wrong(const struct cli_usage *usage, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
/* "brig: text" on standard error. Returns CLI_FAILED. */
int cli_fail(const struct error *err);

/* The data folder: the flag, else BRIG_DATA, else configured (may be NULL), else /var/lib/brig for
 * root and $XDG_STATE_HOME/brig or ~/.local/state/brig for others. -ERR_INVALID where it is not
 * absolute. */
int cli_data_folder(const char *flag, const char *configured, char ret[4096], struct error *err);

int cli_serve(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_ask(int argc, char **argv);
int cli_ps(int argc, char **argv);
int cli_files(int argc, char **argv);
int cli_logs(int argc, char **argv);
int cli_keys(int argc, char **argv);
int cli_rm(int argc, char **argv);
int cli_image(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_selftest(int argc, char **argv);
int cli_version(int argc, char **argv);
/* The gateway's own process, started by serve: descriptors at fixed numbers instead of arguments.
 */
int cli_gateway(void);
/* The egress process, likewise. */
int cli_egress(void);

#endif
