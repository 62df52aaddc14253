/*
 * The shell's entry in `tools`, checked (DESIGN section 9; spec: OpenRouter's entry and
 * environments).
 *
 * Nothing is accepted that would then be ignored, but for what OpenRouter itself ignores
 * (sleep_after_seconds): a caller who asks for network must not believe to have it.
 */
#include "tool/internal.h"

#include "base/mem.h"
#include "network/policy.h"

#include <stdio.h>

#define CONTAINER_ID_MAX 40
#define FOREIGN_ID_MAX   64 /* OpenAI's */
#define NATIVE_PREFIX    "cntr_"
#define ID_CHARS         "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

/* Where in the request a message points. */
struct place {
	const char *path; /* "tools[0]" */
	const char *in;   /* ".parameters.environment" */
};

static void place_write(const struct place *at, struct str key, char out[128])
{
	/* What does not fit is cut: the key may be as long as its sender likes. */
	snprintf(out, 128, "%s%s%s%.*s", at->path, at->in, key.n ? "." : "",
	        (int)(key.n < 64 ? key.n : 64), key.n ? key.p : "");
}

static int refuse(
        const struct place *at, const char *key, enum err code, struct error *err, const char *text)
{
	char param[128];

	place_write(at, str_of(key), param);
	return error_param(err, code, param, "%s: %s", param, text);
}

struct key_rule {
	const char *key;
	const char *refused; /* NULL: may be given; else why not yet */
};

static int keys_check(const struct json *object, const struct key_rule *rules, size_t n,
        const struct place *at, struct error *err)
{
	const struct json *m;
	char param[128];
	size_t i;

	for (m = json_first(object); m; m = json_next(m)) {
		for (i = 0; i < n && !str_is(json_key(m), rules[i].key); i++)
			;
		if (i < n && (!rules[i].refused || json_absent(m)))
			continue;
		if (i < n)
			return refuse(at, rules[i].key, ERR_UNSUPPORTED, err, rules[i].refused);
		place_write(at, json_key(m), param);
		return error_param(err, ERR_INVALID, param, "Unknown parameter: %s.", param);
	}
	return 0;
}

static const char no_files[] = "give it inside \"environment\".";
static const char no_keeping[] = "keeping a container running is not offered yet; leave it out.";

/* Whether the operator allows it is for the gateway to say. */
static int policy_read(struct arena *a, const struct json *v, const struct place *at,
        struct shell_settings *s, struct error *err)
{
	_cleanup_buf_ struct buf text = BUF_INIT(POLICY_TEXT_MAX);
	char path[128];
	int r;

	if (json_absent(v))
		return 0;
	place_write(at, STR("network_policy"), path);
	r = policy_check(v, path, &text, err);
	if (r < 0)
		return r;
	s->network = arena_strndup(a, buf_cstr(&text), text.len);
	s->network_path = arena_strndup(a, path, strlen(path));
	if (!s->network || !s->network_path)
		return error_set(err, ERR_NOMEM, "The request is too large.");
	return 0;
}

/*
 * What a provider's own shell may know and ours does not: no mistake of the caller's where that one
 * runs. The first one counts.
 */
static int only_native(struct arena *a, const struct place *at, const char *key,
        struct shell_settings *s, struct error *err, const char *text)
{
	struct error *e = arena_alloc(a, sizeof(*e));

	if (!e)
		return error_set(err, ERR_NOMEM, "The request is too large.");
	refuse(at, key, ERR_UNSUPPORTED, e, text);
	str_copy(e->type, sizeof(e->type), STR("unsupported_value"));
	if (!s->only_native)
		s->only_native = e;
	return 0;
}

static int needs_native(struct arena *a, const struct place *at, const char *key,
        struct shell_settings *s, struct error *err)
{
	char path[128];

	place_write(at, str_of(key), path);
	s->native_path = arena_strndup(a, path, strlen(path));
	return s->native_path ? 0 : error_set(err, ERR_NOMEM, "The request is too large.");
}

static int keep_id(struct arena *a, struct str id, struct str *ret, struct error *err)
{
	char *copy = arena_strndup(a, id.p, id.n);

	if (!copy)
		return error_set(err, ERR_NOMEM, "The request is too large.");
	*ret = (struct str){copy, id.n};
	return 0;
}

static int container_id_read(struct arena *a, const struct json *env, const struct place *at,
        struct shell_settings *s, struct error *err)
{
	const struct json *v = json_get(env, "container_id");
	struct str id = json_str(v);

	if (s->environment == SHELL_CONTAINER_AUTO) {
		if (json_absent(v))
			return 0;
		return refuse(at, "container_id", ERR_INVALID, err,
		        "goes with type \"container_reference\", not with \"container_auto\".");
	}
	if (json_absent(v))
		return refuse(at, "container_id", ERR_INVALID, err,
		        "is required for a container_reference.");
	if (s->openai && str_in_set(id, ID_CHARS) && id.n > CONTAINER_ID_MAX &&
	        id.n <= FOREIGN_ID_MAX)
		return only_native(a, at, "container_id", s, err,
		        "is no container of this server: its ids have at most 40 characters.");
	/* One that a provider's own shell gave out is for that shell. */
	if (!s->openai && s->engine != SHELL_ENGINE_OURS && str_starts(id, NATIVE_PREFIX) &&
	        str_in_set(id, ID_CHARS) && id.n > CONTAINER_ID_MAX && id.n <= FOREIGN_ID_MAX)
		return needs_native(a, at, "container_id", s, err) < 0
		               ? -ERR_NOMEM
		               : keep_id(a, id, &s->native_container, err);
	if (!json_is(v, JSON_STRING) || id.n > CONTAINER_ID_MAX || !str_in_set(id, ID_CHARS))
		return refuse(at, "container_id", ERR_INVALID, err,
		        "must be 1 to 40 letters, digits, \"_\" or \"-\".");
	return keep_id(a, id, &s->container_id, err);
}

/* Which documents they name is for the gateway to say. */
static int files_read(struct arena *a, const struct json *v, const struct place *at,
        struct shell_settings *s, struct error *err)
{
	char path[128];

	if (json_absent(v))
		return 0;
	if (!json_is(v, JSON_ARRAY) || json_count(v) > SHELL_FILES_MAX)
		return refuse(at, "file_ids", ERR_INVALID, err,
		        "must be an array of at most 20 ids of files.");
	place_write(at, STR("file_ids"), path);
	s->file_ids = arena_alloc(a, (json_count(v) + 1) * sizeof(*s->file_ids));
	s->file_ids_path = arena_strndup(a, path, strlen(path));
	if (!s->file_ids || !s->file_ids_path)
		return error_set(err, ERR_NOMEM, "The request is too large.");
	for (const struct json *m = json_first(v); m; m = json_next(m)) {
		struct str id = json_str(m);
		const char *copy = arena_strndup(a, id.p ? id.p : "", id.n);

		if (!json_is(m, JSON_STRING))
			return refuse(at, "file_ids", ERR_INVALID, err,
			        "must be an array of at most 20 ids of files.");
		if (!copy)
			return error_set(err, ERR_NOMEM, "The request is too large.");
		s->file_ids[s->n_file_ids++] = (struct str){copy, id.n};
	}
	return 0;
}

/* memory_limit and skills, which OpenAI's entry knows. */
static int openai_environment_read(struct arena *a, const struct json *v, const struct place *at,
        struct shell_settings *s, struct error *err)
{
	static const char *const limits[] = {"1g", "4g", "16g", "64g", NULL};
	const struct json *memory = json_get(v, "memory_limit"), *skills = json_get(v, "skills");
	size_t i = 0;
	int r = 0;

	while (limits[i] && !str_is(json_str(memory), limits[i]))
		i++;
	if (!json_absent(memory) && !limits[i])
		return refuse(at, "memory_limit", ERR_INVALID, err,
		        "must be \"1g\", \"4g\", \"16g\" or \"64g\".");
	if (!json_absent(skills) && !json_is(skills, JSON_ARRAY))
		return refuse(at, "skills", ERR_INVALID, err, "must be an array.");
	if (!json_absent(memory) && i > 0)
		r = only_native(a, at, "memory_limit", s, err,
		        "this server's containers have their memory from its configuration; leave "
		        "it out.");
	if (!r && json_count(skills) > 0)
		r = only_native(a, at, "skills", s, err,
		        "skills are not offered yet: upload files with file_ids instead.");
	return r;
}

static int environment_read(struct arena *a, const struct json *v, const char *path,
        struct shell_settings *s, struct error *err)
{
	static const struct key_rule keys[] = {
	        {"type", NULL},
	        {"container_id", NULL},
	        {"network_policy", NULL},
	        {"file_ids", NULL},
	        {"keep_running", no_keeping},
	};
	static const struct key_rule openai_keys[] = {
	        {"type", NULL},
	        {"container_id", NULL},
	        {"network_policy", NULL},
	        {"file_ids", NULL},
	        {"memory_limit", NULL},
	        {"skills", NULL},
	};
	const struct place here = {path, s->openai ? ".environment" : ".parameters.environment"};
	struct str type = json_str(json_get(v, "type"));
	int r;

	if (json_absent(v))
		return 0;
	if (!json_is(v, JSON_OBJECT))
		return refuse(&here, NULL, ERR_INVALID, err, "must be an object with a type.");
	if (str_is(type, "container_reference"))
		s->environment = SHELL_CONTAINER_REFERENCE;
	else if (str_is(type, "local"))
		return refuse(&here, "type", ERR_UNSUPPORTED, err,
		        "\"local\" is not offered: commands run in a container of this server.");
	else if (!str_is(type, "container_auto"))
		return refuse(&here, "type", ERR_INVALID, err,
		        "must be \"container_auto\" or \"container_reference\".");
	if (s->openai)
		r = keys_check(
		        v, openai_keys, sizeof(openai_keys) / sizeof(openai_keys[0]), &here, err);
	else
		r = keys_check(v, keys, sizeof(keys) / sizeof(keys[0]), &here, err);
	if (!r && s->openai)
		r = openai_environment_read(a, v, &here, s, err);
	if (!r)
		r = container_id_read(a, v, &here, s, err);
	if (!r)
		r = files_read(a, json_get(v, "file_ids"), &here, s, err);
	if (!r)
		r = policy_read(a, json_get(v, "network_policy"), &here, s, err);
	return r;
}

/* A provider's shell takes names, and no patterns. */
static bool shell_has_pattern(const struct shell_settings *s)
{
	return s->network && str_contains(str_of(s->network), "*");
}

/* A whole number above 0. What is above the server's maximum is lowered when a call is parsed. */
static int limit_read(const struct json *params, const char *key, const struct place *at,
        uint32_t *ret, struct error *err)
{
	const struct json *v = json_get(params, key);
	int64_t n;

	if (json_absent(v))
		return 0;
	if (!json_i64(v, &n) || n < 1)
		return refuse(at, key, ERR_INVALID, err, "must be a whole number above 0.");
	*ret = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
	return 0;
}

static int engine_read(struct arena *a, const struct json *v, const struct place *at,
        struct shell_settings *s, struct error *err)
{
	struct str word = json_str(v);

	if (json_absent(v) || str_is(word, "auto"))
		return 0;
	if (str_is(word, "openrouter")) {
		s->engine = SHELL_ENGINE_OURS;
		return 0;
	}
	if (!str_is(word, "native"))
		return refuse(at, "engine", ERR_INVALID, err,
		        "must be \"auto\", \"native\" or \"openrouter\".");
	s->engine = SHELL_ENGINE_NATIVE;
	return needs_native(a, at, "engine", s, err);
}

/*
 * What no provider's own shell can be told. Under `auto` it is a reason for our sandbox; where only
 * the provider's shell can serve the request, the two contradict each other.
 */
static int check_native(struct shell_settings *s, const struct place *at, struct error *err)
{
	const char *ours = s->timeout_ms          ? "timeout_ms"
	                   : s->max_output_length ? "max_output_length"
	                   : s->n_file_ids        ? "environment.file_ids"
	                   : s->container_id.n    ? "environment.container_id"
	                   : shell_has_pattern(s) ? "environment.network_policy"
	                                          : NULL;

	if (!ours)
		return 0;
	if (s->native_path)
		return refuse(at, ours, ERR_INVALID, err,
		        "is for this server's own sandbox: a provider's shell cannot be told of "
		        "it.");
	if (s->engine == SHELL_ENGINE_AUTO)
		s->engine = SHELL_ENGINE_OURS;
	return 0;
}

static int parameters_read(struct arena *a, const struct json *v, const char *path,
        struct shell_settings *s, struct error *err)
{
	static const struct key_rule keys[] = {
	        {"engine", NULL},
	        {"timeout_ms", NULL},
	        {"max_output_length", NULL},
	        {"environment", NULL},
	        {"sleep_after_seconds", NULL}, /* an old parameter: accepted, and ignored */
	        {"file_ids", no_files},
	        {"keep_running", no_keeping},
	};
	const struct place here = {path, ".parameters"};
	int r;

	if (json_absent(v))
		return 0;
	if (!json_is(v, JSON_OBJECT))
		return refuse(&here, NULL, ERR_INVALID, err, "must be an object.");
	r = keys_check(v, keys, sizeof(keys) / sizeof(keys[0]), &here, err);
	if (r)
		return r;
	r = engine_read(a, json_get(v, "engine"), &here, s, err);
	if (r < 0)
		return r;
	r = limit_read(v, "timeout_ms", &here, &s->timeout_ms, err);
	if (!r)
		r = limit_read(v, "max_output_length", &here, &s->max_output_length, err);
	if (!r)
		r = environment_read(a, json_get(v, "environment"), path, s, err);
	return r ? r : check_native(s, &here, err);
}

/* OpenAI's own entry: {"type": "shell", "environment": {…}}. */
static int openai_entry_read(struct arena *a, const struct json *entry, const struct place *at,
        struct shell_settings *s, struct error *err)
{
	static const struct key_rule keys[] = {
	        {"type", NULL}, {"environment", NULL},
	        {"allowed_callers", NULL}, /* "direct" is what there is */
	};
	int r = keys_check(entry, keys, sizeof(keys) / sizeof(keys[0]), at, err);

	return r ? r : environment_read(a, json_get(entry, "environment"), at->path, s, err);
}

int shell_settings_read(struct arena *a, struct str type, const struct json *entry,
        const char *path, void **ret, struct error *err)
{
	static const struct key_rule keys[] = {
	        {"type", NULL},
	        {"parameters", NULL},
	        {"cache_control", NULL}, /* of Anthropic's dialect: for its providers */
	        {"environment", "give it inside \"parameters\"."},
	};
	const struct place here = {path, ""};
	struct shell_settings *s = arena_alloc(a, sizeof(*s));
	int r;

	if (!s)
		return error_set(err, ERR_NOMEM, "The request is too large.");
	s->environment = SHELL_CONTAINER_AUTO;
	s->openai = str_is(type, "shell");
	s->own_items = s->openai || str_is(type, "brig:shell");
	if (s->openai) {
		r = openai_entry_read(a, entry, &here, s, err);
	} else {
		r = keys_check(entry, keys, sizeof(keys) / sizeof(keys[0]), &here, err);
		if (!r)
			r = parameters_read(a, json_get(entry, "parameters"), path, s, err);
	}
	if (!r)
		*ret = s;
	return r;
}
