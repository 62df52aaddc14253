/*
 * Paths → handlers. Everything under /api/v1, /v1 and /v1beta needs a key; which key it is decides
 * account and workspace before any handler runs. An id in a path is [A-Za-z0-9_.:-]; anything else
 * (slashes in disguise too) matches no route and is a 404. Only the name of a model may hold more;
 * under /v1beta what is done with it stands behind its last colon.
 */
#include "gateway/internal.h"

#include "gateway/network.h"

#include "gateway/broadcast.h"
#include "gateway/documents.h"
#include "gateway/idempotency.h"
#include "gateway/tenants.h"
#include "gateway/metrics.h"
#include "gateway/upload.h"
#include "json/json.h"
#include "web/web.h"

#include <stdlib.h>

struct route_entry {
	const char *method;
	const char *path; /* below the prefix; {} is one segment; {*}, at the end or before a colon
	                     and the path's last word, all the rest */
	void (*handle)(struct request *r);
	size_t max_body; /* 0: the configuration's */
	/*
	 * NULL, or called with the head alone: true where it takes the body in pieces (upload.h) or
	 * has answered; false: the body is read whole for handle(), which is NULL where that never
	 * is.
	 */
	bool (*begin)(struct request *r, size_t *max_body);
	bool admin; /* for admin keys only */
};

static void responses_count(struct request *r)
{
	token_count_handle(r, &api_responses);
}

static void responses_create(struct request *r)
{
	turns_handle(r, &api_responses);
}

static void responses_compact(struct request *r)
{
	turns_handle(r, &api_responses_compact);
}

static void messages_create(struct request *r)
{
	turns_handle(r, &api_messages);
}

static void messages_count(struct request *r)
{
	token_count_handle(r, &api_messages);
}

static void gemini_generate(struct request *r)
{
	turns_handle(r, &api_gemini);
}

static void gemini_stream(struct request *r)
{
	r->streams = true;
	turns_handle(r, &api_gemini);
}

static void gemini_count(struct request *r)
{
	token_count_handle(r, &api_gemini);
}

static void gemini_no_method(struct request *r)
{
	struct error e;

	error_set(&e, ERR_NOT_FOUND,
	        "There is no such method of a model here: the path ends in :generateContent, "
	        ":streamGenerateContent or :countTokens.");
	respond_error(r->x, false, &e);
}

static void chat_create(struct request *r)
{
	turns_handle(r, &api_chat);
}

/* What comes where nothing is read: thrown away, within bounds. */
#define NO_BODY 65536

/* Below /api/v1 and /v1. */
static const struct route_entry routes[] = {
        {"POST", "/responses", responses_create, 0, NULL, false},
        {"POST", "/responses/input_tokens", responses_count, 0, NULL, false},
        {"GET", "/responses", websocket_open, NO_BODY, NULL, false},
        {"POST", "/responses/compact", responses_compact, 0, NULL, false},
        {"GET", "/responses/{}", responses_state_http_get, NO_BODY, NULL, false},
        {"DELETE", "/responses/{}", responses_state_http_delete, NO_BODY, NULL, false},
        {"POST", "/responses/{}/cancel", responses_state_http_cancel, NO_BODY, NULL, false},
        {"GET", "/responses/{}/input_items", responses_state_items_list, NO_BODY, NULL, false},
        {"POST", "/messages", messages_create, 0, NULL, false},
        {"POST", "/messages/count_tokens", messages_count, 0, NULL, false},
        {"POST", "/chat/completions", chat_create, 0, NULL, false},
        {"GET", "/models", models_list, NO_BODY, NULL, false},
        {"GET", "/models/{*}", models_get, NO_BODY, NULL, false},
        {"POST", "/models/{*}:generateContent", gemini_generate, 0, NULL, false},
        {"POST", "/models/{*}:streamGenerateContent", gemini_stream, 0, NULL, false},
        {"POST", "/models/{*}:countTokens", gemini_count, 0, NULL, false},
        {"POST", "/models/{*}", gemini_no_method, NO_BODY, NULL, false},
        {"GET", "/tools", tools_list, NO_BODY, NULL, false},
        {"GET", "/tools/{*}", tools_get, NO_BODY, NULL, false},
        {"GET", "/generation", generations_get, NO_BODY, NULL, false},
        {"GET", "/generation/content", generations_content, NO_BODY, NULL, false},
        {"DELETE", "/generation/content", generations_forget, NO_BODY, NULL, false},
        {"GET", "/generations", generations_list, NO_BODY, NULL, false},
        {"GET", "/generations/export", generations_export, NO_BODY, NULL, false},
        {"GET", "/generations/totals", generations_totals, NO_BODY, NULL, false},
        {"GET", "/generations/{}/tool_runs", generations_runs, NO_BODY, NULL, false},
        {"GET", "/guardrails/hits", guardrails_hits_list, NO_BODY, NULL, false},
        {"POST", "/generations/{}/guardrail_hits/{}/false_positive", guardrails_hits_mark, 1024, NULL, false},
        {"GET", "/guardrails", guardrails_http_list, NO_BODY, NULL, true},
        {"POST", "/guardrails", guardrails_http_create, 4u << 20, NULL, true},
        {"GET", "/guardrails/assignments/keys", guardrails_http_keys, NO_BODY, NULL, true},
        {"GET", "/guardrails/allowlist", guardrails_http_phrases, NO_BODY, NULL, true},
        {"POST", "/guardrails/allowlist", guardrails_http_allow, 16384, NULL, true},
        {"DELETE", "/guardrails/allowlist/{}", guardrails_http_disallow, NO_BODY, NULL, true},
        {"GET", "/guardrails/{}", guardrails_http_get, NO_BODY, NULL, true},
        {"PATCH", "/guardrails/{}", guardrails_http_change, 4u << 20, NULL, true},
        {"DELETE", "/guardrails/{}", guardrails_http_delete, NO_BODY, NULL, true},
        {"GET", "/guardrails/{}/assignments/keys", guardrails_http_keys, NO_BODY, NULL, true},
        {"POST", "/guardrails/{}/assignments/keys", guardrails_http_assign, 131072, NULL, true},
        {"POST", "/guardrails/{}/assignments/keys/remove", guardrails_http_unassign, 131072, NULL, true},
        {"GET", "/observability/destinations", broadcast_http_list, NO_BODY, NULL, true},
        {"POST", "/observability/destinations", broadcast_http_create, 1u << 18, NULL, true},
        {"GET", "/observability/destinations/{}", broadcast_http_get, NO_BODY, NULL, true},
        {"PATCH", "/observability/destinations/{}", broadcast_http_patch, 1u << 18, NULL, true},
        {"DELETE", "/observability/destinations/{}", broadcast_http_delete, NO_BODY, NULL, true},
        {"POST", "/observability/destinations/{}/test", broadcast_http_test, NO_BODY, NULL, true},
        {"POST", "/containers", containers_create, 2u << 20, NULL, false},
        {"GET", "/containers", containers_list, NO_BODY, NULL, false},
        {"GET", "/containers/{}", containers_get, NO_BODY, NULL, false},
        {"DELETE", "/containers/{}", containers_delete, NO_BODY, NULL, false},
        {"POST", "/containers/{}/sleep", containers_sleep, NO_BODY, NULL, false},
        {"GET", "/containers/{}/files", container_files_list, NO_BODY, NULL, false},
        {"POST", "/containers/{}/files", container_files_attach, 65536, container_files_create,
                false},
        {"GET", "/containers/{}/files/{}", container_files_get, NO_BODY, NULL, false},
        {"DELETE", "/containers/{}/files/{}", container_files_delete, NO_BODY, NULL, false},
        {"GET", "/containers/{}/files/{}/content", container_files_content, NO_BODY, NULL, false},
        {"POST", "/containers/{}/files/{}/promote", container_files_promote, NO_BODY, NULL, false},
        {"GET", "/containers/{}/network", network_list, NO_BODY, NULL, false},
        {"POST", "/containers/{}/exec", exec_create, 16u << 20, NULL, false},
        {"GET", "/containers/{}/exec/{}", exec_get, NO_BODY, NULL, false},
        {"DELETE", "/containers/{}/exec/{}", exec_kill, NO_BODY, NULL, false},
        {"POST", "/files", NULL, 0, documents_upload, false},
        {"GET", "/files", documents_list, NO_BODY, NULL, false},
        {"GET", "/files/{}", documents_get, NO_BODY, NULL, false},
        {"DELETE", "/files/{}", documents_delete, NO_BODY, NULL, false},
        {"GET", "/files/{}/content", documents_content, NO_BODY, NULL, false},
        {"POST", "/keys", tenants_key_create, 65536, NULL, true},
        {"GET", "/keys", tenants_key_list, NO_BODY, NULL, true},
        {"GET", "/keys/{}", tenants_key_get, NO_BODY, NULL, true},
        {"PATCH", "/keys/{}", tenants_key_change, 65536, NULL, true},
        {"DELETE", "/keys/{}", tenants_key_revoke, NO_BODY, NULL, true},
        {"GET", "/key", tenants_key_own, NO_BODY, NULL, false},
        {"GET", "/workspaces", tenants_workspace_list, NO_BODY, NULL, true},
        {"POST", "/workspaces", tenants_workspace_create, 65536, NULL, true},
        {"GET", "/workspaces/{}", tenants_workspace_get, NO_BODY, NULL, true},
        {"PATCH", "/workspaces/{}", tenants_workspace_change, 65536, NULL, true},
        {NULL, NULL, NULL, 0, NULL, false},
};

/* Below /v1beta and /v1alpha. Google's newer SDKs say v1, so its methods stand above too. */
static const struct route_entry google_routes[] = {
        {"GET", "/models", models_list, NO_BODY, NULL, false},
        {"GET", "/models/{*}", models_get, NO_BODY, NULL, false},
        {"POST", "/models/{*}:generateContent", gemini_generate, 0, NULL, false},
        {"POST", "/models/{*}:streamGenerateContent", gemini_stream, 0, NULL, false},
        {"POST", "/models/{*}:countTokens", gemini_count, 0, NULL, false},
        {"POST", "/models/{*}", gemini_no_method, NO_BODY, NULL, false},
        /* The AI SDK leaves models/ out where a model's name has a slash. */
        {"POST", "/{*}:generateContent", gemini_generate, 0, NULL, false},
        {"POST", "/{*}:streamGenerateContent", gemini_stream, 0, NULL, false},
        {"POST", "/{*}:countTokens", gemini_count, 0, NULL, false},
        {NULL, NULL, NULL, 0, NULL, false},
};

#define ID_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:"

/* Does path match pattern? Fills the {} parameters. */
static bool path_match(const char *pattern, struct str path, struct str params[2])
{
	size_t n = 0, i = 0;

	for (const char *p = pattern; *p != 0;) {
		if (p[0] != '{') {
			if (i >= path.n || path.p[i] != *p)
				return false;
			i++;
			p++;
			continue;
		}
		if (p[1] == '*') {
			params[n] = (struct str){path.p + i, path.n - i};
			if (!str_ends(params[n], p + strlen("{*}")))
				return false;
			params[n].n -= strlen(p + strlen("{*}"));
			return params[n].n > 0;
		}
		size_t begin = i;

		while (i < path.n && path.p[i] != '/')
			i++;
		params[n] = (struct str){path.p + begin, i - begin};
		if (!str_in_set(params[n], ID_CHARS))
			return false;
		n++;
		p += 2;
	}
	return i == path.n;
}

/* The table that a path belongs to, and what is left of the path. NULL: not ours. */
static const struct route_entry *path_below(struct str path, struct str *ret_rest)
{
	static const struct {
		const char *prefix;
		const struct route_entry *table;
	} prefixes[] = {{"/v1", routes}, {"/api/v1", routes}, {"/v1beta", google_routes},
	        {"/v1alpha", google_routes}};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
		size_t n = strlen(prefixes[i].prefix);

		if (!str_starts(path, prefixes[i].prefix) || path.n == n || path.p[n] != '/')
			continue;
		*ret_rest = (struct str){path.p + n, path.n - n};
		return prefixes[i].table;
	}
	return NULL;
}

/* The route, or NULL; *ret_other is set where the path exists with another method. */
static const struct route_entry *route_find(
        const struct http_exchange *x, struct str params[2], bool *ret_other)
{
	struct str method = http_request_method(x), rest;
	const struct route_entry *at = path_below(http_request_path(x), &rest);

	*ret_other = false;
	for (; at != NULL && at->path != NULL; at++) {
		struct str p[2] = {{NULL, 0}, {NULL, 0}};

		if (!path_match(at->path, rest, p))
			continue;
		if (str_is(method, at->method) ||
		        (str_is(method, "HEAD") && str_is(str_of(at->method), "GET"))) {
			params[0] = p[0];
			params[1] = p[1];
			return at;
		}
		*ret_other = true;
	}
	return NULL;
}

/* Says which methods the path takes. */
static void allow_header(struct http_exchange *x)
{
	char allow[80] = "";
	struct str rest, params[2];
	const struct route_entry *at = path_below(http_request_path(x), &rest);

	for (; at != NULL && at->path != NULL; at++) {
		size_t n = strlen(allow);
		bool get = str_is(str_of(at->method), "GET");

		if (!path_match(at->path, rest, params) || strstr(allow, at->method) != NULL)
			continue;
		str_format(allow + n, sizeof(allow) - n, "%s%s%s", n > 0 ? ", " : "", at->method,
		        get ? ", HEAD" : "");
	}
	http_response_header(x, "Allow", allow);
}

/* ---- keys ---- */

/* What the request says as its key. */
static const struct config_key *named_key(struct gateway *g, struct http_exchange *x)
{
	struct str h = http_request_header(x, "authorization");

	if (h.n > 7 && str_ieq((struct str){h.p, 7}, STR("bearer ")))
		return keys_find(g, str_trim((struct str){h.p + 7, h.n - 7}));
	h = http_request_header(x, "x-api-key");
	if (h.p != NULL)
		return keys_find(g, h);
	h = http_request_header(x, "x-goog-api-key");
	if (h.p != NULL)
		return keys_find(g, h);
	struct buf q = BUF_INIT(1024);
	const struct config_key *k = NULL;

	if (http_query_get(http_request_query(x), "key", &q))
		k = keys_find(g, (struct str){q.data, q.len});
	if (q.data != NULL)
		mem_wipe(q.data, q.len);
	buf_free(&q);
	return k;
}

/* The key that the request may use; NULL: none, and why. e may be NULL. */
static const struct config_key *authenticate(
        struct gateway *g, struct http_exchange *x, struct error *e)
{
	const struct config_key *key = named_key(g, x);

	if (key != NULL && !keys_expired(key))
		return key;
	if (key != NULL)
		error_set(e, ERR_AUTH, "This API key has expired.");
	else
		error_set(e, ERR_AUTH,
		        "No valid API key was given. Send it as `Authorization: Bearer KEY`, "
		        "`x-api-key` or `x-goog-api-key`. A server without `keys` in its "
		        "configuration has one in the file `key` of its data folder.");
	if (e != NULL)
		str_copy(e->type, sizeof(e->type), STR("invalid_api_key"));
	return NULL;
}

static void respond_no_key(struct request *r, const struct error *e)
{
	http_response_header(r->x, "WWW-Authenticate", "Bearer");
	respond_error(r->x, r->under_v1, e);
}

/* ---- answers ---- */

/* Health and metrics. Their asking again and again is no news for the log unless it went wrong. */
static void respond_health(struct gateway *g, struct http_exchange *x)
{
	const struct config_key *key = NULL;
	bool locked = str_is(http_request_path(x), "/metrics") && health_needs_key(x);

	if (locked)
		key = authenticate(g, x, NULL);
	health_answer(g, x, !locked || (key != NULL && key->admin));
}

/* One line for each request, when it is over. Nothing in it was written by the client but its
 * method. */
static void log_request(struct gateway *g, struct http_exchange *x, enum http_gone why)
{
	static const char *const ends[] = {[HTTP_GONE_DONE] = "done",
	        [HTTP_GONE_CLIENT] = "client_left",
	        [HTTP_GONE_STALLED] = "client_stalled",
	        [HTTP_GONE_ABORTED] = "aborted"};
	const struct http_note *note = http_exchange_note(x);
	int status = http_exchange_status(x);
	uint64_t begun = http_exchange_begun_ns(x);

	if (http_exchange_peer_kind(x) == HTTP_PEER_UNIX)
		return; /* the gateway that it came to counts it */
	metrics_request(g, status, begun, note->id[0] != 0);
	if (note->route != NULL && health_is_path(str_of(note->route)) && status == 200)
		return;
	LOG(LOG_INFO, "request", LOG_S("id", note->id), LOG_S("method", note->method),
	        LOG_S("route", note->route), LOG_N("status", status),
	        LOG_N("duration_ms", (clock_mono_ns() - begun) / 1000000), LOG_S("end", ends[why]));
}

/* ---- the server's handler ---- */

/* What the log says of it later: ours, as written in the tables. */
static void note_route(struct http_exchange *x, const struct route_entry *route)
{
	static const char *const plain[] = {"/healthz", "/readyz", "/metrics"};
	struct http_note *note = http_exchange_note(x);

	str_copy(note->method, sizeof(note->method), http_request_method(x));
	note->route = route != NULL ? route->path : NULL;
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
		if (str_is(http_request_path(x), plain[i]))
			note->route = plain[i];
}

/* What counts as one of a key's requests a minute: whatever asks for something to be done. Another
 * gateway has counted what it hands on. */
static bool is_counted(const struct http_exchange *x, const struct route_entry *route)
{
	return str_is(http_request_method(x), "POST") && !route->admin &&
	       http_exchange_peer_kind(x) != HTTP_PEER_UNIX;
}

/*
 * Everything that needs no body is decided here: health, unknown paths, wrong methods, missing
 * keys. So a stranger's 64 MiB are never read.
 */
static int on_head(void *ctx, struct http_exchange *x, size_t *max_body)
{
	struct gateway *g = ctx;
	struct str path = http_request_path(x), params[2];
	const struct route_entry *route;
	bool under_v1 = str_starts(path, "/v1/"), other;
	struct error e;

	route = route_find(x, params, &other);
	note_route(x, route);
	if (health_is_path(path)) {
		*max_body = NO_BODY;
		respond_health(g, x);
		return 0;
	}
	if (web_respond(x))
		return 0;
	if (route == NULL && !other) {
		error_set(&e, ERR_NOT_FOUND,
		        "There is nothing at this path. Paths begin with /api/v1 or /v1, those of "
		        "Google's API also with /v1beta or /v1alpha: POST /v1/responses, for one.");
		respond_error(x, under_v1, &e);
		return 0;
	}
	if (route == NULL) {
		allow_header(x);
		error_set(&e, ERR_UNSUPPORTED, "This path does not take the method %.*s.",
		        (int)http_request_method(x).n, http_request_method(x).p);
		e.http_status = 405;
		respond_error(x, under_v1, &e);
		return 0;
	}
	struct request r = {.g = g, .x = x, .under_v1 = under_v1};

	r.key = authenticate(g, x, &e);
	if (r.key == NULL) {
		respond_no_key(&r, &e);
		return 0;
	}
	if (route->admin && !r.key->admin) {
		error_set(&e, ERR_PERMISSION, "This needs an admin key.");
		respond_error(x, under_v1, &e);
		return 0;
	}
	if (is_counted(x, route) && key_limits_request(&g->shared->key_limits, r.key,
	                                    clock_mono_ns() / 1000, &e) < 0) {
		respond_error(x, under_v1, &e);
		return 0;
	}
	memcpy(r.params, params, sizeof(r.params));
	if (route->begin != NULL && route->begin(&r, max_body))
		return 1;
	if (route->max_body > 0 && route->max_body < *max_body)
		*max_body = route->max_body;
	return 0;
}

static void on_body(void *ctx, struct http_exchange *x, const void *data, size_t n)
{
	if (http_upgraded(x))
		websocket_feed(x, data, n);
	else
		upload_feed(x, data, n);
}

static void on_request(void *ctx, struct http_exchange *x)
{
	struct request r = {.g = ctx, .x = x};
	bool other;
	struct error e;
	const struct route_entry *route = route_find(x, r.params, &other);

	if (health_is_path(http_request_path(x)))
		return; /* its answer is on the way */
	r.under_v1 = str_starts(http_request_path(x), "/v1/");
	if (route == NULL)
		BUG("a request passed on_head and has no route");
	r.key = authenticate(r.g, x, &e);
	if (r.key == NULL) { /* revoked, or expired, while its body came */
		respond_no_key(&r, &e);
		return;
	}
	if (route->admin && http_request_header(x, "idempotency-key").p != NULL) {
		/* An answer that is kept would be a key that is kept. */
		error_param(&e, ERR_UNSUPPORTED, "Idempotency-Key",
		        "This path takes no Idempotency-Key: its answers are not kept.");
		respond_error(x, r.under_v1, &e);
		return;
	}
	if (!idempotency_take(&r, route->handle))
		route->handle(&r);
}

static void on_drain(void *ctx, struct http_exchange *x)
{
	struct owner *o = http_exchange_data(x);

	if (o != NULL && o->on_drain != NULL)
		o->on_drain(o->self);
}

static void on_gone(void *ctx, struct http_exchange *x, enum http_gone why)
{
	struct owner *o = http_exchange_data(x);

	if (o != NULL)
		o->on_gone(o->self, why);
	idempotency_gone(x);
	log_request(ctx, x, why);
}

/* A refusal by the server itself: 400 for bad framing and so on, before any handler has seen it. */
static void on_error_body(void *ctx, struct http_exchange *x, int status, const char *text,
        struct buf *out, const char **content_type)
{
	enum err code = status == 413   ? ERR_TOO_LARGE
	                : status == 415 ? ERR_MEDIA
	                : status == 503 ? ERR_UNAVAILABLE
	                : status == 408 ? ERR_TIMEOUT
	                                : ERR_INVALID;
	struct error e;

	if (http_exchange_begun_ns(x) == 0) /* on_gone() does not come */
		metrics_request(ctx, status, 0, false);
	error_set(&e, code, "%s", text);
	e.http_status = status;
	*content_type = "application/json";
	respond_error_body(
	        x, respond_asks(x), str_starts(http_request_path(x), "/v1/"), NULL, &e, out);
}

bool route_path_decode(struct str in, char *out, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < in.n; i++) {
		int c = (unsigned char)in.p[i];

		if (c == '%') {
			if (in.n - i < 3 || str_hex_digit(in.p[i + 1]) < 0 ||
			        str_hex_digit(in.p[i + 2]) < 0)
				return false;
			c = str_hex_digit(in.p[i + 1]) * 16 + str_hex_digit(in.p[i + 2]);
			i += 2;
		}
		if (c == 0 || n + 1 >= size)
			return false;
		out[n++] = (char)c;
	}
	out[n] = 0;
	return true;
}

void gateway_handler(struct gateway *g, struct http_handler *h)
{
	*h = (struct http_handler){
	        .ctx = g,
	        .on_head = on_head,
	        .on_body = on_body,
	        .on_request = on_request,
	        .on_drain = on_drain,
	        .on_gone = on_gone,
	        .error_body = on_error_body,
	};
}
