#include "api/body.h"

#include "api/preferences.h"

enum {
	/* The tree, and what the conversation may take beside the body: the turn's own items too,
	 * and images, which are copied once. */
	TREE_MAX = 128 * 1024 * 1024,
	CONVERSATION_ROOM = 192 * 1024 * 1024,
};

int body_read(struct api_request *in, enum dialect d, struct turn_request *r, struct error *err,
        struct param_reader *ret_in, struct json_doc **ret_doc)
{
	struct str body = {in->body, in->body_len};
	int rc;

	r->conversation = conversation_new(CONVERSATION_ROOM + body.n);
	r->conversation->dialect = d;
	conversation_adopt(r->conversation, steal(in->body));
	*ret_in = (struct param_reader){.conversation = r->conversation, .body = body, .err = err};
	rc = json_parse(body, TREE_MAX, ret_doc, err);
	if (rc == -ERR_INVALID)
		error_prefix(err, "The body is not valid JSON");
	if (!rc && !json_is(json_root(*ret_doc), JSON_OBJECT))
		rc = error_set(err, ERR_INVALID, "The body must be a JSON object.");
	return rc;
}

int body_model_list(struct param_reader *in, const struct json *root)
{
	struct conversation *c = in->conversation;
	const struct json *list;
	char path[PARAM_PATH];
	struct str name;
	size_t n = 0;
	int rc = param_container(in, root, "", "models", JSON_ARRAY, &list);

	if (rc)
		return rc;
	if (json_count(list) > BODY_MODELS_MAX)
		return param_fail(in, ERR_INVALID, "invalid_value", "", "models",
		        "Invalid 'models': at most %d names.", BODY_MODELS_MAX);
	c->models = arena_alloc(c->arena, (json_count(list) + 1) * sizeof(*c->models));
	if (!c->models)
		return param_fail_memory(in);
	for (const struct json *v = json_first(list); v; v = json_next(v), n++) {
		param_index(path, "models", n);
		if (!json_is(v, JSON_STRING))
			return param_fail_type(in, v, path, NULL, "a string");
		rc = param_keep(in, v, &name);
		if (rc)
			return rc;
		if (name.n == 0 || name.n > BODY_MODEL_NAME_MAX)
			return param_fail(in, ERR_INVALID, "invalid_value", path, NULL,
			        "Invalid '%s': a model's name has 1 to %d characters.", path,
			        BODY_MODEL_NAME_MAX);
		if (!c->model.p)
			c->model = name;
		else if (!str_eq(name, c->model))
			c->models[c->n_models++] = name;
	}
	return 0;
}

int body_models(struct param_reader *in, const struct json *root)
{
	struct conversation *c = in->conversation;
	int rc = param_str(in, root, "", "model", BODY_MODEL_NAME_MAX, &c->model);

	if (!rc)
		rc = body_model_list(in, root);
	if (rc)
		return rc;
	if (!c->model.p)
		return param_fail_missing(in, "", "model");
	if (c->model.n == 0)
		return param_fail(in, ERR_INVALID, "invalid_value", "", "model",
		        "Invalid 'model': it is empty.");
	return preferences_parse(in, root);
}

int body_stop(struct param_reader *in, const struct json *root)
{
	const struct json *stop = json_get(root, "stop");

	if (json_absent(stop))
		return 0;
	if (!json_is(stop, JSON_STRING) && !json_is(stop, JSON_ARRAY))
		return param_fail_type(in, stop, "", "stop", "a string or an array of strings");
	for (const struct json *v = json_first(stop); v; v = json_next(v))
		if (!json_is(v, JSON_STRING))
			return param_fail_type(in, v, "stop", NULL, "an array of strings");
	in->conversation->settings.stop = json_raw(stop);
	return 0;
}

uint32_t body_tool_calls(const struct config *config, int64_t wanted)
{
	int64_t most = BODY_TOOL_CALLS_MAX;

	if (config->limits.tool_calls < most)
		most = config->limits.tool_calls;
	return (uint32_t)(wanted < most ? wanted : most);
}

struct turn_options body_options(const struct config *config, bool stream)
{
	const struct config_limits *l = &config->limits;

	return (struct turn_options){
	        .turn_ms = stream ? l->turn_ms : l->turn_unstreamed_ms,
	        .streamed = stream,
	        .call_output_bytes = l->call_output_bytes,
	        .turn_output_bytes = l->turn_output_bytes,
	        .tool = {.timeout_ms = l->timeout_ms,
	                .max_timeout_ms = l->max_timeout_ms,
	                .output_chars = l->output_chars,
	                .max_output_chars = l->max_output_chars,
	                .commands = l->commands},
	        .price_per_second = config->container.price_per_second,
	};
}

int body_container(struct param_reader *in, struct api_container_hints *hints,
        const struct shell_settings *shell, struct turn_request *r)
{
	bool ok = true;

	if (shell && shell->environment == SHELL_CONTAINER_REFERENCE)
		hints->reference = shell->container_id;
	r->container_named = api_container_choose(hints, r->container_id);
	r->options.container_id = conversation_copy(in->conversation, str_of(r->container_id), &ok);
	return ok ? 0 : param_fail_memory(in);
}
