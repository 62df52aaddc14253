/*
 * Theory of operation: one pass of all expressions together says which of them match at all; only
 * those are then looked for one by one, for the places. A text in which nothing is found costs that
 * one pass.
 *
 * Bounds. RE2 takes linear time for one match, but each of many matches may look ahead to the
 * text's end. So places are looked for in windows of WINDOW bytes, which overlap, and at most
 * PLACES_MAX for each expression. What that cannot place is not lost: the whole rest of the text
 * then is the place.
 *
 * Phrases that are allowed are masked before the expressions see the text, by as many bytes of a
 * character that no text has; the disguises of evasion.c are looked for in the text as it is.
 */
#include "guard/guard.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "guard/evasion.h"
#include "guard/patterns.h"
#include "guard/regex.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW      65536
#define OVERLAP     4096
#define PLACES_MAX  4096
#define MATCHED_MAX 200
#define MASK        '\x01'

struct pattern {
	struct str name;
	struct regex *re;
	bool (*check)(struct str match);
	size_t rule;
};

struct rule {
	struct str name; /* the slug, or the label */
	struct str placeholder;
	enum guard_action action;
	bool user_only, scan_tool_output, evasion;
};

struct guard {
	struct arena *arena;
	struct rule *rules;
	size_t n_rules;
	struct pattern *patterns;
	size_t n_patterns, cap_patterns;
	struct regex_set *set;
	struct str *phrases; /* in ASCII lower case */
	size_t n_phrases;
};

/* ---- making ---- */

static const struct guard_builtin *find_builtin(struct str slug)
{
	for (size_t i = 0; i < guard_builtins_n; i++)
		if (str_is(slug, guard_builtins[i].slug))
			return &guard_builtins[i];
	return NULL;
}

bool guard_builtin_known(struct str slug)
{
	return find_builtin(slug) != NULL;
}

static int refuse_pattern(struct error *err, size_t i, const char *why)
{
	char param[64];

	str_format(param, sizeof(param), "rules[%zu].pattern", i);
	error_param(err, ERR_INVALID, param, "The pattern cannot be used: %s.", why);
	if (err)
		str_copy(err->type, sizeof(err->type), STR("invalid_regex_pattern"));
	return -ERR_INVALID;
}

static struct str keep(struct guard *g, struct str s)
{
	char *p = s.n ? arena_alloc(g->arena, s.n) : NULL;

	if (!p)
		return (struct str){NULL, 0};
	memcpy(p, s.p, s.n);
	return (struct str){p, s.n};
}

static int add_pattern(struct guard *g, size_t rule, struct str name, struct str text,
        bool ignore_case, bool (*check)(struct str), struct error *err)
{
	char why[128];
	struct regex *re = regex_new(text, ignore_case, why, sizeof(why));

	if (!re)
		return refuse_pattern(err, rule, why);
	mem_grow(&g->patterns, &g->cap_patterns, g->n_patterns, sizeof(*g->patterns));
	g->patterns[g->n_patterns++] = (struct pattern){name, re, check, rule};
	return 0;
}

static int add_rule(struct guard *g, const struct guard_rule *r, size_t i, struct error *err)
{
	struct rule *rule = &g->rules[i];
	const struct guard_builtin *b;
	char param[64];
	int e = 0;

	*rule = (struct rule){.action = r->action,
	        .user_only = r->user_only,
	        .scan_tool_output = r->scan_tool_output};
	if (!r->builtin.n) {
		if (!r->pattern.n || r->pattern.n > GUARD_PATTERN_MAX)
			return refuse_pattern(err, i,
			        r->pattern.n ? "it is longer than 100,000 bytes" : "it is empty");
		rule->name = keep(g, r->label.n ? r->label : STR("custom"));
		rule->placeholder = keep(g, r->placeholder.n ? r->placeholder : STR("[REDACTED]"));
		return add_pattern(g, i, rule->name, r->pattern, false, NULL, err);
	}
	b = find_builtin(r->builtin);
	if (!b) {
		str_format(param, sizeof(param), "rules[%zu].slug", i);
		return error_param(err, ERR_INVALID, param, "There is no built-in filter \"%.*s\".",
		        (int)(r->builtin.n < 64 ? r->builtin.n : 64), r->builtin.p);
	}
	rule->name = str_of(b->slug);
	rule->placeholder = r->placeholder.n ? keep(g, r->placeholder) : str_of(b->placeholder);
	rule->evasion = b->evasion;
	for (size_t k = 0; k < b->n && e == 0; k++)
		e = add_pattern(g, i, str_of(b->patterns[k].name), str_of(b->patterns[k].regex),
		        !b->patterns[k].case_sensitive, b->patterns[k].check, err);
	return e;
}

/* The set is made of the same texts in the same order. */
static int make_set(struct guard *g, const struct guard_rule *rules)
{
	struct str *texts _cleanup_free_ = mem_array(g->n_patterns + 1, sizeof(*texts));
	bool *ignore_case _cleanup_free_ = mem_array(g->n_patterns + 1, sizeof(*ignore_case));
	size_t k = 0;

	for (size_t i = 0; i < g->n_rules; i++) {
		const struct guard_builtin *b =
		        rules[i].builtin.n ? find_builtin(rules[i].builtin) : NULL;

		if (!b) {
			texts[k++] = rules[i].pattern;
			continue;
		}
		for (size_t j = 0; j < b->n; j++, k++) {
			texts[k] = str_of(b->patterns[j].regex);
			ignore_case[k] = !b->patterns[j].case_sensitive;
		}
	}
	g->set = regex_set_new(texts, ignore_case, g->n_patterns);
	return g->set ? 0 : -ERR_NOMEM;
}

static int add_phrases(struct guard *g, const struct str *allow, size_t n, struct error *err)
{
	char param[32];

	if (n > GUARD_PHRASES_MAX)
		return error_param(err, ERR_INVALID, "allow", "at most %d phrases can be allowed",
		        GUARD_PHRASES_MAX);
	g->phrases = mem_array(n + 1, sizeof(*g->phrases));
	for (size_t i = 0; i < n; i++) {
		str_format(param, sizeof(param), "allow[%zu]", i);
		if (!allow[i].n || allow[i].n > GUARD_PHRASE_MAX ||
		        !utf8_valid(allow[i].p, allow[i].n))
			return error_param(err, ERR_INVALID, param,
			        "a phrase is UTF-8 text of 1 to %d bytes", GUARD_PHRASE_MAX);
		g->phrases[i] = keep(g, allow[i]);
		g->n_phrases++;
	}
	return 0;
}

int guard_new(const struct guard_rule *rules, size_t n, const struct str *allow, size_t n_allow,
        struct guard **ret, struct error *err)
{
	struct guard *g;
	int e = 0;

	if (n > GUARD_RULES_MAX)
		return error_param(err, ERR_INVALID, "rules",
		        "at most %d rules can be checked together", GUARD_RULES_MAX);
	g = mem_alloc(sizeof(*g));
	g->arena = arena_new((size_t)4 << 20);
	g->rules = mem_array(n + 1, sizeof(*g->rules));
	g->n_rules = n;
	for (size_t i = 0; i < n && e == 0; i++)
		e = add_rule(g, &rules[i], i, err);
	if (e == 0)
		e = add_phrases(g, allow, n_allow, err);
	if (e == 0 && make_set(g, rules) < 0)
		e = error_param(err, ERR_INVALID, "rules", "The patterns together are too large.");
	if (e < 0)
		guard_free(g);
	else
		*ret = g;
	return e;
}

struct guard *guard_free(struct guard *g)
{
	if (!g)
		return NULL;
	for (size_t i = 0; i < g->n_patterns; i++)
		regex_free(g->patterns[i].re);
	regex_set_free(g->set);
	arena_free(g->arena);
	free(g->patterns);
	free(g->phrases);
	free(g->rules);
	free(g);
	return NULL;
}

/* ---- scanning one text ---- */

struct place {
	size_t begin, end;
	size_t rule;
};

struct scanner {
	const struct guard *g;
	struct str text, masked;
	enum guard_author author;
	struct guard_scan *scan;
	struct place *places; /* of rules that redact */
	size_t n_places, cap_places;
	size_t evasion_rule;
	bool *matched;
};

static bool applies(const struct scanner *s, size_t rule)
{
	const struct rule *r = &s->g->rules[rule];

	if (s->scan->only && !s->scan->only[rule])
		return false;
	if (s->author == GUARD_TOOL)
		return r->scan_tool_output;
	return s->author == GUARD_USER || !r->user_only;
}

/* The beginning of what matched, not cut inside of a character. */
static struct str matched_text(struct str text, size_t begin, size_t end)
{
	struct str s = {text.p + begin, end - begin};

	if (s.n > MATCHED_MAX) {
		s.n = MATCHED_MAX;
		s.n -= utf8_incomplete_tail(s.p, s.n);
	}
	return s;
}

static void found(struct scanner *s, size_t rule, struct str pattern, size_t begin, size_t end)
{
	const struct rule *r = &s->g->rules[rule];
	struct guard_scan *scan = s->scan;
	struct str matched = matched_text(s->text, begin, end);

	if (r->action > scan->action)
		scan->action = r->action;
	if (r->action == GUARD_REDACT) {
		mem_grow(&s->places, &s->cap_places, s->n_places, sizeof(*s->places));
		s->places[s->n_places++] = (struct place){begin, end, rule};
	}
	if (scan->n_hits == GUARD_HITS_MAX) {
		scan->more++;
		return;
	}
	mem_grow(&scan->hits, &scan->cap_hits, scan->n_hits, sizeof(*scan->hits));
	scan->hits[scan->n_hits++] = (struct guard_hit){
	        .rule = {mem_strndup(r->name.p, r->name.n), r->name.n},
	        .pattern = {mem_strndup(pattern.p, pattern.n), pattern.n},
	        .matched = {mem_strndup(matched.p, matched.n), matched.n},
	        .action = r->action,
	        .rule_index = rule,
	};
}

/* All places of one expression that is known to match somewhere. */
static void find_places(struct scanner *s, const struct pattern *p)
{
	size_t from = 0, n = 0, seen = 0, begin, end;

	while (from < s->masked.n && n < PLACES_MAX) {
		size_t stop = s->masked.n - from > WINDOW ? from + WINDOW : s->masked.n;

		if (!regex_find(p->re, (struct str){s->masked.p, stop}, from, &begin, &end)) {
			from = stop == s->masked.n ? stop : stop - OVERLAP;
			continue;
		}
		seen++;
		if (end > begin &&
		        (!p->check || p->check((struct str){s->masked.p + begin, end - begin}))) {
			found(s, p->rule, p->name, begin, end);
			n++;
		}
		from = end > begin ? end : end + 1;
		if (seen == PLACES_MAX && from < s->masked.n)
			break;
	}
	if (seen == 0 || (from < s->masked.n && seen >= PLACES_MAX))
		found(s, p->rule, p->name, seen == 0 ? 0 : from, s->masked.n);
}

static bool test_plain(void *ctx, struct str text)
{
	struct scanner *s = ctx;
	const struct guard *g = s->g;
	bool *matched _cleanup_free_ = mem_array(g->n_patterns + 1, sizeof(*matched));

	regex_set_match(g->set, text, matched);
	for (size_t i = 0; i < g->n_patterns; i++)
		if (matched[i] && g->patterns[i].rule == s->evasion_rule)
			return true;
	return false;
}

static void on_evasion(void *ctx, const char *name, size_t begin, size_t end)
{
	struct scanner *s = ctx;

	found(s, s->evasion_rule, str_of(name), begin, end);
}

/* ---- phrases ---- */

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static bool phrase_at(struct str text, size_t at, struct str phrase)
{
	if (text.n - at < phrase.n)
		return false;
	for (size_t i = 0; i < phrase.n; i++)
		if (lower(text.p[at + i]) != lower(phrase.p[i]))
			return false;
	return true;
}

/* A copy in which allowed phrases are masked, or NULL where there are none. */
static char *mask(const struct guard *g, struct str text)
{
	char *copy = NULL;

	for (size_t i = 0; i < g->n_phrases; i++) {
		for (size_t at = 0; at + g->phrases[i].n <= text.n; at++) {
			if (lower(text.p[at]) != lower(g->phrases[i].p[0]) ||
			        !phrase_at(text, at, g->phrases[i]))
				continue;
			if (!copy) {
				copy = mem_alloc(text.n);
				memcpy(copy, text.p, text.n);
			}
			memset(copy + at, MASK, g->phrases[i].n);
			at += g->phrases[i].n - 1;
		}
	}
	return copy;
}

/* ---- redacting ---- */

static int place_compare(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->end > y->end ? -1 : x->end < y->end;
}

static int redact(struct scanner *s, struct buf *out)
{
	size_t at = 0;

	qsort(s->places, s->n_places, sizeof(*s->places), place_compare);
	for (size_t i = 0; i < s->n_places; i++) {
		const struct place *p = &s->places[i];
		struct str placeholder = s->g->rules[p->rule].placeholder;

		if (p->end <= at)
			continue;
		if (p->begin >= at) {
			buf_append(out, s->text.p + at, p->begin - at);
			buf_append(out, placeholder.p, placeholder.n);
		}
		at = p->end; /* one that begins inside of another only makes it longer */
	}
	buf_append(out, s->text.p + at, s->text.n - at);
	return buf_error(out);
}

int guard_text(const struct guard *g, struct str text, enum guard_author author,
        struct guard_scan *scan, struct buf *redacted, bool *ret_redacted)
{
	char *copy _cleanup_free_ = mask(g, text);
	bool *matched _cleanup_free_ = mem_array(g->n_patterns + 1, sizeof(*matched));
	struct scanner s = {.g = g,
	        .text = text,
	        .masked = {copy ? copy : text.p, text.n},
	        .author = author,
	        .scan = scan};
	int e = 0;

	*ret_redacted = false;
	if (!text.n)
		return 0;
	regex_set_match(g->set, s.masked, matched);
	for (size_t i = 0; i < g->n_patterns; i++)
		if (matched[i] && applies(&s, g->patterns[i].rule))
			find_places(&s, &g->patterns[i]);
	for (size_t i = 0; i < g->n_rules; i++) {
		if (!g->rules[i].evasion || !applies(&s, i))
			continue;
		s.evasion_rule = i;
		evasion_scan(text, test_plain, on_evasion, &s);
	}
	if (s.n_places) {
		e = redact(&s, redacted);
		*ret_redacted = e == 0;
	}
	free(s.places);
	return e;
}

void guard_scan_clear(struct guard_scan *scan)
{
	for (size_t i = 0; i < scan->n_hits; i++) {
		free((void *)(uintptr_t)scan->hits[i].rule.p);
		free((void *)(uintptr_t)scan->hits[i].pattern.p);
		free((void *)(uintptr_t)scan->hits[i].matched.p);
	}
	free(scan->hits);
	*scan = (struct guard_scan){0};
}

const char *guard_action_name(enum guard_action a)
{
	static const char *const names[] = {"pass", "flag", "redact", "block"};

	return names[a];
}

bool guard_action_of(struct str name, enum guard_action *ret)
{
	for (enum guard_action a = GUARD_FLAG; a <= GUARD_BLOCK; a++) {
		if (!str_is(name, guard_action_name(a)))
			continue;
		*ret = a;
		return true;
	}
	return false;
}
