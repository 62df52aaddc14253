#include "gateway/ring.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void ring_write(struct ring *r, const char *data, size_t n)
{
	if (n > RING_SIZE) {
		r->end += n - RING_SIZE;
		data += n - RING_SIZE;
		n = RING_SIZE;
	}
	if (r->cap < RING_SIZE && r->end + n > r->cap) {
		/* Until it is full the ring is a plain buffer: growing keeps every byte at its
		 * place. */
		size_t cap = r->cap == 0 ? 4096 : r->cap;

		while (cap < RING_SIZE && cap < r->end + n)
			cap *= 2;
		char *bytes = mem_alloc(cap);

		if (r->bytes != NULL)
			memcpy(bytes, r->bytes, r->cap);
		free(r->bytes);
		r->bytes = bytes;
		r->cap = cap;
	}
	while (n > 0) {
		size_t at = r->end % r->cap, room = r->cap - at, piece = n < room ? n : room;

		memcpy(r->bytes + at, data, piece);
		r->end += piece;
		data += piece;
		n -= piece;
	}
}

void ring_read(const struct ring *r, uint64_t *offset, struct buf *out, size_t max)
{
	uint64_t first = r->end > r->cap ? r->end - r->cap : 0;
	uint64_t at;
	size_t n;

	if (*offset < first)
		*offset = first;
	if (*offset > r->end)
		*offset = r->end;
	at = *offset;
	n = r->end - at < max ? (size_t)(r->end - at) : max;
	while (n > 0) {
		size_t place = at % r->cap, room = r->cap - place, piece = n < room ? n : room;

		buf_append(out, r->bytes + place, piece);
		at += piece;
		n -= piece;
	}
}
