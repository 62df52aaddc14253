/*
 * The HTTP server alone, for wrk: bench_http_server [PORT]. GET answers "hello\n", another method
 * echoes the body, /stream answers with an event stream that stays open. Prints the port. With one
 * argument more, it also prints every 2 s how many exchanges are open and how much memory the
 * process holds.
 */
#include "base/error.h"
#include "http/server.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static int on_head(void *ctx, struct http_exchange *x, size_t *max_body)
{
	return 0;
}

static void on_request(void *ctx, struct http_exchange *x)
{
	struct str body = http_request_body(x);

	if (str_is(http_request_path(x), "/stream")) {
		http_respond_start(x, 200, "text/event-stream");
		http_write(x, STR("data: {}\n\n"));
		http_request_release(x);
		return;
	}
	http_respond(x, 200, "text/plain", body.n > 0 ? body : STR("hello\n"));
}

static void on_gone(void *ctx, struct http_exchange *x, enum http_gone why)
{
}

static void error_body(void *ctx, struct http_exchange *x, int status, const char *text,
        struct buf *out, const char **content_type)
{
	buf_puts(out, text);
	buf_putc(out, '\n');
}

static void report(evutil_socket_t fd, short what, void *arg)
{
	struct http_server *s = arg;
	char line[256];
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (f && fgets(line, sizeof(line), f))
		sscanf(line, "%*d %ld", &pages);
	if (f)
		fclose(f);
	printf("connections %zu, open exchanges %zu, resident %ld KiB\n",
	        http_server_connections(s), http_server_open_exchanges(s),
	        pages * sysconf(_SC_PAGESIZE) / 1024);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct rlimit files = {65536, 65536};
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct http_handler h = {.on_head = on_head,
	        .on_request = on_request,
	        .on_gone = on_gone,
	        .error_body = error_body};
	struct timeval often = {2, 0};
	struct http_server_options o;
	struct http_server *s;
	struct event_base *base = event_base_new();
	socklen_t len = sizeof(a);
	struct error err;
	int fd, one = 1;

	setrlimit(RLIMIT_NOFILE, &files);
	a.sin_port = htons((uint16_t)(argc > 1 ? strtoul(argv[1], NULL, 10) : 0));
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 4096) ||
	        getsockname(fd, (struct sockaddr *)&a, &len)) {
		perror("listen");
		return 1;
	}
	http_server_options_default(&o);
	s = http_server_new(base, &o, &h);
	if (http_server_listen(s, fd, &err)) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	printf("http://127.0.0.1:%u\n", ntohs(a.sin_port));
	fflush(stdout);
	if (argc > 2)
		event_add(event_new(base, -1, EV_PERSIST, report, s), &often);
	return event_base_dispatch(base) ? 1 : 0;
}
