#include "cli/folder.h"

#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_RANDOM = 40, KEY_MAX = 256 };

static const char key_prefix[] = "brig-";

/* mkdir -p; what it makes is 0755. */
static int make_parents(const char *path, struct error *err)
{
	char part[4096];
	size_t i;

	str_format(part, sizeof(part), "%s", path);
	for (i = 1; part[i]; i++) {
		if (part[i] != '/')
			continue;
		part[i] = '\0';
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			return error_errno(err, errno, "%s", part);
		part[i] = '/';
	}
	return 0;
}

/* Every folder above must let the gateway's user through, or it finds its store missing. */
static int check_way(const char *path, struct error *err)
{
	char part[4096];
	struct stat st;
	size_t i;

	str_format(part, sizeof(part), "%s", path);
	for (i = 1; part[i]; i++) {
		if (part[i] != '/')
			continue;
		part[i] = '\0';
		if (stat(part, &st) == 0 && !(st.st_mode & S_IXOTH))
			return error_set(err, ERR_PERMISSION,
			        "the gateway's user cannot pass through %s; chmod o+x it, or "
			        "choose another data folder",
			        part);
		part[i] = '/';
	}
	return 0;
}

/*
 * A folder of ours: a real one, with that owner, and writable by nobody else. Returns it opened.
 * strict: one that was there already is taken as it is or refused (it may be a person's own), never
 * changed.
 */
static int open_own(
        int at, const char *name, uid_t owner, mode_t mode, bool strict, struct error *err)
{
	bool made = mkdirat(at, name, mode) == 0;
	struct stat st;
	int fd;

	if (!made && errno != EEXIST)
		return error_errno(err, errno, "%s", name);
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return error_errno(err, errno, "%s", name);
	if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && owner != st.st_uid &&
	        fchown(fd, owner, owner) < 0) {
		close(fd);
		return error_errno(err, errno, "chown %s", name);
	}
	if (fstat(fd, &st) < 0 || st.st_uid != owner) {
		close(fd);
		return error_set(err, ERR_PERMISSION, "%s belongs to user %u and not to %u%s", name,
		        st.st_uid, owner,
		        owner == geteuid() ? "" : "; `ids.base` was another when it was made");
	}
	if (strict && !made && (st.st_mode & 022)) {
		close(fd);
		return error_set(err, ERR_PERMISSION,
		        "%s is writable by others; chmod go-w it, or choose another", name);
	}
	if (strict && !made)
		return fd;
	/* mkdir's mode went through the umask. */
	if ((st.st_mode & 07777) != mode && fchmod(fd, mode) < 0) {
		close(fd);
		return error_errno(err, errno, "chmod %s", name);
	}
	return fd;
}

int folder_prepare(const char *path, uid_t gateway, struct error *err)
{
	static const char *const parts[] = {"images", "homes", "scratch", "templates"};
	uid_t self = geteuid();
	size_t i;
	int fd, sub, r;

	r = make_parents(path, err);
	if (r < 0)
		return r;
	fd = open_own(AT_FDCWD, path, self, 0711, true, err);
	if (fd < 0)
		return fd;
	for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		sub = open_own(fd, parts[i], self, 0700, false, err);
		if (sub < 0) {
			close(fd);
			return error_prefix(err, "%s", path);
		}
		close(sub);
	}
	sub = open_own(fd, "gateway", self == 0 ? gateway : self, 0700, false, err);
	r = sub < 0 ? error_prefix(err, "%s", path) : 0;
	if (sub >= 0)
		close(sub);
	if (r == 0 && self == 0)
		r = check_way(path, err);
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

/* Writes a file beside and renames it, so that a reader sees the old or the new one. flags: of
 * renameat2. */
static int write_whole(int folder, const char *name, const char *text, mode_t mode, unsigned flags)
{
	size_t n = strlen(text);
	char temp[64];
	int fd, r = 0;

	str_format(temp, sizeof(temp), ".%s.%d", name, getpid());
	unlinkat(folder, temp, 0);
	fd = openat(folder, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return -errno;
	if (fchmod(fd, mode) < 0 || write(fd, text, n) != (ssize_t)n || fsync(fd) < 0)
		r = errno ? -errno : -EIO;
	close(fd);
	if (r == 0 && renameat2(folder, temp, folder, name, flags) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(folder, temp, 0);
	return r;
}

/* A line of a file, without its end; 0, or -errno. */
static int read_line(int folder, const char *name, char *buf, size_t size)
{
	ssize_t n;
	int fd;

	fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	n = read(fd, buf, size - 1);
	close(fd);
	if (n < 0)
		return -errno;
	buf[n] = '\0';
	buf[strcspn(buf, "\r\n")] = '\0';
	return 0;
}

int folder_first_key(int folder, uint8_t ret_hash[32], struct error *err)
{
	char key[KEY_MAX] = "", line[KEY_MAX + 1];
	int r;

	r = read_line(folder, "key", key, sizeof(key));
	if (r == -ENOENT) {
		id_make(key, sizeof(key), key_prefix, KEY_RANDOM);
		str_format(line, sizeof(line), "%s\n", key);
		r = write_whole(folder, "key", line, 0600, RENAME_NOREPLACE);
		mem_wipe(line, sizeof(line));
		/* Another brig was faster: its key it is. */
		if (r == -EEXIST)
			r = read_line(folder, "key", key, sizeof(key));
	}
	if (r == 0 && strlen(key) < 16)
		r = -EBADMSG;
	if (r == 0)
		id_sha256(str_of(key), ret_hash);
	mem_wipe(key, sizeof(key));
	if (r == -EBADMSG)
		return error_set(err, ERR_INVALID,
		        "the file `key` of the data folder holds no key; remove it");
	return r < 0 ? error_errno(err, -r, "the file `key` of the data folder") : 0;
}

int folder_write_url(int folder, const char *url)
{
	char line[300];

	str_format(line, sizeof(line), "%s\n", url);
	return write_whole(folder, "url", line, 0644, 0);
}

void folder_remove_url(int folder, const char *url)
{
	char have[300];

	/* A start that failed because another server has the folder must not take that one's
	 * address away. */
	if (read_line(folder, "url", have, sizeof(have)) == 0 && strcmp(have, url) == 0)
		unlinkat(folder, "url", 0);
}

bool folder_read_line(const char *path, const char *name, char *buf, size_t size)
{
	int fd, r;

	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return false;
	r = read_line(fd, name, buf, size);
	close(fd);
	return r == 0 && buf[0];
}
