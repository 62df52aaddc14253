/*
 * The queue of effects. Texts that an event lent are copied into one buffer, which is emptied when
 * the queue is. Once the caller has seen that nothing is left both give their memory back, since
 * most turns wait most of the time.
 */
#include "turn/internal.h"

#include "base/mem.h"

#include <stdlib.h>

static void queue_free(struct turn *t)
{
	free(t->queue);
	t->queue = NULL;
	t->n_queue = t->cap_queue = t->next_effect = 0;
	buf_free(&t->texts);
}

void effect_push(struct turn *t, const struct turn_effect *e)
{
	if (t->phase == PHASE_DONE)
		return;
	if (t->next_effect == t->n_queue) {
		t->next_effect = 0;
		t->n_queue = 0;
		buf_reset(&t->texts);
	}
	mem_grow(&t->queue, &t->cap_queue, t->n_queue, sizeof(*t->queue));
	t->queue[t->n_queue++] = (struct effect){.e = *e};
}

void effect_simple(struct turn *t, enum turn_effect_type type)
{
	effect_push(t, &(struct turn_effect){.type = type});
}

void effect_emit(struct turn *t, const struct turn_output *o)
{
	effect_push(t, &(struct turn_effect){.type = EFFECT_EMIT, .output = *o});
}

void effect_emit_copied(struct turn *t, const struct turn_output *o)
{
	struct effect *queued;

	if (t->phase == PHASE_DONE)
		return;
	effect_emit(t, o);
	queued = &t->queue[t->n_queue - 1];
	queued->copied = true;
	queued->offset = t->texts.len;
	if (buf_append(&t->texts, o->text.p, o->text.n)) {
		queued->e.output.text.n = 0;
		turn_no_memory(t);
	}
}

void effect_item(struct turn *t, enum turn_output_type type, struct item *item, struct item *result)
{
	effect_emit(t, &(struct turn_output){.type = type, .item = item, .result = result});
}

bool turn_peek_effect(const struct turn *t, enum turn_effect_type *ret)
{
	if (t->next_effect == t->n_queue)
		return false;
	*ret = t->queue[t->next_effect].e.type;
	return true;
}

bool turn_next_effect(struct turn *t, struct turn_effect *ret)
{
	struct effect *next;

	if (t->next_effect == t->n_queue) {
		queue_free(t);
		return false;
	}
	next = &t->queue[t->next_effect++];
	*ret = next->e;
	if (next->copied)
		ret->output.text.p = t->texts.data + next->offset;
	return true;
}
