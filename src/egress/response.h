/*
 * A server's answer, followed only as far as is needed to know when it ends and the container's
 * next request may go out. It passes as it came. Nothing of what a container may reach depends on
 * it: each request is judged by its own head. What is not understood lasts until the server closes,
 * and no further request follows then.
 */
#ifndef BRIG_EGRESS_RESPONSE_H
#define BRIG_EGRESS_RESPONSE_H

#include "base/buf.h"
#include "egress/head.h"

enum egress_response_result {
	EGRESS_RESPONSE_MORE,     /* all the bytes are the answer's, which goes on */
	EGRESS_RESPONSE_DONE,     /* it ended after *ret_used bytes */
	EGRESS_RESPONSE_SWITCHED, /* a 101 to a websocket; what follows *ret_used is no HTTP */
	EGRESS_RESPONSE_BAD,      /* a 101 that was not asked for */
};

struct egress_response {
	struct buf head;
	size_t scanned;
	uint8_t phase;
	bool is_head, websocket;
	uint64_t left;
	struct egress_chunks chunks;
};

/* For the answer to the next request. */
void egress_response_begin(struct egress_response *r, bool is_head, bool websocket);
void egress_response_free(struct egress_response *r);
bool egress_response_begun(const struct egress_response *r); /* a byte of it came */
enum egress_response_result egress_response_feed(
        struct egress_response *r, const char *data, size_t n, size_t *ret_used);

#endif
