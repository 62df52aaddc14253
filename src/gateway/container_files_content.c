/*
 * GET …/content: the bytes of one file, from the descriptor that the worker gave.
 *
 * What is sent is what the descriptor's file has, however it is called by now: the head says size
 * and ETag of one moment, read from the descriptor itself. The file is read on the pool, a piece at
 * a time, and the next piece only when the client has room. A guest may write to it meanwhile: when
 * it has become shorter than the head says, the connection is cut, so that nobody takes the rest
 * for whole.
 *
 * The ETag is inode, size and time of change: another file of the same name, or other content, has
 * another.
 */
#include "gateway/container_files.h"

#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE   (128u << 10)
#define AT_ONCE 1024 /* downloads of one gateway */

struct download {
	struct gateway *g;
	struct http_exchange *x; /* NULL: the client has gone */
	struct owner owner;
	int fd;
	bool reading; /* on the pool */
	bool waiting; /* until the client has room */
	uint64_t offset, left;
	ssize_t got;
	char piece[PIECE];
};

static size_t n_downloads; /* of this process */

static void download_free(struct download *d)
{
	close(d->fd);
	free(d);
	n_downloads--;
}

/* Ends it where nobody works on it. */
static void download_end(struct download *d, bool whole)
{
	struct http_exchange *x = d->x;

	if (x != NULL) {
		http_exchange_set_data(x, NULL);
		if (whole)
			http_finish(x);
		else
			http_abort(x);
	}
	download_free(d);
}

/* ---- sending ---- */

static void read_next(struct download *d);

static void read_work(void *arg)
{
	struct download *d = arg;
	size_t n = d->left < PIECE ? (size_t)d->left : PIECE;

	do
		d->got = pread(d->fd, d->piece, n, (off_t)d->offset);
	while (d->got < 0 && errno == EINTR);
}

static void read_done(void *arg)
{
	struct download *d = arg;

	d->reading = false;
	if (d->x == NULL || d->got <= 0) {
		download_end(d, false);
		return;
	}
	http_write(d->x, (struct str){d->piece, (size_t)d->got});
	d->offset += (uint64_t)d->got;
	d->left -= (uint64_t)d->got;
	d->waiting = d->left > 0 && http_above_high_water(d->x);
	if (!d->waiting)
		read_next(d);
}

static void read_next(struct download *d)
{
	if (d->left == 0) {
		download_end(d, true);
		return;
	}
	d->reading = pool_run(d->g->pool, read_work, read_done, d);
	if (!d->reading)
		download_end(d, false);
}

static void on_drain(void *self)
{
	struct download *d = self;

	if (!d->waiting)
		return;
	d->waiting = false;
	read_next(d);
}

static void on_gone(void *self, enum http_gone why)
{
	struct download *d = self;

	d->x = NULL;
	if (!d->reading)
		download_free(d);
}

/* ---- what the client asked for ---- */

/* One of the entity tags in a list, or "*". weak: tags that only say "much the same" count too. */
static bool etag_in(struct str list, const char *etag, bool weak)
{
	while (list.n > 0) {
		const char *comma = memchr(list.p, ',', list.n);
		size_t n = comma != NULL ? (size_t)(comma - list.p) : list.n;
		struct str one = str_trim((struct str){list.p, n});

		if (weak && str_starts(one, "W/"))
			one = (struct str){one.p + 2, one.n - 2};
		if (str_is(one, etag) || (weak && str_is(one, "*")))
			return true;
		n += comma != NULL;
		list = (struct str){list.p + n, list.n - n};
	}
	return false;
}

enum range { RANGE_NONE, RANGE_ONE, RANGE_UNSATISFIABLE };

/* "bytes=a-b", "bytes=a-", "bytes=-n". What is malformed or more than one range counts as none, as
 * RFC 9110, section 14.2, allows. */
static enum range range_read(struct str s, uint64_t size, uint64_t *ret_first, uint64_t *ret_n)
{
	uint64_t first = 0, last = UINT64_MAX;
	const char *dash;
	struct str a, b;

	if (s.n < 6 || !str_ieq((struct str){s.p, 6}, STR("bytes=")))
		return RANGE_NONE;
	s = str_trim((struct str){s.p + 6, s.n - 6});
	dash = memchr(s.p, '-', s.n);
	if (dash == NULL)
		return RANGE_NONE;
	a = (struct str){s.p, (size_t)(dash - s.p)};
	b = (struct str){dash + 1, s.n - a.n - 1};
	if ((a.n > 0 && !str_to_u64(a, &first)) || (b.n > 0 && !str_to_u64(b, &last)) ||
	        a.n + b.n == 0 || (a.n > 0 && last < first))
		return RANGE_NONE;
	if (a.n == 0) { /* the last so many bytes */
		first = last < size ? size - last : 0;
		if (last == 0)
			return RANGE_UNSATISFIABLE;
		last = UINT64_MAX;
	}
	if (first >= size)
		return RANGE_UNSATISFIABLE;
	*ret_first = first;
	*ret_n = (last < size ? last + 1 : size) - first;
	return RANGE_ONE;
}

static enum range range_of(const struct http_exchange *x, const char *etag, uint64_t size,
        uint64_t *ret_first, uint64_t *ret_n)
{
	struct str if_range = http_request_header(x, "if-range");

	if (!str_is(http_request_method(x), "GET") || http_request_header_count(x, "range") != 1 ||
	        (if_range.p != NULL && !str_is(if_range, etag)))
		return RANGE_NONE;
	return range_read(http_request_header(x, "range"), size, ret_first, ret_n);
}

/* The last part of the path as browsers take it: in ASCII, and where that is not all and it is
 * UTF-8 also as it is. */
static void header_name(struct http_exchange *x, struct str path)
{
	static const char plain[] =
	        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-. ";
	_cleanup_buf_ struct buf b = BUF_INIT(8192);
	const char *slash = memrchr(path.p, '/', path.n);
	struct str name = path;

	if (slash != NULL)
		name = (struct str){slash + 1, path.n - (size_t)(slash + 1 - path.p)};
	buf_puts(&b, "attachment; filename=\"");
	for (size_t i = 0; i < name.n; i++)
		buf_putc(&b, strchr(plain, name.p[i]) != NULL ? name.p[i] : '_');
	buf_putc(&b, '"');
	if (!str_in_set(name, plain) && utf8_valid(name.p, name.n)) {
		buf_puts(&b, "; filename*=UTF-8''");
		for (size_t i = 0; i < name.n; i++)
			if (str_in_set((struct str){name.p + i, 1}, plain) && name.p[i] != ' ')
				buf_putc(&b, name.p[i]);
			else
				buf_printf(&b, "%%%02X", (unsigned)(unsigned char)name.p[i]);
	}
	http_response_header(x, "Content-Disposition", buf_cstr(&b));
}

/* ---- begin ---- */

static void respond_unsatisfiable(struct http_exchange *x, bool under_v1, uint64_t size)
{
	char text[48];
	struct error e;

	str_format(text, sizeof(text), "bytes */%llu", (unsigned long long)size);
	http_response_header(x, "Content-Range", text);
	error_set(&e, ERR_INVALID, "The file has %llu bytes; the range lies outside of them.",
	        (unsigned long long)size);
	e.http_status = 416;
	respond_error(x, under_v1, &e);
}

static void respond_range(struct http_exchange *x, uint64_t first, uint64_t n, uint64_t size)
{
	char text[80];

	str_format(text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long)first,
	        (unsigned long long)(first + n - 1), (unsigned long long)size);
	http_response_header(x, "Content-Range", text);
	http_respond_start_length(x, 206, "application/octet-stream", n);
}

/* Answers the head. False: that was all, and x has no other owner. */
static bool head_send(struct http_exchange *x, bool under_v1, const struct stat *st,
        struct str path, uint64_t *ret_first, uint64_t *ret_n)
{
	uint64_t size = (uint64_t)st->st_size, first = 0, n = size;
	char etag[64];
	enum range range;

	str_format(etag, sizeof(etag), "\"%llx-%llx-%llx%08lx\"", (unsigned long long)st->st_ino,
	        (unsigned long long)size, (unsigned long long)st->st_ctim.tv_sec,
	        (unsigned long)st->st_ctim.tv_nsec);
	http_response_header(x, "ETag", etag);
	http_response_header(x, "Accept-Ranges", "bytes");
	http_response_header(x, "X-Content-Type-Options", "nosniff");
	http_response_header(x, "Cache-Control", "private, no-cache");
	if (etag_in(http_request_header(x, "if-none-match"), etag, true)) {
		http_respond(x, 304, NULL, (struct str){NULL, 0});
		return false;
	}
	range = range_of(x, etag, size, &first, &n);
	if (range == RANGE_UNSATISFIABLE) {
		respond_unsatisfiable(x, under_v1, size);
		return false;
	}
	header_name(x, path);
	if (range == RANGE_ONE)
		respond_range(x, first, n, size);
	else
		http_respond_start_length(x, 200, "application/octet-stream", n);
	*ret_first = first;
	*ret_n = n;
	if (n > 0 && !str_is(http_request_method(x), "HEAD"))
		return true;
	http_finish(x);
	return false;
}

void container_files_send(
        struct gateway *g, struct http_exchange *x, bool under_v1, int fd, struct str path)
{
	struct download *d;
	uint64_t first, n;
	struct error e;
	struct stat st;

	if (fstat(fd, &st) < 0) {
		error_errno(&e, errno, "a container's file");
		respond_error(x, under_v1, &e);
	} else if (n_downloads >= AT_ONCE) {
		error_set(&e, ERR_UNAVAILABLE, "The server sends too many files already.");
		e.retry_after_ms = 1000;
		respond_error(x, under_v1, &e);
	} else if (head_send(x, under_v1, &st, path, &first, &n)) {
		d = mem_alloc(sizeof(*d));
		n_downloads++;
		d->g = g;
		d->x = x;
		d->fd = fd;
		d->offset = first;
		d->left = n;
		d->owner = (struct owner){on_drain, on_gone, d};
		http_exchange_set_data(x, &d->owner);
		posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
		read_next(d);
		return;
	}
	close(fd);
}
