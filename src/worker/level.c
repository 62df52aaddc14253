/* The stack of folders of a walk. */
#include "worker/level.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

long entries_read(int fd, void *buffer, size_t size)
{
	return syscall(SYS_getdents64, fd, buffer, size);
}

#define OPEN_TRIES 32

static int open_with(int at, const char *name, int flags, unsigned int mode, uint64_t resolve)
{
	const struct open_how how = {
	        .flags = (uint64_t)(flags | O_NOFOLLOW | O_CLOEXEC),
	        .mode = mode,
	        .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV | resolve,
	};

	int fd, tries = 0;

	/* It also ends with EAGAIN where something was renamed at that moment. */
	do
		fd = (int)syscall(SYS_openat2, at, name, &how, sizeof(how));
	while (fd < 0 && errno == EAGAIN && ++tries < OPEN_TRIES);
	return fd;
}

int entry_open(int at, const char *name, int flags, unsigned int mode)
{
	return open_with(at, name, flags, mode, RESOLVE_BENEATH);
}

int levels_enter(struct levels *l, int fd, const char *name)
{
	struct stat st;

	if (name) {
		fd = entry_open(levels_top(l)->fd, name, O_RDONLY | O_DIRECTORY, 0);
		if (fd < 0)
			return errno;
	}
	if (l->n > TREE_DEPTH_MAX || fstat(fd, &st) < 0) {
		int e = l->n > TREE_DEPTH_MAX ? ENAMETOOLONG : errno;
		close(fd);
		return e;
	}
	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 64;
		struct level *list = realloc(l->list, cap * sizeof(*list));
		if (!list) {
			close(fd);
			return ENOMEM;
		}
		l->list = list;
		l->cap = cap;
	}
	if (l->n > LEVELS_OPEN && l->list[l->n - LEVELS_OPEN].fd >= 0) {
		close(l->list[l->n - LEVELS_OPEN].fd);
		l->list[l->n - LEVELS_OPEN].fd = -1;
	}
	l->list[l->n] = (struct level){.fd = fd, .inode = st.st_ino};
	l->n++;
	return 0;
}

int levels_leave(struct levels *l)
{
	struct level *top = levels_top(l), *up = l->n > 1 ? top - 1 : NULL;
	struct stat st;
	int e = 0;

	if (up && up->fd < 0) {
		/* ".." of a folder that was moved elsewhere meanwhile is another one. */
		up->fd = open_with(top->fd, "..", O_RDONLY | O_DIRECTORY, 0, 0);
		if (up->fd < 0 || fstat(up->fd, &st) < 0)
			e = errno;
		else if (st.st_ino != up->inode)
			e = ESTALE;
	}
	close(top->fd);
	free(top->xattrs);
	l->n--;
	return e;
}

void levels_free(struct levels *l)
{
	while (l->n > 0) {
		struct level *top = levels_top(l);
		if (top->fd >= 0)
			close(top->fd);
		free(top->xattrs);
		l->n--;
	}
	free(l->list);
	*l = (struct levels){0};
}
