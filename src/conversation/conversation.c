/* The list of items and the memory behind it. Reply numbers and ids are in replies.c. */
#include "conversation/conversation.h"

#include <stdlib.h>
#include <string.h>

struct conversation *conversation_new(size_t max_bytes)
{
	struct conversation *c = mem_alloc(sizeof(*c));

	c->arena = arena_new(max_bytes);
	c->settings.parallel_tool_calls = -1;
	c->settings.include_thoughts = -1;
	c->dialect = DIALECT_OPENAI_RESPONSES;
	return c;
}

struct conversation *conversation_free(struct conversation *c)
{
	if (c == NULL)
		return NULL;
	for (size_t i = 0; i < c->n_adopted; i++)
		free(c->adopted[i]);
	free(c->adopted);
	free(c->items);
	arena_free(c->arena);
	free(c);
	return NULL;
}

void conversation_adopt(struct conversation *c, void *malloced)
{
	mem_grow(&c->adopted, &c->cap_adopted, c->n_adopted, sizeof(*c->adopted));
	c->adopted[c->n_adopted++] = malloced;
}

struct item *conversation_add(struct conversation *c, enum item_type type)
{
	struct item *it = arena_alloc(c->arena, sizeof(*it));

	if (it == NULL)
		return NULL;
	it->type = type;
	it->reply = REPLY_NONE;
	mem_grow(&c->items, &c->cap_items, c->n_items, sizeof(*c->items));
	c->items[c->n_items++] = it;
	return it;
}

struct part *conversation_parts(struct conversation *c, size_t n)
{
	if (n > SIZE_MAX / sizeof(struct part))
		return NULL;
	return arena_alloc(c->arena, n * sizeof(struct part));
}

struct str conversation_copy(struct conversation *c, struct str s, bool *ok)
{
	char *p;

	if (s.p == NULL)
		return s;
	p = arena_strndup(c->arena, s.p, s.n);
	if (p == NULL) {
		*ok = false;
		return (struct str){NULL, 0};
	}
	return (struct str){p, s.n};
}
