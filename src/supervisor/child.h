/*
 * From the clone to the exec of one of our own static programs (init, a worker) in namespaces of
 * its own. What runs in the child is the few lines here; the parent waits for none of it.
 */
#ifndef BRIG_SUPERVISOR_CHILD_H
#define BRIG_SUPERVISOR_CHILD_H

#include "supervisor/cgroup.h"

#include <sys/types.h>

struct child {
	int attach[CGROUP_MAX_FDS];
	int n_attach, n_before; /* those before the cgroup namespace is made */
	int control;            /* becomes descriptor 3 */
	int extra;              /* becomes descriptor 4; -1: none */
	int image;              /* the program, sealed */
	uid_t owner;            /* of its user namespace: sys_make_for() */
	int namespaces; /* CLONE_NEW… that the child makes itself, once it is in its groups */
	bool report;    /* send one byte once all groups are entered */
	char title[16]; /* its argv[0] */
};

/* Clones into new user, pid and mount namespaces and `flags` (CLONE_NEW…), into `group` where ≥ 0.
 * The child enters its groups, then waits for one byte on its control socket, which is to be sent
 * when its ids are mapped; then it executes. *ret_pid and *ret_pidfd are set; 0 or -1 with f. */
int child_clone(const struct child *c, int group, uint64_t flags, pid_t *ret_pid, int *ret_pidfd,
        struct fail *f);

/* A program's bytes in a sealed memfd that can be executed and not read, or a negative errno. */
int child_seal(const char *name, const unsigned char *bytes, size_t len);

#endif
