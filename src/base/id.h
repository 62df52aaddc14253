/* Random ids and hashes (libcrypto). */
#ifndef BRIG_BASE_ID_H
#define BRIG_BASE_ID_H

#include "base/str.h"

#include <stddef.h>
#include <stdint.h>

void id_random(void *out, size_t n); /* from the kernel; aborts if it has none */
/* prefix + n characters of [0-9a-z] (n ≤ 40), into out (size ≥ strlen(prefix)+n+1). ~5.17 bits
 * each. */
void id_make(char *out, size_t size, const char *prefix, size_t n);
void id_sha256(struct str data, uint8_t out[32]);
/* SHA-256 over several parts, each preceded by its length (8 bytes, big-endian), so that ("ab","c")
 * and ("a","bc") differ. */
void id_sha256_parts(const struct str *parts, size_t n, uint8_t out[32]);
void id_hex(const void *bytes, size_t n, char *out); /* 2n lower-case digits and a NUL */

#endif
