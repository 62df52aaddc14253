/*
 * POST /containers/{id}/files: one file of a multipart request into a container's home.
 *
 *     head ──▶ is there such a container? ──▶ a file without a name, from the worker ──▶ the body,
 *     through upload.c, onto the pool and into it ──▶ its name ──▶ answer
 *
 * Until it has its name nobody sees the file, and it is gone with its descriptor: so an upload that
 * breaks off leaves nothing, and one that takes the place of another file does so at once. The
 * field `path` may come behind the file, as it is not needed before the end.
 */
#include "gateway/container_files.h"
#include "gateway/upload.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct upload_job {
	struct gateway *g;
	const struct config_key *key;
	bool under_v1;
	char container[STORE_ID_MAX + 1];
	uint8_t sup_key[SUP_KEY_LEN];
	struct upload *upload;   /* NULL: its end has been told */
	struct http_exchange *x; /* from then on; NULL: nobody waits */
	struct owner owner;
	bool on_pool;
	struct container_ask *ask;
	struct container_upload *file;
	int fd;
	uint64_t size;
	struct buf path, answer;
	struct error failed;
};

static void job_free(struct upload_job *j)
{
	container_ask_cancel(j->ask);
	container_upload_drop(j->file);
	if (j->fd >= 0)
		close(j->fd);
	buf_free(&j->path);
	buf_free(&j->answer);
	free(j);
}

static void job_fail(struct upload_job *j, const struct error *e)
{
	if (j->x != NULL) {
		http_exchange_set_data(j->x, NULL);
		respond_error(j->x, j->under_v1, e);
	}
	job_free(j);
}

/* The client may go while the name is given. The file is whole: it gets its name all the same. */
static void on_gone(void *self, enum http_gone why)
{
	((struct upload_job *)self)->x = NULL;
}

/* ---- the end ---- */

static void job_answer(struct upload_job *j)
{
	if (j->x != NULL) {
		http_exchange_set_data(j->x, NULL);
		respond_json(j->x, 200, &j->answer);
	}
	job_free(j);
}

static void on_saved(void *ctx, const struct error *err)
{
	if (err != NULL)
		job_fail(ctx, err);
	else
		job_answer(ctx);
}

static void on_synced(void *ctx, const struct container_files_result *r, const struct error *err)
{
	struct upload_job *j = ctx;

	j->ask = NULL;
	if (err != NULL)
		job_fail(j, err);
	else
		container_files_changed(j->g, j->sup_key, on_saved, j);
}

static void on_linked(void *ctx, const struct container_files_result *r, const struct error *err)
{
	struct upload_job *j = ctx;
	struct json_writer w;

	j->ask = NULL;
	if (err != NULL) {
		job_fail(j, err);
		return;
	}
	jw_init(&w, &j->answer);
	container_files_write(&w, j->container, &r->files[0]);
	if (j->g->config->container.durable_power)
		j->ask = container_ask_sync(j->g->containers, j->sup_key, on_synced, j);
	else
		container_files_changed(j->g, j->sup_key, on_saved, j);
}

/* Room that was set aside for more than came is given back. */
static void trim_work(void *arg)
{
	struct upload_job *j = arg;

	if (ftruncate(j->fd, (off_t)j->size) < 0)
		error_errno(&j->failed, errno, "an uploaded file");
}

static void trim_done(void *arg)
{
	struct upload_job *j = arg;
	struct str path = {j->path.data, j->path.len};

	j->on_pool = false;
	if (j->failed.code == 0) {
		j->ask = container_upload_link(steal(j->file), path, on_linked, j);
		if (j->ask != NULL)
			return;
		container_error_gone(&j->failed);
	}
	job_fail(j, &j->failed);
}

/* ---- the body ---- */

static int on_write(void *ctx, struct str bytes, struct error *err)
{
	struct upload_job *j = ctx;
	int r = gateway_check_room(j->g, err); /* a home's image must never meet a full disk */

	if (r < 0)
		return r;
	while (bytes.n > 0) {
		ssize_t n = write(j->fd, bytes.p, bytes.n);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == ENOSPC || errno == EDQUOT)) {
			container_error_home_full(err);
			return -ERR_TOO_LARGE;
		}
		if (n < 0)
			return error_errno(err, errno, "an uploaded file");
		bytes = (struct str){bytes.p + n, bytes.n - (size_t)n};
	}
	return 0;
}

/* Where the file is to be: `path`, else its own name. */
static int path_read(struct upload_job *j, const struct upload *u, struct error *e)
{
	struct str path = upload_field(u, "path");

	if (!upload_has_file(u))
		return error_param(e, ERR_INVALID, "file", "There is no part named file.");
	if (path.p == NULL)
		path = upload_filename(u);
	if (!container_path_valid(path))
		return error_param(e, ERR_INVALID, "path",
		        "path must be relative to the home folder, without empty parts, \".\" and "
		        "\"..\", and at most %d bytes.",
		        WORKER_PATH_MAX);
	buf_append(&j->path, path.p, path.n);
	return 0;
}

static void on_done(void *ctx, struct upload *u, struct http_exchange *x, const struct error *err)
{
	struct upload_job *j = ctx;
	struct error e;

	j->upload = NULL;
	j->x = x;
	if (err != NULL)
		e = *err;
	if (err != NULL || path_read(j, u, &e) < 0) {
		if (x != NULL)
			respond_error(x, j->under_v1, &e);
		j->x = NULL;
		if (!j->on_pool)
			job_free(j);
		return;
	}
	j->size = upload_size(u);
	if (x != NULL)
		http_exchange_set_data(x, &j->owner);
	j->on_pool = pool_run(j->g->pool, trim_work, trim_done, j);
	if (j->on_pool)
		return;
	gateway_busy(&e);
	job_fail(j, &e);
}

/* ---- begin ---- */

static void on_created(void *ctx, const struct container_files_result *r, const struct error *err)
{
	struct upload_job *j = ctx;

	j->ask = NULL;
	if (err != NULL) {
		upload_fail(j->upload, err);
		return;
	}
	j->fd = r->fd;
	j->file = r->upload;
	/* The container may have been deleted since it was found, and this made a home anew: it
	 * must have a row, whatever becomes of the upload. */
	row_touch_later(j->g, j->key, str_of(j->container));
	upload_go(j->upload);
}

static void on_found(void *ctx, const struct error *err)
{
	struct upload_job *j = ctx;

	j->on_pool = false;
	if (j->upload == NULL) {
		job_free(j);
		return;
	}
	if (err != NULL) {
		upload_fail(j->upload, err);
		return;
	}
	j->ask = container_ask_create(
	        j->g->containers, j->sup_key, upload_expected(j->upload), on_created, j);
}

static bool is_json(struct str type)
{
	static const struct str json = {"application/json", 16};

	return type.n >= json.n && str_ieq((struct str){type.p, json.n}, json) &&
	       (type.n == json.n || strchr("; \t", type.p[json.n]) != NULL);
}

bool container_files_create(struct request *r, size_t *max_body)
{
	static const char *const fields[] = {"path", NULL};
	const struct upload_options o = {fields, r->g->config->limits.file_bytes};
	struct upload_handler h = {NULL, on_write, on_done};
	struct upload_job *j;

	if (!request_may_execute(r))
		return true;
	if (is_json(http_request_header(r->x, "content-type")))
		return false;
	h.ctx = j = mem_alloc(sizeof(*j));
	*j = (struct upload_job){.g = r->g, .key = r->key, .under_v1 = r->under_v1, .fd = -1};
	j->owner = (struct owner){NULL, on_gone, j};
	buf_init(&j->path, WORKER_PATH_MAX);
	buf_init(&j->answer, (size_t)1 << 20);
	str_copy(j->container, sizeof(j->container), r->params[0]);
	row_key(r->key, str_of(j->container), j->sup_key);
	j->upload = upload_begin(r, &o, &h, max_body);
	if (j->upload == NULL) {
		job_free(j);
		return true;
	}
	j->on_pool = true;
	container_files_find(r->g, r->key, r->params[0], on_found, j);
	return true;
}
