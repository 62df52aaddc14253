/* What egress let through and refused, kept with the runs in whose time it was. */
#include "fixture.h"

#include "record/record.h"
#include "store/backend.h"

#include <sqlite3.h>

static const struct store_scope one = {{"acme", 4}, {"one", 3}};

static struct record *make(const char *id, const char *container, int64_t begin_ms)
{
	struct record *r = record_new();
	struct record_run *run = record_add_run(r);

	str_copy(r->id, sizeof(r->id), str_of(id));
	record_set(&r->account, one.account);
	record_set(&r->workspace, one.workspace);
	record_set(&r->api, STR("exec"));
	r->begin_ms = r->heartbeat_ms = run->begin_ms = begin_ms;
	r->store_content = true;
	record_set(&run->container_id, str_of(container));
	return r;
}

/* One more run; the last one ends, if it has not. */
static void next_run(struct record *r, const char *container, int64_t begin_ms)
{
	struct record_run *run = record_add_run(r);

	record_set(&run->container_id, str_of(container));
	run->begin_ms = begin_ms;
}

static void put(struct store *s, enum store_record_what what, struct record *r)
{
	const struct store_record_op op = {what, r};
	struct error err;

	assert_int_equal(store_records_write(s, STR("g"), &op, 1, &err), 0);
}

static void end(struct record *r, size_t run, int64_t end_ms)
{
	r->runs[run].end_ms = end_ms;
	record_set(&r->runs[run].status, STR("completed"));
}

static void settle(struct store *s, struct record *r, int64_t end_ms)
{
	if (r->runs[r->n_runs - 1].end_ms == 0)
		end(r, r->n_runs - 1, end_ms);
	r->end_ms = end_ms;
	r->state = RECORD_SETTLED;
	put(s, STORE_RECORD_SETTLE, r);
	record_free(r);
}

static void make_container(struct store *s, const char *id)
{
	struct store_container c = row_make(id, 1);
	struct error err;

	assert_true(store_container_create(s, &one, &c, NULL, &err) >= 0);
}

static void remove_container(struct store *s, const char *id)
{
	struct error err;

	assert_int_equal(store_container_mark_deleting(s, &one, str_of(id), 9, &err), 0);
	assert_int_equal(store_container_delete(s, &one, str_of(id), &err), 1);
}

static struct store_network verdict(
        const char *container, int64_t time_ms, const char *host, bool allowed)
{
	struct store_network n = {
	        .time_ms = time_ms, .port = 443, .allowed = allowed, .bytes_in = 7, .bytes_out = 5};

	str_copy(n.account, sizeof(n.account), one.account);
	str_copy(n.workspace, sizeof(n.workspace), one.workspace);
	str_copy(n.container, sizeof(n.container), str_of(container));
	str_copy(n.name, sizeof(n.name), str_of(host));
	str_copy(n.reason, sizeof(n.reason), allowed ? STR("allowed") : STR("not allowed"));
	return n;
}

static void tell_all(struct store *s, const struct store_network *n, size_t count)
{
	struct error err;

	assert_int_equal(store_network_add(s, n, count, &err), 0);
}

static void tell(
        struct store *s, const char *container, int64_t time_ms, const char *host, bool allowed)
{
	const struct store_network n = verdict(container, time_ms, host, allowed);

	tell_all(s, &n, 1);
}

static struct record *get(struct store *s, const char *id)
{
	struct record *r = NULL;
	struct error err;

	assert_int_equal(store_record_get(s, &one, str_of(id), &r, &err), 0);
	return r;
}

/* The hosts of a run as one text: "-refused.test*2 +reached.test*1". */
static const char *hosts_of(struct store *s, const char *id, size_t run, uint64_t *ret_counts)
{
	static char text[4096];
	struct record *r = get(s, id);
	size_t n = 0;

	text[0] = 0;
	assert_true(run < r->n_runs);
	for (size_t i = 0; i < r->runs[run].n_hosts; i++) {
		const struct record_host *h = &r->runs[run].hosts[i];

		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%c%s*%d", i > 0 ? " " : "",
		        h->allowed ? '+' : '-', h->host, (int)h->n);
	}
	if (ret_counts) {
		ret_counts[0] = r->runs[run].network_allowed;
		ret_counts[1] = r->runs[run].network_denied;
	}
	record_free(r);
	return text;
}

static void assert_run(
        struct store *s, const char *id, size_t run, const char *hosts, int allowed, int denied)
{
	uint64_t counts[2];

	assert_string_equal(hosts_of(s, id, run, counts), hosts);
	assert_int_equal(counts[0], allowed);
	assert_int_equal(counts[1], denied);
}

/* How often the files of the store hold a text, with what waits in its log. */
static size_t on_disk(const struct place *p, const char *text)
{
	static const char *const ends[] = {"", "-wal"};
	size_t found = 0;

	for (size_t i = 0; i < 2; i++) {
		char path[96];
		FILE *f;
		char *all = malloc(16 << 20);
		size_t n = 0;

		snprintf(path, sizeof(path), "%s%s", p->path, ends[i]);
		f = fopen(path, "rb");
		if (f != NULL) {
			n = fread(all, 1, 16 << 20, f);
			fclose(f);
		}
		for (size_t at = 0; at + strlen(text) <= n; at++)
			found += memcmp(all + at, text, strlen(text)) == 0;
		free(all);
	}
	return found;
}

static sqlite3 *raw(const struct place *p)
{
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	sqlite3_busy_timeout(db, 5000);
	return db;
}

static void say(sqlite3 *db, const char *sql)
{
	char *why = NULL;

	if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
		fail_msg("%s: %s", sql, why);
}

static int ask(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *st = NULL;
	int n;

	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	n = sqlite3_column_int(st, 0);
	sqlite3_finalize(st);
	return n;
}

/* ---- the tests ---- */

static void kept_though_the_container_goes(void **state)
{
	struct fixture *f = *state;
	struct record *r = make("gen-a", "c", 1000);
	struct store_network n[4] = {verdict("c", 1100, "a.test", true),
	        verdict("c", 1200, "a.test", true), verdict("c", 1300, "b.test", false),
	        verdict("c", 1400, "", true)};

	make_container(f->s, "c");
	put(f->s, STORE_RECORD_OPEN, r);
	str_copy(n[3].address, sizeof(n[3].address), STR("192.0.2.1"));
	n[1].more = 4; /* of whatever hosts */
	tell_all(f->s, n, 4);
	/* It is told while it is under way, too. */
	assert_run(f->s, "gen-a", 0, "-b.test*1 +192.0.2.1*1 +a.test*2", 7, 1);
	settle(f->s, r, 2000);
	assert_run(f->s, "gen-a", 0, "-b.test*1 +192.0.2.1*1 +a.test*2", 7, 1);
	remove_container(f->s, "c");
	assert_run(f->s, "gen-a", 0, "-b.test*1 +192.0.2.1*1 +a.test*2", 7, 1);
	r = get(f->s, "gen-a");
	assert_string_equal(r->runs[0].hosts[0].reason, "not allowed");
	assert_string_equal(r->runs[0].hosts[2].reason, "allowed");
	assert_int_equal(r->runs[0].hosts[2].bytes_in, 14);
	assert_int_equal(r->runs[0].hosts[2].bytes_out, 10);
	record_free(r);
}

static void told_long_after_the_run(void **state)
{
	struct fixture *f = *state;

	make_container(f->s, "c");
	settle(f->s, make("gen-a", "c", 1000), 2000);
	tell(f->s, "c", 999, "before.test", true);
	tell(f->s, "c", 1000, "first.test", true);
	tell(f->s, "c", 2000, "last.test", false);
	tell(f->s, "c", 2001, "after.test", true);
	/* What it began ends with its container. */
	remove_container(f->s, "c");
	tell(f->s, "c", 1500, "long.test", true);
	tell(f->s, "d", 1500, "other.test", true);
	assert_run(f->s, "gen-a", 0, "-last.test*1 +first.test*1 +long.test*1", 2, 1);
}

static void told_before_the_run_has_its_row(void **state)
{
	struct fixture *f = *state;
	struct record *r = make("gen-a", "c", 1000);

	make_container(f->s, "c");
	tell(f->s, "c", 900, "before.test", true);
	tell(f->s, "c", 1100, "a.test", true);
	tell(f->s, "c", 1200, "a.test", true);
	tell(f->s, "c", 1200, "b.test", false);
	put(f->s, STORE_RECORD_OPEN, r);
	assert_run(f->s, "gen-a", 0, "-b.test*1 +a.test*2", 2, 1);
	put(f->s, STORE_RECORD_BEAT, r); /* once more: they count once */
	tell(f->s, "c", 1300, "a.test", true);
	settle(f->s, r, 1300);
	assert_run(f->s, "gen-a", 0, "-b.test*1 +a.test*3", 3, 1);
	/* One that gets its row when it is over. */
	settle(f->s, make("gen-b", "c", 1150), 1250);
	assert_run(f->s, "gen-b", 0, "-b.test*1 +a.test*1", 1, 1);
}

/* The end of a run is written a moment after it: what came meanwhile is not of it. */
static void two_runs_are_told_apart(void **state)
{
	struct fixture *f = *state;
	struct record *r = make("gen-a", "c", 1000);

	make_container(f->s, "c");
	put(f->s, STORE_RECORD_OPEN, r);
	tell(f->s, "c", 1100, "first.test", true);
	tell(f->s, "c", 1100, "both.test", true);
	tell(f->s, "c", 1600, "second.test", true);
	tell(f->s, "c", 1600, "both.test", true);
	tell(f->s, "c", 1600, "both.test", false);
	end(r, 0, 1400);
	next_run(r, "c", 1500);
	put(f->s, STORE_RECORD_BEAT, r);
	assert_run(f->s, "gen-a", 0, "+both.test*1 +first.test*1", 2, 0);
	assert_run(f->s, "gen-a", 1, "-both.test*1 +both.test*1 +second.test*1", 2, 1);
	tell(f->s, "c", 1350, "first.test", true);
	tell(f->s, "c", 1450, "between.test", true);
	tell(f->s, "c", 1700, "second.test", true);
	settle(f->s, r, 1800);
	assert_run(f->s, "gen-a", 0, "+both.test*1 +first.test*2", 3, 0);
	assert_run(f->s, "gen-a", 1, "-both.test*1 +both.test*1 +second.test*2", 3, 1);
}

static void runs_at_once_have_it_both(void **state)
{
	struct fixture *f = *state;
	struct record *a = make("gen-a", "c", 1000), *b = make("gen-b", "c", 1100),
	              *other = make("gen-c", "c", 1000), *elsewhere = make("gen-d", "d", 1000);
	struct record *seen = NULL;
	struct error err;
	const struct store_scope two = {one.account, STR("two")};

	make_container(f->s, "c");
	record_set(&other->workspace, two.workspace);
	put(f->s, STORE_RECORD_OPEN, a);
	put(f->s, STORE_RECORD_OPEN, b);
	put(f->s, STORE_RECORD_OPEN, other);
	put(f->s, STORE_RECORD_OPEN, elsewhere);
	tell(f->s, "c", 1050, "early.test", true);
	tell(f->s, "c", 1150, "late.test", true);
	settle(f->s, a, 1200);
	settle(f->s, b, 1200);
	settle(f->s, elsewhere, 1200);
	settle(f->s, other, 1200);
	assert_run(f->s, "gen-a", 0, "+early.test*1 +late.test*1", 2, 0);
	assert_run(f->s, "gen-b", 0, "+late.test*1", 1, 0);
	assert_run(f->s, "gen-d", 0, "", 0, 0);
	assert_int_equal(store_record_get(f->s, &two, STR("gen-c"), &seen, &err), 0);
	assert_true(seen->runs[0].n_hosts == 0 && seen->runs[0].network_allowed == 0);
	record_free(seen);
}

static void hosts_are_bounded(void **state)
{
	struct fixture *f = *state;
	struct record *r = make("gen-a", "c", 1000), *late;
	char host[32];

	make_container(f->s, "c");
	put(f->s, STORE_RECORD_OPEN, r);
	for (int i = 0; i < 40; i++) {
		snprintf(host, sizeof(host), "h%02d.test", i);
		tell(f->s, "c", 1000 + i, host, true);
	}
	tell(f->s, "c", 1100, "h00.test", true);
	tell(f->s, "c", 1100, "h39.test", true);
	late = make("gen-late", "c", 1000); /* counted all at once */
	settle(f->s, late, 2000);
	settle(f->s, r, 2000);
	for (int i = 0; i < 2; i++) {
		r = get(f->s, i == 0 ? "gen-a" : "gen-late");
		assert_int_equal(r->runs[0].n_hosts, STORE_RUN_HOSTS_MAX);
		assert_int_equal(r->runs[0].network_allowed, 42);
		assert_string_equal(r->runs[0].hosts[0].host, "h00.test");
		assert_int_equal(r->runs[0].hosts[0].n, 2);
		assert_string_equal(r->runs[0].hosts[31].host, "h31.test");
		record_free(r);
	}
}

/* Egress may lie: sums stay numbers. */
static void bytes_do_not_overflow(void **state)
{
	struct fixture *f = *state;
	struct record *r = make("gen-a", "c", 1000);
	struct store_network n = verdict("c", 1100, "a.test", true);

	make_container(f->s, "c");
	n.bytes_in = n.bytes_out = INT64_MAX;
	n.more = UINT32_MAX;
	tell_all(f->s, &n, 1);
	tell_all(f->s, &n, 1);
	put(f->s, STORE_RECORD_OPEN, r);
	tell_all(f->s, &n, 1);
	settle(f->s, r, 1200);
	r = get(f->s, "gen-a");
	assert_int_equal(r->runs[0].network_allowed, 3 * (INT64_C(1) + UINT32_MAX));
	assert_int_equal(r->runs[0].hosts[0].n, 3);
	assert_int_equal(r->runs[0].hosts[0].bytes_in, 3 * (INT64_C(1) << 50));
	record_free(r);
}

static void no_names_without_content(void **state)
{
	struct fixture *f = *state;
	struct record *r = make("gen-a", "gone", 1000), *kept = make("gen-b", "also-gone", 1000);

	r->store_content = false;
	put(f->s, STORE_RECORD_OPEN, r);
	put(f->s, STORE_RECORD_OPEN, kept);
	/* Of containers that have no row, so that they have no records of their own. */
	tell(f->s, "gone", 1100, "secret-name.test", true);
	tell(f->s, "gone", 1100, "secret-name.test", false);
	tell(f->s, "also-gone", 1100, "public-name.test", false);
	settle(f->s, r, 1200);
	settle(f->s, kept, 1200);
	tell(f->s, "gone", 1150, "secret-name.test", false);
	assert_run(f->s, "gen-a", 0, "", 1, 2);
	assert_run(f->s, "gen-b", 0, "-public-name.test*1", 0, 1);
	assert_int_equal(on_disk(&f->place, "secret-name"), 0);
	assert_true(on_disk(&f->place, "public-name") > 0);
	/* Nor where it was there before the run. */
	make_container(f->s, "c");
	tell(f->s, "c", 1100, "secret-name.test", true);
	r = make("gen-c", "c", 1000);
	r->store_content = false;
	settle(f->s, r, 1200);
	assert_run(f->s, "gen-c", 0, "", 1, 0);
}

static void names_go_with_the_content(void **state)
{
	struct fixture *f = *state;
	struct error err;

	make_container(f->s, "c");
	settle(f->s, make("gen-a", "c", 1000), 2000);
	tell(f->s, "c", 1100, "a.test", true);
	assert_int_equal(store_record_forget(f->s, &one, STR("gen-a"), &err), 0);
	tell(f->s, "c", 1200, "a.test", true);
	assert_run(f->s, "gen-a", 0, "", 2, 0);
}

static void they_go_with_the_record(void **state)
{
	struct fixture *f = *state;
	sqlite3 *db = raw(&f->place);
	struct error err;

	settle(f->s, make("gen-a", "c", 1000), 2000);
	tell(f->s, "c", 1100, "a.test", true);
	assert_int_equal(ask(db, "SELECT count(*) FROM record_network"), 1);
	assert_int_equal(store_records_expire(f->s, 1001, 10, &err), 1);
	assert_int_equal(ask(db, "SELECT count(*) FROM record_network"), 0);
	assert_int_equal(ask(db, "SELECT count(*) FROM record_runs"), 0);
	sqlite3_close(db);
	/* The next record has its number, and none of it. */
	settle(f->s, make("gen-b", "c", 5000), 6000);
	assert_run(f->s, "gen-b", 0, "", 0, 0);
}

/* A gateway that dies: its runs end with it, and what they had reached is known. */
static void recovered_after_a_crash(void **state)
{
	struct fixture *f = *state;
	struct record *r = make("gen-a", "c", 1000), *beat = make("gen-a", "c", 1000);
	struct error err;

	make_container(f->s, "c");
	put(f->s, STORE_RECORD_OPEN, r);
	tell(f->s, "c", 1500, "a.test", true);
	beat->heartbeat_ms = 6000;
	put(f->s, STORE_RECORD_BEAT, beat);
	tell(f->s, "c", 7000, "b.test", false);
	assert_int_equal(store_records_recover(f->s, STR("g"), 0, &err), 1);
	tell(f->s, "c", 11000, "c.test", true); /* between its last heartbeat and its death */
	tell(f->s, "c", 11001, "d.test", true);
	assert_run(f->s, "gen-a", 0, "-b.test*1 +a.test*1 +c.test*1", 2, 1);
	record_free(r);
	r = get(f->s, "gen-a");
	assert_int_equal(r->state, RECORD_RECOVERED);
	assert_string_equal(r->runs[0].status, "incomplete");
	assert_int_equal(r->runs[0].end_ms, 6000);
	record_free(r);
	/* A heartbeat that comes too late opens nothing. */
	put(f->s, STORE_RECORD_BEAT, beat);
	tell(f->s, "c", 20000, "e.test", true);
	assert_run(f->s, "gen-a", 0, "-b.test*1 +a.test*1 +c.test*1", 2, 1);
	record_free(beat);
}

/* Where the gateway that opened it is not the one that egress tells. */
static void told_by_another_process(void **state)
{
	struct fixture *f = *state;
	struct store *other = place_open(&f->place);
	struct record *r = make("gen-a", "c", 1000);

	make_container(f->s, "c");
	put(f->s, STORE_RECORD_OPEN, r);
	tell(other, "c", 1100, "a.test", true);
	settle(f->s, r, 1200);
	tell(other, "c", 1100, "b.test", false);
	assert_run(f->s, "gen-a", 0, "-b.test*1 +a.test*1", 1, 1);
	store_close(other);
}

/* A folder from before has what its containers' records tell. */
static void folders_from_before(void **state)
{
	struct fixture *f = *state;
	sqlite3 *db;
	char sql[512];

	store_close(f->s);
	place_remove(&f->place);
	place_make(&f->place);
	db = raw(&f->place);
	for (unsigned i = 0; strncmp(migrations_sqlite[i].name, "0016", 4) != 0; i++) {
		say(db, migrations_sqlite[i].sql);
		snprintf(sql, sizeof(sql), "PRAGMA user_version = %u", i + 1);
		say(db, sql);
	}
	say(db, "PRAGMA application_id = 0x62726967");
	for (int n = 1; n <= 2; n++) {
		snprintf(sql, sizeof(sql),
		        "INSERT INTO records SELECT %d, 'acme', 'one', 'gen-%d', 1, 'g', 1000, 0, "
		        "2000, 2000, 'exec'" /* api … traceparent */
		        ", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, "
		        "NULL, 0, 0, 200, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, "
		        "%d, NULL, NULL",
		        n, n, n == 1);
		say(db, sql);
		snprintf(sql, sizeof(sql),
		        "INSERT INTO record_runs SELECT %d, 0, 'x', 'exec', 'c', 'completed', "
		        "NULL, 0, 1000, 2000, 0, 0",
		        n);
		say(db, sql);
	}
	for (int i = 0; i < 40; i++) {
		snprintf(sql, sizeof(sql),
		        "INSERT INTO network SELECT NULL, 'acme', 'one', 'c', %d, 'h%02d.test', "
		        "'', 443, %d, 'why', 1, 2, %d",
		        i < 38 ? 1000 + i : 3000, i, i > 0, i == 5 ? 3 : 0);
		say(db, sql);
	}
	sqlite3_close(db);
	f->s = place_open(&f->place);
	assert_memory_equal(hosts_of(f->s, "gen-1", 0, NULL), "-h00.test*1 +h01.test*1 ", 24);
	struct record *r = get(f->s, "gen-1");

	assert_true(r->runs[0].network_allowed == 40 && r->runs[0].network_denied == 1);
	assert_int_equal(r->runs[0].n_hosts, STORE_RUN_HOSTS_MAX);
	assert_true(r->runs[0].hosts[1].bytes_in == 1 && r->runs[0].hosts[1].bytes_out == 2);
	record_free(r);
	assert_run(f->s, "gen-2", 0, "", 40, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(kept_though_the_container_goes),
	        TEST(told_long_after_the_run),
	        TEST(told_before_the_run_has_its_row),
	        TEST(two_runs_are_told_apart),
	        TEST(runs_at_once_have_it_both),
	        TEST(hosts_are_bounded),
	        TEST(bytes_do_not_overflow),
	        TEST(no_names_without_content),
	        TEST(names_go_with_the_content),
	        TEST(they_go_with_the_record),
	        TEST(recovered_after_a_crash),
	        TEST(told_by_another_process),
	        TEST(folders_from_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
