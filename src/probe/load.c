#include "probe/load.h"

#include "probe/expect.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DAEMONS = 3, MOST_PROCESSES = 1024, CPU_WALL_MS = 100, CPU_SLACK_MS = 60 };

static void sleep_ms(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&t, NULL);
}

static void ignore_signals(void)
{
	for (int i = 1; i < NSIG; i++)
		signal(i, SIG_IGN);
}

_Noreturn static void write_dots(void)
{
	for (;;) {
		if (write(STDOUT_FILENO, ".", 1) != 1)
			_exit(1);
		sleep_ms(2);
	}
}

int load_tree(void)
{
	ignore_signals();
	for (int i = 0; i < DAEMONS; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return 1;
		if (pid == 0) {
			setsid();
			pid = fork();
			if (pid == 0)
				write_dots();
			_exit(pid < 0);
		}
	}
	write_dots();
}

void load_processes(unsigned long limit)
{
	unsigned long n = 0;
	pid_t pid = 0;
	int gate[2];
	char byte;

	if (pipe2(gate, O_CLOEXEC) < 0) {
		expect_that(false, "pipe: %s", strerror(errno));
		return;
	}
	/* The children wait for the gate's other end to close. */
	while (n < MOST_PROCESSES && (pid = fork()) > 0)
		n++;
	if (pid == 0) {
		close(gate[1]);
		(void)!read(gate[0], &byte, 1);
		_exit(0);
	}
	expect_that(pid < 0 && errno == EAGAIN, "%lu processes: %s", n, strerror(errno));
	close(gate[1]);
	while (waitpid(-1, NULL, 0) > 0)
		;
	expect_that(n < limit, "%lu processes, allowed are %lu", n, limit);
	expect_seen("%lu beside us, then EAGAIN; allowed are %lu", n, limit);
}

static long clock_ms(clockid_t which)
{
	struct timespec t;

	clock_gettime(which, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/*
 * Never holds too much against a limit: a busy machine gives us less than we may have. The kernel
 * counts in periods of 100 ms: as much as one allows may be used at the end of one and again at the
 * start of the next, and a tick more of each.
 */
void load_cpu(unsigned long milli)
{
	long start = clock_ms(CLOCK_MONOTONIC), used = clock_ms(CLOCK_PROCESS_CPUTIME_ID), wall;
	long most;

	do
		wall = clock_ms(CLOCK_MONOTONIC) - start;
	while (wall < CPU_WALL_MS);
	used = clock_ms(CLOCK_PROCESS_CPUTIME_ID) - used;
	most = wall * (long)milli / 1000 + CPU_SLACK_MS;
	expect_that(used <= most, "%ld ms of processor time in %ld ms", used, wall);
	expect_seen("%ld ms of processor time in %ld ms; allowed are %lu thousandths", used, wall,
	        milli);
}

int load_memory(void)
{
	/* Far beyond any limit of a self-test; stops there in case that nobody stops us. */
	const size_t most = 256ul << 20, step = 1 << 20;
	char *at = mmap(NULL, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return 2;
	for (size_t i = 0; i < most; i += step)
		memset(at + i, 0x5a, step);
	return 1;
}
