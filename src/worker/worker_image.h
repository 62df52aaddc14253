/*
 * The worker's program as bytes, for the supervisor to put into a sealed memfd and exec. Built
 * apart, with musl, as init is.
 */
#ifndef BRIG_WORKER_WORKER_IMAGE_H
#define BRIG_WORKER_WORKER_IMAGE_H

#include <stddef.h>

extern const unsigned char worker_image[];
extern const size_t worker_image_len;

#endif
