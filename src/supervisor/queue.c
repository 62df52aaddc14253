/*
 * The requests that cannot be answered at once.
 *
 * Theory of operation. They wait in one queue: a claim for a container that is STARTING or ENDING
 * or for room, a sleep or delete for the end of a sandbox, files for that of a worker. Whenever
 * anything changes the whole queue is looked at again from its front (queue_run): each request
 * looks at the table as it stands, so there is no other hand-over between them, and who came first
 * is served first. The queue is bounded, and what requests change is looked at once for all that
 * came in one turn of the loop.
 *
 * Room: at the limit (of all, or of one workspace) the longest idle container without holders is
 * ended for the foremost claim that has no ending container coming to it yet; such a claim waits
 * for that end whatever its own wait says.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "packet/hurry.h"
#include "supervisor/live_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define END_LIMIT_MS 10000 /* how long a claim waits for the end of another sandbox */
#define MAX_WAITING  1024

static void waiter_free(struct live *l, struct waiter *w)
{
	TAILQ_REMOVE(&l->queue, w, link);
	l->n_waiting--;
	sys_close(&w->policy);
	free(w);
}

/* Of a pooled sandbox that died before it was ready nobody shall know: another is made. */
static bool try_again(const struct container *c, struct waiter *w)
{
	if (!c->pooled || w->cold || c->fail.why != SUP_E_SYSTEM)
		return false;
	w->on = 0;
	w->cold = true;
	w->created = w->created || c->created;
	return true;
}

void queue_start_failed(struct live *l, const struct container *c)
{
	struct waiter *w, *next;
	for (w = TAILQ_FIRST(&l->queue); w; w = next) {
		next = TAILQ_NEXT(w, link);
		if (w->m.h.op != SUP_CLAIM || w->on != c->generation || try_again(c, w))
			continue;
		live_answer_failed(l, w->gateway, w->m.h.seq, &c->fail);
		waiter_free(l, w);
	}
}

/* ---- one request, looked at ---- */

static bool give_channel(struct live *l, struct container *c, struct waiter *w, struct fail *f)
{
	int pair[2];
	if (c->n_holds >= INIT_MAX_CHANNELS)
		return fail_set(f, SUP_E_CAPACITY, 0, "channels of this container"), false;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return fail_set(f, SUP_E_SYSTEM, errno, "socketpair"), false;
	int r = l->host->runtime->channel(&c->sb, pair[0]);
	close(pair[0]);
	if (r < 0) {
		close(pair[1]);
		return fail_set(f, SUP_E_SYSTEM, r, "send channel to init"), false;
	}
	struct hold *h = mem_alloc(sizeof(*h));
	h->id = ++l->last_hold;
	h->gateway = w->gateway;
	TAILQ_INSERT_TAIL(&c->holds, h, link);
	c->n_holds++;
	container_settle(l, c);
	struct sup_claimed msg = {
	        .h = {.op = SUP_CLAIMED, .size = sizeof(msg), .seq = w->m.h.seq},
	        .hold = h->id,
	        .generation = c->generation,
	        .how = c->told      ? SUP_WAS_LIVE
	               : c->created ? SUP_CREATED
	                            : SUP_WOKEN,
	};
	c->told = true;
	live_answer(l, w->gateway, &msg, sizeof(msg), pair[1]);
	hurry_close(&pair[1]);
	return true;
}

static bool same_container(const struct sup_claim *a, const struct sup_claim *b)
{
	const uint32_t network = SUP_CLAIM_NETWORK | SUP_CLAIM_ANY_ADDRESS;
	return (a->flags & network) == (b->flags & network) &&
	       memcmp(a->policy, b->policy, sizeof(a->policy)) == 0 && a->image == b->image &&
	       a->memory_mib == b->memory_mib;
}

static bool refuse(struct live *l, struct waiter *w, uint32_t why, const char *step)
{
	live_answer_why(l, w->gateway, w->m.h.seq, why, step);
	return true;
}

/* Waits on, or is out of time. */
static bool wait_on(struct live *l, struct waiter *w, uint32_t why, const char *step)
{
	w->why = why;
	if (clock_mono_ms() < w->deadline_ms)
		return false;
	return refuse(l, w, why, step);
}

static void extend(struct waiter *w)
{
	if (!w->extended)
		w->deadline_ms = clock_mono_ms() + END_LIMIT_MS;
	w->extended = true;
}

/* Ends the longest idle container (of a workspace, if given), or before that one of the pool; false
 * where there is none. */
static bool evict(struct live *l, const uint8_t *workspace)
{
	struct container *c, *oldest = NULL;
	if (!workspace && pool_evict(l))
		return true;
	TAILQ_FOREACH(c, &l->containers, link)
	{
		if (!container_is_idle(c) ||
		        (workspace && memcmp(c->is.workspace, workspace, 16) != 0))
			continue;
		if (!oldest || container_idle_since(c) < container_idle_since(oldest))
			oldest = c;
	}
	if (!oldest)
		return false;
	container_end(l, oldest, SUP_END_EVICTED);
	return true;
}

/* True when the claim may start a container now, or take the pool's; else false, and something may
 * be ending for it. *blocked counts the claims before it in this run of the queue that wait for
 * room of all. */
static bool has_room(
        struct live *l, struct waiter *w, const struct container *ready, uint32_t *blocked)
{
	const struct sup_claim *claim = &w->m.claim;
	uint32_t ending = 0, mine = 0, mine_ending = 0, mine_blocked = 0;
	struct container *c;
	TAILQ_FOREACH(c, &l->containers, link)
	{
		bool same = c->named && memcmp(c->is.workspace, claim->workspace, 16) == 0;
		ending += c->state == LIVE_ENDING;
		mine += same;
		mine_ending += same && c->state == LIVE_ENDING;
	}
	if (claim->workspace_live && mine >= claim->workspace_live) {
		struct waiter *before;
		TAILQ_FOREACH(before, &l->queue, link)
		{
			if (before == w)
				break;
			mine_blocked += before->for_space && memcmp(before->m.claim.workspace,
			                                             claim->workspace, 16) == 0;
		}
		w->for_space = true;
		w->why = SUP_E_WORKSPACE;
		if (mine_ending > mine_blocked || evict(l, claim->workspace))
			extend(w);
		return false;
	}
	if (ready || l->n_containers < l->limit)
		return true;
	w->why = SUP_E_CAPACITY;
	if (ending > *blocked || evict(l, NULL))
		extend(w);
	++*blocked;
	return false;
}

/* Whether a container that does not live can be started at all; true when it was refused. */
static bool start_refused(struct live *l, struct waiter *w)
{
	const struct sup_claim *claim = &w->m.claim;
	if (claim->image >= disk_images(l->host->disk))
		return refuse(l, w, SUP_E_INVALID, "image");
	if (claim->memory_mib > l->cfg->max_memory_mib)
		return refuse(l, w, SUP_E_INVALID, "memory");
	if (claim->cpu_milli > l->max_cpu_milli)
		return refuse(l, w, SUP_E_INVALID, "processors");
	if ((claim->flags & SUP_CLAIM_NETWORK) && !l->out.network_add)
		return refuse(l, w, SUP_E_SYSTEM, "reach the network without egress");
	if ((claim->flags & SUP_CLAIM_MUST_EXIST) && !disk_home_exists(l->host->disk, claim->key))
		return refuse(l, w, SUP_E_UNKNOWN, "no such container");
	if (l->room != DISK_ROOMY)
		return refuse(l, w, SUP_E_DISK, "reserve of free disk");
	return false;
}

/* A delete that stands behind a claim in the queue ended the container that the claim had in mind:
 * it must be done with the home before the claim makes a new one. */
static bool delete_waits(struct live *l, const uint8_t key[SUP_KEY_LEN])
{
	struct waiter *w;
	if (!l->deletes_wait)
		return false;
	TAILQ_FOREACH(w, &l->queue, link)
	if (w->m.h.op == SUP_DELETE && memcmp(w->m.key.key, key, SUP_KEY_LEN) == 0)
		return true;
	return false;
}

/* The worker that had the home may be the last to hold it: to mount it meanwhile would be to wait
 * for what the kernel still writes. */
static bool worker_in_the_way(struct live *l, struct waiter *w, const uint8_t key[SUP_KEY_LEN])
{
	if (!worker_is_ending(l, key))
		return false;
	extend(w);
	w->on = 0;
	return true;
}

/* The waiter_… functions return true when the request was answered. */
static bool waiter_claim(struct live *l, struct waiter *w, uint32_t *blocked)
{
	struct container *c = container_find(l, w->m.claim.key);
	struct fail f;
	w->for_space = false;
	if (l->stopping)
		return refuse(l, w, SUP_E_STOPPING, "the server is going down");
	if (c && c->state == LIVE_ENDING) {
		extend(w);
		w->on = 0;
		return wait_on(l, w, SUP_E_SYSTEM, "end of the last sandbox");
	}
	if (c && !same_container(&c->is, &w->m.claim))
		return refuse(l, w, SUP_E_POLICY, "policy, image or memory differs");
	if (c && l->out_of_room)
		return refuse(l, w, SUP_E_DISK, "reserve of free disk");
	if (c && c->state == LIVE_STARTING) {
		w->on = c->generation;
		return false;
	}
	if (c) {
		if (!give_channel(l, c, w, &f))
			live_answer_failed(l, w->gateway, w->m.h.seq, &f);
		return true;
	}
	if (delete_waits(l, w->m.claim.key))
		return false;
	if (start_refused(l, w))
		return true;
	if (worker_in_the_way(l, w, w->m.claim.key))
		return wait_on(l, w, SUP_E_SYSTEM, "end of the last worker");
	struct container *ready = w->cold ? NULL : pool_find(l, w->m.claim.image);
	if (!has_room(l, w, ready, blocked))
		return wait_on(l, w, w->why, w->for_space ? "limit of the workspace" : "no room");
	pool_asked(l, w->m.claim.image);
	c = container_start(l, ready, w);
	if (c->fail.step) {
		bool again = try_again(c, w);
		if (!again)
			live_answer_failed(l, w->gateway, w->m.h.seq, &c->fail);
		container_fail(l, c);
		return !again;
	}
	w->on = c->generation;
	return false;
}

static bool waiter_sleep(struct live *l, struct waiter *w)
{
	struct container *c = container_find(l, w->m.key.key);
	if (c && w->on == 0) {
		if (c->state == LIVE_STARTING || c->n_holds > 0)
			return refuse(l, w, SUP_E_BUSY, "it has holders");
		w->on = c->generation;
		container_end(l, c, SUP_END_ASKED);
	}
	if (c && c->generation == w->on)
		return wait_on(l, w, SUP_E_SYSTEM, "end of the sandbox");
	live_answer_done(l, w->gateway, w->m.h.seq);
	return true;
}

static bool waiter_delete(struct live *l, struct waiter *w)
{
	struct container *c = container_find(l, w->m.key.key);
	if (c)
		container_end(l, c, SUP_END_DELETED);
	if (worker_end_key(l, w->m.key.key) || c)
		return wait_on(l, w, SUP_E_SYSTEM, "end of the sandbox");
	int r = disk_home_delete(l->host->disk, w->m.key.key);
	if (r < 0)
		live_answer_failed(l, w->gateway, w->m.h.seq,
		        &(struct fail){.why = SUP_E_SYSTEM, .errnum = -r, .step = "remove home"});
	else
		live_answer_done(l, w->gateway, w->m.h.seq);
	return true;
}

static bool waiter_files(struct live *l, struct waiter *w)
{
	const uint8_t *key = w->m.files.key;
	const struct container *c = container_find(l, key);
	struct sup_simple msg = {
	        .h = {.op = SUP_FILES_ARE, .size = sizeof(msg), .seq = w->m.h.seq}};
	struct fail f;
	int sock;
	if (l->stopping)
		return refuse(l, w, SUP_E_STOPPING, "the server is going down");
	if (delete_waits(l, key))
		return wait_on(l, w, SUP_E_SYSTEM, "end of the last sandbox");
	bool saver = w->m.files.flags & SUP_FILES_TREE;
	if (saver && worker_saves(l, key))
		return wait_on(l, w, SUP_E_CAPACITY, "end of the save before");
	if (saver || !worker_serves(l, key)) {
		if (!disk_home_exists(l->host->disk, key)) {
			if (!(w->m.files.flags & SUP_FILES_CREATE))
				return refuse(l, w, SUP_E_UNKNOWN, "no such container");
			if (l->room != DISK_ROOMY)
				return refuse(l, w, SUP_E_DISK, "reserve of free disk");
		}
		if (l->cfg->n_workers == 0)
			return refuse(l, w, SUP_E_CAPACITY, "no file workers");
		if ((c && c->state == LIVE_ENDING) || worker_in_the_way(l, w, key) ||
		        !worker_has_room(l))
			return wait_on(l, w, SUP_E_CAPACITY, "room for a file worker");
	}
	int given = worker_give(l, key, saver, &sock, &f);
	if (given > 0)
		return wait_on(l, w, SUP_E_SYSTEM, "end of the last worker");
	if (given < 0) {
		live_answer_failed(l, w->gateway, w->m.h.seq, &f);
		return true;
	}
	live_answer(l, w->gateway, &msg, sizeof(msg), sock);
	close(sock);
	return true;
}

/* ---- all of them ---- */

void queue_run(struct live *l)
{
	uint32_t blocked = 0;
	struct waiter *w, *next;
	if (l->host && !TAILQ_EMPTY(&l->queue))
		l->room = disk_room(l->host->disk);
	l->changed = false;
	l->deletes_wait = false;
	TAILQ_FOREACH(w, &l->queue, link)
	l->deletes_wait = l->deletes_wait || w->m.h.op == SUP_DELETE;
	for (w = TAILQ_FIRST(&l->queue); w; w = next) {
		bool deletes = w->m.h.op == SUP_DELETE;
		bool answered = w->m.h.op == SUP_CLAIM   ? waiter_claim(l, w, &blocked)
		                : w->m.h.op == SUP_SLEEP ? waiter_sleep(l, w)
		                : w->m.h.op == SUP_FILES ? waiter_files(l, w)
		                                         : waiter_delete(l, w);
		next = TAILQ_NEXT(w, link);
		if (!answered)
			continue;
		waiter_free(l, w);
		if (deletes) { /* claims before it may have waited for it; each delete is answered
			          once */
			next = TAILQ_FIRST(&l->queue);
			blocked = 0;
		}
	}
}

/* Where too many wait, a gateway still has its share: another may have taken all. */
static bool queue_is_full(const struct live *l, uint32_t gateway)
{
	const struct waiter *w;
	uint32_t own = 0;
	if (l->n_waiting < MAX_WAITING)
		return false;
	TAILQ_FOREACH(w, &l->queue, link)
	own += w->gateway == gateway;
	return own >= MAX_WAITING / l->cfg->gateways;
}

void queue_add(struct live *l, uint32_t gateway, const union message *m, int policy)
{
	bool lost = policy < 0 && message_has_policy(m, m->h.size);
	if (lost)
		live_answer_failed(l, gateway, m->h.seq,
		        &(struct fail){SUP_E_SYSTEM, EMFILE, "take the network policy"});
	else if (queue_is_full(l, gateway))
		live_answer_why(l, gateway, m->h.seq, SUP_E_CAPACITY, "too many requests wait");
	if (lost || queue_is_full(l, gateway)) {
		sys_close(&policy);
		return;
	}
	struct waiter *w = mem_alloc(sizeof(*w));
	w->m = *m;
	w->policy = policy;
	w->gateway = gateway;
	w->deadline_ms = clock_mono_ms() + (m->h.op == SUP_CLAIM ? m->claim.wait_ms : END_LIMIT_MS);
	TAILQ_INSERT_TAIL(&l->queue, w, link);
	l->n_waiting++;
	l->changed = true;
}

void queue_cancel(struct live *l, uint32_t gateway, uint32_t seq)
{
	struct waiter *w, *next;
	for (w = TAILQ_FIRST(&l->queue); w; w = next) {
		next = TAILQ_NEXT(w, link);
		if (w->gateway != gateway || w->m.h.op != SUP_CLAIM || w->m.h.seq != seq)
			continue;
		waiter_free(l, w);
	}
}

void queue_gateway_gone(struct live *l, uint32_t gateway)
{
	struct waiter *w, *next;
	for (w = TAILQ_FIRST(&l->queue); w; w = next) {
		next = TAILQ_NEXT(w, link);
		if (w->gateway != gateway)
			continue;
		/* A delete that was asked for is carried out all the same. Its answer has no
		 * reader: the gateway that is started in this one's place counts from 1 too. */
		if (w->m.h.op == SUP_DELETE)
			w->gateway = LIVE_NOBODY;
		else
			waiter_free(l, w);
	}
}

uint64_t queue_due(const struct live *l)
{
	uint64_t due = UINT64_MAX;
	const struct waiter *w;
	TAILQ_FOREACH(w, &l->queue, link)
	if (w->deadline_ms < due && !(w->m.h.op == SUP_CLAIM && w->on))
		due = w->deadline_ms;
	return due;
}

void queue_clear(struct live *l)
{
	for (struct waiter *w; (w = TAILQ_FIRST(&l->queue));)
		waiter_free(l, w);
}
