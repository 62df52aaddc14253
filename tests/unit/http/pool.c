/* The thread pool in front of the loop. */
#include "harness.h"

#include "http/pool.h"

#include <pthread.h>

static struct pool *pool;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_t loop_thread;
static size_t n_done;

struct task {
	bool worked, done;
	bool on_pool, on_loop;
	struct task *next; /* queued by done() */
};

static void work(void *arg)
{
	struct task *t = arg;

	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	t->on_pool = !pthread_equal(pthread_self(), loop_thread);
	t->worked = true;
}

static void done(void *arg)
{
	struct task *t = arg;

	t->on_loop = pthread_equal(pthread_self(), loop_thread);
	t->done = true;
	n_done++;
	if (t->next)
		assert_true(pool_run(pool, work, done, t->next));
}

static int setup(void **state)
{
	loop_thread = pthread_self();
	n_done = 0;
	pool = pool_new(loop_base(), 3);
	return 0;
}

static int teardown(void **state)
{
	pool = pool_free(pool);
	loop_free();
	return 0;
}

static void test_work_and_done(void **state)
{
	static struct task tasks[100];
	size_t i;

	memset(tasks, 0, sizeof(tasks));
	for (i = 0; i < 100; i++) {
		tasks[i].next = i < 50 ? &tasks[i + 50] : NULL;
		if (i < 50)
			assert_true(pool_run(pool, work, done, &tasks[i]));
	}
	assert_int_equal(n_done, 0); /* never from inside pool_run */
	LOOP_UNTIL(n_done == 100, 60000);
	for (i = 0; i < 100; i++)
		assert_true(
		        tasks[i].worked && tasks[i].done && tasks[i].on_pool && tasks[i].on_loop);
	assert_int_equal(pool_queued(pool), 0);
}

static void test_bound(void **state)
{
	static struct task tasks[5000];
	size_t i, n = 0;

	memset(tasks, 0, sizeof(tasks));
	pthread_mutex_lock(&gate);
	for (i = 0; i < 5000; i++)
		n += pool_run(pool, work, done, &tasks[i]) != 0;
	/* 4,096 wait; the threads may have taken up to 3. */
	assert_true(n >= 4096 && n <= 4099);
	assert_int_equal(pool_queued(pool), 4096);
	pthread_mutex_unlock(&gate);
	LOOP_UNTIL(n_done == n, 60000);
	assert_true(pool_run(pool, work, done, &tasks[4999]));
	LOOP_UNTIL(n_done == n + 1, 60000);
}

static void test_free_does_what_is_queued(void **state)
{
	static struct task tasks[500];
	size_t i;

	memset(tasks, 0, sizeof(tasks));
	for (i = 0; i < 500; i++)
		assert_true(pool_run(pool, work, done, &tasks[i]));
	pool = pool_free(pool);
	for (i = 0; i < 500; i++)
		assert_true(tasks[i].worked && tasks[i].done && tasks[i].on_loop);
	assert_null(pool_free(NULL));
}

static void test_signals_stay_with_the_loop(void **state)
{
	sigset_t set;

	sigemptyset(&set);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &set), 0);
	assert_false(sigismember(&set, SIGTERM)); /* the caller's mask is as before */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_work_and_done, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_bound, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_free_does_what_is_queued, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_signals_stay_with_the_loop, setup, teardown),
	};

	return UNIT_RUN(tests);
}
