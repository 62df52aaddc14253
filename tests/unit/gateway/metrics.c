/* What is counted of a record, and that nothing of it can grow the table. */
#include "unit.h"

#include "gateway/internal.h"
#include "gateway/metrics.h"

#include <stdlib.h>

enum { N = METRICS_PROVIDERS + 2 };

struct bench {
	struct gateway g;
	struct config config;
	struct config_provider providers[N];
	char names[N][16];
};

static struct bench *bench_new(void)
{
	struct bench *b = mem_alloc(sizeof(*b));
	struct error err;

	for (size_t i = 0; i < N; i++) {
		str_format(b->names[i], sizeof(b->names[i]), "p%zu", i);
		b->providers[i].name = b->names[i];
	}
	b->config.providers = b->providers;
	b->config.n_providers = N;
	b->g.config = &b->config;
	b->g.shared = shared_map(-1, &err);
	assert_non_null(b->g.shared);
	return b;
}

static void bench_free(struct bench *b)
{
	b->g.shared = shared_unmap(b->g.shared);
	free(b);
}

static struct record *turn_of(const char *provider, int status, const char *error)
{
	struct record *r = record_new();

	record_set(&r->api, STR("responses"));
	record_set(&r->provider, str_of(provider));
	record_set(&r->error, str_of(error));
	r->status = status;
	return r;
}

static uint64_t turns(const struct bench *b, size_t provider, enum metrics_outcome how)
{
	return metric_get(&b->g.shared->metrics.turns[METRICS_RESPONSES][provider][how]);
}

static void count(struct bench *b, struct record *r)
{
	metrics_record(&b->g, r);
	record_free(r);
}

static void outcomes(void **state)
{
	struct bench *b = bench_new();
	struct record *r;

	count(b, turn_of("p0", 200, NULL));
	assert_int_equal(turns(b, 0, METRICS_COMPLETED), 1);
	count(b, turn_of("p0", 200, "it broke in the middle"));
	assert_int_equal(turns(b, 0, METRICS_FAILED), 1);
	count(b, turn_of(NULL, 404, "no such model"));
	assert_int_equal(turns(b, METRICS_NO_PROVIDER, METRICS_REFUSED), 1);
	count(b, turn_of(NULL, 429, "too many"));
	count(b, turn_of(NULL, 402, "too much"));
	assert_int_equal(turns(b, METRICS_NO_PROVIDER, METRICS_LIMITED), 2);
	r = turn_of("p0", 429, "the provider's own");
	record_set(&record_add_attempt(r)->provider, STR("p0"));
	count(b, r);
	assert_int_equal(turns(b, 0, METRICS_FAILED), 2);
	r = turn_of("p0", 200, NULL);
	record_set(&r->finish, STR("length"));
	count(b, r);
	assert_int_equal(turns(b, 0, METRICS_INCOMPLETE), 1);
	r = turn_of("p0", 0, NULL);
	r->cancelled = true;
	count(b, r);
	assert_int_equal(turns(b, 0, METRICS_CANCELED), 1);
	r = turn_of(NULL, 403, "blocked");
	record_set(&record_add_hit(r)->action, STR("flag"));
	record_set(&record_add_hit(r)->action, STR("block"));
	count(b, r);
	assert_int_equal(turns(b, METRICS_NO_PROVIDER, METRICS_BLOCKED), 1);
	assert_int_equal(metric_get(&b->g.shared->metrics.hits[METRICS_FLAG]), 1);
	bench_free(b);
}

static void providers(void **state)
{
	struct bench *b = bench_new();
	struct metrics_shared *m = &b->g.shared->metrics;
	char last[16];
	struct record *r;

	str_format(last, sizeof(last), "p%d", METRICS_PROVIDERS - 1);
	count(b, turn_of(last, 200, NULL));
	assert_int_equal(turns(b, METRICS_PROVIDERS - 1, METRICS_COMPLETED), 1);
	count(b, turn_of(b->names[N - 1], 200, NULL));
	count(b, turn_of("that was in an earlier configuration", 200, NULL));
	assert_int_equal(turns(b, METRICS_OTHER, METRICS_COMPLETED), 2);
	r = turn_of("p1", 502, "none");
	for (int i = 0; i < 6; i++) {
		static const int statuses[] = {0, 429, 404, 503, 200, 200};
		struct record_attempt *a = record_add_attempt(r);

		record_set(&a->provider, STR("p1"));
		a->status = statuses[i];
		record_set(&a->error, i < 5 ? STR("failed") : (struct str){NULL, 0});
	}
	count(b, r);
	assert_int_equal(metric_get(&m->attempts[1]), 6);
	for (size_t f = 0; f < METRICS_FAILURES; f++)
		assert_int_equal(metric_get(&m->failures[1][f]), 1);
	bench_free(b);
}

/* Clocks that were set back, and times beyond every bound. */
static void times(void **state)
{
	struct bench *b = bench_new();
	struct metrics_histogram *h = &b->g.shared->metrics.turn[METRICS_RESPONSES];
	struct record *r = turn_of("p0", 200, NULL);

	r->begin_ms = 1000;
	r->end_ms = 10;
	count(b, r);
	assert_int_equal(metric_get(&h->in[0]), 1);
	assert_int_equal(metric_get(&h->sum_ns), 0);
	r = turn_of("p0", 200, NULL);
	r->begin_ms = 1;
	r->end_ms = 2;
	count(b, r); /* a bound is within its bucket */
	assert_int_equal(metric_get(&h->in[0]), 2);
	r = turn_of("p0", 200, NULL);
	r->begin_ms = 1;
	r->end_ms = 300002;
	count(b, r);
	assert_int_equal(metric_get(&h->in[METRICS_BUCKETS]), 1);
	assert_int_equal(metric_get(&h->sum_ns), UINT64_C(1000000) + UINT64_C(300001000000));
	bench_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(outcomes), cmocka_unit_test(providers), cmocka_unit_test(times)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
