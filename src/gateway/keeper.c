/*
 * The node's timers: what nobody asks for and time makes due. One gateway of the node does it, the
 * holder of the store's keeper row; the others try to take that row, and one of them has it within
 * LEASE_MS of the holder's death.
 *
 * A round, every ROUND_MS: forget call ids that have expired, now and then remove blobs of
 * documents that nobody has; then delete containers that nobody has used for their time, and end
 * deletions that a crash left half done. One container at a time:
 *
 *     status (a held one is in use: its row is touched) → mark the row, unless it was used since
 *     → the supervisor takes the files → the row goes, unless it was made anew meanwhile
 *
 * All that must survive a death is in the rows, so a round may end anywhere. Sleep is not made
 * here: the supervisor knows who holds what.
 */
#include "gateway/internal.h"

#include "base/id.h"
#include "gateway/documents.h"
#include "gateway/saving.h"

#include <stdlib.h>
#include <unistd.h>

#define FIRST_MS        500
#define ROUND_MS        10000
#define LEASE_MS        30000
#define BATCH           64
#define FORGET          1000
#define RESPONSE_STEPS  16
/* Records go in steps that are over before a turn would wait for them. */
#define RECORD_STEP  100
#define RECORD_STEPS 200
#define LEDGER_LOST_MS  15000 /* an open record without a heartbeat for so long */
#define NETWORK_KEPT_MS (INT64_C(30) * 86400000) /* records of egress */
#define KEYS_KEPT_MS    (INT64_C(90) * 86400000) /* revoked keys */
/* Between looks for blobs that no document has; sooner while there are any. */
#define COLLECT_MS 3600000

struct keeper {
	struct gateway *g;
	struct event *timer;
	char node[256], holder[33];
	bool held;
	struct store_stale *stale; /* of this round */
	size_t n, i;
	bool marked;         /* stale[i] is */
	uint64_t collect_ms; /* monotonic: when to look for unused blobs again */
	struct error err;
};

static void arm(struct keeper *k, unsigned ms)
{
	const struct timeval tv = {ms / 1000, (suseconds_t)(ms % 1000 * 1000)};

	evtimer_add(k->timer, &tv);
}

static void round_end(struct keeper *k)
{
	bool more = k->n == BATCH;

	k->stale = store_stale_free(k->stale, k->n);
	k->n = k->i = 0;
	arm(k, more ? FIRST_MS : ROUND_MS);
}

/* Work that failed is tried again in the next round: whatever it was, the rows still say so. */
static void round_fail(struct keeper *k)
{
	log_text(LOG_ERROR, "keeper_failed", "%s", k->err.text);
	k->n = k->n == BATCH ? 0 : k->n; /* not at once */
	round_end(k);
}

static void go(struct keeper *k, pool_fn work, pool_fn done)
{
	k->err.code = 0;
	if (pool_run(k->g->pool, work, done, k))
		return;
	error_set(&k->err, ERR_UNAVAILABLE, "the server has too much to do");
	round_fail(k);
}

/* ---- one container ---- */

static struct store_scope scope_of(const struct store_stale *s)
{
	return (struct store_scope){str_of(s->account), str_of(s->workspace)};
}

static void key_of(const struct store_stale *s, uint8_t key[SUP_KEY_LEN])
{
	uint8_t workspace[16];

	container_key(str_of(s->account), str_of(s->workspace), str_of(s->id), key, workspace);
}

static void next(struct keeper *k);

static void touch_work(void *arg)
{
	struct keeper *k = arg;
	const struct store_stale *s = &k->stale[k->i];
	const struct store_scope scope = scope_of(s);
	struct store_container fresh;

	row_default(k->g, str_of(s->id), &fresh);
	store_container_touch(k->g->store, &scope, str_of(s->id), clock_wall_ms(), &fresh, &k->err);
}

static void remove_work(void *arg)
{
	struct keeper *k = arg;
	const struct store_stale *s = &k->stale[k->i];
	const struct store_scope scope = scope_of(s);

	if (saving_forget(k->g, &scope, str_of(s->id), true, &k->err) < 0)
		return;
	if (store_container_delete(k->g->store, &scope, str_of(s->id), &k->err) > 0)
		LOG(LOG_INFO, "container_deleted", LOG_S("container", s->id),
		        LOG_N("unused_ms", clock_wall_ms() - s->last_used_ms));
}

static void step_done(void *arg)
{
	struct keeper *k = arg;

	if (k->err.code != 0) {
		round_fail(k);
		return;
	}
	k->i++;
	next(k);
}

static void on_removed(void *ctx, const struct container_status *s, const struct error *err)
{
	struct keeper *k = ctx;

	if (err != NULL) {
		k->err = *err;
		step_done(k);
		return;
	}
	go(k, remove_work, step_done);
}

static void mark_work(void *arg)
{
	struct keeper *k = arg;
	const struct store_stale *s = &k->stale[k->i];
	const struct store_scope scope = scope_of(s);

	/* Also of one that is being deleted: it may have been made anew since the round began. */
	k->marked = store_container_expire(k->g->store, s, clock_wall_ms(), &k->err) > 0;
	if (k->marked)
		saving_forget(k->g, &scope, str_of(s->id), false, &k->err);
}

static void mark_done(void *arg)
{
	struct keeper *k = arg;
	uint8_t key[SUP_KEY_LEN];

	if (!k->marked) {
		step_done(k);
		return;
	}
	key_of(&k->stale[k->i], key);
	container_order_delete(k->g->containers, key, on_removed, k);
}

static void on_status(void *ctx, const struct container_status *s, const struct error *err)
{
	struct keeper *k = ctx;

	if (err != NULL) {
		k->err = *err;
		step_done(k);
	} else if (s->holders > 0 && !k->stale[k->i].deleting) {
		go(k, touch_work, step_done);
	} else {
		go(k, mark_work, mark_done);
	}
}

static void next(struct keeper *k)
{
	uint8_t key[SUP_KEY_LEN];

	if (k->i == k->n || k->g->draining) {
		round_end(k);
		return;
	}
	key_of(&k->stale[k->i], key);
	container_ask_status(k->g->containers, key, on_status, k);
}

/* ---- a round ---- */

static void collect(struct keeper *k)
{
	int n;

	if (clock_mono_ms() < k->collect_ms)
		return;
	n = documents_collect(k->g, &k->err);
	if (n > 0)
		LOG(LOG_INFO, "blobs_collected", LOG_N("n", n));
	if (n == 0)
		k->collect_ms = clock_mono_ms() + COLLECT_MS;
}

/* The last ones of a chain go first. */
static int expire_responses(struct store *s, int64_t now, struct error *err)
{
	int n = 1;

	for (unsigned i = 0; n > 0 && i < RESPONSE_STEPS; i++)
		n = store_responses_expire(s, now, BATCH, err);
	return n;
}

static int expire_records(struct keeper *k, int64_t now)
{
	int64_t before = now - (int64_t)k->g->config->log_days * 86400000;
	int n = RECORD_STEP;

	for (unsigned i = 0; n == RECORD_STEP && i < RECORD_STEPS; i++)
		n = store_records_expire(k->g->store, before, RECORD_STEP, &k->err);
	return n;
}

static void round_work(void *arg)
{
	struct keeper *k = arg;
	struct store *s = k->g->store;
	int64_t now = clock_wall_ms(), keep = (int64_t)k->g->config->container.keep_days * 86400000;

	if (store_keeper_take(
	            s, str_of(k->node), str_of(k->holder), now, LEASE_MS, &k->held, &k->err) < 0 ||
	        !k->held)
		return;
	if (store_call_ids_expire(s, now, FORGET, &k->err) < 0)
		return;
	if (store_network_expire(s, now - NETWORK_KEPT_MS, FORGET, &k->err) < 0)
		return;
	int recovered = store_records_recover(s, (struct str){NULL, 0}, now - LEDGER_LOST_MS, &k->err);

	metric_add(&k->g->shared->metrics.recovered, recovered > 0 ? (uint64_t)recovered : 0);
	if (recovered < 0 ||
	        expire_records(k, now) < 0)
		return;
	if (expire_responses(s, now, &k->err) < 0 ||
	        store_idempotency_expire(s, now, FORGET, &k->err) < 0 ||
	        store_keys_expire(s, now - KEYS_KEPT_MS, FORGET, &k->err) < 0)
		return;
	collect(k);
	if (k->err.code != 0)
		return;
	/* Without a supervisor nobody can take the files, and then the row must stay. */
	if (k->g->options->sup_fd >= 0)
		store_container_stale(s, keep, now, BATCH, &k->stale, &k->n, &k->err);
}

static void round_done(void *arg)
{
	struct keeper *k = arg;

	if (k->err.code != 0)
		round_fail(k);
	else
		next(k);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct keeper *k = arg;

	if (!k->g->draining)
		go(k, round_work, round_done);
}

struct keeper *keeper_start(struct gateway *g, struct error *err)
{
	struct keeper *k = mem_alloc(sizeof(*k));
	uint8_t random[16];

	k->g = g;
	id_random(random, sizeof(random));
	id_hex(random, sizeof(random), k->holder);
	if (gethostname(k->node, sizeof(k->node) - 1) < 0 || k->node[0] == 0)
		str_copy(k->node, sizeof(k->node), STR("local"));
	k->timer = evtimer_new(g->base, on_timer, k);
	if (k->timer == NULL) {
		free(k);
		error_set(err, ERR_NOMEM, "no memory for the keeper's timer");
		return NULL;
	}
	arm(k, FIRST_MS);
	return k;
}

bool keeper_is_here(const struct keeper *k)
{
	return k != NULL && k->held;
}

struct keeper *keeper_free(struct keeper *k)
{
	if (k == NULL)
		return NULL;
	if (k->held)
		store_keeper_drop(k->g->store, str_of(k->node), str_of(k->holder), NULL);
	event_free(k->timer);
	store_stale_free(k->stale, k->n);
	free(k);
	return NULL;
}
