/*
 * Latencies of one thing at a time, from one client, printed as one line of numbers in microseconds:
 *     N MIN P50 P90 P99 MAX
 *
 *     latency spawn N[:MS] -- PROGRAM ARG…     posix_spawn, until it has been waited for (stdio on /dev/null)
 *     latency http N[:MS] HOST PORT KEY METHOD PATH BODY [METHOD2 PATH2]
 *         one kept-alive connection; the second request, if any, is sent after each and not timed. %d in a
 *         path becomes the number of the round.
 *     Between two rounds nothing happens for MS milliseconds: what was idle wakes up more slowly.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return d < 0 ? -1 : d > 0;
}

static void report(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), compare);
	printf("%d %.0f %.0f %.0f %.0f %.0f\n", n, v[0], v[n / 2], v[n * 9 / 10], v[n * 99 / 100], v[n - 1]);
}

static void die(const char *what)
{
	fprintf(stderr, "latency: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int run_spawn(int n, long pause_ms, char **argv)
{
	posix_spawn_file_actions_t fa;
	double *v = calloc((size_t)n, sizeof(*v));

	posix_spawn_file_actions_init(&fa);
	for (int fd = 0; fd < 3; fd++)
		posix_spawn_file_actions_addopen(&fa, fd, "/dev/null", O_RDWR, 0);
	for (int i = -5; i < n; i++) {
		double t = now_us();
		pid_t pid;
		int status;

		if (posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ) != 0 || waitpid(pid, &status, 0) != pid)
			die(argv[0]);
		if (status != 0) {
			fprintf(stderr, "latency: %s failed with status %d\n", argv[0], status);
			return 1;
		}
		if (i >= 0)
			v[i] = now_us() - t;
		usleep((useconds_t)pause_ms * 1000);
	}
	report(v, n);
	return 0;
}

struct target {
	const char *host, *key;
	int fd;
};

/* Sends a request and reads the whole answer. Content-Length only. */
static void request(struct target *t, const char *method, const char *path, const char *body, int expect)
{
	static char out[65536], in[1 << 20];
	size_t len = 0, want = 0;
	int status = 0;
	int n = snprintf(out, sizeof(out),
	        "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %zu\r\n\r\n%s", method, path,
	        t->host, t->key, strlen(body), body);

	if (send(t->fd, out, (size_t)n, MSG_NOSIGNAL) != n)
		die("send");
	while (want == 0 || len < want) {
		ssize_t r = recv(t->fd, in + len, sizeof(in) - 1 - len, 0);

		if (r <= 0)
			die("recv");
		len += (size_t)r;
		in[len] = 0;
		const char *end = strstr(in, "\r\n\r\n");
		const char *length = end != NULL ? strcasestr(in, "content-length:") : NULL;

		if (want == 0 && length != NULL && length < end)
			want = (size_t)(end - in) + 4 + strtoul(length + 15, NULL, 10);
		else if (want == 0 && end != NULL && strstr(in, "\r\n0\r\n\r\n") != NULL)
			want = len; /* chunked, and its last chunk is here */
	}
	status = (int)strtol(in + 9, NULL, 10);
	if (expect != 0 && status != expect) {
		fprintf(stderr, "latency: %s %s answered %d: %s\n", method, path, status, in);
		exit(1);
	}
}

static int run_http(int n, long pause_ms, char **a, int argc)
{
	struct target t = {.host = a[0], .key = a[2]};
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)strtoul(a[1], NULL, 10))};
	double *v = calloc((size_t)n, sizeof(*v));
	char path[1024];
	int one = 1;

	inet_pton(AF_INET, t.host, &sa.sin_addr);
	t.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (t.fd < 0 || connect(t.fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		die("connect");
	setsockopt(t.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (int i = -3; i < n; i++) {
		/* The only formats are ours: one %d in a path given on the command line. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(path, sizeof(path), a[4], i + 3);
		double start = now_us();

		request(&t, a[3], path, a[5], 200);
		if (i >= 0)
			v[i] = now_us() - start;
		if (argc >= 8) {
			snprintf(path, sizeof(path), a[7], i + 3);
			request(&t, a[6], path, "", 0);
		}
		usleep((useconds_t)pause_ms * 1000);
#pragma GCC diagnostic pop
	}
	report(v, n);
	return 0;
}

int main(int argc, char **argv)
{
	char *end = NULL;
	int n = argc > 2 ? (int)strtol(argv[2], &end, 10) : 0;
	long pause_ms = end != NULL && *end == ':' ? strtol(end + 1, NULL, 10) : 0;

	if (argc > 4 && n > 0 && strcmp(argv[1], "spawn") == 0)
		return run_spawn(n, pause_ms, argv + 4);
	if (argc >= 9 && n > 0 && strcmp(argv[1], "http") == 0)
		return run_http(n, pause_ms, argv + 3, argc - 3);
	fprintf(stderr, "usage: latency spawn N[:MS] -- PROGRAM ARG…\n"
	                "       latency http N[:MS] HOST PORT KEY METHOD PATH BODY [METHOD2 PATH2]\n");
	return 2;
}
