/*
 * One sandbox: from prepare (namespaces, cgroups, init at work) over root (image and a new layer;
 * init waiting; no guest byte seen) and claim (limits, home) to the moment when nothing of it is
 * left. Nothing here waits for init: the
 * caller's loop watches `control` and `pid` and calls the runtime's read and remove.
 */
#ifndef BRIG_SUPERVISOR_SANDBOX_H
#define BRIG_SUPERVISOR_SANDBOX_H

#include "supervisor/cgroup.h"
#include "supervisor/disk.h"
#include "supervisor/lease.h"
#include "supervisor/netns.h"

/* init's own id inside: below nobody, above what distributions give to accounts. */
#define SANDBOX_INIT_UID 65533

/* What all sandboxes of this supervisor share. */
struct runtime;
struct sandbox_host {
	const struct runtime *runtime;
	const struct sup_config *cfg;
	struct cgroup_host cgroup;
	struct disk *disk;
	struct lease_table *leases, *worker_leases;
	int init_image, worker_image; /* sealed memfds */
	int net_ns;                   /* the host's */
	bool guarded;                 /* the kernel was told to spare us when memory runs out */
};

struct sandbox {
	char name[CGROUP_NAME_MAX];
	pid_t pid; /* of init, in our pid namespace; 0 once reaped */
	int pidfd;
	int control; /* our end of init's control socket */
	int userns;  /* the sandbox's own, until it has its root */
	int netns;   /* its network namespace, until the claim */
	enum {
		SANDBOX_IS_NEW,
		SANDBOX_IS_PREPARED,
		SANDBOX_IS_READY
	} stage; /* what init has said */
	bool has_lease, has_cgroup, has_root;
	uint32_t lease;
	struct home *home; /* NULL: none */
	struct image scratch;
};

struct sandbox_spec {
	const uint8_t *key; /* SUP_KEY_LEN bytes */
	uint32_t image;     /* what has its root already has that of this image */
	uint32_t memory_mib, cpu_milli, processes;
	const char *hostname;
	bool network, any_address; /* SUP_CLAIM_NETWORK, SUP_CLAIM_ANY_ADDRESS */
};

/* Opens what struct sandbox_host shares beyond cgroup and disk. */
int sandbox_host_open(const struct sup_config *cfg, struct sandbox_host *h, struct error *err);
void sandbox_host_close(struct sandbox_host *h);

enum sandbox_event {
	SANDBOX_NOTHING,
	SANDBOX_PREPARED,
	SANDBOX_READY,
	SANDBOX_BROKEN,
	SANDBOX_GONE
};

/*
 * What isolates: the seam behind which stronger runtimes come. Whoever runs commands for a
 * container answers as init does (proto/init.h) on the channels that it is given, so there is no
 * exec here. One supervisor has one runtime; who calls does not know which.
 */
struct runtime {
	const char *name;
	/* On failure (-1, f) nothing is left but what kill and remove still take away. */
	int (*prepare)(struct sandbox_host *h, uint64_t number, struct sandbox *sb, struct fail *f);
	/* Gives it a root that is made already; scratch becomes the sandbox's, root stays the
	 * caller's. */
	int (*give_root)(struct sandbox *sb, const struct image *scratch, int root, struct fail *f);
	/* Does what is still missing of the above too. With spec->network it makes ret_net, the
	 * caller's also where what comes after fails; else ret_net may be NULL. */
	int (*claim)(struct sandbox_host *h, struct sandbox *sb, const struct sandbox_spec *spec,
	        bool *ret_created, int ret_net[NETNS_SOCKETS], struct fail *f);
	/* Takes one message of init's. BROKEN (with f: its own words, or that it broke the
	 * protocol) and GONE (end-of-file) are to be followed by kill. step is kept in `text`. */
	enum sandbox_event (*read)(struct sandbox *sb, struct fail *f, char text[64]);
	/* Gives init one more channel; 0 or a negative errno. The descriptor stays the caller's. */
	int (*channel)(struct sandbox *sb, int fd);
	void (*freeze)(struct sandbox_host *h, struct sandbox *sb, bool on);
	/* Kills init and all that it started; may be repeated. */
	void (*kill)(struct sandbox_host *h, struct sandbox *sb);
	/* After init was reaped: takes away what is left. False: something is still in use, call
	 * again. */
	bool (*remove)(struct sandbox_host *h, struct sandbox *sb);
};
/* Linux namespaces, a system call filter and control groups. sandbox.c */
extern const struct runtime runtime_namespace;

#endif
