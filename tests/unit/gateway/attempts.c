/* Whom an upstream call asks next, and when it gives up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "gateway/attempts.h"

#include <string.h>

static uint64_t now;

static void refuse(struct attempts *a, size_t target, enum attempt_failure how, const char *text,
        int retry_after_ms)
{
	struct error e;

	error_set(&e, ERR_UPSTREAM, "%s", text);
	e.retry_after_ms = retry_after_ms;
	attempts_failed(a, target, how, &e, now, 0);
}

/* The next is this target after this wait, which then has passed. */
static void expect_next(struct attempts *a, size_t target, uint64_t wait)
{
	size_t got;
	uint64_t waits;

	assert_true(attempts_next(a, now, &got, &waits));
	assert_int_equal(got, target);
	assert_int_equal(waits, wait);
	now += waits;
}

static void expect_end(struct attempts *a, const char *told)
{
	size_t got;
	uint64_t waits;

	assert_false(attempts_next(a, now, &got, &waits));
	assert_string_equal(a->told->text, told);
	attempts_end(a);
}

static void test_each_in_order_before_any_wait(void **state)
{
	struct attempts a = {0};

	now = 1000;
	attempts_begin(&a, 3, 2, 10000);
	refuse(&a, 1, ATTEMPT_BUSY, "one", 0); /* the one that served last is asked first */
	expect_next(&a, 0, 0);
	refuse(&a, 0, ATTEMPT_BUSY, "zero", 0);
	expect_next(&a, 2, 0);
	refuse(&a, 2, ATTEMPT_FAILED, "two", 0);
	expect_next(&a, 0, 500);
	refuse(&a, 0, ATTEMPT_BUSY, "zero", 0);
	expect_next(&a, 1, 0); /* its time has come too */
	refuse(&a, 1, ATTEMPT_BUSY, "one", 0);
	expect_next(&a, 0, 1000);
	refuse(&a, 0, ATTEMPT_BUSY, "zero", 0);
	expect_next(&a, 1, 0);
	refuse(&a, 1, ATTEMPT_BUSY, "the end", 0);
	expect_end(&a, "the end");
}

static void test_no_retries(void **state)
{
	struct attempts a = {0};

	attempts_begin(&a, 1, 0, 10000);
	refuse(&a, 0, ATTEMPT_BUSY, "once", 0);
	expect_end(&a, "once");
}

static void test_retry_after_is_heeded_and_bounded(void **state)
{
	struct attempts a = {0};

	now = 5;
	attempts_begin(&a, 1, 3, 10000);
	refuse(&a, 0, ATTEMPT_BUSY, "x", 3000);
	expect_next(&a, 0, 3000);
	refuse(&a, 0, ATTEMPT_BUSY, "x", 1); /* less than ours is no reason to hurry */
	expect_next(&a, 0, 1000);
	refuse(&a, 0, ATTEMPT_BUSY, "more than is left", 6001);
	expect_end(&a, "more than is left");

	attempts_begin(&a, 2, 3, 10000);
	refuse(&a, 0, ATTEMPT_BUSY, "x", 3600000);
	expect_next(&a, 1, 0);
	refuse(&a, 1, ATTEMPT_BUSY, "y", 0);
	expect_next(&a, 1, 500); /* and not the one that asked for an hour */
	attempts_end(&a);
}

static void test_backoff_grows_to_its_most_with_jitter(void **state)
{
	struct error e;
	size_t got;
	uint64_t wait, last = 0;

	error_set(&e, ERR_UPSTREAM, "x");
	for (uint32_t jitter = 0; jitter < 2048; jitter += 511) {
		struct attempts a = {0};

		attempts_begin(&a, 1, 100, UINT64_MAX);
		for (unsigned i = 0; i < 8; i++) {
			uint64_t full = i < 4 ? UINT64_C(500) << i : 8000;

			attempts_failed(&a, 0, ATTEMPT_BUSY, &e, 0, jitter);
			assert_true(attempts_next(&a, 0, &got, &wait));
			assert_true(wait <= full && wait >= full - full / 4);
			last = wait;
		}
		attempts_end(&a);
	}
	assert_true(last < 8000);
}

static void test_what_is_told(void **state)
{
	static const enum attempt_failure order[] = {
	        ATTEMPT_UNABLE, ATTEMPT_RESTS, ATTEMPT_FAILED, ATTEMPT_BUSY};
	struct attempts a = {0};

	for (size_t i = 0; i < 4; i++) {
		for (size_t k = 0; k < 4; k++) {
			attempts_begin(&a, 2, 0, 0);
			refuse(&a, 0, order[i], "first", 0);
			expect_next(&a, 1, 0);
			refuse(&a, 1, order[k], "second", 0);
			expect_end(&a, k >= i ? "second" : "first");
		}
	}
}

static void test_ending_what_never_began(void **state)
{
	struct attempts a = {0};

	attempts_end(&a);
	attempts_begin(&a, 4, 1, 1);
	attempts_begin(&a, 4, 1, 1);
	attempts_end(&a);
	attempts_end(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_each_in_order_before_any_wait),
	        cmocka_unit_test(test_no_retries),
	        cmocka_unit_test(test_retry_after_is_heeded_and_bounded),
	        cmocka_unit_test(test_backoff_grows_to_its_most_with_jitter),
	        cmocka_unit_test(test_what_is_told),
	        cmocka_unit_test(test_ending_what_never_began),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
