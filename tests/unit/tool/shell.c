#include "unit.h"

#include "base/buf.h"
#include "base/mem.h"
#include "json/json.h"
#include "tool/tool.h"

#include <string.h>

static const struct tool_limits limits = {120000, 300000, 16384, 65536, 100};

struct fixture {
	struct arena *a;
	struct error err;
	struct tool_call *call;
};

static int set_up(void **state)
{
	struct fixture *f = mem_alloc(sizeof(*f));

	f->a = arena_new((size_t)64 * 1024 * 1024);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	arena_free(f->a);
	mem_free_ptr(state);
	return 0;
}

static int parse(struct fixture *f, struct str arguments, const struct shell_settings *s)
{
	memset(&f->err, 0, sizeof(f->err));
	f->call = NULL;
	return tool_shell.parse(f->a, arguments, s, &limits, &f->call, &f->err);
}

static void takes(struct fixture *f, const char *arguments)
{
	if (parse(f, str_of(arguments), NULL))
		fail_msg("%s: %s", arguments, f->err.text);
	assert_non_null(f->call);
}

static void refuses(struct fixture *f, const char *arguments, const char *says)
{
	assert_int_equal(parse(f, str_of(arguments), NULL), -ERR_INVALID);
	assert_null(f->call);
	if (!strstr(f->err.text, says))
		fail_msg("%s: %s", arguments, f->err.text);
}

/* ---- arguments ---- */

static void good_arguments(void **state)
{
	struct fixture *f = *state;

	takes(f, "{\"commands\":[\"echo \\u00e4\\n\",\"\"]}");
	assert_int_equal(f->call->n_commands, 2);
	assert_true(str_is(f->call->commands[0], "echo \xc3\xa4\n"));
	assert_int_equal(f->call->commands[1].n, 0);
	assert_non_null(f->call->commands[1].p);
	assert_int_equal(f->call->timeout_ms, 120000);
	assert_int_equal(f->call->output_chars, 16384);
	assert_false(f->call->has_timeout || f->call->has_output);
	takes(f, " {\"timeout_ms\": 5 , \"max_output_length\":7,\"commands\":[\"a\"], "
	         "\"x\":{\"y\":[1]}} ");
	assert_true(f->call->has_timeout && f->call->has_output);
	assert_int_equal(f->call->timeout_ms, 5);
	assert_int_equal(f->call->asked_timeout, 5);
	assert_int_equal(f->call->output_chars, 7);
}

/* What models write although the schema says otherwise, and which can mean only one thing. */
static void tolerated(void **state)
{
	struct fixture *f = *state;

	takes(f, "{\"commands\":\"ls -l\"}");
	assert_int_equal(f->call->n_commands, 1);
	assert_true(str_is(f->call->commands[0], "ls -l"));
	takes(f, "{\"command\":\"ls\",\"commands\":null}");
	assert_true(str_is(f->call->commands[0], "ls"));
	takes(f, "{\"command\":[\"a\",\"b\"]}");
	assert_int_equal(f->call->n_commands, 2);
	takes(f, "{\"commands\":[\"a\"],\"timeout_ms\":null,\"max_output_length\":null}");
	assert_false(f->call->has_timeout || f->call->has_output);
	takes(f, "{\"commands\":[\"a\"],\"timeout_ms\":0.25,\"max_output_length\":1e2}");
	assert_int_equal(f->call->timeout_ms, 1);
	assert_int_equal(f->call->output_chars, 100);
	takes(f, "{\"commands\":[\"a\"],\"timeout_ms\":1500.9}");
	assert_int_equal(f->call->timeout_ms, 1500);
}

static void too_much_is_lowered(void **state)
{
	struct fixture *f = *state;

	takes(f, "{\"commands\":[\"a\"],\"timeout_ms\":300001,\"max_output_length\":65537}");
	assert_int_equal(f->call->timeout_ms, 300000);
	assert_int_equal(f->call->output_chars, 65536);
	assert_int_equal(f->call->asked_timeout, 300001);
	takes(f, "{\"commands\":[\"a\"],\"timeout_ms\":99999999999999999999,\"max_output_length\":"
	         "1e300}");
	assert_int_equal(f->call->timeout_ms, 300000);
	assert_int_equal(f->call->output_chars, 65536);
	takes(f, "{\"commands\":[\"a\"],\"timeout_ms\":1e999}");
	assert_int_equal(f->call->timeout_ms, 300000);
	assert_true(f->call->asked_timeout > 0);
}

/* The request's parameters are default and ceiling, and never lift the server's maximum. */
static void request_parameters(void **state)
{
	struct fixture *f = *state;
	struct shell_settings s = {.timeout_ms = 5000, .max_output_length = 100};

	assert_int_equal(parse(f, STR("{\"commands\":[\"a\"]}"), &s), 0);
	assert_int_equal(f->call->timeout_ms, 5000);
	assert_int_equal(f->call->output_chars, 100);
	assert_int_equal(
	        parse(f, STR("{\"commands\":[\"a\"],\"timeout_ms\":6000,\"max_output_length\":99}"),
	                &s),
	        0);
	assert_int_equal(f->call->timeout_ms, 5000);
	assert_int_equal(f->call->output_chars, 99);
	s = (struct shell_settings){.timeout_ms = 900000, .max_output_length = UINT32_MAX};
	assert_int_equal(parse(f, STR("{\"commands\":[\"a\"]}"), &s), 0);
	assert_int_equal(f->call->timeout_ms, 300000);
	assert_int_equal(f->call->output_chars, 65536);
	s = (struct shell_settings){.timeout_ms = 200000};
	assert_int_equal(parse(f, STR("{\"commands\":[\"a\"]}"), &s), 0);
	assert_int_equal(f->call->timeout_ms, 200000);
	assert_int_equal(f->call->output_chars, 16384);
}

static void bad_arguments(void **state)
{
	struct fixture *f = *state;

	refuses(f, "", "not valid JSON");
	refuses(f, "{\"commands\":[\"a\"", "not valid JSON");
	refuses(f, "{\"commands\":[\"a\"]} x", "not valid JSON");
	refuses(f, "{\"commands\":[\"a\"],\"commands\":[\"b\"]}", "not valid JSON");
	refuses(f, "[\"a\"]", "must be a JSON object");
	refuses(f, "null", "must be a JSON object");
	refuses(f, "{}", "commands is missing");
	refuses(f, "{\"commands\":null}", "commands is missing");
	refuses(f, "{\"cmd\":\"ls\"}", "commands is missing");
	refuses(f, "{\"commands\":[]}", "at least one");
	refuses(f, "{\"commands\":{\"0\":\"a\"}}", "a list of strings");
	refuses(f, "{\"commands\":7}", "a list of strings");
	refuses(f, "{\"commands\":[\"a\",7]}", "number 2 is not");
	refuses(f, "{\"commands\":[[\"ls\",\"-l\"]]}", "number 1 is not");
	refuses(f, "{\"commands\":[\"a\"],\"command\":\"b\"}", "not both");
	refuses(f, "{\"commands\":[\"a\\u0000b\"]}", "NUL");
	refuses(f, "{\"commands\":[\"a\"],\"timeout_ms\":0}",
	        "timeout_ms must be a number above 0");
	refuses(f, "{\"commands\":[\"a\"],\"timeout_ms\":-1}", "timeout_ms must");
	refuses(f, "{\"commands\":[\"a\"],\"timeout_ms\":-1e999}", "timeout_ms must");
	refuses(f, "{\"commands\":[\"a\"],\"timeout_ms\":\"5\"}", "timeout_ms must");
	refuses(f, "{\"commands\":[\"a\"],\"timeout_ms\":true}", "timeout_ms must");
	refuses(f, "{\"commands\":[\"a\"],\"max_output_length\":0}", "max_output_length must");
	refuses(f, "{\"commands\":[\"a\"],\"max_output_length\":[]}", "max_output_length must");
}

static void how_many(void **state)
{
	struct fixture *f = *state;
	struct buf b = BUF_INIT((size_t)1024 * 1024);
	int i;

	buf_puts(&b, "{\"commands\":[\"0\"");
	for (i = 1; i < 100; i++)
		buf_printf(&b, ",\"%d\"", i);
	buf_puts(&b, "]}");
	takes(f, buf_cstr(&b));
	assert_int_equal(f->call->n_commands, 100);
	assert_true(str_is(f->call->commands[99], "99"));
	b.len -= 2;
	buf_puts(&b, ",\"one more\"]}");
	refuses(f, buf_cstr(&b), "101 commands were given; one call takes at most 100");
	buf_free(&b);
}

static void how_long(void **state)
{
	struct fixture *f = *state;
	struct buf b = BUF_INIT((size_t)1024 * 1024);
	int i;

	buf_puts(&b, "{\"commands\":[\"");
	for (i = 0; i < 131071; i++)
		buf_putc(&b, 'x');
	buf_puts(&b, "\"]}");
	takes(f, buf_cstr(&b));
	assert_int_equal(f->call->commands[0].n, 131071);
	b.len -= 3;
	buf_puts(&b, "x\"]}");
	refuses(f, buf_cstr(&b), "has 131072 bytes");
	buf_free(&b);
}

/* Deep nesting and huge arrays end in an error, within bounded memory. */
static void hostile_arguments(void **state)
{
	struct fixture *f = *state;
	struct buf b = BUF_INIT((size_t)8 * 1024 * 1024);
	size_t used = arena_used(f->a);
	int i;

	buf_puts(&b, "{\"commands\":");
	for (i = 0; i < 1000000; i++)
		buf_putc(&b, '[');
	assert_int_equal(parse(f, (struct str){b.data, b.len}, NULL), -ERR_INVALID);
	buf_reset(&b);
	buf_puts(&b, "{\"x\":[1");
	for (i = 0; i < 1000000; i++)
		buf_puts(&b, ",1");
	buf_puts(&b, "],\"commands\":[\"a\"]}");
	assert_int_equal(parse(f, (struct str){b.data, b.len}, NULL), -ERR_TOO_LARGE);
	assert_string_equal(f->err.text, "The arguments are too large.");
	assert_true(arena_used(f->a) - used < 8192);
	buf_free(&b);
}

static void little_memory(void **state)
{
	struct fixture f = {.a = arena_new(8192)};
	struct buf b = BUF_INIT((size_t)1024 * 1024);
	int i;

	buf_puts(&b, "{\"commands\":[\"");
	for (i = 0; i < 9000; i++)
		buf_putc(&b, 'x');
	buf_puts(&b, "\"]}");
	assert_int_equal(parse(&f, (struct str){b.data, b.len}, NULL), -ERR_NOMEM);
	assert_true(f.err.text[0] != '\0');
	buf_free(&b);
	arena_free(f.a);
}

static void written_arguments(struct fixture *f, const char *arguments, const char *want)
{
	struct buf b = BUF_INIT(65536), again = BUF_INIT(65536);

	takes(f, arguments);
	assert_int_equal(tool_shell.write_arguments(f->call, &b), 0);
	assert_string_equal(buf_cstr(&b), want);
	/* Reading what was written and writing it again changes nothing: that is a replay. */
	takes(f, buf_cstr(&b));
	assert_int_equal(tool_shell.write_arguments(f->call, &again), 0);
	assert_string_equal(buf_cstr(&again), want);
	buf_free(&b);
	buf_free(&again);
}

static void arguments_written_back(void **state)
{
	struct fixture *f = *state;

	written_arguments(f, "{ \"commands\" : [ \"a\\u0041\\/\" ] , \"z\" : 1 }",
	        "{\"commands\":[\"aA/\"]}");
	written_arguments(f, "{\"max_output_length\":70000.5,\"timeout_ms\":1,\"command\":\"\\n\"}",
	        "{\"commands\":[\"\\n\"],\"timeout_ms\":1,\"max_output_length\":70000}");
	written_arguments(f, "{\"commands\":[\"a\"],\"timeout_ms\":1e300}",
	        "{\"commands\":[\"a\"],\"timeout_ms\":9223372036854775807}");
}

/* ---- results ---- */

static void result_is(const struct result *r, const char *want)
{
	struct buf b = BUF_INIT(65536);

	assert_int_equal(tool_shell.result_text(r, &b), 0);
	assert_string_equal(buf_cstr(&b), want);
	buf_free(&b);
}

static void results(void **state)
{
	struct command_output out[] = {
	        {.out = STR("5050\n"),
	                .err = STR("\"w\" \xe2\x80\xa8 \x01"),
	                .done = true,
	                .out_truncated = true,
	                .out_chars = 99},
	        {.outcome = OUTCOME_TIMEOUT, .exit_code = 7, .out = STR("half")},
	        {.exit_code = 137, .signal = STR("SIGKILL"), .reason = STR("memory")},
	};
	struct result r = {.outputs = out,
	        .n_outputs = 3,
	        .container_id = STR("gen_1"),
	        .max_output_length = 5};

	result_is(&r,
	        "{\"output\":[{\"stdout\":\"5050\\n\",\"stderr\":\"\\\"w\\\" \xe2\x80\xa8 "
	        "\\u0001\","
	        "\"outcome\":{\"type\":\"exit\",\"exit_code\":0}},"
	        "{\"stdout\":\"half\",\"stderr\":\"\",\"outcome\":{\"type\":\"timeout\"}},"
	        "{\"stdout\":\"\",\"stderr\":\"\",\"outcome\":{\"type\":\"exit\",\"exit_code\":137,"
	        "\"signal\":\"SIGKILL\",\"reason\":\"memory\"}}]}");
	r.n_outputs = 1;
	r.error = STR("The container ended.");
	out[0].err = (struct str){NULL, 0};
	result_is(&r, "{\"output\":[{\"stdout\":\"5050\\n\",\"stderr\":\"\",\"outcome\":{\"type\":"
	              "\"exit\","
	              "\"exit_code\":0}}],\"error\":\"The container ended.\"}");
	r.n_outputs = 0;
	result_is(&r, "{\"error\":\"The container ended.\"}");
	r.error = (struct str){NULL, 0};
	result_is(&r, "{\"output\":[]}");
}

/* ---- what the model is told ---- */

static void declaration(void **state)
{
	struct json_doc *doc;
	struct error err;
	const struct json *properties;

	assert_int_equal(json_parse(str_of(tool_shell.schema), 65536, &doc, &err), 0);
	assert_true(str_is(json_str(json_get(json_root(doc), "type")), "object"));
	properties = json_get(json_root(doc), "properties");
	assert_int_equal(json_count(properties), 3);
	assert_true(str_is(json_str(json_get(json_get(properties, "commands"), "type")), "array"));
	assert_true(
	        str_is(json_str(json_get(json_get(properties, "timeout_ms"), "type")), "integer"));
	assert_true(str_is(
	        json_str(json_get(json_get(properties, "max_output_length"), "type")), "integer"));
	assert_int_equal(json_count(json_get(json_root(doc), "required")), 1);
	json_doc_free(doc);
	assert_true(strlen(tool_shell.description) < 2000);
	assert_non_null(strstr(tool_shell.description, "/workspace/home"));
	assert_string_equal(tool_shell.name, "shell");
}

static void the_table(void **state)
{
	assert_ptr_equal(tool_find(STR("openrouter:shell")), &tool_shell);
	assert_ptr_equal(tool_find(STR("brig:shell")), &tool_shell);
	assert_null(tool_find(STR("shell")));
	assert_null(tool_find(STR("openrouter:shel")));
	assert_null(tool_find(STR("openrouter:shell2")));
	assert_null(tool_find((struct str){NULL, 0}));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(good_arguments, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(tolerated, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(too_much_is_lowered, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(request_parameters, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(bad_arguments, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(how_many, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(how_long, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(hostile_arguments, set_up, tear_down),
	        cmocka_unit_test(little_memory),
	        cmocka_unit_test_setup_teardown(arguments_written_back, set_up, tear_down),
	        cmocka_unit_test(results),
	        cmocka_unit_test(declaration),
	        cmocka_unit_test(the_table),
	};

	return UNIT_RUN(tests);
}
