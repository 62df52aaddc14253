/*
 * Documents in SQLite.
 *
 * A row and its blob are made in one transaction that begins IMMEDIATE, and a blob is removed in
 * another such one, which has seen that no row has it. Writers of all processes come one after the
 * other, so no row can come to have a blob that is being removed. A process that dies in between
 * leaves at worst a blob without a row, which the collection finds later.
 */
#include "store/sqlite.h"

#include "base/mem.h"

#include <stdlib.h>

#define COLUMNS "id, filename, mime, purpose, blob, bytes, created_ms, expires_ms, downloadable"
#define SCOPE   "account = ?1 AND workspace = ?2"
#define ALIVE   "(expires_ms = 0 OR expires_ms > ?4)"
#define LIST                                                                                       \
	"SELECT " COLUMNS " FROM documents WHERE " SCOPE " AND " ALIVE                             \
	" AND (?5 IS NULL OR purpose = ?5) "

enum statement {
	ST_CREATE,
	ST_USAGE,
	ST_GET,
	ST_LIST_UP,
	ST_LIST_DOWN,
	ST_DELETE,
	ST_BLOB_USED,
	ST_EXPIRE,
	N_STATEMENTS,
};
_Static_assert(N_STATEMENTS <= SQLITE_DOCUMENT_STATEMENTS, "room for every statement");

static const char *const sql_of[N_STATEMENTS] = {
        [ST_CREATE] = "INSERT INTO documents (account, workspace, " COLUMNS ") VALUES "
                      "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        [ST_USAGE] = "SELECT bytes, n FROM document_usage WHERE " SCOPE,
        [ST_GET] = "SELECT " COLUMNS " FROM documents WHERE " SCOPE " AND id = ?3 AND " ALIVE,
        [ST_LIST_UP] = LIST "AND id > ?3 ORDER BY id LIMIT ?6",
        [ST_LIST_DOWN] = LIST "AND (?3 IS NULL OR id < ?3) ORDER BY id DESC LIMIT ?6",
        [ST_DELETE] = "DELETE FROM documents WHERE " SCOPE " AND id = ?3",
        [ST_BLOB_USED] = "SELECT 1 FROM documents WHERE blob = ?1 LIMIT 1",
        [ST_EXPIRE] = "DELETE FROM documents WHERE (account, workspace, id) IN (SELECT account, "
                      "workspace, id FROM documents WHERE expires_ms > 0 AND expires_ms <= ?1 "
                      "LIMIT ?2)",
};

static sqlite3_stmt *prepare(struct sqlite *q, enum statement which, struct error *err)
{
	return sqlite_statement(q, &q->documents[which], sql_of[which], err);
}

static int usage(struct sqlite *q, const struct store_scope *scope, uint64_t *ret_bytes,
        uint64_t *ret_n, struct error *err)
{
	return sqlite_usage(
	        q, prepare(q, ST_USAGE, err), scope, "read usage", ret_bytes, ret_n, err);
}

int sqlite_documents_usage(
        struct store *s, const struct store_scope *scope, uint64_t *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	uint64_t n;

	return usage(q, scope, ret, &n, err);
}

static int check_quota(struct sqlite *q, const struct store_scope *scope, uint64_t more,
        uint64_t quota, struct error *err)
{
	uint64_t used = 0, n = 0;
	int r = usage(q, scope, &used, &n, err);

	if (r < 0)
		return r;
	if (n >= STORE_DOCUMENTS_MAX)
		r = error_set(err, ERR_PERMISSION, "A workspace keeps at most %d files.",
		        STORE_DOCUMENTS_MAX);
	else if (used > quota || more > quota - used)
		r = error_set(err, ERR_PERMISSION,
		        "The workspace's storage is full: it may hold %llu bytes, and holds %llu.",
		        (unsigned long long)quota, (unsigned long long)used);
	if (r < 0 && err)
		str_copy(err->type, sizeof(err->type), STR("storage_quota_exceeded"));
	return r;
}

static int insert_locked(struct sqlite *q, const struct store_scope *scope,
        const struct store_document *d, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_CREATE, err);

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, str_of(d->id));
	sqlite_bind_str(st, 4, str_of(d->filename));
	sqlite_bind_str(st, 5, str_of(d->mime));
	sqlite_bind_str(st, 6, str_of(d->purpose));
	sqlite_bind_str(st, 7, str_of(d->blob));
	sqlite3_bind_int64(st, 8, (int64_t)d->bytes);
	sqlite3_bind_int64(st, 9, d->created_ms);
	sqlite3_bind_int64(st, 10, d->expires_ms);
	sqlite3_bind_int(st, 11, d->downloadable);
	return sqlite_run(q, st, "make document", err);
}

int sqlite_documents_create(struct store *s, const struct store_scope *scope,
        const struct store_document *d, uint64_t quota, store_do_fn *fn, void *ctx,
        struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	int r = sqlite_begin(q, err);

	if (r < 0)
		return r;
	r = check_quota(q, scope, d->bytes, quota, err);
	if (r == 0)
		r = insert_locked(q, scope, d, err);
	if (r >= 0)
		r = fn(ctx, err);
	r = sqlite_finish(q, r, err);
	return r < 0 ? r : 0;
}

static void read_document(sqlite3_stmt *st, struct store_document *d)
{
	*d = (struct store_document){0};
	str_copy(d->id, sizeof(d->id), sqlite_column_str(st, 0));
	str_copy(d->filename, sizeof(d->filename), sqlite_column_str(st, 1));
	str_copy(d->mime, sizeof(d->mime), sqlite_column_str(st, 2));
	str_copy(d->purpose, sizeof(d->purpose), sqlite_column_str(st, 3));
	str_copy(d->blob, sizeof(d->blob), sqlite_column_str(st, 4));
	d->bytes = (uint64_t)sqlite3_column_int64(st, 5);
	d->created_ms = sqlite3_column_int64(st, 6);
	d->expires_ms = sqlite3_column_int64(st, 7);
	d->downloadable = sqlite3_column_int(st, 8) != 0;
}

static int get_locked(struct sqlite *q, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_document *ret, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_GET, err);
	int r = 0, step;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, id);
	sqlite3_bind_int64(st, 4, now_ms);
	step = sqlite3_step(st);
	if (step == SQLITE_ROW)
		read_document(st, ret);
	else if (step == SQLITE_DONE)
		r = error_set(err, ERR_NOT_FOUND, "There is no file of this id.");
	else
		r = sqlite_fail(q, "read document", err);
	sqlite_reset_statement(st);
	return r;
}

int sqlite_documents_get(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_document *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return get_locked(q, scope, id, now_ms, ret, err);
}

static void reverse(struct store_document_list *l)
{
	for (size_t i = 0; i < l->n / 2; i++) {
		struct store_document d = l->rows[i];

		l->rows[i] = l->rows[l->n - 1 - i];
		l->rows[l->n - 1 - i] = d;
	}
}

/* What stands before an id is what comes behind it the other way round. */
int sqlite_documents_list(struct store *s, const struct store_scope *scope,
        const struct store_document_query *query, struct store_document_list *ret,
        struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	bool backwards = query->before.p != NULL, up = query->ascending != backwards;
	struct str from = backwards ? query->before : query->after;
	sqlite3_stmt *st = prepare(q, up ? ST_LIST_UP : ST_LIST_DOWN, err);
	struct store_document_list list = {0};
	size_t cap = 0;
	int step;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, up && !from.p ? STR("") : from);
	sqlite3_bind_int64(st, 4, query->now_ms);
	sqlite_bind_str(st, 5, query->purpose);
	sqlite3_bind_int64(st, 6, (int64_t)query->limit + 1);
	while ((step = sqlite3_step(st)) == SQLITE_ROW) {
		if (list.n == query->limit) {
			list.has_more = true;
			step = SQLITE_DONE;
			break;
		}
		mem_grow(&list.rows, &cap, list.n, sizeof(*list.rows));
		read_document(st, &list.rows[list.n++]);
	}
	step = step == SQLITE_DONE ? 0 : sqlite_fail(q, "list documents", err);
	sqlite_reset_statement(st);
	if (step < 0) {
		store_document_list_clear(&list);
		return step;
	}
	if (backwards)
		reverse(&list);
	*ret = list;
	return 0;
}

int sqlite_documents_delete(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_document *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	struct store_document d;
	sqlite3_stmt *st;
	int r = sqlite_begin(q, err);

	if (r < 0)
		return r;
	r = get_locked(q, scope, id, now_ms, &d, err);
	st = r == 0 ? prepare(q, ST_DELETE, err) : NULL;
	if (st) {
		sqlite_bind_key(st, scope, id);
		r = sqlite_run(q, st, "delete document", err);
	} else if (r == 0) {
		r = -ERR_IO;
	}
	r = sqlite_finish(q, r, err);
	if (r < 0)
		return r;
	*ret = d;
	return 0;
}

static int used_locked(struct sqlite *q, struct str blob, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_BLOB_USED, err);
	int r;

	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 1, blob);
	r = sqlite3_step(st);
	r = r == SQLITE_ROW ? 1 : r == SQLITE_DONE ? 0 : sqlite_fail(q, "look for blob", err);
	sqlite_reset_statement(st);
	return r;
}

int sqlite_documents_blob_used(struct store *s, struct str blob, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return used_locked(q, blob, err);
}

int sqlite_documents_blob_unused(
        struct store *s, struct str blob, store_do_fn *fn, void *ctx, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	int r = sqlite_begin(q, err), used;

	if (r < 0)
		return r;
	used = used_locked(q, blob, err);
	r = used == 0 ? fn(ctx, err) : used;
	r = sqlite_finish(q, r, err);
	return r < 0 ? r : used == 0;
}

int sqlite_documents_expire(struct store *s, int64_t now_ms, uint32_t limit, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return sqlite_run_expiry(
	        q, prepare(q, ST_EXPIRE, err), now_ms, limit, "remove documents", err);
}
