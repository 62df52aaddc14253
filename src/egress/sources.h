/*
 * The two files that say how this machine resolves names: the name servers of resolv.conf, and the
 * names of hosts(5). Both are the operator's, not a container's. What cannot be used in them is
 * passed over, as everyone does who reads them. Pure.
 */
#ifndef BRIG_EGRESS_SOURCES_H
#define BRIG_EGRESS_SOURCES_H

#include "base/str.h"
#include "base/address.h"

#define EGRESS_SERVERS_MAX 8
#define EGRESS_HOSTS_MAX   65536

/* Addresses of name servers, with port 53. Returns how many. Scopes of IPv6 are not known here. */
size_t egress_servers_read(struct str text, union address out[EGRESS_SERVERS_MAX]);

struct egress_hosts;
struct egress_hosts *egress_hosts_read(struct str text);
struct egress_hosts *egress_hosts_free(struct egress_hosts *h); /* takes NULL; returns NULL */
size_t egress_hosts_count(const struct egress_hosts *h);
/* The addresses of a name (lower case, no trailing dot), IPv4 ones first, with the port; at most
 * max. */
size_t egress_hosts_find(const struct egress_hosts *h, const char *name, uint16_t port,
        union address *out, size_t max);

#endif
