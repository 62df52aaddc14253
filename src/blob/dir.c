/*
 * Blobs as files of one folder: the key is the path.
 *
 * Theory of operation. A value under way is a file without a name (O_TMPFILE): a process that dies
 * takes it along, and nothing has to be cleaned up. linkat() gives it its name in one step, and
 * refuses where there is one already. To replace a value the file gets a name that no key can have
 * (capital letters) and is renamed over the old one; such a name that a killed process left behind
 * is removed when the folder is opened an hour later.
 *
 * Folders are made when a link finds none, and taken away when a deletion leaves them empty, so the
 * two may meet: then the link is tried again. An open descriptor keeps a value whole, whatever
 * happens to its name. The age of a value is the time since its mtime.
 *
 * Nothing here is remembered between calls, so threads and processes share it through the file
 * system alone. With power, the file and every folder whose entries changed are fsynced before a
 * call reports success.
 */
#include "blob/blob.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define KEY_CHARS "abcdefghijklmnopqrstuvwxyz0123456789._-"
#define LEFTOVER  "TMP-"
/* How often a link may find its folder gone again before that is called an error. */
#define LINK_TRIES       64
#define ROOM_CHECK_BYTES ((uint64_t)1 << 20)
#define LEFTOVER_AGE_MS  (3600 * 1000)
#define DEPTH_MAX        (BLOB_KEY_MAX / 2 + 1)

struct blob_store {
	int dir;
	bool power;
	uint64_t reserve;
};

struct blob_put {
	struct blob_store *s;
	int fd;
	uint64_t unchecked; /* bytes written since free room was looked at */
};

/* ---- keys ---- */

static int key_check(struct str key, char path[BLOB_KEY_MAX + 1], struct error *err)
{
	if (key.n == 0 || key.n > BLOB_KEY_MAX)
		return error_set(
		        err, ERR_INVALID, "a blob's key has 1 to %d characters", BLOB_KEY_MAX);
	for (size_t i = 0, begin = 0; i <= key.n; i++) {
		if (i < key.n && key.p[i] != '/')
			continue;
		struct str part = {key.p + begin, i - begin};

		if (!str_in_set(part, KEY_CHARS) || str_is(part, ".") || str_is(part, ".."))
			return error_set(err, ERR_INVALID, "a part of a blob's key is not allowed");
		begin = i + 1;
	}
	memcpy(path, key.p, key.n);
	path[key.n] = 0;
	return 0;
}

static int fail(struct error *err, int errnum, const char *step)
{
	if (errnum == ENOSPC || errnum == EDQUOT)
		return error_set(err, ERR_UNAVAILABLE, "there is no room on the server's disk");
	return error_errno(err, errnum, "blob: %s", step);
}

/* ---- opening ---- */

static int64_t age_of(const struct stat *st)
{
	int64_t age = clock_wall_ms() -
	              ((int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000);

	return age > 0 ? age : 0;
}

static void remove_leftovers(struct blob_store *s)
{
	int fd = openat(s->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *e;
	struct stat st;

	if (d == NULL) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((e = readdir(d)) != NULL)
		if (str_starts(str_of(e->d_name), LEFTOVER) &&
		        fstatat(s->dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		        age_of(&st) > LEFTOVER_AGE_MS)
			unlinkat(s->dir, e->d_name, 0);
	closedir(d);
}

int blob_open(const struct blob_options *o, struct blob_store **ret, struct error *err)
{
	struct blob_store *s;
	int dir;

	if (mkdir(o->folder, 0700) < 0 && errno != EEXIST)
		return fail(err, errno, o->folder);
	dir = open(o->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dir < 0)
		return fail(err, errno, o->folder);
	s = mem_alloc(sizeof(*s));
	*s = (struct blob_store){.dir = dir, .power = o->power, .reserve = o->reserve};
	remove_leftovers(s);
	*ret = s;
	return 0;
}

struct blob_store *blob_close(struct blob_store *s)
{
	if (s != NULL) {
		close(s->dir);
		free(s);
	}
	return NULL;
}

/* ---- a value under way ---- */

static int check_room(const struct blob_store *s, struct error *err)
{
	struct statvfs st;

	if (s->reserve == 0)
		return 0;
	if (fstatvfs(s->dir, &st) < 0)
		return fail(err, errno, "free room");
	return (uint64_t)st.f_bavail * st.f_frsize < s->reserve ? fail(err, ENOSPC, "free room")
	                                                        : 0;
}

int blob_put_begin(struct blob_store *s, struct blob_put **ret, struct error *err)
{
	int r = check_room(s, err), fd;

	if (r < 0)
		return r;
	fd = openat(s->dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail(err, errno, "make a file");
	*ret = mem_alloc(sizeof(**ret));
	**ret = (struct blob_put){.s = s, .fd = fd};
	return 0;
}

int blob_put_write(struct blob_put *p, struct str bytes, struct error *err)
{
	size_t done = 0;
	int r;

	p->unchecked += bytes.n;
	if (p->unchecked >= ROOM_CHECK_BYTES) {
		p->unchecked = 0;
		r = check_room(p->s, err);
		if (r < 0)
			return r;
	}
	while (done < bytes.n) {
		ssize_t n = write(p->fd, bytes.p + done, bytes.n - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fail(err, n < 0 ? errno : ENOSPC, "write");
		done += (size_t)n;
	}
	return 0;
}

int blob_put_sync(struct blob_put *p, struct error *err)
{
	return p->s->power && fsync(p->fd) < 0 ? fail(err, errno, "fsync") : 0;
}

struct blob_put *blob_put_abort(struct blob_put *p)
{
	if (p != NULL) {
		close(p->fd);
		free(p);
	}
	return NULL;
}

/* ---- names ---- */

/* Cuts the last part off: "doc/7f/7f3a" → "doc/7f"; false where there is one part only. */
static bool cut_last(char *path)
{
	char *slash = strrchr(path, '/');

	if (slash == NULL)
		return false;
	*slash = 0;
	return true;
}

static int sync_folder(const struct blob_store *s, const char *path)
{
	int fd = openat(s->dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW), r;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	r = fsync(fd) < 0 ? -errno : 0;
	close(fd);
	return r;
}

/* All folders from the key's own up to the top: each may be new. */
static int sync_folders(const struct blob_store *s, const char *key)
{
	char path[BLOB_KEY_MAX + 1];
	int r = 0;

	str_copy(path, sizeof(path), str_of(key));
	while (r == 0 && cut_last(path))
		r = sync_folder(s, path);
	return r < 0 ? r : sync_folder(s, ".");
}

static int make_folders(const struct blob_store *s, const char *key)
{
	char path[BLOB_KEY_MAX + 1];

	str_copy(path, sizeof(path), str_of(key));
	for (char *at = strchr(path, '/'); at != NULL; at = strchr(at + 1, '/')) {
		*at = 0;
		if (mkdirat(s->dir, path, 0700) < 0 && errno != EEXIST)
			return -errno;
		*at = '/';
	}
	return 0;
}

/* Does once() until it does not fail for want of a folder. */
static int with_folders(const struct blob_store *s, const char *key,
        int (*once)(const struct blob_store *s, const char *key, const void *arg), const void *arg)
{
	int r = -ENOENT;

	for (int i = 0; i < LINK_TRIES && r == -ENOENT; i++) {
		r = once(s, key, arg);
		if (r == -ENOENT) {
			int made = make_folders(s, key);

			/* -ENOENT: the folder above went away meanwhile. */
			r = made == 0 ? -ENOENT : made;
		}
	}
	return r;
}

static int link_once(const struct blob_store *s, const char *key, const void *arg)
{
	char self[40];

	str_format(self, sizeof(self), "/proc/self/fd/%d", *(const int *)arg);
	return linkat(AT_FDCWD, self, s->dir, key, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static int rename_once(const struct blob_store *s, const char *key, const void *arg)
{
	return renameat(s->dir, arg, s->dir, key) < 0 ? -errno : 0;
}

/* A key that goes through a value, or names a folder of other keys. */
static int fail_name(struct error *err, int errnum, const char *step)
{
	if (errnum == ENOTDIR || errnum == EISDIR || errnum == ENOTEMPTY)
		return error_set(err, ERR_INVALID, "a blob's key may not lie below another's");
	return fail(err, errnum, step);
}

/* What a value under way needs before it gets a name. */
static int put_settle(const struct blob_put *p, struct error *err)
{
	if (futimens(p->fd, NULL) < 0)
		return fail(err, errno, "set the time");
	if (p->s->power && fsync(p->fd) < 0)
		return fail(err, errno, "fsync");
	return 0;
}

/* Whether what stands at this name already is a value. */
static int there_already(const struct blob_store *s, const char *path, struct error *err)
{
	struct stat st;

	if (fstatat(s->dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode))
		return fail_name(err, EISDIR, "link");
	return 0;
}

static int put_commit(const struct blob_put *p, struct str key, struct error *err)
{
	char path[BLOB_KEY_MAX + 1];
	int r = key_check(key, path, err);

	if (r == 0)
		r = put_settle(p, err);
	if (r < 0)
		return r;
	r = with_folders(p->s, path, link_once, &p->fd);
	if (r == -EEXIST)
		return there_already(p->s, path, err);
	if (r == 0 && p->s->power)
		r = sync_folders(p->s, path);
	return r < 0 ? fail_name(err, -r, "link") : 1;
}

int blob_put_commit(struct blob_put *p, struct str key, struct error *err)
{
	int r = put_commit(p, key, err);

	blob_put_abort(p);
	return r;
}

static int put_replace(const struct blob_put *p, struct str key, struct error *err)
{
	char path[BLOB_KEY_MAX + 1], name[40];
	int r = key_check(key, path, err);

	if (r == 0)
		r = put_settle(p, err);
	if (r < 0)
		return r;
	id_make(name, sizeof(name), LEFTOVER, 24);
	r = link_once(p->s, name, &p->fd);
	if (r < 0)
		return fail(err, -r, "link");
	r = with_folders(p->s, path, rename_once, name);
	if (r < 0) {
		unlinkat(p->s->dir, name, 0);
		return fail_name(err, -r, "rename");
	}
	if (p->s->power)
		r = sync_folders(p->s, path);
	return r < 0 ? fail(err, -r, "fsync") : 0;
}

int blob_put_replace(struct blob_put *p, struct str key, struct error *err)
{
	int r = put_replace(p, key, err);

	blob_put_abort(p);
	return r;
}

/* ---- values ---- */

static bool means_absent(int errnum)
{
	return errnum == ENOENT || errnum == ENOTDIR;
}

int blob_get(
        struct blob_store *s, struct str key, int *ret_fd, uint64_t *ret_size, struct error *err)
{
	char path[BLOB_KEY_MAX + 1];
	struct stat st;
	int r = key_check(key, path, err), fd;

	if (r < 0)
		return r;
	fd = openat(s->dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 && !means_absent(errno))
		return fail(err, errno, "open");
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		*ret_fd = fd;
		*ret_size = (uint64_t)st.st_size;
		return 0;
	}
	if (fd >= 0)
		close(fd);
	return error_set(err, ERR_NOT_FOUND, "there is no blob of this key");
}

int blob_delete(struct blob_store *s, struct str key, struct error *err)
{
	char path[BLOB_KEY_MAX + 1];
	int r = key_check(key, path, err);

	if (r < 0)
		return r;
	if (unlinkat(s->dir, path, 0) < 0)
		return means_absent(errno) || errno == EISDIR ? 0 : fail(err, errno, "unlink");
	/* Folders that are empty now. Where the first one goes, its entry in the next must be
	 * durable in place of the value's own; a crash in between leaves an empty folder and no
	 * more. */
	while (cut_last(path) && unlinkat(s->dir, path, AT_REMOVEDIR) == 0)
		;
	if (s->power) {
		str_copy(path, sizeof(path), key);
		r = sync_folders(s, path);
	}
	return r < 0 ? fail(err, -r, "fsync") : 1;
}

int blob_touch(struct blob_store *s, struct str key, struct error *err)
{
	char path[BLOB_KEY_MAX + 1];
	struct stat st;
	int r = key_check(key, path, err);

	if (r < 0)
		return r;
	if (fstatat(s->dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode))
		return 0;
	if (utimensat(s->dir, path, NULL, AT_SYMLINK_NOFOLLOW) < 0)
		return means_absent(errno) ? 0 : fail(err, errno, "set the time");
	return 1;
}

/* ---- listing ---- */

/* A walk keeps the open folders from the prefix down, and the key of where it is. */
struct walk {
	DIR *open[DEPTH_MAX];
	size_t key_len[DEPTH_MAX]; /* of that folder, with its slash */
	size_t depth;
	char key[BLOB_KEY_MAX + 2];
};

static int walk_enter(struct walk *w, int at, const char *name, size_t key_len)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;

	if (d == NULL) {
		int e = errno;

		if (fd >= 0)
			close(fd);
		return -e;
	}
	w->open[w->depth] = d;
	w->key_len[w->depth] = key_len;
	w->depth++;
	return 0;
}

static void walk_leave(struct walk *w)
{
	closedir(w->open[--w->depth]);
}

/* One entry of the innermost folder. 1: go on, 0: each() wants no more. */
static int walk_step(struct walk *w, const struct dirent *e, blob_each_fn *each, void *ctx)
{
	struct str name = str_of(e->d_name);
	size_t at = w->key_len[w->depth - 1];
	int dir = dirfd(w->open[w->depth - 1]);
	struct stat st;

	if (!str_in_set(name, KEY_CHARS) || str_is(name, ".") || str_is(name, "..") ||
	        at + name.n > BLOB_KEY_MAX)
		return 1;
	if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 1 : -errno;
	memcpy(w->key + at, name.p, name.n);
	if (S_ISREG(st.st_mode))
		return each(ctx, (struct str){w->key, at + name.n}, (uint64_t)st.st_size,
		               age_of(&st))
		               ? 1
		               : 0;
	if (!S_ISDIR(st.st_mode) || w->depth == DEPTH_MAX)
		return 1;
	w->key[at + name.n] = '/';
	int r = walk_enter(w, dir, e->d_name, at + name.n + 1);

	return r < 0 && !means_absent(-r) ? r : 1;
}

int blob_list(
        struct blob_store *s, struct str prefix, blob_each_fn *each, void *ctx, struct error *err)
{
	char path[BLOB_KEY_MAX + 1] = ".";
	struct walk w = {.depth = 0};
	int r = prefix.n > 0 ? key_check(prefix, path, err) : 0;

	if (r < 0)
		return r;
	if (prefix.n > 0) {
		memcpy(w.key, prefix.p, prefix.n);
		w.key[prefix.n] = '/';
	}
	r = walk_enter(&w, s->dir, path, prefix.n > 0 ? prefix.n + 1 : 0);
	if (r < 0)
		return means_absent(-r) ? 0 : fail(err, -r, "open folder");
	r = 1;
	while (w.depth > 0 && r > 0) {
		const struct dirent *e;

		errno = 0;
		e = readdir(w.open[w.depth - 1]);
		if (e != NULL)
			r = walk_step(&w, e, each, ctx);
		else if (errno != 0)
			r = -errno;
		else
			walk_leave(&w);
	}
	while (w.depth > 0)
		walk_leave(&w);
	return r < 0 ? fail(err, -r, "list") : 0;
}
