#include "base/base64.h"

#include <stdbool.h>

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
