#include "base/str.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

static unsigned char ascii_lower(char c)
{
	unsigned char u = (unsigned char)c;

	return u >= 'A' && u <= 'Z' ? (unsigned char)(u + ('a' - 'A')) : u;
}

bool str_ieq(struct str a, struct str b)
{
	size_t i;

	if (a.n != b.n)
		return false;
	for (i = 0; i < a.n; i++)
		if (ascii_lower(a.p[i]) != ascii_lower(b.p[i]))
			return false;
	return true;
}

bool str_starts(struct str s, const char *prefix)
{
	size_t n = strlen(prefix);

	return s.n >= n && (n == 0 || memcmp(s.p, prefix, n) == 0);
}

bool str_ends(struct str s, const char *suffix)
{
	size_t n = strlen(suffix);

	return s.n >= n && (n == 0 || memcmp(s.p + s.n - n, suffix, n) == 0);
}

bool str_contains(struct str s, const char *what)
{
	return s.n > 0 && memmem(s.p, s.n, what, strlen(what)) != NULL;
}

bool str_in_set(struct str s, const char *set)
{
	size_t n = strlen(set);
	size_t i;

	/* memchr with a length: strchr would find the terminating NUL in every set. */
	for (i = 0; i < s.n; i++)
		if (!memchr(set, s.p[i], n))
			return false;
	return s.n > 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

struct str str_trim(struct str s)
{
	while (s.n > 0 && is_blank(s.p[0])) {
		s.p++;
		s.n--;
	}
	while (s.n > 0 && is_blank(s.p[s.n - 1]))
		s.n--;
	return s;
}

bool str_to_u64(struct str s, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i;

	if (s.n == 0)
		return false;
	for (i = 0; i < s.n; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
		if (__builtin_mul_overflow(v, 10U, &v) ||
		        __builtin_add_overflow(v, (uint64_t)(s.p[i] - '0'), &v))
			return false;
	}
	*ret = v;
	return true;
}

int str_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

void str_format(char *dst, size_t size, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(dst, size, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= size)
		BUG("a text of %d bytes does not fit into %zu", n, size);
}

bool str_copy(char *dst, size_t size, struct str s)
{
	size_t n = s.n, back;

	if (size == 0)
		return false;
	if (n >= size) {
		n = size - 1;
		/* A character has at most three bytes after its first: more is not UTF-8 anyway. */
		for (back = 0; back < 3 && n > 0 && ((unsigned char)s.p[n] & 0xc0) == 0x80; back++)
			n--;
	}
	if (n > 0)
		memcpy(dst, s.p, n);
	dst[n] = '\0';
	return n == s.n;
}

bool str_eq_secret(struct str a, struct str b)
{
	volatile unsigned char diff = 0; /* volatile: no compiler may leave the loop early */
	size_t i;

	if (a.n != b.n)
		return false;
	for (i = 0; i < a.n; i++)
		diff = (unsigned char)(diff | ((unsigned char)a.p[i] ^ (unsigned char)b.p[i]));
	return diff == 0;
}
