#include "base/base64.h"

static int append(struct buf *out, const uint8_t *p, size_t n, const char *set, bool pad)
{
	for (size_t i = 0; i < n; i += 3) {
		size_t left = n - i;
		uint32_t v = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
		             (left > 2 ? p[i + 2] : 0);
		char q[4] = {set[v >> 18], set[v >> 12 & 63], left > 1 ? set[v >> 6 & 63] : '=',
		        left > 2 ? set[v & 63] : '='};

		buf_append(out, q, pad || left > 2 ? 4 : left + 1);
	}
	return buf_error(out);
}

int base64_append(struct buf *out, const void *bytes, size_t n)
{
	static const char set[] =
	        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	return append(out, bytes, n, set, true);
}

int base64_append_url(struct buf *out, const void *bytes, size_t n)
{
	static const char set[] =
	        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

	return append(out, bytes, n, set, false);
}

static int digit_of(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '-' ? 62 : c == '_' ? 63 : -1;
}

bool base64_decode_url(struct buf *out, struct str text)
{
	uint32_t bits = 0;
	unsigned n_bits = 0;

	if (text.n % 4 == 1)
		return false;
	for (size_t i = 0; i < text.n; i++) {
		int d = digit_of(text.p[i]);

		if (d < 0)
			return false;
		bits = (bits << 6 | (uint32_t)d) & 0xffff;
		n_bits += 6;
		if (n_bits < 8)
			continue;
		n_bits -= 8;
		if (buf_putc(out, (char)(bits >> n_bits)) < 0)
			return false;
	}
	return (bits & ((1U << n_bits) - 1)) == 0; /* two texts never stand for the same bytes */
}
