/*
 * The turn's outputs as a Responses stream, or as one response object.
 *
 * Theory of operation. An output of the turn becomes a few events in a queue: small records that
 * point to the items. Events are written one after the other, each into the ropewriter: numbers and
 * small strings at once, large texts borrowed from the conversation and escaped only as the client
 * drains. An event that holds a response object is written in steps (its head, one item at a time,
 * its tail), so that the answer of a long turn never exists as a whole. What fits is in `out` when
 * emit() returns; the rest waits as records, and pull() goes on. The sequence number is given when
 * an event is written.
 *
 * Every carrier has the same events. API_WHOLE writes none but the object at the end.
 *
 * Order and fields: OpenAI's recorded streams; openrouter:shell is one item that is added and done,
 * brig:shell is shell_call, done before it runs, and shell_call_output with its deltas.
 */
#include "api/responses_stream.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"
#include "tool/tool.h"

#include <stdlib.h>

/* ---- slots ---- */

static struct responses_slot *slot_at(struct api_stream *s, uint32_t index)
{
	return &s->slots[index];
}

static const struct shell_settings *shell_settings_of(
        const struct api_stream *s, const struct item *call)
{
	const struct tool_entry *entry = call->call.entry;

	if (!entry || entry->kind != TOOL_SERVER)
		entry = s->state.request->shell;
	return entry ? entry->settings : NULL;
}

/* Ids are the turn's. Where an item came without one it gets one that is the same each time it is
 * asked. */
static void slot_name(struct api_stream *s, struct responses_slot *slot, const char *prefix)
{
	const struct item *it = slot->kind == SLOT_SHELL_OUTPUT ? slot->result : slot->item;
	char number[24], hex[65], mark[16] = "";
	uint8_t hash[32];
	struct str parts[2];

	if (slot->kind == SLOT_OTHER)
		responses_raw_id(it, slot->id, sizeof(slot->id));
	if (slot->id[0])
		return;
	if (it && it->id.n > 0) {
		str_copy(slot->id, sizeof(slot->id), it->id);
		return;
	}
	str_format(number, sizeof(number), "%zu", (size_t)(slot - s->slots));
	parts[0] = str_of(s->state.id);
	parts[1] = str_of(number);
	id_sha256_parts(parts, 2, hash);
	id_hex(hash, sizeof(hash), hex);
	if (s->state.request->conversation->has_server_tool && slot->item->reply != REPLY_NONE)
		str_format(mark, sizeof(mark), "s%u_", slot->item->reply);
	str_format(slot->id, sizeof(slot->id), "%s%s%.20s", prefix, mark, hex);
}

static uint32_t slot_add(struct api_stream *s, enum responses_slot_kind kind,
        const struct item *item, const struct item *result)
{
	static const char *const prefixes[] = {
	        [SLOT_MESSAGE] = "msg_",
	        [SLOT_REASONING] = "rs_",
	        [SLOT_FUNCTION_CALL] = "fc_",
	        [SLOT_SHELL] = "st_tmp_",
	        [SLOT_SHELL_CALL] = "sh_",
	        [SLOT_SHELL_OUTPUT] = "sho_",
	        [SLOT_LOCAL_CALL] = "sh_",
	        [SLOT_OTHER] = "it_",
	};
	struct responses_slot *slot;

	mem_grow(&s->slots, &s->cap_slots, s->n_slots, sizeof(*s->slots));
	slot = &s->slots[s->n_slots++];
	*slot = (struct responses_slot){
	        .kind = kind, .item = item, .result = result, .is_open = true};
	slot_name(s, slot, prefixes[kind]);
	return (uint32_t)(s->n_slots - 1);
}

/* The slot of an item; false: it was not begun. Looks from the end: it is among the last. */
static bool slot_find(const struct api_stream *s, const struct item *item,
        enum responses_slot_kind kind, uint32_t *ret)
{
	for (size_t i = s->n_slots; i > 0; i--) {
		if (s->slots[i - 1].item == item && s->slots[i - 1].kind == kind) {
			*ret = (uint32_t)(i - 1);
			return true;
		}
	}
	return false;
}

/* ---- from outputs to events ---- */

static struct responses_event *push(
        struct api_stream *s, enum responses_event_kind kind, uint32_t slot)
{
	struct responses_event *e = event_queue_push(&s->queue);

	*e = (struct responses_event){.kind = kind, .slot = slot};
	return e;
}

static struct responses_event *push_text(struct api_stream *s, enum responses_event_kind kind,
        uint32_t slot, uint32_t index, enum part_type type, struct str text)
{
	struct responses_event *e = push(s, kind, slot);

	e->index = index;
	e->type = type;
	e->text = text;
	return e;
}

static enum responses_slot_kind kind_of(const struct api_stream *s, const struct item *it)
{
	if (it->type == ITEM_OTHER)
		return SLOT_OTHER;
	if (it->type == ITEM_REASONING)
		return SLOT_REASONING;
	if (it->type != ITEM_CALL)
		return SLOT_MESSAGE;
	return responses_local_entry(s->state.request->conversation, it) ? SLOT_LOCAL_CALL
	                                                                 : SLOT_FUNCTION_CALL;
}

/* These are shown when all of them is there. */
static bool is_shown_whole(enum responses_slot_kind kind)
{
	return kind == SLOT_LOCAL_CALL || kind == SLOT_OTHER;
}

static uint32_t item_begin(struct api_stream *s, const struct item *it)
{
	uint32_t slot;

	if (slot_find(s, it, kind_of(s, it), &slot))
		return slot;
	slot = slot_add(s, kind_of(s, it), it, NULL);
	push(s, EVENT_ADDED, slot);
	return slot;
}

/* Announces the next part. Its number is among those of its family: summaries are counted apart. */
static void part_begin(struct api_stream *s, uint32_t index, enum part_type type)
{
	struct responses_slot *slot = slot_at(s, index);

	slot->n_begun++;
	slot->streamed = 0;
	push_text(s, EVENT_PART_ADDED, index, slot->n_of[type == PART_SUMMARY]++, type, STR(""));
}

/* What is cited in a part. */
static void push_annotations(
        struct api_stream *s, uint32_t index, uint32_t content, const struct json *part)
{
	struct responses_event *e;
	uint32_t n = 0;

	for (const struct json *v = json_first(json_get(part, "annotations")); v;
	        v = json_next(v)) {
		e = push_text(s, EVENT_ANNOTATION, index, content, PART_TEXT, json_raw(v));
		e->number = n++;
	}
}

/* The text of part n_closed is known whole: says so. */
static void part_close(struct api_stream *s, uint32_t index)
{
	struct responses_slot *slot = slot_at(s, index);
	const struct part *part = &slot->item->parts[slot->n_closed];
	const struct json *own;
	uint32_t family = 0;

	if (slot->n_closed == slot->n_begun)
		part_begin(s, index, part->type);
	for (size_t i = 0; i < slot->n_closed; i++)
		family +=
		        (slot->item->parts[i].type == PART_SUMMARY) == (part->type == PART_SUMMARY);
	own = s->doc ? responses_raw_part(s->doc, family) : NULL;
	push_annotations(s, index, family, own);
	push_text(s, EVENT_PART_TEXT, index, family, part->type, part->text);
	push_text(s, EVENT_PART_DONE, index, family, part->type, part->text)->raw = json_raw(own);
	slot->n_closed++;
}

/* Closes the parts before number `part` whose texts are there already; else they wait for the
 * item's end. */
static void parts_close(struct api_stream *s, uint32_t index, uint32_t part)
{
	struct responses_slot *slot = slot_at(s, index);
	const struct item *it = slot->item;

	while (slot->n_closed < part && slot->n_closed < it->n_parts &&
	        (slot->n_closed + 1 < slot->n_begun ||
	                it->parts[slot->n_closed].text.n == slot->streamed))
		part_close(s, index);
}

static int item_delta(struct api_stream *s, const struct turn_output *o)
{
	struct responses_slot *slot;
	struct str text;
	uint32_t index;
	int rc;

	if (is_shown_whole(kind_of(s, o->item)))
		return 0;
	index = item_begin(s, o->item);
	slot = slot_at(s, index);
	if (o->text.n == 0)
		return 0;
	rc = event_queue_hold(&s->queue, o, EVENT_QUEUE_HOLD, &text);
	if (rc)
		return rc;
	if (slot->kind == SLOT_FUNCTION_CALL) {
		push_text(s, EVENT_ARGUMENTS_DELTA, index, 0, PART_TEXT, text);
		return 0;
	}
	if (o->part >= slot->n_begun) {
		parts_close(s, index, o->part);
		part_begin(s, index, o->part_type);
	}
	slot->streamed += text.n;
	push_text(s, EVENT_PART_DELTA, index, slot->n_of[o->part_type == PART_SUMMARY] - 1,
	        o->part_type, text);
	return 0;
}

static void push_commands(struct api_stream *s, uint32_t index, const struct tool_call *call)
{
	for (size_t i = 0; call && i < call->n_commands; i++) {
		struct str command = call->commands[i];

		push_text(s, EVENT_COMMAND_ADDED, index, (uint32_t)i, PART_TEXT, STR(""));
		if (command.n > 0)
			push_text(s, EVENT_COMMAND_DELTA, index, (uint32_t)i, PART_TEXT, command);
		push_text(s, EVENT_COMMAND_DONE, index, (uint32_t)i, PART_TEXT, command);
	}
}

/* A call for a shell of the client's own: what the model wrote is read as that shell takes it. */
static void local_call_read(struct api_stream *s, uint32_t index)
{
	struct responses_slot *slot = slot_at(s, index);
	const struct turn_request *r = s->state.request;
	const struct tool_entry *entry = responses_local_entry(r->conversation, slot->item);
	struct tool_call *call;

	if (str_is(entry->type, "shell") &&
	        tool_shell.parse(r->conversation->arena, slot->item->call.arguments, NULL,
	                &r->options.tool, &call, NULL) == 0) {
		slot->local = call;
		push_commands(s, index, call);
	}
}

/* A provider's own shell: its items with the events that they have. */
static void native_shell(struct api_stream *s, uint32_t index)
{
	struct responses_slot *slot = slot_at(s, index);
	const struct result *r;

	responses_raw_shell(s->state.request->conversation, slot);
	push_commands(s, index, slot->local);
	r = slot->result ? &slot->result->result : NULL;
	for (size_t i = 0; r && i < r->n_outputs; i++) {
		for (int stream = 0; stream < 2; stream++) {
			struct str text = stream ? r->outputs[i].err : r->outputs[i].out;
			struct responses_event *e;

			if (!text.n)
				continue;
			e = push(s, EVENT_OUTPUT_DELTA, index);
			e->index = (uint32_t)i;
			e->is_stderr = stream == 1;
			e->text = text;
		}
		push(s, EVENT_OUTPUT_DONE, index)->index = (uint32_t)i;
	}
}

/* After this the item's content is complete, also where the turn broke off. */
static void item_end(struct api_stream *s, const struct item *it, enum responses_slot_state state)
{
	uint32_t index = item_begin(s, it);
	struct responses_slot *slot = slot_at(s, index);

	if (!slot->is_open)
		return;
	slot->state = state;
	slot->is_open = false;
	if (slot->kind == SLOT_LOCAL_CALL)
		local_call_read(s, index);
	if (slot->kind == SLOT_OTHER)
		native_shell(s, index);
	if (slot->kind == SLOT_MESSAGE)
		s->doc = responses_raw_doc(it);
	while (it->type != ITEM_CALL && slot->n_closed < it->n_parts)
		part_close(s, index);
	s->doc = json_doc_free(s->doc);
	if (slot->kind == SLOT_FUNCTION_CALL)
		push_text(s, EVENT_ARGUMENTS_DONE, index, 0, PART_TEXT, it->call.arguments);
	push(s, EVENT_DONE, index);
}

/* ---- shell ---- */

static void shell_call_begin(struct api_stream *s, const struct item *call)
{
	uint32_t index = slot_add(s, SLOT_SHELL_CALL, call, NULL);

	push(s, EVENT_ADDED, index);
	push_commands(s, index, call->call.parsed);
	/* Complete is what the model said; that it ran is the output's to say. */
	slot_at(s, index)->state = SLOT_ENDED;
	slot_at(s, index)->is_open = false;
	push(s, EVENT_DONE, index);
}

static void tool_begin(struct api_stream *s, const struct item *call)
{
	const struct shell_settings *settings = shell_settings_of(s, call);
	uint32_t ignored;

	if (settings && settings->own_items) {
		if (!slot_find(s, call, SLOT_SHELL_CALL, &ignored))
			shell_call_begin(s, call);
	} else if (!slot_find(s, call, SLOT_SHELL, &ignored)) {
		push(s, EVENT_ADDED, slot_add(s, SLOT_SHELL, call, NULL));
	}
}

/* The item that carries a call's output: announced at the first thing there is to say. False: it
 * shows nothing while it runs. */
static bool output_slot(
        struct api_stream *s, const struct item *call, const struct item *result, uint32_t *ret)
{
	const struct shell_settings *settings = shell_settings_of(s, call);

	tool_begin(s, call);
	if (!settings || !settings->own_items)
		return false;
	if (!slot_find(s, call, SLOT_SHELL_OUTPUT, ret)) {
		*ret = slot_add(s, SLOT_SHELL_OUTPUT, call, result);
		push(s, EVENT_ADDED, *ret);
	}
	if (result)
		slot_at(s, *ret)->result = result;
	return true;
}

static int tool_output(struct api_stream *s, const struct turn_output *o)
{
	struct responses_event *e;
	struct str text;
	uint32_t index;
	int rc;

	if (o->text.n == 0 || !output_slot(s, o->item, o->result, &index))
		return 0;
	rc = event_queue_hold(&s->queue, o, EVENT_QUEUE_HOLD, &text);
	if (rc)
		return rc;
	e = push(s, EVENT_OUTPUT_DELTA, index);
	e->index = (uint32_t)o->command;
	e->is_stderr = o->is_stderr;
	e->text = text;
	return 0;
}

static void tool_command(struct api_stream *s, const struct turn_output *o)
{
	uint32_t index;

	if (output_slot(s, o->item, o->result, &index) && o->result)
		push(s, EVENT_OUTPUT_DONE, index)->index = (uint32_t)o->command;
}

static void tool_end(struct api_stream *s, const struct item *call, const struct item *result,
        enum responses_slot_state state)
{
	struct responses_slot *slot;
	uint32_t index;

	if (!output_slot(s, call, result, &index) && !slot_find(s, call, SLOT_SHELL, &index))
		return;
	slot = slot_at(s, index);
	if (!slot->is_open)
		return;
	slot->result = result ? result : slot->result;
	slot->state = state;
	slot->is_open = false;
	push(s, EVENT_DONE, index);
}

/* ---- begin and end ---- */

static void push_snapshot(struct api_stream *s, const char *name, bool is_first)
{
	struct responses_event *e = push(s, EVENT_SNAPSHOT, 0);

	e->name = name;
	e->is_first = is_first;
}

static void turn_begin(struct api_stream *s)
{
	if (s->begun)
		return;
	s->begun = true;
	push_snapshot(s, "response.created", true);
	push_snapshot(s, "response.in_progress", true);
}

/* What was open when the turn broke off ends as it stands. */
static void close_open(struct api_stream *s)
{
	size_t n = s->n_slots;

	for (size_t i = 0; i < n; i++) {
		const struct responses_slot *slot = &s->slots[i];

		if (!slot->is_open)
			continue;
		if (slot->kind == SLOT_SHELL || slot->kind == SLOT_SHELL_OUTPUT)
			tool_end(s, slot->item, slot->result, SLOT_BEGUN);
		else
			item_end(s, slot->item, SLOT_BEGUN);
	}
}

static void turn_end(
        struct api_stream *s, const struct turn_output *o, const struct turn_totals *totals)
{
	struct responses_state *state = &s->state;
	const char *last = "response.completed";
	struct error canceled;

	if (s->ended)
		return;
	/* A turn that failed at once; clients insist on response.created. */
	turn_begin(s);
	s->ended = true;
	close_open(s);
	state->status = "completed";
	state->completed_s = state->who->ended_s ? state->who->ended_s : clock_wall_s();
	if (totals) {
		s->totals = *totals;
		state->totals = &s->totals;
	}
	if (o->status == TURN_INCOMPLETE) {
		state->status = "incomplete";
		state->incomplete_reason = o->incomplete_reason ? o->incomplete_reason : "timeout";
		last = "response.incomplete";
	} else if (o->status == TURN_CANCELED && state->request->background) {
		state->status = "cancelled"; /* clients know no event of that name */
		last = "response.incomplete";
	} else if (o->status != TURN_COMPLETED) {
		error_set(&canceled, ERR_CANCELED, "The turn was cancelled.");
		s->error = error_copy(o->error ? o->error : &canceled);
		state->error = s->error;
		state->status = "failed";
		last = "response.failed";
	}
	if (o->status != TURN_COMPLETED)
		state->completed_s = 0;
	if (s->carrier == API_WHOLE) {
		push(s, EVENT_OBJECT, 0);
		return;
	}
	if (state->error)
		push(s, EVENT_ERROR, 0);
	push_snapshot(s, last, false);
	push(s, EVENT_LAST, 0);
}

static int take(struct api_stream *s, const struct turn_output *o, const struct turn_totals *totals)
{
	switch (o->type) {
	case OUT_BEGIN:
		turn_begin(s);
		return 0;
	case OUT_ITEM_BEGIN:
		if (!is_shown_whole(kind_of(s, o->item)))
			item_begin(s, o->item);
		return 0;
	case OUT_DELTA:
		return item_delta(s, o);
	case OUT_ITEM_END:
		if (responses_raw_is_shown(o->item))
			item_end(s, o->item, SLOT_ENDED);
		return 0;
	case OUT_TOOL_BEGIN:
		tool_begin(s, o->item);
		return 0;
	case OUT_TOOL_OUTPUT:
		return tool_output(s, o);
	case OUT_TOOL_COMMAND:
		tool_command(s, o);
		return 0;
	case OUT_TOOL_END:
		tool_end(s, o->item, o->result, SLOT_ENDED);
		return 0;
	case OUT_END:
		turn_end(s, o, totals);
		return 0;
	}
	return 0;
}

/* ---- moving bytes ---- */

static const struct event_queue_ops queue_ops = {
        .record = sizeof(struct responses_event),
        .write = responses_events_write,
        .step = responses_events_step,
};

int responses_stream_emit(struct api_stream *s, const struct turn_output *o,
        const struct turn_totals *totals, struct buf *out)
{
	int rc = take(s, o, totals);

	if (rc)
		return rc;
	if (s->carrier == API_WHOLE && !s->ended) {
		event_queue_forget(&s->queue);
		return 0;
	}
	if (s->carrier == API_WHOLE)
		event_queue_skip(&s->queue); /* to the object itself */
	return event_queue_move(&s->queue, out, EVENT_QUEUE_WHOLE);
}

size_t responses_stream_left(const struct api_stream *s)
{
	return event_queue_left(&s->queue);
}

int responses_stream_pull(struct api_stream *s, struct buf *out, size_t room)
{
	return event_queue_move(&s->queue, out, room ? room : 1);
}

/* ONE newline: older clients of this API break on an empty line that ends nothing. */
void responses_stream_keepalive(struct api_stream *s, struct buf *out)
{
	if (s->carrier == API_SSE && !event_queue_is_writing(&s->queue) && !s->ended)
		buf_puts(out, ": ping\n");
}

/*
 * A whole answer that failed is an HTTP error. Not so under /api/v1 once commands have run: the SDK
 * made for it sends a request again after any 5xx, whatever x-should-retry says, and the commands
 * would run twice. There the answer is 200 with the response object, `status: failed` and its
 * error, as OpenRouter answers what fails after its start.
 */
bool responses_stream_enveloped(const struct api_stream *s)
{
	return s->carrier == API_WHOLE && s->state.error && !s->bare &&
	       (s->state.request->under_v1 || !s->totals.commands_started);
}

int responses_stream_status(const struct api_stream *s)
{
	return responses_stream_enveloped(s) ? error_http_status(s->state.error) : 200;
}

/* Written from a copy of the stream, which itself stays as it is. */
int responses_stream_object(const struct api_stream *s, const struct turn_output *o,
        const struct turn_totals *totals, struct buf *out, bool *ret_empty)
{
	struct api_stream copy = *s;
	int rc = 0;

	copy.carrier = API_WHOLE;
	copy.bare = true;
	copy.error = NULL;
	copy.slots = mem_array(s->n_slots + 1, sizeof(*copy.slots));
	if (s->n_slots > 0)
		memcpy(copy.slots, s->slots, s->n_slots * sizeof(*copy.slots));
	copy.cap_slots = s->n_slots + 1;
	ropewriter_init(&copy.w);
	event_queue_init(&copy.queue, &queue_ops, &copy, &copy.w);
	if (o)
		rc = take(&copy, o, totals);
	else
		push(&copy, EVENT_OBJECT, 0);
	*ret_empty = copy.state.error && copy.n_slots == 0;
	event_queue_skip(&copy.queue);
	while (!rc && responses_stream_left(&copy) > 0)
		rc = event_queue_move(&copy.queue, out, EVENT_QUEUE_WHOLE);
	ropewriter_free(&copy.w);
	free(copy.slots);
	event_queue_free(&copy.queue);
	free(copy.error);
	return rc ? rc : buf_error(out);
}

struct api_stream *responses_stream_open(
        const struct turn_request *r, const struct api_identity *who, enum api_carrier carrier)
{
	struct api_stream *s = mem_alloc(sizeof(*s));
	const char *id = who->id;

	if (str_starts(str_of(id), "gen-"))
		id += 4;
	s->carrier = carrier;
	s->state = (struct responses_state){.request = r, .who = who, .status = "in_progress"};
	str_format(s->state.id, sizeof(s->state.id), "resp_%s", id);
	ropewriter_init(&s->w);
	event_queue_init(&s->queue, &queue_ops, s, &s->w);
	return s;
}

struct api_stream *responses_stream_close(struct api_stream *s)
{
	if (!s)
		return NULL;
	ropewriter_free(&s->w);
	free(s->slots);
	event_queue_free(&s->queue);
	free(s->error);
	free(s);
	return NULL;
}
