#include "gateway/stored_guardrail.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum {
	MAX_NAME = 200,
	MAX_DESCRIPTION = 1000,
	MAX_MODEL = 256,
	MAX_PROVIDER = 64,
	MAX_NAMES = 1000,
	MAX_PATTERN =
	        4 << 20, /* what is too long for a pattern is told as one that cannot be used */
};

/* ---- values ---- */

static int wrong(struct error *err, const char *param, const char *what)
{
	return error_param(err, ERR_INVALID, param, "%s %s.", param, what);
}

static bool is_text(const struct json *v, size_t least, size_t most)
{
	struct str s = json_str(v);

	return json_is(v, JSON_STRING) && s.n >= least && s.n <= most && !memchr(s.p, 0, s.n) &&
	       utf8_valid(s.p, s.n);
}

/* A text in place of *to; null: none. */
static int read_text(const struct json *v, const char *param, size_t least, size_t most, char **to,
        struct error *err)
{
	char *text = NULL;

	if (!json_absent(v)) {
		if (!is_text(v, least, most))
			return error_param(err, ERR_INVALID, param,
			        "%s must be text of %zu to %zu bytes.", param, least, most);
		text = mem_strndup(json_str(v).p, json_str(v).n);
	}
	free(*to);
	*to = text;
	return 0;
}

static int read_bool(const struct json *v, const char *param, bool *to, struct error *err)
{
	if (!json_absent(v) && !json_is_bool(v))
		return wrong(err, param, "must be true or false");
	*to = json_bool(v);
	return 0;
}

/* ---- lists of names ---- */

struct names {
	const char *key;
	size_t list, n; /* where, in struct config_guardrail */
	size_t most;    /* bytes of one */
};
#define NAMES(name, most)                                                                          \
	{                                                                                          \
#name, offsetof(struct config_guardrail, name),                                    \
		        offsetof(struct config_guardrail, n_##name), most                          \
	}
static const struct names name_lists[] = {
        NAMES(allowed_models, MAX_MODEL),
        NAMES(ignored_models, MAX_MODEL),
        NAMES(allowed_providers, MAX_PROVIDER),
        NAMES(ignored_providers, MAX_PROVIDER),
};
#define N_NAME_LISTS (sizeof(name_lists) / sizeof(*name_lists))

static char ***list_at(const struct config_guardrail *g, const struct names *of)
{
	return (char ***)((uintptr_t)g + of->list);
}

static size_t *count_at(const struct config_guardrail *g, const struct names *of)
{
	return (size_t *)((uintptr_t)g + of->n);
}

static void free_names(char **list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(list[i]);
	free(list);
}

static int read_names(
        struct config_guardrail *g, const struct names *of, const struct json *v, struct error *err)
{
	char **list = NULL, param[64];
	size_t n = 0;

	if (!json_absent(v) && (!json_is(v, JSON_ARRAY) || json_count(v) > MAX_NAMES))
		return wrong(err, of->key, "must be an array of at most 1000 names");
	list = mem_array(json_count(v) + 1, sizeof(*list));
	for (const struct json *e = json_first(v); e != NULL; e = json_next(e)) {
		if (!is_text(e, 1, of->most)) {
			free_names(list, n);
			str_format(param, sizeof(param), "%s[%zu]", of->key, n);
			return error_param(err, ERR_INVALID, param,
			        "%s must be text of 1 to %zu bytes.", param, of->most);
		}
		list[n++] = mem_strndup(json_str(e).p, json_str(e).n);
	}
	free_names(*list_at(g, of), *count_at(g, of));
	*list_at(g, of) = list;
	*count_at(g, of) = n;
	return 0;
}

/* ---- rules ---- */

static void free_rule(struct config_guard_rule *r)
{
	free(r->builtin);
	free(r->pattern);
	free(r->label);
	free(r->placeholder);
}

/* The members of a rule that are one of few words. */
static int read_word(struct config_guard_rule *r, const struct json *v, struct str key,
        const char *param, struct error *err)
{
	struct str word = json_str(v);

	if (str_is(key, "action")) {
		if (!json_is(v, JSON_STRING) || !guard_action_of(word, &r->action))
			return wrong(err, param, "must be block, redact or flag");
		return 0;
	}
	r->user_only = str_is(word, "user_only");
	if (!json_absent(v) && !r->user_only && !str_is(word, "all_messages"))
		return wrong(err, param, "must be all_messages or user_only");
	return 0;
}

static int read_slug(
        struct config_guard_rule *r, const struct json *v, const char *param, struct error *err)
{
	int e = read_text(v, param, 1, MAX_PROVIDER, &r->builtin, err);

	if (e == 0 && r->builtin != NULL && !guard_builtin_known(str_of(r->builtin)))
		e = error_param(
		        err, ERR_INVALID, param, "There is no built-in filter '%s'.", r->builtin);
	return e;
}

static int unknown(struct error *err, const char *param)
{
	error_param(err, ERR_INVALID, param, "Unknown field: %s.", param);
	if (err != NULL)
		str_copy(err->type, sizeof(err->type), STR("unknown_parameter"));
	return -ERR_INVALID;
}

static int read_rule_member(struct config_guard_rule *r, bool builtin, const struct json *v,
        const char *param, struct error *err)
{
	struct str key = json_key(v);

	if (builtin && str_is(key, "slug"))
		return read_slug(r, v, param, err);
	if (!builtin && str_is(key, "pattern"))
		return read_text(v, param, 1, MAX_PATTERN, &r->pattern, err);
	if (str_is(key, "action") || str_is(key, "scan_scope"))
		return read_word(r, v, key, param, err);
	if (!builtin && str_is(key, "label"))
		return read_text(v, param, 1, GUARD_LABEL_MAX, &r->label, err);
	if (str_is(key, "placeholder"))
		return read_text(v, param, 1, GUARD_LABEL_MAX, &r->placeholder, err);
	if (str_is(key, "scan_tool_output"))
		return read_bool(v, param, &r->scan_tool_output, err);
	return unknown(err, param);
}

static int read_rule(struct config_guard_rule *r, bool builtin, const struct json *v,
        const char *path, struct error *err)
{
	const char *what = builtin ? "slug" : "pattern";
	char param[120];
	int e = 0;

	if (!json_is(v, JSON_OBJECT))
		return wrong(err, path, "must be an object");
	for (const struct json *m = json_first(v); m != NULL && e == 0; m = json_next(m)) {
		str_format(param, sizeof(param), "%s.%.*s", path,
		        json_key(m).n < 40 ? (int)json_key(m).n : 40, json_key(m).p);
		e = read_rule_member(r, builtin, m, param, err);
	}
	if (e < 0)
		return e;
	if (r->action == GUARD_PASS)
		what = "action";
	else if (builtin ? r->builtin != NULL : r->pattern != NULL)
		return 0;
	str_format(param, sizeof(param), "%s.%s", path, what);
	return wrong(err, param, "is missing");
}

/* One of the two lists, in place of the rules of its kind; the other kind's stay. */
static int read_rules(
        struct config_guardrail *g, bool builtin, const struct json *v, struct error *err)
{
	const char *key = builtin ? "content_filter_builtins" : "content_filters";
	struct config_guard_rule *rules;
	char path[64];
	size_t n = 0, kept = 0;
	int e = 0;

	if (!json_absent(v) && !json_is(v, JSON_ARRAY))
		return wrong(err, key, "must be an array");
	for (size_t i = 0; i < g->n_rules; i++)
		kept += (g->rules[i].builtin != NULL) != builtin;
	if (json_count(v) > GUARD_RULES_MAX - kept)
		return error_param(err, ERR_INVALID, key, "A guardrail has at most %d rules.",
		        GUARD_RULES_MAX);
	rules = mem_array(GUARD_RULES_MAX, sizeof(*rules));
	for (const struct json *r = json_first(v); r != NULL && e == 0; r = json_next(r)) {
		str_format(path, sizeof(path), "%s[%zu]", key, n);
		e = read_rule(&rules[n++], builtin, r, path, err);
	}
	for (size_t i = 0; i < n && e < 0; i++)
		free_rule(&rules[i]);
	if (e < 0) {
		free(rules);
		return e;
	}
	for (size_t i = 0; i < g->n_rules; i++) {
		if ((g->rules[i].builtin != NULL) != builtin)
			rules[n++] = g->rules[i];
		else
			free_rule(&g->rules[i]);
	}
	free(g->rules);
	g->rules = rules;
	g->n_rules = n;
	return 0;
}

/* ---- the object ---- */

/* OpenRouter's that brig has nothing for. */
static bool is_not_offered(struct str key)
{
	static const char *const names[] = {
	        "limit_usd", "reset_interval", "include_byok_in_budgets", "allowed_data_regions"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (str_is(key, names[i]))
			return true;
	return str_starts(key, "enforce_zdr") || str_starts(key, "enable_");
}

static int read_not_offered(const struct json *v, const char *param, struct error *err)
{
	if (json_absent(v) || json_is(v, JSON_FALSE) ||
	        (json_is(v, JSON_ARRAY) && json_count(v) == 0))
		return 0;
	return error_param(err, ERR_UNSUPPORTED, param,
	        "%s cannot be enforced by this server, and is not accepted. Dollars are limited on "
	        "keys.",
	        param);
}

static int read_member(struct stored_guardrail *s, const struct json *v, struct error *err)
{
	struct str key = json_key(v);
	char param[65];

	str_copy(param, sizeof(param), key);
	if (str_is(key, "name"))
		return json_absent(v) ? wrong(err, "name", "must be text")
		                      : read_text(v, "name", 1, MAX_NAME, &s->g.name, err);
	if (str_is(key, "description"))
		return read_text(v, "description", 0, MAX_DESCRIPTION, &s->description, err);
	if (str_is(key, "workspace_default"))
		return read_bool(v, "workspace_default", &s->workspace_default, err);
	if (str_is(key, "content_filter_builtins"))
		return read_rules(&s->g, true, v, err);
	if (str_is(key, "content_filters"))
		return read_rules(&s->g, false, v, err);
	for (size_t i = 0; i < N_NAME_LISTS; i++)
		if (str_is(key, name_lists[i].key))
			return read_names(&s->g, &name_lists[i], v, err);
	if (str_is(key, "workspace_id"))
		return 0; /* the caller's: it is no part of what is stored */
	return is_not_offered(key) ? read_not_offered(v, param, err) : unknown(err, param);
}

int stored_guardrail_read(struct stored_guardrail *s, const struct json *object, struct error *err)
{
	int e = 0;

	if (!json_is(object, JSON_OBJECT))
		return error_set(err, ERR_INVALID, "A guardrail is a JSON object.");
	for (const struct json *v = json_first(object); v != NULL && e == 0; v = json_next(v))
		e = read_member(s, v, err);
	if (e == 0 && s->g.name == NULL)
		e = wrong(err, "name", "is missing");
	return e;
}

int stored_guardrail_check(
        const struct stored_guardrail *s, struct str *ret_pattern, struct error *err)
{
	size_t at = 0;

	for (size_t i = 0; i < s->g.n_rules; i++) {
		struct guard_rule rule = config_guard_rule(&s->g.rules[i]);
		struct guard *guard = NULL;

		if (s->g.rules[i].pattern == NULL)
			continue; /* built-ins compile always */
		if (guard_new(&rule, 1, NULL, 0, &guard, err) < 0) {
			*ret_pattern = rule.pattern;
			if (err != NULL)
				str_format(err->param, sizeof(err->param),
				        "content_filters[%zu].pattern", at);
			return -ERR_INVALID;
		}
		guard_free(guard);
		at++;
	}
	return 0;
}

static void write_rule(struct json_writer *w, const struct config_guard_rule *r)
{
	jw_object(w);
	if (r->builtin != NULL)
		jw_kcstr(w, "slug", r->builtin);
	else
		jw_kcstr(w, "pattern", r->pattern);
	jw_kcstr(w, "action", guard_action_name(r->action));
	if (r->builtin == NULL)
		jw_kcstr(w, "label", r->label);
	jw_kcstr(w, "scan_scope", r->user_only ? "user_only" : "all_messages");
	jw_kbool(w, "scan_tool_output", r->scan_tool_output);
	jw_kcstr(w, "placeholder", r->placeholder);
	jw_end(w);
}

static void write_rules(struct json_writer *w, const struct config_guardrail *g, bool builtin)
{
	jw_key(w, builtin ? "content_filter_builtins" : "content_filters");
	jw_array(w);
	for (size_t i = 0; i < g->n_rules; i++)
		if ((g->rules[i].builtin != NULL) == builtin)
			write_rule(w, &g->rules[i]);
	jw_end(w);
}

void stored_guardrail_write(const struct stored_guardrail *s, struct json_writer *w)
{
	jw_kcstr(w, "name", s->g.name);
	jw_kcstr(w, "description", s->description);
	jw_kbool(w, "workspace_default", s->workspace_default);
	write_rules(w, &s->g, true);
	write_rules(w, &s->g, false);
	for (size_t i = 0; i < N_NAME_LISTS; i++) {
		char **list = *list_at(&s->g, &name_lists[i]);
		size_t n = *count_at(&s->g, &name_lists[i]);

		jw_key(w, name_lists[i].key);
		if (n == 0) {
			jw_null(w);
			continue;
		}
		jw_array(w);
		for (size_t k = 0; k < n; k++)
			jw_cstr(w, list[k]);
		jw_end(w);
	}
}

void stored_guardrail_clear(struct stored_guardrail *s)
{
	config_guardrail_clear(&s->g);
	free(s->description);
	*s = (struct stored_guardrail){0};
}
