/*
 * Every call here is made so that its success would do no harm: with arguments that the kernel
 * would refuse next, or in a child that ends at once.
 */
#include "probe/calls.h"

#include "probe/expect.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HIGH 0x100000000ul /* a bit that the kernel does not look at in 32-bit arguments */

#ifndef SYS_clone3
#define SYS_clone3 435
#endif
/* The same on every architecture. */
enum {
	NR_OPEN_TREE = 428,
	NR_MOVE_MOUNT = 429,
	NR_FSOPEN = 430,
	NR_FSMOUNT = 432,
	NR_FSPICK = 433,
	NR_MOUNT_SETATTR = 442,
	NR_QUOTACTL_FD = 443,
	NR_PROCESS_MADVISE = 440
};

static long call(long nr, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
	return syscall(nr, a, b, c, d, 0ul, 0ul);
}

void calls_namespaces(void)
{
	static const struct {
		unsigned long flag;
		const char *name;
	} KINDS[] = {{CLONE_NEWUSER, "user"}, {CLONE_NEWNS, "mount"}, {CLONE_NEWPID, "pid"},
	        {CLONE_NEWNET, "net"}, {CLONE_NEWIPC, "ipc"}, {CLONE_NEWUTS, "uts"},
	        {0x02000000 /* CLONE_NEWCGROUP */, "cgroup"}, {0x80 /* CLONE_NEWTIME */, "time"}};
	struct {
		uint64_t flags, rest[10];
	} args = {0};
	char what[32];
	long pid;

	for (size_t i = 0; i < COUNT(KINDS); i++) {
		snprintf(what, sizeof what, "unshare %s", KINDS[i].name);
		expect_refused(call(SYS_unshare, KINDS[i].flag, 0, 0, 0), EPERM, EPERM, what);
		snprintf(what, sizeof what, "unshare %s, high bit", KINDS[i].name);
		expect_refused(
		        call(SYS_unshare, KINDS[i].flag | HIGH, 0, 0, 0), EPERM, EPERM, what);
		if (KINDS[i].flag == 0x80)
			continue; /* clone has no room for it */
		snprintf(what, sizeof what, "clone %s", KINDS[i].name);
		pid = call(SYS_clone, KINDS[i].flag | SIGCHLD, 0, 0, 0);
		if (pid == 0)
			_exit(0);
		expect_refused(pid, EPERM, EPERM, what);
	}
	args.flags = CLONE_NEWUSER;
	pid = call(SYS_clone3, (unsigned long)&args, sizeof args, 0, 0);
	if (pid == 0)
		_exit(0);
	expect_refused(pid, ENOSYS, ENOSYS, "clone3");
	expect_refused(call(SYS_setns, 0, 0, 0, 0), EPERM, EPERM, "setns");
	expect_seen("unshare, clone, setns: EPERM; clone3: ENOSYS");
}

static bool opens(int family, int type, int protocol)
{
	int fd = socket(family, type | SOCK_CLOEXEC, protocol);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

void calls_sockets(void)
{
	static const int TYPES[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET};
	static const int PROTOCOLS[] = {1, 33, 132, 136, 255, 256, 262};
	const char ulp[] = "tls";
	int on = 2, tcp, udp;

	for (int family = 0; family < 64; family++)
		for (size_t i = 0; i < COUNT(TYPES); i++) {
			if (family == AF_UNIX || family == AF_INET || family == AF_INET6 ||
			        family == AF_NETLINK)
				continue;
			expect_refused(socket(family, TYPES[i], 0), EPERM, EPERM, "a family");
		}
	for (int protocol = 1; protocol < 32; protocol++)
		expect_that(!opens(AF_NETLINK, SOCK_RAW, protocol), "netlink %d opens", protocol);
	expect_that(!opens(AF_INET, SOCK_RAW, 1) && !opens(AF_INET6, SOCK_RAW, 58), "raw opens");
	for (size_t i = 0; i < COUNT(PROTOCOLS); i++)
		for (size_t k = 0; k < 2; k++)
			expect_that(!opens(AF_INET, TYPES[k], PROTOCOLS[i]), "IP %d opens",
			        PROTOCOLS[i]);
	expect_that(opens(AF_INET, SOCK_STREAM, 0) && opens(AF_UNIX, SOCK_STREAM, 0),
	        "TCP or UNIX does not open: %s", strerror(errno));
	tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	expect_refused(setsockopt(tcp, 6, 31, ulp, sizeof ulp), EPERM, EPERM, "TCP_ULP");
	expect_refused(setsockopt(udp, 17, 100, &on, sizeof on), EPERM, EPERM, "UDP_ENCAP");
	close(tcp);
	close(udp);
	expect_seen("UNIX, TCP, UDP and routing sockets open, nothing else does");
}

void calls_keys(void)
{
	expect_refused(call(SYS_add_key, 0, 0, 0, 0), ENOSYS, ENOSYS, "add_key");
	expect_refused(call(SYS_request_key, 0, 0, 0, 0), ENOSYS, ENOSYS, "request_key");
	expect_refused(call(SYS_keyctl, 0, 0, 0, 0), ENOSYS, ENOSYS, "keyctl");
	expect_seen("ENOSYS");
}

void calls_bpf(void)
{
	expect_refused(call(SYS_bpf, 0, 0, 0, 0), ENOSYS, ENOSYS, "bpf");
	expect_refused(call(SYS_perf_event_open, 0, 0, 0, 0), EPERM, EPERM, "perf_event_open");
	expect_seen("bpf: ENOSYS; perf_event_open: EPERM");
}

void calls_uring(void)
{
	expect_refused(call(425, 1, 0, 0, 0), ENOSYS, ENOSYS, "io_uring_setup");
	expect_refused(call(426, 0, 0, 0, 0), ENOSYS, ENOSYS, "io_uring_enter");
	expect_refused(call(427, 0, 0, 0, 0), ENOSYS, ENOSYS, "io_uring_register");
	expect_refused(call(SYS_io_setup, 1, 0, 0, 0), ENOSYS, ENOSYS, "io_setup");
	expect_refused(call(SYS_userfaultfd, 1, 0, 0, 0), ENOSYS, ENOSYS, "userfaultfd");
	expect_seen("ENOSYS");
}

/* With arguments that lead nowhere: the filter answers before the kernel looks at them. */
void calls_privileged(void)
{
	static const struct {
		long nr;
		const char *name;
	} CALLS[] = {
	        {SYS_mount, "mount"},
	        {SYS_umount2, "umount"},
	        {SYS_pivot_root, "pivot_root"},
	        {SYS_chroot, "chroot"},
	        {NR_OPEN_TREE, "open_tree"},
	        {NR_MOVE_MOUNT, "move_mount"},
	        {NR_FSOPEN, "fsopen"},
	        {NR_FSMOUNT, "fsmount"},
	        {NR_FSPICK, "fspick"},
	        {NR_MOUNT_SETATTR, "mount_setattr"},
	        {SYS_init_module, "init_module"},
	        {SYS_finit_module, "finit_module"},
	        {SYS_delete_module, "delete_module"},
	        {SYS_reboot, "reboot"},
	        {SYS_swapon, "swapon"},
	        {SYS_swapoff, "swapoff"},
	        {SYS_settimeofday, "settimeofday"},
	        {SYS_clock_settime, "clock_settime"},
	        {SYS_sethostname, "sethostname"},
	        {SYS_setdomainname, "setdomainname"},
	        {SYS_syslog, "syslog"},
	        {SYS_acct, "acct"},
	        {SYS_quotactl, "quotactl"},
	        {NR_QUOTACTL_FD, "quotactl_fd"},
	        {SYS_kexec_load, "kexec_load"},
	        {SYS_open_by_handle_at, "open_by_handle_at"},
	        {SYS_fanotify_init, "fanotify_init"},
	        {SYS_kcmp, "kcmp"},
	        {NR_PROCESS_MADVISE, "process_madvise"},
	        {SYS_vhangup, "vhangup"},
	        {SYS_move_pages, "move_pages"},
	        {SYS_migrate_pages, "migrate_pages"},
#ifdef __x86_64__
	        {SYS_iopl, "iopl"},
	        {SYS_ioperm, "ioperm"},
	        {SYS_modify_ldt, "modify_ldt"},
#endif
	};

	for (size_t i = 0; i < COUNT(CALLS); i++)
		expect_refused(call(CALLS[i].nr, 0, 0, 0, 0), EPERM, ENOSYS, CALLS[i].name);
	expect_seen("%zu calls: EPERM", COUNT(CALLS));
}

/* On a terminal of our own, where a byte that got in would go no further. */
void calls_terminal(void)
{
	static const struct {
		unsigned long request;
		const char *name;
	} REQUESTS[] = {{0x5412, "TIOCSTI"}, {0x541c, "TIOCLINUX"}, {0x5423, "TIOCSETD"}};
	int ptmx = open("/dev/ptmx", O_RDWR | O_CLOEXEC | O_NOCTTY);
	int discipline = 0;

	expect_that(ptmx >= 0, "no terminal: %s", strerror(errno));
	for (size_t i = 0; i < COUNT(REQUESTS); i++)
		for (unsigned long high = 0; high <= HIGH; high += HIGH)
			expect_refused(
			        call(SYS_ioctl, (unsigned long)ptmx, REQUESTS[i].request | high,
			                (unsigned long)&discipline, 0),
			        EPERM, EPERM, REQUESTS[i].name);
	close(ptmx);
	expect_seen("EPERM");
}

#ifdef __x86_64__
static long by_int80(void)
{
	long nr = 20; /* getpid of i386 */

	__asm__ volatile("int $0x80" : "+a"(nr) : : "memory", "r8", "r9", "r10", "r11");
	return nr;
}

static long by_x32(void)
{
	return call(0x40000000 | SYS_getpid, 0, 0, 0, 0);
}

/* Calls it in a child. Whether the child was killed for it, or the kernel does not know it. */
static const char *refusal(long (*get_pid)(void), const char *name)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(get_pid() > 0);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		status = 1 << 8;
	expect_that(status == 0 || (WIFSIGNALED(status) && (WTERMSIG(status) == SIGSYS ||
	                                                           WTERMSIG(status) == SIGSEGV)),
	        "%s worked (status %#x)", name, status);
	return status == 0 || WTERMSIG(status) == SIGSEGV ? "not in this kernel" : "killed";
}

void calls_architecture(void)
{
	const char *int80 = refusal(by_int80, "int 0x80"), *x32 = refusal(by_x32, "x32");

	expect_seen("int 0x80: %s; x32: %s", int80, x32);
}
#else
void calls_architecture(void)
{
	expect_absent("a 64-bit program has no other entry here");
}
#endif
