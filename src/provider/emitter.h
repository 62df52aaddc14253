/* Where a parser's events go, and what was used so far: the end that all parsers share. */
#ifndef BRIG_PROVIDER_EMITTER_H
#define BRIG_PROVIDER_EMITTER_H

#include "conversation/stream.h"

struct emitter {
	stream_fn fn; /* during feed and end only */
	void *ctx;
	bool ended; /* the last event is out, or the turn took no more: nothing follows */
	struct usage usage;
};

/* For one feed or end. False: the reply has ended. */
bool emitter_begin(struct emitter *e, stream_fn fn, void *ctx);
/* All: 0, or what the turn said. */
int emitter_emit(struct emitter *e, const struct stream_event *ev);
int emitter_usage(struct emitter *e); /* where there is any */
/* The reply is over and wrong. What was used is booked all the same. */
int emitter_fail(struct emitter *e, const struct error *err);
int emitter_fail_text(struct emitter *e, const char *text);

#endif
