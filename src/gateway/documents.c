/*
 * GET and DELETE /files, and the shapes of their answers (spec/openrouter.md 4, and the files APIs
 * of OpenAI and Anthropic). One set of rows, three ways to look at it:
 *
 *                 order           pages by                      at once, default, most
 *     OpenRouter  oldest first    cursor, or after/after_id     100, 1,000
 *     OpenAI      either          after                         10,000, 10,000
 *     Anthropic   newest first    page, after_id or before_id   20, 1,000; or ids[], at most 100
 *
 * Every cursor is an id: ids sort by the time of making, so one whose document is gone still says
 * where to go on.
 */
#include "gateway/documents.h"

#include <stdlib.h>

#define IDS_MAX 100

/* ---- shapes ---- */

enum documents_shape documents_shape(const struct http_exchange *x, bool under_v1)
{
	if (http_request_header(x, "anthropic-version").p != NULL)
		return DOCUMENTS_ANTHROPIC;
	if (under_v1 || str_contains(http_request_header(x, "user-agent"), "OpenAI/"))
		return DOCUMENTS_OPENAI;
	return DOCUMENTS_OPENROUTER;
}

static const char *const shape_names[] = {
        [DOCUMENTS_OPENROUTER] = "openrouter",
        [DOCUMENTS_OPENAI] = "openai",
        [DOCUMENTS_ANTHROPIC] = "anthropic",
};

static void write_openai(struct json_writer *w, const struct store_document *d)
{
	jw_kcstr(w, "object", "file");
	jw_ki64(w, "bytes", (int64_t)d->bytes);
	jw_ki64(w, "created_at", d->created_ms / 1000);
	if (d->expires_ms > 0)
		jw_ki64(w, "expires_at", d->expires_ms / 1000);
	jw_kcstr(w, "filename", d->filename);
	jw_kcstr(w, "purpose", d->purpose);
	jw_kcstr(w, "status", "processed");
}

static void write_others(
        struct json_writer *w, const struct store_document *d, enum documents_shape shape)
{
	char when[32];

	jw_kcstr(w, "type", "file");
	jw_kcstr(w, "filename", d->filename);
	jw_kcstr(w, "mime_type", d->mime);
	jw_ki64(w, "size_bytes", (int64_t)d->bytes);
	clock_iso8601(d->created_ms, when);
	jw_kcstr(w, "created_at", when);
	jw_kbool(w, "downloadable", d->downloadable);
	if (shape != DOCUMENTS_ANTHROPIC)
		return;
	clock_iso8601(d->expires_ms, when);
	jw_kcstr(w, "expires_at", d->expires_ms > 0 ? when : NULL);
}

void documents_write(
        struct json_writer *w, const struct store_document *d, enum documents_shape shape)
{
	jw_object(w);
	jw_kcstr(w, "_shape", shape_names[shape]);
	jw_kcstr(w, "id", d->id);
	if (shape == DOCUMENTS_OPENAI)
		write_openai(w, d);
	else
		write_others(w, d, shape);
	jw_end(w);
}

static void write_deleted(struct json_writer *w, const char *id, enum documents_shape shape)
{
	jw_object(w);
	jw_kcstr(w, "_shape", shape_names[shape]);
	jw_kcstr(w, "id", id);
	if (shape == DOCUMENTS_OPENAI) {
		jw_kcstr(w, "object", "file");
		jw_kbool(w, "deleted", true);
	} else {
		jw_kcstr(w, "type", "file_deleted");
	}
	jw_end(w);
}

static void write_list(struct json_writer *w, const struct store_document_list *l,
        enum documents_shape shape, bool one_page)
{
	const char *last = l->n > 0 ? l->rows[l->n - 1].id : NULL;
	bool more = l->has_more && !one_page;

	jw_object(w);
	jw_kcstr(w, "_shape", shape_names[shape]);
	if (shape == DOCUMENTS_OPENAI)
		jw_kcstr(w, "object", "list");
	jw_key(w, "data");
	jw_array(w);
	for (size_t i = 0; i < l->n; i++)
		documents_write(w, &l->rows[i], shape);
	jw_end(w);
	jw_kcstr(w, "first_id", l->n > 0 ? l->rows[0].id : NULL);
	jw_kcstr(w, "last_id", last);
	jw_kbool(w, "has_more", more);
	if (shape == DOCUMENTS_OPENROUTER)
		jw_kcstr(w, "cursor", more ? last : NULL);
	if (shape == DOCUMENTS_ANTHROPIC)
		jw_kcstr(w, "next_page", more ? last : NULL);
	jw_end(w);
}

/* ---- requests ---- */

enum job_op { JOB_LIST, JOB_IDS, JOB_GET, JOB_DELETE };

struct job {
	struct gateway *g;
	const struct config_key *key;
	struct http_exchange *x; /* NULL: the client has gone; the job goes on */
	struct owner owner;
	bool under_v1;
	enum documents_shape shape;
	enum job_op op;
	char id[STORE_ID_MAX + 1]; /* GET and DELETE; of a list: after or before */
	char purpose[32];
	struct store_document_query query;
	char (*ids)[STORE_ID_MAX + 1]; /* IDS */
	size_t n_ids;
	struct buf body;
	struct error err;
};

static void job_free(struct job *j)
{
	if (j->x != NULL)
		http_exchange_set_data(j->x, NULL);
	buf_free(&j->body);
	free(j->ids);
	free(j);
}

static void on_job_gone(void *self, enum http_gone why)
{
	((struct job *)self)->x = NULL;
}

static void job_fail(struct job *j, const struct error *e)
{
	if (j->x != NULL)
		respond_error(j->x, j->under_v1, e);
	job_free(j);
}

static int find_ids(struct job *j, const struct store_scope *scope, struct store_document_list *l)
{
	l->rows = mem_array(j->n_ids + 1, sizeof(*l->rows));
	for (size_t i = 0; i < j->n_ids; i++) {
		int r = store_document_get(j->g->reader, scope, str_of(j->ids[i]), clock_wall_ms(),
		        &l->rows[l->n], &j->err);

		if (r < 0 && r != -ERR_NOT_FOUND)
			return r;
		l->n += r == 0;
	}
	j->err.code = 0; /* those that are not there are left out */
	return 0;
}

static int list_work(struct job *j, struct json_writer *w)
{
	const struct store_scope scope = row_scope(j->key);
	struct store_document_list l = {0};
	int r;

	j->query.now_ms = clock_wall_ms();
	r = j->op == JOB_IDS ? find_ids(j, &scope, &l)
	                     : store_document_list(j->g->reader, &scope, &j->query, &l, &j->err);
	if (r == 0)
		write_list(w, &l, j->shape, j->op == JOB_IDS);
	store_document_list_clear(&l);
	return r;
}

/* The row is gone and that is what counts: a blob that stays is collected later. */
static int delete_work(struct job *j, struct json_writer *w)
{
	const struct store_scope scope = row_scope(j->key);
	struct store_document d;
	struct error err;
	int r = store_document_delete(
	        j->g->store, &scope, str_of(j->id), clock_wall_ms(), &d, &j->err);

	if (r < 0)
		return r;
	if (documents_drop_blob(j->g, str_of(d.blob), &err) < 0)
		log_text(LOG_ERROR, "blob_not_removed", "%s", err.text);
	write_deleted(w, d.id, j->shape);
	return 0;
}

static int get_work(struct job *j, struct json_writer *w)
{
	const struct store_scope scope = row_scope(j->key);
	struct store_document d;
	int r = store_document_get(
	        j->g->reader, &scope, str_of(j->id), clock_wall_ms(), &d, &j->err);

	if (r == 0)
		documents_write(w, &d, j->shape);
	return r;
}

static void job_work(void *arg)
{
	struct job *j = arg;
	struct json_writer w;

	jw_init(&w, &j->body);
	switch (j->op) {
	case JOB_LIST:
	case JOB_IDS:
		list_work(j, &w);
		break;
	case JOB_GET:
		get_work(j, &w);
		break;
	case JOB_DELETE:
		delete_work(j, &w);
		break;
	}
}

static void job_done(void *arg)
{
	struct job *j = arg;

	if (j->err.code != 0) {
		job_fail(j, &j->err);
		return;
	}
	if (j->x != NULL)
		respond_json(j->x, 200, &j->body);
	job_free(j);
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

/* ---- what a request asks for ---- */

int documents_check_scope(struct request *r, struct error *err)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);
	struct str q = http_request_query(r->x),
	           named = http_request_header(r->x, "anthropic-workspace-id");

	if (named.p != NULL && !str_is(named, r->key->workspace))
		return error_param(err, ERR_PERMISSION, "anthropic-workspace-id",
		        "This key belongs to another workspace.");
	if (http_query_get(q, "workspace_id", &b) &&
	        !str_is((struct str){b.data, b.len}, r->key->workspace))
		return error_param(err, ERR_PERMISSION, "workspace_id",
		        "This key belongs to another workspace.");
	buf_reset(&b);
	if (http_query_get(q, "provider", &b))
		return error_param(err, ERR_INVALID, "provider",
		        "Files are kept here; they are not passed on to a provider.");
	return 0;
}

static struct job *job_new(struct request *r, enum job_op op)
{
	struct job *j = mem_alloc(sizeof(*j));

	*j = (struct job){.g = r->g, .key = r->key, .x = r->x, .under_v1 = r->under_v1, .op = op};
	j->shape = documents_shape(r->x, r->under_v1);
	buf_init(&j->body, (size_t)64 << 20);
	j->owner = (struct owner){NULL, on_job_gone, j};
	http_exchange_set_data(r->x, &j->owner);
	return j;
}

static void job_by_id(struct request *r, enum job_op op)
{
	struct job *j = job_new(r, op);
	struct error e;

	if (documents_check_scope(r, &e) < 0) {
		job_fail(j, &e);
	} else if (!str_copy(j->id, sizeof(j->id), r->params[0])) {
		error_set(&e, ERR_NOT_FOUND, "There is no file of this id.");
		job_fail(j, &e);
	} else {
		job_start(j);
	}
}

void documents_get(struct request *r)
{
	job_by_id(r, JOB_GET);
}

void documents_delete(struct request *r)
{
	job_by_id(r, JOB_DELETE);
}

/* ---- lists ---- */

/* A parameter into out; *ret_there: it was given. */
static int read_param(struct str query, const char *name, char *out, size_t size, bool *ret_there,
        struct error *err)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);

	*ret_there = http_query_get(query, name, &b);
	if (*ret_there && (b.len == 0 || !str_copy(out, size, (struct str){b.data, b.len})))
		return error_param(err, ERR_INVALID, name, "%s is empty or too long.", name);
	return 0;
}

/* One of several names for the place to go on from; two at once contradict each other. */
static int read_cursor(struct job *j, struct str query, const char *const *names, struct error *err)
{
	const char *given = NULL;

	for (size_t i = 0; names[i] != NULL; i++) {
		char id[STORE_ID_MAX + 1];
		bool there;
		int r = read_param(query, names[i], id, sizeof(id), &there, err);

		if (r < 0)
			return r;
		if (!there)
			continue;
		if (given != NULL)
			return error_param(err, ERR_INVALID, names[i],
			        "%s and %s cannot be used together.", given, names[i]);
		given = names[i];
		memcpy(j->id, id, sizeof(id));
		if (strcmp(given, "before_id") == 0)
			j->query.before = str_of(j->id);
		else
			j->query.after = str_of(j->id);
	}
	return 0;
}

static int read_limit(
        struct job *j, struct str query, uint32_t preset, uint32_t most, struct error *err)
{
	char text[24] = "";
	uint64_t limit = preset;
	bool there;
	int r = read_param(query, "limit", text, sizeof(text), &there, err);

	if (r < 0)
		return r;
	if (there && (!str_to_u64(str_of(text), &limit) || limit < 1 || limit > most))
		return error_param(err, ERR_INVALID, "limit",
		        "limit must be a whole number from 1 to %u.", most);
	j->query.limit = (uint32_t)limit;
	return 0;
}

static int read_order(struct job *j, struct str query, bool desc_too, struct error *err)
{
	char order[8] = "";
	bool there;
	int r = read_param(query, "order", order, sizeof(order), &there, err);

	if (r < 0 || !there)
		return r;
	j->query.ascending = strcmp(order, "asc") == 0;
	if (!j->query.ascending && (!desc_too || strcmp(order, "desc") != 0))
		return error_param(err, ERR_INVALID, "order",
		        desc_too ? "order must be asc or desc." : "order can only be asc.");
	return 0;
}

static int read_openrouter(struct job *j, struct str query, struct error *err)
{
	static const char *const cursors[] = {"cursor", "after", "after_id", NULL};
	_cleanup_buf_ struct buf b = BUF_INIT(1024);
	int r;

	j->query.ascending = true;
	if (http_query_get(query, "before_id", &b))
		return error_param(err, ERR_INVALID, "before_id",
		        "before_id is not supported here; page with cursor.");
	r = read_order(j, query, false, err);
	if (r == 0)
		r = read_limit(j, query, 100, 1000, err);
	return r < 0 ? r : read_cursor(j, query, cursors, err);
}

static int read_openai(struct job *j, struct str query, struct error *err)
{
	static const char *const cursors[] = {"after", NULL};
	bool there = false;
	int r = read_order(j, query, true, err);

	if (r == 0)
		r = read_limit(j, query, 10000, 10000, err);
	if (r == 0)
		r = read_cursor(j, query, cursors, err);
	if (r == 0)
		r = read_param(query, "purpose", j->purpose, sizeof(j->purpose), &there, err);
	if (r == 0 && there)
		j->query.purpose = str_of(j->purpose);
	return r;
}

/* ids[]=a&ids[]=b: each once, in their order. */
static int read_ids(struct job *j, struct str query, struct error *err)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);

	while (query.n > 0) {
		const char *end = memchr(query.p, '&', query.n);
		struct str one = {query.p, end != NULL ? (size_t)(end - query.p) : query.n};
		size_t i = 0;

		query = (struct str){query.p + one.n, query.n - one.n};
		if (query.n > 0)
			query = (struct str){query.p + 1, query.n - 1};
		buf_reset(&b);
		if (!http_query_get(one, "ids[]", &b))
			continue;
		struct str id = {buf_cstr(&b), b.len};

		while (i < j->n_ids && !str_is(id, j->ids[i]))
			i++;
		if (i < j->n_ids)
			continue;
		if (j->ids == NULL)
			j->ids = mem_array(IDS_MAX, sizeof(*j->ids));
		if (j->n_ids == IDS_MAX || id.n == 0 ||
		        !str_copy(j->ids[j->n_ids], sizeof(*j->ids), id))
			return error_param(err, ERR_INVALID, "ids",
			        "ids must be at most %d ids of files.", IDS_MAX);
		j->n_ids++;
	}
	return 0;
}

static int read_anthropic(struct job *j, struct str query, struct error *err)
{
	static const char *const cursors[] = {"page", "after_id", "before_id", NULL};
	_cleanup_buf_ struct buf b = BUF_INIT(1024);
	int r = read_limit(j, query, 20, 1000, err);

	if (r == 0)
		r = read_cursor(j, query, cursors, err);
	if (r == 0)
		r = read_ids(j, query, err);
	if (r < 0 || j->n_ids == 0)
		return r;
	if (j->query.after.p != NULL || j->query.before.p != NULL ||
	        http_query_get(query, "limit", &b))
		return error_param(err, ERR_INVALID, "ids",
		        "ids cannot be used together with limit or a page.");
	j->op = JOB_IDS;
	return 0;
}

void documents_list(struct request *r)
{
	struct job *j = job_new(r, JOB_LIST);
	struct str query = http_request_query(r->x);
	struct error e;
	int n = documents_check_scope(r, &e);

	if (n == 0 && j->shape == DOCUMENTS_OPENROUTER)
		n = read_openrouter(j, query, &e);
	else if (n == 0 && j->shape == DOCUMENTS_OPENAI)
		n = read_openai(j, query, &e);
	else if (n == 0)
		n = read_anthropic(j, query, &e);
	if (n < 0)
		job_fail(j, &e);
	else
		job_start(j);
}
