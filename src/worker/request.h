/*
 * The gate of a worker: what a gateway's datagram says, checked. Pure; nothing is kept.
 */
#ifndef BRIG_WORKER_REQUEST_H
#define BRIG_WORKER_REQUEST_H

#include "proto/worker.h"

#include <stdbool.h>
#include <stddef.h>

#define REQUEST_MAX (sizeof(struct worker_link) + WORKER_PATH_MAX)

struct request {
	uint16_t op;
	uint32_t seq;
	uint32_t limit;     /* LIST, RECENT */
	uint32_t budget_us; /* RECENT */
	uint64_t since_ns;  /* RECENT */
	uint64_t size;      /* CREATE */
	uint64_t handle;    /* LINK, DROP */
	uint32_t flags;     /* LINK */
	bool path_sound;    /* false: the path (of LIST: `after`) has an illegal part */
	size_t path_len;
	char path[WORKER_PATH_MAX + 1]; /* NUL-terminated */
};

/* False: it breaks the protocol, and its socket is to be closed. */
bool request_parse(const void *bytes, size_t len, struct request *ret);

#endif
