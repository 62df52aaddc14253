/* Kernels judged by their numbers: below, at and above a fix, in series that got it and that did
 * not, and numbers that say nothing. */
#include "unit/unit.h"

#include "supervisor/kernel.h"

#include <string.h>

#define PLAIN "#1 SMP PREEMPT_DYNAMIC"

static bool has(const char *release, const char *version, const char *cve)
{
	struct sup_fault rows[SUP_MAX_FAULTS];
	int n;
	kernel_judge(release, version, rows, SUP_MAX_FAULTS, &n);
	for (int i = 0; i < n; i++)
		if (strcmp(rows[i].cve, cve) == 0)
			return true;
	return false;
}

static enum sup_kernel judge(const char *release, const char *version)
{
	struct sup_fault rows[SUP_MAX_FAULTS];
	int n;
	return kernel_judge(release, version, rows, SUP_MAX_FAULTS, &n);
}

static void fixed_from_its_release_on(void **state)
{
	static const char ghost[] = "CVE-2026-43499";
	assert_true(has("6.12.85", PLAIN, ghost));
	assert_false(has("6.12.86", PLAIN, ghost));
	assert_false(has("6.12.100", PLAIN, ghost));
	assert_true(has("6.1.9", PLAIN, ghost));
	assert_true(has("6.1.174", PLAIN, ghost));
	assert_false(has("6.1.175", PLAIN, ghost));
	assert_true(has("7.0.3", PLAIN, ghost));
	assert_false(has("7.0.4", PLAIN, ghost));
	assert_false(has("7.1.0", PLAIN, ghost));
	assert_false(has("7.1", PLAIN, ghost));
	assert_false(has("8.0.1", PLAIN, ghost));
}

static void a_series_without_a_fix_has_the_fault(void **state)
{
	assert_true(has("6.19.200", PLAIN, "CVE-2026-43499"));
	assert_true(has("6.8.12", PLAIN, "CVE-2026-31431"));
	assert_true(has("6.17.99", PLAIN, "CVE-2026-31431"));
}

static void not_before_it_came(void **state)
{
	assert_false(has("6.6.20", PLAIN, "CVE-2026-31554"));
	assert_true(has("6.7.0", PLAIN, "CVE-2026-31554"));
	/* Brought to two series by a later change. */
	assert_false(has("6.1.140", PLAIN, "CVE-2026-23394"));
	assert_true(has("6.1.141", PLAIN, "CVE-2026-23394"));
	assert_true(has("6.1.182", PLAIN, "CVE-2026-23394"));
	assert_false(has("6.1.183", PLAIN, "CVE-2026-23394"));
	assert_false(has("6.6.92", PLAIN, "CVE-2026-23394"));
	assert_true(has("6.6.93", PLAIN, "CVE-2026-23394"));
	assert_false(has("6.6.142", PLAIN, "CVE-2026-23394"));
}

static void the_release_with_the_fix_is_named(void **state)
{
	struct sup_fault rows[SUP_MAX_FAULTS];
	int n;
	assert_int_equal(
	        kernel_judge("6.18.26", PLAIN, rows, SUP_MAX_FAULTS, &n), SUP_KERNEL_FAULTY);
	assert_int_equal(n, 2);
	assert_string_equal(rows[0].cve, "CVE-2026-43284");
	assert_string_equal(rows[0].fixed, "6.18.28");
	assert_true(rows[0].shut);
	assert_string_equal(rows[1].cve, "CVE-2026-43499");
	assert_string_equal(rows[1].fixed, "6.18.27");
	assert_false(rows[1].shut);
	/* No such release in its own series. */
	kernel_judge("6.19.13", PLAIN, rows, SUP_MAX_FAULTS, &n);
	assert_int_equal(n, 2);
	assert_string_equal(rows[0].fixed, "7.1.0");
	/* No more than there is room for. */
	kernel_judge("6.1.0", PLAIN, rows, 3, &n);
	assert_int_equal(n, 3);
}

static void a_recent_kernel_has_none(void **state)
{
	assert_int_equal(judge("6.18.44", PLAIN), SUP_KERNEL_NO_FAULT);
	assert_int_equal(judge("6.18.44-vendor", PLAIN), SUP_KERNEL_NO_FAULT);
	assert_int_equal(judge("7.2.1", PLAIN), SUP_KERNEL_NO_FAULT);
}

static void debian_tells_the_number_elsewhere(void **state)
{
	const char *old = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.158-1 (2025-11-09)";
	const char *new = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.190-1 (2026-10-09)";
	assert_true(has("6.1.0-41-cloud-amd64", old, "CVE-2026-43499"));
	assert_false(has("6.1.0-41-cloud-amd64", old, "CVE-2025-39977"));
	assert_int_equal(judge("6.1.0-49-amd64", new), SUP_KERNEL_NO_FAULT);
}

static void a_number_that_says_nothing(void **state)
{
	assert_int_equal(
	        judge("6.8.0-117-generic", "#117-Ubuntu SMP PREEMPT_DYNAMIC"), SUP_KERNEL_UNKNOWN);
	assert_int_equal(judge("6.12.0-211.31.2.el10_2.x86_64", PLAIN), SUP_KERNEL_UNKNOWN);
	assert_int_equal(judge("", ""), SUP_KERNEL_UNKNOWN);
	assert_int_equal(judge("six", PLAIN), SUP_KERNEL_UNKNOWN);
	assert_int_equal(judge("6", PLAIN), SUP_KERNEL_UNKNOWN);
	/* Without such a suffix it is the first of its series, or a candidate for it. */
	assert_int_equal(judge("6.12.0", PLAIN), SUP_KERNEL_FAULTY);
	assert_int_equal(judge("6.19.0-rc3", PLAIN), SUP_KERNEL_FAULTY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(fixed_from_its_release_on),
	        cmocka_unit_test(a_series_without_a_fix_has_the_fault),
	        cmocka_unit_test(not_before_it_came),
	        cmocka_unit_test(the_release_with_the_fix_is_named),
	        cmocka_unit_test(a_recent_kernel_has_none),
	        cmocka_unit_test(debian_tells_the_number_elsewhere),
	        cmocka_unit_test(a_number_that_says_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
