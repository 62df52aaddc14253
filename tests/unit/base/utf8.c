#include "unit.h"

#include "base/utf8.h"

#include <string.h>

/* Each scalar value, and nothing else, is encoded; and only its own bytes are valid. */
static void every_scalar_value(void **state)
{
	uint32_t c;
	char out[4];
	size_t n, i;

	for (c = 0; c < 0x120000; c++) {
		bool scalar = c < 0xd800 || (c > 0xdfff && c <= 0x10ffff);

		n = (size_t)utf8_encode(c, out);
		if (!scalar) {
			assert_int_equal(n, 0);
			continue;
		}
		if (n != (c < 0x80             ? 1U
		                 : c < 0x800   ? 2U
		                 : c < 0x10000 ? 3U
		                               : 4U) ||
		        utf8_char_len(out, n) != n || utf8_subpart_len(out, n) != 0 ||
		        utf8_incomplete_tail(out, n) != 0)
			fail_msg("U+%04x", c);
		for (i = 1; i < n; i++)
			if (utf8_char_len(out, i) != 0 || utf8_incomplete_tail(out, i) != i ||
			        utf8_subpart_len(out, i) != i)
				fail_msg("U+%04x cut to %zu bytes", c, i);
	}
	assert_int_equal(utf8_encode(UINT32_MAX, out), 0);
}

/* Of all two-byte and three-byte inputs exactly the known number is valid. */
static void only_scalar_values(void **state)
{
	unsigned a, b, three = 0, two = 0;
	char p[3];

	for (a = 0; a < 256; a++)
		for (b = 0; b < 256; b++) {
			p[0] = (char)a;
			p[1] = (char)b;
			two += utf8_char_len(p, 2) == 2;
			for (unsigned c = 0x7f; c < 0xc1; c++) {
				p[2] = (char)c;
				three += utf8_char_len(p, 3) == 3;
			}
		}
	assert_int_equal(two, 0x800 - 0x80);
	assert_int_equal(three, 0x10000 - 0x800 - 0x800);
}

static const struct {
	const char *in, *out;
	size_t count;
} repairs[] = {
        {"", "", 0},
        {"plain ascii text", "plain ascii text", 16},
        {"h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 4},
        /* Unicode 15, table 3-8: non-shortest forms, surrogates, out of range, truncated. */
        {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", "........A", 9},
        {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", "........A", 9},
        {"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", ".....A..B", 9},
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", "....A", 5},
        {"a\xe2\x82", "a.", 2},
        {"\xf0\x9f\x98", ".", 1},
        {"\xf0\x9f\x98\x80\x80", "\xf0\x9f\x98\x80.", 2},
        {"aaaaaaaaaaaaaaa\xff"
         "bbbbbbbbbbbbb\xfe"
         "c",
                "aaaaaaaaaaaaaaa.bbbbbbbbbbbbb.c", 31},
};

static void invalid_subparts_are_replaced(void **state)
{
	size_t i, k;

	for (i = 0; i < sizeof(repairs) / sizeof(*repairs); i++) {
		_cleanup_buf_ struct buf got = BUF_INIT(1000), want = BUF_INIT(1000);
		size_t n = strlen(repairs[i].in);

		for (k = 0; repairs[i].out[k]; k++)
			if (repairs[i].out[k] == '.')
				buf_puts(&want, "\xef\xbf\xbd");
			else
				buf_putc(&want, repairs[i].out[k]);
		assert_int_equal(utf8_append_valid(&got, repairs[i].in, n), 0);
		assert_string_equal(buf_cstr(&got), buf_cstr(&want));
		assert_int_equal(utf8_count(repairs[i].in, n), repairs[i].count);
		assert_int_equal(utf8_valid(repairs[i].in, n), !strchr(repairs[i].out, '.'));
		assert_true(utf8_valid(got.len ? got.data : "", got.len));
		assert_int_equal(utf8_count(buf_cstr(&got), got.len), repairs[i].count);
	}
}

static void append_reports_the_limit(void **state)
{
	struct buf b = BUF_INIT(4);

	assert_true(utf8_append_valid(&b, "ab\xff", 3) < 0);
	buf_reset(&b);
	assert_true(utf8_append_valid(&b, "abcde", 5) < 0);
	buf_reset(&b);
	assert_int_equal(utf8_append_valid(&b,
	                         "\xff"
	                         "a",
	                         2),
	        0);
	buf_free(&b);
}

static void tail(void **state)
{
	assert_int_equal(utf8_incomplete_tail("", 0), 0);
	assert_int_equal(utf8_incomplete_tail("abc", 3), 0);
	assert_int_equal(utf8_incomplete_tail("ab\xc3", 3), 1);
	assert_int_equal(utf8_incomplete_tail("a\xe2\x82", 3), 2);
	assert_int_equal(utf8_incomplete_tail("\xf0\x9f\x98", 3), 3);
	assert_int_equal(utf8_incomplete_tail("\xf0\x9f\x98\x80", 4), 0);
	/* Bytes that can no longer become a character are not waited for. */
	assert_int_equal(utf8_incomplete_tail("a\xff", 2), 0);
	assert_int_equal(utf8_incomplete_tail("\xed\xa0", 2), 0);
	assert_int_equal(utf8_incomplete_tail("\xc0", 1), 0);
	assert_int_equal(utf8_incomplete_tail("\x80\x80\x80\x80", 4), 0);
	assert_int_equal(utf8_incomplete_tail("\xf0\x80", 2), 0);
}

/* Cutting a text anywhere, holding back the incomplete tail, gives what the whole gives. */
static void pieces_equal_the_whole(void **state)
{
	struct unit_random r = {99};
	int round;

	for (round = 0; round < 3000; round++) {
		_cleanup_buf_ struct buf in = BUF_INIT(1000), whole = BUF_INIT(4000);
		_cleanup_buf_ struct buf pieces = BUF_INIT(4000), pending = BUF_INIT(1000);
		static const char *const parts[] = {"a", "\xc3\xa9", "\xe2\x82\xac",
		        "\xf0\x9f\x98\x80", "\xff", "\xe2\x82", "\xed\xa0\x80", "\xf0\x9f", "\x80",
		        "abcdefghijk"};
		size_t i, n = unit_below(&r, 20), keep;

		for (i = 0; i < n; i++)
			buf_puts(&in, parts[unit_below(&r, 10)]);
		utf8_append_valid(&whole, buf_cstr(&in), in.len);
		for (i = 0; i < in.len; i++) {
			buf_putc(&pending, in.data[i]);
			if (unit_below(&r, 3))
				continue;
			keep = utf8_incomplete_tail(pending.data, pending.len);
			utf8_append_valid(&pieces, pending.data, pending.len - keep);
			buf_consume(&pending, pending.len - keep);
		}
		utf8_append_valid(&pieces, buf_cstr(&pending), pending.len);
		assert_string_equal(buf_cstr(&pieces), buf_cstr(&whole));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_scalar_value),
	        cmocka_unit_test(only_scalar_values),
	        cmocka_unit_test(invalid_subparts_are_replaced),
	        cmocka_unit_test(append_reports_the_limit),
	        cmocka_unit_test(tail),
	        cmocka_unit_test(pieces_equal_the_whole),
	};

	return UNIT_RUN(tests);
}
