/* Base64 (RFC 4648), with padding; and its form for URLs, without. */
#ifndef BRIG_BASE_BASE64_H
#define BRIG_BASE_BASE64_H

#include "base/buf.h"

#include <stddef.h>
#include <stdint.h>

int base64_append(struct buf *out, const void *bytes, size_t n);
int base64_append_url(struct buf *out, const void *bytes, size_t n);

#endif
