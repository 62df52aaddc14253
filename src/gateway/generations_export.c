/*
 * GET /generations/export: all records that the filters find, as JSON lines, the newest first.
 *
 * Theory of operation. The pool reads a batch and writes its lines; the loop sends them and asks
 * for the next one once the client has taken what there is. So an export of any length takes the
 * memory of one batch, and the database is read in steps that are over before anybody waits for
 * them. A batch goes on behind the place of the last row, not its id: retention may have removed
 * that meanwhile. What begins while an export is under way is newer than all of it, and not in it.
 *
 * An export that fails in its middle is broken off, so that it cannot be taken for a whole one.
 */
#include "gateway/generations.h"

#include <stdlib.h>

#define BATCH_ROWS  200
#define BATCH_BYTES ((size_t)1 << 20)   /* of what may be long: a batch ends behind it */
#define LINES_MAX   ((size_t)256 << 20) /* of one batch, whatever is in its last row */

struct export
{
	struct gateway *g;
	const struct config_key *key;
	struct http_exchange *x; /* NULL: the client has gone */
	struct owner owner;
	bool under_v1;
	bool reading; /* the pool works for it */
	bool started, more, finished;
	struct generations_filters filters;
	struct buf lines;
	int result;
	struct error err;
};

static void export_free(struct export *e)
{
	generations_filters_clear(&e->filters);
	buf_free(&e->lines);
	free(e);
}

static void write_line(struct buf *out, const struct record *r, bool content)
{
	struct json_writer w;

	jw_init(&w, out);
	jw_object(&w);
	generations_write_row(&w, r);
	generations_write_more(&w, r);
	generations_write_runs(&w, "tool_runs", r);
	if (content) {
		generations_write_raw(&w, "input", r->request);
		generations_write_raw(&w, "output", r->answer);
	}
	jw_end(&w);
	buf_putc(out, '\n');
}

static void read_work(void *arg)
{
	struct export *e = arg;
	struct store_scope scope = row_scope(e->key);
	struct store_record_query *q = &e->filters.query;
	struct store_record_list list = {0};

	e->result = store_record_list(e->g->reader, &scope, q, &list, &e->err);
	if (e->result < 0)
		return;
	for (size_t i = 0; i < list.n; i++)
		write_line(&e->lines, list.rows[i], q->content);
	e->more = list.has_more;
	if (list.n > 0) {
		q->behind = list.last;
		q->after = (struct str){NULL, 0};
	}
	store_record_list_clear(&list);
	if (buf_error(&e->lines) < 0)
		e->result = error_set(&e->err, ERR_TOO_LARGE, "A line would be too large.");
}

static void export_fail(struct export *e)
{
	if (!e->started) {
		http_exchange_set_data(e->x, NULL);
		respond_error(e->x, e->under_v1, &e->err);
		export_free(e);
		return;
	}
	log_text(LOG_ERROR, "export_failed", "%s", e->err.text);
	e->finished = true;
	http_abort(e->x); /* on_gone() follows */
}

static void go(struct export *e);

static void send_lines(struct export *e)
{
	if (!e->started)
		http_respond_start(e->x, 200, "application/x-ndjson");
	e->started = true;
	http_write(e->x, (struct str){e->lines.data, e->lines.len});
	buf_free(&e->lines);
	buf_init(&e->lines, LINES_MAX);
	if (!e->more) {
		e->finished = true;
		http_finish(e->x);
	} else if (!http_above_high_water(e->x)) {
		go(e);
	}
}

static void read_done(void *arg)
{
	struct export *e = arg;

	e->reading = false;
	if (e->x == NULL)
		export_free(e);
	else if (e->result < 0)
		export_fail(e);
	else
		send_lines(e);
}

static void go(struct export *e)
{
	e->reading = true;
	if (pool_run(e->g->pool, read_work, read_done, e))
		return;
	e->reading = false;
	gateway_busy(&e->err);
	export_fail(e);
}

static void on_drain(void *self)
{
	struct export *e = self;

	if (!e->reading && !e->finished)
		go(e);
}

static void on_gone(void *self, enum http_gone why)
{
	struct export *e = self;

	e->x = NULL;
	if (!e->reading)
		export_free(e);
}

static bool wants_content(struct str query)
{
	_cleanup_buf_ struct buf b = BUF_INIT(16);

	return http_query_get(query, "content", &b) && str_is((struct str){b.data, b.len}, "true");
}

void generations_export(struct request *r)
{
	struct str query = http_request_query(r->x);
	struct export *e = mem_alloc(sizeof(*e));
	struct store_record_query *q = &e->filters.query;

	*e = (struct export){.g = r->g, .key = r->key, .x = r->x, .under_v1 = r->under_v1};
	buf_init(&e->lines, LINES_MAX);
	e->owner = (struct owner){on_drain, on_gone, e};
	if (generations_filters_read(&e->filters, query, &e->err) < 0) {
		respond_error(e->x, e->under_v1, &e->err);
		export_free(e);
		return;
	}
	q->limit = BATCH_ROWS;
	q->parts = true;
	q->content = wants_content(query);
	q->most_bytes = BATCH_BYTES;
	if (str_is(http_request_method(r->x), "HEAD")) {
		http_respond(e->x, 200, "application/x-ndjson", STR(""));
		export_free(e);
		return;
	}
	http_exchange_set_data(e->x, &e->owner);
	go(e);
}
