/*
 * Runs a fuzz target over files: the corpus, or an input that once failed. Arguments are files and
 * folders (their regular files, not deeper). Each input lies in memory of exactly its size, so that
 * a sanitizer sees a read past its end.
 */
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { INPUT_MAX = 64 << 20 };

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

/* Runs the open file, and closes it. */
static void run_fd(int fd, size_t size, const char *name)
{
	_cleanup_free_ uint8_t *data = malloc(size ? size : 1);
	size_t n = 0;
	ssize_t r;

	if (!data)
		die(name);
	while (n < size && (r = read(fd, data + n, size - n)) != 0) {
		if (r < 0)
			die(name);
		n += (size_t)r;
	}
	close(fd);
	fprintf(stderr, "%s\n", name);
	LLVMFuzzerTestOneInput(data, n);
}

/* How many files were run. */
static int run_at(int folder, const char *name, bool deeper)
{
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC), count = 0;
	struct dirent *entry;
	struct stat st;
	DIR *d;

	if (fd < 0 || fstat(fd, &st) < 0)
		die(name);
	if (S_ISREG(st.st_mode) && st.st_size <= INPUT_MAX) {
		run_fd(fd, (size_t)st.st_size, name);
		return 1;
	}
	if (!S_ISDIR(st.st_mode) || !deeper) {
		close(fd);
		return 0;
	}
	d = fdopendir(fd);
	if (!d)
		die(name);
	while ((entry = readdir(d)))
		if (entry->d_name[0] != '.')
			count += run_at(dirfd(d), entry->d_name, false);
	closedir(d);
	return count;
}

int main(int argc, char **argv)
{
	int i, count = 0;

	for (i = 1; i < argc; i++)
		count += run_at(AT_FDCWD, argv[i], true);
	printf("%d inputs\n", count);
	return count > 0 ? 0 : 1; /* a test that ran nothing has not passed */
}
