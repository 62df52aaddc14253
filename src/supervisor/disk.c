/*
 * Theory of operation.
 *
 * A home is a sparse ext4 image: its size and inode count are the container's limit, and a save is
 * no more than what the file system inside already does. It is a copy of a template, made by
 * copying the few hundred KiB that a new file system has written. The image goes on a loop device
 * (direct I/O where the folder's file system can: else each block would be cached twice) that
 * clears itself when its last user is gone, and is mounted by fsopen … fsmount without a place in
 * any namespace. init attaches the descriptor in its own mount namespace, we close ours; from then
 * on the file system lives exactly as long as the sandbox, and is written back and unmounted by the
 * kernel in the context of the sandbox's last process, not in ours.
 *
 * The one danger of this is mounting an image twice, through two loop devices: that destroys it. So
 * we keep the loop device open. While a mount uses it the kernel holds it exclusively, and opening
 * it with O_EXCL fails; once that works the mount is gone, we close, and only then may the home be
 * mounted from its file again. Until that moment there is one struct home for it, and whoever else
 * wants the home mounts it from the same device, which gives the same file system. (A descriptor
 * that a worker has lent to a gateway holds it too, for as long as the gateway likes.) A second
 * supervisor is kept out by the lock; a dead supervisor's mounts have gone with its sandboxes and
 * workers, which the next one ends before it serves.
 *
 * Ids. In a home file's inode stands storage + n; the mount maps it to lease + n, which the
 * sandbox's user namespace shows as n. In the base image stands n, mapped to lease + n likewise.
 * The scratch layer holds lease + n as it is (an idmapped upper layer turns an overlay read-only).
 */
#include "supervisor/disk.h"

#include "base/log.h"
#include "base/mem.h"
#include "supervisor/image.h"
#include "supervisor/root.h"
#include "supervisor/template.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <stdlib.h>
#include <unistd.h>

struct disk {
	const struct sup_config *cfg;
	int data;
	int lock;
	int homes;
	int scratch;
	int trash;
	int stage; /* root of the tmpfs on mnt/; holds base<n> and, on old kernels, layers for
	              a moment */
	int home_template;
	int scratch_template;
	uint32_t n_images;
	struct image image_loops[SUP_MAX_IMAGES];
	uint64_t counter;
	bool by_path;
	struct disk_home ahead[SUP_MAX_POOL]; /* homes that await a name */
	uint32_t n_ahead;
	TAILQ_HEAD(, home) in_use;
};

/* ---- homes ---- */

static void home_name(char name[80], const uint8_t key[SUP_KEY_LEN])
{
	for (int i = 0; i < SUP_KEY_LEN; i++)
		str_format(name + 2 * i, 3, "%02x", key[i]);
	memcpy(name + 2 * SUP_KEY_LEN, ".img", 5);
}

bool disk_home_exists(const struct disk *d, const uint8_t key[SUP_KEY_LEN])
{
	char name[80];
	home_name(name, key);
	return faccessat(d->homes, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

uint64_t disk_home_used(const struct disk *d, const uint8_t key[SUP_KEY_LEN])
{
	char name[80];
	struct stat st;
	home_name(name, key);
	return fstatat(d->homes, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_blocks * 512
	                                                              : 0;
}

/* A new image under a name of its own in scratch/. */
static int image_copy(struct disk *d, int template, char name[32])
{
	str_format(name, 32, "%d-%llu", (int)getpid(), (unsigned long long)++d->counter);
	_cleanup_close_ int fd =
	        openat(d->scratch, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	int r = image_copy_sparse(template, fd);
	if (r < 0) {
		unlinkat(d->scratch, name, 0);
		return r;
	}
	return steal_fd(fd);
}

/* ---- made ahead of time ---- */

static void disk_home_drop(struct disk *d, struct disk_home *home)
{
	sys_close(&home->mnt);
	sys_close(&home->img.fd); /* no one else knows the image: nothing to wait for */
	sys_close(&home->fd);
	unlinkat(d->scratch, home->name, 0);
}

int disk_home_make(struct disk *d, struct disk_home *ret, struct fail *f)
{
	struct disk_home home = DISK_HOME_NONE;
	home.fd = image_copy(d, d->home_template, home.name);
	if (home.fd < 0)
		return fail_set(f, SUP_E_SYSTEM, home.fd, "make home");
	int r = image_attach(home.fd, false, &home.img);
	if (r < 0)
		fail_set(f, SUP_E_SYSTEM, r, "loop device of home");
	else if ((home.mnt = image_mount_ext4(&home.img, true)) < 0)
		r = fail_set(f, SUP_E_SYSTEM, home.mnt, "mount home");
	if (r < 0) {
		home.mnt = -1;
		disk_home_drop(d, &home);
		return -1;
	}
	*ret = home;
	return 0;
}

void disk_home_keep(struct disk *d, const struct disk_home *home)
{
	if (d->n_ahead == SUP_MAX_POOL)
		BUG("more homes than can be kept");
	d->ahead[d->n_ahead++] = *home;
}

uint32_t disk_homes_kept(const struct disk *d)
{
	return d->n_ahead;
}

static int compare_fd(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;
	return (x > y) - (x < y);
}

int disk_become_maker(struct disk *d, int other)
{
	int keep[] = {d->scratch, d->home_template, d->scratch_template, other};
	unsigned int from = 3;
	char path[sizeof(d->cfg->data) + 8];
	qsort(keep, sizeof(keep) / sizeof(keep[0]), sizeof(keep[0]), compare_fd);
	for (size_t i = 0; i < sizeof(keep) / sizeof(keep[0]); i++) {
		if ((unsigned int)keep[i] > from)
			close_range(from, (unsigned int)keep[i] - 1, 0);
		from = (unsigned int)keep[i] + 1;
	}
	close_range(from, ~0U, 0);
	if (unshare(CLONE_NEWNS) < 0)
		return -errno;
	str_format(path, sizeof(path), "%s/mnt", d->cfg->data);
	d->stage = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return d->stage < 0 ? -errno : 0;
}

/* ---- homes, mounted ---- */

/* A new home, whole or not there, also after power was lost where that is promised. */
static int home_create(struct disk *d, const char *name, struct disk_home *ret, struct fail *f)
{
	struct disk_home home = DISK_HOME_NONE;
	if (d->n_ahead)
		home = d->ahead[--d->n_ahead];
	else if (disk_home_make(d, &home, f) < 0)
		return -1;
	if ((d->cfg->durable_power && fsync(home.fd) < 0) ||
	        renameat(d->scratch, home.name, d->homes, name) < 0 ||
	        (d->cfg->durable_power && fsync(d->homes) < 0)) {
		int errnum = errno;
		disk_home_drop(d, &home);
		return fail_set(f, SUP_E_SYSTEM, errnum, "make home");
	}
	*ret = home;
	return 0;
}

static struct home *home_find(struct disk *d, const uint8_t key[SUP_KEY_LEN])
{
	struct home *home;
	TAILQ_FOREACH(home, &d->in_use, link)
	if (!home->deleted && memcmp(home->key, key, SUP_KEY_LEN) == 0)
		return home;
	return NULL;
}

/* True, and it is no more, when it has no user and no mount. */
static bool home_end(struct disk *d, struct home *home)
{
	if (home->users || !image_release(&home->img))
		return false;
	TAILQ_REMOVE(&d->in_use, home, link);
	free(home);
	return true;
}

bool disk_home_release(struct disk *d, struct home **home)
{
	struct home *h = *home;
	if (!h)
		return true;
	if (h->users == 1 && !h->lent && !image_release(&h->img))
		return false;
	*home = NULL;
	h->users--;
	home_end(d, h);
	return true;
}

uint32_t disk_homes_settle(struct disk *d)
{
	uint32_t held = 0;
	struct home *home, *next;
	for (home = TAILQ_FIRST(&d->in_use); home; home = next) {
		next = TAILQ_NEXT(home, link);
		held += home->users == 0 && !home_end(d, home);
	}
	return held;
}

/* A first or further mount of it, for a new user. */
static int home_use(struct home *home, int mnt, int userns, int *ret_mount, struct fail *f)
{
	int r = image_map_mount(mnt, userns, 0);
	if (r < 0)
		return fail_set(f, SUP_E_SYSTEM, r, "map ids of home");
	*ret_mount = mnt;
	return 0;
}

/* For one more user, from the device that it is on. */
static int home_mount_again(
        struct home *home, int userns, struct home **ret, int *ret_mount, struct fail *f)
{
	_cleanup_close_ int mnt = image_mount_ext4(&home->img, true);
	if (mnt < 0)
		return fail_set(f, SUP_E_HOME, mnt, "mount home");
	home->users++;
	*ret = home;
	if (home_use(home, mnt, userns, ret_mount, f) < 0)
		return -1;
	steal_fd(mnt);
	return 0;
}

int disk_home_mount(struct disk *d, const uint8_t key[SUP_KEY_LEN], int userns, struct home **ret,
        int *ret_mount, bool *ret_created, struct fail *f)
{
	char name[80];
	home_name(name, key);
	struct home *again = home_find(d, key);
	struct disk_home home = DISK_HOME_NONE;
	*ret_created = false;
	if (again && !home_end(d, again))
		return home_mount_again(again, userns, ret, ret_mount, f);
	home.fd = openat(d->homes, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (home.fd < 0 && errno != ENOENT)
		return fail_set(f, SUP_E_HOME, errno, "open home");
	bool created = home.fd < 0;
	if (created && home_create(d, name, &home, f) < 0)
		return -1;
	_cleanup_close_ int fd = home.fd, mnt = home.mnt;
	if (mnt < 0) {
		int r = image_attach(fd, false, &home.img);
		if (r < 0)
			return fail_set(f, SUP_E_SYSTEM, r, "loop device of home");
		mnt = image_mount_ext4(&home.img, true);
	}
	if (mnt < 0) {
		int errnum = mnt;
		sys_close(&home.img.fd);
		return fail_set(f, SUP_E_HOME, errnum, "mount home");
	}
	struct home *first = mem_alloc(sizeof(*first));
	*first = (struct home){.users = 1, .img = home.img};
	memcpy(first->key, key, SUP_KEY_LEN);
	TAILQ_INSERT_TAIL(&d->in_use, first, link);
	*ret = first; /* from here on there is a mount, which the caller sees to the end */
	if (home_use(first, mnt, userns, ret_mount, f) < 0)
		return -1;
	steal_fd(mnt);
	*ret_created = created;
	return 0;
}

/* Unlinking a large image takes its time, so a child does it. */
static void trash_empty(struct disk *d)
{
	pid_t pid = fork();
	if (pid < 0) {
		log_text(LOG_WARN, "trash_kept", "fork: %s", strerror(errno));
		return;
	}
	if (pid > 0)
		return; /* reaped by the loop with all other children */
	/* It must hold nothing that has to close with us: loop devices, control sockets. */
	/* Opened anew: a copy of ours would go on reading where the last child has stopped. */
	int keep = openat(d->trash, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (keep >= 0)
		keep = dup2(keep, 0);
	close_range(1, ~0U, 0);
	DIR *dir = keep < 0 ? NULL : fdopendir(0);
	struct dirent *e;
	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			unlinkat(dirfd(dir), e->d_name, 0);
	_exit(0);
}

int disk_home_delete(struct disk *d, const uint8_t key[SUP_KEY_LEN])
{
	char name[80], gone[32];
	home_name(name, key);
	str_format(gone, sizeof(gone), "%d-%llu", (int)getpid(), (unsigned long long)++d->counter);
	if (renameat(d->homes, name, d->trash, gone) < 0)
		return errno == ENOENT ? 0 : -errno;
	struct home *home = home_find(d, key);
	if (home)
		home->deleted = true;
	if (d->cfg->durable_power)
		fsync(d->homes);
	trash_empty(d);
	return 0;
}

/* ---- root ---- */

static int clone_mount(struct disk *d, const char *name, int userns, uint64_t attr)
{
	_cleanup_close_ int mnt = open_tree(d->stage, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (mnt < 0)
		return -errno;
	int r = image_map_mount(mnt, userns, attr);
	return r < 0 ? r : steal_fd(mnt);
}

static int scratch_make(struct disk *d, struct image *ret, int *ret_mount, struct fail *f)
{
	char name[32];
	_cleanup_close_ int fd = image_copy(d, d->scratch_template, name);
	if (fd < 0)
		return fail_set(f, SUP_E_SYSTEM, fd, "make scratch");
	unlinkat(d->scratch, name, 0);
	struct image img = IMAGE_NONE;
	int r = image_attach(fd, false, &img);
	if (r < 0)
		return fail_set(f, SUP_E_SYSTEM, r, "loop device of scratch");
	int mnt = image_mount_ext4(&img, false);
	if (mnt < 0) {
		sys_close(&img.fd);
		return fail_set(f, SUP_E_SYSTEM, mnt, "mount scratch");
	}
	*ret = img;
	*ret_mount = mnt;
	return 0;
}

int disk_root_mount(struct disk *d, uint32_t image, int userns, uid_t owner, struct image *ret,
        int *ret_mount, struct fail *f)
{
	char name[32];
	str_format(name, sizeof(name), "base%u", image);
	_cleanup_close_ int lower =
	        clone_mount(d, name, userns, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (lower < 0)
		return fail_set(f, SUP_E_SYSTEM, lower, "clone base image");
	_cleanup_close_ int scratch = -1;
	if (scratch_make(d, ret, &scratch, f) < 0)
		return -1;
	if (fchownat(scratch, "up", owner, owner, 0) < 0 ||
	        fchownat(scratch, "wk", owner, owner, 0) < 0)
		return fail_set(f, SUP_E_SYSTEM, errno, "give scratch to the lease");
	int r = root_overlay_mount(d->stage, &d->by_path, lower, scratch);
	if (r < 0)
		return fail_set(f, SUP_E_SYSTEM, r, "mount root");
	*ret_mount = r;
	return 0;
}

/* ---- start ---- */

/* Opens data/name, making it. Refuses what is not a folder of root's alone. */
static int folder_open(int data, const char *name, struct error *err)
{
	if (mkdirat(data, name, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "make folder %s of the data folder", name);
	_cleanup_close_ int fd =
	        openat(data, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "open folder %s of the data folder", name);
	if (st.st_uid != 0 || (st.st_mode & 022))
		return error_set(err, ERR_PERMISSION,
		        "folder %s of the data folder must belong to root and be writable by "
		        "nobody else",
		        name);
	return steal_fd(fd);
}

static void folder_empty(int fd)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;
	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			unlinkat(fd, e->d_name, 0);
	if (dir)
		closedir(dir);
}

static int stage_mount(struct disk *d, struct error *err)
{
	static const char *const small[] = {"source", "brig", "size", "64k", "mode", "0755", NULL};
	static const char *const folder[] = {"lower", "upper"};
	_cleanup_close_ int place = folder_open(d->data, "mnt", err);
	if (place < 0)
		return place;
	d->stage = image_mount_type("tmpfs", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, small);
	if (d->stage < 0)
		return error_errno(err, -d->stage, "mount tmpfs");
	if (move_mount(d->stage, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) <
	        0)
		return error_errno(err, errno, "attach tmpfs");
	for (size_t i = 0; i < sizeof(folder) / sizeof(folder[0]); i++)
		if (mkdirat(d->stage, folder[i], 0755) < 0)
			return error_errno(err, errno, "mkdir %s", folder[i]);
	return 0;
}

/* A file that was cut short would be mounted, and fail wherever a command reads what is missing. */
static int base_check(const char *path, struct error *err)
{
	struct {
		uint32_t magic, checksum, features;
		uint8_t block_bits, pad[23];
		uint32_t blocks;
	} super;
	struct stat st;
	/* What is no file, such as a FIFO, must not be waited for. */
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "open base image %s", path);
	if (pread(fd, &super, sizeof(super), 1024) != sizeof(super) || super.magic != 0xe0f5e1e2 ||
	        super.block_bits > 16)
		return error_set(err, ERR_INVALID, "base image %s is no erofs file system", path);
	uint64_t size = (uint64_t)super.blocks << super.block_bits;
	if ((uint64_t)st.st_size < size)
		return error_set(err, ERR_INVALID,
		        "base image %s is cut short: it has %llu of %llu bytes", path,
		        (unsigned long long)st.st_size, (unsigned long long)size);
	return 0;
}

/* erofs straight from the file (6.12 and later, where built in), else over a loop device. */
static int base_mount_file(const char *path, struct image *ret)
{
	/* "ro": a read-only mount of a file system that may be written wants to write the device.
	 */
	const char *options[] = {"source", path, "ro", NULL, NULL};
	int mnt = image_mount_type(
	        "erofs", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, options);
	if (mnt >= 0 || mnt == -ENOENT)
		return mnt;
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int r = image_attach(fd, true, ret);
	if (r < 0)
		return r;
	char source[32];
	str_format(source, sizeof(source), "/dev/loop%d", ret->number);
	options[1] = source;
	mnt = image_mount_type(
	        "erofs", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, options);
	if (mnt < 0)
		sys_close(&ret->fd);
	return mnt;
}

static int base_mount(struct disk *d, uint32_t n, struct error *err)
{
	const char *name = d->cfg->images[n];
	char path[sizeof(d->cfg->data) + 300], at[32];
	if (name[0] == '.' || strchr(name, '/'))
		return error_set(
		        err, ERR_INVALID, "image name \"%s\" is not a plain file name", name);
	str_format(path, sizeof(path), "%s/images/%s", d->cfg->data, name);
	int r = base_check(path, err);
	if (r < 0)
		return r;
	_cleanup_close_ int mnt = base_mount_file(path, &d->image_loops[n]);
	if (mnt < 0)
		return error_errno(err, -mnt, "mount base image %s", path);
	str_format(at, sizeof(at), "base%u", n);
	if (mkdirat(d->stage, at, 0755) < 0 ||
	        move_mount(mnt, "", d->stage, at, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return error_errno(err, errno, "attach base image %s", name);
	return 0;
}

/* A record lock goes with the process, whatever children hold the descriptor. */
static int lock_take(struct disk *d, struct error *err)
{
	d->lock =
	        openat(d->data, "supervisor.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (d->lock < 0)
		return error_errno(err, errno, "open lock file in %s", d->cfg->data);
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	if (fcntl(d->lock, F_SETLK, &lock) < 0) {
		if (errno != EACCES && errno != EAGAIN)
			return error_errno(err, errno, "lock %s", d->cfg->data);
		struct flock held = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
		fcntl(d->lock, F_GETLK, &held);
		return error_set(err, ERR_CONFLICT,
		        "data folder %s is in use by another brig (process %d)", d->cfg->data,
		        held.l_type == F_UNLCK ? 0 : (int)held.l_pid);
	}
	return 0;
}

/* Homes hold ids of the storage range, so the range is the data folder's for good. */
static int ids_check(struct disk *d, struct error *err)
{
	char text[32], wanted[32];
	str_format(wanted, sizeof(wanted), "%u\n", d->cfg->id_base);
	ssize_t n = sys_read_at(d->data, "ids", text, sizeof(text));
	if (n >= 0)
		return strcmp(text, wanted) == 0
		               ? 0
		               : error_set(err, ERR_CONFLICT,
		                         "ids.base is %u, but the data folder was made with %.*s: "
		                         "its "
		                         "homes hold those ids",
		                         d->cfg->id_base, (int)strcspn(text, "\n"), text);
	_cleanup_close_ int fd =
	        openat(d->data, "ids", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0 || write(fd, wanted, strlen(wanted)) < 0 || fsync(fd) < 0)
		return error_errno(err, errno, "write ids in the data folder");
	return 0;
}

/* The gateway's own folder, and the way to it: the data folder may be passed through, not listed.
 */
static int gateway_folder(struct disk *d, struct error *err)
{
	uid_t uid = sup_uid_gateway(d->cfg);
	if (fchmod(d->data, 0711) < 0)
		return error_errno(err, errno, "chmod data folder");
	if (mkdirat(d->data, "gateway", 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "make folder gateway of the data folder");
	_cleanup_close_ int fd =
	        openat(d->data, "gateway", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchown(fd, uid, uid) < 0)
		return error_errno(
		        err, errno, "give folder gateway of the data folder to its user");
	return 0;
}

static int disk_fill(struct disk *d, struct error *err)
{
	struct stat st;
	d->data = open(d->cfg->data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d->data < 0 || fstat(d->data, &st) < 0)
		return error_errno(err, errno, "open data folder %s", d->cfg->data);
	if (st.st_uid != 0 || (st.st_mode & 022))
		return error_set(err, ERR_PERMISSION,
		        "data folder %s must belong to root and be writable by nobody else",
		        d->cfg->data);
	int r = lock_take(d, err);
	if (r == 0)
		r = gateway_folder(d, err);
	if (r < 0 || !d->cfg->sandbox)
		return r;
	if ((r = ids_check(d, err)) < 0)
		return r;
	if ((d->homes = folder_open(d->data, "homes", err)) < 0)
		return d->homes;
	if ((d->scratch = folder_open(d->data, "scratch", err)) < 0)
		return d->scratch;
	if ((d->trash = folder_open(d->data, "trash", err)) < 0)
		return d->trash;
	folder_empty(d->scratch);
	trash_empty(d);
	_cleanup_close_ int templates = folder_open(d->data, "templates", err);
	if (templates < 0)
		return templates;
	r = template_open(d->cfg, templates, &d->home_template, &d->scratch_template, err);
	if (r == 0)
		r = stage_mount(d, err);
	while (r == 0 && d->n_images < SUP_MAX_IMAGES && d->cfg->images[d->n_images][0]) {
		r = base_mount(d, d->n_images, err);
		if (r == 0)
			d->n_images++;
	}
	if (r == 0 && d->n_images == 0)
		return error_set(err, ERR_INVALID, "no base image is named");
	return r;
}

int disk_open(const struct sup_config *cfg, struct disk **ret, struct error *err)
{
	struct disk *d = mem_alloc(sizeof(*d));
	*d = (struct disk){.cfg = cfg,
	        .data = -1,
	        .lock = -1,
	        .homes = -1,
	        .scratch = -1,
	        .trash = -1,
	        .stage = -1,
	        .home_template = -1,
	        .scratch_template = -1};
	TAILQ_INIT(&d->in_use);
	for (int i = 0; i < SUP_MAX_IMAGES; i++)
		d->image_loops[i].fd = -1;
	int r = disk_fill(d, err);
	if (r < 0) {
		disk_free(d);
		return r;
	}
	*ret = d;
	return 0;
}

struct disk *disk_free(struct disk *d)
{
	if (!d)
		return NULL;
	if (d->stage >= 0) {
		char path[sizeof(d->cfg->data) + 8];
		str_format(path, sizeof(path), "%s/mnt", d->cfg->data);
		sys_close(&d->stage);
		umount2(path, MNT_DETACH);
	}
	for (struct home *h; (h = TAILQ_FIRST(&d->in_use));) {
		TAILQ_REMOVE(&d->in_use, h, link);
		sys_close(&h->img.fd);
		free(h);
	}
	for (uint32_t i = 0; i < d->n_ahead; i++) {
		struct disk_home *home = &d->ahead[i];
		sys_close(&home->mnt);
		for (int k = 0; k < 1000 && !image_release(&home->img); k++)
			usleep(1000);
		sys_close(&home->fd);
	}
	if (d->scratch >= 0)
		folder_empty(d->scratch);
	for (int i = 0; i < SUP_MAX_IMAGES; i++)
		sys_close(&d->image_loops[i].fd);
	sys_close(&d->home_template);
	sys_close(&d->scratch_template);
	sys_close(&d->trash);
	sys_close(&d->scratch);
	sys_close(&d->homes);
	sys_close(&d->lock);
	sys_close(&d->data);
	free(d);
	return NULL;
}

enum disk_room disk_room(const struct disk *d)
{
	struct statvfs st;
	if (fstatvfs(d->data, &st) < 0)
		return DISK_HALF_RESERVE;
	uint64_t all = (uint64_t)st.f_blocks * st.f_frsize,
	         left = (uint64_t)st.f_bavail * st.f_frsize;
	uint64_t reserve = all / 20 > (2ULL << 30) ? all / 20 : 2ULL << 30;
	if (left >= reserve)
		return DISK_ROOMY;
	return left >= reserve / 2 ? DISK_RESERVE : DISK_HALF_RESERVE;
}

uint32_t disk_images(const struct disk *d)
{
	return d->n_images;
}

void disk_use_paths(struct disk *d)
{
	d->by_path = true;
}
