/*
 * Destinations over HTTP, for admin keys (docs/broadcast.md; spec/openrouter.md 7.1): those that
 * came this way, and, to be read only, those of brig.yaml. Secrets go in and never come out.
 */
#include "gateway/broadcast.h"

#include "base/id.h"
#include "gateway/broadcast_call.h"
#include "gateway/job.h"

#include <stdlib.h>

#define TREE_MAX (16u << 20) /* memory that a body of a route's size may take as a tree */
#define TEXT_MAX (1u << 20)

/* ---- shapes ---- */

static void write_one(struct json_writer *w, const char *id, const struct trace_destination *d,
        struct str workspace, bool fixed, int64_t created_ms, int64_t updated_ms)
{
	jw_object(w);
	jw_kcstr(w, "id", id);
	trace_destination_write(w, d, TRACE_MASKED);
	jw_kstr(w, "workspace_id", workspace);
	jw_ktime(w, "created_at", created_ms);
	jw_ktime(w, "updated_at", updated_ms);
	jw_kbool(w, "read_only", fixed);
	jw_end(w);
}

static int parse_row(
        const struct store_destination *row, struct trace_destination **ret, struct error *err)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	int r = json_parse(str_of(row->body), TREE_MAX, &doc, err);

	if (r == 0)
		r = trace_destination_parse(json_root(doc), ret, err);
	/* It was good when it came: what does not read now is an older brig's, or a damaged file's.
	 */
	return r < 0 ? error_set(err, ERR_INTERNAL, "The destination %s cannot be read.", row->id)
	             : 0;
}

static int write_row(struct json_writer *w, const struct job *j,
        const struct store_destination *row, struct error *err)
{
	struct trace_destination *d = NULL;
	int r = parse_row(row, &d, err);

	if (r < 0)
		return r;
	write_one(w, row->id, d, j->scope.workspace, false, row->created_ms, row->updated_ms);
	trace_destination_free(d);
	return 0;
}

/* {"data": the destination} */
static int answer_row(struct job *j, const struct store_destination *row)
{
	struct json_writer w;
	int r;

	jw_init(&w, &j->out);
	jw_object(&w);
	jw_key(&w, "data");
	r = write_row(&w, j, row, &j->err);
	if (r < 0)
		return r;
	jw_end(&w);
	return jw_done(&w);
}

/* ---- whose ---- */

/* A workspace of the key's account; its own where none is named. The text is kept in `to`. */
static void take_workspace(struct job *j, struct buf *to)
{
	if (http_query_get(j->query, "workspace_id", to) && to->len > 0)
		j->scope.workspace = (struct str){to->data, to->len};
}

/* The place of a destination of brig.yaml that this workspace has; SIZE_MAX: it is none. */
static size_t fixed_of(const struct gateway *g, struct str workspace, struct str id)
{
	char is[STORE_ID_MAX + 1];

	for (size_t i = 0; i < g->config->n_broadcast; i++) {
		const char *whose = g->config->broadcast[i]->workspace;

		if (whose != NULL && !str_is(workspace, whose))
			continue;
		broadcast_fixed_id(g->config, i, is);
		if (str_is(id, is))
			return i;
	}
	return SIZE_MAX;
}

static int refuse_fixed(struct job *j)
{
	if (fixed_of(j->g, j->scope.workspace, j->params[0]) == SIZE_MAX)
		return 0;
	return error_set(&j->err, ERR_PERMISSION,
	        "This destination stands in the server's configuration, and is changed there.");
}

/* ---- list and get ---- */

static void write_fixed(struct json_writer *w, const struct job *j, size_t i)
{
	char id[STORE_ID_MAX + 1];
	int64_t since = broadcast_started_ms(j->g->broadcast);

	broadcast_fixed_id(j->g->config, i, id);
	write_one(w, id, j->g->config->broadcast[i], j->scope.workspace, true, since, since);
}

static uint64_t query_number(const struct job *j, const char *name, uint64_t preset)
{
	_cleanup_buf_ struct buf text = BUF_INIT(64);
	uint64_t v;

	if (!http_query_get(j->query, name, &text) ||
	        !str_to_u64((struct str){text.data, text.len}, &v))
		return preset;
	return v;
}

static int list_locked(struct job *j, const struct store_destination *rows, size_t n)
{
	const struct config *c = j->g->config;
	uint64_t offset = query_number(j, "offset", 0), limit = query_number(j, "limit", 100);
	uint64_t at = 0, total = 0;
	struct json_writer w;
	int r = 0;

	jw_init(&w, &j->out);
	jw_object(&w);
	jw_key(&w, "data");
	jw_array(&w);
	for (size_t i = 0; i < c->n_broadcast; i++) {
		const char *whose = c->broadcast[i]->workspace;

		if (whose != NULL && !str_is(j->scope.workspace, whose))
			continue;
		total++;
		if (at++ >= offset && at - offset <= limit)
			write_fixed(&w, j, i);
	}
	for (size_t i = 0; i < n && r == 0; i++, at++)
		if (at >= offset && at - offset < limit)
			r = write_row(&w, j, &rows[i], &j->err);
	if (r < 0)
		return r;
	jw_end(&w);
	jw_ki64(&w, "total_count", (int64_t)(total + n));
	jw_end(&w);
	return jw_done(&w);
}

static void list_work(struct job *j)
{
	_cleanup_buf_ struct buf workspace = BUF_INIT(1024);
	struct store_destination *rows = NULL;
	size_t n = 0;

	take_workspace(j, &workspace);
	j->result = store_destination_list(j->g->reader, &j->scope, &rows, &n, &j->err);
	if (j->result == 0)
		j->result = list_locked(j, rows, n);
	store_destinations_free(rows, n);
}

static int get_fixed(struct job *j, size_t i)
{
	struct json_writer w;

	jw_init(&w, &j->out);
	jw_object(&w);
	jw_key(&w, "data");
	write_fixed(&w, j, i);
	jw_end(&w);
	return jw_done(&w);
}

static void get_work(struct job *j)
{
	_cleanup_buf_ struct buf workspace = BUF_INIT(1024);
	struct store_destination row = {0};
	size_t fixed;

	take_workspace(j, &workspace);
	fixed = fixed_of(j->g, j->scope.workspace, j->params[0]);
	if (fixed != SIZE_MAX) {
		j->result = get_fixed(j, fixed);
		return;
	}
	j->result = store_destination_get(j->g->reader, &j->scope, j->params[0], &row, &j->err);
	if (j->result == 0)
		j->result = answer_row(j, &row);
	store_destination_clear(&row);
}

/* ---- create, patch, delete ---- */

static int read_body(struct job *j, struct json_doc **ret)
{
	int r = json_parse((struct str){j->body, j->body_len}, TREE_MAX, ret, &j->err);

	if (r == 0 && !json_is(json_root(*ret), JSON_OBJECT))
		r = error_set(&j->err, ERR_INVALID, "The body must be a JSON object.");
	return r;
}

/* The row's texts out of the destination. */
static int fill_row(
        struct store_destination *row, const struct trace_destination *d, struct error *err)
{
	_cleanup_buf_ struct buf text = BUF_INIT(TEXT_MAX);
	struct json_writer w;

	jw_init(&w, &text);
	jw_object(&w);
	trace_destination_write(&w, d, TRACE_PLAIN);
	jw_end(&w);
	if (jw_done(&w) < 0)
		return error_set(err, ERR_TOO_LARGE, "The destination is too large.");
	str_copy(row->type, sizeof(row->type), str_of(trace_type_name(d->type)));
	row->enabled = d->enabled;
	free(row->body);
	row->body = mem_strndup(text.data, text.len);
	mem_wipe(text.data, text.len);
	return 0;
}

static void create_work(struct job *j)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	struct store_destination row = {0};
	struct trace_destination *d = NULL;
	struct str workspace;
	int r = read_body(j, &doc);

	if (r == 0)
		r = trace_destination_parse(json_root(doc), &d, &j->err);
	if (r == 0) {
		workspace = json_str(json_get(json_root(doc), "workspace_id"));
		if (workspace.n > 0)
			j->scope.workspace = workspace;
		id_make(row.id, sizeof(row.id), "dest_", 24);
		row.created_ms = row.updated_ms = clock_wall_ms();
		r = fill_row(&row, d, &j->err);
	}
	if (r == 0)
		r = store_destination_create(j->g->store, &j->scope, &row, &j->err);
	if (r == 0)
		r = answer_row(j, &row);
	j->status = 201;
	j->result = r;
	trace_destination_free(d);
	store_destination_clear(&row);
}

static int patch_row(struct job *j, const struct json *patch, struct store_destination *row)
{
	struct trace_destination *old = NULL, *new = NULL;
	int64_t seen = row->updated_ms, now = clock_wall_ms();
	int r = parse_row(row, &old, &j->err);

	if (r == 0)
		r = trace_destination_patch(old, patch, &new, &j->err);
	if (r == 0)
		r = fill_row(row, new, &j->err);
	row->updated_ms = now > seen ? now : seen + 1;
	if (r == 0)
		r = store_destination_update(j->g->store, &j->scope, row, seen, &j->err);
	trace_destination_free(old);
	trace_destination_free(new);
	return r;
}

static void patch_work(struct job *j)
{
	_cleanup_buf_ struct buf workspace = BUF_INIT(1024);
	struct json_doc *doc _cleanup_json_ = NULL;
	struct store_destination row = {0};
	int r;

	take_workspace(j, &workspace);
	r = refuse_fixed(j);
	if (r == 0)
		r = read_body(j, &doc);
	if (r == 0)
		r = store_destination_get(j->g->store, &j->scope, j->params[0], &row, &j->err);
	if (r == 0)
		r = patch_row(j, json_root(doc), &row);
	if (r == 0)
		r = answer_row(j, &row);
	j->result = r;
	store_destination_clear(&row);
}

static void delete_work(struct job *j)
{
	_cleanup_buf_ struct buf workspace = BUF_INIT(1024);

	take_workspace(j, &workspace);
	j->result = refuse_fixed(j);
	if (j->result == 0)
		j->result = store_destination_delete(j->g->store, &j->scope, j->params[0], &j->err);
	buf_puts(&j->out, "{\"deleted\":true}");
}

void broadcast_http_list(struct request *r)
{
	job_run(r, list_work);
}

void broadcast_http_create(struct request *r)
{
	job_run(r, create_work);
}

void broadcast_http_get(struct request *r)
{
	job_run(r, get_work);
}

void broadcast_http_patch(struct request *r)
{
	job_run(r, patch_work);
}

void broadcast_http_delete(struct request *r)
{
	job_run(r, delete_work);
}

/* ---- the test call ---- */

/* The destination is read on the pool; then the call is made from the loop, and answered as it
 * ends. */
struct test {
	struct gateway *g;
	struct http_exchange *x; /* NULL: the client has gone */
	struct owner owner;
	bool under_v1;
	char *account, *workspace, *id;
	const struct trace_destination *d;
	struct trace_destination *own; /* d where it is not brig.yaml's */
	struct trace_request *request;
	struct broadcast_call *call;
	struct error err;
};

static void test_free(struct test *t)
{
	broadcast_call_cancel(t->call);
	trace_request_free(t->request);
	trace_destination_free(t->own);
	free(t->account);
	free(t->workspace);
	free(t->id);
	free(t);
}

static void test_gone(void *self, enum http_gone why)
{
	struct test *t = self;

	t->x = NULL;
	if (t->call != NULL)
		test_free(t);
}

static void test_work(void *arg)
{
	struct test *t = arg;
	const struct store_scope scope = {str_of(t->account), str_of(t->workspace)};
	struct store_destination row = {0};
	size_t fixed = fixed_of(t->g, scope.workspace, str_of(t->id));

	if (fixed != SIZE_MAX)
		t->d = t->g->config->broadcast[fixed];
	else if (store_destination_get(t->g->reader, &scope, str_of(t->id), &row, &t->err) == 0 &&
	         parse_row(&row, &t->own, &t->err) == 0)
		t->d = t->own;
	if (t->d != NULL)
		trace_request_test(t->d, clock_wall_ms(), &t->request, &t->err);
	store_destination_clear(&row);
}

static void test_respond(struct test *t, const struct broadcast_answer *a, const char *why)
{
	_cleanup_buf_ struct buf out = BUF_INIT(TEXT_MAX);
	bool passed = a != NULL && a->err == NULL && trace_test_passed(t->d, a->status);
	struct json_writer w;

	jw_init(&w, &out);
	jw_object(&w);
	jw_key(&w, "data");
	jw_object(&w);
	jw_kbool(&w, "success", passed);
	if (a != NULL && a->status > 0)
		jw_ki64(&w, "status", a->status);
	else
		jw_knull(&w, "status");
	jw_kcstr(&w, "error", passed ? NULL : why);
	jw_end(&w);
	jw_end(&w);
	http_exchange_set_data(t->x, NULL);
	respond_json(t->x, 200, &out);
}

static void test_answered(void *ctx, const struct broadcast_answer *a)
{
	struct test *t = ctx;
	struct trace_answer said;

	t->call = NULL;
	trace_answer_read(t->d, a->err != NULL ? 0 : a->status, a->retry_after, a->body,
	        clock_wall_ms(), &said);
	test_respond(t, a,
	        a->err != NULL      ? a->err->text
	        : said.text[0] != 0 ? said.text
	                            : "The destination refused the request.");
	test_free(t);
}

static void test_read(void *arg)
{
	struct test *t = arg;
	struct error err;

	if (t->x == NULL) {
		test_free(t);
		return;
	}
	if (t->err.code != 0) {
		http_exchange_set_data(t->x, NULL);
		respond_error(t->x, t->under_v1, &t->err);
		test_free(t);
		return;
	}
	t->call =
	        broadcast_call_start(t->g->base, broadcast_client(t->g->broadcast, t->own == NULL),
	                t->request, test_answered, t, &err);
	if (t->call != NULL)
		return;
	test_respond(t, NULL, err.text);
	test_free(t);
}

void broadcast_http_test(struct request *r)
{
	struct store_scope scope = row_scope(r->key);
	_cleanup_buf_ struct buf workspace = BUF_INIT(1024);
	struct test *t = mem_alloc(sizeof(*t));
	struct error e;

	if (http_query_get(http_request_query(r->x), "workspace_id", &workspace) &&
	        workspace.len > 0)
		scope.workspace = (struct str){workspace.data, workspace.len};
	*t = (struct test){.g = r->g, .x = r->x, .under_v1 = r->under_v1};
	t->owner = (struct owner){NULL, test_gone, t};
	t->account = mem_strndup(scope.account.p, scope.account.n);
	t->workspace = mem_strndup(scope.workspace.p, scope.workspace.n);
	t->id = mem_strndup(r->params[0].p, r->params[0].n);
	http_exchange_set_data(r->x, &t->owner);
	if (pool_run(r->g->pool, test_work, test_read, t))
		return;
	http_exchange_set_data(r->x, NULL);
	gateway_busy(&e);
	respond_error(r->x, r->under_v1, &e);
	test_free(t);
}
