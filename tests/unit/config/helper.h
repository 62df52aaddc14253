/* Loads a text as brig.yaml, with an environment and files that the test states. */
#ifndef BRIG_TESTS_CONFIG_HELPER_H
#define BRIG_TESTS_CONFIG_HELPER_H

#include "config/config.h"

struct pair {
	const char *name, *value;
};

/* Ended by a pair of NULLs; NULL is none. */
int load_with(const char *text, size_t n, const struct pair *env, const struct pair *files,
        struct config **ret, struct error *err);
int load(const char *text, struct config **ret, struct error *err);

#endif
