/* L: leaks, side channels, denial of service, as far as one process can try them. */
#include "escape.h"

#include <linux/audit.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/un.h>
#include <time.h>

static void l1_terminals(void)
{
	static const struct {
		const char *name;
		unsigned long request;
	} REQUESTS[] = {{"TIOCSTI", 0x5412}, {"TIOCLINUX", 0x541c}, {"TIOCSETD", 0x5423}};
	int master = open("/dev/ptmx", O_RDWR | O_CLOEXEC | O_NOCTTY);
	int unlocked = 0, slave, number = -1;
	char path[32];

	check(master >= 0, "no pseudo-terminal: %s", strerror(errno));
	check(ioctl(master, TIOCSPTLCK, &unlocked) == 0 && ioctl(master, TIOCGPTN, &number) == 0,
	        "ptmx");
	snprintf(path, sizeof path, "/dev/pts/%d", number);
	setsid();
	slave = open(path, O_RDWR | O_CLOEXEC);
	check(slave >= 0, "%s: %s", path, strerror(errno));
	for (size_t i = 0; i < COUNT(REQUESTS); i++)
		for (unsigned long high = 0; high < 3; high++) {
			unsigned long request =
			        REQUESTS[i].request | high * HIGH | (high == 2 ? 1ul << 63 : 0);

			refused(call(SYS_ioctl, (unsigned long)slave, request, TEXT("\2"), 0, 0),
			        EPERM, EPERM, REQUESTS[i].name);
			refused(call(SYS_ioctl, (unsigned long)master, request, TEXT("\2"), 0, 0),
			        EPERM, EPERM, REQUESTS[i].name);
		}
	check(ioctl(slave, 0x541d /* TIOCCONS */) < 0, "TIOCCONS");
	for (int fd = 0; fd < 3; fd++)
		check(!isatty(fd), "descriptor %d is a terminal", fd);
}

static void l5_log(void)
{
	char text[64];

	for (unsigned long type = 0; type < 11; type++)
		refused(call(SYS_syslog, type, TEXT(text), 1, 0, 0), EPERM, EPERM, "syslog");
	check(open("/dev/kmsg", O_RDONLY | O_CLOEXEC) < 0, "/dev/kmsg");
}

static void l6_mounts(void)
{
	static const char *const FILES[] = {"/proc/self/mountinfo", "/proc/self/mounts",
	        "/proc/self/mountstats", "/proc/mounts"};
	static const char *const BAD[] = {"/var/", "/srv/", "/images/", "/homes/", "/scratch/",
	        "base.erofs", "/data", " /sys/", "lowerdir=/", "/mnt/", "/old"};
	static char text[65536];
	char *line;

	for (size_t i = 0; i < COUNT(FILES); i++) {
		check(get(FILES[i], text, sizeof text) > 0 || i == 2, "%s", FILES[i]);
		for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
			for (size_t b = 0; b < COUNT(BAD); b++)
				check(!strstr(line, BAD[b]), "%s: %s", FILES[i], line);
	}
}

/* Mounts of others by their numbers. */
static void l6_numbers(void)
{
	struct {
		uint32_t size, spare;
		uint64_t id, param, ns;
	} request = {.size = 24, .id = ~0ull};
	static uint64_t own[1024], answer[512];
	long n = syscall(SYS_listmount, &request, own, COUNT(own), 0);
	uint64_t low = ~0ull, high = 0;

	if (n < 0) {
		check(errno == ENOSYS || errno == EPERM, "listmount: %s", strerror(errno));
		return;
	}
	check(n > 3 && n < (long)COUNT(own), "%ld mounts", n);
	for (long i = 0; i < n; i++) {
		low = own[i] < low ? own[i] : low;
		high = own[i] > high ? own[i] : high;
	}
	request.param = 1; /* STATMOUNT_SB_BASIC */
	for (uint64_t id = low - 500; id < high + 500; id++) {
		bool mine = false;

		for (long i = 0; i < n; i++)
			mine = mine || own[i] == id;
		request.id = id;
		check(syscall(SYS_statmount, &request, answer, sizeof answer, 0) < 0 || mine,
		        "mount %llu is another's", (unsigned long long)id);
	}
	request = (typeof(request)){.size = 32, .id = ~0ull, .ns = 0};
	for (uint64_t ns = 1; ns < 64; ns++) {
		request.ns = ns;
		check(syscall(SYS_listmount, &request, own, COUNT(own), 0) < 0,
		        "mounts of namespace %llu", (unsigned long long)ns);
	}
	int fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	/* NS_MNT_GET_NEXT, NS_MNT_GET_PREV */
	check(ioctl(fd, 0x8010b70b, answer) < 0 && ioctl(fd, 0x8010b70c, answer) < 0,
	        "the next mount namespace");
}

/* Pseudo-terminals are the whole machine's to run out of. */
static void l3_terminals(void)
{
	int n = 0;

	while (n < 2000 && open("/dev/ptmx", O_RDWR | O_CLOEXEC | O_NOCTTY) >= 0)
		n++;
	check(n >= 64 && n <= 256, "%d terminals", n);
}

static void l7_time(void)
{
	struct timespec now;
	struct timeval tv;
	struct timex t = {.modes = ADJ_OFFSET};

	/* What is the time already: should it work, nothing is moved. */
	clock_gettime(CLOCK_REALTIME, &now);
	tv = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
	refused(settimeofday(&tv, NULL), EPERM, EPERM, "settimeofday");
	refused(clock_settime(CLOCK_REALTIME, &now), EPERM, EPERM, "clock_settime");
	refused(syscall(SYS_adjtimex, &t), EPERM, EPERM, "adjtimex");
	refused(syscall(SYS_clock_adjtime, CLOCK_REALTIME, &t), EPERM, EPERM, "clock_adjtime");
	t.modes = 0;
	check(syscall(SYS_adjtimex, &t) >= 0, "adjtimex cannot be read");
	check(call(SYS_timerfd_create, 8 /* CLOCK_REALTIME_ALARM */, 0, 0, 0, 0) < 0,
	        "an alarm clock");
}

static void l15_scheduling(void)
{
	struct sched_param p = {.sched_priority = 1};
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} deadline = {.size = 48,
	        .policy = 6,
	        .runtime = 1000000,
	        .deadline = 10000000,
	        .period = 10000000};
	static const struct {
		int resource;
		rlim_t hard;
	} LIMITS[] = {{RLIMIT_MEMLOCK, 65536}, {RLIMIT_RTPRIO, 0}, {RLIMIT_NICE, 0},
	        {RLIMIT_MSGQUEUE, 819200}, {RLIMIT_SIGPENDING, 4096}, {RLIMIT_NOFILE, 65536}};
	struct rlimit r, more = {RLIM_INFINITY, RLIM_INFINITY};
	void *big = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	refused(call(SYS_sched_setscheduler, 0, SCHED_FIFO, TEXT(&p), 0, 0), EPERM, EPERM, "FIFO");
	refused(call(SYS_sched_setscheduler, 0, SCHED_RR, TEXT(&p), 0, 0), EPERM, EPERM, "RR");
	refused(call(SYS_sched_setattr, 0, TEXT(&deadline), 0, 0, 0), EPERM, EPERM, "DEADLINE");
	check(setpriority(PRIO_PROCESS, 0, -20) < 0, "a better priority");
	refused(call(SYS_ioprio_set, 1, 0, 1 << 13, 0, 0), EPERM, EPERM, "real-time I/O");
	refused(mlock(big, 1 << 20), ENOMEM, EPERM, "mlock 1 MiB");
	check(mlockall(MCL_CURRENT | MCL_FUTURE) < 0, "mlockall");
	check(shmctl(shmget(IPC_PRIVATE, 1 << 20, 0600), SHM_LOCK, NULL) < 0, "SHM_LOCK");
	for (size_t i = 0; i < COUNT(LIMITS); i++) {
		check(getrlimit(LIMITS[i].resource, &r) == 0 && r.rlim_max <= LIMITS[i].hard,
		        "limit %d is %llu", LIMITS[i].resource, (unsigned long long)r.rlim_max);
		check(setrlimit(LIMITS[i].resource, &more) < 0, "limit %d can be raised",
		        LIMITS[i].resource);
	}
	check(put("/proc/self/oom_score_adj", "-1") < 0, "a better oom score");
}

static void l16_network(void)
{
	static const char *const FILES[] = {"/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp",
	        "/proc/net/udp6", "/proc/net/raw", "/proc/net/unix", "/proc/net/packet"};
	char text[8192], *line;
	int lines;

	for (size_t i = 0; i < COUNT(FILES); i++) {
		lines = 0;
		if (get(FILES[i], text, sizeof text) < 0)
			continue;
		for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
			lines++;
		check(lines <= 1, "%s lists %d sockets in a new container", FILES[i], lines - 1);
	}
	get("/proc/net/dev", text, sizeof text);
	lines = 0;
	for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		lines += strchr(line, ':') != NULL;
	check(lines == 1 && strstr(text, ""), "%d network devices", lines);
}

/* Whatever answers on init's side: there must be nothing to speak to. */
static void l18_control(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char text[256];
	int fd;

	for (fd = 3; fd < 4096; fd++)
		check(send(fd, "\100\0\10\0\0\0\0\0", 8, MSG_DONTWAIT | MSG_NOSIGNAL) < 0,
		        "descriptor %d takes a message", fd);
	/* Autobound names of five hex digits. */
	for (unsigned int n = 0; n < 0x2000; n++) {
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		snprintf(text, sizeof text, "%05x", n);
		memcpy(a.sun_path + 1, text, 5);
		check(connect(fd, (void *)&a, offsetof(struct sockaddr_un, sun_path) + 6) < 0,
		        "abstract socket %s answers", text);
		close(fd);
	}
	check(get("/proc/1/cmdline", text, sizeof text) > 0 && !strchr(text, '/'),
	        "init's command line");
}

/* Everything that the list of known leaks names. */
static void l4_files(void)
{
	static const char *const ABSENT[] = {"/sys/devices/virtual/powercap", "/sys/firmware",
	        "/sys/class/dmi", "/sys/class/thermal", "/sys/kernel/debug", "/sys/kernel/tracing",
	        "/sys/kernel/security", "/sys/kernel/mm", "/sys/fs/cgroup", "/sys/fs/bpf",
	        "/sys/fs/pstore", "/sys/module", "/sys/block", "/sys/bus", "/proc/config",
	        "/proc/device-tree", "/proc/driver/rtc", "/proc/net/nf_conntrack", "/proc/lockdep",
	        "/proc/vmcore", "/proc/xen", "/proc/sys/fs/binfmt_misc/status"};
	static const char *const EMPTY[] = {"/proc/net/arp", "/proc/net/wireless",
	        "/proc/net/netlink_host", "/proc/net/bonding", "/proc/net/ip_tables_names"};
	char text[4096];

	check(directory_is_empty("/sys"), "/sys shows something");
	for (size_t i = 0; i < COUNT(ABSENT); i++)
		check(get(ABSENT[i], text, sizeof text) < 0 && directory_is_empty(ABSENT[i]), "%s",
		        ABSENT[i]);
	for (size_t i = 0; i < COUNT(EMPTY); i++) {
		char *end = get(EMPTY[i], text, sizeof text) > 0 ? strchr(text, '\n') : NULL;

		check(!end || !end[1], "%s lists something", EMPTY[i]);
	}
	for (size_t i = 0; i < n_masked; i++)
		masked_by("/proc", masked[i]);
	/* One line that says nothing of this machine's start, and nobody's build host. */
	check(get("/proc/cmdline", text, sizeof text) >= 0 && !strchr(text, '='), "cmdline: %s",
	        text);
	check(get("/proc/version", text, sizeof text) > 0 && !strstr(text, "gcc") &&
	                !strstr(text, "(root@"),
	        "version: %s", text);
}

const struct escape_case leak_cases[] = {{"L16", l16_network}, {"L1", l1_terminals},
        {"L3", l3_terminals}, {"L4", l4_files}, {"L5", l5_log}, {"L6", l6_mounts},
        {"L6-numbers", l6_numbers}, {"L7", l7_time}, {"L15", l15_scheduling}, {"L18", l18_control},
        {NULL, NULL}};
