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

/* top_logprobs is not asked for: nothing on the way back carries them. */
int openai_chat_settings_write(struct json_writer *w, const struct settings *s, bool openai,
        bool openrouter, struct error *err)
{
	int r;

	jw_kraw_given(w, openai ? "max_completion_tokens" : "max_tokens", s->max_output_tokens);
	jw_kraw_given(w, "temperature", s->temperature);
	jw_kraw_given(w, "top_p", s->top_p);
	if (!openai)
		jw_kraw_given(w, "top_k", s->top_k);
	jw_kraw_given(w, "presence_penalty", s->presence_penalty);
	jw_kraw_given(w, "frequency_penalty", s->frequency_penalty);
	jw_kraw_given(w, "seed", s->seed);
	jw_kraw_given(w, "stop", s->stop);
	r = write_response_format(w, s->text_format, err);
	if (r < 0)
		return r;
	jw_kstr_given(w, "reasoning_effort", s->reasoning_effort);
	if (openai || openrouter) {
		jw_kstr_given(w, "user", s->user);
		jw_kstr_given(w, "prompt_cache_key", s->prompt_cache_key);
	}
	if (openai) {
		jw_kstr_given(w, "safety_identifier", s->safety_identifier);
		jw_kstr_given(w, "service_tier", s->service_tier);
		jw_kstr_given(w, "verbosity", s->verbosity);
		jw_kraw_given(w, "metadata", s->metadata);
	}
	return 0;
}
