/* Prints how long a worker's work takes, and what it costs. */
#include "files.h"

#include "unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void print(const char *what, double *all, int n)
{
	qsort(all, (size_t)n, sizeof(*all), compare_double);
	printf("%-48s min %8.0f  p50 %8.0f  max %8.0f us\n", what, all[0], all[n / 2], all[n - 1]);
}

static bool print_memory(void *ctx, pid_t pid)
{
	char path[64], line[256];
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "r");
	bool worker = false;
	while (f && fgets(line, sizeof(line), f)) {
		worker = worker || strcmp(line, "Name:\tbrig: worker\n") == 0;
		if (worker && (strncmp(line, "VmHWM", 5) == 0 || strncmp(line, "VmRSS", 5) == 0 ||
		                      strncmp(line, "RssAnon", 7) == 0))
			printf("worker %s", line);
	}
	if (f)
		fclose(f);
	return true;
}

#define ROUNDS 30

static void measure(void **state)
{
	struct node n;
	union reply r;
	double a[ROUNDS], b[ROUNDS], c[ROUNDS];
	node_make(&n);
	n.cfg.home_mib = 5120;
	node_start(&n);
	close(files_open(&n, "a", SUP_FILES_CREATE));
	for (int i = 0; i < ROUNDS; i++) {
		node_key_op(&n, 0, SUP_DELETE, "a", &r);
		int made = files_open(&n, "a", SUP_FILES_CREATE);
		files_put(made, "x", "x");
		close(made);
		node_key_op(&n, 0, SUP_DELETE, "b", &r);
		double t = now_us();
		int sock = files_open(&n, "b", SUP_FILES_CREATE);
		a[i] = now_us() - t;
		struct answer s = files_path(sock, WORKER_STAT, "x");
		b[i] = now_us() - t;
		answer_clear(&s);
		t = now_us();
		s = files_path(sock, WORKER_STAT, "x");
		c[i] = now_us() - t;
		answer_clear(&s);
		close(sock);
	}
	print("SUP_FILES to its answer, nothing prepared", a, ROUNDS);
	print("SUP_FILES to the worker's first answer", b, ROUNDS);
	print("STAT, worker running", c, ROUNDS);
	int sock = files_open(&n, "a", 0);
	node_each_process(&n, print_memory, NULL);
	for (int i = 0; i < 100000; i++) {
		char name[32];
		struct answer s = files_create(sock, 0);
		uint64_t handle = s.handle;
		answer_clear(&s);
		snprintf(name, sizeof(name), "many/%06d", (int)((i * 7919LL) % 100000));
		s = files_link(sock, handle, name, 0);
		answer_clear(&s);
	}
	for (int i = 0; i < ROUNDS; i++) {
		char after[32];
		snprintf(after, sizeof(after), "many/%06d", i * 3000);
		double t = now_us();
		struct answer s = files_list(sock, "", 1000);
		a[i] = now_us() - t;
		answer_clear(&s);
		t = now_us();
		s = files_list(sock, after, 1000);
		b[i] = now_us() - t;
		answer_clear(&s);
		t = now_us();
		s = files_recent(sock, 0, 10, 1000000);
		c[i] = now_us() - t;
		answer_clear(&s);
	}
	print("LIST the first 1,000 of 100,000 in one folder", a, ROUNDS);
	print("LIST 1,000 from the middle", b, ROUNDS);
	print("RECENT of 100,000 (1 s at most)", c, ROUNDS);
	node_each_process(&n, print_memory, NULL);
	close(sock);
	node_stop(&n);
	node_remove(&n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(measure, node_teardown)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
