/*
 * What was recorded of requests, over HTTP, with OpenRouter's field names:
 *
 *     GET /generation?id=                one
 *     GET|DELETE /generation/content     what was said in it
 *     GET /generations                   many, the newest first
 *     GET /generations/{id}/tool_runs    what ran in it
 *     GET /generations/totals            sums by day, model and key
 *
 * All of it is read on the pool, from the workspace of the asking key only.
 */
#include "gateway/internal.h"
#include "record/record.h"

#include <stdlib.h>

#define LIST_PRESET 50
#define LIST_MOST   1000
#define TOTALS_MOST 10000
#define FILTER_MAX  512
#define ANSWER_MAX  ((size_t)64 << 20)

struct job {
	struct gateway *g;
	const struct config_key *key;
	struct http_exchange *x; /* NULL: the client has gone */
	struct owner owner;
	bool under_v1;
	void (*work)(struct job *j);
	struct buf filters[8]; /* texts of the query */
	struct store_record_query query;
	char id[64];
	struct buf out; /* the answer */
	int result;
	struct error err;
};

/* ---- writing ---- */

static void write_money(struct json_writer *w, const char *key, struct money m)
{
	_cleanup_buf_ struct buf b = BUF_INIT(48);

	money_write(&b, m);
	jw_kraw(w, key, (struct str){b.data, b.len});
}

static void write_time(struct json_writer *w, const char *key, int64_t ms)
{
	char text[32];

	if (ms == 0) {
		jw_knull(w, key);
		return;
	}
	clock_iso8601(ms, text);
	jw_kcstr(w, key, text);
}

static const char *state_name(enum record_state s)
{
	return s == RECORD_OPEN ? "open" : s == RECORD_SETTLED ? "settled" : "recovered";
}

static void write_span(struct json_writer *w, const char *key, int64_t from, int64_t to)
{
	if (from == 0 || to == 0)
		jw_knull(w, key);
	else
		jw_ki64(w, key, to > from ? to - from : 0);
}

static void write_raw(struct json_writer *w, const char *key, const char *raw)
{
	if (raw != NULL)
		jw_kraw(w, key, str_of(raw));
	else
		jw_knull(w, key);
}

static void write_tokens(struct json_writer *w, const struct record_tokens *t)
{
	jw_ki64(w, "tokens_prompt", (int64_t)t->input);
	jw_ki64(w, "tokens_completion", (int64_t)t->output);
	jw_ki64(w, "native_tokens_prompt", (int64_t)t->input);
	jw_ki64(w, "native_tokens_completion", (int64_t)t->output);
	jw_ki64(w, "native_tokens_reasoning", (int64_t)t->reasoning);
	jw_ki64(w, "native_tokens_cached", (int64_t)t->cached);
	jw_ki64(w, "native_tokens_cache_write", (int64_t)t->cache_write);
	jw_kbool(w, "usage_is_estimated", t->estimated);
}

static void write_costs(struct json_writer *w, const struct record *r)
{
	write_money(w, "total_cost", r->total_cost);
	write_money(w, "usage", r->total_cost);
	if (r->priced)
		write_money(w, "upstream_inference_cost", money_add(r->input_cost, r->output_cost));
	else
		jw_knull(w, "upstream_inference_cost");
	write_money(w, "upstream_inference_input_cost", r->input_cost);
	write_money(w, "upstream_inference_output_cost", r->output_cost);
	write_money(w, "server_tool_cost", r->sandbox_cost);
	jw_ki64(w, "sandbox_ms", (int64_t)r->sandbox_ms);
}

/* The members of one that lists have too. */
static void write_row(struct json_writer *w, const struct record *r)
{
	jw_kcstr(w, "id", r->id);
	jw_kcstr(w, "ledger_status", state_name(r->state));
	jw_kcstr(w, "api_type", r->api);
	jw_kcstr(w, "model", r->model);
	jw_kcstr(w, "requested_model", r->asked);
	jw_kcstr(w, "provider_name", r->provider);
	write_time(w, "created_at", r->begin_ms);
	jw_ki64(w, "created_at_ms", r->begin_ms);
	write_span(w, "latency", r->begin_ms, r->first_ms);
	write_span(w, "generation_time", r->begin_ms, r->end_ms);
	jw_kbool(w, "streamed", r->streamed);
	jw_kbool(w, "cancelled", r->cancelled);
	jw_ki64(w, "status", r->status);
	jw_kcstr(w, "error", r->error);
	jw_kcstr(w, "finish_reason", r->finish);
	jw_kcstr(w, "native_finish_reason", r->native_finish);
	write_tokens(w, &r->tokens);
	write_costs(w, r);
	jw_kcstr(w, "session_id", r->session_id);
	jw_kcstr(w, "user", r->user);
	jw_kcstr(w, "request_id", r->request_id);
	jw_kcstr(w, "user_agent", r->user_agent);
	jw_kcstr(w, "container_id", r->container_id);
	jw_kcstr(w, "workspace_id", r->workspace);
	jw_kcstr(w, "api_key_hash", r->key_hash);
	jw_kcstr(w, "api_key_name", r->key_name);
	jw_kbool(w, "content_stored", r->store_content);
	write_raw(w, "metadata", r->metadata);
	write_raw(w, "trace", r->trace);
}

static void write_attempt(struct json_writer *w, const struct record_attempt *a)
{
	jw_object(w);
	jw_kcstr(w, "provider_name", a->provider);
	jw_kcstr(w, "model", a->model);
	jw_ki64(w, "status", a->status);
	jw_kcstr(w, "error", a->error);
	jw_ki64(w, "started_at_ms", a->begin_ms);
	write_span(w, "latency", a->begin_ms, a->first_ms);
	write_span(w, "generation_time", a->begin_ms, a->end_ms);
	write_tokens(w, &a->tokens);
	jw_kcstr(w, "finish_reason", a->finish);
	jw_end(w);
}

static void write_hit(struct json_writer *w, const struct record_hit *h)
{
	jw_object(w);
	jw_kcstr(w, "guardrail", h->guardrail);
	jw_kcstr(w, "rule", h->rule);
	jw_kcstr(w, "pattern", h->pattern);
	jw_kcstr(w, "action", h->action);
	jw_kcstr(w, "matched", h->matched);
	jw_kbool(w, "false_positive", h->false_positive);
	jw_end(w);
}

static void write_command(struct json_writer *w, const struct record_command *c)
{
	jw_object(w);
	jw_kcstr(w, "command", c->command);
	jw_kcstr(w, "stdout", c->out);
	jw_kcstr(w, "stderr", c->err);
	jw_kbool(w, "stdout_truncated", c->out_truncated);
	jw_kbool(w, "stderr_truncated", c->err_truncated);
	jw_key(w, "outcome");
	jw_object(w);
	jw_kcstr(w, "type", c->timed_out ? "timeout" : "exit");
	if (!c->timed_out)
		jw_ki64(w, "exit_code", c->exit_code);
	if (c->signal != NULL)
		jw_kcstr(w, "signal", c->signal);
	if (c->reason != NULL)
		jw_kcstr(w, "reason", c->reason);
	jw_end(w);
	jw_ki64(w, "started_at_ms", c->begin_ms);
	write_span(w, "duration_ms", c->begin_ms, c->end_ms);
	jw_end(w);
}

static void write_run(struct json_writer *w, const struct record_run *run)
{
	jw_object(w);
	jw_kcstr(w, "call_id", run->call_id);
	jw_kcstr(w, "tool", run->tool);
	jw_kcstr(w, "container_id", run->container_id);
	jw_kcstr(w, "status", run->status);
	jw_kcstr(w, "error", run->error);
	jw_kbool(w, "started_container", run->started_container);
	jw_ki64(w, "started_at_ms", run->begin_ms);
	write_span(w, "duration_ms", run->begin_ms, run->end_ms);
	jw_key(w, "network");
	jw_object(w);
	jw_ki64(w, "allowed", (int64_t)run->network_allowed);
	jw_ki64(w, "denied", (int64_t)run->network_denied);
	jw_end(w);
	jw_key(w, "commands");
	jw_array(w);
	for (size_t i = 0; i < run->n_commands; i++)
		write_command(w, &run->commands[i]);
	jw_end(w);
	jw_end(w);
}

/* ---- what the pool does ---- */

static struct record *read_one(struct job *j)
{
	struct store_scope scope = row_scope(j->key);
	struct record *r = NULL;

	j->result = store_record_get(j->g->reader, &scope, str_of(j->id), &r, &j->err);
	if (j->result == -ERR_NOT_FOUND || j->result == -ERR_INVALID)
		j->result = error_set(
		        &j->err, ERR_NOT_FOUND, "There is no generation of the id '%s'.", j->id);
	return j->result < 0 ? NULL : r;
}

static void get_work(struct job *j)
{
	struct record *r = read_one(j);
	struct json_writer w;

	if (r == NULL)
		return;
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_key(&w, "data");
	jw_object(&w);
	write_row(&w, r);
	jw_kcstr(&w, "traceparent", r->traceparent);
	jw_ki64(&w, "num_tool_runs", (int64_t)r->n_runs);
	jw_key(&w, "provider_responses");
	jw_array(&w);
	for (size_t i = 0; i < r->n_attempts; i++)
		write_attempt(&w, &r->attempts[i]);
	jw_end(&w);
	jw_key(&w, "guardrail_hits");
	jw_array(&w);
	for (size_t i = 0; i < r->n_hits; i++)
		write_hit(&w, &r->hits[i]);
	jw_end(&w);
	jw_end(&w);
	jw_end(&w);
	record_free(r);
}

static void content_work(struct job *j)
{
	struct record *r = read_one(j);
	struct json_writer w;

	if (r == NULL)
		return;
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_key(&w, "data");
	jw_object(&w);
	write_raw(&w, "input", r->request);
	write_raw(&w, "output", r->answer);
	jw_kcstr(&w, "error", r->error);
	jw_end(&w);
	jw_end(&w);
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
	jw_key(&w, "data");
	jw_array(&w);
	for (size_t i = 0; i < r->n_runs; i++)
		write_run(&w, &r->runs[i]);
	jw_end(&w);
	jw_end(&w);
	record_free(r);
}

static void forget_work(struct job *j)
{
	struct store_scope scope = row_scope(j->key);
	struct json_writer w;

	j->result = store_record_forget(j->g->store, &scope, str_of(j->id), &j->err);
	if (j->result == -ERR_NOT_FOUND || j->result == -ERR_INVALID)
		j->result = error_set(
		        &j->err, ERR_NOT_FOUND, "There is no generation of the id '%s'.", j->id);
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_kcstr(&w, "id", j->id);
	jw_kbool(&w, "deleted", true);
	jw_end(&w);
}

static void list_work(struct job *j)
{
	struct store_scope scope = row_scope(j->key);
	struct store_record_list list = {0};
	struct json_writer w;

	j->result = store_record_list(j->g->reader, &scope, &j->query, &list, &j->err);
	if (j->result < 0)
		return;
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_kcstr(&w, "object", "list");
	jw_key(&w, "data");
	jw_array(&w);
	for (size_t i = 0; i < list.n; i++) {
		jw_object(&w);
		write_row(&w, list.rows[i]);
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
	write_money(w, "total_cost", (struct money){t->total_cost});
	write_money(w, "server_tool_cost", (struct money){t->sandbox_cost});
	jw_ki64(w, "sandbox_ms", (int64_t)t->sandbox_ms);
	jw_ki64(w, "tokens_prompt", (int64_t)t->input);
	jw_ki64(w, "tokens_completion", (int64_t)t->output);
	jw_end(w);
}

/* GET /generations/totals: sums by day, model and key, which the page's charts show. */
static void totals_work(struct job *j)
{
	struct store_scope scope = row_scope(j->key);
	const struct store_record_query *q = &j->query;
	struct store_record_total *totals = NULL;
	struct json_writer w;
	size_t n = 0;

	j->result = store_record_totals(j->g->reader, &scope, q->from_ms,
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

/* ---- asking and answering ---- */

static void on_gone(void *self, enum http_gone why)
{
	((struct job *)self)->x = NULL;
}

static struct job *job_new(struct request *r, void (*work)(struct job *j))
{
	struct job *j = mem_alloc(sizeof(*j));

	*j = (struct job){.g = r->g, .key = r->key, .x = r->x, .under_v1 = r->under_v1};
	j->work = work;
	j->owner = (struct owner){NULL, on_gone, j};
	buf_init(&j->out, ANSWER_MAX);
	for (size_t i = 0; i < sizeof(j->filters) / sizeof(*j->filters); i++)
		buf_init(&j->filters[i], FILTER_MAX);
	return j;
}

static void job_free(struct job *j)
{
	for (size_t i = 0; i < sizeof(j->filters) / sizeof(*j->filters); i++)
		buf_free(&j->filters[i]);
	buf_free(&j->out);
	free(j);
}

static void job_refuse(struct job *j, const struct error *e)
{
	respond_error(j->x, j->under_v1, e);
	job_free(j);
}

static void job_work(void *arg)
{
	struct job *j = arg;

	j->work(j);
	if (j->result == 0 && buf_error(&j->out) < 0)
		j->result = error_set(&j->err, ERR_TOO_LARGE, "The answer would be too large.");
}

static void job_done(void *arg)
{
	struct job *j = arg;

	if (j->x != NULL) {
		http_exchange_set_data(j->x, NULL);
		if (j->result < 0)
			respond_error(j->x, j->under_v1, &j->err);
		else
			respond_json(j->x, 200, &j->out);
	}
	job_free(j);
}

static void job_go(struct job *j)
{
	struct error e;

	http_exchange_set_data(j->x, &j->owner);
	if (pool_run(j->g->pool, job_work, job_done, j))
		return;
	http_exchange_set_data(j->x, NULL);
	error_set(&e, ERR_UNAVAILABLE, "The server has too much to do.");
	e.retry_after_ms = 1000;
	job_refuse(j, &e);
}

static void by_query_id(struct request *r, void (*work)(struct job *j))
{
	_cleanup_buf_ struct buf b = BUF_INIT(sizeof(((struct job *)NULL)->id));
	struct job *j = job_new(r, work);
	struct error e;

	if (!http_query_get(http_request_query(r->x), "id", &b) || b.len == 0) {
		error_param(&e, ERR_INVALID, "id", "The query names no generation: ?id=gen-….");
		job_refuse(j, &e);
		return;
	}
	str_copy(j->id, sizeof(j->id), (struct str){b.data, b.len});
	job_go(j);
}

void generations_get(struct request *r)
{
	by_query_id(r, get_work);
}

void generations_content(struct request *r)
{
	by_query_id(r, content_work);
}

void generations_forget(struct request *r)
{
	by_query_id(r, forget_work);
}

void generations_runs(struct request *r)
{
	struct job *j = job_new(r, runs_work);

	str_copy(j->id, sizeof(j->id), r->params[0]);
	job_go(j);
}

static bool number_of(struct str query, const char *name, uint64_t most, uint64_t *ret)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	if (!http_query_get(query, name, &b))
		return true;
	return str_to_u64((struct str){b.data, b.len}, ret) && *ret <= most;
}

static int read_filters(struct job *j, struct str query, struct error *err)
{
	struct store_record_query *q = &j->query;
	const struct {
		const char *name;
		struct str *to;
	} texts[] = {{"after", &q->after}, {"model", &q->model}, {"provider", &q->provider},
	        {"key", &q->key_hash}, {"session_id", &q->session}, {"container_id", &q->container},
	        {"q", &q->text}};
	uint64_t limit = LIST_PRESET, from = 0, until = 0, status = 0;

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct buf *b = &j->filters[i];

		if (http_query_get(query, texts[i].name, b) && b->len > 0)
			*texts[i].to = (struct str){b->data, b->len};
	}
	if (!number_of(query, "limit", LIST_MOST, &limit) || limit < 1)
		return error_param(err, ERR_INVALID, "limit",
		        "limit must be a whole number from 1 to %d.", LIST_MOST);
	if (!number_of(query, "from_ms", INT64_MAX, &from))
		return error_param(err, ERR_INVALID, "from_ms",
		        "from_ms is a time in milliseconds since 1970.");
	if (!number_of(query, "until_ms", INT64_MAX, &until))
		return error_param(err, ERR_INVALID, "until_ms",
		        "until_ms is a time in milliseconds since 1970.");
	if (!number_of(query, "status", 599, &status))
		return error_param(err, ERR_INVALID, "status",
		        "status is an HTTP status, or its first digit.");
	q->limit = (uint32_t)limit;
	q->from_ms = (int64_t)from;
	q->until_ms = (int64_t)until;
	q->status = (int)status;
	return 0;
}

void generations_list(struct request *r)
{
	struct job *j = job_new(r, list_work);
	struct error e;

	if (read_filters(j, http_request_query(r->x), &e) < 0)
		job_refuse(j, &e);
	else
		job_go(j);
}

void generations_totals(struct request *r)
{
	struct job *j = job_new(r, totals_work);
	struct error e;

	if (read_filters(j, http_request_query(r->x), &e) < 0)
		job_refuse(j, &e);
	else
		job_go(j);
}
