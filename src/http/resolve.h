/*
 * Names to addresses for the client: getaddrinfo on the pool, a small cache, one lookup at a time
 * for one name. Everything but the lookup itself on the loop's thread.
 */
#ifndef BRIG_HTTP_RESOLVE_H
#define BRIG_HTTP_RESOLVE_H

#include "base/error.h"
#include "http/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_RESOLVE_TEXT = 512, HTTP_RESOLVE_NAME = 256 };

struct http_resolve_answer {
	char addresses[HTTP_RESOLVE_TEXT]; /* "127.0.0.1,[::1]", as CURLOPT_RESOLVE takes them */
	char failure[128];                 /* why there are none, or "" */
};

/* Runs on a pool thread and may block. Tests put their own in its place before a client is made. */
typedef void (*http_resolve_fn)(const char *host, struct http_resolve_answer *ret_answer);
extern http_resolve_fn http_resolve_lookup;

struct http_resolver;
struct http_resolve_wait;
/* Called from the loop, never from inside http_resolver_start. */
typedef void (*http_resolve_done)(void *ctx, const struct http_resolve_answer *answer);

struct http_resolver *http_resolver_new(struct pool *pool);
/* Nobody waits any more; lookups that hang end on their own, later. */
struct http_resolver *http_resolver_free(struct http_resolver *r);
/* The cached answer of host (lower case), or NULL. Valid until the next call. */
const struct http_resolve_answer *http_resolver_cached(struct http_resolver *r, const char *host);
/* Forgets it: nobody answered there. */
void http_resolver_forget(struct http_resolver *r, const char *host);
struct http_resolve_wait *http_resolver_start(struct http_resolver *r, const char *host,
        http_resolve_done done, void *ctx, struct error *err);
void http_resolve_cancel(struct http_resolve_wait *w); /* at once; done is not called */

#endif
