#include "unit.h"

#include "egress/names.h"
#include "base/str.h"

#include <string.h>

static uint32_t nth(struct egress_names *n, int i)
{
	char name[32];

	str_format(name, sizeof(name), "n%d.test", i);
	return egress_names_address(n, str_of(name));
}

static void places(void **state)
{
	struct egress_names *n = egress_names_new();
	uint32_t first = nth(n, 0), second = nth(n, 1);
	struct egress_name *held;

	assert_true(egress_names_range(first) && first != second && nth(n, 0) == first);
	assert_true(first >= 0xc6121000u); /* 198.18.16.0 */
	assert_null(egress_names_hold(n, 0xc6120001u));
	assert_null(egress_names_hold(n, 0xc6121fffu));
	assert_null(egress_names_hold(n, 0x0a000001u));
	held = egress_names_hold(n, first);
	assert_string_equal(egress_names_text(held), "n0.test");
	for (int i = 2; i < 3 * EGRESS_NAMES_MAX; i++)
		assert_true(egress_names_range(nth(n, i)));
	/* What is held stays; what is not went, and its address means nothing now. */
	assert_int_equal(nth(n, 0), first);
	assert_null(egress_names_hold(n, second));
	assert_int_not_equal(nth(n, 1), second);
	egress_names_release(n, held);
	for (int i = 0; i < EGRESS_NAMES_MAX; i++)
		nth(n, 100000 + i);
	assert_null(egress_names_hold(n, first));
	egress_names_free(n);
}

static void all_held(void **state)
{
	static struct egress_name *held[EGRESS_NAMES_MAX];
	struct egress_names *n = egress_names_new();

	for (int i = 0; i < EGRESS_NAMES_MAX; i++) {
		held[i] = egress_names_hold(n, nth(n, i));
		assert_non_null(held[i]);
	}
	assert_int_equal(nth(n, EGRESS_NAMES_MAX), 0);
	egress_names_release(n, held[77]);
	assert_int_not_equal(nth(n, EGRESS_NAMES_MAX), 0);
	for (int i = 0; i < EGRESS_NAMES_MAX; i++)
		if (i != 77)
			egress_names_release(n, held[i]);
	egress_names_free(n);
}

/* Each place's address changes at each new name, and is never one that another place has. */
static void addresses(void **state)
{
	struct egress_names *n = egress_names_new();
	uint32_t last = 0;

	for (int i = 0; i < 40 * EGRESS_NAMES_MAX; i++) {
		uint32_t a = nth(n, i);
		struct egress_name *e = egress_names_hold(n, a);
		char name[32];

		str_format(name, sizeof(name), "n%d.test", i);
		assert_non_null(e);
		assert_string_equal(egress_names_text(e), name);
		egress_names_release(n, e);
		assert_true(egress_names_range(a) && a >= 0xc6121000u && a != last);
		last = a;
	}
	egress_names_free(n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(places), cmocka_unit_test(all_held), cmocka_unit_test(addresses)};

	return UNIT_RUN(tests);
}
