/*
 * /containers: making, listing, looking at and removing containers (DESIGN section 9; the object of
 * spec/openai.md 4.1 with our fields).
 *
 * The store's row says that a container exists and with which limits it becomes live; the
 * supervisor says what it is doing.
 */
#include "gateway/internal.h"

#include "base/id.h"
#include "base/utf8.h"
#include "gateway/documents.h"
#include "gateway/fields.h"
#include "gateway/keeping.h"
#include "gateway/network.h"
#include "gateway/saving.h"
#include "network/policy.h"

#include <stdlib.h>

#define LIST_MAX   100
#define KEEP_MAX_S (31 * 24 * 3600)

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

/* ---- the object ---- */

static void size_write(struct json_writer *w, const char *key, uint32_t mib)
{
	char text[24];

	if (mib % 1024 == 0)
		str_format(text, sizeof(text), "%ug", mib / 1024);
	else
		str_format(text, sizeof(text), "%um", mib);
	jw_kcstr(w, key, text);
}

static const char *state_name(enum sup_state s)
{
	switch (s) {
	case SUP_ST_RUNNING:
		return "running";
	case SUP_ST_FROZEN:
		return "frozen";
	case SUP_ST_UNKNOWN: /* a row, and no command yet */
	case SUP_ST_ASLEEP:
		break;
	}
	return "asleep";
}

static void container_write(struct json_writer *w, const struct gateway *g,
        const struct store_container *row, enum sup_state state)
{
	jw_object(w);
	jw_kcstr(w, "id", row->id);
	jw_kcstr(w, "object", "container");
	jw_kcstr(w, "name", row->name);
	jw_ki64(w, "created_at", row->created_ms / 1000);
	jw_kcstr(w, "status", row->deleting ? "deleting" : state_name(state));
	jw_ki64(w, "last_active_at", row->last_used_ms / 1000);
	jw_key(w, "expires_after");
	jw_object(w);
	jw_kcstr(w, "anchor", "last_active_at");
	jw_ki64(w, "minutes",
	        row->expires_ms > 0 ? row->expires_ms / 60000
	                            : (int64_t)g->config->container.keep_days * 24 * 60);
	jw_end(w);
	jw_key(w, "keep_running_until");
	if (row->keep_until_ms > clock_wall_ms())
		jw_i64(w, row->keep_until_ms / 1000);
	else
		jw_null(w);
	size_write(w, "memory_limit", row->memory_mib);
	jw_kcstr(w, "image", row->image);
	char cpus[16];

	str_format(cpus, sizeof(cpus), "%u.%03u", row->cpu_milli / 1000, row->cpu_milli % 1000);
	jw_kraw(w, "cpus", str_of(cpus));
	network_write(w, str_of(row->network));
	jw_kraw(w, "metadata", row->metadata != NULL ? str_of(row->metadata) : STR("{}"));
	jw_end(w);
}

/* ---- requests ---- */

enum job_op {
	JOB_CREATE,
	JOB_NETWORK,
	JOB_LIST,
	JOB_GET,
	JOB_SLEEP,
	JOB_DELETE,
	JOB_DELETE_HOME, /* there is no row, and yet files */
	JOB_DELETED,
};

/* One request on its way through store and supervisor. */
struct job {
	struct gateway *g;
	const struct config_key *key;
	struct http_exchange *x; /* NULL: the client has gone; the job goes on */
	struct owner owner;
	bool under_v1;
	enum job_op op;
	struct store_container row; /* CREATE: what is wanted; then what there is */
	struct store_list_query query;
	char after[STORE_ID_MAX + 1], name[STORE_NAME_MAX + 1];
	struct store_list list;
	enum sup_state *states;
	size_t asked;
	bool explicit_limits, explicit_keep;
	int64_t keep_until_ms; /* as asked for */
	int64_t was_until_ms;  /* the row's before that */
	char *network;         /* CREATE: the policy that is asked for; NULL: not given */
	bool new_network;      /* the row that was there has another */
	char (*file_ids)[STORE_ID_MAX + 2]; /* CREATE */
	size_t n_file_ids;
	struct documents_attach *attach;
	int result;
	struct error err;
};

static void job_free(struct job *j)
{
	if (j->x != NULL)
		http_exchange_set_data(j->x, NULL);
	store_container_clear(&j->row);
	store_list_clear(&j->list);
	documents_attach_free(j->attach);
	free(j->network);
	free(j->file_ids);
	free(j->states);
	free(j);
}

static void on_job_gone(void *self, enum http_gone why)
{
	((struct job *)self)->x = NULL;
}

static void job_fail(struct job *j, const struct error *e)
{
	if (j->x != NULL) {
		http_exchange_set_data(j->x, NULL);
		respond_error(j->x, j->under_v1, e);
		j->x = NULL;
	}
	job_free(j);
}

static void job_answer(struct job *j, struct buf *body)
{
	if (j->x != NULL) {
		http_exchange_set_data(j->x, NULL);
		respond_json(j->x, 200, body);
		j->x = NULL;
	}
	job_free(j);
}

static void key_of(const struct job *j, const char *id, uint8_t key[SUP_KEY_LEN])
{
	row_key(j->key, str_of(id), key);
}

/* Before there is a row: a request with a bad one makes nothing. */
static int find_files(struct job *j)
{
	struct str ids[DOCUMENTS_ATTACH_MAX];

	for (size_t i = 0; i < j->n_file_ids; i++)
		ids[i] = str_of(j->file_ids[i]);
	return j->n_file_ids == 0 ? 0
	                          : documents_attach_find(j->g, j->key, ids, j->n_file_ids,
	                                    "file_ids", &j->attach, &j->err);
}

/* keep_running, of a request that names a container which is there already. */
static int keep(struct job *j)
{
	struct store_scope scope = row_scope(j->key);

	if (!j->explicit_keep)
		return 0;
	j->was_until_ms = j->row.keep_until_ms;
	j->row.keep_until_ms = j->keep_until_ms;
	return store_container_keep(
	        j->g->store, &scope, str_of(j->row.id), j->keep_until_ms, &j->err);
}

static int create_row(struct job *j)
{
	struct store_scope scope = row_scope(j->key);
	struct store_container got = {0};
	int r = find_files(j);

	if (r < 0)
		return r;
	r = store_container_create(j->g->store, &scope, &j->row, &got, &j->err);
	if (r == 0 && j->explicit_limits &&
	        (got.memory_mib != j->row.memory_mib || got.cpu_milli != j->row.cpu_milli ||
	                strcmp(got.image, j->row.image) != 0)) {
		store_container_clear(&got);
		return error_set(&j->err, ERR_CONFLICT,
		        "There is a container of this name with another image, memory or number of "
		        "CPUs.");
	}
	if (r < 0)
		return r;
	j->keep_until_ms = j->row.keep_until_ms;
	j->new_network = j->network != NULL && !str_eq(str_of(j->network), str_of(got.network));
	store_container_clear(&j->row);
	j->row = got;
	/* With another policy, only once that is known to apply. */
	return r == 0 && !j->new_network ? keep(j) : r;
}

static int change_network(struct job *j)
{
	struct store_scope scope = row_scope(j->key);
	int r = store_container_network(
	        j->g->store, &scope, str_of(j->row.id), str_of(j->network), &j->err);

	if (r < 0)
		return r;
	free(j->row.network);
	j->row.network = steal(j->network);
	j->new_network = false;
	return keep(j);
}

static void job_work(void *arg)
{
	struct job *j = arg;
	struct store_scope scope = row_scope(j->key);
	struct str id = str_of(j->row.id);

	switch (j->op) {
	case JOB_CREATE:
		j->result = create_row(j);
		break;
	case JOB_NETWORK:
		j->result = change_network(j);
		break;
	case JOB_LIST:
		j->result = store_container_list(j->g->store, &scope, &j->query, &j->list, &j->err);
		break;
	case JOB_GET:
	case JOB_SLEEP:
		j->result = store_container_get(j->g->store, &scope, id, &j->row, &j->err);
		break;
	case JOB_DELETE:
	case JOB_DELETE_HOME:
		if (j->op == JOB_DELETE_HOME)
			j->result = row_touch(j->g, j->key, id, &j->err);
		if (j->result == 0)
			j->result = store_container_mark_deleting(
			        j->g->store, &scope, id, clock_wall_ms(), &j->err);
		if (j->result == 0)
			j->result = saving_forget(j->g, &scope, id, false, &j->err);
		break;
	case JOB_DELETED:
		j->result = saving_forget(j->g, &scope, id, true, &j->err);
		if (j->result == 0)
			j->result = store_container_delete(j->g->store, &scope, id, &j->err);
		break;
	}
	if (j->result == -ERR_NOT_FOUND)
		error_set(&j->err, ERR_NOT_FOUND, "There is no container of this id.");
}

static void list_answer(struct job *j)
{
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)64 << 20);
	struct json_writer w;

	jw_init(&w, &out);
	jw_object(&w);
	jw_kcstr(&w, "object", "list");
	jw_key(&w, "data");
	jw_array(&w);
	for (size_t i = 0; i < j->list.n; i++)
		container_write(&w, j->g, &j->list.rows[i], j->states[i]);
	jw_end(&w);
	jw_kcstr(&w, "first_id", j->list.n > 0 ? j->list.rows[0].id : NULL);
	jw_kcstr(&w, "last_id", j->list.n > 0 ? j->list.rows[j->list.n - 1].id : NULL);
	jw_kbool(&w, "has_more", j->list.has_more);
	jw_end(&w);
	job_answer(j, &out);
}

/* Answers about the rows of a list come in any order; the place travels in the pointer. */
struct list_ask {
	struct job *j;
	size_t i;
};

static void on_list_status(void *ctx, const struct container_status *s, const struct error *err)
{
	struct list_ask *a = ctx;
	struct job *j = a->j;

	if (s != NULL)
		j->states[a->i] = s->state;
	free(a);
	if (--j->asked == 0)
		list_answer(j);
}

static void list_ask_all(struct job *j)
{
	uint8_t key[SUP_KEY_LEN];

	if (j->list.n == 0) {
		list_answer(j);
		return;
	}
	j->states = mem_array(j->list.n, sizeof(*j->states));
	j->asked = j->list.n;
	for (size_t i = 0; i < j->list.n; i++) {
		struct list_ask *a = mem_alloc(sizeof(*a));

		*a = (struct list_ask){j, i};
		key_of(j, j->list.rows[i].id, key);
		container_ask_status(j->g->containers, key, on_list_status, a);
	}
}

static void on_status(void *ctx, const struct container_status *s, const struct error *err)
{
	struct job *j = ctx;
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)1 << 20);
	struct json_writer w;

	jw_init(&w, &out);
	container_write(&w, j->g, &j->row, s != NULL ? s->state : SUP_ST_ASLEEP);
	job_answer(j, &out);
}

static void on_keeping(void *ctx, const struct error *err)
{
	struct job *j = ctx;
	uint8_t key[SUP_KEY_LEN];

	if (err != NULL) {
		job_fail(j, err);
		return;
	}
	key_of(j, j->row.id, key);
	container_ask_status(j->g->containers, key, on_status, j);
}

/* One that is not live is kept from its next use on: its row says so. */
static void on_kept(void *ctx, const struct container_status *s, const struct error *err)
{
	struct job *j = ctx;

	if (err != NULL)
		on_keeping(j, NULL);
	else
		keeping_ordered(j->g, j->key, j->row.id, j->row.keep_until_ms > 0, j->was_until_ms,
		        on_keeping, j);
}

static void order_keep(struct job *j, const uint8_t key[SUP_KEY_LEN])
{
	int64_t keep = j->row.keep_until_ms - clock_wall_ms();

	container_order_keep(j->g->containers, key, keep > 0 ? (uint64_t)keep : 0, on_kept, j);
}

/* One that was not live sleeps already. */
static void on_slept(void *ctx, const struct container_status *s, const struct error *err)
{
	struct job *j = ctx;
	uint8_t key[SUP_KEY_LEN];
	struct error e;

	if (err != NULL && err->code == ERR_CONFLICT) {
		error_set(&e, ERR_CONFLICT,
		        "The container is in use: it can be put to sleep once its commands have "
		        "ended.");
		job_fail(j, &e);
		return;
	}
	if (err != NULL) {
		job_fail(j, err);
		return;
	}
	key_of(j, j->row.id, key);
	container_ask_status(j->g->containers, key, on_status, j);
}

static void job_done(void *arg);

static void on_deleted(void *ctx, const struct container_status *s, const struct error *err)
{
	struct job *j = ctx;
	struct error e;

	if (err != NULL) {
		job_fail(j, err);
		return;
	}
	j->op = JOB_DELETED;
	if (!pool_run(j->g->pool, job_work, job_done, j)) {
		error_set(&e, ERR_UNAVAILABLE, "The server has too much to do.");
		job_fail(j, &e);
	}
}

static void deleted_answer(struct job *j)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1024);
	struct json_writer w;

	jw_init(&w, &out);
	jw_object(&w);
	jw_kcstr(&w, "id", j->row.id);
	jw_kcstr(&w, "object", "container.deleted");
	jw_kbool(&w, "deleted", true);
	jw_end(&w);
	job_answer(j, &out);
}

static void created(struct job *j, const uint8_t key[SUP_KEY_LEN])
{
	if (j->explicit_keep)
		order_keep(j, key);
	else
		container_ask_status(j->g->containers, key, on_status, j);
}

static void on_saved(void *ctx, const struct error *err)
{
	struct job *j = ctx;
	uint8_t key[SUP_KEY_LEN];

	if (err != NULL) {
		job_fail(j, err);
		return;
	}
	key_of(j, j->row.id, key);
	created(j, key);
}

static void on_attached(void *ctx, const struct error *err)
{
	struct job *j = ctx;
	uint8_t key[SUP_KEY_LEN];

	if (err != NULL || j->g->saving == NULL) {
		on_saved(j, err);
		return;
	}
	key_of(j, j->row.id, key);
	saving_wrote(j->g->saving, key, on_saved, j);
}

static void on_home(void *ctx, const struct error *err)
{
	struct job *j = ctx;
	uint8_t key[SUP_KEY_LEN];

	if (err != NULL) {
		job_fail(j, err);
		return;
	}
	key_of(j, j->row.id, key);
	documents_attach_copy(j->attach, key, on_attached, j);
}

static void attach(struct job *j, const uint8_t key[SUP_KEY_LEN])
{
	if (j->g->saving == NULL)
		on_home(j, NULL);
	else
		saving_prepare(j->g->saving, key, on_home, j);
}

/* One that is live has its policy until it sleeps; else the new one is the row's. */
static void on_network_status(void *ctx, const struct container_status *s, const struct error *err)
{
	struct job *j = ctx;
	uint8_t wanted[16];
	struct error e;

	row_policy(j->g, j->key, str_of(j->row.id), str_of(j->network), wanted);
	if (s != NULL && (s->state == SUP_ST_RUNNING || s->state == SUP_ST_FROZEN) &&
	        memcmp(wanted, s->policy, sizeof(wanted)) != 0) {
		error_param(&e, ERR_CONFLICT, "network_policy",
		        "The container is live with another network policy; a new one applies once "
		        "it is asleep.");
		job_fail(j, &e);
		return;
	}
	j->op = JOB_NETWORK;
	if (pool_run(j->g->pool, job_work, job_done, j))
		return;
	error_set(&e, ERR_UNAVAILABLE, "The server has too much to do.");
	job_fail(j, &e);
}

/*
 * A use that was under way when the container was deleted made it anew, and its row comes only with
 * the end of that use: what it left is deleted all the same.
 */
static void on_rowless_status(void *ctx, const struct container_status *s, const struct error *err)
{
	struct job *j = ctx;

	if (s == NULL || s->state == SUP_ST_UNKNOWN) {
		job_fail(j, &j->err);
		return;
	}
	j->op = JOB_DELETE_HOME;
	j->result = 0;
	if (pool_run(j->g->pool, job_work, job_done, j))
		return;
	error_set(&j->err, ERR_UNAVAILABLE, "The server has too much to do.");
	job_fail(j, &j->err);
}

static void job_done(void *arg)
{
	struct job *j = arg;
	uint8_t key[SUP_KEY_LEN];

	if (j->op == JOB_DELETE && j->result == -ERR_NOT_FOUND) {
		key_of(j, j->row.id, key);
		container_ask_status(j->g->containers, key, on_rowless_status, j);
		return;
	}
	if (j->result < 0) {
		job_fail(j, &j->err);
		return;
	}
	key_of(j, j->row.id, key);
	switch (j->op) {
	case JOB_CREATE:
	case JOB_NETWORK:
		if (j->new_network)
			container_ask_status(j->g->containers, key, on_network_status, j);
		else if (j->attach != NULL)
			attach(j, key);
		else
			created(j, key);
		break;
	case JOB_GET:
		container_ask_status(j->g->containers, key, on_status, j);
		break;
	case JOB_SLEEP:
		container_order_sleep(j->g->containers, key, on_slept, j);
		break;
	case JOB_LIST:
		list_ask_all(j);
		break;
	case JOB_DELETE:
	case JOB_DELETE_HOME:
		container_order_delete(j->g->containers, key, on_deleted, j);
		break;
	case JOB_DELETED:
		deleted_answer(j);
		break;
	}
}

static struct job *job_new(struct request *r, enum job_op op)
{
	struct job *j = mem_alloc(sizeof(*j));

	j->g = r->g;
	j->key = r->key;
	j->x = r->x;
	j->under_v1 = r->under_v1;
	j->op = op;
	j->owner = (struct owner){NULL, on_job_gone, j};
	http_exchange_set_data(r->x, &j->owner);
	return j;
}

static void job_start(struct job *j)
{
	struct error e;

	if (pool_run(j->g->pool, job_work, job_done, j))
		return;
	error_set(&e, ERR_UNAVAILABLE, "The server has too much to do.");
	e.retry_after_ms = 1000;
	job_fail(j, &e);
}

/* ---- POST ---- */

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

static void read_files(struct fields *f, struct job *j)
{
	const struct json *list = fields_strings(f, "file_ids", DOCUMENTS_ATTACH_MAX);

	if (json_count(list) == 0)
		return;
	j->file_ids = mem_array(json_count(list), sizeof(*j->file_ids));
	for (const struct json *v = json_first(list); v != NULL; v = json_next(v)) {
		struct str id = json_str(v);

		/* One that is cut is none that there is. */
		str_copy(j->file_ids[j->n_file_ids++], sizeof(*j->file_ids), id);
	}
}

/* true: a day; else a number of seconds. */
static void read_keep(struct fields *f, struct job *j)
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
	j->row.keep_until_ms = on && seconds > 0 ? clock_wall_ms() + seconds * 1000 : 0;
	j->explicit_keep = true;
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
	j->network = mem_strdup(buf_cstr(&text));
	j->row.network = text.len > 0 ? mem_strdup(j->network) : NULL;
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
	struct job *j = job_new(r, JOB_CREATE);
	struct str image = {NULL, 0};

	row_default(r->g, (struct str){NULL, 0}, &j->row);
	read_name(f, &j->row);
	read_files(f, j);
	if (j->n_file_ids > 0 && r->g->options->sup_fd < 0)
		fields_fail(f, "file_ids",
		        "This server runs without sandboxes: it cannot copy files into one.");
	read_keep(f, j);
	read_expiry(f, c, &j->row);
	read_policy(f, j);
	read_memory(f, "memory", c, &j->row.memory_mib);
	read_memory(f, "memory_limit", c, &j->row.memory_mib);
	read_cpus(f, c, &j->row.cpu_milli);
	fields_str(f, "image", 64, &image);
	if (image.p != NULL && !str_is(image, c->container.image))
		fields_fail(f, "image", "There is no such image on this server.");
	const struct json *env = fields_map(f, "env", ENV_ROW_MAX);

	check_env(f, env);
	j->row.env = raw_copy(env);
	j->row.metadata = raw_copy(read_metadata(f));
	j->explicit_limits = json_get(f->root, "memory") != NULL ||
	                     json_get(f->root, "memory_limit") != NULL ||
	                     json_get(f->root, "cpus") != NULL || image.p != NULL;
	if (f->failed)
		job_fail(j, &f->error);
	else
		job_start(j);
}

void containers_create(struct request *r)
{
	if (request_may_execute(r))
		request_fields(r, create_fields, create_from);
}

/* ---- the others ---- */

void containers_list(struct request *r)
{
	struct job *j = job_new(r, JOB_LIST);
	_cleanup_buf_ struct buf b = BUF_INIT(1024);
	struct str q = http_request_query(r->x);
	uint64_t limit = 20;
	struct error e;

	if (http_query_get(q, "limit", &b) && (!str_to_u64((struct str){b.data, b.len}, &limit) ||
	                                              limit < 1 || limit > LIST_MAX)) {
		error_param(&e, ERR_INVALID, "limit", "limit must be a whole number from 1 to %d.",
		        LIST_MAX);
		job_fail(j, &e);
		return;
	}
	buf_reset(&b);
	if (http_query_get(q, "order", &b)) {
		struct str order = {b.data, b.len};

		if (!str_is(order, "asc") && !str_is(order, "desc")) {
			error_param(&e, ERR_INVALID, "order", "order must be asc or desc.");
			job_fail(j, &e);
			return;
		}
		j->query.ascending = str_is(order, "asc");
	}
	buf_reset(&b);
	if (http_query_get(q, "after", &b) &&
	        str_copy(j->after, sizeof(j->after), (struct str){b.data, b.len}))
		j->query.after = str_of(j->after);
	buf_reset(&b);
	if (http_query_get(q, "name", &b) &&
	        str_copy(j->name, sizeof(j->name), (struct str){b.data, b.len}))
		j->query.name = str_of(j->name);
	j->query.limit = (uint32_t)limit;
	job_start(j);
}

static void job_by_id(struct request *r, enum job_op op)
{
	struct job *j = job_new(r, op);
	struct error e;

	if (!api_container_id_valid(r->params[0])) {
		error_set(&e, ERR_NOT_FOUND, "There is no container of this id.");
		job_fail(j, &e);
		return;
	}
	str_copy(j->row.id, sizeof(j->row.id), r->params[0]);
	job_start(j);
}

void containers_get(struct request *r)
{
	job_by_id(r, JOB_GET);
}

void containers_sleep(struct request *r)
{
	job_by_id(r, JOB_SLEEP);
}

void containers_delete(struct request *r)
{
	struct error e;

	/* The row alone must not go: the next container of this name would have the old files. */
	if (r->g->options->sup_fd < 0) {
		error_set(&e, ERR_UNAVAILABLE,
		        "This server runs without sandboxes and cannot remove a container's "
		        "files.");
		respond_error(r->x, r->under_v1, &e);
		return;
	}
	job_by_id(r, JOB_DELETE);
}
