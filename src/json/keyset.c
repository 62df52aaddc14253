#include "json/internal.h"

#include "base/id.h"

#include <stdlib.h>

enum { KEYSET_FIRST = 64 };

void keyset_init(struct keyset *set, struct arena *budget)
{
	*set = (struct keyset){.budget = budget};
}

void keyset_free(struct keyset *set)
{
	if (set->entries)
		arena_discharge(set->budget, set->cap * sizeof(*set->entries));
	free(set->entries);
	keyset_init(set, set->budget);
}

static uint64_t rotate(uint64_t x, int bits)
{
	return x << bits | x >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = rotate(v[1], 13) ^ v[0];
	v[3] = rotate(v[3], 16) ^ v[2];
	v[0] = rotate(v[0], 32) + v[3];
	v[2] += v[1];
	v[1] = rotate(v[1], 17) ^ v[2];
	v[3] = rotate(v[3], 21) ^ v[0];
	v[2] = rotate(v[2], 32);
}

static void sip_word(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	sip_round(v);
	v[0] ^= word;
}

static uint32_t keyset_hash(const struct keyset *set, uint32_t object, struct str key)
{
	uint64_t v[4] = {
	        set->seed[0] ^ UINT64_C(0x736f6d6570736575),
	        set->seed[1] ^ UINT64_C(0x646f72616e646f6d),
	        set->seed[0] ^ UINT64_C(0x6c7967656e657261),
	        set->seed[1] ^ UINT64_C(0x7465646279746573),
	};
	uint64_t word;
	size_t i;

	sip_word(v, object);
	for (i = 0; key.n - i >= sizeof(word); i += sizeof(word)) {
		memcpy(&word, key.p + i, sizeof(word));
		sip_word(v, word);
	}
	word = 0;
	memcpy(&word, key.p + i, key.n - i);
	sip_word(v, word ^ (uint64_t)key.n << 56);
	v[2] ^= 0xff;
	for (i = 0; i < 3; i++)
		sip_round(v);
	v[0] ^= v[1] ^ v[2] ^ v[3];
	return (uint32_t)(v[0] ^ v[0] >> 32);
}

/* The entry that holds the key, or the free one where it belongs. */
static struct keyset_entry *keyset_find(const struct keyset *set, const struct keyset_entry *want)
{
	size_t i = want->hash & (set->cap - 1);

	for (;; i = (i + 1) & (set->cap - 1)) {
		struct keyset_entry *e = &set->entries[i];

		if (!e->key)
			return e;
		if (e->hash == want->hash && e->object == want->object && e->len == want->len &&
		        memcmp(e->key, want->key, e->len) == 0)
			return e;
	}
}

static int keyset_grow(struct keyset *set)
{
	struct keyset_entry *old = set->entries, *entries;
	size_t old_cap = set->cap, cap = old_cap ? old_cap * 2 : KEYSET_FIRST, i;

	if (!arena_charge(set->budget, cap * sizeof(*entries)))
		return -ERR_NOMEM;
	entries = calloc(cap, sizeof(*entries));
	if (!entries) {
		arena_discharge(set->budget, cap * sizeof(*entries));
		return -ERR_NOMEM;
	}
	if (!old)
		id_random(set->seed, sizeof(set->seed));
	set->entries = entries;
	set->cap = cap;
	for (i = 0; i < old_cap; i++)
		if (old[i].key)
			*keyset_find(set, &old[i]) = old[i];
	arena_discharge(set->budget, old_cap * sizeof(*old));
	free(old);
	return 0;
}

int keyset_add(struct keyset *set, uint32_t object, struct str key)
{
	struct keyset_entry want = {.key = key.p, .len = (uint32_t)key.n, .object = object};
	struct keyset_entry *e;
	int r;

	/* At most two thirds full, so that a search ends soon, and always ends. */
	if (set->used >= set->cap / 3 * 2) {
		r = keyset_grow(set);
		if (r)
			return r;
	}
	want.hash = keyset_hash(set, object, key);
	e = keyset_find(set, &want);
	if (e->key)
		return -ERR_CONFLICT;
	*e = want;
	set->used++;
	return 0;
}
