/* Reading direct-use bodies: the first thing that is wrong is what the caller hears. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "gateway/fields.h"

static const char *const allowed[] = {"flag", "text", "n", "list", "map", NULL};

static void good(const char *body)
{
	struct fields f;
	bool flag = true;
	struct str text = {NULL, 0};
	uint64_t n = 7;

	fields_open(&f, str_of(body), allowed);
	fields_bool(&f, "flag", &flag);
	fields_str(&f, "text", 4, &text);
	fields_u64(&f, "n", 1, 10, &n);
	fields_strings(&f, "list", 2);
	fields_map(&f, "map", 2);
	fields_close(&f);
	if (f.failed)
		fail_msg("%s: %s", body, f.error.text);
}

static void bad(const char *body, const char *param)
{
	struct fields f;
	bool flag;
	struct str text = {NULL, 0};
	uint64_t n;

	fields_open(&f, str_of(body), allowed);
	fields_bool(&f, "flag", &flag);
	fields_str(&f, "text", 4, &text);
	fields_u64(&f, "n", 1, 10, &n);
	fields_strings(&f, "list", 2);
	fields_map(&f, "map", 2);
	fields_close(&f);
	if (!f.failed)
		fail_msg("%s was taken", body);
	assert_string_equal(f.error.param, param);
	assert_int_equal(f.error.code, ERR_INVALID);
}

static void test_good(void **state)
{
	good("");
	good("{}");
	good("{\"flag\":null,\"text\":null,\"n\":null,\"list\":null,\"map\":null}");
	good("{\"flag\":false,\"text\":\"abcd\",\"n\":10,\"list\":[\"a\",\"b\"],\"map\":{\"a\":\"b\"}}");
	good("{\"n\":1e0}");
}

static void test_bad(void **state)
{
	bad("[]", "");
	bad("{", "");
	bad("{\"other\":1}", "other");
	bad("{\"flag\":1}", "flag");
	bad("{\"text\":\"abcde\"}", "text");
	bad("{\"text\":1}", "text");
	bad("{\"n\":0}", "n");
	bad("{\"n\":11}", "n");
	bad("{\"n\":1.5}", "n");
	bad("{\"n\":-1}", "n");
	bad("{\"n\":\"1\"}", "n");
	bad("{\"list\":[1]}", "list[0]");
	bad("{\"list\":[\"a\",\"b\",\"c\"]}", "list");
	bad("{\"list\":{}}", "list");
	bad("{\"map\":[]}", "map");
	bad("{\"map\":{\"a\":1}}", "map[0]");
	/* The first one wins. */
	bad("{\"flag\":1,\"text\":1}", "flag");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_bad)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
