/*
 * Any bytes as a body of POST /chat/completions. What must hold: an error says what is wrong; texts
 * of a request that is taken are UTF-8; its answer, which says all that the request's assistant
 * said, is JSON in each framing, each chunk in one line, and says the same texts whole and
 * streamed.
 */
#include "api/api.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "json/json.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { ROOM = 64 << 20 };

#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition))                                                                  \
			BUG("%s", #condition);                                                     \
	} while (0)

static void check_text(struct str s)
{
	MUST(s.n == 0 || (s.p && utf8_valid(s.p, s.n)));
}

static void check_item(const struct item *it)
{
	check_text(it->opaque);
	for (size_t i = 0; i < it->n_parts; i++) {
		check_text(it->parts[i].text);
		check_text(it->parts[i].url);
		check_text(it->parts[i].data);
	}
	if (it->type == ITEM_CALL) {
		MUST(it->call.public_id.n > 0 && it->call.name.n > 0 && it->call.arguments.p);
		check_text(it->call.arguments);
	}
	MUST(!it->call.tool && !it->result.tool);
}

/* Says an item of the request as if this turn had said it. */
static void say(
        const struct turn_request *r, struct api_stream *s, struct item *it, struct buf *out)
{
	struct turn_totals totals = {0};
	struct turn_output o = {.type = OUT_ITEM_BEGIN, .item = it};
	bool call = it->type == ITEM_CALL;

	it->output = true;
	MUST(r->api->emit(s, &o, &totals, out) == 0);
	for (uint32_t i = 0; i < (call ? 1 : it->n_parts); i++) {
		o.type = OUT_DELTA;
		o.part = i;
		o.part_type = call ? PART_TEXT : it->parts[i].type;
		o.text = call ? it->call.arguments : it->parts[i].text;
		while (r->api->left(s) > 0)
			MUST(r->api->pull(s, out, 1000) == 0);
		MUST(r->api->emit(s, &o, &totals, out) == 0);
	}
	while (r->api->left(s) > 0)
		MUST(r->api->pull(s, out, 1000) == 0);
	o.type = OUT_ITEM_END;
	MUST(r->api->emit(s, &o, &totals, out) == 0);
	while (r->api->left(s) > 0)
		MUST(r->api->pull(s, out, 1000) == 0);
}

static void answer(const struct turn_request *r, enum api_carrier carrier, struct buf *out)
{
	static const struct api_identity who = {.id = "gen-1", .model = "p/m"};
	const struct conversation *c = r->conversation;
	struct api_stream *s = r->api->open(r, &who, carrier);
	struct turn_totals totals = {0};

	MUST(r->api->emit(s, &(struct turn_output){.type = OUT_BEGIN}, &totals, out) == 0);
	for (size_t i = 0; i < c->n_items; i++)
		if (c->items[i]->role == ROLE_ASSISTANT && c->items[i]->type != ITEM_RESULT)
			say(r, s, c->items[i], out);
	MUST(r->api->emit(s, &(struct turn_output){.type = OUT_END}, &totals, out) == 0);
	while (r->api->left(s) > 0)
		MUST(r->api->pull(s, out, 1000) == 0);
	r->api->close(s);
}

static void read_text(struct str json, const char *inner, struct buf *text)
{
	struct json_doc *doc;
	struct error err;
	const struct json *choice;
	struct str content;

	if (json_parse(json, ROOM, &doc, &err) < 0)
		BUG("%s", err.text);
	choice = json_first(json_get(json_root(doc), "choices"));
	content = json_str(json_get(json_get(choice, inner), "content"));
	buf_append(text, content.p, content.n);
	json_doc_free(doc);
}

static void check_answers(const struct turn_request *r)
{
	struct buf whole = BUF_INIT(ROOM), events = BUF_INIT(ROOM);
	struct buf one = BUF_INIT(ROOM), other = BUF_INIT(ROOM);
	const char *at, *end, *newline;

	answer(r, API_WHOLE, &whole);
	read_text((struct str){whole.data, whole.len}, "message", &one);
	answer(r, API_SSE, &events);
	end = events.data + events.len;
	for (at = events.data; at < end; at = newline + 1) {
		struct str line;

		newline = memchr(at, '\n', (size_t)(end - at));
		MUST(newline);
		line = (struct str){at, (size_t)(newline - at)};
		MUST(line.n == 0 || str_starts(line, "data: {") || str_is(line, "data: [DONE]"));
		if (str_starts(line, "data: {"))
			read_text((struct str){at + 6, line.n - 6}, "delta", &other);
	}
	MUST(str_eq((struct str){one.data, one.len}, (struct str){other.data, other.len}));
	buf_free(&whole);
	buf_free(&events);
	buf_free(&one);
	buf_free(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct config config = {
	        .sandbox = true, .limits = {.tool_calls = 30, .commands = 100}};
	struct api_request in = {
	        .body = mem_strndup((const char *)data, n), .body_len = n, .config = &config};
	struct turn_request r;
	struct error err = {0};

	if (api_chat.parse(&in, STR("seed"), &r, &err) < 0) {
		MUST(err.text[0] && error_http_status(&err) >= 400);
		check_text(str_of(err.text));
		check_text(str_of(err.param));
		return 0;
	}
	MUST(!r.conversation->has_server_tool && !r.shell);
	for (size_t i = 0; i < r.conversation->n_items; i++)
		check_item(r.conversation->items[i]);
	if (r.only_here)
		MUST(r.only_here->text[0] && error_http_status(r.only_here) == 400);
	check_answers(&r);
	turn_request_free(&r);
	return 0;
}
