/*
 * Theory of operation.
 *
 * States of a container: (POOLED →) STARTING (init works on set-up and claim; 10 s at most) →
 * RUNNING ⇄ FROZEN (no holder) → ENDING (killed; waits until init is reaped and nothing of it is in
 * use) → out of the table. Out of the table is asleep, or never made: files only.
 *
 * A request that cannot be answered at once waits in one queue: a claim for a container that is
 * STARTING or ENDING or for room, a sleep or delete for the end of a sandbox, files for that of a
 * worker. Whenever anything
 * changes the whole queue is looked at again from its front (queue_run): each request looks at the
 * table as it stands, so there is no other hand-over between them, and who came first is served
 * first. The queue is bounded, and what requests change is looked at once for all that came in one
 * turn of the loop.
 *
 * The pool (pool.c) makes sandboxes ahead, as containers without a name in state POOLED; a claim
 * that finds one there gives it a name and goes on from STARTING, as one that it made itself.
 *
 * Room: at the limit (of all, or of one workspace) the longest idle container without holders is
 * ended for the foremost claim that has no ending container coming to it yet; such a claim waits
 * for that end whatever its own wait says.
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

#define END_LIMIT_MS  10000 /* how long a claim waits for the end of another sandbox */
#define KILL_AGAIN_MS 100
#define ROOM_CHECK_MS 500
#define FREEZE_MS     200 /* after the last use, see container_freezes_at */
#define MAX_WAITING   1024
#define NOBODY        UINT32_MAX /* in the place of a gateway that has gone */

static struct container *find(struct live *l, const uint8_t key[SUP_KEY_LEN])
{
	struct container *c;
	TAILQ_FOREACH(c, &l->containers, link)
	if (c->named && memcmp(c->is.key, key, SUP_KEY_LEN) == 0)
		return c;
	return NULL;
}

/* ---- answers ---- */

static void answer(struct live *l, uint32_t gateway, const void *msg, size_t len, int fd)
{
	if (gateway != NOBODY)
		l->out.send(l->out.ctx, gateway, msg, len, fd);
}

static void answer_failed(struct live *l, uint32_t gateway, uint32_t seq, const struct fail *f)
{
	struct sup_failed msg = {
	        .h = {.op = SUP_FAILED, .size = sizeof(msg), .seq = seq},
	        .why = f->why,
	        .errnum = (uint32_t)f->errnum,
	};
	str_copy(msg.step, sizeof(msg.step), str_of(f->step));
	answer(l, gateway, &msg, sizeof(msg), -1);
}

static void answer_why(
        struct live *l, uint32_t gateway, uint32_t seq, uint32_t why, const char *step)
{
	answer_failed(l, gateway, seq, &(struct fail){.why = why, .step = step});
}

static void answer_done(struct live *l, uint32_t gateway, uint32_t seq)
{
	struct sup_simple msg = {.h = {.op = SUP_DONE, .size = sizeof(msg), .seq = seq}};
	answer(l, gateway, &msg, sizeof(msg), -1);
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

static void queue_run(struct live *l);

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

/* Ends a container that did not come up; whoever waits for this start gets the reason. */
static void container_fail(struct live *l, struct container *c)
{
	struct waiter *w, *next;
	log_text(LOG_WARN, "sandbox_failed", "%s: %s", c->fail.step, strerror(c->fail.errnum));
	for (w = TAILQ_FIRST(&l->queue); w; w = next) {
		next = TAILQ_NEXT(w, link);
		if (w->m.h.op != SUP_CLAIM || w->on != c->generation || try_again(c, w))
			continue;
		answer_failed(l, w->gateway, w->m.h.seq, &c->fail);
		waiter_free(l, w);
	}
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

/* Starts what is claimed: out of the pool where `c` is from there, else (NULL) from nothing. */
static struct container *container_start(
        struct live *l, struct container *c, const struct waiter *w)
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

/* What it should be, given holders, keeping and room. */
static void container_settle(struct live *l, struct container *c)
{
	bool wanted = c->n_holds > 0 || container_freezes_at(c) > clock_mono_ms();
	container_freeze(l, c, !wanted || l->out_of_room);
}

static bool container_is_idle(const struct container *c)
{
	return (c->state == LIVE_RUNNING || c->state == LIVE_FROZEN) && c->n_holds == 0 &&
	       c->keep_ms <= clock_mono_ms();
}

static uint64_t idle_since(const struct container *c)
{
	return c->keep_ms > c->idle_ms ? c->keep_ms : c->idle_ms;
}

/* ---- requests ---- */

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
	answer(l, w->gateway, &msg, sizeof(msg), pair[1]);
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
	answer_why(l, w->gateway, w->m.h.seq, why, step);
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
		if (!oldest || idle_since(c) < idle_since(oldest))
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
	struct container *c = find(l, w->m.claim.key);
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
			answer_failed(l, w->gateway, w->m.h.seq, &f);
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
			answer_failed(l, w->gateway, w->m.h.seq, &c->fail);
		container_fail(l, c);
		return !again;
	}
	w->on = c->generation;
	return false;
}

static bool waiter_sleep(struct live *l, struct waiter *w)
{
	struct container *c = find(l, w->m.key.key);
	if (c && w->on == 0) {
		if (c->state == LIVE_STARTING || c->n_holds > 0)
			return refuse(l, w, SUP_E_BUSY, "it has holders");
		w->on = c->generation;
		container_end(l, c, SUP_END_ASKED);
	}
	if (c && c->generation == w->on)
		return wait_on(l, w, SUP_E_SYSTEM, "end of the sandbox");
	answer_done(l, w->gateway, w->m.h.seq);
	return true;
}

static bool waiter_delete(struct live *l, struct waiter *w)
{
	struct container *c = find(l, w->m.key.key);
	if (c)
		container_end(l, c, SUP_END_DELETED);
	if (worker_end_key(l, w->m.key.key) || c)
		return wait_on(l, w, SUP_E_SYSTEM, "end of the sandbox");
	int r = disk_home_delete(l->host->disk, w->m.key.key);
	if (r < 0)
		answer_failed(l, w->gateway, w->m.h.seq,
		        &(struct fail){.why = SUP_E_SYSTEM, .errnum = -r, .step = "remove home"});
	else
		answer_done(l, w->gateway, w->m.h.seq);
	return true;
}

static bool waiter_files(struct live *l, struct waiter *w)
{
	const uint8_t *key = w->m.files.key;
	const struct container *c = find(l, key);
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
		answer_failed(l, w->gateway, w->m.h.seq, &f);
		return true;
	}
	answer(l, w->gateway, &msg, sizeof(msg), sock);
	close(sock);
	return true;
}

static void queue_run(struct live *l)
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

static void request_queued(struct live *l, uint32_t gateway, const union message *m, int policy)
{
	bool lost = policy < 0 && message_has_policy(m, m->h.size);
	if (lost)
		answer_failed(l, gateway, m->h.seq,
		        &(struct fail){SUP_E_SYSTEM, EMFILE, "take the network policy"});
	else if (queue_is_full(l, gateway))
		answer_why(l, gateway, m->h.seq, SUP_E_CAPACITY, "too many requests wait");
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

static void request_cancel(struct live *l, uint32_t gateway, uint32_t seq)
{
	struct waiter *w, *next;
	for (w = TAILQ_FIRST(&l->queue); w; w = next) {
		next = TAILQ_NEXT(w, link);
		if (w->gateway != gateway || w->m.h.op != SUP_CLAIM || w->m.h.seq != seq)
			continue;
		waiter_free(l, w);
	}
}

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
	struct container *c = find(l, m->key);
	if (!c || c->state == LIVE_STARTING || c->state == LIVE_ENDING) {
		answer_why(l, gateway, m->h.seq, SUP_E_UNKNOWN, "not live");
		return;
	}
	c->keep_ms = m->keep_ms ? clock_mono_ms() + m->keep_ms : 0;
	container_settle(l, c);
	answer_done(l, gateway, m->h.seq);
	l->changed = true;
}

static void request_status(struct live *l, uint32_t gateway, const struct sup_key *m)
{
	struct sup_status msg = {.h = {.op = SUP_STATUS_IS, .size = sizeof(msg), .seq = m->h.seq}};
	struct container *c = find(l, m->key);
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
	answer(l, gateway, &msg, sizeof(msg), -1);
}

static void request_node(struct live *l, uint32_t gateway, uint32_t seq)
{
	struct sup_node msg = {.h = {.op = SUP_NODE_IS, .size = sizeof(msg), .seq = seq}};
	figures_fill(l, &msg);
	answer(l, gateway, &msg, sizeof(msg), -1);
}

void live_request(struct live *l, uint32_t gateway, const union message *m, int policy)
{
	if (!l->host && m->h.op != SUP_STATUS && m->h.op != SUP_CANCEL && m->h.op != SUP_RELEASE &&
	        m->h.op != SUP_NODE) {
		answer_why(l, gateway, m->h.seq, SUP_E_SYSTEM, "sandbox: off");
		sys_close(&policy);
		return;
	}
	switch (m->h.op) {
	case SUP_CLAIM:
	case SUP_SLEEP:
	case SUP_DELETE:
	case SUP_FILES:
		request_queued(l, gateway, m, policy);
		break;
	case SUP_CANCEL:
		request_cancel(l, gateway, m->h.seq);
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
	struct waiter *w, *next_w;
	for (w = TAILQ_FIRST(&l->queue); w; w = next_w) {
		next_w = TAILQ_NEXT(w, link);
		if (w->gateway != gateway)
			continue;
		/* A delete that was asked for is carried out all the same. Its answer has no
		 * reader: the gateway that is started in this one's place counts from 1 too. */
		if (w->m.h.op == SUP_DELETE) {
			w->gateway = NOBODY;
			continue;
		}
		waiter_free(l, w);
	}
	struct container *c;
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
	if (l->cfg->sleep_after_ms && now >= idle_since(c) + l->cfg->sleep_after_ms)
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
	uint64_t due = l->cfg->sleep_after_ms ? idle_since(c) + l->cfg->sleep_after_ms : UINT64_MAX;
	if (c->state == LIVE_RUNNING && container_freezes_at(c) < due)
		due = container_freezes_at(c);
	return due;
}

/* When the foremost time-out of the queue is; one that waits for a start has none of its own. */
static uint64_t queue_due(const struct live *l)
{
	uint64_t due = UINT64_MAX;
	const struct waiter *w;
	TAILQ_FOREACH(w, &l->queue, link)
	if (w->deadline_ms < due && !(w->m.h.op == SUP_CLAIM && w->on))
		due = w->deadline_ms;
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
	for (struct waiter *w; (w = TAILQ_FIRST(&l->queue));)
		waiter_free(l, w);
	free(l);
	return NULL;
}
