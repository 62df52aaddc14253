/*
 * Decoding of a request body's content coding: gzip and zstd.
 *
 * The caller pulls: it gives room for decoded bytes and gets at most that many, so it can count
 * them and stop, and a bomb is never unpacked further than its first piece over the limit. Memory
 * of a decoder is bounded (gzip about 44 KiB, zstd by the 8 MiB window that RFC 9659 allows in
 * HTTP).
 */
#ifndef BRIG_HTTP_BODY_H
#define BRIG_HTTP_BODY_H

#include "http/parse.h"

#include <stdbool.h>
#include <stddef.h>

struct http_body;

struct http_body *http_body_new(enum http_coding coding); /* gzip or zstd; NULL: no memory */
struct http_body *http_body_free(struct http_body *b);
/*
 * Decodes. *ret_used bytes of in were taken and *ret_made bytes were put into out; with neither,
 * more input is needed. -ERR_INVALID: not a stream of that coding (or a window over the bound).
 */
int http_body_decode(struct http_body *b, const char *in, size_t n, size_t *ret_used, char *out,
        size_t room, size_t *ret_made);
/* Whether more may come out without more input: out was filled to the last byte. */
bool http_body_pending(const struct http_body *b);
/* The input has ended: whether it ended where a stream ends. */
bool http_body_complete(const struct http_body *b);
size_t http_body_memory(const struct http_body *b);

#endif
