/*
 * POST /messages: from the body to a turn_request.
 *
 * The tree of the body lives only while it is parsed; the body itself goes over to the
 * conversation. What the conversation has no field for is kept as it came (conversation.extra), so
 * that an Anthropic provider gets it whatever it is: this API's clients send members that were
 * invented after this was written. For other providers the members that mean something there are
 * read into settings as well.
 *
 * Errors speak as this API does: "messages.0.content.1.text: Field required".
 */
#include "api/messages.h"

#include "api/body.h"
#include "api/preferences.h"
#include "api/relay.h"
#include "api/token_estimate.h"
#include "base/mem.h"
#include "tool/tool.h"

#include <stdio.h>
#include <stdlib.h>

enum { EXTRA_MAX = 256, THINKING_LEAST = 1024 };

void messages_index(char out[PARAM_PATH], const char *path, size_t n)
{
	char number[24];

	str_format(number, sizeof(number), "%zu", n);
	param_join(out, path, number);
}

/* ---- members that the conversation has a field for, or that are brig's or OpenRouter's own ----
 */

static const char *const own_members[] = {"model", "models", "fallbacks", "messages", "system",
        "tools", "tool_choice", "max_tokens", "stream", "stop_sequences", "temperature", "top_p",
        "top_k", "session_id", "stop_server_tools_when", "max_tool_calls", "plugins", "provider",
        "route", "trace", "transforms", "usage", "user", "prompt_cache_key"};

static bool is_own(const struct messages_parser *p, struct str key)
{
	if (str_is(key, "container") && p->brings_container)
		return true;
	for (size_t i = 0; i < sizeof(own_members) / sizeof(*own_members); i++)
		if (str_is(key, own_members[i]))
			return true;
	return false;
}

static int keep_extra(struct messages_parser *p)
{
	struct conversation *c = p->conversation;
	size_t n = json_count(p->root);
	bool ok = true;

	if (n > EXTRA_MAX)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "", NULL,
		        "The body has more than %d members.", EXTRA_MAX);
	c->extra = arena_alloc(c->arena, (n + 1) * sizeof(*c->extra));
	if (!c->extra)
		return param_fail_memory(&p->in);
	for (const struct json *v = json_first(p->root); v; v = json_next(v)) {
		if (is_own(p, json_key(v)) || json_absent(v))
			continue;
		c->extra[c->n_extra].key = conversation_copy(c, json_key(v), &ok);
		c->extra[c->n_extra++].raw = json_raw(v);
	}
	return ok ? 0 : param_fail_memory(&p->in);
}

/* ---- model ---- */

static int add_model(
        struct messages_parser *p, const struct json *v, const char *path, struct str *ret)
{
	struct str name;
	int rc;

	if (!json_is(v, JSON_STRING))
		return param_fail_type(&p->in, v, path, NULL, "a string");
	rc = param_keep(&p->in, v, &name);
	if (rc)
		return rc;
	if (name.n == 0 || name.n > 256)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, NULL,
		        "a model's name has 1 to 256 characters.");
	*ret = name;
	return 0;
}

/* `models`: names; `fallbacks`: objects that hold one each. */
static int parse_list(struct messages_parser *p, const char *key)
{
	struct conversation *c = p->conversation;
	const struct json *list;
	char path[PARAM_PATH];
	struct str name;
	size_t n = 0;
	int rc = param_container(&p->in, p->root, "", key, JSON_ARRAY, &list);

	if (rc || !list)
		return rc;
	if (json_count(list) > BODY_MODELS_MAX)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "", key,
		        "at most %d models.", BODY_MODELS_MAX);
	c->models = arena_alloc(c->arena, (json_count(list) + 1) * sizeof(*c->models));
	if (!c->models)
		return param_fail_memory(&p->in);
	for (const struct json *v = json_first(list); v; v = json_next(v), n++) {
		bool object = json_is(v, JSON_OBJECT);

		messages_index(path, key, n);
		if (object && json_absent(json_get(v, "model")))
			return param_fail_missing(&p->in, path, "model");
		rc = add_model(p, object ? json_get(v, "model") : v, path, &name);
		if (rc)
			return rc;
		if (!c->model.p)
			c->model = name;
		else if (!str_eq(name, c->model))
			c->models[c->n_models++] = name;
	}
	return 0;
}

static int parse_models(struct messages_parser *p)
{
	const struct json *model = json_get(p->root, "model");
	bool both = !json_absent(json_get(p->root, "models")) &&
	            !json_absent(json_get(p->root, "fallbacks"));
	int rc = 0;

	if (both)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "", "fallbacks",
		        "give either models or fallbacks.");
	if (!json_absent(model))
		rc = add_model(p, model, "model", &p->conversation->model);
	if (!rc)
		rc = parse_list(p, "models");
	if (!rc)
		rc = parse_list(p, "fallbacks");
	if (!rc && !p->conversation->model.p)
		rc = param_fail_missing(&p->in, "", "model");
	return rc ? rc : preferences_parse(&p->in, p->root);
}

/*
 * A conversation that the server holds (a beta of Anthropic's). Its SDK's tool runner asks for one,
 * and sends all messages each time where it is told by this very code that there is none.
 */
static int check_thread(struct messages_parser *p)
{
	if (json_absent(json_get(p->root, "thread")))
		return 0;
	return param_fail(&p->in, ERR_UNSUPPORTED, "thread_unsupported_request", "", "thread",
	        "this server holds no threads of messages: leave it out, and send all messages "
	        "each time.");
}

/* ---- settings ---- */

static int parse_sampling(struct messages_parser *p)
{
	struct settings *s = &p->conversation->settings;
	const struct json *stop, *root = p->root;
	struct param_reader *in = &p->in;
	char path[PARAM_PATH];
	size_t i = 0;
	int rc;

	rc = param_whole(in, root, "", "max_tokens", 0, INT64_MAX, &s->max_output_tokens, NULL);
	if (!rc)
		rc = param_number(in, root, "", "temperature", 0, 2, &s->temperature);
	if (!rc)
		rc = param_number(in, root, "", "top_p", 0, 1, &s->top_p);
	if (!rc)
		rc = param_whole(in, root, "", "top_k", 0, INT64_MAX, &s->top_k, NULL);
	if (!rc)
		rc = param_container(in, root, "", "stop_sequences", JSON_ARRAY, &stop);
	if (rc || json_count(stop) == 0)
		return rc;
	for (const struct json *v = json_first(stop); v; v = json_next(v), i++) {
		messages_index(path, "stop_sequences", i);
		if (!json_is(v, JSON_STRING))
			return param_fail_type(in, v, path, NULL, "a string");
	}
	s->stop = json_raw(stop);
	return 0;
}

static int parse_budget(struct messages_parser *p, const struct json *thinking)
{
	struct settings *s = &p->conversation->settings;
	int64_t budget = 0, most = 0;
	int rc;

	if (json_absent(json_get(thinking, "budget_tokens")))
		return param_fail_missing(&p->in, "thinking.enabled", "budget_tokens");
	rc = param_whole(&p->in, thinking, "thinking.enabled", "budget_tokens", INT64_MIN,
	        INT64_MAX, &s->thinking_budget, &budget);
	if (rc)
		return rc;
	if (budget < THINKING_LEAST)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "thinking.enabled",
		        "budget_tokens", "Input should be greater than or equal to %d",
		        THINKING_LEAST);
	if (json_i64(json_get(p->root, "max_tokens"), &most) && budget >= most)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "", NULL,
		        "`max_tokens` must be greater than `thinking.budget_tokens`.");
	return 0;
}

/* Types that are not known here are for the provider to judge. */
static int parse_thinking(struct messages_parser *p)
{
	struct settings *s = &p->conversation->settings;
	const struct json *thinking;
	struct str type, display;
	int rc = param_container(&p->in, p->root, "", "thinking", JSON_OBJECT, &thinking);

	if (rc || !thinking)
		return rc;
	rc = param_need_str(&p->in, thinking, "thinking", "type", &type);
	if (!rc)
		rc = param_str(&p->in, thinking, "thinking", "display", 0, &display);
	if (rc)
		return rc;
	if (str_is(type, "disabled")) {
		s->thinking_budget = STR("0");
		return 0;
	}
	s->include_thoughts = !str_is(display, "omitted");
	return str_is(type, "enabled") ? parse_budget(p, thinking) : 0;
}

/* A schema for the answer, in the words of the settings. */
static int parse_format(struct messages_parser *p, const struct json *format, const char *path)
{
	struct str type, raw;
	struct buf text;
	bool ok = true;
	int rc;

	if (!format)
		return 0;
	rc = param_need_str(&p->in, format, path, "type", &type);
	if (rc || !str_is(type, "json_schema"))
		return rc;
	if (!json_is(json_get(format, "schema"), JSON_OBJECT))
		return param_fail_missing(&p->in, path, "schema");
	raw = json_raw(json_get(format, "schema"));
	buf_init(&text, raw.n + 128);
	buf_puts(&text, "{\"type\":\"json_schema\",\"name\":\"answer\",\"schema\":");
	buf_append(&text, raw.p, raw.n);
	buf_puts(&text, ",\"strict\":true}");
	p->conversation->settings.text_format =
	        conversation_copy(p->conversation, (struct str){text.data, text.len}, &ok);
	buf_free(&text);
	return ok ? 0 : param_fail_memory(&p->in);
}

static int parse_output(struct messages_parser *p)
{
	const struct json *config, *format, *old;
	int rc = param_container(&p->in, p->root, "", "output_config", JSON_OBJECT, &config);

	if (!rc)
		rc = param_str(&p->in, config, "output_config", "effort", 32,
		        &p->conversation->settings.reasoning_effort);
	if (!rc)
		rc = param_container(
		        &p->in, config, "output_config", "format", JSON_OBJECT, &format);
	if (!rc)
		rc = param_container(&p->in, p->root, "", "output_format", JSON_OBJECT, &old);
	if (!rc)
		rc = parse_format(p, old, "output_format");
	return rc ? rc : parse_format(p, format, "output_config.format");
}

static int parse_labels(struct messages_parser *p)
{
	struct settings *s = &p->conversation->settings;
	const struct json *metadata;
	struct str user, tier;
	int rc = param_container(&p->in, p->root, "", "metadata", JSON_OBJECT, &metadata);

	if (!rc)
		rc = param_str(&p->in, metadata, "metadata", "user_id", 512, &user);
	if (!rc)
		rc = param_str(&p->in, p->root, "", "user", 512, &s->user);
	if (!rc)
		rc = param_str(&p->in, p->root, "", "prompt_cache_key", 1024, &s->prompt_cache_key);
	if (!rc)
		rc = param_str(&p->in, p->root, "", "service_tier", 64, &tier);
	if (rc)
		return rc;
	if (!s->user.p)
		s->user = user;
	if (str_is(tier, "standard_only"))
		s->service_tier = STR("default");
	return 0;
}

/* ---- the container ---- */

/*
 * `container` is a field of Anthropic's own code execution. Where a request has a shell of brig's
 * and not that, clients hand back in it what an earlier answer named.
 */
static int read_container(struct messages_parser *p, struct str *ret)
{
	const struct json *v = json_get(p->root, "container");
	const struct json *id = json_is(v, JSON_OBJECT) ? json_get(v, "id") : v;

	*ret = (struct str){NULL, 0};
	if (!p->conversation->has_server_tool || json_absent(id))
		return 0;
	for (size_t i = 0; i < p->conversation->n_tools; i++)
		if (str_starts(p->conversation->tools[i].type, "code_execution"))
			return 0;
	if (!json_is(id, JSON_STRING) || !api_container_id_valid(json_str(id)))
		return param_fail(&p->in, ERR_INVALID, "invalid_value", "", "container",
		        "expected the id of a container: 1 to 40 letters, digits, \"_\" or \"-\".");
	p->brings_container = true;
	return param_keep(&p->in, id, ret);
}

static int choose_container(struct messages_parser *p, const struct api_request *in,
        struct str request_seed, struct turn_request *r)
{
	const struct shell_settings *shell = r->shell ? r->shell->settings : NULL;
	struct api_container_hints hints = {
	        .replayed = p->replayed_container,
	        .request_seed = request_seed,
	};
	struct str brought;
	int rc = param_str(&p->in, p->root, "", "session_id", 256, &hints.session[0]);

	if (!rc)
		rc = read_container(p, &brought);
	if (rc || !r->shell)
		return rc;
	hints.session[1] = in->session_header;
	hints.session[2] = p->conversation->settings.prompt_cache_key;
	hints.reference = brought;
	/* A session of ours beside it works in the same container. */
	if (p->shell && !p->bash)
		api_shell_settle(p->shell->settings, &hints);
	return body_container(&p->in, &hints, shell, r);
}

/* ---- all of it ---- */

static int parse_tree(struct messages_parser *p, const struct api_request *in,
        struct str request_seed, struct turn_request *r)
{
	static int (*const steps[])(struct messages_parser *) = {check_thread, parse_models,
	        parse_sampling, parse_thinking, parse_output, parse_labels, messages_tools_parse,
	        messages_items_parse};
	int rc = 0, stream;

	r->echo = arena_alloc(p->conversation->arena, sizeof(*r->echo));
	if (!r->echo)
		return param_fail_memory(&p->in);
	r->echo->keep_days = p->config->container.keep_days;
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps) && !rc; i++)
		rc = steps[i](p);
	if (!rc)
		rc = param_bool(&p->in, p->root, "", "stream", &stream);
	if (rc)
		return rc;
	r->stream = stream == 1;
	r->options = body_options(p->config, r->stream);
	r->options.max_tool_calls = p->max_tool_calls;
	r->options.stop = p->stop;
	r->options.n_stop = p->n_stop;
	r->options.compact_arguments = true;
	r->shell = p->shell ? p->shell : p->bash;
	rc = choose_container(p, in, request_seed, r);
	r->echo->estimate = token_estimate(p->conversation);
	return rc ? rc : keep_extra(p);
}

/* The words of param.c, as this API says them: the path, a colon, and what is wrong. */
static void error_speak(struct error *err)
{
	char text[sizeof(err->text)];
	const char *what = err->text, *colon;
	size_t n = strlen(err->param);

	if (err->param[0] == '\0' || strncmp(err->text, err->param, n) == 0)
		return;
	colon = strstr(err->text, "': ");
	if (str_is(str_of(err->type), "missing_required_parameter"))
		what = "Field required";
	else if (colon && (str_starts(str_of(what), "Invalid '") ||
	                          str_starts(str_of(what), "Invalid type for '")))
		what = colon + strlen("': ");
	snprintf(text, sizeof(text), "%s: %s", err->param, what);
	str_copy(err->text, sizeof(err->text), str_of(text));
}

int messages_parse(struct api_request *in, struct str request_seed, struct turn_request *ret,
        struct error *err)
{
	struct turn_request r = {.api = &api_messages, .under_v1 = in->under_v1};
	struct messages_parser p = {.config = in->config};
	_cleanup_json_ struct json_doc *doc = NULL;
	struct error own = {0};
	bool ok = true;
	int rc = body_read(in, DIALECT_ANTHROPIC, &r, &own, &p.in, &doc);

	p.conversation = r.conversation;
	r.conversation->beta = conversation_copy(r.conversation, in->anthropic_beta, &ok);
	if (!rc && !ok)
		rc = param_fail_memory(&p.in);
	if (!rc) {
		p.root = json_root(doc);
		rc = parse_tree(&p, in, request_seed, &r);
	}
	free(p.message_of);
	if (rc) {
		error_speak(&own);
		if (err)
			*err = own;
		turn_request_free(&r);
		return rc;
	}
	r.only_here = p.only_here;
	if (!p.own_words && !relay_holds_sealed(p.in.body))
		r.body = p.in.body;
	*ret = r;
	return 0;
}
