/*
 * Theory of operation
 *
 * One struct list for each provider. A round of pages is collected in a draft (an arena and an
 * array), which takes the place of the list when the last page is read; a round that fails leaves
 * what there was. Answers are read on the pool, since some have thousands of models. A few are
 * fetched at a time; the others wait in the array's order.
 *
 *     idle ──due──▶ queued ──room──▶ fetching ──answer──▶ reading ──last page──▶ idle
 *                                        ▲                   │
 *                                        └────── next page ──┘
 */
#include "gateway/lists.h"

#include "gateway/internal.h"

#include <stdlib.h>

#define WAIT_MS     3000
#define FETCH_MS    10000
#define FRESH_MS    ((uint64_t)600 * 1000) /* then it is asked for again */
#define FAILED_MS   ((uint64_t)60 * 1000)  /* the same where it did not come */
#define BODY_MAX    ((size_t)8 << 20)      /* of one page */
#define PAGES_MAX   20
#define MODELS_MAX  5000              /* of one provider; what is more is not looked at */
#define TEXTS_MAX   ((size_t)8 << 20) /* of one list's names */
#define FETCHES_MAX 8

enum list_state { LIST_IDLE, LIST_QUEUED, LIST_FETCHING, LIST_READING };

struct models {
	struct arena *texts;
	struct provider_model *of; /* sorted by id */
	size_t n, cap;
};

struct list {
	struct lists *all;
	const struct config_provider *p;
	enum list_state state;
	bool last;       /* the page that was read */
	bool asked;      /* a round has ended, well or not */
	uint64_t due_ms; /* of the next one */
	struct models models, draft;
	struct http_fetch *fetch;
	int status;
	struct buf body, after; /* after: which page is next; empty: the first */
	unsigned pages;
	struct error failed; /* of the page that was read; code 0: none */
};

struct waiter {
	struct waiter *next;
	lists_fn then;
	void *ctx;
};

struct lists {
	struct gateway *g;
	struct list *of;
	size_t n, fetching;
	struct waiter *waiters;
	struct event *patience; /* when the first who waits has waited enough */
	struct event *ended;    /* a round has: from the loop, since some end within their start */
	bool stopped;
};

static void models_free(struct models *m)
{
	arena_free(m->texts);
	free(m->of);
	*m = (struct models){0};
}

/* ---- who waits ---- */

static bool all_asked(const struct lists *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (!l->of[i].asked)
			return false;
	return true;
}

static void release(struct lists *l)
{
	struct waiter *w = l->waiters;

	l->waiters = NULL;
	evtimer_del(l->patience);
	while (w != NULL) {
		struct waiter *next = w->next;

		w->then(w->ctx);
		free(w);
		w = next;
	}
}

static void on_patience(evutil_socket_t fd, short what, void *arg)
{
	release(arg);
}

/* ---- rounds ---- */

static void round_end(struct list *list, const struct error *err)
{
	struct lists *l = list->all;

	if (err != NULL) {
		log_text(LOG_WARN, "model_list", "%s: %s", list->p->name, err->text);
	} else {
		models_free(&list->models);
		list->models = list->draft;
		list->draft = (struct models){0};
	}
	models_free(&list->draft);
	buf_free(&list->body);
	buf_free(&list->after);
	list->pages = 0;
	list->asked = true;
	list->state = LIST_IDLE;
	list->due_ms = clock_mono_ms() + (err != NULL ? FAILED_MS : FRESH_MS);
	l->fetching--;
	event_active(l->ended, EV_TIMEOUT, 0);
}

static void round_fail(struct list *list, const char *why)
{
	struct error e;

	error_set(&e, ERR_UPSTREAM, "%s", why);
	round_end(list, &e);
}

/* ---- reading, on the pool ---- */

static struct str keep_text(struct arena *a, struct str s)
{
	const char *kept = s.n > 0 ? arena_strndup(a, s.p, s.n) : NULL;

	return (struct str){kept, kept != NULL ? s.n : 0};
}

static void take_model(void *ctx, const struct provider_model *m)
{
	struct models *d = ctx;
	struct provider_model kept = *m;

	if (d->n == MODELS_MAX)
		return;
	kept.id = keep_text(d->texts, m->id);
	kept.name = m->name.n <= PROVIDER_MODEL_NAME ? keep_text(d->texts, m->name)
	                                             : (struct str){NULL, 0};
	if (kept.id.n == 0)
		return;
	mem_grow(&d->of, &d->cap, d->n, sizeof(*d->of));
	d->of[d->n++] = kept;
}

static int by_id(const void *a, const void *b)
{
	struct str x = ((const struct provider_model *)a)->id;
	struct str y = ((const struct provider_model *)b)->id;
	int c = memcmp(x.p, y.p, x.n < y.n ? x.n : y.n);

	return c != 0 ? c : (x.n > y.n) - (x.n < y.n);
}

static void sort(struct models *m)
{
	size_t n = 0;

	if (m->n > 0)
		qsort(m->of, m->n, sizeof(*m->of), by_id);
	for (size_t i = 0; i < m->n; i++)
		if (n == 0 || !str_eq(m->of[i].id, m->of[n - 1].id))
			m->of[n++] = m->of[i];
	m->n = n;
}

static void read_work(void *arg)
{
	struct list *list = arg;

	if (list->draft.texts == NULL)
		list->draft.texts = arena_new(TEXTS_MAX);
	list->failed.code = 0;
	if (provider_models_read(list->p->dialect, (struct str){list->body.data, list->body.len},
	            take_model, &list->draft, &list->after, &list->failed) < 0)
		return;
	list->pages++;
	list->last =
	        list->after.len == 0 || list->pages == PAGES_MAX || list->draft.n == MODELS_MAX;
	if (list->last)
		sort(&list->draft);
}

static void fetch_page(struct list *list);

static void read_done(void *arg)
{
	struct list *list = arg;

	if (list->failed.code != 0)
		round_end(list, &list->failed);
	else if (list->last)
		round_end(list, NULL);
	else if (list->all->stopped)
		round_fail(list, "the server ends");
	else
		fetch_page(list);
}

/* ---- fetching ---- */

static void on_head(void *ctx, struct http_fetch *f, int status)
{
	struct list *list = ctx;

	list->status = status;
}

static void on_data(void *ctx, struct http_fetch *f, const void *data, size_t n)
{
	struct list *list = ctx;

	if (buf_append(&list->body, data, n) < 0) {
		http_fetch_cancel(list->fetch);
		list->fetch = NULL;
		round_fail(list, "the list is too large");
	}
}

static void on_end(void *ctx, struct http_fetch *f, const struct error *err)
{
	struct list *list = ctx;
	char text[64];

	list->fetch = NULL;
	if (err != NULL) {
		round_end(list, err);
		return;
	}
	if (list->status != 200) {
		str_format(text, sizeof(text), "status %d", list->status);
		round_fail(list, text);
		return;
	}
	list->state = LIST_READING;
	buf_reset(&list->after);
	if (!pool_run(list->all->g->pool, read_work, read_done, list))
		round_fail(list, "the server has too much to do");
}

static void fetch_page(struct list *list)
{
	struct gateway *g = list->all->g;
	const struct http_fetch_handler h = {list, on_head, on_data, on_end};
	struct provider_request pr = {0};
	struct buf url = BUF_INIT(16384);
	struct error e;

	list->state = LIST_FETCHING;
	list->status = 0;
	buf_reset(&list->body);
	if (!provider_models_request(
	            list->p, (struct str){list->after.data, list->after.len}, &pr)) {
		round_fail(list, "it cannot be asked for");
		return;
	}
	buf_printf(&url, "%s%s", list->p->base_url, pr.path);
	const struct http_fetch_options o = {
	        .method = "GET",
	        .url = buf_cstr(&url),
	        .headers = (const char *const *)pr.headers,
	        .resolve_timeout_ms = FETCH_MS,
	        .connect_timeout_ms = FETCH_MS,
	        .first_byte_timeout_ms = FETCH_MS,
	        .idle_timeout_ms = FETCH_MS,
	};

	list->fetch = http_fetch_start(g->client, &o, &h, &e);
	provider_request_free(&pr);
	buf_free(&url);
	if (list->fetch == NULL)
		round_end(list, &e);
}

static void start_queued(struct lists *l)
{
	for (size_t i = 0; i < l->n && l->fetching < FETCHES_MAX && !l->stopped; i++) {
		if (l->of[i].state != LIST_QUEUED)
			continue;
		l->fetching++;
		buf_init(&l->of[i].body, BODY_MAX);
		buf_init(&l->of[i].after, 4096);
		fetch_page(&l->of[i]);
	}
}

static void on_round_end(evutil_socket_t fd, short what, void *arg)
{
	struct lists *l = arg;

	start_queued(l);
	if (l->waiters != NULL && all_asked(l))
		release(l);
}

static void ask_what_is_due(struct lists *l)
{
	uint64_t now = clock_mono_ms();

	for (size_t i = 0; i < l->n; i++)
		if (l->of[i].state == LIST_IDLE && now >= l->of[i].due_ms)
			l->of[i].state = LIST_QUEUED;
	start_queued(l);
}

/* ---- for others ---- */

struct lists *lists_new(struct gateway *g)
{
	struct lists *l = mem_alloc(sizeof(*l));
	const struct config *c = g->config;

	l->g = g;
	l->of = mem_array(c->n_providers + 1, sizeof(*l->of));
	for (size_t i = 0; i < c->n_providers; i++) {
		l->of[l->n] = (struct list){.all = l, .p = &c->providers[i]};
		l->n += c->providers[i].dialect != DIALECT_SCRIPT;
	}
	l->patience = evtimer_new(g->base, on_patience, l);
	l->ended = evtimer_new(g->base, on_round_end, l);
	if (l->patience == NULL || l->ended == NULL)
		BUG("no memory for a timer");
	return l;
}

void lists_stop(struct lists *l)
{
	if (l == NULL)
		return;
	l->stopped = true;
	for (size_t i = 0; i < l->n; i++) {
		if (l->of[i].fetch != NULL)
			http_fetch_cancel(l->of[i].fetch);
		l->of[i].fetch = NULL;
	}
}

struct lists *lists_free(struct lists *l)
{
	struct waiter *w;

	if (l == NULL)
		return NULL;
	for (size_t i = 0; i < l->n; i++) {
		models_free(&l->of[i].models);
		models_free(&l->of[i].draft);
		buf_free(&l->of[i].body);
		buf_free(&l->of[i].after);
	}
	while ((w = l->waiters) != NULL) {
		l->waiters = w->next;
		free(w);
	}
	event_free(l->patience);
	event_free(l->ended);
	free(l->of);
	free(l);
	return NULL;
}

bool lists_wait(struct lists *l, lists_fn then, void *ctx)
{
	const struct timeval most = {WAIT_MS / 1000, WAIT_MS % 1000 * 1000};
	struct waiter *w;

	if (l->stopped)
		return false;
	ask_what_is_due(l);
	if (all_asked(l))
		return false;
	if (l->waiters == NULL)
		evtimer_add(l->patience, &most);
	w = mem_alloc(sizeof(*w));
	*w = (struct waiter){l->waiters, then, ctx};
	l->waiters = w;
	return true;
}

void lists_forget(struct lists *l, void *ctx)
{
	for (struct waiter **at = &l->waiters; *at != NULL;) {
		struct waiter *w = *at;

		if (w->ctx == ctx) {
			*at = w->next;
			free(w);
		} else {
			at = &w->next;
		}
	}
}

static const struct models *models_of(const struct lists *l, const struct config_provider *p)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->of[i].p == p)
			return &l->of[i].models;
	return NULL;
}

const struct provider_model *lists_find(
        const struct lists *l, const struct config_provider *p, struct str model)
{
	const struct models *m = models_of(l, p);
	const struct provider_model key = {.id = model};

	if (m == NULL || m->n == 0 || model.n == 0)
		return NULL;
	return bsearch(&key, m->of, m->n, sizeof(*m->of), by_id);
}

const struct provider_model *lists_all(
        const struct lists *l, const struct config_provider *p, size_t *ret_n)
{
	const struct models *m = models_of(l, p);

	*ret_n = m != NULL ? m->n : 0;
	return m != NULL ? m->of : NULL;
}
