/*
 * POST /messages/count_tokens, /responses/input_tokens and models/{model}:countTokens: how many
 * tokens a request would be.
 *
 * A provider that speaks Anthropic's or Google's dialect is asked itself, whatever the client
 * speaks: about the request that it would get. For any other, and for servers of those dialects
 * that have no such path, the answer is an estimate and says so ("estimated": true). What
 * `previous_response_id` stands for counts, as it would in the request.
 *
 * The client may go at any time. While the pool works the job stays, else its end is the end of
 * all.
 */
#include "gateway/documents.h"
#include "gateway/guardrails.h"
#include "gateway/rulebook.h"
#include "gateway/internal.h"
#include "gateway/responses_past.h"

#include "api/token_estimate.h"

#include <stdlib.h>

enum {
	POOL_FROM = 64 * 1024, /* larger bodies are read on the pool */
	ANSWER_MAX = 64 * 1024,
	TREE_MAX = 256 * 1024 * 1024,
	BODY_MAX = 256 * 1024 * 1024,
	PATH_MAX_LEN = 4096,
	MODEL_NAME_MAX = 1024, /* as it stands in a path */
};

/* How a dialect's providers count. */
struct counter {
	enum dialect dialect;
	const char *member; /* of the answer */
	/* Makes of a request for an answer the one that counts. */
	int (*turn)(struct provider_request *r, const char *model, struct error *err);
};

struct token_count {
	struct gateway *g;
	const struct config_key *key;
	struct http_exchange *x; /* NULL: the client has gone */
	struct owner owner;
	enum dialect asks;
	bool under_v1;
	bool on_pool; /* the pool works for it, or it waits for providers' lists: do not free */
	const struct api *api;
	struct api_request in;
	struct api_seal seal;       /* of compactions */
	struct responses_past past; /* of the Responses API: what its input goes on from */
	char *session, *beta, *model;
	struct turn_request request;
	struct rules *rules;
	struct guardrails_report guard;
	struct route route;
	struct provider_request upstream; /* body NULL: nobody is asked */
	const struct counter *counter;    /* how it is asked */
	struct error *failed;
	struct http_fetch *fetch;
	int status;
	struct buf answer;
	char retry_after[64];
};

static void count_free(struct token_count *c)
{
	if (c->x != NULL)
		http_exchange_set_data(c->x, NULL);
	if (c->fetch != NULL)
		http_fetch_cancel(c->fetch);
	turn_request_free(&c->request);
	guardrails_report_clear(&c->guard);
	ruleset_rules_free(c->rules);
	route_free(&c->route);
	provider_request_free(&c->upstream);
	buf_free(&c->answer);
	responses_past_clear(&c->past);
	free(c->in.body);
	free(c->session);
	free(c->beta);
	free(c->model);
	free(c->failed);
	free(c);
}

/* ---- answers ---- */

static void answer_error(struct token_count *c, const struct error *e)
{
	if (guardrails_blocked(&c->guard))
		respond_blocked(c->x, c->asks, c->under_v1, NULL, e, &c->guard);
	else
		respond_error_to(c->x, c->asks, c->under_v1, NULL, e);
	count_free(c);
}

static void answer_number(struct token_count *c, uint64_t n, bool estimated)
{
	struct buf body = BUF_INIT(256);
	struct json_writer w;

	jw_init(&w, &body);
	jw_object(&w);
	if (c->api == &api_responses)
		jw_kcstr(&w, "object", "response.input_tokens");
	jw_ki64(&w, c->asks == DIALECT_GEMINI ? "totalTokens" : "input_tokens", (int64_t)n);
	if (estimated)
		jw_kbool(&w, "estimated", true);
	jw_end(&w);
	respond_json(c->x, 200, &body);
	buf_free(&body);
	count_free(c);
}

static void answer_estimate(struct token_count *c)
{
	/* brig/script is no model. */
	if (c->route.targets[0].provider->local != NULL)
		answer_number(c, 0, false);
	else
		answer_number(c, token_estimate(c->request.conversation), true);
}

/* ---- the provider's own count ---- */

static void on_head(void *ctx, struct http_fetch *f, int status)
{
	struct token_count *c = ctx;

	c->status = status;
	str_copy(c->retry_after, sizeof(c->retry_after), http_fetch_header(f, "retry-after"));
}

static void on_data(void *ctx, struct http_fetch *f, const void *data, size_t n)
{
	struct token_count *c = ctx;

	buf_append(&c->answer, data, n);
}

/* False: it is no count. */
static bool read_count(const struct counter *by, struct str answer, int64_t *ret)
{
	_cleanup_json_ struct json_doc *doc = NULL;

	return json_parse(answer, ANSWER_MAX * 64, &doc, NULL) == 0 &&
	       json_i64(json_get(json_root(doc), by->member), ret) && *ret >= 0;
}

static void on_end(void *ctx, struct http_fetch *f, const struct error *err)
{
	struct token_count *c = ctx;
	const struct provider_target *target = &c->route.targets[0];
	struct str answer = {buf_cstr(&c->answer), c->answer.len};
	struct error e;
	int64_t n;

	c->fetch = NULL;
	if (err != NULL) {
		log_text(LOG_WARN, "fetch_failed", "%s: %s", target->config->name, err->text);
		error_set(&e, err->code, "The provider %s did not count.", target->config->name);
		answer_error(c, &e);
	} else if (c->status == 200 && read_count(c->counter, answer, &n)) {
		answer_number(c, (uint64_t)n, false);
	} else if (c->status == 200 || c->status == 404 || c->status == 405) {
		answer_estimate(c); /* another server of that dialect */
	} else {
		target->provider->error(c->status, answer, str_of(c->retry_after), &e);
		answer_error(c, &e);
	}
}

static void ask(struct token_count *c)
{
	const struct provider_target *target = &c->route.targets[0];
	const struct config_limits *l = &c->g->config->limits;
	const struct http_fetch_handler h = {c, on_head, on_data, on_end};
	struct buf url = BUF_INIT(16384);
	struct error e;

	buf_printf(&url, "%s%s", target->config->base_url, c->upstream.path);
	const struct http_fetch_options o = {
	        .method = "POST",
	        .url = buf_cstr(&url),
	        .headers = (const char *const *)c->upstream.headers,
	        .body = steal(c->upstream.body),
	        .body_len = c->upstream.body_len,
	        .resolve_timeout_ms = (unsigned)l->upstream_connect_ms,
	        .connect_timeout_ms = (unsigned)l->upstream_connect_ms,
	        .first_byte_timeout_ms = (unsigned)l->upstream_first_byte_ms,
	        .idle_timeout_ms = (unsigned)l->upstream_idle_ms,
	};

	buf_init(&c->answer, ANSWER_MAX);
	c->fetch = http_fetch_start(c->g->client, &o, &h, &e);
	buf_free(&url);
	if (c->fetch == NULL)
		answer_error(c, &e);
}

/* ---- the request ---- */

static bool open_sealed(
        void *ctx, const struct provider_target *target, struct str sealed, struct buf *out)
{
	const struct token_count *c = ctx;

	return seal_open(c->g, str_of(target->config->name), str_of(target->model),
	        str_of(c->key->account), sealed, out);
}

static bool is_prompt(struct str key)
{
	static const char *const members[] = {"model", "messages", "system", "tools", "tool_choice",
	        "thinking", "output_config", "output_format", "cache_control", "context_management",
	        "mcp_servers", "speed"};

	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
		if (str_is(key, members[i]))
			return true;
	return false;
}

/* Takes over body and path. */
static int replace(
        struct provider_request *r, struct buf *body, struct buf *path, struct error *err)
{
	if (buf_error(body) || buf_error(path)) {
		buf_free(body);
		buf_free(path);
		return error_set(err, ERR_NOMEM, "The request is too large to be counted.");
	}
	free(r->body);
	free(r->path);
	r->body = buf_steal(body, &r->body_len);
	r->path = buf_steal(path, NULL);
	return 0;
}

/* Anthropic's count_tokens takes the members of a prompt and no others. */
static int turn_anthropic(struct provider_request *r, const char *model, struct error *err)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	struct buf kept = BUF_INIT(BODY_MAX), path = BUF_INIT(PATH_MAX_LEN);
	struct json_writer w;
	int rc = json_parse((struct str){r->body, r->body_len}, TREE_MAX, &doc, err);

	if (rc)
		return rc;
	buf_printf(&path, "%s/count_tokens", r->path);
	jw_init(&w, &kept);
	jw_object(&w);
	for (const struct json *v = json_first(json_root(doc)); v; v = json_next(v)) {
		if (!is_prompt(json_key(v)))
			continue;
		jw_key_str(&w, json_key(v));
		jw_raw(&w, json_raw(v));
	}
	jw_end(&w);
	return replace(r, &kept, &path, err);
}

/* Google's countTokens takes the whole request, inside of another, with the model's name in it. */
static int turn_gemini(struct provider_request *r, const char *model, struct error *err)
{
	const char *colon = strrchr(r->path, ':');
	struct buf body = BUF_INIT(BODY_MAX), path = BUF_INIT(PATH_MAX_LEN);
	struct buf name = BUF_INIT(PATH_MAX_LEN);

	if (!colon || !str_starts((struct str){r->body, r->body_len}, "{\""))
		return error_set(err, ERR_INTERNAL, "not a request for an answer");
	buf_printf(&path, "%.*s:countTokens", (int)(colon - r->path), r->path);
	buf_printf(&name, "%s%s", str_starts(str_of(model), "models/") ? "" : "models/", model);
	buf_puts(&body, "{\"generateContentRequest\":{\"model\":");
	json_write_str(&body, (struct str){buf_cstr(&name), name.len});
	buf_putc(&body, ',');
	buf_append(&body, r->body + 1, r->body_len - 1);
	buf_putc(&body, '}');
	buf_free(&name);
	return replace(r, &body, &path, err);
}

static const struct counter counters[] = {
        {DIALECT_ANTHROPIC, "input_tokens", turn_anthropic},
        {DIALECT_GEMINI, "totalTokens", turn_gemini},
};

static const struct counter *counter_of(enum dialect d)
{
	for (size_t i = 0; i < sizeof(counters) / sizeof(*counters); i++)
		if (counters[i].dialect == d)
			return &counters[i];
	return NULL;
}

/* ---- the steps ---- */

static int build(struct token_count *c, struct error *err)
{
	const struct upstream_call call = {.choice = {.mode = CHOICE_AUTO}};
	const struct provider_call pc = {.target = &c->route.targets[0],
	        .conversation = c->request.conversation,
	        .call = &call,
	        .open = open_sealed,
	        .open_ctx = c};
	int rc = pc.target->provider->build(&pc, &c->upstream, err);

	return rc ? rc : c->counter->turn(&c->upstream, pc.target->model, err);
}

static int inline_documents(struct token_count *c, struct error *err)
{
	const struct documents_inline in = {.g = c->g,
	        .key = c->key,
	        .speaks = c->api->speaks,
	        .n_history = c->in.n_history,
	        .rules = c->rules,
	        .report = &c->guard,
	        .charged = &c->past.charged};
	char *body;
	size_t n;
	int r = documents_inline(&in, (struct str){c->in.body, c->in.body_len}, &body, &n, err);

	if (r <= 0)
		return r;
	free(c->in.body);
	c->in.body = body;
	c->in.body_len = n;
	return 0;
}

static void parse_work(void *arg)
{
	struct token_count *c = arg;
	struct str own;
	struct error e;

	if (c->api == &api_responses && responses_past_expand(&c->past, &c->in, &own, &e) < 0) {
		c->failed = error_copy(&e);
		return;
	}
	if (c->rules == NULL && rulebook_rules(c->g->rulebook, c->key, &c->rules, &e) < 0) {
		c->failed = error_copy(&e);
		return;
	}
	/* An estimate tells nobody anything, but a provider may be asked. */
	if (guardrails_scan(c->rules, c->api->speaks, &c->in.body, &c->in.body_len, NULL, &c->guard,
	            &e) < 0) {
		c->failed = error_copy(&e);
		return;
	}
	if (inline_documents(c, &e) < 0) {
		c->failed = error_copy(&e);
		return;
	}
	if (c->api->parse(&c->in, STR("count"), &c->request, &e) < 0)
		c->failed = error_copy(&e);
	c->in.body = NULL; /* the api has it in every case */
}

static void build_work(void *arg)
{
	struct token_count *c = arg;
	struct error e;

	if (build(c, &e) < 0)
		c->failed = error_copy(&e);
}

static bool needs_pool(struct token_count *c)
{
	if (c->rules == NULL || c->in.body_len > POOL_FROM)
		return true;
	if (c->in.body != NULL && documents_inline_wanted((struct str){c->in.body, c->in.body_len}))
		return true;
	return c->api == &api_responses && !c->past.scanned &&
	       responses_past_needs(&c->past, (struct str){c->in.body, c->in.body_len});
}

/* Does one step on the pool where the body is large or rows are read, else at once. */
static void step(struct token_count *c, void (*work)(void *arg), void (*done)(void *arg))
{
	struct error e;

	if (!needs_pool(c)) {
		work(c);
		done(c);
		return;
	}
	c->on_pool = true;
	if (pool_run(c->g->pool, work, done, c))
		return;
	c->on_pool = false;
	gateway_busy(&e);
	answer_error(c, &e);
}

/* After a step: false where it was the last, since the client has gone or it failed. */
static bool goes_on(struct token_count *c)
{
	struct error e;

	c->on_pool = false;
	if (c->x == NULL) {
		count_free(c);
		return false;
	}
	if (c->failed != NULL) {
		e = *c->failed;
		answer_error(c, &e);
		return false;
	}
	return true;
}

static void build_done(void *arg)
{
	struct token_count *c = arg;

	if (goes_on(c))
		ask(c);
}

static void find_route(struct token_count *c)
{
	struct route_query query = routing_query(c->g, c->api, c->request.conversation);
	struct error e;

	if (route_resolve(c->g->config, &query, &c->route, &e) < 0) {
		answer_error(c, &e);
		return;
	}
	if (guardrails_route(c->rules, c->request.conversation->model, &c->route, &e) < 0) {
		answer_error(c, &e);
		return;
	}
	c->counter = counter_of(c->route.targets[0].provider->dialect);
	if (c->counter == NULL)
		answer_estimate(c);
	else
		step(c, build_work, build_done);
}

static void on_lists(void *arg)
{
	struct token_count *c = arg;

	if (goes_on(c))
		find_route(c);
}

static void parse_done(void *arg)
{
	struct token_count *c = arg;

	if (!goes_on(c))
		return;
	struct route_query query = routing_query(c->g, c->api, c->request.conversation);

	c->on_pool = routing_wait(c->g, &query, on_lists, c);
	if (!c->on_pool)
		find_route(c);
}

static void on_gone(void *self, enum http_gone why)
{
	struct token_count *c = self;

	c->x = NULL;
	if (!c->on_pool)
		count_free(c);
}

static char *keep_header(const struct http_exchange *x, const char *name, struct str *ret)
{
	*ret = http_request_header(x, name);
	if (ret->p == NULL)
		return NULL;
	char *copy = mem_strndup(ret->p, ret->n);

	ret->p = copy;
	return copy;
}

static bool open_summary(void *ctx, struct str sealed, struct buf *out)
{
	const struct token_count *c = ctx;

	return seal_open_summary(c->g, str_of(c->key->account), sealed, out);
}

void token_count_handle(struct request *r, const struct api *api)
{
	struct token_count *c = mem_alloc(sizeof(*c));
	char model[MODEL_NAME_MAX + 1];

	*c = (struct token_count){.g = r->g,
	        .key = r->key,
	        .x = r->x,
	        .asks = respond_asks(r->x),
	        .under_v1 = r->under_v1,
	        .api = api};
	c->owner = (struct owner){NULL, on_gone, c};
	c->in = (struct api_request){.under_v1 = r->under_v1, .config = r->g->config};
	c->seal = (struct api_seal){NULL, open_summary, c};
	c->in.seal = &c->seal;
	c->session = keep_header(r->x, "x-session-id", &c->in.session_header);
	c->beta = keep_header(r->x, "anthropic-beta", &c->in.anthropic_beta);
	if (r->params[0].p != NULL) {
		c->model = route_path_decode(r->params[0], model, sizeof(model))
		                   ? mem_strndup(model, strlen(model))
		                   : mem_strndup(r->params[0].p, r->params[0].n);
		c->in.path_model = str_of(c->model);
	}
	responses_past_init(&c->past, r->g, r->key, r->x);
	c->in.body = request_take_body(r, &c->in.body_len);
	http_exchange_set_data(r->x, &c->owner);
	c->rules = rulebook_peek(r->g->rulebook, r->key);
	step(c, parse_work, parse_done);
}
