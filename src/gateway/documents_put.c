/*
 * Theory of operation. The bytes go into a blob under way, and through a hash. The blob's key is
 * made of account, workspace and that hash: the same content twice in one workspace is kept once,
 * and nothing about another workspace's content can be told from it. The blob gets its name inside
 * the transaction that makes the row (store_document_create).
 *
 * Ids begin with the time of making in base 36, so that they sort by it; their last 8 characters
 * are random, since they stand in file names inside of containers.
 */
#include "gateway/documents_put.h"

#include "base/id.h"
#include "gateway/documents.h"
#include "gateway/documents_sniff.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <time.h>

#define ID_TIME   11 /* digits: 4,000 years */
#define ID_RANDOM 13

struct documents_put {
	struct gateway *g;
	const struct config_key *key;
	struct blob_put *blob;
	EVP_MD_CTX *hash;
	struct sniff sniff;
};

struct documents_put *documents_put_new(struct gateway *g, const struct config_key *key)
{
	struct documents_put *p = mem_alloc(sizeof(*p));

	p->g = g;
	p->key = key;
	return p;
}

struct documents_put *documents_put_free(struct documents_put *p)
{
	if (p != NULL) {
		blob_put_abort(p->blob);
		EVP_MD_CTX_free(p->hash);
		free(p);
	}
	return NULL;
}

int documents_put_begin(struct documents_put *p, struct error *err)
{
	const struct store_scope scope = row_scope(p->key);
	uint64_t used = 0;
	int r = store_document_usage(p->g->reader, &scope, &used, err);

	if (r < 0)
		return r;
	if (used >= p->g->config->limits.workspace_files_bytes) {
		r = error_set(err, ERR_PERMISSION, "The workspace's storage is full: %llu bytes.",
		        (unsigned long long)used);
		str_copy(err->type, sizeof(err->type), STR("storage_quota_exceeded"));
		return r;
	}
	p->hash = EVP_MD_CTX_new();
	if (p->hash == NULL || EVP_DigestInit_ex(p->hash, EVP_sha256(), NULL) != 1)
		return error_set(err, ERR_NOMEM, "There is no memory for this file now.");
	return blob_put_begin(p->g->blobs, &p->blob, err);
}

int documents_put_write(struct documents_put *p, struct str bytes, struct error *err)
{
	documents_sniff_feed(&p->sniff, bytes);
	if (EVP_DigestUpdate(p->hash, bytes.p, bytes.n) != 1)
		return error_set(err, ERR_INTERNAL, "hashing failed");
	return blob_put_write(p->blob, bytes, err);
}

const char *documents_put_type(const struct documents_put *p)
{
	return documents_sniff_type(&p->sniff);
}

/* Returns the time in it, as milliseconds. */
static int64_t make_id(char id[STORE_ID_MAX + 1])
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
	char prefix[sizeof(DOCUMENTS_ID_PREFIX) + ID_TIME] = DOCUMENTS_ID_PREFIX;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	uint64_t t = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;

	for (size_t i = ID_TIME; i > 0; i--, t /= 36)
		prefix[sizeof(DOCUMENTS_ID_PREFIX) - 1 + i - 1] = digits[t % 36];
	id_make(id, STORE_ID_MAX + 1, prefix, ID_RANDOM);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int make_key(struct documents_put *p, char key[STORE_BLOB_MAX + 1], struct error *err)
{
	uint8_t content[EVP_MAX_MD_SIZE], hash[32];
	char hex[65];
	unsigned n = 0;

	if (EVP_DigestFinal_ex(p->hash, content, &n) != 1)
		return error_set(err, ERR_INTERNAL, "hashing failed");
	const struct str parts[] = {
	        str_of(p->key->account), str_of(p->key->workspace), {(const char *)content, n}};

	id_sha256_parts(parts, 3, hash);
	id_hex(hash, sizeof(hash), hex);
	str_format(key, STORE_BLOB_MAX + 1, "doc/%.2s/%s", hex, hex);
	return 0;
}

struct commit {
	struct blob_put *blob;
	struct str key;
};

/* Where the blob is there already it is the same one. */
static int commit_blob(void *ctx, struct error *err)
{
	struct commit *c = ctx;
	int r = blob_put_commit(steal(c->blob), c->key, err);

	return r < 0 ? r : 0;
}

int documents_put_finish(struct documents_put *p, struct store_document *d, struct error *err)
{
	const struct store_scope scope = row_scope(p->key);
	int64_t now = make_id(d->id);
	int r;

	d->bytes = p->sniff.size;
	d->created_ms = now;
	d->expires_ms = d->expires_ms > 0 ? now + d->expires_ms : 0;
	r = make_key(p, d->blob, err);
	if (r == 0)
		r = blob_put_sync(p->blob, err);
	if (r < 0)
		return r;
	struct commit c = {steal(p->blob), str_of(d->blob)};

	r = store_document_create(p->g->store, &scope, d,
	        p->g->config->limits.workspace_files_bytes, commit_blob, &c, err);
	blob_put_abort(c.blob);
	return r;
}
