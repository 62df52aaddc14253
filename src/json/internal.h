/* What the files of src/json share and nobody else needs. */
#ifndef BRIG_JSON_INTERNAL_H
#define BRIG_JSON_INTERNAL_H

#include "json/json.h"

#include "base/mem.h"

/* How many bytes of the input an error text may show. */
#define JSON_ECHO_MAX 40

/* error_set(), with " at byte N (line L, column C)" behind the text. Lines and columns count from
 * 1, columns in characters. */
int json_error_at(struct error *err, enum err code, struct str text, size_t offset, const char *fmt,
        ...) __attribute__((format(printf, 5, 6)));

/*
 * The keys of all objects of one text that have many members, to find a key that comes twice. Open
 * addressing over a keyed hash (SipHash-1-3), so that nobody can choose keys that collide. An
 * object is named by its offset. Keys are borrowed. The memory is charged to an arena, and so is
 * bounded with the tree's.
 */
struct keyset_entry {
	const char *key; /* NULL: free */
	uint32_t len;
	uint32_t object;
	uint32_t hash;
};

struct keyset {
	struct arena *budget;
	struct keyset_entry *entries;
	size_t cap; /* 0 or a power of two */
	size_t used;
	uint64_t seed[2];
};

void keyset_init(struct keyset *set, struct arena *budget);
void keyset_free(struct keyset *set);
/* 0, -ERR_CONFLICT when the object has that key, or -ERR_NOMEM. */
int keyset_add(struct keyset *set, uint32_t object, struct str key);

/*
 * Escapes from p until n bytes are read or `room` bytes or more are written (at most 7 more),
 * always ending at a character. *ret_read counts what was taken of p.
 */
int json_escape_some(struct buf *out, const char *p, size_t n, size_t room, size_t *ret_read);

#endif
