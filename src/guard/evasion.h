/* Instructions that are spelled so that no expression sees them. For guard.c alone. */
#ifndef BRIG_GUARD_EVASION_H
#define BRIG_GUARD_EVASION_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

/* Does plain text hold an injection? */
typedef bool (*evasion_test_fn)(void *ctx, struct str text);
typedef void (*evasion_hit_fn)(void *ctx, const char *name, size_t begin, size_t end);
/* Calls hit for each; one pass for each kind of disguise. */
void evasion_scan(struct str text, evasion_test_fn test, evasion_hit_fn hit, void *ctx);

#endif
