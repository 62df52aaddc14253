/*
 * An answer that is kept beside being sent, and whose end waits until that is done: so that a
 * client which has the whole of it never asks for one that is not yet kept. For whoever answers
 * nothing changes.
 */
#ifndef BRIG_HTTP_RECORD_H
#define BRIG_HTTP_RECORD_H

#include "http/server.h"

struct http_record {
	int status;
	char type[128];     /* Content-Type, or "" */
	struct buf headers; /* lines of those that the handler added */
	struct buf body;
	bool too_large; /* the body was more than is kept: it is empty then */
};

/*
 * Called once when the answer is whole (from within http_respond() or http_finish()); its end goes
 * out with http_record_end(), which may be called from within. What ctx points at must outlive the
 * exchange, or http_record_stop() comes first.
 */
typedef void (*http_record_fn)(void *ctx, struct http_exchange *x, const struct http_record *r);
/* Before the answer begins. max: bytes of a body that is kept. */
void http_record_start(struct http_exchange *x, size_t max, http_record_fn fn, void *ctx);
void *http_record_ctx(const struct http_exchange *x); /* NULL: nothing is recorded */
void http_record_end(struct http_exchange *x);

#endif
