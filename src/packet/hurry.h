/*
 * Sockets whose other end may be hostile, in a process that must not wait for it.
 *
 * The last close of a descriptor can wait, and that of a TCP socket waits for as long as whoever
 * made it has chosen (SO_LINGER), also where it was a stranger who sent it: on a message that is
 * received without its descriptors, and on a socket that is closed with such a message unread. A
 * signal ends that wait. So around these calls a timer runs, whose signal does nothing else.
 */
#ifndef BRIG_PACKET_HURRY_H
#define BRIG_PACKET_HURRY_H

#include "packet/packet.h"

/* Makes the timer, for this thread; SIGALRM becomes the module's. Once for each process that uses
 * what is below: without, or in a child, they may wait. Returns 0 or a negative errno. */
int hurry_open(void);

/* packet_receive, with MSG_DONTWAIT. */
int hurry_receive(int sock, void *data, size_t size, size_t max_fds, struct packet *ret);
/* Closes when ≥ 0, and sets -1. */
void hurry_close(int *fd);
/* packet_close. */
void hurry_close_fds(struct packet *p);

#endif
