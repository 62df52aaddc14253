#include "unit.h"

#include "egress/policy.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "proto/egress.h"

#include <string.h>

static bool reads(const char *lines)
{
	struct error err;
	struct egress_policy *p = egress_policy_parse(str_of(lines), &err);

	egress_policy_free(p);
	return p != NULL;
}

static void lines(void **state)
{
	static const char *const GOOD[] = {"label x\n", "label w/c d\nprivate\nall\n",
	        "label x\nallow a.b\nallow *\ndeny *.c\ndeny d\n",
	        "label x\nprivate\nallow xn--a-0.b_c\n"};
	static const char *const BAD[] = {"", "\n", "label x", "label \n", "label x\n\n",
	        "label x\nlabel y\n", "all\nlabel x\n", "label x\nall\nall\n",
	        "label x\nall\nprivate\n", "label x\nprivate\nprivate\n",
	        "label x\ndeny a\nallow b\n", "label x\nallow \n", "label x\nallow A\n",
	        "label x\nallow a.\n", "label x\nallow a b\n", "label x\nallow a/b\n",
	        "label x\nallow a:80\n", "label x\nallow\n", "label x\nnothing\n",
	        "label x\r\nall\n", "label x\x01\n", "label \x80\n", "label x\nall \n",
	        "allow a\n"};

	for (size_t i = 0; i < sizeof(GOOD) / sizeof(GOOD[0]); i++)
		if (!reads(GOOD[i]))
			fail_msg("refused: %s", GOOD[i]);
	for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++)
		if (reads(BAD[i]))
			fail_msg("taken: %s", BAD[i]);
}

static void counts(void **state)
{
	_cleanup_(buf_free) struct buf b = BUF_INIT(1 << 20);

	buf_puts(&b, "label x\n");
	for (int i = 0; i < EGRESS_ALLOW_MAX; i++)
		buf_printf(&b, "allow a%d\n", i);
	assert_true(reads(buf_cstr(&b)));
	buf_puts(&b, "allow more\n");
	assert_false(reads(buf_cstr(&b)));
	buf_reset(&b);
	buf_puts(&b, "label x\n");
	for (int i = 0; i < EGRESS_DENY_MAX; i++)
		buf_printf(&b, "deny a%d\n", i);
	assert_true(reads(buf_cstr(&b)));
	buf_puts(&b, "deny more\n");
	assert_false(reads(buf_cstr(&b)));
	buf_reset(&b);
	buf_puts(&b, "label ");
	for (int i = 0; i < EGRESS_LABEL_MAX; i++)
		buf_putc(&b, 'l');
	buf_putc(&b, '\n');
	assert_true(reads(buf_cstr(&b)));
	b.data[b.len - 1] = 'l';
	buf_putc(&b, '\n');
	assert_false(reads(buf_cstr(&b)));
}

static void verdicts(void **state)
{
	struct error err;
	const char *rule;
	struct egress_policy *p = egress_policy_parse(
	        STR("label ws/c\nprivate\nallow *.a.b\nallow c.d\ndeny x.*\n"), &err);

	assert_non_null(p);
	assert_true(egress_policy_private(p));
	assert_false(egress_policy_all(p));
	assert_true(str_is(egress_policy_label(p), "ws/c"));
	assert_true(egress_policy_allows(p, STR("y.a.b"), &rule));
	assert_false(egress_policy_allows(p, STR("x.a.b"), &rule));
	assert_string_equal(rule, "x.*");
	assert_false(egress_policy_allows(p, STR("y.c.d"), &rule));
	assert_null(rule);
	egress_policy_free(p);
	p = egress_policy_nothing();
	assert_false(egress_policy_allows(p, STR("a"), &rule));
	egress_policy_free(p);
	p = egress_policy_parse(STR("label x\nall\ndeny b\n"), &err);
	assert_true(egress_policy_allows(p, STR("a"), &rule));
	assert_false(egress_policy_allows(p, STR("b"), &rule));
	egress_policy_free(p);
}

/* The definition, straight and slow. */
static bool slow(const char *p, const char *n)
{
	if (*p == '*')
		return slow(p + 1, n) || (*n && slow(p, n + 1));
	return *p == *n && (!*p || slow(p + 1, n + 1));
}

static void matching(void **state)
{
	static const struct {
		const char *pattern, *name;
		bool match;
	} CASES[] = {{"a.b", "a.b", true}, {"a.b", "x.a.b", false}, {"*", "a", true},
	        {"*.a.b", "a.b", false}, {"*.a.b", "x.a.b", true}, {"*.a.b", "x.y.a.b", true},
	        {"*a.b", "evila.b", true}, {"g.*.com", "g.evil.com", true},
	        {"g.*.com", "g.com", false}, {"a*a", "a", false}, {"a*a", "aa", true},
	        {"**", "a", true}, {"a**b", "ab", true}, {"a*b*c", "abbc", true},
	        {"*ab*ab*", "abab", true}, {"*ab*ab*", "abcb", false}, {"a*", "a", true}};
	struct unit_random r = {7};

	for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
		if (egress_policy_match(str_of(CASES[i].pattern), str_of(CASES[i].name)) !=
		        CASES[i].match)
			fail_msg("%s %s", CASES[i].pattern, CASES[i].name);
	for (int i = 0; i < 200000; i++) {
		char p[8], n[12];
		size_t pn = 1 + unit_below(&r, sizeof(p) - 1), nn = unit_below(&r, sizeof(n));

		for (size_t k = 0; k < pn; k++)
			p[k] = "ab.*"[unit_below(&r, 4)];
		for (size_t k = 0; k < nn; k++)
			n[k] = "ab."[unit_below(&r, 3)];
		p[pn] = n[nn] = '\0';
		if (egress_policy_match(str_of(p), str_of(n)) != slow(p, n))
			fail_msg("%s %s", p, n);
	}
}

static void names(void **state)
{
	static const char *const BAD[] = {"", ".", "a..b", ".a", "a..", "1.2.3.4", "a.1", "127",
	        "a b", "a*", "\xc3\xa4.de", "[::1]", "a:80",
	        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.b"};
	char out[EGRESS_NAME_MAX + 1];

	assert_true(egress_policy_name(STR("A.b-C_d.XN--e9"), out));
	assert_string_equal(out, "a.b-c_d.xn--e9");
	assert_true(egress_policy_name(STR("a.b."), out));
	assert_string_equal(out, "a.b");
	assert_true(egress_policy_name(STR("1.a"), out));
	for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++)
		if (egress_policy_name(str_of(BAD[i]), out))
			fail_msg("taken: %s", BAD[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(lines), cmocka_unit_test(counts),
	        cmocka_unit_test(verdicts), cmocka_unit_test(matching), cmocka_unit_test(names)};

	return UNIT_RUN(tests);
}
