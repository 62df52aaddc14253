/* See containers.h. */
#include "gateway/containers.h"

#include "gateway/network.h"
#include "gateway/saving.h"

#include <stdlib.h>

#define LIST_MAX 100

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

struct shown {
	struct job *j;
	const struct store_container *row;
};

static void on_status(void *ctx, const struct container_status *s, const struct error *err)
{
	const struct shown shown = *(struct shown *)ctx;
	struct job *j = shown.j;
	struct json_writer w;

	free(ctx);
	jw_init(&w, &j->out);
	container_write(&w, j->g, shown.row, s != NULL ? s->state : SUP_ST_ASLEEP);
	job_answer(j);
}

void containers_answer(struct job *j, const struct store_container *row)
{
	struct shown *shown = mem_alloc(sizeof(*shown));
	uint8_t key[SUP_KEY_LEN];

	*shown = (struct shown){j, row};
	row_key(j->key, str_of(row->id), key);
	container_ask_status(j->g->containers, key, on_status, shown);
}

/* ---- many ---- */

struct listing {
	struct store_list_query query;
	char after[STORE_ID_MAX + 1], name[STORE_NAME_MAX + 1];
	struct store_list list;
	enum sup_state *states;
	size_t asked;
};

static void listing_clear(void *own)
{
	struct listing *l = own;

	store_list_clear(&l->list);
	free(l->states);
}

static void list_work(struct job *j)
{
	struct listing *l = j->own;

	j->result = store_container_list(j->g->store, &j->scope, &l->query, &l->list, &j->err);
}

static void list_answer(struct job *j)
{
	const struct listing *l = j->own;
	struct json_writer w;

	jw_init(&w, &j->out);
	jw_object(&w);
	jw_kcstr(&w, "object", "list");
	jw_key(&w, "data");
	jw_array(&w);
	for (size_t i = 0; i < l->list.n; i++)
		container_write(&w, j->g, &l->list.rows[i], l->states[i]);
	jw_end(&w);
	jw_kcstr(&w, "first_id", l->list.n > 0 ? l->list.rows[0].id : NULL);
	jw_kcstr(&w, "last_id", l->list.n > 0 ? l->list.rows[l->list.n - 1].id : NULL);
	jw_kbool(&w, "has_more", l->list.has_more);
	jw_end(&w);
	job_answer(j);
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
	struct listing *l = j->own;

	if (s != NULL)
		l->states[a->i] = s->state;
	free(a);
	if (--l->asked == 0)
		list_answer(j);
}

static void list_done(struct job *j)
{
	struct listing *l = j->own;
	uint8_t key[SUP_KEY_LEN];

	if (j->result < 0) {
		job_answer(j);
		return;
	}
	if (l->list.n == 0) {
		list_answer(j);
		return;
	}
	l->states = mem_array(l->list.n, sizeof(*l->states));
	l->asked = l->list.n;
	for (size_t i = 0; i < l->list.n; i++) {
		struct list_ask *a = mem_alloc(sizeof(*a));

		*a = (struct list_ask){j, i};
		row_key(j->key, str_of(l->list.rows[i].id), key);
		container_ask_status(j->g->containers, key, on_list_status, a);
	}
}

static int read_query(struct listing *l, struct str q, struct error *err)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);
	uint64_t limit = 20;

	if (http_query_get(q, "limit", &b) &&
	        (!str_to_u64((struct str){b.data, b.len}, &limit) || limit < 1 || limit > LIST_MAX))
		return error_param(err, ERR_INVALID, "limit",
		        "limit must be a whole number from 1 to %d.", LIST_MAX);
	buf_reset(&b);
	if (http_query_get(q, "order", &b)) {
		struct str order = {b.data, b.len};

		if (!str_is(order, "asc") && !str_is(order, "desc"))
			return error_param(err, ERR_INVALID, "order", "order must be asc or desc.");
		l->query.ascending = str_is(order, "asc");
	}
	buf_reset(&b);
	if (http_query_get(q, "after", &b) &&
	        str_copy(l->after, sizeof(l->after), (struct str){b.data, b.len}))
		l->query.after = str_of(l->after);
	buf_reset(&b);
	if (http_query_get(q, "name", &b) &&
	        str_copy(l->name, sizeof(l->name), (struct str){b.data, b.len}))
		l->query.name = str_of(l->name);
	l->query.limit = (uint32_t)limit;
	return 0;
}

void containers_list(struct request *r)
{
	struct job *j = job_new(r, list_work, sizeof(struct listing));
	struct error e;

	j->after = list_done;
	j->clear = listing_clear;
	if (read_query(j->own, j->query, &e) < 0)
		job_fail(j, &e);
	else
		job_go(j);
}

/* ---- one ---- */

static void explain(struct job *j)
{
	if (j->result == -ERR_NOT_FOUND)
		error_set(&j->err, ERR_NOT_FOUND, "There is no container of this id.");
}

static void key_of(const struct job *j, uint8_t key[SUP_KEY_LEN])
{
	row_key(j->key, j->params[0], key);
}

static void get_work(struct job *j)
{
	j->result = store_container_get(j->g->store, &j->scope, j->params[0], j->own, &j->err);
	explain(j);
}

static void get_done(struct job *j)
{
	if (j->result < 0)
		job_answer(j);
	else
		containers_answer(j, j->own);
}

/* One that was not live sleeps already. */
static void on_slept(void *ctx, const struct container_status *s, const struct error *err)
{
	struct job *j = ctx;
	struct error e;

	if (err != NULL && err->code == ERR_CONFLICT) {
		error_set(&e, ERR_CONFLICT,
		        "The container is in use: it can be put to sleep once its commands have "
		        "ended.");
		job_fail(j, &e);
	} else if (err != NULL) {
		job_fail(j, err);
	} else {
		containers_answer(j, j->own);
	}
}

static void sleep_done(struct job *j)
{
	uint8_t key[SUP_KEY_LEN];

	if (j->result < 0) {
		job_answer(j);
		return;
	}
	key_of(j, key);
	container_order_sleep(j->g->containers, key, on_slept, j);
}

/* ---- removing one ---- */

static void deleted_work(struct job *j)
{
	struct json_writer w;

	j->result = saving_forget(j->g, &j->scope, j->params[0], true, &j->err);
	if (j->result == 0)
		j->result = store_container_delete(j->g->store, &j->scope, j->params[0], &j->err);
	explain(j);
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_kstr(&w, "id", j->params[0]);
	jw_kcstr(&w, "object", "container.deleted");
	jw_kbool(&w, "deleted", true);
	jw_end(&w);
}

static void on_deleted(void *ctx, const struct container_status *s, const struct error *err)
{
	if (err != NULL)
		job_fail(ctx, err);
	else
		job_again(ctx, deleted_work, NULL);
}

static void mark(struct job *j)
{
	j->result = store_container_mark_deleting(
	        j->g->store, &j->scope, j->params[0], clock_wall_ms(), &j->err);
	if (j->result == 0)
		j->result = saving_forget(j->g, &j->scope, j->params[0], false, &j->err);
}

static void marked(struct job *j)
{
	uint8_t key[SUP_KEY_LEN];

	if (j->result < 0) {
		job_answer(j);
		return;
	}
	key_of(j, key);
	container_order_delete(j->g->containers, key, on_deleted, j);
}

static void delete_rowless_work(struct job *j)
{
	j->result = row_touch(j->g, j->key, j->params[0], &j->err);
	if (j->result == 0)
		mark(j);
	explain(j);
}

/*
 * A use that was under way when the container was deleted made it anew, and its row comes only with
 * the end of that use: what it left is deleted all the same.
 */
static void on_rowless_status(void *ctx, const struct container_status *s, const struct error *err)
{
	if (s == NULL || s->state == SUP_ST_UNKNOWN)
		job_answer(ctx);
	else
		job_again(ctx, delete_rowless_work, marked);
}

static void delete_work(struct job *j)
{
	mark(j);
	explain(j);
}

static void delete_done(struct job *j)
{
	uint8_t key[SUP_KEY_LEN];

	if (j->result != -ERR_NOT_FOUND) {
		marked(j);
		return;
	}
	key_of(j, key);
	container_ask_status(j->g->containers, key, on_rowless_status, j);
}

/* ---- by id ---- */

static void row_clear(void *own)
{
	store_container_clear(own);
}

static void by_id(struct request *r, void (*work)(struct job *j), void (*after)(struct job *j))
{
	struct job *j = job_new(r, work, sizeof(struct store_container));
	struct error e;

	j->after = after;
	j->clear = row_clear;
	if (api_container_id_valid(j->params[0])) {
		job_go(j);
		return;
	}
	error_set(&e, ERR_NOT_FOUND, "There is no container of this id.");
	job_fail(j, &e);
}

void containers_get(struct request *r)
{
	by_id(r, get_work, get_done);
}

void containers_sleep(struct request *r)
{
	by_id(r, get_work, sleep_done);
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
	by_id(r, delete_work, delete_done);
}
