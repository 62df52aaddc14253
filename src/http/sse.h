/*
 * Server-sent events, both ways, as the WHATWG defines them.
 *
 * Reader: bytes in any cut; LF, CR and CRLF end a line, also when the pair is cut; a BOM at the
 * start is skipped; comments and unknown fields are dropped; several data lines are joined by LF. A
 * bound on one event's data (16 MiB by default) is an error. Bytes are kept whole until a line
 * ends, so a character is never cut.
 */
#ifndef BRIG_HTTP_SSE_H
#define BRIG_HTTP_SSE_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

struct sse_reader;
/* event: the event field or {NULL,0}; data: joined. Return 0, or a negative enum err that sse_feed
 * gives back. */
typedef int (*sse_event_fn)(void *ctx, struct str event, struct str data);
/* A comment line (": text" without the colon and one space); may be NULL. For keep-alive
 * accounting. */
typedef void (*sse_comment_fn)(void *ctx, struct str text);
struct sse_reader *sse_reader_new(
        size_t max_event, sse_event_fn fn, sse_comment_fn comment, void *ctx);
struct sse_reader *sse_reader_free(struct sse_reader *r);
int sse_feed(struct sse_reader *r, const void *data, size_t n, struct error *err);
/* End of the stream: an event without its blank line is dropped, as the standard says; returns true
 * if there was one. */
bool sse_end(struct sse_reader *r);

/* Writer: "event: NAME\n" (when name is not NULL) "data: …\n\n". data and NAME must hold no line
 * break (JSON never does): else -ERR_INVALID, and nothing is written. */
int sse_write(struct buf *out, const char *event, struct str data);

#endif
