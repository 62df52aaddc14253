/*
 * The Gemini dialect as an upstream: tests/cases/gemini holds answers, tests/cases/gemini-build
 * requests (cases.h).
 */
#include "cases.h"
#include "provider/gemini.h"

#define DIR_ANSWERS CASES_DIR "/gemini"
#define DIR_BUILD   CASES_DIR "/gemini-build"

static const char NO_REQUEST[] = "{\"dialect\":\"responses\",\"items\":[]}";

static void test_answers(void **state)
{
	cases_answers(&provider_gemini, DIR_ANSWERS, ".sse", NO_REQUEST);
	cases_answers(&provider_gemini, DIR_ANSWERS, ".json", NO_REQUEST);
}

static void test_emit_can_stop(void **state)
{
	cases_emit_can_stop(
	        &provider_gemini, DIR_ANSWERS "/thoughts-call-thoughts.sse", NO_REQUEST);
}

static void test_exact_bytes(void **state)
{
	cases_requests(&provider_gemini, DIR_BUILD, "/models/m-1:streamGenerateContent?alt=sse");
}

static void test_later_requests_begin_like_earlier_ones(void **state)
{
	cases_prefixes(&provider_gemini, DIR_BUILD "/long-conversation.json", "contents", NULL);
}

/* ---- names of models ---- */

static void built(struct loaded *l, const char *model, const char *settings)
{
	char text[1024];

	snprintf(text, sizeof(text),
	        "{\"provider\":\"gemini\",\"dialect\":\"responses\",\"api_key\":\"AIza-1\","
	        "\"model\":\"%s\",\"settings\":%s,"
	        "\"items\":[{\"message\":\"user\",\"parts\":\"x\"},{\"call\":{\"id\":\"s0_a\","
	        "\"upstream_id\":\"a\",\"name\":\"f\",\"arguments\":\"{}\"},\"reply\":0},"
	        "{\"result\":{\"id\":\"s0_a\",\"parts\":[{\"image\":\"data:image/"
	        "png;base64,AA\"}]}}]}",
	        model, settings);
	load_text(l, text, SIZE_MAX);
}

static void path_is(const char *model, const char *path)
{
	struct provider_request req = {0};
	struct error err = {0};
	struct loaded l;
	int r;

	built(&l, model, "{}");
	r = gemini_build(&l.pc, &req, &err);
	if (path) {
		assert_int_equal(r, 0);
		assert_string_equal(req.path, path);
		assert_string_equal(req.headers[2], "x-goog-api-key: AIza-1");
		assert_null(req.headers[3]);
	} else {
		assert_int_equal(r, -ERR_NOT_FOUND);
		assert_string_equal(err.type, "model_not_found");
		assert_null(req.body);
	}
	provider_request_free(&req);
	load_free(&l);
}

/* What a client calls a model leads nowhere else with the server's key. */
static void test_paths(void **state)
{
	path_is("gemini-2.5-pro", "/models/gemini-2.5-pro:streamGenerateContent?alt=sse");
	path_is("models/gemini-2.5-pro", "/models/gemini-2.5-pro:streamGenerateContent?alt=sse");
	path_is("tunedModels/mine", "/tunedModels/mine:streamGenerateContent?alt=sse");
	path_is("vendor/a b:c?d#e%2f\\u00e9",
	        "/models/vendor/a%20b%3Ac%3Fd%23e%252f%C3%A9:streamGenerateContent?alt=sse");
	path_is("../files", NULL);
	path_is("a/../../files", NULL);
	path_is("a/./b", NULL);
	path_is("a//b", NULL);
	path_is("..", NULL);
	path_is("...", "/models/...:streamGenerateContent?alt=sse");
}

static void config_is(const char *model, const char *settings, const char *config)
{
	struct provider_request req = {0};
	struct json_doc *doc = NULL;
	struct error err = {0};
	struct loaded l;
	char got[512];

	built(&l, model, settings);
	assert_int_equal(gemini_build(&l.pc, &req, &err), 0);
	assert_int_equal(
	        json_parse((struct str){req.body, req.body_len}, (size_t)1 << 20, &doc, NULL), 0);
	str_copy(got, sizeof(got), json_raw(json_get(json_root(doc), "generationConfig")));
	assert_string_equal(got, config);
	json_doc_free(doc);
	provider_request_free(&req);
	load_free(&l);
}

/* Up to 2.5 a budget, then a level; what one client says the other way round is translated. */
static void test_thinking(void **state)
{
	static const char *const older = "gemini-2.5-flash", *const newer = "gemini-3-flash";

	config_is(older, "{}", "");
	config_is(older, "{\"reasoning_effort\":\"none\"}",
	        "{\"thinkingConfig\":{\"thinkingBudget\":0}}");
	config_is("gemini-2.5-pro", "{\"reasoning_effort\":\"none\"}",
	        "{\"thinkingConfig\":{\"thinkingBudget\":128}}");
	config_is(older, "{\"reasoning_effort\":\"medium\"}",
	        "{\"thinkingConfig\":{\"thinkingBudget\":8192}}");
	config_is(older, "{\"thinking_budget\":\"12345678901234567890\"}",
	        "{\"thinkingConfig\":{\"thinkingBudget\":12345678901234567890}}");
	config_is(older, "{\"thinking_budget\":\"-1\",\"include_thoughts\":true}",
	        "{\"thinkingConfig\":{\"thinkingBudget\":-1,\"includeThoughts\":true}}");
	config_is(newer, "{\"reasoning_effort\":\"none\"}",
	        "{\"thinkingConfig\":{\"thinkingLevel\":\"MINIMAL\"}}");
	config_is("gemini-3-pro-preview", "{\"reasoning_effort\":\"minimal\"}",
	        "{\"thinkingConfig\":{\"thinkingLevel\":\"LOW\"}}");
	config_is(newer, "{\"reasoning_effort\":\"xhigh\",\"include_thoughts\":false}",
	        "{\"thinkingConfig\":{\"thinkingLevel\":\"HIGH\",\"includeThoughts\":false}}");
	config_is(newer, "{\"thinking_budget\":\"2048\",\"reasoning_summary\":\"auto\"}",
	        "{\"thinkingConfig\":{\"thinkingLevel\":\"LOW\",\"includeThoughts\":true}}");
	config_is(newer, "{\"thinking_budget\":\"12345678901234567890\"}",
	        "{\"thinkingConfig\":{\"thinkingLevel\":\"HIGH\"}}");
	config_is(newer, "{\"thinking_budget\":\"-1\"}", "{\"thinkingConfig\":{}}");
}

static bool body_has(const char *model, const char *what)
{
	struct provider_request req = {0};
	struct loaded l;
	bool has;

	built(&l, model, "{}");
	assert_int_equal(gemini_build(&l.pc, &req, NULL), 0);
	has = strstr(req.body, what) != NULL;
	provider_request_free(&req);
	load_free(&l);
	return has;
}

static void test_what_older_models_do_not_know(void **state)
{
	assert_true(body_has("gemini-3-flash", "skip_thought_signature_validator"));
	assert_true(body_has("gemini-flash-latest", "skip_thought_signature_validator"));
	assert_false(body_has("gemini-2.5-flash", "thoughtSignature"));
	assert_false(body_has("models/gemini-2.0-flash", "thoughtSignature"));
	/* A picture inside of an answer, or behind it. */
	assert_true(body_has("gemini-3-flash", ",\"parts\":[{\"inlineData\""));
	assert_true(body_has("gemini-2.5-flash", "{\"role\":\"user\",\"parts\":[{\"inlineData\""));
}

/* ---- errors ---- */

static void error_is(int status, const char *body, const char *want, int retry_ms)
{
	struct error err = {0};
	char got[1024];

	gemini_error(status, str_of(body), (struct str){NULL, 0}, &err);
	snprintf(got, sizeof(got), "%d %s: %s", error_http_status(&err), err.type, err.text);
	assert_string_equal(got, want);
	assert_int_equal(err.retry_after_ms, retry_ms);
}

static void test_errors(void **state)
{
	error_is(400,
	        "{\"error\":{\"code\":400,\"message\":\"API key not valid.\",\"status\":"
	        "\"INVALID_ARGUMENT\",\"details\":[{\"@type\":\"x\",\"reason\":\"API_KEY_INVALID\"}"
	        "]}}",
	        "502 provider_authentication: the provider refused the key that this server has "
	        "for it",
	        0);
	error_is(400,
	        "[{\"error\":{\"code\":400,\"message\":\"Bad.\",\"status\":\"INVALID_ARGUMENT\"}}]",
	        "400 invalid_request: the provider refused the request: Bad.", 0);
	error_is(429,
	        "{\"error\":{\"code\":429,\"message\":\"Quota.\",\"details\":[{\"retryDelay\":\"34."
	        "4s\"}]}}",
	        "429 rate_limit_exceeded: the provider's rate limit is reached: Quota.", 34400);
	error_is(429, "{\"error\":{\"message\":\"Q\",\"details\":[{\"retryDelay\":\"1e9s\"}]}}",
	        "429 rate_limit_exceeded: the provider's rate limit is reached: Q", 0);
	error_is(429, "{\"error\":{\"message\":\"Q\",\"details\":[{\"retryDelay\":\"999999s\"}]}}",
	        "429 rate_limit_exceeded: the provider's rate limit is reached: Q", 3600000);
	error_is(503,
	        "{\"error\":{\"code\":503,\"message\":\"Overloaded.\",\"status\":\"UNAVAILABLE\"}}",
	        "503 provider_overloaded: the provider is overloaded: Overloaded.", 0);
	error_is(404,
	        "{\"error\":{\"code\":404,\"message\":\"No such model\",\"status\":\"NOT_FOUND\"}}",
	        "404 model_not_found: the provider does not know this model: No such model", 0);
	error_is(500, "<html>", "502 provider_unavailable: the provider failed with status 500", 0);
	error_is(500, "", "502 provider_unavailable: the provider failed with status 500", 0);
}

/* ---- bounds ---- */

static void flood(const char *part, size_t n, const char *says)
{
	struct provider_parser *p = gemini_parse_open(NULL, STR("text/event-stream"));
	struct buf b = BUF_INIT((size_t)256 << 20);
	struct dump d;

	dump_init(&d);
	buf_puts(&b, "data: {\"candidates\":[{\"content\":{\"parts\":[");
	buf_puts(&b, part);
	buf_puts(&b, "]}}]}\n\n");
	for (size_t i = 0; i < n && !d.over; i++) {
		assert_int_equal(gemini_parse_feed(p, b.data, b.len, dump_event, &d), 0);
		if (!d.over)
			buf_reset(&d.text);
	}
	assert_int_equal(gemini_parse_end(p, NULL, dump_event, &d), 0);
	assert_non_null(strstr(buf_cstr(&d.text), says));
	gemini_parse_close(p);
	dump_free(&d);
	buf_free(&b);
}

static char *long_part(const char *before, size_t n, const char *after)
{
	struct buf b = BUF_INIT((size_t)256 << 20);

	buf_puts(&b, before);
	for (size_t i = 0; i < n; i += 16)
		buf_puts(&b, "0123456789abcdef");
	buf_puts(&b, after);
	return buf_steal(&b, NULL);
}

static void test_bounds(void **state)
{
	char *megabyte = long_part("{\"text\":\"", 1 << 20, "\"}");
	char *args =
	        long_part("{\"functionCall\":{\"name\":\"f\",\"args\":{\"a\":\"", 5 << 20, "\"}}}");
	char *huge = long_part("{\"text\":\"", 33 << 20, "\"}");

	flood("{\"functionCall\":{\"name\":\"f\"}}", 300, "more than 256 tool calls");
	flood("{\"text\":\"a\"},{\"text\":\"b\",\"thought\":true}", 6000, "too many parts");
	flood(megabyte, 70, "longer than 64 MiB");
	flood(args, 1, "over 4 MiB of arguments");
	flood(huge, 1, "an event that is too large");
	free(megabyte);
	free(args);
	free(huge);
}

static void test_long_history(void **state)
{
	struct provider_request req = {0};
	struct loaded l;

	load_long(&l,
	        "{\"provider\":\"gemini\",\"items\":[{\"message\":\"user\",\"parts\":\"x\"}]}",
	        STR("c"));
	assert_int_equal(gemini_build(&l.pc, &req, NULL), 0);
	assert_true(req.body_len > 60000 * 100);
	provider_request_free(&req);
	load_free(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_answers),
	        cmocka_unit_test(test_emit_can_stop),
	        cmocka_unit_test(test_exact_bytes),
	        cmocka_unit_test(test_later_requests_begin_like_earlier_ones),
	        cmocka_unit_test(test_paths),
	        cmocka_unit_test(test_thinking),
	        cmocka_unit_test(test_what_older_models_do_not_know),
	        cmocka_unit_test(test_errors),
	        cmocka_unit_test(test_bounds),
	        cmocka_unit_test(test_long_history),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
