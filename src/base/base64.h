/* Base64 (RFC 4648), with padding; and its form for URLs, without. */
#ifndef BRIG_BASE_BASE64_H
#define BRIG_BASE_BASE64_H

#include "base/buf.h"

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int base64_append(struct buf *out, const void *bytes, size_t n);
int base64_append_url(struct buf *out, const void *bytes, size_t n);
/* Appends the bytes. False, with part of them in out: it is not exactly what base64_append_url()
 * writes, or out is full. */
bool base64_decode_url(struct buf *out, struct str text);

#endif
