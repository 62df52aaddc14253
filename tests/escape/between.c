/*
 * The halves of what two containers try on each other: one makes or takes, the other looks for it
 * or needs it. And what can be read of the host in a container.
 */
#include "escape.h"

#include <ftw.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <time.h>

static const char *const SHARED[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random",
        "/dev/urandom", "/dev/tty", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/dev/ptmx",
        "/usr/bin/bash", "/etc/passwd", "/usr/lib/os-release", "/usr", "/", "/tmp", "/proc",
        "/proc/version", "/proc/meminfo", "/proc/sys", "/proc/sys/kernel/hostname",
        "/proc/kallsyms", "/proc/self/ns/net", "/proc/self/ns/user", "/proc/self/ns/pid",
        "/workspace", "/workspace/home"};

#define CHANNEL_KEY  0x6272 /* SysV */
#define CHANNEL_NAME "escape-channel"
#define CHANNEL_PORT 47111

static socklen_t abstract_name(struct sockaddr_un *a)
{
	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(a->sun_path + 1, CHANNEL_NAME, sizeof CHANNEL_NAME - 1);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof CHANNEL_NAME);
}

/* Takes everything; then a line for each event that another container's acts bring. */
int between_make(void)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(CHANNEL_PORT)};
	struct sockaddr_un a;
	socklen_t len = abstract_name(&a);
	int events = inotify_init1(IN_CLOEXEC), fd;

	signal(SIGIO, SIG_IGN); /* says that a lease is wanted back */
	static char buf[65536] __attribute__((aligned(8)));
	int watched[256] = {0};
	struct mq_attr attr = {.mq_maxmsg = 1, .mq_msgsize = 8};

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bind(fd, (void *)&a, len);
	listen(fd, 1);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bind(fd, (void *)&in, sizeof in);
	listen(fd, 1);
	shmget(CHANNEL_KEY, 4096, IPC_CREAT | 0666);
	msgget(CHANNEL_KEY, IPC_CREAT | 0666);
	mq_open("/" CHANNEL_NAME, O_RDWR | O_CREAT, 0666, &attr);
	close(open("/dev/shm/" CHANNEL_NAME, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
	for (size_t i = 0; i < COUNT(SHARED); i++) {
		struct flock l = {.l_type = F_WRLCK, .l_start = 77, .l_len = 1};
		int wd;

		fd = open(SHARED[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (fd >= 0) {
			flock(fd, LOCK_EX | LOCK_NB);
			fcntl(fd, F_SETLEASE, F_RDLCK);
		}
		fd = open(SHARED[i], O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (fd >= 0)
			fcntl(fd, F_SETLK, &l);
		wd = inotify_add_watch(
		        events, SHARED[i], IN_OPEN | IN_MODIFY | IN_ATTRIB | IN_CREATE);
		if (wd > 0 && wd < 256)
			watched[wd] = (int)i;
	}
	/* What we did ourselves. */
	usleep(50000);
	struct pollfd p = {.fd = events, .events = POLLIN};
	while (poll(&p, 1, 0) > 0 && read(events, buf, sizeof buf) > 0)
		;
	printf("ready\n");
	fflush(stdout);
	while (poll(&p, 1, 6000) > 0) {
		ssize_t n = read(events, buf, sizeof buf);

		for (char *at = buf; at < buf + n;) {
			struct inotify_event *e = (void *)at;

			printf("L2 FAIL saw event %x on %s %s\n", e->mask,
			        SHARED[watched[e->wd & 255]], e->len ? e->name : "");
			at += sizeof *e + e->len;
		}
		fflush(stdout);
	}
	printf("done\n");
	return 0;
}

static void channel_seek(void)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(CHANNEL_PORT)};
	struct sockaddr_un a;
	socklen_t len = abstract_name(&a);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	refused(connect(fd, (void *)&a, len), ECONNREFUSED, ECONNREFUSED, "abstract socket");
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	refused(connect(fd, (void *)&in, sizeof in), ECONNREFUSED, ECONNREFUSED, "port");
	refused(shmget(CHANNEL_KEY, 0, 0), ENOENT, ENOENT, "shm segment");
	refused(msgget(CHANNEL_KEY, 0), ENOENT, ENOENT, "message queue");
	check(mq_open("/" CHANNEL_NAME, O_RDWR) < 0, "POSIX queue");
	check(!exists("/dev/shm/" CHANNEL_NAME), "shm name");
	for (size_t i = 0; i < COUNT(SHARED); i++) {
		struct flock l = {.l_type = F_WRLCK, .l_start = 77, .l_len = 1};

		fd = open(SHARED[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (fd >= 0)
			check(flock(fd, LOCK_EX | LOCK_NB) == 0, "flock on %s is taken", SHARED[i]);
		fd = open(SHARED[i], O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (fd >= 0)
			check(fcntl(fd, F_GETLK, &l) < 0 || l.l_type == F_UNLCK,
			        "record lock on %s is taken", SHARED[i]);
	}
}

/* ---- what can be read ---- */

static char **wanted;
static unsigned int n_found;

static int look_into(const char *path, const struct stat *st, int type, struct FTW *f)
{
	static char text[1 << 18];
	ssize_t n;

	(void)st;
	(void)f;
	if (type == FTW_SL || type == FTW_SLN) {
		n = readlink(path, text, sizeof text - 1);
		text[n < 0 ? 0 : n] = 0;
	} else if (type == FTW_F) {
		n = get(path, text, sizeof text);
	} else {
		return 0;
	}
	for (char **w = wanted; *w; w++)
		if (n > 0 && memmem(text, (size_t)n, *w, strlen(*w))) {
			printf("L4 FAIL \"%s\" in %s\n", *w, path);
			n_found++;
		}
	return 0;
}

/* The texts are our own arguments, so our own command line and memory do not count. */
int between_leaks(char **texts)
{
	char *copy[64] = {0};
	struct utsname u;

	for (size_t i = 0; texts[i] && i < 63; i++) {
		copy[i] = strdup(texts[i]);
		memset(texts[i], ' ', strlen(texts[i]));
	}
	wanted = copy;
	nftw("/proc", look_into, 32, FTW_PHYS);
	nftw("/sys", look_into, 32, FTW_PHYS);
	nftw("/etc", look_into, 32, FTW_PHYS);
	nftw("/run", look_into, 32, FTW_PHYS);
	uname(&u);
	for (char **w = copy; *w; w++)
		if (strstr(u.nodename, *w) || strstr(u.version, *w)) {
			printf("L4 FAIL \"%s\" in uname\n", *w);
			n_found++;
		}
	if (!n_found)
		printf("L4 PASS nothing of the host to be read\n");
	return n_found > 0;
}

int between_seek(void)
{
	return run_case("L2", channel_seek);
}

/* ---- what the kernel counts by user ---- */

/* Returns how many of each could be had, up to max. */
static int take_watches(int max)
{
	int n = 0;

	while (n < max && inotify_init1(IN_CLOEXEC) >= 0)
		n++;
	return n;
}

static int take_pipes(int max)
{
	int n = 0, p[2];

	while (n < max && pipe2(p, O_CLOEXEC) == 0 && fcntl(p[1], F_SETPIPE_SZ, 1 << 20) > 0)
		n++;
	return n;
}

static int take_signals(int max)
{
	sigset_t all;
	int n = 0;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	while (n < max && sigqueue(getpid(), SIGRTMIN, (union sigval){0}) == 0)
		n++;
	return n;
}

static int take_timers(int max)
{
	struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1};
	timer_t timer;
	int n = 0;

	while (n < max && timer_create(CLOCK_MONOTONIC, &e, &timer) == 0)
		n++;
	return n;
}

static int take_queues(int max)
{
	struct mq_attr attr = {.mq_maxmsg = 10, .mq_msgsize = 1024};
	char name[32];
	int n = 0;

	for (; n < max; n++) {
		snprintf(name, sizeof name, "/quota-%d-%d", getpid(), n);
		/* Landlock refuses what has been made and counted by then. */
		if (mq_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600, &attr) < 0 && errno != EACCES)
			break;
	}
	return n;
}

static int take_terminals(int max)
{
	int n = 0;

	while (n < max && open("/dev/ptmx", O_RDWR | O_CLOEXEC | O_NOCTTY) >= 0)
		n++;
	return n;
}

static int take_locked_pages(int max)
{
	int n = 0;

	while (n < max) {
		void *page = mmap(
		        NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (page == MAP_FAILED || mlock(page, 4096) < 0)
			break;
		n++;
	}
	return n;
}

static int take_polls(int max)
{
	struct epoll_event e = {.events = EPOLLIN};
	int p[2], n = 0;

	if (pipe2(p, O_CLOEXEC) < 0)
		return 0;
	for (; n < max; n++) {
		int poll = epoll_create1(EPOLL_CLOEXEC);

		if (poll < 0 || epoll_ctl(poll, EPOLL_CTL_ADD, p[0], &e) < 0)
			break;
	}
	return n;
}

static int take_segments(int max)
{
	int n = 0;

	while (n < max && shmget(IPC_PRIVATE, 4096, 0600) >= 0)
		n++;
	return n;
}

/* How many another container must still be able to have; one that may have all would never end. */
static const struct {
	const char *name;
	int (*take)(int max);
	int all, some;
} QUOTAS[] = {{"inotify instances", take_watches, 100000, 16},
        {"pipes of a megabyte", take_pipes, 20000, 4},
        {"pending signals", take_signals, 100000, 100}, {"timers", take_timers, 100000, 20},
        {"message queues", take_queues, 10000, 4}, {"terminals", take_terminals, 10000, 16},
        {"locked pages", take_locked_pages, 100000, 8}, {"polls", take_polls, 2000, 100},
        {"segments", take_segments, 5000, 16}};

static void raise_files(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max < 8192 ? r.rlim_max : 8192;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

int between_take(void)
{
	raise_files();
	for (size_t i = 0; i < COUNT(QUOTAS); i++) {
		pid_t pid = fork();

		/* Each in a process of its own, so that one's open files are not another's want. */
		if (pid == 0) {
			int n = QUOTAS[i].take(QUOTAS[i].all);

			printf("%s: %d\n", QUOTAS[i].name, n);
			fflush(stdout);
			pause();
		}
	}
	usleep(500000);
	printf("ready\n");
	fflush(stdout);
	close(open("/tmp/quota-ready", O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	pause();
	return 0;
}

static void need(void)
{
	for (size_t i = 0; i < COUNT(QUOTAS); i++) {
		int n = QUOTAS[i].take(QUOTAS[i].some);

		check(n == QUOTAS[i].some, "only %d %s", n, QUOTAS[i].name);
	}
}

int between_need(void)
{
	return run_case("L3", need);
}
