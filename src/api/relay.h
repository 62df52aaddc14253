/*
 * Relaying: the client and the provider speak the same dialect, so the request goes on as the
 * client's own bytes and the answer comes back as the provider's, with edits by byte span only
 * (DESIGN section 4, the first of the four rules). Everything that is not edited stays as it is:
 * the order of keys, number literals, escapes, duplicate keys, members and events that nobody here
 * knows.
 *
 * Pure: no I/O, no clock. One thread at a time.
 */
#ifndef BRIG_API_RELAY_H
#define BRIG_API_RELAY_H

#include "api/api.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * Appends the client's body as this target takes it: `model` is the target's (where the dialect has
 * it in the body), and members that only brig or OpenRouter knows are left out. to_openrouter: the
 * target is OpenRouter itself, and keeps its own. The body is JSON that was parsed before, an
 * object without duplicate keys. 0, or -ERR_TOO_LARGE or -ERR_NOMEM of out.
 */
int relay_request(
        enum dialect d, struct str body, struct str model, bool to_openrouter, struct buf *out);
/* Does the body hold a sealed state of ours? No provider is to see one, so it cannot be relayed. */
bool relay_holds_sealed(struct str body);

/* ---- the answer ---- */

/*
 * Takes the answer's bytes in any cut and gives them back with the model's name replaced. An event
 * up to 64 KiB comes out whole; a larger one in pieces, as it comes, so nothing grows with the
 * answer.
 */
struct relay;
/* events: server-sent events; else JSON. model: as the client sees it; must outlive the relay. */
struct relay *relay_new(enum dialect d, bool events, struct str model);
struct relay *relay_free(struct relay *r); /* takes NULL; returns NULL */
/* Appends to out what may go to the client. 0, or the error of out, or -ERR_NOMEM. */
int relay_feed(struct relay *r, const void *data, size_t n, struct buf *out);
/* The answer has ended as it should: what was held back follows. */
int relay_end(struct relay *r, struct buf *out);
/* Of JSON that came to its end: has it what an answer of this dialect has, and no error? */
bool relay_is_answer(const struct relay *r);
/* Is all that was given out whole events? Then something may be put between. */
bool relay_between(const struct relay *r);
/*
 * The answer broke off, so an unfinished event is dropped (or, where part of it was given out,
 * ended) and the dialect's own error follows. Events only.
 */
void relay_break(struct relay *r, const struct api_identity *who, bool under_v1,
        const struct error *e, struct buf *out);

/* Where a Responses stream stood. */
struct relay_place {
	struct str id;    /* of the response, as JSON; {NULL,0}: not known */
	int64_t sequence; /* the last sequence_number; -1: none */
};
/* relay_error.c: the event, or events, of an error that ends a stream. */
void relay_error_write(enum dialect d, const struct relay_place *place,
        const struct api_identity *who, bool under_v1, const struct error *e, struct buf *out);

#endif
