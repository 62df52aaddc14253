/* What the store's tests share: a database in a folder of its own. */
#ifndef BRIG_TESTS_STORE_UTIL_H
#define BRIG_TESTS_STORE_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct place {
	char dir[64];
	char path[80];
};

static inline void place_make(struct place *p)
{
	strncpy(p->dir, "/tmp/brig-store-XXXXXX", sizeof(p->dir) - 1);
	assert_non_null(mkdtemp(p->dir));
	snprintf(p->path, sizeof(p->path), "%s/brig.db", p->dir);
}

static inline void place_remove(struct place *p)
{
	char path[128];

	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s%s", p->path,
		        i == 0   ? ""
		        : i == 1 ? "-wal"
		                 : "-shm");
		unlink(path);
	}
	assert_int_equal(rmdir(p->dir), 0);
}

/* For a test whose state is its place. */
static inline int place_set_up(void **state)
{
	struct place *p = calloc(1, sizeof(*p));

	place_make(p);
	*state = p;
	return 0;
}

static inline int place_tear_down(void **state)
{
	place_remove(*state);
	free(*state);
	return 0;
}

static inline struct store *place_open(const struct place *p)
{
	struct store_options o = {.path = p->path};
	struct store *s = NULL;
	struct error err = {0};

	if (store_open(&o, &s, &err) < 0)
		fail_msg("store_open: %s", err.text);
	return s;
}

static inline struct store_container row_make(const char *id, int64_t created_ms)
{
	struct store_container c = {.created_ms = created_ms,
	        .last_used_ms = created_ms,
	        .memory_mib = 1024,
	        .cpu_milli = 1000,
	        .image = "base"};

	str_copy(c.id, sizeof(c.id), str_of(id));
	str_copy(c.name, sizeof(c.name), str_of(id));
	return c;
}

#endif
