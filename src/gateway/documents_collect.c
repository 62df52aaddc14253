/*
 * Blobs of documents that no row has: a process died between making the blob and making its row, or
 * between removing them. Most blobs are in use, so each is first asked for by a plain read; only
 * one that seems unused is asked for again in the transaction that keeps rows from coming to have
 * it, and removed there.
 */
#include "gateway/documents.h"

#define YOUNG_MS   3600000
#define ROWS_ONCE  500
#define BLOBS_ONCE 1000 /* removed in one collection: the rest is for the next */

struct collection {
	struct gateway *g;
	int n;
	struct error err;
};

struct unused {
	struct blob_store *blobs;
	struct str key;
};

static int remove_blob(void *ctx, struct error *err)
{
	struct unused *u = ctx;
	int r = blob_delete(u->blobs, u->key, err);

	return r < 0 ? r : 0;
}

int documents_drop_blob(struct gateway *g, struct str blob, struct error *err)
{
	struct unused u = {g->blobs, blob};

	return store_document_blob_unused(g->store, blob, remove_blob, &u, err);
}

static bool look_at(void *ctx, struct str key, uint64_t size, int64_t age_ms)
{
	struct collection *c = ctx;
	int r;

	if (age_ms < YOUNG_MS)
		return true;
	r = store_document_blob_used(c->g->reader, key, &c->err);
	if (r == 0)
		r = documents_drop_blob(c->g, key, &c->err);
	else
		r = r < 0 ? r : 0;
	c->n += r > 0;
	return r >= 0 && c->n < BLOBS_ONCE;
}

int documents_collect(struct gateway *g, struct error *err)
{
	struct collection c = {.g = g};
	int r;

	do
		r = store_documents_expire(g->store, clock_wall_ms(), ROWS_ONCE, err);
	while (r == ROWS_ONCE);
	if (r < 0)
		return r;
	r = blob_list(g->blobs, STR("doc"), look_at, &c, err);
	if (r == 0 && c.err.code != 0) {
		*err = c.err;
		r = -(int)c.err.code;
	}
	return r < 0 ? r : c.n;
}
