/* The Chat Completions stream's side of the api's contract: pieces, what is kept, and what is not.
 */
#include "unit.h"

#include "api/api.h"
#include "base/mem.h"
#include "json/json.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 64 << 20 };

static const struct api_identity who = {
        .id = "gen-1", .created_s = 7, .model = "p/m", .provider = "p"};
static const struct config config;

static struct turn_request request(const char *fields)
{
	struct buf body = BUF_INIT(4096);
	struct api_request in = {.config = &config};
	struct turn_request r;
	struct error e;

	buf_printf(&body,
	        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]%s}", fields);
	in.body = buf_steal(&body, &in.body_len);
	assert_int_equal(api_chat.parse(&in, STR("seed"), &r, &e), 0);
	return r;
}

static struct item *said(struct turn_request *r, enum item_type type, struct str text)
{
	struct item *it = conversation_add(r->conversation, type);

	it->role = ROLE_ASSISTANT;
	it->output = true;
	it->parts = conversation_parts(r->conversation, 1);
	it->parts[0] = (struct part){
	        .type = type == ITEM_REASONING ? PART_REASONING : PART_TEXT, .text = text};
	it->n_parts = 1;
	return it;
}

static void emit(struct api_stream *s, struct turn_output o, struct buf *out)
{
	static const struct turn_totals totals;

	assert_int_equal(api_chat.left(s), 0);
	assert_int_equal(api_chat.emit(s, &o, &totals, out), 0);
}

static void drain(struct api_stream *s, struct buf *out, size_t room)
{
	while (api_chat.left(s) > 0) {
		size_t before = out->len;

		assert_int_equal(api_chat.pull(s, out, room), 0);
		assert_true(out->len > before && out->len <= before + room + 64 * 6);
	}
}

/* What a stream or a whole answer says as content. */
static void check_content(const struct buf *out, bool events, const char *inner, struct str want)
{
	struct buf got = BUF_INIT(ROOM);
	const char *at = out->data, *end = out->data + out->len;

	while (at < end) {
		const char *newline = events ? strstr(at, "\n\n") : end;
		size_t skip = events ? strlen("data: ") : 0;
		struct str text = {at + skip, (size_t)(newline - at) - skip}, content;
		struct json_doc *doc;

		at = newline + (events ? 2 : 0);
		if (str_is(text, "[DONE]"))
			continue;
		assert_int_equal(json_parse(text, ROOM, &doc, NULL), 0);
		content = json_str(
		        json_get(json_get(json_first(json_get(json_root(doc), "choices")), inner),
		                "content"));
		buf_append(&got, content.p, content.n);
		json_doc_free(doc);
		if (!events)
			break;
	}
	assert_int_equal(got.len, want.n);
	assert_memory_equal(got.data, want.p, want.n);
	buf_free(&got);
}

static char *large(size_t n)
{
	char *text = mem_alloc(n);

	for (size_t i = 0; i < n; i++)
		text[i] = "ab\"\\\n\xc3\xa9z"[i % 8];
	return text;
}

/* A delta's text is taken back when emit() returns; nothing stands between its pieces. */
static void test_large_delta(void **state)
{
	size_t n = 1 << 20;
	_cleanup_free_ char *kept = large(n), *lent = large(n);
	struct turn_request r = request(",\"stream\":true");
	struct api_stream *s = api_chat.open(&r, &who, API_SSE);
	struct item *it = said(&r, ITEM_MESSAGE, STR(""));
	struct buf out = BUF_INIT(ROOM), ping = BUF_INIT(100);

	emit(s, (struct turn_output){.type = OUT_BEGIN}, &out);
	emit(s, (struct turn_output){.type = OUT_DELTA, .item = it, .text = {lent, n}}, &out);
	memset(lent, 'X', n);
	assert_true(api_chat.left(s) > n / 2 && out.len < 80 * 1024);
	api_chat.keepalive(s, &ping);
	assert_int_equal(ping.len, 0);
	drain(s, &out, 1000);
	api_chat.keepalive(s, &ping);
	assert_string_equal(buf_cstr(&ping), ": ping\n");
	emit(s, (struct turn_output){.type = OUT_END}, &out);
	assert_true(str_ends((struct str){out.data, out.len}, "\n\ndata: [DONE]\n\n"));
	check_content(&out, true, "delta", (struct str){kept, n});
	buf_free(&out);
	buf_free(&ping);
	api_chat.close(s);
	turn_request_free(&r);
}

/* A whole answer never exists as a whole. */
static void test_large_answer(void **state)
{
	size_t n = 8 << 20;
	_cleanup_free_ char *text = large(n);
	struct turn_request r = request("");
	struct api_stream *s = api_chat.open(&r, &who, API_WHOLE);
	struct buf out = BUF_INIT(ROOM), piece = BUF_INIT(1 << 20);
	struct mallinfo2 before;

	said(&r, ITEM_MESSAGE, (struct str){text, n});
	emit(s, (struct turn_output){.type = OUT_BEGIN}, &out);
	assert_int_equal(out.len, 0);
	before = mallinfo2();
	emit(s, (struct turn_output){.type = OUT_END}, &piece);
	assert_true(mallinfo2().uordblks + mallinfo2().hblkhd <
	            before.uordblks + before.hblkhd + (1 << 20));
	assert_int_equal(api_chat.status(s), 200);
	buf_append(&out, piece.data, piece.len);
	drain(s, &out, 65536);
	check_content(&out, false, "message", (struct str){text, n});
	buf_free(&out);
	buf_free(&piece);
	api_chat.close(s);
	turn_request_free(&r);
}

static void test_whole_that_failed(void **state)
{
	struct turn_request r = request("");
	struct api_stream *s = api_chat.open(&r, &who, API_WHOLE);
	struct buf out = BUF_INIT(ROOM);
	struct error e;

	error_set(&e, ERR_RATE, "Slowly.");
	emit(s, (struct turn_output){.type = OUT_END, .status = TURN_FAILED, .error = &e}, &out);
	assert_int_equal(api_chat.status(s), 429);
	assert_non_null(strstr(buf_cstr(&out), "{\"error\":{\"message\":\"Slowly.\","));
	buf_free(&out);
	api_chat.close(s);
	turn_request_free(&r);
}

/* Opaque state of each kind of item comes out, and goes in again to the same kind. */
static void test_states_come_back(void **state)
{
	static const char again[] =
	        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"},";
	struct turn_request r = request("");
	struct api_stream *s = api_chat.open(&r, &who, API_WHOLE);
	struct buf out = BUF_INIT(ROOM), body = BUF_INIT(ROOM);
	struct item *thought = said(&r, ITEM_REASONING, STR("hm")),
	            *text = said(&r, ITEM_MESSAGE, STR("so")), *call;
	struct item *dark = said(&r, ITEM_REASONING, STR(""));
	struct api_request in = {.config = &config};
	struct turn_request back;
	const struct json *message;
	struct json_doc *doc;
	struct error e;

	dark->n_parts = 0;
	dark->redacted = true;
	call = said(&r, ITEM_CALL, STR(""));
	call->n_parts = 0;
	call->call =
	        (struct call){.public_id = STR("c1"), .name = STR("f"), .arguments = STR("{}")};
	thought->opaque = STR("brig1.t");
	dark->opaque = STR("brig1.d");
	text->opaque = STR("brig1.m");
	call->opaque = STR("brig1.c");
	emit(s, (struct turn_output){.type = OUT_END}, &out);
	drain(s, &out, 65536);
	assert_int_equal(json_parse((struct str){out.data, out.len}, ROOM, &doc, NULL), 0);
	message = json_get(json_first(json_get(json_root(doc), "choices")), "message");
	buf_puts(&body, again);
	buf_append(&body, json_raw(message).p, json_raw(message).n);
	buf_puts(&body, "]}");
	in.body = buf_steal(&body, &in.body_len);
	assert_int_equal(api_chat.parse(&in, STR("seed"), &back, &e), 0);
	assert_null(back.body.p); /* no provider is to see them */
	assert_int_equal(back.conversation->n_items, 5);
	for (size_t i = 1; i < 5; i++) {
		static const enum item_type types[] = {
		        ITEM_REASONING, ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL};
		static const char *const states[] = {"brig1.t", "brig1.d", "brig1.m", "brig1.c"};
		const struct item *it = back.conversation->items[i];

		assert_int_equal(it->type, types[i - 1]);
		assert_true(str_is(it->opaque, states[i - 1]));
		assert_int_equal(it->redacted, i == 2);
	}
	assert_true(str_is(back.conversation->items[1]->parts[0].text, "hm"));
	json_doc_free(doc);
	buf_free(&out);
	api_chat.close(s);
	turn_request_free(&r);
	turn_request_free(&back);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_large_delta),
	        cmocka_unit_test(test_large_answer),
	        cmocka_unit_test(test_whole_that_failed),
	        cmocka_unit_test(test_states_come_back),
	};

	return UNIT_RUN(tests);
}
