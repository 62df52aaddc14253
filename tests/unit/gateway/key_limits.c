/* Limits of keys: what flows in and out of the counters that gateways share, and when periods end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "gateway/gateway.h"
#include "gateway/shared.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

static struct shared *shared;

static int set_up(void **state)
{
	shared = shared_map(-1, NULL);
	return shared == NULL;
}

static int tear_down(void **state)
{
	shared = shared_unmap(shared);
	return 0;
}

#define L (&shared->key_limits)

static struct config_key key(uint8_t first)
{
	struct config_key k = {.hash = {first}};

	return k;
}

static void test_requests(void **state)
{
	struct config_key k = key(1), none = key(2);
	struct error e;
	uint64_t now = 100000000;

	k.requests_per_minute = 3;
	for (int i = 0; i < 3; i++)
		assert_int_equal(key_limits_request(L, &k, now, &e), 0);
	assert_int_equal(key_limits_request(L, &k, now, &e), -ERR_RATE);
	assert_int_equal(e.retry_after_ms, 20000);
	assert_int_equal(key_limits_request(L, &k, now + 19999999, &e), -ERR_RATE);
	assert_int_equal(e.retry_after_ms, 1);
	assert_int_equal(key_limits_request(L, &k, now + 20000000, &e), 0);
	assert_int_equal(key_limits_request(L, &k, now + 20000000, &e), -ERR_RATE);
	/* A bucket holds no more than a minute's. */
	now += UINT64_C(3600000000);
	for (int i = 0; i < 3; i++)
		assert_int_equal(key_limits_request(L, &k, now, &e), 0);
	assert_int_equal(key_limits_request(L, &k, now, &e), -ERR_RATE);
	for (int i = 0; i < 100; i++)
		assert_int_equal(key_limits_request(L, &none, now, &e), 0);
}

static _Atomic int passed;

static void *ask(void *arg)
{
	const struct config_key *k = arg;

	for (int i = 0; i < 1000; i++)
		if (key_limits_request(L, k, 5000000, NULL) == 0)
			passed++;
	return NULL;
}

static void test_many_at_once_pass_no_more(void **state)
{
	struct config_key k = key(3);
	pthread_t threads[4];

	k.requests_per_minute = 1000;
	passed = 0;
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, ask, &k);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(passed, 1000);
}

static void test_containers(void **state)
{
	struct config_key k = key(4);
	struct record_hold a, b, c;
	struct money others, nothing = {0};
	struct error e;

	k.containers = 2;
	assert_int_equal(key_limits_take(L, &k, 0, nothing, true, &a, &others, &e), 0);
	assert_int_equal(key_limits_take(L, &k, 5, nothing, true, &b, &others, &e), 0);
	assert_int_equal(key_limits_take(L, &k, 1, nothing, true, &c, &others, &e), -ERR_RATE);
	assert_true(e.retry_after_ms > 0);
	assert_int_equal(c.key, 0);
	assert_int_equal(key_limits_take(L, &k, 1, nothing, false, &c, &others, &e), 0);
	key_limits_give(L, 1, &c, nothing);
	key_limits_give(L, 0, &a, nothing);
	key_limits_give(L, 0, &a, nothing); /* once only */
	assert_int_equal(key_limits_take(L, &k, 1, nothing, true, &c, &others, &e), 0);
	assert_int_equal(key_limits_take(L, &k, 1, nothing, true, &a, &others, &e), -ERR_RATE);
	/* Gateway 5 dies, and another takes its place. */
	key_limits_start(L, 5);
	assert_int_equal(key_limits_take(L, &k, 1, nothing, true, &a, &others, &e), 0);
}

static void test_dollars(void **state)
{
	struct config_key k = key(6);
	struct record_hold a, b, c;
	struct money others;
	struct error e;

	k.has_limit = true;
	assert_int_equal(key_limits_take(L, &k, 0, (struct money){10}, true, &a, &others, &e), 0);
	assert_int_equal(others.pico, 0);
	assert_int_equal(key_limits_take(L, &k, 1, (struct money){5}, false, &b, &others, &e), 0);
	assert_int_equal(others.pico, 10);
	key_limits_grow(L, 1, &b, (struct money){3});
	key_limits_grow(L, 1, &b, (struct money){25});
	assert_int_equal(key_limits_take(L, &k, 2, (struct money){1}, false, &c, &others, &e), 0);
	assert_int_equal(others.pico, 35);
	key_limits_give(L, 2, &c, (struct money){0});
	/* The dearest there was is what the next one may cost. */
	key_limits_give(L, 1, &b, (struct money){30});
	assert_int_equal(key_limits_take(L, &k, 2, (struct money){1}, false, &c, &others, &e), 0);
	assert_int_equal(others.pico, 10);
	assert_int_equal(c.dollars, 30);
	key_limits_start(L, 2);
	assert_int_equal(key_limits_take(L, &k, 2, (struct money){50}, false, &b, &others, &e), 0);
	assert_int_equal(others.pico, 10);
	assert_int_equal(b.dollars, 50);
}

#define AT(text) at(text, sizeof(text) - 1)

static int64_t at(const char *text, size_t n)
{
	int64_t ms;

	assert_true(clock_parse_iso8601((struct str){text, n}, &ms));
	return ms;
}

static void test_periods(void **state)
{
	const int64_t day = 86400000;
	int64_t wednesday = AT("2026-12-30T23:59:59.999Z");

	assert_int_equal(key_limits_first_day(CONFIG_RESET_NEVER, wednesday), 0);
	assert_true(key_limits_ends_ms(CONFIG_RESET_NEVER, wednesday) == INT64_MAX);
	assert_int_equal(
	        key_limits_first_day(CONFIG_RESET_DAILY, wednesday) * day, AT("2026-12-30"));
	assert_int_equal(key_limits_ends_ms(CONFIG_RESET_DAILY, wednesday), AT("2026-12-31"));
	assert_int_equal(
	        key_limits_first_day(CONFIG_RESET_WEEKLY, wednesday) * day, AT("2026-12-28"));
	assert_int_equal(key_limits_ends_ms(CONFIG_RESET_WEEKLY, wednesday), AT("2027-01-04"));
	assert_int_equal(key_limits_first_day(CONFIG_RESET_WEEKLY, AT("2027-01-04")) * day,
	        AT("2027-01-04"));
	assert_int_equal(
	        key_limits_first_day(CONFIG_RESET_MONTHLY, wednesday) * day, AT("2026-12-01"));
	assert_int_equal(key_limits_ends_ms(CONFIG_RESET_MONTHLY, wednesday), AT("2027-01-01"));
	assert_int_equal(
	        key_limits_ends_ms(CONFIG_RESET_MONTHLY, AT("2028-02-01")), AT("2028-03-01"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_requests, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_many_at_once_pass_no_more, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_containers, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(test_dollars, set_up, tear_down),
	        cmocka_unit_test(test_periods),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
