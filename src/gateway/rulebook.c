/*
 * Theory of operation
 *
 * The store numbers the changes over all workspaces, and keeps for each workspace the number of its
 * last one. Every POLL_MS a thread of the pool asks for those after the last that it saw; the
 * workspaces in the answer have an entry from then on, and what was compiled for it holds no more.
 * Who comes next reads it again and compiles what has changed, while others of that workspace wait;
 * all others go on. Requests that run have a reference to the set that they began with.
 *
 * Workspaces that never had anything in the store have no entry: their sets are made of brig.yaml
 * alone, when the gateway starts.
 *
 * At most SETS_MAX sets with stored rules are kept; the one that was used longest ago makes room.
 */
#include "gateway/rulebook.h"

#include <pthread.h>
#include <stdlib.h>

#define POLL_MS  250
#define SETS_MAX 64
#define CHANGES  1000 /* read at once */

struct entry {
	char *account, *workspace;
	int64_t version;     /* of its last change that is known of */
	struct ruleset *set; /* NULL: none is kept */
	bool stale;          /* the set is that of an earlier version: nobody gets it any more */
	bool reading;
	uint64_t used;
};

struct fixed {
	const char *workspace; /* NULL: those with no rules of their own */
	struct ruleset *set;
};

struct rulebook {
	struct gateway *g;
	struct fixed *fixed; /* the last one is everybody's */
	size_t n_fixed;
	struct event *poll;
	bool polling;    /* the loop's */
	bool failing;    /* the loop's: that was told */
	int poll_result; /* the pool's, while polling */
	struct error poll_error;
	pthread_mutex_t asking; /* who asks for changes; seen is its holder's */
	int64_t seen;
	pthread_mutex_t lock;   /* of what follows */
	pthread_cond_t ready;   /* an entry is not being read any more */
	struct entry **entries; /* by account, then workspace */
	size_t n, cap, n_sets;
	uint64_t clock;
};

/* ---- entries: all for the holder of the lock ---- */

static int entry_compare(const struct entry *e, struct str account, struct str workspace)
{
	struct str a[2] = {str_of(e->account), str_of(e->workspace)}, b[2] = {account, workspace};

	for (int i = 0; i < 2; i++) {
		size_t n = a[i].n < b[i].n ? a[i].n : b[i].n;
		int c = memcmp(a[i].p, b[i].p, n);

		if (c != 0 || a[i].n != b[i].n)
			return c != 0 ? c : a[i].n < b[i].n ? -1 : 1;
	}
	return 0;
}

/* The place of the entry, or where it would be; *ret_found says which. */
static size_t entry_place(
        const struct rulebook *b, struct str account, struct str workspace, bool *ret_found)
{
	size_t low = 0, high = b->n;

	*ret_found = false;
	while (low < high && !*ret_found) {
		size_t middle = low + (high - low) / 2;
		int c = entry_compare(b->entries[middle], account, workspace);

		if (c < 0) {
			low = middle + 1;
		} else {
			high = middle;
			*ret_found = c == 0;
		}
	}
	return *ret_found ? high : low;
}

static struct entry *entry_find(const struct rulebook *b, struct str account, struct str workspace)
{
	bool found;
	size_t at = entry_place(b, account, workspace, &found);

	return found ? b->entries[at] : NULL;
}

static bool entry_ready(const struct entry *e)
{
	return e->set != NULL && !e->stale;
}

static void entry_drop(struct rulebook *b, struct entry *e)
{
	if (e->set == NULL)
		return;
	e->set = ruleset_unref(e->set);
	b->n_sets--;
}

static void entry_changed(struct rulebook *b, const struct store_guardrail_change *c)
{
	bool found;
	size_t at = entry_place(b, str_of(c->account), str_of(c->workspace), &found);
	struct entry *e;

	if (!found) {
		e = mem_alloc(sizeof(*e));
		e->account = mem_strdup(c->account);
		e->workspace = mem_strdup(c->workspace);
		mem_grow(&b->entries, &b->cap, b->n, sizeof(struct entry *));
		memmove(b->entries + at + 1, b->entries + at, (b->n - at) * sizeof(struct entry *));
		b->entries[at] = e;
		b->n++;
	}
	e = b->entries[at];
	if (c->version <= e->version)
		return;
	e->version = c->version;
	e->stale = true;
}

static void entry_keep(struct rulebook *b, struct entry *e, struct ruleset *set)
{
	struct entry *oldest = NULL;

	for (size_t i = 0; b->n_sets >= SETS_MAX && i < b->n; i++)
		if (b->entries[i]->set != NULL &&
		        (oldest == NULL || b->entries[i]->used < oldest->used))
			oldest = b->entries[i];
	if (oldest != NULL)
		entry_drop(b, oldest);
	entry_drop(b, e);
	e->set = ruleset_ref(set);
	e->stale = false;
	e->used = ++b->clock;
	b->n_sets++;
}

/* ---- asking ---- */

static struct ruleset *fixed_for(const struct rulebook *b, struct str workspace)
{
	for (size_t i = 0; i + 1 < b->n_fixed; i++)
		if (str_is(workspace, b->fixed[i].workspace))
			return b->fixed[i].set;
	return b->fixed[b->n_fixed - 1].set;
}

struct rules *rulebook_peek(struct rulebook *b, const struct config_key *key)
{
	struct rules *r = NULL;
	struct entry *e;

	pthread_mutex_lock(&b->lock);
	e = entry_find(b, str_of(key->account), str_of(key->workspace));
	if (e == NULL) {
		r = ruleset_rules(fixed_for(b, str_of(key->workspace)), key->hash);
	} else if (entry_ready(e)) {
		e->used = ++b->clock;
		r = ruleset_rules(e->set, key->hash);
	}
	pthread_mutex_unlock(&b->lock);
	return r;
}

/* Reads and compiles, without the lock. before: the entry's, or NULL. */
static int entry_read(struct rulebook *b, const struct entry *e, const struct ruleset *before,
        struct ruleset **ret, int64_t *ret_version, struct error *err)
{
	const struct store_scope scope = {str_of(e->account), str_of(e->workspace)};
	struct store_guardrails_all all = {0};
	int r = store_guardrails_load(b->g->reader, &scope, &all, err);

	if (r < 0)
		return r;
	*ret_version = all.version;
	*ret = ruleset_new(b->g->config, e->workspace, &all, before);
	return 0;
}

/* The set of a workspace, with a reference. On the pool. */
static int set_get(struct rulebook *b, const struct store_scope *scope, struct ruleset **ret,
        struct error *err)
{
	struct ruleset *set = NULL, *before;
	struct entry *e;
	int64_t version = 0;
	int r = 0;

	pthread_mutex_lock(&b->lock);
	e = entry_find(b, scope->account, scope->workspace);
	while (e != NULL && !entry_ready(e) && e->reading)
		pthread_cond_wait(&b->ready, &b->lock);
	if (e == NULL || entry_ready(e)) {
		set = ruleset_ref(e != NULL ? e->set : fixed_for(b, scope->workspace));
	} else {
		e->reading = true;
		before = e->set != NULL ? ruleset_ref(e->set) : NULL;
		pthread_mutex_unlock(&b->lock);
		r = entry_read(b, e, before, &set, &version, err);
		ruleset_unref(before);
		pthread_mutex_lock(&b->lock);
		e->reading = false;
		/* One that was changed meanwhile serves who began before, and nobody else. */
		if (r == 0 && version >= e->version)
			entry_keep(b, e, set);
		pthread_cond_broadcast(&b->ready);
	}
	pthread_mutex_unlock(&b->lock);
	if (r == 0)
		*ret = set;
	return r;
}

int rulebook_rules(
        struct rulebook *b, const struct config_key *key, struct rules **ret, struct error *err)
{
	const struct store_scope scope = row_scope(key);
	struct ruleset *set = NULL;
	int r = set_get(b, &scope, &set, err);

	if (r < 0)
		return r;
	*ret = ruleset_rules(set, key->hash);
	ruleset_unref(set);
	return 0;
}

/* ---- changes ---- */

static int ask(struct rulebook *b, struct error *err)
{
	struct store_guardrail_change *changes;
	size_t n = CHANGES;
	int r = 0;

	pthread_mutex_lock(&b->asking);
	while (r == 0 && n == CHANGES) {
		r = store_guardrail_changes(b->g->reader, b->seen, CHANGES, &changes, &n, err);
		if (r < 0)
			break;
		pthread_mutex_lock(&b->lock);
		for (size_t i = 0; i < n; i++)
			entry_changed(b, &changes[i]);
		pthread_mutex_unlock(&b->lock);
		if (n > 0)
			b->seen = changes[n - 1].version;
		store_guardrail_changes_free(changes, n);
	}
	pthread_mutex_unlock(&b->asking);
	return r;
}

int rulebook_refresh(struct rulebook *b, const struct store_scope *changed, struct error *err)
{
	struct ruleset *set = NULL;
	int r = ask(b, err);

	if (r == 0 && changed != NULL)
		r = set_get(b, changed, &set, err);
	ruleset_unref(set);
	return r;
}

static void poll_work(void *arg)
{
	struct rulebook *b = arg;

	b->poll_result = ask(b, &b->poll_error);
}

static void poll_done(void *arg)
{
	struct rulebook *b = arg;

	b->polling = false;
	if (b->poll_result < 0 && !b->failing)
		LOG(LOG_ERROR, "guardrails_unread", LOG_S("error", b->poll_error.text));
	b->failing = b->poll_result < 0;
}

static void on_poll(evutil_socket_t fd, short what, void *arg)
{
	struct rulebook *b = arg;

	if (!b->polling)
		b->polling = pool_run(b->g->pool, poll_work, poll_done, b);
}

/* ---- life ---- */

static int compile_fixed(struct rulebook *b, struct error *err)
{
	const struct config *c = b->g->config;

	b->fixed = mem_array(c->n_guardrails + 1, sizeof(*b->fixed));
	for (size_t i = 0; i <= c->n_guardrails; i++) {
		const char *workspace = i < c->n_guardrails ? c->guardrails[i].workspace : NULL;
		bool known = i < c->n_guardrails && workspace == NULL;
		struct fixed *f = &b->fixed[b->n_fixed];

		for (size_t k = 0; k < b->n_fixed && !known; k++)
			known = workspace != NULL &&
			        str_is(str_of(workspace), b->fixed[k].workspace);
		if (known)
			continue;
		*f = (struct fixed){workspace, ruleset_new(c, workspace, NULL, NULL)};
		b->n_fixed++;
		if (ruleset_error(f->set) != NULL) {
			*err = *ruleset_error(f->set);
			return -(int)err->code;
		}
	}
	return 0;
}

struct rulebook *rulebook_new(struct gateway *g, struct error *err)
{
	const struct timeval every = {.tv_usec = POLL_MS * 1000};
	struct rulebook *b = mem_alloc(sizeof(*b));

	b->g = g;
	pthread_mutex_init(&b->asking, NULL);
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->ready, NULL);
	if (compile_fixed(b, err) < 0 || ask(b, err) < 0)
		return rulebook_free(b);
	b->poll = event_new(g->base, -1, EV_PERSIST, on_poll, b);
	if (b->poll == NULL || event_add(b->poll, &every) < 0) {
		error_set(err, ERR_NOMEM, "no timer for guardrails");
		return rulebook_free(b);
	}
	return b;
}

struct rulebook *rulebook_free(struct rulebook *b)
{
	if (b == NULL)
		return NULL;
	if (b->poll != NULL)
		event_free(b->poll);
	for (size_t i = 0; i < b->n_fixed; i++)
		ruleset_unref(b->fixed[i].set);
	for (size_t i = 0; i < b->n; i++) {
		ruleset_unref(b->entries[i]->set);
		free(b->entries[i]->account);
		free(b->entries[i]->workspace);
		free(b->entries[i]);
	}
	pthread_mutex_destroy(&b->asking);
	pthread_mutex_destroy(&b->lock);
	pthread_cond_destroy(&b->ready);
	free(b->entries);
	free(b->fixed);
	free(b);
	return NULL;
}

void rulebook_fixed(
        const struct rulebook *b, struct str workspace, size_t *ret_rules, size_t *ret_phrases)
{
	const struct config *c = b->g->config;

	*ret_rules = *ret_phrases = 0;
	for (size_t i = 0; i < c->n_guardrails; i++) {
		const struct config_guardrail *g = &c->guardrails[i];

		if (g->workspace != NULL && !str_is(workspace, g->workspace))
			continue;
		*ret_rules += g->n_rules;
		*ret_phrases += g->n_allow;
	}
}
