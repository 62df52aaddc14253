/*
 * A supervisor of few words for tests of init: makes one sandbox at a time from the host's own root
 * as the lower layer, in a mount namespace of its own, with cgroups named after this process.
 * Everything it makes goes with sandbox_end() and the process; a failing step ends the process with
 * a message.
 */
#ifndef BRIG_TESTS_SANDBOX_H
#define BRIG_TESTS_SANDBOX_H

#include "proto/init.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SANDBOX_UID      65533       /* init's own id */
#define SANDBOX_BASE     1879900160u /* the host's id of the sandbox's root */
#define SANDBOX_MEMORY   192         /* MiB */
#define SANDBOX_PIDS     160
#define SANDBOX_HOSTNAME "test-host"

struct sandbox {
	enum init_cgroups kind;
	int control;
	pid_t pid;
	uint64_t exec_ns, prepared_ns, claim_ns, ready_ns; /* CLOCK_MONOTONIC */
};

uint64_t sandbox_now_ns(void);

/* Once: the mount namespace and what sandboxes share. sbx: the helper's path. Returns false when
 * the host has no such cgroup hierarchy. */
bool sandbox_open(enum init_cgroups kind, const char *sbx);

/* What a test would have other than it should be; each may be NULL. */
struct sandbox_change {
	void (*setup)(struct init_setup *m);
	void (*take_root)(struct init_header *m);
	void (*claim)(struct init_claim *m);
	void (*root)(int upper); /* a directory whose files cover those of the image */
};

/* Starts init and takes it to READY. Returns "", or the step at which it said INIT_BROKEN, or "end"
 * when it just ended; sandbox_end() is due in each case. */
const char *sandbox_start_changed(struct sandbox *sb, const struct sandbox_change *change);

/* The same with nothing changed and no excuse. */
void sandbox_start(struct sandbox *sb);

/* Brings init a new channel. Returns the gateway's end. */
int sandbox_channel(const struct sandbox *sb);

/* How many processes the sandbox has, init included. */
int sandbox_count(const struct sandbox *sb);

/* Closes the control socket. Returns init's wait status, or -1 when it does not end in two seconds.
 */
int sandbox_end(struct sandbox *sb);

/* Takes back what sandbox_open() made. */
void sandbox_close(void);

#endif
