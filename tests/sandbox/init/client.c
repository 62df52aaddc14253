#include "client.h"

#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define DRAIN_NS 1000000000 /* for what is left in pipes of 64 KiB */

static void send_message(int socket, const void *data, size_t len, const int *fds, int n)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c = (void *)control;

	if (n) {
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
	}
	(void)!sendmsg(socket, &msg, MSG_NOSIGNAL);
}

void client_open(struct client *c, int channel)
{
	*c = (struct client){.channel = channel, .next_id = 1};
}

static char *append(char *at, const char *text)
{
	size_t len = strlen(text) + 1;

	memcpy(at, text, len);
	return at + len;
}

struct client_run *client_start(struct client *c, const struct client_command *command)
{
	static union {
		struct init_run run;
		char bytes[sizeof(struct init_run) + INIT_MAX_PAYLOAD];
	} m;
	char *payload = m.bytes + sizeof m.run, *at = payload;
	struct client_run *run = NULL;
	int fds[2], n = 0;

	for (int i = 0; i < CLIENT_MAX_RUNS && !run; i++)
		if (!c->runs[i].used)
			run = &c->runs[i];
	if (!run)
		abort();
	*run = (struct client_run){.used = true, .id = c->next_id++, .fds = {-1, -1}};
	m.run = (struct init_run){.h = {INIT_RUN, sizeof m.run, 0},
	        .id = run->id,
	        .timeout_ms = command->timeout_ms,
	        .flags = command->flags};
	if (command->shell) {
		m.run.flags |= INIT_RUN_SHELL;
		m.run.argc = 1;
		at = append(at, command->shell);
	}
	for (const char *const *a = command->argv; a && *a; a++, m.run.argc++)
		at = append(at, *a);
	for (const char *const *e = command->env; e && *e; e++, m.run.envc++)
		at = append(at, *e);
	at = append(at, command->cwd ? command->cwd : "");
	at = append(at, command->user ? command->user : "");
	m.run.payload_len = (uint32_t)(at - payload);
	if (command->memfd) {
		m.run.flags |= INIT_RUN_MEMFD;
		fds[n] = memfd_create("payload", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		(void)!write(fds[n], payload, m.run.payload_len);
		fcntl(fds[n++], F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
	}
	if (command->standard_input) {
		m.run.flags |= INIT_RUN_STDIN;
		fds[n++] = command->standard_input;
	}
	send_message(c->channel, m.bytes, sizeof m.run + (command->memfd ? 0 : m.run.payload_len),
	        fds, n);
	if (command->memfd)
		close(fds[0]);
	return run;
}

static void take_message(struct client *c)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
	union {
		struct init_header h;
		struct init_id id;
		struct init_done done;
		struct init_refused refused;
	} m;
	struct iovec iov = {.iov_base = &m, .iov_len = sizeof m};
	struct msghdr msg = {.msg_iov = &iov,
	        .msg_iovlen = 1,
	        .msg_control = control,
	        .msg_controllen = sizeof control};
	ssize_t n = recvmsg(c->channel, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct client_run *run = NULL;

	if (n < 0 && errno == EAGAIN)
		return;
	if (n < (ssize_t)sizeof m.id) {
		c->closed = true;
		return;
	}
	for (int i = 0; i < CLIENT_MAX_RUNS; i++)
		if (c->runs[i].used && c->runs[i].id == m.id.id)
			run = &c->runs[i];
	if (!run || run->done || run->refused)
		abort(); /* a message about nothing that we asked for */
	if (m.h.op == INIT_STARTED && !run->started && CMSG_FIRSTHDR(&msg)) {
		run->started = true;
		memcpy(run->fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof run->fds);
		for (int i = 0; i < 2; i++)
			fcntl(run->fds[i], F_SETFL, O_RDONLY | O_NONBLOCK);
	} else if (m.h.op == INIT_DONE && run->started && n == sizeof m.done) {
		run->done = true;
		run->end = m.done;
		run->done_ns = sandbox_now_ns();
	} else if (m.h.op == INIT_REFUSED && !run->started && n == sizeof m.refused) {
		run->refused = true;
		run->why = m.refused;
	} else {
		abort();
	}
}

static void take_output(struct client_run *run, int i)
{
	ssize_t n;

	if (!run->out[i])
		run->out[i] = calloc(1, CLIENT_MAX_BYTES + 1);
	n = read(run->fds[i], run->out[i] + run->len[i], CLIENT_MAX_BYTES - run->len[i]);
	if (n > 0) {
		run->len[i] += (size_t)n;
		return;
	}
	if (n < 0 && errno == EAGAIN)
		return;
	close(run->fds[i]);
	run->fds[i] = -1;
}

/* One poll and what it brings. Returns false when nothing came in ms. */
static bool pump_once(struct client *c, int ms)
{
	struct pollfd p[1 + 2 * CLIENT_MAX_RUNS];
	struct client_run *run[1 + 2 * CLIENT_MAX_RUNS];
	int which[1 + 2 * CLIENT_MAX_RUNS];
	nfds_t n = 0;

	p[n++] = (struct pollfd){.fd = c->closed ? -1 : c->channel, .events = POLLIN};
	for (int i = 0; i < CLIENT_MAX_RUNS; i++)
		for (int k = 0; c->runs[i].used && k < 2; k++)
			if (c->runs[i].fds[k] >= 0) {
				run[n] = &c->runs[i];
				which[n] = k;
				p[n++] = (struct pollfd){.fd = c->runs[i].fds[k], .events = POLLIN};
			}
	if (poll(p, n, ms) <= 0)
		return false;
	for (nfds_t i = 1; i < n; i++)
		if (p[i].revents)
			take_output(run[i], which[i]);
	if (p[0].revents)
		take_message(c);
	return true;
}

void client_pump(struct client *c, int ms)
{
	uint64_t until = sandbox_now_ns() + (uint64_t)ms * 1000000;

	for (;;) {
		uint64_t now = sandbox_now_ns();

		if (now >= until || !pump_once(c, (int)((until - now) / 1000000) + 1))
			return;
	}
}

bool client_wait_text(struct client *c, const struct client_run *run, const char *text, int ms)
{
	uint64_t until = sandbox_now_ns() + (uint64_t)ms * 1000000;

	while (!run->out[0] || !strstr(run->out[0], text)) {
		uint64_t now = sandbox_now_ns();

		if (now >= until || run->done || run->refused || c->closed)
			return false;
		pump_once(c, (int)((until - now) / 1000000) + 1);
	}
	return true;
}

bool client_wait(struct client *c, struct client_run *run, int ms)
{
	uint64_t until = sandbox_now_ns() + (uint64_t)ms * 1000000, now;

	while (!run->done && !run->refused && !c->closed) {
		now = sandbox_now_ns();
		if (now >= until)
			return false;
		pump_once(c, (int)((until - now) / 1000000) + 1);
	}
	/* What was written before the end is in the pipes; a writer left behind may keep them open
	 * and go on. */
	now = sandbox_now_ns();
	until = until < now + DRAIN_NS ? until : now + DRAIN_NS;
	while ((run->fds[0] >= 0 || run->fds[1] >= 0) && pump_once(c, 100))
		if (sandbox_now_ns() > until)
			break;
	return run->done || run->refused;
}

void client_kill(struct client *c, const struct client_run *run)
{
	struct init_id m = {.h = {INIT_KILL, sizeof m, 0}, .id = run->id};

	send_message(c->channel, &m, sizeof m, NULL, 0);
}

void client_discard(struct client *c, struct client_run *run)
{
	struct init_id m = {.h = {INIT_DISCARD, sizeof m, 0}, .id = run->id};
	int fds[2], n = 0;

	for (int i = 0; i < 2; i++)
		if (run->fds[i] >= 0)
			fds[n++] = run->fds[i];
	if (!n)
		return;
	send_message(c->channel, &m, sizeof m, fds, n);
	for (int i = 0; i < 2; i++) {
		if (run->fds[i] >= 0)
			close(run->fds[i]);
		run->fds[i] = -1;
	}
}

void client_forget(struct client_run *run)
{
	for (int i = 0; i < 2; i++) {
		if (run->fds[i] >= 0)
			close(run->fds[i]);
		free(run->out[i]);
	}
	run->used = false;
}

void client_close(struct client *c)
{
	for (int i = 0; i < CLIENT_MAX_RUNS; i++)
		if (c->runs[i].used)
			client_forget(&c->runs[i]);
	close(c->channel);
}
