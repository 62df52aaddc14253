/*
 * Theory of operation.
 *
 * States of a container: (POOLED →) STARTING (init works on set-up and claim; 10 s at most) →
 * RUNNING ⇄ FROZEN (no holder) → ENDING (killed; waits until init is reaped and nothing of it is in
 * use) → out of the table. Out of the table is asleep, or never made: files only.
 *
 * What cannot be answered at once waits in a queue (queue.c), which is looked at again whenever
 * anything here changes.
 *
 * The pool (pool.c) makes sandboxes ahead, as containers without a name in state POOLED; a claim
 * that finds one there gives it a name and goes on from STARTING, as one that it made itself.
 */
#include "supervisor/live.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "packet/hurry.h"
#include "supervisor/live_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define KILL_AGAIN_MS 100
#define ROOM_CHECK_MS 500
#define FREEZE_MS     200 /* after the last use, see container_freezes_at */

struct container *container_find(struct live *l, const uint8_t key[SUP_KEY_LEN])
{
	struct container *c;
	TAILQ_FOREACH(c, &l->containers, link)
	if (c->named && memcmp(c->is.key, key, SUP_KEY_LEN) == 0)
		return c;
	return NULL;
}

/* ---- answers ---- */

void live_answer(struct live *l, uint32_t gateway, const void *msg, size_t len, int fd)
{
	if (gateway != LIVE_NOBODY)
		l->out.send(l->out.ctx, gateway, msg, len, fd);
}

void live_answer_failed(struct live *l, uint32_t gateway, uint32_t seq, const struct fail *f)
{
	struct sup_failed msg = {
	        .h = {.op = SUP_FAILED, .size = sizeof(msg), .seq = seq},
	        .why = f->why,
	        .errnum = (uint32_t)f->errnum,
	};
	str_copy(msg.step, sizeof(msg.step), str_of(f->step));
	live_answer(l, gateway, &msg, sizeof(msg), -1);
}

void live_answer_why(struct live *l, uint32_t gateway, uint32_t seq, uint32_t why, const char *step)
{
	live_answer_failed(l, gateway, seq, &(struct fail){.why = why, .step = step});
}

void live_answer_done(struct live *l, uint32_t gateway, uint32_t seq)
{
	struct sup_simple msg = {.h = {.op = SUP_DONE, .size = sizeof(msg), .seq = seq}};
	live_answer(l, gateway, &msg, sizeof(msg), -1);
}

static void announce_end(struct live *l, struct container *c)
{
	if (!c->was_live || c->announced)
		return;
	c->announced = true;
	struct sup_ended msg = {
	        .h = {.op = SUP_ENDED, .size = sizeof(msg)},
	        .generation = c->generation,
	        .why = c->why,
	};
	memcpy(msg.key, c->is.key, SUP_KEY_LEN);
	l->out.send_all(l->out.ctx, &msg, sizeof(msg));
}

/* ---- a container's life ---- */

struct container *container_new(struct live *l, enum state state)
{
	struct container *c = mem_alloc(sizeof(*c));
	c->generation = ++l->last_id;
	c->state = state;
	for (int i = 0; i < LIVE_NETWORK_FDS; i++)
		c->network[i] = -1;
	TAILQ_INIT(&c->holds);
	TAILQ_INSERT_TAIL(&l->containers, c, link);
	l->n_containers++;
	return c;
}

/* Its connections end, and its sockets: with the last copy goes the network namespace. */
static void network_end(struct live *l, struct container *c)
{
	if (c->network[0] >= 0)
		l->out.network_remove(l->out.ctx, c->generation);
	for (int i = 0; i < LIVE_NETWORK_FDS; i++)
		sys_close(&c->network[i]);
}

void container_end(struct live *l, struct container *c, enum sup_end why)
{
	if (c->state == LIVE_ENDING)
		return;
	c->state = LIVE_ENDING;
	c->why = why;
	l->ended[why]++;
	c->since_ms = c->due_ms = clock_mono_ms();
	for (struct hold *h; (h = TAILQ_FIRST(&c->holds));) {
		TAILQ_REMOVE(&c->holds, h, link);
		free(h);
	}
	c->n_holds = 0;
	l->host->runtime->kill(l->host, &c->sb);
	network_end(l, c);
	if (c->sb.pid > 0)
		c->due_ms += KILL_AGAIN_MS;
}

void container_fail(struct live *l, struct container *c)
{
	log_text(LOG_WARN, "sandbox_failed", "%s: %s", c->fail.step, strerror(c->fail.errnum));
	queue_start_failed(l, c);
	container_end(l, c, SUP_END_INIT_DIED);
}

/* True when nothing is left of it and it is out of the table. */
static bool container_try_remove(struct live *l, struct container *c)
{
	uint64_t now = clock_mono_ms();
	if (c->sb.pid > 0) {
		l->host->runtime->kill(l->host, &c->sb);
		c->due_ms = now + KILL_AGAIN_MS;
		return false;
	}
	announce_end(l, c);
	if (c->sb.control >= 0)
		l->out.unwatch(l->out.ctx, c->sb.control);
	if (!l->host->runtime->remove(l->host, &c->sb)) {
		c->due_ms = now + (c->looks < 20 ? 1 : 50);
		if (++c->looks == 200)
			log_text(LOG_ERROR, "sandbox_stuck",
			        "%s: a mount or cgroup of it is still in use", c->sb.name);
		return false;
	}
	TAILQ_REMOVE(&l->containers, c, link);
	l->n_containers--;
	free(c);
	return true;
}

/* The waiter keeps its copy of the policy, for a start that has to be made again. */
static int network_begin(struct live *l, struct container *c, const struct waiter *w)
{
	if (!(c->is.flags & SUP_CLAIM_NETWORK))
		return 0;
	c->network[0] = fcntl(w->policy, F_DUPFD_CLOEXEC, 0);
	if (c->network[0] < 0)
		return fail_set(&c->fail, SUP_E_SYSTEM, errno, "keep the network policy");
	l->out.network_add(l->out.ctx, c->generation, c->network);
	return 0;
}

struct container *container_start(struct live *l, struct container *c, const struct waiter *w)
{
	const struct sup_claim *claim = &w->m.claim;
	int r = 0;
	bool pooled = c;
	uint64_t now_ns = clock_mono_ns();
	if (!c)
		c = container_new(l, LIVE_STARTING);
	c->is = *claim;
	c->named = true;
	c->pooled = pooled;
	c->state = LIVE_STARTING;
	c->started_ns = now_ns;
	c->due_ms = clock_mono_ms() + START_LIMIT_MS;
	struct sandbox_spec spec = {
	        .key = c->is.key,
	        .image = claim->image,
	        .memory_mib = claim->memory_mib,
	        .cpu_milli = claim->cpu_milli,
	        .processes = claim->processes,
	        .hostname = c->is.hostname,
	        .network = claim->flags & SUP_CLAIM_NETWORK,
	        .any_address = claim->flags & SUP_CLAIM_ANY_ADDRESS,
	};
	if (!pooled)
		r = l->host->runtime->prepare(l->host, c->generation, &c->sb, &c->fail);
	c->prepared_ns = clock_mono_ns();
	if (r == 0)
		r = l->host->runtime->claim(
		        l->host, &c->sb, &spec, &c->created, c->network + 1, &c->fail);
	if (r == 0)
		r = network_begin(l, c, w);
	if (r == 0 && !pooled && l->out.watch(l->out.ctx, c->sb.control, c->generation) < 0)
		r = fail_set(&c->fail, SUP_E_SYSTEM, errno, "watch init");
	c->created = c->created || w->created;
	c->claimed_ns = clock_mono_ns();
	return c;
}

static void container_freeze(struct live *l, struct container *c, bool on)
{
	if (c->state != (on ? LIVE_RUNNING : LIVE_FROZEN))
		return;
	l->host->runtime->freeze(l->host, &c->sb, on);
	c->state = on ? LIVE_FROZEN : LIVE_RUNNING;
}

/* Until when it runs on without holders. Between the commands of a turn freezing would only be in
 * the way: each change takes a lock that making and removing groups take too. And on version 1 what
 * init has just killed dies only thawed. */
static uint64_t container_freezes_at(const struct container *c)
{
	uint64_t at = c->idle_ms + FREEZE_MS;
	return c->keep_ms > at ? c->keep_ms : at;
}

void container_settle(struct live *l, struct container *c)
{
	bool wanted = c->n_holds > 0 || container_freezes_at(c) > clock_mono_ms();
	container_freeze(l, c, !wanted || l->out_of_room);
}

bool container_is_idle(const struct container *c)
{
	return (c->state == LIVE_RUNNING || c->state == LIVE_FROZEN) && c->n_holds == 0 &&
	       c->keep_ms <= clock_mono_ms();
}

uint64_t container_idle_since(const struct container *c)
{
	return c->keep_ms > c->idle_ms ? c->keep_ms : c->idle_ms;
}

/* ---- requests ---- */

static void hold_end(struct live *l, struct container *c, struct hold *h)
{
	TAILQ_REMOVE(&c->holds, h, link);
	free(h);
	if (--c->n_holds > 0)
		return;
	c->idle_ms = clock_mono_ms();
	container_settle(l, c);
}

/* A hold that is unknown may have ended with its container; one of another gateway is not this
 * one's. */
static void request_release(struct live *l, uint32_t gateway, uint64_t id)
{
	struct container *c;
	struct hold *h;
	TAILQ_FOREACH(c, &l->containers, link)
	TAILQ_FOREACH(h, &c->holds, link)
	if (h->id == id && h->gateway == gateway) {
		hold_end(l, c, h);
		l->changed = true;
		return;
	}
}

static void request_keep(struct live *l, uint32_t gateway, const struct sup_keep *m)
{
	struct container *c = container_find(l, m->key);
	if (!c || c->state == LIVE_STARTING || c->state == LIVE_ENDING) {
		live_answer_why(l, gateway, m->h.seq, SUP_E_UNKNOWN, "not live");
		return;
	}
	c->keep_ms = m->keep_ms ? clock_mono_ms() + m->keep_ms : 0;
	container_settle(l, c);
	live_answer_done(l, gateway, m->h.seq);
	l->changed = true;
}

static void request_status(struct live *l, uint32_t gateway, const struct sup_key *m)
{
	struct sup_status msg = {.h = {.op = SUP_STATUS_IS, .size = sizeof(msg), .seq = m->h.seq}};
	struct container *c = container_find(l, m->key);
	if (l->host && disk_home_exists(l->host->disk, m->key)) {
		msg.state = SUP_ST_ASLEEP;
		msg.home_used_bytes = disk_home_used(l->host->disk, m->key);
	}
	if (c && c->state != LIVE_ENDING) {
		msg.state = c->state == LIVE_FROZEN ? SUP_ST_FROZEN : SUP_ST_RUNNING;
		msg.holders = c->n_holds;
		msg.generation = c->generation;
		memcpy(msg.policy, c->is.policy, sizeof(msg.policy));
		msg.idle_ms =
		        c->n_holds || c->state == LIVE_STARTING ? 0 : clock_mono_ms() - c->idle_ms;
	}
	live_answer(l, gateway, &msg, sizeof(msg), -1);
}

static void request_node(struct live *l, uint32_t gateway, uint32_t seq)
{
	struct sup_node msg = {.h = {.op = SUP_NODE_IS, .size = sizeof(msg), .seq = seq}};
	figures_fill(l, &msg);
	live_answer(l, gateway, &msg, sizeof(msg), -1);
}

void live_request(struct live *l, uint32_t gateway, const union message *m, int policy)
{
	if (!l->host && m->h.op != SUP_STATUS && m->h.op != SUP_CANCEL && m->h.op != SUP_RELEASE &&
	        m->h.op != SUP_NODE) {
		live_answer_why(l, gateway, m->h.seq, SUP_E_SYSTEM, "sandbox: off");
		sys_close(&policy);
		return;
	}
	switch (m->h.op) {
	case SUP_CLAIM:
	case SUP_SLEEP:
	case SUP_DELETE:
	case SUP_FILES:
		queue_add(l, gateway, m, policy);
		break;
	case SUP_CANCEL:
		queue_cancel(l, gateway, m->h.seq);
		break;
	case SUP_RELEASE:
		request_release(l, gateway, m->hold.hold);
		break;
	case SUP_KEEP:
		request_keep(l, gateway, &m->keep);
		break;
	case SUP_STATUS:
		request_status(l, gateway, &m->key);
		break;
	case SUP_NODE:
		request_node(l, gateway, m->h.seq);
		break;
	default:
		BUG("op %u passed message_check", m->h.op);
	}
}

/* ---- networks ---- */

void live_tell_networks(struct live *l)
{
	struct container *c;
	TAILQ_FOREACH(c, &l->containers, link)
	if (c->network[0] >= 0)
		l->out.network_add(l->out.ctx, c->generation, c->network);
}

void live_refuse_connections(struct live *l)
{
	struct container *c;
	TAILQ_FOREACH(c, &l->containers, link)
	for (int i = 1 + NETNS_TCP_53; i < LIVE_NETWORK_FDS; i++)
		/* As many as can have waited; who comes meanwhile has his turn next time. */
		for (int n = 0; n < NETNS_BACKLOG && c->network[i] >= 0; n++) {
			int sock = accept4(c->network[i], NULL, NULL, SOCK_CLOEXEC);
			if (sock < 0)
				break;
			close(sock);
		}
}

/* ---- events ---- */

void live_gateway_gone(struct live *l, uint32_t gateway)
{
	struct container *c;
	queue_gateway_gone(l, gateway);
	TAILQ_FOREACH(c, &l->containers, link)
	{
		struct hold *h, *next;
		for (h = TAILQ_FIRST(&c->holds); h; h = next) {
			next = TAILQ_NEXT(h, link);
			if (h->gateway == gateway)
				hold_end(l, c, h);
		}
	}
	queue_run(l);
}

static void container_ready(struct live *l, struct container *c)
{
	c->state = LIVE_RUNNING;
	c->was_live = true;
	c->idle_ms = clock_mono_ms();
	pool_pause(l);
	LOG(LOG_INFO, "sandbox_ready", LOG_S("sandbox", c->sb.name), LOG_N("created", c->created),
	        LOG_N("pooled", c->pooled),
	        LOG_N("prepare_us", (c->prepared_ns - c->started_ns) / 1000),
	        LOG_N("claim_us", (c->claimed_ns - c->prepared_ns) / 1000),
	        LOG_N("init_us", (clock_mono_ns() - c->claimed_ns) / 1000));
	queue_run(l);
	container_settle(l, c); /* all who waited may have gone */
}

void live_control(struct live *l, uint64_t id)
{
	struct container *c;
	if (id == LIVE_FIRST_ID) {
		pool_heard(l);
		return;
	}
	TAILQ_FOREACH(c, &l->containers, link)
	if (c->generation == id)
		break;
	if (!c && worker_control(l, id)) {
		queue_run(l);
		return;
	}
	if (!c || c->sb.control < 0)
		return;
	struct fail f;
	switch (l->host->runtime->read(&c->sb, &f, c->fail_text)) {
	case SANDBOX_NOTHING:
		return;
	case SANDBOX_PREPARED:
		if (c->state == LIVE_POOLED)
			pool_prepared(l, c);
		return;
	case SANDBOX_READY:
		if (c->state == LIVE_STARTING) {
			container_ready(l, c);
			return;
		}
		fail_set(
		        &f, SUP_E_SYSTEM, EPROTO, "init broke the protocol"); /* nobody claims it */
		break;
	case SANDBOX_GONE:
		fail_set(&f, SUP_E_SYSTEM, 0, "init ended");
		break;
	case SANDBOX_BROKEN:
		break;
	}
	/* Readable for ever from now on: watch it no more. */
	l->out.unwatch(l->out.ctx, c->sb.control);
	hurry_close(&c->sb.control);
	if (c->state == LIVE_STARTING) {
		c->fail = f;
		container_fail(l, c);
	} else if (c->state == LIVE_POOLED) {
		pool_lost(l, c, &f);
	} else {
		container_end(l, c, SUP_END_INIT_DIED);
	}
}

bool live_reaped(struct live *l, pid_t pid)
{
	struct container *c;
	TAILQ_FOREACH(c, &l->containers, link)
	if (c->sb.pid == pid)
		break;
	if (!c && worker_reaped(l, pid)) {
		queue_run(l);
		return true;
	}
	if (!c)
		return pool_reaped(l, pid);
	c->sb.pid = 0;
	if (c->state == LIVE_STARTING) {
		fail_set(&c->fail, SUP_E_SYSTEM, 0, "init ended");
		container_fail(l, c);
	}
	if (c->state == LIVE_POOLED)
		pool_lost(l, c, &(struct fail){.why = SUP_E_SYSTEM, .step = "init ended"});
	container_end(l, c, SUP_END_INIT_DIED);
	if (container_try_remove(l, c))
		queue_run(l);
	return true;
}

/* Under half of the reserve nothing may write: no image must ever meet a full disk. */
static void room_check(struct live *l, uint64_t now)
{
	if (now < l->room_due_ms || !l->host)
		return;
	l->room_due_ms = now + ROOM_CHECK_MS;
	if (l->n_containers == 0 && !l->out_of_room)
		return;
	enum disk_room room = disk_room(l->host->disk);
	if (l->out_of_room ? room != DISK_ROOMY : room != DISK_HALF_RESERVE)
		return;
	l->out_of_room = !l->out_of_room;
	log_text(l->out_of_room ? LOG_ERROR : LOG_INFO, "disk_reserve", "%s",
	        l->out_of_room ? "free disk is under half of the reserve: all containers are frozen"
	                       : "free disk is above the reserve again");
	struct container *c;
	TAILQ_FOREACH(c, &l->containers, link)
	container_settle(l, c);
}

/* Does what is due for one container; returns true when it left the table. */
static bool container_tick(struct live *l, struct container *c, uint64_t now)
{
	if (c->state == LIVE_ENDING)
		return c->due_ms <= now && container_try_remove(l, c);
	if (c->state == LIVE_POOLED) {
		if (c->due_ms <= now)
			pool_lost(l, c,
			        &(struct fail){.why = SUP_E_SYSTEM,
			                .errnum = ETIMEDOUT,
			                .step = "wait for init"});
		return false;
	}
	if (c->state == LIVE_STARTING) {
		if (c->due_ms <= now) {
			fail_set(&c->fail, SUP_E_SYSTEM, ETIMEDOUT, "wait for init");
			container_fail(l, c);
		}
		return false;
	}
	if (!container_is_idle(c))
		return false;
	container_settle(l, c);
	if (l->cfg->sleep_after_ms && now >= container_idle_since(c) + l->cfg->sleep_after_ms)
		container_end(l, c, SUP_END_IDLE);
	return false;
}

/* When the container wants to be looked at again. */
static uint64_t container_due(const struct live *l, const struct container *c)
{
	if (c->state == LIVE_ENDING || c->state == LIVE_STARTING || c->state == LIVE_POOLED)
		return c->due_ms;
	if (c->n_holds > 0)
		return UINT64_MAX;
	uint64_t due = l->cfg->sleep_after_ms ? container_idle_since(c) + l->cfg->sleep_after_ms
	                                      : UINT64_MAX;
	if (c->state == LIVE_RUNNING && container_freezes_at(c) < due)
		due = container_freezes_at(c);
	return due;
}

int live_tick(struct live *l)
{
	uint64_t now = clock_mono_ms(), due, workers;
	struct container *c, *next;
	bool removed = false;
	room_check(l, now);
	for (c = TAILQ_FIRST(&l->containers); c; c = next) {
		next = TAILQ_NEXT(c, link);
		removed |= container_tick(l, c, now);
	}
	removed |= workers_tick(l, now, &workers);
	if (removed || l->changed || queue_due(l) <= now)
		queue_run(l);
	now = clock_mono_ms();
	due = queue_due(l);
	if (workers < due)
		due = workers;
	TAILQ_FOREACH(c, &l->containers, link)
	if (container_due(l, c) < due)
		due = container_due(l, c);
	if (l->host && (l->n_containers || l->out_of_room) && l->room_due_ms < due)
		due = l->room_due_ms;
	if (pool_due(l, now) > now && pool_due(l, now) < due)
		due = pool_due(l, now);
	if (due > now + 10000)
		due = now + 10000;
	return due <= now ? 0 : (int)(due - now);
}

bool live_wants_step(const struct live *l)
{
	uint64_t now = clock_mono_ms();
	return pool_due(l, now) <= now;
}

void live_step(struct live *l)
{
	pool_step(l);
}

/* ---- beginning and end ---- */

static uint32_t live_limit(const struct sup_config *cfg)
{
	uint64_t limit = cfg->live;
	if (limit == 0) { /* memory × 0.8 ÷ a container's, twice over (DESIGN section 8) */
		uint64_t mib =
		        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) >> 20;
		limit = mib * 8 / 10 / cfg->memory_mib * 2;
	}
	limit = limit < 1 ? 1 : limit;
	return limit > cfg->n_leases ? cfg->n_leases : (uint32_t)limit;
}

struct live *live_new(
        struct sandbox_host *host, const struct sup_config *cfg, const struct live_out *out)
{
	struct live *l = mem_alloc(sizeof(*l));
	l->host = host;
	l->cfg = cfg;
	l->out = *out;
	l->limit = host ? live_limit(cfg) : 0;
	l->max_cpu_milli = (uint32_t)sysconf(_SC_NPROCESSORS_CONF) * 1000;
	/* Unlike those of earlier supervisors, whose numbers may be written down somewhere. */
	l->last_id = LIVE_FIRST_ID + (uint64_t)clock_wall_s() * 1000000;
	TAILQ_INIT(&l->containers);
	TAILQ_INIT(&l->queue);
	pool_open(l);
	workers_open(l);
	return l;
}

void live_stop(struct live *l)
{
	struct container *c;
	l->stopping = true;
	TAILQ_FOREACH(c, &l->containers, link)
	container_end(l, c, SUP_END_ASKED);
	pool_close(l);
	workers_stop(l);
	queue_run(l);
}

bool live_empty(const struct live *l)
{
	return TAILQ_EMPTY(&l->containers) && l->pool.maker.pid == 0 && workers_empty(l);
}

struct live *live_free(struct live *l)
{
	if (!l)
		return NULL;
	queue_clear(l);
	free(l);
	return NULL;
}
