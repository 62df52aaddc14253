/*
 * Stored responses in the life of a turn.
 *
 * Before: a body that names a response or an item is parsed on the pool, where the rows are read
 * and their texts put into the body; from there on it is a conversation that was sent whole.
 *
 * After: the last output of the turn waits while the pool writes the response object, as it will be
 * sent, and the row is durable. A response that cannot be kept says so: its `store` is false. What
 * is kept of a request is its own input, as it came, with referenced items in their places and
 * files by their ids; what was said before is in the rows before.
 */
#include "gateway/responses_state_turn.h"

#include "base/id.h"
#include "gateway/event_log.h"
#include "gateway/idempotency.h"
#include "gateway/turn_run.h"

#include <stdlib.h>

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
	responses_past_init(&t->state.past, t->g, t->key, t->x);
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

/* What the request itself brought, where the body has it still as it came. */
static bool scan(struct turn_run *t)
{
	struct responses_state_turn *s = &t->state;
	bool first = !s->past.scanned;
	bool needs = responses_past_needs(&s->past, (struct str){t->in.body, t->in.body_len});

	if (!first)
		return needs;
	s->input = s->past.scan.list;
	s->n_input = s->past.scan.elements != NULL ? s->past.scan.n : 1;
	return needs;
}

bool responses_state_turn_needs_pool(struct turn_run *t)
{
	return has_input(t) && scan(t);
}

int responses_state_turn_expand(struct turn_run *t, struct error *err)
{
	struct responses_state_turn *s = &t->state;
	int r;

	if (!has_input(t))
		return 0;
	scan(t);
	t->in.may_store = s->past.allowed;
	t->seal = (struct api_seal){close_summary, open_summary, t};
	t->in.seal = &t->seal;
	r = responses_past_expand(&s->past, &t->in, &s->input, err);
	if (r <= 0)
		return r;
	s->elements = true;
	return 0;
}

/*
 * For what may be gone on from without the rows before it. A response that goes on from one that is
 * in no row is stored as if the client had sent everything.
 */
void responses_state_turn_note(struct turn_run *t)
{
	struct responses_state_turn *s = &t->state;
	struct responses_scan scan;

	if (!t->websocket || !has_input(t))
		return;
	responses_state_scan((struct str){t->in.body, t->in.body_len}, "input", &scan);
	s->whole = scan.list;
	s->n_whole = scan.elements != NULL ? scan.n : 1;
	responses_scan_clear(&scan);
	if (s->past.local_used) {
		s->input = s->whole;
		s->n_input = s->n_whole;
		s->elements = false;
	}
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
	r.previous = s->past.previous[0] != 0 ? str_of(s->past.previous) : (struct str){NULL, 0};
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
	refused = !t->request.background &&
	          (t->request.stream ? end->status == TURN_FAILED && !t->may_answer : empty);
	if (r == 0 && !refused && t->request.store &&
	        s->input.n + object.len <= t->g->config->limits.response_bytes)
		s->kept = put(t, &object, false, &e);
	if (e.code != 0)
		log_text(LOG_ERROR, "store_failed", "%s", e.text);
	if (r == 0 && !refused && !s->kept && t->websocket && s->succeeded) {
		char id[STORE_ID_MAX + 1];

		str_format(id, sizeof(id), "resp_%s", t->who.id + 4);
		s->next = responses_local_new(
		        t->g, id, s->whole, s->n_whole, (struct str){object.data, object.len});
	}
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

	s->succeeded = end->status != TURN_FAILED && end->status != TURN_CANCELED;
	if ((!t->request.store && !t->websocket) || t->request.api->object == NULL)
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

/* The client has the response's id with this, and is not waited for from here on. */
static void begin_answer(struct turn_run *t)
{
	struct responses_state_turn *s = &t->state;
	struct error e;

	http_exchange_set_data(t->x, NULL);
	turn_run_answer_headers(t, 200);
	if (s->log == NULL) {
		http_respond(
		        t->x, 200, "application/json", (struct str){s->begun.data, s->begun.len});
	} else {
		idempotency_ran(t->x); /* it goes on without its client: not to be run twice */
		if (event_log_read(s->log, t->x, 0, &e) < 0)
			BUG("%s", e.text);
	}
	t->x = NULL;
}

static void begin_log(struct turn_run *t)
{
	char id[STORE_ID_MAX + 1];

	str_format(id, sizeof(id), "resp_%s", t->who.id + 4);
	t->state.log = event_log_new(t->g, t->key, id);
}

static void begin_done(void *arg)
{
	struct turn_run *t = arg;
	struct responses_state_turn *s = &t->state;

	t->storing = t->building = false;
	if (t->job_error == NULL && t->request.stream)
		begin_log(t);
	if (t->job_error == NULL && t->x != NULL)
		begin_answer(t);
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
	gateway_busy(&e);
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

struct responses_local *responses_state_turn_leave(struct turn_run *t)
{
	struct responses_state_turn *s = &t->state;

	if (s->next != NULL)
		return steal(s->next);
	return s->succeeded || s->past.local_used ? NULL : steal(s->past.local);
}

void responses_state_turn_free(struct turn_run *t)
{
	responses_past_clear(&t->state.past);
	responses_local_free(t->state.next);
	buf_free(&t->state.begun);
	event_log_drop(t->state.log);
	free(t->state.body);
}
