/*
 * Theory of operation: two queues under one mutex. Threads take from `waiting`, work, and put on
 * `finished`; the first entry on an empty `finished` writes the eventfd, which the loop reads, so a
 * burst of results costs one wake-up. done() runs without the mutex and may queue more. The threads
 * block every signal: signals belong to the loop's thread.
 */
#include "http/pool.h"

#include "base/error.h"
#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

enum { POOL_QUEUED_MAX = 4096 };

struct job {
	STAILQ_ENTRY(job) link;
	pool_fn work, done;
	void *arg;
};
STAILQ_HEAD(job_list, job);

struct pool {
	pthread_mutex_t lock;
	pthread_cond_t some; /* work waits, or the end has come */
	struct job_list waiting, finished;
	size_t n_waiting;
	bool ending;
	int wake; /* eventfd */
	struct event *event;
	unsigned n_threads;
	pthread_t threads[];
};

static void *pool_thread(void *arg)
{
	struct pool *p = arg;
	struct job *job;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		while (!p->ending && STAILQ_EMPTY(&p->waiting))
			pthread_cond_wait(&p->some, &p->lock);
		job = STAILQ_FIRST(&p->waiting);
		if (!job)
			break;
		STAILQ_REMOVE_HEAD(&p->waiting, link);
		p->n_waiting--;
		pthread_mutex_unlock(&p->lock);
		job->work(job->arg);
		pthread_mutex_lock(&p->lock);
		if (STAILQ_EMPTY(&p->finished) && eventfd_write(p->wake, 1))
			BUG("eventfd: %s", strerror(errno));
		STAILQ_INSERT_TAIL(&p->finished, job, link);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void pool_finish(struct pool *p)
{
	struct job_list list = STAILQ_HEAD_INITIALIZER(list);
	struct job *job;

	pthread_mutex_lock(&p->lock);
	STAILQ_CONCAT(&list, &p->finished);
	pthread_mutex_unlock(&p->lock);
	while ((job = STAILQ_FIRST(&list))) {
		STAILQ_REMOVE_HEAD(&list, link);
		if (job->done)
			job->done(job->arg);
		free(job);
	}
}

static void pool_on_wake(evutil_socket_t fd, short what, void *arg)
{
	eventfd_t n;

	(void)what;
	if (eventfd_read(fd, &n) == 0)
		pool_finish(arg);
}

struct pool *pool_new(struct event_base *base, unsigned n_threads)
{
	struct pool *p;
	sigset_t all, before;
	unsigned i;
	int r;

	if (n_threads == 0)
		BUG("a pool without threads");
	p = mem_alloc(sizeof(*p) + n_threads * sizeof(p->threads[0]));
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->some, NULL);
	STAILQ_INIT(&p->waiting);
	STAILQ_INIT(&p->finished);
	p->n_threads = n_threads;
	p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->wake < 0)
		BUG("eventfd: %s", strerror(errno));
	p->event = event_new(base, p->wake, EV_READ | EV_PERSIST, pool_on_wake, p);
	if (!p->event || event_add(p->event, NULL))
		BUG("no event for the pool");
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (i = 0; i < n_threads; i++) {
		r = pthread_create(&p->threads[i], NULL, pool_thread, p);
		if (r)
			BUG("no thread for the pool: %s", strerror(r));
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return p;
}

void pool_stop(struct pool *p)
{
	if (!p || p->ending)
		return;
	pthread_mutex_lock(&p->lock);
	p->ending = true;
	pthread_cond_broadcast(&p->some);
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < p->n_threads; i++)
		pthread_join(p->threads[i], NULL);
	pool_finish(p);
}

struct pool *pool_free(struct pool *p)
{
	if (!p)
		return NULL;
	pool_stop(p);
	event_free(p->event);
	close(p->wake);
	pthread_cond_destroy(&p->some);
	pthread_mutex_destroy(&p->lock);
	free(p);
	return NULL;
}

bool pool_run(struct pool *p, pool_fn work, pool_fn done, void *arg)
{
	struct job *job = mem_alloc(sizeof(*job));
	bool room;

	job->work = work;
	job->done = done;
	job->arg = arg;
	pthread_mutex_lock(&p->lock);
	room = p->n_waiting < POOL_QUEUED_MAX && !p->ending;
	if (room) {
		STAILQ_INSERT_TAIL(&p->waiting, job, link);
		p->n_waiting++;
	}
	pthread_mutex_unlock(&p->lock);
	/* Not under the mutex, or the thread that it wakes would have to wait for that. */
	if (room)
		pthread_cond_signal(&p->some);
	else
		free(job);
	return room;
}

size_t pool_queued(struct pool *p)
{
	size_t n;

	pthread_mutex_lock(&p->lock);
	n = p->n_waiting;
	pthread_mutex_unlock(&p->lock);
	return n;
}
