/*
 * cgroup version 2: the tree (with or without controllers), and the limits where it has them.
 *
 * Entering run/<leaf> by clone3 from init needs write access to cgroup.procs of the leaf (init made
 * it) and of the common ancestor, which is the sandbox's own group. With nsdelegate the ancestor
 * must also lie inside the cgroup namespace: then the child enters name first, makes its namespace
 * there and moves to init by itself (sandbox.c), and controllers are passed down once it has (a
 * group with processes of its own cannot pass any).
 */
#include "supervisor/cgroup.h"

#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *path_join(char path[64], const char *group, const char *file)
{
	str_format(path, 64, "%s/%s", group, file);
	return path;
}

static int tree_make(const struct cgroup_host *h, const char *name, uid_t init_uid)
{
	char path[64];
	int root = h->root[CGH_V2];
	if (mkdirat(root, name, 0755) < 0 ||
	        mkdirat(root, path_join(path, name, "init"), 0755) < 0 ||
	        mkdirat(root, path_join(path, name, "run"), 0755) < 0)
		return -errno;
	if (fchownat(root, path, init_uid, init_uid, 0) < 0 ||
	        fchownat(root, path_join(path, name, "cgroup.procs"), init_uid, init_uid, 0) < 0 ||
	        fchownat(root, path_join(path, name, "run/cgroup.procs"), init_uid, init_uid, 0) <
	                0)
		return -errno;
	return h->ns_delegate ? 0 : cgroup_v2_tree.settle(h, name);
}

static int tree_settle(const struct cgroup_host *h, const char *name)
{
	char path[64];
	if (h->mode != INIT_CG_V2)
		return 0;
	return sys_write_at(
	        h->root[CGH_V2], path_join(path, name, "cgroup.subtree_control"), "+memory +pids");
}

static int tree_freeze(const struct cgroup_host *h, const char *group, bool on)
{
	char path[64];
	return sys_write_at(
	        h->root[CGH_V2], path_join(path, group, "cgroup.freeze"), on ? "1" : "0");
}

static int tree_kill(const struct cgroup_host *h, const char *group)
{
	char path[64];
	return sys_write_at(h->root[CGH_V2], path_join(path, group, "cgroup.kill"), "1");
}

const struct cgroup_tree_ops cgroup_v2_tree = {
        .hierarchy = CGH_V2,
        .make = tree_make,
        .settle = tree_settle,
        .freeze = tree_freeze,
        .kill = tree_kill,
};

static int limit_make(const struct cgroup_host *h, const char *name)
{
	return 0; /* the tree's groups carry the limits */
}

static int limit_set(const struct cgroup_host *h, const char *name, const struct cgroup_limits *l)
{
	char path[64], text[64];
	int root = h->root[CGH_V2];
	int r = sys_write_u64(root, path_join(path, name, "run/memory.max"), l->memory_bytes);
	if (r == 0)
		r = sys_write_at(root, path_join(path, name, "run/memory.swap.max"), "0");
	if (r == -ENOENT) /* no swap accounting on this kernel */
		r = 0;
	if (r == 0)
		r = sys_write_u64(root, path_join(path, name, "run/pids.max"), l->processes);
	str_format(text, sizeof(text), "%u 100000", l->cpu_milli * 100);
	if (r == 0)
		r = sys_write_at(root, path_join(path, name, "cpu.max"), text);
	if (r == 0) /* absent before 5.14; what was not used for a while may be used at once */
		sys_write_u64(root, path_join(path, name, "cpu.max.burst"), l->cpu_milli * 100);
	return r;
}

static int limit_open_oom(const struct cgroup_host *h, const char *name)
{
	char path[64];
	int fd = openat(
	        h->root[CGH_V2], path_join(path, name, "run/memory.events"), O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

const struct cgroup_limit_ops cgroup_v2_limit = {
        .make = limit_make,
        .set = limit_set,
        .open_oom = limit_open_oom,
};
