/*
 * What was recorded of requests, over HTTP, with OpenRouter's field names:
 *
 *     GET /generation?id=                one
 *     GET|DELETE /generation/content     what was said in it
 *     GET /generations                   many, the newest first
 *     GET /generations/export            all that these filters find: generations_export.c
 *     GET /generations/{id}/tool_runs    what ran in it
 *     GET /generations/totals            sums by day, model and key
 *
 * All of it is read on the pool, from the workspace of the asking key only.
 */
#include "gateway/generations.h"
#include "gateway/job.h"

#include <stdlib.h>

#define LIST_PRESET 50
#define LIST_MOST   1000
#define TOTALS_MOST 10000
#define FILTER_MAX  512
#define ID_MAX      64

/* ---- what the pool does ---- */

static void say_not_found(struct job *j, const char *id)
{
	if (j->result == -ERR_NOT_FOUND || j->result == -ERR_INVALID)
		j->result = error_set(
		        &j->err, ERR_NOT_FOUND, "There is no generation of the id '%s'.", id);
}

/* The id in the path, or else in the query; false: there is none. */
static bool id_of(struct job *j, char id[ID_MAX])
{
	_cleanup_buf_ struct buf b = BUF_INIT(ID_MAX);

	if (j->params[0].n > 0) {
		str_copy(id, ID_MAX, j->params[0]);
		return true;
	}
	if (!http_query_get(j->query, "id", &b) || b.len == 0) {
		j->result = error_param(
		        &j->err, ERR_INVALID, "id", "The query names no generation: ?id=gen-….");
		return false;
	}
	str_copy(id, ID_MAX, (struct str){b.data, b.len});
	return true;
}

/* {"data": {…, which data_end() closes. */
static void data_begin(struct json_writer *w, struct job *j)
{
	jw_init(w, &j->out);
	jw_object(w);
	jw_key(w, "data");
	jw_object(w);
}

static void data_end(struct json_writer *w)
{
	jw_end(w);
	jw_end(w);
}

static struct record *read_one(struct job *j)
{
	struct record *r = NULL;
	char id[ID_MAX];

	if (!id_of(j, id))
		return NULL;
	j->result = store_record_get(j->g->reader, &j->scope, str_of(id), &r, &j->err);
	say_not_found(j, id);
	return j->result < 0 ? NULL : r;
}

static void get_work(struct job *j)
{
	struct record *r = read_one(j);
	struct json_writer w;

	if (r == NULL)
		return;
	data_begin(&w, j);
	generations_write_row(&w, r);
	generations_write_more(&w, r);
	data_end(&w);
	record_free(r);
}

static void content_work(struct job *j)
{
	struct record *r = read_one(j);
	struct json_writer w;

	if (r == NULL)
		return;
	data_begin(&w, j);
	generations_write_raw(&w, "input", r->request);
	generations_write_raw(&w, "output", r->answer);
	jw_kcstr(&w, "error", r->error);
	data_end(&w);
	if (!r->store_content)
		j->result = error_set(
		        &j->err, ERR_NOT_FOUND, "The content of this generation is not stored.");
	record_free(r);
}

static void runs_work(struct job *j)
{
	struct record *r = read_one(j);
	struct json_writer w;

	if (r == NULL)
		return;
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_kcstr(&w, "object", "list");
	generations_write_runs(&w, "data", r);
	jw_end(&w);
	record_free(r);
}

static void forget_work(struct job *j)
{
	struct json_writer w;
	char id[ID_MAX];

	if (!id_of(j, id))
		return;
	j->result = store_record_forget(j->g->store, &j->scope, str_of(id), &j->err);
	say_not_found(j, id);
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_kcstr(&w, "id", id);
	jw_kbool(&w, "deleted", true);
	jw_end(&w);
}

static void list_find(struct job *j, const struct store_record_query *q)
{
	struct store_record_list list = {0};
	struct json_writer w;

	j->result = store_record_list(j->g->reader, &j->scope, q, &list, &j->err);
	if (j->result < 0)
		return;
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_kcstr(&w, "object", "list");
	jw_key(&w, "data");
	jw_array(&w);
	for (size_t i = 0; i < list.n; i++) {
		jw_object(&w);
		generations_write_row(&w, list.rows[i]);
		jw_end(&w);
	}
	jw_end(&w);
	jw_kcstr(&w, "first_id", list.n > 0 ? list.rows[0]->id : NULL);
	jw_kcstr(&w, "last_id", list.n > 0 ? list.rows[list.n - 1]->id : NULL);
	jw_kbool(&w, "has_more", list.has_more);
	jw_end(&w);
	store_record_list_clear(&list);
}

static void write_total(struct json_writer *w, const struct store_record_total *t)
{
	char date[32];

	clock_iso8601(t->day_ms, date);
	jw_object(w);
	jw_kstr(w, "date", (struct str){date, strlen("2026-01-01")});
	jw_kcstr(w, "model", t->model);
	jw_kcstr(w, "api_key_hash", t->key_hash);
	jw_ki64(w, "requests", (int64_t)t->requests);
	jw_kmoney(w, "total_cost", (struct money){t->total_cost});
	jw_kmoney(w, "server_tool_cost", (struct money){t->sandbox_cost});
	jw_ki64(w, "sandbox_ms", (int64_t)t->sandbox_ms);
	jw_ki64(w, "tokens_prompt", (int64_t)t->input);
	jw_ki64(w, "tokens_completion", (int64_t)t->output);
	jw_end(w);
}

/* GET /generations/totals: sums by day, model and key, which the page's charts show. */
static void totals_find(struct job *j, const struct store_record_query *q)
{
	struct store_record_total *totals = NULL;
	struct json_writer w;
	size_t n = 0;

	j->result = store_record_totals(j->g->reader, &j->scope, q->from_ms,
	        q->until_ms > 0 ? q->until_ms : INT64_MAX, TOTALS_MOST, &totals, &n, &j->err);
	if (j->result < 0)
		return;
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_kcstr(&w, "object", "list");
	jw_key(&w, "data");
	jw_array(&w);
	for (size_t i = 0; i < n; i++)
		write_total(&w, &totals[i]);
	jw_end(&w);
	jw_kbool(&w, "has_more", n == TOTALS_MOST);
	jw_end(&w);
	store_record_totals_free(totals, n);
}

/* ---- what is asked ---- */

void generations_get(struct request *r)
{
	job_run(r, get_work);
}

void generations_content(struct request *r)
{
	job_run(r, content_work);
}

void generations_forget(struct request *r)
{
	job_run(r, forget_work);
}

void generations_runs(struct request *r)
{
	job_run(r, runs_work);
}

static bool number_of(struct str query, const char *name, uint64_t most, uint64_t *ret)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	if (!http_query_get(query, name, &b))
		return true;
	return str_to_u64((struct str){b.data, b.len}, ret) && *ret <= most;
}

static int read_numbers(struct store_record_query *q, struct str query, struct error *err)
{
	uint64_t limit = LIST_PRESET, from = 0, until = 0, status = 0, ended = 0;

	if (!number_of(query, "limit", LIST_MOST, &limit) || limit < 1)
		return error_param(err, ERR_INVALID, "limit",
		        "limit must be a whole number from 1 to %d.", LIST_MOST);
	if (!number_of(query, "from_ms", INT64_MAX, &from))
		return error_param(err, ERR_INVALID, "from_ms",
		        "from_ms is a time in milliseconds since 1970.");
	if (!number_of(query, "until_ms", INT64_MAX, &until))
		return error_param(err, ERR_INVALID, "until_ms",
		        "until_ms is a time in milliseconds since 1970.");
	if (!number_of(query, "ended_from_ms", INT64_MAX, &ended))
		return error_param(err, ERR_INVALID, "ended_from_ms",
		        "ended_from_ms is a time in milliseconds since 1970.");
	if (!number_of(query, "status", 599, &status))
		return error_param(err, ERR_INVALID, "status",
		        "status is an HTTP status, or its first digit.");
	q->limit = (uint32_t)limit;
	q->from_ms = (int64_t)from;
	q->until_ms = (int64_t)until;
	q->ended_from_ms = (int64_t)ended;
	q->status = (int)status;
	return 0;
}

static int read_state(struct store_record_query *q, struct str state, struct error *err)
{
	static const char *const names[] = {"open", "settled", "recovered"};

	if (state.p == NULL)
		return 0;
	for (int i = 0; i < 3 && q->state == 0; i++)
		if (str_is(state, names[i]))
			q->state = i + 1;
	return q->state > 0 ? 0
	                    : error_param(err, ERR_INVALID, "ledger_status",
	                              "ledger_status is open, settled or recovered.");
}

int generations_filters_read(struct generations_filters *f, struct str query, struct error *err)
{
	struct store_record_query *q = &f->query;
	struct str state = {NULL, 0};
	const struct {
		const char *name;
		struct str *to;
	} texts[] = {{"after", &q->after}, {"model", &q->model}, {"provider", &q->provider},
	        {"key", &q->key_hash}, {"session_id", &q->session}, {"container_id", &q->container},
	        {"q", &q->text}, {"api_type", &q->api}, {"user", &q->user},
	        {"guardrail_hit", &q->hit}, {"ledger_status", &state}};

	_Static_assert(sizeof(texts) / sizeof(*texts) <= sizeof(f->texts) / sizeof(*f->texts),
	        "room for every text");
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct buf *b = &f->texts[i];

		buf_init(b, FILTER_MAX);
		if (http_query_get(query, texts[i].name, b) && b->len > 0)
			*texts[i].to = (struct str){b->data, b->len};
	}
	if (q->hit.p != NULL && !str_is(q->hit, "any") && !str_is(q->hit, "flag") &&
	        !str_is(q->hit, "redact") && !str_is(q->hit, "block"))
		return error_param(err, ERR_INVALID, "guardrail_hit",
		        "guardrail_hit is any, flag, redact or block.");
	if (read_state(q, state, err) < 0)
		return -ERR_INVALID;
	return read_numbers(q, query, err);
}

void generations_filters_clear(struct generations_filters *f)
{
	for (size_t i = 0; i < sizeof(f->texts) / sizeof(*f->texts); i++)
		buf_free(&f->texts[i]);
}

/* Reads the filters for one of these. */
static void filtered(struct job *j, void (*find)(struct job *j, const struct store_record_query *q))
{
	struct generations_filters filters = {.query = {.limit = 0}};

	j->result = generations_filters_read(&filters, j->query, &j->err);
	if (j->result == 0)
		find(j, &filters.query);
	generations_filters_clear(&filters);
}

static void list_work(struct job *j)
{
	filtered(j, list_find);
}

static void totals_work(struct job *j)
{
	filtered(j, totals_find);
}

void generations_list(struct request *r)
{
	job_run(r, list_work);
}

void generations_totals(struct request *r)
{
	job_run(r, totals_work);
}
