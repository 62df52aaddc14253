/*
 * Each tests/cases/chat/NAME.sse or NAME.json is the body of an answer; NAME.events is what must
 * come out (stream_cases.h).
 */
#include "stream_cases.h"

#define DIR_CHAT CASES_DIR "/chat"

static void test_streams(void **state)
{
	stream_cases_check(&provider_openai_chat, DIR_CHAT, ".sse");
}

static void test_whole_answers(void **state)
{
	stream_cases_check(&provider_openai_chat, DIR_CHAT, ".json");
}

/* Whatever emit returns ends the parsing, at every event, and comes back from feed or end. */
static void test_emit_can_stop(void **state)
{
	size_t n;
	char *data = file_read(DIR_CHAT "/parallel-interleaved.sse", &n);

	for (int stop = 1; stop < 40; stop++) {
		struct provider_parser *p =
		        provider_openai_chat.open(NULL, STR("text/event-stream"));
		struct dump d;
		int r;

		dump_init(&d);
		d.stop_after = stop;
		r = provider_openai_chat.feed(p, data, n, dump_event, &d);
		if (r == 0)
			r = provider_openai_chat.end(p, NULL, dump_event, &d);
		if (d.n_events == stop) {
			assert_int_equal(r, -ERR_CANCELED);
			assert_int_equal(provider_openai_chat.feed(p, data, n, dump_event, &d), 0);
			assert_int_equal(provider_openai_chat.end(p, NULL, dump_event, &d), 0);
			assert_int_equal(d.n_events, stop);
		} else {
			assert_int_equal(r, 0);
		}
		provider_openai_chat.close(p);
		dump_free(&d);
	}
	free(data);
}

static void test_counts_malformed_lines(void **state)
{
	static const char body[] =
	        "data: {\"id\":\"x\",\"choices\":[]}\n\ndata: {oops\n\n"
	        "data: nonsense\n\ndata: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n";
	struct provider_parser *p = provider_openai_chat.open(NULL, STR("text/event-stream"));
	struct dump d;

	dump_init(&d);
	assert_int_equal(provider_openai_chat.feed(p, body, sizeof(body) - 1, dump_event, &d), 0);
	assert_int_equal(openai_chat_parse_malformed(p), 2);
	assert_int_equal(provider_openai_chat.end(p, NULL, dump_event, &d), 0);
	assert_string_equal(buf_cstr(&d.text), "begin id=\"x\" model=\"\"\nend stop\n");
	provider_openai_chat.close(p);
	dump_free(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_streams),
	        cmocka_unit_test(test_whole_answers),
	        cmocka_unit_test(test_emit_can_stop),
	        cmocka_unit_test(test_counts_malformed_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
