/*
 * The circuit of a provider: after some failures in a row it is left alone for a while, then one
 * call at a time may try it, until one is answered.
 *
 * The circuits lie in a mapping that all gateways of a node share, so that one gateway's failures
 * spare the others' clients. They are lock-free: a gateway that dies leaves nothing behind but a
 * circuit that opens the next time it is looked at. Times are those of clock_mono_ms(), which is
 * the same in all processes of a machine. Any thread.
 */
#ifndef BRIG_GATEWAY_CIRCUIT_H
#define BRIG_GATEWAY_CIRCUIT_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct circuit {
	_Atomic uint64_t until_ms; /* 0: closed; else nobody calls before */
	_Atomic uint32_t failures; /* in a row */
	uint32_t unused;
};

struct circuit_rule {
	uint32_t failures; /* in a row that open it; 0: it never opens */
	uint64_t rest_ms;  /* how long it is left alone */
};

/* May a call be made? Where a rest is over the answer is yes for one caller, and no for the others
 * until another rest has passed or circuit_answered(). *ret_wait_ms is what is left of the rest
 * where it is no. */
bool circuit_allows(
        struct circuit *c, const struct circuit_rule *rule, uint64_t now_ms, uint64_t *ret_wait_ms);
/* It gave a sign of life. */
void circuit_answered(struct circuit *c);
void circuit_failed(struct circuit *c, const struct circuit_rule *rule, uint64_t now_ms);

#endif
