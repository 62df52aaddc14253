/*
 * Answers. A head is written into the server's own buffer and leaves in one write with the body;
 * that of an answer in pieces waits for the first piece, or for the end of the loop step, so that
 * it costs no packet of its own.
 */
#include "http/conn.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { DRAIN_MAX = 65536 }; /* a body's rest that is read and dropped to keep the connection */

static const char *status_text(int status)
{
	static const struct {
		int status;
		const char *text;
	} texts[] = {
	        {200, "OK"},
	        {201, "Created"},
	        {202, "Accepted"},
	        {204, "No Content"},
	        {206, "Partial Content"},
	        {301, "Moved Permanently"},
	        {302, "Found"},
	        {303, "See Other"},
	        {304, "Not Modified"},
	        {307, "Temporary Redirect"},
	        {308, "Permanent Redirect"},
	        {400, "Bad Request"},
	        {401, "Unauthorized"},
	        {402, "Payment Required"},
	        {403, "Forbidden"},
	        {404, "Not Found"},
	        {405, "Method Not Allowed"},
	        {406, "Not Acceptable"},
	        {408, "Request Timeout"},
	        {409, "Conflict"},
	        {410, "Gone"},
	        {411, "Length Required"},
	        {412, "Precondition Failed"},
	        {413, "Content Too Large"},
	        {415, "Unsupported Media Type"},
	        {416, "Range Not Satisfiable"},
	        {417, "Expectation Failed"},
	        {422, "Unprocessable Content"},
	        {423, "Locked"},
	        {424, "Failed Dependency"},
	        {425, "Too Early"},
	        {426, "Upgrade Required"},
	        {428, "Precondition Required"},
	        {429, "Too Many Requests"},
	        {431, "Request Header Fields Too Large"},
	        {500, "Internal Server Error"},
	        {501, "Not Implemented"},
	        {502, "Bad Gateway"},
	        {503, "Service Unavailable"},
	        {504, "Gateway Timeout"},
	        {505, "HTTP Version Not Supported"},
	        {507, "Insufficient Storage"},
	};
	size_t i;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].status == status)
			return texts[i].text;
	return "";
}

/* The handler's calls do nothing once the exchange or its client is gone. */
static bool is_gone(const struct http_exchange *x)
{
	return x->over || x->conn->dead;
}

static void header_check(const char *text, bool is_name)
{
	const char *p;

	if (is_name && !text[0])
		BUG("a header without a name");
	for (p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f || (is_name && (*p == ':' || *p == ' ')))
			BUG("a header of an answer holds byte 0x%02x", (unsigned)(unsigned char)*p);
}

void http_response_header(struct http_exchange *x, const char *name, const char *value)
{
	static const char *const ours[] = {
	        "content-length", "transfer-encoding", "connection", "date"};
	size_t i;

	header_check(name, true);
	header_check(value, false);
	for (i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		if (str_ieq(str_of(name), str_of(ours[i])))
			BUG("the header %s is the server's", name);
	if (is_gone(x))
		return;
	if (x->started)
		BUG("a header %s after the answer began", name);
	if (buf_printf(&x->headers, "%s: %s\r\n", name, value))
		BUG("the headers of an answer are too large");
}

bool http_response_keeps(const struct http_exchange *x)
{
	if (x->conn->close || x->conn->server->draining || !x->head.keep_alive)
		return false;
	return x->wire_done || (!x->head.chunked && !x->expecting && x->body_left <= DRAIN_MAX);
}

/* Status line and headers up to those of the framing, into s->head. */
static struct buf *head_begin(struct http_exchange *x, int status, const char *content_type)
{
	struct http_server *s = x->conn->server;
	struct buf *b = &s->head;

	if (status < 200 || status > 599)
		BUG("status %d", status);
	x->is_head = x->is_head || str_is(http_request_method(x), "HEAD");
	x->no_body = x->is_head || status == 204 || status == 304;
	x->started = true;
	x->status = status;
	buf_reset(b);
	buf_printf(b, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, status_text(status),
	        http_server_date(s));
	if (content_type) {
		header_check(content_type, false);
		buf_puts(b, "Content-Type: ");
		buf_puts(b, content_type);
		buf_puts(b, "\r\n");
	}
	buf_append(b, x->headers.data, x->headers.len);
	buf_free(&x->headers);
	return b;
}

static void head_end(struct http_exchange *x)
{
	struct buf *b = &x->conn->server->head;

	if (!http_response_keeps(x)) {
		x->conn->close = true;
		buf_puts(b, "Connection: close\r\n");
	} else if (x->head.minor == 0) {
		buf_puts(b, "Connection: keep-alive\r\n");
	}
	buf_puts(b, "\r\n");
	if (buf_error(b))
		BUG("the head of an answer is too large");
}

static void head_length(struct http_exchange *x, uint64_t length, int status)
{
	struct buf *b = &x->conn->server->head;

	if (status == 204 || status == 304)
		return;
	buf_puts(b, "Content-Length: ");
	buf_u64(b, length);
	buf_puts(b, "\r\n");
}

/* False: nobody is there to hear it. */
static bool answer_begins(struct http_exchange *x)
{
	if (x->over)
		return false;
	if (x->started && !x->conn->dead)
		BUG("a second answer to one request");
	x->started = true;
	return !x->conn->dead;
}

void http_response_whole(
        struct http_exchange *x, int status, const char *content_type, struct str body)
{
	struct iovec iov[2];
	struct buf *b;

	if (is_gone(x))
		return;
	b = head_begin(x, status, content_type);
	head_length(x, body.n, status);
	head_end(x);
	iov[0] = (struct iovec){b->data, b->len};
	iov[1] = (struct iovec){(void *)(uintptr_t)body.p, x->no_body ? 0 : body.n};
	http_conn_send(x->conn, iov, 2, false);
}

void http_respond(struct http_exchange *x, int status, const char *content_type, struct str body)
{
	struct recorder *c = x->recorder;

	if (!answer_begins(x))
		return;
	if (c && !c->ended) {
		http_record_head(x, status, content_type);
		http_record_body(x, body);
		c->is_whole = true;
		buf_init(&c->whole, body.n + 1);
		buf_append(&c->whole, body.p, body.n);
		http_record_hold(x);
		return;
	}
	http_response_whole(x, status, content_type, body);
	http_finish(x);
}

static void head_later(struct http_exchange *x)
{
	struct buf *b = &x->conn->server->head;
	struct iovec iov = {b->data, b->len};

	http_conn_send(x->conn, &iov, 1, true);
}

void http_respond_start(struct http_exchange *x, int status, const char *content_type)
{
	struct buf *b;

	if (!answer_begins(x))
		return;
	http_record_head(x, status, content_type);
	b = head_begin(x, status, content_type);
	if (status == 204 || status == 304) {
		x->chunked_answer = false;
	} else if (x->head.minor > 0) {
		x->chunked_answer = true;
		buf_puts(b, "Transfer-Encoding: chunked\r\n");
	} else {
		x->conn->close = true; /* the end of the connection is the end of the body */
	}
	head_end(x);
	head_later(x);
}

void http_respond_start_length(
        struct http_exchange *x, int status, const char *content_type, uint64_t length)
{
	if (!answer_begins(x))
		return;
	http_record_head(x, status, content_type);
	head_begin(x, status, content_type);
	head_length(x, length, status);
	head_end(x);
	x->sized_answer = true;
	x->answer_left = length;
	head_later(x);
}

void http_write(struct http_exchange *x, struct str data)
{
	struct http_conn *c = x->conn;
	struct iovec iov[3];
	char size[24];

	if (is_gone(x) || x->finished || data.n == 0 || (x->recorder && x->recorder->holds))
		return;
	if (!x->started)
		BUG("a body before its head");
	if (x->sized_answer) {
		data.n = data.n < x->answer_left ? data.n : (size_t)x->answer_left;
		x->answer_left -= data.n;
	}
	if (x->no_body || data.n == 0)
		return;
	http_record_body(x, data);
	iov[1] = (struct iovec){(void *)(uintptr_t)data.p, data.n};
	if (x->chunked_answer) {
		str_format(size, sizeof(size), "%zx\r\n", data.n);
		iov[0] = (struct iovec){size, strlen(size)};
		iov[2] = (struct iovec){size + strlen(size) - 2, 2};
		http_conn_send(c, iov, 3, false);
	} else {
		http_conn_send(c, iov + 1, 1, false);
	}
	if (http_conn_pending(c) > c->server->o.high_water)
		x->above = true;
}

size_t http_pending(const struct http_exchange *x)
{
	return is_gone(x) ? 0 : http_conn_pending(x->conn);
}

bool http_above_high_water(const struct http_exchange *x)
{
	return !is_gone(x) && x->above;
}

void http_finish(struct http_exchange *x)
{
	static const char last[] = "0\r\n\r\n";
	struct iovec iov = {(void *)(uintptr_t)last, sizeof(last) - 1};

	if (is_gone(x) || x->finished)
		return;
	if (!x->started)
		BUG("the end of an answer that did not begin");
	if (x->sized_answer && !x->no_body && x->answer_left > 0) {
		http_abort(x); /* the client must not take it for whole */
		return;
	}
	if (http_record_hold(x) || (x->recorder && x->recorder->holds))
		return;
	x->finished = true;
	x->discard = true;
	if (x->chunked_answer && !x->no_body)
		http_conn_send(x->conn, &iov, 1, false);
	http_conn_kick(x->conn);
}

void http_abort(struct http_exchange *x)
{
	struct http_conn *c = x->conn;

	if (is_gone(x))
		return;
	/* Without framing only a reset tells a cut answer from a whole one. */
	c->reset = x->started && !x->chunked_answer && !x->sized_answer;
	http_conn_give_up(c, HTTP_GONE_ABORTED);
}

bool http_started(const struct http_exchange *x)
{
	return x->started;
}

void http_response_refuse(struct http_exchange *x, int status, const char *text)
{
	_cleanup_buf_ struct buf body = BUF_INIT(65536);
	const char *content_type = "text/plain; charset=utf-8";
	struct http_conn *c = x->conn;
	bool answered = x->finished;

	c->close = true;
	c->state = CONN_WAIT;
	x->discard = true;
	if (x->started) {
		if (!answered)
			http_abort(x);
		return;
	}
	buf_reset(&x->headers);
	c->server->h.error_body(c->server->h.ctx, x, status, text, &body, &content_type);
	if (status == 503)
		http_response_header(x, "Retry-After", "1");
	if (status == 415)
		http_response_header(x, "Accept-Encoding", "gzip, zstd");
	http_respond(x, status, content_type, (struct str){buf_cstr(&body), body.len});
}
