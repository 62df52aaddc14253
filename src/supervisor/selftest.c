/*
 * Theory of operation.
 *
 * Two sandboxes, made by the very code that makes containers: `wide`, with ordinary limits, in
 * which the guest program (src/probe) makes its own probes, and `tight`, whose limits are used up
 * and which is the other one's neighbour. The program comes as the standard input of the first
 * command, a sealed memfd, and is executed by way of /proc/self/fd/0: nothing of the image runs.
 *
 * `inside` runs in `wide` while `tight` is frozen, killed and overfilled; its rows wait in the pipe
 * meanwhile. What takes memory comes last in `wide`, while `tight` uses its processor time up.
 *
 * A row that nobody filled has failed. Nothing here decides that a probe may be left out.
 */
#include "supervisor/selftest.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "probe/probe_image.h"
#include "supervisor/child.h"
#include "supervisor/image.h"
#include "supervisor/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define STDIN_PROGRAM "/proc/self/fd/0"
#define FREEZE_MS     5000 /* most that freezing may take */
#define QUIET_MS      10   /* a frozen container writes nothing for so long */
#define WIDE_NAME     "brig-selftest"
#define TIGHT_NAME    "brig-selftest-tight"

enum { WIDE_MEMORY = 64, TIGHT_MEMORY = 32, TIGHT_PIDS = 24, TIGHT_CPU = 200 };

_Static_assert(SUP_N_PROBES == PROBE_COUNT, "supervisor.h counts the probes");

struct selftest {
	struct sandbox_host *host;
	struct sup_probe *rows;
	int program; /* sealed memfd */
	struct scratch wide, tight;
	struct scratch_run inside, neighbour, burn, run;
};

static const struct sup_probe fresh[] = {
#define X(id, what, is_required, is_tried)                                                         \
	[PROBE_##id] = {.name = what,                                                              \
	        .tried = is_tried,                                                                 \
	        .required = is_required,                                                           \
	        .state = PROBE_FAILED,                                                             \
	        .seen = "not tried"},
        PROBE_LIST(X)
#undef X
};

__attribute__((format(printf, 4, 5))) static void judge(
        struct selftest *t, enum probe_number number, bool held, const char *format, ...)
{
	struct sup_probe *row = &t->rows[number];
	va_list ap;
	row->state = held ? PROBE_OK : PROBE_FAILED;
	va_start(ap, format);
	vsnprintf(row->seen, sizeof(row->seen), format, ap);
	va_end(ap);
}

/* Why a command did not do what it was for. */
static const char *what_became(const struct scratch_run *run, char text[96])
{
	if (run->refused)
		str_format(text, 96, "command refused: %.50s: %s", run->why.step,
		        strerror((int)(run->why.errnum & 0xfff)));
	else if (!run->started)
		str_format(text, 96, "command did not start");
	else if (!run->done)
		str_format(text, 96, "command did not end");
	else
		str_format(text, 96, "command ended with %s %u",
		        run->end.outcome == INIT_EXITED ? "code" : "signal", run->end.code);
	return text;
}

/* ---- rows of the guest ---- */

static void take_row(struct selftest *t, const struct probe_row *row)
{
	if (row->number >= PROBE_COUNT || row->state > PROBE_ABSENT)
		return;
	struct sup_probe *to = &t->rows[row->number];
	size_t n = 0;
	for (; n < sizeof(row->seen) - 1 && row->seen[n]; n++)
		to->seen[n] = row->seen[n] >= ' ' && row->seen[n] <= '~' ? row->seen[n] : '?';
	to->seen[n] = '\0';
	to->state = row->state;
}

/* Takes the rows that a command wrote. Those of `least` that it should have written and did not say
 * what became of it. */
static void take_rows(
        struct selftest *t, struct scratch *s, struct scratch_run *run, enum probe_number least)
{
	char text[96];
	scratch_wait(s, run);
	judge(t, least, false, "%s", what_became(run, text));
	for (size_t at = 0; at + sizeof(struct probe_row) <= run->len;
	        at += sizeof(struct probe_row)) {
		struct probe_row row;
		memcpy(&row, run->bytes + at, sizeof(row));
		take_row(t, &row);
	}
	scratch_forget(run);
}

static void start_inside(struct selftest *t)
{
	const struct sup_config *cfg = t->host->cfg;
	char number[PROBE_ARG_HOST_NAME][16];
	const uint32_t value[] = {[PROBE_ARG_FIRST_ID] = sup_uid_lease(cfg, t->wide.sb.lease),
	        [PROBE_ARG_PROCESSORS] = 1,
	        [PROBE_ARG_HOME_MIB] = cfg->home_mib,
	        [PROBE_ARG_SCRATCH_MIB] = cfg->scratch_mib,
	        [PROBE_ARG_TMP_MIB] = WIDE_MEMORY / 2,
	        [PROBE_ARG_SHM_MIB] = WIDE_MEMORY / 4};
	const char *argv[PROBE_ARGS + 1] = {STDIN_PROGRAM, PROBE_DO_INSIDE};
	for (int i = PROBE_ARG_FIRST_ID; i < PROBE_ARG_HOST_NAME; i++) {
		str_format(number[i], sizeof(number[i]), "%u", value[i]);
		argv[i] = number[i];
	}
	argv[PROBE_ARG_HOST_NAME] = WIDE_NAME;
	argv[PROBE_ARG_DATA] = cfg->data;
	scratch_run(&t->wide, &t->inside, t->program, argv);
}

/* ---- probes that need a hand from outside ---- */

static bool start_neighbour(struct selftest *t)
{
	const char *const argv[] = {STDIN_PROGRAM, PROBE_DO_NEIGHBOUR, NULL};
	uint64_t end = clock_mono_ms() + SCRATCH_STEP_MS;
	scratch_run(&t->tight, &t->neighbour, t->program, argv);
	while (t->neighbour.len == 0 && !t->neighbour.done && !t->neighbour.refused &&
	        clock_mono_ms() < end)
		scratch_pump(&t->tight, &t->neighbour, 1000);
	return t->neighbour.len == 1;
}

/* It must still be there after the other one looked for it. */
static void check_neighbour(struct selftest *t, bool was_there)
{
	char text[96];
	while (was_there && scratch_pump(&t->tight, &t->neighbour, 0))
		;
	if (!was_there || t->neighbour.done || t->neighbour.ended)
		judge(t, PROBE_NEIGHBOUR, false, "there was none: %s",
		        what_became(&t->neighbour, text));
}

/* A directory that is in no place of the guest's, in which everybody may do everything. */
static int make_outside(void)
{
	static const char *const options[] = {
	        "source", "brig", "size", "64k", "mode", "0777", NULL};
	int mnt = image_mount_type("tmpfs", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, options);
	int fd = mnt < 0 ? -1 : openat(mnt, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0) {
		sys_close(&mnt);
		return -1;
	}
	fchmod(fd, 0666);
	close(fd);
	return mnt;
}

static void probe_landlock(struct selftest *t)
{
	const char *const argv[] = {PROBE_COPY, PROBE_DO_LANDLOCK, NULL};
	_cleanup_close_ int outside = make_outside();
	int pair[2];
	/* init takes no directory as standard input, so it comes as one that a guest was sent. */
	if (outside < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		judge(t, PROBE_LANDLOCK, false, "no directory: %s", strerror(errno));
		return;
	}
	sys_send(pair[0], "d", 1, &outside, 1);
	scratch_run(&t->wide, &t->run, pair[1], argv);
	close(pair[0]);
	close(pair[1]);
	take_rows(t, &t->wide, &t->run, PROBE_LANDLOCK);
}

/*
 * The kernel says that it stands still, and indeed nothing more comes. Silence alone would prove
 * nothing on a busy machine, nor would the kernel's word where another group was frozen.
 */
static bool stands_still(struct selftest *t)
{
	uint64_t end = clock_mono_ms() + FREEZE_MS;
	while (!cgroup_is_frozen(&t->host->cgroup, t->tight.sb.name)) {
		if (clock_mono_ms() > end)
			return false;
		scratch_pump(&t->tight, &t->run, 1);
	}
	/* What was written before is in the pipe. */
	while (scratch_pump(&t->tight, &t->run, 0))
		;
	return !scratch_pump(&t->tight, &t->run, QUIET_MS);
}

static bool is_heard(struct selftest *t)
{
	uint64_t end = clock_mono_ms() + SCRATCH_STEP_MS;
	t->run.len = 0;
	while (t->run.len == 0 && !t->run.done && !t->run.refused && clock_mono_ms() < end)
		scratch_pump(&t->tight, &t->run, 1000);
	return t->run.len > 0;
}

static void probe_tree(struct selftest *t)
{
	const char *const argv[] = {STDIN_PROGRAM, PROBE_DO_TREE, NULL};
	char text[96];
	scratch_run(&t->tight, &t->run, t->program, argv);
	bool before = is_heard(t);
	t->host->runtime->freeze(t->host, &t->tight.sb, true);
	bool still = before && stands_still(t);
	t->host->runtime->freeze(t->host, &t->tight.sb, false);
	bool after = still && is_heard(t);
	judge(t, PROBE_FREEZE, after, "%s",
	        after     ? "silent while frozen, heard after"
	        : !before ? what_became(&t->run, text)
	        : !still  ? "it went on while frozen"
	                  : "it did not go on");
	uint64_t start = clock_mono_ns();
	scratch_kill(&t->tight, &t->run);
	bool gone = scratch_wait(&t->tight, &t->run) && t->run.end.outcome == INIT_KILLED;
	if (gone)
		judge(t, PROBE_TREE, true, "no writer was left after %llu us",
		        (unsigned long long)(clock_mono_ns() - start) / 1000);
	else
		judge(t, PROBE_TREE, false, "%s",
		        t->run.done && !t->run.ended ? "a daemon lives on"
		                                     : what_became(&t->run, text));
	scratch_forget(&t->run);
}

/* A program of `tight` that uses a limit up and judges by itself. */
static void start_limit(
        struct selftest *t, struct scratch_run *run, const char *what, uint32_t limit)
{
	char text[16];
	const char *const argv[] = {STDIN_PROGRAM, what, text, NULL};
	str_format(text, sizeof(text), "%u", limit);
	scratch_run(&t->tight, run, t->program, argv);
}

static void probe_memory(struct selftest *t)
{
	const char *const argv[] = {PROBE_COPY, PROBE_DO_MEMORY, NULL};
	char text[96];
	scratch_run(&t->wide, &t->run, -1, argv);
	scratch_wait(&t->wide, &t->run);
	bool killed =
	        t->run.done && t->run.end.outcome == INIT_SIGNALED && t->run.end.code == SIGKILL;
	bool named = t->run.end.flags & INIT_DONE_MEMORY;
	if (killed && named)
		judge(t, PROBE_MEMORY, true, "killed at %d MiB, and said so", WIDE_MEMORY);
	else
		judge(t, PROBE_MEMORY, false, "%s",
		        killed ? "killed, and not said to be for memory"
		               : what_became(&t->run, text));
	scratch_forget(&t->run);
}

static void probe_all(struct selftest *t)
{
	bool neighbour = start_neighbour(t);
	start_inside(t);
	probe_tree(t);
	start_limit(t, &t->run, PROBE_DO_PIDS, TIGHT_PIDS);
	take_rows(t, &t->tight, &t->run, PROBE_PIDS);
	take_rows(t, &t->wide, &t->inside, PROBE_IDS);
	check_neighbour(t, neighbour);
	start_limit(t, &t->burn, PROBE_DO_CPU, TIGHT_CPU);
	probe_landlock(t);
	probe_memory(t);
	take_rows(t, &t->tight, &t->burn, PROBE_CPU);
	scratch_forget(&t->neighbour);
}

/* ---- around them ---- */

/* A guest's program may be read by itself, unlike init's. */
static int seal_program(void)
{
	_cleanup_close_ int fd = child_seal("brig-probe", probe_image, probe_image_len);
	if (fd < 0)
		return fd;
	return fchmod(fd, 0555) < 0 ? -errno : steal_fd(fd);
}

static int start_both(struct selftest *t, struct fail *f)
{
	const struct sandbox_spec wide = {
	        .memory_mib = WIDE_MEMORY, .cpu_milli = 1000, .processes = 64};
	const struct sandbox_spec tight = {
	        .memory_mib = TIGHT_MEMORY, .cpu_milli = TIGHT_CPU, .processes = TIGHT_PIDS};
	if (scratch_start(t->host, &t->wide, UINT64_MAX, WIDE_NAME, &wide, f) < 0)
		return -1;
	if (scratch_start(t->host, &t->tight, UINT64_MAX - 1, TIGHT_NAME, &tight, f) < 0)
		return -1;
	if (scratch_ready(&t->wide, f) < 0)
		return -1;
	return scratch_ready(&t->tight, f);
}

int selftest_probe(struct sandbox_host *h, struct sup_probe rows[SUP_N_PROBES], struct error *err)
{
	static struct selftest t; /* large, and there is one start */
	struct fail f = {0};
	memcpy(rows, fresh, sizeof(fresh));
	t = (struct selftest){.host = h, .rows = rows, .program = seal_program()};
	if (t.program < 0)
		return error_errno(err, -t.program, "self-test: put the program in a memfd");
	int r = start_both(&t, &f);
	if (r == 0)
		probe_all(&t);
	/* Both at once; then each is waited for. */
	if (t.tight.host)
		h->runtime->kill(h, &t.tight.sb);
	bool gone = !t.wide.host || scratch_end(&t.wide);
	gone = (!t.tight.host || scratch_end(&t.tight)) && gone;
	sys_close(&t.program);
	if (r < 0)
		return error_set(err, ERR_UNSUPPORTED, "self-test: no sandbox can be made: %s%s%s",
		        f.step, f.errnum ? ": " : "", f.errnum ? strerror(abs(f.errnum)) : "");
	return gone ? 0
	            : error_set(err, ERR_TIMEOUT,
	                      "self-test: a mount or cgroup of a sandbox stays in use");
}

int selftest_check(struct sandbox_host *h, struct error *err)
{
	struct sup_probe rows[SUP_N_PROBES];
	char text[400] = "";
	size_t at = 0;
	uint64_t start = clock_mono_ms();
	int r = selftest_probe(h, rows, err);
	if (r < 0)
		return r;
	LOG(LOG_INFO, "selftest", LOG_N("ms", clock_mono_ms() - start));
	for (int i = 0; i < SUP_N_PROBES && at < sizeof(text); i++)
		if (!sup_probe_holds(&rows[i]))
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s (%s)",
			        at ? "; " : "", rows[i].name, rows[i].seen);
	return at ? error_set(err, ERR_UNSUPPORTED,
	                    "sandboxes do not hold on this host: probe %s; `brig selftest` tells "
	                    "more; `sandbox: off` serves without them",
	                    text)
	          : 0;
}
