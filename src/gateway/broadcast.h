/*
 * Delivery of traces (docs/broadcast.md): what waits in the store's outbox is made into requests
 * and sent to its destinations. Nothing here is on a request's path. On the loop's thread.
 */
#ifndef BRIG_GATEWAY_BROADCAST_H
#define BRIG_GATEWAY_BROADCAST_H

#include "gateway/internal.h"
#include "trace/trace.h"

struct broadcast;
/* Tells the store of brig.yaml's destinations, and begins. NULL: failed. */
struct broadcast *broadcast_start(struct gateway *g, struct error *err);
/* What is under way is given up; it waits in the store. Takes NULL; returns NULL. */
struct broadcast *broadcast_free(struct broadcast *b);

/* The client through which destinations are reached: one of brig.yaml (fixed) wherever it is, those
 * that came over HTTP only where a container could be let to. */
struct http_client *broadcast_client(struct broadcast *b, bool fixed);
int64_t broadcast_started_ms(const struct broadcast *b); /* wall clock */
/* The id that the i-th destination of brig.yaml has as long as its type, name and workspace stay.
 */
void broadcast_fixed_id(const struct config *c, size_t i, char ret[STORE_ID_MAX + 1]);

/* ---- broadcast_http.c: /observability/destinations ---- */

void broadcast_http_list(struct request *r);
void broadcast_http_create(struct request *r);
void broadcast_http_get(struct request *r);
void broadcast_http_patch(struct request *r);
void broadcast_http_delete(struct request *r);
void broadcast_http_test(struct request *r);

#endif
