/* X: attacks on the runtime's own set-up. The names of the cases are the rows of README.md. */
#include "escape.h"

#include <ctype.h>
#include <dirent.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/xattr.h>

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

static void x4_masks(void)
{
	static const char *const ROUTES[] = {"/proc", "/proc/self/root/proc",
	        "/proc/thread-self/root/proc", "/proc/self/../", "/dev/fd/../../", "/dev/../proc",
	        "/proc/self/task/../../../proc"};
	char path[128];
	struct stat st;

	for (size_t i = 0; i < n_masked; i++) {
		for (size_t r = 0; r < COUNT(ROUTES); r++)
			masked_by(ROUTES[r], masked[i]);
		snprintf(path, sizeof path, "/proc/%s", masked[i]);
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
int setup_probe(void)
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

/* Hooks for accelerators work on the host's side with the guest's files: there are none, and no
 * node. */
static void x12_accelerators(void)
{
	static const char *const ABSENT[] = {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm",
	        "/dev/nvidia-caps", "/dev/dri", "/dev/kfd", "/dev/accel", "/dev/infiniband",
	        "/dev/dxg", "/proc/driver/nvidia", "/run/nvidia-persistenced/socket"};

	for (size_t i = 0; i < COUNT(ABSENT); i++)
		refused(open(ABSENT[i], O_RDONLY | O_CLOEXEC), ENOENT, ENOENT, ABSENT[i]);
}

/* What the owner of a file may ask of its file system, and what only the owner of the machine may.
 */
static void x16_file_systems(void)
{
	static const struct {
		const char *name;
		unsigned long request;
	} REQUESTS[] = {{"FIFREEZE", 0xc0045877}, {"FITHAW", 0xc0045878}, {"FITRIM", 0xc0185879},
	        {"SHUTDOWN", 0x8004587d}, {"RESIZE_FS", 0x40086610}, {"SWAP_BOOT", 0x6611},
	        {"GROUP_EXTEND", 0x40086607}, {"CHECKPOINT", 0x4004662b}, {"FIBMAP", 1},
	        {"SETFSLABEL", 0x41009432}, {"SETFSUUID", 0x4008662c}, {"LOOP_CLR_FD", 0x4c01},
	        {"BLKROSET", 0x125d}, {"SET_ENCRYPTION_POLICY", 0x800c6613}};
	static const char *const PLACES[] = {"/workspace/home", "/workspace/home/x16", "/var/tmp",
	        "/tmp", "/dev/shm", "/", "/usr/bin/su", "/dev", "/proc"};
	char path[] = "/workspace/home/x16";
	unsigned char zeros[512];

	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	for (size_t p = 0; p < COUNT(PLACES); p++) {
		int fd = open(PLACES[p], O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			continue;
		for (size_t i = 0; i < COUNT(REQUESTS); i++) {
			memset(zeros, 0, sizeof zeros);
			/* Shut down to keep reading, should it ever work. */
			*zeros = REQUESTS[i].request == 0x8004587d ? 2 : 0;
			check(call(SYS_ioctl, (unsigned long)fd, REQUESTS[i].request, TEXT(zeros),
			              0, 0) < 0,
			        "%s on %s", REQUESTS[i].name, PLACES[p]);
		}
		for (unsigned long flag = 0x10; flag <= 0x20; flag += 0x10) {
			unsigned long flags =
			        flag; /* immutable, append-only: nobody could delete it */

			check(call(SYS_ioctl, (unsigned long)fd, FS_IOC_SETFLAGS, TEXT(&flags), 0,
			              0) < 0,
			        "flag %lx on %s", flag, PLACES[p]);
		}
		close(fd);
	}
	unlink(path);
}

/* The overlay's own marks: set by a guest they would show other folders of the layers below. */
static void x17_layers(void)
{
	static const char *const NAMES[] = {"opaque", "redirect", "metacopy", "origin", "impure",
	        "nlink", "upper", "uuid", "whiteout", "xwhiteouts", "verity"};
	static const char FOLDER[] = "/var/tmp/x17", INSIDE[] = "/var/tmp/x17/in";
	char name[64], text[64];

	mkdir(FOLDER, 0700);
	mkdir(INSIDE, 0700);
	for (size_t i = 0; i < COUNT(NAMES); i++) {
		snprintf(name, sizeof name, "trusted.overlay.%s", NAMES[i]);
		refused(setxattr(INSIDE, name, "/usr", 4, 0), EPERM, EPERM, name);
		check(getxattr("/", name, text, sizeof text) < 0, "%s of / can be read", name);
		snprintf(name, sizeof name, "user.overlay.%s", NAMES[i]);
		setxattr(INSIDE, name, "/usr", 4, 0);
	}
	check(directory_is_empty(INSIDE), "a redirect is followed");
	check(rename(INSIDE, "/var/tmp/x17/out") == 0 && directory_is_empty("/var/tmp/x17/out"),
	        "a redirect is followed once renamed");
	rmdir("/var/tmp/x17/out");
	check(rmdir(FOLDER) == 0, "the folder cannot be removed: %s", strerror(errno));
}

/* Process 1 by a descriptor instead of a number. */
static void x18_pidfds(void)
{
	struct {
		uint64_t mask, cgroup;
		uint32_t pid, tgid, ppid, ruid, rgid, euid, egid, more[9];
	} info = {.mask = 1};
	int by_number = (int)syscall(SYS_pidfd_open, 1, 0);
	int by_folder = open("/proc/1", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int own = (int)syscall(SYS_pidfd_open, getpid(), 0);
	const int fds[] = {by_number, by_folder};
	char text[512], *at;
	siginfo_t si;

	for (size_t i = 0; i < COUNT(fds); i++) {
		unsigned long fd = (unsigned long)fds[i];

		for (unsigned long flags = 0; flags < 8; flags++)
			for (int sig = 0; sig < 65; sig++)
				if (sig != SIGCONT && !(flags & 4 && getpgid(1) == getpgid(0)))
					call(SYS_pidfd_send_signal, fd, (unsigned long)sig, 0,
					        flags, 0);
		refused(call(SYS_pidfd_getfd, fd, 0, 0, 0, 0), EPERM, EPERM, "pidfd_getfd");
		refused(call(SYS_setns, fd, CLONE_NEWNS | CLONE_NEWUSER, 0, 0, 0), EPERM, EPERM,
		        "setns");
		refused(call(SYS_process_madvise, fd, 0, 0, 4, 0), EPERM, EPERM, "process_madvise");
		check(waitid(P_PIDFD, (id_t)fd, &si, WEXITED | WNOHANG) < 0, "waitid for init");
	}
	refused(call(SYS_pidfd_getfd, (unsigned long)own, 0, 0, 0, 0), EPERM, EPERM,
	        "pidfd_getfd of oneself");
	if (ioctl(by_number, 0xc040ff0b /* PIDFD_GET_INFO */, &info) == 0)
		check(info.pid == 1 && info.tgid == 1 && info.ppid == 0,
		        "init is process %u of %u outside", info.pid, info.ppid);
	/* Process 0 is outside, and so is everything by the descriptor of another namespace. */
	check(syscall(SYS_pidfd_open, 0, 0) < 0, "a descriptor of process 0");
	usleep(20000);
	check(get("/proc/1/stat", text, sizeof text) > 0, "init is gone");
	at = strrchr(text, ')');
	check(at && strchr("SRD", at[2]), "init's state is %c", at ? at[2] : '?');
}

/* Whose program a process is said to be. */
static void x1_name(void)
{
	char before[256] = "", after[256] = "";
	int fd = open("/usr/bin/su", O_RDONLY | O_CLOEXEC);
	struct prctl_mm_map map = {.exe_fd = (uint32_t)fd};

	check(readlink("/proc/self/exe", before, sizeof before - 1) > 0, "own exe");
	refused(prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, fd, 0, 0), EPERM, EPERM, "PR_SET_MM_EXE_FILE");
	check(prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0) < 0, "PR_SET_MM_MAP");
	for (int field = 1; field <= 12; field++)
		check(prctl(PR_SET_MM, field, 0x10000, 0, 0) < 0, "PR_SET_MM %d", field);
	check(readlink("/proc/self/exe", after, sizeof after - 1) > 0 && !strcmp(before, after),
	        "own exe became %s", after);
}

const struct escape_case setup_cases[] = {{"X1", x1_executables}, {"X1-name", x1_name},
        {"X2", x2_descriptors}, {"X4", x4_masks}, {"X7", x7_control_groups}, {"X8", x8_helpers},
        {"X9", x9_set_id}, {"X10", x10_init}, {"X10-limits", x10_limits},
        {"X10-signals", x10_signals}, {"X10-identity", x10_identity}, {"X11", x11_devices},
        {"X12", x12_accelerators}, {"X16", x16_file_systems}, {"X17", x17_layers},
        {"X18", x18_pidfds}, {NULL, NULL}};
