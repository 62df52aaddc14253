#include "unit.h"

#include "base/str.h"

static const struct str absent = {NULL, 0};

static void equality(void **state)
{
	assert_true(str_eq(STR("abc"), str_of("abc")));
	assert_false(str_eq(STR("abc"), STR("abd")));
	assert_false(str_eq(STR("abc"), STR("ab")));
	assert_true(str_eq(absent, STR("")));
	assert_true(str_is(absent, ""));
	assert_true(str_is(STR("x"), "x"));
	assert_int_equal(str_of(NULL).n, 0);
	assert_null(str_of(NULL).p);
	assert_true(str_ieq(STR("Content-LENGTH"), STR("content-length")));
	assert_false(str_ieq(STR("a"), STR("ab")));
	/* Only letters have a case: '@' and '`', '[' and '{', and bytes above 0x7f do not. */
	assert_false(str_ieq(STR("@[\xc4"), STR("`{\xe4")));
	assert_true(str_ieq(absent, absent));
}

static void ends(void **state)
{
	assert_true(str_starts(STR("abc"), "ab"));
	assert_true(str_starts(STR("abc"), ""));
	assert_true(str_starts(absent, ""));
	assert_false(str_starts(STR("abc"), "b"));
	assert_false(str_starts(STR("a"), "ab"));
	assert_true(str_ends(STR("abc"), "bc"));
	assert_true(str_ends(STR("abc"), "abc"));
	assert_true(str_ends(absent, ""));
	assert_false(str_ends(STR("bc"), "abc"));
	assert_false(str_ends(STR("abc"), "ab"));
}

static void sets(void **state)
{
	assert_true(str_contains(STR("a://b"), "://"));
	assert_true(str_contains(STR("://"), "://"));
	assert_false(str_contains(STR("a:/"), "://"));
	assert_false(str_contains((struct str){NULL, 0}, "://"));
	assert_true(str_in_set(STR("aabba"), "ab"));
	assert_false(str_in_set(STR("abc"), "ab"));
	assert_false(str_in_set(STR(""), "ab"));
	assert_false(str_in_set(absent, "ab"));
	assert_false(str_in_set(STR("a\0b"), "ab"));
	assert_false(str_in_set(STR("a"), ""));
}

static void trim(void **state)
{
	assert_true(str_is(str_trim(STR(" \t a b\t ")), "a b"));
	assert_true(str_is(str_trim(STR(" \t ")), ""));
	assert_true(str_is(str_trim(STR("\na\r")), "\na\r"));
	assert_true(str_is(str_trim(absent), ""));
}

static void to_u64(void **state)
{
	static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "1a", "0x1", "1.0",
	        "18446744073709551616", "18446744073709551620", "99999999999999999999"};
	uint64_t v = 9;
	size_t i;

	assert_true(str_to_u64(STR("0"), &v) && v == 0);
	assert_true(str_to_u64(STR("007"), &v) && v == 7);
	assert_true(str_to_u64(STR("18446744073709551615"), &v) && v == UINT64_MAX);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		v = 9;
		assert_false(str_to_u64(str_of(bad[i]), &v));
		assert_int_equal(v, 9);
	}
	assert_false(str_to_u64(absent, &v));
	assert_false(str_to_u64(STR("1\0"), &v));
}

static void format_too_long(void *arg)
{
	char out[4];

	str_format(out, sizeof(out), "%s", (const char *)arg);
}

static void format(void **state)
{
	char out[4], three[] = "123", four[] = "1234";

	str_format(out, sizeof(out), "%d", 123);
	assert_string_equal(out, "123");
	assert_false(unit_aborts(format_too_long, three));
	assert_true(unit_aborts(format_too_long, four));
}

static void copy(void **state)
{
	char out[8];

	memset(out, 'x', sizeof(out));
	assert_true(str_copy(out, sizeof(out), STR("1234567")));
	assert_string_equal(out, "1234567");
	assert_false(str_copy(out, sizeof(out), STR("12345678")));
	assert_string_equal(out, "1234567");
	assert_true(str_copy(out, sizeof(out), absent));
	assert_string_equal(out, "");
	assert_false(str_copy(out, sizeof(out), STR("123456\xc3\xa9")));
	assert_string_equal(out, "123456");
	assert_false(str_copy(out, sizeof(out), STR("12345\xf0\x9f\x98\x80")));
	assert_string_equal(out, "12345");
	assert_false(str_copy(out, 5, STR("1\xf0\x9f\x98\x80")));
	assert_string_equal(out, "1");
	assert_true(str_copy(out, 6, STR("1\xf0\x9f\x98\x80")));
	assert_string_equal(out, "1\xf0\x9f\x98\x80");
	/* No characters at all: cut somewhere, within the size. */
	assert_false(str_copy(out, 8, STR("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80")));
	assert_int_equal(strlen(out), 4);
	assert_false(str_copy(out, 1, STR("a")));
	assert_string_equal(out, "");
	out[0] = 'k';
	assert_false(str_copy(out, 0, STR("a")));
	assert_int_equal(out[0], 'k');
}

static void secrets(void **state)
{
	assert_true(str_eq_secret(STR("key"), STR("key")));
	assert_false(str_eq_secret(STR("key"), STR("kez")));
	assert_false(str_eq_secret(STR("Key"), STR("key")));
	assert_false(str_eq_secret(STR("key"), STR("key1")));
	assert_true(str_eq_secret(absent, STR("")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(equality),
	        cmocka_unit_test(ends),
	        cmocka_unit_test(sets),
	        cmocka_unit_test(trim),
	        cmocka_unit_test(to_u64),
	        cmocka_unit_test(format),
	        cmocka_unit_test(copy),
	        cmocka_unit_test(secrets),
	};

	return UNIT_RUN(tests);
}
