/*
 * Theory of operation
 *
 * The recipe (images/base/make-image) is part of this program, so that an installed brig needs no
 * source tree. It is given to sh from a memfd and writes the image whole or not at all. A lock on
 * the folder keeps two builds apart and lets the second find the first one's result.
 */
#include "cli/image.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cli.h"
#include "json/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "make_image.h"

enum { PATH_SIZE = 4096 + 64 };

static int recipe_fd(void)
{
	size_t n = sizeof(make_image) - 1;
	int fd;

	fd = memfd_create("make-image", 0);
	if (fd < 0)
		return -errno;
	if (write(fd, make_image, n) != (ssize_t)n || lseek(fd, 0, SEEK_SET) < 0) {
		close(fd);
		return -EIO;
	}
	return fd;
}

static int run_recipe(const char *out, struct error *err)
{
	char script[32];
	int fd, status = -1;
	pid_t pid;

	fd = recipe_fd();
	if (fd < 0)
		return error_errno(err, -fd, "the recipe of the base image");
	str_format(script, sizeof(script), "/proc/self/fd/%d", fd);
	pid = fork();
	if (pid == 0) {
		dup2(STDERR_FILENO, STDOUT_FILENO);
		execl("/bin/sh", "sh", script, out, (char *)NULL);
		_exit(127);
	}
	close(fd);
	if (pid < 0)
		return error_errno(err, errno, "fork");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return error_set(
		        err, ERR_IO, "making the base image failed; what is above says why");
	return 0;
}

/* Which recipe the image was made with: a line in base.recipe beside it. */
static void recipe_hash(char hex[65])
{
	uint8_t hash[32];

	id_sha256((struct str){make_image, sizeof(make_image) - 1}, hash);
	id_hex(hash, sizeof(hash), hex);
}

static void recipe_note(int folder)
{
	char hex[65];
	int fd;

	recipe_hash(hex);
	fd = openat(
	        folder, "base.recipe", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	/* A note that is not there, or half there, only makes the next `--needed` build again. */
	if (fd >= 0 && write(fd, hex, 64) < 0)
		unlinkat(folder, "base.recipe", 0);
	if (fd >= 0)
		close(fd);
}

static bool recipe_same(int folder)
{
	char hex[65], have[65] = "";
	ssize_t n;
	int fd;

	recipe_hash(hex);
	fd = openat(folder, "base.recipe", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, have, 64);
	if (fd >= 0)
		close(fd);
	return n == 64 && strcmp(hex, have) == 0;
}

enum when { WHEN_MISSING, WHEN_NEEDED, WHEN_ALWAYS };

/* Makes the image under the folder's lock: where there is none, or none of this recipe, or in any
 * case. */
static int image_make(const char *data, enum when when, struct error *err)
{
	char folder[PATH_SIZE], out[PATH_SIZE + 16];
	struct stat st;
	int fd, r = 0;

	str_format(folder, sizeof(folder), "%s/images", data);
	str_format(out, sizeof(out), "%s/base.erofs", folder);
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return error_errno(err, errno, "%s", folder);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		fputs("brig: waiting for another brig that makes the image\n", stderr);
		if (flock(fd, LOCK_EX) < 0)
			r = error_errno(err, errno, "%s", folder);
	}
	if (r == 0 && (when == WHEN_ALWAYS || stat(out, &st) < 0 ||
	                      (when == WHEN_NEEDED && !recipe_same(fd)))) {
		r = run_recipe(out, err);
		if (r == 0)
			recipe_note(fd);
	}
	close(fd);
	return r;
}

int image_ensure(const char *data, struct error *err)
{
	char out[PATH_SIZE];
	struct stat st;

	str_format(out, sizeof(out), "%s/images/base.erofs", data);
	if (stat(out, &st) == 0)
		return 0;
	fputs("brig: no base image yet; making it, once\n", stderr);
	return image_make(data, WHEN_MISSING, err);
}

static int make_folder(const char *data, struct error *err)
{
	char folder[PATH_SIZE];

	str_format(folder, sizeof(folder), "%s/images", data);
	if (mkdir(data, 0711) < 0 && errno != EEXIST)
		return error_errno(err, errno, "%s", data);
	if (mkdir(folder, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "%s", folder);
	return 0;
}

static void image_print(const char *name, const struct stat *st, bool json, struct buf *out)
{
	struct json_writer w;
	char date[32];

	clock_iso8601(st->st_mtim.tv_sec * 1000, date);
	if (!json) {
		buf_printf(
		        out, "%-20s %7lld MiB   %.10s\n", name, (long long)st->st_size >> 20, date);
		return;
	}
	jw_init(&w, out);
	jw_object(&w);
	jw_kcstr(&w, "name", name);
	jw_ki64(&w, "bytes", st->st_size);
	jw_kcstr(&w, "made_at", date);
	jw_end(&w);
}

static int image_list(const char *data, bool json, struct error *err)
{
	struct buf out = BUF_INIT(1 << 20);
	char folder[PATH_SIZE], name[256];
	struct dirent *e;
	struct stat st;
	size_t n = 0;
	DIR *d;

	str_format(folder, sizeof(folder), "%s/images", data);
	d = opendir(folder);
	if (!d && errno != ENOENT)
		return error_errno(err, errno, "%s", folder);
	if (json)
		buf_putc(&out, '[');
	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.' || !str_ends(str_of(e->d_name), ".erofs") ||
		        fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		str_copy(name, sizeof(name), (struct str){e->d_name, strlen(e->d_name) - 6});
		if (json && n)
			buf_putc(&out, ',');
		image_print(name, &st, json, &out);
		n++;
	}
	if (d)
		closedir(d);
	if (json)
		buf_puts(&out, "]\n");
	else if (n == 0)
		fputs("no image yet; `brig image build` or `brig serve` makes one\n", stderr);
	fputs(buf_cstr(&out), stdout);
	buf_free(&out);
	return 0;
}

struct images {
	char folder[4096]; /* of the data */
	bool json, needed;
};

static int verb_build(void *ctx, char **args, int n, struct error *err)
{
	struct images *i = ctx;
	int r = make_folder(i->folder, err);

	return r < 0 ? r : image_make(i->folder, i->needed ? WHEN_NEEDED : WHEN_ALWAYS, err);
}

static int verb_list(void *ctx, char **args, int n, struct error *err)
{
	struct images *i = ctx;

	return image_list(i->folder, i->json, err);
}

static const struct cli_verb verbs[] = {
        {"build", 0, 0, NULL, verb_build},
        {"list", 0, 0, NULL, verb_list},
};

int cli_image(int argc, char **argv)
{
	struct images i = {.json = false};
	const char *data = NULL;
	const struct cli_flag flags[] = {
	        {"--data", "DIR", "the data folder (/var/lib/brig)", &data, NULL},
	        {"--needed", NULL, "build only where there is none of this version's recipe", NULL,
	                &i.needed},
	        {"--json", NULL, "list as JSON", NULL, &i.json},
	};
	const struct cli_usage usage = {
	        .line = "brig image [--data DIR] build [--needed] | list [--json]",
	        .about = "build makes the base image anew (Debian 12; needs root, mmdebstrap and "
	                 "erofs-utils); a running\n"
	                 "server uses it after its next start. list says which images there are.\n",
	        .flags = flags,
	        .n_flags = sizeof(flags) / sizeof(flags[0]),
	};
	const struct cli_verb *verb;
	struct error err = {0};
	int end = 0;

	verb = cli_verb(&usage, verbs, sizeof(verbs) / sizeof(verbs[0]), &argc, &argv, &end);
	if (!verb)
		return end;
	if (cli_data_folder(data, NULL, i.folder, &err) < 0 || verb->run(&i, argv, argc, &err) < 0)
		return cli_fail(&err);
	return 0;
}
