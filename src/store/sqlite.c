/*
 * The store in one SQLite file.
 *
 * Theory of operation. One connection a process, behind a mutex; every call takes it, runs one or a
 * few statements and gives it back, so no transaction outlives a call. Journal mode WAL: readers
 * never wait for the writer, and what was committed is in the WAL file before commit returns, so a
 * killed process loses nothing; `synchronous` decides whether commit also waits for the disk. The
 * WAL is emptied by a thread of its own: sqlite_checkpoint.c.
 *
 * Several processes write. A statement that only writes is a transaction of its own. Where reading
 * and writing belong together the transaction begins with BEGIN IMMEDIATE: a transaction that began
 * as a reader and then wants to write could be refused at once, whatever the busy timeout says.
 * Waiting for another writer is SQLite's busy handler, up to BUSY_MS.
 *
 * The schema's number is user_version; application_id says that a file is ours.
 */
#include "store/sqlite.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BUSY_MS        10000
#define APPLICATION_ID 0x62726967 /* "brig" */

enum statement {
	ST_BEGIN,
	ST_COMMIT,
	ST_ROLLBACK,
	ST_CALL_PUT,
	ST_CALL_GET,
	ST_CALL_EXPIRE,
	ST_KEEPER_TAKE,
	ST_KEEPER_DROP,
	N_STATEMENTS,
};

static const char *const sql_of[N_STATEMENTS] = {
        [ST_BEGIN] = "BEGIN IMMEDIATE",
        [ST_COMMIT] = "COMMIT",
        [ST_ROLLBACK] = "ROLLBACK",
        [ST_CALL_PUT] = "INSERT INTO call_ids (account, workspace, hash, upstream_id, expires_ms) "
                        "VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET "
                        "upstream_id = excluded.upstream_id, "
                        "expires_ms = max(expires_ms, excluded.expires_ms)",
        [ST_CALL_GET] = "SELECT upstream_id FROM call_ids WHERE account = ?1 AND workspace = ?2 "
                        "AND hash = ?3 AND expires_ms > ?4",
        [ST_CALL_EXPIRE] =
                "DELETE FROM call_ids WHERE (account, workspace, hash) IN (SELECT "
                "account, workspace, hash FROM call_ids WHERE expires_ms <= ?1 LIMIT ?2)",
        /* An end further away than a lease can reach is from before the clock was set back. */
        [ST_KEEPER_TAKE] = "INSERT INTO keeper (node, holder, until_ms) VALUES (?1, ?2, ?3 + ?4) "
                           "ON CONFLICT DO UPDATE SET holder = excluded.holder, "
                           "until_ms = excluded.until_ms WHERE holder = excluded.holder OR "
                           "until_ms <= ?3 OR until_ms > ?3 + ?4",
        [ST_KEEPER_DROP] = "DELETE FROM keeper WHERE node = ?1 AND holder = ?2",
};

_Static_assert(N_STATEMENTS <= SQLITE_MAIN_STATEMENTS, "room for every statement");

/* ---- lock ---- */

struct sqlite *sqlite_lock(struct store *s)
{
	struct sqlite *q = (struct sqlite *)s;

	pthread_mutex_lock(&q->lock);
	return q;
}

void sqlite_unlock(struct sqlite **q)
{
	pthread_mutex_unlock(&(*q)->lock);
}

/* ---- statements ---- */

int sqlite_fail(struct sqlite *q, const char *step, struct error *err)
{
	int code = sqlite3_errcode(q->db) & 0xff;

	if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
		return error_set(err, ERR_UNAVAILABLE, "store: %s: the database is busy", step);
	if (code == SQLITE_FULL)
		return error_set(err, ERR_UNAVAILABLE, "there is no room on the server's disk");
	if (code == SQLITE_NOMEM)
		return error_set(err, ERR_NOMEM, "store: %s: no memory", step);
	return error_set(err, ERR_IO, "store: %s: %s", step, sqlite3_errmsg(q->db));
}

sqlite3_stmt *sqlite_statement(
        struct sqlite *q, sqlite3_stmt **st, const char *sql, struct error *err)
{
	if (!*st && sqlite3_prepare_v3(q->db, sql, -1, SQLITE_PREPARE_PERSISTENT, st, NULL) !=
	                    SQLITE_OK) {
		sqlite_fail(q, "prepare", err);
		return NULL;
	}
	return *st;
}

static sqlite3_stmt *prepare(struct sqlite *q, enum statement which, struct error *err)
{
	return sqlite_statement(q, &q->main[which], sql_of[which], err);
}

void sqlite_bind_str(sqlite3_stmt *st, int at, struct str s)
{
	if (s.p)
		sqlite3_bind_text(st, at, s.p, (int)s.n, SQLITE_STATIC);
	else
		sqlite3_bind_null(st, at);
}

static void bind_blob(sqlite3_stmt *st, int at, struct str s)
{
	sqlite3_bind_blob(st, at, s.p, (int)s.n, SQLITE_STATIC);
}

void sqlite_bind_key(sqlite3_stmt *st, const struct store_scope *scope, struct str id)
{
	sqlite_bind_str(st, 1, scope->account);
	sqlite_bind_str(st, 2, scope->workspace);
	sqlite_bind_str(st, 3, id);
}

void sqlite_reset_statement(sqlite3_stmt *st)
{
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
}

int sqlite_run(struct sqlite *q, sqlite3_stmt *st, const char *step, struct error *err)
{
	int r = sqlite3_step(st) == SQLITE_DONE ? sqlite3_changes(q->db)
	                                        : sqlite_fail(q, step, err);

	sqlite_reset_statement(st);
	return r;
}

int sqlite_run_expiry(struct sqlite *q, sqlite3_stmt *st, int64_t ms, uint32_t limit,
        const char *step, struct error *err)
{
	if (!st)
		return -ERR_IO;
	sqlite3_bind_int64(st, 1, ms);
	sqlite3_bind_int64(st, 2, limit);
	return sqlite_run(q, st, step, err);
}

int sqlite_usage(struct sqlite *q, sqlite3_stmt *st, const struct store_scope *scope,
        const char *step, uint64_t *ret_bytes, uint64_t *ret_n, struct error *err)
{
	uint64_t bytes = 0, n = 0;
	int r = 0, code;

	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 1, scope->account);
	sqlite_bind_str(st, 2, scope->workspace);
	code = sqlite3_step(st);
	if (code == SQLITE_ROW) {
		bytes = (uint64_t)sqlite3_column_int64(st, 0);
		n = ret_n ? (uint64_t)sqlite3_column_int64(st, 1) : 0;
	} else if (code != SQLITE_DONE) {
		r = sqlite_fail(q, step, err);
	}
	sqlite_reset_statement(st);
	if (r < 0)
		return r;
	*ret_bytes = bytes;
	if (ret_n)
		*ret_n = n;
	return 0;
}

static int run_plain(struct sqlite *q, enum statement which, struct error *err)
{
	sqlite3_stmt *st = prepare(q, which, err);
	int r = st ? sqlite_run(q, st, sql_of[which], err) : -ERR_IO;

	return r < 0 ? r : 0;
}

int sqlite_begin(struct sqlite *q, struct error *err)
{
	return run_plain(q, ST_BEGIN, err);
}

int sqlite_finish(struct sqlite *q, int r, struct error *err)
{
	int c = r < 0 ? r : run_plain(q, ST_COMMIT, err);

	if (!sqlite3_get_autocommit(q->db))
		run_plain(q, ST_ROLLBACK, NULL);
	return c < 0 ? c : r;
}

struct str sqlite_column_str(sqlite3_stmt *st, int at)
{
	const char *p = (const char *)sqlite3_column_text(st, at);

	return (struct str){p, p ? (size_t)sqlite3_column_bytes(st, at) : 0};
}

char *sqlite_column_dup(sqlite3_stmt *st, int at)
{
	struct str s = sqlite_column_str(st, at);

	return s.p ? mem_strndup(s.p, s.n) : NULL;
}

/* ---- call ids ---- */

static int call_ids_put(struct store *s, const struct store_scope *scope,
        const struct store_call_id *ids, size_t n, int64_t expires_ms, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st;
	int r = sqlite_begin(q, err);

	if (r < 0)
		return r;
	st = prepare(q, ST_CALL_PUT, err);
	r = st ? 0 : -ERR_IO;
	for (size_t i = 0; st && i < n && r >= 0; i++) {
		sqlite_bind_key(st, scope, ids[i].hash);
		bind_blob(st, 4, ids[i].upstream_id);
		sqlite3_bind_int64(st, 5, expires_ms);
		r = sqlite_run(q, st, "keep call id", err);
	}
	r = sqlite_finish(q, r, err);
	return r < 0 ? r : 0;
}

static int call_id_get(struct store *s, const struct store_scope *scope, struct str hash,
        int64_t now_ms, char **ret, size_t *ret_len, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_CALL_GET, err);
	int r = 0, step;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, hash);
	sqlite3_bind_int64(st, 4, now_ms);
	step = sqlite3_step(st);
	if (step == SQLITE_ROW) {
		size_t n = (size_t)sqlite3_column_bytes(st, 0);

		*ret = mem_strndup(sqlite3_column_blob(st, 0), n);
		*ret_len = n;
	} else if (step == SQLITE_DONE) {
		r = error_set(err, ERR_NOT_FOUND, "no call id of this hash");
	} else {
		r = sqlite_fail(q, "read call id", err);
	}
	sqlite_reset_statement(st);
	return r;
}

static int call_ids_expire(struct store *s, int64_t now_ms, uint32_t limit, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return sqlite_run_expiry(
	        q, prepare(q, ST_CALL_EXPIRE, err), now_ms, limit, "forget call ids", err);
}

/* ---- keeper ---- */

static int keeper_take(struct store *s, struct str node, struct str holder, int64_t now_ms,
        int64_t lease_ms, bool *ret_held, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_KEEPER_TAKE, err);
	int r;

	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 1, node);
	sqlite_bind_str(st, 2, holder);
	sqlite3_bind_int64(st, 3, now_ms);
	sqlite3_bind_int64(st, 4, lease_ms);
	r = sqlite_run(q, st, "take keeper's row", err);
	if (r < 0)
		return r;
	*ret_held = r > 0;
	return 0;
}

static int keeper_drop(struct store *s, struct str node, struct str holder, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_KEEPER_DROP, err);
	int r;

	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 1, node);
	sqlite_bind_str(st, 2, holder);
	r = sqlite_run(q, st, "drop keeper's row", err);
	return r < 0 ? r : 0;
}

/* ---- opening ---- */

static struct store *sqlite_close_store(struct store *s)
{
	struct sqlite *q = (struct sqlite *)s;
	sqlite3_stmt *st;

	while (q->db && (st = sqlite3_next_stmt(q->db, NULL)) != NULL)
		sqlite3_finalize(st);
	q->checkpoint = sqlite_checkpoint_free(q->checkpoint);
	sqlite3_close(q->db);
	pthread_mutex_destroy(&q->lock);
	free(q);
	return NULL;
}

static int exec(struct sqlite *q, const char *sql, struct error *err)
{
	return sqlite3_exec(q->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0
	                                                               : sqlite_fail(q, sql, err);
}

static int exec_number(struct sqlite *q, const char *pragma, unsigned value, struct error *err)
{
	char sql[64];

	str_format(sql, sizeof(sql), "PRAGMA %s = %u", pragma, value);
	return exec(q, sql, err);
}

static int ask_number(struct sqlite *q, const char *sql, unsigned *ret, struct error *err)
{
	sqlite3_stmt *st = NULL;
	int r = 0;

	if (sqlite3_prepare_v2(q->db, sql, -1, &st, NULL) != SQLITE_OK)
		return sqlite_fail(q, sql, err);
	if (sqlite3_step(st) == SQLITE_ROW)
		*ret = (unsigned)sqlite3_column_int64(st, 0);
	else
		r = sqlite_fail(q, sql, err);
	sqlite3_finalize(st);
	return r;
}

/* Switching a new file to WAL needs it alone, and does not ask the busy handler. */
static int use_wal(struct sqlite *q, struct error *err)
{
	const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
	int rc = SQLITE_BUSY;

	for (int waited = 0; waited < BUSY_MS; waited += 20) {
		rc = sqlite3_exec(q->db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
		if ((rc & 0xff) != SQLITE_BUSY)
			break;
		nanosleep(&pause, NULL);
	}
	return rc == SQLITE_OK ? 0 : sqlite_fail(q, "journal mode", err);
}

static int check_ours(struct sqlite *q, unsigned version, struct error *err)
{
	unsigned application = 0, tables = 0;
	int r = ask_number(q, "PRAGMA application_id", &application, err);

	if (r == 0)
		r = ask_number(q, "SELECT count(*) FROM sqlite_schema", &tables, err);
	if (r < 0)
		return r;
	if (application != APPLICATION_ID && (application || version || tables))
		return error_set(err, ERR_IO, "store: the file is a database of another program");
	if (version > migrations_sqlite_n)
		return error_set(err, ERR_IO,
		        "store: the file was made by a newer brig (schema %u, this one knows %u)",
		        version, migrations_sqlite_n);
	return 0;
}

/* In one transaction; of several processes that start at once, the first does it. */
static int migrate_locked(struct sqlite *q, struct error *err)
{
	unsigned version = 0;
	int r = ask_number(q, "PRAGMA user_version", &version, err);

	if (r == 0)
		r = check_ours(q, version, err);
	for (unsigned i = version; i < migrations_sqlite_n && r == 0; i++) {
		r = exec(q, migrations_sqlite[i].sql, err);
		if (r < 0)
			error_prefix(err, "%s", migrations_sqlite[i].name);
	}
	if (r == 0 && version < migrations_sqlite_n)
		r = exec_number(q, "user_version", migrations_sqlite_n, err);
	if (r == 0 && version < migrations_sqlite_n)
		r = exec_number(q, "application_id", APPLICATION_ID, err);
	return r;
}

static int set_up(struct sqlite *q, bool power, struct error *err)
{
	int r;

	sqlite3_busy_timeout(q->db, BUSY_MS);
	sqlite3_extended_result_codes(q->db, 1);
	sqlite3_db_config(q->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(q->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	r = use_wal(q, err);
	if (r == 0)
		r = exec(q, power ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL",
		        err);
	/* Else a long transaction makes files for what it might undo, and fails where a gateway has
	 * no descriptor left. */
	if (r == 0)
		r = exec(q, "PRAGMA temp_store = MEMORY", err);
	/* What is deleted is overwritten: Debian's default, and not every library's. */
	if (r == 0)
		r = exec(q, "PRAGMA secure_delete = ON", err);
	if (r == 0)
		r = sqlite_begin(q, err);
	return r < 0 ? r : sqlite_finish(q, migrate_locked(q, err), err);
}

/* SQLite would make the file readable by all. */
static int make_file(const char *path, struct error *err)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return errno == EEXIST ? 0 : error_errno(err, errno, "store: %s", path);
	close(fd);
	return 0;
}

static const struct store_backend backend = {
        .close = sqlite_close_store,
        .container_create = sqlite_containers_create,
        .container_touch = sqlite_containers_touch,
        .container_get = sqlite_containers_get,
        .container_keep = sqlite_containers_keep,
        .container_network = sqlite_containers_network,
        .container_mark_deleting = sqlite_containers_mark_deleting,
        .container_delete = sqlite_containers_delete,
        .container_list = sqlite_containers_list,
        .container_stale = sqlite_containers_stale,
        .container_expire = sqlite_containers_expire,
        .network_add = sqlite_network_add,
        .network_list = sqlite_network_list,
        .network_expire = sqlite_network_expire,
        .call_ids_put = call_ids_put,
        .call_id_get = call_id_get,
        .call_ids_expire = call_ids_expire,
        .key_create = sqlite_keys_create,
        .key_revoke = sqlite_keys_revoke,
        .key_change = sqlite_keys_change,
        .key_list = sqlite_keys_list,
        .keys_expire = sqlite_keys_expire,
        .key_spent = sqlite_keys_spent,
        .workspace_put = sqlite_keys_workspace_put,
        .workspace_list = sqlite_keys_workspace_list,
        .keeper_take = keeper_take,
        .keeper_drop = keeper_drop,
        .document_create = sqlite_documents_create,
        .document_usage = sqlite_documents_usage,
        .document_get = sqlite_documents_get,
        .document_list = sqlite_documents_list,
        .document_delete = sqlite_documents_delete,
        .document_blob_used = sqlite_documents_blob_used,
        .document_blob_unused = sqlite_documents_blob_unused,
        .documents_expire = sqlite_documents_expire,
        .response_put = sqlite_responses_put,
        .response_get = sqlite_responses_get,
        .response_events_put = sqlite_responses_events_put,
        .response_events_get = sqlite_responses_events_get,
        .response_chain = sqlite_responses_chain,
        .response_item = sqlite_responses_item,
        .response_delete = sqlite_responses_delete,
        .responses_expire = sqlite_responses_expire,
        .idempotency_claim = sqlite_idempotency_claim,
        .idempotency_finish = sqlite_idempotency_finish,
        .idempotency_release = sqlite_idempotency_release,
        .idempotency_cut = sqlite_idempotency_cut,
        .idempotency_recover = sqlite_idempotency_recover,
        .idempotency_expire = sqlite_idempotency_expire,
        .records_write = sqlite_records_write,
        .record_get = sqlite_records_get,
        .record_list = sqlite_records_list,
        .record_totals = sqlite_records_totals,
        .record_forget = sqlite_records_forget,
        .records_recover = sqlite_records_recover,
        .records_expire = sqlite_records_expire,
        .kept_change = sqlite_kept_change,
        .kept_list = sqlite_kept_list,
        .destination_create = sqlite_broadcast_create,
        .destination_get = sqlite_broadcast_get,
        .destination_list = sqlite_broadcast_list,
        .destination_update = sqlite_broadcast_update,
        .destination_delete = sqlite_broadcast_delete,
        .destinations_fix = sqlite_broadcast_fix,
        .outbox_read = sqlite_broadcast_read,
        .outbox_done = sqlite_broadcast_done,
        .outbox_drop = sqlite_broadcast_drop,
        .outbox_counts = sqlite_broadcast_counts,
        .guardrail_create = sqlite_guardrails_create,
        .guardrail_change = sqlite_guardrails_change,
        .guardrail_get = sqlite_guardrails_get,
        .guardrail_list = sqlite_guardrails_list,
        .guardrail_delete = sqlite_guardrails_delete,
        .guardrail_assign = sqlite_guardrails_assign,
        .guardrail_unassign = sqlite_guardrails_unassign,
        .guardrail_keys = sqlite_guardrails_keys,
        .phrase_allow = sqlite_guardrails_allow,
        .phrase_list = sqlite_guardrails_phrases,
        .phrase_disallow = sqlite_guardrails_disallow,
        .guardrail_changes = sqlite_guardrails_changes,
        .guardrail_load = sqlite_guardrails_load,
        .hit_list = sqlite_hits_list,
        .hit_mark = sqlite_hits_mark,
};

int sqlite_open(const struct store_options *o, struct store **ret, struct error *err)
{
	struct sqlite *q;
	int r = make_file(o->path, err);

	if (r < 0)
		return r;
	q = mem_alloc(sizeof(*q));
	q->store.backend = &backend;
	pthread_mutex_init(&q->lock, NULL);
	if (sqlite3_open_v2(o->path, &q->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
	        SQLITE_OK)
		r = sqlite_fail(q, o->path, err);
	else
		r = set_up(q, o->power, err);
	if (r < 0) {
		sqlite_close_store(&q->store);
		return r;
	}
	q->checkpoint = sqlite_checkpoint_new(q->db, o->path);
	*ret = &q->store;
	return 0;
}
