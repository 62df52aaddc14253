/*
 * The newest RING_SIZE bytes of a stream, to be read by offset: what a detached exec keeps of its
 * output. Memory grows with what comes, up to the size. On the loop.
 */
#ifndef BRIG_GATEWAY_RING_H
#define BRIG_GATEWAY_RING_H

#include "base/buf.h"

#include <stddef.h>
#include <stdint.h>

#define RING_SIZE 1048576

/* Begins zeroed; free(bytes) at the end. */
struct ring {
	char *bytes;
	size_t cap;
	uint64_t end; /* counts all bytes there ever were */
};

void ring_write(struct ring *r, const char *data, size_t n);
/* From *offset (moved to the first byte that is still there), at most max bytes. */
void ring_read(const struct ring *r, uint64_t *offset, struct buf *out, size_t max);

#endif
