/*
 * A whole home through a pipe (proto/tree.h; save.h is the other end), by a worker of its own.
 * Asynchronous on the gateway's loop as container.h is. One callback for each, from the loop; none
 * after container_client_free().
 */
#ifndef BRIG_CONTAINER_TRANSFER_H
#define BRIG_CONTAINER_TRANSFER_H

#include "container/container.h"

/* ERR_NOT_FOUND: there is no home. ERR_UNAVAILABLE: the worker ended in the middle; ERR_IO. */
typedef void (*container_transfer_fn)(void *ctx, const struct error *err);

/* The pipe's writing end is taken over, and closed here whatever comes of it. Files with a ctime
 * before same_before_ns go without their bytes. */
void container_send_home(struct container_client *c, const uint8_t key[SUP_KEY_LEN], int pipe,
        int64_t same_before_ns, container_transfer_fn fn, void *ctx);
/* The same with the reading end. A home is made where there is none; one in which this failed is to
 * be deleted. */
void container_take_home(struct container_client *c, const uint8_t key[SUP_KEY_LEN], int pipe,
        container_transfer_fn fn, void *ctx);

#endif
