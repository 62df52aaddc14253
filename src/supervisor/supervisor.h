/*
 * The supervisor: the one process with root's powers. It makes and ends sandboxes, owns the table
 * of live containers, and speaks proto/supervisor.h with gateways and proto/init.h with inits. It
 * parses no HTTP, JSON, YAML, TLS or archive. One thread, one epoll loop.
 */
#ifndef BRIG_SUPERVISOR_SUPERVISOR_H
#define BRIG_SUPERVISOR_SUPERVISOR_H

#include "base/error.h"
#include "proto/probe.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SUP_MAX_IMAGES   16
#define SUP_MAX_GATEWAYS 64
#define SUP_MAX_POOL     64
#define SUP_MAX_WORKERS  64

enum sup_cgroup_choice { SUP_CG_AUTO, SUP_CG_FORCE_V1 };

/* Fixed-layout values: what the child that parsed brig.yaml hands over, checked here once more. */
struct sup_config {
	char data[4096];                  /* data folder, absolute */
	char images[SUP_MAX_IMAGES][256]; /* file names in <data>/images; "" ends the table */
	uint32_t id_base;                 /* ids.base */
	uint32_t n_leases;   /* how many ranges of 65,536 ids may be given out to sandboxes */
	uint32_t n_workers;  /* most file workers at once, each with a range behind those; 0: none
	                      */
	uint32_t gateways;   /* 1 … SUP_MAX_GATEWAYS */
	uint32_t live;       /* most live containers; 0: from memory (DESIGN section 8) */
	uint32_t pool;       /* sandboxes made ahead of use; a quarter of live at most; 0: none */
	uint32_t memory_mib; /* default of a container */
	uint32_t max_memory_mib;
	uint32_t home_mib;
	uint32_t scratch_mib;
	uint64_t sleep_after_ms; /* 0: never */
	uint32_t worker_idle_ms; /* a file worker ends so long after its last request; 0: 30,000 */
	uint64_t grace_ms;
	bool sandbox; /* false: `sandbox: off`, claims fail with SUP_E_SYSTEM "sandbox: off" */
	bool egress;  /* spawn is called for an egress process too; false: no container has network
	               */
	/* What egress resolves names by; NULL: those of /etc. Read again when they change. */
	const char *resolv_conf, *hosts;
	bool durable_power;
	bool untested; /* no self-test at the start: for tests of the supervisor, never set by serve
	                */
	enum sup_cgroup_choice cgroups;
};

/* Ids (DESIGN section 9). */
static inline uid_t sup_uid_gateway(const struct sup_config *c)
{
	return c->id_base;
}
static inline uid_t sup_uid_egress(const struct sup_config *c)
{
	return c->id_base + 1;
}
static inline uid_t sup_uid_storage(const struct sup_config *c)
{
	return c->id_base + 65536;
}
static inline uid_t sup_uid_lease(const struct sup_config *c, uint32_t n)
{
	return c->id_base + 131072 + n * 65536;
}

#define SUP_SPAWN_EGRESS UINT32_MAX /* in the place of a gateway's number: the egress process */

/* Starts gateway number `index`, which is to inherit `sock`, its end of the socketpair. Called
 * again when a gateway died. Returns its pid, or a negative enum err. The child must ask for its
 * parent's death (PR_SET_PDEATHSIG, SIGKILL) and then exec, or close every descriptor but sock and
 * its own: the supervisor's are all close-on-exec. It finds handlers for SIGTERM, SIGINT and
 * SIGCHLD set, none blocked. */
typedef pid_t (*sup_spawn_gateway_fn)(void *ctx, uint32_t index, int sock, struct error *err);

/*
 * Checks the host, runs the self-test (a probe that does not hold is an error that names it),
 * empties what an earlier supervisor of this data folder left (cgroups, loop
 * devices, scratch images), starts the gateways and serves until SIGTERM or SIGINT: then tells
 * every gateway to drain (SIGTERM), waits grace, ends all sandboxes and children, removes every
 * cgroup, mount and loop device it made. A second signal shortens the grace to nothing. Returns 0
 * after a clean stop.
 */
int supervisor_run(
        const struct sup_config *cfg, sup_spawn_gateway_fn spawn, void *ctx, struct error *err);

/* One row of the table that `brig doctor` prints. */
struct sup_check {
	const char *name; /* "user namespaces" */
	bool required;
	bool present;
	char detail[160]; /* what was tried and seen */
};
/* Tries each host feature that sandboxes need, in a scratch child; leaves nothing behind. Returns
 * the number of rows written (at most max). */
int supervisor_check_host(const struct sup_config *cfg, struct sup_check *rows, int max);

/* A fault of the running kernel, by its number only: a distribution may have fixed it under an
 * older one. */
#define SUP_MAX_FAULTS  32
#define SUP_RELEASE_MAX 65
struct sup_fault {
	const char *cve, *what; /* static text */
	bool shut;              /* what a container may call does not lead there */
	char fixed[24]; /* the release that has the fix, of the same series if there is one */
};
enum sup_kernel { SUP_KERNEL_NO_FAULT, SUP_KERNEL_FAULTY, SUP_KERNEL_UNKNOWN };
enum sup_kernel supervisor_check_kernel(
        char release[SUP_RELEASE_MAX], struct sup_fault *rows, int max, int *ret_n);

/* One row of the self-test: what `brig selftest` prints. */
#define SUP_N_PROBES PROBE_COUNT
struct sup_probe {
	const char *name;  /* "memory-limit" */
	const char *tried; /* static text */
	bool required;
	uint32_t state; /* enum probe_state */
	char seen[PROBE_SEEN_MAX];
};
static inline bool sup_probe_holds(const struct sup_probe *p)
{
	return p->state == PROBE_OK || (p->state == PROBE_ABSENT && !p->required);
}
/*
 * Makes every probe in scratch sandboxes over the first image of cfg, in a supervisor that is
 * apart: a child with a data folder (<data>/selftest, removed again), control groups and ids of its
 * own, so that a server may run on cfg->data meanwhile. Sizes of home and scratch are its own, too.
 * Needs root. 0 with all rows filled, or an error where it could not be done at all.
 */
int supervisor_selftest(
        const struct sup_config *cfg, struct sup_probe rows[SUP_N_PROBES], struct error *err);

#endif
