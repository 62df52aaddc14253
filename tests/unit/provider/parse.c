/*
 * Each tests/cases/chat/NAME.sse or NAME.json is the body of an answer; NAME.events is what must
 * come out (cases.h).
 */
#include "cases.h"

#define DIR_CHAT CASES_DIR "/chat"

static void test_streams(void **state)
{
	cases_answers(&provider_openai_chat, DIR_CHAT, ".sse", NULL);
}

static void test_whole_answers(void **state)
{
	cases_answers(&provider_openai_chat, DIR_CHAT, ".json", NULL);
}

static void test_emit_can_stop(void **state)
{
	cases_emit_can_stop(
	        &provider_openai_chat, DIR_CHAT "/parallel-interleaved.sse", "{\"items\":[]}");
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
