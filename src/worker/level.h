/*
 * The folders between home and the one that is worked on. A tree may be deeper than there are
 * descriptors, so only the last LEVELS_OPEN keep theirs; the others are opened again through "..",
 * and must then be the same folder.
 */
#ifndef BRIG_WORKER_LEVEL_H
#define BRIG_WORKER_LEVEL_H

#include "proto/tree.h"

#include <stddef.h>
#include <stdint.h>

#define LEVELS_OPEN 64

/* As the kernel lists a folder. */
struct entry {
	uint64_t inode;
	int64_t off; /* of what comes behind it */
	unsigned short reclen;
	unsigned char type; /* DT_… */
	char name[];
};
/* Fills an aligned buffer with the next entries: bytes, 0 at the end, or -1 with errno. */
long entries_read(int fd, void *buffer, size_t size);

/* Opens a name of this folder (or ".") with openat2: nothing beyond it, no links. */
int entry_open(int at, const char *name, int flags, unsigned int mode);

struct level {
	int fd; /* -1: closed, to be opened again */
	uint64_t inode;
	int64_t place;         /* sending: where its listing goes on */
	struct tree_node node; /* taking: what it is to become when all in it is made */
	uint8_t *xattrs;       /* taking: of that node; malloc'ed */
};

struct levels {
	struct level *list;
	size_t n, cap;
};

/* The open folder that is worked on. */
static inline struct level *levels_top(struct levels *l)
{
	return &l->list[l->n - 1];
}

/* Opens a folder of the top one and makes it the top. name NULL: fd is it already. Errno or 0. */
int levels_enter(struct levels *l, int fd, const char *name);
/* Leaves the top folder for the one above, if there is one. */
int levels_leave(struct levels *l);
void levels_free(struct levels *l);

#endif
