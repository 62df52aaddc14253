/*
 * init keeps the guest's capabilities as permitted, because a command that runs as root gets the
 * intersection of what init had and the bounding set (no_new_privs allows no more), but has
 * effective only what starting and ending commands takes.
 *
 * Landlock gives two things here. Its domain's scopes keep signals and abstract sockets inside. And
 * since everything beneath / is allowed and nothing else, a descriptor that leads outside (there is
 * none that we know of) would open nothing: only the `run` directory, which init itself needs, is
 * let in. On a kernel without Landlock the sandbox stands without it; `brig doctor` reports that.
 */
#include "init/confine.h"

#include "init/sys.h"
#include "seccomp_filters.h"

#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define CAP(name) (1u << (name))

const uint32_t confine_guest_capabilities =
        CAP(CAP_CHOWN) | CAP(CAP_DAC_OVERRIDE) | CAP(CAP_FOWNER) | CAP(CAP_FSETID) | CAP(CAP_KILL) |
        CAP(CAP_SETGID) | CAP(CAP_SETUID) | CAP(CAP_NET_BIND_SERVICE);

#define INIT_EFFECTIVE (CAP(CAP_KILL) | CAP(CAP_SETGID) | CAP(CAP_SETUID))

/* Landlock beyond the 6.1 headers, and which version brought what. */
#define LL_FS_TRUNCATE  (1ULL << 14) /* 3 */
#define LL_FS_IOCTL_DEV (1ULL << 15) /* 5 */
#define LL_SCOPE_ALL    3ULL         /* 6: abstract UNIX sockets, signals */

struct ll_ruleset {
	uint64_t fs, net, scoped;
};

static int compare_int(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

int confine_descriptors(int *keep, int n)
{
	unsigned int from = 3;

	qsort(keep, (size_t)n, sizeof *keep, compare_int);
	for (int i = 0; i < n; i++) {
		unsigned int fd = (unsigned int)keep[i];

		if (fd > from && sys_close_range(from, fd - 1) < 0)
			return -errno;
		from = fd >= from ? fd + 1 : from;
	}
	return sys_close_range(from, ~0u) < 0 ? -errno : 0;
}

static int drop_bounding_set(void)
{
	for (int cap = 0; cap < 64; cap++) {
		if (cap < 32 && confine_guest_capabilities & (1u << cap))
			continue;
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return errno == EINVAL && cap > CAP_LAST_CAP ? 0 : -1;
	}
	return 0;
}

/* Becomes init_uid, keeping permitted what root in the sandbox may have. */
static int change_id(uint32_t init_uid)
{
	if (syscall(SYS_setgroups, 0, NULL) < 0 ||
	        syscall(SYS_setresgid, init_uid, init_uid, init_uid) < 0 ||
	        prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 ||
	        syscall(SYS_setresuid, init_uid, init_uid, init_uid) < 0 ||
	        prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) < 0)
		return -1;
	return sys_set_capabilities(confine_guest_capabilities, INIT_EFFECTIVE);
}

static int landlock_allow(int ruleset, int dir, uint64_t access)
{
	struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = dir};

	return (int)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

static int landlock(int run)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	struct ll_ruleset attr = {.fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1};
	size_t size = abi >= 6   ? sizeof attr
	              : abi >= 4 ? offsetof(struct ll_ruleset, scoped)
	                         : offsetof(struct ll_ruleset, net);
	int ruleset, root, rc = -1;

	if (abi < 1)
		return errno == ENOSYS || errno == EOPNOTSUPP ? 0 : -1;
	attr.fs |= abi >= 2 ? LANDLOCK_ACCESS_FS_REFER : 0;
	attr.fs |= abi >= 3 ? LL_FS_TRUNCATE : 0;
	attr.fs |= abi >= 5 ? LL_FS_IOCTL_DEV : 0;
	attr.scoped = abi >= 6 ? LL_SCOPE_ALL : 0;
	/* Version 1 cannot allow a rename to another directory, which a user needs more than the
	 * rest. */
	if (abi < 2)
		return 0;
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	if (ruleset < 0)
		return -1;
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root >= 0 && landlock_allow(ruleset, root, attr.fs) == 0 &&
	        landlock_allow(ruleset, run, attr.fs) == 0)
		rc = (int)syscall(SYS_landlock_restrict_self, ruleset, 0);
	return sys_close(ruleset, sys_close(root, rc));
}

static int load(const struct sock_filter *filter, size_t n)
{
	/* The kernel only reads it; its type is older than const. */
	struct sock_fprog program = {
	        .len = (unsigned short)n, .filter = (struct sock_filter *)(uintptr_t)filter};

	return (int)syscall(
	        SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program);
}

#define COUNT(a) (sizeof(a) / sizeof *(a))

static int load_filters(uint32_t init_uid)
{
	struct sock_filter forbid[COUNT(seccomp_forbid)];

	memcpy(forbid, seccomp_forbid, sizeof forbid);
	for (size_t i = 0; i < COUNT(forbid); i++)
		if (BPF_CLASS(forbid[i].code) == BPF_JMP && forbid[i].k == SECCOMP_UID_MARK)
			forbid[i].k = init_uid;
	if (load(forbid, COUNT(forbid)) < 0)
		return -1;
	return load(seccomp_base, COUNT(seccomp_base));
}

int confine_guest(void)
{
	return load(seccomp_guest, COUNT(seccomp_guest)) < 0 ? -errno : 0;
}

/* Lowers a limit; a hard limit that is lower already stays (raising it would need
 * CAP_SYS_RESOURCE). */
static int limit(int resource, rlim_t soft, rlim_t hard)
{
	struct rlimit r;

	if (getrlimit(resource, &r) < 0)
		return -1;
	r.rlim_max = hard < r.rlim_max ? hard : r.rlim_max;
	r.rlim_cur = soft < r.rlim_max ? soft : r.rlim_max;
	return setrlimit(resource, &r);
}

/*
 * Those that init can live with itself; commands inherit them. NOFILE is set for each command. One
 * byte of core is none in a file, and is the kernel's mark of a process whose end starts no helper
 * either (0 is not: a core_pattern with a pipe ignores it, and its program runs on the host). The
 * filter sees to it that it stays.
 */
static int limits(void)
{
	if (limit(RLIMIT_CORE, 1, 1) < 0 || limit(RLIMIT_MEMLOCK, 65536, 65536) < 0 ||
	        limit(RLIMIT_RTPRIO, 0, 0) < 0 || limit(RLIMIT_NICE, 0, 0) < 0 ||
	        limit(RLIMIT_MSGQUEUE, 819200, 819200) < 0 ||
	        limit(RLIMIT_SIGPENDING, 4096, 4096) < 0)
		return -1;
	return limit(RLIMIT_NOFILE, RLIM_INFINITY, RLIM_INFINITY);
}

#define TRY(call, step)                                                                            \
	do {                                                                                       \
		if ((call) < 0) {                                                                  \
			*ret_step = (step);                                                        \
			return -errno;                                                             \
		}                                                                                  \
	} while (0)

int confine_init(uint32_t init_uid, int run, const char **ret_step)
{
	const unsigned long bits = SECBIT_NO_CAP_AMBIENT_RAISE |
	                           SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED | SECBIT_NOROOT_LOCKED |
	                           SECBIT_NO_SETUID_FIXUP_LOCKED;

	TRY(limits(), "limits");
	TRY(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
	TRY(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "ambient set");
	TRY(drop_bounding_set(), "bounding set");
	TRY(prctl(PR_SET_SECUREBITS, bits, 0, 0, 0), "securebits");
	TRY(change_id(init_uid), "identity");
	TRY(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "dumpable");
	TRY(landlock(run), "landlock");
	TRY(load_filters(init_uid), "seccomp");
	return 0;
}
