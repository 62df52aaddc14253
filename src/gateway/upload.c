/*
 * Theory of operation: two buffers. One is filled from the socket while the pool writes the other.
 * When the one that fills has FILL_MAX bytes and the other is still being written, the body is
 * paused, and the client waits. What was read already when the pause began (at most one read of the
 * server's, 64 KiB) still goes in.
 *
 * An upload ends in one place, finish(): when the body is whole or something failed or the client
 * has gone, and nothing is being written.
 */
#include "gateway/upload.h"

#include "http/multipart.h"

#include <stdlib.h>

#define FILL_MAX (128u << 10)
#define SLACK    (66u << 10) /* beyond it: one read, and what the parser held back before */
#define OVERHEAD (2u << 20)  /* of a body around its file: other parts, headers */
#define AT_ONCE  1024        /* uploads of one gateway */

struct upload {
	struct gateway *g;
	struct http_exchange *x; /* NULL: the client has gone */
	struct owner owner;
	struct upload_handler h;
	struct upload_options o;
	struct multipart *parser;
	uint64_t expected;
	struct buf fill, writing;
	bool going;
	bool busy;  /* a write is under way */
	bool ended; /* no more of the body is taken */
	bool whole; /* it ended as it should */
	bool is_file, has_file;
	char *filename, *type;
	size_t filename_len;
	uint64_t size;
	struct buf fields[UPLOAD_FIELDS_MAX]; /* values, in the order of o.fields */
	bool given[UPLOAD_FIELDS_MAX];
	size_t field; /* of the part that is read; UPLOAD_FIELDS_MAX: none */
	struct error failed, write_failed;
};

static size_t n_uploads; /* of this process */

static void upload_free(struct upload *u)
{
	multipart_free(u->parser);
	buf_free(&u->fill);
	buf_free(&u->writing);
	for (size_t i = 0; i < UPLOAD_FIELDS_MAX; i++)
		buf_free(&u->fields[i]);
	free(u->filename);
	free(u->type);
	free(u);
	n_uploads--;
}

/* ---- the end ---- */

static void finish(struct upload *u)
{
	if (!u->ended || u->busy || u->fill.len > 0)
		return;
	if (u->x != NULL)
		http_exchange_set_data(u->x, NULL);
	/* The server may have refused the rest of the body by itself, and the answer is not out. */
	if (u->x != NULL && http_started(u->x))
		u->x = NULL;
	u->h.done(u->h.ctx, u, u->x, u->whole ? NULL : &u->failed);
	upload_free(u);
}

/* Nothing of the body is wanted any more, and nothing that came is written. */
static void stop(struct upload *u, const struct error *err)
{
	if (u->ended && !u->whole)
		return;
	u->ended = true;
	u->whole = false;
	u->failed = *err;
	buf_free(&u->fill);
	if (u->x != NULL)
		http_body_pause(u->x, true);
}

void upload_fail(struct upload *u, const struct error *err)
{
	stop(u, err);
	finish(u);
}

static void on_gone(void *self, enum http_gone why)
{
	struct upload *u = self;
	struct error e;

	u->x = NULL;
	error_set(&e, ERR_CANCELED, "The client has gone.");
	upload_fail(u, &e);
}

/* ---- writing ---- */

static void write_work(void *arg)
{
	struct upload *u = arg;

	u->h.write(u->h.ctx, (struct str){u->writing.data, u->writing.len}, &u->write_failed);
}

static void write_start(struct upload *u);

static void write_done(void *arg)
{
	struct upload *u = arg;

	u->busy = false;
	buf_reset(&u->writing);
	if (u->write_failed.code != 0) {
		upload_fail(u, &u->write_failed);
		return;
	}
	write_start(u);
	if (u->x != NULL && !u->ended)
		http_body_pause(u->x, u->fill.len >= FILL_MAX);
	finish(u);
}

static void write_start(struct upload *u)
{
	struct buf filled = u->fill;
	struct error e;

	if (u->busy || filled.len == 0)
		return;
	u->fill = u->writing;
	u->writing = filled;
	u->busy = pool_run(u->g->pool, write_work, write_done, u);
	if (u->busy)
		return;
	gateway_busy(&e);
	stop(u, &e);
}

/* ---- the parts ---- */

static int begin_field(struct upload *u, const struct multipart_part *p, struct error *err)
{
	for (u->field = 0; u->o.fields[u->field] != NULL; u->field++) {
		if (!str_is(p->name, u->o.fields[u->field]))
			continue;
		if (u->given[u->field])
			return error_param(err, ERR_INVALID, u->o.fields[u->field],
			        "The field %s is there twice.", u->o.fields[u->field]);
		u->given[u->field] = true;
		return 0;
	}
	char name[65];

	str_copy(name, sizeof(name), p->name);
	return error_param(err, ERR_INVALID, name, "Unknown field: %s.", name);
}

static int on_begin(void *ctx, struct multipart_part *p, struct error *err)
{
	struct upload *u = ctx;

	u->is_file = str_is(p->name, "file");
	if (!u->is_file) {
		p->max = MULTIPART_FIELD_MAX;
		return begin_field(u, p, err);
	}
	if (u->has_file)
		return error_param(
		        err, ERR_INVALID, "file", "There must be one file in a request.");
	u->has_file = true;
	p->max = UINT64_MAX; /* on_data says it better */
	if (p->filename.p != NULL) {
		u->filename = mem_strndup(p->filename.p, p->filename.n);
		u->filename_len = p->filename.n;
	}
	if (p->type.p != NULL)
		u->type = mem_strndup(p->type.p, p->type.n);
	return 0;
}

static int no_memory(struct error *err)
{
	return error_set(err, ERR_NOMEM, "There is no memory for this upload now.");
}

static int on_data(void *ctx, struct str piece, struct error *err)
{
	struct upload *u = ctx;

	if (!u->is_file)
		return buf_append(&u->fields[u->field], piece.p, piece.n) < 0 ? no_memory(err) : 0;
	if (piece.n > u->o.max_file - u->size)
		return error_param(err, ERR_TOO_LARGE, "file",
		        "The file is larger than %llu bytes, the most that this server takes.",
		        (unsigned long long)u->o.max_file);
	u->size += piece.n;
	return buf_append(&u->fill, piece.p, piece.n) < 0 ? no_memory(err) : 0;
}

static int on_end(void *ctx, struct error *err)
{
	return 0;
}

void upload_feed(struct http_exchange *x, const void *data, size_t n)
{
	struct owner *o = http_exchange_data(x);
	struct upload *u = o != NULL && o->on_gone == on_gone ? o->self : NULL;
	struct error e;

	if (u == NULL || u->ended)
		return;
	if (n > 0 ? multipart_feed(u->parser, data, n, &e) < 0
	          : multipart_finish(u->parser, &e) < 0) {
		upload_fail(u, &e);
		return;
	}
	u->ended = u->whole = n == 0;
	write_start(u);
	if (!u->ended)
		http_body_pause(x, u->fill.len >= FILL_MAX);
	finish(u);
}

/* ---- begin ---- */

static uint64_t expected_size(const struct http_exchange *x)
{
	uint64_t n = 0;

	/* The length of a coded body says nothing. */
	if (http_request_header(x, "content-encoding").n > 0 ||
	        !str_to_u64(http_request_header(x, "content-length"), &n))
		return 0;
	return n;
}

struct upload *upload_begin(struct request *r, const struct upload_options *o,
        const struct upload_handler *h, size_t *max_body)
{
	struct upload *u = mem_alloc(sizeof(*u));
	const struct multipart_handler parts = {u, on_begin, on_data, on_end};
	struct error e;

	n_uploads++;
	*u = (struct upload){.g = r->g, .x = r->x, .h = *h, .o = *o};
	u->owner = (struct owner){NULL, on_gone, u};
	buf_init(&u->fill, FILL_MAX + SLACK);
	buf_init(&u->writing, FILL_MAX + SLACK);
	for (size_t i = 0; i < UPLOAD_FIELDS_MAX; i++)
		buf_init(&u->fields[i], MULTIPART_FIELD_MAX);
	if (n_uploads > AT_ONCE) {
		error_set(&e, ERR_UNAVAILABLE, "The server takes too many uploads already.");
		e.retry_after_ms = 1000;
	} else if (multipart_new(http_request_header(r->x, "content-type"), &parts, &u->parser,
	                   &e) == 0) {
		u->expected = expected_size(r->x);
		*max_body = o->max_file < SIZE_MAX - OVERHEAD ? (size_t)o->max_file + OVERHEAD
		                                              : SIZE_MAX;
		http_exchange_set_data(r->x, &u->owner);
		http_body_pause(r->x, true);
		return u;
	}
	respond_error(r->x, r->under_v1, &e);
	upload_free(u);
	return NULL;
}

void upload_go(struct upload *u)
{
	if (u->x != NULL && !u->ended)
		http_body_pause(u->x, false);
}

/* ---- what there was ---- */

uint64_t upload_expected(const struct upload *u)
{
	return u->expected < u->o.max_file ? u->expected : u->o.max_file;
}

struct str upload_field(const struct upload *u, const char *name)
{
	for (size_t i = 0; u->o.fields[i] != NULL; i++)
		if (u->given[i] && strcmp(u->o.fields[i], name) == 0)
			return (struct str){buf_cstr(&u->fields[i]), u->fields[i].len};
	return (struct str){NULL, 0};
}

struct str upload_filename(const struct upload *u)
{
	return (struct str){u->filename, u->filename_len};
}

struct str upload_type(const struct upload *u)
{
	return str_of(u->type);
}

bool upload_has_file(const struct upload *u)
{
	return u->has_file;
}

uint64_t upload_size(const struct upload *u)
{
	return u->size;
}
