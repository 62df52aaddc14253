/*
 * What egress let through and refused during the runs of records, in SQLite.
 *
 * Theory of operation. Egress tells one gateway of the node, a while later, and a run may be
 * another gateway's; so they meet here. A verdict belongs to every run of its container whose time
 * it lies in, and it and the run come in any order, each in a transaction of its own:
 *
 * - a verdict counts for the runs that have their row (_add), however long ago they ended, since a
 *   connection is told of when it ends;
 * - a run that gets its row counts the verdicts that were there before it (_begin);
 * - one that is under way takes whatever comes, and when its end is known gives back what came
 *   after that (_end).
 *
 * So each is counted once. The run itself has the counts; record_network has the hosts, at most
 * STORE_RUN_HOSTS_MAX of a run, and none where the record keeps no content, since a name is
 * whatever a guest asked for.
 */
#include "store/sqlite.h"

#include "record/record.h"

enum statement {
	ST_COUNT,
	ST_HOST,
	ST_BEGIN_COUNT,
	ST_BEGIN_HOSTS,
	ST_END_COUNT,
	ST_END_HOSTS,
	ST_END_NONE,
	ST_READ,
	N_STATEMENTS
};
_Static_assert(N_STATEMENTS <= SQLITE_RUN_NETWORK_STATEMENTS, "room for every statement");
_Static_assert(STORE_RUN_HOSTS_MAX == 32, "stands in the statements, and in a migration");

/* A gateway's death ends its runs at their last heartbeat, at most so long before. */
#define BEAT_MS "5000"
/* Of one verdict; so no sum of them, whatever egress says, is more than an integer holds. */
#define BYTES_MAX (UINT64_C(1) << 50)

#define RUNS_FROM                                                                                  \
	"SELECT r.record, r.number, o.store_content FROM record_runs r INDEXED BY "                \
	"record_runs_container CROSS JOIN records o WHERE o.n = r.record AND o.account = ?1 AND "  \
	"o.workspace = ?2 AND r.container_id = ?3 AND r.begin_ms <= ?4 AND "
/* The runs that a verdict at ?4 belongs to. */
#define RUNS                                                                                       \
	"WITH m (record, run, content) AS (" RUNS_FROM                                             \
	"r.end_ms = 0 AND o.state = 0 UNION ALL " RUNS_FROM                                        \
	"r.end_ms > 0 AND r.end_ms >= ?4 - " BEAT_MS " AND (r.end_ms >= ?4 OR "                    \
	"o.state = 2)) "
#define RUN "record = ?1 AND number = ?2"
/* The verdicts of a container from ?6 to ?7. */
#define SEEN                                                                                       \
	"FROM network INDEXED BY network_by_time WHERE account = ?3 AND workspace = ?4 AND "       \
	"container = ?5 AND time_ms BETWEEN ?6 AND ?7"
#define ALLOWED "(SELECT coalesce(sum((1 + more) * allowed), 0) " SEEN ")"
#define DENIED  "(SELECT coalesce(sum((1 + more) * (1 - allowed)), 0) " SEEN ")"
/* By host. What `more` counts may have been any. */
#define HOSTS                                                                                      \
	"SELECT iif(name = '', address, name) AS host, allowed, reason, count(*) AS n, "           \
	"sum(min(bytes_in, 1 << 50)) AS bytes_in, sum(min(bytes_out, 1 << 50)) AS bytes_out, "     \
	"min(id) AS first " SEEN " GROUP BY 1, 2"

static const char *const sql_of[N_STATEMENTS] = {
        [ST_COUNT] = RUNS "UPDATE record_runs SET network_allowed = network_allowed + ?5, "
                          "network_denied = network_denied + ?6 WHERE (record, number) IN (SELECT "
                          "record, run FROM m)",
        [ST_HOST] = RUNS
        "INSERT INTO record_network SELECT record, run, ?5, ?6, ?7, 1, ?8, ?9 FROM m WHERE "
        "content = 1 AND (EXISTS (SELECT 1 FROM record_network h WHERE h.record = m.record "
        "AND h.run = m.run AND h.host = ?5 AND h.allowed = ?6) OR (SELECT count(*) FROM "
        "record_network h WHERE h.record = m.record AND h.run = m.run) < 32) ON CONFLICT "
        "DO UPDATE SET n = n + 1, bytes_in = min(bytes_in + excluded.bytes_in, 1 << 60), "
        "bytes_out = min(bytes_out + excluded.bytes_out, 1 << 60)",
        [ST_BEGIN_COUNT] = "UPDATE record_runs SET network_allowed = " ALLOWED
                           ", network_denied = " DENIED " WHERE " RUN,
        [ST_BEGIN_HOSTS] =
                "INSERT INTO record_network SELECT ?1, ?2, host, allowed, reason, n, bytes_in, "
                "bytes_out FROM (" HOSTS ") WHERE (SELECT store_content FROM records WHERE n = ?1) "
                "= 1 ORDER BY first LIMIT 32",
        [ST_END_COUNT] = "UPDATE record_runs SET network_allowed = max(0, network_allowed "
                         "- " ALLOWED "), network_denied = max(0, network_denied - " DENIED
                         ") WHERE " RUN " AND EXISTS (SELECT 1 " SEEN ")",
        [ST_END_HOSTS] =
                "UPDATE record_network SET n = record_network.n - l.n, bytes_in = max(0, "
                "record_network.bytes_in - l.bytes_in), bytes_out = max(0, "
                "record_network.bytes_out - l.bytes_out) FROM (" HOSTS ") l WHERE record = ?1 AND "
                "run = ?2 AND record_network.host = l.host AND record_network.allowed = l.allowed",
        [ST_END_NONE] = "DELETE FROM record_network WHERE record = ?1 AND run = ?2 AND n <= 0",
        [ST_READ] = "SELECT run, host, allowed, reason, n, bytes_in, bytes_out FROM record_network "
                    "WHERE record = ?1 ORDER BY run, allowed, host",
};

static sqlite3_stmt *prepare(struct sqlite *q, enum statement which, struct error *err)
{
	return sqlite_statement(q, &q->run_network[which], sql_of[which], err);
}

static int64_t bytes_of(uint64_t n)
{
	return (int64_t)(n < BYTES_MAX ? n : BYTES_MAX);
}

/* A statement that begins with RUNS, its first parameters bound. */
static sqlite3_stmt *prepare_of(
        struct sqlite *q, enum statement which, const struct store_network *n, struct error *err)
{
	const struct store_scope scope = {str_of(n->account), str_of(n->workspace)};
	sqlite3_stmt *st = prepare(q, which, err);

	if (!st)
		return NULL;
	sqlite_bind_key(st, &scope, str_of(n->container));
	sqlite3_bind_int64(st, 4, n->time_ms);
	return st;
}

int sqlite_run_network_add(struct sqlite *q, const struct store_network *n, struct error *err)
{
	int64_t count = INT64_C(1) + n->more;
	sqlite3_stmt *st = prepare_of(q, ST_COUNT, n, err);
	int r;

	if (!st)
		return -ERR_IO;
	sqlite3_bind_int64(st, 5, n->allowed ? count : 0);
	sqlite3_bind_int64(st, 6, n->allowed ? 0 : count);
	r = sqlite_run(q, st, "count a run's verdicts", err);
	if (r <= 0)
		return r;
	st = prepare_of(q, ST_HOST, n, err);
	if (!st)
		return -ERR_IO;
	sqlite_bind_str(st, 5, str_of(n->name[0] != 0 ? n->name : n->address));
	sqlite3_bind_int(st, 6, n->allowed);
	sqlite_bind_str(st, 7, str_of(n->reason));
	sqlite3_bind_int64(st, 8, bytes_of(n->bytes_in));
	sqlite3_bind_int64(st, 9, bytes_of(n->bytes_out));
	return sqlite_run(q, st, "keep a run's verdict", err);
}

/* A statement of one run, over the verdicts of its container from from_ms to to_ms. */
static int run_over(struct sqlite *q, enum statement which, const struct sqlite_run *run,
        int64_t from_ms, int64_t to_ms, struct error *err)
{
	sqlite3_stmt *st = prepare(q, which, err);

	if (!st)
		return -ERR_IO;
	sqlite3_bind_int64(st, 1, run->record);
	sqlite3_bind_int64(st, 2, (int64_t)run->number);
	if (which != ST_END_NONE) {
		sqlite_bind_str(st, 3, run->scope.account);
		sqlite_bind_str(st, 4, run->scope.workspace);
		sqlite_bind_str(st, 5, run->container);
		sqlite3_bind_int64(st, 6, from_ms);
		sqlite3_bind_int64(st, 7, to_ms);
	}
	return sqlite_run(q, st, "count a run's verdicts", err);
}

int sqlite_run_network_begin(struct sqlite *q, const struct sqlite_run *run, int64_t begin_ms,
        int64_t end_ms, struct error *err)
{
	int64_t to = end_ms > 0 ? end_ms : INT64_MAX;
	int r = run_over(q, ST_BEGIN_COUNT, run, begin_ms, to, err);

	return r < 0 ? r : run_over(q, ST_BEGIN_HOSTS, run, begin_ms, to, err);
}

int sqlite_run_network_end(
        struct sqlite *q, const struct sqlite_run *run, int64_t end_ms, struct error *err)
{
	int r = run_over(q, ST_END_COUNT, run, end_ms + 1, INT64_MAX, err);

	if (r > 0)
		r = run_over(q, ST_END_HOSTS, run, end_ms + 1, INT64_MAX, err);
	return r <= 0 ? r : run_over(q, ST_END_NONE, run, 0, 0, err);
}

int sqlite_run_network_read(struct sqlite *q, int64_t n, struct record *r, struct error *err)
{
	sqlite3_stmt *st = prepare(q, ST_READ, err);
	int step, result = 0;

	if (!st)
		return -ERR_IO;
	sqlite3_bind_int64(st, 1, n);
	while ((step = sqlite3_step(st)) == SQLITE_ROW) {
		size_t run = (size_t)sqlite3_column_int64(st, 0);
		struct record_host *h;

		if (run >= r->n_runs)
			continue;
		h = record_add_host(&r->runs[run]);
		h->host = sqlite_column_dup(st, 1);
		h->allowed = sqlite3_column_int(st, 2) != 0;
		h->reason = sqlite_column_dup(st, 3);
		h->n = (uint64_t)sqlite3_column_int64(st, 4);
		h->bytes_in = (uint64_t)sqlite3_column_int64(st, 5);
		h->bytes_out = (uint64_t)sqlite3_column_int64(st, 6);
	}
	if (step != SQLITE_DONE)
		result = sqlite_fail(q, "read a run's verdicts", err);
	sqlite_reset_statement(st);
	return result;
}
