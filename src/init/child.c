/*
 * The order matters. The leaf first, so that a kill finds the child. Then user names, while init's
 * own id still holds (the child is not dumpable until exec: nobody inside can trace it). Then every
 * descriptor but five is closed, and the fifth, home, BEFORE a path to the working directory is
 * followed: no path through /proc/self/fd leads out. Ids and capabilities, then what the guest may
 * see fail (directory, filter), then exec.
 */
#include "init/child.h"

#include "init/confine.h"
#include "init/procfiles.h"
#include "init/sys.h"
#include "init/user.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define REPORT_FD    3
#define HOME_FD      4
#define NOFILE_SOFT  4096
#define NOFILE_HARD  65536
#define OOM_SCORE    "500" /* v1: the kernel picks a command before init */
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static int report_fd;

_Noreturn static void fail(const char *step, int errnum)
{
	struct command_report r = {.errnum = errnum};

	strncpy(r.step, step, sizeof r.step - 1);
	(void)!write(report_fd, &r, sizeof r);
	_exit(127);
}

static void try(int rc, const char *step)
{
	if (rc < 0)
		fail(step, errno);
}

/*
 * The files of a process that may not be dumped belong to root (the host's, where the supervisor
 * made init's image unreadable), so for the length of one write this one may be: it still has
 * init's id, which no guest can have.
 */
static void set_oom_score(void)
{
	int fd;

	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	try(fd, "oom score");
	try((int)write(fd, OOM_SCORE, strlen(OOM_SCORE)), "oom score");
	close(fd);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

static void set_descriptors(const struct command *c, int home, const struct child_pipes *pipes)
{
	int in = c->standard_input;

	if (in < 0)
		in = open("/dev/null", O_RDONLY | O_CLOEXEC | O_NOCTTY);
	try(in, "stdin");
	/* All of these are above REPORT_FD: init holds the four numbers below for itself. */
	try(dup2(in, STDIN_FILENO), "stdin");
	try(dup2(pipes->output, STDOUT_FILENO), "stdout");
	try(dup2(pipes->error, STDERR_FILENO), "stderr");
	try(dup3(pipes->report, REPORT_FD, O_CLOEXEC), "report");
	report_fd = REPORT_FD;
	if (home != HOME_FD)
		try(dup3(home, HOME_FD, O_CLOEXEC), "home");
	try(sys_close_range(HOME_FD + 1, ~0u), "close_range");
}

static void set_identity(const struct user *u)
{
	const uint32_t all = confine_guest_capabilities, caps = u->uid == 0 ? all : 0;

	/* The pipes become the user's, or it could not open /dev/stdout and /dev/stderr. */
	try(sys_set_capabilities(all, all), "user");
	try(fchown(STDOUT_FILENO, u->uid, u->gid), "user");
	try(fchown(STDERR_FILENO, u->uid, u->gid), "user");
	try((int)syscall(SYS_setgroups, u->n_groups, u->groups), "user");
	try((int)syscall(SYS_setresgid, u->gid, u->gid, u->gid), "user");
	try((int)syscall(SYS_setresuid, u->uid, u->uid, u->uid), "user");
	try(sys_set_capabilities(caps, caps), "user");
}

static void set_limits(void)
{
	struct rlimit r;

	try(getrlimit(RLIMIT_NOFILE, &r), "limits");
	r.rlim_max = r.rlim_max < NOFILE_HARD ? r.rlim_max : NOFILE_HARD;
	r.rlim_cur = r.rlim_max < NOFILE_SOFT ? r.rlim_max : NOFILE_SOFT;
	try(setrlimit(RLIMIT_NOFILE, &r), "limits");
}

/*
 * As many processors as the container has, so that nproc and thread pools see its share and not the
 * host's: the one that the kernel has just chosen for this child, as the least busy, and those
 * after it.
 */
static void set_processors(void)
{
	uint64_t have[16] = {0}, want[16] = {0};
	long bytes = syscall(SYS_sched_getaffinity, 0, sizeof have, have);
	uint32_t all[1024], n = 0, here = 0, first = 0, need = procfiles_processors();

	syscall(SYS_getcpu, &here, NULL, NULL);
	for (uint32_t i = 0; bytes > 0 && i < (uint32_t)bytes * 8; i++) {
		if (!(have[i / 64] >> (i % 64) & 1))
			continue;
		first = i == here ? n : first;
		all[n++] = i;
	}
	if (n <= need)
		return;
	for (uint32_t i = 0; i < need; i++) {
		uint32_t cpu = all[(first + i) % n];

		want[cpu / 64] |= 1ULL << (cpu % 64);
	}
	try((int)syscall(SYS_sched_setaffinity, 0, sizeof want, want), "processors");
}

/*
 * Enters the working directory, and refuses one that is not within the root. Home is entered by its
 * descriptor: commands go on where the guest has renamed /workspace.
 */
static void set_directory(const char *path)
{
	static char real[PATH_MAX];
	bool home = !*path || !strcmp(path, "/workspace/home");

	if (home)
		try(fchdir(HOME_FD), "cwd");
	close(HOME_FD);
	if (!home)
		try(chdir(path), "cwd");
	/* The kernel says "(unreachable)" of a directory outside the root. */
	if (syscall(SYS_getcwd, real, sizeof real) > 0 && real[0] != '/')
		fail("cwd", EACCES);
}

static const char *get_path(char *const *envp)
{
	for (; *envp; envp++)
		if (!strncmp(*envp, "PATH=", 5))
			return *envp + 5;
	return DEFAULT_PATH;
}

/* exec; a file without a known format is a script for sh, as with execvp(). */
static void exec_file(const char *file, char *const *argv, char *const *envp)
{
	static char *script[INIT_MAX_ARGS + 3];
	int n = 0;

	execve(file, argv, envp);
	if (errno != ENOEXEC)
		return;
	script[n++] = argv[0];
	script[n++] = (char *)(uintptr_t)file;
	for (int i = 1; argv[i]; i++)
		script[n++] = argv[i];
	execve("/bin/sh", script, envp);
}

_Noreturn static void exec_argv(char *const *argv, char *const *envp)
{
	static char file[PATH_MAX];
	const char *path = get_path(envp);
	size_t name = strlen(argv[0]);
	int errnum = ENOENT;

	if (!name || strchr(argv[0], '/')) {
		exec_file(argv[0], argv, envp);
		fail("exec", errno);
	}
	while (path) {
		size_t len = strcspn(path, ":");

		if (len + name + 2 <= sizeof file) {
			memcpy(file, path, len);
			file[len] = '/';
			memcpy(file + len + (len > 0), argv[0], name + 1);
			exec_file(file, argv, envp);
			if (errno == EACCES)
				errnum = EACCES;
			else if (errno != ENOENT && errno != ENOTDIR)
				fail("exec", errno);
		}
		path = path[len] ? path + len + 1 : NULL;
	}
	fail("exec", errnum);
}

_Noreturn static void exec_shell(char *script, char *const *envp)
{
	static char SHELLS[][20] = {"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh"};
	static char option[] = "-c";

	for (size_t i = 0; i < sizeof SHELLS / sizeof *SHELLS; i++) {
		char *const argv[] = {strrchr(SHELLS[i], '/') + 1, option, script, NULL};

		execve(SHELLS[i], argv, envp);
		if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
			break;
	}
	fail("exec", errno);
}

_Noreturn void child_run(
        const struct command *c, const struct command_setup *setup, const struct child_pipes *pipes)
{
	static char *argv[INIT_MAX_ARGS + 1], *envp[INIT_MAX_ENV + 1];
	static struct user user;
	char *at = c->payload;
	sigset_t none;
	int rc;

	report_fd = pipes->report;
	errno = -leaf_enter(c->leaf);
	try(errno ? -1 : 0, "cgroup");
	for (uint32_t i = 0; i < c->argc; i++, at += strlen(at) + 1)
		argv[i] = at;
	for (uint32_t i = 0; i < c->envc; i++, at += strlen(at) + 1)
		envp[i] = at;

	if (setup->cgroups != INIT_CG_V2)
		set_oom_score();
	rc = user_resolve(at + strlen(at) + 1, &user);
	if (rc == 0 && user.uid == setup->init_uid)
		rc = -EPERM;
	if (rc < 0)
		fail("user", -rc);
	set_descriptors(c, setup->home, pipes);
	set_limits();
	set_processors();
	umask(022);
	setsid();
	set_identity(&user);
	set_directory(at);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	rc = confine_guest();
	if (rc < 0)
		fail("seccomp", -rc);
	if (c->flags & INIT_RUN_SHELL)
		exec_shell(argv[0], envp);
	exec_argv(argv, envp);
}
