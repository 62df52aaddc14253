/*
 * What happened in a turn, written down while it happens: the record of one request
 * (record/record.h), and its ledger row.
 *
 *     recording_begin   the head is known        recording_open   the row is durable: the turn may
 * cost …                 what happens             recording_hold   the row is settled: the last
 * event goes out
 *
 * The turn owns its record until it is settled; then the ledger does, which frees it. On the loop
 * only, but where said.
 */
#ifndef BRIG_GATEWAY_RECORDING_H
#define BRIG_GATEWAY_RECORDING_H

#include "base/buf.h"
#include "conversation/stream.h"
#include "record/record.h"
#include "turn/turn.h"

struct gateway;
struct request;
struct turn_run;
struct command_output;

struct recording {
	struct record *record; /* NULL: there is none, or it was handed over */
	bool asked, opened;    /* its row was asked for, and is there: */
	void (*then)(struct turn_run *t, const struct error *err); /* … who is told */
	bool attempt;                     /* the last attempt is under way */
	enum item_type writing;           /* what the upstream writes */
	struct buf completion, reasoning; /* content */
	size_t asked_bytes, seen_bytes;   /* of the request; of what the upstream under way wrote */
	uint64_t guessed_input, guessed_output; /* tokens that no provider told of */
	size_t run;             /* the one under way, in record->runs; SIZE_MAX: none */
	struct turn_output end; /* held until the row is settled */
	struct turn_totals totals;
};

/* Whose request it is, and when it came; the record has its id. For direct execs too. */
void recording_who(struct record *rec, const struct request *r);
/* Frees a record that is not to be written, and gives back what it holds of its key's limits. Takes
 * NULL; returns NULL. For them too. */
struct record *recording_drop(struct gateway *g, struct record *r);
/* How a command ended, without its texts. For them too. */
void recording_outcome(struct record_command *c, const struct command_output *o);

/* Before the request's head is released. */
void recording_begin(struct turn_run *t, const struct request *r);
/* Reads what the record wants of the body. On the thread that parses, before it does. */
void recording_body(struct turn_run *t);
/* Guardrails changed the body: what they took out of it is not kept either. On the same thread. */
void recording_redacted(struct turn_run *t);
/* then() comes from the loop, always; err: there is no row, and nothing may cost anything. */
typedef void (*recording_fn)(struct turn_run *t, const struct error *err);
void recording_open(struct turn_run *t, recording_fn then);

void recording_attempt(struct turn_run *t); /* the target is asked */
void recording_stream(struct turn_run *t, const struct stream_event *ev);
void recording_attempt_failed(struct turn_run *t, const struct error *e);

void recording_run(struct turn_run *t, const struct item *call); /* a call's commands are to run */
void recording_run_started(struct turn_run *t);                  /* the container is there */
void recording_command(struct turn_run *t);                      /* one begins */
void recording_command_ended(struct turn_run *t);
/* What the client is shown: a call that has ended, run or not. */
void recording_output(struct turn_run *t, const struct turn_output *o);

/* The end is to be emitted; turn_run_emit_settled() follows, from within or from the loop. */
void recording_hold(
        struct turn_run *t, const struct turn_output *end, const struct turn_totals *totals);
/* It ends before there was a turn. then (NULL: nobody waits) comes from within or from the loop,
 * when that is written down. */
void recording_refused(struct turn_run *t, const struct error *e, recording_fn then);
/* A heartbeat of every open one. */
void recording_beat_all(struct gateway *g);
void recording_free(struct turn_run *t); /* what was not settled, is */

#endif
