/*
 * The items of each upstream reply, found in n log n for any replayed history: those of one reply
 * are not always adjacent, since results stand between.
 */
#ifndef BRIG_PROVIDER_REPLIES_H
#define BRIG_PROVIDER_REPLIES_H

#include "conversation/conversation.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reply_ref {
	uint32_t reply;
	size_t at; /* index of the item in the conversation */
};

struct replies {
	struct reply_ref *refs; /* assistant items with a reply, by (reply, at) */
	size_t n;
};

/* Does a model write such items: reasoning, calls, its messages, what only its dialect knows? */
bool replies_holds(const struct item *it);
void replies_index(struct replies *r, const struct conversation *c);
void replies_free(struct replies *r);
/* The first ref of one reply, and how many there are. */
const struct reply_ref *replies_find(const struct replies *r, uint32_t reply, size_t *ret_n);
/* The refs of the reply that begins with item `at`, which replies_holds(); NULL: its reply began
 * before. An item of no reply is one by itself, in *alone. */
const struct reply_ref *replies_begin(const struct replies *r, const struct conversation *c,
        size_t at, struct reply_ref *alone, size_t *ret_n);

#endif
