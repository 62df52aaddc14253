/*
 * A tree of processes to be killed: `tree N` becomes N processes that wait for ever, every other
 * one in a session of its own, prints N when all are there, and waits too. Static, so that any
 * image can run it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long n = argc > 1 ? strtol(argv[1], NULL, 10) : 1;

	for (long i = 1; i < n; i++) {
		pid_t pid = fork();

		if (pid < 0) {
			fprintf(stderr, "fork %ld: %m\n", i);
			return 1;
		}
		if (pid > 0)
			continue;
		if (i % 2)
			setsid();
		for (;;)
			pause();
	}
	printf("%ld\n", n);
	fflush(stdout);
	for (;;)
		pause();
}
