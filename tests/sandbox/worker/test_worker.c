/*
 * The worker, as the real supervisor starts it: what gateways ask of it, and what a guest tries
 * meanwhile. test_life.c has how it comes and goes, and what it cannot reach.
 */
#include "tests.h"

#include "unit/unit.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

void start(struct node *n)
{
	node_make(n);
	node_start(n);
}

void finish(struct node *n)
{
	if (n->pid > 0)
		assert_int_equal(node_stop(n), 0);
	node_check_nothing_left(n);
	node_remove(n);
}

static void put_program(int sock)
{
	const char *path = getenv("BRIG_TEST_GUEST");
	static char bytes[1 << 20];
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		fail_msg("BRIG_TEST_GUEST names no program");
	ssize_t n = read(fd, bytes, sizeof(bytes));
	close(fd);
	struct answer a = files_create(sock, (uint64_t)n);
	assert_true(a.fd >= 0);
	assert_int_equal(write(a.fd, bytes, (size_t)n), n);
	uint64_t handle = a.handle;
	answer_clear(&a); /* or it could not be executed */
	a = files_link(sock, handle, "guest", 0);
	assert_int_equal(a.errnum, 0);
	answer_clear(&a);
}

int live(struct node *n, const char *name, int sock, union reply *ret)
{
	struct sup_claim c = node_claim(n, name);
	put_program(sock);
	int channel = node_claimed(n, 0, &c, ret);
	assert_true(channel >= 0);
	channel_output(channel, "chmod 755 guest");
	return channel;
}

static void fails(struct answer a, int errnum)
{
	if (a.gone || a.errnum != errnum)
		fail_msg("%s: %s, not %s", a.step, a.gone ? "gone" : strerror(a.errnum),
		        strerror(errnum));
	assert_int_equal(a.n_files, 0);
	answer_clear(&a);
}

static void works(struct answer a)
{
	if (a.gone || a.errnum)
		fail_msg("%s: %s", a.step, a.gone ? "gone" : strerror(a.errnum));
	answer_clear(&a);
}

static void put_get_list(void **state)
{
	struct node n;
	union reply r;
	start(&n);
	assert_int_equal(files_ask(&n, 0, "a", 0, &r), -1);
	assert_int_equal(r.failed.why, SUP_E_UNKNOWN);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	assert_string_equal(files_names(sock), "");
	files_put(sock, "b/c/d.txt", "deep");
	files_put(sock, "a", "first");
	files_put(sock, "b-", "before the folder");
	files_put(sock, "b0", "behind it");
	assert_string_equal(files_names(sock), "a\nb-\nb/c/d.txt\nb0\n");
	assert_string_equal(files_get(sock, "b/c/d.txt"), "deep");
	struct answer a = files_path(sock, WORKER_STAT, "a"), b;
	files_put(sock, "a", "second");
	assert_string_equal(files_get(sock, "a"), "second");
	b = files_path(sock, WORKER_STAT, "a");
	assert_true(
	        a.files[0].inode != b.files[0].inode && a.files[0].ctime_ns <= b.files[0].ctime_ns);
	assert_true(llabs((long long)(b.files[0].ctime_ns / 1000000000) - time(NULL)) < 100);
	answer_clear(&a);
	answer_clear(&b);
	assert_int_equal(node_state(&n, "a"), SUP_ST_ASLEEP);

	struct sup_claim c = node_claim(&n, "a");
	int channel = node_claimed(&n, 0, &c, &r);
	assert_string_equal(
	        channel_output(channel, "cat a b/c/d.txt; echo live > e"), "seconddeep");
	assert_string_equal(files_get(sock, "e"), "live\n");
	assert_string_equal(
	        channel_output(channel, "stat -c %u:%g:%a:%n a b"), "0:0:644:a\n0:0:755:b\n");
	works(files_path(sock, WORKER_DELETE, "b/c/d.txt"));
	works(files_sync(sock));
	assert_string_equal(channel_output(channel, "ls b/c; ls"), "a\nb\nb-\nb0\ne\n");
	close(channel);
	close(sock);
	finish(&n);
}

static void refusals(void **state)
{
	static const char *const bad[] = {"/a", "a/", "a//b", ".", "a/.", "..", "../a", "a/../b"};
	struct node n;
	union reply r;
	start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	files_put(sock, "d/f", "kept");
	int channel = live(&n, "a", sock, &r);
	channel_output(channel, "ln -s f d/l; mkfifo d/p; ln -s d dl; ln -s /etc/target d/abs");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct answer a = files_create(sock, 0);
		fails(files_path(sock, WORKER_OPEN, bad[i]), EINVAL);
		fails(files_path(sock, WORKER_DELETE, bad[i]), EINVAL);
		fails(files_link(sock, a.handle, bad[i], 0), EINVAL);
		fails(files_drop(sock, a.handle), EBADF); /* it was spent */
		answer_clear(&a);
	}
	struct worker_path nul = {.h.op = WORKER_STAT, .path_len = 3};
	fails(files_await(sock, files_send(sock, &nul, sizeof(nul), "d\0f", 3)), EINVAL);
	for (int i = 0; i < 3; i++) {
		enum worker_op op = i == 0 ? WORKER_STAT : i == 1 ? WORKER_OPEN : WORKER_DELETE;
		fails(files_path(sock, op, "d"), EISDIR);
		fails(files_path(sock, op, "d/l"), ELOOP);
		fails(files_path(sock, op, "d/abs"), ELOOP);
		fails(files_path(sock, op, "d/p"), ENXIO);
		fails(files_path(sock, op, "none"), ENOENT);
		fails(files_path(sock, op, "dl/f"), i == 2 ? ENOTDIR : ELOOP);
		fails(files_path(sock, op, "d/f/x"), ENOTDIR);
	}
	struct {
		const char *path;
		int errnum;
		uint32_t flags;
	} link[] = {{"d", EISDIR, 0}, {"d/f/x", ENOTDIR, 0}, {"dl/x", ENOTDIR, 0},
	        {"d/l/x", ENOTDIR, 0}, {"d/f", EEXIST, WORKER_LINK_NEW},
	        {"d/l", EEXIST, WORKER_LINK_NEW}, {"d", EEXIST, WORKER_LINK_NEW},
	        {"d/p", EEXIST, 0}};
	for (size_t i = 0; i < sizeof(link) / sizeof(link[0]); i++) {
		struct answer a = files_create(sock, 0);
		fails(files_link(sock, a.handle, link[i].path, link[i].flags), link[i].errnum);
		answer_clear(&a);
	}
	/* Over links: those are replaced, what they lead to is left alone. */
	files_put(sock, "d/l", "new");
	files_put(sock, "d/abs", "new");
	assert_string_equal(files_get(sock, "d/f"), "kept");
	assert_string_equal(channel_output(channel, "cat d/l d/abs; ls -A d; ls /etc/target || :"),
	        "newnewabs\nf\nl\np\nls: /etc/target: No such file or directory\n");
	close(channel);
	close(sock);
	finish(&n);
}

static void handles(void **state)
{
	struct node n;
	struct answer a[WORKER_HANDLES_MAX];
	start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	for (int i = 0; i < WORKER_HANDLES_MAX; i++) {
		a[i] = files_create(sock, 0);
		assert_true(a[i].fd >= 0);
	}
	fails(files_create(sock, 0), EMFILE);
	int other = files_open(&n, "a", 0);
	fails(files_drop(other, a[0].handle), EBADF);
	works(files_drop(sock, a[0].handle));
	works(files_create(sock, 0));
	works(files_link(sock, a[1].handle, "x", 0));
	fails(files_link(sock, a[1].handle, "y", 0), EBADF);
	for (int i = 0; i < WORKER_HANDLES_MAX; i++)
		answer_clear(&a[i]);
	close(sock);
	assert_string_equal(files_names(other), "x\n");
	close(other);
	finish(&n);
}

static int compare_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Pages of every size, from everywhere, are what sorting all paths gives. */
static void order_and_pages(void **state)
{
	static const char alphabet[] = "a-/.0b\xff";
	struct node n;
	struct unit_random random = {20261129};
	char *paths[300];
	size_t n_paths = 0;
	start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	while (n_paths < 300) {
		char path[32];
		size_t len = 1 + unit_below(&random, 9);
		for (size_t i = 0; i < len; i++)
			path[i] = alphabet[unit_below(&random, sizeof(alphabet) - 1)];
		path[len] = '\0';
		struct answer a = files_create(sock, 0);
		uint64_t handle = a.handle;
		answer_clear(&a);
		a = files_link(sock, handle, path, WORKER_LINK_NEW);
		if (a.errnum == 0)
			paths[n_paths++] = strdup(path);
		answer_clear(&a);
	}
	qsort(paths, n_paths, sizeof(paths[0]), compare_text);
	for (int round = 0; round < 120; round++) {
		uint32_t limit = 1 + (uint32_t)unit_below(&random, round % 2 ? 5 : 400);
		char after[32] = "";
		size_t len = unit_below(&random, 6), at = 0;
		for (size_t i = 0; i < len; i++)
			after[i] = alphabet[unit_below(&random, sizeof(alphabet) - 1)];
		if (round % 3 == 0) /* one that is there */
			snprintf(after, sizeof(after), "%s", paths[unit_below(&random, n_paths)]);
		while (at < n_paths && strcmp(paths[at], after) <= 0)
			at++;
		struct answer a = files_list(sock, after, limit);
		assert_int_equal(a.errnum, 0);
		assert_int_equal(a.n_files, n_paths - at < limit ? n_paths - at : limit);
		for (size_t i = 0; i < a.n_files; i++)
			assert_string_equal(a.files[i].path, paths[at + i]);
		assert_int_equal(a.flags, n_paths - at > limit ? WORKER_MORE : 0);
		answer_clear(&a);
	}
	for (size_t i = 0; i < n_paths; i++)
		free(paths[i]);
	close(sock);
	finish(&n);
}

static void odd_tree(void **state)
{
	struct node n;
	union reply r;
	start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	int channel = live(&n, "a", sock, &r);
	channel_output(channel, "./guest odd");
	char expected[2048], longest[256];
	memset(longest, 'x', 255);
	longest[255] = '\0';
	snprintf(expected, sizeof(expected),
	        "guest\nodd/ \nodd/*\nodd/-rf\nodd/...\nodd/\\\nodd/closed/in\nodd/closed/three\n"
	        "odd/mode000\nodd/new\nline\nodd/one\nodd/other\nodd/setuid\nodd/sparse\n"
	        "odd/trailing \nodd/two\nodd/%s\nodd/\xf0\x9f\x98\x80\nodd/\xff\xfe\n",
	        longest);
	assert_string_equal(files_names(sock), expected);
	assert_string_equal(files_get(sock, "odd/mode000"), "secret");
	assert_string_equal(files_get(sock, "odd/other"), "other");
	assert_string_equal(files_get(sock, "odd/closed/in"), "closed");
	assert_string_equal(files_get(sock, "odd/new\nline"), "name");
	files_put(sock, "odd/closed/in", "put");
	works(files_path(sock, WORKER_DELETE, "odd/two"));
	assert_string_equal(files_get(sock, "odd/closed/three"), "one");
	struct answer a = files_path(sock, WORKER_STAT, "odd/sparse");
	assert_int_equal(a.files[0].size, 10LL << 30);
	assert_int_equal(a.files[0].mode, 0600);
	answer_clear(&a);
	a = files_path(sock, WORKER_STAT, "odd/setuid");
	assert_int_equal(a.files[0].mode, 06755);
	answer_clear(&a);
	/* A guest that closes its own home, and a lease on a file, are no bar. */
	channel_output(channel, "chmod 0 .");
	assert_string_equal(files_get(sock, "odd/one"), "one");
	close(channel);
	close(sock);
	finish(&n);
}

static void deep_and_wide(void **state)
{
	struct node n;
	union reply r;
	node_make(&n);
	n.cfg.home_mib = 2048;         /* a folder takes a block */
	n.cfg.worker_idle_ms = 300000; /* making it all takes a while */
	node_start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	int other = files_open(&n, "a", 0);
	int channel = live(&n, "a", sock, &r);
	for (int i = 0; i < 10; i++)
		channel_output(channel, "./guest deep 10000");
	for (int i = 0; i < 3; i++)
		channel_output(channel, "./guest wide 50000");
	channel_output(channel, "./guest folders 9000");
	/* What lies beyond the longest path is not told of. */
	struct answer a = files_list(sock, "", 10);
	assert_int_equal(a.errnum, 0);
	assert_int_equal(a.n_files, 10);
	assert_string_equal(a.files[0].path, "deep/first");
	assert_string_equal(a.files[1].path, "guest");
	assert_string_equal(a.files[2].path, "wide/n0000000");
	assert_string_equal(a.files[9].path, "wide/n0000007");
	assert_int_equal(a.flags, WORKER_MORE);
	answer_clear(&a);
	a = files_list(sock, "wide/n0148999", WORKER_LIST_MAX);
	assert_int_equal(a.n_files, 1000);
	assert_string_equal(a.files[0].path, "wide/n0149000");
	assert_string_equal(a.files[999].path, "wide/n0149999");
	assert_int_equal(a.flags, 0);
	answer_clear(&a);
	/* Another socket's questions come between. */
	struct worker_list m = {.h.op = WORKER_LIST, .limit = WORKER_LIST_MAX};
	for (int i = 0; i < 3; i++)
		files_send(sock, &m, sizeof(m), NULL, 0);
	works(files_path(other, WORKER_STAT, "guest"));
	a = files_recent(other, 0, 10, 100);
	assert_int_equal(a.errnum, 0);
	assert_int_equal(a.flags, WORKER_PARTIAL);
	answer_clear(&a);
	close(sock);
	a = files_recent(other, 0, 10, 1000000);
	assert_int_equal(a.errnum, 0);
	answer_clear(&a);
	close(channel);
	close(other);
	finish(&n);
}

static void recent(void **state)
{
	struct node n;
	union reply r;
	start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	int channel = live(&n, "a", sock, &r);
	channel_output(channel,
	        "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do mkdir -p d$((i % 3)); echo > "
	        "d$((i % 3))/f$i; sleep 0.02; done; ln -s d0 link");
	struct answer a = files_recent(sock, 0, 10, 1000000);
	assert_int_equal(a.errnum, 0);
	assert_int_equal(a.flags, 0);
	assert_int_equal(a.n_files, 10);
	for (int i = 0; i < 10; i++) {
		char name[16];
		snprintf(name, sizeof(name), "d%d/f%d", (12 - i) % 3, 12 - i);
		assert_string_equal(a.files[i].path, name);
	}
	uint64_t since = a.files[3].ctime_ns;
	answer_clear(&a);
	a = files_recent(sock, since, 10, 1000000);
	assert_int_equal(a.n_files, 4);
	answer_clear(&a);
	a = files_recent(sock, since + 1, 2, 1000000);
	assert_int_equal(a.n_files, 2);
	answer_clear(&a);
	/* A change of the name counts. */
	channel_output(channel, "mv d1/f1 d1/renamed");
	a = files_recent(sock, 0, 1, 1000000);
	assert_string_equal(a.files[0].path, "d1/renamed");
	answer_clear(&a);
	close(channel);
	close(sock);
	finish(&n);
}

static void no_room(void **state)
{
	struct node n;
	union reply r;
	start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	int channel = live(&n, "a", sock, &r);
	fails(files_create(sock, 1ULL << 40), ENOSPC);
	fails(files_create(sock, 80 << 20), ENOSPC);
	struct answer a = files_create(sock, 20 << 20);
	assert_true(a.fd >= 0);
	fails(files_create(sock, 50 << 20), ENOSPC); /* that of the first is taken */
	assert_int_equal(write(a.fd, "short", 5), 5);
	uint64_t handle = a.handle;
	answer_clear(&a);
	works(files_link(sock, handle, "short", 0));
	a = files_create(sock, 40 << 20); /* and given back */
	assert_true(a.fd >= 0);
	works(files_drop(sock, a.handle));
	answer_clear(&a);
	char out[256];
	assert_true(channel_run(channel, "dd if=/dev/zero of=full bs=1M count=100 2>/dev/null", out,
	                    sizeof(out)) != 0);
	a = files_create(sock, 0);
	if (a.fd >= 0) {
		static char block[1 << 16];
		ssize_t k = 0;
		for (int i = 0; i < 100 && k >= 0; i++)
			k = write(a.fd, block, sizeof(block));
		assert_int_equal(k, -1);
		assert_int_equal(errno, ENOSPC);
	}
	answer_clear(&a);
	works(files_path(sock, WORKER_DELETE, "full"));
	files_put(sock, "after", "room");
	assert_string_equal(channel_output(channel, "./guest inodes; cat after"),
	        "No space left on device\nroom");
	fails(files_create(sock, 0), ENOSPC);
	assert_string_equal(files_get(sock, "after"), "room");
	works(files_path(sock, WORKER_DELETE, "fill/7"));
	files_put(sock, "last", "one");
	close(channel);
	close(sock);
	finish(&n);
}

/* F1: whatever a guest exchanges meanwhile, only what stands at the very path comes out, and only
 * within home is anything changed. */
static void flipping(void **state)
{
	struct node n;
	union reply r;
	start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	int channel = live(&n, "a", sock, &r);
	channel_start(channel, "./guest flip 8000", 1);
	struct sup_claim c = node_claim(&n, "a");
	int second = node_claimed(&n, 0, &c, &r);
	uint64_t end = now_ms() + 8000;
	unsigned int got = 0, failed = 0, put = 0;
	while (now_ms() < end) {
		const char *path[] = {"flip/f", "flip/d/passwd", "flip/out", "flip/in"};
		for (int i = 0; i < 4; i++) {
			const char *text = files_get(sock, path[i]);
			got += text != NULL;
			failed += !text;
			/* What is at flip/out or flip/in for a moment is the file itself; it is
			 * empty between the guest's making it and writing to it. */
			if (text && text[0] && strcmp(text, "inside") != 0 &&
			        strcmp(text, "put") != 0)
				fail_msg("%s holds %s", path[i], text);
		}
		struct answer a = files_list(sock, "", 100);
		assert_int_equal(a.errnum, 0);
		for (size_t i = 0; i < a.n_files; i++)
			if (strstr(a.files[i].path, "dlink"))
				assert_string_equal(strrchr(a.files[i].path, '/'), "/passwd");
		answer_clear(&a);
		if (put % 8 == 0) {
			a = files_create(sock, 3);
			uint64_t handle = a.handle;
			assert_int_equal(write(a.fd, "put", 3), 3);
			answer_clear(&a);
			a = files_link(sock, handle, "flip/f", 0);
			assert_false(a.gone);
			answer_clear(&a);
			a = files_path(sock, WORKER_DELETE, "flip/d/none");
			assert_false(a.gone);
			answer_clear(&a);
		}
		put++;
	}
	if (!got || !failed)
		fail_msg("%u got, %u failed: no race was met", got, failed);
	channel_output(second, "cat etc/passwd flip/passwd 2>/dev/null | grep -q LINKED; "
	                       "! grep -q put /etc/passwd");
	close(second);
	close(channel);
	close(sock);
	finish(&n);
}

/* Each of these closes the socket that it came on, and nothing else. */
static void broken_messages(void **state)
{
	struct node n;
	start(&n);
	int other = files_open(&n, "a", SUP_FILES_CREATE);
	files_put(other, "x", "x");
	struct worker_list list = {.h = {WORKER_LIST, sizeof(list), 1}, .limit = 1};
	struct worker_path path = {.h = {WORKER_STAT, sizeof(path), 1}, .path_len = 1};
	struct worker_recent late = {
	        .h = {WORKER_RECENT, sizeof(late), 1}, .limit = 1, .budget_us = 100};
	struct worker_create create = {.h = {WORKER_CREATE, sizeof(create), 1}};
	struct worker_link link = {.h = {WORKER_LINK, sizeof(link), 1}, .path_len = 1};
	char bytes[WORKER_PATH_MAX + 200];
	for (int i = 0; i < 16; i++) {
		struct worker_list l = list;
		struct worker_path p = path;
		struct worker_recent t = late;
		struct worker_create c = create;
		struct worker_link k = link;
		size_t len = 0;
		memset(bytes, 'a', sizeof(bytes));
#define PUT(m, more) (memcpy(bytes, &(m), sizeof(m)), len = sizeof(m) + (more))
		switch (i) {
		case 0:
			PUT(l.h, 0);
			break; /* cut */
		case 1:
			l.h.op = 0;
			PUT(l, 0);
			break;
		case 2:
			l.h.op = WORKER_ENTRY;
			PUT(l, 0);
			break;
		case 3:
			l.h.size = 12;
			PUT(l, 0);
			break;
		case 4:
			l.limit = 0;
			PUT(l, 0);
			break;
		case 5:
			l.limit = WORKER_LIST_MAX + 1;
			PUT(l, 0);
			break;
		case 6:
			l.path_len = 5;
			PUT(l, 4);
			break;
		case 7:
			PUT(l, 1);
			break;
		case 8:
			PUT(p, 2);
			break;
		case 9:
			p.path_len = 0;
			PUT(p, 0);
			break;
		case 10:
			p.path_len = WORKER_PATH_MAX + 1;
			PUT(p, WORKER_PATH_MAX + 1);
			break;
		case 11:
			t.budget_us = 99;
			PUT(t, 0);
			break;
		case 12:
			t.limit = 11;
			PUT(t, 0);
			break;
		case 13:
			c.size = (1ULL << 40) + 1;
			PUT(c, 0);
			break;
		case 14:
			k.flags = 2;
			PUT(k, 1);
			break;
		case 15:
			len = 3;
			break;
		}
#undef PUT
		int sock = files_open(&n, "a", 0);
		assert_int_equal(send(sock, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
		struct pollfd poll_one = {sock, POLLIN, 0};
		assert_int_equal(poll(&poll_one, 1, NODE_LIMIT_MS), 1);
		if (recv(sock, bytes, sizeof(bytes), 0) > 0)
			fail_msg("message %d was answered", i);
		close(sock);
		assert_string_equal(files_get(other, "x"), "x");
	}
	close(other);
	finish(&n);
}

/* One that does not read keeps nobody else waiting, and costs little. */
static void no_reader(void **state)
{
	struct node n;
	start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE), other = files_open(&n, "a", 0);
	for (int i = 0; i < 300; i++) {
		char name[16];
		snprintf(name, sizeof(name), "%d", i);
		files_put(other, name, "");
	}
	struct worker_list m = {.h.op = WORKER_LIST, .limit = 1000};
	fcntl(sock, F_SETFL, O_NONBLOCK);
	struct worker_header h = {WORKER_LIST, sizeof(m), 7};
	m.h = h;
	int sent = 0;
	while (sent < 10000 && send(sock, &m, sizeof(m), MSG_NOSIGNAL) > 0)
		sent++;
	assert_true(sent > 4 && sent < 10000);
	assert_string_equal(files_get(other, "7"), "");
	/* And gets all when it does. */
	fcntl(sock, F_SETFL, 0);
	for (int i = 0; i < sent; i++) {
		struct answer a = files_await(sock, 7);
		assert_false(a.gone);
		answer_clear(&a);
		if (i == 20)
			break;
	}
	close(sock);
	close(other);
	finish(&n);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(put_get_list, node_teardown),
	        cmocka_unit_test_teardown(refusals, node_teardown),
	        cmocka_unit_test_teardown(handles, node_teardown),
	        cmocka_unit_test_teardown(order_and_pages, node_teardown),
	        cmocka_unit_test_teardown(odd_tree, node_teardown),
	        cmocka_unit_test_teardown(deep_and_wide, node_teardown),
	        cmocka_unit_test_teardown(recent, node_teardown),
	        cmocka_unit_test_teardown(no_room, node_teardown),
	        cmocka_unit_test_teardown(flipping, node_teardown),
	        cmocka_unit_test_teardown(broken_messages, node_teardown),
	        cmocka_unit_test_teardown(no_reader, node_teardown),
	        cmocka_unit_test_teardown(asleep_live_frozen, node_teardown),
	        cmocka_unit_test_teardown(sleep_and_delete_beside_it, node_teardown),
	        cmocka_unit_test_teardown(one_file_system, node_teardown),
	        cmocka_unit_test_teardown(descriptors_outlive_it, node_teardown),
	        cmocka_unit_test_teardown(ends_when_idle, node_teardown),
	        cmocka_unit_test_teardown(makes_room, node_teardown),
	        cmocka_unit_test_teardown(dies_in_the_middle, node_teardown),
	        cmocka_unit_test_teardown(supervisor_dies, node_teardown),
	        cmocka_unit_test_teardown(in_any_order, node_teardown),
	        cmocka_unit_test_teardown(damaged_image, node_teardown),
	        cmocka_unit_test_teardown(nothing_within_reach, node_teardown),
	};
	if (argc == 2) /* one of them */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
