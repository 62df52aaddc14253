/*
 * passwd and group are read line by line with a fixed buffer, so that no guest file can make init's
 * child allocate; a line that does not fit is skipped. A file that is no regular one is not read at
 * all (opening a FIFO would block).
 */
#include "init/user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILE (1 << 20) /* bytes of one file that are looked at */
#define MAX_ID   65535

struct lines {
	int fd;
	size_t at, len, total;
	char buf[4096];
	char line[4096];
};

static int lines_open(struct lines *l, const char *path)
{
	struct stat st;

	*l = (struct lines){.fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
	if (l->fd < 0)
		return -errno;
	if (fstat(l->fd, &st) == 0 && S_ISREG(st.st_mode))
		return 0;
	close(l->fd);
	return -ENOENT;
}

static int lines_byte(struct lines *l)
{
	if (l->at == l->len) {
		ssize_t n = l->total < MAX_FILE ? read(l->fd, l->buf, sizeof l->buf) : 0;

		if (n <= 0)
			return -1;
		l->at = 0;
		l->len = (size_t)n;
		l->total += (size_t)n;
	}
	return (unsigned char)l->buf[l->at++];
}

static bool lines_next(struct lines *l)
{
	size_t n = 0;

	for (;;) {
		int c = lines_byte(l);

		if (c >= 0 && c != '\n') {
			if (n < sizeof l->line)
				l->line[n++] = (char)c;
			continue;
		}
		/* A full buffer is the mark of a line that did not fit. */
		if (n < sizeof l->line && (c >= 0 || n)) {
			l->line[n] = 0;
			return true;
		}
		if (c < 0)
			return false;
		n = 0;
	}
}

/* Parses digits up to `end`, at most MAX_ID. */
static bool parse_id(const char *text, const char *end, uint32_t *ret)
{
	uint32_t id = 0;

	if (text == end)
		return false;
	for (; text < end; text++) {
		if (*text < '0' || *text > '9')
			return false;
		id = id * 10 + (uint32_t)(*text - '0');
		if (id > MAX_ID)
			return false;
	}
	*ret = id;
	return true;
}

/* Cuts the line at its colons. Returns how many fields there are, at most max. */
static int split(char *line, char **fields, int max)
{
	int n = 0;

	while (n < max) {
		fields[n++] = line;
		line = strchr(line, ':');
		if (!line)
			break;
		*line++ = 0;
	}
	return n;
}

static bool list_has(const char *list, const char *name)
{
	size_t len = strlen(name);

	while (*list) {
		size_t n = strcspn(list, ",");

		if (n == len && !memcmp(list, name, n))
			return true;
		list += n + (list[n] == ',');
	}
	return false;
}

static void add_groups(const char *name, struct user *u)
{
	static struct lines l;
	char *f[5];
	uint32_t gid;

	if (lines_open(&l, "/etc/group") < 0)
		return;
	while (u->n_groups < USER_MAX_GROUPS && lines_next(&l))
		if (split(l.line, f, 5) >= 4 && list_has(f[3], name) &&
		        parse_id(f[2], f[2] + strlen(f[2]), &gid))
			u->groups[u->n_groups++] = gid;
	close(l.fd);
}

static int look_up(const char *name, struct user *ret)
{
	static struct lines l;
	struct user u = {0};
	char *f[5];
	int rc = lines_open(&l, "/etc/passwd");

	if (rc < 0)
		return rc;
	rc = -ENOENT;
	while (rc && lines_next(&l))
		if (split(l.line, f, 5) >= 4 && !strcmp(f[0], name) &&
		        parse_id(f[2], f[2] + strlen(f[2]), &u.uid) &&
		        parse_id(f[3], f[3] + strlen(f[3]), &u.gid))
			rc = 0;
	close(l.fd);
	if (rc)
		return rc;
	u.groups[u.n_groups++] = u.gid;
	add_groups(name, &u);
	*ret = u;
	return 0;
}

int user_resolve(const char *text, struct user *ret)
{
	const char *end = text + strlen(text);
	const char *colon = strchr(text, ':');
	struct user u = {0};

	if (!*text) {
		*ret = u;
		return 0;
	}
	if (*text < '0' || *text > '9')
		return colon ? -EINVAL : look_up(text, ret);
	if (!parse_id(text, colon ? colon : end, &u.uid))
		return -EINVAL;
	u.gid = u.uid;
	if (colon && !parse_id(colon + 1, end, &u.gid))
		return -EINVAL;
	*ret = u;
	return 0;
}
