/*
 * Promoting: a file that a container's worker opened becomes a document. What is read is the
 * guest's, and may change while it is read: the document is what was read.
 */
#include "gateway/documents.h"

#include "base/utf8.h"
#include "gateway/documents_put.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define PIECE      131072
#define NAME_CHARS 255

struct promotion {
	struct documents_put *put;
	uint64_t max;
	int fd;
	documents_fn then;
	void *ctx;
	struct store_document d;
	struct error err;
};

static int copy(struct promotion *p)
{
	_cleanup_free_ char *piece = mem_alloc(PIECE);
	uint64_t size = 0;

	for (;;) {
		ssize_t n = read(p->fd, piece, PIECE);
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(&p->err, errno, "read the file");
		if (n == 0)
			return 0;
		size += (uint64_t)n;
		if (size > p->max)
			return error_set(&p->err, ERR_TOO_LARGE,
			        "The file is larger than %llu bytes, the most that this server "
			        "keeps of one.",
			        (unsigned long long)p->max);
		r = documents_put_write(p->put, (struct str){piece, (size_t)n}, &p->err);
		if (r < 0)
			return r;
	}
}

static void promote_work(void *arg)
{
	struct promotion *p = arg;
	const char *type;

	if (documents_put_begin(p->put, &p->err) < 0 || copy(p) < 0)
		return;
	type = documents_put_type(p->put);
	str_copy(p->d.mime, sizeof(p->d.mime),
	        str_of(type != NULL ? type : "application/octet-stream"));
	documents_put_finish(p->put, &p->d, &p->err);
}

static void promotion_free(struct promotion *p)
{
	documents_put_free(p->put);
	close(p->fd);
	free(p);
}

static void promote_done(void *arg)
{
	struct promotion *p = arg;

	if (p->err.code != 0)
		p->then(p->ctx, NULL, &p->err);
	else
		p->then(p->ctx, &p->d, NULL);
	promotion_free(p);
}

/* The queue is full: nothing to do but to say so, from the loop. */
static void refused(evutil_socket_t fd, short what, void *arg)
{
	struct promotion *p = arg;

	gateway_busy(&p->err);
	promote_done(p);
}

/* A path that is too long loses folders, then the beginning of its name. */
static void take_name(char *out, size_t size, struct str name)
{
	struct buf b = BUF_INIT((size_t)64 << 10);

	for (size_t i = 0; i < name.n;) {
		size_t n = utf8_char_len(name.p + i, name.n - i);
		unsigned char c = (unsigned char)name.p[i];

		if (n == 0 || c < 0x20 || c == 0x7f || strchr("<>:\"|?*\\", c) != NULL)
			buf_putc(&b, '_');
		else
			buf_append(&b, name.p + i, n);
		i += n > 0 ? n : utf8_subpart_len(name.p + i, name.n - i);
	}
	struct str rest = {buf_cstr(&b), b.len};

	while (utf8_count(rest.p, rest.n) > NAME_CHARS) {
		const char *slash = memchr(rest.p, '/', rest.n);
		size_t cut = slash != NULL ? (size_t)(slash - rest.p) + 1
		                           : utf8_char_len(rest.p, rest.n);

		rest = (struct str){rest.p + cut, rest.n - cut};
	}
	str_copy(out, size, rest.n > 0 ? rest : STR("unnamed"));
	buf_free(&b);
}

void documents_promote(struct gateway *g, const struct config_key *key, int fd, struct str name,
        documents_fn then, void *ctx)
{
	struct promotion *p = mem_alloc(sizeof(*p));
	const struct timeval now = {0, 0};

	*p = (struct promotion){.fd = fd, .then = then, .ctx = ctx};
	p->put = documents_put_new(g, key);
	p->max = g->config->limits.file_bytes;
	p->d.downloadable = true;
	str_copy(p->d.purpose, sizeof(p->d.purpose), STR("user_data"));
	take_name(p->d.filename, sizeof(p->d.filename), name);
	if (pool_run(g->pool, promote_work, promote_done, p))
		return;
	if (event_base_once(g->base, -1, EV_TIMEOUT, refused, p, &now) < 0)
		BUG("no memory for an event");
}
