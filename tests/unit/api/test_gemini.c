/*
 * The Gemini API: what requests are understood as (contents.txt, fields.txt) and how bad ones are
 * refused (bad.txt); that a shell's texts can be read back whatever they hold; and the framings of
 * an answer. That turns replay as they were is checked with random ones.
 */
#include "support.h"

#include "api/gemini.h"
#include "base/mem.h"

#include <stdlib.h>

static const char *cases_path;

static int parse(
        const char *body, const struct config *config, struct turn_request *ret, struct error *err)
{
	struct api_request in = {
	        .body = mem_strndup(body, strlen(body)),
	        .body_len = strlen(body),
	        .config = config,
	        .path_model = STR("p/m"),
	};

	return api_gemini.parse(&in, STR("a request"), ret, err);
}

/* ---- requests ---- */

/* What dump_request() does not show. */
static void dump_more(const struct conversation *c, struct buf *out)
{
	if (c->settings.thinking_budget.p || c->settings.include_thoughts >= 0)
		buf_printf(out, "thinking budget=%.*s shown=%d\n",
		        (int)c->settings.thinking_budget.n, c->settings.thinking_budget.p,
		        c->settings.include_thoughts);
	for (size_t i = 0; i < c->n_tools; i++)
		if (c->tools[i].kind != TOOL_SERVER)
			buf_printf(out, "tool %zu raw %.*s\n", i, (int)c->tools[i].raw.n,
			        c->tools[i].raw.p);
	for (size_t i = 0; i < c->n_items; i++) {
		const struct item *it = c->items[i];

		if (it->type == ITEM_RESULT && it->result.is_error)
			buf_printf(out, "item %zu is an error\n", i);
		if (it->opaque.n && it->type != ITEM_REASONING)
			buf_printf(
			        out, "item %zu opaque=%.*s\n", i, (int)it->opaque.n, it->opaque.p);
		for (size_t k = 0; k < it->n_parts; k++)
			if (it->parts[k].raw.n)
				buf_printf(out, "item %zu part %zu raw %.*s\n", i, k,
				        (int)it->parts[k].raw.n, it->parts[k].raw.p);
		for (size_t k = 0; k < it->result.n_parts; k++)
			buf_printf(out, "item %zu result %zu raw %.*s\n", i, k,
			        (int)it->result.parts[k].raw.n, it->result.parts[k].raw.p);
	}
}

static void request_case(const struct test_case *c, struct buf *ret_got)
{
	struct config config = test_config(case_text(c, "config"));
	struct turn_request r;
	struct error err;

	memset(&err, 0x5a, sizeof(err));
	memset(&r, 0x5a, sizeof(r));
	if (parse(case_text(c, "request"), &config, &r, &err)) {
		buf_printf(ret_got, "HTTP %d\n", error_http_status(&err));
		api_error_body_google(&err, ret_got);
		return;
	}
	assert_int_equal(r.conversation->dialect, DIALECT_GEMINI);
	assert_true(r.options.compact_arguments);
	dump_request(&r, ret_got);
	dump_more(r.conversation, ret_got);
	turn_request_free(&r);
}

static void test_requests(void **state)
{
	static const char *const files[] = {"contents.txt", "fields.txt", "bad.txt", NULL};

	assert_true(cases_run_all(cases_path, files, request_case) >= 80);
}

static void test_every_cut(void **state)
{
	static const char body[] =
	        "{\"contents\":[{\"role\":\"user\",\"parts\":[{\"text\":\"\\u00e9\"}]},{\"role\":"
	        "\"model\",\"parts\":[{\"executableCode\":{\"id\":\"s0_c.g\",\"code\":\"ls\"}},"
	        "{\"codeExecutionResult\":{\"id\":\"s0_c.g\",\"outcome\":\"OUTCOME_OK\",\"output\":"
	        "\"a\"}},{\"text\":\"\",\"thoughtSignature\":\"YnJpZzEueA==\"}]}],"
	        "\"tools\":[{\"brigShell\":{}}]}";

	test_cuts(parse, body, "{\"contents\":1}");
}

/* Many calls and answers are found in less than the square of their number. */
static void test_many_calls(void **state)
{
	struct config config = test_config(NULL);
	struct buf b = test_buf();
	struct turn_request r;
	struct error err;

	buf_puts(&b, "{\"contents\":[");
	for (int i = 0; i < 30000; i++)
		buf_printf(&b,
		        "%s{\"role\":\"model\",\"parts\":[{\"functionCall\":{\"name\":\"f\"}}]},"
		        "{\"role\":\"user\",\"parts\":[{\"functionResponse\":{\"name\":\"f\"}}]}",
		        i ? "," : "");
	buf_puts(&b, "]}");
	assert_int_equal(parse(b.data, &config, &r, &err), 0);
	assert_int_equal(r.conversation->n_items, 60000);
	turn_request_free(&r);
	buf_reset(&b);
	buf_puts(&b, "{\"contents\":[{\"role\":\"model\",\"parts\":[");
	for (int i = 0; i < 50000; i++)
		buf_printf(&b, "%s{\"functionCall\":{\"name\":\"f\"}}", i ? "," : "");
	buf_puts(&b, "]},{\"role\":\"user\",\"parts\":[");
	for (int i = 0; i < 50000; i++)
		buf_printf(&b, "%s{\"functionResponse\":{\"name\":\"f\"}}", i ? "," : "");
	buf_puts(&b, "]}]}");
	assert_int_equal(parse(b.data, &config, &r, &err), -ERR_INVALID);
	buf_free(&b);
}

/* ---- a shell's texts ---- */

static struct str random_text(struct unit_random *random, char out[256])
{
	static const char *const all[] = {"a", "\n", "é", "[error]", "\n[error]",
	        "# brig:", "# brig: commands=1\n", "# brig: arguments\n",
	        "[exit code 0; stdout 1 bytes, ", "stderr 0 bytes]",
	        "\n[exit code 3; stdout 0 bytes, stderr 0 bytes]",
	        "[timeout; stdout 1 bytes, stderr 0 bytes]", "\t", "😀", "]", "12"};
	size_t n = unit_below(random, 6);

	out[0] = '\0';
	for (size_t i = 0; i < n; i++)
		strncat(out, all[unit_below(random, sizeof(all) / sizeof(*all))],
		        255 - strlen(out));
	return str_of(out);
}

static void check_call(struct unit_random *random)
{
	char texts[3][256];
	struct str commands[3];
	struct tool_call t = {.commands = commands, .n_commands = 1 + unit_below(random, 3)};
	struct call call = {.parsed = &t};
	struct buf code = test_buf(), got = test_buf(), want = test_buf();

	for (size_t i = 0; i < t.n_commands; i++)
		commands[i] = random_text(random, texts[i]);
	t.has_timeout = unit_below(random, 3) == 0;
	t.has_output = unit_below(random, 3) == 0;
	t.asked_timeout = t.has_timeout ? (int64_t)unit_below(random, 1000000) + 1 : 0;
	t.asked_output = t.has_output ? INT64_MAX : 0;
	assert_int_equal(gemini_code_write(&call, &code), 0);
	assert_int_equal(
	        gemini_code_read(&tool_shell, (struct str){buf_cstr(&code), code.len}, &got), 0);
	assert_int_equal(tool_shell.write_arguments(&t, &want), 0);
	assert_string_equal(buf_cstr(&got), buf_cstr(&want));
	buf_free(&code);
	buf_free(&got);
	buf_free(&want);
}

static void check_arguments(struct unit_random *random)
{
	char text[256];
	struct call call = {.arguments = random_text(random, text)};
	struct buf code = test_buf(), got = test_buf();

	assert_int_equal(gemini_code_write(&call, &code), 0);
	assert_int_equal(
	        gemini_code_read(&tool_shell, (struct str){buf_cstr(&code), code.len}, &got), 0);
	assert_string_equal(buf_cstr(&got), text);
	buf_free(&code);
	buf_free(&got);
}

static void check_output(struct unit_random *random)
{
	char out[256], err[256];
	struct command_output got,
	        o = {.out = random_text(random, out),
	                .err = random_text(random, err),
	                .outcome = unit_below(random, 3) ? OUTCOME_EXIT : OUTCOME_TIMEOUT};
	struct str error = {NULL, 0};
	struct buf text = test_buf();
	const char *outcome;

	if (unit_below(random, 2))
		o.err.n = 0;
	if (o.outcome == OUTCOME_EXIT && unit_below(random, 2))
		o.exit_code = (int)unit_below(random, 256);
	if (unit_below(random, 4) == 0)
		o.signal = STR("SIGKILL");
	if (unit_below(random, 4) == 0)
		o.reason = STR("memory");
	outcome = gemini_code_write_output(&o, &text);
	assert_true(gemini_code_read_output(
	        str_of(outcome), (struct str){buf_cstr(&text), text.len}, &got, &error));
	assert_true(str_eq(got.out, o.out) && str_eq(got.err, o.err));
	assert_int_equal(got.outcome, o.outcome);
	assert_int_equal(got.exit_code, o.exit_code);
	assert_true(str_eq(got.signal, o.signal) && str_eq(got.reason, o.reason));
	buf_reset(&text);
	gemini_code_write_error(o.out, &text);
	assert_false(gemini_code_read_output(
	        STR("OUTCOME_FAILED"), (struct str){buf_cstr(&text), text.len}, &got, &error));
	assert_true(str_eq(error, o.out));
	buf_free(&text);
}

static void test_texts_read_back(void **state)
{
	struct unit_random random = {1};

	for (int i = 0; i < 20000; i++) {
		check_call(&random);
		check_arguments(&random);
		check_output(&random);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_requests),
	        cmocka_unit_test(test_every_cut),
	        cmocka_unit_test(test_many_calls),
	        cmocka_unit_test(test_texts_read_back),
	};

	if (argc != 2)
		return 2;
	cases_path = argv[1];
	return UNIT_RUN(tests);
}
