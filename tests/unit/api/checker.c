#include "checker.h"

#include "base/buf.h"
#include "base/mem.h"
#include "unit.h"

#include <stdlib.h>

enum { ITEMS = 512, PARTS = 64, COMMANDS = 128 };

struct seen_part {
	bool added, text_done, done;
	struct buf text;
};

struct seen_item {
	char *id, *type, *call_id;
	bool done;
	struct seen_part contents[PARTS], summaries[PARTS];
	size_t n_contents, n_summaries;
	struct buf arguments;
	bool arguments_done;
	bool command_complete[COMMANDS];
	struct buf commands[COMMANDS];
	size_t n_commands;
	struct buf streams[COMMANDS][2];
	bool command_done[COMMANDS];
};

struct checker {
	int64_t sequence;
	char *response_id;
	bool terminal;
	struct seen_item *items[ITEMS];
	size_t n_items;
	struct json_doc *last;
};

static char *dup_str(struct str s)
{
	return mem_strndup(s.p ? s.p : "", s.n);
}

static int64_t number(const struct json *v, const char *key)
{
	int64_t n = -1;

	if (!json_i64(json_get(v, key), &n))
		fail_msg("%s is missing in %.200s", key, json_raw(v).p);
	return n;
}

static struct str text(const struct json *v, const char *key)
{
	if (!json_is(json_get(v, key), JSON_STRING))
		fail_msg("%s is no string in %.200s", key, json_raw(v).p);
	return json_str(json_get(v, key));
}

static void same(const struct json *event, const struct buf *joined, struct str whole)
{
	if (!str_eq((struct str){joined->data, joined->len}, whole))
		fail_msg("the pieces are not the whole in %.300s", json_raw(event).p);
}

static void append(struct buf *b, struct str s)
{
	if (!b->max)
		buf_init(b, (size_t)64 * 1024 * 1024);
	buf_append(b, s.p, s.n);
}

/* ---- items ---- */

static bool needs_call_id(struct str type)
{
	return str_is(type, "shell_call") || str_is(type, "shell_call_output") ||
	       str_is(type, "function_call");
}

static void item_added(struct checker *k, const struct json *event)
{
	const struct json *item = json_get(event, "item");
	struct seen_item *seen = mem_alloc(sizeof(*seen));

	assert_true(k->n_items < ITEMS);
	assert_int_equal(number(event, "output_index"), k->n_items);
	seen->id = dup_str(text(item, "id"));
	seen->type = dup_str(text(item, "type"));
	seen->call_id = dup_str(json_str(json_get(item, "call_id")));
	assert_true(seen->id[0] && seen->type[0]);
	assert_true(str_is(text(item, "status"), "in_progress"));
	if (needs_call_id(str_of(seen->type)))
		assert_true(seen->call_id[0]);
	for (size_t i = 0; i < k->n_items; i++) {
		assert_string_not_equal(k->items[i]->id, seen->id);
		if (seen->call_id[0] && strcmp(k->items[i]->type, seen->type) == 0)
			assert_string_not_equal(k->items[i]->call_id, seen->call_id);
	}
	k->items[k->n_items++] = seen;
}

static void same_item(const struct seen_item *seen, const struct json *item)
{
	assert_true(str_is(text(item, "id"), seen->id));
	assert_true(str_is(text(item, "type"), seen->type));
	assert_true(str_eq(json_str(json_get(item, "call_id")), str_of(seen->call_id)));
	assert_true(json_is(json_get(item, "status"), JSON_STRING));
	assert_false(str_is(text(item, "status"), "in_progress"));
}

static struct seen_item *item_at(struct checker *k, const struct json *event)
{
	int64_t index = number(event, "output_index");

	assert_true(index >= 0 && (size_t)index < k->n_items);
	assert_false(k->items[index]->done);
	return k->items[index];
}

static struct seen_item *item_named(struct checker *k, const struct json *event, const char *type)
{
	struct seen_item *seen = item_at(k, event);

	assert_true(str_is(text(event, "item_id"), seen->id));
	assert_string_equal(seen->type, type);
	return seen;
}

static void parts_done(
        const struct json *list, const struct seen_part *parts, size_t n, const struct json *event)
{
	size_t i = 0;

	assert_int_equal(json_count(list), n);
	for (const struct json *v = json_first(list); v; v = json_next(v), i++) {
		const struct json *t = json_get(v, "text");

		assert_true(parts[i].done);
		same(event, &parts[i].text, json_str(t ? t : json_get(v, "refusal")));
	}
}

static void commands_done(const struct seen_item *seen, const struct json *item)
{
	const struct json *list = json_get(json_get(item, "action"), "commands");

	assert_int_equal(json_count(list), seen->n_commands);
	for (size_t i = 0; i < seen->n_commands; i++) {
		assert_true(seen->command_complete[i]);
		same(item, &seen->commands[i], json_str(json_at(list, i)));
	}
}

static void outputs_done(const struct seen_item *seen, const struct json *item)
{
	size_t i = 0;

	for (const struct json *v = json_first(json_get(item, "output")); v;
	        v = json_next(v), i++) {
		assert_true(seen->command_done[i]);
		same(item, &seen->streams[i][0], text(v, "stdout"));
		same(item, &seen->streams[i][1], text(v, "stderr"));
	}
	assert_true(i == COMMANDS || !seen->command_done[i]);
}

static void item_done(struct checker *k, const struct json *event)
{
	const struct json *item = json_get(event, "item");
	struct seen_item *seen = item_at(k, event);

	same_item(seen, item);
	seen->done = true;
	if (strcmp(seen->type, "message") == 0)
		parts_done(json_get(item, "content"), seen->contents, seen->n_contents, event);
	if (strcmp(seen->type, "reasoning") == 0) {
		parts_done(json_get(item, "summary"), seen->summaries, seen->n_summaries, event);
		parts_done(json_get(item, "content"), seen->contents, seen->n_contents, event);
	}
	if (strcmp(seen->type, "function_call") == 0) {
		assert_true(seen->arguments_done);
		same(event, &seen->arguments, text(item, "arguments"));
	}
	if (strcmp(seen->type, "shell_call") == 0)
		commands_done(seen, item);
	if (strcmp(seen->type, "shell_call_output") == 0)
		outputs_done(seen, item);
}

/* ---- parts ---- */

static struct seen_part *part_at(struct checker *k, const struct json *event, const char *index_key,
        const char *type, bool adding)
{
	bool summary = strcmp(index_key, "summary_index") == 0;
	struct seen_item *seen = item_named(k, event, type);
	size_t *n = summary ? &seen->n_summaries : &seen->n_contents;
	struct seen_part *parts = summary ? seen->summaries : seen->contents;
	int64_t index = number(event, index_key);

	assert_true(index >= 0 && (size_t)index < *n + (adding ? 1 : 0) && index < PARTS);
	if (adding) {
		assert_int_equal(index, *n);
		(*n)++;
		parts[index].added = true;
	}
	assert_true(parts[index].added && !parts[index].done);
	return &parts[index];
}

static bool part_event(struct checker *k, struct str type, const struct json *event)
{
	static const struct {
		const char *delta, *done, *key, *item, *index;
	} rows[] = {
	        {"response.output_text.delta", "response.output_text.done", "text", "message",
	                "content_index"},
	        {"response.refusal.delta", "response.refusal.done", "refusal", "message",
	                "content_index"},
	        {"response.reasoning_text.delta", "response.reasoning_text.done", "text",
	                "reasoning", "content_index"},
	        {"response.reasoning_summary_text.delta", "response.reasoning_summary_text.done",
	                "text", "reasoning", "summary_index"},
	};
	struct seen_part *part;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		if (str_is(type, rows[i].delta)) {
			part = part_at(k, event, rows[i].index, rows[i].item, false);
			assert_false(part->text_done);
			assert_true(text(event, "delta").n > 0);
			append(&part->text, text(event, "delta"));
			return true;
		}
		if (str_is(type, rows[i].done)) {
			part = part_at(k, event, rows[i].index, rows[i].item, false);
			assert_false(part->text_done);
			part->text_done = true;
			same(event, &part->text, text(event, rows[i].key));
			return true;
		}
	}
	return false;
}

static bool frame_event(struct checker *k, struct str type, const struct json *event)
{
	bool summary = str_starts(type, "response.reasoning_summary_part.");
	const struct json *part = json_get(event, "part");
	const char *item = str_is(text(part, "type"), "summary_text") ||
	                                   str_is(text(part, "type"), "reasoning_text")
	                           ? "reasoning"
	                           : "message";
	struct seen_part *seen = part_at(k, event, summary ? "summary_index" : "content_index",
	        item, str_ends(type, ".added"));

	if (str_ends(type, ".done")) {
		const struct json *t = json_get(part, "text");

		assert_true(seen->text_done);
		seen->done = true;
		same(event, &seen->text, json_str(t ? t : json_get(part, "refusal")));
	}
	return true;
}

/* ---- calls ---- */

static void command_event(struct checker *k, struct str type, const struct json *event)
{
	struct seen_item *seen = item_at(k, event);
	int64_t index = number(event, "command_index");

	assert_string_equal(seen->type, "shell_call");
	assert_null(json_get(event, "item_id"));
	if (str_ends(type, ".added")) {
		assert_int_equal(index, seen->n_commands);
		assert_true(index < COMMANDS);
		seen->n_commands++;
		append(&seen->commands[index], text(event, "command"));
		return;
	}
	assert_true(index >= 0 && (size_t)index < seen->n_commands);
	if (str_ends(type, ".delta")) {
		append(&seen->commands[index], text(event, "delta"));
		return;
	}
	seen->command_complete[index] = true;
	same(event, &seen->commands[index], text(event, "command"));
}

/* The call whose output an item is. */
static const struct seen_item *call_of(struct checker *k, const struct seen_item *output)
{
	for (size_t i = 0; i < k->n_items; i++)
		if (strcmp(k->items[i]->type, "shell_call") == 0 &&
		        strcmp(k->items[i]->call_id, output->call_id) == 0)
			return k->items[i];
	fail_msg("there is no call for the output %s", output->call_id);
	return output;
}

static void output_event(struct checker *k, struct str type, const struct json *event)
{
	struct seen_item *seen = item_named(k, event, "shell_call_output");
	int64_t index = number(event, "command_index");
	const struct json *delta = json_get(event, "delta"), *one;

	assert_true(index >= 0 && (size_t)index < call_of(k, seen)->n_commands);
	assert_false(seen->command_done[index]);
	if (str_ends(type, ".delta")) {
		append(&seen->streams[index][0], json_str(json_get(delta, "stdout")));
		append(&seen->streams[index][1], json_str(json_get(delta, "stderr")));
		return;
	}
	assert_int_equal(json_count(json_get(event, "output")), 1);
	one = json_first(json_get(event, "output"));
	seen->command_done[index] = true;
	same(event, &seen->streams[index][0], text(one, "stdout"));
	same(event, &seen->streams[index][1], text(one, "stderr"));
}

static bool call_event(struct checker *k, struct str type, const struct json *event)
{
	struct seen_item *seen;

	if (str_starts(type, "response.shell_call_command.")) {
		command_event(k, type, event);
	} else if (str_starts(type, "response.shell_call_output_content.")) {
		output_event(k, type, event);
	} else if (str_is(type, "response.function_call_arguments.delta")) {
		seen = item_named(k, event, "function_call");
		append(&seen->arguments, text(event, "delta"));
	} else if (str_is(type, "response.function_call_arguments.done")) {
		seen = item_named(k, event, "function_call");
		seen->arguments_done = true;
		same(event, &seen->arguments, text(event, "arguments"));
		assert_true(text(event, "name").n > 0);
	} else {
		return false;
	}
	return true;
}

/* ---- the response ---- */

static void usage_check(const struct json *usage)
{
	number(usage, "input_tokens");
	number(usage, "output_tokens");
	number(usage, "total_tokens");
	number(json_get(usage, "input_tokens_details"), "cached_tokens");
	number(json_get(usage, "output_tokens_details"), "reasoning_tokens");
	assert_true(json_is(json_get(usage, "cost"), JSON_NUMBER));
}

/* The keys that the schema of Open Responses wants, whether they may be null or not. */
static void object_check(const struct json *r)
{
	static const char *const some[] = {"id", "object", "created_at", "status", "model",
	        "output", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text",
	        "top_p", "presence_penalty", "frequency_penalty", "top_logprobs", "temperature",
	        "store", "background", "service_tier", "metadata", "reasoning"};
	static const char *const maybe[] = {"completed_at", "incomplete_details",
	        "previous_response_id", "instructions", "error", "usage", "max_output_tokens",
	        "max_tool_calls", "safety_identifier", "prompt_cache_key", "user",
	        "prompt_cache_retention"};

	for (size_t i = 0; i < sizeof(some) / sizeof(*some); i++)
		if (json_absent(json_get(r, some[i])))
			fail_msg("the response has no %s", some[i]);
	for (size_t i = 0; i < sizeof(maybe) / sizeof(*maybe); i++)
		if (!json_get(r, maybe[i]))
			fail_msg("the response does not mention %s", maybe[i]);
	assert_non_null(json_get(json_get(r, "reasoning"), "effort"));
	assert_non_null(json_get(json_get(r, "reasoning"), "summary"));
}

static void terminal_check(struct checker *k, struct str type, const struct json *r)
{
	size_t i = 0;

	k->terminal = true;
	assert_int_equal(json_count(json_get(r, "output")), k->n_items);
	for (const struct json *v = json_first(json_get(r, "output")); v; v = json_next(v), i++) {
		same_item(k->items[i], v);
		assert_true(k->items[i]->done);
	}
	usage_check(json_get(r, "usage"));
	assert_true(str_eq(text(r, "status"), (struct str){type.p + 9, type.n - 9}));
	assert_int_equal(str_is(type, "response.failed"), !json_absent(json_get(r, "error")));
	assert_int_equal(str_is(type, "response.incomplete"),
	        !json_absent(json_get(r, "incomplete_details")));
	assert_int_equal(
	        str_is(type, "response.completed"), !json_absent(json_get(r, "completed_at")));
}

static void response_event(struct checker *k, struct str type, const struct json *event)
{
	const struct json *r = json_get(event, "response");

	object_check(r);
	if (k->sequence == 0)
		k->response_id = dup_str(text(r, "id"));
	assert_true(k->response_id && str_is(text(r, "id"), k->response_id));
	if (str_is(type, "response.created")) {
		assert_int_equal(k->sequence, 0);
	} else if (str_is(type, "response.in_progress")) {
		assert_int_equal(k->sequence, 1);
	} else {
		terminal_check(k, type, r);
		return;
	}
	assert_true(str_is(text(r, "status"), "in_progress"));
	assert_int_equal(json_count(json_get(r, "output")), 0);
	assert_true(json_absent(json_get(r, "usage")));
}

static bool is_response_event(struct str type)
{
	return str_is(type, "response.created") || str_is(type, "response.in_progress") ||
	       str_is(type, "response.completed") || str_is(type, "response.failed") ||
	       str_is(type, "response.incomplete");
}

static void event_check(struct checker *k, struct str type, const struct json *event)
{
	assert_false(k->terminal);
	assert_int_equal(number(event, "sequence_number"), k->sequence);
	if (k->sequence == 0)
		assert_true(str_is(type, "response.created"));
	if (is_response_event(type)) {
		response_event(k, type, event);
	} else if (str_is(type, "response.output_item.added")) {
		item_added(k, event);
	} else if (str_is(type, "response.output_item.done")) {
		item_done(k, event);
	} else if (str_is(type, "error")) {
		assert_true(json_is(json_get(event, "code"), JSON_STRING));
		assert_true(json_is(json_get(json_get(event, "error"), "code"), JSON_STRING));
		assert_true(text(event, "message").n > 0);
	} else if (str_starts(type, "response.content_part.") ||
	           str_starts(type, "response.reasoning_summary_part.")) {
		frame_event(k, type, event);
	} else if (!part_event(k, type, event) && !call_event(k, type, event)) {
		fail_msg("no client knows the event %.*s", (int)type.n, type.p);
	}
	k->sequence++;
}

/* ---- frames ---- */

static struct str line_take(struct str *rest)
{
	const char *newline = memchr(rest->p, '\n', rest->n);
	struct str line;

	assert_non_null(newline);
	line = (struct str){rest->p, (size_t)(newline - rest->p)};
	rest->n -= line.n + 1;
	rest->p += line.n + 1;
	assert_null(memchr(line.p, '\r', line.n));
	return line;
}

static void frame_take(struct checker *k, struct str *rest)
{
	struct str name = line_take(rest), data = line_take(rest), end = line_take(rest);
	struct json_doc *doc;
	struct error err;
	const struct json *event;

	assert_true(str_starts(name, "event: ") && str_starts(data, "data: "));
	assert_int_equal(end.n, 0);
	name = (struct str){name.p + 7, name.n - 7};
	data = (struct str){data.p + 6, data.n - 6};
	if (json_parse(data, (size_t)256 * 1024 * 1024, &doc, &err) < 0)
		fail_msg("%s", err.text);
	event = json_root(doc);
	assert_true(str_eq(text(event, "type"), name));
	event_check(k, name, event);
	if (k->terminal)
		k->last = doc;
	else
		json_doc_free(doc);
}

static void item_free(struct seen_item *seen)
{
	for (size_t i = 0; i < PARTS; i++) {
		buf_free(&seen->contents[i].text);
		buf_free(&seen->summaries[i].text);
	}
	for (size_t i = 0; i < COMMANDS; i++) {
		buf_free(&seen->commands[i]);
		buf_free(&seen->streams[i][0]);
		buf_free(&seen->streams[i][1]);
	}
	buf_free(&seen->arguments);
	free(seen->id);
	free(seen->type);
	free(seen->call_id);
	free(seen);
}

struct json_doc *check_stream(struct str sse)
{
	struct checker *k = mem_alloc(sizeof(*k));
	struct json_doc *last;

	while (!str_is(sse, "data: [DONE]\n\n")) {
		if (sse.n > 0 && sse.p[0] == ':')
			line_take(&sse);
		else
			frame_take(k, &sse);
	}
	assert_true(k->terminal);
	for (size_t i = 0; i < k->n_items; i++)
		item_free(k->items[i]);
	last = k->last;
	free(k->response_id);
	free(k);
	return last;
}
