/* Keys, host names, and datagrams with descriptors. */
#include "container/internal.h"

#include "base/id.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_FDS 4

void container_key(struct str account, struct str workspace, struct str id,
        uint8_t ret_key[SUP_KEY_LEN], uint8_t ret_workspace[16])
{
	const struct str parts[] = {STR("brig container"), account, workspace, id};
	const struct str ws[] = {STR("brig workspace"), account, workspace};
	uint8_t hash[32];

	id_sha256_parts(parts, 4, ret_key);
	id_sha256_parts(ws, 3, hash);
	memcpy(ret_workspace, hash, 16);
}

void container_hostname(struct str id, char out[64])
{
	size_t n = 0;

	memset(out, 0, 64);
	for (size_t i = 0; i < id.n && n < 63; i++) {
		char c = id.p[i];

		if (c >= 'A' && c <= 'Z')
			c = (char)(c - 'A' + 'a');
		if (c == '_')
			c = '-';
		if ((c == '-' && n > 0) || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
			out[n++] = c;
	}
	while (n > 0 && out[n - 1] == '-')
		out[--n] = 0;
	if (n == 0)
		memcpy(out, "container", 9);
}

ssize_t socket_receive(int fd, void *data, size_t size, int *fds, size_t max_fds, size_t *ret_fds)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int) * MAX_FDS)];
	} control;
	struct iovec iov = {data, size};
	struct msghdr m = {.msg_iov = &iov,
	        .msg_iovlen = 1,
	        .msg_control = &control,
	        .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

	*ret_fds = 0;
	if (n < 0)
		return -1;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h != NULL; h = CMSG_NXTHDR(&m, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		size_t got = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		for (size_t i = 0; i < got; i++) {
			int one;

			memcpy(&one, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
			if (*ret_fds < max_fds)
				fds[(*ret_fds)++] = one;
			else
				close(one);
		}
	}
	if ((m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
		for (size_t i = 0; i < *ret_fds; i++)
			close(fds[i]);
		*ret_fds = 0;
	}
	if ((m.msg_flags & MSG_TRUNC) != 0) {
		errno = EMSGSIZE;
		return -1;
	}
	return n; /* descriptors are missing (MSG_CTRUNC) where we have as many as we may */
}

int socket_send(int fd, const void *data, size_t size, const void *more, size_t more_size,
        const int *fds, size_t n_fds)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int) * MAX_FDS)];
	} control = {0};
	union {
		const void *in;
		void *out;
	} a = {data}, b = {more};
	struct iovec iov[2] = {{a.out, size}, {b.out, more_size}};
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = more_size > 0 ? 2 : 1};

	if (n_fds > 0) {
		struct cmsghdr *h;

		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		h = &control.align; /* what CMSG_FIRSTHDR gives; the analyzer cannot see that it is
		                       never NULL */
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(h), fds, sizeof(int) * n_fds);
	}
	return sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -1 : 0;
}
