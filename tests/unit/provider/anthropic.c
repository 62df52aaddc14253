/*
 * The Messages dialect as an upstream: tests/cases/anthropic holds answers,
 * tests/cases/anthropic-build requests (cases.h).
 */
#include "cases.h"
#include "provider/anthropic.h"

#define DIR_ANSWERS CASES_DIR "/anthropic"
#define DIR_BUILD   CASES_DIR "/anthropic-build"

static const char NO_REQUEST[] = "{\"dialect\":\"responses\",\"items\":[]}";

static void test_answers(void **state)
{
	cases_answers(&provider_anthropic, DIR_ANSWERS, ".sse", NO_REQUEST);
	cases_answers(&provider_anthropic, DIR_ANSWERS, ".json", NO_REQUEST);
}

static void test_emit_can_stop(void **state)
{
	cases_emit_can_stop(&provider_anthropic, DIR_ANSWERS "/parallel-calls.sse", NO_REQUEST);
}

static void test_exact_bytes(void **state)
{
	cases_requests(&provider_anthropic, DIR_BUILD, "/messages");
}

static void test_later_requests_begin_like_earlier_ones(void **state)
{
	/* Where roles must take turns, what the user says next joins the message with the results.
	 */
	cases_prefixes(&provider_anthropic, DIR_BUILD "/long-conversation.json", "messages", "]}");
}

static bool has_header(const struct provider_request *req, const char *header)
{
	for (char **h = req->headers; *h; h++)
		if (strcmp(*h, header) == 0)
			return true;
	return false;
}

static void test_headers(void **state)
{
	struct provider_request req = {0};
	struct loaded l;

	load_text(&l,
	        "{\"provider\":\"anthropic\",\"dialect\":\"anthropic\",\"api_key\":\"sk-1\","
	        "\"beta\":\"a-1,b-2\",\"items\":[{\"message\":\"user\",\"parts\":\"x\"}]}",
	        9);
	assert_int_equal(provider_anthropic.build(&l.pc, &req, NULL), 0);
	assert_true(has_header(&req, "Content-Type: application/json"));
	assert_true(has_header(&req, "Accept: text/event-stream"));
	assert_true(has_header(&req, "anthropic-version: 2023-06-01"));
	assert_true(has_header(&req, "anthropic-beta: a-1,b-2"));
	assert_true(has_header(&req, "x-api-key: sk-1"));
	provider_request_free(&req);
	/* Betas of another dialect's client are none; nor is what would be two headers. */
	l.c->dialect = DIALECT_OPENAI_RESPONSES;
	l.config.api_key = NULL;
	assert_int_equal(provider_anthropic.build(&l.pc, &req, NULL), 0);
	assert_null(req.headers[3]);
	provider_request_free(&req);
	l.c->dialect = DIALECT_ANTHROPIC;
	l.c->beta = STR("a\r\nx-api-key: stolen");
	assert_int_equal(provider_anthropic.build(&l.pc, &req, NULL), 0);
	assert_null(req.headers[3]);
	provider_request_free(&req);
	load_free(&l);
}

static void test_long_history(void **state)
{
	struct provider_request req = {0};
	struct loaded l;

	load_long(&l, "{\"items\":[{\"message\":\"user\",\"parts\":\"x\"}]}", STR("c"));
	assert_int_equal(provider_anthropic.build(&l.pc, &req, NULL), 0);
	assert_true(req.body_len > 60000 * 100);
	assert_non_null(strstr(req.body, "\"c_59999\""));
	provider_request_free(&req);
	load_free(&l);
}

/* ---- bounds ---- */

struct source {
	struct provider_parser *p;
	struct dump d;
};

static void source_open(struct source *s)
{
	s->p = anthropic_parse_open(NULL, STR("text/event-stream"));
	dump_init(&s->d);
}

static void source_say(struct source *s, const char *text)
{
	assert_int_equal(anthropic_parse_feed(s->p, text, strlen(text), dump_event, &s->d), 0);
}

static void source_close(struct source *s, const char *last)
{
	const char *text = buf_cstr(&s->d.text);

	assert_int_equal(anthropic_parse_end(s->p, NULL, dump_event, &s->d), 0);
	text = buf_cstr(&s->d.text);
	assert_non_null(strstr(text, last));
	anthropic_parse_close(s->p);
	dump_free(&s->d);
}

#define START "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[]}}\n\n"

static void test_too_many_calls(void **state)
{
	struct source s;
	char line[256];

	source_open(&s);
	source_say(&s, START);
	for (int i = 0; i < 257; i++) {
		snprintf(line, sizeof(line),
		        "data: {\"type\":\"content_block_start\",\"index\":%d,\"content_block\":"
		        "{\"type\":\"tool_use\",\"id\":\"t%d\",\"name\":\"f\",\"input\":{}}}\n\n",
		        i, i);
		source_say(&s, line);
	}
	source_close(&s, "more than 256 tool calls");
}

static void test_too_many_blocks(void **state)
{
	struct source s;
	char line[256];

	source_open(&s);
	source_say(&s, START);
	for (int i = 0; i < 10001 && !s.d.over; i++) {
		snprintf(line, sizeof(line),
		        "data: {\"type\":\"content_block_start\",\"index\":%d,\"content_block\":"
		        "{\"type\":\"text\",\"text\":\"\"}}\n\n"
		        "data: {\"type\":\"content_block_stop\",\"index\":%d}\n\n",
		        i, i);
		source_say(&s, line);
	}
	assert_true(s.d.over);
	source_close(&s, "too many parts");
}

static void flood(const char *block, const char *delta, const char *key, const char *want)
{
	size_t n = (size_t)1 << 20;
	char *piece = malloc(n + 256);
	struct source s;
	size_t len;

	source_open(&s);
	source_say(&s, START);
	snprintf(piece, n,
	        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":%s}\n\n",
	        block);
	source_say(&s, piece);
	len = (size_t)snprintf(piece, n,
	        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"%s\","
	        "\"%s\":\"",
	        delta, key);
	memset(piece + len, 'x', n - len);
	snprintf(piece + n, 256, "\"}}\n\n");
	for (int i = 0; i < 70 && !s.d.over; i++) {
		buf_reset(&s.d.text);
		source_say(&s, piece);
	}
	assert_true(s.d.over);
	source_close(&s, want);
	free(piece);
}

static void test_floods(void **state)
{
	flood("{\"type\":\"text\"}", "text_delta", "text", "longer than 64 MiB");
	flood("{\"type\":\"thinking\"}", "thinking_delta", "thinking", "longer than 64 MiB");
	flood("{\"type\":\"thinking\"}", "signature_delta", "signature", "longer than 64 MiB");
	flood("{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\"}", "input_json_delta",
	        "partial_json", "over 4 MiB of arguments");
	flood("{\"type\":\"server_tool_use\"}", "input_json_delta", "partial_json",
	        "longer than 64 MiB");
	flood("{\"type\":\"compaction\"}", "compaction_delta", "content", "longer than 64 MiB");
}

static void test_one_event_too_large(void **state)
{
	size_t n = (size_t)17 << 20;
	char *piece = malloc(n + 1);
	struct source s;

	memset(piece, 'x', n);
	memcpy(piece, "data: {\"", 8);
	piece[n] = 0;
	source_open(&s);
	source_say(&s, piece);
	source_close(&s, "an event that is too large");
	free(piece);
}

static void test_counts_malformed_lines(void **state)
{
	struct source s;

	source_open(&s);
	source_say(&s, START "data: {oops\n\ndata: nonsense\n\n");
	source_say(&s,
	        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n");
	assert_int_equal(anthropic_parse_malformed(s.p), 2);
	source_close(&s, "end stop");
}

/* ---- errors ---- */

static void check_error(int status, const char *body, int want, const char *type, const char *text)
{
	struct error err = {0};

	provider_anthropic.error(status, str_of(body), STR("2"), &err);
	assert_int_equal(error_http_status(&err), want);
	assert_string_equal(err.type, type);
	if (!strstr(err.text, text))
		fail_msg("%d: %s lacks %s", status, err.text, text);
	assert_int_equal(err.retry_after_ms, 2000);
	assert_null(strstr(err.text, "sk-ant"));
}

#define ENVELOPE(type, text)                                                                       \
	"{\"type\":\"error\",\"error\":{\"type\":\"" type "\",\"message\":\"" text                 \
	"\"},\"request_id\":\"req_1\"}"

static void test_errors(void **state)
{
	check_error(400, ENVELOPE("invalid_request_error", "messages: bad"), 400, "invalid_request",
	        "messages: bad");
	check_error(400,
	        ENVELOPE("invalid_request_error", "prompt is too long: 210000 tokens > 200000"),
	        400, "context_length_exceeded", "longer than the model's context");
	check_error(400,
	        ENVELOPE("invalid_request_error",
	                "Your credit balance is too low to access the Anthropic API."),
	        502, "provider_payment", "payment");
	check_error(401, ENVELOPE("authentication_error", "invalid x-api-key sk-ant-1"), 502,
	        "provider_authentication", "key");
	check_error(402, ENVELOPE("billing_error", "no money"), 502, "provider_payment", "payment");
	check_error(403, ENVELOPE("permission_error", "no"), 502, "provider_authentication", "key");
	check_error(404, ENVELOPE("not_found_error", "model: claude-x"), 404, "model_not_found",
	        "claude-x");
	check_error(413, ENVELOPE("request_too_large", "Request exceeds the maximum size"), 413,
	        "payload_too_large", "too large");
	check_error(413, "<html>413</html>", 413, "payload_too_large", "too large");
	check_error(429, ENVELOPE("rate_limit_error", "slow down"), 429, "rate_limit_exceeded",
	        "slow down");
	check_error(500, ENVELOPE("api_error", "Internal server error"), 502,
	        "provider_unavailable", "Internal server error");
	check_error(503, "", 503, "provider_overloaded", "overloaded");
	check_error(504, ENVELOPE("timeout_error", "timed out"), 504, "timeout", "timed out");
	check_error(529, ENVELOPE("overloaded_error", "Overloaded"), 503, "provider_overloaded",
	        "Overloaded");
	check_error(502, "<html><head>Bad gateway at 10.0.0.1</head></html>", 502,
	        "provider_unavailable", "502");
}

/* Two declared names that differ only in what the API refuses stay two, and come back as they were.
 */
static void test_tool_names(void **state)
{
	struct loaded l;
	char a[129], b[129], c[129];

	load_text(&l,
	        "{\"tools\":[{\"function\":\"a.b\"},{\"function\":\"a:b\"},{\"function\":\"ok\"},"
	        "{\"function\":\"a_b\"}],\"items\":[]}",
	        SIZE_MAX);
	anthropic_tool_name(l.c, STR("a.b"), a);
	anthropic_tool_name(l.c, STR("a:b"), b);
	anthropic_tool_name(l.c, STR("a_b"), c);
	assert_string_not_equal(a, b);
	assert_string_not_equal(a, c);
	assert_string_equal(c, "a_b");
	assert_true(str_is(anthropic_tool_name_back(l.c, str_of(a)), "a.b"));
	assert_true(str_is(anthropic_tool_name_back(l.c, str_of(b)), "a:b"));
	assert_true(str_is(anthropic_tool_name_back(l.c, STR("a_b")), "a_b"));
	assert_true(str_is(anthropic_tool_name_back(l.c, STR("other")), "other"));
	anthropic_tool_name(l.c, (struct str){NULL, 0}, a);
	assert_string_equal(a, "invalid");
	load_free(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_answers),
	        cmocka_unit_test(test_emit_can_stop),
	        cmocka_unit_test(test_exact_bytes),
	        cmocka_unit_test(test_later_requests_begin_like_earlier_ones),
	        cmocka_unit_test(test_headers),
	        cmocka_unit_test(test_long_history),
	        cmocka_unit_test(test_too_many_calls),
	        cmocka_unit_test(test_too_many_blocks),
	        cmocka_unit_test(test_floods),
	        cmocka_unit_test(test_one_event_too_large),
	        cmocka_unit_test(test_counts_malformed_lines),
	        cmocka_unit_test(test_errors),
	        cmocka_unit_test(test_tool_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
