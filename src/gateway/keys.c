/*
 * Theory of operation. A change bumps shared.version; every gateway looks at that a few times a
 * second, reads the store on the pool where it differs, and says by shared.seen how far it has
 * come. A gateway that dies in between is started with a fresh read. So a key works, and a revoked
 * one is refused, everywhere when the answer about it has been sent.
 *
 * A store's key becomes a struct config_key that nobody ever changes or frees while the gateway
 * runs, and a later read finds the same object again by its hash, unless the key was changed: then
 * a new one stands for it. What a revoked or changed key leaves behind is a few hundred bytes until
 * the gateway's end.
 */
#include "gateway/keys.h"

#include "gateway/internal.h"

#include "base/id.h"

#include <stdlib.h>

#define WAIT_STEP_MS 10
#define WAIT_MS      1000

struct stored {
	struct stored *next;
	struct config_key key;
};

struct waiter {
	struct waiter *next;
	uint64_t version, until_ms;
	void (*then)(void *ctx);
	void *ctx;
};

struct keys {
	struct gateway *g;
	struct stored *all;              /* that there ever were */
	const struct config_key **table; /* by hash, open addressing; those in force */
	size_t size;                     /* a power of two */
	struct store_workspace *quiet;   /* sorted: those that store no content */
	size_t n_quiet;
	struct event *look, *wait;
	struct waiter *waiters;
	/* Of the read that is under way, or was last. */
	bool reading;
	uint64_t version;
	struct store_key *rows;
	size_t n_rows;
	struct store_workspace *workspaces;
	size_t n_workspaces;
	struct error err;
};

/* ---- the table ---- */

static const struct config_key **place_of(
        const struct config_key **table, size_t size, const uint8_t hash[32])
{
	uint64_t at;

	memcpy(&at, hash, sizeof(at));
	for (;; at++) {
		const struct config_key **p = &table[at & (size - 1)];

		if (*p == NULL || memcmp((*p)->hash, hash, 32) == 0)
			return p;
	}
}

static const struct config_key *stored_find(const struct keys *k, const uint8_t hash[32])
{
	return k->table != NULL ? *place_of(k->table, k->size, hash) : NULL;
}

static bool hash_read(const char *hex, uint8_t hash[32])
{
	for (size_t i = 0; i < 32; i++) {
		int high = str_hex_digit(hex[2 * i]), low = str_hex_digit(hex[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		hash[i] = (uint8_t)(high * 16 + low);
	}
	return true;
}

static const struct config_key *key_make(
        struct keys *k, const struct store_key *row, const uint8_t hash[32])
{
	struct stored *s = mem_alloc(sizeof(*s));

	s->next = k->all;
	k->all = s;
	s->key = (struct config_key){
	        .account = mem_strdup(row->account),
	        .workspace = mem_strdup(row->workspace),
	        .name = mem_strdup(row->name),
	        .admin = row->admin,
	        .requests_per_minute = row->requests_per_minute,
	        .containers = row->containers,
	        .has_limit = row->has_limit,
	        .limit = {row->limit},
	        .limit_reset = (enum config_reset)(row->limit_reset & 3),
	        .expires_ms = row->expires_ms,
	        .disabled_tools = row->disabled_tools,
	};
	memcpy(s->key.hash, hash, 32);
	return &s->key;
}

/* Of what may change. */
static bool is_as_before(const struct config_key *key, const struct store_key *row)
{
	return strcmp(key->name, row->name) == 0 && key->expires_ms == row->expires_ms &&
	       key->requests_per_minute == row->requests_per_minute &&
	       key->containers == row->containers && key->has_limit == row->has_limit &&
	       key->limit.pico == row->limit && key->limit_reset == row->limit_reset &&
	       key->disabled_tools == row->disabled_tools;
}

/* What was read is what holds from now on. */
static void take(struct keys *k)
{
	const struct config_key **table;
	size_t size = 16;

	while (size < 2 * k->n_rows)
		size *= 2;
	table = mem_array(size, sizeof(const struct config_key *));
	for (size_t i = 0; i < k->n_rows; i++) {
		const struct config_key *key;
		uint8_t hash[32];

		if (!hash_read(k->rows[i].hash, hash))
			continue;
		key = stored_find(k, hash);
		if (key == NULL || !is_as_before(key, &k->rows[i]))
			key = key_make(k, &k->rows[i], hash);
		*place_of(table, size, hash) = key;
	}
	free(k->table);
	k->table = table;
	k->size = size;
	free(k->rows);
	k->rows = NULL;
	free(k->quiet);
	k->quiet = k->workspaces;
	k->n_quiet = 0;
	for (size_t i = 0; i < k->n_workspaces; i++)
		if (!k->workspaces[i].store_content)
			k->quiet[k->n_quiet++] = k->workspaces[i];
	k->workspaces = NULL;
	atomic_store(&k->g->shared->keys.seen[k->g->options->index], k->version);
}

/* ---- reading ---- */

static void read_work(void *arg)
{
	struct keys *k = arg;
	const struct str all = {NULL, 0};

	k->err.code = 0;
	/* Before the rows: what changes from now on is read again. */
	k->version = atomic_load(&k->g->shared->keys.version);
	if (store_key_list(k->g->reader, all, &k->rows, &k->n_rows, &k->err) < 0)
		return;
	if (store_workspace_list(k->g->reader, all, &k->workspaces, &k->n_workspaces, &k->err) <
	        0) {
		free(k->rows);
		k->rows = NULL;
	}
}

static void read_done(void *arg)
{
	struct keys *k = arg;

	k->reading = false;
	if (k->err.code == 0)
		take(k);
	else
		log_text(LOG_ERROR, "keys_failed", "%s", k->err.text);
}

static uint64_t seen_by(const struct keys *k, uint32_t index)
{
	return atomic_load(&k->g->shared->keys.seen[index]);
}

static void look(struct keys *k)
{
	if (k->reading ||
	        atomic_load(&k->g->shared->keys.version) == seen_by(k, k->g->options->index))
		return;
	k->reading = pool_run(k->g->pool, read_work, read_done, k);
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
	look(arg);
}

/* ---- waiting until all have seen it ---- */

static bool all_have(const struct keys *k, uint64_t version)
{
	for (uint32_t i = 0; i < k->g->options->workers; i++)
		if (seen_by(k, i) < version)
			return false;
	return true;
}

static void wait_on(struct keys *k)
{
	static const struct timeval step = {0, WAIT_STEP_MS * 1000};

	if (k->waiters != NULL)
		evtimer_add(k->wait, &step);
}

static void on_wait(evutil_socket_t fd, short what, void *arg)
{
	struct keys *k = arg;
	struct waiter *over = NULL, **p = &k->waiters;

	look(k);
	while (*p != NULL) {
		struct waiter *w = *p;

		if (!all_have(k, w->version) && clock_mono_ms() < w->until_ms) {
			p = &w->next;
			continue;
		}
		*p = w->next;
		w->next = over;
		over = w;
	}
	wait_on(k);
	while (over != NULL) {
		struct waiter *w = over;

		over = w->next;
		w->then(w->ctx);
		free(w);
	}
}

void keys_changed(struct gateway *g, void (*then)(void *ctx), void *ctx)
{
	struct keys *k = g->keys;
	struct waiter *w = mem_alloc(sizeof(*w));

	*w = (struct waiter){
	        .next = k->waiters,
	        .version = atomic_fetch_add(&g->shared->keys.version, 1) + 1,
	        .until_ms = clock_mono_ms() + WAIT_MS,
	        .then = then,
	        .ctx = ctx,
	};
	k->waiters = w;
	look(k);
	wait_on(k);
}

/* ---- asking ---- */

static const struct config_key *find(const struct gateway *g, const uint8_t hash[32])
{
	for (size_t i = 0; i < g->config->n_keys; i++) {
		struct str a = {(const char *)hash, 32};
		struct str b = {(const char *)g->config->keys[i].hash, 32};

		if (str_eq_secret(a, b))
			return &g->config->keys[i];
	}
	return stored_find(g->keys, hash);
}

const struct config_key *keys_find(const struct gateway *g, struct str text)
{
	uint8_t hash[32];

	if (text.n == 0 || text.n > 512)
		return NULL;
	id_sha256(text, hash);
	return find(g, hash);
}

bool keys_expired(const struct config_key *key)
{
	return key->expires_ms != 0 && clock_wall_ms() >= key->expires_ms;
}

const struct config_key *keys_now(const struct gateway *g, const struct config_key *key)
{
	const struct config_key *now = find(g, key->hash);

	return now == NULL || keys_expired(now) ? NULL : now;
}

static int compare(const void *a, const void *b)
{
	const struct store_workspace *x = a, *y = b;
	int r = strcmp(x->account, y->account);

	return r != 0 ? r : strcmp(x->name, y->name);
}

bool keys_keep_content(const struct gateway *g, const struct config_key *key)
{
	const struct keys *k = g->keys;
	struct store_workspace wanted = {.created_ms = 0};

	if (k->n_quiet == 0)
		return true;
	str_copy(wanted.account, sizeof(wanted.account), str_of(key->account));
	str_copy(wanted.name, sizeof(wanted.name), str_of(key->workspace));
	return bsearch(&wanted, k->quiet, k->n_quiet, sizeof(wanted), compare) == NULL;
}

/* ---- start and end ---- */

struct keys *keys_new(struct gateway *g, struct error *err)
{
	static const struct timeval every = {0, KEYS_LOOK_MS * 1000};
	struct keys *k = mem_alloc(sizeof(*k));

	k->g = g;
	k->look = event_new(g->base, -1, EV_PERSIST, on_look, k);
	k->wait = evtimer_new(g->base, on_wait, k);
	if (k->look == NULL || k->wait == NULL || event_add(k->look, &every) < 0) {
		error_set(err, ERR_NOMEM, "no memory for keys");
		return keys_free(k);
	}
	read_work(k);
	if (k->err.code != 0) {
		if (err != NULL)
			*err = k->err;
		return keys_free(k);
	}
	take(k);
	return k;
}

struct keys *keys_free(struct keys *k)
{
	if (k == NULL)
		return NULL;
	for (struct waiter *w = k->waiters, *next; w != NULL; w = next) {
		next = w->next;
		w->then(w->ctx);
		free(w);
	}
	for (struct stored *s = k->all, *next; s != NULL; s = next) {
		next = s->next;
		free(s->key.account);
		free(s->key.workspace);
		free(s->key.name);
		free(s);
	}
	free(k->table);
	free(k->rows);
	free(k->quiet);
	free(k->workspaces);
	if (k->look != NULL)
		event_free(k->look);
	if (k->wait != NULL)
		event_free(k->wait);
	free(k);
	return NULL;
}
