/*
 * Filter rules. See filter.h.
 *
 * A rule compares one field of a record with its value. Text is compared as bytes, case and all;
 * numbers are exact decimals, never floating point. A model has several names (as asked for, as
 * "provider/model", as "model"): a rule holds where it holds for one of them, and a `not_…` rule
 * where its opposite does not. An absent field fails every rule but `not_…`.
 */
#include "trace/filter.h"

#include "base/mem.h"
#include "guard/regex.h"
#include "trace/content.h"

#include <stdio.h>
#include <stdlib.h>

enum field_id {
	F_MODEL,
	F_PROVIDER,
	F_SESSION,
	F_USER,
	F_KEY_NAME,
	F_FINISH,
	F_INPUT,
	F_OUTPUT,
	F_COST, /* numbers from here */
	F_TOTAL,
	F_PROMPT,
	F_COMPLETION,
	N_FIELDS,
};
static const char *const field_names[N_FIELDS] = {"model", "provider", "session_id", "user_id",
        "api_key_name", "finish_reason", "input", "output", "total_cost", "total_tokens",
        "prompt_tokens", "completion_tokens"};

enum operator_id {
	O_EQUALS,
	O_CONTAINS,
	O_REGEX,
	O_STARTS,
	O_ENDS,
	O_GT,
	O_LT,
	O_GTE,
	O_LTE,
	O_EXISTS,
};
static const struct {
	const char *name;
	enum operator_id op;
	bool negated, text, number;
} operators[] = {
        {"equals", O_EQUALS, false, true, true},
        {"not_equals", O_EQUALS, true, true, true},
        {"contains", O_CONTAINS, false, true, false},
        {"not_contains", O_CONTAINS, true, true, false},
        {"regex", O_REGEX, false, true, false},
        {"starts_with", O_STARTS, false, true, false},
        {"ends_with", O_ENDS, false, true, false},
        {"gt", O_GT, false, false, true},
        {"lt", O_LT, false, false, true},
        {"gte", O_GTE, false, false, true},
        {"lte", O_LTE, false, false, true},
        {"exists", O_EXISTS, false, true, true},
        {"not_exists", O_EXISTS, true, true, true},
};
#define N_OPERATORS (sizeof(operators) / sizeof(*operators))

struct rule {
	enum field_id field;
	enum operator_id op;
	bool negated;
	char *text; /* of a text field */
	size_t text_len;
	struct money number; /* of a number, as that many units */
	struct regex *regex;
};

struct group {
	bool any; /* logic: or */
	struct rule *rules;
	size_t n;
};

struct trace_filter {
	bool enabled;
	struct group *groups;
	size_t n;
};

/* ---- making ---- */

struct maker {
	struct error *err;
	char path[96]; /* of the rule or group being read */
};

static int fault(struct maker *m, const char *member, const char *what)
{
	char path[128];

	snprintf(path, sizeof(path), "%s%s%s", m->path, member[0] ? "." : "", member);
	return error_param(m->err, ERR_INVALID, path, "%s: %s", path, what);
}

static int read_field(struct maker *m, const struct json *v, struct rule *rule)
{
	struct str name = json_str(v);

	for (unsigned i = 0; i < N_FIELDS; i++) {
		if (json_is(v, JSON_STRING) && str_is(name, field_names[i])) {
			rule->field = (enum field_id)i;
			return 0;
		}
	}
	return fault(m, "field",
	        v ? "is none of model, provider, session_id, user_id, api_key_name, "
	            "finish_reason, input, output, total_cost, total_tokens, prompt_tokens and "
	            "completion_tokens"
	          : "is missing");
}

static int read_operator(struct maker *m, const struct json *v, struct rule *rule)
{
	bool number = rule->field >= F_COST;

	for (size_t i = 0; i < N_OPERATORS; i++) {
		if (!json_is(v, JSON_STRING) || !str_is(json_str(v), operators[i].name))
			continue;
		if (number ? !operators[i].number : !operators[i].text)
			return fault(m, "operator",
			        number ? "does not apply to a number" : "applies to numbers only");
		rule->op = operators[i].op;
		rule->negated = operators[i].negated;
		return 0;
	}
	return fault(m, "operator",
	        v ? "is none of equals, not_equals, contains, not_contains, regex, starts_with, "
	            "ends_with, gt, lt, gte, lte, exists and not_exists"
	          : "is missing");
}

static int read_regex(struct maker *m, struct rule *rule)
{
	char why[200], text[256];
	int r;

	rule->regex = regex_new((struct str){rule->text, rule->text_len}, false, why, sizeof(why));
	if (rule->regex)
		return 0;
	snprintf(text, sizeof(text), "is no pattern that can be used: %s", why);
	r = fault(m, "value", text);
	if (m->err)
		str_copy(m->err->type, sizeof(m->err->type), STR("invalid_regex_pattern"));
	return r;
}

/* A number may stand as a text and a text as a number, as forms send them. */
static int read_value(struct maker *m, const struct json *v, struct rule *rule)
{
	struct str text = json_is(v, JSON_STRING) ? json_str(v) : json_raw(v);

	if (rule->op == O_EXISTS)
		return json_absent(v) ? 0 : fault(m, "value", "is not used with this operator");
	if (json_absent(v))
		return fault(m, "value", "is missing");
	if (!json_is(v, JSON_STRING) && !json_is(v, JSON_NUMBER))
		return fault(m, "value", "must be a text or a number");
	if (text.n > FILTER_VALUE_MAX)
		return fault(m, "value", "is longer than 4096 bytes");
	if (rule->field >= F_COST)
		return money_parse(text, &rule->number)
		               ? 0
		               : fault(m, "value", "must be a decimal number from 0 to 9000000");
	rule->text = mem_strndup(text.n > 0 ? text.p : "", text.n);
	rule->text_len = text.n;
	return rule->op == O_REGEX ? read_regex(m, rule) : 0;
}

/* Members of an object that are none of the known are faults. */
static int check_members(
        struct maker *m, const struct json *v, const char *const *known, const char *what)
{
	size_t i;

	if (!json_is(v, JSON_OBJECT))
		return fault(m, "", what);
	for (const struct json *c = json_first(v); c; c = json_next(c)) {
		for (i = 0; known[i] && !str_is(json_key(c), known[i]); i++)
			;
		if (!known[i])
			return fault(m, "", "has a member that is not known");
	}
	return 0;
}

static int read_rule(struct maker *m, const struct json *v, struct rule *rule)
{
	static const char *const known[] = {"field", "operator", "value", NULL};
	int r = check_members(m, v, known, "must be an object {field, operator, value}");

	if (r == 0)
		r = read_field(m, json_get(v, "field"), rule);
	if (r == 0)
		r = read_operator(m, json_get(v, "operator"), rule);
	if (r == 0)
		r = read_value(m, json_get(v, "value"), rule);
	return r;
}

static int read_group(struct maker *m, const struct json *v, struct group *g)
{
	static const char *const known[] = {"logic", "rules", NULL};
	const struct json *logic, *rules;
	size_t i = 0, mark = strlen(m->path);
	int r = check_members(m, v, known, "must be an object {logic, rules}");

	if (r < 0)
		return r;
	logic = json_get(v, "logic");
	rules = json_get(v, "rules");
	g->any = str_is(json_str(logic), "or");
	if (!json_absent(logic) && !g->any && !str_is(json_str(logic), "and"))
		return fault(m, "logic", "must be \"and\" or \"or\"");
	if (!json_is(rules, JSON_ARRAY) || json_count(rules) == 0)
		return fault(m, "rules", "must be a list with at least one rule");
	if (json_count(rules) > FILTER_RULES_MAX)
		return fault(m, "rules", "has more than 20 entries");
	g->rules = mem_array(json_count(rules), sizeof(*g->rules));
	for (const struct json *c = json_first(rules); r == 0 && c; c = json_next(c), i++) {
		g->n = i + 1;
		snprintf(m->path + mark, sizeof(m->path) - mark, ".rules[%zu]", i);
		r = read_rule(m, c, &g->rules[i]);
	}
	m->path[mark] = '\0';
	return r;
}

static int read_filter(struct maker *m, const struct json *v, struct trace_filter *f)
{
	static const char *const known[] = {"enabled", "groups", NULL};
	const struct json *enabled, *groups;
	size_t i = 0, mark = strlen(m->path);
	int r = check_members(m, v, known, "must be an object {enabled, groups}");

	if (r < 0)
		return r;
	enabled = json_get(v, "enabled");
	groups = json_get(v, "groups");
	if (!json_absent(enabled) && !json_is_bool(enabled))
		return fault(m, "enabled", "must be true or false");
	f->enabled = json_absent(enabled) || json_bool(enabled);
	if (!json_is(groups, JSON_ARRAY))
		return fault(m, "groups", "must be a list");
	if (json_count(groups) > FILTER_GROUPS_MAX)
		return fault(m, "groups", "has more than 20 entries");
	f->groups = mem_array(json_count(groups) + 1, sizeof(*f->groups));
	for (const struct json *c = json_first(groups); r == 0 && c; c = json_next(c), i++) {
		f->n = i + 1;
		snprintf(m->path + mark, sizeof(m->path) - mark, ".groups[%zu]", i);
		r = read_group(m, c, &f->groups[i]);
	}
	return r;
}

int filter_new(const struct json *v, struct trace_filter **ret, struct error *err)
{
	struct maker m = {.err = err, .path = "filter_rules"};
	struct trace_filter *f = mem_alloc(sizeof(*f));
	int r = read_filter(&m, v, f);

	if (r < 0) {
		filter_free(f);
		return r;
	}
	*ret = f;
	return 0;
}

struct trace_filter *filter_free(struct trace_filter *f)
{
	if (!f)
		return NULL;
	for (size_t i = 0; i < f->n; i++) {
		for (size_t k = 0; k < f->groups[i].n; k++) {
			free(f->groups[i].rules[k].text);
			regex_free(f->groups[i].rules[k].regex);
		}
		free(f->groups[i].rules);
	}
	free(f->groups);
	free(f);
	return NULL;
}

/* ---- matching ---- */

static bool text_holds(const struct rule *rule, struct str s)
{
	struct str value = {rule->text, rule->text_len};
	size_t begin, end;

	switch (rule->op) {
	case O_EQUALS:
		return str_eq(s, value);
	case O_CONTAINS:
		return value.n == 0 || memmem(s.p, s.n, value.p, value.n) != NULL;
	case O_REGEX:
		return regex_find(rule->regex, s, 0, &begin, &end);
	case O_STARTS:
		return s.n >= value.n && memcmp(s.p, value.p, value.n) == 0;
	case O_ENDS:
		return s.n >= value.n && memcmp(s.p + s.n - value.n, value.p, value.n) == 0;
	case O_EXISTS:
		return s.n > 0;
	case O_GT:
	case O_LT:
	case O_GTE:
	case O_LTE:
		break;
	}
	BUG("a text with the operator %d", (int)rule->op);
}

static bool number_holds(const struct rule *rule, struct money n)
{
	int64_t a = n.pico, b = rule->number.pico;

	switch (rule->op) {
	case O_EQUALS:
		return a == b;
	case O_GT:
		return a > b;
	case O_LT:
		return a < b;
	case O_GTE:
		return a >= b;
	case O_LTE:
		return a <= b;
	case O_EXISTS:
		return true;
	case O_CONTAINS:
	case O_REGEX:
	case O_STARTS:
	case O_ENDS:
		break;
	}
	BUG("a number with the operator %d", (int)rule->op);
}

/* What stands after "provider/" in the name that the record has. */
static const char *bare_model(const struct record *r)
{
	size_t n = r->provider ? strlen(r->provider) : 0;

	return n > 0 && r->model && strncmp(r->model, r->provider, n) == 0 && r->model[n] == '/'
	               ? r->model + n + 1
	               : NULL;
}

static bool model_holds(const struct rule *rule, const struct record *r)
{
	const char *const names[] = {r->asked, r->model, bare_model(r)};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (names[i] && text_holds(rule, str_of(names[i])))
			return true;
	return false;
}

static bool content_holds(const struct rule *rule, const struct record *r)
{
	_cleanup_buf_ struct buf text = BUF_INIT((size_t)16 << 20);

	if (!(rule->field == F_INPUT ? content_input_text(r, &text)
	                             : content_output_text(r, &text)))
		return false;
	return text_holds(rule, (struct str){text.len > 0 ? text.data : "", text.len});
}

static bool tokens_hold(const struct rule *rule, const struct record_tokens *t, uint64_t n)
{
	const struct money one = {INT64_C(1000000000000)};

	return (t->given || t->estimated) && number_holds(rule, money_mul(one, n, 1));
}

static bool rule_holds_positive(const struct rule *rule, const struct record *r)
{
	const char *text = NULL;

	switch (rule->field) {
	case F_MODEL:
		return model_holds(rule, r);
	case F_PROVIDER:
		text = r->provider;
		break;
	case F_SESSION:
		text = r->session_id;
		break;
	case F_USER:
		text = r->user;
		break;
	case F_KEY_NAME:
		text = r->key_name;
		break;
	case F_FINISH:
		text = r->finish;
		break;
	case F_INPUT:
	case F_OUTPUT:
		return content_holds(rule, r);
	case F_COST:
		return r->priced && number_holds(rule, r->total_cost);
	case F_TOTAL:
		return tokens_hold(rule, &r->tokens, r->tokens.input + r->tokens.output);
	case F_PROMPT:
		return tokens_hold(rule, &r->tokens, r->tokens.input);
	case F_COMPLETION:
		return tokens_hold(rule, &r->tokens, r->tokens.output);
	case N_FIELDS:
		break;
	}
	return text && text_holds(rule, str_of(text));
}

static bool group_holds(const struct group *g, const struct record *r)
{
	for (size_t i = 0; i < g->n; i++) {
		bool holds = rule_holds_positive(&g->rules[i], r) != g->rules[i].negated;

		if (holds == g->any)
			return g->any;
	}
	return !g->any;
}

bool filter_holds(const struct trace_filter *f, const struct record *r)
{
	for (size_t i = 0; f && f->enabled && i < f->n; i++)
		if (!group_holds(&f->groups[i], r))
			return false;
	return true;
}
