/*
 * evdns may answer from within the call (hosts, addresses) and answers cancelled questions later,
 * so a lookup is an object of its own: it is freed when evdns has answered and the result was
 * delivered or nobody waits any more.
 */
#include "egress/resolve.h"

#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <event2/dns.h>
#include <event2/util.h>
#include <stdlib.h>
#include <string.h>

struct egress_resolver {
	struct event_base *base;
	struct evdns_base *dns;
};

struct egress_lookup {
	egress_resolve_done done; /* NULL: nobody waits */
	void *ctx;
	struct egress_resolver *resolver;
	struct evdns_getaddrinfo_request *request; /* while evdns is at work */
	union egress_address addresses[EGRESS_RESOLVE_MAX];
	size_t n;
};

struct egress_resolver *egress_resolver_new(
        struct event_base *base, const char *resolv_conf, const char *hosts, struct error *err)
{
	struct egress_resolver *r = mem_alloc(sizeof(*r));
	int rc;

	r->base = base;
	r->dns = evdns_base_new(base, EVDNS_BASE_DISABLE_WHEN_INACTIVE);
	if (!r->dns) {
		error_set(err, ERR_NOMEM, "no resolver can be made");
		return egress_resolver_free(r);
	}
	rc = evdns_base_resolv_conf_parse(
	        r->dns, DNS_OPTION_NAMESERVERS | DNS_OPTION_MISC, resolv_conf);
	if (rc != 0) {
		error_set(err, ERR_IO, "%s names no name server that can be used", resolv_conf);
		return egress_resolver_free(r);
	}
	/* Names that this machine gives itself; one that has no such file has none. */
	evdns_base_load_hosts(r->dns, hosts);
	evdns_base_search_clear(r->dns);
	evdns_base_set_option(r->dns, "max-inflight:", "1024");
	evdns_base_set_option(r->dns, "timeout:", "3");
	evdns_base_set_option(r->dns, "attempts:", "3");
	return r;
}

struct egress_resolver *egress_resolver_free(struct egress_resolver *r)
{
	if (!r)
		return NULL;
	if (r->dns)
		evdns_base_free(r->dns, 1);
	free(r);
	return NULL;
}

static void take_family(struct egress_lookup *l, const struct evutil_addrinfo *list, int family)
{
	for (const struct evutil_addrinfo *a = list; a; a = a->ai_next) {
		union egress_address *to = &l->addresses[l->n];

		if (l->n == EGRESS_RESOLVE_MAX)
			return;
		if (a->ai_family != family || a->ai_addrlen > sizeof(*to))
			continue;
		memcpy(to, a->ai_addr, a->ai_addrlen);
		l->n++;
	}
}

static void deliver(evutil_socket_t fd, short what, void *arg)
{
	struct egress_lookup *l = arg;

	if (l->done)
		l->done(l->ctx, l->addresses, l->n);
	free(l);
}

static void on_answer(int result, struct evutil_addrinfo *list, void *arg)
{
	struct egress_lookup *l = arg;
	struct timeval now = {0, 0};

	l->request = NULL;
	if (result == 0 && list) {
		take_family(l, list, AF_INET);
		take_family(l, list, AF_INET6);
	}
	if (list)
		evutil_freeaddrinfo(list);
	if (result == EVUTIL_EAI_CANCEL && !l->done)
		free(l); /* also when the resolver ends, and then no loop runs any more */
	else if (event_base_once(l->resolver->base, -1, EV_TIMEOUT, deliver, l, &now) < 0)
		BUG("no memory for an event");
}

struct egress_lookup *egress_resolve_start(struct egress_resolver *r, const char *name,
        uint16_t port, egress_resolve_done done, void *ctx)
{
	struct evutil_addrinfo hints = {.ai_family = AF_UNSPEC,
	        .ai_socktype = SOCK_STREAM,
	        .ai_flags = EVUTIL_AI_NUMERICSERV};
	struct egress_lookup *l = mem_alloc(sizeof(*l));
	struct evdns_getaddrinfo_request *request;
	char service[8];

	l->done = done;
	l->ctx = ctx;
	l->resolver = r;
	str_format(service, sizeof(service), "%u", port);
	request = evdns_getaddrinfo(r->dns, name, service, &hints, on_answer, l);
	/* Without a request the answer is there already, on its way to us. */
	if (request)
		l->request = request;
	return l;
}

void egress_resolve_cancel(struct egress_lookup *l)
{
	l->done = NULL;
	if (l->request)
		evdns_getaddrinfo_cancel(l->request);
}
