#include "probe/process.h"

#include "probe/expect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

static void check_map(const char *path, unsigned long first)
{
	char text[128], wanted[128];
	unsigned long inside, outside, n;

	expect_read(path, text, sizeof text);
	snprintf(wanted, sizeof wanted, "0 %lu 65536", first);
	expect_that(sscanf(text, "%lu %lu %lu", &inside, &outside, &n) == 3 && inside == 0 &&
	                    outside == first && n == 65536 && strchr(text, '\n') &&
	                    !strchr(text, '\n')[1],
	        "%s is \"%.40s\", not %s", path, text, wanted);
}

void process_ids(unsigned long first)
{
	uid_t r = 1, e = 1, s = 1;
	gid_t groups[8];

	expect_that(getresuid(&r, &e, &s) == 0 && !r && !e && !s, "user ids %u %u %u", r, e, s);
	expect_that(getresgid(&r, &e, &s) == 0 && !r && !e && !s, "group ids %u %u %u", r, e, s);
	expect_that(getgroups(8, groups) <= 1, "has %d groups", getgroups(8, groups));
	expect_that(first >= 65536, "root inside is %lu outside", first);
	check_map("/proc/self/uid_map", first);
	check_map("/proc/self/gid_map", first);
	expect_seen("root inside is %lu outside; 65,536 ids", first);
}

void process_privileges(void)
{
	expect_that(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1, "no_new_privs is not set");
	expect_that(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) < 0, "no_new_privs can be cleared");
	expect_seen("set, and cannot be cleared");
}

/* The eight, written down here once more on purpose: what init means to leave is no proof of what
 * it left. */
#define ALLOWED                                                                                    \
	(1ull << CAP_CHOWN | 1ull << CAP_DAC_OVERRIDE | 1ull << CAP_FOWNER | 1ull << CAP_FSETID |  \
	        1ull << CAP_KILL | 1ull << CAP_SETGID | 1ull << CAP_SETUID |                       \
	        1ull << CAP_NET_BIND_SERVICE)

void process_capabilities(void)
{
	static const struct {
		const char *name;
		unsigned long long most;
	} SETS[] = {{"CapPrm", ALLOWED}, {"CapEff", ALLOWED}, {"CapBnd", ALLOWED}, {"CapInh", 0},
	        {"CapAmb", 0}};
	char text[4096], word[64];
	int bits = prctl(PR_GET_SECUREBITS, 0, 0, 0, 0);

	expect_read("/proc/self/status", text, sizeof text);
	for (size_t i = 0; i < COUNT(SETS); i++) {
		const char *value = expect_field(text, SETS[i].name, word);

		expect_that(*value && !(strtoull(value, NULL, 16) & ~SETS[i].most), "%s is %s",
		        SETS[i].name, value);
	}
	expect_that(bits >= 0 && bits & SECBIT_NO_CAP_AMBIENT_RAISE &&
	                    bits & SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED,
	        "securebits are %#x", bits);
	expect_seen("effective and bounding %s", expect_field(text, "CapBnd", word));
}

void process_seccomp(void)
{
	char text[4096], word[64];
	long filters = 0;

	expect_read("/proc/self/status", text, sizeof text);
	expect_that(strcmp(expect_field(text, "Seccomp", word), "2") == 0, "mode is %s", word);
	filters = strtol(expect_field(text, "Seccomp_filters", word), NULL, 10);
	expect_that(filters >= 3, "%ld filters", filters);
	expect_seen("mode 2, %ld filters", filters);
}

void process_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	char link[64], to[96] = "";

	expect_that(dir, "/proc/self/fd: %s", strerror(errno));
	while (dir && (e = readdir(dir))) {
		int fd = (int)strtol(e->d_name, NULL, 10);

		if (e->d_name[0] == '.' || fd <= 2 || fd == dirfd(dir))
			continue;
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		expect_that(readlink(link, to, sizeof to - 1) < 0, "descriptor %d is %s", fd, to);
	}
	if (dir)
		closedir(dir);
	expect_seen("0, 1 and 2");
}

void process_limits(void)
{
	const struct sched_param fifo = {.sched_priority = 1};
	const struct rlimit raised = {RLIM_INFINITY, RLIM_INFINITY};
	struct rlimit r;

	(void)setrlimit(RLIMIT_CORE, &raised);
	expect_that(getrlimit(RLIMIT_CORE, &r) == 0 && r.rlim_cur == 1 && r.rlim_max == 1,
	        "the limit of core files is %llu", (unsigned long long)r.rlim_cur);
	expect_that(getrlimit(RLIMIT_MEMLOCK, &r) == 0 && r.rlim_max <= 65536,
	        "%llu bytes may be locked", (unsigned long long)r.rlim_max);
	expect_that(getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_max <= 65536,
	        "%llu files may be open", (unsigned long long)r.rlim_max);
	expect_refused(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &fifo), EPERM, EACCES,
	        "real-time class");
	expect_refused(setpriority(PRIO_PROCESS, 0, -1), EACCES, EPERM, "negative nice value");
	expect_seen("no core files, 64 KiB locked, 65,536 files, no real-time");
}

/* Only init, this program and its child, which we are. */
void process_others(void)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	unsigned int n = 0;

	expect_that(dir, "/proc: %s", strerror(errno));
	while (dir && (e = readdir(dir))) {
		int pid = (int)strtol(e->d_name, NULL, 10);

		if (pid <= 0)
			continue;
		n++;
		expect_that(
		        pid == 1 || pid == getpid() || pid == getppid(), "process %d is seen", pid);
	}
	if (dir)
		closedir(dir);
	expect_seen("%u: init, this program and its child", n);
}

void process_processors(unsigned long allowed)
{
	unsigned long mask[16] = {0};
	unsigned int n = 0;

	expect_that(
	        syscall(SYS_sched_getaffinity, 0, sizeof mask, mask) > 0, "%s", strerror(errno));
	for (size_t i = 0; i < COUNT(mask); i++)
		n += (unsigned int)__builtin_popcountl(mask[i]);
	expect_that(n >= 1 && n <= allowed, "%u processors, not %lu", n, allowed);
	expect_seen("%u", n);
}

void process_init(void)
{
	static const char *const FILES[] = {"/proc/1/mem", "/proc/1/environ", "/proc/1/maps",
	        "/proc/1/fd/3", "/proc/1/root/", "/proc/1/cwd/", "/proc/1/exe"};
	char byte;
	struct iovec here = {&byte, 1}, there = {(void *)0x400000, 1};
	const struct rlimit none = {0, 0};
	unsigned long one = 1;

	for (size_t i = 0; i < COUNT(FILES); i++)
		expect_refused(open(FILES[i], O_RDONLY | O_CLOEXEC), EACCES, EPERM, FILES[i]);
	expect_refused(ptrace(PTRACE_SEIZE, 1, NULL, NULL), EPERM, EACCES, "ptrace");
	expect_refused(
	        syscall(SYS_process_vm_readv, 1, &here, 1, &there, 1, 0), EPERM, EPERM, "read");
	expect_refused(syscall(SYS_pidfd_getfd, 0, 3, 0), EPERM, ENOSYS, "pidfd_getfd");
	expect_refused(
	        syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, &none, NULL), EPERM, EPERM, "prlimit");
	expect_refused(
	        syscall(SYS_sched_setaffinity, 1, sizeof one, &one), EPERM, EPERM, "affinity");
	expect_refused(setpriority(PRIO_PROCESS, 1, 19), EPERM, EPERM, "nice value");
	expect_refused(setuid(65533), EPERM, EPERM, "init's own id");
	/* Does nothing to process 1 of a namespace that sends it from inside. */
	(void)kill(1, SIGKILL);
	(void)kill(1, SIGSTOP);
	expect_that(getppid() != 0, "init is dead");
	expect_seen("not to be traced, read, limited or killed");
}
