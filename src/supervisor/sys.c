#include "supervisor/sys.h"

#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
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
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control = {0};
	union {
		const void *c;
		void *v;
	} base = {.c = data};
	struct iovec iov = {.iov_base = base.v, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	if (n_fds > 4)
		return -EINVAL;
	if (n_fds) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	for (;;) {
		ssize_t n = sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n >= 0)
			return 0;
		if (errno != EINTR)
			return -errno;
	}
}

ssize_t sys_recv(int sock, void *buf, size_t size, int fds[4], size_t *ret_n)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = buf, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov,
	        .msg_iovlen = 1,
	        .msg_control = control.bytes,
	        .msg_controllen = sizeof(control.bytes)};
	*ret_n = 0;
	ssize_t n;
	do
		n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t got = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(c), got * sizeof(int));
		*ret_n = got;
	}
	if (msg.msg_flags & MSG_CTRUNC) {
		for (size_t i = 0; i < *ret_n; i++)
			close(fds[i]);
		*ret_n = 5;
	}
	return n;
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

/* The process that a namespace is made with; it waits to be killed. It shares the supervisor's
 * memory (copying page tables would cost more than all the rest) and so must touch nothing. */
static int hold_still(void *arg)
{
	for (;;)
		pause();
	return 0;
}

int sys_userns(uint32_t inside, uint32_t outside)
{
	static char stack[16384] __attribute__((aligned(16)));
	pid_t pid = clone(hold_still, stack + sizeof(stack), CLONE_VM | CLONE_NEWUSER, NULL);
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
