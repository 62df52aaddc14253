/*
 * From what the supervisor's child is after exec (root of a user namespace of its own, the host's
 * tree before it) to what a worker may be: the home as its whole world, two capabilities over the
 * files in it, Landlock where the kernel has it, a short list of system calls.
 */
#ifndef BRIG_WORKER_CONFINE_H
#define BRIG_WORKER_CONFINE_H

#include <stdbool.h>

/* home: a detached mount, closed by this. saver: it may also give files to others, set attributes
 * and make symbolic links (saver.h). *ret_dir is its root, *ret_proc what home_open wants. 0 or a
 * negative errno with the step. */
int confine_worker(int home, bool saver, int *ret_dir, int *ret_proc, const char **ret_step);

#endif
