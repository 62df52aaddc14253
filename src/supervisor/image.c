#include "supervisor/image.h"

#include "base/str.h"
#include "supervisor/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

int image_copy_sparse(int from, int to)
{
	struct stat st;
	if (fstat(from, &st) < 0 || ftruncate(to, st.st_size) < 0)
		return -errno;
	off_t at = 0;
	while (at < st.st_size) {
		off_t begin = lseek(from, at, SEEK_DATA);
		if (begin < 0)
			return errno == ENXIO ? 0 : -errno;
		off_t end = lseek(from, begin, SEEK_HOLE);
		if (end < 0)
			return -errno;
		off_t in = begin, out = begin;
		while (in < end) {
			ssize_t n = copy_file_range(from, &in, to, &out, (size_t)(end - in), 0);
			if (n <= 0)
				return n < 0 ? -errno : -EIO;
		}
		at = end;
	}
	return 0;
}

int image_attach(int backing, bool read_only, struct image *ret)
{
	_cleanup_close_ int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	if (control < 0)
		return -errno;
	/* Another process may take the number between the two calls: then ask for another. */
	for (int tries = 0; tries < 64; tries++) {
		int number = ioctl(control, LOOP_CTL_GET_FREE);
		if (number < 0)
			return -errno;
		char path[32];
		str_format(path, sizeof(path), "/dev/loop%d", number);
		_cleanup_close_ int dev = open(path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
		if (dev < 0)
			return -errno;
		struct loop_config config = {.fd = (uint32_t)backing};
		config.info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO |
		                       (read_only ? LO_FLAGS_READ_ONLY : 0);
		if (ioctl(dev, LOOP_CONFIGURE, &config) < 0) {
			if (errno == EBUSY || errno == ENXIO)
				continue;
			return -errno;
		}
		/* What we keep must not count as a writer of a mounted device. */
		int keep = open(path, O_RDONLY | O_CLOEXEC);
		if (keep < 0)
			return -errno;
		*ret = (struct image){.fd = keep, .number = number};
		return 0;
	}
	return -EBUSY;
}

bool image_release(struct image *img)
{
	if (img->fd < 0)
		return true;
	char path[32];
	str_format(path, sizeof(path), "/dev/loop%d", img->number);
	_cleanup_close_ int probe = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);
	if (probe < 0 && errno == EBUSY)
		return false;
	sys_close(&img->fd);
	return true;
}

int image_mount_type(const char *type, unsigned int attr, const char *const options[])
{
	_cleanup_close_ int fs = fsopen(type, FSOPEN_CLOEXEC);
	if (fs < 0)
		return -errno;
	for (size_t i = 0; options[i]; i += 2) {
		unsigned int cmd = options[i + 1] ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;
		if (fsconfig(fs, cmd, options[i], options[i + 1], 0) < 0)
			return -errno;
	}
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	int mnt = fsmount(fs, FSMOUNT_CLOEXEC, attr);
	return mnt < 0 ? -errno : mnt;
}

int image_mount_ext4(const struct image *img, bool lasting)
{
	char source[32];
	str_format(source, sizeof(source), "/dev/loop%d", img->number);
	const char *const options[] = {"source", source, "discard", NULL, "noinit_itable", NULL,
	        "errors", "remount-ro", lasting ? NULL : "nobarrier", NULL, NULL};
	return image_mount_type(
	        "ext4", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME, options);
}

int image_map_mount(int mnt, int userns, uint64_t attr)
{
	struct mount_attr set = {.attr_set = attr};
	if (userns >= 0) {
		set.attr_set |= MOUNT_ATTR_IDMAP;
		set.userns_fd = (uint64_t)userns;
	}
	return mount_setattr(mnt, "", AT_EMPTY_PATH, &set, sizeof(set)) < 0 ? -errno : 0;
}
