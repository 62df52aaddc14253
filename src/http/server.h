/*
 * A strict HTTP/1.1 server on one libevent loop (DESIGN section 10). Every object belongs to the
 * loop's thread.
 *
 * Strict: what RFC 9112 calls an error is answered 400 and the connection closed: bare LF or CR,
 * space before a colon, obs-fold, both Content-Length and Transfer-Encoding, two different or
 * malformed lengths, a transfer coding other than exactly "chunked", bad chunk sizes, extensions
 * over a bound, control bytes, a missing or second Host, a bad method or target, HTTP/0.9, 1.0 with
 * chunked, … . Requests on one connection are handled one after the other; pipelined bytes wait in
 * the socket.
 *
 * Flow: head read and checked → on_head decides how the body is taken → body → on_request → the
 * handler answers, at once or later. An exchange lives until on_gone, which is called exactly once,
 * after which the pointer is dead. A client that closes (also half-closes) while the exchange is
 * open is noticed within the loop step, whether or not reading is paused: on_gone with
 * HTTP_GONE_CLIENT. (Where it sent more than the kernel keeps and nobody reads, its end stands
 * behind those bytes and is noticed with the next write, or when reading goes on.) One that closes
 * its half and is answered within the same step still gets its answer.
 */
#ifndef BRIG_HTTP_SERVER_H
#define BRIG_HTTP_SERVER_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#include <event2/event.h>
#include <event2/util.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_server;
struct http_exchange;

enum http_gone { HTTP_GONE_DONE, HTTP_GONE_CLIENT, HTTP_GONE_STALLED, HTTP_GONE_ABORTED };

/*
 * All callbacks are made from the loop, never from inside a call of this header's functions (but
 * http_server_free: on_gone), and every function of an exchange may be called in each of them.
 * on_gone is called exactly once for an exchange that on_head was called for, and never for a
 * request that the server refused before; one that it refuses later (in the body) ends with
 * HTTP_GONE_DONE. on_body and on_drain may be NULL.
 */
struct http_handler {
	void *ctx;
	/*
	 * The head is complete and well-formed. Return 0 to read the body into memory (at most
	 * *max_body decoded bytes, preset to the server's limit), or 1 to take it in pieces through
	 * on_body; or answer at once with http_respond and return 0 (the body is then drained or
	 * the connection closed).
	 */
	int (*on_head)(void *ctx, struct http_exchange *x, size_t *max_body);
	/* A piece of a body taken in pieces; n == 0 is its end. http_body_pause() stops more. */
	void (*on_body)(void *ctx, struct http_exchange *x, const void *data, size_t n);
	/* The whole body is here (http_request_body). Not called when on_body took it, nor after an
	 * early answer. */
	void (*on_request)(void *ctx, struct http_exchange *x);
	/* What waits to be sent has fallen below low water after it was above high water. */
	void (*on_drain)(void *ctx, struct http_exchange *x);
	/* The exchange is over; drop every reference. */
	void (*on_gone)(void *ctx, struct http_exchange *x, enum http_gone why);
	/*
	 * The server itself refuses a request (400, 408, 411, 413, 415, 431, 501, 505 …): writes
	 * the body in the API's own envelope, and may add headers. x may have no target yet
	 * (http_request_target is then {NULL,0}).
	 */
	void (*error_body)(void *ctx, struct http_exchange *x, int status, const char *text,
	        struct buf *out, const char **content_type);
};

struct http_server_options {
	size_t max_head;        /* request line and headers together; 431 above. Default 65,536 */
	size_t max_headers;     /* default 100 */
	size_t max_body;        /* decoded bytes; 413 above. Default 64 MiB */
	size_t max_in_flight;   /* body bytes of all exchanges together; 503 above. Default 1 GiB */
	size_t max_connections; /* default 16,384 */
	unsigned head_timeout_ms;  /* from the first byte to the end of the head: 10,000 */
	unsigned body_timeout_ms;  /* without a byte: 30,000 */
	unsigned idle_timeout_ms;  /* a kept-alive connection between requests: 75,000 */
	unsigned write_timeout_ms; /* bytes wait and the client takes none: 120,000 →
	                              HTTP_GONE_STALLED */
	size_t high_water;         /* 262,144 */
	size_t low_water;          /* 65,536 */
};
void http_server_options_default(struct http_server_options *o);

struct http_server *http_server_new(
        struct event_base *base, const struct http_server_options *o, const struct http_handler *h);
/* Takes a listening socket (bound and listening, nonblocking is set here). May be called more than
 * once. */
int http_server_listen(struct http_server *s, evutil_socket_t fd, struct error *err);
/* Stops accepting, closes idle connections, lets open exchanges finish with `Connection: close`. */
void http_server_drain(struct http_server *s);
size_t http_server_open_exchanges(const struct http_server *s);
size_t http_server_connections(const struct http_server *s);
/* on_gone for every open exchange. Not from inside a callback. */
struct http_server *http_server_free(struct http_server *s);

/* ---- the request ---- */

struct str http_request_method(
        const struct http_exchange *x); /* HEAD is reported as HEAD; its answer's body is dropped */
struct str http_request_target(
        const struct http_exchange *x); /* as sent, query included: never log it */
struct str http_request_path(const struct http_exchange *x);  /* without the query, not decoded */
struct str http_request_query(const struct http_exchange *x); /* after '?', not decoded */
struct str http_request_header(const struct http_exchange *x,
        const char *name); /* first of that name, trimmed; case ignored */
size_t http_request_header_count(const struct http_exchange *x, const char *name);
struct str http_request_body(
        const struct http_exchange *x); /* decoded (gzip, zstd); lives until on_gone */
/* Takes the body's bytes over (free() them); afterwards http_request_body is empty. */
char *http_request_take_body(struct http_exchange *x, size_t *ret_len);
/*
 * The handler needs the request no more (method, target, headers, body become absent): frees their
 * memory and takes it from max_in_flight; but a body that was taken over counts until on_gone, as
 * the handler works on it. For streams that stay open long. No effect while the body is still being
 * read.
 */
void http_request_release(struct http_exchange *x);
void http_body_pause(struct http_exchange *x, bool paused);
/* Value of one query parameter, percent-decoded into out. False when absent; -1-free: a bad escape
 * is absent. */
bool http_query_get(struct str query, const char *name, struct buf *out);

/* What the handler wants to be known of an exchange when it is gone; the server itself reads none
 * of it. */
struct http_note {
	const char *route; /* static text, or NULL */
	char method[12];
	char id[48];
};
struct http_note *http_exchange_note(struct http_exchange *x);
/* Of the answer, 101 for an upgrade; 0: none has begun. */
int http_exchange_status(const struct http_exchange *x);
uint64_t http_exchange_begun_ns(const struct http_exchange *x); /* monotonic: its head was whole */
enum http_peer { HTTP_PEER_REMOTE, HTTP_PEER_LOOPBACK, HTTP_PEER_UNIX };
enum http_peer http_exchange_peer_kind(const struct http_exchange *x);

/* One pointer of the handler's own. */
void http_exchange_set_data(struct http_exchange *x, void *data);
void *http_exchange_data(const struct http_exchange *x);
const char *http_exchange_peer(const struct http_exchange *x); /* "127.0.0.1:4242" */

/*
 * Makes the connection a WebSocket (upgrade.c), in on_request or later: from then on on_body gets
 * all bytes that come, http_write() sends bytes as they are, and http_finish() closes once they are
 * out. http_body_pause(), high water and on_gone are as for bodies. 0; or -400 or -426 where the
 * request does not ask for it as RFC 6455 demands: *ret_text says why, and nothing was sent.
 */
int http_upgrade_websocket(struct http_exchange *x, const char **ret_text);
bool http_upgraded(const struct http_exchange *x);

/* ---- the answer ---- */

/* Adds a header to the answer; before it starts. Control bytes in name or value are a BUG. */
void http_response_header(struct http_exchange *x, const char *name, const char *value);
/* A whole answer with Content-Length. body is copied. */
void http_respond(struct http_exchange *x, int status, const char *content_type, struct str body);
/* An answer in pieces (chunked; close-delimited for HTTP/1.0). */
void http_respond_start(struct http_exchange *x, int status, const char *content_type);
/* Or in pieces with a known length. */
void http_respond_start_length(
        struct http_exchange *x, int status, const char *content_type, uint64_t length);
/* Appends and sends; one call is one write where the socket has room. Copied. No-op after the
 * client has gone. */
void http_write(struct http_exchange *x, struct str data);
size_t http_pending(const struct http_exchange *x); /* bytes not yet taken by the kernel */
bool http_above_high_water(const struct http_exchange *x);
void http_finish(struct http_exchange
                *x); /* the answer is complete; on_gone(HTTP_GONE_DONE) once the bytes are out */
void http_abort(struct http_exchange *x);         /* closes the connection without a clean end */
bool http_started(const struct http_exchange *x); /* a status line has been sent */

#endif
