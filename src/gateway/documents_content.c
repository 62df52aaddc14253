/*
 * GET /files/{id}/content.
 *
 * The blob is opened on the pool, then sent piece by piece: the next piece is read, on the pool
 * again, when what waits for the client has drained. So a download costs two pieces of memory
 * whatever its size, and a disk that is slow keeps nobody else waiting. The descriptor keeps the
 * content whole when the file is deleted meanwhile.
 *
 * A file that a client uploaded is not given back (it has it), but for the purposes where OpenAI's
 * API does so.
 */
#include "gateway/documents.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define PIECE 131072

struct content {
	struct gateway *g;
	const struct config_key *key;
	struct http_exchange *x; /* NULL: the client has gone */
	struct owner owner;
	bool under_v1;
	enum documents_shape shape;
	char id[STORE_ID_MAX + 1];
	struct store_document d;
	int fd;
	uint64_t size, sent;
	bool busy; /* a piece is being read */
	char *piece;
	size_t n;
	struct error err;
};

static void content_free(struct content *c)
{
	if (c->x != NULL)
		http_exchange_set_data(c->x, NULL);
	if (c->fd >= 0)
		close(c->fd);
	free(c->piece);
	free(c);
}

static void on_gone(void *self, enum http_gone why)
{
	struct content *c = self;

	c->x = NULL;
	if (!c->busy)
		content_free(c);
}

static void fail(struct content *c, const struct error *e)
{
	if (c->x != NULL && http_started(c->x)) {
		log_text(LOG_ERROR, "content_failed", "%s", e->text);
		http_abort(c->x);
	} else if (c->x != NULL) {
		respond_error(c->x, c->under_v1, e);
	}
	content_free(c);
}

/* ---- pieces ---- */

static void read_work(void *arg)
{
	struct content *c = arg;
	ssize_t n;

	do
		n = pread(c->fd, c->piece, PIECE, (off_t)c->sent);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		error_errno(&c->err, errno, "read a blob");
	else if (n == 0)
		error_set(&c->err, ERR_IO, "a blob is shorter than it was");
	else
		c->n = (size_t)n;
}

static void go_on(struct content *c);

static void read_done(void *arg)
{
	struct content *c = arg;

	c->busy = false;
	if (c->x == NULL) {
		content_free(c);
		return;
	}
	if (c->err.code != 0) {
		fail(c, &c->err);
		return;
	}
	c->sent += c->n;
	http_write(c->x, (struct str){c->piece, c->n});
	if (!http_above_high_water(c->x))
		go_on(c);
}

static void go_on(struct content *c)
{
	struct error e;

	if (c->sent == c->size) {
		http_exchange_set_data(c->x, NULL);
		http_finish(c->x);
		c->x = NULL;
		content_free(c);
		return;
	}
	c->busy = pool_run(c->g->pool, read_work, read_done, c);
	if (!c->busy) {
		error_set(&e, ERR_UNAVAILABLE, "the server has too much to do");
		fail(c, &e);
	}
}

static void on_drain(void *self)
{
	struct content *c = self;

	if (!c->busy && c->piece != NULL)
		go_on(c);
}

/* ---- opening ---- */

/* Those that OpenAI's API gives back to who uploaded them. */
static bool may_download(const struct content *c)
{
	static const char *const purposes[] = {"batch", "fine-tune", "evals"};

	if (c->d.downloadable)
		return true;
	for (size_t i = 0; c->shape == DOCUMENTS_OPENAI && i < 3; i++)
		if (strcmp(c->d.purpose, purposes[i]) == 0)
			return true;
	return false;
}

static void refuse(struct content *c)
{
	if (c->shape == DOCUMENTS_OPENAI)
		error_set(&c->err, ERR_INVALID, "Not allowed to download files of purpose: %s",
		        c->d.purpose);
	else
		error_set(&c->err, ERR_INVALID,
		        "This file was uploaded; only files that were made here can be "
		        "downloaded.");
	str_copy(c->err.type, sizeof(c->err.type), STR("file_not_downloadable"));
}

static void open_work(void *arg)
{
	struct content *c = arg;
	const struct store_scope scope = row_scope(c->key);
	int r = store_document_get(
	        c->g->reader, &scope, str_of(c->id), clock_wall_ms(), &c->d, &c->err);

	if (r == 0 && !may_download(c)) {
		refuse(c);
		return;
	}
	if (r == 0)
		r = blob_get(c->g->blobs, str_of(c->d.blob), &c->fd, &c->size, &c->err);
	/* It was deleted just now, or the folder was tampered with. */
	if (r == -ERR_NOT_FOUND)
		error_set(&c->err, ERR_NOT_FOUND, "There is no file of this id.");
}

/* attachment; filename="ascii"; filename*=UTF-8''percent */
static void say_name(struct http_exchange *x, const char *filename)
{
	const char *slash = strrchr(filename, '/'), *name = slash != NULL ? slash + 1 : filename;
	_cleanup_buf_ struct buf b = BUF_INIT(16384);

	buf_puts(&b, "attachment; filename=\"");
	for (const char *p = name; *p != 0; p++)
		buf_putc(&b, *p >= 0x20 && *p < 0x7f && *p != '"' && *p != '\\' ? *p : '_');
	buf_puts(&b, "\"; filename*=UTF-8''");
	buf_percent(&b, str_of(name), BUF_UNRESERVED);
	if (buf_error(&b) == 0)
		http_response_header(x, "Content-Disposition", buf_cstr(&b));
}

static void open_done(void *arg)
{
	struct content *c = arg;
	char type[sizeof(c->d.mime) + 16];

	c->busy = false;
	if (c->x == NULL) {
		content_free(c);
		return;
	}
	if (c->err.code != 0) {
		fail(c, &c->err);
		return;
	}
	say_name(c->x, c->d.filename);
	/* It is a client's own content: no browser should make anything of it. */
	http_response_header(c->x, "X-Content-Type-Options", "nosniff");
	if (str_starts(str_of(c->d.mime), "text/"))
		str_format(type, sizeof(type), "%s; charset=utf-8", c->d.mime);
	else
		str_copy(type, sizeof(type), str_of(c->d.mime));
	http_respond_start_length(c->x, 200, type, c->size);
	if (str_is(http_request_method(c->x), "HEAD"))
		c->sent = c->size;
	c->piece = mem_alloc(PIECE);
	go_on(c);
}

void documents_content(struct request *r)
{
	struct content *c = mem_alloc(sizeof(*c));
	struct error e;

	*c = (struct content){
	        .g = r->g, .key = r->key, .x = r->x, .under_v1 = r->under_v1, .fd = -1};
	c->shape = documents_shape(r->x, r->under_v1);
	c->owner = (struct owner){on_drain, on_gone, c};
	http_exchange_set_data(r->x, &c->owner);
	if (documents_check_scope(r, &e) < 0) {
		fail(c, &e);
		return;
	}
	if (!str_copy(c->id, sizeof(c->id), r->params[0])) {
		error_set(&e, ERR_NOT_FOUND, "There is no file of this id.");
		fail(c, &e);
		return;
	}
	c->busy = pool_run(r->g->pool, open_work, open_done, c);
	if (!c->busy) {
		gateway_busy(&e);
		fail(c, &e);
	}
}
