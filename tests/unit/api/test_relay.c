/* Relaying: requests and answers that are edited by byte span, in any cut. */
#include "unit.h"

#include "api/relay.h"
#include "json/json.h"

#include <malloc.h>
#include <string.h>

#define MODEL "p/m \"x\""
#define SHOWN "\"p/m \\\"x\\\"\""

/* ---- requests ---- */

static const struct request_case {
	enum dialect dialect;
	bool openrouter;
	const char *body, *want;
} request_cases[] = {
        {DIALECT_OPENAI_CHAT, false, "{\"model\":\"a\",\"x\":1.0}",
                "{\"model\":" SHOWN ",\"x\":1.0}"},
        {DIALECT_OPENAI_CHAT, false, " { \"x\" : [1,{\"model\":\"a\"}] ,\n\"model\" : \"a\" }\n",
                " { \"x\" : [1,{\"model\":\"a\"}] ,\n\"model\" : " SHOWN " }\n"},
        {DIALECT_OPENAI_CHAT, false, "{\"mod\\u0065l\":\"a\"}", "{\"mod\\u0065l\":" SHOWN "}"},
        /* What is left out takes its comma with it, wherever it stands. */
        {DIALECT_OPENAI_CHAT, false, "{\"models\":[\"b\"],\"model\":\"a\"}",
                "{\"model\":" SHOWN "}"},
        {DIALECT_OPENAI_CHAT, false, "{\"model\":\"a\", \"models\":[\"b\"] }",
                "{\"model\":" SHOWN " }"},
        {DIALECT_OPENAI_CHAT, false,
                "{ \"trace\":{},\n \"models\":[], \"model\":\"a\",\"plugins\":[{}],\"z\":0}",
                "{ \"model\":" SHOWN ",\"z\":0}"},
        {DIALECT_OPENAI_CHAT, false,
                "{\"provider\":{\"order\":[\"a,b\"]},\"x\":\"}\",\"usage\":{\"include\":true}}",
                "{\"x\":\"}\",\"model\":" SHOWN "}"},
        {DIALECT_OPENAI_CHAT, false, "{\"models\":[\"b\"]}", "{\"model\":" SHOWN "}"},
        {DIALECT_OPENAI_CHAT, false, "{\"m\\u006fdels\":[],\"model\":\"a\"}",
                "{\"model\":" SHOWN "}"},
        /* OpenRouter itself keeps what is its own. */
        {DIALECT_OPENAI_CHAT, true,
                "{\"provider\":{},\"models\":[],\"model\":\"a\",\"session_id\":\"s\"}",
                "{\"provider\":{},\"model\":" SHOWN ",\"session_id\":\"s\"}"},
        {DIALECT_OPENAI_RESPONSES, false,
                "{\"model\":\"a\",\"max_tool_calls\":3,\"session_id\":\"s\"}",
                "{\"model\":" SHOWN ",\"max_tool_calls\":3}"},
        {DIALECT_ANTHROPIC, false, "{\"max_tool_calls\":3,\"cache_control\":{},\"model\":\"a\"}",
                "{\"cache_control\":{},\"model\":" SHOWN "}"},
        {DIALECT_GEMINI, false, "{\"contents\":[],\"models\":[], \"model\":\"kept\"}",
                "{\"contents\":[], \"model\":\"kept\"}"},
};

static void test_requests(void **state)
{
	for (size_t i = 0; i < sizeof(request_cases) / sizeof(*request_cases); i++) {
		const struct request_case *c = &request_cases[i];
		struct buf out = BUF_INIT(1 << 20);
		struct json_doc *doc;

		assert_int_equal(relay_request(c->dialect, str_of(c->body), str_of(MODEL),
		                         c->openrouter, &out),
		        0);
		assert_string_equal(buf_cstr(&out), c->want);
		assert_int_equal(
		        json_parse((struct str){out.data, out.len}, 1 << 20, &doc, NULL), 0);
		json_doc_free(doc);
		buf_free(&out);
	}
}

static void test_a_request_that_does_not_fit(void **state)
{
	struct buf out = BUF_INIT(10);

	assert_true(relay_request(DIALECT_OPENAI_CHAT, STR("{\"model\":\"a\",\"x\":1.0}"),
	                    str_of(MODEL), false, &out) < 0);
	buf_free(&out);
}

static void test_sealed(void **state)
{
	assert_true(relay_holds_sealed(STR("{\"signature\":\"brig1.AA\"}")));
	assert_false(relay_holds_sealed(STR("{\"text\":\"about brig1. and more\"}")));
}

/* ---- answers ---- */

static const struct answer_case {
	enum dialect dialect;
	bool events;
	const char *in, *want;
} answer_cases[] = {
        {DIALECT_OPENAI_CHAT, true, "data: {\"model\":\"up\",\"n\":1.0}\n\ndata: [DONE]\n\n",
                "data: {\"model\":" SHOWN ",\"n\":1.0}\n\ndata: [DONE]\n\n"},
        {DIALECT_OPENAI_CHAT, true, "data:{ \"model\" :\t\"u\\\"p\\u0041\" }\r\n\r\n",
                "data:{ \"model\" :\t" SHOWN " }\r\n\r\n"},
        {DIALECT_OPENAI_CHAT, true, "data: {\"mo\\u0064el\":\"up\",\"model\":\"again\"}\r\r",
                "data: {\"mo\\u0064el\":" SHOWN ",\"model\":" SHOWN "}\r\r"},
        /* Not the model's name: another level, another type, another field, no JSON. */
        {DIALECT_OPENAI_CHAT, true,
                "data: "
                "{\"a\":{\"model\":\"x\"},\"b\":[\"model\",\"x\"],\"model\":null,\"c\":\"model\"}"
                "\n\n",
                NULL},
        {DIALECT_OPENAI_CHAT, true,
                "event: {\"model\":\"x\"}\nid: {\"model\":\"x\"}\n: {\"model\":\"x\"}\n\n", NULL},
        {DIALECT_OPENAI_CHAT, true, "dat: {\"model\":\"x\"}\ndata\ndatax: {\"model\":\"x\"}\n\n",
                NULL},
        {DIALECT_OPENAI_CHAT, true,
                "data: {\"model\":\"x\n\ndata: \"model\":\"x\"\n\ndata: {\"model\":\"", NULL},
        {DIALECT_OPENAI_CHAT, true, "data: {\"model\":[\"x\",\"y\"],\"z\":{\"model\":\"x\"}}\n\n",
                NULL},
        {DIALECT_OPENAI_CHAT, true, "data: {\"model\":{\"model\":\"x\"}}\n\n", NULL},
        /* One object in several lines. */
        {DIALECT_OPENAI_CHAT, true, "data: {\ndata: \"model\":\ndata: \"up\"}\n\n",
                "data: {\ndata: \"model\":\ndata: " SHOWN "}\n\n"},
        /* A broken event does no harm to the next. */
        {DIALECT_OPENAI_CHAT, true, "data: {\"a\":[[[{\"b\n\ndata: {\"model\":\"up\"}\n\n",
                "data: {\"a\":[[[{\"b\n\ndata: {\"model\":" SHOWN "}\n\n"},
        {DIALECT_OPENAI_CHAT, true,
                "\xef\xbb\xbf"
                "data: {\"model\":\"up\"}\n\n",
                "\xef\xbb\xbf"
                "data: {\"model\":" SHOWN "}\n\n"},
        {DIALECT_OPENAI_CHAT, true,
                "\xef\xbb"
                "data: {\"model\":\"up\"}\n\n",
                NULL},
        {DIALECT_OPENAI_CHAT, false, "\n{\"model\":\"up\",\"x\":[{\"model\":\"up\"}]}\n",
                "\n{\"model\":" SHOWN ",\"x\":[{\"model\":\"up\"}]}\n"},
        {DIALECT_OPENAI_RESPONSES, true,
                "data: "
                "{\"model\":\"kept\",\"response\":{\"id\":\"r\",\"model\":\"up\",\"a\":{\"model\":"
                "\"kept\"}},"
                "\"other\":{\"model\":\"kept\"}}\n\n",
                "data: {\"model\":\"kept\",\"response\":{\"id\":\"r\",\"model\":" SHOWN
                ",\"a\":{\"model\":\"kept\"}},"
                "\"other\":{\"model\":\"kept\"}}\n\n"},
        {DIALECT_OPENAI_RESPONSES, false, "{\"model\":\"up\",\"response\":{\"model\":\"kept\"}}",
                "{\"model\":" SHOWN ",\"response\":{\"model\":\"kept\"}}"},
        {DIALECT_ANTHROPIC, true,
                "data: {\"message\":{\"content\":[{\"model\":\"kept\"}],\"model\":\"up\"}}\n\n",
                "data: {\"message\":{\"content\":[{\"model\":\"kept\"}],\"model\":" SHOWN "}}\n\n"},
        {DIALECT_ANTHROPIC, false, "{\"model\":\"up\"}", "{\"model\":" SHOWN "}"},
        {DIALECT_GEMINI, true, "data: {\"modelVersion\":\"up\",\"model\":\"kept\"}\r\n\r\n",
                "data: {\"modelVersion\":" SHOWN ",\"model\":\"kept\"}\r\n\r\n"},
        {DIALECT_GEMINI, false,
                "[{\"modelVersion\":\"up\"}\n,{\"a\":{\"modelVersion\":\"kept\"},\"modelVersion\":"
                "\"up\"}]",
                "[{\"modelVersion\":" SHOWN
                "}\n,{\"a\":{\"modelVersion\":\"kept\"},\"modelVersion\":" SHOWN "}]"},
};

/* Feeds two pieces, or pieces of one byte. */
static void feed(const struct answer_case *c, size_t cut, bool bytewise, struct buf *out)
{
	struct relay *r = relay_new(c->dialect, c->events, str_of(MODEL));
	size_t n = strlen(c->in);

	for (size_t i = 0; bytewise && i < n; i++)
		assert_int_equal(relay_feed(r, c->in + i, 1, out), 0);
	if (!bytewise) {
		assert_int_equal(relay_feed(r, c->in, cut, out), 0);
		assert_int_equal(relay_feed(r, c->in + cut, n - cut, out), 0);
	}
	assert_int_equal(relay_end(r, out), 0);
	relay_free(r);
}

static void test_answers(void **state)
{
	for (size_t i = 0; i < sizeof(answer_cases) / sizeof(*answer_cases); i++) {
		const struct answer_case *c = &answer_cases[i];

		for (size_t cut = 0; cut <= strlen(c->in) + 1; cut++) {
			struct buf out = BUF_INIT(1 << 20);
			bool bytewise = cut > strlen(c->in);

			feed(c, cut, bytewise, &out);
			assert_string_equal(buf_cstr(&out), c->want ? c->want : c->in);
			buf_free(&out);
		}
	}
}

/* What may be sent after each byte: whole events, and at once. */
static void test_events_come_whole(void **state)
{
	static const char *const ends[] = {"\n\n", "\r\n\r\n", "\r\r"};

	for (size_t i = 0; i < 3; i++) {
		struct relay *r = relay_new(DIALECT_OPENAI_CHAT, true, STR("m"));
		struct buf out = BUF_INIT(1 << 20);
		char event[64];

		str_format(event, sizeof(event), "data: {\"a\":\"b\"}%s", ends[i]);
		for (size_t round = 0; round < 3; round++) {
			size_t n = strlen(event);

			for (size_t k = 0; k + 1 < n; k++) {
				bool half_end = i == 1 && k + 2 == n;

				assert_int_equal(relay_feed(r, event + k, 1, &out), 0);
				assert_int_equal(out.len, round * n);
				assert_int_equal(relay_between(r), half_end);
			}
			assert_int_equal(relay_feed(r, event + n - 1, 1, &out), 0);
			assert_int_equal(out.len, (round + 1) * n);
			assert_true(relay_between(r));
		}
		relay_free(r);
		buf_free(&out);
	}
}

/* An event beyond the bound comes in pieces, and little is kept of it. */
static void test_large_event(void **state)
{
	struct relay *r = relay_new(DIALECT_OPENAI_CHAT, true, STR("m"));
	struct buf out = BUF_INIT(4 << 20), piece = BUF_INIT(1 << 20);
	struct mallinfo2 before;
	char text[4096];
	size_t total;

	memset(text, 'x', sizeof(text));
	relay_feed(r, "data: {\"c\":\"", 12, &out);
	before = mallinfo2();
	for (size_t i = 0; i < 2000; i++) {
		assert_int_equal(relay_feed(r, text, sizeof(text), &piece), 0);
		assert_true(piece.len <= 80 * 1024);
		total = out.len + piece.len;
		out.len = total; /* only counted */
		buf_free(&piece);
		if (i > 20)
			assert_false(relay_between(r));
	}
	assert_true(mallinfo2().uordblks < before.uordblks + 160 * 1024);
	buf_reset(&piece);
	assert_int_equal(relay_feed(r, "\",\"model\":\"up\"}\n\n", 17, &piece), 0);
	assert_non_null(strstr(buf_cstr(&piece), "\",\"model\":\"m\"}\n\n"));
	assert_int_equal(total + piece.len, 12 + 2000 * sizeof(text) + 16);
	assert_true(relay_between(r));
	relay_free(r);
	out.len = 0;
	buf_free(&out);
	buf_free(&piece);
}

/* ---- the end ---- */

static const struct api_identity who = {
        .id = "gen-1", .created_s = 7, .model = "p/m", .provider = "p"};

static char *broken(enum dialect d, const char *in, struct buf *out)
{
	struct relay *r = relay_new(d, true, STR("p/m"));
	struct error e;

	error_set(&e, ERR_UPSTREAM, "It broke.");
	assert_int_equal(relay_feed(r, in, strlen(in), out), 0);
	relay_break(r, &who, true, &e, out);
	relay_free(r);
	return out->data;
}

static void test_breaks(void **state)
{
	static const struct {
		enum dialect dialect;
		const char *in, *want;
	} cases[] = {
	        {DIALECT_OPENAI_CHAT, "data: {\"model\":\"up\"}\n\ndata: {\"hal",
	                "data: {\"model\":\"p/m\"}\n\ndata: "
	                "{\"id\":\"gen-1\",\"object\":\"chat.completion.chunk\",\"created\":7,"
	                "\"model\":\"p/"
	                "m\",\"provider\":\"p\",\"choices\":[{\"index\":0,\"delta\":{},"
	                "\"logprobs\":null,"
	                "\"finish_reason\":\"error\"}],\"error\":{\"message\":\"It "
	                "broke.\",\"type\":\"server_error\",\"param\":null,"
	                "\"code\":\"server_error\",\"metadata\":{\"error_type\":\"provider_"
	                "unavailable\"}}}\n\n"},
	        {DIALECT_ANTHROPIC, "event: x\ndata: {}\n\nevent: half",
	                "event: x\ndata: {}\n\nevent: error\ndata: "
	                "{\"type\":\"error\",\"error\":{\"type\":\"api_error\","
	                "\"message\":\"It broke.\"},\"request_id\":\"gen-1\"}\n\n"},
	        {DIALECT_GEMINI, "data: {}\r\n\r\ndata",
	                "data: {}\r\n\r\ndata: {\"error\":{\"code\":502,\"message\":\"It "
	                "broke.\",\"status\":\"INTERNAL\"}}\n\n"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct buf out = BUF_INIT(1 << 20);
		const char *got = broken(cases[i].dialect, cases[i].in, &out);

		if (cases[i].dialect ==
		        DIALECT_GEMINI) /* whose name for the status is not ours to say */
			assert_memory_equal(got, cases[i].want,
			        strlen("data: {}\r\n\r\ndata: {\"error\":{\"code\":502,"));
		else
			assert_string_equal(got, cases[i].want);
		buf_free(&out);
	}
}

static void test_break_of_responses(void **state)
{
	struct buf out = BUF_INIT(1 << 20);
	const char *got = broken(DIALECT_OPENAI_RESPONSES,
	        "data: "
	        "{\"sequence_number\":0,\"response\":{\"id\":\"re\\u0073p_1\",\"a\":{\"id\":\"no\"}"
	        "}}\n\n"
	        "data: {\"sequence_number\":12,\"x\":{\"sequence_number\":99}}\n\ndata: "
	        "{\"sequence_number\":1",
	        &out);

	assert_non_null(strstr(got, "\"type\":\"error\",\"sequence_number\":13,"));
	assert_non_null(strstr(got, "\"type\":\"response.failed\",\"sequence_number\":14,"
	                            "\"response\":{\"id\":\"re\\u0073p_1\","));
	assert_true(str_ends((struct str){out.data, out.len}, "\n\ndata: [DONE]\n\n"));
	buf_free(&out);
	/* Nothing is known of the response: nothing is said of it. */
	got = broken(DIALECT_OPENAI_RESPONSES, "data: {\"sequence_number\":0", &out);
	assert_non_null(
	        strstr(got, "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,"));
	assert_null(strstr(got, "response.failed"));
	buf_free(&out);
}

/* Part of an event was given out: it is ended, so that the error is an event of its own. */
static void test_break_within_a_large_event(void **state)
{
	struct buf in = BUF_INIT(1 << 20), out = BUF_INIT(1 << 20);

	buf_puts(&in, "data: {\"a\":\"");
	for (size_t i = 0; i < 100000; i++)
		buf_putc(&in, 'x');
	assert_non_null(
	        strstr(broken(DIALECT_ANTHROPIC, buf_cstr(&in), &out), "x\n\nevent: error\n"));
	buf_free(&in);
	buf_free(&out);
}

static void test_is_answer(void **state)
{
	static const struct {
		const char *text;
		bool is;
	} cases[] = {
	        {"{\"choices\":[],\"a\":1,\"a\":2}", true},
	        {"{\"choices\":[],\"error\":null}", true},
	        {"{\"choices\":[],\"error\":{\"message\":\"x\"}}", false},
	        {"{\"error\":\"x\",\"choices\":[]}", false},
	        {"{\"message\":{\"choices\":[]}}", false},
	        {"{\"choices\":[]", false},
	        {"<html>", false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct relay *r = relay_new(DIALECT_OPENAI_CHAT, false, STR("m"));
		struct buf out = BUF_INIT(1000);

		assert_int_equal(relay_feed(r, cases[i].text, strlen(cases[i].text), &out), 0);
		assert_int_equal(relay_is_answer(r), cases[i].is);
		relay_free(r);
		buf_free(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_requests),
	        cmocka_unit_test(test_a_request_that_does_not_fit),
	        cmocka_unit_test(test_sealed),
	        cmocka_unit_test(test_answers),
	        cmocka_unit_test(test_events_come_whole),
	        cmocka_unit_test(test_large_event),
	        cmocka_unit_test(test_breaks),
	        cmocka_unit_test(test_break_of_responses),
	        cmocka_unit_test(test_break_within_a_large_event),
	        cmocka_unit_test(test_is_answer),
	};

	return UNIT_RUN(tests);
}
