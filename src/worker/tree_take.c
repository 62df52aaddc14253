/*
 * Taking a home: each record is made beneath the folder that its depth names, which is then the top
 * of the stack. Owner, mode and times of a folder are set when it is left, since making things in
 * it would change them. Files with several names have one more, in home itself, until the end,
 * so that later names can be linked to them: a folder for those would be one inode more than a full
 * home has.
 *
 * A name may come twice in one folder: a guest that exchanged what had it while it was sent. The
 * later one takes its place, but a folder stays and takes in what comes.
 */
#include "worker/tree.h"

#include "worker/level.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define INPUT      (256 * 1024)
#define XATTRS_MAX (64u << 20) /* kept for all open folders together */

struct take {
	int pipe, home;
	const char *step;
	struct levels levels;
	size_t kept;      /* bytes of attributes of the folders in levels */
	char links[32];   /* what our names of files with several names begin with */
	uint64_t *linked; /* which they are */
	size_t n_linked, linked_cap;
	size_t used, filled;
	char name[TREE_NAME_MAX + 1], target[TREE_TARGET_MAX + 1];
	uint8_t xattrs[TREE_XATTR_MAX];
	uint8_t in[INPUT];
	uint8_t bytes[TREE_PIECE];
};

static int failed(struct take *t, const char *step, int e)
{
	t->step = step;
	return e;
}

/* ---- input ---- */

static int take_bytes(struct take *t, void *data, size_t n)
{
	uint8_t *p = data;
	while (n > 0) {
		if (t->used == t->filled) {
			ssize_t got = read(t->pipe, t->in, sizeof(t->in));
			if (got < 0 && errno == EINTR)
				continue;
			if (got <= 0)
				return failed(t, "read", got < 0 ? errno : EPROTO);
			t->used = 0;
			t->filled = (size_t)got;
		}
		size_t part = t->filled - t->used < n ? t->filled - t->used : n;
		memcpy(p, t->in + t->used, part);
		t->used += part;
		p += part;
		n -= part;
	}
	return 0;
}

static bool name_is_legal(const char *s, size_t n)
{
	return n > 0 && strlen(s) == n && !strchr(s, '/') && strcmp(s, ".") != 0 &&
	       strcmp(s, "..") != 0;
}

static int take_node(struct take *t, struct tree_node *n)
{
	int e = take_bytes(t, n, sizeof(*n));
	if (e)
		return e;
	if (n->type > TREE_HARD || n->name_len > TREE_NAME_MAX || n->target_len > TREE_TARGET_MAX ||
	        n->xattr_len > TREE_XATTR_MAX || n->mode > 07777 || n->uid > 65535 ||
	        n->gid > 65535 || n->mtime_ns > 999999999 || n->size > TREE_SIZE_MAX)
		return failed(t, "a record out of bounds", EPROTO);
	e = take_bytes(t, t->name, n->name_len);
	if (!e)
		e = take_bytes(t, t->target, n->target_len);
	if (!e)
		e = take_bytes(t, t->xattrs, n->xattr_len);
	t->name[n->name_len] = 0;
	t->target[n->target_len] = 0;
	if (e || n->type == TREE_END)
		return e;
	if (t->levels.n == 0 ? n->type != TREE_FOLDER || n->depth != 0 || n->name_len != 0
	                     : n->depth == 0 || n->depth > t->levels.n ||
	                               !name_is_legal(t->name, n->name_len))
		return failed(t, "a record in a wrong place", EPROTO);
	return 0;
}

/* ---- what a node is besides its content ---- */

/* Attributes that the kernel does not let us set (of security, say) are left out. */
static int set_xattrs(struct take *t, int fd, const uint8_t *p, size_t n)
{
	while (n > 0) {
		struct tree_xattr x;
		char name[256];
		if (n < sizeof(x))
			return failed(t, "an attribute", EPROTO);
		memcpy(&x, p, sizeof(x));
		p += sizeof(x);
		n -= sizeof(x);
		if (x.name_len == 0 || x.name_len > 255 || x.name_len > n ||
		        x.value_len > n - x.name_len)
			return failed(t, "an attribute", EPROTO);
		memcpy(name, p, x.name_len);
		name[x.name_len] = 0;
		if (fsetxattr(fd, name, p + x.name_len, x.value_len, 0) < 0 && errno == ENOSPC)
			return failed(t, "an attribute", ENOSPC);
		p += x.name_len + x.value_len;
		n -= x.name_len + x.value_len;
	}
	return 0;
}

static void times_of(const struct tree_node *n, struct timespec ret[2])
{
	ret[0] = ret[1] = (struct timespec){.tv_sec = n->mtime_s, .tv_nsec = n->mtime_ns};
}

/* In this order: a change of owner takes set-id bits and capabilities away. */
static int finish(struct take *t, int fd, const struct tree_node *n, const uint8_t *xattrs)
{
	struct timespec times[2];
	int e;
	times_of(n, times);
	if (fchown(fd, n->uid, n->gid) < 0)
		return failed(t, "owner", errno);
	if (fchmod(fd, n->mode) < 0)
		return failed(t, "mode", errno);
	e = set_xattrs(t, fd, xattrs, n->xattr_len);
	if (!e && futimens(fd, times) < 0)
		e = failed(t, "times", errno);
	return e;
}

/* ---- nodes ---- */

static int make_folder(struct take *t, const struct tree_node *n)
{
	int e;
	if (n->depth == 0) {
		int fd = entry_open(t->home, ".", O_RDONLY | O_DIRECTORY, 0);
		e = fd < 0 ? errno : levels_enter(&t->levels, fd, NULL);
	} else {
		int at = levels_top(&t->levels)->fd;
		e = mkdirat(at, t->name, 0700) < 0 ? errno : 0;
		if (e == EEXIST && unlinkat(at, t->name, 0) == 0)
			e = mkdirat(at, t->name, 0700) < 0 ? errno : 0;
		if (!e || e == EEXIST)
			e = levels_enter(&t->levels, -1, t->name);
	}
	if (e)
		return failed(t, "folder", e);
	struct level *top = levels_top(&t->levels);
	top->node = *n;
	if (n->xattr_len == 0)
		return 0;
	if (t->kept + n->xattr_len > XATTRS_MAX || !(top->xattrs = malloc(n->xattr_len)))
		return failed(t, "attributes", ENOMEM);
	memcpy(top->xattrs, t->xattrs, n->xattr_len);
	t->kept += n->xattr_len;
	return 0;
}

static int leave_folder(struct take *t)
{
	struct level *top = levels_top(&t->levels);
	int e = finish(t, top->fd, &top->node, top->xattrs);
	t->kept -= top->node.xattr_len;
	if (!e && (e = levels_leave(&t->levels)))
		failed(t, "leave", e);
	return e;
}

static int fill_file(struct take *t, int fd, const struct tree_node *n)
{
	for (;;) {
		struct tree_extent x;
		int e = take_bytes(t, &x, sizeof(x));
		if (e)
			return e;
		if (x.length == 0)
			return ftruncate(fd, (off_t)n->size) < 0 ? failed(t, "size", errno) : 0;
		if (x.length > TREE_PIECE || x.offset > n->size || x.length > n->size - x.offset)
			return failed(t, "an extent", EPROTO);
		e = take_bytes(t, t->bytes, x.length);
		for (size_t done = 0; !e && done < x.length;) {
			ssize_t put = pwrite(
			        fd, t->bytes + done, x.length - done, (off_t)(x.offset + done));
			if (put < 0)
				e = failed(t, "write", errno);
			else
				done += (size_t)put;
		}
		if (e)
			return e;
	}
}

static void link_name(const struct take *t, uint64_t inode, char ret[48])
{
	snprintf(ret, 48, "%s%llx", t->links, (unsigned long long)inode);
}

static int link_keep(struct take *t, const struct tree_node *n)
{
	char name[48];
	if (!t->links[0]) {
		uint64_t random;
		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			return failed(t, "random", EIO);
		snprintf(t->links, sizeof(t->links), ".brig-%llx-", (unsigned long long)random);
	}
	if (t->n_linked == t->linked_cap) {
		size_t cap = t->linked_cap ? 2 * t->linked_cap : 64;
		uint64_t *list = realloc(t->linked, cap * sizeof(*list));
		if (!list)
			return failed(t, "links", ENOMEM);
		t->linked = list;
		t->linked_cap = cap;
	}
	link_name(t, n->inode, name);
	/* There already: the sender had no memory to know that its bytes had gone out. */
	if (linkat(levels_top(&t->levels)->fd, t->name, t->home, name, 0) < 0)
		return errno == EEXIST ? 0 : failed(t, "links", errno);
	t->linked[t->n_linked++] = n->inode;
	return 0;
}

/* Whether a name can be given that one of the folder has: it is free now. */
static bool name_freed(struct take *t)
{
	return errno == EEXIST && unlinkat(levels_top(&t->levels)->fd, t->name, 0) == 0;
}

static int make_file(struct take *t, const struct tree_node *n)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL;
	int at = levels_top(&t->levels)->fd, fd = entry_open(at, t->name, flags, 0600);
	bool named = true;
	if (fd < 0 && name_freed(t))
		fd = entry_open(at, t->name, flags, 0600);
	if (fd < 0 && (errno == EISDIR || errno == EPERM || errno == EEXIST)) {
		named = false; /* a folder has it: the bytes go nowhere */
		fd = entry_open(at, ".", O_WRONLY | O_TMPFILE, 0600);
	}
	if (fd < 0)
		return failed(t, "file", errno);
	int e = fill_file(t, fd, n);
	if (!e && named && (n->flags & TREE_LINKED))
		e = link_keep(t, n);
	if (!e)
		e = finish(t, fd, n, t->xattrs);
	close(fd);
	return e;
}

static int make_hard(struct take *t, const struct tree_node *n)
{
	char kept[48];
	if (!t->links[0])
		return failed(t, "a name of no file", EPROTO);
	link_name(t, n->inode, kept);
	int at = levels_top(&t->levels)->fd;
	int e = linkat(t->home, kept, at, t->name, 0) < 0 ? errno : 0;
	if (e == EEXIST && name_freed(t))
		e = linkat(t->home, kept, at, t->name, 0) < 0 ? errno : 0;
	/* A file may have so many names that ours is one too many: then this is the last. */
	if (e == EMLINK)
		e = syscall(SYS_renameat2, t->home, kept, at, t->name, 0) < 0 ? errno : 0;
	if (e && e != EEXIST && e != EISDIR)
		return failed(t, "a further name", e == ENOENT ? EPROTO : e);
	return 0;
}

static int make_link(struct take *t, const struct tree_node *n)
{
	struct timespec times[2];
	int at = levels_top(&t->levels)->fd;
	times_of(n, times);
	int e = symlinkat(t->target, at, t->name) < 0 ? errno : 0;
	if (e == EEXIST && !name_freed(t))
		return 0; /* a folder has it */
	if (e == EEXIST)
		e = symlinkat(t->target, at, t->name) < 0 ? errno : 0;
	if (e)
		return failed(t, "symbolic link", e);
	if (fchownat(at, t->name, n->uid, n->gid, AT_SYMLINK_NOFOLLOW) < 0 ||
	        utimensat(at, t->name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return failed(t, "symbolic link", errno);
	return 0;
}

static int make(struct take *t, const struct tree_node *n)
{
	switch ((enum tree_type)n->type) {
	case TREE_FOLDER:
		return make_folder(t, n);
	case TREE_FILE:
		return make_file(t, n);
	case TREE_LINK:
		return make_link(t, n);
	case TREE_HARD:
		return make_hard(t, n);
	case TREE_END:
		break;
	}
	return 0;
}

static int take_all(struct take *t)
{
	struct tree_node n;
	for (;;) {
		int e = take_node(t, &n);
		if (e)
			return e;
		if (n.type == TREE_END)
			return 0;
		while (t->levels.n > n.depth)
			if (t->levels.n == 0 || (e = leave_folder(t)))
				return e;
		e = make(t, &n);
		if (e)
			return e;
	}
}

/* ---- the beginning and the end ---- */

static int drop_links(struct take *t)
{
	for (size_t i = 0; i < t->n_linked; i++) {
		char name[48];
		link_name(t, t->linked[i], name);
		if (unlinkat(t->home, name, 0) < 0 && errno != ENOENT)
			return failed(t, "links", errno);
	}
	return 0;
}

static int must_be_empty(struct take *t)
{
	char listing[4096] __attribute__((aligned(8)));
	int fd = entry_open(t->home, ".", O_RDONLY | O_DIRECTORY, 0);
	long n;
	int e = 0;
	if (fd < 0)
		return failed(t, "open home", errno);
	while (!e && (n = entries_read(fd, listing, sizeof(listing))) > 0)
		for (long at = 0; at < n;) {
			const struct entry *d = (const struct entry *)(listing + at);
			at += d->reclen;
			if (strcmp(d->name, ".") != 0 && strcmp(d->name, "..") != 0)
				e = failed(t, "home", ENOTEMPTY);
		}
	close(fd);
	return e;
}

int tree_take(int home, int pipe, const char **ret_step)
{
	struct take *t = calloc(1, sizeof(*t));
	*ret_step = "memory";
	if (!t)
		return ENOMEM;
	t->pipe = pipe;
	t->home = home;
	t->step = "";
	int e = must_be_empty(t);
	if (!e)
		e = take_all(t);
	if (!e)
		e = drop_links(t);
	while (!e && t->levels.n > 0)
		e = leave_folder(t);
	if (!e && syncfs(home) < 0)
		e = failed(t, "sync", errno);
	*ret_step = t->step;
	levels_free(&t->levels);
	free(t->linked);
	free(t);
	return e;
}
