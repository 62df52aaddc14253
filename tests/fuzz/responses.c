/*
 * Any bytes as a body of POST /responses. What must hold: an error says what is wrong; a request
 * that is taken has a result for every call, and texts that are UTF-8; its response object and its
 * stream are JSON that can be read back, each event in one line.
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

static void check_item(const struct conversation *c, const struct item *it)
{
	struct buf text = BUF_INIT(ROOM);

	check_text(it->id);
	check_text(it->status);
	check_text(it->opaque);
	for (size_t i = 0; i < it->n_parts; i++) {
		check_text(it->parts[i].text);
		check_text(it->parts[i].url);
		check_text(it->parts[i].data);
	}
	if (it->type == ITEM_CALL) {
		MUST(it->call.public_id.n > 0 && it->call.name.n > 0 && it->call.arguments.p);
		check_text(it->call.arguments);
		MUST(conversation_call_result(c, it));
	}
	if (it->type == ITEM_RESULT && it->result.tool) {
		MUST(it->result.tool->result_text(&it->result, &text) == 0);
		check_text((struct str){text.data, text.len});
	}
	buf_free(&text);
}

static void check_json(struct str text)
{
	struct json_doc *doc;
	struct error err;

	if (json_parse(text, ROOM, &doc, &err) < 0)
		BUG("%s", err.text);
	json_doc_free(doc);
}

static void check_answer(const struct turn_request *r, enum api_carrier carrier)
{
	static const struct api_identity who = {.id = "gen-1", .model = "p/m"};
	struct api_stream *s = r->api->open(r, &who, carrier);
	struct turn_totals totals = {0};
	struct buf out = BUF_INIT(ROOM);
	const char *at, *end, *newline;

	MUST(r->api->emit(s, &(struct turn_output){.type = OUT_BEGIN}, &totals, &out) == 0);
	while (r->api->left(s) > 0)
		MUST(r->api->pull(s, &out, 1000) == 0);
	MUST(r->api->emit(s, &(struct turn_output){.type = OUT_END}, &totals, &out) == 0);
	while (r->api->left(s) > 0)
		MUST(r->api->pull(s, &out, 1000) == 0);
	end = out.data + out.len;
	for (at = out.data; at < end; at = newline + 1) {
		newline = memchr(at, '\n', (size_t)(end - at));
		if (!newline)
			newline = end;
		if (carrier != API_SSE)
			check_json((struct str){at, (size_t)(newline - at)});
		else if (str_starts((struct str){at, (size_t)(newline - at)}, "data: {"))
			check_json((struct str){at + 6, (size_t)(newline - at) - 6});
	}
	buf_free(&out);
	r->api->close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct config config = {
	        .sandbox = true, .limits = {.tool_calls = 30, .commands = 100}};
	struct api_request in = {
	        .body = mem_strndup((const char *)data, n), .body_len = n, .config = &config};
	struct turn_request r;
	struct error err = {0};

	if (api_responses.parse(&in, STR("seed"), &r, &err) < 0) {
		MUST(err.text[0] && error_http_status(&err) >= 400);
		check_text(str_of(err.text));
		check_text(str_of(err.param));
		return 0;
	}
	MUST(r.options.max_tool_calls >= 1 && r.options.max_tool_calls <= 30);
	MUST(!r.container_id[0] || api_container_id_valid(str_of(r.container_id)));
	for (size_t i = 0; i < r.conversation->n_items; i++)
		check_item(r.conversation, r.conversation->items[i]);
	check_answer(&r, API_WHOLE);
	check_answer(&r, API_SSE);
	check_answer(&r, API_WEBSOCKET);
	turn_request_free(&r);
	return 0;
}
