/* What clients are told when a provider refuses. */
#include "util.h"

#include "base/clock.h"

#include <time.h>

static void is(int status, const char *body, const char *want)
{
	struct error err = {0};
	char got[1024];

	provider_openai_chat.error(status, str_of(body), (struct str){NULL, 0}, &err);
	snprintf(got, sizeof(got), "%d %s: %s", error_http_status(&err), err.type, err.text);
	assert_string_equal(got, want);
	assert_int_equal(err.retry_after_ms, 0);
}

static void test_shapes(void **state)
{
	is(400,
	        "{\"error\":{\"message\":\"bad "
	        "tools\",\"type\":\"invalid_request_error\",\"code\":null}}",
	        "400 invalid_request: the provider refused the request: bad tools");
	is(400, "{\"error\":\"bad tools\"}",
	        "400 invalid_request: the provider refused the request: bad tools");
	is(400,
	        "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":"
	        "\"bad\"}}",
	        "400 invalid_request: the provider refused the request: bad");
	is(400, "{\"object\":\"error\",\"message\":\"bad\",\"code\":400}",
	        "400 invalid_request: the provider refused the request: bad");
	is(422, "{\"detail\":[{\"loc\":[\"body\"],\"msg\":\"field required\"}]}",
	        "422 unprocessable: the provider refused the request: field required");
	is(400, "[{\"error\":{\"code\":400,\"message\":\"Invalid JSON payload\"}}]",
	        "400 invalid_request: the provider refused the request: Invalid JSON payload");
	is(500, "Internal Server Error",
	        "502 provider_unavailable: the provider failed: Internal Server Error");
	is(500, "", "502 provider_unavailable: the provider failed with status 500");
	is(502, "<html><head><title>502 Bad Gateway</title></head></html>",
	        "502 provider_unavailable: the provider failed with status 502");
	is(500, "{\"error\":{\"message\":\"<!DOCTYPE html><body>x\"}}",
	        "502 provider_unavailable: the provider failed with status 500");
	is(400, "{broken", "400 invalid_request: the provider refused the request: {broken");
	is(400, "[]", "400 invalid_request: the provider refused the request");
	is(400, "null", "400 invalid_request: the provider refused the request");
}

static void test_statuses(void **state)
{
	const char *message = "{\"error\":{\"message\":\"m\"}}";

	is(401, message,
	        "502 provider_authentication: the provider refused the key that this server has "
	        "for it");
	is(403, message,
	        "502 provider_authentication: the provider refused the key that this server has "
	        "for it");
	is(402, message,
	        "502 provider_payment: the provider asks this server's account for payment");
	is(404, message, "404 model_not_found: the provider does not know this model: m");
	is(404, "404 page not found",
	        "502 provider_unavailable: the provider failed: 404 page not found");
	is(408, message, "504 timeout: the provider took too long: m");
	is(409, message, "502 provider_unavailable: the provider failed: m");
	is(413, message, "413 payload_too_large: the request is too large for the provider: m");
	is(429, message, "429 rate_limit_exceeded: the provider's rate limit is reached: m");
	is(429, "{\"error\":{\"message\":\"q\",\"code\":\"insufficient_quota\"}}",
	        "429 insufficient_quota: the provider's rate limit is reached: q");
	is(503, message, "503 provider_overloaded: the provider is overloaded: m");
	is(529,
	        "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":"
	        "\"Overloaded\"}}",
	        "503 provider_overloaded: the provider is overloaded: Overloaded");
	is(500, "{\"error\":{\"message\":\"Overloaded\",\"type\":\"x\"}}",
	        "503 provider_overloaded: the provider is overloaded: Overloaded");
	is(504, "", "504 timeout: the provider took too long");
	is(524, "", "504 timeout: the provider took too long");
	is(301, "", "502 provider_unavailable: the provider failed with status 301");
	is(418, message, "502 provider_unavailable: the provider failed: m");
}

static void test_context_length(void **state)
{
	static const char *const bodies[] = {
	        "{\"error\":{\"message\":\"m\",\"code\":\"context_length_exceeded\"}}",
	        "{\"object\":\"error\",\"message\":\"This model's maximum context length is 4096 "
	        "tokens.\"}",
	        "{\"error\":{\"code\":400,\"message\":\"the request exceeds the available context "
	        "size\","
	        "\"type\":\"exceed_context_size_error\"}}",
	        "{\"type\":\"error\",\"error\":{\"message\":\"prompt is too long: 200001 "
	        "tokens\"}}"};

	for (size_t i = 0; i < 4; i++) {
		struct error err = {0};

		provider_openai_chat.error(400, str_of(bodies[i]), (struct str){NULL, 0}, &err);
		assert_string_equal(err.type, "context_length_exceeded");
		assert_int_equal(error_http_status(&err), 400);
	}
}

/* Never a key, an address of the provider's network, or a control character. */
static void test_quotes_nothing_secret(void **state)
{
	is(500, "dial tcp 10.1.2.3:8000: connect: connection refused",
	        "502 provider_unavailable: the provider failed: dial tcp [address] connect: "
	        "connection refused");
	is(500, "see https://internal.example/x?key=1, or db-3.internal:5432",
	        "502 provider_unavailable: the provider failed: see [address] or [address]");
	is(500, "at [fe80::1] and ::1",
	        "502 provider_unavailable: the provider failed: at [[address]] and "
	        "[address]");
	is(400, "{\"error\":{\"message\":\"key sk-abcdef123 or AIzaSyA1 or (hf_x) failed\"}}",
	        "400 invalid_request: the provider refused the request: key [hidden] or [hidden] "
	        "or "
	        "([hidden]) failed");
	is(400, "{\"error\":{\"message\":\"token=0123456789abcdef0123456789abcdef\"}}",
	        "400 invalid_request: the provider refused the request: token=[hidden]");
	is(401, "{\"error\":{\"message\":\"Incorrect API key provided: sk-pr*****89\"}}",
	        "502 provider_authentication: the provider refused the key that this server has "
	        "for it");
	is(400, "{\"error\":{\"message\":\"a\\u0000b\\n\\tc\\u001b[31m  d\"}}",
	        "400 invalid_request: the provider refused the request: a b c [31m d");
	is(400, "\xff\xfe bad",
	        "400 invalid_request: the provider refused the request: \xef\xbf\xbd\xef\xbf\xbd "
	        "bad");
	is(400, "{\"error\":{\"message\":\"gpt-4.1 takes temperature 0 to 2.0.1\"}}",
	        "400 invalid_request: the provider refused the request: gpt-4.1 takes temperature "
	        "0 to 2.0.1");
}

static void test_long_body(void **state)
{
	struct error err = {0};
	char *body = malloc(1 << 20);

	memset(body, 'x', 1 << 20);
	for (size_t i = 0; i < 1 << 20; i += 10)
		body[i] = ' ';
	provider_openai_chat.error(500, (struct str){body, 1 << 20}, (struct str){NULL, 0}, &err);
	assert_true(strlen(err.text) < 400);
	free(body);
}

static int retry_after(const char *value)
{
	struct error err = {0};

	provider_openai_chat.error(429, STR(""), str_of(value), &err);
	return err.retry_after_ms;
}

static void test_retry_after(void **state)
{
	char date[64];
	time_t at = (time_t)clock_wall_s() + 30;
	struct tm tm;
	int ms;

	assert_int_equal(retry_after("2"), 2000);
	assert_int_equal(retry_after(" 1.5 "), 1500);
	assert_int_equal(retry_after("0"), 0);
	assert_int_equal(retry_after("-5"), 0);
	assert_int_equal(retry_after("999999999999999999999"), 3600000);
	assert_int_equal(retry_after("soon"), 0);
	assert_int_equal(retry_after("1.2.3"), 0);
	assert_int_equal(retry_after(""), 0);
	strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&at, &tm));
	ms = retry_after(date);
	assert_true(ms > 25000 && ms <= 30000);
	assert_int_equal(retry_after("Sun, 06 Nov 1994 08:49:37 GMT"), 0);
	assert_int_equal(retry_after("Sun, 06 Nov 2094 08:49:37 GMT"), 3600000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_shapes),
	        cmocka_unit_test(test_statuses),
	        cmocka_unit_test(test_context_length),
	        cmocka_unit_test(test_quotes_nothing_secret),
	        cmocka_unit_test(test_long_body),
	        cmocka_unit_test(test_retry_after),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
