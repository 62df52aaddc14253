/*
 * Place i of the table has the address RANGE + (generation << 12) + i; generation goes from 1 to 31
 * and round again each time the place gets another name, so that an address which a guest
 * remembers does not come to mean another name soon (and if it does, the TLS server name or Host
 * does not fit).
 */
#include "egress/names.h"

#include "base/id.h"
#include "base/mem.h"

#include <stdlib.h>
#include <sys/queue.h>

enum { PLACE_BITS = 12, GENERATIONS = 31, BUCKETS = 1024 };

#define RANGE      0xc6120000u /* 198.18.0.0 */
#define RANGE_BITS 15

struct egress_name {
	TAILQ_ENTRY(egress_name) unused; /* while nothing holds it: least recently used first */
	LIST_ENTRY(egress_name) chain;
	char *text;
	uint32_t address;
	uint32_t held;
};

TAILQ_HEAD(name_queue, egress_name);
LIST_HEAD(name_chain, egress_name);

struct egress_names {
	struct egress_name **places;
	size_t n, cap;
	struct name_queue unused;
	uint64_t seed; /* a guest chooses the names, and shall not choose their buckets */
	struct name_chain buckets[BUCKETS];
};

static struct name_chain *bucket(struct egress_names *n, struct str name)
{
	uint64_t h = n->seed;

	for (size_t i = 0; i < name.n; i++) {
		h = (h ^ (unsigned char)name.p[i]) * 0x9e3779b97f4a7c15u;
		h ^= h >> 29;
	}
	return &n->buckets[h % BUCKETS];
}

struct egress_names *egress_names_new(void)
{
	struct egress_names *n = mem_alloc(sizeof(*n));

	id_random(&n->seed, sizeof(n->seed));
	TAILQ_INIT(&n->unused);
	return n;
}

struct egress_names *egress_names_free(struct egress_names *n)
{
	if (!n)
		return NULL;
	for (size_t i = 0; i < n->n; i++) {
		free(n->places[i]->text);
		free(n->places[i]);
	}
	free(n->places);
	free(n);
	return NULL;
}

static struct egress_name *place_for_new(struct egress_names *n)
{
	struct egress_name *e;
	uint32_t generation, place;

	if (n->n < EGRESS_NAMES_MAX) {
		e = mem_alloc(sizeof(*e));
		mem_grow(&n->places, &n->cap, n->n, sizeof(struct egress_name *));
		e->address = RANGE + (1u << PLACE_BITS) + (uint32_t)n->n;
		n->places[n->n++] = e;
		return e;
	}
	e = TAILQ_FIRST(&n->unused);
	if (!e)
		return NULL;
	TAILQ_REMOVE(&n->unused, e, unused);
	LIST_REMOVE(e, chain);
	free(steal(e->text));
	place = e->address & ((1u << PLACE_BITS) - 1);
	generation = ((e->address - RANGE) >> PLACE_BITS) % GENERATIONS + 1;
	e->address = RANGE + (generation << PLACE_BITS) + place;
	return e;
}

uint32_t egress_names_address(struct egress_names *n, struct str name)
{
	struct name_chain *chain = bucket(n, name);
	struct egress_name *e;

	LIST_FOREACH(e, chain, chain)
	{
		if (!str_is(name, e->text))
			continue;
		if (e->held == 0) {
			TAILQ_REMOVE(&n->unused, e, unused);
			TAILQ_INSERT_TAIL(&n->unused, e, unused);
		}
		return e->address;
	}
	e = place_for_new(n);
	if (!e)
		return 0;
	e->text = mem_strndup(name.p, name.n);
	LIST_INSERT_HEAD(chain, e, chain);
	TAILQ_INSERT_TAIL(&n->unused, e, unused);
	return e->address;
}

bool egress_names_range(uint32_t address)
{
	return (address ^ RANGE) >> (32 - RANGE_BITS) == 0;
}

struct egress_name *egress_names_hold(struct egress_names *n, uint32_t address)
{
	uint32_t place = address & ((1u << PLACE_BITS) - 1);

	if (place >= n->n || n->places[place]->address != address)
		return NULL;
	if (n->places[place]->held++ == 0)
		TAILQ_REMOVE(&n->unused, n->places[place], unused);
	return n->places[place];
}

void egress_names_release(struct egress_names *n, struct egress_name *name)
{
	if (name && --name->held == 0)
		TAILQ_INSERT_TAIL(&n->unused, name, unused);
}

const char *egress_names_text(const struct egress_name *name)
{
	return name->text;
}
