/*
 * Theory of operation
 *
 * All signals that matter are blocked and waited for, so the loop is one sigtimedwait(). A
 * gateway's end of a socketpair is its sign that somebody is there; nothing is ever said on it.
 */
#include "cli/plain.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { QUICK_DEATH_MS = 10000, MAX_QUICK_DEATHS = 5, RESTART_MS = 200 };

struct plain {
	const struct sup_config *cfg;
	sup_spawn_gateway_fn spawn;
	void *ctx;
	struct {
		pid_t pid; /* 0: not running */
		int sock;  /* our end; -1: none */
		uint64_t started_ms;
	} gateways[SUP_MAX_GATEWAYS];
	unsigned quick_deaths;
	bool draining;
	uint64_t end_ms; /* of the grace */
};

static int gateway_start(struct plain *p, uint32_t i, struct error *err)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return error_errno(err, errno, "socketpair");
	pid = p->spawn(p->ctx, i, pair[1], err);
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return pid;
	}
	p->gateways[i].pid = pid;
	p->gateways[i].sock = pair[0];
	p->gateways[i].started_ms = clock_mono_ms();
	return 0;
}

static void reap(struct plain *p)
{
	uint32_t i;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (i = 0; i < p->cfg->gateways; i++) {
			if (p->gateways[i].pid != pid)
				continue;
			p->gateways[i].pid = 0;
			close(p->gateways[i].sock);
			p->gateways[i].sock = -1;
			/* At the end they are killed. */
			if (!p->draining || (status != 0 && status != SIGKILL))
				LOG(LOG_ERROR, "gateway_died", LOG_N("gateway", i),
				        LOG_N("status", status));
			if (p->draining)
				continue;
			if (clock_mono_ms() - p->gateways[i].started_ms < QUICK_DEATH_MS)
				p->quick_deaths++;
		}
	}
}

/* How many run. */
static uint32_t signal_all(const struct plain *p, int sig)
{
	uint32_t i, n = 0;

	for (i = 0; i < p->cfg->gateways; i++) {
		if (p->gateways[i].pid <= 0)
			continue;
		n++;
		if (sig)
			kill(p->gateways[i].pid, sig);
	}
	return n;
}

static void drain(struct plain *p)
{
	/* The second wish, and the end of the grace, do not wait. */
	if (p->draining) {
		signal_all(p, SIGKILL);
		return;
	}
	p->draining = true;
	p->end_ms = clock_mono_ms() + p->cfg->grace_ms;
	signal_all(p, SIGTERM);
}

static int restart_missing(struct plain *p, struct error *err)
{
	uint32_t i;
	int r = 0;

	if (p->quick_deaths >= MAX_QUICK_DEATHS)
		return error_set(err, ERR_UNAVAILABLE,
		        "gateways ended %d times within %d s of their start", MAX_QUICK_DEATHS,
		        QUICK_DEATH_MS / 1000);
	for (i = 0; i < p->cfg->gateways && r == 0; i++)
		if (p->gateways[i].pid == 0)
			r = gateway_start(p, i, err);
	return r;
}

static int loop(struct plain *p, const sigset_t *signals, struct error *err)
{
	const struct timespec pause = {.tv_nsec = RESTART_MS * 1000000L};
	int r = restart_missing(p, err), sig;

	while (r == 0 && (!p->draining || signal_all(p, 0) > 0)) {
		sig = sigtimedwait(signals, NULL, &pause);
		reap(p);
		if (sig == SIGTERM || sig == SIGINT ||
		        (p->draining && clock_mono_ms() >= p->end_ms))
			drain(p);
		/* Not at the signal itself: what dies at once is started again at the loop's pace.
		 */
		else if (sig < 0 && !p->draining)
			r = restart_missing(p, err);
	}
	return r;
}

int plain_run(const struct sup_config *cfg, int folder, sup_spawn_gateway_fn spawn, void *ctx,
        struct error *err)
{
	struct plain p = {.cfg = cfg, .spawn = spawn, .ctx = ctx};
	sigset_t signals, before;
	int r;

	if (flock(folder, LOCK_EX | LOCK_NB) < 0)
		return error_set(
		        err, ERR_CONFLICT, "another brig serves the data folder %s", cfg->data);
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGCHLD);
	sigprocmask(SIG_BLOCK, &signals, &before);
	signal(SIGPIPE, SIG_IGN);
	r = loop(&p, &signals, err);
	signal_all(&p, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
	flock(folder, LOCK_UN);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return r;
}
