/*
 * The file systems that homes and scratch layers are copied from: templates/home-<MiB>.ext4 and
 * scratch-<MiB>.ext4, made once for each size by mke2fs.
 */
#ifndef BRIG_SUPERVISOR_TEMPLATE_H
#define BRIG_SUPERVISOR_TEMPLATE_H

#include "supervisor/supervisor.h"

/* Makes what is missing in the folder, or cannot be mounted, and opens both. */
int template_open(const struct sup_config *cfg, int folder, int *ret_home, int *ret_scratch,
        struct error *err);
/* Tries what homes need: a file system made by mke2fs, on a loop device, mounted with its ids
 * mapped by `userns`. 0, or a negative errno with the step. Leaves nothing behind; needs no data
 * folder. */
int template_try(int userns, const char **ret_step);

#endif
