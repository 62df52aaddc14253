/*
 * Theory of operation: a line is built in a buffer on the stack and leaves by one write(2), so
 * threads and processes need no lock. Room for the end of the line is set aside from the start. A
 * field goes in whole, or, if it is text, cut after the last character that fits; then the line
 * says "cut":true. So each line is a complete JSON object whatever its values are. This file has
 * its own escaper because base cannot use json.
 */
#include "base/log.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 8192, LINE_END = sizeof("\",\"cut\":true}\n") };

struct line {
	size_t len;
	bool cut;
	char data[LINE_MAX_BYTES];
};

static const char *log_process = "brig";
static enum log_level log_least = LOG_INFO;

void log_init(const char *process, enum log_level least)
{
	log_process = process;
	log_least = least;
}

static const char *level_name(enum log_level level)
{
	switch (level) {
	case LOG_DEBUG:
		return "debug";
	case LOG_INFO:
		return "info";
	case LOG_WARN:
		return "warn";
	case LOG_ERROR:
		return "error";
	}
	return "error";
}

/* Whole or not at all; false when there is no room (the line's end keeps its own). */
static bool line_put(struct line *l, const char *p, size_t n)
{
	if (l->len + n > sizeof(l->data) - LINE_END)
		return false;
	memcpy(l->data + l->len, p, n);
	l->len += n;
	return true;
}

/* The JSON form of the character at p, of which *ret_used bytes are taken. */
static size_t escape_char(const char *p, size_t n, char out[8], size_t *ret_used)
{
	size_t len = utf8_char_len(p, n);
	unsigned char c = (unsigned char)*p;

	*ret_used = len ? len : 1;
	if (len == 0) {
		memcpy(out, "\xef\xbf\xbd", 3);
		return 3;
	}
	if (c == '"' || c == '\\') {
		out[0] = '\\';
		out[1] = (char)c;
		return 2;
	}
	if (c < 0x20 || c == 0x7f) {
		static const char digits[] = "0123456789abcdef";

		memcpy(out, "\\u00", 4);
		out[4] = digits[c >> 4];
		out[5] = digits[c & 15];
		return 6;
	}
	memcpy(out, p, len);
	return len;
}

/* False when it had to be cut; the closing quote is always there. */
static bool line_text(struct line *l, struct str s)
{
	size_t i = 0, used, len;
	char out[8];

	while (i < s.n) {
		len = escape_char(s.p + i, s.n - i, out, &used);
		if (!line_put(l, out, len))
			break;
		i += used;
	}
	l->data[l->len++] = '"'; /* room for it is part of LINE_END */
	return i == s.n;
}

static void line_field(struct line *l, const struct log_field *f)
{
	size_t before = l->len;
	bool ok = line_put(l, ",\"", 2) && line_put(l, f->key, strlen(f->key)) &&
	          line_put(l, "\":", 2);
	char number[24];
	int n;

	if (ok && f->text.p) {
		ok = line_put(l, "\"", 1);
		if (ok && !line_text(l, f->text))
			l->cut = true;
	} else if (ok) {
		n = snprintf(number, sizeof(number), "%lld", (long long)f->number);
		ok = line_put(l, number, (size_t)n);
	}
	if (!ok) {
		l->len = before;
		l->cut = true;
	}
}

static void line_write(struct line *l)
{
	static const char cut[] = ",\"cut\":true";
	ssize_t r;

	if (l->cut) {
		memcpy(l->data + l->len, cut, sizeof(cut) - 1);
		l->len += sizeof(cut) - 1;
	}
	memcpy(l->data + l->len, "}\n", 2);
	l->len += 2;
	do {
		r = write(STDERR_FILENO, l->data, l->len);
	} while (r < 0 && errno == EINTR);
	/* A log that nobody can take is lost: there is no place to report it to. */
}

void log_event(enum log_level level, const char *event, const struct log_field *fields, size_t n)
{
	int saved = errno; /* a log line between a failure and its handling changes nothing */
	struct line l = {.len = 0};
	char time[32];
	size_t i;

	if (level < log_least)
		return;
	clock_iso8601(clock_wall_ms(), time);
	line_put(&l, "{\"time\":\"", 9);
	line_put(&l, time, strlen(time));
	line_put(&l, "\"", 1);
	line_field(&l, &LOG_S("level", level_name(level)));
	line_field(&l, &LOG_S("process", log_process));
	line_field(&l, &LOG_N("pid", getpid()));
	line_field(&l, &LOG_S("event", event));
	for (i = 0; i < n && !l.cut; i++)
		line_field(&l, &fields[i]);
	line_write(&l);
	errno = saved;
}

void log_text(enum log_level level, const char *event, const char *fmt, ...)
{
	struct log_field field = {.key = "text"};
	char text[LINE_MAX_BYTES];
	va_list ap;

	if (level < log_least)
		return;
	if (!fmt) {
		log_event(level, event, NULL, 0);
		return;
	}
	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	field.text = str_of(text);
	log_event(level, event, &field, 1);
}
