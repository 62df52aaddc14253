/*
 * The price of keep_running. See keeping.h.
 *
 * Whichever gateway makes a kept container live, or is asked to keep a live one, opens its record;
 * all else is done by one gateway of the node, the keeper's. Every BEAT_MS that one looks at what
 * is open and at what is to be kept:
 *
 *     it is live, and to be kept           a heartbeat; a record where it has none
 *     its time is over                     settled at that time
 *     it has been open for SETTLE_MS       settled, and another begins
 *     it is not live, and nobody said so   settled at its last heartbeat, and marked
 *
 * and when the supervisor says that a container has ended, which every gateway hears, its record is
 * settled at that moment by the first of them.
 * All that counts is in the store, so that a gateway's death loses nothing: a container that goes
 * on meanwhile has one record that goes on too.
 */
#include "gateway/keeping.h"

#include "base/id.h"
#include "gateway/metrics.h"
#include "record/record.h"

#include <stdlib.h>

#define FIRST_MS 1000
#define BEAT_MS  5000
/* A record that is this old is settled and followed by another, so that what a key or a day has
 * spent says so while the container runs on. */
#define SETTLE_MS 3600000
#define LIST_MAX  1000

struct keeping {
	struct gateway *g;
	struct event *timer;
	char holder[GATEWAY_NAME_MAX];
	struct store_kept *list; /* what is being looked at */
	size_t n, asked;
	struct error err;
};

static void arm(struct keeping *k, unsigned ms)
{
	const struct timeval tv = {ms / 1000, (suseconds_t)(ms % 1000 * 1000)};

	evtimer_add(k->timer, &tv);
}

/* ---- one change ---- */

struct change {
	struct gateway *g;
	char account[65], workspace[65], container[STORE_ID_MAX + 1];
	bool ended; /* of every container of the node this one: */
	uint8_t key[SUP_KEY_LEN];
	struct store_kept_change c;
	struct record *next;
	struct store_kept_settled settled;
	keeping_fn then;
	void *ctx;
	struct error err;
};

static struct change *change_new(struct gateway *g, struct str account, struct str workspace,
        const char *container, enum record_state state, int64_t at_ms)
{
	struct change *c = mem_alloc(sizeof(*c));

	c->g = g;
	str_copy(c->account, sizeof(c->account), account);
	str_copy(c->workspace, sizeof(c->workspace), workspace);
	str_copy(c->container, sizeof(c->container), str_of(container));
	c->c = (struct store_kept_change){
	        .scope = {str_of(c->account), str_of(c->workspace)},
	        .container = str_of(c->container),
	        .holder = str_of(g->keeping->holder),
	        .price_per_second = g->config->container.price_per_second,
	        .state = state,
	        .at_ms = at_ms,
	};
	return c;
}

/* The record that is opened where there is none. hash {NULL,0}: nobody's. */
static void change_opens(struct change *c, struct str hash)
{
	struct record *r = record_new();

	id_make(r->id, sizeof(r->id), "gen-", 24);
	r->begin_ms = r->heartbeat_ms = clock_wall_ms();
	record_set(&r->account, str_of(c->account));
	record_set(&r->workspace, str_of(c->workspace));
	record_set(&r->key_hash, hash);
	record_set(&r->api, STR("container"));
	record_set(&r->request_id, str_of(r->id));
	record_set(&r->container_id, str_of(c->container));
	r->priced = true;
	c->c.next = c->next = r;
}

static void change_opens_for(struct change *c, const struct config_key *key)
{
	char hash[65];

	id_hex(key->hash, sizeof(key->hash), hash);
	change_opens(c, str_of(hash));
}

static void change_free(struct change *c)
{
	record_free(c->next);
	free(c);
}

static void change_work(void *arg)
{
	struct change *c = arg;

	if (store_kept_change(c->g->store, &c->c, &c->settled, &c->err) < 0)
		log_text(LOG_ERROR, "ledger_failed", "%s", c->err.text);
}

static void count(struct gateway *g, const struct change *c)
{
	struct metrics_shared *m = &g->shared->metrics;

	if (c->settled.n == 0)
		return;
	metric_add(&m->sandbox_ms, c->settled.sandbox_ms);
	metric_add(&m->sandbox_pico, (uint64_t)c->settled.sandbox_cost.pico);
	metric_add(&m->recovered, c->c.state == RECORD_RECOVERED ? c->settled.n : 0);
	LOG(LOG_INFO, "container_kept", LOG_S("container", c->container),
	        LOG_N("sandbox_ms", c->settled.sandbox_ms),
	        LOG_S("ledger_status", c->c.state == RECORD_RECOVERED ? "recovered" : "settled"));
}

static void change_done(void *arg)
{
	struct change *c = arg;

	count(c->g, c);
	if (c->then != NULL)
		c->then(c->ctx, c->err.code != 0 ? &c->err : NULL);
	change_free(c);
}

static void change_start(struct change *c, pool_fn work)
{
	if (pool_run(c->g->pool, work, change_done, c))
		return;
	gateway_busy(&c->err);
	change_done(c);
}

/* ---- what others tell ---- */

void keeping_claimed(struct gateway *g, const struct config_key *key, const char *container,
        const struct container_hold *hold)
{
	struct change *c;

	if (!container_hold_keeps(hold) || container_hold_how(hold) == SUP_WAS_LIVE)
		return;
	/* An open record is of a life that ended unseen. */
	c = change_new(
	        g, str_of(key->account), str_of(key->workspace), container, RECORD_RECOVERED, 0);
	change_opens_for(c, key);
	change_start(c, change_work);
}

void keeping_ordered(struct gateway *g, const struct config_key *key, const char *container,
        bool keep, int64_t was_until_ms, keeping_fn then, void *ctx)
{
	int64_t now = clock_wall_ms();
	bool over = was_until_ms > 0 && was_until_ms <= now; /* and no round has come since */
	struct change *c = change_new(g, str_of(key->account), str_of(key->workspace), container,
	        keep && !over ? RECORD_OPEN : RECORD_SETTLED, over ? was_until_ms : now);

	if (keep)
		change_opens_for(c, key);
	c->then = then;
	c->ctx = ctx;
	change_start(c, change_work);
}

/* The supervisor knows a container by the hash of its name. */
static bool is_of(const struct store_kept *row, const uint8_t key[SUP_KEY_LEN])
{
	uint8_t its[SUP_KEY_LEN], workspace[16];

	container_key(str_of(row->account), str_of(row->workspace), str_of(row->container), its,
	        workspace);
	return memcmp(its, key, SUP_KEY_LEN) == 0;
}

/* When it ceased to be kept, where it was live until ms. */
static int64_t end_of(const struct store_kept *row, int64_t ms)
{
	if (row->until_ms == 0 || row->until_ms > ms)
		return ms;
	return row->until_ms > row->begin_ms ? row->until_ms : row->begin_ms;
}

static void ended_work(void *arg)
{
	struct change *c = arg;
	struct store_kept *list = NULL;
	size_t n = 0;

	if (store_kept_list(c->g->reader, c->c.holder, INT64_MAX, LIST_MAX, &list, &n, &c->err) < 0)
		log_text(LOG_ERROR, "ledger_failed", "%s", c->err.text);
	for (size_t i = 0; i < n; i++) {
		if (list[i].begin_ms == 0 || !is_of(&list[i], c->key))
			continue;
		str_copy(c->container, sizeof(c->container), str_of(list[i].container));
		c->c.scope =
		        (struct store_scope){str_of(list[i].account), str_of(list[i].workspace)};
		c->c.container = str_of(c->container);
		c->c.at_ms = end_of(&list[i], c->c.at_ms);
		change_work(c);
		break;
	}
	free(list);
}

void keeping_ended(struct keeping *k, const uint8_t key[SUP_KEY_LEN])
{
	struct change *c;

	if (k->g->draining)
		return;
	c = change_new(k->g, (struct str){NULL, 0}, (struct str){NULL, 0}, "", RECORD_SETTLED,
	        clock_wall_ms());
	memcpy(c->key, key, sizeof(c->key));
	change_start(c, ended_work);
}

/* ---- the round ---- */

static void look(struct keeping *k, const struct store_kept *row, const struct container_status *s)
{
	bool live = s->state == SUP_ST_RUNNING || s->state == SUP_ST_FROZEN;
	int64_t now = clock_wall_ms(), at = now;
	bool long_enough = row->begin_ms > 0 && now - row->begin_ms >= SETTLE_MS;
	enum record_state state = RECORD_OPEN;
	struct change *c;

	if (!live && row->begin_ms == 0)
		return; /* it costs from its next use on */
	if (row->until_ms > 0 && row->until_ms <= now) {
		state = RECORD_SETTLED;
		at = end_of(row, now);
	} else if (!live) {
		state = RECORD_RECOVERED;
		at = 0;
	} else if (row->until_ms == 0 || long_enough) {
		state = RECORD_SETTLED;
	}
	c = change_new(
	        k->g, str_of(row->account), str_of(row->workspace), row->container, state, at);
	if (state == RECORD_OPEN || (state == RECORD_SETTLED && long_enough))
		change_opens(
		        c, row->key_hash[0] != 0 ? str_of(row->key_hash) : (struct str){NULL, 0});
	change_start(c, change_work);
}

/* Answers come in any order; the place travels in the pointer. */
struct ask {
	struct keeping *k;
	size_t i;
};

static void round_end(struct keeping *k)
{
	free(k->list);
	k->list = NULL;
	k->n = 0;
	arm(k, BEAT_MS);
}

static void on_status(void *ctx, const struct container_status *s, const struct error *err)
{
	struct ask *a = ctx;
	struct keeping *k = a->k;

	if (s != NULL && !k->g->draining)
		look(k, &k->list[a->i], s);
	free(a);
	if (--k->asked == 0)
		round_end(k);
}

static void list_work(void *arg)
{
	struct keeping *k = arg;

	if (store_kept_list(k->g->reader, str_of(k->holder), clock_wall_ms(), LIST_MAX, &k->list,
	            &k->n, &k->err) < 0)
		log_text(LOG_ERROR, "ledger_failed", "%s", k->err.text);
}

static void list_done(void *arg)
{
	struct keeping *k = arg;
	uint8_t key[SUP_KEY_LEN], workspace[16];

	if (k->n == 0) {
		round_end(k);
		return;
	}
	k->asked = k->n;
	for (size_t i = 0, n = k->n; i < n; i++) {
		const struct store_kept *row = &k->list[i];
		struct ask *a = mem_alloc(sizeof(*a));

		*a = (struct ask){k, i};
		container_key(str_of(row->account), str_of(row->workspace), str_of(row->container),
		        key, workspace);
		container_ask_status(k->g->containers, key, on_status, a);
	}
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct keeping *k = arg;

	if (k->g->draining)
		return;
	if (!keeper_is_here(k->g->keeper) || !pool_run(k->g->pool, list_work, list_done, k))
		arm(k, FIRST_MS);
}

/* ---- begin and end ---- */

struct keeping *keeping_start(struct gateway *g, struct error *err)
{
	struct keeping *k = mem_alloc(sizeof(*k));
	char *slash;

	k->g = g;
	gateway_name(0, k->holder);
	slash = strrchr(k->holder, '/');
	str_copy(slash, sizeof(k->holder) - (size_t)(slash - k->holder), STR("/kept"));
	k->timer = evtimer_new(g->base, on_timer, k);
	if (k->timer == NULL) {
		free(k);
		error_set(err, ERR_NOMEM, "no memory for a timer");
		return NULL;
	}
	if (g->options->sup_fd >= 0)
		arm(k, FIRST_MS);
	return k;
}

/* The containers go with the server. If only this gateway does, the next one's round goes on. */
static void settle_all(struct keeping *k)
{
	struct store_kept *list = NULL;
	size_t n = 0;
	struct error err;

	store_kept_list(k->g->reader, str_of(k->holder), INT64_MAX, LIST_MAX, &list, &n, &err);
	for (size_t i = 0; i < n; i++) {
		struct change *c = change_new(k->g, str_of(list[i].account),
		        str_of(list[i].workspace), list[i].container, RECORD_SETTLED,
		        end_of(&list[i], clock_wall_ms()));

		change_work(c);
		count(k->g, c);
		change_free(c);
	}
	free(list);
}

struct keeping *keeping_free(struct keeping *k)
{
	if (k == NULL)
		return NULL;
	if (keeper_is_here(k->g->keeper))
		settle_all(k);
	event_free(k->timer);
	free(k->list);
	free(k);
	return NULL;
}
