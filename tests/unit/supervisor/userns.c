/* The process that a namespace is made with dies with its maker, whenever that is killed. */
#include "unit/unit.h"

#include "supervisor/sys.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS  200
#define OUTSIDE 0x70000000u

static void make_for_ever(void)
{
	setpgid(0, 0);
	for (;;) {
		int fd = sys_userns(0, OUTSIDE);

		if (fd >= 0)
			close(fd);
	}
}

/* Whoever is left holds the other end of the pipe. */
static void nobody_is_left_behind(void **state)
{
	srandom(1);
	for (int i = 0; i < ROUNDS; i++) {
		struct pollfd other = {.events = POLLIN};
		int ends[2];
		pid_t pid;

		assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			make_for_ever();
		close(ends[1]);
		usleep(1000 + (useconds_t)(random() % 3000));
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		other.fd = ends[0];
		if (poll(&other, 1, 60000) != 1) {
			kill(-pid, SIGKILL);
			fail_msg("round %d: a process is left behind", i);
		}
		close(ends[0]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(nobody_is_left_behind)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
