#include "unit.h"

#include "egress/dns.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t QUESTION[] = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
                                  "\x01"
                                  "A\x04TesT\x00\x00\x01\x00\x01";

enum { QUESTION_LEN = sizeof(QUESTION) - 1 };

static void plain(void **state)
{
	static const uint8_t ANSWER[] = "\x12\x34\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00"
	                                "\x01"
	                                "A\x04TesT\x00\x00\x01\x00\x01"
	                                "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04"
	                                "\xc6\x12\x10\x01";
	struct egress_dns_question q;
	uint8_t out[EGRESS_DNS_ANSWER_MAX];
	size_t n;

	assert_true(egress_dns_read(QUESTION, QUESTION_LEN, &q));
	assert_int_equal(q.code, EGRESS_DNS_OK);
	assert_string_equal(q.name, "a.test");
	n = egress_dns_answer(QUESTION, &q, EGRESS_DNS_OK, 0xc6121001u, out);
	assert_int_equal(n, sizeof(ANSWER) - 1);
	assert_memory_equal(out, ANSWER, n);
	n = egress_dns_answer(QUESTION, &q, EGRESS_DNS_NXDOMAIN, 0, out);
	assert_int_equal(n, QUESTION_LEN);
	assert_int_equal(out[3], 0x83);
}

/* Every beginning of a question is refused or has no answer, and none is read past its end. */
static void cut(void **state)
{
	for (size_t i = 0; i < QUESTION_LEN; i++) {
		uint8_t *copy = malloc(i ? i : 1), out[EGRESS_DNS_ANSWER_MAX];
		struct egress_dns_question q;

		memcpy(copy, QUESTION, i);
		assert_int_equal(egress_dns_read(copy, i, &q), i >= 12);
		if (i >= 12) {
			assert_int_equal(q.code, EGRESS_DNS_FORMERR);
			assert_int_equal(egress_dns_answer(copy, &q, q.code, 0, out), 12);
		}
		free(copy);
	}
}

static void longest(void **state)
{
	uint8_t m[512] = {0}, out[EGRESS_DNS_ANSWER_MAX];
	struct egress_dns_question q;
	size_t at = 12;

	m[5] = 1;
	m[11] = 1;
	for (int i = 0; i < 4; i++) { /* 3 × 64 + 62 = 253 with dots */
		size_t n = i < 3 ? 63 : 61;

		m[at] = (uint8_t)n;
		memset(m + at + 1, 'a', n);
		at += 1 + n;
	}
	at++;
	m[at + 1] = m[at + 3] = 1;
	at += 4;
	m[at + 2] = EGRESS_DNS_OPT;
	assert_true(egress_dns_read(m, at + 11, &q));
	assert_int_equal(q.code, EGRESS_DNS_OK);
	assert_int_equal(strlen(q.name), 253);
	assert_true(q.edns);
	assert_in_range(egress_dns_answer(m, &q, EGRESS_DNS_OK, 1, out), at, sizeof(out));
	m[12 + 64 * 3] = 62;
	assert_true(egress_dns_read(m, at + 11, &q));
	assert_int_equal(q.code, EGRESS_DNS_FORMERR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(plain), cmocka_unit_test(cut), cmocka_unit_test(longest)};

	return UNIT_RUN(tests);
}
