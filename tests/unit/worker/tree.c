/*
 * A home sent as a stream and taken again (worker/tree.h), while others change it: whatever they
 * exchange, what was sent can be taken; and what nobody changed comes back as it was. (That all of
 * a node comes back is tests/api/test_survival.py's; this is about what must not break it.)
 */
#include "unit/unit.h"

#include "worker/level.h"
#include "worker/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char place[48], from[64], to[64];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path);
}

static void empty(const char *path)
{
	nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS);
	assert_int_equal(mkdir(path, 0700), 0);
}

static int setup(void **state)
{
	snprintf(place, sizeof(place), "%s/brig-tree-XXXXXX", *(char **)state);
	if (mkdtemp(place) == NULL)
		return -1;
	snprintf(from, sizeof(from), "%s/from", place);
	snprintf(to, sizeof(to), "%s/to", place);
	return mkdir(from, 0700) | mkdir(to, 0700);
}

static int teardown(void **state)
{
	return nftw(place, remove_one, 32, FTW_DEPTH | FTW_PHYS);
}

/* ---- one transfer ---- */

struct sender {
	int home, pipe, result;
	const char *step;
};

static void *sender_run(void *arg)
{
	struct sender *s = arg;

	s->result = tree_send(s->home, s->pipe, 0, &s->step);
	close(s->pipe);
	return NULL;
}

/* Errno of the sender, or of the taker with 10000 added. */
static int transfer(void)
{
	int fds[2], home, r;
	struct sender s = {.home = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
	const char *step = "";
	pthread_t thread;

	home = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(s.home >= 0 && home >= 0);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	s.pipe = fds[1];
	assert_int_equal(pthread_create(&thread, NULL, sender_run, &s), 0);
	r = tree_take(home, fds[0], &step);
	close(fds[0]);
	pthread_join(thread, NULL);
	close(s.home);
	close(home);
	/* A taker that fails breaks the sender's pipe; a sender that fails ends the taker's. */
	if (s.result != 0 && s.result != EPIPE) {
		if (s.result != ESTALE && s.result != EAGAIN)
			print_message("sending: %s: %s\n", s.step, strerror(s.result));
		return s.result;
	}
	if (r != 0)
		print_message("taking: %s: %s\n", step, strerror(r));
	return r != 0 ? 10000 + r : s.result;
}

/* ---- what guests do ---- */

static void write_file(int at, const char *name, size_t n)
{
	int fd = openat(
	        at, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	static char bytes[9000];

	if (fd >= 0) {
		(void)!write(fd, bytes, n);
		close(fd);
	}
}

static void clear(int at, const char *name)
{
	if (unlinkat(at, name, 0) < 0)
		unlinkat(at, name, AT_REMOVEDIR);
}

static _Atomic bool stop;

/* Names become files, folders, links and pipes in turn, move into each other and back. */
static void *exchange(void *arg)
{
	int at = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	unsigned seed = *(unsigned *)arg;

	while (!stop) {
		char a[32], b[32];

		snprintf(a, sizeof(a), "n%d", rand_r(&seed) % 40);
		snprintf(b, sizeof(b), rand_r(&seed) % 2 ? "n%d" : "n%d/in", rand_r(&seed) % 40);
		switch (rand_r(&seed) % 9) {
		case 0:
		case 1:
			clear(at, a);
			mkdirat(at, a, 0700);
			break;
		case 2:
			clear(at, a);
			write_file(at, a, (size_t)(rand_r(&seed) % 9000));
			break;
		case 3:
			clear(at, a);
			(void)!symlinkat("n1", at, a);
			break;
		case 4:
			clear(at, a);
			mkfifoat(at, a, 0600);
			break;
		case 5:
			(void)!linkat(at, a, at, b, 0);
			break;
		case 6:
			renameat(at, a, at, b);
			break;
		case 7:
			renameat2(at, a, at, b, RENAME_EXCHANGE);
			break;
		default:
			write_file(at, b, (size_t)(rand_r(&seed) % 9000));
			break;
		}
		usleep(30);
	}
	close(at);
	return NULL;
}

static void test_changed_meanwhile(void **state)
{
	enum { ROUNDS = 40, GUESTS = 2 };
	pthread_t guests[GUESTS];
	unsigned seeds[GUESTS] = {1, 2};
	int at = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC), taken = 0;

	for (int i = 0; i < 300; i++) { /* so that sending takes its time */
		char name[32];

		snprintf(name, sizeof(name), "quiet%d", i);
		write_file(at, name, 10);
	}
	stop = false;
	for (int i = 0; i < GUESTS; i++)
		pthread_create(&guests[i], NULL, exchange, &seeds[i]);
	for (int i = 0; i < ROUNDS; i++) {
		int r = transfer();

		/* a moved folder may make the sender begin again, but never the taker fail */
		if (r != 0 && r != ESTALE && r != EAGAIN)
			fail_msg("round %d: %s", i, strerror(r));
		taken += r == 0;
		empty(to);
	}
	stop = true;
	for (int i = 0; i < GUESTS; i++)
		pthread_join(guests[i], NULL);
	close(at);
	empty(from);
	assert_true(taken > ROUNDS / 2);
}

/* The same, as records that no guest has to be quick for. */
static void put(int fd, uint8_t type, uint8_t flags, uint32_t depth, const char *name)
{
	static const struct tree_extent end;
	const char *target = type == TREE_LINK ? "t" : "";
	const struct tree_node n = {.type = type,
	        .flags = flags,
	        .depth = depth,
	        .mode = 0700,
	        .inode = 7,
	        .name_len = (uint16_t)strlen(name),
	        .target_len = (uint16_t)strlen(target)};

	assert_int_equal(write(fd, &n, sizeof(n)), sizeof(n));
	assert_int_equal(write(fd, name, n.name_len), n.name_len);
	assert_int_equal(write(fd, target, n.target_len), n.target_len);
	if (type == TREE_FILE)
		assert_int_equal(write(fd, &end, sizeof(end)), sizeof(end));
}

static void test_names_that_come_twice(void **state)
{
	static const uint8_t types[] = {TREE_FOLDER, TREE_FILE, TREE_LINK, TREE_HARD};

	for (size_t i = 0; i < 4; i++)
		for (size_t k = 0; k < 4; k++) {
			int fds[2], home = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			const char *step;
			struct stat st;

			assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
			put(fds[1], TREE_FOLDER, 0, 0, "");
			put(fds[1], TREE_FILE, TREE_LINKED, 1, "first");
			put(fds[1], types[i], 0, 1, "twice");
			if (types[i] == TREE_FOLDER)
				put(fds[1], TREE_FILE, 0, 2, "in");
			put(fds[1], types[k], 0, 1, "twice");
			put(fds[1], TREE_HARD, 0, 1, "last");
			put(fds[1], TREE_END, 0, 0, "");
			close(fds[1]);
			assert_int_equal(tree_take(home, fds[0], &step), 0);
			close(fds[0]);
			assert_int_equal(fstatat(home, "twice", &st, AT_SYMLINK_NOFOLLOW), 0);
			assert_int_equal(st.st_mode & S_IFMT, i == 0 || k == 0        ? S_IFDIR
			                                      : types[k] == TREE_LINK ? S_IFLNK
			                                                              : S_IFREG);
			assert_int_equal(faccessat(home, "twice/in", F_OK, 0) == 0, i == 0);
			assert_int_equal(fstatat(home, "last", &st, AT_SYMLINK_NOFOLLOW), 0);
			assert_true(st.st_nlink >= 2);
			close(home);
			empty(to);
		}
}

/* As many names as a file may have on this file system, ours being one too many. */
static void test_most_names_of_a_file(void **state)
{
	int at = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC), e = 0;
	unsigned n = 1;
	char name[32];
	struct stat st, got;

	write_file(at, "0", 5);
	for (; n < 70000 && !e; n++) {
		snprintf(name, sizeof(name), "%u", n);
		if (linkat(at, "0", at, name, 0) < 0)
			e = errno;
	}
	if (e == 0 || e == EMLINK)
		assert_int_equal(transfer(), 0);
	assert_int_equal(fstatat(at, "0", &st, 0), 0);
	close(at);
	at = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(fstatat(at, "0", &got, 0), 0);
	assert_int_equal(got.st_nlink, st.st_nlink);
	close(at);
	empty(from);
	empty(to);
}

/* A file that is there and cannot be opened makes the save fail. */
static void test_a_lease_is_no_hole(void **state)
{
	int at = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;

	write_file(at, "leased", 5);
	fd = openat(at, "leased", O_WRONLY | O_CLOEXEC);
	signal(SIGIO, SIG_IGN);
	assert_int_equal(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
	assert_int_equal(transfer(), EAGAIN);
	close(fd);
	empty(to);
	assert_int_equal(transfer(), 0);
	assert_int_equal(close(at), 0);
	empty(from);
	empty(to);
}

int main(void)
{
	/* Where syncing is quick; the limit of names is a disk's. */
	static char memory[] = "/dev/shm", disk[] = "/tmp";
#define TEST(f, where) cmocka_unit_test_prestate_setup_teardown(f, setup, teardown, where)
	const struct CMUnitTest tests[] = {
	        TEST(test_changed_meanwhile, memory),
	        TEST(test_names_that_come_twice, memory),
	        TEST(test_most_names_of_a_file, disk),
	        TEST(test_a_lease_is_no_hole, memory),
	};

	signal(SIGPIPE, SIG_IGN);
	if (geteuid() != 0)
		return 77; /* owners cannot be set */
	return UNIT_RUN(tests);
}
