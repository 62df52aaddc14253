/* Several processes on one file, and processes that are killed while they write. */
#include "util.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

static const struct store_scope acme = {{"acme", 4}, {"main", 4}};

static void check_integrity(const struct place *p)
{
	sqlite3 *db;
	sqlite3_stmt *st;

	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	assert_int_equal(
	        sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &st, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	assert_string_equal((const char *)sqlite3_column_text(st, 0), "ok");
	sqlite3_finalize(st);
	sqlite3_close(db);
}

/* A child process may not use cmocka's asserts: it exits with the number of what failed. */
static int write_rows(const struct place *p, int who, int n)
{
	struct store_options o = {.path = p->path};
	struct store *s = NULL;

	if (store_open(&o, &s, NULL) < 0)
		return 1;
	for (int i = 0; i < n; i++) {
		struct store_container mine, shared = row_make("shared", 1);
		char id[32];

		snprintf(id, sizeof(id), "w%d-%d", who, i);
		mine = row_make(id, 1000 + i);
		if (store_container_create(s, &acme, &mine, NULL, NULL) != 1)
			return 2;
		if (store_container_touch(s, &acme, STR("shared"), who * 1000 + i, &shared, NULL) <
		        0)
			return 3;
	}
	store_close(s);
	return 0;
}

static void test_three_writers(void **state)
{
	const struct place *p = *state;
	struct store_container got = {0};
	struct store *s;
	pid_t pids[3];

	/* All three also make the file and its schema. */
	for (int i = 0; i < 3; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] == 0)
			_exit(write_rows(p, i, 60));
	}
	for (int i = 0; i < 3; i++) {
		int status = -1;

		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	s = place_open(p);
	for (int i = 0; i < 180; i++) {
		char id[32];

		snprintf(id, sizeof(id), "w%d-%d", i / 60, i % 60);
		assert_int_equal(store_container_get(s, &acme, str_of(id), &got, NULL), 0);
		store_container_clear(&got);
	}
	assert_int_equal(store_container_get(s, &acme, STR("shared"), &got, NULL), 0);
	assert_int_equal(got.last_used_ms, 2059);
	store_container_clear(&got);
	store_close(s);
	check_integrity(p);
}

/* Says each number on the pipe only after its row was reported as stored. */
static void write_until_killed(const struct place *p, int fd)
{
	struct store_options o = {.path = p->path};
	struct store *s = NULL;

	if (store_open(&o, &s, NULL) < 0)
		_exit(1);
	for (int i = 0;; i++) {
		struct store_container c;
		char id[32];

		snprintf(id, sizeof(id), "k-%d", i);
		c = row_make(id, i);
		if (store_container_create(s, &acme, &c, NULL, NULL) < 0 ||
		        write(fd, &i, sizeof(i)) != sizeof(i))
			_exit(2);
	}
}

static int last_number(int fd)
{
	int value = -1, next;
	ssize_t n;

	while ((n = read(fd, &next, sizeof(next))) == sizeof(next) || (n < 0 && errno == EINTR))
		if (n > 0)
			value = next;
	return value;
}

static void await_numbers(int fd, int wanted)
{
	const struct timespec pause = {.tv_nsec = 1000 * 1000};
	int waiting = 0;

	for (int i = 0; i < 60000 && waiting < wanted * (int)sizeof(wanted); i++) {
		nanosleep(&pause, NULL);
		assert_int_equal(ioctl(fd, FIONREAD, &waiting), 0);
	}
}

static void test_killed_writers_lose_nothing(void **state)
{
	const struct place *p = *state;
	int known = -1;

	for (int round = 0; round < 8; round++) {
		const struct timespec pause = {.tv_nsec = (20 + round * 7) * 1000 * 1000};
		struct store_container got = {0};
		struct store *s;
		int fds[2], last;
		pid_t pid;

		assert_int_equal(pipe(fds), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			close(fds[0]);
			write_until_killed(p, fds[1]);
		}
		close(fds[1]);
		if (round >= 4)
			await_numbers(fds[0], 2);
		nanosleep(&pause, NULL);
		kill(pid, SIGKILL);
		last = last_number(fds[0]);
		close(fds[0]);
		waitpid(pid, NULL, 0);
		known = last > known ? last : known;
		s = place_open(p); /* also while the killed one's lock files lie there */
		for (int i = 0; i <= last; i++) {
			char id[32];

			snprintf(id, sizeof(id), "k-%d", i);
			assert_int_equal(store_container_get(s, &acme, str_of(id), &got, NULL), 0);
			store_container_clear(&got);
		}
		store_close(s);
	}
	assert_true(known > 0);
	check_integrity(p);
}

/* Another program holds the write lock for a while: a call waits for it and does not fail. */
static void *hold_lock(void *arg)
{
	const struct timespec pause = {.tv_nsec = 300 * 1000 * 1000};
	sqlite3 *db = arg;

	nanosleep(&pause, NULL);
	sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
	return NULL;
}

static void test_waits_for_another_writer(void **state)
{
	const struct place *p = *state;
	struct store *s = place_open(p);
	struct store_container c = row_make("later", 1), got = {0};
	uint64_t before;
	pthread_t thread;
	sqlite3 *db;

	assert_int_equal(sqlite3_open(p->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	before = clock_mono_ms();
	pthread_create(&thread, NULL, hold_lock, db);
	/* Reading does not wait. */
	assert_int_equal(store_container_get(s, &acme, STR("later"), &got, NULL), -ERR_NOT_FOUND);
	assert_int_equal(store_container_create(s, &acme, &c, NULL, NULL), 1);
	assert_true(clock_mono_ms() - before >= 250);
	pthread_join(thread, NULL);
	sqlite3_close(db);
	store_close(s);
}

struct threads_work {
	struct store *s;
	int who;
	int failed;
};

static void *touch_many(void *arg)
{
	struct threads_work *w = arg;

	for (int i = 0; i < 50; i++) {
		struct store_container fresh = row_make("one", 1), got = {0};

		w->failed += store_container_touch(w->s, &acme, STR("one"), i, &fresh, NULL) < 0;
		w->failed += store_container_get(w->s, &acme, STR("one"), &got, NULL) < 0;
		store_container_clear(&got);
	}
	return NULL;
}

static void test_threads_of_one_process(void **state)
{
	struct threads_work work[4];
	pthread_t threads[4];
	struct store *s = place_open(*state);

	for (int i = 0; i < 4; i++) {
		work[i] = (struct threads_work){.s = s, .who = i};
		assert_int_equal(pthread_create(&threads[i], NULL, touch_many, &work[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(work[i].failed, 0);
	}
	store_close(s);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, place_set_up, place_tear_down)
	const struct CMUnitTest tests[] = {
	        CASE(test_three_writers),
	        CASE(test_killed_writers_lose_nothing),
	        CASE(test_waits_for_another_writer),
	        CASE(test_threads_of_one_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
