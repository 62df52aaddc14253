/*
 * POST /models/{model}:generateContent: from the body to a turn_request.
 *
 * The tree of the body lives only while it is parsed; the body itself goes over to the
 * conversation, and what is handed on as it came points into it. This API takes unknown members of
 * requests from newer clients all the time, so they are no error: whatever is not read here goes to
 * providers of this dialect as it is, and to no other. toolConfig and generationConfig go there as
 * they are too, beside the settings that are read from them.
 *
 * brig's own members: models (to fall back on), sessionId, maxToolCalls.
 */
#include "api/gemini.h"

#include "api/body.h"
#include "api/relay.h"
#include "base/utf8.h"

#include <stdlib.h>

enum { CANDIDATES_MAX = 8 };

/* ---- names ---- */

static void write_snake(const char *camel, char out[GEMINI_KEY])
{
	size_t n = 0;

	for (; *camel && n < GEMINI_KEY - 2; camel++) {
		if (*camel >= 'A' && *camel <= 'Z') {
			out[n++] = '_';
			out[n++] = (char)(*camel - 'A' + 'a');
		} else {
			out[n++] = *camel;
		}
	}
	out[n] = '\0';
}

const char *gemini_parse_key(const struct json *object, const char *camel, char out[GEMINI_KEY])
{
	write_snake(camel, out);
	if (json_get(object, camel) || !json_get(object, out))
		str_copy(out, GEMINI_KEY, str_of(camel));
	return out;
}

const struct json *gemini_parse_get(const struct json *object, const char *camel)
{
	char key[GEMINI_KEY];

	return json_get(object, gemini_parse_key(object, camel, key));
}

bool gemini_parse_is(struct str key, const char *camel)
{
	char snake[GEMINI_KEY];

	write_snake(camel, snake);
	return str_is(key, camel) || str_is(key, snake);
}

/* ---- the model ---- */

static int parse_models(struct gemini_parser *p, struct str model)
{
	struct conversation *c = p->conversation;
	bool ok = true;

	if (!model.n || model.n > BODY_MODEL_NAME_MAX)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "", "model",
		        "A model's name has 1 to %d characters.", BODY_MODEL_NAME_MAX);
	c->model = conversation_copy(c, model, &ok);
	return ok ? body_model_list(&p->in, p->root) : param_fail_memory(&p->in);
}

/* ---- generationConfig ---- */

static int parse_numbers(struct gemini_parser *p, const struct json *g, const char *path)
{
	struct settings *s = &p->conversation->settings;
	const struct {
		const char *camel;
		double least, most;
		struct str *ret;
	} rows[] = {
	        {"temperature", 0, 2, &s->temperature},
	        {"topP", 0, 1, &s->top_p},
	        {"topK", 0, 1e9, &s->top_k},
	        {"maxOutputTokens", 1, 1e9, &s->max_output_tokens},
	        {"presencePenalty", -2, 2, &s->presence_penalty},
	        {"frequencyPenalty", -2, 2, &s->frequency_penalty},
	        {"seed", -1e30, 1e30, &s->seed},
	        {"logprobs", 0, 20, &s->top_logprobs},
	};
	char key[GEMINI_KEY];
	int rc = 0;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows) && !rc; i++)
		rc = param_number(&p->in, g, path, gemini_parse_key(g, rows[i].camel, key),
		        rows[i].least, rows[i].most, rows[i].ret);
	return rc;
}

static int parse_candidates(struct gemini_parser *p, const struct json *g, const char *path)
{
	char key[GEMINI_KEY];
	int64_t n = 1;
	int rc = param_whole(&p->in, g, path, gemini_parse_key(g, "candidateCount", key), 1,
	        CANDIDATES_MAX, NULL, &n);

	if (rc || n == 1 || !p->shell)
		return rc;
	return param_fail(&p->in, ERR_UNSUPPORTED, "unsupported_value", path, key,
	        "With the server's shell there is one candidate.");
}

static int parse_stop(struct gemini_parser *p, const struct json *g, const char *path)
{
	char key[GEMINI_KEY];
	const struct json *list;
	int rc = param_container(
	        &p->in, g, path, gemini_parse_key(g, "stopSequences", key), JSON_ARRAY, &list);

	if (rc)
		return rc;
	for (const struct json *v = json_first(list); v; v = json_next(v))
		if (!json_is(v, JSON_STRING))
			return param_fail_type(&p->in, v, path, key, "an array of strings");
	if (json_count(list))
		p->conversation->settings.stop = json_raw(list);
	return 0;
}

static int parse_thinking(struct gemini_parser *p, const struct json *g, const char *path)
{
	static const char *const levels[] = {
	        "MINIMAL", "LOW", "MEDIUM", "HIGH", "THINKING_LEVEL_UNSPECIFIED", NULL};
	static const char *const efforts[] = {"minimal", "low", "medium", "high"};
	struct settings *s = &p->conversation->settings;
	char outer[GEMINI_KEY], key[GEMINI_KEY], inner[PARAM_PATH];
	const struct json *t;
	struct str level;
	int rc = param_container(
	        &p->in, g, path, gemini_parse_key(g, "thinkingConfig", outer), JSON_OBJECT, &t);

	param_join(inner, path, outer);
	if (!rc)
		rc = param_bool(&p->in, t, inner, gemini_parse_key(t, "includeThoughts", key),
		        &s->include_thoughts);
	if (!rc)
		rc = param_whole(&p->in, t, inner, gemini_parse_key(t, "thinkingBudget", key), -1,
		        INT64_MAX, &s->thinking_budget, NULL);
	gemini_parse_key(t, "thinkingLevel", key);
	if (!rc)
		rc = param_str(&p->in, t, inner, key, 64, &level);
	if (rc || !level.p)
		return rc;
	for (size_t i = 0; levels[i]; i++) {
		if (!str_ieq(level, str_of(levels[i])))
			continue;
		if (i < sizeof(efforts) / sizeof(*efforts))
			s->reasoning_effort = str_of(efforts[i]);
		return 0;
	}
	return param_fail(&p->in, ERR_INVALID, "invalid_value", inner, key,
	        "Invalid value: '%s'. Supported values are: 'MINIMAL', 'LOW', 'MEDIUM', 'HIGH'.",
	        param_show(level).text);
}

/* As the Responses API says it, which is how settings keep it. */
static int write_format(struct gemini_parser *p, struct str schema, bool convert)
{
	struct buf text = BUF_INIT(schema.n + 128);
	bool ok = true;

	if (!schema.n) {
		p->conversation->settings.text_format = STR("{\"type\":\"json_object\"}");
		return 0;
	}
	buf_puts(&text, "{\"type\":\"json_schema\",\"name\":\"response\",\"schema\":");
	if (!convert)
		buf_append(&text, schema.p, schema.n);
	else if (gemini_schema_convert(schema, &text) < 0)
		ok = false;
	buf_putc(&text, '}');
	if (ok && buf_error(&text) == 0)
		p->conversation->settings.text_format =
		        conversation_copy(p->conversation, (struct str){text.data, text.len}, &ok);
	else
		ok = false;
	buf_free(&text);
	return ok ? 0 : param_fail_memory(&p->in);
}

static int parse_format(struct gemini_parser *p, const struct json *g, const char *path)
{
	char key[GEMINI_KEY];
	const struct json *schema, *json_schema;
	struct str mime;
	int rc = param_str(
	        &p->in, g, path, gemini_parse_key(g, "responseMimeType", key), 128, &mime);

	if (!rc)
		rc = param_container(&p->in, g, path, gemini_parse_key(g, "responseSchema", key),
		        JSON_OBJECT, &schema);
	if (!rc)
		rc = param_container(&p->in, g, path,
		        gemini_parse_key(g, "responseJsonSchema", key), JSON_OBJECT, &json_schema);
	if (rc || !str_is(mime, "application/json"))
		return rc;
	if (json_schema)
		return write_format(p, json_raw(json_schema), false);
	return write_format(p, schema ? json_raw(schema) : (struct str){NULL, 0}, schema != NULL);
}

static int parse_generation(struct gemini_parser *p)
{
	char path[GEMINI_KEY];
	const struct json *g;
	int rc = param_container(&p->in, p->root, "",
	        gemini_parse_key(p->root, "generationConfig", path), JSON_OBJECT, &g);

	if (!rc)
		rc = parse_numbers(p, g, path);
	if (!rc)
		rc = parse_candidates(p, g, path);
	if (!rc)
		rc = parse_stop(p, g, path);
	if (!rc)
		rc = parse_thinking(p, g, path);
	return rc ? rc : parse_format(p, g, path);
}

/* ---- everything else ---- */

static int parse_tier(struct gemini_parser *p)
{
	char key[GEMINI_KEY];

	return param_str(&p->in, p->root, "", gemini_parse_key(p->root, "serviceTier", key), 64,
	        &p->conversation->settings.service_tier);
}

/* A step of this API is one call of the shell. */
static int parse_limit(struct gemini_parser *p)
{
	int64_t wanted = BODY_TOOL_CALLS_MAX;
	char key[GEMINI_KEY];
	int rc = param_whole(&p->in, p->root, "", gemini_parse_key(p->root, "maxToolCalls", key), 1,
	        INT64_MAX, NULL, &wanted);

	p->max_tool_calls = body_tool_calls(p->config, wanted);
	return rc;
}

static bool is_read(struct str key)
{
	static const char *const names[] = {"contents", "systemInstruction", "tools", "model",
	        "models", "sessionId", "maxToolCalls", NULL};

	for (const char *const *n = names; *n; n++)
		if (gemini_parse_is(key, *n))
			return true;
	return false;
}

static int keep_extra(struct gemini_parser *p)
{
	static const char *const merged[] = {"toolConfig", "generationConfig"};
	struct conversation *c = p->conversation;
	bool ok = true;

	c->extra = arena_alloc(c->arena, (json_count(p->root) + 1) * sizeof(*c->extra));
	if (!c->extra)
		return param_fail_memory(&p->in);
	for (const struct json *v = json_first(p->root); v; v = json_next(v)) {
		struct extra_member *x = &c->extra[c->n_extra];

		if (is_read(json_key(v)) || json_absent(v))
			continue;
		x->key = conversation_copy(c, json_key(v), &ok);
		for (size_t i = 0; i < sizeof(merged) / sizeof(*merged); i++)
			if (gemini_parse_is(x->key, merged[i]))
				x->key = str_of(merged[i]);
		x->raw = json_raw(v);
		c->n_extra++;
	}
	return ok ? 0 : param_fail_memory(&p->in);
}

static int choose_container(struct gemini_parser *p, const struct api_request *in,
        struct str request_seed, struct turn_request *r)
{
	const struct shell_settings *shell = p->shell ? p->shell->settings : NULL;
	struct api_container_hints hints = {
	        .replayed = p->replayed_container,
	        .request_seed = request_seed,
	};
	char key[GEMINI_KEY];
	int rc = param_str(&p->in, p->root, "", gemini_parse_key(p->root, "sessionId", key), 256,
	        &hints.session[0]);

	if (rc || !shell)
		return rc;
	hints.session[1] = in->session_header;
	api_shell_settle(p->shell->settings, &hints);
	return body_container(&p->in, &hints, shell, r);
}

static int parse_tree(struct gemini_parser *p, const struct api_request *in,
        struct str request_seed, struct turn_request *r)
{
	static int (*const steps[])(struct gemini_parser *) = {gemini_tools_parse, parse_generation,
	        parse_tier, parse_limit, gemini_contents_parse, keep_extra};
	int rc;

	/* countTokens has two forms: contents alone, and a whole request in this member. */
	if (!json_get(p->root, "contents") &&
	        json_is(gemini_parse_get(p->root, "generateContentRequest"), JSON_OBJECT))
		p->root = gemini_parse_get(p->root, "generateContentRequest");
	rc = parse_models(p, in->path_model);
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps) && !rc; i++)
		rc = steps[i](p);
	if (rc)
		return rc;
	r->stream = in->path_stream;
	r->options = body_options(p->config, r->stream);
	r->options.max_tool_calls = p->max_tool_calls;
	r->options.compact_arguments = true;
	r->shell = p->shell;
	r->echo = arena_alloc(p->conversation->arena, sizeof(*r->echo));
	if (!r->echo)
		return param_fail_memory(&p->in);
	r->echo->array = in->path_array;
	return choose_container(p, in, request_seed, r);
}

int gemini_parse(struct api_request *in, struct str request_seed, struct turn_request *ret,
        struct error *err)
{
	struct turn_request r = {.api = &api_gemini, .under_v1 = in->under_v1};
	struct gemini_parser p = {.config = in->config};
	_cleanup_json_ struct json_doc *doc = NULL;
	int rc = body_read(in, DIALECT_GEMINI, &r, err, &p.in, &doc);

	p.conversation = r.conversation;
	if (!rc) {
		p.root = json_root(doc);
		rc = parse_tree(&p, in, request_seed, &r);
	}
	free(p.pieces);
	if (rc) {
		turn_request_free(&r);
		return rc;
	}
	if (!relay_holds_sealed(p.in.body))
		r.body = p.in.body;
	*ret = r;
	return 0;
}
