/*
 * file_ids: documents into a container's home, before its first command.
 *
 * They are looked up before anything runs, all at once and on the pool, so that a request with a
 * bad one is refused as a whole. Copying comes when the container is there, one after the other:
 *
 *     is there such a file (then the next)? → make one without a name → write it, on the pool
 *     → give it its name → the next
 *
 * What is there already is left alone: it is this document, perhaps changed by the guest since.
 */
#include "gateway/documents.h"

#include "container/files.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define PIECE     131072
#define ID_TAIL   8
#define NAME_MOST 255 /* bytes of a file name on the guest's file system */
#define EXTENSION 16

struct documents_attach {
	struct gateway *g;
	struct store_document docs[DOCUMENTS_ATTACH_MAX];
	size_t n, i; /* i: the one that is copied */
	uint8_t container[SUP_KEY_LEN];
	char path[NAME_MOST + 1];
	documents_attach_fn then;
	void *ctx;
	struct container_ask *ask;
	struct container_upload *upload;
	int fd;       /* of the home's file; -1: none */
	bool on_pool; /* a copy is under way */
	bool dead;    /* to be freed when it ends */
	struct error err;
};

/* ---- looking up ---- */

int documents_attach_find(struct gateway *g, const struct config_key *key, const struct str *ids,
        size_t n, const char *path, struct documents_attach **ret, struct error *err)
{
	struct documents_attach *a = mem_alloc(sizeof(*a));
	const struct store_scope scope = row_scope(key);
	int r = 0;

	*a = (struct documents_attach){.g = g, .n = n, .fd = -1};
	if (n > DOCUMENTS_ATTACH_MAX)
		r = error_param(err, ERR_INVALID, path, "%s: at most %d files.", path,
		        DOCUMENTS_ATTACH_MAX);
	for (size_t i = 0; r == 0 && i < n; i++) {
		char at[128];

		r = store_document_get(
		        g->reader, &scope, ids[i], clock_wall_ms(), &a->docs[i], err);
		str_format(at, sizeof(at), "%.100s[%zu]", path, i);
		if (r == -ERR_NOT_FOUND || r == -ERR_INVALID)
			r = error_param(
			        err, ERR_INVALID, at, "%s: there is no file of this id.", at);
	}
	if (r < 0)
		free(a);
	else
		*ret = a;
	return r;
}

const char *documents_attach_path(const struct documents_attach *a)
{
	return a->path;
}

struct documents_attach *documents_attach_free(struct documents_attach *a)
{
	if (a == NULL)
		return NULL;
	container_ask_cancel(a->ask);
	a->ask = NULL;
	if (a->on_pool) {
		a->dead = true;
		return NULL;
	}
	container_upload_drop(a->upload);
	if (a->fd >= 0)
		close(a->fd);
	free(a);
	return NULL;
}

/* ---- copying ---- */

static void next(struct documents_attach *a);

static void end(struct documents_attach *a, const struct error *err)
{
	a->upload = container_upload_drop(a->upload);
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
	a->then(a->ctx, err);
}

static void on_linked(void *ctx, const struct container_files_result *r, const struct error *err)
{
	struct documents_attach *a = ctx;

	a->ask = NULL;
	if (err != NULL) {
		end(a, err);
		return;
	}
	a->i++;
	next(a);
}

static int write_all(struct documents_attach *a, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t did = write(a->fd, p, n);

		if (did < 0 && errno == EINTR)
			continue;
		if (did < 0 && (errno == ENOSPC || errno == EDQUOT)) {
			container_error_home_full(&a->err);
			return -ERR_TOO_LARGE;
		}
		if (did < 0)
			return error_errno(&a->err, errno, "a file of a container");
		p += did;
		n -= (size_t)did;
	}
	return 0;
}

static int copy(struct documents_attach *a, int blob)
{
	_cleanup_free_ char *piece = mem_alloc(PIECE);
	int r = 0;

	/* A home's image must never meet a full disk. */
	while (r == 0 && (r = gateway_check_room(a->g, &a->err)) == 0) {
		ssize_t n = read(blob, piece, PIECE);

		if (n == 0)
			return 0;
		if (n > 0)
			r = write_all(a, piece, (size_t)n);
		else if (errno != EINTR)
			r = error_errno(&a->err, errno, "a blob");
	}
	return r;
}

static void copy_work(void *arg)
{
	struct documents_attach *a = arg;
	const struct store_document *d = &a->docs[a->i];
	uint64_t size;
	int blob;

	if (blob_get(a->g->blobs, str_of(d->blob), &blob, &size, &a->err) < 0) {
		if (a->err.code == ERR_NOT_FOUND)
			error_set(&a->err, ERR_NOT_FOUND, "The file %s has been deleted.", d->id);
		return;
	}
	copy(a, blob);
	close(blob);
}

static void copy_done(void *arg)
{
	struct documents_attach *a = arg;

	a->on_pool = false;
	if (a->dead) {
		documents_attach_free(a);
		return;
	}
	close(a->fd);
	a->fd = -1;
	if (a->err.code == 0) {
		a->ask = container_upload_link(steal(a->upload), str_of(a->path), on_linked, a);
		if (a->ask != NULL)
			return;
		container_error_gone(&a->err);
	}
	end(a, &a->err);
}

static void on_created(void *ctx, const struct container_files_result *r, const struct error *err)
{
	struct documents_attach *a = ctx;
	struct error e;

	a->ask = NULL;
	if (err != NULL) {
		end(a, err);
		return;
	}
	a->fd = r->fd;
	a->upload = r->upload;
	a->err.code = 0;
	a->on_pool = pool_run(a->g->pool, copy_work, copy_done, a);
	if (a->on_pool)
		return;
	gateway_busy(&e);
	end(a, &e);
}

static void on_looked(void *ctx, const struct container_files_result *r, const struct error *err)
{
	struct documents_attach *a = ctx;

	a->ask = NULL;
	if (err == NULL) {
		a->i++;
		next(a);
	} else if (err->code == ERR_NOT_FOUND) {
		a->ask = container_ask_create(
		        a->g->containers, a->container, a->docs[a->i].bytes, on_created, a);
	} else {
		end(a, err);
	}
}

/* "<last 8 of the id>-<name without folders>"; of a name that is too long the end of its stem goes.
 */
static void make_path(struct documents_attach *a)
{
	const struct store_document *d = &a->docs[a->i];
	const char *slash = strrchr(d->filename, '/'), *name = slash ? slash + 1 : d->filename;
	const char *dot = strrchr(name, '.');
	struct str extension = str_of(dot != NULL && dot != name ? dot : NULL);
	size_t id = strlen(d->id), room = NAME_MOST - ID_TAIL - 1;
	char stem[NAME_MOST + 1];

	if (extension.n > EXTENSION || strlen(name) <= room)
		extension = (struct str){NULL, 0};
	str_copy(stem, room - extension.n + 1, str_of(name));
	str_format(a->path, sizeof(a->path), "%s-%s%.*s", d->id + (id > ID_TAIL ? id - ID_TAIL : 0),
	        stem, (int)extension.n, extension.n > 0 ? extension.p : "");
}

static void next(struct documents_attach *a)
{
	if (a->i == a->n) {
		end(a, NULL);
		return;
	}
	make_path(a);
	a->ask = container_ask_stat(a->g->containers, a->container, str_of(a->path), on_looked, a);
}

void documents_attach_copy(struct documents_attach *a, const uint8_t container[SUP_KEY_LEN],
        documents_attach_fn then, void *ctx)
{
	memcpy(a->container, container, sizeof(a->container));
	a->then = then;
	a->ctx = ctx;
	next(a);
}
