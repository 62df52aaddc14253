/*
 * The worker's client.
 *
 * A link is a connection to the worker of one container: asked for at the supervisor with the first
 * question, and closed when the worker closes it (30 s after the last question, so a link with an
 * upload asks something now and then), or when there are more than LINKS_MAX idle ones. Questions
 * stand in the link's list from the asking to their answer; at most SENT_MAX of them are in the
 * socket, so neither end has to keep much for the other.
 *
 * When a link breaks, the questions that can be asked twice without harm are, once, on a new link;
 * the others fail. A file without a name lives in its worker, so an upload ends with its link.
 *
 * A worker has read what a guest wrote, and is trusted as little: sizes, order and paths of its
 * answers are checked, the number of files in one is bounded by what was asked for, and a
 * descriptor must be one of a regular file.
 */
#include "container/files.h"

#include "base/buf.h"
#include "container/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MAX   256
#define BUCKETS     256
#define SENT_MAX    32
#define ALIVE_S     10
#define STEP_MAX    64                  /* messages read in one step of the loop */
#define PATHS_BYTES ((size_t)128 << 10) /* of one answer: a list ends where they are more */

struct container_ask {
	TAILQ_ENTRY(container_ask) link;
	struct files_link *on; /* NULL: its end is known, and `later` tells it */
	struct event *later;   /* NULL until needed */
	struct error failed;   /* that end; code 0: nothing was there to be told of */
	enum worker_op op;
	bool sent, again; /* again: it was asked before, on a link that broke */
	uint32_t limit;   /* of files in the answer, */
	uint32_t seen;    /* and how many came */
	union {
		struct worker_header h;
		struct worker_list list;
		struct worker_recent recent;
		struct worker_path path;
		struct worker_create create;
		struct worker_link link;
	} message;
	char *path;
	size_t path_len;
	container_files_fn fn;
	void *ctx;
	/* What has come of the answer. */
	struct container_file *files;
	size_t n_files, cap_files;
	struct buf paths; /* of files, whose path.p is an offset until the end */
	int fd;
	uint64_t handle;
	bool created;
};
TAILQ_HEAD(ask_list, container_ask);

struct container_upload {
	LIST_ENTRY(container_upload) link;
	struct files_link *on; /* NULL: the worker has gone */
	uint64_t handle;
};

struct files_link {
	LIST_ENTRY(files_link) bucket;
	TAILQ_ENTRY(files_link) by_use; /* the one used last at the end */
	struct container_client *client;
	uint8_t key[SUP_KEY_LEN];
	int fd; /* -1: the supervisor has been asked for it */
	struct event *readable, *writable, *alive;
	bool creating; /* asked for with SUP_FILES_CREATE */
	bool reading;  /* its answers are being read: callbacks must not take it away */
	uint32_t next_seq;
	unsigned n_sent;
	struct ask_list asks;
	LIST_HEAD(, container_upload) uploads;
};

struct container_links {
	LIST_HEAD(, files_link) buckets[BUCKETS];
	TAILQ_HEAD(, files_link) by_use;
	size_t n;
};

static void link_send(struct files_link *l);
static void link_request(struct files_link *l);

/* ---- life of a question ---- */

static void ask_free(struct container_ask *a)
{
	if (a->on != NULL) {
		TAILQ_REMOVE(&a->on->asks, a, link);
		if (a->sent)
			a->on->n_sent--;
	}
	if (a->later != NULL)
		event_free(a->later);
	if (a->fd >= 0)
		close(a->fd);
	buf_free(&a->paths);
	free(a->files);
	free(a->path);
	free(a);
}

static void ask_fail(struct container_ask *a, const struct error *e)
{
	container_files_fn fn = a->fn;
	void *ctx = a->ctx;
	struct error copy = *e;

	ask_free(a);
	if (fn != NULL)
		fn(ctx, NULL, &copy);
}

static void ask_answer(struct container_ask *a, uint32_t flags)
{
	struct files_link *l = a->on;
	struct container_files_result r = {
	        .n_files = a->n_files,
	        .more = (flags & WORKER_MORE) != 0 || a->seen > a->n_files,
	        .partial = (flags & WORKER_PARTIAL) != 0,
	        .fd = a->fd,
	};
	container_files_fn fn = a->fn;
	void *ctx = a->ctx;
	struct container_file *files = steal(a->files);
	struct buf paths = a->paths;

	a->fd = -1;
	buf_init(&a->paths, 0);
	for (size_t i = 0; i < r.n_files; i++)
		files[i].path.p = paths.data + (size_t)(uintptr_t)files[i].path.p;
	r.files = files;
	if (a->created) {
		r.upload = mem_alloc(sizeof(*r.upload));
		*r.upload = (struct container_upload){.on = l, .handle = a->handle};
		LIST_INSERT_HEAD(&l->uploads, r.upload, link);
	}
	ask_free(a);
	if (fn != NULL)
		fn(ctx, &r, NULL);
	free(files);
	buf_free(&paths);
}

static void on_later(evutil_socket_t fd, short what, void *arg)
{
	struct container_ask *a = arg;

	if (a->failed.code != 0)
		ask_fail(a, &a->failed);
	else
		ask_answer(a, 0);
}

/* For what is known while somebody asks, or while others wait in the same list. e: NULL for an
 * empty answer. */
static void ask_end_later(
        struct container_ask *a, struct container_client *c, const struct error *e)
{
	if (a->on != NULL) {
		TAILQ_REMOVE(&a->on->asks, a, link);
		if (a->sent)
			a->on->n_sent--;
		a->on = NULL;
	}
	if (e != NULL)
		a->failed = *e;
	a->later = evtimer_new(c->base, on_later, a);
	if (a->later == NULL)
		BUG("no memory for an event");
	event_active(a->later, EV_TIMEOUT, 0);
}

void container_ask_cancel(struct container_ask *a)
{
	if (a != NULL)
		ask_free(a); /* an answer that comes yet belongs to nobody */
}

/* ---- links ---- */

static size_t bucket_of(const uint8_t key[SUP_KEY_LEN])
{
	return key[0] % BUCKETS;
}

static bool link_is_idle(const struct files_link *l)
{
	return l->fd >= 0 && !l->reading && TAILQ_EMPTY(&l->asks) && LIST_EMPTY(&l->uploads);
}

/* No questions are on it any more. */
static void link_free(struct files_link *l)
{
	struct container_upload *u;

	while ((u = LIST_FIRST(&l->uploads)) != NULL) {
		LIST_REMOVE(u, link);
		u->on = NULL;
	}
	LIST_REMOVE(l, bucket);
	TAILQ_REMOVE(&l->client->links->by_use, l, by_use);
	l->client->links->n--;
	if (l->readable != NULL)
		event_free(l->readable);
	if (l->writable != NULL)
		event_free(l->writable);
	if (l->alive != NULL)
		event_free(l->alive);
	if (l->fd >= 0)
		close(l->fd);
	free(l);
}

static struct files_link *link_find(struct container_client *c, const uint8_t key[SUP_KEY_LEN])
{
	struct files_link *l;

	LIST_FOREACH(l, &c->links->buckets[bucket_of(key)], bucket)
	{
		if (memcmp(l->key, key, SUP_KEY_LEN) == 0)
			return l;
	}
	return NULL;
}

static void links_trim(struct container_links *all)
{
	struct files_link *l, *next;

	for (l = TAILQ_FIRST(&all->by_use); l != NULL && all->n >= LINKS_MAX; l = next) {
		next = TAILQ_NEXT(l, by_use);
		if (link_is_idle(l))
			link_free(l);
	}
}

static struct files_link *link_get(struct container_client *c, const uint8_t key[SUP_KEY_LEN])
{
	struct files_link *l = NULL;

	if (c->links == NULL) {
		c->links = mem_alloc(sizeof(*c->links));
		TAILQ_INIT(&c->links->by_use);
	}
	l = link_find(c, key);
	if (l != NULL) {
		TAILQ_REMOVE(&c->links->by_use, l, by_use);
		TAILQ_INSERT_TAIL(&c->links->by_use, l, by_use);
		return l;
	}
	links_trim(c->links);
	l = mem_alloc(sizeof(*l));
	l->client = c;
	l->fd = -1;
	memcpy(l->key, key, SUP_KEY_LEN);
	TAILQ_INIT(&l->asks);
	LIST_INSERT_HEAD(&c->links->buckets[bucket_of(key)], l, bucket);
	TAILQ_INSERT_TAIL(&c->links->by_use, l, by_use);
	c->links->n++;
	return l;
}

static bool ask_may_repeat(const struct container_ask *a)
{
	return !a->again && a->op != WORKER_LINK && a->op != WORKER_DROP;
}

/* The connection has ended: what can is asked again, on the next one. */
static void link_broken(struct files_link *l)
{
	struct container_client *c = l->client;
	struct ask_list asks = TAILQ_HEAD_INITIALIZER(asks);
	struct container_ask *a, *next;
	struct files_link *fresh;
	struct error e;

	container_error_gone(&e);
	for (a = TAILQ_FIRST(&l->asks); a != NULL; a = next) {
		next = TAILQ_NEXT(a, link);
		if (!ask_may_repeat(a) || c->lost) {
			ask_end_later(a, c, &e);
			continue;
		}
		TAILQ_REMOVE(&l->asks, a, link);
		TAILQ_INSERT_TAIL(&asks, a, link);
		/* What had come of an answer is void. */
		a->again = a->again || a->sent;
		a->sent = a->created = false;
		a->n_files = a->seen = 0;
		buf_reset(&a->paths);
		if (a->fd >= 0)
			close(a->fd);
		a->fd = -1;
	}
	uint8_t key[SUP_KEY_LEN];

	memcpy(key, l->key, sizeof(key));
	link_free(l);
	if (TAILQ_EMPTY(&asks))
		return;
	fresh = link_get(c, key);
	TAILQ_FOREACH(a, &asks, link)
	{
		a->on = fresh;
	}
	TAILQ_CONCAT(&fresh->asks, &asks, link);
	link_request(fresh);
}

/* ---- answers ---- */

static struct container_ask *ask_by_seq(struct files_link *l, uint32_t seq)
{
	struct container_ask *a;

	TAILQ_FOREACH(a, &l->asks, link)
	{
		if (a->sent && a->message.h.seq == seq)
			return a;
	}
	return NULL;
}

/* Takes the descriptor over where it is what it should be. */
static bool fd_take(struct container_ask *a, int *fd)
{
	struct stat st;

	if (a->fd >= 0 || fstat(*fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	a->fd = *fd;
	*fd = -1;
	return true;
}

static void error_no_room(struct container_ask *a)
{
	struct error e;

	error_no_files(&e);
	ask_fail(a, &e);
}

/* Of these functions' results false means: the worker broke the protocol. */
static bool on_entry(
        struct container_ask *a, const struct worker_entry *m, struct str path, int *fd)
{
	struct container_file *f;

	if (!container_path_valid(path) || a->seen++ >= a->limit ||
	        (*fd >= 0 && a->op != WORKER_OPEN))
		return false;
	if (a->op == WORKER_OPEN && *fd >= 0 && !fd_take(a, fd))
		return false;
	if (a->paths.len >= PATHS_BYTES)
		return true;
	mem_grow(&a->files, &a->cap_files, a->n_files, sizeof(*a->files));
	f = &a->files[a->n_files++];
	*f = (struct container_file){
	        .path = {(const char *)(uintptr_t)a->paths.len, path.n},
	        .size = m->size,
	        .ctime_ns = m->ctime_ns,
	};
	return buf_append(&a->paths, path.p, path.n) == 0;
}

static bool on_done(struct container_ask *a, uint32_t flags)
{
	bool one = a->op == WORKER_STAT || a->op == WORKER_OPEN || a->op == WORKER_LINK;

	if (a->op == WORKER_CREATE || (one && a->n_files != 1))
		return false;
	if (a->op == WORKER_OPEN && a->fd < 0)
		error_no_room(a); /* this process had no room for the descriptor */
	else
		ask_answer(a, flags);
	return true;
}

static void drop_send(struct files_link *l, uint64_t handle);

static bool on_created(
        struct files_link *l, struct container_ask *a, const struct worker_handle *m, int *fd)
{
	if (a == NULL) { /* cancelled meanwhile */
		drop_send(l, m->handle);
		return true;
	}
	if (a->op != WORKER_CREATE)
		return false;
	if (*fd < 0) {
		drop_send(l, m->handle);
		error_no_room(a);
		return true;
	}
	if (!fd_take(a, fd))
		return false;
	a->created = true;
	a->handle = m->handle;
	ask_answer(a, 0);
	return true;
}

union answer {
	struct worker_header h;
	struct worker_entry entry;
	struct worker_handle created;
	struct worker_done done;
	struct worker_failed failed;
	char bytes[sizeof(struct worker_entry) + WORKER_PATH_MAX];
};

static bool on_failed(struct container_ask *a, struct worker_failed *m)
{
	struct error e;

	m->step[sizeof(m->step) - 1] = 0;
	error_from_worker(a->op, m, &e);
	ask_fail(a, &e);
	return true;
}

static bool dispatch(struct files_link *l, union answer *m, size_t n, int *fd)
{
	struct container_ask *a;

	if (n < sizeof(m->h) || m->h.size > n)
		return false;
	a = ask_by_seq(l, m->h.seq);
	switch ((enum worker_op)m->h.op) {
	case WORKER_ENTRY:
		return m->h.size == sizeof(m->entry) && n == m->h.size + m->entry.path_len &&
		       (a == NULL ||
		               on_entry(a, &m->entry,
		                       (struct str){m->bytes + sizeof(m->entry), m->entry.path_len},
		                       fd));
	case WORKER_CREATED:
		return n == sizeof(m->created) && m->h.size == n &&
		       on_created(l, a, &m->created, fd);
	case WORKER_DONE:
		return n == sizeof(m->done) && m->h.size == n && *fd < 0 &&
		       (a == NULL || on_done(a, m->done.flags));
	case WORKER_FAILED:
		return n == sizeof(m->failed) && m->h.size == n && *fd < 0 &&
		       (a == NULL || on_failed(a, &m->failed));
	case WORKER_LIST:
	case WORKER_RECENT:
	case WORKER_STAT:
	case WORKER_OPEN:
	case WORKER_CREATE:
	case WORKER_LINK:
	case WORKER_DROP:
	case WORKER_DELETE:
	case WORKER_SYNC:
	case WORKER_SAVE:
	case WORKER_RESTORE:
		break;
	}
	return false;
}

static void on_readable(evutil_socket_t sock, short what, void *arg)
{
	struct files_link *l = arg;

	for (int i = 0; i < STEP_MAX; i++) {
		union answer m;
		int fds[1];
		size_t n_fds;
		ssize_t n = socket_receive(sock, &m, sizeof(m), fds, 1, &n_fds);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		int fd = n > 0 && n_fds == 1 ? fds[0] : -1;
		l->reading = true;
		bool good = n > 0 && dispatch(l, &m, (size_t)n, &fd);

		l->reading = false;

		hurry_close(&fd);
		if (good)
			continue;
		link_broken(l);
		return;
	}
	link_send(l);
}

/* ---- questions ---- */

static void on_writable(evutil_socket_t sock, short what, void *arg)
{
	link_send(arg);
}

/* The worker counts a question as a sign that it is needed. */
static void on_alive(evutil_socket_t sock, short what, void *arg)
{
	struct files_link *l = arg;

	if (!LIST_EMPTY(&l->uploads))
		container_ask_stat(l->client, l->key, STR("x"), NULL, NULL);
}

static bool message_send(struct files_link *l, const struct worker_header *h, struct str path)
{
	if (socket_send(l->fd, h, h->size, path.p, path.n, NULL, 0) == 0)
		return true;
	if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM) {
		event_add(l->writable, NULL);
		return false;
	}
	return true; /* it has gone, which the reader will see */
}

static void link_send(struct files_link *l)
{
	struct container_ask *a;

	if (l->fd < 0)
		return;
	TAILQ_FOREACH(a, &l->asks, link)
	{
		if (a->sent)
			continue;
		if (l->n_sent >= SENT_MAX)
			break;
		a->message.h.seq = ++l->next_seq;
		if (!message_send(l, &a->message.h, (struct str){a->path, a->path_len}))
			break;
		a->sent = true;
		l->n_sent++;
	}
}

/* Nobody waits for the answer. Where the socket is full the file goes with the link. */
static void drop_send(struct files_link *l, uint64_t handle)
{
	struct worker_handle m = {.h = {WORKER_DROP, sizeof(m), ++l->next_seq}, .handle = handle};

	message_send(l, &m.h, (struct str){NULL, 0});
}

/* There is no home: a list of it is empty, a file is not there, and for a new one a home is made.
 */
static void link_without_home(struct files_link *l, const struct error *err)
{
	struct container_client *c = l->client;
	struct container_ask *a, *next;
	struct error e;

	error_set(&e, ERR_NOT_FOUND, "There is no such file.");
	for (a = TAILQ_FIRST(&l->asks); a != NULL; a = next) {
		next = TAILQ_NEXT(a, link);
		if (a->op == WORKER_LIST || a->op == WORKER_RECENT || a->op == WORKER_SYNC)
			ask_end_later(a, c, NULL);
		else if (a->op != WORKER_CREATE || l->creating)
			ask_end_later(a, c, a->op == WORKER_CREATE ? err : &e);
	}
	if (TAILQ_EMPTY(&l->asks))
		link_free(l);
	else
		link_request(l);
}

static void link_failed(struct files_link *l, const struct error *err)
{
	struct container_ask *a;

	while ((a = TAILQ_FIRST(&l->asks)) != NULL)
		ask_end_later(a, l->client, err);
	link_free(l);
}

/* The supervisor's answer. */
static void on_files(void *ctx, int fd, const struct error *err)
{
	static const struct timeval alive = {ALIVE_S, 0};
	struct files_link *l = ctx;
	struct event_base *base = l->client->base;

	if (err != NULL) {
		if (err->code == ERR_NOT_FOUND)
			link_without_home(l, err);
		else
			link_failed(l, err);
		return;
	}
	l->fd = fd;
	l->readable = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, l);
	l->writable = event_new(base, fd, EV_WRITE, on_writable, l);
	l->alive = event_new(base, -1, EV_PERSIST, on_alive, l);
	if (l->readable == NULL || l->writable == NULL || l->alive == NULL ||
	        event_add(l->readable, NULL) < 0 || event_add(l->alive, &alive) < 0)
		BUG("no memory to watch a worker");
	link_send(l);
}

/* Asks the supervisor for the connection; again where the first one would make no home. */
static void link_request(struct files_link *l)
{
	struct container_ask *a;

	l->creating = false;
	TAILQ_FOREACH(a, &l->asks, link)
	{
		if (a->op == WORKER_CREATE)
			l->creating = true;
	}
	container_client_files(l->client, l->key, l->creating ? SUP_FILES_CREATE : 0, on_files, l);
}

static struct container_ask *ask_new(
        enum worker_op op, size_t size, struct str path, container_files_fn fn, void *ctx)
{
	struct container_ask *a = mem_alloc(sizeof(*a));

	a->op = op;
	a->message.h = (struct worker_header){(uint16_t)op, (uint16_t)size, 0};
	a->fn = fn;
	a->ctx = ctx;
	a->fd = -1;
	a->limit = 1;
	a->path_len = path.n;
	if (path.n > 0)
		a->path = mem_strndup(path.p, path.n);
	buf_init(&a->paths, PATHS_BYTES + WORKER_PATH_MAX);
	return a;
}

static struct container_ask *ask_on(struct files_link *l, struct container_ask *a, bool is_new)
{
	a->on = l;
	TAILQ_INSERT_TAIL(&l->asks, a, link);
	if (is_new)
		link_request(l);
	else
		link_send(l);
	return a;
}

static struct container_ask *ask(
        struct container_client *c, const uint8_t key[SUP_KEY_LEN], struct container_ask *a)
{
	bool is_new = c->links == NULL || link_find(c, key) == NULL;

	return ask_on(link_get(c, key), a, is_new);
}

struct container_ask *container_ask_list(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        struct str after, uint32_t limit, container_files_fn fn, void *ctx)
{
	struct container_ask *a = ask_new(WORKER_LIST, sizeof(a->message.list), after, fn, ctx);

	a->limit = a->message.list.limit = limit;
	a->message.list.path_len = (uint32_t)after.n;
	return ask(c, key, a);
}

struct container_ask *container_ask_recent(struct container_client *c,
        const uint8_t key[SUP_KEY_LEN], uint64_t since_ns, uint32_t limit, uint32_t budget_us,
        container_files_fn fn, void *ctx)
{
	struct container_ask *a =
	        ask_new(WORKER_RECENT, sizeof(a->message.recent), (struct str){NULL, 0}, fn, ctx);

	a->limit = a->message.recent.limit = limit;
	a->message.recent.since_ns = since_ns;
	a->message.recent.budget_us = budget_us;
	return ask(c, key, a);
}

static struct container_ask *ask_path(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        enum worker_op op, struct str path, container_files_fn fn, void *ctx)
{
	struct container_ask *a = ask_new(op, sizeof(a->message.path), path, fn, ctx);

	a->message.path.path_len = (uint32_t)path.n;
	return ask(c, key, a);
}

struct container_ask *container_ask_stat(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        struct str path, container_files_fn fn, void *ctx)
{
	return ask_path(c, key, WORKER_STAT, path, fn, ctx);
}

struct container_ask *container_ask_open(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        struct str path, container_files_fn fn, void *ctx)
{
	return ask_path(c, key, WORKER_OPEN, path, fn, ctx);
}

struct container_ask *container_ask_delete(struct container_client *c,
        const uint8_t key[SUP_KEY_LEN], struct str path, container_files_fn fn, void *ctx)
{
	return ask_path(c, key, WORKER_DELETE, path, fn, ctx);
}

struct container_ask *container_ask_sync(struct container_client *c, const uint8_t key[SUP_KEY_LEN],
        container_files_fn fn, void *ctx)
{
	return ask(c, key,
	        ask_new(WORKER_SYNC, sizeof(struct worker_header), (struct str){NULL, 0}, fn, ctx));
}

struct container_ask *container_ask_create(struct container_client *c,
        const uint8_t key[SUP_KEY_LEN], uint64_t size, container_files_fn fn, void *ctx)
{
	struct container_ask *a =
	        ask_new(WORKER_CREATE, sizeof(a->message.create), (struct str){NULL, 0}, fn, ctx);

	a->message.create.size = size;
	return ask(c, key, a);
}

/* ---- uploads ---- */

static void upload_free(struct container_upload *u)
{
	if (u->on != NULL)
		LIST_REMOVE(u, link);
	free(u);
}

struct container_ask *container_upload_link(
        struct container_upload *u, struct str path, container_files_fn fn, void *ctx)
{
	struct files_link *l = u->on;
	struct container_ask *a = NULL;

	if (l != NULL) {
		a = ask_new(WORKER_LINK, sizeof(a->message.link), path, fn, ctx);
		a->message.link.handle = u->handle;
		a->message.link.path_len = (uint32_t)path.n;
		ask_on(l, a, false);
	}
	upload_free(u);
	return a;
}

struct container_upload *container_upload_drop(struct container_upload *u)
{
	if (u == NULL)
		return NULL;
	if (u->on != NULL)
		drop_send(u->on, u->handle);
	upload_free(u);
	return NULL;
}

/* ---- the end ---- */

void container_links_free(struct container_client *c)
{
	struct files_link *l;
	struct container_ask *a;

	if (c->links == NULL)
		return;
	while ((l = TAILQ_FIRST(&c->links->by_use)) != NULL) {
		while ((a = TAILQ_FIRST(&l->asks)) != NULL)
			ask_free(a);
		link_free(l);
	}
	free(c->links);
	c->links = NULL;
}
