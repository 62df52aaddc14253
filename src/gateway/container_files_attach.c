/*
 * POST /containers/{id}/files with {"file_id": …}: a copy of a document into a container's home,
 * under the name that a request's file_ids get.
 *
 *     the container? ──▶ the document? (on the pool) ──▶ copied ──▶ looked at ──▶ answer
 */
#include "gateway/container_files.h"
#include "gateway/documents.h"
#include "gateway/fields.h"

#include <stdlib.h>

#define ID_MAX 256

struct attach_job {
	struct gateway *g;
	const struct config_key *key;
	struct http_exchange *x; /* NULL: the client has gone */
	struct owner owner;
	bool under_v1;
	bool busy; /* something is under way that cannot be called back */
	char container[STORE_ID_MAX + 1];
	uint8_t sup_key[SUP_KEY_LEN];
	char file_id[ID_MAX + 1];
	struct documents_attach *attach;
	struct container_ask *ask;
	struct error err;
};

static void job_free(struct attach_job *j)
{
	container_ask_cancel(j->ask);
	documents_attach_free(j->attach);
	free(j);
}

static void on_gone(void *self, enum http_gone why)
{
	struct attach_job *j = self;

	j->x = NULL;
	if (!j->busy)
		job_free(j);
}

static void job_fail(struct attach_job *j, const struct error *e)
{
	if (j->x != NULL) {
		http_exchange_set_data(j->x, NULL);
		respond_error(j->x, j->under_v1, e);
	}
	job_free(j);
}

/* The answer to something that cannot be called back. False: it was the last. */
static bool job_goes_on(struct attach_job *j, const struct error *err)
{
	j->busy = false;
	if (j->x != NULL && err == NULL)
		return true;
	if (err != NULL)
		job_fail(j, err);
	else
		job_free(j);
	return false;
}

static void on_looked(void *ctx, const struct container_files_result *r, const struct error *err)
{
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)1 << 20);
	struct attach_job *j = ctx;
	struct json_writer w;

	j->ask = NULL;
	if (err != NULL) {
		job_fail(j, err);
		return;
	}
	jw_init(&w, &out);
	container_files_write(&w, j->container, &r->files[0]);
	http_exchange_set_data(j->x, NULL);
	respond_json(j->x, 200, &out);
	job_free(j);
}

static void on_saved(void *ctx, const struct error *err)
{
	struct attach_job *j = ctx;

	if (!job_goes_on(j, err))
		return;
	j->ask = container_ask_stat(j->g->containers, j->sup_key,
	        str_of(documents_attach_path(j->attach)), on_looked, j);
}

static void on_copied(void *ctx, const struct error *err)
{
	struct attach_job *j = ctx;

	if (err != NULL) {
		job_fail(j, err);
		return;
	}
	j->busy = true;
	container_files_changed(j->g, j->sup_key, on_saved, j);
}

static void find_work(void *arg)
{
	struct attach_job *j = arg;
	struct str id = str_of(j->file_id);

	if (documents_attach_find(j->g, j->key, &id, 1, "file_id", &j->attach, &j->err) == 0)
		return;
	if (j->err.param[0] != 0)
		error_param(
		        &j->err, ERR_INVALID, "file_id", "file_id: there is no file of this id.");
}

static void find_done(void *arg)
{
	struct attach_job *j = arg;

	if (!job_goes_on(j, j->err.code != 0 ? &j->err : NULL))
		return;
	documents_attach_copy(j->attach, j->sup_key, on_copied, j);
	/* Behind the request for a home, as in an upload. */
	row_touch_later(j->g, j->key, str_of(j->container));
}

static void on_found(void *ctx, const struct error *err)
{
	struct attach_job *j = ctx;
	struct error e;

	if (!job_goes_on(j, err))
		return;
	j->busy = pool_run(j->g->pool, find_work, find_done, j);
	if (j->busy)
		return;
	gateway_busy(&e);
	job_fail(j, &e);
}

static void attach_from(struct request *r, struct fields *f)
{
	struct attach_job *j;
	struct str id = {NULL, 0};

	fields_str(f, "file_id", ID_MAX, &id);
	if (id.n == 0)
		fields_fail(f, "file_id", "file_id is missing: it names a file of /files.");
	if (f->failed) {
		respond_error(r->x, r->under_v1, &f->error);
		return;
	}
	j = mem_alloc(sizeof(*j));
	*j = (struct attach_job){
	        .g = r->g, .key = r->key, .x = r->x, .under_v1 = r->under_v1, .busy = true};
	j->owner = (struct owner){NULL, on_gone, j};
	str_copy(j->file_id, sizeof(j->file_id), id);
	str_copy(j->container, sizeof(j->container), r->params[0]);
	row_key(r->key, str_of(j->container), j->sup_key);
	http_exchange_set_data(r->x, &j->owner);
	container_files_find(r->g, r->key, r->params[0], on_found, j);
}

void container_files_attach(struct request *r)
{
	static const char *const allowed[] = {"file_id", NULL};

	request_fields(r, allowed, attach_from);
}
