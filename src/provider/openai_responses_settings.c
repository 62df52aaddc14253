/*
 * Settings of a request as the Responses dialect spells them, and the members that only this
 * dialect knows, which a client of the same dialect sent. Numbers keep their text, keys their
 * order.
 *
 * What the dialect has no word for (stop, seed; top_k but at OpenRouter) is not sent: docs/api.md,
 * table of losses.
 */
#include "provider/openai_responses.h"

#define TREE_MAX  ((size_t)64 << 20)
#define LEAST_OUT 16 /* tokens: OpenAI refuses less */

bool openai_responses_reasons(const struct provider_target *t)
{
	static const char *const old[] = {"gpt-3", "gpt-4", "chatgpt-", "ft:gpt-3", "ft:gpt-4",
	        "gpt-5-chat", "gpt-5.1-chat", "gpt-audio", "gpt-realtime"};
	struct openai_responses_place place = openai_responses_place(t->config);
	struct str model = str_of(t->model);

	if (str_starts(model, "openai/") && !place.openai)
		model = (struct str){model.p + 7, model.n - 7};
	for (size_t i = 0; i < sizeof(old) / sizeof(*old); i++)
		if (str_starts(model, old[i]))
			return false;
	return true;
}

static const struct extra_member *extra_find(const struct conversation *c, const char *key)
{
	for (size_t i = 0; i < c->n_extra && c->dialect == DIALECT_OPENAI_RESPONSES; i++)
		if (str_is(c->extra[i].key, key))
			return &c->extra[i];
	return NULL;
}

static void write_most_tokens(struct json_writer *w, struct str raw, bool openai)
{
	uint64_t n;

	if (openai && str_to_u64(raw, &n) && n < LEAST_OUT)
		jw_ki64(w, "max_output_tokens", LEAST_OUT);
	else
		jw_kraw_given(w, "max_output_tokens", raw);
}

/* ---- text ---- */

/* Chat Completions nests a schema; here it is flat. */
static int write_format(struct json_writer *w, struct str text_format, struct error *err)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	const struct json *f, *nested;
	int r = json_parse(text_format, TREE_MAX, &doc, err);

	if (r < 0)
		return r;
	f = json_root(doc);
	nested = json_get(f, "json_schema");
	jw_key(w, "format");
	if (!json_is(nested, JSON_OBJECT)) {
		jw_raw(w, json_raw(f));
		return 0;
	}
	jw_object(w);
	jw_kcstr(w, "type", "json_schema");
	for (const struct json *v = json_first(nested); v; v = json_next(v)) {
		if (str_is(json_key(v), "type"))
			continue; /* said already */
		jw_key_str(w, json_key(v));
		jw_raw(w, json_raw(v));
	}
	jw_end(w);
	return 0;
}

static int write_text_object(struct json_writer *w, const struct settings *s, struct error *err)
{
	int r = 0;

	if (!s->text_format.n && !s->verbosity.n)
		return 0;
	jw_key(w, "text");
	jw_object(w);
	if (s->text_format.n)
		r = write_format(w, s->text_format, err);
	if (r < 0)
		return r;
	jw_kstr_given(w, "verbosity", s->verbosity);
	jw_end(w);
	return 0;
}

/* ---- reasoning ---- */

/* A budget of tokens, in the words that there are for effort. */
static const char *effort_of(struct str budget)
{
	uint64_t n;

	if (!str_to_u64(budget, &n))
		return NULL;
	return n == 0 ? "none" : n <= 4096 ? "low" : n <= 16384 ? "medium" : "high";
}

static void write_reasoning(struct json_writer *w, const struct conversation *c, bool openrouter)
{
	const struct extra_member *whole = extra_find(c, "reasoning");
	const struct settings *s = &c->settings;
	bool budget = openrouter && s->thinking_budget.n && !s->reasoning_effort.n;
	const char *effort = s->reasoning_effort.n || budget ? NULL : effort_of(s->thinking_budget);
	bool summary = s->reasoning_summary.n || s->include_thoughts == 1;

	if (whole) {
		jw_kraw(w, "reasoning", whole->raw);
		return;
	}
	if (!s->reasoning_effort.n && !effort && !budget && !summary)
		return;
	jw_key(w, "reasoning");
	jw_object(w);
	jw_kstr_given(w, "effort", s->reasoning_effort);
	if (effort)
		jw_kcstr(w, "effort", effort);
	if (budget)
		jw_kraw(w, "max_tokens", s->thinking_budget);
	if (summary)
		jw_kstr(w, "summary", s->reasoning_summary.n ? s->reasoning_summary : STR("auto"));
	jw_end(w);
}

/* ---- include and what else only this dialect knows ---- */

static void write_include(struct json_writer *w, const struct conversation *c, bool reasons)
{
	static const char encrypted[] = "reasoning.encrypted_content";
	const struct extra_member *asked = extra_find(c, "include");
	struct json_doc *doc _cleanup_json_ = NULL;

	if (asked && json_parse(asked->raw, TREE_MAX, &doc, NULL) < 0)
		asked = NULL;
	if (!asked && !reasons)
		return;
	jw_key(w, "include");
	jw_array(w);
	if (reasons)
		jw_cstr(w, encrypted);
	for (const struct json *v = json_first(json_root(doc)); v; v = json_next(v))
		if (!str_is(json_str(v), encrypted))
			jw_raw(w, json_raw(v));
	jw_end(w);
}

/* Words that OpenRouter alone knows; others refuse or mistake them. */
static const char *const openrouter_only[] = {"cache_control", "debug", "image_config",
        "modalities", "plugins", "provider", "route", "transforms", "usage", NULL};
static const char *const written_elsewhere[] = {"reasoning", "include", NULL};

static void write_extra(struct json_writer *w, const struct conversation *c, bool openrouter)
{
	for (size_t i = 0; i < c->n_extra && c->dialect == DIALECT_OPENAI_RESPONSES; i++) {
		const struct extra_member *m = &c->extra[i];

		if (openai_responses_listed(m->key, written_elsewhere))
			continue;
		if (!openrouter && openai_responses_listed(m->key, openrouter_only))
			continue;
		jw_key_str(w, m->key);
		jw_raw(w, m->raw);
	}
}

int openai_responses_settings_write(
        struct json_writer *w, const struct provider_call *pc, struct error *err)
{
	const struct conversation *c = pc->conversation;
	const struct settings *s = &c->settings;
	struct openai_responses_place place = openai_responses_place(pc->target->config);
	int r;

	write_most_tokens(w, s->max_output_tokens, place.openai);
	jw_kraw_given(w, "temperature", s->temperature);
	jw_kraw_given(w, "top_p", s->top_p);
	if (place.openrouter)
		jw_kraw_given(w, "top_k", s->top_k);
	jw_kraw_given(w, "top_logprobs", s->top_logprobs);
	jw_kraw_given(w, "presence_penalty", s->presence_penalty);
	jw_kraw_given(w, "frequency_penalty", s->frequency_penalty);
	r = write_text_object(w, s, err);
	if (r < 0)
		return r;
	write_reasoning(w, c, place.openrouter);
	jw_kstr_given(w, "user", s->user);
	jw_kstr_given(w, "safety_identifier", s->safety_identifier);
	jw_kstr_given(w, "prompt_cache_key", s->prompt_cache_key);
	jw_kstr_given(w, "service_tier", s->service_tier);
	jw_kraw_given(w, "metadata", s->metadata);
	write_include(w, c, openai_responses_reasons(pc->target));
	write_extra(w, c, place.openrouter);
	if (place.openai) {
		/* Padding against listeners, which our own connection to the client does not keep.
		 */
		jw_key(w, "stream_options");
		jw_object(w);
		jw_kbool(w, "include_obfuscation", false);
		jw_end(w);
	}
	return 0;
}
