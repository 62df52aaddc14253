/*
 * A JSON writer into a rope: small pieces are gathered as literals, large strings are borrowed and
 * escaped when the rope is pulled. What stays small never touches the rope: it is in `text` when
 * the value is done. Errors stick; ropewriter_pull() gives
 * them.
 */
#ifndef BRIG_API_ROPEWRITER_H
#define BRIG_API_ROPEWRITER_H

#include "base/buf.h"
#include "json/json.h"

struct ropewriter {
	struct json_writer json; /* writes to text; use its functions for all that is small */
	struct buf text;         /* not in the rope yet */
	struct rope *rope;       /* NULL until something was borrowed */
	int err;
};

void ropewriter_init(struct ropewriter *w);
void ropewriter_free(struct ropewriter *w);
/* Nothing is left and nothing is being written: gives back the memory. */
void ropewriter_rest(struct ropewriter *w);
/* Forgets an unfinished value and begins a new text. */
void ropewriter_begin(struct ropewriter *w);
/* Bytes outside the JSON value: framing. */
void ropewriter_literal(struct ropewriter *w, struct str bytes);
/* A string value; borrowed where large, so s must live until it was pulled. {NULL,0} writes "". */
void ropewriter_str(struct ropewriter *w, struct str s);
void ropewriter_kstr(struct ropewriter *w, const char *key, struct str s);
/* A string value in pieces, each valid UTF-8 for itself: begin, parts, end. */
void ropewriter_str_begin(struct ropewriter *w);
void ropewriter_str_part(struct ropewriter *w, struct str s);
void ropewriter_str_end(struct ropewriter *w);
/* A piece of a string whose quotes are the caller's: escaped, borrowed where large. */
void ropewriter_piece(struct ropewriter *w, struct str s);
/* A value that is JSON text already; borrowed where large. {NULL,0} writes null. */
void ropewriter_raw(struct ropewriter *w, struct str raw);
void ropewriter_kraw(struct ropewriter *w, const char *key, struct str raw);
/*
 * Moves up to about `room` bytes to out. Text that never touched the rope goes as a whole, whatever
 * room says. 0 or the error that stuck.
 */
int ropewriter_pull(struct ropewriter *w, struct buf *out, size_t room);
size_t ropewriter_left(const struct ropewriter *w); /* a lower bound; 0: nothing */

#endif
