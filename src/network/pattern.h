/*
 * Names of hosts and patterns of them, as requests and the configuration write them: lower case,
 * `*` is any run of characters, also an empty one; a name without a star is itself and not what is
 * below it. Pure.
 */
#ifndef BRIG_NETWORK_PATTERN_H
#define BRIG_NETWORK_PATTERN_H

#include "base/str.h"

#include <stdbool.h>

/* NULL: it is a name or a pattern. Else static text that says what is wrong, to stand behind the
 * entry: "holds a scheme; give the name alone". */
const char *pattern_fault(struct str s);

/*
 * Whether every name that `inner` admits is admitted by `outer`. True only where it is so; false
 * also for odd pairs where it would be (several patterns together, or names that are too long to
 * be any): who asks is then told so, which is the safe side.
 */
bool pattern_covers(struct str outer, struct str inner);

/* NULL, or static text that says which names it admits that only look like those one means. */
const char *pattern_lookalikes(struct str s);

#endif
