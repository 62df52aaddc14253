/*
 * The saved state of a home: which nodes it has (proto/tree.h), and for each file the hashes of its
 * pieces. One manifest a container, a blob that is replaced as a whole; the pieces are blobs of
 * their own, named by their hash.
 *
 * Layout: struct manifest_head; then nodes in the order of proto/tree.h, each followed by its name,
 * target and attributes, a file's also by its chunks and one more chunk of length 0; then a node
 * TREE_END; then the SHA-256 of all that. What was written by another byte order, version or
 * container is refused.
 *
 * Blocking; everything belongs to the thread that works on it. A manifest that is read may have
 * been damaged or made by an attacker: every bound of proto/tree.h is checked, memory is constant.
 */
#ifndef BRIG_CONTAINER_MANIFEST_H
#define BRIG_CONTAINER_MANIFEST_H

#include "base/error.h"
#include "proto/supervisor.h"
#include "proto/tree.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MANIFEST_MAGIC "brigtree"
#define MANIFEST_HASH  32

struct manifest_head {
	char magic[8];
	uint32_t version;
	uint32_t saves; /* how often this home was saved */
	uint8_t key[SUP_KEY_LEN];
	int64_t started_ns; /* wall clock, before the first byte was read */
};
#define MANIFEST_VERSION 1u

/* Bytes offset … offset + length of a file. What no chunk covers is a hole. */
struct manifest_chunk {
	uint64_t offset; /* they rise */
	uint32_t length; /* 1 … TREE_PIECE; 0: the file's end */
	uint32_t pad;
	uint8_t hash[MANIFEST_HASH];
};

/* A node with what follows it. */
struct tree_entry {
	struct tree_node node;
	char name[TREE_NAME_MAX + 1];
	char target[TREE_TARGET_MAX + 1];
	uint8_t xattrs[TREE_XATTR_MAX];
};

/*
 * Whether a node may stand here, by everything that proto/tree.h says: its own fields, name and
 * attributes, and its depth after that of the node before. *depth is the deepest that may come
 * next; begin with 0 and `first`. -ERR_PROTOCOL.
 */
int tree_entry_check(const struct tree_entry *e, bool first, uint32_t *depth, struct error *err);

/* ---- reading ---- */

struct manifest_reader;
/* From a file, whose SHA-256 is checked first: -ERR_PROTOCOL where it is not a whole manifest of
 * this key. The descriptor stays the caller's, with its own position. */
int manifest_open(int fd, uint64_t size, const uint8_t key[SUP_KEY_LEN],
        struct manifest_reader **ret, struct error *err);
struct manifest_reader *manifest_close(struct manifest_reader *r); /* takes NULL; returns NULL */
const struct manifest_head *manifest_head(const struct manifest_reader *r);
/* The next node: 1, or 0 at the end. A file's chunks that were not asked for are passed over. */
int manifest_next(struct manifest_reader *r, struct tree_entry *ret, struct error *err);
/* After a file: its next chunk: 1, or 0 at its end. */
int manifest_next_chunk(struct manifest_reader *r, struct manifest_chunk *ret, struct error *err);
/* Where the chunks of the file just read begin, and going back there: this reads the xattr_len
 * bytes of its attributes that stand before them, and manifest_next_chunk() then gives the chunks,
 * once more. Quick where files are asked for in their order. */
uint64_t manifest_tell(const struct manifest_reader *r);
int manifest_seek(struct manifest_reader *r, uint64_t place, void *ret_xattrs, uint32_t xattr_len,
        struct error *err);

/* ---- writing ---- */

typedef int manifest_write_fn(void *ctx, const void *data, size_t n, struct error *err);

struct manifest_writer;
/* Appends through write(), in pieces of some 64 KiB. A failure sticks and is told by every call. */
struct manifest_writer *manifest_begin(
        manifest_write_fn *write, void *ctx, const struct manifest_head *head);
void manifest_add(struct manifest_writer *w, const struct tree_entry *e);
void manifest_add_chunk(struct manifest_writer *w, const struct manifest_chunk *c);
/* Writes the end. 0, or what failed first. */
int manifest_end(struct manifest_writer *w, struct error *err);
struct manifest_writer *manifest_free(struct manifest_writer *w); /* takes NULL; returns NULL */

#endif
