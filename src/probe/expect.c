#include "probe/expect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct probe_row *row;

void expect_begin(struct probe_row *new_row)
{
	row = new_row;
	row->state = PROBE_OK;
	row->seen[0] = 0;
}

static void add(size_t at, const char *format, va_list ap)
{
	vsnprintf(row->seen + at, sizeof row->seen - at, format, ap);
}

void expect_that(bool held, const char *format, ...)
{
	size_t at = 0;
	va_list ap;

	if (held)
		return;
	/* What it said while it held is no news any more. */
	if (row->state == PROBE_FAILED) {
		at = strlen(row->seen);
		if (at > sizeof row->seen - 8)
			return;
		memcpy(row->seen + at, "; ", 3);
		at += 2;
	}
	row->state = PROBE_FAILED;
	va_start(ap, format);
	add(at, format, ap);
	va_end(ap);
}

void expect_refused(long rc, int one, int other, const char *what)
{
	int errnum = rc < 0 ? errno : 0;

	expect_that(rc < 0 && (errnum == one || errnum == other), "%s: %s", what,
	        rc < 0 ? strerror(errnum) : "worked");
}

void expect_seen(const char *format, ...)
{
	va_list ap;

	if (row->state == PROBE_FAILED)
		return;
	va_start(ap, format);
	add(0, format, ap);
	va_end(ap);
}

void expect_absent(const char *why)
{
	if (row->state == PROBE_FAILED)
		return;
	row->state = PROBE_ABSENT;
	snprintf(row->seen, sizeof row->seen, "%s", why);
}

ssize_t expect_read(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	size_t len = 0;
	ssize_t n = fd < 0 ? -1 : 0;
	int errnum;

	while (fd >= 0 && len < size - 1 && (n = read(fd, buf + len, size - 1 - len)) > 0)
		len += (size_t)n;
	errnum = errno;
	if (fd >= 0)
		close(fd);
	buf[len] = 0;
	errno = errnum;
	return n < 0 ? -1 : (ssize_t)len;
}

const char *expect_field(const char *text, const char *key, char word[64])
{
	size_t len = strlen(key);

	word[0] = 0;
	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, len) == 0 && line[len] == ':') {
			sscanf(line + len + 1, " %63s", word);
			break;
		}
	}
	return word;
}
