/* Strings with a length, and the few checks that are needed everywhere. Locale never matters. */
#ifndef BRIG_BASE_STR_H
#define BRIG_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A borrowed run of bytes; not NUL-terminated unless said. {NULL, 0} is "absent". */
struct str {
	const char *p;
	size_t n;
};

#define STR(lit) ((struct str){(lit), sizeof(lit) - 1})
static inline struct str str_of(const char *s)
{
	return (struct str){s, s ? strlen(s) : 0};
}
static inline bool str_eq(struct str a, struct str b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}
static inline bool str_is(struct str a, const char *s)
{
	return str_eq(a, str_of(s));
}
bool str_ieq(struct str a, struct str b); /* ASCII case ignored */
bool str_starts(struct str s, const char *prefix);
bool str_ends(struct str s, const char *suffix);
bool str_contains(struct str s, const char *what);
bool str_in_set(struct str s, const char *set); /* non-empty, and every byte is one of set */
struct str str_trim(struct str s);              /* space and tab at both ends */
/* Whole string, decimal digits only, no sign, no overflow. */
bool str_to_u64(struct str s, uint64_t *ret);
int str_hex_digit(char c); /* 0 … 15; -1: none */
/* snprintf that aborts (BUG) instead of cutting: for texts whose size we know. */
void str_format(char *dst, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Copies as much as fits, cut at a UTF-8 character boundary, always terminated. Returns true if all
 * fitted. */
bool str_copy(char *dst, size_t size, struct str s);
/* Equal in time that depends on the lengths only: for secrets. */
bool str_eq_secret(struct str a, struct str b);

#endif
