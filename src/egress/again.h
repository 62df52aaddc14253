/*
 * A question that is asked again over TCP, since the answer over UDP was cut off. One thread.
 */
#ifndef BRIG_EGRESS_AGAIN_H
#define BRIG_EGRESS_AGAIN_H

#include "base/address.h"

#include <event2/event.h>

#define EGRESS_AGAIN_MAX 8 /* addresses that are taken */

struct egress_again;

/* n addresses of 4 or 16 bytes; -1: there was no answer. The handle is gone then. Never called from
 * egress_again_start. */
typedef void (*egress_again_done)(void *ctx, const uint8_t *addresses, int n);

/* NULL where it cannot be asked. The handle is the caller's until done was called. */
struct egress_again *egress_again_start(struct event_base *base, const union address *server,
        const char *name, int family, egress_again_done done, void *ctx);
void egress_again_cancel(struct egress_again *a); /* takes NULL; done will not be called */

#endif
