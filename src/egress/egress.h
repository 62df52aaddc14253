/*
 * The egress process: containers with an allowlist reach the network through it and through nothing
 * else. It runs in the host's network namespace as a user of its own, without capabilities; the
 * sockets that it is given (proto/egress.h) lie inside the containers' namespaces. One thread, one
 * event loop; every byte that a container or a server sends is taken for hostile.
 *
 * A failure ends connections, never opens them: what cannot be judged is denied.
 */
#ifndef BRIG_EGRESS_EGRESS_H
#define BRIG_EGRESS_EGRESS_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Each of them for one container, but for the last. */
struct egress_limits {
	unsigned connections;       /* at once; new ones over it are told so and end */
	unsigned connections_per_s; /* new ones, on average; likewise */
	unsigned questions_per_s;   /* of DNS, on average; over it they are REFUSED */
	unsigned dns_connections;   /* over TCP, at once */
	unsigned head_ms;           /* from the connection to the whole TLS hello or HTTP head */
	unsigned connect_ms;        /* resolving and dialling together */
	unsigned attempt_ms;        /* dialling one of several addresses */
	unsigned idle_ms;           /* no byte either way */
	unsigned total_ms;          /* a connection's whole life */
	uint64_t bytes;             /* both ways together, of one connection */
	unsigned all_connections;   /* of all containers; lowered to what the descriptors allow */
};

struct egress_options {
	const uint16_t *own_ports; /* of brig's own listeners: never dialled on this machine */
	size_t n_own_ports;        /* at most 16 */
	struct egress_limits limits;
};

#define EGRESS_LIMITS_DEFAULT                                                                      \
	{                                                                                          \
		.connections = 256, .connections_per_s = 100, .questions_per_s = 200,              \
		.dns_connections = 8, .head_ms = 10000, .connect_ms = 15000, .attempt_ms = 3000,   \
		.idle_ms = 600000, .total_ms = 86400000, .bytes = (uint64_t)64 << 30,              \
		.all_connections = 16384,                                                          \
	}

/*
 * Serves until control_fd ends, then returns 0; negative with err where it could not start or the
 * control socket brought what it must not. Confines the process on the way (limits, seccomp): for a
 * process that does nothing else. Descriptor 2 takes the log.
 */
int egress_run(int control_fd, const struct egress_options *options, struct error *err);

#endif
