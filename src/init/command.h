/*
 * Commands from request to outcome: the queue, the start, the deadline, the kill. One thread. At
 * most INIT_MAX_RUNNING run, in the order in which they were asked for, whatever channel asked.
 */
#ifndef BRIG_INIT_COMMAND_H
#define BRIG_INIT_COMMAND_H

#include "init/message.h"
#include "init/leaf.h"

#include <stdbool.h>
#include <sys/types.h>

enum command_state {
	COMMAND_WAITING,
	COMMAND_STARTING, /* forked; exec not yet seen to have worked */
	COMMAND_RUNNING,
	COMMAND_ENDING,   /* being killed: until the leader is reaped and the leaf is empty */
	COMMAND_SETTLING, /* over; memory that it used up comes back */
	COMMAND_SYNCING,  /* over; its home is being written to disk */
};

/* What a child that could not exec writes into its report. */
struct command_report {
	int errnum;
	char step[16];
};

struct command {
	struct command *next; /* in the queue */
	int channel;          /* index, or -1 once nobody is to be told */
	uint64_t id;
	uint32_t flags, timeout_ms, argc, envc;
	char *payload; /* checked: argc + envc + 2 strings */
	size_t payload_len;
	int standard_input; /* -1: end-of-file */

	enum command_state state;
	struct leaf *leaf;
	pid_t leader; /* 0 once reaped */
	int status;   /* as from wait */
	int report;   /* pipe that closes at exec, or brings the step that failed; else -1 */
	struct command_report failure; /* errnum 0: none */
	int output[2];    /* read ends of stdout and stderr until they are sent, else -1 */
	uint32_t outcome; /* enum init_outcome once decided, else 0 */
	uint32_t done_flags;
	pid_t syncer;
	uint64_t oom_kills; /* of the container before the start */
	uint64_t started_ns, ended_ns, deadline_ns, kill_again_ns, settled_ns;
};

struct command_setup {
	enum init_cgroups cgroups;
	uint32_t init_uid;
	int oom;  /* memory.events or memory.oom_control */
	int home; /* for syncfs */
};
void command_open(const struct command_setup *setup);

/* INIT_RUN. Returns 0 (also when it is refused), or -EBADMSG for a message that breaks the
 * contract. */
int command_submit(uint32_t channel, struct message *m);

/* INIT_KILL; an id that is not known (it ended meanwhile) is no error. */
void command_kill(uint32_t channel, uint64_t id);

/* The channel is gone: its waiting commands go, its running ones are killed. */
void command_drop_channel(uint32_t channel);

/* The report of running command number `slot` can be read. */
void command_report_ready(uint32_t slot);

/* A child of init was reaped. */
void command_reaped(pid_t pid, int status);

/* Deadlines and kills in progress. Returns milliseconds until it wants to be called again, or -1.
 */
int command_tick(void);

#endif
