/* Destinations, what they want, answers, trace context and signatures, each rule by itself. */
#include "load.h"
#include "unit.h"

#include "base/mem.h"
#include "trace/sigv4.h"
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>

#define HOOK "\"type\":\"webhook\",\"name\":\"h\",\"config\":{\"url\":\"https://h.example/x\"}"

static int parse(const char *text, struct trace_destination **ret, struct error *err)
{
	_cleanup_json_ struct json_doc *doc = NULL;

	*err = (struct error){0};
	if (json_parse(str_of(text), (size_t)16 << 20, &doc, err) < 0)
		fail_msg("%s: %s", text, err->text);
	return trace_destination_parse(json_root(doc), ret, err);
}

static struct trace_destination *must_parse(const char *text)
{
	struct trace_destination *d = NULL;
	struct error err;

	if (parse(text, &d, &err) < 0)
		fail_msg("%s", err.text);
	return d;
}

static char *written(const struct trace_destination *d, enum trace_secrets secrets)
{
	struct buf out = BUF_INIT((size_t)1 << 20);
	struct json_writer w;

	jw_init(&w, &out);
	jw_object(&w);
	trace_destination_write(&w, d, secrets);
	jw_end(&w);
	assert_int_equal(jw_done(&w), 0);
	return buf_steal(&out, NULL);
}

/* ---- what is refused, and where ---- */

static void test_refused(void **state)
{
	static const struct {
		const char *text, *param, *says;
	} cases[] = {
	        {"[]", "", "must be an object"},
	        {"{}", "type", "is missing"},
	        {"{\"type\":\"datadog\"}", "type", "is none of"},
	        {"{\"type\":\"webhook\"}", "name", "is missing"},
	        {"{\"type\":\"webhook\",\"name\":null}", "name", "must be a text"},
	        {"{\"type\":\"webhook\",\"name\":\"\"}", "name", "is empty"},
	        {"{\"type\":\"webhook\",\"name\":\"a\\nb\"}", "name", "control character"},
	        {"{\"type\":\"webhook\",\"name\":\"h\"}", "config", "is missing"},
	        {"{\"type\":\"webhook\",\"name\":\"h\",\"config\":[]}", "config",
	                "must be an object"},
	        {"{\"type\":\"webhook\",\"name\":\"h\",\"config\":{}}", "config.url", "is missing"},
	        {"{\"type\":\"webhook\",\"name\":\"h\",\"config\":{\"endpoint\":\"x\"}}", "config",
	                "\"endpoint\" is no member"},
	        {"{\"type\":\"webhook\",\"name\":\"h\",\"config\":{\"url\":\"http://u@h/\"}}",
	                "config.url", "no user or password"},
	        {"{\"type\":\"webhook\",\"name\":\"h\",\"config\":{\"url\":\"http:///x\"}}",
	                "config.url", "has no host"},
	        {"{\"type\":\"webhook\",\"name\":\"h\",\"config\":{\"url\":\"file:///x\"}}",
	                "config.url", "must begin with"},
	        {"{\"type\":\"webhook\",\"name\":\"h\",\"config\":{\"url\":\"http://h/#x\"}}",
	                "config.url", "no #"},
	        {"{\"type\":\"webhook\",\"name\":\"h\",\"config\":{\"url\":\"http://h\\r\\nX: "
	         "y\"}}",
	                "config.url", "control character"},
	        {"{\"type\":\"arize\",\"name\":\"h\",\"config\":{\"apiKey\":\"k\",\"spaceKey\":"
	         "\"s\","
	         "\"modelId\":\"m\",\"baseUrl\":\"https://h?x\"}}",
	                "config.baseUrl", "before any ?"},
	        {"{\"type\":\"arize\",\"name\":\"h\",\"config\":{\"apiKey\":\"a b\"}}",
	                "config.apiKey", "without spaces"},
	        {"{\"type\":\"webhook\",\"name\":\"h\",\"config\":{\"url\":\"http://h\",\"method\":"
	         "\"GET\"}}",
	                "config.method", "must be POST or PUT"},
	        {"{\"type\":\"webhook\",\"name\":\"h\",\"config\":{\"url\":\"http://"
	         "h\",\"headers\":{"
	         "\"a b\":\"x\"}}}",
	                "config.headers.", "is no name of a header"},
	        {"{\"type\":\"webhook\",\"name\":\"h\",\"config\":{\"url\":\"http://"
	         "h\",\"headers\":{"
	         "\"A\":\"x\\ny\"}}}",
	                "config.headers.A", "control character"},
	        {"{\"type\":\"webhook\",\"name\":\"h\",\"config\":{\"url\":\"http://"
	         "h\",\"headers\":{"
	         "\"A\":\"x\",\"a\":\"y\"}}}",
	                "config.headers.a", "is there twice"},
	        {"{\"type\":\"webhook\",\"name\":\"h\",\"config\":{\"url\":\"http://"
	         "h\",\"headers\":{"
	         "\"Content-Length\":\"1\"}}}",
	                "config.headers.Content-Length", "is set by brig itself"},
	        {"{\"type\":\"s3\",\"name\":\"h\",\"config\":{\"bucketName\":\"b\",\"accessKeyId\":"
	         "\"a\",\"secretAccessKey\":\"s\",\"headers\":{\"X-Amz-Date\":\"x\"}}}",
	                "config.headers.X-Amz-Date", "is part of the signature"},
	        {"{\"type\":\"s3\",\"name\":\"h\",\"config\":{\"bucketName\":\"../"
	         "b\",\"accessKeyId\":"
	         "\"a\",\"secretAccessKey\":\"s\"}}",
	                "config.bucketName", "small letters"},
	        {"{\"type\":\"s3\",\"name\":\"h\",\"config\":{\"bucketName\":\"b\",\"accessKeyId\":"
	         "\"a\",\"secretAccessKey\":\"s\",\"region\":\"eu.x/\"}}",
	                "config.region", "small letters"},
	        {"{\"type\":\"s3\",\"name\":\"h\",\"config\":{\"bucketName\":\"b\",\"accessKeyId\":"
	         "\"a\",\"secretAccessKey\":\"s\",\"pathTemplate\":\"{prefix}/{hour}\"}}",
	                "config.pathTemplate", "is none of {prefix}"},
	        {"{" HOOK ",\"colour\":1}", "", "\"colour\" is not known"},
	        {"{" HOOK ",\"enabled\":1}", "enabled", "must be true or false"},
	        {"{" HOOK ",\"sampling_rate\":0}", "sampling_rate", "from 0.0001 to 1"},
	        {"{" HOOK ",\"sampling_rate\":1.01}", "sampling_rate", "from 0.0001 to 1"},
	        {"{" HOOK ",\"sampling_rate\":\"1\"}", "sampling_rate", "from 0.0001 to 1"},
	        {"{" HOOK ",\"regions\":[]}", "regions", "at least one entry"},
	        {"{" HOOK ",\"regions\":[\"us\",\"E U\"]}", "regions[1]", "must be global"},
	        {"{" HOOK ",\"api_key_hashes\":[]}", "api_key_hashes", "at least one entry"},
	        {"{" HOOK ",\"api_key_hashes\":[\"ab\"]}", "api_key_hashes[0]", "64 small hex"},
	        {"{" HOOK ",\"workspace_id\":\"\"}", "workspace_id", "is empty"},
	        {"{" HOOK ",\"filter_rules\":[]}", "filter_rules", "must be an object"},
	        {"{" HOOK ",\"filter_rules\":{}}", "filter_rules.groups", "must be a list"},
	        {"{" HOOK ",\"filter_rules\":{\"groups\":[{\"rules\":[]}]}}",
	                "filter_rules.groups[0].rules", "at least one rule"},
	        {"{" HOOK ",\"filter_rules\":{\"groups\":[{\"logic\":\"xor\",\"rules\":[{}]}]}}",
	                "filter_rules.groups[0].logic", "\"and\" or \"or\""},
	        {"{" HOOK ",\"filter_rules\":{\"groups\":[{\"rules\":[{\"field\":\"model\","
	         "\"operator\":\"exists\"},{\"field\":\"colour\"}]}]}}",
	                "filter_rules.groups[0].rules[1].field", "is none of model"},
	        {"{" HOOK ",\"filter_rules\":{\"groups\":[{\"rules\":[{\"field\":\"model\","
	         "\"operator\":\"gt\",\"value\":1}]}]}}",
	                "filter_rules.groups[0].rules[0].operator", "numbers only"},
	        {"{" HOOK ",\"filter_rules\":{\"groups\":[{\"rules\":[{\"field\":\"total_cost\","
	         "\"operator\":\"contains\",\"value\":1}]}]}}",
	                "filter_rules.groups[0].rules[0].operator", "not apply to a number"},
	        {"{" HOOK ",\"filter_rules\":{\"groups\":[{\"rules\":[{\"field\":\"total_cost\","
	         "\"operator\":\"gt\",\"value\":\"x\"}]}]}}",
	                "filter_rules.groups[0].rules[0].value", "decimal number"},
	        {"{" HOOK ",\"filter_rules\":{\"groups\":[{\"rules\":[{\"field\":\"model\","
	         "\"operator\":\"equals\"}]}]}}",
	                "filter_rules.groups[0].rules[0].value", "is missing"},
	        {"{" HOOK ",\"filter_rules\":{\"groups\":[{\"rules\":[{\"field\":\"model\","
	         "\"operator\":\"regex\",\"value\":\"(?=x)\"}]}]}}",
	                "filter_rules.groups[0].rules[0].value", "no pattern"},
	};
	struct trace_destination *d = NULL;
	struct error err;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (parse(cases[i].text, &d, &err) == 0)
			fail_msg("accepted: %s", cases[i].text);
		if (strcmp(err.param, cases[i].param) != 0 || !strstr(err.text, cases[i].says))
			fail_msg("%s\ngot \"%s\" (%s), expected \"%s\" (%s)", cases[i].text,
			        err.text, err.param, cases[i].says, cases[i].param);
		assert_int_equal(err.code, ERR_INVALID);
		assert_int_equal(strstr(cases[i].text, "(?=x)") != NULL,
		        strcmp(err.type, "invalid_regex_pattern") == 0);
	}
}

/* ---- secrets ---- */

#define BRAIN                                                                                      \
	"{\"type\":\"braintrust\",\"name\":\"b\",\"workspace_id\":\"w\",\"config\":{\"apiKey\":"   \
	"\"sk-0123456789abcdef\",\"projectId\":\"p\",\"headers\":{\"X-Short\":\"s3cret\",\"X-"     \
	"Long\":"                                                                                  \
	"\"long-enough-to-show\"}}"

static void test_masks(void **state)
{
	struct trace_destination *d = must_parse(BRAIN "}"), *again;
	_cleanup_free_ char *masked = written(d, TRACE_MASKED), *plain = written(d, TRACE_PLAIN);
	_cleanup_free_ char *twice = NULL;

	assert_string_equal(masked,
	        "{\"type\":\"braintrust\",\"name\":\"b\",\"config\":{\"apiKey\":\"sk-0...cdef\","
	        "\"projectId\":\"p\",\"baseUrl\":\"https://api.braintrust.dev\",\"headers\":{"
	        "\"X-Short\":\"***\",\"X-Long\":\"long...show\"}},\"enabled\":true,"
	        "\"privacy_mode\":false,\"sampling_rate\":1,\"api_key_hashes\":null,\"regions\":["
	        "\"global\"],\"broadcast_generation_cost\":false,"
	        "\"broadcast_generation_identity\":false,"
	        "\"broadcast_generation_request_context\":false,\"filter_rules\":null}");
	again = must_parse(plain);
	twice = written(again, TRACE_PLAIN);
	assert_string_equal(plain, twice);
	assert_string_equal(again->workspace, "w");
	trace_destination_free(again);
	trace_destination_free(d);
}

static struct trace_destination *patched(
        const struct trace_destination *d, const char *patch, struct error *err)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	struct trace_destination *ret = NULL;

	*err = (struct error){0};
	assert_int_equal(json_parse(str_of(patch), 1 << 20, &doc, err), 0);
	if (trace_destination_patch(d, json_root(doc), &ret, err) < 0)
		return NULL;
	return ret;
}

static void test_patch(void **state)
{
	struct trace_destination *d =
	        must_parse(BRAIN ",\"api_key_hashes\":["
	                         "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab"
	                         "cdef\"],\"filter_rules\":{\"groups\":[]}}");
	struct trace_destination *p;
	struct error err;

	p = patched(d, "{}", &err);
	assert_non_null(p);
	assert_string_equal(p->api_key, d->api_key);
	assert_int_equal(p->n_headers, 2);
	assert_non_null(p->filter);
	trace_destination_free(p);

	/* Masks that come back change nothing; headers are given whole. */
	p = patched(d,
	        "{\"name\":\"c\",\"enabled\":false,\"sampling_rate\":0.25,\"api_key_hashes\":null,"
	        "\"filter_rules\":null,\"config\":{\"apiKey\":\"sk-0...cdef\",\"projectId\":\"q\","
	        "\"headers\":{\"X-Short\":\"***\",\"X-New\":\"n\"}}}",
	        &err);
	assert_non_null(p);
	assert_string_equal(p->name, "c");
	assert_false(p->enabled);
	assert_int_equal(p->sampling_ppm, 250000);
	assert_int_equal(p->n_key_hashes, 0);
	assert_null(p->filter);
	assert_string_equal(p->api_key, "sk-0123456789abcdef");
	assert_string_equal(p->project_id, "q");
	assert_int_equal(p->n_headers, 2);
	assert_string_equal(p->headers[0].value, "s3cret");
	assert_string_equal(p->headers[1].name, "X-New");
	trace_destination_free(p);

	p = patched(d, "{\"config\":{\"apiKey\":\"other\",\"headers\":null}}", &err);
	assert_string_equal(p->api_key, "other");
	assert_int_equal(p->n_headers, 0);
	trace_destination_free(p);

	assert_null(patched(d, "{\"type\":\"webhook\"}", &err));
	assert_string_equal(err.param, "type");
	assert_null(patched(d, "{\"workspace_id\":\"v\"}", &err));
	assert_string_equal(err.param, "workspace_id");
	assert_null(patched(d, "{\"config\":{\"apiKey\":null}}", &err));
	assert_string_equal(err.param, "config.apiKey");
	assert_null(patched(d, "{\"config\":{\"colour\":\"red\"}}", &err));
	assert_string_equal(err.param, "config");
	assert_null(patched(d, "{\"id\":\"x\"}", &err));
	assert_null(patched(d, "[]", &err));
	trace_destination_free(d);
}

/* ---- which records ---- */

static bool wanted(const char *more, const char *record, const char *region)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	char text[4096];
	struct trace_destination *d;
	struct record *r;
	bool yes;

	str_format(text, sizeof(text), "{" HOOK "%s}", more);
	d = must_parse(text);
	assert_int_equal(json_parse(str_of(record), 1 << 20, &doc, NULL), 0);
	r = load_record(json_root(doc));
	yes = trace_wanted(d, r, region);
	record_free(r);
	trace_destination_free(d);
	return yes;
}

static void test_wanted(void **state)
{
	static const char r[] = "{\"id\":\"gen-1\",\"workspace\":\"w\",\"key_hash\":\"aa\"}";

	assert_true(wanted("", r, NULL));
	assert_true(wanted("", r, "global"));
	assert_false(wanted("", r, "eu"));
	assert_true(wanted(",\"regions\":[\"europe\"]", r, "eu"));
	assert_true(wanted(",\"regions\":[\"eu\"]", r, "europe"));
	assert_false(wanted(",\"regions\":[\"eu\"]", r, NULL));
	assert_true(wanted(",\"regions\":[\"us\",\"dc-7\"]", r, "dc-7"));
	assert_false(wanted(",\"enabled\":false", r, NULL));
	assert_true(wanted(",\"workspace_id\":\"w\"", r, NULL));
	assert_false(wanted(",\"workspace_id\":\"v\"", r, NULL));
	assert_false(
	        wanted(",\"api_key_hashes\":[\"0123456789abcdef0123456789abcdef0123456789abcdef"
	               "0123456789abcdef\"]",
	                r, NULL));
}

#define RULE(field, op, value)                                                                     \
	",\"filter_rules\":{\"groups\":[{\"rules\":[{\"field\":\"" field "\",\"operator\":\"" op   \
	"\"" value "}]}]}"

static void test_filters(void **state)
{
	static const char full[] =
	        "{\"id\":\"gen-1\",\"api\":\"chat\",\"asked\":\"fast\",\"provider\":\"openai\","
	        "\"model\":\"openai/gpt-5\",\"session_id\":\"s-1\",\"user\":\"u\",\"finish\":\"stop\","
	        "\"tokens\":{\"input\":10,\"output\":5,\"given\":true},\"priced\":true,"
	        "\"total_cost\":\"0.003\",\"request\":{\"messages\":[{\"role\":\"user\","
	        "\"content\":"
	        "\"say \\\"hi\\\"\"}]},\"answer\":{\"completion\":\"hi \\u00fc\"}}";
	static const char empty[] = "{\"id\":\"gen-2\",\"api\":\"chat\"}";
	static const struct {
		const char *rule;
		bool full, empty;
	} cases[] = {
	        {RULE("model", "equals", ",\"value\":\"fast\""), true, false},
	        {RULE("model", "equals", ",\"value\":\"openai/gpt-5\""), true, false},
	        {RULE("model", "equals", ",\"value\":\"gpt-5\""), true, false},
	        {RULE("model", "not_equals", ",\"value\":\"gpt-5\""), false, true},
	        {RULE("model", "starts_with", ",\"value\":\"openai/\""), true, false},
	        {RULE("model", "ends_with", ",\"value\":\"-6\""), false, false},
	        {RULE("provider", "contains", ",\"value\":\"pen\""), true, false},
	        {RULE("provider", "not_contains", ",\"value\":\"pen\""), false, true},
	        {RULE("session_id", "regex", ",\"value\":\"^s-[0-9]$\""), true, false},
	        {RULE("user_id", "exists", ""), true, false},
	        {RULE("user_id", "not_exists", ""), false, true},
	        {RULE("api_key_name", "exists", ",\"value\":null"), false, false},
	        {RULE("finish_reason", "equals", ",\"value\":\"stop\""), true, false},
	        {RULE("input", "contains", ",\"value\":\"say \\\"hi\\\"\""), true, false},
	        {RULE("input", "exists", ""), true, false},
	        {RULE("output", "equals", ",\"value\":\"hi \\u00fc\""), true, false},
	        {RULE("total_cost", "equals", ",\"value\":0.003"), true, false},
	        {RULE("total_cost", "gt", ",\"value\":\"0.002999999999\""), true, false},
	        {RULE("total_cost", "gt", ",\"value\":0.003"), false, false},
	        {RULE("total_cost", "gte", ",\"value\":0.003"), true, false},
	        {RULE("total_tokens", "lte", ",\"value\":15"), true, false},
	        {RULE("total_tokens", "lt", ",\"value\":15"), false, false},
	        {RULE("prompt_tokens", "equals", ",\"value\":\"10\""), true, false},
	        {RULE("completion_tokens", "not_equals", ",\"value\":5"), false, true},
	        {RULE("completion_tokens", "not_exists", ""), false, true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (wanted(cases[i].rule, full, NULL) != cases[i].full ||
		        wanted(cases[i].rule, empty, NULL) != cases[i].empty)
			fail_msg("%s", cases[i].rule);
	assert_true(
	        wanted(",\"filter_rules\":{\"enabled\":false,\"groups\":[{\"rules\":[{\"field\":"
	               "\"user_id\",\"operator\":\"exists\"}]}]}",
	                empty, NULL));
	assert_true(wanted(",\"filter_rules\":{\"groups\":[{\"logic\":\"or\",\"rules\":[{\"field\":"
	                   "\"user_id\",\"operator\":\"equals\",\"value\":\"x\"},{\"field\":"
	                   "\"user_id\",\"operator\":\"equals\",\"value\":\"u\"}]}]}",
	        full, NULL));
	/* All groups must hold. */
	assert_false(wanted(",\"filter_rules\":{\"groups\":[{\"rules\":[{\"field\":\"user_id\","
	                    "\"operator\":\"exists\"}]},{\"rules\":[{\"field\":\"user_id\","
	                    "\"operator\":\"not_exists\"}]}]}",
	        full, NULL));
}

/* A session is in or out as a whole; over many of them the share is the rate. */
static void test_sampling(void **state)
{
	struct trace_destination *d = must_parse("{" HOOK ",\"sampling_rate\":0.25}");
	size_t in = 0, by_trace = 0;

	for (int i = 0; i < 4000; i++) {
		struct record *r = record_new();
		bool yes;

		str_format(r->id, sizeof(r->id), "gen-%d", i);
		by_trace += trace_wanted(d, r, NULL);
		record_set(&r->session_id, str_of(r->id));
		yes = trace_wanted(d, r, NULL);
		str_format(r->id, sizeof(r->id), "gen-other-%d", i);
		assert_int_equal(trace_wanted(d, r, NULL), yes);
		in += yes;
		record_free(r);
	}
	assert_in_range(in, 850, 1150);
	assert_in_range(by_trace, 850, 1150);
	trace_destination_free(d);
}

/* ---- answers ---- */

static void test_answers(void **state)
{
	static const struct {
		int status;
		const char *after, *body;
		enum trace_verdict verdict;
		uint64_t retry_ms, rejected;
		const char *text;
	} cases[] = {
	        {200, NULL, "{}", TRACE_DONE, 0, 0, ""},
	        {200, NULL, "", TRACE_DONE, 0, 0, ""},
	        {202, NULL, "no json", TRACE_DONE, 0, 0, ""},
	        {200, NULL,
	                "{\"partialSuccess\":{\"rejectedSpans\":\"7\",\"errorMessage\":\"too "
	                "old\"}}",
	                TRACE_DONE, 0, 7, "too old"},
	        {200, NULL, "{\"partialSuccess\":{\"rejectedSpans\":7}}", TRACE_DONE, 0, 7, ""},
	        {200, NULL, "{\"partialSuccess\":{\"rejectedSpans\":-1}}", TRACE_DONE, 0, 0, ""},
	        {0, NULL, "", TRACE_RETRY, 0, 0, ""},
	        {408, NULL, "", TRACE_RETRY, 0, 0, ""},
	        {429, "3", "slow", TRACE_RETRY, 3000, 0, "slow"},
	        {503, " 0 ", "", TRACE_RETRY, 0, 0, ""},
	        {503, "99999999999999999999", "", TRACE_RETRY, 3600000, 0, ""},
	        {503, "-1", "", TRACE_RETRY, 0, 0, ""},
	        {502, "Mon, 30 Nov 2026 09:14:20 GMT", "", TRACE_RETRY, 60000, 0, ""},
	        {504, "Mon, 30 Nov 2026 09:13:00 GMT", "", TRACE_RETRY, 0, 0, ""},
	        {504, "tomorrow", "", TRACE_RETRY, 0, 0, ""},
	        {500, "3", "", TRACE_DROP, 0, 0, ""},
	        {400, NULL, "bad\nrequest \xff", TRACE_DROP, 0, 0, "bad request \xef\xbf\xbd"},
	        {401, NULL, "", TRACE_DROP, 0, 0, ""},
	        {404, NULL, "", TRACE_DROP, 0, 0, ""},
	        {301, NULL, "", TRACE_DROP, 0, 0, ""},
	        {413, NULL, "", TRACE_SPLIT, 0, 0, ""},
	};
	struct trace_destination *d = must_parse("{\"type\":\"otel-collector\",\"name\":\"o\","
	                                         "\"config\":{\"endpoint\":\"http://o:4318\"}}");
	struct trace_destination *s3 = must_parse(
	        "{\"type\":\"s3\",\"name\":\"s\",\"config\":{\"bucketName\":\"b\",\"accessKeyId\":"
	        "\"a\",\"secretAccessKey\":\"k\"}}");
	struct trace_answer a;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		trace_answer_read(d, cases[i].status, str_of(cases[i].after), str_of(cases[i].body),
		        INT64_C(1796030000000), &a);
		if (a.verdict != cases[i].verdict || a.retry_ms != cases[i].retry_ms ||
		        a.rejected != cases[i].rejected || strcmp(a.text, cases[i].text) != 0)
			fail_msg("%d %s: %d %d %d \"%s\"", cases[i].status,
			        cases[i].after ? cases[i].after : "", (int)a.verdict,
			        (int)a.retry_ms, (int)a.rejected, a.text);
	}
	trace_answer_read(s3, 500, (struct str){0}, STR("<Error>"), 0, &a);
	assert_int_equal(a.verdict, TRACE_RETRY);
	assert_true(trace_test_passed(d, 204));
	assert_false(trace_test_passed(d, 400));
	trace_destination_free(s3);
	trace_destination_free(d);
	d = must_parse("{" HOOK "}");
	assert_true(trace_test_passed(d, 400));
	assert_false(trace_test_passed(d, 401));
	trace_destination_free(d);
}

/* ---- trace context ---- */

#define IDS "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"

static void test_traceparent(void **state)
{
	static const struct {
		const char *header;
		bool good;
	} cases[] = {
	        {"00-" IDS "-01", true},
	        {"00-" IDS "-ff", true},
	        {"cc-" IDS "-01", true},
	        {"cc-" IDS "-01-what-the-future-will-be-like", true},
	        {"cc-" IDS "-01.what-the-future-will-be-like", false},
	        {"00-" IDS "-01-more", false},
	        {"00-" IDS "-01-", false},
	        {"ff-" IDS "-01", false},
	        {"00-" IDS "-0", false},
	        {"00-" IDS "-0G", false},
	        {"00-" IDS "-0A", false},
	        {"0-" IDS "-01", false},
	        {"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false},
	        {"00-00000000000000000000000000000000-b7ad6b7169203331-01", false},
	        {"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", false},
	        {"00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false},
	        {" 00-" IDS "-01", false},
	        {"", false},
	};
	struct trace_parent p;
	char text[56];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (trace_parent_read(str_of(cases[i].header), &p) != cases[i].good)
			fail_msg("%s", cases[i].header);
		if (!cases[i].good)
			continue;
		trace_parent_write(&p, text);
		assert_memory_equal(text, "00-" IDS "-", 53);
	}
	assert_false(trace_parent_read((struct str){NULL, 0}, &p));
}

/* ---- the signature: Amazon's own example of a PUT ---- */

static void test_sigv4(void **state)
{
	static const struct trace_header headers[] = {
	        {(char *)(uintptr_t) "Date", (char *)(uintptr_t) "Fri, 24 May 2013 00:00:00 GMT"},
	        {(char *)(uintptr_t) "x-amz-content-sha256",
	                (char *)(uintptr_t) "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8"
	                                    "b"
	                                    "803f8b072"},
	        {(char *)(uintptr_t) "x-amz-date", (char *)(uintptr_t) "20130524T000000Z"},
	        {(char *)(uintptr_t) "x-amz-storage-class",
	                (char *)(uintptr_t) " REDUCED_REDUNDANCY "},
	};
	const struct sigv4 s = {.access_key_id = STR("AKIAIOSFODNN7EXAMPLE"),
	        .secret_key = STR("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
	        .region = STR("us-east-1"),
	        .method = "PUT",
	        .host = STR("examplebucket.s3.amazonaws.com"),
	        .path = STR("/test%24file.text"),
	        .body = STR("Welcome to Amazon S3."),
	        .headers = headers,
	        .n_headers = 4,
	        .now_ms = INT64_C(1369353600000)};
	_cleanup_buf_ struct buf out = BUF_INIT(4096);
	char date[17], hash[65];

	sigv4_date(s.now_ms, date);
	assert_string_equal(date, "20130524T000000Z");
	sigv4_hash(s.body, hash);
	assert_string_equal(hash, headers[1].value);
	assert_int_equal(sigv4_sign(&s, &out), 0);
	assert_string_equal(buf_cstr(&out),
	        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"
	        "aws4_request, SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;"
	        "x-amz-storage-class, "
	        "Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

/* ---- sizes ---- */

/* A record that is too large for a request goes without what was said; a long text is cut. */
static void test_large(void **state)
{
	struct trace_destination *d = must_parse("{" HOOK "}");
	struct trace_request *q = NULL;
	struct record *r = record_new();
	struct error err = {0};
	const size_t n = (size_t)11 << 20;
	char *text = mem_alloc(n + 1);
	size_t taken = 0;

	memset(text, 'x', n);
	str_format(r->id, sizeof(r->id), "gen-large");
	r->begin_ms = 1000;
	record_set(&r->api, STR("exec"));
	record_add_run(r);
	record_set(&record_add_command(&r->runs[0])->command, (struct str){text, n});
	assert_int_equal(trace_request_build(d, (const struct record *const *)&r, 1, 1, NULL, 0, &q,
	                         &taken, &err),
	        0);
	assert_int_equal(taken, 1);
	assert_non_null(
	        memmem(q->body.data, q->body.len, STR("gen_ai.tool.call.arguments.truncated").p,
	                STR("gen_ai.tool.call.arguments.truncated").n));
	assert_non_null(strstr(q->body.data, "process.command_line.truncated"));
	trace_request_free(q);
	for (int i = 0; i < 6; i++)
		record_set(&record_add_command(&r->runs[0])->command, (struct str){text, n});
	assert_int_equal(trace_request_build(d, (const struct record *const *)&r, 1, 1, NULL, 0, &q,
	                         &taken, &err),
	        0);
	assert_true(q->body.len < 10000);
	assert_null(strstr(q->body.data, "xxx"));
	assert_non_null(strstr(q->body.data, "brig.content_dropped"));
	assert_non_null(strstr(q->body.data, "openrouter.trace_truncated"));
	assert_int_equal(q->n_spans, 9);
	trace_request_free(q);
	record_free(r);
	free(text);
	trace_destination_free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_masks),
	        cmocka_unit_test(test_patch),
	        cmocka_unit_test(test_wanted),
	        cmocka_unit_test(test_filters),
	        cmocka_unit_test(test_sampling),
	        cmocka_unit_test(test_answers),
	        cmocka_unit_test(test_traceparent),
	        cmocka_unit_test(test_sigv4),
	        cmocka_unit_test(test_large),
	};

	return UNIT_RUN(tests);
}
