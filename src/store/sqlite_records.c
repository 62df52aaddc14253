/*
 * Records in SQLite.
 *
 * Theory of operation. A record is a row and its children: attempts, runs with their commands,
 * hits. Each table is described once, as a list of columns with their places in the struct;
 * statements, binding and reading follow from the list. A settled record is written whole: the row
 * is put in place of the one that was opened, the children anew; but a run has its row from when
 * its container is there, so that what egress says meanwhile has a place. Heartbeats touch the few
 * columns that say what has been used so far, so that a row whose gateway died can be settled by
 * its state alone.
 */
#include "store/sqlite.h"

#include "base/mem.h"
#include "record/record.h"

#include <stddef.h>
#include <stdlib.h>

#define SQL_MAX    4096
#define DAY_MS     INT64_C(86400000)
#define HOST_BYTES 300 /* at most, of the texts of a run's host */

enum kind { TEXT, FIXED, I64, INT, BOOL };
struct column {
	const char *name;
	enum kind kind;
	size_t at;
};

#define ROW(name, kind)                                                                            \
	{                                                                                          \
#name, kind, offsetof(struct record, name)                                         \
	}
#define ATTEMPT(name, kind)                                                                        \
	{                                                                                          \
#name, kind, offsetof(struct record_attempt, name)                                 \
	}
#define RUN(name, kind)                                                                            \
	{                                                                                          \
#name, kind, offsetof(struct record_run, name)                                     \
	}
#define COMMAND(name, kind)                                                                        \
	{                                                                                          \
#name, kind, offsetof(struct record_command, name)                                 \
	}
#define HIT(name, kind)                                                                            \
	{                                                                                          \
#name, kind, offsetof(struct record_hit, name)                                     \
	}
#define TOKENS(type)                                                                               \
	{"input", I64, offsetof(struct type, tokens.input)},                                       \
	        {"cached", I64, offsetof(struct type, tokens.cached)},                             \
	        {"cache_write", I64, offsetof(struct type, tokens.cache_write)},                   \
	        {"output", I64, offsetof(struct type, tokens.output)},                             \
	        {"reasoning", I64, offsetof(struct type, tokens.reasoning)},                       \
	        {"given", BOOL, offsetof(struct type, tokens.given)},                              \
	{                                                                                          \
		"estimated", BOOL, offsetof(struct type, tokens.estimated)                         \
	}

/* What a heartbeat sets comes first. */
static const struct column row_columns[] = {
        ROW(heartbeat_ms, I64),
        ROW(container_id, TEXT),
        ROW(provider, TEXT),
        ROW(model, TEXT),
        TOKENS(record),
        ROW(input_cost, I64),
        ROW(output_cost, I64),
        ROW(sandbox_cost, I64),
        ROW(total_cost, I64),
        ROW(priced, BOOL),
        ROW(sandbox_ms, I64),
        ROW(account, TEXT),
        ROW(workspace, TEXT),
        ROW(id, FIXED),
        ROW(state, INT),
        ROW(begin_ms, I64),
        ROW(first_ms, I64),
        ROW(end_ms, I64),
        ROW(api, TEXT),
        ROW(asked, TEXT),
        ROW(key_hash, TEXT),
        ROW(key_name, TEXT),
        ROW(session_id, TEXT),
        ROW(user, TEXT),
        ROW(request_id, TEXT),
        ROW(user_agent, TEXT),
        ROW(metadata, TEXT),
        ROW(trace, TEXT),
        ROW(traceparent, TEXT),
        ROW(streamed, BOOL),
        ROW(cancelled, BOOL),
        ROW(status, INT),
        ROW(error, TEXT),
        ROW(finish, TEXT),
        ROW(native_finish, TEXT),
        ROW(store_content, BOOL),
        /* Content: not in lists. */
        ROW(request, TEXT),
        ROW(answer, TEXT),
};
#define N(columns)  (sizeof(columns) / sizeof(*(columns)))
#define ROW_BEAT    17
#define ROW_CONTENT 2

static const struct column attempt_columns[] = {
        ATTEMPT(provider, TEXT),
        ATTEMPT(model, TEXT),
        ATTEMPT(status, INT),
        ATTEMPT(error, TEXT),
        ATTEMPT(begin_ms, I64),
        ATTEMPT(first_ms, I64),
        ATTEMPT(end_ms, I64),
        TOKENS(record_attempt),
        ATTEMPT(finish, TEXT),
        ATTEMPT(native_finish, TEXT),
        ATTEMPT(cost, I64),
};
static const struct column run_columns[] = {
        RUN(call_id, TEXT),
        RUN(tool, TEXT),
        RUN(container_id, TEXT),
        RUN(status, TEXT),
        RUN(error, TEXT),
        RUN(started_container, BOOL),
        RUN(begin_ms, I64),
        RUN(end_ms, I64),
        /* Counted as verdicts come: sqlite_run_network.c */
        RUN(network_allowed, I64),
        RUN(network_denied, I64),
};
#define RUN_COUNTS 2
static const struct column command_columns[] = {
        /* Content comes first. */
        COMMAND(command, TEXT),
        COMMAND(out, TEXT),
        COMMAND(err, TEXT),
        COMMAND(out_truncated, BOOL),
        COMMAND(err_truncated, BOOL),
        COMMAND(timed_out, BOOL),
        COMMAND(exit_code, INT),
        COMMAND(signal, TEXT),
        COMMAND(reason, TEXT),
        COMMAND(begin_ms, I64),
        COMMAND(end_ms, I64),
};
static const struct column hit_columns[] = {
        HIT(matched, TEXT), /* content */
        HIT(guardrail, TEXT),
        HIT(rule, TEXT),
        HIT(pattern, TEXT),
        HIT(action, TEXT),
        HIT(false_positive, BOOL),
};
_Static_assert(sizeof(enum record_state) == sizeof(int), "state is bound as an int");
_Static_assert(sizeof(struct money) == sizeof(int64_t), "money is bound as its count");

enum statement {
	ST_ROW,
	ST_BEAT,
	ST_FIND,
	ST_GET,
	ST_AT,
	ST_AT_LEAN, /* without content */
	ST_RECOVER,
	ST_RECOVER_HOLDER,
	ST_EXPIRE,
	ST_TOTALS,
	ST_RUN_END,
	/* Of each child table, in the order of enum child: */
	ST_DROP,
	ST_ADD = ST_DROP + 4,
	ST_READ = ST_ADD + 4,
	ST_READ_LEAN = ST_READ + 4, /* without content */
	N_STATEMENTS = ST_READ_LEAN + 4,
};
_Static_assert(N_STATEMENTS <= SQLITE_RECORD_STATEMENTS, "room for every statement");

enum child { ATTEMPTS, RUNS, COMMANDS, HITS, N_CHILDREN };
static const struct {
	const char *name, *keys;
	const struct column *columns;
	size_t n, n_keys, n_content;
} tables[N_CHILDREN] = {
        [ATTEMPTS] = {"record_attempts", "record, number", attempt_columns, N(attempt_columns), 2,
                0},
        [RUNS] = {"record_runs", "record, number", run_columns, N(run_columns), 2, 0},
        [COMMANDS] = {"record_commands", "record, run, number", command_columns, N(command_columns),
                3, 3},
        [HITS] = {"record_hits", "record, number", hit_columns, N(hit_columns), 2, 1},
};

#define KEY "account = ?1 AND workspace = ?2 AND id = ?3"

/* ---- statements made of columns ---- */

static void names_write(struct buf *sql, const struct column *c, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_printf(sql, "%s%s", i > 0 ? ", " : "", c[i].name);
}

static void marks_write(struct buf *sql, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_puts(sql, i > 0 ? ", ?" : "?");
}

static void row_sql(struct buf *sql)
{
	buf_puts(sql, "INSERT INTO records (holder, ");
	names_write(sql, row_columns, N(row_columns));
	buf_puts(sql, ") VALUES (");
	marks_write(sql, N(row_columns) + 1);
	buf_puts(sql, ") ON CONFLICT (account, workspace, id) DO UPDATE SET ");
	for (size_t i = 0; i < N(row_columns); i++)
		buf_printf(sql, "%s%s = excluded.%s", i > 0 ? ", " : "", row_columns[i].name,
		        row_columns[i].name);
	buf_puts(sql, " RETURNING n");
}

static void beat_sql(struct buf *sql)
{
	buf_puts(sql, "UPDATE records SET ");
	for (size_t i = 0; i < ROW_BEAT; i++)
		buf_printf(sql, "%s%s = ?%zu", i > 0 ? ", " : "", row_columns[i].name, i + 4);
	buf_puts(sql, " WHERE " KEY " AND state = 0 RETURNING n");
}

/* A run that has its row already stays where it is, with its counts. */
static void add_sql(struct buf *sql, enum child c)
{
	size_t n = tables[c].n - (c == RUNS ? RUN_COUNTS : 0);

	buf_printf(sql, "INSERT INTO %s (%s, ", tables[c].name, tables[c].keys);
	names_write(sql, tables[c].columns, tables[c].n);
	buf_puts(sql, ") VALUES (");
	marks_write(sql, tables[c].n_keys + tables[c].n);
	buf_puts(sql, ")");
	for (size_t i = 0; c == RUNS && i < n; i++)
		buf_printf(sql, "%s%s = excluded.%s",
		        i > 0 ? ", " : " ON CONFLICT (record, number) DO UPDATE SET ",
		        tables[c].columns[i].name, tables[c].columns[i].name);
}

static void child_sql(struct buf *sql, enum statement base, enum child c)
{
	if (base == ST_DROP) {
		buf_printf(sql, "DELETE FROM %s WHERE record = ?1", tables[c].name);
	} else if (base == ST_ADD) {
		add_sql(sql, c);
	} else {
		size_t from = base == ST_READ_LEAN ? tables[c].n_content : 0;

		buf_puts(sql, "SELECT ");
		names_write(sql, tables[c].columns + from, tables[c].n - from);
		buf_printf(sql, "%s FROM %s WHERE record = ?1 ORDER BY %s",
		        c == COMMANDS ? ", run" : "", tables[c].name, tables[c].keys);
	}
}

static void sql_write(struct buf *sql, enum statement which)
{
	switch ((int)which) {
	case ST_ROW:
		row_sql(sql);
		return;
	case ST_BEAT:
		beat_sql(sql);
		return;
	case ST_FIND:
		buf_puts(sql, "SELECT begin_ms, n FROM records WHERE " KEY);
		return;
	case ST_GET:
		buf_puts(sql, "SELECT ");
		names_write(sql, row_columns, N(row_columns));
		buf_puts(sql, ", n FROM records WHERE " KEY);
		return;
	case ST_AT:
	case ST_AT_LEAN:
		buf_puts(sql, "SELECT ");
		names_write(sql, row_columns,
		        N(row_columns) - (which == ST_AT ? 0 : ROW_CONTENT));
		buf_puts(sql, " FROM records WHERE n = ?1");
		return;
	case ST_RECOVER:
		buf_puts(sql, "UPDATE records SET state = 2, end_ms = heartbeat_ms WHERE state = 0 "
		              "AND heartbeat_ms < ?1 AND api IS NOT 'container'");
		return;
	case ST_RECOVER_HOLDER:
		buf_puts(sql, "UPDATE records SET state = 2, end_ms = heartbeat_ms WHERE state = 0 "
		              "AND holder = ?1");
		return;
	case ST_EXPIRE:
		buf_puts(sql, "DELETE FROM records WHERE n IN (SELECT n FROM records WHERE "
		              "begin_ms < ?1 AND state <> 0 LIMIT ?2)");
		return;
	case ST_TOTALS:
		buf_puts(sql, "SELECT begin_ms / 86400000 AS day, model, key_hash, count(*), "
		              "sum(total_cost), sum(sandbox_cost), sum(sandbox_ms), sum(input), "
		              "sum(output) FROM records WHERE account = ?1 AND workspace = ?2 AND "
		              "begin_ms >= ?3 AND begin_ms < ?4 GROUP BY 1, 2, 3 ORDER BY 1 DESC, "
		              "2, 3 LIMIT ?5");
		return;
	case ST_RUN_END:
		buf_puts(sql, "SELECT end_ms FROM record_runs WHERE record = ?1 AND number = ?2");
		return;
	default:
		child_sql(sql,
		        which >= ST_READ_LEAN ? ST_READ_LEAN
		        : which >= ST_READ    ? ST_READ
		        : which >= ST_ADD     ? ST_ADD
		                              : ST_DROP,
		        (enum child)((which - ST_DROP) % N_CHILDREN));
	}
}

static sqlite3_stmt *prepare(struct sqlite *q, unsigned which, struct error *err)
{
	_cleanup_buf_ struct buf sql = BUF_INIT(SQL_MAX);

	if (!q->records[which])
		sql_write(&sql, (enum statement)which);
	return sqlite_statement(q, &q->records[which], buf_cstr(&sql), err);
}

/* ---- binding and reading ---- */

static void bind_columns(
        sqlite3_stmt *st, int at, const struct column *c, size_t n, const void *from)
{
	for (size_t i = 0; i < n; i++, at++) {
		const char *p = (const char *)from + c[i].at;

		switch (c[i].kind) {
		case TEXT:
			sqlite_bind_str(st, at, str_of(*(const char *const *)(const void *)p));
			break;
		case FIXED:
			sqlite_bind_str(st, at, str_of(p));
			break;
		case I64:
			sqlite3_bind_int64(st, at, *(const int64_t *)(const void *)p);
			break;
		case INT:
			sqlite3_bind_int(st, at, *(const int *)(const void *)p);
			break;
		case BOOL:
			sqlite3_bind_int(st, at, *(const bool *)(const void *)p);
			break;
		}
	}
}

static void read_columns(sqlite3_stmt *st, const struct column *c, size_t n, void *to)
{
	for (size_t i = 0; i < n; i++) {
		void *p = (char *)to + c[i].at;
		int at = (int)i;

		switch (c[i].kind) {
		case TEXT:
			*(char **)p = sqlite_column_dup(st, at);
			break;
		case FIXED:
			str_copy(p, sizeof(((struct record *)NULL)->id), sqlite_column_str(st, at));
			break;
		case I64:
			*(int64_t *)p = sqlite3_column_int64(st, at);
			break;
		case INT:
			*(int *)p = sqlite3_column_int(st, at);
			break;
		case BOOL:
			*(bool *)p = sqlite3_column_int(st, at) != 0;
			break;
		}
	}
}

/* ---- writing ---- */

static struct store_scope scope_of(const struct record *r)
{
	return (struct store_scope){str_of(r->account), str_of(r->workspace)};
}

static int write_row(struct sqlite *q, struct str holder, const struct record *r, int64_t *ret,
        struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_ROW, err);
	int result = 0;

	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 1, holder);
	bind_columns(st, 2, row_columns, N(row_columns), r);
	if (sqlite3_step(st) == SQLITE_ROW)
		*ret = sqlite3_column_int64(st, 0);
	else
		result = sqlite_fail(q, "write a record", err);
	sqlite_reset_statement(st);
	return result;
}

int sqlite_records_put(
        struct sqlite *q, struct str holder, const struct record *r, struct error *err)
{
	int64_t n;

	return write_row(q, holder, r, &n, err);
}

/* *ret: the record's number; 0 where it is not open. */
static int write_beat(struct sqlite *q, const struct record *r, int64_t *ret, struct error *err)
{
	const struct store_scope scope = scope_of(r);
	sqlite3_stmt *st = prepare(q, ST_BEAT, err);
	int step, result = 0;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, &scope, str_of(r->id));
	bind_columns(st, 4, row_columns, ROW_BEAT, r);
	step = sqlite3_step(st);
	*ret = step == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
	if (step != SQLITE_ROW && step != SQLITE_DONE)
		result = sqlite_fail(q, "write a record's heartbeat", err);
	sqlite_reset_statement(st);
	return result;
}

static int add_child(struct sqlite *q, enum child c, int64_t record, size_t run, size_t number,
        const void *row, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_ADD + c, err);
	int at = 1;

	if (!st)
		return -ERR_IO;
	sqlite3_bind_int64(st, at++, record);
	if (tables[c].n_keys == 3)
		sqlite3_bind_int64(st, at++, (int64_t)run);
	sqlite3_bind_int64(st, at++, (int64_t)number);
	bind_columns(st, at, tables[c].columns, tables[c].n, row);
	return sqlite_run(q, st, "write a part of a record", err);
}

/* -1: it has no row. */
static int run_end(struct sqlite *q, int64_t n, size_t number, int64_t *ret, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_RUN_END, err);
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	sqlite3_bind_int64(st, 1, n);
	sqlite3_bind_int64(st, 2, (int64_t)number);
	step = sqlite3_step(st);
	*ret = step == SQLITE_ROW ? sqlite3_column_int64(st, 0) : -1;
	if (step != SQLITE_ROW && step != SQLITE_DONE)
		r = sqlite_fail(q, "find a run", err);
	sqlite_reset_statement(st);
	return r;
}

static int write_run(
        struct sqlite *q, int64_t n, const struct record *record, size_t i, struct error *err)
{
	const struct record_run *run = &record->runs[i];
	const struct sqlite_run key = {scope_of(record), n, i, str_of(run->container_id)};
	int64_t before;
	int r = run_end(q, n, i, &before, err);

	if (r == 0)
		r = add_child(q, RUNS, n, 0, i, run, err);
	if (r < 0 || run->container_id == NULL)
		return r;
	if (before < 0)
		return sqlite_run_network_begin(q, &key, run->begin_ms, run->end_ms, err);
	if (before == 0 && run->end_ms > 0)
		return sqlite_run_network_end(q, &key, run->end_ms, err);
	return 0;
}

static int write_runs(struct sqlite *q, int64_t n, const struct record *record, struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < record->n_runs && r >= 0; i++)
		r = write_run(q, n, record, i, err);
	return r;
}

static int drop_children(struct sqlite *q, int64_t record, struct error *err)
{
	int r = 0;

	for (unsigned c = 0; c < N_CHILDREN && r >= 0; c++) {
		sqlite3_stmt *st;

		if (c == RUNS)
			continue; /* they are written in place */
		st = prepare(q, ST_DROP + c, err);
		if (!st)
			return -ERR_IO;
		sqlite3_bind_int64(st, 1, record);
		r = sqlite_run(q, st, "replace a record", err);
	}
	return r;
}

static int add_children(struct sqlite *q, int64_t n, const struct record *record, struct error *err)
{
	int r = drop_children(q, n, err);

	for (size_t i = 0; i < record->n_attempts && r >= 0; i++)
		r = add_child(q, ATTEMPTS, n, 0, i, &record->attempts[i], err);
	for (size_t i = 0; i < record->n_hits && r >= 0; i++)
		r = add_child(q, HITS, n, 0, i, &record->hits[i], err);
	if (r >= 0)
		r = write_runs(q, n, record, err);
	for (size_t i = 0; i < record->n_runs && r >= 0; i++) {
		const struct record_run *run = &record->runs[i];

		for (size_t k = 0; k < run->n_commands && r >= 0; k++)
			r = add_child(q, COMMANDS, n, i, k, &run->commands[k], err);
	}
	return r;
}

int sqlite_records_write(struct store *s, struct str holder, const struct store_record_op *ops,
        size_t n, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	int r = sqlite_begin(q, err);
	int64_t row = 0;

	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r >= 0; i++) {
		if (ops[i].what == STORE_RECORD_BEAT)
			r = write_beat(q, ops[i].record, &row, err);
		else
			r = write_row(q, holder, ops[i].record, &row, err);
		if (r >= 0 && ops[i].what == STORE_RECORD_SETTLE)
			r = add_children(q, row, ops[i].record, err);
		else if (r >= 0 && row > 0)
			r = write_runs(q, row, ops[i].record, err);
	}
	r = sqlite_finish(q, r < 0 ? r : 0, err);
	return r < 0 ? r : 0;
}

/* ---- reading ---- */

static int read_children(struct sqlite *q, enum child c, int64_t n, bool content, struct record *r,
        struct error *err)
{
	size_t from = content ? 0 : tables[c].n_content;
	sqlite3_stmt *st = prepare(q, (content ? ST_READ : ST_READ_LEAN) + c, err);
	int step, result = 0;

	if (!st)
		return -ERR_IO;
	sqlite3_bind_int64(st, 1, n);
	while ((step = sqlite3_step(st)) == SQLITE_ROW) {
		size_t run = c == COMMANDS
		                     ? (size_t)sqlite3_column_int64(st, (int)(tables[c].n - from))
		                     : 0;
		void *to;

		if (c == COMMANDS && run >= r->n_runs)
			continue;
		to = c == ATTEMPTS ? (void *)record_add_attempt(r)
		     : c == RUNS   ? (void *)record_add_run(r)
		     : c == HITS   ? (void *)record_add_hit(r)
		                   : (void *)record_add_command(&r->runs[run]);
		read_columns(st, tables[c].columns + from, tables[c].n - from, to);
	}
	if (step != SQLITE_DONE)
		result = sqlite_fail(q, "read a part of a record", err);
	sqlite_reset_statement(st);
	return result;
}

static int read_parts(
        struct sqlite *q, int64_t n, bool content, struct record *r, struct error *err)
{
	int result = 0;

	for (unsigned c = 0; c < N_CHILDREN && result == 0; c++)
		result = read_children(q, (enum child)c, n, content, r, err);
	return result == 0 && r->n_runs > 0 ? sqlite_run_network_read(q, n, r, err) : result;
}

int sqlite_records_get(struct store *s, const struct store_scope *scope, struct str id,
        struct record **ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_GET, err);
	struct record *record = NULL;
	int64_t n = 0;
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, id);
	step = sqlite3_step(st);
	if (step == SQLITE_ROW) {
		record = record_new();
		read_columns(st, row_columns, N(row_columns), record);
		n = sqlite3_column_int64(st, (int)N(row_columns));
	} else if (step == SQLITE_DONE) {
		r = error_set(err, ERR_NOT_FOUND, "no generation of this id");
	} else {
		r = sqlite_fail(q, "read a record", err);
	}
	sqlite_reset_statement(st);
	if (r == 0)
		r = read_parts(q, n, true, record, err);
	if (r < 0)
		record = record_free(record);
	else
		*ret = record;
	return r;
}

int sqlite_records_at(
        struct sqlite *q, int64_t n, bool content, struct record **ret, struct error *err)
{
	sqlite3_stmt *st = prepare(q, content ? ST_AT : ST_AT_LEAN, err);
	struct record *record = NULL;
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	sqlite3_bind_int64(st, 1, n);
	step = sqlite3_step(st);
	if (step == SQLITE_ROW) {
		record = record_new();
		read_columns(st, row_columns, N(row_columns) - (content ? 0 : ROW_CONTENT), record);
	} else if (step != SQLITE_DONE) {
		r = sqlite_fail(q, "read a record", err);
	}
	sqlite_reset_statement(st);
	if (r == 0 && record)
		r = read_parts(q, n, content, record, err);
	*ret = r < 0 ? record_free(record) : record;
	return r;
}

/* ---- lists ---- */

#define CONTENT_OF                                                                                 \
	"(instr(request, ?11) OR instr(answer, ?11) OR EXISTS (SELECT 1 FROM record_commands "     \
	"c WHERE c.record = records.n AND (instr(c.command, ?11) OR instr(c.out, ?11) OR "         \
	"instr(c.err, ?11))))"

/* These are few, and no other index helps. */
static bool only_failed(const struct store_record_query *query)
{
	int status = query->status;

	return (status >= 400 || (status >= 4 && status < 10)) && !query->model.p &&
	       !query->key_hash.p && !query->session.p && !query->container.p;
}

/* Only the conditions that are asked for, so that the index that fits is taken. */
static void list_sql(struct buf *sql, const struct store_record_query *query)
{
	buf_puts(sql, "SELECT ");
	names_write(sql, row_columns, N(row_columns) - (query->content ? 0 : ROW_CONTENT));
	buf_puts(sql, ", n FROM records ");
	if (query->ended_from_ms > 0)
		buf_puts(sql, "INDEXED BY records_ended ");
	else if (query->state == RECORD_OPEN + 1)
		buf_puts(sql, "INDEXED BY records_open ");
	else if (only_failed(query))
		buf_puts(sql, "INDEXED BY records_failed ");
	buf_puts(sql, "WHERE account = ?1 AND workspace = ?2 AND (begin_ms, n) < (?3, ?4) AND "
	              "begin_ms >= ?5");
	if (query->ended_from_ms > 0)
		buf_puts(sql, " AND state <> 0 AND end_ms >= ?17");
	if (query->model.p)
		buf_puts(sql, " AND model = ?6");
	if (query->provider.p)
		buf_puts(sql, " AND provider = ?7");
	if (query->key_hash.p)
		buf_puts(sql, " AND key_hash = ?8");
	if (query->session.p)
		buf_puts(sql, " AND session_id = ?9");
	if (query->container.p)
		buf_puts(sql, " AND container_id = ?10");
	if (query->text.p)
		buf_puts(sql, " AND " CONTENT_OF);
	if (only_failed(query))
		buf_puts(sql, " AND status >= 400");
	if (query->status > 0 && query->status < 10)
		buf_puts(sql, " AND status / 100 = ?12");
	else if (query->status > 0)
		buf_puts(sql, " AND status = ?12");
	if (query->api.p)
		buf_puts(sql, " AND api = ?14");
	if (query->user.p)
		buf_puts(sql, " AND user = ?15");
	if (query->hit.p)
		buf_puts(sql, " AND EXISTS (SELECT 1 FROM record_hits h WHERE h.record = records.n "
		              "AND (?16 = 'any' OR h.action = ?16))");
	if (query->state > 0)
		buf_printf(sql, " AND state = %d", query->state - 1);
	buf_puts(sql, " ORDER BY begin_ms DESC, n DESC LIMIT ?13");
}

static int find_after(struct sqlite *q, const struct store_scope *scope, struct str id,
        int64_t *ret_begin, int64_t *ret_n, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_FIND, err);
	int r = 0, step;

	if (!st)
		return -ERR_IO;
	sqlite_bind_key(st, scope, id);
	step = sqlite3_step(st);
	if (step == SQLITE_ROW) {
		*ret_begin = sqlite3_column_int64(st, 0);
		*ret_n = sqlite3_column_int64(st, 1);
	} else if (step == SQLITE_DONE) {
		r = error_param(err, ERR_INVALID, "after", "no generation of this id");
	} else {
		r = sqlite_fail(q, "find a record", err);
	}
	sqlite_reset_statement(st);
	return r;
}

static void bind_query(sqlite3_stmt *st, const struct store_scope *scope,
        const struct store_record_query *query, int64_t begin, int64_t n)
{
	const struct str texts[] = {query->model, query->provider, query->key_hash, query->session,
	        query->container, query->text};

	sqlite_bind_str(st, 1, scope->account);
	sqlite_bind_str(st, 2, scope->workspace);
	sqlite3_bind_int64(st, 3, begin);
	sqlite3_bind_int64(st, 4, n);
	sqlite3_bind_int64(st, 5, query->from_ms);
	for (int i = 0; i < 6; i++)
		sqlite_bind_str(st, 6 + i, texts[i]);
	sqlite3_bind_int(st, 12, query->status);
	sqlite3_bind_int64(st, 13, (int64_t)query->limit + 1);
	sqlite_bind_str(st, 14, query->api);
	sqlite_bind_str(st, 15, query->user);
	sqlite_bind_str(st, 16, query->hit);
	sqlite3_bind_int64(st, 17, query->ended_from_ms);
}

static size_t text_bytes(const char *s)
{
	return s != NULL ? strlen(s) : 0;
}

size_t sqlite_records_bytes(const struct record *r)
{
	size_t n = sizeof(*r) + text_bytes(r->request) + text_bytes(r->answer) +
	           text_bytes(r->metadata) + text_bytes(r->trace);

	for (size_t i = 0; i < r->n_runs; i++) {
		n += r->runs[i].n_hosts * (sizeof(struct record_host) + HOST_BYTES);
		for (size_t k = 0; k < r->runs[i].n_commands; k++) {
			const struct record_command *c = &r->runs[i].commands[k];

			n += sizeof(*c) + text_bytes(c->command) + text_bytes(c->out) +
			     text_bytes(c->err);
		}
	}
	return n;
}

static int read_list(struct sqlite *q, sqlite3_stmt *st, const struct store_record_query *query,
        struct store_record_list *ret, struct error *err)
{
	size_t columns = N(row_columns) - (query->content ? 0 : ROW_CONTENT);
	struct store_record_list list = {0};
	size_t cap = 0, bytes = 0;
	int step, r = 0;

	while ((step = sqlite3_step(st)) == SQLITE_ROW && list.n < query->limit &&
	        (query->most_bytes == 0 || bytes < query->most_bytes) && r == 0) {
		struct record *row = record_new();

		read_columns(st, row_columns, columns, row);
		mem_grow(&list.rows, &cap, list.n, sizeof(*list.rows));
		list.rows[list.n++] = row;
		list.last = (struct store_record_place){
		        row->begin_ms, sqlite3_column_int64(st, (int)columns)};
		if (query->parts)
			r = read_parts(q, list.last.n, query->content, row, err);
		bytes += query->most_bytes > 0 ? sqlite_records_bytes(row) : 0;
	}
	list.has_more = step == SQLITE_ROW;
	if (r == 0 && step != SQLITE_ROW && step != SQLITE_DONE)
		r = sqlite_fail(q, "list records", err);
	if (r < 0) {
		store_record_list_clear(&list);
		return r;
	}
	*ret = list;
	return 0;
}

int sqlite_records_list(struct store *s, const struct store_scope *scope,
        const struct store_record_query *query, struct store_record_list *ret, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	_cleanup_buf_ struct buf sql = BUF_INIT(SQL_MAX);
	int64_t begin = INT64_MAX, n = INT64_MAX;
	sqlite3_stmt *st = NULL;
	int r = 0;

	if (query->behind.n > 0) {
		begin = query->behind.begin_ms;
		n = query->behind.n;
	} else if (query->after.p) {
		r = find_after(q, scope, query->after, &begin, &n, err);
	}
	if (r < 0)
		return r;
	if (query->until_ms > 0 && query->until_ms <= begin) {
		begin = query->until_ms;
		n = -1;
	}
	list_sql(&sql, query);
	st = sqlite_statement(q, &st, buf_cstr(&sql), err);
	if (!st)
		return -ERR_IO;
	bind_query(st, scope, query, begin, n);
	r = read_list(q, st, query, ret, err);
	sqlite3_finalize(st);
	return r;
}

/* ---- sums ---- */

static void read_total(sqlite3_stmt *st, struct store_record_total *t)
{
	t->day_ms = sqlite3_column_int64(st, 0) * DAY_MS;
	t->model = sqlite_column_dup(st, 1);
	t->key_hash = sqlite_column_dup(st, 2);
	t->requests = (uint64_t)sqlite3_column_int64(st, 3);
	t->total_cost = sqlite3_column_int64(st, 4);
	t->sandbox_cost = sqlite3_column_int64(st, 5);
	t->sandbox_ms = (uint64_t)sqlite3_column_int64(st, 6);
	t->input = (uint64_t)sqlite3_column_int64(st, 7);
	t->output = (uint64_t)sqlite3_column_int64(st, 8);
}

int sqlite_records_totals(struct store *s, const struct store_scope *scope, int64_t from_ms,
        int64_t until_ms, uint32_t limit, struct store_record_total **ret, size_t *ret_n,
        struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, ST_TOTALS, err);
	struct store_record_total *list = NULL;
	size_t n = 0, cap = 0;
	int step, r = 0;

	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 1, scope->account);
	sqlite_bind_str(st, 2, scope->workspace);
	sqlite3_bind_int64(st, 3, from_ms);
	sqlite3_bind_int64(st, 4, until_ms);
	sqlite3_bind_int64(st, 5, limit);
	while ((step = sqlite3_step(st)) == SQLITE_ROW) {
		mem_grow(&list, &cap, n, sizeof(*list));
		read_total(st, &list[n++]);
	}
	if (step != SQLITE_DONE)
		r = sqlite_fail(q, "sum records", err);
	sqlite_reset_statement(st);
	if (r < 0) {
		store_record_totals_free(list, n);
		return r;
	}
	*ret = list;
	*ret_n = n;
	return 0;
}

/* ---- time ---- */

static int run_one(struct sqlite *q, const char *sql, int64_t n, struct error *err)
{
	sqlite3_stmt *st = NULL;
	int r;

	if (!sqlite_statement(q, &st, sql, err))
		return -ERR_IO;
	sqlite3_bind_int64(st, 1, n);
	r = sqlite_run(q, st, "remove a record's content", err);
	sqlite3_finalize(st);
	return r;
}

int sqlite_records_forget(
        struct store *s, const struct store_scope *scope, struct str id, struct error *err)
{
	static const char *const sql[] = {
	        "UPDATE records SET request = NULL, answer = NULL, store_content = 0 WHERE n = ?1",
	        "UPDATE record_commands SET command = NULL, out = NULL, err = NULL WHERE record = "
	        "?1",
	        "UPDATE record_hits SET matched = NULL WHERE record = ?1",
	        "DELETE FROM record_network WHERE record = ?1",
	};
	struct sqlite *q _locked_ = sqlite_lock(s);
	int64_t begin, n = 0;
	int r = sqlite_begin(q, err);

	if (r < 0)
		return r;
	r = find_after(q, scope, id, &begin, &n, err);
	for (size_t i = 0; i < N(sql) && r >= 0; i++)
		r = run_one(q, sql[i], n, err);
	if (r == -ERR_INVALID)
		r = error_set(err, ERR_NOT_FOUND, "no generation of this id");
	r = sqlite_finish(q, r < 0 ? r : 0, err);
	return r < 0 ? r : 0;
}

int sqlite_records_recover(struct store *s, struct str holder, int64_t before_ms, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);
	sqlite3_stmt *st = prepare(q, holder.p ? ST_RECOVER_HOLDER : ST_RECOVER, err);

	if (!st)
		return -ERR_IO;
	if (holder.p)
		sqlite_bind_str(st, 1, holder);
	else
		sqlite3_bind_int64(st, 1, before_ms);
	return sqlite_run(q, st, "settle records of a gateway that has gone", err);
}

int sqlite_records_expire(struct store *s, int64_t before_ms, uint32_t limit, struct error *err)
{
	struct sqlite *q _locked_ = sqlite_lock(s);

	return sqlite_run_expiry(
	        q, prepare(q, ST_EXPIRE, err), before_ms, limit, "expire records", err);
}
