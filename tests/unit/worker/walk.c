/* The walk over real folders, against what sorting all paths gives: folders larger than a batch,
 * trees deeper and wider than what is kept, beginnings anywhere. */
#include "unit/unit.h"

#include "proto/worker.h"
#include "worker/home.h"
#include "worker/walk.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct tree {
	char path[64];
	int dir;
	char **files; /* sorted */
	size_t n, size;
};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static void tree_make(struct tree *t)
{
	*t = (struct tree){.path = "/tmp/brig-walk-XXXXXX"};
	assert_non_null(mkdtemp(t->path));
	t->dir = open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(t->dir >= 0);
	home_open(t->dir, -1);
}

static void tree_remove(struct tree *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->files[i]);
	free(t->files);
	close(t->dir);
	assert_int_equal(nftw(t->path, remove_one, 32, FTW_DEPTH | FTW_PHYS), 0);
}

static void add_file(struct tree *t, const char *path)
{
	int fd = openat(t->dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return; /* the name is taken, or would be too long */
	close(fd);
	if (t->n == t->size) {
		t->size = t->size ? t->size * 2 : 64;
		t->files = realloc(t->files, t->size * sizeof(*t->files));
	}
	t->files[t->n++] = strdup(path);
}

static int compare_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort_files(struct tree *t)
{
	qsort(t->files, t->n, sizeof(t->files[0]), compare_text);
}

/* Takes `most` files from behind `after`, and checks each; returns how many came. */
static size_t check_from(const struct tree *t, const char *after, uint32_t most)
{
	struct walk *w = walk_new(after, strlen(after));
	size_t at = 0, n = 0;
	assert_non_null(w);
	while (at < t->n && strcmp(t->files[at], after) <= 0)
		at++;
	while (n < most) {
		struct stat st;
		const char *path;
		size_t len;
		enum walk_event e = walk_step(
		        w, most == UINT32_MAX ? most : most - (uint32_t)n, &st, &path, &len);
		assert_int_not_equal(e, WALK_NO_MEMORY);
		if (e == WALK_END)
			break;
		if (e != WALK_FILE)
			continue;
		assert_true(at + n < t->n);
		assert_string_equal(path, t->files[at + n]);
		assert_int_equal(len, strlen(path));
		n++;
	}
	if (n < most)
		assert_int_equal(at + n, t->n);
	assert_null(walk_free(w));
	return n;
}

static void empty_home(void **state)
{
	struct tree t;
	tree_make(&t);
	assert_int_equal(check_from(&t, "", 10), 0);
	assert_int_equal(check_from(&t, "x/y", 10), 0);
	tree_remove(&t);
}

/* Names that are prefixes of each other, with bytes on both sides of the slash. */
static void random_trees(void **state)
{
	static const char alphabet[] = "ab-./0\xff";
	struct unit_random r = {77};
	for (int round = 0; round < 6; round++) {
		struct tree t;
		tree_make(&t);
		for (int i = 0; i < 400; i++) {
			char path[64] = "";
			size_t len = 1 + unit_below(&r, 14);
			for (size_t k = 0; k < len; k++) {
				char c = alphabet[unit_below(&r, sizeof(alphabet) - 1)];
				path[k] = c;
				if (c == '/')
					mkdirat(t.dir, (path[k] = '\0', path), 0700);
				path[k] = c;
			}
			/* "a//b" and "a/./b" are other names of what is there */
			if (path[0] != '/' && !strstr(path, "//") && !strstr(path, "./"))
				add_file(&t, path);
		}
		sort_files(&t);
		assert_true(t.n > 50);
		check_from(&t, "", UINT32_MAX);
		for (int i = 0; i < 100; i++) {
			char after[16] = "";
			size_t len = unit_below(&r, 8);
			for (size_t k = 0; k < len; k++)
				after[k] = alphabet[unit_below(&r, sizeof(alphabet) - 1)];
			check_from(&t, i % 2 ? after : t.files[unit_below(&r, t.n)],
			        1 + (uint32_t)unit_below(&r, 40));
		}
		tree_remove(&t);
	}
}

/* More names than a batch holds, of all lengths, and folders without files between them. */
static void wide_folder(void **state)
{
	struct tree t;
	struct unit_random r = {5};
	tree_make(&t);
	for (int i = 0; i < 40000; i++) {
		char path[300];
		int at = snprintf(
		        path, sizeof(path), "%08llx", (unsigned long long)unit_next(&r) >> 32);
		if (i % 50 == 0) {
			memset(path + at, 'x', 200);
			path[at + 200] = '\0';
		}
		if (i % 4)
			add_file(&t, path);
		else
			mkdirat(t.dir, path, 0700);
	}
	sort_files(&t);
	assert_int_equal(check_from(&t, "", UINT32_MAX), t.n);
	assert_int_equal(check_from(&t, "", 1000), 1000);
	assert_int_equal(check_from(&t, "8", 1000), 1000);
	assert_int_equal(check_from(&t, t.files[t.n - 3], 1000), 2);
	tree_remove(&t);
}

/* Folders in folders, each with more names than may be kept of all: those near the root are read
 * again on the way back. */
static void tall_and_wide(void **state)
{
	struct tree t;
	tree_make(&t);
	char dir[400] = "";
	for (int level = 0; level < 6; level++) {
		size_t len = strlen(dir);
		for (int i = 0; i < 900; i++) {
			char path[700];
			snprintf(
			        path, sizeof(path), "%s%c%03d%0200d", dir, i % 2 ? 'a' : 'z', i, 0);
			add_file(&t, path);
		}
		snprintf(dir + len, sizeof(dir) - len, "m%d", level);
		assert_int_equal(mkdirat(t.dir, dir, 0700), 0);
		strncat(dir, "/", sizeof(dir) - strlen(dir) - 1);
	}
	sort_files(&t);
	assert_int_equal(check_from(&t, "", UINT32_MAX), t.n);
	assert_int_equal(check_from(&t, "m0/m1/m2/m3/z", 700), 700);
	tree_remove(&t);
}

/* Down to the longest path, and no further. */
static void deep_tree(void **state)
{
	struct tree t;
	char path[WORKER_PATH_MAX + 16];
	tree_make(&t);
	int dir = openat(t.dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t len = 0; len < WORKER_PATH_MAX + 8; len += 2) {
		memcpy(path + len, "d/", 2);
		int fd = openat(dir, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		assert_true(fd >= 0);
		close(fd);
		if (len + 1 <= WORKER_PATH_MAX) {
			char *full = malloc(len + 2);
			memcpy(full, path, len);
			memcpy(full + len, "f", 2);
			t.files = realloc(t.files, (t.n + 1) * sizeof(*t.files));
			t.files[t.n++] = full;
		}
		assert_int_equal(mkdirat(dir, "d", 0700), 0);
		int next = openat(dir, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(dir);
		dir = next;
	}
	close(dir);
	sort_files(&t);
	assert_int_equal(check_from(&t, "", UINT32_MAX), t.n);
	assert_int_equal(check_from(&t, t.files[1000], 5), 5);
	/* Too deep for nftw: one level at a time, from above. */
	while (renameat(t.dir, "d/d", t.dir, "next") == 0) {
		unlinkat(t.dir, "d/f", 0);
		assert_int_equal(unlinkat(t.dir, "d", AT_REMOVEDIR), 0);
		assert_int_equal(renameat(t.dir, "next", t.dir, "d"), 0);
	}
	tree_remove(&t);
}

static void other_kinds(void **state)
{
	struct tree t;
	tree_make(&t);
	add_file(&t, "file");
	assert_int_equal(mkdirat(t.dir, "folder", 0700), 0);
	add_file(&t, "folder/in");
	assert_int_equal(symlinkat("folder", t.dir, "link"), 0);
	assert_int_equal(symlinkat("/", t.dir, "out"), 0);
	assert_int_equal(mkfifoat(t.dir, "fifo", 0600), 0);
	sort_files(&t);
	assert_int_equal(check_from(&t, "", UINT32_MAX), 2);
	tree_remove(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(empty_home),
	        cmocka_unit_test(random_trees),
	        cmocka_unit_test(wide_folder),
	        cmocka_unit_test(tall_and_wide),
	        cmocka_unit_test(deep_tree),
	        cmocka_unit_test(other_kinds),
	};
	return UNIT_RUN(tests);
}
