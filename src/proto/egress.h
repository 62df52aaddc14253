/*
 * Messages of egress, the process through which containers with an allowlist reach the network:
 * from the supervisor (control, descriptor 3) and to gateways (records).
 *
 * SOCK_SEQPACKET; one datagram is one struct, then its bytes where it has some. Native byte order.
 * A malformed control message ends egress; the supervisor starts it anew and gives it everything
 * again. Egress never trusts what came from a guest: DNS questions, TLS hellos, HTTP heads, any
 * bytes at all.
 *
 * Policy: opaque to the supervisor, made by a gateway, a sealed memfd of at most EGRESS_POLICY_MAX
 * bytes. Lines of ASCII, each ended by \n, in this order:
 *
 * - `label TEXT`: printable, at most 700 bytes; comes back in every record
 * - `private`: names may resolve to private and loopback addresses (egress.allow_private)
 * - `all`: allow is ["*"]: any name, and addresses that no name stands for
 * - `allow PATTERN`: up to 50; lower case, no trailing dot; `*` is any run of characters
 * - `deny PATTERN`: up to 1,000; wins over allow
 *
 * What is neither allowed nor denied is denied. sup_claim.policy is a hash of all lines but the
 * label.
 */
#ifndef BRIG_PROTO_EGRESS_H
#define BRIG_PROTO_EGRESS_H

#include <stdint.h>

#define EGRESS_CONTROL_FD 3
#define EGRESS_POLICY_MAX 524288
#define EGRESS_LABEL_MAX  700
#define EGRESS_NAME_MAX   253
#define EGRESS_ALLOW_MAX  50
#define EGRESS_DENY_MAX   1000
/* The name server of a container's resolv.conf: one of the addresses that never stand for a name.
 */
#define EGRESS_RESOLVER "198.18.0.1"

enum egress_op {
	/* supervisor → egress */
	EGRESS_ADD = 1, /* struct egress_add; five descriptors: policy, UDP 53, TCP 53, TCP 80, TCP
	                   443, the sockets bound (and the TCP ones listening) inside the
	                   container's network namespace */
	EGRESS_REMOVE,  /* struct egress_remove: the container is live no more; its connections end
	                 */
	EGRESS_SINK,    /* struct egress_header; one descriptor: a gateway's socket for records */
	EGRESS_SOURCES, /* struct egress_header; two descriptors: resolv.conf and hosts as they are
	                   now. The first message, and again when either has changed: egress can
	                   open no file. /dev/null for one that is not there */
	/* egress → gateway, on a sink */
	EGRESS_RECORD = 32, /* struct egress_record + label */
};

struct egress_header {
	uint16_t op;
	uint16_t size; /* of the struct, without the bytes behind it */
	uint32_t pad;
};

struct egress_add {
	struct egress_header h;
	uint64_t id; /* of the live container, the supervisor's */
};

struct egress_remove {
	struct egress_header h;
	uint64_t id;
};

enum egress_verdict { EGRESS_DENIED = 0, EGRESS_ALLOWED = 1 };

/* One for each connection when it ends or is denied, and for each denied DNS question; those that a
 * flood makes are counted in `more` of the next one. */
struct egress_record {
	struct egress_header h;
	int64_t time_ms;              /* wall clock, of the verdict */
	uint64_t bytes_in, bytes_out; /* to the container, from it */
	uint32_t verdict;
	uint16_t port; /* 53: a DNS question */
	uint16_t label_len;
	uint32_t more;                  /* like this one, not told of */
	char name[EGRESS_NAME_MAX + 3]; /* NUL-terminated; "": an address without a name */
	char address[48];               /* that was dialled or refused; "": none */
	char reason[32];                /* "not allowed", "private address", "server name", … */
};

#endif
