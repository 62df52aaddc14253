/*
 * What a request of the Responses API has to do with responses that were stored: where its body
 * points at them, the body with their items in it, and the items that are shown of it. Texts in,
 * texts out; who reads and writes rows is the gateway.
 */
#ifndef BRIG_API_RESPONSES_STATE_H
#define BRIG_API_RESPONSES_STATE_H

#include "base/buf.h"
#include "base/str.h"
#include "json/json.h"

#include <stdbool.h>
#include <stddef.h>

/* An element of an array, where it stands in the text. Strings are raw, with their quotes. */
struct responses_element {
	struct str raw;
	struct str id, type;     /* of an object; {NULL,0}: none that is a string */
	bool has_type, has_role; /* not null */
};
/* An object's text, looked over without a tree. Points into that text. */
struct responses_scan {
	size_t begin;        /* of the object */
	struct str previous; /* `previous_response_id`, raw; {NULL,0}: absent, null or no string */
	struct str list;     /* the member asked for, raw, also null; {NULL,0}: absent */
	struct responses_element *elements; /* where that is an array */
	size_t n, cap;
};
/* name: of the member, "input" or "output". False where the text is no JSON object. To be cleared.
 */
bool responses_state_scan(struct str text, const char *name, struct responses_scan *ret);
void responses_scan_clear(struct responses_scan *s);
/* Is the element an item_reference, with or without saying so? */
bool responses_state_is_reference(const struct responses_element *e);
/* Does the request need what is stored? */
bool responses_state_needs(const struct responses_scan *s);
/* A raw string of the scan as text, cut nowhere: false where it does not fit or has a NUL in it. */
bool responses_state_text(struct str raw, char *out, size_t size);

/*
 * The body with history in front of its own items, and referenced items in their places: appended
 * to out. history: JSON arrays or strings, as rows have them; items: one for each reference, in
 * order. ret_own: where the request's own items then stand in out, without brackets.
 */
struct responses_span {
	size_t at, len;
};
int responses_state_expand(struct str body, const struct responses_scan *s,
        const struct str *history, size_t n_history, const struct str *items, struct buf *out,
        struct responses_span *ret_own);

/* An item of an input as it is listed: with id, type and status, its content in parts. id: for one
 * that has none. */
void responses_state_write_item(struct json_writer *w, const struct json *item, const char *id);
/* "msg", "fco", …: how ids of such items begin. */
const char *responses_state_prefix(const struct json *item);

#endif
