/*
 * Which addresses are dialled. An address is judged after a name was resolved, and the very one
 * that was judged is dialled. Plain functions; the list of this machine's own addresses is read
 * anew when the kernel tells of a change (one thread).
 */
#ifndef BRIG_EGRESS_ADDRESS_H
#define BRIG_EGRESS_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

union egress_address {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

struct egress_own; /* this machine's addresses, and brig's own listeners */
struct egress_own *egress_address_own_new(const uint16_t *ports, size_t n_ports);
struct egress_own *egress_address_own_free(struct egress_own *o);

/* NULL: may be dialled. Else why not, as a record's reason (static text). The port is the
 * address's. `private` admits private, loopback and documentation addresses (but
 * brig's own ports on them), and nothing else. */
const char *egress_address_refused(
        struct egress_own *o, const union egress_address *a, bool private);

/* An IPv4 address that came as IPv4-mapped, which is what a listener of both kinds gives, made
 * plain. */
void egress_address_unmap(union egress_address *a);
socklen_t egress_address_len(const union egress_address *a);
uint16_t egress_address_port(const union egress_address *a);
void egress_address_text(const union egress_address *a, char out[48]);

#endif
