/*
 * The gateway's side of a channel, for tests: starts commands, collects what they print, waits for
 * how they end. One thread.
 */
#ifndef BRIG_TESTS_CLIENT_H
#define BRIG_TESTS_CLIENT_H

#include "proto/init.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLIENT_MAX_RUNS  64
#define CLIENT_MAX_BYTES (2 << 20)

struct client_run {
	uint64_t id;
	bool used, started, done, refused;
	struct init_done end;
	struct init_refused why;
	int fds[2]; /* -1 once at end-of-file, or taken */
	char *out[2];
	size_t len[2];
	uint64_t done_ns;
};

struct client {
	int channel;
	bool closed; /* init closed it */
	uint64_t next_id;
	struct client_run runs[CLIENT_MAX_RUNS];
};

/* What a command is; zero fields are defaults (an empty environment, home, root, end-of-file). */
struct client_command {
	const char *shell;       /* a script, or */
	const char *const *argv; /* NULL-terminated */
	const char *const *env;  /* NULL-terminated */
	const char *cwd, *user;
	uint32_t timeout_ms, flags;
	int standard_input; /* 0: none */
	bool memfd;
};

void client_open(struct client *c, int channel);

/* Sends INIT_RUN. The run is freed by client_forget(). */
struct client_run *client_start(struct client *c, const struct client_command *command);

/* Until the run is done or refused (and, unless it left a writer behind, its output is complete),
 * or ms passed: false then. */
bool client_wait(struct client *c, struct client_run *run, int ms);

/* Until the run has printed the text; false when it ended, or ms passed, without. */
bool client_wait_text(struct client *c, const struct client_run *run, const char *text, int ms);

/* Reads messages and output for that long at most, or until nothing comes. */
void client_pump(struct client *c, int ms);

void client_kill(struct client *c, const struct client_run *run);

/* Gives the output descriptors to init. */
void client_discard(struct client *c, struct client_run *run);

void client_forget(struct client_run *run);

void client_close(struct client *c);

#endif
