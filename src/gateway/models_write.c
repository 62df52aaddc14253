/*
 * A row of the catalogue of models in three shapes: OpenAI's object with the keys that OpenRouter's
 * SDK demands besides, Anthropic's and Google's. What brig cannot know of a model is null, or
 * absent where that is their way.
 */
#include "gateway/models.h"

#include "base/clock.h"

static const char script_text[] = "Not a model: runs the fenced shell blocks of the last user "
                                  "message, for trying out and for tests.";

static struct str name_of(const struct models_row *m)
{
	return m->listed != NULL && m->listed->name.n > 0 ? m->listed->name : m->id;
}

static void number_or_null(struct json_writer *w, const char *key, uint64_t n)
{
	if (n > 0 && n <= INT64_MAX)
		jw_ki64(w, key, (int64_t)n);
	else
		jw_knull(w, key);
}

/* ---- OpenAI and OpenRouter ---- */

/* Dollars for one token, as text. */
static void write_price(struct json_writer *w, const char *key, struct money million)
{
	struct buf text = BUF_INIT(64);

	money_write(&text, money_mul(million, 1, 1000000));
	jw_kstr(w, key, (struct str){text.data, text.len});
	buf_free(&text);
}

static void write_pricing(struct json_writer *w, const struct models_row *m)
{
	struct money nothing = {0};

	jw_key(w, "pricing");
	jw_object(w);
	if (m->price == NULL && !m->script) {
		/* OpenRouter's word for a price that is not fixed. */
		jw_kcstr(w, "prompt", "-1");
		jw_kcstr(w, "completion", "-1");
	} else {
		write_price(w, "prompt", m->price ? m->price->input : nothing);
		write_price(w, "completion", m->price ? m->price->output : nothing);
		if (m->price && m->price->has_cached)
			write_price(w, "input_cache_read", m->price->cached);
	}
	jw_end(w);
}

static void write_openrouter(struct json_writer *w, const struct models_row *m)
{
	/* What is passed on; whether a model heeds it is not known here. */
	static const char passed[] =
	        "[\"tools\",\"tool_choice\",\"parallel_tool_calls\",\"max_tokens\","
	        "\"temperature\",\"top_p\",\"presence_penalty\",\"frequency_penalty\","
	        "\"response_format\",\"reasoning\"]";
	uint64_t input = m->listed != NULL ? m->listed->input_tokens : 0;
	uint64_t output = m->listed != NULL ? m->listed->output_tokens : 0;
	struct buf details = BUF_INIT(1024);

	jw_kstr(w, "canonical_slug", m->id);
	number_or_null(w, "context_length", input);
	jw_kraw(w, "architecture",
	        STR("{\"modality\":\"text->text\",\"input_modalities\":[\"text\"],"
	            "\"output_modalities\":[\"text\"],\"instruct_type\":null}"));
	write_pricing(w, m);
	jw_key(w, "top_provider");
	jw_object(w);
	number_or_null(w, "context_length", input);
	number_or_null(w, "max_completion_tokens", output);
	jw_kbool(w, "is_moderated", false);
	jw_end(w);
	jw_knull(w, "per_request_limits");
	jw_knull(w, "default_parameters");
	jw_knull(w, "supported_voices");
	jw_kraw(w, "supported_parameters",
	        m->script ? STR("[\"tools\",\"tool_choice\"]") : STR(passed));
	buf_printf(&details, "/api/v1/models/%.*s", (int)m->id.n, m->id.p);
	jw_key(w, "links");
	jw_object(w);
	jw_kcstr(w, "details", buf_cstr(&details));
	jw_end(w);
	buf_free(&details);
}

void models_write_openai(struct json_writer *w, const struct models_row *m)
{
	jw_object(w);
	jw_kstr(w, "id", m->id);
	jw_kcstr(w, "object", "model");
	jw_ki64(w, "created", m->listed != NULL ? m->listed->created_s : 0);
	jw_kcstr(w, "owned_by", m->provider);
	jw_kstr(w, "name", name_of(m));
	if (m->script)
		jw_kcstr(w, "description", script_text);
	write_openrouter(w, m);
	jw_end(w);
}

/* ---- Anthropic ---- */

void models_write_anthropic(struct json_writer *w, const struct models_row *m)
{
	char created[32];

	clock_iso8601(m->listed != NULL ? m->listed->created_s * 1000 : 0, created);
	jw_object(w);
	jw_kcstr(w, "type", "model");
	jw_kstr(w, "id", m->id);
	jw_kstr(w, "display_name", name_of(m));
	jw_kcstr(w, "created_at", created); /* its first second where that is not known */
	jw_knull(w, "capabilities");
	jw_kcstr(w, "lifecycle", "active");
	jw_knull(w, "line");
	jw_knull(w, "deprecated_at");
	jw_knull(w, "retires_at");
	number_or_null(w, "max_input_tokens", m->listed != NULL ? m->listed->input_tokens : 0);
	number_or_null(w, "max_tokens", m->listed != NULL ? m->listed->output_tokens : 0);
	jw_end(w);
}

/* ---- Google ---- */

void models_write_google(struct json_writer *w, const struct models_row *m)
{
	struct buf name = BUF_INIT(1024);

	buf_printf(&name, "models/%.*s", (int)m->id.n, m->id.p);
	jw_object(w);
	jw_kcstr(w, "name", buf_cstr(&name));
	jw_kstr(w, "baseModelId", m->id);
	jw_kcstr(w, "version", "");
	jw_kstr(w, "displayName", name_of(m));
	if (m->script)
		jw_kcstr(w, "description", script_text);
	if (m->listed != NULL && m->listed->input_tokens > 0)
		jw_ki64(w, "inputTokenLimit", (int64_t)m->listed->input_tokens);
	if (m->listed != NULL && m->listed->output_tokens > 0)
		jw_ki64(w, "outputTokenLimit", (int64_t)m->listed->output_tokens);
	jw_kraw(w, "supportedGenerationMethods",
	        STR("[\"generateContent\",\"streamGenerateContent\",\"countTokens\"]"));
	jw_end(w);
	buf_free(&name);
}
