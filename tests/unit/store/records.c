/* Records: written whole, found again, listed by every filter, settled after a crash, and removed.
 */
#include "fixture.h"

#include "record/record.h"

static const struct store_scope one = {{"acme", 4}, {"one", 3}};
static const struct store_scope two = {{"acme", 4}, {"two", 3}};

static struct record *make(const char *id, int64_t begin_ms)
{
	struct record *r = record_new();

	str_copy(r->id, sizeof(r->id), str_of(id));
	record_set(&r->account, one.account);
	record_set(&r->workspace, one.workspace);
	record_set(&r->api, STR("chat"));
	record_set(&r->model, STR("p/m"));
	r->begin_ms = r->heartbeat_ms = begin_ms;
	r->store_content = true;
	return r;
}

static void fill(struct record *r)
{
	struct record_attempt *a = record_add_attempt(r);
	struct record_run *run = record_add_run(r);
	struct record_command *c = record_add_command(run);
	struct record_hit *h = record_add_hit(r);

	record_set(&a->provider, STR("p"));
	a->tokens = (struct record_tokens){.input = 7, .given = true};
	a->cost.pico = 2000000000;
	record_set(&run->tool, STR("openrouter:shell"));
	record_set(&c->command, STR("echo needle"));
	record_set(&c->out, STR("needle\n"));
	c->exit_code = 3;
	record_set(&h->action, STR("redact"));
	record_set(&h->matched, STR("secret"));
	record_set(&r->request, STR("{\"input\":\"question\"}"));
	r->state = RECORD_SETTLED;
	r->end_ms = r->begin_ms + 5;
	r->status = 200;
	r->total_cost.pico = 3000000000;
	r->tokens.input = 7;
}

static void put(struct store *s, const char *holder, enum store_record_what what, struct record *r)
{
	const struct store_record_op op = {what, r};
	struct error err;

	assert_int_equal(store_records_write(s, str_of(holder), &op, 1, &err), 0);
}

static void settled(struct store *s, const char *id, int64_t begin_ms)
{
	struct record *r = make(id, begin_ms);

	fill(r);
	put(s, "g", STORE_RECORD_SETTLE, r);
	record_free(r);
}

static struct record *get(struct store *s, const struct store_scope *scope, const char *id)
{
	struct record *r = NULL;
	struct error err;
	int code = store_record_get(s, scope, str_of(id), &r, &err);

	assert_true(code == 0 || code == -ERR_NOT_FOUND);
	return r;
}

static struct store_record_list list(struct store *s, struct store_record_query q)
{
	struct store_record_list l = {0};
	struct error err;

	q.limit = q.limit ? q.limit : 10;
	assert_int_equal(store_record_list(s, &one, &q, &l, &err), 0);
	return l;
}

static size_t count(struct store *s, struct store_record_query q)
{
	struct store_record_list l = list(s, q);
	size_t n = l.n;

	store_record_list_clear(&l);
	return n;
}

static void written_and_read(void **state)
{
	struct fixture *f = *state;
	struct record *r;

	settled(f->s, "gen-a", 1000);
	settled(f->s, "gen-a", 1000); /* once more: in its place, with its parts */
	r = get(f->s, &one, "gen-a");
	assert_non_null(r);
	assert_int_equal(r->state, RECORD_SETTLED);
	assert_int_equal(r->total_cost.pico, 3000000000);
	assert_true(r->n_attempts == 1 && r->n_runs == 1 && r->n_hits == 1);
	assert_int_equal(r->attempts[0].tokens.input, 7);
	assert_int_equal(r->attempts[0].cost.pico, 2000000000);
	assert_int_equal(r->runs[0].n_commands, 1);
	assert_string_equal(r->runs[0].commands[0].out, "needle\n");
	assert_int_equal(r->runs[0].commands[0].exit_code, 3);
	assert_string_equal(r->hits[0].matched, "secret");
	record_free(r);
	assert_null(get(f->s, &two, "gen-a"));
	assert_null(get(f->s, &one, "gen-b"));
}

static void listed_by_every_filter(void **state)
{
	struct fixture *f = *state;

	settled(f->s, "gen-a", 1000);
	settled(f->s, "gen-b", 2000);
	settled(f->s, "gen-c", 2000);
	const struct {
		struct store_record_query q;
		size_t n;
	} cases[] = {
	        {{.limit = 10}, 3},
	        {{.model = STR("p/m")}, 3},
	        {{.model = STR("p/n")}, 0},
	        {{.api = STR("chat")}, 3},
	        {{.api = STR("exec")}, 0},
	        {{.user = STR("jo")}, 0},
	        {{.from_ms = 2000}, 2},
	        {{.until_ms = 2000}, 1},
	        {{.after = STR("gen-c"), .until_ms = 1000}, 0},
	        {{.after = STR("gen-b")}, 1},
	        {{.ended_from_ms = 2005}, 2},
	        {{.ended_from_ms = 2006}, 0},
	        {{.status = 2}, 3},
	        {{.status = 200}, 3},
	        {{.status = 4}, 0},
	        {{.status = 404}, 0},
	        {{.state = RECORD_SETTLED + 1}, 3},
	        {{.state = RECORD_OPEN + 1}, 0},
	        {{.hit = STR("any")}, 3},
	        {{.hit = STR("redact")}, 3},
	        {{.hit = STR("block")}, 0},
	        {{.text = STR("needle")}, 3},
	        {{.text = STR("question")}, 3},
	        {{.text = STR("haystack")}, 0},
	        {{.provider = STR("p")}, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (count(f->s, cases[i].q) != cases[i].n)
			fail_msg("case %zu: %zu, not %zu", i, count(f->s, cases[i].q), cases[i].n);
}

static void paged_though_rows_go(void **state)
{
	struct fixture *f = *state;
	struct store_record_list l;
	struct store_record_place at;
	struct error err;

	settled(f->s, "gen-a", 1000);
	settled(f->s, "gen-b", 1000);
	settled(f->s, "gen-c", 1000);
	l = list(f->s, (struct store_record_query){.limit = 2});
	assert_true(l.n == 2 && l.has_more);
	assert_string_equal(l.rows[0]->id, "gen-c");
	assert_true(l.rows[0]->n_runs == 0 && l.rows[0]->request == NULL);
	at = l.last;
	store_record_list_clear(&l);
	assert_int_equal(store_records_expire(f->s, 2000, 10, &err), 3);
	settled(f->s, "gen-d", 500);
	l = list(f->s, (struct store_record_query){.limit = 2, .behind = at});
	assert_true(l.n == 1 && !l.has_more);
	assert_string_equal(l.rows[0]->id, "gen-d");
	store_record_list_clear(&l);
}

static void parts_and_content_are_asked_for(void **state)
{
	struct fixture *f = *state;
	struct store_record_list l;

	settled(f->s, "gen-a", 1000);
	settled(f->s, "gen-b", 2000);
	l = list(f->s, (struct store_record_query){.parts = true});
	assert_true(l.n == 2 && l.rows[0]->n_runs == 1 && l.rows[0]->n_attempts == 1);
	assert_int_equal(l.rows[0]->runs[0].commands[0].exit_code, 3);
	assert_null(l.rows[0]->runs[0].commands[0].out);
	assert_null(l.rows[0]->hits[0].matched);
	assert_string_equal(l.rows[0]->hits[0].action, "redact");
	assert_null(l.rows[0]->request);
	store_record_list_clear(&l);
	l = list(
	        f->s, (struct store_record_query){.parts = true, .content = true, .most_bytes = 1});
	assert_true(l.n == 1 && l.has_more); /* one, however large */
	assert_string_equal(l.rows[0]->runs[0].commands[0].out, "needle\n");
	assert_string_equal(l.rows[0]->request, "{\"input\":\"question\"}");
	store_record_list_clear(&l);
}

static void recovered_after_a_crash(void **state)
{
	struct fixture *f = *state;
	struct record *r = make("gen-a", 1000), *beat = make("gen-a", 1000),
	              *other = make("gen-b", 1000);
	struct error err;

	put(f->s, "g/0", STORE_RECORD_OPEN, r);
	put(f->s, "g/1", STORE_RECORD_OPEN, other);
	beat->heartbeat_ms = 6000;
	beat->sandbox_ms = 5000;
	beat->total_cost.pico = 500000000;
	put(f->s, "g/0", STORE_RECORD_BEAT, beat);
	assert_int_equal(count(f->s, (struct store_record_query){.state = RECORD_OPEN + 1}), 2);
	assert_int_equal(store_records_recover(f->s, STR("g/0"), 0, &err), 1);
	record_free(r);
	r = get(f->s, &one, "gen-a");
	assert_int_equal(r->state, RECORD_RECOVERED);
	assert_int_equal(r->end_ms, 6000);
	assert_int_equal(r->total_cost.pico, 500000000);
	record_free(r);
	/* A heartbeat that comes too late changes nothing. */
	beat->sandbox_ms = 9000;
	put(f->s, "g/0", STORE_RECORD_BEAT, beat);
	r = get(f->s, &one, "gen-a");
	assert_int_equal(r->sandbox_ms, 5000);
	record_free(r);
	assert_int_equal(store_records_recover(f->s, (struct str){NULL, 0}, 1000, &err), 0);
	assert_int_equal(store_records_recover(f->s, (struct str){NULL, 0}, 1001, &err), 1);
	record_free(beat);
	record_free(other);
}

static void forgotten_and_expired(void **state)
{
	struct fixture *f = *state;
	struct record *r = make("gen-open", 10);
	struct error err;

	settled(f->s, "gen-a", 1000);
	assert_int_equal(store_record_forget(f->s, &two, STR("gen-a"), &err), -ERR_NOT_FOUND);
	assert_int_equal(store_record_forget(f->s, &one, STR("gen-a"), &err), 0);
	put(f->s, "g", STORE_RECORD_OPEN, r);
	record_free(r);
	r = get(f->s, &one, "gen-a");
	assert_true(r->request == NULL && r->runs[0].commands[0].command == NULL &&
	            r->hits[0].matched == NULL && !r->store_content);
	assert_int_equal(r->total_cost.pico, 3000000000);
	record_free(r);
	assert_int_equal(store_records_expire(f->s, 1000, 10, &err), 0); /* open ones stay */
	assert_int_equal(store_records_expire(f->s, 1001, 10, &err), 1);
	assert_null(get(f->s, &one, "gen-a"));
}

static void summed(void **state)
{
	struct fixture *f = *state;
	struct store_record_total *t = NULL;
	struct error err;
	size_t n = 0;

	settled(f->s, "gen-a", 1000);
	settled(f->s, "gen-b", 2000);
	settled(f->s, "gen-c", 86400000);
	assert_int_equal(store_record_totals(f->s, &one, 0, INT64_MAX, 100, &t, &n, &err), 0);
	assert_int_equal(n, 2);
	assert_true(t[0].day_ms == 86400000 && t[0].requests == 1);
	assert_true(t[1].requests == 2 && t[1].total_cost == 6000000000 && t[1].input == 14);
	store_record_totals_free(t, n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(written_and_read, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(listed_by_every_filter, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(paged_though_rows_go, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(parts_and_content_are_asked_for, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(recovered_after_a_crash, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(forgotten_and_expired, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(summed, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
