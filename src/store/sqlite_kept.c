/*
 * Records of containers that are kept running. Every change of one is a transaction: whichever
 * gateways of the node ask for it at once, a container has one open record, and no second of its
 * keeping is in two.
 */
#include "store/sqlite.h"

#include "base/mem.h"
#include "record/record.h"

#include <stdlib.h>

enum statement { ST_OPEN, ST_SET, ST_TO_KEEP, ST_LIST, N_STATEMENTS };
_Static_assert(N_STATEMENTS <= SQLITE_KEPT_STATEMENTS, "room for every statement");

/* A plus keeps SQLite to the index of open rows, which are few; a container may have many. */
static const char *const sql_of[N_STATEMENTS] = {
        [ST_OPEN] = "SELECT n, begin_ms, heartbeat_ms FROM records WHERE +account = ?1 AND "
                    "+workspace = ?2 AND +container_id = ?3 AND api = 'container' AND state = 0",
        [ST_SET] = "UPDATE records SET state = ?2, heartbeat_ms = ?3, end_ms = ?4, status = ?5, "
                   "sandbox_ms = ?6, sandbox_cost = ?7, total_cost = ?7 WHERE n = ?1",
        [ST_TO_KEEP] = "SELECT 1 FROM containers WHERE account = ?1 AND workspace = ?2 AND "
                       "id = ?3 AND deleting = 0 AND keep_until_ms > ?4",
        [ST_LIST] =
                "SELECT r.account, r.workspace, r.container_id, coalesce(c.keep_until_ms, 0), "
                "r.begin_ms, r.key_hash FROM records r LEFT JOIN containers c ON c.account = "
                "r.account AND "
                "c.workspace = "
                "r.workspace AND c.id = r.container_id AND c.deleting = 0 WHERE r.state = 0 AND "
                "r.api = 'container' AND r.holder = ?1 UNION ALL SELECT c.account, c.workspace, "
                "c.id, c.keep_until_ms, 0, (SELECT r.key_hash FROM records r WHERE r.account = "
                "c.account AND r.workspace = c.workspace AND r.container_id = c.id AND r.api = "
                "'container' ORDER BY r.begin_ms DESC LIMIT 1) FROM containers c WHERE "
                "c.keep_until_ms > 0 AND "
                "c.keep_until_ms > ?2 AND c.deleting = 0 AND NOT EXISTS (SELECT 1 FROM records r "
                "WHERE +r.account = c.account AND +r.workspace = c.workspace AND "
                "+r.container_id = c.id AND r.api = 'container' AND r.state = 0) LIMIT ?3",
};

static sqlite3_stmt *prepare(struct sqlite *q, enum statement which, struct error *err)
{
	return sqlite_statement(q, &q->kept[which], sql_of[which], err);
}

struct open_row {
	int64_t n, begin_ms, heartbeat_ms;
};

/* 1: there is one, 0: there is none. */
static int find_open(struct sqlite *q, const struct store_kept_change *c, struct open_row *ret,
        struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_OPEN, err);
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, &c->scope, c->container);
	step = sqlite3_step(st);
	if (step == SQLITE_ROW) {
		*ret = (struct open_row){sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1),
		        sqlite3_column_int64(st, 2)};
		r = 1;
	} else if (step != SQLITE_DONE) {
		r = sqlite_fail(q, "find the record of a kept container", err);
	}
	sqlite_reset_statement(st);
	return r;
}

static int set_open(struct sqlite *q, const struct store_kept_change *c, const struct open_row *row,
        struct store_kept_settled *ret, struct error *err)
{
	int64_t at = c->at_ms > 0 ? c->at_ms : row->heartbeat_ms;
	uint64_t ms = at > row->begin_ms ? (uint64_t)(at - row->begin_ms) : 0;
	struct money cost = money_mul(c->price_per_second, ms, 1000);
	bool ends = c->state != RECORD_OPEN;
	sqlite3_stmt *st = prepare(q, ST_SET, err);

	if (!st)
		return -ERR_IO;
	sqlite3_bind_int64(st, 1, row->n);
	sqlite3_bind_int(st, 2, c->state);
	sqlite3_bind_int64(st, 3, at);
	sqlite3_bind_int64(st, 4, ends ? at : 0);
	sqlite3_bind_int(st, 5, ends ? 200 : 0);
	sqlite3_bind_int64(st, 6, (sqlite3_int64)ms);
	sqlite3_bind_int64(st, 7, cost.pico);
	if (ends && ret)
		*ret = (struct store_kept_settled){1, ms, cost};
	return sqlite_run(q, st, "write the record of a kept container", err);
}

/* 1: it is to be kept after ms, 0: it is not. */
static int is_to_keep(
        struct sqlite *q, const struct store_kept_change *c, int64_t ms, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_TO_KEEP, err);
	int step, r;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, &c->scope, c->container);
	sqlite3_bind_int64(st, 4, ms);
	step = sqlite3_step(st);
	r = step == SQLITE_ROW || step == SQLITE_DONE ? step == SQLITE_ROW
	                                              : sqlite_fail(q, "find a container", err);
	sqlite_reset_statement(st);
	return r;
}

static int change(struct sqlite *q, const struct store_kept_change *c,
        struct store_kept_settled *ret, struct error *err)
{
	struct open_row row = {0};
	int r = find_open(q, c, &row, err);
	bool none = r == 0;

	if (r == 1 && (c->at_ms == 0 || row.begin_ms <= c->at_ms)) {
		r = set_open(q, c, &row, ret, err);
		none = c->state != RECORD_OPEN;
	}
	if (r >= 0 && none && c->next)
		r = is_to_keep(q, c, c->next->begin_ms, err);
	if (r > 0 && none && c->next)
		r = sqlite_records_put(q, c->holder, c->next, err);
	return r < 0 ? r : 0;
}

int sqlite_kept_change(struct store *s, const struct store_kept_change *c,
        struct store_kept_settled *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	int r = sqlite_begin(q, err);

	if (ret)
		*ret = (struct store_kept_settled){0};
	return r < 0 ? r : sqlite_finish(q, change(q, c, ret, err), err);
}

int sqlite_kept_list(struct store *s, struct str holder, int64_t now_ms, uint32_t limit,
        struct store_kept **ret, size_t *ret_n, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_LIST, err);
	struct store_kept *list;
	size_t n = 0;
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	list = mem_array(limit, sizeof(*list));
	sqlite_bind_str(st, 1, holder);
	sqlite3_bind_int64(st, 2, now_ms);
	sqlite3_bind_int64(st, 3, limit);
	while (n < limit && (step = sqlite3_step(st)) == SQLITE_ROW) {
		struct store_kept *k = &list[n++];

		str_copy(k->account, sizeof(k->account), sqlite_column_str(st, 0));
		str_copy(k->workspace, sizeof(k->workspace), sqlite_column_str(st, 1));
		str_copy(k->container, sizeof(k->container), sqlite_column_str(st, 2));
		k->until_ms = sqlite3_column_int64(st, 3);
		k->begin_ms = sqlite3_column_int64(st, 4);
		str_copy(k->key_hash, sizeof(k->key_hash), sqlite_column_str(st, 5));
	}
	if (n < limit && step != SQLITE_DONE)
		r = sqlite_fail(q, "list kept containers", err);
	sqlite_reset_statement(st);
	if (r < 0) {
		free(list);
		return r;
	}
	*ret = list;
	*ret_n = n;
	return 0;
}
