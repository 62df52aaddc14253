/*
 * Keys and workspaces over HTTP:
 *
 *     POST /keys                 makes one; it is shown in this answer and never again
 *     GET /keys, /keys/{hash}    those of the account, revoked ones and brig.yaml's too
 *     PATCH /keys/{hash}         changes its name, its limits or its end
 *     DELETE /keys/{hash}        revokes one
 *     GET /key                   the asking key itself
 *     GET|POST /workspaces, GET|PATCH /workspaces/{name}
 *
 * All is read and written on the pool. The answer to a change waits until every gateway of the node
 * goes by it (keys.h).
 */
#include "gateway/tenants.h"

#include "gateway/fields.h"
#include "gateway/internal.h"
#include "gateway/job.h"

#include "base/id.h"

#include <stdlib.h>

#define KEY_PREFIX "brig-"
#define KEY_RANDOM 40
#define KEY_SIZE   (sizeof(KEY_PREFIX) + KEY_RANDOM)

/* What a job has of its own. */
struct tenant {
	char hash[STORE_KEY_HASH + 1]; /* of the path; or the asking key's */
	struct store_key row;          /* to be made, or to be changed */
	unsigned members;              /* what of it */
	char text[KEY_SIZE];           /* the key; a secret */
	struct store_workspace workspace;
	bool has_store_content;
};

/* ---- writing keys ---- */

enum { SPENT_PERIOD, SPENT_DAY, SPENT_WEEK, SPENT_MONTH, SPENT_ALL, N_SPENT };

static int spent_read(struct job *j, const struct store_key *k, int64_t spent[N_SPENT])
{
	int64_t now = clock_wall_ms();
	const int64_t from[N_SPENT] = {
	        [SPENT_PERIOD] = key_limits_first_day((enum config_reset)(k->limit_reset & 3), now),
	        [SPENT_DAY] = key_limits_first_day(CONFIG_RESET_DAILY, now),
	        [SPENT_WEEK] = key_limits_first_day(CONFIG_RESET_WEEKLY, now),
	        [SPENT_MONTH] = key_limits_first_day(CONFIG_RESET_MONTHLY, now),
	        [SPENT_ALL] = 0,
	};

	return store_key_spent(j->g->reader, str_of(k->hash), from, N_SPENT, spent, &j->err);
}

/* null for 0: never. */
static void write_count(struct json_writer *w, const char *name, uint32_t n)
{
	if (n > 0)
		jw_ki64(w, name, n);
	else
		jw_knull(w, name);
}

static void write_limits(struct json_writer *w, const struct store_key *k, int64_t spent)
{
	int64_t left = k->limit > spent ? k->limit - spent : 0;

	write_count(w, "requests_per_minute", k->requests_per_minute);
	write_count(w, "containers_at_once", k->containers);
	if (k->has_limit) {
		jw_kmoney(w, "limit", (struct money){k->limit});
		jw_kmoney(w, "limit_remaining", (struct money){left});
	} else {
		jw_knull(w, "limit");
		jw_knull(w, "limit_remaining");
	}
	jw_kcstr(w, "limit_reset", config_reset_name((enum config_reset)(k->limit_reset & 3)));
	jw_key(w, "disabled_server_tools");
	jw_array(w);
	for (unsigned i = 0; i < CONFIG_TOOLS; i++)
		if (k->disabled_tools & (1u << i))
			jw_cstr(w, config_tool_name((enum config_tool)i));
	jw_end(w);
}

/* of_config: it stands in brig.yaml, or is the data folder's first. */
static int write_key(
        struct json_writer *w, struct job *j, const struct store_key *k, bool of_config)
{
	int64_t spent[N_SPENT] = {0};

	if (spent_read(j, k, spent) < 0)
		return -(int)j->err.code;
	jw_object(w);
	jw_kcstr(w, "hash", k->hash);
	jw_kcstr(w, "name", k->name[0] != 0 ? k->name : NULL);
	jw_kcstr(w, "account", k->account);
	jw_kcstr(w, "workspace", k->workspace);
	jw_kbool(w, "admin", k->admin);
	jw_kbool(w, "read_only", of_config);
	jw_ktime(w, "created_at", k->created_ms);
	jw_ktime(w, "expires_at", k->expires_ms);
	jw_kbool(w, "revoked", k->revoked_ms != 0);
	jw_ktime(w, "revoked_at", k->revoked_ms);
	write_limits(w, k, spent[SPENT_PERIOD]);
	jw_kmoney(w, "usage", (struct money){spent[SPENT_ALL]});
	jw_kmoney(w, "usage_daily", (struct money){spent[SPENT_DAY]});
	jw_kmoney(w, "usage_weekly", (struct money){spent[SPENT_WEEK]});
	jw_kmoney(w, "usage_monthly", (struct money){spent[SPENT_MONTH]});
	jw_end(w);
	return 0;
}

static struct store_key row_of(const struct config_key *key)
{
	struct store_key k = {
	        .admin = key->admin,
	        .expires_ms = key->expires_ms,
	        .requests_per_minute = key->requests_per_minute,
	        .containers = key->containers,
	        .has_limit = key->has_limit,
	        .limit = key->limit.pico,
	        .limit_reset = key->limit_reset,
	        .disabled_tools = key->disabled_tools,
	};

	id_hex(key->hash, sizeof(key->hash), k.hash);
	str_copy(k.account, sizeof(k.account), str_of(key->account));
	str_copy(k.workspace, sizeof(k.workspace), str_of(key->workspace));
	str_copy(k.name, sizeof(k.name), str_of(key->name));
	return k;
}

/* ---- keys, on the pool ---- */

static void list_begin(struct json_writer *w, struct job *j)
{
	jw_init(w, &j->out);
	jw_object(w);
	jw_kcstr(w, "object", "list");
	jw_key(w, "data");
	jw_array(w);
}

static void list_end(struct json_writer *w)
{
	jw_end(w);
	jw_end(w);
}

/* Calls fn for each key of the account, those of the store first, until it gives something else
 * than 0. */
typedef int (*key_fn)(void *ctx, struct job *j, const struct store_key *k, bool of_config);
static int each_key(struct job *j, key_fn fn, void *ctx)
{
	struct store_key *rows = NULL;
	size_t n = 0;
	int r = store_key_list(j->g->reader, j->scope.account, &rows, &n, &j->err);

	for (size_t i = 0; i < n && r == 0; i++)
		r = fn(ctx, j, &rows[i], false);
	free(rows);
	for (size_t i = 0; i < j->g->config->n_keys && r == 0; i++) {
		struct store_key k = row_of(&j->g->config->keys[i]);

		if (str_is(j->scope.account, k.account))
			r = fn(ctx, j, &k, true);
	}
	return r;
}

static int list_one(void *ctx, struct job *j, const struct store_key *k, bool of_config)
{
	return write_key(ctx, j, k, of_config);
}

static void list_work(struct job *j)
{
	struct json_writer w;

	list_begin(&w, j);
	j->result = each_key(j, list_one, &w);
	list_end(&w);
}

/* 1: it was this one. */
static int get_one(void *ctx, struct job *j, const struct store_key *k, bool of_config)
{
	const struct tenant *t = j->own;
	int r;

	if (strcmp(k->hash, t->hash) != 0)
		return 0;
	jw_key(ctx, "data");
	r = write_key(ctx, j, k, of_config);
	if (r < 0)
		jw_null(ctx);
	return r < 0 ? r : 1;
}

static void get_work(struct job *j)
{
	struct json_writer w;
	int r;

	jw_init(&w, &j->out);
	jw_object(&w);
	r = each_key(j, get_one, &w);
	jw_end(&w);
	j->result = r > 0    ? 0
	            : r == 0 ? error_set(&j->err, ERR_NOT_FOUND, "There is no key of this hash.")
	                     : r;
}

static void create_work(struct job *j)
{
	struct tenant *t = j->own;
	struct json_writer w;

	j->result = store_key_create(j->g->store, &t->row, &j->err);
	if (j->result < 0)
		return;
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_kcstr(&w, "key", t->text);
	jw_kcstr(&w, "hash", t->row.hash);
	jw_key(&w, "data");
	j->result = write_key(&w, j, &t->row, false);
	if (j->result < 0)
		jw_null(&w);
	jw_end(&w);
}

static int refuse_config(void *ctx, struct job *j, const struct store_key *k, bool of_config)
{
	const struct tenant *t = j->own;

	if (!of_config || strcmp(k->hash, t->hash) != 0)
		return 0;
	return error_set(&j->err, ERR_PERMISSION,
	        "This key is not in the store but in brig.yaml, or in the data folder: it is "
	        "changed and removed there.");
}

static void change_work(struct job *j)
{
	struct tenant *t = j->own;
	struct json_writer w;

	j->result = each_key(j, refuse_config, NULL);
	if (j->result == 0)
		j->result = store_key_change(j->g->store, t->members, &t->row, &j->err);
	if (j->result == -ERR_INVALID)
		j->result = error_set(&j->err, ERR_NOT_FOUND, "There is no key of this hash.");
	if (j->result == -ERR_CONFLICT)
		j->result = error_param(&j->err, ERR_INVALID, "limit_reset",
		        "limit_reset is given, and the key has no limit.");
	if (j->result < 0)
		return;
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_key(&w, "data");
	j->result = write_key(&w, j, &t->row, false);
	if (j->result < 0)
		jw_null(&w);
	jw_end(&w);
}

static void revoke_work(struct job *j)
{
	const struct tenant *t = j->own;
	struct json_writer w;

	j->result = each_key(j, refuse_config, NULL);
	if (j->result == 0)
		j->result = store_key_revoke(
		        j->g->store, j->scope.account, str_of(t->hash), clock_wall_ms(), &j->err);
	if (j->result == -ERR_INVALID)
		j->result = error_set(&j->err, ERR_NOT_FOUND, "There is no key of this hash.");
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_kcstr(&w, "hash", t->hash);
	jw_kbool(&w, "revoked", true);
	jw_kbool(&w, "deleted", true);
	jw_end(&w);
}

/* ---- workspaces, on the pool ---- */

struct workspaces {
	struct store_workspace *list;
	size_t n, cap;
};

static struct store_workspace *workspace_find(struct workspaces *all, const char *name)
{
	for (size_t i = 0; i < all->n; i++)
		if (strcmp(all->list[i].name, name) == 0)
			return &all->list[i];
	return NULL;
}

/* A workspace that a key names is there, whether anything was set for it or not. */
static int workspace_of_key(void *ctx, struct job *j, const struct store_key *k, bool of_config)
{
	struct workspaces *all = ctx;
	struct store_workspace *w;

	if (workspace_find(all, k->workspace) != NULL)
		return 0;
	mem_grow(&all->list, &all->cap, all->n, sizeof(*all->list));
	w = &all->list[all->n++];
	w->store_content = true;
	str_copy(w->account, sizeof(w->account), str_of(k->account));
	str_copy(w->name, sizeof(w->name), str_of(k->workspace));
	return 0;
}

static int workspaces_read(struct job *j, struct workspaces *all)
{
	int r = store_workspace_list(j->g->reader, j->scope.account, &all->list, &all->n, &j->err);

	all->cap = all->n;
	return r < 0 ? r : each_key(j, workspace_of_key, all);
}

static void write_workspace(struct json_writer *w, const struct store_workspace *s)
{
	jw_object(w);
	jw_kcstr(w, "name", s->name);
	jw_kcstr(w, "account", s->account);
	jw_kbool(w, "store_content", s->store_content);
	jw_ktime(w, "created_at", s->created_ms);
	jw_end(w);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct store_workspace *)a)->name,
	        ((const struct store_workspace *)b)->name);
}

static void workspace_list_work(struct job *j)
{
	struct workspaces all = {.n = 0};
	struct json_writer w;

	j->result = workspaces_read(j, &all);
	if (all.n > 1)
		qsort(all.list, all.n, sizeof(*all.list), by_name);
	list_begin(&w, j);
	for (size_t i = 0; i < all.n; i++)
		write_workspace(&w, &all.list[i]);
	list_end(&w);
	free(all.list);
}

static void workspace_answer(struct job *j, const struct store_workspace *s)
{
	struct json_writer w;

	jw_init(&w, &j->out);
	jw_object(&w);
	jw_key(&w, "data");
	write_workspace(&w, s);
	jw_end(&w);
}

/* The one of the path; changed, where the body says something. */
static void workspace_get_work(struct job *j)
{
	const struct tenant *t = j->own;
	struct workspaces all = {.n = 0};
	struct store_workspace *s;

	j->result = workspaces_read(j, &all);
	s = j->result < 0 ? NULL : workspace_find(&all, t->workspace.name);
	if (j->result == 0 && s == NULL)
		j->result = error_set(&j->err, ERR_NOT_FOUND,
		        "There is no workspace of this name: no key has it, and none was made.");
	if (s != NULL && t->has_store_content) {
		s->store_content = t->workspace.store_content;
		if (s->created_ms == 0)
			s->created_ms = clock_wall_ms();
		j->result = store_workspace_put(j->g->store, s, false, &j->err);
	}
	if (s != NULL)
		workspace_answer(j, s);
	free(all.list);
}

static void workspace_create_work(struct job *j)
{
	struct store_workspace *s = &((struct tenant *)j->own)->workspace;

	s->created_ms = clock_wall_ms();
	str_copy(s->account, sizeof(s->account), j->scope.account);
	j->result = store_workspace_put(j->g->store, s, true, &j->err);
	workspace_answer(j, s);
}

/* ---- jobs ---- */

static struct job *begin(struct request *r, void (*work)(struct job *j), struct tenant **ret)
{
	struct job *j = job_new(r, work, sizeof(**ret));

	*ret = j->own;
	return j;
}

/* A change is answered when every gateway goes by it. */
static void settle(struct job *j)
{
	if (j->result < 0)
		job_answer(j);
	else
		keys_changed(j->g, job_answer, j);
}

/* ---- reading a key that is to be made or changed ---- */

static void read_scope(struct fields *f, const char *name, char out[CONFIG_SCOPE_MAX + 1])
{
	struct str s = {NULL, 0};

	fields_str(f, name, CONFIG_SCOPE_MAX, &s);
	if (s.p == NULL || f->failed)
		return;
	if (!str_in_set(s, CONFIG_SCOPE_CHARS))
		fields_fail(f, name, "%s is 1 to %d of [A-Za-z0-9_-].", name, CONFIG_SCOPE_MAX);
	else
		str_copy(out, CONFIG_SCOPE_MAX + 1, s);
}

static void read_name(struct fields *f, struct store_key *k)
{
	struct str s = {NULL, 0};

	fields_str(f, "name", STORE_KEY_NAME_MAX, &s);
	for (size_t i = 0; i < s.n; i++)
		if ((unsigned char)s.p[i] < ' ' || s.p[i] == 0x7f)
			fields_fail(f, "name", "name must not hold control characters.");
	if (s.n == 0)
		fields_fail(f, "name", "A key needs a name, of 1 to %d bytes.", STORE_KEY_NAME_MAX);
	if (!f->failed)
		str_copy(k->name, sizeof(k->name), s);
}

/* Dollars as a number, exactly as it is written, or as a string. limited: it may have a limit that
 * is not said here. */
static void read_limit(struct fields *f, bool limited, struct store_key *k)
{
	const struct json *limit = json_get(f->root, "limit");
	struct str reset = {NULL, 0};
	struct money m;
	enum config_reset which;

	fields_str(f, "limit_reset", 16, &reset);
	if (reset.p != NULL && !config_reset_find(reset, &which))
		fields_fail(f, "limit_reset", "limit_reset is daily, weekly, monthly or null.");
	else if (reset.p != NULL && json_absent(limit) && !limited)
		fields_fail(f, "limit_reset", "limit_reset is given without limit.");
	else if (reset.p != NULL)
		k->limit_reset = which;
	if (json_absent(limit))
		return;
	if ((!json_is(limit, JSON_NUMBER) && !json_is(limit, JSON_STRING)) ||
	        !money_parse(json_is(limit, JSON_STRING) ? json_str(limit) : json_raw(limit), &m))
		fields_fail(f, "limit", "limit is dollars, such as 25 or 0.5.");
	else
		k->limit = m.pico;
	k->has_limit = true;
}

static void read_expiry(struct fields *f, struct store_key *k)
{
	struct str s = {NULL, 0};

	fields_str(f, "expires_at", 40, &s);
	if (s.p == NULL)
		return;
	if (!clock_parse_iso8601(s, &k->expires_ms) || k->expires_ms == 0)
		fields_fail(f, "expires_at", "expires_at is a time such as 2027-01-31T18:00:00Z.");
	else if (k->expires_ms <= clock_wall_ms())
		fields_fail(f, "expires_at", "expires_at has passed.");
}

static void read_tools(struct fields *f, struct store_key *k)
{
	const struct json *list = fields_strings(f, "disabled_server_tools", 64);
	enum config_tool tool;

	for (const struct json *v = json_first(list); v != NULL; v = json_next(v)) {
		if (config_tool_find(json_str(v), &tool))
			k->disabled_tools |= 1u << tool;
		else
			fields_fail(f, "disabled_server_tools",
			        "disabled_server_tools may name shell, bash, exec and "
			        "code_execution.");
	}
}

static void read_count(struct fields *f, const char *name, uint64_t most, uint32_t *ret)
{
	uint64_t n = 0;

	fields_u64(f, name, 1, most, &n);
	*ret = (uint32_t)n;
}

static void read_limits(struct fields *f, bool limited, struct store_key *k)
{
	read_count(f, "requests_per_minute", CONFIG_RATE_MAX, &k->requests_per_minute);
	read_count(f, "containers_at_once", CONFIG_AT_ONCE_MAX, &k->containers);
	read_limit(f, limited, k);
	read_expiry(f, k);
	read_tools(f, k);
}

static void create_from(struct request *r, struct fields *f)
{
	struct tenant *t;
	struct job *j = begin(r, create_work, &t);
	struct store_key *k = &t->row;
	uint8_t hash[32];

	j->after = settle;
	j->secret = true;
	j->status = 201;
	str_copy(k->account, sizeof(k->account), str_of(r->key->account));
	str_copy(k->workspace, sizeof(k->workspace), str_of(r->key->workspace));
	read_name(f, k);
	read_scope(f, "workspace", k->workspace);
	fields_bool(f, "admin", &k->admin);
	read_limits(f, false, k);
	if (f->failed) {
		job_fail(j, &f->error);
		return;
	}
	id_make(t->text, sizeof(t->text), KEY_PREFIX, KEY_RANDOM);
	id_sha256(str_of(t->text), hash);
	id_hex(hash, sizeof(hash), k->hash);
	k->created_ms = clock_wall_ms();
	job_go(j);
}

void tenants_key_create(struct request *r)
{
	static const char *const allowed[] = {"name", "workspace", "admin", "requests_per_minute",
	        "containers_at_once", "limit", "limit_reset", "expires_at", "disabled_server_tools",
	        NULL};

	request_fields(r, allowed, create_from);
}

void tenants_key_list(struct request *r)
{
	job_run(r, list_work);
}

static struct job *by_hash(struct request *r, void (*work)(struct job *j))
{
	struct tenant *t;
	struct job *j = begin(r, work, &t);

	/* What is longer is no hash, and its beginning is none. */
	if (r->params[0].n == STORE_KEY_HASH)
		str_copy(t->hash, sizeof(t->hash), r->params[0]);
	return j;
}

void tenants_key_get(struct request *r)
{
	job_go(by_hash(r, get_work));
}

/* In the order of enum store_key_member. */
static const char *const changeable[] = {"name", "expires_at", "requests_per_minute",
        "containers_at_once", "limit", "limit_reset", "disabled_server_tools", NULL};

/* null takes away what was set. */
static void change_from(struct request *r, struct fields *f)
{
	struct job *j = by_hash(r, change_work);
	struct tenant *t = j->own;
	bool limit = json_get(f->root, "limit") != NULL;

	j->after = settle;
	str_copy(t->row.hash, sizeof(t->row.hash), str_of(t->hash));
	str_copy(t->row.account, sizeof(t->row.account), str_of(r->key->account));
	for (size_t i = 0; changeable[i] != NULL; i++)
		if (json_get(f->root, changeable[i]) != NULL)
			t->members |= 1u << i;
	if (t->members & STORE_KEY_NAME)
		read_name(f, &t->row);
	read_limits(f, !limit, &t->row);
	if (limit && !t->row.has_limit)
		t->members |= STORE_KEY_RESET;
	if (f->failed)
		job_fail(j, &f->error);
	else
		job_go(j);
}

void tenants_key_change(struct request *r)
{
	request_fields(r, changeable, change_from);
}

void tenants_key_revoke(struct request *r)
{
	struct job *j = by_hash(r, revoke_work);

	j->after = settle;
	job_go(j);
}

void tenants_key_own(struct request *r)
{
	struct tenant *t;
	struct job *j = begin(r, get_work, &t);

	id_hex(r->key->hash, sizeof(r->key->hash), t->hash);
	job_go(j);
}

/* ---- workspaces, asked ---- */

void tenants_workspace_list(struct request *r)
{
	job_run(r, workspace_list_work);
}

static struct job *by_workspace(struct request *r, struct tenant **ret)
{
	struct job *j = begin(r, workspace_get_work, ret);

	if (r->params[0].n <= CONFIG_SCOPE_MAX)
		str_copy((*ret)->workspace.name, sizeof((*ret)->workspace.name), r->params[0]);
	return j;
}

void tenants_workspace_get(struct request *r)
{
	struct tenant *t;

	job_go(by_workspace(r, &t));
}

static void workspace_create_from(struct request *r, struct fields *f)
{
	struct tenant *t;
	struct job *j = begin(r, workspace_create_work, &t);

	j->after = settle;
	j->status = 201;
	t->workspace.store_content = true;
	read_scope(f, "name", t->workspace.name);
	if (t->workspace.name[0] == 0)
		fields_fail(f, "name", "A workspace needs a name.");
	fields_bool(f, "store_content", &t->workspace.store_content);
	if (f->failed)
		job_fail(j, &f->error);
	else
		job_go(j);
}

void tenants_workspace_create(struct request *r)
{
	static const char *const allowed[] = {"name", "store_content", NULL};

	request_fields(r, allowed, workspace_create_from);
}

static void workspace_change_from(struct request *r, struct fields *f)
{
	struct tenant *t;
	struct job *j = by_workspace(r, &t);

	j->after = settle;
	t->has_store_content = !json_absent(json_get(f->root, "store_content"));
	fields_bool(f, "store_content", &t->workspace.store_content);
	if (f->failed)
		job_fail(j, &f->error);
	else
		job_go(j);
}

void tenants_workspace_change(struct request *r)
{
	static const char *const allowed[] = {"store_content", NULL};

	request_fields(r, allowed, workspace_change_from);
}
