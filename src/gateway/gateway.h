/*
 * The gateway: one thread on one event loop, without privileges. It authenticates, routes, and
 * performs the effects of turns: upstream calls, commands, bytes to the client.
 */
#ifndef BRIG_GATEWAY_GATEWAY_H
#define BRIG_GATEWAY_GATEWAY_H

#include "base/error.h"
#include "config/config.h"

#include <stdint.h>

enum { GATEWAY_SHARED_SIZE = 32 << 20 }; /* of which nothing takes memory before it is used */

struct gateway_options {
	struct config *config; /* taken over; its keys include the data folder's first key */
	int listen_fd;         /* bound and listening */
	int sup_fd;            /* SOCK_SEQPACKET to the supervisor; -1: no sandboxes */
	int shared_fd; /* GATEWAY_SHARED_SIZE bytes that this node's gateways share; -1: none */
	int ready_fd;  /* one byte is written when the loop accepts; -1: none */
	const char *state_dir; /* <data>/gateway: the store and the gateways' sockets, owned by this
	                          user */
	uint32_t index;        /* 0 … workers - 1 */
	uint32_t workers;
};

/* Serves until SIGTERM, then drains: running turns have config->grace_ms. 0 after a clean end. */
int gateway_run(const struct gateway_options *o, struct error *err);

#endif
