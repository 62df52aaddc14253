/*
 * Messages between a gateway and the supervisor.
 *
 * Transport: one SOCK_SEQPACKET socketpair for each gateway, inherited. One datagram is one
 * message, is exactly one of the structs below, and begins with struct sup_header whose size is
 * sizeof that struct. Native byte order: both ends are one binary. The receiver refuses (and the
 * supervisor closes the gateway's socket on) a wrong size, an unknown op, a field outside its
 * bounds, or a descriptor that the op does not carry.
 *
 * No message names a path, a uid, a mount option or a command line. A container is named by a
 * 32-byte key that the gateway derives from account, workspace and id; an image by its number in
 * the image table that the supervisor was started with; everything else is a bounded number (DESIGN
 * section 3).
 *
 * The gateway chooses seq; the answer carries it. Requests may overlap; answers come in any order.
 */
#ifndef BRIG_PROTO_SUPERVISOR_H
#define BRIG_PROTO_SUPERVISOR_H

#include <stdint.h>

#define SUP_MAX_MESSAGE 512
#define SUP_KEY_LEN     32

enum sup_op {
	/* gateway → supervisor */
	SUP_CLAIM = 1, /* struct sup_claim, with SUP_CLAIM_NETWORK one descriptor: the policy
	                  (proto/egress.h) → SUP_CLAIMED + channel, or SUP_FAILED */
	SUP_CANCEL,    /* struct sup_simple: forget the claim with that seq if it still waits; no
	                  answer */
	SUP_RELEASE,   /* struct sup_hold: the holder is done; no answer */
	SUP_SLEEP,     /* struct sup_key: put to sleep now if no holder → SUP_DONE or SUP_FAILED
	                  (SUP_E_BUSY) */
	SUP_DELETE,    /* struct sup_key: end it (holders lose their commands), remove its home →
	                  SUP_DONE */
	SUP_KEEP,      /* struct sup_keep: keep thawed and awake for a time → SUP_DONE */
	SUP_STATUS,    /* struct sup_key → SUP_STATUS_IS */
	SUP_FILES,     /* struct sup_files → SUP_FILES_ARE + socket to the container's worker
	                  (proto/worker.h), or SUP_FAILED; wakes nothing */
	SUP_NODE,      /* struct sup_simple → SUP_NODE_IS */

	/* supervisor → gateway */
	SUP_CLAIMED =
	        64,    /* struct sup_claimed; one descriptor: the channel to init (proto/init.h) */
	SUP_FAILED,    /* struct sup_failed */
	SUP_DONE,      /* struct sup_simple */
	SUP_STATUS_IS, /* struct sup_status */
	SUP_FILES_ARE, /* struct sup_simple; one descriptor */
	SUP_ENDED, /* struct sup_ended, unasked, to every gateway: a live container is live no more
	            */
	SUP_RECORDS, /* struct sup_simple, unasked; one descriptor: the socket on which egress sends
	                EGRESS_RECORDs from now on, in the place of an earlier one */
	SUP_NODE_IS, /* struct sup_node */
};

struct sup_header {
	uint16_t op;
	uint16_t size;
	uint32_t seq;
};

/*
 * Hold a container for a turn or a direct exec; make it live if it is not. Every claim gets a
 * channel of its own: closing it kills the commands that were started on it, and only those. A
 * claim on a live container whose policy, image or memory differs fails with SUP_E_POLICY and
 * changes nothing. Limits apply when the container becomes live; a live one keeps its own.
 */
struct sup_claim {
	struct sup_header h;
	uint8_t key[SUP_KEY_LEN];
	uint8_t workspace[16]; /* hash of the workspace, for the limit on live containers of one */
	uint8_t policy[16];    /* hash of the network policy; all zero: disabled */
	uint32_t image;        /* index in the image table */
	uint32_t memory_mib;   /* 16 … sup_config.max_memory_mib */
	uint32_t cpu_milli;    /* 1000 = one processor; 50 … 1000 × processors */
	uint32_t processes;    /* 16 … 32768 */
	uint32_t
	        workspace_live; /* most live containers of this workspace; 0: no limit of its own */
	uint32_t wait_ms;       /* how long to wait for room; 0 … 60000 */
	char hostname[64];      /* [a-z0-9-], NUL-padded, not empty */
	uint32_t flags;         /* SUP_CLAIM_… */
};
#define SUP_CLAIM_NETWORK 2u /* it reaches the network through egress; policy is not all zero */
#define SUP_CLAIM_ANY_ADDRESS                                                                      \
	4u /* with NETWORK: also addresses that no name stands for (policy line "all") */
#define SUP_CLAIM_MUST_EXIST                                                                       \
	1u /* fail with SUP_E_UNKNOWN where no home exists, rather than make one */

struct sup_simple {
	struct sup_header h;
};

struct sup_hold {
	struct sup_header h;
	uint64_t hold; /* from struct sup_claimed */
};

struct sup_key {
	struct sup_header h;
	uint8_t key[SUP_KEY_LEN];
};

/* SUP_DELETE ends the worker of a container first. */
struct sup_files {
	struct sup_header h;
	uint8_t key[SUP_KEY_LEN];
	uint32_t flags; /* SUP_FILES_… */
	uint32_t pad;
};
#define SUP_FILES_CREATE                                                                           \
	1u /* make an empty home where there is none, rather than SUP_E_UNKNOWN                    \
	    */
#define SUP_FILES_TREE                                                                             \
	2u /* a worker of its own for one WORKER_SAVE or WORKER_RESTORE, not a shared one */

struct sup_keep {
	struct sup_header h;
	uint8_t key[SUP_KEY_LEN];
	uint64_t keep_ms; /* from now; 0 ends keeping; at most 31 days */
};

struct sup_claimed {
	struct sup_header h;
	uint64_t hold;       /* names this claim; unique for the supervisor's life */
	uint64_t generation; /* of the live sandbox: another number means processes were lost in
	                        between */
	uint32_t how;        /* enum sup_how */
	uint32_t pad;
};
enum sup_how {
	SUP_WAS_LIVE = 0, /* thawed or running: nothing was started */
	SUP_WOKEN,        /* it was asleep: a sandbox was started over its files */
	SUP_CREATED,      /* there was no such container */
};

struct sup_failed {
	struct sup_header h;
	uint32_t why;    /* enum sup_error */
	uint32_t errnum; /* errno of the step that failed, or 0 */
	char step[64]; /* which step ("mount home", "clone"), static text of ours, NUL-terminated */
};
enum sup_error {
	SUP_E_INVALID = 1, /* a field out of bounds */
	SUP_E_POLICY,      /* live with another policy, image or memory (HTTP 409) */
	SUP_E_CAPACITY,    /* every live container is busy (429) */
	SUP_E_WORKSPACE,   /* the workspace has its number of live containers (429) */
	SUP_E_DISK,        /* under the reserve of free disk (503) */
	SUP_E_UNKNOWN,     /* MUST_EXIST and it does not (404) */
	SUP_E_BUSY,        /* has holders (409) */
	SUP_E_HOME,        /* the home image could not be mounted; it is kept as it is (500) */
	SUP_E_SYSTEM,      /* a step failed (500) */
	SUP_E_STOPPING,    /* the server is going down (503) */
};

struct sup_status {
	struct sup_header h;
	uint32_t state; /* enum sup_state */
	uint32_t holders;
	uint64_t generation;
	uint64_t idle_ms;         /* since the last holder left; 0 while held */
	uint64_t home_used_bytes; /* blocks that the image takes on disk */
	uint8_t policy[16];       /* of a live one's claim */
};
enum sup_state { SUP_ST_UNKNOWN = 0, SUP_ST_ASLEEP, SUP_ST_RUNNING, SUP_ST_FROZEN };

struct sup_ended {
	struct sup_header h;
	uint8_t key[SUP_KEY_LEN];
	uint64_t generation;
	uint32_t why; /* enum sup_end */
	uint32_t pad;
};
enum sup_end {
	SUP_END_IDLE = 1,
	SUP_END_EVICTED,
	SUP_END_DELETED,
	SUP_END_INIT_DIED,
	SUP_END_ASKED
};

/* All sandboxes of this node, for who watches it. */
enum sup_kind {
	SUP_KIND_POOLED,
	SUP_KIND_STARTING,
	SUP_KIND_RUNNING,
	SUP_KIND_FROZEN,
	SUP_KIND_ENDING
};
struct sup_node {
	struct sup_header h;
	uint32_t sandboxes[SUP_KIND_ENDING + 1]; /* now, by enum sup_kind */
	uint32_t live_max;                       /* most at once */
	uint32_t pool_size;                      /* how many are to be kept ready */
	uint32_t waiting;                        /* claims and orders that wait for room */
	uint64_t ended[SUP_END_ASKED + 1]; /* since the server's start, by enum sup_end; also of
	                                      the pool */
};

#endif
