/*
 * Rows of containers: which limits and variables a container becomes live with, and when it was
 * used last. The database may keep a caller waiting, so it is asked on the pool only: reads through
 * a handle of their own, that never stands behind a writer. A row is there before its container's
 * files are, so that the keeper finds all files, whatever dies in between.
 */
#include "gateway/internal.h"

#include "gateway/saving.h"

#include <stdlib.h>

#define TOUCH_MS 3600000

struct store_scope row_scope(const struct config_key *key)
{
	return (struct store_scope){str_of(key->account), str_of(key->workspace)};
}

void row_default(const struct gateway *g, struct str id, struct store_container *row)
{
	const struct config_container *c = &g->config->container;

	*row = (struct store_container){.memory_mib = c->memory_mib, .cpu_milli = c->cpu_milli};
	str_copy(row->id, sizeof(row->id), id);
	str_copy(row->name, sizeof(row->name), id);
	str_copy(row->image, sizeof(row->image), str_of(c->image));
	row->created_ms = row->last_used_ms = clock_wall_ms();
}

void row_key(const struct config_key *key, struct str id, uint8_t ret[SUP_KEY_LEN])
{
	uint8_t workspace[16];

	container_key(str_of(key->account), str_of(key->workspace), id, ret, workspace);
}

void row_spec(const struct gateway *g, const struct config_key *key,
        const struct store_container *row, struct container_spec *ret)
{
	struct str id = str_of(row->id);
	int64_t keep = row->keep_until_ms - clock_wall_ms();

	*ret = (struct container_spec){
	        .memory_mib = row->memory_mib,
	        .cpu_milli = row->cpu_milli,
	        .processes = g->config->container.processes,
	        .workspace_live = g->config->limits.workspace_live,
	        .wait_ms = (uint32_t)g->config->limits.capacity_wait_ms,
	        .keep_ms = keep > 0 ? (uint64_t)keep : 0,
	};
	container_key(str_of(key->account), str_of(key->workspace), id, ret->key, ret->workspace);
	container_hostname(id, ret->hostname);
}

/* ---- reading ---- */

struct row_job {
	struct gateway *g;
	const struct config_key *key;
	char id[STORE_ID_MAX + 1];
	row_fn then;
	void *ctx;
	struct store_container row;
	int result;
	struct error err;
};

/* A long turn must not outlast the time after which its container is deleted. */
static bool is_stale(const struct store_container *row)
{
	int64_t most = row->expires_ms > 0 ? row->expires_ms / 4 : TOUCH_MS;

	return clock_wall_ms() - row->last_used_ms > (most < TOUCH_MS ? most : TOUCH_MS);
}

static void read_work(void *arg)
{
	struct row_job *j = arg;
	struct store_scope scope = row_scope(j->key);

	j->result = store_container_get(j->g->reader, &scope, str_of(j->id), &j->row, &j->err);
	if (j->result == 0 && !j->row.deleting) {
		if (is_stale(&j->row))
			j->result = row_touch(j->g, j->key, str_of(j->id), &j->err);
		return;
	}
	if (j->result == 0 || j->result == -ERR_NOT_FOUND) {
		store_container_clear(&j->row);
		row_default(j->g, str_of(j->id), &j->row);
		j->result = row_touch(j->g, j->key, str_of(j->id), &j->err);
	}
}

static void on_home(void *ctx, const struct error *err)
{
	struct row_job *j = ctx;

	j->then(j->ctx, &j->row, err);
	store_container_clear(&j->row);
	free(j);
}

static void read_done(void *arg)
{
	struct row_job *j = arg;
	uint8_t key[SUP_KEY_LEN];

	if (j->result < 0)
		log_text(LOG_ERROR, "store_failed", "%s", j->err.text);
	if (j->result < 0 || j->g->saving == NULL) {
		on_home(j, j->result < 0 ? &j->err : NULL);
		return;
	}
	row_key(j->key, str_of(j->id), key);
	saving_prepare(j->g->saving, key, on_home, j);
}

bool row_read(
        struct gateway *g, const struct config_key *key, struct str id, row_fn then, void *ctx)
{
	struct row_job *j = mem_alloc(sizeof(*j));

	*j = (struct row_job){.g = g, .key = key, .then = then, .ctx = ctx};
	str_copy(j->id, sizeof(j->id), id);
	if (pool_run(g->pool, read_work, read_done, j))
		return true;
	free(j);
	return false;
}

/* ---- writing ---- */

int row_touch(struct gateway *g, const struct config_key *key, struct str id, struct error *err)
{
	struct store_scope scope = row_scope(key);
	struct store_container fresh;
	int r;

	row_default(g, id, &fresh);
	r = store_container_touch(g->store, &scope, id, clock_wall_ms(), &fresh, err);
	return r < 0 ? r : 0;
}

static void touch_work(void *arg)
{
	struct row_job *j = arg;

	if (row_touch(j->g, j->key, str_of(j->id), &j->err) < 0)
		log_text(LOG_ERROR, "store_failed", "%s", j->err.text);
}

void row_touch_later(struct gateway *g, const struct config_key *key, struct str id)
{
	struct row_job *j = mem_alloc(sizeof(*j));

	*j = (struct row_job){.g = g, .key = key};
	str_copy(j->id, sizeof(j->id), id);
	if (!pool_run(g->pool, touch_work, free, j))
		free(j);
}
