/*
 * Which addresses are dialled on behalf of somebody who is not trusted. An address is judged after a name was resolved, and the very one
 * that was judged is dialled. Plain functions; the list of this machine's own addresses is read
 * anew when the kernel tells of a change (one thread).
 */
#ifndef BRIG_BASE_ADDRESS_H
#define BRIG_BASE_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

union address {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

struct address_own; /* this machine's addresses, and brig's own listeners */
struct address_own *address_own_new(const uint16_t *ports, size_t n_ports);
struct address_own *address_own_free(struct address_own *o);

/* NULL: may be dialled. Else why not, as a record's reason (static text). The port is the
 * address's. `private` admits private, loopback and documentation addresses (but
 * brig's own ports on them), and nothing else. */
const char *address_refused(struct address_own *o, const union address *a, bool private);

/* An IPv4 address that came as IPv4-mapped, which is what a listener of both kinds gives, made
 * plain. */
void address_unmap(union address *a);
socklen_t address_len(const union address *a);
uint16_t address_port(const union address *a);
void address_text(const union address *a, char out[48]);

#endif
