#include "base/error.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longer than text, so that what is cut is cut by str_copy, at a character. */
enum { ERROR_DRAFT = 1024 };

/*
 * Makes a text safe to show: control characters become a space, bytes that are not UTF-8 a question
 * mark. In place, since neither makes it longer.
 */
static void text_clean(char *text)
{
	size_t n = strlen(text), i = 0, len;

	while (i < n) {
		len = utf8_char_len(text + i, n - i);
		if (len == 0)
			text[i] = '?';
		else if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			text[i] = ' ';
		i += len ? len : 1;
	}
}

static void text_set(char *dst, size_t size, char *draft)
{
	size_t n = strlen(draft);

	/* vsnprintf may have cut the draft itself within a character. */
	draft[n - utf8_incomplete_tail(draft, n)] = '\0';
	text_clean(draft);
	str_copy(dst, size, str_of(draft));
}

static int error_vset(struct error *err, enum err code, const char *param, const char *fmt,
        va_list ap) __attribute__((format(printf, 4, 0)));

static int error_vset(
        struct error *err, enum err code, const char *param, const char *fmt, va_list ap)
{
	char text[ERROR_DRAFT], path[ERROR_DRAFT];

	if (!err)
		return -(int)code;
	/* Both drafts are made first: param or an argument may lie in *err itself. */
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	str_copy(path, sizeof(path), str_of(param));
	memset(err, 0, sizeof(*err));
	err->code = code;
	text_set(err->text, sizeof(err->text), text);
	text_set(err->param, sizeof(err->param), path);
	return -(int)code;
}

int error_set(struct error *err, enum err code, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = error_vset(err, code, NULL, fmt, ap);
	va_end(ap);
	return r;
}

int error_param(struct error *err, enum err code, const char *param, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = error_vset(err, code, param, fmt, ap);
	va_end(ap);
	return r;
}

int error_errno(struct error *err, int errnum, const char *fmt, ...)
{
	char what[ERROR_DRAFT];
	va_list ap;

	if (!err)
		return -ERR_IO;
	va_start(ap, fmt);
	if (vsnprintf(what, sizeof(what), fmt, ap) < 0)
		what[0] = '\0';
	va_end(ap);
	/* WHAT may hold a long path: the reason must not be the part that is cut. */
	return error_set(err, ERR_IO, "%.400s: %s", what, strerror(errnum));
}

int error_prefix(struct error *err, const char *fmt, ...)
{
	char prefix[ERROR_DRAFT], text[ERROR_DRAFT + sizeof(err->text)];
	va_list ap;
	int n;

	if (!err)
		return -ERR_INTERNAL;
	va_start(ap, fmt);
	if (vsnprintf(prefix, sizeof(prefix), fmt, ap) < 0)
		prefix[0] = '\0';
	va_end(ap);
	n = snprintf(text, sizeof(text), "%s: %s", prefix, err->text);
	if (n < 0)
		text[0] = '\0';
	text_set(err->text, sizeof(err->text), text);
	if (!err->code)
		err->code = ERR_INTERNAL;
	return -(int)err->code;
}

struct error *error_copy(const struct error *err)
{
	struct error *copy;

	if (!err)
		return NULL;
	copy = mem_alloc(sizeof(*copy));
	*copy = *err;
	return copy;
}

int error_http_status(const struct error *err)
{
	if (!err)
		return 500;
	if (err->http_status)
		return err->http_status;
	switch (err->code) {
	case ERR_INVALID:
	case ERR_UNSUPPORTED:
		return 400;
	case ERR_AUTH:
		return 401;
	case ERR_PERMISSION:
		return 403;
	case ERR_NOT_FOUND:
		return 404;
	case ERR_CONFLICT:
		return 409;
	case ERR_TOO_LARGE:
		return 413;
	case ERR_MEDIA:
		return 415;
	case ERR_RATE:
	case ERR_CAPACITY:
		return 429;
	case ERR_CANCELED:
		return 499;
	case ERR_UPSTREAM:
		return 502;
	case ERR_UNAVAILABLE:
	case ERR_NOMEM:
		return 503;
	case ERR_TIMEOUT:
		return 504;
	case ERR_IO:
	case ERR_PROTOCOL:
	case ERR_INTERNAL:
		return 500;
	}
	return 500;
}

void bug_at(const char *file, int line, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	LOG(LOG_ERROR, "bug", LOG_S("file", file), LOG_N("line", line), LOG_S("text", text));
	abort();
}
