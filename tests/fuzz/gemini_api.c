/*
 * Any bytes as a body of generateContent. What must hold: an error says what is wrong; a request
 * that is taken has a result for every call, and texts that are UTF-8; its answer is JSON in each
 * framing; and a result of the shell that was read reads the same when it is written again.
 */
#include "api/gemini.h"
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

static void check_output(const struct command_output *o)
{
	struct buf text = BUF_INIT(ROOM);
	struct command_output again;
	struct str error;
	const char *outcome = gemini_code_write_output(o, &text);

	MUST(gemini_code_read_output(
	        str_of(outcome), (struct str){buf_cstr(&text), text.len}, &again, &error));
	MUST(str_eq(again.out, o->out) && str_eq(again.err, o->err));
	MUST(again.outcome == o->outcome && again.exit_code == o->exit_code);
	MUST(str_eq(again.signal, o->signal) && str_eq(again.reason, o->reason));
	buf_free(&text);
}

static void check_item(const struct conversation *c, const struct item *it)
{
	struct buf text = BUF_INIT(ROOM);

	check_text(it->opaque);
	for (size_t i = 0; i < it->n_parts; i++) {
		check_text(it->parts[i].text);
		check_text(it->parts[i].url);
		check_text(it->parts[i].data);
		if (it->parts[i].raw.n)
			check_json(it->parts[i].raw);
	}
	if (it->type == ITEM_OTHER)
		check_json(it->raw);
	if (it->type == ITEM_CALL) {
		MUST(it->call.public_id.n > 0 && it->call.arguments.p);
		check_text(it->call.arguments);
		MUST(conversation_call_result(c, it));
	}
	if (it->type == ITEM_RESULT && it->result.tool) {
		for (size_t i = 0; i < it->result.n_outputs; i++)
			check_output(&it->result.outputs[i]);
		MUST(it->result.tool->result_text(&it->result, &text) == 0);
		check_text((struct str){text.data, text.len});
	}
	buf_free(&text);
}

/* Says every item of the request as if this turn had said it. */
static void say(const struct turn_request *r, struct api_stream *s, struct buf *out)
{
	const struct conversation *c = r->conversation;
	struct turn_totals totals = {0};

	for (size_t i = 0; i <= c->n_items; i++) {
		struct turn_output o = {.type = OUT_END};

		if (i < c->n_items) {
			o.type = OUT_ITEM_END;
			o.item = c->items[i];
			if (o.item->type == ITEM_RESULT)
				continue;
			if (o.item->type == ITEM_CALL && o.item->call.tool) {
				o.type = OUT_TOOL_END;
				o.result = conversation_call_result(c, o.item);
			}
		}
		MUST(r->api->emit(s, &o, &totals, out) == 0);
		while (r->api->left(s) > 0)
			MUST(r->api->pull(s, out, 1000) == 0);
	}
}

static void check_answer(const struct turn_request *r, enum api_carrier carrier, bool array)
{
	static const struct api_identity who = {.id = "gen-1", .model = "p/m"};
	struct buf out = BUF_INIT(ROOM);
	struct api_stream *s;
	const char *at, *end, *newline;

	r->echo->array = array;
	s = r->api->open(r, &who, carrier);
	say(r, s, &out);
	end = out.data + out.len;
	if (carrier == API_WHOLE || array)
		check_json((struct str){out.data, out.len});
	for (at = out.data; at < end && carrier == API_SSE && !array; at = newline + 1) {
		newline = memchr(at, '\n', (size_t)(end - at));
		MUST(newline);
		if (newline == at)
			continue;
		MUST(str_starts((struct str){at, (size_t)(newline - at)}, "data: {"));
		check_json((struct str){at + 6, (size_t)(newline - at) - 6});
	}
	buf_free(&out);
	r->api->close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct config config = {
	        .sandbox = true, .limits = {.tool_calls = 30, .commands = 100}};
	struct api_request in = {.body = mem_strndup((const char *)data, n),
	        .body_len = n,
	        .config = &config,
	        .path_model = STR("p/m")};
	struct turn_request r;
	struct error err = {0};

	if (api_gemini.parse(&in, STR("seed"), &r, &err) < 0) {
		MUST(err.text[0] && error_http_status(&err) >= 400);
		check_text(str_of(err.text));
		check_text(str_of(err.param));
		return 0;
	}
	MUST(r.options.max_tool_calls >= 1 && r.options.max_tool_calls <= 30);
	MUST(!r.container_id[0] || api_container_id_valid(str_of(r.container_id)));
	for (size_t i = 0; i < r.conversation->n_items; i++)
		check_item(r.conversation, r.conversation->items[i]);
	check_answer(&r, API_WHOLE, false);
	check_answer(&r, API_SSE, false);
	check_answer(&r, API_SSE, true);
	turn_request_free(&r);
	return 0;
}
