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

#include "gateway/job.h"

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
	jw_kcstr(w, "type", "file");
	jw_kcstr(w, "filename", d->filename);
	jw_kcstr(w, "mime_type", d->mime);
	jw_ki64(w, "size_bytes", (int64_t)d->bytes);
	jw_ktime(w, "created_at", d->created_ms);
	jw_kbool(w, "downloadable", d->downloadable);
	if (shape == DOCUMENTS_ANTHROPIC)
		jw_ktime(w, "expires_at", d->expires_ms);
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

struct ask {
	enum documents_shape shape;
	char id[STORE_ID_MAX + 1]; /* GET and DELETE; of a list: after or before */
	char purpose[32];
	struct store_document_query query;
	char (*ids)[STORE_ID_MAX + 1]; /* NULL: a list by pages */
	size_t n_ids;
};

static void ask_clear(void *own)
{
	free(((struct ask *)own)->ids);
}

static int find_ids(struct job *j, const struct ask *a, struct store_document_list *l)
{
	l->rows = mem_array(a->n_ids + 1, sizeof(*l->rows));
	for (size_t i = 0; i < a->n_ids; i++) {
		int r = store_document_get(j->g->reader, &j->scope, str_of(a->ids[i]),
		        clock_wall_ms(), &l->rows[l->n], &j->err);

		if (r < 0 && r != -ERR_NOT_FOUND)
			return r;
		l->n += r == 0;
	}
	return 0; /* those that are not there are left out */
}

static void list_work(struct job *j)
{
	struct ask *a = j->own;
	struct store_document_list l = {0};
	struct json_writer w;

	a->query.now_ms = clock_wall_ms();
	j->result = a->ids != NULL
	                    ? find_ids(j, a, &l)
	                    : store_document_list(j->g->reader, &j->scope, &a->query, &l, &j->err);
	jw_init(&w, &j->out);
	if (j->result == 0)
		write_list(&w, &l, a->shape, a->ids != NULL);
	store_document_list_clear(&l);
}

/* The row is gone and that is what counts: a blob that stays is collected later. */
static void delete_work(struct job *j)
{
	const struct ask *a = j->own;
	struct store_document d;
	struct json_writer w;
	struct error err;

	j->result = store_document_delete(
	        j->g->store, &j->scope, str_of(a->id), clock_wall_ms(), &d, &j->err);
	if (j->result < 0)
		return;
	if (documents_drop_blob(j->g, str_of(d.blob), &err) < 0)
		log_text(LOG_ERROR, "blob_not_removed", "%s", err.text);
	jw_init(&w, &j->out);
	write_deleted(&w, d.id, a->shape);
}

static void get_work(struct job *j)
{
	const struct ask *a = j->own;
	struct store_document d;
	struct json_writer w;

	j->result = store_document_get(
	        j->g->reader, &j->scope, str_of(a->id), clock_wall_ms(), &d, &j->err);
	jw_init(&w, &j->out);
	if (j->result == 0)
		documents_write(&w, &d, a->shape);
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

static struct job *ask_new(struct request *r, void (*work)(struct job *j), struct ask **ret)
{
	struct job *j = job_new(r, work, sizeof(struct ask));

	j->clear = ask_clear;
	*ret = j->own;
	(*ret)->shape = documents_shape(r->x, r->under_v1);
	return j;
}

static void by_id(struct request *r, void (*work)(struct job *j))
{
	struct ask *a;
	struct job *j = ask_new(r, work, &a);
	struct error e;

	if (documents_check_scope(r, &e) < 0) {
		job_fail(j, &e);
	} else if (!str_copy(a->id, sizeof(a->id), r->params[0])) {
		error_set(&e, ERR_NOT_FOUND, "There is no file of this id.");
		job_fail(j, &e);
	} else {
		job_go(j);
	}
}

void documents_get(struct request *r)
{
	by_id(r, get_work);
}

void documents_delete(struct request *r)
{
	by_id(r, delete_work);
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
static int read_cursor(struct ask *a, struct str query, const char *const *names, struct error *err)
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
		memcpy(a->id, id, sizeof(id));
		if (strcmp(given, "before_id") == 0)
			a->query.before = str_of(a->id);
		else
			a->query.after = str_of(a->id);
	}
	return 0;
}

static int read_limit(
        struct ask *a, struct str query, uint32_t preset, uint32_t most, struct error *err)
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
	a->query.limit = (uint32_t)limit;
	return 0;
}

static int read_order(struct ask *a, struct str query, bool desc_too, struct error *err)
{
	char order[8] = "";
	bool there;
	int r = read_param(query, "order", order, sizeof(order), &there, err);

	if (r < 0 || !there)
		return r;
	a->query.ascending = strcmp(order, "asc") == 0;
	if (!a->query.ascending && (!desc_too || strcmp(order, "desc") != 0))
		return error_param(err, ERR_INVALID, "order",
		        desc_too ? "order must be asc or desc." : "order can only be asc.");
	return 0;
}

static int read_openrouter(struct ask *a, struct str query, struct error *err)
{
	static const char *const cursors[] = {"cursor", "after", "after_id", NULL};
	_cleanup_buf_ struct buf b = BUF_INIT(1024);
	int r;

	a->query.ascending = true;
	if (http_query_get(query, "before_id", &b))
		return error_param(err, ERR_INVALID, "before_id",
		        "before_id is not supported here; page with cursor.");
	r = read_order(a, query, false, err);
	if (r == 0)
		r = read_limit(a, query, 100, 1000, err);
	return r < 0 ? r : read_cursor(a, query, cursors, err);
}

static int read_openai(struct ask *a, struct str query, struct error *err)
{
	static const char *const cursors[] = {"after", NULL};
	bool there = false;
	int r = read_order(a, query, true, err);

	if (r == 0)
		r = read_limit(a, query, 10000, 10000, err);
	if (r == 0)
		r = read_cursor(a, query, cursors, err);
	if (r == 0)
		r = read_param(query, "purpose", a->purpose, sizeof(a->purpose), &there, err);
	if (r == 0 && there)
		a->query.purpose = str_of(a->purpose);
	return r;
}

/* ids[]=a&ids[]=b: each once, in their order. */
static int read_ids(struct ask *a, struct str query, struct error *err)
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

		while (i < a->n_ids && !str_is(id, a->ids[i]))
			i++;
		if (i < a->n_ids)
			continue;
		if (a->ids == NULL)
			a->ids = mem_array(IDS_MAX, sizeof(*a->ids));
		if (a->n_ids == IDS_MAX || id.n == 0 ||
		        !str_copy(a->ids[a->n_ids], sizeof(*a->ids), id))
			return error_param(err, ERR_INVALID, "ids",
			        "ids must be at most %d ids of files.", IDS_MAX);
		a->n_ids++;
	}
	return 0;
}

static int read_anthropic(struct ask *a, struct str query, struct error *err)
{
	static const char *const cursors[] = {"page", "after_id", "before_id", NULL};
	_cleanup_buf_ struct buf b = BUF_INIT(1024);
	int r = read_limit(a, query, 20, 1000, err);

	if (r == 0)
		r = read_cursor(a, query, cursors, err);
	if (r == 0)
		r = read_ids(a, query, err);
	if (r < 0 || a->n_ids == 0)
		return r;
	if (a->query.after.p != NULL || a->query.before.p != NULL ||
	        http_query_get(query, "limit", &b))
		return error_param(err, ERR_INVALID, "ids",
		        "ids cannot be used together with limit or a page.");
	return 0;
}

void documents_list(struct request *r)
{
	struct ask *a;
	struct job *j = ask_new(r, list_work, &a);
	struct error e;
	int n = documents_check_scope(r, &e);

	if (n == 0 && a->shape == DOCUMENTS_OPENROUTER)
		n = read_openrouter(a, j->query, &e);
	else if (n == 0 && a->shape == DOCUMENTS_OPENAI)
		n = read_openai(a, j->query, &e);
	else if (n == 0)
		n = read_anthropic(a, j->query, &e);
	if (n < 0)
		job_fail(j, &e);
	else
		job_go(j);
}
