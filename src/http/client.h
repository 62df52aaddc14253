/*
 * HTTP client: libcurl multi on the caller's libevent loop, HTTP/1.1, connections kept and reused.
 *
 * Names are resolved on the thread pool and handed to curl (CURLOPT_RESOLVE), so that the loop
 * never waits for DNS and a fetch can be cancelled in any phase at once. Redirects are off, no
 * proxy is taken from the environment, only http and https. Content coding is refused (identity
 * asked for; a coded answer that arrives all the same is decoded by curl). Everything on the loop's
 * thread; callbacks are never made from inside http_fetch_start or http_fetch_cancel, and a fetch
 * may be cancelled from inside any of its callbacks.
 */
#ifndef BRIG_HTTP_CLIENT_H
#define BRIG_HTTP_CLIENT_H

#include "base/error.h"
#include "base/str.h"
#include "http/pool.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct http_client;
struct http_fetch;

/* pool: for looking up names, at most 3 at once; must outlive the client. */
struct http_client *http_client_new(struct event_base *base, struct pool *pool);
/* Cancels every fetch. Not from inside a callback. */
struct http_client *http_client_free(struct http_client *c);

/* May this address be connected to? NULL: yes; else why not (static text). On the loop's thread. */
typedef const char *(*http_client_guard_fn)(void *ctx, const struct sockaddr *address);
/*
 * Asks of every address, be it from a name or from the URL, at the connect itself: no other is
 * connected to than the one that was judged. To be called before the first fetch, since a kept
 * connection is not judged again. A fetch that has no other address ends with ERR_PERMISSION.
 */
void http_client_guard(struct http_client *c, http_client_guard_fn fn, void *ctx);

struct http_fetch_handler {
	void *ctx;
	/* Status line and headers are here. header() may be asked inside this call only. */
	void (*on_head)(void *ctx, struct http_fetch *f, int status);
	/* Body bytes. */
	void (*on_data)(void *ctx, struct http_fetch *f, const void *data, size_t n);
	/* The end, exactly once, unless cancelled: err is NULL for a complete answer of any status.
	 * err->code: ERR_UPSTREAM (resolve, connect, TLS, cut in mid-answer, malformed),
	 * ERR_TIMEOUT, ERR_PERMISSION (http_client_guard()). The fetch is dead afterwards. */
	void (*on_end)(void *ctx, struct http_fetch *f, const struct error *err);
};

/* A time limit of 0 is the default, which stands beside it. */
struct http_fetch_options {
	const char *method; /* "POST" */
	const char *url;    /* http:// or https:// */
	const char *const
	        *headers; /* "Name: value", NULL-terminated; copied. Secrets are wiped after use */
	char *body;       /* malloc'ed; taken over (also on failure), freed at the end */
	size_t body_len;
	unsigned resolve_timeout_ms;    /* 10,000 */
	unsigned connect_timeout_ms;    /* 10,000 */
	unsigned first_byte_timeout_ms; /* from the request's end to the first byte of the answer;
	                                   here 0 is none; 600,000 is usual */
	unsigned idle_timeout_ms; /* without a byte once the answer has begun, or while the body is
	                             sent: 120,000; not counted while paused */
	const char *unix_socket;  /* not NULL: connect there; the URL then only names the request */
	const char *ca_file;      /* NULL: the system's */
};

/* NULL: -ERR_INVALID (URL, method, a header; Content-Length is ours), -ERR_NOMEM in err. */
struct http_fetch *http_fetch_start(struct http_client *c, const struct http_fetch_options *o,
        const struct http_fetch_handler *h, struct error *err);
/* Response header, first of that name; inside on_head. */
struct str http_fetch_header(const struct http_fetch *f, const char *name);
void http_fetch_pause(
        struct http_fetch *f, bool paused); /* on_data stops; bytes wait in the kernel */
void http_fetch_cancel(
        struct http_fetch *f); /* closes the connection now; no callback afterwards */
/* When (clock_mono_ns) the request's first byte went out and the answer's first came; 0: not yet.
 */
uint64_t http_fetch_sent_ns(const struct http_fetch *f);
uint64_t http_fetch_first_byte_ns(const struct http_fetch *f);

#endif
