/*
 * Control groups: one set for each sandbox, in whatever this host offers.
 *
 *   INIT_CG_V2      one tree with controllers: <ours>/<name>/init and <name>/run; limits on run
 *   INIT_CG_HYBRID  the same tree without controllers for kill, freeze and leaves; limits in the v1
 *                   memory, pids and cpu hierarchies, in a group <ours>/<name> that init sits in
 *   INIT_CG_V1      as hybrid, with the v1 freezer in the tree's place
 *
 * <ours> is brig-<12 hex of the data folder's hash> below the group that this process is in, so
 * that the next supervisor of the same folder finds what this one left. A tree (v2, or the freezer)
 * and a limiter (v2, or v1) are the two sides of the seam; nothing outside cgroup*.c knows which
 * run.
 */
#ifndef BRIG_SUPERVISOR_CGROUP_H
#define BRIG_SUPERVISOR_CGROUP_H

#include "proto/init.h"
#include "proto/supervisor.h"
#include "supervisor/supervisor.h"
#include "supervisor/sys.h"

#define CGROUP_NAME_MAX 24
#define CGROUP_MAX_FDS  4

enum cgroup_hierarchy { CGH_V2, CGH_FREEZER, CGH_MEMORY, CGH_PIDS, CGH_CPU, CGH_N };

struct cgroup_limits {
	uint64_t memory_bytes;
	uint32_t processes;
	uint32_t cpu_milli;
};

struct cgroup_host {
	enum init_cgroups mode;
	bool ns_delegate; /* cgroup2 is mounted nsdelegate: namespaces bound what may be entered */
	bool moved;      /* we left our own group for <ours>.main, to be able to pass controllers */
	bool own_is_top; /* our group is all that this cgroup namespace has */
	char name[32];   /* brig-… */
	int parent[CGH_N]; /* folder that <ours> lies in; -1: no such hierarchy */
	int root[CGH_N];   /* <ours>; -1: not used in this mode */
	int top;           /* where cgroup2 is mounted; -1: it is not */
	const struct cgroup_tree_ops *tree;
	const struct cgroup_limit_ops *limit;
};

/* Names are relative to <ours>; functions return 0 or a negative errno. */
struct cgroup_tree_ops {
	enum cgroup_hierarchy hierarchy;
	int (*freeze)(const struct cgroup_host *h, const char *group, bool on);
	/* Whether the kernel says that all in the group and below stand still by now. */
	bool (*frozen)(const struct cgroup_host *h, const char *group);
	/* SIGKILL to all in the group and below, also when frozen. Does not wait. */
	int (*kill)(const struct cgroup_host *h, const char *group);
};
struct cgroup_limit_ops {
	int (*set)(
	        const struct cgroup_host *h, const char *name, const struct cgroup_limits *limits);
	int (*open_oom)(const struct cgroup_host *h, const char *name); /* see INIT_SETUP */
};
#define CGROUP_V2_CONTROLLERS "+memory +pids +cpu"

/* Puts "group/file" into path, and returns it. */
const char *cgroup_path(char path[64], const char *group, const char *file);

/* True where the v2 tree has the controllers. Where our own group has not got all of them and the
 * tree's root has, parent[CGH_V2] becomes that. */
bool cgroup_v2_has_controllers(struct cgroup_host *h);
/* Makes parent[CGH_V2] pass controllers down; it too may become the root. */
int cgroup_v2_pass(struct cgroup_host *h);
/* Takes back what cgroup_v2_pass() did to our own group. */
void cgroup_v2_move_back(struct cgroup_host *h);

extern const struct cgroup_tree_ops cgroup_v2_tree, cgroup_v1_tree;
extern const struct cgroup_limit_ops cgroup_v2_limit, cgroup_v1_limit;

/* Finds the hierarchies. With no hierarchy fit for sandboxes an error that names what is missing.
 */
int cgroup_find(const char *data, enum sup_cgroup_choice choice, struct cgroup_host *ret,
        struct error *err);
/* Makes <ours> in each, after ending and removing what an earlier supervisor left there. */
int cgroup_start(struct cgroup_host *h, struct error *err);
/* Ends what is left, removes <ours>, closes. Safe on a host that was only found. */
void cgroup_stop(struct cgroup_host *h);

/* Makes name, name/init and name/run; run and what entering it needs belong to init_uid. */
int cgroup_make(const struct cgroup_host *h, const char *name, uid_t init_uid, struct fail *f);
int cgroup_limit(const struct cgroup_host *h, const char *name, const struct cgroup_limits *limits,
        struct fail *f);
/* Where the child is cloned into (CLONE_INTO_CGROUP), or -1 where this cannot be. */
int cgroup_open_clone(const struct cgroup_host *h, const char *name);
/* Descriptors that the child writes "0" to, so entering the groups by itself. Returns how many, or
 * -1. With ns_delegate the last one is to be entered after the child's cgroup namespace was made.
 */
int cgroup_open_attach(
        const struct cgroup_host *h, const char *name, int fds[CGROUP_MAX_FDS], struct fail *f);
int cgroup_open_run(
        const struct cgroup_host *h, const char *name); /* the folder leaves are made in */
/* True where the child must have entered its groups before anything else is done with them. */
bool cgroup_needs_entry(const struct cgroup_host *h);
/* Passes controllers down to init and run, where that is needed: by cgroup_make itself, with
 * ns_delegate once the child has left name for name/init. */
int cgroup_settle(const struct cgroup_host *h, const char *name);
int cgroup_freeze(
        const struct cgroup_host *h, const char *name, bool on); /* run only, never init */
bool cgroup_is_frozen(const struct cgroup_host *h, const char *name);
int cgroup_kill(const struct cgroup_host *h, const char *name);
/* Removes the groups: 0, or -EBUSY while a process is still leaving. */
int cgroup_remove(const struct cgroup_host *h, const char *name);

#endif
