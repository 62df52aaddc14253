/* brig/script: which call is next, and what it says. */
#include "load.h"

static char *run_loaded(struct loaded *l)
{
	struct error err = {0};
	struct dump d;
	char *out;

	dump_init(&d);
	if (provider_script.local(&l->pc, dump_event, &d, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(d.over);
	out = strdup(buf_cstr(&d.text));
	dump_free(&d);
	return out;
}

static char *run(const char *json)
{
	struct loaded l;
	char *out;

	load_text(&l, json, SIZE_MAX);
	out = run_loaded(&l);
	load_free(&l);
	return out;
}

/* Runs and checks that every part appears, in this order. */
#define says(json, ...) says_all(__LINE__, json, (const char *const[]){__VA_ARGS__, NULL})
static void says_all(int line, const char *json, const char *const *parts)
{
	char *out = run(json), *at = out;

	for (; *parts; parts++) {
		char *found = strstr(at, *parts);

		if (!found)
			fail_msg("line %d: no \"%s\" (after what came before) in:\n%s", line,
			        *parts, out);
		at = found + strlen(*parts);
	}
	free(out);
}

static void says_not(const char *json, const char *part)
{
	char *out = run(json);

	if (strstr(out, part))
		fail_msg("\"%s\" in:\n%s", part, out);
	free(out);
}

#define SHELL      "\"tools\":[{\"function\":\"f\"},{\"server\":\"shell\"}],"
#define USER(text) "\"items\":[{\"message\":\"user\",\"parts\":\"" text "\"}]"
#define ONE        "\"items\":[{\"message\":\"user\",\"parts\":\"```\\nls\\n```\"}]"
#define FIRST_LINE "text \"brig/script is no model"

static void test_one_call(void **state)
{
	says("{" SHELL ONE "}", "begin id=\"script_", "model=\"script\"", "call id=\"call_",
	        "name=\"shell\"", "args \"{\\\"commands\\\":[\\\"ls\\\"]}\"\n",
	        "usage input=0 cached=0 cache_write=0 output=0", "end calls");
}

static void test_languages(void **state)
{
	says("{" SHELL USER("a\\n```\\none\\n```\\n```sh\\ntwo\\n```\\n```BASH\\nthree\\n```\\n"
	                    "~~~shell\\nfour\\n~~~\\n```python\\nno\\n```\\n   ```bash\\nfive\\n   "
	                    "```") "}",
	        "[\\\"one\\\",\\\"two\\\",\\\"three\\\",\\\"four\\\",\\\"five\\\"]");
}

static void test_fences(void **state)
{
	/* A longer fence holds shorter ones; other blocks may hold what looks like ours. */
	says("{" SHELL USER("````bash\\ncat "
	                    "<<E\\n```\\nE\\n````\\n```md\\n~~~\\n```\\n```\\nlast\\n```") "}",
	        "[\\\"cat <<E\\\\n```\\\\nE\\\",\\\"last\\\"]");
	/* Not closed: to the end. Not a fence: too short, indented, or inline. */
	says("{" SHELL USER("``\\nno\\n``\\n    ```\\nno\\n```a``` inline\\n```\\nyes") "}",
	        "commands\\\":[\\\"yes\\\"]");
	says("{" SHELL USER("```\\r\\necho a\\r\\necho b\\r\\n```\\r\\n---\\r\\n") "}",
	        "[\\\"echo a\\\\necho b\\\"]");
	says("{" SHELL USER("```\\n\\n  \\n```\\n```\\nls\\n```") "}", "commands\\\":[\\\"ls\\\"]");
}

static void test_options(void **state)
{
	says("{" SHELL USER("```bash timeout_ms=5000 max_output_length=100\\nls\\n```") "}",
	        "{\\\"commands\\\":[\\\"ls\\\"],\\\"timeout_ms\\\":5000,\\\"max_output_length\\\":"
	        "100}");
	says("{" SHELL USER("``` timeout_ms=7\\nls\\n```") "}", "\\\"timeout_ms\\\":7}");
	says("{" SHELL USER("```bash timeout_ms=007 max_output_length=-1 timeout_ms=x "
	                    "other=1\\nls\\n```") "}",
	        "{\\\"commands\\\":[\\\"ls\\\"]}");
	says("{" SHELL USER("```bash timeout_ms=99999999999999999999\\nls\\n```") "}",
	        "{\\\"commands\\\":[\\\"ls\\\"]}");
}

#define TWO USER("```\\na\\n```\\n---\\n---\\n```\\nb\\n```\\n```\\nc\\n```\\n---")
#define CALL(n, cmd)                                                                               \
	",{\"call\":{\"id\":\"s" n "_x\",\"name\":\"shell\",\"server\":true,\"arguments\":"        \
	"\"{\\\"commands\\\":[\\\"" cmd "\\\"]}\"},\"reply\":" n "}"
#define RESULT(n, out)                                                                             \
	",{\"result\":{\"id\":\"s" n "_x\",\"outputs\":[{\"out\":\"" out "\",\"exit\":0}]}}"

static const char two_steps[] =
        "\"items\":[{\"message\":\"user\",\"parts\":\"```\\na\\n```\\n---\\n```\\nb\\n```\"}";

static char *joined(const char *a, const char *b, const char *c)
{
	char *s = malloc(strlen(a) + strlen(b) + strlen(c) + 1);

	strcpy(stpcpy(stpcpy(s, a), b), c);
	return s;
}

static void test_steps(void **state)
{
	char *json;

	says("{" SHELL TWO "}", "commands\\\":[\\\"a\\\"]");
	json = joined("{" SHELL, two_steps, CALL("0", "a") RESULT("0", "A") "]}");
	says(json, "commands\\\":[\\\"b\\\"]", "end calls");
	free(json);
	json = joined("{" SHELL, two_steps,
	        CALL("0", "a") RESULT("0", "A") CALL("1", "b") RESULT("1", "B") "]}");
	says(json, FIRST_LINE, "$ a\\nA\\n[exit 0]", "$ b\\nB\\n[exit 0]", "end stop");
	free(json);
	/* The next message starts again. */
	json = joined("{" SHELL, two_steps,
	        CALL("0", "a")
	                RESULT("0", "A") ",{\"message\":\"user\",\"parts\":\"```\\nnew\\n```\"}]}");
	says(json, "commands\\\":[\\\"new\\\"]");
	free(json);
}

static void test_sum(void **state)
{
	says("{" SHELL "\"items\":[{\"message\":\"user\",\"parts\":\"```\\npython3 -c "
	     "'print(sum(range(101)))'\\n```\"}" CALL("0", "python3 -c 'print(sum(range(101)))'")
	                RESULT("0", "5050\\n") "]}",
	        FIRST_LINE, "$ python3 -c 'print(sum(range(101)))'\\n5050\\n[exit 0]", "end stop");
}

static void test_outcomes(void **state)
{
	says("{" SHELL "\"items\":[{\"message\":\"user\",\"parts\":\"x\"},"
	     "{\"call\":{\"id\":\"s0_x\",\"name\":\"shell\",\"server\":true,\"arguments\":"
	     "\"{\\\"commands\\\":[\\\"a\\\",\\\"b\\\",\\\"c\\\"]}\"},\"reply\":0},"
	     "{\"result\":{\"id\":\"s0_x\",\"outputs\":[{\"out\":\"o\",\"err\":\"e\",\"exit\":3},"
	     "{\"timeout\":true},{\"signal\":\"SIGKILL\",\"reason\":\"memory\",\"exit\":137}],"
	     "\"error\":\"init died\"}}]}",
	        "$ a\\no\\ne\\n[exit 3]", "$ b\\n[stopped at its deadline]",
	        "$ c\\n[ended by SIGKILL: memory]", "Not run: init died");
}

static void test_refused_call(void **state)
{
	says("{" SHELL "\"items\":[{\"message\":\"user\",\"parts\":\"```\\nx\\n```\"},"
	     "{\"call\":{\"id\":\"s0_x\",\"name\":\"shell\",\"server\":true,\"arguments\":\"{\","
	     "\"error\":\"over the limit\"},\"reply\":0}]}",
	        FIRST_LINE, "Not run: over the limit");
}

static void test_how_to_use(void **state)
{
	says("{" SHELL USER("Hello there") "}", FIRST_LINE, "no such block", "```bash", "end stop");
	says("{\"tools\":[{\"function\":\"f\"}]," ONE "}", FIRST_LINE, "offers no server tool");
	says("{" ONE "}", FIRST_LINE, "offers no server tool");
	says("{\"items\":[]}", FIRST_LINE, "no such block");
	says("{\"choice\":\"none\"," SHELL ONE "}", FIRST_LINE, "tool_choice");
	says_not("{\"choice\":\"none\"," SHELL ONE "}", "call id");
}

static void test_tool_choice(void **state)
{
	char *json;

	says("{\"choice\":\"required\"," SHELL ONE "}", "call id", "name=\"shell\"");
	says("{\"choice\":{\"name\":\"shell\"}," SHELL ONE "}", "call id", "name=\"shell\"");
	says("{\"choice\":{\"mode\":\"auto\",\"allowed\":[\"shell\"]}," SHELL ONE "}",
	        "name=\"shell\"");
	says("{\"choice\":{\"mode\":\"auto\",\"allowed\":[\"f\"]}," SHELL ONE "}", FIRST_LINE,
	        "tool_choice");
	says("{\"tools_off\":true," SHELL ONE "}", FIRST_LINE, "tool_choice");
	/* A client's function is called once, when it is demanded. */
	says("{\"choice\":{\"name\":\"f\"}," SHELL ONE "}", "name=\"f\"", "args \"{}\"",
	        "end calls");
	says("{\"choice\":{\"name\":\"f\"}," SHELL "\"items\":[{\"message\":\"user\",\"parts\":"
	     "\"x\"},{\"call\":{\"id\":\"s0_x\",\"name\":"
	     "\"f\",\"arguments\":\"{}\"},\"reply\":0},{\"result\":{\"id\":\"s0_x\",\"parts\":\"F "
	     "says\"}}]}",
	        FIRST_LINE, "F says", "end stop");
	says("{\"choice\":{\"name\":\"unknown\"}," SHELL ONE "}", FIRST_LINE);
	/* The cap came in the middle. */
	json = joined(
	        "{\"tools_off\":true," SHELL, two_steps, CALL("0", "a") RESULT("0", "A") "]}");
	says(json, FIRST_LINE, "$ a\\nA", "were not run", "end stop");
	free(json);
}

static void test_renamed_tool(void **state)
{
	says("{\"tools\":[{\"function\":\"shell\"},{\"server\":\"brig_shell\"}]," ONE "}",
	        "name=\"brig_shell\"");
}

static void test_large_output_goes_through(void **state)
{
	struct loaded l;
	char *big = malloc(100001), *out;
	struct command_output *o;

	memset(big, 'x', 100000);
	big[100000] = 0;
	load_text(&l,
	        "{" SHELL "\"items\":[{\"message\":\"user\",\"parts\":\"```\\na\\n```\"}" CALL(
	                "0", "a") RESULT("0", "A") "]}",
	        SIZE_MAX);
	o = &l.c->items[2]->result.outputs[0];
	o->out = str_of(big);
	out = run_loaded(&l);
	assert_non_null(strstr(out, big));
	assert_non_null(strstr(out, "[exit 0]"));
	free(out);
	free(big);
	load_free(&l);
}

static void test_emit_can_stop(void **state)
{
	struct loaded l;

	load_text(&l, "{" SHELL USER("Hello") "}", SIZE_MAX);
	for (int stop = 1; stop <= 5; stop++) {
		struct dump d;

		dump_init(&d);
		d.stop_after = stop;
		assert_int_equal(provider_script.local(&l.pc, dump_event, &d, NULL), -ERR_CANCELED);
		assert_int_equal(d.n_events, stop);
		dump_free(&d);
	}
	load_free(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_one_call),
	        cmocka_unit_test(test_languages),
	        cmocka_unit_test(test_fences),
	        cmocka_unit_test(test_options),
	        cmocka_unit_test(test_steps),
	        cmocka_unit_test(test_sum),
	        cmocka_unit_test(test_outcomes),
	        cmocka_unit_test(test_refused_call),
	        cmocka_unit_test(test_how_to_use),
	        cmocka_unit_test(test_tool_choice),
	        cmocka_unit_test(test_renamed_tool),
	        cmocka_unit_test(test_large_output_goes_through),
	        cmocka_unit_test(test_emit_can_stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
