#include "unit.h"

#include "json/json.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

static void empty(void **state)
{
	_cleanup_buf_ struct buf out = BUF_INIT(100);
	struct rope *r = rope_new();

	assert_int_equal(rope_left(r), 0);
	assert_int_equal(rope_pull(r, &out, 10), 0);
	assert_int_equal(rope_literal(r, STR("")), 0);
	assert_int_equal(rope_borrowed(r, STR("")), 0);
	assert_int_equal(rope_escaped(r, (struct str){NULL, 0}), 0);
	assert_int_equal(rope_left(r), 0);
	assert_int_equal(rope_pull(r, &out, 10), 0);
	assert_int_equal(out.len, 0);
	assert_null(rope_free(r));
	assert_null(rope_free(NULL));
}

static void literals_are_copied(void **state)
{
	_cleanup_buf_ struct buf out = BUF_INIT(100000), want = BUF_INIT(100000);
	struct rope *r = rope_new();
	char text[20];
	int i;

	for (i = 0; i < 2000; i++) {
		str_format(text, sizeof(text), "%d,", i * 7919);
		assert_int_equal(rope_literal(r, str_of(text)), 0);
		buf_puts(&want, text);
		memset(text, '#', sizeof(text));
	}
	assert_int_equal(rope_left(r), want.len);
	assert_int_equal(rope_pull(r, &out, SIZE_MAX), 0);
	assert_string_equal(buf_cstr(&out), buf_cstr(&want));
	assert_int_equal(rope_left(r), 0);
	rope_free(r);
}

static void literals_are_limited(void **state)
{
	_cleanup_buf_ struct buf out = BUF_INIT(10 << 20);
	_cleanup_free_ char *big = mem_alloc(3 << 20);
	struct rope *r = rope_new();

	memset(big, 'b', 3 << 20);
	assert_int_equal(rope_literal(r, (struct str){big, 3 << 20}), 0);
	assert_int_equal(rope_literal(r, (struct str){big, 3 << 20}), -ERR_TOO_LARGE);
	assert_int_equal(rope_left(r), 3 << 20);
	/* Borrowing is free, and pulling makes room again. */
	assert_int_equal(rope_borrowed(r, (struct str){big, 3 << 20}), 0);
	assert_int_equal(rope_pull(r, &out, 3 << 20), 0);
	assert_int_equal(rope_literal(r, (struct str){big, 3 << 20}), 0);
	rope_free(r);
}

static void text_that_mixes_all(void **state)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1000);
	struct rope *r = rope_new();

	rope_literal(r, STR("{\"a\":\""));
	rope_escaped(r, STR("x\n\"\xff"));
	rope_literal(r, STR("\",\"b\":"));
	rope_borrowed(r, STR("[\"\\n\"]"));
	rope_literal(r, STR("}"));
	assert_int_equal(rope_pull(r, &out, 1000), 0);
	assert_string_equal(buf_cstr(&out), "{\"a\":\"x\\n\\\"\xef\xbf\xbd\",\"b\":[\"\\n\"]}");
	rope_free(r);
}

/* Pulls with random room; each pull keeps its promises, and the pieces are the whole. */
static void pulls_keep_their_promises(void **state)
{
	static const char *const parts[] = {"a", "\n", "\x01", "\"", "\xc3\xa9", "\xe2\x82\xac",
	        "\xf0\x9f\x98\x80", "\xff", "\xe2\x82", "longer plain text, for runs"};
	struct unit_random rnd = {11};
	int round;

	for (round = 0; round < 3000; round++) {
		_cleanup_buf_ struct buf out = BUF_INIT(100000), want = BUF_INIT(100000);
		struct buf texts[6];
		struct rope *r = rope_new();
		size_t i, k, n = unit_below(&rnd, 6), room, before, left;

		for (i = 0; i < n; i++) {
			struct str s;
			size_t kind = unit_below(&rnd, 3), count = unit_below(&rnd, 30);

			buf_init(&texts[i], 10000);
			for (k = 0; k < count; k++)
				/* Only what is escaped may have invalid bytes in it. */
				buf_puts(&texts[i], parts[unit_below(&rnd, kind == 2 ? 10 : 7)]);
			s = (struct str){texts[i].data, texts[i].len};
			if (kind == 0)
				assert_int_equal(rope_literal(r, s), 0);
			else if (kind == 1)
				assert_int_equal(rope_borrowed(r, s), 0);
			else
				assert_int_equal(rope_escaped(r, s), 0);
			if (kind == 2)
				json_write_str_part(&want, s);
			else
				buf_append(&want, buf_cstr(&texts[i]), s.n);
			assert_true(rope_left(r) <= want.len);
		}
		while ((left = rope_left(r)) > 0) {
			room = unit_below(&rnd, 40);
			before = out.len;
			assert_int_equal(rope_pull(r, &out, room), 0);
			assert_true(out.len > before);
			assert_true(out.len - before <= room + 8);
			assert_true(rope_left(r) == 0 || out.len - before >= room);
			assert_true(rope_left(r) < left);
			assert_true(utf8_valid(out.data + before, out.len - before));
		}
		assert_int_equal(out.len, want.len);
		assert_memory_equal(buf_cstr(&out), buf_cstr(&want), want.len);
		for (i = 0; i < n; i++)
			buf_free(&texts[i]);
		rope_free(r);
	}
}

static void full_buffer_loses_nothing(void **state)
{
	_cleanup_buf_ struct buf small = BUF_INIT(4), out = BUF_INIT(100);
	struct rope *r = rope_new();

	rope_literal(r, STR("abcdef"));
	rope_escaped(r, STR("\n\n\n"));
	assert_int_equal(rope_pull(r, &small, 10), -ERR_TOO_LARGE);
	assert_int_equal(rope_left(r), 9);
	assert_int_equal(rope_pull(r, &out, 100), 0);
	assert_string_equal(buf_cstr(&out), "abcdef\\n\\n\\n");
	rope_free(r);
}

/* Appending after a part was pulled continues where the pull stopped. */
static void writing_and_pulling_take_turns(void **state)
{
	_cleanup_buf_ struct buf out = BUF_INIT(100000);
	struct rope *r = rope_new();
	int i;

	for (i = 0; i < 1000; i++) {
		rope_literal(r, STR("0123456789"));
		assert_int_equal(rope_pull(r, &out, 7), 0);
	}
	while (rope_left(r))
		assert_int_equal(rope_pull(r, &out, 1000), 0);
	assert_int_equal(out.len, 10000);
	for (i = 0; i < 10000; i++)
		assert_int_equal(out.data[i], '0' + i % 10);
	rope_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(empty),
	        cmocka_unit_test(literals_are_copied),
	        cmocka_unit_test(literals_are_limited),
	        cmocka_unit_test(text_that_mixes_all),
	        cmocka_unit_test(pulls_keep_their_promises),
	        cmocka_unit_test(full_buffer_loses_nothing),
	        cmocka_unit_test(writing_and_pulling_take_turns),
	};

	return UNIT_RUN(tests);
}
