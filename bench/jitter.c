/*
 * How late the pieces of many open streams arrive: reads the time of sending out of each piece ("@<ns>@",
 * bench/upstream.c) and prints by how many microseconds it came later, one number a line.
 *
 *     jitter N SECONDS HOST PORT KEY PATH BODY
 *
 * N streams are opened, one by one; then all are read for so many seconds.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_STREAMS 4096

/* A time that is cut between two reads. */
static struct {
	char text[24];
	size_t n;
	int open; /* between two @ */
} streams[MAX_STREAMS];

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "jitter: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int stream_open(char **argv)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atol(argv[4]))};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || inet_pton(AF_INET, argv[3], &sa.sin_addr) != 1 ||
	        connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		die("connect");
	if (dprintf(fd,
	            "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
	            "x-portkey-provider: openai\r\nContent-Type: application/json\r\n"
	            "Content-Length: %zu\r\n%s\r\n%s",
	            argv[6], argv[5], strlen(argv[7]), getenv("JITTER_HEADERS") ? getenv("JITTER_HEADERS") : "",
	            argv[7]) < 0)
		die("write");
	return fd;
}

/* Every whole time in these bytes, as lateness. */
static void stream_read(int i, const char *data, size_t n, uint64_t now, int report)
{
	for (size_t k = 0; k < n; k++) {
		if (data[k] == '@') {
			if (streams[i].open && streams[i].n > 0 && report) {
				streams[i].text[streams[i].n] = 0;
				printf("%.1f\n", ((double)now - strtod(streams[i].text, NULL)) / 1e3);
			}
			streams[i].open = !(streams[i].open && streams[i].n > 0);
			streams[i].n = 0;
		} else if (streams[i].open && data[k] >= '0' && data[k] <= '9' && streams[i].n < 22) {
			streams[i].text[streams[i].n++] = data[k];
		} else {
			streams[i].open = 0;
		}
	}
}

int main(int argc, char **argv)
{
	struct epoll_event ev[256], want = {.events = EPOLLIN};
	int n, ep = epoll_create1(EPOLL_CLOEXEC);
	static int fds[MAX_STREAMS];
	static char data[65536];
	uint64_t begin, end;

	if (argc != 8 || (n = atoi(argv[1])) < 1 || n > MAX_STREAMS) {
		fprintf(stderr, "usage: jitter N SECONDS HOST PORT KEY PATH BODY\n");
		return 2;
	}
	for (int i = 0; i < n; i++) {
		fds[i] = stream_open(argv);
		want.data.u32 = (uint32_t)i;
		if (epoll_ctl(ep, EPOLL_CTL_ADD, fds[i], &want) < 0)
			die("epoll");
	}
	/* The first second is for opening. */
	begin = now_ns() + 1000000000u;
	end = begin + (uint64_t)atol(argv[2]) * 1000000000u;
	while (now_ns() < end) {
		int got = epoll_wait(ep, ev, 256, 100);

		for (int k = 0; k < got; k++) {
			int i = (int)ev[k].data.u32;
			ssize_t r = recv(fds[i], data, sizeof(data), MSG_DONTWAIT);

			if (r <= 0) {
				fprintf(stderr, "jitter: a stream ended\n");
				return 1;
			}
			stream_read(i, data, (size_t)r, now_ns(), now_ns() > begin);
		}
	}
	return 0;
}
