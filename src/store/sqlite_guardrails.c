/*
 * Guardrails in SQLite, with the keys that they are assigned to, and the phrases of a workspace.
 *
 * Whatever changes one of them also sets the workspace's row in guardrail_changes, in the same
 * transaction: a gateway that has seen all changes up to a version has seen all that there is.
 */
#include "store/sqlite.h"

#include "base/id.h"
#include "base/mem.h"

#include <stdlib.h>

#define SCOPE   "account = ?1 AND workspace = ?2"
#define COLUMNS "id, workspace, body, rules, created_ms, updated_ms"
#define KEYS    "id, guardrail, key_hash, created_ms"
#define PHRASES "id, phrase, created_ms"

enum statement {
	ST_CHANGED,
	ST_VERSION,
	ST_CHANGES,
	ST_COUNTS,
	ST_CREATE,
	ST_CHANGE,
	ST_GET,
	ST_LIST,
	ST_COUNT,
	ST_ALL,
	ST_DELETE,
	ST_ASSIGN,
	ST_UNASSIGN,
	ST_KEYS,
	ST_KEYS_COUNT,
	ST_KEYS_ALL,
	ST_ALLOW,
	ST_PHRASE_FIND,
	ST_PHRASE_COUNT,
	ST_PHRASES,
	ST_PHRASE_SCOPE,
	ST_DISALLOW,
	N_STATEMENTS,
};
_Static_assert(N_STATEMENTS <= SQLITE_GUARDRAIL_STATEMENTS, "room for every statement");

static const char *const sql_of[N_STATEMENTS] = {
        [ST_CHANGED] = "INSERT INTO guardrail_changes (account, workspace, version) VALUES (?1, "
                       "?2, 1 + coalesce((SELECT max(version) FROM guardrail_changes), 0)) "
                       "ON CONFLICT (account, workspace) DO UPDATE SET version = excluded.version",
        [ST_VERSION] = "SELECT version FROM guardrail_changes WHERE " SCOPE,
        [ST_CHANGES] = "SELECT account, workspace, version FROM guardrail_changes WHERE "
                       "version > ?1 ORDER BY version LIMIT ?2",
        [ST_COUNTS] = "SELECT count(*), coalesce(sum(rules), 0) FROM guardrails WHERE " SCOPE
                      " AND id <> ?3",
        [ST_CREATE] = "INSERT INTO guardrails (account, " COLUMNS ") VALUES "
                      "(?1, ?3, ?2, ?4, ?5, ?6, ?7)",
        [ST_CHANGE] = "UPDATE guardrails SET body = ?3, rules = ?4, updated_ms = ?5 WHERE "
                      "account = ?1 AND id = ?2 AND body = ?6",
        [ST_GET] = "SELECT " COLUMNS " FROM guardrails WHERE account = ?1 AND id = ?2",
        [ST_LIST] = "SELECT " COLUMNS " FROM guardrails WHERE " SCOPE
                    " ORDER BY n LIMIT ?3 OFFSET ?4",
        [ST_COUNT] = "SELECT count(*) FROM guardrails WHERE " SCOPE,
        [ST_ALL] = "SELECT " COLUMNS " FROM guardrails WHERE " SCOPE " ORDER BY n",
        [ST_DELETE] = "DELETE FROM guardrails WHERE account = ?1 AND id = ?2",
        [ST_ASSIGN] = "INSERT INTO guardrail_keys (account, workspace, " KEYS ") VALUES "
                      "(?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (guardrail, key_hash) DO NOTHING",
        [ST_UNASSIGN] = "DELETE FROM guardrail_keys WHERE guardrail = ?1 AND key_hash = ?2",
        [ST_KEYS] =
                "SELECT " KEYS " FROM guardrail_keys WHERE " SCOPE
                " AND (?3 IS NULL OR guardrail = ?3) ORDER BY n LIMIT ?4 OFFSET ?5",
        [ST_KEYS_COUNT] = "SELECT count(*) FROM guardrail_keys WHERE " SCOPE
                          " AND (?3 IS NULL OR guardrail = ?3)",
        [ST_KEYS_ALL] =
                "SELECT " KEYS " FROM guardrail_keys WHERE " SCOPE " ORDER BY guardrail, key_hash",
        [ST_ALLOW] = "INSERT INTO guardrail_phrases (account, workspace, " PHRASES ") VALUES "
                     "(?1, ?2, ?3, ?4, ?5)",
        [ST_PHRASE_FIND] = "SELECT " PHRASES " FROM guardrail_phrases WHERE " SCOPE
                           " AND phrase = ?3 COLLATE NOCASE",
        [ST_PHRASE_COUNT] = "SELECT count(*) FROM guardrail_phrases WHERE " SCOPE,
        [ST_PHRASES] =
                "SELECT " PHRASES " FROM guardrail_phrases WHERE " SCOPE " ORDER BY n",
        [ST_PHRASE_SCOPE] =
                "SELECT workspace FROM guardrail_phrases WHERE account = ?1 AND id = ?2",
        [ST_DISALLOW] = "DELETE FROM guardrail_phrases WHERE account = ?1 AND id = ?2",
};

static sqlite3_stmt *prepare(struct sqlite *q, enum statement which, struct error *err)
{
	return sqlite_statement(q, &q->guardrails[which], sql_of[which], err);
}

static sqlite3_stmt *prepare_scope(
        struct sqlite *q, enum statement which, const struct store_scope *scope, struct error *err)
{
	sqlite3_stmt *st = prepare(q, which, err);

	if (st) {
		sqlite_bind_str(st, 1, scope->account);
		sqlite_bind_str(st, 2, scope->workspace);
	}
	return st;
}

static sqlite3_stmt *prepare_id(struct sqlite *q, enum statement which, struct str account,
        struct str id, struct error *err)
{
	const struct store_scope pair = {account, id}; /* the same two places */

	return prepare_scope(q, which, &pair, err);
}

/* Steps a statement that gives one row at most: 1, 0, or an error, and then it is reset. */
static int step_one(struct sqlite *q, sqlite3_stmt *st, const char *step, struct error *err)
{
	int got = sqlite3_step(st), r = 0;

	if (got == SQLITE_ROW)
		return 1;
	if (got != SQLITE_DONE)
		r = sqlite_fail(q, step, err);
	sqlite_reset_statement(st);
	return r;
}

static int changed(struct sqlite *q, const struct store_scope *scope, struct error *err)
{
	sqlite3_stmt *st = prepare_scope(q, ST_CHANGED, scope, err);

	return st ? sqlite_run(q, st, "note a change of guardrails", err) : -ERR_IO;
}

/* ---- guardrails ---- */

static void read_guardrail(sqlite3_stmt *st, struct store_guardrail *g)
{
	*g = (struct store_guardrail){0};
	str_copy(g->id, sizeof(g->id), sqlite_column_str(st, 0));
	g->workspace = sqlite_column_dup(st, 1);
	g->body = sqlite_column_dup(st, 2);
	g->n_rules = (uint32_t)sqlite3_column_int64(st, 3);
	g->created_ms = sqlite3_column_int64(st, 4);
	g->updated_ms = sqlite3_column_int64(st, 5);
}

static int get_locked(struct sqlite *q, struct str account, struct str id,
        struct store_guardrail *ret, struct error *err)
{
	sqlite3_stmt *st = prepare_id(q, ST_GET, account, id, err);
	int r = st ? step_one(q, st, "read a guardrail", err) : -ERR_IO;

	if (r == 0)
		return error_set(
		        err, ERR_NOT_FOUND, "There is no guardrail '%.*s'.", (int)id.n, id.p);
	if (r < 0)
		return r;
	read_guardrail(st, ret);
	sqlite_reset_statement(st);
	return 0;
}

/* Whether the workspace may have so many more rules, but for the guardrail of that id. */
static int check_counts(struct sqlite *q, const struct store_scope *scope,
        const struct store_guardrail *g, bool fresh, uint32_t most, struct error *err)
{
	sqlite3_stmt *st = prepare_scope(q, ST_COUNTS, scope, err);
	int64_t n, rules;
	int r;

	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 3, str_of(g->id));
	r = step_one(q, st, "count guardrails", err);
	if (r < 0)
		return r;
	n = sqlite3_column_int64(st, 0);
	rules = sqlite3_column_int64(st, 1);
	sqlite_reset_statement(st);
	if (fresh && n >= STORE_GUARDRAILS_MAX)
		return error_set(err, ERR_INVALID, "A workspace has at most %d guardrails.",
		        STORE_GUARDRAILS_MAX);
	if (g->n_rules > 0 && rules + g->n_rules > most)
		return error_set(err, ERR_INVALID,
		        "All guardrails of a workspace together, with those of the configuration, "
		        "have at most 256 rules: %u more can be stored for this one, and with "
		        "these "
		        "they would be %lld.",
		        most, (long long)(rules + g->n_rules));
	return 0;
}

int sqlite_guardrails_create(struct store *s, const struct store_scope *scope,
        const struct store_guardrail *g, uint32_t most, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st;
	int r = sqlite_begin(q, err);

	if (r < 0)
		return r;
	r = check_counts(q, scope, g, true, most, err);
	if (r == 0) {
		st = prepare_scope(q, ST_CREATE, scope, err);
		r = -ERR_IO;
		if (st) {
			sqlite_bind_str(st, 3, str_of(g->id));
			sqlite_bind_str(st, 4, str_of(g->body));
			sqlite3_bind_int64(st, 5, g->n_rules);
			sqlite3_bind_int64(st, 6, g->created_ms);
			sqlite3_bind_int64(st, 7, g->updated_ms);
			r = sqlite_run(q, st, "make a guardrail", err);
		}
	}
	if (r >= 0)
		r = changed(q, scope, err);
	r = sqlite_finish(q, r, err);
	return r < 0 ? r : 0;
}

static int change_locked(struct sqlite *q, struct str account, const struct store_guardrail *g,
        struct str before, struct error *err)
{
	sqlite3_stmt *st = prepare_id(q, ST_CHANGE, account, str_of(g->id), err);
	int r;

	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 3, str_of(g->body));
	sqlite3_bind_int64(st, 4, g->n_rules);
	sqlite3_bind_int64(st, 5, g->updated_ms);
	sqlite_bind_str(st, 6, before);
	r = sqlite_run(q, st, "change a guardrail", err);
	return r != 0 ? r : error_set(err, ERR_CONFLICT, "The guardrail was changed meanwhile.");
}

int sqlite_guardrails_change(struct store *s, struct str account, const struct store_guardrail *g,
        struct str before, uint32_t most, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	struct store_guardrail old = {0};
	int r = sqlite_begin(q, err);

	if (r < 0)
		return r;
	r = get_locked(q, account, str_of(g->id), &old, err);
	const struct store_scope scope = {account, str_of(old.workspace)};

	/* What does not become more is not refused for being too much. */
	if (r == 0 && g->n_rules > old.n_rules)
		r = check_counts(q, &scope, g, false, most, err);
	if (r >= 0)
		r = change_locked(q, account, g, before, err);
	if (r >= 0)
		r = changed(q, &scope, err);
	r = sqlite_finish(q, r, err);
	store_guardrail_clear(&old);
	return r < 0 ? r : 0;
}

int sqlite_guardrails_get(struct store *s, struct str account, struct str id,
        struct store_guardrail *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return get_locked(q, account, id, ret, err);
}

/* st is ready but for its limits. Rows up to `most`; st is reset. */
static int read_list(struct sqlite *q, sqlite3_stmt *st, size_t most,
        struct store_guardrail_list *ret, struct error *err)
{
	size_t cap = 0;
	int step = SQLITE_DONE, r = 0;

	while (ret->n < most && (step = sqlite3_step(st)) == SQLITE_ROW) {
		mem_grow(&ret->rows, &cap, ret->n, sizeof(*ret->rows));
		read_guardrail(st, &ret->rows[ret->n++]);
	}
	if (step != SQLITE_DONE && step != SQLITE_ROW)
		r = sqlite_fail(q, "read guardrails", err);
	sqlite_reset_statement(st);
	return r;
}

static int read_count(struct sqlite *q, sqlite3_stmt *st, uint64_t *ret, struct error *err)
{
	int r = step_one(q, st, "count", err);

	if (r < 0)
		return r;
	*ret = r > 0 ? (uint64_t)sqlite3_column_int64(st, 0) : 0;
	sqlite_reset_statement(st);
	return 0;
}

int sqlite_guardrails_list(struct store *s, const struct store_scope *scope, struct store_page page,
        struct store_guardrail_list *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare_scope(q, ST_COUNT, scope, err);
	struct store_guardrail_list list = {0};
	int r = st ? read_count(q, st, &list.total, err) : -ERR_IO;

	if (r < 0)
		return r;
	st = prepare_scope(q, ST_LIST, scope, err);
	if (!st)
		return -ERR_IO;
	sqlite3_bind_int64(st, 3, page.limit);
	sqlite3_bind_int64(st, 4, page.offset);
	r = read_list(q, st, page.limit, &list, err);
	if (r < 0)
		store_guardrail_list_clear(&list);
	else
		*ret = list;
	return r;
}

int sqlite_guardrails_delete(struct store *s, struct str account, struct str id, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	struct store_guardrail old = {0};
	sqlite3_stmt *st;
	int r = sqlite_begin(q, err);

	if (r < 0)
		return r;
	r = get_locked(q, account, id, &old, err);
	const struct store_scope scope = {account, str_of(old.workspace)};

	if (r == 0) {
		st = prepare_id(q, ST_DELETE, account, id, err);
		r = st ? sqlite_run(q, st, "delete a guardrail", err) : -ERR_IO;
	}
	if (r >= 0)
		r = changed(q, &scope, err);
	r = sqlite_finish(q, r, err);
	store_guardrail_clear(&old);
	return r < 0 ? r : 0;
}

/* ---- assignments ---- */

static int assign_one(struct sqlite *q, const struct store_scope *scope, struct str id,
        struct str hash, int64_t now_ms, struct error *err)
{
	sqlite3_stmt *st = prepare_scope(q, ST_ASSIGN, scope, err);
	char own[STORE_ID_MAX + 1];

	if (!st)
		return -ERR_IO;
	id_make(own, sizeof(own), "gka_", 24);
	sqlite_bind_str(st, 3, str_of(own));
	sqlite_bind_str(st, 4, id);
	sqlite_bind_str(st, 5, hash);
	sqlite3_bind_int64(st, 6, now_ms);
	return sqlite_run(q, st, "assign a guardrail", err);
}

static int unassign_one(struct sqlite *q, struct str id, struct str hash, struct error *err)
{
	sqlite3_stmt *st = prepare_id(q, ST_UNASSIGN, id, hash, err);

	return st ? sqlite_run(q, st, "take a guardrail from a key", err) : -ERR_IO;
}

static int check_assignments(struct sqlite *q, const struct store_scope *scope, struct error *err)
{
	sqlite3_stmt *st = prepare_scope(q, ST_KEYS_COUNT, scope, err);
	uint64_t n = 0;
	int r = st ? read_count(q, st, &n, err) : -ERR_IO;

	if (r < 0 || n <= STORE_GUARDRAIL_KEYS_MAX)
		return r;
	return error_set(err, ERR_INVALID, "A workspace has at most %d assignments of guardrails.",
	        STORE_GUARDRAIL_KEYS_MAX);
}

/* now_ms 0: takes them away. */
static int assign(struct store *s, struct str account, struct str id, const struct str *hashes,
        size_t n, int64_t now_ms, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	struct store_guardrail g = {0};
	int r = sqlite_begin(q, err), count = 0;

	if (r < 0)
		return r;
	r = get_locked(q, account, id, &g, err);
	const struct store_scope scope = {account, str_of(g.workspace)};

	for (size_t i = 0; i < n && r >= 0; i++) {
		r = now_ms ? assign_one(q, &scope, id, hashes[i], now_ms, err)
		           : unassign_one(q, id, hashes[i], err);
		count += r > 0;
	}
	if (r >= 0 && now_ms)
		r = check_assignments(q, &scope, err);
	if (r >= 0 && count > 0)
		r = changed(q, &scope, err);
	r = sqlite_finish(q, r, err);
	store_guardrail_clear(&g);
	return r < 0 ? r : count;
}

int sqlite_guardrails_assign(struct store *s, struct str account, struct str id,
        const struct str *hashes, size_t n, int64_t now_ms, struct error *err)
{
	return assign(s, account, id, hashes, n, now_ms, err);
}

int sqlite_guardrails_unassign(struct store *s, struct str account, struct str id,
        const struct str *hashes, size_t n, struct error *err)
{
	return assign(s, account, id, hashes, n, 0, err);
}

static int read_keys(struct sqlite *q, sqlite3_stmt *st, struct store_guardrail_key **rows,
        size_t *n, struct error *err)
{
	size_t cap = 0;
	int step, r = 0;

	while ((step = sqlite3_step(st)) == SQLITE_ROW) {
		struct store_guardrail_key *k;

		mem_grow(rows, &cap, *n, sizeof(**rows));
		k = &(*rows)[(*n)++];
		str_copy(k->id, sizeof(k->id), sqlite_column_str(st, 0));
		str_copy(k->guardrail, sizeof(k->guardrail), sqlite_column_str(st, 1));
		str_copy(k->key_hash, sizeof(k->key_hash), sqlite_column_str(st, 2));
		k->created_ms = sqlite3_column_int64(st, 3);
	}
	if (step != SQLITE_DONE)
		r = sqlite_fail(q, "read assignments of guardrails", err);
	sqlite_reset_statement(st);
	return r;
}

int sqlite_guardrails_keys(struct store *s, const struct store_scope *scope, struct str id,
        struct store_page page, struct store_guardrail_key_list *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare_scope(q, ST_KEYS_COUNT, scope, err);
	struct store_guardrail_key_list list = {0};
	int r;

	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 3, id);
	r = read_count(q, st, &list.total, err);
	if (r < 0)
		return r;
	st = prepare_scope(q, ST_KEYS, scope, err);
	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 3, id);
	sqlite3_bind_int64(st, 4, page.limit);
	sqlite3_bind_int64(st, 5, page.offset);
	r = read_keys(q, st, &list.rows, &list.n, err);
	if (r < 0)
		free(list.rows);
	else
		*ret = list;
	return r;
}

/* ---- phrases ---- */

static void read_phrase(sqlite3_stmt *st, struct store_phrase *p)
{
	str_copy(p->id, sizeof(p->id), sqlite_column_str(st, 0));
	str_copy(p->phrase, sizeof(p->phrase), sqlite_column_str(st, 1));
	p->created_ms = sqlite3_column_int64(st, 2);
}

/* 1: *ret is the phrase, as it is on the list. */
static int find_phrase(struct sqlite *q, const struct store_scope *scope, struct str phrase,
        struct store_phrase *ret, struct error *err)
{
	sqlite3_stmt *st = prepare_scope(q, ST_PHRASE_FIND, scope, err);
	int r;

	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 3, phrase);
	r = step_one(q, st, "look for a phrase", err);
	if (r <= 0)
		return r;
	read_phrase(st, ret);
	sqlite_reset_statement(st);
	return 1;
}

static int allow_locked(struct sqlite *q, const struct store_scope *scope, struct str phrase,
        int64_t now_ms, uint32_t most, struct store_phrase *ret, struct error *err)
{
	sqlite3_stmt *st = prepare_scope(q, ST_PHRASE_COUNT, scope, err);
	uint64_t n = 0;
	int r = st ? read_count(q, st, &n, err) : -ERR_IO;

	if (r < 0)
		return r;
	if (n >= most)
		return error_set(err, ERR_INVALID,
		        "A workspace has at most 200 phrases, with those of the configuration: one "
		        "must "
		        "be removed first.");
	st = prepare_scope(q, ST_ALLOW, scope, err);
	if (!st)
		return -ERR_IO;
	id_make(ret->id, sizeof(ret->id), "phrase_", 24);
	str_copy(ret->phrase, sizeof(ret->phrase), phrase);
	ret->created_ms = now_ms;
	sqlite_bind_str(st, 3, str_of(ret->id));
	sqlite_bind_str(st, 4, phrase);
	sqlite3_bind_int64(st, 5, now_ms);
	r = sqlite_run(q, st, "allow a phrase", err);
	return r < 0 ? r : changed(q, scope, err);
}

int sqlite_guardrails_allow(struct store *s, const struct store_scope *scope, struct str phrase,
        int64_t now_ms, uint32_t most, struct store_phrase *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	struct store_phrase row = {0};
	int r = sqlite_begin(q, err), found;

	if (r < 0)
		return r;
	found = r = find_phrase(q, scope, phrase, &row, err);
	if (found == 0)
		r = allow_locked(q, scope, phrase, now_ms, most, &row, err);
	r = sqlite_finish(q, r, err);
	if (r < 0)
		return r;
	*ret = row;
	return found == 0;
}

static int read_phrases(struct sqlite *q, const struct store_scope *scope,
        struct store_phrase **rows, size_t *n, struct error *err)
{
	sqlite3_stmt *st = prepare_scope(q, ST_PHRASES, scope, err);
	size_t cap = 0;
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	while ((step = sqlite3_step(st)) == SQLITE_ROW) {
		mem_grow(rows, &cap, *n, sizeof(**rows));
		read_phrase(st, &(*rows)[(*n)++]);
	}
	if (step != SQLITE_DONE)
		r = sqlite_fail(q, "read phrases", err);
	sqlite_reset_statement(st);
	return r;
}

int sqlite_guardrails_phrases(struct store *s, const struct store_scope *scope,
        struct store_phrase **ret, size_t *ret_n, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	struct store_phrase *rows = NULL;
	size_t n = 0;
	int r = read_phrases(q, scope, &rows, &n, err);

	if (r < 0) {
		free(rows);
		return r;
	}
	*ret = rows;
	*ret_n = n;
	return 0;
}

int sqlite_guardrails_disallow(
        struct store *s, struct str account, struct str id, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	char *workspace _cleanup_free_ = NULL;
	sqlite3_stmt *st;
	int r = sqlite_begin(q, err);

	if (r < 0)
		return r;
	st = prepare_id(q, ST_PHRASE_SCOPE, account, id, err);
	r = st ? step_one(q, st, "look for a phrase", err) : -ERR_IO;
	if (r == 0)
		r = error_set(err, ERR_NOT_FOUND, "There is no phrase '%.*s'.", (int)id.n, id.p);
	if (r > 0) {
		workspace = sqlite_column_dup(st, 0);
		sqlite_reset_statement(st);
		st = prepare_id(q, ST_DISALLOW, account, id, err);
		r = st ? sqlite_run(q, st, "remove a phrase", err) : -ERR_IO;
	}
	const struct store_scope scope = {account, str_of(workspace)};

	if (r >= 0)
		r = changed(q, &scope, err);
	r = sqlite_finish(q, r, err);
	return r < 0 ? r : 0;
}

/* ---- for who puts them in force ---- */

int sqlite_guardrails_changes(struct store *s, int64_t after, uint32_t limit,
        struct store_guardrail_change **ret, size_t *ret_n, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_CHANGES, err);
	struct store_guardrail_change *rows = NULL;
	size_t n = 0, cap = 0;
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	sqlite3_bind_int64(st, 1, after);
	sqlite3_bind_int64(st, 2, limit);
	while ((step = sqlite3_step(st)) == SQLITE_ROW) {
		mem_grow(&rows, &cap, n, sizeof(*rows));
		rows[n++] = (struct store_guardrail_change){sqlite_column_dup(st, 0),
		        sqlite_column_dup(st, 1), sqlite3_column_int64(st, 2)};
	}
	if (step != SQLITE_DONE)
		r = sqlite_fail(q, "read changes of guardrails", err);
	sqlite_reset_statement(st);
	if (r < 0) {
		store_guardrail_changes_free(rows, n);
		return r;
	}
	*ret = rows;
	*ret_n = n;
	return 0;
}

static int read_version(
        struct sqlite *q, const struct store_scope *scope, int64_t *ret, struct error *err)
{
	sqlite3_stmt *st = prepare_scope(q, ST_VERSION, scope, err);
	uint64_t version = 0;
	int r = st ? read_count(q, st, &version, err) : -ERR_IO;

	*ret = (int64_t)version;
	return r;
}

static int load_locked(struct sqlite *q, const struct store_scope *scope,
        struct store_guardrails_all *all, struct error *err)
{
	struct store_guardrail_list list = {0};
	sqlite3_stmt *st;
	int r = read_version(q, scope, &all->version, err);

	if (r == 0) {
		st = prepare_scope(q, ST_ALL, scope, err);
		r = st ? read_list(q, st, SIZE_MAX, &list, err) : -ERR_IO;
		all->guardrails = list.rows;
		all->n_guardrails = list.n;
	}
	if (r == 0) {
		st = prepare_scope(q, ST_KEYS_ALL, scope, err);
		r = st ? read_keys(q, st, &all->keys, &all->n_keys, err) : -ERR_IO;
	}
	return r == 0 ? read_phrases(q, scope, &all->phrases, &all->n_phrases, err) : r;
}

int sqlite_guardrails_load(struct store *s, const struct store_scope *scope,
        struct store_guardrails_all *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	struct store_guardrails_all all = {0};
	int r;

	/* One read of all of it: what was changed in between would be seen by half. */
	if (sqlite3_exec(q->db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK)
		return sqlite_fail(q, "read guardrails", err);
	r = load_locked(q, scope, &all, err);
	sqlite3_exec(q->db, "ROLLBACK", NULL, NULL, NULL);
	if (r < 0)
		store_guardrails_all_clear(&all);
	else
		*ret = all;
	return r;
}
