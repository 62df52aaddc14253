/* A provider that fails is left alone, then tried by one, also where that one dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "gateway/gateway.h"
#include "gateway/shared.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct circuit_rule rule = {.failures = 3, .rest_ms = 1000};

static void fail_times(struct circuit *c, unsigned n, uint64_t now)
{
	while (n-- > 0)
		circuit_failed(c, &rule, now);
}

static bool allows(struct circuit *c, uint64_t now)
{
	uint64_t wait = 0;
	bool yes = circuit_allows(c, &rule, now, &wait);

	assert_true(yes || (wait > 0 && wait <= rule.rest_ms));
	return yes;
}

static void test_opens_after_failures_in_a_row(void **state)
{
	struct circuit c = {0};

	fail_times(&c, 2, 100);
	assert_true(allows(&c, 100));
	circuit_answered(&c);
	fail_times(&c, 2, 100);
	assert_true(allows(&c, 100));
	fail_times(&c, 1, 100);
	assert_false(allows(&c, 100));
	assert_false(allows(&c, 1099));
}

static void test_one_probe_at_a_time(void **state)
{
	struct circuit c = {0};

	fail_times(&c, 3, 100);
	assert_true(allows(&c, 1100));
	assert_false(allows(&c, 1100));
	assert_false(allows(&c, 2099));
	/* Nothing was heard of it. */
	assert_true(allows(&c, 2100));
	fail_times(&c, 1, 2200);
	assert_false(allows(&c, 3100));
	assert_true(allows(&c, 3200));
	circuit_answered(&c);
	for (int i = 0; i < 5; i++)
		assert_true(allows(&c, 3200));
	fail_times(&c, 2, 3300);
	assert_true(allows(&c, 3300));
}

static void test_never_where_the_rule_says_so(void **state)
{
	const struct circuit_rule never = {.failures = 0, .rest_ms = 1000};
	struct circuit c = {0};
	uint64_t wait;

	for (int i = 0; i < 100; i++)
		circuit_failed(&c, &never, 5);
	assert_true(circuit_allows(&c, &never, 5, &wait));
}

struct race {
	struct circuit *c;
	_Atomic unsigned probes;
};

static void *race_run(void *arg)
{
	struct race *r = arg;

	for (uint64_t now = 2000; now < 20000; now++) {
		uint64_t wait;

		if (circuit_allows(r->c, &rule, now, &wait))
			r->probes++;
	}
	return NULL;
}

static void test_threads_share_the_probes(void **state)
{
	struct circuit c = {0};
	struct race r = {&c, 0};
	pthread_t threads[4];

	fail_times(&c, 3, 1000);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, race_run, &r), 0);
	for (size_t i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	/* One in each rest, whoever is quicker: 18 in the time that each of them walks through. */
	assert_in_range(r.probes, 1, 18);
}

/* What one process writes another reads, and its death takes nothing back. */
static void test_processes_share_the_mapping(void **state)
{
	int fd = memfd_create("shared", MFD_CLOEXEC), status;
	struct shared *s;
	pid_t pid;

	assert_true(fd >= 0);
	assert_null(shared_map(fd, NULL)); /* it has no bytes */
	assert_int_equal(ftruncate(fd, GATEWAY_SHARED_SIZE), 0);
	s = shared_map(fd, NULL);
	assert_non_null(s);
	pid = fork();
	if (pid == 0) {
		struct shared *own = shared_map(fd, NULL);

		if (own != NULL)
			fail_times(&own->circuits[7], 3, 100);
		_exit(own == NULL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_false(allows(&s->circuits[7], 200));
	assert_true(allows(&s->circuits[6], 200));
	assert_null(shared_unmap(s));
	close(fd);
	s = shared_map(-1, NULL);
	assert_true(allows(&s->circuits[7], 200));
	shared_unmap(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_opens_after_failures_in_a_row),
	        cmocka_unit_test(test_one_probe_at_a_time),
	        cmocka_unit_test(test_never_where_the_rule_says_so),
	        cmocka_unit_test(test_threads_share_the_probes),
	        cmocka_unit_test(test_processes_share_the_mapping),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
