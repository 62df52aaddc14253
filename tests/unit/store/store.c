/* The store's contract, call by call, in one process. */
#include "util.h"

#include "base/mem.h"

#include <sqlite3.h>
#include <sys/stat.h>

static const struct store_scope acme = {{"acme", 4}, {"main", 4}};
static const struct store_scope other = {{"acme", 4}, {"side", 4}};

static void test_create_and_get(void **state)
{
	struct store *s = place_open(*state);
	struct store_container c = row_make("sess_a", 1000), got = {0}, again = {0};
	struct error err = {0};

	c.network = mem_strdup("{\"type\":\"allowlist\"}");
	c.env = mem_strdup("{\"A\":\"b\"}");
	c.memory_mib = 4096;
	assert_int_equal(store_container_create(s, &acme, &c, &got, &err), 1);
	assert_string_equal(got.id, "sess_a");
	assert_string_equal(got.network, "{\"type\":\"allowlist\"}");
	assert_string_equal(got.env, "{\"A\":\"b\"}");
	assert_null(got.metadata);
	assert_int_equal(got.memory_mib, 4096);
	assert_false(got.deleting);

	/* The second of that id changes nothing and shows the first. */
	c.memory_mib = 1024;
	assert_int_equal(store_container_create(s, &acme, &c, &again, &err), 0);
	assert_int_equal(again.memory_mib, 4096);
	store_container_clear(&got);
	store_container_clear(&again);
	store_container_clear(&c);

	assert_int_equal(store_container_get(s, &acme, STR("nobody"), &got, &err), -ERR_NOT_FOUND);
	store_close(s);
}

static void test_workspaces_do_not_meet(void **state)
{
	struct store *s = place_open(*state);
	struct store_container c = row_make("same", 1000), got = {0};
	struct store_list list = {0};
	struct store_list_query q = {.limit = 10};

	assert_int_equal(store_container_create(s, &acme, &c, NULL, NULL), 1);
	assert_int_equal(store_container_get(s, &other, STR("same"), &got, NULL), -ERR_NOT_FOUND);
	assert_int_equal(store_container_list(s, &other, &q, &list, NULL), 0);
	assert_int_equal(list.n, 0);
	c.memory_mib = 2048;
	assert_int_equal(store_container_create(s, &other, &c, NULL, NULL), 1);
	assert_int_equal(store_container_mark_deleting(s, &other, STR("same"), 1, NULL), 0);
	assert_int_equal(store_container_delete(s, &acme, STR("same"), NULL), 0);
	assert_int_equal(store_container_delete(s, &other, STR("same"), NULL), 1);
	assert_int_equal(store_container_get(s, &acme, STR("same"), &got, NULL), 0);
	assert_int_equal(got.memory_mib, 1024);
	store_container_clear(&got);
	store_close(s);
}

static void test_touch(void **state)
{
	struct store *s = place_open(*state);
	struct store_container fresh = row_make("ignored", 500), got = {0};

	assert_int_equal(store_container_touch(s, &acme, STR("t"), 500, &fresh, NULL), 1);
	assert_int_equal(store_container_touch(s, &acme, STR("t"), 900, &fresh, NULL), 0);
	/* A clock that was set back does not make it look older. */
	assert_int_equal(store_container_touch(s, &acme, STR("t"), 700, &fresh, NULL), 0);
	assert_int_equal(store_container_get(s, &acme, STR("t"), &got, NULL), 0);
	assert_int_equal(got.last_used_ms, 900);
	assert_int_equal(got.created_ms, 500);
	assert_string_equal(got.id, "t");
	store_container_clear(&got);
	store_close(s);
}

static void test_keep_mark_delete(void **state)
{
	struct store *s = place_open(*state);
	struct store_container c = row_make("k", 1), got = {0};

	assert_int_equal(store_container_keep(s, &acme, STR("k"), 5, NULL), -ERR_NOT_FOUND);
	assert_int_equal(
	        store_container_mark_deleting(s, &acme, STR("k"), 9, NULL), -ERR_NOT_FOUND);
	store_container_create(s, &acme, &c, NULL, NULL);
	assert_int_equal(store_container_keep(s, &acme, STR("k"), 77, NULL), 0);
	assert_int_equal(store_container_mark_deleting(s, &acme, STR("k"), 9, NULL), 0);
	assert_int_equal(store_container_get(s, &acme, STR("k"), &got, NULL), 0);
	assert_int_equal(got.keep_until_ms, 77);
	assert_true(got.deleting);
	store_container_clear(&got);
	/* used again before the end of it: a new one, which the end leaves alone */
	c.created_ms = c.last_used_ms = 20;
	c.expires_ms = 3;
	assert_int_equal(store_container_touch(s, &acme, STR("k"), 20, &c, NULL), 1);
	assert_int_equal(store_container_delete(s, &acme, STR("k"), NULL), 0);
	assert_int_equal(store_container_get(s, &acme, STR("k"), &got, NULL), 0);
	assert_int_equal(got.created_ms, 20);
	assert_int_equal(got.keep_until_ms, 0);
	assert_int_equal(got.expires_ms, 3);
	assert_false(got.deleting);
	store_container_clear(&got);
	assert_int_equal(store_container_mark_deleting(s, &acme, STR("k"), 30, NULL), 0);
	assert_int_equal(store_container_create(s, &acme, &c, NULL, NULL), 1);
	assert_int_equal(store_container_create(s, &acme, &c, NULL, NULL), 0);
	assert_int_equal(store_container_mark_deleting(s, &acme, STR("k"), 40, NULL), 0);
	assert_int_equal(store_container_delete(s, &acme, STR("k"), NULL), 1);
	assert_int_equal(store_container_delete(s, &acme, STR("k"), NULL), 0);
	store_close(s);
}

/* Walks all pages and joins the ids. */
static void walk(struct store *s, struct store_list_query q, char *out, size_t size)
{
	char last[STORE_ID_MAX + 1];
	bool more = true;

	out[0] = 0;
	while (more) {
		struct store_list list = {0};
		struct error err = {0};

		assert_int_equal(store_container_list(s, &acme, &q, &list, &err), 0);
		assert_true(list.n <= q.limit);
		for (size_t i = 0; i < list.n; i++)
			strncat(out, list.rows[i].id, size - strlen(out) - 1);
		more = list.has_more;
		assert_true(!more || list.n == q.limit);
		if (list.n) {
			strcpy(last, list.rows[list.n - 1].id);
			q.after = str_of(last);
		}
		store_list_clear(&list);
	}
}

static void test_pages(void **state)
{
	/* Two were made in the same millisecond. */
	static const struct {
		const char *id;
		int64_t at;
	} rows[] = {{"b", 2}, {"d", 3}, {"c", 3}, {"a", 1}, {"e", 9}};
	struct store *s = place_open(*state);
	struct store_list list = {0};
	struct error err = {0};
	char ids[64];

	for (size_t i = 0; i < 5; i++) {
		struct store_container c = row_make(rows[i].id, rows[i].at);

		if (i == 1)
			str_copy(c.name, sizeof(c.name), STR("named"));
		assert_int_equal(store_container_create(s, &acme, &c, NULL, NULL), 1);
	}
	for (uint32_t limit = 1; limit <= 6; limit++) {
		walk(s, (struct store_list_query){.limit = limit}, ids, sizeof(ids));
		assert_string_equal(ids, "edcba");
		walk(s, (struct store_list_query){.limit = limit, .ascending = true}, ids,
		        sizeof(ids));
		assert_string_equal(ids, "abcde");
	}
	walk(s, (struct store_list_query){.limit = 2, .name = STR("named")}, ids, sizeof(ids));
	assert_string_equal(ids, "d");
	store_container_mark_deleting(s, &acme, STR("c"), 9, NULL);
	walk(s, (struct store_list_query){.limit = 2}, ids, sizeof(ids));
	assert_string_equal(ids, "edba");

	assert_int_equal(
	        store_container_list(s, &acme,
	                &(struct store_list_query){.limit = 2, .after = STR("zz")}, &list, &err),
	        -ERR_INVALID);
	assert_string_equal(err.param, "after");
	assert_int_equal(
	        store_container_list(s, &acme, &(struct store_list_query){.limit = 0}, &list, &err),
	        -ERR_INVALID);
	assert_int_equal(store_container_list(
	                         s, &acme, &(struct store_list_query){.limit = 1001}, &list, &err),
	        -ERR_INVALID);
	store_close(s);
}

static void test_stale(void **state)
{
	struct store *s = place_open(*state);
	struct store_container old = row_make("old", 10), kept = row_make("kept", 10),
	                       young = row_make("young", 100), gone = row_make("gone", 100),
	                       going = row_make("going", 10), brief = row_make("brief", 100);
	struct store_stale *list = NULL;
	size_t n = 0;
	bool saw_old = false, saw_gone = false, saw_brief = false;

	kept.keep_until_ms = 200000;
	brief.expires_ms = 50000;
	store_container_create(s, &acme, &old, NULL, NULL);
	store_container_create(s, &acme, &kept, NULL, NULL);
	store_container_create(s, &acme, &young, NULL, NULL);
	store_container_create(s, &other, &gone, NULL, NULL);
	store_container_create(s, &other, &going, NULL, NULL);
	store_container_create(s, &other, &brief, NULL, NULL);
	store_container_mark_deleting(s, &other, STR("gone"), 1000, NULL);
	store_container_mark_deleting(s, &other, STR("going"), 99000, NULL);
	assert_int_equal(store_container_stale(s, 99950, 100000, 100, &list, &n, NULL), 0);
	assert_int_equal(n, 3);
	for (size_t i = 0; i < n; i++) {
		saw_old |= strcmp(list[i].id, "old") == 0 && strcmp(list[i].workspace, "main") == 0;
		saw_gone |= strcmp(list[i].id, "gone") == 0 && list[i].deleting &&
		            strcmp(list[i].workspace, "side") == 0;
		saw_brief |= strcmp(list[i].id, "brief") == 0;
	}
	assert_true(saw_old && saw_gone && saw_brief);
	/* Used in between: it must stay. */
	store_container_touch(s, &acme, STR("old"), 400, &old, NULL);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(store_container_expire(s, &list[i], 100000, NULL),
		        strcmp(list[i].id, "old") == 0 ? 0 : 1);
	list = store_stale_free(list, n);
	/* Under way now; a minute later they are found again. */
	assert_int_equal(store_container_stale(s, 99950, 100001, 100, &list, &n, NULL), 0);
	assert_int_equal(n, 0);
	list = store_stale_free(list, n);
	assert_int_equal(store_container_stale(s, 159950, 160001, 100, &list, &n, NULL), 0);
	assert_int_equal(n, 3);
	list = store_stale_free(list, n);
	store_close(s);
}

static void test_call_ids(void **state)
{
	struct store *s = place_open(*state);
	struct store_call_id ids[2] = {
	        {STR("00112233445566778899aabbccddeeff"), STR("call/with odd:bytes\x01")},
	        {STR("ffeeddccbbaa99887766554433221100"), STR("second")}};
	struct store_call_id bad = {STR("short"), STR("x")};
	char *got = NULL;
	size_t n = 0;

	assert_int_equal(store_call_ids_put(s, &acme, ids, 2, 1000, NULL), 0);
	assert_int_equal(store_call_ids_put(s, &acme, ids, 1, 500, NULL), 0); /* not shortened */
	assert_int_equal(store_call_ids_put(s, &acme, &bad, 1, 500, NULL), -ERR_INVALID);
	assert_int_equal(store_call_id_get(s, &acme, ids[0].hash, 900, &got, &n, NULL), 0);
	assert_true(str_eq((struct str){got, n}, ids[0].upstream_id));
	free(got);
	assert_int_equal(
	        store_call_id_get(s, &other, ids[0].hash, 900, &got, &n, NULL), -ERR_NOT_FOUND);
	assert_int_equal(
	        store_call_id_get(s, &acme, ids[0].hash, 1000, &got, &n, NULL), -ERR_NOT_FOUND);
	assert_int_equal(store_call_ids_expire(s, 999, 10, NULL), 0);
	assert_int_equal(store_call_ids_expire(s, 1000, 1, NULL), 1);
	assert_int_equal(store_call_ids_expire(s, 1000, 10, NULL), 1);
	store_close(s);
}

static void test_keeper(void **state)
{
	struct store *s = place_open(*state);
	bool held = false;

	store_keeper_take(s, STR("node"), STR("one"), 1000, 100, &held, NULL);
	assert_true(held);
	store_keeper_take(s, STR("node"), STR("two"), 1050, 100, &held, NULL);
	assert_false(held);
	store_keeper_take(s, STR("node"), STR("one"), 1090, 100, &held, NULL);
	assert_true(held);
	store_keeper_take(s, STR("node"), STR("two"), 1150, 100, &held, NULL);
	assert_false(held);
	store_keeper_take(s, STR("node"), STR("two"), 1190, 100, &held, NULL);
	assert_true(held);
	store_keeper_drop(s, STR("node"), STR("one"), NULL); /* not its own */
	store_keeper_take(s, STR("node"), STR("one"), 1200, 100, &held, NULL);
	assert_false(held);
	store_keeper_drop(s, STR("node"), STR("two"), NULL);
	store_keeper_take(s, STR("node"), STR("one"), 1200, 100, &held, NULL);
	assert_true(held);
	/* The clock was set back by an hour: nobody waits for that hour. */
	store_keeper_take(s, STR("node"), STR("two"), 1200 - 3600000, 100, &held, NULL);
	assert_true(held);
	store_close(s);
}

static void test_arguments(void **state)
{
	struct store *s = place_open(*state);
	struct store_container c = row_make("x", 1), got;
	const struct store_scope none = {{"", 0}, {"w", 1}};
	char longer[STORE_ID_MAX + 2];

	memset(longer, 'a', sizeof(longer));
	longer[STORE_ID_MAX + 1] = 0;
	assert_int_equal(store_container_create(s, &none, &c, NULL, NULL), -ERR_INVALID);
	assert_int_equal(store_container_get(s, &acme, str_of(longer), &got, NULL), -ERR_INVALID);
	assert_int_equal(
	        store_container_get(s, &acme, (struct str){"a\0b", 3}, &got, NULL), -ERR_INVALID);
	assert_int_equal(store_container_get(s, &acme, STR("\xff"), &got, NULL), -ERR_INVALID);
	/* SQL in an id is only text. */
	assert_int_equal(
	        store_container_get(s, &acme, STR("'; DROP TABLE containers; --"), &got, NULL),
	        -ERR_NOT_FOUND);
	assert_int_equal(store_container_create(s, &acme, &c, NULL, NULL), 1);
	store_close(s);
}

static void test_reopen_and_mode(void **state)
{
	const struct place *p = *state;
	struct store *s = place_open(p);
	struct store_container c = row_make("stays", 1), got = {0};
	struct stat st;

	store_container_create(s, &acme, &c, NULL, NULL);
	assert_int_equal(stat(p->path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	store_close(s);
	s = place_open(p);
	assert_int_equal(store_container_get(s, &acme, STR("stays"), &got, NULL), 0);
	store_container_clear(&got);
	store_close(s);
}

static void damage(const struct place *p, const char *sql)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

static void test_refuses_newer_and_foreign(void **state)
{
	const struct place *p = *state;
	struct store_options o = {.path = p->path};
	struct error err = {0};
	struct store *s = NULL;

	store_close(place_open(p));
	damage(p, "PRAGMA user_version = 99");
	assert_int_equal(store_open(&o, &s, &err), -ERR_IO);
	assert_non_null(strstr(err.text, "newer brig"));
	unlink(p->path);

	damage(p, "CREATE TABLE theirs (a)");
	assert_int_equal(store_open(&o, &s, &err), -ERR_IO);
	assert_non_null(strstr(err.text, "another program"));
	assert_null(s);
}

static void test_no_database_at_all(void **state)
{
	const struct place *p = *state;
	struct store_options o = {.path = p->path};
	struct error err = {0};
	struct store *s = NULL;
	FILE *f = fopen(p->path, "w");

	for (int i = 0; i < 1000; i++)
		fputs("this is no database at all, not even nearly\n", f);
	fclose(f);
	assert_int_equal(store_open(&o, &s, &err), -ERR_IO);
	o.path = "/nonexistent/folder/brig.db";
	assert_int_equal(store_open(&o, &s, &err), -ERR_IO);
	assert_null(s);
}

static off_t size_of(const struct place *p, const char *end)
{
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s%s", p->path, end);
	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

/* The WAL is moved into the file long before a commit would have to do it, at 64 MB. */
static void test_the_wal_is_emptied_beside_commits(void **state)
{
	const struct place *p = *state;
	struct store *s = place_open(p);
	off_t before = size_of(p, "");
	struct error err = {0};
	char hash[33];

	for (int i = 0; i < 60000 && size_of(p, "") == before; i++) {
		snprintf(hash, sizeof(hash), "%032d", i);
		const struct store_call_id id = {str_of(hash), STR("call")};

		assert_int_equal(store_call_ids_put(s, &acme, &id, 1, 1000, &err), 0);
		assert_true(size_of(p, "-wal") < 60 << 20);
	}
	assert_true(size_of(p, "") > before);
	store_close(s);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, place_set_up, place_tear_down)
	const struct CMUnitTest tests[] = {
	        CASE(test_create_and_get),
	        CASE(test_workspaces_do_not_meet),
	        CASE(test_touch),
	        CASE(test_keep_mark_delete),
	        CASE(test_pages),
	        CASE(test_stale),
	        CASE(test_call_ids),
	        CASE(test_keeper),
	        CASE(test_arguments),
	        CASE(test_reopen_and_mode),
	        CASE(test_refuses_newer_and_foreign),
	        CASE(test_no_database_at_all),
	        CASE(test_the_wal_is_emptied_beside_commits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
