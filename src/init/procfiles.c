#include "init/procfiles.h"

#include "init/loop.h"
#include "init/sys.h"

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>

#define MAX_PROCESSORS 256
#define LOAD_STEP_S    5             /* as the kernel: the averages move every five seconds */
#define LOAD_ONE       2048          /* fixed point */
#define STAT_AGE_NS    5000000000ull /* memory.stat is read again after this, or when usage */
#define STAT_MOVED     (1 << 20)     /* has moved by so many bytes */

enum file {
	MEMINFO,
	CPUINFO,
	STAT,
	LOADAVG,
	VERSION,
	CMDLINE,
	SWAPS,
	BOOT_ID,
	CORE_PATTERN,
	N_FILES
};

static const char *const NAMES[N_FILES] = {"meminfo", "cpuinfo", "stat", "loadavg", "version",
        "cmdline", "swaps", "boot_id", "core_pattern"};

/* Those that do not lie directly in /proc. */
static const char *const PLACES[N_FILES] = {
        [BOOT_ID] = "sys/kernel/random/boot_id", [CORE_PATTERN] = "sys/kernel/core_pattern"};

static struct {
	int fds[N_FILES];
	int cpu_stat;     /* cpu.stat of run, or -1 */
	int memory_usage; /* of the memory group, or -1 */
	int memory_stat;
	uint64_t cached, shared;      /* bytes, from memory_stat */
	uint64_t stat_usage, stat_ns; /* usage and time when it was read; time 0: never */
	char processor[2048]; /* the first block of the real cpuinfo, after its first line */
	uint64_t memory;      /* bytes */
	uint32_t processors;
	uint64_t start_ns;
	int64_t boot_time; /* the machine's, seconds since the epoch */
	uint64_t load_at;  /* in steps since the start */
	uint64_t load[3];  /* fixed point */
	char text[MAX_PROCESSORS * 64 + 4096];
	size_t len;
} proc;

static void text_clear(void)
{
	proc.len = 0;
}

/* Appends; what does not fit is cut, as the sizes above make impossible. */
__attribute__((format(printf, 1, 2))) static void text_add(const char *format, ...)
{
	size_t room = sizeof proc.text - proc.len;
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(proc.text + proc.len, room, format, ap);
	va_end(ap);
	if (n > 0)
		proc.len += (size_t)n < room ? (size_t)n : room - 1;
}

/* One write, so that a reader at the same time sees old or new text, then the length. */
static void text_store(enum file file)
{
	if (pwrite(proc.fds[file], proc.text, proc.len, 0) == (ssize_t)proc.len)
		(void)!ftruncate(proc.fds[file], (off_t)proc.len);
}

/* What a small file says now, NUL-terminated; "" when there is none. */
static const char *read_text(int fd)
{
	static char buf[4096];
	ssize_t n = fd < 0 ? -1 : pread(fd, buf, sizeof buf - 1, 0);

	buf[n < 0 ? 0 : n] = 0;
	return buf;
}

/* The number behind `key` in lines of "key number", or 0; either key will do. */
static uint64_t number_in(const char *text, const char *key, const char *other_key)
{
	for (const char *line = text; *line;) {
		size_t len = strcspn(line, " \n");
		const char *end = strchr(line, '\n');

		if ((len == strlen(key) && !memcmp(line, key, len)) ||
		        (len == strlen(other_key) && !memcmp(line, other_key, len)))
			return strtoull(line + len, NULL, 10);
		line = end ? end + 1 : line + strlen(line);
	}
	return 0;
}

/* Time that the container's processes have used, in clock ticks of 10 ms. */
static void used_ticks(uint64_t *ret_user, uint64_t *ret_system)
{
	struct rusage u = {0};
	const char *text = read_text(proc.cpu_stat);

	if (*text) {
		*ret_user = number_in(text, "user_usec", "user_usec") / 10000;
		*ret_system = number_in(text, "system_usec", "system_usec") / 10000;
		return;
	}
	getrusage(RUSAGE_CHILDREN, &u);
	*ret_user = (uint64_t)u.ru_utime.tv_sec * 100 + (uint64_t)u.ru_utime.tv_usec / 10000;
	*ret_system = (uint64_t)u.ru_stime.tv_sec * 100 + (uint64_t)u.ru_stime.tv_usec / 10000;
}

/*
 * For memory.stat the kernel adds up what each processor counts, which takes longer than anything
 * else here (some 70 µs); usage alone costs little.
 */
static void read_memory_stat(uint64_t used)
{
	uint64_t now = loop_now_ns();
	uint64_t moved = used > proc.stat_usage ? used - proc.stat_usage : proc.stat_usage - used;
	const char *text;

	if (proc.stat_ns && moved < STAT_MOVED && now - proc.stat_ns < STAT_AGE_NS)
		return;
	text = read_text(proc.memory_stat);
	proc.cached = number_in(text, "total_cache", "file");
	proc.shared = number_in(text, "shmem", "shmem");
	proc.stat_usage = used;
	proc.stat_ns = now;
}

static void write_meminfo(void)
{
	uint64_t total = proc.memory, used = strtoull(read_text(proc.memory_usage), NULL, 10);
	uint64_t cached, shared;

	read_memory_stat(used);
	cached = proc.cached;
	shared = proc.shared;
	used = used < total ? used : total;
	cached = cached < used ? cached : used;
	shared = shared < cached ? shared : cached;
	text_clear();
	text_add("MemTotal:       %8llu kB\n", (unsigned long long)total / 1024);
	text_add("MemFree:        %8llu kB\n", (unsigned long long)(total - used) / 1024);
	/* What is in a tmpfs is cached too, but there is no swap that it could go to. */
	text_add("MemAvailable:   %8llu kB\n",
	        (unsigned long long)(total - used + cached - shared) / 1024);
	text_add("Buffers:        %8d kB\n", 0);
	text_add("Cached:         %8llu kB\n", (unsigned long long)cached / 1024);
	text_add("SwapCached:     %8d kB\nSwapTotal:      %8d kB\nSwapFree:       %8d kB\n", 0, 0,
	        0);
	text_add("Shmem:          %8llu kB\n", (unsigned long long)shared / 1024);
	text_add("SReclaimable:   %8d kB\n", 0);
	text_store(MEMINFO);
}

static void write_cpuinfo(void)
{
	text_clear();
	for (uint32_t i = 0; i < proc.processors; i++) {
		/* The block is the host's; on a many-processor container it is said for the first
		 * ones. */
		if (sizeof proc.text - proc.len < sizeof proc.processor + 64)
			break;
		text_add("processor\t: %u\n%s\n", i, proc.processor);
	}
	text_store(CPUINFO);
}

static void write_stat(uint64_t up_ticks, uint32_t running, uint64_t started)
{
	uint64_t user, sys, total = up_ticks * proc.processors, idle;
	uint32_t n = proc.processors;

	used_ticks(&user, &sys);
	idle = total > user + sys ? total - user - sys : 0;
	text_clear();
	text_add("cpu  %llu 0 %llu %llu 0 0 0 0 0 0\n", (unsigned long long)user,
	        (unsigned long long)sys, (unsigned long long)idle);
	for (uint32_t i = 0; i < n; i++)
		text_add("cpu%u %llu 0 %llu %llu 0 0 0 0 0 0\n", i, (unsigned long long)user / n,
		        (unsigned long long)sys / n, (unsigned long long)idle / n);
	text_add("intr 0\nctxt 0\nbtime %lld\n", (long long)proc.boot_time);
	text_add("processes %llu\nprocs_running %u\nprocs_blocked 0\nsoftirq 0\n",
	        (unsigned long long)started, running + 1);
	text_store(STAT);
}

/* The kernel's own averages, of the number of commands. */
static void write_loadavg(uint64_t up_ticks, uint32_t running, uint64_t started)
{
	static const uint64_t DECAY[3] = {1884, 2014, 2037}; /* over 1, 5 and 15 minutes */
	uint64_t step = up_ticks / 100 / LOAD_STEP_S;
	uint64_t n = step - proc.load_at;

	proc.load_at = step;
	if (n > 1000) /* longer than any average remembers */
		memset(proc.load, 0, sizeof proc.load);
	else
		while (n--)
			for (int i = 0; i < 3; i++)
				proc.load[i] = (proc.load[i] * DECAY[i] +
				                       running * (LOAD_ONE - DECAY[i]) * LOAD_ONE) /
				               LOAD_ONE;
	text_clear();
	for (int i = 0; i < 3; i++)
		text_add("%llu.%02llu ", (unsigned long long)(proc.load[i] / LOAD_ONE),
		        (unsigned long long)(proc.load[i] % LOAD_ONE * 100 / LOAD_ONE));
	text_add("%u/%llu %llu\n", running + 1, (unsigned long long)running + 1,
	        (unsigned long long)started + 1);
	text_store(LOADAVG);
}

void procfiles_write(uint32_t running, uint64_t started)
{
	uint64_t up_ticks = (loop_now_ns() - proc.start_ns) / 10000000;

	write_meminfo();
	write_stat(up_ticks, running, started);
	write_loadavg(up_ticks, running, started);
}

uint32_t procfiles_processors(void)
{
	return proc.processors;
}

void procfiles_claim(uint32_t memory_mib, uint32_t cpu_milli)
{
	uint32_t n = (cpu_milli + 999) / 1000;
	struct timespec up;

	n = n < 1 ? 1 : n > MAX_PROCESSORS ? MAX_PROCESSORS : n;
	proc.memory = (uint64_t)memory_mib << 20;
	proc.start_ns = loop_now_ns();
	clock_gettime(CLOCK_BOOTTIME, &up);
	proc.boot_time = time(NULL) - up.tv_sec;
	if (n != proc.processors) {
		proc.processors = n;
		write_cpuinfo();
	}
}

/* Keeps the first processor's block of cpuinfo without its first line, the number. */
static void read_processor(int procfs)
{
	char buf[sizeof proc.processor];
	int fd = openat(procfs, "cpuinfo", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof buf - 1);
	char *start, *end;

	if (fd >= 0)
		close(fd);
	buf[n < 0 ? 0 : n] = 0;
	start = strchr(buf, '\n');
	start = start ? start + 1 : buf;
	end = strstr(start, "\n\n");
	if (end)
		end[1] = 0;
	snprintf(proc.processor, sizeof proc.processor, "%s", start);
}

static void write_fixed(void)
{
	struct utsname u;

	/* Without who built the kernel and with which compiler. */
	text_clear();
	if (uname(&u) == 0)
		text_add("%s version %s %s\n", u.sysname, u.release, u.version);
	text_store(VERSION);
	text_clear();
	text_add("\n");
	text_store(CMDLINE);
	text_clear();
	text_add("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n");
	text_store(SWAPS);
	/* The host's names the program that takes its core files. */
	text_clear();
	text_add("core\n");
	text_store(CORE_PATTERN);
}

/* The host's would tell two containers that they are neighbours. */
static int write_boot_id(void)
{
	uint8_t b[16];

	if (syscall(SYS_getrandom, b, sizeof b, 0) != (long)sizeof b)
		return -1;
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	text_clear();
	for (size_t i = 0; i < sizeof b; i++)
		text_add("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", b[i]);
	text_add("\n");
	text_store(BOOT_ID);
	return 0;
}

/* A file beside the one that fd is, found by fd's name in the host's tree; -1 when there is none.
 */
static int open_beside(int fd, const char *name)
{
	char link[48], path[PATH_MAX];
	ssize_t n;
	char *slash;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof path - 64);
	if (n <= 0)
		return -1;
	path[n] = 0;
	slash = strrchr(path, '/');
	if (!slash)
		return -1;
	snprintf(slash + 1, 64, "%s", name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

int procfiles_prepare(int files, int procfs, int run, int oom)
{
	proc.cpu_stat = openat(run, "cpu.stat", O_RDONLY | O_CLOEXEC);
	proc.memory_usage = open_beside(oom, "memory.usage_in_bytes");
	if (proc.memory_usage < 0)
		proc.memory_usage = open_beside(oom, "memory.current");
	proc.memory_stat = open_beside(oom, "memory.stat");
	read_processor(procfs);
	for (int i = 0; i < N_FILES; i++) {
		int mount, rc;

		proc.fds[i] = openat(files, NAMES[i], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
		if (proc.fds[i] < 0)
			return -errno;
		mount = sys_open_tree(files, NAMES[i]);
		if (mount < 0)
			return -errno;
		rc = sys_mount_setattr(mount, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC);
		if (rc == 0)
			rc = sys_move_mount(mount, procfs, PLACES[i] ? PLACES[i] : NAMES[i]);
		if (sys_close(mount, rc) < 0)
			return -errno;
	}
	write_fixed();
	/* With the numbers of nobody yet: what takes time is the first writing of a file. */
	proc.processors = 1;
	proc.start_ns = loop_now_ns();
	write_cpuinfo();
	procfiles_write(0, 0);
	return write_boot_id() < 0 ? -errno : 0;
}

int procfiles_kept(int *fds)
{
	int n = 0;

	/* VERSION and those after it are written once. */
	for (int i = 0; i <= LOADAVG; i++)
		fds[n++] = proc.fds[i];
	if (proc.cpu_stat >= 0)
		fds[n++] = proc.cpu_stat;
	if (proc.memory_usage >= 0)
		fds[n++] = proc.memory_usage;
	if (proc.memory_stat >= 0)
		fds[n++] = proc.memory_stat;
	return n;
}
