/*
 * The gate: every datagram of a gateway passes message_check before anything looks into it. A
 * gateway may have been taken over; what it can say is exactly what this file lets through.
 */
#ifndef BRIG_SUPERVISOR_MESSAGE_H
#define BRIG_SUPERVISOR_MESSAGE_H

#include "proto/supervisor.h"

#include <stdbool.h>
#include <stddef.h>

union message {
	struct sup_header h;
	struct sup_claim claim;
	struct sup_simple simple;
	struct sup_hold hold;
	struct sup_key key;
	struct sup_keep keep;
	struct sup_files files;
	uint8_t bytes[SUP_MAX_MESSAGE];
};

/* Whether this is a claim that brings the policy of its network, as one descriptor. */
bool message_has_policy(const union message *m, size_t len);

/* Checks the len bytes in *m, which came with a descriptor (or lost one on the way) or without.
 * NULL: sound. Else static
 * text that says what is wrong, and the gateway's socket is to be closed. Bounds that depend on
 * this server's settings (image, most memory, most processors) are not here: those a claim is
 * refused for (SUP_E_INVALID). */
const char *message_check(const union message *m, size_t len, bool with_fd);

#endif
