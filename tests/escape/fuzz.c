/*
 * Random system calls (K7): children, each for a few hundred calls or 300 ms, with arguments that
 * are often descriptors, addresses, paths and small numbers, so that the calls get somewhere. What
 * would only end or stop the fuzzing itself is left out: exits, signals to others, sync (which is
 * the whole machine's). Run inside a container only. The seed makes the same calls again, as far as
 * the kernel's own state allows.
 */
#include "escape.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>

#define CALLS       400
#define CHILD_MS    300
#define NEWEST      475 /* beyond the last call that there is */
#define MEMORY      (96 << 20)
#define BUFFER_SIZE 65536

static uint64_t state;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static const long LEFT_OUT[] = {SYS_exit, SYS_exit_group, SYS_kill, SYS_tkill, SYS_tgkill,
        SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_pidfd_send_signal, SYS_sync, SYS_syncfs,
        SYS_rt_sigreturn, SYS_setitimer, SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_alarm,
        SYS_setrlimit, SYS_prlimit64, SYS_setsid};

/* Calls with much behind them, taken more often than by chance. */
static const long DEEP[] = {SYS_ioctl, SYS_setsockopt, SYS_getsockopt, SYS_sendmsg, SYS_recvmsg,
        SYS_sendmmsg, SYS_splice, SYS_tee, SYS_vmsplice, SYS_sendfile, SYS_copy_file_range,
        SYS_mmap, SYS_mremap, SYS_madvise, SYS_mprotect, SYS_futex, 449, 454, 455, 456,
        SYS_epoll_ctl, SYS_fcntl, SYS_prctl, SYS_ptrace, SYS_semop, SYS_msgsnd, SYS_msgrcv,
        SYS_shmat, SYS_shmctl, SYS_timer_create, SYS_timer_settime, SYS_timerfd_settime,
        SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_seccomp, SYS_mq_open, SYS_mq_notify,
        SYS_name_to_handle_at, SYS_openat2, SYS_statx, SYS_setxattr, SYS_fsetxattr, SYS_renameat2,
        SYS_linkat, SYS_inotify_add_watch, SYS_memfd_create, SYS_fallocate, SYS_pidfd_open,
        SYS_waitid, SYS_process_vm_readv, SYS_process_vm_writev, SYS_execveat, SYS_socket,
        SYS_socketpair, SYS_bind, SYS_connect, SYS_accept4, SYS_rseq, SYS_membarrier,
        SYS_sched_setattr, SYS_sched_setaffinity, 447, 451, 453, 457, 458, 462, 463, 464};

static const char *const PATHS[] = {"/tmp/fuzz/a", "/tmp/fuzz/b", "/tmp/fuzz", "/dev/shm/f",
        "/proc/self/mem", "/proc/self/fd/3", "/proc/self/ns/net", "/proc/1/mem",
        "/proc/self/map_files", "/dev/ptmx", "/dev/null", "/usr/bin/su", "/workspace/home/f",
        "/proc/self/clear_refs", "/proc/sys/kernel/core_pattern", "", ".", "/proc/self/pagemap"};

static char *buffer;
static int fds[48];
static size_t n_fds;

static void add_fd(int fd)
{
	if (fd >= 0 && n_fds < COUNT(fds))
		fds[n_fds++] = fd;
}

static void make_descriptors(void)
{
	int p[2];

	if (pipe2(p, O_NONBLOCK) == 0) {
		add_fd(p[0]);
		add_fd(p[1]);
	}
	for (int type = SOCK_STREAM; type <= SOCK_SEQPACKET; type += type == SOCK_STREAM ? 1 : 3) {
		if (socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, p) == 0) {
			add_fd(p[0]);
			add_fd(p[1]);
		}
	}
	for (int family = AF_INET; family <= AF_INET6; family += AF_INET6 - AF_INET) {
		add_fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0));
		add_fd(socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	}
	add_fd(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, 0));
	add_fd(epoll_create1(0));
	add_fd(eventfd(0, EFD_NONBLOCK));
	add_fd(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	add_fd(inotify_init1(IN_NONBLOCK));
	add_fd(memfd_create("fuzz", MFD_ALLOW_SEALING));
	add_fd((int)syscall(SYS_pidfd_open, getpid(), 0));
	for (size_t i = 0; i < COUNT(PATHS); i++) {
		add_fd(open(PATHS[i], O_RDWR | O_NONBLOCK | O_NOCTTY));
		add_fd(open(PATHS[i], O_RDONLY | O_NONBLOCK | O_NOCTTY));
	}
}

static unsigned long argument(void)
{
	uint64_t r = next();
	unsigned long where = TEXT(buffer) + (next() % BUFFER_SIZE & ~7ul);

	switch (r % 12) {
	case 0:
		return r >> 8 & 63;
	case 1:
	case 2:
	case 3:
		return (unsigned long)fds[(r >> 8) % n_fds];
	case 4:
	case 5:
	case 6:
		return where;
	case 7:
		return TEXT(PATHS[(r >> 8) % COUNT(PATHS)]);
	case 8:
		return 1ul << (r >> 8) % 64;
	case 9:
		return (r >> 8) % 3 ? (r >> 8 & 0xffff) : -1ul;
	case 10:
		return (r >> 8) % 2 ? 4096 : 0;
	default:
		return r >> (r >> 8) % 64;
	}
}

/* Fills a piece of what the arguments point to with arguments. */
static void stir(void)
{
	size_t at = next() % (BUFFER_SIZE - 256) & ~7ul;

	for (size_t i = 0; i < 24; i++) {
		unsigned long value = argument();

		memcpy(buffer + at + i * 8, &value, next() % 4 ? 8 : 4);
	}
}

static long choose(void)
{
	for (;;) {
		long nr = next() % 3 ? DEEP[next() % COUNT(DEEP)] : (long)(next() % NEWEST);
		bool good = true;

		for (size_t i = 0; i < COUNT(LEFT_OUT); i++)
			good = good && nr != LEFT_OUT[i];
		if (good)
			return nr;
	}
}

static void nothing(int sig)
{
	(void)sig;
}

static void child(void)
{
	struct sigaction wake = {.sa_handler = nothing};
	struct itimerval often = {{0, 20000}, {0, 20000}};
	struct rlimit memory = {MEMORY, MEMORY}, files = {256, 256};
	pid_t own = getpid();

	setsid();
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	if (chdir("/tmp/fuzz") < 0)
		_exit(1);
	setrlimit(RLIMIT_AS, &memory);
	setrlimit(RLIMIT_NOFILE, &files);
	buffer =
	        mmap(NULL, BUFFER_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffer == MAP_FAILED)
		_exit(1);
	make_descriptors();
	sigaction(SIGALRM, &wake, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < CALLS; i++) {
		long nr = choose();

		if (i % 4 == 0)
			stir();
		syscall(nr, argument(), argument(), argument(), argument(), argument(), argument());
		if (syscall(SYS_getpid) != own)
			syscall(SYS_exit_group, 0);
	}
	_exit(0);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int fuzz_run(unsigned int seconds, uint64_t seed)
{
	uint64_t end = now_ms() + seconds * 1000ull, n = 0;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* A child that attaches to us would only stop us. */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	mkdir("/tmp/fuzz", 0777);
	chmod("/tmp/fuzz", 0777);
	for (; now_ms() < end; n++) {
		uint64_t over = now_ms() + CHILD_MS;
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			state = (seed + n) * 0x9e3779b97f4a7c15ull | 1;
			/* What it does to its standard streams is not what the test reads. */
			for (int fd = 0; fd < 3; fd++)
				dup2(null, fd);
			child();
		}
		if (pid < 0) {
			usleep(10000);
			continue;
		}
		while (waitpid(pid, &status, WNOHANG) == 0) {
			if (now_ms() > over)
				kill(pid, SIGKILL);
			usleep(500);
		}
		/* What it has left behind is ours to reap where it is not init's. */
		while (waitpid(-1, &status, WNOHANG) > 0)
			;
	}
	printf("%llu rounds of %d calls\n", (unsigned long long)n, CALLS);
	return 0;
}
