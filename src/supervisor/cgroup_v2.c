/*
 * cgroup version 2: the tree (with or without controllers), and the limits where it has them.
 *
 * Entering run/<leaf> by clone3 from init needs write access to cgroup.procs of the leaf (init made
 * it) and of the common ancestor, which is the sandbox's own group. With nsdelegate the ancestor
 * must also lie inside the cgroup namespace: then the child enters name first, makes its namespace
 * there and moves to init by itself (sandbox.c), and controllers are passed down once it has (a
 * group with processes of its own cannot pass any).
 *
 * The same rule holds for the group that we are started in (but not for the tree's root): we leave
 * it, with what we started, for <ours>.main below it, and pass controllers down once it is empty.
 * In a container everything in its group moves: all of it is the container's. Elsewhere the others
 * that keep it busy are not ours to move (a login's shell, whatever started us by hand): then
 * <ours> is made at the root.
 */
#include "supervisor/cgroup.h"

#include "base/log.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int tree_freeze(const struct cgroup_host *h, const char *group, bool on)
{
	char path[64];
	return sys_write_at(
	        h->root[CGH_V2], cgroup_path(path, group, "cgroup.freeze"), on ? "1" : "0");
}

static bool tree_frozen(const struct cgroup_host *h, const char *group)
{
	char path[64], text[64] = "";
	sys_read_at(h->root[CGH_V2], cgroup_path(path, group, "cgroup.events"), text, sizeof(text));
	return strstr(text, "frozen 1");
}

static int tree_kill(const struct cgroup_host *h, const char *group)
{
	char path[64];
	return sys_write_at(h->root[CGH_V2], cgroup_path(path, group, "cgroup.kill"), "1");
}

const struct cgroup_tree_ops cgroup_v2_tree = {
        .hierarchy = CGH_V2,
        .freeze = tree_freeze,
        .frozen = tree_frozen,
        .kill = tree_kill,
};

/* All on run: init is neither killed for what commands take nor waits behind them for a processor.
 */
static int limit_set(const struct cgroup_host *h, const char *name, const struct cgroup_limits *l)
{
	char path[64], text[64];
	int root = h->root[CGH_V2];
	int r = sys_write_u64(root, cgroup_path(path, name, "run/memory.max"), l->memory_bytes);
	if (r == 0)
		r = sys_write_at(root, cgroup_path(path, name, "run/memory.swap.max"), "0");
	if (r == -ENOENT) /* no swap accounting on this kernel */
		r = 0;
	if (r == 0)
		r = sys_write_u64(root, cgroup_path(path, name, "run/pids.max"), l->processes);
	str_format(text, sizeof(text), "%u 100000", l->cpu_milli * 100);
	if (r == 0)
		r = sys_write_at(root, cgroup_path(path, name, "run/cpu.max"), text);
	if (r == 0) /* absent before 5.14; what was not used for a while may be used at once */
		sys_write_u64(
		        root, cgroup_path(path, name, "run/cpu.max.burst"), l->cpu_milli * 100);
	return r;
}

static int limit_open_oom(const struct cgroup_host *h, const char *name)
{
	char path[64];
	int fd = openat(h->root[CGH_V2], cgroup_path(path, name, "run/memory.events"),
	        O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

const struct cgroup_limit_ops cgroup_v2_limit = {
        .set = limit_set,
        .open_oom = limit_open_oom,
};

/* ---- our own group ---- */

#define MOVE_ROUNDS 8 /* processes may be born meanwhile */

/* What brig starts is brig, and need not be a child of this process. */
static bool is_brig(int pid)
{
	char path[32];
	struct stat own, its;
	str_format(path, sizeof(path), "/proc/%d/exe", pid);
	return stat("/proc/self/exe", &own) == 0 && stat(path, &its) == 0 &&
	       own.st_dev == its.st_dev && own.st_ino == its.st_ino;
}

/* Moves the processes in one list to the group whose list the other is: all, or those of
 * this program. Returns how many there were to move, or a negative errno. */
static int move_processes(int dir, const char *from, const char *to, bool all)
{
	static char text[65536];
	int count = 0;
	ssize_t n = sys_read_at(dir, from, text, sizeof(text));
	if (n < 0)
		return (int)n;
	for (char *at = text; *at;) {
		char number[16];
		int pid = (int)strtol(at, &at, 10);
		at += strspn(at, "\n");
		if (pid <= 0) /* of another pid namespace */
			return count;
		if (!all && !is_brig(pid))
			continue;
		str_format(number, sizeof(number), "%d", pid);
		int r = sys_write_at(dir, to, number);
		if (r < 0 && r != -ESRCH)
			return r;
		count++;
	}
	return count;
}

static int leave_own(struct cgroup_host *h)
{
	char main[64];
	int parent = h->parent[CGH_V2], r = 1;
	str_format(main, sizeof(main), "%s.main", h->name);
	if (mkdirat(parent, main, 0755) < 0 && errno != EEXIST)
		return -errno;
	h->moved = true;
	str_format(main, sizeof(main), "%s.main/cgroup.procs", h->name);
	for (int i = 0; i < MOVE_ROUNDS && r > 0; i++)
		r = move_processes(parent, "cgroup.procs", main, h->own_is_top);
	return r < 0 ? r : sys_write_at(parent, "cgroup.subtree_control", CGROUP_V2_CONTROLLERS);
}

/* Only the tree's real root takes processes and passes controllers; it has no type. */
static bool top_is_root(const struct cgroup_host *h)
{
	return h->top >= 0 && faccessat(h->top, "cgroup.type", F_OK, 0) < 0 && errno == ENOENT;
}

static void use_top(struct cgroup_host *h)
{
	sys_close(&h->parent[CGH_V2]);
	h->parent[CGH_V2] = steal_fd(h->top);
}

static bool has_controllers(int group)
{
	static const char *const needed[] = {" memory ", " pids ", " cpu "};
	char text[512] = " "; /* "cpuset cpu io …\n", here with a space around each */
	if (group < 0 || sys_read_at(group, "cgroup.controllers", text + 1, sizeof(text) - 2) < 0)
		return false;
	size_t n = strcspn(text, "\n");
	text[n] = ' ';
	text[n + 1] = '\0';
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (!strstr(text, needed[i]))
			return false;
	return true;
}

bool cgroup_v2_has_controllers(struct cgroup_host *h)
{
	if (has_controllers(h->parent[CGH_V2]))
		return true;
	if (!top_is_root(h) || !has_controllers(h->top))
		return false;
	use_top(h);
	return true;
}

int cgroup_v2_pass(struct cgroup_host *h)
{
	int r = sys_write_at(h->parent[CGH_V2], "cgroup.subtree_control", CGROUP_V2_CONTROLLERS);
	if (r == -EBUSY) {
		r = leave_own(h);
		if (r < 0)
			cgroup_v2_move_back(h);
	}
	if (r >= 0 || !top_is_root(h))
		return r;
	log_text(LOG_INFO, "cgroup_root",
	        "the cgroup that brig was started in has other processes: %s is at the root",
	        h->name);
	use_top(h);
	return sys_write_at(h->parent[CGH_V2], "cgroup.subtree_control", CGROUP_V2_CONTROLLERS);
}

void cgroup_v2_move_back(struct cgroup_host *h)
{
	char main[64];
	int parent = h->parent[CGH_V2], r = 1;
	if (!h->moved)
		return;
	h->moved = false;
	sys_write_at(parent, "cgroup.subtree_control", "-memory -pids -cpu");
	str_format(main, sizeof(main), "%s.main/cgroup.procs", h->name);
	for (int i = 0; i < MOVE_ROUNDS && r > 0; i++)
		r = move_processes(parent, main, "cgroup.procs", true);
	str_format(main, sizeof(main), "%s.main", h->name);
	unlinkat(parent, main, AT_REMOVEDIR);
}
