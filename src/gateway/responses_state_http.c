/*
 * GET and DELETE /responses/{id}, POST …/cancel and GET …/input_items. Rows are read on the pool,
 * where lists are made too; a large answer goes out as the client takes it.
 *
 * The row of a background response that runs says so until its end. The gateway that its id names
 * knows better: where no such turn runs there, and the row still says so when it is read once more,
 * that turn has died with its process, and the row becomes that of a failed response. Cancelling is
 * asking that gateway; the answer is the row once it has come to its end.
 * So is removing one that runs: nobody could read what it came to, or end it, any more.
 *
 * Events are stored when a response is over; until then its gateway has them (event_log.h).
 */
#include "gateway/internal.h"

#include "api/responses_state.h"
#include "base/id.h"
#include "gateway/event_log.h"
#include "gateway/turn_run.h"

#include <stdlib.h>

#define LIMIT_DEFAULT 20
#define LIMIT_MAX     100
#define ITEM_ID_MAX   256
#define TREE_MAX      ((size_t)128 << 20)
#define PIECE         65536
#define CANCEL_TRIES  250 /* of 20 ms: until a cancelled turn has come to its end */

struct job {
	struct gateway *g;
	const struct config_key *key;
	struct http_exchange *x; /* NULL: the client has gone */
	struct owner owner;
	bool under_v1;
	char id[STORE_ID_MAX + 1];
	bool running; /* the row says that it runs */
	bool cancel;  /* it is to be cancelled, or to have ended before */
	bool remove;  /* it is to be removed; if it runs in the background, cancelled before */
	bool events;  /* they are asked for, from this number on: */
	uint64_t first;
	bool again; /* the row was read after no turn was found */
	unsigned tries;
	struct event *timer; /* NULL until needed */
	/* The list: */
	uint64_t limit;
	bool ascending;
	char after[ITEM_ID_MAX];
	/* The answer: */
	bool working; /* the pool has it */
	char *text;
	size_t len, sent;
	struct error err;
	int r;
};

static void job_free(struct job *j)
{
	if (j->x != NULL)
		http_exchange_set_data(j->x, NULL);
	if (j->timer != NULL)
		event_free(j->timer);
	free(j->text);
	free(j);
}

/* ---- answering ---- */

static void send_more(struct job *j)
{
	while (j->sent < j->len && !http_above_high_water(j->x)) {
		size_t n = j->len - j->sent < PIECE ? j->len - j->sent : PIECE;

		http_write(j->x, (struct str){j->text + j->sent, n});
		j->sent += n;
	}
	if (j->sent == j->len) {
		http_finish(j->x);
		job_free(j);
	}
}

static void on_drain(void *self)
{
	struct job *j = self;

	if (!j->working)
		send_more(j);
}

static void on_gone(void *self, enum http_gone why)
{
	struct job *j = self;

	j->x = NULL;
	if (!j->working)
		job_free(j);
}

static void done(void *arg)
{
	struct job *j = arg;

	j->working = false;
	if (j->x == NULL) {
		job_free(j);
	} else if (j->r < 0) {
		struct http_exchange *x = j->x;
		struct error e = j->err;
		bool under_v1 = j->under_v1;

		if (e.code == ERR_IO)
			log_text(LOG_ERROR, "store_failed", "%s", e.text);
		job_free(j);
		respond_error(x, under_v1, &e);
	} else {
		http_respond_start_length(j->x, 200,
		        j->events ? "text/event-stream; charset=utf-8" : "application/json",
		        j->len);
		send_more(j);
	}
}

static struct job *job_new(struct request *r)
{
	struct job *j = mem_alloc(sizeof(*j));

	*j = (struct job){.g = r->g, .key = r->key, .x = r->x, .under_v1 = r->under_v1};
	j->owner = (struct owner){on_drain, on_gone, j};
	j->limit = LIMIT_DEFAULT;
	if (r->params[0].n <= STORE_ID_MAX)
		str_copy(j->id, sizeof(j->id), r->params[0]);
	return j;
}

static void job_start(struct job *j, pool_fn work, pool_fn then)
{
	struct http_exchange *x = j->x;
	bool under_v1 = j->under_v1;
	struct error e;

	http_exchange_set_data(x, &j->owner);
	j->working = true;
	if (pool_run(j->g->pool, work, then, j))
		return;
	job_free(j);
	error_set(&e, ERR_UNAVAILABLE, "The server has too much to do.");
	e.retry_after_ms = 1000;
	respond_error(x, under_v1, &e);
}

/* Says which response is not there. */
static void explain(struct job *j)
{
	if (j->r == -ERR_NOT_FOUND || j->r == -ERR_INVALID)
		j->r = error_param(&j->err, ERR_NOT_FOUND, "id",
		        "Response with id '%s' not found. Responses are kept for a time only, and "
		        "not at all with store: false.",
		        j->id);
}

/* ---- one response ---- */

static void get_work(void *arg)
{
	struct job *j = arg;
	struct store_scope scope = row_scope(j->key);
	struct store_response_text t;

	j->r = store_response_get(
	        j->g->reader, &scope, str_of(j->id), clock_wall_ms(), &t, &j->err);
	explain(j);
	if (j->r < 0)
		return;
	j->text = t.object;
	j->len = t.len;
	j->running = t.running;
}

/* By what the gateway of a response is found. */
static struct str part(const struct job *j)
{
	return str_of(j->id + (str_starts(str_of(j->id), "resp_") ? strlen("resp_") : 0));
}

/* Members stand in the order in which they are written, these before all that a client names. */
static char *put_member(char *text, size_t *len, const char *old, const char *new)
{
	char *at = strstr(text, old);
	struct buf out = BUF_INIT(*len + strlen(new));

	if (at == NULL)
		return text;
	buf_append(&out, text, (size_t)(at - text));
	buf_puts(&out, new);
	buf_puts(&out, at + strlen(old));
	free(text);
	return buf_steal(&out, len);
}

static void lose_work(void *arg)
{
	struct job *j = arg;
	struct store_scope scope = row_scope(j->key);
	struct store_response r = {.id = str_of(j->id), .input = STR("[]")};
	struct responses_scan scan;

	j->text =
	        put_member(j->text, &j->len, "\"status\":\"in_progress\"", "\"status\":\"failed\"");
	j->text = put_member(j->text, &j->len, "\"error\":null",
	        "\"error\":{\"type\":\"server_error\",\"code\":\"server_error\",\"message\":\"The "
	        "server "
	        "stopped while it made this response.\",\"param\":null}");
	r.object = (struct str){j->text, j->len};
	r.created_ms = clock_wall_ms();
	r.expires_ms = r.created_ms + (int64_t)j->g->config->limits.responses_kept_ms;
	if (!responses_state_scan(r.object, "output", &scan))
		return;
	r.output_at = (size_t)(scan.list.p - j->text);
	r.output_len = scan.list.n;
	responses_scan_clear(&scan);
	if (store_response_put(j->g->store, &scope, &r,
	            j->g->config->limits.workspace_responses_bytes, &j->err) < 0)
		log_text(LOG_ERROR, "store_failed", "%s", j->err.text);
}

static void state_done(void *arg);
static void delete_work(void *arg);
static void events_work(void *arg);
static void events_done(void *arg);

/* What is to be removed can be: the row will not change any more. */
static void finish(struct job *j)
{
	if (!j->remove || j->r < 0) {
		done(j);
	} else if (!pool_run(j->g->pool, delete_work, done, j)) {
		j->r = error_set(&j->err, ERR_UNAVAILABLE, "The server has too much to do.");
		done(j);
	}
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct job *j = arg;

	free(j->text);
	j->text = NULL;
	if (!pool_run(j->g->pool, j->events ? events_work : get_work,
	            j->events ? events_done : state_done, j)) {
		j->r = error_set(&j->err, ERR_UNAVAILABLE, "The server has too much to do.");
		done(j);
	}
}

/* The row is about to change: it is read again soon. The job stays the pool's meanwhile. */
static void look_again(struct job *j)
{
	const struct timeval soon = {0, 20000};

	if (j->timer == NULL)
		j->timer = evtimer_new(j->g->base, on_timer, j);
	if (j->timer == NULL || j->tries++ == CANCEL_TRIES) {
		finish(j);
		return;
	}
	evtimer_add(j->timer, &soon);
}

static void no_background(struct job *j)
{
	j->r = error_param(&j->err, ERR_INVALID, "id",
	        "Only a response that was made with background: true can be cancelled; the client "
	        "of another closes its connection.");
}

/* Here, where the turn is if it runs. */
static void look_for_turn(struct job *j)
{
	struct turn_run *t = responses_state_turn_find(j->g, j->key, j->id);
	struct turn_event ev = {.type = TURN_CANCEL};

	if (t == NULL && !j->again) {
		j->again = true;
		look_again(j);
	} else if (t == NULL && !j->remove) {
		if (!pool_run(j->g->pool, lose_work, done, j))
			done(j);
	} else if (j->cancel && !t->request.background) {
		no_background(j);
		done(j);
	} else if (t != NULL && (j->cancel || (j->remove && t->request.background))) {
		t->state.canceled = true;
		if (j->tries == 0)
			turn_run_feed(t, &ev);
		look_again(j);
	} else {
		finish(j);
	}
}

static bool was_background(const struct job *j)
{
	const char *at = j->text != NULL ? strstr(j->text, "\"background\":") : NULL;

	return at != NULL && str_starts(str_of(at), "\"background\":true");
}

static void state_done(void *arg)
{
	struct job *j = arg;
	struct request r = {.g = j->g, .x = j->x, .key = j->key, .under_v1 = j->under_v1};

	if (j->x == NULL) {
		done(j);
	} else if (j->r < 0 && j->cancel && responses_state_turn_find(j->g, j->key, j->id)) {
		no_background(j); /* it runs, and has no row yet */
		done(j);
	} else if (j->r < 0 && j->cancel && !j->again &&
	           forward_to_owner(&r, STR("response"), part(j))) {
		j->x = NULL; /* the forward's now */
		job_free(j);
	} else if (j->r < 0 || !j->running) {
		if (j->r == 0 && j->cancel && !was_background(j))
			no_background(j);
		finish(j);
	} else if (!j->again && j->tries == 0 && forward_to_owner(&r, STR("response"), part(j))) {
		j->x = NULL;
		job_free(j);
	} else {
		look_for_turn(j);
	}
}

/* ---- the events of one ---- */

static void events_work(void *arg)
{
	struct job *j = arg;

	j->r = event_log_load(j->g, j->key, j->id, j->first, &j->text, &j->len, &j->err);
	if (j->r == -ERR_NOT_FOUND)
		explain(j);
}

static void no_events(struct job *j)
{
	j->r = error_param(&j->err, ERR_INVALID, "stream",
	        "This response cannot be streamed because it was not created with background=true "
	        "and stream=true, or its server stopped: leave 'stream' out to get it.");
	str_copy(j->err.type, sizeof(j->err.type), STR("invalid_request_error"));
}

/* They are stored, or its gateway has them, or they have just been stored, or there are none. */
static void events_done(void *arg)
{
	struct job *j = arg;
	struct request r = {.g = j->g, .x = j->x, .key = j->key, .under_v1 = j->under_v1};
	struct event_log *log;

	if (j->x == NULL || j->r != -ERR_UNSUPPORTED) {
		done(j);
		return;
	}
	if (!j->again && forward_to_owner(&r, STR("response"), part(j))) {
		j->x = NULL;
		job_free(j);
		return;
	}
	log = event_log_find(j->g, j->key, j->id);
	if (log != NULL) {
		http_exchange_set_data(j->x, NULL);
		j->r = event_log_read(log, j->x, j->first, &j->err);
		if (j->r == 0) {
			j->x = NULL;
			job_free(j);
			return;
		}
		done(j);
	} else if (!j->again) {
		j->again = true;
		look_again(j);
	} else {
		no_events(j);
		done(j);
	}
}

static bool query_is_true(struct str query, const char *name)
{
	_cleanup_buf_ struct buf v = BUF_INIT(16);

	return http_query_get(query, name, &v) && (str_is((struct str){v.data, v.len}, "true") ||
	                                                  str_is((struct str){v.data, v.len}, "1"));
}

/* The number of the first event that is asked for. */
static int read_first(struct str query, uint64_t *ret, struct error *err)
{
	_cleanup_buf_ struct buf v = BUF_INIT(64);

	*ret = 0;
	if (!http_query_get(query, "starting_after", &v))
		return 0;
	if (!str_to_u64((struct str){v.data, v.len}, ret) || *ret > INT64_MAX)
		return error_param(err, ERR_INVALID, "starting_after",
		        "starting_after must be the sequence_number of an event.");
	(*ret)++;
	return 0;
}

void responses_state_http_get(struct request *r)
{
	struct str query = http_request_query(r->x);
	struct error e;
	uint64_t first;
	struct job *j;

	if (!query_is_true(query, "stream")) {
		job_start(job_new(r), get_work, state_done);
		return;
	}
	if (read_first(query, &first, &e) < 0) {
		respond_error(r->x, r->under_v1, &e);
		return;
	}
	j = job_new(r);
	j->events = true;
	j->first = first;
	job_start(j, events_work, events_done);
}

void responses_state_http_cancel(struct request *r)
{
	struct job *j = job_new(r);

	j->cancel = true;
	job_start(j, get_work, state_done);
}

static void delete_work(void *arg)
{
	struct job *j = arg;
	struct store_scope scope = row_scope(j->key);
	struct buf out = BUF_INIT(4096);
	struct json_writer w;

	j->r = store_response_delete(j->g->store, &scope, str_of(j->id), clock_wall_ms(), &j->err);
	explain(j);
	if (j->r < 0)
		return;
	free(j->text);
	jw_init(&w, &out);
	jw_object(&w);
	jw_kcstr(&w, "id", j->id);
	jw_kcstr(&w, "object", "response");
	jw_kbool(&w, "deleted", true);
	jw_end(&w);
	j->text = buf_steal(&out, &j->len);
}

void responses_state_http_delete(struct request *r)
{
	struct job *j = job_new(r);

	j->remove = true;
	job_start(j, get_work, state_done);
}

/* ---- what it was asked ---- */

struct entry {
	const struct json *item; /* NULL: a user's message, all of it in text */
	const struct json *text;
	char id[48]; /* for one that has none */
};
struct items {
	struct entry *e;
	size_t n, cap;
};

static void add(struct items *l, const char *response, const struct json *item, size_t index)
{
	char number[24], hex[65];
	uint8_t hash[32];
	struct entry *e;

	mem_grow(&l->e, &l->cap, l->n, sizeof(*l->e));
	e = &l->e[l->n++];
	e->item = json_is(item, JSON_OBJECT) ? item : NULL;
	e->text = item;
	str_format(number, sizeof(number), "%zu", index);
	const struct str parts[] = {str_of(response), str_of(number)};

	id_sha256_parts(parts, 2, hash);
	id_hex(hash, sizeof(hash), hex);
	str_format(e->id, sizeof(e->id), "%s%.24s",
	        e->item != NULL ? responses_state_prefix(e->item) : "msg_", hex);
}

/* Adds the elements of one text of a chain; the tree is *doc's. */
static int add_text(struct items *l, const struct store_chain_link *link, struct str text,
        struct json_doc **doc, struct error *err)
{
	const struct json *root;
	size_t i = 0;
	int r = json_parse(text, TREE_MAX, doc, err);

	if (r < 0)
		return r;
	root = json_root(*doc);
	if (json_is(root, JSON_STRING))
		add(l, link->id, root, 0);
	for (const struct json *v = json_first(root); v; v = json_next(v))
		add(l, link->id, v, i++);
	return 0;
}

static struct str entry_id(const struct entry *e)
{
	struct str id = json_str(json_get(e->item, "id"));

	return id.p != NULL ? id : str_of(e->id);
}

static void write_entry(struct json_writer *w, const struct entry *e)
{
	if (e->item != NULL) {
		responses_state_write_item(w, e->item, e->id);
		return;
	}
	jw_object(w);
	jw_kcstr(w, "id", e->id);
	jw_kcstr(w, "type", "message");
	jw_kcstr(w, "status", "completed");
	jw_kcstr(w, "role", "user");
	jw_key(w, "content");
	jw_array(w);
	jw_object(w);
	jw_kcstr(w, "type", "input_text");
	jw_kraw(w, "text", json_raw(e->text));
	jw_end(w);
	jw_end(w);
	jw_end(w);
}

/* Entry number i in the order that was asked for. */
static const struct entry *entry_at(const struct job *j, const struct items *l, size_t i)
{
	return &l->e[j->ascending ? i : l->n - 1 - i];
}

static int write_list(struct job *j, const struct items *l)
{
	struct buf out = BUF_INIT(j->g->config->limits.body_bytes * 2);
	struct json_writer w;
	size_t from = 0, to;

	while (j->after[0] != 0 && from < l->n && !str_is(entry_id(entry_at(j, l, from)), j->after))
		from++;
	if (j->after[0] != 0 && from++ == l->n)
		return error_param(&j->err, ERR_INVALID, "after",
		        "There is no item with the id given in 'after'.");
	to = l->n - from > j->limit ? from + (size_t)j->limit : l->n;
	jw_init(&w, &out);
	jw_object(&w);
	jw_kcstr(&w, "object", "list");
	jw_key(&w, "data");
	jw_array(&w);
	for (size_t i = from; i < to; i++)
		write_entry(&w, entry_at(j, l, i));
	jw_end(&w);
	if (from < to) {
		jw_kstr(&w, "first_id", entry_id(entry_at(j, l, from)));
		jw_kstr(&w, "last_id", entry_id(entry_at(j, l, to - 1)));
	} else {
		jw_knull(&w, "first_id");
		jw_knull(&w, "last_id");
	}
	jw_kbool(&w, "has_more", to < l->n);
	jw_end(&w);
	if (buf_error(&out) < 0) {
		buf_free(&out);
		return error_set(&j->err, ERR_TOO_LARGE, "The list is too large: use 'limit'.");
	}
	j->text = buf_steal(&out, &j->len);
	return 0;
}

/* All that the model was given: the chain before, and the request's own input. */
static int list(struct job *j, const struct store_chain *c)
{
	struct json_doc **docs = mem_array(2 * c->n, sizeof(*docs));
	struct items l = {0};
	int r = 0;

	for (size_t i = 0; i < c->n && r == 0; i++) {
		const struct store_chain_link *k = &c->links[i];

		r = add_text(&l, k, (struct str){k->input, k->input_len}, &docs[2 * i], &j->err);
		if (r == 0 && i + 1 < c->n)
			r = add_text(&l, k, (struct str){k->output, k->output_len},
			        &docs[2 * i + 1], &j->err);
	}
	if (r == 0)
		r = write_list(j, &l);
	for (size_t i = 0; i < 2 * c->n; i++)
		json_doc_free(docs[i]);
	free(docs);
	free(l.e);
	return r;
}

static void items_work(void *arg)
{
	struct job *j = arg;
	struct store_scope scope = row_scope(j->key);
	struct store_chain c;

	j->r = store_response_chain(j->g->reader, &scope, str_of(j->id), clock_wall_ms(),
	        j->g->config->limits.body_bytes, &c, &j->err);
	explain(j);
	if (j->r < 0)
		return;
	j->r = list(j, &c);
	store_chain_clear(&c);
}

static int read_query(struct job *j, struct str query, struct error *err)
{
	_cleanup_buf_ struct buf limit = BUF_INIT(64);
	_cleanup_buf_ struct buf order = BUF_INIT(64);
	_cleanup_buf_ struct buf after = BUF_INIT(ITEM_ID_MAX - 1);

	if (http_query_get(query, "limit", &limit) &&
	        (!str_to_u64((struct str){limit.data, limit.len}, &j->limit) || j->limit < 1 ||
	                j->limit > LIMIT_MAX))
		return error_param(err, ERR_INVALID, "limit", "limit must be 1 to %d.", LIMIT_MAX);
	if (http_query_get(query, "order", &order)) {
		struct str v = {order.data, order.len};

		if (!str_is(v, "asc") && !str_is(v, "desc"))
			return error_param(err, ERR_INVALID, "order", "order must be asc or desc.");
		j->ascending = str_is(v, "asc");
	}
	if (http_query_get(query, "after", &after))
		str_copy(j->after, sizeof(j->after), (struct str){after.data, after.len});
	return 0;
}

void responses_state_http_items(struct request *r)
{
	struct job *j = job_new(r);
	struct error e;

	if (read_query(j, http_request_query(r->x), &e) == 0) {
		job_start(j, items_work, done);
		return;
	}
	free(j);
	respond_error(r->x, r->under_v1, &e);
}
