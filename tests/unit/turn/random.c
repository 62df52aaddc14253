/*
 * Feeds turns with events in random order, most of them such as could come, many that could not,
 * and has every effect watched (check.h). The seed is fixed and printed; SEED in the environment
 * takes another.
 */
#include "unit.h"

#include "check.h"

#include "base/mem.h"
#include "tool/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 200000, STEPS_OF_A_TURN = 150, OUTPUT_MAX = 512 };

static struct unit_random rnd = {0x9e3779b97f4a7c15};

/* All effects are taken and watched at once; late, and only what the client sees is watched; late,
 * unwatched. */
enum watch { WATCH_ALL, WATCH_OUTPUT, WATCH_NOTHING };

struct world {
	struct turn_options o;
	struct conversation *c;
	struct turn *t;
	struct check check;
	enum watch watch;
	bool done;
	uint64_t now_ms, timer_at;
	bool upstream, tool, storing;
	size_t runs;
	struct item *call, *old_call; /* that runs; that ran before */
	size_t command;
	char printed[2][OUTPUT_MAX]; /* what the command that runs has printed so far */
	size_t n_printed[2];
	uint64_t seen; /* so that every byte of every text is read */
};

static size_t below(size_t n)
{
	return unit_below(&rnd, n);
}

static bool chance(size_t percent)
{
	return below(100) < percent;
}

/* ---- texts ---- */

static const char *const pieces[] = {
        "a",
        "",
        "bc",
        "{",
        "}",
        "{\"commands\":[\"ls\"]}",
        "{\"commands\":[\"a\",\"b\",\"c\"]}",
        "{\"commands\":[",
        "\"ls\"]}",
        "\xc3\xa4",
        "\xe2\x80\xa6",
        "\xf0\x9f\x98\x80",
        "{}",
        "null",
        "\n",
};

static struct str piece(void)
{
	return str_of(pieces[below(sizeof(pieces) / sizeof(pieces[0]))]);
}

static struct str some_name(void)
{
	static const char *const names[] = {
	        "shell", "shell", "shell", "weather", "news", "nothing", ""};

	return str_of(names[below(sizeof(names) / sizeof(names[0]))]);
}

static struct str some_id(void)
{
	static const char *const ids[] = {"c1", "c2", "c3", "call_0", "", "functions.shell:0",
	        "an_id_that_is_much_longer_than_forty_characters", "\xc3\xa4"};

	return str_of(ids[below(sizeof(ids) / sizeof(ids[0]))]);
}

/* ---- effects ---- */

static void take_effects(struct world *w)
{
	struct turn_effect e;
	size_t i;

	while (turn_next_effect(w->t, &e)) {
		assert_false(w->done);
		if (w->watch == WATCH_ALL || (w->watch == WATCH_OUTPUT && e.type == EFFECT_EMIT))
			check_effect(&w->check, &e);
		for (i = 0; e.type == EFFECT_EMIT && i < e.output.text.n; i++)
			w->seen += (unsigned char)e.output.text.p[i];
		w->upstream |= e.type == EFFECT_CALL_UPSTREAM;
		if (e.type == EFFECT_CANCEL_UPSTREAM)
			w->upstream = false;
		if (e.type == EFFECT_RUN_TOOL) {
			w->runs++;
			w->tool = true;
			w->old_call = w->call;
			w->call = e.item;
			w->command = 0;
			w->n_printed[0] = 0;
			w->n_printed[1] = 0;
		}
		if (e.type == EFFECT_KILL_TOOL && !e.as_timeout)
			w->tool = false;
		if (e.type == EFFECT_ARM_TIMER)
			w->timer_at = e.at_ms;
		w->storing |= e.type == EFFECT_STORE;
		w->done |= e.type == EFFECT_DONE;
		/* A slow gateway: it takes some now, and some after the next event. */
		if (w->watch != WATCH_ALL && chance(30))
			return;
	}
}

static void feed(struct world *w, struct turn_event *ev)
{
	ev->now_ms = w->now_ms;
	if (w->watch == WATCH_ALL)
		check_event(&w->check, ev);
	turn_feed(w->t, ev);
	take_effects(w);
}

/* ---- events ---- */

/* A call as a good model makes it. */
static void feed_whole_call(struct world *w)
{
	struct stream_event ev = {
	        .type = STREAM_ITEM_BEGIN, .item_type = ITEM_CALL, .id = some_id()};

	ev.name = chance(85) ? STR("shell") : some_name();
	feed(w, &(struct turn_event){.type = TURN_STREAM, .stream = &ev});
	ev.type = STREAM_DELTA;
	ev.text = STR("{\"commands\":[\"one\",\"two\"]}");
	feed(w, &(struct turn_event){.type = TURN_STREAM, .stream = &ev});
	ev.type = STREAM_ITEM_END;
	feed(w, &(struct turn_event){.type = TURN_STREAM, .stream = &ev});
}

static void feed_stream(struct world *w)
{
	static struct error err;
	struct stream_event ev = {.part_type = PART_TEXT};
	size_t kind = below(100);

	if (chance(30)) {
		feed_whole_call(w);
		return;
	}
	if (kind < 5) {
		ev.type = STREAM_BEGIN;
	} else if (kind < 20) {
		ev.type = STREAM_ITEM_BEGIN;
		ev.item_type = (enum item_type)(chance(60) ? (size_t)ITEM_CALL : below(4));
		ev.id = some_id();
		ev.name = some_name();
	} else if (kind < 40) {
		ev.type = STREAM_DELTA;
		ev.part = (uint32_t)below(3);
		ev.part_type = (enum part_type)below(4);
		ev.text = piece();
	} else if (kind < 55) {
		ev.type = STREAM_ITEM_END;
		ev.id = some_id();
		ev.name = some_name();
		ev.opaque = piece();
	} else if (kind < 60) {
		ev.type = STREAM_USAGE;
		ev.usage = (struct usage){.given = true, .input = below(100), .output = below(100)};
	} else if (kind < 99) {
		ev.type = STREAM_END;
		ev.finish = (enum finish)(chance(85) ? (size_t)FINISH_CALLS : below(4));
		w->upstream = false;
	} else {
		error_set(&err, ERR_UPSTREAM, "The upstream broke off.");
		ev.type = STREAM_ERROR;
		ev.error = &err;
		w->upstream = false;
	}
	feed(w, &(struct turn_event){.type = TURN_STREAM, .stream = &ev});
}

/* What it prints is sure to stay, as the gateway promises: the pieces begin the command's final
 * text. */
static void feed_output(struct world *w)
{
	int stream = chance(70) ? 0 : 1;
	struct str text = piece();

	if (w->n_printed[stream] + text.n > OUTPUT_MAX)
		return;
	memcpy(w->printed[stream] + w->n_printed[stream], text.p, text.n);
	w->n_printed[stream] += text.n;
	feed(w, &(struct turn_event){.type = TURN_TOOL_OUTPUT,
	                .call = w->call,
	                .command = w->command,
	                .is_stderr = stream == 1,
	                .text = text});
}

static void feed_command(struct world *w)
{
	struct command_output out = {.done = true, .exit_code = (int)below(256)};
	int i;

	for (i = 0; i < 2; i++) {
		struct str text = piece();

		if (w->n_printed[i] + text.n <= OUTPUT_MAX) {
			memcpy(w->printed[i] + w->n_printed[i], text.p, text.n);
			w->n_printed[i] += text.n;
		}
	}
	out.out = (struct str){w->printed[0], w->n_printed[0]};
	out.err = (struct str){w->printed[1], w->n_printed[1]};
	out.outcome = chance(20) ? OUTCOME_TIMEOUT : OUTCOME_EXIT;
	feed(w, &(struct turn_event){.type = TURN_TOOL_COMMAND,
	                .call = w->call,
	                .command = w->command,
	                .output = &out});
	w->command++;
	w->n_printed[0] = 0;
	w->n_printed[1] = 0;
}

static void feed_tool(struct world *w)
{
	size_t kind = below(100);
	struct turn_event ev = {.call = w->call, .text = piece()};

	if (kind < 20) {
		ev.type = TURN_TOOL_STARTED;
		ev.started_container = chance(50);
	} else if (kind < 50) {
		feed_output(w);
		return;
	} else if (kind < 70) {
		feed_command(w);
		return;
	} else {
		ev.type = chance(80) ? TURN_TOOL_DONE : TURN_TOOL_FAILED;
		w->tool = false;
	}
	feed(w, &ev);
}

/* Events of a call that has ended, or of a command that does not run. */
static void feed_stray_tool(struct world *w)
{
	static const enum turn_event_type types[] = {TURN_TOOL_STARTED, TURN_TOOL_OUTPUT,
	        TURN_TOOL_COMMAND, TURN_TOOL_DONE, TURN_TOOL_FAILED};
	struct command_output out = {.done = true, .out = piece(), .err = piece()};
	struct turn_event ev = {
	        .type = types[below(5)],
	        .call = chance(50) ? w->old_call : NULL,
	        .text = piece(),
	        .command = below(200),
	        .output = &out,
	};

	feed(w, &ev);
}

static void feed_any(struct world *w)
{
	size_t kind = below(100);
	struct turn_event ev = {.text = {NULL, 0}};

	if (kind < 25) {
		ev.type = TURN_CLIENT_FULL;
	} else if (kind < 50) {
		ev.type = TURN_CLIENT_DRAINED;
	} else if (kind < 60) {
		ev.type = TURN_TIMER;
		if (chance(50) && w->timer_at > w->now_ms)
			w->now_ms = w->timer_at;
	} else if (kind < 70) {
		ev.type = TURN_STORED;
		if (chance(5))
			ev.text = STR("the disk is full");
	} else if (kind < 71) {
		ev.type = TURN_CANCEL;
	} else if (kind < 80) {
		ev.type = TURN_START;
	} else if (kind < 90) {
		feed_stray_tool(w);
		return;
	} else {
		/* A stream that has ended already. */
		if (!w->upstream)
			feed_stream(w);
		w->upstream &= !w->tool;
		return;
	}
	feed(w, &ev);
}

static void step(struct world *w)
{
	w->now_ms += below(50);
	if (chance(15))
		feed_any(w);
	else if (w->upstream)
		feed_stream(w);
	else if (w->tool)
		feed_tool(w);
	else if (w->storing)
		feed(w, &(struct turn_event){.type = TURN_STORED});
	else
		feed_any(w);
}

/* ---- a world ---- */

static bool seal(void *ctx, struct str opaque, struct buf *out)
{
	return chance(80) && buf_append(out, opaque.p, opaque.n) == 0;
}

static void add_tool(struct world *w, const char *type, const char *name)
{
	struct tool_entry *entry = &w->c->tools[w->c->n_tools++];
	struct shell_settings *s = arena_alloc(w->c->arena, sizeof(*s));

	entry->type = str_of(type);
	entry->name = str_of(name);
	entry->tool = tool_find(entry->type);
	entry->kind = entry->tool ? TOOL_SERVER : TOOL_FUNCTION;
	entry->settings = s;
	assert_non_null(s);
	s->own_items = chance(50);
	w->c->has_server_tool |= entry->tool != NULL;
}

static void world_begin(struct world *w, size_t memory, enum watch watch)
{
	static struct str allowed[1];

	memset(w, 0, sizeof(*w));
	w->watch = watch;
	w->c = conversation_new(memory);
	w->c->tools = arena_alloc(w->c->arena, 4 * sizeof(*w->c->tools));
	assert_non_null(w->c->tools);
	if (chance(85))
		add_tool(w, "openrouter:shell", "shell");
	add_tool(w, "function", "weather");
	add_tool(w, "function", "news");
	w->c->choice.mode = (enum choice_mode)(chance(60) ? 0 : below(4));
	w->c->choice.name = STR("shell");
	w->c->choice.restricted = chance(20);
	allowed[0] = some_name();
	w->c->choice.allowed = allowed;
	w->c->choice.n_allowed = 1;
	w->o = (struct turn_options){
	        .max_tool_calls = (uint32_t)(1 + below(6)),
	        .turn_ms = 200 + below(20000),
	        .streamed = chance(60),
	        .call_output_bytes = (uint32_t)(chance(50) ? below(20) : 1048576),
	        .turn_output_bytes = (uint32_t)(chance(50) ? below(60) : 16777216),
	        .tool = {120000, 300000, 16384, 65536, 100},
	        .price_per_second = {100000000},
	        .seal = seal,
	};
	w->t = turn_new(w->c, &w->o);
	check_init(&w->check, w->c, &w->o);
	w->check.late = watch != WATCH_ALL;
}

static void world_end(struct world *w)
{
	struct turn_totals totals;
	int i;

	feed(w, &(struct turn_event){.type = TURN_CANCEL});
	for (i = 0; i < 10000 && !w->done; i++)
		take_effects(w);
	assert_true(w->done);
	feed(w, &(struct turn_event){.type = TURN_START});
	feed_stray_tool(w);
	if (w->watch == WATCH_ALL)
		check_end(&w->check);
	turn_totals(w->t, w->now_ms, &totals);
	assert_true(totals.tool_calls_executed <= w->o.max_tool_calls);
	assert_true(totals.upstream_calls <= w->o.max_tool_calls + 9);
	assert_int_equal(totals.sandbox_ms > 0, totals.commands_started);
	check_free(&w->check);
	turn_free(w->t);
	conversation_free(w->c);
}

static void run(size_t steps, size_t memory, enum watch watch)
{
	struct world w;
	size_t left = steps, turns = 0, runs = 0, i;

	while (left > 0) {
		world_begin(&w, memory, watch);
		if (chance(98))
			feed(&w, &(struct turn_event){.type = TURN_START});
		for (i = below(STEPS_OF_A_TURN); i > 0 && left > 0 && !w.done; i--, left--)
			step(&w);
		runs += w.runs;
		world_end(&w);
		turns++;
	}
	/* Else it tests nothing worth the name. */
	if (memory > 1000000)
		assert_true(runs > steps / 50);
	print_message("%zu steps in %zu turns, %zu calls run\n", steps, turns, runs);
}

static void every_rule_holds(void **state)
{
	run(STEPS, (size_t)16 * 1024 * 1024, WATCH_ALL);
}

/* A gateway that takes effects late: nothing is lost, and no text moves under its feet. */
static void slow_gateway(void **state)
{
	run(STEPS / 4, (size_t)16 * 1024 * 1024, WATCH_OUTPUT);
}

/* A conversation that is full: the turn ends, once, and in order. */
static void little_memory(void **state)
{
	size_t memory;

	for (memory = 2000; memory < 20000; memory += 600)
		run(STEPS / 100, memory, WATCH_NOTHING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_rule_holds),
	        cmocka_unit_test(slow_gateway),
	        cmocka_unit_test(little_memory),
	};
	const char *seed = getenv("SEED");

	if (seed)
		rnd.state = strtoull(seed, NULL, 0) | 1;
	print_message("SEED=%#" PRIx64 "\n", rnd.state);
	return UNIT_RUN(tests);
}
