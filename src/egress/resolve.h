/*
 * Names resolved for containers' connections, by the host's own name servers (evdns). Search
 * domains are never tried. One thread.
 */
#ifndef BRIG_EGRESS_RESOLVE_H
#define BRIG_EGRESS_RESOLVE_H

#include "base/error.h"
#include "egress/address.h"

#include <event2/event.h>

#define EGRESS_RESOLVE_MAX 8 /* addresses of one name */

struct egress_resolver;
struct egress_lookup;

/* n is 0 where the name has no address or nobody answered. Never called from
 * egress_resolve_start. */
typedef void (*egress_resolve_done)(void *ctx, const union egress_address *addresses, size_t n);

/* Reads both files now; none later. */
struct egress_resolver *egress_resolver_new(
        struct event_base *base, const char *resolv_conf, const char *hosts, struct error *err);
struct egress_resolver *egress_resolver_free(struct egress_resolver *r);

/* The handle is the caller's until done was called or it is cancelled. IPv4 addresses come first;
 * each has the port. */
struct egress_lookup *egress_resolve_start(struct egress_resolver *r, const char *name,
        uint16_t port, egress_resolve_done done, void *ctx);
void egress_resolve_cancel(struct egress_lookup *l); /* done will not be called */

#endif
