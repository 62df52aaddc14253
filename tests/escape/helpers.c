/* What every case of the hostile guest uses; see escape.h. */
#include "escape.h"

#include <dirent.h>
#include <stdarg.h>

#define CASE_SECONDS 60

static char failure[1024]; /* the first few things that went wrong */
static unsigned int n_checked;

void check(bool held, const char *format, ...)
{
	size_t len = strlen(failure);
	va_list ap;

	n_checked++;
	if (held || len > sizeof failure - 16)
		return;
	va_start(ap, format);
	if (len)
		len += (size_t)snprintf(failure + len, sizeof failure - len, "; ");
	vsnprintf(failure + len, sizeof failure - len, format, ap);
	va_end(ap);
}

void refused(long rc, int one, int other, const char *what)
{
	int errnum = rc < 0 ? errno : 0;

	check(rc < 0 && (errnum == one || errnum == other), "%s: %s", what,
	        rc < 0 ? strerror(errnum) : "worked");
}

const char *check_failure(void)
{
	return failure;
}

unsigned int check_count(void)
{
	return n_checked;
}

int run_case(const char *id, void (*run)(void))
{
	pid_t pid;
	int status = 0;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		alarm(CASE_SECONDS);
		run();
		if (*failure)
			printf("%s FAIL %s\n", id, failure);
		else
			printf("%s PASS %u checks\n", id, n_checked);
		fflush(stdout);
		_exit(*failure != 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status)) {
		printf("%s FAIL the case itself died: status %x\n", id, status);
		return 1;
	}
	return WEXITSTATUS(status);
}

long call(long nr, unsigned long a, unsigned long b, unsigned long c, unsigned long d,
        unsigned long e)
{
	return syscall(nr, a, b, c, d, e, 0ul);
}

int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));
	int errnum = errno;

	if (fd >= 0)
		close(fd);
	errno = errnum;
	return n < 0 ? -1 : 0;
}

ssize_t get(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);
	int errnum = errno;

	if (fd >= 0)
		close(fd);
	buf[n < 0 ? 0 : n] = 0;
	errno = errnum;
	return n;
}

bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

bool is_root(void)
{
	return geteuid() == 0;
}

int in_child(void (*f)(void))
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		f();
		_exit(0);
	}
	check(pid > 0, "fork: %s", strerror(errno));
	waitpid(pid, &status, 0);
	return status;
}

const char *const masked[] = {"acpi", "allocinfo", "asound", "bootconfig", "buddyinfo", "bus",
        "cgroups", "config.gz", "diskstats", "driver", "dynamic_debug", "fs", "interrupts", "iomem",
        "ioports", "irq", "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup",
        "kpagecount", "kpageflags", "latency_stats", "mdstat", "modules", "mtrr", "pagetypeinfo",
        "partitions", "pressure", "sched_debug", "schedstat", "scsi", "slabinfo", "softirqs",
        "sysrq-trigger", "timer_list", "timer_stats", "tty/driver", "vmallocinfo", "zoneinfo"};
const size_t n_masked = COUNT(masked);

bool directory_is_empty(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	bool empty = true;

	while (d && (e = readdir(d)))
		empty = empty && *e->d_name == '.';
	if (d)
		closedir(d);
	return empty;
}

void masked_by(const char *top, const char *name)
{
	char path[256], buf[64];
	struct stat st;
	int fd, again;

	snprintf(path, sizeof path, "%s/%s", top, name);
	if (lstat(path, &st) < 0)
		return;
	if (S_ISDIR(st.st_mode)) {
		check(directory_is_empty(path), "%s shows something", path);
		return;
	}
	check(get(path, buf, sizeof buf) <= 0, "%s can be read", path);
	check(open(path, O_WRONLY | O_CLOEXEC) < 0, "%s opens for writing", path);
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	again = open(path, O_RDONLY | O_CLOEXEC);
	check(again < 0 || read(again, buf, sizeof buf) <= 0, "%s by its O_PATH descriptor", name);
	close(fd);
}
