#include "unit.h"

#include "base/buf.h"
#include "base/mem.h"
#include "json/json.h"
#include "tool/tool.h"

#include <stdio.h>
#include <string.h>

#define AUTO  "\"environment\":{\"type\":\"container_auto\""
#define NAMED "\"environment\":{\"type\":\"container_reference\""

/* Reads an entry; parameters NULL: the entry has none. */
static int read_entry(struct arena *a, const char *type, const char *parameters, const char *more,
        struct shell_settings **ret, struct error *err)
{
	struct buf text = BUF_INIT(65536);
	struct json_doc *doc;
	void *settings = NULL;
	int r;

	buf_printf(&text, "{\"type\":\"%s\"", type);
	if (parameters)
		buf_printf(&text, ",\"parameters\":%s", parameters);
	buf_printf(&text, "%s}", more);
	if (json_parse((struct str){text.data, text.len}, 65536, &doc, err))
		fail_msg("%s: %s", buf_cstr(&text), err->text);
	memset(err, 0, sizeof(*err));
	r = tool_shell.settings(a, str_of(type), json_root(doc), "tools[2]", &settings, err);
	*ret = settings;
	/* Settings outlive the entry that they came from. */
	json_doc_free(doc);
	buf_free(&text);
	return r;
}

static struct shell_settings takes(const char *type, const char *parameters)
{
	struct arena *a = arena_new(65536);
	struct shell_settings *s, copy;
	static char id[64];
	struct error err;

	if (read_entry(a, type, parameters, "", &s, &err))
		fail_msg("%s: %s", parameters ? parameters : "", err.text);
	copy = *s;
	if (s->container_id.n > 0) {
		assert_true(s->container_id.n < sizeof(id));
		memcpy(id, s->container_id.p, s->container_id.n);
		copy.container_id.p = id;
	}
	arena_free(a);
	return copy;
}

static void refuses(const char *parameters, enum err code, const char *param, const char *says)
{
	struct arena *a = arena_new(65536);
	struct shell_settings *s;
	struct error err;

	assert_int_equal(read_entry(a, "openrouter:shell", parameters, "", &s, &err), -(int)code);
	assert_null(s);
	assert_int_equal(error_http_status(&err), 400);
	assert_string_equal(err.param, param);
	if (!strstr(err.text, says))
		fail_msg("%s: %s", parameters, err.text);
	arena_free(a);
}

static void defaults(void **state)
{
	static const char *const empty[] = {NULL, "null", "{}", "{\"environment\":null}",
	        "{\"engine\":null}", "{" AUTO "}}",
	        "{" AUTO ",\"network_policy\":null,\"file_ids\":null}}",
	        "{\"timeout_ms\":null,\"max_output_length\":null,\"keep_running\":null}"};
	struct shell_settings s;
	size_t i;

	for (i = 0; i < sizeof(empty) / sizeof(empty[0]); i++) {
		s = takes("openrouter:shell", empty[i]);
		assert_int_equal(s.environment, SHELL_CONTAINER_AUTO);
		assert_int_equal(s.container_id.n, 0);
		assert_int_equal(s.timeout_ms, 0);
		assert_int_equal(s.max_output_length, 0);
		assert_false(s.own_items);
	}
	assert_true(takes("brig:shell", NULL).own_items);
}

static void everything(void **state)
{
	struct shell_settings s = takes("openrouter:shell",
	        "{\"engine\":\"openrouter\",\"timeout_ms\":5000,\"max_output_length\":1e3,\"sleep_"
	        "after_seconds\":900," NAMED
	        ",\"container_id\":\"my_box-1\",\"network_policy\":{\"type\":\"disabled\"}}}");

	assert_int_equal(s.environment, SHELL_CONTAINER_REFERENCE);
	assert_true(str_is(s.container_id, "my_box-1"));
	assert_int_equal(s.timeout_ms, 5000);
	assert_int_equal(s.max_output_length, 1000);
	takes("openrouter:shell", "{\"engine\":\"auto\",\"sleep_after_seconds\":\"whatever\"}");
	assert_int_equal(
	        takes("brig:shell", "{\"timeout_ms\":99999999999}").timeout_ms, UINT32_MAX);
	/* Forty characters are the most. */
	s = takes("openrouter:shell",
	        "{" NAMED ",\"container_id\":\"0123456789012345678901234567890123456789\"}}");
	assert_int_equal(s.container_id.n, 40);
}

static void engines(void **state)
{
	struct shell_settings s = takes("openrouter:shell", "{\"engine\":\"native\"}");

	assert_int_equal(s.engine, SHELL_ENGINE_NATIVE);
	assert_non_null(s.native_path);
	assert_int_equal(
	        takes("brig:shell", "{\"engine\":\"openrouter\"}").engine, SHELL_ENGINE_OURS);
	s = takes("brig:shell", "{\"engine\":\"auto\"}");
	assert_int_equal(s.engine, SHELL_ENGINE_AUTO);
	assert_null(s.native_path);
	/* What a provider's shell cannot be told is a reason for ours. */
	assert_int_equal(takes("brig:shell", "{\"timeout_ms\":5}").engine, SHELL_ENGINE_OURS);
	assert_int_equal(
	        takes("brig:shell", "{\"max_output_length\":5}").engine, SHELL_ENGINE_OURS);
	/* An id that a provider's shell gave out goes back to it. */
	s = takes("brig:shell",
	        "{" NAMED ",\"container_id\":\"cntr_0123456789012345678901234567890123456789\"}}");
	assert_int_equal(s.native_container.n, 45);
	assert_non_null(s.native_path);
}

static void wrong_values(void **state)
{
	refuses("[]", ERR_INVALID, "tools[2].parameters", "must be an object");
	refuses("\"x\"", ERR_INVALID, "tools[2].parameters", "must be an object");
	refuses("{\"engine\":\"client\"}", ERR_INVALID, "tools[2].parameters.engine",
	        "\"openrouter\"");
	/* What no provider's shell can be told contradicts its choice. */
	refuses("{\"engine\":\"native\",\"timeout_ms\":5}", ERR_INVALID,
	        "tools[2].parameters.timeout_ms", "own sandbox");
	refuses("{\"engine\":\"native\",\"environment\":{\"type\":\"container_auto\","
	        "\"network_policy\":{\"type\":\"allowlist\",\"allowed_domains\":[\"*.a.example\"]}}"
	        "}",
	        ERR_INVALID, "tools[2].parameters.environment.network_policy", "own sandbox");
	refuses("{\"engine\":\"native\",\"environment\":{\"type\":\"container_reference\","
	        "\"container_id\":\"box\"}}",
	        ERR_INVALID, "tools[2].parameters.environment.container_id", "own sandbox");
	refuses("{\"engine\":\"openrouter\",\"environment\":{\"type\":\"container_reference\","
	        "\"container_id\":\"cntr_0123456789012345678901234567890123456789\"}}",
	        ERR_INVALID, "tools[2].parameters.environment.container_id", "1 to 40");
	refuses("{\"engine\":1}", ERR_INVALID, "tools[2].parameters.engine", "must be");
	refuses("{\"timeout_ms\":0}", ERR_INVALID, "tools[2].parameters.timeout_ms", "above 0");
	refuses("{\"timeout_ms\":-5}", ERR_INVALID, "tools[2].parameters.timeout_ms", "above 0");
	refuses("{\"timeout_ms\":1.5}", ERR_INVALID, "tools[2].parameters.timeout_ms",
	        "whole number");
	refuses("{\"timeout_ms\":\"5\"}", ERR_INVALID, "tools[2].parameters.timeout_ms",
	        "whole number");
	refuses("{\"max_output_length\":false}", ERR_INVALID,
	        "tools[2].parameters.max_output_length", "whole");
	refuses("{\"colour\":1}", ERR_INVALID, "tools[2].parameters.colour", "Unknown parameter");
	refuses("{\"environment\":[]}", ERR_INVALID, "tools[2].parameters.environment",
	        "must be an object");
	refuses("{\"environment\":{}}", ERR_INVALID, "tools[2].parameters.environment.type",
	        "container_auto");
	refuses("{\"environment\":{\"type\":\"vm\"}}", ERR_INVALID,
	        "tools[2].parameters.environment.type", "container_auto");
	refuses("{\"environment\":{\"type\":7}}", ERR_INVALID,
	        "tools[2].parameters.environment.type", "must be");
	refuses("{" AUTO ",\"memory\":\"4g\"}}", ERR_INVALID,
	        "tools[2].parameters.environment.memory", "Unknown parameter");
}

static void wrong_ids(void **state)
{
	static const char *const bad[] = {"\"\"", "\"a/b\"", "\"..\"", "\"a b\"", "\"\\u0000\"",
	        "7", "[]", "\"\xc3\xa4\"", "\"01234567890123456789012345678901234567890\""};
	char parameters[256];
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		str_format(
		        parameters, sizeof(parameters), "{" NAMED ",\"container_id\":%s}}", bad[i]);
		refuses(parameters, ERR_INVALID, "tools[2].parameters.environment.container_id",
		        "1 to 40 letters");
	}
	refuses("{" NAMED "}}", ERR_INVALID, "tools[2].parameters.environment.container_id",
	        "is required");
	refuses("{" NAMED ",\"container_id\":null}}", ERR_INVALID,
	        "tools[2].parameters.environment.container_id", "is required");
	refuses("{" AUTO ",\"container_id\":\"x\"}}", ERR_INVALID,
	        "tools[2].parameters.environment.container_id", "container_reference");
}

#define ID5 "\"f\",\"f\",\"f\",\"f\",\"f\""

static void files(void **state)
{
	static const char *const bad[] = {"\"f\"", "{}", "[1]", "[\"f\",null]", "7",
	        "[" ID5 "," ID5 "," ID5 "," ID5 ",\"f\"]"};
	struct shell_settings s =
	        takes("brig:shell", "{" AUTO ",\"file_ids\":[\"or_file_1\",\"\"]}}");
	char text[512];

	assert_int_equal(s.n_file_ids, 2);
	s = takes("openrouter:shell", "{" NAMED ",\"container_id\":\"x\",\"file_ids\":[" ID5 "," ID5
	                              "," ID5 "," ID5 "]}}");
	assert_int_equal(s.n_file_ids, 20);
	assert_int_equal(takes("openrouter:shell", "{" AUTO ",\"file_ids\":[]}}").n_file_ids, 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(text, sizeof(text), "{" AUTO ",\"file_ids\":%s}}", bad[i]);
		refuses(text, ERR_INVALID, "tools[2].parameters.environment.file_ids",
		        "at most 20");
	}
}

/* Understood, and not offered yet: nobody must believe to have it. */
static void not_yet(void **state)
{
	refuses("{\"environment\":{\"type\":\"local\"}}", ERR_UNSUPPORTED,
	        "tools[2].parameters.environment.type", "not offered");
	refuses("{\"file_ids\":[\"f\"]}", ERR_UNSUPPORTED, "tools[2].parameters.file_ids",
	        "inside \"environment\"");
	refuses("{" NAMED ",\"container_id\":\"x\",\"keep_running\":true}}", ERR_UNSUPPORTED,
	        "tools[2].parameters.environment.keep_running", "not offered yet");
	refuses("{\"keep_running\":false}", ERR_UNSUPPORTED, "tools[2].parameters.keep_running",
	        "not offered yet");
	refuses("{" AUTO ",\"network_policy\":{\"type\":\"allowlist\",\"allowed_domains\":[\"*\","
	        "\"a:1\"]}}}",
	        ERR_INVALID, "tools[2].parameters.environment.network_policy.allowed_domains[1]",
	        "port");
	refuses("{" AUTO
	        ",\"network_policy\":{\"type\":\"disabled\",\"allowed_domains\":[\"x\"]}}}",
	        ERR_INVALID, "tools[2].parameters.environment.network_policy.allowed_domains",
	        "disabled");
	refuses("{" AUTO ",\"network_policy\":{\"type\":\"open\"}}}", ERR_INVALID,
	        "tools[2].parameters.environment.network_policy.type", "must be");
	refuses("{" AUTO ",\"network_policy\":\"disabled\"}}", ERR_INVALID,
	        "tools[2].parameters.environment.network_policy", "must be an object");
	refuses("{" AUTO ",\"network_policy\":{\"type\":\"disabled\",\"x\":1}}}", ERR_INVALID,
	        "tools[2].parameters.environment.network_policy.x", "Unknown parameter");
}

static void keys_beside_parameters(void **state)
{
	struct arena *a = arena_new(65536);
	struct shell_settings *s;
	struct error err;
	char more[600];

	assert_int_equal(read_entry(a, "brig:shell", "{}",
	                         ",\"environment\":{\"type\":\"container_auto\"}", &s, &err),
	        -ERR_UNSUPPORTED);
	assert_string_equal(err.param, "tools[2].environment");
	assert_non_null(strstr(err.text, "inside \"parameters\""));
	assert_int_equal(
	        read_entry(a, "brig:shell", "{}", ",\"name\":\"x\"", &s, &err), -ERR_INVALID);
	assert_string_equal(err.param, "tools[2].name");
	/* A key as long as its sender likes is cut. */
	memset(more, 'k', sizeof(more));
	memcpy(more, ",\"", 2);
	memcpy(more + sizeof(more) - 4, "\":1", 4);
	assert_int_equal(read_entry(a, "brig:shell", "{}", more, &s, &err), -ERR_INVALID);
	assert_true(strlen(err.param) < sizeof(err.param));
	assert_non_null(strstr(err.param, "tools[2].kkkk"));
	arena_free(a);
}

static void little_memory(void **state)
{
	struct arena *a = arena_new(16);
	struct shell_settings *s;
	struct error err;

	assert_int_equal(read_entry(a, "brig:shell", "{}", "", &s, &err), -ERR_NOMEM);
	arena_free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(defaults),
	        cmocka_unit_test(everything),
	        cmocka_unit_test(engines),
	        cmocka_unit_test(wrong_values),
	        cmocka_unit_test(wrong_ids),
	        cmocka_unit_test(files),
	        cmocka_unit_test(not_yet),
	        cmocka_unit_test(keys_beside_parameters),
	        cmocka_unit_test(little_memory),
	};

	return UNIT_RUN(tests);
}
