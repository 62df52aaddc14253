/*
 * Sending a home. In each folder first everything that is no folder goes out, then one folder after
 * the other is entered; coming back, its listing goes on behind that one. What disappears while we
 * look at it is left out: a save is of a moment for each file, not for the tree.
 */
#include "worker/tree.h"

#include "worker/level.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define LISTING   32768
#define FOLDERS   2048 /* of a listing that is begun anew after each folder */
#define BYTES     (256 * 1024)
#define NAMES_MAX 65536 /* of extended attributes */

struct send {
	int pipe;
	int64_t same_before_ns;
	const char *step;
	struct levels levels;
	/* Inodes with several names that went out already; open addressing. */
	uint64_t *linked;
	size_t linked_size, linked_n;
	size_t used;
	uint8_t out[BYTES + 4096];
	uint8_t xattrs[TREE_XATTR_MAX];
	char names[NAMES_MAX];
	uint8_t bytes[BYTES];
	char listing[LISTING] __attribute__((aligned(8)));
};

static int failed(struct send *s, const char *step, int e)
{
	s->step = step;
	return e;
}

/* ---- output ---- */

static int write_all(struct send *s, const void *data, size_t n)
{
	const uint8_t *p = data;
	while (n > 0) {
		ssize_t put = write(s->pipe, p, n);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return failed(s, "write", errno);
		p += put;
		n -= (size_t)put;
	}
	return 0;
}

static int flush(struct send *s)
{
	size_t n = s->used;
	s->used = 0;
	return write_all(s, s->out, n);
}

static int put(struct send *s, const void *data, size_t n)
{
	if (s->used + n > sizeof(s->out)) {
		int e = flush(s);
		if (e)
			return e;
		if (n > sizeof(s->out))
			return write_all(s, data, n);
	}
	if (n > 0)
		memcpy(s->out + s->used, data, n);
	s->used += n;
	return 0;
}

/* ---- files with several names ---- */

static bool linked_add(struct send *s, uint64_t inode);

static bool linked_grow(struct send *s)
{
	size_t size = s->linked_size, n = 0;
	uint64_t *old = s->linked;
	s->linked_size = size ? 2 * size : 1024;
	s->linked = calloc(s->linked_size, sizeof(*old));
	s->linked_n = 0;
	if (!s->linked) {
		s->linked = old;
		s->linked_size = size;
		return false;
	}
	for (; n < size; n++)
		if (old[n])
			linked_add(s, old[n]);
	free(old);
	return true;
}

/* False: it was in already (or there is no memory: then its bytes go out once more). */
static bool linked_add(struct send *s, uint64_t inode)
{
	if (2 * (s->linked_n + 1) > s->linked_size && !linked_grow(s))
		return true;
	size_t i = (size_t)(inode * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (s->linked_size - 1);
	for (; s->linked[i]; i = (i + 1) & (s->linked_size - 1))
		if (s->linked[i] == inode)
			return false;
	s->linked[i] = inode;
	s->linked_n++;
	return true;
}

/* ---- nodes ---- */

static bool attribute_travels(const char *name)
{
	return strncmp(name, "user.", 5) == 0 || strcmp(name, "security.capability") == 0 ||
	       strcmp(name, "system.posix_acl_access") == 0 ||
	       strcmp(name, "system.posix_acl_default") == 0;
}

/* Fills s->xattrs; returns their length. What does not fit or cannot be read is left out. */
static uint32_t read_xattrs(struct send *s, int fd)
{
	ssize_t n = flistxattr(fd, s->names, sizeof(s->names));
	size_t used = 0;
	for (ssize_t at = 0; at < n; at += (ssize_t)strlen(s->names + at) + 1) {
		const char *name = s->names + at;
		struct tree_xattr x = {.name_len = (uint16_t)strlen(name)};
		size_t begin = used + sizeof(x) + x.name_len;
		/* room for none would ask for its length only */
		if (!attribute_travels(name) || begin >= TREE_XATTR_MAX)
			continue;
		ssize_t value = fgetxattr(fd, name, s->xattrs + begin, TREE_XATTR_MAX - begin);
		if (value < 0)
			continue;
		x.value_len = (uint32_t)value;
		memcpy(s->xattrs + used, &x, sizeof(x));
		memcpy(s->xattrs + used + sizeof(x), name, x.name_len);
		used = begin + (size_t)value;
	}
	return (uint32_t)used;
}

static int put_node(struct send *s, enum tree_type type, unsigned int flags, uint32_t depth,
        const char *name, const struct stat *st, const char *target, uint32_t xattr_len)
{
	struct tree_node n = {
	        .type = (uint8_t)type,
	        .flags = (uint8_t)flags,
	        .name_len = (uint16_t)strlen(name),
	        .mode = (uint16_t)(st->st_mode & 07777),
	        .target_len = (uint16_t)strlen(target),
	        .depth = depth,
	        /* ids that the container does not have are its nobody's */
	        .uid = st->st_uid > 65535 ? 65534 : st->st_uid,
	        .gid = st->st_gid > 65535 ? 65534 : st->st_gid,
	        .xattr_len = xattr_len,
	        .mtime_ns = (uint32_t)st->st_mtim.tv_nsec,
	        .mtime_s = st->st_mtim.tv_sec,
	        .ctime_ns = st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec,
	        .inode = st->st_ino,
	        .size = type == TREE_FILE ? (uint64_t)st->st_size : 0,
	};
	int e = put(s, &n, sizeof(n));
	if (!e)
		e = put(s, name, n.name_len);
	if (!e)
		e = put(s, target, n.target_len);
	return e ? e : put(s, s->xattrs, xattr_len);
}

/* The bytes from `at` on, up to the next hole or `end`. A file that became shorter just ends. */
static int put_data(struct send *s, int fd, uint64_t at, uint64_t end)
{
	while (at < end) {
		uint64_t n = TREE_PIECE - at % TREE_PIECE;
		n = n < BYTES ? n : BYTES;
		n = n < end - at ? n : end - at;
		ssize_t got = pread(fd, s->bytes, (size_t)n, (off_t)at);
		if (got < 0)
			return failed(s, "read", errno);
		if (got == 0)
			return 0;
		struct tree_extent x = {.offset = at, .length = (uint32_t)got};
		int e = put(s, &x, sizeof(x));
		if (!e)
			e = put(s, s->bytes, (size_t)got);
		if (e)
			return e;
		at += (uint64_t)got;
	}
	return 0;
}

static int put_extents(struct send *s, int fd, uint64_t size)
{
	static const struct tree_extent last;
	uint64_t at = 0;
	int e = 0;
	while (!e && at < size) {
		off_t data = lseek(fd, (off_t)at, SEEK_DATA);
		if (data < 0 || (uint64_t)data >= size)
			break;
		off_t hole = lseek(fd, data, SEEK_HOLE);
		at = hole < 0 || (uint64_t)hole > size ? size : (uint64_t)hole;
		e = put_data(s, fd, (uint64_t)data, at);
	}
	return e ? e : put(s, &last, sizeof(last));
}

static bool is_same(const struct send *s, const struct stat *st)
{
	return st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec < s->same_before_ns;
}

static int send_file(struct send *s, const char *name, uint32_t depth)
{
	int at = levels_top(&s->levels)->fd;
	struct stat st;
	/* Most files of a large home: no more than this call each. */
	if (s->same_before_ns > 0 && fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	        S_ISREG(st.st_mode) && st.st_nlink == 1 && is_same(s, &st))
		return put_node(s, TREE_FILE, TREE_SAME, depth, name, &st, "", 0);
	int fd = entry_open(at, name, O_RDONLY | O_NONBLOCK, 0);
	if (fd < 0)
		/* Gone, or another thing by now. What is there and cannot be read (the guest holds
		 * a lease on it, say) must not be missing from a save that succeeds. */
		return errno == ENOENT || errno == ELOOP || errno == ENOTDIR || errno == ENXIO
		               ? 0
		               : failed(s, "open", errno);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return 0;
	}
	int e;
	if (st.st_nlink > 1 && !linked_add(s, st.st_ino)) {
		e = put_node(s, TREE_HARD, 0, depth, name, &st, "", 0);
	} else {
		bool same = is_same(s, &st);
		unsigned int flags = (same ? TREE_SAME : 0) | (st.st_nlink > 1 ? TREE_LINKED : 0);
		e = put_node(
		        s, TREE_FILE, flags, depth, name, &st, "", same ? 0 : read_xattrs(s, fd));
		if (!e && !same)
			e = put_extents(s, fd, (uint64_t)st.st_size);
	}
	close(fd);
	return e;
}

static int send_link(struct send *s, const char *name, uint32_t depth)
{
	char target[TREE_TARGET_MAX + 2];
	struct stat st;
	int at = levels_top(&s->levels)->fd;
	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISLNK(st.st_mode))
		return 0;
	ssize_t n = readlinkat(at, name, target, sizeof(target));
	if (n <= 0 || n > TREE_TARGET_MAX)
		return 0;
	target[n] = 0;
	return put_node(s, TREE_LINK, 0, depth, name, &st, target, 0);
}

static int send_folder(struct send *s, int fd, const char *name, uint32_t depth)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return failed(s, "stat", errno);
	return put_node(s, TREE_FOLDER, 0, depth, name, &st, "", read_xattrs(s, fd));
}

/* ---- the walk ---- */

static bool is_dots(const char *name)
{
	return name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0));
}

/* All of the top folder that is no folder. (ENOENT: it was removed, and has nothing.) */
static int send_plain(struct send *s)
{
	uint32_t depth = (uint32_t)s->levels.n;
	for (;;) {
		long n = entries_read(levels_top(&s->levels)->fd, s->listing, sizeof(s->listing));
		if (n <= 0)
			return n < 0 && errno != ENOENT ? failed(s, "list", errno) : 0;
		for (long at = 0; at < n;) {
			const struct entry *d = (const struct entry *)(s->listing + at);
			int e = 0;
			at += d->reclen;
			if (d->type == DT_REG)
				e = send_file(s, d->name, depth);
			else if (d->type == DT_LNK)
				e = send_link(s, d->name, depth);
			if (e)
				return e;
		}
	}
}

/* Enters the next folder of the top one, from its place on; *ret_entered false: there is none. */
static int enter_next(struct send *s, bool *ret_entered)
{
	struct level *top = levels_top(&s->levels);
	uint32_t depth = (uint32_t)s->levels.n;
	*ret_entered = false;
	if (lseek(top->fd, top->place, SEEK_SET) < 0)
		return failed(s, "list", errno);
	for (;;) {
		long n = entries_read(top->fd, s->listing, FOLDERS);
		if (n <= 0)
			return n < 0 && errno != ENOENT ? failed(s, "list", errno) : 0;
		for (long at = 0; at < n;) {
			const struct entry *d = (const struct entry *)(s->listing + at);
			at += d->reclen;
			if (d->type != DT_DIR || is_dots(d->name))
				continue;
			top->place = d->off;
			int e = levels_enter(&s->levels, -1, d->name);
			if (e == ENOENT || e == ENOTDIR || e == ELOOP)
				continue;
			if (e)
				return failed(s, "enter", e);
			*ret_entered = true;
			return send_folder(s, levels_top(&s->levels)->fd, d->name, depth);
		}
	}
}

static int walk(struct send *s, int home)
{
	static const struct tree_node end = {.type = TREE_END};
	int fd = entry_open(home, ".", O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return failed(s, "open home", errno);
	int e = levels_enter(&s->levels, fd, NULL);
	if (e)
		return failed(s, "open home", e);
	e = send_folder(s, fd, "", 0);
	if (!e)
		e = send_plain(s);
	while (!e && s->levels.n > 0) {
		bool entered;
		e = enter_next(s, &entered);
		if (!e && entered)
			e = send_plain(s);
		else if (!e && (e = levels_leave(&s->levels)))
			failed(s, "leave", e);
	}
	if (!e)
		e = put(s, &end, sizeof(end));
	return e ? e : flush(s);
}

int tree_send(int home, int pipe, int64_t same_before_ns, const char **ret_step)
{
	struct send *s = calloc(1, sizeof(*s));
	*ret_step = "memory";
	if (!s)
		return ENOMEM;
	s->pipe = pipe;
	s->same_before_ns = same_before_ns;
	s->step = "";
	/* Pages that are written afterwards give their file a new ctime. */
	int e = syncfs(home) < 0 ? failed(s, "sync", errno) : walk(s, home);
	*ret_step = s->step;
	levels_free(&s->levels);
	free(s->linked);
	free(s);
	return e;
}
