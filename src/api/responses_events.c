/* One event of a Responses stream as JSON, in the frame of its carrier. The rules are in
 * responses_stream.c. */
#include "api/outputs.h"
#include "api/responses_stream.h"

static void frame_begin(struct api_stream *s, const char *name)
{
	ropewriter_begin(&s->w);
	if (s->carrier != API_SSE)
		return;
	ropewriter_literal(&s->w, STR("event: "));
	ropewriter_literal(&s->w, str_of(name));
	ropewriter_literal(&s->w, STR("\ndata: "));
}

static void frame_end(struct api_stream *s)
{
	if (s->carrier == API_SSE)
		ropewriter_literal(&s->w, STR("\n\n"));
	else if (s->carrier == API_WEBSOCKET)
		ropewriter_literal(&s->w, STR("\n"));
}

static void event_begin(struct api_stream *s, const char *name)
{
	frame_begin(s, name);
	jw_object(&s->w.json);
	jw_kcstr(&s->w.json, "type", name);
	jw_ki64(&s->w.json, "sequence_number", s->sequence++);
}

static void event_end(struct api_stream *s)
{
	jw_end(&s->w.json);
	frame_end(s);
}

/* item_id, where the event has one, and output_index. */
static void event_begin_item(
        struct api_stream *s, const char *name, const struct responses_event *e, bool has_id)
{
	event_begin(s, name);
	if (has_id)
		jw_kcstr(&s->w.json, "item_id", s->slots[e->slot].id);
	jw_ki64(&s->w.json, "output_index", e->slot);
}

static void write_item_event(struct api_stream *s, const struct responses_event *e)
{
	bool added = e->kind == EVENT_ADDED;

	event_begin_item(
	        s, added ? "response.output_item.added" : "response.output_item.done", e, false);
	jw_key(&s->w.json, "item");
	responses_write_item(&s->w, &s->state, &s->slots[e->slot], added);
	event_end(s);
}

/* How the events of each kind of part are called, and the key of their text. */
static const struct part_names {
	const char *added, *delta, *text, *done, *index, *key;
	bool logprobs;
} part_names[] = {
        [PART_TEXT] = {"response.content_part.added", "response.output_text.delta",
                "response.output_text.done", "response.content_part.done", "content_index", "text",
                true},
        [PART_REFUSAL] = {"response.content_part.added", "response.refusal.delta",
                "response.refusal.done", "response.content_part.done", "content_index", "refusal",
                false},
        [PART_SUMMARY] = {"response.reasoning_summary_part.added",
                "response.reasoning_summary_text.delta", "response.reasoning_summary_text.done",
                "response.reasoning_summary_part.done", "summary_index", "text", false},
        [PART_REASONING] = {"response.content_part.added", "response.reasoning_text.delta",
                "response.reasoning_text.done", "response.content_part.done", "content_index",
                "text", false},
};

static void write_part_event(struct api_stream *s, const struct responses_event *e)
{
	const struct part_names *names =
	        &part_names[e->type <= PART_REASONING ? e->type : PART_TEXT];
	const char *name = e->kind == EVENT_PART_ADDED   ? names->added
	                   : e->kind == EVENT_PART_DELTA ? names->delta
	                   : e->kind == EVENT_PART_TEXT  ? names->text
	                                                 : names->done;
	struct json_writer *j = &s->w.json;

	event_begin_item(s, name, e, true);
	jw_ki64(j, names->index, e->index);
	if (e->kind == EVENT_PART_ADDED || e->kind == EVENT_PART_DONE) {
		jw_key(j, "part");
		if (e->raw.n)
			ropewriter_raw(&s->w, e->raw);
		else
			responses_write_part(&s->w, e->type, e->text);
	} else {
		ropewriter_kstr(&s->w, e->kind == EVENT_PART_DELTA ? "delta" : names->key, e->text);
		if (names->logprobs) {
			jw_key(j, "logprobs");
			jw_array(j);
			jw_end(j);
		}
	}
	event_end(s);
}

static void write_annotation_event(struct api_stream *s, const struct responses_event *e)
{
	event_begin_item(s, "response.output_text.annotation.added", e, true);
	jw_ki64(&s->w.json, "content_index", e->index);
	jw_ki64(&s->w.json, "annotation_index", e->number);
	ropewriter_kraw(&s->w, "annotation", e->text);
	event_end(s);
}

static void write_arguments_event(struct api_stream *s, const struct responses_event *e)
{
	bool delta = e->kind == EVENT_ARGUMENTS_DELTA;

	event_begin_item(s,
	        delta ? "response.function_call_arguments.delta"
	              : "response.function_call_arguments.done",
	        e, true);
	ropewriter_kstr(&s->w, delta ? "delta" : "arguments", e->text);
	if (!delta)
		ropewriter_kstr(&s->w, "name", s->slots[e->slot].item->call.name);
	event_end(s);
}

/* These have no item_id. */
static void write_command_event(struct api_stream *s, const struct responses_event *e)
{
	const char *name = e->kind == EVENT_COMMAND_ADDED   ? "response.shell_call_command.added"
	                   : e->kind == EVENT_COMMAND_DELTA ? "response.shell_call_command.delta"
	                                                    : "response.shell_call_command.done";

	event_begin_item(s, name, e, false);
	jw_ki64(&s->w.json, "command_index", e->index);
	ropewriter_kstr(&s->w, e->kind == EVENT_COMMAND_DELTA ? "delta" : "command", e->text);
	event_end(s);
}

static void write_output_event(struct api_stream *s, const struct responses_event *e)
{
	const struct result *result;
	struct json_writer *j = &s->w.json;

	if (e->kind == EVENT_OUTPUT_DELTA) {
		event_begin_item(s, "response.shell_call_output_content.delta", e, true);
		jw_ki64(j, "command_index", e->index);
		jw_key(j, "delta");
		jw_object(j);
		ropewriter_kstr(&s->w, e->is_stderr ? "stderr" : "stdout", e->text);
		jw_end(j);
		event_end(s);
		return;
	}
	result = &s->slots[e->slot].result->result;
	event_begin_item(s, "response.shell_call_output_content.done", e, true);
	jw_ki64(j, "command_index", e->index);
	jw_key(j, "output");
	jw_array(j);
	if (e->index < result->n_outputs)
		outputs_write(&s->w, &result->outputs[e->index]);
	jw_end(j);
	event_end(s);
}

/* Flat, as it is documented, and nested, as it is recorded: some SDKs read the one, some the other.
 */
static void write_error_fields(struct json_writer *j, const struct error *e, bool with_type)
{
	if (with_type)
		jw_kcstr(j, "type", api_error_type(e));
	jw_kcstr(j, "code", responses_error_code(e));
	jw_kcstr(j, "message", api_error_text(e));
	jw_kcstr(j, "param", e->param[0] ? e->param : NULL);
}

static void write_error_event(struct api_stream *s)
{
	struct json_writer *j = &s->w.json;

	event_begin(s, "error");
	write_error_fields(j, s->error, false);
	jw_key(j, "error");
	jw_object(j);
	write_error_fields(j, s->error, true);
	jw_end(j);
	jw_kcstr(j, "error_type", api_error_name(s->error));
	event_end(s);
}

/* ---- response objects, in steps ---- */

static bool is_bare_error(const struct api_stream *s)
{
	return s->carrier == API_WHOLE && s->state.error && s->n_slots == 0;
}

static struct responses_state snapshot_state(const struct api_stream *s)
{
	struct responses_state shown = s->state;

	if (s->is_first) {
		shown.status = "in_progress";
		shown.completed_s = 0;
		shown.incomplete_reason = NULL;
		shown.error = NULL;
		shown.totals = NULL;
	}
	return shown;
}

static void snapshot_begin(struct api_stream *s, const struct responses_event *e)
{
	struct responses_state shown;
	bool under_v1 = s->state.request->under_v1;

	if (e->kind == EVENT_OBJECT) {
		ropewriter_begin(&s->w);
		if (responses_stream_enveloped(s)) {
			/* The envelope of any other error, and what there is of the answer:
			 * commands ran, and what they printed must not be lost. */
			api_error_body(s->state.error, under_v1, &s->w.text);
			if (is_bare_error(s))
				return;
			s->w.text.len--;
			ropewriter_literal(&s->w, STR(",\"response\":"));
		}
	} else {
		event_begin(s, e->name);
		jw_key(&s->w.json, "response");
	}
	s->is_first = e->is_first;
	s->next_slot = e->is_first ? s->n_slots : 0;
	s->queue.in_steps = true;
	shown = snapshot_state(s);
	responses_write_head(&s->w, &shown);
}

void responses_events_step(struct api_stream *s)
{
	struct responses_state shown = snapshot_state(s);

	if (s->next_slot < s->n_slots) {
		responses_write_item(&s->w, &shown, &s->slots[s->next_slot++], false);
		return;
	}
	responses_write_tail(&s->w, &shown);
	if (s->carrier != API_WHOLE)
		event_end(s);
	else if (responses_stream_enveloped(s))
		ropewriter_literal(&s->w, STR("}"));
	s->queue.in_steps = false;
}

static void write_last(struct api_stream *s)
{
	ropewriter_begin(&s->w);
	if (s->carrier == API_SSE)
		ropewriter_literal(&s->w, STR("data: [DONE]\n\n"));
}

void responses_events_write(struct api_stream *s)
{
	const struct responses_event *e = event_queue_next(&s->queue);

	switch (e->kind) {
	case EVENT_SNAPSHOT:
	case EVENT_OBJECT:
		snapshot_begin(s, e);
		break;
	case EVENT_ERROR:
		write_error_event(s);
		break;
	case EVENT_LAST:
		write_last(s);
		break;
	case EVENT_ADDED:
	case EVENT_DONE:
		write_item_event(s, e);
		break;
	case EVENT_PART_ADDED:
	case EVENT_PART_DELTA:
	case EVENT_PART_TEXT:
	case EVENT_PART_DONE:
		write_part_event(s, e);
		break;
	case EVENT_ANNOTATION:
		write_annotation_event(s, e);
		break;
	case EVENT_ARGUMENTS_DELTA:
	case EVENT_ARGUMENTS_DONE:
		write_arguments_event(s, e);
		break;
	case EVENT_COMMAND_ADDED:
	case EVENT_COMMAND_DELTA:
	case EVENT_COMMAND_DONE:
		write_command_event(s, e);
		break;
	case EVENT_OUTPUT_DELTA:
	case EVENT_OUTPUT_DONE:
		write_output_event(s, e);
		break;
	}
}
