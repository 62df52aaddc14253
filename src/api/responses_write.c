/*
 * What the client reads: the response object and its items, as JSON. Key order is fixed. Where an
 * SDK demands a key it is always there (spec of the contract: docs/api.md); our added keys are
 * there only where they say something: `stdout_truncated` with `stdout_length` where output was
 * cut, `outcome.signal` and `outcome.reason` where there is one, `error` on what was not run,
 * `name` where the model called a name that is not the tool's.
 */
#include "api/outputs.h"
#include "api/responses.h"

#include "tool/tool.h"

/* ---- parts and items ---- */

void responses_write_part(struct ropewriter *w, enum part_type type, struct str text)
{
	struct json_writer *j = &w->json;

	jw_object(j);
	switch (type) {
	case PART_REFUSAL:
		jw_kcstr(j, "type", "refusal");
		ropewriter_kstr(w, "refusal", text);
		break;
	case PART_SUMMARY:
		jw_kcstr(j, "type", "summary_text");
		ropewriter_kstr(w, "text", text);
		break;
	case PART_REASONING:
		jw_kcstr(j, "type", "reasoning_text");
		ropewriter_kstr(w, "text", text);
		break;
	case PART_TEXT:
	case PART_IMAGE:
	case PART_FILE:
	case PART_AUDIO: /* a model's reply has no such parts yet */
		jw_kcstr(j, "type", "output_text");
		ropewriter_kstr(w, "text", text);
		jw_key(j, "annotations");
		jw_array(j);
		jw_end(j);
		jw_key(j, "logprobs");
		jw_array(j);
		jw_end(j);
		break;
	}
	jw_end(j);
}

static void write_parts(
        struct ropewriter *w, const char *key, const struct item *it, bool summaries, bool fresh)
{
	jw_key(&w->json, key);
	jw_array(&w->json);
	for (size_t i = 0; i < it->n_parts && !fresh; i++)
		if ((it->parts[i].type == PART_SUMMARY) == summaries)
			responses_write_part(w, it->parts[i].type, it->parts[i].text);
	jw_end(&w->json);
}

static bool has_reasoning_text(const struct item *it)
{
	for (size_t i = 0; i < it->n_parts; i++)
		if (it->parts[i].type != PART_SUMMARY)
			return true;
	return false;
}

static void write_begin(struct ropewriter *w, const struct responses_slot *slot, const char *type,
        const char *status)
{
	jw_object(&w->json);
	jw_kcstr(&w->json, "id", slot->id);
	jw_kcstr(&w->json, "type", type);
	jw_kcstr(&w->json, "status", status);
}

/* How an item that came to its end stands. */
static const char *end_status(const struct responses_slot *slot)
{
	if (slot->state != SLOT_ENDED || str_is(slot->item->status, "incomplete"))
		return "incomplete";
	return "completed";
}

static void write_message(struct ropewriter *w, const struct responses_slot *slot, bool fresh)
{
	write_begin(w, slot, "message", fresh ? "in_progress" : end_status(slot));
	jw_kcstr(&w->json, "role", "assistant");
	if (fresh || !responses_raw_content(w, slot->item))
		write_parts(w, "content", slot->item, false, fresh);
	responses_raw_extras(w, slot->item);
	jw_end(&w->json);
}

static void write_reasoning(struct ropewriter *w, const struct responses_slot *slot, bool fresh)
{
	const struct item *it = slot->item;

	write_begin(w, slot, "reasoning", fresh ? "in_progress" : end_status(slot));
	write_parts(w, "summary", it, true, fresh);
	if (!fresh && has_reasoning_text(it))
		write_parts(w, "content", it, false, false);
	if (!fresh && it->opaque.n > 0)
		ropewriter_kstr(w, "encrypted_content", it->opaque);
	jw_end(&w->json);
}

static void write_function_call(struct ropewriter *w, const struct responses_slot *slot, bool fresh)
{
	const struct call *call = &slot->item->call;

	write_begin(w, slot, "function_call", fresh ? "in_progress" : end_status(slot));
	jw_kstr(&w->json, "call_id", call->public_id);
	ropewriter_kstr(w, "name", call->name);
	ropewriter_kstr(w, "arguments", fresh ? STR("") : call->arguments);
	responses_raw_extras(w, slot->item);
	jw_end(&w->json);
}

/* ---- shell ---- */

static void write_outputs(struct ropewriter *w, const struct result *r)
{
	jw_key(&w->json, "output");
	jw_array(&w->json);
	for (size_t i = 0; r && i < r->n_outputs; i++)
		if (r->outputs[i].done)
			outputs_write(w, &r->outputs[i]);
	jw_end(&w->json);
}

/* Where the container's id stands the files that the call touched stand too. */
static void write_container(struct ropewriter *w, const struct result *r)
{
	outputs_write_files(w, r);
	if (r->container_id.n > 0)
		jw_kstr(&w->json, "container_id", r->container_id);
}

/* The outputs that a client is shown: those of commands that came to an end. */
static bool has_outputs(const struct result *r)
{
	for (size_t i = 0; i < r->n_outputs; i++)
		if (r->outputs[i].done)
			return true;
	return false;
}

void responses_write_action(struct ropewriter *w, const struct tool_call *call)
{
	struct json_writer *j = &w->json;

	jw_key(j, "action");
	jw_object(j);
	jw_key(j, "commands");
	jw_array(j);
	for (size_t i = 0; call && i < call->n_commands; i++)
		ropewriter_str(w, call->commands[i]);
	jw_end(j);
	if (call && call->has_timeout)
		jw_ki64(j, "timeout_ms", call->asked_timeout);
	else
		jw_knull(j, "timeout_ms");
	if (call && call->has_output)
		jw_ki64(j, "max_output_length", call->asked_output);
	else
		jw_knull(j, "max_output_length");
	jw_end(j);
}

static struct str error_of(const struct responses_slot *slot)
{
	if (slot->result && slot->result->result.error.p)
		return slot->result->result.error;
	return slot->item->call.error;
}

static void write_shell(struct ropewriter *w, const struct responses_state *s,
        const struct responses_slot *slot, bool fresh)
{
	const struct call *call = &slot->item->call;
	const struct result *result = slot->result ? &slot->result->result : NULL;
	struct str error = error_of(slot);
	const char *status = error.p ? "failed" : end_status(slot);

	write_begin(w, slot, "openrouter:shell", fresh ? "in_progress" : status);
	if (call->parsed)
		responses_write_action(w, call->parsed);
	if (!fresh && result && (!error.p || has_outputs(result)))
		write_outputs(w, result);
	if (!fresh && result)
		write_container(w, result);
	if (!fresh && result)
		outputs_write_warnings(w, s->request->shell);
	jw_kstr(&w->json, "call_id", call->public_id);
	ropewriter_kstr(w, "arguments", call->arguments);
	if (!fresh && error.p)
		ropewriter_kstr(w, "error", error);
	jw_end(&w->json);
}

static void write_shell_call(struct ropewriter *w, const struct responses_state *s,
        const struct responses_slot *slot, bool fresh)
{
	const struct call *call = &slot->item->call;
	struct json_writer *j = &w->json;

	write_begin(w, slot, "shell_call", fresh ? "in_progress" : "completed");
	responses_write_action(w, fresh ? NULL : call->parsed);
	jw_key(j, "environment");
	jw_object(j);
	jw_kcstr(j, "type", "container_reference");
	jw_kstr(j, "container_id",
	        call->container_id.n ? call->container_id : str_of(s->request->container_id));
	jw_end(j);
	jw_kstr(j, "call_id", call->public_id);
	/* `action` stands for the arguments, but for those that are no call. */
	if (!call->parsed)
		ropewriter_kstr(w, "arguments", call->arguments);
	jw_end(j);
}

static void write_shell_output(struct ropewriter *w, const struct responses_state *s,
        const struct responses_slot *slot, bool fresh)
{
	const struct tool_call *parsed = slot->item->call.parsed;
	const struct result *result = slot->result ? &slot->result->result : NULL;
	struct str error = fresh ? (struct str){NULL, 0} : error_of(slot);
	const char *status = error.p ? "incomplete" : end_status(slot);

	write_begin(w, slot, "shell_call_output", fresh ? "in_progress" : status);
	jw_kstr(&w->json, "call_id", slot->item->call.public_id);
	if (parsed && parsed->has_output)
		jw_ki64(&w->json, "max_output_length", parsed->asked_output);
	else
		jw_knull(&w->json, "max_output_length");
	write_outputs(w, fresh ? NULL : result);
	if (!fresh && result)
		write_container(w, result);
	if (!fresh && result)
		outputs_write_warnings(w, s->request->shell);
	if (error.p)
		ropewriter_kstr(w, "error", error);
	jw_end(&w->json);
}

void responses_write_item(struct ropewriter *w, const struct responses_state *s,
        const struct responses_slot *slot, bool fresh)
{
	switch (slot->kind) {
	case SLOT_MESSAGE:
		write_message(w, slot, fresh);
		break;
	case SLOT_REASONING:
		write_reasoning(w, slot, fresh);
		break;
	case SLOT_FUNCTION_CALL:
		write_function_call(w, slot, fresh);
		break;
	case SLOT_SHELL:
		write_shell(w, s, slot, fresh);
		break;
	case SLOT_SHELL_CALL:
		write_shell_call(w, s, slot, fresh);
		break;
	case SLOT_SHELL_OUTPUT:
		write_shell_output(w, s, slot, fresh);
		break;
	case SLOT_LOCAL_CALL:
		responses_raw_local_call(w, slot,
		        responses_local_entry(s->request->conversation, slot->item), fresh);
		break;
	case SLOT_OTHER:
		responses_raw_item(w, slot, fresh);
		break;
	}
}

/* ---- the response object ---- */

/* What the request did not say is answered with the documented default. */
static void write_echo(struct ropewriter *w, const struct responses_state *s, const char *key,
        enum echo_field field, const char *otherwise)
{
	struct str raw = s->request->echo->raw[field];

	ropewriter_kraw(w, key, raw.p ? raw : str_of(otherwise));
}

/* Repeats an object as it came, with what a schema demands and it lacked behind it. */
static void write_object(struct ropewriter *w, const struct echo_object *o)
{
	ropewriter_raw(w, o->head);
	ropewriter_literal(w, o->tail);
}

/* OpenAI's shell is shown with the container that it has; false: another entry, or not our
 * container. */
static bool write_resolved_shell(
        struct ropewriter *w, const struct responses_state *s, const struct tool_entry *t)
{
	const struct shell_settings *shell = t->kind == TOOL_SERVER ? t->settings : NULL;
	struct json_writer *j = &w->json;

	if (t != s->request->shell || !shell->openai || s->who->native_shell)
		return false;
	jw_object(j);
	jw_kcstr(j, "type", "shell");
	jw_key(j, "environment");
	jw_object(j);
	jw_kcstr(j, "type", "container_reference");
	jw_kcstr(j, "container_id", s->request->container_id);
	jw_end(j);
	jw_end(j);
	return true;
}

static void write_tools(struct ropewriter *w, const struct responses_state *s)
{
	const struct conversation *c = s->request->conversation;

	jw_key(&w->json, "tools");
	jw_array(&w->json);
	for (size_t i = 0; i < c->n_tools; i++) {
		if (!write_resolved_shell(w, s, &c->tools[i]))
			write_object(w, &s->request->echo->tools[i]);
	}
	jw_end(&w->json);
}

static void write_text(struct ropewriter *w, const struct responses_state *s)
{
	struct str verbosity = s->request->echo->raw[ECHO_TEXT_VERBOSITY];

	jw_key(&w->json, "text");
	jw_object(&w->json);
	jw_key(&w->json, "format");
	write_object(w, &s->request->echo->format);
	if (verbosity.p)
		jw_kraw(&w->json, "verbosity", verbosity);
	jw_end(&w->json);
}

static void write_error(struct ropewriter *w, const struct error *e)
{
	struct json_writer *j = &w->json;

	if (!e) {
		jw_knull(j, "error");
		return;
	}
	jw_key(j, "error");
	jw_object(j);
	jw_kcstr(j, "type", api_error_type(e));
	jw_kcstr(j, "code", responses_error_code(e));
	jw_kcstr(j, "message", api_error_text(e));
	jw_kcstr(j, "param", e->param[0] ? e->param : NULL);
	jw_end(j);
	jw_kcstr(j, "error_type", api_error_name(e));
}

/* In the object and in the stream the code is always a string: the SDKs type it so. */
const char *responses_error_code(const struct error *e)
{
	const char *code = api_error_code(e);

	return code ? code : api_error_name(e);
}

void responses_write_head(struct ropewriter *w, const struct responses_state *s)
{
	struct json_writer *j = &w->json;
	struct str tier = s->request->echo->raw[ECHO_SERVICE_TIER];

	jw_object(j);
	jw_kcstr(j, "id", s->id);
	jw_kcstr(j, "object", "response");
	jw_ki64(j, "created_at", s->who->created_s);
	jw_kcstr(j, "status", s->status);
	jw_kbool(j, "background", s->request->background);
	if (s->completed_s)
		jw_ki64(j, "completed_at", s->completed_s);
	else
		jw_knull(j, "completed_at");
	write_error(w, s->error);
	write_echo(w, s, "frequency_penalty", ECHO_FREQUENCY_PENALTY, "0");
	jw_key(j, "incomplete_details");
	if (s->incomplete_reason) {
		jw_object(j);
		jw_kcstr(j, "reason", s->incomplete_reason);
		jw_end(j);
	} else {
		jw_null(j);
	}
	write_echo(w, s, "instructions", ECHO_INSTRUCTIONS, "null");
	write_echo(w, s, "max_output_tokens", ECHO_MAX_OUTPUT_TOKENS, "null");
	write_echo(w, s, "max_tool_calls", ECHO_MAX_TOOL_CALLS, "null");
	write_echo(w, s, "metadata", ECHO_METADATA, "{}");
	jw_kcstr(j, "model", s->who->model);
	write_echo(w, s, "parallel_tool_calls", ECHO_PARALLEL_TOOL_CALLS, "true");
	write_echo(w, s, "presence_penalty", ECHO_PRESENCE_PENALTY, "0");
	write_echo(w, s, "previous_response_id", ECHO_PREVIOUS_RESPONSE_ID, "null");
	write_echo(w, s, "prompt_cache_key", ECHO_PROMPT_CACHE_KEY, "null");
	write_echo(w, s, "prompt_cache_retention", ECHO_PROMPT_CACHE_RETENTION, "null");
	jw_key(j, "reasoning");
	write_object(w, &s->request->echo->reasoning);
	write_echo(w, s, "safety_identifier", ECHO_SAFETY_IDENTIFIER, "null");
	/* "auto" is a wish; what served is the one tier there is. */
	jw_kraw(j, "service_tier", tier.p && !str_is(tier, "\"auto\"") ? tier : STR("\"default\""));
	jw_kbool(j, "store", s->request->store);
	write_echo(w, s, "temperature", ECHO_TEMPERATURE, "1");
	write_text(w, s);
	write_echo(w, s, "tool_choice", ECHO_TOOL_CHOICE, "\"auto\"");
	write_tools(w, s);
	write_echo(w, s, "top_logprobs", ECHO_TOP_LOGPROBS, "0");
	write_echo(w, s, "top_p", ECHO_TOP_P, "1");
	write_echo(w, s, "truncation", ECHO_TRUNCATION, "\"disabled\"");
	write_echo(w, s, "user", ECHO_USER, "null");
	jw_key(j, "output");
	jw_array(j);
}

/* ---- usage ---- */

static void write_usage(struct ropewriter *w, const struct responses_state *s)
{
	struct json_writer *j = &w->json;
	const struct usage *u;

	if (!s->totals) {
		jw_knull(j, "usage");
		return;
	}
	u = &s->totals->usage;
	jw_key(j, "usage");
	jw_object(j);
	jw_ki64(j, "input_tokens", (int64_t)u->input);
	jw_key(j, "input_tokens_details");
	jw_object(j);
	jw_ki64(j, "cached_tokens", (int64_t)u->cached);
	jw_ki64(j, "cache_write_tokens", (int64_t)u->cache_write);
	jw_end(j);
	jw_ki64(j, "output_tokens", (int64_t)u->output);
	jw_key(j, "output_tokens_details");
	jw_object(j);
	jw_ki64(j, "reasoning_tokens", (int64_t)u->reasoning);
	jw_end(j);
	jw_ki64(j, "total_tokens", (int64_t)(u->input + u->output));
	api_write_cost(j, s->who, s->totals, "upstream_inference_input_cost",
	        "upstream_inference_output_cost", s->request->conversation->has_server_tool);
	jw_end(j);
}

void responses_write_tail(struct ropewriter *w, const struct responses_state *s)
{
	jw_end(&w->json); /* output */
	write_usage(w, s);
	if (s->totals && s->who->metadata)
		jw_kraw(&w->json, "openrouter_metadata", str_of(s->who->metadata));
	jw_end(&w->json);
}
