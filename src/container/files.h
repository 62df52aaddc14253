/*
 * The files in a container's home, through the container's worker (proto/worker.h), whether the
 * container lives, is frozen or asleep. Nothing here wakes it.
 *
 * Asynchronous on the gateway's loop, as container.h is: one callback for each question, never from
 * inside the call that asked, none after container_ask_cancel(). A connection to a worker is made
 * when it is needed and kept while the worker lives. A question that finds the worker gone is asked
 * once more.
 *
 * Paths are bytes, relative to home: see container_path_valid().
 */
#ifndef BRIG_CONTAINER_FILES_H
#define BRIG_CONTAINER_FILES_H

#include "container/container.h"
#include "proto/worker.h"

/* 1 … WORKER_PATH_MAX bytes, no NUL, no leading slash, no part that is empty, "." or "..". */
bool container_path_valid(struct str path);

struct container_file {
	struct str path;
	uint64_t size;
	uint64_t ctime_ns; /* wall clock: content or name changed */
};

struct container_upload;

struct container_files_result {
	const struct container_file *files; /* for the call only */
	size_t n_files;
	bool more;                       /* of a list: there are more after the last one */
	bool partial;                    /* of the recent ones: time was up */
	int fd;                          /* of open and create: the callee's; else -1 */
	struct container_upload *upload; /* of create: the callee's */
};
/*
 * r is NULL when err is not. ERR_NOT_FOUND (no such regular file), ERR_INVALID (a name that the
 * file system refuses), ERR_CONFLICT (a folder is in the way, or a part of the path is none),
 * ERR_TOO_LARGE with type "home_full", ERR_UNAVAILABLE (the server's disk is full, or the worker
 * has gone), ERR_IO, ERR_PROTOCOL.
 */
typedef void (*container_files_fn)(
        void *ctx, const struct container_files_result *r, const struct error *err);

struct container_ask;
void container_ask_cancel(struct container_ask *a); /* takes NULL */

/* In the order of the paths' bytes, after `after` ({NULL,0}: from the start); limit 1 …
 * WORKER_LIST_MAX, and fewer where their paths are more than 128 KiB. A container without a home
 * has no files. */
struct container_ask *container_ask_list(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        struct str after, uint32_t limit, container_files_fn fn, void *ctx);
/* Changed at since_ns (wall clock) or later, the latest first; at most `limit`, of what could be
 * looked at in budget_us. */
struct container_ask *container_ask_recent(struct container_client *c,
        const uint8_t key[SUP_KEY_LEN], uint64_t since_ns, uint32_t limit, uint32_t budget_us,
        container_files_fn fn, void *ctx);
struct container_ask *container_ask_stat(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        struct str path, container_files_fn fn, void *ctx);
struct container_ask *container_ask_open(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        struct str path, container_files_fn fn, void *ctx);
struct container_ask *container_ask_delete(struct container_client *c,
        const uint8_t key[SUP_KEY_LEN], struct str path, container_files_fn fn, void *ctx);
struct container_ask *container_ask_sync(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        container_files_fn fn, void *ctx);

/* A file without a name to write to; size: how large it will be at most, 0 where unknown. A home is
 * made where there is none. */
struct container_ask *container_ask_create(struct container_client *c,
        const uint8_t key[SUP_KEY_LEN], uint64_t size, container_files_fn fn, void *ctx);
/* Gives it its name, in place of what file had it. Frees u, whatever comes of it. NULL: the worker
 * has gone and the file with it (container_error_gone()), and fn is not called. */
struct container_ask *container_upload_link(
        struct container_upload *u, struct str path, container_files_fn fn, void *ctx);
/* The file is gone with its descriptor. Takes NULL; returns NULL. */
struct container_upload *container_upload_drop(struct container_upload *u);

/* Errors that an upload may have besides: no room in the home for what is written, and no worker.
 */
void container_error_home_full(struct error *e);
void container_error_gone(struct error *e);

#endif
