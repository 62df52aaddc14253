/*
 * HTTP/1.x requests as a container sends them: strict (RFC 9112), since where one request ends is
 * where the next one's Host is looked for. Whatever two readers could take differently is refused.
 * Pure; no memory is kept.
 */
#ifndef BRIG_EGRESS_HEAD_H
#define BRIG_EGRESS_HEAD_H

#include "base/buf.h"
#include "base/str.h"
#include "proto/egress.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EGRESS_HEAD_MAX 65536

struct egress_head {
	bool is_head;   /* HEAD: its answer has no body */
	bool websocket; /* asks to go on as one */
	bool h2c;       /* offers to go on as HTTP/2: egress_head_without_h2c() */
	bool chunked;
	uint64_t length; /* of the body, where it is not chunked */
	char host[EGRESS_NAME_MAX +
	          1]; /* lower case, without port 80 and trailing dot; not empty */
};

/* Where the head at the front of p ends: its length; 0: more is needed; -1: a byte that no head
 * holds, or over EGRESS_HEAD_MAX. *scanned, 0 at first, is kept by the caller between calls. */
long egress_head_end(const char *p, size_t n, size_t *scanned, const char **ret_why);

/* Reads a whole head. 0, or the status to refuse it with: 400 (malformed), 520 (understood, and not
 * let through); *ret_why then is a short static text. */
int egress_head_read(struct str head, struct egress_head *ret, const char **ret_why);

/* Appends the head, which was read, as it was without that offer: a server that never hears of it
 * answers in HTTP/1.1, which every client that makes it must take. */
void egress_head_without_h2c(struct str head, struct buf *out);

/* "name", "name:80", as in a Host field, into host. False: malformed, or another port. */
bool egress_head_host(struct str s, char host[EGRESS_NAME_MAX + 1]);

/* One line of fields, without its end: name and trimmed value. False: malformed. */
bool egress_head_field(struct str line, struct str *ret_name, struct str *ret_value);
/* Takes the next line from *rest, which ends in CR LF. False: there is none. */
bool egress_head_line(struct str *rest, struct str *ret_line);

/* A chunked body; extensions are refused, trailers checked and bounded. */
struct egress_chunks {
	uint64_t left;
	uint32_t trailer_bytes;
	uint8_t state, digits;
};
void egress_chunks_init(struct egress_chunks *k);
/* 0: all n bytes are the body's; 1: it ended after *ret_used of them; -1: malformed there. */
int egress_chunks_feed(struct egress_chunks *k, const char *data, size_t n, size_t *ret_used);

#endif
