/*
 * init, pid 1 of a sandbox (proto/init.h says what it is told and what it answers).
 *
 * Theory of operation. One process, one thread. The supervisor's child execs it in new namespaces,
 * as uid 0 of the user namespace, with the control socket as descriptor 3. Set-up is a straight
 * line that may block: SETUP, ROOT, PREPARED, CLAIM, READY. From then on there is one loop that
 * never blocks: the control socket brings channels, channels bring commands (command.c), SIGCHLD
 * brings deaths. As pid 1 it reaps whoever is left over. It trusts the supervisor and the gateway
 * to be well-meaning, not to be right; the guest it does not trust at all, and shares nothing with
 * but a wait status.
 *
 * It ends when the control socket does, and the kernel ends everything inside with it.
 */
#include "init/channel.h"
#include "init/command.h"
#include "init/confine.h"
#include "init/discard.h"
#include "init/loop.h"
#include "init/message.h"
#include "init/procfiles.h"
#include "init/setup.h"
#include "init/warm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_EVENTS 32
#define MAX_REAPED 256 /* deaths before the sockets get a turn */

static struct {
	int epoll, signals;
	bool more_to_reap;
} loop;

/* ---- loop ---- */

int loop_open(void)
{
	loop.epoll = epoll_create1(EPOLL_CLOEXEC);
	return loop.epoll < 0 ? -errno : 0;
}

int loop_add(int fd, enum loop_kind kind, uint32_t index)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uint64_t)kind << 32 | index};

	return epoll_ctl(loop.epoll, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

void loop_close(int fd)
{
	epoll_ctl(loop.epoll, EPOLL_CTL_DEL, fd, NULL);
	close(fd);
}

uint64_t loop_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void reap(void)
{
	loop.more_to_reap = true;
	for (int i = 0; i < MAX_REAPED; i++) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid <= 0) {
			loop.more_to_reap = false;
			return;
		}
		command_reaped(pid, status);
	}
}

static void control_ready(void)
{
	static struct message m;
	int rc = message_receive(INIT_CONTROL_FD, MSG_DONTWAIT, &m);

	if (rc == -EAGAIN)
		return;
	if (rc <= 0 || message_op(&m) != INIT_CHANNEL ||
	        !message_as(&m, sizeof(struct init_header), 1))
		_exit(rc == 0 ? 0 : 1);
	(void)channel_open(message_take_fd(&m, 0));
}

static void dispatch(const struct epoll_event *e)
{
	struct signalfd_siginfo info[8];
	uint32_t index = (uint32_t)e->data.u64;

	switch ((enum loop_kind)(e->data.u64 >> 32)) {
	case LOOP_CONTROL:
		control_ready();
		break;
	case LOOP_SIGNALS:
		(void)!read(loop.signals, info, sizeof info);
		loop.more_to_reap = true;
		break;
	case LOOP_CHANNEL:
		channel_ready(index);
		break;
	case LOOP_REPORT:
		command_report_ready(index);
		break;
	case LOOP_DISCARD:
		discard_ready(index);
		break;
	}
}

_Noreturn void loop_run(void)
{
	struct epoll_event events[MAX_EVENTS];

	for (;;) {
		int timeout, n;

		channel_sweep();
		timeout = command_tick();
		channel_sweep();
		n = epoll_wait(loop.epoll, events, MAX_EVENTS, loop.more_to_reap ? 0 : timeout);
		for (int i = 0; i < n; i++)
			dispatch(&events[i]);
		if (loop.more_to_reap)
			reap();
	}
}

/* ---- set-up ---- */

_Noreturn static void broken(const char *step, int errnum)
{
	struct init_broken m = {.errnum = (uint32_t)errnum};

	snprintf(m.step, sizeof m.step, "%s", step);
	(void)message_send(INIT_CONTROL_FD, INIT_BROKEN, &m, sizeof m, NULL, 0);
	_exit(1);
}

static void answer(int op)
{
	struct init_header h;

	if (message_send(INIT_CONTROL_FD, op, &h, sizeof h, NULL, 0) < 0)
		_exit(1);
}

/* Waits for the one message that may come now. */
static const void *expect(struct message *m, int op, size_t size, int n_fds)
{
	const void *structure;
	int rc = message_receive(INIT_CONTROL_FD, 0, m);

	if (rc == 0)
		_exit(0);
	structure = rc > 0 && message_op(m) == op ? message_as(m, size, n_fds) : NULL;
	if (!structure)
		broken("message", EBADMSG);
	return structure;
}

static bool hostname_is_sound(const char name[static 64])
{
	size_t len = strnlen(name, 64);

	return len > 0 && len < 64 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
}

static bool claim_is_sound(const struct init_claim *c)
{
	return c->tmp_mib >= 1 && c->tmp_mib <= 1u << 20 && c->shm_mib >= 1 &&
	       c->shm_mib <= 1u << 20 && c->memory_mib >= 1 && c->memory_mib <= 1u << 24 &&
	       c->cpu_milli >= 1 && c->cpu_milli <= 1024000 && hostname_is_sound(c->hostname);
}

/* Descriptors that are open from exec on must not be among those that init counts on. */
static void fill_low_descriptors(void)
{
	int fd = open("/", O_PATH | O_CLOEXEC);

	while (fd >= 0 && fd < 3)
		fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (fd > INIT_CONTROL_FD)
		close(fd);
}

/* What whoever started the server ignored would stay ignored in every command: exec keeps it. By the
 * raw call, since a libc keeps signals 32 to 34 to itself. */
static void default_signals(void)
{
	static const struct {
		unsigned long handler, flags, restorer, mask;
	} fresh;

	for (int i = 1; i <= 64; i++)
		syscall(SYS_rt_sigaction, i, &fresh, NULL, sizeof fresh.mask);
}

static void open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_SETMASK, &set, NULL);
	loop.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (loop.signals < 0)
		broken("signalfd", errno);
}

/* What stays open from here on; everything else that got in is closed. */
static void close_others(const struct command_setup *s, int run)
{
	int keep[PROCFILES_MAX_KEPT + 8];
	int n = procfiles_kept(keep);
	int rc;

	keep[n++] = INIT_CONTROL_FD;
	keep[n++] = run;
	keep[n++] = leaf_kept();
	keep[n++] = s->oom;
	keep[n++] = s->home;
	keep[n++] = loop.epoll;
	keep[n++] = loop.signals;
	rc = confine_descriptors(keep, n);
	if (rc < 0)
		broken("close_range", -rc);
}

/* Up to PREPARED. Returns the `run` directory. */
static int prepare(struct message *m, struct command_setup *commands)
{
	const struct init_setup *s = expect(m, INIT_SETUP, sizeof *s, 3);
	const char *step = "";
	int run, rc;

	if (s->cgroups < INIT_CG_V2 || s->cgroups > INIT_CG_V1 || s->init_uid < 1 ||
	        s->init_uid > 65534)
		broken("message", EINVAL);
	commands->cgroups = (enum init_cgroups)s->cgroups;
	commands->init_uid = s->init_uid;
	run = message_take_fd(m, 1);
	commands->oom = message_take_fd(m, 2);
	rc = setup_prepare(message_take_fd(m, 0), run, commands->oom, &step);
	if (rc < 0)
		broken(step, -rc);
	expect(m, INIT_ROOT, sizeof(struct init_header), 1);
	rc = setup_root(message_take_fd(m, 0), &step);
	if (rc < 0)
		broken(step, -rc);
	default_signals();
	open_signals();
	rc = loop_open();
	if (rc == 0)
		rc = loop_add(INIT_CONTROL_FD, LOOP_CONTROL, 0);
	if (rc == 0)
		rc = loop_add(loop.signals, LOOP_SIGNALS, 0);
	if (rc < 0)
		broken("epoll", -rc);
	rc = leaf_open(run, commands->cgroups, commands->init_uid);
	if (rc < 0)
		broken("leaf", -rc);
	return run;
}

int main(void)
{
	static struct message m;
	const char *step = "";
	struct command_setup commands = {0};
	const struct init_claim *c;
	int run, rc;

	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_NAME, "brig: init", 0, 0, 0);
	umask(0);
	fill_low_descriptors();
	fcntl(INIT_CONTROL_FD, F_SETFD, FD_CLOEXEC);
	if (geteuid() != 0 || getpid() != 1)
		broken("identity", EPERM);
	run = prepare(&m, &commands);
	answer(INIT_PREPARED);
	warm_names(INIT_CONTROL_FD);

	c = expect(&m, INIT_CLAIM, sizeof *c, 1);
	if (!claim_is_sound(c))
		broken("message", EINVAL);
	procfiles_claim(c->memory_mib, c->cpu_milli);
	rc = setup_claim(c, message_take_fd(&m, 0), &commands.home, &step);
	if (rc < 0)
		broken(step, -rc);
	close_others(&commands, run);
	rc = confine_init(commands.init_uid, run, &step);
	if (rc < 0)
		broken(step, -rc);
	command_open(&commands);
	umask(022);
	answer(INIT_READY);
	loop_run();
}
