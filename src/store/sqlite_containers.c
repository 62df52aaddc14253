/* Containers in SQLite. */
#include "store/sqlite.h"

#include "base/mem.h"

#include <stdlib.h>

#define COLUMNS                                                                                    \
	"id, name, created_ms, last_used_ms, keep_until_ms, image, memory_mib, cpu_milli, "        \
	"deleting, network, env, metadata, expires_ms"
#define KEY "account = ?1 AND workspace = ?2 AND id = ?3"
#define LIST                                                                                       \
	"SELECT " COLUMNS " FROM containers WHERE account = ?1 AND workspace = ?2 "                \
	"AND deleting = 0 AND (?3 IS NULL OR name = ?3) "

enum statement {
	ST_CREATE,
	ST_TOUCH,
	ST_GET,
	ST_KEEP,
	ST_NETWORK,
	ST_MARK,
	ST_DELETE,
	ST_LIST_UP,
	ST_LIST_DOWN,
	ST_STALE,
	ST_EXPIRE,
	N_STATEMENTS,
};
_Static_assert(N_STATEMENTS <= SQLITE_CONTAINER_STATEMENTS, "room for every statement");

static const char *const sql_of[N_STATEMENTS] = {
        [ST_CREATE] = "INSERT INTO containers (account, workspace, " COLUMNS ") VALUES "
                      "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, ?11, ?12, ?13, ?14) "
                      "ON CONFLICT DO UPDATE SET name = excluded.name, "
                      "created_ms = excluded.created_ms, last_used_ms = excluded.last_used_ms, "
                      "keep_until_ms = excluded.keep_until_ms, image = excluded.image, "
                      "memory_mib = excluded.memory_mib, cpu_milli = excluded.cpu_milli, "
                      "deleting = 0, network = excluded.network, env = excluded.env, "
                      "metadata = excluded.metadata, expires_ms = excluded.expires_ms "
                      "WHERE deleting = 1",
        [ST_TOUCH] = "UPDATE containers SET last_used_ms = max(last_used_ms, ?4) WHERE " KEY
                     " AND deleting = 0",
        [ST_GET] = "SELECT " COLUMNS " FROM containers WHERE " KEY,
        [ST_KEEP] = "UPDATE containers SET keep_until_ms = ?4 WHERE " KEY,
        [ST_NETWORK] = "UPDATE containers SET network = ?4 WHERE " KEY,
        [ST_MARK] = "UPDATE containers SET deleting = 1, last_used_ms = ?4 WHERE " KEY,
        [ST_DELETE] = "DELETE FROM containers WHERE " KEY " AND deleting = 1",
        [ST_LIST_UP] = LIST "AND (created_ms, id) > (?4, ?5) ORDER BY created_ms, id LIMIT ?6",
        [ST_LIST_DOWN] = LIST "AND (created_ms, id) < (?4, ?5) "
                              "ORDER BY created_ms DESC, id DESC LIMIT ?6",
        [ST_STALE] = "SELECT account, workspace, id, last_used_ms, deleting FROM containers WHERE "
                     "(last_used_ms < ?2 - ?1 AND keep_until_ms <= ?2) OR (expires_ms > 0 AND "
                     "last_used_ms + expires_ms < ?2 AND keep_until_ms <= ?2) OR "
                     "(deleting = 1 AND last_used_ms < ?2 - 60000) LIMIT ?3",
        [ST_EXPIRE] = "UPDATE containers SET deleting = 1, last_used_ms = ?5 WHERE " KEY
                      " AND last_used_ms = ?4",
};

static sqlite3_stmt *prepare(struct sqlite *q, enum statement which, struct error *err)
{
	return sqlite_statement(q, &q->containers[which], sql_of[which], err);
}

static void read_container(sqlite3_stmt *st, struct store_container *c)
{
	*c = (struct store_container){0};
	str_copy(c->id, sizeof(c->id), sqlite_column_str(st, 0));
	str_copy(c->name, sizeof(c->name), sqlite_column_str(st, 1));
	c->created_ms = sqlite3_column_int64(st, 2);
	c->last_used_ms = sqlite3_column_int64(st, 3);
	c->keep_until_ms = sqlite3_column_int64(st, 4);
	str_copy(c->image, sizeof(c->image), sqlite_column_str(st, 5));
	c->memory_mib = (uint32_t)sqlite3_column_int64(st, 6);
	c->cpu_milli = (uint32_t)sqlite3_column_int64(st, 7);
	c->deleting = sqlite3_column_int(st, 8) != 0;
	c->network = sqlite_column_dup(st, 9);
	c->env = sqlite_column_dup(st, 10);
	c->metadata = sqlite_column_dup(st, 11);
	c->expires_ms = sqlite3_column_int64(st, 12);
}

static int get_locked(struct sqlite *q, const struct store_scope *scope, struct str id,
        struct store_container *ret, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_GET, err);
	int r = 0, step;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, id);
	step = sqlite3_step(st);
	if (step == SQLITE_ROW)
		read_container(st, ret);
	else if (step == SQLITE_DONE)
		r = error_set(err, ERR_NOT_FOUND, "no container %.*s", (int)id.n, id.p);
	else
		r = sqlite_fail(q, "read container", err);
	sqlite_reset_statement(st);
	return r;
}

static int insert_locked(struct sqlite *q, const struct store_scope *scope, struct str id,
        const struct store_container *c, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_CREATE, err);

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, id);
	sqlite_bind_str(st, 4, str_of(c->name));
	sqlite3_bind_int64(st, 5, c->created_ms);
	sqlite3_bind_int64(st, 6, c->last_used_ms);
	sqlite3_bind_int64(st, 7, c->keep_until_ms);
	sqlite_bind_str(st, 8, str_of(c->image));
	sqlite3_bind_int64(st, 9, c->memory_mib);
	sqlite3_bind_int64(st, 10, c->cpu_milli);
	sqlite_bind_str(st, 11, str_of(c->network));
	sqlite_bind_str(st, 12, str_of(c->env));
	sqlite_bind_str(st, 13, str_of(c->metadata));
	sqlite3_bind_int64(st, 14, c->expires_ms);
	return sqlite_run(q, st, "make container", err);
}

int sqlite_containers_create(struct store *s, const struct store_scope *scope,
        const struct store_container *c, struct store_container *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	struct store_container row = {0};
	int made, r;

	r = sqlite_begin(q, err);
	if (r < 0)
		return r;
	made = insert_locked(q, scope, str_of(c->id), c, err);
	if (made >= 0 && ret) {
		r = get_locked(q, scope, str_of(c->id), &row, err);
		made = r < 0 ? r : made;
	}
	made = sqlite_finish(q, made, err);
	if (made >= 0 && ret)
		*ret = row;
	else
		store_container_clear(&row);
	return made;
}

int sqlite_containers_touch(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, const struct store_container *fresh, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st;
	int r, made = 0;

	r = sqlite_begin(q, err);
	if (r < 0)
		return r;
	st = prepare(q, ST_TOUCH, err);
	r = st ? 0 : -ERR_IO;
	if (st) {
		sqlite_bind_key(st, scope, id);
		sqlite3_bind_int64(st, 4, now_ms);
		r = sqlite_run(q, st, "touch container", err);
	}
	if (r == 0) {
		made = insert_locked(q, scope, id, fresh, err);
		r = made;
	}
	r = sqlite_finish(q, r, err);
	return r < 0 ? r : made;
}

int sqlite_containers_get(struct store *s, const struct store_scope *scope, struct str id,
        struct store_container *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return get_locked(q, scope, id, ret, err);
}

/* One statement on one row; arg is bound as ?4 where it is given. Returns the rows changed. */
static int change_row(struct sqlite *q, enum statement which, const struct store_scope *scope,
        struct str id, const int64_t *arg, struct error *err)
{
	sqlite3_stmt *st = prepare(q, which, err);

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, id);
	if (arg)
		sqlite3_bind_int64(st, 4, *arg);
	return sqlite_run(q, st, "change container", err);
}

static int must_change(int changed, struct str id, struct error *err)
{
	if (changed == 0)
		return error_set(err, ERR_NOT_FOUND, "no container %.*s", (int)id.n, id.p);
	return changed < 0 ? changed : 0;
}

int sqlite_containers_keep(struct store *s, const struct store_scope *scope, struct str id,
        int64_t keep_until_ms, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return must_change(change_row(q, ST_KEEP, scope, id, &keep_until_ms, err), id, err);
}

int sqlite_containers_network(struct store *s, const struct store_scope *scope, struct str id,
        struct str network, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_NETWORK, err);
	int r;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, id);
	sqlite_bind_str(st, 4, network);
	r = sqlite_run(q, st, "change container", err);
	return must_change(r, id, err);
}

int sqlite_containers_mark_deleting(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return must_change(change_row(q, ST_MARK, scope, id, &now_ms, err), id, err);
}

int sqlite_containers_delete(
        struct store *s, const struct store_scope *scope, struct str id, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return change_row(q, ST_DELETE, scope, id, NULL, err);
}

/* Reads up to limit rows; the statement asks for one more, which only tells that there is more. */
static int read_list(struct sqlite *q, sqlite3_stmt *st, uint32_t limit, struct store_list *ret,
        struct error *err)
{
	struct store_list list = {0};
	size_t cap = 0;
	int step;

	while ((step = sqlite3_step(st)) == SQLITE_ROW) {
		if (list.n == limit) {
			list.has_more = true;
			step = SQLITE_DONE;
			break;
		}
		mem_grow(&list.rows, &cap, list.n, sizeof(*list.rows));
		read_container(st, &list.rows[list.n++]);
	}
	if (step != SQLITE_DONE) {
		store_list_clear(&list);
		return sqlite_fail(q, "list containers", err);
	}
	*ret = list;
	return 0;
}

int sqlite_containers_list(struct store *s, const struct store_scope *scope,
        const struct store_list_query *query, struct store_list *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	int64_t created = query->ascending ? INT64_MIN : INT64_MAX;
	sqlite3_stmt *st;
	int r;

	if (query->after.p) {
		struct store_container last;

		r = query->after.n <= STORE_ID_MAX ? get_locked(q, scope, query->after, &last, err)
		                                   : -ERR_NOT_FOUND;
		if (r == -ERR_NOT_FOUND)
			return error_param(err, ERR_INVALID, "after", "no container of this id");
		if (r < 0)
			return r;
		created = last.created_ms;
		store_container_clear(&last);
	}
	st = prepare(q, query->ascending ? ST_LIST_UP : ST_LIST_DOWN, err);
	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, query->name); /* ?3 is the name here */
	sqlite3_bind_int64(st, 4, created);
	sqlite_bind_str(st, 5, query->after.p ? query->after : STR(""));
	sqlite3_bind_int64(st, 6, (int64_t)query->limit + 1);
	r = read_list(q, st, query->limit, ret, err);
	sqlite_reset_statement(st);
	return r;
}

int sqlite_containers_stale(struct store *s, int64_t keep_ms, int64_t now_ms, uint32_t limit,
        struct store_stale **ret, size_t *ret_n, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_STALE, err);
	struct store_stale *list = NULL;
	size_t n = 0, cap = 0;
	int step;

	if (!st)
		return -ERR_IO;
	sqlite3_bind_int64(st, 1, keep_ms);
	sqlite3_bind_int64(st, 2, now_ms);
	sqlite3_bind_int64(st, 3, limit);
	while ((step = sqlite3_step(st)) == SQLITE_ROW) {
		mem_grow(&list, &cap, n, sizeof(*list));
		list[n].account = sqlite_column_dup(st, 0);
		list[n].workspace = sqlite_column_dup(st, 1);
		str_copy(list[n].id, sizeof(list[n].id), sqlite_column_str(st, 2));
		list[n].last_used_ms = sqlite3_column_int64(st, 3);
		list[n].deleting = sqlite3_column_int(st, 4) != 0;
		n++;
	}
	if (step != SQLITE_DONE) {
		store_stale_free(list, n);
		step = sqlite_fail(q, "find stale containers", err);
		sqlite_reset_statement(st);
		return step;
	}
	sqlite_reset_statement(st);
	*ret = list;
	*ret_n = n;
	return 0;
}

int sqlite_containers_expire(
        struct store *s, const struct store_stale *stale, int64_t now_ms, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	struct store_scope scope = {str_of(stale->account), str_of(stale->workspace)};
	sqlite3_stmt *st = prepare(q, ST_EXPIRE, err);

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, &scope, str_of(stale->id));
	sqlite3_bind_int64(st, 4, stale->last_used_ms);
	sqlite3_bind_int64(st, 5, now_ms);
	return sqlite_run(q, st, "expire container", err);
}
