/*
 * The ledger's queue. See ledger.h.
 *
 * Every turn waits for two writes, its row and the end of its row, so the writes of all turns that
 * come within one transaction share it: under load the cost of a turn falls, and an idle gateway
 * writes at once.
 */
#include "gateway/ledger.h"

#include "gateway/internal.h"

#include <stdlib.h>

#define BEAT_MS 5000

struct entry {
	struct entry *next;
	struct store_record_op op;
	struct record *record;
	bool owned;
	ledger_fn then;
	void *ctx;
};

struct queue {
	struct entry *first, **last;
	size_t n;
};

struct ledger {
	struct gateway *g;
	struct queue waiting, under_way;
	struct event *beat, *retry;
	char holder[GATEWAY_NAME_MAX];
	struct error err; /* of the write under way */
	bool stopped;
};

static int recover(struct gateway *g, struct str holder, struct error *err)
{
	return store_records_recover(g->store, holder, 0, err);
}

int ledger_recover(struct gateway *g, struct error *err)
{
	int n = gateway_recover(g, recover, err);

	if (n > 0)
		LOG(LOG_WARN, "records_recovered", LOG_N("n", n));
	metric_add(&g->shared->metrics.recovered, n > 0 ? (uint64_t)n : 0);
	return n < 0 ? n : 0;
}

static void queue_init(struct queue *q)
{
	*q = (struct queue){.first = NULL};
	q->last = &q->first;
}

static int write_all(struct ledger *l, const struct queue *q, struct error *err)
{
	struct store_record_op *ops = mem_array(q->n, sizeof(*ops));
	size_t n = 0;
	int r;

	for (const struct entry *e = q->first; e != NULL; e = e->next)
		ops[n++] = e->op;
	r = store_records_write(l->g->store, str_of(l->holder), ops, n, err);
	free(ops);
	return r;
}

static void go(struct ledger *l);

static void write_work(void *arg)
{
	struct ledger *l = arg;

	l->err.code = 0;
	write_all(l, &l->under_way, &l->err);
}

static void entry_done(struct ledger *l, struct entry *e, const struct error *err)
{
	if (e->op.what == STORE_RECORD_SETTLE && err == NULL)
		metrics_record(l->g, e->record);
	/* Not before: what is neither held nor settled would be seen by nobody. */
	if (e->op.what == STORE_RECORD_SETTLE)
		key_limits_give(&l->g->shared->key_limits, l->g->options->index, &e->record->hold,
		        e->record->total_cost);
	if (e->owned)
		record_free(e->record);
	if (e->then != NULL)
		e->then(e->ctx, err);
	free(e);
}

static void write_done(void *arg)
{
	struct ledger *l = arg;
	struct entry *e = l->under_way.first, *next;
	const struct error err = l->err;

	if (err.code != 0) {
		log_text(LOG_ERROR, "ledger_failed", "%s", err.text);
		metric_add(&l->g->shared->metrics.ledger_failed, 1);
	}
	queue_init(&l->under_way);
	go(l); /* the next write runs while these are told */
	for (; e != NULL; e = next) {
		next = e->next;
		entry_done(l, e, err.code != 0 ? &err : NULL);
	}
}

static void go(struct ledger *l)
{
	static const struct timeval soon = {0, 10000};

	if (l->stopped || l->under_way.n > 0 || l->waiting.n == 0)
		return;
	l->under_way = l->waiting;
	queue_init(&l->waiting);
	if (pool_run(l->g->pool, write_work, write_done, l))
		return;
	l->waiting = l->under_way;
	queue_init(&l->under_way);
	evtimer_add(l->retry, &soon);
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	go(arg);
}

void ledger_write(struct ledger *l, enum store_record_what what, struct record *r, bool owned,
        ledger_fn then, void *ctx)
{
	struct entry *e = mem_alloc(sizeof(*e));

	*e = (struct entry){.op = {what, r}, .record = r, .owned = owned, .then = then, .ctx = ctx};
	*l->waiting.last = e;
	l->waiting.last = &e->next;
	l->waiting.n++;
	go(l);
}

struct record *ledger_beat_row(const struct record *r)
{
	struct record *beat = record_new();

	record_set(&beat->account, str_of(r->account));
	record_set(&beat->workspace, str_of(r->workspace));
	record_set(&beat->container_id, str_of(r->container_id));
	record_set(&beat->provider, str_of(r->provider));
	record_set(&beat->model, str_of(r->model));
	str_copy(beat->id, sizeof(beat->id), str_of(r->id));
	beat->heartbeat_ms = clock_wall_ms();
	return beat;
}

static void on_beat(evutil_socket_t fd, short what, void *arg)
{
	struct ledger *l = arg;

	recording_beat_all(l->g);
}

size_t ledger_waiting(const struct ledger *l)
{
	return l->waiting.n + l->under_way.n;
}

struct ledger *ledger_new(struct gateway *g, struct error *err)
{
	static const struct timeval every = {BEAT_MS / 1000, BEAT_MS % 1000 * 1000};
	struct ledger *l = mem_alloc(sizeof(*l));

	l->g = g;
	queue_init(&l->waiting);
	queue_init(&l->under_way);
	gateway_name(g->options->index, l->holder);
	l->beat = event_new(g->base, -1, EV_PERSIST, on_beat, l);
	l->retry = evtimer_new(g->base, on_retry, l);
	if (l->beat == NULL || l->retry == NULL || event_add(l->beat, &every) < 0) {
		error_set(err, ERR_NOMEM, "no memory for the ledger");
		return ledger_free(l);
	}
	return l;
}

static void queue_clear(struct queue *q)
{
	for (struct entry *e = q->first, *next; e != NULL; e = next) {
		next = e->next;
		if (e->owned)
			record_free(e->record);
		free(e);
	}
	queue_init(q);
}

void ledger_stop(struct ledger *l)
{
	struct error err;

	if (l == NULL)
		return;
	l->stopped = true;
	/* The pool has done its work: what is under way was written. */
	queue_clear(&l->under_way);
	if (l->waiting.n > 0 && write_all(l, &l->waiting, &err) < 0)
		log_text(LOG_ERROR, "ledger_failed", "%s", err.text);
	queue_clear(&l->waiting);
}

struct ledger *ledger_free(struct ledger *l)
{
	if (l == NULL)
		return NULL;
	ledger_stop(l);
	if (l->beat != NULL)
		event_free(l->beat);
	if (l->retry != NULL)
		event_free(l->retry);
	free(l);
	return NULL;
}
