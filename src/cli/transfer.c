/*
 * Files to and from a container.
 *
 * A file that is got is written beside its place under a name of its own and renamed when it is
 * whole, so a transfer that breaks off leaves what was there before. One that is put is a multipart
 * body whose boundary is random: no file can hold it.
 */
#include "cli/transfer.h"

#include "api/api.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"
#include "json/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ANSWER_MAX = 1024 * 1024, PATH_SIZE = 4600, QUIET_MS = 500, EVERY_MS = 100 };

/* ---- progress ---- */

struct progress {
	const char *name;
	uint64_t began_ms, shown_ms; /* 0: not shown */
	bool on;
};

static void progress_begin(struct progress *p, const char *name)
{
	*p = (struct progress){
	        .name = name, .began_ms = clock_mono_ms(), .on = isatty(STDERR_FILENO)};
}

static void print_size(double bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	size_t i = 0;

	for (; bytes >= 1024 && i < 4; i++)
		bytes /= 1024;
	fprintf(stderr, i == 0 ? "%.0f %s" : "%.1f %s", bytes, units[i]);
}

static void progress_show(struct progress *p, uint64_t done, uint64_t total)
{
	uint64_t now = clock_mono_ms(), took = now - p->began_ms;

	if (!p->on || took < QUIET_MS || now - p->shown_ms < EVERY_MS)
		return;
	p->shown_ms = now;
	fprintf(stderr, "\r\033[K%.60s  ", p->name);
	print_size((double)done);
	if (total > 0) {
		fputs(" of ", stderr);
		print_size((double)total);
		fprintf(stderr, "  %d %%", (int)(done * 100 / total));
	}
	fputs("  ", stderr);
	print_size((double)done * 1000 / (double)took);
	fputs("/s", stderr);
	fflush(stderr);
}

static void progress_end(struct progress *p)
{
	if (p->shown_ms > 0)
		fputs("\r\033[K", stderr);
}

/* ---- what both need ---- */

int transfer_path(struct buf *out, const char *container, const char *path, struct error *err)
{
	if (!api_container_id_valid(str_of(container)))
		return error_set(err, ERR_INVALID,
		        "a container's id is 1 to 40 letters, digits, - and _: %.60s", container);
	buf_printf(out, "/api/v1/containers/%s/files", container);
	if (path) {
		buf_putc(out, '/');
		api_file_id_append(out, str_of(path));
	}
	return buf_error(out) ? error_set(err, ERR_INVALID, "the path is too long") : 0;
}

/* The last part of a path; "" where it has none that could be a name. */
static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* ---- get ---- */

struct get {
	struct progress progress;
	FILE *out;
	uint64_t bytes;
};

static int on_data(void *ctx, const char *data, size_t n, struct error *err)
{
	struct get *g = ctx;

	if (fwrite(data, 1, n, g->out) != n)
		return error_errno(err, errno, "writing the file");
	g->bytes += n;
	return 0;
}

static void on_got(void *ctx, uint64_t done, uint64_t total)
{
	progress_show(&((struct get *)ctx)->progress, done, total);
}

static int get_content(const struct client *c, const char *container, const char *path,
        struct get *g, struct error *err)
{
	_cleanup_buf_ struct buf url = BUF_INIT(16384);
	struct client_call call = {.method = "GET", .fn = on_data, .progress = on_got, .ctx = g};
	int r = transfer_path(&url, container, path, err);

	if (r < 0)
		return r;
	buf_puts(&url, "/content");
	call.path = buf_cstr(&url);
	progress_begin(&g->progress, path);
	r = client_transfer(c, &call, err);
	progress_end(&g->progress);
	if (r == 0 && fflush(g->out) != 0)
		r = error_errno(err, errno, "writing the file");
	return r;
}

/* Where it is to be, as a path of a file. */
static int place_of(const char *path, const char *to, char out[PATH_SIZE], struct error *err)
{
	const char *name = name_of(path);
	struct stat st;

	if (to == NULL)
		to = ".";
	if (stat(to, &st) < 0 || !S_ISDIR(st.st_mode)) {
		if (strlen(to) >= 4096)
			return error_set(err, ERR_INVALID, "the file's name is too long");
		str_format(out, PATH_SIZE, "%s", to);
		return 0;
	}
	if (!*name || strlen(name) > 255 || strlen(to) >= 4096)
		return error_set(err, ERR_INVALID, "%.200s has no name for a file here", path);
	str_format(out, PATH_SIZE, "%s/%s", to, name);
	return 0;
}

static int get_to_file(const struct client *c, const char *container, const char *path,
        const char *place, struct get *g, struct error *err)
{
	char part[PATH_SIZE], mark[24];
	int fd, r;

	id_make(mark, sizeof(mark), ".brig-", 12);
	str_format(part, sizeof(part), "%.*s%s", (int)(name_of(place) - place), place, mark);
	fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return error_errno(err, errno, "%s", part);
	g->out = fdopen(fd, "w");
	if (!g->out) {
		close(fd);
		unlink(part);
		return error_set(err, ERR_NOMEM, "no memory");
	}
	r = get_content(c, container, path, g, err);
	if (fclose(g->out) != 0 && r == 0)
		r = error_errno(err, errno, "%s", part);
	if (r == 0 && rename(part, place) < 0)
		r = error_errno(err, errno, "%s", place);
	if (r < 0)
		unlink(part);
	return r;
}

int transfer_get(const struct client *c, const char *container, const char *path, const char *to,
        bool json, struct error *err)
{
	_cleanup_buf_ struct buf out = BUF_INIT(65536);
	struct get g = {.out = stdout};
	struct json_writer w;
	char place[PATH_SIZE];
	int r;

	if (to && strcmp(to, "-") == 0)
		return get_content(c, container, path, &g, err);
	r = place_of(path, to, place, err);
	if (r == 0)
		r = get_to_file(c, container, path, place, &g, err);
	if (r < 0 || !json)
		return r;
	jw_init(&w, &out);
	jw_object(&w);
	jw_kcstr(&w, "container_id", container);
	jw_kstr(&w, "path", str_of(path));
	jw_kstr(&w, "file", str_of(place));
	jw_ki64(&w, "bytes", (int64_t)g.bytes);
	jw_end(&w);
	puts(buf_cstr(&out));
	return 0;
}

/* ---- put ---- */

struct put {
	struct progress progress;
	struct buf answer;
};

static int on_answer(void *ctx, const char *data, size_t n, struct error *err)
{
	if (buf_append(&((struct put *)ctx)->answer, data, n) < 0)
		return error_set(err, ERR_TOO_LARGE, "the answer is too large");
	return 0;
}

static void on_put(void *ctx, uint64_t done, uint64_t total)
{
	progress_show(&((struct put *)ctx)->progress, done, total);
}

static int put_file(const struct client *c, const char *container, const char *path, int file,
        struct put *p, struct error *err)
{
	_cleanup_buf_ struct buf url = BUF_INIT(1024), head = BUF_INIT(65536), tail = BUF_INIT(128);
	char boundary[40], type[80];
	struct stat st;
	struct client_upload u = {.content_type = type, .file = file, .size = -1};
	struct client_call call = {
	        .method = "POST", .upload = &u, .fn = on_answer, .progress = on_put, .ctx = p};
	int r = transfer_path(&url, container, NULL, err);

	if (r < 0)
		return r;
	if (fstat(file, &st) == 0 && S_ISREG(st.st_mode))
		u.size = st.st_size;
	id_make(boundary, sizeof(boundary), "brig", 32);
	str_format(type, sizeof(type), "multipart/form-data; boundary=%s", boundary);
	buf_printf(&head,
	        "--%s\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n%s\r\n"
	        "--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n\r\n",
	        boundary, path, boundary);
	buf_printf(&tail, "\r\n--%s--\r\n", boundary);
	if (buf_error(&head))
		return error_set(err, ERR_INVALID, "the path is too long");
	u.head = (struct str){head.data, head.len};
	u.tail = (struct str){tail.data, tail.len};
	call.path = buf_cstr(&url);
	progress_begin(&p->progress, path);
	r = client_transfer(c, &call, err);
	progress_end(&p->progress);
	return r;
}

int transfer_put(const struct client *c, const char *container, const char *from, const char *path,
        bool json, struct error *err)
{
	struct put p = {.answer = BUF_INIT(ANSWER_MAX)};
	bool is_stdin = strcmp(from, "-") == 0;
	int file = is_stdin ? STDIN_FILENO : open(from, O_RDONLY | O_CLOEXEC);
	struct stat st;
	int r;

	if (file < 0)
		return error_errno(err, errno, "%s", from);
	if (fstat(file, &st) == 0 && S_ISDIR(st.st_mode))
		r = error_set(err, ERR_INVALID, "%.400s is a folder", from);
	else
		r = put_file(c, container, path ? path : name_of(from), file, &p, err);
	if (r == 0 && json)
		puts(buf_cstr(&p.answer));
	if (!is_stdin)
		close(file);
	buf_free(&p.answer);
	return r;
}
