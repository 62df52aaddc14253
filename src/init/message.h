/*
 * Datagrams with descriptors on the SOCK_SEQPACKET sockets of proto/init.h. One thread. No call
 * blocks once set-up is over: a receiver that does not read is an error of that socket, never a
 * wait.
 */
#ifndef BRIG_INIT_MESSAGE_H
#define BRIG_INIT_MESSAGE_H

#include "packet/packet.h"
#include "proto/init.h"

#define MESSAGE_MAX_LEN (sizeof(struct init_run) + INIT_MAX_INLINE)

struct message {
	_Alignas(8) unsigned char bytes[MESSAGE_MAX_LEN + 1];
	struct packet packet; /* owns its descriptors until they are taken with message_take_fd() */
};

/*
 * Receives one datagram. Returns 1 with *m filled; 0 at end-of-file; -EAGAIN when flags holds
 * MSG_DONTWAIT and nothing waits; another negative errno, -EBADMSG for a datagram that is cut, or
 * has no whole header, or brings more descriptors than PACKET_MAX_FDS. Only on 1 are there
 * descriptors, and those that are not taken are to be closed with packet_close().
 */
int message_receive(int socket, int flags, struct message *m);

/* The op of a received message. */
int message_op(const struct message *m);

/* The message as the struct of that size, if it is exactly that and brings n_fds descriptors; else
 * NULL. */
const void *message_as(const struct message *m, size_t size, int n_fds);

/* Hands descriptor number i over to the caller. */
int message_take_fd(struct message *m, int i);

/*
 * Sends one struct that begins with struct init_header, whose op and size are filled in here, and
 * n_fds descriptors (they stay the caller's). Returns 0 or a negative errno; -EAGAIN means that the
 * peer does not read.
 */
int message_send(int socket, int op, void *structure, size_t size, const int *fds, size_t n_fds);

#endif
