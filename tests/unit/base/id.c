#include "unit.h"

#include "base/id.h"

#include <string.h>

static void random_bytes_differ(void **state)
{
	uint8_t a[64] = {0}, b[64] = {0};
	uint8_t large[100000] = {0};
	size_t i, zeros = 0;

	id_random(a, sizeof(a));
	id_random(b, sizeof(b));
	assert_memory_not_equal(a, b, sizeof(a));
	id_random(large, sizeof(large));
	for (i = 0; i < sizeof(large); i++)
		zeros += large[i] == 0;
	/* 390 are expected; 250 and 550 are seven standard deviations away. */
	assert_true(zeros > 250 && zeros < 550);
	id_random(a, 0);
}

static void ids(void **state)
{
	char a[48], b[48], exact[5 + 40 + 1];
	size_t counts[256] = {0}, i, c;

	id_make(a, sizeof(a), "resp_", 24);
	id_make(b, sizeof(b), "resp_", 24);
	assert_int_equal(strlen(a), 29);
	assert_memory_equal(a, "resp_", 5);
	assert_string_not_equal(a, b);
	id_make(exact, sizeof(exact), "abcd_", 40);
	assert_int_equal(strlen(exact), 45);
	id_make(a, sizeof(a), "only", 0);
	assert_string_equal(a, "only");
	for (i = 0; i < 4000; i++) {
		id_make(a, sizeof(a), "", 36);
		for (c = 0; c < 36; c++)
			counts[(unsigned char)a[c]]++;
	}
	/* 4000 of each are expected, with a standard deviation of 62. */
	for (c = 0, i = 0; c < 256; c++) {
		bool allowed = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z');

		assert_true(allowed ? counts[c] > 3500 && counts[c] < 4500 : counts[c] == 0);
		i += counts[c];
	}
	assert_int_equal(i, 4000 * 36);
}

static void make_too_long(void *arg)
{
	char out[10];

	id_make(out, sizeof(out), "abc_", 6);
}

static void make_too_many(void *arg)
{
	char out[100];

	id_make(out, sizeof(out), "", 41);
}

static void impossible_ids_are_bugs(void **state)
{
	assert_true(unit_aborts(make_too_long, NULL));
	assert_true(unit_aborts(make_too_many, NULL));
}

static void sha256(void **state)
{
	uint8_t sum[32];
	char hex[65];

	id_sha256(STR("abc"), sum);
	id_hex(sum, sizeof(sum), hex);
	assert_string_equal(
	        hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	id_sha256((struct str){NULL, 0}, sum);
	id_hex(sum, sizeof(sum), hex);
	assert_string_equal(
	        hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void sha256_parts(void **state)
{
	const struct str a[] = {STR("ab"), STR("c")}, b[] = {STR("a"), STR("bc")};
	const struct str c[] = {STR("ab"), STR("c"), {NULL, 0}};
	uint8_t sum_a[32], sum_b[32], sum_c[32], whole[32];

	id_sha256_parts(a, 2, sum_a);
	id_sha256_parts(b, 2, sum_b);
	id_sha256_parts(c, 3, sum_c);
	assert_memory_not_equal(sum_a, sum_b, 32);
	assert_memory_not_equal(sum_a, sum_c, 32);
	/* Stored hashes rely on this form. */
	id_sha256(STR("\0\0\0\0\0\0\0\002ab\0\0\0\0\0\0\0\001c"), whole);
	assert_memory_equal(sum_a, whole, 32);
	id_sha256_parts(NULL, 0, sum_a);
	id_sha256(STR(""), whole);
	assert_memory_equal(sum_a, whole, 32);
}

static void hex(void **state)
{
	char out[9];

	id_hex("\x00\xff\x10\x0a", 4, out);
	assert_string_equal(out, "00ff100a");
	id_hex("", 0, out);
	assert_string_equal(out, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(random_bytes_differ),
	        cmocka_unit_test(ids),
	        cmocka_unit_test(impossible_ids_are_bugs),
	        cmocka_unit_test(sha256),
	        cmocka_unit_test(sha256_parts),
	        cmocka_unit_test(hex),
	};

	return UNIT_RUN(tests);
}
