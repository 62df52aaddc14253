/* Bodies that point at stored responses, and the bodies that are made of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "api/responses_state.h"

#include <stdlib.h>

/* Scans, puts history and items in, and gives the new body; *own is the request's own part. */
static char *expand(const char *body, const struct str *history, size_t n, const struct str *items,
        char own[256])
{
	struct str text = str_of(body);
	struct responses_scan s;
	struct responses_span span;
	struct buf out = BUF_INIT(4096);

	assert_true(responses_state_scan(text, "input", &s));
	assert_int_equal(responses_state_expand(text, &s, history, n, items, &out, &span), 0);
	responses_scan_clear(&s);
	assert_true(str_copy(own, 256, (struct str){out.data + span.at, span.len}));
	return buf_steal(&out, NULL);
}

static void expands(void **state)
{
	static const struct {
		const char *body, *history[2], *items[2], *want, *own;
	} rows[] = {
	        {"{\"input\":\"b\"}", {"\"a\""}, {NULL},
	                "{\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\","
	                "\"content\":\"b\"}]}",
	                "{\"role\":\"user\",\"content\":\"b\"}"},
	        {"{\"input\":[{\"x\":1} , {\"y\":[2]}],\"z\":0}", {"[ {\"a\":1} ]", "[]"}, {NULL},
	                "{\"input\":[{\"a\":1} ,{\"x\":1},{\"y\":[2]}],\"z\":0}",
	                "{\"x\":1},{\"y\":[2]}"},
	        {"{\"input\":[{\"id\":\"q\"},{\"type\":\"item_reference\",\"id\":\"r\"},{\"role\":"
	         "\"u\"}]}",
	                {NULL}, {"{\"Q\":1}", "{\"R\":1}"},
	                "{\"input\":[{\"Q\":1},{\"R\":1},{\"role\":\"u\"}]}",
	                "{\"Q\":1},{\"R\":1},{\"role\":\"u\"}"},
	        {"{\"m\":1}", {"[{\"a\":1}]"}, {NULL}, "{\"input\":[{\"a\":1}],\"m\":1}", ""},
	        {"{\"input\":[],\"m\":1}", {"[{\"a\":1}]"}, {NULL},
	                "{\"input\":[{\"a\":1}],\"m\":1}", ""},
	        {" {\"input\":null}", {"[]", "[{\"a\":1}]"}, {NULL}, " {\"input\":[{\"a\":1}]}",
	                ""},
	        {"{\"input\":{\"a\":{}},\"b\":[1]}", {"[1]"}, {NULL},
	                "{\"input\":[1,{\"a\":{}}],\"b\":[1]}", "{\"a\":{}}"},
	        {"{\"input\":7}", {"[1]"}, {NULL}, "{\"input\":[1,7]}", "7"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct str history[2], items[2];
		size_t n = 0;
		char own[256], *got;

		for (size_t j = 0; j < 2; j++) {
			if (rows[i].history[j])
				history[n++] = str_of(rows[i].history[j]);
			items[j] = str_of(rows[i].items[j]);
		}
		got = expand(rows[i].body, history, n, items, own);
		assert_string_equal(got, rows[i].want);
		assert_string_equal(own, rows[i].own);
		free(got);
	}
}

static void needs(void **state)
{
	static const struct {
		const char *body;
		bool is_object, needs;
	} rows[] = {
	        {"{\"input\":\"x\"}", true, false},
	        {"{\"previous_response_id\":null,\"input\":[{\"role\":\"user\",\"id\":\"m\"}]}",
	                true, false},
	        {"{\"previous\\u005fresponse_id\":\"resp_1\"}", true, true},
	        {"{\"a\":{\"previous_response_id\":\"resp_1\"}}", true, false},
	        {"{\"input\":[{\"type\":\"item\\u005freference\",\"id\":\"m\"}]}", true, true},
	        {"{\"input\":[{\"type\":null,\"id\":\"m\"}]}", true, true},
	        {"{\"input\":[{\"id\":\"m\"}]}", true, true},
	        {"{\"input\":[{\"id\":7}]}", true, false},
	        {"{\"input\":[{\"type\":7,\"id\":\"m\"}]}", true, false},
	        {"{\"input\":[[{\"id\":\"m\"}]]}", true, false},
	        {"{\"other\":[{\"id\":\"m\"}]}", true, false},
	        {"[{\"id\":\"m\"}]", false, false},
	        {"\"x\"", false, false},
	        {"{\"input\":[{\"id\":\"m\"}]", false, false},
	        {"", false, false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct responses_scan s;

		assert_int_equal(
		        responses_state_scan(str_of(rows[i].body), "input", &s), rows[i].is_object);
		assert_int_equal(responses_state_needs(&s), rows[i].needs);
		responses_scan_clear(&s);
	}
}

static void lists(void **state)
{
	static const struct {
		const char *item, *want;
	} rows[] = {
	        {"{\"role\":\"user\",\"content\":\"h\\n\"}",
	                "{\"id\":\"x\",\"type\":\"message\",\"status\":\"completed\",\"role\":"
	                "\"user\","
	                "\"content\":[{\"type\":\"input_text\",\"text\":\"h\\n\"}]}"},
	        {"{\"id\":null,\"type\":null,\"role\":\"assistant\",\"content\":\"h\"}",
	                "{\"id\":\"x\",\"type\":\"message\",\"status\":\"completed\",\"role\":"
	                "\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"h\","
	                "\"annotations\":[]}]}"},
	        {"{\"type\":\"reasoning\",\"id\":\"r\",\"summary\":[]}",
	                "{\"type\":\"reasoning\",\"id\":\"r\",\"summary\":[]}"},
	        {"{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"o\"}",
	                "{\"id\":\"x\",\"status\":\"completed\",\"type\":\"function_call_output\","
	                "\"call_id\":\"c\",\"output\":\"o\"}"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		_cleanup_json_ struct json_doc *doc = NULL;
		struct buf out = BUF_INIT(4096);
		struct json_writer w;

		assert_int_equal(json_parse(str_of(rows[i].item), 65536, &doc, NULL), 0);
		jw_init(&w, &out);
		responses_state_write_item(&w, json_root(doc), "x");
		assert_string_equal(buf_cstr(&out), rows[i].want);
		buf_free(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(expands),
	        cmocka_unit_test(needs),
	        cmocka_unit_test(lists),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
