/*
 * The grammar of an HTTP/1.x request, head and chunked body: strict RFC 9112 (the list in
 * server.h).
 *
 * Pure: no I/O, no clock, no callbacks; bytes may come in any cut. Functions that judge bytes
 * return 0 for "more is needed", 1 for "complete", or a negative HTTP status with a sentence for
 * the client in *ret_text (static text, never what was sent). After 1 or a refusal the object takes
 * no more bytes.
 */
#ifndef BRIG_HTTP_PARSE_H
#define BRIG_HTTP_PARSE_H

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum http_coding {
	HTTP_CODING_IDENTITY,
	HTTP_CODING_GZIP,
	HTTP_CODING_ZSTD,
	HTTP_CODING_UNKNOWN, /* or more than one */
};

/* Positions in http_parse_head.bytes, since the bytes move while they grow. */
struct http_parse_field {
	uint32_t name, name_len;
	uint32_t value, value_len; /* trimmed */
};

struct http_parse_head {
	struct buf bytes; /* what was read of the head, as sent */
	struct http_parse_field *fields;
	size_t n_fields, cap_fields, max_fields;
	/* Set with the request line; lengths are 0 before. */
	uint32_t method, method_len;
	uint32_t target, target_len;
	uint32_t path, path_len; /* path_len 0: "/" (an absolute target without a path) */
	uint32_t query, query_len;
	uint32_t mark; /* where the piece being read began */
	uint8_t state, field_state;
	uint8_t minor;  /* of HTTP/1.x */
	uint8_t coding; /* enum http_coding */
	/* Set when complete. */
	bool keep_alive;
	bool expect_continue;
	bool chunked;
	bool has_length;
	uint64_t length; /* UINT64_MAX: digits only, but more than fits */
};

void http_parse_head_init(struct http_parse_head *h, size_t max_bytes, size_t max_fields);
void http_parse_head_free(struct http_parse_head *h);
/* Reads the head's bytes from data; *ret_used says how many were the head's. */
int http_parse_head_feed(struct http_parse_head *h, const char *data, size_t n, size_t *ret_used,
        const char **ret_text);
/* The first field of that name (case ignored), or {NULL, 0}. An empty value is not NULL. */
struct str http_parse_head_field(const struct http_parse_head *h, const char *name);
size_t http_parse_head_count(const struct http_parse_head *h, const char *name);
struct str http_parse_head_str(const struct http_parse_head *h, uint32_t at, uint32_t len);

struct http_parse_chunk {
	uint64_t left; /* bytes of the current chunk */
	uint32_t ext_bytes, line_bytes, trailer_bytes;
	uint8_t state, field_state, digits;
};

void http_parse_chunk_init(struct http_parse_chunk *k);
/*
 * Takes framing and at most one run of body bytes, which lies in data and is given in *ret_piece
 * ({NULL, 0} when this call met none). Call again while *ret_used < n and the result is 0.
 * Extensions and trailers are checked, bounded and dropped.
 */
int http_parse_chunk_feed(struct http_parse_chunk *k, const char *data, size_t n, size_t *ret_used,
        struct str *ret_piece, const char **ret_text);
/* Gives back the last n bytes of the piece just given: they were not used and will be fed again. */
void http_parse_chunk_unread(struct http_parse_chunk *k, size_t n);

#endif
