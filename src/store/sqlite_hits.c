/*
 * What guardrails found, over all requests of a workspace. The hits are parts of records
 * (sqlite_records.c); workspace_hits says where they are, in the order of lists.
 */
#include "store/sqlite.h"

#include "base/mem.h"

#include <stdlib.h>

#define COLUMNS                                                                                    \
	"r.id, h.number, r.begin_ms, r.model, r.key_hash, h.guardrail, h.rule, h.pattern, "        \
	"h.action, h.matched, h.false_positive"
#define OF_RECORD "r.account = ?1 AND r.workspace = ?2 AND r.id = ?3"

enum statement {
	ST_LIST,
	ST_PLACE,
	ST_MARK,
	ST_GET,
	N_STATEMENTS,
};
_Static_assert(N_STATEMENTS <= SQLITE_HIT_STATEMENTS, "room for every statement");

static const char *const sql_of[N_STATEMENTS] = {
        [ST_LIST] = "SELECT " COLUMNS " FROM workspace_hits w JOIN records r ON r.n = w.record "
                    "JOIN record_hits h ON h.record = w.record AND h.number = w.number "
                    "WHERE w.account = ?1 AND w.workspace = ?2 AND "
                    "(?3 IS NULL OR (w.begin_ms, w.record, w.number) < (?3, ?4, ?5)) "
                    "ORDER BY w.begin_ms DESC, w.record DESC, w.number DESC LIMIT ?6",
        [ST_PLACE] = "SELECT r.begin_ms, r.n FROM records r WHERE " OF_RECORD,
        [ST_MARK] = "UPDATE record_hits SET false_positive = ?5 WHERE number = ?4 AND record = "
                    "(SELECT n FROM records r WHERE " OF_RECORD ")",
        [ST_GET] = "SELECT " COLUMNS " FROM records r JOIN record_hits h ON h.record = r.n AND "
                   "h.number = ?4 WHERE " OF_RECORD,
};

static sqlite3_stmt *prepare(struct sqlite *q, enum statement which, struct error *err)
{
	return sqlite_statement(q, &q->hits[which], sql_of[which], err);
}

static void read_hit(sqlite3_stmt *st, struct store_hit *h)
{
	*h = (struct store_hit){0};
	str_copy(h->generation, sizeof(h->generation), sqlite_column_str(st, 0));
	h->number = (uint32_t)sqlite3_column_int64(st, 1);
	h->begin_ms = sqlite3_column_int64(st, 2);
	h->model = sqlite_column_dup(st, 3);
	h->key_hash = sqlite_column_dup(st, 4);
	h->found.guardrail = sqlite_column_dup(st, 5);
	h->found.rule = sqlite_column_dup(st, 6);
	h->found.pattern = sqlite_column_dup(st, 7);
	h->found.action = sqlite_column_dup(st, 8);
	h->found.matched = sqlite_column_dup(st, 9);
	h->found.false_positive = sqlite3_column_int(st, 10) != 0;
}

static int unknown(struct error *err)
{
	return error_param(err, ERR_INVALID, "after", "after is the id of no hit.");
}

struct spot {
	int64_t begin_ms, record;
	uint64_t number;
};

/* "generation.number": the generation's id may hold dots. */
static int find_spot(struct sqlite *q, const struct store_scope *scope, struct str after,
        struct spot *ret, struct error *err)
{
	const char *dot = memrchr(after.p, '.', after.n);
	sqlite3_stmt *st = prepare(q, ST_PLACE, err);
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	if (!dot || !str_to_u64((struct str){dot + 1, (size_t)(after.p + after.n - dot - 1)},
	                    &ret->number))
		return unknown(err);
	sqlite_bind_key(st, scope, (struct str){after.p, (size_t)(dot - after.p)});
	step = sqlite3_step(st);
	if (step == SQLITE_ROW) {
		ret->begin_ms = sqlite3_column_int64(st, 0);
		ret->record = sqlite3_column_int64(st, 1);
	} else {
		r = step == SQLITE_DONE ? unknown(err) : sqlite_fail(q, "find a hit", err);
	}
	sqlite_reset_statement(st);
	return r;
}

static void bind_list(sqlite3_stmt *st, const struct store_scope *scope, const struct spot *at)
{
	sqlite_bind_str(st, 1, scope->account);
	sqlite_bind_str(st, 2, scope->workspace);
	if (!at)
		return; /* what is not bound is NULL */
	sqlite3_bind_int64(st, 3, at->begin_ms);
	sqlite3_bind_int64(st, 4, at->record);
	sqlite3_bind_int64(st, 5, (int64_t)at->number);
}

int sqlite_hits_list(struct store *s, const struct store_scope *scope, struct str after,
        uint32_t limit, struct store_hit_list *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	struct store_hit_list list = {0};
	struct spot at = {0};
	sqlite3_stmt *st;
	size_t cap = 0;
	int step, r = 0;

	if (after.p)
		r = find_spot(q, scope, after, &at, err);
	if (r < 0)
		return r;
	st = prepare(q, ST_LIST, err);
	if (!st)
		return -ERR_IO;
	bind_list(st, scope, after.p ? &at : NULL);
	sqlite3_bind_int64(st, 6, (int64_t)limit + 1);
	while ((step = sqlite3_step(st)) == SQLITE_ROW && list.n < limit) {
		mem_grow(&list.rows, &cap, list.n, sizeof(*list.rows));
		read_hit(st, &list.rows[list.n++]);
	}
	list.has_more = step == SQLITE_ROW;
	if (step != SQLITE_DONE && step != SQLITE_ROW)
		r = sqlite_fail(q, "list hits", err);
	sqlite_reset_statement(st);
	if (r < 0)
		store_hit_list_clear(&list);
	else
		*ret = list;
	return r;
}

static int get_locked(struct sqlite *q, const struct store_scope *scope, struct str id,
        uint32_t number, struct store_hit *ret, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_GET, err);
	int r = 0;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, id);
	sqlite3_bind_int64(st, 4, number);
	if (sqlite3_step(st) == SQLITE_ROW)
		read_hit(st, ret);
	else
		r = sqlite_fail(q, "read a hit", err);
	sqlite_reset_statement(st);
	return r;
}

int sqlite_hits_mark(struct store *s, const struct store_scope *scope, struct str id,
        uint32_t number, bool wrong, struct store_hit *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	struct store_hit hit = {0};
	sqlite3_stmt *st;
	int r = sqlite_begin(q, err);

	if (r < 0)
		return r;
	st = prepare(q, ST_MARK, err);
	r = -ERR_IO;
	if (st) {
		sqlite_bind_key(st, scope, id);
		sqlite3_bind_int64(st, 4, number);
		sqlite3_bind_int(st, 5, wrong);
		r = sqlite_run(q, st, "mark a hit", err);
	}
	if (r == 0)
		r = error_set(err, ERR_NOT_FOUND, "There is no hit %u of a generation '%.*s'.",
		        number, (int)id.n, id.p);
	if (r > 0)
		r = get_locked(q, scope, id, number, &hit, err);
	r = sqlite_finish(q, r, err);
	if (r < 0)
		store_hit_clear(&hit);
	else
		*ret = hit;
	return r < 0 ? r : 0;
}
