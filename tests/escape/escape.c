/*
 * The hostile guest: tries to leave the sandbox it runs in. Static, run inside a container only.
 *
 * One case for each class of attack; their names are the rows of SECURITY.md's escape table (X: the
 * runtime's own set-up, K: the kernel's surface, L: leaks, side channels, denial of service). Every
 * case is written so that success does no harm: it prints, and acts on nothing but what it made.
 *
 *   escape [ID…]          runs the cases (all of them), one line each: "ID PASS|FAIL detail"
 *   escape channel-make   makes what another container must not see, says "ready", and waits
 *   escape channel-seek   looks for it
 *   escape leaks TEXT…    looks for the texts in everything readable below /proc and /sys
 *
 * Each case runs in a process of its own with a time limit. Exit code 1: a case failed.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define COUNT(a)     (sizeof(a) / sizeof *(a))
#define CASE_SECONDS 60
#define INIT_ID      65533         /* init's own id, which no guest may take */
#define HIGH         0x100000000ul /* a bit that the kernel does not look at in 32-bit arguments */
#define TEXT(s)      ((unsigned long)(s))

#ifndef SYS_statmount
#define SYS_statmount 457
#define SYS_listmount 458
#endif
#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif

/* ---- what a case says ---- */

static char failure[1024]; /* the first few things that went wrong */
static unsigned int n_checked;

__attribute__((format(printf, 2, 3))) static void check(bool held, const char *format, ...)
{
	size_t len = strlen(failure);
	va_list ap;

	n_checked++;
	if (held || len > sizeof failure - 16)
		return;
	va_start(ap, format);
	if (len)
		strcat(failure, "; ");
	vsnprintf(failure + strlen(failure), sizeof failure - strlen(failure), format, ap);
	va_end(ap);
}

/* The call must have failed with one of the two errors. */
static void refused(long rc, int one, int other, const char *what)
{
	int errnum = rc < 0 ? errno : 0;

	check(rc < 0 && (errnum == one || errnum == other), "%s: %s", what,
	        rc < 0 ? strerror(errnum) : "worked");
}

static long call(long nr, unsigned long a, unsigned long b, unsigned long c, unsigned long d,
        unsigned long e)
{
	return syscall(nr, a, b, c, d, e, 0ul);
}

static int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));
	int errnum = errno;

	if (fd >= 0)
		close(fd);
	errno = errnum;
	return n < 0 ? -1 : 0;
}

static ssize_t get(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);
	int errnum = errno;

	if (fd >= 0)
		close(fd);
	buf[n < 0 ? 0 : n] = 0;
	errno = errnum;
	return n;
}

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static bool is_root(void)
{
	return geteuid() == 0;
}

/* Runs f in a child. Returns its wait status. */
static int in_child(void (*f)(void))
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		f();
		_exit(0);
	}
	check(pid > 0, "fork: %s", strerror(errno));
	waitpid(pid, &status, 0);
	return status;
}

/* ---- X: set-up ---- */

static void x1_executables(void)
{
	char path[300];
	DIR *proc = opendir("/proc");
	struct dirent *e;
	int fd;

	refused(open("/proc/self/exe", O_WRONLY | O_CLOEXEC), ETXTBSY, EACCES,
	        "own exe for writing");
	while (proc && (e = readdir(proc))) {
		if (!isdigit((unsigned char)*e->d_name))
			continue;
		snprintf(path, sizeof path, "/proc/%s/exe", e->d_name);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		check(fd < 0, "%s opens for writing", path);
		fd = open(path, O_RDWR | O_CLOEXEC);
		check(fd < 0, "%s opens for both", path);
	}
	closedir(proc);
	refused(open("/proc/1/exe", O_RDONLY | O_CLOEXEC), EACCES, EPERM, "init's exe for reading");
	refused(open("/proc/1/exe", O_PATH | O_CLOEXEC), EACCES, EPERM, "init's exe as a path");
	refused(readlink("/proc/1/exe", path, sizeof path), EACCES, EPERM, "init's exe as a link");
	execl("/proc/1/exe", "x", NULL);
	refused(-1, EACCES, EPERM, "execve init's exe");
}

static void x2_descriptors(void)
{
	char path[64], target[512];
	struct stat root, st;
	ssize_t n;

	check(stat("/", &root) == 0, "stat /");
	for (int fd = 0; fd < 65536; fd++) {
		if (fcntl(fd, F_GETFD) < 0)
			continue;
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof target - 1);
		target[n < 0 ? 0 : n] = 0;
		check(fd < 3, "descriptor %d is open: %s", fd, target);
		check(fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode), "descriptor %d is a directory",
		        fd);
		check(chdir(path) < 0, "chdir(%s)", path);
	}
	check(getcwd(target, sizeof target) && *target == '/', "working directory %s", target);
	for (int i = 0; i < 200; i++)
		check(chdir("..") == 0, "chdir ..");
	check(stat(".", &st) == 0 && st.st_dev == root.st_dev && st.st_ino == root.st_ino,
	        "the top of .. is not /");
	for (int fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof path, "/proc/1/fd/%d", fd);
		refused(open(path, O_RDONLY | O_CLOEXEC), EACCES, EPERM, path);
	}
	refused(open("/proc/1/fd", O_RDONLY | O_CLOEXEC), EACCES, EPERM, "init's descriptors");
	refused(chdir("/proc/1/cwd"), EACCES, EPERM, "init's cwd");
	refused(chdir("/proc/1/root"), EACCES, EPERM, "init's root");
	refused(open("/proc/1/task/1/root", O_PATH | O_CLOEXEC), EACCES, EPERM,
	        "init's task's root");
}

static const char *const MASKED[] = {"acpi", "allocinfo", "asound", "bootconfig", "buddyinfo",
        "bus", "cgroups", "config.gz", "diskstats", "driver", "dynamic_debug", "fs", "interrupts",
        "iomem", "ioports", "irq", "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup",
        "kpagecount", "kpageflags", "latency_stats", "mdstat", "modules", "mtrr", "pagetypeinfo",
        "partitions", "pressure", "sched_debug", "schedstat", "scsi", "slabinfo", "softirqs",
        "sysrq-trigger", "timer_list", "timer_stats", "tty/driver", "vmallocinfo", "zoneinfo"};

static bool directory_is_empty(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	bool empty = true;

	while (d && (e = readdir(d)))
		empty = empty && *e->d_name == '.';
	if (d)
		closedir(d);
	return empty;
}

static void masked_by(const char *top, const char *name)
{
	char path[256], buf[64];
	struct stat st;
	int fd, again;

	snprintf(path, sizeof path, "%s/%s", top, name);
	if (lstat(path, &st) < 0)
		return;
	if (S_ISDIR(st.st_mode)) {
		check(directory_is_empty(path), "%s shows something", path);
		return;
	}
	check(get(path, buf, sizeof buf) <= 0, "%s can be read", path);
	check(open(path, O_WRONLY | O_CLOEXEC) < 0, "%s opens for writing", path);
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	again = open(path, O_RDONLY | O_CLOEXEC);
	check(again < 0 || read(again, buf, sizeof buf) <= 0, "%s by its O_PATH descriptor", name);
	close(fd);
}

static void x4_masks(void)
{
	static const char *const ROUTES[] = {"/proc", "/proc/self/root/proc",
	        "/proc/thread-self/root/proc", "/proc/self/../", "/dev/fd/../../", "/dev/../proc",
	        "/proc/self/task/../../../proc"};
	char path[128];
	struct stat st;

	for (size_t i = 0; i < COUNT(MASKED); i++) {
		for (size_t r = 0; r < COUNT(ROUTES); r++)
			masked_by(ROUTES[r], MASKED[i]);
		snprintf(path, sizeof path, "/proc/%s", MASKED[i]);
		if (lstat(path, &st) < 0)
			continue;
		refused(call(SYS_umount2, TEXT(path), 0, 0, 0, 0), EPERM, EPERM, "umount2");
		refused(call(SYS_umount2, TEXT(path), MNT_DETACH, 0, 0, 0), EPERM, EPERM,
		        "umount2");
		check(unlink(path) < 0 && rmdir(path) < 0, "%s can be removed", path);
		check(rename(path, "/tmp/taken") < 0, "%s can be renamed", path);
		check(chmod(path, 0777) < 0, "%s can be chmod'ed", path);
	}
	refused(mount("none", "/tmp", "proc", 0, NULL), EPERM, EPERM, "mount proc");
	refused(mount("/proc", "/tmp", NULL, MS_BIND | MS_REC, NULL), EPERM, EPERM, "bind /proc");
	refused(mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL), EPERM, EPERM,
	        "remount");
	refused(call(SYS_fsopen, TEXT("proc"), 0, 0, 0, 0), EPERM, EPERM, "fsopen proc");
	refused(call(SYS_open_tree, AT_FDCWD, TEXT("/proc"), 1, 0, 0), EPERM, EPERM, "open_tree");
	refused(call(SYS_open_by_handle_at, AT_FDCWD, TEXT("\10\0\0\0\0\0\0\0"), 0, 0, 0), EPERM,
	        EPERM, "open_by_handle_at");
}

static void x7_control_groups(void)
{
	static const char *const TYPES[] = {"cgroup", "cgroup2", "sysfs", "debugfs", "tracefs",
	        "securityfs", "bpf", "configfs", "binfmt_misc", "fuse", "overlay", "tmpfs", "ext4",
	        "nfs", "9p", "mqueue", "devtmpfs", "devpts"};
	char text[16384], *line;

	refused(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWCGROUP), EPERM, EPERM, "unshare");
	for (size_t i = 0; i < COUNT(TYPES); i++) {
		refused(mount("x", "/mnt", TYPES[i], 0, NULL), EPERM, EPERM, TYPES[i]);
		refused(call(SYS_fsopen, TEXT(TYPES[i]), 0, 0, 0, 0), EPERM, EPERM, "fsopen");
	}
	refused(call(SYS_move_mount, 0, 0, 0, 0, 0), EPERM, EPERM, "move_mount");
	refused(call(SYS_fsmount, 0, 0, 0, 0, 0), EPERM, EPERM, "fsmount");
	refused(call(SYS_fspick, AT_FDCWD, TEXT("/"), 0, 0, 0), EPERM, EPERM, "fspick");
	refused(call(SYS_mount_setattr, AT_FDCWD, TEXT("/"), 0, 0, 0), EPERM, EPERM,
	        "mount_setattr");
	refused(call(467, AT_FDCWD, TEXT("/"), 0, 0, 0), EPERM, ENOSYS, "open_tree_attr");
	refused(call(SYS_pivot_root, TEXT("/"), TEXT("/"), 0, 0, 0), EPERM, EPERM, "pivot_root");
	refused(chroot("/"), EPERM, EPERM, "chroot");
	check(!exists("/sys/fs/cgroup") && directory_is_empty("/sys"), "there is a sysfs");
	check(get("/proc/self/mountinfo", text, sizeof text) > 0, "mountinfo");
	for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		check(!strstr(line, " - cgroup") && !strstr(line, " - sysfs"), "mounted: %s", line);
	check(get("/proc/self/cgroup", text, sizeof text) > 0 && !strstr(text, "brig"),
	        "host's names in /proc/self/cgroup");
}

static void crash(void)
{
	raise(SIGSEGV);
}

static void x8_helpers(void)
{
	static const char *const FILES[] = {"kernel/core_pattern", "kernel/modprobe",
	        "kernel/hotplug", "kernel/poweroff_cmd", "kernel/sysrq", "kernel/panic",
	        "kernel/core_pipe_limit", "kernel/core_uses_pid", "kernel/hostname",
	        "kernel/ns_last_pid", "kernel/randomize_va_space",
	        "kernel/unprivileged_bpf_disabled", "kernel/yama/ptrace_scope", "kernel/shmmax",
	        "kernel/shmall", "kernel/msgmax", "kernel/sem", "kernel/shm_rmid_forced",
	        "kernel/keys/maxkeys", "kernel/random/boot_id", "fs/suid_dumpable", "fs/file-max",
	        "fs/pipe-max-size", "fs/protected_symlinks", "fs/mqueue/msg_max",
	        "fs/binfmt_misc/register", "fs/binfmt_misc/status", "fs/inotify/max_user_watches",
	        "vm/overcommit_memory", "vm/drop_caches", "vm/panic_on_oom", "vm/mmap_min_addr",
	        "vm/swappiness", "dev/tty/ldisc_autoload", "dev/tty/legacy_tiocsti",
	        "user/max_user_namespaces", "user/max_inotify_instances", "net/core/somaxconn",
	        "net/ipv4/ip_forward", "net/ipv4/ip_unprivileged_port_start",
	        "net/ipv4/ping_group_range", "net/core/rmem_max", "abi/vsyscall32"};
	struct rlimit r, lower = {0, 0}, higher = {RLIM_INFINITY, RLIM_INFINITY};
	char path[128], text[256];
	int status, fd;

	for (size_t i = 0; i < COUNT(FILES); i++) {
		snprintf(path, sizeof path, "/proc/sys/%s", FILES[i]);
		if (!exists(path))
			continue;
		get(path, text, sizeof text);
		/* What it says already: should the write work, it changes nothing. */
		check(put(path, text) < 0 && (errno == EROFS || errno == EACCES || errno == EPERM),
		        "%s takes a write", path);
	}
	check(put("/proc/sysrq-trigger", "h") < 0, "sysrq-trigger takes a write");
	/*
	 * A helper that the host's core_pattern names runs on the host whenever something crashes,
	 * unless the limit of the one that crashed is exactly 1: so it must be, and stay.
	 */
	setrlimit(RLIMIT_CORE, &lower);
	check(getrlimit(RLIMIT_CORE, &r) == 0 && r.rlim_cur == 1 && r.rlim_max == 1,
	        "limit of core files is %llu, %llu", (unsigned long long)r.rlim_cur,
	        (unsigned long long)r.rlim_max);
	setrlimit(RLIMIT_CORE, &higher);
	syscall(SYS_prlimit64, 0, RLIMIT_CORE, &lower, NULL);
	syscall(SYS_prlimit64, HIGH, RLIMIT_CORE | HIGH, &lower, &r);
	syscall(SYS_setrlimit, RLIMIT_CORE | HIGH, &lower);
	check(getrlimit(RLIMIT_CORE, &r) == 0 && r.rlim_cur == 1 && r.rlim_max == 1,
	        "limit of core files became %llu, %llu", (unsigned long long)r.rlim_cur,
	        (unsigned long long)r.rlim_max);
	check(chdir("/tmp") == 0, "chdir");
	status = in_child(crash);
	check(WIFSIGNALED(status) && !WCOREDUMP(status), "a crash dumps core (status %x)", status);
	check(!exists("core"), "a core file");
	fd = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
}

static bool copy_self(const char *to)
{
	static char buf[65536];
	int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	ssize_t n;

	while (in >= 0 && out >= 0 && (n = read(in, buf, sizeof buf)) > 0)
		if (write(out, buf, (size_t)n) != n)
			break;
	close(in);
	return out >= 0 && close(out) == 0;
}

static const char *set_id_file;

static void exec_set_id(void)
{
	if (is_root() && (setgid(2000) < 0 || setuid(2000) < 0))
		_exit(3);
	execl(set_id_file, "escape", "x9-probe", NULL);
	_exit(errno == EACCES || errno == EPERM ? 0 : 4);
}

/* What a set-id copy says of itself: 0 when it gained nothing. */
static int x9_probe(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[2] = {0};

	syscall(SYS_capget, &head, caps);
	return geteuid() != getuid() || getegid() != getgid() || caps[0].effective ||
	       caps[0].permitted;
}

static void x9_set_id(void)
{
	static const char *const PLACES[] = {"/tmp/set-id", "/workspace/home/set-id",
	        "/var/tmp/set-id", "/dev/shm/set-id", "/run/set-id"};
	/* Version 2 of a file capability: all permitted, effective. */
	static const uint32_t CAPS[5] = {0x02000001, 0xffffffff, 0, 0xffffffff, 0};
	char text[8192], *at;
	int status, n = 0;

	for (size_t i = 0; i < COUNT(PLACES); i++) {
		unlink(PLACES[i]);
		if (!copy_self(PLACES[i]))
			continue;
		n++;
		check(chmod(PLACES[i], 06755) == 0, "chmod");
		refused(setxattr(PLACES[i], "security.capability", CAPS, sizeof CAPS, 0), EPERM,
		        ENOTSUP, "file capability");
		set_id_file = PLACES[i];
		status = in_child(exec_set_id);
		check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s gives ids (status %x)",
		        PLACES[i], status);
		if (is_root()) {
			check(chown(PLACES[i], INIT_ID, INIT_ID) < 0 ||
			                chmod(PLACES[i], 06755) == 0,
			        "chmod after chown");
			status = in_child(exec_set_id);
			check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s gives init's id",
			        PLACES[i]);
		}
		unlink(PLACES[i]);
	}
	check(n > 0, "no place for a file");
	check(get("/proc/self/status", text, sizeof text) > 0, "status");
	check(strstr(text, "NoNewPrivs:\t1"), "no_new_privs is off");
	check(strstr(text, "CapAmb:\t0000000000000000"), "ambient capabilities");
	check(strstr(text, "CapInh:\t0000000000000000"), "inheritable capabilities");
	at = strstr(text, "CapBnd:\t");
	/* CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID NET_BIND_SERVICE */
	check(at && strtoull(at + 8, NULL, 16) == 0x4fb, "bounding set %.16s", at ? at + 8 : "");
	check(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0) < 0,
	        "ambient can be raised");
	check(prctl(PR_SET_SECUREBITS, 0, 0, 0, 0) < 0, "securebits can be cleared");
	check(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) < 0, "no_new_privs can be cleared");
}

static void x10_init(void)
{
	static const char *const FILES[] = {"mem", "environ", "auxv", "maps", "smaps", "numa_maps",
	        "stack", "syscall", "io", "pagemap", "personality", "map_files", "fd", "fdinfo/3",
	        "mountstats", "ns/mnt", "ns/net", "ns/user", "ns/pid", "ns/cgroup", "task/1/mem",
	        "task/1/fd", "task/1/environ", "timerslack_ns", "clear_refs"};
	static const char *const WRITES[] = {"oom_score_adj", "oom_adj", "comm", "autogroup",
	        "timerslack_ns", "coredump_filter", "clear_refs", "sched", "loginuid",
	        "attr/current", "timens_offsets", "uid_map", "gid_map", "projid_map", "setgroups",
	        "mem", "task/1/comm"};
	char path[64], buf[64];
	struct iovec local = {buf, sizeof buf}, remote = {(void *)0x400000, sizeof buf};
	int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);

	for (size_t i = 0; i < COUNT(FILES); i++) {
		snprintf(path, sizeof path, "/proc/1/%s", FILES[i]);
		if (exists(path))
			check(get(path, buf, sizeof buf) < 0, "%s can be read", path);
	}
	for (size_t i = 0; i < COUNT(WRITES); i++) {
		snprintf(path, sizeof path, "/proc/1/%s", WRITES[i]);
		check(put(path, "0") < 0, "%s can be written", path);
	}
	refused(ptrace(PTRACE_ATTACH, 1, 0, 0), EPERM, EPERM, "attach to init");
	refused(syscall(SYS_ptrace, PTRACE_SEIZE, 1, 0, 0), EPERM, EPERM, "seize init");
	refused(process_vm_readv(1, &local, 1, &remote, 1, 0), EPERM, EPERM, "read init");
	refused(process_vm_writev(1, &local, 1, &remote, 1, 0), EPERM, EPERM, "write init");
	for (int fd = 0; fd < 64; fd++)
		refused(call(SYS_pidfd_getfd, (unsigned long)pidfd, (unsigned long)fd, 0, 0, 0),
		        EPERM, EPERM, "pidfd_getfd");
	refused(call(SYS_kcmp, 1, (unsigned long)getpid(), 0, 0, 0), EPERM, EPERM, "kcmp");
	refused(call(SYS_process_madvise, (unsigned long)pidfd, TEXT(&local), 1, 4, 0), EPERM,
	        EPERM, "process_madvise");
	refused(call(SYS_setns, (unsigned long)pidfd, CLONE_NEWNS, 0, 0, 0), EPERM, EPERM, "setns");
	refused(call(SYS_move_pages, 1, 0, 0, 0, 0), EPERM, EPERM, "move_pages");
	refused(call(SYS_migrate_pages, 1, 0, 0, 0, 0), EPERM, EPERM, "migrate_pages");
	refused(call(SYS_perf_event_open, 0, 1, 0, 0, 0), EPERM, EPERM, "perf_event_open");
	check(call(SYS_get_robust_list, 1, TEXT(buf), TEXT(buf + 8), 0, 0) < 0,
	        "init's robust list");
	check(call(SYS_process_mrelease, (unsigned long)pidfd, 0, 0, 0, 0) < 0, "process_mrelease");
	/* PIDFD_GET_CGROUP_NAMESPACE to PIDFD_GET_UTS_NAMESPACE */
	for (unsigned int n = 1; n <= 10; n++)
		check(ioctl(pidfd, 0xff00 + n, 0) < 0, "namespace %u of init by its pidfd", n);
	check(prctl(62 /* PR_SCHED_CORE */, 1, 1, 0, 0) < 0, "core scheduling of init");
}

/* Limits, priorities, scheduling of process 1, in every spelling that reaches a process. */
static void x10_limits(void)
{
	static const unsigned long ONE[] = {1, 1 | HIGH, 1 | HIGH << 20};
	struct rlimit none = {1, 1}, before, after;
	struct sched_param p = {0};
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = {.size = 48, .nice = 19};
	cpu_set_t set, now;
	int nice_before = getpriority(PRIO_PROCESS, 1);
	bool limits_known = syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, NULL, &before) == 0;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	memset(&now, 0, sizeof now);
	for (size_t i = 0; i < COUNT(ONE); i++) {
		for (unsigned long resource = 0; resource < 16; resource++)
			check(call(SYS_prlimit64, ONE[i], resource, TEXT(&none), 0, 0) < 0 ||
			                resource == RLIMIT_CORE, /* which is said to work, always */
			        "prlimit of init, resource %lu", resource);
		check(call(SYS_sched_setaffinity, ONE[i], sizeof set, TEXT(&set), 0, 0) < 0,
		        "affinity");
		check(call(SYS_sched_setparam, ONE[i], TEXT(&p), 0, 0, 0) < 0, "sched_setparam");
		check(call(SYS_sched_setscheduler, ONE[i], SCHED_IDLE, TEXT(&p), 0, 0) < 0,
		        "idle class");
		check(call(SYS_sched_setattr, ONE[i], TEXT(&attr), 0, 0, 0) < 0, "sched_setattr");
		check(call(SYS_setpriority, PRIO_PROCESS, ONE[i], 19, 0, 0) < 0,
		        "setpriority process");
		check(call(SYS_setpriority, PRIO_PGRP, ONE[i], 19, 0, 0) < 0, "setpriority group");
		check(call(SYS_ioprio_set, 1, ONE[i], 3 << 13, 0, 0) < 0, "ioprio process");
		check(call(SYS_ioprio_set, 2, ONE[i], 3 << 13, 0, 0) < 0, "ioprio group");
	}
	check(call(SYS_setpriority, PRIO_USER, INIT_ID, 19, 0, 0) < 0,
	        "setpriority of init's user");
	check(call(SYS_ioprio_set, 3, INIT_ID, 3 << 13, 0, 0) < 0, "ioprio of init's user");
	check(getpriority(PRIO_PROCESS, 1) == nice_before, "init's priority changed");
	check(call(SYS_ioprio_get, 1, 1, 0, 0, 0) != 3 << 13, "init's io priority changed");
	check(call(SYS_sched_getscheduler, 1, 0, 0, 0, 0) == SCHED_OTHER, "init's class changed");
	if (limits_known && syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, NULL, &after) == 0)
		check(before.rlim_cur == after.rlim_cur && before.rlim_max == after.rlim_max,
		        "init's limit changed");
}

static void x10_signals(void)
{
	static const int SIGNALS[] = {SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTERM, SIGINT, SIGHUP,
	        SIGQUIT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP, SIGPIPE,
	        SIGALRM, SIGUSR1, SIGUSR2, SIGCHLD, SIGCONT, SIGWINCH, SIGXCPU, SIGXFSZ, SIGPWR, 34,
	        64};
	int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
	siginfo_t info = {.si_code = SI_QUEUE};
	char text[512], *at;

	for (int round = 0; round < 50; round++)
		for (size_t i = 0; i < COUNT(SIGNALS); i++) {
			int sig = SIGNALS[i];

			info.si_signo = sig;
			kill(1, sig);
			syscall(SYS_tkill, 1, sig);
			syscall(SYS_tgkill, 1, 1, sig);
			syscall(SYS_rt_sigqueueinfo, 1, sig, &info);
			syscall(SYS_rt_tgsigqueueinfo, 1, 1, sig, &info);
			syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
		}
	usleep(20000);
	check(get("/proc/1/stat", text, sizeof text) > 0, "init is gone");
	at = strrchr(text, ')');
	check(at && strchr("SRD", at[2]), "init's state is %c", at ? at[2] : '?');
}

static void x10_identity(void)
{
	uid_t u[3], id = INIT_ID;

	if (!is_root()) {
		check(setuid(id) < 0 && setuid(0) < 0 && setgid(id) < 0 && setgroups(0, NULL) < 0,
		        "another id can be had");
		return;
	}
	for (int high = 0; high < 2; high++) {
		unsigned long to = high ? id | HIGH : id;

		refused(call(SYS_setuid, to, 0, 0, 0, 0), EPERM, EPERM, "setuid");
		refused(call(SYS_setreuid, to, -1ul, 0, 0, 0), EPERM, EPERM, "setreuid real");
		refused(call(SYS_setreuid, -1ul, to, 0, 0, 0), EPERM, EPERM, "setreuid effective");
		refused(call(SYS_setresuid, to, -1ul, -1ul, 0, 0), EPERM, EPERM, "setresuid real");
		refused(call(SYS_setresuid, -1ul, to, -1ul, 0, 0), EPERM, EPERM,
		        "setresuid effective");
		refused(call(SYS_setresuid, -1ul, -1ul, to, 0, 0), EPERM, EPERM, "setresuid saved");
		call(SYS_setfsuid, to, 0, 0, 0, 0);
		check(call(SYS_setfsuid, -1ul, 0, 0, 0, 0) != INIT_ID, "setfsuid");
	}
	check(getresuid(&u[0], &u[1], &u[2]) == 0 && u[0] != id && u[1] != id && u[2] != id,
	        "an id is init's");
	for (unsigned long to = 65536; to < 1ul << 32; to = to * 2 + 1)
		check(call(SYS_setuid, to, 0, 0, 0, 0) < 0, "an id outside the range: %lu", to);
}

static void x11_devices(void)
{
	static const char *const PLACES[] = {"/tmp/node", "/workspace/home/node", "/var/tmp/node",
	        "/dev/node", "/dev/shm/node", "/run/node"};
	static const struct {
		mode_t type;
		unsigned int major, minor;
	} NODES[] = {{S_IFBLK, 8, 0}, {S_IFBLK, 7, 0}, {S_IFBLK, 254, 0}, {S_IFCHR, 1, 1},
	        {S_IFCHR, 1, 3}, {S_IFCHR, 1, 11}, {S_IFCHR, 5, 1}, {S_IFCHR, 10, 232},
	        {S_IFCHR, 10, 200}, {S_IFCHR, 10, 229}, {S_IFCHR, 10, 237}};
	static const char *const OWN[] = {"fd", "full", "mqueue", "null", "ptmx", "pts", "random",
	        "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"};
	DIR *dev = opendir("/dev");
	struct dirent *e;

	for (size_t p = 0; p < COUNT(PLACES); p++)
		for (size_t i = 0; i < COUNT(NODES); i++) {
			check(mknod(PLACES[p], NODES[i].type | 0666,
			              makedev(NODES[i].major, NODES[i].minor)) < 0,
			        "mknod %s %u %u", PLACES[p], NODES[i].major, NODES[i].minor);
			unlink(PLACES[p]);
		}
	while (dev && (e = readdir(dev))) {
		bool known = *e->d_name == '.';

		for (size_t i = 0; i < COUNT(OWN); i++)
			known = known || !strcmp(e->d_name, OWN[i]);
		check(known, "/dev/%s", e->d_name);
	}
	closedir(dev);
	check(open("/dev/new", O_CREAT | O_WRONLY | O_CLOEXEC, 0600) < 0, "/dev takes files");
	check(chmod("/dev/null", 0600) < 0 && unlink("/dev/null") < 0, "/dev/null can be changed");
	check(rename("/dev", "/tmp/dev") < 0 && rename("/proc", "/p") < 0 &&
	                rename("/workspace/home", "/workspace/h") < 0,
	        "a mount point can be renamed");
}

/* ---- K: the kernel ---- */

static void k1_namespaces(void)
{
	static const struct {
		const char *name;
		unsigned long flag;
	} SPACES[] = {{"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS}, {"pid", CLONE_NEWPID},
	        {"net", CLONE_NEWNET}, {"ipc", CLONE_NEWIPC}, {"uts", CLONE_NEWUTS},
	        {"cgroup", CLONE_NEWCGROUP}, {"time", 0x80}};
	char path[64], text[32];

	for (size_t i = 0; i < COUNT(SPACES); i++) {
		int fd;
		long pid;

		refused(call(SYS_unshare, SPACES[i].flag, 0, 0, 0, 0), EPERM, EPERM,
		        SPACES[i].name);
		refused(call(SYS_unshare, SPACES[i].flag | CLONE_NEWUSER, 0, 0, 0, 0), EPERM, EPERM,
		        SPACES[i].name);
		snprintf(path, sizeof path, "/proc/self/ns/%s", SPACES[i].name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		refused(call(SYS_setns, (unsigned long)fd, 0, 0, 0, 0), EPERM, EPERM, "setns");
		/* NS_GET_USERNS, NS_GET_PARENT */
		check(fd < 0 || ioctl(fd, 0xb701) < 0 || !strcmp(SPACES[i].name, "time") ||
		                strcmp(SPACES[i].name, "net"),
		        "the owner of the net namespace can be had");
		check(fd < 0 || ioctl(fd, 0xb702) < 0, "the parent of a namespace can be had: %s",
		        SPACES[i].name);
		if (fd >= 0)
			close(fd);
		if (SPACES[i].flag == 0x80)
			continue; /* means something else to clone */
		pid = call(SYS_clone, SPACES[i].flag | SIGCHLD, 0, 0, 0, 0);
		if (pid == 0)
			_exit(0);
		refused(pid, EPERM, EPERM, "clone");
	}
	refused(call(SYS_clone3, TEXT(path), 64, 0, 0, 0), ENOSYS, ENOSYS, "clone3");
	refused(call(SYS_clone3, 0, 0, 0, 0, 0), ENOSYS, ENOSYS, "clone3 of nothing");
	get("/proc/sys/user/max_user_namespaces", text, sizeof text);
	check(!strcmp(text, "0\n"), "max_user_namespaces is %s", text);
}

/* Asks the routing socket for something; returns the error it answers, 0 for success. */
static int route_request(int type, int flags)
{
	struct {
		struct nlmsghdr h;
		union {
			struct ifinfomsg link;
			struct ifaddrmsg address;
			struct rtmsg route;
		} m;
		char more[64];
	} request = {.h = {.nlmsg_len = sizeof request.h + sizeof request.m,
	                     .nlmsg_type = (uint16_t)type,
	                     .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags)}};
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
		char more[4096];
	} answer;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	ssize_t n;

	if (fd < 0)
		return errno;
	n = send(fd, &request, request.h.nlmsg_len, 0) < 0 ? -1
	                                                   : recv(fd, &answer, sizeof answer, 0);
	close(fd);
	if (n < (ssize_t)sizeof answer.h)
		return EIO;
	return answer.h.nlmsg_type == NLMSG_ERROR ? -answer.e.error : 0;
}

static void k2_netlink(void)
{
	static const int CHANGES[] = {RTM_NEWLINK, RTM_DELLINK, RTM_SETLINK, RTM_NEWADDR,
	        RTM_DELADDR, RTM_NEWROUTE, RTM_DELROUTE, RTM_NEWNEIGH, RTM_NEWRULE, RTM_NEWQDISC,
	        RTM_NEWTCLASS, RTM_NEWTFILTER, RTM_NEWNSID, RTM_NEWNETCONF + 4};

	for (int protocol = 0; protocol < 64; protocol++) {
		int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

		check((fd >= 0) == (protocol == NETLINK_ROUTE), "netlink protocol %d", protocol);
		if (fd >= 0)
			close(fd);
		fd = (int)call(SYS_socket, AF_NETLINK | HIGH, SOCK_DGRAM | HIGH,
		        (unsigned long)protocol | HIGH, 0, 0);
		check((fd >= 0) == (protocol == NETLINK_ROUTE), "netlink protocol %d, high bits",
		        protocol);
		if (fd >= 0)
			close(fd);
	}
	for (size_t i = 0; i < COUNT(CHANGES); i++) {
		int errnum = route_request(CHANGES[i], NLM_F_CREATE);

		check(errnum == EPERM || errnum == EOPNOTSUPP, "routing request %d: %s", CHANGES[i],
		        strerror(errnum));
	}
}

static bool socket_is_allowed(int family, int type, int protocol)
{
	if (family == AF_UNIX)
		return true;
	if (family == AF_NETLINK)
		return protocol == NETLINK_ROUTE;
	if (family != AF_INET && family != AF_INET6)
		return false;
	return (type == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP)) ||
	       (type == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP));
}

static void k3_sockets(void)
{
	for (int family = 0; family < 64; family++)
		for (int type = 0; type < 16; type++)
			for (int protocol = 0; protocol < 264; protocol++) {
				int fd = socket(family, type | SOCK_CLOEXEC, protocol);

				if (fd < 0)
					continue;
				close(fd);
				check(socket_is_allowed(family, type, protocol),
				        "socket %d %d %d opens", family, type, protocol);
			}
	for (int family = 0; family < 64; family++) {
		int pair[2];

		if (socketpair(family, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0)
			continue;
		check(family == AF_UNIX, "socketpair of family %d opens", family);
		close(pair[0]);
		close(pair[1]);
	}
}

static void k3_options(void)
{
	int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int tcp6 = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int unix_socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int one = 1;
	char zeros[64] = {0};

	for (int high = 0; high < 2; high++) {
		unsigned long add = high ? HIGH : 0;

		refused(call(SYS_setsockopt, (unsigned long)tcp, 6 | add, 31 | add, TEXT("tls"), 3),
		        EPERM, EPERM, "TCP_ULP");
		refused(call(SYS_setsockopt, (unsigned long)tcp6, 6 | add, 31 | add, TEXT("smc"),
		                3),
		        EPERM, EPERM, "TCP_ULP on IPv6");
		refused(call(SYS_setsockopt, (unsigned long)udp, 17 | add, 100 | add, TEXT(&one),
		                4),
		        EPERM, EPERM, "UDP_ENCAP");
	}
	refused(call(SYS_setsockopt, (unsigned long)unix_socket, 6, 31, TEXT("tls"), 3), EPERM,
	        EPERM, "TCP_ULP on a UNIX socket");
	check(setsockopt(tcp, SOL_IP, 64, zeros, sizeof zeros) < 0, "IPT_SO_SET_REPLACE");
	check(setsockopt(tcp6, SOL_IPV6, 64, zeros, sizeof zeros) < 0, "IP6T_SO_SET_REPLACE");
	check(setsockopt(tcp, SOL_SOCKET, 36 /* SO_MARK */, &one, sizeof one) < 0, "SO_MARK");
	check(setsockopt(tcp, SOL_SOCKET, 33 /* SO_RCVBUFFORCE */, &one, sizeof one) < 0,
	        "SO_RCVBUFFORCE");
	check(setsockopt(tcp, 6, 19 /* TCP_REPAIR */, &one, sizeof one) < 0, "TCP_REPAIR");
	check(setsockopt(tcp, SOL_IP, 19 /* IP_TRANSPARENT */, &one, sizeof one) < 0,
	        "IP_TRANSPARENT");
	check(setsockopt(tcp, SOL_IP, 17 /* IP_XFRM_POLICY */, zeros, sizeof zeros) < 0,
	        "IP_XFRM_POLICY");
	check(setsockopt(udp, SOL_SOCKET, 50 /* SO_ATTACH_BPF */, &one, sizeof one) < 0,
	        "SO_ATTACH_BPF");
	/* Below 1024 every port may be bound, in the container's own network. */
	struct sockaddr_in low = {.sin_family = AF_INET, .sin_port = htons(81)};
	check(bind(tcp, (void *)&low, sizeof low) == 0, "port 81: %s", strerror(errno));
}

/* The shape of Dirty Pipe and its kin, against a read-only file of our own making. */
static void k4_page_cache(void)
{
	static const char PLACE[] = "/var/tmp/page-cache";
	char text[64];
	int p[2], fd;
	loff_t at = 1;

	unlink(PLACE);
	fd = open(PLACE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	check(fd >= 0 && write(fd, "unchanged", 9) == 9, "make a file");
	close(fd);
	fd = open(PLACE, O_RDONLY | O_CLOEXEC);
	check(pipe2(p, O_CLOEXEC | O_NONBLOCK) == 0, "pipe");
	static char page[65536];
	while (write(p[1], page, 4096) > 0)
		;
	while (read(p[0], page, 4096) > 0)
		;
	check(splice(fd, &at, p[1], NULL, 1, 0) == 1, "splice");
	check(write(p[1], "XXXX", 4) == 4, "write");
	get(PLACE, text, sizeof text);
	check(!strcmp(text, "unchanged"), "a read-only file became %s", text);
	/* A splice to a file that is only open for reading, and to one without write permission. */
	check(splice(p[0], NULL, fd, NULL, 4, SPLICE_F_NONBLOCK) < 0,
	        "splice into a read-only file");
	check(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED, "a writable mapping");
	check(call(SYS_copy_file_range, (unsigned long)fd, 0, (unsigned long)fd, 0, 4) < 0,
	        "copy_file_range into it");
	unlink(PLACE);
}

static void k5_io_uring(void)
{
	refused(call(SYS_io_uring_setup, 1, TEXT(failure), 0, 0, 0), ENOSYS, ENOSYS, "setup");
	refused(call(SYS_io_uring_enter, 0, 0, 0, 0, 0), ENOSYS, ENOSYS, "enter");
	refused(call(SYS_io_uring_register, 0, 0, 0, 0, 0), ENOSYS, ENOSYS, "register");
}

static void k6_refused_calls(void)
{
	static const struct {
		const char *name;
		long nr;
		int errnum;
	} CALLS[] = {{"userfaultfd", SYS_userfaultfd, ENOSYS}, {"bpf", SYS_bpf, ENOSYS},
	        {"keyctl", SYS_keyctl, ENOSYS}, {"add_key", SYS_add_key, ENOSYS},
	        {"request_key", SYS_request_key, ENOSYS},
	        {"perf_event_open", SYS_perf_event_open, EPERM},
	        {"fanotify_init", SYS_fanotify_init, EPERM},
	        {"fanotify_mark", SYS_fanotify_mark, EPERM}, {"kexec_load", SYS_kexec_load, EPERM},
	        {"init_module", SYS_init_module, EPERM}, {"finit_module", SYS_finit_module, EPERM},
	        {"delete_module", SYS_delete_module, EPERM}, {"reboot", SYS_reboot, EPERM},
	        {"swapon", SYS_swapon, EPERM}, {"swapoff", SYS_swapoff, EPERM},
	        {"acct", SYS_acct, EPERM}, {"quotactl", SYS_quotactl, EPERM},
	        {"sethostname", SYS_sethostname, EPERM},
	        {"setdomainname", SYS_setdomainname, EPERM}, {"mbind", SYS_mbind, EPERM},
	        {"set_mempolicy", SYS_set_mempolicy, EPERM},
	        {"get_mempolicy", SYS_get_mempolicy, EPERM}, {"vhangup", SYS_vhangup, EPERM},
	        {"lookup_dcookie", 212, EPERM}, {"nfsservctl", 180, EPERM}, {"uselib", 134, EPERM},
	        {"ustat", 136, EPERM}, {"sysfs", 139, EPERM}, {"_sysctl", 156, EPERM},
	        {"iopl", 172, EPERM}, {"ioperm", 173, EPERM}, {"modify_ldt", 154, EPERM},
	        {"io_setup", SYS_io_setup, ENOSYS},
	        {"io_submit", SYS_io_submit, ENOSYS}, {"the newest", 999, ENOSYS}};

	for (size_t i = 0; i < COUNT(CALLS); i++)
		refused(call(CALLS[i].nr, -1ul, -1ul, -1ul, -1ul, -1ul), CALLS[i].errnum,
		        CALLS[i].errnum, CALLS[i].name);
	/* Allowed, where the kernel has it (since 6.5 without being asked to). */
	refused(call(447, -1ul, 0, 0, 0, 0), EINVAL, ENOSYS, "memfd_secret with flags");
	check(!exists("/dev/fuse") && !exists("/dev/userfaultfd") && !exists("/dev/kvm") &&
	                !exists("/dev/net") && !exists("/dev/vhost-net") && !exists("/dev/mem") &&
	                !exists("/dev/kmsg") && !exists("/dev/console") &&
	                !exists("/dev/loop-control"),
	        "a device of the host's");
}

static void use_int80(void)
{
#ifdef __x86_64__
	int rc;

	__asm__ volatile("int $0x80" : "=a"(rc) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
	_exit(rc > 0 ? 77 : 78);
#endif
	raise(SIGSYS);
}

static void use_x32(void)
{
	_exit(syscall(0x40000000 + 39) < 0 && errno == ENOSYS ? 0 : 77);
}

static void k11_other_abis(void)
{
	static const unsigned long PERSONALITIES[] = {0x0040000, 0x0400000, 0x0800000, 0x8000000,
	        0x20001, 0x0100000, 0x0200000, 0x1000000, 0x2000000, 0x4000000, 8 | 0x0040000};
	int status = in_child(use_int80);

	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "int 0x80: status %x", status);
#ifdef __x86_64__
	status = in_child(use_x32);
	/* Where the kernel knows no x32 calls it may be the filter or the kernel that refuses. */
	check((WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) ||
	                (WIFEXITED(status) && WEXITSTATUS(status) == 0),
	        "x32: status %x", status);
#endif
	for (size_t i = 0; i < COUNT(PERSONALITIES); i++) {
		refused(call(SYS_personality, PERSONALITIES[i], 0, 0, 0, 0), EPERM, EPERM,
		        "personality");
		refused(call(SYS_personality, PERSONALITIES[i] | HIGH, 0, 0, 0, 0), EPERM, EPERM,
		        "personality, high bits");
	}
	check(call(SYS_personality, 0xffffffff, 0, 0, 0, 0) == 0,
	        "personality is not the plain one");
}

/* ---- L: leaks, side channels, denial of service ---- */

static void l1_terminals(void)
{
	static const struct {
		const char *name;
		unsigned long request;
	} REQUESTS[] = {{"TIOCSTI", 0x5412}, {"TIOCLINUX", 0x541c}, {"TIOCSETD", 0x5423}};
	int master = open("/dev/ptmx", O_RDWR | O_CLOEXEC | O_NOCTTY);
	int unlocked = 0, slave, number = -1;
	char path[32];

	check(master >= 0, "no pseudo-terminal: %s", strerror(errno));
	check(ioctl(master, TIOCSPTLCK, &unlocked) == 0 && ioctl(master, TIOCGPTN, &number) == 0,
	        "ptmx");
	snprintf(path, sizeof path, "/dev/pts/%d", number);
	setsid();
	slave = open(path, O_RDWR | O_CLOEXEC);
	check(slave >= 0, "%s: %s", path, strerror(errno));
	for (size_t i = 0; i < COUNT(REQUESTS); i++)
		for (unsigned long high = 0; high < 3; high++) {
			unsigned long request =
			        REQUESTS[i].request | high * HIGH | (high == 2 ? 1ul << 63 : 0);

			refused(call(SYS_ioctl, (unsigned long)slave, request, TEXT("\2"), 0, 0),
			        EPERM, EPERM, REQUESTS[i].name);
			refused(call(SYS_ioctl, (unsigned long)master, request, TEXT("\2"), 0, 0),
			        EPERM, EPERM, REQUESTS[i].name);
		}
	check(ioctl(slave, 0x541d /* TIOCCONS */) < 0, "TIOCCONS");
	for (int fd = 0; fd < 3; fd++)
		check(!isatty(fd), "descriptor %d is a terminal", fd);
}

static void l5_log(void)
{
	for (unsigned long type = 0; type < 11; type++)
		refused(call(SYS_syslog, type, TEXT(failure), 1, 0, 0), EPERM, EPERM, "syslog");
	check(open("/dev/kmsg", O_RDONLY | O_CLOEXEC) < 0, "/dev/kmsg");
}

static void l6_mounts(void)
{
	static const char *const FILES[] = {"/proc/self/mountinfo", "/proc/self/mounts",
	        "/proc/self/mountstats", "/proc/mounts"};
	static const char *const BAD[] = {"/var/", "/srv/", "/images/", "/homes/", "/scratch/",
	        "base.erofs", "/data", " /sys/", "lowerdir=/", "/mnt/", "/old"};
	static char text[65536];
	char *line;

	for (size_t i = 0; i < COUNT(FILES); i++) {
		check(get(FILES[i], text, sizeof text) > 0 || i == 2, "%s", FILES[i]);
		for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
			for (size_t b = 0; b < COUNT(BAD); b++)
				check(!strstr(line, BAD[b]), "%s: %s", FILES[i], line);
	}
}

/* Mounts of others by their numbers. */
static void l6_numbers(void)
{
	struct {
		uint32_t size, spare;
		uint64_t id, param, ns;
	} request = {.size = 24, .id = ~0ull};
	static uint64_t own[1024], answer[512];
	long n = syscall(SYS_listmount, &request, own, COUNT(own), 0);
	uint64_t low = ~0ull, high = 0;

	if (n < 0) {
		check(errno == ENOSYS || errno == EPERM, "listmount: %s", strerror(errno));
		return;
	}
	check(n > 3 && n < (long)COUNT(own), "%ld mounts", n);
	for (long i = 0; i < n; i++) {
		low = own[i] < low ? own[i] : low;
		high = own[i] > high ? own[i] : high;
	}
	request.param = 1; /* STATMOUNT_SB_BASIC */
	for (uint64_t id = low - 500; id < high + 500; id++) {
		bool mine = false;

		for (long i = 0; i < n; i++)
			mine = mine || own[i] == id;
		request.id = id;
		check(syscall(SYS_statmount, &request, answer, sizeof answer, 0) < 0 || mine,
		        "mount %llu is another's", (unsigned long long)id);
	}
	request = (typeof(request)){.size = 32, .id = ~0ull, .ns = 0};
	for (uint64_t ns = 1; ns < 64; ns++) {
		request.ns = ns;
		check(syscall(SYS_listmount, &request, own, COUNT(own), 0) < 0,
		        "mounts of namespace %llu", (unsigned long long)ns);
	}
	int fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	/* NS_MNT_GET_NEXT, NS_MNT_GET_PREV */
	check(ioctl(fd, 0x8010b70b, answer) < 0 && ioctl(fd, 0x8010b70c, answer) < 0,
	        "the next mount namespace");
}

/* Pseudo-terminals are the whole machine's to run out of. */
static void l3_terminals(void)
{
	int n = 0;

	while (n < 2000 && open("/dev/ptmx", O_RDWR | O_CLOEXEC | O_NOCTTY) >= 0)
		n++;
	check(n >= 64 && n <= 256, "%d terminals", n);
}

static void l7_time(void)
{
	struct timespec now;
	struct timeval tv;
	struct timex t = {.modes = ADJ_OFFSET};

	/* What is the time already: should it work, nothing is moved. */
	clock_gettime(CLOCK_REALTIME, &now);
	tv = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
	refused(settimeofday(&tv, NULL), EPERM, EPERM, "settimeofday");
	refused(clock_settime(CLOCK_REALTIME, &now), EPERM, EPERM, "clock_settime");
	refused(syscall(SYS_adjtimex, &t), EPERM, EPERM, "adjtimex");
	refused(syscall(SYS_clock_adjtime, CLOCK_REALTIME, &t), EPERM, EPERM, "clock_adjtime");
	t.modes = 0;
	check(syscall(SYS_adjtimex, &t) >= 0, "adjtimex cannot be read");
	check(call(SYS_timerfd_create, 8 /* CLOCK_REALTIME_ALARM */, 0, 0, 0, 0) < 0,
	        "an alarm clock");
}

static void l15_scheduling(void)
{
	struct sched_param p = {.sched_priority = 1};
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} deadline = {.size = 48,
	        .policy = 6,
	        .runtime = 1000000,
	        .deadline = 10000000,
	        .period = 10000000};
	static const struct {
		int resource;
		rlim_t hard;
	} LIMITS[] = {{RLIMIT_MEMLOCK, 65536}, {RLIMIT_RTPRIO, 0}, {RLIMIT_NICE, 0},
	        {RLIMIT_MSGQUEUE, 819200}, {RLIMIT_SIGPENDING, 4096}, {RLIMIT_NOFILE, 65536}};
	struct rlimit r, more = {RLIM_INFINITY, RLIM_INFINITY};
	void *big = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	refused(call(SYS_sched_setscheduler, 0, SCHED_FIFO, TEXT(&p), 0, 0), EPERM, EPERM, "FIFO");
	refused(call(SYS_sched_setscheduler, 0, SCHED_RR, TEXT(&p), 0, 0), EPERM, EPERM, "RR");
	refused(call(SYS_sched_setattr, 0, TEXT(&deadline), 0, 0, 0), EPERM, EPERM, "DEADLINE");
	check(setpriority(PRIO_PROCESS, 0, -20) < 0, "a better priority");
	refused(call(SYS_ioprio_set, 1, 0, 1 << 13, 0, 0), EPERM, EPERM, "real-time I/O");
	refused(mlock(big, 1 << 20), ENOMEM, EPERM, "mlock 1 MiB");
	check(mlockall(MCL_CURRENT | MCL_FUTURE) < 0, "mlockall");
	check(shmctl(shmget(IPC_PRIVATE, 1 << 20, 0600), SHM_LOCK, NULL) < 0, "SHM_LOCK");
	for (size_t i = 0; i < COUNT(LIMITS); i++) {
		check(getrlimit(LIMITS[i].resource, &r) == 0 && r.rlim_max <= LIMITS[i].hard,
		        "limit %d is %llu", LIMITS[i].resource, (unsigned long long)r.rlim_max);
		check(setrlimit(LIMITS[i].resource, &more) < 0, "limit %d can be raised",
		        LIMITS[i].resource);
	}
	check(put("/proc/self/oom_score_adj", "-1") < 0, "a better oom score");
}

static void l16_network(void)
{
	static const char *const FILES[] = {"/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp",
	        "/proc/net/udp6", "/proc/net/raw", "/proc/net/unix", "/proc/net/packet"};
	char text[8192], *line;
	int lines;

	for (size_t i = 0; i < COUNT(FILES); i++) {
		lines = 0;
		if (get(FILES[i], text, sizeof text) < 0)
			continue;
		for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
			lines++;
		check(lines <= 1, "%s lists %d sockets in a new container", FILES[i], lines - 1);
	}
	get("/proc/net/dev", text, sizeof text);
	lines = 0;
	for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		lines += strchr(line, ':') != NULL;
	check(lines == 1 && strstr(text, ""), "%d network devices", lines);
}

/* Whatever answers on init's side: there must be nothing to speak to. */
static void l18_control(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char text[256];
	int fd;

	for (fd = 3; fd < 4096; fd++)
		check(send(fd, "\100\0\10\0\0\0\0\0", 8, MSG_DONTWAIT | MSG_NOSIGNAL) < 0,
		        "descriptor %d takes a message", fd);
	/* Autobound names of five hex digits. */
	for (unsigned int n = 0; n < 0x2000; n++) {
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		snprintf(text, sizeof text, "%05x", n);
		memcpy(a.sun_path + 1, text, 5);
		check(connect(fd, (void *)&a, offsetof(struct sockaddr_un, sun_path) + 6) < 0,
		        "abstract socket %s answers", text);
		close(fd);
	}
	check(get("/proc/1/cmdline", text, sizeof text) > 0 && !strchr(text, '/'),
	        "init's command line");
}

/* ---- between containers ---- */

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
static int channel_make(void)
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
	while (poll(&p, 1, 5000) > 0) {
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
static int leaks(char **texts)
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

/* ---- all of it ---- */

static const struct {
	const char *id;
	void (*run)(void);
} CASES[] = {{"L16", l16_network}, {"X1", x1_executables}, {"X2", x2_descriptors}, {"X4", x4_masks},
        {"X7", x7_control_groups}, {"X8", x8_helpers}, {"X9", x9_set_id}, {"X10", x10_init},
        {"X10-limits", x10_limits}, {"X10-signals", x10_signals}, {"X10-identity", x10_identity},
        {"X11", x11_devices}, {"K1", k1_namespaces}, {"K2", k2_netlink}, {"K3", k3_sockets},
        {"K3-options", k3_options}, {"K4", k4_page_cache}, {"K5", k5_io_uring},
        {"K6", k6_refused_calls}, {"K11", k11_other_abis}, {"L1", l1_terminals}, {"L5", l5_log},
        {"L3", l3_terminals}, {"L6", l6_mounts}, {"L6-numbers", l6_numbers}, {"L7", l7_time},
        {"L15", l15_scheduling}, {"L18", l18_control}};

/* In a process of its own: what it prints is its line. Returns 0 when the attack failed. */
static int run_case(const char *id, void (*run)(void))
{
	pid_t pid;
	int status = 0;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		alarm(CASE_SECONDS);
		run();
		if (*failure)
			printf("%s FAIL %s\n", id, failure);
		else
			printf("%s PASS %u checks\n", id, n_checked);
		fflush(stdout);
		_exit(*failure != 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status)) {
		printf("%s FAIL the case itself died: status %x\n", id, status);
		return 1;
	}
	return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	int failed = 0;

	if (argc == 2 && !strcmp(argv[1], "x9-probe"))
		return x9_probe();
	if (argc == 2 && !strcmp(argv[1], "channel-make"))
		return channel_make();
	if (argc == 2 && !strcmp(argv[1], "channel-seek"))
		return run_case("L2", channel_seek);
	if (argc > 2 && !strcmp(argv[1], "leaks"))
		return leaks(argv + 2);
	for (size_t i = 0; i < COUNT(CASES); i++) {
		bool asked = argc == 1;

		for (int a = 1; a < argc; a++)
			asked = asked || !strcmp(argv[a], CASES[i].id);
		if (asked)
			failed += run_case(CASES[i].id, CASES[i].run);
	}
	return failed > 0;
}
