#include "unit.h"

#include "check.h"

#include "base/mem.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>

#define LOOK_MAX ((size_t)64 * 1024 * 1024)

void check_init(struct check *k, struct conversation *c, const struct turn_options *o)
{
	memset(k, 0, sizeof(*k));
	k->c = c;
	k->o = o;
	buf_init(&k->shown, LOOK_MAX);
	buf_init(&k->output[0], LOOK_MAX);
	buf_init(&k->output[1], LOOK_MAX);
}

void check_free(struct check *k)
{
	size_t i;

	buf_free(&k->shown);
	buf_free(&k->output[0]);
	buf_free(&k->output[1]);
	for (i = 0; i < k->n_items; i++)
		free(k->looks[i]);
}

/* ---- how an item looks ---- */

static void look_result(struct buf *b, const struct item *item)
{
	const struct result *r = &item->result;
	size_t i;

	buf_printf(b, "result %.*s ", (int)r->public_id.n, r->public_id.p);
	tool_shell.result_text(r, b);
	for (i = 0; i < r->n_outputs; i++) {
		if (r->outputs[i].out_truncated)
			buf_printf(b, " out%zu_truncated", i);
		if (r->outputs[i].err_truncated)
			buf_printf(b, " err%zu_truncated", i);
	}
	if (r->container_id.n > 0)
		buf_printf(b, " container=%.*s", (int)r->container_id.n, r->container_id.p);
	if (r->max_output_length > 0)
		buf_printf(b, " max=%u", r->max_output_length);
}

static void look_call(struct buf *b, const struct item *item)
{
	const struct call *c = &item->call;

	buf_printf(b, "call %.*s %.*s %.*s", (int)c->public_id.n, c->public_id.p, (int)c->name.n,
	        c->name.p, (int)c->arguments.n, c->arguments.p);
}

char *check_look(const struct item *item)
{
	static const char *const kinds[] = {
	        [PART_TEXT] = "text",
	        [PART_REFUSAL] = "refusal",
	        [PART_SUMMARY] = "summary",
	        [PART_REASONING] = "reasoning",
	};
	struct buf b = BUF_INIT(LOOK_MAX);
	size_t i;

	if (item->reply != REPLY_NONE)
		buf_printf(&b, "%u ", item->reply);
	if (item->type == ITEM_CALL)
		look_call(&b, item);
	else if (item->type == ITEM_RESULT)
		look_result(&b, item);
	else
		buf_puts(&b, item->type == ITEM_MESSAGE  ? "message"
		             : item->type == ITEM_OTHER ? "other"
		                                        : "reasoning");
	for (i = 0; i < item->n_parts; i++) {
		buf_printf(&b, " %s ", kinds[item->parts[i].type]);
		json_write_str(&b, item->parts[i].text);
	}
	if (item->opaque.n > 0)
		buf_printf(&b, " opaque=%.*s", (int)item->opaque.n, item->opaque.p);
	buf_printf(&b, " [%.*s%s%.*s]", (int)item->status.n, item->status.p ? item->status.p : "",
	        item->id.n > 0 ? " " : "", (int)item->id.n, item->id.p ? item->id.p : "");
	assert_int_equal(buf_error(&b), 0);
	return buf_steal(&b, NULL);
}

static void remember(struct check *k, struct item *item)
{
	assert_true(k->n_items < CHECK_ITEMS_MAX);
	k->items[k->n_items] = item;
	k->looks[k->n_items++] = check_look(item);
}

/* ---- events ---- */

static void check_stream(struct check *k, const struct stream_event *ev)
{
	if (ev->type == STREAM_END || ev->type == STREAM_ERROR)
		k->upstream = false;
}

void check_event(struct check *k, const struct turn_event *ev)
{
	bool mine = k->tool && ev->call == k->open_tool;

	switch ((int)ev->type) {
	case TURN_STREAM:
		check_stream(k, ev->stream);
		break;
	case TURN_TOOL_STARTED:
	case TURN_TOOL_OUTPUT:
	case TURN_TOOL_COMMAND:
		k->started |= mine;
		break;
	case TURN_TOOL_DONE:
	case TURN_TOOL_FAILED:
		if (mine)
			k->tool = false;
		break;
	case TURN_STORED:
		if (k->store_asked)
			k->stored = true;
		break;
	default:
		break;
	}
}

/* ---- what the client sees ---- */

static void check_delta(struct check *k, const struct turn_output *o)
{
	assert_ptr_equal(o->item, k->open);
	assert_true(o->text.n > 0);
	assert_true(o->part == k->part || o->part == k->part + 1);
	if (o->part != k->part)
		buf_putc(&k->shown, '|');
	k->part = o->part;
	buf_append(&k->shown, o->text.p, o->text.n);
}

static void check_item_end(struct check *k, const struct turn_output *o)
{
	struct buf whole = BUF_INIT(LOOK_MAX);
	const struct item *item = o->item;
	size_t i;

	assert_ptr_equal(item, k->open);
	k->open = NULL;
	if (item->type == ITEM_CALL)
		buf_append(&whole, item->call.arguments.p, item->call.arguments.n);
	for (i = 0; i < item->n_parts; i++) {
		if (i > 0)
			buf_putc(&whole, '|');
		buf_append(&whole, item->parts[i].text.p, item->parts[i].text.n);
	}
	assert_int_equal(whole.len, k->shown.len);
	assert_memory_equal(buf_cstr(&whole), buf_cstr(&k->shown), whole.len);
	buf_free(&whole);
	assert_true(item->id.n > 0 && item->status.n > 0);
	if (item->type == ITEM_CALL)
		assert_true(item->call.public_id.n > 0 && !item->call.tool);
	remember(k, o->item);
}

static void check_tool_command(struct check *k, const struct turn_output *o)
{
	const struct command_output *out;
	int i;

	assert_ptr_equal(o->item, k->open_tool);
	assert_in_range(
	        o->result->result.n_outputs, o->command + 1, k->late ? 100 : o->command + 1);
	out = &o->result->result.outputs[o->command];
	assert_true(out->done);
	for (i = 0; i < 2; i++) {
		struct str final = i == 0 ? out->out : out->err;

		if (k->o->streamed) {
			assert_int_equal(final.n, k->output[i].len);
			assert_memory_equal(
			        final.p ? final.p : "", buf_cstr(&k->output[i]), final.n);
		}
		buf_reset(&k->output[i]);
	}
}

static void check_tool_end(struct check *k, const struct turn_output *o)
{
	assert_ptr_equal(o->item, k->open_tool);
	assert_non_null(o->result);
	assert_true(str_eq(o->result->result.public_id, o->item->call.public_id));
	assert_true(o->item->id.n > 0 && o->item->status.n > 0);
	assert_non_null(o->item->call.tool);
	k->open_tool = NULL;
	remember(k, o->item);
	remember(k, o->result);
}

static void check_output(struct check *k, const struct turn_output *o)
{
	assert_false(k->ended);
	switch (o->type) {
	case OUT_BEGIN:
		assert_false(k->begun);
		k->begun = true;
		return;
	case OUT_END:
		assert_null(k->open);
		assert_null(k->open_tool);
		assert_false(k->upstream);
		assert_false(k->tool);
		assert_true(k->begun || o->status == TURN_FAILED || o->status == TURN_CANCELED);
		assert_true((o->error != NULL) == (o->status == TURN_FAILED));
		assert_true((o->incomplete_reason != NULL) == (o->status == TURN_INCOMPLETE));
		if (k->started)
			assert_true(k->store_asked && (k->stored || o->status == TURN_CANCELED));
		k->ended = true;
		return;
	case OUT_ITEM_BEGIN:
		assert_null(k->open);
		assert_null(k->open_tool);
		k->open = o->item;
		k->part = 0;
		buf_reset(&k->shown);
		break;
	case OUT_DELTA:
		check_delta(k, o);
		break;
	case OUT_ITEM_END:
		check_item_end(k, o);
		break;
	case OUT_TOOL_BEGIN:
		assert_null(k->open);
		assert_null(k->open_tool);
		k->open_tool = o->item;
		buf_reset(&k->output[0]);
		buf_reset(&k->output[1]);
		break;
	case OUT_TOOL_OUTPUT:
		assert_ptr_equal(o->item, k->open_tool);
		assert_true(o->text.n > 0);
		assert_in_range(
		        o->result->result.n_outputs, o->command, k->late ? 100 : o->command + 1);
		buf_append(&k->output[o->is_stderr ? 1 : 0], o->text.p, o->text.n);
		break;
	case OUT_TOOL_COMMAND:
		check_tool_command(k, o);
		break;
	case OUT_TOOL_END:
		check_tool_end(k, o);
		break;
	}
	/* A call that the upstream's failure ended may be told of even where nothing began. */
	assert_true(k->begun);
}

/* ---- effects ---- */

static void check_run(struct check *k, const struct turn_effect *e)
{
	const struct tool_call *parsed = e->item->call.parsed;

	assert_false(k->upstream);
	assert_false(k->tool);
	assert_ptr_equal(e->item, k->open_tool);
	assert_null(e->item->call.error.p);
	assert_non_null(parsed);
	assert_in_range(parsed->n_commands, 1, CHECK_COMMANDS_MAX);
	assert_true(e->output_bytes <= k->o->call_output_bytes);
	assert_true(e->output_bytes <= k->o->turn_output_bytes);
	k->tool = true;
	k->tool_paused = false;
	k->tool_killed = false;
	assert_true(++k->runs <= k->o->max_tool_calls);
}

void check_effect(struct check *k, const struct turn_effect *e)
{
	assert_false(k->done);
	switch (e->type) {
	case EFFECT_CALL_UPSTREAM:
		assert_false(k->upstream);
		assert_false(k->tool);
		assert_null(k->open_tool);
		assert_false(k->ended);
		k->upstream = true;
		k->upstream_paused = false;
		break;
	case EFFECT_PAUSE_UPSTREAM:
		assert_true(k->upstream && !k->upstream_paused);
		k->upstream_paused = true;
		break;
	case EFFECT_RESUME_UPSTREAM:
		assert_true(k->upstream && k->upstream_paused);
		k->upstream_paused = false;
		break;
	case EFFECT_CANCEL_UPSTREAM:
		assert_true(k->upstream);
		k->upstream = false;
		break;
	case EFFECT_RUN_TOOL:
		check_run(k, e);
		break;
	case EFFECT_PAUSE_TOOL:
		assert_true(k->tool && !k->tool_paused && !k->tool_killed);
		k->tool_paused = true;
		break;
	case EFFECT_RESUME_TOOL:
		assert_true(k->tool && k->tool_paused);
		k->tool_paused = false;
		break;
	case EFFECT_KILL_TOOL:
		assert_true(k->tool);
		assert_ptr_equal(e->item, k->open_tool);
		assert_true(!e->as_timeout || (!k->tool_killed && !k->tool_paused));
		k->tool_killed = true;
		if (!e->as_timeout)
			k->tool = false;
		break;
	case EFFECT_EMIT:
		check_output(k, &e->output);
		break;
	case EFFECT_ARM_TIMER:
		break;
	case EFFECT_STORE:
		assert_false(k->store_asked);
		assert_true(k->started);
		k->store_asked = true;
		break;
	case EFFECT_DONE:
		assert_true(k->ended);
		k->done = true;
		break;
	}
}

/* ---- the end ---- */

static struct str copy_str(struct conversation *c, struct str s)
{
	bool ok = true;
	struct str copy = conversation_copy(c, s, &ok);

	assert_true(ok);
	return copy;
}

/* What a client would send back: every item that it was shown, by its public fields. */
static void check_replay(struct check *k)
{
	struct conversation *replay = conversation_new((size_t)256 * 1024 * 1024);
	struct error err;
	uint32_t first = REPLY_NONE, first_old = REPLY_NONE, last = 0, last_old = 0;
	size_t i, n = 0;

	replay->has_server_tool = k->c->has_server_tool;
	for (i = 0; i < k->c->n_items; i++) {
		const struct item *old = k->c->items[i];
		struct item *item;

		if (!old->output || (old->type != ITEM_RESULT && old->id.n == 0))
			continue;
		item = conversation_add(replay, old->type);
		item->role = old->role;
		item->id = copy_str(replay, old->id);
		item->call.public_id = copy_str(replay, old->call.public_id);
		item->result.public_id = copy_str(replay, old->result.public_id);
		item->result.tool = old->result.tool;
	}
	assert_int_equal(conversation_cut_replies(replay, &err), 0);
	for (i = 0; i < k->c->n_items; i++) {
		const struct item *old = k->c->items[i];
		const struct item *item;

		if (!old->output || (old->type != ITEM_RESULT && old->id.n == 0))
			continue;
		item = replay->items[n++];
		if (item->type == ITEM_RESULT)
			continue;
		/* Another number, but the same cut. */
		if (first == REPLY_NONE) {
			first = item->reply;
			first_old = old->reply;
		} else {
			assert_true((item->reply == last) == (old->reply == last_old));
		}
		last = item->reply;
		last_old = old->reply;
	}
	(void)first_old;
	conversation_free(replay);
}

void check_end(struct check *k)
{
	size_t i, runs = 0;
	char *look;

	assert_true(k->done);
	for (i = 0; i < k->n_items; i++) {
		look = check_look(k->items[i]);
		assert_string_equal(look, k->looks[i]);
		free(look);
	}
	for (i = 0; i < k->c->n_items; i++) {
		const struct item *item = k->c->items[i];
		const struct item *next = i + 1 < k->c->n_items ? k->c->items[i + 1] : NULL;

		if (item->type == ITEM_RESULT && item->reply == REPLY_NONE && item->result.tool) {
			assert_true(i > 0 && k->c->items[i - 1]->type == ITEM_CALL);
			assert_ptr_equal(k->c->items[i - 1]->call.result, item);
		}
		if (item->type != ITEM_CALL || (!item->call.tool && item->call.error.n == 0))
			continue;
		assert_non_null(next);
		assert_int_equal(next->type, ITEM_RESULT);
		assert_true(str_eq(next->result.public_id, item->call.public_id));
		assert_ptr_equal(item->call.result, next);
		if (item->call.error.n > 0)
			assert_true(str_eq(item->call.error, next->result.error));
		else
			runs++;
	}
	assert_int_equal(runs, k->runs);
	if (k->c->has_server_tool)
		check_replay(k);
}
