/*
 * POST /responses: from the body to a turn_request.
 *
 * The tree of the body lives only while it is parsed. The body itself goes over to the
 * conversation: texts without escapes, numbers, and everything that is repeated to the client or
 * handed to the upstream as it came (schemas, metadata, formats) point into it. Order matters once:
 * tools come before the input, since the ids in the input read differently when brig runs a tool.
 */
#include "api/responses.h"

#include "api/body.h"
#include "api/relay.h"
#include "base/utf8.h"
#include "tool/tool.h"

#include <stdlib.h>

enum {
	METADATA_PAIRS = 16,
	METADATA_KEY = 64,
	METADATA_VALUE = 512,
};

/*
 * Every name that the APIs of OpenAI and OpenRouter know at the top. Those that nothing reads here
 * have no meaning for brig and are let through, so that one body serves everywhere. Any other name
 * is a mistake of the caller's and is refused. `seed` and `stop` are ours.
 */
static const char *const known_names[] = {"access_programs", "background", "background_options",
        "cache_control", "context_management", "conversation", "debug", "frequency_penalty",
        "image", "image_config", "include", "input", "instructions", "max_output_tokens",
        "max_tool_calls", "metadata", "modalities", "model", "models", "moderation",
        "parallel_tool_calls", "plugins", "presence_penalty", "previous_response_id", "prompt",
        "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "provider",
        "reasoning", "route", "safety_identifier", "seed", "service_tier", "session_id", "stop",
        "stop_server_tools_when", "store", "stream", "stream_options", "temperature", "text",
        "tool_choice", "tools", "top_k", "top_logprobs", "top_p", "trace", "transforms",
        "truncation", "usage", "user"};

/* Of those, what the conversation has no field for, and a provider of this dialect may know. */
static const char *const extra_names[] = {"access_programs", "cache_control", "context_management",
        "debug", "image", "image_config", "include", "modalities", "moderation", "plugins",
        "prompt_cache_options", "prompt_cache_retention", "provider", "reasoning", "route",
        "transforms", "truncation", "usage"};

static int keep_extra(struct responses_parser *p)
{
	const size_t n = sizeof(extra_names) / sizeof(*extra_names);
	struct conversation *c = p->conversation;

	c->extra = arena_alloc(c->arena, n * sizeof(*c->extra));
	if (!c->extra)
		return param_fail_memory(&p->in);
	for (size_t i = 0; i < n; i++) {
		const struct json *v = json_get(p->root, extra_names[i]);

		if (!json_absent(v))
			c->extra[c->n_extra++] =
			        (struct extra_member){str_of(extra_names[i]), json_raw(v)};
	}
	return 0;
}

/* What other APIs call so. NULL: there is nothing of the kind. */
static const char *name_here(const char *name)
{
	static const char *const names[][2] = {{"messages", "input"}, {"system", "instructions"},
	        {"max_tokens", "max_output_tokens"}, {"max_completion_tokens", "max_output_tokens"},
	        {"response_format", "text.format"}, {"reasoning_effort", "reasoning.effort"},
	        {"functions", "tools"}, {"function_call", "tool_choice"}};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(name, names[i][0]) == 0)
			return names[i][1];
	return NULL;
}

static int check_names(struct responses_parser *p)
{
	const size_t n = sizeof(known_names) / sizeof(*known_names);

	for (const struct json *v = json_first(p->root); v; v = json_next(v)) {
		struct param_shown shown = param_show(json_key(v));
		size_t i = 0;

		while (i < n && !str_is(json_key(v), known_names[i]))
			i++;
		if (i < n)
			continue;
		const char *here = name_here(shown.text);

		return param_fail(&p->in, ERR_INVALID, "unknown_parameter", "", shown.text,
		        "Unknown parameter: '%s'.%s%s%s", shown.text,
		        here ? " The Responses API calls it '" : "", here ? here : "",
		        here ? "'." : "");
	}
	return 0;
}

/* What was said before is in the input already: the gateway has put it there. */
static int check_previous(struct responses_parser *p, const struct api_request *in)
{
	struct str id;
	int rc = param_str(&p->in, p->root, "", "previous_response_id", 0, &id);

	if (rc || !id.p || in->has_history)
		return rc;
	return param_fail(&p->in, ERR_UNSUPPORTED, "unsupported_parameter", "",
	        "previous_response_id",
	        "previous_response_id cannot be used here: send the earlier items in 'input'.");
}

static int check_state(struct responses_parser *p)
{
	static const struct {
		const char *name, *text;
	} rows[] = {
	        {"conversation",
	                "This server does not keep conversations: use previous_response_id, or "
	                "send the earlier items in 'input'."},
	        {"prompt", "Prompt templates are not offered: send 'instructions' and 'input' "
	                   "instead."},
	};
	int rc;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (!json_absent(json_get(p->root, rows[i].name)))
			return param_fail(&p->in, ERR_UNSUPPORTED, "unsupported_parameter", "",
			        rows[i].name, "%s", rows[i].text);
	rc = param_bool(&p->in, p->root, "", "store", &p->store);
	if (!rc)
		rc = param_bool(&p->in, p->root, "", "background", &p->background);
	return rc;
}

static int parse_models(struct responses_parser *p)
{
	return body_models(&p->in, p->root);
}

/*
 * What is repeated goes into lines of a stream, where a newline would end the line. In JSON they
 * stand only between values, so that a space says the same.
 */
static int one_line(struct responses_parser *p, struct str raw, struct str *ret)
{
	char *copy;

	*ret = raw;
	if (!memchr(raw.p, '\n', raw.n) && !memchr(raw.p, '\r', raw.n))
		return 0;
	copy = arena_strndup(p->conversation->arena, raw.p, raw.n);
	if (!copy)
		return param_fail_memory(&p->in);
	for (size_t i = 0; i < raw.n; i++)
		if (copy[i] == '\n' || copy[i] == '\r')
			copy[i] = ' ';
	*ret = (struct str){copy, raw.n};
	return 0;
}

static int echo(struct responses_parser *p, enum echo_field field, const struct json *v)
{
	return json_absent(v) ? 0 : one_line(p, json_raw(v), &p->echo->raw[field]);
}

/* The fields that are repeated as they came, all of them checked before. */
static int echo_fields(struct responses_parser *p)
{
	static const struct {
		enum echo_field field;
		const char *key;
	} rows[] = {
	        {ECHO_INSTRUCTIONS, "instructions"},
	        {ECHO_MAX_OUTPUT_TOKENS, "max_output_tokens"},
	        {ECHO_MAX_TOOL_CALLS, "max_tool_calls"},
	        {ECHO_METADATA, "metadata"},
	        {ECHO_PARALLEL_TOOL_CALLS, "parallel_tool_calls"},
	        {ECHO_PRESENCE_PENALTY, "presence_penalty"},
	        {ECHO_FREQUENCY_PENALTY, "frequency_penalty"},
	        {ECHO_PREVIOUS_RESPONSE_ID, "previous_response_id"},
	        {ECHO_PROMPT_CACHE_KEY, "prompt_cache_key"},
	        {ECHO_PROMPT_CACHE_RETENTION, "prompt_cache_retention"},
	        {ECHO_SAFETY_IDENTIFIER, "safety_identifier"},
	        {ECHO_SERVICE_TIER, "service_tier"},
	        {ECHO_TEMPERATURE, "temperature"},
	        {ECHO_TOOL_CHOICE, "tool_choice"},
	        {ECHO_TOP_LOGPROBS, "top_logprobs"},
	        {ECHO_TOP_P, "top_p"},
	        {ECHO_TRUNCATION, "truncation"},
	        {ECHO_USER, "user"},
	};
	const struct json *text = json_get(p->root, "text");
	int rc = echo(p, ECHO_TEXT_VERBOSITY, json_get(text, "verbosity"));

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows) && !rc; i++)
		rc = echo(p, rows[i].field, json_get(p->root, rows[i].key));
	return rc;
}

static int parse_sampling(struct responses_parser *p)
{
	struct settings *s = &p->conversation->settings;
	struct param_reader *in = &p->in;
	const struct json *root = p->root;
	int rc;

	rc = param_whole(
	        in, root, "", "max_output_tokens", 1, INT64_MAX, &s->max_output_tokens, NULL);
	if (!rc)
		rc = param_number(in, root, "", "temperature", 0, 2, &s->temperature);
	if (!rc)
		rc = param_number(in, root, "", "top_p", 0, 1, &s->top_p);
	if (!rc)
		rc = param_whole(in, root, "", "top_k", 0, INT64_MAX, &s->top_k, NULL);
	if (!rc)
		rc = param_whole(in, root, "", "top_logprobs", 0, 20, &s->top_logprobs, NULL);
	if (!rc)
		rc = param_number(in, root, "", "presence_penalty", -2, 2, &s->presence_penalty);
	if (!rc)
		rc = param_number(in, root, "", "frequency_penalty", -2, 2, &s->frequency_penalty);
	if (!rc)
		rc = param_bool(in, root, "", "parallel_tool_calls", &s->parallel_tool_calls);
	return rc;
}

/* A seed is any whole number: also one that no integer type of ours holds. */
static int parse_seed_and_stop(struct responses_parser *p)
{
	struct settings *s = &p->conversation->settings;
	const struct json *seed = json_get(p->root, "seed");
	struct str digits = json_raw(seed);

	if (!json_absent(seed)) {
		if (json_is(seed, JSON_NUMBER) && digits.n > 0 && digits.p[0] == '-')
			digits = (struct str){digits.p + 1, digits.n - 1};
		if (!json_is(seed, JSON_NUMBER) || !str_in_set(digits, "0123456789"))
			return param_fail_type(&p->in, seed, "", "seed", "an integer");
		s->seed = json_raw(seed);
	}
	return body_stop(&p->in, p->root);
}

static int parse_metadata(struct responses_parser *p)
{
	const struct json *metadata, *v;
	int rc = param_container(&p->in, p->root, "", "metadata", JSON_OBJECT, &metadata);

	if (rc || !metadata)
		return rc;
	if (json_count(metadata) > METADATA_PAIRS)
		return param_fail(&p->in, ERR_INVALID, "object_above_max_properties", "",
		        "metadata", "Invalid 'metadata': at most %d pairs.", METADATA_PAIRS);
	for (v = json_first(metadata); v; v = json_next(v)) {
		struct param_shown key = param_show(json_key(v));
		struct str ignored;

		if (json_key(v).n > (size_t)METADATA_KEY * 4 ||
		        utf8_count(json_key(v).p, json_key(v).n) > METADATA_KEY)
			return param_fail(&p->in, ERR_INVALID, "string_above_max_length",
			        "metadata", key.text,
			        "Invalid 'metadata': a key has at most %d characters.",
			        METADATA_KEY);
		if (!json_is(v, JSON_STRING))
			return param_fail_type(&p->in, v, "metadata", key.text, "a string");
		ignored = json_str(v);
		if (ignored.n > (size_t)METADATA_VALUE &&
		        utf8_count(ignored.p, ignored.n) > METADATA_VALUE)
			return param_fail(&p->in, ERR_INVALID, "string_above_max_length",
			        "metadata", key.text,
			        "Invalid 'metadata.%s': a value has at most %d characters.",
			        key.text, METADATA_VALUE);
	}
	p->conversation->settings.metadata = json_raw(metadata);
	return 0;
}

static int parse_labels(struct responses_parser *p)
{
	static const char *const truncations[] = {"auto", "disabled", NULL};
	struct settings *s = &p->conversation->settings;
	struct str ignored;
	int rc;

	rc = param_str(&p->in, p->root, "", "user", 512, &s->user);
	if (!rc)
		rc = param_str(
		        &p->in, p->root, "", "safety_identifier", 128, &s->safety_identifier);
	if (!rc)
		rc = param_str(&p->in, p->root, "", "prompt_cache_key", 1024, &s->prompt_cache_key);
	if (!rc)
		rc = param_str(&p->in, p->root, "", "prompt_cache_retention", 64, &ignored);
	if (!rc)
		rc = param_str(&p->in, p->root, "", "service_tier", 64, &s->service_tier);
	if (!rc)
		rc = param_choice(&p->in, p->root, "", "truncation", truncations, &ignored);
	return rc ? rc : parse_metadata(p);
}

int responses_echo_object(struct responses_parser *p, const struct json *object,
        const char *const *defaults, struct echo_object *ret)
{
	bool empty = json_count(object) == 0, ok = true;
	struct buf tail = BUF_INIT(512);
	struct str raw = STR("{}");

	if (object && one_line(p, json_raw(object), &raw))
		return -ERR_NOMEM;

	for (; *defaults; defaults += 2) {
		if (json_get(object, defaults[0]))
			continue;
		buf_printf(&tail, "%s\"%s\":%s", empty ? "" : ",", defaults[0], defaults[1]);
		empty = false;
	}
	buf_putc(&tail, '}');
	ret->head = (struct str){raw.p, raw.n - 1};
	ret->tail = conversation_copy(p->conversation, (struct str){tail.data, tail.len}, &ok);
	if (buf_error(&tail))
		ok = false;
	buf_free(&tail);
	return ok ? 0 : param_fail_memory(&p->in);
}

static int parse_format(struct responses_parser *p, const struct json *format)
{
	static const char *const types[] = {"text", "json_object", "json_schema", NULL};
	static const char *const nothing[] = {NULL};
	/* Open Responses demands a description, and OpenRouter's SDK cannot read a null one. */
	static const char *const demanded[] = {
	        "description", "\"\"", "schema", "null", "strict", "false", NULL};
	static const char *const text[] = {"type", "\"text\"", NULL};
	const struct json *schema;
	struct str type = {NULL, 0}, ignored;
	int rc = 0, strict;

	if (!format)
		return responses_echo_object(p, NULL, text, &p->echo->format);
	rc = param_choice(&p->in, format, "text.format", "type", types, &type);
	if (!rc && !type.p)
		rc = param_fail_missing(&p->in, "text.format", "type");
	if (rc)
		return rc;
	if (!str_is(type, "text"))
		p->conversation->settings.text_format = json_raw(format);
	if (!str_is(type, "json_schema"))
		return responses_echo_object(p, format, nothing, &p->echo->format);
	rc = param_need_str(&p->in, format, "text.format", "name", &ignored);
	if (!rc)
		rc = param_need_container(
		        &p->in, format, "text.format", "schema", JSON_OBJECT, &schema);
	if (!rc)
		rc = param_str(&p->in, format, "text.format", "description", 0, &ignored);
	if (!rc)
		rc = param_bool(&p->in, format, "text.format", "strict", &strict);
	return rc ? rc : responses_echo_object(p, format, demanded, &p->echo->format);
}

static int parse_text(struct responses_parser *p)
{
	static const char *const levels[] = {"low", "medium", "high", NULL};
	const struct json *text, *format;
	int rc = param_container(&p->in, p->root, "", "text", JSON_OBJECT, &text);

	if (!rc)
		rc = param_choice(&p->in, text, "text", "verbosity", levels,
		        &p->conversation->settings.verbosity);
	if (!rc)
		rc = param_container(&p->in, text, "text", "format", JSON_OBJECT, &format);
	if (rc)
		return rc;
	return parse_format(p, format);
}

static int parse_reasoning(struct responses_parser *p)
{
	static const char *const efforts[] = {
	        "none", "minimal", "low", "medium", "high", "xhigh", "max", NULL};
	static const char *const summaries[] = {"auto", "concise", "detailed", NULL};
	static const char *const demanded[] = {"effort", "null", "summary", "null", NULL};
	struct settings *s = &p->conversation->settings;
	const struct json *reasoning;
	struct str old_name;
	int rc = param_container(&p->in, p->root, "", "reasoning", JSON_OBJECT, &reasoning);

	if (!rc)
		rc = param_choice(
		        &p->in, reasoning, "reasoning", "effort", efforts, &s->reasoning_effort);
	if (!rc)
		rc = param_choice(&p->in, reasoning, "reasoning", "summary", summaries,
		        &s->reasoning_summary);
	if (!rc)
		rc = param_choice(
		        &p->in, reasoning, "reasoning", "generate_summary", summaries, &old_name);
	if (rc)
		return rc;
	if (!s->reasoning_summary.p)
		s->reasoning_summary = old_name;
	return responses_echo_object(p, reasoning, demanded, &p->echo->reasoning);
}

/* What nothing here acts on, but where a wrong type is surely a mistake. */
static int parse_stream(struct responses_parser *p, bool *ret_stream)
{
	const struct json *list, *v;
	char path[PARAM_PATH];
	size_t n = 0;
	int stream, rc;

	rc = param_bool(&p->in, p->root, "", "stream", &stream);
	if (!rc)
		rc = param_container(&p->in, p->root, "", "stream_options", JSON_OBJECT, &v);
	if (!rc)
		rc = param_container(&p->in, p->root, "", "include", JSON_ARRAY, &list);
	if (rc)
		return rc;
	for (v = json_first(list); v; v = json_next(v), n++) {
		param_index(path, "include", n);
		if (!json_is(v, JSON_STRING))
			return param_fail_type(&p->in, v, path, NULL, "a string");
	}
	*ret_stream = stream == 1;
	return 0;
}

static int refuse_only_native(struct responses_parser *p, const struct error *why)
{
	if (p->in.err)
		*p->in.err = *why;
	return -(int)why->code;
}

/*
 * May the body go as it is to a provider of this dialect? Only with `store` false in it, since what
 * the provider keeps is not for a client to get back from here; and not with what brig added to it
 * or gave out itself.
 */
static bool may_relay(const struct responses_parser *p, const struct api_request *in)
{
	return (p->store == 0 || p->compact) && !in->has_history && in->n_history == 0 &&
	       !p->ours && !relay_holds_sealed(p->in.body);
}

static int choose_container(struct responses_parser *p, const struct api_request *in,
        struct str request_seed, struct turn_request *r)
{
	const struct shell_settings *shell = p->shell ? p->shell->settings : NULL;
	struct api_container_hints hints = {
	        .replayed = p->replayed_container,
	        .request_seed = request_seed,
	};
	struct shell_settings *settings = p->shell ? p->shell->settings : NULL;
	int rc = param_str(&p->in, p->root, "", "session_id", 256, &hints.session[0]);

	if (rc || !shell)
		return rc;
	hints.session[1] = in->session_header;
	api_shell_settle(settings, &hints);
	if (shell->only_native && !settings->may_be_native)
		return refuse_only_native(p, shell->only_native);
	hints.session[2] = p->conversation->settings.prompt_cache_key;
	return body_container(&p->in, &hints, shell, r);
}

/* What an answer would be like does not matter to a compaction. */
static int parse_compact_fields(struct responses_parser *p)
{
	static int (*const steps[])(struct responses_parser *) = {check_names, check_state,
	        parse_models, parse_labels, responses_items_parse, echo_fields};
	static const char *const refused[] = {"stream", "background"};
	int rc = 0, on;

	p->max_tool_calls = 1;
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps) && !rc; i++)
		rc = steps[i](p);
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused) && !rc; i++) {
		rc = param_bool(&p->in, p->root, "", refused[i], &on);
		if (!rc && on == 1)
			rc = param_fail(&p->in, ERR_UNSUPPORTED, "unsupported_parameter", "",
			        refused[i], "A compaction is answered whole: leave '%s' out.",
			        refused[i]);
	}
	return rc;
}

static int parse_fields(struct responses_parser *p, bool *ret_stream)
{
	static int (*const steps[])(struct responses_parser *) = {check_names, check_state,
	        parse_models, parse_sampling, parse_seed_and_stop, parse_labels, parse_text,
	        parse_reasoning, responses_tools_parse, responses_items_parse, echo_fields,
	        keep_extra};
	int rc = 0;

	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps) && !rc; i++)
		rc = steps[i](p);
	return rc ? rc : parse_stream(p, ret_stream);
}

/* Nobody waits for such an answer, so that it must be kept to be read. */
static int check_background(struct responses_parser *p, struct turn_request *r)
{
	r->background = p->background == 1;
	if (r->background && !r->store)
		return param_fail(&p->in, ERR_INVALID, "unsupported_parameter", "", "background",
		        "A background response has to be stored: leave 'store' out, on a server "
		        "that stores content.");
	return 0;
}

static int parse_tree(struct responses_parser *p, const struct api_request *in,
        struct str request_seed, struct turn_request *r)
{
	int rc;

	p->echo = arena_alloc(p->conversation->arena, sizeof(*p->echo));
	if (!p->echo)
		return param_fail_memory(&p->in);
	p->n_history = in->n_history;
	rc = check_previous(p, in);
	if (!rc)
		rc = p->compact ? parse_compact_fields(p) : parse_fields(p, &r->stream);
	if (rc)
		return rc;
	r->store = in->may_store && p->store != 0 && !p->compact;
	rc = p->compact ? 0 : check_background(p, r);
	if (rc)
		return rc;
	r->options = body_options(p->config, r->stream);
	r->options.max_tool_calls = p->max_tool_calls;
	rc = choose_container(p, in, request_seed, r);
	if (rc)
		return rc;
	r->shell = p->shell;
	r->echo = p->echo;
	r->only_here = p->only_here ? p->only_here
	               : p->shell ? ((const struct shell_settings *)p->shell->settings)->only_native
	                          : NULL;
	if (may_relay(p, in))
		r->body = p->in.body;
	return 0;
}

static int parse(struct api_request *in, bool compact, struct str request_seed,
        struct turn_request *ret, struct error *err)
{
	struct turn_request r = {.api = &api_responses, .under_v1 = in->under_v1, .seal = in->seal};
	struct responses_parser p = {.config = in->config, .compact = compact, .seal = in->seal};
	_cleanup_json_ struct json_doc *doc = NULL;
	int rc = body_read(in, DIALECT_OPENAI_RESPONSES, &r, err, &p.in, &doc);

	p.conversation = r.conversation;
	if (!rc) {
		p.root = json_root(doc);
		rc = parse_tree(&p, in, request_seed, &r);
	}
	free(p.input_of);
	if (rc) {
		turn_request_free(&r);
		return rc;
	}
	*ret = r;
	return 0;
}

int responses_parse(struct api_request *in, struct str request_seed, struct turn_request *ret,
        struct error *err)
{
	return parse(in, false, request_seed, ret, err);
}

int responses_parse_compact(struct api_request *in, struct str request_seed,
        struct turn_request *ret, struct error *err)
{
	return parse(in, true, request_seed, ret, err);
}
