#include "unit.h"

#include "base/money.h"

#include <string.h>

static void parse(void **state)
{
	static const struct {
		const char *text;
		int64_t pico;
	} good[] = {
	        {"0", 0},
	        {"3", 3000000000000},
	        {"2.50", 2500000000000},
	        {"0.0001", 100000000},
	        {"0.000000000001", 1},
	        {"0.000000000000", 0},
	        {"9223372.036854775807", INT64_MAX},
	};
	static const char *const bad[] = {"", ".", ".5", "1.", "-1", "+1", "1e3", "1.0.0", " 1",
	        "1 ", "0x1", "01", "00", "1,5", "0.0000000000001", "9223372.036854775808",
	        "9223373", "18446744073709551616", "99999999999999999999999999", "1.-5", "1.+5",
	        "inf", "nan"};
	struct money m;
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(*good); i++) {
		assert_true(money_parse(str_of(good[i].text), &m));
		assert_int_equal(m.pico, good[i].pico);
	}
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		m.pico = 77;
		if (money_parse(str_of(bad[i]), &m))
			fail_msg("accepted %s", bad[i]);
		assert_int_equal(m.pico, 77);
	}
	assert_false(money_parse((struct str){NULL, 0}, &m));
	assert_false(money_parse(STR("1\0"), &m));
}

static void writes(int64_t pico, const char *text)
{
	_cleanup_buf_ struct buf b = BUF_INIT(100);

	assert_int_equal(money_write(&b, (struct money){pico}), 0);
	assert_string_equal(buf_cstr(&b), text);
}

static void write_is_shortest(void **state)
{
	struct buf small = BUF_INIT(3);

	writes(0, "0");
	writes(3000000000, "0.003");
	writes(12500000000000, "12.5");
	writes(1, "0.000000000001");
	writes(-1, "-0.000000000001");
	writes(10000000000000, "10");
	writes(INT64_MAX, "9223372.036854775807");
	writes(INT64_MIN, "-9223372.036854775808");
	assert_true(money_write(&small, (struct money){3000000000}) < 0);
	buf_free(&small);
}

static void parse_and_write_agree(void **state)
{
	struct unit_random r = {7};
	struct money m;
	int i;

	for (i = 0; i < 20000; i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(100);
		int64_t pico = (int64_t)(unit_next(&r) >> (1 + unit_below(&r, 60)));

		money_write(&b, (struct money){pico});
		assert_true(money_parse((struct str){b.data, b.len}, &m));
		assert_int_equal(m.pico, pico);
	}
}

static struct money pico(int64_t v)
{
	return (struct money){v};
}

static void add(void **state)
{
	assert_int_equal(money_add(pico(5), pico(-7)).pico, -2);
	assert_int_equal(money_add(pico(INT64_MAX), pico(1)).pico, INT64_MAX);
	assert_int_equal(money_add(pico(INT64_MAX), pico(INT64_MAX)).pico, INT64_MAX);
	assert_int_equal(money_add(pico(INT64_MIN), pico(-1)).pico, INT64_MIN);
	assert_int_equal(money_add(pico(INT64_MIN), pico(INT64_MAX)).pico, -1);
}

static void divide_by_zero(void *arg)
{
	money_mul(pico(1), 1, 0);
}

static void mul(void **state)
{
	assert_int_equal(money_mul(pico(100), 3, 1).pico, 300);
	assert_int_equal(money_mul(pico(1), 1, 2).pico, 1); /* half goes up */
	assert_int_equal(money_mul(pico(1), 1, 3).pico, 0);
	assert_int_equal(money_mul(pico(2), 1, 3).pico, 1);
	assert_int_equal(money_mul(pico(3), 1, 2).pico, 2);
	assert_int_equal(money_mul(pico(-1), 1, 2).pico, 0); /* up, also below zero */
	assert_int_equal(money_mul(pico(-3), 1, 2).pico, -1);
	assert_int_equal(money_mul(pico(-5), 1, 3).pico, -2);
	assert_int_equal(money_mul(pico(5), 0, 9).pico, 0);
	assert_int_equal(money_mul(pico(INT64_MAX), UINT64_MAX, 1).pico, INT64_MAX);
	assert_int_equal(money_mul(pico(INT64_MIN), UINT64_MAX, 1).pico, INT64_MIN);
	assert_int_equal(money_mul(pico(INT64_MAX), UINT64_MAX, UINT64_MAX).pico, INT64_MAX);
	assert_int_equal(money_mul(pico(INT64_MIN), UINT64_MAX, UINT64_MAX).pico, INT64_MIN);
	assert_int_equal(money_mul(pico(INT64_MAX), 1, UINT64_MAX).pico, 0);
	/* 0.50 dollars for a million tokens, 1,234,567 of them. */
	assert_int_equal(money_mul(pico(500000000000), 1234567, 1000000).pico, 617283500000);
	assert_true(unit_aborts(divide_by_zero, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(parse),
	        cmocka_unit_test(write_is_shortest),
	        cmocka_unit_test(parse_and_write_agree),
	        cmocka_unit_test(add),
	        cmocka_unit_test(mul),
	};

	return UNIT_RUN(tests);
}
