/*
 * Homes saved through blobs: a model tree goes through a pipe as a worker sends it, is saved, is
 * asked for again, and must be the same; saves that fail, lie or are damaged must leave the last
 * one whole. (Real trees through real workers: tests/sandbox/worker.)
 */
#include "blob/place.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "container/manifest.h"
#include "container/save.h"

#include <pthread.h>

#define MANY (64u << 20)

static uint8_t key_of_home[SUP_KEY_LEN] = {0xab, 0xcd};

/* ---- model trees, as streams ---- */

struct file {
	char name[16];
	uint64_t size;
	int64_t ctime;
	uint64_t inode;
	uint64_t seed; /* of its bytes */
	bool sparse;
};

#define FILES 40

struct model {
	struct file files[FILES];
	size_t n;
	uint64_t last_inode;
};

static uint8_t byte_at(const struct file *f, uint64_t i)
{
	uint64_t x = (f->seed + i / 8) * UINT64_C(0x9e3779b97f4a7c15);

	/* every third block of a sparse file holds anything */
	if (f->sparse && i / 8192 % 3 != 0)
		return 0;
	return (uint8_t)((x ^ x >> 29) >> (8 * (i % 8)));
}

static void put_node(struct buf *b, uint8_t type, uint32_t depth, const char *name,
        const char *target, const struct file *f, bool same)
{
	struct tree_node n = {.type = type,
	        .depth = depth,
	        .name_len = (uint16_t)strlen(name),
	        .target_len = (uint16_t)strlen(target),
	        .mode = type == TREE_FOLDER ? 0755 : 0640,
	        .uid = 3,
	        .gid = 65535,
	        .mtime_s = -5,
	        .mtime_ns = 123456789};
	const struct tree_xattr x = {.name_len = 6, .value_len = 3};

	if (f != NULL) {
		n.inode = f->inode;
		n.size = f->size;
		n.ctime_ns = f->ctime;
		n.flags = same ? TREE_SAME : 0;
	}
	if (type == TREE_FOLDER)
		n.xattr_len = sizeof(x) + 9;
	buf_append(b, &n, sizeof(n));
	buf_puts(b, name);
	buf_puts(b, target);
	if (type == TREE_FOLDER) {
		buf_append(b, &x, sizeof(x));
		buf_append(b, "user.av\0l", 9);
	}
}

static void put_extents(struct buf *b, const struct file *f)
{
	struct tree_extent x = {0};
	uint8_t *bytes = mem_alloc(65536);

	for (uint64_t at = 0; at < f->size; at += x.length) {
		uint64_t left = f->size - at;
		bool any = false;

		x.offset = at;
		x.length = left < 4096 ? (uint32_t)left : 4096;
		for (uint32_t i = 0; i < x.length; i++) {
			bytes[i] = byte_at(f, at + i);
			any |= bytes[i] != 0;
		}
		if (!any && f->sparse)
			continue;
		buf_append(b, &x, sizeof(x));
		buf_append(b, bytes, x.length);
	}
	x = (struct tree_extent){0};
	buf_append(b, &x, sizeof(x));
	free(bytes);
}

/* same_before as WORKER_SAVE has it; INT64_MIN: all bytes, without holes told, for comparing. */
static void stream_make(const struct model *m, int64_t same_before, struct buf *b)
{
	put_node(b, TREE_FOLDER, 0, "", "", NULL, false);
	put_node(b, TREE_LINK, 1, "dangling", "/no/where", NULL, false);
	for (size_t i = 0; i < m->n; i++) {
		bool same = m->files[i].ctime < same_before;

		if (i % 10 == 0)
			put_node(b, TREE_FOLDER, 1, m->files[i].name, "", NULL, false);
		put_node(b, TREE_FILE, 2, m->files[i].name, "", &m->files[i], same);
		if (!same)
			put_extents(b, &m->files[i]);
	}
	struct tree_node end = {.type = TREE_END};

	buf_append(b, &end, sizeof(end));
}

static void file_change(struct model *m, struct unit_random *r, struct file *f)
{
	static const uint64_t sizes[] = {0, 1, 4095, 4096, 70000, TREE_PIECE - 1, TREE_PIECE,
	        TREE_PIECE + 1, 2 * TREE_PIECE + 5000};

	if (f->inode == 0)
		f->inode = ++m->last_inode;
	f->size = sizes[unit_below(r, unit_below(r, 8) == 0 ? 9 : 5)];
	f->sparse = unit_below(r, 2) == 0;
	f->seed = unit_next(r);
	f->ctime = clock_wall_ms() * 1000000;
}

static void model_change(struct model *m, struct unit_random *r, size_t changes)
{
	for (size_t i = 0; i < changes; i++) {
		size_t at = unit_below(r, FILES);

		if (at >= m->n) {
			at = m->n++;
			snprintf(m->files[at].name, sizeof(m->files[at].name), "f%zu", at);
			m->files[at].inode = 0;
		} else if (unit_below(r, 4) == 0) {
			m->files[at].inode = 0; /* another file of that name */
		}
		file_change(m, r, &m->files[at]);
	}
}

/* ---- pipes ---- */

struct feeder {
	pthread_t thread;
	int fd;
	struct str bytes;
};

static void *feed(void *arg)
{
	struct feeder *f = arg;

	for (size_t done = 0; done < f->bytes.n;) {
		ssize_t n = write(f->fd, f->bytes.p + done, f->bytes.n - done);

		if (n <= 0)
			break;
		done += (size_t)n;
	}
	close(f->fd);
	return NULL;
}

static int save_stream(struct place *p, struct str bytes, int64_t started, struct save_count *count)
{
	int fds[2], r;
	struct feeder f = {.bytes = bytes};
	struct error err = {0};

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	f.fd = fds[1];
	assert_int_equal(pthread_create(&f.thread, NULL, feed, &f), 0);
	r = save_home(p->s, key_of_home, fds[0], started, count, &err);
	close(fds[0]);
	pthread_join(f.thread, NULL);
	if (r < 0)
		assert_true(err.text[0] != 0);
	return r;
}

struct drain {
	pthread_t thread;
	int fd;
	struct buf bytes;
};

static void *drain(void *arg)
{
	struct drain *d = arg;
	char *block = mem_alloc(65536);
	ssize_t n;

	while ((n = read(d->fd, block, 65536)) > 0)
		buf_append(&d->bytes, block, (size_t)n);
	free(block);
	return NULL;
}

static save_room_fn *room;

static int no_room(void *ctx, struct error *err)
{
	return error_set(err, ERR_UNAVAILABLE, "full");
}

static int restore_stream(struct place *p, struct buf *out)
{
	int fds[2], r;
	struct drain d = {.bytes = BUF_INIT(8 * MANY)};

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	d.fd = fds[0];
	assert_int_equal(pthread_create(&d.thread, NULL, drain, &d), 0);
	r = save_restore(p->s, key_of_home, fds[1], room, NULL, NULL, NULL);
	close(fds[1]);
	pthread_join(d.thread, NULL);
	close(fds[0]);
	assert_int_equal(buf_error(&d.bytes), 0);
	*out = d.bytes;
	return r;
}

/* A stream may cut the same bytes into other extents: compare as files. */
static void flatten(struct str s, struct buf *out)
{
	size_t at = 0;

	while (at < s.n) {
		struct tree_node n;

		memcpy(&n, s.p + at, sizeof(n));
		assert_int_equal(n.flags, 0);
		size_t whole = sizeof(n) + n.name_len + n.target_len + n.xattr_len;

		buf_append(out, s.p + at, whole);
		at += whole;
		if (n.type != TREE_FILE)
			continue;
		char *bytes = mem_alloc(n.size + 1);
		struct tree_extent x;

		for (;; at += x.length) {
			memcpy(&x, s.p + at, sizeof(x));
			at += sizeof(x);
			if (x.length == 0)
				break;
			assert_true(x.offset + x.length <= n.size);
			memcpy(bytes + x.offset, s.p + at, x.length);
		}
		buf_append(out, bytes, n.size);
		free(bytes);
	}
	assert_int_equal(buf_error(out), 0);
}

static void expect_saved(struct place *p, const struct model *m)
{
	_cleanup_buf_ struct buf want = BUF_INIT(8 * MANY), got = BUF_INIT(8 * MANY);
	_cleanup_buf_ struct buf flat_want = BUF_INIT(8 * MANY), flat_got = BUF_INIT(8 * MANY);

	stream_make(m, INT64_MIN, &want);
	assert_int_equal(restore_stream(p, &got), 0);
	flatten((struct str){want.data, want.len}, &flat_want);
	flatten((struct str){got.data, got.len}, &flat_got);
	assert_int_equal(flat_want.len, flat_got.len);
	assert_memory_equal(flat_want.data, flat_got.data, flat_got.len);
}

static bool count_one(void *ctx, struct str key, uint64_t size, int64_t age_ms)
{
	++*(size_t *)ctx;
	return true;
}

static size_t blobs_count(struct place *p)
{
	size_t n = 0;

	assert_int_equal(blob_list(p->s, STR("home"), count_one, &n, NULL), 0);
	return n;
}

/* How many different pieces a model has, and the manifest. */
static size_t pieces_of(const struct model *m)
{
	size_t n = 1;

	for (size_t i = 0; i < m->n; i++) {
		const struct file *f = &m->files[i];

		n += (size_t)((f->size + TREE_PIECE - 1) / TREE_PIECE);
		if (f->sparse) /* each run of its data is one */
			n += (size_t)(f->size / (3 * 65536));
	}
	return n;
}

/* ---- tests ---- */

static void test_rounds(void **state)
{
	struct place *p = *state;
	struct unit_random r = {88172645463325252u};
	struct model m = {0};

	for (int round = 0; round < 25; round++) {
		_cleanup_buf_ struct buf stream = BUF_INIT(8 * MANY);
		struct save_count count;
		int64_t since = -1, started = clock_wall_ms() * 1000000;

		model_change(&m, &r, round == 0 ? 30 : 3);
		assert_int_equal(save_since(p->s, key_of_home, &since, NULL), 0);
		assert_true(round == 0 ? since == 0 : since < started);
		/* As if the two seconds of margin had passed. */
		stream_make(&m, since == 0 ? 0 : since + 2000000000, &stream);
		assert_int_equal(
		        save_stream(p, (struct str){stream.data, stream.len}, started, &count), 0);
		expect_saved(p, &m);
		assert_true(count.nodes > m.n && count.stored <= (uint64_t)30 * 3 * TREE_PIECE);
		assert_true(blobs_count(p) <= pieces_of(&m)); /* nothing is left of older saves */
	}
	assert_int_equal(save_delete(p->s, key_of_home, NULL), 0);
	assert_int_equal(blobs_count(p), 0);
	struct buf none;

	assert_int_equal(restore_stream(p, &none), -ERR_NOT_FOUND);
	buf_free(&none);
}

/* What a file costs is in proportion to what was written to it, not to where. */
static void test_sparse_files(void **state)
{
	enum { EXTENTS = 64 };
	struct place *p = *state;
	const struct file f = {.inode = 5, .size = (uint64_t)EXTENTS * TREE_PIECE};
	_cleanup_buf_ struct buf stream = BUF_INIT(MANY), got = BUF_INIT(MANY);
	struct tree_extent x = {.length = 4096};
	const struct tree_node end = {.type = TREE_END};
	char block[4096];
	struct save_count count;

	put_node(&stream, TREE_FOLDER, 0, "", "", NULL, false);
	put_node(&stream, TREE_FILE, 1, "sparse", "", &f, false);
	for (size_t i = 0; i < 2 * EXTENTS; i++) { /* at both ends of each piece */
		x.offset = i / 2 * TREE_PIECE + (i % 2) * (TREE_PIECE - 4096);
		memset(block, 'a' + (int)(i % 26), sizeof(block));
		memcpy(block, &i, sizeof(i));
		buf_append(&stream, &x, sizeof(x));
		buf_append(&stream, block, sizeof(block));
	}
	x = (struct tree_extent){0};
	buf_append(&stream, &x, sizeof(x));
	buf_append(&stream, &end, sizeof(end));
	assert_int_equal(save_stream(p, (struct str){stream.data, stream.len}, 1, &count), 0);
	assert_int_equal(count.stored, 2 * EXTENTS * 4096);
	assert_int_equal(restore_stream(p, &got), 0);
	assert_int_equal(got.len, stream.len);
	assert_memory_equal(got.data, stream.data, got.len);
}

/* A restore ends where the disk that it fills has no more room. */
static void test_no_room(void **state)
{
	struct place *p = *state;
	struct model m = {0};
	_cleanup_buf_ struct buf stream = BUF_INIT(8 * MANY), got = BUF_INIT(8 * MANY);

	m.n = 3;
	for (size_t i = 0; i < m.n; i++)
		m.files[i] = (struct file){.name = {'f', (char)('0' + i)},
		        .size = 8u << 20,
		        .inode = i + 1,
		        .seed = i};
	stream_make(&m, INT64_MIN, &stream);
	assert_int_equal(save_stream(p, (struct str){stream.data, stream.len}, 1, NULL), 0);
	expect_saved(p, &m);
	room = no_room;
	assert_int_equal(restore_stream(p, &got), -ERR_UNAVAILABLE);
	room = NULL;
	assert_true(got.len < stream.len);
}

static void save_first(struct place *p, struct model *m, struct buf *stream)
{
	struct unit_random r = {12345};

	model_change(m, &r, 8);
	stream_make(m, INT64_MIN, stream);
	assert_int_equal(save_stream(p, (struct str){stream->data, stream->len}, 1, NULL), 0);
}

/* A stream that ends at any byte, or has any byte flipped, is refused or is another legal tree; the
 * last save stays. */
static void test_broken_streams(void **state)
{
	struct place *p = *state;
	struct model m = {0};
	struct unit_random r = {777};
	_cleanup_buf_ struct buf stream = BUF_INIT(8 * MANY);

	save_first(p, &m, &stream);
	for (int i = 0; i < 300; i++) {
		size_t n = i < 150 ? (size_t)i : unit_below(&r, stream.len);

		assert_true(save_stream(p, (struct str){stream.data, n}, 2, NULL) < 0);
	}
	/* Nothing of what they made stays: no guest fills the disk with saves that fail. */
	struct model other = m;
	_cleanup_buf_ struct buf fresh = BUF_INIT(8 * MANY);
	size_t blobs = blobs_count(p);

	for (size_t i = 0; i < other.n; i++)
		other.files[i].seed++;
	stream_make(&other, INT64_MIN, &fresh);
	assert_true(save_stream(p, (struct str){fresh.data, fresh.len - 1}, 2, NULL) < 0);
	assert_int_equal(blobs_count(p), blobs);
	expect_saved(p, &m);
	for (int i = 0; i < 200; i++) {
		size_t at = unit_below(&r, 600);
		char was = stream.data[at];

		stream.data[at] = (char)(was ^ 1 << unit_below(&r, 8));
		if (save_stream(p, (struct str){stream.data, stream.len}, 2, NULL) < 0) {
			stream.data[at] = was;
			expect_saved(p, &m);
		}
		stream.data[at] = was;
		assert_int_equal(save_stream(p, (struct str){stream.data, stream.len}, 1, NULL), 0);
	}
	expect_saved(p, &m);
}

/* What is said to be the same must be in the last manifest, by inode, ctime and size. */
static void test_lies_about_the_same(void **state)
{
	struct place *p = *state;
	struct model m = {0};
	_cleanup_buf_ struct buf stream = BUF_INIT(8 * MANY);

	save_first(p, &m, &stream);
	for (int what = 0; what < 3; what++) {
		struct model other = m;
		_cleanup_buf_ struct buf lie = BUF_INIT(8 * MANY);

		if (what == 0)
			other.files[0].inode = 999;
		else if (what == 1)
			other.files[0].ctime++;
		else
			other.files[0].size++;
		stream_make(&other, INT64_MAX, &lie);
		assert_int_equal(
		        save_stream(p, (struct str){lie.data, lie.len}, 2, NULL), -ERR_CONFLICT);
	}
	expect_saved(p, &m);
}

static void manifest_path(struct place *p, char out[256])
{
	snprintf(out, 256, "%s/home/", p->folder);
	for (int i = 0; i < SUP_KEY_LEN; i++)
		snprintf(out + strlen(out), 256 - strlen(out), "%02x", key_of_home[i]);
	snprintf(out + strlen(out), 256 - strlen(out), "/manifest");
}

static void test_damaged_manifests(void **state)
{
	struct place *p = *state;
	struct model m = {0};
	struct unit_random r = {4242};
	_cleanup_buf_ struct buf stream = BUF_INIT(8 * MANY);
	char path[256];
	struct stat st;

	save_first(p, &m, &stream);
	manifest_path(p, path);
	assert_int_equal(stat(path, &st), 0);
	for (int i = 0; i < 100; i++) {
		int fd = open(path, O_RDWR | O_CLOEXEC);
		off_t at = (off_t)unit_below(&r, (size_t)st.st_size);
		uint8_t byte, flipped;
		struct buf out;
		int64_t since = 0;

		assert_int_equal(pread(fd, &byte, 1, at), 1);
		flipped = byte ^ (uint8_t)(1 << unit_below(&r, 8));
		assert_int_equal(pwrite(fd, &flipped, 1, at), 1);
		assert_int_equal(restore_stream(p, &out), -ERR_PROTOCOL);
		buf_free(&out);
		assert_int_equal(save_since(p->s, key_of_home, &since, NULL), -ERR_PROTOCOL);
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
		close(fd);
	}
	expect_saved(p, &m);
	/* another container's, and a piece that is gone */
	key_of_home[0] ^= 1;
	struct buf out;

	assert_int_equal(restore_stream(p, &out), -ERR_NOT_FOUND);
	buf_free(&out);
	key_of_home[0] ^= 1;
	assert_int_equal(truncate(path, st.st_size / 2), 0);
	assert_int_equal(restore_stream(p, &out), -ERR_PROTOCOL);
	buf_free(&out);
	/* A whole save makes it good again. */
	assert_int_equal(save_stream(p, (struct str){stream.data, stream.len}, 3, NULL), 0);
	expect_saved(p, &m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_rounds, place_make, place_remove),
	        cmocka_unit_test_setup_teardown(test_sparse_files, place_make, place_remove),
	        cmocka_unit_test_setup_teardown(test_no_room, place_make, place_remove),
	        cmocka_unit_test_setup_teardown(test_broken_streams, place_make, place_remove),
	        cmocka_unit_test_setup_teardown(test_lies_about_the_same, place_make, place_remove),
	        cmocka_unit_test_setup_teardown(test_damaged_manifests, place_make, place_remove),
	};

	signal(SIGPIPE, SIG_IGN);
	return UNIT_RUN(tests);
}
