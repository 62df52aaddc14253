/*
 * Messages between a gateway and a worker: the confined process that touches one container's home.
 *
 * A gateway asks the supervisor with SUP_FILES (proto/supervisor.h) and gets a SOCK_SEQPACKET
 * socket of its own to the container's worker; one worker serves every gateway's sockets. One
 * datagram is one message: one of the structs below, then its bytes (paths). Native byte order. The
 * worker refuses, by closing the socket, a wrong size, an unknown op, a field outside its bounds.
 * The gateway trusts the worker no further: a worker has read what the guest wrote, so each answer
 * is checked the same way, and a descriptor is used only after fstat says that it is a regular
 * file.
 *
 * Requests may overlap; answers to one carry its seq and come in order. Paths are bytes relative to
 * home, with no leading slash, no empty, "." or ".." part and no NUL, 1 … WORKER_PATH_MAX long; a
 * path with an illegal part is WORKER_FAILED with EINVAL. No symbolic link is ever followed, at any
 * place of a path: each is opened beneath home with openat2 (RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS,
 * RESOLVE_NO_MAGICLINKS, RESOLVE_NO_XDEV). Only regular files are told of: to STAT, OPEN or DELETE
 * anything else is EISDIR, ELOOP (a link, there or on the way) or ENXIO. What a list goes on after
 * is compared and never opened: it may be any bytes but NUL.
 *
 * Every walk is bounded in memory, whatever the tree holds, and answers other requests in between.
 * The worker ends 30 s after its last request; the supervisor may end it sooner, to make room for
 * another or when its container is deleted. All its sockets end with it: one that ends without an
 * answer says nothing about what became of the request.
 */
#ifndef BRIG_PROTO_WORKER_H
#define BRIG_PROTO_WORKER_H

#include <stdint.h>

#define WORKER_PATH_MAX    4096
#define WORKER_MAX_MESSAGE 32768
#define WORKER_LIST_MAX    1000
#define WORKER_RECENT_MAX  10

enum worker_op {
	/* gateway → worker */
	WORKER_LIST =
	        1, /* struct worker_list + after → any number of WORKER_ENTRY, then WORKER_DONE */
	WORKER_RECENT, /* struct worker_recent → WORKER_ENTRY newest first, then WORKER_DONE */
	WORKER_STAT,   /* struct worker_path + path → WORKER_ENTRY, then WORKER_DONE */
	WORKER_OPEN, /* struct worker_path + path → WORKER_ENTRY with one descriptor, for reading,
	                opened O_NONBLOCK; then WORKER_DONE */
	WORKER_CREATE, /* struct worker_create → WORKER_CREATED with one descriptor, for writing: a
	                  file without a name, gone with its last descriptor */
	WORKER_LINK, /* struct worker_link + path: gives the file of that handle its name, in place
	                of what regular file or link was there, with folders made as needed →
	                WORKER_ENTRY, then WORKER_DONE. EISDIR where a folder is in the way, ENOTDIR
	                where a part of the path is none */
	WORKER_DROP, /* struct worker_handle: forget it → WORKER_DONE */
	WORKER_DELETE, /* struct worker_path + path: a regular file → WORKER_DONE */
	WORKER_SYNC,   /* struct worker_header: syncfs → WORKER_DONE */
	WORKER_SAVE, /* struct worker_save; one descriptor, the writing end of a pipe: syncfs, then
	                the whole tree (proto/tree.h) → WORKER_DONE when all is written. A pipe that
	                nobody reads any more ends it: WORKER_FAILED with EPIPE */
	WORKER_RESTORE, /* struct worker_header; one descriptor, the reading end of a pipe that
	                   gives a tree: makes home exactly that → WORKER_DONE. Home must be empty
	                   (ENOTEMPTY); one in which this failed is to be deleted */

	/* worker → gateway */
	WORKER_ENTRY = 64, /* struct worker_entry + path */
	WORKER_CREATED,    /* struct worker_handle, one descriptor */
	WORKER_DONE,       /* struct worker_done */
	WORKER_FAILED,     /* struct worker_failed, in place of DONE */
};

struct worker_header {
	uint16_t op;
	uint16_t size; /* of the struct, without the bytes behind it */
	uint32_t seq;
};

/* In the order of the paths' bytes, after `after` (which need not be there; empty: from the start).
 * DONE has WORKER_MORE when there is at least one more. */
struct worker_list {
	struct worker_header h;
	uint32_t limit;    /* 1 … WORKER_LIST_MAX */
	uint32_t path_len; /* of after: 0 … WORKER_PATH_MAX */
};

/* Regular files whose content or name changed at or after since_ns of the wall clock (by ctime),
 * the latest first. Stops looking after budget_us and then says WORKER_PARTIAL: a huge tree costs a
 * tool result no more than that. */
struct worker_recent {
	struct worker_header h;
	uint64_t since_ns;
	uint32_t limit;     /* 1 … WORKER_RECENT_MAX */
	uint32_t budget_us; /* 100 … 1,000,000 */
};

struct worker_path {
	struct worker_header h;
	uint32_t path_len;
	uint32_t pad;
};

/* Asks for room at once where size is known (fallocate), so that a full home is told before the
 * upload and not after it. The file is owned by container root, mode 0644. */
struct worker_create {
	struct worker_header h;
	uint64_t size; /* 0: unknown; at most 1 TiB */
};

/* One at a time for a worker: EBUSY. A file with a ctime before same_before_ns is TREE_SAME. */
struct worker_save {
	struct worker_header h;
	int64_t same_before_ns; /* wall clock; 0: every file's bytes */
};

#define WORKER_HANDLES_MAX 64 /* on one socket; more is EMFILE */
struct worker_handle {
	struct worker_header h;
	uint64_t handle;
};

struct worker_link {
	struct worker_header h;
	uint64_t handle; /* spent by this, whatever comes of it */
	uint32_t path_len;
	uint32_t flags;
};
#define WORKER_LINK_NEW 1u /* EEXIST where something has that name */

struct worker_entry {
	struct worker_header h;
	uint64_t size;
	uint64_t inode;
	uint64_t mtime_ns, ctime_ns; /* wall clock; size, inode and ctime together make the ETag */
	uint32_t mode;               /* permission bits */
	uint32_t path_len;
};

struct worker_done {
	struct worker_header h;
	uint32_t flags;
	uint32_t pad;
};
#define WORKER_MORE    1u
#define WORKER_PARTIAL 2u

struct worker_failed {
	struct worker_header h;
	uint32_t errnum;
	char step[52]; /* static text of ours, NUL-terminated */
};

/*
 * Between the supervisor and a worker, over descriptor 3 of the worker (4 is a mount of the home):
 * the supervisor gives it a gateway's socket, and it says when it has had nothing to do for
 * idle_ms. It does not end by itself: the supervisor ends it, if it has taken all that were given.
 */
struct worker_socket {    /* supervisor → worker, one descriptor */
	uint32_t number;  /* 1, 2, … */
	uint32_t idle_ms; /* 0: WORKER_IDLE_MS */
};
struct worker_idle {    /* worker → supervisor */
	uint32_t taken; /* number of the last socket that it got */
};
#define WORKER_CONTROL_FD 3
#define WORKER_HOME_FD    4
#define WORKER_IDLE_MS    30000

#endif
