#include "base/buf.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *b, size_t max)
{
	*b = (struct buf)BUF_INIT(max);
}

void buf_free(struct buf *b)
{
	if (!b)
		return;
	free(b->data);
	buf_init(b, b->max);
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->err = 0;
	if (b->data)
		b->data[0] = '\0';
}

/* Makes room for n more bytes and the NUL. */
static int buf_reserve(struct buf *b, size_t n)
{
	size_t need, cap;
	char *data;

	if (b->err)
		return b->err;
	if (n > b->max - b->len || b->max == SIZE_MAX)
		return b->err = -ERR_TOO_LARGE;
	need = b->len + n + 1;
	if (need <= b->cap)
		return 0;
	cap = b->cap < 64 ? 64 : b->cap;
	while (cap < need)
		cap = cap > SIZE_MAX / 2 ? need : cap * 2;
	if (cap > b->max + 1)
		cap = b->max + 1;
	data = realloc(b->data, cap);
	if (!data)
		return b->err = -ERR_NOMEM;
	b->data = data;
	b->cap = cap;
	return 0;
}

int buf_append(struct buf *b, const void *data, size_t len)
{
	int r = buf_reserve(b, len);

	if (r)
		return r;
	if (len > 0)
		memcpy(b->data + b->len, data, len);
	b->len += len;
	b->data[b->len] = '\0';
	return 0;
}

int buf_puts(struct buf *b, const char *s)
{
	return buf_append(b, s, strlen(s));
}

int buf_putc(struct buf *b, char c)
{
	return buf_append(b, &c, 1);
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = buf_vprintf(b, fmt, ap);
	va_end(ap);
	return r;
}

int buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	int n, r;

	if (b->err)
		return b->err;
	va_copy(again, ap);
	/* Most texts fit into the room that is there; the others are measured by the same call. */
	n = vsnprintf(b->data ? b->data + b->len : NULL, b->cap - b->len, fmt, ap);
	r = n < 0 ? (b->err = -ERR_TOO_LARGE) : 0;
	if (!r && (size_t)n >= b->cap - b->len) {
		r = buf_reserve(b, (size_t)n);
		if (!r)
			n = vsnprintf(b->data + b->len, b->cap - b->len, fmt, again);
	}
	va_end(again);
	if (r) {
		if (b->data)
			b->data[b->len] = '\0';
		return r;
	}
	b->len += (size_t)n;
	return 0;
}

int buf_percent(struct buf *b, struct str s, const char *plain)
{
	for (size_t i = 0; i < s.n; i++) {
		if (str_in_set((struct str){s.p + i, 1}, plain))
			buf_putc(b, s.p[i]);
		else
			buf_printf(b, "%%%02X", (unsigned)(unsigned char)s.p[i]);
	}
	return buf_error(b);
}

int buf_u64(struct buf *b, uint64_t v)
{
	char digits[20];
	size_t i = sizeof(digits);

	do {
		digits[--i] = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	return buf_append(b, digits + i, sizeof(digits) - i);
}

int buf_i64(struct buf *b, int64_t v)
{
	char text[24];
	int n = snprintf(text, sizeof(text), "%lld", (long long)v);

	return buf_append(b, text, (size_t)n);
}

void buf_consume(struct buf *b, size_t n)
{
	if (n > b->len)
		BUG("%zu bytes consumed of %zu", n, b->len);
	if (n == 0)
		return;
	b->len -= n;
	memmove(b->data, b->data + n, b->len + 1);
}

int buf_error(const struct buf *b)
{
	return b->err;
}

char *buf_steal(struct buf *b, size_t *ret_len)
{
	char *data = b->data ? b->data : mem_alloc(1);

	if (ret_len)
		*ret_len = b->len;
	buf_init(b, b->max);
	return data;
}

void buf_take(struct buf *b, char *data, size_t len)
{
	free(b->data);
	*b = (struct buf){
	        .data = data, .len = len, .cap = len + 1, .max = len > b->max ? len : b->max};
}

const char *buf_cstr(const struct buf *b)
{
	return b->data ? b->data : "";
}
