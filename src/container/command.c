/*
 * Commands, through init's channel of a hold (proto/init.h).
 *
 * RUN goes out; STARTED brings the read ends of the two pipes; DONE says that the leader has ended.
 * Then what is still in the pipes is read: until a pipe is empty or closed, for at most 100 ms
 * where something in the background keeps writing. A pipe that a background child still holds is
 * handed to init, which reads and throws away, so that the child neither blocks nor dies (DESIGN
 * section 7).
 *
 * While a command is paused its pipes are not read; the guest blocks in write. Its end waits too,
 * so that no byte is lost.
 */
#include "container/internal.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define AFTER_END_MS 100
#define READ_PIECE   16384
#define READ_STEPS   16 /* pieces of one pipe in one loop step */
#define MAX_STDIN    1048576

struct command {
	struct command *next, **link;
	struct container_hold *hold;
	uint64_t id;
	struct command_handler handler;
	int pipe[2]; /* stdout, stderr: read ends; -1: not there yet, or at its end */
	struct event *readable[2];
	struct event *after_end; /* the 100 ms */
	bool started, paused, done, kill_asked;
	uint64_t read_until_ms; /* once done */
	struct command_end end;
};

/* Results keep the names: each signal's has a place of its own. */
const char *command_signal_name(int signal)
{
	static __thread char names[NSIG][16];
	char *name = names[signal > 0 && signal < NSIG ? signal : 0];
	const char *abbrev = sigabbrev_np(signal);

	if (abbrev != NULL)
		str_format(name, sizeof(names[0]), "SIG%s", abbrev);
	else
		str_format(name, sizeof(names[0]), "SIG%d", signal);
	return name;
}

int command_exit_code(const struct command_end *end)
{
	if (end->outcome == INIT_EXITED)
		return end->code;
	return 128 + (end->outcome == INIT_SIGNALED ? end->code : SIGKILL);
}

/* ---- life ---- */

static void pipe_close(struct command *c, int which)
{
	if (c->readable[which] != NULL)
		event_free(steal(c->readable[which]));
	if (c->pipe[which] >= 0)
		close(c->pipe[which]);
	c->pipe[which] = -1;
}

static void command_free(struct command *c)
{
	pipe_close(c, 0);
	pipe_close(c, 1);
	if (c->after_end != NULL)
		event_free(c->after_end);
	*c->link = c->next;
	if (c->next != NULL)
		c->next->link = c->link;
	free(c);
}

void hold_drop_commands(struct container_hold *h)
{
	while (h->commands != NULL)
		command_free(h->commands);
}

static struct command *command_by_id(struct container_hold *h, uint64_t id)
{
	for (struct command *c = h->commands; c != NULL; c = c->next)
		if (c->id == id)
			return c;
	return NULL;
}

/* The last thing that happens to a command. */
static void command_finish(struct command *c, const struct error *err)
{
	const struct command_handler h = c->handler;
	const struct command_end end = c->end;
	struct command *dead = c;

	/* Unlinked and freed before the callback, which may release the whole hold. */
	command_free(c);
	h.on_end(h.ctx, dead, &end, err);
}

/* ---- reading ---- */

/* What is left of a pipe after the end belongs to a background child: init reads it from now on. */
static void pipes_discard(struct command *c)
{
	const struct init_id m = {{INIT_DISCARD, sizeof(m), 0}, c->id};
	int fds[2];
	size_t n = 0;

	for (int i = 0; i < 2; i++)
		if (c->pipe[i] >= 0)
			fds[n++] = c->pipe[i];
	/* If init does not take them they are closed, and the child gets SIGPIPE: better than to
	 * block it. */
	if (n > 0 && c->hold->channel >= 0)
		socket_send(c->hold->channel, &m, sizeof(m), NULL, 0, fds, n);
}

enum read_result { READ_EMPTY, READ_MORE, READ_END, READ_GONE };

static int own[2] = {-1, -1}; /* a pipe that no guest knows, empty between calls */

void commands_open(void)
{
	if (own[0] < 0 && pipe2(own, O_CLOEXEC | O_NONBLOCK) < 0)
		BUG("no pipe to read through: %s", strerror(errno));
}

/*
 * Reads without waiting, whatever the pipe's other end has made of its flags: a guest that has
 * taken init over may clear O_NONBLOCK at any time. So the bytes are moved to a pipe of our own
 * first.
 */
static ssize_t pipe_take(int pipe, char *data, size_t size)
{
	ssize_t n = splice(pipe, NULL, own[1], NULL, size, SPLICE_F_NONBLOCK);

	return n <= 0 ? n : read(own[0], data, (size_t)n);
}

/* Reads a bounded amount. READ_GONE: a callback ended the command. */
static enum read_result pipe_read(struct command *c, int which)
{
	struct container_hold *h = c->hold;
	uint64_t id = c->id;
	char data[READ_PIECE];
	bool freed = false;

	for (int i = 0; i < READ_STEPS; i++) {
		ssize_t n = pipe_take(c->pipe[which], data, sizeof(data));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return READ_EMPTY;
		if (n <= 0) {
			pipe_close(c, which);
			return READ_END;
		}
		bool *before = h->freed;

		h->freed = &freed;
		c->handler.on_output(c->handler.ctx, c, which == 1, data, (size_t)n);
		if (freed) {
			if (before != NULL)
				*before = true;
			return READ_GONE;
		}
		h->freed = before;
		if (command_by_id(h, id) == NULL)
			return READ_GONE;
		if (c->paused)
			return READ_MORE;
	}
	return READ_MORE;
}

/* Once the leader has ended: are both pipes read? Then the command is over. */
static void command_drain(struct command *c)
{
	bool late = clock_mono_ms() >= c->read_until_ms;
	bool more = false;

	for (int i = 0; i < 2; i++) {
		if (c->pipe[i] < 0)
			continue;
		enum read_result r = pipe_read(c, i);

		if (r == READ_GONE)
			return;
		more = more || r == READ_MORE;
	}
	if (c->paused || (more && !late))
		return; /* the events or the pause's end come back here */
	pipes_discard(c);
	command_finish(c, NULL);
}

static void on_pipe(evutil_socket_t fd, short what, void *arg)
{
	struct command *c = arg;

	if (c->done)
		command_drain(c);
	else
		pipe_read(c, fd == c->pipe[1]);
}

static void on_after_end(evutil_socket_t fd, short what, void *arg)
{
	command_drain(arg);
}

static void pipes_watch(struct command *c)
{
	for (int i = 0; i < 2; i++) {
		if (c->readable[i] == NULL)
			continue;
		if (c->paused)
			event_del(c->readable[i]);
		else
			event_add(c->readable[i], NULL);
	}
}

void command_pause(struct command *c, bool paused)
{
	const struct timeval now = {0, 0};

	if (c->paused == paused)
		return;
	c->paused = paused;
	pipes_watch(c);
	if (!paused && c->done) {
		/* The 100 ms count while we read. */
		c->read_until_ms = clock_mono_ms() + AFTER_END_MS;
		evtimer_add(c->after_end, &now);
	}
}

/* ---- the channel ---- */

static bool on_started(struct container_hold *h, const struct init_id *m, const int *fds)
{
	struct command *c = command_by_id(h, m->id);
	struct error e;
	struct stat st;

	if (c == NULL || c->started)
		return false;
	for (int i = 0; fds != NULL && i < 2; i++)
		if (fstat(fds[i], &st) < 0 || !S_ISFIFO(st.st_mode))
			return false;
	c->started = true;
	if (fds == NULL) {
		/* This process had no room for the pipes. */
		command_kill(c);
		error_no_files(&e);
		command_finish(c, &e);
		return true;
	}
	for (int i = 0; i < 2; i++) {
		fcntl(fds[i], F_SETFL, O_NONBLOCK);
		c->pipe[i] = fds[i];
		c->readable[i] =
		        event_new(h->client->base, fds[i], EV_READ | EV_PERSIST, on_pipe, c);
		if (c->readable[i] == NULL)
			BUG("no memory to watch a pipe");
	}
	pipes_watch(c);
	if (c->handler.on_started != NULL)
		c->handler.on_started(c->handler.ctx, c);
	return true;
}

static bool on_done(struct container_hold *h, const struct init_done *m)
{
	struct command *c = command_by_id(h, m->id);

	if (m->outcome < INIT_EXITED || m->outcome > INIT_KILLED ||
	        m->code > (m->outcome == INIT_SIGNALED ? 64 : 255))
		return false;
	if (c == NULL || c->done)
		return true;
	c->done = true;
	c->end = (struct command_end){
	        .outcome = (enum init_outcome)m->outcome,
	        .code = (int)m->code,
	        .memory = (m->flags & INIT_DONE_MEMORY) != 0,
	        .unsynced = (m->flags & INIT_DONE_UNSYNCED) != 0,
	        .started_ns = m->started_ns,
	        .ended_ns = m->ended_ns,
	};
	c->read_until_ms = clock_mono_ms() + AFTER_END_MS;
	c->after_end = evtimer_new(h->client->base, on_after_end, c);
	if (c->after_end == NULL)
		BUG("no memory for a timer");
	const struct timeval later = {0, AFTER_END_MS * 1000};

	evtimer_add(c->after_end, &later);
	command_drain(c);
	return true;
}

static void on_refused(struct container_hold *h, const struct init_refused *m)
{
	struct command *c = command_by_id(h, m->id);
	char step[sizeof(m->step) + 1] = "";
	int errnum = (int)(m->errnum & 0xfff);
	struct error e;

	if (c == NULL)
		return;
	for (size_t i = 0; i < sizeof(m->step) && m->step[i] >= ' ' && m->step[i] <= '~'; i++)
		step[i] = m->step[i];
	if (c->kill_asked && errnum == ECANCELED) { /* it was killed while it waited its turn */
		c->end = (struct command_end){.outcome = INIT_KILLED, .code = SIGKILL};
		command_finish(c, NULL);
		return;
	}
	if (strcmp(step, "cwd") == 0)
		error_set(&e, ERR_INVALID, "The working directory cannot be entered: %s.",
		        strerror(errnum));
	else if (strcmp(step, "user") == 0)
		error_set(&e, ERR_INVALID, "There is no such user in the container.");
	else if (strcmp(step, "exec") == 0)
		error_set(&e, ERR_INVALID, "The program cannot be started: %s.", strerror(errnum));
	else if (strcmp(step, "fork") == 0 && (errnum == EAGAIN || errnum == ENOMEM))
		error_set(&e, ERR_CAPACITY,
		        "The container's own processes leave no room for another one (%s).",
		        errnum == EAGAIN ? "limit of processes" : "limit of memory");
	else if (strcmp(step, "queue") == 0)
		error_set(&e, ERR_CAPACITY, "too many commands wait in this container");
	else if (errnum == EMFILE || errnum == ENFILE || errnum == ETOOMANYREFS)
		error_no_files(&e);
	else
		error_errno(&e, errnum, "the command could not be started (%s)", step);
	command_finish(c, &e);
}

union message {
	struct init_header h;
	struct init_id id;
	struct init_done done;
	struct init_refused refused;
};

/* False: init broke the protocol. */
static bool dispatch(
        struct container_hold *h, const union message *m, size_t n, const int *fds, size_t n_fds)
{
	if (n < sizeof(m->h) || m->h.size != n)
		return false;
	if (m->h.op == INIT_STARTED && n == sizeof(m->id) && (n_fds == 2 || n_fds == 0))
		return on_started(h, &m->id, n_fds == 2 ? fds : NULL);
	if (n_fds != 0)
		return false;
	if (m->h.op == INIT_DONE && n == sizeof(m->done))
		return on_done(h, &m->done);
	if (m->h.op == INIT_REFUSED && n == sizeof(m->refused))
		on_refused(h, &m->refused);
	else
		return false;
	return true;
}

void hold_channel_ready(struct container_hold *h)
{
	bool freed = false;

	h->freed = &freed;
	for (int i = 0; i < 16; i++) {
		union message m;
		int fds[4];
		size_t n_fds;
		ssize_t n = socket_receive(h->channel, &m, sizeof(m), fds, 4, &n_fds);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n > 0 && dispatch(h, &m, (size_t)n, fds, n_fds)) {
			if (freed)
				return;
			continue;
		}
		for (size_t k = 0; k < n_fds; k++)
			hurry_close(&fds[k]);
		hold_channel_broken(h);
		return;
	}
	h->freed = NULL;
}

void hold_channel_broken(struct container_hold *h)
{
	bool freed = false;
	struct error e;

	h->freed = &freed;
	if (h->readable != NULL)
		event_free(steal(h->readable));
	hurry_close(&h->channel);
	error_set(&e, ERR_IO, "the sandbox ended while the command ran");
	str_copy(e.type, sizeof(e.type), STR("init"));
	while (!freed && h->commands != NULL) {
		struct command *c = h->commands;

		c->end = (struct command_end){0};
		command_finish(c, &e);
	}
	if (!freed)
		h->freed = NULL;
}

void command_kill(struct command *c)
{
	const struct init_id m = {{INIT_KILL, sizeof(m), 0}, c->id};

	/* A channel that is full for now takes it the next time that it is asked. */
	if (c->hold->channel >= 0 && !c->kill_asked)
		c->kill_asked = socket_send(c->hold->channel, &m, sizeof(m), NULL, 0, NULL, 0) == 0;
}

/* ---- starting ---- */

static int put_string(struct buf *b, struct str s, const char *what, struct error *err)
{
	if (s.n > INIT_MAX_STRING)
		return error_set(
		        err, ERR_INVALID, "%s is longer than %d bytes.", what, INIT_MAX_STRING);
	if (s.n > 0 && memchr(s.p, 0, s.n) != NULL)
		return error_set(err, ERR_INVALID, "%s holds a NUL.", what);
	buf_append(b, s.p, s.n);
	buf_putc(b, 0);
	return 0;
}

/* Does a later variable of the caller have this name? name ends with '='. */
static bool env_given(const struct command_options *o, const char *name)
{
	for (size_t i = 0; i < o->envc; i++)
		if (str_starts(o->env[i], name))
			return true;
	return false;
}

/* The environment is exactly this and what the caller gave (DESIGN section 7). */
static int put_env(
        struct buf *b, const struct command_options *o, uint32_t *ret_n, struct error *err)
{
	static const char *const fixed[][2] = {
	        {"PATH=", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	        {"HOME=", "HOME=/workspace/home"},
	        {"LANG=", "LANG=C.UTF-8"},
	        {"TERM=", "TERM=dumb"},
	};
	char user[300] = "USER=root";
	uint32_t n = 0;

	if (o->envc > INIT_MAX_ENV - 8)
		return error_set(err, ERR_INVALID, "More than %d variables.", INIT_MAX_ENV - 8);
	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
		if (env_given(o, fixed[i][0]))
			continue;
		put_string(b, str_of(fixed[i][1]), "A variable", err);
		n++;
	}
	if (!env_given(o, "USER=")) {
		if (o->user.n > 0)
			snprintf(user, sizeof(user), "USER=%.*s", (int)strcspn(o->user.p, ":"),
			        o->user.p);
		put_string(b, str_of(user), "A variable", err);
		n++;
	}
	for (size_t i = 0; i < o->envc; i++, n++) {
		int r = put_string(b, o->env[i], "A variable", err);

		if (r < 0)
			return r;
	}
	*ret_n = n;
	return 0;
}

static int put_payload(
        struct buf *b, const struct command_options *o, struct init_run *m, struct error *err)
{
	int r;

	if (o->argc == 0 || o->argc > INIT_MAX_ARGS)
		return error_set(
		        err, ERR_INVALID, "A command has 1 to %d arguments.", INIT_MAX_ARGS);
	m->argc = (uint32_t)o->argc;
	for (size_t i = 0; i < o->argc; i++) {
		r = put_string(b, o->argv[i], o->shell ? "The command" : "An argument", err);
		if (r < 0)
			return r;
	}
	r = put_env(b, o, &m->envc, err);
	if (r < 0)
		return r;
	r = put_string(b, o->cwd.p != NULL ? o->cwd : STR("/workspace/home"),
	        "The working directory", err);
	if (r < 0)
		return r;
	r = put_string(b, o->user, "The user", err);
	if (r < 0)
		return r;
	if (buf_error(b) < 0)
		return error_set(err, ERR_INVALID,
		        "The command with its environment is longer than %d bytes.",
		        INIT_MAX_PAYLOAD);
	m->payload_len = (uint32_t)b->len;
	return 0;
}

/* A memfd with these bytes, at its beginning, closed to change. */
static int memfd_of(const char *name, struct str bytes, struct error *err)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	size_t done = 0;

	if (fd < 0)
		return error_errno(err, errno, "memfd");
	while (done < bytes.n) {
		ssize_t n = write(fd, bytes.p + done, bytes.n - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			int e = errno;

			close(fd);
			return error_errno(err, e, "memfd");
		}
		done += (size_t)n;
	}
	if (lseek(fd, 0, SEEK_SET) < 0 ||
	        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) <
	                0) {
		int e = errno;

		close(fd);
		return error_errno(err, e, "seal memfd");
	}
	return fd;
}

/* Sends RUN with its payload and descriptors. */
static int send_run(struct container_hold *h, struct init_run *m, const struct buf *payload,
        struct str stdin_data, struct error *err)
{
	int fds[2];
	size_t n = 0;
	int r = 0;
	bool inlined = payload->len <= INIT_MAX_INLINE;

	if (!inlined) {
		fds[n] = memfd_of("command", (struct str){payload->data, payload->len}, err);
		if (fds[n] < 0)
			return fds[n];
		m->flags |= INIT_RUN_MEMFD;
		n++;
	}
	if (stdin_data.p != NULL) {
		fds[n] = memfd_of("stdin", stdin_data, err);
		if (fds[n] < 0)
			r = fds[n];
		else
			n++;
		m->flags |= INIT_RUN_STDIN;
	}
	if (r == 0 && socket_send(h->channel, m, sizeof(*m), payload->data,
	                      inlined ? payload->len : 0, fds, n) < 0)
		r = error_errno(err, errno, "the command could not be sent");
	while (n > 0)
		close(fds[--n]);
	return r;
}

struct command *container_run(struct container_hold *h, const struct command_options *o,
        const struct command_handler *handler, struct error *err)
{
	_cleanup_buf_ struct buf payload = BUF_INIT(INIT_MAX_PAYLOAD);
	struct init_run m = {
	        .h = {INIT_RUN, sizeof(m), 0},
	        .id = h->next_id + 1,
	        .timeout_ms = o->timeout_ms,
	        .flags = (o->shell ? INIT_RUN_SHELL : 0) | (o->durable ? INIT_RUN_SYNC : 0),
	};
	struct command *c;

	if (h->channel < 0) {
		error_set(err, ERR_IO, "the sandbox has ended");
		return NULL;
	}
	if (o->stdin_data.n > MAX_STDIN) {
		error_set(err, ERR_INVALID, "Standard input is longer than %d bytes.", MAX_STDIN);
		return NULL;
	}
	if (put_payload(&payload, o, &m, err) < 0 ||
	        send_run(h, &m, &payload, o->stdin_data, err) < 0)
		return NULL;
	c = mem_alloc(sizeof(*c));
	c->hold = h;
	c->id = ++h->next_id;
	c->handler = *handler;
	c->pipe[0] = c->pipe[1] = -1;
	c->next = h->commands;
	c->link = &h->commands;
	if (c->next != NULL)
		c->next->link = &c->next;
	h->commands = c;
	return c;
}
