/*
 * What every dialect's answer is framed in: server-sent events, or one JSON text (from a server
 * that ignores "stream", or was asked for none). Finds out which by the first byte, since the
 * content type often lies.
 */
#ifndef BRIG_PROVIDER_FRAMING_H
#define BRIG_PROVIDER_FRAMING_H

#include "base/buf.h"
#include "base/error.h"
#include "http/sse.h"

#include <stddef.h>

enum framing_mode { FRAMING_UNKNOWN, FRAMING_EVENTS, FRAMING_JSON };

struct framing {
	enum framing_mode mode;
	struct sse_reader *sse;
	struct buf body; /* FRAMING_JSON: the text so far */
	/* The parser counts: texts that were the dialect's, and texts that were no JSON and were
	 * skipped. */
	size_t good, malformed;
};

/* on_event gets each event's data, with ctx. */
void framing_open(
        struct framing *f, size_t event_max, size_t body_max, sse_event_fn on_event, void *ctx);
void framing_close(struct framing *f);
/*
 * Takes bytes, in any cut. NULL, and *ret is what on_event returned (0 or negative); or what is
 * wrong with them: the reply has failed, unless on_event ended it meanwhile.
 */
const char *framing_feed(struct framing *f, const void *data, size_t n, int *ret);
/* What to say of an answer that ended without its end. */
const char *framing_fault(const struct framing *f);

#endif
