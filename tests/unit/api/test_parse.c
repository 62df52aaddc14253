/* Requests: each case of the files is a body, and what it was understood as or how it was refused.
 */
#include "support.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const char *cases_path;

static void run_case(const struct test_case *c, struct buf *ret_got)
{
	struct config config = test_config(case_text(c, "config"));
	const char *header = case_text(c, "header"), *under = case_text(c, "v1");
	struct turn_request r;
	struct error err;

	memset(&err, 0x5a, sizeof(err));
	memset(&r, 0x5a, sizeof(r));
	if (test_parse(case_text(c, "request"), header, &config, under != NULL, &r, &err)) {
		dump_error(&err, under != NULL, ret_got);
		return;
	}
	dump_request(&r, ret_got);
	turn_request_free(&r);
}

static void test_files(void **state)
{
	static const char *const files[] = {
	        "fields.txt", "tools.txt", "items.txt", "session.txt", "bad.txt", NULL};

	assert_true(cases_run_all(cases_path, files, run_case) >= 80);
}

static int parse(
        const char *body, const struct config *config, struct turn_request *ret, struct error *err)
{
	return test_parse(body, NULL, config, true, ret, err);
}

static void test_every_cut(void **state)
{
	static const char body[] =
	        "{\"model\":\"a/b\",\"input\":[{\"role\":\"user\",\"content\":\"\\u00e9\"},"
	        "{\"type\":\"openrouter:shell\",\"id\":\"st_1\",\"status\":\"completed\","
	        "\"call_id\":\"s0_c\",\"arguments\":\"{}\",\"output\":[{\"stdout\":\"a\","
	        "\"stderr\":\"\",\"outcome\":{\"type\":\"exit\",\"exit_code\":0}}]}],"
	        "\"tools\":[{\"type\":\"openrouter:shell\"}]}";

	test_cuts(parse, body, "{\"model\":1}");
}

static void repeat(struct buf *b, const char *what, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_printf(b, "%s%s", i ? "," : "", what);
}

static void expect_refused(struct buf *body, int status)
{
	struct config config = test_config(NULL);
	struct turn_request r;
	struct error err;

	assert_true(test_parse(buf_cstr(body), NULL, &config, true, &r, &err) < 0);
	assert_int_equal(error_http_status(&err), status);
	buf_free(body);
}

static void test_too_much(void **state)
{
	struct buf b = test_buf();

	buf_puts(&b, "{\"model\":\"m\",\"input\":[");
	repeat(&b, "1", 1000001);
	buf_puts(&b, "]}");
	expect_refused(&b, 413);
	buf_puts(&b, "{\"model\":\"m\",\"input\":[");
	repeat(&b, "{\"role\":\"user\",\"content\":\"\"}", 200001);
	buf_puts(&b, "]}");
	expect_refused(&b, 400);
	for (int i = 0; i < 1000; i++)
		buf_putc(&b, '[');
	expect_refused(&b, 400);
	buf_puts(&b, "{\"model\":\"m\",\"input\":\"\",\"tools\":[");
	repeat(&b, "{\"type\":\"function\",\"name\":\"f\"}", 1025);
	buf_puts(&b, "]}");
	expect_refused(&b, 400);
}

/* Many calls and results are found in less than the square of their number. */
static void test_many_calls(void **state)
{
	struct config config = test_config(NULL);
	struct buf b = test_buf();
	struct turn_request r;
	struct error err;

	buf_puts(&b, "{\"model\":\"m\",\"input\":[");
	for (int i = 0; i < 50000; i++)
		buf_printf(&b,
		        "%s{\"type\":\"function_call\",\"call_id\":\"c%d\",\"name\":\"f\","
		        "\"arguments\":\"{}\"}",
		        i ? "," : "", i);
	for (int i = 0; i < 50000; i++)
		buf_printf(&b,
		        ",{\"type\":\"function_call_output\",\"call_id\":\"c%d\",\"output\":\"\"}",
		        i);
	buf_puts(&b, "]}");
	assert_int_equal(test_parse(b.data, NULL, &config, true, &r, &err), 0);
	assert_int_equal(r.conversation->n_items, 100000);
	turn_request_free(&r);
	buf_free(&b);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_files),
	        cmocka_unit_test(test_every_cut),
	        cmocka_unit_test(test_too_much),
	        cmocka_unit_test(test_many_calls),
	};

	if (argc != 2)
		return 2;
	cases_path = argv[1];
	return UNIT_RUN(tests);
}
