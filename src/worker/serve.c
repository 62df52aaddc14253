/*
 * Theory of operation.
 *
 * Each gateway's socket is a struct conn. A request that takes one step is carried out when it is
 * read, and leaves one or two answers; a walk becomes a struct job and goes on in slices of a few
 * milliseconds, one after the other, while the sockets are looked at in between. Nothing waits for
 * a gateway: answers that its socket does not take yet stay with the conn, few of them, and while
 * there are any nothing more is read from it and none of its walks goes on. So what a conn can hold
 * is bounded, and so is the number of walks; requests beyond wait in the socket.
 */
#include "worker/serve.h"

#include "init/sys.h"
#include "packet/packet.h"
#include "worker/home.h"
#include "worker/request.h"
#include "worker/walk.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_CONNS       64
#define MAX_JOBS        16
#define MAX_JOBS_EACH   4
#define MAX_ANSWERS     3 /* waiting, of one conn */
#define REQUESTS_A_TURN 16
#define SLICE_NS        2000000
#define WALK_LIMIT_NS                                                                              \
	(120ULL * 1000000000) /* a guest that makes names faster than we read them                 \
	                       */
#define RETRY_IDLE_MS 1000

union answer_head {
	struct worker_header h;
	struct worker_entry entry;
	struct worker_handle created;
	struct worker_done done;
	struct worker_failed failed;
};

struct answer {
	union answer_head head;
	char *path; /* NULL: none */
	size_t path_len;
	int fd; /* -1: none */
};

struct open_file {
	uint64_t handle;
	int fd;
};

struct conn {
	int fd; /* -1: free */
	uint32_t events, n_jobs, n_answers, n_files;
	bool broken;
	struct answer answers[MAX_ANSWERS];
	struct open_file files[WORKER_HANDLES_MAX];
};

struct recent {
	struct stat st;
	char *path;
	size_t len;
};

struct job {
	bool used;
	struct conn *conn;
	struct walk *walk;
	uint32_t op, seq, limit;
	uint32_t done; /* entries sent */
	uint32_t flags;
	uint64_t end_ns;   /* of the time that it has */
	uint64_t since_ns; /* RECENT, and the latest found, the newest first */
	bool telling;
	uint32_t n_recent;
	struct recent recent[WORKER_RECENT_MAX];
};

static struct {
	int epoll, control;
	uint32_t taken; /* sockets */
	uint64_t idle_ns, last_ns, told_ns;
	uint64_t last_handle;
	uint32_t next_job;
	struct conn conns[MAX_CONNS];
	struct job jobs[MAX_JOBS];
} serving;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- answers ---- */

static void answer_free(struct answer *a)
{
	free(a->path);
	if (a->fd >= 0)
		close(a->fd);
	*a = (struct answer){.fd = -1};
}

/* Sends what waits, as far as the socket takes it. */
static void conn_flush(struct conn *c)
{
	while (c->n_answers > 0 && !c->broken) {
		struct answer *a = &c->answers[0];
		int rc = packet_send(c->fd, &a->head, a->head.h.size, a->path, a->path_len, &a->fd,
		        a->fd >= 0 ? 1 : 0);

		if (rc == -EAGAIN)
			return;
		if (rc < 0)
			c->broken = true;
		answer_free(a);
		memmove(a, a + 1, (--c->n_answers) * sizeof *a);
		c->answers[c->n_answers] = (struct answer){.fd = -1};
	}
}

/* Takes the descriptor, copies the path. */
static void conn_answer(
        struct conn *c, const union answer_head *head, const char *path, size_t path_len, int fd)
{
	struct answer *a = &c->answers[c->n_answers];

	*a = (struct answer){.head = *head, .path_len = path_len, .fd = fd};
	if (path_len > 0 && !(a->path = malloc(path_len)))
		c->broken = true;
	else if (path_len > 0)
		memcpy(a->path, path, path_len);
	c->n_answers++;
	conn_flush(c);
}

static void answer_done(struct conn *c, uint32_t seq, uint32_t flags)
{
	union answer_head head = {
	        .done = {.h = {WORKER_DONE, sizeof head.done, seq}, .flags = flags}};

	conn_answer(c, &head, NULL, 0, -1);
}

static void answer_failed(struct conn *c, uint32_t seq, int errnum, const char *step)
{
	union answer_head head = {.failed = {.h = {WORKER_FAILED, sizeof head.failed, seq},
	                                  .errnum = (uint32_t)errnum}};
	size_t n = strlen(step);

	memcpy(head.failed.step, step,
	        n < sizeof head.failed.step ? n : sizeof head.failed.step - 1);
	conn_answer(c, &head, NULL, 0, -1);
}

static uint64_t wall_ns(const struct timespec *t)
{
	return t->tv_sec < 0 ? 0 : (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec;
}

static void answer_entry(struct conn *c, uint32_t seq, const struct stat *st, const char *path,
        size_t path_len, int fd)
{
	union answer_head head = {.entry = {
	                                  .h = {WORKER_ENTRY, sizeof head.entry, seq},
	                                  .size = (uint64_t)st->st_size,
	                                  .inode = st->st_ino,
	                                  .mtime_ns = wall_ns(&st->st_mtim),
	                                  .ctime_ns = wall_ns(&st->st_ctim),
	                                  .mode = st->st_mode & 07777,
	                                  .path_len = (uint32_t)path_len,
	                          }};

	conn_answer(c, &head, path, path_len, fd);
}

/* ---- sockets ---- */

static void job_end(struct job *j)
{
	for (uint32_t i = 0; i < j->n_recent; i++)
		free(j->recent[i].path);
	walk_free(j->walk);
	j->conn->n_jobs--;
	*j = (struct job){0};
}

static void conn_close(struct conn *c)
{
	for (int i = 0; i < MAX_JOBS; i++)
		if (serving.jobs[i].used && serving.jobs[i].conn == c)
			job_end(&serving.jobs[i]);
	for (uint32_t i = 0; i < c->n_answers; i++)
		answer_free(&c->answers[i]);
	for (uint32_t i = 0; i < c->n_files; i++)
		close(c->files[i].fd);
	close(c->fd);
	*c = (struct conn){.fd = -1};
}

static void conn_open(int fd)
{
	int i = 0;
	struct epoll_event e = {.events = EPOLLIN};

	while (i < MAX_CONNS && serving.conns[i].fd >= 0)
		i++;
	e.data.u32 = (uint32_t)i;
	if (i == MAX_CONNS || epoll_ctl(serving.epoll, EPOLL_CTL_ADD, fd, &e) < 0) {
		close(fd);
		return;
	}
	serving.conns[i] = (struct conn){.fd = fd, .events = EPOLLIN};
	for (int k = 0; k < MAX_ANSWERS; k++)
		serving.conns[i].answers[k].fd = -1;
}

static bool conn_may_read(const struct conn *c)
{
	uint32_t jobs = 0;

	for (int i = 0; i < MAX_JOBS; i++)
		jobs += serving.jobs[i].used;
	return c->n_answers == 0 && c->n_jobs < MAX_JOBS_EACH && jobs < MAX_JOBS;
}

/* Closes what broke, and waits on each socket for what can be used now. */
static void conns_settle(void)
{
	for (uint32_t i = 0; i < MAX_CONNS; i++) {
		struct conn *c = &serving.conns[i];
		struct epoll_event e = {.data.u32 = i};

		if (c->fd >= 0 && c->broken)
			conn_close(c);
		if (c->fd < 0)
			continue;
		e.events = (conn_may_read(c) ? EPOLLIN : 0) | (c->n_answers ? EPOLLOUT : 0);
		if (e.events == c->events)
			continue;
		c->events = e.events;
		epoll_ctl(serving.epoll, EPOLL_CTL_MOD, c->fd, &e);
	}
}

/* ---- requests ---- */

static void start_walk(struct conn *c, const struct request *r)
{
	int i = 0;
	uint64_t now = now_ns();

	while (serving.jobs[i].used)
		i++;
	serving.jobs[i] = (struct job){
	        .used = true,
	        .conn = c,
	        .op = r->op,
	        .seq = r->seq,
	        .limit = r->limit,
	        .since_ns = r->since_ns,
	        .end_ns = now + (r->op == WORKER_RECENT ? r->budget_us * 1000ULL : WALK_LIMIT_NS),
	        .walk = walk_new(r->path, r->path_len),
	};
	c->n_jobs++;
	if (serving.jobs[i].walk)
		return;
	job_end(&serving.jobs[i]);
	answer_failed(c, r->seq, ENOMEM, "memory");
}

static void do_stat(struct conn *c, const struct request *r)
{
	struct stat st;
	const char *step;
	int rc = r->op == WORKER_OPEN ? home_read(r->path, &st, &step)
	                              : home_stat(r->path, &st, &step);

	if (rc < 0) {
		answer_failed(c, r->seq, -rc, step);
		return;
	}
	answer_entry(c, r->seq, &st, r->path, r->path_len, r->op == WORKER_OPEN ? rc : -1);
	answer_done(c, r->seq, 0);
}

static void do_create(struct conn *c, const struct request *r)
{
	union answer_head head = {.created = {.h = {WORKER_CREATED, sizeof head.created, r->seq}}};
	const char *step = "handles of this socket";
	int fd = c->n_files == WORKER_HANDLES_MAX ? -EMFILE : home_create(r->size, &step);
	int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy < 0) {
		answer_failed(c, r->seq, fd < 0 ? -fd : errno, step);
		if (fd >= 0)
			close(fd);
		return;
	}
	head.created.handle = ++serving.last_handle;
	c->files[c->n_files++] = (struct open_file){serving.last_handle, fd};
	conn_answer(c, &head, NULL, 0, copy);
}

/* The file of a handle, which is no more; -1: there is none. */
static int take_file(struct conn *c, uint64_t handle)
{
	for (uint32_t i = 0; i < c->n_files; i++) {
		int fd = c->files[i].fd;

		if (c->files[i].handle != handle)
			continue;
		c->files[i] = c->files[--c->n_files];
		return fd;
	}
	return -1;
}

static void do_link(struct conn *c, const struct request *r)
{
	struct stat st;
	const char *step = "path";
	int fd = take_file(c, r->handle);
	int rc;

	if (fd < 0)
		rc = -EBADF, step = "no such handle";
	else if (!r->path_sound)
		rc = -EINVAL;
	else
		rc = home_link(fd, r->path, r->flags & WORKER_LINK_NEW, &st, &step);
	if (fd >= 0)
		close(fd);
	if (rc < 0) {
		answer_failed(c, r->seq, -rc, step);
		return;
	}
	answer_entry(c, r->seq, &st, r->path, r->path_len, -1);
	answer_done(c, r->seq, 0);
}

static void do_drop(struct conn *c, const struct request *r)
{
	int fd = take_file(c, r->handle);

	if (fd < 0) {
		answer_failed(c, r->seq, EBADF, "no such handle");
		return;
	}
	close(fd);
	answer_done(c, r->seq, 0);
}

static void do_simple(struct conn *c, const struct request *r)
{
	const char *step;
	int rc = r->op == WORKER_DELETE ? home_delete(r->path, &step) : home_sync(&step);

	if (rc < 0)
		answer_failed(c, r->seq, -rc, step);
	else
		answer_done(c, r->seq, 0);
}

static void request(struct conn *c, const struct request *r)
{
	serving.last_ns = now_ns();
	if (!r->path_sound && r->op != WORKER_LINK) {
		answer_failed(c, r->seq, EINVAL, "path");
		return;
	}
	switch ((enum worker_op)r->op) {
	case WORKER_LIST:
	case WORKER_RECENT:
		start_walk(c, r);
		break;
	case WORKER_STAT:
	case WORKER_OPEN:
		do_stat(c, r);
		break;
	case WORKER_CREATE:
		do_create(c, r);
		break;
	case WORKER_LINK:
		do_link(c, r);
		break;
	case WORKER_DROP:
		do_drop(c, r);
		break;
	case WORKER_DELETE:
	case WORKER_SYNC:
		do_simple(c, r);
		break;
	case WORKER_SAVE:
	case WORKER_RESTORE:
	case WORKER_ENTRY:
	case WORKER_CREATED:
	case WORKER_DONE:
	case WORKER_FAILED:
		break; /* not let through by request_parse */
	}
}

static void conn_read(struct conn *c)
{
	static char bytes[REQUEST_MAX];
	static struct request r;

	for (int i = 0; i < REQUESTS_A_TURN && !c->broken && conn_may_read(c); i++) {
		struct packet p;
		int rc = packet_receive(c->fd, MSG_DONTWAIT, bytes, sizeof bytes, 0, &p);

		if (rc == -EAGAIN)
			return;
		if (rc <= 0 || p.lost || p.len > sizeof bytes || !request_parse(bytes, p.len, &r))
			c->broken = true;
		else
			request(c, &r);
	}
}

/* ---- walks ---- */

/* Keeps it if it is among the latest. */
static bool recent_add(struct job *j, const struct stat *st, const char *path, size_t len)
{
	uint64_t when = wall_ns(&st->st_ctim);
	uint32_t at = j->n_recent;
	char *copy;

	while (at > 0 && wall_ns(&j->recent[at - 1].st.st_ctim) < when)
		at--;
	if (when < j->since_ns || at == j->limit)
		return true;
	copy = malloc(len);
	if (!copy)
		return false;
	memcpy(copy, path, len);
	if (j->n_recent == j->limit)
		free(j->recent[--j->n_recent].path);
	memmove(&j->recent[at + 1], &j->recent[at], (j->n_recent - at) * sizeof j->recent[0]);
	j->recent[at] = (struct recent){*st, copy, len};
	j->n_recent++;
	return true;
}

static void job_fail(struct job *j, int errnum, const char *step)
{
	answer_failed(j->conn, j->seq, errnum, step);
	job_end(j);
}

static void job_done(struct job *j, uint32_t flags)
{
	answer_done(j->conn, j->seq, flags);
	job_end(j);
}

static void tell_recent(struct job *j)
{
	struct recent *r = &j->recent[j->done];

	if (j->done < j->n_recent) {
		answer_entry(j->conn, j->seq, &r->st, r->path, r->len, -1);
		j->done++;
	} else {
		job_done(j, j->flags);
	}
}

static void job_found(struct job *j, const struct stat *st, const char *path, size_t len)
{
	if (j->op == WORKER_RECENT) {
		if (!recent_add(j, st, path, len))
			job_fail(j, ENOMEM, "memory");
		return;
	}
	if (j->done == j->limit) {
		job_done(j, WORKER_MORE);
		return;
	}
	answer_entry(j->conn, j->seq, st, path, len, -1);
	j->done++;
}

static void job_step(struct job *j, uint64_t now)
{
	struct stat st;
	const char *path;
	size_t len;
	/* One more than it tells, to say whether there are more. */
	uint32_t wanted = j->op == WORKER_LIST ? j->limit - j->done + 1 : UINT32_MAX;

	if (j->telling) {
		tell_recent(j);
		return;
	}
	if (now >= j->end_ns) {
		j->telling = j->op == WORKER_RECENT;
		j->flags = WORKER_PARTIAL;
		if (!j->telling)
			job_fail(j, ETIMEDOUT, "list");
		return;
	}
	switch (walk_step(j->walk, wanted, &st, &path, &len)) {
	case WALK_FILE:
		job_found(j, &st, path, len);
		break;
	case WALK_AGAIN:
		break;
	case WALK_END:
		j->telling = j->op == WORKER_RECENT;
		if (!j->telling)
			job_done(j, 0);
		break;
	case WALK_NO_MEMORY:
		job_fail(j, ENOMEM, "memory");
		break;
	}
}

static bool job_can_go(const struct job *j)
{
	return j->used && j->conn->n_answers == 0 && !j->conn->broken;
}

static bool jobs_can_go(void)
{
	for (int i = 0; i < MAX_JOBS; i++)
		if (job_can_go(&serving.jobs[i]))
			return true;
	return false;
}

/* A slice of the next walk that can go on, in turn. */
static void jobs_run(void)
{
	uint64_t now = now_ns(), end = now + SLICE_NS;

	for (int i = 0; i < MAX_JOBS; i++) {
		struct job *j = &serving.jobs[serving.next_job++ % MAX_JOBS];
		uint32_t seq = j->seq;

		if (!job_can_go(j))
			continue;
		for (; now < end && job_can_go(j) && j->seq == seq; now = now_ns())
			job_step(j, now);
		serving.last_ns = now;
		return;
	}
}

/* ---- the loop ---- */

static void control_ready(void)
{
	struct worker_socket m;
	struct packet p;
	int rc = packet_receive(serving.control, MSG_DONTWAIT, &m, sizeof m, 1, &p);

	if (rc == -EAGAIN)
		return;
	if (rc <= 0 || p.len != sizeof m || p.n_fds != 1)
		_exit(rc == 0 ? 0 : 1);
	serving.taken = m.number;
	serving.idle_ns = (m.idle_ms ? m.idle_ms : WORKER_IDLE_MS) * 1000000ULL;
	serving.last_ns = now_ns();
	conn_open(p.fds[0]);
}

/* How long to wait, in ms; says that there is nothing to do when it is time. */
static int idle_wait(void)
{
	struct worker_idle m = {.taken = serving.taken};
	uint64_t now = now_ns(), due = serving.last_ns + serving.idle_ns;

	if (jobs_can_go())
		return 0;
	if (due > now)
		return (int)((due - now) / 1000000 + 1);
	if (serving.taken && now >= serving.told_ns + RETRY_IDLE_MS * 1000000ULL) {
		serving.told_ns = now;
		(void)packet_send(serving.control, &m, sizeof m, NULL, 0, NULL, 0);
	}
	return RETRY_IDLE_MS;
}

static void dispatch(const struct epoll_event *e)
{
	struct conn *c;

	if (e->data.u32 == MAX_CONNS) {
		control_ready();
		return;
	}
	c = &serving.conns[e->data.u32];
	if (c->fd < 0)
		return;
	if (e->events & (EPOLLHUP | EPOLLERR)) {
		c->broken = true;
		return;
	}
	conn_flush(c);
	if (e->events & EPOLLIN)
		conn_read(c);
}

_Noreturn void serve(int control)
{
	struct epoll_event events[16], e = {.events = EPOLLIN, .data.u32 = MAX_CONNS};

	for (int i = 0; i < MAX_CONNS; i++)
		serving.conns[i].fd = -1;
	serving.control = control;
	serving.idle_ns = WORKER_IDLE_MS * 1000000ULL;
	serving.last_ns = now_ns();
	serving.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (serving.epoll < 0 || epoll_ctl(serving.epoll, EPOLL_CTL_ADD, control, &e) < 0)
		_exit(1);
	for (;;) {
		int n;

		conns_settle();
		n = epoll_wait(serving.epoll, events, 16, idle_wait());
		for (int i = 0; i < n; i++)
			dispatch(&events[i]);
		jobs_run();
	}
}
