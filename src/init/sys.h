/*
 * System calls and constants that musl or the oldest supported kernel headers (6.1) do not have, as
 * thin inline wrappers: each returns what the kernel returns, with errno set on -1. Nothing here
 * has state. musl's <sys/mount.h> and <sched.h> repeat names of the kernel's headers, so files of
 * this folder include this instead of them.
 */
#ifndef BRIG_INIT_SYS_H
#define BRIG_INIT_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SYS_MNT_DETACH 2

static inline int sys_mount(const char *source, const char *target, const char *type,
        unsigned long flags, const char *data)
{
	return (int)syscall(SYS_mount, source, target, type, flags, data);
}

static inline int sys_umount(const char *target, int flags)
{
	return (int)syscall(SYS_umount2, target, flags);
}

static inline int sys_fsopen(const char *type)
{
	return (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
}

/* The file system of an open mount, to be changed with FSCONFIG_CMD_RECONFIGURE. */
static inline int sys_fspick(int mount)
{
	return (int)syscall(SYS_fspick, mount, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);
}

static inline int sys_fsconfig(int fs, unsigned int cmd, const char *key, const char *value)
{
	return (int)syscall(SYS_fsconfig, fs, cmd, key, value, 0);
}

static inline int sys_fsmount(int fs, unsigned int attributes)
{
	return (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attributes);
}

/* A detached copy of the mount at dir/path; path "" names dir itself. */
static inline int sys_open_tree(int dir, const char *path)
{
	return (int)syscall(SYS_open_tree, dir, path,
	        OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
}

/* Puts the mount that from names (a detached one, or one in the tree) at dir/path ("": dir itself).
 */
static inline int sys_move_mount(int from, int dir, const char *path)
{
	unsigned int flags = MOVE_MOUNT_F_EMPTY_PATH | (*path ? 0u : MOVE_MOUNT_T_EMPTY_PATH);

	return (int)syscall(SYS_move_mount, from, "", dir, path, flags);
}

static inline int sys_mount_setattr(int mount, uint64_t set)
{
	struct mount_attr attr = {.attr_set = set};

	return (int)syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &attr, sizeof attr);
}

static inline int sys_openat2(
        int dir, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve)
{
	struct open_how how = {.flags = flags, .mode = mode, .resolve = resolve};

	return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
	return (int)syscall(SYS_pivot_root, new_root, put_old);
}

static inline int sys_close_range(unsigned int first, unsigned int last)
{
	return (int)syscall(SYS_close_range, first, last, 0);
}

/* Closes fd where it is one, and returns rc with errno as it was. */
static inline int sys_close(int fd, int rc)
{
	int errnum = errno;

	if (fd >= 0)
		close(fd);
	errno = errnum;
	return rc;
}

static inline int sys_set_capabilities(uint32_t permitted, uint32_t effective)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{.permitted = permitted, .effective = effective}};

	return (int)syscall(SYS_capset, &head, data);
}

#endif
