/*
 * Destinations of traces, and the outbox, in SQLite.
 *
 * Rows of the outbox are made by triggers on the records (migrations/0010_broadcast.sql), so they
 * are there if and only if the record's end is. A destination that nobody reads holds its own rows
 * alone. A row names its record by number, and numbers of records are used again where the newest
 * ones were removed; so a record counts only where it lies in the destination's scope.
 */
#include "store/sqlite.h"

#include "base/mem.h"
#include "record/record.h"

#include <stdlib.h>

#define COLUMNS                                                                                    \
	"n, id, type, account, workspace, body, enabled, fixed, created_ms, updated_ms, "          \
	"EXISTS (SELECT 1 FROM broadcast_outbox o WHERE o.destination = "                          \
	"broadcast_destinations.n)"
#define KEY "account = ?1 AND workspace = ?2 AND id = ?3 AND fixed = 0"

enum statement {
	ST_COUNT,
	ST_CREATE,
	ST_GET,
	ST_LIST,
	ST_ALL,
	ST_UPDATE,
	ST_DELETE,
	ST_FIX,
	ST_UNFIX,
	ST_READ,
	ST_DONE,
	ST_DROP,
	ST_COUNTS,
	N_STATEMENTS,
};

static const char *const sql_of[N_STATEMENTS] = {
        [ST_COUNT] = "SELECT count(*) FROM broadcast_destinations WHERE account = ?1 AND "
                     "workspace = ?2 AND type = ?3 AND fixed = 0",
        [ST_CREATE] = "INSERT INTO broadcast_destinations (account, workspace, id, type, body, "
                      "enabled, fixed, created_ms, updated_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, "
                      "?7, ?8)",
        [ST_GET] = "SELECT " COLUMNS " FROM broadcast_destinations WHERE " KEY,
        [ST_LIST] = "SELECT " COLUMNS " FROM broadcast_destinations WHERE account = ?1 AND "
                    "workspace = ?2 AND fixed = 0 ORDER BY n",
        [ST_ALL] = "SELECT " COLUMNS " FROM broadcast_destinations ORDER BY n",
        [ST_UPDATE] = "UPDATE broadcast_destinations SET body = ?4, enabled = ?5, updated_ms = ?6 "
                      "WHERE " KEY " AND updated_ms = ?7",
        [ST_DELETE] = "DELETE FROM broadcast_destinations WHERE " KEY,
        [ST_FIX] = "INSERT INTO broadcast_destinations (account, workspace, id, type, enabled, "
                   "fixed, created_ms, updated_ms) VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?6) "
                   "ON CONFLICT (id) DO UPDATE SET account = excluded.account, workspace = "
                   "excluded.workspace, type = excluded.type, enabled = excluded.enabled, "
                   "updated_ms = excluded.updated_ms",
        [ST_UNFIX] = "DELETE FROM broadcast_destinations WHERE fixed = 1 AND updated_ms <> ?1",
        [ST_READ] = "SELECT o.seq, r.n FROM broadcast_outbox o JOIN broadcast_destinations d ON "
                    "d.n = o.destination LEFT JOIN records r ON r.n = o.record AND r.state <> 0 "
                    "AND (d.account IS NULL OR r.account = d.account) AND (d.workspace IS NULL OR "
                    "r.workspace = d.workspace) WHERE o.destination = ?1 ORDER BY o.seq LIMIT ?2",
        [ST_DONE] = "DELETE FROM broadcast_outbox WHERE destination = ?1 AND seq <= ?2",
        [ST_DROP] = "DELETE FROM broadcast_outbox WHERE seq IN (SELECT seq FROM broadcast_outbox "
                    "WHERE destination = ?1 ORDER BY seq LIMIT ?2)",
        [ST_COUNTS] = "SELECT destination, count(*) FROM broadcast_outbox GROUP BY destination",
};
_Static_assert(N_STATEMENTS <= SQLITE_BROADCAST_STATEMENTS, "room for every statement");

static sqlite3_stmt *prepare(struct sqlite *q, enum statement which, struct error *err)
{
	return sqlite_statement(q, &q->broadcast[which], sql_of[which], err);
}

/* ---- destinations ---- */

static void read_destination(sqlite3_stmt *st, struct store_destination *d)
{
	*d = (struct store_destination){.n = sqlite3_column_int64(st, 0)};
	str_copy(d->id, sizeof(d->id), sqlite_column_str(st, 1));
	str_copy(d->type, sizeof(d->type), sqlite_column_str(st, 2));
	d->account = sqlite_column_dup(st, 3);
	d->workspace = sqlite_column_dup(st, 4);
	d->body = sqlite_column_dup(st, 5);
	d->enabled = sqlite3_column_int(st, 6) != 0;
	d->fixed = sqlite3_column_int(st, 7) != 0;
	d->created_ms = sqlite3_column_int64(st, 8);
	d->updated_ms = sqlite3_column_int64(st, 9);
	d->waiting = sqlite3_column_int(st, 10) != 0;
}

static int check_room(
        struct sqlite *q, const struct store_scope *scope, const char *type, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_COUNT, err);
	int r = 0;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, str_of(type));
	if (sqlite3_step(st) != SQLITE_ROW)
		r = sqlite_fail(q, "count destinations", err);
	else if (sqlite3_column_int64(st, 0) >= STORE_DESTINATIONS_MAX)
		r = error_param(err, ERR_CONFLICT, "type",
		        "there are %d destinations of the type %s already", STORE_DESTINATIONS_MAX,
		        type);
	sqlite_reset_statement(st);
	return r;
}

int sqlite_broadcast_create(struct store *s, const struct store_scope *scope,
        const struct store_destination *d, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_CREATE, err);
	int r;

	if (!st)
		return -ERR_IO;
	r = sqlite_begin(q, err);
	if (r < 0)
		return r;
	r = check_room(q, scope, d->type, err);
	if (r == 0) {
		sqlite_bind_key(st, scope, str_of(d->id));
		sqlite_bind_str(st, 4, str_of(d->type));
		sqlite_bind_str(st, 5, str_of(d->body));
		sqlite3_bind_int(st, 6, d->enabled);
		sqlite3_bind_int64(st, 7, d->created_ms);
		sqlite3_bind_int64(st, 8, d->updated_ms);
		r = sqlite_run(q, st, "make a destination", err);
	}
	r = sqlite_finish(q, r, err);
	return r < 0 ? r : 0;
}

static int get_locked(struct sqlite *q, const struct store_scope *scope, struct str id,
        struct store_destination *ret, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_GET, err);
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, id);
	step = sqlite3_step(st);
	if (step == SQLITE_ROW)
		read_destination(st, ret);
	else if (step == SQLITE_DONE)
		r = error_set(err, ERR_NOT_FOUND, "no destination of this id");
	else
		r = sqlite_fail(q, "read a destination", err);
	sqlite_reset_statement(st);
	return r;
}

int sqlite_broadcast_get(struct store *s, const struct store_scope *scope, struct str id,
        struct store_destination *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return get_locked(q, scope, id, ret, err);
}

int sqlite_broadcast_list(struct store *s, const struct store_scope *scope,
        struct store_destination **ret, size_t *ret_n, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, scope ? ST_LIST : ST_ALL, err);
	struct store_destination *list = NULL;
	size_t n = 0, cap = 0;
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	if (scope) {
		sqlite_bind_str(st, 1, scope->account);
		sqlite_bind_str(st, 2, scope->workspace);
	}
	while ((step = sqlite3_step(st)) == SQLITE_ROW) {
		mem_grow(&list, &cap, n, sizeof(*list));
		read_destination(st, &list[n++]);
	}
	if (step != SQLITE_DONE)
		r = sqlite_fail(q, "list destinations", err);
	sqlite_reset_statement(st);
	if (r < 0) {
		store_destinations_free(list, n);
		return r;
	}
	*ret = list;
	*ret_n = n;
	return 0;
}

int sqlite_broadcast_update(struct store *s, const struct store_scope *scope,
        const struct store_destination *d, int64_t seen_ms, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_UPDATE, err);
	struct store_destination now = {0};
	int r;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, str_of(d->id));
	sqlite_bind_str(st, 4, str_of(d->body));
	sqlite3_bind_int(st, 5, d->enabled);
	sqlite3_bind_int64(st, 6, d->updated_ms);
	sqlite3_bind_int64(st, 7, seen_ms);
	r = sqlite_run(q, st, "change a destination", err);
	if (r != 0)
		return r < 0 ? r : 0;
	r = get_locked(q, scope, str_of(d->id), &now, err);
	store_destination_clear(&now);
	return r < 0 ? r : error_set(err, ERR_CONFLICT, "the destination has changed meanwhile");
}

int sqlite_broadcast_delete(
        struct store *s, const struct store_scope *scope, struct str id, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_DELETE, err);
	int r;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, id);
	r = sqlite_run(q, st, "remove a destination", err);
	return r < 0 ? r : r > 0 ? 0 : error_set(err, ERR_NOT_FOUND, "no destination of this id");
}

static int fix_one(
        struct sqlite *q, const struct store_destination *d, int64_t mark, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_FIX, err);

	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 1, str_of(d->account));
	sqlite_bind_str(st, 2, str_of(d->workspace));
	sqlite_bind_str(st, 3, str_of(d->id));
	sqlite_bind_str(st, 4, str_of(d->type));
	sqlite3_bind_int(st, 5, d->enabled);
	sqlite3_bind_int64(st, 6, mark);
	return sqlite_run(q, st, "make a destination", err);
}

static int latest_fixed(struct sqlite *q, int64_t *ret, struct error *err)
{
	sqlite3_stmt *st = NULL;
	int r = 0;

	if (!sqlite_statement(
	            q, &st, "SELECT coalesce(max(updated_ms), 0) FROM broadcast_destinations", err))
		return -ERR_IO;
	if (sqlite3_step(st) == SQLITE_ROW)
		*ret = sqlite3_column_int64(st, 0);
	else
		r = sqlite_fail(q, "read destinations", err);
	sqlite3_finalize(st);
	return r;
}

/* The mark that all of them get is later than any before, whatever the clock says: what has it not
 * stands in the configuration no more. */
int sqlite_broadcast_fix(struct store *s, const struct store_destination *list, size_t n,
        int64_t now_ms, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_UNFIX, err);
	int64_t latest = 0, mark;
	int r;

	if (!st)
		return -ERR_IO;
	r = sqlite_begin(q, err);
	if (r < 0)
		return r;
	r = latest_fixed(q, &latest, err);
	mark = latest >= now_ms ? latest + 1 : now_ms;
	for (size_t i = 0; i < n && r >= 0; i++)
		r = fix_one(q, &list[i], mark, err);
	if (r >= 0) {
		sqlite3_bind_int64(st, 1, mark);
		r = sqlite_run(q, st, "remove destinations", err);
	}
	r = sqlite_finish(q, r, err);
	return r < 0 ? r : 0;
}

/* ---- the outbox ---- */

struct place {
	int64_t seq, record; /* record 0: it has gone */
};

static int read_places(struct sqlite *q, int64_t destination, uint32_t limit, struct place *ret,
        size_t *ret_n, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_READ, err);
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	sqlite3_bind_int64(st, 1, destination);
	sqlite3_bind_int64(st, 2, limit);
	while ((step = sqlite3_step(st)) == SQLITE_ROW) {
		ret[*ret_n] =
		        (struct place){sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1)};
		++*ret_n;
	}
	if (step != SQLITE_DONE)
		r = sqlite_fail(q, "read the outbox", err);
	sqlite_reset_statement(st);
	return r;
}

int sqlite_broadcast_read(struct store *s, int64_t destination, bool content, uint32_t limit,
        size_t most_bytes, struct store_delivery **ret, size_t *ret_n, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	_cleanup_free_ struct place *places = mem_array(limit, sizeof(*places));
	struct store_delivery *list = mem_array(limit, sizeof(*list));
	size_t n_places = 0, n = 0, bytes = 0;
	int r = read_places(q, destination, limit, places, &n_places, err);

	for (; n < n_places && bytes < most_bytes && r == 0; n++) {
		list[n].seq = places[n].seq;
		if (places[n].record == 0)
			continue;
		r = sqlite_records_at(q, places[n].record, content, &list[n].record, err);
		if (list[n].record)
			bytes += sqlite_records_bytes(list[n].record);
	}
	if (r < 0) {
		store_deliveries_free(list, n);
		return r;
	}
	*ret = list;
	*ret_n = n;
	return 0;
}

static int remove_rows(struct sqlite *q, enum statement which, int64_t destination, int64_t value,
        struct error *err)
{
	sqlite3_stmt *st = prepare(q, which, err);

	if (!st)
		return -ERR_IO;
	sqlite3_bind_int64(st, 1, destination);
	sqlite3_bind_int64(st, 2, value);
	return sqlite_run(q, st, "remove rows of the outbox", err);
}

int sqlite_broadcast_done(
        struct store *s, int64_t destination, int64_t through_seq, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	int r = remove_rows(q, ST_DONE, destination, through_seq, err);

	return r < 0 ? r : 0;
}

int sqlite_broadcast_drop(struct store *s, int64_t destination, uint32_t limit, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return remove_rows(q, ST_DROP, destination, limit, err);
}

int sqlite_broadcast_counts(
        struct store *s, struct store_outbox_count **ret, size_t *ret_n, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_COUNTS, err);
	struct store_outbox_count *list = NULL;
	size_t n = 0, cap = 0;
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	while ((step = sqlite3_step(st)) == SQLITE_ROW) {
		mem_grow(&list, &cap, n, sizeof(*list));
		list[n++] = (struct store_outbox_count){
		        sqlite3_column_int64(st, 0), (uint64_t)sqlite3_column_int64(st, 1)};
	}
	if (step != SQLITE_DONE)
		r = sqlite_fail(q, "count the outbox", err);
	sqlite_reset_statement(st);
	if (r < 0) {
		free(list);
		return r;
	}
	*ret = list;
	*ret_n = n;
	return 0;
}
