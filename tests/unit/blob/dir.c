/* Blobs in a folder: values, keys, races of threads, and processes that are killed half-way. */
#include "place.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>

static void test_values(void **state)
{
	struct place *p = *state;
	struct stat st;

	assert_int_equal(stat(p->folder, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	expect(p->s, "doc/7f/one", NULL);
	assert_int_equal(put(p->s, "doc/7f/one", "first", false, NULL), 1);
	assert_int_equal(put(p->s, "doc/7f/one", "second", false, NULL), 0);
	expect(p->s, "doc/7f/one", "first");
	assert_int_equal(put(p->s, "doc/7f/one", "third", true, NULL), 0);
	expect(p->s, "doc/7f/one", "third");
	assert_int_equal(put(p->s, "new", "", true, NULL), 0);
	expect(p->s, "new", "");
	assert_int_equal(blob_delete(p->s, STR("doc/7f/one"), NULL), 1);
	assert_int_equal(blob_delete(p->s, STR("doc/7f/one"), NULL), 0);
	expect(p->s, "doc/7f/one", NULL);
	expect(p->s, "new", "");
}

/* Nothing of a value is seen before its commit, nor after an abort. */
static void test_under_way(void **state)
{
	struct place *p = *state;
	struct blob_put *put = NULL;

	assert_int_equal(blob_put_begin(p->s, &put, NULL), 0);
	assert_int_equal(blob_put_write(put, STR("half"), NULL), 0);
	assert_int_equal(count(p->s, ""), 0);
	assert_null(blob_put_abort(put));
	assert_null(blob_put_abort(NULL));
	assert_null(blob_close(NULL));
	assert_int_equal(count(p->s, ""), 0);
}

/* An open value stays whole while its key is replaced and deleted. */
static void test_open_value_stays(void **state)
{
	struct place *p = *state;
	uint64_t size = 0;
	char text[8] = "";
	int fd = -1;

	assert_int_equal(put(p->s, "a/b", "old", false, NULL), 1);
	assert_int_equal(blob_get(p->s, STR("a/b"), &fd, &size, NULL), 0);
	assert_int_equal(size, 3);
	assert_int_equal(put(p->s, "a/b", "newer", true, NULL), 0);
	assert_int_equal(blob_delete(p->s, STR("a/b"), NULL), 1);
	assert_int_equal(read(fd, text, sizeof(text)), 3);
	assert_string_equal(text, "old");
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	close(fd);
}

static void test_hostile_keys(void **state)
{
	static const char *const bad[] = {"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/..",
	        "./a", "A", "a b", "a\\b", "a%2f", "caf\xc3\xa9", "TMP-x", "a\n"};
	struct place *p = *state;
	struct error err;
	char longest[BLOB_KEY_MAX + 2], deep[BLOB_KEY_MAX + 1];
	uint64_t size;
	int fd;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(put(p->s, bad[i], "x", false, &err), -ERR_INVALID);
		assert_int_equal(put(p->s, bad[i], "x", true, &err), -ERR_INVALID);
		assert_int_equal(blob_get(p->s, str_of(bad[i]), &fd, &size, &err), -ERR_INVALID);
		assert_int_equal(blob_delete(p->s, str_of(bad[i]), &err), -ERR_INVALID);
		assert_int_equal(blob_touch(p->s, str_of(bad[i]), &err), -ERR_INVALID);
	}
	assert_int_equal(blob_get(p->s, ((struct str){"a\0b", 3}), &fd, &size, &err), -ERR_INVALID);
	memset(longest, 'k', sizeof(longest));
	longest[BLOB_KEY_MAX + 1] = 0;
	assert_int_equal(put(p->s, longest, "x", false, &err), -ERR_INVALID);
	longest[BLOB_KEY_MAX] = 0;
	assert_int_equal(put(p->s, longest, "x", false, &err), 1);
	for (size_t i = 0; i < BLOB_KEY_MAX; i++)
		deep[i] = i % 2 ? '/' : 'd';
	deep[BLOB_KEY_MAX - 1] = 0;
	assert_int_equal(put(p->s, deep, "x", false, &err), 1);
	assert_int_equal(put(p->s, "..a/.b/-", "x", false, &err), 1);
	assert_int_equal(count(p->s, ""), 3);
}

/* A key is a value or a folder of keys, never both. */
static void test_value_and_folder(void **state)
{
	struct place *p = *state;
	struct error err;

	assert_int_equal(put(p->s, "a/b", "x", false, &err), 1);
	assert_int_equal(put(p->s, "a", "x", false, &err), -ERR_INVALID);
	assert_int_equal(put(p->s, "a", "x", true, &err), -ERR_INVALID);
	assert_int_equal(put(p->s, "a/b/c", "x", false, &err), -ERR_INVALID);
	assert_int_equal(put(p->s, "a/b/c", "x", true, &err), -ERR_INVALID);
	assert_int_equal(blob_delete(p->s, STR("a"), &err), 0);
	assert_int_equal(blob_touch(p->s, STR("a"), &err), 0);
	expect(p->s, "a", NULL);
	expect(p->s, "a/b/c", NULL);
	expect(p->s, "a/b", "x");
	/* Folders go with their last value. */
	assert_int_equal(blob_delete(p->s, STR("a/b"), &err), 1);
	assert_int_equal(put(p->s, "a", "now a value", false, &err), 1);
	assert_int_equal(count(p->s, ""), 1);
}

/* Links that somebody laid there are neither followed nor told of. */
static void test_links(void **state)
{
	struct place *p = *state;
	char path[128];
	struct error err;

	snprintf(path, sizeof(path), "%s/link", p->folder);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	expect(p->s, "link", NULL);
	assert_int_equal(put(p->s, "link", "x", false, &err), -ERR_INVALID);
	assert_int_equal(blob_touch(p->s, STR("link"), &err), 0);
	assert_int_equal(count(p->s, ""), 0);
	assert_int_equal(put(p->s, "link", "x", true, &err), 0);
	expect(p->s, "link", "x");
}

struct seen {
	char keys[8][BLOB_KEY_MAX + 1];
	int64_t ages[8];
	size_t n, stop;
};

static bool keep_each(void *ctx, struct str key, uint64_t size, int64_t age_ms)
{
	struct seen *seen = ctx;

	assert_int_equal(size, 4);
	str_copy(seen->keys[seen->n], sizeof(seen->keys[0]), key);
	seen->ages[seen->n++] = age_ms;
	return seen->n != seen->stop;
}

static bool saw(const struct seen *s, const char *key)
{
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->keys[i], key) == 0)
			return true;
	return false;
}

static void test_listing(void **state)
{
	struct place *p = *state;
	struct seen all = {.n = 0}, below = {.n = 0}, one = {.stop = 1}, none = {.n = 0};

	put(p->s, "doc/7f/aa", "text", false, NULL);
	put(p->s, "doc/7f/bb", "text", false, NULL);
	put(p->s, "doc/80/cc", "text", false, NULL);
	put(p->s, "doc2/dd", "text", false, NULL);
	assert_int_equal(blob_list(p->s, STR(""), keep_each, &all, NULL), 0);
	assert_int_equal(all.n, 4);
	assert_true(saw(&all, "doc/7f/aa") && saw(&all, "doc/80/cc") && saw(&all, "doc2/dd"));
	assert_int_equal(blob_list(p->s, STR("doc"), keep_each, &below, NULL), 0);
	assert_int_equal(below.n, 3);
	assert_false(saw(&below, "doc2/dd"));
	assert_int_equal(blob_list(p->s, STR("doc"), keep_each, &one, NULL), 0);
	assert_int_equal(one.n, 1);
	assert_int_equal(blob_list(p->s, STR("nothing"), keep_each, &none, NULL), 0);
	assert_int_equal(blob_list(p->s, STR("doc/7f/aa"), keep_each, &none, NULL), 0);
	assert_int_equal(none.n, 0);
	assert_int_equal(blob_list(p->s, STR("../x"), keep_each, &none, NULL), -ERR_INVALID);
}

static void make_old(const struct place *p, const char *key, time_t seconds)
{
	struct timespec t[2] = {{.tv_sec = time(NULL) - seconds}, {.tv_sec = time(NULL) - seconds}};
	char path[320];

	snprintf(path, sizeof(path), "%s/%s", p->folder, key);
	assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static void test_age(void **state)
{
	struct place *p = *state;
	struct seen old = {.n = 0}, touched = {.n = 0}, future = {.n = 0};

	put(p->s, "a/b", "text", false, NULL);
	make_old(p, "a/b", 7200);
	blob_list(p->s, STR(""), keep_each, &old, NULL);
	assert_true(old.ages[0] >= 7200000 && old.ages[0] < 7400000);
	assert_int_equal(blob_touch(p->s, STR("a/b"), NULL), 1);
	assert_int_equal(blob_touch(p->s, STR("a/c"), NULL), 0);
	blob_list(p->s, STR(""), keep_each, &touched, NULL);
	assert_true(touched.ages[0] < 600000);
	make_old(p, "a/b", -7200); /* the clock was set back */
	blob_list(p->s, STR(""), keep_each, &future, NULL);
	assert_int_equal(future.ages[0], 0);
}

static void test_leftovers(void **state)
{
	struct place *p = *state;
	char path[128];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/TMP-%d", p->folder, i);
		close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	}
	make_old(p, "TMP-0", 7200);
	assert_int_equal(count(p->s, ""), 0);
	blob_close(p->s);
	place_open(p, false, 0);
	snprintf(path, sizeof(path), "%s/TMP-0", p->folder);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(access(strcat(p->folder, "/TMP-1"), F_OK), 0); /* may be another's */
}

static void test_power(void **state)
{
	struct place *p = *state;

	blob_close(p->s);
	place_open(p, true, 0);
	assert_int_equal(put(p->s, "a/b/c", "text", false, NULL), 1);
	assert_int_equal(put(p->s, "a/b/c", "more", true, NULL), 0);
	expect(p->s, "a/b/c", "more");
	assert_int_equal(blob_delete(p->s, STR("a/b/c"), NULL), 1);
}

/* ---- threads ---- */

#define N_THREADS 8
#define ROUNDS    60

struct worker {
	struct blob_store *s;
	int index;
	int made, faults;
};

/* A value is 64 KiB of one letter. */
static bool whole(struct blob_store *s, const char *key)
{
	uint64_t size = 0;
	char piece[4096];
	bool good = true;
	char first = 0;
	int fd = -1;
	ssize_t n;

	if (blob_get(s, str_of(key), &fd, &size, NULL) < 0)
		return true;
	while ((n = read(fd, piece, sizeof(piece))) > 0)
		for (ssize_t i = 0; i < n; i++) {
			first = first ? first : piece[i];
			good = good && piece[i] == first;
		}
	close(fd);
	return good && size == 65536;
}

/* Everybody makes, replaces, reads, touches, lists and deletes the same two keys. */
static void *work(void *arg)
{
	struct worker *w = arg;
	char *text = malloc(65537);
	size_t n;

	memset(text, 'a' + w->index, 65536);
	text[65536] = 0;
	for (int i = 0; i < ROUNDS; i++) {
		int r = put(w->s, "x/one", text, false, NULL);

		w->made += r == 1;
		w->faults += r < 0 || !whole(w->s, "x/one");
		w->faults += put(w->s, "x/y/two", text, true, NULL) != 0 ||
		             !whole(w->s, "x/y/two") || blob_touch(w->s, STR("x/one"), NULL) < 0;
		n = 0;
		w->faults += blob_list(w->s, STR("x"), count_each, &n, NULL) < 0 || n > 2;
		r = blob_delete(w->s, STR("x/one"), NULL);
		w->made -= r == 1;
		w->faults += r < 0 || blob_delete(w->s, STR("x/y/two"), NULL) < 0;
	}
	free(text);
	return NULL;
}

/* Each making of the key that succeeded is undone by exactly one deletion. */
static void test_threads(void **state)
{
	struct place *p = *state;
	struct worker w[N_THREADS];
	pthread_t t[N_THREADS];
	int made = 0;

	for (int i = 0; i < N_THREADS; i++) {
		w[i] = (struct worker){p->s, i, 0, 0};
		assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
	}
	for (int i = 0; i < N_THREADS; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(w[i].faults, 0);
		made += w[i].made;
	}
	assert_int_equal(made, 0);
	assert_int_equal(count(p->s, ""), 0);
}

/* ---- death ---- */

/* Tells each value on the pipe only after it was reported as stored. */
static void write_until_killed(const struct place *p, int fd)
{
	struct blob_options o = {.folder = p->folder};
	struct blob_store *s = NULL;
	char key[32], *text = calloc(1, 200001);

	memset(text, 'z', 200000);
	if (blob_open(&o, &s, NULL) < 0)
		_exit(1);
	for (int i = 0;; i++) {
		snprintf(key, sizeof(key), "k/%02x/%d", (unsigned)i % 16, i);
		if (put(s, key, text, i % 2, NULL) < 0 || write(fd, &i, sizeof(i)) != sizeof(i))
			_exit(2);
	}
}

static bool check_size(void *ctx, struct str key, uint64_t size, int64_t age_ms)
{
	(void)key;
	(void)age_ms;
	*(bool *)ctx &= size == 200000;
	return true;
}

static size_t entries(const char *folder)
{
	DIR *d = opendir(folder);
	size_t n = 0;

	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n - 2;
}

static void test_killed(void **state)
{
	struct place *p = *state;

	for (int round = 0; round < 6; round++) {
		int ends[2], last = -1, i, status;
		bool good = true;
		char key[32];
		pid_t pid;

		assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			write_until_killed(p, ends[1]);
		close(ends[1]);
		for (int n = 0; n < 3 + round * 7; n++)
			assert_int_equal(read(ends[0], &last, sizeof(last)), sizeof(last));
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		while (read(ends[0], &i, sizeof(i)) == sizeof(i))
			last = i;
		close(ends[0]);
		/* What was reported is there; what is there is whole; what was under way is gone,
		 * but for one name that no key can have. */
		for (i = 0; i <= last; i++) {
			char *text;

			snprintf(key, sizeof(key), "k/%02x/%d", (unsigned)i % 16, i);
			text = get(p->s, key);
			assert_non_null(text);
			assert_int_equal(strlen(text), 200000);
			free(text);
		}
		assert_int_equal(blob_list(p->s, STR(""), check_size, &good, NULL), 0);
		assert_true(good);
		assert_true(entries(p->folder) <= 2 + (size_t)round);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_values, place_make, place_remove),
	        cmocka_unit_test_setup_teardown(test_under_way, place_make, place_remove),
	        cmocka_unit_test_setup_teardown(test_open_value_stays, place_make, place_remove),
	        cmocka_unit_test_setup_teardown(test_hostile_keys, place_make, place_remove),
	        cmocka_unit_test_setup_teardown(test_value_and_folder, place_make, place_remove),
	        cmocka_unit_test_setup_teardown(test_links, place_make, place_remove),
	        cmocka_unit_test_setup_teardown(test_listing, place_make, place_remove),
	        cmocka_unit_test_setup_teardown(test_age, place_make, place_remove),
	        cmocka_unit_test_setup_teardown(test_leftovers, place_make, place_remove),
	        cmocka_unit_test_setup_teardown(test_power, place_make, place_remove),
	        cmocka_unit_test_setup_teardown(test_threads, place_make, place_remove),
	        cmocka_unit_test_setup_teardown(test_killed, place_make, place_remove),
	};

	return UNIT_RUN(tests);
}
