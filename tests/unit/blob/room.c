/*
 * A full disk, and the reserve: on a small tmpfs in a mount namespace of the test's own. Without
 * the right to make one the test is skipped.
 */
#include "place.h"

#include "base/mem.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>

#define SIZE "8m"

static int small_make(void **state)
{
	struct place *p = calloc(1, sizeof(*p));

	*state = p;
	snprintf(p->dir, sizeof(p->dir), "/tmp/brig-blob-XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	snprintf(p->folder, sizeof(p->folder), "%s/blob", p->dir);
	if (mount("brig-test", p->dir, "tmpfs", MS_NOSUID | MS_NODEV, "size=" SIZE ",mode=0700"))
		return -1;
	return 0;
}

static int small_remove(void **state)
{
	struct place *p = *state;

	blob_close(p->s);
	umount2(p->dir, MNT_DETACH);
	rmdir(p->dir);
	free(p);
	return 0;
}

/* Writes until it fails; how many KiB went in. */
static int fill(struct blob_put *put, struct error *err)
{
	char piece[4096];

	memset(piece, 'f', sizeof(piece));
	for (int n = 0; n < 16384; n += 4) {
		int r = blob_put_write(put, (struct str){piece, sizeof(piece)}, err);

		if (r < 0) {
			assert_int_equal(r, -ERR_UNAVAILABLE);
			return n;
		}
	}
	return 16384;
}

static void test_full(void **state)
{
	struct place *p = *state;
	struct blob_put *one = NULL;
	struct error err = {0};
	int n;

	place_open(p, false, 0);
	assert_int_equal(put(p->s, "doc/kept", "before", false, &err), 1);
	assert_int_equal(blob_put_begin(p->s, &one, &err), 0);
	n = fill(one, &err);
	assert_true(n > 4096 && n < 8192);
	assert_int_equal(err.code, ERR_UNAVAILABLE);
	assert_non_null(strstr(err.text, "no room"));
	/* While it is full nothing else goes in, and what is there is whole. */
	assert_int_equal(
	        put(p->s, "doc/kept", "after, and longer than a page has room for", true, &err),
	        -ERR_UNAVAILABLE);
	expect(p->s, "doc/kept", "before");
	blob_put_abort(one);
	assert_int_equal(put(p->s, "doc/kept", "after", true, &err), 0);
	expect(p->s, "doc/kept", "after");
	assert_int_equal(count(p->s, ""), 1);
}

static void test_reserve(void **state)
{
	struct place *p = *state;
	struct blob_put *one = NULL;
	struct error err = {0};
	int n;

	place_open(p, false, (uint64_t)4 << 20);
	assert_int_equal(blob_put_begin(p->s, &one, &err), 0);
	n = fill(one, &err);
	/* Half is in reserve; room is looked at once a megabyte. */
	assert_true(n >= 3 * 1024 && n <= 5 * 1024 + 4);
	blob_put_abort(one);
	blob_close(p->s);
	place_open(p, false, (uint64_t)16 << 20);
	assert_int_equal(blob_put_begin(p->s, &one, &err), -ERR_UNAVAILABLE);
	assert_int_equal(count(p->s, ""), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_full, small_make, small_remove),
	        cmocka_unit_test_setup_teardown(test_reserve, small_make, small_remove),
	};

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		fprintf(stderr, "no mount namespace (%s): skipped\n", strerror(errno));
		return 77;
	}
	return UNIT_RUN(tests);
}
