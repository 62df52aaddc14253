/*
 * Both kinds of addresses are asked for at once. When the first answer holds some, the other kind
 * has OTHER_MS left: a name server that never answers one of them must not hold everybody up.
 *
 * evdns speaks UDP only, and an answer that was cut off is asked for again over TCP, of the first
 * name server (again.c).
 *
 * evdns answers later, also a question that was cancelled, so a lookup is an object of its own: it
 * is freed when evdns has answered both and the result was delivered or nobody waits any more.
 */
#include "egress/resolve.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "egress/again.h"
#include "egress/sources.h"
#include "proto/egress.h"

#include <errno.h>
#include <event2/dns.h>
#include <event2/event_struct.h>
#include <event2/util.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OTHER_MS = 500, RESOLV_CONF_MAX = 65536, HOSTS_MAX = 4 << 20 };

LIST_HEAD(egress_lookups, egress_lookup);

struct egress_resolver {
	struct event_base *base;
	struct evdns_base *dns;
	struct egress_hosts *hosts;
	union address servers[EGRESS_SERVERS_MAX];
	size_t n_servers;
	struct egress_lookups lookups;
};

struct question {
	struct egress_lookup *lookup;
	struct evdns_request *request; /* while evdns is at work */
	struct egress_again *again;    /* while it is asked over TCP */
	int family;
};

struct egress_lookup {
	LIST_ENTRY(egress_lookup) link;
	egress_resolve_done done; /* NULL: nobody waits */
	void *ctx;
	struct egress_resolver *resolver;
	struct event deliver;
	struct question questions[2]; /* A, AAAA */
	char name[EGRESS_NAME_MAX + 1];
	uint16_t port;
	union address addresses[2][EGRESS_RESOLVE_MAX];
	size_t n[2];
	const char *failure;
};

/* ---- what is asked ---- */

static char *read_text(int fd, size_t max, size_t *ret_len, const char *what, struct error *err)
{
	struct stat st;
	ssize_t n = 0;
	char *text;

	if (fstat(fd, &st) < 0 || st.st_size < 0 || (uint64_t)st.st_size > max) {
		error_set(err, ERR_IO, "%s is too large, or cannot be read", what);
		return NULL;
	}
	text = mem_alloc((size_t)st.st_size + 1);
	if (S_ISREG(st.st_mode))
		n = pread(fd, text, (size_t)st.st_size, 0);
	if (n < 0) {
		error_errno(err, errno, "reading %s", what);
		free(text);
		return NULL;
	}
	*ret_len = (size_t)n;
	return text;
}

static void use_servers(struct egress_resolver *r)
{
	evdns_base_clear_nameservers_and_suspend(r->dns);
	for (size_t i = 0; i < r->n_servers; i++) {
		const union address *a = &r->servers[i];

		if (evdns_base_nameserver_sockaddr_add(r->dns, &a->sa, address_len(a), 0) !=
		        0)
			LOG(LOG_WARN, "egress_name_server", LOG_N("number", i));
	}
	evdns_base_resume(r->dns);
}

int egress_resolver_sources(
        struct egress_resolver *r, int resolv_conf, int hosts, struct error *err)
{
	_cleanup_free_ char *servers_text = NULL, *hosts_text = NULL;
	union address servers[EGRESS_SERVERS_MAX] = {0};
	size_t len, hosts_len, n;

	servers_text = read_text(resolv_conf, RESOLV_CONF_MAX, &len, "resolv.conf", err);
	if (!servers_text)
		return -ERR_IO;
	hosts_text = read_text(hosts, HOSTS_MAX, &hosts_len, "hosts", err);
	if (!hosts_text)
		return -ERR_IO;
	n = egress_servers_read((struct str){servers_text, len}, servers);
	if (n == 0)
		return error_set(err, ERR_IO, "resolv.conf names no name server that can be used");
	egress_hosts_free(r->hosts);
	r->hosts = egress_hosts_read((struct str){hosts_text, hosts_len});
	LOG(LOG_INFO, "egress_sources", LOG_N("name_servers", n),
	        LOG_N("hosts", egress_hosts_count(r->hosts)));
	if (n == r->n_servers && memcmp(servers, r->servers, sizeof(servers)) == 0)
		return 0;
	memcpy(r->servers, servers, sizeof(servers));
	r->n_servers = n;
	use_servers(r);
	return 0;
}

struct egress_resolver *egress_resolver_new(struct event_base *base, struct error *err)
{
	struct egress_resolver *r = mem_alloc(sizeof(*r));

	r->base = base;
	LIST_INIT(&r->lookups);
	r->hosts = egress_hosts_read(STR(""));
	r->dns = evdns_base_new(base, EVDNS_BASE_DISABLE_WHEN_INACTIVE);
	if (!r->dns) {
		error_set(err, ERR_NOMEM, "no resolver can be made");
		return egress_resolver_free(r);
	}
	evdns_base_set_option(r->dns, "max-inflight:", "1024");
	evdns_base_set_option(r->dns, "timeout:", "3");
	evdns_base_set_option(r->dns, "attempts:", "3");
	return r;
}

static void lookup_free(struct egress_lookup *l)
{
	event_del(&l->deliver);
	for (int i = 0; i < 2; i++)
		egress_again_cancel(l->questions[i].again);
	LIST_REMOVE(l, link);
	free(l);
}

struct egress_resolver *egress_resolver_free(struct egress_resolver *r)
{
	if (!r)
		return NULL;
	if (r->dns)
		evdns_base_free(r->dns, 0);
	/* No loop runs any more, so nothing comes for those. */
	while (!LIST_EMPTY(&r->lookups))
		lookup_free(LIST_FIRST(&r->lookups));
	egress_hosts_free(r->hosts);
	free(r);
	return NULL;
}

/* ---- one name ---- */

static bool asking(const struct egress_lookup *l)
{
	const struct question *q = l->questions;

	return q[0].request || q[1].request || q[0].again || q[1].again;
}

static void on_deliver(evutil_socket_t fd, short what, void *arg)
{
	struct egress_lookup *l = arg;
	egress_resolve_done done = l->done;
	union address all[2 * EGRESS_RESOLVE_MAX];
	size_t n = l->n[0] + l->n[1];

	l->done = NULL;
	if (done) {
		memcpy(all, l->addresses[0], l->n[0] * sizeof(all[0]));
		memcpy(all + l->n[0], l->addresses[1], l->n[1] * sizeof(all[0]));
		done(l->ctx, all, n < EGRESS_RESOLVE_MAX ? n : EGRESS_RESOLVE_MAX,
		        n > 0        ? NULL
		        : l->failure ? l->failure
		                     : "name not resolved");
	}
	for (int i = 0; i < 2; i++) {
		egress_again_cancel(steal(l->questions[i].again));
		if (l->questions[i].request)
			evdns_cancel_request(l->resolver->dns, l->questions[i].request);
	}
	if (!asking(l))
		lookup_free(l);
}

static void deliver_in(struct egress_lookup *l, long ms)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};

	event_add(&l->deliver, &tv);
}

static void take(struct egress_lookup *l, int family, int count, const void *addresses)
{
	int which = family == AF_INET ? 0 : 1;

	for (int i = 0; i < count && l->n[which] < EGRESS_RESOLVE_MAX; i++) {
		union address *a = &l->addresses[which][l->n[which]++];

		memset(a, 0, sizeof(*a));
		if (family == AF_INET) {
			a->in.sin_family = AF_INET;
			a->in.sin_port = htons(l->port);
			memcpy(&a->in.sin_addr, (const char *)addresses + 4 * i, 4);
		} else {
			a->in6.sin6_family = AF_INET6;
			a->in6.sin6_port = htons(l->port);
			memcpy(&a->in6.sin6_addr, (const char *)addresses + 16 * i, 16);
		}
	}
}

/* One of the two questions has come to its end. */
static void answered(struct egress_lookup *l)
{
	if (!asking(l) && !l->done)
		lookup_free(l);
	else if (!asking(l))
		deliver_in(l, 0);
	else if (l->n[0] + l->n[1] > 0 && l->done)
		deliver_in(l, OTHER_MS);
}

static void on_again(void *ctx, const uint8_t *addresses, int n)
{
	struct question *q = ctx;

	q->again = NULL;
	if (n < 0)
		q->lookup->failure = "name's answer is too long";
	else
		take(q->lookup, q->family, n, addresses);
	answered(q->lookup);
}

static void ask_again(struct question *q)
{
	struct egress_lookup *l = q->lookup;

	q->again = egress_again_start(
	        l->resolver->base, &l->resolver->servers[0], l->name, q->family, on_again, q);
	if (!q->again)
		l->failure = "name's answer is too long";
}

static void on_answer(int result, char type, int count, int ttl, void *addresses, void *arg)
{
	struct question *q = arg;
	struct egress_lookup *l = q->lookup;

	q->request = NULL;
	if (result == DNS_ERR_NONE && type == (q->family == AF_INET ? DNS_IPv4_A : DNS_IPv6_AAAA))
		take(l, q->family, count, addresses);
	else if (result == DNS_ERR_TRUNCATED && l->done)
		ask_again(q);
	answered(l);
}

struct egress_lookup *egress_resolve_start(struct egress_resolver *r, const char *name,
        uint16_t port, egress_resolve_done done, void *ctx)
{
	struct egress_lookup *l = mem_alloc(sizeof(*l));
	struct question *q = l->questions;

	l->done = done;
	l->ctx = ctx;
	l->resolver = r;
	l->port = port;
	str_copy(l->name, sizeof(l->name), str_of(name));
	LIST_INSERT_HEAD(&r->lookups, l, link);
	event_assign(&l->deliver, r->base, -1, 0, on_deliver, l);
	q[0] = (struct question){.lookup = l, .family = AF_INET};
	q[1] = (struct question){.lookup = l, .family = AF_INET6};
	l->n[0] = egress_hosts_find(r->hosts, name, port, l->addresses[0], EGRESS_RESOLVE_MAX);
	if (l->n[0] == 0) {
		q[0].request = evdns_base_resolve_ipv4(
		        r->dns, name, DNS_QUERY_NO_SEARCH, on_answer, &q[0]);
		q[1].request = evdns_base_resolve_ipv6(
		        r->dns, name, DNS_QUERY_NO_SEARCH, on_answer, &q[1]);
	}
	if (!asking(l))
		deliver_in(l, 0);
	return l;
}

void egress_resolve_cancel(struct egress_lookup *l)
{
	l->done = NULL;
	deliver_in(l, 0);
}
