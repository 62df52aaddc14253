/*
 * In the place of init, as a guest that has taken it over: says to the supervisor what no init
 * would. The process' timer slack, which goes through clone and exec, says which of its ways it is
 * to take. All that it does is sending messages on its control socket, in the sandbox that it was
 * made for.
 */
#include "proto/init.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "evil_init.h"

static void send_bytes(const void *data, size_t len, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {(void *)(uintptr_t)data, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof control.bytes;
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.align), &fd, sizeof fd);
	}
	(void)!sendmsg(INIT_CONTROL_FD, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void say(int op, size_t size, int fd)
{
	struct init_header h = {.op = (uint16_t)op, .size = (uint16_t)size};

	send_bytes(&h, sizeof h, fd);
}

/* A socket whose last close waits for a minute. */
static int make_lingering(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	struct linger linger = {1, 60};
	static char data[65536];
	int small = 4096, listener = socket(AF_INET, SOCK_STREAM, 0);
	int sock = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	bind(listener, (void *)&at, sizeof at);
	listen(listener, 1);
	getsockname(listener, (void *)&at, &len);
	connect(sock, (void *)&at, sizeof at);
	accept(listener, NULL, NULL);
	setsockopt(sock, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	while (send(sock, data, sizeof data, MSG_DONTWAIT) > 0)
		;
	return sock;
}

static void receive(int op)
{
	union {
		struct init_header h;
		char bytes[512];
	} m;

	do
		if (recv(INIT_CONTROL_FD, &m, sizeof m, 0) <= 0)
			_exit(1);
	while (m.h.op != op);
}

static void be_honest(void)
{
	receive(INIT_ROOT);
	say(INIT_PREPARED, sizeof(struct init_header), -1);
	receive(INIT_CLAIM);
	say(INIT_READY, sizeof(struct init_header), -1);
}

static void lie(enum evil way)
{
	static char noise[60000];
	struct init_broken broken = {.h = {INIT_BROKEN, sizeof broken, 0}, .errnum = ~0u};
	int fd;

	memset(broken.step, '\a', sizeof broken.step);
	memset(broken.step, 'x', 3);
	switch (way) {
	case EVIL_READY_FIRST:
	case EVIL_LATE_READY:
		say(INIT_READY, sizeof(struct init_header), -1);
		break;
	case EVIL_PREPARED_TWICE:
		say(INIT_PREPARED, sizeof(struct init_header), -1);
		say(INIT_PREPARED, sizeof(struct init_header), -1);
		break;
	case EVIL_UNKNOWN:
		say(77, sizeof(struct init_header), -1);
		break;
	case EVIL_SIZE:
		say(INIT_PREPARED, 9, -1);
		break;
	case EVIL_LONG:
	case EVIL_LATE_FLOOD:
		for (int i = 0; i < 1000; i++)
			send_bytes(noise, sizeof noise, -1);
		break;
	case EVIL_EMPTY:
		send_bytes(noise, 0, -1);
		break;
	case EVIL_LINGER:
	case EVIL_LATE_LINGER:
		for (int i = 0; i < 10; i++) {
			fd = make_lingering();
			say(INIT_PREPARED, sizeof(struct init_header), fd);
			close(fd);
		}
		break;
	case EVIL_BROKEN:
		send_bytes(&broken, sizeof broken, -1);
		break;
	case EVIL_EXIT:
		_exit(0);
	case EVIL_CLOSE:
	case EVIL_LATE_CLOSE:
		close(INIT_CONTROL_FD);
		break;
	case EVIL_HANG:
	case EVIL_NOT:
	case EVIL_N:
		break;
	}
}

int main(void)
{
	enum evil way = (enum evil)(prctl(PR_GET_TIMERSLACK) - EVIL_SLACK);

	if (way == EVIL_NOT || way >= EVIL_LATE_READY)
		be_honest();
	if (way >= EVIL_LATE_READY)
		receive(INIT_CHANNEL);
	lie(way);
	for (;;)
		pause();
}
