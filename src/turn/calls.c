/*
 * Theory of operation: when a reply has ended, its held items are worked through in order. What
 * belongs to the client is shown. A call of ours is run, one at a time, or refused; either way it
 * gets one result, which is put right behind it in the conversation, since that is where a replay
 * has it.
 *
 * A refused call is shown to the client as a failed call of the server tool, whatever name the
 * model used, so that every api has an item for it and a replay tells the model the same. In a
 * request without a server tool there is no such item: the call stays between us and the model.
 *
 * Once the turn is ending nothing is run any more.
 */
#include "turn/internal.h"

#include "base/mem.h"
#include "json/json.h"

/* Replies of a turn of which no call could be run; then the model must answer in text. */
#define WASTED_MAX 8

/* ---- which calls may run ---- */

static const struct tool_entry *entry_by_name(const struct conversation *c, struct str name)
{
	size_t i;

	for (i = 0; i < c->n_tools; i++) {
		if (str_eq(c->tools[i].name, name))
			return &c->tools[i];
	}
	return NULL;
}

static const struct tool_entry *server_entry(const struct conversation *c)
{
	size_t i;

	for (i = 0; i < c->n_tools && c->has_server_tool; i++) {
		if (c->tools[i].kind == TOOL_SERVER)
			return &c->tools[i];
	}
	return NULL;
}

static bool choice_allows(const struct turn *t, struct str name)
{
	const struct tool_choice *choice = &t->upstream.choice;
	size_t i;

	if (t->upstream.tools_off || choice->mode == CHOICE_NONE)
		return false;
	if (choice->mode == CHOICE_NAMED && !str_eq(choice->name, name))
		return false;
	if (!choice->restricted)
		return true;
	for (i = 0; i < choice->n_allowed; i++) {
		if (str_eq(choice->allowed[i], name))
			return true;
	}
	return false;
}

enum call_class calls_class(const struct turn *t, const struct item *call)
{
	const struct tool_entry *entry = entry_by_name(t->c, call->call.name);

	if (t->w.active && t->w.item == call && call->call.name.n == 0)
		return CALL_OPEN;
	if (call->call.name.n == 0 || !choice_allows(t, call->call.name))
		return CALL_REFUSED;
	if (entry)
		return entry->kind == TOOL_SERVER ? CALL_SERVER : CALL_CLIENT;
	/* Without tools of ours a name that nobody declared is for the client to judge. */
	return t->c->has_server_tool ? CALL_REFUSED : CALL_CLIENT;
}

/* ---- when they stop ---- */

static bool was_called(const struct turn *t, struct str name)
{
	const struct conversation *c = t->c;

	for (size_t i = 0; i < c->n_items; i++) {
		const struct item *it = c->items[i];

		if (it->type == ITEM_CALL && it->output && it->call.tool && !it->call.error.n &&
		        (str_eq(it->call.name, name) || str_eq(it->call.entry->type, name)))
			return true;
	}
	return false;
}

static bool finished_with(enum finish f, struct str reason)
{
	switch (f) {
	case FINISH_STOP:
	case FINISH_PAUSE:
		return str_is(reason, "stop");
	case FINISH_CALLS:
		return str_is(reason, "tool_calls");
	case FINISH_LENGTH:
		return str_is(reason, "length");
	case FINISH_FILTER:
		return str_is(reason, "content_filter");
	}
	return false;
}

static bool stop_holds(struct turn *t, const struct stop_condition *s)
{
	struct turn_totals totals;
	struct money cost;

	turn_totals(t, t->now_ms, &totals);
	switch (s->type) {
	case STOP_STEPS:
		return t->runs >= s->n;
	case STOP_TOOL_CALL:
		return was_called(t, s->name);
	case STOP_TOKENS:
		return totals.usage.input + totals.usage.output >= s->n;
	case STOP_COST:
		cost = totals.sandbox_cost;
		if (t->o.price)
			cost = money_add(cost, t->o.price(t->o.price_ctx, &totals.usage));
		return cost.pico >= s->cost.pico;
	case STOP_FINISH:
		return finished_with(t->finish, s->name);
	}
	return false;
}

bool calls_last(struct turn *t)
{
	for (size_t i = 0; i < t->o.n_stop; i++)
		if (stop_holds(t, &t->o.stop[i]))
			return true;
	return t->runs >= t->o.max_tool_calls || t->wasted >= WASTED_MAX || t->time_up;
}

/* ---- results ---- */

struct item *calls_result_add(struct turn *t, struct item *call)
{
	struct conversation *c = t->c;
	struct item *result = conversation_add(c, ITEM_RESULT);
	size_t i;

	if (!result) {
		turn_no_memory(t);
		return NULL;
	}
	for (i = c->n_items - 1; i > 0 && c->items[i - 1] != call; i--)
		c->items[i] = c->items[i - 1];
	c->items[i] = result;
	result->output = c->has_server_tool;
	result->result.public_id = call->call.public_id;
	result->result.tool = call->call.tool;
	call->call.result = result;
	return result;
}

void calls_set_ids(struct turn *t, struct item *call, struct item *result)
{
	const struct tool_entry *entry = call->call.entry;
	const char *of_call, *of_result;

	if (!entry)
		return;
	entry->tool->id_prefixes(entry->settings, &of_call, &of_result);
	call->id = turn_item_id(t, of_call);
	if (of_result)
		result->id = turn_item_id(t, of_result);
}

/* ---- refusing ---- */

static void refuse(struct turn *t, struct item *call, const char *why)
{
	const struct tool_entry *entry = server_entry(t->c);
	const struct tool_entry *own = entry_by_name(t->c, call->call.name);
	struct item *result;

	if (own && own->kind == TOOL_SERVER)
		entry = own;
	if (entry) {
		call->call.entry = entry;
		call->call.tool = entry->tool;
		call->call.name = entry->name;
	}
	call->output = entry != NULL;
	call->call.error = turn_copy(t, str_of(why));
	call->status = STR("failed");
	result = calls_result_add(t, call);
	if (!result)
		return;
	result->result.error = call->call.error;
	result->status = STR("failed");
	calls_set_ids(t, call, result);
	if (!entry)
		return;
	effect_item(t, OUT_TOOL_BEGIN, call, result);
	effect_item(t, OUT_TOOL_END, call, result);
}

static void refuse_class(struct turn *t, struct item *call)
{
	char name[65], why[256];

	str_copy(name, sizeof(name), call->call.name);
	if (t->upstream.tools_off)
		str_format(why, sizeof(why),
		        "Not run: no tool may be called any more. Answer in text.");
	else if (call->call.name.n == 0 || choice_allows(t, call->call.name))
		str_format(why, sizeof(why), "Not run: there is no tool named \"%s\".", name);
	else
		str_format(why, sizeof(why),
		        "Not run: tool_choice does not allow \"%s\" to be called here.", name);
	refuse(t, call, why);
}

static const char *cut_why(enum cut cut)
{
	switch (cut) {
	case CUT_LENGTH:
		return "Not run: the reply was cut off by the token limit.";
	case CUT_FILTER:
		return "Not run: the reply was cut off by a content filter.";
	case CUT_ERROR:
		return "Not run: the reply broke off.";
	case CUT_TIME:
		return "Not run: the time for this request is over.";
	case CUT_CANCEL:
		return "Not run: the request was canceled.";
	case CUT_NONE:
		break;
	}
	return NULL;
}

/* ---- running ---- */

static void start(struct turn *t, struct item *call)
{
	struct item *result = calls_result_add(t, call);
	uint32_t turn_left = t->o.turn_output_bytes - t->output_bytes;
	struct tool_call *parsed = call->call.parsed;

	if (!result)
		return;
	t->runs++;
	t->reply_runs++;
	call->status = STR("completed");
	result->result.container_id = t->o.container_id;
	if (parsed->has_output)
		result->result.max_output_length = parsed->asked_output < UINT32_MAX
		                                           ? (uint32_t)parsed->asked_output
		                                           : UINT32_MAX;
	result->result.outputs =
	        arena_alloc(t->c->arena, parsed->n_commands * sizeof(struct command_output));
	if (!result->result.outputs) {
		turn_no_memory(t);
		return;
	}
	calls_set_ids(t, call, result);
	t->run = (struct run){
	        .call = call,
	        .result = result,
	        .bytes_given =
	                t->o.call_output_bytes < turn_left ? t->o.call_output_bytes : turn_left,
	};
	t->run.bytes_left = t->run.bytes_given;
	buf_reset(&t->shown[0]);
	buf_reset(&t->shown[1]);
	effect_item(t, OUT_TOOL_BEGIN, call, result);
	effect_push(t, &(struct turn_effect){
	                       .type = EFFECT_RUN_TOOL,
	                       .item = call,
	                       .output_bytes = t->run.bytes_given,
	               });
	if (t->client_full) {
		t->run.paused = true;
		effect_simple(t, EFFECT_PAUSE_TOOL);
	}
}

/* The arguments as a replay will bring them, where the item has no place for the model's own text.
 */
static void replace_arguments(struct turn *t, struct item *call)
{
	const struct tool_entry *entry = call->call.entry;
	struct buf text = BUF_INIT(SIZE_MAX / 2);

	if (!entry->tool->replaces_arguments(entry->settings))
		return;
	if (entry->tool->write_arguments(call->call.parsed, &text))
		turn_no_memory(t);
	else
		call->call.arguments = turn_copy(t, (struct str){text.data, text.len});
	buf_free(&text);
}

/* What is no JSON stays as it is. */
static void compact_arguments(struct turn *t, struct item *call)
{
	struct buf text = BUF_INIT(SIZE_MAX / 2);

	if (t->o.compact_arguments && json_compact(call->call.arguments, &text) == 0)
		call->call.arguments = turn_copy(t, (struct str){text.data, text.len});
	buf_free(&text);
}

static void run_or_refuse(struct turn *t, struct item *call)
{
	const struct tool_entry *entry = entry_by_name(t->c, call->call.name);
	struct error err;
	char why[sizeof(err.text) + 16];

	call->call.entry = entry;
	call->call.tool = entry->tool;
	if (cut_why(t->cut)) {
		refuse(t, call, cut_why(t->cut));
	} else if (t->time_up || t->ending) {
		refuse(t, call, cut_why(CUT_TIME));
	} else if (t->runs >= t->o.max_tool_calls) {
		str_format(why, sizeof(why),
		        "Not run: this request allows %u tool calls, and they are used up. Answer "
		        "with what "
		        "you have.",
		        t->o.max_tool_calls);
		refuse(t, call, why);
	} else if (entry->tool->parse(t->c->arena, call->call.arguments, entry->settings,
	                   &t->o.tool, &call->call.parsed, &err)) {
		str_format(why, sizeof(why), "Not run: %s", err.text);
		refuse(t, call, why);
	} else {
		replace_arguments(t, call);
		start(t, call);
	}
}

void calls_started(struct turn *t, bool started_container)
{
	accounting_started(t, started_container);
	if (t->run.started)
		return;
	t->run.started = true;
	t->n_executed++;
	t->unsaved = true;
}

void calls_kill(struct turn *t, bool as_timeout)
{
	/* The killed commands' last output must be read. */
	if (as_timeout && t->run.paused) {
		t->run.paused = false;
		effect_simple(t, EFFECT_RESUME_TOOL);
	}
	t->run.killing = true;
	effect_push(t, &(struct turn_effect){
	                       .type = EFFECT_KILL_TOOL,
	                       .item = t->run.call,
	                       .as_timeout = as_timeout,
	               });
}

void calls_ended(struct turn *t, struct str error, const char *status)
{
	struct run *run = &t->run;
	struct result *r = &run->result->result;
	size_t n = run->call->call.parsed->n_commands;
	char why[128];

	if (error.n == 0 && r->n_outputs < n) {
		str_format(why, sizeof(why), "Only %zu of %zu commands were run%s.", r->n_outputs,
		        n, t->time_up ? ": the time for this request is over" : "");
		error = str_of(why);
	}
	if (error.n > 0)
		r->error = turn_copy(t, error);
	run->result->status = str_of(error.n > 0 ? status : "completed");
	/* A call that is an item of its own was complete before it ran, and has been shown so. */
	if (run->result->id.n == 0)
		run->call->status = run->result->status;
	t->output_bytes += run->bytes_given - run->bytes_left;
	effect_item(t, OUT_TOOL_END, run->call, run->result);
	run->call = NULL;
	run->result = NULL;
}

/* ---- working through what is held ---- */

void calls_show(struct turn *t, struct item *item)
{
	bool call = item->type == ITEM_CALL;
	size_t i;

	if (call) {
		t->reply_client_call = true;
		item->id = turn_item_id(t, "fc_");
	}
	effect_item(t, OUT_ITEM_BEGIN, item, NULL);
	if (call && item->call.arguments.n > 0)
		effect_emit(t, &(struct turn_output){
		                       .type = OUT_DELTA,
		                       .item = item,
		                       .part_type = PART_TEXT,
		                       .text = item->call.arguments,
		               });
	for (i = 0; i < item->n_parts; i++)
		effect_emit(t, &(struct turn_output){
		                       .type = OUT_DELTA,
		                       .item = item,
		                       .part_type = item->parts[i].type,
		                       .part = (uint32_t)i,
		                       .text = item->parts[i].text,
		               });
	effect_item(t, OUT_ITEM_END, item, NULL);
}

static void held_next(struct turn *t, struct item *item)
{
	enum call_class class;

	if (item->type != ITEM_CALL) {
		calls_show(t, item);
		return;
	}
	compact_arguments(t, item);
	class = calls_class(t, item);
	if (class == CALL_CLIENT) {
		calls_show(t, item);
		return;
	}
	if (t->c->has_server_tool)
		t->n_requested++;
	t->reply_calls++;
	if (class == CALL_SERVER)
		run_or_refuse(t, item);
	else if (cut_why(t->cut))
		refuse(t, item, cut_why(t->cut));
	else
		refuse_class(t, item);
}

bool calls_advance(struct turn *t)
{
	while (t->next_held < t->n_held) {
		held_next(t, t->held[t->next_held++]);
		if (t->run.call)
			return false;
	}
	if (t->reply_calls > 0 && t->reply_runs == 0)
		t->wasted++;
	return true;
}
