#include "sandbox.h"

#include "init/init_image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_GROUPS 4

/* From <sys/mount.h>, which does not go with <linux/mount.h>. */
int mount(const char *source, const char *target, const char *type, unsigned long flags,
        const void *data);
int umount2(const char *target, int flags);

static struct {
	char dir[64]; /* a tmpfs of ours, or a folder on disk */
	int image;    /* init in a sealed memfd */
	int n_groups;
	char groups[MAX_GROUPS][160]; /* the container's cgroups; [0] holds run */
	enum init_cgroups kind;
	unsigned int n_started;
} host;

_Noreturn static void die(const char *step)
{
	fprintf(stderr, "sandbox: %s: %s\n", step, strerror(errno));
	exit(99);
}

uint64_t sandbox_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void write_text(const char *dir, const char *name, const char *text)
{
	char path[256];
	int fd;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		die(path);
	close(fd);
}

static int open_tree(const char *path)
{
	int fd = (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (fd < 0)
		die("open_tree");
	return fd;
}

/* ---- what all sandboxes share ---- */

static int make_image(void)
{
	int fd = memfd_create("init", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	/* Not readable from inside: then the kernel counts pid 1 as the host's, and even the
	 * sandbox's root has no rights over its files in /proc. */
	if (fd < 0 || write(fd, init_image, init_image_len) != (ssize_t)init_image_len ||
	        fchmod(fd, 0711) < 0 ||
	        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) <
	                0)
		die("memfd");
	return fd;
}

static void make_dev(void)
{
	static const struct {
		const char *name;
		unsigned int major, minor;
	} NODES[] = {{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8},
	        {"urandom", 1, 9}, {"tty", 5, 0}};
	static const char *const LINKS[][2] = {{"pts/ptmx", "ptmx"}, {"/proc/self/fd", "fd"},
	        {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
	        {"/proc/self/fd/2", "stderr"}};
	char dir[96], path[160];

	snprintf(dir, sizeof dir, "%s/dev", host.dir);
	if (mkdir(dir, 0755) < 0 ||
	        mount("dev", dir, "tmpfs", 2 /* MS_NOSUID */, "size=64k,mode=755") < 0)
		die("dev");
	umask(0);
	for (size_t i = 0; i < sizeof NODES / sizeof *NODES; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, NODES[i].name);
		if (mknod(path, S_IFCHR | 0666, makedev(NODES[i].major, NODES[i].minor)) < 0)
			die(path);
	}
	for (size_t i = 0; i < sizeof LINKS / sizeof *LINKS; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, LINKS[i][1]);
		if (symlink(LINKS[i][0], path) < 0)
			die(path);
	}
	snprintf(path, sizeof path, "%s/pts", dir);
	mkdir(path, 0755);
	snprintf(path, sizeof path, "%s/shm", dir);
	mkdir(path, 0755);
	umask(022);
}

static void copy_helper(const char *sbx)
{
	char path[96], buf[65536];
	int in = open(sbx, O_RDONLY | O_CLOEXEC), out;
	ssize_t n;

	snprintf(path, sizeof path, "%s/home/sbx", host.dir);
	out = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	if (in < 0 || out < 0)
		die(sbx);
	while ((n = read(in, buf, sizeof buf)) > 0)
		if (write(out, buf, (size_t)n) != n)
			die(path);
	close(in);
	close(out);
}

/* ---- cgroups ---- */

static void add_group(const char *tree)
{
	char *path = host.groups[host.n_groups++];

	snprintf(path, sizeof *host.groups, "%s/brig-test-%d", tree, (int)getpid());
	if (mkdir(path, 0755) < 0)
		die(path);
}

static void give(const char *dir, const char *name)
{
	char path[256];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	if (chown(path, SANDBOX_BASE + SANDBOX_UID, SANDBOX_BASE + SANDBOX_UID) < 0)
		die(path);
}

static bool open_groups(enum init_cgroups kind)
{
	const char *unified = "/sys/fs/cgroup/unified";
	bool v2 = access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
	char text[32];

	if (v2 != (kind == INIT_CG_V2))
		return false;
	if (kind == INIT_CG_HYBRID && access(unified, F_OK) < 0)
		return false;
	if (v2) {
		write_text("/sys/fs/cgroup", "cgroup.subtree_control", "+memory +pids");
		add_group("/sys/fs/cgroup");
		write_text(host.groups[0], "cgroup.subtree_control", "+memory +pids");
	} else {
		add_group(kind == INIT_CG_HYBRID ? unified : "/sys/fs/cgroup/freezer");
		add_group("/sys/fs/cgroup/memory");
		snprintf(text, sizeof text, "%u", SANDBOX_MEMORY << 20);
		write_text(host.groups[1], "memory.limit_in_bytes", text);
		add_group("/sys/fs/cgroup/pids");
		snprintf(text, sizeof text, "%u", SANDBOX_PIDS);
		write_text(host.groups[2], "pids.max", text);
	}
	return true;
}

/* container/init and container/run of the first tree; run and its procs file are init's. */
static void make_groups(int *ret_init, int *ret_run)
{
	const char *container = host.groups[0];
	const char *procs = host.kind == INIT_CG_V1 ? "tasks" : "cgroup.procs";
	char init[192], run[192], text[32];

	snprintf(init, sizeof init, "%s/init", container);
	snprintf(run, sizeof run, "%s/run", container);
	if (mkdir(init, 0755) < 0 || mkdir(run, 0755) < 0)
		die("cgroup");
	if (host.kind == INIT_CG_V2) {
		write_text(run, "cgroup.subtree_control", "");
		snprintf(text, sizeof text, "%u", SANDBOX_MEMORY << 20);
		write_text(run, "memory.max", text);
		write_text(run, "memory.swap.max", "0");
		snprintf(text, sizeof text, "%u", SANDBOX_PIDS);
		write_text(run, "pids.max", text);
	}
	give(container, procs);
	give(run, procs);
	give(run, ".");
	*ret_init = open(init, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*ret_run = open(run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret_init < 0 || *ret_run < 0)
		die("cgroup");
}

static int open_oom(void)
{
	char path[256];
	int fd;

	if (host.kind == INIT_CG_V2)
		snprintf(path, sizeof path, "%s/run/memory.events", host.groups[0]);
	else
		snprintf(path, sizeof path, "%s/memory.oom_control", host.groups[1]);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die(path);
	return fd;
}

/* Removes what is below the container's groups: leaves, run, init. */
static void remove_groups_below(void)
{
	char path[256];

	for (int i = 0; i < 2000; i++) {
		snprintf(path, sizeof path, "%s/run/%d", host.groups[0], i);
		rmdir(path);
	}
	for (int tries = 0; tries < 12000; tries++) {
		snprintf(path, sizeof path, "%s/run", host.groups[0]);
		int a = rmdir(path) < 0 && errno != ENOENT;

		snprintf(path, sizeof path, "%s/init", host.groups[0]);
		if (!a && (rmdir(path) == 0 || errno == ENOENT))
			return;
		usleep(5000);
	}
	die("a cgroup stays behind");
}

/* Before 6.3 ids of a tmpfs cannot be mapped, and homes are below host.dir: BRIG_TEST_DISK names a
 * folder on a disk to use; whoever names it also clears it. */
static void make_dir(void)
{
	const char *disk = getenv("BRIG_TEST_DISK");

	if (mkdir(host.dir, 0755) < 0 ||
	        mount(disk ? disk : "t", host.dir, disk ? NULL : "tmpfs",
	                disk ? 0x1000 /* MS_BIND */ : 0, disk ? NULL : "size=256m,mode=755") < 0)
		die(host.dir);
}

bool sandbox_open(enum init_cgroups kind, const char *sbx)
{
	char path[96];

	host.kind = kind;
	snprintf(host.dir, sizeof host.dir, "/tmp/brig-test-init-%d", (int)getpid());
	if (!open_groups(kind))
		return false;
	if (unshare(CLONE_NEWNS) < 0 ||
	        mount(NULL, "/", NULL, 0x44000 /* MS_REC | MS_PRIVATE */, NULL) < 0)
		die("unshare");
	make_dir();
	snprintf(path, sizeof path, "%s/home", host.dir);
	mkdir(path, 0755);
	copy_helper(sbx);
	host.image = make_image();
	make_dev();
	return true;
}

void sandbox_close(void)
{
	for (int i = 0; i < host.n_groups; i++)
		if (rmdir(host.groups[i]) < 0)
			die(host.groups[i]);
	umount2(host.dir, 2);
	rmdir(host.dir);
}

/* ---- one sandbox ---- */

static bool try_idmap(int mount, int userns)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns};

	return syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &attr, sizeof attr) == 0;
}

static void idmap(int mount, int userns)
{
	if (!try_idmap(mount, userns))
		die("idmap");
}

static void map_ids(pid_t pid)
{
	char dir[32], text[64];

	snprintf(dir, sizeof dir, "/proc/%d", (int)pid);
	snprintf(text, sizeof text, "0 %u 65536\n", SANDBOX_BASE);
	write_text(dir, "uid_map", text);
	write_text(dir, "gid_map", text);
}

/* Before 6.5 the layers are named by paths. */
static void set_layers_by_path(int fs, const char *dir, int lower)
{
	static const char *const KEY[] = {"lowerdir", "upperdir", "workdir"};
	static const char *const NAME[] = {"lower", "up", "work"};
	char path[128];

	snprintf(path, sizeof path, "%s/lower", dir);
	if (mkdir(path, 0755) < 0 ||
	        syscall(SYS_move_mount, lower, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		die("attach lower");
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, NAME[i]);
		if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, KEY[i], path, 0) < 0)
			die(KEY[i]);
	}
}

static int make_root(int userns, const struct sandbox_change *change)
{
	char path[96];
	int fs, mount, base, up, work;

	snprintf(path, sizeof path, "%s/%u", host.dir, host.n_started++);
	if (mkdir(path, 0755) < 0)
		die(path);
	base = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	mkdirat(base, "up", 0755);
	mkdirat(base, "work", 0755);
	if (fchownat(base, "up", SANDBOX_BASE, SANDBOX_BASE, 0) < 0)
		die("upper folder");
	up = openat(base, "up", O_PATH | O_DIRECTORY | O_CLOEXEC);
	work = openat(base, "work", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (change->root)
		change->root(up);
	/* A mount can be mapped once, so each sandbox gets its own copy of the lower one. */
	mount = open_tree("/");
	idmap(mount, userns);
	fs = (int)syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);
	if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_FD, "lowerdir+", NULL, mount) < 0)
		set_layers_by_path(fs, path, mount);
	else if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_FD, "upperdir", NULL, up) < 0 ||
	         syscall(SYS_fsconfig, fs, FSCONFIG_SET_FD, "workdir", NULL, work) < 0)
		die("layers");
	if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "redirect_dir", "on", 0) < 0 ||
	        syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		die("overlay");
	close(mount);
	close(up);
	close(work);
	close(base);
	mount = (int)syscall(
	        SYS_fsmount, fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (mount < 0)
		die("fsmount");
	close(fs);
	return mount;
}

/* The child: waits for its ids, then becomes init. It still shares nothing of ours but memory's
 * copy. */
_Noreturn static void become_init(int control, const int *groups, int n)
{
	char *const argv[] = {(char[]){"brig: init"}, NULL}, *const envp[] = {NULL};
	int image;
	char go;

	for (int i = 0; i < n; i++)
		if (write(groups[i], "0", 1) != 1)
			die("join");
	if (read(control, &go, 1) != 1 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		die("identity");
	/* Above everything first: either of the two may sit on the other's place. */
	control = fcntl(control, F_DUPFD_CLOEXEC, 100);
	image = fcntl(host.image, F_DUPFD_CLOEXEC, 100);
	if (dup2(control, INIT_CONTROL_FD) < 0 || dup3(image, INIT_CONTROL_FD + 1, O_CLOEXEC) < 0 ||
	        close_range(INIT_CONTROL_FD + 2, ~0u, 0) < 0)
		die("descriptors");
	syscall(SYS_execveat, INIT_CONTROL_FD + 1, "", argv, envp, AT_EMPTY_PATH);
	die("exec");
}

static void raise_loopback(void)
{
	struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (s < 0 || ioctl(s, SIOCSIFFLAGS, &r) < 0)
		die("lo");
	close(s);
}

/* Opens the v1 files that the child writes itself into: limits, and the freezer's where that is the
 * tree. */
static int open_tasks(int *ret, int init_group)
{
	int n = 0;

	if (host.kind == INIT_CG_V1)
		ret[n++] = openat(init_group, "tasks", O_WRONLY | O_CLOEXEC);
	for (int i = 1; i < host.n_groups; i++) {
		char path[192];

		snprintf(path, sizeof path, "%s/tasks", host.groups[i]);
		ret[n++] = open(path, O_WRONLY | O_CLOEXEC);
	}
	return n;
}

/* Forks init into new namespaces; the network one belongs to the host's user namespace. */
static pid_t fork_init(int control, int init_group)
{
	struct clone_args args = {.exit_signal = SIGCHLD,
	        .flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS |
	                 CLONE_NEWCGROUP | CLONE_PARENT_SETTID};
	int tasks[MAX_GROUPS + 1], n = open_tasks(tasks, init_group);
	static int *shared;
	pid_t middle, pid;
	int status;

	if (!shared)
		shared =
		        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (host.kind != INIT_CG_V1) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)init_group;
	}
	/* A process in between, so that ours keeps its own network namespace; init becomes our
	 * child. */
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	middle = fork();
	if (middle == 0) {
		if (unshare(CLONE_NEWNET) < 0)
			die("network");
		raise_loopback();
		write_text("/proc/sys/net/ipv4", "ip_unprivileged_port_start", "0");
		args.parent_tid = (uint64_t)(uintptr_t)shared;
		pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
		if (pid == 0)
			become_init(control, tasks, n);
		_exit(pid < 0);
	}
	if (waitpid(middle, &status, 0) != middle || status != 0)
		die("clone3");
	while (n--)
		close(tasks[n]);
	return *shared;
}

static void send_fds(int socket, const void *data, size_t len, const int *fds, int n)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control};
	struct cmsghdr *c = (void *)control;

	msg.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
	memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
	/* One that broke at an earlier message is gone: its last word is still to be read. */
	if (sendmsg(socket, &msg, MSG_NOSIGNAL) < 0 && errno != EPIPE)
		die("send");
	for (int i = 0; i < n; i++)
		close(fds[i]);
}

/* Waits for the message. Returns "", or the step that init broke at, or "end". */
static const char *await(int control, int op)
{
	static union {
		struct init_header h;
		struct init_broken broken;
	} m;
	ssize_t n = recv(control, &m, sizeof m, 0);

	/* One that ended with a message of ours unread: its last word comes after this error. */
	if (n < 0 && errno == ECONNRESET)
		n = recv(control, &m, sizeof m, 0);
	if (n >= (ssize_t)sizeof m.h && m.h.op == op)
		return "";
	if (n == sizeof m.broken && m.h.op == INIT_BROKEN) {
		errno = (int)m.broken.errnum;
		return m.broken.step;
	}
	errno = EPROTO;
	return "end";
}

/* Makes what INIT_CLAIM brings and sends it. */
static const char *claim_sandbox(
        struct sandbox *sb, int userns, const struct sandbox_change *change)
{
	struct init_claim claim = {.h = {INIT_CLAIM, sizeof claim, 0},
	        .tmp_mib = 64,
	        .shm_mib = 32,
	        .memory_mib = SANDBOX_MEMORY,
	        .cpu_milli = 1000,
	        .hostname = SANDBOX_HOSTNAME};
	char path[96];
	const char *step;
	int home;

	snprintf(path, sizeof path, "%s/home", host.dir);
	home = open_tree(path);
	idmap(home, userns);
	if (change->claim)
		change->claim(&claim);
	sb->claim_ns = sandbox_now_ns();
	send_fds(sb->control, &claim, sizeof claim, &home, 1);
	step = await(sb->control, INIT_READY);
	sb->ready_ns = sandbox_now_ns();
	return step;
}

const char *sandbox_start_changed(struct sandbox *sb, const struct sandbox_change *change)
{
	struct init_setup setup = {
	        .h = {INIT_SETUP, sizeof setup, 0}, .cgroups = host.kind, .init_uid = SANDBOX_UID};
	struct init_header take_root = {INIT_ROOT, sizeof take_root, 0};
	int sv[2], init_group, run, userns, dev, root;
	const char *step;
	char path[96];

	make_groups(&init_group, &run);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		die("socketpair");
	*sb = (struct sandbox){.kind = host.kind, .control = sv[0]};
	sb->pid = fork_init(sv[1], init_group);
	close(sv[1]);
	close(init_group);
	map_ids(sb->pid);
	snprintf(path, sizeof path, "/proc/%d/ns/user", (int)sb->pid);
	userns = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof path, "%s/dev", host.dir);
	dev = open_tree(path);
	try_idmap(dev, userns); /* where not, the nodes are nobody's, and work */
	if (change->setup)
		change->setup(&setup);
	sb->exec_ns = sandbox_now_ns();
	if (write(sv[0], "", 1) != 1)
		die("go");
	send_fds(sv[0], &setup, sizeof setup, (int[]){dev, run, open_oom()}, 3);
	root = make_root(userns, change);
	if (change->take_root)
		change->take_root(&take_root);
	send_fds(sv[0], &take_root, sizeof take_root, &root, 1);
	step = await(sv[0], INIT_PREPARED);
	sb->prepared_ns = sandbox_now_ns();
	if (!*step)
		step = claim_sandbox(sb, userns, change);
	close(userns);
	return step;
}

void sandbox_start(struct sandbox *sb)
{
	const struct sandbox_change none = {0};
	const char *step = sandbox_start_changed(sb, &none);

	if (*step)
		die(step);
}

int sandbox_channel(const struct sandbox *sb)
{
	struct init_header h = {INIT_CHANNEL, sizeof h, 0};
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		die("socketpair");
	send_fds(sb->control, &h, sizeof h, &sv[1], 1);
	return sv[0];
}

int sandbox_count(const struct sandbox *sb)
{
	char path[300], mine[64], theirs[64];
	DIR *proc = opendir("/proc");
	const struct dirent *e;
	int count = 0;
	ssize_t n;

	snprintf(path, sizeof path, "/proc/%d/ns/pid", (int)sb->pid);
	n = readlink(path, mine, sizeof mine - 1);
	mine[n < 0 ? 0 : n] = 0;
	/* A zombie has no namespaces any more, and does not count. */
	while (proc && (e = readdir(proc))) {
		snprintf(path, sizeof path, "/proc/%s/ns/pid", e->d_name);
		n = readlink(path, theirs, sizeof theirs - 1);
		theirs[n < 0 ? 0 : n] = 0;
		count += n > 0 && !strcmp(mine, theirs);
	}
	closedir(proc);
	return count;
}

int sandbox_end(struct sandbox *sb)
{
	int status = -1;

	close(sb->control);
	for (int i = 0; i < 12000; i++) {
		if (waitpid(sb->pid, &status, WNOHANG) == sb->pid)
			break;
		status = -1;
		usleep(5000);
	}
	if (status == -1) {
		kill(sb->pid, SIGKILL);
		waitpid(sb->pid, NULL, 0);
	}
	remove_groups_below();
	return status;
}
