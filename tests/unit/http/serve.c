#include "serve.h"

#include "base/mem.h"

struct serve serve;

static struct record *record_of(struct http_exchange *x)
{
	return http_exchange_data(x);
}

static bool hooked(struct record *r, struct http_exchange *x, enum hook where)
{
	return serve.hook && serve.hook(r, x, where);
}

static int on_head(void *ctx, struct http_exchange *x, size_t *max_body)
{
	struct record *r = mem_alloc(sizeof(*r));

	assert_ptr_equal(ctx, &serve);
	assert_null(http_exchange_data(x));
	mem_grow(&serve.records, &serve.cap_records, serve.n_records, sizeof(*serve.records));
	serve.records[serve.n_records++] = r;
	r->x = x;
	buf_init(&r->body, 256u << 20);
	str_copy(r->method, sizeof(r->method), http_request_method(x));
	str_copy(r->path, sizeof(r->path), http_request_path(x));
	http_exchange_set_data(x, r);
	if (serve.max_body)
		*max_body = serve.max_body;
	if (hooked(r, x, HOOK_HEAD))
		return 0;
	if (strcmp(r->path, "/early") == 0) {
		http_response_header(x, "WWW-Authenticate", "Bearer");
		http_respond(x, 401, "text/plain", STR("who?"));
	}
	return strcmp(r->path, "/pieces") == 0;
}

static void on_body(void *ctx, struct http_exchange *x, const void *data, size_t n)
{
	struct record *r = record_of(x);

	assert_int_equal(r->n_ends, 0);
	if (n > 0)
		r->n_pieces++;
	else
		r->n_ends++;
	buf_append(&r->body, data, n);
	if (hooked(r, x, HOOK_BODY) || n > 0)
		return;
	http_respond(x, 200, "text/plain", (struct str){buf_cstr(&r->body), r->body.len});
}

static void on_request(void *ctx, struct http_exchange *x)
{
	struct record *r = record_of(x);
	struct str body = http_request_body(x);

	r->n_requests++;
	assert_false(http_started(x));
	if (hooked(r, x, HOOK_REQUEST))
		return;
	if (strcmp(r->path, "/open") == 0)
		return;
	if (strcmp(r->path, "/stream") == 0) {
		http_respond_start(x, 200, "text/event-stream");
		return;
	}
	http_respond(x, 200, "text/plain", body.n > 0 ? body : STR("empty"));
}

static void on_drain(void *ctx, struct http_exchange *x)
{
	struct record *r = record_of(x);

	r->n_drains++;
	hooked(r, x, HOOK_DRAIN);
}

static void on_gone(void *ctx, struct http_exchange *x, enum http_gone why)
{
	struct record *r = record_of(x);

	assert_non_null(r);
	assert_ptr_equal(r->x, x);
	r->n_gone++;
	assert_int_equal(r->n_gone, 1);
	r->why = why;
	hooked(r, x, HOOK_GONE);
	r->x = NULL;
}

static void error_body(void *ctx, struct http_exchange *x, int status, const char *text,
        struct buf *out, const char **content_type)
{
	serve.n_errors++;
	serve.last_error = status;
	assert_true(text && text[0]);
	*content_type = "application/json";
	buf_printf(out, "{\"error\":\"%s\"}", text);
}

void serve_start(const struct http_server_options *o)
{
	struct http_handler h = {
	        &serve, on_head, on_body, on_request, on_drain, on_gone, error_body};
	struct http_server_options defaults;
	struct error err;
	int fd;

	memset(&serve, 0, sizeof(serve));
	http_server_options_default(&defaults);
	serve.server = http_server_new(loop_base(), o ? o : &defaults, &h);
	fd = socket_listen(&serve.port);
	assert_int_equal(http_server_listen(serve.server, fd, &err), 0);
}

void serve_stop(void)
{
	size_t i;

	serve.server = http_server_free(serve.server);
	for (i = 0; i < serve.n_records; i++) {
		assert_int_equal(serve.records[i]->n_gone, 1);
		buf_free(&serve.records[i]->body);
		free(serve.records[i]);
	}
	free(serve.records);
	loop_free();
}

size_t serve_count(const char *path)
{
	size_t i, n = 0;

	for (i = 0; i < serve.n_records; i++)
		n += strcmp(serve.records[i]->path, path) == 0;
	return n;
}

void serve_ask(const char *bytes, size_t n, bool single_bytes, struct buf *ret_answer,
        bool *ret_closed, unsigned ms)
{
	int fd = socket_connect(serve.port);
	size_t i;

	if (single_bytes) {
		for (i = 0; i < n && socket_send(fd, bytes + i, 1); i++)
			event_base_loop(loop_base(), EVLOOP_NONBLOCK);
	} else {
		socket_send(fd, bytes, n);
	}
	*ret_closed = socket_read_all(fd, ret_answer, ms);
	close(fd);
}

int serve_status(const struct buf *answer)
{
	uint64_t status;

	if (answer->len < 12 || !str_starts(str_of(buf_cstr(answer)), "HTTP/1.1 ") ||
	        !str_to_u64((struct str){answer->data + 9, 3}, &status))
		return 0;
	return (int)status;
}
