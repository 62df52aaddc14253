/*
 * The self-test without a server. A child does it, in a mount namespace of its own: it sees the
 * data folder's images under a data folder that is for this only, and what it mounts goes with it.
 * That folder has the same name each time, so that what a killed self-test left (control groups,
 * files) is taken away by the next, and its lock keeps two apart.
 *
 * The rows come back in shared memory. Signals that would end us wait until all is removed.
 */
#include "base/str.h"
#include "supervisor/selftest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOLDER      "selftest"
#define HOME_MIB    32
#define SCRATCH_MIB 64
#define N_LEASES    2

struct result {
	bool done;
	int code; /* of selftest_probe or what came before it */
	struct error err;
	struct sup_probe rows[SUP_N_PROBES];
};

/* The ids behind those of the server that may be running. */
static int config_alone(const struct sup_config *cfg, struct sup_config *ret, struct error *err)
{
	uint64_t base = sup_uid_lease(cfg, cfg->n_leases + cfg->n_workers);
	if (base + 131072 + N_LEASES * 65536 >= UINT32_MAX)
		return error_set(err, ERR_INVALID, "no ids are left above those of ids.base");
	*ret = *cfg;
	if (strlen(cfg->data) > sizeof(ret->data) - 64)
		return error_set(err, ERR_INVALID, "the data folder's name is too long");
	str_format(ret->data, sizeof(ret->data), "%s/" FOLDER, cfg->data);
	ret->id_base = (uint32_t)base;
	ret->n_leases = N_LEASES;
	ret->n_workers = 0;
	ret->home_mib = HOME_MIB;
	ret->scratch_mib = SCRATCH_MIB;
	memset(ret->images + 1, 0, sizeof(ret->images) - sizeof(ret->images[0]));
	return 0;
}

static int open_host(
        const struct sup_config *own, const char *data, struct sandbox_host *h, struct error *err)
{
	char from[sizeof(own->data) + 16], to[sizeof(own->data) + 16];
	str_format(from, sizeof(from), "%s/images", data);
	str_format(to, sizeof(to), "%s/images", own->data);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return error_errno(err, errno, "make private mount namespace");
	if (mount(from, to, NULL, MS_BIND, NULL) < 0)
		return error_errno(
		        err, errno, "bind %s (is there an image? `brig image build`)", from);
	int r = disk_open(own, &h->disk, err);
	if (r == 0)
		r = cgroup_find(own->data, own->cgroups, &h->cgroup, err);
	if (r == 0)
		r = cgroup_start(&h->cgroup, err);
	return r == 0 ? sandbox_host_open(own, h, err) : r;
}

static _Noreturn void child_run(
        const struct sup_config *own, const char *data, struct result *result)
{
	struct sandbox_host h = {.init_image = -1, .worker_image = -1, .net_ns = -1};
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	prctl(PR_SET_NAME, "brig: selftest", 0, 0, 0);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	umask(022);
	for (int i = 0; i < CGH_N; i++)
		h.cgroup.parent[i] = h.cgroup.root[i] = -1;
	result->code = open_host(own, data, &h, &result->err);
	if (result->code == 0)
		result->code = selftest_probe(&h, result->rows, &result->err);
	cgroup_stop(&h.cgroup);
	sandbox_host_close(&h);
	disk_free(h.disk);
	result->done = true;
	_exit(0);
}

/* Empties a folder that holds no folders. */
static void empty_folder(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	while (d && (e = readdir(d)))
		unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	else
		sys_close(&fd);
}

static void remove_folder(int data)
{
	static const char *const folders[] = {
	        "homes", "scratch", "trash", "templates", "mnt", "gateway", "images"};
	int dir = openat(data, FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0)
		return;
	empty_folder(data, FOLDER);
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		empty_folder(dir, folders[i]);
		unlinkat(dir, folders[i], AT_REMOVEDIR);
	}
	close(dir);
	unlinkat(data, FOLDER, AT_REMOVEDIR);
}

static int make_folder(int data, struct error *err)
{
	if (mkdirat(data, FOLDER, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "make folder " FOLDER " of the data folder");
	if (mkdirat(data, FOLDER "/images", 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "make folder " FOLDER "/images");
	return 0;
}

static int run_child(
        const struct sup_config *own, const char *data, struct result *result, struct error *err)
{
	int status;
	fflush(NULL);
	pid_t pid = fork();
	if (pid < 0)
		return error_errno(err, errno, "fork");
	if (pid == 0)
		child_run(own, data, result);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return error_errno(err, errno, "waitpid");
	if (!result->done)
		return error_set(err, ERR_INTERNAL, "the self-test's process died");
	if (result->code < 0 && err)
		*err = result->err;
	return result->code;
}

int supervisor_selftest(
        const struct sup_config *cfg, struct sup_probe rows[SUP_N_PROBES], struct error *err)
{
	static struct sup_config own;
	sigset_t ending, old;
	int r = config_alone(cfg, &own, err);
	if (r < 0)
		return r;
	_cleanup_close_ int data = open(cfg->data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (data < 0)
		return error_errno(err, errno, "open data folder %s", cfg->data);
	struct result *result = mmap(
	        NULL, sizeof(*result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (result == MAP_FAILED)
		return error_errno(err, errno, "mmap");
	sigemptyset(&ending);
	sigaddset(&ending, SIGINT);
	sigaddset(&ending, SIGTERM);
	sigaddset(&ending, SIGHUP);
	sigprocmask(SIG_BLOCK, &ending, &old);
	r = make_folder(data, err);
	if (r == 0)
		r = run_child(&own, cfg->data, result, err);
	/* Unless another self-test is at work in it. */
	if (r != -ERR_CONFLICT)
		remove_folder(data);
	memcpy(rows, result->rows, sizeof(result->rows));
	munmap(result, sizeof(*result));
	sigprocmask(SIG_SETMASK, &old, NULL);
	return r;
}
