/*
 * What a request of the Responses API takes from stored responses: the chain behind its
 * `previous_response_id`, and items that it refers to. It is put into the body as text, which from
 * there on is a conversation that was sent whole.
 *
 * Belongs to who handles the request. init() on the loop; the rest on whatever thread parses.
 */
#ifndef BRIG_GATEWAY_RESPONSES_PAST_H
#define BRIG_GATEWAY_RESPONSES_PAST_H

#include "gateway/internal.h"
#include "gateway/responses_local.h"

struct responses_past {
	struct gateway *g;
	const struct config_key *key;
	bool allowed; /* content may be kept, so there may be some */
	bool scanned;
	struct responses_scan scan;    /* of the body, until it is expanded */
	struct responses_local *local; /* of a WebSocket: what it may go on from; NULL: nothing */
	bool local_used;               /* it does */
	char previous[STORE_ID_MAX + 1];
	size_t charged; /* bytes of history, counted in the gateway */
};

/* x: whose request it is, not yet released. */
void responses_past_init(struct responses_past *p, struct gateway *g, const struct config_key *key,
        const struct http_exchange *x);
/* Looks the body over, once. True: it needs what is stored, so expand() blocks. */
bool responses_past_needs(struct responses_past *p, struct str body);
/*
 * Puts into in->body what it points at: 1, and *ret_own is where the request's own items then stand
 * in it, without brackets. 0: it points at nothing. -ERR_INVALID: there is no such thing, or not
 * for this request; -ERR_UNAVAILABLE: no memory for it now. Blocks.
 */
int responses_past_expand(
        struct responses_past *p, struct api_request *in, struct str *ret_own, struct error *err);
void responses_past_clear(struct responses_past *p);

#endif
