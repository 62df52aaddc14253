/*
 * The files that a tool call made or changed, for the call's item (spec/openrouter.md 2.1).
 *
 * Theory of operation: the model never sees them, so its next request need not wait for them. When
 * a call's commands have ended the worker is asked, and the turn goes on; only what the client is
 * shown stands still, from the end of this call on, until the answer is there. Effects come in
 * order, so the end of the call is kept aside, those that show nothing are performed, and the first
 * that shows something waits in the turn's queue. Meanwhile the upstream's reply is not read, as
 * for a client that is slow. What takes longer than WAIT_MS is left out.
 */
#include "gateway/turn_run.h"

#include "container/files.h"

#include <stdlib.h>
#include <time.h>

#define WAIT_MS   1000
#define BUDGET_US 150000 /* of the worker's search: about 50,000 files */

struct run_files_list {
	struct run_files_list *next;
	size_t n;
	struct result_file files[WORKER_RECENT_MAX];
	uint64_t ctime_ns[WORKER_RECENT_MAX];
	char bytes[]; /* of the paths */
};

/* The clock that stamps files. */
void run_files_begin(struct turn_run *t)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	t->files.since_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void stop_asking(struct turn_run *t)
{
	container_ask_cancel(t->files.ask);
	t->files.ask = NULL;
	if (t->files.timer != NULL)
		evtimer_del(t->files.timer);
}

/* The stamps of files are coarse: one that the call before made in the very tick in which this one
 * began was told of then, and has not changed since. */
static bool is_told(const struct turn_run *t, const struct container_file *f)
{
	for (const struct run_files_list *l = t->files.lists; l != NULL; l = l->next)
		for (size_t i = 0; i < l->n; i++)
			if (l->ctime_ns[i] == f->ctime_ns && str_eq(l->files[i].path, f->path))
				return true;
	return false;
}

static void list_keep(struct turn_run *t, const struct container_files_result *r)
{
	struct result *result = &t->files.result->result;
	size_t n = r->n_files < WORKER_RECENT_MAX ? r->n_files : WORKER_RECENT_MAX, bytes = 0;
	struct run_files_list *l, *before = t->files.lists;

	for (size_t i = 0; i < n; i++)
		bytes += r->files[i].path.n;
	l = mem_alloc(sizeof(*l) + bytes);
	l->next = before;
	bytes = 0;
	for (size_t i = 0; i < n; i++) {
		struct str path = r->files[i].path;

		if (is_told(t, &r->files[i]))
			continue;
		memcpy(l->bytes + bytes, path.p, path.n);
		l->files[l->n].path = (struct str){l->bytes + bytes, path.n};
		l->ctime_ns[l->n++] = r->files[i].ctime_ns;
		bytes += path.n;
	}
	t->files.lists = l;
	result->files = l->files;
	result->n_files = l->n;
}

static void on_recent(void *ctx, const struct container_files_result *r, const struct error *err)
{
	struct turn_run *t = ctx;

	t->files.ask = NULL;
	stop_asking(t);
	if (err != NULL)
		log_text(LOG_WARN, "recent_files_failed", "%s", err->text);
	else if (r->n_files > 0)
		list_keep(t, r);
	turn_run_go_on(t);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct turn_run *t = arg;

	stop_asking(t);
	log_text(LOG_WARN, "recent_files_late", "container %s", t->request.container_id);
	turn_run_go_on(t);
}

void run_files_ask(struct turn_run *t, struct item *call)
{
	const struct timeval wait = {WAIT_MS / 1000, WAIT_MS % 1000 * 1000};
	uint8_t key[SUP_KEY_LEN];

	if (t->x == NULL || call->call.result == NULL)
		return;
	if (t->files.timer == NULL)
		t->files.timer = evtimer_new(t->g->base, on_timer, t);
	if (t->files.timer == NULL || evtimer_add(t->files.timer, &wait) < 0)
		BUG("no memory for a timer");
	row_key(t->key, str_of(t->request.container_id), key);
	t->files.result = call->call.result;
	t->files.ask = container_ask_recent(t->g->containers, key, t->files.since_ns,
	        WORKER_RECENT_MAX, BUDGET_US, on_recent, t);
}

bool run_files_next_effect(struct turn_run *t, struct turn_effect *ret)
{
	struct run_files *f = &t->files;
	enum turn_effect_type type;

	if (t->x == NULL)
		stop_asking(t); /* nobody is shown anything */
	if (f->holds && f->ask == NULL) {
		f->holds = false;
		*ret = f->end;
		return true;
	}
	if (!f->holds) {
		if (!turn_next_effect(t->turn, ret))
			return false;
		if (f->ask == NULL || ret->type != EFFECT_EMIT ||
		        ret->output.type != OUT_TOOL_END || ret->output.result != f->result)
			return true;
		f->holds = true;
		f->end = *ret;
	}
	if (!turn_peek_effect(t->turn, &type) || type == EFFECT_EMIT || type == EFFECT_DONE)
		return false;
	return turn_next_effect(t->turn, ret);
}

void run_files_free(struct turn_run *t)
{
	struct run_files_list *l;

	stop_asking(t);
	while ((l = t->files.lists) != NULL) {
		t->files.lists = l->next;
		free(l);
	}
	if (t->files.timer != NULL)
		event_free(t->files.timer);
}
