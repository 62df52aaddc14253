/*
 * The last response of a WebSocket, where it is not stored: what the next one may go on from. One
 * owner: the socket's sink between turns, the turn while it runs.
 */
#ifndef BRIG_GATEWAY_RESPONSES_LOCAL_H
#define BRIG_GATEWAY_RESPONSES_LOCAL_H

#include "api/responses_state.h"
#include "gateway/internal.h"

struct responses_local {
	struct gateway *g;
	size_t charged;           /* bytes, counted in the gateway's history_bytes */
	struct store_chain chain; /* one link: all of the input, what came before too; the output */
	char id[STORE_ID_MAX + 1];
};

/* input: all of it, JSON, n_input elements; object: the response. NULL: it is too large, or no such
 * object. Any thread. */
struct responses_local *responses_local_new(
        struct gateway *g, const char *id, struct str input, size_t n_input, struct str object);
/* Takes NULL; returns NULL. */
struct responses_local *responses_local_free(struct responses_local *l);
/* Does the raw JSON string name it? l may be NULL. */
bool responses_local_is(const struct responses_local *l, struct str raw);

#endif
