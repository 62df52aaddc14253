/*
 * The self-test: which probes there are, and what the program inside a scratch container
 * (src/probe) tells the supervisor (src/supervisor/selftest.c) about those that it makes.
 *
 * The program writes one struct probe_row for each of its probes to standard output, in native
 * byte order, each in one write. The supervisor trusts none of it further than it must: numbers are
 * checked, `seen` is cut to printable characters. A row that is missing is a probe that failed.
 */
#ifndef BRIG_PROTO_PROBE_H
#define BRIG_PROTO_PROBE_H

#include <stdint.h>

#define PROBE_SEEN_MAX 152

enum probe_state { PROBE_FAILED, PROBE_OK, PROBE_ABSENT };

/*
 * Name, whether it is required, what is tried. A probe that failed ends the start of a server
 * whether it is required or not; one whose subject this machine does not have is absent, and that
 * is a failure only of a required one.
 */
#define PROBE_LIST(X)                                                                              \
	X(IDS, "ids", 1, "root inside is a range of ids that is nobody's outside")                 \
	X(PRIVILEGES, "no-new-privileges", 1, "no_new_privs is set")                               \
	X(CAPABILITIES, "capabilities", 1, "eight capabilities, and no way to more")               \
	X(SECCOMP, "seccomp", 1, "three system call filters are in force")                         \
	X(NAMESPACES, "namespaces", 1, "unshare, clone, clone3 and setns of every kind")           \
	X(SOCKETS, "sockets", 1, "socket families 0 to 63, protocols, TCP_ULP, UDP_ENCAP")         \
	X(KEYS, "keyrings", 1, "add_key, request_key, keyctl")                                     \
	X(BPF, "bpf", 1, "bpf, perf_event_open")                                                   \
	X(URING, "io_uring", 1, "io_uring_setup, io_setup, userfaultfd")                           \
	X(CALLS, "privileged-calls", 1, "mount, chroot, reboot, modules, clocks, ports, …")        \
	X(INIT, "init", 1, "ptrace, memory, descriptors, limits and death of process 1")           \
	X(TERMINAL, "terminal", 1, "TIOCSTI, TIOCLINUX, TIOCSETD on a terminal of our own")        \
	X(ARCHITECTURE, "other-abi", 0, "system calls by the 32-bit and x32 entries")              \
	X(MOUNTS, "mounts", 1, "every line of mountinfo is one that we make")                      \
	X(HOST_PATHS, "host-paths", 1, "the data folder's path; the kernel's command line")        \
	X(HOST_NAME, "host-name", 1, "the host name is the container's, and stays")                \
	X(PROC, "proc-masks", 1, "files of /proc that tell about the host")                        \
	X(PROC_SYS, "proc-sys", 1, "writes to core_pattern, modprobe, sysrq-trigger, …")           \
	X(CGROUPS, "cgroup-files", 1, "no cgroup file system, no name of a group")                 \
	X(SYSFS, "sysfs", 1, "no sysfs, debugfs, securityfs, tracefs")                             \
	X(DEVICES, "devices", 1, "device nodes: which there are; mknod")                           \
	X(DESCRIPTORS, "descriptors", 1, "no descriptor but the standard three")                   \
	X(LIMITS, "resource-limits", 1, "core files, locked memory, real-time and nice")           \
	X(NETWORK, "network", 1, "interfaces; a connection to outside")                            \
	X(PROCESSES, "processes", 1, "which processes are seen")                                   \
	X(PROCESSORS, "processors", 1, "how many processors a command may use")                    \
	X(HOME, "home-limit", 1, "more bytes and inodes than home has")                            \
	X(SCRATCH, "scratch-limit", 1, "more bytes and inodes than the writable layer has")        \
	X(TMP, "tmp-limit", 1, "more bytes and inodes than /tmp and /dev/shm have")                \
	X(NEIGHBOUR, "neighbours", 1, "sockets, memory, files, processes of another container")    \
	X(LANDLOCK, "landlock", 0, "a file beneath a descriptor that leads outside")               \
	X(TREE, "kill", 1, "a kill reaches daemons that ignore signals")                           \
	X(FREEZE, "freeze", 1, "a frozen container stands still, and goes on")                     \
	X(PIDS, "process-limit", 1, "more processes than allowed")                                 \
	X(MEMORY, "memory-limit", 1, "more memory than allowed, and what it is called")            \
	X(CPU, "cpu-limit", 1, "more processor time than allowed")

enum probe_number {
#define X(id, name, required, tried) PROBE_##id,
	PROBE_LIST(X)
#undef X
	        PROBE_COUNT
};

struct probe_row {
	uint32_t number;           /* enum probe_number */
	uint32_t state;            /* enum probe_state */
	char seen[PROBE_SEEN_MAX]; /* NUL-padded */
};

/* argv[1] of the program: what it is to do. Its standard input is the program itself, unless said
 * otherwise. */
#define PROBE_DO_INSIDE    "inside"    /* struct probe_expected as further arguments */
#define PROBE_DO_NEIGHBOUR "neighbour" /* makes what no other container may see; "r"; waits */
#define PROBE_DO_LANDLOCK  "landlock"  /* standard input: a socket that holds a directory */
#define PROBE_DO_TREE      "tree"      /* daemons that ignore signals and write bytes for ever */
#define PROBE_DO_PIDS      "pids"      /* argv[2]: the limit */
#define PROBE_DO_MEMORY    "memory"    /* takes memory until it is killed */
#define PROBE_DO_CPU       "cpu"       /* argv[2]: the limit in thousandths of a processor */

/* Where `inside` leaves a copy of the program, for commands with another standard input. */
#define PROBE_COPY "/tmp/probe"

/* Arguments of PROBE_DO_INSIDE, decimal but for the last two. */
enum probe_expected {
	PROBE_ARG_FIRST_ID = 2, /* outside id of root inside */
	PROBE_ARG_PROCESSORS,
	PROBE_ARG_HOME_MIB,
	PROBE_ARG_SCRATCH_MIB,
	PROBE_ARG_TMP_MIB,
	PROBE_ARG_SHM_MIB,
	PROBE_ARG_HOST_NAME,
	PROBE_ARG_DATA, /* the data folder's path outside */
	PROBE_ARGS,
};

/* Names under which `neighbour` can be found, were there a way to it. */
#define PROBE_SOCKET_NAME "brig-selftest-neighbour"
#define PROBE_PORT        28484
#define PROBE_SHM_KEY     0x62726967
#define PROBE_FILE        "/tmp/neighbour"

#endif
