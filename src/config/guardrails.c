/*
 * The list `guardrails:` (docs/guardrails.md). Each pattern is compiled once here, so that one
 * which cannot be used is told with its place, and not when the first request comes.
 */
#include "config/sections.h"

#include <stdlib.h>

enum {
	MAX_NAME = 200,
	MAX_SCOPE = 64,
	MAX_MODEL = 256,
	MAX_LIST = 1000,
	MAX_GUARDRAILS = 1000,
};

/* ---- lists of names ---- */

struct texts {
	char ***list;
	size_t *n;
	size_t max, max_bytes;
};

static int read_texts(struct loader *l, const struct yaml_node *n, struct texts to)
{
	int r = field_expect(l, n, YAML_SEQUENCE);
	size_t i = 0, mark;

	if (r < 0)
		return r;
	if (n->n > to.max)
		return loader_error(l, n, "has more than %zu entries", to.max);
	*to.list = mem_array(n->n + 1, sizeof(**to.list));
	for (const struct yaml_node *m = n->first; r == 0 && m; m = m->next, i++) {
		mark = loader_enter_index(l, i);
		r = field_read_text(l, m, to.max_bytes, &(*to.list)[i]);
		*to.n = r == 0 ? i + 1 : i;
		loader_leave(l, mark);
	}
	return r;
}

#define TEXTS(name, most, bytes)                                                                   \
	static int read_##name(struct loader *l, const struct yaml_node *n, void *target)          \
	{                                                                                          \
		struct config_guardrail *g = target;                                               \
                                                                                                   \
		return read_texts(l, n, (struct texts){&g->name, &g->n_##name, most, bytes});      \
	}

TEXTS(allow, GUARD_PHRASES_MAX, GUARD_PHRASE_MAX)
TEXTS(allowed_models, MAX_LIST, MAX_MODEL)
TEXTS(ignored_models, MAX_LIST, MAX_MODEL)
TEXTS(allowed_providers, MAX_LIST, MAX_SCOPE)
TEXTS(ignored_providers, MAX_LIST, MAX_SCOPE)

/* ---- rules ---- */

static int read_slug(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_guard_rule *r = target;
	int e = field_read_text(l, n, MAX_SCOPE, &r->builtin);

	if (e == 0 && !guard_builtin_known(str_of(r->builtin)))
		e = loader_error(l, n, "there is no built-in \"%s\"", r->builtin);
	return e;
}

static int read_pattern(struct loader *l, const struct yaml_node *n, void *target)
{
	return field_read_text(
	        l, n, GUARD_PATTERN_MAX, &((struct config_guard_rule *)target)->pattern);
}

static int read_label(struct loader *l, const struct yaml_node *n, void *target)
{
	return field_read_text(l, n, GUARD_LABEL_MAX, &((struct config_guard_rule *)target)->label);
}

static int read_placeholder(struct loader *l, const struct yaml_node *n, void *target)
{
	return field_read_text(
	        l, n, GUARD_LABEL_MAX, &((struct config_guard_rule *)target)->placeholder);
}

static int read_action(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_guard_rule *r = target;

	if (n->type == YAML_SCALAR &&
	        guard_action_of((struct str){n->text, n->text_len}, &r->action))
		return 0;
	return loader_error(l, n, "expected block, redact or flag");
}

static int read_scope(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config_guard_rule *r = target;

	r->user_only = n->type == YAML_SCALAR && strcmp(n->text, "user_only") == 0;
	if (r->user_only || (n->type == YAML_SCALAR && strcmp(n->text, "all_messages") == 0))
		return 0;
	return loader_error(l, n, "expected all_messages or user_only");
}

struct guard_rule config_guard_rule(const struct config_guard_rule *r)
{
	return (struct guard_rule){
	        .builtin = str_of(r->builtin),
	        .pattern = str_of(r->pattern),
	        .label = str_of(r->label),
	        .placeholder = str_of(r->placeholder),
	        .action = r->action,
	        .user_only = r->user_only,
	        .scan_tool_output = r->scan_tool_output,
	};
}

/* What the scanner says of one rule, at the place of its pattern. */
static int check_rule(struct loader *l, const struct yaml_node *n, const char *key,
        const struct config_guard_rule *r)
{
	struct guard_rule rule = config_guard_rule(r);
	struct guard *g = NULL;
	struct error e = {0};
	size_t mark;
	int rc = 0;

	if (!yaml_get(n, key))
		return loader_error(l, n, "%s is missing", key);
	if (!yaml_get(n, "action"))
		return loader_error(l, n, "action is missing");
	/* Built-ins compile always. */
	if (r->pattern && guard_new(&rule, 1, NULL, 0, &g, &e) < 0) {
		mark = loader_enter(l, key);
		rc = loader_error(l, yaml_get(n, key), "%s", e.text);
		loader_leave(l, mark);
	}
	guard_free(g);
	return rc;
}

#define AT(member) offsetof(struct config_guard_rule, member)
static const struct field builtin_fields[] = {
        {"slug", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_slug},
        {"action", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_action},
        {"scan_scope", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_scope},
        {"scan_tool_output", FIELD_BOOL, AT(scan_tool_output), 0, 0, NULL, NULL, NULL},
        {"placeholder", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_placeholder},
};
static const struct field filter_fields[] = {
        {"pattern", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_pattern},
        {"action", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_action},
        {"label", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_label},
        {"scan_scope", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_scope},
        {"scan_tool_output", FIELD_BOOL, AT(scan_tool_output), 0, 0, NULL, NULL, NULL},
        {"placeholder", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_placeholder},
};
#undef AT

/* Both kinds of rules are one list, in the order of the file. */
static int read_rules(struct loader *l, const struct yaml_node *n, struct config_guardrail *g,
        const struct field *fields, size_t n_fields)
{
	int r = field_expect(l, n, YAML_SEQUENCE);
	size_t i = 0, mark;

	if (r < 0)
		return r;
	if (n->n > GUARD_RULES_MAX - g->n_rules)
		return loader_error(l, n, "a guardrail has at most %d rules", GUARD_RULES_MAX);
	if (!g->rules)
		g->rules = mem_array(GUARD_RULES_MAX, sizeof(*g->rules));
	for (const struct yaml_node *m = n->first; r == 0 && m; m = m->next, i++) {
		struct config_guard_rule *rule = &g->rules[g->n_rules++];

		mark = loader_enter_index(l, i);
		r = field_expect(l, m, YAML_MAPPING);
		if (r == 0)
			r = fields_read(l, m, fields, n_fields, rule);
		if (r == 0)
			r = check_rule(l, m, fields[0].key, rule);
		loader_leave(l, mark);
	}
	return r;
}

static int read_builtins(struct loader *l, const struct yaml_node *n, void *target)
{
	return read_rules(
	        l, n, target, builtin_fields, sizeof(builtin_fields) / sizeof(*builtin_fields));
}

static int read_filters(struct loader *l, const struct yaml_node *n, void *target)
{
	return read_rules(
	        l, n, target, filter_fields, sizeof(filter_fields) / sizeof(*filter_fields));
}

/* ---- guardrails ---- */

static int read_name(struct loader *l, const struct yaml_node *n, void *target)
{
	return field_read_text(l, n, MAX_NAME, &((struct config_guardrail *)target)->name);
}

static int read_workspace(struct loader *l, const struct yaml_node *n, void *target)
{
	return field_read_text(l, n, MAX_SCOPE, &((struct config_guardrail *)target)->workspace);
}

static const struct field guardrail_fields[] = {
        {"name", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_name},
        {"workspace", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_workspace},
        {"content_filter_builtins", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_builtins},
        {"content_filters", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_filters},
        {"allow", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_allow},
        {"allowed_models", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_allowed_models},
        {"ignored_models", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_ignored_models},
        {"allowed_providers", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_allowed_providers},
        {"ignored_providers", FIELD_CUSTOM, 0, 0, 0, NULL, NULL, read_ignored_providers},
};

int section_guardrails(struct loader *l, const struct yaml_node *n, void *target)
{
	struct config *c = target;
	size_t i = 0, rules = 0, phrases = 0, mark;
	int r = field_expect(l, n, YAML_SEQUENCE);

	if (r < 0)
		return r;
	if (n->n > MAX_GUARDRAILS)
		return loader_error(l, n, "has more than %d entries", MAX_GUARDRAILS);
	c->guardrails = mem_array(n->n + 1, sizeof(*c->guardrails));
	for (const struct yaml_node *m = n->first; r == 0 && m; m = m->next, i++) {
		struct config_guardrail *g = &c->guardrails[i];

		c->n_guardrails = i + 1;
		mark = loader_enter_index(l, i);
		r = field_expect(l, m, YAML_MAPPING);
		if (r == 0)
			r = fields_read(l, m, guardrail_fields,
			        sizeof(guardrail_fields) / sizeof(*guardrail_fields), g);
		if (r == 0 && !g->name)
			r = loader_error(l, m, "name is missing");
		rules += g->n_rules;
		phrases += g->n_allow;
		if (r == 0 && (rules > GUARD_RULES_MAX || phrases > GUARD_PHRASES_MAX))
			r = loader_error(l, m,
			        "all guardrails together have at most %d rules and %d phrases",
			        GUARD_RULES_MAX, GUARD_PHRASES_MAX);
		loader_leave(l, mark);
	}
	return r;
}

void config_guardrail_clear(struct config_guardrail *g)
{
	for (size_t i = 0; i < g->n_rules; i++) {
		free(g->rules[i].builtin);
		free(g->rules[i].pattern);
		free(g->rules[i].label);
		free(g->rules[i].placeholder);
	}
	free(g->rules);
	free(g->name);
	free(g->workspace);
	section_free_texts(g->allow, g->n_allow);
	section_free_texts(g->allowed_models, g->n_allowed_models);
	section_free_texts(g->ignored_models, g->n_ignored_models);
	section_free_texts(g->allowed_providers, g->n_allowed_providers);
	section_free_texts(g->ignored_providers, g->n_ignored_providers);
}
