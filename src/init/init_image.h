/*
 * The program of pid 1 as bytes, for the supervisor to put into a sealed memfd and exec. Built
 * apart, with musl, so that nothing of it is linked into brig itself.
 */
#ifndef BRIG_INIT_INIT_IMAGE_H
#define BRIG_INIT_INIT_IMAGE_H

#include <stddef.h>

extern const unsigned char init_image[];
extern const size_t init_image_len;

#endif
