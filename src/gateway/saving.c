/*
 * Saving and bringing back homes.
 *
 * Theory of operation. A home (struct home) stands in the table while something is to be done about
 * it, one step after the other:
 *
 *     saving:        lock → what is the last save? → a pipe: worker writes, a thread reads and
 *                    stores → unlock → who waits is told; again, if it changed meanwhile
 *     bringing back: has this machine the home, and was it brought back to the end? → if not: lock,
 *                    look again → remove what is half there → mark → worker reads what a thread
 *                    writes → unmark → unlock
 *
 * Blocking halves run on threads of their own, since a large home takes minutes, and the short
 * steps on others, so that nobody's home waits for the large ones. The lock is a file's, so that
 * two gateways of a node never work on one home; it is waited for without a thread. The mark is a
 * file too: a home that is marked is half there, whoever died, and is made anew from what is saved,
 * never used and never saved. A save that failed is tried again after a while: what a container
 * left when it fell asleep has nobody else to see to it.
 */
#include "gateway/saving.h"

#include "base/id.h"
#include "container/save.h"
#include "container/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEPPERS  2
#define MOVERS    6
#define TRIES     3
#define LOCK_MS   120000
#define LOCK_STEP 5 /* milliseconds */
#define AGAIN_MS  60000
#define PIPE_SIZE (1 << 20)

struct waiter {
	STAILQ_ENTRY(waiter) link;
	saving_fn then;
	void *ctx;
};
STAILQ_HEAD(waiters, waiter);

struct home {
	LIST_ENTRY(home) link;
	struct saving *s;
	uint8_t key[SUP_KEY_LEN];
	struct event *kick; /* on_kick() from the loop */
	enum { HOME_IDLE, HOME_SAVING, HOME_BRINGING } doing;
	bool changed;      /* since the save that is under way began */
	bool live;         /* as far as we know: it stays in the table */
	uint64_t again_ms; /* monotonic: when to try a save again that failed; 0: none */
	struct waiters preparing;
	struct waiters here;     /* prepared, as it is being saved */
	struct waiters settling; /* by the save under way */
	struct waiters next;     /* by the one after it */
	/* The job. */
	int lock;
	bool lock_busy;      /* another had it, as a thread saw */
	bool waits_for_lock; /* until on_kick() */
	uint64_t lock_until_ms;
	void (*have_lock)(struct home *h); /* or err */
	void (*then)(struct home *h);      /* after the step on a thread */
	int pipe;                          /* our end, the thread's */
	unsigned halves;                   /* of the transfer, that have not ended */
	unsigned tries;
	bool whole;  /* saving: every file's bytes */
	bool locked; /* bringing back: this is the second look */
	bool marked, saved;
	int64_t since_ns, started_ns;
	struct error err;    /* of the whole */
	struct error ours;   /* of the thread's half */
	struct error theirs; /* of the worker's half */
};

struct saving {
	struct gateway *g;
	struct pool *steppers, *movers;
	LIST_HEAD(, home) homes;
	int folder;            /* of locks and marks */
	_Atomic bool stopping; /* nobody is there to be told */
};

/* ---- locks and marks ---- */

static void file_name(const struct home *h, const char *ending, char out[80])
{
	char hex[2 * SUP_KEY_LEN + 1];

	id_hex(h->key, SUP_KEY_LEN, hex);
	str_format(out, 80, "%s%s", hex, ending);
}

static void lock_give(struct home *h)
{
	if (h->lock >= 0)
		close(h->lock);
	h->lock = -1;
}

/* 1: taken, 0: another has it. The file goes with the container, so one that was opened may be gone
 * when it is locked. */
static int lock_try(struct home *h, struct error *err)
{
	char name[80];
	struct stat st;
	int r;

	file_name(h, "", name);
	for (;;) {
		h->lock = openat(h->s->folder, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (h->lock < 0)
			return error_errno(err, errno, "lock a home");
		while ((r = flock(h->lock, LOCK_EX | LOCK_NB)) < 0 && errno == EINTR)
			;
		if (r < 0 && errno != EWOULDBLOCK)
			r = error_errno(err, errno, "lock a home");
		else if (r < 0)
			r = 0;
		else if (fstat(h->lock, &st) < 0)
			r = error_errno(err, errno, "lock a home");
		else if (st.st_nlink > 0)
			return 1;
		else
			r = 1;
		lock_give(h);
		if (r <= 0)
			return r;
	}
}

static bool mark_is_there(const struct home *h)
{
	char name[80];

	file_name(h, ".half", name);
	return faccessat(h->s->folder, name, F_OK, 0) == 0;
}

static int mark_set(const struct home *h, bool there, struct error *err)
{
	char name[80];
	int fd;

	file_name(h, ".half", name);
	if (!there) {
		if (unlinkat(h->s->folder, name, 0) < 0 && errno != ENOENT)
			return error_errno(err, errno, "unmark a home");
		return 0;
	}
	fd = openat(h->s->folder, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_errno(err, errno, "mark a home");
	close(fd);
	if (h->s->g->config->container.durable_power && fsync(h->s->folder) < 0)
		return error_errno(err, errno, "mark a home");
	return 0;
}

/* ---- homes ---- */

static void on_kick(evutil_socket_t fd, short what, void *arg);

static struct home *home_get(struct saving *s, const uint8_t key[SUP_KEY_LEN])
{
	struct home *h;

	LIST_FOREACH(h, &s->homes, link)
	{
		if (memcmp(h->key, key, SUP_KEY_LEN) == 0)
			return h;
	}
	h = mem_alloc(sizeof(*h));
	h->s = s;
	h->lock = h->pipe = -1;
	memcpy(h->key, key, SUP_KEY_LEN);
	STAILQ_INIT(&h->preparing);
	STAILQ_INIT(&h->here);
	STAILQ_INIT(&h->settling);
	STAILQ_INIT(&h->next);
	h->kick = evtimer_new(s->g->base, on_kick, h);
	if (h->kick == NULL)
		BUG("no memory for an event");
	LIST_INSERT_HEAD(&s->homes, h, link);
	return h;
}

static void home_free(struct home *h)
{
	struct waiters *lists[] = {&h->preparing, &h->here, &h->settling, &h->next};
	struct waiter *w;

	for (size_t i = 0; i < 4; i++)
		while ((w = STAILQ_FIRST(lists[i])) != NULL) {
			STAILQ_REMOVE_HEAD(lists[i], link);
			free(w);
		}
	if (h->lock >= 0)
		close(h->lock);
	event_free(h->kick);
	LIST_REMOVE(h, link);
	free(h);
}

/* Looks, in the loop's next step, at what is to be done. */
static void home_kick(struct home *h)
{
	event_active(h->kick, EV_TIMEOUT, 0);
}

static void wait_on(struct waiters *list, saving_fn then, void *ctx)
{
	struct waiter *w = mem_alloc(sizeof(*w));

	*w = (struct waiter){.then = then, .ctx = ctx};
	STAILQ_INSERT_TAIL(list, w, link);
}

/* Those in the list when this begins; a callback may add to it. */
static void tell(struct waiters *list, const struct error *err)
{
	struct waiters all = STAILQ_HEAD_INITIALIZER(all);
	struct waiter *w;

	STAILQ_CONCAT(&all, list);
	while ((w = STAILQ_FIRST(&all)) != NULL) {
		STAILQ_REMOVE_HEAD(&all, link);
		w->then(w->ctx, err->code != 0 ? err : NULL);
		free(w);
	}
}

static void step_done(void *arg)
{
	struct home *h = arg;

	if (!h->s->stopping)
		h->then(h);
}

static void go_on(struct pool *p, struct home *h, pool_fn work, void (*then)(struct home *h))
{
	h->err.code = 0;
	h->then = then;
	if (pool_run(p, work, step_done, h))
		return;
	error_set(&h->err, ERR_UNAVAILABLE, "The server has too many homes to save.");
	then(h);
}

/* A step on a thread, then one on the loop. */
static void go(struct home *h, pool_fn work, void (*then)(struct home *h))
{
	go_on(h->s->steppers, h, work, then);
}

static void arm(struct home *h, uint64_t ms)
{
	const struct timeval tv = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};

	evtimer_add(h->kick, &tv);
}

static void lock_work(void *arg)
{
	struct home *h = arg;

	h->lock_busy = lock_try(h, &h->err) == 0;
}

static void lock_done(struct home *h)
{
	if (h->err.code != 0 || !h->lock_busy) {
		h->have_lock(h);
	} else if (clock_mono_ms() < h->lock_until_ms) {
		h->waits_for_lock = true;
		arm(h, LOCK_STEP);
	} else {
		error_set(&h->err, ERR_TIMEOUT, "another process works on this home for too long");
		h->have_lock(h);
	}
}

static void lock_take(struct home *h, void (*then)(struct home *h))
{
	h->have_lock = then;
	h->lock_until_ms = clock_mono_ms() + LOCK_MS;
	go(h, lock_work, lock_done);
}

/* The job has ended, well or not. */
static void job_end(struct home *h)
{
	struct error err = h->err;
	bool saving = h->doing == HOME_SAVING;

	lock_give(h);
	h->doing = HOME_IDLE;
	h->whole = h->locked = false;
	h->tries = 0;
	if (saving)
		h->again_ms = err.code != 0 ? clock_mono_ms() + AGAIN_MS : 0;
	if (err.code != 0)
		log_text(LOG_ERROR, saving ? "save_failed" : "restore_failed", "%s", err.text);
	home_kick(h);
	tell(saving ? &h->settling : &h->preparing, &err);
}

/* ---- the transfer: one half a worker's, one a thread's ---- */

static void save_begin(struct home *h);
static void bring_done(struct home *h);

static void halves_done(struct home *h)
{
	const struct error *e = h->ours.code != 0 ? &h->ours : &h->theirs;

	if (--h->halves > 0)
		return;
	/* Where both failed, the worker's end is why ours did, unless its pipe broke for ours. */
	if (h->theirs.code != 0 && h->ours.code != 0 && h->ours.code != ERR_CONFLICT &&
	        h->ours.code != ERR_UNAVAILABLE)
		e = &h->theirs;
	h->err = *e;
	if (h->doing == HOME_BRINGING) {
		bring_done(h);
	} else if (h->err.code != 0 && ++h->tries < TRIES && h->err.code != ERR_NOT_FOUND) {
		h->whole = h->ours.code == ERR_CONFLICT;
		lock_give(h);
		save_begin(h);
	} else {
		/* A home that is not there has nothing to save: it was deleted meanwhile. */
		if (h->err.code == ERR_NOT_FOUND)
			h->err.code = 0;
		job_end(h);
	}
}

static void on_worker(void *ctx, const struct error *err)
{
	struct home *h = ctx;

	if (err != NULL)
		h->theirs = *err;
	halves_done(h);
}

static void thread_done(struct home *h)
{
	if (h->err.code != 0)
		h->ours = h->err;
	if (h->pipe >= 0)
		close(h->pipe);
	h->pipe = -1;
	halves_done(h);
}

static void transfer(struct home *h, pool_fn work)
{
	bool saving = h->doing == HOME_SAVING;
	int fds[2];

	h->ours.code = h->theirs.code = 0;
	if (pipe2(fds, O_CLOEXEC) < 0) {
		error_errno(&h->ours, errno, "make a pipe");
		h->halves = 1;
		halves_done(h);
		return;
	}
	fcntl(fds[0], F_SETPIPE_SZ, PIPE_SIZE); /* where it may be; else smaller steps */
	h->halves = 2;
	h->pipe = fds[saving ? 0 : 1];
	if (saving)
		container_send_home(h->s->g->containers, h->key, fds[1], h->since_ns, on_worker, h);
	else
		container_take_home(h->s->g->containers, h->key, fds[0], on_worker, h);
	go_on(h->s->movers, h, work, thread_done);
}

/* ---- saving ---- */

static void save_work(void *arg)
{
	struct home *h = arg;

	save_home(h->s->g->blobs, h->key, h->pipe, h->started_ns, NULL, &h->ours);
	close(h->pipe); /* a worker that still writes must not wait for the loop */
	h->pipe = -1;
}

static void since_work(void *arg)
{
	struct home *h = arg;

	if (mark_is_there(h)) {
		error_set(&h->err, ERR_UNAVAILABLE, "the home is half there: it is not saved");
		return;
	}
	h->since_ns = 0;
	/* A manifest that cannot be read is no reason not to write a good one. */
	if (!h->whole)
		save_since(h->s->g->blobs, h->key, &h->since_ns, NULL);
	h->started_ns = clock_wall_ms() * 1000000;
}

static void since_done(struct home *h)
{
	if (h->err.code != 0)
		job_end(h);
	else
		transfer(h, save_work);
}

static void save_locked(struct home *h)
{
	if (h->err.code != 0)
		job_end(h);
	else
		go(h, since_work, since_done);
}

static void save_begin(struct home *h)
{
	h->doing = HOME_SAVING;
	lock_take(h, save_locked);
}

/* ---- bringing back ---- */

/* A home's image must never meet a full disk. */
static int room_work(void *gateway, struct error *err)
{
	return gateway_check_room(gateway, err);
}

static void restore_work(void *arg)
{
	struct home *h = arg;

	save_restore(h->s->g->blobs, h->key, h->pipe, room_work, h->s->g, NULL, &h->ours);
	close(h->pipe);
	h->pipe = -1;
}

static void unmark_work(void *arg)
{
	struct home *h = arg;

	mark_set(h, false, &h->err);
}

/* Both halves have ended. One that failed stays marked. */
static void bring_done(struct home *h)
{
	struct error e = h->err;

	if (e.code == 0) {
		go(h, unmark_work, job_end);
		return;
	}
	error_set(&h->err, ERR_UNAVAILABLE,
	        "The container's saved files could not be brought back: %s", e.text);
	job_end(h);
}

static void mark_work(void *arg)
{
	struct home *h = arg;

	mark_set(h, true, &h->err);
}

static void mark_done(struct home *h)
{
	if (h->err.code != 0)
		job_end(h);
	else
		transfer(h, restore_work);
}

static void on_removed(void *ctx, const struct container_status *s, const struct error *err)
{
	struct home *h = ctx;

	if (err != NULL) {
		h->err = *err;
		job_end(h);
		return;
	}
	go(h, mark_work, mark_done);
}

static void look(struct home *h);

static void look_done(struct home *h)
{
	if (h->err.code != 0 || !(h->marked || h->saved)) {
		job_end(h);
	} else if (!h->locked) {
		h->locked = true;
		look(h);
	} else if (h->marked) {
		container_order_delete(h->s->g->containers, h->key, on_removed, h);
	} else {
		go(h, mark_work, mark_done);
	}
}

/* h->saved comes in as whether there is no home here. */
static void look_work(void *arg)
{
	struct home *h = arg;
	struct error e;
	int64_t since = 0;

	h->marked = mark_is_there(h);
	if (!h->saved)
		return;
	if (save_since(h->s->g->blobs, h->key, &since, &e) < 0)
		error_set(&h->err, ERR_UNAVAILABLE,
		        "The container's saved files cannot be read: %s", e.text);
	h->saved = since != 0;
}

static void on_status(void *ctx, const struct container_status *s, const struct error *err)
{
	struct home *h = ctx;

	if (err != NULL) {
		h->err = *err;
		job_end(h);
		return;
	}
	/* The mark is looked at after the home: one that is being brought back is marked before. */
	h->saved = s->state == SUP_ST_UNKNOWN;
	go(h, look_work, look_done);
}

static void locked_done(struct home *h)
{
	if (h->err.code != 0)
		job_end(h);
	else
		container_ask_status(h->s->g->containers, h->key, on_status, h);
}

/* First without the lock, which is all that a home that is here needs. */
static void look(struct home *h)
{
	h->doing = HOME_BRINGING;
	if (h->locked)
		lock_take(h, locked_done);
	else
		container_ask_status(h->s->g->containers, h->key, on_status, h);
}

/* ---- what is asked for ---- */

/* Does what is to be done next, or drops the home. */
static void on_kick(evutil_socket_t fd, short what, void *arg)
{
	static const struct error none;
	struct home *h = arg;
	bool again = h->again_ms > 0 && clock_mono_ms() >= h->again_ms;

	tell(&h->here, &none);
	if (h->doing != HOME_IDLE) { /* its end looks again */
		if (h->waits_for_lock) {
			h->waits_for_lock = false;
			go(h, lock_work, lock_done);
		}
		return;
	}
	if (!STAILQ_EMPTY(&h->preparing)) {
		look(h);
	} else if (h->changed || again) {
		h->changed = false;
		h->again_ms = 0;
		STAILQ_CONCAT(&h->settling, &h->next);
		save_begin(h);
	} else if (!STAILQ_EMPTY(&h->next)) {
		home_kick(h);
		tell(&h->next, &none);
	} else if (h->again_ms > 0) {
		arm(h, h->again_ms - clock_mono_ms() + 1);
	} else if (!h->live) {
		home_free(h);
	}
}

void saving_prepare(struct saving *s, const uint8_t key[SUP_KEY_LEN], saving_fn then, void *ctx)
{
	struct home *h = home_get(s, key);

	/* One that is being saved is here, and whole: nobody else works on it. */
	wait_on(h->doing == HOME_SAVING && h->halves > 0 ? &h->here : &h->preparing, then, ctx);
	home_kick(h);
}

void saving_changed(struct saving *s, const uint8_t key[SUP_KEY_LEN])
{
	struct home *h = home_get(s, key);

	h->changed = h->live = true;
	home_kick(h);
}

void saving_settle(struct saving *s, const uint8_t key[SUP_KEY_LEN], saving_fn then, void *ctx)
{
	struct home *h = home_get(s, key);

	/* The last save failed: there is something that is not saved, and another try decides. */
	if (h->again_ms > 0)
		h->changed = true;
	/* What the save under way began with is all that there is, unless it changed since. */
	wait_on(h->doing == HOME_SAVING && !h->changed ? &h->settling : &h->next, then, ctx);
	home_kick(h);
}

void saving_wrote(struct saving *s, const uint8_t key[SUP_KEY_LEN], saving_fn then, void *ctx)
{
	home_get(s, key)->changed = true;
	saving_settle(s, key, then, ctx);
}

void saving_ended(struct saving *s, const uint8_t key[SUP_KEY_LEN])
{
	struct home *h;

	LIST_FOREACH(h, &s->homes, link)
	{
		if (memcmp(h->key, key, SUP_KEY_LEN) != 0 || !h->live)
			continue;
		h->live = false;
		h->changed = true;
		home_kick(h);
		return;
	}
}

bool saving_idle(const struct saving *s)
{
	const struct home *h;

	LIST_FOREACH(h, &s->homes, link)
	{
		if (h->doing != HOME_IDLE || h->changed)
			return false;
	}
	return true;
}

/* The lock, for one that may block. */
static int lock_wait(struct home *h, struct error *err)
{
	uint64_t until = clock_mono_ms() + LOCK_MS;
	int r;

	while ((r = lock_try(h, err)) == 0) {
		if (h->s->stopping || clock_mono_ms() > until)
			return error_set(err, ERR_TIMEOUT,
			        "another process works on this home for too long");
		usleep(LOCK_STEP * 1000);
	}
	return r;
}

static int forget_locked(struct home *h, bool removed, struct error *err)
{
	char name[80];
	int r = 0;

	if (removed)
		r = mark_set(h, false, err);
	if (r == 0)
		r = save_delete(h->s->g->blobs, h->key, err);
	file_name(h, "", name);
	if (r == 0)
		unlinkat(h->s->folder, name, 0);
	return r;
}

int saving_forget(struct gateway *g, const struct store_scope *scope, struct str id, bool removed,
        struct error *err)
{
	struct home h = {.s = g->saving, .lock = -1};
	struct store_container row = {0};
	uint8_t workspace[16];
	int r;

	if (g->saving == NULL)
		return 0;
	container_key(scope->account, scope->workspace, id, h.key, workspace);
	r = removed ? lock_wait(&h, err) : lock_try(&h, err);
	if (r <= 0)
		return r;
	r = store_container_get(g->reader, scope, id, &row, err);
	if (r == -ERR_NOT_FOUND || (r == 0 && row.deleting))
		r = forget_locked(&h, removed, err);
	store_container_clear(&row);
	lock_give(&h);
	return r;
}

/* ---- life ---- */

struct saving *saving_new(struct gateway *g, struct error *err)
{
	struct saving *s = mem_alloc(sizeof(*s));
	char path[4160];

	s->g = g;
	str_format(path, sizeof(path), "%s/homes", g->options->state_dir);
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		error_errno(err, errno, "%s", path);
	s->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->folder < 0) {
		error_errno(err, errno, "%s", path);
		free(s);
		return NULL;
	}
	s->steppers = pool_new(g->base, STEPPERS);
	s->movers = pool_new(g->base, MOVERS);
	return s;
}

struct saving *saving_free(struct saving *s)
{
	if (s == NULL)
		return NULL;
	s->stopping = true;
	pool_free(s->steppers);
	pool_free(s->movers);
	while (!LIST_EMPTY(&s->homes))
		home_free(LIST_FIRST(&s->homes));
	close(s->folder);
	free(s);
	return NULL;
}
