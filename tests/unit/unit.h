/* What every unit test includes: cmocka, and a check that a broken invariant ends the process. */
#ifndef BRIG_UNIT_H
#define BRIG_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* True when fn(arg) ends in abort(), as BUG does. Runs it in a child whose output is dropped. */
static inline bool unit_aborts(void (*fn)(void *arg), void *arg)
{
	int status = 0, null;
	pid_t pid = fork();

	if (pid == 0) {
		null = open("/dev/null", O_WRONLY | O_CLOEXEC);
		if (null < 0 || dup2(null, STDERR_FILENO) < 0)
			_exit(2);
		/* The test runner may have a handler; here it must end the child. */
		signal(SIGABRT, SIG_DFL);
		fn(arg);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* A small generator with a fixed start, so that a failing random test fails again. */
struct unit_random {
	uint64_t state;
};

static inline uint64_t unit_next(struct unit_random *r)
{
	r->state ^= r->state << 13;
	r->state ^= r->state >> 7;
	r->state ^= r->state << 17;
	return r->state;
}

static inline size_t unit_below(struct unit_random *r, size_t n)
{
	return (size_t)(unit_next(r) >> 11) % n;
}

#define UNIT_RUN(tests) cmocka_run_group_tests((tests), NULL, NULL)

#endif
