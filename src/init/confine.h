/*
 * What init, and everything that it starts, gives up: descriptors, privileges, capabilities, its
 * id, the file tree outside, system calls. In that order, once, after setup_claim().
 */
#ifndef BRIG_INIT_CONFINE_H
#define BRIG_INIT_CONFINE_H

#include <stdint.h>

/* The capabilities of root in a sandbox, as a mask: what package managers need inside a user
 * namespace. */
extern const uint32_t confine_guest_capabilities;

/* Closes every descriptor above 2 that is not in the list (which is sorted here). Returns 0 or
 * -errno. */
int confine_descriptors(int *keep, int n);

/* Confines init. run: the cgroup directory it goes on using. Returns 0, or a negative errno and the
 * step. */
int confine_init(uint32_t init_uid, int run, const char **ret_step);

/* In a command's child, last thing before exec: the guest's own filter. Returns 0 or a negative
 * errno. */
int confine_guest(void);

#endif
