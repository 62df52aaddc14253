/*
 * The question's name is copied into the answer as it stands, so its case (which some resolvers
 * choose at random, to know their answer again) is kept. Names are never compressed in a question
 * that a resolver makes, so a pointer there is an error, and no pointer is ever followed.
 */
#include "egress/dns.h"

#include "egress/policy.h"

#include <string.h>

enum { HEADER = 12, FLAG_QR = 0x80, FLAG_RD = 0x01, CLASS_IN = 1, UDP_SIZE = 1232 };

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static uint8_t *put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
	return p + 2;
}

static uint8_t *put32(uint8_t *p, uint32_t v)
{
	return put16(put16(p, (uint16_t)(v >> 16)), (uint16_t)v);
}

/* The name at `at`, with dots, into out (256 bytes). Returns its end, or 0 where it is malformed.
 * *ret_text is false where a label holds a dot or a NUL, so that out is not what was asked for. */
static size_t read_name(
        const uint8_t *m, size_t len, size_t at, char out[256], size_t *ret_n, bool *ret_text)
{
	size_t n = 0, start = at;

	*ret_text = true;
	for (;;) {
		size_t label;

		if (at >= len)
			return 0;
		label = m[at++];
		if (label == 0)
			break;
		if (label > 63 || at + label > len || at + label - start > 254)
			return 0;
		if (memchr(m + at, '.', label) || memchr(m + at, '\0', label))
			*ret_text = false;
		if (n > 0)
			out[n++] = '.';
		memcpy(out + n, m + at, label);
		n += label;
		at += label;
	}
	*ret_n = n;
	return at;
}

/* Only the record right behind the question is looked at: resolvers send no other. */
static bool has_opt(const uint8_t *m, size_t len, size_t at)
{
	bool plain = get16(m + 6) == 0 && get16(m + 8) == 0 && get16(m + 10) == 1;

	return plain && at + 11 <= len && m[at] == 0 && get16(m + at + 1) == EGRESS_DNS_OPT;
}

bool egress_dns_read(const uint8_t *m, size_t len, struct egress_dns_question *ret)
{
	char name[256];
	size_t n, end;
	bool text;

	memset(ret, 0, sizeof(*ret));
	if (len < HEADER || (m[2] & FLAG_QR))
		return false;
	ret->code = EGRESS_DNS_NOTIMP;
	if (m[2] >> 3 & 0xf)
		return true;
	ret->code = EGRESS_DNS_FORMERR;
	if (get16(m + 4) != 1)
		return true;
	end = read_name(m, len, HEADER, name, &n, &text);
	if (end == 0 || end + 4 > len)
		return true;
	ret->type = get16(m + end);
	ret->class = get16(m + end + 2);
	ret->end = end + 4;
	ret->edns = has_opt(m, len, ret->end);
	ret->code = EGRESS_DNS_OK;
	if (ret->class != CLASS_IN)
		ret->code = EGRESS_DNS_REFUSED;
	else if (!text || !egress_policy_name((struct str){name, n}, ret->name)) {
		ret->code = EGRESS_DNS_NXDOMAIN;
		ret->name[0] = '\0';
	}
	return true;
}

size_t egress_dns_answer(const uint8_t *m, const struct egress_dns_question *q,
        enum egress_dns_code code, uint32_t address, uint8_t out[EGRESS_DNS_ANSWER_MAX])
{
	bool a = code == EGRESS_DNS_OK && q->type == EGRESS_DNS_A && q->end > 0;
	uint8_t *p = out;

	p = put16(p, get16(m));
	/* An answer, not authoritative; what was wished of recursion comes back, and there is some.
	 */
	*p++ = (uint8_t)(FLAG_QR | (m[2] & 0x78) | (m[2] & FLAG_RD));
	*p++ = (uint8_t)(0x80 | code);
	p = put16(p, q->end > 0);
	p = put16(p, a);
	p = put16(p, 0);
	p = put16(p, q->edns);
	if (q->end > 0) {
		memcpy(p, m + HEADER, q->end - HEADER);
		p += q->end - HEADER;
	}
	if (a) {
		p = put16(p, 0xc000 | HEADER);
		p = put16(p, EGRESS_DNS_A);
		p = put16(p, CLASS_IN);
		p = put32(p, EGRESS_DNS_TTL);
		p = put16(p, 4);
		p = put32(p, address);
	}
	if (q->edns) {
		*p++ = 0;
		p = put16(p, EGRESS_DNS_OPT);
		p = put16(p, UDP_SIZE);
		p = put32(p, 0);
		p = put16(p, 0);
	}
	return (size_t)(p - out);
}
