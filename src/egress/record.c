#include "egress/record.h"

#include "base/clock.h"
#include "base/mem.h"
#include "packet/packet.h"

#include <errno.h>
#include <event2/event_struct.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <unistd.h>

enum { SINKS_MAX = 64, PER_SECOND = 20, BURST = 100 };

struct sink {
	TAILQ_ENTRY(sink) link;
	struct egress_records *records;
	int fd;
	struct event ended;
};
TAILQ_HEAD(sinks, sink);

struct egress_records {
	struct event_base *base;
	struct sinks sinks;
	size_t n;
};

struct egress_records *egress_records_new(struct event_base *base)
{
	struct egress_records *r = mem_alloc(sizeof(*r));

	r->base = base;
	TAILQ_INIT(&r->sinks);
	return r;
}

static void sink_free(struct sink *s)
{
	TAILQ_REMOVE(&s->records->sinks, s, link);
	s->records->n--;
	event_del(&s->ended);
	close(s->fd);
	free(s);
}

struct egress_records *egress_records_free(struct egress_records *r)
{
	if (!r)
		return NULL;
	while (!TAILQ_EMPTY(&r->sinks))
		sink_free(TAILQ_FIRST(&r->sinks));
	free(r);
	return NULL;
}

/* A gateway says nothing here: what can be read is its end, or makes it one. */
static void on_ended(evutil_socket_t fd, short what, void *arg)
{
	sink_free(arg);
}

void egress_records_add_sink(struct egress_records *r, int fd)
{
	struct sink *s;

	if (r->n == SINKS_MAX || evutil_make_socket_nonblocking(fd) < 0) {
		close(fd);
		return;
	}
	s = mem_alloc(sizeof(*s));
	s->records = r;
	s->fd = fd;
	event_assign(&s->ended, r->base, fd, EV_READ, on_ended, s);
	event_add(&s->ended, NULL);
	TAILQ_INSERT_TAIL(&r->sinks, s, link);
	r->n++;
}

static bool rate_take(struct egress_record_rate *rate)
{
	uint64_t now = clock_mono_ms(), back = (now - rate->at_ms) * PER_SECOND;

	rate->thousandths -= back < rate->thousandths ? back : rate->thousandths;
	rate->at_ms = now;
	if (rate->thousandths + 1000 > (uint64_t)BURST * 1000)
		return false;
	rate->thousandths += 1000;
	return true;
}

static bool send_to_one(
        struct egress_records *r, const struct egress_record *record, struct str label)
{
	struct sink *s, *next;

	for (s = TAILQ_FIRST(&r->sinks); s; s = next) {
		int rc = packet_send(s->fd, record, sizeof(*record), label.p, label.n, NULL, 0);

		next = TAILQ_NEXT(s, link);
		if (rc == 0)
			return true;
		if (rc != -EAGAIN && rc != -ENOBUFS)
			sink_free(s);
	}
	return false;
}

void egress_records_tell(struct egress_records *r, struct egress_record_rate *rate,
        struct egress_record *record, struct str label)
{
	uint32_t *more = &rate->more[record->verdict == EGRESS_ALLOWED];

	record->h = (struct egress_header){.op = EGRESS_RECORD, .size = sizeof(*record)};
	if (record->time_ms == 0)
		record->time_ms = clock_wall_ms();
	record->label_len = (uint16_t)label.n;
	record->more = *more;
	if (rate_take(rate) && send_to_one(r, record, label))
		*more = 0;
	else if (*more < UINT32_MAX)
		++*more;
}
