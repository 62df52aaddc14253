/*
 * Everything is mounted by descriptor. /proc and /dev are complete before a byte of the image or of
 * a guest is attached, so no symlink of theirs can lead a mount astray; then, in the root, targets
 * are opened one name at a time without following anything, and a name that is no directory is
 * replaced by one (the root's upper layer is new in each sandbox: what is removed there is hidden,
 * not lost). The host's tree is left before anything of a guest comes: what the claim attaches goes
 * to places that were opened before.
 *
 * The staging place is a tmpfs over the host's /dev in init's own mount namespace: dev/ and proc/
 * are mount points, files/ holds what is bound over files of /proc, root/ gets the root. After
 * pivot_root it hangs below nothing and lives on only through descriptors and binds.
 *
 * There is no sysfs: it would show the host's devices, and what reads it has a way without.
 */
#include "init/setup.h"

#include "init/procfiles.h"
#include "init/sys.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define STAGING "/dev"

static struct {
	int staging;
	int dev; /* mounts, attached below staging, then below root */
	int proc;
	int shm; /* mounts, small until the claim */
	int tmp;
	int home;  /* the place for it, O_PATH */
	int hosts; /* files of /etc, empty until the claim */
	int hostname;
	int resolver;
} setup;

#define TRY(call, step)                                                                            \
	do {                                                                                       \
		if ((call) < 0) {                                                                  \
			*ret_step = (step);                                                        \
			return errno ? -errno : -EIO;                                              \
		}                                                                                  \
	} while (0)

/* A new file system of that type, detached. `data` is "key=value" pairs, or flags, NULL at the end.
 */
static int make_mount(const char *type, const char *const *options, unsigned int attributes)
{
	int fs = sys_fsopen(type);
	int mount = -1;

	if (fs < 0)
		return -1;
	for (; *options; options += 2)
		if (sys_fsconfig(fs, options[1] ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG,
		            options[0], options[1]) < 0)
			goto out;
	if (sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL) == 0)
		mount = sys_fsmount(fs, attributes);
out:
	return sys_close(fs, mount);
}

/* Makes a file system and attaches it at dir/path. Returns an open descriptor of its root. */
static int mount_at(const char *type, const char *const *options, unsigned int attributes, int dir,
        const char *path)
{
	int mount = make_mount(type, options, attributes);

	if (mount >= 0 && sys_move_mount(mount, dir, path) < 0)
		return sys_close(mount, -1);
	return mount;
}

/* Binds a copy of from/name over dir/path with further attributes. A missing target is no error. */
static int bind_over(int from, const char *name, int dir, const char *path, uint64_t attributes)
{
	int mount, rc;

	if (faccessat(dir, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -1;
	mount = sys_open_tree(from, name);
	if (mount < 0)
		return -1;
	rc = sys_mount_setattr(mount, attributes);
	if (rc == 0)
		rc = sys_move_mount(mount, dir, path);
	return sys_close(mount, rc);
}

/*
 * Files of /proc that tell about the host or change it. The mask is a device node on a nodev mount,
 * which refuses to be opened whoever asks; directories get an empty read-only one.
 */
static int mask_proc(int proc, int dev, int staging)
{
	static const char *const FILES[] = {"allocinfo", "bootconfig", "buddyinfo", "cgroups",
	        "config.gz", "diskstats", "interrupts", "iomem", "ioports", "kallsyms", "kcore",
	        "key-users", "keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags",
	        "latency_stats", "mdstat", "modules", "mtrr", "pagetypeinfo", "partitions",
	        "sched_debug", "schedstat", "slabinfo", "softirqs", "sysrq-trigger", "timer_list",
	        "timer_stats", "vmallocinfo", "zoneinfo"};
	static const char *const FOLDERS[] = {"acpi", "asound", "bus", "driver", "dynamic_debug",
	        "fs", "irq", "pressure", "scsi", "tty/driver"};
	const uint64_t mask =
	        MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSUID;

	for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++)
		if (bind_over(dev, "null", proc, FILES[i], mask) < 0)
			return -1;
	for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS; i++)
		if (bind_over(staging, "empty", proc, FOLDERS[i], mask) < 0)
			return -1;
	return bind_over(proc, "sys", proc, "sys", mask);
}

/* Behind the seccomp filter, a second reason why nobody inside makes a user namespace. */
static int forbid_user_namespaces(int proc)
{
	int fd = openat(proc, "sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = write(fd, "0", 1);
	close(fd);
	return n == 1 ? 0 : -1;
}

/*
 * SysV IPC lives on without a process that could be killed for the memory that it takes, until init
 * would be the only one left: so segments go with their last user, and there are few queues and
 * semaphores. Before Linux 6.10 the namespace's own root may not set these.
 */
static int bound_ipc(int proc)
{
	static const char *const SETTINGS[][2] = {{"sys/kernel/shm_rmid_forced", "1"},
	        {"sys/kernel/msgmni", "128"}, {"sys/kernel/sem", "250 32000 100 128"}};

	for (size_t i = 0; i < sizeof SETTINGS / sizeof *SETTINGS; i++) {
		int fd = openat(proc, SETTINGS[i][0], O_WRONLY | O_CLOEXEC);
		size_t len = strlen(SETTINGS[i][1]);
		bool ok = fd >= 0 && write(fd, SETTINGS[i][1], len) == (ssize_t)len;

		if (sys_close(fd, !ok) && errno != EACCES && errno != ENOENT)
			return -1;
	}
	return 0;
}

/* Standard streams from the sandbox's own null device, whatever came with exec. */
static int open_null(int dev)
{
	int fd = openat(dev, "null", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -1;
	for (int i = 0; i < 3; i++)
		if (dup3(fd, i, O_CLOEXEC) < 0)
			return -1;
	close(fd);
	return 0;
}

int setup_prepare(int dev, int run, int oom, const char **ret_step)
{
	/* Without a size df passes over it; nobody inside can write there. */
	static const char *const STAGING_OPTIONS[] = {
	        "size", "0", "nr_inodes", "64", "mode", "0755", NULL};
	static const char *const PTS_OPTIONS[] = {"newinstance", NULL, "ptmxmode", "0666", "mode",
	        "0620", "gid", "5",
	        /* The kernel has some 3,000 for all. */
	        "max", "256", NULL};
	static const char *const NO_OPTIONS[] = {NULL};
	static const char *const FOLDERS[] = {"dev", "proc", "files", "empty", "root"};
	const unsigned int plain = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
	int files, pts;

	TRY(sys_mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private");
	/* Before the staging place hides things: a procfs is given only where one is fully visible.
	 */
	setup.proc = make_mount("proc", NO_OPTIONS, plain);
	TRY(setup.proc, "proc");
	setup.staging = make_mount("tmpfs", STAGING_OPTIONS, plain);
	TRY(setup.staging, "staging");
	TRY(sys_move_mount(setup.staging, AT_FDCWD, STAGING), "staging attach");
	for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS; i++)
		TRY(mkdirat(setup.staging, FOLDERS[i], 0755), "staging folders");
	TRY(sys_move_mount(setup.proc, setup.staging, "proc"), "proc attach");
	TRY(sys_mount_setattr(dev, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC),
	        "dev");
	TRY(sys_move_mount(dev, setup.staging, "dev"), "dev attach");
	setup.dev = dev;
	TRY(open_null(dev), "dev null");
	pts = mount_at("devpts", PTS_OPTIONS, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, dev, "pts");
	TRY(pts, "dev pts");
	close(pts);
	TRY(forbid_user_namespaces(setup.proc), "max_user_namespaces");
	TRY(bound_ipc(setup.proc), "ipc limits");
	TRY(mask_proc(setup.proc, dev, setup.staging), "proc masks");
	/* After the masks: some of these lie within what is bound there. */
	files = openat(setup.staging, "files", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	TRY(files, "files");
	errno = -procfiles_prepare(files, setup.proc, run, oom);
	TRY(errno ? -1 : 0, "proc files");
	close(files);
	return 0;
}

/* The directory dir/name, made if missing, and put in the place of anything else of that name. */
static int open_folder(int dir, const char *name, unsigned int mode)
{
	const uint64_t resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
	int fd = sys_openat2(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0, resolve);

	if (fd >= 0)
		return fd;
	if ((errno == ELOOP || errno == ENOTDIR) && unlinkat(dir, name, 0) < 0)
		return -1;
	if (mkdirat(dir, name, mode) < 0)
		return -1;
	return sys_openat2(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0, resolve);
}

/* A new file in the place of anything of that name. */
static int make_file(int dir, const char *name)
{
	if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
		return -1;
	return openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
}

static int write_text(int fd, const char *text)
{
	size_t len = strlen(text);

	return write(fd, text, len) == (ssize_t)len ? 0 : -1;
}

static int make_etc(int root)
{
	int etc = open_folder(root, "etc", 0755);
	int rc;

	if (etc < 0)
		return -1;
	setup.hosts = make_file(etc, "hosts");
	setup.hostname = make_file(etc, "hostname");
	setup.resolver = make_file(etc, "resolv.conf");
	rc = setup.hosts >= 0 && setup.hostname >= 0 && setup.resolver >= 0 ? 0 : -1;
	return sys_close(etc, rc);
}

/* Without network there is nobody on port 53 of lo: a name that is not in hosts fails at once. With
 * it the resolver is egress, under an address that stands for no name. */
static int write_etc(const char *hostname, bool network)
{
	const char *resolver = network ? "nameserver 198.18.0.1\n" : "nameserver 127.0.0.1\n";
	char hosts[256], name[80];

	snprintf(hosts, sizeof hosts,
	        "127.0.0.1\tlocalhost %s\n::1\tlocalhost ip6-localhost ip6-loopback\n", hostname);
	snprintf(name, sizeof name, "%s\n", hostname);
	if (write_text(setup.hosts, hosts) < 0 || write_text(setup.resolver, resolver) < 0)
		return -1;
	return write_text(setup.hostname, name);
}

/* Moves a mount onto root/name. */
static int attach(int mount, int root, const char *name)
{
	int target = open_folder(root, name, 0755);

	if (target < 0)
		return -1;
	return sys_close(target, sys_move_mount(mount, target, ""));
}

/* A small one for now: its size comes with the claim. Returns its root. */
static int attach_tmpfs(int dir, const char *name)
{
	static const char *const OPTIONS[] = {
	        "size", "1m", "nr_inodes", "16", "mode", "1777", NULL};
	int mount = make_mount("tmpfs", OPTIONS, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);

	if (mount >= 0 && attach(mount, dir, name) < 0)
		return sys_close(mount, -1);
	return mount;
}

static int resize_tmpfs(int mount, uint32_t mib)
{
	char size[16], inodes[16];
	int fs = sys_fspick(mount), rc = -1;

	if (fs < 0)
		return -1;
	snprintf(size, sizeof size, "%um", mib);
	/* Empty files cost memory too, up to 1.3 KiB each: one for each 8 KiB, and enough for small
	 * sizes. */
	snprintf(inodes, sizeof inodes, "%u", mib > 8192 ? 1u << 20 : mib * 128 + 2048);
	if (sys_fsconfig(fs, FSCONFIG_SET_STRING, "size", size) == 0 &&
	        sys_fsconfig(fs, FSCONFIG_SET_STRING, "nr_inodes", inodes) == 0)
		rc = sys_fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL);
	return sys_close(fs, rc);
}

/* /workspace/home, and /mnt/data as another name for it. Returns the place for home. */
static int make_home_place(int root)
{
	int workspace = open_folder(root, "workspace", 0755);
	int mnt, rc, home;

	if (workspace < 0)
		return -1;
	home = open_folder(workspace, "home", 0755);
	close(workspace);
	mnt = home < 0 ? -1 : open_folder(root, "mnt", 0755);
	if (mnt < 0)
		return -1;
	/* An image may have an empty folder there. */
	(void)unlinkat(mnt, "data", AT_REMOVEDIR);
	rc = symlinkat("/workspace/home", mnt, "data");
	close(mnt);
	return rc < 0 && errno != EEXIST ? -1 : home;
}

int setup_root(int root, const char **ret_step)
{
	errno = 0;
	TRY(sys_move_mount(root, setup.staging, "root"), "root");
	TRY(attach(setup.proc, root, "proc"), "proc move");
	TRY(attach(setup.dev, root, "dev"), "dev move");
	setup.home = make_home_place(root);
	TRY(setup.home, "home place");
	setup.shm = attach_tmpfs(setup.dev, "shm");
	TRY(setup.shm, "dev shm");
	setup.tmp = attach_tmpfs(root, "tmp");
	TRY(setup.tmp, "tmp");
	TRY(make_etc(root), "etc");
	TRY(fchdir(root), "root folder");
	TRY(sys_pivot_root(".", "."), "pivot_root");
	TRY(sys_umount(".", SYS_MNT_DETACH), "detach");
	TRY(chdir("/"), "root folder");
	close(root);
	close(setup.proc);
	close(setup.dev);
	close(setup.staging);
	return 0;
}

int setup_claim(const struct init_claim *claim, int home, int *ret_home, const char **ret_step)
{
	errno = 0;
	TRY(resize_tmpfs(setup.shm, claim->shm_mib), "dev shm");
	TRY(resize_tmpfs(setup.tmp, claim->tmp_mib), "tmp");
	TRY(sys_mount_setattr(home, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV), "home attributes");
	TRY(sys_move_mount(home, setup.home, ""), "home");
	TRY(write_etc(claim->hostname, claim->network), "etc");
	TRY((int)syscall(SYS_sethostname, claim->hostname, strlen(claim->hostname)), "hostname");
	*ret_home = openat(home, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	TRY(*ret_home, "home folder");
	close(home);
	close(setup.home);
	close(setup.hosts);
	close(setup.hostname);
	close(setup.resolver);
	close(setup.shm);
	close(setup.tmp);
	return 0;
}
