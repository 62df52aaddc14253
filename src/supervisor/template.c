#include "supervisor/template.h"

#include "base/log.h"
#include "base/str.h"
#include "supervisor/image.h"
#include "supervisor/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a template needs beyond mke2fs: no lost+found, its owner, and the two folders of an overlay.
 */
static int template_finish(int fd, bool home, uid_t owner)
{
	struct image img = IMAGE_NONE;
	int r = image_attach(fd, false, &img);
	if (r < 0)
		return r;
	int mnt = image_mount_ext4(&img, true);
	if (mnt < 0) {
		sys_close(&img.fd);
		return mnt;
	}
	if (unlinkat(mnt, "lost+found", AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = -errno;
	if (home && (fchownat(mnt, ".", owner, owner, 0) < 0 || fchmodat(mnt, ".", 0755, 0) < 0))
		r = -errno;
	if (!home && (mkdirat(mnt, "up", 0755) < 0 || mkdirat(mnt, "wk", 0755) < 0))
		r = -errno;
	sys_close(&mnt);
	for (int i = 0; i < 2000 && !image_release(&img); i++)
		usleep(1000);
	return r;
}

/* Features are named one by one so that the host's mke2fs.conf has no say. Inode tables are not
 * written (noinit_itable keeps the kernel from doing it later): a new file system must stay small
 * to copy. One inode for 16 KiB. Homes have a journal, so that what was acknowledged survives;
 * scratch does not survive anyway. */
static int run_mke2fs(const char *path, bool home, uint32_t mib)
{
	static const char features[] =
	        "none,ext_attr,dir_index,filetype,extent,flex_bg,sparse_super,"
	        "large_file,huge_file,dir_nlink,extra_isize,64bit,metadata_csum";
	char wanted[256], size[32];
	str_format(wanted, sizeof(wanted), "%s%s", features, home ? ",has_journal" : "");
	str_format(size, sizeof(size), "%um", mib);
	const char *const argv[] = {"/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-O", wanted, "-b",
	        "4096", "-I", "256", "-i", "16384", "-m", "0", "-E",
	        "lazy_itable_init=1,lazy_journal_init=1,nodiscard", path, size, home ? "-J" : NULL,
	        mib < 256 ? "size=4" : "size=16", NULL};
	return sys_run(argv);
}

static int template_make(
        const struct sup_config *cfg, const char *name, bool home, uint32_t mib, struct error *err)
{
	char path[sizeof(cfg->data) + 64], final[sizeof(path)];
	str_format(path, sizeof(path), "%s/templates/.new", cfg->data);
	str_format(final, sizeof(final), "%s/templates/%s", cfg->data, name);
	unlink(path);
	int r = run_mke2fs(path, home, mib);
	if (r < 0)
		return error_errno(err, -r, "mke2fs (package e2fsprogs) for template %s", name);
	_cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC);
	r = fd < 0 ? -errno : template_finish(fd, home, sup_uid_storage(cfg));
	if (r == 0 && (fchmod(fd, 0600) < 0 || fsync(fd) < 0 || rename(path, final) < 0))
		r = -errno;
	return r < 0 ? error_errno(err, -r, "make template %s", name) : 0;
}

int template_try(int userns, const char **ret_step)
{
	struct image img = IMAGE_NONE;
	char path[64];
	_cleanup_close_ int fd = memfd_create("brig-check", MFD_CLOEXEC);
	_cleanup_close_ int mnt = -1;
	str_format(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
	*ret_step = "mke2fs (package e2fsprogs)";
	int r = fd < 0 ? -errno : run_mke2fs(path, true, 16);
	if (r < 0)
		return r;
	*ret_step = "loop device";
	r = image_attach(fd, false, &img);
	if (r < 0)
		return r;
	*ret_step = "mount ext4";
	mnt = image_mount_ext4(&img, true);
	if (mnt >= 0) {
		*ret_step = "map ids of a mount";
		r = image_map_mount(mnt, userns, 0);
	}
	sys_close(&img.fd);
	return mnt < 0 ? mnt : r;
}

/* Whether it is there and can be mounted: every home and scratch layer would be as bad as it is. */
static bool template_is_sound(int folder, const char *name)
{
	struct image img = IMAGE_NONE;
	char source[32];
	_cleanup_close_ int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	int r = image_attach(fd, true, &img);
	str_format(source, sizeof(source), "/dev/loop%d", img.number);
	const char *const options[] = {"source", source, "ro", NULL, "noload", NULL, NULL};
	_cleanup_close_ int mnt = r < 0 ? r : image_mount_type("ext4", MOUNT_ATTR_RDONLY, options);
	sys_close(&img.fd);
	if (mnt < 0)
		log_text(LOG_WARN, "template_remade", "%s: %s", name, strerror(-mnt));
	return mnt >= 0;
}

int template_open(const struct sup_config *cfg, int folder, int *ret_home, int *ret_scratch,
        struct error *err)
{
	char home[64], scratch[64];
	int r = 0;
	str_format(home, sizeof(home), "home-%u.ext4", cfg->home_mib);
	str_format(scratch, sizeof(scratch), "scratch-%u.ext4", cfg->scratch_mib);
	if (!template_is_sound(folder, home))
		r = template_make(cfg, home, true, cfg->home_mib, err);
	if (r == 0 && !template_is_sound(folder, scratch))
		r = template_make(cfg, scratch, false, cfg->scratch_mib, err);
	if (r < 0)
		return r;
	_cleanup_close_ int home_fd = openat(folder, home, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	_cleanup_close_ int scratch_fd = openat(folder, scratch, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (home_fd < 0 || scratch_fd < 0)
		return error_errno(err, errno, "open templates");
	*ret_home = steal_fd(home_fd);
	*ret_scratch = steal_fd(scratch_fd);
	return 0;
}
