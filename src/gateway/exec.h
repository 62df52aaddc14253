/*
 * Direct execs: commands in a container without a model (DESIGN section 9).
 *
 *     exec.c         an exec's life: claim, commands in order, output to whoever listens, end
 *     exec_http.c    POST, GET and DELETE …/exec
 *     exec_record.c  its record, ledger row and price
 *     exec_answer.c  the answers, written as their clients take them
 *
 * An exec that is streamed or detached is never cut: what it prints goes to the client, and the
 * command waits while the client is full; or into two rings of 1 MiB, from which it can be read by
 * offset. One that is collected keeps its output within max_output_length, as a tool call does.
 */
#ifndef BRIG_GATEWAY_EXEC_H
#define BRIG_GATEWAY_EXEC_H

#include "gateway/internal.h"
#include "gateway/ring.h"
#include "json/json.h"
#include "record/record.h"
#include "tool/tool.h"

#define EXEC_KEEP_MS  600000 /* how long an ended exec can still be asked for */
#define EXEC_MAX_KEPT 256    /* ended ones with rings, in one gateway */
/* All of one gateway together: what they were given to run and what they keep of its output. */
#define EXEC_MAX_BYTES   ((size_t)512 << 20)
#define EXEC_MAX_RUNNING 4096

struct exec_waiter;

struct exec {
	struct exec *next, **link;
	struct gateway *g;
	const struct config_key *key;
	char id[65];
	char container[41];
	/* What to run: strings in `memory`. */
	struct arena *memory;
	struct str *commands; /* shell scripts, one after the other; or one NULL-free argv */
	size_t n_commands;
	bool is_argv;
	struct str *env;
	size_t n_env;
	struct str cwd, user, stdin_data;
	uint32_t timeout_ms;
	uint32_t output_chars;
	/* How it is listened to. */
	bool detach, stream, base64, rings;
	struct http_exchange *x; /* the POST's, while it is open */
	struct owner owner;
	bool answered;
	unsigned n_held;             /* by exec_hold() */
	bool destroyed;              /* as soon as nobody holds it */
	struct exec_waiter *waiters; /* of GET with wait */
	/* State. */
	struct container_hold *hold;
	struct command *command;
	size_t index;
	struct collector *out, *err;
	struct ring ring[2];
	char tail[2][4]; /* the beginning of a character whose rest has not come yet */
	size_t tail_len[2];
	uint64_t streamed[2]; /* bytes of the current command's stream that were sent */
	uint32_t output_left;
	struct command_output *outputs; /* texts malloc'ed */
	bool done, killed;
	struct record *record; /* NULL: handed over */
	bool recording;        /* its row is being made */
	bool started_container;
	uint64_t run_mono_ms; /* when the sandbox began to cost; 0: it did not */
	bool saving;          /* all has run, and its files are being saved */
	struct error failed;  /* code set: the sandbox could not be had, or ended */
	struct event *keepalive, *expire;
};

/* exec.c */
struct exec *exec_find(
        struct gateway *g, const struct config_key *key, struct str container, struct str id);
/* Is there room for those there are? Ended ones that are only kept make some. */
int exec_admit(struct gateway *g, struct error *err);
void exec_begin(struct exec *e);
void exec_cancel(struct exec *e);       /* kills; the end comes by itself */
void exec_destroy(struct exec *e);      /* at once, in any state */
struct exec *exec_hold(struct exec *e); /* it stays in memory until as many exec_unhold() */
void exec_unhold(struct exec *e);
void exec_let_go(struct exec *e); /* the exchange has gone: an exec that is not detached ends */

/* exec_http.c: called by exec.c when something happened */
void exec_on_admitted(struct exec *e); /* it begins: its key's limits let it */
void exec_on_started(struct exec *e);
void exec_on_output(struct exec *e, bool is_stderr, const void *data, size_t n);
void exec_on_command_done(struct exec *e);
void exec_on_done(struct exec *e);
void exec_on_rings(struct exec *e); /* there is more for those who wait */
void exec_base64_write(struct json_writer *w, const char *key, struct str s);

/* exec_record.c */
void exec_record_begin(struct exec *e, const struct request *r); /* it has its id */
void exec_record_open(struct exec *e); /* it has its container; exec_on_opened() follows */
void exec_record_command(struct exec *e);
void exec_record_command_ended(struct exec *e);
/* It has ended; exec_on_settled() follows, unless it is destroyed before. False: not recorded. */
bool exec_record_settle(struct exec *e);
void exec_record_free(struct exec *e); /* settles what was not */
void exec_record_beat_all(struct gateway *g);

/* exec.c */
void exec_on_opened(struct exec *e); /* failed may be set: the row could not be made */
void exec_on_settled(struct exec *e);

/* exec_answer.c: each answers x, which has no other owner from then on. */
void exec_answer_status(
        struct exec *e, struct http_exchange *x, int status, uint64_t out_from, uint64_t err_from);
void exec_answer_whole(struct exec *e, struct http_exchange *x);
void exec_answer_done(struct exec *e, struct http_exchange *x); /* the end of a stream */

#endif
