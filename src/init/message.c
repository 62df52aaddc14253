#include "init/message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int message_receive(int socket, int flags, struct message *m)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof m->fds)];
	struct iovec iov = {.iov_base = m->bytes, .iov_len = sizeof m->bytes};
	struct msghdr msg = {.msg_iov = &iov,
	        .msg_iovlen = 1,
	        .msg_control = control,
	        .msg_controllen = sizeof control};
	ssize_t n;

	m->n_fds = 0;
	do
		n = recvmsg(socket, &msg, flags | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		m->n_fds = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(m->fds, CMSG_DATA(c), (size_t)m->n_fds * sizeof(int));
	}
	m->len = (size_t)n;
	/* An empty datagram looks like the end; neither is a message, and both end the socket. */
	if (n == 0 && m->n_fds == 0)
		return 0;
	if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || m->len < sizeof(struct init_header)) {
		message_clear(m);
		return -EBADMSG;
	}
	return 1;
}

int message_op(const struct message *m)
{
	const struct init_header *h = (const void *)m->bytes;

	return h->op;
}

const void *message_as(const struct message *m, size_t size, int n_fds)
{
	const struct init_header *h = (const void *)m->bytes;

	if (m->len != size || h->size != size || m->n_fds != n_fds)
		return NULL;
	return m->bytes;
}

int message_take_fd(struct message *m, int i)
{
	int fd = m->fds[i];

	m->fds[i] = -1;
	return fd;
}

void message_clear(struct message *m)
{
	for (int i = 0; i < m->n_fds; i++)
		if (m->fds[i] >= 0)
			close(m->fds[i]);
	m->n_fds = 0;
}

int message_send(int socket, int op, void *structure, size_t size, const int *fds, int n_fds)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(MESSAGE_MAX_FDS * sizeof(int))] = {0};
	struct init_header *h = structure;
	struct iovec iov = {.iov_base = structure, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	*h = (struct init_header){.op = (uint16_t)op, .size = (uint16_t)size};
	if (n_fds > 0) {
		struct cmsghdr *c = (void *)control;

		msg.msg_control = control;
		msg.msg_controllen = (socklen_t)CMSG_SPACE((size_t)n_fds * sizeof(int));
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = (socklen_t)CMSG_LEN((size_t)n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)n_fds * sizeof(int));
	}
	do
		n = sendmsg(socket, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return 0;
}
