/*
 * GET /healthz, /readyz and /metrics: for those who watch a server, not for its clients.
 *
 * /healthz: this gateway's loop runs. /readyz: it takes work. The first needs nothing; the second
 * looks at what a request needs, and writes to the store for it, at most once in STORE_MS and never
 * twice at a time, since anybody may ask. What is wrong is told in a word, the rest is in the log.
 *
 * /metrics says how much is going on, so it is for admin keys; and without one for clients of this
 * machine, where a Prometheus beside brig needs no secret. Whoever comes through a proxy on this
 * machine is not of this machine, nor is a page of a browser here that was led to this address by a
 * name of its own.
 */
#include "gateway/metrics.h"

#include "gateway/internal.h"

#include <stdlib.h>

#define STORE_MS      1000
#define STORE_SLOW_MS 2000 /* nobody is told to wait for one that is so slow */
#define SUPERVISOR_MS 10000
#define METRICS_MAX   ((size_t)4 << 20)

bool health_is_path(struct str path)
{
	return str_is(path, "/healthz") || str_is(path, "/readyz") || str_is(path, "/metrics");
}

/* ---- /metrics ---- */

static bool host_is_local(struct str host)
{
	const char *colon = host.n > 0 && host.p[0] != '[' ? memchr(host.p, ':', host.n) : NULL;
	struct str name = colon != NULL ? (struct str){host.p, (size_t)(colon - host.p)} : host;

	return str_ieq(name, STR("localhost")) || str_starts(name, "[::1]") ||
	       (str_starts(name, "127.") && str_in_set(name, "0123456789."));
}

bool health_needs_key(const struct http_exchange *x)
{
	static const char *const proxied[] = {
	        "forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"};

	for (size_t i = 0; i < sizeof(proxied) / sizeof(proxied[0]); i++)
		if (http_request_header_count(x, proxied[i]) > 0)
			return true;
	return http_exchange_peer_kind(x) != HTTP_PEER_LOOPBACK ||
	       !host_is_local(http_request_header(x, "host"));
}

static void answer_metrics(struct gateway *g, struct http_exchange *x, bool may_see)
{
	_cleanup_buf_ struct buf out = BUF_INIT(METRICS_MAX);
	struct error e;

	if (!may_see) {
		error_set(&e, ERR_AUTH,
		        "Metrics need an admin key: `Authorization: Bearer KEY`. Only clients on "
		        "the "
		        "server's own machine need none.");
		http_response_header(x, "WWW-Authenticate", "Bearer");
		respond_error(x, false, &e);
		return;
	}
	metrics_look(g);
	metrics_write(g, &out);
	if (buf_error(&out) < 0)
		http_respond(x, 500, "text/plain", STR("too much\n"));
	else
		http_respond(x, 200, "text/plain; version=0.0.4; charset=utf-8",
		        (struct str){out.data, out.len});
}

/* ---- /readyz ---- */

struct check {
	struct gateway *g;
	struct http_exchange *x; /* NULL: the client has gone */
	struct owner owner;
	int result;
	struct error err;
};

static void say(struct http_exchange *x, const char *wrong)
{
	char text[64];

	http_response_header(x, "Cache-Control", "no-store");
	str_format(text, sizeof(text), "%s\n", wrong != NULL ? wrong : "ok");
	http_respond(x, wrong != NULL ? 503 : 200, "text/plain; charset=utf-8", str_of(text));
}

/* What needs no waiting. NULL: all is well. */
static const char *wrong_at_once(struct gateway *g)
{
	struct error e;
	uint64_t age;

	if (g->draining)
		return "draining";
	metrics_node(g->metrics, &age);
	if (g->options->sup_fd >= 0 && age > SUPERVISOR_MS)
		return "the supervisor does not answer";
	if (gateway_check_room(g, &e) < 0)
		return "the disk is nearly full";
	return NULL;
}

/* A row of the store that is this gateway's own, and nobody reads, is written. */
static void check_work(void *arg)
{
	struct check *c = arg;
	char gateway[GATEWAY_NAME_MAX], name[GATEWAY_NAME_MAX + 8];
	bool held;

	gateway_name(c->g->options->index, gateway);
	str_format(name, sizeof(name), "ready:%s", gateway);
	c->result = store_keeper_take(
	        c->g->store, str_of(name), STR("ready"), clock_wall_ms(), 1, &held, &c->err);
	if (c->result < 0)
		log_text(LOG_ERROR, "store_failed", "%s", c->err.text);
}

static void check_done(void *arg)
{
	struct check *c = arg;

	c->g->store_failed = c->result < 0;
	c->g->store_asked_ms = 0;
	c->g->store_checked_ms = clock_mono_ms();
	if (c->x != NULL) {
		http_exchange_set_data(c->x, NULL);
		say(c->x, c->g->store_failed ? "the store cannot be written" : NULL);
	}
	free(c);
}

static void on_gone(void *self, enum http_gone why)
{
	((struct check *)self)->x = NULL;
}

/* Is it known already, as well as it need be? */
static bool store_is_known(const struct gateway *g, bool *ret_failed)
{
	uint64_t now = clock_mono_ms();

	*ret_failed = g->store_failed ||
	              (g->store_asked_ms > 0 && now - g->store_asked_ms > STORE_SLOW_MS);
	return g->store_asked_ms > 0 ||
	       (g->store_checked_ms > 0 && now - g->store_checked_ms < STORE_MS);
}

static void answer_ready(struct gateway *g, struct http_exchange *x)
{
	const char *wrong = wrong_at_once(g);
	struct check *c;
	bool failed;

	if (wrong != NULL || store_is_known(g, &failed)) {
		say(x, wrong == NULL && failed ? "the store cannot be written" : wrong);
		return;
	}
	c = mem_alloc(sizeof(*c));
	*c = (struct check){.g = g, .x = x};
	c->owner = (struct owner){NULL, on_gone, c};
	http_exchange_set_data(x, &c->owner);
	g->store_asked_ms = clock_mono_ms();
	if (pool_run(g->pool, check_work, check_done, c))
		return;
	g->store_asked_ms = 0;
	http_exchange_set_data(x, NULL);
	free(c);
	say(x, "the server has too much to do");
}

void health_answer(struct gateway *g, struct http_exchange *x, bool may_see)
{
	struct str path = http_request_path(x), method = http_request_method(x);
	struct error e;

	if (!str_is(method, "GET") && !str_is(method, "HEAD")) {
		http_response_header(x, "Allow", "GET, HEAD");
		error_set(&e, ERR_UNSUPPORTED, "This path takes GET and HEAD only.");
		e.http_status = 405;
		respond_error(x, false, &e);
	} else if (str_is(path, "/metrics")) {
		answer_metrics(g, x, may_see);
	} else if (str_is(path, "/readyz")) {
		answer_ready(g, x);
	} else {
		say(x, NULL);
	}
}
