#include "supervisor/scratch.h"

#include "base/clock.h"
#include "base/str.h"
#include "packet/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- life ---- */

int scratch_start(struct sandbox_host *h, struct scratch *s, uint64_t number, const char *name,
        const struct sandbox_spec *limits, struct fail *f)
{
	struct sandbox_spec spec = *limits;
	bool created;
	*s = (struct scratch){.host = h,
	        .sb = {.pidfd = -1, .control = -1, .userns = -1, .scratch = IMAGE_NONE},
	        .channel = -1};
	/* No hash of a container's name looks like this. */
	str_copy((char *)s->key, sizeof(s->key), str_of(name));
	spec.key = s->key;
	spec.hostname = name;
	int r = disk_home_delete(h->disk, s->key);
	if (r < 0)
		return fail_set(f, SUP_E_SYSTEM, r, "remove an old home");
	if (h->runtime->prepare(h, number, &s->sb, f) < 0)
		return -1;
	return h->runtime->claim(h, &s->sb, &spec, &created, NULL, f);
}

int scratch_ready(struct scratch *s, struct fail *f)
{
	static char text[64]; /* what f points to must last */
	uint64_t end = clock_mono_ms() + SCRATCH_STEP_MS;
	int pair[2];
	while (s->sb.stage != SANDBOX_IS_READY) {
		uint64_t now = clock_mono_ms();
		struct pollfd p = {.fd = s->sb.control, .events = POLLIN};
		if (now >= end)
			return fail_set(f, SUP_E_SYSTEM, ETIMEDOUT, "start of init");
		poll(&p, 1, (int)(end - now));
		switch (s->host->runtime->read(&s->sb, f, text)) {
		case SANDBOX_BROKEN:
			return -1;
		case SANDBOX_GONE:
			return fail_set(f, SUP_E_SYSTEM, ECONNRESET, "init ended");
		case SANDBOX_NOTHING:
		case SANDBOX_PREPARED:
		case SANDBOX_READY:
			break;
		}
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return fail_set(f, SUP_E_SYSTEM, errno, "socketpair");
	s->channel = pair[0];
	int r = s->host->runtime->channel(&s->sb, pair[1]);
	close(pair[1]);
	return r < 0 ? fail_set(f, SUP_E_SYSTEM, r, "send to init") : 0;
}

/* init's death is that of all in its pid namespace. */
static void wait_for_init(struct scratch *s)
{
	uint64_t end = clock_mono_ms() + SCRATCH_STEP_MS;
	while (s->sb.pid > 0 && clock_mono_ms() < end) {
		pid_t pid = waitpid(s->sb.pid, NULL, WNOHANG);
		if (pid == s->sb.pid || (pid < 0 && errno == ECHILD))
			s->sb.pid = 0;
		else
			usleep(500);
	}
}

bool scratch_end(struct scratch *s)
{
	uint64_t end = clock_mono_ms() + SCRATCH_STEP_MS;
	sys_close(&s->channel);
	s->host->runtime->kill(s->host, &s->sb);
	wait_for_init(s);
	bool gone = s->host->runtime->remove(s->host, &s->sb);
	while (!gone && clock_mono_ms() < end) {
		usleep(500);
		gone = s->host->runtime->remove(s->host, &s->sb);
	}
	if (gone)
		disk_home_delete(s->host->disk, s->key);
	return gone;
}

/* ---- commands ---- */

static size_t put_string(char *at, size_t room, const char *text)
{
	size_t n = strlen(text) + 1;
	if (n <= room)
		memcpy(at, text, n);
	return n <= room ? n : room;
}

void scratch_run(struct scratch *s, struct scratch_run *run, int input, const char *const argv[])
{
	struct {
		struct init_run is;
		char payload[INIT_MAX_INLINE];
	} m;
	size_t at = 0;
	*run = (struct scratch_run){.id = ++s->last_id, .out = -1};
	m.is = (struct init_run){.h = {.op = INIT_RUN, .size = sizeof(m.is)},
	        .id = run->id,
	        .flags = input >= 0 ? INIT_RUN_STDIN : 0};
	for (; argv[m.is.argc]; m.is.argc++)
		at += put_string(m.payload + at, sizeof(m.payload) - at, argv[m.is.argc]);
	/* Home as working directory; root. */
	at += put_string(m.payload + at, sizeof(m.payload) - at, "");
	at += put_string(m.payload + at, sizeof(m.payload) - at, "");
	m.is.payload_len = (uint32_t)at;
	run->refused = sys_send(s->channel, &m, sizeof(m.is) + at, &input, input >= 0 ? 1 : 0) < 0;
}

/* What init says of this run; of others it says what nobody waits for any more. */
static void take_message(struct scratch *s, struct scratch_run *run)
{
	union {
		struct init_header h;
		struct init_id id;
		struct init_done done;
		struct init_refused refused;
	} m;
	struct packet p;
	int r = packet_receive(s->channel, MSG_DONTWAIT, &m, sizeof(m), 2, &p);
	if (r == -EAGAIN)
		return;
	if (r <= 0) {
		run->refused = true;
		run->why = (struct init_refused){.errnum = ECONNRESET, .step = "channel"};
		return;
	}
	bool ours = p.len >= sizeof(m.id) && m.id.id == run->id;
	if (ours && m.h.op == INIT_STARTED && p.n_fds == 2 && !run->started) {
		run->started = true;
		run->out = steal_fd(p.fds[0]);
		fcntl(run->out, F_SETFL, O_RDONLY | O_NONBLOCK);
	} else if (ours && m.h.op == INIT_DONE && p.len == sizeof(m.done)) {
		run->done = true;
		run->end = m.done;
	} else if (ours && m.h.op == INIT_REFUSED && p.len == sizeof(m.refused)) {
		run->refused = true;
		run->why = m.refused;
	}
	packet_close(&p);
}

static void take_output(struct scratch_run *run)
{
	unsigned char over[4096];
	size_t room = sizeof(run->bytes) - run->len;
	ssize_t n = read(run->out, room ? run->bytes + run->len : over, room ? room : sizeof(over));
	if (n > 0 && room)
		run->len += (size_t)n;
	if (n == 0) {
		run->ended = true;
		sys_close(&run->out);
	}
}

bool scratch_pump(struct scratch *s, struct scratch_run *run, int ms)
{
	struct pollfd p[2] = {{.fd = run->refused ? -1 : s->channel, .events = POLLIN},
	        {.fd = run->out, .events = POLLIN}};
	if (poll(p, 2, ms) <= 0)
		return false;
	if (p[1].revents)
		take_output(run);
	if (p[0].revents)
		take_message(s, run);
	return true;
}

bool scratch_wait(struct scratch *s, struct scratch_run *run)
{
	uint64_t end = clock_mono_ms() + SCRATCH_STEP_MS, now;
	while (!(run->done && run->ended) && !run->refused && (now = clock_mono_ms()) < end)
		scratch_pump(s, run, (int)(end - now));
	return run->done && run->ended;
}

void scratch_kill(struct scratch *s, const struct scratch_run *run)
{
	struct init_id m = {.h = {.op = INIT_KILL, .size = sizeof(m)}, .id = run->id};
	sys_send(s->channel, &m, sizeof(m), NULL, 0);
}

void scratch_forget(struct scratch_run *run)
{
	sys_close(&run->out);
}
