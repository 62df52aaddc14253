/*
 * What providers say that they serve: their own lists of models, fetched when first wanted and
 * kept.
 *
 * A list is asked for anew some time after it came, in the background, and what there is counts
 * meanwhile. Only who asks first waits, and never long: a provider whose list does not come counts
 * as one that lists nothing. Everything on the loop's thread but the reading of an answer.
 */
#ifndef BRIG_GATEWAY_LISTS_H
#define BRIG_GATEWAY_LISTS_H

#include "config/config.h"
#include "gateway/gateway.h"
#include "provider/models.h"

struct gateway;
struct lists;

struct lists *lists_new(struct gateway *g);
/* Starts no more fetches. Before the HTTP client and the pool end. */
void lists_stop(struct lists *l);
struct lists *lists_free(struct lists *l); /* after them; takes NULL; returns NULL */

/*
 * Sees to it that every list was asked for. False: there is nothing to wait for. True: then() is
 * called from the loop, once, within a few seconds, unless lists_forget() comes first.
 */
typedef void (*lists_fn)(void *ctx);
bool lists_wait(struct lists *l, lists_fn then, void *ctx);
void lists_forget(struct lists *l, void *ctx);

/* What the provider's list says of a model; NULL: it does not list it. Good until the loop goes on.
 */
const struct provider_model *lists_find(
        const struct lists *l, const struct config_provider *p, struct str model);
/* All of a provider's, by name; *ret_n is their number. Good until the loop goes on. */
const struct provider_model *lists_all(
        const struct lists *l, const struct config_provider *p, size_t *ret_n);

#endif
