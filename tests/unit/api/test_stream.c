/*
 * Streams: each case is a request, a script of what the turn puts out, and the exact bytes that the
 * client gets. Every stream also goes through the checker, and is taken once more in small pieces.
 *
 * A script has one JSON array a line; the first element says what happens:
 *     ["begin"]
 *     ["item", NAME, "message"|"reasoning"|"call", ID, CALL_ID, FUNCTION]
 *     ["delta", NAME, PART, "text"|"refusal"|"summary"|"reasoning", TEXT]     (of a call: its
 * arguments)
 *     ["end", NAME, STATUS, OPAQUE]
 *     ["tool", NAME, ID, CALL_ID, ARGUMENTS, RESULT_ID]
 *     ["output", NAME, COMMAND, "stdout"|"stderr", TEXT]
 *     ["command", NAME, STDOUT, STDERR, EXIT_CODE|"timeout", {"signal", "reason", "stdout_length"}]
 *     ["toolend", NAME, ERROR]
 *     ["usage", INPUT, CACHED, OUTPUT, REASONING, REQUESTED, EXECUTED, SANDBOX_COST]
 *     ["finish", "completed"|"incomplete"|"failed"|"canceled", REASON or MESSAGE, CODE]
 *     ["ping"]
 */
#include "support.h"

#include "checker.h"

#include "base/mem.h"
#include "tool/tool.h"

#include <malloc.h>
#include <stdlib.h>

static const char *cases_path;

enum { NAMES = 16, PARTS = 8, COMMANDS = 8 };

struct actor {
	char *name;
	struct item *item, *result;
	struct buf texts[PARTS];
	enum part_type types[PARTS];
	size_t n_texts;
};

struct play {
	struct turn_request r;
	struct api_identity who;
	struct api_stream *s;
	struct buf out;
	size_t room; /* 0: as the gateway would; else in pieces of this size */
	struct actor actors[NAMES];
	size_t n_actors;
	struct turn_totals totals;
	struct error error;
};

static struct str arg(const struct json *line, size_t i)
{
	struct str s = json_str(json_at(line, i));
	static struct conversation *keep; /* the strings of a script live until the test ends */
	bool ok = true;

	if (!s.p)
		return s;
	if (!keep)
		keep = conversation_new((size_t)64 * 1024 * 1024);
	return conversation_copy(keep, s, &ok);
}

static int64_t arg_number(const struct json *line, size_t i)
{
	int64_t n = 0;

	json_i64(json_at(line, i), &n);
	return n;
}

static struct actor *actor_of(struct play *p, const struct json *line)
{
	for (size_t i = 0; i < p->n_actors; i++)
		if (str_is(json_str(json_at(line, 1)), p->actors[i].name))
			return &p->actors[i];
	fail_msg("the script has no such name: %.100s", json_raw(line).p);
	return NULL;
}

static struct actor *actor_new(struct play *p, const struct json *line, enum item_type type)
{
	struct actor *a = &p->actors[p->n_actors++];

	assert_true(p->n_actors <= NAMES);
	a->name = mem_strndup(json_str(json_at(line, 1)).p, json_str(json_at(line, 1)).n);
	a->item = conversation_add(p->r.conversation, type);
	a->item->reply = 0;
	a->item->role = ROLE_ASSISTANT;
	return a;
}

static void emit(struct play *p, const struct turn_output *o)
{
	struct buf piece = test_buf();

	assert_int_equal(api_responses.emit(p->s, o, &p->totals, &piece), 0);
	buf_append(&p->out, piece.data, piece.len);
	while (api_responses.left(p->s) > 0) {
		size_t before = p->out.len;

		assert_int_equal(api_responses.pull(p->s, &p->out, p->room ? p->room : 65536), 0);
		assert_true(p->out.len > before);
	}
	buf_free(&piece);
}

static void play_item(struct play *p, const struct json *line)
{
	struct str kind = json_str(json_at(line, 2));
	struct actor *a = actor_new(p, line,
	        str_is(kind, "call")        ? ITEM_CALL
	        : str_is(kind, "reasoning") ? ITEM_REASONING
	                                    : ITEM_MESSAGE);

	a->item->id = arg(line, 3);
	a->item->call.public_id = arg(line, 4);
	a->item->call.name = arg(line, 5);
	emit(p, &(struct turn_output){.type = OUT_ITEM_BEGIN, .item = a->item});
}

static enum part_type part_type_of(struct str name)
{
	return str_is(name, "refusal")     ? PART_REFUSAL
	       : str_is(name, "summary")   ? PART_SUMMARY
	       : str_is(name, "reasoning") ? PART_REASONING
	                                   : PART_TEXT;
}

static void play_delta(struct play *p, const struct json *line)
{
	struct actor *a = actor_of(p, line);
	size_t part = (size_t)arg_number(line, 2);
	struct str text = arg(line, 4);

	assert_true(part < PARTS);
	if (part >= a->n_texts) {
		a->texts[part] = test_buf();
		a->n_texts = part + 1;
	}
	a->types[part] = part_type_of(json_str(json_at(line, 3)));
	buf_append(&a->texts[part], text.p, text.n);
	emit(p, &(struct turn_output){.type = OUT_DELTA,
	                .item = a->item,
	                .part = (uint32_t)part,
	                .part_type = a->types[part],
	                .text = text});
}

static void play_end(struct play *p, const struct json *line)
{
	struct actor *a = actor_of(p, line);
	struct item *it = a->item;

	it->status = arg(line, 2);
	it->opaque = arg(line, 3);
	if (it->type == ITEM_CALL) {
		it->call.arguments = (struct str){a->texts[0].data, a->texts[0].len};
	} else {
		it->parts = conversation_parts(p->r.conversation, PARTS);
		it->n_parts = a->n_texts;
		for (size_t i = 0; i < a->n_texts; i++)
			it->parts[i] = (struct part){
			        .type = a->types[i], .text = {a->texts[i].data, a->texts[i].len}};
	}
	emit(p, &(struct turn_output){.type = OUT_ITEM_END, .item = it});
}

static void play_tool(struct play *p, const struct json *line)
{
	struct actor *a = actor_new(p, line, ITEM_CALL);
	struct call *call = &a->item->call;
	struct error err;

	a->item->id = arg(line, 2);
	call->public_id = arg(line, 3);
	call->arguments = arg(line, 4);
	call->name = p->r.shell->name;
	call->entry = p->r.shell;
	call->tool = &tool_shell;
	(void)tool_shell.parse(p->r.conversation->arena, call->arguments, p->r.shell->settings,
	        &p->r.options.tool, &call->parsed, &err);
	a->result = conversation_add(p->r.conversation, ITEM_RESULT);
	a->result->id = arg(line, 5);
	a->result->result.public_id = call->public_id;
	a->result->result.tool = &tool_shell;
	if (call->parsed)
		a->result->result.container_id = str_of(p->r.container_id);
	a->result->result.outputs =
	        arena_alloc(p->r.conversation->arena, COMMANDS * sizeof(struct command_output));
	emit(p, &(struct turn_output){
	                .type = OUT_TOOL_BEGIN, .item = a->item, .result = a->result});
}

static void play_output(struct play *p, const struct json *line)
{
	struct actor *a = actor_of(p, line);

	emit(p, &(struct turn_output){.type = OUT_TOOL_OUTPUT,
	                .item = a->item,
	                .result = a->result,
	                .command = (size_t)arg_number(line, 2),
	                .is_stderr = str_is(json_str(json_at(line, 3)), "stderr"),
	                .text = arg(line, 4)});
}

static void play_command(struct play *p, const struct json *line)
{
	struct actor *a = actor_of(p, line);
	struct result *r = &a->result->result;
	const struct json *more = json_at(line, 5);
	struct command_output *o = &r->outputs[r->n_outputs++];
	int64_t length;
	bool ok = true;

	*o = (struct command_output){.out = arg(line, 2), .err = arg(line, 3), .done = true};
	if (json_is(json_at(line, 4), JSON_STRING))
		o->outcome = OUTCOME_TIMEOUT;
	o->exit_code = (int)arg_number(line, 4);
	o->signal = conversation_copy(p->r.conversation, json_str(json_get(more, "signal")), &ok);
	o->reason = conversation_copy(p->r.conversation, json_str(json_get(more, "reason")), &ok);
	if (json_i64(json_get(more, "stdout_length"), &length)) {
		o->out_truncated = true;
		o->out_chars = (uint64_t)length;
	}
	emit(p, &(struct turn_output){.type = OUT_TOOL_COMMAND,
	                .item = a->item,
	                .result = a->result,
	                .command = r->n_outputs - 1});
}

static void play_toolend(struct play *p, const struct json *line)
{
	struct actor *a = actor_of(p, line);

	a->result->result.error = arg(line, 2);
	emit(p, &(struct turn_output){.type = OUT_TOOL_END, .item = a->item, .result = a->result});
}

static void play_usage(struct play *p, const struct json *line)
{
	p->totals.usage.input = (uint64_t)arg_number(line, 1);
	p->totals.usage.cached = (uint64_t)arg_number(line, 2);
	p->totals.usage.output = (uint64_t)arg_number(line, 3);
	p->totals.usage.reasoning = (uint64_t)arg_number(line, 4);
	p->totals.tool_calls_requested = (uint32_t)arg_number(line, 5);
	p->totals.tool_calls_executed = (uint32_t)arg_number(line, 6);
	p->totals.commands_started = p->totals.tool_calls_executed > 0;
	money_parse(json_str(json_at(line, 7)), &p->totals.sandbox_cost);
}

static void play_finish(struct play *p, const struct json *line)
{
	struct str how = json_str(json_at(line, 1)), why = arg(line, 2);
	struct turn_output end = {.type = OUT_END};
	static char reason[64];

	if (str_is(how, "incomplete")) {
		end.status = TURN_INCOMPLETE;
		str_copy(reason, sizeof(reason), why);
		end.incomplete_reason = reason;
	} else if (str_is(how, "failed")) {
		end.status = TURN_FAILED;
		error_set(&p->error, (enum err)arg_number(line, 3), "%.*s", (int)why.n, why.p);
		end.error = &p->error;
	} else if (str_is(how, "canceled")) {
		end.status = TURN_CANCELED;
	}
	emit(p, &end);
}

static void play_line(struct play *p, const struct json *line)
{
	static const struct {
		const char *word;
		void (*fn)(struct play *p, const struct json *line);
	} rows[] = {{"item", play_item}, {"delta", play_delta}, {"end", play_end},
	        {"tool", play_tool}, {"output", play_output}, {"command", play_command},
	        {"toolend", play_toolend}, {"usage", play_usage}, {"finish", play_finish}};
	struct str word = json_str(json_at(line, 0));

	if (str_is(word, "begin")) {
		emit(p, &(struct turn_output){.type = OUT_BEGIN});
		return;
	}
	if (str_is(word, "ping")) {
		api_responses.keepalive(p->s, &p->out);
		return;
	}
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		if (str_is(word, rows[i].word)) {
			rows[i].fn(p, line);
			return;
		}
	}
	fail_msg("the script has no such word: %.100s", json_raw(line).p);
}

static void play_script(struct play *p, const char *script)
{
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

static void play_open(struct play *p, const char *request, enum api_carrier carrier, bool under_v1)
{
	struct config config = test_config(NULL);
	struct error err;

	memset(p, 0, sizeof(*p));
	p->out = test_buf();
	if (test_parse(request, NULL, &config, under_v1, &p->r, &err) < 0)
		fail_msg("%s", err.text);
	p->who = (struct api_identity){.id = "gen-1795000000-abc",
	        .created_s = 1795000000,
	        .model = "p/model",
	        .has_price = true};
	money_parse(STR("2.5"), &p->who.input_price);
	money_parse(STR("0.25"), &p->who.cached_price);
	money_parse(STR("10"), &p->who.output_price);
	p->s = api_responses.open(&p->r, &p->who, carrier);
}

static void play_close(struct play *p)
{
	p->s = api_responses.close(p->s);
	turn_request_free(&p->r);
	for (size_t i = 0; i < p->n_actors; i++) {
		free(p->actors[i].name);
		for (size_t j = 0; j < p->actors[i].n_texts; j++)
			buf_free(&p->actors[i].texts[j]);
	}
	buf_free(&p->out);
}

/* Time of the end is the only thing that differs from run to run. */
static void hide_time(struct buf *b)
{
	static const char key[] = "\"completed_at\":";
	struct buf done = test_buf();
	char *at = b->data, *found;

	while ((found = strstr(at, key))) {
		found += sizeof(key) - 1;
		buf_append(&done, at, (size_t)(found - at));
		at = found;
		if (*at == 'n')
			continue;
		buf_puts(&done, "T");
		while (*at >= '0' && *at <= '9')
			at++;
	}
	buf_puts(&done, at);
	buf_free(b);
	*b = done;
}

static enum api_carrier carrier_of(const struct test_case *c)
{
	const char *name = case_text(c, "carrier");

	if (name && strcmp(name, "whole") == 0)
		return API_WHOLE;
	return name && strcmp(name, "websocket") == 0 ? API_WEBSOCKET : API_SSE;
}

static void run_case(const struct test_case *c, struct buf *ret_got)
{
	static const size_t rooms[] = {1, 7, 4096};
	enum api_carrier carrier = carrier_of(c);
	struct play first, again;

	play_open(&first, case_text(c, "request"), carrier, case_text(c, "v1") != NULL);
	play_script(&first, case_text(c, "script"));
	if (carrier == API_WHOLE)
		buf_printf(ret_got, "HTTP %d\n", api_responses.status(first.s));
	hide_time(&first.out);
	buf_append(ret_got, first.out.data, first.out.len);
	for (size_t i = 0; i < sizeof(rooms) / sizeof(*rooms); i++) {
		play_open(&again, case_text(c, "request"), carrier, case_text(c, "v1") != NULL);
		again.room = rooms[i];
		play_script(&again, case_text(c, "script"));
		hide_time(&again.out);
		assert_int_equal(again.out.len, first.out.len);
		assert_memory_equal(again.out.data, first.out.data, first.out.len);
		play_close(&again);
	}
	if (carrier == API_SSE) {
		/* The checker wants a number. */
		for (char *t = first.out.data; (t = strstr(t, "\"completed_at\":T"));)
			t[15] = '1';
		json_doc_free(check_stream((struct str){first.out.data, first.out.len}));
	}
	play_close(&first);
}

static void test_files(void **state)
{
	char path[4096];

	str_format(path, sizeof(path), "%s/streams.txt", cases_path);
	assert_true(cases_run(path, run_case) >= 15);
}

/* ---- what does not fit ---- */

static void big_turn(struct play *p, struct str text)
{
	struct item *message = conversation_add(p->r.conversation, ITEM_MESSAGE);

	message->role = ROLE_ASSISTANT;
	message->reply = 0;
	message->id = STR("msg_1");
	emit(p, &(struct turn_output){.type = OUT_BEGIN});
	emit(p, &(struct turn_output){.type = OUT_ITEM_BEGIN, .item = message});
	emit(p, &(struct turn_output){.type = OUT_DELTA, .item = message, .text = text});
	message->parts = conversation_parts(p->r.conversation, 1);
	message->parts[0] = (struct part){.type = PART_TEXT, .text = text};
	message->n_parts = 1;
	emit(p, &(struct turn_output){.type = OUT_ITEM_END, .item = message});
	emit(p, &(struct turn_output){.type = OUT_END});
}

/* A text of megabytes arrives whole, whatever the pieces. */
static void test_large(void **state)
{
	enum { SIZE = 3 * 1024 * 1024 };
	struct str text = {test_long_text(SIZE), SIZE};
	struct json_doc *last;
	struct play p, q;

	play_open(&p, "{\"model\":\"m\",\"input\":\"x\"}", API_SSE, true);
	big_turn(&p, text);
	last = check_stream((struct str){p.out.data, p.out.len});
	json_doc_free(last);
	play_open(&q, "{\"model\":\"m\",\"input\":\"x\"}", API_SSE, true);
	q.room = 100;
	big_turn(&q, text);
	hide_time(&p.out);
	hide_time(&q.out);
	assert_int_equal(p.out.len, q.out.len);
	assert_memory_equal(p.out.data, q.out.data, p.out.len);
	play_close(&p);
	play_close(&q);
	free((void *)(uintptr_t)text.p);
}

/* What a stream holds while a large event waits is small, and what emit() gives at once is bounded.
 */
static void test_large_is_not_copied(void **state)
{
	enum { SIZE = 32 * 1024 * 1024 };
	struct str text = {test_long_text(SIZE), SIZE};
	struct buf out = test_buf();
	struct turn_totals totals = {0};
	struct item *message;
	struct mallinfo2 before;
	struct play p;

	play_open(&p, "{\"model\":\"m\",\"input\":\"x\"}", API_SSE, true);
	message = conversation_add(p.r.conversation, ITEM_MESSAGE);
	message->role = ROLE_ASSISTANT;
	message->id = STR("msg_1");
	message->parts = conversation_parts(p.r.conversation, 1);
	message->parts[0] = (struct part){.type = PART_TEXT, .text = text};
	message->n_parts = 1;
	emit(&p, &(struct turn_output){.type = OUT_BEGIN});
	before = mallinfo2();
	assert_int_equal(api_responses.emit(p.s,
	                         &(struct turn_output){.type = OUT_ITEM_END, .item = message},
	                         &totals, &out),
	        0);
	assert_true(out.len >= 64 * 1024 && out.len < 130 * 1024);
	assert_true(api_responses.left(p.s) >= SIZE - 128 * 1024);
	for (int i = 0; i < 50; i++) {
		out.len = 0;
		assert_int_equal(api_responses.pull(p.s, &out, 4096), 0);
		assert_true(out.len <= 4096 + 8);
	}
	assert_true(mallinfo2().uordblks + mallinfo2().hblkhd <
	            before.uordblks + before.hblkhd + 1024 * 1024);
	/* A keep-alive may not fall into the middle of an event. */
	out.len = 0;
	api_responses.keepalive(p.s, &out);
	assert_int_equal(out.len, 0);
	buf_free(&out);
	play_close(&p);
	free((void *)(uintptr_t)text.p);
}

/* A stream that stands idle keeps little. */
static void test_idle_is_small(void **state)
{
	struct str text = STR("a word and a few more of them ");
	struct mallinfo2 before;
	struct play p;

	play_open(&p, "{\"model\":\"m\",\"input\":\"x\"}", API_SSE, true);
	before = mallinfo2();
	big_turn(&p, text);
	p.out.len = 0;
	assert_true(mallinfo2().uordblks < before.uordblks + 20 * 1024 + p.out.cap);
	play_close(&p);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_files),
	        cmocka_unit_test(test_large),
	        cmocka_unit_test(test_large_is_not_copied),
	        cmocka_unit_test(test_idle_is_small),
	};

	if (argc != 2)
		return 2;
	cases_path = argv[1];
	return UNIT_RUN(tests);
}
