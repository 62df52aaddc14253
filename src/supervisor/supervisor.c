/*
 * Theory of operation.
 *
 * One thread, one epoll instance: gateways' sockets, inits' control sockets, and a pipe that signal
 * handlers write to. Nothing in the loop waits for another process. What a gateway sends is checked
 * by message_check and acted on by live.c; what init sends goes to live.c.
 *
 * A gateway that breaks the protocol, or does not read what it is sent, is dropped: its socket is
 * closed, it is killed, its holds end, and it is started again. One that keeps dying ends the
 * server.
 *
 * Egress is one more child. It is told of each container with a network and given copies of the
 * sockets that we keep, so that one that died is started again and given the same: meanwhile
 * connections wait in their queues, for EGRESS_WAIT_MS at most. Between it and each gateway we put
 * a socket for its records, and know nothing of what goes over that.
 *
 * The end: the first SIGTERM or SIGINT is passed to the gateways, which let turns finish; claims go
 * on working for them. When all have ended, or grace is over, or a second signal came, what is left
 * is killed: gateways, then sandboxes, whose mounts and groups are waited for; then our own are
 * removed.
 */
#include "supervisor/supervisor.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "packet/hurry.h"
#include "proto/egress.h"
#include "supervisor/check.h"
#include "supervisor/live.h"
#include "supervisor/selftest.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUICK_DEATH_MS    10000
#define MAX_QUICK_DEATHS  5
#define END_LIMIT_MS      30000
#define SOCKET_BYTES      (1 << 20)
#define TURN_MS           5
#define EGRESS_RETRY_MS   500
#define EGRESS_BACK_MS    1000
#define EGRESS_SOURCES_MS 2000 /* between two looks at what it resolves names by */
#define EGRESS_WAIT_MS    5000 /* connections wait so long for one that is away */
/* Room for what one that was just started is told of thousands of containers. */
#define EGRESS_SOCKET_BYTES (8 << 20)
#define ID_SIGNAL           SUP_MAX_GATEWAYS /* gateways have their index as id */

struct gateway {
	pid_t pid; /* 0: not running */
	int sock;  /* -1: closed; while pid is set, it broke the protocol and is on its way out */
	uint64_t started_ms;
	uint64_t start_due_ms; /* when to start it again */
	uint32_t quick_deaths;
	bool drop; /* to be dropped by the loop */
};

struct egress_process {
	pid_t pid;
	int sock; /* -1: closed */
	uint64_t started_ms;
	uint64_t start_due_ms;
	uint32_t quick_deaths;
	uint64_t down_ms; /* since when it is not there, or was not the last time; 0: it always was
	                   */
	uint64_t sources_ms;    /* when resolv.conf and hosts were looked at */
	struct stat sources[2]; /* as it has them; all zero: it has none */
};

struct supervisor {
	const struct sup_config *cfg;
	sup_spawn_gateway_fn spawn;
	void *spawn_ctx;
	int epoll;
	int signal_pipe[2];
	sigset_t signals, old_mask;
	struct sandbox_host host;
	struct live *live;
	struct gateway gateways[SUP_MAX_GATEWAYS];
	struct egress_process egress;
	bool draining, ending;
	uint64_t drain_end_ms;
	struct error failure; /* code 0: none */
};

/* The two things a handler may know. A child that has not yet set its own handlers is not us. */
static int signal_fd = -1;
static pid_t signal_owner;

static void on_signal(int number)
{
	int saved = errno;
	char byte = (char)number;
	if (getpid() == signal_owner && write(signal_fd, &byte, 1) < 0) {
		/* A full pipe already wakes the loop. */
	}
	errno = saved;
}

static int watch(void *ctx, int fd, uint64_t id)
{
	struct supervisor *s = ctx;
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = id};
	return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &ev);
}

static void unwatch(void *ctx, int fd)
{
	struct supervisor *s = ctx;
	epoll_ctl(s->epoll, EPOLL_CTL_DEL, fd, NULL);
}

/* ---- gateways ---- */

static void gateway_send(void *ctx, uint32_t index, const void *msg, size_t len, int fd)
{
	struct supervisor *s = ctx;
	struct gateway *g = &s->gateways[index];
	if (g->sock < 0 || g->drop)
		return;
	int r = sys_send(g->sock, msg, len, &fd, fd >= 0 ? 1 : 0);
	if (r == 0)
		return;
	if (r != -EPIPE && r != -ECONNRESET)
		log_text(LOG_ERROR, "gateway_dropped", "gateway %u does not read: %s", index,
		        strerror(-r));
	g->drop = true;
}

static void gateway_send_all(void *ctx, const void *msg, size_t len)
{
	struct supervisor *s = ctx;
	for (uint32_t i = 0; i < s->cfg->gateways; i++)
		gateway_send(s, i, msg, len, -1);
}

static void gateway_close(struct supervisor *s, uint32_t index)
{
	struct gateway *g = &s->gateways[index];
	g->drop = false;
	if (g->sock < 0)
		return;
	unwatch(s, g->sock);
	hurry_close(&g->sock);
	live_gateway_gone(s->live, index);
}

/* ---- egress ---- */

/* One that does not take what it is sent has lost the thread: its successor is told everything. */
static void egress_send(struct supervisor *s, const void *msg, size_t len, const int *fds, size_t n)
{
	struct egress_process *e = &s->egress;
	int r = e->sock < 0 ? 0 : sys_send(e->sock, msg, len, fds, n);
	if (r == 0)
		return;
	if (r != -EPIPE && r != -ECONNRESET)
		log_text(LOG_ERROR, "egress_dropped", "egress does not read: %s", strerror(-r));
	sys_close(&e->sock);
	if (e->pid > 0)
		kill(e->pid, SIGKILL);
}

static void egress_add(void *ctx, uint64_t id, const int fds[LIVE_NETWORK_FDS])
{
	struct egress_add msg = {.h = {.op = EGRESS_ADD, .size = sizeof(msg)}, .id = id};
	egress_send(ctx, &msg, sizeof(msg), fds, LIVE_NETWORK_FDS);
}

static void egress_remove(void *ctx, uint64_t id)
{
	struct egress_remove msg = {.h = {.op = EGRESS_REMOVE, .size = sizeof(msg)}, .id = id};
	egress_send(ctx, &msg, sizeof(msg), NULL, 0);
}

static int source_open(const char *path, struct stat *ret)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	memset(ret, 0, sizeof(*ret));
	if (fd >= 0 && fstat(fd, ret) == 0 && S_ISREG(ret->st_mode))
		return fd;
	sys_close(&fd);
	memset(ret, 0, sizeof(*ret));
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static bool source_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Gives egress, which can open no file, what it resolves names by: when it starts, and after a
 * change. The files are passed on, not read. */
static void egress_sources(struct supervisor *s, bool changed)
{
	struct egress_header msg = {.op = EGRESS_SOURCES, .size = sizeof(msg)};
	struct egress_process *e = &s->egress;
	struct stat now[2];
	const char *paths[2] = {s->cfg->resolv_conf ? s->cfg->resolv_conf : "/etc/resolv.conf",
	        s->cfg->hosts ? s->cfg->hosts : "/etc/hosts"};
	int fds[2];
	e->sources_ms = clock_mono_ms();
	for (int i = 0; i < 2; i++) {
		fds[i] = source_open(paths[i], &now[i]);
		changed = changed || !source_same(&now[i], &e->sources[i]);
	}
	if (changed && fds[0] >= 0 && fds[1] >= 0) {
		memcpy(e->sources, now, sizeof(now));
		egress_send(s, &msg, sizeof(msg), fds, 2);
	}
	sys_close(&fds[0]);
	sys_close(&fds[1]);
}

/* Joins egress and a gateway, for records. */
static void egress_sink(struct supervisor *s, uint32_t index)
{
	struct egress_header sink = {.op = EGRESS_SINK, .size = sizeof(sink)};
	struct sup_simple records = {.h = {.op = SUP_RECORDS, .size = sizeof(records)}};
	int pair[2];
	if (s->egress.sock < 0 || s->gateways[index].sock < 0)
		return;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
		log_text(LOG_ERROR, "egress_sink", "%s", strerror(errno));
		return;
	}
	egress_send(s, &sink, sizeof(sink), &pair[0], 1);
	gateway_send(s, index, &records, sizeof(records), pair[1]);
	close(pair[0]);
	close(pair[1]);
}

/* Also where it fails: the next try is later. */
static void egress_start(struct supervisor *s)
{
	struct egress_process *e = &s->egress;
	struct error err = {0};
	int pair[2], size = EGRESS_SOCKET_BYTES;
	uint64_t now = clock_mono_ms();
	e->start_due_ms = now + EGRESS_RETRY_MS;
	e->down_ms = e->down_ms ? e->down_ms : now;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		log_text(LOG_ERROR, "egress_start", "%s", strerror(errno));
		return;
	}
	if (setsockopt(pair[0], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) < 0)
		log_text(LOG_WARN, "small_socket", "%s", strerror(errno));
	sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
	pid_t pid = s->spawn(s->spawn_ctx, SUP_SPAWN_EGRESS, pair[1], &err);
	sigprocmask(SIG_BLOCK, &s->signals, NULL);
	close(pair[1]);
	if (pid <= 0) {
		close(pair[0]);
		log_text(LOG_ERROR, "egress_start", "%s", err.text);
		return;
	}
	e->pid = pid;
	e->sock = pair[0];
	e->started_ms = now;
	egress_sources(s, true);
	for (uint32_t i = 0; i < s->cfg->gateways; i++)
		egress_sink(s, i);
	live_tell_networks(s->live);
}

static uint64_t egress_pause(const struct egress_process *e)
{
	uint32_t doubled = e->quick_deaths < 7 ? e->quick_deaths : 7;
	return doubled ? EGRESS_RETRY_MS / 2 << doubled : 0;
}

static void egress_died(struct supervisor *s, int status)
{
	struct egress_process *e = &s->egress;
	uint64_t now = clock_mono_ms();
	if (!s->draining || status != SIGKILL) /* as it is killed at the end */
		LOG(LOG_ERROR, "egress_died", LOG_N("status", status));
	e->pid = 0;
	sys_close(&e->sock);
	/* One that ends as soon as it is started was never back. */
	if (!e->down_ms || now - e->started_ms > EGRESS_BACK_MS)
		e->down_ms = now;
	/* At once where it ran for a while; one that cannot run must not take a processor. */
	e->quick_deaths = now - e->started_ms > QUICK_DEATH_MS ? 0 : e->quick_deaths + 1;
	e->start_due_ms = now + egress_pause(e);
}

/* Starts it again when that is due; while it stays away, nobody waits for it for ever. */
static void egress_tick(struct supervisor *s, uint64_t now)
{
	struct egress_process *e = &s->egress;
	if (e->pid > 0 && now - e->sources_ms >= EGRESS_SOURCES_MS)
		egress_sources(s, false);
	if (!s->cfg->egress || e->pid > 0)
		return;
	if (e->start_due_ms <= now && !s->ending)
		egress_start(s);
	if (e->pid == 0 && e->down_ms && now - e->down_ms >= EGRESS_WAIT_MS)
		live_refuse_connections(s->live);
}

static void gateways_drop(struct supervisor *s)
{
	for (uint32_t i = 0; i < s->cfg->gateways; i++) {
		struct gateway *g = &s->gateways[i];
		if (!g->drop)
			continue;
		gateway_close(s, i);
		if (g->pid > 0)
			kill(g->pid, s->draining ? SIGTERM : SIGKILL);
	}
}

static int gateway_start(struct supervisor *s, uint32_t index, struct error *err)
{
	struct gateway *g = &s->gateways[index];
	int pair[2], size = SOCKET_BYTES;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return error_errno(err, errno, "socketpair");
	for (int i = 0; i < 2; i++)
		if (setsockopt(pair[i], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) < 0)
			log_text(LOG_WARN, "small_socket", "%s", strerror(errno));
	/* Our mask is not the child's; signals that come now are noted by the handler all the same.
	 */
	sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
	pid_t pid = s->spawn(s->spawn_ctx, index, pair[1], err);
	sigprocmask(SIG_BLOCK, &s->signals, NULL);
	close(pair[1]);
	if (pid > 0 && watch(s, pair[0], index) < 0) {
		int errnum = errno;
		kill(pid, SIGKILL);
		close(pair[0]);
		return error_errno(err, errnum, "epoll");
	}
	if (pid <= 0) {
		close(pair[0]);
		return pid < 0 ? pid : error_set(err, ERR_INTERNAL, "spawn gave no process");
	}
	*g = (struct gateway){.pid = pid,
	        .sock = pair[0],
	        .started_ms = clock_mono_ms(),
	        .quick_deaths = g->quick_deaths};
	egress_sink(s, index);
	return 0;
}

static void gateway_died(struct supervisor *s, uint32_t index, int status)
{
	struct gateway *g = &s->gateways[index];
	uint64_t now = clock_mono_ms();
	g->pid = 0;
	gateway_close(s, index);
	/* At the end they are killed, and SIGTERM may find one past its handler. */
	if (!s->draining || (status != 0 && status != SIGTERM && status != SIGKILL))
		LOG(LOG_ERROR, "gateway_died", LOG_N("gateway", index), LOG_N("status", status));
	if (s->draining)
		return;
	g->quick_deaths = now - g->started_ms < QUICK_DEATH_MS ? g->quick_deaths + 1 : 0;
	g->start_due_ms = now + (g->quick_deaths ? 50ULL << g->quick_deaths : 0);
	if (g->quick_deaths < MAX_QUICK_DEATHS)
		return;
	error_set(&s->failure, ERR_UNAVAILABLE,
	        "gateway %u ended %d times within %d s of its start", index, MAX_QUICK_DEATHS,
	        QUICK_DEATH_MS / 1000);
}

static void gateways_restart(struct supervisor *s, uint64_t now)
{
	for (uint32_t i = 0; i < s->cfg->gateways && !s->draining && !s->failure.code; i++) {
		struct gateway *g = &s->gateways[i];
		if (g->pid || g->start_due_ms > now)
			continue;
		struct error err = {0};
		if (gateway_start(s, i, &err) < 0) {
			log_text(LOG_ERROR, "gateway_start", "%s", err.text);
			g->start_due_ms = now + 1000;
			if (++g->quick_deaths >= MAX_QUICK_DEATHS)
				s->failure = err;
		}
	}
}

/* A sealed memfd, which nobody changes any more and whose close waits for nobody. What is in it we
 * never read. */
static bool is_policy(int fd)
{
	const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	int has = fcntl(fd, F_GET_SEALS);
	return has >= 0 && (has & seals) == seals;
}

static void gateway_read(struct supervisor *s, uint32_t index)
{
	struct gateway *g = &s->gateways[index];
	uint64_t end = clock_mono_ms() + TURN_MS; /* then it is another's turn */
	while (clock_mono_ms() <= end && g->sock >= 0 && !g->drop) {
		union message m;
		struct packet p;
		int r = hurry_receive(g->sock, &m, sizeof(m), 1, &p);
		if (r == -EAGAIN)
			return;
		const char *wrong = r > 0 ? message_check(&m, p.len, p.lost || p.n_fds > 0) : NULL;
		if (r > 0 && !wrong && p.n_fds > 0 && !is_policy(p.fds[0]))
			wrong = "descriptor";
		if (wrong)
			log_text(LOG_ERROR, "gateway_dropped",
			        "gateway %u sent a message with a wrong %s", index, wrong);
		if (r <= 0 || wrong) {
			if (r > 0)
				hurry_close_fds(&p);
			g->drop = true;
			return;
		}
		live_request(s->live, index, &m, p.n_fds > 0 ? p.fds[0] : -1);
	}
}

/* ---- the loop ---- */

static void reap(struct supervisor *s)
{
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (s->live && live_reaped(s->live, pid))
			continue;
		if (pid == s->egress.pid)
			egress_died(s, status);
		for (uint32_t i = 0; i < s->cfg->gateways; i++)
			if (s->gateways[i].pid == pid)
				gateway_died(s, i, status);
	}
}

static void drain(struct supervisor *s, uint64_t grace_ms)
{
	uint64_t end = clock_mono_ms() + grace_ms;
	if (!s->draining)
		LOG(LOG_INFO, "draining", LOG_N("grace_ms", grace_ms));
	s->drain_end_ms = s->draining && s->drain_end_ms < end ? s->drain_end_ms : end;
	for (uint32_t i = 0; i < s->cfg->gateways && !s->draining; i++)
		if (s->gateways[i].pid > 0)
			kill(s->gateways[i].pid, SIGTERM);
	s->draining = true;
}

static void signals_read(struct supervisor *s)
{
	char byte[64];
	ssize_t n = read(s->signal_pipe[0], byte, sizeof(byte));
	for (ssize_t i = 0; i < n; i++)
		if (byte[i] == SIGTERM || byte[i] == SIGINT)
			drain(s, s->draining ? 0 : s->cfg->grace_ms);
	reap(s);
}

/* One round: waits for events (handlers run only here), at most `most` ms, and acts on them. */
static void turn(struct supervisor *s, uint64_t most)
{
	struct epoll_event ev[64];
	int due = live_tick(s->live);
	gateways_drop(s);
	if ((uint64_t)due > most)
		due = (int)most;
	bool ahead = !s->draining && due > 0 && live_wants_step(s->live);
	int n = epoll_pwait(s->epoll, ev, 64, ahead ? 0 : due, &s->old_mask);
	if (n == 0 && ahead)
		live_step(s->live);
	for (int i = 0; i < n; i++) {
		uint64_t id = ev[i].data.u64;
		if (id < ID_SIGNAL)
			gateway_read(s, (uint32_t)id);
		else if (id == ID_SIGNAL)
			signals_read(s);
		else
			live_control(s->live, id);
	}
	if (n <= 0)
		reap(s);
	gateways_drop(s);
	egress_tick(s, clock_mono_ms());
}

static bool gateways_running(const struct supervisor *s)
{
	for (uint32_t i = 0; i < s->cfg->gateways; i++)
		if (s->gateways[i].pid > 0)
			return true;
	return false;
}

static uint64_t serve_wait(const struct supervisor *s, uint64_t now)
{
	uint64_t due = s->draining ? s->drain_end_ms : now + 10000;
	for (uint32_t i = 0; i < s->cfg->gateways; i++)
		if (!s->draining && !s->gateways[i].pid && s->gateways[i].start_due_ms < due)
			due = s->gateways[i].start_due_ms;
	if (s->cfg->egress && !s->egress.pid && now + EGRESS_RETRY_MS < due)
		due = now + EGRESS_RETRY_MS;
	return due > now ? due - now : 0;
}

static void serve(struct supervisor *s)
{
	for (;;) {
		uint64_t now = clock_mono_ms();
		gateways_restart(s, now);
		if (s->failure.code && !s->draining)
			drain(s, s->cfg->grace_ms);
		if (s->draining && (!gateways_running(s) || now >= s->drain_end_ms))
			return;
		turn(s, serve_wait(s, now));
	}
}

/* Kills gateways, then sandboxes, and waits until all is gone. */
static int end_all(struct supervisor *s, struct error *err)
{
	uint64_t end = clock_mono_ms() + END_LIMIT_MS;
	s->draining = true;
	for (uint32_t i = 0; i < s->cfg->gateways; i++)
		if (s->gateways[i].pid > 0)
			kill(s->gateways[i].pid, SIGKILL);
	s->ending = true;
	if (s->egress.pid > 0)
		kill(s->egress.pid, SIGKILL);
	live_stop(s->live);
	while (gateways_running(s) || s->egress.pid > 0 || !live_empty(s->live)) {
		if (clock_mono_ms() > end)
			return error_set(err, ERR_TIMEOUT, "sandboxes or gateways do not end");
		turn(s, 100);
	}
	return 0;
}

/* ---- start ---- */

static int config_check(const struct sup_config *c, struct error *err)
{
	if (c->data[0] != '/' || !memchr(c->data, '\0', sizeof(c->data)))
		return error_param(
		        err, ERR_INVALID, "data", "the data folder must be an absolute path");
	for (int i = 0; i < SUP_MAX_IMAGES; i++)
		if (!memchr(c->images[i], '\0', sizeof(c->images[i])))
			return error_param(
			        err, ERR_INVALID, "container.image", "image name is too long");
	if (c->gateways < 1 || c->gateways > SUP_MAX_GATEWAYS)
		return error_param(err, ERR_INVALID, "workers", "from 1 to %d", SUP_MAX_GATEWAYS);
	/* The last lease must end below 2^32 − 1, which is no id, and 0 belongs to the host. */
	uint64_t end =
	        (uint64_t)c->id_base + 131072 + ((uint64_t)c->n_leases + c->n_workers) * 65536;
	if (c->id_base < 65536 || end >= UINT32_MAX)
		return error_param(err, ERR_INVALID, "ids.base", "id ranges do not fit");
	if (!c->sandbox)
		return 0;
	if (c->n_leases < 1)
		return error_param(err, ERR_INVALID, "ids", "no lease");
	if (c->memory_mib < 16 || c->max_memory_mib < c->memory_mib || c->max_memory_mib > 1 << 24)
		return error_param(err, ERR_INVALID, "container.memory", "from 16 MiB to 16 TiB");
	if (c->home_mib < 16 || c->home_mib > 1 << 24)
		return error_param(err, ERR_INVALID, "container.home", "from 16 MiB to 16 TiB");
	if (c->scratch_mib < 16 || c->scratch_mib > 1 << 24)
		return error_param(err, ERR_INVALID, "container.scratch", "from 16 MiB to 16 TiB");
	if (c->n_workers > SUP_MAX_WORKERS)
		return error_param(
		        err, ERR_INVALID, "workers of files", "at most %d", SUP_MAX_WORKERS);
	if (c->pool > SUP_MAX_POOL)
		return error_param(err, ERR_INVALID, "container.pool", "at most %d", SUP_MAX_POOL);
	if (c->sleep_after_ms > 366ULL * 86400000 || c->grace_ms > 86400000)
		return error_param(err, ERR_INVALID, "container.sleep_after", "too long");
	return 0;
}

static int signals_start(struct supervisor *s, struct error *err)
{
	static const int number[] = {SIGTERM, SIGINT, SIGCHLD};
	if (pipe2(s->signal_pipe, O_CLOEXEC | O_NONBLOCK) < 0 ||
	        (s->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0 ||
	        watch(s, s->signal_pipe[0], ID_SIGNAL) < 0)
		return error_errno(err, errno, "make event loop");
	signal_fd = s->signal_pipe[1];
	signal_owner = getpid();
	sigemptyset(&s->signals);
	for (size_t i = 0; i < sizeof(number) / sizeof(number[0]); i++)
		sigaddset(&s->signals, number[i]);
	if (sigprocmask(SIG_BLOCK, &s->signals, &s->old_mask) < 0)
		return error_errno(err, errno, "sigprocmask");
	for (size_t i = 0; i < sizeof(number) / sizeof(number[0]); i++) {
		struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
		sigdelset(&s->old_mask, number[i]);
		if (sigaction(number[i], &act, NULL) < 0)
			return error_errno(err, errno, "sigaction");
	}
	signal(SIGPIPE, SIG_IGN);
	return 0;
}

static void process_start(void)
{
	struct rlimit files;
	prctl(PR_SET_NAME, "brig: supervis", 0, 0, 0); /* 15 bytes are all there is */
	umask(022);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* about six for each sandbox */
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
}

static int sandboxes_start(struct supervisor *s, struct error *err)
{
	int r = cgroup_find(s->cfg->data, s->cfg->cgroups, &s->host.cgroup, err);
	if (r == 0)
		r = cgroup_start(&s->host.cgroup, err);
	if (r == 0)
		r = sandbox_host_open(s->cfg, &s->host, err);
	if (r == 0 && !s->cfg->untested)
		r = selftest_check(&s->host, err);
	return r;
}

/* Not refused: see kernel.h. */
static void warn_of_kernel(void)
{
	struct sup_fault faults[SUP_MAX_FAULTS];
	char release[SUP_RELEASE_MAX];
	int n;
	enum sup_kernel kernel = supervisor_check_kernel(release, faults, SUP_MAX_FAULTS, &n);
	for (int i = 0; i < n; i++)
		log_text(LOG_WARN, "kernel_fault",
		        "kernel %s, by its number, has %s%s (%s): fixed in %s, or by the "
		        "distribution",
		        release, faults[i].cve, faults[i].shut ? ", shut off from containers" : "",
		        faults[i].what, faults[i].fixed);
	if (kernel == SUP_KERNEL_UNKNOWN)
		log_text(LOG_WARN, "kernel_unknown",
		        "the number of kernel %s does not tell which faults are fixed", release);
}

static int start(struct supervisor *s, struct error *err)
{
	process_start();
	int r = config_check(s->cfg, err);
	if (r == 0)
		r = check_required(s->cfg, err);
	if (r < 0)
		return r;
	if (s->cfg->sandbox)
		warn_of_kernel();
	/* What we mount is ours alone; what the host unmounts is unmounted here too. */
	if (s->cfg->sandbox &&
	        (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0))
		return error_errno(err, errno, "make private mount namespace");
	r = disk_open(s->cfg, &s->host.disk, err);
	if (r == 0 && s->cfg->sandbox)
		r = sandboxes_start(s, err);
	if (r == 0)
		r = signals_start(s, err);
	int late = hurry_open();
	if (r == 0 && late < 0)
		r = error_errno(err, -late, "make timer");
	if (r < 0)
		return r;
	struct live_out out = {gateway_send, gateway_send_all, watch, unwatch, s, NULL, NULL};
	if (s->cfg->egress) {
		out.network_add = egress_add;
		out.network_remove = egress_remove;
	}
	s->live = live_new(s->cfg->sandbox ? &s->host : NULL, s->cfg, &out);
	for (uint32_t i = 0; i < s->cfg->gateways && r == 0; i++)
		r = gateway_start(s, i, err);
	if (r == 0 && s->cfg->egress)
		egress_start(s);
	return r;
}

int supervisor_run(
        const struct sup_config *cfg, sup_spawn_gateway_fn spawn, void *ctx, struct error *err)
{
	struct supervisor *s = mem_alloc(sizeof(*s));
	*s = (struct supervisor){.cfg = cfg,
	        .spawn = spawn,
	        .spawn_ctx = ctx,
	        .epoll = -1,
	        .signal_pipe = {-1, -1},
	        .egress = {.sock = -1},
	        .host = {.init_image = -1, .worker_image = -1, .net_ns = -1}};
	for (int i = 0; i < CGH_N; i++)
		s->host.cgroup.parent[i] = s->host.cgroup.root[i] = -1;
	for (int i = 0; i < SUP_MAX_GATEWAYS; i++)
		s->gateways[i].sock = -1;
	int r = start(s, err);
	if (r == 0)
		serve(s);
	if (s->live) {
		struct error late = {0};
		int ended = end_all(s, r == 0 ? err : &late);
		r = r == 0 ? ended : r;
	}
	s->live = live_free(s->live);
	if (cfg->sandbox) {
		cgroup_stop(&s->host.cgroup);
		sandbox_host_close(&s->host);
	}
	s->host.disk = disk_free(s->host.disk);
	for (uint32_t i = 0; i < SUP_MAX_GATEWAYS; i++)
		sys_close(&s->gateways[i].sock);
	sys_close(&s->egress.sock);
	sys_close(&s->epoll);
	sys_close(&s->signal_pipe[0]);
	if (r == 0 && s->failure.code) {
		r = -(int)s->failure.code;
		if (err)
			*err = s->failure;
	}
	free(s); /* the pipe's other end stays: a late signal still finds it */
	return r;
}
