/*
 * Theory of operation
 *
 * The sockets are bound here, before anything is given up, and stay open here, so that a gateway
 * that died can be started again on the same one while its clients wait in the queue. The first
 * socket is bound without SO_REUSEPORT: a second brig that is set to the same address then fails,
 * and does not silently take half of the clients.
 *
 * A gateway's process: descriptors are moved out of the way, put at their numbers, all others
 * closed; then privileges are dropped and this very program is executed by descriptor, since the
 * gateway's user need not be able to reach its path.
 */
#include "cli/spawn.h"

#include "base/str.h"
#include "cli/drop.h"
#include "cli/folder.h"
#include "gateway/gateway.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- sockets ---- */

struct address {
	struct sockaddr_storage sa;
	socklen_t len;
};

static bool address_of(const char *host, uint16_t port, struct address *a)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)&a->sa;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a->sa;

	memset(a, 0, sizeof(*a));
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		a->len = sizeof(*v4);
		return true;
	}
	if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		a->len = sizeof(*v6);
		return true;
	}
	return false;
}

static int bind_one(const struct address *a, bool first, bool shared)
{
	int on = 1, fd, saved;

	fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	        (shared && !first &&
	                setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) < 0) ||
	        bind(fd, (const struct sockaddr *)&a->sa, a->len) < 0 ||
	        (shared && first &&
	                setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) < 0)) {
		saved = errno;
		close(fd);
		return -saved;
	}
	return fd;
}

int spawn_bind(
        struct spawn *s, const char *host, uint16_t port, uint16_t *ret_port, struct error *err)
{
	struct address a, bound = {.len = sizeof(bound.sa)};
	uint32_t i;
	int fd;

	for (i = 0; i < s->workers; i++) {
		if (!address_of(host, port, &a))
			return error_set(err, ERR_INVALID, "%.60s is no address", host);
		fd = bind_one(&a, i == 0, s->workers > 1);
		if (fd == -EADDRINUSE)
			return error_set(err, ERR_IO,
			        "%s port %u is in use; choose another with --listen", host, port);
		if (fd < 0)
			return error_errno(err, -fd, "%s port %u", host, port);
		s->listeners[i] = fd;
		if (i == 0 && getsockname(fd, (struct sockaddr *)&bound.sa, &bound.len) < 0)
			return error_errno(err, errno, "getsockname");
		/* Port 0 became a number that the other workers share. */
		if (bound.sa.ss_family == AF_INET6)
			port = ntohs(((struct sockaddr_in6 *)&bound.sa)->sin6_port);
		else
			port = ntohs(((struct sockaddr_in *)&bound.sa)->sin_port);
	}
	*ret_port = port;
	return 0;
}

int spawn_listen(struct spawn *s, struct error *err)
{
	uint32_t i;

	for (i = 0; i < s->workers; i++)
		if (listen(s->listeners[i], 4096) < 0)
			return error_errno(err, errno, "listen");
	return 0;
}

/* ---- a gateway ---- */

/* Puts fds[i] at descriptor 3 + i, in whatever numbers they were. */
static int place_descriptors(int *fds, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 64);
		if (fds[i] < 0)
			return -errno;
	}
	for (i = 0; i < n; i++) {
		if (dup2(fds[i], 3 + i) < 0)
			return -errno;
	}
	return 0;
}

static void reset_signals(void)
{
	sigset_t none;
	int i;

	for (i = 1; i < NSIG; i++)
		signal(i, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* NAME=VALUE as it is here; false where it is not, or too long. */
static bool variable_keep(const char *name, char *out, size_t size)
{
	const char *value = getenv(name);

	if (!value || strlen(value) + strlen(name) + 2 > size)
		return false;
	str_format(out, size, "%s=%s", name, value);
	return true;
}

/* Variables that a gateway may need: where certificates are, and what sanitizers are told. */
static void keep_variables(char *env[], size_t max)
{
	static const char *const names[] = {"SSL_CERT_FILE", "SSL_CERT_DIR", "ASAN_OPTIONS",
	        "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS"};
	static char kept[sizeof(names) / sizeof(names[0])][1024];
	size_t i, n = 0;

	while (env[n])
		n++;
	for (i = 0; i < sizeof(names) / sizeof(names[0]) && n + 1 < max; i++) {
		if (variable_keep(names[i], kept[i], sizeof(kept[i])))
			env[n++] = kept[i];
	}
}

/* Drops what a child of the supervisor has, and becomes this program under another title. fds[0 …
 * n - 1] come to stand at 3 and above, the last of them is the program. */
_Noreturn static void exec_dropped(
        const char *what, char *title, char *env[], int *fds, int n, uid_t uid, pid_t parent)
{
	char *argv[] = {title, NULL};
	const char *step = "descriptors";
	struct rlimit files;
	int null, r, exe = 3 + n - 1;

	reset_signals();
	setsid(); /* Ctrl-C is for the supervisor, which tells us in its own way */
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	r = null < 0 || dup2(null, 0) < 0 ? -errno : place_descriptors(fds, n);
	if (r == 0 && syscall(SYS_close_range, exe + 1, ~0U, 0) < 0)
		r = -errno;
	if (r == 0 && fcntl(exe, F_SETFD, FD_CLOEXEC) < 0)
		r = -errno;
	if (r == 0 && getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (r == 0) {
		step = "giving up privileges";
		r = drop_privileges(uid);
	}
	/* After the change of user, which clears it. */
	if (r == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent))
		_exit(1);
	if (r == 0) {
		step = "exec";
		syscall(SYS_execveat, exe, "", argv, env, 0x1000 /* AT_EMPTY_PATH */);
		r = -errno;
	}
	fprintf(stderr, "brig: starting %s: %s: %s\n", what, step, strerror(-r));
	_exit(127);
}

/* It parses what containers send: it is given its control socket and no secret. */
_Noreturn static void egress_exec(const struct spawn *s, int sock, pid_t parent)
{
	char title[] = SPAWN_EGRESS_TITLE, path[] = "PATH=/usr/bin:/bin", lang[] = "LANG=C.UTF-8";
	char port[48], limits[200];
	char *env[16] = {path, lang, port, limits, NULL};
	const struct egress_limits *l = s->egress;
	int fds[] = {sock, s->exe};

	str_format(port, sizeof(port), "BRIG_PORT=%u", s->port);
	str_format(limits, sizeof(limits), "BRIG_EGRESS_LIMITS=%u %u %u %u %u %" PRIu64,
	        l->connections, l->connections_per_s, l->questions_per_s, l->idle_ms, l->total_ms,
	        l->bytes);
	keep_variables(env, sizeof(env) / sizeof(env[0]));
	exec_dropped("egress", title, env, fds, 2, s->egress_uid, parent);
}

_Noreturn static void gateway_exec(const struct spawn *s, uint32_t index, int sock, pid_t parent)
{
	char title[] = SPAWN_TITLE, path[] = "PATH=/usr/bin:/bin", lang[] = "LANG=C.UTF-8";
	char number[48], workers[48], data[4200];
	char *env[16] = {path, lang, number, workers, data, NULL};
	int fds[] = {sock, s->listeners[index], s->settings, s->ready, s->shared, s->exe};

	str_format(number, sizeof(number), "BRIG_GATEWAY=%u", index);
	str_format(workers, sizeof(workers), "BRIG_WORKERS=%u", s->workers);
	str_format(data, sizeof(data), "BRIG_STATE=%s/gateway", s->data);
	keep_variables(env, sizeof(env) / sizeof(env[0]));
	exec_dropped("a gateway", title, env, fds, 6, s->uid, parent);
}

int spawn_shared_memory(void)
{
	int fd = memfd_create("shared", MFD_CLOEXEC | MFD_ALLOW_SEALING), saved;

	if (fd < 0 ||
	        (ftruncate(fd, GATEWAY_SHARED_SIZE) == 0 &&
	                fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW) == 0))
		return fd;
	saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

pid_t spawn_gateway(void *ctx, uint32_t index, int sock, struct error *err)
{
	const struct spawn *s = ctx;
	pid_t parent = getpid(), pid;

	if (index != SUP_SPAWN_EGRESS && index >= s->workers)
		return error_set(err, ERR_INTERNAL, "there is no gateway %u", index);
	pid = fork();
	if (pid < 0)
		return error_errno(err, errno, "fork");
	if (pid == 0 && index == SUP_SPAWN_EGRESS)
		egress_exec(s, sock, parent);
	if (pid == 0)
		gateway_exec(s, index, sock, parent);
	return pid;
}

/* ---- the announcer ---- */

/* True once `workers` bytes came; false when the server's process is gone first. */
static bool wait_ready(int ready, int life, uint32_t workers)
{
	struct pollfd p[2] = {{.fd = ready, .events = POLLIN}, {.fd = life, .events = POLLIN}};
	char bytes[SUP_MAX_GATEWAYS];
	uint32_t got = 0;
	ssize_t n;

	while (got < workers) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return false;
		if (p[0].revents) {
			n = read(ready, bytes, sizeof(bytes));
			if (n <= 0)
				return false;
			got += (uint32_t)n;
		} else if (p[1].revents) {
			return false;
		}
	}
	return true;
}

/* fds: ready, life, folder. Nothing else of ours stays open here: least of all the listening
 * sockets. */
_Noreturn static void announce(
        const struct spawn *s, int *fds, const char *url, const char *local_url)
{
	char line[300];
	int r;

	prctl(PR_SET_NAME, "brig: ready", 0, 0, 0);
	if (place_descriptors(fds, 3) < 0 || syscall(SYS_close_range, 6, ~0U, 0) < 0)
		_exit(1);
	if (!wait_ready(3, 4, s->workers))
		_exit(0);
	r = folder_write_url(5, local_url);
	if (r < 0)
		fprintf(stderr, "brig: the file `url` of the data folder: %s\n", strerror(-r));
	str_format(line, sizeof(line), "ready %s\n", url);
	_exit(write(STDOUT_FILENO, line, strlen(line)) < 0);
}

int spawn_announcer(const struct spawn *s, int ready, int folder, const char *url,
        const char *local_url, struct error *err)
{
	int life[2];
	pid_t pid;

	/* Our end stays open until this process ends. */
	if (pipe2(life, O_CLOEXEC) < 0)
		return error_errno(err, errno, "pipe");
	pid = fork();
	if (pid < 0)
		return error_errno(err, errno, "fork");
	if (pid == 0) {
		/* Twice, so that the supervisor has no child that it did not start. */
		pid = fork();
		if (pid != 0)
			_exit(pid < 0);
		announce(s, (int[]){ready, life[0], folder}, url, local_url);
	}
	close(life[0]);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}
