#include "unit.h"

#include "json/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void adds_and_finds(void **state)
{
	struct arena *budget = arena_new(1 << 20);
	struct keyset set;

	keyset_init(&set, budget);
	assert_int_equal(keyset_add(&set, 1, STR("a")), 0);
	assert_int_equal(keyset_add(&set, 1, STR("b")), 0);
	assert_int_equal(keyset_add(&set, 2, STR("a")), 0);
	assert_int_equal(keyset_add(&set, 1, STR("")), 0);
	assert_int_equal(keyset_add(&set, 1, STR("a")), -ERR_CONFLICT);
	assert_int_equal(keyset_add(&set, 2, STR("a")), -ERR_CONFLICT);
	assert_int_equal(keyset_add(&set, 1, STR("")), -ERR_CONFLICT);
	assert_int_equal(keyset_add(&set, 1, STR("a\0")), 0);
	assert_true(arena_used(budget) > 0);
	keyset_free(&set);
	assert_int_equal(arena_used(budget), 0);
	keyset_free(&set);
	arena_free(budget);
}

/* Keys of every length, each again: all found, none confused, the table never too full. */
static void many_keys(void **state)
{
	struct arena *budget = arena_new(16 << 20);
	char *keys = mem_alloc(5000 * 24);
	struct keyset set;
	size_t i, round;

	keyset_init(&set, budget);
	for (round = 0; round < 2; round++)
		for (i = 0; i < 5000; i++) {
			char *key = keys + i * 24;

			memset(key, 'x', 24);
			str_format(key, 24, "%zu", i);
			key[strlen(key)] = 'y';
			assert_int_equal(
			        keyset_add(&set, (uint32_t)(i % 7), (struct str){key, 5 + i % 19}),
			        round ? -ERR_CONFLICT : 0);
			assert_true(set.used * 3 <= set.cap * 2);
		}
	assert_int_equal(set.used, 5000);
	keyset_free(&set);
	free(keys);
	arena_free(budget);
}

/* Two sets place the same keys differently: the seed is drawn, so collisions cannot be prepared. */
static void seeds_differ(void **state)
{
	struct arena *budget = arena_new(1 << 20);
	struct keyset a, b;

	keyset_init(&a, budget);
	keyset_init(&b, budget);
	keyset_add(&a, 0, STR("x"));
	keyset_add(&b, 0, STR("x"));
	assert_memory_not_equal(a.seed, b.seed, sizeof(a.seed));
	keyset_free(&a);
	keyset_free(&b);
	arena_free(budget);
}

static void hash_spreads(void **state)
{
	struct arena *budget = arena_new(16 << 20);
	char keys[20000][8];
	struct keyset set;
	size_t i, run = 0, longest = 0;

	keyset_init(&set, budget);
	for (i = 0; i < 20000; i++) {
		str_format(keys[i], sizeof(keys[i]), "%06zu", i);
		assert_int_equal(keyset_add(&set, 1, (struct str){keys[i], 6}), 0);
	}
	for (i = 0; i < set.cap; i++) {
		run = set.entries[i].key ? run + 1 : 0;
		if (run > longest)
			longest = run;
	}
	/* At two thirds full at the most, a good hash makes no long runs. */
	assert_true(longest < 400);
	keyset_free(&set);
	arena_free(budget);
}

static void budget_is_kept(void **state)
{
	struct arena *budget = arena_new(5000);
	char keys[300][8];
	struct keyset set;
	size_t i;
	int r = 0;

	keyset_init(&set, budget);
	for (i = 0; i < 300 && !r; i++) {
		str_format(keys[i], sizeof(keys[i]), "%zu", i);
		r = keyset_add(&set, 1, str_of(keys[i]));
		assert_true(arena_used(budget) <= 5000);
	}
	assert_int_equal(r, -ERR_NOMEM);
	assert_true(i > 40);
	keyset_free(&set);
	assert_int_equal(arena_used(budget), 0);
	arena_free(budget);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(adds_and_finds),
	        cmocka_unit_test(many_keys),
	        cmocka_unit_test(seeds_differ),
	        cmocka_unit_test(hash_spreads),
	        cmocka_unit_test(budget_is_kept),
	};

	return UNIT_RUN(tests);
}
