#include "unit.h"

#include "json/json.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes each event as "TYPE@OFFSET:RAW " so that a case is one line. */
static int note(void *ctx, const struct json_event *ev)
{
	static const char names[] = "{}[]ksn+-0";

	return buf_printf(ctx, "%c%s%zu:%.*s ", names[ev->type], ev->escaped ? "\\" : "",
	        ev->offset, (int)ev->raw.n, ev->raw.p);
}

static void events(void **state)
{
	static const char *const cases[][2] = {
	        {"null", "00:null "},
	        {"true", "+0:true "},
	        {"false", "-0:false "},
	        {" \t\r\n1 \t\r\n", "n4:1 "},
	        {"\"\"", "s0:\"\" "},
	        {"[]", "[0:[ ]1:] "},
	        {"{ }", "{0:{ }2:} "},
	        {"[1,-2.5e+3 , \"a\\n\"]", "[0:[ n1:1 n3:-2.5e+3 s\\13:\"a\\n\" ]18:] "},
	        {"{\"a\":{\"b\":[{}]},\"\\u0062\":0}",
	                "{0:{ k1:\"a\" {5:{ k6:\"b\" [10:[ {11:{ }12:} ]13:] }14:} "
	                "k\\16:\"\\u0062\" n25:0 }26:} "},
	        {"[[],[[]]]", "[0:[ [1:[ ]2:] [4:[ [5:[ ]6:] ]7:] ]8:] "},
	        {"\"\\u0000\"", "s\\0:\"\\u0000\" "}, /* refused in a key only */
	        {"\"\\ud800\"", "s\\0:\"\\ud800\" "},
	        {"\"\x7f\xc3\xa9\"", "s0:\"\x7f\xc3\xa9\" "},
	};
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		_cleanup_buf_ struct buf got = BUF_INIT(10000);
		struct error err = {0};
		int r = json_read(str_of(cases[i][0]), note, &got, &err);

		if (r)
			fail_msg("%s: %s", cases[i][0], err.text);
		assert_string_equal(buf_cstr(&got), cases[i][1]);
	}
}

static int ignore(void *ctx, const struct json_event *ev)
{
	return 0;
}

#define TEXT(lit) (lit), sizeof(lit) - 1

static const struct {
	const char *text;
	size_t n;
	const char *error; /* what err.text begins with, the place included */
} refused[] = {
        {TEXT(""), "a value was expected, but the text ends at byte 0 (line 1, column 1)"},
        {TEXT(" \n "), "a value was expected, but the text ends at byte 3 (line 2, column 2)"},
        {TEXT("\xef\xbb\xbf{}"), "a value was expected, not a byte order mark at byte 0"},
        {TEXT("\0"), "a value was expected, not the byte 0x00 at byte 0"},
        {TEXT("{}\0"), "the text goes on after its value at byte 2"},
        {TEXT("[\"a\0\"]"), "the control character 0x00 in a string must be escaped at byte 3"},
        {TEXT("1 2"), "the text goes on after its value at byte 2"},
        {TEXT("[] []"), "the text goes on after its value at byte 3"},
        {TEXT("\f1"), "a value was expected, not the byte 0x0c at byte 0"},
        {TEXT("\xc2\xa0"
              "1"),
                "a value was expected, not the byte 0xc2 at byte 0"},
        /* numbers */
        {TEXT("01"), "a number with a leading zero at byte 0"},
        {TEXT("-01"), "a number with a leading zero at byte 0"},
        {TEXT("00"), "a number with a leading zero at byte 0"},
        {TEXT("+1"), "a value was expected, not '+' at byte 0"},
        {TEXT(".5"), "a value was expected, not '.' at byte 0"},
        {TEXT("1."), "a digit after the decimal point was expected, but the text ends at byte 2"},
        {TEXT("[1.]"), "a digit after the decimal point was expected, not ']' at byte 3"},
        {TEXT("1.e5"), "a digit after the decimal point was expected, not 'e' at byte 2"},
        {TEXT("-"), "a digit was expected, but the text ends at byte 1"},
        {TEXT("-a"), "a digit was expected, not 'a' at byte 1"},
        {TEXT("--1"), "a digit was expected, not '-' at byte 1"},
        {TEXT("1e"), "a digit of the exponent was expected, but the text ends at byte 2"},
        {TEXT("1e+"), "a digit of the exponent was expected, but the text ends at byte 3"},
        {TEXT("1e5.5"), "the text goes on after its value at byte 3"},
        {TEXT("0x10"), "the text goes on after its value at byte 1"},
        {TEXT("1_000"), "the text goes on after its value at byte 1"},
        {TEXT("NaN"), "a value was expected, not 'N' at byte 0"},
        {TEXT("nan"), "an unknown word at byte 0"},
        {TEXT("Infinity"), "a value was expected, not 'I' at byte 0"},
        {TEXT("-Infinity"), "a digit was expected, not 'I' at byte 1"},
        /* words */
        {TEXT("tru"), "an unknown word at byte 0"},
        {TEXT("True"), "a value was expected, not 'T' at byte 0"},
        {TEXT("nulL"), "an unknown word at byte 0"},
        {TEXT("truefalse"), "the text goes on after its value at byte 4"},
        {TEXT("undefined"), "a value was expected, not 'u' at byte 0"},
        /* arrays and objects */
        {TEXT("["), "a value was expected, but the text ends at byte 1"},
        {TEXT("[1"), "a comma or ] was expected, but the text ends at byte 2"},
        {TEXT("[1,"), "a value was expected, but the text ends at byte 3"},
        {TEXT("[1,]"), "a value was expected, not ']' at byte 3"},
        {TEXT("[,1]"), "a value was expected, not ',' at byte 1"},
        {TEXT("[1,,2]"), "a value was expected, not ',' at byte 3"},
        {TEXT("[1 2]"), "a comma or ] was expected, not '2' at byte 3"},
        {TEXT("[1}"), "a comma or ] was expected, not '}' at byte 2"},
        {TEXT("[}"), "a value was expected, not '}' at byte 1"},
        {TEXT("]"), "a value was expected, not ']' at byte 0"},
        {TEXT("[]]"), "the text goes on after its value at byte 2"},
        {TEXT("{"), "a key was expected, but the text ends at byte 1"},
        {TEXT("{]"), "a key in double quotes was expected, not ']' at byte 1"},
        {TEXT("{1:2}"), "a key in double quotes was expected, not '1' at byte 1"},
        {TEXT("{a:2}"), "a key in double quotes was expected, not 'a' at byte 1"},
        {TEXT("{'a':2}"), "a key in double quotes was expected, not ''' at byte 1"},
        {TEXT("{\"a\""), "a colon was expected, but the text ends at byte 4"},
        {TEXT("{\"a\",1}"), "a colon was expected, not ',' at byte 4"},
        {TEXT("{\"a\"}"), "a colon was expected, not '}' at byte 4"},
        {TEXT("{\"a\":"), "a value was expected, but the text ends at byte 5"},
        {TEXT("{\"a\":}"), "a value was expected, not '}' at byte 5"},
        {TEXT("{\"a\":1"), "a comma or } was expected, but the text ends at byte 6"},
        {TEXT("{\"a\":1,"), "a key was expected, but the text ends at byte 7"},
        {TEXT("{\"a\":1,}"), "a key in double quotes was expected, not '}' at byte 7"},
        {TEXT("{\"a\":1]"), "a comma or } was expected, not ']' at byte 6"},
        {TEXT("{\"a\":1 \"b\":2}"), "a comma or } was expected, not '\"' at byte 7"},
        {TEXT("{,}"), "a key in double quotes was expected, not ',' at byte 1"},
        {TEXT("[1]//x"), "the text goes on after its value at byte 3"},
        {TEXT("[/**/1]"), "a value was expected, not '/' at byte 1"},
        {TEXT("#\n1"), "a value was expected, not '#' at byte 0"},
        /* strings */
        {TEXT("'a'"), "a value was expected, not ''' at byte 0"},
        {TEXT("\""), "the text ends within the string that begins at byte 0"},
        {TEXT("[\"abc"), "the text ends within the string that begins at byte 1"},
        {TEXT("\"abc\\"), "an escaped character was expected, but the text ends at byte 5"},
        {TEXT("\"\\\""), "the text ends within the string that begins at byte 0"},
        {TEXT("\"\n\""), "the control character 0x0a in a string must be escaped at byte 1"},
        {TEXT("\"\t\""), "the control character 0x09 in a string must be escaped at byte 1"},
        {TEXT("\"\x1f\""), "the control character 0x1f in a string must be escaped at byte 1"},
        {TEXT("\"\\x41\""), "an unknown escape in a string at byte 1"},
        {TEXT("\"\\'\""), "an unknown escape in a string at byte 1"},
        {TEXT("\"\\\0\""), "an unknown escape in a string at byte 1"},
        {TEXT("\"\\U0041\""), "an unknown escape in a string at byte 1"},
        {TEXT("\"\\u004\""), "\\u without four hexadecimal digits at byte 1"},
        {TEXT("\"\\u004"), "\\u without four hexadecimal digits at byte 1"},
        {TEXT("\"\\u"), "\\u without four hexadecimal digits at byte 1"},
        {TEXT("\"\\u00g0\""), "\\u without four hexadecimal digits at byte 1"},
        {TEXT("\"\\u+041\""), "\\u without four hexadecimal digits at byte 1"},
        {TEXT("{\"\\u0000\":1}"), "a NUL character in a key at byte 2"},
        {TEXT("{\"ab\\u0000c\":1}"), "a NUL character in a key at byte 4"},
        /* UTF-8 */
        {TEXT("\"\xff\""), "invalid UTF-8 in a string at byte 1"},
        {TEXT("\"\x80\""), "invalid UTF-8 in a string at byte 1"},
        {TEXT("\"\xc0\xaf\""), "invalid UTF-8 in a string at byte 1"},
        {TEXT("\"\xe0\x80\xaf\""), "invalid UTF-8 in a string at byte 1"},
        {TEXT("\"\xed\xa0\x80\""), "invalid UTF-8 in a string at byte 1"},
        {TEXT("\"\xf4\x90\x80\x80\""), "invalid UTF-8 in a string at byte 1"},
        {TEXT("\"\xf8\x88\x80\x80\x80\""), "invalid UTF-8 in a string at byte 1"},
        {TEXT("\"\xe2\x82\""), "invalid UTF-8 in a string at byte 1"},
        {TEXT("\"abcdefghij\xe2\x82"), "invalid UTF-8 in a string at byte 11"},
        {TEXT("{\"\xff\":1}"), "invalid UTF-8 in a string at byte 2"},
        /* the place */
        {TEXT("[\n  \"\xc3\xa9\xf0\x9f\x98\x80\", x]"),
                "a value was expected, not 'x' at byte 14 (line 2, column 9)"},
        {TEXT("\r\n\n\n  ?"), "a value was expected, not '?' at byte 6 (line 4, column 3)"},
};

static void refusals(void **state)
{
	size_t i;

	for (i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		struct error err = {0};
		/* An exact copy, so that a sanitizer sees a read past the end. */
		_cleanup_free_ char *copy = malloc(refused[i].n + 1);
		char *text = copy + 1;
		int r;

		memcpy(text, refused[i].text, refused[i].n);
		r = json_read((struct str){text, refused[i].n}, ignore, NULL, &err);
		if (r != -ERR_INVALID ||
		        strncmp(err.text, refused[i].error, strlen(refused[i].error)))
			fail_msg("case %zu: %d, \"%s\" instead of \"%s\"", i, r, err.text,
			        refused[i].error);
		assert_int_equal(err.code, ERR_INVALID);
		assert_true(utf8_valid(err.text, strlen(err.text)));
		assert_int_equal(
		        json_read((struct str){text, refused[i].n}, ignore, NULL, NULL), r);
	}
	assert_int_equal(json_read((struct str){NULL, 0}, ignore, NULL, NULL), -ERR_INVALID);
}

/* A valid text cut anywhere is refused (but for a number at the top), and never read past its end.
 */
static void every_prefix(void **state)
{
	static const char text[] =
	        "{\"k\\u00e9\\n\": [1.5e-3, \"\xf0\x9f\x98\x80\\ud83d\\ude00\", true, "
	        "false, null, {}, []], \"z\": -0}";
	size_t n;

	assert_int_equal(json_read(STR(text), ignore, NULL, NULL), 0);
	for (n = 0; n < sizeof(text) - 1; n++) {
		_cleanup_free_ char *copy = malloc(n + 1);

		memcpy(copy + 1, text, n);
		assert_int_equal(
		        json_read((struct str){copy + 1, n}, ignore, NULL, NULL), -ERR_INVALID);
	}
}

/* Each control character at each place of the eight bytes that the reader looks at together. */
static void every_byte_at_every_place(void **state)
{
	size_t at, len;
	unsigned c;

	for (len = 1; len < 20; len++)
		for (at = 0; at < len; at++)
			for (c = 0; c < 256; c++) {
				char text[32];
				bool good = c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
				size_t before;

				/* Neighbours that a borrow could spread from or to. */
				for (before = 0; before < 3; before++) {
					memset(text,
					        before == 0   ? 'a'
					        : before == 1 ? ' '
					                      : '!',
					        sizeof(text));
					text[0] = '"';
					text[1 + at] = (char)c;
					text[1 + len] = '"';
					if ((json_read((struct str){text, len + 2}, ignore, NULL,
					             NULL) == 0) != good)
						fail_msg("byte 0x%02x at %zu of %zu", c, at, len);
				}
			}
}

static struct buf nested(size_t n, const char *open, const char *close)
{
	struct buf b = BUF_INIT(10000000);
	size_t i;

	for (i = 0; i < n; i++)
		buf_puts(&b, open);
	for (i = 0; i < n; i++)
		buf_puts(&b, close);
	assert_int_equal(buf_error(&b), 0);
	return b;
}

static void depth(void **state)
{
	_cleanup_buf_ struct buf most = nested(128, "[", "]"), more = nested(129, "[", "]");
	_cleanup_buf_ struct buf mixed = nested(64, "{\"a\":[", "]}");
	_cleanup_buf_ struct buf mixed_more = nested(65, "{\"a\":[", "]}");
	_cleanup_buf_ struct buf million = nested(1000000, "[", "");
	struct error err;

	assert_int_equal(json_read(str_of(most.data), ignore, NULL, NULL), 0);
	assert_int_equal(json_read(str_of(mixed.data), ignore, NULL, NULL), 0);
	assert_int_equal(json_read(str_of(more.data), ignore, NULL, &err), -ERR_INVALID);
	assert_string_equal(err.text,
	        "more than 128 levels of arrays and objects at byte 128 (line 1, column 129)");
	assert_int_equal(json_read(str_of(mixed_more.data), ignore, NULL, &err), -ERR_INVALID);
	assert_int_equal(json_read(str_of(million.data), ignore, NULL, &err), -ERR_INVALID);
}

static void values(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(10000000);
	struct error err;
	int i;

	/* The array itself is one; keys do not count. */
	buf_puts(&b, "[{\"k\":1}");
	for (i = 3; i < JSON_MAX_VALUES; i++)
		buf_puts(&b, ",1");
	buf_putc(&b, ']');
	assert_int_equal(json_read((struct str){b.data, b.len}, ignore, NULL, NULL), 0);
	b.data[b.len - 1] = ',';
	buf_puts(&b, "1]");
	assert_int_equal(
	        json_read((struct str){b.data, b.len}, ignore, NULL, &err), -ERR_TOO_LARGE);
	assert_int_equal(strncmp(err.text, "more than 1000000 values at byte ", 33), 0);
}

struct stop {
	int left;
};

static int stop_after(void *ctx, const struct json_event *ev)
{
	struct stop *s = ctx;

	assert_true(s->left > 0); /* nothing comes after the stop */
	return --s->left ? 0 : -ERR_CANCELED;
}

static void callback_can_stop(void **state)
{
	struct error err;
	int n;

	memset(&err, 0x55, sizeof(err));
	for (n = 1; n <= 9; n++) {
		struct stop s = {n};
		struct error before = err;

		assert_int_equal(json_read(STR("{\"a\":[1,true,null,\"x\"],\"b\":false} oops"),
		                         stop_after, &s, &err),
		        -ERR_CANCELED);
		assert_memory_equal(&err, &before, sizeof(err));
	}
}

static void unescape(void **state)
{
	static const struct {
		const char *raw, *text;
		size_t n;
	} cases[] = {
	        {"\"\"", TEXT("")},
	        {"\"abc\"", TEXT("abc")},
	        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", TEXT("\"\\/\b\f\n\r\t")},
	        {"\"\\u0000\\u0041\\u00e9\\u20AC\"", TEXT("\0A\xc3\xa9\xe2\x82\xac")},
	        {"\"\\uD83D\\ude00x\"", TEXT("\xf0\x9f\x98\x80x")},
	        {"\"\\udbff\\udfff\"", TEXT("\xf4\x8f\xbf\xbf")},
	        {"\"\\ud800\"", TEXT("\xef\xbf\xbd")},
	        {"\"\\udc00\"", TEXT("\xef\xbf\xbd")},
	        {"\"\\ud800\\ud800\\udc00\"", TEXT("\xef\xbf\xbd\xf0\x90\x80\x80")},
	        {"\"\\ud800\\n\"", TEXT("\xef\xbf\xbd\n")},
	        {"\"\\ud800\\u0041\"", TEXT("\xef\xbf\xbd"
	                                    "A")},
	        {"\"\\ud800A\"", TEXT("\xef\xbf\xbd"
	                              "A")},
	        {"\"\\udc00\\ud800\"", TEXT("\xef\xbf\xbd\xef\xbf\xbd")},
	        {"\"a\\nb\xc3\xa9\\tc\"", TEXT("a\nb\xc3\xa9\tc")},
	};
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct str raw = str_of(cases[i].raw);
		_cleanup_free_ char *out = malloc(raw.n - 1);

		assert_int_equal(json_read(raw, ignore, NULL, NULL), 0);
		assert_int_equal(json_unescape(raw, out), cases[i].n);
		assert_memory_equal(out, cases[i].text, cases[i].n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(events),
	        cmocka_unit_test(refusals),
	        cmocka_unit_test(every_prefix),
	        cmocka_unit_test(every_byte_at_every_place),
	        cmocka_unit_test(depth),
	        cmocka_unit_test(values),
	        cmocka_unit_test(callback_can_stop),
	        cmocka_unit_test(unescape),
	};

	return UNIT_RUN(tests);
}
