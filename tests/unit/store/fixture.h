/* A store of its own for each test. */
#ifndef BRIG_TESTS_STORE_FIXTURE_H
#define BRIG_TESTS_STORE_FIXTURE_H

#include "util.h"

struct fixture {
	struct place place;
	struct store *s;
};

static inline int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	place_make(&f->place);
	f->s = place_open(&f->place);
	*state = f;
	return 0;
}

static inline int tear_down(void **state)
{
	struct fixture *f = *state;

	store_close(f->s);
	place_remove(&f->place);
	free(f);
	return 0;
}

#endif
