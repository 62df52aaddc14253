/*
 * cgroup version 1: the freezer as the tree, and memory, pids and cpu as the limits.
 *
 * A v1-frozen process dies of SIGKILL only when it is thawed, and a fork bomb outruns who kills it
 * unfrozen: so killing is freeze, SIGKILL to all, thaw. Freezing may take a moment that we do not
 * wait for; whoever kills repeats it until the sandbox's init was reaped (live.c), after which
 * nothing is left.
 */
#include "supervisor/cgroup.h"

#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int tree_freeze(const struct cgroup_host *h, const char *group, bool on)
{
	char path[64];
	return sys_write_at(h->root[CGH_FREEZER], cgroup_path(path, group, "freezer.state"),
	        on ? "FROZEN" : "THAWED");
}

/* Waits for FROZEN, two milliseconds at most: a task deep in the kernel may take longer. */
static bool tree_is_frozen(const struct cgroup_host *h, const char *group)
{
	char path[64], state[32];
	cgroup_path(path, group, "freezer.state");
	for (int i = 0; i < 40; i++) {
		if (sys_read_at(h->root[CGH_FREEZER], path, state, sizeof(state)) < 0)
			return false;
		if (strcmp(state, "FROZEN\n") == 0)
			return true;
		usleep(50);
	}
	return false;
}

/* SIGKILL to every process that the group lists. They are frozen, so no number can be another's
 * now. */
static void kill_listed(int group)
{
	char text[65536];
	ssize_t n = sys_read_at(group, "cgroup.procs", text, sizeof(text));
	for (char *p = text; n > 0 && *p;) {
		char *end;
		long pid = strtol(p, &end, 10);
		if (end == p)
			return;
		if (pid > 1)
			kill((pid_t)pid, SIGKILL);
		p = *end ? end + 1 : end;
	}
}

/* Calls for group itself, its folders, and theirs: init makes leaves one level below run, no
 * deeper. */
static void tree_each(int group, void (*call)(int group), int depth)
{
	int fd = openat(group, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir)
		return;
	call(group);
	struct dirent *e;
	while (depth > 0 && (e = readdir(dir))) {
		if (e->d_type != DT_DIR || e->d_name[0] == '.')
			continue;
		_cleanup_close_ int child =
		        openat(group, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (child >= 0)
			tree_each(child, call, depth - 1);
	}
	closedir(dir);
}

static void thaw(int group)
{
	sys_write_at(group, "freezer.state", "THAWED");
}

static int tree_kill(const struct cgroup_host *h, const char *group)
{
	_cleanup_close_ int fd =
	        openat(h->root[CGH_FREEZER], group, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int r = tree_freeze(h, group, true);
	if (r == 0 && tree_is_frozen(h, group))
		tree_each(fd, kill_listed, 3);
	tree_each(fd, thaw, 3);
	return r;
}

const struct cgroup_tree_ops cgroup_v1_tree = {
        .hierarchy = CGH_FREEZER,
        .freeze = tree_freeze,
        .frozen = tree_is_frozen,
        .kill = tree_kill,
};

static int limit_set(const struct cgroup_host *h, const char *name, const struct cgroup_limits *l)
{
	char path[64];
	int memory = h->root[CGH_MEMORY], cpu = h->root[CGH_CPU];
	int r = sys_write_u64(
	        memory, cgroup_path(path, name, "memory.limit_in_bytes"), l->memory_bytes);
	if (r == 0) /* memory and swap together; absent without swap accounting */
		r = sys_write_u64(memory, cgroup_path(path, name, "memory.memsw.limit_in_bytes"),
		        l->memory_bytes);
	/* What waits in TCP and UDP sockets counts on nobody, until this counter is set; it is one
	 * beside the memory's own. */
	if (r == 0 || r == -ENOENT)
		r = sys_write_u64(memory, cgroup_path(path, name, "memory.kmem.tcp.limit_in_bytes"),
		        l->memory_bytes / 4);
	if (r == 0 || r == -ENOENT)
		r = sys_write_u64(
		        h->root[CGH_PIDS], cgroup_path(path, name, "pids.max"), l->processes);
	if (r == 0)
		r = sys_write_u64(cpu, cgroup_path(path, name, "cpu.cfs_period_us"), 100000);
	if (r == 0)
		r = sys_write_u64(
		        cpu, cgroup_path(path, name, "cpu.cfs_quota_us"), l->cpu_milli * 100ULL);
	if (r == 0) /* absent before 5.14; what was not used for a while may be used at once */
		sys_write_u64(
		        cpu, cgroup_path(path, name, "cpu.cfs_burst_us"), l->cpu_milli * 100ULL);
	return r;
}

static int limit_open_oom(const struct cgroup_host *h, const char *name)
{
	char path[64];
	int fd = openat(h->root[CGH_MEMORY], cgroup_path(path, name, "memory.oom_control"),
	        O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

const struct cgroup_limit_ops cgroup_v1_limit = {
        .set = limit_set,
        .open_oom = limit_open_oom,
};
