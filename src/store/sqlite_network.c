/* Records of egress in SQLite; how many of a container are kept, the migration's trigger says. */
#include "store/sqlite.h"

#include "base/mem.h"

#include <stdlib.h>

enum statement { ST_ADD, ST_LIST, ST_EXPIRE, N_STATEMENTS };
_Static_assert(N_STATEMENTS <= SQLITE_NETWORK_STATEMENTS, "room for every statement");

#define COLUMNS "time_ms, name, address, port, allowed, reason, bytes_in, bytes_out, more"

static const char *const sql_of[N_STATEMENTS] = {
        /* A container that has gone gets none. */
        [ST_ADD] = "INSERT INTO network (account, workspace, container, " COLUMNS ") "
                   "SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12 WHERE EXISTS (SELECT "
                   "1 FROM containers WHERE account = ?1 AND workspace = ?2 AND id = ?3 AND "
                   "deleting = 0)",
        [ST_LIST] = "SELECT " COLUMNS " FROM network WHERE account = ?1 AND workspace = ?2 AND "
                    "container = ?3 ORDER BY id DESC LIMIT ?4",
        [ST_EXPIRE] = "DELETE FROM network WHERE id IN (SELECT id FROM network WHERE time_ms <= "
                      "?1 LIMIT ?2)",
};

static sqlite3_stmt *prepare(struct sqlite *q, enum statement which, struct error *err)
{
	return sqlite_statement(q, &q->network[which], sql_of[which], err);
}

static int add_one(struct sqlite *q, const struct store_network *n, struct error *err)
{
	const struct store_scope scope = {str_of(n->account), str_of(n->workspace)};
	sqlite3_stmt *st = prepare(q, ST_ADD, err);
	int r;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, &scope, str_of(n->container));
	sqlite3_bind_int64(st, 4, n->time_ms);
	sqlite_bind_str(st, 5, str_of(n->name));
	sqlite_bind_str(st, 6, str_of(n->address));
	sqlite3_bind_int64(st, 7, n->port);
	sqlite3_bind_int64(st, 8, n->allowed);
	sqlite_bind_str(st, 9, str_of(n->reason));
	sqlite3_bind_int64(st, 10, (sqlite3_int64)(n->bytes_in & INT64_MAX));
	sqlite3_bind_int64(st, 11, (sqlite3_int64)(n->bytes_out & INT64_MAX));
	sqlite3_bind_int64(st, 12, n->more);
	r = sqlite_run(q, st, "keep a record of the network", err);
	return r < 0 ? r : sqlite_run_network_add(q, n, err);
}

int sqlite_network_add(
        struct store *s, const struct store_network *records, size_t n, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	int r = sqlite_begin(q, err);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r >= 0; i++)
		r = add_one(q, &records[i], err);
	r = sqlite_finish(q, r < 0 ? r : 0, err);
	return r < 0 ? r : 0;
}

static void read_record(sqlite3_stmt *st, struct store_network *n)
{
	n->time_ms = sqlite3_column_int64(st, 0);
	str_copy(n->name, sizeof(n->name), sqlite_column_str(st, 1));
	str_copy(n->address, sizeof(n->address), sqlite_column_str(st, 2));
	n->port = (uint16_t)sqlite3_column_int(st, 3);
	n->allowed = sqlite3_column_int(st, 4) != 0;
	str_copy(n->reason, sizeof(n->reason), sqlite_column_str(st, 5));
	n->bytes_in = (uint64_t)sqlite3_column_int64(st, 6);
	n->bytes_out = (uint64_t)sqlite3_column_int64(st, 7);
	n->more = (uint32_t)sqlite3_column_int64(st, 8);
}

int sqlite_network_list(struct store *s, const struct store_scope *scope, struct str container,
        uint32_t limit, struct store_network **ret, size_t *ret_n, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_LIST, err);
	struct store_network *list;
	size_t n = 0;
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	list = mem_array(limit + 1, sizeof(*list));
	sqlite_bind_key(st, scope, container);
	sqlite3_bind_int64(st, 4, limit);
	while ((step = sqlite3_step(st)) == SQLITE_ROW && n < limit)
		read_record(st, &list[n++]);
	if (step != SQLITE_DONE && step != SQLITE_ROW)
		r = sqlite_fail(q, "read records of the network", err);
	sqlite_reset_statement(st);
	if (r < 0) {
		free(list);
		return r;
	}
	*ret = list;
	*ret_n = n;
	return 0;
}

int sqlite_network_expire(struct store *s, int64_t before_ms, uint32_t limit, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return sqlite_run_expiry(q, prepare(q, ST_EXPIRE, err), before_ms, limit,
	        "expire records of the network", err);
}
