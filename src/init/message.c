#include "init/message.h"

#include <errno.h>

int message_receive(int socket, int flags, struct message *m)
{
	int rc = packet_receive(
	        socket, flags, m->bytes, sizeof m->bytes, PACKET_MAX_FDS, &m->packet);

	if (rc > 0 && (m->packet.lost || m->packet.len > sizeof m->bytes ||
	                      m->packet.len < sizeof(struct init_header))) {
		packet_close(&m->packet);
		return -EBADMSG;
	}
	return rc;
}

int message_op(const struct message *m)
{
	const struct init_header *h = (const void *)m->bytes;

	return h->op;
}

const void *message_as(const struct message *m, size_t size, int n_fds)
{
	const struct init_header *h = (const void *)m->bytes;

	if (m->packet.len != size || h->size != size || m->packet.n_fds != n_fds)
		return NULL;
	return m->bytes;
}

int message_take_fd(struct message *m, int i)
{
	int fd = m->packet.fds[i];

	m->packet.fds[i] = -1;
	return fd;
}

int message_send(int socket, int op, void *structure, size_t size, const int *fds, size_t n_fds)
{
	struct init_header *h = structure;

	*h = (struct init_header){.op = (uint16_t)op, .size = (uint16_t)size};
	return packet_send(socket, structure, size, NULL, 0, fds, n_fds);
}
