/*
 * The mounts of a sandbox, in the three steps of proto/init.h. One thread, called once each, in
 * order. On failure the caller reports and exits: nothing is taken back, it all goes with the mount
 * namespace.
 */
#ifndef BRIG_INIT_SETUP_H
#define BRIG_INIT_SETUP_H

#include "proto/init.h"

/*
 * SETUP: makes the tree private, and builds /proc (masked) and /dev in a staging place. dev, run
 * and oom are the message's descriptors; dev is closed. Returns 0, or a negative errno with the
 * failed step's name.
 */
int setup_prepare(int dev, int run, int oom, const char **ret_step);

/*
 * ROOT: attaches root (closed), moves /proc and /dev in, makes /tmp, /dev/shm and the place for all
 * that the claim brings, pivots and detaches all that was outside.
 */
int setup_root(int root, const char **ret_step);

/*
 * CLAIM: attaches home (closed; *ret_home is an open directory of it for syncfs), gives /tmp and
 * /dev/shm their sizes, names the host.
 */
int setup_claim(const struct init_claim *claim, int home, int *ret_home, const char **ret_step);

#endif
