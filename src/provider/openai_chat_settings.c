/* Settings of a request as Chat Completions spells them: numbers keep their text, keys their order.
 */
#include "provider/openai_chat.h"

#define TREE_MAX ((size_t)64 << 20)

/* text.format of the Responses API is flat; response_format nests the schema. */
static int write_response_format(struct json_writer *w, struct str text_format, struct error *err)
{
	static const char *const members[] = {"name", "description", "schema", "strict"};
	struct json_doc *doc _cleanup_json_ = NULL;
	const struct json *f;
	struct str type;
	int r;

	if (!text_format.n)
		return 0;
	r = json_parse(text_format, TREE_MAX, &doc, err);
	if (r < 0)
		return r;
	f = json_root(doc);
	type = json_str(json_get(f, "type"));
	if (str_is(type, "text"))
		return 0;
	jw_key(w, "response_format");
	if (!str_is(type, "json_schema") || json_get(f, "json_schema")) {
		jw_raw(w, json_raw(f));
		return 0;
	}
	jw_object(w);
	jw_kcstr(w, "type", "json_schema");
	jw_key(w, "json_schema");
	jw_object(w);
	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
		const struct json *v = json_get(f, members[i]);

		if (!json_absent(v))
			jw_kraw(w, members[i], json_raw(v));
	}
	jw_end(w);
	jw_end(w);
	return 0;
}

static void write_number(struct json_writer *w, const char *key, struct str raw)
{
	if (raw.n)
		jw_kraw(w, key, raw);
}

static void write_text(struct json_writer *w, const char *key, struct str s)
{
	if (s.n)
		jw_kstr(w, key, s);
}

/* top_logprobs is not asked for: nothing on the way back carries them. */
int openai_chat_settings_write(struct json_writer *w, const struct settings *s, bool openai,
        bool openrouter, struct error *err)
{
	int r;

	write_number(w, openai ? "max_completion_tokens" : "max_tokens", s->max_output_tokens);
	write_number(w, "temperature", s->temperature);
	write_number(w, "top_p", s->top_p);
	if (!openai)
		write_number(w, "top_k", s->top_k);
	write_number(w, "presence_penalty", s->presence_penalty);
	write_number(w, "frequency_penalty", s->frequency_penalty);
	write_number(w, "seed", s->seed);
	write_number(w, "stop", s->stop);
	r = write_response_format(w, s->text_format, err);
	if (r < 0)
		return r;
	write_text(w, "reasoning_effort", s->reasoning_effort);
	if (openai || openrouter) {
		write_text(w, "user", s->user);
		write_text(w, "prompt_cache_key", s->prompt_cache_key);
	}
	if (openai) {
		write_text(w, "safety_identifier", s->safety_identifier);
		write_text(w, "service_tier", s->service_tier);
		write_text(w, "verbosity", s->verbosity);
		write_number(w, "metadata", s->metadata);
	}
	return 0;
}
