/*
 * Which keys there are: those of brig.yaml, and those that were made since, which are in the store
 * (docs/keys.md).
 *
 * Each gateway has all of them in memory, so that asking costs no request a read. Whoever changes
 * the store says so, and every gateway of the node reads anew within KEYS_LOOK_MS. A key that was
 * once given out stays as it is until the gateway ends, revoked or changed: what runs with it need
 * not care. On the loop only.
 */
#ifndef BRIG_GATEWAY_KEYS_H
#define BRIG_GATEWAY_KEYS_H

#include "config/config.h"

#include <stdatomic.h>

#define KEYS_LOOK_MS  200
#define KEYS_GATEWAYS 64 /* of one node */

/* In the mapping that gateways share. */
struct keys_shared {
	_Atomic uint64_t version;             /* of what the store holds */
	_Atomic uint64_t seen[KEYS_GATEWAYS]; /* by each gateway */
};

struct gateway;
struct keys;

/* Reads the store on this thread: before the loop runs. NULL: failed. */
struct keys *keys_new(struct gateway *g, struct error *err);
/* After the pool has ended, and all that has a key. Takes NULL; returns NULL. */
struct keys *keys_free(struct keys *k);

/* The key of this text, expired or not; NULL: there is none. */
const struct config_key *keys_find(const struct gateway *g, struct str text);
bool keys_expired(const struct config_key *key);
/* This one as it is by now; NULL: not in force. For what lasts longer than a request. */
const struct config_key *keys_now(const struct gateway *g, const struct config_key *key);
/* Whether what is said in this workspace may be stored, as far as the workspace goes. */
bool keys_keep_content(const struct gateway *g, const struct config_key *key);

/*
 * Keys or workspaces were changed in the store. then() follows from the loop, when all gateways of
 * the node go by it; or after a second, where one of them is just being started or stands still.
 */
void keys_changed(struct gateway *g, void (*then)(void *ctx), void *ctx);

#endif
