#include "provider/replies.h"

#include "base/mem.h"

#include <stdlib.h>

static int ref_compare(const void *a, const void *b)
{
	const struct reply_ref *x = a, *y = b;

	if (x->reply != y->reply)
		return x->reply < y->reply ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

bool replies_holds(const struct item *it)
{
	return it->type == ITEM_REASONING || it->type == ITEM_CALL || it->type == ITEM_OTHER ||
	       (it->type == ITEM_MESSAGE && it->role == ROLE_ASSISTANT);
}

void replies_index(struct replies *r, const struct conversation *c)
{
	r->refs = mem_array(c->n_items + 1, sizeof(*r->refs));
	r->n = 0;
	for (size_t i = 0; i < c->n_items; i++) {
		const struct item *it = c->items[i];

		if (replies_holds(it) && it->reply != REPLY_NONE)
			r->refs[r->n++] = (struct reply_ref){it->reply, i};
	}
	qsort(r->refs, r->n, sizeof(*r->refs), ref_compare);
}

void replies_free(struct replies *r)
{
	free(r->refs);
	*r = (struct replies){NULL, 0};
}

const struct reply_ref *replies_find(const struct replies *r, uint32_t reply, size_t *ret_n)
{
	size_t lo = 0, hi = r->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (r->refs[mid].reply < reply)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (hi = lo; hi < r->n && r->refs[hi].reply == reply; hi++)
		;
	*ret_n = hi - lo;
	return r->refs + lo;
}

const struct reply_ref *replies_begin(const struct replies *r, const struct conversation *c,
        size_t at, struct reply_ref *alone, size_t *ret_n)
{
	const struct reply_ref *first;

	if (c->items[at]->reply == REPLY_NONE) {
		*alone = (struct reply_ref){REPLY_NONE, at};
		*ret_n = 1;
		return alone;
	}
	first = replies_find(r, c->items[at]->reply, ret_n);
	return first->at == at ? first : NULL;
}
