#include "unit.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static void plain_allocations(void **state)
{
	_cleanup_free_ char *zeroed = mem_alloc(100);
	_cleanup_free_ int *array = mem_array(10, sizeof(int));
	_cleanup_free_ char *nothing = mem_alloc(0);
	_cleanup_free_ char *copy = mem_strdup("text"), *part = mem_strndup("te\0xt", 4);
	size_t i;

	for (i = 0; i < 100; i++)
		assert_int_equal(zeroed[i], 0);
	for (i = 0; i < 10; i++)
		assert_int_equal(array[i], 0);
	assert_non_null(nothing);
	assert_string_equal(copy, "text");
	assert_memory_equal(part, "te\0x", 5);
	assert_null(mem_strdup(NULL));
	assert_null(mem_strndup(NULL, 0));
}

static void array_overflow(void *arg)
{
	free(mem_array(SIZE_MAX / 2, 3));
}

static void copy_overflow(void *arg)
{
	free(mem_strndup("x", SIZE_MAX));
}

static void grow_overflow(void *arg)
{
	long *items = NULL;
	size_t cap = 0;

	mem_grow(&items, &cap, SIZE_MAX / 4, sizeof(*items));
}

static void overflow_is_a_bug(void **state)
{
	assert_true(unit_aborts(array_overflow, NULL));
	assert_true(unit_aborts(copy_overflow, NULL));
	assert_true(unit_aborts(grow_overflow, NULL));
}

static void grow(void **state)
{
	_cleanup_free_ uint32_t *items = NULL;
	size_t cap = 0, i, j;

	for (i = 0; i < 1000; i++) {
		mem_grow(&items, &cap, i, sizeof(*items));
		assert_true(cap > i);
		for (j = i; j < cap; j++)
			assert_int_equal(items[j], 0);
		items[i] = (uint32_t)i;
		if (i + 1 < cap)
			items[i + 1] = 0;
	}
	for (i = 0; i < 1000; i++)
		assert_int_equal(items[i], i);
	mem_grow(&items, &cap, 100000, sizeof(*items));
	assert_true(cap > 100000);
	assert_int_equal(items[999], 999);
	assert_int_equal(items[100000], 0);
}

static void steal_clears(void **state)
{
	_cleanup_free_ char *a = mem_strdup("x");
	char *was = a;
	_cleanup_free_ char *b = steal(a);

	assert_null(a);
	assert_ptr_equal(b, was);
}

static void arena_gives_zeroed_aligned_memory(void **state)
{
	struct arena *a = arena_new(16 << 20);
	struct unit_random r = {42};
	struct {
		unsigned char *p;
		size_t n;
	} got[2000];
	size_t i, j, total = 0;

	assert_int_equal(arena_used(a), 0);
	for (i = 0; i < 2000; i++) {
		got[i].n = unit_below(&r, i % 50 ? 200 : 60000);
		got[i].p = arena_alloc(a, got[i].n);
		total += got[i].n;
		assert_non_null(got[i].p);
		assert_int_equal((uintptr_t)got[i].p % 16, 0);
		for (j = 0; j < got[i].n; j++)
			assert_int_equal(got[i].p[j], 0);
		memset(got[i].p, (int)(i % 255 + 1), got[i].n);
	}
	for (i = 0; i < 2000; i++)
		for (j = 0; j < got[i].n; j++)
			assert_int_equal(got[i].p[j], i % 255 + 1);
	assert_true(arena_used(a) >= total && arena_used(a) < 2 * total + 1000000);
	assert_null(arena_free(a));
	assert_null(arena_free(NULL));
}

static void arena_starts_small(void **state)
{
	struct arena *a = arena_new(1 << 20);

	assert_non_null(arena_alloc(a, 10));
	assert_int_equal(arena_used(a), 512);
	while (arena_used(a) == 512)
		assert_non_null(arena_alloc(a, 100));
	assert_int_equal(arena_used(a), 512 + 512);
	arena_free(a);
}

static void arena_maximum_bounds_what_is_taken(void **state)
{
	static const size_t maxima[] = {0, 1, 31, 32, 47, 48, 100, 4096, 5000, 100000, 1000000};
	static const size_t sizes[] = {0, 1, 16, 100, 3000, 70000, 400000};
	size_t m, s, n;

	for (m = 0; m < sizeof(maxima) / sizeof(*maxima); m++) {
		for (s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
			struct arena *a = arena_new(maxima[m]);

			for (n = 0; arena_alloc(a, sizes[s]); n++)
				;
			assert_true(arena_used(a) <= maxima[m]);
			assert_true(n * sizes[s] <= maxima[m]);
			/* What is lost to headers and unfilled ends stays within reason. */
			if (sizes[s] >= 16 && sizes[s] <= 100 && maxima[m] >= 4096)
				assert_true(n * sizes[s] >= maxima[m] / 2);
			assert_null(arena_alloc(a, SIZE_MAX));
			assert_null(arena_alloc(a, SIZE_MAX - 20));
			arena_free(a);
		}
	}
}

static void arena_copies(void **state)
{
	struct arena *a = arena_new(4096);
	char *s = arena_strndup(a, "abcdef", 3);

	assert_string_equal(s, "abc");
	assert_string_equal(arena_strndup(a, NULL, 0), "");
	assert_null(arena_strndup(a, "x", 5000));
	assert_null(arena_strndup(a, "x", SIZE_MAX));
	arena_free(a);
}

static void discharge_too_much(void *arg)
{
	arena_discharge(arg, 1);
}

static void arena_counts_what_is_charged(void **state)
{
	struct arena *a = arena_new(10000);

	assert_true(arena_charge(a, 9000));
	assert_false(arena_charge(a, 1001));
	assert_int_equal(arena_used(a), 9000);
	assert_null(arena_alloc(a, 2000));
	arena_discharge(a, 9000);
	assert_true(unit_aborts(discharge_too_much, a));
	assert_non_null(arena_alloc(a, 2000));
	arena_free(a);
}

static void wipe(void **state)
{
	char secret[32] = "hunter2";

	mem_wipe(secret, sizeof(secret));
	assert_int_equal(secret[0], 0);
	assert_int_equal(secret[6], 0);
	mem_wipe(NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(plain_allocations),
	        cmocka_unit_test(overflow_is_a_bug),
	        cmocka_unit_test(grow),
	        cmocka_unit_test(steal_clears),
	        cmocka_unit_test(arena_gives_zeroed_aligned_memory),
	        cmocka_unit_test(arena_starts_small),
	        cmocka_unit_test(arena_maximum_bounds_what_is_taken),
	        cmocka_unit_test(arena_copies),
	        cmocka_unit_test(arena_counts_what_is_charged),
	        cmocka_unit_test(wipe),
	};

	return UNIT_RUN(tests);
}
