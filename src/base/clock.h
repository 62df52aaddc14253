/* Time. Everything that waits or measures uses the monotonic clock; wall time is only shown. */
#ifndef BRIG_BASE_CLOCK_H
#define BRIG_BASE_CLOCK_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

uint64_t clock_mono_ns(void);
uint64_t clock_mono_ms(void);
int64_t clock_wall_s(void); /* seconds since 1970 */
int64_t clock_wall_ms(void);
/* "2026-11-29T18:00:05.123Z"; what lies outside the years 0 to 9999 is shown as their first or last
 * ms. */
void clock_iso8601(int64_t wall_ms, char out[32]);
/* Reads that, also with an offset (+02:00) or without a fraction; a date alone is its beginning in UTC. */
bool clock_parse_iso8601(struct str s, int64_t *ret_ms);

#endif
