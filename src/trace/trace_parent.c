/*
 * The header `traceparent` (W3C Trace Context, level 1, section 3.2). Version 00 has exactly four
 * fields; a later one may have more after a dash, and is read by the first four, as the
 * specification asks; version ff is none. Capital letters are refused.
 */
#include "trace/trace.h"

#define LENGTH 55

static bool hex_field(const char *p, size_t n)
{
	return str_in_set((struct str){p, n}, "0123456789abcdef");
}

static bool all_zero(const char *p, size_t n)
{
	return str_in_set((struct str){p, n}, "0");
}

bool trace_parent_read(struct str s, struct trace_parent *ret)
{
	if (s.n < LENGTH || s.p[2] != '-' || s.p[35] != '-' || s.p[52] != '-')
		return false;
	if (!hex_field(s.p, 2) || !hex_field(s.p + 3, 32) || !hex_field(s.p + 36, 16) ||
	        !hex_field(s.p + 53, 2))
		return false;
	if (memcmp(s.p, "ff", 2) == 0 || all_zero(s.p + 3, 32) || all_zero(s.p + 36, 16))
		return false;
	if (s.n > LENGTH && (memcmp(s.p, "00", 2) == 0 || s.p[LENGTH] != '-'))
		return false;
	str_copy(ret->trace_id, sizeof(ret->trace_id), (struct str){s.p + 3, 32});
	str_copy(ret->span_id, sizeof(ret->span_id), (struct str){s.p + 36, 16});
	ret->flags = (uint8_t)(str_hex_digit(s.p[53]) << 4 | str_hex_digit(s.p[54]));
	return true;
}

void trace_parent_write(const struct trace_parent *p, char out[56])
{
	str_format(out, 56, "00-%s-%s-%02x", p->trace_id, p->span_id, p->flags);
}
