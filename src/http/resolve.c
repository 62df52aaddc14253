/*
 * Theory of operation: a lookup holds the list of those who wait for it and goes to the pool when
 * fewer than LOOKUPS_MAX run, so that hanging name servers cannot take every thread; the others
 * stand in a queue. A waiter that leaves is only taken from the list. A lookup on the pool outlives
 * the resolver if need be: then its resolver pointer is NULL, and what it finds is thrown away.
 */
#include "http/resolve.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

enum { LOOKUPS_MAX = 3, CACHE_MAX = 64, CACHE_MS = 30000 };

struct http_resolve_wait {
	TAILQ_ENTRY(http_resolve_wait) link;
	struct lookup *lookup;
	http_resolve_done done;
	void *ctx;
};
TAILQ_HEAD(wait_list, http_resolve_wait);

struct lookup {
	TAILQ_ENTRY(lookup) link;
	struct http_resolver *resolver;
	struct wait_list waits;
	bool running;
	char host[HTTP_RESOLVE_NAME];
	http_resolve_fn fn;
	struct http_resolve_answer answer; /* the pool thread's until done */
};
TAILQ_HEAD(lookup_list, lookup);

struct cached {
	TAILQ_ENTRY(cached) link;
	uint64_t until_ms;
	char host[HTTP_RESOLVE_NAME];
	struct http_resolve_answer answer;
};

struct http_resolver {
	struct pool *pool;
	struct lookup_list lookups; /* running and queued, oldest first */
	TAILQ_HEAD(, cached) cache; /* oldest first */
	size_t n_cached, n_running;
};

static void resolve_by_system(const char *host, struct http_resolve_answer *ret_answer);
http_resolve_fn http_resolve_lookup = resolve_by_system;

static void resolve_by_system(const char *host, struct http_resolve_answer *ret_answer)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
	char text[INET6_ADDRSTRLEN];
	struct addrinfo *list = NULL, *a;
	size_t len = 0;
	int r = getaddrinfo(host, NULL, &hints, &list);

	if (r) {
		str_copy(ret_answer->failure, sizeof(ret_answer->failure),
		        str_of(r == EAI_SYSTEM ? strerror(errno) : gai_strerror(r)));
		return;
	}
	for (a = list; a; a = a->ai_next) {
		bool six = a->ai_family == AF_INET6;
		const void *raw;

		if (six)
			raw = &((struct sockaddr_in6 *)(void *)a->ai_addr)->sin6_addr;
		else
			raw = &((struct sockaddr_in *)(void *)a->ai_addr)->sin_addr;
		if ((!six && a->ai_family != AF_INET) ||
		        !inet_ntop(a->ai_family, raw, text, sizeof(text)))
			continue;
		if (len + strlen(text) + 4 > sizeof(ret_answer->addresses))
			break;
		str_format(ret_answer->addresses + len, sizeof(ret_answer->addresses) - len,
		        six ? "%s[%s]" : "%s%s", len ? "," : "", text);
		len = strlen(ret_answer->addresses);
	}
	freeaddrinfo(list);
	if (len == 0)
		str_copy(ret_answer->failure, sizeof(ret_answer->failure),
		        STR("the name has no address"));
}

/* ---- the cache ---- */

static void cache_drop(struct http_resolver *r, struct cached *c)
{
	TAILQ_REMOVE(&r->cache, c, link);
	r->n_cached--;
	free(c);
}

const struct http_resolve_answer *http_resolver_cached(struct http_resolver *r, const char *host)
{
	uint64_t now = clock_mono_ms();
	struct cached *c;

	while ((c = TAILQ_FIRST(&r->cache)) && c->until_ms <= now)
		cache_drop(r, c);
	TAILQ_FOREACH(c, &r->cache, link)
	{
		if (strcmp(c->host, host) == 0)
			return &c->answer;
	}
	return NULL;
}

void http_resolver_forget(struct http_resolver *r, const char *host)
{
	struct cached *c;

	TAILQ_FOREACH(c, &r->cache, link)
	{
		if (strcmp(c->host, host) == 0) {
			cache_drop(r, c);
			return;
		}
	}
}

static void cache_put(
        struct http_resolver *r, const char *host, const struct http_resolve_answer *answer)
{
	struct cached *c = mem_alloc(sizeof(*c));

	http_resolver_forget(r, host);
	if (r->n_cached == CACHE_MAX)
		cache_drop(r, TAILQ_FIRST(&r->cache));
	str_copy(c->host, sizeof(c->host), str_of(host));
	c->answer = *answer;
	c->until_ms = clock_mono_ms() + CACHE_MS;
	TAILQ_INSERT_TAIL(&r->cache, c, link);
	r->n_cached++;
}

/* ---- lookups ---- */

static void lookup_work(void *arg)
{
	struct lookup *l = arg;

	l->fn(l->host, &l->answer);
}

static void lookup_answer(struct lookup *l)
{
	struct http_resolve_wait *w;

	/* One at a time from the front: a waiter's callback may cancel others. */
	while ((w = TAILQ_FIRST(&l->waits))) {
		http_resolve_done done = w->done;
		void *ctx = w->ctx;

		http_resolve_cancel(w);
		done(ctx, &l->answer);
	}
}

static void lookup_done(void *arg);

static void lookups_go_on(struct http_resolver *r)
{
	struct lookup *l, *next;

	for (l = TAILQ_FIRST(&r->lookups); l && r->n_running < LOOKUPS_MAX; l = next) {
		next = TAILQ_NEXT(l, link);
		if (l->running)
			continue;
		if (TAILQ_EMPTY(&l->waits)) { /* all left before it began */
			TAILQ_REMOVE(&r->lookups, l, link);
			free(l);
			continue;
		}
		/* A full pool: tried again when a lookup ends, and the waiters have time-outs. */
		if (!pool_run(r->pool, lookup_work, lookup_done, l))
			return;
		l->running = true;
		r->n_running++;
	}
}

static void lookup_done(void *arg)
{
	struct lookup *l = arg;
	struct http_resolver *r = l->resolver;

	if (!r) {
		free(l);
		return;
	}
	TAILQ_REMOVE(&r->lookups, l, link);
	r->n_running--;
	if (!l->answer.failure[0])
		cache_put(r, l->host, &l->answer);
	lookups_go_on(r);
	lookup_answer(l);
	free(l);
}

struct http_resolve_wait *http_resolver_start(struct http_resolver *r, const char *host,
        http_resolve_done done, void *ctx, struct error *err)
{
	struct http_resolve_wait *w;
	struct lookup *l;

	if (strlen(host) >= HTTP_RESOLVE_NAME) {
		error_set(err, ERR_INVALID, "the host's name is too long");
		return NULL;
	}
	TAILQ_FOREACH(l, &r->lookups, link)
	{
		if (strcmp(l->host, host) == 0)
			break;
	}
	if (!l) {
		l = mem_alloc(sizeof(*l));
		l->resolver = r;
		l->fn = http_resolve_lookup;
		TAILQ_INIT(&l->waits);
		str_copy(l->host, sizeof(l->host), str_of(host));
		TAILQ_INSERT_TAIL(&r->lookups, l, link);
	}
	w = mem_alloc(sizeof(*w));
	w->lookup = l;
	w->done = done;
	w->ctx = ctx;
	TAILQ_INSERT_TAIL(&l->waits, w, link);
	lookups_go_on(r);
	return w;
}

void http_resolve_cancel(struct http_resolve_wait *w)
{
	TAILQ_REMOVE(&w->lookup->waits, w, link);
	free(w);
}

struct http_resolver *http_resolver_new(struct pool *pool)
{
	struct http_resolver *r = mem_alloc(sizeof(*r));

	r->pool = pool;
	TAILQ_INIT(&r->lookups);
	TAILQ_INIT(&r->cache);
	return r;
}

struct http_resolver *http_resolver_free(struct http_resolver *r)
{
	struct cached *c;
	struct lookup *l;

	if (!r)
		return NULL;
	while ((c = TAILQ_FIRST(&r->cache)))
		cache_drop(r, c);
	while ((l = TAILQ_FIRST(&r->lookups))) {
		TAILQ_REMOVE(&r->lookups, l, link);
		while (!TAILQ_EMPTY(&l->waits))
			http_resolve_cancel(TAILQ_FIRST(&l->waits));
		if (l->running)
			l->resolver = NULL;
		else
			free(l);
	}
	free(r);
	return NULL;
}
