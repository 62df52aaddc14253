#include "gateway/broadcast_call.h"

#include "base/mem.h"

#include <event2/event.h>
#include <stdlib.h>

#define CONNECT_MS    10000
#define FIRST_BYTE_MS 30000
#define IDLE_MS       15000
#define WHOLE_MS      60000
#define SLOWEST       65536 /* bytes a second that a large body may take beyond that */

struct broadcast_call {
	struct http_fetch *fetch;
	struct event *whole;
	broadcast_call_fn fn;
	void *ctx;
	int status;
	char retry_after[64];
	struct buf body;
};

static void call_free(struct broadcast_call *c)
{
	event_free(c->whole);
	buf_free(&c->body);
	free(c);
}

/* The fetch has ended or was cancelled. */
static void finish(struct broadcast_call *c, const struct error *err)
{
	const struct broadcast_answer a = {
	        .status = c->status,
	        .retry_after =
	                c->retry_after[0] != 0 ? str_of(c->retry_after) : (struct str){NULL, 0},
	        .body = {c->body.data, c->body.len},
	        .err = err,
	};

	c->fn(c->ctx, &a);
	call_free(c);
}

static void on_head(void *ctx, struct http_fetch *f, int status)
{
	struct broadcast_call *c = ctx;

	c->status = status;
	str_copy(c->retry_after, sizeof(c->retry_after), http_fetch_header(f, "retry-after"));
}

/* What comes after the first bytes is not kept; the end is waited for, so that the connection can
 * be used again. */
static void on_data(void *ctx, struct http_fetch *f, const void *data, size_t n)
{
	struct broadcast_call *c = ctx;
	size_t room = TRACE_ANSWER_MAX - c->body.len;

	buf_append(&c->body, data, n < room ? n : room);
}

static void on_end(void *ctx, struct http_fetch *f, const struct error *err)
{
	finish(ctx, err);
}

static void on_whole(evutil_socket_t fd, short what, void *arg)
{
	struct broadcast_call *c = arg;
	struct error err;

	http_fetch_cancel(c->fetch);
	error_set(&err, ERR_TIMEOUT, "the answer took too long");
	finish(c, &err);
}

/* "Name: value" of each, as the client takes them. */
static char **header_lines(const struct trace_request *q)
{
	char **lines = mem_array(q->n_headers + 1, sizeof(*lines));

	for (size_t i = 0; i < q->n_headers; i++) {
		size_t n = strlen(q->headers[i].name) + strlen(q->headers[i].value) + 3;

		lines[i] = mem_alloc(n);
		str_format(lines[i], n, "%s: %s", q->headers[i].name, q->headers[i].value);
	}
	return lines;
}

static void header_lines_free(char **lines)
{
	for (size_t i = 0; lines[i] != NULL; i++) {
		mem_wipe(lines[i], strlen(lines[i]));
		free(lines[i]);
	}
	free(lines);
}

struct broadcast_call *broadcast_call_start(struct event_base *base, struct http_client *client,
        struct trace_request *q, broadcast_call_fn fn, void *ctx, struct error *err)
{
	struct broadcast_call *c = mem_alloc(sizeof(*c));
	const struct http_fetch_handler h = {c, on_head, on_data, on_end};
	struct http_fetch_options o = {
	        .method = q->method,
	        .url = q->url,
	        .connect_timeout_ms = CONNECT_MS,
	        .first_byte_timeout_ms = FIRST_BYTE_MS,
	        .idle_timeout_ms = IDLE_MS,
	};
	char **lines = header_lines(q);
	struct timeval whole = {WHOLE_MS / 1000 + (time_t)(q->body.len / SLOWEST), 0};

	c->fn = fn;
	c->ctx = ctx;
	buf_init(&c->body, TRACE_ANSWER_MAX + 1);
	c->whole = evtimer_new(base, on_whole, c);
	if (c->whole == NULL)
		BUG("no timer for a call");
	o.headers = (const char *const *)lines;
	o.body = buf_steal(&q->body, &o.body_len);
	c->fetch = http_fetch_start(client, &o, &h, err);
	header_lines_free(lines);
	if (c->fetch == NULL) {
		call_free(c);
		return NULL;
	}
	evtimer_add(c->whole, &whole);
	return c;
}

void broadcast_call_cancel(struct broadcast_call *c)
{
	if (c == NULL)
		return;
	http_fetch_cancel(c->fetch);
	call_free(c);
}
