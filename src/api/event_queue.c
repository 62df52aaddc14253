#include "api/event_queue.h"

#include "base/mem.h"

#include <stdlib.h>

void event_queue_init(struct event_queue *q, const struct event_queue_ops *ops,
        struct api_stream *s, struct ropewriter *w)
{
	*q = (struct event_queue){.ops = ops, .stream = s, .w = w};
}

void event_queue_free(struct event_queue *q)
{
	free(q->records);
	free(q->held);
	q->records = q->held = NULL;
}

void *event_queue_push(struct event_queue *q)
{
	mem_grow(&q->records, &q->cap, q->n, q->ops->record);
	return q->records + q->n++ * q->ops->record;
}

const void *event_queue_next(struct event_queue *q)
{
	return q->records + q->next++ * q->ops->record;
}

void event_queue_skip(struct event_queue *q)
{
	if (q->n > 0)
		q->next = q->n - 1;
}

void event_queue_forget(struct event_queue *q)
{
	event_queue_free(q);
	q->next = q->n = q->cap = 0;
	ropewriter_rest(q->w);
}

/* Does the output's text belong to the item, and so live as long as the conversation? */
static bool is_kept(const struct turn_output *o)
{
	if (o->type != OUT_DELTA)
		return false;
	if (o->item->type == ITEM_CALL)
		return o->text.p == o->item->call.arguments.p;
	return o->part < o->item->n_parts && o->text.p == o->item->parts[o->part].text.p;
}

int event_queue_hold(
        struct event_queue *q, const struct turn_output *o, size_t from, struct str *ret)
{
	*ret = o->text;
	if (o->text.n < from || is_kept(o))
		return 0;
	free(q->held);
	q->held = malloc(o->text.n);
	if (!q->held)
		return -ERR_NOMEM;
	memcpy(q->held, o->text.p, o->text.n);
	*ret = (struct str){q->held, o->text.n};
	return 0;
}

bool event_queue_is_writing(const struct event_queue *q)
{
	return q->in_steps || ropewriter_left(q->w) > 0;
}

size_t event_queue_left(const struct event_queue *q)
{
	return ropewriter_left(q->w) + (q->in_steps || q->next < q->n);
}

/* Goes on with the event that is under way until it is over or `most` bytes are in out. */
static int go_on(struct event_queue *q, struct buf *out, size_t most)
{
	size_t start = out->len;
	int rc = 0;

	while (event_queue_is_writing(q) && !rc && out->len - start < most) {
		if (ropewriter_left(q->w) == 0)
			q->ops->step(q->stream);
		rc = ropewriter_pull(q->w, out, most - (out->len - start));
	}
	return rc;
}

int event_queue_move(struct event_queue *q, struct buf *out, size_t room)
{
	size_t start = out->len;
	int rc = 0;

	if (event_queue_is_writing(q))
		rc = go_on(q, out, room);
	while (!rc && !event_queue_is_writing(q) && q->next < q->n && out->len - start < room) {
		q->ops->write(q->stream);
		rc = go_on(q, out, EVENT_QUEUE_WHOLE);
	}
	if (!rc && !event_queue_is_writing(q) && q->next == q->n)
		event_queue_forget(q);
	return rc;
}
