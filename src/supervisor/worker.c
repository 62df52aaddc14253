/*
 * Theory of operation.
 *
 * A worker is made for the first SUP_FILES of a container and serves all later ones: each is given
 * a socket of its own, one end of which goes to the worker over its control socket. It is a process
 * in namespaces of its own, with a range of ids and a mount of the home of its own; a sandbox that
 * lives on the same home has another mount of the same file system (disk.c), and neither knows of
 * the other.
 *
 * A worker that has had nothing to do says so, with the number of sockets that it has taken. It
 * never ends by itself: if it has taken all that were given it is killed here, so no socket is lost
 * in between. When there are too many of them the one that was asked for least lately is killed.
 *
 * Saving or making a home anew (SUP_FILES_TREE) is done by a worker of its own, a saver, which may
 * do more and serves one request; there is one at most for a container, and it is not killed for
 * room.
 *
 * SERVING → ENDING (killed, or its control socket ended) → reaped, its group gone → out of the
 * list. A request for a worker that is ENDING waits in queue.c, and so does a claim that
 * would mount the home meanwhile: the worker's mount may be the last, and the kernel then writes
 * back all that there is, which the loop must not wait for.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "packet/hurry.h"
#include "proto/worker.h"
#include "supervisor/child.h"
#include "supervisor/live_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Nearly all of it the kernel's: inodes that a walk has looked at, given back when memory is short.
 * A walk of 100,000 files has to read them again each time with less. */
#define MEMORY_BYTES (256ULL << 20)
#define LOOK_MS      5
#define HELD_LOOK_MS 250

struct worker {
	TAILQ_ENTRY(worker) link;
	uint8_t key[SUP_KEY_LEN];
	uint64_t id;
	char name[CGROUP_NAME_MAX];
	bool saver; /* does one save or restore and ends by itself */
	bool ending, has_lease, has_group;
	pid_t pid; /* 0: none, or reaped */
	int pidfd, control;
	uint32_t lease;
	uint32_t given; /* sockets */
	uint64_t given_ms;
	struct home *home;
};

static struct worker *worker_find(const struct live *l, const uint8_t key[SUP_KEY_LEN], bool saver)
{
	struct worker *w;
	TAILQ_FOREACH(w, &l->workers.list, link)
	if (w->saver == saver && memcmp(w->key, key, SUP_KEY_LEN) == 0)
		return w;
	return NULL;
}

static void worker_end(struct live *l, struct worker *w)
{
	if (w->pid > 0 && w->pidfd >= 0)
		syscall(SYS_pidfd_send_signal, w->pidfd, SIGKILL, NULL, 0);
	if (w->control >= 0)
		l->out.unwatch(l->out.ctx, w->control);
	hurry_close(&w->control);
	w->ending = true;
}

/* True when nothing is left of it and it is out of the list. */
static bool worker_remove(struct live *l, struct worker *w)
{
	if (w->pid > 0)
		return false;
	if (w->has_group && cgroup_remove(&l->host->cgroup, w->name) < 0)
		return false;
	w->has_group = false;
	if (!disk_home_release(l->host->disk, &w->home))
		return false;
	if (w->has_lease)
		lease_return(l->host->worker_leases, w->lease);
	sys_close(&w->pidfd);
	TAILQ_REMOVE(&l->workers.list, w, link);
	l->workers.n--;
	free(w);
	return true;
}

/* ---- start ---- */

static int make_group(struct live *l, struct worker *w, struct fail *f)
{
	const struct cgroup_host *h = &l->host->cgroup;
	struct cgroup_limits limits = {MEMORY_BYTES, 4, 1000};
	if (cgroup_make(h, w->name, 0, f) < 0)
		return -1;
	w->has_group = true;
	int r = cgroup_settle(h, w->name); /* nothing of it is entered from inside */
	if (r < 0)
		return fail_set(f, SUP_E_SYSTEM, r, "make cgroups");
	return cgroup_limit(h, w->name, &limits, f);
}

/* Into the group that the limits are on: `run` in version 2. */
static int clone_worker(struct live *l, struct worker *w, int control, int home, struct fail *f)
{
	const struct cgroup_host *h = &l->host->cgroup;
	struct child c = {.control = control,
	        .extra = home,
	        .image = l->host->worker_image,
	        .owner = lease_uid(l->host->worker_leases, w->lease),
	        .namespaces = CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS};
	str_copy(c.title, sizeof(c.title), w->saver ? STR("brig: saver") : STR("brig: worker"));
	_cleanup_close_ int group = h->mode == INIT_CG_V1 ? -1 : cgroup_open_run(h, w->name);
	if (group < 0 && h->mode != INIT_CG_V1)
		return fail_set(f, SUP_E_SYSTEM, group, "open cgroup");
	int n = cgroup_open_attach(h, w->name, c.attach, f);
	if (n < 0)
		return -1;
	/* The last one would be version 2's `init`. */
	c.n_attach = c.n_before = n - (h->ns_delegate && n > 0 ? 1 : 0);
	int r = child_clone(&c, group, 0, &w->pid, &w->pidfd, f);
	for (int i = 0; i < n; i++)
		close(c.attach[i]);
	return r;
}

static int start_process(struct live *l, struct worker *w, int home, struct fail *f)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return fail_set(f, SUP_E_SYSTEM, errno, "socketpair");
	w->control = pair[0];
	int r = clone_worker(l, w, pair[1], home, f);
	close(pair[1]);
	if (r == 0 && l->out.watch(l->out.ctx, w->control, w->id) < 0)
		r = fail_set(f, SUP_E_SYSTEM, errno, "watch worker");
	if (r < 0)
		return r;
	char path[64];
	str_format(path, sizeof(path), "/proc/%d/oom_score_adj", (int)w->pid);
	if (l->host->guarded && (r = sys_write_at(AT_FDCWD, path, "0")) < 0)
		return fail_set(f, SUP_E_SYSTEM, r, "reset the oom score");
	r = sys_map_ids(w->pid, 0, lease_uid(l->host->worker_leases, w->lease));
	if (r < 0)
		return fail_set(f, SUP_E_SYSTEM, r, "map ids");
	r = sys_send(w->control, "g", 1, NULL, 0);
	return r < 0 ? fail_set(f, SUP_E_SYSTEM, r, "start worker") : 0;
}

static int start(struct live *l, struct worker *w, struct fail *f)
{
	_cleanup_close_ int home = -1;
	bool created;
	if (lease_take(l->host->worker_leases, &w->lease, f) < 0)
		return -1;
	w->has_lease = true;
	int r = disk_home_mount(l->host->disk, w->key,
	        lease_home_userns(l->host->worker_leases, w->lease), &w->home, &home, &created, f);
	if (w->home)
		w->home->lent = true;
	if (r < 0 || make_group(l, w, f) < 0)
		return -1;
	return start_process(l, w, home, f);
}

static struct worker *worker_new(
        struct live *l, const uint8_t key[SUP_KEY_LEN], bool saver, struct fail *f)
{
	struct worker *w = mem_alloc(sizeof(*w));
	*w = (struct worker){.saver = saver, .id = ++l->last_id, .pidfd = -1, .control = -1};
	memcpy(w->key, key, SUP_KEY_LEN);
	str_format(w->name, sizeof(w->name), "w%llu", (unsigned long long)w->id);
	TAILQ_INSERT_TAIL(&l->workers.list, w, link);
	l->workers.n++;
	if (start(l, w, f) == 0)
		return w;
	log_text(LOG_WARN, "worker_failed", "%s: %s", f->step, strerror(f->errnum));
	worker_end(l, w);
	worker_remove(l, w);
	return NULL;
}

/* ---- what live.c calls ---- */

void workers_open(struct live *l)
{
	TAILQ_INIT(&l->workers.list);
}

bool worker_is_ending(const struct live *l, const uint8_t key[SUP_KEY_LEN])
{
	const struct worker *w = worker_find(l, key, false), *saver = worker_find(l, key, true);
	return (w && w->ending) || (saver && saver->ending);
}

bool worker_serves(const struct live *l, const uint8_t key[SUP_KEY_LEN])
{
	const struct worker *w = worker_find(l, key, false);
	return w && !w->ending;
}

bool worker_saves(const struct live *l, const uint8_t key[SUP_KEY_LEN])
{
	return worker_find(l, key, true);
}

bool worker_has_room(struct live *l)
{
	struct worker *w, *oldest = NULL;
	if (l->workers.n < l->cfg->n_workers)
		return true;
	TAILQ_FOREACH(w, &l->workers.list, link)
	{
		if (w->ending)
			return false;
		if (!w->saver && (!oldest || w->given_ms < oldest->given_ms))
			oldest = w;
	}
	if (oldest)
		worker_end(l, oldest);
	return false;
}

int worker_give(
        struct live *l, const uint8_t key[SUP_KEY_LEN], bool saver, int *ret_sock, struct fail *f)
{
	int pair[2];
	struct worker *w = saver ? NULL : worker_find(l, key, false);
	if (!w && !(w = worker_new(l, key, saver, f)))
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return fail_set(f, SUP_E_SYSTEM, errno, "socketpair");
	struct worker_socket msg = {.number = w->given + 1, .idle_ms = l->cfg->worker_idle_ms};
	int r = sys_send(w->control, &msg, sizeof(msg), &pair[0], 1);
	close(pair[0]);
	if (r < 0)
		close(pair[1]);
	if (r == -EPIPE || r == -ECONNRESET) { /* it has just died, and nobody has seen it yet */
		worker_end(l, w);
		return 1;
	}
	if (r < 0)
		return fail_set(f, SUP_E_SYSTEM, r, "send to worker");
	w->given++;
	w->given_ms = clock_mono_ms();
	*ret_sock = pair[1];
	return 0;
}

bool worker_end_key(struct live *l, const uint8_t key[SUP_KEY_LEN])
{
	struct worker *both[] = {worker_find(l, key, false), worker_find(l, key, true)};
	for (int i = 0; i < 2; i++)
		if (both[i] && !both[i]->ending)
			worker_end(l, both[i]);
	return both[0] || both[1];
}

bool worker_control(struct live *l, uint64_t id)
{
	struct worker *w;
	TAILQ_FOREACH(w, &l->workers.list, link)
	if (w->id == id)
		break;
	if (!w || w->ending)
		return w;
	struct worker_idle msg;
	struct packet p;
	int r = hurry_receive(w->control, &msg, sizeof(msg), 0, &p);
	if (r == -EAGAIN)
		return true;
	bool sound = r > 0 && p.len == sizeof(msg) && !p.lost;
	if (!sound && !w->saver)
		log_text(LOG_WARN, "worker_ended", "%s: %s", w->name,
		        r > 0 ? "it broke the protocol" : "by itself");
	if (!sound || msg.taken == w->given)
		worker_end(l, w);
	return true;
}

bool worker_reaped(struct live *l, pid_t pid)
{
	struct worker *w;
	TAILQ_FOREACH(w, &l->workers.list, link)
	if (w->pid == pid)
		break;
	if (!w || pid <= 0)
		return false;
	w->pid = 0;
	if (!w->ending && !w->saver)
		log_text(LOG_WARN, "worker_ended", "%s: by itself", w->name);
	worker_end(l, w);
	worker_remove(l, w);
	return true;
}

bool workers_tick(struct live *l, uint64_t now, uint64_t *due)
{
	struct worker *w, *next;
	bool removed = false;
	*due = UINT64_MAX;
	if (!l->host)
		return false;
	for (w = TAILQ_FIRST(&l->workers.list); w; w = next) {
		next = TAILQ_NEXT(w, link);
		if (!w->ending || w->pid > 0)
			continue;
		if (worker_remove(l, w))
			removed = true;
		else
			*due = now + LOOK_MS;
	}
	if (now >= l->workers.look_ms && (l->workers.held = disk_homes_settle(l->host->disk)))
		l->workers.look_ms = now + (l->stopping ? LOOK_MS : HELD_LOOK_MS);
	if (l->workers.held && l->workers.look_ms < *due)
		*due = l->workers.look_ms;
	return removed;
}

void workers_stop(struct live *l)
{
	struct worker *w;
	TAILQ_FOREACH(w, &l->workers.list, link)
	if (!w->ending)
		worker_end(l, w);
	l->workers.look_ms = 0;
}

bool workers_empty(const struct live *l)
{
	return TAILQ_EMPTY(&l->workers.list) && (!l->host || disk_homes_settle(l->host->disk) == 0);
}
