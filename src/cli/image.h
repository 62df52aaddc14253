/* Root file systems of sandboxes, in <data>/images. */
#ifndef BRIG_CLI_IMAGE_H
#define BRIG_CLI_IMAGE_H

#include "base/error.h"

/* Makes <data>/images/base.erofs where it is missing, with progress on standard error. One at a
 * time: who comes second waits for the first. Needs root. */
int image_ensure(const char *data, struct error *err);

#endif
