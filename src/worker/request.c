#include "worker/request.h"

#include <string.h>

union fixed {
	struct worker_header h;
	struct worker_list list;
	struct worker_recent recent;
	struct worker_path path;
	struct worker_create create;
	struct worker_handle handle;
	struct worker_link link;
};

static size_t size_of_op(uint16_t op)
{
	switch (op) {
	case WORKER_LIST:
		return sizeof(struct worker_list);
	case WORKER_RECENT:
		return sizeof(struct worker_recent);
	case WORKER_STAT:
	case WORKER_OPEN:
	case WORKER_DELETE:
		return sizeof(struct worker_path);
	case WORKER_CREATE:
		return sizeof(struct worker_create);
	case WORKER_LINK:
		return sizeof(struct worker_link);
	case WORKER_DROP:
		return sizeof(struct worker_handle);
	case WORKER_SYNC:
		return sizeof(struct worker_header);
	default:
		return 0;
	}
}

/* No leading slash, no empty, "." or ".." part. */
static bool parts_sound(const char *path, size_t len)
{
	size_t at = 0;

	if (len == 0)
		return false;
	while (at <= len) {
		const char *slash = memchr(path + at, '/', len - at);
		size_t n = slash ? (size_t)(slash - path) - at : len - at;
		const char *part = path + at;

		if (n == 0 || (n == 1 && part[0] == '.') ||
		        (n == 2 && part[0] == '.' && part[1] == '.'))
			return false;
		at += n + 1;
	}
	return true;
}

static bool take_path(struct request *r, const char *bytes, size_t len, size_t said)
{
	if (said != len || len > WORKER_PATH_MAX)
		return false;
	memcpy(r->path, bytes, len);
	r->path[len] = '\0';
	r->path_len = len;
	r->path_sound = !memchr(bytes, '\0', len);
	/* What a list goes on after is compared and never opened. */
	if (r->op != WORKER_LIST)
		r->path_sound = r->path_sound && parts_sound(bytes, len);
	return len > 0 || r->op == WORKER_LIST;
}

static bool take_list(struct request *r, const struct worker_list *m)
{
	r->limit = m->limit;
	return m->limit >= 1 && m->limit <= WORKER_LIST_MAX;
}

static bool take_recent(struct request *r, const struct worker_recent *m)
{
	r->limit = m->limit;
	r->since_ns = m->since_ns;
	r->budget_us = m->budget_us;
	return m->limit >= 1 && m->limit <= WORKER_RECENT_MAX && m->budget_us >= 100 &&
	       m->budget_us <= 1000000;
}

static bool take_link(struct request *r, const struct worker_link *m)
{
	r->handle = m->handle;
	r->flags = m->flags;
	return (m->flags & ~WORKER_LINK_NEW) == 0;
}

bool request_parse(const void *bytes, size_t len, struct request *ret)
{
	union fixed m;
	size_t size;
	const char *rest;

	if (len < sizeof m.h || len > REQUEST_MAX)
		return false;
	memcpy(&m.h, bytes, sizeof m.h);
	size = size_of_op(m.h.op);
	if (size == 0 || m.h.size != size || len < size)
		return false;
	memcpy(&m, bytes, size);
	rest = (const char *)bytes + size;
	len -= size;
	*ret = (struct request){.op = m.h.op, .seq = m.h.seq, .path_sound = true};
	switch ((enum worker_op)m.h.op) {
	case WORKER_LIST:
		return take_list(ret, &m.list) && take_path(ret, rest, len, m.list.path_len);
	case WORKER_RECENT:
		return take_recent(ret, &m.recent) && len == 0;
	case WORKER_STAT:
	case WORKER_OPEN:
	case WORKER_DELETE:
		return m.path.pad == 0 && take_path(ret, rest, len, m.path.path_len);
	case WORKER_CREATE:
		ret->size = m.create.size;
		return m.create.size <= 1ULL << 40 && len == 0;
	case WORKER_LINK:
		return take_link(ret, &m.link) && take_path(ret, rest, len, m.link.path_len);
	case WORKER_DROP:
		ret->handle = m.handle.handle;
		return len == 0;
	case WORKER_SYNC:
		return len == 0;
	case WORKER_SAVE: /* it brings a descriptor, which is not taken here */
	case WORKER_RESTORE:
	case WORKER_ENTRY:
	case WORKER_CREATED:
	case WORKER_DONE:
	case WORKER_FAILED:
		break;
	}
	return false;
}
