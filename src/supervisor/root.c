#include "supervisor/root.h"

#include "base/str.h"
#include "proto/supervisor.h"
#include "supervisor/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define OVERLAY_SOURCE "root"

/* ---- dev ---- */

static int dev_fill(int dev)
{
	static const struct {
		const char *name;
		unsigned int major, minor;
	} node[] = {{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8},
	        {"urandom", 1, 9}, {"tty", 5, 0}};
	static const char *const link[][2] = {{"pts/ptmx", "ptmx"}, {"/proc/self/fd", "fd"},
	        {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
	        {"/proc/self/fd/2", "stderr"}};
	for (size_t i = 0; i < sizeof(node) / sizeof(node[0]); i++)
		if (mknodat(dev, node[i].name, S_IFCHR | 0600,
		            makedev(node[i].major, node[i].minor)) < 0 ||
		        fchmodat(dev, node[i].name, 0666, 0) < 0)
			return -errno;
	for (size_t i = 0; i < sizeof(link) / sizeof(link[0]); i++)
		if (symlinkat(link[i][0], dev, link[i][1]) < 0)
			return -errno;
	if (mkdirat(dev, "pts", 0755) < 0 || mkdirat(dev, "shm", 0755) < 0 ||
	        mkdirat(dev, "mqueue", 0755) < 0)
		return -errno;
	return 0;
}

int root_dev_mount(int userns, int *ret_mount, struct fail *f)
{
	/* One for each sandbox: locks and watches on nodes that two share would join them. Without
	 * a size df passes over it; nobody inside can write there. */
	static const char *const small[] = {"source", "brig", "size", "0", "mode", "0755", NULL};
	const uint64_t attr = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
	_cleanup_close_ int mnt = image_mount_type("tmpfs", attr, small);
	int r = mnt < 0 ? mnt : dev_fill(mnt);
	if (r == 0)
		r = image_map_mount(mnt, userns, MOUNT_ATTR_RDONLY);
	if (r ==
	        -EINVAL) /* before 6.3 tmpfs has no mapping: the nodes show as nobody's, and work */
		r = image_map_mount(mnt, -1, MOUNT_ATTR_RDONLY);
	if (r < 0)
		return fail_set(f, SUP_E_SYSTEM, r, "make device nodes");
	*ret_mount = steal_fd(mnt);
	return 0;
}

/* ---- the overlay ---- */

static int overlay_create(int fs)
{
	static const char *const options[][2] = {{"source", OVERLAY_SOURCE}, {"redirect_dir", "on"},
	        {"metacopy", "off"}, {"index", "off"}};
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (fsconfig(fs, FSCONFIG_SET_STRING, options[i][0], options[i][1], 0) < 0)
			return -errno;
	if (fsconfig(fs, FSCONFIG_SET_FLAG, "volatile", NULL, 0) < 0 ||
	        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	int mnt = fsmount(
	        fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
	return mnt < 0 ? -errno : mnt;
}

/* -EOPNOTSUPP: this kernel does not take layers by descriptor. */
static int overlay_by_fd(int lower, int upper, int work)
{
	_cleanup_close_ int fs = fsopen("overlay", FSOPEN_CLOEXEC);
	if (fs < 0)
		return -errno;
	if (fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, lower) < 0 ||
	        fsconfig(fs, FSCONFIG_SET_FD, "upperdir", NULL, upper) < 0 ||
	        fsconfig(fs, FSCONFIG_SET_FD, "workdir", NULL, work) < 0)
		return -EOPNOTSUPP;
	return overlay_create(fs);
}

/* Older kernels want paths, and layers that are attached in our namespace while they look. */
static int overlay_by_path(int stage, int lower, int scratch)
{
	static const char *const key[] = {"lowerdir", "upperdir", "workdir"};
	static const char *const at[] = {"lower", "upper/up", "upper/wk"};
	_cleanup_close_ int fs = fsopen("overlay", FSOPEN_CLOEXEC);
	if (fs < 0)
		return -errno;
	if (move_mount(lower, "", stage, "lower", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return -errno;
	int r = move_mount(scratch, "", stage, "upper", MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
	int dir[3] = {-1, -1, -1};
	char path[32];
	for (int i = 0; i < 3 && r == 0; i++) {
		dir[i] = openat(stage, at[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
		str_format(path, sizeof(path), "/proc/self/fd/%d", dir[i]);
		if (dir[i] < 0 || fsconfig(fs, FSCONFIG_SET_STRING, key[i], path, 0) < 0)
			r = -errno;
	}
	if (r == 0)
		r = overlay_create(fs);
	for (int i = 0; i < 3; i++)
		sys_close(&dir[i]);
	str_format(path, sizeof(path), "/proc/self/fd/%d/lower", stage);
	umount2(path, MNT_DETACH);
	str_format(path, sizeof(path), "/proc/self/fd/%d/upper", stage);
	umount2(path, MNT_DETACH);
	return r;
}

int root_overlay_mount(int stage, bool *by_path, int lower, int scratch)
{
	if (!*by_path) {
		_cleanup_close_ int up = openat(scratch, "up", O_PATH | O_DIRECTORY | O_CLOEXEC);
		_cleanup_close_ int wk = openat(scratch, "wk", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (up < 0 || wk < 0)
			return -errno;
		int r = overlay_by_fd(lower, up, wk);
		if (r != -EOPNOTSUPP)
			return r;
		*by_path = true;
	}
	return overlay_by_path(stage, lower, scratch);
}
