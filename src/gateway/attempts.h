/*
 * Whom to ask next: the attempts of one upstream call over the targets of its route.
 *
 * Each target is asked once, the one that served last first and then in the route's order; then
 * those that may be asked again come when their time has come, the earliest first, as long as the
 * waiting is allowed. Pure: knows no clock and no network.
 */
#ifndef BRIG_GATEWAY_ATTEMPTS_H
#define BRIG_GATEWAY_ATTEMPTS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct attempt {
	uint64_t due_ms;
	uint32_t tries;
	bool out; /* not in this call any more */
};

/* How much a failure says to the client; the most telling one is the answer. */
enum attempt_failure {
	ATTEMPT_UNABLE, /* this target cannot express the request */
	ATTEMPT_RESTS,  /* it was not asked: its circuit is open */
	ATTEMPT_FAILED, /* it was asked, and asking it again is of no use */
	ATTEMPT_BUSY,   /* it was asked, and may be asked again */
};

struct attempts {
	struct attempt *of; /* one a target; NULL: nothing has failed yet */
	size_t n;
	uint32_t retries;      /* of one target, beyond its first try */
	uint64_t wait_left_ms; /* that may be spent on waiting */
	enum attempt_failure worst;
	struct error *told; /* what the client hears if nobody helps; NULL: none yet */
};

/* A new call: all targets may be asked. */
void attempts_begin(struct attempts *a, size_t n_targets, uint32_t retries, uint64_t wait_ms);
void attempts_end(struct attempts *a); /* frees; also where it was never begun (zeroed) */
/* err->retry_after_ms is heeded. jitter: any random number. */
void attempts_failed(struct attempts *a, size_t target, enum attempt_failure how,
        const struct error *err, uint64_t now_ms, uint32_t jitter);
/* The next target, and how long to wait before; the wait is then spent. False: give up, with
 * a->told. */
bool attempts_next(struct attempts *a, uint64_t now_ms, size_t *ret_target, uint64_t *ret_wait_ms);

#endif
