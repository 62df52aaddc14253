/*
 * One running turn in the gateway: what stands between the pure state machine and the world.
 * Private to turns.c (the request), turn_run.c (client and effects), upstream.c (provider) and run.c
 * (commands).
 *
 * All of them report by turn_run_feed(); nobody but turn_run.c calls turn_feed. A turn_run lives from
 * the request until EFFECT_DONE was performed and its bytes were handed over; its exchange may be
 * gone earlier (x is NULL then).
 */
#ifndef BRIG_GATEWAY_TURN_RUN_H
#define BRIG_GATEWAY_TURN_RUN_H

#include "gateway/attempts.h"
#include "gateway/documents.h"
#include "gateway/guardrails.h"
#include "gateway/internal.h"
#include "gateway/recording.h"
#include "gateway/relay_run.h"
#include "gateway/responses_state_turn.h"
#include "tool/bash_session.h"
#include "tool/tool.h"
#include "turn/turn.h"

/* The call to a provider that is under way. upstream.c */
struct upstream {
	struct upstream_link *link; /* NULL: no fetch is under way */
	struct provider_parser *parser;
	struct upstream_call call;
	unsigned serial; /* another number: another call, or none */
	size_t target;   /* index in the route */
	int status;      /* 0: no head yet */
	bool begun;      /* an event reached the turn: no other target may be tried */
	bool over;       /* the reply has ended */
	bool paused;     /* the turn wants it */
	bool stands;     /* it is paused now */
	char retry_after[64];
	struct buf error_body;
};

/* The commands of the tool call that is under way. run.c */
struct run {
	struct container_hold *hold; /* for the whole turn */
	bool claiming;
	unsigned reading;       /* reads of the container's row that are under way */
	bool started_container; /* the hold made or woke it */
	struct item *call;      /* NULL: no call is under way */
	struct command *command;
	size_t index;         /* of the command that runs */
	uint32_t output_left; /* bytes that the call may still show */
	struct collector *out, *err;
	bool paused;    /* the turn wants it */
	bool stands;    /* the command is paused now */
	bool timed_out; /* the turn's time was up: what ends now is a timeout */
	bool unsynced;  /* a command's files could not be written to disk */
	struct bash_session
	        session;           /* what bash calls of this turn have come to in this container */
	uint64_t session_until_ms; /* of the bash call that runs: when its time is up */
	uint32_t session_chars;    /* and how many characters it may still show */
	struct str moved_to;       /* a restart's new container; {NULL,0}: the request's own */
	struct str *env;           /* of the container, NAME=VALUE; in the conversation's arena */
	size_t n_env;
	struct documents_attach *attach; /* of the entry's file_ids; NULL: none, or copied */
	uint8_t key[SUP_KEY_LEN];        /* the container's */
};

/* The files that the last call touched, asked for beside the next upstream call. run_files.c */
struct run_files {
	uint64_t since_ns;         /* when the call began */
	struct container_ask *ask; /* NULL: nothing is asked */
	struct event *timer;       /* NULL until needed */
	struct item *result;       /* of the call that it is about */
	bool holds;                /* the end of that call waits to be shown: */
	struct turn_effect end;
	struct run_files_list *lists; /* what results point at */
};

struct turn_run {
	struct turn_run *next, **link; /* in gateway.turns */
	struct gateway *g;
	const struct config_key *key;
	struct http_exchange *x; /* NULL: the client has gone */
	struct turn_sink *sink;  /* carries the events in x's place; NULL: none, or x is */
	bool websocket;          /* there was one */
	struct owner owner;      /* the exchange's data */
	struct turn_request request;
	struct turn *turn;
	struct api_stream *stream;
	struct api_identity who;
	char seed[48]; /* random: the request's own container id comes from it */
	struct route route;
	void (*routed)(struct turn_run *t, const struct error *err); /* who waits for the route */
	struct upstream up;
	struct attempts attempts;        /* of the call that is under way */
	struct event *retry;             /* NULL until needed: the next attempt's time */
	struct provider_parser *parsing; /* is on the stack: not to be closed before it returns */
	bool parser_over;                /* its call has ended meanwhile */
	struct run run;
	struct run_files files;
	struct responses_state_turn state;
	struct recording recording;
	struct relay_run relay;
	struct api_seal seal;  /* of compactions */
	bool no_compact;       /* the target has no path of its own for them */
	char *metadata; /* who.metadata, or NULL */
	struct rules *rules;                 /* that hold for it, from its beginning */
	struct guardrails_report guard;      /* what the request was found to hold */
	struct guardrails_report tool_guard; /* and the output of its commands */
	struct buf out;  /* bytes that wait until the answer may begin */
	bool answered;   /* status line sent */
	bool served;     /* a provider's reply has begun */
	bool may_answer; /* the upstream accepted, or the client waited long enough */
	bool full;       /* the turn knows that the client is full */
	bool pumping;
	bool blocked;  /* a large event waits for the client: upstream and command stand still */
	bool ended;    /* OUT_END was emitted */
	bool finished; /* the exchange was told that this was all */
	bool done;     /* EFFECT_DONE, or refused before there was a turn */
	bool storing;  /* the pool works for it: do not free */
	bool reaping;  /* the loop will free it */
	bool state_dropped; /* the log says that sealed state was not for the provider asked */
	bool building; /* the pool reads the conversation, so nothing may change it: */
	bool cancel_later, timer_later; /* events that came meanwhile */
	int status;                     /* of the answer */
	const struct error *failure;    /* the turn's own, of OUT_END; NULL: none */
	struct error *refused;          /* why there is no turn; NULL: there is one, or nobody asks */
	struct error *job_error;        /* of the work on the pool that has failed */
	struct event *timer, *keepalive;
	struct event *more;   /* NULL until needed: goes on with a large event in the next step */
	uint64_t timer_at_ms; /* when the turn wants to be told */
	char *model_shown;
	/* Parsing, perhaps on the pool. */
	const struct api *api;
	enum dialect asks; /* whose shape errors have */
	char *session;     /* the header's value, whole: its end counts */
	char *beta;        /* the header anthropic-beta, or NULL */
	char *path_model;  /* of a path that names it, decoded; NULL: none */
	struct api_request in;
};

/* The route's target number up.target serves from now on: its name and prices count. turns.c */
void turn_run_serve(struct turn_run *t);
/* Takes the exchange's callbacks, from the beginning; and, for the turn, its timers: false where
 * there is no memory. */
void turn_run_own(struct turn_run *t);
bool turn_run_arm(struct turn_run *t);
/* Frees it: at once, at the server's end; or from the loop, where nobody needs it any more. */
void turn_run_free(struct turn_run *t);
void turn_run_reap(struct turn_run *t);
void turn_run_feed(
        struct turn_run *t, struct turn_event *ev); /* sets now_ms, feeds, performs effects */
void turn_run_feed_plain(struct turn_run *t, enum turn_event_type type); /* of nothing else */

/* The sink is told that all was written, or why nothing was, and goes on without this turn. */
void turn_run_sink_end(struct turn_run *t, const struct error *refused);

/* Emits the end, which responses_state_turn_hold() has held back, and goes on. */
void turn_run_emit_end(
        struct turn_run *t, const struct turn_output *end, const struct turn_totals *totals);

/* The same once the record is settled: only recording.c calls it. */
void turn_run_emit_settled(
        struct turn_run *t, const struct turn_output *end, const struct turn_totals *totals);

/* The head of an answer with this status; or all of one that says why the turn failed. */
void turn_run_answer_headers(struct turn_run *t, int status);
void turn_run_answer_error(struct turn_run *t);
void turn_run_id_headers(struct turn_run *t); /* what names any answer */

/* The row of a background response is there, or cannot be: the turn starts, or is refused. turns.c
 */
void turn_run_background(struct turn_run *t, const struct error *e);

/* Where a log takes the events: it begins, so that its readers have the response's id at once. */
void turn_run_begin_log(struct turn_run *t);

/* Goes on with effects that waited for something else than an event. */
void turn_run_go_on(struct turn_run *t);

void upstream_start(struct turn_run *t, const struct upstream_call *call);
void upstream_pause(struct turn_run *t, bool paused);
void upstream_apply_pause(struct turn_run *t); /* after t->blocked changed */
void upstream_cancel(
        struct turn_run *t); /* also frees what is left; may be called when nothing runs */

/* Finds the route of what was parsed; then() from within, or from the loop later, always; storing
 * is set meanwhile. routing.c */
void routing_find(struct turn_run *t, void (*then)(struct turn_run *t, const struct error *err));

/* callids.c */
void callids_keep(struct turn_run *t,
        const struct item *call);              /* a call is about to be shown to the client */
bool callids_needed(const struct turn_run *t); /* the route is known */
void callids_resolve(struct turn_run *t);      /* on a pool thread */

void run_start(struct turn_run *t, struct item *call, uint32_t output_bytes);
void run_pause(struct turn_run *t, bool paused);
void run_apply_pause(struct turn_run *t);
void run_kill(struct turn_run *t, bool as_timeout);
/* A call begins: files touched from now on are its own. */
void run_files_begin(struct turn_run *t);
/* Its commands have ended: asks which. turn_run_go_on() follows when that is known, or takes too
 * long. */
void run_files_ask(struct turn_run *t, struct item *call);
/* The next effect, in an order in which the end of a call is shown with its files, and nothing is
 * shown before it, but all else goes on. False: none, or what there is must wait. */
bool run_files_next_effect(struct turn_run *t, struct turn_effect *ret);
void run_files_free(struct turn_run *t);

void run_release(struct turn_run *t); /* the end: the hold goes, whatever runs is killed */

#endif
