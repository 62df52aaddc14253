/*
 * Each tests/cases/responses-build/NAME.json is a conversation (load.c); NAME.body is the exact
 * request, or "error: …" where none can be made.
 */
#include "cases.h"

#define DIR_BUILD CASES_DIR "/responses-build"

static void test_exact_bytes(void **state)
{
	cases_requests(&provider_openai_responses, DIR_BUILD, "/responses");
}

static void test_headers(void **state)
{
	struct provider_request req = {0};
	struct loaded l;

	load_text(&l,
	        "{\"provider\":\"responses\",\"api_key\":\"sk-1\","
	        "\"items\":[{\"message\":\"user\",\"parts\":\"x\"}]}",
	        9);
	assert_int_equal(provider_openai_responses.build(&l.pc, &req, NULL), 0);
	assert_string_equal(req.headers[0], "Content-Type: application/json");
	assert_string_equal(req.headers[1], "Accept: text/event-stream");
	assert_string_equal(req.headers[2], "Authorization: Bearer sk-1");
	assert_null(req.headers[3]);
	provider_request_free(&req);
	load_free(&l);
}

static void test_later_requests_begin_like_earlier_ones(void **state)
{
	cases_prefixes(
	        &provider_openai_responses, DIR_BUILD "/long-conversation.json", "input", NULL);
}

/* What is not sealed for this provider does not open; nor does another client's plain text pass for
 * state. */
static void test_depth(void **state)
{
	struct provider_request req = {0};
	struct buf text = BUF_INIT(65536);
	struct loaded l;

	/* As deep as JSON may be: writing it inside the request must not be deeper than a writer
	 * can. */
	buf_puts(&text, "{\"provider\":\"responses\",\"dialect\":\"responses\",\"items\":["
	                "{\"message\":\"user\",\"parts\":\"x\"},{\"other\":true,\"raw\":");
	for (int i = 0; i < 120; i++)
		buf_puts(&text, "[");
	for (int i = 0; i < 120; i++)
		buf_puts(&text, "]");
	buf_puts(&text, "}]}");
	load_text(&l, buf_cstr(&text), SIZE_MAX);
	assert_int_equal(provider_openai_responses.build(&l.pc, &req, NULL), 0);
	assert_non_null(strstr(req.body, "[[[[[["));
	provider_request_free(&req);
	load_free(&l);
	buf_free(&text);
}

static void test_long_history(void **state)
{
	struct loaded l;
	struct provider_request req = {0};

	load_long(&l,
	        "{\"provider\":\"responses\",\"items\":[{\"message\":\"user\",\"parts\":\"x\"}]}",
	        (struct str){NULL, 0});
	assert_int_equal(provider_openai_responses.build(&l.pc, &req, NULL), 0);
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
	        cmocka_unit_test(test_depth),
	        cmocka_unit_test(test_long_history),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
