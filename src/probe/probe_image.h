/* The program of the self-test as bytes, for the supervisor to give to a scratch container. Built
 * as init is, and for the same reason. */
#ifndef BRIG_PROBE_PROBE_IMAGE_H
#define BRIG_PROBE_PROBE_IMAGE_H

#include <stddef.h>

extern const unsigned char probe_image[];
extern const size_t probe_image_len;

#endif
