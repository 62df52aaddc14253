/* How a worker comes and goes beside its container, and what it cannot reach. */
#include "tests.h"

#include "unit/unit.h"

#include "base/id.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

static bool is_worker(pid_t pid)
{
	char path[64], text[64] = "";
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	return n > 0 && strcmp(text, "brig: worker") == 0;
}

struct found {
	pid_t pid;
	int count;
};

static bool count_worker(void *ctx, pid_t pid)
{
	struct found *f = ctx;
	if (is_worker(pid)) {
		f->pid = pid;
		f->count++;
	}
	return true;
}

static struct found find_workers(const struct node *n)
{
	struct found f = {0};
	node_each_process(n, count_worker, &f);
	return f;
}

/* One of them; false where there is none (of which kill would make everybody). */
static bool kill_worker(const struct node *n)
{
	pid_t pid = find_workers(n).pid;
	return pid > 0 && kill(pid, SIGKILL) == 0;
}

static bool ends(int sock)
{
	struct pollfd p = {sock, POLLIN, 0};
	char byte;
	return poll(&p, 1, NODE_LIMIT_MS) == 1 && recv(sock, &byte, 1, 0) <= 0;
}

static void image_path(const struct node *n, const char *name, char path[5000])
{
	uint8_t key[SUP_KEY_LEN];
	id_sha256(str_of(name), key);
	int at = snprintf(path, 5000, "%s/homes/", n->cfg.data);
	for (int i = 0; i < SUP_KEY_LEN; i++)
		at += snprintf(path + at, 3, "%02x", key[i]);
	snprintf(path + at, 5, ".img");
}

/* How many loop devices have an image of the node's homes. */
static int count_loops(const struct node *n)
{
	char path[600], text[4096], homes[4200];
	int count = 0;
	DIR *dir = opendir("/sys/block");
	struct dirent *e;
	snprintf(homes, sizeof(homes), "%s/", n->cfg.data);
	while ((e = readdir(dir))) {
		snprintf(path, sizeof(path), "/sys/block/%s/loop/backing_file", e->d_name);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
		if (fd >= 0)
			close(fd);
		text[len > 0 ? len : 0] = '\0';
		count += strncmp(text, homes, strlen(homes)) == 0 && strstr(text, "/homes/");
	}
	closedir(dir);
	return count;
}

void asleep_live_frozen(void **state)
{
	struct node n;
	union reply r;
	struct sup_claim c;
	start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	files_put(sock, "x", "asleep");
	assert_int_equal(node_state(&n, "a"), SUP_ST_ASLEEP);
	assert_int_equal(node_inits(&n), 1); /* the worker is first in a pid namespace too */
	int channel = live(&n, "a", sock, &r);
	assert_int_equal(r.claimed.how, SUP_WOKEN);
	files_put(sock, "x", "live");
	assert_string_equal(channel_output(channel, "cat x"), "live");
	node_release(&n, 0, r.claimed.hold);
	close(channel);
	node_await_state(&n, "a", SUP_ST_FROZEN);
	files_put(sock, "y", "frozen");
	assert_string_equal(files_get(sock, "x"), "live");
	assert_int_equal(node_state(&n, "a"), SUP_ST_FROZEN);
	c = node_claim(&n, "a");
	channel = node_claimed(&n, 0, &c, &r);
	assert_int_equal(r.claimed.how, SUP_WAS_LIVE);
	assert_string_equal(channel_output(channel, "cat y"), "frozen");
	assert_int_equal(find_workers(&n).count, 1);
	close(channel);
	close(sock);
	finish(&n);
}

void sleep_and_delete_beside_it(void **state)
{
	struct node n;
	union reply r;
	start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	for (int i = 0; i < 5; i++) {
		struct sup_claim c = node_claim(&n, "a");
		int channel = node_claimed(&n, 0, &c, &r);
		assert_true(channel >= 0);
		channel_output(channel, "date >> log; wc -l < log > count");
		node_release(&n, 0, r.claimed.hold);
		close(channel);
		node_key_op(&n, 0, SUP_SLEEP, "a", &r);
		assert_int_equal(r.h.op, SUP_DONE);
		assert_int_equal(node_state(&n, "a"), SUP_ST_ASLEEP);
		char expected[8];
		snprintf(expected, sizeof(expected), "%d\n", i + 1);
		assert_string_equal(files_get(sock, "count"), expected);
		assert_int_equal(count_loops(&n), 1);
	}
	/* A worker whose container never was deleted while it lived. */
	node_key_op(&n, 0, SUP_DELETE, "a", &r);
	assert_int_equal(r.h.op, SUP_DONE);
	assert_true(ends(sock));
	assert_int_equal(find_workers(&n).count, 0);
	assert_int_equal(files_ask(&n, 0, "a", 0, &r), -1);
	assert_int_equal(r.failed.why, SUP_E_UNKNOWN);
	close(sock);
	/* With both at once; and the name is free again. */
	sock = files_open(&n, "a", SUP_FILES_CREATE);
	assert_string_equal(files_names(sock), "");
	files_put(sock, "second", "life");
	int channel = live(&n, "a", sock, &r);
	node_key_op(&n, 0, SUP_DELETE, "a", &r);
	assert_int_equal(r.h.op, SUP_DONE);
	assert_true(ends(sock));
	assert_int_equal(node_inits(&n), 0);
	close(sock);
	close(channel);
	finish(&n);
}

void one_file_system(void **state)
{
	struct node n;
	union reply r;
	struct stat before, after;
	start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	files_put(sock, "x", "x");
	struct answer a = files_path(sock, WORKER_OPEN, "x");
	assert_int_equal(fstat(a.fd, &before), 0);
	int channel = live(&n, "a", sock, &r);
	assert_int_equal(count_loops(&n), 1);
	/* The same file in both, at once, through the same cache. */
	channel_output(channel, "echo more >> x");
	char text[16] = "";
	assert_int_equal(read(a.fd, text, sizeof(text)), 6);
	assert_string_equal(text, "xmore\n");
	/* Its worker gone, a new one comes to the file system that the sandbox has. */
	assert_true(kill_worker(&n));
	assert_true(ends(sock));
	close(sock);
	answer_clear(&a);
	sock = files_open(&n, "a", 0);
	a = files_path(sock, WORKER_OPEN, "x");
	assert_int_equal(fstat(a.fd, &after), 0);
	assert_int_equal(before.st_dev, after.st_dev);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(count_loops(&n), 1);
	answer_clear(&a);
	close(channel);
	close(sock);
	finish(&n);
}

/* A descriptor that was lent holds the file system, and nothing waits for it. */
void descriptors_outlive_it(void **state)
{
	struct node n;
	union reply r;
	start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	files_put(sock, "x", "held");
	struct answer a = files_path(sock, WORKER_OPEN, "x");
	assert_true(kill_worker(&n));
	assert_true(ends(sock));
	close(sock);
	for (int i = 0; i < 3; i++) { /* wake and sleep over it */
		struct sup_claim c = node_claim(&n, "a");
		int channel = node_claimed(&n, 0, &c, &r);
		assert_true(channel >= 0);
		assert_string_equal(channel_output(channel, "cat x"), "held");
		node_release(&n, 0, r.claimed.hold);
		close(channel);
		node_key_op(&n, 0, SUP_SLEEP, "a", &r);
		assert_int_equal(r.h.op, SUP_DONE);
		assert_int_equal(count_loops(&n), 1);
	}
	node_key_op(&n, 0, SUP_DELETE, "a", &r);
	assert_int_equal(r.h.op, SUP_DONE);
	sock = files_open(&n, "a", SUP_FILES_CREATE); /* another home of the name, meanwhile */
	assert_string_equal(files_names(sock), "");
	char text[8] = "";
	assert_int_equal(read(a.fd, text, sizeof(text)), 4);
	assert_string_equal(text, "held");
	answer_clear(&a);
	close(sock);
	finish(&n);
}

void ends_when_idle(void **state)
{
	struct node n;
	node_make(&n);
	n.cfg.worker_idle_ms = 1500;
	node_start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	uint64_t end = now_ms() + 4000;
	while (now_ms() < end) { /* a question now and then keeps it */
		files_put(sock, "x", "x");
		sleep_ms(20);
	}
	pid_t pid = find_workers(&n).pid;
	assert_true(pid > 0);
	assert_true(ends(sock));
	close(sock);
	sock = files_open(&n, "a", 0); /* while it ends, or after */
	assert_string_equal(files_get(sock, "x"), "x");
	assert_true(find_workers(&n).pid != pid);
	close(sock);
	end = now_ms() + NODE_LIMIT_MS;
	while (find_workers(&n).count || count_loops(&n)) {
		if (now_ms() > end)
			fail_msg("the worker or its device is left");
		sleep_ms(20);
	}
	finish(&n);
}

void makes_room(void **state)
{
	struct node n;
	int sock[5];
	start(&n); /* of four workers */
	for (int i = 0; i < 5; i++) {
		char name[8];
		snprintf(name, sizeof(name), "c%d", i);
		sock[i] = files_open(&n, name, SUP_FILES_CREATE);
		files_put(sock[i], "x", name);
		sleep_ms(5);
	}
	assert_true(ends(sock[0])); /* asked for the longest ago */
	assert_int_equal(find_workers(&n).count, 4);
	assert_string_equal(files_get(sock[4], "x"), "c4");
	for (int i = 0; i < 5; i++)
		close(sock[i]);
	finish(&n);
}

void dies_in_the_middle(void **state)
{
	struct node n;
	union reply r;
	start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	files_put(sock, "x", "x");
	int channel = live(&n, "a", sock, &r);
	for (int i = 0; i < 5; i++) {
		struct worker_list m = {.h.op = WORKER_LIST, .limit = 10};
		struct answer a = files_create(sock, 1000);
		assert_true(kill_worker(&n));
		files_send(sock, &m, sizeof(m), NULL, 0);
		while (!ends(sock))
			; /* the answer may have come first */
		close(sock);
		answer_clear(&a);
		sock = files_open(&n, "a", 0);
		assert_string_equal(files_names(sock), "guest\nx\n"); /* of the upload nothing */
	}
	assert_string_equal(channel_output(channel, "cat x"), "x");
	close(channel);
	close(sock);
	finish(&n);
}

void supervisor_dies(void **state)
{
	struct node n;
	union reply r;
	start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	files_put(sock, "x", "kept");
	int channel = live(&n, "a", sock, &r);
	int second = files_open(&n, "b", SUP_FILES_CREATE);
	node_kill(&n);
	assert_true(ends(sock));
	assert_true(ends(second));
	close(sock);
	close(second);
	close(channel);
	uint64_t end = now_ms() + NODE_LIMIT_MS;
	while (find_workers(&n).count) {
		if (now_ms() > end)
			fail_msg("the worker lives on");
		sleep_ms(5);
	}
	node_start(&n);
	sock = files_open(&n, "a", 0);
	assert_string_equal(files_get(sock, "x"), "kept");
	close(sock);
	finish(&n);
}

/* ---- against a model ---- */

struct model {
	const char *name;
	int sock;      /* -1: none */
	char text[16]; /* what file x holds; "": there is none, or no home */
	bool home;
};

static void model_close(struct model *m)
{
	if (m->sock >= 0)
		close(m->sock);
	m->sock = -1;
}

/* A worker that is dying may be given a socket yet, which then ends: as a gateway does, ask again.
 */
static void model_open(struct node *n, struct model *m)
{
	for (int i = 0; m->sock < 0; i++) {
		m->sock = files_open(n, m->name, SUP_FILES_CREATE);
		struct answer a = files_path(m->sock, WORKER_STAT, "x");
		if (a.gone)
			model_close(m);
		answer_clear(&a);
		assert_true(i < 10);
	}
	m->home = true;
}

static void model_check(struct node *n, struct model *m)
{
	model_open(n, m);
	const char *text = files_get(m->sock, "x");
	assert_string_equal(text ? text : "", m->text);
}

static void model_command(struct node *n, struct model *m, int step, bool sleep)
{
	union reply r;
	char script[128];
	struct sup_claim c = node_claim(n, m->name);
	c.wait_ms = 10000;
	int channel = node_claimed(n, 0, &c, &r);
	if (channel < 0)
		fail_msg("claim: %u %s", r.failed.why, r.failed.step);
	assert_true(!m->home || r.claimed.how != SUP_CREATED);
	m->home = true;
	snprintf(script, sizeof(script), "cat x 2>/dev/null; printf r%d > x", step);
	assert_string_equal(channel_output(channel, script), m->text);
	snprintf(m->text, sizeof(m->text), "r%d", step);
	node_release(n, 0, r.claimed.hold);
	close(channel);
	if (sleep)
		node_key_op(n, 0, SUP_SLEEP, m->name, &r);
}

static void model_step(struct node *n, struct model both[2], struct model *m, int step, size_t what)
{
	union reply r;
	switch (what) {
	case 0:
	case 1:
		model_open(n, m);
		snprintf(m->text, sizeof(m->text), "w%d", step);
		files_put(m->sock, "x", m->text);
		break;
	case 2:
		model_check(n, m);
		break;
	case 3:
	case 4:
		model_command(n, m, step, what == 4);
		break;
	case 5: /* one of them, and nobody waits for its end */
		kill_worker(n);
		model_close(&both[0]);
		model_close(&both[1]);
		break;
	case 6:
		model_close(m);
		break;
	default:
		model_close(m);
		node_key_op(n, 0, SUP_DELETE, m->name, &r);
		assert_int_equal(r.h.op, SUP_DONE);
		m->text[0] = '\0';
		m->home = false;
		break;
	}
}

/* Workers and sandboxes of two homes come, go and are killed in any order: what was written last is
 * there, and no image is ever on two devices. */
void in_any_order(void **state)
{
	struct node n;
	struct unit_random random = {4711};
	struct model both[] = {{"a", -1, "", false}, {"b", -1, "", false}};
	start(&n);
	uint64_t end = now_ms() + 12000;
	for (int step = 0; step < 400 && now_ms() < end; step++) {
		size_t what = unit_below(&random, 22);
		model_step(&n, both, &both[unit_below(&random, 2)], step, what / 3);
		assert_true(count_loops(&n) <= 2);
	}
	for (int i = 0; i < 2; i++) {
		model_check(&n, &both[i]);
		model_close(&both[i]);
	}
	finish(&n);
}

void damaged_image(void **state)
{
	struct node n;
	union reply r;
	char path[5000], zeros[4096] = "", back[4096];
	struct stat before, after;
	start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	files_put(sock, "x", "x");
	close(sock);
	assert_int_equal(node_stop(&n), 0);
	image_path(&n, "a", path);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, zeros, sizeof(zeros), 0), sizeof(zeros));
	assert_int_equal(fstat(fd, &before), 0);
	node_start(&n);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(files_ask(&n, 0, "a", SUP_FILES_CREATE, &r), -1);
		assert_int_equal(r.failed.why, SUP_E_HOME);
		assert_string_equal(r.failed.step, "mount home");
	}
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(before.st_size, after.st_size);
	assert_int_equal(pread(fd, back, sizeof(back), 0), sizeof(back));
	assert_memory_equal(back, zeros, sizeof(back));
	close(fd);
	assert_int_equal(find_workers(&n).count, 0);
	finish(&n);
}

/* ---- what it is, seen from outside ---- */

static const char *proc_text(pid_t pid, const char *name)
{
	static char text[16384];
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

static void expect_line(pid_t pid, const char *name, const char *expected)
{
	const char *text = proc_text(pid, name);
	if (!strstr(text, expected))
		fail_msg("%s of the worker has no %s: %s", name, expected, text);
}

static void check_namespaces(pid_t pid)
{
	static const char *const names[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char path[64], own[64] = "", its[64] = "";
		snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
		assert_true(readlink(path, own, sizeof(own) - 1) > 0);
		snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, names[i]);
		assert_true(readlink(path, its, sizeof(its) - 1) > 0);
		if (strcmp(own, its) == 0)
			fail_msg("namespace %s is the host's", names[i]);
	}
}

/* Sockets, the event loop, and folders or files of the home: nothing else. */
static void check_descriptors(pid_t pid)
{
	char path[300], to[300];
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *dir = opendir(path);
	struct dirent *e;
	int count = 0;
	assert_non_null(dir);
	while ((e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid, e->d_name);
		ssize_t len = readlink(path, to, sizeof(to) - 1);
		to[len > 0 ? len : 0] = '\0';
		if (strncmp(to, "socket:", 7) != 0 && strcmp(to, "anon_inode:[eventpoll]") != 0 &&
		        strcmp(to, "/") != 0)
			fail_msg("descriptor %s of the worker is %s", e->d_name, to);
		count++;
	}
	closedir(dir);
	/* Control, one gateway, loop, home; before 6.10 the folder of its own descriptors, too. */
	struct utsname u;
	unsigned int major, minor;
	assert_int_equal(uname(&u), 0);
	assert_int_equal(sscanf(u.release, "%u.%u", &major, &minor), 2);
	assert_int_equal(count, major > 6 || (major == 6 && minor >= 10) ? 4 : 5);
}

void nothing_within_reach(void **state)
{
	struct node n;
	union reply r;
	start(&n);
	int sock = files_open(&n, "a", SUP_FILES_CREATE);
	files_put(sock, "x", "x");
	pid_t pid = find_workers(&n).pid;
	assert_true(pid > 0);
	/* 1 = DAC_OVERRIDE, 3 = FOWNER. */
	expect_line(pid, "status", "Name:\tbrig: worker\n");
	expect_line(pid, "status",
	        "\nCapInh:\t0000000000000000\nCapPrm:\t000000000000000a\n"
	        "CapEff:\t000000000000000a\nCapBnd:\t0000000000000000\n"
	        "CapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n");
	expect_line(pid, "status", "\nThreads:\t1\n");
	expect_line(pid, "limits", "Max core file size        1 ");
	expect_line(pid, "limits", "Max processes             0 ");
	check_namespaces(pid);
	const char *mounts = proc_text(pid, "mountinfo");
	const char *end = strchr(mounts, '\n');
	if (!end || end[1] || !strstr(mounts, " / / rw,nosuid,nodev,noexec,noatime"))
		fail_msg("mounts of the worker: %s", mounts);
	const char *net = proc_text(pid, "net/dev");
	assert_non_null(strstr(net, "lo:"));
	assert_null(strstr(strstr(net, "lo:") + 3, ":"));
	expect_line(pid, "cgroup", "/w");
	char expected[64];
	snprintf(expected, sizeof(expected), "         0 %10u      65536\n",
	        sup_uid_lease(&n.cfg, n.cfg.n_leases));
	expect_line(pid, "uid_map", expected);
	check_descriptors(pid);
	/* Nor are its ids a sandbox's. */
	int channel = live(&n, "a", sock, &r);
	assert_string_not_equal(proc_text(pid, "uid_map"), "");
	char map[256];
	snprintf(map, sizeof(map), "%s", proc_text(pid, "uid_map"));
	struct found f = find_workers(&n);
	assert_int_equal(f.count, 1);
	channel_output(channel, "! ls /proc/[0-9]* -d | grep -q worker");
	close(channel);
	close(sock);
	finish(&n);
}
