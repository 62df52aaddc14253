/*
 * A provider's own list of models, in each dialect: what to ask, and what the answer says. Pure;
 * the gateway fetches.
 */
#ifndef BRIG_PROVIDER_MODELS_H
#define BRIG_PROVIDER_MODELS_H

#include "provider/provider.h"

#include <stdint.h>

enum { PROVIDER_MODEL_NAME = 256 }; /* bytes of an id; longer ones are not reported */

/* What a list says of one model. Texts live for the length of the call. */
struct provider_model {
	struct str id;     /* as requests name it; valid UTF-8 without spaces and controls */
	struct str name;   /* for people, or {NULL,0} */
	int64_t created_s; /* 0: not said */
	uint64_t input_tokens, output_tokens; /* at most; 0: not said */
};
typedef void (*provider_model_fn)(void *ctx, const struct provider_model *m);

/* A GET; it has no body. after: what the page before said, or {NULL,0}. False: this dialect has no
 * list. */
bool provider_models_request(
        const struct config_provider *p, struct str after, struct provider_request *ret);
/* Calls fn for each model of one page. Appends to ret_after what names the next page; nothing: this
 * was the last. -ERR_UPSTREAM: it is no list. */
int provider_models_read(enum dialect d, struct str body, provider_model_fn fn, void *ctx,
        struct buf *ret_after, struct error *err);

#endif
