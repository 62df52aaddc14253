/*
 * Exact decimal money in dollars: an integer count of 10^-12 dollars. Never floating point
 * (DESIGN section 9). Range ±9.2 million dollars; arithmetic saturates and never wraps.
 */
#ifndef BRIG_BASE_MONEY_H
#define BRIG_BASE_MONEY_H

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct money {
	int64_t pico; /* 1 dollar = 10^12 */
};

/* "0.0001", "3", "2.50": at most 12 digits after the point; no exponent, sign, space or needless
 * leading zero; false also for more than the range holds. */
bool money_parse(struct str s, struct money *ret);
struct money money_add(struct money a, struct money b);
struct money money_mul(struct money a, uint64_t times,
        uint64_t divisor); /* a × times ÷ divisor (not 0), rounded half up */
/* Shortest exact decimal: "0", "0.003", "12.5". Also a valid JSON number. */
int money_write(struct buf *out, struct money m);

#endif
