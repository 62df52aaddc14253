/*
 * Datagrams with descriptors, on the SOCK_SEQPACKET sockets between brig's processes (proto/). The
 * one implementation for all of them, so it needs libc only. No state, any thread.
 */
#ifndef BRIG_PACKET_PACKET_H
#define BRIG_PACKET_PACKET_H

#include <stdbool.h>
#include <stddef.h>

#define PACKET_MAX_FDS 5

struct packet {
	size_t len; /* of the datagram; more than the buffer's size where it was cut */
	bool lost;  /* it brought descriptors that were not taken: too many, or no room for them in
	               this process; then there are none */
	int n_fds;
	int fds[PACKET_MAX_FDS]; /* close-on-exec, the caller's; -1 is none */
};

/*
 * Receives one datagram; flags as for recvmsg. Takes at most max_fds descriptors; with 0 none ever
 * comes into this process. Returns 1 with *ret filled, 0 at the end (or for an empty datagram,
 * which is no message either), or a negative errno. Where the other end has closed with something
 * unread the kernel says ECONNRESET once, before what was sent from there: that is passed over.
 */
int packet_receive(
        int sock, int flags, void *data, size_t size, size_t max_fds, struct packet *ret);

/* Closes those descriptors that are not -1. */
void packet_close(struct packet *p);

/* Sends len bytes, and more_len bytes behind them, as one datagram. Never waits, never SIGPIPE.
 * Returns 0 or a negative errno. */
int packet_send(int sock, const void *data, size_t len, const void *more, size_t more_len,
        const int *fds, size_t n_fds);

#endif
