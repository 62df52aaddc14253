#include "http/record.h"

#include "base/mem.h"
#include "http/conn.h"

#include <stdlib.h>

void http_record_start(struct http_exchange *x, size_t max, http_record_fn fn, void *ctx)
{
	struct recorder *c = mem_alloc(sizeof(*c));

	if (x->started || x->recorder)
		BUG("a record of an answer that has begun");
	c->fn = fn;
	c->ctx = ctx;
	c->max = max;
	buf_init(&c->record.headers, 65536);
	buf_init(&c->record.body, max);
	x->recorder = c;
}

void *http_record_ctx(const struct http_exchange *x)
{
	return x->recorder ? x->recorder->ctx : NULL;
}

void http_record_head(struct http_exchange *x, int status, const char *content_type)
{
	struct recorder *c = x->recorder;

	if (!c || c->ended)
		return;
	c->record.status = status;
	if (content_type)
		str_copy(c->record.type, sizeof(c->record.type), str_of(content_type));
	buf_append(&c->record.headers, x->headers.data, x->headers.len);
}

void http_record_body(struct http_exchange *x, struct str data)
{
	struct recorder *c = x->recorder;

	if (!c || c->ended || c->record.too_large)
		return;
	if (data.n > c->max - c->record.body.len) {
		c->record.too_large = true;
		buf_free(&c->record.body);
		return;
	}
	buf_append(&c->record.body, data.p, data.n);
}

bool http_record_hold(struct http_exchange *x)
{
	struct recorder *c = x->recorder;

	if (!c || c->ended)
		return false;
	c->ended = c->holds = true;
	c->fn(c->ctx, x, &c->record);
	return true;
}

void http_record_end(struct http_exchange *x)
{
	struct recorder *c = x->recorder;

	if (!c || !c->holds)
		return;
	c->holds = false;
	if (c->whole.data || c->is_whole)
		http_response_whole(x, c->record.status, c->record.type[0] ? c->record.type : NULL,
		        (struct str){c->whole.data, c->whole.len});
	http_finish(x);
}

struct recorder *http_record_free(struct recorder *c)
{
	if (!c)
		return NULL;
	buf_free(&c->record.headers);
	buf_free(&c->record.body);
	buf_free(&c->whole);
	free(c);
	return NULL;
}
