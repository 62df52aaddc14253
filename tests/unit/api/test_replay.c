/*
 * Replay: what a turn had said is what a client's next request says. Random turns run through the
 * real state machine; their streams go through the checker; their output goes back in as `input`,
 * and must read the same to a model: the same replies, calls, arguments and results. Three turns
 * follow each other, so that what was read back once is read back again.
 *
 * The same with the Gemini API, whose parts say less: no ids of messages, one text for what were
 * several parts.
 */
#include "support.h"

#include "checker.h"

#include "base/mem.h"
#include "tool/tool.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 300, TURNS = 3, EVENTS = 256 };

struct game {
	struct unit_random random;
	const struct api *api;
	const char *shell; /* type of the tool's entry; Gemini: its key */
	struct turn_request r;
	struct turn *turn;
	struct api_stream *s;
	struct buf sse;
	uint64_t now;
	unsigned replies_left;
	struct item *running;
	bool calling, storing, over;
	unsigned n_calls;
	struct conversation *texts; /* of the script */
};

static size_t below(struct game *g, size_t n)
{
	return unit_below(&g->random, n);
}

static struct str keep(struct game *g, const char *text)
{
	bool ok = true;

	return conversation_copy(g->texts, str_of(text), &ok);
}

static struct str words(struct game *g)
{
	static const char *const all[] = {"a", "\n", "\"q\"", "é", "😀", "\t\x1b[0m", " ", "\\n",
	        "<b>", "end", "\x7f", "{\"a\": 1}"};
	char text[256] = "";
	size_t n = 1 + below(g, 8);

	for (size_t i = 0; i < n; i++)
		strncat(text, all[below(g, sizeof(all) / sizeof(*all))],
		        sizeof(text) - strlen(text) - 1);
	return keep(g, text);
}

/* ---- turning the crank ---- */

static void drain(struct game *g)
{
	struct turn_effect e;

	while (turn_next_effect(g->turn, &e)) {
		struct turn_totals totals;

		switch (e.type) {
		case EFFECT_CALL_UPSTREAM:
			g->calling = true;
			break;
		case EFFECT_RUN_TOOL:
			g->running = e.item;
			break;
		case EFFECT_STORE:
			g->storing = true;
			break;
		case EFFECT_DONE:
			g->over = true;
			break;
		case EFFECT_EMIT:
			turn_totals(g->turn, g->now, &totals);
			assert_int_equal(g->api->emit(g->s, &e.output, &totals, &g->sse), 0);
			while (g->api->left(g->s) > 0)
				assert_int_equal(
				        g->api->pull(g->s, &g->sse, 1 + below(g, 5000)), 0);
			break;
		case EFFECT_PAUSE_UPSTREAM:
		case EFFECT_RESUME_UPSTREAM:
		case EFFECT_CANCEL_UPSTREAM:
		case EFFECT_PAUSE_TOOL:
		case EFFECT_RESUME_TOOL:
		case EFFECT_KILL_TOOL:
		case EFFECT_ARM_TIMER:
			break;
		}
	}
}

static void feed(struct game *g, struct turn_event ev)
{
	ev.now_ms = ++g->now;
	turn_feed(g->turn, &ev);
	drain(g);
}

static void stream(struct game *g, struct stream_event ev)
{
	feed(g, (struct turn_event){.type = TURN_STREAM, .stream = &ev});
}

/* ---- what a model says ---- */

static void say_parts(
        struct game *g, enum item_type type, enum part_type first, enum part_type second)
{
	size_t parts = 1 + below(g, 2);

	stream(g, (struct stream_event){.type = STREAM_ITEM_BEGIN, .item_type = type});
	for (size_t p = 0; p < parts; p++)
		for (size_t n = 1 + below(g, 3); n > 0; n--)
			stream(g, (struct stream_event){.type = STREAM_DELTA,
			                  .item_type = type,
			                  .part_type = p ? second : first,
			                  .part = (uint32_t)p,
			                  .text = words(g)});
	stream(g,
	        (struct stream_event){.type = STREAM_ITEM_END,
	                .item_type = type,
	                .opaque = type == ITEM_REASONING && below(g, 2) ? STR("opaque") : STR("")});
}

static struct str random_id(struct game *g)
{
	char text[128];

	g->n_calls++;
	switch (below(g, 5)) {
	case 0: /* fits no public id */
		str_format(text, sizeof(text), "toolu_vrtx_%040u", g->n_calls);
		return keep(g, text);
	case 1:
		str_format(text, sizeof(text), "functions.shell:%u", g->n_calls);
		return keep(g, text);
	case 2:
		return (struct str){NULL, 0};
	default:
		str_format(text, sizeof(text), "call_%u", g->n_calls);
		return keep(g, text);
	}
}

static struct str random_arguments(struct game *g)
{
	static const char *const good[] = {"{\"commands\":[\"ls\"]}",
	        "{ \"commands\" : [ \"ls -l\", \"echo \\\"é\\u00e9\\\"\" ], \"timeout_ms\": 5e3 }",
	        "{\"max_output_length\":100,\"commands\":[\"a\",\"b\",\"c\"]}",
	        "{\"commands\":\"one string\"}",
	        "{\"commands\":[\"x\"],\"timeout_ms\":10.7,\"why\":1}"};
	static const char *const bad[] = {
	        "{\"commands\":[\"ls", "", "[]", "{\"commands\":[]}", "null"};

	return below(g, 4) ? keep(g, good[below(g, 5)]) : keep(g, bad[below(g, 5)]);
}

static void say_call(struct game *g, const char *name, struct str arguments)
{
	struct str id = random_id(g), first = {arguments.p, arguments.n / 2};
	struct str second = {arguments.p + first.n, arguments.n - first.n};

	stream(g, (struct stream_event){.type = STREAM_ITEM_BEGIN,
	                  .item_type = ITEM_CALL,
	                  .id = id,
	                  .name = str_of(name)});
	stream(g,
	        (struct stream_event){.type = STREAM_DELTA, .item_type = ITEM_CALL, .text = first});
	stream(g, (struct stream_event){
	                  .type = STREAM_DELTA, .item_type = ITEM_CALL, .text = second});
	stream(g, (struct stream_event){.type = STREAM_ITEM_END,
	                  .item_type = ITEM_CALL,
	                  .id = id,
	                  .name = str_of(name)});
}

static void say_reply(struct game *g)
{
	size_t calls = g->replies_left > 0 ? below(g, 4) : 0;

	g->calling = false;
	stream(g, (struct stream_event){.type = STREAM_BEGIN, .id = STR("up"), .model = STR("m")});
	if (below(g, 2))
		say_parts(g, ITEM_REASONING, PART_SUMMARY,
		        below(g, 2) ? PART_SUMMARY : PART_REASONING);
	if (calls == 0 || below(g, 2))
		say_parts(g, ITEM_MESSAGE, PART_TEXT, below(g, 2) ? PART_TEXT : PART_REFUSAL);
	for (; calls > 0; calls--) {
		size_t which = below(g, 10);

		if (which == 0)
			say_call(g, "nobody", STR("{\"x\": 1}"));
		else if (which <= 2)
			say_call(g, "f", STR("{\"city\": \"Rome\", \"n\": 1.0}"));
		else
			say_call(g, "shell", random_arguments(g));
		if (below(g, 6) == 0)
			say_parts(g, ITEM_MESSAGE, PART_TEXT, PART_TEXT);
	}
	stream(g, (struct stream_event){.type = STREAM_USAGE,
	                  .usage = {.input = 10, .output = 5, .given = true}});
	if (g->replies_left > 0)
		g->replies_left--;
	stream(g, (struct stream_event){.type = STREAM_END,
	                  .finish = below(g, 12) ? FINISH_STOP : FINISH_LENGTH});
}

/* ---- what a sandbox does ---- */

static void run_tool(struct game *g)
{
	struct item *call = g->running;
	size_t n = call->call.parsed->n_commands, broken = below(g, 5) ? n : below(g, n + 1);

	g->running = NULL;
	feed(g, (struct turn_event){.type = TURN_TOOL_STARTED, .call = call});
	for (size_t i = 0; i < n && i < broken; i++) {
		struct command_output o = {
		        .out = words(g), .err = below(g, 2) ? words(g) : STR("")};
		size_t half = o.out.n / 2;

		while (half < o.out.n && ((unsigned char)o.out.p[half] & 0xc0) == 0x80)
			half++;
		feed(g, (struct turn_event){.type = TURN_TOOL_OUTPUT,
		                .call = call,
		                .command = i,
		                .text = {o.out.p, half}});
		o.outcome = below(g, 4) ? OUTCOME_EXIT : OUTCOME_TIMEOUT;
		o.exit_code = o.outcome == OUTCOME_EXIT ? (int)below(g, 256) : 0;
		if (below(g, 4) == 0)
			o.signal = STR("SIGKILL");
		if (below(g, 6) == 0)
			o.reason = STR("memory");
		o.out_chars = 100000;
		o.out_truncated = below(g, 4) == 0;
		feed(g, (struct turn_event){.type = TURN_TOOL_COMMAND,
		                .call = call,
		                .command = i,
		                .output = &o});
	}
	if (broken < n)
		feed(g, (struct turn_event){.type = TURN_TOOL_FAILED,
		                .call = call,
		                .text = STR("The sandbox ended.")});
	else
		feed(g, (struct turn_event){.type = TURN_TOOL_DONE, .call = call});
}

static bool seal(void *ctx, struct str opaque, struct buf *out)
{
	buf_puts(out, "brig1.");
	buf_append(out, opaque.p, opaque.n);
	return true;
}

static void play_turn(struct game *g)
{
	static const struct api_identity who = {.id = "gen-1", .created_s = 1, .model = "p/m"};

	g->r.options.seal = seal;
	g->turn = turn_new(g->r.conversation, &g->r.options);
	g->s = g->api->open(&g->r, &who, API_SSE);
	g->replies_left = 1 + (unsigned)below(g, 4);
	g->over = g->calling = g->storing = false;
	feed(g, (struct turn_event){.type = TURN_START});
	for (unsigned i = 0; !g->over; i++) {
		assert_true(i < EVENTS);
		if (g->running)
			run_tool(g);
		else if (g->calling)
			say_reply(g);
		else if (g->storing)
			feed(g, (struct turn_event){.type = TURN_STORED});
	}
	g->turn = turn_free(g->turn);
	g->s = g->api->close(g->s);
}

/* ---- what a model would read ---- */

/* What of an item Gemini's parts can tell: one text. The kinds of thoughts only a seal carries. */
static void join_parts(struct game *g, struct item *it, struct part *ret)
{
	struct buf text = test_buf();

	it->id = (struct str){NULL, 0};
	/* How the model wrote a call that goes to the client at once; no request shows it again. */
	if (it->type == ITEM_CALL && json_compact(it->call.arguments, &text) == 0)
		it->call.arguments = keep(g, buf_cstr(&text));
	buf_reset(&text);
	for (size_t i = 0; i < it->result.n_outputs; i++)
		it->result.outputs[i].out_truncated = it->result.outputs[i].err_truncated = false;
	for (size_t i = 0; i < it->n_parts; i++)
		buf_append(&text, it->parts[i].text.p, it->parts[i].text.n);
	if (it->n_parts > 0 && (it->type != ITEM_REASONING || it->opaque.n == 0)) {
		ret->type = it->type == ITEM_REASONING ? PART_SUMMARY : PART_TEXT;
		ret->text = keep(g, buf_cstr(&text));
		it->parts = ret;
		it->n_parts = 1;
	}
	buf_free(&text);
}

static void dump_for_model(struct game *g, const struct item *it, struct buf *out)
{
	struct item copy = *it;
	struct part joined = {.type = PART_TEXT};

	/* Statuses are the client's; a hashed id comes back through the store. */
	copy.status = (struct str){NULL, 0};
	if (copy.type == ITEM_CALL) {
		copy.call.upstream_id = conversation_upstream_id(copy.call.public_id, true);
		copy.call.entry = NULL;
	}
	if (g->api == &api_gemini)
		join_parts(g, &copy, &joined);
	/* Shown to clients only. */
	if (copy.type == ITEM_RESULT) {
		copy.result.max_output_length = 0;
		for (size_t i = 0; i < copy.result.n_outputs; i++) {
			struct command_output *o = &copy.result.outputs[i];

			if (!o->out_truncated)
				o->out_chars = 0;
			if (!o->err_truncated)
				o->err_chars = 0;
		}
	}
	dump_item(&copy, false, out);
	if (copy.type == ITEM_RESULT && copy.result.tool) {
		buf_puts(out, "    reads ");
		copy.result.tool->result_text(&copy.result, out);
		buf_putc(out, '\n');
	}
}

/* Reply by reply; behind each call its result, where brig made it. */
static void dump_replies(struct game *g, struct buf *out)
{
	const struct conversation *c = g->r.conversation;

	uint32_t last = REPLY_NONE;

	for (size_t i = 0; i < c->n_items; i++) {
		const struct item *it = c->items[i], *result;

		if (it->reply == REPLY_NONE || it->type == ITEM_RESULT)
			continue;
		if (it->reply != last)
			buf_puts(out, "reply\n");
		last = it->reply;
		dump_for_model(g, it, out);
		result = it->type == ITEM_CALL ? conversation_call_result(c, it) : NULL;
		if (result && result->result.tool)
			dump_for_model(g, result, out);
	}
}

/* ---- the next request ---- */

/* contents: of the request before; parts: what it was answered with. */
static void append_gemini(
        struct buf *body, const struct json *contents, const struct json *parts, struct game *g)
{
	const char *between = below(g, 2) ? "," : "]},{\"role\":\"model\",\"parts\":[";
	const char *comma = "";

	buf_printf(body,
	        "{\"tools\":[{\"%s\":{}},{\"functionDeclarations\":[{\"name\":\"f\"}]}],"
	        "\"contents\":[",
	        g->shell);
	for (const struct json *v = json_first(contents); v; v = json_next(v))
		buf_printf(body, "%.*s,", (int)json_raw(v).n, json_raw(v).p);
	buf_puts(body, "{\"role\":\"model\",\"parts\":[");
	for (const struct json *v = json_first(parts); v; v = json_next(v), comma = between)
		buf_printf(body, "%s%.*s", comma, (int)json_raw(v).n, json_raw(v).p);
	buf_puts(body, "]},{\"parts\":[");
	for (const struct json *v = json_first(parts); v; v = json_next(v)) {
		struct str id = json_str(json_get(json_get(v, "functionCall"), "id"));

		if (id.n > 0)
			buf_printf(body,
			        "{\"functionResponse\":{\"id\":\"%.*s\",\"name\":\"f\","
			        "\"response\":{\"output\":\"sunny\"}}},",
			        (int)id.n, id.p);
	}
	buf_puts(body, "{\"text\":\"next\"}]}]}");
}

/* The parts of a whole stream, as one list. */
static struct json_doc *gemini_parts(const struct buf *sse, struct buf *list)
{
	struct json_doc *doc, *event;
	struct error err;
	const char *at = sse->data, *newline;

	buf_putc(list, '[');
	for (; at < sse->data + sse->len; at = newline + 2) {
		const struct json *v;

		newline = strchr(at, '\n');
		assert_true(str_starts(str_of(at), "data: ") && newline && newline[1] == '\n');
		assert_int_equal(json_parse((struct str){at + 6, (size_t)(newline - at) - 6},
		                         (size_t)64 << 20, &event, &err),
		        0);
		v = json_get(json_at(json_get(json_root(event), "candidates"), 0), "content");
		for (v = json_first(json_get(v, "parts")); v; v = json_next(v))
			buf_printf(list, "%s%.*s", list->len > 1 ? "," : "", (int)json_raw(v).n,
			        json_raw(v).p);
		json_doc_free(event);
	}
	buf_putc(list, ']');
	assert_int_equal(
	        json_parse((struct str){list->data, list->len}, (size_t)64 << 20, &doc, &err), 0);
	return doc;
}

static void append_request(
        struct buf *body, const struct json *input, const struct json *output, struct game *g)
{
	const char *comma = "";

	if (g->api == &api_gemini) {
		append_gemini(body, input, output, g);
		return;
	}
	buf_printf(body,
	        "{\"model\":\"m\",\"stream\":true,\"tools\":[{\"type\":\"%s\"},"
	        "{\"type\":\"function\",\"name\":\"f\"}],\"input\":[",
	        g->shell);
	for (const struct json *v = json_first(input); v; v = json_next(v), comma = ",")
		buf_printf(body, "%s%.*s", comma, (int)json_raw(v).n, json_raw(v).p);
	for (const struct json *v = json_first(output); v; v = json_next(v), comma = ",")
		buf_printf(body, "%s%.*s", comma, (int)json_raw(v).n, json_raw(v).p);
	for (const struct json *v = json_first(output); v; v = json_next(v)) {
		struct str id = json_str(json_get(v, "call_id"));

		if (str_is(json_str(json_get(v, "type")), "function_call"))
			buf_printf(body,
			        ",{\"type\":\"function_call_output\",\"call_id\":\"%.*s\","
			        "\"output\":\"sunny\"}",
			        (int)id.n, id.p);
	}
	buf_printf(body, "%s{\"role\":\"user\",\"content\":\"next\"}]}", comma);
}

static void parse_into(struct game *g, const char *body)
{
	struct config config = test_config(NULL);
	struct error err;

	if (g->api == &api_gemini) {
		struct api_request in = {.body = mem_strndup(body, strlen(body)),
		        .body_len = strlen(body),
		        .config = &config,
		        .path_model = STR("m"),
		        .path_stream = true};

		if (api_gemini.parse(&in, STR("a request"), &g->r, &err) < 0)
			fail_msg("%s: %s", err.text, body);
		return;
	}
	if (test_parse(body, NULL, &config, true, &g->r, &err) < 0)
		fail_msg("%s: %s", err.text, body);
}

/* What the conversations had in them, so that none of it goes untested. */
static const char *const sights[] = {"call of ours", "\ncall call_id", "error=\"Not run", "] [ out",
        "error=\"The sandbox", " timeout ", "reasoning opaque", "signal=", "reason=", "(summary",
        "(reasoning", "h_", "\nreply\n", /* the rest but for Gemini: */ "cut=1", "(refusal"};
enum { NOT_GEMINI = 2 };
static unsigned seen[sizeof(sights) / sizeof(*sights)];

static void look(const char *dump)
{
	for (size_t i = 0; i < sizeof(sights) / sizeof(*sights); i++)
		for (const char *at = dump; (at = strstr(at, sights[i])); at++)
			seen[i]++;
}

static void all_seen(size_t but)
{
	for (size_t i = 0; i < sizeof(sights) / sizeof(*sights); i++) {
		if (seen[i] < 100 && i < sizeof(sights) / sizeof(*sights) - but)
			fail_msg("%s was there only %u times", sights[i], seen[i]);
		seen[i] = 0;
	}
}

/* Shows the first line that differs. */
static void compare(
        const struct game *g, uint64_t number, int turn, const char *had, const char *reads)
{
	size_t same = 0, line = 0;

	while (had[same] && had[same] == reads[same]) {
		same++;
		if (had[same - 1] == '\n')
			line = same;
	}
	if (had[same] == reads[same])
		return;
	fail_msg("%s, conversation %llu, turn %d\n-- had\n%.600s\n-- reads\n%.600s", g->shell,
	        (unsigned long long)number, turn, had + line, reads + line);
}

static void play_conversation(uint64_t number, const struct api *api, const char *shell)
{
	struct game g = {.random = {number * 2654435761u + 1}, .api = api, .shell = shell};
	const char *said = api == &api_gemini ? "contents" : "input";
	struct buf body = test_buf(), list = test_buf();
	const struct json *output;
	struct json_doc *request, *last;
	struct error err;

	g.texts = conversation_new((size_t)64 * 1024 * 1024);
	append_request(&body, NULL, NULL, &g);
	parse_into(&g, body.data);
	for (int i = 0; i < TURNS; i++) {
		struct buf had = test_buf(), reads = test_buf(), next = test_buf();

		g.sse = test_buf();
		play_turn(&g);
		if (api == &api_gemini) {
			last = gemini_parts(&g.sse, &list);
			output = json_root(last);
		} else {
			last = check_stream((struct str){g.sse.data, g.sse.len});
			output = json_get(json_get(json_root(last), "response"), "output");
		}
		dump_replies(&g, &had);
		turn_request_free(&g.r);
		assert_int_equal(json_parse((struct str){body.data, body.len},
		                         (size_t)64 * 1024 * 1024, &request, &err),
		        0);
		append_request(&next, json_get(json_root(request), said), output, &g);
		parse_into(&g, next.data);
		dump_replies(&g, &reads);
		look(buf_cstr(&had));
		compare(&g, number, i, buf_cstr(&had), buf_cstr(&reads));
		json_doc_free(request);
		json_doc_free(last);
		buf_free(&had);
		buf_free(&reads);
		buf_free(&body);
		buf_free(&g.sse);
		buf_free(&list);
		body = next;
	}
	turn_request_free(&g.r);
	conversation_free(g.texts);
	buf_free(&body);
}

static void test_openrouter_shell(void **state)
{
	for (uint64_t i = 0; i < ROUNDS; i++)
		play_conversation(i, &api_responses, "openrouter:shell");
	all_seen(0);
}

static void test_brig_shell(void **state)
{
	for (uint64_t i = 0; i < ROUNDS; i++)
		play_conversation(i, &api_responses, "brig:shell");
	all_seen(0);
}

static void test_gemini(void **state)
{
	for (uint64_t i = 0; i < ROUNDS; i++)
		play_conversation(i, &api_gemini, "brigShell");
	all_seen(NOT_GEMINI);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_openrouter_shell),
	        cmocka_unit_test(test_brig_shell),
	        cmocka_unit_test(test_gemini),
	};

	return UNIT_RUN(tests);
}
