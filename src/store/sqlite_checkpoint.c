/*
 * Moves what was committed from the WAL into the database, beside the writers.
 *
 * SQLite does that within the commit that makes the WAL too long, and waits for the disk twice
 * there: a request whose row it is takes milliseconds longer. So a thread with a connection of its
 * own does it, and commits only wake it. It never waits for a writer, nor a writer for it. Where it
 * cannot keep up, since readers hold it or the disk is slow, a commit does it after all, so that
 * the WAL has a bound.
 */
#include "store/sqlite.h"

#include "base/mem.h"

#include <stdlib.h>

#define WAKE_PAGES   4000  /* 16 MB */
#define INLINE_PAGES 16000 /* 64 MB */

struct sqlite_checkpoint {
	char *path;
	pthread_t thread;
	bool started; /* the thread is made when it is needed first */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool wanted, over; /* behind the lock */
};

static bool wait_for_work(struct sqlite_checkpoint *c)
{
	bool over;

	pthread_mutex_lock(&c->lock);
	while (!c->wanted && !c->over)
		pthread_cond_wait(&c->wake, &c->lock);
	c->wanted = false;
	over = c->over;
	pthread_mutex_unlock(&c->lock);
	return !over;
}

static void *run(void *arg)
{
	struct sqlite_checkpoint *c = arg;
	sqlite3 *db = NULL;

	/* Without a connection commits do it, at INLINE_PAGES. */
	if (sqlite3_open_v2(c->path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) ==
	        SQLITE_OK) {
		sqlite3_wal_autocheckpoint(db, 0);
		/* Only one that has read knows that there is a WAL. */
		sqlite3_exec(db, "PRAGMA schema_version", NULL, NULL, NULL);
		while (wait_for_work(c))
			sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	}
	sqlite3_close(db);
	return NULL;
}

static void wake(struct sqlite_checkpoint *c)
{
	if (!c->started)
		c->started = pthread_create(&c->thread, NULL, run, c) == 0;
	pthread_mutex_lock(&c->lock);
	c->wanted = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
}

/* Within a commit, so one at a time. */
static int on_commit(void *ctx, sqlite3 *db, const char *name, int pages)
{
	if (pages >= INLINE_PAGES)
		sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	else if (pages >= WAKE_PAGES)
		wake(ctx);
	return SQLITE_OK;
}

struct sqlite_checkpoint *sqlite_checkpoint_new(sqlite3 *db, const char *path)
{
	struct sqlite_checkpoint *c = mem_alloc(sizeof(*c));

	c->path = mem_strdup(path);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->wake, NULL);
	sqlite3_wal_hook(db, on_commit, c);
	return c;
}

struct sqlite_checkpoint *sqlite_checkpoint_free(struct sqlite_checkpoint *c)
{
	if (c == NULL)
		return NULL;
	pthread_mutex_lock(&c->lock);
	c->over = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
	if (c->started)
		pthread_join(c->thread, NULL);
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->lock);
	free(c->path);
	free(c);
	return NULL;
}
