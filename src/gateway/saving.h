/*
 * Homes that are saved elsewhere (container.saving: blob): brought back before a container is used
 * where this machine has none, saved after its commands, forgotten with it. With `saving: image`
 * the home's own file on this disk is the saved state and nothing here does anything.
 *
 * Loop's thread, unless said; callbacks come from the loop, never from inside the call that asked,
 * exactly one each.
 */
#ifndef BRIG_GATEWAY_SAVING_H
#define BRIG_GATEWAY_SAVING_H

#include "gateway/internal.h"

struct saving;
struct saving *saving_new(struct gateway *g, struct error *err);
/* After the loop's end: what is under way is waited for, nobody is called. Takes NULL. */
struct saving *saving_free(struct saving *s);

typedef void (*saving_fn)(void *ctx, const struct error *err);

/* then() when the home is there as it was saved last, or was never saved. err: it could not be
 * brought back, and the container must not be used. */
void saving_prepare(struct saving *s, const uint8_t key[SUP_KEY_LEN], saving_fn then, void *ctx);
/* Files of a live container may have changed. */
void saving_changed(struct saving *s, const uint8_t key[SUP_KEY_LEN]);
/* Files of a container that need not be live have changed: then() when that is saved, or err. */
void saving_wrote(struct saving *s, const uint8_t key[SUP_KEY_LEN], saving_fn then, void *ctx);
/* then() when all changes so far are saved, or err. */
void saving_settle(struct saving *s, const uint8_t key[SUP_KEY_LEN], saving_fn then, void *ctx);
/* A live container is live no more: what ran in the background may have changed files. */
void saving_ended(struct saving *s, const uint8_t key[SUP_KEY_LEN]);
bool saving_idle(const struct saving *s); /* nothing is under way */
/*
 * What is saved of a container whose row is marked as being deleted goes; of one that was made anew
 * meanwhile nothing does. Call it before its home is removed, so that nobody brings back what is
 * being deleted (not where a save is under way: that ends with the home), and again afterwards,
 * with `removed`. Blocks; on a pool thread. g->saving may be NULL.
 */
int saving_forget(struct gateway *g, const struct store_scope *scope, struct str id, bool removed,
        struct error *err);

#endif
