/* Which paths there can be, and a worker's failures in the caller's terms. */
#include "container/files.h"

#include "container/internal.h"

#include <errno.h>

bool container_path_valid(struct str path)
{
	size_t begin = 0;

	if (path.n < 1 || path.n > WORKER_PATH_MAX || memchr(path.p, 0, path.n) != NULL)
		return false;
	for (size_t i = 0; i <= path.n; i++) {
		struct str part = {path.p + begin, i - begin};

		if (i < path.n && path.p[i] != '/')
			continue;
		if (part.n == 0 || str_is(part, ".") || str_is(part, ".."))
			return false;
		begin = i + 1;
	}
	return true;
}

void container_error_home_full(struct error *e)
{
	error_set(e, ERR_TOO_LARGE, "The container's home has no room for this file.");
	str_copy(e->type, sizeof(e->type), STR("home_full"));
}

void error_from_worker(enum worker_op op, const struct worker_failed *f, struct error *e)
{
	bool names = op == WORKER_LINK;

	switch ((int)f->errnum) {
	case ENOENT:
	case ELOOP:
	case ENXIO:
	case ENOTDIR:
	case EISDIR:
	case EXDEV:
	case EACCES:
	case EPERM:
		if (names)
			error_set(e, ERR_CONFLICT,
			        f->errnum == EISDIR ? "There is a folder at this path."
			                            : "A part of this path is no folder.");
		else
			error_set(e, ERR_NOT_FOUND, "There is no such file.");
		return;
	case EINVAL:
	case ENAMETOOLONG:
	case EILSEQ:
		if (names)
			error_set(e, ERR_INVALID, "This path is no possible name of a file.");
		else
			error_set(e, ERR_NOT_FOUND, "There is no such file.");
		return;
	case ENOSPC:
	case EDQUOT:
		container_error_home_full(e);
		return;
	case EMFILE:
	case ENFILE:
		error_set(e, ERR_UNAVAILABLE, "There are too many uploads to this container.");
		e->retry_after_ms = 1000;
		return;
	default:
		error_errno(e, (int)f->errnum, "a container's files: %.51s", f->step);
		e->code = ERR_IO;
	}
}

void container_error_gone(struct error *e)
{
	error_set(e, ERR_UNAVAILABLE, "The container's files went out of reach meanwhile.");
	e->retry_after_ms = 1000;
}
