/*
 * The Messages API: what requests are understood as (requests.txt), how bad ones are refused
 * (bad.txt), and the exact bytes of answers (streams.txt).
 *
 * A stream's case drives a real turn. Its script has one JSON array a line:
 *     ["begin"]                                     the upstream accepts
 *     ["item", "message"|"reasoning"|"call"|"other", ID, NAME]
 *     ["delta", PART, "text"|"refusal"|"summary"|"reasoning", TEXT]
 *     ["itemend", OPAQUE, REDACTED, RAW]
 *     ["usage", INPUT, CACHED, CACHE_WRITE, OUTPUT, REASONING]
 *     ["end", "stop"|"calls"|"length"|"filter"|"pause", STOP_SEQUENCE]
 *     ["error", TEXT]  ["cancel"]  ["timer"]  ["ping"]
 *     ["command", STDOUT, STDERR, EXIT_CODE|"timeout"]   ["done"]  ["toolfail", TEXT]
 */
#include "support.h"

#include "base/mem.h"
#include "tool/tool.h"

#include <malloc.h>
#include <stdlib.h>

static const char *cases_path;

static int parse(
        const char *body, const struct config *config, struct turn_request *ret, struct error *err)
{
	struct api_request in = {
	        .body = mem_strndup(body, strlen(body)),
	        .body_len = strlen(body),
	        .under_v1 = true,
	        .config = config,
	        .anthropic_beta = STR("a-1"),
	};

	return api_messages.parse(&in, STR("a request"), ret, err);
}

/* ---- requests ---- */

static void put(struct buf *out, const char *name, struct str s)
{
	if (!s.p)
		return;
	buf_printf(out, " %s=", name);
	json_write_str(out, s);
}

/* What only this dialect has. */
static void dump_more(const struct turn_request *r, struct buf *out)
{
	const struct conversation *c = r->conversation;

	if (c->settings.thinking_budget.p || c->settings.include_thoughts >= 0)
		buf_printf(out, "thinking budget=%.*s shown=%d\n",
		        (int)c->settings.thinking_budget.n, c->settings.thinking_budget.p,
		        c->settings.include_thoughts);
	for (size_t i = 0; i < c->n_tools; i++)
		if (c->tools[i].kind == TOOL_NATIVE)
			buf_printf(out, "native %.*s\n", (int)c->tools[i].raw.n, c->tools[i].raw.p);
	for (size_t i = 0; i < r->options.n_stop; i++) {
		buf_printf(out, "stop %d n=%llu", r->options.stop[i].type,
		        (unsigned long long)r->options.stop[i].n);
		put(out, "name", r->options.stop[i].name);
		if (r->options.stop[i].cost.pico)
			buf_printf(out, " pico=%lld", (long long)r->options.stop[i].cost.pico);
		buf_putc(out, '\n');
	}
	for (size_t i = 0; i < c->n_items; i++) {
		const struct item *it = c->items[i];

		if (it->type == ITEM_RESULT && it->result.is_error)
			buf_printf(out, "item %zu is an error\n", i);
		if (it->redacted)
			buf_printf(out, "item %zu is redacted\n", i);
	}
}

static void check_kept(const struct turn_request *r)
{
	const struct conversation *c = r->conversation;

	assert_int_equal(c->dialect, DIALECT_ANTHROPIC);
	assert_true(str_is(c->beta, "a-1"));
	assert_true(r->options.compact_arguments);
	for (size_t i = 0; i < c->n_items; i++)
		assert_int_equal(c->items[i]->raw_dialect, DIALECT_ANTHROPIC);
}

static void request_case(const struct test_case *c, struct buf *ret_got)
{
	struct config config = test_config(case_text(c, "config"));
	struct turn_request r;
	struct error err;

	memset(&err, 0x5a, sizeof(err));
	memset(&r, 0x5a, sizeof(r));
	if (parse(case_text(c, "request"), &config, &r, &err)) {
		buf_printf(ret_got, "HTTP %d\n", error_http_status(&err));
		api_error_body_anthropic(&err, NULL, ret_got);
		return;
	}
	check_kept(&r);
	dump_request(&r, ret_got);
	dump_more(&r, ret_got);
	turn_request_free(&r);
}

static void test_requests(void **state)
{
	static const char *const files[] = {
	        "requests.txt", "tools.txt", "replay.txt", "bad.txt", NULL};

	assert_true(cases_run_all(cases_path, files, request_case) >= 60);
}

static void test_every_cut(void **state)
{
	static const char body[] =
	        "{\"model\":\"a/b\",\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":"
	        "\"\\u00e9\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"server_tool_use\","
	        "\"id\":\"srvtoolu_s0_c\",\"name\":\"openrouter:shell\",\"input\":{\"commands\":[]}"
	        "},"
	        "{\"type\":\"openrouter_shell_tool_result\",\"tool_use_id\":\"srvtoolu_s0_c\","
	        "\"content\":{\"output\":[{\"stdout\":\"a\",\"stderr\":\"\",\"outcome\":{\"type\":"
	        "\"exit\",\"exit_code\":0}}]}}]}],\"tools\":[{\"type\":\"openrouter:shell\"}]}";

	test_cuts(parse, body, "{\"model\":1}");
}

/* ---- streams ---- */

struct play {
	struct turn_request r;
	struct api_identity who;
	struct api_stream *s;
	struct turn *turn;
	struct buf out;
	size_t room; /* 0: as the gateway would; else in pieces of this size */
	uint64_t now;
	unsigned ids;
	bool sealed;
	struct item *running;
	size_t command;
};

static bool seal(void *ctx, struct str opaque, struct buf *out)
{
	const struct play *p = ctx;

	if (p->sealed)
		buf_puts(out, "brig1.");
	return buf_append(out, opaque.p, opaque.n) == 0;
}

static void make_id(void *ctx, char *out, size_t size, const char *prefix, size_t n)
{
	struct play *p = ctx;

	str_format(out, size, "%s%u", prefix, ++p->ids);
}

static void emit(struct play *p, const struct turn_output *o)
{
	struct turn_totals totals;
	struct buf piece = test_buf();

	turn_totals(p->turn, p->now, &totals);
	assert_int_equal(api_messages.emit(p->s, o, &totals, &piece), 0);
	buf_append(&p->out, piece.data, piece.len);
	while (api_messages.left(p->s) > 0) {
		size_t before = p->out.len;

		assert_int_equal(api_messages.pull(p->s, &p->out, p->room ? p->room : 65536), 0);
		assert_true(p->out.len > before || api_messages.left(p->s) == 0);
	}
	buf_free(&piece);
}

static void feed(struct play *p, struct turn_event ev);

static void perform(struct play *p)
{
	struct turn_effect ef;

	while (turn_next_effect(p->turn, &ef)) {
		switch ((int)ef.type) {
		case EFFECT_EMIT:
			emit(p, &ef.output);
			break;
		case EFFECT_RUN_TOOL:
			p->running = ef.item;
			p->command = 0;
			feed(p, (struct turn_event){.type = TURN_TOOL_STARTED, .call = ef.item});
			break;
		case EFFECT_STORE:
			feed(p, (struct turn_event){.type = TURN_STORED});
			break;
		default:
			break;
		}
	}
}

static void feed(struct play *p, struct turn_event ev)
{
	ev.now_ms = p->now;
	turn_feed(p->turn, &ev);
	if (ev.type != TURN_TOOL_STARTED && ev.type != TURN_STORED)
		perform(p);
}

static void stream(struct play *p, struct stream_event ev)
{
	feed(p, (struct turn_event){.type = TURN_STREAM, .stream = &ev});
}

static int word_of(struct str word, const char *const *words)
{
	for (int i = 0; words[i]; i++)
		if (str_is(word, words[i]))
			return i;
	fail_msg("the script has no such word: %.*s", (int)word.n, word.p);
	return 0;
}

static void play_item(struct play *p, const struct json *line)
{
	static const char *const types[] = {
	        "message", "reasoning", "call", "result", "other", NULL};
	static enum item_type type;
	static const char *const parts[] = {"text", "refusal", "summary", "reasoning", NULL};
	struct str word = json_str(json_at(line, 0));
	int64_t part = 0;

	if (str_is(word, "item")) {
		type = (enum item_type)word_of(json_str(json_at(line, 1)), types);
		stream(p, (struct stream_event){.type = STREAM_ITEM_BEGIN,
		                  .item_type = type,
		                  .id = json_str(json_at(line, 2)),
		                  .name = json_str(json_at(line, 3))});
	} else if (str_is(word, "delta")) {
		json_i64(json_at(line, 1), &part);
		stream(p, (struct stream_event){.type = STREAM_DELTA,
		                  .item_type = type,
		                  .part = (uint32_t)part,
		                  .part_type = (enum part_type)word_of(
		                          json_str(json_at(line, 2)), parts),
		                  .text = json_str(json_at(line, 3))});
	} else {
		stream(p, (struct stream_event){.type = STREAM_ITEM_END,
		                  .item_type = type,
		                  .opaque = json_str(json_at(line, 1)),
		                  .redacted = json_bool(json_at(line, 2)),
		                  .raw = json_str(json_at(line, 3)),
		                  .raw_dialect = DIALECT_ANTHROPIC});
	}
}

static void play_usage(struct play *p, const struct json *line)
{
	int64_t n[5] = {0};

	for (size_t i = 0; i < 5; i++)
		json_i64(json_at(line, i + 1), &n[i]);
	stream(p, (struct stream_event){.type = STREAM_USAGE,
	                  .usage = {.given = true,
	                          .input = (uint64_t)n[0],
	                          .cached = (uint64_t)n[1],
	                          .cache_write = (uint64_t)n[2],
	                          .output = (uint64_t)n[3],
	                          .reasoning = (uint64_t)n[4]}});
}

static void play_command(struct play *p, const struct json *line)
{
	struct command_output o = {.out = json_str(json_at(line, 1)),
	        .err = json_str(json_at(line, 2)),
	        .outcome = json_is(json_at(line, 3), JSON_STRING) ? OUTCOME_TIMEOUT : OUTCOME_EXIT,
	        .done = true};
	int64_t code = 0;

	json_i64(json_at(line, 3), &code);
	o.exit_code = (int)code;
	p->now += 1000;
	feed(p, (struct turn_event){.type = TURN_TOOL_COMMAND,
	                .call = p->running,
	                .command = p->command++,
	                .output = &o});
}

static void play_line(struct play *p, const struct json *line)
{
	static const char *const words[] = {"begin", "item", "delta", "itemend", "usage", "end",
	        "error", "cancel", "timer", "ping", "command", "done", "toolfail", NULL};
	static const char *const finishes[] = {"stop", "calls", "length", "filter", "pause", NULL};
	struct error e;

	switch (word_of(json_str(json_at(line, 0)), words)) {
	case 0:
		stream(p, (struct stream_event){.type = STREAM_BEGIN});
		break;
	case 4:
		play_usage(p, line);
		break;
	case 5:
		stream(p, (struct stream_event){.type = STREAM_END,
		                  .finish = (enum finish)word_of(
		                          json_str(json_at(line, 1)), finishes),
		                  .stop_sequence = json_str(json_at(line, 2))});
		break;
	case 6:
		error_set(&e, ERR_UPSTREAM, "%.*s", (int)json_str(json_at(line, 1)).n,
		        json_str(json_at(line, 1)).p);
		stream(p, (struct stream_event){.type = STREAM_ERROR, .error = &e});
		break;
	case 7:
		feed(p, (struct turn_event){.type = TURN_CANCEL});
		break;
	case 8:
		p->now += 4000000;
		feed(p, (struct turn_event){.type = TURN_TIMER});
		break;
	case 9:
		api_messages.keepalive(p->s, &p->out);
		break;
	case 10:
		play_command(p, line);
		break;
	case 11:
		feed(p, (struct turn_event){.type = TURN_TOOL_DONE, .call = p->running});
		break;
	case 12:
		feed(p, (struct turn_event){.type = TURN_TOOL_FAILED,
		                .call = p->running,
		                .text = json_str(json_at(line, 1))});
		break;
	default:
		play_item(p, line);
		break;
	}
}

static void play_script(struct play *p, const char *script)
{
	feed(p, (struct turn_event){.type = TURN_START});
	while (*script) {
		const char *newline = strchr(script, '\n');
		size_t n = newline ? (size_t)(newline - script) : strlen(script);
		struct json_doc *doc;
		struct error err;

		if (json_parse((struct str){script, n}, 1 << 20, &doc, &err) < 0)
			fail_msg("%.*s: %s", (int)n, script, err.text);
		play_line(p, json_root(doc));
		json_doc_free(doc);
		script += n + (newline ? 1 : 0);
	}
}

static void play_open(struct play *p, const char *request, bool sealed)
{
	struct config config = test_config(NULL);
	struct error err;

	*p = (struct play){.sealed = sealed, .now = 1000};
	config.container.keep_days = 30;
	p->out = test_buf();
	if (parse(request, &config, &p->r, &err) < 0)
		fail_msg("%s", err.text);
	p->who = (struct api_identity){.id = "gen-abc",
	        .created_s = 1795000000,
	        .model = "p/model",
	        .provider = "p",
	        .has_price = true};
	money_parse(STR("2.5"), &p->who.input_price);
	money_parse(STR("0.25"), &p->who.cached_price);
	money_parse(STR("10"), &p->who.output_price);
	p->r.options.seal = seal;
	p->r.options.seal_ctx = p;
	p->r.options.make_id = make_id;
	p->r.options.make_id_ctx = p;
	p->r.options.turn_ms = 3600000;
	p->turn = turn_new(p->r.conversation, &p->r.options);
	p->s = api_messages.open(&p->r, &p->who, p->r.stream ? API_SSE : API_WHOLE);
}

static void play_close(struct play *p)
{
	p->s = api_messages.close(p->s);
	p->turn = turn_free(p->turn);
	turn_request_free(&p->r);
	buf_free(&p->out);
}

static void stream_case(const struct test_case *c, struct buf *ret_got)
{
	static const size_t rooms[] = {1, 7, 4096};
	bool sealed = case_text(c, "sealed") != NULL;
	struct play first, again;

	play_open(&first, case_text(c, "request"), sealed);
	play_script(&first, case_text(c, "script"));
	if (!first.r.stream)
		buf_printf(ret_got, "HTTP %d\n", api_messages.status(first.s));
	buf_append(ret_got, first.out.data, first.out.len);
	for (size_t i = 0; i < sizeof(rooms) / sizeof(*rooms); i++) {
		play_open(&again, case_text(c, "request"), sealed);
		again.room = rooms[i];
		play_script(&again, case_text(c, "script"));
		assert_int_equal(again.out.len, first.out.len);
		assert_memory_equal(again.out.data, first.out.data, first.out.len);
		play_close(&again);
	}
	play_close(&first);
}

static void test_streams(void **state)
{
	char path[4096];

	str_format(path, sizeof(path), "%s/streams.txt", cases_path);
	assert_true(cases_run(path, stream_case) >= 20);
}

/* ---- what does not fit ---- */

/* What a stream holds while a large result waits is small, and what emit() gives at once is
 * bounded.
 */
static void test_large_is_not_copied(void **state)
{
	enum { SIZE = 32 * 1024 * 1024 };
	static const char request[] =
	        "{\"model\":\"m\",\"max_tokens\":5,\"stream\":true,\"messages\":[{"
	        "\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{\"type\":"
	        "\"brig:shell\"}]}";
	struct command_output output = {
	        .out = {test_long_text(SIZE), SIZE}, .err = STR(""), .done = true};
	struct str command = STR("yes");
	struct tool_call parsed = {.commands = &command, .n_commands = 1};
	struct turn_totals totals = {0};
	struct buf out = test_buf();
	struct item *call, *result;
	struct mallinfo2 before;
	struct play p;

	play_open(&p, request, false);
	call = conversation_add(p.r.conversation, ITEM_CALL);
	result = conversation_add(p.r.conversation, ITEM_RESULT);
	call->call = (struct call){.public_id = STR("s0_c"),
	        .arguments = STR("{}"),
	        .tool = &tool_shell,
	        .parsed = &parsed};
	result->result = (struct result){.tool = &tool_shell, .outputs = &output, .n_outputs = 1};
	emit(&p, &(struct turn_output){.type = OUT_BEGIN});
	emit(&p, &(struct turn_output){.type = OUT_TOOL_BEGIN, .item = call});
	before = mallinfo2();
	assert_int_equal(
	        api_messages.emit(p.s,
	                &(struct turn_output){.type = OUT_TOOL_END, .item = call, .result = result},
	                &totals, &out),
	        0);
	assert_true(out.len >= 64 * 1024 && out.len < 130 * 1024);
	assert_true(api_messages.left(p.s) >= SIZE - 128 * 1024);
	for (int i = 0; i < 50; i++) {
		out.len = 0;
		assert_int_equal(api_messages.pull(p.s, &out, 4096), 0);
		assert_true(out.len <= 4096 + 8);
	}
	assert_true(mallinfo2().uordblks + mallinfo2().hblkhd <
	            before.uordblks + before.hblkhd + 1024 * 1024);
	/* A keep-alive may not fall into the middle of an event. */
	out.len = 0;
	api_messages.keepalive(p.s, &out);
	assert_int_equal(out.len, 0);
	buf_free(&out);
	play_close(&p);
	free((void *)(uintptr_t)output.out.p);
}

/* A text of megabytes arrives whole, whatever the pieces. */
static void test_large(void **state)
{
	enum { SIZE = 3 * 1024 * 1024 };
	static const char request[] =
	        "{\"model\":\"m\",\"max_tokens\":5,\"stream\":true,\"messages\":[{"
	        "\"role\":\"user\",\"content\":\"x\"}]}";
	struct str text = {test_long_text(SIZE), SIZE};
	struct play p[2];

	for (int i = 0; i < 2; i++) {
		play_open(&p[i], request, false);
		p[i].room = i ? 100 : 0;
		feed(&p[i], (struct turn_event){.type = TURN_START});
		stream(&p[i], (struct stream_event){.type = STREAM_BEGIN});
		stream(&p[i], (struct stream_event){
		                      .type = STREAM_ITEM_BEGIN, .item_type = ITEM_MESSAGE});
		stream(&p[i],
		        (struct stream_event){
		                .type = STREAM_DELTA, .item_type = ITEM_MESSAGE, .text = text});
		stream(&p[i], (struct stream_event){.type = STREAM_ITEM_END});
		stream(&p[i], (struct stream_event){.type = STREAM_END});
	}
	assert_true(p[0].out.len > SIZE);
	assert_int_equal(p[0].out.len, p[1].out.len);
	assert_memory_equal(p[0].out.data, p[1].out.data, p[0].out.len);
	play_close(&p[0]);
	play_close(&p[1]);
	free((void *)(uintptr_t)text.p);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_requests),
	        cmocka_unit_test(test_every_cut),
	        cmocka_unit_test(test_streams),
	        cmocka_unit_test(test_large_is_not_copied),
	        cmocka_unit_test(test_large),
	};

	if (argc != 2)
		return 2;
	cases_path = argv[1];
	return UNIT_RUN(tests);
}
