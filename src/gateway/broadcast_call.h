/*
 * One request to a destination of traces, and as much of its answer as is worth reading. Bounded in
 * time as a whole, so that a receiver that gives a byte now and then does not hold its queue for
 * ever. On the loop's thread.
 */
#ifndef BRIG_GATEWAY_BROADCAST_CALL_H
#define BRIG_GATEWAY_BROADCAST_CALL_H

#include "base/error.h"
#include "http/client.h"
#include "trace/trace.h"

struct broadcast_answer {
	int status;              /* 0: there was none */
	struct str retry_after;  /* the header's value, or {NULL,0} */
	struct str body;         /* its first TRACE_ANSWER_MAX bytes */
	const struct error *err; /* why there was none, or why it broke off; NULL: complete */
};
/* Called once, never from inside broadcast_call_start(); the call is dead then. */
typedef void (*broadcast_call_fn)(void *ctx, const struct broadcast_answer *a);

struct broadcast_call;
/* q's body is taken; the rest stays the caller's. NULL: it cannot be sent, err says why. */
struct broadcast_call *broadcast_call_start(struct event_base *base, struct http_client *client,
        struct trace_request *q, broadcast_call_fn fn, void *ctx, struct error *err);
void broadcast_call_cancel(struct broadcast_call *c); /* takes NULL; fn is not called any more */

#endif
