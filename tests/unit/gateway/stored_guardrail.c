/* A guardrail as JSON: read over what there is, written again, and what is refused by its place. */
#include "../unit.h"

#include "gateway/stored_guardrail.h"

#include <stdlib.h>
#include <string.h>

static int read_over(struct stored_guardrail *s, const char *text, struct error *err)
{
	struct json_doc *doc = NULL;
	int r;

	assert_int_equal(json_parse(str_of(text), (size_t)1 << 24, &doc, err), 0);
	r = stored_guardrail_read(s, json_root(doc), err);
	json_doc_free(doc);
	return r;
}

static char *written(const struct stored_guardrail *s)
{
	struct buf out = BUF_INIT((size_t)1 << 20);
	struct json_writer w;

	jw_init(&w, &out);
	jw_object(&w);
	stored_guardrail_write(s, &w);
	jw_end(&w);
	assert_int_equal(jw_done(&w), 0);
	return buf_steal(&out, NULL);
}

#define REST(list)                                                                                 \
	"\"allowed_models\":" list ",\"ignored_models\":null,\"allowed_providers\":null,"          \
	"\"ignored_providers\":null}"

static void what_is_written_is_read(void **state)
{
	static const char text[] =
	        "{\"name\":\"n\\u00e9\",\"description\":\"d\",\"workspace_default\":true,"
	        "\"content_filters\":[{\"pattern\":\"a+\",\"action\":\"block\",\"label\":\"l\","
	        "\"scan_tool_output\":true,\"placeholder\":\"[P]\"}],"
	        "\"content_filter_builtins\":[{\"slug\":\"email\",\"action\":\"redact\","
	        "\"scan_scope\":\"user_only\"}],\"allowed_models\":[\"m\",\"p/m\"],"
	        "\"limit_usd\":null,\"enforce_zdr\":false,\"allowed_data_regions\":[]}";
	static const char form[] =
	        "{\"name\":\"n\xc3\xa9\",\"description\":\"d\",\"workspace_default\":true,"
	        "\"content_filter_builtins\":[{\"slug\":\"email\",\"action\":\"redact\","
	        "\"scan_scope\":\"user_only\",\"scan_tool_output\":false,\"placeholder\":null}],"
	        "\"content_filters\":[{\"pattern\":\"a+\",\"action\":\"block\",\"label\":\"l\","
	        "\"scan_scope\":\"all_messages\",\"scan_tool_output\":true,\"placeholder\":\"[P]\"}"
	        "]," REST("[\"m\",\"p/m\"]");
	struct stored_guardrail s = {.description = NULL}, t = {.description = NULL};
	struct error err;
	char *first, *second;

	assert_int_equal(read_over(&s, text, &err), 0);
	first = written(&s);
	assert_string_equal(first, form);
	assert_int_equal(read_over(&t, first, &err), 0);
	second = written(&t);
	assert_string_equal(first, second);
	free(first);
	free(second);
	stored_guardrail_clear(&s);
	stored_guardrail_clear(&t);
}

static void members_that_are_not_named_stay(void **state)
{
	struct stored_guardrail s = {.description = NULL};
	struct error err;
	char *out;

	assert_int_equal(
	        read_over(&s,
	                "{\"name\":\"n\",\"description\":\"d\",\"allowed_models\":[\"m\"],"
	                "\"content_filters\":[{\"pattern\":\"a\",\"action\":\"flag\"}],"
	                "\"content_filter_builtins\":[{\"slug\":\"ssn\",\"action\":\"flag\"}]}",
	                &err),
	        0);
	assert_int_equal(read_over(&s, "{\"content_filters\":null,\"description\":null}", &err), 0);
	out = written(&s);
	assert_string_equal(out,
	        "{\"name\":\"n\",\"description\":null,\"workspace_default\":false,"
	        "\"content_filter_builtins\":[{\"slug\":\"ssn\",\"action\":\"flag\","
	        "\"scan_scope\":\"all_messages\",\"scan_tool_output\":false,\"placeholder\":null}],"
	        "\"content_filters\":[]," REST("[\"m\"]"));
	free(out);
	stored_guardrail_clear(&s);
}

static void faults_are_named(void **state)
{
	static const char *const cases[][2] = {
	        {"{}", "name"},
	        {"{\"name\":null}", "name"},
	        {"{\"name\":\"\"}", "name"},
	        {"{\"name\":\"a\\u0000b\"}", "name"},
	        {"{\"name\":\"n\",\"else\":1}", "else"},
	        {"{\"name\":\"n\",\"limit_usd\":1}", "limit_usd"},
	        {"{\"name\":\"n\",\"enable_paid_model_training\":true}",
	                "enable_paid_model_training"},
	        {"{\"name\":\"n\",\"workspace_default\":1}", "workspace_default"},
	        {"{\"name\":\"n\",\"ignored_models\":[\"m\",7]}", "ignored_models[1]"},
	        {"{\"name\":\"n\",\"content_filters\":[{\"action\":\"flag\"}]}",
	                "content_filters[0].pattern"},
	        {"{\"name\":\"n\",\"content_filters\":[{\"pattern\":\"a\",\"action\":\"flag\"},"
	         "{\"pattern\":\"a\"}]}",
	                "content_filters[1].action"},
	        {"{\"name\":\"n\",\"content_filters\":[{\"pattern\":\"a\",\"action\":\"kill\"}]}",
	                "content_filters[0].action"},
	        {"{\"name\":\"n\",\"content_filters\":[7]}", "content_filters[0]"},
	        {"{\"name\":\"n\",\"content_filter_builtins\":[{\"slug\":\"x\",\"action\":\"flag\"}"
	         "]"
	         "}",
	                "content_filter_builtins[0].slug"},
	        {"{\"name\":\"n\",\"content_filter_builtins\":[{\"slug\":\"email\",\"action\":"
	         "\"flag\",\"label\":\"l\"}]}",
	                "content_filter_builtins[0].label"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct stored_guardrail s = {.description = NULL};
		struct error err = {0};

		assert_true(read_over(&s, cases[i][0], &err) < 0);
		assert_string_equal(err.param, cases[i][1]);
		assert_true(err.text[0] != 0);
		stored_guardrail_clear(&s);
	}
}

static void patterns_are_compiled(void **state)
{
	static const char form[] =
	        "{\"name\":\"n\",\"content_filter_builtins\":[{\"slug\":\"ssn\","
	        "\"action\":\"flag\"}],\"content_filters\":[{\"pattern\":\"a\","
	        "\"action\":\"flag\"},{\"pattern\":\"%s\",\"action\":\"flag\"}]}";
	static const struct {
		const char *pattern;
		bool good;
	} cases[] = {{"b", true}, {"(?i)(x+x+)+y", true}, {"(?=b)", false}, {"(a)\\\\1", false},
	        {"(?<!a)b", false}, {"(", false}, {"a{1,1000}{1,1000}", false}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct stored_guardrail s = {.description = NULL};
		struct str pattern = {NULL, 0};
		struct error err = {0};
		char text[512];
		int r;

		str_format(text, sizeof(text), form, cases[i].pattern);
		assert_int_equal(read_over(&s, text, &err), 0);
		r = stored_guardrail_check(&s, &pattern, &err);
		assert_int_equal(r, cases[i].good ? 0 : -ERR_INVALID);
		if (!cases[i].good) {
			assert_string_equal(err.param, "content_filters[1].pattern");
			assert_string_equal(err.type, "invalid_regex_pattern");
			assert_true(pattern.n > 0);
		}
		stored_guardrail_clear(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(what_is_written_is_read),
	        cmocka_unit_test(members_that_are_not_named_stay),
	        cmocka_unit_test(faults_are_named),
	        cmocka_unit_test(patterns_are_compiled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
