/*
 * What runs in the container in the worker's tests: makes trees that a shell is too slow for, and
 * exchanges names while the worker looks. Put into home by the test itself.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define EXCHANGE 2

static void check(int rc, const char *what)
{
	if (rc >= 0)
		return;
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static void make_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	check(fd, path);
	check((int)write(fd, text, strlen(text)), path);
	close(fd);
}

/*
 * n folders more, one in the other, with a file in the first and the last. What is done far down is
 * slow (Landlock looks at each folder above), so chains of a thousand are made and put together,
 * the lowest first.
 */
static void make_deep(long n)
{
	int home = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (long made = 0; made < n; made += 1000) {
		check(mkdir("chain", 0755), "mkdir");
		check(chdir("chain"), "chdir");
		for (int i = 0; i < 999; i++) {
			check(mkdir("d", 0755), "mkdir");
			check(chdir("d"), "chdir");
		}
		if (renameat(home, "deep", AT_FDCWD, "d") < 0)
			make_file("last", "1");
		check(fchdir(home), "fchdir");
		check(rename("chain", "deep"), "rename");
	}
	make_file("deep/first", "1");
}

/* n names more in one folder, all of them of one file: a home has not so many inodes. In no order.
 */
static void make_wide(long n)
{
	char name[64], first[64];
	struct stat st;
	long from = 0;

	mkdir("wide", 0755);
	check(chdir("wide"), "chdir");
	for (snprintf(first, sizeof first, "n%07d", 0); stat(first, &st) == 0;
	        snprintf(first, sizeof first, "n%07ld", from))
		from += n;
	make_file(first, "1");
	for (long i = 1; i < n; i++) {
		snprintf(name, sizeof name, "n%07ld", from + (i * 7919) % n);
		check(link(first, name), name);
	}
}

static void make_folders(long n)
{
	char name[64];

	check(mkdir("folders", 0755), "mkdir");
	for (long i = 0; i < n; i++) {
		snprintf(name, sizeof name, "folders/%05ld", i);
		check(mkdir(name, 0755), name);
	}
}

/* The tree of what file systems allow and tools trip over. */
static void make_odd(void)
{
	static const char *const NAMES[] = {"new\nline", "-rf", "\xff\xfe", "\xf0\x9f\x98\x80",
	        "trailing ", " ", "\\", "*", "..."};
	char longest[256];
	struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "odd/socket"};
	int fd;

	memset(longest, 'x', 255);
	longest[255] = '\0';
	check(mkdir("odd", 0755), "mkdir");
	check(mkdir("odd/empty", 0755), "mkdir");
	check(mkdir("odd/closed", 0755), "mkdir");
	make_file("odd/closed/in", "closed");
	make_file("odd/one", "one");
	check(link("odd/one", "odd/two"), "link");
	check(link("odd/one", "odd/closed/three"), "link");
	check(symlink("one", "odd/link"), "symlink");
	check(symlink("/etc/passwd", "odd/absolute"), "symlink");
	check(symlink("nowhere", "odd/dangling"), "symlink");
	check(symlink("../..", "odd/up"), "symlink");
	check(symlink("closed", "odd/folder"), "symlink");
	check(mkfifo("odd/fifo", 0666), "mkfifo");
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	check(bind(fd, (struct sockaddr *)&a, sizeof a), "bind");
	fd = open("odd/sparse", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	check(ftruncate(fd, 10LL << 30), "ftruncate");
	make_file("odd/mode000", "secret");
	check(chmod("odd/mode000", 0), "chmod");
	make_file("odd/setuid", "s");
	check(chmod("odd/setuid", 06755), "chmod");
	make_file("odd/other", "other");
	check(chown("odd/other", 1000, 1000), "chown");
	check(chmod("odd/other", 0600), "chmod");
	check(chmod("odd/closed", 0), "chmod");
	check(chdir("odd"), "chdir");
	for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
		make_file(NAMES[i], "name");
	make_file(longest, "name");
}

static void exchange(const char *a, const char *b)
{
	syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, EXCHANGE);
}

/* A file with a link out, with a FIFO, and with a link inside; a folder with a link to another. */
static void flip(long ms)
{
	struct timespec t;
	long long end;

	mkdir("flip", 0755);
	mkdir("flip/d", 0755);
	mkdir("etc", 0755);
	make_file("flip/f", "inside");
	make_file("flip/d/passwd", "inside");
	make_file("etc/passwd", "LINKED");
	check(symlink("/etc/passwd", "flip/out"), "symlink");
	check(symlink("../etc/passwd", "flip/in"), "symlink");
	check(symlink("/etc", "flip/dlink"), "symlink");
	check(symlink("../etc", "flip/dlink2"), "symlink");
	check(mkfifo("flip/fifo", 0666), "mkfifo");
	clock_gettime(CLOCK_MONOTONIC, &t);
	end = t.tv_sec * 1000LL + t.tv_nsec / 1000000 + ms;
	do {
		for (int i = 0; i < 200; i++) {
			exchange("flip/f", "flip/out");
			exchange("flip/f", "flip/out");
			exchange("flip/f", "flip/fifo");
			exchange("flip/f", "flip/fifo");
			exchange("flip/f", "flip/in");
			exchange("flip/f", "flip/in");
			exchange("flip/d", "flip/dlink");
			exchange("flip/d", "flip/dlink");
			exchange("flip/d", "flip/dlink2");
			exchange("flip/d", "flip/dlink2");
			exchange("flip", "etc");
			exchange("flip", "etc");
		}
		clock_gettime(CLOCK_MONOTONIC, &t);
	} while (t.tv_sec * 1000LL + t.tv_nsec / 1000000 < end);
}

static void fill_inodes(void)
{
	char name[32];

	check(mkdir("fill", 0755), "mkdir");
	for (long i = 0;; i++) {
		int fd;

		snprintf(name, sizeof name, "fill/%ld", i);
		fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0)
			break;
		close(fd);
	}
	printf("%s\n", strerror(errno));
}

int main(int argc, char **argv)
{
	long n = argc > 2 ? strtol(argv[2], NULL, 10) : 0;

	if (argc < 2)
		return 2;
	if (strcmp(argv[1], "deep") == 0)
		make_deep(n);
	else if (strcmp(argv[1], "wide") == 0)
		make_wide(n);
	else if (strcmp(argv[1], "folders") == 0)
		make_folders(n);
	else if (strcmp(argv[1], "odd") == 0)
		make_odd();
	else if (strcmp(argv[1], "flip") == 0)
		flip(n);
	else if (strcmp(argv[1], "inodes") == 0)
		fill_inodes();
	else
		return 2;
	return 0;
}
