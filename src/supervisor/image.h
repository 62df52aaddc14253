/*
 * Files as block devices, and mounts without a place: the calls that homes, scratch layers,
 * templates and base images are made with. Functions return 0 or a descriptor, or a negative errno.
 */
#ifndef BRIG_SUPERVISOR_IMAGE_H
#define BRIG_SUPERVISOR_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

/* An image behind a loop device. */
struct image {
	int fd;     /* the loop device, read-only; -1: none */
	int number; /* /dev/loop<number> */
};
#define IMAGE_NONE                                                                                 \
	{                                                                                          \
		.fd = -1                                                                           \
	}

/* Copies what is written of a sparse file, sharing blocks where the file system can. */
int image_copy_sparse(int from, int to);
/* Puts a file on a free loop device, which clears itself when its last user is gone. Direct I/O,
 * where the file's own file system can; the device knows no path. */
int image_attach(int backing, bool read_only, struct image *ret);
/* True once no mount of the image is left anywhere and the device is given back. Never blocks. */
bool image_release(struct image *img);

/* A new detached mount. options are key, value pairs (value NULL: a flag), a NULL key at the end.
 */
int image_mount_type(const char *type, unsigned int attr, const char *const options[]);
/* An ext4 image: nosuid, nodev, noatime, discard. Without `lasting` it need not survive a loss of
 * power. */
int image_mount_ext4(const struct image *img, bool lasting);
/* Maps the ids of a detached mount by a user namespace (-1: does not) and sets further attributes.
 */
int image_map_mount(int mnt, int userns, uint64_t attr);

#endif
