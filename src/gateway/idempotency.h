/*
 * Requests with an Idempotency-Key: each is run once, and asked again it gets the first answer. Any
 * POST whose body is read whole.
 */
#ifndef BRIG_GATEWAY_IDEMPOTENCY_H
#define BRIG_GATEWAY_IDEMPOTENCY_H

#include "gateway/internal.h"

/* What processes of this gateway's name were running when they died. At the start, before requests.
 */
int idempotency_recover(struct gateway *g, struct error *err);
/*
 * Takes the request where it carries a key: true; it is answered then, or handle() is called later
 * (with a request whose body may have been read into r->body already) if nobody asked it before.
 */
bool idempotency_take(struct request *r, void (*handle)(struct request *r));
/* A command of what x asked for begins. x may be NULL. */
void idempotency_ran(struct http_exchange *x);
/* What x asked for failed, whatever its status says. x may be NULL. */
void idempotency_failed(struct http_exchange *x);
/* The exchange is over: from on_gone. */
void idempotency_gone(struct http_exchange *x);

#endif
