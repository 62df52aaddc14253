/*
 * The events of an answer that are still to be written, and the moving of their bytes to the
 * client. A dialect's stream pushes small records; they are written one after the other into its
 * ropewriter, and an event that may be very large goes on in steps, so that it never exists as a
 * whole.
 *
 * One thread at a time. The stream owns the queue; records live until all of them were written.
 */
#ifndef BRIG_API_EVENT_QUEUE_H
#define BRIG_API_EVENT_QUEUE_H

#include "api/api.h"
#include "api/ropewriter.h"

/* An event up to here is in one piece. */
enum { EVENT_QUEUE_WHOLE = 64 * 1024 };
/*
 * A delta's text is the turn's and lives only until the next one: from here on it is copied.
 * Escaped it may be six times as long, so that one below never waits.
 */
enum { EVENT_QUEUE_HOLD = 8 * 1024 };

struct event_queue_ops {
	size_t record;                       /* its size */
	void (*write)(struct api_stream *s); /* begins the event of event_queue_next() */
	void (*step)(struct api_stream *s);  /* goes on with it while in_steps */
};

struct event_queue {
	const struct event_queue_ops *ops;
	struct api_stream *stream;
	struct ropewriter *w; /* the stream's: the event that is being written */
	bool in_steps;        /* of which there is more to come from step() */
	char *records;
	size_t n, cap, next;
	char *held; /* the text of the delta that is in the queue, or of what is being written */
};

/* ops must outlive the queue. A stream that writes its events itself has none, and pushes none. */
void event_queue_init(struct event_queue *q, const struct event_queue_ops *ops,
        struct api_stream *s, struct ropewriter *w);
void event_queue_free(struct event_queue *q);
/* A new record, all zero, that stays where it is until the next push. */
void *event_queue_push(struct event_queue *q);
const void *event_queue_next(struct event_queue *q); /* takes the next; there must be one */
void event_queue_skip(struct event_queue *q);        /* to the last one */
/* All is written. Most streams wait most of the time, and then keep nothing for the next event. */
void event_queue_forget(struct event_queue *q);
/*
 * The output's text, which the turn takes back: a copy of the queue's where it has `from` bytes and
 * is not kept with its item. 0 or -ERR_NOMEM.
 */
int event_queue_hold(
        struct event_queue *q, const struct turn_output *o, size_t from, struct str *ret);

bool event_queue_is_writing(const struct event_queue *q); /* an event is not all in out yet */
size_t event_queue_left(const struct event_queue *q);     /* a lower bound; 0: nothing */
/* Events, each up to EVENT_QUEUE_WHOLE in one piece, until `room` bytes are there. 0, or an error
 * of writing, that stays. */
int event_queue_move(struct event_queue *q, struct buf *out, size_t room);

#endif
