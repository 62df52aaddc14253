/*
 * Files of containers: list, get, delete, promote, and the first half of a download.
 *
 * Every request first asks the store whether the container is there, in the key's own workspace;
 * what it is doing does not matter. Then the container's worker is asked.
 */
#include "gateway/container_files.h"

#include "gateway/documents.h"
#include "gateway/saving.h"

#include <stdlib.h>

#define LIST_MAX     WORKER_LIST_MAX
#define LIST_DEFAULT 100
#define USED_MS      60000 /* last use is noted this exactly */

/* ---- finding the container ---- */

struct find_job {
	struct gateway *g;
	const struct config_key *key;
	char id[STORE_ID_MAX + 1];
	container_files_found_fn fn;
	void *ctx;
	struct error err; /* code 0: found */
};

static void find_work(void *arg)
{
	struct find_job *j = arg;
	struct store_scope scope = row_scope(j->key);
	struct store_container row = {0};
	int r = api_container_id_valid(str_of(j->id))
	                ? store_container_get(j->g->reader, &scope, str_of(j->id), &row, &j->err)
	                : -ERR_NOT_FOUND;

	if (r == -ERR_NOT_FOUND || (r == 0 && row.deleting))
		error_set(&j->err, ERR_NOT_FOUND, "There is no container of this id.");
	else if (r == 0 && clock_wall_ms() - row.last_used_ms > USED_MS)
		row_touch(j->g, j->key, str_of(j->id), &j->err);
	store_container_clear(&row);
}

static void on_home(void *ctx, const struct error *err)
{
	struct find_job *j = ctx;

	j->fn(j->ctx, err);
	free(j);
}

/* A worker would make an empty home where the saved one is not on this machine. */
static void find_done(void *arg)
{
	struct find_job *j = arg;
	uint8_t key[SUP_KEY_LEN];

	if (j->err.code != 0 || j->g->saving == NULL) {
		on_home(j, j->err.code != 0 ? &j->err : NULL);
		return;
	}
	row_key(j->key, str_of(j->id), key);
	saving_prepare(j->g->saving, key, on_home, j);
}

static void find_failed(evutil_socket_t fd, short what, void *arg)
{
	find_done(arg);
}

void container_files_find(struct gateway *g, const struct config_key *key, struct str id,
        container_files_found_fn fn, void *ctx)
{
	const struct timeval now = {0, 0};
	struct find_job *j = mem_alloc(sizeof(*j));

	*j = (struct find_job){.g = g, .key = key, .fn = fn, .ctx = ctx};
	if (!str_copy(j->id, sizeof(j->id), id))
		j->id[0] = 0;
	if (pool_run(g->pool, find_work, find_done, j))
		return;
	gateway_busy(&j->err);
	if (event_base_once(g->base, -1, EV_TIMEOUT, find_failed, j, &now) < 0)
		BUG("no memory for an event");
}

struct change_job {
	container_files_found_fn then;
	void *ctx;
};

static void on_saved(void *ctx, const struct error *err)
{
	struct change_job *j = ctx;
	struct error e;

	if (err != NULL)
		error_set(&e, ERR_UNAVAILABLE, "The container's files could not be saved.");
	j->then(j->ctx, err != NULL ? &e : NULL);
	free(j);
}

void container_files_changed(
        struct gateway *g, const uint8_t key[SUP_KEY_LEN], container_files_found_fn then, void *ctx)
{
	struct change_job *j;

	if (g->saving == NULL) {
		then(ctx, NULL);
		return;
	}
	j = mem_alloc(sizeof(*j));
	*j = (struct change_job){.then = then, .ctx = ctx};
	saving_wrote(g->saving, key, on_saved, j);
}

/* ---- the object ---- */

static void id_write(struct json_writer *w, const char *key, struct str path)
{
	_cleanup_buf_ struct buf id = BUF_INIT(2 * WORKER_PATH_MAX);

	api_file_id_append(&id, path);
	jw_kstr(w, key, (struct str){id.data, id.len});
}

void container_files_write(
        struct json_writer *w, const char *container, const struct container_file *f)
{
	jw_object(w);
	id_write(w, "id", f->path);
	jw_kcstr(w, "object", "container.file");
	jw_kcstr(w, "container_id", container);
	jw_ki64(w, "bytes", (int64_t)f->size);
	jw_ki64(w, "created_at", (int64_t)(f->ctime_ns / 1000000000));
	jw_kstr(w, "path", f->path);
	/* Who wrote it is not recorded. */
	jw_kcstr(w, "source", "assistant");
	jw_end(w);
}

/* ---- requests ---- */

enum file_op { FILE_LIST, FILE_GET, FILE_DELETE, FILE_CONTENT, FILE_PROMOTE };

struct file_job {
	struct gateway *g;
	const struct config_key *account;
	struct http_exchange *x; /* NULL: the client has gone */
	struct owner owner;
	bool under_v1;
	enum file_op op;
	char container[STORE_ID_MAX + 1];
	uint8_t key[SUP_KEY_LEN];
	struct buf path; /* of the file; of a list: what it begins after */
	uint32_t limit;
	bool finding;   /* the container, */
	bool promoting; /* or there for the documents, */
	bool saving;    /* or being saved */
	struct container_ask *ask;
};

static void job_free(struct file_job *j)
{
	container_ask_cancel(j->ask);
	if (j->x != NULL)
		http_exchange_set_data(j->x, NULL);
	buf_free(&j->path);
	free(j);
}

static void on_gone(void *self, enum http_gone why)
{
	struct file_job *j = self;

	j->x = NULL;
	if (!j->finding && !j->promoting && !j->saving)
		job_free(j);
}

static void job_fail(struct file_job *j, const struct error *e)
{
	http_exchange_set_data(j->x, NULL);
	respond_error(j->x, j->under_v1, e);
	j->x = NULL;
	job_free(j);
}

static void job_answer(struct file_job *j, struct buf *body)
{
	http_exchange_set_data(j->x, NULL);
	respond_json(j->x, 200, body);
	j->x = NULL;
	job_free(j);
}

static void list_answer(struct file_job *j, const struct container_files_result *r)
{
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)8 << 20);
	struct json_writer w;

	jw_init(&w, &out);
	jw_object(&w);
	jw_kcstr(&w, "object", "list");
	jw_key(&w, "data");
	jw_array(&w);
	for (size_t i = 0; i < r->n_files; i++)
		container_files_write(&w, j->container, &r->files[i]);
	jw_end(&w);
	if (r->n_files > 0) {
		id_write(&w, "first_id", r->files[0].path);
		id_write(&w, "last_id", r->files[r->n_files - 1].path);
	} else {
		jw_knull(&w, "first_id");
		jw_knull(&w, "last_id");
	}
	jw_kbool(&w, "has_more", r->more);
	jw_end(&w);
	job_answer(j, &out);
}

static void file_answer(struct file_job *j, const struct container_file *f)
{
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)1 << 20);
	struct json_writer w;

	jw_init(&w, &out);
	container_files_write(&w, j->container, f);
	job_answer(j, &out);
}

static void deleted_answer(struct file_job *j)
{
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)1 << 20);
	struct json_writer w;

	jw_init(&w, &out);
	jw_object(&w);
	id_write(&w, "id", (struct str){j->path.data, j->path.len});
	jw_kcstr(&w, "object", "container.file.deleted");
	jw_kbool(&w, "deleted", true);
	jw_end(&w);
	job_answer(j, &out);
}

static void on_delete_saved(void *ctx, const struct error *err)
{
	struct file_job *j = ctx;

	j->saving = false;
	if (j->x == NULL)
		job_free(j);
	else if (err != NULL)
		job_fail(j, err);
	else
		deleted_answer(j);
}

static void content_answer(struct file_job *j, int fd)
{
	struct http_exchange *x = steal(j->x);

	http_exchange_set_data(x, NULL);
	container_files_send(j->g, x, j->under_v1, fd, (struct str){j->path.data, j->path.len});
	job_free(j);
}

static void on_promoted(void *ctx, const struct store_document *d, const struct error *err)
{
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)1 << 20);
	struct file_job *j = ctx;
	struct json_writer w;

	j->promoting = false;
	if (j->x == NULL) {
		job_free(j);
		return;
	}
	if (err != NULL) {
		job_fail(j, err);
		return;
	}
	jw_init(&w, &out);
	documents_write(&w, d, documents_shape(j->x, j->under_v1));
	job_answer(j, &out);
}

static void on_answer(void *ctx, const struct container_files_result *r, const struct error *err)
{
	struct file_job *j = ctx;

	j->ask = NULL;
	if (err != NULL) {
		job_fail(j, err);
		return;
	}
	switch (j->op) {
	case FILE_LIST:
		list_answer(j, r);
		break;
	case FILE_GET:
		file_answer(j, &r->files[0]);
		break;
	case FILE_DELETE:
		j->saving = true;
		container_files_changed(j->g, j->key, on_delete_saved, j);
		break;
	case FILE_CONTENT:
		content_answer(j, r->fd);
		break;
	case FILE_PROMOTE:
		j->promoting = true;
		documents_promote(j->g, j->account, r->fd, (struct str){j->path.data, j->path.len},
		        on_promoted, j);
		break;
	}
}

static void on_found(void *ctx, const struct error *err)
{
	struct file_job *j = ctx;
	struct container_client *c = j->g->containers;
	struct str path = {j->path.data, j->path.len};

	j->finding = false;
	if (j->x == NULL) {
		job_free(j);
		return;
	}
	if (err != NULL) {
		job_fail(j, err);
		return;
	}
	switch (j->op) {
	case FILE_LIST:
		j->ask = container_ask_list(c, j->key, path, j->limit, on_answer, j);
		break;
	case FILE_GET:
		j->ask = container_ask_stat(c, j->key, path, on_answer, j);
		break;
	case FILE_DELETE:
		j->ask = container_ask_delete(c, j->key, path, on_answer, j);
		break;
	case FILE_CONTENT:
	case FILE_PROMOTE:
		j->ask = container_ask_open(c, j->key, path, on_answer, j);
		break;
	}
}

static struct file_job *job_new(struct request *r, enum file_op op)
{
	struct file_job *j = mem_alloc(sizeof(*j));

	*j = (struct file_job){
	        .g = r->g, .account = r->key, .x = r->x, .under_v1 = r->under_v1, .op = op};
	j->owner = (struct owner){NULL, on_gone, j};
	buf_init(&j->path, WORKER_PATH_MAX);
	str_copy(j->container, sizeof(j->container), r->params[0]);
	row_key(r->key, str_of(j->container), j->key);
	http_exchange_set_data(r->x, &j->owner);
	return j;
}

static void job_start(struct file_job *j, struct request *r)
{
	j->finding = true;
	container_files_find(j->g, r->key, r->params[0], on_found, j);
}

/* Reads the id of a file into the job. */
static bool read_id(struct file_job *j, struct str id)
{
	return api_file_id_read(id, &j->path) &&
	       container_path_valid((struct str){j->path.data, j->path.len});
}

static int read_query(struct file_job *j, struct str q, struct error *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(2 * WORKER_PATH_MAX);
	uint64_t limit = LIST_DEFAULT;

	if (http_query_get(q, "limit", &b) &&
	        (!str_to_u64((struct str){b.data, b.len}, &limit) || limit < 1 || limit > LIST_MAX))
		return error_param(e, ERR_INVALID, "limit",
		        "limit must be a whole number from 1 to %d.", LIST_MAX);
	buf_reset(&b);
	if (http_query_get(q, "order", &b) && !str_is((struct str){b.data, b.len}, "asc"))
		return error_param(e, ERR_INVALID, "order",
		        "Files are listed in the order of their paths: order can only be asc.");
	buf_reset(&b);
	if (http_query_get(q, "after", &b) && !read_id(j, (struct str){b.data, b.len}))
		return error_param(
		        e, ERR_INVALID, "after", "after must be the id of a container file.");
	j->limit = (uint32_t)limit;
	return 0;
}

void container_files_list(struct request *r)
{
	struct file_job *j = job_new(r, FILE_LIST);
	struct error e;

	if (read_query(j, http_request_query(r->x), &e) < 0)
		job_fail(j, &e);
	else
		job_start(j, r);
}

static void by_id(struct request *r, enum file_op op)
{
	struct file_job *j = job_new(r, op);
	struct error e;

	if (read_id(j, r->params[1])) {
		job_start(j, r);
		return;
	}
	error_set(&e, ERR_NOT_FOUND, "There is no such file.");
	job_fail(j, &e);
}

void container_files_get(struct request *r)
{
	by_id(r, FILE_GET);
}

void container_files_delete(struct request *r)
{
	by_id(r, FILE_DELETE);
}

void container_files_content(struct request *r)
{
	by_id(r, FILE_CONTENT);
}

void container_files_promote(struct request *r)
{
	by_id(r, FILE_PROMOTE);
}
