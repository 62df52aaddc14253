/*
 * Theory of operation.
 *
 * In a folder a subfolder d stands for the paths "d/…", so names sorted as they are, and those of
 * folders with a slash behind them, give the order of the paths when each folder is walked in its
 * place. The names of a folder come unsorted and there may be millions, so a scan reads them all
 * and keeps the lowest that lie behind a given key, as many as fit (struct batch); when those are
 * used up, another scan takes the next ones.
 *
 * The way down is one path and a stack of frames, each a length within the path. A frame need not
 * have its batch: where batches of all frames together grow too large, those nearest to the root
 * are thrown away, and on coming back the folder is scanned again from behind the name that the
 * path still holds. So the depth costs a few bytes a level, and only one folder is open at a time.
 *
 * The guest may change everything meanwhile. Then a walk may miss what was moved, or tell of it
 * twice, and never comes back before where it was.
 */
#include "worker/walk.h"

#include "init/sys.h"
#include "proto/worker.h"
#include "worker/home.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KEYS   32768u
#define MAX_BYTES  (1u << 20)
#define KEPT_BYTES (512u << 10) /* batches of all frames but the last */
#define READ_BYTES 32768
#define KEY_SIZE   260 /* a name, a slash */

struct key {
	uint32_t at; /* in bytes */
	uint16_t len;
	bool folder;
};

struct batch {
	struct key *keys;
	char *bytes;
	uint32_t n, size;    /* keys */
	uint32_t used, room; /* bytes */
	uint32_t files;
	uint32_t bound; /* keys before it are sorted; what is not below the last of them is not kept
	                 */
	uint32_t next;  /* the first that was not taken */
	bool cut;       /* there are more behind the last */
};

struct frame {
	uint32_t path_len; /* of the folder, with a slash behind it; 0: the root */
	struct batch *batch;
};

struct walk {
	struct frame *frames;
	uint32_t n, size;
	char path[WORKER_PATH_MAX + KEY_SIZE];
	int dir;          /* the last frame's folder; -1: not open */
	bool scanning;    /* its names are being read */
	bool from_after;  /* lower is the rest of the caller's `after` */
	size_t lower_len; /* what a scan takes lies behind this key */
	char lower[WORKER_PATH_MAX + 1];
};

/* ---- batches ---- */

static int compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int c = memcmp(a, b, a_len < b_len ? a_len : b_len);

	return c ? c : (a_len > b_len) - (a_len < b_len);
}

static const char *sorted_bytes; /* qsort has no argument for it */

static int compare_keys(const void *a, const void *b)
{
	const struct key *x = a, *y = b;

	return compare(sorted_bytes + x->at, x->len, sorted_bytes + y->at, y->len);
}

static int compare_keys_of(const struct batch *b, const struct key *x, const struct key *y)
{
	return compare(b->bytes + x->at, x->len, b->bytes + y->at, y->len);
}

static void batch_sort(struct batch *b)
{
	if (b->n < 2)
		return;
	sorted_bytes = b->bytes;
	qsort(b->keys, b->n, sizeof *b->keys, compare_keys);
}

static struct batch *batch_free(struct batch *b)
{
	if (b) {
		free(b->keys);
		free(b->bytes);
		free(b);
	}
	return NULL;
}

static size_t batch_bytes(const struct batch *b)
{
	return b ? b->room + b->size * sizeof *b->keys : 0;
}

/* Keeps the first n. */
static bool batch_keep(struct batch *b, uint32_t n)
{
	uint32_t used = 0, files = 0;
	char *bytes = malloc(b->room);

	if (!bytes)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		struct key *k = &b->keys[i];

		memcpy(bytes + used, b->bytes + k->at, k->len);
		k->at = used;
		used += k->len;
		files += !k->folder;
	}
	free(b->bytes);
	b->bytes = bytes;
	b->cut = b->cut || n < b->n;
	b->n = n;
	b->used = used;
	b->files = files;
	return true;
}

/* Those that cannot be wanted go, and where it is full, half of them in any case. */
static bool batch_prune(struct batch *b, bool full, uint32_t wanted)
{
	uint32_t most = full ? b->n / 2 : b->n, n = 0, files = 0;

	batch_sort(b);
	while (n < most && files <= wanted)
		files += !b->keys[n++].folder;
	b->bound = n;
	return batch_keep(b, n);
}

/* Gives back the memory that it has not filled. */
static bool batch_fit(struct batch *b)
{
	struct key *keys = realloc(b->keys, (b->n + 1) * sizeof *keys);
	char *bytes = realloc(b->bytes, b->used + 1);

	b->keys = keys ? keys : b->keys;
	b->bytes = bytes ? bytes : b->bytes;
	b->size = b->n + 1;
	b->room = b->used + 1;
	return keys && bytes;
}

static bool batch_grow(struct batch *b)
{
	if (b->n == b->size) {
		uint32_t size = b->size ? b->size * 2 : 64;
		struct key *keys = realloc(b->keys, size * sizeof *keys);

		if (!keys)
			return false;
		b->keys = keys;
		b->size = size;
	}
	if (b->room - b->used < KEY_SIZE) {
		uint32_t room = b->room ? b->room * 2 : 4096;
		char *bytes = realloc(b->bytes, room);

		if (!bytes)
			return false;
		b->bytes = bytes;
		b->room = room;
	}
	return true;
}

static bool batch_add(struct batch *b, const char *name, size_t len, bool folder, uint32_t wanted)
{
	bool full = b->n == MAX_KEYS || b->used + KEY_SIZE > MAX_BYTES;
	const struct key *last;
	struct key *k;

	if (full || (b->files > wanted && b->files - wanted > wanted / 2 + 64))
		if (!batch_prune(b, full, wanted))
			return false;
	last = b->cut ? &b->keys[b->bound - 1] : NULL;
	if (last && compare(name, len, b->bytes + last->at, last->len) >= 0)
		return true;
	if (!batch_grow(b))
		return false;
	k = &b->keys[b->n++];
	*k = (struct key){.at = b->used, .len = (uint16_t)len, .folder = folder};
	memcpy(b->bytes + b->used, name, len);
	b->used += (uint32_t)len;
	b->files += !folder;
	return true;
}

/* ---- frames ---- */

static struct frame *top(struct walk *w)
{
	return &w->frames[w->n - 1];
}

static void close_dir(struct walk *w)
{
	if (w->dir >= 0)
		close(w->dir);
	w->dir = -1;
}

static bool open_dir(struct walk *w)
{
	uint32_t len = top(w)->path_len;

	if (w->dir >= 0)
		return true;
	if (len)
		w->path[len - 1] = '\0';
	w->dir = home_folder(len ? w->path : "");
	if (len)
		w->path[len - 1] = '/';
	return w->dir >= 0;
}

/* Enters the folder whose path (with a slash behind it) is path[0 … len). */
static bool push(struct walk *w, uint32_t len)
{
	if (w->n == w->size) {
		uint32_t size = w->size ? w->size * 2 : 16;
		struct frame *frames = realloc(w->frames, size * sizeof *frames);

		if (!frames)
			return false;
		w->frames = frames;
		w->size = size;
	}
	close_dir(w);
	w->frames[w->n++] = (struct frame){.path_len = len};
	w->scanning = true;
	return true;
}

/* Leaves the last folder. What lies above is scanned again, if need be, from behind its name. */
static void pop(struct walk *w)
{
	uint32_t len = top(w)->path_len, above;

	batch_free(top(w)->batch);
	close_dir(w);
	w->n--;
	w->scanning = false;
	if (w->n == 0 || top(w)->batch)
		return;
	above = top(w)->path_len;
	w->lower_len = len - above;
	memcpy(w->lower, w->path + above, w->lower_len);
	w->from_after = false;
	w->scanning = true;
}

/* Makes room for the last frame's batch. */
static void shed(struct walk *w)
{
	size_t sum = 0;

	for (uint32_t i = w->n - 1; i > 0; i--) {
		struct frame *f = &w->frames[i - 1];

		sum += batch_bytes(f->batch);
		if (sum > KEPT_BYTES)
			f->batch = batch_free(f->batch);
	}
}

/* ---- scanning ---- */

struct entry { /* of getdents64 */
	uint64_t inode, offset;
	uint16_t size;
	uint8_t type;
	char name[];
};

/* Whether the key, or something below the folder that it is, lies behind `lower`. */
static bool is_behind(const struct walk *w, const char *key, size_t len, bool folder)
{
	if (w->lower_len == 0 || compare(key, len, w->lower, w->lower_len) > 0)
		return true;
	return w->from_after && folder && len <= w->lower_len && memcmp(key, w->lower, len) == 0;
}

static bool take_entry(struct walk *w, const struct entry *e, uint32_t wanted)
{
	char key[KEY_SIZE];
	size_t len = strlen(e->name);
	uint8_t type = e->type;
	struct stat st;

	if (len == 0 || len > 255 || strcmp(e->name, ".") == 0 || strcmp(e->name, "..") == 0)
		return true;
	if (type == DT_UNKNOWN && home_stat_at(w->dir, e->name, &st) == 0)
		type = S_ISDIR(st.st_mode) ? DT_DIR : S_ISREG(st.st_mode) ? DT_REG : DT_UNKNOWN;
	if (type != DT_DIR && type != DT_REG)
		return true;
	memcpy(key, e->name, len);
	if (type == DT_DIR)
		key[len++] = '/';
	if (top(w)->path_len + len > WORKER_PATH_MAX || !is_behind(w, key, len, type == DT_DIR))
		return true;
	return batch_add(top(w)->batch, key, len, type == DT_DIR, wanted);
}

static enum walk_event scan(struct walk *w, uint32_t wanted)
{
	static char buffer[READ_BYTES] __attribute__((aligned(8)));
	struct batch *b = top(w)->batch;
	long n;

	if (!b) {
		shed(w);
		b = top(w)->batch = calloc(1, sizeof *b);
		if (!b)
			return WALK_NO_MEMORY;
	}
	n = open_dir(w) ? syscall(SYS_getdents64, w->dir, buffer, sizeof buffer) : 0;
	for (long at = 0; at < n;) {
		const struct entry *e = (const struct entry *)(const void *)(buffer + at);

		if (!take_entry(w, e, wanted))
			return WALK_NO_MEMORY;
		at += e->size;
	}
	if (n > 0)
		return WALK_AGAIN;
	w->scanning = false;
	batch_sort(b);
	return batch_fit(b) ? WALK_AGAIN : WALK_NO_MEMORY;
}

/* All that fitted is used up: on with what lies behind it. */
static void scan_on(struct walk *w)
{
	struct batch *b = top(w)->batch;
	const struct key *last = &b->keys[b->n - 1];

	w->lower_len = last->len;
	memcpy(w->lower, b->bytes + last->at, last->len);
	w->from_after = false;
	top(w)->batch = batch_free(b);
	close_dir(w);
	w->scanning = true;
}

/* ---- walking ---- */

static enum walk_event enter(struct walk *w, uint32_t path_len, size_t key_len)
{
	const char *key = w->path + path_len;

	if (w->from_after && w->lower_len >= key_len && memcmp(w->lower, key, key_len) == 0) {
		w->lower_len -= key_len;
		memmove(w->lower, w->lower + key_len, w->lower_len);
	} else {
		w->from_after = false;
		w->lower_len = 0;
	}
	return push(w, (uint32_t)(path_len + key_len)) ? WALK_AGAIN : WALK_NO_MEMORY;
}

static enum walk_event take(
        struct walk *w, struct stat *ret, const char **ret_path, size_t *ret_len)
{
	struct frame *f = top(w);
	struct batch *b = f->batch;
	const struct key *k;

	if (b->next == b->n) {
		if (b->cut)
			scan_on(w);
		else
			pop(w);
		return w->n ? WALK_AGAIN : WALK_END;
	}
	k = &b->keys[b->next++];
	if (b->next > 1 && compare_keys_of(b, k - 1, k) == 0) /* renamed while it was read */
		return WALK_AGAIN;
	memcpy(w->path + f->path_len, b->bytes + k->at, k->len);
	w->path[f->path_len + k->len] = '\0';
	if (k->folder)
		return enter(w, f->path_len, k->len);
	if (!open_dir(w) || home_stat_at(w->dir, w->path + f->path_len, ret) < 0 ||
	        !S_ISREG(ret->st_mode))
		return WALK_AGAIN;
	*ret_path = w->path;
	*ret_len = f->path_len + k->len;
	return WALK_FILE;
}

struct walk *walk_new(const char *after, size_t len)
{
	struct walk *w = calloc(1, sizeof *w);

	if (!w)
		return NULL;
	w->dir = -1;
	w->from_after = true;
	w->lower_len = len;
	memcpy(w->lower, after, len);
	return push(w, 0) ? w : walk_free(w);
}

struct walk *walk_free(struct walk *w)
{
	if (!w)
		return NULL;
	while (w->n)
		batch_free(w->frames[--w->n].batch);
	close_dir(w);
	free(w->frames);
	free(w);
	return NULL;
}

enum walk_event walk_step(
        struct walk *w, uint32_t wanted, struct stat *ret, const char **ret_path, size_t *ret_len)
{
	if (w->n == 0)
		return WALK_END;
	return w->scanning ? scan(w, wanted) : take(w, ret, ret_path, ret_len);
}
