/*
 * The event loop's registrations. One thread. An event names its object by kind and index, never by
 * pointer: an index whose object went away within the same batch, or was taken anew, costs one read
 * that finds nothing, since every handler's read is non-blocking.
 */
#ifndef BRIG_INIT_LOOP_H
#define BRIG_INIT_LOOP_H

#include <stdint.h>

enum loop_kind { LOOP_CONTROL, LOOP_SIGNALS, LOOP_CHANNEL, LOOP_REPORT, LOOP_DISCARD };

/* Makes the loop. Returns 0 or a negative errno. */
int loop_open(void);

/* Calls back when fd can be read or its peer is gone. Returns 0 or a negative errno. */
int loop_add(int fd, enum loop_kind kind, uint32_t index);

/* Forgets fd, which others may hold open too, and closes it. */
void loop_close(int fd);

/* CLOCK_MONOTONIC. */
uint64_t loop_now_ns(void);

/* Runs for ever; ends the process when the supervisor's end of the control socket is gone. */
_Noreturn void loop_run(void);

#endif
