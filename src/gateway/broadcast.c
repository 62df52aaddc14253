/*
 * Delivery of traces.
 *
 * Theory of operation. The end of a record puts a row into the outbox for each destination that may
 * want it (store.h); whoever answers requests has no more to do with it. One gateway of the node
 * delivers, the holder of a lease in the store; the others ask for the lease now and then, and one
 * of them has it within LEASE_MS of the holder's death. Two that deliver at once, which a gateway
 * that stood still could bring about, do no harm: spans have the same ids each time.
 *
 *     look (every TICK_MS, on the pool): lease, destinations, now and then how much waits
 *        → of each destination with rows that has nothing under way:
 *     read (pool): removes what was delivered, reads the next rows, makes them one request
 *        → the request (loop) → answer: taken, or refused for good: read again, at once;
 *                                       else the same rows later, with a back-off
 *
 * Rows are removed after the answer, so each record arrives at least once, whoever dies when. Each
 * destination is a queue of its own with one request under way: one that is dead or slow holds
 * nobody else. What it holds is bounded in the store: the oldest rows beyond the limit are dropped.
 *
 * The store handle and the thread are this file's own, as are the HTTP clients, so neither a large
 * batch nor a slow disk stands before a request of anybody's.
 */
#include "gateway/broadcast.h"

#include "base/address.h"
#include "base/id.h"
#include "gateway/broadcast_call.h"
#include "record/record.h"

#include <stdlib.h>
#include <unistd.h>

#define TICK_MS       500
#define LEASE_MS      5000
#define RENEW_MS      1500
#define COUNT_MS      5000 /* between counts of what waits */
#define BATCH         100
#define READS         10  /* of rows that are not wanted, before others have their turn */
#define DROP_STEP     200 /* rows at once: over before a turn would wait for them */
#define DROP_STEPS    100
#define BACKOFF_MS    1000
#define BACKOFF_MAX   300000
#define NAMES_THREADS 2

struct target {
	struct target *next;
	struct broadcast *b;
	int64_t n;
	char id[STORE_ID_MAX + 1];
	int64_t updated_ms;
	const struct trace_destination *d; /* NULL: what is stored cannot be read */
	struct trace_destination *own;     /* d where it is not brig.yaml's */
	bool fixed, enabled;
	bool busy; /* with the pool, or with a request */
	bool gone; /* there is no such destination any more: freed when it is not busy */
	bool seen; /* by the look under way */
	bool waiting;
	bool dropping; /* more waits than may; said in the log */
	bool reading;  /* the read under way may read, not only remove; afterwards: there is more */
	struct broadcast_call *call;

	/* What was read, and is sent. */
	struct trace_request *request; /* NULL: nothing */
	int64_t through;               /* the last of its rows */
	size_t n_records;
	size_t n_gone;  /* rows among them whose record is there no more */
	size_t n_lost;  /* the same of rows that were removed without a request */
	uint32_t limit; /* records in a request; less after one was too large */
	struct error err;

	int64_t settle; /* rows up to this one are done with; 0: none */
	unsigned failures;
	uint64_t retry_ms; /* monotonic */
};

struct dropped {
	int64_t destination;
	uint64_t rows;
};

/* What the look under way found; the pool's meanwhile. */
struct look {
	struct store_destination *rows;
	size_t n;
	struct store_outbox_count *counts;
	size_t n_counts;
	struct dropped *dropped;
	size_t n_dropped, cap_dropped;
	bool counted;
	bool held; /* the lease, as it stands */
	uint64_t held_until_ms, renew_ms;
	struct error err;
};

struct broadcast {
	struct gateway *g;
	struct store *store;
	struct pool *pool, *names;
	struct http_client *free_client, *guarded_client; /* made when first asked for */
	struct address_own *own;
	struct event *timer;
	struct target *targets;
	char node[256], holder[33];
	int64_t started_ms;
	bool held;
	uint64_t held_until_ms, renew_ms, count_ms; /* monotonic */
	bool store_failed;                          /* said in the log */
	bool ending;
	bool leftover; /* rows of destinations that are there no more */
	struct look look;
};

/* ---- brig.yaml's destinations ---- */

void broadcast_fixed_id(const struct config *c, size_t i, char ret[STORE_ID_MAX + 1])
{
	const struct trace_destination *d = c->broadcast[i];
	char twin[24], hex[65];
	uint8_t hash[32];
	size_t twins = 0;

	for (size_t k = 0; k < i; k++)
		twins += c->broadcast[k]->type == d->type &&
		         str_is(str_of(c->broadcast[k]->name), d->name != NULL ? d->name : "") &&
		         str_is(str_of(c->broadcast[k]->workspace),
		                 d->workspace != NULL ? d->workspace : "");
	str_format(twin, sizeof(twin), "%zu", twins);
	const struct str parts[] = {str_of(trace_type_name(d->type)), str_of(d->name),
	        str_of(d->workspace), str_of(twin)};

	id_sha256_parts(parts, 4, hash);
	id_hex(hash, 32, hex);
	str_format(ret, STORE_ID_MAX + 1, "cfg_%.24s", hex);
}

static const struct trace_destination *fixed_find(const struct config *c, const char *id)
{
	char is[STORE_ID_MAX + 1];

	for (size_t i = 0; i < c->n_broadcast; i++) {
		broadcast_fixed_id(c, i, is);
		if (str_is(str_of(id), is))
			return c->broadcast[i];
	}
	return NULL;
}

static int tell_store(struct gateway *g, struct error *err)
{
	size_t n = g->config->n_broadcast;
	struct store_destination *list = mem_array(n + 1, sizeof(*list));
	int r;

	for (size_t i = 0; i < n; i++) {
		const struct trace_destination *d = g->config->broadcast[i];

		broadcast_fixed_id(g->config, i, list[i].id);
		str_copy(list[i].type, sizeof(list[i].type), str_of(trace_type_name(d->type)));
		list[i].workspace = mem_strdup(d->workspace);
		list[i].enabled = d->enabled;
	}
	r = store_destinations_fix(g->store, list, n, clock_wall_ms(), err);
	store_destinations_free(list, n);
	return r;
}

/* ---- clients ---- */

static const char *on_address(void *ctx, const struct sockaddr *at)
{
	struct broadcast *b = ctx;
	union address a = {.sa = {.sa_family = at->sa_family}};

	if (at->sa_family == AF_INET)
		memcpy(&a.in, at, sizeof(a.in));
	else if (at->sa_family == AF_INET6)
		memcpy(&a.in6, at, sizeof(a.in6));
	else
		return "not an internet address";
	address_unmap(&a);
	return address_refused(b->own, &a, b->g->config->egress.allow_private);
}

struct http_client *broadcast_client(struct broadcast *b, bool fixed)
{
	struct http_client **c = fixed ? &b->free_client : &b->guarded_client;

	if (b->names == NULL)
		b->names = pool_new(b->g->base, NAMES_THREADS);
	if (*c != NULL)
		return *c;
	*c = http_client_new(b->g->base, b->names);
	if (!fixed)
		http_client_guard(*c, on_address, b);
	return *c;
}

/* ---- figures ---- */

enum what { DELIVERED, DROPPED, FAILED };

static void count(struct broadcast *b, enum trace_type type, enum what what, uint64_t n)
{
	struct metrics_shared *m = &b->g->shared->metrics;

	metric_add(what == DELIVERED ? &m->broadcast_delivered[type]
	           : what == DROPPED ? &m->broadcast_dropped[type]
	                             : &m->broadcast_failed[type],
	        n);
}

static void log_target(enum log_level level, const char *event, const struct target *t, int status,
        uint64_t records, const char *text)
{
	LOG(level, event, LOG_S("destination", t->id),
	        LOG_S("type", t->d != NULL ? trace_type_name(t->d->type) : ""),
	        LOG_N("status", status), LOG_N("records", records), LOG_S("why", text));
}

/* ---- reading ---- */

static void wanted(const struct target *t, const struct store_delivery *rows, size_t n,
        const struct record **ret, size_t *ret_at, size_t *ret_n)
{
	const char *region = t->b->g->config->region;

	for (size_t i = 0; i < n; i++) {
		if (rows[i].record == NULL || !trace_wanted(t->d, rows[i].record, region))
			continue;
		ret[*ret_n] = rows[i].record;
		ret_at[*ret_n] = i;
		++*ret_n;
	}
}

/* Of the rows as many as go into one request; *ret_n_rows: how many rows that settles. */
static int make_request(struct target *t, const struct store_delivery *rows, size_t n,
        size_t *ret_n_rows, struct error *err)
{
	const struct record *records[BATCH];
	size_t at[BATCH], n_wanted = 0, taken = 0;
	int r;

	wanted(t, rows, n, records, at, &n_wanted);
	*ret_n_rows = n;
	if (n_wanted == 0)
		return 0;
	r = trace_request_build(t->d, records, n_wanted, TRACE_BATCH_BYTES, t->b->g->config->region,
	        clock_wall_ms(), &t->request, &taken, err);
	if (r < 0)
		return r;
	if (taken < n_wanted)
		*ret_n_rows = at[taken];
	t->n_records = taken;
	return 0;
}

/* False: there is nothing more to read now. */
static bool read_some(struct target *t)
{
	struct store *s = t->b->store;
	struct store_delivery *rows = NULL;
	size_t n = 0, used = 0, gone = 0;
	/* A filter may go by what is not sent. A bucket gets one object at a time. */
	bool content = !t->d->privacy_mode || t->d->filter != NULL;
	uint32_t limit = t->d->type == TRACE_S3 ? 1 : t->limit;

	if (store_outbox_read(s, t->n, content, limit, TRACE_BATCH_BYTES, &rows, &n, &t->err) < 0)
		return false;
	if (n > 0 && make_request(t, rows, n, &used, &t->err) == 0) {
		t->through = rows[used - 1].seq;
		for (size_t i = 0; i < used; i++)
			gone += rows[i].record == NULL;
		if (t->request != NULL)
			t->n_gone = gone;
		else if (store_outbox_done(s, t->n, t->through, &t->err) == 0)
			t->n_lost += gone;
	}
	store_deliveries_free(rows, n);
	return n > 0 && t->request == NULL && t->err.code == 0;
}

static void read_work(void *arg)
{
	struct target *t = arg;
	unsigned reads = 0;

	t->err.code = 0;
	t->n_records = t->n_gone = t->n_lost = 0;
	if (t->settle > 0 && store_outbox_done(t->b->store, t->n, t->settle, &t->err) < 0)
		return;
	t->settle = 0;
	while (t->reading && reads++ < READS)
		t->reading = read_some(t);
}

/* ---- targets ---- */

static void target_free(struct target *t)
{
	struct target **at = &t->b->targets;

	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	broadcast_call_cancel(t->call);
	trace_request_free(t->request);
	trace_destination_free(t->own);
	free(t);
}

static void back_off(struct target *t, uint64_t ms)
{
	uint32_t random;

	if (ms == 0) {
		unsigned shift = t->failures < 10 ? t->failures : 10;

		ms = (uint64_t)BACKOFF_MS << shift;
		ms = ms < BACKOFF_MAX ? ms : BACKOFF_MAX;
		id_random(&random, sizeof(random));
		ms = ms / 2 + random % (ms / 2);
	}
	t->retry_ms = clock_mono_ms() + ms;
	t->failures++;
}

static bool may_read(const struct target *t)
{
	uint64_t now = clock_mono_ms();

	return t->b->held && now < t->b->held_until_ms && t->enabled && !t->gone && t->d != NULL &&
	       t->waiting && now >= t->retry_ms;
}

static void read_done(void *arg);

/* Lets it do what is to be done; it may be freed. */
static void go(struct target *t)
{
	if (t->busy)
		return;
	t->reading = may_read(t);
	if (t->settle > 0 || t->reading) {
		t->busy = pool_run(t->b->pool, read_work, read_done, t);
		return;
	}
	if (t->gone)
		target_free(t);
}

static void on_answer(void *ctx, const struct broadcast_answer *a);

static void read_done(void *arg)
{
	struct target *t = arg;
	struct broadcast *b = t->b;
	struct error err;

	t->busy = false;
	if (b->ending)
		return;
	if (t->n_lost > 0)
		count(b, t->d->type, DROPPED, t->n_lost);
	if (t->err.code != 0) {
		log_target(LOG_ERROR, "broadcast_failed", t, 0, 0, t->err.text);
		t->request = trace_request_free(t->request);
		back_off(t, 0);
	}
	if (t->request == NULL || t->gone) {
		t->request = trace_request_free(t->request);
		if (t->gone || t->reading)
			go(t);
		return;
	}
	t->call = broadcast_call_start(
	        b->g->base, broadcast_client(b, t->fixed), t->request, on_answer, t, &err);
	t->request = trace_request_free(t->request);
	t->busy = t->call != NULL;
	if (t->busy)
		return;
	log_target(LOG_WARN, "broadcast_failed", t, 0, t->n_records, err.text);
	count(b, t->d->type, FAILED, 1);
	back_off(t, 0);
}

static void failed(struct target *t, int status, uint64_t retry_ms, const char *why)
{
	/* Once, not each time: it will be dead for hours. */
	if (t->failures == 0)
		log_target(LOG_WARN, "broadcast_failed", t, status, t->n_records, why);
	count(t->b, t->d->type, FAILED, 1);
	back_off(t, retry_ms);
}

static void done(struct target *t, int status, uint64_t rejected)
{
	if (t->failures > 0)
		log_target(LOG_INFO, "broadcast_works_again", t, status, t->n_records, "");
	if (rejected > 0)
		LOG(LOG_WARN, "broadcast_rejected", LOG_S("destination", t->id),
		        LOG_S("type", trace_type_name(t->d->type)), LOG_N("spans", rejected));
	count(t->b, t->d->type, DELIVERED, t->n_records);
	count(t->b, t->d->type, DROPPED, t->n_gone);
	t->failures = 0;
	t->settle = t->through;
	t->limit = t->limit < BATCH / 2 ? t->limit * 2 : BATCH;
}

static void dropped(struct target *t, int status, const char *why)
{
	log_target(LOG_ERROR, "broadcast_refused", t, status, t->n_records, why);
	count(t->b, t->d->type, DROPPED, t->n_records + t->n_gone);
	t->failures = 0;
	t->settle = t->through;
}

static void on_answer(void *ctx, const struct broadcast_answer *a)
{
	struct target *t = ctx;
	struct trace_answer answer;

	t->call = NULL;
	t->busy = false;
	/* What broke off in the middle of a good answer was taken, or is sent once more. */
	trace_answer_read(t->d, a->err != NULL ? 0 : a->status, a->retry_after, a->body,
	        clock_wall_ms(), &answer);
	switch (answer.verdict) {
	case TRACE_DONE:
		done(t, a->status, answer.rejected);
		break;
	case TRACE_RETRY:
		failed(t, a->status, answer.retry_ms, a->err != NULL ? a->err->text : answer.text);
		break;
	case TRACE_SPLIT:
		if (t->n_records > 1)
			t->limit = (uint32_t)t->n_records / 2;
		else
			dropped(t, a->status, answer.text);
		break;
	case TRACE_DROP:
		dropped(t, a->status, answer.text);
		break;
	}
	go(t);
}

/* ---- looking ---- */

static bool is_destination(const struct look *l, int64_t n)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->rows[i].n == n)
			return true;
	return false;
}

/* Drops the oldest rows beyond what may wait; all of a destination that is there no more. */
static int trim(struct broadcast *b, struct store_outbox_count *c)
{
	struct look *l = &b->look;
	bool is = is_destination(l, c->destination);
	uint64_t most = is ? b->g->config->limits.broadcast_rows : 0, dropped = 0;
	int r = 1;

	for (unsigned i = 0; i < DROP_STEPS && c->rows > most && r > 0; i++) {
		uint64_t step = c->rows - most < DROP_STEP ? c->rows - most : DROP_STEP;

		r = store_outbox_drop(b->store, c->destination, (uint32_t)step, &l->err);
		if (r <= 0)
			break;
		c->rows -= (uint64_t)r < c->rows ? (uint64_t)r : c->rows;
		dropped += (uint64_t)r;
	}
	if (is && dropped > 0) {
		mem_grow(&l->dropped, &l->cap_dropped, l->n_dropped, sizeof(*l->dropped));
		l->dropped[l->n_dropped++] = (struct dropped){c->destination, dropped};
	}
	return r < 0 ? r : 0;
}

static int take_lease(struct broadcast *b, uint64_t now)
{
	struct look *l = &b->look;

	if (now < l->renew_ms)
		return 0;
	if (store_keeper_take(b->store, str_of(b->node), str_of(b->holder), clock_wall_ms(),
	            LEASE_MS, &l->held, &l->err) < 0)
		return -ERR_IO;
	l->renew_ms = now + RENEW_MS;
	l->held_until_ms = now + LEASE_MS;
	return 0;
}

static void look_work(void *arg)
{
	struct broadcast *b = arg;
	struct look *l = &b->look;
	uint64_t now = clock_mono_ms();
	bool due = now >= b->count_ms;

	if (store_destination_list(b->store, NULL, &l->rows, &l->n, &l->err) < 0)
		return;
	/* Where there is nothing to send to, nobody need be the one who sends. Rows that are left
	 * of a destination are removed all the same. */
	if ((l->n > 0 || (due && b->leftover)) && take_lease(b, now) < 0)
		return;
	if (!due || (!l->held && l->n > 0))
		return;
	if (store_outbox_counts(b->store, &l->counts, &l->n_counts, &l->err) < 0)
		return;
	l->counted = true;
	for (size_t i = 0; l->held && i < l->n_counts; i++)
		if (trim(b, &l->counts[i]) < 0)
			return;
}

static struct target *target_find(struct broadcast *b, int64_t n)
{
	for (struct target *t = b->targets; t != NULL; t = t->next)
		if (t->n == n)
			return t;
	return NULL;
}

/* What the row says; not while it is busy. */
static void target_read(struct target *t, const struct store_destination *row)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	struct error err = {0};

	t->updated_ms = row->updated_ms;
	if (row->fixed) {
		t->d = fixed_find(t->b->g->config, row->id);
		return;
	}
	t->d = NULL;
	t->own = trace_destination_free(t->own);
	if (json_parse(str_of(row->body), 16u << 20, &doc, &err) == 0 &&
	        trace_destination_parse(json_root(doc), &t->own, &err) == 0)
		t->d = t->own;
	if (t->d == NULL)
		log_target(LOG_ERROR, "broadcast_unreadable", t, 0, 0, err.text);
	t->failures = 0;
	t->retry_ms = 0;
	t->limit = BATCH;
}

static void target_see(struct broadcast *b, const struct store_destination *row)
{
	struct target *t = target_find(b, row->n);

	if (t == NULL) {
		t = mem_alloc(sizeof(*t));
		*t = (struct target){.next = b->targets,
		        .b = b,
		        .n = row->n,
		        .fixed = row->fixed,
		        .limit = BATCH,
		        .updated_ms = -1};
		str_copy(t->id, sizeof(t->id), str_of(row->id));
		b->targets = t;
	}
	t->seen = true;
	t->enabled = row->enabled;
	if (t->updated_ms != row->updated_ms && !t->busy)
		target_read(t, row);
	t->waiting = row->waiting;
}

/* What was dropped is counted, and said once until it is over. */
static void tell_dropped(struct broadcast *b)
{
	for (struct target *t = b->targets; t != NULL; t = t->next) {
		uint64_t rows = 0;

		for (size_t i = 0; i < b->look.n_dropped; i++)
			if (b->look.dropped[i].destination == t->n)
				rows = b->look.dropped[i].rows;
		if (rows > 0 && t->d != NULL)
			count(b, t->d->type, DROPPED, rows);
		if (rows > 0 && !t->dropping)
			log_target(LOG_ERROR, "broadcast_dropped", t, 0, rows,
			        "more waits for it than limits.broadcast_rows");
		t->dropping = rows > 0;
	}
}

static void tell_waiting(struct broadcast *b)
{
	metric *m = b->g->shared->metrics.broadcast_waiting;
	uint64_t rows[TRACE_TYPES] = {0};

	for (size_t i = 0; i < b->look.n_counts; i++) {
		struct target *t = target_find(b, b->look.counts[i].destination);

		if (t != NULL && t->d != NULL)
			rows[t->d->type] += b->look.counts[i].rows;
	}
	for (unsigned i = 0; i < TRACE_TYPES; i++)
		atomic_store_explicit(&m[i], rows[i], memory_order_relaxed);
}

static void look_clear(struct broadcast *b)
{
	store_destinations_free(b->look.rows, b->look.n);
	free(b->look.counts);
	free(b->look.dropped);
	b->look = (struct look){0};
}

static void arm(struct broadcast *b)
{
	const struct timeval tick = {TICK_MS / 1000, TICK_MS % 1000 * 1000};

	evtimer_add(b->timer, &tick);
}

static void look_done(void *arg)
{
	struct broadcast *b = arg;
	struct target *next;
	bool bad = b->look.err.code != 0;

	if (b->ending) {
		look_clear(b);
		return;
	}
	if (bad && !b->store_failed)
		log_text(LOG_ERROR, "broadcast_failed", "%s", b->look.err.text);
	b->store_failed = bad;
	b->held = b->look.held;
	b->held_until_ms = b->look.held_until_ms;
	b->renew_ms = b->look.renew_ms;
	for (struct target *t = b->targets; t != NULL; t = t->next)
		t->seen = bad;
	/* Who has not got the lease keeps nothing in mind. */
	for (size_t i = 0; !bad && b->held && i < b->look.n; i++)
		target_see(b, &b->look.rows[i]);
	if (!bad && b->look.counted) {
		b->count_ms = clock_mono_ms() + COUNT_MS;
		b->leftover = b->look.n == 0 && b->look.n_counts > 0;
		if (b->held) {
			tell_dropped(b);
			tell_waiting(b);
		}
	}
	look_clear(b);
	for (struct target *t = b->targets; t != NULL; t = next) {
		next = t->next;
		t->gone = !t->seen;
		go(t);
	}
	arm(b);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct broadcast *b = arg;

	b->look = (struct look){
	        .held = b->held, .held_until_ms = b->held_until_ms, .renew_ms = b->renew_ms};
	if (!pool_run(b->pool, look_work, look_done, b))
		arm(b);
}

/* ---- life ---- */

int64_t broadcast_started_ms(const struct broadcast *b)
{
	return b->started_ms;
}

static uint16_t listen_port(const struct gateway *g)
{
	union address a = {0};
	socklen_t len = sizeof(a);

	if (getsockname(g->options->listen_fd, &a.sa, &len) < 0)
		return 0;
	return address_port(&a);
}

struct broadcast *broadcast_start(struct gateway *g, struct error *err)
{
	const uint16_t port = listen_port(g);
	struct broadcast *b;
	char path[4160];
	/* A removal that is lost with the machine's power is a record that is sent twice. */
	const struct store_options so = {.path = path};
	char node[GATEWAY_NAME_MAX];
	uint8_t random[16];

	if (tell_store(g, err) < 0)
		return NULL;
	b = mem_alloc(sizeof(*b));
	b->g = g;
	b->started_ms = clock_wall_ms();
	str_format(path, sizeof(path), "%s/brig.db", g->options->state_dir);
	if (store_open(&so, &b->store, err) < 0) {
		free(b);
		return NULL;
	}
	id_random(random, sizeof(random));
	id_hex(random, sizeof(random), b->holder);
	/* One for the node: the keeper's row is named by the host alone. */
	gateway_name(0, node);
	str_format(b->node, sizeof(b->node), "%s broadcast", node);
	b->pool = pool_new(g->base, 1);
	b->own = address_own_new(&port, 1);
	b->timer = evtimer_new(g->base, on_timer, b);
	if (b->timer == NULL)
		BUG("no timer for broadcast");
	arm(b);
	return b;
}

struct broadcast *broadcast_free(struct broadcast *b)
{
	if (b == NULL)
		return NULL;
	b->ending = true;
	b->pool = pool_free(b->pool);
	event_free(b->timer);
	while (b->targets != NULL)
		target_free(b->targets);
	look_clear(b);
	http_client_free(b->free_client);
	http_client_free(b->guarded_client);
	pool_free(b->names);
	if (b->held)
		store_keeper_drop(b->store, str_of(b->node), str_of(b->holder), NULL);
	store_close(b->store);
	address_own_free(b->own);
	free(b);
	return NULL;
}
