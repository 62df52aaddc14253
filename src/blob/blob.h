/*
 * Where bytes are kept that outlive a container: documents, and (where homes are saved elsewhere)
 * chunks and manifests. dir.c keeps them as files of one folder; others come behind this same seam.
 *
 * A key is 1 … BLOB_KEY_MAX characters of [a-z0-9._-] in parts divided by "/", no part empty, "."
 * or
 * "..": "doc/7f/7f3a…". Values are immutable under one key, but for blob_replace.
 *
 * Calls block: they belong on the thread pool. A blob store may be used by several threads and
 * processes at once. What a call reported as done survives the death of any process, and the
 * machine's where options.power is set. Errors: -ERR_NOT_FOUND, -ERR_INVALID (a bad key),
 * -ERR_UNAVAILABLE (no room: nothing was changed), -ERR_IO.
 */
#ifndef BRIG_BLOB_BLOB_H
#define BRIG_BLOB_BLOB_H

#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define BLOB_KEY_MAX 200

struct blob_store;

struct blob_options {
	const char *folder; /* made with mode 0700 when absent */
	bool power;         /* wait for the disk before a put is reported done */
	uint64_t reserve;   /* bytes of the file system that stay free: a put below it is
	                       -ERR_UNAVAILABLE */
};
int blob_open(const struct blob_options *o, struct blob_store **ret, struct error *err);
struct blob_store *blob_close(struct blob_store *s); /* takes NULL; returns NULL */

/* A value under way: nobody sees it before blob_put_commit. */
struct blob_put;
int blob_put_begin(struct blob_store *s, struct blob_put **ret, struct error *err);
int blob_put_write(struct blob_put *p, struct str bytes, struct error *err);
/* With options.power: waits for the disk, so that the commit that follows need not wait for long.
 */
int blob_put_sync(struct blob_put *p, struct error *err);
/* Ends the put. 1: stored, 0: the key was there already and stays as it was. Frees p in any case.
 */
int blob_put_commit(struct blob_put *p, struct str key, struct error *err);
/* Takes the key's place whether it is there or not: readers see the old value or the new one. Frees
 * p. */
int blob_put_replace(struct blob_put *p, struct str key, struct error *err);
struct blob_put *blob_put_abort(struct blob_put *p); /* takes NULL; returns NULL */

/* A descriptor of the value, for reading, with its size: the caller's. It stays whole when the
 * value is deleted or replaced meanwhile. */
int blob_get(
        struct blob_store *s, struct str key, int *ret_fd, uint64_t *ret_size, struct error *err);
/* 1: gone, 0: there was none. */
int blob_delete(struct blob_store *s, struct str key, struct error *err);
/* Makes the value's age zero, where it exists: 1, else 0. What collects unused values leaves young
 * ones alone, so a writer that means to refer to an old value touches it first. */
int blob_touch(struct blob_store *s, struct str key, struct error *err);

/* Calls `each` for the values below prefix ("" or whole parts, "doc/7f"), in no order, until it
 * returns false. For the keeper's collection. */
typedef bool blob_each_fn(void *ctx, struct str key, uint64_t size, int64_t age_ms);
int blob_list(
        struct blob_store *s, struct str prefix, blob_each_fn *each, void *ctx, struct error *err);

#endif
