#include "base/utf8.h"

#include "base/error.h"

#include <string.h>

/*
 * Reads what begins at p (n ≥ 1): a valid character (returns its length, *ret_state CHAR_VALID), or
 * a maximal subpart of an ill-formed sequence (Unicode 3.9, table 3-7), which is CHAR_CUT where the
 * only thing wrong with it is that the input ends.
 */
enum char_state { CHAR_VALID, CHAR_INVALID, CHAR_CUT };

static size_t utf8_step(const char *text, size_t n, enum char_state *ret_state)
{
	const unsigned char *p = (const unsigned char *)text;
	unsigned char low = 0x80, high = 0xbf; /* bounds of the second byte */
	size_t len, i;

	*ret_state = CHAR_VALID;
	if (p[0] < 0x80)
		return 1;
	*ret_state = CHAR_INVALID;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 1;
	len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	if (p[0] == 0xe0)
		low = 0xa0; /* no over-long forms */
	else if (p[0] == 0xed)
		high = 0x9f; /* no surrogates */
	else if (p[0] == 0xf0)
		low = 0x90;
	else if (p[0] == 0xf4)
		high = 0x8f; /* nothing above U+10FFFF */
	for (i = 1; i < len; i++) {
		if (i == n) {
			*ret_state = CHAR_CUT;
			return i;
		}
		if (p[i] < low || p[i] > high)
			return i;
		low = 0x80;
		high = 0xbf;
	}
	*ret_state = CHAR_VALID;
	return len;
}

/* Eight at a time. */
size_t utf8_ascii_run(const char *p, size_t n)
{
	size_t i = 0;
	uint64_t word;

	for (; n - i >= sizeof(word); i += sizeof(word)) {
		memcpy(&word, p + i, sizeof(word));
		if (word & UINT64_C(0x8080808080808080))
			break;
	}
	while (i < n && !((unsigned char)p[i] & 0x80))
		i++;
	return i;
}

size_t utf8_char_len(const char *p, size_t n)
{
	enum char_state state;
	size_t len;

	if (n == 0)
		return 0;
	len = utf8_step(p, n, &state);
	return state == CHAR_VALID ? len : 0;
}

size_t utf8_subpart_len(const char *p, size_t n)
{
	enum char_state state;
	size_t len;

	if (n == 0)
		return 0;
	len = utf8_step(p, n, &state);
	return state == CHAR_VALID ? 0 : len;
}

bool utf8_valid(const char *p, size_t n)
{
	size_t i = 0, len;

	while (i < n) {
		i += utf8_ascii_run(p + i, n - i);
		if (i == n)
			break;
		len = utf8_char_len(p + i, n - i);
		if (len == 0)
			return false;
		i += len;
	}
	return true;
}

size_t utf8_count(const char *p, size_t n)
{
	enum char_state state;
	size_t i = 0, run, count = 0;

	while (i < n) {
		run = utf8_ascii_run(p + i, n - i);
		i += run;
		count += run;
		if (i == n)
			break;
		i += utf8_step(p + i, n - i, &state);
		count++;
	}
	return count;
}

int utf8_append_valid(struct buf *out, const char *p, size_t n)
{
	enum char_state state;
	size_t begin = 0, i = 0, len;
	int r;

	while (i < n) {
		i += utf8_ascii_run(p + i, n - i);
		if (i == n)
			break;
		len = utf8_step(p + i, n - i, &state);
		if (state != CHAR_VALID) {
			if ((r = buf_append(out, p + begin, i - begin)) ||
			        (r = buf_append(out, "\xef\xbf\xbd", 3)))
				return r;
			begin = i + len;
		}
		i += len;
	}
	return buf_append(out, p + begin, n - begin);
}

size_t utf8_incomplete_tail(const char *p, size_t n)
{
	enum char_state state;
	size_t back;

	for (back = 1; back <= 3 && back <= n; back++) {
		if (((unsigned char)p[n - back] & 0xc0) == 0x80)
			continue;
		utf8_step(p + n - back, back, &state);
		return state == CHAR_CUT ? back : 0;
	}
	return 0;
}

int utf8_encode(uint32_t c, char out[4])
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}
