/*
 * Saving and making again: see the header.
 *
 * A save reads nodes as they come, cuts each file's bytes into pieces, stores a piece unless it is
 * there, and appends to the new manifest, which takes the old one's place at the end. A file that
 * the worker calls the same has its chunks copied from the old manifest, found by its inode and
 * checked by ctime and size. Then the pieces that only the old manifest had are deleted; a save
 * that fails deletes those that it made; now and then all pieces are listed, for those of saves
 * that died.
 */
#include "container/save.h"

#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "container/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STALL_MS 120000 /* a pipe that does not move for so long has no living worker behind it */
#define MARGIN_NS                                                                                  \
	INT64_C(2000000000) /* a clock's tick and a file system's are coarser than ours            \
	                     */
#define SWEEP_EVERY 64
#define BLOCK       4096 /* runs of zeros that are holes when a file is made again */
#define BUFFER      65536
/* A hole of more than this ends a piece: what is stored of a sparse file is in proportion to what
 * the guest wrote, and not to where. */
#define HOLE_MAX 16384
/* How much is brought back between looks at the disk. */
#define ROOM_BYTES (16u << 20)

/* ---- keys ---- */

static struct str prefix_make(const uint8_t key[SUP_KEY_LEN], char out[BLOB_KEY_MAX])
{
	char hex[2 * SUP_KEY_LEN + 1];

	id_hex(key, SUP_KEY_LEN, hex);
	str_format(out, BLOB_KEY_MAX, "home/%s", hex);
	return str_of(out);
}

static struct str manifest_key(const uint8_t key[SUP_KEY_LEN], char out[BLOB_KEY_MAX])
{
	char prefix[BLOB_KEY_MAX];

	prefix_make(key, prefix);
	str_format(out, BLOB_KEY_MAX, "%s/manifest", prefix);
	return str_of(out);
}

static struct str chunk_key(
        const uint8_t key[SUP_KEY_LEN], const uint8_t hash[MANIFEST_HASH], char out[BLOB_KEY_MAX])
{
	char prefix[BLOB_KEY_MAX], hex[2 * MANIFEST_HASH + 1];

	prefix_make(key, prefix);
	id_hex(hash, MANIFEST_HASH, hex);
	str_format(out, BLOB_KEY_MAX, "%s/%s", prefix, hex);
	return str_of(out);
}

/* ---- a set of hashes ---- */

struct hash_set {
	uint8_t (*slots)[MANIFEST_HASH];
	bool *used;
	size_t size, n; /* size: a power of two */
};

static size_t hash_slot(const struct hash_set *s, const uint8_t hash[MANIFEST_HASH])
{
	uint64_t h;

	memcpy(&h, hash, sizeof(h));
	for (size_t i = (size_t)h & (s->size - 1);; i = (i + 1) & (s->size - 1))
		if (!s->used[i] || memcmp(s->slots[i], hash, MANIFEST_HASH) == 0)
			return i;
}

static bool set_has(const struct hash_set *s, const uint8_t hash[MANIFEST_HASH])
{
	return s->size > 0 && s->used[hash_slot(s, hash)];
}

static void set_add(struct hash_set *s, const uint8_t hash[MANIFEST_HASH])
{
	if (2 * (s->n + 1) > s->size) {
		struct hash_set old = *s;

		s->size = old.size > 0 ? 2 * old.size : 1024;
		s->slots = mem_array(s->size, MANIFEST_HASH);
		s->used = mem_array(s->size, sizeof(bool));
		s->n = 0;
		for (size_t i = 0; i < old.size; i++)
			if (old.used[i])
				set_add(s, old.slots[i]);
		free(old.slots);
		free(old.used);
	}
	size_t i = hash_slot(s, hash);

	if (s->used[i])
		return;
	s->used[i] = true;
	memcpy(s->slots[i], hash, MANIFEST_HASH);
	s->n++;
}

static void set_free(struct hash_set *s)
{
	free(s->slots);
	free(s->used);
}

/* ---- the pipe ---- */

static int pipe_wait(int fd, short what, struct error *err)
{
	struct pollfd p = {fd, what, 0};
	int r;

	while ((r = poll(&p, 1, STALL_MS)) < 0 && errno == EINTR)
		;
	if (r == 0)
		return error_set(err, ERR_TIMEOUT, "the file worker does not go on");
	return r < 0 ? error_errno(err, errno, "poll") : 0;
}

struct pipe_reader {
	int fd;
	size_t used, filled;
	uint8_t buffer[BUFFER];
};

static int pipe_take(struct pipe_reader *p, void *data, size_t n, struct error *err)
{
	uint8_t *out = data;

	while (n > 0) {
		size_t part = p->filled - p->used < n ? p->filled - p->used : n;

		memcpy(out, p->buffer + p->used, part);
		p->used += part;
		out += part;
		n -= part;
		if (n == 0)
			break;
		int r = pipe_wait(p->fd, POLLIN, err);

		if (r < 0)
			return r;
		/* What is large goes where it belongs at once. */
		bool direct = n >= BUFFER;
		ssize_t got = read(p->fd, direct ? out : p->buffer, direct ? n : BUFFER);

		if (got < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (got < 0)
			return error_errno(err, errno, "could not read from the file worker");
		if (got == 0)
			return error_set(err, ERR_PROTOCOL, "the file worker ended too early");
		if (direct) {
			out += got;
			n -= (size_t)got;
		} else {
			p->used = 0;
			p->filled = (size_t)got;
		}
	}
	return 0;
}

static int pipe_put(int fd, const void *data, size_t n, struct error *err)
{
	const uint8_t *p = data;

	while (n > 0) {
		ssize_t put = write(fd, p, n);

		if (put >= 0) {
			p += put;
			n -= (size_t)put;
		} else if (errno == EAGAIN) {
			int r = pipe_wait(fd, POLLOUT, err);

			if (r < 0)
				return r;
		} else if (errno != EINTR) {
			return error_errno(err, errno, "could not write to the file worker");
		}
	}
	return 0;
}

/* ---- the last manifest ---- */

struct last {
	int fd;
	struct manifest_reader *reader; /* NULL: there is none */
	struct old_file {
		uint64_t inode; /* 0: a free slot */
		uint64_t size, place;
		int64_t ctime_ns;
		uint32_t xattr_len;
	} * files; /* by inode, open addressing */
	size_t size, n;
	struct hash_set chunks; /* of all files */
};

static struct old_file *last_slot(const struct last *l, uint64_t inode)
{
	size_t i = (size_t)(inode * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (l->size - 1);

	while (l->files[i].inode != 0 && l->files[i].inode != inode)
		i = (i + 1) & (l->size - 1);
	return &l->files[i];
}

static void last_add(struct last *l, const struct old_file *f)
{
	if (f->inode == 0)
		return;
	if (2 * (l->n + 1) > l->size) {
		struct last old = *l;

		l->size = old.size > 0 ? 2 * old.size : 1024;
		l->files = mem_array(l->size, sizeof(*l->files));
		l->n = 0;
		for (size_t i = 0; i < old.size; i++)
			if (old.files[i].inode != 0)
				last_add(l, &old.files[i]);
		free(old.files);
	}
	struct old_file *slot = last_slot(l, f->inode);

	l->n += slot->inode == 0;
	*slot = *f;
}

static void last_close(struct last *l)
{
	manifest_close(l->reader);
	if (l->fd >= 0)
		close(l->fd);
	free(l->files);
	set_free(&l->chunks);
	*l = (struct last){.fd = -1};
}

/* Opens the saved manifest. -ERR_NOT_FOUND where there is none, and then err stays as it was. */
static int last_open(
        struct last *l, struct blob_store *b, const uint8_t key[SUP_KEY_LEN], struct error *err)
{
	char name[BLOB_KEY_MAX];
	struct error e;
	uint64_t size;
	int r;

	*l = (struct last){.fd = -1};
	r = blob_get(b, manifest_key(key, name), &l->fd, &size, &e);
	if (r < 0 && r != -ERR_NOT_FOUND && err != NULL)
		*err = e;
	if (r < 0)
		return r;
	r = manifest_open(l->fd, size, key, &l->reader, err);
	if (r < 0)
		last_close(l);
	return r;
}

static int last_index(struct last *l, struct error *err)
{
	struct tree_entry *e = mem_alloc(sizeof(*e));
	struct manifest_chunk c;
	int r;

	while ((r = manifest_next(l->reader, e, err)) > 0) {
		if (e->node.type != TREE_FILE)
			continue;
		last_add(l, &(struct old_file){e->node.inode, e->node.size,
		                    manifest_tell(l->reader), e->node.ctime_ns, e->node.xattr_len});
		while ((r = manifest_next_chunk(l->reader, &c, err)) > 0)
			set_add(&l->chunks, c.hash);
		if (r < 0)
			break;
	}
	free(e);
	return r;
}

int save_since(struct blob_store *b, const uint8_t key[SUP_KEY_LEN], int64_t *ret_same_before_ns,
        struct error *err)
{
	struct last l;
	int r = last_open(&l, b, key, err);

	*ret_same_before_ns = 0;
	if (r == -ERR_NOT_FOUND)
		return 0;
	if (r < 0)
		return r;
	*ret_same_before_ns = manifest_head(l.reader)->started_ns - MARGIN_NS;
	last_close(&l);
	return 0;
}

/* ---- saving ---- */

struct save {
	struct blob_store *blobs;
	const uint8_t *key;
	struct pipe_reader in;
	struct last last;
	struct blob_put *put; /* of the new manifest */
	struct manifest_writer *out;
	struct hash_set held; /* by the new manifest */
	struct hash_set made; /* those of them that were not there before */
	struct save_count count;
	uint8_t *piece; /* TREE_PIECE bytes; zero outside of what extents gave */
	uint64_t piece_at;
	size_t piece_len;
	struct tree_entry entry;
};

static int manifest_write(void *ctx, const void *data, size_t n, struct error *err)
{
	struct save *s = ctx;

	return blob_put_write(s->put, (struct str){data, n}, err);
}

static int piece_store(struct save *s, const struct manifest_chunk *c, struct error *err)
{
	char name[BLOB_KEY_MAX];
	struct str key = chunk_key(s->key, c->hash, name);
	struct blob_put *p;
	int r;

	if (set_has(&s->held, c->hash))
		return 0;
	r = blob_touch(s->blobs, key, err);
	if (r != 0)
		return r < 0 ? r : 0;
	r = blob_put_begin(s->blobs, &p, err);
	if (r < 0)
		return r;
	r = blob_put_write(p, (struct str){(const char *)s->piece, c->length}, err);
	if (r < 0) {
		blob_put_abort(p);
		return r;
	}
	s->count.stored += c->length;
	r = blob_put_commit(p, key, err);
	if (r > 0)
		set_add(&s->made, c->hash);
	return r < 0 ? r : 0;
}

/* The piece under way becomes a chunk. */
static int piece_end(struct save *s, struct error *err)
{
	struct manifest_chunk c = {.offset = s->piece_at, .length = (uint32_t)s->piece_len};
	int r;

	if (s->piece_len == 0)
		return 0;
	id_sha256((struct str){(const char *)s->piece, c.length}, c.hash);
	r = piece_store(s, &c, err);
	if (r < 0)
		return r;
	set_add(&s->held, c.hash);
	manifest_add_chunk(s->out, &c);
	memset(s->piece, 0, s->piece_len);
	s->piece_len = 0;
	return 0;
}

/* A file's extents. Its size may have changed since it was told of: what is beyond is passed over.
 */
static int take_extents(struct save *s, struct error *err)
{
	uint64_t end = 0;

	for (;;) {
		struct tree_extent x;
		int r = pipe_take(&s->in, &x, sizeof(x), err);

		if (r < 0)
			return r;
		if (x.length == 0)
			return piece_end(s, err);
		if (x.offset < end || x.length > TREE_PIECE - x.offset % TREE_PIECE ||
		        x.offset > s->entry.node.size || x.length > s->entry.node.size - x.offset)
			return error_set(err, ERR_PROTOCOL, "the file worker sent a wrong extent");
		if (x.offset - end > HOLE_MAX ||
		        x.offset / TREE_PIECE != s->piece_at / TREE_PIECE) {
			r = piece_end(s, err);
			if (r < 0)
				return r;
		}
		if (s->piece_len == 0)
			s->piece_at = x.offset;
		end = x.offset + x.length;
		r = pipe_take(&s->in, s->piece + (x.offset - s->piece_at), x.length, err);
		if (r < 0)
			return r;
		s->piece_len = (size_t)(end - s->piece_at);
		s->count.read += x.length;
	}
}

/* Attributes of a file that is the same, and where its chunks are. */
static int find_same(struct save *s, struct error *err)
{
	struct tree_node *n = &s->entry.node;
	const struct old_file *f = s->last.size > 0 ? last_slot(&s->last, n->inode) : NULL;

	if (f == NULL || f->inode != n->inode || f->size != n->size || f->ctime_ns != n->ctime_ns)
		return error_set(err, ERR_CONFLICT, "a file is not as it was saved");
	n->xattr_len = f->xattr_len;
	return manifest_seek(s->last.reader, f->place, s->entry.xattrs, f->xattr_len, err);
}

static int copy_chunks(struct save *s, struct error *err)
{
	struct manifest_chunk c;
	int r;

	while ((r = manifest_next_chunk(s->last.reader, &c, err)) > 0) {
		set_add(&s->held, c.hash);
		manifest_add_chunk(s->out, &c);
	}
	return r;
}

static int take_node(struct save *s, bool first, uint32_t *depth, struct error *err)
{
	static const struct manifest_chunk end;
	struct tree_entry *e = &s->entry;
	bool same;
	int r = pipe_take(&s->in, &e->node, sizeof(e->node), err);

	if (r == 0 && (e->node.name_len > TREE_NAME_MAX || e->node.target_len > TREE_TARGET_MAX ||
	                      e->node.xattr_len > TREE_XATTR_MAX))
		r = error_set(err, ERR_PROTOCOL, "the file worker sent too long a name");
	if (r == 0)
		r = pipe_take(&s->in, e->name, e->node.name_len, err);
	if (r == 0)
		r = pipe_take(&s->in, e->target, e->node.target_len, err);
	if (r == 0)
		r = pipe_take(&s->in, e->xattrs, e->node.xattr_len, err);
	if (r == 0)
		r = tree_entry_check(e, first, depth, err);
	if (r < 0 || e->node.type == TREE_END)
		return r;
	same = (e->node.flags & TREE_SAME) != 0;
	e->node.flags &= TREE_LINKED;
	s->count.nodes++;
	r = same ? find_same(s, err) : 0;
	if (r < 0)
		return r;
	manifest_add(s->out, e);
	if (e->node.type != TREE_FILE)
		return 1;
	s->piece_at = 0;
	r = same ? copy_chunks(s, err) : take_extents(s, err);
	if (r < 0)
		return r;
	manifest_add_chunk(s->out, &end);
	return 1;
}

struct sweep {
	struct blob_store *blobs;
	const struct hash_set *held;
};

static bool sweep_one(void *ctx, struct str key, uint64_t size, int64_t age_ms)
{
	const struct sweep *w = ctx;
	uint8_t hash[MANIFEST_HASH];
	const char *name = memrchr(key.p, '/', key.n);
	size_t n = name != NULL ? key.n - (size_t)(name + 1 - key.p) : 0;

	if (n != 2 * MANIFEST_HASH)
		return true; /* the manifest */
	for (size_t i = 0; i < MANIFEST_HASH; i++) {
		char digits[3] = {name[1 + 2 * i], name[2 + 2 * i], 0};

		hash[i] = (uint8_t)strtoul(digits, NULL, 16);
	}
	if (!set_has(w->held, hash))
		blob_delete(w->blobs, key, NULL);
	return true;
}

/* Deletes what the new manifest does not hold. What fails here stays for a later sweep. */
static void delete_unused(struct save *s, bool sweep)
{
	char name[BLOB_KEY_MAX];

	if (sweep) {
		struct sweep w = {s->blobs, &s->held};

		blob_list(s->blobs, prefix_make(s->key, name), sweep_one, &w, NULL);
		return;
	}
	const struct hash_set *old = &s->last.chunks;

	for (size_t i = 0; i < old->size; i++)
		if (old->used[i] && !set_has(&s->held, old->slots[i]))
			blob_delete(s->blobs, chunk_key(s->key, old->slots[i], name), NULL);
}

/* A save that failed must not leave more behind each time that it is tried. */
static void delete_made(struct save *s)
{
	char name[BLOB_KEY_MAX];

	for (size_t i = 0; i < s->made.size; i++)
		if (s->made.used[i])
			blob_delete(s->blobs, chunk_key(s->key, s->made.slots[i], name), NULL);
}

static int save_tree(struct save *s, int64_t started_ns, uint32_t *ret_saves, struct error *err)
{
	struct manifest_head head = {.version = MANIFEST_VERSION, .started_ns = started_ns};
	uint32_t depth = 0;
	char name[BLOB_KEY_MAX];
	bool first = true;
	int r;

	memcpy(head.magic, MANIFEST_MAGIC, sizeof(head.magic));
	memcpy(head.key, s->key, sizeof(head.key));
	head.saves = *ret_saves = s->last.reader ? manifest_head(s->last.reader)->saves + 1 : 1;
	r = blob_put_begin(s->blobs, &s->put, err);
	if (r < 0)
		return r;
	s->out = manifest_begin(manifest_write, s, &head);
	while ((r = take_node(s, first, &depth, err)) > 0)
		first = false;
	if (r == 0)
		r = manifest_end(s->out, err);
	if (r < 0) {
		blob_put_abort(s->put);
		delete_made(s);
		return r;
	}
	r = blob_put_replace(s->put, manifest_key(s->key, name), err);
	return r < 0 ? r : 0;
}

int save_home(struct blob_store *b, const uint8_t key[SUP_KEY_LEN], int pipe, int64_t started_ns,
        struct save_count *ret, struct error *err)
{
	struct save *s = mem_alloc(sizeof(*s));
	struct error unused;
	uint32_t saves = 0;
	int r;

	err = err != NULL ? err : &unused;

	s->blobs = b;
	s->key = key;
	s->in.fd = pipe;
	s->piece = mem_alloc(TREE_PIECE);
	r = last_open(&s->last, b, key, err);
	if (r == 0)
		r = last_index(&s->last, err);
	/* A damaged manifest must not stand in the way of a good one; nothing is the same then. */
	if (r == -ERR_PROTOCOL) {
		last_close(&s->last);
		*err = (struct error){0};
	}
	if (r == 0 || r == -ERR_NOT_FOUND || r == -ERR_PROTOCOL)
		r = save_tree(s, started_ns, &saves, err);
	if (r == 0)
		delete_unused(s, s->last.reader == NULL || saves % SWEEP_EVERY == 0);
	if (r == 0 && ret != NULL)
		*ret = s->count;
	last_close(&s->last);
	manifest_free(s->out);
	set_free(&s->held);
	set_free(&s->made);
	free(s->piece);
	free(s);
	return r;
}

/* ---- making again ---- */

struct restore {
	struct blob_store *blobs;
	const uint8_t *key;
	int pipe;
	save_room_fn *room;
	void *ctx;
	uint64_t unchecked; /* bytes since there was room */
	struct save_count count;
	struct tree_entry entry;
	uint8_t piece[TREE_PIECE];
};

/* Sends the bytes of a piece, less the blocks that are all zero. */
static int send_piece(struct restore *s, const struct manifest_chunk *c, struct error *err)
{
	static const uint8_t zero[BLOCK];
	uint32_t at = 0;

	while (at < c->length) {
		uint32_t begin = at, n;
		bool data = false, block;

		/* One run of blocks of one kind. */
		for (; at < c->length; at += n) {
			n = c->length - at < BLOCK ? c->length - at : BLOCK;
			block = memcmp(s->piece + at, zero, n) != 0;
			if (at == begin)
				data = block;
			if (block != data)
				break;
		}
		if (!data)
			continue;
		const struct tree_extent x = {c->offset + begin, at - begin, 0};
		int r = pipe_put(s->pipe, &x, sizeof(x), err);

		if (r == 0)
			r = pipe_put(s->pipe, s->piece + begin, x.length, err);
		if (r < 0)
			return r;
		s->count.read += x.length;
	}
	return 0;
}

static int fetch_piece(struct restore *s, const struct manifest_chunk *c, struct error *err)
{
	char name[BLOB_KEY_MAX];
	uint8_t hash[MANIFEST_HASH];
	uint64_t size;
	size_t done = 0;
	int fd, r = blob_get(s->blobs, chunk_key(s->key, c->hash, name), &fd, &size, err);

	if (r == -ERR_NOT_FOUND)
		return error_set(err, ERR_IO, "a piece of the saved files is missing");
	if (r < 0)
		return r;
	while (done < c->length) {
		ssize_t got = pread(fd, s->piece + done, c->length - done, (off_t)done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		done += (size_t)got;
	}
	close(fd);
	id_sha256((struct str){(const char *)s->piece, c->length}, hash);
	if (done < c->length || size != c->length || memcmp(hash, c->hash, sizeof(hash)) != 0)
		return error_set(err, ERR_IO, "a piece of the saved files is damaged");
	return 0;
}

static int check_room(struct restore *s, uint32_t more, struct error *err)
{
	s->unchecked += more;
	if (s->room == NULL || s->unchecked < ROOM_BYTES)
		return 0;
	s->unchecked = 0;
	return s->room(s->ctx, err);
}

static int send_node(struct restore *s, struct manifest_reader *m, struct error *err)
{
	static const struct tree_extent end;
	struct tree_entry *e = &s->entry;
	struct manifest_chunk c;
	int r = pipe_put(s->pipe, &e->node, sizeof(e->node), err);

	if (r == 0)
		r = pipe_put(s->pipe, e->name, e->node.name_len, err);
	if (r == 0)
		r = pipe_put(s->pipe, e->target, e->node.target_len, err);
	if (r == 0)
		r = pipe_put(s->pipe, e->xattrs, e->node.xattr_len, err);
	s->count.nodes++;
	if (r < 0 || e->node.type != TREE_FILE)
		return r;
	while ((r = manifest_next_chunk(m, &c, err)) > 0) {
		r = check_room(s, c.length, err);
		if (r == 0)
			r = fetch_piece(s, &c, err);
		if (r == 0)
			r = send_piece(s, &c, err);
		if (r < 0)
			return r;
	}
	return r < 0 ? r : pipe_put(s->pipe, &end, sizeof(end), err);
}

int save_restore(struct blob_store *b, const uint8_t key[SUP_KEY_LEN], int pipe, save_room_fn *room,
        void *ctx, struct save_count *ret, struct error *err)
{
	static const struct tree_node end = {.type = TREE_END};
	struct restore *s;
	struct last l;
	int r = last_open(&l, b, key, err);

	if (r == -ERR_NOT_FOUND)
		return error_set(err, ERR_NOT_FOUND, "this home was never saved");
	if (r < 0)
		return r;
	s = mem_alloc(sizeof(*s));
	s->blobs = b;
	s->key = key;
	s->pipe = pipe;
	s->room = room;
	s->ctx = ctx;
	while ((r = manifest_next(l.reader, &s->entry, err)) > 0) {
		r = send_node(s, l.reader, err);
		if (r < 0)
			break;
	}
	if (r == 0)
		r = pipe_put(pipe, &end, sizeof(end), err);
	if (r == 0 && ret != NULL)
		*ret = s->count;
	last_close(&l);
	free(s);
	return r;
}

/* ---- forgetting ---- */

int save_delete(struct blob_store *b, const uint8_t key[SUP_KEY_LEN], struct error *err)
{
	char name[BLOB_KEY_MAX];
	struct hash_set none = {0};
	struct sweep w = {b, &none};
	int r = blob_delete(b, manifest_key(key, name), err);

	return r < 0 ? r : blob_list(b, prefix_make(key, name), sweep_one, &w, err);
}
