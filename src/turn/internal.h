/*
 * What the files of this folder share: the turn itself, and who does what.
 *
 *     turn.c    events in; phases, timer, cancel, the end     effect.c      the queue of effects
 *     reply.c   the upstream's stream → items                 accounting.c  usage, sandbox time,
 * money calls.c   which calls run; running them, one by one     output.c      what commands print
 */
#ifndef BRIG_TURN_INTERNAL_H
#define BRIG_TURN_INTERNAL_H

#include "base/buf.h"
#include "turn/turn.h"

enum turn_phase {
	PHASE_NEW,      /* TURN_START has not come */
	PHASE_UPSTREAM, /* a reply is being written */
	PHASE_TOOL,     /* t->run is running */
	PHASE_STORING,  /* all is said; the last event waits until it is durable */
	PHASE_DONE,
};

/* Why a reply did not end by itself. Nothing of such a reply is run. */
enum cut { CUT_NONE, CUT_LENGTH, CUT_FILTER, CUT_ERROR, CUT_TIME, CUT_CANCEL };

struct effect {
	struct turn_effect e;
	bool copied; /* output.text lies in texts, at: */
	size_t offset;
};

/* The item that the upstream is writing. It stays here after its end until what follows says
 * whether it was cut (the token limit is told only at the end of the reply). */
struct writing {
	bool active;
	bool ended;
	enum item_type type;
	struct item *item; /* NULL until there is something in it: empty items are nobody's */
	bool live;         /* shown while it is written */
	struct buf text;   /* of the part that is open; of a call: its arguments */
	bool part_open;
	enum part_type part_type;
	uint32_t part_number; /* the upstream's */
	struct part *parts;   /* malloc'ed; texts in the arena */
	size_t n_parts, cap_parts;
};

/* The call whose commands run. */
struct run {
	struct item *call; /* NULL: none */
	struct item *result;
	bool started, paused, killing;
	uint32_t bytes_given, bytes_left; /* of output */
	bool cut_said;                    /* some stream carries the line that says so */
	/* Of the command that runs, for stdout and stderr: */
	bool cut[2];  /* nothing more is kept */
	bool said[2]; /* and it is this stream that says so */
};

struct turn {
	struct turn_options o;
	struct conversation *c;
	enum turn_phase phase;
	uint64_t now_ms;
	bool begun; /* OUT_BEGIN is out */
	bool client_full;
	uint64_t timer_at; /* 0: none armed */
	bool time_up;      /* turn_ms is over */

	/* The reply under way, or the last one. */
	struct upstream_call upstream;
	bool upstream_paused;
	struct writing w;
	enum cut cut;
	struct item **held; /* its items that wait behind a call of ours, in order */
	size_t n_held, cap_held, next_held;
	uint32_t reply_items;
	enum finish finish; /* how the last reply ended */
	struct str stop_sequence;
	uint32_t pauses; /* replies in a row that asked to be called again */
	uint32_t reply_calls, reply_runs; /* of ours; how many of them ran */
	bool reply_client_call;           /* it has a call that goes to the client */

	struct run run;
	struct buf shown[2];   /* what the command that runs has shown, of stdout and stderr */
	uint32_t output_bytes; /* of text that calls which have ended gave */
	uint32_t runs;         /* over the turn: what max_tool_calls counts */
	uint32_t wasted;       /* replies whose calls all were refused */

	/* How it ends, once that is sure before all is done. */
	bool ending;
	enum turn_status status;
	const char *reason;
	struct error *error; /* TURN_FAILED: a copy */
	bool unsaved;        /* commands ran since the last save */

	/* accounting.c */
	struct usage usage, usage_now; /* of the replies that have ended; of the one under way */
	uint32_t n_upstream, n_requested, n_executed;
	bool commands_started, started_container;
	uint64_t first_command_ms, end_ms;

	/* effect.c */
	struct effect *queue;
	size_t n_queue, cap_queue, next_effect;
	struct buf texts;
};

/* ---- effect.c ---- */

void effect_push(struct turn *t, const struct turn_effect *e);
void effect_simple(struct turn *t, enum turn_effect_type type);
/* text is borrowed from an event: it is copied. */
void effect_emit_copied(struct turn *t, const struct turn_output *o);
/* text lies in the conversation. */
void effect_emit(struct turn *t, const struct turn_output *o);
void effect_item(
        struct turn *t, enum turn_output_type type, struct item *item, struct item *result);

/* ---- accounting.c ---- */

void accounting_usage(
        struct turn *t, const struct usage *u); /* cumulative for the reply under way */
void accounting_reply_done(struct turn *t);
void accounting_started(struct turn *t, bool started_container);

/* ---- reply.c ---- */

void reply_init(struct turn *t);
void reply_begin(struct turn *t);
/* false: the event ended the reply, and t->cut says how. */
bool reply_feed(struct turn *t, const struct stream_event *ev);
/* Ends what is being written. */
void reply_end(struct turn *t, enum cut cut);
void reply_free(struct turn *t);

/* ---- calls.c ---- */

enum call_class {
	CALL_OPEN,    /* no name yet */
	CALL_CLIENT,  /* goes back to the client */
	CALL_SERVER,  /* ours to run */
	CALL_REFUSED, /* unknown, or not allowed here */
};
enum call_class calls_class(const struct turn *t, const struct item *call);
/* Shows an item of the upstream's as a whole. */
void calls_show(struct turn *t, struct item *item);
/* Works through the held items until a call runs (false) or all are done (true). */
bool calls_advance(struct turn *t);
void calls_started(struct turn *t, bool started_container);
void calls_kill(struct turn *t, bool as_timeout);
/* The running call has ended: error as the model reads it, or {NULL,0}. */
void calls_ended(struct turn *t, struct str error, const char *status);
/* The last call of the turn: its reply must be text. */
bool calls_last(struct turn *t);

/* Puts a new result right behind its call. NULL: no memory. */
struct item *calls_result_add(struct turn *t, struct item *call);
/* Gives both their item ids. */
void calls_set_ids(struct turn *t, struct item *call, struct item *result);

/* ---- hosted.c ---- */

/* Takes an item of the provider's own shell that serves an entry of ours; false: it is none. */
bool hosted_item(struct turn *t, const struct stream_event *ev);
/* The reply is over: calls without a result get one that says so. */
void hosted_end(struct turn *t);

/* ---- output.c ---- */

void output_piece(struct turn *t, const struct turn_event *ev);
void output_command(struct turn *t, const struct turn_event *ev);
/* The call ends and no more is heard of the command that runs: what it has shown is its result.
 * reason may be NULL. */
void output_unfinished(struct turn *t, bool timed_out, const char *reason);

/* ---- turn.c ---- */

/* The turn will end so. The first one who says so is right; but that it fails overrides, and that
 * it was canceled overrides both. */
void turn_will_end(struct turn *t, enum turn_status status, const char *reason);
void turn_will_fail(struct turn *t, const struct error *err);
void turn_no_memory(struct turn *t);
/* Makes a public item id: prefix, the reply's mark where the request offers a server tool, random
 * characters. */
struct str turn_item_id(struct turn *t, const char *prefix);
void turn_make_id(struct turn *t, char *out, size_t size, const char *prefix, size_t n);
struct str turn_copy(struct turn *t,
        struct str s); /* into the arena; {NULL,0} and turn_no_memory() past its maximum */

#endif
