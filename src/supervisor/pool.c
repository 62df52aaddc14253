/*
 * Theory of operation.
 *
 * A sandbox of the pool has all that does not depend on a request: lease, cgroups, namespaces, init
 * that has left the host's tree for a root of its own and waits for the claim. Homes for new
 * containers are made ahead beside them, mounted and without a name (disk.c); a claim for a home
 * that exists mounts that one instead. A sandbox is taken once and ends as any other does.
 *
 * The loop calls pool_step when it has nothing else to do, and never while a claim is on its way;
 * each call makes one step. What waits for a disk, homes and roots, is ordered from the maker, a
 * process of its own (maker.c), one at a time; the steps that are left take a millisecond or two.
 * After a start there is a pause, so that its first command has the processors, unless the pool is
 * empty. A claim may take a sandbox that is half made: it does the rest itself, and a root that
 * comes too late for it is thrown away.
 *
 * Which image the next one is for follows demand: of the last `size` starts a ring is kept, and the
 * pool holds as many for an image as the ring does. What there is too much of makes room for what
 * there is too little of.
 *
 * Failures back off, doubling, so that a host where nothing can be made is not kept busy with
 * trying.
 */
#include "base/clock.h"
#include "base/log.h"
#include "supervisor/live_internal.h"

#include <errno.h>
#include <string.h>

#define PAUSE_MS       10
#define FIRST_RETRY_MS 100
#define LAST_RETRY_MS  30000

void pool_open(struct live *l)
{
	uint32_t most = l->limit / 4;
	l->pool.size = l->cfg->pool < most ? l->cfg->pool : most;
	l->pool.maker = (struct maker)MAKER_NONE;
	if (l->host)
		LOG(LOG_INFO, "pool", LOG_N("live", l->limit), LOG_N("size", l->pool.size));
}

struct counts {
	uint32_t all, ready, have[SUP_MAX_IMAGES], want[SUP_MAX_IMAGES];
	bool starting;               /* a claim is on its way */
	struct container *half_made; /* without its root */
};

static struct counts count(const struct live *l)
{
	struct counts n = {0};
	struct container *c;
	TAILQ_FOREACH(c, &l->containers, link)
	{
		n.starting = n.starting || c->state == LIVE_STARTING;
		if (c->state != LIVE_POOLED)
			continue;
		n.all++;
		n.have[c->is.image]++;
		n.ready += c->sb.stage == SANDBOX_IS_PREPARED;
		if (!c->sb.has_root)
			n.half_made = c;
	}
	for (uint32_t i = 0; i < l->pool.size; i++)
		n.want[l->pool.asked[i]]++;
	return n;
}

/* The image that lacks most, or -1. */
static int image_lacking(const struct counts *n)
{
	int lacking = -1;
	for (int i = 0; i < SUP_MAX_IMAGES; i++)
		if (n->want[i] > n->have[i] &&
		        (lacking < 0 ||
		                n->want[i] - n->have[i] > n->want[lacking] - n->have[lacking]))
			lacking = i;
	return lacking;
}

void pool_asked(struct live *l, uint32_t image)
{
	if (l->pool.size == 0)
		return;
	l->pool.asked[l->pool.asked_at++ % l->pool.size] = image;
}

void pool_pause(struct live *l)
{
	uint64_t until = clock_mono_ms() + PAUSE_MS;
	if (l->pool.next_ms < until && count(l).ready > 0)
		l->pool.next_ms = until;
}

void pool_prepared(struct live *l, struct container *c)
{
	c->due_ms = UINT64_MAX;
	l->pool.failures = 0;
}

static void back_off(struct live *l, const struct fail *f)
{
	uint64_t wait = FIRST_RETRY_MS << (l->pool.failures < 10 ? l->pool.failures : 10);
	wait = wait < LAST_RETRY_MS ? wait : LAST_RETRY_MS;
	l->pool.failures++;
	l->pool.next_ms = clock_mono_ms() + wait;
	LOG(LOG_WARN, "pool_failed", LOG_S("step", f->step), LOG_S("error", strerror(f->errnum)),
	        LOG_N("failures", l->pool.failures), LOG_N("again_in_ms", wait));
}

void pool_lost(struct live *l, struct container *c, const struct fail *f)
{
	back_off(l, f);
	container_end(l, c, SUP_END_INIT_DIED);
}

/* Hears what init has said by now; false, and it is ending, when it is of no use. */
static bool is_alive(struct live *l, struct container *c)
{
	struct fail f;
	for (;;)
		switch (l->host->runtime->read(&c->sb, &f, c->fail_text)) {
		case SANDBOX_NOTHING:
			return true;
		case SANDBOX_PREPARED:
			pool_prepared(l, c);
			break;
		case SANDBOX_GONE:
			fail_set(&f, SUP_E_SYSTEM, 0, "init ended");
			pool_lost(l, c, &f);
			return false;
		case SANDBOX_READY:
			fail_set(&f, SUP_E_SYSTEM, EPROTO, "init broke the protocol");
			pool_lost(l, c, &f);
			return false;
		case SANDBOX_BROKEN:
			pool_lost(l, c, &f);
			return false;
		}
}

/* How far it has come: the further, the less is left for the claim. */
static int progress(const struct container *c)
{
	return c->sb.stage == SANDBOX_IS_PREPARED ? 2 : c->sb.has_root ? 1 : 0;
}

struct container *pool_find(struct live *l, uint32_t image)
{
	for (;;) {
		struct container *c, *best = NULL;
		TAILQ_FOREACH(c, &l->containers, link)
		if (c->state == LIVE_POOLED && (c->is.image == image || !c->sb.has_root) &&
		        (!best || progress(c) > progress(best)))
			best = c;
		if (!best || is_alive(l, best))
			return best;
	}
}

bool pool_evict(struct live *l)
{
	struct container *c, *least = NULL;
	TAILQ_FOREACH(c, &l->containers, link)
	if (c->state == LIVE_POOLED && (!least || progress(c) < progress(least)))
		least = c;
	if (least)
		container_end(l, least, SUP_END_EVICTED);
	return least;
}

/* ---- steps ---- */

enum step { STEP_NONE, STEP_EXCHANGE, STEP_BEGIN, STEP_ROOT, STEP_HOME };

/* What is to be made next, were it time. Sandboxes and homes in turn; what the maker has to make
 * waits for it. */
static enum step next_step(const struct live *l, const struct counts *n)
{
	bool idle = !l->pool.maker.busy;
	uint32_t homes = disk_homes_kept(l->host->disk);
	if (image_lacking(n) >= 0 && n->all >= l->pool.size)
		return STEP_EXCHANGE;
	if (idle && n->half_made)
		return STEP_ROOT;
	if (idle && homes < l->pool.size && homes < n->all)
		return STEP_HOME;
	if (!n->half_made && image_lacking(n) >= 0 && l->n_containers < l->limit)
		return STEP_BEGIN;
	return idle && homes < l->pool.size ? STEP_HOME : STEP_NONE;
}

uint64_t pool_due(const struct live *l, uint64_t now)
{
	if (!l->host || l->pool.size == 0 || l->stopping || !TAILQ_EMPTY(&l->queue))
		return UINT64_MAX;
	struct counts n = count(l);
	if (n.starting || next_step(l, &n) == STEP_NONE)
		return UINT64_MAX;
	return l->pool.next_ms;
}

static int begin(struct live *l, uint32_t image, struct fail *f)
{
	struct container *c = container_new(l, LIVE_POOLED);
	c->is.image = image;
	c->due_ms =
	        UINT64_MAX; /* the time that counts is init's, once it has all that it waits for */
	int r = l->host->runtime->prepare(l->host, c->generation, &c->sb, f);
	if (r == 0 && l->out.watch(l->out.ctx, c->sb.control, c->generation) < 0)
		r = fail_set(f, SUP_E_SYSTEM, errno, "watch init");
	if (r < 0)
		container_end(l, c, SUP_END_INIT_DIED);
	return r;
}

/* One of an image that there is too much of goes. */
static void exchange(struct live *l, const struct counts *n)
{
	struct container *c;
	TAILQ_FOREACH(c, &l->containers, link)
	if (c->state == LIVE_POOLED && n->have[c->is.image] > n->want[c->is.image])
		break;
	if (c)
		container_end(l, c, SUP_END_EVICTED);
}

static int maker_ready(struct live *l, struct fail *f)
{
	struct maker *m = &l->pool.maker;
	if (m->sock >= 0)
		return 0;
	if (m->pid > 0) /* killed, and not reaped yet */
		return fail_set(f, SUP_E_SYSTEM, EBUSY, "start maker");
	if (maker_start(m, l->host->disk, f) < 0)
		return -1;
	if (l->out.watch(l->out.ctx, m->sock, LIVE_FIRST_ID) == 0)
		return 0;
	fail_set(f, SUP_E_SYSTEM, errno, "watch maker");
	maker_stop(m);
	return -1;
}

static int order(struct live *l, const struct container *c, struct fail *f)
{
	if (maker_ready(l, f) < 0)
		return -1;
	struct maker *m = &l->pool.maker;
	int r = c ? maker_order_root(m, c->generation, c->is.image, c->sb.userns,
	                    sup_uid_lease(l->cfg, c->sb.lease))
	          : maker_order_home(m);
	return r < 0 ? fail_set(f, SUP_E_SYSTEM, r, "order from maker") : 0;
}

void pool_step(struct live *l)
{
	struct fail f;
	struct counts n = count(l);
	int r = 0;
	if (disk_room(l->host->disk) != DISK_ROOMY) {
		l->pool.next_ms = clock_mono_ms() + FIRST_RETRY_MS;
		return;
	}
	switch (next_step(l, &n)) {
	case STEP_NONE:
		break;
	case STEP_EXCHANGE:
		exchange(l, &n);
		break;
	case STEP_BEGIN:
		r = begin(l, (uint32_t)image_lacking(&n), &f);
		break;
	case STEP_ROOT:
		r = order(l, n.half_made, &f);
		break;
	case STEP_HOME:
		r = order(l, NULL, &f);
		break;
	}
	if (r < 0)
		back_off(l, &f);
}

/* ---- the maker ---- */

static void take_root(struct live *l, struct maker_made *made)
{
	struct container *c;
	TAILQ_FOREACH(c, &l->containers, link)
	if (c->generation == made->id)
		break;
	struct fail f;
	if (!c || c->state != LIVE_POOLED || c->sb.has_root) {
		sys_close(&made->scratch.fd); /* no one else knows the image: nothing to wait for */
	} else {
		c->due_ms = clock_mono_ms() + START_LIMIT_MS;
		if (l->host->runtime->give_root(&c->sb, &made->scratch, made->root, &f) < 0)
			pool_lost(l, c, &f);
	}
	sys_close(&made->root);
}

static void maker_gone(struct live *l)
{
	struct fail f;
	if (l->pool.maker.sock < 0)
		return;
	l->out.unwatch(l->out.ctx, l->pool.maker.sock);
	maker_stop(&l->pool.maker);
	fail_set(&f, SUP_E_SYSTEM, 0, "maker ended");
	back_off(l, &f);
}

void pool_heard(struct live *l)
{
	struct maker_made made;
	int r = l->pool.maker.sock < 0 ? 0 : maker_read(&l->pool.maker, &made);
	if (r < 0)
		maker_gone(l);
	if (r <= 0)
		return;
	if (made.failed)
		back_off(l, &made.f);
	else if (made.what == MAKER_ROOT)
		take_root(l, &made);
	else
		disk_home_keep(l->host->disk, &made.home);
}

bool pool_reaped(struct live *l, pid_t pid)
{
	if (pid <= 0 || pid != l->pool.maker.pid)
		return false;
	maker_gone(l);
	l->pool.maker.pid = 0;
	return true;
}

void pool_close(struct live *l)
{
	if (l->pool.maker.sock >= 0)
		l->out.unwatch(l->out.ctx, l->pool.maker.sock);
	maker_stop(&l->pool.maker);
}
