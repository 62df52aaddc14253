/* Providers' own lists of models: what is asked, and what is read. */
#include "util.h"

#include "provider/models.h"

static struct config_provider of(enum dialect d, const char *key)
{
	return (struct config_provider){.dialect = d, .api_key = (char *)(uintptr_t)key};
}

static void asks(enum dialect d, const char *key, const char *after, const char *want)
{
	struct config_provider p = of(d, key);
	struct provider_request r;
	struct buf got = BUF_INIT(4096);

	assert_true(provider_models_request(&p, str_of(after), &r));
	buf_puts(&got, r.path);
	for (char **h = r.headers; *h; h++)
		buf_printf(&got, " | %s", *h);
	assert_string_equal(buf_cstr(&got), want);
	assert_null(r.body);
	provider_request_free(&r);
	buf_free(&got);
}

static void test_requests(void **state)
{
	struct config_provider script = of(DIALECT_SCRIPT, NULL);
	struct config_provider claude = of(DIALECT_ANTHROPIC, "k");
	struct provider_request r;
	char long_page[2000];

	asks(DIALECT_OPENAI_CHAT, "k", NULL,
	        "/models | Accept: application/json | Authorization: Bearer k");
	asks(DIALECT_OPENAI_RESPONSES, NULL, "ignored", "/models | Accept: application/json");
	asks(DIALECT_ANTHROPIC, "k", NULL,
	        "/models?limit=1000 | Accept: application/json | anthropic-version: 2023-06-01 | "
	        "x-api-key: k");
	asks(DIALECT_ANTHROPIC, NULL, "a/b c&d",
	        "/models?limit=1000&after_id=a%2Fb%20c%26d | Accept: application/json | "
	        "anthropic-version: 2023-06-01");
	asks(DIALECT_GEMINI, "k", "p\r\n",
	        "/models?pageSize=1000&pageToken=p%0D%0A | Accept: application/json | "
	        "x-goog-api-key: k");
	assert_false(provider_models_request(&script, (struct str){NULL, 0}, &r));
	memset(long_page, 'x', sizeof(long_page));
	assert_false(
	        provider_models_request(&claude, (struct str){long_page, sizeof(long_page)}, &r));
}

static void show(void *ctx, const struct provider_model *m)
{
	buf_printf(ctx, "%.*s(%.*s %lld %llu %llu) ", (int)m->id.n, m->id.p, (int)m->name.n,
	        m->name.n ? m->name.p : "", (long long)m->created_s,
	        (unsigned long long)m->input_tokens, (unsigned long long)m->output_tokens);
}

static void reads(enum dialect d, const char *body, const char *want, const char *want_after)
{
	struct buf got = BUF_INIT(65536), after = BUF_INIT(4096);
	struct error err;
	int r = provider_models_read(d, str_of(body), show, &got, &after, &err);

	assert_string_equal(r < 0 ? err.text : buf_cstr(&got), want);
	assert_string_equal(buf_cstr(&after), want_after);
	buf_free(&got);
	buf_free(&after);
}

static void test_answers(void **state)
{
	reads(DIALECT_OPENAI_CHAT,
	        "{\"object\":\"list\",\"data\":[{\"id\":\"a\",\"created\":5},"
	        "{\"id\":\"b/c:d\",\"name\":\"B\",\"context_length\":10,"
	        "\"top_provider\":{\"max_completion_tokens\":3}},"
	        "{\"id\":\"v\",\"max_model_len\":7,\"created\":-1}],\"has_more\":true,"
	        "\"last_id\":\"v\"}",
	        "a( 5 0 0) b/c:d(B 0 10 3) v( 0 7 0) ", "");
	reads(DIALECT_ANTHROPIC,
	        "{\"data\":[{\"id\":\"c\",\"display_name\":\"C\","
	        "\"created_at\":\"2025-02-19T00:00:00Z\",\"max_input_tokens\":9,"
	        "\"max_tokens\":8}],\"has_more\":true,\"last_id\":\"c\"}",
	        "c(C 1739923200 9 8) ", "c");
	reads(DIALECT_ANTHROPIC,
	        "{\"data\":[{\"id\":\"c\",\"created_at\":\"yesterday\"}],\"has_more\":false,"
	        "\"last_id\":\"c\"}",
	        "c( 0 0 0) ", "");
	reads(DIALECT_GEMINI,
	        "{\"models\":[{\"name\":\"models/g\",\"displayName\":\"G\","
	        "\"inputTokenLimit\":2,\"outputTokenLimit\":1},{\"name\":\"bare\"}],"
	        "\"nextPageToken\":\"p\"}",
	        "g(G 0 2 1) bare( 0 0 0) ", "p");
}

static void test_odd_names_are_left_out(void **state)
{
	char body[2000], *p = body;

	reads(DIALECT_OPENAI_CHAT,
	        "{\"data\":[null,1,[],{},{\"id\":null},{\"id\":\"\"},{\"id\":\"a b\"},"
	        "{\"id\":\"\\u0000\"},{\"id\":\"\\n\"},{\"id\":{\"id\":\"x\"}},{\"id\":\"good\"}]}",
	        "good( 0 0 0) ", "");
	p += snprintf(p, sizeof(body), "{\"data\":[{\"id\":\"");
	memset(p, 'x', 257);
	memcpy(p + 257, "\"}]}", 5);
	reads(DIALECT_OPENAI_CHAT, body, "", "");
}

static void test_what_is_no_list(void **state)
{
	reads(DIALECT_OPENAI_CHAT, "[]", "what should be a list of models is none", "");
	reads(DIALECT_OPENAI_CHAT, "{\"data\":{}}", "what should be a list of models is none", "");
	reads(DIALECT_GEMINI, "{\"data\":[]}", "what should be a list of models is none", "");
	reads(DIALECT_ANTHROPIC, "{\"data\":[],\"has_more\":true}", "", "");
	reads(DIALECT_OPENAI_CHAT, "",
	        "the list of models: a value was expected, but the text ends at byte 0 (line 1, "
	        "column 1)",
	        "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_requests),
	        cmocka_unit_test(test_answers),
	        cmocka_unit_test(test_odd_names_are_left_out),
	        cmocka_unit_test(test_what_is_no_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
