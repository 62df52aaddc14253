/*
 * Messages of init, pid 1 of a sandbox: with the supervisor (control, descriptor 3) and with the
 * gateway (one channel for each claim, brought by INIT_CHANNEL).
 *
 * SOCK_SEQPACKET; one datagram is one struct, beginning with struct init_header. INIT_RUN may carry
 * its payload behind the struct in the same datagram. Descriptors travel with SCM_RIGHTS in the order
 * stated. A malformed message on the control socket ends init; on a channel it ends that channel (and
 * so kills its commands). init never trusts a number: every one has its bound here.
 *
 * Life: exec'ed → INIT_SETUP → builds /proc and /dev → INIT_ROOT → attaches root (image below a new,
 * empty layer) and leaves the host's tree, answers INIT_PREPARED → INIT_CLAIM → attaches home,
 * confines itself, answers INIT_READY → INIT_CHANNEL any number of times. Up to INIT_CLAIM no guest
 * byte was seen and nothing is known of a request: that is what a pool can hold.
 */
#ifndef BRIG_PROTO_INIT_H
#define BRIG_PROTO_INIT_H

#include <stdint.h>

#define INIT_CONTROL_FD    3
#define INIT_MAX_INLINE    32768   /* payload bytes that travel in the datagram itself */
#define INIT_MAX_PAYLOAD   1048576 /* payload bytes in a memfd */
#define INIT_MAX_STRING    131071  /* one argument or variable: the kernel's MAX_ARG_STRLEN less the NUL */
#define INIT_MAX_ARGS      4096
#define INIT_MAX_ENV       1024
#define INIT_MAX_RUNNING   8       /* commands at once in a container (DESIGN section 7) */
#define INIT_MAX_WAITING   1024    /* commands that wait their turn; more is INIT_REFUSED, EAGAIN */
#define INIT_MAX_CHANNELS  256

enum init_op {
	/* supervisor → init, control */
	INIT_SETUP = 1, /* struct init_setup; descriptors: dev, run, oom */
	INIT_CLAIM,     /* struct init_claim; one descriptor: home */
	INIT_CHANNEL,   /* struct init_header; one descriptor */
	INIT_ROOT,      /* struct init_header; one descriptor: root (overlay, detached) */
	/* init → supervisor, control */
	INIT_PREPARED = 32, /* struct init_header */
	INIT_READY,         /* struct init_header */
	INIT_BROKEN,        /* struct init_broken: set-up failed; init exits after it */
	/* gateway → init, channel */
	INIT_RUN = 64, /* struct init_run, payload inline or in a memfd; descriptors: [payload] [stdin] */
	INIT_KILL,     /* struct init_id: kill the command's whole leaf; INIT_DONE follows */
	INIT_DISCARD,  /* struct init_id; 1 or 2 descriptors: read them and throw away until the last writer closes */
	/* init → gateway, channel */
	INIT_STARTED = 96, /* struct init_id; two descriptors: read ends of stdout and stderr */
	INIT_DONE,         /* struct init_done: the leader has ended */
	INIT_REFUSED,      /* struct init_refused: it was never started */
};

struct init_header {
	uint16_t op;
	uint16_t size; /* of the struct, without payload */
	uint32_t pad;
};

enum init_cgroups {
	INIT_CG_V2 = 1, /* leaves below run, clone3 into them; kill by cgroup.kill; memory limit on run */
	INIT_CG_HYBRID, /* leaves below run in the v2 tree as above; limits are v1 groups that init itself sits in */
	INIT_CG_V1,     /* leaves below run in the freezer hierarchy; the child attaches itself; kill = freeze, SIGKILL, thaw */
};

/* Descriptors: dev (detached mount of the device nodes, idmapped), run (the cgroup directory that
 * leaves are made in), oom (memory.events of run on v2, memory.oom_control of the group on v1). */
struct init_setup {
	struct init_header h;
	uint32_t cgroups;  /* enum init_cgroups */
	uint32_t init_uid; /* init's own id inside the namespace, no account's */
};

/* Descriptor: home (idmapped, detached; becomes /workspace/home). */
struct init_claim {
	struct init_header h;
	uint32_t tmp_mib;
	uint32_t shm_mib;
	uint32_t memory_mib; /* what /proc/meminfo shows */
	uint32_t cpu_milli;  /* what /proc/cpuinfo and stat show, rounded up to whole processors */
	char hostname[64];
	uint32_t network; /* not 0: /etc/resolv.conf names the resolver of egress */
};

struct init_broken {
	struct init_header h;
	uint32_t errnum;
	char step[60];
};

struct init_id {
	struct init_header h;
	uint64_t id;
};

/*
 * Payload: argc argument strings, envc NAME=VALUE strings, the working directory, the user; each ended
 * by one NUL; payload_len bytes in all. With INIT_RUN_SHELL argc is 1 and the argument is given to
 * `bash -c` (`sh -c` where there is no bash). user: "" is root, digits[:digits] is taken as it is, a
 * name is looked up in the container's own /etc/passwd by the child itself.
 */
struct init_run {
	struct init_header h;
	uint64_t id; /* chosen by the gateway; unique on its channel */
	uint32_t timeout_ms; /* from the start of the command; 0: none */
	uint32_t flags;
	uint32_t argc;
	uint32_t envc;
	uint32_t payload_len;
	uint32_t pad;
};
#define INIT_RUN_SHELL  1u /* argv[0] is a script for the shell */
#define INIT_RUN_MEMFD  2u /* the payload is in the first descriptor, sealed against change */
#define INIT_RUN_STDIN  4u /* the last descriptor becomes standard input; else it is at end-of-file */
#define INIT_RUN_SYNC   8u /* syncfs(home) before INIT_DONE (durability: power) */

enum init_outcome { INIT_EXITED = 1, INIT_SIGNALED, INIT_TIMED_OUT, INIT_KILLED };

struct init_done {
	struct init_header h;
	uint64_t id;
	uint32_t outcome; /* enum init_outcome */
	uint32_t code;    /* exit code 0…255, or the signal's number */
	uint32_t flags;
	uint32_t pad;
	uint64_t started_ns; /* CLOCK_MONOTONIC */
	uint64_t ended_ns;   /* of the leader, or when the leaf was empty after a kill */
};
#define INIT_DONE_MEMORY   1u /* the kernel killed for memory while this command ran, and it died by SIGKILL */
#define INIT_DONE_UNSYNCED 2u /* INIT_RUN_SYNC was asked for, and writing home to disk failed */

struct init_refused {
	struct init_header h;
	uint64_t id;
	uint32_t errnum;
	char step[52]; /* "fork", "cgroup", "cwd", "user", "exec", "queue" */
};

#endif
