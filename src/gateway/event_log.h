/*
 * The events of a response that is streamed in the background: kept by the gateway that makes it,
 * for whoever reads them from whatever number on, as they are and as they come; stored when it is
 * over. No reader is waited for, by the turn or by another reader.
 *
 * At most limits.response_events bytes are kept, fewer where the gateway is short of memory: the
 * oldest events go first, and a reader that has not got so far is cut off. On the loop.
 *
 * The turn owns the log until it ends or drops it; then it goes when it is stored and nobody reads.
 */
#ifndef BRIG_GATEWAY_EVENT_LOG_H
#define BRIG_GATEWAY_EVENT_LOG_H

#include "gateway/internal.h"

struct event_log;

/* id: of the response. */
struct event_log *event_log_new(struct gateway *g, const struct config_key *key, const char *id);
/* Server-sent events, numbered from 0 on without a gap; cut anywhere. */
void event_log_add(struct event_log *l, struct str bytes);
/* What keeps idle readers' connections open: no event. */
void event_log_keepalive(struct event_log *l, struct str comment);
/* All of them are there: what is kept is stored, readers get it all. */
void event_log_end(struct event_log *l);
/* It broke off: its readers are cut off and nothing is stored. Takes NULL; returns NULL. */
struct event_log *event_log_drop(struct event_log *l);
/* That of a response, from its beginning until it is stored; or NULL. */
struct event_log *event_log_find(struct gateway *g, const struct config_key *key, const char *id);
/*
 * Answers with the events from number `first` on and takes the exchange over. -ERR_INVALID: some of
 * them are kept no more; -ERR_RATE: it has too many readers. Nothing was answered then.
 */
int event_log_read(struct event_log *l, struct http_exchange *x, uint64_t first, struct error *err);
void event_log_free_all(struct gateway *g); /* at the end: no exchange and no pool is left */

/*
 * The stored events of a response from number `first` on, as they were; on a pool thread.
 * -ERR_NOT_FOUND: there is no such response; -ERR_UNSUPPORTED: there are no events of it, not
 * (yet); -ERR_INVALID: some are kept no more.
 */
int event_log_load(struct gateway *g, const struct config_key *key, const char *id, uint64_t first,
        struct buf *ret, struct error *err);

#endif
