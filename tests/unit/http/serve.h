/*
 * The real server on a real socket, with a handler that keeps a record of every exchange. What it
 * does with a request is said by the path: /echo    answers with the body (or "empty") at once
 *   /open    does not answer; the test does, with record.x
 *   /pieces  takes the body in pieces
 *   /early   answers 401 from on_head
 *   /stream  begins an answer in pieces
 * and by hooks, which come first and may return true for "done".
 */
#ifndef BRIG_UNIT_HTTP_SERVE_H
#define BRIG_UNIT_HTTP_SERVE_H

#include "harness.h"

#include "http/server.h"

struct record {
	struct http_exchange *x; /* NULL once gone */
	char method[16], path[128];
	struct buf body; /* what on_body gave */
	size_t n_requests, n_pieces, n_ends, n_drains, n_gone;
	enum http_gone why;
};

enum hook { HOOK_HEAD, HOOK_BODY, HOOK_REQUEST, HOOK_DRAIN, HOOK_GONE };

struct serve {
	struct http_server *server;
	unsigned port;
	struct record **records;
	size_t n_records, cap_records;
	size_t n_errors; /* error_body calls */
	int last_error;
	size_t max_body; /* for on_head; 0: as preset */
	bool (*hook)(struct record *r, struct http_exchange *x, enum hook where);
};

extern struct serve serve;
void serve_start(const struct http_server_options *o); /* NULL: the defaults */
void serve_stop(void);
size_t serve_count(const char *path); /* requests handled with that path */

/* Sends, then reads until the server closes or ms have passed. In 1-byte writes where asked. */
void serve_ask(const char *bytes, size_t n, bool single_bytes, struct buf *ret_answer,
        bool *ret_closed, unsigned ms);
int serve_status(const struct buf *answer); /* of the first answer; 0: none */

#endif
