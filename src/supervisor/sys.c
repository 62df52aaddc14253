#include "supervisor/sys.h"

#include "base/str.h"
#include "packet/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int fail_set(struct fail *f, uint32_t why, int errnum, const char *step)
{
	*f = (struct fail){.why = why, .errnum = errnum < 0 ? -errnum : errnum, .step = step};
	return -1;
}

void sys_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

int sys_write_at(int dir, const char *name, const char *text)
{
	_cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		return -errno;
	return 0;
}

int sys_write_u64(int dir, const char *name, uint64_t number)
{
	char text[24];
	str_format(text, sizeof(text), "%llu", (unsigned long long)number);
	return sys_write_at(dir, name, text);
}

ssize_t sys_read_at(int dir, const char *name, char *buf, size_t size)
{
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	size_t len = 0;
	while (len < size - 1) {
		ssize_t n = read(fd, buf + len, size - 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		len += (size_t)n;
	}
	buf[len] = '\0';
	return (ssize_t)len;
}

int sys_send(int sock, const void *data, size_t len, const int *fds, size_t n_fds)
{
	return packet_send(sock, data, len, NULL, 0, fds, n_fds);
}

int sys_map_ids(pid_t pid, uint32_t inside, uint32_t outside)
{
	char name[64], map[64];
	str_format(map, sizeof(map), "%u %u 65536\n", inside, outside);
	str_format(name, sizeof(name), "/proc/%d/uid_map", (int)pid);
	int r = sys_write_at(AT_FDCWD, name, map);
	if (r < 0)
		return r;
	str_format(name, sizeof(name), "/proc/%d/gid_map", (int)pid);
	return sys_write_at(AT_FDCWD, name, map);
}

/*
 * By the system call, since libc's function would do the same to all threads. Changing the effective
 * id takes the effective capabilities; the file system id of root gives those for files back, which
 * entering a control group needs, and coming back gives all.
 */
int sys_make_for(uid_t user)
{
	if (syscall(SYS_setresuid, -1, user, -1) < 0)
		return -errno;
	syscall(SYS_setfsuid, 0);
	return 0;
}

/* The process that a namespace is made with; it waits to be killed. It shares the supervisor's
 * memory (copying page tables would cost more than all the rest) and so must touch nothing. */
static int hold_still(void *arg)
{
	/* Else a supervisor that is killed at this moment would leave it behind for ever, with all its descriptors open:
	 * no init and no gateway would see that it has gone. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (getppid() == (pid_t)(intptr_t)arg)
		pause();
	return 0;
}

int sys_userns(uint32_t inside, uint32_t outside)
{
	static char stack[16384] __attribute__((aligned(16)));
	pid_t pid = clone(hold_still, stack + sizeof(stack), CLONE_VM | CLONE_NEWUSER,
	        (void *)(intptr_t)getpid());
	if (pid < 0)
		return -errno;
	char name[64];
	str_format(name, sizeof(name), "/proc/%d/ns/user", (int)pid);
	int fd = sys_map_ids(pid, inside, outside);
	if (fd == 0) {
		fd = open(name, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			fd = -errno;
	}
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
		;
	return fd;
}

int sys_run(const char *const argv[])
{
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		static char *env[] = {NULL};
		sigset_t none;
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
			_exit(126);
		union {
			const char *const *c;
			char *const *v;
		} args = {.c = argv};
		execve(argv[0], args.v, env);
		_exit(127);
	}
	int status;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return -ENOENT;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}
