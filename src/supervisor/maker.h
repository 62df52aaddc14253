/*
 * The maker: a child of the supervisor that makes disks ahead of use (new homes, roots of pooled
 * sandboxes), so that the loop never waits for a disk on the pool's behalf. One order at a time;
 * what is made comes back as descriptors.
 */
#ifndef BRIG_SUPERVISOR_MAKER_H
#define BRIG_SUPERVISOR_MAKER_H

#include "supervisor/disk.h"

struct maker {
	pid_t pid; /* 0: not running */
	int sock;  /* -1: none */
	bool busy; /* an order is with it */
};
#define MAKER_NONE                                                                                 \
	{                                                                                          \
		.sock = -1                                                                         \
	}

enum maker_what { MAKER_HOME, MAKER_ROOT };

/* What came back: a home, or a root with its scratch image; or why there is none. */
struct maker_made {
	enum maker_what what;
	uint64_t id; /* as ordered */
	bool failed;
	struct fail f;
	char step[64]; /* where f.step points to */
	struct disk_home home;
	struct image scratch;
	int root; /* detached overlay */
};

/* Forks it. 0, or -1 with f. */
int maker_start(struct maker *m, struct disk *d, struct fail *f);
/* Orders. 0 or a negative errno. */
int maker_order_home(struct maker *m);
int maker_order_root(struct maker *m, uint64_t id, uint32_t image, int userns, uid_t owner);
/* Takes what it has made, which is then the caller's. 1; 0 when there is nothing yet; -1 when it is
 * gone or talks nonsense (maker_stop is due). */
int maker_read(struct maker *m, struct maker_made *ret);
/* Kills it; the loop reaps it. May be repeated. */
void maker_stop(struct maker *m);

#endif
