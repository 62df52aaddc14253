/*
 * What a turn of the Responses API takes from stored responses, and what is stored of it. Private
 * to the turns of the gateway.
 */
#ifndef BRIG_GATEWAY_RESPONSES_STATE_TURN_H
#define BRIG_GATEWAY_RESPONSES_STATE_TURN_H

#include "api/responses_state.h"
#include "gateway/responses_past.h"
#include "store/store.h"
#include "turn/turn.h"

struct gateway;
struct config_key;
struct turn_run;

struct responses_state_turn {
	struct responses_past past;
	struct str input; /* the request's own, in the body: JSON, or elements without brackets */
	char *body;       /* that body, where another took its place; NULL: in.body */
	size_t n_input;
	bool elements;
	struct str whole; /* that, with what was put in front of it */
	size_t n_whole;
	struct responses_local *next; /* of a WebSocket: what may be gone on from after it */
	bool succeeded;
	/* The end of the turn, which waits until the answer is durable: */
	bool holds;
	bool canceled; /* by a client that asked for it */
	bool kept;
	struct buf begun; /* a background response as it begins */
	struct event_log *log; /* where one that is streamed writes its events; NULL: elsewhere */
	struct turn_output end;
	struct turn_totals totals;
};

/* The turn's id, by which its gateway is found, and what the head says; before anything else. */
void responses_state_turn_init(struct turn_run *t);
/* May it only be parsed on the pool? Looks at small bodies only. */
bool responses_state_turn_needs_pool(struct turn_run *t);
/* Puts into t->in.body what it points at. On the thread that parses, before it does. */
int responses_state_turn_expand(struct turn_run *t, struct error *err);
/* The body is as it will be kept: what of it is. On the same thread, after that. */
void responses_state_turn_note(struct turn_run *t);
/* The end is to be emitted: true where turn_run_emit_end() follows later, from the loop. */
bool responses_state_turn_hold(struct turn_run *t, const struct turn_output *end);
/*
 * Makes the row of a background response and answers the client with it, who is not waited for
 * then; turn_run_background() follows.
 */
void responses_state_turn_background(struct turn_run *t);
/* The running turn of a response's id, or NULL. */
struct turn_run *responses_state_turn_find(
        struct gateway *g, const struct config_key *key, const char *id);
/* The turn of a WebSocket has ended or was refused: what the next one may go on from, or NULL. */
struct responses_local *responses_state_turn_leave(struct turn_run *t);
void responses_state_turn_free(struct turn_run *t);

#endif
