/*
 * The home is attached over /dev of the host's tree as this process sees it (any folder that every
 * host has), becomes the root, and the old one is detached: then there is no path to anything else.
 * Before Linux 6.10 a file without a name can be given one only through /proc; for those a procfs
 * is made, and only its folder of our own descriptors is kept, as a mount of its own: from there no
 * path leads up to the rest of it.
 */
#include "worker/confine.h"

#include "init/sys.h"
#include "worker_filter.h"

#include <errno.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define STAGING   "/dev"
#define CAP(name) (1u << (name))
/* Files and folders of any owner and mode. */
#define CAPABILITIES (CAP(CAP_DAC_OVERRIDE) | CAP(CAP_FOWNER))
/* Beside them: any owner, set-id bits that stay, capabilities of files. */
#define SAVER_CAPABILITIES (CAPABILITIES | CAP(CAP_CHOWN) | CAP(CAP_FSETID) | CAP(CAP_SETFCAP))

/* Landlock beyond the 6.1 headers, and which version brought what. */
#define LL_FS_TRUNCATE  (1ULL << 14) /* 3 */
#define LL_FS_IOCTL_DEV (1ULL << 15) /* 5 */
#define LL_NET_ALL      3ULL         /* 4: bind and connect TCP */
#define LL_SCOPE_ALL    3ULL         /* 6: abstract UNIX sockets, signals */

struct ll_ruleset {
	uint64_t fs, net, scoped;
};

#define TRY(call, step)                                                                            \
	do {                                                                                       \
		if ((call) < 0) {                                                                  \
			*ret_step = (step);                                                        \
			return errno ? -errno : -EIO;                                              \
		}                                                                                  \
	} while (0)

/* True where the kernel would give a name to a file of ours by its descriptor alone. "." is a name
 * that is taken: nothing is made. */
static int links_by_descriptor(void)
{
	int file = memfd_create("probe", MFD_CLOEXEC);
	int rc = file < 0 ? -1 : linkat(file, "", AT_FDCWD, ".", AT_EMPTY_PATH);
	int errnum = errno;

	if (file >= 0)
		close(file);
	return rc < 0 && (errnum == EEXIST || errnum == EXDEV);
}

/* /proc/self/fd as a mount that is nowhere. */
static int open_proc(void)
{
	int fs = sys_fsopen("proc");
	int mount = -1, dir = -1;

	if (fs >= 0 && sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL) == 0)
		mount = sys_fsmount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (mount >= 0 && sys_move_mount(mount, AT_FDCWD, STAGING) == 0) {
		dir = sys_open_tree(AT_FDCWD, STAGING "/self/fd");
		if (sys_umount(STAGING, SYS_MNT_DETACH) < 0)
			return -1;
	}
	if (fs >= 0)
		close(fs);
	if (mount >= 0)
		close(mount);
	return dir;
}

static int limit(int resource, rlim_t most)
{
	struct rlimit r;

	if (getrlimit(resource, &r) < 0)
		return -1;
	r.rlim_max = most < r.rlim_max ? most : r.rlim_max;
	r.rlim_cur = r.rlim_max;
	return setrlimit(resource, &r);
}

/* One byte of core is none in a file, and starts no helper on the host (init/confine.c). */
static int limits(void)
{
	static const struct {
		int resource;
		rlim_t most;
	} ALL[] = {{RLIMIT_CORE, 1}, {RLIMIT_AS, 128u << 20}, {RLIMIT_STACK, 1u << 20},
	        {RLIMIT_NPROC, 0}, {RLIMIT_NOFILE, 8192}, {RLIMIT_MEMLOCK, 0}, {RLIMIT_RTPRIO, 0},
	        {RLIMIT_NICE, 0}, {RLIMIT_MSGQUEUE, 0}, {RLIMIT_SIGPENDING, 64}};

	for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++)
		if (limit(ALL[i].resource, ALL[i].most) < 0)
			return -1;
	return 0;
}

static int drop_capabilities(unsigned int keep)
{
	const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED |
	                           SECBIT_NO_CAP_AMBIENT_RAISE |
	                           SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED | SECBIT_NO_SETUID_FIXUP |
	                           SECBIT_NO_SETUID_FIXUP_LOCKED;

	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return -1;
	for (int cap = 0; cap < 64; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 &&
		        !(errno == EINVAL && cap > CAP_LAST_CAP))
			return -1;
	if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
		return -1;
	return sys_set_capabilities(keep, keep);
}

/* Nothing but what the worker does, and nowhere but beneath the home. */
static int landlock(int dir, bool saver)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	struct ll_ruleset attr = {.fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1};
	struct landlock_path_beneath_attr rule = {
	        .allowed_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
	                          LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE |
	                          LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR |
	                          LANDLOCK_ACCESS_FS_REFER,
	        .parent_fd = dir,
	};
	size_t size = abi >= 6   ? sizeof attr
	              : abi >= 4 ? offsetof(struct ll_ruleset, scoped)
	                         : offsetof(struct ll_ruleset, net);
	int ruleset, rc, errnum;

	if (abi < 1)
		return errno == ENOSYS || errno == EOPNOTSUPP ? 0 : -1;
	if (abi < 2) /* it cannot allow a name in another folder than the file was made in */
		return 0;
	attr.fs |= LANDLOCK_ACCESS_FS_REFER;
	rule.allowed_access |=
	        saver ? LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REMOVE_DIR : 0;
	attr.fs |= abi >= 3 ? LL_FS_TRUNCATE : 0;
	attr.fs |= abi >= 5 ? LL_FS_IOCTL_DEV : 0;
	attr.net = abi >= 4 ? LL_NET_ALL : 0;
	attr.scoped = abi >= 6 ? LL_SCOPE_ALL : 0;
	rule.allowed_access |= abi >= 3 ? LL_FS_TRUNCATE : 0;
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	if (ruleset < 0)
		return -1;
	rc = (int)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
	if (rc == 0)
		rc = (int)syscall(SYS_landlock_restrict_self, ruleset, 0);
	errnum = errno;
	close(ruleset);
	errno = errnum;
	return rc;
}

static int load_filter(bool saver)
{
	/* The kernel only reads it; its type is older than const. */
	const struct sock_filter *filter = saver ? seccomp_saver : seccomp_worker;
	struct sock_fprog program = {.len = saver ? sizeof seccomp_saver / sizeof *filter
	                                          : sizeof seccomp_worker / sizeof *filter,
	        .filter = (struct sock_filter *)(uintptr_t)filter};

	return (int)syscall(
	        SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program);
}

int confine_worker(int home, bool saver, int *ret_dir, int *ret_proc, const char **ret_step)
{
	errno = 0;
	umask(022);
	TRY(prctl(PR_SET_NAME, "brig: worker", 0, 0, 0), "name");
	TRY(sys_mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private");
	*ret_proc = -1;
	if (!links_by_descriptor())
		TRY(*ret_proc = open_proc(), "proc");
	TRY(sys_mount_setattr(home, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC),
	        "home attributes");
	TRY(sys_move_mount(home, AT_FDCWD, STAGING), "home");
	TRY(fchdir(home), "home folder");
	TRY(sys_pivot_root(".", "."), "pivot_root");
	TRY(sys_umount(".", SYS_MNT_DETACH), "detach");
	TRY(chdir("/"), "root folder");
	close(home);
	*ret_dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	TRY(*ret_dir, "home folder");
	TRY(limits(), "limits");
	TRY(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
	TRY(drop_capabilities(saver ? SAVER_CAPABILITIES : CAPABILITIES), "capabilities");
	TRY(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "dumpable");
	TRY(landlock(*ret_dir, saver), "landlock");
	if (saver) /* a pipe that nobody reads is an error to tell */
		signal(SIGPIPE, SIG_IGN);
	TRY(load_filter(saver), "seccomp");
	return 0;
}
