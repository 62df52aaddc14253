#include "unit.h"

#include "base/buf.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static void empty_buffer(void **state)
{
	struct buf b = BUF_INIT(10);
	size_t len = 7;
	char *s;

	assert_null(b.data);
	assert_string_equal(buf_cstr(&b), "");
	assert_int_equal(buf_error(&b), 0);
	assert_int_equal(buf_append(&b, NULL, 0), 0);
	assert_string_equal(buf_cstr(&b), "");
	buf_free(&b);
	s = buf_steal(&b, &len);
	assert_string_equal(s, "");
	assert_int_equal(len, 0);
	free(s);
	buf_free(NULL);
}

static void appends_grow_and_terminate(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(100000);
	int i;

	for (i = 0; i < 10000; i++) {
		assert_int_equal(buf_puts(&b, "abc"), 0);
		assert_int_equal(buf_putc(&b, (char)i), 0);
		assert_int_equal(b.data[b.len], '\0');
	}
	assert_int_equal(b.len, 40000);
	for (i = 0; i < 10000; i++)
		assert_true(memcmp(b.data + 4 * i, "abc", 3) == 0 && b.data[4 * i + 3] == (char)i);
}

static void maximum_is_exact_and_sticks(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(5);

	assert_int_equal(buf_append(&b, "12345", 5), 0);
	assert_int_equal(buf_append(&b, "", 0), 0);
	assert_int_equal(buf_putc(&b, '6'), -ERR_TOO_LARGE);
	assert_int_equal(buf_append(&b, "", 0), -ERR_TOO_LARGE);
	assert_int_equal(buf_printf(&b, "%s", ""), -ERR_TOO_LARGE);
	assert_int_equal(buf_error(&b), -ERR_TOO_LARGE);
	assert_string_equal(buf_cstr(&b), "12345");
	assert_true(b.cap <= 6);
	buf_reset(&b);
	assert_int_equal(buf_error(&b), 0);
	assert_string_equal(buf_cstr(&b), "");
	/* An append that does not fit leaves nothing of itself. */
	assert_int_equal(buf_puts(&b, "12"), 0);
	assert_int_equal(buf_puts(&b, "3456"), -ERR_TOO_LARGE);
	assert_string_equal(buf_cstr(&b), "12");
	buf_free(&b);
	assert_int_equal(b.max, 5);
	assert_int_equal(buf_puts(&b, "again"), 0);
}

static void maximum_of_nothing_or_everything(void **state)
{
	struct buf none = BUF_INIT(0), all;

	assert_int_equal(buf_putc(&none, 'x'), -ERR_TOO_LARGE);
	buf_init(&all, SIZE_MAX);
	assert_int_equal(buf_putc(&all, 'x'), -ERR_TOO_LARGE);
	buf_init(&all, SIZE_MAX - 1);
	assert_int_equal(buf_putc(&all, 'x'), 0);
	assert_int_equal(buf_append(&all, "y", SIZE_MAX - 1), -ERR_TOO_LARGE);
	assert_string_equal(buf_cstr(&all), "x");
	buf_free(&none);
	buf_free(&all);
}

static void printf_never_cuts(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1000);
	char long_text[900];
	size_t n;

	memset(long_text, 'z', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	for (n = 0; n < sizeof(long_text); n++) {
		buf_free(&b);
		assert_int_equal(buf_puts(&b, "<"), 0);
		assert_int_equal(buf_printf(&b, "%.*s|%d", (int)n, long_text, -5), 0);
		assert_int_equal(b.len, 1 + n + 3);
		assert_true(memcmp(b.data + 1, long_text, n) == 0);
		assert_string_equal(b.data + 1 + n, "|-5");
	}
	buf_free(&b);
	assert_int_equal(buf_printf(&b, "%s", "first use"), 0);
	assert_string_equal(buf_cstr(&b), "first use");
	assert_int_equal(buf_printf(&b, "%s%s", long_text, long_text), -ERR_TOO_LARGE);
	assert_string_equal(buf_cstr(&b), "first use");
}

static void numbers(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(200);

	buf_u64(&b, 0);
	buf_putc(&b, ' ');
	buf_u64(&b, UINT64_MAX);
	buf_putc(&b, ' ');
	buf_i64(&b, INT64_MIN);
	buf_putc(&b, ' ');
	buf_i64(&b, INT64_MAX);
	buf_putc(&b, ' ');
	buf_i64(&b, -1);
	assert_string_equal(
	        buf_cstr(&b), "0 18446744073709551615 -9223372036854775808 9223372036854775807 -1");
}

static void consume_too_much(void *arg)
{
	buf_consume(arg, 4);
}

static void consume(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(6);
	struct buf empty = BUF_INIT(6);

	buf_consume(&empty, 0);
	buf_puts(&b, "abcdef");
	buf_consume(&b, 0);
	buf_consume(&b, 2);
	assert_string_equal(buf_cstr(&b), "cdef");
	assert_int_equal(buf_puts(&b, "gh"), 0);
	buf_consume(&b, 3);
	assert_string_equal(buf_cstr(&b), "fgh");
	assert_true(unit_aborts(consume_too_much, &b));
	buf_consume(&b, 3);
	assert_int_equal(b.len, 0);
	assert_string_equal(buf_cstr(&b), "");
}

static void steal_gives_the_bytes_away(void **state)
{
	struct buf b = BUF_INIT(100);
	size_t len;
	char *s;

	buf_append(&b, "a\0b", 3);
	s = buf_steal(&b, &len);
	assert_int_equal(len, 3);
	assert_memory_equal(s, "a\0b", 4);
	free(s);
	assert_null(b.data);
	assert_int_equal(b.max, 100);
	assert_int_equal(buf_puts(&b, "next"), 0);
	s = buf_steal(&b, NULL);
	assert_string_equal(s, "next");
	free(s);
}

static void take_is_the_reverse(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4);
	struct buf other = BUF_INIT(100);
	size_t len;
	char *s;

	buf_puts(&b, "own");
	buf_puts(&other, "longer");
	s = buf_steal(&other, &len);
	buf_take(&b, s, len);
	assert_ptr_equal(b.data, s);
	assert_string_equal(buf_cstr(&b), "longer");
	assert_int_equal(buf_putc(&b, '!'), -ERR_TOO_LARGE);
	buf_reset(&b);
	assert_int_equal(buf_puts(&b, "anew"), 0);
	assert_string_equal(buf_cstr(&b), "anew");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(empty_buffer),
	        cmocka_unit_test(appends_grow_and_terminate),
	        cmocka_unit_test(maximum_is_exact_and_sticks),
	        cmocka_unit_test(maximum_of_nothing_or_everything),
	        cmocka_unit_test(printf_never_cuts),
	        cmocka_unit_test(numbers),
	        cmocka_unit_test(consume),
	        cmocka_unit_test(steal_gives_the_bytes_away),
	        cmocka_unit_test(take_is_the_reverse),
	};

	return UNIT_RUN(tests);
}
