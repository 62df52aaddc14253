/*
 * Stored responses in the life of a turn.
 *
 * Before: a body that names a response or an item is parsed on the pool, where the rows are read
 * and their texts put into the body; from there on it is a conversation that was sent whole.
 *
 * After: the last output of the turn waits while the pool writes the response object, as it will be
 * sent, and the row is durable. A response that cannot be kept says so: its `store` is false. What
 * is kept of a request is its own input, as it came, with referenced items in their places; what
 * was said before is in the rows before.
 *
 * The history of all turns together is bounded like bodies are: a body of 100 bytes may ask for 64
 * MiB of it.
 */
#include "gateway/responses_state_turn.h"

#include "base/id.h"
#include "gateway/turn_run.h"

#include <stdlib.h>

#define ITEM_ID_MAX 256

static bool is_responses(const struct turn_run *t)
{
	return t->api == &api_responses;
}

/* May its input go on from what is stored? */
static bool has_input(const struct turn_run *t)
{
	return is_responses(t) || t->api == &api_responses_compact;
}

void responses_state_turn_init(struct turn_run *t)
{
	t->state.allowed = request_may_keep(t->g, t->x);
	do
		id_make(t->who.id, sizeof(t->who.id), "gen-", 24);
	while (is_responses(t) && t->g->options->workers > 1 &&
	        !forward_is_ours(t->g, t->key, STR("response"), str_of(t->who.id + 4)));
}

/* ---- before ---- */

static bool close_summary(void *ctx, struct str text, struct buf *out)
{
	const struct turn_run *t = ctx;

	return seal_close_summary(t->g, str_of(t->key->account), text, out) == 0;
}

static bool open_summary(void *ctx, struct str sealed, struct buf *out)
{
	const struct turn_run *t = ctx;

	return seal_open_summary(t->g, str_of(t->key->account), sealed, out);
}

static void scan(struct turn_run *t)
{
	struct responses_state_turn *s = &t->state;
	struct str body = {t->in.body, t->in.body_len};

	if (!s->scanned && responses_state_scan(body, "input", &s->scan))
		s->input = s->scan.list;
	s->n_input = s->scan.elements != NULL ? s->scan.n : 1;
	s->scanned = true;
}

bool responses_state_turn_needs_pool(struct turn_run *t)
{
	if (!has_input(t))
		return false;
	scan(t);
	return responses_state_needs(&t->state.scan);
}

/* What is found is put into the body twice for a moment, and lives as long as the turn. */
static int charge(struct turn_run *t, size_t n, struct error *err)
{
	size_t most = t->g->config->limits.in_flight_bytes;

	t->state.charged += n;
	if (atomic_fetch_add(&t->g->history_bytes, n) + n <= most)
		return 0;
	error_set(err, ERR_UNAVAILABLE,
	        "Stored conversations take all the memory there is for them: try later.");
	err->retry_after_ms = 1000;
	return -ERR_UNAVAILABLE;
}

static int refuse_unkept(const struct turn_run *t, const char *param, struct error *err)
{
	error_param(err, ERR_INVALID, param,
	        "Nothing is stored here (%s), so there is nothing to go on from: send the items "
	        "themselves in 'input'.",
	        t->g->config->store_content && t->g->config->region == NULL
	                ? "the request says x-brig-store-content: false"
	                : "the server's operator has turned it off");
	str_copy(err->type, sizeof(err->type), STR("unsupported_parameter"));
	return -ERR_INVALID;
}

static int read_chain(struct turn_run *t, struct store_chain *ret, struct error *err)
{
	struct store_scope scope = row_scope(t->key);
	size_t most = t->g->config->limits.body_bytes;
	char id[ITEM_ID_MAX];
	int r = -ERR_NOT_FOUND;

	if (!t->state.allowed)
		return refuse_unkept(t, "previous_response_id", err);
	if (responses_state_text(t->state.scan.previous, id, sizeof(id)) && id[0] != 0 &&
	        str_copy(t->state.previous, sizeof(t->state.previous), str_of(id)))
		r = store_response_chain(
		        t->g->reader, &scope, str_of(id), clock_wall_ms(), most, ret, err);
	else
		str_copy(id, 65, t->state.scan.previous);
	if (r == -ERR_NOT_FOUND || r == -ERR_INVALID) {
		error_param(err, ERR_INVALID, "previous_response_id",
		        "Previous response with id '%.64s' not found.", id);
		str_copy(err->type, sizeof(err->type), STR("previous_response_not_found"));
		return -ERR_INVALID;
	}
	if (r == -ERR_TOO_LARGE)
		return error_param(err, ERR_INVALID, "previous_response_id",
		        "The conversation behind '%s' is larger than the %zu bytes that one "
		        "request may hold.",
		        id, most);
	if (r == 0 && ret->running)
		return error_param(err, ERR_INVALID, "previous_response_id",
		        "Response '%s' is still in progress.", id);
	return r < 0 ? r : charge(t, ret->bytes, err);
}

static int read_item(
        struct turn_run *t, const struct responses_element *e, struct str *ret, struct error *err)
{
	struct store_scope scope = row_scope(t->key);
	char id[ITEM_ID_MAX], param[64], *text;
	size_t len;
	int r = -ERR_NOT_FOUND;

	str_format(param, sizeof(param), "input[%zu].id", (size_t)(e - t->state.scan.elements));
	if (!t->state.allowed)
		return refuse_unkept(t, param, err);
	if (responses_state_text(e->id, id, sizeof(id)) && id[0] != 0)
		r = store_response_item(
		        t->g->reader, &scope, str_of(id), clock_wall_ms(), &text, &len, err);
	else
		id[0] = 0;
	if (r == -ERR_NOT_FOUND || r == -ERR_INVALID)
		return error_param(err, ERR_INVALID, param, "Item with id '%.64s' not found.", id);
	if (r < 0)
		return r;
	*ret = (struct str){text, len};
	return charge(t, len, err);
}

/* Texts of the items that are referenced, in order; malloc'ed, as the array is. */
static int read_items(struct turn_run *t, struct str *items, size_t *n, struct error *err)
{
	const struct responses_scan *s = &t->state.scan;
	int r = 0;

	for (size_t i = 0; i < s->n && r == 0; i++) {
		if (!responses_state_is_reference(&s->elements[i]))
			continue;
		items[*n] = (struct str){NULL, 0};
		r = read_item(t, &s->elements[i], &items[*n], err);
		(*n)++;
	}
	return r;
}

/* The new body takes the place of the old one. */
static int put_in(struct turn_run *t, const struct store_chain *chain, const struct str *items,
        struct error *err)
{
	struct responses_state_turn *s = &t->state;
	struct str body = {t->in.body, t->in.body_len};
	struct str *history = mem_array(2 * chain->n + 1, sizeof(*history));
	struct buf out = BUF_INIT(body.n + s->charged + 4096 + 64 * chain->n);
	struct responses_span own = {0, 0};
	int r;

	for (size_t i = 0; i < chain->n; i++) {
		const struct store_chain_link *l = &chain->links[i];

		history[2 * i] = (struct str){l->input, l->input_len};
		history[2 * i + 1] = (struct str){l->output, l->output_len};
	}
	r = responses_state_expand(body, &s->scan, history, 2 * chain->n, items, &out, &own);
	free(history);
	if (r < 0) {
		buf_free(&out);
		return error_set(err, ERR_NOMEM, "The server has no memory for this conversation.");
	}
	free(t->in.body);
	t->in.body = buf_steal(&out, &t->in.body_len);
	t->in.has_history = true;
	t->in.n_history = chain->n_items;
	s->input = (struct str){t->in.body + own.at, own.len};
	s->elements = true;
	return 0;
}

int responses_state_turn_expand(struct turn_run *t, struct error *err)
{
	struct responses_state_turn *s = &t->state;
	struct store_chain chain = {0};
	struct str *items = NULL;
	size_t n = 0;
	int r = 0;

	if (!has_input(t))
		return 0;
	scan(t);
	t->in.may_store = s->allowed;
	t->seal = (struct api_seal){close_summary, open_summary, t};
	t->in.seal = &t->seal;
	if (responses_state_needs(&s->scan)) {
		if (s->scan.previous.p != NULL)
			r = read_chain(t, &chain, err);
		items = mem_array(s->scan.n + 1, sizeof(*items));
		if (r == 0)
			r = read_items(t, items, &n, err);
		if (r == 0)
			r = put_in(t, &chain, items, err);
		for (size_t i = 0; i < n; i++)
			mem_free_ptr(&items[i].p);
		free(items);
		store_chain_clear(&chain);
	}
	responses_scan_clear(&s->scan);
	return r;
}

/* ---- after ---- */

/* Ids of the output's items, and where they stand in the object. */
static void find_items(const struct buf *object, const struct responses_scan *scan,
        struct store_response *r, struct store_response_item *items)
{
	for (size_t i = 0; i < scan->n; i++) {
		const struct responses_element *e = &scan->elements[i];

		if (e->id.n <= 2)
			continue;
		items[r->n_items++] = (struct store_response_item){
		        .id = {e->id.p + 1, e->id.n - 2}, /* of our own making: no escapes */
		        .at = (size_t)(e->raw.p - object->data),
		        .len = e->raw.n,
		};
	}
	r->items = items;
	r->output_at = (size_t)(scan->list.p - object->data);
	r->output_len = scan->list.n;
}

/* Whether it is kept; err is set where it should be and cannot. */
static bool put(struct turn_run *t, const struct buf *object, bool running, struct error *err)
{
	struct responses_state_turn *s = &t->state;
	struct store_scope scope = row_scope(t->key);
	struct str text = {object->data, object->len};
	struct store_response_item *items;
	struct responses_scan scan;
	struct store_response r = {.input = s->input, .n_input = s->n_input, .running = running};
	struct buf input = BUF_INIT(s->input.n + 2);
	char id[STORE_ID_MAX + 1];
	int rc;

	if (!responses_state_scan(text, "output", &scan)) {
		error_set(err, ERR_INTERNAL, "the response object is not JSON");
		return false;
	}
	str_format(id, sizeof(id), "resp_%s", t->who.id + 4);
	items = mem_array(scan.n + 1, sizeof(*items));
	find_items(object, &scan, &r, items);
	if (s->elements || s->input.p == NULL) {
		buf_putc(&input, '[');
		buf_append(&input, s->input.p, s->input.n);
		buf_putc(&input, ']');
		r.input = (struct str){input.data, input.len};
	}
	r.id = str_of(id);
	r.previous = s->previous[0] != 0 ? str_of(s->previous) : (struct str){NULL, 0};
	r.object = text;
	r.created_ms = clock_wall_ms();
	r.expires_ms = r.created_ms + (int64_t)t->g->config->limits.responses_kept_ms;
	rc = store_response_put(
	        t->g->store, &scope, &r, t->g->config->limits.workspace_responses_bytes, err);
	buf_free(&input);
	free(items);
	responses_scan_clear(&scan);
	return rc > 0;
}

static void keep_work(void *arg)
{
	struct turn_run *t = arg;
	struct responses_state_turn *s = &t->state;
	const struct turn_output *end = &s->end;
	struct buf object = BUF_INIT(t->g->config->limits.response_bytes);
	struct error e = {0};
	bool empty, refused;
	int r = t->request.api->object(t->stream, end, &s->totals, &object, &empty);

	/* What will be an HTTP error, and no response, is none. */
	refused = t->request.stream ? end->status == TURN_FAILED && !t->may_answer
	                            : empty && !t->request.background;
	if (r == 0 && !refused && s->input.n + object.len <= t->g->config->limits.response_bytes)
		s->kept = put(t, &object, false, &e);
	if (e.code != 0)
		log_text(LOG_ERROR, "store_failed", "%s", e.text);
	buf_free(&object);
}

static void keep_done(void *arg)
{
	struct turn_run *t = arg;

	t->storing = false;
	t->state.holds = false;
	t->request.store = t->state.kept;
	turn_run_emit_end(t, &t->state.end, &t->state.totals);
}

bool responses_state_turn_hold(struct turn_run *t, const struct turn_output *end)
{
	struct responses_state_turn *s = &t->state;

	if (!t->request.store || t->request.api->object == NULL)
		return false;
	/* What the server's own end cuts off in the background is found to be lost later. */
	if (end->status == TURN_CANCELED && !s->canceled) {
		t->request.store = false;
		return false;
	}
	s->end = *end;
	t->who.ended_s = clock_wall_s();
	turn_totals(t->turn, clock_mono_ms(), &s->totals);
	t->storing = s->holds = true;
	if (pool_run(t->g->pool, keep_work, keep_done, t))
		return true;
	t->storing = s->holds = false;
	t->request.store = false;
	return false;
}

/* ---- in the background ---- */

static void begin_work(void *arg)
{
	struct turn_run *t = arg;
	struct error e = {0};
	bool empty;
	int r = t->request.api->object(t->stream, NULL, NULL, &t->state.begun, &empty);

	if (r < 0 || !put(t, &t->state.begun, true, &e)) {
		if (e.code == 0)
			error_set(&e, ERR_INTERNAL, "a response could not be stored");
		t->job_error = error_copy(&e);
	}
}

static void begin_done(void *arg)
{
	struct turn_run *t = arg;
	struct responses_state_turn *s = &t->state;

	t->storing = t->building = false;
	if (t->job_error == NULL && t->x != NULL) {
		http_exchange_set_data(t->x, NULL);
		turn_run_answer_headers(t, 200);
		http_respond(
		        t->x, 200, "application/json", (struct str){s->begun.data, s->begun.len});
		t->x = NULL;
	}
	buf_free(&s->begun);
	turn_run_background(t, t->job_error);
}

void responses_state_turn_background(struct turn_run *t)
{
	struct error e;

	buf_init(&t->state.begun, t->g->config->limits.response_bytes);
	t->storing = t->building = true;
	if (pool_run(t->g->pool, begin_work, begin_done, t))
		return;
	t->storing = t->building = false;
	error_set(&e, ERR_UNAVAILABLE, "The server has too much to do.");
	e.retry_after_ms = 1000;
	turn_run_background(t, &e);
}

struct turn_run *responses_state_turn_find(
        struct gateway *g, const struct config_key *key, const char *id)
{
	for (struct turn_run *t = g->turns; t != NULL; t = t->next)
		if (is_responses(t) && !t->done && strncmp(id, "resp_", 5) == 0 &&
		        strcmp(t->who.id + 4, id + 5) == 0 &&
		        strcmp(t->key->account, key->account) == 0 &&
		        strcmp(t->key->workspace, key->workspace) == 0)
			return t;
	return NULL;
}

void responses_state_turn_free(struct turn_run *t)
{
	buf_free(&t->state.begun);
	responses_scan_clear(&t->state.scan);
	atomic_fetch_sub(&t->g->history_bytes, t->state.charged);
	t->state.charged = 0;
}
