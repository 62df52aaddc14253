/*
 * A turn whose provider speaks the client's dialect and that has no server tool: the request goes
 * on as the client's own bytes, the answer comes back as the provider's (api/relay.h). Private to
 * the turns of the gateway.
 */
#ifndef BRIG_GATEWAY_RELAY_RUN_H
#define BRIG_GATEWAY_RELAY_RUN_H

#include "api/relay.h"
#include "provider/provider.h"

#include <event2/event.h>

struct turn_run;

struct relay_run {
	bool sent; /* the request under way is the client's own bytes */
	bool on;   /* and so its answer is passed on */
	bool owns; /* its bytes are the answer: no other target, and no translation, any more */
	bool ending, cut;   /* the body has ended; it broke off */
	bool over;          /* the reply has ended, well or not: */
	bool failed;        /* … not, */
	bool unseen;        /* … and the client has not read of it */
	enum finish finish; /* … well */
	struct error *error;
	struct relay *edit;
	struct buf prefix;    /* space before the first byte */
	struct buf out;       /* edited, not handed to the client yet */
	struct event *linger; /* NULL until needed: the body must end soon */
	bool passing;         /* a whole answer that is too large to be kept back */
};

/* The request to the target: the client's own bytes, or what the provider builds. On any thread. */
int relay_run_build(struct turn_run *t, const struct provider_call *pc,
        struct provider_request *ret, struct error *err);
/* Bytes of an answer of status 200 have come: before and after the parser has read them. */
void relay_run_take(struct turn_run *t, const void *data, size_t n);
/* … true: the reply has begun, though the parser has not said so: its answer is too large to be
 * kept back. Then it is called again. */
bool relay_run_pass(struct turn_run *t);
/* The parser has met an error before the reply began: is it an answer all the same? */
bool relay_run_vouches(const struct turn_run *t);
/* An event of the parser, once the reply has begun; false: it is for the turn. */
bool relay_run_event(struct turn_run *t, const struct stream_event *ev);
/* The body ends: before and after the parser is told. cut: it broke off, or NULL. */
void relay_run_ending(struct turn_run *t, const struct error *cut);
void relay_run_ended(struct turn_run *t, const struct error *cut);
/* The turn has ended before the answer has. */
void relay_run_stop(struct turn_run *t, const struct turn_output *end);
/* The call to the provider is over or given up. */
void relay_run_cancel(struct turn_run *t);
/* Of an answer that is not streamed: begins or finishes it; true: bytes may follow. */
bool relay_run_answer(struct turn_run *t);
void relay_run_free(struct turn_run *t);

#endif
