/*
 * A gateway's message to a worker: what passes has each field within its bounds, and a path that is
 * called sound has no part that could lead anywhere but down.
 */
#include "base/error.h"
#include "worker/request.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool leads_down(const char *path)
{
	if (*path == '\0')
		return false;
	for (;;) {
		size_t part = strcspn(path, "/");
		if (part == 0 || (part == 1 && path[0] == '.') ||
		        (part == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		if (path[part] == '\0')
			return true;
		path += part + 1;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static struct request r;
	if (!request_parse(data, n, &r))
		return 0;
	if (r.op < WORKER_LIST || r.op > WORKER_SYNC)
		BUG("op %u", r.op);
	if (r.path_len > WORKER_PATH_MAX || r.path[r.path_len] != '\0')
		BUG("a path without an end");
	if (r.path_sound && strlen(r.path) != r.path_len)
		BUG("a NUL in a path");
	bool has_path = r.op == WORKER_STAT || r.op == WORKER_OPEN || r.op == WORKER_LINK ||
	                r.op == WORKER_DELETE;
	if (has_path && r.path_sound != (strlen(r.path) == r.path_len && leads_down(r.path)))
		BUG("a path is called what it is not");
	if (r.op == WORKER_LIST && (r.limit < 1 || r.limit > WORKER_LIST_MAX))
		BUG("limit %u", r.limit);
	if (r.op == WORKER_RECENT && (r.limit < 1 || r.limit > WORKER_RECENT_MAX ||
	                                     r.budget_us < 100 || r.budget_us > 1000000))
		BUG("limit %u, budget %u", r.limit, r.budget_us);
	if (r.op == WORKER_CREATE && r.size > 1ULL << 40)
		BUG("size");
	if (r.op == WORKER_LINK && (r.flags & ~WORKER_LINK_NEW))
		BUG("flags");
	return 0;
}
