/*
 * Any bytes as a body of POST /messages. What must hold: an error says what is wrong; a request that
 * is taken has a result for every call, and texts that are UTF-8; what it holds of an assistant can
 * be said again as an answer, whose events are each one line of JSON, and whose whole form is JSON.
 */
#include "api/api.h"
#include "api/token_estimate.h"
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

static void check_json(struct str text)
{
	struct json_doc *doc;
	struct error err;

	if (json_parse(text, ROOM, &doc, &err) < 0)
		BUG("%s", err.text);
	json_doc_free(doc);
}

static void check_parts(const struct part *parts, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		check_text(parts[i].text);
		check_text(parts[i].url);
		check_text(parts[i].data);
		check_text(parts[i].filename);
		if (parts[i].raw.n > 0)
			check_json(parts[i].raw);
	}
}

static void check_item(const struct conversation *c, const struct item *it)
{
	struct buf text = BUF_INIT(ROOM);

	check_text(it->opaque);
	if (it->raw.n > 0)
		check_json(it->raw);
	check_parts(it->parts, it->n_parts);
	check_parts(it->result.parts, it->result.n_parts);
	if (it->type == ITEM_CALL) {
		MUST(it->call.public_id.n > 0 && it->call.name.n > 0 && it->call.arguments.p);
		check_text(it->call.arguments);
		check_text(it->call.public_id);
		MUST(conversation_call_result(c, it));
	}
	if (it->type == ITEM_RESULT && it->result.tool) {
		MUST(it->result.tool->result_text(&it->result, &text) == 0);
		check_text((struct str){text.data, text.len});
	}
	buf_free(&text);
}

/* ---- saying it again ---- */

static void emit(const struct api *api, struct api_stream *s, struct turn_output o, struct buf *out)
{
	static const struct turn_totals totals;

	MUST(api->emit(s, &o, &totals, out) == 0);
	while (api->left(s) > 0)
		MUST(api->pull(s, out, 1000) == 0);
}

static void say_item(const struct turn_request *r, struct api_stream *s, struct item *it,
        struct buf *out)
{
	const struct api *api = r->api;

	if (it->type == ITEM_CALL && it->call.tool) {
		emit(api, s, (struct turn_output){.type = OUT_TOOL_BEGIN, .item = it}, out);
		emit(api, s,
		        (struct turn_output){.type = OUT_TOOL_END,
		                .item = it,
		                .result = conversation_call_result(r->conversation, it)},
		        out);
		return;
	}
	emit(api, s, (struct turn_output){.type = OUT_ITEM_BEGIN, .item = it}, out);
	if (it->type == ITEM_CALL)
		emit(api, s,
		        (struct turn_output){
		                .type = OUT_DELTA, .item = it, .text = it->call.arguments},
		        out);
	for (size_t i = 0; i < it->n_parts; i++)
		emit(api, s,
		        (struct turn_output){.type = OUT_DELTA,
		                .item = it,
		                .part = (uint32_t)i,
		                .part_type = it->parts[i].type,
		                .text = it->parts[i].text},
		        out);
	emit(api, s, (struct turn_output){.type = OUT_ITEM_END, .item = it}, out);
}

static void check_lines(const struct buf *out, bool events)
{
	const char *end = out->data + out->len, *newline;

	if (!events) {
		check_json((struct str){out->data, out->len});
		return;
	}
	for (const char *at = out->data; at < end; at = newline + 1) {
		newline = memchr(at, '\n', (size_t)(end - at));
		MUST(newline);
		if (newline == at || str_starts((struct str){at, (size_t)(newline - at)}, "event: "))
			continue;
		MUST(str_starts((struct str){at, (size_t)(newline - at)}, "data: {"));
		check_json((struct str){at + 6, (size_t)(newline - at) - 6});
	}
}

static void check_answer(const struct turn_request *r, enum api_carrier carrier)
{
	static const struct api_identity who = {.id = "gen-1", .model = "p/m"};
	const struct conversation *c = r->conversation;
	struct api_stream *s = r->api->open(r, &who, carrier);
	struct buf out = BUF_INIT(ROOM);

	emit(r->api, s, (struct turn_output){.type = OUT_BEGIN}, &out);
	for (size_t i = 0; i < c->n_items; i++)
		if (c->items[i]->reply != REPLY_NONE)
			say_item(r, s, c->items[i], &out);
	r->api->keepalive(s, &out);
	emit(r->api, s, (struct turn_output){.type = OUT_END}, &out);
	check_lines(&out, carrier == API_SSE);
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

	if (api_messages.parse(&in, STR("seed"), &r, &err) < 0) {
		MUST(err.text[0] && error_http_status(&err) >= 400);
		check_text(str_of(err.text));
		check_text(str_of(err.param));
		return 0;
	}
	MUST(r.options.max_tool_calls >= 1 && r.options.max_tool_calls <= 30);
	MUST(!r.container_id[0] || api_container_id_valid(str_of(r.container_id)));
	MUST(token_estimate(r.conversation) > 0);
	for (size_t i = 0; i < r.conversation->n_items; i++)
		check_item(r.conversation, r.conversation->items[i]);
	check_answer(&r, API_WHOLE);
	check_answer(&r, API_SSE);
	turn_request_free(&r);
	return 0;
}
