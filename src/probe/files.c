#include "probe/files.h"

#include "probe/expect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

static char text[65536];

/* ---- mounts ---- */

struct mount_line {
	char place[128], options[256], type[32], source[128];
};

/* Where we mount, of which type, and what its options must hold. */
static const struct {
	const char *place, *type, *options;
} MOUNTS[] = {{"/", "overlay", "nosuid,nodev"}, {"/proc", "proc", "nosuid,nodev,noexec"},
        {"/dev", "tmpfs", "ro,nosuid,noexec"}, {"/dev/pts", "devpts", "nosuid,noexec"},
        {"/dev/shm", "tmpfs", "nosuid,nodev"}, {"/tmp", "tmpfs", "nosuid,nodev"},
        {"/workspace/home", "ext4", "nosuid,nodev"}};

/* Every word of a comma-separated list is among those of another. */
static bool has_all(const char *options, const char *wanted)
{
	char word[32];

	for (const char *at = wanted; *at; at += strcspn(at, ","), at += *at == ',') {
		size_t len = strcspn(at, ",");
		const char *found = options;

		snprintf(word, sizeof word, "%.*s", (int)len, at);
		while ((found = strstr(found, word)) && ((found > options && found[-1] != ',') ||
		                                                (found[len] && found[len] != ',')))
			found++;
		if (!found)
			return false;
	}
	return true;
}

static bool mount_is_ours(const struct mount_line *m)
{
	for (size_t i = 0; i < COUNT(MOUNTS); i++)
		if (strcmp(m->place, MOUNTS[i].place) == 0)
			return strcmp(m->type, MOUNTS[i].type) == 0 &&
			       has_all(m->options, MOUNTS[i].options);
	/* What is bound over files of /proc may not be written through. */
	return strncmp(m->place, "/proc/", 6) == 0 &&
	       (strcmp(m->type, "tmpfs") == 0 || strcmp(m->type, "proc") == 0) &&
	       has_all(m->options, "ro");
}

static bool read_mount(const char *line, struct mount_line *m)
{
	const char *dash = strstr(line, " - ");

	return dash && sscanf(line, "%*s %*s %*s %*s %127s %255s", m->place, m->options) == 2 &&
	       sscanf(dash, " - %31s %127s", m->type, m->source) == 2;
}

void files_mounts(const char *data)
{
	struct mount_line m;
	unsigned int n = 0;
	ssize_t len = expect_read("/proc/self/mountinfo", text, sizeof text);

	expect_that(len > 0 && (size_t)len < sizeof text - 1, "mountinfo has %zd bytes", len);
	expect_that(!strstr(text, data), "the data folder is named");
	for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
		*end = 0;
		if (!read_mount(line, &m)) {
			expect_that(false, "a line \"%.60s\"", line);
			continue;
		}
		n++;
		expect_that(mount_is_ours(&m), "%s is %s %s", m.place, m.type, m.options);
		/* A loop device's name is the one thing that looks like a path. */
		expect_that(m.source[0] != '/' || strncmp(m.source, "/dev/loop", 9) == 0,
		        "%s is from %s", m.place, m.source);
	}
	expect_seen("%u mounts, all ours", n);
}

/* ---- the host ---- */

void files_host_paths(const char *data)
{
	struct stat st;

	expect_that(lstat(data, &st) < 0, "%.60s exists", data);
	expect_read("/proc/cmdline", text, sizeof text);
	expect_that(strspn(text, " \n") == strlen(text), "command line \"%.40s\"", text);
	expect_read("/proc/sys/kernel/core_pattern", text, sizeof text);
	expect_that(strcmp(text, "core\n") == 0, "core_pattern \"%.40s\"", text);
	expect_seen("none");
}

void files_host_name(const char *name)
{
	struct utsname u;

	(void)syscall(SYS_sethostname, "changed", 7);
	expect_that(uname(&u) == 0 && strcmp(u.nodename, name) == 0, "it is %.40s", u.nodename);
	expect_read("/proc/sys/kernel/hostname", text, sizeof text);
	expect_that(strncmp(text, name, strlen(name)) == 0, "in /proc it is %.40s", text);
	expect_seen("%s", u.nodename);
}

/* ---- /proc ---- */

void files_proc(void)
{
	static const char *const FILES[] = {"config.gz", "interrupts", "iomem", "ioports",
	        "kallsyms", "kcore", "keys", "kmsg", "kpageflags", "modules", "partitions",
	        "sched_debug", "slabinfo", "softirqs", "sysrq-trigger", "timer_list", "vmallocinfo",
	        "zoneinfo", "diskstats", "cgroups"};
	static const char *const FOLDERS[] = {
	        "acpi", "asound", "bus", "driver", "fs", "irq", "pressure", "scsi"};
	char path[64];

	for (size_t i = 0; i < COUNT(FILES); i++) {
		snprintf(path, sizeof path, "/proc/%s", FILES[i]);
		int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		int errnum = errno;

		expect_that(fd < 0 && (errnum == EACCES || errnum == ENOENT || errnum == EPERM),
		        "%s opens", path);
		if (fd >= 0)
			close(fd);
	}
	for (size_t i = 0; i < COUNT(FOLDERS); i++) {
		snprintf(path, sizeof path, "/proc/%s", FOLDERS[i]);
		DIR *dir = opendir(path);
		struct dirent *e;

		while (dir && (e = readdir(dir)))
			expect_that(e->d_name[0] == '.', "%s has %s", path, e->d_name);
		if (dir)
			closedir(dir);
	}
	expect_seen("%zu files and %zu folders are absent or shut", COUNT(FILES), COUNT(FOLDERS));
}

void files_proc_sys(void)
{
	static const char *const FILES[] = {"kernel/core_pattern", "kernel/modprobe",
	        "kernel/hotplug", "kernel/poweroff_cmd", "kernel/sysrq", "kernel/hostname",
	        "kernel/ns_last_pid", "kernel/shmmax", "vm/drop_caches", "vm/overcommit_memory",
	        "vm/panic_on_oom", "fs/file-max", "fs/suid_dumpable", "user/max_user_namespaces",
	        "net/ipv4/ip_forward", "kernel/yama/ptrace_scope"};
	char path[64];

	for (size_t i = 0; i < COUNT(FILES); i++) {
		snprintf(path, sizeof path, "/proc/sys/%s", FILES[i]);
		int fd = open(path, O_WRONLY | O_CLOEXEC);

		expect_that(fd < 0, "%s opens for writing", path);
		if (fd >= 0)
			close(fd);
	}
	expect_read("/proc/sys/user/max_user_namespaces", text, sizeof text);
	expect_that(strcmp(text, "0\n") == 0, "max_user_namespaces is %.20s", text);
	expect_seen("none opens for writing");
}

void files_cgroups(void)
{
	struct statfs fs;

	expect_that(statfs("/sys/fs/cgroup", &fs) < 0 ||
	                    (fs.f_type != 0x63677270 && fs.f_type != 0x27e0eb),
	        "/sys/fs/cgroup is mounted");
	expect_read("/proc/self/mountinfo", text, sizeof text);
	expect_that(!strstr(text, " - cgroup"), "a cgroup file system is mounted");
	expect_read("/proc/self/cgroup", text, sizeof text);
	expect_that(!strstr(text, "brig-") && !strstr(text, "/../.."), "names: %.60s", text);
	expect_seen("none");
}

void files_sysfs(void)
{
	static const char *const FILES[] = {"/sys/kernel", "/sys/class", "/sys/firmware",
	        "/sys/devices", "/sys/module", "/sys/fs/bpf"};
	static const char *const TYPES[] = {" - sysfs ", " - debugfs ", " - securityfs ",
	        " - tracefs ", " - bpf ", " - pstore ", " - efivarfs ", " - configfs "};

	for (size_t i = 0; i < COUNT(FILES); i++)
		expect_that(access(FILES[i], F_OK) < 0, "%s is there", FILES[i]);
	expect_read("/proc/self/mountinfo", text, sizeof text);
	for (size_t i = 0; i < COUNT(TYPES); i++)
		expect_that(!strstr(text, TYPES[i]), "mounted:%s", TYPES[i]);
	expect_seen("none");
}

void files_devices(void)
{
	static const char *const KNOWN[] = {"null", "zero", "full", "random", "urandom", "tty",
	        "ptmx", "fd", "stdin", "stdout", "stderr", "pts", "shm", "mqueue"};
	static const char *const PLACES[] = {
	        "/tmp/node", "/workspace/home/node", "/node", "/dev/node", "/dev/shm/node"};
	DIR *dir = opendir("/dev");
	struct dirent *e;

	expect_that(dir, "/dev: %s", strerror(errno));
	while (dir && (e = readdir(dir))) {
		bool known = e->d_name[0] == '.';

		for (size_t i = 0; i < COUNT(KNOWN); i++)
			known = known || strcmp(e->d_name, KNOWN[i]) == 0;
		expect_that(known, "/dev/%s", e->d_name);
	}
	if (dir)
		closedir(dir);
	for (size_t i = 0; i < COUNT(PLACES); i++) {
		int other = strncmp(PLACES[i], "/dev/n", 6) == 0 ? EROFS : EPERM;

		expect_refused(
		        mknod(PLACES[i], S_IFBLK | 0600, makedev(8, 0)), EPERM, other, PLACES[i]);
		expect_refused(
		        mknod(PLACES[i], S_IFCHR | 0600, makedev(1, 1)), EPERM, other, PLACES[i]);
		(void)unlink(PLACES[i]);
	}
	expect_refused(open("/dev/new", O_WRONLY | O_CREAT | O_CLOEXEC, 0600), EROFS, EROFS,
	        "a file in /dev");
	expect_seen("six nodes; mknod: EPERM");
}

/* ---- sizes ---- */

void files_limit(const char *path, unsigned long mib)
{
	struct statfs fs;
	unsigned long have;
	char name[64];
	int fd;

	if (statfs(path, &fs) < 0) {
		expect_that(false, "%s: %s", path, strerror(errno));
		return;
	}
	have = (unsigned long)fs.f_blocks * (unsigned long)fs.f_bsize >> 20;
	expect_that(have > 0 && have <= mib, "%s has %lu MiB, not %lu", path, have, mib);
	expect_that(fs.f_files > 0 && fs.f_files <= (mib << 20) / 4096 + 4096, "%s has %lu inodes",
	        path, (unsigned long)fs.f_files);
	/* By name: an overlay gives none without before 6.3. */
	snprintf(name, sizeof name, "%s/.brig-selftest", path);
	fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	expect_that(fd >= 0 && unlink(name) == 0, "%s: %s", name, strerror(errno));
	if (fd < 0)
		return;
	/* One more than there is. What it took before it failed goes with the file. */
	expect_refused(
	        syscall(SYS_fallocate, fd, 0, 0L, (long)(mib + 1) << 20), ENOSPC, EFBIG, path);
	close(fd);
	expect_seen("%lu MiB, %lu inodes; more: ENOSPC", have, (unsigned long)fs.f_files);
}

/* ---- Landlock ---- */

/* The descriptor that waits in the socket that is our standard input; -1 where there is none. */
static int receive_directory(void)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
	        .msg_iovlen = 1,
	        .msg_control = control,
	        .msg_controllen = sizeof control};
	int fd = -1;

	if (recvmsg(STDIN_FILENO, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) == 1 &&
	        CMSG_FIRSTHDR(&msg))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof fd);
	return fd;
}

void files_landlock(void)
{
	long abi = syscall(444, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	int dir = receive_directory();

	/* Its first version cannot allow renames between directories, and is not used. */
	if (abi < 2) {
		expect_absent("this kernel has no Landlock, or its first version");
		return;
	}
	expect_refused(openat(dir, "file", O_RDONLY | O_CLOEXEC), EACCES, EACCES, "reading");
	expect_refused(
	        openat(dir, "new", O_WRONLY | O_CREAT | O_CLOEXEC, 0600), EACCES, EACCES, "making");
	expect_seen("version %ld; EACCES", abi);
}
