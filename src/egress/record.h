/*
 * Records of verdicts (proto/egress.h), told to gateways. What a gateway does not take in time and
 * what a container makes too many of is only counted, in `more` of a later record; nothing here
 * ever waits. One thread.
 */
#ifndef BRIG_EGRESS_RECORD_H
#define BRIG_EGRESS_RECORD_H

#include "base/str.h"
#include "proto/egress.h"

#include <event2/event.h>

struct egress_records;

/* Kept for each container; zeroed at first. */
struct egress_record_rate {
	uint64_t at_ms;
	uint64_t thousandths;
	uint32_t more[2]; /* by verdict: not told of yet */
};

struct egress_records *egress_records_new(struct event_base *base);
struct egress_records *egress_records_free(struct egress_records *r);
/* Takes fd. At most 64 at once: more are closed. */
void egress_records_add_sink(struct egress_records *r, int fd);
/* Tells one gateway, of those that take it the first. Sets h, time_ms (where 0), label_len and
 * more. */
void egress_records_tell(struct egress_records *r, struct egress_record_rate *rate,
        struct egress_record *record, struct str label);

#endif
