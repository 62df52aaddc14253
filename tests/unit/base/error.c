#include "unit.h"

#include "base/error.h"
#include "base/utf8.h"

#include <errno.h>
#include <string.h>

static void set_fills_everything(void **state)
{
	struct error err;

	memset(&err, 0xa5, sizeof(err));
	assert_int_equal(
	        error_set(&err, ERR_NOT_FOUND, "no container %s (%d)", "c1", 7), -ERR_NOT_FOUND);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	assert_string_equal(err.text, "no container c1 (7)");
	assert_string_equal(err.type, "");
	assert_string_equal(err.param, "");
	assert_int_equal(err.http_status, 0);
	assert_int_equal(err.retry_after_ms, 0);
}

static void null_is_allowed(void **state)
{
	assert_int_equal(error_set(NULL, ERR_RATE, "x"), -ERR_RATE);
	assert_int_equal(error_param(NULL, ERR_RATE, "p", "x"), -ERR_RATE);
	assert_int_equal(error_errno(NULL, EPERM, "x"), -ERR_IO);
	assert_int_equal(error_prefix(NULL, "x"), -ERR_INTERNAL);
	assert_int_equal(error_http_status(NULL), 500);
}

static void param(void **state)
{
	char long_path[400];
	struct error err;

	assert_int_equal(
	        error_param(&err, ERR_INVALID, "tools[0].type", "is %s", "wrong"), -ERR_INVALID);
	assert_string_equal(err.param, "tools[0].type");
	assert_string_equal(err.text, "is wrong");
	error_param(&err, ERR_INVALID, NULL, "x");
	assert_string_equal(err.param, "");
	memset(long_path, 'a', sizeof(long_path));
	long_path[sizeof(long_path) - 1] = '\0';
	error_param(&err, ERR_INVALID, long_path, "x");
	assert_int_equal(strlen(err.param), sizeof(err.param) - 1);
}

static void text_is_one_clean_line(void **state)
{
	struct error err;

	error_param(&err, ERR_INVALID, "a\nb", "one\r\ntwo\t\x1b[31m\x7f \xff\xc3\x28 \xc3\xa9");
	assert_string_equal(err.text, "one  two  [31m  ?\?( \xc3\xa9");
	assert_string_equal(err.param, "a b");
}

static void long_text_is_cut_at_a_character(void **state)
{
	char text[3000];
	struct error err;
	size_t shift, i;

	/* Every way the cut can fall into a four-byte character, in the text and in the draft. */
	for (shift = 0; shift < 4; shift++) {
		memset(text, 'x', shift);
		for (i = shift; i + 4 < sizeof(text); i += 4)
			memcpy(text + i, "\xf0\x9f\x98\x80", 4);
		text[i] = '\0';
		error_set(&err, ERR_INVALID, "%s", text);
		assert_true(utf8_valid(err.text, strlen(err.text)));
		assert_true(strlen(err.text) > sizeof(err.text) - 5);
		assert_null(strchr(err.text, '?'));
		error_set(&err, ERR_INVALID, "short");
		error_prefix(&err, "%s", text);
		assert_true(utf8_valid(err.text, strlen(err.text)));
	}
}

static void own_text_as_an_argument(void **state)
{
	struct error err;

	error_param(&err, ERR_INVALID, "where", "inner");
	assert_int_equal(
	        error_param(&err, ERR_UPSTREAM, err.param, "outer: %s", err.text), -ERR_UPSTREAM);
	assert_string_equal(err.text, "outer: inner");
	assert_string_equal(err.param, "where");
}

static void errno_text(void **state)
{
	struct error err;
	char path[900];

	assert_int_equal(error_errno(&err, ENOENT, "open %s", "/x"), -ERR_IO);
	assert_string_equal(err.text, "open /x: No such file or directory");
	memset(path, 'p', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	error_errno(&err, ENOENT, "open %s", path);
	assert_non_null(strstr(err.text, ": No such file or directory"));
}

static void prefix_keeps_the_rest(void **state)
{
	struct error err;

	error_param(&err, ERR_UPSTREAM, "model", "bad gateway");
	err.http_status = 529;
	err.retry_after_ms = 1500;
	memcpy(err.type, "overloaded", sizeof("overloaded"));
	assert_int_equal(error_prefix(&err, "provider %s", "x"), -ERR_UPSTREAM);
	assert_string_equal(err.text, "provider x: bad gateway");
	assert_string_equal(err.param, "model");
	assert_string_equal(err.type, "overloaded");
	assert_int_equal(err.http_status, 529);
	assert_int_equal(err.retry_after_ms, 1500);
	memset(&err, 0, sizeof(err));
	assert_int_equal(error_prefix(&err, "p"), -ERR_INTERNAL);
	assert_int_equal(err.code, ERR_INTERNAL);
}

static void http_status(void **state)
{
	static const struct {
		enum err code;
		int status;
	} cases[] = {
	        {ERR_INVALID, 400},
	        {ERR_AUTH, 401},
	        {ERR_PERMISSION, 403},
	        {ERR_NOT_FOUND, 404},
	        {ERR_CONFLICT, 409},
	        {ERR_TOO_LARGE, 413},
	        {ERR_MEDIA, 415},
	        {ERR_RATE, 429},
	        {ERR_CAPACITY, 429},
	        {ERR_UNAVAILABLE, 503},
	        {ERR_UPSTREAM, 502},
	        {ERR_TIMEOUT, 504},
	        {ERR_CANCELED, 499},
	        {ERR_UNSUPPORTED, 400},
	        {ERR_IO, 500},
	        {ERR_NOMEM, 503},
	        {ERR_PROTOCOL, 500},
	        {ERR_INTERNAL, 500},
	};
	struct error err;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		error_set(&err, cases[i].code, "x");
		assert_int_equal(error_http_status(&err), cases[i].status);
	}
	assert_int_equal(i, ERR_INTERNAL); /* every code has its case */
	err.http_status = 418;
	assert_int_equal(error_http_status(&err), 418);
}

static void make_bug(void *arg)
{
	BUG("on purpose: %d", 1);
}

static void bug_aborts(void **state)
{
	assert_true(unit_aborts(make_bug, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(set_fills_everything),
	        cmocka_unit_test(null_is_allowed),
	        cmocka_unit_test(param),
	        cmocka_unit_test(text_is_one_clean_line),
	        cmocka_unit_test(long_text_is_cut_at_a_character),
	        cmocka_unit_test(own_text_as_an_argument),
	        cmocka_unit_test(errno_text),
	        cmocka_unit_test(prefix_keeps_the_rest),
	        cmocka_unit_test(http_status),
	        cmocka_unit_test(bug_aborts),
	};

	return UNIT_RUN(tests);
}
