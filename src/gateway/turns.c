/*
 * From a request to a turn: its body is read, on the pool where it is large, its route found, and
 * what it names looked up. Then turn_run.c runs it.
 */
#include "gateway/admission.h"
#include "gateway/turn_run.h"

#include "base/id.h"
#include "gateway/event_log.h"
#include "gateway/network.h"
#include "gateway/rulebook.h"
#include "network/policy.h"

#include <stdlib.h>

#define POOL_PARSE (64 * 1024) /* larger bodies are read on the pool */
#define POOL_SCAN  (8 * 1024)  /* the same where they are scanned too */
/* In a path: what is longer than a name may be is refused as a name. */
#define MODEL_NAME_MAX  1024
#define EXPECTED_TOKENS 1024 /* of an answer whose request does not bound it */

static void refused(struct turn_run *t, const struct error *err)
{
	struct http_exchange *x = t->x;
	const struct error *e = t->refused;

	t->storing = false;
	if (x != NULL && t->sink != NULL) {
		turn_run_sink_end(t, e);
	} else if (x != NULL) {
		turn_run_id_headers(t);
		if (guardrails_blocked(&t->guard))
			respond_blocked(x, t->asks, t->in.under_v1, t->who.id, e, &t->guard);
		else
			respond_error_to(x, t->asks, t->in.under_v1, t->who.id, e);
	}
	turn_run_reap(t);
}

/* Ends it before there is a turn; the client hears of it once it is written down. Where the client
 * has gone nobody asks for the reason, and e may be NULL. */
static void refuse(struct turn_run *t, const struct error *e)
{
	t->done = true;
	t->storing = true; /* keeps it alive until then */
	t->refused = e != NULL ? error_copy(e) : NULL;
	recording_refused(t, e, refused);
}

/* What the target before took is booked at its own prices. */
static void book_earlier(struct turn_run *t)
{
	struct turn_totals totals;
	struct money input, output;

	turn_totals(t->turn, clock_mono_ms(), &totals);
	api_price(&t->who, &totals.usage, &input, &output);
	t->who.earlier = totals.usage;
	t->who.earlier_input = input;
	t->who.earlier_output = output;
}

void turn_run_serve(struct turn_run *t)
{
	const struct provider_target *by = &t->route.targets[t->up.target];
	struct buf shown = BUF_INIT(4096);
	bool known = true; /* what all tokens so far cost */

	if (t->turn != NULL) {
		book_earlier(t);
		known = t->who.has_price || !t->who.earlier.given;
	}
	t->who.has_price = false;
	t->who.provider = by->config->name;
	t->who.native_shell = provider_runs_shell(by, t->request.conversation);
	buf_printf(&shown, "%s/%s", by->config->name, by->model);
	free(t->model_shown);
	t->model_shown = buf_steal(&shown, NULL);
	t->who.model = t->model_shown;
	for (size_t i = 0; i < by->config->n_prices; i++) {
		const struct config_price *p = &by->config->prices[i];

		if (strcmp(p->model, by->model) != 0)
			continue;
		t->who.has_price = known;
		t->who.input_price = p->input;
		t->who.output_price = p->output;
		t->who.cached_price = p->has_cached ? p->cached : p->input;
	}
}

/* Blocks of these dialects carry a provider's bytes as they are, where the client speaks the same.
 */
static bool state_is_plain(enum dialect client, enum dialect provider)
{
	return client == provider && (client == DIALECT_ANTHROPIC || client == DIALECT_GEMINI);
}

static bool seal_opaque(void *ctx, struct str opaque, struct buf *out)
{
	struct turn_run *t = ctx;
	const struct provider_target *target = &t->route.targets[t->up.target];

	if (state_is_plain(t->request.api->speaks, target->provider->dialect))
		return buf_append(out, opaque.p, opaque.n) == 0;

	return seal_close(t->g, str_of(target->config->name), str_of(target->model),
	               str_of(t->key->account), opaque, out) == 0;
}

/* What all tokens so far cost. */
static struct money price_so_far(void *ctx, const struct usage *u)
{
	const struct turn_run *t = ctx;
	struct money input, output;

	api_price(&t->who, u, &input, &output);
	return money_add(input, output);
}

/* Its row is there: from here on it may cost something. */
static void turn_opened(struct turn_run *t, const struct error *err)
{
	struct error e;

	if (err == NULL && (t->x != NULL || t->request.background)) {
		if (t->request.background)
			responses_state_turn_background(t);
		else
			turn_run_feed_plain(t, TURN_START);
		return;
	}
	if (err != NULL)
		error_set(&e, ERR_UNAVAILABLE, "The request could not be written down: try later.");
	t->turn = turn_free(t->turn);
	refuse(t, err != NULL ? &e : NULL);
}

static void turn_admitted(struct turn_run *t)
{
	struct turn_request *q = &t->request;
	struct error e;

	t->who.created_s = clock_wall_s();
	q->options.streamed = q->stream || q->background;
	if (!q->stream && !q->background)
		q->options.turn_ms = t->g->config->limits.turn_unstreamed_ms;
	q->options.container_id = str_of(q->container_id);
	q->options.price_per_second = t->g->config->container.price_per_second;
	q->options.seal = seal_opaque;
	q->options.seal_ctx = t;
	q->options.price = price_so_far;
	q->options.price_ctx = t;
	t->turn = turn_new(q->conversation, &q->options);
	t->stream = q->api->open(q, &t->who,
	        !q->stream     ? API_WHOLE
	        : t->websocket ? API_WEBSOCKET
	                       : API_SSE);
	if (t->turn == NULL || t->stream == NULL || !turn_run_arm(t)) {
		t->turn = turn_free(t->turn);
		error_set(&e, ERR_NOMEM, "The server has no memory for another turn.");
		refuse(t, &e);
		return;
	}
	recording_open(t, turn_opened);
}

static void on_admitted(void *ctx, const struct record_hold *hold, const struct error *err)
{
	struct turn_run *t = ctx;

	t->storing = false;
	t->recording.record->hold = *hold;
	if (err != NULL || (t->x == NULL && !t->request.background))
		refuse(t, err);
	else
		turn_admitted(t);
}

/* Does a sandbox of ours serve it, as far as the first of its targets goes? */
static bool takes_container(const struct turn_run *t)
{
	return t->request.container_id[0] != 0 && !t->who.native_shell;
}

/* What it is expected to come to: what it says, an answer as long as it allows, and a container
 * that is started. */
static struct money expected_cost(const struct turn_run *t)
{
	struct usage u = {.input = t->recording.asked_bytes / 4, .output = EXPECTED_TOKENS};
	struct money input, output, sandbox = {0};

	str_to_u64(t->request.conversation->settings.max_output_tokens, &u.output);
	api_price(&t->who, &u, &input, &output);
	if (takes_container(t))
		sandbox = money_mul(t->g->config->container.price_per_second,
		        turn_sandbox_ms(0, 0, true), 1000);
	return money_add(money_add(input, output), sandbox);
}

/* All is known of the request; its key's limits say whether it goes on. */
static void turn_begin(struct turn_run *t)
{
	struct error e;

	turn_run_serve(t);
	if (admission_priced(t->key, &t->route, &e) < 0) {
		refuse(t, &e);
		return;
	}
	t->storing = true; /* keeps it alive until then */
	admission_ask(t->g, t->key, expected_cost(t), takes_container(t), on_admitted, t);
}

void turn_run_background(struct turn_run *t, const struct error *e)
{
	if (e == NULL) {
		turn_run_begin_log(t);
		turn_run_feed_plain(t, TURN_START);
		if (t->cancel_later) /* its client went before it knew the id */
			turn_run_feed_plain(t, TURN_CANCEL);
		return;
	}
	t->turn = turn_free(t->turn);
	refuse(t, e);
}

/* The files that the shell's entry asks for, or NULL. */
static const struct shell_settings *files_wanted(const struct turn_run *t)
{
	const struct shell_settings *s =
	        t->request.shell != NULL ? t->request.shell->settings : NULL;

	return s != NULL && s->n_file_ids > 0 ? s : NULL;
}

/* ---- another network policy than that of the live container ---- */

static const char *network_wanted(const struct turn_run *t)
{
	const struct shell_settings *s =
	        t->request.shell != NULL ? t->request.shell->settings : NULL;

	return s != NULL ? s->network : NULL;
}

static void go_on(struct turn_run *t);

static void on_network_status(void *ctx, const struct container_status *st, const struct error *err)
{
	struct turn_run *t = ctx;
	struct str network = str_of(network_wanted(t));
	uint8_t wanted[16];
	struct error e;

	t->storing = false;
	if (t->x == NULL) {
		refuse(t, NULL);
		return;
	}
	row_policy(t->g, t->key, str_of(t->request.container_id), network, wanted);
	if (st == NULL || (st->state != SUP_ST_RUNNING && st->state != SUP_ST_FROZEN) ||
	        memcmp(wanted, st->policy, sizeof(wanted)) == 0) {
		go_on(t);
		return;
	}
	const struct shell_settings *s = t->request.shell->settings;

	error_param(&e, ERR_CONFLICT, s->network_path,
	        "The container is live with another network policy; a new one applies once it is "
	        "asleep.");
	refuse(t, &e);
}

/* Before anything runs: the operator's bounds, then what a live container has. */
static void network_begin(struct turn_run *t)
{
	const struct shell_settings *s = t->request.shell->settings;
	uint8_t key[SUP_KEY_LEN];
	struct error e;

	if (row_policy_within(t->g, t->key, str_of(s->network), s->network_path, &e) < 0) {
		refuse(t, &e);
		return;
	}
	policy_warnings(str_of(s->network), network_log_warning, NULL);
	t->storing = true; /* keeps it alive until the answer */
	row_key(t->key, str_of(t->request.container_id), key);
	container_ask_status(t->g->containers, key, on_network_status, t);
}

static void resolve_work(void *arg)
{
	struct turn_run *t = arg;
	const struct shell_settings *s = files_wanted(t);
	struct error e;

	if (callids_needed(t))
		callids_resolve(t);
	if (s != NULL && documents_attach_find(t->g, t->key, s->file_ids, s->n_file_ids,
	                         s->file_ids_path, &t->run.attach, &e) < 0)
		t->job_error = error_copy(&e);
}

static void resolve_done(void *arg)
{
	struct turn_run *t = arg;

	t->storing = false;
	if (t->x == NULL || t->job_error != NULL)
		refuse(t, t->job_error);
	else
		turn_begin(t);
}

static void resolve_begin(struct turn_run *t)
{
	struct error e;

	t->storing = true;
	if (pool_run(t->g->pool, resolve_work, resolve_done, t))
		return;
	t->storing = false;
	if (files_wanted(t) != NULL) {
		gateway_busy(&e);
		refuse(t, &e);
		return;
	}
	turn_begin(t); /* without the rows: the public ids go upstream */
}

/* The body with the files that it names takes the place of the other, which stays where its input
 * is kept. */
static int inline_documents(struct turn_run *t, struct error *err)
{
	const struct documents_inline in = {.g = t->g,
	        .key = t->key,
	        .speaks = t->api->speaks,
	        .n_history = t->in.n_history,
	        .rules = t->rules,
	        .report = &t->guard,
	        .keeps_body = t->state.input.p != NULL || t->state.whole.p != NULL,
	        .charged = &t->state.past.charged};
	char *body;
	size_t n;
	int r = documents_inline(&in, (struct str){t->in.body, t->in.body_len}, &body, &n, err);

	if (r <= 0)
		return r;
	t->recording.asked_bytes += n - t->in.body_len;
	if (in.keeps_body)
		t->state.body = t->in.body;
	else
		free(t->in.body);
	t->in.body = body;
	t->in.body_len = n;
	return 0;
}

static void parse_work(void *arg)
{
	struct turn_run *t = arg;
	struct error e;

	recording_body(t);
	if ((t->websocket && responses_state_message(t->in.body, t->in.body_len, &e) < 0) ||
	        responses_state_turn_expand(t, &e) < 0) {
		t->job_error = error_copy(&e);
		return;
	}
	if (t->rules == NULL && rulebook_rules(t->g->rulebook, t->key, &t->rules, &e) < 0) {
		t->job_error = error_copy(&e);
		return;
	}
	if (guardrails_scan(t->rules, t->api->speaks, &t->in.body, &t->in.body_len, &t->state.input,
	            &t->guard, &e) < 0) {
		t->job_error = error_copy(&e);
		return;
	}
	if (guardrails_redacted(&t->guard))
		recording_redacted(t);
	responses_state_turn_note(t);
	if (inline_documents(t, &e) < 0) {
		t->job_error = error_copy(&e);
		return;
	}
	if (t->api->parse(&t->in, str_of(t->seed), &t->request, &e) < 0 ||
	        admission_tools(t->key, t->request.conversation, &e) < 0)
		t->job_error = error_copy(&e);
	t->in.body = NULL; /* the api has it in every case */
}

static void route_found(struct turn_run *t, const struct error *err)
{
	struct error e;

	if (err != NULL || t->x == NULL)
		refuse(t, err);
	else if (guardrails_route(t->rules, t->request.conversation->model, &t->route, &e) < 0)
		refuse(t, &e);
	else if (network_wanted(t) != NULL)
		network_begin(t);
	else
		go_on(t);
}

static void parse_done(void *arg)
{
	struct turn_run *t = arg;

	t->storing = false;
	guardrails_log(&t->guard, t->who.id, 0);
	t->who.metadata = t->metadata = guardrails_metadata(&t->guard);
	if (t->job_error != NULL || t->x == NULL)
		refuse(t, t->job_error);
	else
		routing_find(t, route_found);
}

static void go_on(struct turn_run *t)
{
	if (callids_needed(t) || files_wanted(t) != NULL)
		resolve_begin(t);
	else
		turn_begin(t);
}

/* A header's value that lives as long as the turn, or NULL. */
static char *keep_header(const struct http_exchange *x, const char *name, struct str *ret)
{
	struct str value = http_request_header(x, name);
	char *kept = value.p != NULL ? mem_strndup(value.p, value.n) : NULL;

	*ret = (struct str){kept, value.n};
	return kept;
}

/* Google's word for server-sent events. */
static bool wants_events(const struct http_exchange *x)
{
	_cleanup_buf_ struct buf alt = BUF_INIT(64);

	return http_query_get(http_request_query(x), "alt", &alt) &&
	       strcmp(buf_cstr(&alt), "sse") == 0;
}

/* What the request says beside its body. */
static void keep_head(struct turn_run *t, const struct request *r)
{
	char model[MODEL_NAME_MAX + 1];

	t->asks = respond_asks(r->x);
	t->in = (struct api_request){
	        .under_v1 = r->under_v1,
	        .config = r->g->config,
	        .path_stream = r->streams,
	};
	t->in.path_array = r->streams && !wants_events(r->x);
	t->guard.told = str_is(http_request_header(r->x, "x-openrouter-metadata"), "enabled");
	t->session = keep_header(r->x, "x-session-id", &t->in.session_header);
	t->beta = keep_header(r->x, "anthropic-beta", &t->in.anthropic_beta);
	if (r->params[0].p == NULL)
		return;
	/* What cannot be a name is no model that we know: the route says so. */
	t->path_model = route_path_decode(r->params[0], model, sizeof(model))
	                        ? mem_strndup(model, strlen(model))
	                        : mem_strndup(r->params[0].p, r->params[0].n);
	t->in.path_model = str_of(t->path_model);
}

void turns_handle(struct request *r, const struct api *api)
{
	struct gateway *g = r->g;
	struct turn_run *t = mem_alloc(sizeof(*t));
	struct error e;

	t->g = g;
	t->key = r->key;
	t->x = r->x;
	t->sink = r->sink;
	t->websocket = r->sink != NULL;
	t->api = api;
	buf_init(&t->out, (size_t)1 << 20);
	responses_state_turn_init(t);
	id_make(t->seed, sizeof(t->seed), "", 40);
	t->next = g->turns;
	t->link = &g->turns;
	if (t->next != NULL)
		t->next->link = &t->next;
	g->turns = t;
	keep_head(t, r);
	recording_begin(t, r);
	t->in.body = request_take_body(r, &t->in.body_len);
	if (t->sink != NULL) {
		t->sink->turn = t;
		t->state.past.charged = r->charged;
		t->state.past.local = steal(t->sink->local);
	} else {
		turn_run_own(t);
		http_request_release(r->x);
	}

	t->rules = rulebook_peek(g->rulebook, t->key);
	size_t at_once = t->rules != NULL && t->rules->guard != NULL ? POOL_SCAN : POOL_PARSE;

	if (t->rules != NULL && t->in.body_len <= at_once && !responses_state_turn_needs_pool(t) &&
	        !documents_inline_wanted((struct str){t->in.body, t->in.body_len})) {
		parse_work(t);
		parse_done(t);
		return;
	}
	t->storing = true; /* keeps it alive until parse_done */
	if (pool_run(g->pool, parse_work, parse_done, t))
		return;
	t->storing = false;
	gateway_busy(&e);
	refuse(t, &e);
}

void turns_cancel_all(struct gateway *g)
{
	for (struct turn_run *t = g->turns, *next; t != NULL; t = next) {
		next = t->next;
		t->state.log = event_log_drop(t->state.log);
		if (t->x != NULL)
			http_abort(t->x);
		else if (t->turn != NULL && !t->done)
			turn_run_feed_plain(t, TURN_CANCEL);
	}
}

void turns_free_all(struct gateway *g)
{
	while (g->turns != NULL)
		turn_run_free(g->turns);
}
