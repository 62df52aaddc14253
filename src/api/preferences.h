/* OpenRouter's `provider` object in a request: which providers it wants. */
#ifndef BRIG_API_PREFERENCES_H
#define BRIG_API_PREFERENCES_H

#include "api/param.h"

/*
 * Reads root's `provider` into the conversation's preferences: order, only, ignore (names, at most 64 each)
 * and allow_fallbacks. Its other members say things about providers that brig does not know (prices,
 * quantizations, what they keep), and are let through unread.
 */
int preferences_parse(struct param_reader *r, const struct json *root);

#endif
