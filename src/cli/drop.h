/* Giving up privileges for good. */
#ifndef BRIG_CLI_DROP_H
#define BRIG_CLI_DROP_H

#include <sys/types.h>

/*
 * In a child that was just forked: no supplementary groups, uid and gid `id` (where we are root;
 * else they stay), every capability set empty and the bounding set too, no_new_privs, no core file.
 * 0 or -errno; after an error the child must exit.
 */
int drop_privileges(uid_t id);

#endif
