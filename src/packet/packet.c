#include "packet/packet.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(PACKET_MAX_FDS * sizeof(int))];
};

int packet_receive(int sock, int flags, void *data, size_t size, size_t max_fds, struct packet *ret)
{
	union control control;
	struct iovec iov = {.iov_base = data, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	bool again;
	ssize_t n = 0;

	ret->n_fds = 0;
	ret->lost = false;
	if (max_fds > 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = (socklen_t)CMSG_LEN(max_fds * sizeof(int));
	}
	do {
		again = n < 0 && errno == ECONNRESET;
		n = recvmsg(sock, &msg, flags | MSG_TRUNC | MSG_CMSG_CLOEXEC);
	} while (n < 0 && (errno == EINTR || (errno == ECONNRESET && !again)));
	if (n < 0)
		return -errno;
	ret->len = (size_t)n;
	/* Nothing but SCM_RIGHTS is asked for on these sockets, so there is one at most. */
	if (max_fds > 0 && msg.msg_controllen >= CMSG_LEN(sizeof(int)) &&
	        control.align.cmsg_type == SCM_RIGHTS) {
		ret->n_fds = (int)((control.align.cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(ret->fds, CMSG_DATA(&control.align), (size_t)ret->n_fds * sizeof(int));
	}
	if (msg.msg_flags & MSG_CTRUNC) {
		packet_close(ret);
		ret->lost = true;
	}
	return n > 0 || ret->n_fds > 0 || ret->lost;
}

void packet_close(struct packet *p)
{
	for (int i = 0; i < p->n_fds; i++)
		if (p->fds[i] >= 0)
			close(p->fds[i]);
	p->n_fds = 0;
}

int packet_send(int sock, const void *data, size_t len, const void *more, size_t more_len,
        const int *fds, size_t n_fds)
{
	union control control = {0};
	/* sendmsg only reads; its types are older than const. */
	struct iovec iov[2] = {{(void *)(uintptr_t)data, len}, {(void *)(uintptr_t)more, more_len}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = more_len > 0 ? 2 : 1};
	ssize_t n;

	if (n_fds > PACKET_MAX_FDS)
		return -EINVAL;
	if (n_fds > 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = (socklen_t)CMSG_SPACE(n_fds * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = (socklen_t)CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(&control.align), fds, n_fds * sizeof(int));
	}
	do
		n = sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}
