/* A provider that sends too much gets an error, and costs no more memory than its bound. */
#include "util.h"

#include "base/clock.h"

struct reply {
	struct provider_parser *p;
	struct dump d;
};

static void reply_open(struct reply *r)
{
	dump_init(&r->d);
	r->p = provider_openai_chat.open(NULL, STR("text/event-stream"));
}

static void reply_close(struct reply *r)
{
	provider_openai_chat.close(r->p);
	dump_free(&r->d);
}

static void feed(struct reply *r, struct str s)
{
	assert_int_equal(provider_openai_chat.feed(r->p, s.p, s.n, dump_event, &r->d), 0);
}

static void feed_chunk(struct reply *r, const char *delta)
{
	struct buf b = BUF_INIT((size_t)32 << 20);

	buf_printf(&b, "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":%s}]}\n\n", delta);
	feed(r, (struct str){b.data, b.len});
	buf_free(&b);
}

static void expect_error(struct reply *r, const char *part)
{
	const char *line = strstr(buf_cstr(&r->d.text), "error 502");

	assert_true(r->d.over);
	assert_non_null(line);
	if (!strstr(line, part))
		fail_msg("wanted \"%s\" in: %s", part, line);
}

static char *filled(const char *before, char c, size_t n, const char *after)
{
	char *s = malloc(strlen(before) + n + strlen(after) + 1), *at = stpcpy(s, before);

	memset(at, c, n);
	strcpy(at + n, after);
	return s;
}

static int drop_event(void *ctx, const struct stream_event *ev)
{
	int *last = ctx;

	*last = ev->type;
	return 0;
}

static void test_reply_of_64_mib(void **state)
{
	struct provider_parser *p = provider_openai_chat.open(NULL, STR("text/event-stream"));
	char *delta = filled("data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"", 'x',
	        (size_t)1 << 20, "\"}}]}\n\n");
	int last = -1;

	for (int i = 0; i < 64; i++) {
		assert_int_equal(
		        provider_openai_chat.feed(p, delta, strlen(delta), drop_event, &last), 0);
		assert_int_equal(last, STREAM_DELTA);
	}
	provider_openai_chat.feed(p, delta, strlen(delta), drop_event, &last);
	assert_int_equal(last, STREAM_ERROR);
	provider_openai_chat.close(p);
	free(delta);
}

static void test_arguments_of_4_mib(void **state)
{
	struct reply r;
	char *delta =
	        filled("{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\","
	               "\"arguments\":\"",
	                'x', (size_t)3 << 20, "\"}}]}");

	reply_open(&r);
	feed_chunk(&r, delta);
	assert_false(r.d.over);
	feed_chunk(&r, delta);
	expect_error(&r, "4 MiB");
	reply_close(&r);
	free(delta);
}

static void test_257_calls(void **state)
{
	struct reply r;
	char delta[200];

	reply_open(&r);
	for (int i = 0; i < 257; i++) {
		assert_false(r.d.over);
		snprintf(delta, sizeof(delta),
		        "{\"tool_calls\":[{\"index\":%d,\"id\":\"c%d\",\"function\":{\"name\":"
		        "\"f\","
		        "\"arguments\":\"{}\"}}]}",
		        i, i);
		feed_chunk(&r, delta);
	}
	expect_error(&r, "256");
	reply_close(&r);
}

static void test_event_of_16_mib(void **state)
{
	struct reply r;
	char *line = filled("data: \"", 'x', (size_t)17 << 20, "\"\n\n");

	reply_open(&r);
	feed(&r, str_of(line));
	expect_error(&r, "too large");
	reply_close(&r);
	free(line);
}

static void test_endless_line(void **state)
{
	struct reply r;
	char *part = filled("", 'x', (size_t)1 << 20, "");

	reply_open(&r);
	feed(&r, STR("data: "));
	for (int i = 0; i < 20 && !r.d.over; i++)
		feed(&r, str_of(part));
	expect_error(&r, "too large");
	reply_close(&r);
	free(part);
}

static void test_nested_brackets(void **state)
{
	struct reply r;
	char *line = filled("data: ", '[', 1000000, "\n\n");

	reply_open(&r);
	feed(&r, str_of(line)); /* malformed, skipped */
	feed_chunk(&r, "{\"content\":\"x\"}");
	assert_false(r.d.over);
	assert_int_equal(openai_chat_parse_malformed(r.p), 1);
	reply_close(&r);
	free(line);
}

static void test_alternating_items(void **state)
{
	struct reply r;

	reply_open(&r);
	for (int i = 0; i < 10001 && !r.d.over; i++)
		feed_chunk(&r, i % 2 ? "{\"content\":\"x\"}" : "{\"reasoning\":\"x\"}");
	expect_error(&r, "too many parts");
	reply_close(&r);
}

static void test_details_of_4_mib(void **state)
{
	struct reply r;
	char *delta =
	        filled("{\"reasoning_details\":[{\"type\":\"reasoning.encrypted\",\"index\":0,"
	               "\"data\":\"",
	                'x', (size_t)3 << 20, "\"}]}");

	reply_open(&r);
	feed_chunk(&r, delta);
	assert_false(r.d.over);
	feed_chunk(&r, delta);
	expect_error(&r, "details");
	reply_close(&r);
	free(delta);
}

/* Ids and names that no server needs are as if not given. */
static void test_long_id_and_name(void **state)
{
	struct reply r;
	char *id = filled("", 'i', 2000, ""), *name = filled("", 'n', 300, "");
	struct buf delta = BUF_INIT(8192);

	buf_printf(&delta,
	        "{\"tool_calls\":[{\"index\":0,\"id\":\"%s\",\"function\":{\"name\":\"%s\","
	        "\"arguments\":\"{}\"}}]}",
	        id, name);
	reply_open(&r);
	feed_chunk(&r, buf_cstr(&delta));
	feed(&r, STR("data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"));
	assert_non_null(strstr(buf_cstr(&r.d.text), "call id=<minted> name=\"\""));
	assert_non_null(strstr(buf_cstr(&r.d.text), "end calls"));
	reply_close(&r);
	buf_free(&delta);
	free(id);
	free(name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_reply_of_64_mib),
	        cmocka_unit_test(test_arguments_of_4_mib),
	        cmocka_unit_test(test_257_calls),
	        cmocka_unit_test(test_event_of_16_mib),
	        cmocka_unit_test(test_endless_line),
	        cmocka_unit_test(test_nested_brackets),
	        cmocka_unit_test(test_alternating_items),
	        cmocka_unit_test(test_details_of_4_mib),
	        cmocka_unit_test(test_long_id_and_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
