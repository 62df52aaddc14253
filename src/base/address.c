/*
 * IPv4 is a list of what is refused; IPv6 is refused but for 2000::/3 without its special parts,
 * and for NAT64's well-known prefix where the address inside would be allowed. Metadata services of
 * clouds live in ranges that may be allowed otherwise (private, even public), so they stand in the
 * list by themselves and no policy opens them. Documentation ranges are nobody's in public: whoever
 * uses them does so as private ones.
 */
#include "base/address.h"

#include "base/error.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OWN_MAX = 512, OWN_PORTS_MAX = 16 };

struct address_own {
	uint16_t ports[OWN_PORTS_MAX];
	size_t n_ports;
	struct in6_addr addresses[OWN_MAX]; /* IPv4 ones mapped */
	size_t n_addresses;
	bool known;
	int changes; /* a socket on which the kernel tells of each change; -1: none */
};

struct range4 {
	uint32_t net;
	int bits;
	const char *why;
	bool private; /* a policy may open it */
};

#define IP(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))

static const struct range4 RANGES4[] = {
        {IP(0, 0, 0, 0), 8, "unspecified address", false},
        {IP(10, 0, 0, 0), 8, "private address", true},
        {IP(100, 64, 0, 0), 10, "carrier address", false},
        {IP(127, 0, 0, 0), 8, "loopback address", true},
        {IP(168, 63, 129, 16), 32, "metadata address", false},
        {IP(169, 254, 0, 0), 16, "link-local address", false},
        {IP(172, 16, 0, 0), 12, "private address", true},
        {IP(192, 0, 0, 0), 24, "reserved address", false},
        {IP(192, 0, 2, 0), 24, "documentation address", true},
        {IP(192, 88, 99, 0), 24, "reserved address", false},
        {IP(192, 168, 0, 0), 16, "private address", true},
        {IP(198, 18, 0, 0), 15, "reserved address", false},
        {IP(198, 51, 100, 0), 24, "documentation address", true},
        {IP(203, 0, 113, 0), 24, "documentation address", true},
        {IP(224, 0, 0, 0), 4, "multicast address", false},
        {IP(240, 0, 0, 0), 4, "reserved address", false},
};

struct range6 {
	uint8_t net[16];
	int bits;
	const char *why; /* NULL: allowed */
	bool private;
};

/* The first that fits decides. */
static const struct range6 RANGES6[] = {
        {{0}, 128, "unspecified address", false},
        {{[15] = 1}, 128, "loopback address", true},
        {{[10] = 0xff, 0xff}, 96, "IPv4-mapped address", false},
        {{0xfd, 0x00, 0x0e, 0xc2}, 32, "metadata address", false},
        {{0xfd, 0x20, 0x00, 0xce}, 32, "metadata address", false},
        {{0xfc}, 7, "private address", true},
        {{0xfe, 0x80}, 10, "link-local address", false},
        {{0xfe, 0xc0}, 10, "site-local address", false},
        {{0xff}, 8, "multicast address", false},
        {{0x20, 0x01, 0x0d, 0xb8}, 32, "documentation address", true},
        {{0x3f, 0xff}, 20, "documentation address", true},
        {{0x20, 0x01}, 23, "reserved address", false}, /* Teredo, ORCHID, benchmarking … */
        {{0x20}, 3, NULL, false},
};

static bool bits_equal(const uint8_t *a, const uint8_t *b, int bits)
{
	int bytes = bits / 8, rest = bits % 8;

	if (memcmp(a, b, (size_t)bytes) != 0)
		return false;
	return rest == 0 || ((a[bytes] ^ b[bytes]) >> (8 - rest)) == 0;
}

static const char *refused4(uint32_t ip, bool private)
{
	for (size_t i = 0; i < sizeof(RANGES4) / sizeof(RANGES4[0]); i++) {
		const struct range4 *r = &RANGES4[i];

		if ((ip ^ r->net) >> (32 - r->bits) == 0 && !(private && r->private))
			return r->why;
	}
	return NULL;
}

/* The IPv4 address at p, inside of one that leads to it through a gateway. */
static const char *refused_inside(const uint8_t *p)
{
	uint32_t ip = IP(p[0], p[1], p[2], p[3]);

	return refused4(ip, false);
}

static const char *refused6(const uint8_t *ip, bool private)
{
	static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b}, six_to_four[2] = {0x20, 0x02};

	if (bits_equal(ip, nat64, 96))
		return refused_inside(ip + 12);
	if (bits_equal(ip, six_to_four, 16) && refused_inside(ip + 2))
		return refused_inside(ip + 2);
	for (size_t i = 0; i < sizeof(RANGES6) / sizeof(RANGES6[0]); i++) {
		const struct range6 *r = &RANGES6[i];

		if (bits_equal(ip, r->net, r->bits))
			return private && r->private ? NULL : r->why;
	}
	return "reserved address";
}

/* ---- this machine's own ---- */

static struct in6_addr as_in6(const union address *a)
{
	struct in6_addr out = {0};

	if (a->sa.sa_family == AF_INET6)
		return a->in6.sin6_addr;
	out.s6_addr[10] = out.s6_addr[11] = 0xff;
	memcpy(&out.s6_addr[12], &a->in.sin_addr, 4);
	return out;
}

/* Whether the list may be old by now. What the kernel tells is not read: that there is any will do.
 */
static bool own_changed(struct address_own *o)
{
	char message[256];
	bool changed = o->changes < 0 || !o->known;

	if (o->changes < 0)
		return true;
	while (recv(o->changes, message, sizeof(message), MSG_DONTWAIT) >= 0 || errno == ENOBUFS)
		changed = true;
	return changed;
}

/* False: they cannot be known now, and then none is dialled. */
static bool own_refresh(struct address_own *o)
{
	struct ifaddrs *list;

	if (!own_changed(o))
		return true;
	if (getifaddrs(&list) < 0)
		return false;
	o->n_addresses = 0;
	o->known = true;
	for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
		union address a = {0};

		if (!i->ifa_addr)
			continue;
		if (i->ifa_addr->sa_family == AF_INET)
			memcpy(&a.in, i->ifa_addr, sizeof(a.in));
		else if (i->ifa_addr->sa_family == AF_INET6)
			memcpy(&a.in6, i->ifa_addr, sizeof(a.in6));
		else
			continue;
		if (o->n_addresses == OWN_MAX) {
			o->known = false;
			break;
		}
		o->addresses[o->n_addresses++] = as_in6(&a);
	}
	freeifaddrs(list);
	return o->known;
}

static bool own_has(const struct address_own *o, const union address *a)
{
	struct in6_addr ip = as_in6(a);

	for (size_t i = 0; i < o->n_addresses; i++)
		if (memcmp(&o->addresses[i], &ip, sizeof(ip)) == 0)
			return true;
	return false;
}

struct address_own *address_own_new(const uint16_t *ports, size_t n_ports)
{
	struct address_own *o = mem_alloc(sizeof(*o));
	struct sockaddr_nl groups = {
	        .nl_family = AF_NETLINK, .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};

	if (n_ports > OWN_PORTS_MAX)
		BUG("%zu ports", n_ports);
	if (n_ports > 0)
		memcpy(o->ports, ports, n_ports * sizeof(*ports));
	o->n_ports = n_ports;
	o->changes = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (o->changes >= 0 && bind(o->changes, (struct sockaddr *)&groups, sizeof(groups)) < 0) {
		close(o->changes);
		o->changes = -1; /* then the list is read each time */
	}
	return o;
}

struct address_own *address_own_free(struct address_own *o)
{
	if (o && o->changes >= 0)
		close(o->changes);
	free(o);
	return NULL;
}

static bool is_loopback(const union address *a)
{
	if (a->sa.sa_family == AF_INET)
		return ntohl(a->in.sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
}

static const char *refused_range(const union address *a, bool private)
{
	return a->sa.sa_family == AF_INET ? refused4(ntohl(a->in.sin_addr.s_addr), private)
	                                  : refused6(a->in6.sin6_addr.s6_addr, private);
}

const char *address_refused(struct address_own *o, const union address *a, bool private)
{
	const char *why = refused_range(a, private);

	if (why)
		return why;
	if (!own_refresh(o))
		return "own addresses unknown";
	if (!own_has(o, a) && !is_loopback(a))
		return NULL;
	/* What got here and is private or loopback was opened; a public one of ours never is. */
	if (!refused_range(a, false))
		return "own address";
	for (size_t i = 0; i < o->n_ports; i++)
		if (o->ports[i] == address_port(a))
			return "brig's own port";
	return NULL;
}

void address_unmap(union address *a)
{
	struct sockaddr_in in = {.sin_family = AF_INET};

	if (a->sa.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr))
		return;
	in.sin_port = a->in6.sin6_port;
	memcpy(&in.sin_addr, &a->in6.sin6_addr.s6_addr[12], 4);
	a->in = in;
}

socklen_t address_len(const union address *a)
{
	return a->sa.sa_family == AF_INET ? sizeof(a->in) : sizeof(a->in6);
}

uint16_t address_port(const union address *a)
{
	return ntohs(a->sa.sa_family == AF_INET ? a->in.sin_port : a->in6.sin6_port);
}

void address_text(const union address *a, char out[48])
{
	const void *ip = a->sa.sa_family == AF_INET ? (const void *)&a->in.sin_addr
	                                            : (const void *)&a->in6.sin6_addr;

	if (!inet_ntop(a->sa.sa_family, ip, out, 48))
		out[0] = '\0';
}
