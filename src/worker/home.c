/*
 * Theory of operation.
 *
 * A path is opened as a whole with openat2, which stays beneath the root and follows no link. What
 * is to be opened is first looked at through a descriptor that opens nothing (O_PATH), so that no
 * FIFO or socket is ever opened but where the guest exchanges it in between; then the opening does
 * not wait (O_NONBLOCK), what comes is looked at again, and is closed. Devices cannot be opened at
 * all: the mount is nodev.
 *
 * A new file has no name while it is written. It gets it in one step where nothing has that name;
 * else it gets another one beside it, which is renamed over the old: at every moment either the
 * old or the new file stands there, whole.
 */
#include "worker/home.h"

#include "init/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statfs.h>
#include <unistd.h>

#define BENEATH   (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV)
#define NAME_SIZE 256

static struct {
	int dir, proc;
} home = {-1, -1};

void home_open(int dir, int proc)
{
	home.dir = dir;
	home.proc = proc;
}

static int fail(const char **ret_step, const char *step, int errnum)
{
	*ret_step = step;
	return -errnum;
}

/* As the kernel may ask, a few times again: a rename elsewhere in the home is in the way. */
static int open_beneath(int dir, const char *path, uint64_t flags, uint64_t mode)
{
	int fd = -1;

	for (int i = 0; i < 16; i++) {
		fd = sys_openat2(dir, path, flags | O_CLOEXEC, mode, BENEATH);
		if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
	}
	return fd < 0 ? -errno : fd;
}

static int kind_error(const struct stat *st)
{
	if (S_ISREG(st->st_mode))
		return 0;
	return S_ISDIR(st->st_mode) ? EISDIR : S_ISLNK(st->st_mode) ? ELOOP : ENXIO;
}

int home_folder(const char *path)
{
	return open_beneath(home.dir, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
}

int home_stat_at(int folder, const char *name, struct stat *ret)
{
	return fstatat(folder, name, ret, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

int home_stat(const char *path, struct stat *ret, const char **ret_step)
{
	int fd = open_beneath(home.dir, path, O_PATH | O_NOFOLLOW, 0);
	int rc;

	if (fd < 0)
		return fail(ret_step, "open", -fd);
	rc = fstat(fd, ret) < 0 ? errno : kind_error(ret);
	close(fd);
	return rc ? fail(ret_step, "not a regular file", rc) : 0;
}

int home_read(const char *path, struct stat *ret, const char **ret_step)
{
	int rc = home_stat(path, ret, ret_step);
	int fd;

	if (rc < 0)
		return rc;
	fd = open_beneath(home.dir, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0)
		return fail(ret_step, "open", -fd);
	rc = fstat(fd, ret) < 0 ? errno : kind_error(ret);
	if (rc == 0)
		return fd;
	close(fd);
	return fail(ret_step, "not a regular file", rc);
}

int home_create(uint64_t size, const char **ret_step)
{
	struct statfs fs;
	int fd;

	/* The kernel would first take what there is and then say that it is not enough. */
	if (fstatfs(home.dir, &fs) == 0 && size > (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize)
		return fail(ret_step, "room for the file", ENOSPC);
	fd = open_beneath(home.dir, ".", O_TMPFILE | O_WRONLY, 0644);
	if (fd < 0)
		return fail(ret_step, "make file", -fd);
	if (fchmod(fd, 0644) < 0 ||
	        (size && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)size) < 0 &&
	                errno != EOPNOTSUPP)) {
		int errnum = errno;

		close(fd);
		return fail(ret_step, "room for the file", errnum);
	}
	return fd;
}

/* ---- names ---- */

/* The folder that holds path, and its last part. With make, folders that are missing are made. */
static int open_parent(const char *path, bool make, const char **ret_name, const char **ret_step)
{
	const char *slash = strrchr(path, '/');
	char part[NAME_SIZE];
	int dir;

	*ret_name = slash ? slash + 1 : path;
	if (strlen(*ret_name) >= NAME_SIZE)
		return fail(ret_step, "name", ENAMETOOLONG);
	dir = open_beneath(home.dir, ".", O_PATH | O_DIRECTORY, 0);
	while (dir >= 0 && path < *ret_name) {
		size_t n = strcspn(path, "/");
		int next = -ENAMETOOLONG;

		if (n < sizeof part) {
			memcpy(part, path, n);
			part[n] = '\0';
			next = open_beneath(dir, part, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
			if (next == -ENOENT && make &&
			        (mkdirat(dir, part, 0755) == 0 || errno == EEXIST))
				next = open_beneath(
				        dir, part, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
			else if (next == -ENOENT && make)
				next = -errno;
		}
		close(dir);
		dir = next;
		path += n + 1;
	}
	if (dir == -ELOOP) /* a link is no folder, wherever it leads */
		dir = -ENOTDIR;
	return dir < 0 ? fail(ret_step, "folder", -dir) : dir;
}

static int link_at(int file, int dir, const char *name)
{
	char number[16];

	if (home.proc < 0)
		return linkat(file, "", dir, name, AT_EMPTY_PATH) < 0 ? -errno : 0;
	snprintf(number, sizeof number, "%d", file);
	return linkat(home.proc, number, dir, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

/* In place of the file or link that has the name. */
static int replace(int file, int dir, const char *name)
{
	char other[64];
	uint64_t random;
	struct stat st;
	int rc;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode) &&
	        !S_ISLNK(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EEXIST;
	if (getrandom(&random, sizeof random, 0) != sizeof random)
		return -EIO;
	snprintf(other, sizeof other, ".brig-upload-%016llx", (unsigned long long)random);
	rc = link_at(file, dir, other);
	if (rc < 0)
		return rc;
	if ((int)syscall(SYS_renameat2, dir, other, dir, name, 0) < 0) {
		rc = -errno;
		unlinkat(dir, other, 0);
	}
	return rc;
}

int home_link(int file, const char *path, bool only_new, struct stat *ret, const char **ret_step)
{
	const char *name;
	int dir = open_parent(path, true, &name, ret_step);
	int rc;

	if (dir < 0)
		return dir;
	/* What was asked for and not written is given back. */
	if (fstat(file, ret) == 0 &&
	        (uint64_t)ret->st_blocks * 512 > (uint64_t)ret->st_size + 65536)
		(void)!ftruncate(file, ret->st_size);
	rc = link_at(file, dir, name);
	if (rc == -EEXIST && !only_new)
		rc = replace(file, dir, name);
	if (rc == 0 && fstat(file, ret) < 0)
		rc = -errno;
	close(dir);
	return rc < 0 ? fail(ret_step, "give the file its name", -rc) : 0;
}

int home_delete(const char *path, const char **ret_step)
{
	struct stat st;
	const char *name;
	int dir = open_parent(path, false, &name, ret_step);
	int rc;

	if (dir < 0)
		return dir;
	rc = home_stat_at(dir, name, &st);
	if (rc == 0 && kind_error(&st)) {
		close(dir);
		return fail(ret_step, "not a regular file", kind_error(&st));
	}
	if (rc == 0 && unlinkat(dir, name, 0) < 0)
		rc = -errno;
	close(dir);
	return rc < 0 ? fail(ret_step, "remove", -rc) : 0;
}

int home_sync(const char **ret_step)
{
	return syncfs(home.dir) < 0 ? fail(ret_step, "syncfs", errno) : 0;
}
