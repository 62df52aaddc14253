/*
 * Idempotency keys in SQLite. A claim is one transaction that begins IMMEDIATE, so that of several
 * gateways which are asked at once exactly one runs the request.
 */
#include "store/sqlite.h"

#include "base/mem.h"

#include <stdlib.h>

#define SCOPE "account = ?1 AND workspace = ?2"
#define KEY   SCOPE " AND key = ?3"
#define EVICT 16

enum statement {
	ST_GET,
	ST_DROP,
	ST_USAGE,
	ST_INSERT,
	ST_FINISH,
	ST_RELEASE,
	ST_CUT,
	ST_FORGET,
	ST_RECOVER_FREE,
	ST_RECOVER_CUT,
	ST_EXPIRE,
	N_STATEMENTS,
};
_Static_assert(N_STATEMENTS <= SQLITE_IDEMPOTENCY_STATEMENTS, "room for every statement");

static const char *const sql_of[N_STATEMENTS] = {
        [ST_GET] = "SELECT request, state, status, type, headers, body FROM idempotency WHERE " KEY
                   " AND expires_ms > ?4",
        [ST_DROP] = "DELETE FROM idempotency WHERE " KEY " AND expires_ms <= ?4",
        [ST_USAGE] = "SELECT bytes, n FROM idempotency_usage WHERE " SCOPE,
        [ST_INSERT] = "INSERT INTO idempotency (account, workspace, key, request, holder, "
                      "harmless, created_ms, expires_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        [ST_FINISH] = "UPDATE idempotency SET state = ?4, status = ?5, type = ?6, headers = ?7, "
                      "body = ?8 WHERE " KEY " AND state = 0",
        [ST_RELEASE] = "DELETE FROM idempotency WHERE " KEY " AND state = 0",
        [ST_CUT] = "UPDATE idempotency SET state = 2 WHERE " KEY " AND state = 0",
        [ST_FORGET] = "UPDATE idempotency SET state = 3, body = x'' WHERE rowid IN (SELECT rowid "
                      "FROM idempotency WHERE " SCOPE " AND state = 1 AND key <> ?3 ORDER BY "
                      "created_ms LIMIT ?4)",
        [ST_RECOVER_FREE] = "DELETE FROM idempotency WHERE state = 0 AND holder = ?1 AND harmless",
        [ST_RECOVER_CUT] = "UPDATE idempotency SET state = 2 WHERE state = 0 AND holder = ?1",
        [ST_EXPIRE] = "DELETE FROM idempotency WHERE rowid IN (SELECT rowid FROM idempotency "
                      "WHERE expires_ms <= ?1 LIMIT ?2)",
};

static sqlite3_stmt *prepare(struct sqlite *q, enum statement which, struct error *err)
{
	return sqlite_statement(q, &q->idempotency[which], sql_of[which], err);
}

static void bind_blob(sqlite3_stmt *st, int at, const void *p, size_t n)
{
	sqlite3_bind_blob64(st, at, n ? p : "", n, SQLITE_STATIC);
}

static void bind_key(sqlite3_stmt *st, const struct store_scope *scope, const uint8_t key[32])
{
	sqlite_bind_str(st, 1, scope->account);
	sqlite_bind_str(st, 2, scope->workspace);
	bind_blob(st, 3, key, 32);
}

/* A change of the one row; how many were changed. */
static int change(struct sqlite *q, enum statement which, const struct store_scope *scope,
        const uint8_t key[32], struct error *err)
{
	sqlite3_stmt *st = prepare(q, which, err);

	if (!st)
		return -ERR_IO;
	bind_key(st, scope, key);
	return sqlite_run(q, st, "change an idempotency key", err);
}

/* ---- claiming ---- */

static int read_answer(sqlite3_stmt *st, struct store_answer *a, struct error *err)
{
	const void *body = sqlite3_column_blob(st, 5);
	size_t n = (size_t)sqlite3_column_bytes(st, 5);

	a->status = sqlite3_column_int(st, 2);
	str_copy(a->type, sizeof(a->type), sqlite_column_str(st, 3));
	a->headers = sqlite_column_dup(st, 4);
	a->body = malloc(n + 1);
	if (!a->body)
		return error_set(err, ERR_NOMEM, "no memory for an answer");
	if (n)
		memcpy(a->body, body, n);
	a->body[n] = 0;
	a->len = n;
	return 0;
}

/* What there is of the key: STORE_CLAIM_NEW where nothing is. */
static int look(struct sqlite *q, const struct store_scope *scope, const struct store_claim *c,
        struct store_answer *ret, struct error *err)
{
	static const enum store_claim_state states[] = {
	        STORE_CLAIM_RUNS, STORE_CLAIM_DONE, STORE_CLAIM_CUT, STORE_CLAIM_LOST};
	sqlite3_stmt *st = prepare(q, ST_GET, err);
	int step, r = STORE_CLAIM_NEW;

	if (!st)
		return -ERR_IO;
	bind_key(st, scope, c->key);
	sqlite3_bind_int64(st, 4, c->now_ms);
	step = sqlite3_step(st);
	if (step == SQLITE_ROW) {
		int state = sqlite3_column_int(st, 1);
		bool same = sqlite3_column_bytes(st, 0) == 32 &&
		            memcmp(sqlite3_column_blob(st, 0), c->request, 32) == 0;

		r = !same ? STORE_CLAIM_OTHER : states[state & 3];
		if (r == STORE_CLAIM_DONE && read_answer(st, ret, err) < 0)
			r = -ERR_NOMEM;
	} else if (step != SQLITE_DONE) {
		r = sqlite_fail(q, "look for an idempotency key", err);
	}
	sqlite_reset_statement(st);
	return r;
}

static int usage(struct sqlite *q, const struct store_scope *scope, uint64_t *ret_bytes,
        uint64_t *ret_n, struct error *err)
{
	return sqlite_usage(q, prepare(q, ST_USAGE, err), scope, "read usage of idempotency keys",
	        ret_bytes, ret_n, err);
}

static int insert(struct sqlite *q, const struct store_scope *scope, const struct store_claim *c,
        struct error *err)
{
	sqlite3_stmt *st;
	uint64_t bytes, n;
	int r = usage(q, scope, &bytes, &n, err);

	if (r == 0 && n >= STORE_CLAIMS_MAX)
		r = error_set(err, ERR_RATE,
		        "The workspace has used %d idempotency keys within 24 hours, which is the "
		        "most there may be.",
		        STORE_CLAIMS_MAX);
	if (r < 0)
		return r;
	/* One that has expired and was not yet removed makes room. */
	st = prepare(q, ST_DROP, err);
	if (!st)
		return -ERR_IO;
	bind_key(st, scope, c->key);
	sqlite3_bind_int64(st, 4, c->now_ms);
	r = sqlite_run(q, st, "remove an idempotency key", err);
	st = r < 0 ? NULL : prepare(q, ST_INSERT, err);
	if (!st)
		return -ERR_IO;
	bind_key(st, scope, c->key);
	bind_blob(st, 4, c->request, 32);
	sqlite_bind_str(st, 5, c->holder);
	sqlite3_bind_int64(st, 6, c->harmless);
	sqlite3_bind_int64(st, 7, c->now_ms);
	sqlite3_bind_int64(st, 8, c->expires_ms);
	r = sqlite_run(q, st, "write an idempotency key", err);
	return r < 0 ? r : STORE_CLAIM_NEW;
}

int sqlite_idempotency_claim(struct store *s, const struct store_scope *scope,
        const struct store_claim *c, struct store_answer *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	struct store_answer a = {0};
	int r = sqlite_begin(q, err);

	if (r < 0)
		return r;
	r = look(q, scope, c, &a, err);
	if (r == STORE_CLAIM_NEW)
		r = insert(q, scope, c, err);
	r = sqlite_finish(q, r, err);
	if (r == STORE_CLAIM_DONE)
		*ret = a;
	else
		store_answer_clear(&a);
	return r;
}

/* ---- its end ---- */

/* Answers of older keys make room; that the requests were run is kept. */
static int make_room(struct sqlite *q, const struct store_scope *scope, const uint8_t key[32],
        uint64_t quota, struct error *err)
{
	uint64_t bytes, n;
	int r = usage(q, scope, &bytes, &n, err);

	while (r >= 0 && bytes > quota) {
		sqlite3_stmt *st = prepare(q, ST_FORGET, err);

		if (!st)
			return -ERR_IO;
		bind_key(st, scope, key);
		sqlite3_bind_int64(st, 4, EVICT);
		r = sqlite_run(q, st, "forget an answer", err);
		if (r == 0)
			break;
		if (r > 0)
			r = usage(q, scope, &bytes, &n, err);
	}
	return r < 0 ? r : 0;
}

static int finish_locked(struct sqlite *q, const struct store_scope *scope, const uint8_t key[32],
        const struct store_answer *a, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_FINISH, err);

	if (!st)
		return -ERR_IO;
	bind_key(st, scope, key);
	sqlite3_bind_int64(st, 4, a->body ? 1 : 3);
	sqlite3_bind_int64(st, 5, a->status);
	sqlite_bind_str(st, 6, STR(""));
	if (a->type[0])
		sqlite_bind_str(st, 6, str_of(a->type));
	sqlite_bind_str(st, 7, a->headers ? str_of(a->headers) : STR(""));
	bind_blob(st, 8, a->body, a->body ? a->len : 0);
	return sqlite_run(q, st, "write an answer", err);
}

int sqlite_idempotency_finish(struct store *s, const struct store_scope *scope,
        const uint8_t key[32], const struct store_answer *a, uint64_t quota, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	int r = sqlite_begin(q, err);

	if (r < 0)
		return r;
	r = finish_locked(q, scope, key, a, err);
	if (r >= 0)
		r = make_room(q, scope, key, quota, err);
	return sqlite_finish(q, r, err);
}

int sqlite_idempotency_release(
        struct store *s, const struct store_scope *scope, const uint8_t key[32], struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return change(q, ST_RELEASE, scope, key, err);
}

int sqlite_idempotency_cut(
        struct store *s, const struct store_scope *scope, const uint8_t key[32], struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return change(q, ST_CUT, scope, key, err);
}

static int recover_locked(
        struct sqlite *q, enum statement which, struct str holder, struct error *err)
{
	sqlite3_stmt *st = prepare(q, which, err);

	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 1, holder);
	return sqlite_run(q, st, "end what a dead process ran", err);
}

int sqlite_idempotency_recover(struct store *s, struct str holder, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	int r = sqlite_begin(q, err);

	if (r < 0)
		return r;
	r = recover_locked(q, ST_RECOVER_FREE, holder, err);
	if (r >= 0)
		r = recover_locked(q, ST_RECOVER_CUT, holder, err);
	return sqlite_finish(q, r < 0 ? r : 0, err);
}

int sqlite_idempotency_expire(struct store *s, int64_t now_ms, uint32_t limit, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return sqlite_run_expiry(
	        q, prepare(q, ST_EXPIRE, err), now_ms, limit, "expire idempotency keys", err);
}
