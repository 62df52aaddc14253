/* UTF-8: checking, counting and cutting. "Character" is a Unicode scalar value throughout brig. */
#ifndef BRIG_BASE_UTF8_H
#define BRIG_BASE_UTF8_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the valid character at p (1..4), or 0 where the bytes are invalid or cut. */
size_t utf8_char_len(const char *p, size_t n);
/* Length of what U+FFFD stands for where p is invalid: the maximal subpart (1..3), or 0 if p is
 * valid. */
size_t utf8_subpart_len(const char *p, size_t n);
bool utf8_valid(const char *p, size_t n);
size_t utf8_ascii_run(const char *p, size_t n); /* how many ASCII bytes p begins with */
size_t utf8_count(const char *p, size_t n); /* an invalid maximal subpart counts as one character */
/* Appends p with each invalid maximal subpart (Unicode 3.9, as WHATWG decodes) replaced by U+FFFD.
 */
int utf8_append_valid(struct buf *out, const char *p, size_t n);
/* How many bytes at the end are the beginning of a character that is not complete yet (0..3). */
size_t utf8_incomplete_tail(const char *p, size_t n);
int utf8_encode(uint32_t c, char out[4]); /* number of bytes; surrogates and > 0x10ffff give 0 */

#endif
