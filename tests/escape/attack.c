/*
 * Attacks that go on for a time, or that only the outside can judge. The tests run them by name:
 *
 *   attack fuzz SECONDS SEED    random system calls (K7)
 *   attack refused NR:ERRNO…    each call must fail with just that error (K6)
 *   attack hog KIND             takes one kind of memory until something stops it (L9)
 *   attack network ADDR PORT…   egress's ports, the namespace's devices, those addresses (N)
 *   attack threads              threads until there are no more (L8)
 *   attack execs                starts itself anew for ever (L8)
 *   attack lurk                 a tree of processes that is hard to end (L14)
 *   attack stop                 stops everything that it may, itself included (L14)
 *   attack kill-all             a signal to all that it reaches (L15)
 *   attack tree FOLDER          what is hard to delete (L12)
 *   attack flip A B             exchanges two names for ever (X3, X6)
 *   attack reach                abstract names from standard input: connects to each (X14)
 */
#include "escape.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

/* ---- calls that are refused ---- */

static int refused_calls(char **words)
{
	unsigned int n = 0;

	for (; *words; words++, n++) {
		char *end;
		long nr = strtol(*words, &end, 10);
		int errnum = *end == ':' ? (int)strtol(end + 1, NULL, 10) : 0;

		for (int ones = 0; ones < 2; ones++) {
			unsigned long arg = ones ? -1ul : 0;
			long rc = call(nr, arg, arg, arg, arg, arg);
			int got = rc < 0 ? errno : 0;

			check(got == errnum, "call %ld: %s", nr, rc < 0 ? strerror(got) : "worked");
		}
	}
	if (*check_failure())
		printf("K6 FAIL %s\n", check_failure());
	else
		printf("K6 PASS %u calls\n", n);
	return *check_failure() != 0;
}

/* ---- processes ---- */

static void *wait_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static int threads(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	int n = 0;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 16384);
	while (n < 100000 && pthread_create(&thread, &attr, wait_for_ever, NULL) == 0)
		n++;
	printf("%d threads\n", n);
	return 0;
}

__attribute__((noreturn)) static void execs(void)
{
	for (;;) {
		if (fork() < 0 && errno == EAGAIN)
			sched_yield();
		execl("/proc/self/exe", "escape", "attack", "execs", NULL);
	}
}

static void ignore_everything(void)
{
	sigset_t all;

	for (int s = 1; s < 65; s++)
		signal(s, SIG_IGN);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
}

/* One of the tree; n says of which kind. Its title stays that of the program. */
static void lurker(int n)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "\0lurker"};
	int fd;

	setsid();
	if (fork() != 0)
		_exit(0);
	switch (n % 6) {
	case 0:
		raise(SIGSTOP);
		break;
	case 1: /* one that waits in the kernel for a child which does not end */
		if (vfork() == 0)
			for (;;)
				syscall(SYS_pause);
		break;
	case 2: /* stopped by its tracer, which does not look */
		if (fork() == 0) {
			ptrace(PTRACE_TRACEME, 0, 0, 0);
			raise(SIGSTOP);
		}
		break;
	case 3: /* a tracer and its tracee are each other's reaper */
		prctl(PR_SET_CHILD_SUBREAPER, 1);
		if (fork() == 0) {
			ptrace(PTRACE_SEIZE, getppid(), 0, 0);
			ptrace(PTRACE_INTERRUPT, getppid(), 0, 0);
		}
		break;
	case 4: /* has a name that only one may have at a time */
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		bind(fd, (void *)&a, offsetof(struct sockaddr_un, sun_path) + 7);
		listen(fd, 1);
		break;
	default: /* tells the next one to go on, which tells it */
		prctl(PR_SET_PDEATHSIG, SIGCONT);
		break;
	}
	for (;;)
		pause();
}

__attribute__((noreturn)) static void lurk(void)
{
	ignore_everything();
	for (int i = 0; i < 18; i++) {
		pid_t pid = fork();

		if (pid == 0)
			lurker(i);
		waitpid(pid, NULL, 0);
	}
	printf("up\n");
	fflush(stdout);
	for (;;)
		pause();
}

__attribute__((noreturn)) static void stop_all(void)
{
	for (int i = 0; i < 20; i++)
		if (fork() == 0)
			for (;;)
				pause();
	printf("up\n");
	fflush(stdout);
	kill(-1, SIGSTOP);
	raise(SIGSTOP);
	for (;;)
		pause();
}

static int kill_all(void)
{
	struct sched_param p = {0};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	setpgid(0, 1);
	sched_setparam(1, &p);
	setpriority(PRIO_USER, 0, 19);
	for (int sig = 1; sig < 65; sig++) {
		if (signal(sig, SIG_IGN) == SIG_ERR)
			continue; /* KILL and STOP; two that libc keeps for itself */
		kill(-1, sig);
		kill(0, sig);
		kill(-getpgrp(), sig);
	}
	printf("up\n");
	fflush(stdout);
	kill(-1, SIGKILL); /* all but the caller and process 1 */
	printf("alone\n");
	fflush(stdout);
	kill(0, SIGKILL);
	return 0;
}

/* ---- files ---- */

#define DEEP  2000
#define LINKS 5000

static int bomb_tree(const char *folder)
{
	static char name[256];
	int top = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int at = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
	int depth = 0, links = 0;
	unsigned long immutable = 0x10;

	fd = openat(top, "linked", O_WRONLY | O_CREAT | O_CLOEXEC, 0);
	for (; links < LINKS; links++) {
		char link[32];

		snprintf(link, sizeof link, "l%d", links);
		if (linkat(top, "linked", top, link, 0) < 0)
			break;
	}
	/* FS_IOC_SETFLAGS: nobody but root outside could delete it. */
	check(syscall(SYS_ioctl, fd, 0x40086602, &immutable) < 0, "an immutable file");
	mkdirat(top, "closed", 0);
	mknodat(top, "fifo", S_IFIFO, 0);
	symlinkat("/proc/self/fd/0", top, "link");
	close(openat(top, "\n\r\t\033[2J\377 -rf *", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	memset(name, 'd', sizeof name - 1);
	while (depth < DEEP && mkdirat(at, name, 0700) == 0) {
		/* Names of 255 bytes: a path of 4,096 ends after sixteen. */
		int next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (next < 0)
			break;
		fchmod(at, 0);
		close(at);
		at = next;
		depth++;
	}
	fchmod(at, 0);
	fchmod(top, 0);
	printf("%d deep, %d links%s%s\n", depth, links, *check_failure() ? ", " : "",
	        check_failure());
	return 0;
}

static int flip(const char *a, const char *b)
{
	printf("up\n");
	fflush(stdout);
	for (;;)
		if (syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, 2 /* RENAME_EXCHANGE */) < 0)
			return 1;
}

/* Each line is an abstract name in hex digits. */
static int reach(void)
{
	char line[256];
	int n = 0;

	while (fgets(line, sizeof line, stdin)) {
		static const int TYPES[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
		struct sockaddr_un a = {.sun_family = AF_UNIX};
		size_t len = 0;
		unsigned int byte;

		while (len < 100 && sscanf(line + 2 * len, "%2x", &byte) == 1)
			a.sun_path[1 + len++] = (char)byte;
		for (size_t t = 0; t < COUNT(TYPES); t++) {
			int fd = socket(AF_UNIX, TYPES[t] | SOCK_CLOEXEC, 0);

			refused(connect(fd, (void *)&a,
			                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			                            len)),
			        ECONNREFUSED, ECONNREFUSED, line);
			close(fd);
		}
		n++;
	}
	printf("%d names %s\n", n, *check_failure() ? check_failure() : "refused");
	return *check_failure() != 0;
}

int attack_run(char **words)
{
	const char *name = words[0];
	int n = 0;

	while (words[n])
		n++;
	if (!strcmp(name, "fuzz") && n == 3)
		return fuzz_run(
		        (unsigned int)strtoul(words[1], NULL, 10), strtoull(words[2], NULL, 10));
	if (!strcmp(name, "refused"))
		return refused_calls(words + 1);
	if (!strcmp(name, "hog") && n == 2)
		return hog_run(words[1]);
	if (!strcmp(name, "threads"))
		return threads();
	if (!strcmp(name, "execs"))
		execs();
	if (!strcmp(name, "lurk"))
		lurk();
	if (!strcmp(name, "stop"))
		stop_all();
	if (!strcmp(name, "kill-all"))
		return kill_all();
	if (!strcmp(name, "tree") && n == 2)
		return bomb_tree(words[1]);
	if (!strcmp(name, "flip") && n == 3)
		return flip(words[1], words[2]);
	if (!strcmp(name, "reach"))
		return reach();
	if (!strcmp(name, "network"))
		return network_run(words + 1);
	fprintf(stderr, "escape: no attack %s\n", name);
	return 2;
}
