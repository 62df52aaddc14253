/* The JSON of Chat Completions answers: what chunks and the whole answer have in common, and that.
 */
#include "api/chat.h"

void chat_write_head(struct ropewriter *w, const struct chat_answer *a, const char *object)
{
	struct json_writer *j = &w->json;

	jw_kcstr(j, "id", a->who->id);
	jw_kcstr(j, "object", object);
	jw_ki64(j, "created", a->who->created_s);
	jw_kcstr(j, "model", a->who->model);
	if (a->who->provider)
		jw_kcstr(j, "provider", a->who->provider);
}

void chat_write_error(struct ropewriter *w, const struct error *e, bool under_v1)
{
	struct json_writer *j = &w->json;

	jw_key(j, "error");
	jw_object(j);
	jw_kcstr(j, "message", api_error_text(e));
	jw_kcstr(j, "type", api_error_type(e));
	jw_kcstr(j, "param", e->param[0] ? e->param : NULL);
	if (under_v1)
		jw_kcstr(j, "code", api_error_code(e));
	else
		jw_ki64(j, "code", error_http_status(e));
	jw_key(j, "metadata");
	jw_object(j);
	jw_kcstr(j, "error_type", api_error_name(e));
	jw_end(j);
	jw_end(j);
}

/* ---- usage ---- */

void chat_write_usage(struct ropewriter *w, const struct chat_answer *a)
{
	struct json_writer *j = &w->json;
	const struct usage *u = &a->totals->usage;

	jw_key(j, "usage");
	jw_object(j);
	jw_ki64(j, "prompt_tokens", (int64_t)u->input);
	jw_ki64(j, "completion_tokens", (int64_t)u->output);
	jw_ki64(j, "total_tokens", (int64_t)(u->input + u->output));
	jw_key(j, "prompt_tokens_details");
	jw_object(j);
	jw_ki64(j, "cached_tokens", (int64_t)u->cached);
	jw_ki64(j, "cache_write_tokens", (int64_t)u->cache_write);
	jw_end(j);
	jw_key(j, "completion_tokens_details");
	jw_object(j);
	jw_ki64(j, "reasoning_tokens", (int64_t)u->reasoning);
	jw_end(j);
	api_write_cost(j, a->who, a->totals, "upstream_inference_prompt_cost",
	        "upstream_inference_completions_cost", false);
	jw_end(j);
}

/* ---- reasoning_details ---- */

static bool has_text(const struct item *it)
{
	for (size_t i = 0; i < it->n_parts; i++)
		if (it->parts[i].type == PART_REASONING)
			return true;
	return false;
}

void chat_write_state(struct ropewriter *w, const struct item *it, int64_t index)
{
	struct json_writer *j = &w->json;
	bool signs = it->type == ITEM_REASONING && has_text(it);

	jw_object(j);
	jw_kcstr(j, "type", signs ? "reasoning.text" : "reasoning.encrypted");
	ropewriter_kstr(w, signs ? "signature" : "data", it->opaque);
	if (it->type == ITEM_CALL)
		ropewriter_kstr(w, "id", it->call.public_id);
	else if (it->type == ITEM_MESSAGE)
		jw_kcstr(j, "id", CHAT_STATE_OF_MESSAGE);
	jw_knull(j, "format");
	if (index >= 0)
		jw_ki64(j, "index", index);
	jw_end(j);
}

static void write_thought(struct ropewriter *w, const struct part *part, int64_t index)
{
	bool summary = part->type == PART_SUMMARY;

	jw_object(&w->json);
	jw_kcstr(&w->json, "type", summary ? "reasoning.summary" : "reasoning.text");
	ropewriter_kstr(w, summary ? "summary" : "text", part->text);
	jw_knull(&w->json, "format");
	jw_ki64(&w->json, "index", index);
	jw_end(&w->json);
}

/* ---- the whole answer ---- */

static bool is_shown(const struct item *it)
{
	return it->output && it->role == ROLE_ASSISTANT;
}

/* Of all output items of a type, the parts of one kind, as one string; null where there is none. */
static void write_joined(struct ropewriter *w, const struct conversation *c, const char *key,
        enum item_type type, enum part_type kind, enum part_type other)
{
	bool any = false;

	jw_key(&w->json, key);
	for (size_t i = 0; i < c->n_items; i++) {
		const struct item *it = c->items[i];

		for (size_t k = 0; it->type == type && is_shown(it) && k < it->n_parts; k++) {
			if (it->parts[k].type != kind && it->parts[k].type != other)
				continue;
			if (!any)
				jw_raw(&w->json, STR("\""));
			any = true;
			ropewriter_piece(w, it->parts[k].text);
		}
	}
	if (any)
		ropewriter_literal(w, STR("\""));
	else
		jw_null(&w->json);
}

static bool has_reasoning(const struct conversation *c)
{
	for (size_t i = 0; i < c->n_items; i++)
		if (is_shown(c->items[i]) &&
		        (c->items[i]->type == ITEM_REASONING || c->items[i]->opaque.n > 0))
			return true;
	return false;
}

static void write_reasoning(struct ropewriter *w, const struct chat_answer *a)
{
	const struct conversation *c = a->request->conversation;
	bool hidden = a->request->echo->hide_reasoning;
	int64_t index = 0;

	if (!has_reasoning(c))
		return;
	if (!hidden)
		write_joined(w, c, "reasoning", ITEM_REASONING, PART_REASONING, PART_SUMMARY);
	jw_key(&w->json, "reasoning_details");
	jw_array(&w->json);
	for (size_t i = 0; i < c->n_items; i++) {
		const struct item *it = c->items[i];
		bool thought = it->type == ITEM_REASONING;

		if (!is_shown(it))
			continue;
		for (size_t k = 0; thought && !hidden && k < it->n_parts; k++)
			write_thought(w, &it->parts[k], index);
		if (it->opaque.n > 0)
			chat_write_state(w, it, thought ? index : -1);
		index += thought;
	}
	jw_end(&w->json);
}

static void write_function(struct ropewriter *w, const struct item *it)
{
	jw_object(&w->json);
	ropewriter_kstr(w, "name", it->call.name);
	ropewriter_kstr(w, "arguments", it->call.arguments);
	jw_end(&w->json);
}

static void write_calls(struct ropewriter *w, const struct chat_answer *a)
{
	const struct conversation *c = a->request->conversation;
	bool legacy = a->request->echo->legacy_functions, any = false;

	for (size_t i = 0; i < c->n_items; i++) {
		const struct item *it = c->items[i];

		if (it->type != ITEM_CALL || !is_shown(it))
			continue;
		if (legacy) {
			jw_key(&w->json, "function_call");
			write_function(w, it);
			return; /* there is room for one */
		}
		if (!any) {
			jw_key(&w->json, "tool_calls");
			jw_array(&w->json);
		}
		any = true;
		jw_object(&w->json);
		ropewriter_kstr(w, "id", it->call.public_id);
		jw_kcstr(&w->json, "type", "function");
		jw_key(&w->json, "function");
		write_function(w, it);
		jw_end(&w->json);
	}
	if (any)
		jw_end(&w->json);
}

void chat_write_whole(struct ropewriter *w, const struct chat_answer *a)
{
	const struct conversation *c = a->request->conversation;
	struct json_writer *j = &w->json;

	jw_object(j);
	chat_write_head(w, a, "chat.completion");
	jw_knull(j, "system_fingerprint"); /* OpenRouter's SDK demands it here, and refuses null in
	                                      a chunk */
	jw_key(j, "choices");
	jw_array(j);
	jw_object(j);
	jw_ki64(j, "index", 0);
	jw_key(j, "message");
	jw_object(j);
	jw_kcstr(j, "role", "assistant");
	write_joined(w, c, "content", ITEM_MESSAGE, PART_TEXT, PART_TEXT);
	write_joined(w, c, "refusal", ITEM_MESSAGE, PART_REFUSAL, PART_REFUSAL);
	write_reasoning(w, a);
	write_calls(w, a);
	jw_end(j);
	jw_kcstr(j, "finish_reason", a->finish);
	jw_knull(j, "logprobs");
	jw_end(j);
	jw_end(j);
	chat_write_usage(w, a);
	if (a->who->metadata)
		jw_kraw(j, "openrouter_metadata", str_of(a->who->metadata));
	jw_end(j);
}
