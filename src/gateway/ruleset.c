#include "gateway/ruleset.h"

#include "base/id.h"
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct member {
	const struct config_guardrail *g; /* brig.yaml's, or that of stored */
	struct stored_guardrail stored;
	char id[STORE_ID_MAX + 1]; /* "": brig.yaml's, which holds for every key */
	struct error *broken;      /* why it cannot be used */
	bool everybody;            /* it holds for every key of the workspace */
};

/* All but the assignments: sets that differ in those share it. */
struct compiled {
	atomic_uint references;
	struct guard *guard; /* NULL: no rules */
	struct member *members;
	size_t n_members;
	uint32_t of_rule[GUARD_RULES_MAX]; /* the member */
	bool tools[GUARD_RULES_MAX];
	size_t n_rules;
	struct error *error;
	uint8_t made_of[32]; /* hash of what was stored */
};

struct ruleset {
	atomic_uint references;
	struct compiled *compiled;
	struct store_guardrail_key *keys; /* by guardrail, then hash */
	size_t n_keys;
};

/* ---- members ---- */

static bool is_of(const struct config_guardrail *g, const char *workspace)
{
	return g->workspace == NULL || (workspace != NULL && strcmp(g->workspace, workspace) == 0);
}

static struct error *broken(const char *name, const struct error *why)
{
	struct error e;

	error_set(&e, ERR_UNAVAILABLE,
	        "The guardrail '%s' cannot be used: %s Requests that it holds for are refused "
	        "until "
	        "it is changed or deleted.",
	        name, why->text);
	str_copy(e.type, sizeof(e.type), STR("guardrail_unusable"));
	return error_copy(&e);
}

/* From the row as it is stored, which this brig need not understand. */
static void member_read(struct member *m, const struct store_guardrail *row)
{
	struct json_doc *doc = NULL;
	struct error e;
	int r;

	str_copy(m->id, sizeof(m->id), str_of(row->id));
	m->g = &m->stored.g;
	r = json_parse(str_of(row->body), (size_t)256 << 20, &doc, &e);
	if (r == 0)
		r = stored_guardrail_read(&m->stored, json_root(doc), &e);
	/* What cannot be read may be for everybody. */
	m->everybody = doc == NULL || json_bool(json_get(json_root(doc), "workspace_default"));
	json_doc_free(doc);
	if (r < 0)
		m->broken = broken(m->stored.g.name != NULL ? m->stored.g.name : row->id, &e);
}

static void add_members(struct compiled *s, const struct config *c, const char *workspace,
        const struct store_guardrails_all *stored)
{
	size_t n_stored = stored != NULL ? stored->n_guardrails : 0;

	s->members = mem_array(c->n_guardrails + n_stored + 1, sizeof(*s->members));
	for (size_t i = 0; i < c->n_guardrails; i++)
		if (is_of(&c->guardrails[i], workspace))
			s->members[s->n_members++] =
			        (struct member){.g = &c->guardrails[i], .everybody = true};
	for (size_t i = 0; i < n_stored; i++)
		member_read(&s->members[s->n_members++], &stored->guardrails[i]);
}

/* ---- compiling ---- */

struct lists {
	struct guard_rule rules[GUARD_RULES_MAX];
	struct str allow[GUARD_PHRASES_MAX];
	size_t n_allow;
};

static int too_many(struct error *err)
{
	return error_set(err, ERR_INVALID,
	        "the guardrails of the configuration and the stored ones together have more than "
	        "%d rules or %d phrases.",
	        GUARD_RULES_MAX, GUARD_PHRASES_MAX);
}

static int collect(struct compiled *s, struct lists *l, const struct store_guardrails_all *stored,
        struct error *err)
{
	s->n_rules = l->n_allow = 0;
	for (size_t i = 0; i < s->n_members; i++) {
		const struct config_guardrail *g = s->members[i].g;

		if (s->members[i].broken != NULL)
			continue;
		if (g->n_rules > GUARD_RULES_MAX - s->n_rules ||
		        g->n_allow > GUARD_PHRASES_MAX - l->n_allow)
			return too_many(err);
		for (size_t k = 0; k < g->n_rules; k++) {
			s->of_rule[s->n_rules] = (uint32_t)i;
			s->tools[s->n_rules] = g->rules[k].scan_tool_output;
			l->rules[s->n_rules++] = config_guard_rule(&g->rules[k]);
		}
		for (size_t k = 0; k < g->n_allow; k++)
			l->allow[l->n_allow++] = str_of(g->allow[k]);
	}
	for (size_t i = 0; stored != NULL && i < stored->n_phrases; i++) {
		if (l->n_allow == GUARD_PHRASES_MAX)
			return too_many(err);
		l->allow[l->n_allow++] = str_of(stored->phrases[i].phrase);
	}
	return 0;
}

/* The rule that an error of guard_new() is about; false: it is about all of them. */
static bool rule_of(const struct error *e, size_t n, size_t *ret)
{
	uint64_t at;
	const char *end = strchr(e->param, ']');
	size_t skip = strlen("rules[");

	if (!str_starts(str_of(e->param), "rules[") || end == NULL ||
	        !str_to_u64((struct str){e->param + skip, (size_t)(end - e->param) - skip}, &at) ||
	        at >= n)
		return false;
	*ret = (size_t)at;
	return true;
}

/* Each time round one more stored guardrail is left out, so it ends. */
static void compile(struct compiled *s, const struct store_guardrails_all *stored)
{
	struct lists *l = mem_alloc(sizeof(*l));
	struct error e;
	size_t rule;

	for (;;) {
		int r = collect(s, l, stored, &e);

		if (r == 0 && s->n_rules == 0)
			break;
		if (r == 0)
			r = guard_new(l->rules, s->n_rules, l->allow, l->n_allow, &s->guard, &e);
		if (r == 0)
			break;
		if (rule_of(&e, s->n_rules, &rule) && s->members[s->of_rule[rule]].id[0] != 0) {
			struct member *m = &s->members[s->of_rule[rule]];

			m->broken = broken(m->g->name, &e);
			continue;
		}
		error_prefix(&e, "The guardrails of this workspace cannot be used");
		e.code = ERR_UNAVAILABLE;
		e.param[0] = 0;
		str_copy(e.type, sizeof(e.type), STR("guardrail_unusable"));
		s->error = error_copy(&e);
		break;
	}
	free(l);
}

/* What of the store the compiled rules depend on. */
static void hash_stored(const struct store_guardrails_all *stored, uint8_t ret[32])
{
	size_t most = stored != NULL ? 2 * stored->n_guardrails + stored->n_phrases + 1 : 1, n = 0;
	struct str *parts _cleanup_free_ = mem_array(most, sizeof(*parts));

	for (size_t i = 0; stored != NULL && i < stored->n_guardrails; i++) {
		parts[n++] = str_of(stored->guardrails[i].id);
		parts[n++] = str_of(stored->guardrails[i].body);
	}
	parts[n++] = STR("");
	for (size_t i = 0; stored != NULL && i < stored->n_phrases; i++)
		parts[n++] = str_of(stored->phrases[i].phrase);
	id_sha256_parts(parts, n, ret);
}

static struct compiled *compiled_new(const struct config *c, const char *workspace,
        const struct store_guardrails_all *stored, const struct compiled *before)
{
	struct compiled *s;
	uint8_t made_of[32];

	hash_stored(stored, made_of);
	if (before != NULL && memcmp(before->made_of, made_of, sizeof(made_of)) == 0) {
		s = (struct compiled *)(uintptr_t)before;
		atomic_fetch_add(&s->references, 1);
		return s;
	}
	s = mem_alloc(sizeof(*s));
	atomic_init(&s->references, 1);
	memcpy(s->made_of, made_of, sizeof(made_of));
	add_members(s, c, workspace, stored);
	compile(s, stored);
	return s;
}

static void compiled_unref(struct compiled *s)
{
	if (atomic_fetch_sub(&s->references, 1) > 1)
		return;
	for (size_t i = 0; i < s->n_members; i++) {
		stored_guardrail_clear(&s->members[i].stored);
		free(s->members[i].broken);
	}
	guard_free(s->guard);
	free(s->members);
	free(s->error);
	free(s);
}

struct ruleset *ruleset_new(const struct config *c, const char *workspace,
        struct store_guardrails_all *stored, const struct ruleset *before)
{
	struct ruleset *s = mem_alloc(sizeof(*s));

	atomic_init(&s->references, 1);
	s->compiled = compiled_new(c, workspace, stored, before != NULL ? before->compiled : NULL);
	if (stored != NULL) {
		s->keys = steal(stored->keys);
		s->n_keys = stored->n_keys;
		store_guardrails_all_clear(stored);
	}
	return s;
}

struct ruleset *ruleset_ref(struct ruleset *s)
{
	atomic_fetch_add(&s->references, 1);
	return s;
}

struct ruleset *ruleset_unref(struct ruleset *s)
{
	if (s == NULL || atomic_fetch_sub(&s->references, 1) > 1)
		return NULL;
	compiled_unref(s->compiled);
	free(s->keys);
	free(s);
	return NULL;
}

const struct error *ruleset_error(const struct ruleset *s)
{
	return s->compiled->error;
}

const char *ruleset_name_of(const struct ruleset *s, size_t rule)
{
	return s->compiled->members[s->compiled->of_rule[rule]].g->name;
}

/* ---- what holds for a key ---- */

static int key_compare(const void *a, const void *b)
{
	const struct store_guardrail_key *x = a, *y = b;
	int c = strcmp(x->guardrail, y->guardrail);

	return c != 0 ? c : strcmp(x->key_hash, y->key_hash);
}

static bool holds(const struct ruleset *s, const struct member *m, const char *hash)
{
	struct store_guardrail_key wanted = {.created_ms = 0};

	if (m->everybody)
		return true;
	str_copy(wanted.guardrail, sizeof(wanted.guardrail), str_of(m->id));
	str_copy(wanted.key_hash, sizeof(wanted.key_hash), str_of(hash));
	return s->n_keys > 0 &&
	       bsearch(&wanted, s->keys, s->n_keys, sizeof(wanted), key_compare) != NULL;
}

struct rules *ruleset_rules(struct ruleset *s, const uint8_t key_hash[32])
{
	const struct compiled *c = s->compiled;
	/* One piece of memory: the struct, its members, its mask. */
	size_t lists = c->n_members * sizeof(const struct config_guardrail *);
	struct rules *r = mem_alloc(sizeof(*r) + lists + c->n_members + c->n_rules + 1);
	bool *on, *rules;
	char hash[65];

	r->members = (const struct config_guardrail **)(void *)(r + 1);
	on = (bool *)((char *)(r + 1) + lists);
	rules = on + c->n_members;
	r->set = ruleset_ref(s);
	r->rules = rules;
	r->refused = c->error;
	id_hex(key_hash, 32, hash);
	for (size_t i = 0; i < c->n_members; i++) {
		on[i] = holds(s, &c->members[i], hash);
		if (!on[i])
			continue;
		if (c->members[i].broken != NULL)
			r->refused = c->members[i].broken;
		else
			r->members[r->n_members++] = c->members[i].g;
	}
	for (size_t i = 0; i < c->n_rules; i++) {
		rules[i] = on[c->of_rule[i]];
		if (!rules[i])
			continue;
		r->guard = c->guard;
		r->tools = r->tools || c->tools[i];
	}
	return r;
}

struct rules *ruleset_rules_free(struct rules *r)
{
	if (r != NULL)
		ruleset_unref(r->set);
	free(r);
	return NULL;
}
