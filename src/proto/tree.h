/*
 * A folder's tree as a stream of records, through a pipe: a worker writes one when a home is saved,
 * and reads one when it is made again (proto/worker.h). A manifest (container/manifest.h) is the
 * same records with hashes where the stream has bytes.
 *
 * Records come in the order of a walk: a folder, then everything in it, then what is beside it. A
 * record names only itself; `depth` says whose child it is: the last folder of depth - 1. The first
 * record is home itself: a folder of depth 0 without a name, and no other has depth 0. So no path
 * is ever built, and none can be too long. The stream ends with TREE_END.
 *
 * Native byte order and fixed layouts: both ends are one binary. The reader refuses whatever is out
 * of its bounds, which ends the whole transfer. Sockets and pipes are left out; device nodes cannot
 * be.
 */
#ifndef BRIG_PROTO_TREE_H
#define BRIG_PROTO_TREE_H

#include <stdint.h>

#define TREE_NAME_MAX   255
#define TREE_TARGET_MAX 4095  /* of a symbolic link */
#define TREE_XATTR_MAX  65536 /* all extended attributes of one node, encoded */
#define TREE_DEPTH_MAX  1000000
#define TREE_SIZE_MAX   ((uint64_t)1 << 44) /* of a file: what ext4 may hold */
#define TREE_PIECE      4194304             /* a file's bytes are cut at multiples of this */

enum tree_type {
	TREE_END = 0,
	TREE_FOLDER,
	TREE_FILE, /* extents follow, unless TREE_SAME */
	TREE_LINK, /* symbolic; its target follows the name */
	TREE_HARD, /* one more name of the file that an earlier record gave this `inode` */
};

/* Then: name (name_len), target (target_len), extended attributes (xattr_len). */
struct tree_node {
	uint8_t type;  /* enum tree_type */
	uint8_t flags; /* TREE_… */
	uint16_t name_len;
	uint16_t mode; /* permission bits, 07777 */
	uint16_t target_len;
	uint32_t depth;
	uint32_t uid, gid; /* as the container sees them: 0 … 65535 */
	uint32_t xattr_len;
	uint32_t pad;
	uint32_t mtime_ns;
	int64_t mtime_s;
	int64_t ctime_ns; /* wall clock; what tells that a file is the same */
	uint64_t inode;
	uint64_t size; /* of a file */
};
#define TREE_SAME                                                                                  \
	1u /* a file not changed since the time that the saver gave: neither extents nor           \
	    * attributes follow */
#define TREE_LINKED 2u /* a file with more names than this one: TREE_HARD records may follow */

/* An extended attribute: then its name (name_len), its value (value_len). */
struct tree_xattr {
	uint16_t name_len; /* 1 … 255 */
	uint16_t pad;
	uint32_t value_len; /* … 65536 */
};

/* Bytes of a file, which follow: 1 … TREE_PIECE of them, within one piece. Offsets rise; what no
 * extent covers is a hole. length 0 ends the file. */
struct tree_extent {
	uint64_t offset;
	uint32_t length;
	uint32_t pad;
};

#endif
