/* What stands at / and /dev of a sandbox: detached mounts, the caller's. */
#ifndef BRIG_SUPERVISOR_ROOT_H
#define BRIG_SUPERVISOR_ROOT_H

#include "supervisor/sys.h"

#include <stdbool.h>

/* Read-only, device nodes of its own, ids mapped by `userns`. */
int root_dev_mount(int userns, int *ret_mount, struct fail *f);
/*
 * The base image `lower` below the folders up and wk of `scratch`: the mount, or a negative errno.
 * Kernels that do not take layers by descriptor set *by_path; the layers are attached in `stage`, a
 * folder of our own mount namespace, for a moment then.
 */
int root_overlay_mount(int stage, bool *by_path, int lower, int scratch);

#endif
