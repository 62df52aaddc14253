#include "network/pattern.h"

#include "proto/egress.h"

#define LABEL_MAX 63

static bool has(struct str s, char c)
{
	return s.n > 0 && memchr(s.p, c, s.n);
}

static const char *fault_of_bytes(struct str s)
{
	if (s.n == 0)
		return "is empty";
	if (s.n > EGRESS_NAME_MAX)
		return "is longer than a name can be (253 bytes)";
	if (str_contains(s, "://"))
		return "holds a scheme; give the name alone";
	if (has(s, '/'))
		return "holds a path; give the name alone";
	if (has(s, ':'))
		return "holds a port or is an IPv6 address; give the name alone (ports are always "
		       "80 "
		       "and 443)";
	if (has(s, '@'))
		return "holds a user; give the name alone";
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] >= 'A' && s.p[i] <= 'Z')
			return "must be in lower case";
	if (!str_in_set(s, "abcdefghijklmnopqrstuvwxyz0123456789-_.*"))
		return "may hold letters, digits, \"-\", \"_\", \".\" and \"*\" only (other "
		       "scripts "
		       "as xn--…)";
	return NULL;
}

/* The last label decides whether it is an address: 127.1 and 0x7f are, 1.example is not. */
static bool is_address(struct str s)
{
	size_t at = s.n;

	while (at > 0 && s.p[at - 1] != '.')
		at--;
	return str_in_set((struct str){s.p + at, s.n - at}, "0123456789") ||
	       (s.n - at > 2 && s.p[at] == '0' && s.p[at + 1] == 'x' &&
	               str_in_set((struct str){s.p + at + 2, s.n - at - 2}, "0123456789abcdef"));
}

const char *pattern_fault(struct str s)
{
	const char *wrong = fault_of_bytes(s);
	size_t label = 0;

	if (wrong)
		return wrong;
	if (s.p[0] == '.' || s.p[s.n - 1] == '.' || str_contains(s, ".."))
		return "has an empty part between its dots";
	if (is_address(s))
		return "is an address; only names can be allowed, or \"*\" for everything";
	for (size_t i = 0; i < s.n; i++) {
		label = s.p[i] == '.' ? 0 : label + 1;
		if (label > LABEL_MAX)
			return "has a part of more than 63 bytes";
	}
	return NULL;
}

/*
 * `inner` is matched as if it were a name: a star in it can be taken by a star of `outer` only,
 * since no other byte of `outer` equals it. Whatever run of characters stands for the inner star
 * is then taken by that outer star too.
 *
 * The match itself: each byte of outer is compared; on a difference the last star takes one byte
 * more. Time is at most outer × inner.
 */
bool pattern_covers(struct str outer, struct str inner)
{
	size_t o = 0, i = 0, star = SIZE_MAX, taken = 0;

	while (i < inner.n) {
		if (o < outer.n && outer.p[o] == '*') {
			star = o++;
			taken = i;
		} else if (o < outer.n && outer.p[o] == inner.p[i]) {
			o++;
			i++;
		} else if (star != SIZE_MAX) {
			o = star + 1;
			i = ++taken;
		} else {
			return false;
		}
	}
	while (o < outer.n && outer.p[o] == '*')
		o++;
	return o == outer.n;
}

const char *pattern_lookalikes(struct str s)
{
	const char *inner;

	if (s.n < 2)
		return NULL; /* "*" says what it means */
	inner = memchr(s.p + 1, '*', s.n - 1);
	if (inner && inner == s.p + s.n - 1)
		return "its \"*\" at the end also admits names of other owners that begin so";
	if (inner)
		return "its inner \"*\" also admits names of other owners, since it stands for "
		       "dots "
		       "too";
	if (s.p[0] == '*' && s.p[1] != '.')
		return "its \"*\" without a dot behind also admits other names that end so";
	return NULL;
}
