/*
 * The gateways' sockets, one for each claim. A channel that sends what it must not, is closed by
 * its peer, or does not take what is sent to it, is closed here, and its commands are killed. One
 * thread.
 */
#ifndef BRIG_INIT_CHANNEL_H
#define BRIG_INIT_CHANNEL_H

#include <stddef.h>
#include <stdint.h>

/* Takes socket over. Returns 0 or a negative errno, and then the socket is closed. */
int channel_open(int socket);

/* The socket can be read. */
void channel_ready(uint32_t index);

/* As message_send(); a failure only marks the channel, so it is safe in the middle of a command's
 * affairs. */
void channel_send(
        uint32_t index, int op, void *structure, size_t size, const int *fds, size_t n_fds);

/* Closes the marked channels. Called between events. */
void channel_sweep(void);

#endif
