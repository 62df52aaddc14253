/*
 * Containers, seen from a gateway: claims on them through the supervisor, and commands in them
 * through init. Asynchronous on the gateway's loop; everything belongs to that thread. Callbacks
 * are never made from inside the call that asked.
 *
 * A hold is one claim: a turn's or a direct exec's. Releasing it kills the commands that still run
 * on it and nothing else. What ended before and left something in the background lives on until
 * sleep.
 */
#ifndef BRIG_CONTAINER_CONTAINER_H
#define BRIG_CONTAINER_CONTAINER_H

#include "base/error.h"
#include "base/str.h"
#include "proto/init.h"
#include "proto/supervisor.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The supervisor's key of a container, and the hash that stands for its workspace. */
void container_key(struct str account, struct str workspace, struct str id,
        uint8_t ret_key[SUP_KEY_LEN], uint8_t ret_workspace[16]);

struct container_client;

struct container_client_handler {
	void *ctx;
	/* A live container is live no more. */
	void (*on_ended)(void *ctx, const uint8_t key[SUP_KEY_LEN], enum sup_end why);
	/* The supervisor has gone: every hold fails, the gateway should end. */
	void (*on_lost)(void *ctx);
	/* Egress sends its records there from now on, in the place of an earlier one; taken over.
	 * NULL: they are not read. */
	void (*on_records)(void *ctx, int fd);
	/* A claim was answered after so long; claimed: there is a hold, made in this way. NULL:
	 * nobody counts them. */
	void (*on_claim)(void *ctx, bool claimed, enum sup_how how, uint64_t waited_ns);
};
/* fd is taken over. fd < 0: a server without sandboxes; every claim fails with ERR_UNAVAILABLE. */
struct container_client *container_client_new(
        struct event_base *base, int fd, const struct container_client_handler *h);
struct container_client *container_client_free(struct container_client *c);

/* ---- holds ---- */

struct container_spec {
	uint8_t key[SUP_KEY_LEN];
	uint8_t workspace[16];
	uint8_t policy[16];
	/* What egress is to read (proto/egress.h), where it has network; the spec's, free it with
	 * container_spec_clear(). policy_len 0: disabled. */
	char *policy_lines;
	size_t policy_len;
	bool any_address;
	uint32_t image, memory_mib, cpu_milli, processes, workspace_live, wait_ms;
	uint64_t keep_ms;  /* once claimed: awake and thawed so long from now; 0: as it is */
	char hostname[64]; /* container_hostname() */
	bool must_exist;
};
void container_spec_clear(struct container_spec *s);
void container_hostname(struct str id, char out[64]); /* lower case, '_' → '-', never empty */

struct container_hold;
/* hold is NULL when err is not. ERR_CONFLICT, ERR_CAPACITY, ERR_NOT_FOUND, ERR_UNAVAILABLE, ERR_IO.
 */
typedef void (*container_claimed_fn)(
        void *ctx, struct container_hold *hold, const struct error *err);
/* One callback, unless container_release() comes first. */
struct container_hold *container_claim(struct container_client *c, const struct container_spec *s,
        container_claimed_fn fn, void *ctx);
/* Ends the hold in any phase: no more callbacks of it or its commands; those that run are killed.
 * Takes NULL. */
void container_release(struct container_hold *h);
enum sup_how container_hold_how(const struct container_hold *h);
bool container_hold_keeps(const struct container_hold *h); /* its spec said keep_ms */
uint64_t container_hold_generation(const struct container_hold *h);

/* ---- commands ---- */

struct command;

struct command_options {
	const struct str *argv; /* with shell: one string, a script for bash -c */
	size_t argc;
	bool shell;
	const struct str
	        *env; /* NAME=VALUE, added to the fixed ones (a later one of a name wins) */
	size_t envc;
	struct str cwd;        /* {NULL,0}: /workspace/home */
	struct str user;       /* {NULL,0}: root */
	uint32_t timeout_ms;   /* 0: none */
	struct str stdin_data; /* {NULL,0}: end-of-file; at most 1 MiB, copied */
	bool durable;          /* syncfs(home) before on_done */
};

struct command_end {
	enum init_outcome outcome;
	int code;      /* exit code or signal */
	bool memory;   /* killed for memory */
	bool unsynced; /* it was to be durable, and writing home to disk failed */
	uint64_t started_ns, ended_ns;
};

struct command_handler {
	void *ctx;
	void (*on_started)(void *ctx, struct command *c);
	void (*on_output)(void *ctx, struct command *c, bool is_stderr, const void *data, size_t n);
	/* The leader has ended and its output has been read: until empty, or for 100 ms where a
	 * background child holds a pipe, which then goes to init. With err: it was refused
	 * (ERR_INVALID: no such user, directory or program; text says which) or init died (ERR_IO;
	 * then end is zero). The command is dead afterwards. */
	void (*on_end)(void *ctx, struct command *c, const struct command_end *end,
	        const struct error *err);
};
struct command *container_run(struct container_hold *h, const struct command_options *o,
        const struct command_handler *handler, struct error *err);
void command_pause(struct command *c, bool paused); /* reading stops; the guest blocks in write */
void command_kill(struct command *c);               /* on_end follows with INIT_KILLED */
/* "SIGKILL"; "SIG64" style for the unnamed. Stays as it is for as long as the thread lives. */
const char *command_signal_name(int signal);
/* As a shell says it: the code, or 128 and the signal. 137 where it was killed from outside,
 * whatever its leader had come to by then. */
int command_exit_code(const struct command_end *end);

/* ---- questions and orders about a container ---- */

struct container_status {
	enum sup_state state;
	uint32_t holders;
	uint64_t idle_ms, home_used_bytes, generation;
	uint8_t policy[16]; /* of a live one; all zero: no network */
};
typedef void (*container_answer_fn)(
        void *ctx, const struct container_status *status, const struct error *err);
/* status is NULL for the orders. Exactly one callback. */
void container_ask_status(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        container_answer_fn fn, void *ctx);
/* All sandboxes of the node. node is NULL with err; exactly one callback. */
typedef void (*container_node_fn)(void *ctx, const struct sup_node *node, const struct error *err);
void container_ask_node(struct container_client *c, container_node_fn fn, void *ctx);
/* Messages that wait for room in the supervisor's socket, or for its answer. */
size_t container_client_waiting(const struct container_client *c);
void container_order_sleep(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        container_answer_fn fn, void *ctx);
void container_order_delete(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        container_answer_fn fn, void *ctx);
void container_order_keep(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        uint64_t keep_ms, container_answer_fn fn, void *ctx);

#endif
