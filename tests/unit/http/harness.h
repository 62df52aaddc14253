/*
 * What the tests of http share: one event loop, sockets driven by hand in the same thread, waiting
 * with a limit. Nothing here knows what is tested.
 */
#ifndef BRIG_UNIT_HTTP_HARNESS_H
#define BRIG_UNIT_HTTP_HARNESS_H

#include "unit.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The loop; a timer of 2 ms turns it, so that a condition is looked at soon. */
struct event_base *loop_base(void);
void loop_free(void);
void loop_once(void);
void loop_ms(unsigned ms);
uint64_t cpu_ms(void); /* what this process has computed */
#define LOOP_UNTIL(condition, ms)                                                                  \
	do {                                                                                       \
		uint64_t loop_end_ = clock_mono_ms() + (ms);                                       \
		while (!(condition) && clock_mono_ms() < loop_end_)                                \
			loop_once();                                                               \
		assert_true(condition);                                                            \
	} while (0)

/* A listening socket on a loopback port that the kernel chose. */
int socket_listen(unsigned *ret_port);
/* Connected, nonblocking. */
int socket_connect(unsigned port);
/* Sends all, turning the loop while the socket is full; false when the peer closed. */
bool socket_send(int fd, const void *data, size_t n);
/* Reads what is there into in; false at the end of the stream or an error. */
bool socket_read(int fd, struct buf *in);
/* Reads, turning the loop, until the peer closes; false when it did not within ms. */
bool socket_read_all(int fd, struct buf *in, unsigned ms);
void socket_reset(int fd); /* closes with RST */

size_t count_of(const struct buf *in, const char *text);
bool holds(const struct buf *in, const char *text);

#endif
