/*
 * What it costs to keep containers running (keep_running): a record of its own for each, api
 * "container", from when the container is live and to be kept, until it no longer is. On the loop
 * only, but where said.
 */
#ifndef BRIG_GATEWAY_KEEPING_H
#define BRIG_GATEWAY_KEEPING_H

#include "gateway/internal.h"

struct keeping;
struct keeping *keeping_start(struct gateway *g, struct error *err); /* NULL: failed */
/* After the pool has ended: the keeper's gateway settles what is open. Takes NULL; returns NULL. */
struct keeping *keeping_free(struct keeping *k);

/* A claim was answered: where it made a container live that is to be kept, that costs from now. */
void keeping_claimed(struct gateway *g, const struct config_key *key, const char *container,
        const struct container_hold *hold);
/* A live container was ordered to be kept, or not to be; then() comes from the loop once that is
 * written down. was_until_ms: what its row said before; 0: nothing. */
typedef void (*keeping_fn)(void *ctx, const struct error *err);
void keeping_ordered(struct gateway *g, const struct config_key *key, const char *container,
        bool keep, int64_t was_until_ms, keeping_fn then, void *ctx);
/* A container is live no more. */
void keeping_ended(struct keeping *k, const uint8_t key[SUP_KEY_LEN]);

#endif
