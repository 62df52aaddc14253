/*
 * Tests of init as a whole: driver MODE SBX [TEST…], where MODE is hybrid, v1 or v2 and SBX the
 * helper that runs inside (tests/sandbox/helper.c). One sandbox serves all tests but the last, so
 * each also shows that the ones before left nothing behind. Exit code 77: not root, or no such
 * cgroups here.
 */
#include "client.h"
#include "sandbox.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SBX     "/workspace/home/sbx "
#define LONG_MS (20000 * (int)patience)
/* What must not wait for anything; all that would be waited for takes 100 s and more. */
#define SOON_NS (10000000000ULL * patience)

static struct sandbox sb;
static bool sb_lives;
static unsigned int patience =
        1;               /* BRIG_TEST_PATIENCE: how many times slower than usual this machine is */
static struct client gw; /* a fresh channel for each test */
static int n_failed, n_passed;
static const char *test_name;
static const char *const ENV[] = {"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME=/workspace/home", "LANG=C.UTF-8", NULL};

static void report(bool ok, int line, const char *what)
{
	n_passed += ok;
	n_failed += !ok;
	if (!ok)
		printf("not ok: %s, line %d: %s\n", test_name, line, what);
}
#define CHECK(condition) report((condition), __LINE__, #condition)

static const char *out(const struct client_run *r)
{
	return r->out[0] ? r->out[0] : "";
}

static const char *err(const struct client_run *r)
{
	return r->out[1] ? r->out[1] : "";
}

static struct client_run *start(struct client_command c)
{
	if (!c.env)
		c.env = ENV;
	return client_start(&gw, &c);
}

static struct client_run *run(struct client_command c)
{
	struct client_run *r = start(c);

	if (!client_wait(&gw, r, LONG_MS))
		report(false, __LINE__, "the command ended in time");
	return r;
}

static struct client_run *shell(const char *script)
{
	return run((struct client_command){.shell = script});
}

static bool ended(const struct client_run *r, uint32_t outcome, uint32_t code)
{
	if (r->done && r->end.outcome == outcome && r->end.code == code)
		return true;
	printf("# refused %d %s %u; outcome %u code %u: %s%s\n", r->refused,
	        r->refused ? r->why.step : "", r->refused ? r->why.errnum : 0, r->end.outcome,
	        r->end.code, out(r), err(r));
	return false;
}

static bool refused(const struct client_run *r, const char *step, int errnum)
{
	if (r->refused && !strcmp(r->why.step, step) && r->why.errnum == (uint32_t)errnum)
		return true;
	printf("# refused %d at '%s' with %u\n", r->refused, r->refused ? r->why.step : "",
	        r->refused ? r->why.errnum : 0);
	return false;
}

/* The line "key value" is in the text. */
static bool says(const char *text, const char *key, const char *value)
{
	char line[128];
	size_t n = (size_t)snprintf(line, sizeof line, "%s %s\n", key, value);

	for (const char *at = text; (at = strstr(at, line)); at += n)
		if (at == text || at[-1] == '\n')
			return true;
	printf("# no '%s %s'\n", key, value);
	return false;
}

static bool prints(const struct client_run *r, const char *text)
{
	if (!strcmp(out(r), text))
		return true;
	printf("# printed '%s' '%s'\n", out(r), err(r));
	return false;
}

/* Only init is left, soon. */
static bool is_empty(void)
{
	for (int i = 0; i < LONG_MS / 10; i++) {
		if (sandbox_count(&sb) == 1)
			return true;
		usleep(10000);
	}
	return false;
}

/* What script prints is text, soon. */
static bool comes_to(const char *script, const char *text)
{
	for (int i = 0; i < LONG_MS / 100; i++) {
		struct client_run *r = shell(script);
		bool good = !strcmp(out(r), text);

		client_forget(r);
		if (good)
			return true;
		usleep(100000);
	}
	return false;
}

/* ---- plain commands ---- */

static void test_exit_codes(void)
{
	char script[32];

	for (uint32_t i = 0; i < 256; i++) {
		snprintf(script, sizeof script, "exit %u", i);
		struct client_run *r = shell(script);

		CHECK(ended(r, INIT_EXITED, i));
		CHECK(r->end.flags == 0 && r->end.ended_ns > r->end.started_ns);
		client_forget(r);
	}
}

static void test_signals(void)
{
	static const int SIGNALS[] = {
	        SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGABRT, SIGKILL, SIGSEGV, SIGPIPE, SIGTERM};
	char script[64];

	for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++) {
		snprintf(script, sizeof script, "exec " SBX "signal %d", SIGNALS[i]);
		struct client_run *r = shell(script);

		CHECK(ended(r, INIT_SIGNALED, (uint32_t)SIGNALS[i]));
		CHECK(r->end.flags == 0);
		client_forget(r);
	}
}

static bool is_pattern(const char *bytes, size_t len, size_t expected)
{
	if (len != expected)
		return false;
	for (size_t i = 0; i < len; i++)
		if (bytes[i] != (char)('a' + (int)(i / 7 % 26)))
			return false;
	return true;
}

static void test_output(void)
{
	struct client_run *r = shell(SBX "bytes 1000003; " SBX "bytes 70001 err");

	CHECK(ended(r, INIT_EXITED, 0));
	CHECK(is_pattern(r->out[0], r->len[0], 1000003));
	CHECK(is_pattern(r->out[1], r->len[1], 70001));
	client_forget(r);
	r = shell("printf 'a\\0b\\377'");
	CHECK(r->len[0] == 4 && !memcmp(r->out[0], "a\0b\377", 4));
	client_forget(r);
	r = shell("exec >&- 2>&-; exit 3");
	CHECK(ended(r, INIT_EXITED, 3));
	client_forget(r);
}

static void test_scripts(void)
{
	static char big[100000];
	struct client_run *r = shell("cat <<'E'\nx\nE\n[[ a == a ]] && echo $0");

	CHECK(prints(r, "x\nbash\n"));
	client_forget(r);
	r = shell("echo 'unbalanced");
	CHECK(ended(r, INIT_EXITED, 2) && strstr(err(r), "unexpected EOF"));
	client_forget(r);
	/* A script as long as one argument may be, in a memfd. */
	memset(big, '#', sizeof big - 1);
	memcpy(big, "echo big; ", 10);
	r = run((struct client_command){.shell = big, .memfd = true});
	CHECK(prints(r, "big\n"));
	client_forget(r);
}

static void test_standard_input(void)
{
	struct client_run *r = shell("cat; read x || echo end; readlink /proc/self/fd/0");
	int p[2];

	CHECK(prints(r, "end\n/dev/null\n"));
	client_forget(r);
	CHECK(pipe2(p, O_CLOEXEC) == 0);
	CHECK(write(p[1], "given\n", 6) == 6);
	close(p[1]);
	r = start((struct client_command){.shell = "cat", .standard_input = p[0], .memfd = true});
	close(p[0]);
	CHECK(client_wait(&gw, r, LONG_MS) && prints(r, "given\n"));
	client_forget(r);
}

/* A file of the host as standard input can be read, but is no way to open anything outside. */
static void test_outside_file(void)
{
	bool landlock = syscall(SYS_landlock_create_ruleset, NULL, 0, 1) >= 2;
	char path[] = "/tmp/brig-test-file-XXXXXX";
	int fd = mkstemp(path);
	struct client_run *r;

	CHECK(fd >= 0 && write(fd, "outside\n", 8) == 8 && fchmod(fd, 0644) == 0 &&
	        lseek(fd, 0, SEEK_SET) == 0);
	unlink(path);
	r = start((struct client_command){
	        .shell = "cat; cat /proc/self/fd/0 >/dev/null 2>&1 || echo refused",
	        .standard_input = fd});
	CHECK(client_wait(&gw, r, LONG_MS));
	CHECK(prints(r, landlock ? "outside\nrefused\n" : "outside\n"));
	client_forget(r);
	close(fd);
	r = run((struct client_command){
	        .shell = "echo o > /dev/stdout; echo e > /dev/stderr; cat /dev/stdin",
	        .user = "1000",
	        .cwd = "/"});
	CHECK(prints(r, "o\n") && !strcmp(err(r), "e\n"));
	client_forget(r);
}

static void test_environment(void)
{
	static const char *const GIVEN[] = {"A=1", "B=two words", "EMPTY=", "PATH=/usr/bin", NULL};
	struct client_run *r = run((struct client_command){
	        .argv = (const char *const[]){"env", NULL}, .env = GIVEN, .cwd = "/"});

	CHECK(prints(r, "A=1\nB=two words\nEMPTY=\nPATH=/usr/bin\n"));
	client_forget(r);
	/* umask, session, signal dispositions, priority: a fresh process's. */
	r = shell("umask; ps -o sid= -p $$ | tr -d ' ' | grep -qx $$ && echo leader; nice; "
	          "grep -E '^Sig(Blk|Ign)' /proc/self/status");
	CHECK(prints(r, "0022\nleader\n0\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"));
	client_forget(r);
}

static void test_working_directory(void)
{
	static char path[64];
	struct client_run *r = shell(
	        "pwd; ls -di . | cut -d' ' -f2; stat -c '%U %a' /workspace /workspace/home /tmp; "
	        "readlink /mnt/data");

	CHECK(prints(r, "/workspace/home\n.\nroot 755\nroot 755\nroot 1777\n/workspace/home\n"));
	client_forget(r);
	r = run((struct client_command){.shell = "pwd", .cwd = "/usr/lib"});
	CHECK(prints(r, "/usr/lib\n"));
	client_forget(r);
	r = run((struct client_command){.shell = "pwd", .cwd = "/nowhere"});
	CHECK(refused(r, "cwd", ENOENT));
	client_forget(r);
	r = run((struct client_command){.shell = "pwd", .cwd = "/etc/passwd"});
	CHECK(refused(r, "cwd", ENOTDIR));
	client_forget(r);
	/* No descriptor of init's leads to the cgroup tree or anywhere else outside. */
	for (int i = 0; i < 64; i++) {
		snprintf(path, sizeof path, "/proc/%s/fd/%d", i % 2 ? "self" : "1", i / 2);
		r = run((struct client_command){.shell = "pwd", .cwd = path});
		CHECK(r->refused && !strcmp(r->why.step, "cwd"));
		client_forget(r);
	}
}

static void test_users(void)
{
	static const struct {
		const char *user, *ids;
	} USERS[] = {{"", "0 0 "}, {"root", "0 0 0"}, {"1000", "1000 1000 "},
	        {"1000:50", "1000 50 "}, {"nobody", "65534 65534 65534"}, {"0:7", "0 7 "}};
	static const struct {
		const char *user;
		int errnum;
	} BAD[] = {{"no-such-user", ENOENT}, {"65533", EPERM}, {"65536", EINVAL},
	        {"99999999999", EINVAL}, {"1000:", EINVAL}, {"-1", ENOENT}, {"1:x", EINVAL}};
	struct client_run *r;

	for (size_t i = 0; i < sizeof USERS / sizeof *USERS; i++) {
		r = run((struct client_command){
		        .argv = (const char *const[]){"/workspace/home/sbx", "ids", NULL},
		        .user = USERS[i].user});
		const char *caps =
		        !strncmp(USERS[i].ids, "0 ", 2) ? "00000000000004fb" : "0000000000000000";
		unsigned int uid = 0, gid = 0;
		char text[64];

		(void)!sscanf(USERS[i].ids, "%u %u", &uid, &gid);
		snprintf(text, sizeof text, "%u %u %u", uid, uid, uid);
		CHECK(says(out(r), "uid", text));
		snprintf(text, sizeof text, "%u %u %u", gid, gid, gid);
		CHECK(says(out(r), "gid", text));
		CHECK(says(out(r), "effective", caps) && says(out(r), "permitted", caps));
		CHECK(says(out(r), "inheritable", "0000000000000000"));
		CHECK(says(out(r), "bounding", "00000000000004fb"));
		CHECK(says(out(r), "no_new_privs", "1") && says(out(r), "seccomp", "2"));
		CHECK(says(out(r), "session", "1"));
		client_forget(r);
	}
	for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
		r = run((struct client_command){.shell = "id", .user = BAD[i].user});
		CHECK(refused(r, "user", BAD[i].errnum));
		client_forget(r);
	}
	/* A passwd that would block or mislead the child. */
	r = shell("cp /etc/passwd /tmp/p; rm /etc/passwd; mkfifo /etc/passwd");
	client_forget(r);
	r = run((struct client_command){.shell = "id", .user = "nobody"});
	CHECK(refused(r, "user", ENOENT));
	client_forget(r);
	/* bash would wait for the FIFO as well. */
	r = run((struct client_command){.argv = (const char *const[]){"rm", "/etc/passwd", NULL}});
	CHECK(ended(r, INIT_EXITED, 0));
	client_forget(r);
	r = shell("(head -c 10000 /dev/zero | tr '\\0' x; echo; cat /tmp/p; printf "
	          "'last:x:77:78::/:') "
	          "> /etc/passwd; echo 'more:x:900:last,nobody' >> /etc/group");
	CHECK(ended(r, INIT_EXITED, 0));
	client_forget(r);
	r = run((struct client_command){.shell = "id -u; id -G", .user = "last"});
	CHECK(prints(r, "77\n78 900\n"));
	client_forget(r);
}

static void test_exec(void)
{
	static char missing[] = "no-such-program";
	struct client_run *r =
	        run((struct client_command){.argv = (const char *const[]){missing, NULL}});

	CHECK(refused(r, "exec", ENOENT));
	client_forget(r);
	r = run((struct client_command){.argv = (const char *const[]){"/etc/passwd", NULL}});
	CHECK(refused(r, "exec", EACCES));
	client_forget(r);
	r = run((struct client_command){.argv = (const char *const[]){"", NULL}});
	CHECK(refused(r, "exec", ENOENT));
	client_forget(r);
	r = run((struct client_command){
	        .argv = (const char *const[]){"echo", "a b", "$HOME", NULL}});
	CHECK(prints(r, "a b $HOME\n"));
	client_forget(r);
	r = shell("printf 'echo plain $1' > /tmp/script; chmod +x /tmp/script");
	client_forget(r);
	r = run((struct client_command){.argv = (const char *const[]){"/tmp/script", "x", NULL}});
	CHECK(prints(r, "plain x\n"));
	client_forget(r);
	r = run((struct client_command){.argv = (const char *const[]){"true", NULL},
	        .env = (const char *const[]){"PATH=/nowhere::/usr/bin", NULL}});
	CHECK(ended(r, INIT_EXITED, 0));
	client_forget(r);
	/* Without bash there is sh. */
	r = shell("mv /usr/bin/bash /usr/bin/bash-away");
	CHECK(ended(r, INIT_EXITED, 0));
	client_forget(r);
	r = shell("echo $0; mv /usr/bin/bash-away /usr/bin/bash");
	CHECK(prints(r, "sh\n"));
	client_forget(r);
}

/* ---- ends ---- */

static void test_deadline(void)
{
	static const char *const SCRIPTS[] = {"echo ready; sleep 100",
	        "echo ready; trap '' TERM HUP INT; sleep 100",
	        "echo ready; setsid -f sleep 100; sleep 100",
	        "(sleep 100 &) ; echo ready; nohup sleep 100", SBX "ignore", SBX "daemon",
	        SBX "stop", SBX "vfork", "exec " SBX "daemon",
	        "echo ready; for i in 1 2 3 4 5 6 7 8; do (setsid " SBX
	        "daemon &) ; done; sleep 100",
	        "echo ready; yes > /dev/null", "echo ready; kill -STOP $$"};

	for (size_t i = 0; i < sizeof SCRIPTS / sizeof *SCRIPTS; i++) {
		/* A machine that is too busy to print in time is given more of it. */
		for (uint32_t ms = 400 * patience;; ms *= 4) {
			struct client_run *r =
			        run((struct client_command){.shell = SCRIPTS[i], .timeout_ms = ms});
			uint64_t took = r->end.ended_ns - r->end.started_ns;
			bool ready = !strncmp(out(r), "ready\n", 6);

			CHECK(ended(r, INIT_TIMED_OUT, SIGKILL));
			CHECK(took >= ms * 1000000ULL && took < ms * 1000000ULL + SOON_NS);
			CHECK(is_empty());
			client_forget(r);
			if (ready || ms >= (uint32_t)LONG_MS) {
				CHECK(ready);
				break;
			}
		}
	}
}

/* Until what counts in the file is seen to go on. */
#define GROWS "a=$(cat /tmp/n); until test $(cat /tmp/n) -gt $((a + 5)); do sleep 0.1; done"

static void test_background(void)
{
	struct client_run *r = shell("(" SBX "count /tmp/n &) ; echo over"), *s;
	uint64_t took = r->end.ended_ns - r->end.started_ns;

	CHECK(ended(r, INIT_EXITED, 0) && took < SOON_NS);
	CHECK(r->fds[0] >= 0);
	client_discard(&gw, r);
	/* It prints some 30 kB into a pipe of 64: without a reader it would stand still in the end.
	 */
	s = shell(GROWS "; echo alive");
	CHECK(prints(s, "alive\n"));
	client_forget(s);
	s = shell("sleep 6; " GROWS "; echo alive");
	CHECK(prints(s, "alive\n"));
	client_forget(s);
	/* The channel that started it goes; it stays. */
	client_close(&gw);
	client_open(&gw, sandbox_channel(&sb));
	s = shell(GROWS "; echo alive; pkill -x sbx");
	CHECK(prints(s, "alive\n"));
	CHECK(is_empty());
	client_forget(s);
}

static void test_kill(void)
{
	struct client_run *r = start(
	        (struct client_command){.shell = "echo ready; setsid -f sleep 100; sleep 100"});
	struct client_run *other = start((struct client_command){.shell = "sleep 0.5; echo other"});

	CHECK(client_wait_text(&gw, r, "ready\n", LONG_MS) && r->started && !r->done);
	client_kill(&gw, r);
	CHECK(client_wait(&gw, r, LONG_MS) && ended(r, INIT_KILLED, SIGKILL) && prints(r, "ready\n"));
	CHECK(client_wait(&gw, other, LONG_MS) && prints(other, "other\n"));
	client_kill(&gw, r); /* once more: no error */
	CHECK(is_empty());
	client_forget(r);
	client_forget(other);
}

static void test_eight_at_once(void)
{
	struct client_run *r[20], *last;
	uint64_t first = UINT64_MAX, order = 0;

	for (int i = 0; i < 20; i++)
		r[i] = start((struct client_command){.shell = "sleep 1"});
	last = start((struct client_command){.shell = "echo never"});
	client_kill(&gw, last);
	CHECK(client_wait(&gw, last, LONG_MS) && refused(last, "queue", ECANCELED));
	client_forget(last);
	for (int i = 0; i < 20; i++) {
		CHECK(client_wait(&gw, r[i], LONG_MS) && ended(r[i], INIT_EXITED, 0));
		CHECK(r[i]->end.started_ns >= order); /* first come, first served */
		order = r[i]->end.started_ns;
		first = first < order ? first : order;
	}
	/* Eight run at any moment: the ninth waits for the first to end, the seventeenth for the
	 * ninth. */
	CHECK(r[7]->end.started_ns < r[0]->end.ended_ns);
	CHECK(r[8]->end.started_ns - first >= 1000000000);
	CHECK(r[16]->end.started_ns - first >= 2000000000);
	for (int i = 0; i < 20; i++)
		client_forget(r[i]);
}

static void test_channel_end(void)
{
	struct client_run *r, *started[12];

	r = shell("(sleep 103 &) ; true"); /* of a finished command: stays */
	client_discard(&gw, r);
	client_forget(r);
	for (int i = 0; i < 12; i++)
		started[i] = start((struct client_command){
		        .shell = "echo x >> /tmp/ran; setsid -f sleep 101; echo on; sleep 102"});
	for (int i = 0; i < 8; i++)
		CHECK(client_wait_text(&gw, started[i], "on\n", LONG_MS));
	client_close(&gw);
	client_open(&gw, sandbox_channel(&sb));
	CHECK(comes_to("pgrep -c -x sleep", "1\n"));
	r = shell("pgrep -c -x sleep; wc -l < /tmp/ran; rm /tmp/ran; pkill -x sleep");
	CHECK(prints(r, "1\n8\n"));
	client_forget(r);
	CHECK(is_empty());
}

static void test_memory(void)
{
	struct client_run *r = run((struct client_command){
	        .argv = (const char *const[]){"/workspace/home/sbx", "memory", "400", NULL}});

	CHECK(ended(r, INIT_SIGNALED, SIGKILL) && r->end.flags == INIT_DONE_MEMORY);
	client_forget(r);
	r = shell(SBX "memory 400; exit $?");
	CHECK(ended(r, INIT_EXITED, 128 + SIGKILL) && r->end.flags == INIT_DONE_MEMORY);
	client_forget(r);
	r = shell("kill -KILL $$");
	CHECK(ended(r, INIT_SIGNALED, SIGKILL) && r->end.flags == 0);
	client_forget(r);
	r = shell("head -c 40000000 /dev/zero > /tmp/big; cat /proc/self/oom_score_adj");
	CHECK(prints(r, sb.kind == INIT_CG_V2 ? "0\n" : "500\n"));
	client_forget(r);
	/* As they were when the command began. */
	r = shell("free -m | awk '/^Mem/ {print $2, ($7 > 20 && $7 < 160), ($5 > 30), ($6 > 30)}'; "
	          "rm /tmp/big");
	CHECK(prints(r, "192 1 1 1\n"));
	client_forget(r);
}

static void test_fork_bomb(void)
{
	for (int i = 0; i < 2; i++) {
		struct client_run *r = run((struct client_command){
		        .shell = i ? SBX "bomb" : "echo ready; :(){ :|:& };:; sleep 100",
		        .timeout_ms = 700});
		uint64_t took = r->end.ended_ns - r->end.started_ns;

		CHECK(ended(r, INIT_TIMED_OUT, SIGKILL) && took < SOON_NS);
		client_forget(r);
		CHECK(is_empty());
		r = shell("echo again");
		CHECK(prints(r, "again\n"));
		client_forget(r);
	}
}

static void test_many_background(void)
{
	struct client_run *r;

	/* Leaves that stay busy, then become empty again: all are found, and none is reused while
	 * busy. */
	for (int i = 0; i < 60; i++) {
		r = shell("(sleep 100 >/dev/null 2>&1 &)");
		CHECK(ended(r, INIT_EXITED, 0));
		client_forget(r);
	}
	r = run((struct client_command){.shell = "sleep 100", .timeout_ms = 50});
	CHECK(ended(r, INIT_TIMED_OUT, SIGKILL));
	client_forget(r);
	r = shell("pgrep -c -x sleep; pkill -x sleep");
	CHECK(prints(r, "60\n"));
	client_forget(r);
	CHECK(is_empty());
	for (int i = 0; i < 80; i++) {
		r = shell("true");
		CHECK(ended(r, INIT_EXITED, 0));
		client_forget(r);
	}
}

static void test_sync(void)
{
	struct client_run *r =
	        run((struct client_command){.shell = "echo x > kept", .flags = INIT_RUN_SYNC});

	CHECK(ended(r, INIT_EXITED, 0) && r->end.flags == 0);
	client_forget(r);
}

/* ---- confinement ---- */

static void test_refused_calls(void)
{
	static const char *const ABSENT[] = {"clone3", "io_uring_setup", "userfaultfd", "bpf",
	        "keyctl", "add_key", "request_key", "too_new"};
	static const char *const USERS[] = {"", "1000"};

	for (size_t u = 0; u < 2; u++) {
		struct client_run *r =
		        run((struct client_command){.shell = SBX "try", .user = USERS[u]});
		char *line, *save = NULL;
		int n = 0;

		CHECK(ended(r, INIT_EXITED, 0));
		for (line = strtok_r(r->out[0], "\n", &save); line;
		        line = strtok_r(NULL, "\n", &save), n++) {
			const char *expected = "EPERM";
			char *space = strchr(line, ' ');

			if (!space) {
				CHECK(space);
				break;
			}
			*space = 0;
			for (size_t i = 0; i < sizeof ABSENT / sizeof *ABSENT; i++)
				if (!strcmp(line, ABSENT[i]))
					expected = "ENOSYS";
			if (strcmp(space + 1, expected))
				printf("# %s: %s\n", line, space + 1);
			CHECK(!strcmp(space + 1, expected));
		}
		CHECK(n > 50);
		client_forget(r);
	}
}

static void test_sockets(void)
{
	struct client_run *r = shell(SBX "sockets | grep -v -E ' (EPROTONOSUPPORT|94)$'");

	CHECK(prints(r, "1 1 0\n1 1 1\n1 2 0\n1 2 1\n1 3 0\n1 3 1\n1 5 0\n1 5 1\n2 1 0\n2 1 6\n2 2 "
	                "0\n2 2 17\n"
	                "10 1 0\n10 1 6\n10 2 0\n10 2 17\n16 2 0\n16 3 0\n"));
	client_forget(r);
	r = shell(SBX "sockets | grep '^16 3 9 '");
	CHECK(prints(r, "16 3 9 EPROTONOSUPPORT\n"));
	client_forget(r);
}

static void test_other_entries(void)
{
	struct client_run *r = run((struct client_command){
	        .argv = (const char *const[]){"/workspace/home/sbx", "int80", NULL}});

	/* SIGSEGV: the machine has no such entry (some hypervisors take it out of the guest). */
	CHECK((r->done && r->end.outcome == INIT_SIGNALED && r->end.code == SIGSEGV) ||
	        ended(r, INIT_SIGNALED, SIGSYS));
	client_forget(r);
	r = run((struct client_command){
	        .argv = (const char *const[]){"/workspace/home/sbx", "x32", NULL}});
	CHECK(ended(r, INIT_SIGNALED, SIGSYS));
	client_forget(r);
}

static void test_reach_of_init(void)
{
	struct client_run *r =
	        shell(SBX "open /proc/1/environ /proc/1/maps /proc/1/mem /proc/1/clear_refs "
	                  "/proc/1/fd /proc/1/ns/mnt /proc/1/root /proc/1/exe");
	char *line, *save = NULL;
	int n = 0;

	for (line = strtok_r(r->out[0], "\n", &save); line;
	        line = strtok_r(NULL, "\n", &save), n++) {
		if (!strstr(line, " EACCES ") || strstr(line, " ok"))
			printf("# %s\n", line);
		CHECK(strstr(line, " EACCES ") && !strstr(line, " ok"));
	}
	CHECK(n == 8);
	client_forget(r);
	r = shell("echo 1000 > /proc/1/oom_score_adj; echo 0 > /proc/1/coredump_filter; cat "
	          "/proc/1/oom_score_adj");
	CHECK(prints(r, "0\n"));
	client_forget(r);
	r = shell(SBX "become 65533");
	CHECK(prints(r, "setuid EPERM\nsetreuid EPERM\nsetresuid EPERM\nsetfsuid refused\n"));
	client_forget(r);
	/* Signals, whatever they are, do not reach it; and root inside reaches everybody else. */
	r = shell("for s in $(seq 1 64); do kill -$s 1 2>/dev/null; done; kill -9 -1; true");
	CHECK(r->done);
	client_forget(r);
	r = shell("echo still");
	CHECK(prints(r, "still\n"));
	client_forget(r);
	r = shell(SBX "fds");
	CHECK(!strncmp(out(r), "0 /dev/null\n1 pipe:", 19) && strstr(out(r), "\n2 pipe:") &&
	        !strstr(out(r), "\n3 "));
	client_forget(r);
}

static void test_proc_and_dev(void)
{
	struct client_run *r;

	r = shell("for f in kcore keys key-users timer_list kallsyms interrupts config.gz kmsg "
	          "slabinfo sysrq-trigger "
	          "sched_debug diskstats; do test -e /proc/$f || continue; cat /proc/$f && echo "
	          "leak $f; "
	          "echo x > /proc/$f && echo leak $f; done; ls /proc/pressure /proc/acpi; exit 0");
	CHECK(prints(r, "/proc/acpi:\n\n/proc/pressure:\n") || prints(r, "/proc/pressure:\n"));
	client_forget(r);
	r = shell(
	        "for f in kernel/core_pattern kernel/modprobe vm/drop_caches kernel/hostname "
	        "net/ipv4/ip_forward "
	        "user/max_user_namespaces; do echo 1 > /proc/sys/$f && echo leak $f; done; cat "
	        "/proc/cmdline; "
	        "cat /proc/sys/user/max_user_namespaces; mount -t tmpfs x /tmp; umount /proc/keys; "
	        "touch /dev/x; mknod /tmp/n c 1 3; ls /sys; ls -d /sys/fs/cgroup; exit 0");
	CHECK(prints(r, "\n0\n"));
	client_forget(r);
	r = shell(
	        "nproc; grep -c ^processor /proc/cpuinfo; grep -c ^cpu[0-9] /proc/stat; free -m "
	        "| awk '/^Mem/ {print $2}';"
	        "uptime >/dev/null && top -bn1 >/dev/null && ps aux >/dev/null && echo fine; cut "
	        "-d' ' -f2 /proc/version;"
	        "ps -o etimes= -p 1 | awk '{print ($1 >= 0 && $1 < 600)}'; python3 -c 'import os; "
	        "print(os.cpu_count())'");
	CHECK(prints(r, "1\n1\n1\n192\nfine\nversion\n1\n1\n"));
	client_forget(r);
	r = shell("echo > /dev/null && head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc "
	          "-c; ls -l /dev/full | cut -c1;"
	          "python3 -c 'import pty; pty.spawn([\"tty\"])' | tr -d '\\r'; touch /dev/shm/x "
	          "&& echo shm;"
	          "python3 -c 'import multiprocessing as m; m.Lock(); print(\"sem\")'");
	CHECK(prints(r, "4\n4\nc\n/dev/pts/0\nshm\nsem\n"));
	client_forget(r);
	r = shell(
	        "dd if=/dev/zero of=/tmp/f bs=1M count=100 2>/dev/null; test $(stat -c %s /tmp/f) "
	        "-gt 66000000 && echo full; rm /tmp/f;"
	        "dd if=/dev/zero of=/dev/shm/f bs=1M count=100 2>/dev/null; stat -c %s /dev/shm/f; "
	        "rm /dev/shm/f;"
	        "python3 -c '\nfor i in range(40000):\n  try: open(f\"/tmp/i{i}\", \"w\").close()\n"
	        "  except OSError: print(i > 10000); break'; rm -f /tmp/i*");
	CHECK(prints(r, "full\n33554432\nTrue\n"));
	client_forget(r);
}

static void test_names(void)
{
	struct client_run *r =
	        shell("hostname; cat /etc/hostname; getent hosts localhost | awk '{print $1}'; "
	              "python3 -c 'import socket; print(socket.gethostbyname(\"" SANDBOX_HOSTNAME
	              "\"))'");
	uint64_t took;

	CHECK(prints(r, SANDBOX_HOSTNAME "\n" SANDBOX_HOSTNAME "\n::1\n127.0.0.1\n"));
	client_forget(r);
	r = shell("curl -sS -m 20 -o /dev/null -w '%{http_code}' http://example.com/");
	took = r->end.ended_ns - r->end.started_ns;
	CHECK(ended(r, INIT_EXITED, 6) && prints(r, "000") && took < SOON_NS);
	client_forget(r);
	r = shell("python3 -m http.server -b 127.0.0.1 80 >/dev/null 2>&1 & for i in $(seq 50); do "
	          "sleep 0.1;"
	          "curl -s -o /dev/null -w '%{http_code}\\n' http://localhost/ && break; done; "
	          "kill %1");
	CHECK(strstr(out(r), "200\n"));
	client_forget(r);
}

static void test_limits(void)
{
	struct client_run *r = shell(SBX "limits");

	CHECK(says(out(r), "core", "1 1") && says(out(r), "memlock", "65536 65536") &&
	        says(out(r), "rtprio", "0 0"));
	CHECK(says(out(r), "nice", "0 0") && says(out(r), "msgqueue", "819200 819200"));
	CHECK(strstr(out(r), "nofile 4096 "));
	client_forget(r);
}

static void test_programs(void)
{
	static const struct {
		const char *script, *expected;
	} PROGRAMS[] = {
	        {"python3 -c 'print(sum(range(101)))'", "5050\n"},
	        {"python3 -c 'import subprocess as s, threading as t; x = t.Thread(target=lambda: "
	         "print(s.run([\"echo\", \"in\"], "
	         "capture_output=True).stdout)); x.start(); x.join()'",
	                "b'in\\n'\n"},
	        {"git init -q g && cd g && git config user.email a@b && git config user.name n && "
	         "echo x > f && git add f && "
	         "git commit -qm m && mv f h && git -c gc.auto=0 gc -q && git log --format=%s",
	                "m\n"},
	        {"printf 'c\\na\\nb\\n' | sort | xargs -n1 -P4 echo | sort | tail -1", "c\n"},
	        {"mkdir t; echo a > t/a; ln t/a t/b; tar czf t.tgz t && rm -r t && tar xzf t.tgz "
	         "&& cat t/b",
	                "a\n"},
	        {"echo '{\"a\":[1,2]}' | jq -c .a", "[1,2]\n"},
	        {"mkdir d && mv d e && mv /usr/share/doc /usr/share/doc2 && ls -d e && ls -d "
	         "/usr/share/doc2",
	                "e\n/usr/share/doc2\n"},
	        {"apt-get --version | head -1 | cut -d' ' -f1; dpkg -l bash | tail -1 | cut -c1-2",
	                "apt\nii\n"},
	        {"useradd -m u && su u -c 'id -un; touch ~/f && ls ~' && chown u:u /tmp && stat -c "
	         "%U /tmp; chown root /tmp",
	                "u\nf\nu\n"},
	        {"timeout 0.1 sleep 5; echo $?; nice -n 5 nice; strace -V >/dev/null 2>&1; flock "
	         "/tmp/l echo locked",
	                "124\n5\nlocked\n"},
	        {"mkdir p && cd p && /usr/bin/python3 -m venv --without-pip v && v/bin/python -c "
	         "'import sys; print(sys.prefix[-2:])'",
	                "/v\n"},
	        {"printf 'all: a b\\na b:\\n\\t@echo $@\\n' > Makefile; make -sj2 | sort",
	                "a\nb\n"},
	        {"find /usr/bin -name 'ba*sh' | head -1; unzip -v >/dev/null && echo unzip; file "
	         "/bin/sh | grep -c -i link",
	                "/usr/bin/bash\nunzip\n1\n"},
	        {"sleep 1 & kill -STOP $!; kill -CONT $!; wait; echo waited; cat /dev/stdin "
	         "</dev/null; echo to > /dev/stderr",
	                "waited\n"},
	        {"ls -la /root /var/lib/apt/lists/partial >/dev/null && echo readable",
	                "readable\n"},
	};

	for (size_t i = 0; i < sizeof PROGRAMS / sizeof *PROGRAMS; i++) {
		struct client_run *r = shell(PROGRAMS[i].script);

		CHECK(prints(r, PROGRAMS[i].expected));
		client_forget(r);
	}
}

/* A package goes in as root does it: unpacked, chowned, configured by its scripts. */
static void test_package(void)
{
	struct client_run *r = shell(
	        "mkdir -p k/DEBIAN k/usr/bin && printf 'Package: brig-t\\nVersion: "
	        "1\\nArchitecture: all\\nMaintainer: a <a@b>\\n"
	        "Description: t\\n' > k/DEBIAN/control && printf '#!/bin/sh\\nadduser --system "
	        "--group brigt\\nchown brigt /usr/bin/brig-t\\n' "
	        "> k/DEBIAN/postinst && printf '#!/bin/sh\\necho runs\\n' > k/usr/bin/brig-t && "
	        "chmod 755 k/DEBIAN/postinst k/usr/bin/brig-t && "
	        "dpkg-deb --root-owner-group -b k /tmp/t.deb >/dev/null && "
	        "apt-get install -y /tmp/t.deb >/tmp/log 2>&1; tail -3 /tmp/log >&2; brig-t && "
	        "stat -c %U /usr/bin/brig-t && apt-get remove -y brig-t >/dev/null 2>&1 && "
	        "! test -e /usr/bin/brig-t && echo removed");

	CHECK(prints(r, "runs\nbrigt\nremoved\n"));
	client_forget(r);
	r = shell("cd /tmp && /usr/bin/python3 - <<'E'\n"
	          "import zipfile\n"
	          "z = zipfile.ZipFile('pk-1-py3-none-any.whl', 'w')\n"
	          "z.writestr('pk.py', 'print(\"imported\")')\n"
	          "z.writestr('pk-1.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: "
	          "pk\\nVersion: 1\\n')\n"
	          "z.writestr('pk-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: "
	          "true\\nTag: py3-none-any\\n')\n"
	          "z.writestr('pk-1.dist-info/RECORD', '')\n"
	          "z.close()\n"
	          "E\n"
	          "/usr/bin/python3 -m pip install -q --no-index --break-system-packages "
	          "--root-user-action=ignore "
	          "./pk-1-py3-none-any.whl && /usr/bin/python3 -c 'import pk'");
	CHECK(prints(r, "imported\n"));
	client_forget(r);
	r = shell("git init -q --bare b.git && git clone -q file://$PWD/b.git w 2>&1; cd w && git "
	          "config user.email a@b "
	          "&& git config user.name n && echo x > f && git add f && git commit -qm m && git "
	          "push -q origin HEAD "
	          "&& git -C ../b.git rev-list --all --count");
	CHECK(strstr(out(r), "1\n"));
	client_forget(r);
}

/* ---- a gateway gone wrong ---- */

static struct init_run sound_run(void)
{
	return (struct init_run){.h = {INIT_RUN, sizeof(struct init_run), 0},
	        .id = 7,
	        .flags = INIT_RUN_SHELL,
	        .argc = 1,
	        .payload_len = 7};
}

/* Sends bytes on a channel of their own. Returns whether init closed it. */
static bool closes_on(const void *bytes, size_t len, const int *fds, int n_fds)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {0};
	int channel = sandbox_channel(&sb);
	struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c = (void *)control;
	struct timeval minute = {60, 0};
	char buf[256];
	bool closed;

	if (n_fds) {
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)n_fds * sizeof(int));
	}
	setsockopt(channel, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
	sendmsg(channel, &msg, MSG_NOSIGNAL);
	closed = recv(channel, buf, sizeof buf, 0) == 0;
	close(channel);
	return closed;
}

static void test_malformed(void)
{
	struct {
		struct init_run run;
		char payload[64];
	} m = {sound_run(), "true\0\0"};
	const size_t len = sizeof m.run + 7;
	struct init_id id = {.h = {INIT_KILL, sizeof id, 0}};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), dir = open("/", O_RDONLY | O_CLOEXEC);
	int loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct client_run *r;

#define VARIED(change)                                                                             \
	do {                                                                                       \
		m.run = sound_run();                                                               \
		memcpy(m.payload, "true\0\0", 7);                                                  \
		change;                                                                            \
		CHECK(closes_on(&m, len, NULL, 0));                                                \
	} while (0)
	VARIED(m.run.h.op = 0);
	VARIED(m.run.h.op = INIT_SETUP);
	VARIED(m.run.h.op = INIT_CHANNEL);
	VARIED(m.run.h.op = INIT_DONE);
	VARIED(m.run.h.size = 0);
	VARIED(m.run.h.size = 0xffff);
	VARIED(m.run.flags = 0x10);
	VARIED(m.run.flags = INIT_RUN_SHELL | INIT_RUN_MEMFD);
	VARIED(m.run.flags = INIT_RUN_SHELL | INIT_RUN_STDIN);
	VARIED(m.run.argc = 0);
	VARIED(m.run.argc = 2);
	VARIED(m.run.argc = UINT32_MAX);
	VARIED((m.run.flags = 0, m.run.argc = INIT_MAX_ARGS + 1));
	VARIED(m.run.envc = 1);
	VARIED(m.run.envc = UINT32_MAX);
	VARIED(m.run.payload_len = 0);
	VARIED(m.run.payload_len = 6);
	VARIED(m.run.payload_len = 8);
	VARIED(m.run.payload_len = UINT32_MAX);
	VARIED(m.payload[6] = 'x');
	VARIED(m.payload[4] = 'x');
	VARIED((m.run.argc = 1, m.run.envc = 1, memcpy(m.payload, "t\0=x\0\0", 7)));
	CHECK(closes_on(&m, 0, NULL, 0));
	CHECK(closes_on(&m, 3, NULL, 0));
	m.run = sound_run();
	memcpy(m.payload, "true\0\0", 7);
	CHECK(closes_on(&m, len, &null, 1));
	CHECK(closes_on(&m, sizeof m.run, NULL, 0));
	m.run.flags |= INIT_RUN_STDIN;
	CHECK(closes_on(&m, len, &dir, 1));
	CHECK(closes_on(&m, len, (int[]){null, null, null, null, null, null}, 6));
	/* A payload that could still change, and one that is too short. */
	m.run.flags = INIT_RUN_SHELL | INIT_RUN_MEMFD;
	CHECK(write(loose, "true\0\0", 7) == 7);
	CHECK(closes_on(&m, sizeof m.run, &loose, 1));
	CHECK(closes_on(&m, sizeof m.run, &null, 1));
	fcntl(loose, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK);
	m.run.payload_len = INIT_MAX_PAYLOAD;
	CHECK(closes_on(&m, sizeof m.run, &loose, 1));
	CHECK(closes_on(&id, sizeof id - 1, NULL, 0));
	CHECK(closes_on(&id, sizeof id, &null, 1));
	id.h.op = INIT_DISCARD;
	CHECK(closes_on(&id, sizeof id, NULL, 0));
	CHECK(closes_on(&id, sizeof id, &null, 1));
	CHECK(closes_on(&id, sizeof id, &dir, 1));
	close(null);
	close(dir);
	close(loose);
	r = shell("echo unharmed");
	CHECK(prints(r, "unharmed\n"));
	client_forget(r);
}

static uint32_t random_state = 20261129;

static uint32_t random_below(uint32_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 17;
	random_state ^= random_state << 5;
	return random_state % n;
}

/* Sound messages with a few bytes changed, some cut: init stays, and so does the next channel. */
static void test_random_messages(void)
{
	struct {
		struct init_run run;
		char payload[64];
	} m;
	struct client_run *r;
	int channel = sandbox_channel(&sb);

	for (int i = 0; i < 5000; i++) {
		size_t len = sizeof m.run + 7;

		m.run = sound_run();
		memcpy(m.payload, "true\0\0", 7);
		m.run.id = (uint64_t)i;
		for (uint32_t n = random_below(4); n; n--)
			((unsigned char *)&m)[random_below((uint32_t)len)] =
			        (unsigned char)random_below(256);
		if (random_below(10) == 0)
			len = random_below((uint32_t)len);
		if (send(channel, &m, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ||
		        random_below(20) == 0) {
			close(channel);
			channel = sandbox_channel(&sb);
		}
	}
	close(channel);
	r = shell("echo unharmed");
	CHECK(prints(r, "unharmed\n"));
	client_forget(r);
	CHECK(is_empty());
}

static void test_channel_that_does_not_read(void)
{
	struct {
		struct init_run run;
		char payload[64];
	} m = {sound_run(), "true\0\0"};
	int channel = sandbox_channel(&sb);
	struct client_run *r;
	int sent = 0;

	/* Each is refused, and nobody takes the refusals. */
	m.run.flags = 0;
	memcpy(m.payload, "nope\0\0", 7);
	for (m.run.id = 1;
	        m.run.id < 20000 && send(channel, &m, sizeof m.run + 7, MSG_NOSIGNAL) > 0;
	        m.run.id++)
		sent++;
	CHECK(sent > 100 && sent < 19000);
	CHECK(errno == EPIPE || errno == ECONNRESET);
	close(channel);
	r = shell("echo unharmed");
	CHECK(prints(r, "unharmed\n"));
	client_forget(r);
}

static void test_queue_is_bounded(void)
{
	struct {
		struct init_run run;
		char payload[16];
	} m = {sound_run(), "sleep 60\0\0"};
	int channel = sandbox_channel(&sb), n = INIT_MAX_RUNNING + INIT_MAX_WAITING, refusals = 0,
	    sent = 0;
	struct timeval ten = {10, 0}; /* well below what the commands take */
	struct init_refused why;

	m.run.payload_len = 11;
	setsockopt(channel, SOL_SOCKET, SO_RCVTIMEO, &ten, sizeof ten);
	for (m.run.id = 0; m.run.id < (uint64_t)n + 20; m.run.id++)
		sent += send(channel, &m, sizeof m.run + 11, MSG_NOSIGNAL) > 0;
	CHECK(sent == n + 20);
	for (int i = 0; i < 20 + INIT_MAX_RUNNING; i++)
		if (recv(channel, &why, sizeof why, 0) == sizeof why && why.h.op == INIT_REFUSED)
			refusals += why.errnum == EAGAIN && !strcmp(why.step, "queue");
	CHECK(refusals == 20);
	close(channel);
	CHECK(is_empty());
}

static void test_many_channels(void)
{
	int channels[INIT_MAX_CHANNELS + 4];
	struct client_run *r;
	char c;

	/* One is the test's own. */
	for (int i = 0; i < INIT_MAX_CHANNELS + 4; i++)
		channels[i] = sandbox_channel(&sb);
	r = shell("echo works");
	CHECK(prints(r, "works\n"));
	client_forget(r);
	CHECK(recv(channels[INIT_MAX_CHANNELS + 3], &c, 1, MSG_DONTWAIT) == 0);
	CHECK(recv(channels[0], &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	for (int i = 0; i < INIT_MAX_CHANNELS + 4; i++)
		close(channels[i]);
}

static void test_end(void)
{
	struct client_run *r =
	        start((struct client_command){.shell = "setsid -f sleep 100; echo on; sleep 100"});

	CHECK(client_wait_text(&gw, r, "on\n", LONG_MS) && r->started);
	CHECK(sandbox_end(&sb) == 0);
	sb_lives = false;
	client_pump(&gw, 500);
	CHECK(gw.closed && !r->done);
}

/* ---- set-up ---- */

static void change_cgroups(struct init_setup *m)
{
	m->cgroups = 9;
}

static void change_uid(struct init_setup *m)
{
	m->init_uid = 0;
}

static void change_size(struct init_setup *m)
{
	m->h.size++;
}

static void change_op(struct init_setup *m)
{
	m->h.op = INIT_CLAIM;
}

static void change_root_op(struct init_header *m)
{
	m->op = INIT_CHANNEL; /* one descriptor too */
}

static void change_root_size(struct init_header *m)
{
	m->size = sizeof(struct init_claim);
}

static void change_name(struct init_claim *m)
{
	memset(m->hostname, 'a', sizeof m->hostname);
}

static void change_name_text(struct init_claim *m)
{
	memcpy(m->hostname, "a b", 4);
}

static void change_tmp(struct init_claim *m)
{
	m->tmp_mib = 0;
}

static void change_memory(struct init_claim *m)
{
	m->memory_mib = UINT32_MAX;
}

/* An image that would lead init's mounts and files elsewhere. */
static void spoil_root(int upper)
{
	static const char *const LINKS[][2] = {{"/tmp", "proc"}, {"etc", "dev"},
	        {"/nowhere", "tmp"}, {"/tmp", "workspace"}, {"../../../../etc", "mnt"}};

	for (size_t i = 0; i < sizeof LINKS / sizeof *LINKS; i++)
		if (symlinkat(LINKS[i][0], upper, LINKS[i][1]) < 0)
			abort();
	if (mkdirat(upper, "etc", 0755) < 0 ||
	        symlinkat("/tmp/brig-test-canary", upper, "etc/resolv.conf") < 0 ||
	        symlinkat("/proc/1/environ", upper, "etc/hosts") < 0 ||
	        fchownat(upper, "etc", SANDBOX_BASE, SANDBOX_BASE, 0) < 0)
		abort();
}

static void spoil_root_files(int upper)
{
	static const char *const FILES[] = {"proc", "dev", "tmp", "workspace"};

	for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++)
		close(openat(upper, FILES[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
}

static void test_broken(void)
{
	static const struct {
		struct sandbox_change change;
		const char *step;
	} CASES[] = {{{.setup = change_cgroups}, "message"}, {{.setup = change_uid}, "message"},
	        {{.setup = change_size}, "message"}, {{.setup = change_op}, "message"},
	        {{.take_root = change_root_op}, "message"},
	        {{.take_root = change_root_size}, "message"}, {{.claim = change_name}, "message"},
	        {{.claim = change_name_text}, "message"}, {{.claim = change_tmp}, "message"},
	        {{.claim = change_memory}, "message"}};

	for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
		const char *step = sandbox_start_changed(&sb, &CASES[i].change);
		int status;

		if (strcmp(step, CASES[i].step))
			printf("# case %zu: %s\n", i, step);
		CHECK(!strcmp(step, CASES[i].step));
		status = sandbox_end(&sb);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	}
}

static void test_hostile_image(void)
{
	static const struct sandbox_change CHANGES[] = {
	        {.root = spoil_root}, {.root = spoil_root_files}};

	for (size_t i = 0; i < sizeof CHANGES / sizeof *CHANGES; i++) {
		const char *step = sandbox_start_changed(&sb, &CHANGES[i]);
		struct client_run *r;

		if (*step)
			printf("# broken at %s\n", step);
		CHECK(!*step);
		client_open(&gw, sandbox_channel(&sb));
		r = shell("stat -f -c %T /proc /dev /tmp; mountpoint -q /workspace/home && echo "
		          "mounted; stat -c '%F %a' /proc /dev /tmp "
		          "/workspace; cat /etc/hostname /etc/resolv.conf; grep -c localhost "
		          "/etc/hosts");
		CHECK(prints(r, "proc\ntmpfs\ntmpfs\nmounted\ndirectory 555\ndirectory 755\n"
		                "directory 1777\ndirectory 755\n" SANDBOX_HOSTNAME
		                "\nnameserver 127.0.0.1\n2\n"));
		client_forget(r);
		client_close(&gw);
		CHECK(sandbox_end(&sb) == 0);
		CHECK(access("/tmp/brig-test-canary", F_OK) < 0);
	}
}

/* ---- figures ---- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print_median(const char *what, double *ms, int n)
{
	qsort(ms, (size_t)n, sizeof *ms, compare);
	printf("# %s: median %.3f ms, p90 %.3f ms, n %d\n", what, ms[n / 2], ms[n * 9 / 10], n);
}

static void measure(void)
{
	double prepare[20], claim[20], command[200];

	for (int i = 0; i < 20; i++) {
		sandbox_start(&sb);
		prepare[i] = (double)(sb.prepared_ns - sb.exec_ns) / 1e6;
		claim[i] = (double)(sb.ready_ns - sb.claim_ns) / 1e6;
		client_open(&gw, sandbox_channel(&sb));
		for (int k = 0; k < 10; k++) {
			uint64_t t = sandbox_now_ns();
			struct client_run *r = shell("true");

			command[i * 10 + k] = (double)(r->done_ns - t) / 1e6;
			client_forget(r);
		}
		client_close(&gw);
		sandbox_end(&sb);
	}
	print_median("exec to PREPARED", prepare, 20);
	print_median("CLAIM to READY", claim, 20);
	print_median("RUN of true to DONE", command, 200);
}

/* ---- running them ---- */

struct test {
	const char *name;
	void (*run)(void);
};

static const struct test TESTS[] = {{"exit codes", test_exit_codes}, {"signals", test_signals},
        {"output", test_output}, {"scripts", test_scripts}, {"standard input", test_standard_input},
        {"file from outside", test_outside_file}, {"environment", test_environment},
        {"working directory", test_working_directory}, {"users", test_users}, {"exec", test_exec},
        {"deadline", test_deadline}, {"background", test_background}, {"kill", test_kill},
        {"eight at once", test_eight_at_once}, {"channel end", test_channel_end},
        {"memory", test_memory}, {"fork bomb", test_fork_bomb},
        {"many in the background", test_many_background}, {"sync", test_sync},
        {"refused calls", test_refused_calls}, {"sockets", test_sockets},
        {"other entries", test_other_entries}, {"reach of init", test_reach_of_init},
        {"proc and dev", test_proc_and_dev}, {"names", test_names}, {"limits", test_limits},
        {"programs", test_programs}, {"package", test_package},
        {"malformed messages", test_malformed}, {"random messages", test_random_messages},
        {"channel that does not read", test_channel_that_does_not_read},
        {"bounded queue", test_queue_is_bounded}, {"many channels", test_many_channels},
        {"end", test_end}};

/* These make sandboxes of their own. */
static const struct test ALONE[] = {{"broken set-up", test_broken},
        {"hostile image", test_hostile_image}, {"figures", measure}};

/* Without names all are; with "-" all but those after it. */
static bool is_wanted(char **names, const char *name)
{
	bool all = *names && !strcmp(*names, "-"), wanted = all || !*names;

	for (names += all; *names; names++)
		if (!strcmp(*names, name))
			wanted = !all;
	return wanted;
}

/* One sandbox for all of these. */
static void run_in_one(char **names)
{
	for (size_t i = 0; i < sizeof TESTS / sizeof *TESTS; i++) {
		int before = n_failed;

		test_name = TESTS[i].name;
		if (!is_wanted(names, test_name))
			continue;
		if (!sb_lives)
			sandbox_start(&sb);
		sb_lives = true;
		client_open(&gw, sandbox_channel(&sb));
		TESTS[i].run();
		client_close(&gw);
		printf("%s %s\n", n_failed == before ? "ok" : "FAILED", test_name);
	}
	if (sb_lives)
		sandbox_end(&sb);
}

static void run_alone(char **names)
{
	for (size_t i = 0; i < sizeof ALONE / sizeof *ALONE; i++) {
		int before = n_failed;

		test_name = ALONE[i].name;
		if (!is_wanted(names, test_name))
			continue;
		ALONE[i].run();
		printf("%s %s\n", n_failed == before ? "ok" : "FAILED", test_name);
	}
}

int main(int argc, char **argv)
{
	enum init_cgroups kind;

	if (argc < 3)
		return 2;
	kind = !strcmp(argv[1], "v1")   ? INIT_CG_V1
	       : !strcmp(argv[1], "v2") ? INIT_CG_V2
	                                : INIT_CG_HYBRID;
	if (getenv("BRIG_TEST_PATIENCE"))
		patience = (unsigned int)strtoul(getenv("BRIG_TEST_PATIENCE"), NULL, 10);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (geteuid() != 0 || !sandbox_open(kind, argv[2])) {
		printf("skipped: needs root and %s cgroups\n", argv[1]);
		return 77;
	}
	run_in_one(argv + 3);
	run_alone(argv + 3);
	sandbox_close();
	printf("%s: %d checks passed, %d failed\n", argv[1], n_passed, n_failed);
	return n_failed != 0;
}
