/*
 * Rows of containers: which limits and variables a container becomes live with, and when it was
 * used last. The database may keep a caller waiting, so it is asked on the pool only: reads through
 * a handle of their own, that never stands behind a writer. A row is there before its container's
 * files are, so that the keeper finds all files, whatever dies in between.
 */
#include "gateway/internal.h"

#include "gateway/saving.h"
#include "network/policy.h"
#include "proto/egress.h"

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

/* ---- network ---- */

/* Both bound a request: the server's, and its key's where that has one. Egress takes one list, so a
 * name must lie within both, and is left out where it lies within one only. */
static void rules_of(const struct gateway *g, struct policy_rules *ret)
{
	const struct config_egress *e = &g->config->egress;

	*ret = (struct policy_rules){e->allow, e->n_allow, e->deny, e->n_deny, e->allow_private};
}

int row_policy_within(const struct gateway *g, const struct config_key *key, struct str network,
        const char *path, struct error *err)
{
	struct policy_rules rules,
	        own = {.allow = key->egress_allow, .n_allow = key->n_egress_allow};
	int r;

	rules_of(g, &rules);
	r = policy_within(network, &rules, path, err);
	return r < 0 ? r : policy_within(network, &own, path, err);
}

static int policy_write(const struct gateway *g, const struct config_key *key, struct str id,
        struct str network, struct buf *out, uint8_t hash[16], bool *any_address)
{
	struct policy_rules rules;
	char label[EGRESS_LABEL_MAX + 1];

	rules_of(g, &rules);
	str_format(
	        label, sizeof(label), "%s/%s/%.*s", key->account, key->workspace, (int)id.n, id.p);
	return policy_lines(network, &rules, str_of(label), out, hash, any_address);
}

void row_policy(const struct gateway *g, const struct config_key *key, struct str id,
        struct str network, uint8_t ret[16])
{
	_cleanup_buf_ struct buf lines = BUF_INIT(EGRESS_POLICY_MAX);
	bool any;

	memset(ret, 0, 16);
	if (network.n > 0 && policy_write(g, key, id, network, &lines, ret, &any) < 0)
		memset(ret, 0, 16);
}

static int spec_network(const struct gateway *g, const struct config_key *key,
        const struct store_container *row, struct container_spec *spec, struct error *err)
{
	_cleanup_buf_ struct buf lines = BUF_INIT(EGRESS_POLICY_MAX);
	struct str network = str_of(row->network);
	struct error e;

	if (network.n == 0)
		return 0;
	/* A key's bound may have become narrower than what the row was made with. */
	if (row_policy_within(g, key, network, "network_policy", &e) < 0)
		return error_set(err, ERR_PERMISSION,
		        "The container's network policy is no longer within what this server's "
		        "operator allows; give it another one.");
	if (policy_write(
	            g, key, str_of(row->id), network, &lines, spec->policy, &spec->any_address) < 0)
		return error_set(
		        err, ERR_INTERNAL, "the container's network policy cannot be read");
	spec->policy_lines = buf_steal(&lines, &spec->policy_len);
	return 0;
}

int row_spec(const struct gateway *g, const struct config_key *key,
        const struct store_container *row, struct container_spec *ret, struct error *err)
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
	return spec_network(g, key, row, ret, err);
}

/* ---- reading ---- */

struct row_job {
	struct gateway *g;
	const struct config_key *key;
	char id[STORE_ID_MAX + 1];
	row_fn then;
	void *ctx;
	char *network; /* NULL: not given */
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

/* The row is as the request wants it before the container becomes live. */
static void set_network(struct row_job *j)
{
	struct store_scope scope = row_scope(j->key);

	if (j->result < 0 || j->network == NULL ||
	        str_eq(str_of(j->network), str_of(j->row.network)))
		return;
	j->result = store_container_network(
	        j->g->store, &scope, str_of(j->id), str_of(j->network), &j->err);
	free(j->row.network);
	j->row.network = mem_strdup(j->network);
}

static void read_row(struct row_job *j)
{
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

static void read_work(void *arg)
{
	struct row_job *j = arg;

	read_row(j);
	set_network(j);
}

static void on_home(void *ctx, const struct error *err)
{
	struct row_job *j = ctx;

	j->then(j->ctx, &j->row, err);
	store_container_clear(&j->row);
	free(j->network);
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

bool row_read(struct gateway *g, const struct config_key *key, struct str id, const char *network,
        row_fn then, void *ctx)
{
	struct row_job *j = mem_alloc(sizeof(*j));

	*j = (struct row_job){.g = g, .key = key, .then = then, .ctx = ctx};
	j->network = mem_strdup(network);
	str_copy(j->id, sizeof(j->id), id);
	if (pool_run(g->pool, read_work, read_done, j))
		return true;
	free(j->network);
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
