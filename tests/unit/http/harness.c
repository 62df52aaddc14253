#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>

static struct event_base *base;
static struct event *tick;

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
}

struct event_base *loop_base(void)
{
	struct timeval tv = {0, 2000};

	if (!base) {
		base = event_base_new();
		tick = event_new(base, -1, EV_PERSIST, on_tick, NULL);
		event_add(tick, &tv);
	}
	return base;
}

void loop_free(void)
{
	if (!base)
		return;
	event_free(tick);
	event_base_free(base);
	base = NULL;
}

void loop_once(void)
{
	event_base_loop(loop_base(), EVLOOP_ONCE);
}

uint64_t cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void loop_ms(unsigned ms)
{
	uint64_t end = clock_mono_ms() + ms;

	while (clock_mono_ms() < end)
		loop_once();
}

int socket_listen(unsigned *ret_port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 1024), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	*ret_port = ntohs(a.sin_port);
	return fd;
}

int socket_connect(unsigned port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
	        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	        .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	evutil_make_socket_nonblocking(fd);
	return fd;
}

bool socket_send(int fd, const void *data, size_t n)
{
	const char *p = data;
	ssize_t r;

	while (n > 0) {
		r = send(fd, p, n, MSG_NOSIGNAL);
		if (r < 0 && errno == EAGAIN) {
			loop_once();
			continue;
		}
		if (r < 0)
			return false;
		p += r;
		n -= (size_t)r;
	}
	return true;
}

bool socket_read(int fd, struct buf *in)
{
	char data[65536];
	ssize_t r;

	for (;;) {
		r = recv(fd, data, sizeof(data), 0);
		if (r < 0)
			return errno == EAGAIN;
		if (r == 0)
			return false;
		assert_int_equal(buf_append(in, data, (size_t)r), 0);
	}
}

bool socket_read_all(int fd, struct buf *in, unsigned ms)
{
	uint64_t end = clock_mono_ms() + ms;

	while (socket_read(fd, in)) {
		if (clock_mono_ms() >= end)
			return false;
		loop_once();
	}
	return true;
}

void socket_reset(int fd)
{
	struct linger hard = {.l_onoff = 1};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(fd);
}

size_t count_of(const struct buf *in, const char *text)
{
	const char *p = buf_cstr(in);
	size_t n = 0;

	while ((p = memmem(p, in->len - (size_t)(p - buf_cstr(in)), text, strlen(text)))) {
		n++;
		p += strlen(text);
	}
	return n;
}

bool holds(const struct buf *in, const char *text)
{
	return count_of(in, text) > 0;
}
