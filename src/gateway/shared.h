/*
 * What the gateways of a node share: one mapping of atomics, in a memfd that `brig serve` makes and
 * every gateway inherits. It holds no pointers and no secrets, and whatever it holds must be right,
 * or become right by itself, when a gateway dies between any two writes.
 */
#ifndef BRIG_GATEWAY_SHARED_H
#define BRIG_GATEWAY_SHARED_H

#include "base/error.h"
#include "gateway/circuit.h"
#include "gateway/key_limits.h"
#include "gateway/keys.h"
#include "gateway/metrics.h"

enum { SHARED_CIRCUITS = 1024 }; /* by the provider's place in the configuration */

struct shared {
	struct circuit circuits[SHARED_CIRCUITS];
	struct metrics_shared metrics;
	struct keys_shared keys;
	struct key_limits key_limits;
};

/* fd: of GATEWAY_SHARED_SIZE bytes, all zero at first; -1: memory of our own. Stays mapped; NULL:
 * failed. */
struct shared *shared_map(int fd, struct error *err);
struct shared *shared_unmap(struct shared *s); /* takes NULL; returns NULL */

#endif
