#include "unit.h"

#include "network/policy.h"

#include <stdlib.h>
#include <string.h>

/* The text of a value, or NULL with err. */
static char *check(const char *json, struct error *err)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	struct buf out = BUF_INIT(POLICY_TEXT_MAX);
	char *text = NULL;

	if (json_parse(str_of(json), (size_t)1 << 20, &doc, err) < 0)
		fail_msg("%s: %s", json, err->text);
	*err = (struct error){0};
	if (policy_check(json_root(doc), "p", &out, err) == 0)
		text = strdup(buf_cstr(&out));
	buf_free(&out);
	return text;
}

static void takes(const char *json, const char *text)
{
	struct error err;
	char *got = check(json, &err);

	if (!got)
		fail_msg("%s: %s", json, err.text);
	assert_string_equal(got, text);
	free(got);
}

static void refuses(const char *json, const char *param, const char *why)
{
	struct error err;
	char *got = check(json, &err);

	if (got)
		fail_msg("%s is taken", json);
	assert_int_equal(err.code, ERR_INVALID);
	assert_string_equal(err.param, param);
	if (!strstr(err.text, why))
		fail_msg("%s: %s", json, err.text);
}

static void requests(void **state)
{
	struct buf many = BUF_INIT(65536);

	takes("{\"type\":\"disabled\"}", "");
	takes("{\"type\":\"disabled\",\"allowed_domains\":null}", "");
	takes("{\"allowed_domains\":[\"b.c\",\"*\"],\"type\":\"allowlist\"}",
	        "{\"type\":\"allowlist\",\"allowed_domains\":[\"b.c\",\"*\"]}");
	refuses("[]", "p", "object");
	refuses("{}", "p.type", "must be");
	refuses("{\"type\":\"off\"}", "p.type", "must be");
	refuses("{\"type\":\"allowlist\"}", "p.allowed_domains", "1 to 50");
	refuses("{\"type\":\"allowlist\",\"allowed_domains\":[]}", "p.allowed_domains", "1 to 50");
	refuses("{\"type\":\"allowlist\",\"allowed_domains\":\"a\"}", "p.allowed_domains", "array");
	refuses("{\"type\":\"allowlist\",\"allowed_domains\":[\"a\",7]}", "p.allowed_domains[1]",
	        "string");
	refuses("{\"type\":\"allowlist\",\"allowed_domains\":[\"a\",\"http://b\"]}",
	        "p.allowed_domains[1]", "\"http://b\" holds a scheme");
	refuses("{\"type\":\"allowlist\",\"allowed_domains\":[\"a\"],\"x\":1}", "p.x", "Unknown");
	buf_puts(&many, "{\"type\":\"allowlist\",\"allowed_domains\":[\"a\"");
	for (int i = 0; i < 49; i++)
		buf_puts(&many, ",\"*\"");
	buf_puts(&many, "]}");
	struct error err;
	char *got = check(buf_cstr(&many), &err);

	assert_non_null(got);
	free(got);
	many.len -= 2;
	buf_puts(&many, ",\"b\"]}");
	refuses(buf_cstr(&many), "p.allowed_domains[50]", "at most 50");
	buf_free(&many);
}

#define TWO "{\"type\":\"allowlist\",\"allowed_domains\":[\"b.com\",\"*.a.com\"]}"

static void bounds(void **state)
{
	char com[] = "*.com", b_com[] = "b.com";
	char *allow[] = {com}, *narrow[] = {b_com};
	struct policy_rules any = {0}, wide = {.allow = allow, .n_allow = 1},
	                    one = {.allow = narrow, .n_allow = 1};
	struct error err = {0};

	assert_int_equal(policy_within(STR(TWO), &any, "p", &err), 0);
	assert_int_equal(policy_within(STR(TWO), &wide, "p", &err), 0);
	assert_int_equal(policy_within(STR(""), &one, "p", &err), 0);
	assert_int_equal(policy_within(STR(TWO), &one, "p", &err), -ERR_INVALID);
	assert_string_equal(err.param, "p.allowed_domains[1]");
	assert_non_null(strstr(err.text, "*.a.com"));
}

static void expect_lines(const char *text, const struct policy_rules *rules, const char *lines,
        bool expect_all, uint8_t hash[16])
{
	struct buf out = BUF_INIT(65536);
	bool all;

	assert_int_equal(policy_lines(str_of(text), rules, STR("a/b/c"), &out, hash, &all), 0);
	assert_string_equal(buf_cstr(&out), lines);
	assert_int_equal(all, expect_all);
	buf_free(&out);
}

static void lines(void **state)
{
	char com[] = "*.com", x_com[] = "x.com";
	char *allow[] = {com}, *deny[] = {x_com};
	struct policy_rules plain = {0}, full = {.allow = allow,
	                                         .n_allow = 1,
	                                         .deny = deny,
	                                         .n_deny = 1,
	                                         .allow_private = true};
	uint8_t a[16], b[16];
	struct buf out = BUF_INIT(65536);
	bool all;

	expect_lines(TWO, &plain, "label a/b/c\nallow *.a.com\nallow b.com\n", false, a);
	expect_lines(
	        "{\"type\":\"allowlist\",\"allowed_domains\":[\"*.a.com\",\"b.com\",\"b.com\"]}",
	        &plain, "label a/b/c\nallow *.a.com\nallow b.com\n", false, b);
	assert_memory_equal(a, b, 16);
	expect_lines(TWO, &full, "label a/b/c\nprivate\nallow *.a.com\nallow b.com\ndeny x.com\n",
	        false, b);
	assert_memory_not_equal(a, b, 16);
	expect_lines("{\"type\":\"allowlist\",\"allowed_domains\":[\"a.com\",\"*\"]}", &plain,
	        "label a/b/c\nall\n", true, b);
	/* An operator who allows less than the row has: what is outside is left out. */
	expect_lines("{\"type\":\"allowlist\",\"allowed_domains\":[\"a.com\",\"*\",\"b.org\"]}",
	        &full, "label a/b/c\nprivate\nallow a.com\ndeny x.com\n", false, b);
	assert_int_equal(policy_lines(STR("{}"), &plain, STR("a"), &out, a, &all), -ERR_INVALID);
	assert_int_equal(
	        policy_lines(STR("no json"), &plain, STR("a"), &out, a, &all), -ERR_INVALID);
	buf_free(&out);
}

static void count(void *ctx, const char *sentence)
{
	assert_non_null(strstr(sentence, "*a.com"));
	++*(int *)ctx;
}

static void warnings(void **state)
{
	int n = 0;

	policy_warnings(STR("{\"type\":\"allowlist\",\"allowed_domains\":[\"*a.com\",\"b.com\"]}"),
	        count, &n);
	assert_int_equal(n, 1);
	assert_int_equal(policy_warnings(STR(""), count, &n), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(requests),
	        cmocka_unit_test(bounds),
	        cmocka_unit_test(lines),
	        cmocka_unit_test(warnings),
	};

	return UNIT_RUN(tests);
}
