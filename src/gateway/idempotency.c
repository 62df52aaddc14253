/*
 * Idempotency keys.
 *
 * Theory of operation. The key is claimed by a row before anything is done; of several that ask at
 * once, in whatever gateway, one has the row. It runs with its answer recorded (http/record.h), and
 * the end of that answer waits until the row has all of it. Asked again, the row is what is sent.
 *
 * What failed and ran no command is as if it had not been asked: the row goes, so that a client may
 * try again under the same key. What broke off after a command began stays as that, and is never
 * run again: neither does one whose gateway died, unless its body has no tools at all.
 *
 * An object of ours lives with its exchange, and longer while the pool has it.
 */
#include "gateway/idempotency.h"

#include "base/id.h"
#include "http/record.h"

#include <stdlib.h>

#define KEEP_MS  ((int64_t)24 * 3600 * 1000)
#define KEY_MAX  255
#define ON_LOOP  (256 * 1024) /* bytes that are hashed on the loop */
#define RETRY_MS 2000

struct once {
	struct request r; /* r.x is NULL once the client has gone */
	struct owner owner;
	void (*handle)(struct request *r);
	uint8_t key[32], request[32];
	uint8_t head[32]; /* of the request, without its body */
	bool hashed;      /* the request is: its body is small */
	bool harmless;
	bool secret;  /* content may not be kept */
	bool working; /* the pool has it */
	bool ran, failed;
	bool settled; /* the row says what came of it */
	bool release; /* what failed: forget that it was asked */
	int state;    /* enum store_claim_state, or an error */
	struct store_answer answer;
	size_t sent; /* of a kept answer's body */
	struct error err;
};

static void once_free(struct once *o)
{
	store_answer_clear(&o->answer);
	free(o->r.body);
	free(o);
}

static int recover(struct gateway *g, struct str holder, struct error *err)
{
	return store_idempotency_recover(g->store, holder, err);
}

int idempotency_recover(struct gateway *g, struct error *err)
{
	return gateway_recover(g, recover, err);
}

/* ---- the end of what was run ---- */

static void settle_work(void *arg)
{
	struct once *o = arg;
	struct store_scope scope = row_scope(o->r.key);
	struct store *s = o->r.g->store;
	int r;

	if (o->release)
		r = store_idempotency_release(s, &scope, o->key, &o->err);
	else
		r = store_idempotency_finish(s, &scope, o->key, &o->answer,
		        o->r.g->config->limits.workspace_idempotent_bytes, &o->err);
	if (r < 0)
		log_text(LOG_ERROR, "store_failed", "%s", o->err.text);
}

static void settle_done(void *arg)
{
	struct once *o = arg;

	o->working = false;
	o->settled = true;
	store_answer_clear(&o->answer);
	if (o->r.x != NULL)
		http_record_end(o->r.x);
	else
		once_free(o);
}

static void on_whole(void *ctx, struct http_exchange *x, const struct http_record *r)
{
	struct once *o = ctx;

	o->release = !o->ran && (r->status >= 400 || o->failed);
	if (!o->release) {
		o->answer.status = r->status;
		str_copy(o->answer.type, sizeof(o->answer.type), str_of(r->type));
		o->answer.headers = mem_strdup(buf_cstr(&r->headers));
		o->answer.len = r->body.len;
		if (!o->secret && !r->too_large && buf_error(&r->body) == 0)
			o->answer.body = malloc(r->body.len + 1);
		if (o->answer.body != NULL && r->body.len > 0)
			memcpy(o->answer.body, r->body.data, r->body.len);
	}
	o->working = true;
	if (pool_run(o->r.g->pool, settle_work, settle_done, o))
		return;
	/* The row goes on to say that it runs: nobody runs it a second time. */
	log_text(LOG_ERROR, "store_failed", "no room to keep an answer");
	o->working = false;
	o->settled = true;
	http_record_end(x);
}

/* The client went before the answer was whole. */
static void abandon_work(void *arg)
{
	struct once *o = arg;
	struct store_scope scope = row_scope(o->r.key);
	struct store *s = o->r.g->store;
	int r = o->ran ? store_idempotency_cut(s, &scope, o->key, &o->err)
	               : store_idempotency_release(s, &scope, o->key, &o->err);

	if (r < 0)
		log_text(LOG_ERROR, "store_failed", "%s", o->err.text);
	once_free(o);
}

void idempotency_gone(struct http_exchange *x)
{
	struct once *o = http_record_ctx(x);

	if (o == NULL)
		return;
	o->r.x = NULL;
	if (o->working)
		return;
	if (o->settled || !pool_run(o->r.g->pool, abandon_work, NULL, o))
		once_free(o);
}

void idempotency_ran(struct http_exchange *x)
{
	struct once *o = x != NULL ? http_record_ctx(x) : NULL;

	if (o != NULL)
		o->ran = true;
}

void idempotency_failed(struct http_exchange *x)
{
	struct once *o = x != NULL ? http_record_ctx(x) : NULL;

	if (o != NULL)
		o->failed = true;
}

/* ---- asked again ---- */

static void send_more(struct once *o)
{
	if (respond_more(o->r.x, (struct str){o->answer.body, o->answer.len}, &o->sent))
		once_free(o);
}

static void on_drain(void *self)
{
	struct once *o = self;

	if (!o->working)
		send_more(o);
}

static void on_gone(void *self, enum http_gone why)
{
	struct once *o = self;

	o->r.x = NULL;
	if (!o->working)
		once_free(o);
}

/* The lines that the first answer had. */
static void put_headers(struct http_exchange *x, char *lines)
{
	char *end;

	for (char *p = lines; p != NULL && (end = strstr(p, "\r\n")) != NULL; p = end + 2) {
		char *colon = strstr(p, ": ");

		*end = 0;
		if (colon == NULL || colon > end)
			continue;
		*colon = 0;
		http_response_header(x, p, colon + 2);
	}
}

static void replay(struct once *o)
{
	struct http_exchange *x = o->r.x;

	put_headers(x, o->answer.headers);
	http_response_header(x, "Idempotent-Replayed", "true");
	http_respond_start_length(
	        x, o->answer.status, o->answer.type[0] != 0 ? o->answer.type : NULL, o->answer.len);
	send_more(o);
}

static void explain(struct once *o, struct error *e)
{
	static const struct {
		enum err code;
		int status;
		const char *type, *text;
	} rows[] = {
	        [STORE_CLAIM_RUNS] = {ERR_UNAVAILABLE, 409, "request_in_progress",
	                "A request with this Idempotency-Key is under way: ask again for its "
	                "answer."},
	        [STORE_CLAIM_CUT] = {ERR_CONFLICT, 409, "request_interrupted",
	                "The request with this Idempotency-Key broke off after commands may have "
	                "run. It is not run again: use another key if it shall be."},
	        [STORE_CLAIM_LOST] = {ERR_CONFLICT, 409, "answer_not_kept",
	                "The request with this Idempotency-Key was answered, and the answer was "
	                "too large to be kept or is kept no more. It is not run again: use another "
	                "key if it shall be."},
	        [STORE_CLAIM_OTHER] = {ERR_INVALID, 422, "idempotency_key_reused",
	                "This Idempotency-Key stands for another request of the last 24 hours."},
	};

	error_param(e, rows[o->state].code, "Idempotency-Key", "%s", rows[o->state].text);
	e->http_status = rows[o->state].status;
	str_copy(e->type, sizeof(e->type), str_of(rows[o->state].type));
	if (o->state == STORE_CLAIM_RUNS)
		e->retry_after_ms = RETRY_MS;
}

/* ---- asked ---- */

static void run(struct once *o)
{
	struct request r = o->r;

	o->r.body = NULL;
	http_exchange_set_data(r.x, NULL);
	http_record_start(r.x, r.g->config->limits.idempotent_bytes, on_whole, o);
	o->handle(&r);
	free(r.body);
}

static void refuse(struct once *o, const struct error *e)
{
	struct http_exchange *x = o->r.x;
	bool under_v1 = o->r.under_v1;

	http_exchange_set_data(x, NULL);
	respond_error(x, under_v1, e);
	once_free(o);
}

static void claim_done(void *arg)
{
	struct once *o = arg;
	struct error e;

	o->working = false;
	if (o->r.x == NULL && o->state == STORE_CLAIM_NEW) {
		/* Claimed for a client that has gone meanwhile. */
		if (!pool_run(o->r.g->pool, abandon_work, NULL, o))
			once_free(o);
	} else if (o->r.x == NULL) {
		once_free(o);
	} else if (o->state == STORE_CLAIM_NEW) {
		run(o);
	} else if (o->state == STORE_CLAIM_DONE) {
		replay(o);
	} else {
		if (o->state < 0)
			e = o->err;
		else
			explain(o, &e);
		if (e.code == ERR_IO)
			log_text(LOG_ERROR, "store_failed", "%s", e.text);
		refuse(o, &e);
	}
}

static bool holds(struct str body, const char *word)
{
	return body.p != NULL && memmem(body.p, body.n, word, strlen(word)) != NULL;
}

/* On the loop, while the exchange is there. Every part has its length. */
static void hash_head(struct once *o)
{
	struct http_exchange *x = o->r.x;
	const struct str parts[] = {http_request_target(x), http_request_header(x, "x-session-id"),
	        http_request_header(x, "x-brig-store-content")};

	id_sha256_parts(parts, sizeof(parts) / sizeof(parts[0]), o->head);
	o->harmless = !str_ends(http_request_path(x), "/exec");
	o->secret = !request_may_keep(o->r.g, o->r.key, x);
}

static void hash_body(struct once *o, struct str body)
{
	const struct str parts[] = {{(const char *)o->head, sizeof(o->head)}, body};

	id_sha256_parts(parts, 2, o->request);
	/* An escape may hide the word. */
	o->harmless = o->harmless && !holds(body, "ools\"") && !holds(body, "\\u");
	o->hashed = true;
}

static void claim_work(void *arg)
{
	struct once *o = arg;
	struct store_scope scope = row_scope(o->r.key);
	char holder[GATEWAY_NAME_MAX];
	struct store_claim c = {.key = o->key, .request = o->request};

	if (!o->hashed)
		hash_body(o, (struct str){o->r.body, o->r.body_len});
	c.harmless = o->harmless;
	gateway_name(o->r.g->options->index, holder);
	c.holder = str_of(holder);
	c.now_ms = clock_wall_ms();
	c.expires_ms = c.now_ms + KEEP_MS;
	o->state = store_idempotency_claim(o->r.g->store, &scope, &c, &o->answer, &o->err);
}

static bool key_good(struct str key)
{
	for (size_t i = 0; i < key.n; i++)
		if (key.p[i] < ' ' || key.p[i] > '~')
			return false;
	return key.n > 0 && key.n <= KEY_MAX;
}

bool idempotency_take(struct request *r, void (*handle)(struct request *r))
{
	struct str key = http_request_header(r->x, "idempotency-key");
	struct once *o;
	struct error e;

	if (key.p == NULL || !str_is(http_request_method(r->x), "POST"))
		return false;
	if (!key_good(key)) {
		error_param(&e, ERR_INVALID, "Idempotency-Key",
		        "An Idempotency-Key has 1 to %d printable characters of ASCII.", KEY_MAX);
		respond_error(r->x, r->under_v1, &e);
		return true;
	}
	o = mem_alloc(sizeof(*o));
	*o = (struct once){.r = *r, .handle = handle};
	o->owner = (struct owner){on_drain, on_gone, o};
	id_sha256(key, o->key);
	hash_head(o);
	if (http_request_body(r->x).n <= ON_LOOP)
		hash_body(o, http_request_body(r->x));
	else
		o->r.body = http_request_take_body(r->x, &o->r.body_len);
	http_exchange_set_data(r->x, &o->owner);
	o->working = true;
	if (pool_run(r->g->pool, claim_work, claim_done, o))
		return true;
	gateway_busy(&e);
	refuse(o, &e);
	return true;
}
