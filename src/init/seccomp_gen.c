/*
 * Writes init's seccomp filters (and, with the argument `worker` or `egress`, that process's) as C
 * arrays. A tool of the build: it uses libseccomp, which init, being static musl, cannot.
 *
 * Three programs, which stack (the kernel obeys the strictest answer; among equal ones the last
 * loaded):
 *
 *   base    what init itself may call: the guest's list and clone3. An allow list. A call that is
 * on no list is EPERM; one that is newer than this table is ENOSYS, so that a libc falls back as on
 * an older kernel; an entry by another architecture's table kills. forbid  arguments that are
 * refused on calls which base allows. Compared in their low 32 bits, since the kernel looks at no
 * more (so a high bit cannot slip one through). guest   takes clone3 away again, with ENOSYS, and
 * filters of one's own. Loaded by every command before exec. Being so small it costs a few
 * microseconds where the whole list would cost a third of a millisecond; base, loaded by init,
 * binds the command all the same.
 *
 * UID_MARK stands where init's own id goes; init puts it in when it loads the filter.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define UID_MARK  0x5eed1d00u
#define LOW32     0xffffffffu
#define NEWEST_NR 467 /* open_tree_attr, the last call that this table has judged */

/* clang-format off */
static const char *const ALLOWED[] = {
	"accept", "accept4", "access", "adjtimex", "alarm", "arch_prctl", "bind", "brk", "capget",
	"capset", "chdir", "chmod", "chown", "clock_adjtime", "clock_getres", "clock_gettime",
	"clock_nanosleep", "close", "close_range", "connect", "copy_file_range", "creat", "dup", "dup2",
	"dup3", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2",
	"epoll_wait", "eventfd", "eventfd2", "execve", "execveat", "exit", "exit_group", "faccessat",
	"faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod", "fchmodat", "fchown", "fchownat",
	"fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock", "fork", "fremovexattr", "fsetxattr",
	"fstat", "fstatfs", "fsync", "ftruncate", "futex", "futex_waitv", "futimesat", "get_robust_list",
	"get_thread_area", "getcpu", "getcwd", "getdents", "getdents64", "getegid", "geteuid", "getgid",
	"getgroups", "getitimer", "getpeername", "getpgid", "getpgrp", "getpid", "getppid",
	"getpriority", "getrandom", "getresgid", "getresuid", "getrlimit", "getrusage", "getsid",
	"getsockname", "getsockopt", "gettid", "gettimeofday", "getuid", "getxattr",
	"inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch", "ioctl", "ioprio_get",
	"ioprio_set", "kill", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self",
	"lchown", "lgetxattr", "link", "linkat", "listen", "listxattr", "llistxattr", "lremovexattr",
	"lseek", "lsetxattr", "lstat", "madvise", "membarrier", "memfd_create", "memfd_secret",
	"mincore", "mkdir", "mkdirat", "mknod", "mknodat", "mlock", "mlock2", "mlockall", "mmap",
	"mprotect", "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend",
	"mq_unlink", "mremap", "msgctl", "msgget", "msgrcv", "msgsnd", "msync", "munlock",
	"munlockall", "munmap", "name_to_handle_at", "nanosleep", "newfstatat", "open", "openat",
	"openat2", "pause", "pidfd_open", "pidfd_send_signal", "pipe", "pipe2", "pkey_alloc",
	"pkey_free", "pkey_mprotect", "poll", "ppoll", "prctl", "pread64", "preadv", "preadv2",
	"prlimit64", "process_mrelease", "process_vm_readv", "process_vm_writev", "pselect6", "ptrace",
	"pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat", "readv",
	"recvfrom", "recvmmsg", "recvmsg", "remap_file_pages", "removexattr", "rename", "renameat",
	"renameat2", "restart_syscall", "rmdir", "rseq", "rt_sigaction", "rt_sigpending",
	"rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait",
	"rt_tgsigqueueinfo", "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity",
	"sched_getattr", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval",
	"sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield",
	"seccomp", "select", "semctl", "semget", "semop", "semtimedop", "sendfile", "sendmmsg",
	"sendmsg", "sendto", "set_robust_list", "set_thread_area", "set_tid_address", "setfsgid",
	"setfsuid", "setgid", "setgroups", "setitimer", "setpgid", "setpriority", "setregid",
	"setresgid", "setresuid", "setreuid", "setrlimit", "setsid", "setsockopt", "setuid", "setxattr",
	"shmat", "shmctl", "shmdt", "shmget", "shutdown", "sigaltstack", "signalfd", "signalfd4",
	"splice", "stat", "statfs", "statx", "symlink", "symlinkat", "sync", "sync_file_range",
	"syncfs", "sysinfo", "tee", "tgkill", "time", "timer_create", "timer_delete",
	"timer_getoverrun", "timer_gettime", "timer_settime", "timerfd_create", "timerfd_gettime",
	"timerfd_settime", "times", "tkill", "truncate", "umask", "uname", "unlink", "unlinkat",
	"utime", "utimensat", "utimes", "vfork", "vmsplice", "wait4", "waitid", "write", "writev",
};

/* Calls that this libseccomp has no names for; the numbers are the same on every architecture. */
static const struct {
	const char *name;
	int nr;
} ALLOWED_NEW[] = {
	{"cachestat", 451}, {"fchmodat2", 452}, {"map_shadow_stack", 453}, {"futex_wake", 454},
	{"futex_wait", 455}, {"futex_requeue", 456}, {"statmount", 457}, {"listmount", 458},
	{"mseal", 462}, {"setxattrat", 463}, {"getxattrat", 464}, {"listxattrat", 465},
	{"removexattrat", 466},
};

/* Refused as if the kernel lacked them: programs that try them first have a way without. */
static const char *const ABSENT[] = {
	"io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "bpf", "keyctl",
	"add_key", "request_key",
	/* One number of requests (aio-max-nr) is shared by the whole machine, and one process can
	 * take them all. */
	"io_setup", "io_submit", "io_getevents", "io_pgetevents", "io_cancel", "io_destroy",
};
/* clang-format on */

static void check(int rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "seccomp_gen: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static int number(const char *name)
{
	return seccomp_syscall_resolve_name(name);
}

/* Adds a rule for a call that exists on this architecture; others are none of the filter's
 * business. */
static void rule(scmp_filter_ctx ctx, uint32_t action, const char *name, unsigned int n,
        struct scmp_arg_cmp a, struct scmp_arg_cmp b, struct scmp_arg_cmp c)
{
	struct scmp_arg_cmp args[3] = {a, b, c};
	int nr = number(name);

	if (nr >= 0)
		check(seccomp_rule_add_array(ctx, action, nr, n, args), name);
}

static struct scmp_arg_cmp none(void)
{
	return (struct scmp_arg_cmp){0};
}

/* Argument number `arg`, its bits under mask, is value. */
static struct scmp_arg_cmp is(unsigned int arg, uint32_t mask, uint32_t value)
{
	return (struct scmp_arg_cmp){
	        .arg = arg, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = value};
}

/*
 * TCP and UDP over IP, UNIX and routing sockets are all that open. The audit protocol is refused as
 * a kernel without audit would: useradd and su take any other error for a reason to stop.
 */
static void add_socket_rules(scmp_filter_ctx ctx)
{
	static const struct {
		uint32_t type, protocol;
	} IP[] = {{SOCK_STREAM, 0}, {SOCK_STREAM, 6}, {SOCK_DGRAM, 0}, {SOCK_DGRAM, 17}};
	static const uint32_t FAMILIES[] = {AF_INET, AF_INET6};

	rule(ctx, SCMP_ACT_ALLOW, "socket", 1, is(0, LOW32, AF_UNIX), none(), none());
	rule(ctx, SCMP_ACT_ALLOW, "socketpair", 1, is(0, LOW32, AF_UNIX), none(), none());
	rule(ctx, SCMP_ACT_ALLOW, "socket", 2, is(0, LOW32, AF_NETLINK),
	        is(2, LOW32, NETLINK_ROUTE), none());
	rule(ctx, SCMP_ACT_ERRNO(EPROTONOSUPPORT), "socket", 2, is(0, LOW32, AF_NETLINK),
	        is(2, LOW32, NETLINK_AUDIT), none());
	for (size_t f = 0; f < sizeof FAMILIES / sizeof *FAMILIES; f++)
		for (size_t i = 0; i < sizeof IP / sizeof *IP; i++)
			rule(ctx, SCMP_ACT_ALLOW, "socket", 3, is(0, LOW32, FAMILIES[f]),
			        is(1, 0xf, IP[i].type), is(2, LOW32, IP[i].protocol));
}

static scmp_filter_ctx make_base(void)
{
	static const uint32_t PERSONALITIES[] = {0, 0x0008, 0x20000, 0x20008, LOW32};
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));

	check(ctx ? 0 : -ENOMEM, "seccomp_init");
	check(seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS), "badarch");
	check(seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2), "optimize");
	for (size_t i = 0; i < sizeof ALLOWED / sizeof *ALLOWED; i++) {
		int nr = number(ALLOWED[i]);

		check(nr == __NR_SCMP_ERROR ? -ENOSYS : 0, ALLOWED[i]);
		rule(ctx, SCMP_ACT_ALLOW, ALLOWED[i], 0, none(), none(), none());
	}
	for (size_t i = 0; i < sizeof ALLOWED_NEW / sizeof *ALLOWED_NEW; i++)
		check(seccomp_rule_add(ctx, SCMP_ACT_ALLOW, ALLOWED_NEW[i].nr, 0),
		        ALLOWED_NEW[i].name);
	for (size_t i = 0; i < sizeof ABSENT / sizeof *ABSENT; i++)
		rule(ctx, SCMP_ACT_ERRNO(ENOSYS), ABSENT[i], 0, none(), none(), none());
	for (size_t i = 0; i < sizeof PERSONALITIES / sizeof *PERSONALITIES; i++)
		rule(ctx, SCMP_ACT_ALLOW, "personality", 1, is(0, LOW32, PERSONALITIES[i]), none(),
		        none());
	/* NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. */
	rule(ctx, SCMP_ACT_ALLOW, "clone", 1, is(0, 0x7e020000, 0), none(), none());
	rule(ctx, SCMP_ACT_ALLOW, "clone3", 0, none(), none(), none());
	add_socket_rules(ctx);
	return ctx;
}

static scmp_filter_ctx make_forbid(void)
{
	const uint32_t eperm = SCMP_ACT_ERRNO(EPERM);
	/* Input pushed into a terminal; line disciplines, which are whole drivers. */
	static const uint32_t IOCTLS[] = {
	        0x5412 /* TIOCSTI */, 0x541c /* TIOCLINUX */, 0x5423 /* TIOCSETD */};
	/* Calls whose argument names a process: not process 1. */
	static const struct {
		const char *name;
		unsigned int arg;
	} PROCESS[] = {{"prlimit64", 0}, {"sched_setaffinity", 0}, {"sched_setparam", 0},
	        {"sched_setscheduler", 0}, {"sched_setattr", 0}, {"setpriority", 1},
	        {"ioprio_set", 1}};
	/* Calls that take an id: not init's, or its per-user quotas would be the guest's to use up.
	 */
	static const struct {
		const char *name;
		unsigned int args;
	} IDS[] = {{"setuid", 1}, {"setfsuid", 1}, {"setreuid", 2}, {"setresuid", 3}};
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);

	check(ctx ? 0 : -ENOMEM, "seccomp_init");
	check(seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS), "badarch");
	for (size_t i = 0; i < sizeof IOCTLS / sizeof *IOCTLS; i++)
		rule(ctx, eperm, "ioctl", 1, is(1, LOW32, IOCTLS[i]), none(), none());
	for (size_t i = 0; i < sizeof PROCESS / sizeof *PROCESS; i++)
		rule(ctx, eperm, PROCESS[i].name, 1, is(PROCESS[i].arg, LOW32, 1), none(), none());
	for (size_t i = 0; i < sizeof IDS / sizeof *IDS; i++)
		for (unsigned int arg = 0; arg < IDS[i].args; arg++)
			rule(ctx, eperm, IDS[i].name, 1, is(arg, LOW32, UID_MARK), none(), none());
	/* The limit of core files stays what init made it (confine.c). Who sets it is told that it
	 * worked: programs that hold secrets set it to 0, and would not start otherwise. */
	rule(ctx, SCMP_ACT_ERRNO(0), "setrlimit", 1, is(0, LOW32, RLIMIT_CORE), none(), none());
	rule(ctx, SCMP_ACT_ERRNO(0), "prlimit64", 2, is(1, LOW32, RLIMIT_CORE),
	        (struct scmp_arg_cmp){.arg = 2, .op = SCMP_CMP_NE, .datum_a = 0}, none());
	/* TCP_ULP (kernel TLS) and UDP_ENCAP: whole protocol stacks behind a socket option. */
	rule(ctx, eperm, "setsockopt", 2, is(1, LOW32, 6), is(2, LOW32, 31), none());
	rule(ctx, eperm, "setsockopt", 2, is(1, LOW32, 17), is(2, LOW32, 100), none());
	/* SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF: the machine code of such programs counts on
	 * no container, and the whole machine has some 500 MB for it. Used up, no filter loads any
	 * more, and so no command of anybody starts. */
	rule(ctx, eperm, "setsockopt", 2, is(1, LOW32, SOL_SOCKET), is(2, LOW32, 26), none());
	rule(ctx, eperm, "setsockopt", 2, is(1, LOW32, SOL_SOCKET), is(2, LOW32, 51), none());
	return ctx;
}

static scmp_filter_ctx make_guest(void)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);

	check(ctx ? 0 : -ENOMEM, "seccomp_init");
	check(seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS), "badarch");
	rule(ctx, SCMP_ACT_ERRNO(ENOSYS), "clone3", 0, none(), none(), none());
	/* Filters of one's own, for the reason that sockets have none; as from a kernel that is
	 * built without. */
	rule(ctx, SCMP_ACT_ERRNO(EINVAL), "seccomp", 1, is(0, LOW32, SECCOMP_SET_MODE_FILTER),
	        none(), none());
	rule(ctx, SCMP_ACT_ERRNO(EINVAL), "prctl", 2, is(0, LOW32, PR_SET_SECCOMP),
	        is(1, LOW32, SECCOMP_MODE_FILTER), none());
	return ctx;
}

/*
 * worker  what a worker (saver: and one that saves) may call once it is confined: no path but
 * through openat2, no new process, no socket, no memory that can be executed. It meets no libc but
 * ours, so what is not on the list kills.
 */
static scmp_filter_ctx make_worker(bool saver)
{
	static const char *const CALLS[] = {"brk", "clock_gettime", "close", "epoll_create1",
	        "epoll_ctl", "epoll_pwait", "epoll_wait", "exit", "exit_group", "fallocate",
	        "fchmod", "fcntl", "fstat", "fstatfs", "ftruncate", "futex", "getdents64",
	        "getrandom", "linkat", "madvise", "mkdirat", "mremap", "munmap", "newfstatat",
	        "openat2", "recvmsg", "renameat2", "restart_syscall", "rt_sigreturn", "sendmsg",
	        "statx", "syncfs", "unlinkat"};
	static const char *const SAVER[] = {"fchown", "fchownat", "fgetxattr", "flistxattr",
	        "fsetxattr", "lseek", "pread64", "pwrite64", "read", "readlinkat", "symlinkat",
	        "utimensat", "write"};
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);

	check(ctx ? 0 : -ENOMEM, "seccomp_init");
	check(seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS), "badarch");
	check(seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2), "optimize");
	for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++)
		rule(ctx, SCMP_ACT_ALLOW, CALLS[i], 0, none(), none(), none());
	for (size_t i = 0; saver && i < sizeof SAVER / sizeof *SAVER; i++)
		rule(ctx, SCMP_ACT_ALLOW, SAVER[i], 0, none(), none(), none());
	rule(ctx, SCMP_ACT_ALLOW, "mmap", 1, is(2, PROT_EXEC, 0), none(), none());
	rule(ctx, SCMP_ACT_ALLOW, "mprotect", 1, is(2, PROT_EXEC, 0), none(), none());
	return ctx;
}

/*
 * egress  what the egress process may call, which is given what it reads: TCP and UDP over IP, the
 * socket that tells this machine's own addresses, its loop and its log. Opening a file is refused
 * and not deadly, since a libc may try and goes on without; all else kills.
 */
static scmp_filter_ctx make_egress(void)
{
	static const char *const CALLS[] = {"accept4", "bind", "brk", "clock_gettime", "close",
	        "connect", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2",
	        "epoll_wait", "exit", "exit_group", "fcntl", "fstat", "futex", "getpeername",
	        "getpid", "getrandom", "getsockname", "getsockopt", "gettid", "gettimeofday",
	        "listen", "lseek", "madvise", "mremap", "munmap", "newfstatat", "poll", "ppoll",
	        "pread64", "read", "readv", "recvfrom", "recvmsg", "restart_syscall",
	        "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sendmsg", "sendto", "shutdown",
	        "sigaltstack", "tgkill", "write", "writev"};
	static const char *const FILES[] = {"open", "openat", "openat2", "access", "faccessat",
	        "faccessat2", "stat", "readlink", "readlinkat"};
	/* SO_LINGER, SO_RCVBUF, SO_SNDBUF, SO_REUSEADDR and SO_REUSEPORT; IP_PKTINFO; TCP_NODELAY.
	 */
	static const uint32_t OPTIONS[][2] = {{SOL_SOCKET, SO_LINGER}, {SOL_SOCKET, SO_RCVBUF},
	        {SOL_SOCKET, SO_SNDBUF}, {SOL_SOCKET, SO_REUSEADDR}, {SOL_SOCKET, SO_REUSEPORT},
	        {0, 8}, {6, 1}};
	static const uint32_t IOCTLS[] = {0x541b /* FIONREAD */, 0x5421 /* FIONBIO */};
	static const uint32_t FAMILIES[] = {AF_INET, AF_INET6};
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);

	check(ctx ? 0 : -ENOMEM, "seccomp_init");
	check(seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS), "badarch");
	check(seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2), "optimize");
	for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++)
		rule(ctx, SCMP_ACT_ALLOW, CALLS[i], 0, none(), none(), none());
	for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++)
		rule(ctx, SCMP_ACT_ERRNO(EACCES), FILES[i], 0, none(), none(), none());
	for (size_t i = 0; i < sizeof OPTIONS / sizeof *OPTIONS; i++)
		rule(ctx, SCMP_ACT_ALLOW, "setsockopt", 2, is(1, LOW32, OPTIONS[i][0]),
		        is(2, LOW32, OPTIONS[i][1]), none());
	for (size_t i = 0; i < sizeof IOCTLS / sizeof *IOCTLS; i++)
		rule(ctx, SCMP_ACT_ALLOW, "ioctl", 1, is(1, LOW32, IOCTLS[i]), none(), none());
	for (size_t f = 0; f < sizeof FAMILIES / sizeof *FAMILIES; f++) {
		rule(ctx, SCMP_ACT_ALLOW, "socket", 2, is(0, LOW32, FAMILIES[f]),
		        is(1, 0xf, SOCK_STREAM), none());
		rule(ctx, SCMP_ACT_ALLOW, "socket", 2, is(0, LOW32, FAMILIES[f]),
		        is(1, 0xf, SOCK_DGRAM), none());
	}
	rule(ctx, SCMP_ACT_ALLOW, "socket", 2, is(0, LOW32, AF_NETLINK),
	        is(2, LOW32, NETLINK_ROUTE), none());
	rule(ctx, SCMP_ACT_ALLOW, "mmap", 1, is(2, PROT_EXEC, 0), none(), none());
	rule(ctx, SCMP_ACT_ALLOW, "mprotect", 1, is(2, PROT_EXEC, 0), none(), none());
	return ctx;
}

static void print(const struct sock_filter *f, size_t n)
{
	for (size_t i = 0; i < n; i++)
		printf("\t{0x%04x, %u, %u, 0x%08xu},\n", f[i].code, f[i].jt, f[i].jf, f[i].k);
}

/* newest: the highest call that the program has judged, or 0 where later ones need no answer. */
static void emit(const char *name, scmp_filter_ctx ctx, uint32_t newest)
{
	static struct sock_filter program[4096];
	const struct sock_filter head[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, seccomp_arch_native(), 1, 0),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, newest, 0, 1),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
	};
	int fd = memfd_create("filter", MFD_CLOEXEC);
	ssize_t n;

	check(fd < 0 ? -errno : 0, "memfd_create");
	check(seccomp_export_bpf(ctx, fd), "seccomp_export_bpf");
	n = pread(fd, program, sizeof program, 0);
	check(n <= 0 || n == (ssize_t)sizeof program ? -E2BIG : 0, name);
	printf("static const struct sock_filter seccomp_%s[] = {\n", name);
	if (newest)
		print(head, sizeof head / sizeof *head);
	print(program, (size_t)n / sizeof *program);
	printf("};\n\n");
	close(fd);
	seccomp_release(ctx);
}

int main(int argc, char **argv)
{
	printf("/* Made by seccomp_gen.c. */\n");
	printf("#include <linux/filter.h>\n\n");
	if (argc == 2 && strcmp(argv[1], "worker") == 0) {
		emit("worker", make_worker(false), 0);
		emit("saver", make_worker(true), 0);
		return fflush(stdout) || ferror(stdout);
	}
	if (argc == 2 && strcmp(argv[1], "egress") == 0) {
		emit("egress", make_egress(), 0);
		return fflush(stdout) || ferror(stdout);
	}
	printf("#define SECCOMP_UID_MARK 0x%08xu\n\n", UID_MARK);
	emit("base", make_base(), NEWEST_NR);
	emit("forbid", make_forbid(), 0);
	emit("guest", make_guest(), 0);
	return fflush(stdout) || ferror(stdout);
}
