/*
 * Theory of operation: both codings allow several streams (members, frames) one after the other,
 * which decode to one body. zlib stops after a member and is reset when another byte follows; zstd
 * goes on by itself and its result says whether a frame is open. What follows a member and is no
 * member is refused.
 */
#include "http/body.h"

#include "base/error.h"
#include "base/mem.h"

#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

enum {
	GZIP_BITS = 15 + 16,      /* the largest window, gzip header wanted */
	GZIP_MEMORY = 44 * 1024,  /* as zlib documents it */
	ZSTD_WINDOW_LOG_MAX = 23, /* RFC 9659 */
};

struct http_body {
	enum http_coding coding;
	bool pending;
	bool begun;  /* a byte of the first stream was read */
	bool closed; /* the last byte read ended a stream */
	z_stream gzip;
	ZSTD_DCtx *zstd;
};

struct http_body *http_body_new(enum http_coding coding)
{
	struct http_body *b = mem_alloc(sizeof(*b));

	b->coding = coding;
	if (coding == HTTP_CODING_GZIP) {
		if (inflateInit2(&b->gzip, GZIP_BITS) != Z_OK) {
			free(b);
			return NULL;
		}
		return b;
	}
	b->zstd = ZSTD_createDCtx();
	if (!b->zstd || ZSTD_isError(ZSTD_DCtx_setParameter(
	                        b->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX)))
		return http_body_free(b);
	return b;
}

struct http_body *http_body_free(struct http_body *b)
{
	if (!b)
		return NULL;
	if (b->coding == HTTP_CODING_GZIP)
		inflateEnd(&b->gzip);
	ZSTD_freeDCtx(b->zstd);
	free(b);
	return NULL;
}

static int gzip_decode(struct http_body *b, const char *in, size_t n, size_t *ret_used, char *out,
        size_t room, size_t *ret_made)
{
	z_stream *z = &b->gzip;
	int r;

	if (b->closed && n > 0) {
		if (inflateReset(z) != Z_OK)
			return -ERR_INVALID;
		b->closed = false;
	}
	/* zlib does not write through next_in; its type is older than const. */
	z->next_in = (z_const Bytef *)(uintptr_t)in;
	z->avail_in = n < UINT32_MAX ? (uInt)n : UINT32_MAX;
	z->next_out = (Bytef *)out;
	z->avail_out = room < UINT32_MAX ? (uInt)room : UINT32_MAX;
	n = z->avail_in;
	room = z->avail_out;
	r = inflate(z, Z_NO_FLUSH);
	if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
		return -ERR_INVALID;
	b->closed = r == Z_STREAM_END;
	*ret_used = n - z->avail_in;
	*ret_made = room - z->avail_out;
	b->pending = z->avail_out == 0 && !b->closed;
	return 0;
}

static int zstd_decode(struct http_body *b, const char *in, size_t n, size_t *ret_used, char *out,
        size_t room, size_t *ret_made)
{
	ZSTD_inBuffer i = {.src = in, .size = n};
	ZSTD_outBuffer o = {.dst = out, .size = room};
	size_t r = ZSTD_decompressStream(b->zstd, &o, &i);

	if (ZSTD_isError(r))
		return -ERR_INVALID;
	if (i.pos > 0 || o.pos > 0)
		b->closed = r == 0;
	*ret_used = i.pos;
	*ret_made = o.pos;
	b->pending = o.pos == o.size && !b->closed;
	return 0;
}

int http_body_decode(struct http_body *b, const char *in, size_t n, size_t *ret_used, char *out,
        size_t room, size_t *ret_made)
{
	b->begun = b->begun || n > 0;
	if (b->coding == HTTP_CODING_GZIP)
		return gzip_decode(b, in, n, ret_used, out, room, ret_made);
	return zstd_decode(b, in, n, ret_used, out, room, ret_made);
}

bool http_body_pending(const struct http_body *b)
{
	return b->pending;
}

bool http_body_complete(const struct http_body *b)
{
	return b->begun && b->closed;
}

size_t http_body_memory(const struct http_body *b)
{
	return b->zstd ? ZSTD_sizeof_DCtx(b->zstd) : GZIP_MEMORY;
}
