/*
 * A TLS connection's first message, read as far as the server name. Pure; bytes may come in any
 * cut. All of them are the caller's to keep and send on: this only looks.
 */
#ifndef BRIG_EGRESS_HELLO_H
#define BRIG_EGRESS_HELLO_H

#include "base/buf.h"
#include "proto/egress.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EGRESS_HELLO_MAX 65536 /* of the message, and of the bytes that carry it */

struct egress_hello {
	struct buf message; /* the handshake message so far, without the records' own bytes */
	size_t seen;        /* bytes of the stream that were looked at */
	uint8_t header[5];  /* of the current record */
	uint8_t header_len;
	size_t record_left;
	bool named;                     /* set with result 1: a server name was sent */
	char name[EGRESS_NAME_MAX + 1]; /* as it was sent, but for its case */
};

void egress_hello_init(struct egress_hello *h);
void egress_hello_free(struct egress_hello *h);

/* Looks at the next bytes of the stream. 0: more are needed; 1: the message is whole and well
 * formed; -1: it is no TLS, or not exactly one ClientHello, or its server name is doubled or
 * malformed. *ret_why says which (static text). After 1 or -1 nothing more is taken. */
int egress_hello_feed(struct egress_hello *h, const uint8_t *data, size_t n, const char **ret_why);

#endif
