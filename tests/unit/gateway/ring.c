/* The rings of a detached exec: the newest 1 MiB by offset, against a plain copy of everything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "gateway/ring.h"

#include <stdlib.h>

static void test_against_copy(void **state)
{
	struct ring r = {0};
	size_t total = 0, max = (size_t)4 << 20;
	char *all = malloc(max);
	unsigned seed = 12345;

	for (size_t i = 0; i < max; i++)
		all[i] = (char)(i * 31 + (i >> 9));
	while (total < max) {
		seed = seed * 1103515245u + 12345u;
		size_t n = seed % 3 == 0 ? seed % 200000 : seed % 5000;

		n = n > max - total ? max - total : n;
		ring_write(&r, all + total, n);
		total += n;
		uint64_t offset = total > 1500000 ? total - seed % 1500000 : seed % (total + 1);
		uint64_t first = total > RING_SIZE ? total - RING_SIZE : 0, asked = offset;
		struct buf out = BUF_INIT((size_t)2 << 20);

		ring_read(&r, &offset, &out, 70000);
		/* Never before what is there, never beyond the end, and exactly the bytes. */
		assert_true(offset == (asked < first ? first : asked));
		assert_int_equal(out.len, total - offset < 70000 ? total - offset : 70000);
		if (out.len > 0)
			assert_memory_equal(out.data, all + offset, out.len);
		buf_free(&out);
	}
	assert_int_equal(r.cap, RING_SIZE);
	free(r.bytes);
	free(all);
}

static void test_one_large_write(void **state)
{
	struct ring r = {0};
	char *all = calloc(1, (size_t)3 << 20);
	uint64_t offset = 0;
	struct buf out = BUF_INIT((size_t)4 << 20);

	all[((size_t)3 << 20) - 1] = 'z';
	ring_write(&r, all, (size_t)3 << 20);
	ring_read(&r, &offset, &out, (size_t)4 << 20);
	assert_int_equal(offset, (uint64_t)2 << 20);
	assert_int_equal(out.len, RING_SIZE);
	assert_int_equal(out.data[out.len - 1], 'z');
	/* An offset from a future that never was. */
	offset = (uint64_t)1 << 60;
	buf_reset(&out);
	ring_read(&r, &offset, &out, 10);
	assert_int_equal(offset, (uint64_t)3 << 20);
	assert_int_equal(out.len, 0);
	buf_free(&out);
	free(r.bytes);
	free(all);
}

static void test_empty(void **state)
{
	struct ring r = {0};
	uint64_t offset = 5;
	struct buf out = BUF_INIT(16);

	ring_read(&r, &offset, &out, 10);
	assert_int_equal(offset, 0);
	assert_int_equal(out.len, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_against_copy),
	        cmocka_unit_test(test_one_large_write),
	        cmocka_unit_test(test_empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
