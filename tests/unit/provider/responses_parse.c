/*
 * Each tests/cases/responses-stream/NAME.sse or NAME.json is the body of an answer; NAME.events is
 * what must come out (cases.h).
 */
#include "cases.h"

#include "provider/openai_responses.h"

#define DIR_STREAM CASES_DIR "/responses-stream"

static void test_streams(void **state)
{
	cases_answers(&provider_openai_responses, DIR_STREAM, ".sse", NULL);
}

static void test_whole_answers(void **state)
{
	cases_answers(&provider_openai_responses, DIR_STREAM, ".json", NULL);
}

/* Whatever emit returns ends the parsing, at every event, and comes back from feed or end. */
static void test_emit_can_stop(void **state)
{
	size_t n;
	char *data = file_read(DIR_STREAM "/parallel-interleaved.sse", &n);

	for (int stop = 1; stop < 40; stop++) {
		struct provider_parser *p =
		        provider_openai_responses.open(NULL, STR("text/event-stream"));
		struct dump d;
		int r;

		dump_init(&d);
		d.stop_after = stop;
		r = provider_openai_responses.feed(p, data, n, dump_event, &d);
		if (r == 0)
			r = provider_openai_responses.end(p, NULL, dump_event, &d);
		if (d.n_events == stop) {
			assert_int_equal(r, -ERR_CANCELED);
			assert_int_equal(
			        provider_openai_responses.feed(p, data, n, dump_event, &d), 0);
			assert_int_equal(provider_openai_responses.end(p, NULL, dump_event, &d), 0);
			assert_int_equal(d.n_events, stop);
		} else {
			assert_int_equal(r, 0);
		}
		provider_openai_responses.close(p);
		dump_free(&d);
	}
	free(data);
}

static void test_counts_malformed_lines(void **state)
{
	static const char body[] =
	        "data: {\"type\":\"response.created\",\"response\":{\"id\":\"x\"}}\n\n"
	        "data: {oops\n\ndata: nonsense\n\n"
	        "data: {\"type\":\"response.completed\",\"response\":{\"id\":\"x\"}}\n\n";
	struct provider_parser *p = provider_openai_responses.open(NULL, STR("text/event-stream"));
	struct dump d;

	dump_init(&d);
	assert_int_equal(
	        provider_openai_responses.feed(p, body, sizeof(body) - 1, dump_event, &d), 0);
	assert_int_equal(openai_responses_parse_malformed(p), 2);
	assert_int_equal(provider_openai_responses.end(p, NULL, dump_event, &d), 0);
	assert_string_equal(buf_cstr(&d.text), "begin id=\"x\" model=\"\"\nend stop\n");
	provider_openai_responses.close(p);
	dump_free(&d);
}

/* ---- limits ---- */

/* Feeds one event made n times, and gives what came out at the end. */
static void feed_many(struct dump *d, const char *event, size_t n)
{
	struct provider_parser *p = provider_openai_responses.open(NULL, STR("text/event-stream"));

	dump_init(d);
	for (size_t i = 0; i < n && !d->over; i++) {
		struct buf line = BUF_INIT((size_t)32 << 20);

		for (const char *c = event; *c; c++)
			if (*c == '#')
				buf_u64(&line, i);
			else
				buf_putc(&line, *c);
		buf_puts(&line, "\n\n");
		assert_int_equal(
		        provider_openai_responses.feed(p, line.data, line.len, dump_event, d), 0);
		buf_free(&line);
	}
	provider_openai_responses.end(p, NULL, dump_event, d);
	assert_true(d->over);
	provider_openai_responses.close(p);
}

static void test_limits(void **state)
{
	static const struct {
		const char *event, *says;
	} rows[] = {
	        {"data: {\"type\":\"response.output_item.added\",\"output_index\":#,"
	         "\"item\":{\"type\":\"function_call\",\"id\":\"f#\",\"call_id\":\"c#\","
	         "\"name\":\"f\"}}",
	                "more than 256 tool calls"},
	        {"data: {\"type\":\"response.output_item.added\",\"output_index\":#,"
	         "\"item\":{\"type\":\"message\",\"id\":\"m#\"}}",
	                "too many items"},
	        {"data: {\"type\":\"response.output_text.delta\",\"output_index\":0,"
	         "\"content_index\":#,\"delta\":\"x\"}",
	                "too many parts"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct dump d;

		feed_many(&d, rows[i].event, 5000);
		assert_non_null(strstr(buf_cstr(&d.text), rows[i].says));
		dump_free(&d);
	}
}

static int count_bytes(void *ctx, const struct stream_event *ev)
{
	size_t *n = ctx;

	if (ev->type == STREAM_ERROR)
		*n = SIZE_MAX;
	else if (*n != SIZE_MAX)
		*n += ev->text.n;
	return 0;
}

/* Megabytes in one item: arguments end at 4 MiB, a reply at 64 MiB. */
static void check_size(const char *before, size_t at_least, size_t at_most)
{
	struct provider_parser *p = provider_openai_responses.open(NULL, STR("text/event-stream"));
	struct buf event = BUF_INIT((size_t)4 << 20);
	size_t n = 0, last = 0;

	buf_puts(&event, before);
	for (size_t i = 0; i < (size_t)1 << 20; i++)
		buf_putc(&event, 'x');
	buf_puts(&event, "\"}\n\n");
	for (int i = 0; i < 100 && n != SIZE_MAX; i++) {
		last = n;
		provider_openai_responses.feed(p, event.data, event.len, count_bytes, &n);
	}
	assert_true(n == SIZE_MAX);
	assert_true(last >= at_least && last <= at_most);
	provider_openai_responses.close(p);
	buf_free(&event);
}

static void test_sizes(void **state)
{
	check_size("data: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":0,"
	           "\"name\":\"f\",\"delta\":\"",
	        (size_t)4 << 20, (size_t)4 << 20);
	check_size("data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"",
	        (size_t)63 << 20, (size_t)64 << 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_streams),
	        cmocka_unit_test(test_whole_answers),
	        cmocka_unit_test(test_emit_can_stop),
	        cmocka_unit_test(test_counts_malformed_lines),
	        cmocka_unit_test(test_limits),
	        cmocka_unit_test(test_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
