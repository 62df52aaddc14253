/*
 * Homes that are saved elsewhere: through blobs, so that another machine, or this one with an empty
 * disk, can make them again. The tree comes from a worker and goes to one (WORKER_SAVE and
 * WORKER_RESTORE); this is the other end of that pipe.
 *
 * Keys: home/<key in hex>/manifest, and home/<key in hex>/<hash in hex> for a file's pieces.
 * Nothing is shared between containers, so that none can tell what another holds, and what a
 * container no longer needs is known from its own manifests alone. A save that fails or dies leaves
 * the last one whole; the pieces that it made already serve the next, or are swept away.
 *
 * Blocking, for minutes where a home is large: on threads that nothing else waits for. The caller
 * sees to it that there is one save, restore or deletion at a time for a container.
 */
#ifndef BRIG_CONTAINER_SAVE_H
#define BRIG_CONTAINER_SAVE_H

#include "base/error.h"
#include "blob/blob.h"
#include "proto/supervisor.h"

#include <stdint.h>

struct save_count {
	uint64_t nodes;
	uint64_t read;   /* bytes of files that came through the pipe */
	uint64_t stored; /* bytes that were new */
};

/* What to ask WORKER_SAVE for: files whose ctime is before this are as the last manifest has them.
 * 0: there is none. */
int save_since(struct blob_store *b, const uint8_t key[SUP_KEY_LEN], int64_t *ret_same_before_ns,
        struct error *err);

/*
 * Reads a tree from the pipe (the caller's) and makes it the saved state. started_ns: the wall
 * clock before WORKER_SAVE was sent. -ERR_CONFLICT: a file that is said to be the same is not in
 * the last manifest (a clock was set, or the last save is another home's): save again from 0. ret
 * may be NULL.
 */
int save_home(struct blob_store *b, const uint8_t key[SUP_KEY_LEN], int pipe, int64_t started_ns,
        struct save_count *ret, struct error *err);

/* Whether the disk that the home comes to has room: 0, or what to fail with. */
typedef int save_room_fn(void *ctx, struct error *err);

/* Writes the saved tree to the pipe (the caller's), and asks room() now and then (NULL: never).
 * -ERR_NOT_FOUND: it was never saved. SIGPIPE must be ignored. */
int save_restore(struct blob_store *b, const uint8_t key[SUP_KEY_LEN], int pipe, save_room_fn *room,
        void *ctx, struct save_count *ret, struct error *err);

/* Forgets the saved state. 0 also where there is none. */
int save_delete(struct blob_store *b, const uint8_t key[SUP_KEY_LEN], struct error *err);

#endif
