#include "unit.h"

#include "network/pattern.h"

#include <string.h>

static void takes(const char *s)
{
	const char *wrong = pattern_fault(str_of(s));

	if (wrong)
		fail_msg("%s: %s", s, wrong);
}

static void refuses(const char *s, const char *why)
{
	const char *wrong = pattern_fault(str_of(s));

	if (!wrong || !strstr(wrong, why))
		fail_msg("%s: %s", s, wrong ? wrong : "taken");
}

static void names_and_patterns(void **state)
{
	char label[70], name[260];

	takes("a");
	takes("example.com");
	takes("*.example.com");
	takes("google.*.com");
	takes("*");
	takes("xn--bcher-kva.example");
	takes("_dmarc.a-b.c1");
	takes("1.example");
	refuses("", "empty");
	refuses("https://a.com", "scheme");
	refuses("a.com/x", "path");
	refuses("a.com:80", "port");
	refuses("::1", "port");
	refuses("u@a.com", "user");
	refuses("A.com", "lower case");
	refuses("a b.com", "may hold");
	refuses("b\xc3\xbc.com", "may hold");
	refuses("a\n.com", "may hold");
	refuses(".a.com", "empty part");
	refuses("a.com.", "empty part");
	refuses("a..com", "empty part");
	refuses("10.0.0.1", "address");
	refuses("127.1", "address");
	refuses("0x7f.0x1", "address");
	refuses("2130706433", "address");
	memset(label, 'a', sizeof(label));
	label[63] = '\0';
	takes(label);
	label[63] = 'a';
	label[64] = '\0';
	refuses(label, "63");
	memset(name, 'a', sizeof(name));
	for (size_t i = 10; i < sizeof(name); i += 10)
		name[i] = '.';
	name[253] = '\0';
	takes(name);
	name[253] = 'a';
	name[254] = '\0';
	refuses(name, "longer");
}

static bool covers(const char *outer, const char *inner)
{
	return pattern_covers(str_of(outer), str_of(inner));
}

static void covering(void **state)
{
	assert_true(covers("*", "*"));
	assert_true(covers("*", "anything.at.all"));
	assert_true(covers("a.com", "a.com"));
	assert_true(covers("*.a.com", "b.a.com"));
	assert_true(covers("*.a.com", "*.a.com"));
	assert_true(covers("*.a.com", "*.b.a.com"));
	assert_true(covers("*.a.com", "x*y.a.com"));
	assert_true(covers("a*c", "a*b*c"));
	assert_true(covers("**", "*"));
	assert_true(covers("*a*", "*ba*"));
	assert_false(covers("a.com", "*"));
	assert_false(covers("a.com", "b.a.com"));
	assert_false(covers("*.a.com", "a.com"));
	assert_false(covers("*.a.com", "*a.com"));
	assert_false(covers("*.a.com", "*"));
	assert_false(covers("a*b*c", "a*c"));
	assert_false(covers("*.a.com", "*.a.com.evil.com"));
	assert_false(covers("", "*"));
	assert_true(covers("", ""));
}

/* A second opinion: plain matching, by trying everything. */
static bool matches(const char *p, const char *s)
{
	for (; *p; p++, s++) {
		if (*p == '*') {
			for (;; s++) {
				if (matches(p + 1, s))
					return true;
				if (!*s)
					return false;
			}
		}
		if (*p != *s)
			return false;
	}
	return !*s;
}

static void text_of(struct unit_random *r, const char *set, size_t most, char *out)
{
	size_t n = unit_below(r, most + 1), kinds = strlen(set);

	for (size_t i = 0; i < n; i++)
		out[i] = set[unit_below(r, kinds)];
	out[n] = '\0';
}

/* What is covered admits no name that the outer one does not. */
static void covering_is_sound(void **state)
{
	struct unit_random r = {0x9e3779b97f4a7c15ULL};
	int covered = 0, matched = 0;

	for (int i = 0; i < 400000; i++) {
		char outer[8], inner[8], name[10];

		text_of(&r, "ab**", 6, outer);
		text_of(&r, "ab*", 6, inner);
		text_of(&r, "ab", 8, name);
		if (!strchr(inner, '*'))
			assert_int_equal(covers(outer, inner), matches(outer, inner));
		if (!covers(outer, inner))
			continue;
		covered++;
		if (!matches(inner, name))
			continue;
		matched++;
		assert_true(matches(outer, name));
	}
	assert_true(covered > 10000 && matched > 1000);
}

/* Many stars over a long name end in time that is a product, not a power. */
static void covering_is_fast(void **state)
{
	char outer[253], inner[254];

	for (size_t i = 0; i < sizeof(outer); i++)
		outer[i] = i % 2 ? 'a' : '*';
	memset(inner, 'a', sizeof(inner));
	inner[253] = 'b';
	for (int i = 0; i < 1000; i++)
		pattern_covers((struct str){outer, 252}, (struct str){inner, 254});
}

static void lookalikes(void **state)
{
	assert_null(pattern_lookalikes(STR("*")));
	assert_null(pattern_lookalikes(STR("a.com")));
	assert_null(pattern_lookalikes(STR("*.a.com")));
	assert_non_null(pattern_lookalikes(STR("*a.com")));
	assert_non_null(pattern_lookalikes(STR("a.*.com")));
	assert_non_null(pattern_lookalikes(STR("a.*")));
	assert_non_null(pattern_lookalikes(STR("*.a.*.com")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(names_and_patterns),
	        cmocka_unit_test(covering),
	        cmocka_unit_test(covering_is_sound),
	        cmocka_unit_test(covering_is_fast),
	        cmocka_unit_test(lookalikes),
	};

	return UNIT_RUN(tests);
}
