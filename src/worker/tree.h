/*
 * The whole home as a stream of records (proto/tree.h): sent when it is saved, taken when it is
 * made again. Both block on the pipe and on the disk, so they run in a process of their own. Memory
 * is bounded by the depth of the tree and, when sending, by how many files have several names.
 *
 * Both return 0 or an errno; *ret_step says what failed.
 */
#ifndef BRIG_WORKER_TREE_H
#define BRIG_WORKER_TREE_H

#include <stdint.h>

/* Files with a ctime before same_before_ns go without their bytes. ESTALE: a folder was moved away
 * under our feet; try again. */
int tree_send(int home, int pipe, int64_t same_before_ns, const char **ret_step);

/* Home must be empty. Where this fails it is of no use, and is to be deleted. EPROTO: a record out
 * of its bounds. */
int tree_take(int home, int pipe, const char **ret_step);

#endif
