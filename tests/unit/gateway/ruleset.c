/* Which rules hold for which key, and what becomes of a stored guardrail that cannot be used. */
#include "../unit.h"

#include "base/mem.h"
#include "gateway/ruleset.h"

#include <stdlib.h>
#include <string.h>

#define FILTER(pattern, action)                                                                    \
	"\"content_filters\":[{\"pattern\":\"" pattern "\",\"action\":\"" action "\"}]"

static const uint8_t key_a[32] = {0xaa}, key_b[32] = {0xbb};
static char hash_a[65] = "aa00000000000000000000000000000000000000000000000000000000000000";

static struct config_guard_rule fixed_rule = {.action = GUARD_FLAG};
static struct config_guardrail fixed[] = {
        {.name = (char *)(uintptr_t) "everybody's", .rules = &fixed_rule, .n_rules = 1},
        {.name = (char *)(uintptr_t) "of two", .workspace = (char *)(uintptr_t) "two"},
};
static const struct config config = {.guardrails = fixed, .n_guardrails = 2};

static int set_up(void **state)
{
	fixed_rule.pattern = (char *)(uintptr_t) "FIXED";
	return 0;
}

/* A set of guardrails "g0", "g1", … of these bodies; g1 is assigned to key a. */
static struct ruleset *set_after(
        const struct ruleset *before, const char *const *bodies, size_t n, const char *workspace)
{
	struct store_guardrails_all all = {.n_guardrails = n, .n_keys = 1};

	all.guardrails = mem_array(n + 1, sizeof(*all.guardrails));
	all.keys = mem_array(1, sizeof(*all.keys));
	str_copy(all.keys[0].guardrail, sizeof(all.keys[0].guardrail), STR("g1"));
	str_copy(all.keys[0].key_hash, sizeof(all.keys[0].key_hash), str_of(hash_a));
	for (size_t i = 0; i < n; i++) {
		str_format(all.guardrails[i].id, sizeof(all.guardrails[i].id), "g%zu", i);
		all.guardrails[i].body = mem_strdup(bodies[i]);
	}
	return ruleset_new(&config, workspace, &all, before);
}

static struct ruleset *set_of(const char *const *bodies, size_t n, const char *workspace)
{
	return set_after(NULL, bodies, n, workspace);
}

static enum guard_action action_for(
        struct ruleset *s, const uint8_t key[32], const char *text, const char *name)
{
	struct rules *r = ruleset_rules(s, key);
	struct guard_scan scan = {.only = r->rules};
	struct buf out = BUF_INIT(4096);
	enum guard_action action;
	bool changed;

	assert_null(r->refused);
	if (r->guard == NULL) {
		ruleset_rules_free(r);
		return GUARD_PASS;
	}
	assert_int_equal(guard_text(r->guard, str_of(text), GUARD_USER, &scan, &out, &changed), 0);
	action = scan.action;
	if (name != NULL)
		assert_string_equal(ruleset_name_of(s, scan.hits[0].rule_index), name);
	guard_scan_clear(&scan);
	buf_free(&out);
	ruleset_rules_free(r);
	return action;
}

static void each_key_has_its_own(void **state)
{
	static const char *const bodies[] = {
	        "{\"name\":\"default\",\"workspace_default\":true," FILTER("ALL", "block") "}",
	        "{\"name\":\"of a\"," FILTER("ALL|MINE", "redact") "}",
	        "{\"name\":\"of nobody\"," FILTER("ALL|MINE|ELSE", "block") "}"};
	struct ruleset *s = set_of(bodies, 3, "one");
	struct rules *r;

	assert_null(ruleset_error(s));
	assert_int_equal(action_for(s, key_a, "ALL", "default"), GUARD_BLOCK);
	assert_int_equal(action_for(s, key_b, "ALL", "default"), GUARD_BLOCK);
	assert_int_equal(action_for(s, key_a, "MINE", "of a"), GUARD_REDACT);
	assert_int_equal(action_for(s, key_b, "MINE", NULL), GUARD_PASS);
	assert_int_equal(action_for(s, key_a, "ELSE", NULL), GUARD_PASS);
	assert_int_equal(action_for(s, key_b, "FIXED", "everybody's"), GUARD_FLAG);
	r = ruleset_rules(s, key_a);
	ruleset_unref(s);
	assert_int_equal(r->n_members, 3); /* and it keeps the set */
	assert_string_equal(r->members[2]->name, "of a");
	ruleset_rules_free(r);
}

/* A change of assignments alone compiles nothing; any other does. */
static void what_is_compiled_is_shared(void **state)
{
	static const char *const bodies[] = {"{\"name\":\"x\"," FILTER("ALL", "block") "}",
	        "{\"name\":\"of a\"," FILTER("MINE", "redact") "}"};
	static const char *const other[] = {"{\"name\":\"x\"," FILTER("ALL", "flag") "}",
	        "{\"name\":\"of a\"," FILTER("MINE", "redact") "}"};
	struct ruleset *first = set_of(bodies, 2, "one"), *second, *third;
	struct rules *r[3];

	str_copy(hash_a, sizeof(hash_a),
	        STR("bb00000000000000000000000000000000000000000000000000000000000000"));
	second = set_after(first, bodies, 2, "one");
	third = set_after(first, other, 2, "one");
	str_copy(hash_a, sizeof(hash_a),
	        STR("aa00000000000000000000000000000000000000000000000000000000000000"));
	r[0] = ruleset_rules(first, key_a);
	r[1] = ruleset_rules(second, key_b);
	r[2] = ruleset_rules(third, key_b);
	assert_true(r[0]->guard == r[1]->guard && r[0]->guard != r[2]->guard);
	ruleset_unref(first);
	for (size_t i = 0; i < 3; i++)
		ruleset_rules_free(r[i]);
	assert_int_equal(action_for(second, key_b, "MINE", "of a"), GUARD_REDACT);
	assert_int_equal(action_for(second, key_a, "MINE", NULL), GUARD_PASS);
	ruleset_unref(second);
	ruleset_unref(third);
}

static void one_that_cannot_be_used_refuses(void **state)
{
	static const char *const bodies[] = {
	        "{\"name\":\"fine\",\"workspace_default\":true," FILTER("ALL", "block") "}",
	        "{\"name\":\"bad one\"," FILTER("(?=x)", "flag") "}"};
	static const char *const unread[] = {
	        "{\"name\":\"new\",\"tomorrow\":1,\"workspace_default\":true}", "{\"x\":1}",
	        "no JSON"};
	struct ruleset *s = set_of(bodies, 2, "one");
	struct rules *r = ruleset_rules(s, key_a);

	assert_non_null(r->refused);
	assert_non_null(strstr(r->refused->text, "'bad one'"));
	assert_int_equal(r->refused->code, ERR_UNAVAILABLE);
	ruleset_rules_free(r);
	assert_int_equal(action_for(s, key_b, "ALL", "fine"), GUARD_BLOCK);
	ruleset_unref(s);
	/* What cannot be read holds for everybody, if it may be the workspace's default. */
	for (size_t i = 0; i < 3; i++) {
		s = set_of(&unread[i], 1, "one");
		r = ruleset_rules(s, key_b);
		assert_int_equal(r->refused != NULL, i != 1);
		ruleset_rules_free(r);
		ruleset_unref(s);
	}
}

static void too_many_refuse_everybody(void **state)
{
	struct store_guardrails_all all = {.n_phrases = GUARD_PHRASES_MAX + 1};
	struct ruleset *s;
	struct rules *r;

	all.phrases = mem_array(all.n_phrases, sizeof(*all.phrases));
	for (size_t i = 0; i < all.n_phrases; i++)
		str_format(all.phrases[i].phrase, sizeof(all.phrases[i].phrase), "phrase %zu", i);
	s = ruleset_new(&config, "one", &all, NULL);
	assert_non_null(ruleset_error(s));
	r = ruleset_rules(s, key_a);
	assert_non_null(r->refused);
	ruleset_rules_free(r);
	ruleset_unref(s);
}

static void workspaces_have_their_own(void **state)
{
	struct ruleset *s = ruleset_new(&config, "two", NULL, NULL);
	struct rules *r = ruleset_rules(s, key_a);

	assert_int_equal(r->n_members, 2);
	ruleset_rules_free(r);
	ruleset_unref(s);
	s = ruleset_new(&config, NULL, NULL, NULL);
	r = ruleset_rules(s, key_a);
	assert_int_equal(r->n_members, 1);
	ruleset_rules_free(r);
	ruleset_unref(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(each_key_has_its_own),
	        cmocka_unit_test(what_is_compiled_is_shared),
	        cmocka_unit_test(one_that_cannot_be_used_refuses),
	        cmocka_unit_test(too_many_refuse_everybody),
	        cmocka_unit_test(workspaces_have_their_own),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
