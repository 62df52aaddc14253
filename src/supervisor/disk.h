/*
 * Everything of a sandbox that lies on disk: base images, homes, scratch layers, templates.
 *
 * Data folder: images/NAME (erofs), homes/<hex of key>.img, scratch/ (emptied at start; a scratch
 * image has a name only while it is made, a home made ahead until it is a container's), templates/,
 * trash/ (homes on their way out), mnt/ (a tmpfs of our private mount namespace). All of it belongs
 * to root, mode 0700.
 *
 * Mounts are made by descriptor and never attached here: a sandbox's mounts live in the sandbox's
 * own mount namespace and go with its last process. What stays with us is the loop device, held
 * open so that it cannot become another's before we saw its file system end (image_release). A home
 * may have two users, a sandbox and a worker: both mount the one file system that is on its device.
 */
#ifndef BRIG_SUPERVISOR_DISK_H
#define BRIG_SUPERVISOR_DISK_H

#include "proto/supervisor.h"
#include "supervisor/image.h"
#include "supervisor/supervisor.h"
#include "supervisor/sys.h"

#include <sys/queue.h>

struct disk;

/* Takes the data folder's lock, makes folders and templates, mounts the base images. To be called
 * in a private mount namespace. cfg must outlive it. With cfg->sandbox false only the lock is
 * taken. */
int disk_open(const struct sup_config *cfg, struct disk **ret, struct error *err);
/* Unmounts what disk_open mounted and gives the lock back. Takes NULL; returns NULL. */
struct disk *disk_free(struct disk *d);

bool disk_home_exists(const struct disk *d, const uint8_t key[SUP_KEY_LEN]);
uint64_t disk_home_used(const struct disk *d, const uint8_t key[SUP_KEY_LEN]); /* bytes of blocks */
/* A home that is mounted, or was: one for each image. Each user has a mount of its own, all of them
 * of one file system on one loop device. */
struct home {
	TAILQ_ENTRY(home) link;
	uint8_t key[SUP_KEY_LEN];
	bool deleted; /* the key may be another home's by now */
	bool lent;    /* a worker had it: descriptors of its files may be anywhere */
	uint32_t users;
	struct image img;
};
/* Mounts a home (made first where there is none), its ids mapped by `userns` (storage range →
 * lease). ret_mount is a detached mount, the caller's. A home that cannot be mounted is left as it
 * is. What *ret points to is to be given back by disk_home_release, also after a failure that left
 * it set. */
int disk_home_mount(struct disk *d, const uint8_t key[SUP_KEY_LEN], int userns, struct home **ret,
        int *ret_mount, bool *ret_created, struct fail *f);
/* The user's processes are gone: its mount is, or is about to be. False (call again) while a home
 * of one user is still mounted, unless it was lent. *home becomes NULL with true. Never blocks. */
bool disk_home_release(struct disk *d, struct home **home);
/* Gives back the devices of homes that nobody uses and nothing holds any more. Returns how many are
 * still held. */
uint32_t disk_homes_settle(struct disk *d);
/* Takes a home away (at once, by name) and removes its blocks in a child of ours that nobody waits
 * for. 0 also where there was none. No process may use it; descriptors of its files may be left,
 * and hold what they are of. */
int disk_home_delete(struct disk *d, const uint8_t key[SUP_KEY_LEN]);

/* Root of a sandbox: base image number `image` (ids mapped by `userns`: 0… → lease) below a new
 * scratch image whose writable folder belongs to `owner`. */
int disk_root_mount(struct disk *d, uint32_t image, int userns, uid_t owner, struct image *ret,
        int *ret_mount, struct fail *f);

/* A new home that awaits its name: mounted, its ids not mapped yet. */
struct disk_home {
	int fd;        /* the file; -1: none */
	char name[32]; /* in scratch/ */
	struct image img;
	int mnt;
};
#define DISK_HOME_NONE                                                                             \
	{                                                                                          \
		.fd = -1, .img = IMAGE_NONE, .mnt = -1                                             \
	}
int disk_home_make(struct disk *d, struct disk_home *ret, struct fail *f);
/* Keeps it for the next new container; at most SUP_MAX_POOL. */
void disk_home_keep(struct disk *d, const struct disk_home *home);
uint32_t disk_homes_kept(const struct disk *d);
/* In a child of ours that shall do nothing but disk_home_make and disk_root_mount: closes every
 * descriptor but standard ones, what these need, and `other`; gets mounts of its own. */
int disk_become_maker(struct disk *d, int other);

enum disk_room { DISK_ROOMY, DISK_RESERVE, DISK_HALF_RESERVE };
/* Whether free space is under the reserve (5 % or 2 GiB, the larger), or under half of it. */
enum disk_room disk_room(const struct disk *d);

uint32_t disk_images(const struct disk *d); /* how many are mounted: valid numbers are below it */

/* For tests: overlays are made with /proc/self/fd paths, as kernels before 6.13 need. */
void disk_use_paths(struct disk *d);

#endif
