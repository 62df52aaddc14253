/*
 * Names resolved for containers' connections: by the host's file of hosts, else by its name servers
 * (evdns). Search domains are never tried. One thread.
 */
#ifndef BRIG_EGRESS_RESOLVE_H
#define BRIG_EGRESS_RESOLVE_H

#include "base/error.h"
#include "base/address.h"

#include <event2/event.h>

#define EGRESS_RESOLVE_MAX 8 /* addresses of one name */

struct egress_resolver;
struct egress_lookup;

/* n is 0 where the name has no address or nobody answered; failure then says why, as a record's
 * reason (static text). Never called from egress_resolve_start. */
typedef void (*egress_resolve_done)(
        void *ctx, const union address *addresses, size_t n, const char *failure);

/* One that knows no name server yet. */
struct egress_resolver *egress_resolver_new(struct event_base *base, struct error *err);
struct egress_resolver *egress_resolver_free(struct egress_resolver *r);

/* Reads resolv.conf and hosts from these descriptors, which stay the caller's; later lookups go by
 * them, and those under way ask the new name servers. On an error all stays as it was. */
int egress_resolver_sources(
        struct egress_resolver *r, int resolv_conf, int hosts, struct error *err);

/* The handle is the caller's until done was called or it is cancelled. IPv4 addresses come first;
 * each has the port. */
struct egress_lookup *egress_resolve_start(struct egress_resolver *r, const char *name,
        uint16_t port, egress_resolve_done done, void *ctx);
void egress_resolve_cancel(struct egress_lookup *l); /* done will not be called */

#endif
