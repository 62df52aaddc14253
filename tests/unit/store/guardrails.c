/* Guardrails, assignments and phrases: of whose account, how many, and what is seen of a change.
 * What was found: in which order, and the mark. */
#include "fixture.h"

#include "record/record.h"

static const struct store_scope one = {{"acme", 4}, {"one", 3}};
static const struct store_scope two = {{"acme", 4}, {"two", 3}};
static const struct store_scope far = {{"other", 5}, {"one", 3}};
#define HASH_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HASH_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static int make(struct store *s, const struct store_scope *scope, const char *id, uint32_t rules,
        int64_t ms, struct error *err)
{
	char body[] = "{\"name\":\"n\"}";
	struct store_guardrail g = {
	        .body = body, .n_rules = rules, .created_ms = ms, .updated_ms = ms};

	str_copy(g.id, sizeof(g.id), str_of(id));
	return store_guardrail_create(s, scope, &g, 256, err);
}

static size_t listed(
        struct store *s, const struct store_scope *scope, struct store_page page, const char *first)
{
	struct store_guardrail_list l = {0};
	struct error err;
	size_t n;

	assert_int_equal(store_guardrail_list(s, scope, page, &l, &err), 0);
	assert_true(l.n <= l.total);
	if (first)
		assert_string_equal(l.rows[0].id, first);
	n = l.n;
	store_guardrail_list_clear(&l);
	return n;
}

/* The last change; 0: none after that. */
static int64_t version_after(struct store *s, int64_t after, const struct store_scope *of)
{
	struct store_guardrail_change *c = NULL;
	struct error err;
	int64_t version = 0;
	size_t n = 0;

	assert_int_equal(store_guardrail_changes(s, after, 100, &c, &n, &err), 0);
	for (size_t i = 0; i < n; i++) {
		assert_true(c[i].version > after && c[i].version > version);
		version = c[i].version;
	}
	if (of) {
		assert_int_equal(n, 1);
		assert_true(str_is(of->account, c[0].account));
		assert_true(str_is(of->workspace, c[0].workspace));
	}
	store_guardrail_changes_free(c, n);
	return version;
}

static void kept_and_listed(void **state)
{
	struct fixture *f = *state;
	struct store_guardrail g = {0};
	struct error err;

	assert_int_equal(make(f->s, &one, "g1", 1, 5, &err), 0);
	assert_int_equal(make(f->s, &one, "g2", 1, 6, &err), 0);
	assert_int_equal(make(f->s, &two, "g3", 1, 7, &err), 0);
	assert_int_equal(listed(f->s, &one, (struct store_page){0, 10}, "g1"), 2);
	assert_int_equal(listed(f->s, &one, (struct store_page){1, 10}, "g2"), 1);
	assert_int_equal(listed(f->s, &one, (struct store_page){0, 1}, "g1"), 1);
	assert_int_equal(listed(f->s, &one, (struct store_page){0, 0}, NULL), 0);
	assert_int_equal(listed(f->s, &far, (struct store_page){0, 10}, NULL), 0);
	assert_int_equal(store_guardrail_get(f->s, one.account, STR("g3"), &g, &err), 0);
	assert_string_equal(g.workspace, "two");
	assert_true(g.created_ms == 7 && g.n_rules == 1);
	store_guardrail_clear(&g);
	assert_int_equal(
	        store_guardrail_get(f->s, far.account, STR("g3"), &g, &err), -ERR_NOT_FOUND);
	assert_int_equal(
	        store_guardrail_delete(f->s, far.account, STR("g3"), &err), -ERR_NOT_FOUND);
	assert_int_equal(store_guardrail_delete(f->s, one.account, STR("g3"), &err), 0);
	assert_int_equal(
	        store_guardrail_delete(f->s, one.account, STR("g3"), &err), -ERR_NOT_FOUND);
}

static void changed_by_who_has_seen_it(void **state)
{
	struct fixture *f = *state;
	char next[] = "{\"name\":\"m\"}";
	struct store_guardrail g = {.id = "g1", .body = next, .n_rules = 3, .updated_ms = 9},
	                       now = {0};
	const struct str before = STR("{\"name\":\"n\"}");
	struct error err;

	assert_int_equal(make(f->s, &one, "g1", 1, 5, &err), 0);
	assert_int_equal(
	        store_guardrail_change(f->s, far.account, &g, before, 256, &err), -ERR_NOT_FOUND);
	assert_int_equal(store_guardrail_change(f->s, one.account, &g, before, 256, &err), 0);
	assert_int_equal(
	        store_guardrail_change(f->s, one.account, &g, before, 256, &err), -ERR_CONFLICT);
	assert_int_equal(store_guardrail_get(f->s, one.account, STR("g1"), &now, &err), 0);
	assert_string_equal(now.body, next);
	assert_true(now.n_rules == 3 && now.created_ms == 5 && now.updated_ms == 9);
	store_guardrail_clear(&now);
}

static void bounded(void **state)
{
	struct fixture *f = *state;
	char body[] = "{}", id[16];
	struct store_guardrail g = {.id = "g1", .body = body, .n_rules = 57};
	struct error err;

	assert_int_equal(make(f->s, &one, "g1", 100, 5, &err), 0);
	assert_int_equal(make(f->s, &one, "g2", 200, 5, &err), -ERR_INVALID);
	assert_non_null(strstr(err.text, "256 rules"));
	assert_int_equal(make(f->s, &two, "g2", 200, 5, &err), 0);
	assert_int_equal(make(f->s, &one, "g3", 156, 5, &err), 0);
	g.n_rules = 101;
	assert_int_equal(
	        store_guardrail_change(f->s, one.account, &g, STR("{\"name\":\"n\"}"), 256, &err),
	        -ERR_INVALID);
	/* What becomes fewer is taken, though they are too many still. */
	g.n_rules = 99;
	assert_int_equal(
	        store_guardrail_change(f->s, one.account, &g, STR("{\"name\":\"n\"}"), 10, &err),
	        0);
	for (int i = 3; i <= STORE_GUARDRAILS_MAX; i++) {
		str_format(id, sizeof(id), "h%d", i);
		assert_int_equal(make(f->s, &one, id, 0, 6, &err), 0);
	}
	assert_int_equal(make(f->s, &one, "last", 0, 7, &err), -ERR_INVALID);
}

static void assigned(void **state)
{
	struct fixture *f = *state;
	const struct str hashes[] = {STR(HASH_A), STR(HASH_B), STR(HASH_A)}, wrong = STR("abc");
	struct store_guardrail_key_list l = {0};
	struct error err;

	assert_int_equal(make(f->s, &one, "g1", 1, 5, &err), 0);
	assert_int_equal(make(f->s, &one, "g2", 1, 5, &err), 0);
	assert_int_equal(
	        store_guardrail_assign(f->s, one.account, STR("g1"), hashes, 3, 9, &err), 2);
	assert_int_equal(
	        store_guardrail_assign(f->s, one.account, STR("g1"), hashes, 3, 9, &err), 0);
	assert_int_equal(
	        store_guardrail_assign(f->s, one.account, STR("g2"), hashes, 1, 10, &err), 1);
	assert_int_equal(store_guardrail_assign(f->s, far.account, STR("g1"), hashes, 1, 9, &err),
	        -ERR_NOT_FOUND);
	assert_int_equal(store_guardrail_assign(f->s, one.account, STR("g1"), &wrong, 1, 9, &err),
	        -ERR_INVALID);
	assert_int_equal(store_guardrail_keys(f->s, &one, (struct str){NULL, 0},
	                         (struct store_page){2, 10}, &l, &err),
	        0);
	assert_true(l.n == 1 && l.total == 3);
	assert_string_equal(l.rows[0].guardrail, "g2");
	assert_string_equal(l.rows[0].key_hash, HASH_A);
	free(l.rows);
	assert_int_equal(
	        store_guardrail_unassign(f->s, one.account, STR("g1"), hashes, 1, &err), 1);
	assert_int_equal(
	        store_guardrail_unassign(f->s, one.account, STR("g1"), hashes, 1, &err), 0);
	assert_int_equal(store_guardrail_delete(f->s, one.account, STR("g1"), &err), 0);
	assert_int_equal(store_guardrail_keys(f->s, &one, (struct str){NULL, 0},
	                         (struct store_page){0, 10}, &l, &err),
	        0);
	assert_true(l.n == 1 && l.total == 1);
	free(l.rows);
}

static void phrases(void **state)
{
	struct fixture *f = *state;
	struct store_phrase p, q, *rows = NULL;
	struct error err;
	size_t n = 0;

	assert_int_equal(store_phrase_allow(f->s, &one, STR("Some Words"), 5, 2, &p, &err), 1);
	assert_int_equal(store_phrase_allow(f->s, &one, STR("some words"), 6, 2, &q, &err), 0);
	assert_string_equal(q.id, p.id);
	assert_string_equal(q.phrase, "Some Words");
	assert_int_equal(store_phrase_allow(f->s, &one, STR("ab"), 6, 2, &q, &err), -ERR_INVALID);
	assert_int_equal(store_phrase_allow(f->s, &one, STR("more"), 7, 2, &q, &err), 1);
	assert_int_equal(
	        store_phrase_allow(f->s, &one, STR("too many"), 7, 2, &q, &err), -ERR_INVALID);
	assert_int_equal(store_phrase_allow(f->s, &two, STR("some words"), 7, 2, &q, &err), 1);
	assert_int_equal(store_phrase_list(f->s, &one, &rows, &n, &err), 0);
	assert_int_equal(n, 2);
	assert_string_equal(rows[1].phrase, "more");
	free(rows);
	assert_int_equal(
	        store_phrase_disallow(f->s, far.account, str_of(p.id), &err), -ERR_NOT_FOUND);
	assert_int_equal(store_phrase_disallow(f->s, one.account, str_of(p.id), &err), 0);
	assert_int_equal(
	        store_phrase_disallow(f->s, one.account, str_of(p.id), &err), -ERR_NOT_FOUND);
}

static void changes_are_seen(void **state)
{
	struct fixture *f = *state;
	const struct str hash = STR(HASH_A);
	struct store_phrase p;
	struct error err;
	int64_t v;

	assert_int_equal(version_after(f->s, 0, NULL), 0);
	assert_int_equal(make(f->s, &one, "g1", 1, 5, &err), 0);
	v = version_after(f->s, 0, &one);
	assert_int_equal(make(f->s, &two, "g2", 1, 5, &err), 0);
	v = version_after(f->s, v, &two);
	assert_int_equal(
	        store_guardrail_assign(f->s, one.account, STR("g1"), &hash, 1, 9, &err), 1);
	v = version_after(f->s, v, &one);
	/* What changes nothing is no change, nor is what is refused. */
	assert_int_equal(
	        store_guardrail_assign(f->s, one.account, STR("g1"), &hash, 1, 9, &err), 0);
	assert_int_equal(make(f->s, &one, "g4", 1000, 5, &err), -ERR_INVALID);
	assert_int_equal(version_after(f->s, v, NULL), 0);
	assert_int_equal(store_phrase_allow(f->s, &far, STR("words"), 5, 200, &p, &err), 1);
	v = version_after(f->s, v, &far);
	assert_int_equal(store_phrase_disallow(f->s, far.account, str_of(p.id), &err), 0);
	v = version_after(f->s, v, &far);
	assert_int_equal(store_guardrail_delete(f->s, one.account, STR("g1"), &err), 0);
	version_after(f->s, v, &one);
}

static void loaded_at_once(void **state)
{
	struct fixture *f = *state;
	const struct str hashes[] = {STR(HASH_B), STR(HASH_A)};
	struct store_guardrails_all all = {0};
	struct store_phrase p;
	struct error err;

	assert_int_equal(store_guardrails_load(f->s, &one, &all, &err), 0);
	assert_true(all.version == 0 && all.n_guardrails == 0);
	assert_int_equal(make(f->s, &one, "g1", 1, 5, &err), 0);
	assert_int_equal(make(f->s, &two, "g2", 1, 5, &err), 0);
	assert_int_equal(
	        store_guardrail_assign(f->s, one.account, STR("g1"), hashes, 2, 9, &err), 2);
	assert_int_equal(store_phrase_allow(f->s, &one, STR("words"), 5, 200, &p, &err), 1);
	assert_int_equal(store_guardrails_load(f->s, &one, &all, &err), 0);
	assert_true(all.n_guardrails == 1 && all.n_keys == 2 && all.n_phrases == 1);
	assert_string_equal(all.keys[0].key_hash, HASH_A);
	assert_int_equal(all.version, version_after(f->s, 2, NULL));
	store_guardrails_all_clear(&all);
}

/* ---- what was found ---- */

static void settle(struct store *s, const struct store_scope *scope, const char *id, int64_t ms,
        unsigned n_hits)
{
	struct record *r = record_new();
	const struct store_record_op op = {STORE_RECORD_SETTLE, r};
	struct error err;

	str_copy(r->id, sizeof(r->id), str_of(id));
	record_set(&r->account, scope->account);
	record_set(&r->workspace, scope->workspace);
	record_set(&r->model, STR("p/m"));
	r->begin_ms = r->heartbeat_ms = ms;
	r->state = RECORD_SETTLED;
	r->store_content = true;
	for (unsigned i = 0; i < n_hits; i++) {
		struct record_hit *h = record_add_hit(r);

		record_set(&h->guardrail, STR("g"));
		record_set(&h->action, STR("flag"));
		record_set(&h->matched, STR("text"));
	}
	assert_int_equal(store_records_write(s, STR("h"), &op, 1, &err), 0);
	record_free(r);
}

/* The ids of a list in one text, "a.0 b.1 …", with "+" where there are more. */
static const char *hits(
        struct store *s, const struct store_scope *scope, const char *after, uint32_t limit)
{
	static char text[512];
	struct store_hit_list l = {0};
	struct error err;
	int r = store_hit_list(s, scope, str_of(after), limit, &l, &err);

	text[0] = 0;
	if (r < 0)
		str_format(text, sizeof(text), "%s", err.param);
	for (size_t i = 0; i < l.n; i++)
		str_format(text + strlen(text), sizeof(text) - strlen(text), "%s%s.%u",
		        i > 0 ? " " : "", l.rows[i].generation, l.rows[i].number);
	if (l.has_more)
		str_format(text + strlen(text), sizeof(text) - strlen(text), "+");
	store_hit_list_clear(&l);
	return text;
}

static void hits_are_listed(void **state)
{
	struct fixture *f = *state;
	struct error err;

	settle(f->s, &one, "a.b", 10, 2);
	settle(f->s, &one, "none", 11, 0);
	settle(f->s, &two, "c", 12, 1);
	settle(f->s, &one, "d", 13, 1);
	settle(f->s, &one, "d", 13, 1); /* once more: in its place */
	assert_string_equal(hits(f->s, &one, NULL, 10), "d.0 a.b.1 a.b.0");
	assert_string_equal(hits(f->s, &one, NULL, 2), "d.0 a.b.1+");
	assert_string_equal(hits(f->s, &one, "d.0", 1), "a.b.1+");
	assert_string_equal(hits(f->s, &one, "a.b.1", 10), "a.b.0");
	assert_string_equal(hits(f->s, &one, "a.b.0", 10), "");
	assert_string_equal(hits(f->s, &two, NULL, 10), "c.0");
	assert_string_equal(hits(f->s, &far, NULL, 10), "");
	assert_string_equal(hits(f->s, &one, "c.0", 10), "after");
	assert_string_equal(hits(f->s, &one, "nothing", 10), "after");
	/* They go with their generation. */
	assert_int_equal(store_records_expire(f->s, 11, 10, &err), 1);
	assert_string_equal(hits(f->s, &one, NULL, 10), "d.0");
}

static void hits_are_marked(void **state)
{
	struct fixture *f = *state;
	struct record *r = NULL;
	struct store_hit h = {0};
	struct error err;

	settle(f->s, &one, "a", 10, 2);
	assert_int_equal(store_hit_mark(f->s, &two, STR("a"), 0, true, &h, &err), -ERR_NOT_FOUND);
	assert_int_equal(store_hit_mark(f->s, &one, STR("a"), 2, true, &h, &err), -ERR_NOT_FOUND);
	assert_int_equal(store_hit_mark(f->s, &one, STR("b"), 0, true, &h, &err), -ERR_NOT_FOUND);
	assert_int_equal(store_hit_mark(f->s, &one, STR("a"), 1, true, &h, &err), 0);
	assert_true(h.found.false_positive && h.number == 1 && h.begin_ms == 10);
	assert_string_equal(h.found.matched, "text");
	store_hit_clear(&h);
	assert_int_equal(store_record_get(f->s, &one, STR("a"), &r, &err), 0);
	assert_true(!r->hits[0].false_positive && r->hits[1].false_positive);
	record_free(r);
	assert_int_equal(store_hit_mark(f->s, &one, STR("a"), 1, false, &h, &err), 0);
	assert_false(h.found.false_positive);
	store_hit_clear(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(kept_and_listed, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(changed_by_who_has_seen_it, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(bounded, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(assigned, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(phrases, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(changes_are_seen, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(loaded_at_once, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(hits_are_listed, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(hits_are_marked, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
