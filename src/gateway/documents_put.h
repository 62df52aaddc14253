/*
 * One document being made: bytes in, a row and a blob out, or nothing. All calls block and belong
 * on the pool, one at a time; what was not finished leaves nothing.
 */
#ifndef BRIG_GATEWAY_DOCUMENTS_PUT_H
#define BRIG_GATEWAY_DOCUMENTS_PUT_H

#include "gateway/internal.h"

struct documents_put;

/* Makes the object alone: on any thread. */
struct documents_put *documents_put_new(struct gateway *g, const struct config_key *key);
struct documents_put *documents_put_free(struct documents_put *p); /* takes NULL; returns NULL */
/* -ERR_PERMISSION where the workspace is full already, -ERR_UNAVAILABLE where the disk is. */
int documents_put_begin(struct documents_put *p, struct error *err);
int documents_put_write(struct documents_put *p, struct str bytes, struct error *err);
/* What it is by its bytes; NULL: unknown. */
const char *documents_put_type(const struct documents_put *p);
/* d: filename, mime, purpose, downloadable and expires_ms are given, the last counted from making
 * (0: never); the rest is filled in. */
int documents_put_finish(struct documents_put *p, struct store_document *d, struct error *err);

#endif
