/* Which ids a command runs with. Called in the command's child only, once the sandbox's own root is
 * in place: every file read here is the guest's, and may be anything. */
#ifndef BRIG_INIT_USER_H
#define BRIG_INIT_USER_H

#include <sys/types.h>

#define USER_MAX_GROUPS 64

struct user {
	uid_t uid;
	gid_t gid;
	int n_groups;
	gid_t groups[USER_MAX_GROUPS];
};

/*
 * text: "" is root; digits[:digits] are taken as they are (without the second, the group is the
 * same number); a name is looked up in /etc/passwd and /etc/group. Returns 0, or a negative errno:
 * -ENOENT for an unknown name, -EINVAL for text that is no name.
 */
int user_resolve(const char *text, struct user *ret);

#endif
