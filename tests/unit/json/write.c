#include "unit.h"

#include "json/json.h"

#include "base/utf8.h"

#include <string.h>

static void strings(void **state)
{
	static const struct {
		struct str in;
		const char *out;
	} cases[] = {
	        {{"", 0}, "\"\""},
	        {{NULL, 0}, "\"\""},
	        {{"plain", 5}, "\"plain\""},
	        {{"\"\\/\b\f\n\r\t", 8}, "\"\\\"\\\\/\\b\\f\\n\\r\\t\""},
	        {{"\0\001\037\177", 4}, "\"\\u0000\\u0001\\u001f\x7f\""},
	        {{"\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80", 9},
	                "\"\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80\""},
	        {{"a\xff"
	          "b\xe2\x82",
	                 5},
	                "\"a\xef\xbf\xbd"
	                "b\xef\xbf\xbd\""},
	        {{"\xed\xa0\x80", 3}, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
	};
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(1000), part = BUF_INIT(1000);

		assert_int_equal(json_write_str(&b, cases[i].in), 0);
		assert_string_equal(buf_cstr(&b), cases[i].out);
		assert_int_equal(json_write_str_part(&part, cases[i].in), 0);
		assert_int_equal(part.len, b.len - 2);
		assert_memory_equal(buf_cstr(&part), b.data + 1, part.len);
	}
}

/* What is written reads back as what utf8_append_valid makes of the input, for any bytes. */
static void strings_read_back(void **state)
{
	struct unit_random r = {5};
	int round;

	for (round = 0; round < 20000; round++) {
		_cleanup_buf_ struct buf b = BUF_INIT(1000), want = BUF_INIT(1000);
		_cleanup_json_ struct json_doc *doc = NULL;
		char in[40];
		size_t n = unit_below(&r, sizeof(in)), i;

		for (i = 0; i < n; i++)
			in[i] = (char)(unit_below(&r, 3) ? unit_below(&r, 0x60) : unit_next(&r));
		assert_int_equal(json_write_str(&b, (struct str){in, n}), 0);
		utf8_append_valid(&want, in, n);
		assert_int_equal(json_parse((struct str){b.data, b.len}, 1 << 20, &doc, NULL), 0);
		assert_true(str_eq(json_str(json_root(doc)), (struct str){want.data, want.len}));
	}
}

static void string_errors_stick(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(5);

	assert_true(json_write_str(&b, STR("abcd")) < 0);
	assert_true(json_write_str_part(&b, STR("")) == 0 && buf_error(&b) < 0);
}

static void documents(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(10000);
	struct json_writer w;

	jw_init(&w, &b);
	jw_object(&w);
	jw_kcstr(&w, "s", "x\ny");
	jw_kcstr(&w, "none", NULL);
	jw_kstr(&w, "part", (struct str){"abcdef", 3});
	jw_ki64(&w, "min", INT64_MIN);
	jw_kbool(&w, "yes", true);
	jw_kbool(&w, "no", false);
	jw_knull(&w, "null");
	jw_kraw(&w, "raw", STR("[1, 2]"));
	jw_kraw(&w, "noraw", (struct str){NULL, 0});
	jw_key(&w, "list");
	jw_array(&w);
	jw_array(&w);
	jw_end(&w);
	jw_object(&w);
	jw_end(&w);
	jw_i64(&w, 7);
	jw_bool(&w, true);
	jw_null(&w);
	jw_cstr(&w, "t");
	jw_cstr(&w, NULL);
	jw_str(&w, (struct str){NULL, 0});
	jw_raw(&w, STR("0.5"));
	jw_end(&w);
	jw_key_str(&w, STR("k\"\0"));
	jw_object(&w);
	jw_ki64(&w, "a", 1);
	jw_ki64(&w, "b", 2);
	jw_end(&w);
	jw_end(&w);
	assert_int_equal(jw_done(&w), 0);
	assert_string_equal(buf_cstr(&b),
	        "{\"s\":\"x\\ny\",\"none\":null,\"part\":\"abc\",\"min\":-9223372036854775808,"
	        "\"yes\":true,\"no\":false,\"null\":null,\"raw\":[1, 2],\"noraw\":null,"
	        "\"list\":[[],{},7,true,null,\"t\",null,\"\",0.5],\"k\\\"\\u0000\":{\"a\":1,\"b\":"
	        "2}}");
}

static void scalar_at_the_top(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(100);
	struct json_writer w;

	jw_init(&w, &b);
	jw_cstr(&w, "only");
	assert_int_equal(jw_done(&w), 0);
	assert_string_equal(buf_cstr(&b), "\"only\"");
}

static void deepest(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(10000);
	struct json_doc *doc = NULL;
	struct json_writer w;
	int i;

	jw_init(&w, &b);
	for (i = 0; i < JSON_MAX_DEPTH; i++) {
		if (i % 3) {
			jw_object(&w);
			jw_key(&w, "k");
		} else {
			jw_array(&w);
		}
	}
	jw_null(&w);
	for (i = 0; i < JSON_MAX_DEPTH; i++)
		jw_end(&w);
	assert_int_equal(jw_done(&w), 0);
	assert_int_equal(json_parse((struct str){b.data, b.len}, 1 << 20, &doc, NULL), 0);
	json_doc_free(doc);
}

static void errors_stick(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(10);
	struct json_writer w;

	jw_init(&w, &b);
	jw_array(&w);
	jw_cstr(&w, "much too long for it");
	jw_i64(&w, 1);
	jw_end(&w);
	assert_int_equal(jw_done(&w), -ERR_TOO_LARGE);
}

/* Each misuse by its number. */
static void misuse(void *arg)
{
	const int *which = arg;
	struct buf b = BUF_INIT(10000);
	struct json_writer w;
	int i;

	jw_init(&w, &b);
	switch (*which) {
	case 0:
		jw_end(&w);
		break;
	case 1:
		jw_key(&w, "k");
		break;
	case 2:
		jw_array(&w);
		jw_key(&w, "k");
		break;
	case 3:
		jw_object(&w);
		jw_null(&w);
		break;
	case 4:
		jw_object(&w);
		jw_key(&w, "k");
		jw_key(&w, "l");
		break;
	case 5:
		jw_object(&w);
		jw_key(&w, "k");
		jw_end(&w);
		break;
	case 6:
		jw_null(&w);
		jw_null(&w);
		break;
	case 7:
		for (i = 0; i <= JSON_MAX_DEPTH; i++)
			jw_array(&w);
		break;
	case 8:
		jw_array(&w);
		jw_done(&w);
		break;
	default: /* no misuse */
		jw_array(&w);
		jw_end(&w);
		jw_done(&w);
		break;
	}
}

static void misuse_is_a_bug(void **state)
{
	int which;

	for (which = 0; which < 9; which++)
		if (!unit_aborts(misuse, &which))
			fail_msg("misuse %d passed", which);
	assert_false(unit_aborts(misuse, &which));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(strings),
	        cmocka_unit_test(strings_read_back),
	        cmocka_unit_test(string_errors_stick),
	        cmocka_unit_test(documents),
	        cmocka_unit_test(scalar_at_the_top),
	        cmocka_unit_test(deepest),
	        cmocka_unit_test(errors_stick),
	        cmocka_unit_test(misuse_is_a_bug),
	};

	return UNIT_RUN(tests);
}
