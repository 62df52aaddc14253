/*
 * Pipes that only background processes still write to: read and thrown away until the last writer
 * closes, so that a process which outlives its command is neither blocked nor killed by what it
 * prints.
 */
#ifndef BRIG_INIT_DISCARD_H
#define BRIG_INIT_DISCARD_H

#include "init/message.h"

/* Takes the message's descriptors. Returns 0, or a negative errno when one of them is no pipe. */
int discard_add(struct message *m);

/* The pipe can be read. */
void discard_ready(uint32_t index);

#endif
