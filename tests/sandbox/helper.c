/*
 * sbx: what tests run inside a sandbox. Static, so that it needs nothing from the image. Each
 * sub-command does one thing and prints one fact a line, for the test outside to judge. Exit code
 * 2: wrong usage.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static long number(const char *text)
{
	return text ? strtol(text, NULL, 0) : 0;
}

static const char *error_name(int errnum)
{
	static const struct {
		int errnum;
		const char *name;
	} NAMES[] = {{0, "ok"}, {EPERM, "EPERM"}, {EACCES, "EACCES"}, {ENOSYS, "ENOSYS"},
	        {EINVAL, "EINVAL"}, {ENOENT, "ENOENT"}, {EROFS, "EROFS"}, {EFAULT, "EFAULT"},
	        {EBADF, "EBADF"}, {EAFNOSUPPORT, "EAFNOSUPPORT"},
	        {EPROTONOSUPPORT, "EPROTONOSUPPORT"}, {EXDEV, "EXDEV"}, {ESRCH, "ESRCH"},
	        {ENOTTY, "ENOTTY"}, {ENOTDIR, "ENOTDIR"}, {EAGAIN, "EAGAIN"}, {ENOTSUP, "ENOTSUP"},
	        {ECONNREFUSED, "ECONNREFUSED"}};
	static char other[16];

	for (size_t i = 0; i < COUNT(NAMES); i++)
		if (NAMES[i].errnum == errnum)
			return NAMES[i].name;
	snprintf(other, sizeof other, "%d", errnum);
	return other;
}

static void say(const char *name, long rc)
{
	printf("%s %s\n", name, error_name(rc < 0 ? errno : 0));
}

/* ---- what a process has ---- */

static int do_fds(char **argv)
{
	(void)argv;
	for (int fd = 0; fd < 1024; fd++) {
		char link[32], target[256];
		ssize_t n;

		if (fcntl(fd, F_GETFD) < 0)
			continue;
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		n = readlink(link, target, sizeof target - 1);
		target[n < 0 ? 0 : n] = 0;
		printf("%d %s\n", fd, target);
	}
	return 0;
}

static int do_ids(char **argv)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[2];
	uint64_t bounding = 0;
	uid_t u[3];
	gid_t g[3], groups[64];
	int n;

	(void)argv;
	getresuid(&u[0], &u[1], &u[2]);
	getresgid(&g[0], &g[1], &g[2]);
	printf("uid %u %u %u\ngid %u %u %u\ngroups", u[0], u[1], u[2], g[0], g[1], g[2]);
	n = getgroups(64, groups);
	for (int i = 0; i < n; i++)
		printf(" %u", groups[i]);
	if (syscall(SYS_capget, &head, caps) < 0)
		return 1;
	for (int i = 0; i < 64; i++)
		if (prctl(PR_CAPBSET_READ, i, 0, 0, 0) == 1)
			bounding |= 1ull << i;
	printf("\neffective %08x%08x\npermitted %08x%08x\ninheritable %08x%08x\nbounding %016llx\n",
	        caps[1].effective, caps[0].effective, caps[1].permitted, caps[0].permitted,
	        caps[1].inheritable, caps[0].inheritable, (unsigned long long)bounding);
	printf("no_new_privs %d\nseccomp %d\ndumpable %d\nsession %d\n",
	        prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_SECCOMP, 0, 0, 0, 0),
	        prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), getsid(0) == getpid());
	return 0;
}

static int do_limits(char **argv)
{
	static const struct {
		const char *name;
		int resource;
	} LIMITS[] = {{"core", RLIMIT_CORE}, {"nofile", RLIMIT_NOFILE}, {"memlock", RLIMIT_MEMLOCK},
	        {"rtprio", RLIMIT_RTPRIO}, {"nice", RLIMIT_NICE}, {"msgqueue", RLIMIT_MSGQUEUE},
	        {"sigpending", RLIMIT_SIGPENDING}};

	(void)argv;
	for (size_t i = 0; i < COUNT(LIMITS); i++) {
		struct rlimit r;

		if (getrlimit(LIMITS[i].resource, &r) == 0)
			printf("%s %llu %llu\n", LIMITS[i].name, (unsigned long long)r.rlim_cur,
			        (unsigned long long)r.rlim_max);
	}
	return 0;
}

/* ---- what a process may do ---- */

#define TEXT(s) ((unsigned long)(s))

/* Calls that a sandbox refuses, with arguments such that a kernel which let one through would
 * answer something else than EPERM or ENOSYS, or do nothing that matters. */
static int do_try(char **argv)
{
	const struct attempt {
		const char *name;
		long nr;
		unsigned long a[5];
	} ATTEMPTS[] = {
	        {"mount", SYS_mount, {TEXT("none"), TEXT("/tmp"), TEXT("tmpfs"), 0, 0}},
	        {"umount2", SYS_umount2, {TEXT("/proc/sys"), 0}},
	        {"pivot_root", SYS_pivot_root, {TEXT("/"), TEXT("/")}},
	        {"chroot", SYS_chroot, {TEXT("/")}},
	        {"open_tree", SYS_open_tree, {(unsigned long)AT_FDCWD, TEXT("/"), 1}},
	        {"move_mount", SYS_move_mount, {0}},
	        {"fsopen", SYS_fsopen, {TEXT("tmpfs")}},
	        {"fsmount", SYS_fsmount, {0}},
	        {"fspick", SYS_fspick, {(unsigned long)AT_FDCWD, TEXT("/")}},
	        {"mount_setattr", SYS_mount_setattr, {(unsigned long)AT_FDCWD, TEXT("/")}},
	        {"unshare_user", SYS_unshare, {CLONE_NEWUSER}},
	        {"unshare_mount", SYS_unshare, {CLONE_NEWNS}},
	        {"unshare_time", SYS_unshare, {0x80}},
	        {"clone_user", SYS_clone, {CLONE_NEWUSER | SIGCHLD}},
	        {"clone_net", SYS_clone, {CLONE_NEWNET | SIGCHLD}},
	        {"clone_pid", SYS_clone, {CLONE_NEWPID | SIGCHLD}},
	        {"clone3", SYS_clone3, {0, 0}},
	        {"setns", SYS_setns, {0, 0}},
	        {"io_uring_setup", SYS_io_uring_setup, {1, 0}},
	        {"userfaultfd", SYS_userfaultfd, {1}},
	        {"bpf", SYS_bpf, {0}},
	        {"perf_event_open", SYS_perf_event_open, {0}},
	        {"keyctl", SYS_keyctl, {0}},
	        {"add_key", SYS_add_key, {0}},
	        {"request_key", SYS_request_key, {0}},
	        {"kexec_load", SYS_kexec_load, {0}},
	        {"init_module", SYS_init_module, {0}},
	        {"finit_module", SYS_finit_module, {0}},
	        {"reboot", SYS_reboot, {0}},
	        {"swapon", SYS_swapon, {TEXT("/")}},
	        {"acct", SYS_acct, {0}},
	        {"syslog", SYS_syslog, {10}},
	        {"settimeofday", SYS_settimeofday, {0}},
	        {"clock_settime", SYS_clock_settime, {0, 0}},
	        {"sethostname", SYS_sethostname, {TEXT("x"), 1}},
	        {"open_by_handle_at", SYS_open_by_handle_at, {0}},
	        {"fanotify_init", SYS_fanotify_init, {0}},
	        {"quotactl", SYS_quotactl, {0}},
	        {"kcmp", SYS_kcmp, {1, 1}},
	        {"pidfd_getfd", SYS_pidfd_getfd, {0}},
	        {"process_madvise", SYS_process_madvise, {0}},
	        {"mbind", SYS_mbind, {0}},
	        {"set_mempolicy", SYS_set_mempolicy, {0}},
	        {"move_pages", SYS_move_pages, {0}},
	        {"vhangup", SYS_vhangup, {0}},
	        {"modify_ldt", SYS_modify_ldt, {0}},
	        {"personality_no_aslr", SYS_personality, {0x0040000}},
	        {"prlimit_init", SYS_prlimit64, {1, RLIMIT_NOFILE}},
	        {"prlimit_init_high", SYS_prlimit64, {0x100000001, RLIMIT_NOFILE}},
	        {"setpriority_init", SYS_setpriority, {PRIO_PROCESS, 1, 19}},
	        {"affinity_init", SYS_sched_setaffinity, {1, 8, TEXT("\1\0\0\0\0\0\0")}},
	        {"scheduler_init", SYS_sched_setscheduler, {1, 0, TEXT("\0\0\0")}},
	        {"ioprio_init", SYS_ioprio_set, {1, 1, 0}},
	        {"tiocsti", SYS_ioctl, {0, 0x5412, TEXT("x")}},
	        {"tiocsti_high", SYS_ioctl, {0, 0x100005412, TEXT("x")}},
	        {"tioclinux", SYS_ioctl, {0, 0x541c, TEXT("\1")}},
	        {"tiocsetd", SYS_ioctl, {0, 0x5423, TEXT("\0\0\0")}},
	        {"mknod_device", SYS_mknod, {TEXT("/tmp/node"), S_IFCHR | 0600, 0x103}},
	        {"too_new", 999, {0}},
	};

	(void)argv;
	for (size_t i = 0; i < COUNT(ATTEMPTS); i++) {
		const struct attempt *t = &ATTEMPTS[i];
		long rc = syscall(t->nr, t->a[0], t->a[1], t->a[2], t->a[3], t->a[4]);

		if (rc == 0 && t->nr == SYS_clone)
			_exit(0);
		say(t->name, rc);
	}
	return 0;
}

/* Every socket that opens: domain, type, protocol. And how the audit socket is refused. */
static int do_sockets(char **argv)
{
	(void)argv;
	for (int domain = 0; domain <= 64; domain++)
		for (int type = 1; type <= 10; type++)
			for (int protocol = 0; protocol <= 262; protocol++) {
				int fd = socket(domain, type | SOCK_CLOEXEC, protocol);

				if (fd >= 0)
					printf("%d %d %d\n", domain, type, protocol);
				else if (errno != EPERM && domain != AF_UNIX && domain != AF_INET &&
				         domain != AF_INET6)
					printf("%d %d %d %s\n", domain, type, protocol,
					        error_name(errno));
				close(fd);
			}
	return 0;
}

/* open() of each path, for reading and for writing. */
static int do_open(char **argv)
{
	for (; *argv; argv++) {
		int r = open(*argv, O_RDONLY | O_CLOEXEC | O_NONBLOCK), errnum = errno;
		int w = open(*argv, O_WRONLY | O_CLOEXEC | O_NONBLOCK);

		printf("%s %s", *argv, error_name(r < 0 ? errnum : 0));
		printf(" %s\n", error_name(w < 0 ? errno : 0));
		close(r);
		close(w);
	}
	return 0;
}

/* Takes an id by each call there is, and says how that went. */
static int do_become(char **argv)
{
	uid_t id = (uid_t)number(argv[0]);

	say("setuid", syscall(SYS_setuid, id));
	say("setreuid", syscall(SYS_setreuid, -1, id));
	say("setresuid", syscall(SYS_setresuid, -1, -1, id));
	/* setfsuid answers with the id before and never fails in a way that shows. */
	syscall(SYS_setfsuid, id);
	printf("setfsuid %s\n", (uid_t)syscall(SYS_setfsuid, -1) == id ? "ok" : "refused");
	return 0;
}

/* An entry by the table of 32-bit programs. */
static int do_int80(char **argv)
{
	long rc = 20; /* getpid there */

	(void)argv;
#ifdef __x86_64__
	__asm__ volatile("int $0x80" : "+a"(rc) : : "memory");
#endif
	printf("%ld\n", rc);
	return 0;
}

static int do_x32(char **argv)
{
	(void)argv;
	say("x32", syscall(0x40000000 | SYS_getpid));
	return 0;
}

/* ---- what a process may be like ---- */

_Noreturn static void sleep_for_ever(void)
{
	for (;;)
		pause();
}

static int do_ignore(char **argv)
{
	(void)argv;
	for (int s = 1; s < 65; s++)
		signal(s, SIG_IGN);
	puts("ready");
	fflush(stdout);
	sleep_for_ever();
}

/* A daemon by the book: forks twice, its own session, lets go of nothing. The leader waits, or
 * exits with "exit". */
static int do_daemon(char **argv)
{
	if (fork() == 0) {
		setsid();
		if (fork() == 0) {
			setsid();
			signal(SIGTERM, SIG_IGN);
			signal(SIGHUP, SIG_IGN);
			sleep_for_ever();
		}
		_exit(0);
	}
	wait(NULL);
	puts("ready");
	fflush(stdout);
	if (*argv && !strcmp(*argv, "exit"))
		return 0;
	sleep_for_ever();
}

/* Stops itself and a child. */
static int do_stop(char **argv)
{
	(void)argv;
	puts("ready");
	fflush(stdout);
	if (fork() == 0)
		raise(SIGSTOP);
	raise(SIGSTOP);
	sleep_for_ever();
}

/* The leader hangs in vfork, where no signal but SIGKILL of the child frees it. */
static int do_vfork(char **argv)
{
	pid_t pid;

	(void)argv;
	puts("ready");
	fflush(stdout);
	pid = vfork();
	if (pid == 0)
		for (;;)
			syscall(SYS_pause);
	return 0;
}

_Noreturn static int do_bomb(char **argv)
{
	(void)argv;
	puts("ready");
	fflush(stdout);
	for (;;)
		(void)!fork();
}

static int do_memory(char **argv)
{
	size_t len = (size_t)number(argv[0]) << 20;
	volatile char *p =
	        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return 1;
	for (size_t i = 0; i < len; i += 4096)
		p[i] = 1;
	puts("survived");
	return 0;
}

/* N bytes whose value tells their place: byte i is 'a' + (i / 7) % 26. "err" writes to stderr. */
static int do_bytes(char **argv)
{
	long n = number(argv[0]);
	FILE *out = argv[0] && argv[1] && !strcmp(argv[1], "err") ? stderr : stdout;

	for (long i = 0; i < n; i++)
		putc('a' + (int)(i / 7 % 26), out);
	return fflush(out) != 0;
}

/* Counts in a file, once in 10 ms, and prints as it does: alive while the number grows. Whoever
 * reads the file finds a whole number in it. */
static int do_count(char **argv)
{
	char next[256];

	snprintf(next, sizeof next, "%s.next", argv[0]);
	signal(SIGPIPE, SIG_DFL);
	for (unsigned long i = 0;; i++) {
		struct timespec ms10 = {0, 10000000};
		FILE *f = fopen(next, "w");

		if (!f)
			return 1;
		fprintf(f, "%lu\n", i);
		fclose(f);
		if (rename(next, argv[0]) < 0)
			return 1;
		printf("%08lu%0120d\n", i, 0);
		fflush(stdout);
		nanosleep(&ms10, NULL);
	}
}

static int do_signal(char **argv)
{
	signal((int)number(argv[0]), SIG_DFL);
	raise((int)number(argv[0]));
	sleep_for_ever();
}

static int abstract_socket(struct sockaddr_un *ret, socklen_t *ret_len)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(ret->sun_path + 1, "brig-left", 9);
	*ret_len = (socklen_t)offsetof(struct sockaddr_un, sun_path) + 10;
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

#define LEFT_KEY 0x42524947

/* Leaves one of each kind of thing that has a name but no file, and a process that keeps them. */
static int do_leave(char **argv)
{
	struct sockaddr_un a;
	socklen_t len;
	int s = abstract_socket(&a, &len), shm = shmget(LEFT_KEY, 4096, IPC_CREAT | 0666);

	(void)argv;
	if (s < 0 || bind(s, (struct sockaddr *)&a, len) < 0 || listen(s, 5) < 0 || shm < 0 ||
	        shmat(shm, NULL, 0) == (void *)-1 || msgget(LEFT_KEY, IPC_CREAT | 0666) < 0 ||
	        semget(LEFT_KEY, 1, IPC_CREAT | 0666) < 0)
		return 1;
	if (fork() == 0) {
		setsid();
		close(0);
		close(1);
		close(2);
		sleep_for_ever();
	}
	return 0;
}

/* Prints which of those are there. */
static int do_find(char **argv)
{
	struct sockaddr_un a;
	socklen_t len;
	int s = abstract_socket(&a, &len);

	(void)argv;
	if (connect(s, (struct sockaddr *)&a, len) == 0)
		puts("socket");
	if (shmget(LEFT_KEY, 0, 0) >= 0)
		puts("shm");
	if (msgget(LEFT_KEY, 0) >= 0)
		puts("queue");
	if (semget(LEFT_KEY, 0, 0) >= 0)
		puts("semaphore");
	return 0;
}

static int do_exit(char **argv)
{
	return (int)number(argv[0]);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(char **);
		int n_args; /* at least */
	} COMMANDS[] = {{"fds", do_fds, 0}, {"ids", do_ids, 0}, {"limits", do_limits, 0},
	        {"try", do_try, 0}, {"sockets", do_sockets, 0}, {"open", do_open, 1},
	        {"become", do_become, 1}, {"int80", do_int80, 0}, {"x32", do_x32, 0},
	        {"ignore", do_ignore, 0}, {"daemon", do_daemon, 0}, {"stop", do_stop, 0},
	        {"vfork", do_vfork, 0}, {"bomb", do_bomb, 0}, {"memory", do_memory, 1},
	        {"bytes", do_bytes, 1}, {"count", do_count, 1}, {"signal", do_signal, 1},
	        {"leave", do_leave, 0}, {"find", do_find, 0}, {"exit", do_exit, 1}};

	for (size_t i = 0; argc > 1 && i < COUNT(COMMANDS); i++)
		if (!strcmp(argv[1], COMMANDS[i].name) && argc - 2 >= COMMANDS[i].n_args)
			return COMMANDS[i].run(argv + 2);
	fprintf(stderr, "usage: sbx COMMAND [ARGUMENT]...\n");
	return 2;
}
