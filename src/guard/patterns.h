/* The built-in rules as data (patterns.c), for guard.c alone. */
#ifndef BRIG_GUARD_PATTERNS_H
#define BRIG_GUARD_PATTERNS_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

struct guard_pattern {
	const char *name;
	const char *regex;
	bool case_sensitive;
	/* More than the expression can say; NULL: nothing. */
	bool (*check)(struct str match);
};

struct guard_builtin {
	const char *slug;
	const char *placeholder;
	const struct guard_pattern *patterns;
	size_t n;
	bool evasion; /* texts that hide it are looked at too (evasion.c) */
};

extern const struct guard_builtin guard_builtins[];
extern const size_t guard_builtins_n;

#endif
