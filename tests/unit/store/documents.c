/* Documents: rows, pages, the quota, and blobs that rows share. */
#include "fixture.h"

#include <pthread.h>
#include <sqlite3.h>

static const struct store_scope one = {{"acme", 4}, {"one", 3}};
static const struct store_scope two = {{"acme", 4}, {"two", 3}};
static const struct store_scope far = {{"other", 5}, {"one", 3}};

#define PLENTY ((uint64_t)1 << 40)

static struct store_document document(const char *id, uint64_t bytes, const char *blob)
{
	struct store_document d = {.bytes = bytes, .created_ms = 1000, .purpose = "user_data"};

	str_copy(d.id, sizeof(d.id), str_of(id));
	str_copy(d.filename, sizeof(d.filename), STR("dir/a.txt"));
	str_copy(d.mime, sizeof(d.mime), STR("text/plain"));
	str_copy(d.blob, sizeof(d.blob), str_of(blob));
	return d;
}

/* Counts how often it was run; fails where it is told to. */
struct doing {
	int n, fail;
};

static int doing_fn(void *ctx, struct error *err)
{
	struct doing *d = ctx;

	d->n++;
	return d->fail ? error_set(err, ERR_UNAVAILABLE, "no room") : 0;
}

static int create(struct store *s, const struct store_scope *scope, const char *id, uint64_t bytes,
        uint64_t quota)
{
	struct store_document d = document(id, bytes, id);
	struct doing doing = {0, 0};
	int r = store_document_create(s, scope, &d, quota, doing_fn, &doing, NULL);

	assert_int_equal(doing.n, r == 0);
	return r;
}

static uint64_t usage(struct store *s, const struct store_scope *scope)
{
	uint64_t n = 99;

	assert_int_equal(store_document_usage(s, scope, &n, NULL), 0);
	return n;
}

static void test_row(void **state)
{
	struct fixture *f = *state;
	struct store_document d = document("or_file_1", 12, "doc/7f/aa"), got;
	struct doing doing = {0, 0};

	d.downloadable = true;
	d.expires_ms = 5000;
	assert_int_equal(store_document_create(f->s, &one, &d, PLENTY, doing_fn, &doing, NULL), 0);
	assert_int_equal(store_document_get(f->s, &one, STR("or_file_1"), 4999, &got, NULL), 0);
	assert_memory_equal(&got, &d, sizeof(d));
	assert_int_equal(
	        store_document_get(f->s, &one, STR("or_file_1"), 5000, &got, NULL), -ERR_NOT_FOUND);
	/* Another workspace and another account know nothing of it. */
	assert_int_equal(
	        store_document_get(f->s, &two, STR("or_file_1"), 0, &got, NULL), -ERR_NOT_FOUND);
	assert_int_equal(
	        store_document_get(f->s, &far, STR("or_file_1"), 0, &got, NULL), -ERR_NOT_FOUND);
	assert_int_equal(
	        store_document_delete(f->s, &two, STR("or_file_1"), 0, &got, NULL), -ERR_NOT_FOUND);
	assert_int_equal(usage(f->s, &one), 12);
	assert_int_equal(usage(f->s, &two), 0);
	assert_int_equal(store_document_delete(f->s, &one, STR("or_file_1"), 0, &got, NULL), 0);
	assert_string_equal(got.blob, "doc/7f/aa");
	assert_int_equal(
	        store_document_delete(f->s, &one, STR("or_file_1"), 0, &got, NULL), -ERR_NOT_FOUND);
	assert_int_equal(usage(f->s, &one), 0);
}

static void test_bad_arguments(void **state)
{
	struct fixture *f = *state;
	struct store_document d = document("", 1, "b"), got;
	struct doing doing = {0, 0};

	assert_int_equal(store_document_create(f->s, &one, &d, PLENTY, doing_fn, &doing, NULL),
	        -ERR_INVALID);
	d = document("x", 1, "");
	assert_int_equal(store_document_create(f->s, &one, &d, PLENTY, doing_fn, &doing, NULL),
	        -ERR_INVALID);
	d = document("x", UINT64_MAX, "b");
	assert_int_equal(store_document_create(f->s, &one, &d, UINT64_MAX, doing_fn, &doing, NULL),
	        -ERR_TOO_LARGE);
	assert_int_equal(doing.n, 0);
	assert_int_equal(store_document_get(f->s, &one, ((struct str){"a\0b", 3}), 0, &got, NULL),
	        -ERR_INVALID);
}

/* Where the blob cannot be made there is no row, and nothing counts. */
static void test_blob_fails(void **state)
{
	struct fixture *f = *state;
	struct store_document d = document("x", 10, "b"), got;
	struct doing doing = {0, 1};
	struct error err;

	assert_int_equal(store_document_create(f->s, &one, &d, PLENTY, doing_fn, &doing, &err),
	        -ERR_UNAVAILABLE);
	assert_string_equal(err.text, "no room");
	assert_int_equal(store_document_get(f->s, &one, STR("x"), 0, &got, NULL), -ERR_NOT_FOUND);
	assert_int_equal(usage(f->s, &one), 0);
	assert_int_equal(store_document_blob_used(f->s, STR("b"), NULL), 0);
}

static void test_quota(void **state)
{
	struct fixture *f = *state;
	struct store_document d = document("c", 1, "c"), got;
	struct doing doing = {0, 0};
	struct error err;

	assert_int_equal(create(f->s, &one, "a", 60, 100), 0);
	assert_int_equal(create(f->s, &one, "b", 40, 100), 0);
	assert_int_equal(store_document_create(f->s, &one, &d, 100, doing_fn, &doing, &err),
	        -ERR_PERMISSION);
	assert_string_equal(err.type, "storage_quota_exceeded");
	assert_int_equal(doing.n, 0);
	assert_int_equal(create(f->s, &one, "c", 1, 50), -ERR_PERMISSION); /* it was lowered */
	assert_int_equal(create(f->s, &two, "a", 100, 100), 0);
	assert_int_equal(create(f->s, &far, "a", 100, 100), 0);
	assert_int_equal(store_document_delete(f->s, &one, STR("a"), 0, &got, NULL), 0);
	assert_int_equal(create(f->s, &one, "c", 60, 100), 0);
	assert_int_equal(usage(f->s, &one), 100);
}

/* Files without a byte count too. The number is set, since making them all takes a minute. */
static void test_number(void **state)
{
	struct fixture *f = *state;
	struct store_document got;
	char sql[160];
	sqlite3 *db;

	assert_int_equal(create(f->s, &one, "a", 0, PLENTY), 0);
	assert_int_equal(sqlite3_open(f->place.path, &db), SQLITE_OK);
	snprintf(sql, sizeof(sql), "UPDATE document_usage SET n = n + %d", STORE_DOCUMENTS_MAX - 2);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	assert_int_equal(create(f->s, &one, "b", 0, PLENTY), 0);
	assert_int_equal(create(f->s, &one, "c", 0, PLENTY), -ERR_PERMISSION);
	assert_int_equal(create(f->s, &two, "c", 0, PLENTY), 0);
	assert_int_equal(store_document_delete(f->s, &one, STR("a"), 0, &got, NULL), 0);
	assert_int_equal(create(f->s, &one, "c", 0, PLENTY), 0);
}

struct racer {
	struct store *s;
	int index, made;
};

static void *race(void *arg)
{
	struct racer *r = arg;
	char id[32];

	for (int i = 0; i < 20; i++) {
		snprintf(id, sizeof(id), "r%d-%d", r->index, i);
		r->made += create(r->s, &one, id, 10, 105) == 0;
	}
	return NULL;
}

/* However many ask at once, on connections of their own: not one byte over. */
static void test_quota_race(void **state)
{
	struct fixture *f = *state;
	struct racer r[4];
	pthread_t t[4];
	int made = 0;

	for (int i = 0; i < 4; i++) {
		r[i] = (struct racer){place_open(&f->place), i, 0};
		assert_int_equal(pthread_create(&t[i], NULL, race, &r[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		made += r[i].made;
		store_close(r[i].s);
	}
	assert_int_equal(made, 10);
	assert_int_equal(usage(f->s, &one), 100);
}

static void expect_page(struct store *s, struct store_document_query q, const char *ids, bool more)
{
	struct store_document_list l = {0};
	char text[256] = "";
	struct error err;

	q.now_ms = q.now_ms ? q.now_ms : 1000;
	if (store_document_list(s, &one, &q, &l, &err) < 0)
		fail_msg("%s", err.text);
	for (size_t i = 0; i < l.n; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i ? " " : "",
		        l.rows[i].id);
	assert_string_equal(text, ids);
	assert_int_equal(l.has_more, more);
	store_document_list_clear(&l);
	store_document_list_clear(&l);
}

static void test_pages(void **state)
{
	struct fixture *f = *state;
	struct store_document d = document("f4", 1, "b");
	struct doing doing = {0, 0};
	struct store_document_list l;
	struct store_document got;

	for (int i = 1; i <= 6; i++) {
		char id[8];

		snprintf(id, sizeof(id), "f%d", i);
		if (i != 4)
			assert_int_equal(create(f->s, &one, id, 1, PLENTY), 0);
	}
	str_copy(d.purpose, sizeof(d.purpose), STR("vision"));
	d.expires_ms = 9000;
	assert_int_equal(store_document_create(f->s, &one, &d, PLENTY, doing_fn, &doing, NULL), 0);
	create(f->s, &two, "f7", 1, PLENTY);

	expect_page(f->s, (struct store_document_query){.limit = 4}, "f6 f5 f4 f3", true);
	expect_page(f->s, (struct store_document_query){.limit = 4, .after = STR("f3")}, "f2 f1",
	        false);
	expect_page(f->s, (struct store_document_query){.limit = 6, .ascending = true},
	        "f1 f2 f3 f4 f5 f6", false);
	expect_page(f->s,
	        (struct store_document_query){.limit = 2, .ascending = true, .after = STR("f3")},
	        "f4 f5", true);
	/* What stands before, nearest first to be chosen, in the list's own order. */
	expect_page(f->s, (struct store_document_query){.limit = 2, .before = STR("f3")}, "f5 f4",
	        true);
	expect_page(f->s,
	        (struct store_document_query){.limit = 2, .ascending = true, .before = STR("f3")},
	        "f1 f2", false);
	expect_page(f->s, (struct store_document_query){.limit = 9, .purpose = STR("vision")}, "f4",
	        false);
	expect_page(f->s, (struct store_document_query){.limit = 9, .now_ms = 9000},
	        "f6 f5 f3 f2 f1", false);
	/* A place that is gone is a place still. */
	assert_int_equal(store_document_delete(f->s, &one, STR("f3"), 0, &got, NULL), 0);
	expect_page(
	        f->s, (struct store_document_query){.limit = 1, .after = STR("f3")}, "f2", true);
	assert_int_equal(store_document_list(
	                         f->s, &one, &(struct store_document_query){.limit = 0}, &l, NULL),
	        -ERR_INVALID);
	assert_int_equal(store_document_list(f->s, &one,
	                         &(struct store_document_query){.limit = 10001}, &l, NULL),
	        -ERR_INVALID);
}

static void test_shared_blob(void **state)
{
	struct fixture *f = *state;
	struct store_document a = document("a", 1, "doc/1"), b = document("b", 1, "doc/1"), got;
	struct doing doing = {0, 0}, fails = {0, 1};

	store_document_create(f->s, &one, &a, PLENTY, doing_fn, &doing, NULL);
	store_document_create(f->s, &one, &b, PLENTY, doing_fn, &doing, NULL);
	doing.n = 0;
	store_document_delete(f->s, &one, STR("a"), 0, &got, NULL);
	assert_int_equal(store_document_blob_used(f->s, STR("doc/1"), NULL), 1);
	assert_int_equal(store_document_blob_unused(f->s, STR("doc/1"), doing_fn, &doing, NULL), 0);
	assert_int_equal(doing.n, 0);
	store_document_delete(f->s, &one, STR("b"), 0, &got, NULL);
	assert_int_equal(store_document_blob_unused(f->s, STR("doc/1"), doing_fn, &fails, NULL),
	        -ERR_UNAVAILABLE);
	assert_int_equal(store_document_blob_unused(f->s, STR("doc/1"), doing_fn, &doing, NULL), 1);
	assert_int_equal(doing.n, 1);
}

/* One makes rows with a blob, the other removes the blob where no row has it; `there` is the blob.
 */
struct shared {
	struct place *place;
	bool there;
	int faults;
};

static int make_blob(void *ctx, struct error *err)
{
	((struct shared *)ctx)->there = true;
	return 0;
}

static int remove_blob(void *ctx, struct error *err)
{
	((struct shared *)ctx)->there = false;
	return 0;
}

static int see_blob(void *ctx, struct error *err)
{
	((struct shared *)ctx)->faults++; /* run only where no row has the blob: never here */
	return 0;
}

static void *collect(void *arg)
{
	struct shared *s = arg;
	struct store *mine = place_open(s->place);

	for (int i = 0; i < 200; i++)
		if (store_document_blob_unused(mine, STR("b"), remove_blob, s, NULL) < 0)
			s->faults++;
	store_close(mine);
	return NULL;
}

static void test_collection_race(void **state)
{
	struct fixture *f = *state;
	struct shared s = {&f->place, false, 0};
	struct store_document d = document("d", 1, "b"), got;
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, collect, &s), 0);
	for (int i = 0; i < 60; i++) {
		assert_int_equal(
		        store_document_create(f->s, &one, &d, PLENTY, make_blob, &s, NULL), 0);
		/* There is a row: nobody removes its blob. */
		assert_true(s.there);
		assert_int_equal(store_document_blob_unused(f->s, STR("b"), see_blob, &s, NULL), 0);
		assert_true(s.there);
		assert_int_equal(store_document_delete(f->s, &one, STR("d"), 0, &got, NULL), 0);
	}
	pthread_join(t, NULL);
	assert_int_equal(s.faults, 0);
}

static void test_expire(void **state)
{
	struct fixture *f = *state;
	struct doing doing = {0, 0};

	for (int i = 0; i < 5; i++) {
		char id[8];
		struct store_document d;

		snprintf(id, sizeof(id), "e%d", i);
		d = document(id, 10, id);
		d.expires_ms = i * 1000;
		store_document_create(f->s, &one, &d, PLENTY, doing_fn, &doing, NULL);
	}
	assert_int_equal(store_documents_expire(f->s, 3000, 2, NULL), 2);
	assert_int_equal(store_documents_expire(f->s, 3000, 2, NULL), 1);
	assert_int_equal(store_documents_expire(f->s, 3000, 2, NULL), 0);
	assert_int_equal(usage(f->s, &one), 20);
	expect_page(f->s, (struct store_document_query){.limit = 9}, "e4 e0", false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_row, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_bad_arguments, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_blob_fails, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_quota, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_number, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_quota_race, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_pages, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_shared_blob, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_collection_race, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_expire, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
