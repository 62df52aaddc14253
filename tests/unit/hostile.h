/*
 * What the hostile end of one of brig's sockets can send: any descriptors, and ones whose last
 * close waits. For test programs; include after <cmocka.h>'s own needs (unit.h).
 */
#ifndef BRIG_TEST_HOSTILE_H
#define BRIG_TEST_HOSTILE_H

#include "unit/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define HOSTILE_MAX_FDS 253 /* of one message: the kernel's own limit */

static inline void hostile_send(
        int sock, const void *data, size_t len, const int *fds, size_t n_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(HOSTILE_MAX_FDS * sizeof(int))];
	} control = {0};
	struct iovec iov = {(void *)(uintptr_t)data, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	if (n_fds) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(&control.align), fds, n_fds * sizeof(int));
	}
	/* A peer that has dropped us by then is no fault: whoever sends looks at that afterwards.
	 */
	if (sendmsg(sock, &msg, MSG_NOSIGNAL) < 0 && errno != ECONNRESET && errno != EPIPE)
		fail_msg("sendmsg: %s", strerror(errno));
}

/* A TCP socket whose last close waits for a minute: its data finds no reader. */
static inline int hostile_lingering(void)
{
	static int listener = -1, unread[512];
	static size_t n_unread;
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int small = 4096, sock;
	char data[65536] = "";
	struct linger linger = {1, 60};
	if (listener < 0) {
		listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
		assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
		assert_int_equal(listen(listener, 16), 0);
	}
	assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
	sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(sock, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_true(n_unread < 512);
	unread[n_unread] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(unread[n_unread++] >= 0);
	assert_int_equal(setsockopt(sock, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	while (send(sock, data, sizeof(data), MSG_DONTWAIT) > 0)
		;
	return sock;
}

/* A socket with such a one unread in it. */
static inline int hostile_nested(void)
{
	int pair[2], inner = hostile_lingering();
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	hostile_send(pair[0], "x", 1, &inner, 1);
	close(inner);
	close(pair[0]);
	return pair[1];
}

static inline void hostile_wake(int signal)
{
}

/* Closes one of these. Where the other end was quicker this is the last close, and then a signal
 * ends its wait. */
static inline void hostile_close(int fd)
{
	struct sigaction old, wake = {.sa_handler = hostile_wake};
	struct itimerval each_ms = {{0, 1000}, {0, 1000}}, never = {0};
	assert_int_equal(sigaction(SIGALRM, &wake, &old), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &each_ms, NULL), 0);
	close(fd);
	setitimer(ITIMER_REAL, &never, NULL);
	sigaction(SIGALRM, &old, NULL);
}

#endif
