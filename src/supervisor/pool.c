/*
 * Theory of operation.
 *
 * A sandbox of the pool has all that does not depend on a request: lease, cgroups, namespaces, init
 * that has left the host's tree for a root of its own and waits for the claim. Homes for new
 * containers are made ahead beside them, mounted and without a name (disk.c); a claim for a home
 * that exists mounts that one instead. A sandbox is taken once and ends as any other does.
 *
 * The loop calls pool_step when it has nothing else to do, and never while a claim is on its way;
 * each call makes one step of a few milliseconds at most. After a start there is a pause, so that
 * its first command has the processors, unless the pool is empty. A claim may take a sandbox that
 * is half made: it does the rest itself.
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
		switch (sandbox_read(&c->sb, &f, c->fail_text)) {
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

/* Whether there is a step to make, were it time: a sandbox to finish, begin or exchange, a home. */
static bool is_lacking(const struct live *l, const struct counts *n)
{
	if (n->half_made || disk_homes_made(l->host->disk) < l->pool.size)
		return true;
	return image_lacking(n) >= 0 && (n->all >= l->pool.size || l->n_containers < l->limit);
}

uint64_t pool_due(const struct live *l, uint64_t now)
{
	if (!l->host || l->pool.size == 0 || l->stopping || !TAILQ_EMPTY(&l->queue))
		return UINT64_MAX;
	struct counts n = count(l);
	if (n.starting || !is_lacking(l, &n))
		return UINT64_MAX;
	return l->pool.next_ms;
}

static int begin(struct live *l, uint32_t image, struct fail *f)
{
	struct container *c = container_new(l, LIVE_POOLED);
	c->is.image = image;
	c->due_ms =
	        UINT64_MAX; /* the time that counts is init's, once it has all that it waits for */
	int r = sandbox_prepare(l->host, c->generation, &c->sb, f);
	if (r == 0 && l->out.watch(l->out.ctx, c->sb.control, c->generation) < 0)
		r = fail_set(f, SUP_E_SYSTEM, errno, "watch init");
	if (r < 0)
		container_end(l, c, SUP_END_INIT_DIED);
	return r;
}

static int finish(struct live *l, struct container *c, struct fail *f)
{
	int r = sandbox_root(l->host, &c->sb, c->is.image, f);
	c->due_ms = clock_mono_ms() + START_LIMIT_MS;
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

void pool_step(struct live *l)
{
	struct fail f;
	struct disk *disk = l->host->disk;
	struct counts n = count(l);
	int image = image_lacking(&n), r;
	bool room = n.all < l->pool.size && l->n_containers < l->limit && image >= 0;
	if (disk_room(disk) != DISK_ROOMY) {
		l->pool.next_ms = clock_mono_ms() + FIRST_RETRY_MS;
		return;
	}
	if (image >= 0 && n.all >= l->pool.size) {
		exchange(l, &n);
		return;
	}
	if ((n.half_made || room) && !disk_scratch_made(disk))
		r = disk_make_scratch(disk, &f);
	else if (n.half_made)
		r = finish(l, n.half_made, &f);
	else if (room && n.all <= disk_homes_made(disk))
		r = begin(l, (uint32_t)image, &f);
	else if (disk_homes_made(disk) < l->pool.size)
		r = disk_make_home(disk, &f);
	else
		r = room ? begin(l, (uint32_t)image, &f) : 0;
	if (r < 0)
		back_off(l, &f);
}
