#include "supervisor/child.h"

#include "base/str.h"
#include "proto/init.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

int child_seal(const char *name, const unsigned char *bytes, size_t len)
{
	_cleanup_close_ int fd =
	        (int)syscall(SYS_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	if (fd < 0 && errno == EINVAL) /* before 6.3 all memfds may be executed */
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	for (size_t at = 0; at < len;) {
		ssize_t n = write(fd, bytes + at, len - at);
		if (n < 0 && errno != EINTR)
			return -errno;
		at += n > 0 ? (size_t)n : 0;
	}
	/* Executable and not readable: else root of the sandbox, to whom it is mapped, owns
	 * /proc/1's files. */
	if (fchmod(fd, 0711) < 0 ||
	        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) <
	                0)
		return -errno;
	return steal_fd(fd);
}

/* Control, what else it gets, and the program to 3, 4, …; all others are closed. Returns where the
 * program is now. */
static int move_descriptors(const struct child *c)
{
	int from[3], n = 0;
	from[n++] = c->control;
	if (c->extra >= 0)
		from[n++] = c->extra;
	from[n++] = c->image;
	for (int i = 0; i < n; i++) /* 10 and up keep clear of what is moved */
		if ((from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 10)) < 0)
			_exit(107);
	for (int i = 0; i < n; i++) {
		int to = INIT_CONTROL_FD + i;
		bool last = i == n - 1;
		if ((last ? dup3(from[i], to, O_CLOEXEC) : dup2(from[i], to)) < 0)
			_exit(107);
	}
	if (syscall(SYS_close_range, INIT_CONTROL_FD + n, ~0U, 0) < 0 ||
	        syscall(SYS_close_range, 0, 2, 0) < 0)
		_exit(108);
	return INIT_CONTROL_FD + n - 1;
}

/* In the child, which shares nothing with us but read-only copies; every failure is an exit code
 * that says which step it was. */
static _Noreturn void child_run(struct child *c)
{
	char go;
	sigset_t none;
	/* Away from our terminal, which /dev/tty would be; and with no signal ignored, which exec
	 * keeps. */
	setsid();
	/* Ends it with us, if we are there by now; a change of ids takes it away. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		_exit(106);
	for (int i = 1; i < NSIG; i++)
		signal(i, SIG_DFL);
	for (int i = 0; i < c->n_before; i++)
		if (write(c->attach[i], "0", 1) != 1)
			_exit(101);
	if (unshare(CLONE_NEWCGROUP | c->namespaces) < 0)
		_exit(102);
	for (int i = c->n_before; i < c->n_attach; i++)
		if (write(c->attach[i], "0", 1) != 1)
			_exit(103);
	/* Before the wait: it had copies of our ends of sockets, its own and those of others.
	 * Without them our end is the socket's end, at whatever moment we died. */
	int image = move_descriptors(c);
	if (c->report && send(INIT_CONTROL_FD, "e", 1, MSG_NOSIGNAL) != 1)
		_exit(103);
	if (recv(INIT_CONTROL_FD, &go, 1, 0) != 1)
		_exit(104);
	if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0 || setgroups(0, NULL) < 0)
		_exit(105);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		_exit(106);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	char *argv[] = {c->title, NULL}, *env[] = {NULL};
	syscall(SYS_execveat, image, "", argv, env, AT_EMPTY_PATH);
	_exit(109);
}

int child_clone(const struct child *c, int group, uint64_t flags, pid_t *ret_pid, int *ret_pidfd,
        struct fail *f)
{
	struct child copy = *c;
	struct clone_args args = {
	        .flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_PIDFD | flags,
	        .pidfd = (uintptr_t)ret_pidfd,
	        .exit_signal = SIGCHLD,
	};
	if (group >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)group;
	}
	int r = sys_make_for(c->owner);
	if (r < 0)
		return fail_set(f, SUP_E_SYSTEM, r, "change user");
	long pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0)
		child_run(&copy);
	int errnum = errno;
	if ((r = sys_make_for(0)) < 0)
		return fail_set(f, SUP_E_SYSTEM, r, "change back");
	if (pid < 0)
		return fail_set(f, SUP_E_SYSTEM, errnum, "clone");
	*ret_pid = (pid_t)pid;
	return 0;
}
