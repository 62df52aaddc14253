/*
 * A growing byte buffer with a maximum, chosen when it is made.
 *
 * Errors stick: after an append that did not fit every later append fails too, so a writer may
 * append many times and ask buf_error() once. Content is any bytes; data is always followed by one
 * NUL that len does not count. Not shared between threads.
 */
#ifndef BRIG_BASE_BUF_H
#define BRIG_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct str;

struct buf {
	char *data; /* NULL while empty and never appended to */
	size_t len;
	size_t cap;
	size_t max;
	int err; /* 0, -ERR_TOO_LARGE or -ERR_NOMEM; sticks */
};

#define BUF_INIT(maximum)                                                                          \
	{                                                                                          \
		.max = (maximum)                                                                   \
	}

void buf_init(struct buf *b, size_t max);
void buf_free(struct buf *b);  /* frees the bytes; b may be used again with its maximum */
void buf_reset(struct buf *b); /* empties, keeps the memory, clears the error */
#define _cleanup_buf_ __attribute__((cleanup(buf_free)))

int buf_append(struct buf *b, const void *data, size_t len);
int buf_puts(struct buf *b, const char *s);
int buf_putc(struct buf *b, char c);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_vprintf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/* What a URL may hold as it is (RFC 3986, 2.3). */
#define BUF_UNRESERVED "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
/* Each byte of s that is not in plain as %XX. */
int buf_percent(struct buf *b, struct str s, const char *plain);
int buf_u64(struct buf *b, uint64_t v); /* decimal */
int buf_i64(struct buf *b, int64_t v);
void buf_consume(struct buf *b, size_t n); /* drops n bytes from the front */
int buf_error(const struct buf *b);
char *buf_steal(struct buf *b, size_t *ret_len); /* the bytes, NUL-terminated; free() them */
/* The reverse: malloc'ed bytes that a NUL follows, in place of b's own; b may be as long as they
 * are. */
void buf_take(struct buf *b, char *data, size_t len);
const char *buf_cstr(const struct buf *b); /* "" when empty */

#endif
