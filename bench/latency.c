/*
 * Latencies of one thing, from one client or from several at once: one number in microseconds for
 * each time, one a line.
 *
 *     latency spawn N[:MS[:K]] -- PROGRAM ARG…   posix_spawn, until it has been waited for (stdio
 * on /dev/null) latency http N[:MS[:K]] HOST PORT KEY METHOD PATH BODY [METHOD2 PATH2] one
 * kept-alive connection for each client; the second request, if any, is sent after each and not
 * timed
 *
 * K clients (1 where it is not given) begin together, N times in all, rounded up to whole rounds.
 * In an argument or a path %d becomes the number of the run, another one each time, and %w the
 * number of the client, from 0. Before the next round nothing happens for MS milliseconds: what was
 * idle wakes up more slowly. The first rounds are not reported.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_CLIENTS 1024
#define MAX_ARGS    64
#define MAX_ARG     1024

extern char **environ;

static struct {
	int rounds, unreported, clients;
	long pause_ms;
	int argc;
	char **argv; /* what follows N */
	double *times;
	pthread_barrier_t begin;
} run;

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void die(const char *what)
{
	fprintf(stderr, "latency: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Copies text with its %d and %w replaced. */
static void fill(char out[MAX_ARG], const char *text, int number, int client)
{
	size_t len = 0;

	for (; *text && len < MAX_ARG - 16; text++) {
		if (text[0] == '%' && (text[1] == 'd' || text[1] == 'w')) {
			len += (size_t)sprintf(out + len, "%d", text[1] == 'd' ? number : client);
			text++;
		} else {
			out[len++] = *text;
		}
	}
	out[len] = 0;
}

/* ---- programs ---- */

static double spawn_once(int number, int client)
{
	char text[MAX_ARGS][MAX_ARG], *argv[MAX_ARGS + 1] = {NULL};
	posix_spawn_file_actions_t fa;
	pid_t pid;
	int status;

	for (int i = 0; i < run.argc; i++) {
		fill(text[i], run.argv[i], number, client);
		argv[i] = text[i];
	}
	posix_spawn_file_actions_init(&fa);
	for (int fd = 0; fd < 3; fd++)
		posix_spawn_file_actions_addopen(&fa, fd, "/dev/null", O_RDWR, 0);
	double start = now_us();

	errno = posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ);
	if (errno != 0 || waitpid(pid, &status, 0) != pid)
		die(argv[0]);
	double took = now_us() - start;

	posix_spawn_file_actions_destroy(&fa);
	if (status != 0) {
		fprintf(stderr, "latency: %s failed with status %d\n", argv[0], status);
		exit(1);
	}
	return took;
}

/* ---- requests ---- */

/* Sends a request and reads the whole answer. expect: its status, or 0 for any. */
static void request(int fd, const char *method, const char *path, const char *body, int expect)
{
	static __thread char out[65536], in[1 << 20];
	size_t len = 0, want = 0;
	int n = snprintf(out, sizeof(out),
	        "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: "
	        "%zu\r\n\r\n%s",
	        method, path, run.argv[0], run.argv[2], strlen(body), body);

	if (send(fd, out, (size_t)n, MSG_NOSIGNAL) != n)
		die("send");
	while (want == 0 || len < want) {
		ssize_t r = recv(fd, in + len, sizeof(in) - 1 - len, 0);

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
	if (expect != 0 && strtol(in + 9, NULL, 10) != expect) {
		fprintf(stderr, "latency: %s %s answered: %s\n", method, path, in);
		exit(1);
	}
}

static int connect_to_server(void)
{
	struct sockaddr_in sa = {
	        .sin_family = AF_INET, .sin_port = htons((uint16_t)strtoul(run.argv[1], NULL, 10))};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, run.argv[0], &sa.sin_addr);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static double http_once(int fd, int number, int client)
{
	char path[MAX_ARG];
	double start, took;

	fill(path, run.argv[4], number, client);
	start = now_us();
	request(fd, run.argv[3], path, run.argv[5], 200);
	took = now_us() - start;
	if (run.argc >= 8) {
		fill(path, run.argv[7], number, client);
		request(fd, run.argv[6], path, "", 0);
	}
	return took;
}

/* ---- the run ---- */

static int is_http;

static void *client_run(void *arg)
{
	int client = (int)(intptr_t)arg;
	int fd = is_http ? connect_to_server() : -1;

	for (int round = 0; round < run.unreported + run.rounds; round++) {
		int number = round * run.clients + client;

		pthread_barrier_wait(&run.begin);
		double took = is_http ? http_once(fd, number, client) : spawn_once(number, client);

		if (round >= run.unreported)
			run.times[number - run.unreported * run.clients] = took;
		pthread_barrier_wait(&run.begin);
		usleep((useconds_t)run.pause_ms * 1000);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int n = 0;

	run.clients = 1;
	if (argc > 4)
		sscanf(argv[2], "%d:%ld:%d", &n, &run.pause_ms, &run.clients);
	is_http = argc >= 9 && strcmp(argv[1], "http") == 0;
	run.argv = argv + (is_http ? 3 : 4);
	run.argc = argc - (is_http ? 3 : 4);
	if (n < 1 || run.clients < 1 || run.clients > MAX_CLIENTS || run.argc > MAX_ARGS ||
	        (!is_http && strcmp(argv[1], "spawn") != 0)) {
		fprintf(stderr, "usage: latency spawn N[:MS[:K]] -- PROGRAM ARG…\n"
		                "       latency http N[:MS[:K]] HOST PORT KEY METHOD PATH BODY "
		                "[METHOD2 PATH2]\n");
		return 2;
	}
	run.unreported = run.clients == 1 ? 3 : 1;
	run.rounds = (n + run.clients - 1) / run.clients;
	run.times = calloc((size_t)run.rounds * (size_t)run.clients, sizeof(*run.times));
	pthread_barrier_init(&run.begin, NULL, (unsigned)run.clients);
	for (int i = 1; i < run.clients; i++) {
		pthread_t t;

		errno = pthread_create(&t, NULL, client_run, (void *)(intptr_t)i);
		if (errno != 0)
			die("thread");
	}
	client_run(NULL);
	for (int i = 0; i < run.rounds * run.clients; i++)
		printf("%.0f\n", run.times[i]);
	return 0;
}
