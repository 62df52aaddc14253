/*
 * brig/script: a stand-in for a model that runs the fenced blocks of the last user message (DESIGN
 * section 9). It says in every answer that it is no model. Stateless: which call is next follows
 * from the conversation.
 */
#ifndef BRIG_PROVIDER_SCRIPT_H
#define BRIG_PROVIDER_SCRIPT_H

#include "provider/provider.h"

/* provider.local: emits one whole reply. 0, what emit returned, or -ERR_NOMEM / -ERR_TOO_LARGE. */
int script_reply(const struct provider_call *pc, stream_fn emit, void *ctx, struct error *err);

#endif
