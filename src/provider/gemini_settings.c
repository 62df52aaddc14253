/*
 * `generationConfig`. A Gemini client's own goes on as it came. Others' settings are spelled anew:
 * numbers keep their text. Models up to 2.5 take a budget of tokens to think with, later ones a
 * level; the numbers between the two are those of Google's own translation of reasoning_effort.
 *
 * What this dialect cannot say is left out, and listed in docs/api.md: metadata, verbosity, user,
 * safety_identifier, prompt_cache_key, parallel_tool_calls.
 */
#include "provider/gemini.h"

#define TREE_MAX ((size_t)64 << 20)

static void write_raw(struct json_writer *w, const char *key, struct str raw)
{
	if (raw.n)
		jw_kraw(w, key, raw);
}

/* text_format is flat as the Responses API has it, or nested as in Chat Completions. */
static int write_format(struct json_writer *w, struct str format, struct error *err)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	const struct json *root, *schema;
	struct str type;
	int r;

	if (!format.n)
		return 0;
	r = json_parse(format, TREE_MAX, &doc, err);
	if (r < 0)
		return r;
	root = json_root(doc);
	type = json_str(json_get(root, "type"));
	if (!str_is(type, "json_object") && !str_is(type, "json_schema"))
		return 0;
	jw_kcstr(w, "responseMimeType", "application/json");
	schema = json_get(root, "schema");
	if (json_absent(schema))
		schema = json_get(json_get(root, "json_schema"), "schema");
	if (str_is(type, "json_schema") && json_is(schema, JSON_OBJECT))
		jw_kraw(w, "responseJsonSchema", json_raw(schema));
	return 0;
}

static void write_stop(struct json_writer *w, struct str stop)
{
	if (!stop.n)
		return;
	jw_key(w, "stopSequences");
	if (*stop.p == '[') {
		jw_raw(w, stop);
		return;
	}
	jw_array(w);
	jw_raw(w, stop);
	jw_end(w);
}

/* ---- thinking ---- */

static const struct {
	const char *effort, *level;
	const char *budget;
} efforts[] = {
        {"none", "MINIMAL", "0"},
        {"minimal", "MINIMAL", "1024"},
        {"low", "LOW", "1024"},
        {"medium", "MEDIUM", "8192"},
        {"high", "HIGH", "24576"},
        {"xhigh", "HIGH", "24576"},
        {"max", "HIGH", "24576"},
};

/* For a budget in tokens, which may be a number of any size. */
static const char *level_of(struct str budget)
{
	uint64_t n;

	if (str_starts(budget, "-")) /* as much as the model thinks fit: its default */
		return NULL;
	if (!str_to_u64(budget, &n) || n > 12288)
		return "HIGH";
	return n == 0 ? "MINIMAL" : n <= 2048 ? "LOW" : "MEDIUM";
}

/* The larger models cannot be told not to think. */
static bool is_pro(const char *model)
{
	return str_contains(str_of(model), "-pro");
}

static void write_thinking(struct json_writer *w, const struct settings *s, const char *model)
{
	bool is_new = gemini_model_is_new(model);
	bool shown =
	        s->include_thoughts == 1 || (s->include_thoughts < 0 && s->reasoning_summary.n);
	const char *level = NULL, *effort_budget = NULL;
	struct str budget = s->thinking_budget;

	for (size_t i = 0; i < sizeof(efforts) / sizeof(*efforts); i++)
		if (str_is(s->reasoning_effort, efforts[i].effort)) {
			level = efforts[i].level;
			effort_budget = efforts[i].budget;
		}
	if (budget.n)
		level = level_of(budget);
	else
		budget = str_of(effort_budget);
	if (is_pro(model) && level && str_is(str_of(level), "MINIMAL")) {
		level = "LOW";
		budget = str_is(budget, "0") ? STR("128") : budget;
	}
	if (!level && !budget.n && !shown && s->include_thoughts < 0)
		return;
	jw_key(w, "thinkingConfig");
	jw_object(w);
	if (is_new && level)
		jw_kcstr(w, "thinkingLevel", level);
	if (!is_new && budget.n)
		jw_kraw(w, "thinkingBudget", budget);
	if (shown || s->include_thoughts == 0)
		jw_kbool(w, "includeThoughts", shown);
	jw_end(w);
}

/* ---- all of it ---- */

static bool says_anything(const struct settings *s)
{
	return s->max_output_tokens.n || s->temperature.n || s->top_p.n || s->top_k.n ||
	       s->presence_penalty.n || s->frequency_penalty.n || s->seed.n || s->stop.n ||
	       s->text_format.n || s->reasoning_effort.n || s->thinking_budget.n ||
	       s->reasoning_summary.n || s->include_thoughts >= 0;
}

static int write_config(
        struct json_writer *w, const struct settings *s, const char *model, struct error *err)
{
	int r;

	jw_key(w, "generationConfig");
	jw_object(w);
	write_raw(w, "temperature", s->temperature);
	write_raw(w, "topP", s->top_p);
	write_raw(w, "topK", s->top_k);
	write_raw(w, "maxOutputTokens", s->max_output_tokens);
	write_raw(w, "presencePenalty", s->presence_penalty);
	write_raw(w, "frequencyPenalty", s->frequency_penalty);
	write_raw(w, "seed", s->seed);
	write_stop(w, s->stop);
	r = write_format(w, s->text_format, err);
	if (r < 0)
		return r;
	write_thinking(w, s, model);
	jw_end(w);
	return 0;
}

int gemini_settings_write(struct json_writer *w, const struct provider_call *pc, struct error *err)
{
	static const char *const tiers[] = {"flex", "standard", "priority"};
	const struct settings *s = &pc->conversation->settings;
	struct str own = gemini_extra(pc->conversation, "generationConfig");
	int r = 0;

	if (own.n)
		jw_kraw(w, "generationConfig", own);
	else if (says_anything(s))
		r = write_config(w, s, pc->target->model, err);
	for (size_t i = 0; pc->conversation->dialect != DIALECT_GEMINI && i < 3; i++)
		if (str_is(s->service_tier, tiers[i]))
			jw_kstr(w, "serviceTier", s->service_tier);
	return r;
}
