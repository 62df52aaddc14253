/*
 * Runs the event scripts in tests/cases/turn. A script is a text file:
 *
 *     # a comment
 *     turn max_tool_calls=2 streamed=no        options that differ from the usual ones
 *     tool brig:shell {"timeout_ms":5}          the tools; without such a line openrouter:shell
 *     tool function weather
 *     choice named weather                      auto, none, required, named NAME; + allowed A B
 *     @ 1500                                    it is now 1500 ms
 *     > start                                   an event
 *     < call_upstream 0 auto                    the effects that it must bring, all of them, in
 * order = …                                       at the end: totals, then all items
 *
 * The program writes what really happened in the same form and compares. UPDATE=1 in the
 * environment writes it back instead: read the difference before you keep it.
 */
#include "unit.h"

#include "check.h"

#include "base/mem.h"
#include "json/json.h"
#include "tool/tool.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

enum { SCRIPTS_MAX = 256, SCRIPTS_LEAST = 45, TEXT_SHOWN = 100, STRING_MAX = 100000 };

struct script {
	struct turn_options o;
	struct conversation *c;
	struct turn *t;
	struct check check;
	struct buf actual; /* the transcript */
	uint64_t now_ms;
	struct item *call; /* the last one that was run */
	unsigned ids;
	struct buf text; /* of the event's string */
};

static void count_id(void *ctx, char *out, size_t size, const char *prefix, size_t n)
{
	struct script *s = ctx;

	str_format(out, size, "%s%u", prefix, ++s->ids);
}

static bool seal_text(void *ctx, struct str opaque, struct buf *out)
{
	if (str_starts(opaque, "drop"))
		return false;
	buf_puts(out, "sealed(");
	buf_append(out, opaque.p, opaque.n);
	buf_puts(out, ")");
	return true;
}

/* ---- reading words ---- */

struct words {
	struct str rest;
};

static struct str word(struct words *w)
{
	struct str s;
	size_t n = 0;

	while (w->rest.n > 0 && w->rest.p[0] == ' ') {
		w->rest.p++;
		w->rest.n--;
	}
	while (n < w->rest.n && w->rest.p[n] != ' ')
		n++;
	s = (struct str){w->rest.p, n};
	w->rest.p += n;
	w->rest.n -= n;
	return s;
}

static uint64_t number(struct words *w)
{
	uint64_t v = 0;
	struct str s = word(w);

	if (!str_to_u64(s, &v))
		fail_msg("not a number: %.*s", (int)s.n, s.p);
	return v;
}

/* A string in quotes, with \n \\ \" \xHH, and *N behind it to repeat it. Appended to s->text, whose
 * memory must not move while an event uses it. */
static struct str quoted(struct script *s, struct words *w)
{
	size_t begin = s->text.len, once;
	const char *p, *end = w->rest.p + w->rest.n;
	unsigned byte;
	uint64_t times = 1;

	for (p = w->rest.p; p < end && *p == ' '; p++)
		;
	if (p == end || *p != '"') {
		w->rest = (struct str){p, (size_t)(end - p)};
		return (struct str){NULL, 0};
	}
	for (p++; p < end && *p != '"'; p++) {
		char c = *p;

		if (c == '\\' && p[1] == 'x') {
			assert_int_equal(sscanf(p + 2, "%2x", &byte), 1);
			c = (char)byte;
			p += 3;
		} else if (c == '\\') {
			p++;
			c = *p == 'n' ? '\n' : *p;
		}
		buf_putc(&s->text, c);
	}
	assert_true(p < end);
	p++;
	w->rest = (struct str){p, (size_t)(end - p)};
	once = s->text.len - begin;
	if (p < end && *p == '*') {
		w->rest.p++;
		w->rest.n--;
		times = number(w);
	}
	assert_true(once * times <= STRING_MAX);
	while (--times > 0)
		buf_append(&s->text, s->text.data + begin, once);
	assert_int_equal(buf_error(&s->text), 0);
	return (struct str){s->text.data + begin, s->text.len - begin};
}

/* key=value among the words; {NULL,0} when it is not the next word's key. */
static struct str option(struct words *w, const char *key)
{
	struct words save = *w;
	struct str s = word(w);
	size_t n = strlen(key);

	if (s.n > n && memcmp(s.p, key, n) == 0 && s.p[n] == '=')
		return (struct str){s.p + n + 1, s.n - n - 1};
	*w = save;
	return (struct str){NULL, 0};
}

/* ---- writing effects ---- */

static void put_text(struct buf *b, struct str s)
{
	size_t n = s.n;

	if (n > TEXT_SHOWN) {
		n = TEXT_SHOWN / 2;
		while (((unsigned char)s.p[n] & 0xc0) == 0x80)
			n--;
	}
	json_write_str(b, (struct str){s.p, n});
	if (n < s.n)
		buf_printf(b, "…%zu", s.n);
}

static void put_str(struct buf *b, struct str s)
{
	buf_append(b, s.p, s.n);
}

static void put_look(struct buf *b, const struct item *item)
{
	char *look = check_look(item);
	struct str s = str_of(look);

	if (s.n > 600)
		buf_printf(b, "%.300s … %s", look, look + s.n - 120);
	else
		put_str(b, s);
	free(look);
}

static const char *choice_name(enum choice_mode m)
{
	return m == CHOICE_AUTO       ? "auto"
	       : m == CHOICE_NONE     ? "none"
	       : m == CHOICE_REQUIRED ? "required"
	                              : "named";
}

static void put_call_upstream(struct buf *b, const struct upstream_call *u)
{
	size_t i;

	buf_printf(b, "call_upstream %u %s", u->reply, choice_name(u->choice.mode));
	if (u->choice.mode == CHOICE_NAMED)
		buf_printf(b, " %.*s", (int)u->choice.name.n, u->choice.name.p);
	for (i = 0; i < u->choice.n_allowed && u->choice.restricted; i++)
		buf_printf(b, "%s%.*s", i ? "," : " allowed=", (int)u->choice.allowed[i].n,
		        u->choice.allowed[i].p);
	if (u->tools_off)
		buf_puts(b, " tools_off");
}

static void put_item_begin(struct buf *b, const struct item *item)
{
	static const char *const types[] = {
	        [ITEM_MESSAGE] = "message", [ITEM_REASONING] = "reasoning", [ITEM_CALL] = "call",
	        [ITEM_OTHER] = "other"};

	buf_printf(b, "item_begin %s ", types[item->type]);
	put_str(b, item->id);
	if (item->type == ITEM_CALL)
		buf_printf(b, " %.*s %.*s", (int)item->call.public_id.n, item->call.public_id.p,
		        (int)item->call.name.n, item->call.name.p);
}

static void put_command(struct buf *b, const struct turn_output *o)
{
	const struct command_output *out = &o->result->result.outputs[o->command];

	buf_printf(b, "tool_command %zu ", o->command);
	if (out->outcome == OUTCOME_TIMEOUT)
		buf_puts(b, "timeout ");
	else
		buf_printf(b, "exit %d ", out->exit_code);
	put_text(b, out->out);
	buf_putc(b, ' ');
	put_text(b, out->err);
	if (out->out_truncated)
		buf_puts(b, " out_truncated");
	if (out->err_truncated)
		buf_puts(b, " err_truncated");
}

static void put_end(struct buf *b, const struct turn_output *o)
{
	static const char *const statuses[] = {[TURN_COMPLETED] = "completed",
	        [TURN_INCOMPLETE] = "incomplete",
	        [TURN_FAILED] = "failed",
	        [TURN_CANCELED] = "canceled"};

	buf_printf(b, "end %s", statuses[o->status]);
	if (o->incomplete_reason)
		buf_printf(b, " %s", o->incomplete_reason);
	if (o->error)
		buf_printf(b, " %d %s", o->error->code, o->error->text);
	if (o->stop_sequence.n > 0)
		buf_printf(b, " at=%.*s", (int)o->stop_sequence.n, o->stop_sequence.p);
}

static void put_output(struct buf *b, const struct turn_output *o)
{
	switch (o->type) {
	case OUT_BEGIN:
		buf_puts(b, "begin");
		break;
	case OUT_ITEM_BEGIN:
		put_item_begin(b, o->item);
		break;
	case OUT_DELTA:
		buf_printf(b, "delta %u ", o->part);
		put_text(b, o->text);
		break;
	case OUT_ITEM_END:
		buf_puts(b, "item_end ");
		put_look(b, o->item);
		break;
	case OUT_TOOL_BEGIN:
		buf_puts(b, "tool_begin ");
		put_look(b, o->item);
		break;
	case OUT_TOOL_OUTPUT:
		buf_printf(b, "tool_output %zu %s ", o->command, o->is_stderr ? "err" : "out");
		put_text(b, o->text);
		break;
	case OUT_TOOL_COMMAND:
		put_command(b, o);
		break;
	case OUT_TOOL_END:
		buf_puts(b, "tool_end ");
		put_look(b, o->result);
		break;
	case OUT_END:
		put_end(b, o);
		break;
	}
}

static void put_effect(struct buf *b, const struct turn_effect *e)
{
	static const char *const plain[] = {
	        [EFFECT_PAUSE_UPSTREAM] = "pause_upstream",
	        [EFFECT_RESUME_UPSTREAM] = "resume_upstream",
	        [EFFECT_CANCEL_UPSTREAM] = "cancel_upstream",
	        [EFFECT_PAUSE_TOOL] = "pause_tool",
	        [EFFECT_RESUME_TOOL] = "resume_tool",
	        [EFFECT_STORE] = "store",
	        [EFFECT_DONE] = "done",
	};

	buf_puts(b, "< ");
	switch ((int)e->type) {
	case EFFECT_CALL_UPSTREAM:
		put_call_upstream(b, &e->call);
		break;
	case EFFECT_RUN_TOOL:
		buf_printf(b, "run_tool %.*s bytes=%u timeout=%u chars=%u",
		        (int)e->item->call.public_id.n, e->item->call.public_id.p, e->output_bytes,
		        e->item->call.parsed->timeout_ms, e->item->call.parsed->output_chars);
		break;
	case EFFECT_KILL_TOOL:
		buf_printf(b, "kill_tool %.*s%s", (int)e->item->call.public_id.n,
		        e->item->call.public_id.p, e->as_timeout ? " timeout" : "");
		break;
	case EFFECT_ARM_TIMER:
		buf_printf(b, "arm_timer %llu", (unsigned long long)e->at_ms);
		break;
	case EFFECT_EMIT:
		put_output(b, &e->output);
		break;
	default:
		buf_puts(b, plain[e->type]);
		break;
	}
	buf_putc(b, '\n');
}

/* ---- feeding ---- */

static void feed(struct script *s, struct turn_event *ev)
{
	struct turn_effect e;

	ev->now_ms = s->now_ms;
	check_event(&s->check, ev);
	turn_feed(s->t, ev);
	while (turn_next_effect(s->t, &e)) {
		put_effect(&s->actual, &e);
		check_effect(&s->check, &e);
		if (e.type == EFFECT_RUN_TOOL)
			s->call = e.item;
	}
}

static void feed_stream(struct script *s, const struct stream_event *ev)
{
	feed(s, &(struct turn_event){.type = TURN_STREAM, .stream = ev});
}

static enum item_type item_type_of(struct str name)
{
	if (str_is(name, "message"))
		return ITEM_MESSAGE;
	if (str_is(name, "reasoning"))
		return ITEM_REASONING;
	if (str_is(name, "result"))
		return ITEM_RESULT;
	if (str_is(name, "other"))
		return ITEM_OTHER;
	assert_true(str_is(name, "call"));
	return ITEM_CALL;
}

static enum part_type part_type_of(struct str name)
{
	if (str_is(name, "refusal"))
		return PART_REFUSAL;
	if (str_is(name, "summary"))
		return PART_SUMMARY;
	if (str_is(name, "reasoning"))
		return PART_REASONING;
	assert_true(name.n == 0 || str_is(name, "text"));
	return PART_TEXT;
}

static bool event_whole_item(struct script *s, struct str verb, struct words *w)
{
	struct stream_event begin = {.type = STREAM_ITEM_BEGIN};
	struct stream_event delta = {.type = STREAM_DELTA};
	struct stream_event end = {.type = STREAM_ITEM_END};

	if (str_is(verb, "text") || str_is(verb, "think")) {
		begin.item_type = str_is(verb, "text") ? ITEM_MESSAGE : ITEM_REASONING;
		delta.part_type = str_is(verb, "text") ? PART_TEXT : PART_SUMMARY;
		delta.text = quoted(s, w);
		end.opaque = option(w, "opaque");
	} else if (str_is(verb, "call")) {
		begin.item_type = ITEM_CALL;
		begin.name = word(w);
		begin.id = word(w);
		end.name = begin.name;
		end.id = begin.id;
		delta.text = str_trim(w->rest);
	} else {
		return false;
	}
	end.item_type = begin.item_type;
	delta.item_type = begin.item_type;
	feed_stream(s, &begin);
	feed_stream(s, &delta);
	feed_stream(s, &end);
	return true;
}

static bool event_stream(struct script *s, struct str verb, struct words *w)
{
	struct stream_event ev = {.finish = FINISH_STOP};
	struct error err;
	struct str v;

	if (str_is(verb, "begin")) {
		ev.type = STREAM_BEGIN;
	} else if (str_is(verb, "item")) {
		ev.type = STREAM_ITEM_BEGIN;
		ev.item_type = item_type_of(word(w));
		ev.id = option(w, "id");
		ev.name = option(w, "name");
	} else if (str_is(verb, "delta")) {
		ev.type = STREAM_DELTA;
		v = option(w, "part");
		if (v.n > 0)
			ev.part = (uint32_t)(v.p[0] - '0');
		ev.part_type = part_type_of(option(w, "kind"));
		ev.text = quoted(s, w);
	} else if (str_is(verb, "item_end")) {
		ev.type = STREAM_ITEM_END;
		ev.id = option(w, "id");
		ev.name = option(w, "name");
		ev.opaque = option(w, "opaque");
		ev.raw = option(w, "raw");
		ev.awaits_client = option(w, "awaits").n > 0;
	} else if (str_is(verb, "usage")) {
		ev.type = STREAM_USAGE;
		ev.usage = (struct usage){.given = true, .input = number(w), .output = number(w)};
		v = option(w, "cost");
		ev.usage.has_cost = money_parse(v, &ev.usage.cost);
	} else if (str_is(verb, "finish")) {
		ev.type = STREAM_END;
		v = word(w);
		ev.finish = str_is(v, "calls")    ? FINISH_CALLS
		            : str_is(v, "length") ? FINISH_LENGTH
		            : str_is(v, "filter") ? FINISH_FILTER
		            : str_is(v, "pause")  ? FINISH_PAUSE
		                                  : FINISH_STOP;
		ev.stop_sequence = option(w, "at");
	} else if (str_is(verb, "error")) {
		v = quoted(s, w);
		error_set(&err, ERR_UPSTREAM, "%.*s", (int)v.n, v.p);
		ev.type = STREAM_ERROR;
		ev.error = &err;
	} else {
		return false;
	}
	feed_stream(s, &ev);
	return true;
}

static bool event_tool(struct script *s, struct str verb, struct words *w)
{
	struct turn_event ev = {.call = s->call};
	struct command_output out = {.done = true};
	struct str call = option(w, "call");
	struct error refused;

	if (call.n > 0)
		ev.call = conversation_find_call(s->c, call);
	if (str_is(verb, "started")) {
		ev.type = TURN_TOOL_STARTED;
		ev.started_container = str_is(word(w), "new");
	} else if (str_is(verb, "output")) {
		ev.type = TURN_TOOL_OUTPUT;
		ev.command = number(w);
		ev.is_stderr = str_is(word(w), "err");
		ev.text = quoted(s, w);
	} else if (str_is(verb, "command")) {
		ev.type = TURN_TOOL_COMMAND;
		ev.command = number(w);
		if (str_is(word(w), "timeout"))
			out.outcome = OUTCOME_TIMEOUT;
		else
			out.exit_code = (int)number(w);
		out.out = quoted(s, w);
		out.err = quoted(s, w);
		out.signal = option(w, "signal");
		out.reason = option(w, "reason");
		ev.output = &out;
	} else if (str_is(verb, "done")) {
		ev.type = TURN_TOOL_DONE;
	} else if (str_is(verb, "failed")) {
		ev.type = TURN_TOOL_FAILED;
		ev.text = quoted(s, w);
	} else if (str_is(verb, "refused")) {
		ev.type = TURN_TOOL_FAILED;
		ev.text = quoted(s, w);
		error_set(&refused, ERR_CONFLICT, "%.*s", (int)ev.text.n, ev.text.p);
		ev.refused = &refused;
	} else {
		return false;
	}
	feed(s, &ev);
	return true;
}

static void event(struct script *s, struct words *w)
{
	static const struct {
		const char *verb;
		enum turn_event_type type;
	} plain[] = {
	        {"start", TURN_START},
	        {"timer", TURN_TIMER},
	        {"full", TURN_CLIENT_FULL},
	        {"drained", TURN_CLIENT_DRAINED},
	        {"cancel", TURN_CANCEL},
	        {"stored", TURN_STORED},
	};
	struct str verb = word(w);
	size_t i;

	buf_reset(&s->text);
	if (event_whole_item(s, verb, w) || event_stream(s, verb, w) || event_tool(s, verb, w))
		return;
	for (i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		if (str_is(verb, plain[i].verb)) {
			feed(s, &(struct turn_event){.type = plain[i].type, .text = quoted(s, w)});
			return;
		}
	}
	fail_msg("unknown event: %.*s", (int)verb.n, verb.p);
}

/* ---- the head of a script ---- */

static void head_turn(struct script *s, struct words *w)
{
	struct str v;

	while (w->rest.n > 0) {
		struct words at = *w;

		if ((v = option(w, "max_tool_calls")).n > 0)
			s->o.max_tool_calls = (uint32_t)strtoul(v.p, NULL, 10);
		if ((v = option(w, "turn_ms")).n > 0)
			s->o.turn_ms = strtoul(v.p, NULL, 10);
		if ((v = option(w, "streamed")).n > 0)
			s->o.streamed = str_is(v, "yes");
		if ((v = option(w, "call_output")).n > 0)
			s->o.call_output_bytes = (uint32_t)strtoul(v.p, NULL, 10);
		if ((v = option(w, "turn_output")).n > 0)
			s->o.turn_output_bytes = (uint32_t)strtoul(v.p, NULL, 10);
		if ((v = option(w, "next_reply")).n > 0)
			s->c->next_reply = (uint32_t)strtoul(v.p, NULL, 10);
		if (w->rest.n == at.rest.n)
			fail_msg("unknown option: %.*s", (int)w->rest.n, w->rest.p);
	}
}

static void head_tool(struct script *s, struct words *w)
{
	struct tool_entry *entry = &s->c->tools[s->c->n_tools++];
	struct buf json = BUF_INIT(65536);
	struct json_doc *doc;
	struct error err;
	bool ok = true;

	assert_true(s->c->n_tools <= 8);
	entry->type = conversation_copy(s->c, word(w), &ok);
	entry->strict = -1;
	if (str_is(entry->type, "function")) {
		entry->kind = TOOL_FUNCTION;
		entry->name = conversation_copy(s->c, word(w), &ok);
		return;
	}
	entry->kind = TOOL_SERVER;
	entry->tool = tool_find(entry->type);
	assert_non_null(entry->tool);
	entry->name = str_of(entry->tool->name);
	s->c->has_server_tool = true;
	buf_printf(&json, "{\"type\":\"%.*s\",\"parameters\":%.*s}", (int)entry->type.n,
	        entry->type.p, w->rest.n ? (int)w->rest.n : 2, w->rest.n ? w->rest.p : "{}");
	assert_int_equal(json_parse((struct str){json.data, json.len}, 65536, &doc, &err), 0);
	if (entry->tool->settings(
	            s->c->arena, entry->type, json_root(doc), "tools[0]", &entry->settings, &err))
		fail_msg("%s", err.text);
	json_doc_free(doc);
	buf_free(&json);
}

static void head_choice(struct script *s, struct words *w)
{
	struct tool_choice *c = &s->c->choice;
	struct str mode = word(w);
	bool ok = true;

	c->mode = str_is(mode, "none")       ? CHOICE_NONE
	          : str_is(mode, "required") ? CHOICE_REQUIRED
	          : str_is(mode, "named")    ? CHOICE_NAMED
	                                     : CHOICE_AUTO;
	if (c->mode == CHOICE_NAMED)
		c->name = conversation_copy(s->c, word(w), &ok);
	if (str_is(word(w), "allowed")) {
		c->restricted = true;
		c->allowed = arena_alloc(s->c->arena, 8 * sizeof(*c->allowed));
		while (w->rest.n > 0)
			c->allowed[c->n_allowed++] = conversation_copy(s->c, word(w), &ok);
	}
}

/* stop steps 2 | tool shell | tokens 100 | cost 0.01 | finish length */
static void head_stop(struct script *s, struct words *w)
{
	struct stop_condition *all = arena_alloc(s->c->arena, 8 * sizeof(*all)), *stop;
	struct str type = word(w), of = word(w);
	bool ok = true;

	assert_true(s->o.n_stop < 8);
	if (s->o.n_stop > 0)
		memcpy(all, s->o.stop, s->o.n_stop * sizeof(*all));
	stop = &all[s->o.n_stop++];
	s->o.stop = all;
	stop->name = conversation_copy(s->c, of, &ok);
	if (str_is(type, "steps") || str_is(type, "tokens")) {
		stop->type = str_is(type, "steps") ? STOP_STEPS : STOP_TOKENS;
		assert_true(str_to_u64(of, &stop->n));
	} else if (str_is(type, "cost")) {
		stop->type = STOP_COST;
		assert_true(money_parse(of, &stop->cost));
	} else {
		stop->type = str_is(type, "tool") ? STOP_TOOL_CALL : STOP_FINISH;
	}
}

static void turn_ready(struct script *s)
{
	if (s->t)
		return;
	if (s->c->n_tools == 0) {
		struct words none = {STR("openrouter:shell")};

		head_tool(s, &none);
	}
	s->t = turn_new(s->c, &s->o);
	check_init(&s->check, s->c, &s->o);
}

/* ---- a whole script ---- */

static void put_totals(struct script *s)
{
	struct turn_totals t;
	size_t i;

	turn_totals(s->t, s->now_ms, &t);
	buf_printf(&s->actual,
	        "= upstream=%u requested=%u executed=%u started=%s sandbox_ms=%llu cost=",
	        t.upstream_calls, t.tool_calls_requested, t.tool_calls_executed,
	        t.commands_started ? "yes" : "no", (unsigned long long)t.sandbox_ms);
	money_write(&s->actual, t.sandbox_cost);
	if (t.usage.given)
		buf_printf(&s->actual, " in=%llu out=%llu", (unsigned long long)t.usage.input,
		        (unsigned long long)t.usage.output);
	if (t.usage.has_cost) {
		buf_puts(&s->actual, " upstream_cost=");
		money_write(&s->actual, t.usage.cost);
	}
	buf_putc(&s->actual, '\n');
	for (i = 0; i < s->c->n_items; i++) {
		buf_puts(&s->actual, "= ");
		put_look(&s->actual, s->c->items[i]);
		buf_puts(&s->actual, s->c->items[i]->output ? "\n" : " hidden\n");
	}
}

static void line_run(struct script *s, struct str line)
{
	struct words w = {line};
	struct str first;

	if (line.n > 0 && (line.p[0] == '<' || line.p[0] == '='))
		return;
	put_str(&s->actual, line);
	buf_putc(&s->actual, '\n');
	if (line.n == 0 || line.p[0] == '#')
		return;
	first = word(&w);
	if (str_is(first, "turn")) {
		head_turn(s, &w);
	} else if (str_is(first, "tool")) {
		if (!s->c->tools)
			s->c->tools = arena_alloc(s->c->arena, 8 * sizeof(*s->c->tools));
		head_tool(s, &w);
	} else if (str_is(first, "choice")) {
		head_choice(s, &w);
	} else if (str_is(first, "stop")) {
		head_stop(s, &w);
	} else if (str_is(first, "@")) {
		s->now_ms = number(&w);
	} else if (str_is(first, ">")) {
		turn_ready(s);
		event(s, &w);
	} else {
		fail_msg("unknown line: %.*s", (int)line.n, line.p);
	}
}

static struct buf file_read(const char *path)
{
	struct buf b = BUF_INIT((size_t)1024 * 1024);
	char chunk[4096];
	size_t n;
	FILE *f = fopen(path, "re");

	if (!f)
		fail_msg("%s cannot be opened", path);
	while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0)
		buf_append(&b, chunk, n);
	fclose(f);
	assert_int_equal(buf_error(&b), 0);
	return b;
}

static void compare(const char *path, const struct buf *want, const struct buf *got)
{
	size_t i = 0, line = 1, begin = 0;
	FILE *f;

	if (want->len == got->len && memcmp(want->data, got->data, want->len) == 0)
		return;
	if (getenv("UPDATE")) {
		f = fopen(path, "we");
		assert_non_null(f);
		assert_int_equal(fwrite(got->data, 1, got->len, f), got->len);
		fclose(f);
		return;
	}
	for (; i < want->len && i < got->len && want->data[i] == got->data[i]; i++) {
		if (want->data[i] == '\n') {
			line++;
			begin = i + 1;
		}
	}
	fail_msg("%s:%zu:\n  expected: %.*s\n  happened: %.*s", path, line,
	        (int)strcspn(buf_cstr(want) + begin, "\n"), buf_cstr(want) + begin,
	        (int)strcspn(buf_cstr(got) + begin, "\n"), buf_cstr(got) + begin);
}

static void script_test(void **state)
{
	static const char zeros[2 * STRING_MAX];
	const char *path = *state;
	struct buf file = file_read(path);
	struct script s = {
	        .o = {.max_tool_calls = 30,
	                .turn_ms = 3600000,
	                .streamed = true,
	                .call_output_bytes = 1048576,
	                .turn_output_bytes = 16777216,
	                .tool = {120000, 300000, 16384, 65536, 100},
	                .price_per_second = {100000000},
	                .container_id = STR("gen_1"),
	                .seal = seal_text,
	                .make_id = count_id},
	};
	const char *p, *end;

	s.o.make_id_ctx = &s;
	s.c = conversation_new((size_t)64 * 1024 * 1024);
	buf_init(&s.actual, (size_t)4 * 1024 * 1024);
	buf_init(&s.text, (size_t)8 * 1024 * 1024);
	s.c->tools = arena_alloc(s.c->arena, 8 * sizeof(*s.c->tools));
	/* One allocation, so that the strings of one event do not move. */
	buf_append(&s.text, zeros, sizeof(zeros));
	for (p = file.data; p < file.data + file.len; p = end + 1) {
		end = strchr(p, '\n');
		assert_non_null(end);
		line_run(&s, (struct str){p, (size_t)(end - p)});
	}
	turn_ready(&s);
	put_totals(&s);
	if (s.check.done)
		check_end(&s.check);
	else
		assert_non_null(strstr(file.data, "# not ended"));
	compare(path, &file, &s.actual);
	check_free(&s.check);
	turn_free(s.t);
	conversation_free(s.c);
	buf_free(&s.actual);
	buf_free(&s.text);
	buf_free(&file);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct CMUnitTest *)a)->name, ((const struct CMUnitTest *)b)->name);
}

int main(int argc, char **argv)
{
	static struct CMUnitTest tests[SCRIPTS_MAX];
	static char paths[SCRIPTS_MAX][512];
	struct dirent *e;
	size_t n = 0;
	DIR *d;
	int r;

	if (argc != 2 || !(d = opendir(argv[1]))) {
		fprintf(stderr, "usage: script FOLDER\n");
		return 2;
	}
	while ((e = readdir(d))) {
		if (!str_ends(str_of(e->d_name), ".txt") || n == SCRIPTS_MAX)
			continue;
		snprintf(paths[n], sizeof(paths[n]), "%s/%s", argv[1], e->d_name);
		tests[n] = (struct CMUnitTest){.name = mem_strdup(e->d_name),
		        .test_func = script_test,
		        .initial_state = paths[n]};
		n++;
	}
	closedir(d);
	if (n < SCRIPTS_LEAST) {
		fprintf(stderr, "%zu scripts in %s, expected at least %d\n", n, argv[1],
		        SCRIPTS_LEAST);
		return 1;
	}
	qsort(tests, n, sizeof(tests[0]), by_name);
	r = _cmocka_run_group_tests("turn scripts", tests, n, NULL, NULL);
	while (n > 0)
		free((void *)(uintptr_t)tests[--n].name);
	return r;
}
