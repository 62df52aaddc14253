/* Manifests: see the header for the layout. */
#include "container/manifest.h"

#include "base/buf.h"
#include "base/mem.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER 65536

static int damaged(struct error *err, const char *what)
{
	return error_set(err, ERR_PROTOCOL, "the saved tree is damaged: %s", what);
}

/* ---- nodes ---- */

static bool name_is_legal(const char *name, size_t n)
{
	if (n == 0 || n > TREE_NAME_MAX || memchr(name, '/', n) || memchr(name, 0, n))
		return false;
	return !(n == 1 && name[0] == '.') && !(n == 2 && memcmp(name, "..", 2) == 0);
}

static bool xattrs_are_legal(const uint8_t *p, size_t n)
{
	while (n > 0) {
		struct tree_xattr x;

		if (n < sizeof(x))
			return false;
		memcpy(&x, p, sizeof(x));
		if (x.name_len == 0 || x.name_len > 255 || x.value_len > TREE_XATTR_MAX ||
		        n - sizeof(x) < (size_t)x.name_len + x.value_len ||
		        memchr(p + sizeof(x), 0, x.name_len))
			return false;
		p += sizeof(x) + x.name_len + x.value_len;
		n -= sizeof(x) + x.name_len + x.value_len;
	}
	return true;
}

/* The numbers alone: what a reader must know before it reads on. */
static int node_check(const struct tree_node *n, struct error *err)
{
	if (n->type > TREE_HARD)
		return damaged(err, "a node of no known type");
	if (n->name_len > TREE_NAME_MAX || n->target_len > TREE_TARGET_MAX ||
	        n->xattr_len > TREE_XATTR_MAX)
		return damaged(err, "a name, target or attributes are too long");
	if ((n->type == TREE_LINK) != (n->target_len > 0))
		return damaged(err, "a target where none belongs");
	if ((n->flags & ~(TREE_SAME | TREE_LINKED)) != 0 || (n->flags != 0 && n->type != TREE_FILE))
		return damaged(err, "flags where none belong");
	if (n->mode > 07777 || n->uid > 65535 || n->gid > 65535 || n->mtime_ns > 999999999)
		return damaged(err, "an owner, mode or time out of bounds");
	if (n->size > TREE_SIZE_MAX || (n->size > 0 && n->type != TREE_FILE))
		return damaged(err, "a size out of bounds");
	return 0;
}

int tree_entry_check(const struct tree_entry *e, bool first, uint32_t *depth, struct error *err)
{
	const struct tree_node *n = &e->node;
	int r = node_check(n, err);

	if (r < 0)
		return r;
	if (n->type == TREE_END)
		return first ? damaged(err, "it is empty") : 0;
	if (first ? n->type != TREE_FOLDER || n->depth != 0 || n->name_len != 0
	          : n->depth == 0 || n->depth > *depth || n->depth > TREE_DEPTH_MAX)
		return damaged(err, "a node in a place where it cannot be");
	if (!first && !name_is_legal(e->name, n->name_len))
		return damaged(err, "an illegal name");
	if (memchr(e->target, 0, n->target_len) || !xattrs_are_legal(e->xattrs, n->xattr_len))
		return damaged(err, "an illegal target or attribute");
	*depth = n->type == TREE_FOLDER ? n->depth + 1 : n->depth;
	return 0;
}

/* ---- reading ---- */

struct manifest_reader {
	int fd;
	uint64_t end; /* of the nodes: where the hash begins */
	uint64_t at;  /* in the file, of buffer's end */
	size_t used, filled;
	struct manifest_head head;
	uint32_t depth;
	bool first, in_file, over;
	uint64_t file_size, next_offset;
	uint8_t buffer[BUFFER];
};

static int read_at(int fd, void *data, size_t n, uint64_t at, struct error *err)
{
	size_t done = 0;

	while (done < n) {
		ssize_t got = pread(fd, (char *)data + done, n - done, (off_t)(at + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return error_errno(err, errno, "could not read the saved tree");
		if (got == 0)
			return damaged(err, "it ends too early");
		done += (size_t)got;
	}
	return 0;
}

static int reader_take(struct manifest_reader *r, void *data, size_t n, struct error *err)
{
	size_t done = 0;

	while (done < n) {
		size_t left = r->filled - r->used, part = n - done < left ? n - done : left;

		memcpy((char *)data + done, r->buffer + r->used, part);
		r->used += part;
		done += part;
		if (done == n)
			break;
		size_t more = r->end - r->at < BUFFER ? (size_t)(r->end - r->at) : BUFFER;

		if (more == 0)
			return damaged(err, "it ends too early");
		int e = read_at(r->fd, r->buffer, more, r->at, err);

		if (e < 0)
			return e;
		r->at += more;
		r->used = 0;
		r->filled = more;
	}
	return 0;
}

/* Whether its last bytes are the hash of all before. */
static int hash_check(int fd, uint64_t end, uint8_t *buffer, struct error *err)
{
	uint8_t want[MANIFEST_HASH], got[MANIFEST_HASH];
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	int r = md != NULL && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1
	                ? 0
	                : error_set(err, ERR_NOMEM, "no memory for a hash");

	for (uint64_t at = 0; r == 0 && at < end;) {
		size_t n = end - at < BUFFER ? (size_t)(end - at) : BUFFER;

		r = read_at(fd, buffer, n, at, err);
		if (r == 0)
			EVP_DigestUpdate(md, buffer, n);
		at += n;
	}
	if (r == 0)
		r = read_at(fd, want, sizeof(want), end, err);
	if (r == 0) {
		EVP_DigestFinal_ex(md, got, NULL);
		if (memcmp(want, got, sizeof(got)) != 0)
			r = damaged(err, "its hash is another");
	}
	EVP_MD_CTX_free(md);
	return r;
}

int manifest_open(int fd, uint64_t size, const uint8_t key[SUP_KEY_LEN],
        struct manifest_reader **ret, struct error *err)
{
	struct manifest_reader *r;
	int e;

	if (size < sizeof(r->head) + sizeof(struct tree_node) + MANIFEST_HASH)
		return damaged(err, "it is too short");
	r = mem_alloc(sizeof(*r));
	r->fd = fd;
	r->end = size - MANIFEST_HASH;
	r->first = true;
	e = hash_check(fd, r->end, r->buffer, err);
	if (e == 0)
		e = reader_take(r, &r->head, sizeof(r->head), err);
	if (e == 0 && (memcmp(r->head.magic, MANIFEST_MAGIC, sizeof(r->head.magic)) != 0 ||
	                      r->head.version != MANIFEST_VERSION))
		e = damaged(err, "it is of another version");
	if (e == 0 && memcmp(r->head.key, key, SUP_KEY_LEN) != 0)
		e = damaged(err, "it is another container's");
	if (e < 0)
		manifest_close(r);
	else
		*ret = r;
	return e;
}

struct manifest_reader *manifest_close(struct manifest_reader *r)
{
	free(r);
	return NULL;
}

const struct manifest_head *manifest_head(const struct manifest_reader *r)
{
	return &r->head;
}

uint64_t manifest_tell(const struct manifest_reader *r)
{
	return r->at - (r->filled - r->used);
}

int manifest_seek(struct manifest_reader *r, uint64_t place, void *ret_xattrs, uint32_t xattr_len,
        struct error *err)
{
	uint64_t from = place - xattr_len;

	if (from <= r->at && r->at - from <= r->filled) {
		r->used = r->filled - (size_t)(r->at - from);
	} else {
		r->at = from;
		r->used = r->filled = 0;
	}
	r->in_file = true;
	r->next_offset = 0;
	r->file_size = TREE_SIZE_MAX;
	return reader_take(r, ret_xattrs, xattr_len, err);
}

int manifest_next_chunk(struct manifest_reader *r, struct manifest_chunk *ret, struct error *err)
{
	int e;

	if (!r->in_file)
		return 0;
	e = reader_take(r, ret, sizeof(*ret), err);
	if (e < 0)
		return e;
	if (ret->length == 0) {
		r->in_file = false;
		return 0;
	}
	/* Within one piece, so that a worker's buffer holds what it becomes. */
	if (ret->length > TREE_PIECE - ret->offset % TREE_PIECE || ret->offset < r->next_offset ||
	        ret->offset > r->file_size || ret->length > r->file_size - ret->offset)
		return damaged(err, "a chunk out of its file");
	r->next_offset = ret->offset + ret->length;
	return 1;
}

int manifest_next(struct manifest_reader *r, struct tree_entry *ret, struct error *err)
{
	struct manifest_chunk passed;
	int e;

	while ((e = manifest_next_chunk(r, &passed, err)) > 0)
		;
	if (e < 0 || r->over)
		return e;
	e = reader_take(r, &ret->node, sizeof(ret->node), err);
	if (e == 0)
		e = node_check(&ret->node, err);
	if (e == 0)
		e = reader_take(r, ret->name, ret->node.name_len, err);
	if (e == 0)
		e = reader_take(r, ret->target, ret->node.target_len, err);
	if (e == 0)
		e = reader_take(r, ret->xattrs, ret->node.xattr_len, err);
	if (e == 0)
		e = tree_entry_check(ret, r->first, &r->depth, err);
	if (e < 0)
		return e;
	ret->name[ret->node.name_len] = 0;
	ret->target[ret->node.target_len] = 0;
	r->first = false;
	if (ret->node.type == TREE_END) {
		r->over = true;
		return manifest_tell(r) == r->end ? 0 : damaged(err, "it goes on after its end");
	}
	r->in_file = ret->node.type == TREE_FILE;
	r->file_size = ret->node.size;
	r->next_offset = 0;
	return 1;
}

/* ---- writing ---- */

struct manifest_writer {
	manifest_write_fn *write;
	void *ctx;
	EVP_MD_CTX *md;
	size_t used;
	int failed;
	struct error err;
	uint8_t buffer[BUFFER];
};

static void flush(struct manifest_writer *w)
{
	EVP_DigestUpdate(w->md, w->buffer, w->used);
	if (w->failed == 0 && w->used > 0)
		w->failed = w->write(w->ctx, w->buffer, w->used, &w->err);
	w->used = 0;
}

static void put(struct manifest_writer *w, const void *data, size_t n)
{
	const uint8_t *p = data;

	while (n > 0) {
		size_t part = BUFFER - w->used < n ? BUFFER - w->used : n;

		memcpy(w->buffer + w->used, p, part);
		w->used += part;
		p += part;
		n -= part;
		if (w->used == BUFFER)
			flush(w);
	}
}

struct manifest_writer *manifest_begin(
        manifest_write_fn *write, void *ctx, const struct manifest_head *head)
{
	struct manifest_writer *w = mem_alloc(sizeof(*w));

	w->write = write;
	w->ctx = ctx;
	w->md = EVP_MD_CTX_new();
	if (w->md == NULL || EVP_DigestInit_ex(w->md, EVP_sha256(), NULL) != 1)
		BUG("no memory for a hash");
	put(w, head, sizeof(*head));
	return w;
}

void manifest_add(struct manifest_writer *w, const struct tree_entry *e)
{
	put(w, &e->node, sizeof(e->node));
	put(w, e->name, e->node.name_len);
	put(w, e->target, e->node.target_len);
	put(w, e->xattrs, e->node.xattr_len);
}

void manifest_add_chunk(struct manifest_writer *w, const struct manifest_chunk *c)
{
	put(w, c, sizeof(*c));
}

int manifest_end(struct manifest_writer *w, struct error *err)
{
	const struct tree_node end = {.type = TREE_END};
	uint8_t hash[MANIFEST_HASH];

	put(w, &end, sizeof(end));
	flush(w);
	EVP_DigestFinal_ex(w->md, hash, NULL);
	if (w->failed == 0)
		w->failed = w->write(w->ctx, hash, sizeof(hash), &w->err);
	if (w->failed < 0 && err != NULL)
		*err = w->err;
	return w->failed;
}

struct manifest_writer *manifest_free(struct manifest_writer *w)
{
	if (w == NULL)
		return NULL;
	EVP_MD_CTX_free(w->md);
	free(w);
	return NULL;
}
