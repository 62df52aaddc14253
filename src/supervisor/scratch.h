/*
 * A sandbox of the supervisor's own, for the self-test: made as any other is, driven over a channel
 * as a gateway does. Everything here waits, with a limit; it is for the time before the loop.
 */
#ifndef BRIG_SUPERVISOR_SCRATCH_H
#define BRIG_SUPERVISOR_SCRATCH_H

#include "supervisor/sandbox.h"

#define SCRATCH_STEP_MS 20000 /* most that one step may take */

struct scratch {
	struct sandbox_host *host;
	struct sandbox sb;
	uint8_t key[SUP_KEY_LEN];
	int channel;
	uint64_t last_id;
};

/* A command. Its standard output is read; of standard error nothing is wanted. */
struct scratch_run {
	uint64_t id;
	int out;                            /* read end; -1: not started, or at its end */
	bool started, done, refused, ended; /* ended: the last writer of its output is gone */
	struct init_done end;
	struct init_refused why;
	size_t len;
	unsigned char bytes[16384]; /* what it has written; more of it is read and dropped */
};

/* Makes one; scratch_ready waits until it takes commands. Both: 0, or -1 with f, and scratch_end is
 * due in any case. `name` makes its key, and is its host name; number must be no other sandbox's.
 */
int scratch_start(struct sandbox_host *h, struct scratch *s, uint64_t number, const char *name,
        const struct sandbox_spec *limits, struct fail *f);
int scratch_ready(struct scratch *s, struct fail *f);
/* Starts a command with `input` as standard input (stays the caller's; -1: end-of-file). Where it
 * cannot be sent the run never starts. */
void scratch_run(struct scratch *s, struct scratch_run *run, int input, const char *const argv[]);
/* Takes what comes of this run for at most ms; true when something came. Of several runs that are
 * not done at once, only the last may be waited for. */
bool scratch_pump(struct scratch *s, struct scratch_run *run, int ms);
/* Pumps until it has ended, its output too; false when that takes longer than a step may. */
bool scratch_wait(struct scratch *s, struct scratch_run *run);
void scratch_kill(struct scratch *s, const struct scratch_run *run);
void scratch_forget(struct scratch_run *run); /* closes its output */
/* Kills it and takes all of it away, its home too. False: something stays in use. */
bool scratch_end(struct scratch *s);

#endif
