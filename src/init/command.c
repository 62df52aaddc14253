/*
 * A command takes a slot, a leaf and three pipes. Its child is forked into the leaf; when the
 * report pipe closes without a word, exec has worked, and the gateway gets the read ends with
 * INIT_STARTED.
 *
 *   WAITING → STARTING → RUNNING → (SETTLING) → (SYNCING) → INIT_DONE   the leader ended by itself
 *                 └─────────┴────→ ENDING → …                     deadline, INIT_KILL, channel gone
 *
 * A command that ended by itself is done when its leader is: what it left in the background stays
 * in the leaf. One that is killed is done when the leaf is empty, whoever its processes have become
 * children of meanwhile. init never waits for anything in between: a tick comes by every TICK_MS
 * while a leaf is being emptied, and deaths wake the loop at once.
 *
 * Nothing that the guest does reaches the channel but these three messages for each command, so a
 * guest cannot fill it.
 */
#include "init/command.h"

#include "init/channel.h"
#include "init/child.h"
#include "init/loop.h"
#include "init/procfiles.h"
#include "init/sys.h"

#include <linux/memfd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define TICK_MS      2
#define SETTLE_MS    100
#define MAX_HELD     (16 << 20) /* bytes of payload copied for commands that wait */
#define SHELL_KILLED (128 + SIGKILL)
#define NS_PER_MS    1000000ull

static struct {
	struct command_setup setup;
	struct command *running[INIT_MAX_RUNNING]; /* slots */
	struct command *first, **last;             /* those that wait */
	uint32_t n_running, n_waiting;
	size_t held;
	uint64_t n_started;
} commands = {.last = &commands.first};

void command_open(const struct command_setup *setup)
{
	commands.setup = *setup;
}

/* How often the kernel has killed in this container for want of memory. */
static uint64_t count_oom_kills(void)
{
	char buf[512];
	ssize_t n = pread(commands.setup.oom, buf, sizeof buf - 1, 0);
	const char *at;

	buf[n < 0 ? 0 : n] = 0;
	at = strstr(buf, "oom_kill ");
	return at ? strtoull(at + strlen("oom_kill "), NULL, 10) : 0;
}

static struct command *command_free(struct command *c)
{
	if (!c)
		return NULL;
	if (c->flags & INIT_RUN_MEMFD) {
		if (c->payload)
			munmap(c->payload, c->payload_len);
	} else if (c->payload) {
		commands.held -= c->payload_len;
		free(c->payload);
	}
	if (c->standard_input >= 0)
		close(c->standard_input);
	for (int i = 0; i < 2; i++)
		if (c->output[i] >= 0)
			close(c->output[i]);
	if (c->report >= 0)
		loop_close(c->report);
	free(c);
	return NULL;
}

/* ---- messages ---- */

static void send_refused(const struct command *c, const char *step, int errnum)
{
	struct init_refused m = {.id = c->id, .errnum = (uint32_t)errnum};

	if (c->channel < 0)
		return;
	snprintf(m.step, sizeof m.step, "%s", step);
	channel_send((uint32_t)c->channel, INIT_REFUSED, &m, sizeof m, NULL, 0);
}

static void send_started(struct command *c)
{
	struct init_id m = {.id = c->id};

	if (c->channel >= 0)
		channel_send((uint32_t)c->channel, INIT_STARTED, &m, sizeof m, c->output, 2);
	for (int i = 0; i < 2; i++) {
		close(c->output[i]);
		c->output[i] = -1;
	}
}

static void send_done(const struct command *c)
{
	struct init_done m = {
	        .id = c->id,
	        .outcome = c->outcome,
	        .code = (uint32_t)(WIFSIGNALED(c->status) ? WTERMSIG(c->status)
	                                                  : WEXITSTATUS(c->status)),
	        .flags = c->done_flags,
	        .started_ns = c->started_ns,
	        .ended_ns = c->ended_ns,
	};

	if (c->channel >= 0)
		channel_send((uint32_t)c->channel, INIT_DONE, &m, sizeof m, NULL, 0);
}

/* ---- end ---- */

static void leave_slot(uint32_t slot)
{
	commands.running[slot] = command_free(commands.running[slot]);
	commands.n_running--;
}

/* Writes home to disk from a process of its own: a disk may take its time. */
static void start_sync(struct command *c)
{
	pid_t pid = fork();

	if (pid == 0) {
		/* It must not hold up the end of any pipe or channel that init closes meanwhile. */
		if (dup2(commands.setup.home, 3) < 0 || sys_close_range(4, ~0u) < 0)
			_exit(1);
		_exit(syscall(SYS_syncfs, 3) < 0);
	}
	if (pid > 0) {
		c->syncer = pid;
		c->state = COMMAND_SYNCING;
	} else {
		c->done_flags |= INIT_DONE_UNSYNCED;
	}
}

/* Nothing is left to be done but to write home to disk, where that is asked for, and to say so. */
static void complete(uint32_t slot)
{
	struct command *c = commands.running[slot];

	if (c->flags & INIT_RUN_SYNC && c->channel >= 0)
		start_sync(c);
	if (c->state == COMMAND_SYNCING)
		return;
	send_done(c);
	leave_slot(slot);
}

/*
 * The outcome is known, and the leader and what was to be killed are gone. Where the memory was
 * used up, some of it (page tables above all) is given back only when all processors have passed a
 * point of rest: the next command, and on v1 init itself, would be killed for what nobody has any
 * more. So that outcome waits a little.
 */
static void finish(uint32_t slot)
{
	struct command *c = commands.running[slot];
	bool killed = WIFSIGNALED(c->status) ? WTERMSIG(c->status) == SIGKILL
	                                     : WEXITSTATUS(c->status) == SHELL_KILLED;

	c->ended_ns = loop_now_ns();
	leaf_give(c->leaf);
	c->leaf = NULL;
	if (c->outcome <= INIT_SIGNALED && killed && count_oom_kills() > c->oom_kills)
		c->done_flags |= INIT_DONE_MEMORY;
	if (!(c->done_flags & INIT_DONE_MEMORY)) {
		complete(slot);
		return;
	}
	c->state = COMMAND_SETTLING;
	c->settled_ns = c->ended_ns + SETTLE_MS * NS_PER_MS;
}

static void kill_all(const struct command *c)
{
	leaf_kill(c->leaf);
	/* On v1 it may not have entered its leaf yet. */
	if (c->leader > 0)
		kill(c->leader, SIGKILL);
}

static void close_report(struct command *c)
{
	if (c->report >= 0)
		loop_close(c->report);
	c->report = -1;
}

static void end(struct command *c, enum init_outcome outcome)
{
	if (c->state != COMMAND_STARTING && c->state != COMMAND_RUNNING)
		return;
	if (c->state == COMMAND_STARTING && c->failure.errnum == 0) {
		/* Whether exec worked is of no interest any more; what was printed may be. */
		close_report(c);
		send_started(c);
	}
	c->outcome = outcome;
	c->state = COMMAND_ENDING;
	kill_all(c);
	c->kill_again_ns = loop_now_ns() + TICK_MS * NS_PER_MS;
}

/* ---- start ---- */

/* It was never started: says why, and frees all that the start took. */
static void refuse_running(uint32_t slot, const char *step, int errnum)
{
	struct command *c = commands.running[slot];

	send_refused(c, step, errnum);
	if (c->leaf)
		leaf_give(c->leaf);
	leave_slot(slot);
}

void command_report_ready(uint32_t slot)
{
	struct command *c = commands.running[slot];
	struct command_report r;
	ssize_t n;

	if (!c || c->state != COMMAND_STARTING || c->report < 0)
		return;
	n = read(c->report, &r, sizeof r);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	close_report(c);
	if (n == (ssize_t)sizeof r && r.errnum > 0) {
		/* The child exits now; reaping it ends the start. */
		r.step[sizeof r.step - 1] = 0;
		c->failure = r;
		return;
	}
	/* exec worked, or the child died before it could say: either way there is output to read.
	 */
	c->state = COMMAND_RUNNING;
	send_started(c);
}

static int make_pipes(struct command *c, struct child_pipes *ret)
{
	int p[3][2];

	for (int i = 0; i < 3; i++) {
		if (pipe2(p[i], O_CLOEXEC) == 0)
			continue;
		while (i--) {
			close(p[i][0]);
			close(p[i][1]);
		}
		return -errno;
	}
	c->output[0] = p[0][0];
	c->output[1] = p[1][0];
	c->report = p[2][0];
	*ret = (struct child_pipes){.output = p[0][1], .error = p[1][1], .report = p[2][1]};
	return 0;
}

static void start(uint32_t slot)
{
	struct command *c = commands.running[slot];
	struct child_pipes pipes;
	pid_t pid;
	int rc = leaf_take(&c->leaf);

	if (rc < 0) {
		refuse_running(slot, "cgroup", -rc);
		return;
	}
	rc = make_pipes(c, &pipes);
	if (rc < 0) {
		refuse_running(slot, "pipe", -rc);
		return;
	}
	procfiles_write(commands.n_running, ++commands.n_started);
	c->oom_kills = count_oom_kills();
	c->started_ns = loop_now_ns();
	c->deadline_ns = c->timeout_ms ? c->started_ns + c->timeout_ms * NS_PER_MS : UINT64_MAX;
	c->state = COMMAND_STARTING;
	pid = leaf_fork(c->leaf);
	if (pid == 0)
		child_run(c, &commands.setup, &pipes);
	close(pipes.output);
	close(pipes.error);
	close(pipes.report);
	if (pid < 0) {
		refuse_running(slot, "fork", -pid);
		return;
	}
	c->leader = pid;
	if (c->standard_input >= 0)
		close(c->standard_input);
	c->standard_input = -1;
	/* Should the loop refuse it, the leader's end still tells; only INIT_STARTED comes late. */
	if (fcntl(c->report, F_SETFL, O_NONBLOCK) == 0)
		(void)loop_add(c->report, LOOP_REPORT, slot);
}

static void start_waiting(void)
{
	for (uint32_t slot = 0; slot < INIT_MAX_RUNNING && commands.first; slot++) {
		struct command *c = commands.first;

		if (commands.running[slot])
			continue;
		commands.first = c->next;
		if (!commands.first)
			commands.last = &commands.first;
		commands.n_waiting--;
		commands.running[slot] = c;
		commands.n_running++;
		start(slot);
	}
}

/* ---- requests ---- */

/* argc + envc + 2 strings, each ended by its NUL, and no byte more; variables have a name. */
static bool payload_is_sound(const struct init_run *run, const char *payload)
{
	const char *at = payload, *end = payload + run->payload_len;
	uint32_t n = run->argc + run->envc + 2;

	for (uint32_t i = 0; i < n; i++) {
		size_t max = (size_t)(end - at) < INIT_MAX_STRING + 1 ? (size_t)(end - at)
		                                                      : INIT_MAX_STRING + 1;
		const char *nul = max ? memchr(at, 0, max) : NULL;

		if (!nul)
			return false;
		if (i >= run->argc && i < run->argc + run->envc) {
			const char *equals = memchr(at, '=', (size_t)(nul - at));

			if (!equals || equals == at)
				return false;
		}
		at = nul + 1;
	}
	return at == end;
}

static bool run_is_sound(const struct init_run *run, const struct message *m)
{
	const uint32_t known = INIT_RUN_SHELL | INIT_RUN_MEMFD | INIT_RUN_STDIN | INIT_RUN_SYNC;
	int n_fds = (run->flags & INIT_RUN_MEMFD ? 1 : 0) + (run->flags & INIT_RUN_STDIN ? 1 : 0);
	uint32_t inline_len = run->flags & INIT_RUN_MEMFD ? 0 : run->payload_len;

	return run->h.size == sizeof *run && m->packet.n_fds == n_fds && !(run->flags & ~known) &&
	       run->payload_len <= INIT_MAX_PAYLOAD && m->packet.len == sizeof *run + inline_len &&
	       run->argc >= 1 && run->argc <= (run->flags & INIT_RUN_SHELL ? 1 : INIT_MAX_ARGS) &&
	       run->envc <= INIT_MAX_ENV;
}

/* A sealed memfd of at least that length, mapped; NULL when it is anything else. */
static char *map_payload(int fd, size_t len)
{
	const int needed = F_SEAL_WRITE | F_SEAL_SHRINK;
	struct stat st;
	void *map;

	if (len == 0 || (fcntl(fd, F_GET_SEALS) & needed) != needed || fcntl(fd, F_GET_SEALS) < 0 ||
	        fstat(fd, &st) < 0 || (uint64_t)st.st_size < len)
		return NULL;
	map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	return map == MAP_FAILED ? NULL : map;
}

/* Takes what the message brings. Returns 0, -EBADMSG, or another negative errno for want of
 * something. */
static int fill(struct command *c, const struct init_run *run, struct message *m)
{
	struct stat st;

	if (run->flags & INIT_RUN_MEMFD) {
		c->payload = map_payload(m->packet.fds[0], run->payload_len);
		if (!c->payload)
			return -EBADMSG;
	} else {
		if (commands.held + run->payload_len > MAX_HELD)
			return -EAGAIN;
		c->payload = malloc(run->payload_len + 1u);
		if (!c->payload)
			return -ENOMEM;
		memcpy(c->payload, m->bytes + sizeof *run, run->payload_len);
		commands.held += run->payload_len;
	}
	if (!payload_is_sound(run, c->payload))
		return -EBADMSG;
	if (run->flags & INIT_RUN_STDIN) {
		/* A directory as standard input would be a way out of the root. */
		if (fstat(m->packet.fds[m->packet.n_fds - 1], &st) < 0 || S_ISDIR(st.st_mode))
			return -EBADMSG;
		c->standard_input = message_take_fd(m, m->packet.n_fds - 1);
	}
	return 0;
}

static bool id_is_known(uint32_t channel, uint64_t id)
{
	for (int i = 0; i < INIT_MAX_RUNNING; i++)
		if (commands.running[i] && commands.running[i]->channel == (int)channel &&
		        commands.running[i]->id == id)
			return true;
	for (const struct command *c = commands.first; c; c = c->next)
		if (c->channel == (int)channel && c->id == id)
			return true;
	return false;
}

int command_submit(uint32_t channel, struct message *m)
{
	const struct init_run *run = (const void *)m->bytes;
	struct command *c;
	int rc;

	if (m->packet.len < sizeof *run || !run_is_sound(run, m) || id_is_known(channel, run->id))
		return -EBADMSG;
	c = malloc(sizeof *c);
	if (!c)
		return -ENOMEM;
	*c = (struct command){.channel = (int)channel,
	        .id = run->id,
	        .flags = run->flags,
	        .timeout_ms = run->timeout_ms,
	        .argc = run->argc,
	        .envc = run->envc,
	        .payload_len = run->payload_len,
	        .standard_input = -1,
	        .report = -1,
	        .output = {-1, -1}};
	rc = commands.n_waiting < INIT_MAX_WAITING ? fill(c, run, m) : -EAGAIN;
	if (rc < 0) {
		if (rc != -EBADMSG)
			send_refused(c, "queue", -rc);
		command_free(c);
		return rc == -EBADMSG ? rc : 0;
	}
	*commands.last = c;
	commands.last = &c->next;
	commands.n_waiting++;
	return 0;
}

/* Takes the next one out of the queue that is of the channel (and has the id), from *link on. */
static struct command *unqueue(struct command ***link, uint32_t channel, const uint64_t *id)
{
	for (struct command **at = *link; *at; at = &(*at)->next) {
		struct command *c = *at;

		if (c->channel != (int)channel || (id && c->id != *id))
			continue;
		*at = c->next;
		if (!*at)
			commands.last = at;
		commands.n_waiting--;
		*link = at;
		return c;
	}
	return NULL;
}

void command_kill(uint32_t channel, uint64_t id)
{
	struct command **link = &commands.first;
	struct command *c = unqueue(&link, channel, &id);

	if (c) {
		send_refused(c, "queue", ECANCELED);
		command_free(c);
		return;
	}
	for (int i = 0; i < INIT_MAX_RUNNING; i++) {
		c = commands.running[i];
		if (c && c->channel == (int)channel && c->id == id)
			end(c, INIT_KILLED);
	}
}

void command_drop_channel(uint32_t channel)
{
	struct command **link = &commands.first;
	struct command *c;

	while ((c = unqueue(&link, channel, NULL)))
		command_free(c);
	for (int i = 0; i < INIT_MAX_RUNNING; i++) {
		c = commands.running[i];
		if (!c || c->channel != (int)channel)
			continue;
		c->channel = -1;
		end(c, INIT_KILLED);
	}
}

/* ---- events ---- */

static void leader_ended(uint32_t slot, int status)
{
	struct command *c = commands.running[slot];

	c->leader = 0;
	c->status = status;
	if (c->state == COMMAND_STARTING)
		command_report_ready(slot);
	if (c->failure.errnum)
		refuse_running(slot, c->failure.step, c->failure.errnum);
	else if (c->state == COMMAND_STARTING || c->state == COMMAND_RUNNING) {
		c->outcome = WIFSIGNALED(status) ? INIT_SIGNALED : INIT_EXITED;
		finish(slot);
	}
}

void command_reaped(pid_t pid, int status)
{
	for (uint32_t slot = 0; slot < INIT_MAX_RUNNING; slot++) {
		struct command *c = commands.running[slot];

		if (!c)
			continue;
		if (c->leader == pid) {
			leader_ended(slot, status);
			return;
		}
		if (c->state == COMMAND_SYNCING && c->syncer == pid) {
			if (status != 0)
				c->done_flags |= INIT_DONE_UNSYNCED;
			send_done(c);
			leave_slot(slot);
			return;
		}
	}
}

/* One command's deadline or kill. Returns when it wants the next look. */
static uint64_t tick(uint32_t slot, uint64_t now)
{
	struct command *c = commands.running[slot];

	if (c->state == COMMAND_STARTING || c->state == COMMAND_RUNNING) {
		if (now < c->deadline_ns)
			return c->deadline_ns;
		end(c, INIT_TIMED_OUT);
	}
	if (c->state == COMMAND_SETTLING) {
		if (now < c->settled_ns)
			return c->settled_ns;
		complete(slot);
		return UINT64_MAX;
	}
	if (c->state != COMMAND_ENDING)
		return UINT64_MAX;
	if (c->leader == 0 && leaf_is_empty(c->leaf)) {
		finish(slot);
		return UINT64_MAX;
	}
	if (now >= c->kill_again_ns) {
		kill_all(c);
		c->kill_again_ns = now + TICK_MS * NS_PER_MS;
	}
	return c->kill_again_ns;
}

int command_tick(void)
{
	uint64_t now = loop_now_ns(), next = UINT64_MAX;

	for (uint32_t slot = 0; slot < INIT_MAX_RUNNING; slot++) {
		uint64_t at = commands.running[slot] ? tick(slot, now) : UINT64_MAX;

		next = at < next ? at : next;
	}
	start_waiting();
	for (uint32_t slot = 0; slot < INIT_MAX_RUNNING; slot++) {
		const struct command *c = commands.running[slot];

		if (c && c->state == COMMAND_STARTING && c->deadline_ns < next)
			next = c->deadline_ns;
	}
	if (next == UINT64_MAX)
		return -1;
	now = loop_now_ns();
	if (next <= now)
		return 0;
	/* Rounded up: a millisecond early would only be a useless turn. */
	next = (next - now + NS_PER_MS - 1) / NS_PER_MS;
	return next > 60000 ? 60000 : (int)next;
}
