/*
 * Keys, workspaces and what keys have spent, in SQLite. The sums of key_spending are kept by
 * triggers of the records' table, so that they cannot differ from the ledger, whoever writes it.
 */
#include "store/sqlite.h"

#include "base/mem.h"

#include <stdlib.h>

#define COLUMNS                                                                                    \
	"hash, account, workspace, name, admin, created_ms, expires_ms, revoked_ms, "              \
	"requests_per_minute, containers, cost_limit, limit_reset, disabled_tools"
#define WORKSPACE_NEW                                                                              \
	"INSERT INTO workspaces (account, name, created_ms, store_content) "                       \
	"VALUES (?1, ?2, ?3, ?4) "

enum statement {
	ST_COUNT,
	ST_CREATE,
	ST_REVOKE,
	ST_CHANGE,
	ST_LIST,
	ST_LIST_ALL,
	ST_EXPIRE,
	ST_SPENT,
	ST_WORKSPACE_COUNT,
	ST_WORKSPACE_PUT,
	ST_WORKSPACE_NEW,
	ST_WORKSPACE_LIST,
	N_STATEMENTS,
};
_Static_assert(N_STATEMENTS <= SQLITE_KEY_STATEMENTS, "room for every statement");

static const char *const sql_of[N_STATEMENTS] = {
        [ST_COUNT] = "SELECT count(*) FROM keys",
        [ST_CREATE] = "INSERT INTO keys (" COLUMNS ") VALUES "
                      "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) "
                      "ON CONFLICT DO NOTHING",
        [ST_REVOKE] = "UPDATE keys SET revoked_ms = CASE revoked_ms WHEN 0 THEN ?3 ELSE revoked_ms "
                      "END WHERE account = ?1 AND hash = ?2",
        [ST_CHANGE] = "UPDATE keys SET name = iif(?3 & 1, ?4, name), "
                      "expires_ms = iif(?3 & 2, ?5, expires_ms), "
                      "requests_per_minute = iif(?3 & 4, ?6, requests_per_minute), "
                      "containers = iif(?3 & 8, ?7, containers), "
                      "cost_limit = iif(?3 & 16, ?8, cost_limit), "
                      "limit_reset = iif(?3 & 32, ?9, limit_reset), "
                      "disabled_tools = iif(?3 & 64, ?10, disabled_tools) "
                      "WHERE account = ?1 AND hash = ?2 AND revoked_ms = 0 RETURNING " COLUMNS,
        [ST_LIST] = "SELECT " COLUMNS " FROM keys WHERE account = ?1 "
                    "ORDER BY n DESC",
        [ST_LIST_ALL] = "SELECT " COLUMNS " FROM keys WHERE revoked_ms = 0",
        [ST_EXPIRE] = "DELETE FROM keys WHERE hash IN (SELECT hash FROM keys WHERE "
                      "revoked_ms <> 0 AND revoked_ms < ?1 LIMIT ?2)",
        [ST_SPENT] = "SELECT coalesce(sum(cost), 0) FROM key_spending WHERE key_hash = ?1 AND "
                     "day >= ?2",
        [ST_WORKSPACE_COUNT] = "SELECT count(*) FROM workspaces",
        [ST_WORKSPACE_PUT] = WORKSPACE_NEW "ON CONFLICT DO UPDATE SET "
                                           "store_content = excluded.store_content",
        [ST_WORKSPACE_NEW] = WORKSPACE_NEW "ON CONFLICT DO NOTHING",
        [ST_WORKSPACE_LIST] = "SELECT account, name, created_ms, store_content FROM workspaces "
                              "WHERE ?1 IS NULL OR account = ?1 ORDER BY account, name",
};

static sqlite3_stmt *prepare(struct sqlite *q, enum statement which, struct error *err)
{
	return sqlite_statement(q, &q->keys[which], sql_of[which], err);
}

/* The one number that a statement gives. */
static int ask(struct sqlite *q, sqlite3_stmt *st, int64_t *ret, struct error *err)
{
	int r = 0;

	if (sqlite3_step(st) == SQLITE_ROW)
		*ret = sqlite3_column_int64(st, 0);
	else
		r = sqlite_fail(q, "read keys", err);
	sqlite_reset_statement(st);
	return r;
}

/* -ERR_RATE where there are `most` rows already. */
static int check_count(
        struct sqlite *q, enum statement which, int64_t most, const char *what, struct error *err)
{
	sqlite3_stmt *st = prepare(q, which, err);
	int64_t n = 0;
	int r = st ? ask(q, st, &n, err) : -ERR_IO;

	if (r == 0 && n >= most)
		r = error_set(err, ERR_RATE, "There are %lld %s, which is the most there may be.",
		        (long long)most, what);
	return r;
}

/* ---- keys ---- */

static int create_locked(struct sqlite *q, const struct store_key *k, struct error *err)
{
	sqlite3_stmt *st;
	int r = check_count(q, ST_COUNT, STORE_KEYS_MAX, "keys", err);

	st = r < 0 ? NULL : prepare(q, ST_CREATE, err);
	if (!st)
		return r < 0 ? r : -ERR_IO;
	sqlite_bind_str(st, 1, str_of(k->hash));
	sqlite_bind_str(st, 2, str_of(k->account));
	sqlite_bind_str(st, 3, str_of(k->workspace));
	sqlite_bind_str(st, 4, str_of(k->name));
	sqlite3_bind_int(st, 5, k->admin);
	sqlite3_bind_int64(st, 6, k->created_ms);
	sqlite3_bind_int64(st, 7, k->expires_ms);
	sqlite3_bind_int64(st, 8, k->revoked_ms);
	sqlite3_bind_int64(st, 9, k->requests_per_minute);
	sqlite3_bind_int64(st, 10, k->containers);
	if (k->has_limit)
		sqlite3_bind_int64(st, 11, k->limit);
	sqlite3_bind_int64(st, 12, k->limit_reset);
	sqlite3_bind_int64(st, 13, k->disabled_tools);
	r = sqlite_run(q, st, "make a key", err);
	return r == 0 ? error_set(err, ERR_CONFLICT, "There is this key already.") : r;
}

int sqlite_keys_create(struct store *s, const struct store_key *k, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	int r = sqlite_begin(q, err);

	if (r < 0)
		return r;
	r = create_locked(q, k, err);
	return sqlite_finish(q, r < 0 ? r : 0, err);
}

int sqlite_keys_revoke(
        struct store *s, struct str account, struct str hash, int64_t now_ms, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_REVOKE, err);
	int r;

	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 1, account);
	sqlite_bind_str(st, 2, hash);
	sqlite3_bind_int64(st, 3, now_ms);
	r = sqlite_run(q, st, "revoke a key", err);
	return r == 0  ? error_set(err, ERR_NOT_FOUND, "There is no key of this hash.")
	       : r < 0 ? r
	               : 0;
}

static void read_key(sqlite3_stmt *st, struct store_key *k)
{
	str_copy(k->hash, sizeof(k->hash), sqlite_column_str(st, 0));
	str_copy(k->account, sizeof(k->account), sqlite_column_str(st, 1));
	str_copy(k->workspace, sizeof(k->workspace), sqlite_column_str(st, 2));
	str_copy(k->name, sizeof(k->name), sqlite_column_str(st, 3));
	k->admin = sqlite3_column_int(st, 4) != 0;
	k->created_ms = sqlite3_column_int64(st, 5);
	k->expires_ms = sqlite3_column_int64(st, 6);
	k->revoked_ms = sqlite3_column_int64(st, 7);
	k->requests_per_minute = (uint32_t)sqlite3_column_int64(st, 8);
	k->containers = (uint32_t)sqlite3_column_int64(st, 9);
	k->has_limit = sqlite3_column_type(st, 10) != SQLITE_NULL;
	k->limit = sqlite3_column_int64(st, 10);
	k->limit_reset = (uint32_t)sqlite3_column_int64(st, 11);
	k->disabled_tools = (uint32_t)sqlite3_column_int64(st, 12);
}

static int change_locked(struct sqlite *q, unsigned members, struct store_key *k, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_CHANGE, err);
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 1, str_of(k->account));
	sqlite_bind_str(st, 2, str_of(k->hash));
	sqlite3_bind_int64(st, 3, members);
	sqlite_bind_str(st, 4, str_of(k->name));
	sqlite3_bind_int64(st, 5, k->expires_ms);
	sqlite3_bind_int64(st, 6, k->requests_per_minute);
	sqlite3_bind_int64(st, 7, k->containers);
	if (k->has_limit)
		sqlite3_bind_int64(st, 8, k->limit);
	sqlite3_bind_int64(st, 9, k->limit_reset);
	sqlite3_bind_int64(st, 10, k->disabled_tools);
	step = sqlite3_step(st);
	if (step == SQLITE_ROW)
		read_key(st, k);
	if (step == SQLITE_DONE)
		r = error_set(err, ERR_NOT_FOUND, "There is no key of this hash in force.");
	else if (step != SQLITE_ROW)
		r = sqlite_fail(q, "change a key", err);
	else if (k->limit_reset != 0 && !k->has_limit)
		r = error_set(err, ERR_CONFLICT, "limit_reset is given, and the key has no limit.");
	sqlite_reset_statement(st);
	return r;
}

int sqlite_keys_change(struct store *s, unsigned members, struct store_key *k, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	int r = sqlite_begin(q, err);

	return r < 0 ? r : sqlite_finish(q, change_locked(q, members, k, err), err);
}

int sqlite_keys_list(struct store *s, struct str account, struct store_key **ret, size_t *ret_n,
        struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, account.p ? ST_LIST : ST_LIST_ALL, err);
	struct store_key *rows = NULL;
	size_t n = 0, cap = 0;
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	if (account.p)
		sqlite_bind_str(st, 1, account);
	while ((step = sqlite3_step(st)) == SQLITE_ROW) {
		mem_grow(&rows, &cap, n, sizeof(*rows));
		read_key(st, &rows[n++]);
	}
	if (step != SQLITE_DONE)
		r = sqlite_fail(q, "list keys", err);
	sqlite_reset_statement(st);
	if (r < 0) {
		free(rows);
		return r;
	}
	*ret = rows;
	*ret_n = n;
	return 0;
}

int sqlite_keys_expire(struct store *s, int64_t before_ms, uint32_t limit, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return sqlite_run_expiry(
	        q, prepare(q, ST_EXPIRE, err), before_ms, limit, "expire keys", err);
}

int sqlite_keys_spent(struct store *s, struct str hash, const int64_t *from_days, size_t n,
        int64_t *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	for (size_t i = 0; i < n; i++) {
		sqlite3_stmt *st = prepare(q, ST_SPENT, err);

		if (!st)
			return -ERR_IO;
		sqlite_bind_str(st, 1, hash);
		sqlite3_bind_int64(st, 2, from_days[i]);
		if (ask(q, st, &ret[i], err) < 0)
			return -ERR_IO;
	}
	return 0;
}

/* ---- workspaces ---- */

int sqlite_keys_workspace_put(
        struct store *s, const struct store_workspace *w, bool fresh, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st;
	int r = sqlite_begin(q, err);

	if (r < 0)
		return r;
	r = check_count(q, ST_WORKSPACE_COUNT, STORE_WORKSPACES_MAX, "workspaces", err);
	st = r < 0 ? NULL : prepare(q, fresh ? ST_WORKSPACE_NEW : ST_WORKSPACE_PUT, err);
	if (st) {
		sqlite_bind_str(st, 1, str_of(w->account));
		sqlite_bind_str(st, 2, str_of(w->name));
		sqlite3_bind_int64(st, 3, w->created_ms);
		sqlite3_bind_int(st, 4, w->store_content);
		r = sqlite_run(q, st, "set up a workspace", err);
		if (r == 0)
			r = error_set(err, ERR_CONFLICT, "There is this workspace already.");
	} else if (r == 0) {
		r = -ERR_IO;
	}
	return sqlite_finish(q, r < 0 ? r : 0, err);
}

int sqlite_keys_workspace_list(struct store *s, struct str account, struct store_workspace **ret,
        size_t *ret_n, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_WORKSPACE_LIST, err);
	struct store_workspace *rows = NULL;
	size_t n = 0, cap = 0;
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 1, account);
	while ((step = sqlite3_step(st)) == SQLITE_ROW) {
		mem_grow(&rows, &cap, n, sizeof(*rows));
		str_copy(rows[n].account, sizeof(rows[n].account), sqlite_column_str(st, 0));
		str_copy(rows[n].name, sizeof(rows[n].name), sqlite_column_str(st, 1));
		rows[n].created_ms = sqlite3_column_int64(st, 2);
		rows[n++].store_content = sqlite3_column_int(st, 3) != 0;
	}
	if (step != SQLITE_DONE)
		r = sqlite_fail(q, "list workspaces", err);
	sqlite_reset_statement(st);
	if (r < 0) {
		free(rows);
		return r;
	}
	*ret = rows;
	*ret_n = n;
	return 0;
}
