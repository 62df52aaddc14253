/* What the tests of blobs share: a folder of their own, and short ways to put and get. */
#ifndef BRIG_TESTS_BLOB_PLACE_H
#define BRIG_TESTS_BLOB_PLACE_H

#include "unit.h"

#include "blob/blob.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct place {
	char dir[64];
	char folder[80];
	struct blob_store *s;
};

static inline void place_open(struct place *p, bool power, uint64_t reserve)
{
	struct blob_options o = {.folder = p->folder, .power = power, .reserve = reserve};
	struct error err = {0};

	if (blob_open(&o, &p->s, &err) < 0)
		fail_msg("blob_open: %s", err.text);
}

static inline int place_make(void **state)
{
	struct place *p = calloc(1, sizeof(*p));

	snprintf(p->dir, sizeof(p->dir), "/tmp/brig-blob-XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	snprintf(p->folder, sizeof(p->folder), "%s/blob", p->dir);
	place_open(p, false, 0);
	*state = p;
	return 0;
}

static inline int place_remove_one(
        const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static inline int place_remove(void **state)
{
	struct place *p = *state;

	blob_close(p->s);
	nftw(p->dir, place_remove_one, 16, FTW_DEPTH | FTW_PHYS);
	free(p);
	return 0;
}

/* Returns what commit or replace returned. */
static inline int put(
        struct blob_store *s, const char *key, const char *text, bool replace, struct error *err)
{
	struct blob_put *p = NULL;
	int r = blob_put_begin(s, &p, err);

	if (r < 0)
		return r;
	r = blob_put_write(p, str_of(text), err);
	if (r < 0) {
		blob_put_abort(p);
		return r;
	}
	return replace ? blob_put_replace(p, str_of(key), err)
	               : blob_put_commit(p, str_of(key), err);
}

/* The value as text, to free(); NULL where there is none. */
static inline char *get(struct blob_store *s, const char *key)
{
	uint64_t size = 0;
	char *text;
	int fd = -1;

	if (blob_get(s, str_of(key), &fd, &size, NULL) < 0)
		return NULL;
	text = calloc(1, size + 1);
	if (read(fd, text, size) != (ssize_t)size)
		abort();
	close(fd);
	return text;
}

static inline void expect(struct blob_store *s, const char *key, const char *text)
{
	char *is = get(s, key);

	if (text == NULL)
		assert_null(is);
	else
		assert_string_equal(is, text);
	free(is);
}

static inline bool count_each(void *ctx, struct str key, uint64_t size, int64_t age_ms)
{
	(void)key;
	(void)size;
	(void)age_ms;
	++*(size_t *)ctx;
	return true;
}

static inline size_t count(struct blob_store *s, const char *prefix)
{
	size_t n = 0;

	assert_int_equal(blob_list(s, str_of(prefix), count_each, &n, NULL), 0);
	return n;
}

#endif
