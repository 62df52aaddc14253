/*
 * Each tests/cases/chat-build/NAME.json is a conversation (load.c); NAME.body is the exact request,
 * or "error: …" where none can be made.
 */
#include "cases.h"

#define DIR_BUILD CASES_DIR "/chat-build"

static void test_exact_bytes(void **state)
{
	cases_requests(&provider_openai_chat, DIR_BUILD, "/chat/completions");
}

static void test_headers(void **state)
{
	struct provider_request req = {0};
	struct loaded l;

	load_text(
	        &l, "{\"api_key\":\"sk-1\",\"items\":[{\"message\":\"user\",\"parts\":\"x\"}]}", 9);
	assert_int_equal(provider_openai_chat.build(&l.pc, &req, NULL), 0);
	assert_string_equal(req.headers[0], "Content-Type: application/json");
	assert_string_equal(req.headers[1], "Accept: text/event-stream");
	assert_string_equal(req.headers[2], "Authorization: Bearer sk-1");
	assert_null(req.headers[3]);
	provider_request_free(&req);
	l.config.api_key = NULL;
	assert_int_equal(provider_openai_chat.build(&l.pc, &req, NULL), 0);
	assert_null(req.headers[2]);
	provider_request_free(&req);
	provider_request_free(&req); /* takes an empty one */
	load_free(&l);
}

static void test_later_requests_begin_like_earlier_ones(void **state)
{
	cases_prefixes(
	        &provider_openai_chat, DIR_BUILD "/long-conversation.json", "messages", NULL);
}

/* Where the client puts results and in which order makes no difference. */
static void test_order_of_results(void **state)
{
	static const char *const orders[] = {"abAB", "abBA", "aAbB"};
	char *first = NULL;

	for (size_t i = 0; i < 3; i++) {
		struct buf text = BUF_INIT(4096);
		struct provider_request req = {0};
		struct loaded l;

		buf_puts(&text, "{\"items\":[{\"message\":\"user\",\"parts\":\"x\"}");
		for (const char *o = orders[i]; *o; o++)
			if (*o >= 'a')
				buf_printf(&text,
				        ",{\"call\":{\"id\":\"s0_%c\",\"upstream_id\":\"%c\","
				        "\"name\":\"f\","
				        "\"arguments\":\"{}\"},\"reply\":0}",
				        *o, *o);
			else
				buf_printf(&text,
				        ",{\"result\":{\"id\":\"s0_%c\",\"parts\":\"%c\"}}",
				        *o + 32, *o);
		buf_puts(&text, "]}");
		load_text(&l, buf_cstr(&text), SIZE_MAX);
		assert_int_equal(provider_openai_chat.build(&l.pc, &req, NULL), 0);
		if (first)
			assert_string_equal(first, req.body);
		else
			first = strdup(req.body);
		provider_request_free(&req);
		load_free(&l);
		buf_free(&text);
	}
	free(first);
}

static void test_long_history(void **state)
{
	struct loaded l;
	struct provider_request req = {0};

	load_long(
	        &l, "{\"items\":[{\"message\":\"user\",\"parts\":\"x\"}]}", (struct str){NULL, 0});
	assert_int_equal(provider_openai_chat.build(&l.pc, &req, NULL), 0);
	assert_true(req.body_len > 60000 * 100);
	provider_request_free(&req);
	load_free(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_exact_bytes),
	        cmocka_unit_test(test_headers),
	        cmocka_unit_test(test_later_requests_begin_like_earlier_ones),
	        cmocka_unit_test(test_order_of_results),
	        cmocka_unit_test(test_long_history),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
