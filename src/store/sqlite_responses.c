/*
 * Responses in SQLite. A row holds what its own request brought and the answer; what was said
 * before is in the row that it names, so that a conversation of n turns costs n rows and no more. A
 * row that a later one needs is not removed but `gone`: it goes with the last of those. Only where
 * a workspace holds too much its oldest rows go whoever needs them, and such a chain ends in
 * nothing.
 *
 * A chain has no circle, since a row's previous one is there before it.
 */
#include "store/sqlite.h"

#include "base/mem.h"

#include <stdlib.h>

#define SCOPE "account = ?1 AND workspace = ?2"
#define KEY   SCOPE " AND id = ?3"
#define ALIVE "gone = 0 AND expires_ms > ?4"
/* What a row costs beside its texts, index and items: so that a quota in bytes bounds rows too. */
#define ROW_BYTES  1024
#define ITEM_BYTES 128
#define EVICT      16    /* rows that go in one step */
#define CHAIN_MAX  10000 /* responses */

enum statement {
	ST_SIZES,
	ST_PREVIOUS,
	ST_INSERT,
	ST_FINISH,
	ST_ROW,
	ST_ITEM_ADD,
	ST_USAGE,
	ST_EVICT,
	ST_GET,
	ST_EVENTS_PUT,
	ST_EVENTS_GET,
	ST_CHAIN,
	ST_ITEM,
	ST_GONE,
	ST_PRUNE,
	ST_EXPIRE,
	N_STATEMENTS,
};
_Static_assert(N_STATEMENTS <= SQLITE_RESPONSE_STATEMENTS, "room for every statement");

/* Of row r: nobody may ask for it, and none goes on from it. */
#define USELESS                                                                                    \
	"(r.gone = 1 OR r.expires_ms <= ?1) AND NOT EXISTS (SELECT 1 FROM responses AS later "     \
	"WHERE later.account = r.account AND later.workspace = r.workspace AND later.previous = "  \
	"r.id)"

static const char *const sql_of[N_STATEMENTS] = {
        [ST_SIZES] = "SELECT chain_n, chain_bytes FROM responses WHERE " KEY,
        [ST_PREVIOUS] = "SELECT previous FROM responses WHERE " KEY,
        [ST_INSERT] = "INSERT INTO responses (account, workspace, id, previous, running, object, "
                      "output_at, output_len, input, chain_n, chain_bytes, bytes, created_ms, "
                      "expires_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, "
                      "?13, ?14)",
        [ST_FINISH] = "UPDATE responses SET running = ?5, object = ?6, output_at = ?7, "
                      "output_len = ?8, chain_n = ?10, chain_bytes = ?11, bytes = ?12, "
                      "expires_ms = ?14 WHERE " KEY " AND running = 1 AND gone = 0",
        [ST_ROW] = "SELECT row FROM responses WHERE " KEY,
        [ST_ITEM_ADD] = "INSERT OR REPLACE INTO response_items (account, workspace, id, "
                        "response, at, len) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        [ST_USAGE] = "SELECT bytes FROM response_usage WHERE " SCOPE,
        [ST_EVICT] = "DELETE FROM responses WHERE row IN (SELECT row FROM responses WHERE " SCOPE
                     " AND id <> ?3 ORDER BY row LIMIT ?4)",
        [ST_GET] = "SELECT object, running FROM responses WHERE " KEY " AND " ALIVE,
        [ST_EVENTS_PUT] = "UPDATE responses SET events = ?4, events_from = ?5, bytes = bytes + ?6 "
                          "WHERE " KEY " AND running = 0 AND gone = 0 AND events IS NULL",
        [ST_EVENTS_GET] = "SELECT events, events_from FROM responses WHERE " KEY " AND " ALIVE,
        [ST_CHAIN] = "WITH RECURSIVE chain (n, id, previous) AS (SELECT 0, id, previous FROM "
                     "responses WHERE " KEY " AND " ALIVE
                     " UNION ALL SELECT chain.n + 1, r.id, r.previous FROM chain JOIN responses "
                     "AS r ON r.account = ?1 AND r.workspace = ?2 AND r.id = chain.previous LIMIT "
                     "?5) SELECT r.id, r.previous, r.running, r.chain_n, r.chain_bytes, r.input, "
                     "r.object, r.output_at, r.output_len FROM chain JOIN responses AS r ON "
                     "r.account = ?1 AND r.workspace = ?2 AND r.id = chain.id ORDER BY chain.n",
        [ST_ITEM] = "SELECT substr(r.object, i.at + 1, i.len) FROM response_items AS i JOIN "
                    "responses AS r ON r.row = i.response WHERE i.account = ?1 AND i.workspace = "
                    "?2 AND i.id = ?3 AND r.gone = 0 AND r.expires_ms > ?4 ORDER BY r.row DESC "
                    "LIMIT 1",
        [ST_GONE] = "UPDATE responses SET gone = 1 WHERE " KEY " AND " ALIVE,
        [ST_PRUNE] = "DELETE FROM responses AS r WHERE r.account = ?2 AND r.workspace = ?3 AND "
                     "r.id = ?4 AND " USELESS,
        [ST_EXPIRE] = "DELETE FROM responses WHERE row IN (SELECT r.row FROM responses AS r WHERE "
                      "r.expires_ms <= ?1 AND " USELESS " LIMIT ?2)",
};

static sqlite3_stmt *prepare(struct sqlite *q, enum statement which, struct error *err)
{
	return sqlite_statement(q, &q->responses[which], sql_of[which], err);
}

static void bind_blob(sqlite3_stmt *st, int at, struct str s)
{
	sqlite3_bind_blob64(st, at, s.p ? s.p : "", s.n, SQLITE_STATIC);
}

/* A blob as text of its own, or NULL without memory. */
static char *column_copy(sqlite3_stmt *st, int at, size_t from, size_t len, size_t *ret_len)
{
	const char *p = sqlite3_column_blob(st, at);
	size_t n = (size_t)sqlite3_column_bytes(st, at);
	char *copy;

	if (from > n || len > n - from)
		from = len = 0;
	copy = malloc(len + 1);
	if (!copy)
		return NULL;
	if (len)
		memcpy(copy, p + from, len);
	copy[len] = 0;
	*ret_len = len;
	return copy;
}

static int not_found(struct error *err)
{
	return error_set(err, ERR_NOT_FOUND, "There is no response of this id.");
}

/* ---- putting ---- */

struct sizes {
	uint64_t chain_n, chain_bytes, bytes;
};

/* A row that is there no more counts nothing: whoever reads the chain is told. */
static int sizes_of(struct sqlite *q, const struct store_scope *scope,
        const struct store_response *r, struct sizes *ret, struct error *err)
{
	struct sizes z = {.chain_n = r->n_input + r->n_items,
	        .chain_bytes = r->input.n + r->output_len,
	        .bytes = r->object.n + r->input.n + ROW_BYTES + r->n_items * ITEM_BYTES};
	sqlite3_stmt *st;
	int step, rc = 0;

	*ret = z;
	if (!r->previous.p)
		return 0;
	st = prepare(q, ST_SIZES, err);
	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, r->previous);
	step = sqlite3_step(st);
	if (step == SQLITE_ROW) {
		ret->chain_n += (uint64_t)sqlite3_column_int64(st, 0);
		ret->chain_bytes += (uint64_t)sqlite3_column_int64(st, 1);
	} else if (step != SQLITE_DONE) {
		rc = sqlite_fail(q, "read previous response", err);
	}
	sqlite_reset_statement(st);
	return rc;
}

static int write_row(struct sqlite *q, enum statement which, const struct store_scope *scope,
        const struct store_response *r, const struct sizes *z, struct error *err)
{
	sqlite3_stmt *st = prepare(q, which, err);

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, r->id);
	sqlite3_bind_int64(st, 5, r->running);
	bind_blob(st, 6, r->object);
	sqlite3_bind_int64(st, 7, (int64_t)r->output_at);
	sqlite3_bind_int64(st, 8, (int64_t)r->output_len);
	sqlite3_bind_int64(st, 10, (int64_t)z->chain_n);
	sqlite3_bind_int64(st, 11, (int64_t)z->chain_bytes);
	sqlite3_bind_int64(st, 12, (int64_t)z->bytes);
	sqlite3_bind_int64(st, 14, r->expires_ms);
	if (which == ST_INSERT) {
		sqlite_bind_str(st, 4, r->previous);
		bind_blob(st, 9, r->input);
		sqlite3_bind_int64(st, 13, r->created_ms);
	}
	return sqlite_run(q, st, "write response", err);
}

/* *ret is 0 where there is no such row. */
static int row_of(struct sqlite *q, const struct store_scope *scope, struct str id, int64_t *ret,
        struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_ROW, err);
	int step, rc = 0;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, id);
	step = sqlite3_step(st);
	*ret = step == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
	if (step != SQLITE_ROW && step != SQLITE_DONE)
		rc = sqlite_fail(q, "look for response", err);
	sqlite_reset_statement(st);
	return rc;
}

static int add_items(struct sqlite *q, const struct store_scope *scope,
        const struct store_response *r, int64_t row, struct error *err)
{
	int rc = 0;

	for (size_t i = 0; i < r->n_items && rc >= 0; i++) {
		sqlite3_stmt *st = prepare(q, ST_ITEM_ADD, err);

		if (!st)
			return -ERR_IO;
		sqlite_bind_key(st, scope, r->items[i].id);
		sqlite3_bind_int64(st, 4, row);
		sqlite3_bind_int64(st, 5, (int64_t)r->items[i].at);
		sqlite3_bind_int64(st, 6, (int64_t)r->items[i].len);
		rc = sqlite_run(q, st, "write item of a response", err);
	}
	return rc < 0 ? rc : 0;
}

static int usage_of(
        struct sqlite *q, const struct store_scope *scope, uint64_t *ret, struct error *err)
{
	return sqlite_usage(
	        q, prepare(q, ST_USAGE, err), scope, "read usage of responses", ret, NULL, err);
}

/* The oldest make room, but for the one that is being put. */
static int evict(struct sqlite *q, const struct store_scope *scope, struct str id, uint64_t quota,
        struct error *err)
{
	uint64_t used;
	int rc = usage_of(q, scope, &used, err);

	while (rc >= 0 && used > quota) {
		sqlite3_stmt *st = prepare(q, ST_EVICT, err);

		if (!st)
			return -ERR_IO;
		sqlite_bind_key(st, scope, id);
		sqlite3_bind_int64(st, 4, EVICT);
		rc = sqlite_run(q, st, "remove old responses", err);
		if (rc == 0)
			break;
		if (rc > 0)
			rc = usage_of(q, scope, &used, err);
	}
	return rc < 0 ? rc : 0;
}

static int put_locked(struct sqlite *q, const struct store_scope *scope,
        const struct store_response *r, const struct sizes *z, uint64_t quota, struct error *err)
{
	int64_t row;
	int rc = row_of(q, scope, r->id, &row, err);

	if (rc < 0)
		return rc;
	rc = write_row(q, row ? ST_FINISH : ST_INSERT, scope, r, z, err);
	if (rc <= 0)
		return rc;
	if (!row)
		row = sqlite3_last_insert_rowid(q->db);
	rc = add_items(q, scope, r, row, err);
	if (rc == 0)
		rc = evict(q, scope, r->id, quota, err);
	return rc < 0 ? rc : 1;
}

int sqlite_responses_put(struct store *s, const struct store_scope *scope,
        const struct store_response *r, uint64_t quota, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	struct sizes z;
	int rc = sqlite_begin(q, err);

	if (rc < 0)
		return rc;
	rc = sizes_of(q, scope, r, &z, err);
	if (rc == 0 && z.bytes > quota)
		rc = error_set(err, ERR_TOO_LARGE,
		        "The response is larger than all that a workspace may keep.");
	if (rc == 0)
		rc = put_locked(q, scope, r, &z, quota, err);
	return sqlite_finish(q, rc, err);
}

int sqlite_responses_events_put(struct store *s, const struct store_scope *scope, struct str id,
        const struct store_response_events *e, uint64_t quota, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st;
	int rc = sqlite_begin(q, err);

	if (rc < 0)
		return rc;
	st = prepare(q, ST_EVENTS_PUT, err);
	if (st) {
		sqlite_bind_key(st, scope, id);
		bind_blob(st, 4, (struct str){e->bytes, e->len});
		sqlite3_bind_int64(st, 5, e->from);
		sqlite3_bind_int64(st, 6, (int64_t)e->len);
		rc = sqlite_run(q, st, "write the events of a response", err);
	} else {
		rc = -ERR_IO;
	}
	if (rc > 0 && evict(q, scope, id, quota, err) < 0)
		rc = -ERR_IO;
	return sqlite_finish(q, rc, err);
}

/* ---- reading ---- */

/* The row of a response that is there, in *ret, to be reset. step says what is read, for an error.
 */
static int get_row(struct sqlite *q, enum statement which, const struct store_scope *scope,
        struct str id, int64_t now_ms, const char *step, sqlite3_stmt **ret, struct error *err)
{
	sqlite3_stmt *st = prepare(q, which, err);
	int got, rc;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, id);
	sqlite3_bind_int64(st, 4, now_ms);
	got = sqlite3_step(st);
	if (got == SQLITE_ROW) {
		*ret = st;
		return 0;
	}
	rc = got == SQLITE_DONE ? not_found(err) : sqlite_fail(q, step, err);
	sqlite_reset_statement(st);
	return rc;
}

int sqlite_responses_get(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_response_text *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	struct store_response_text t = {0};
	sqlite3_stmt *st;
	int rc = get_row(q, ST_GET, scope, id, now_ms, "read response", &st, err);

	if (rc < 0)
		return rc;
	t.object = column_copy(st, 0, 0, (size_t)sqlite3_column_bytes(st, 0), &t.len);
	t.running = sqlite3_column_int(st, 1) != 0;
	sqlite_reset_statement(st);
	if (!t.object)
		return error_set(err, ERR_NOMEM, "no memory for a response");
	*ret = t;
	return 0;
}

int sqlite_responses_events_get(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_response_events *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	struct store_response_events e = {0};
	sqlite3_stmt *st;
	int rc = get_row(q, ST_EVENTS_GET, scope, id, now_ms, "read events", &st, err);

	if (rc < 0)
		return rc;
	if (sqlite3_column_type(st, 0) != SQLITE_NULL) {
		e.bytes = column_copy(st, 0, 0, (size_t)sqlite3_column_bytes(st, 0), &e.len);
		e.from = sqlite3_column_int64(st, 1);
		if (!e.bytes)
			rc = error_set(err, ERR_NOMEM, "no memory for the events of a response");
	}
	sqlite_reset_statement(st);
	if (rc == 0)
		*ret = e;
	return rc;
}

static int read_link(sqlite3_stmt *st, struct store_chain_link *l, struct error *err)
{
	str_copy(l->id, sizeof(l->id), sqlite_column_str(st, 0));
	l->input = column_copy(st, 5, 0, (size_t)sqlite3_column_bytes(st, 5), &l->input_len);
	l->output = column_copy(st, 6, (size_t)sqlite3_column_int64(st, 7),
	        (size_t)sqlite3_column_int64(st, 8), &l->output_len);
	if (!l->input || !l->output)
		return error_set(err, ERR_NOMEM, "no memory for a conversation");
	return 0;
}

static void reverse(struct store_chain *c)
{
	for (size_t i = 0; i < c->n / 2; i++) {
		struct store_chain_link l = c->links[i];

		c->links[i] = c->links[c->n - 1 - i];
		c->links[c->n - 1 - i] = l;
	}
}

/* The rows, the last response first. *ret_open: the one before the first is there no more. */
static int read_chain(struct sqlite *q, sqlite3_stmt *st, uint64_t max_bytes, struct store_chain *c,
        bool *ret_open, struct error *err)
{
	size_t cap = 0;
	int step, rc = 0;

	while (rc == 0 && (step = sqlite3_step(st)) != SQLITE_DONE) {
		if (step != SQLITE_ROW)
			return sqlite_fail(q, "read a chain of responses", err);
		if (c->n == 0) {
			c->running = sqlite3_column_int(st, 2) != 0;
			c->n_items = (size_t)sqlite3_column_int64(st, 3);
			c->bytes = (uint64_t)sqlite3_column_int64(st, 4);
		}
		if (c->bytes > max_bytes)
			return error_set(err, ERR_TOO_LARGE, "the conversation is too large");
		*ret_open = sqlite3_column_type(st, 1) != SQLITE_NULL;
		mem_grow(&c->links, &cap, c->n, sizeof(*c->links));
		rc = read_link(st, &c->links[c->n++], err);
	}
	return rc;
}

int sqlite_responses_chain(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, uint64_t max_bytes, struct store_chain *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_CHAIN, err);
	struct store_chain c = {0};
	bool open = true;
	int rc;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, id);
	sqlite3_bind_int64(st, 4, now_ms);
	sqlite3_bind_int64(st, 5, CHAIN_MAX);
	rc = read_chain(q, st, max_bytes, &c, &open, err);
	sqlite_reset_statement(st);
	if (rc == 0 && (c.n == 0 || open))
		rc = c.n == CHAIN_MAX
		             ? error_set(err, ERR_TOO_LARGE, "the conversation is too long")
		             : not_found(err);
	if (rc < 0) {
		store_chain_clear(&c);
		return rc;
	}
	reverse(&c);
	*ret = c;
	return 0;
}

int sqlite_responses_item(struct store *s, const struct store_scope *scope, struct str item,
        int64_t now_ms, char **ret, size_t *ret_len, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_ITEM, err);
	char *text = NULL;
	int step, rc = 0;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, item);
	sqlite3_bind_int64(st, 4, now_ms);
	step = sqlite3_step(st);
	if (step == SQLITE_ROW) {
		text = column_copy(st, 0, 0, (size_t)sqlite3_column_bytes(st, 0), ret_len);
		if (!text)
			rc = error_set(err, ERR_NOMEM, "no memory for an item");
	} else if (step == SQLITE_DONE) {
		rc = error_set(err, ERR_NOT_FOUND, "There is no item of this id.");
	} else {
		rc = sqlite_fail(q, "read item of a response", err);
	}
	sqlite_reset_statement(st);
	if (rc == 0)
		*ret = text;
	return rc;
}

/* ---- removing ---- */

/* The id that this one continues, or "". */
static int previous_of(struct sqlite *q, const struct store_scope *scope, const char *id,
        char ret[STORE_ID_MAX + 1], struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_PREVIOUS, err);

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, str_of(id));
	ret[0] = 0;
	if (sqlite3_step(st) == SQLITE_ROW)
		str_copy(ret, STORE_ID_MAX + 1, sqlite_column_str(st, 0));
	sqlite_reset_statement(st);
	return 0;
}

/* The row of this id, where it is useless now, and all before it that were kept for its sake. */
static int prune(struct sqlite *q, const struct store_scope *scope, struct str id, int64_t now_ms,
        struct error *err)
{
	char at[STORE_ID_MAX + 1], before[STORE_ID_MAX + 1];
	int rc = 1;

	str_copy(at, sizeof(at), id);
	for (unsigned i = 0; rc > 0 && at[0] && i < CHAIN_MAX; i++) {
		sqlite3_stmt *st = prepare(q, ST_PRUNE, err);

		if (!st || previous_of(q, scope, at, before, err) < 0)
			return -ERR_IO;
		sqlite3_bind_int64(st, 1, now_ms);
		sqlite_bind_str(st, 2, scope->account);
		sqlite_bind_str(st, 3, scope->workspace);
		sqlite_bind_str(st, 4, str_of(at));
		rc = sqlite_run(q, st, "remove response", err);
		memcpy(at, before, sizeof(at));
	}
	return rc < 0 ? rc : 0;
}

int sqlite_responses_delete(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st;
	int rc = sqlite_begin(q, err);

	if (rc < 0)
		return rc;
	st = prepare(q, ST_GONE, err);
	if (st) {
		sqlite_bind_key(st, scope, id);
		sqlite3_bind_int64(st, 4, now_ms);
		rc = sqlite_run(q, st, "remove response", err);
	} else {
		rc = -ERR_IO;
	}
	if (rc == 0)
		rc = not_found(err);
	if (rc > 0)
		rc = prune(q, scope, id, now_ms, err);
	return sqlite_finish(q, rc, err);
}

int sqlite_responses_expire(struct store *s, int64_t now_ms, uint32_t limit, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return sqlite_run_expiry(
	        q, prepare(q, ST_EXPIRE, err), now_ms, limit, "expire responses", err);
}
