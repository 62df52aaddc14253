/*
 * Our answers to a container's DNS questions. Pure: one message in, one out; nothing is ever asked
 * of another server for a guest.
 *
 * A question for an allowed name's A gets the address that stands for the name; for its AAAA, HTTPS
 * and SVCB an empty answer, so that clients go on with A. What else is asked about such a name is
 * REFUSED: it exists, and we do not serve that. A name that is not allowed is NXDOMAIN, since
 * clients take that for final at once, while after REFUSED they ask again and in the end speak of
 * a temporary failure.
 */
#ifndef BRIG_EGRESS_DNS_H
#define BRIG_EGRESS_DNS_H

#include "proto/egress.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EGRESS_DNS_ANSWER_MAX 512
#define EGRESS_DNS_TTL        5 /* seconds */

enum egress_dns_type {
	EGRESS_DNS_A = 1,
	EGRESS_DNS_OPT = 41,
	EGRESS_DNS_AAAA = 28,
	EGRESS_DNS_SVCB = 64,
	EGRESS_DNS_HTTPS = 65,
};

enum egress_dns_code {
	EGRESS_DNS_OK = 0,
	EGRESS_DNS_FORMERR = 1,
	EGRESS_DNS_SERVFAIL = 2,
	EGRESS_DNS_NXDOMAIN = 3,
	EGRESS_DNS_NOTIMP = 4,
	EGRESS_DNS_REFUSED = 5,
};

struct egress_dns_question {
	enum egress_dns_code code;      /* of the answer, as far as the message alone decides it */
	char name[EGRESS_NAME_MAX + 1]; /* as egress_policy_name gives it, or "" */
	uint16_t type, class;
	size_t end; /* of the question in the message; 0: none could be read */
	bool edns;  /* the message has an OPT record */
};

/* Reads one message. False: nothing may be answered (too short, or itself an answer). A name that
 * cannot be a host's has code NXDOMAIN. */
bool egress_dns_read(const uint8_t *message, size_t len, struct egress_dns_question *ret);

/* Writes the answer with that code; address (host order) is given where code is OK and the type A.
 * Returns its length, at most EGRESS_DNS_ANSWER_MAX. */
size_t egress_dns_answer(const uint8_t *message, const struct egress_dns_question *q,
        enum egress_dns_code code, uint32_t address, uint8_t out[EGRESS_DNS_ANSWER_MAX]);

#endif
