/*
 * A small pool of threads for work that blocks (name resolution, database, big bodies), in front of
 * one event loop. work() runs on a pool thread, done() afterwards on the loop's thread. Work that
 * was queued is never lost and never cancelled; whoever asked keeps an id with a generation if it
 * may be gone by then.
 */
#ifndef BRIG_HTTP_POOL_H
#define BRIG_HTTP_POOL_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>

struct pool;
struct pool *pool_new(struct event_base *base, unsigned n_threads);
/* Waits until all that was queued is done, and its done() called; nothing is taken any more. */
void pool_stop(struct pool *p);
struct pool *pool_free(struct pool *p); /* stops it, where that has not been done */
typedef void (*pool_fn)(void *arg);
/* Queues; false when max_queued (4,096) waits already, or it is stopped: the caller answers
 * "unavailable". */
bool pool_run(struct pool *p, pool_fn work, pool_fn done, void *arg);
size_t pool_queued(struct pool *p);

#endif
