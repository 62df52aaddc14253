/*
 * Leaves: one cgroup for each command, below the `run` directory that the supervisor hands over. A
 * leaf is what makes "everything the command started" one thing that can be killed, however its
 * processes daemonise. Leaves are reused when nothing runs in them. One thread; at most LEAF_MAX
 * exist.
 *
 * v2 and hybrid: the child is born in the leaf (CLONE_INTO_CGROUP) and the kernel kills
 * (cgroup.kill). v1: leaves are freezer groups; the child attaches itself; killing is freeze,
 * SIGKILL to all, thaw, and again until nothing is left.
 */
#ifndef BRIG_INIT_LEAF_H
#define BRIG_INIT_LEAF_H

#include "proto/init.h"

#include <stdbool.h>
#include <sys/types.h>

#define LEAF_MAX 1024

struct leaf;

/* run stays open and the module's for good. Makes the first leaf, as user init_uid, who init will
 * be when it uses it. Returns 0 or a negative errno. */
int leaf_open(int run, enum init_cgroups kind, uint32_t init_uid);

/* The one descriptor that the module has open after leaf_open(), beside run. */
int leaf_kept(void);

/* An empty leaf for one command. Returns 0 or a negative errno (-EAGAIN: LEAF_MAX are in use). */
int leaf_take(struct leaf **ret);

/* Its command is over. What still runs in it goes on; the leaf is reused or removed once it is
 * empty. */
void leaf_give(struct leaf *leaf);

/* Forks a child into the leaf. Returns as fork does, or a negative errno. On v1 the child must call
 * leaf_enter() before anything else. */
pid_t leaf_fork(const struct leaf *leaf);

/* In the child. Returns 0 or a negative errno. */
int leaf_enter(const struct leaf *leaf);

/* One round of killing all that runs in the leaf; call again until leaf_is_empty(). */
void leaf_kill(struct leaf *leaf);

bool leaf_is_empty(const struct leaf *leaf);

#endif
