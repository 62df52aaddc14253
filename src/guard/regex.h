/*
 * Regular expressions that take linear time on any text and any pattern: RE2 (regex.cc, the one C++
 * file), behind a few C functions. Patterns and texts are UTF-8. Compiled expressions are
 * immutable: any thread.
 */
#ifndef BRIG_GUARD_REGEX_H
#define BRIG_GUARD_REGEX_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct regex;
/* NULL: refused (syntax, lookaround, backreferences, or too large to be bounded); why says so. */
struct regex *regex_new(struct str pattern, bool ignore_case, char *why, size_t why_size);
struct regex *regex_free(struct regex *r);
/* The leftmost match that begins at or after `from`; ^ and \b see what stands before. */
bool regex_find(
        const struct regex *r, struct str text, size_t from, size_t *ret_begin, size_t *ret_end);

/* Many expressions in one pass over the text: which of them match somewhere. */
struct regex_set;
struct regex_set *regex_set_new(const struct str *patterns, const bool *ignore_case, size_t n);
struct regex_set *regex_set_free(struct regex_set *s);
/* matched: n of them, all set or cleared. Where the set runs out of its memory all are set: each
 * must then be looked for by itself. */
void regex_set_match(const struct regex_set *s, struct str text, bool *matched);

#ifdef __cplusplus
}
#endif
#endif
