/*
 * Kinds of memory, each taken alone until something stops it (L9). Whatever the kernel charges to
 * the container ends in a kill there; the rest must end in an error before it is much. What was
 * taken is held while the test looks at the machine.
 */
#include "escape.h"

#include <dirent.h>
#include <linux/filter.h>
#include <mqueue.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <time.h>

#define MOST         (1ul << 30) /* bytes that nobody may get, by the reckoning of each kind */
#define SECONDS      2           /* for those that the kernel takes back as fast */
#define HOLD_SECONDS 1

static char block[1 << 20];

static bool time_is_up(void)
{
	static time_t end;

	if (!end)
		end = time(NULL) + SECONDS;
	return time(NULL) > end;
}

static size_t hog_anonymous(void)
{
	size_t n = 0;

	for (; n < MOST; n += sizeof block) {
		char *at = mmap(NULL, sizeof block, PROT_READ | PROT_WRITE,
		        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (at == MAP_FAILED)
			break;
	}
	return n;
}

/* One page of a table for each two megabytes of addresses. */
static size_t hog_tables(void)
{
	size_t n = 0;
	char *at = mmap(NULL, MOST / 4096 << 21, PROT_READ,
	        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return 0;
	madvise(at, MOST / 4096 << 21, MADV_NOHUGEPAGE);
	for (; n < MOST; n += 4096)
		(void)*(volatile char *)(at + (n / 4096 << 21));
	return n;
}

static size_t fill(int fd)
{
	size_t n = 0;
	ssize_t rc;

	while (n < MOST && (rc = write(fd, block, sizeof block)) > 0)
		n += (size_t)rc;
	return n;
}

static size_t hog_memfd(void)
{
	return fill((int)syscall(SYS_memfd_create, "hog", 1));
}

static size_t hog_tmpfs(void)
{
	return fill(open("/tmp/hog", O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) +
	       fill(open("/dev/shm/hog", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static size_t hog_shm(void)
{
	size_t n = 0;

	for (; n < MOST; n += sizeof block) {
		int id = shmget(IPC_PRIVATE, sizeof block, 0600);
		void *at = id < 0 ? (void *)-1 : shmat(id, NULL, 0);

		if (at == (void *)-1)
			break;
		memset(at, 1, sizeof block);
	}
	return n;
}

static size_t hog_pipes(void)
{
	size_t n = 0;
	int p[2];

	while (n < MOST && pipe2(p, O_CLOEXEC | O_NONBLOCK) == 0) {
		ssize_t rc;

		fcntl(p[1], F_SETPIPE_SZ, 1 << 20);
		while ((rc = write(p[1], block, 4096)) > 0)
			n += (size_t)rc;
	}
	return n;
}

static size_t hog_sockets(void)
{
	size_t n = 0;
	int s[2], size = 1 << 30;

	while (n < MOST &&
	        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, s) == 0) {
		ssize_t rc;

		setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
		while ((rc = send(s[0], block, 65536, MSG_DONTWAIT)) > 0)
			n += (size_t)rc;
	}
	return n;
}

/* Open files that are nowhere but in messages. */
static size_t hog_in_flight(void)
{
	char control[CMSG_SPACE(sizeof(int) * 64)];
	struct iovec v = {block, 1};
	struct msghdr m = {.msg_iov = &v,
	        .msg_iovlen = 1,
	        .msg_control = control,
	        .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	size_t n = 0;
	int s[2];

	*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
	        .cmsg_type = SCM_RIGHTS,
	        .cmsg_len = CMSG_LEN(sizeof(int) * 64)};
	while (n < MOST &&
	        socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, s) == 0) {
		int sent = 0;

		for (;; sent++) {
			int fds[64];

			for (int i = 0; i < 64; i++)
				fds[i] = (int)syscall(SYS_eventfd2, 0, 0);
			memcpy(CMSG_DATA(c), fds, sizeof fds);
			if (sendmsg(s[0], &m, MSG_DONTWAIT) < 0)
				break;
			for (int i = 0; i < 64; i++)
				close(fds[i]);
			n += 64 * 256;
		}
		if (!sent)
			break;
	}
	return n;
}

/* Names that do not exist are remembered, too. */
static size_t hog_names(void)
{
	char path[300];
	size_t n = 0;

	memset(block, 'n', 200);
	for (; !time_is_up(); n += 512) {
		snprintf(path, sizeof path, "/workspace/home/%.200s%zu", block, n);
		access(path, F_OK);
	}
	return 0; /* all of it can be taken back at any time */
}

static size_t hog_folders(void)
{
	char path[300];
	size_t n = 0;

	if (mkdir("/workspace/home/many", 0755) < 0 || chdir("/workspace/home/many") < 0)
		return 0;
	for (; n < MOST && !time_is_up(); n += 1024) {
		snprintf(path, sizeof path, "%zu", n);
		if (mkdir(path, 0700) < 0)
			break;
	}
	return n;
}

static size_t hog_watches(void)
{
	char path[64];
	size_t n = 0;
	int fd;

	for (int i = 0; i < 4000; i++) {
		snprintf(path, sizeof path, "/tmp/w%d", i);
		mkdir(path, 0700);
	}
	while (n < MOST && (fd = inotify_init1(IN_CLOEXEC)) >= 0)
		for (int i = 0; i < 4000; i++) {
			snprintf(path, sizeof path, "/tmp/w%d", i);
			if (inotify_add_watch(fd, path, IN_ALL_EVENTS) < 0)
				return n;
			n += 200;
		}
	return n;
}

/* What an inotify instance has not told yet. */
static size_t hog_events(void)
{
	size_t n = 0;
	int fd, file = open("/tmp/event", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	while (n < MOST && !time_is_up() && (fd = inotify_init1(IN_CLOEXEC)) >= 0) {
		inotify_add_watch(fd, "/tmp/event", IN_MODIFY | IN_ACCESS);
		for (int i = 0; i < 8000; i++) {
			(void)!pwrite(file, "x", 1, 0);
			(void)!pread(file, block, 1, 0);
			n += 128;
		}
	}
	return n;
}

static size_t hog_polls(void)
{
	struct epoll_event e = {.events = EPOLLIN};
	int ends[512], poll;
	size_t n = 0;

	for (size_t i = 0; i < COUNT(ends); i++)
		ends[i] = (int)syscall(SYS_eventfd2, 0, 0);
	while (n < MOST && (poll = epoll_create1(EPOLL_CLOEXEC)) >= 0)
		for (size_t i = 0; i < COUNT(ends); i++) {
			if (epoll_ctl(poll, EPOLL_CTL_ADD, ends[i], &e) < 0)
				return n;
			n += 256;
		}
	return n;
}

static size_t hog_locks(void)
{
	char path[64];
	size_t n = 0;

	/* Each lock is held against all of its file. */
	for (int file = 0; n < MOST && file < 4000 && !time_is_up(); file++) {
		snprintf(path, sizeof path, "/tmp/l%d", file);
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

		for (int i = 0; i < 1000; i++, n += 256) {
			struct flock l = {.l_type = F_RDLCK, .l_start = 2000 - 2 * i, .l_len = 1};

			if (fcntl(fd, F_SETLK, &l) < 0)
				return n;
		}
	}
	return n;
}

static size_t hog_areas(void)
{
	size_t n = 0;
	char *at = mmap(NULL, 60000ul * 8192, PROT_NONE,
	        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	for (int i = 0; i < 30000; i++)
		mprotect(at + i * 8192l, 4096, PROT_READ);
	for (; n < MOST; n += 60000 * 200) {
		pid_t pid = fork();

		if (pid < 0)
			break;
		if (pid == 0) {
			pause();
			_exit(0);
		}
	}
	return n;
}

/* A memfd lies on a file system that has no size. */
static size_t hog_attributes(void)
{
	char name[64];
	size_t n = 0;
	int fd;

	while (n < MOST && (fd = (int)syscall(SYS_memfd_create, "hog", 1)) >= 0)
		for (int i = 0; i < 64; i++) {
			snprintf(name, sizeof name, "user.a%d", i);
			if (fsetxattr(fd, name, block, 65536, 0) < 0)
				return n;
			n += 65536;
		}
	return n;
}

/* Programs on sockets: their machine code is the whole machine's to run out of. */
static size_t hog_filters(void)
{
	static struct sock_filter program[4000];
	struct sock_fprog p = {COUNT(program), program};
	size_t n = 0;
	int fd;

	for (size_t i = 0; i + 1 < COUNT(program); i++)
		program[i] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 12345);
	program[COUNT(program) - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 1);
	while (n < MOST && (fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) >= 0) {
		if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &p, sizeof p) < 0)
			break;
		n += 64 << 10;
	}
	return n;
}

static size_t hog_terminals(void)
{
	int unlocked = 0, fd;
	size_t n = 0;

	while (n < MOST &&
	        (fd = open("/dev/ptmx", O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) >= 0) {
		ssize_t rc;

		ioctl(fd, TIOCSPTLCK, &unlocked);
		while ((rc = write(fd, block, 4096)) > 0 && n < MOST)
			n += (size_t)rc;
	}
	return n;
}

static size_t hog_queues(void)
{
	size_t n = 0;
	int q;

	while (n < MOST && (q = msgget(IPC_PRIVATE, 0600)) >= 0)
		while (msgsnd(q, "\1\0\0\0\0\0\0\0message", 8, IPC_NOWAIT) == 0 && n < MOST)
			n += 64;
	while (n < MOST && semget(IPC_PRIVATE, 250, 0600) >= 0)
		n += 250 * 64;
	return n;
}

/* Rights of files in rule sets, which nothing counts but memory. */
static size_t hog_rules(void)
{
	uint64_t attr[2] = {1, 0};
	struct {
		uint64_t access;
		int32_t fd;
	} __attribute__((packed)) rule = {.access = 1};
	size_t n = 0;
	int set;

	while (n < MOST && (set = (int)syscall(SYS_landlock_create_ruleset, attr, 8, 0)) >= 0) {
		DIR *d = opendir("/usr/bin");
		struct dirent *e;

		while (d && (e = readdir(d)) && n < MOST) {
			rule.fd = openat(dirfd(d), e->d_name, O_PATH | O_CLOEXEC);
			if (syscall(SYS_landlock_add_rule, set, 1, &rule, 0) == 0)
				n += 128;
			close(rule.fd);
		}
		if (d)
			closedir(d);
		if (time_is_up())
			break;
	}
	return n;
}

static const struct {
	const char *name;
	size_t (*take)(void);
} KINDS[] = {{"anonymous", hog_anonymous}, {"tables", hog_tables}, {"memfd", hog_memfd},
        {"tmpfs", hog_tmpfs}, {"shm", hog_shm}, {"pipes", hog_pipes}, {"sockets", hog_sockets},
        {"in-flight", hog_in_flight}, {"names", hog_names}, {"folders", hog_folders},
        {"watches", hog_watches}, {"events", hog_events}, {"polls", hog_polls},
        {"locks", hog_locks}, {"areas", hog_areas}, {"attributes", hog_attributes},
        {"filters", hog_filters}, {"terminals", hog_terminals}, {"queues", hog_queues},
        {"rules", hog_rules}};

int hog_run(const char *kind)
{
	struct rlimit r;
	size_t n;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
	if (!strcmp(kind, "list")) {
		for (size_t i = 0; i < COUNT(KINDS); i++)
			puts(KINDS[i].name);
		return 0;
	}
	for (size_t i = 0; i < COUNT(KINDS); i++) {
		if (strcmp(KINDS[i].name, kind) != 0)
			continue;
		n = KINDS[i].take();
		printf("%zu MiB %s\n", n >> 20, n >= MOST ? "and no end" : strerror(errno));
		fflush(stdout);
		sleep(HOLD_SECONDS);
		kill(0, SIGTERM);
		return n >= MOST;
	}
	fprintf(stderr, "escape: no kind %s\n", kind);
	return 2;
}
