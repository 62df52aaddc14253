/*
 * Memory.
 *
 * Small allocations whose size is ours (a struct, a name with a checked bound) abort when the
 * system has none: a process that cannot get 1 KiB cannot answer either. Whatever input sizes goes
 * through struct buf or struct arena, which have a maximum and return an error. No threads: an
 * object belongs to the thread that works on it.
 */
#ifndef BRIG_BASE_MEM_H
#define BRIG_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

void *mem_alloc(size_t size);           /* zeroed; aborts when there is none */
void *mem_array(size_t n, size_t size); /* zeroed; aborts on overflow or when there is none */
char *mem_strdup(const char *s);        /* NULL gives NULL */
char *mem_strndup(const char *s, size_t n);
/* Grows *items, a pointer to the array's pointer, so that index n fits; *cap and n count elements
 * of `size` bytes. What is new is zeroed. Aborts like mem_array. */
void mem_grow(void *items, size_t *cap, size_t n, size_t size);

static inline void mem_free_ptr(void *p)
{
	extern void free(void *);
	free(*(void **)p);
}
#define _cleanup_free_ __attribute__((cleanup(mem_free_ptr)))
#define _cleanup_(fn)  __attribute__((cleanup(fn)))
#define steal(p)                                                                                   \
	({                                                                                         \
		__typeof__(p) _p = (p);                                                            \
		(p) = NULL;                                                                        \
		_p;                                                                                \
	})

/* A region of memory freed as a whole. Has a maximum; allocation past it gives NULL. */
struct arena;
struct arena *arena_new(size_t max);
struct arena *arena_free(struct arena *a);       /* takes NULL; returns NULL */
void *arena_alloc(struct arena *a, size_t size); /* aligned to 16, zeroed; NULL past the maximum */
char *arena_strndup(
        struct arena *a, const char *s, size_t n); /* adds a NUL; NULL past the maximum */
/* What it took from the system, headers and unused room included, and what was charged. */
size_t arena_used(const struct arena *a);
/* Counts memory that belongs to the same work but lies elsewhere towards the maximum. */
bool arena_charge(
        struct arena *a, size_t n); /* false past the maximum, and then nothing is counted */
void arena_discharge(struct arena *a, size_t n);

/* Bytes that must not outlive their use: overwritten in a way the compiler keeps. */
void mem_wipe(void *p, size_t n);

#endif
