#include "node.h"

#include "unit/unit.h"

#include "base/id.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

static int made;
static pid_t running[64]; /* supervisors, for node_teardown */

uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void sleep_ms(int ms)
{
	poll(NULL, 0, ms);
}

/* ---- descriptors over sockets ---- */

static void send_fd(int sock, const void *data, size_t len, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	char copy[SUP_MAX_MESSAGE];
	memcpy(copy, data, len);
	struct iovec iov = {copy, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	if (fd >= 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	if (sendmsg(sock, &msg, MSG_NOSIGNAL) < 0 && errno != EPIPE)
		fail_msg("sendmsg: %s", strerror(errno));
}

/* -1 on time-out, 0 at end-of-file. */
static ssize_t recv_fds(int sock, void *buf, size_t size, int fds[2], int timeout)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct pollfd p = {sock, POLLIN, 0};
	fds[0] = fds[1] = -1;
	if (poll(&p, 1, timeout) <= 0)
		return -1;
	struct iovec iov = {buf, size};
	struct msghdr msg = {.msg_iov = &iov,
	        .msg_iovlen = 1,
	        .msg_control = control.bytes,
	        .msg_controllen = sizeof(control.bytes)};
	ssize_t n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	if (n < 0)
		return 0; /* reset: the other end is gone */
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	if (c)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return n;
}

/* ---- the data folder ---- */

static void run_tool(const char *const argv[])
{
	pid_t pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);
		dup2(null, 1);
		dup2(null, 2);
		execvp(argv[0], (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status != 0)
		fail_msg("%s failed", argv[0]);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

/* A root file system of one static program under all its names. */
static void build_image(const char *data)
{
	static const char script[] =
	        "set -e; cd \"$1\"; mkdir images root root/bin root/proc root/dev root/tmp "
	        "root/etc root/root "
	        "root/workspace root/workspace/home root/usr root/usr/bin root/var; chmod 755 .; "
	        "cp /bin/busybox root/bin/busybox; root/bin/busybox --install root/bin; "
	        "[ -z \"$BRIG_TEST_SBX\" ] || cp \"$BRIG_TEST_SBX\" root/bin/sbx; "
	        "printf 'root:x:0:0:root:/root:/bin/sh\\n' > root/etc/passwd; printf "
	        "'root:x:0:\\n' > root/etc/group; "
	        "mkfs.erofs images/base.erofs root; rm -rf root";
	const char *const argv[] = {"sh", "-c", script, "sh", data, NULL};
	run_tool(argv);
}

/* It takes some hundred processes to build, so later data folders get a copy of the first's. */
static void make_image(const char *data)
{
	static int first = -1;
	char path[300];
	str_format(path, sizeof(path), "%s/images", data);
	if (first < 0)
		build_image(data);
	else
		assert_int_equal(mkdir(path, 0755), 0);
	str_format(path, sizeof(path), "%s/images/base.erofs", data);
	int image = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	assert_true(image >= 0);
	int from = first < 0 ? image : first;
	int to = first < 0 ? memfd_create("image", MFD_CLOEXEC) : image;
	struct stat st;
	assert_int_equal(fstat(from, &st), 0);
	for (off_t at = 0; at < st.st_size;)
		assert_true(sendfile(to, from, &at, (size_t)(st.st_size - at)) > 0);
	if (first < 0)
		first = to;
	close(image);
}

/*
 * Two nodes at once must not count each other's processes, whatever programs they are of, so each
 * has ids of its own: above and below those of the servers that tests/api starts (0x10000000 to
 * 0xee000000), which are on the machine at the same time. A slot is taken by an abstract address,
 * which goes with the last descriptor, returned in *lock.
 */
static uint32_t take_ids(uint32_t seed, int *lock)
{
	enum { STEP = 24 * 65536, ABOVE = 180, BELOW = 150 };
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	*lock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(*lock >= 0);
	for (uint32_t i = 0; i < ABOVE + BELOW; i++) {
		uint32_t slot = (seed + i) % (ABOVE + BELOW);
		int n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "brig-test-ids-%u", slot);

		if (bind(*lock, (struct sockaddr *)&a,
		            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) +
		                    (socklen_t)n) == 0)
			return slot < ABOVE ? 0xee000000u + slot * STEP
			                    : 0x01000000u + (slot - ABOVE) * STEP;
		assert_int_equal(errno, EADDRINUSE);
	}
	fail_msg("all ids are taken");
	return 0;
}

void node_make(struct node *n)
{
	*n = (struct node){.door = -1, .ids = -1};
	for (int i = 0; i < SUP_MAX_GATEWAYS; i++)
		n->sock[i] = -1;
	const char *tmp = getenv("TMPDIR");
	str_format(n->cfg.data, sizeof(n->cfg.data), "%s/brig-supervisor-test-%d-%d",
	        tmp ? tmp : "/tmp", (int)getpid(), made++);
	assert_int_equal(mkdir(n->cfg.data, 0711), 0);
	make_image(n->cfg.data);
	str_format(n->cfg.images[0], sizeof(n->cfg.images[0]), "base.erofs");
	const char *mode = getenv("BRIG_TEST_CGROUPS");
	n->cfg.cgroups = mode && strcmp(mode, "v1") == 0 ? SUP_CG_FORCE_V1 : SUP_CG_AUTO;
	n->cfg.id_base = take_ids((uint32_t)(getpid() + 31 * made), &n->ids);
	n->cfg.n_leases = 6; /* up to 22 fit, with those of workers */
	n->cfg.n_workers = 4;
	n->cfg.gateways = 1;
	n->cfg.live = 6;
	n->cfg.memory_mib = 256;
	n->cfg.max_memory_mib = 1024;
	n->cfg.home_mib = 64;
	n->cfg.scratch_mib = 64;
	n->cfg.grace_ms = 2000;
	n->cfg.sandbox = true;
	n->cfg.untested = true;
}

void node_remove(struct node *n)
{
	if (n->pid > 0)
		node_kill(n);
	for (int i = 0; i < SUP_MAX_GATEWAYS; i++)
		if (n->sock[i] >= 0)
			close(n->sock[i]);
	close(n->ids);
	nftw(n->cfg.data, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* ---- supervisor and gateways ---- */

struct door_message {
	uint32_t index;
	pid_t pid;
	char error[256]; /* not empty: supervisor_run ended with this */
};

static pid_t spawn_fake(void *ctx, uint32_t index, int sock, struct error *err)
{
	int door = *(int *)ctx;
	pid_t parent = getpid(), pid = fork();
	if (pid != 0)
		return pid;
	/* One that is killed before this would leave us here with copies of all its sockets. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(1);
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	signal(SIGCHLD, SIG_DFL);
	struct door_message m = {.index = index, .pid = getpid()};
	send_fd(door, &m, sizeof(m), sock);
	close_range(0, ~0U, 0);
	for (;;)
		pause();
}

static void supervisor_child(struct node *n, int door)
{
	char path[sizeof(n->cfg.data) + 8];
	str_format(path, sizeof(path), "%s/log", n->cfg.data);
	int log = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	dup2(log, 2);
	close(log);
	struct door_message m = {.pid = 0};
	struct error err = {0};
	if (supervisor_run(&n->cfg, spawn_fake, &door, &err) == 0)
		_exit(0);
	str_copy(m.error, sizeof(m.error), str_of(err.text));
	send_fd(door, &m, sizeof(m), -1);
	_exit(1);
}

static void node_fork(struct node *n)
{
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	fflush(NULL);
	n->pid = fork();
	if (n->pid == 0) {
		close(pair[0]);
		for (int i = 0; i < SUP_MAX_GATEWAYS; i++)
			if (n->sock[i] >= 0)
				close(n->sock[i]);
		supervisor_child(n, pair[1]);
	}
	close(pair[1]);
	if (n->door >= 0)
		close(n->door);
	n->door = pair[0];
	for (int i = 0; i < 64; i++)
		if (running[i] == 0) {
			running[i] = n->pid;
			break;
		}
}

static void forget(pid_t pid)
{
	for (int i = 0; i < 64; i++)
		if (running[i] == pid)
			running[i] = 0;
}

int node_teardown(void **state)
{
	for (int i = 0; i < 64; i++)
		if (running[i]) {
			kill(running[i], SIGKILL);
			waitpid(running[i], NULL, 0);
			running[i] = 0;
		}
	return 0;
}

void node_take_gateway(struct node *n)
{
	struct door_message m;
	int fds[2];
	ssize_t len = recv_fds(n->door, &m, sizeof(m), fds, NODE_LIMIT_MS);
	if (len != sizeof(m))
		fail_msg("no gateway was started");
	if (m.error[0])
		fail_msg("the supervisor ended: %s", m.error);
	assert_true(m.index < n->cfg.gateways);
	if (n->sock[m.index] >= 0)
		close(n->sock[m.index]);
	n->sock[m.index] = fds[0];
	n->gateway[m.index] = m.pid;
}

void node_start(struct node *n)
{
	node_fork(n);
	for (uint32_t i = 0; i < n->cfg.gateways; i++)
		node_take_gateway(n);
}

int node_wait(struct node *n)
{
	int status;
	uint64_t end = now_ms() + 40000;
	while (waitpid(n->pid, &status, WNOHANG) == 0) {
		if (now_ms() > end)
			fail_msg("the supervisor does not end");
		sleep_ms(2);
	}
	forget(n->pid);
	n->pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int node_start_fails(struct node *n)
{
	node_fork(n);
	struct door_message m;
	int fds[2];
	do {
		if (recv_fds(n->door, &m, sizeof(m), fds, 2 * NODE_LIMIT_MS) != sizeof(m))
			fail_msg("the supervisor said nothing");
		if (fds[0] >= 0)
			close(fds[0]);
	} while (!m.error[0]);
	str_format(n->error, sizeof(n->error), "%s", m.error);
	return node_wait(n);
}

int node_stop(struct node *n)
{
	kill(n->pid, SIGTERM);
	return node_wait(n);
}

void node_kill(struct node *n)
{
	kill(n->pid, SIGKILL);
	node_wait(n);
}

/* ---- what is left ---- */

static void find_groups(const struct node *n, const char *what)
{
	char name[32], path[512];
	uint8_t hash[32];
	id_sha256(str_of(n->cfg.data), hash);
	str_format(name, sizeof(name), "brig-%02x%02x%02x%02x%02x%02x", hash[0], hash[1], hash[2],
	        hash[3], hash[4], hash[5]);
	str_format(path, sizeof(path),
	        "find /sys/fs/cgroup -type d -name '%s*' 2>/dev/null | grep -q . && exit 1; exit 0",
	        name);
	pid_t pid = fork();
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", path, NULL);
		_exit(127);
	}
	int status;
	waitpid(pid, &status, 0);
	if (status != 0)
		fail_msg("%s: cgroups %s are left", what, name);
}

/* A loop device that is the data folder's, by name, or false. */
static bool find_loop(const struct node *n, char name[300])
{
	DIR *dir = opendir("/sys/block");
	struct dirent *e;
	bool found = false;
	while (dir && !found && (e = readdir(dir))) {
		char path[600], text[4096] = "";
		str_format(path, sizeof(path), "/sys/block/%s/loop/backing_file", e->d_name);
		int fd = open(path, O_RDONLY);
		if (fd < 0)
			continue;
		ssize_t len = read(fd, text, sizeof(text) - 1);
		close(fd);
		found = len > 0 && strstr(text, n->cfg.data);
		if (found)
			str_format(name, 300, "%s: %s", e->d_name, text);
	}
	closedir(dir);
	return found;
}

/* Those of a supervisor that was killed go when the kernel has ended their last mount. */
static void find_loops(const struct node *n)
{
	char name[300];
	uint64_t end = now_ms() + NODE_LIMIT_MS;
	while (find_loop(n, name)) {
		if (now_ms() > end)
			fail_msg("a loop device is left: %s", name);
		sleep_ms(20);
	}
}

/* Says what is left, and whose it is. */
static bool show(void *ctx, pid_t pid)
{
	static const char *const FILES[] = {"cmdline", "status", "cgroup"};
	for (size_t i = 0; i < sizeof(FILES) / sizeof(FILES[0]); i++) {
		char path[64], text[4096] = "";
		str_format(path, sizeof(path), "/proc/%d/%s", (int)pid, FILES[i]);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0)
			fprintf(stderr, "left: %s: %s\n", path, text);
		if (fd >= 0)
			close(fd);
	}
	return true;
}

void node_check_nothing_left(const struct node *n)
{
	char line[8192];
	FILE *mounts = fopen("/proc/self/mountinfo", "r");
	while (fgets(line, sizeof(line), mounts))
		if (strstr(line, n->cfg.data))
			fail_msg("mount is left: %s", line);
	fclose(mounts);
	find_groups(n, "at the end");
	find_loops(n);
	/* One that ends leaves its groups a moment before it is gone. */
	uint64_t end = now_ms() + NODE_LIMIT_MS;
	int count;
	while (node_ticks(n, &count), count > 0 && now_ms() < end)
		sleep_ms(5);
	node_each_process(n, show, NULL);
	assert_int_equal(count, 0);
	assert_int_equal(node_files(n, "scratch"), 0);
}

int node_fds(pid_t pid)
{
	char path[64];
	int count = 0;
	str_format(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *dir = opendir(path);
	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

int node_files(const struct node *n, const char *folder)
{
	char path[sizeof(n->cfg.data) + 16];
	str_format(path, sizeof(path), "%s/%s", n->cfg.data, folder);
	DIR *dir = opendir(path);
	int files = 0;
	for (struct dirent *e; dir && (e = readdir(dir));)
		files += e->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return files;
}

int node_logged(const struct node *n, const char *text)
{
	char path[sizeof(n->cfg.data) + 8], line[4096];
	int count = 0;
	str_format(path, sizeof(path), "%s/log", n->cfg.data);
	FILE *f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		count += strstr(line, text) != NULL;
	if (f)
		fclose(f);
	return count;
}

void node_each_process(const struct node *n, bool (*call)(void *ctx, pid_t pid), void *ctx)
{
	uid_t low = sup_uid_lease(&n->cfg, 0),
	      high = sup_uid_lease(&n->cfg, n->cfg.n_leases + n->cfg.n_workers);
	DIR *dir = opendir("/proc");
	struct dirent *e;
	while ((e = readdir(dir))) {
		char path[64];
		int pid = atoi(e->d_name); /* 0 for what is no number */
		str_format(path, sizeof(path), "/proc/%d/status", pid);
		FILE *f = pid > 0 ? fopen(path, "r") : NULL;
		if (!f)
			continue;
		char line[256], run = ' ';
		unsigned int uid = 0;
		while (fgets(line, sizeof(line), f)) {
			sscanf(line, "State: %c", &run);
			if (sscanf(line, "Uid: %u", &uid) == 1)
				break;
		}
		fclose(f);
		if (run == 'Z') /* a dead supervisor's children are for the system's init to reap */
			continue;
		if (uid >= low && uid < high && !call(ctx, pid))
			break;
	}
	closedir(dir);
}

struct ticks {
	uint64_t sum;
	int count;
};

static bool add_ticks(void *ctx, pid_t pid)
{
	struct ticks *t = ctx;
	char path[64], line[1024];
	str_format(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *f = fopen(path, "r");
	if (f && fgets(line, sizeof(line), f)) {
		unsigned long u = 0, s = 0;
		const char *p = strrchr(line, ')');
		if (p && sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &u,
		                 &s) == 2)
			t->sum += u + s;
		t->count++;
	}
	if (f)
		fclose(f);
	return true;
}

uint64_t node_ticks(const struct node *n, int *ret_count)
{
	struct ticks t = {0};
	node_each_process(n, add_ticks, &t);
	if (ret_count)
		*ret_count = t.count;
	return t.sum;
}

struct init_search {
	const struct node *n;
	pid_t pid;
	int count;
};

static bool is_init(void *ctx, pid_t pid)
{
	struct init_search *s = ctx;
	char path[64], line[256];
	int ids[8];
	str_format(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "NSpid: %d %d", &ids[0], &ids[1]) == 2 && ids[1] == 1) {
			s->pid = pid;
			s->count++;
		}
	if (f)
		fclose(f);
	return true;
}

int node_inits(const struct node *n)
{
	struct init_search s = {.n = n};
	node_each_process(n, is_init, &s);
	return s.count;
}

pid_t node_find_init(const struct node *n)
{
	struct init_search s = {.n = n};
	node_each_process(n, is_init, &s);
	return s.pid;
}

/* ---- messages ---- */

static void key_of(uint8_t key[SUP_KEY_LEN], const char *name)
{
	id_sha256(str_of(name), key);
}

struct sup_claim node_claim(struct node *n, const char *name)
{
	struct sup_claim c = {
	        .h = {.op = SUP_CLAIM, .size = sizeof(c), .seq = ++n->seq},
	        .workspace = "w",
	        .memory_mib = 256,
	        .cpu_milli = 1000,
	        .processes = 64,
	        .hostname = "box",
	};
	key_of(c.key, name);
	return c;
}

void node_send(struct node *n, uint32_t gateway, const void *msg, size_t len)
{
	send_fd(n->sock[gateway], msg, len, -1);
}

void node_recv(struct node *n, uint32_t gateway, union reply *ret, int *ret_fd)
{
	int fds[2];
	ssize_t len = recv_fds(n->sock[gateway], ret, sizeof(*ret), fds, 2 * NODE_LIMIT_MS);
	if (len < 0)
		fail_msg("gateway %u got no message", gateway);
	if (len == 0)
		fail_msg("gateway %u: socket was closed", gateway);
	assert_int_equal(len, ret->h.size);
	*ret_fd = fds[0];
}

bool node_quiet(struct node *n, uint32_t gateway, int ms)
{
	struct pollfd p = {n->sock[gateway], POLLIN, 0};
	return poll(&p, 1, ms) == 0;
}

static int recv_answer(struct node *n, uint32_t gateway, uint32_t seq, union reply *ret)
{
	int fd;
	do
		node_recv(n, gateway, ret, &fd);
	while (ret->h.op == SUP_ENDED);
	assert_int_equal(ret->h.seq, seq);
	return fd;
}

int node_claimed(struct node *n, uint32_t gateway, struct sup_claim *c, union reply *ret)
{
	c->h.seq = ++n->seq;
	node_send(n, gateway, c, sizeof(*c));
	int fd = recv_answer(n, gateway, c->h.seq, ret);
	assert_int_equal(fd >= 0, ret->h.op == SUP_CLAIMED);
	if (fd < 0)
		assert_int_equal(ret->h.op, SUP_FAILED);
	return fd;
}

void node_release(struct node *n, uint32_t gateway, uint64_t hold)
{
	struct sup_hold m = {
	        .h = {.op = SUP_RELEASE, .size = sizeof(m), .seq = ++n->seq}, .hold = hold};
	node_send(n, gateway, &m, sizeof(m));
}

void node_key_op(
        struct node *n, uint32_t gateway, enum sup_op op, const char *name, union reply *ret)
{
	struct sup_key m = {.h = {.op = (uint16_t)op, .size = sizeof(m), .seq = ++n->seq}};
	key_of(m.key, name);
	node_send(n, gateway, &m, sizeof(m));
	assert_int_equal(recv_answer(n, gateway, m.h.seq, ret), -1);
}

void node_keep(struct node *n, uint32_t gateway, const char *name, uint64_t ms, union reply *ret)
{
	struct sup_keep m = {
	        .h = {.op = SUP_KEEP, .size = sizeof(m), .seq = ++n->seq}, .keep_ms = ms};
	key_of(m.key, name);
	node_send(n, gateway, &m, sizeof(m));
	assert_int_equal(recv_answer(n, gateway, m.h.seq, ret), -1);
}

uint32_t node_state(struct node *n, const char *name)
{
	union reply r;
	node_key_op(n, 0, SUP_STATUS, name, &r);
	assert_int_equal(r.h.op, SUP_STATUS_IS);
	return r.status.state;
}

void node_await_state(struct node *n, const char *name, uint32_t state)
{
	uint64_t end = now_ms() + NODE_LIMIT_MS;
	while (node_state(n, name) != state) {
		if (now_ms() > end)
			fail_msg("%s does not come to state %u (is %u)", name, state,
			        node_state(n, name));
		sleep_ms(5);
	}
}

/* ---- commands ---- */

static void send_run(int channel, const char *script, uint64_t id)
{
	char bytes[sizeof(struct init_run) + 4096];
	struct init_run run = {.h = {.op = INIT_RUN, .size = sizeof(run)},
	        .id = id,
	        .timeout_ms = 20000,
	        .flags = INIT_RUN_SHELL,
	        .argc = 1,
	        .envc = 1};
	static const char env[] = "PATH=/bin", cwd[] = "/workspace/home", user[] = "";
	size_t at = sizeof(run), len = strlen(script) + 1;
	memcpy(bytes + at, script, len);
	at += len;
	memcpy(bytes + at, env, sizeof(env));
	at += sizeof(env);
	memcpy(bytes + at, cwd, sizeof(cwd));
	at += sizeof(cwd);
	memcpy(bytes + at, user, sizeof(user));
	at += sizeof(user);
	run.payload_len = (uint32_t)(at - sizeof(run));
	memcpy(bytes, &run, sizeof(run));
	assert_int_equal(send(channel, bytes, at, MSG_NOSIGNAL), (ssize_t)at);
}

union init_reply {
	struct init_header h;
	struct init_done done;
	struct init_refused refused;
	uint8_t bytes[512];
};

static size_t drain_output(const char *script, int fds[2], char *out, size_t size)
{
	size_t len = 0;
	uint64_t end = now_ms() + 2 * NODE_LIMIT_MS;
	struct pollfd p[2] = {{fds[0], POLLIN, 0}, {fds[1], POLLIN, 0}};
	while (p[0].fd >= 0 || p[1].fd >= 0) {
		if (now_ms() > end)
			fail_msg("output of %s does not end, so far: %.*s", script, (int)len, out);
		poll(p, 2, 1000);
		for (int i = 0; i < 2; i++) {
			char text[4096];
			if (p[i].fd < 0 || !p[i].revents)
				continue;
			ssize_t n = read(p[i].fd, text, sizeof(text));
			if (n <= 0) {
				close(p[i].fd);
				p[i].fd = -1;
			}
			for (ssize_t k = 0; k < n && len + 1 < size; k++)
				out[len++] = text[k];
		}
	}
	return len;
}

int channel_run(int channel, const char *script, char *out, size_t size)
{
	static uint64_t last;
	union init_reply r;
	int fds[2];
	send_run(channel, script, ++last);
	ssize_t n = recv_fds(channel, &r, sizeof(r), fds, NODE_LIMIT_MS);
	if (n <= 0)
		fail_msg("init did not answer INIT_RUN");
	if (r.h.op == INIT_REFUSED)
		fail_msg("init refused: %s: %s", r.refused.step, strerror((int)r.refused.errnum));
	assert_int_equal(r.h.op, INIT_STARTED);
	out[drain_output(script, fds, out, size)] = '\0';
	n = recv_fds(channel, &r, sizeof(r), fds, 3 * NODE_LIMIT_MS);
	if (n <= 0)
		fail_msg("init did not say INIT_DONE");
	assert_int_equal(r.h.op, INIT_DONE);
	assert_int_equal(r.done.id, last);
	if (r.done.outcome == INIT_EXITED)
		return (int)r.done.code;
	return (r.done.outcome == INIT_SIGNALED ? 1000 : 2000) + (int)r.done.code;
}

const char *channel_output(int channel, const char *script)
{
	static char out[65536];
	int code = channel_run(channel, script, out, sizeof(out));
	if (code != 0)
		fail_msg("%s: code %d, %s", script, code, out);
	return out;
}

void channel_start(int channel, const char *script, uint64_t id)
{
	union init_reply r;
	int fds[2];
	send_run(channel, script, id);
	if (recv_fds(channel, &r, sizeof(r), fds, NODE_LIMIT_MS) <= 0 || r.h.op != INIT_STARTED)
		fail_msg("init did not start a command");
	close(fds[0]);
	close(fds[1]);
}

bool channel_is_closed(int channel, int ms)
{
	uint64_t end = now_ms() + (uint64_t)ms;
	for (;;) {
		union init_reply r;
		int fds[2];
		uint64_t now = now_ms();
		ssize_t n = recv_fds(channel, &r, sizeof(r), fds, now < end ? (int)(end - now) : 0);
		if (n <= 0)
			return n == 0;
	}
}
