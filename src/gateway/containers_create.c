/* See containers.h. */
#include "gateway/containers.h"

#include "base/id.h"
#include "base/utf8.h"
#include "gateway/documents.h"
#include "gateway/fields.h"
#include "gateway/keeping.h"
#include "gateway/network.h"
#include "gateway/saving.h"
#include "network/policy.h"

#include <stdlib.h>

#define KEEP_MAX_S (31 * 24 * 3600)

/* What is asked for, on its way through store and supervisor. */
struct wanted {
	struct store_container row; /* what is wanted; then what there is */
	bool explicit_limits, explicit_keep;
	int64_t keep_until_ms; /* as asked for */
	int64_t was_until_ms;  /* the row's before that */
	char *network;         /* the policy that is asked for; NULL: not given */
	bool new_network;      /* the row that was there has another */
	char (*file_ids)[STORE_ID_MAX + 2];
	size_t n_file_ids;
	struct documents_attach *attach;
};

static void wanted_clear(void *own)
{
	struct wanted *n = own;

	store_container_clear(&n->row);
	documents_attach_free(n->attach);
	free(n->network);
	free(n->file_ids);
}

static void key_of(const struct job *j, uint8_t key[SUP_KEY_LEN])
{
	const struct wanted *n = j->own;

	row_key(j->key, str_of(n->row.id), key);
}

/* ---- keep_running ---- */

static void on_keeping(void *ctx, const struct error *err)
{
	struct job *j = ctx;
	const struct wanted *n = j->own;

	if (err != NULL)
		job_fail(j, err);
	else
		containers_answer(j, &n->row);
}

/* One that is not live is kept from its next use on: its row says so. */
static void on_kept(void *ctx, const struct container_status *s, const struct error *err)
{
	struct job *j = ctx;
	const struct wanted *n = j->own;

	if (err != NULL)
		on_keeping(j, NULL);
	else
		keeping_ordered(j->g, j->key, n->row.id, n->row.keep_until_ms > 0, n->was_until_ms,
		        on_keeping, j);
}

static void created(struct job *j)
{
	const struct wanted *n = j->own;
	int64_t keep = n->row.keep_until_ms - clock_wall_ms();
	uint8_t key[SUP_KEY_LEN];

	key_of(j, key);
	if (n->explicit_keep)
		container_order_keep(
		        j->g->containers, key, keep > 0 ? (uint64_t)keep : 0, on_kept, j);
	else
		containers_answer(j, &n->row);
}

/* ---- file_ids ---- */

/* Before there is a row: a request with a bad one makes nothing. */
static int find_files(struct job *j)
{
	struct wanted *n = j->own;
	struct str ids[DOCUMENTS_ATTACH_MAX];

	for (size_t i = 0; i < n->n_file_ids; i++)
		ids[i] = str_of(n->file_ids[i]);
	return n->n_file_ids == 0 ? 0
	                          : documents_attach_find(j->g, j->key, ids, n->n_file_ids,
	                                    "file_ids", &n->attach, &j->err);
}

static void on_saved(void *ctx, const struct error *err)
{
	if (err != NULL)
		job_fail(ctx, err);
	else
		created(ctx);
}

static void on_attached(void *ctx, const struct error *err)
{
	struct job *j = ctx;
	uint8_t key[SUP_KEY_LEN];

	if (err != NULL || j->g->saving == NULL) {
		on_saved(j, err);
		return;
	}
	key_of(j, key);
	saving_wrote(j->g->saving, key, on_saved, j);
}

static void on_home(void *ctx, const struct error *err)
{
	struct job *j = ctx;
	struct wanted *n = j->own;
	uint8_t key[SUP_KEY_LEN];

	if (err != NULL) {
		job_fail(j, err);
		return;
	}
	key_of(j, key);
	documents_attach_copy(n->attach, key, on_attached, j);
}

static void attach(struct job *j)
{
	uint8_t key[SUP_KEY_LEN];

	key_of(j, key);
	if (j->g->saving == NULL)
		on_home(j, NULL);
	else
		saving_prepare(j->g->saving, key, on_home, j);
}

/* ---- the row ---- */

/* keep_running, of a request that names a container which is there already. */
static int keep(struct job *j)
{
	struct wanted *n = j->own;

	if (!n->explicit_keep)
		return 0;
	n->was_until_ms = n->row.keep_until_ms;
	n->row.keep_until_ms = n->keep_until_ms;
	return store_container_keep(
	        j->g->store, &j->scope, str_of(n->row.id), n->keep_until_ms, &j->err);
}

static int create_row(struct job *j)
{
	struct wanted *n = j->own;
	struct store_container got = {0};
	int r = find_files(j);

	if (r < 0)
		return r;
	r = store_container_create(j->g->store, &j->scope, &n->row, &got, &j->err);
	if (r == 0 && n->explicit_limits &&
	        (got.memory_mib != n->row.memory_mib || got.cpu_milli != n->row.cpu_milli ||
	                strcmp(got.image, n->row.image) != 0)) {
		store_container_clear(&got);
		return error_set(&j->err, ERR_CONFLICT,
		        "There is a container of this name with another image, memory or number of "
		        "CPUs.");
	}
	if (r < 0)
		return r;
	n->keep_until_ms = n->row.keep_until_ms;
	n->new_network = n->network != NULL && !str_eq(str_of(n->network), str_of(got.network));
	store_container_clear(&n->row);
	n->row = got;
	/* With another policy, only once that is known to apply. */
	return r == 0 && !n->new_network ? keep(j) : r;
}

static void explain(struct job *j)
{
	if (j->result == -ERR_NOT_FOUND)
		error_set(&j->err, ERR_NOT_FOUND, "There is no container of this id.");
}

static void create_work(struct job *j)
{
	j->result = create_row(j);
	explain(j);
}

static void create_done(struct job *j);

static void network_work(struct job *j)
{
	struct wanted *n = j->own;

	j->result = store_container_network(
	        j->g->store, &j->scope, str_of(n->row.id), str_of(n->network), &j->err);
	explain(j);
	if (j->result < 0)
		return;
	free(n->row.network);
	n->row.network = steal(n->network);
	n->new_network = false;
	j->result = keep(j);
	explain(j);
}

/* One that is live has its policy until it sleeps; else the new one is the row's. */
static void on_network_status(void *ctx, const struct container_status *s, const struct error *err)
{
	struct job *j = ctx;
	const struct wanted *n = j->own;
	uint8_t policy[16];
	struct error e;

	row_policy(j->g, j->key, str_of(n->row.id), str_of(n->network), policy);
	if (s != NULL && (s->state == SUP_ST_RUNNING || s->state == SUP_ST_FROZEN) &&
	        memcmp(policy, s->policy, sizeof(policy)) != 0) {
		error_param(&e, ERR_CONFLICT, "network_policy",
		        "The container is live with another network policy; a new one applies once "
		        "it is asleep.");
		job_fail(j, &e);
		return;
	}
	job_again(j, network_work, create_done);
}

static void create_done(struct job *j)
{
	const struct wanted *n = j->own;
	uint8_t key[SUP_KEY_LEN];

	key_of(j, key);
	if (j->result < 0)
		job_answer(j);
	else if (n->new_network)
		container_ask_status(j->g->containers, key, on_network_status, j);
	else if (n->attach != NULL)
		attach(j);
	else
		created(j);
}

/* ---- reading the request ---- */

/* Refuses an environment when a container is made rather than at every command. */
static void check_env(struct fields *f, const struct json *env)
{
	struct str vars[ENV_ROW_MAX];
	struct arena *a = arena_new((size_t)1 << 20);
	struct error err;
	size_t n = 0;

	if (env != NULL && env_read(env, a, vars, &n, &err) < 0)
		fields_fail(f, "env", "%s", err.text);
	arena_free(a);
}

static const char *const create_fields[] = {"name", "image", "memory", "memory_limit", "cpus",
        "network_policy", "env", "file_ids", "keep_running", "metadata", "expires_after", NULL};

/* "512m", "4g": one of those that the server allows. */
static void read_memory(struct fields *f, const char *name, const struct config *c, uint32_t *mib)
{
	struct str s = {NULL, 0};
	uint64_t n = 0;

	fields_str(f, name, 16, &s);
	if (s.p == NULL)
		return;
	char unit = s.n > 1 ? s.p[s.n - 1] : 0;

	if ((unit != 'm' && unit != 'g') || !str_to_u64((struct str){s.p, s.n - 1}, &n) || n == 0 ||
	        n > 1048576) {
		fields_fail(f, name, "%s must be a size like 512m or 4g.", name);
		return;
	}
	n = unit == 'g' ? n * 1024 : n;
	for (size_t i = 0; i < c->container.n_memory_allowed; i++)
		if (c->container.memory_allowed_mib[i] == n) {
			*mib = (uint32_t)n;
			return;
		}
	fields_fail(f, name,
	        "This server does not allow a container this much memory; see "
	        "container.memory_allowed in its configuration.");
}

static void read_files(struct fields *f, struct wanted *n)
{
	const struct json *list = fields_strings(f, "file_ids", DOCUMENTS_ATTACH_MAX);

	if (json_count(list) == 0)
		return;
	n->file_ids = mem_array(json_count(list), sizeof(*n->file_ids));
	for (const struct json *v = json_first(list); v != NULL; v = json_next(v)) {
		struct str id = json_str(v);

		/* One that is cut is none that there is. */
		str_copy(n->file_ids[n->n_file_ids++], sizeof(*n->file_ids), id);
	}
}

/* true: a day; else a number of seconds. */
static void read_keep(struct fields *f, struct wanted *n)
{
	const struct json *v = json_get(f->root, "keep_running");
	int64_t seconds = 24 * 3600;
	bool on = true;

	if (json_absent(v))
		return;
	if (json_is(v, JSON_TRUE) || json_is(v, JSON_FALSE))
		on = json_is(v, JSON_TRUE);
	else if (!json_i64(v, &seconds) || seconds < 0 || seconds > KEEP_MAX_S)
		fields_fail(f, "keep_running",
		        "keep_running must be true, false, or a number of seconds up to %d.",
		        KEEP_MAX_S);
	n->row.keep_until_ms = on && seconds > 0 ? clock_wall_ms() + seconds * 1000 : 0;
	n->explicit_keep = true;
}

/* {anchor: last_active_at, minutes}, as the vendor's API has it. */
static void read_expiry(struct fields *f, const struct config *c, struct store_container *row)
{
	const struct json *v = json_get(f->root, "expires_after");
	int64_t most = (int64_t)c->container.keep_days * 24 * 60, minutes = 0;

	if (json_absent(v))
		return;
	if (!json_is(v, JSON_OBJECT) || !str_is(json_str(json_get(v, "anchor")), "last_active_at"))
		fields_fail(f, "expires_after",
		        "expires_after must be an object with the anchor "
		        "last_active_at and a number of minutes.");
	else if (!json_i64(json_get(v, "minutes"), &minutes) || minutes < 1 || minutes > most)
		fields_fail(f, "expires_after.minutes",
		        "expires_after.minutes must be a whole number from 1 to %lld.",
		        (long long)most);
	row->expires_ms = minutes * 60000;
}

static void read_policy(struct fields *f, struct job *j)
{
	struct wanted *n = j->own;
	const struct json *v = json_get(f->root, "network_policy");
	_cleanup_buf_ struct buf text = BUF_INIT(POLICY_TEXT_MAX);
	struct error e;

	if (json_absent(v))
		return;
	if (policy_check(v, "network_policy", &text, &e) < 0 ||
	        row_policy_within(j->g, j->key, (struct str){text.data, text.len}, "network_policy",
	                &e) < 0) {
		fields_fail(f, e.param, "%s", e.text);
		return;
	}
	policy_warnings(str_of(buf_cstr(&text)), network_log_warning, NULL);
	n->network = mem_strdup(buf_cstr(&text));
	n->row.network = text.len > 0 ? mem_strdup(n->network) : NULL;
}

static void read_name(struct fields *f, struct store_container *row)
{
	struct str name = {NULL, 0};

	fields_str(f, "name", STORE_NAME_MAX, &name);
	if (api_container_id_valid(name))
		str_copy(row->id, sizeof(row->id), name);
	else
		id_make(row->id, sizeof(row->id), "cntr_", 24);
	str_copy(row->name, sizeof(row->name), name.n > 0 ? name : str_of(row->id));
}

static char *raw_copy(const struct json *v)
{
	struct str raw = json_raw(v);

	return v == NULL ? NULL : mem_strndup(raw.p, raw.n);
}

static void read_cpus(struct fields *f, const struct config *c, uint32_t *milli)
{
	const struct json *v = json_get(f->root, "cpus");
	double d;

	if (json_absent(v))
		return;
	if (!json_double(v, &d) || d < 0.05 || d * 1000 > c->container.cpu_milli)
		fields_fail(f, "cpus",
		        "cpus must be a number from 0.05 to %u.%03u, this server's limit.",
		        c->container.cpu_milli / 1000, c->container.cpu_milli % 1000);
	else
		*milli = (uint32_t)(d * 1000 + 0.5);
}

/* As the vendor's API bounds them, so that a row and a list of rows stay small. */
static const struct json *read_metadata(struct fields *f)
{
	const struct json *metadata = fields_map(f, "metadata", 16);

	for (const struct json *v = json_first(metadata); v != NULL; v = json_next(v)) {
		struct str key = json_key(v), value = json_str(v);

		if (utf8_count(key.p, key.n) > 64 || utf8_count(value.p, value.n) > 512)
			fields_fail(f, "metadata",
			        "A key of metadata has at most 64 characters, a value 512.");
	}
	return metadata;
}

static void create_from(struct request *r, struct fields *f)
{
	const struct config *c = r->g->config;
	struct job *j = job_new(r, create_work, sizeof(struct wanted));
	struct wanted *n = j->own;
	struct str image = {NULL, 0};

	j->after = create_done;
	j->clear = wanted_clear;
	row_default(r->g, (struct str){NULL, 0}, &n->row);
	read_name(f, &n->row);
	read_files(f, n);
	if (n->n_file_ids > 0 && r->g->options->sup_fd < 0)
		fields_fail(f, "file_ids",
		        "This server runs without sandboxes: it cannot copy files into one.");
	read_keep(f, n);
	read_expiry(f, c, &n->row);
	read_policy(f, j);
	read_memory(f, "memory", c, &n->row.memory_mib);
	read_memory(f, "memory_limit", c, &n->row.memory_mib);
	read_cpus(f, c, &n->row.cpu_milli);
	fields_str(f, "image", 64, &image);
	if (image.p != NULL && !str_is(image, c->container.image))
		fields_fail(f, "image", "There is no such image on this server.");
	const struct json *env = fields_map(f, "env", ENV_ROW_MAX);

	check_env(f, env);
	n->row.env = raw_copy(env);
	n->row.metadata = raw_copy(read_metadata(f));
	n->explicit_limits = json_get(f->root, "memory") != NULL ||
	                     json_get(f->root, "memory_limit") != NULL ||
	                     json_get(f->root, "cpus") != NULL || image.p != NULL;
	if (f->failed)
		job_fail(j, &f->error);
	else
		job_go(j);
}

void containers_create(struct request *r)
{
	if (request_may_execute(r))
		request_fields(r, create_fields, create_from);
}
