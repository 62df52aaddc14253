/*
 * POST /chat/completions: from the body to a turn_request.
 *
 * A request of this dialect goes to providers of the same dialect as the client's own bytes, so
 * this parser must not be stricter than they are: members that it does not know are theirs to
 * judge. What it knows is read for the other dialects, and what they cannot express is kept as the
 * reason (turn_request.only_here) that is given should the request have to be translated after all.
 */
#include "api/chat.h"

#include "api/body.h"
#include "api/relay.h"

#include <stdarg.h>
#include <stdlib.h>

int chat_only_here(struct chat_parser *p, const char *path, const char *key, const char *fmt, ...)
{
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = param_only_here(&p->in, &p->only_here, "unsupported_parameter", path, key, fmt, ap);
	va_end(ap);
	return rc;
}

static int parse_models(struct chat_parser *p)
{
	return body_models(&p->in, p->root);
}

/* A number whose range is the provider's business. */
static int number(struct chat_parser *p, const struct json *o, const char *path, const char *key,
        struct str *ret)
{
	const struct json *v = json_get(o, key);

	*ret = (struct str){NULL, 0};
	if (json_absent(v))
		return 0;
	if (!json_is(v, JSON_NUMBER))
		return param_fail_type(&p->in, v, path, key, "a number");
	*ret = json_raw(v);
	return 0;
}

static int parse_sampling(struct chat_parser *p)
{
	struct settings *s = &p->conversation->settings;
	struct str max_tokens = {NULL, 0};
	const struct {
		const char *key;
		struct str *to;
	} rows[] = {
	        {"max_completion_tokens", &s->max_output_tokens},
	        {"max_tokens", &max_tokens},
	        {"temperature", &s->temperature},
	        {"top_p", &s->top_p},
	        {"top_k", &s->top_k},
	        {"presence_penalty", &s->presence_penalty},
	        {"frequency_penalty", &s->frequency_penalty},
	        {"seed", &s->seed},
	        {"top_logprobs", &s->top_logprobs},
	};
	int rc = 0;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows) && !rc; i++)
		rc = number(p, p->root, "", rows[i].key, rows[i].to);
	if (!s->max_output_tokens.p)
		s->max_output_tokens = max_tokens;
	return rc ? rc
	          : param_bool(&p->in, p->root, "", "parallel_tool_calls", &s->parallel_tool_calls);
}

static int parse_stop(struct chat_parser *p)
{
	return body_stop(&p->in, p->root);
}

static int parse_labels(struct chat_parser *p)
{
	struct settings *s = &p->conversation->settings;
	const struct json *metadata;
	int rc;

	rc = param_str(&p->in, p->root, "", "user", 512, &s->user);
	if (!rc)
		rc = param_str(
		        &p->in, p->root, "", "safety_identifier", 128, &s->safety_identifier);
	if (!rc)
		rc = param_str(&p->in, p->root, "", "prompt_cache_key", 1024, &s->prompt_cache_key);
	if (!rc)
		rc = param_str(&p->in, p->root, "", "service_tier", 64, &s->service_tier);
	if (!rc)
		rc = param_str(&p->in, p->root, "", "verbosity", 64, &s->verbosity);
	if (!rc)
		rc = param_container(&p->in, p->root, "", "metadata", JSON_OBJECT, &metadata);
	if (!rc && metadata)
		s->metadata = json_raw(metadata);
	return rc;
}

/* response_format nests the schema; the conversation has it flat, as the Responses API does. */
static int parse_format(struct chat_parser *p)
{
	static const char *const members[] = {"name", "description", "schema", "strict"};
	struct settings *s = &p->conversation->settings;
	struct buf flat = BUF_INIT(p->in.body.n + 256);
	const struct json *format, *schema;
	struct json_writer w;
	struct str type;
	bool ok = true;
	int rc = param_container(&p->in, p->root, "", "response_format", JSON_OBJECT, &format);

	if (rc || !format)
		return rc;
	rc = param_need_str(&p->in, format, "response_format", "type", &type);
	if (rc || str_is(type, "text"))
		return rc;
	if (!str_is(type, "json_schema")) {
		s->text_format = json_raw(format);
		return 0;
	}
	rc = param_need_container(
	        &p->in, format, "response_format", "json_schema", JSON_OBJECT, &schema);
	if (rc)
		return rc;
	jw_init(&w, &flat);
	jw_object(&w);
	jw_kcstr(&w, "type", "json_schema");
	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
		const struct json *v = json_get(schema, members[i]);

		if (!json_absent(v))
			jw_kraw(&w, members[i], json_raw(v));
	}
	jw_end(&w);
	s->text_format = conversation_copy(p->conversation, (struct str){flat.data, flat.len}, &ok);
	ok = ok && buf_error(&flat) == 0;
	buf_free(&flat);
	return ok ? 0 : param_fail_memory(&p->in);
}

/* OpenAI has reasoning_effort, OpenRouter an object. */
static int parse_reasoning(struct chat_parser *p)
{
	struct settings *s = &p->conversation->settings;
	const struct json *reasoning;
	struct str effort;
	int rc, enabled, exclude;

	rc = param_str(&p->in, p->root, "", "reasoning_effort", 64, &s->reasoning_effort);
	if (!rc)
		rc = param_container(&p->in, p->root, "", "reasoning", JSON_OBJECT, &reasoning);
	if (!rc)
		rc = param_str(&p->in, reasoning, "reasoning", "effort", 64, &effort);
	if (!rc)
		rc = param_str(
		        &p->in, reasoning, "reasoning", "summary", 64, &s->reasoning_summary);
	if (!rc)
		rc = number(p, reasoning, "reasoning", "max_tokens", &s->thinking_budget);
	if (!rc)
		rc = param_bool(&p->in, reasoning, "reasoning", "enabled", &enabled);
	if (!rc)
		rc = param_bool(&p->in, reasoning, "reasoning", "exclude", &exclude);
	if (rc)
		return rc;
	if (effort.p)
		s->reasoning_effort = effort;
	else if (enabled == 0 && !s->reasoning_effort.p)
		s->reasoning_effort = STR("none");
	else if (enabled == 1 && !s->reasoning_effort.p && !s->thinking_budget.p)
		s->reasoning_effort = STR("medium");
	p->echo->hide_reasoning = exclude == 1;
	return 0;
}

/* What one answer in text cannot hold, or nobody else has a word for. */
static int check_only_here(struct chat_parser *p)
{
	static const char *const names[] = {"audio", "web_search_options", "logit_bias"};
	const struct json *modalities, *v;
	struct str choices;
	int64_t n = 1;
	int rc, logprobs;

	rc = number(p, p->root, "", "n", &choices);
	if (!rc && choices.p && json_i64(json_get(p->root, "n"), &n) && n != 1)
		rc = chat_only_here(p, "", "n",
		        "Only providers that speak chat completions give more than one choice: "
		        "leave 'n' out or send 1.");
	if (!rc)
		rc = param_bool(&p->in, p->root, "", "logprobs", &logprobs);
	if (!rc && logprobs == 1)
		rc = chat_only_here(p, "", "logprobs",
		        "Only providers that speak chat completions give 'logprobs'.");
	if (!rc)
		rc = param_container(&p->in, p->root, "", "modalities", JSON_ARRAY, &modalities);
	if (rc)
		return rc;
	for (v = json_first(modalities); v && !rc; v = json_next(v))
		if (!str_is(json_str(v), "text"))
			rc = chat_only_here(p, "", "modalities",
			        "Only providers that speak chat completions answer in anything "
			        "but text.");
	for (size_t i = 0; i < sizeof(names) / sizeof(*names) && !rc; i++) {
		v = json_get(p->root, names[i]);
		if (!json_absent(v) && json_count(v) > 0)
			rc = chat_only_here(p, "", names[i],
			        "Only providers that speak chat completions take '%s'.", names[i]);
	}
	return rc;
}

static int parse_stream(struct chat_parser *p, bool *ret_stream)
{
	const struct json *options;
	int stream, usage, rc;

	rc = param_bool(&p->in, p->root, "", "stream", &stream);
	if (!rc)
		rc = param_container(&p->in, p->root, "", "stream_options", JSON_OBJECT, &options);
	if (!rc)
		rc = param_bool(&p->in, options, "stream_options", "include_usage", &usage);
	if (rc)
		return rc;
	*ret_stream = stream == 1;
	p->echo->usage_asked = usage == 1;
	return 0;
}

static int parse_tree(struct chat_parser *p, struct turn_request *r)
{
	static int (*const steps[])(struct chat_parser *) = {parse_models, parse_sampling,
	        parse_stop, parse_labels, parse_format, parse_reasoning, check_only_here,
	        chat_tools_parse, chat_messages_parse};
	int rc = 0;

	p->echo = arena_alloc(p->conversation->arena, sizeof(*p->echo));
	if (!p->echo)
		return param_fail_memory(&p->in);
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps) && !rc; i++)
		rc = steps[i](p);
	if (!rc)
		rc = parse_stream(p, &r->stream);
	if (rc)
		return rc;
	r->options = body_options(p->config, r->stream);
	r->options.max_tool_calls = 1; /* there are none */
	r->echo = p->echo;
	r->only_here = p->only_here;
	return 0;
}

int chat_parse(struct api_request *in, struct str request_seed, struct turn_request *ret,
        struct error *err)
{
	struct turn_request r = {.api = &api_chat, .under_v1 = in->under_v1};
	struct chat_parser p = {.config = in->config};
	_cleanup_json_ struct json_doc *doc = NULL;
	int rc = body_read(in, DIALECT_OPENAI_CHAT, &r, err, &p.in, &doc);

	if (!relay_holds_sealed(p.in.body))
		r.body = p.in.body;
	p.conversation = r.conversation;
	if (!rc) {
		p.root = json_root(doc);
		rc = parse_tree(&p, &r);
	}
	free(p.message_of);
	if (rc) {
		turn_request_free(&r);
		return rc;
	}
	*ret = r;
	return 0;
}
