/*
 * Every feature is really tried, in a child with a mount namespace of its own that writes its
 * findings into shared memory; whatever it mounted goes with it, and a try that hangs or kills it
 * leaves the rest as "not tried" and not present.
 */
#include "supervisor/check.h"

#include "base/clock.h"
#include "base/str.h"
#include "supervisor/cgroup.h"
#include "supervisor/template.h"
#include "supervisor/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRY_LIMIT_MS 20000

struct tried {
	const struct sup_config *cfg;
	struct cgroup_host cgroup;
	bool has_cgroup;
	struct sup_check *row; /* the one being tried */
};

#define DETAIL(t, ...) snprintf((t)->row->detail, sizeof((t)->row->detail), __VA_ARGS__)

/* Fills in what went wrong; always false. */
static bool failed(struct tried *t, const char *what, int errnum)
{
	DETAIL(t, "%s: %s", what, strerror(errnum < 0 ? -errnum : errnum));
	return false;
}

static bool try_kernel(struct tried *t)
{
	struct utsname u;
	unsigned int major = 0, minor = 0;
	if (uname(&u) < 0)
		return failed(t, "uname", errno);
	if (sscanf(u.release, "%u.%u", &major, &minor) != 2)
		major = 0;
	DETAIL(t, "%.100s; 6.1 is the oldest supported", u.release);
	return major > 6 || (major == 6 && minor >= 1);
}

static bool try_capabilities(struct tried *t)
{
	static const struct {
		int number;
		const char *name;
	} needed[] = {{CAP_CHOWN, "chown"}, {CAP_DAC_OVERRIDE, "dac_override"},
	        {CAP_FOWNER, "fowner"}, {CAP_KILL, "kill"}, {CAP_MKNOD, "mknod"},
	        {CAP_NET_ADMIN, "net_admin"}, {CAP_SETGID, "setgid"}, {CAP_SETUID, "setuid"},
	        {CAP_SYS_ADMIN, "sys_admin"}, {CAP_SYS_PTRACE, "sys_ptrace"}};
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	size_t at = 0;
	if (syscall(SYS_capget, &head, data) < 0)
		return failed(t, "capget", errno);
	uint64_t have = data[0].effective | (uint64_t)data[1].effective << 32;
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (!(have >> needed[i].number & 1))
			at += (size_t)snprintf(t->row->detail + at, sizeof(t->row->detail) - at,
			        "%s%s", at ? " " : "missing: ", needed[i].name);
	if (at == 0)
		DETAIL(t, "effective %016llx", (unsigned long long)have);
	return at == 0;
}

static bool try_sys_resource(struct tried *t)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	if (syscall(SYS_capget, &head, data) < 0)
		return failed(t, "capget", errno);
	bool have = data[0].effective >> CAP_SYS_RESOURCE & 1;
	DETAIL(t, "%s",
	        have ? "limits may be raised"
	             : "hard limits (open files) stay as this process has them");
	return have;
}

static bool try_userns(struct tried *t)
{
	_cleanup_close_ int fd = sys_userns(0, sup_uid_lease(t->cfg, 0));
	if (fd < 0)
		return failed(t, "clone and map ids", fd);
	DETAIL(t, "65,536 ids mapped from %u", sup_uid_lease(t->cfg, 0));
	return true;
}

static bool try_namespaces(struct tried *t)
{
	pid_t pid = fork();
	if (pid == 0)
		_exit(unshare(CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
		              CLONE_NEWCGROUP) < 0
		                ? errno & 0x7f
		                : 0);
	int status;
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return failed(t, "fork", errno);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return failed(t, "unshare", WIFEXITED(status) ? WEXITSTATUS(status) : EIO);
	DETAIL(t, "mount, pid, net, ipc, uts and cgroup");
	return true;
}

static bool try_images(struct tried *t)
{
	const char *step;
	_cleanup_close_ int userns = sys_userns(sup_uid_storage(t->cfg), sup_uid_lease(t->cfg, 0));
	if (userns < 0)
		return failed(t, "user namespace", userns);
	int r = template_try(userns, &step);
	if (r < 0)
		return failed(t, step, r);
	DETAIL(t, "mke2fs, loop device, ext4, ids mapped on the mount");
	return true;
}

static bool try_erofs(struct tried *t)
{
	_cleanup_close_ int fs = fsopen("erofs", FSOPEN_CLOEXEC);
	if (fs < 0)
		return failed(t, "fsopen erofs", errno);
	DETAIL(t, "known to the kernel");
	return true;
}

static bool try_overlay(struct tried *t)
{
	if (mount("brig-check", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m") < 0)
		return failed(t, "mount tmpfs", errno);
	if (mkdir("/tmp/l", 0755) < 0 || mkdir("/tmp/l/d", 0755) < 0 || mkdir("/tmp/u", 0755) < 0 ||
	        mkdir("/tmp/w", 0755) < 0 || mkdir("/tmp/m", 0755) < 0)
		return failed(t, "mkdir", errno);
	if (mount("brig-check", "/tmp/m", "overlay", 0,
	            "lowerdir=/tmp/l,upperdir=/tmp/u,workdir=/tmp/"
	            "w,redirect_dir=on,metacopy=off,volatile") < 0)
		return failed(t, "mount overlay with redirect_dir=on", errno);
	if (rename("/tmp/m/d", "/tmp/m/e") < 0)
		return failed(t, "rename a folder of the lower layer", errno);
	DETAIL(t, "redirect_dir=on, volatile; a lower folder was renamed");
	return true;
}

static bool try_seccomp(struct tried *t)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {.len = 1, .filter = &allow};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
		return failed(t, "load a filter", errno);
	DETAIL(t, "a filter was loaded");
	return true;
}

/* Makes a group where ours would be, looks at it, removes it. */
static bool group_has(struct tried *t, enum cgroup_hierarchy which, const char *file)
{
	char name[64], path[128];
	int parent = t->cgroup.parent[which];
	str_format(name, sizeof(name), "brig-check-%d", (int)getpid());
	str_format(path, sizeof(path), "%s/%s", name, file);
	if (parent < 0 || mkdirat(parent, name, 0755) < 0)
		return false;
	bool has = faccessat(parent, path, F_OK, 0) == 0;
	unlinkat(parent, name, AT_REMOVEDIR);
	return has;
}

static bool try_controllers(struct tried *t)
{
	static const char *const mode[] = {[INIT_CG_V2] = "version 2",
	        [INIT_CG_HYBRID] = "hybrid: limits by version 1, freeze and kill by version 2",
	        [INIT_CG_V1] = "version 1"};
	struct error err = {0};
	if (cgroup_find(t->cfg->data, t->cfg->cgroups, &t->cgroup, &err) < 0) {
		DETAIL(t, "%.150s", err.text);
		return false;
	}
	t->has_cgroup = true;
	bool v2 = t->cgroup.mode == INIT_CG_V2;
	if (v2 ? !group_has(t, CGH_V2, "cgroup.procs")
	       : !group_has(t, CGH_MEMORY, "memory.limit_in_bytes") ||
	                        !group_has(t, CGH_PIDS, "pids.max") ||
	                        !group_has(t, CGH_CPU, "cpu.cfs_quota_us")) {
		DETAIL(t, "%s, but no group can be made", mode[t->cgroup.mode]);
		return false;
	}
	DETAIL(t, "%s", mode[t->cgroup.mode]);
	return true;
}

static bool try_freezer(struct tried *t)
{
	if (!t->has_cgroup)
		return failed(t, "no cgroups", ENOENT);
	bool v1 = t->cgroup.mode == INIT_CG_V1;
	DETAIL(t, "%s", v1 ? "freezer.state" : "cgroup.freeze");
	return group_has(t, v1 ? CGH_FREEZER : CGH_V2, t->row->detail);
}

static bool try_cgroup_kill(struct tried *t)
{
	DETAIL(t, "cgroup.kill; without it killing is freeze, SIGKILL, thaw");
	return t->has_cgroup && t->cgroup.mode != INIT_CG_V1 && group_has(t, CGH_V2, "cgroup.kill");
}

static bool try_io(struct tried *t)
{
	char text[512] = "";
	bool v2 =
	        t->has_cgroup && t->cgroup.mode == INIT_CG_V2 &&
	        sys_read_at(t->cgroup.parent[CGH_V2], "cgroup.controllers", text, sizeof(text)) > 0;
	DETAIL(t, "the io controller of version 2");
	char *at = v2 ? strstr(text, "io") : NULL;
	return at && (at == text || at[-1] == ' ') && (at[2] == ' ' || at[2] == '\n');
}

static long landlock_abi(void)
{
	return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

static bool try_landlock(struct tried *t)
{
	long abi = landlock_abi();
	if (abi < 1)
		return failed(t, "landlock", abi < 0 ? errno : ENOSYS);
	DETAIL(t, "version %ld", abi);
	return true;
}

/* A rule set that has this one scope; kernels are known that count to version 6 without all of
 * them. */
static bool try_scope(struct tried *t, uint64_t scope)
{
	struct {
		uint64_t fs, net, scoped;
	} attr = {.scoped = scope};
	long fd = syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	if (fd < 0)
		return failed(t, "rule set with this scope", errno);
	close((int)fd);
	DETAIL(t, "a rule set was made");
	return true;
}

static bool try_scope_sockets(struct tried *t)
{
	return try_scope(t, 1);
}

static bool try_scope_signals(struct tried *t)
{
	return try_scope(t, 2);
}

/* Since 6.2; the filter refuses it in sandboxes whatever this says. */
static bool try_tiocsti(struct tried *t)
{
	char text[16] = "";
	ssize_t n = sys_read_at(AT_FDCWD, "/proc/sys/dev/tty/legacy_tiocsti", text, sizeof(text));
	DETAIL(t, "dev.tty.legacy_tiocsti is %.*s; sandboxes refuse it in any case",
	        n > 0 ? (int)strcspn(text, "\n") : 10, n > 0 ? text : "not there");
	return n > 0 && text[0] == '0';
}

static const struct {
	const char *name;
	bool required;
	bool (*try)(struct tried *t);
} table[] = {
        {"kernel", true, try_kernel},
        {"capabilities of the supervisor", true, try_capabilities},
        {"user namespaces", true, try_userns},
        {"other namespaces", true, try_namespaces},
        {"controllers memory, pids and cpu", true, try_controllers},
        {"freezer", true, try_freezer},
        {"ext4 on loop devices, idmapped", true, try_images},
        {"erofs", true, try_erofs},
        {"overlay", true, try_overlay},
        {"seccomp filters", true, try_seccomp},
        {"cgroup.kill", false, try_cgroup_kill},
        {"Landlock", false, try_landlock},
        {"Landlock scope of sockets", false, try_scope_sockets},
        {"Landlock scope of signals", false, try_scope_signals},
        {"I/O limits", false, try_io},
        {"CAP_SYS_RESOURCE", false, try_sys_resource},
        {"TIOCSTI off for everybody", false, try_tiocsti},
};
#define N_CHECKS ((int)(sizeof(table) / sizeof(table[0])))

static _Noreturn void try_all(const struct sup_config *cfg, struct sup_check *rows)
{
	struct tried t = {.cfg = cfg};
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	int r = unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0
	                ? errno
	                : 0;
	for (int i = 0; i < N_CHECKS; i++) {
		t.row = &rows[i];
		if (r)
			failed(&t, "mount namespace", r);
		else
			rows[i].present = table[i].try(&t);
	}
	if (t.has_cgroup)
		cgroup_stop(&t.cgroup);
	_exit(0);
}

/* Waits for the child, and ends it where it takes too long. */
static void wait_for(pid_t pid)
{
	uint64_t end = clock_mono_ms() + TRY_LIMIT_MS;
	while (waitpid(pid, NULL, WNOHANG) == 0) {
		if (clock_mono_ms() > end) {
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			return;
		}
		usleep(500);
	}
}

int supervisor_check_host(const struct sup_config *cfg, struct sup_check *rows, int max)
{
	int n = max < N_CHECKS ? max : N_CHECKS;
	size_t size = sizeof(struct sup_check) * (size_t)N_CHECKS;
	struct sup_check *shared =
	        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 0;
	for (int i = 0; i < N_CHECKS; i++) {
		shared[i] =
		        (struct sup_check){.name = table[i].name, .required = table[i].required};
		str_format(shared[i].detail, sizeof(shared[i].detail), "not tried");
	}
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0)
		try_all(cfg, shared);
	if (pid > 0)
		wait_for(pid);
	for (int i = 0; i < n; i++) {
		rows[i] = shared[i];
		rows[i].name = table[i].name;
		rows[i].required = table[i].required;
	}
	munmap(shared, size);
	return n;
}

int check_required(const struct sup_config *cfg, struct error *err)
{
	struct sup_check rows[N_CHECKS];
	char text[400] = "";
	size_t at = 0;
	if (!cfg->sandbox)
		return 0;
	int n = supervisor_check_host(cfg, rows, N_CHECKS);
	for (int i = 0; i < n && at < sizeof(text); i++)
		if (rows[i].required && !rows[i].present)
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s (%s)",
			        at ? "; " : "", rows[i].name, rows[i].detail);
	if (n == 0)
		return error_set(err, ERR_NOMEM, "cannot check the host");
	return at ? error_set(err, ERR_UNSUPPORTED, "this host lacks what sandboxes need: %s", text)
	          : 0;
}
