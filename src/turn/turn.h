/*
 * The turn: a pure state machine (DESIGN section 4). Events go in, effects come out. It does no I/O, reads
 * no clock (every event carries the time) and has no threads, so that any odd order of things is a
 * script in tests/cases/turn.
 *
 * The caller performs effects in the order they come. Performing may make new events; those are fed
 * after the effects that are there, or later. An event that comes too late (output of a killed command)
 * is ignored. After EFFECT_DONE nothing more comes out. Where effects are taken late, an item may already
 * be further on than the output that shows it; what the output itself says holds.
 *
 * The turn adds items to the conversation and owns nothing else; the conversation outlives it.
 *
 * What the builder of a gateway or an api must know:
 * - OUT_BEGIN comes when the first reply begins. A turn that fails or is canceled before that has only
 *   OUT_END, so the gateway can still answer with a status.
 * - Items are shown one at a time. From the first call on that is not the client's, a reply's items wait until
 *   all of it is there; then they come in order, a call of ours with its result. That is also their
 *   order in the conversation, and so the order in which a replay brings them.
 * - A call that is not run (unknown, not allowed, broken, over a limit, in a reply that was cut) has
 *   OUT_TOOL_BEGIN and OUT_TOOL_END in a row, status "failed", call.error and result.error. It is shown as a
 *   call of the server tool by its own name, whatever the model called it. In a request without a server tool
 *   there is no such item: then only calls that tool_choice forbids are kept from the client (item->output is
 *   false), and every other one is the client's, whatever its name and arguments.
 * - Nothing of a reply that was cut (token limit, filter, error) is run.
 * - A cancel gives EFFECT_STORE where commands ran, and does not wait for it.
 * - At most one timer is armed: EFFECT_ARM_TIMER replaces the one before.
 */
#ifndef BRIG_TURN_TURN_H
#define BRIG_TURN_TURN_H

#include "base/error.h"
#include "base/money.h"
#include "conversation/conversation.h"
#include "conversation/stream.h"
#include "tool/tool.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * When server tools stop (spec/openrouter.md 1.6): as soon as one condition holds after a reply and its
 * calls, the model gets one last call with tools off.
 */
enum stop_type {
	STOP_STEPS,     /* n calls of server tools were run */
	STOP_TOOL_CALL, /* the server tool `name` was called */
	STOP_TOKENS,    /* n tokens, of input and output together */
	STOP_COST,      /* cost, of model and sandbox together */
	STOP_FINISH,    /* a reply ended with this finish reason: "stop", "length", "tool_calls", "content_filter" */
};
struct stop_condition {
	enum stop_type type;
	uint64_t n;
	struct str name;
	struct money cost;
};

struct turn_options {
	uint32_t max_tool_calls; /* 1 … 30: server tool calls in this turn */
	const struct stop_condition *stop; /* must outlive the turn; NULL: none */
	size_t n_stop;
	/* What tokens cost so far, for STOP_COST; NULL: nothing. */
	struct money (*price)(void *ctx, const struct usage *u);
	void *price_ctx;
	uint64_t turn_ms;        /* then running commands end as timeout and the last call is made */
	bool streamed;           /* false: at turn_ms it ends with what it has, status incomplete */
	uint32_t call_output_bytes; /* 1 MiB of text a call over all its commands */
	uint32_t turn_output_bytes; /* 16 MiB */
	struct tool_limits tool;
	struct money price_per_second; /* of the sandbox */
	struct str container_id; /* put on the results of calls that were run; must outlive the turn */
	/* Calls go into the conversation as json_compact() writes their arguments: a client whose dialect
	 * carries them as an object gives back that text, not the model's own. */
	bool compact_arguments;
	/*
	 * Turns a provider's opaque bytes into what the client holds (sealed, or as they are where dialect and
	 * provider are the same): appends to out; false drops them. NULL: all are dropped.
	 */
	bool (*seal)(void *ctx, struct str opaque, struct buf *out);
	void *seal_ctx;
	/* Makes a random id as id_make() does. NULL: id_make(). Tests give one that counts. */
	void (*make_id)(void *ctx, char *out, size_t size, const char *prefix, size_t n);
	void *make_id_ctx;
};

/* ---- events ---- */

enum turn_event_type {
	TURN_START,
	TURN_STREAM,          /* stream: one canonical event of the upstream call that is under way */
	TURN_TOOL_STARTED,    /* call, started_container: the container is there and the first command begins */
	TURN_TOOL_OUTPUT,     /* call, command, is_stderr, text: a piece that is sure to stay: the command's pieces
	                         begin the text that TURN_TOOL_COMMAND brings */
	TURN_TOOL_COMMAND,    /* call, command, output: one command has ended */
	TURN_TOOL_DONE,       /* call: all commands have ended, or were killed */
	TURN_TOOL_FAILED,     /* call, text: the sandbox failed (no capacity, init died …); commands that ended count */
	TURN_STORED,          /* what EFFECT_STORE asked for is durable; text: not empty when it failed, and why */
	TURN_TIMER,           /* the timer of EFFECT_ARM_TIMER */
	TURN_CLIENT_FULL,     /* more waits for the client than it should */
	TURN_CLIENT_DRAINED,
	TURN_CANCEL,          /* the client has gone, asked to cancel, or takes nothing; or the server stops */
};

struct turn_event {
	enum turn_event_type type;
	uint64_t now_ms; /* monotonic */
	const struct stream_event *stream;
	struct item *call;
	size_t command;
	bool is_stderr;
	struct str text;
	const struct command_output *output; /* texts are copied */
	bool started_container; /* the container was made or woken: the price's floor applies */
	/* TURN_TOOL_STARTED: not {NULL,0}: commands run in this container from now on. Must outlive the turn. */
	struct str container_id;
	/* TURN_TOOL_FAILED: what the request asked for cannot be had, and asking the model again would not help.
	 * Where no command of the turn was started, the turn fails with it. NULL: only the call failed. */
	const struct error *refused;
};

/* ---- effects ---- */

enum turn_effect_type {
	EFFECT_CALL_UPSTREAM,   /* call: build a request from the conversation and send it */
	EFFECT_PAUSE_UPSTREAM,
	EFFECT_RESUME_UPSTREAM,
	EFFECT_CANCEL_UPSTREAM,
	EFFECT_RUN_TOOL,        /* item (a call): run its commands in the turn's container, in order */
	EFFECT_PAUSE_TOOL,
	EFFECT_RESUME_TOOL,
	EFFECT_KILL_TOOL,       /* as_timeout: outcome is timeout (TURN_TOOL_DONE follows); else the turn is over */
	EFFECT_EMIT,            /* output */
	EFFECT_ARM_TIMER,       /* at_ms */
	EFFECT_STORE,           /* make durable what finished commands wrote; TURN_STORED follows */
	EFFECT_DONE,            /* release the container and forget the turn */
};

struct upstream_call {
	bool tools_off;        /* declare the tools, and say that none may be called */
	struct tool_choice choice; /* in force for this call */
	uint32_t reply;        /* number of the reply it will bring */
};

/* ---- what the client is to see ---- */

enum turn_output_type {
	OUT_BEGIN,         /* the turn has begun */
	OUT_ITEM_BEGIN,    /* item: a message, reasoning or a client's call begins */
	OUT_DELTA,         /* item, part, part_type, text (for a call: arguments) */
	OUT_ITEM_END,      /* item is complete */
	OUT_TOOL_BEGIN,    /* item: a server tool's call, arguments complete */
	OUT_TOOL_OUTPUT,   /* item, result, command, is_stderr, text; streamed turns only. All of a command's, joined,
	                      are its final text */
	OUT_TOOL_COMMAND,  /* item, command: result->result.outputs[command] is final */
	OUT_TOOL_END,      /* item, result: also for a call that was not run (item->call.error) */
	OUT_END,           /* status, why, error; usage and cost by turn_totals() */
};

enum turn_status { TURN_COMPLETED, TURN_INCOMPLETE, TURN_FAILED, TURN_CANCELED };

struct turn_output {
	enum turn_output_type type;
	struct item *item;
	struct item *result;
	enum part_type part_type;
	uint32_t part;
	size_t command;
	bool is_stderr;
	struct str text; /* lives until the next call of turn_next_effect or turn_feed */
	enum turn_status status;
	const char *incomplete_reason; /* "max_output_tokens", "content_filter", "timeout" */
	const struct error *error;     /* TURN_FAILED; lives as long as the turn */
	enum finish finish;            /* OUT_END: how the last reply ended */
	struct str stop_sequence;      /* OUT_END: the one that it stopped at, or {NULL,0} */
};

struct turn_effect {
	enum turn_effect_type type;
	struct upstream_call call;
	struct item *item;
	uint32_t output_bytes; /* EFFECT_RUN_TOOL: how many bytes of text all its output may still have; the turn cuts
	                          what is more, so this only saves the caller from holding it */
	bool as_timeout;
	uint64_t at_ms;
	struct turn_output output;
};

struct turn_totals {
	struct usage usage;          /* summed over all upstream calls */
	uint32_t upstream_calls;
	uint32_t tool_calls_requested, tool_calls_executed;
	bool commands_started;       /* x-should-retry: false from here on */
	uint64_t sandbox_ms;         /* billed: whole milliseconds, floor applied; 0: nothing ran */
	struct money sandbox_cost;
};

struct turn;
struct turn *turn_new(struct conversation *c, const struct turn_options *o);
struct turn *turn_free(struct turn *t);
void turn_feed(struct turn *t, const struct turn_event *ev);
/* The next effect, or false when there is none until another event. */
bool turn_next_effect(struct turn *t, struct turn_effect *ret);
/* What kind the next one is, without taking it. */
bool turn_peek_effect(const struct turn *t, enum turn_effect_type *ret);
void turn_totals(const struct turn *t, uint64_t now_ms, struct turn_totals *ret);
/* What is billed of the time from a first command to the end of the last; direct exec pays alike. */
uint64_t turn_sandbox_ms(uint64_t begin_ms, uint64_t end_ms, bool started_container);

#endif
