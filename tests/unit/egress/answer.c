/* A name server's answer, whole and in every way not. */
#include "unit.h"

#include "egress/answer.h"

#include <string.h>
#include <sys/socket.h>

static const char TAIL[] = "\xc0\x0c\0\5\0\1\0\0\0\x3c\0\4\1b\xc0\x0e"          /* an alias */
                           "\1b\xc0\x0e\0\1\0\1\0\0\0\x3c\0\4\x5d\xb8\xd8\x22"  /* A */
                           "\xc0\x0c\0\x1c\0\1\0\0\0\x3c\0\x10xxxxxxxxxxxxxxxx" /* AAAA */
                           "\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\1\2\3\4";            /* A */

static size_t make(int family, uint8_t *question, uint8_t answer[512])
{
	size_t n = egress_answer_question("a.example", family, 0x1234, question);

	assert_true(n > 0);
	memcpy(answer, question, n);
	answer[2] = 0x81;
	answer[3] = 0x80;
	answer[7] = 4;
	memcpy(answer + n, TAIL, sizeof(TAIL) - 1);
	return n + sizeof(TAIL) - 1;
}

static void whole(void **state)
{
	uint8_t q[EGRESS_QUESTION_MAX], a[512], out[64];
	size_t len = make(AF_INET, q, a), n = len - (sizeof(TAIL) - 1);

	assert_int_equal(n, 12 + 11 + 4);
	assert_int_equal(egress_answer_read(a, len, q, n, out, 8), 2);
	assert_memory_equal(out, "\x5d\xb8\xd8\x22\1\2\3\4", 8);
	assert_int_equal(egress_answer_read(a, len, q, n, out, 1), 1);
	a[13] = 'A'; /* the question's case may change */
	assert_int_equal(egress_answer_read(a, len, q, n, out, 8), 2);
	len = make(AF_INET6, q, a);
	assert_int_equal(egress_answer_read(a, len, q, n, out, 4), 1);
	assert_memory_equal(out, "xxxxxxxxxxxxxxxx", 16);
}

static void bad(void **state)
{
	static const struct {
		size_t at;
		uint8_t value;
	} CHANGES[] = {{0, 0}, {2, 1}, {2, 0x83}, {3, 0x83}, {5, 2}, {7, 5}, {6, 1}, {12, 64},
	        {13, 'b'}, {24, 28}, {26, 2}};
	uint8_t q[EGRESS_QUESTION_MAX], a[512], out[64];
	size_t len = make(AF_INET, q, a), n = len - (sizeof(TAIL) - 1);

	for (size_t cut = 0; cut < len; cut++)
		assert_int_equal(egress_answer_read(a, cut, q, n, out, 8), -1);
	for (size_t i = 0; i < sizeof(CHANGES) / sizeof(CHANGES[0]); i++) {
		make(AF_INET, q, a);
		a[CHANGES[i].at] = CHANGES[i].value;
		if (egress_answer_read(a, len, q, n, out, 8) != -1)
			fail_msg("byte %zu", CHANGES[i].at);
	}
}

static void names(void **state)
{
	uint8_t q[EGRESS_QUESTION_MAX];
	char name[300];

	memset(name, 'a', sizeof(name));
	name[254] = '\0';
	assert_int_equal(egress_answer_question(name, AF_INET, 1, q), 0);
	name[64] = '\0';
	assert_int_equal(egress_answer_question(name, AF_INET, 1, q), 0);
	name[63] = '\0';
	assert_int_equal(egress_answer_question(name, AF_INET, 1, q), 12 + 65 + 4);
	assert_int_equal(egress_answer_question("", AF_INET, 1, q), 0);
	assert_int_equal(egress_answer_question("a..b", AF_INET, 1, q), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(whole), cmocka_unit_test(bad), cmocka_unit_test(names)};

	return UNIT_RUN(tests);
}
