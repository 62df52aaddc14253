#include "unit.h"

#include "json/json.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROOM = 256 << 20 };

static struct json_doc *parsed(struct str text)
{
	struct json_doc *doc = NULL;
	struct error err = {0};

	if (json_parse(text, ROOM, &doc, &err))
		fail_msg("%.*s: %s", (int)(text.n < 100 ? text.n : 100), text.p, err.text);
	return doc;
}

static void navigation(void **state)
{
	struct str text =
	        STR(" {\"a\" : [1, \"two\", null,{}], \"b\\n\":{\"x\":true},\"c\":false } ");
	_cleanup_json_ struct json_doc *doc = parsed(text);
	const struct json *root = json_root(doc), *a = json_get(root, "a"),
	                  *b = json_get(root, "b\n");
	const struct json *c = json_get(root, "c"), *v;

	assert_true(json_is(root, JSON_OBJECT));
	assert_int_equal(json_type(root), JSON_OBJECT);
	assert_int_equal(json_count(root), 3);
	assert_int_equal(json_offset(root), 1);
	assert_true(str_eq(json_raw(root), str_trim(text)));
	assert_true(str_is(json_raw(a), "[1, \"two\", null,{}]"));
	assert_int_equal(json_offset(a), 8);
	assert_int_equal(json_count(a), 4);
	assert_true(json_is(json_at(a, 0), JSON_NUMBER));
	assert_true(str_is(json_str(json_at(a, 1)), "two"));
	assert_true(str_is(json_raw(json_at(a, 1)), "\"two\""));
	assert_true(json_is(json_at(a, 2), JSON_NULL));
	assert_true(json_is(json_at(a, 3), JSON_OBJECT));
	assert_int_equal(json_count(json_at(a, 3)), 0);
	assert_null(json_first(json_at(a, 3)));
	assert_null(json_at(a, 4));
	assert_null(json_at(a, SIZE_MAX));
	assert_null(json_at(root, 0));
	assert_null(json_get(a, "a"));
	assert_null(json_get(root, "b"));
	assert_null(json_get(root, ""));
	assert_true(json_bool(json_get(b, "x")));
	assert_false(json_bool(c));
	assert_true(json_is_bool(c) && json_is_bool(json_get(b, "x")) && !json_is_bool(a));
	v = json_first(root);
	assert_ptr_equal(v, a);
	assert_true(str_is(json_key(v), "a"));
	assert_true(str_is(json_key_raw(v), "\"a\""));
	v = json_next(v);
	assert_ptr_equal(v, b);
	assert_true(str_is(json_key(v), "b\n"));
	assert_true(str_is(json_key_raw(v), "\"b\\n\""));
	v = json_next(v);
	assert_ptr_equal(v, c);
	assert_null(json_next(v));
	assert_null(json_key(json_at(a, 0)).p);
	assert_null(json_key_raw(json_at(a, 0)).p);
	assert_null(json_key(root).p);
	assert_null(json_str(a).p);
	assert_int_equal(json_count(c), 0);
	assert_true(json_doc_memory(doc) >= 512 && json_doc_memory(doc) < 20000);
}

static void absent_values(void **state)
{
	_cleanup_json_ struct json_doc *doc = parsed(STR("{\"n\":null}"));
	int64_t i = 5;
	double d = 5;

	assert_int_equal(json_type(NULL), JSON_NULL);
	assert_false(json_is(NULL, JSON_NULL));
	assert_true(json_is(json_get(json_root(doc), "n"), JSON_NULL));
	assert_true(json_absent(NULL) && json_absent(json_get(json_root(doc), "n")));
	assert_false(json_absent(json_root(doc)));
	assert_false(json_is_bool(NULL) || json_bool(NULL));
	assert_null(json_str(NULL).p);
	assert_null(json_raw(NULL).p);
	assert_int_equal(json_offset(NULL), 0);
	assert_false(json_i64(NULL, &i) || json_double(NULL, &d));
	assert_int_equal(i, 5);
	assert_true(d == 5);
	assert_int_equal(json_count(NULL), 0);
	assert_null(json_get(NULL, "a"));
	assert_null(json_at(NULL, 0));
	assert_null(json_first(NULL));
	assert_null(json_next(NULL));
	assert_null(json_key(NULL).p);
	assert_null(json_key_raw(NULL).p);
	assert_null(json_root(NULL));
	assert_int_equal(json_doc_memory(NULL), 0);
	assert_null(json_doc_free(NULL));
}

static void strings_without_escapes_are_not_copied(void **state)
{
	struct str text = STR("{\"key\":\"value\",\"e\":\"\",\"\\u006b\":\"a\\u0000b\"}");
	_cleanup_json_ struct json_doc *doc = parsed(text);
	const struct json *root = json_root(doc), *v = json_get(root, "key");

	assert_ptr_equal(json_str(v).p, text.p + 8);
	assert_ptr_equal(json_key(v).p, text.p + 2);
	assert_non_null(json_str(json_get(root, "e")).p);
	assert_int_equal(json_str(json_get(root, "e")).n, 0);
	v = json_get(root, "k");
	assert_true(str_eq(json_str(v), STR("a\0b")));
	assert_true(str_is(json_key_raw(v), "\"\\u006b\""));
	assert_true(str_is(json_raw(v), "\"a\\u0000b\""));
}

static void whole_numbers(void **state)
{
	static const struct {
		const char *text;
		int64_t value;
	} whole[] = {
	        {"0", 0},
	        {"-0", 0},
	        {"0.0", 0},
	        {"-0.00e5", 0},
	        {"0e999999999999999999999", 0},
	        {"0E-99999999999999999999999", 0},
	        {"7", 7},
	        {"-7", -7},
	        {"3.0", 3},
	        {"3.000000000000000000000000000000", 3},
	        {"1e2", 100},
	        {"1E+2", 100},
	        {"1.5e1", 15},
	        {"0.10e1", 1},
	        {"100e-2", 1},
	        {"0.000000000000000000000000000001e30", 1},
	        {"1000000000000000000000000000000e-30", 1},
	        {"123.456e3", 123456},
	        {"10203.0405e4", 102030405},
	        {"9223372036854775807", INT64_MAX},
	        {"-9223372036854775808", INT64_MIN},
	        {"9223372036854775807.0", INT64_MAX},
	        {"92233720368547758070e-1", INT64_MAX},
	        {"0.9223372036854775807e19", INT64_MAX},
	        {"1e18", INT64_C(1000000000000000000)},
	        {"9e18", INT64_C(9000000000000000000)},
	};
	static const char *const not_whole[] = {"0.5", "1.5", "1e-1", "15e-1", "10.01", "100e-3",
	        "9223372036854775808", "-9223372036854775809", "1e19", "10e18", "1e400",
	        "1e99999999999999999999999999", "1e-99999999999999999999999",
	        "99999999999999999999", "18446744073709551616", "18446744073709551617",
	        "1.0000000000000000000000000001", "9223372036854775807.5",
	        "100000000000000000000000000000001", "\"1\"", "true", "null", "[]", "{}"};
	size_t i;

	for (i = 0; i < sizeof(whole) / sizeof(*whole); i++) {
		_cleanup_json_ struct json_doc *doc = parsed(str_of(whole[i].text));
		int64_t v = 99;

		if (!json_i64(json_root(doc), &v) || v != whole[i].value)
			fail_msg("%s: %lld", whole[i].text, (long long)v);
	}
	for (i = 0; i < sizeof(not_whole) / sizeof(*not_whole); i++) {
		_cleanup_json_ struct json_doc *doc = parsed(str_of(not_whole[i]));
		int64_t v = 99;

		if (json_i64(json_root(doc), &v))
			fail_msg("%s: %lld", not_whole[i], (long long)v);
		assert_int_equal(v, 99);
	}
}

/* 10^k with k zeros before the point, n after, and an exponent that undoes them. */
static void whole_numbers_with_many_digits(void **state)
{
	int k;

	for (k = 0; k < 2000; k += 37) {
		_cleanup_buf_ struct buf b = BUF_INIT(10000);
		_cleanup_json_ struct json_doc *doc = NULL;
		int64_t v;
		int i;

		buf_puts(&b, "-42");
		for (i = 0; i < k; i++)
			buf_putc(&b, '0');
		buf_puts(&b, ".000");
		buf_printf(&b, "e-%d", k);
		doc = parsed((struct str){b.data, b.len});
		assert_true(json_i64(json_root(doc), &v));
		assert_int_equal(v, -42);
	}
}

static void doubles(void **state)
{
	static const struct {
		const char *text;
		double value;
	} cases[] = {{"0", 0}, {"-1.5", -1.5}, {"1e3", 1000}, {"0.1", 0.1}, {"1e-400", 0},
	        {"1.7976931348623157e308", 1.7976931348623157e308},
	        {"123456789012345678901234567890", 123456789012345678901234567890.0},
	        /* longer than the buffer on the stack */
	        {"0.100000000000000000000000000000000000000000000000000000000000000000000000000001",
	                0.1}};
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		_cleanup_json_ struct json_doc *doc = parsed(str_of(cases[i].text));
		double d = 7;

		assert_true(json_double(json_root(doc), &d));
		assert_true(d == cases[i].value);
	}
	{
		_cleanup_json_ struct json_doc *doc = parsed(STR("[1e309,-1e999999,\"1\"]"));
		double d = 7;

		for (i = 0; i < 3; i++)
			assert_false(json_double(json_at(json_root(doc), i), &d));
		assert_true(d == 7);
	}
}

static void twice(const char *text, const char *want)
{
	struct json_doc *doc = (struct json_doc *)&doc;
	struct json_doc *before = doc;
	struct error err = {0};

	assert_int_equal(json_parse(str_of(text), ROOM, &doc, &err), -ERR_INVALID);
	assert_string_equal(err.text, want);
	assert_ptr_equal(doc, before); /* outputs are untouched on failure */
}

static void duplicate_keys(void **state)
{
	twice("{\"a\":1,\"a\":2}", "key \"a\" appears twice at byte 7 (line 1, column 8)");
	twice("{\"a\":1,\n \"\\u0061\":2}", "key \"a\" appears twice at byte 9 (line 2, column 2)");
	twice("{\"\":1,\"\":2}", "key \"\" appears twice at byte 6 (line 1, column 7)");
	twice("[{\"x\":{\"b\":0,\"c\":{\"b\":1,\"b\":1}}}]",
	        "key \"b\" appears twice at byte 24 (line 1, column 25)");
	twice("{\"a\\nb\":1,\"a\\u000ab\":2}",
	        "key \"a b\" appears twice at byte 10 (line 1, column 11)");
	/* Two different lone surrogates both read as U+FFFD. */
	twice("{\"\\ud800\":1,\"\\udfff\":2}",
	        "key \"\xef\xbf\xbd\" appears twice at byte 12 (line 1, column 13)");
	twice("{\"\xc3\xa9\":1,\"\\u00e9\":2}",
	        "key \"\xc3\xa9\" appears twice at byte 8 (line 1, column 8)");
	/* At most 40 bytes are shown, and no half character. */
	twice("{\"0123456789012345678901234567890123456789\":1,"
	      "\"0123456789012345678901234567890123456789\":1}",
	        "key \"0123456789012345678901234567890123456789\" appears twice at byte 46 (line "
	        "1, column 47)");
	twice("{\"012345678901234567890123456789012345678\xc3\xa9z\":1,"
	      "\"012345678901234567890123456789012345678\xc3\xa9z\":1}",
	        "key \"012345678901234567890123456789012345678\xe2\x80\xa6\" appears twice at byte "
	        "48 (line 1, column 48)");
	/* The same key in different objects, and as a value, is fine. */
	json_doc_free(parsed(STR("{\"a\":{\"a\":\"a\"},\"b\":[{\"a\":1},{\"a\":2}],\"A\":0}")));
}

/* Members on both sides of where the builder changes its way of comparing, in nested objects too.
 */
static void duplicate_keys_in_objects_of_every_size(void **state)
{
	int n, first, nest;

	for (n = 1; n < 100; n = n < 40 ? n + 1 : n + 13)
		for (first = -1; first < n; first++)
			for (nest = 0; nest < 2; nest++) {
				_cleanup_buf_ struct buf b = BUF_INIT(100000);
				struct json_doc *doc = NULL;
				struct error err = {0};
				int i, r;

				buf_putc(&b, '{');
				for (i = 0; i < n; i++) {
					buf_printf(&b, "\"k%d\":", i);
					/* An inner object with the same keys in between. */
					if (nest && i % 20 == 17) {
						int k;

						buf_puts(&b, "{\"k0\":0");
						for (k = 1; k < 30; k++)
							buf_printf(&b, ",\"k%d\":0", k);
						buf_puts(&b, "},");
					} else {
						buf_puts(&b, "0,");
					}
				}
				buf_printf(&b, "\"\\u006b%d\":1}", first < 0 ? n : first);
				r = json_parse((struct str){b.data, b.len}, ROOM, &doc, &err);
				if (r != (first < 0 ? 0 : -ERR_INVALID))
					fail_msg("%d members, again %d: %d %s", n, first, r,
					        err.text);
				if (first < 0)
					assert_int_equal(json_count(json_root(doc)), n + 1);
				json_doc_free(doc);
			}
}

/* Half a million members: quadratic comparing would take hours. */
static void large_objects_stay_linear(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(32 << 20);
	_cleanup_json_ struct json_doc *doc = NULL;
	struct json_doc *again = NULL;
	struct error err = {0};
	int i;

	buf_putc(&b, '{');
	for (i = 0; i < 500000; i++)
		buf_printf(&b, "%s\"key%d\":%d", i ? "," : "", i, i);
	buf_putc(&b, '}');
	doc = parsed((struct str){b.data, b.len});
	assert_int_equal(json_count(json_root(doc)), 500000);
	b.data[b.len - 1] = ',';
	buf_puts(&b, "\"key123456\":0}");
	assert_int_equal(json_parse((struct str){b.data, b.len}, ROOM, &again, &err), -ERR_INVALID);
	assert_non_null(strstr(err.text, "key \"key123456\" appears twice"));
}

static void memory_is_bounded(void **state)
{
	static const char *const pieces[] = {
	        "1,", "\"\\n\",", "{\"a\":1},", "[],", "\"\\u0061bcdefghijklmno\","};
	size_t p, max;

	for (p = 0; p < sizeof(pieces) / sizeof(*pieces); p++) {
		_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
		bool fitted = false;
		int i;

		buf_putc(&b, '[');
		for (i = 0; i < 2000; i++)
			buf_puts(&b, pieces[p]);
		buf_puts(&b, "0]");
		for (max = 0; max < 1 << 20; max += max < 10000 ? 100 : 20000) {
			struct json_doc *doc = NULL;
			struct error err = {0};
			int r = json_parse((struct str){b.data, b.len}, max, &doc, &err);

			if (r == 0) {
				assert_true(json_doc_memory(doc) <= max);
				fitted = true;
			} else {
				assert_int_equal(r, -ERR_NOMEM);
				assert_false(fitted);
				assert_non_null(strstr(err.text, "the document needs more than "));
			}
			json_doc_free(doc);
		}
		assert_true(fitted);
	}
}

static void keyset_memory_is_bounded(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
	struct json_doc *doc = NULL;
	size_t needed;
	int i;

	buf_putc(&b, '{');
	for (i = 0; i < 3000; i++)
		buf_printf(&b, "\"%d\":0,", i);
	buf_puts(&b, "\"z\":0}");
	doc = parsed((struct str){b.data, b.len});
	needed = json_doc_memory(doc);
	json_doc_free(doc);
	/* Enough for the tree is not enough for reading it: the set of keys counts, too. */
	assert_int_equal(json_parse((struct str){b.data, b.len}, needed, &doc, NULL), -ERR_NOMEM);
	assert_int_equal(json_parse((struct str){b.data, b.len}, 3 * needed, &doc, NULL), 0);
	assert_true(json_doc_memory(doc) <= 3 * needed);
	json_doc_free(doc);
}

static uint64_t cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The bad input: 64 MiB of [1,1,…] and a million brackets. */
static void huge_arrays_are_refused_soon(void **state)
{
	size_t n = 64 << 20, i;
	_cleanup_free_ char *text = malloc(n);
	struct json_doc *doc = NULL;
	struct error err = {0};
	uint64_t begin;

	text[0] = '[';
	for (i = 1; i + 1 < n; i += 2) {
		text[i] = '1';
		text[i + 1] = ',';
	}
	text[n - 1] = ']';
	begin = cpu_ms();
	assert_int_equal(json_parse((struct str){text, n}, ROOM, &doc, &err), -ERR_TOO_LARGE);
	assert_non_null(strstr(err.text, "more than 1000000 values"));
	assert_int_equal(json_parse((struct str){text, n}, 1 << 20, &doc, &err), -ERR_NOMEM);
	memset(text, '[', n);
	assert_int_equal(json_parse((struct str){text, n}, ROOM, &doc, &err), -ERR_INVALID);
	/* Generous, for a loaded machine with sanitizers; the benchmark says what it really takes.
	 */
	assert_true(cpu_ms() - begin < 5000);
}

static void million_values_cost_what_the_header_says(void **state)
{
	size_t n = 2 * (JSON_MAX_VALUES - 1) + 1, i;
	_cleanup_free_ char *text = malloc(n);
	_cleanup_json_ struct json_doc *doc = NULL;

	text[0] = '[';
	for (i = 1; i < n; i += 2) {
		text[i] = '1';
		text[i + 1] = ',';
	}
	text[n - 1] = ']';
	doc = parsed((struct str){text, n});
	assert_int_equal(json_count(json_root(doc)), JSON_MAX_VALUES - 1);
	assert_true(json_doc_memory(doc) <= 49 * (size_t)JSON_MAX_VALUES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(navigation),
	        cmocka_unit_test(absent_values),
	        cmocka_unit_test(strings_without_escapes_are_not_copied),
	        cmocka_unit_test(whole_numbers),
	        cmocka_unit_test(whole_numbers_with_many_digits),
	        cmocka_unit_test(doubles),
	        cmocka_unit_test(duplicate_keys),
	        cmocka_unit_test(duplicate_keys_in_objects_of_every_size),
	        cmocka_unit_test(large_objects_stay_linear),
	        cmocka_unit_test(memory_is_bounded),
	        cmocka_unit_test(keyset_memory_is_bounded),
	        cmocka_unit_test(huge_arrays_are_refused_soon),
	        cmocka_unit_test(million_values_cost_what_the_header_says),
	};

	return UNIT_RUN(tests);
}
