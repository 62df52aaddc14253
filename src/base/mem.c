/*
 * Theory of operation: an arena is a list of chunks, the first of which serves small allocations
 * from its front. A new chunk is half as large as all before it, from 512 bytes to 256 KiB, so a
 * small document costs little and a large one few calls. What does not fit well into a chunk gets
 * one of its own, put behind the current one so that the current one's free room stays in use. The
 * maximum counts whole chunks, headers included: it bounds what the arena takes from the system,
 * not only what it hands out.
 */
#include "base/mem.h"

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_ALIGN = 16, CHUNK_LEAST = 512, CHUNK_LARGEST = 256 * 1024 };
enum { GROW_FIRST = 64 }; /* bytes of an array's first elements; at least one */

void *mem_alloc(size_t size)
{
	void *p = calloc(1, size ? size : 1);

	if (!p)
		BUG("no memory for %zu bytes", size);
	return p;
}

void *mem_array(size_t n, size_t size)
{
	size_t total;

	if (__builtin_mul_overflow(n, size, &total))
		BUG("no memory for %zu times %zu bytes", n, size);
	return mem_alloc(total);
}

char *mem_strdup(const char *s)
{
	return s ? mem_strndup(s, strlen(s)) : NULL;
}

char *mem_strndup(const char *s, size_t n)
{
	char *copy;

	if (!s)
		return NULL;
	if (n == SIZE_MAX)
		BUG("no memory for %zu bytes", n);
	copy = mem_alloc(n + 1);
	if (n > 0)
		memcpy(copy, s, n);
	return copy;
}

void mem_grow(void *items, size_t *cap, size_t n, size_t size)
{
	size_t want = *cap, bytes;
	void *old, *grown;

	if (n < *cap)
		return;
	if (want == 0)
		want = size < GROW_FIRST ? GROW_FIRST / size : 1;
	while (want <= n) {
		if (want > SIZE_MAX / 2)
			BUG("no memory for %zu elements", n);
		want *= 2;
	}
	if (__builtin_mul_overflow(want, size, &bytes))
		BUG("no memory for %zu times %zu bytes", want, size);
	/* items is a pointer to a pointer of some type: memcpy reads it without assuming which. */
	memcpy(&old, items, sizeof(old));
	grown = realloc(old, bytes);
	if (!grown)
		BUG("no memory for %zu bytes", bytes);
	memset((char *)grown + *cap * size, 0, (want - *cap) * size);
	memcpy(items, &grown, sizeof(grown));
	*cap = want;
}

struct chunk {
	struct chunk *next;
	size_t size; /* of data */
	size_t used;
	size_t pad; /* keeps data aligned */
	char data[];
};

_Static_assert(sizeof(struct chunk) % ARENA_ALIGN == 0, "chunk data must be aligned");

struct arena {
	struct chunk *chunks;
	size_t max;
	size_t used; /* chunks with their headers, and what was charged */
};

struct arena *arena_new(size_t max)
{
	struct arena *a = mem_alloc(sizeof(*a));

	a->max = max;
	return a;
}

struct arena *arena_free(struct arena *a)
{
	struct chunk *c, *next;

	if (!a)
		return NULL;
	for (c = a->chunks; c; c = next) {
		next = c->next;
		free(c);
	}
	free(a);
	return NULL;
}

static struct chunk *chunk_new(struct arena *a, size_t whole)
{
	struct chunk *c = calloc(1, whole);

	if (!c)
		return NULL;
	c->size = whole - sizeof(*c);
	a->used += whole;
	return c;
}

static struct chunk *arena_add_chunk(struct arena *a, size_t size)
{
	size_t left = a->max - a->used;
	size_t whole = a->used / 2;
	struct chunk *c;

	if (left < sizeof(*c) || left - sizeof(*c) < size)
		return NULL;
	whole = whole < CHUNK_LEAST ? CHUNK_LEAST : whole > CHUNK_LARGEST ? CHUNK_LARGEST : whole;
	if (size > (whole - sizeof(*c)) / 4 && a->chunks) {
		c = chunk_new(a, size + sizeof(*c));
		if (!c)
			return NULL;
		c->next = a->chunks->next;
		a->chunks->next = c;
		return c;
	}
	if (whole < size + sizeof(*c))
		whole = size + sizeof(*c);
	if (whole > left)
		whole = left;
	c = chunk_new(a, whole);
	if (!c)
		return NULL;
	c->next = a->chunks;
	a->chunks = c;
	return c;
}

void *arena_alloc(struct arena *a, size_t size)
{
	struct chunk *c = a->chunks;
	void *p;

	if (size > SIZE_MAX - ARENA_ALIGN)
		return NULL;
	size = size ? (size + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1) : ARENA_ALIGN;
	if (!c || c->size - c->used < size) {
		c = arena_add_chunk(a, size);
		if (!c)
			return NULL;
	}
	p = c->data + c->used;
	c->used += size;
	return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
	char *copy = n < SIZE_MAX ? arena_alloc(a, n + 1) : NULL;

	if (copy && n > 0)
		memcpy(copy, s, n);
	return copy;
}

bool arena_charge(struct arena *a, size_t n)
{
	if (a->max - a->used < n)
		return false;
	a->used += n;
	return true;
}

void arena_discharge(struct arena *a, size_t n)
{
	if (n > a->used)
		BUG("%zu bytes given back to an arena that uses %zu", n, a->used);
	a->used -= n;
}

size_t arena_used(const struct arena *a)
{
	return a->used;
}

void mem_wipe(void *p, size_t n)
{
	if (n > 0)
		explicit_bzero(p, n);
}
