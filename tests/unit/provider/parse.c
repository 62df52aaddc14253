/*
 * Each tests/cases/chat/NAME.sse or NAME.json is the body of an answer; NAME.events is what must
 * come out. NAME.cut.sse ends with a cut connection. Every stream is fed whole, one byte at a time,
 * in two pieces at every place, and with its line ends as CRLF and as CR.
 */
#include "util.h"

#define DIR_CHAT CASES_DIR "/chat"

struct feeding {
	size_t first; /* bytes of the first piece */
	size_t rest;  /* of each further one; 0: all */
};

static void run(struct dump *d, struct str body, struct feeding how, bool is_json, bool cut)
{
	struct str type = is_json ? STR("application/json") : STR("text/event-stream");
	struct provider_parser *p = provider_openai_chat.open(NULL, type);
	struct error err = {0};
	size_t at = 0, n = how.first;

	dump_init(d);
	while (at < body.n) {
		char *piece;

		n = n > body.n - at ? body.n - at : n;
		/* A copy of exactly this size, so that a reader that looks further is noticed. */
		piece = malloc(n ? n : 1);
		memcpy(piece, body.p + at, n);
		assert_int_equal(provider_openai_chat.feed(p, piece, n, dump_event, d), 0);
		free(piece);
		at += n;
		n = how.rest ? how.rest : body.n;
	}
	error_set(&err, ERR_UPSTREAM, "the connection was cut");
	assert_int_equal(provider_openai_chat.end(p, cut ? &err : NULL, dump_event, d), 0);
	assert_int_equal(provider_openai_chat.end(p, NULL, dump_event, d), 0); /* no second end */
	assert_true(d->over);
	provider_openai_chat.close(p);
}

static char *with_line_ends(struct str body, const char *end, size_t *ret_len)
{
	struct buf b = BUF_INIT((size_t)64 << 20);

	for (size_t i = 0; i < body.n; i++)
		if (body.p[i] == '\n')
			buf_puts(&b, end);
		else
			buf_putc(&b, body.p[i]);
	return buf_steal(&b, ret_len);
}

static void same(const char *name, const char *how, const struct dump *want, struct dump *got)
{
	if (want->text.len != got->text.len ||
	        memcmp(buf_cstr(&want->text), buf_cstr(&got->text), want->text.len) != 0)
		fail_msg("%s, %s:\n--- whole\n%s\n--- got\n%s", name, how, buf_cstr(&want->text),
		        buf_cstr(&got->text));
	dump_free(got);
}

static void check_case(const char *name, bool is_json)
{
	char path[512];
	size_t n, other_len;
	struct dump whole, d;
	struct str body;
	char *data, *other;
	bool cut = strstr(name, ".cut.") != NULL;
	size_t stem = strlen(name) - (is_json ? 5 : 4);

	snprintf(path, sizeof(path), "%s/%s", DIR_CHAT, name);
	data = file_read(path, &n);
	body = (struct str){data, n};
	run(&whole, body, (struct feeding){n, 0}, is_json, cut);
	snprintf(path, sizeof(path), "%s/%.*s.events", DIR_CHAT, (int)stem, name);
	file_expect(path, (struct str){whole.text.data, whole.text.len});

	run(&d, body, (struct feeding){1, 1}, is_json, cut);
	same(name, "one byte at a time", &whole, &d);
	for (size_t i = 1; i < n; i++) {
		run(&d, body, (struct feeding){i, 0}, is_json, cut);
		same(name, "in two pieces", &whole, &d);
	}
	for (int i = 0; i < 2 && !is_json; i++) {
		other = with_line_ends(body, i ? "\r" : "\r\n", &other_len);
		run(&d, (struct str){other, other_len}, (struct feeding){other_len, 0}, false, cut);
		same(name, i ? "CR" : "CRLF", &whole, &d);
		run(&d, (struct str){other, other_len}, (struct feeding){1, 1}, false, cut);
		same(name, i ? "CR, one byte at a time" : "CRLF, one byte at a time", &whole, &d);
		free(other);
	}
	dump_free(&whole);
	free(data);
}

static void test_streams(void **state)
{
	char **names = folder_list(DIR_CHAT, ".sse");

	for (char **n = names; *n; n++)
		check_case(*n, false);
	folder_list_free(names);
}

static void test_whole_answers(void **state)
{
	char **names = folder_list(DIR_CHAT, ".json");

	for (char **n = names; *n; n++)
		check_case(*n, true);
	folder_list_free(names);
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
