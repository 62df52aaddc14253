/*
 * A multipart/form-data body (RFC 7578), read while it arrives.
 *
 * Push: feed bytes as they come, in any cut; the handler is called from within, in order, and what
 * is held is bounded: one part's headers, never its content. Content is given in pieces that lie in
 * what was fed (or are a few bytes of a line that turned out not to be a boundary), and are the
 * callee's for the call only.
 *
 * Strict: the body begins with its boundary (one empty line before it is allowed) and ends with it
 * (an empty line behind it is), lines end in CRLF, each part has exactly one Content-Disposition,
 * `form-data` with a name; no nested multipart, no transfer encoding other than 7bit, 8bit and
 * binary, no filename*, which RFC 7578 forbids. In names and filenames `\"`, `\\` and, as browsers
 * write them, `%22`, `%0D`, `%0A` are undone; they are any bytes otherwise: whoever uses one checks
 * it.
 *
 * After an error, of this or of the handler, every later call gives the same one.
 */
#ifndef BRIG_HTTP_MULTIPART_H
#define BRIG_HTTP_MULTIPART_H

#include "base/error.h"
#include "base/str.h"

#include <stddef.h>
#include <stdint.h>

#define MULTIPART_BOUNDARY_MAX 70
#define MULTIPART_HEADERS_MAX  8192 /* of one part */
#define MULTIPART_PARTS_MAX    16
#define MULTIPART_NAME_MAX     4096  /* bytes of a name or filename */
#define MULTIPART_FIELD_MAX    65536 /* bytes of a part without a filename, unless changed */

struct multipart_part {
	struct str name;     /* never empty */
	struct str filename; /* {NULL,0}: none was given, so this is a field of text */
	struct str type;     /* its Content-Type, or {NULL,0} */
	/* Most bytes of content; above it the body is refused with ERR_TOO_LARGE and the part's
	 * name as param. on_begin may change it. Preset: MULTIPART_FIELD_MAX without a filename,
	 * UINT64_MAX with one. */
	uint64_t max;
};

/* 0 or -err, with err (never NULL) filled: the body is then refused with it. All must be there. */
struct multipart_handler {
	void *ctx;
	int (*on_begin)(void *ctx, struct multipart_part *part, struct error *err);
	int (*on_data)(void *ctx, struct str piece, struct error *err); /* never empty */
	int (*on_end)(void *ctx, struct error *err);                    /* of the part */
};

struct multipart;

/* content_type: the request's header. -ERR_MEDIA: not multipart/form-data; -ERR_INVALID: without a
 * usable boundary. */
int multipart_new(struct str content_type, const struct multipart_handler *h,
        struct multipart **ret, struct error *err);
struct multipart *multipart_free(struct multipart *m); /* takes NULL; returns NULL */
int multipart_feed(struct multipart *m, const void *data, size_t n, struct error *err);
/* The body has ended: -ERR_INVALID where its last boundary has not come. */
int multipart_finish(struct multipart *m, struct error *err);

#endif
