/*
 * The reader of multipart/form-data: the first byte chooses how the rest is cut, the second and
 * third bound the parts; the boundary is always "b". Whole and in pieces it must tell the same,
 * keep the order of its calls, hold to the bounds, and its content must add up to no more than was
 * fed.
 */
#include "base/buf.h"
#include "base/error.h"
#include "base/mem.h"
#include "http/multipart.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct seen {
	struct buf text;
	uint64_t max, part;
	size_t parts, bytes;
	bool within;
};

static int on_begin(void *ctx, struct multipart_part *p, struct error *err)
{
	struct seen *s = ctx;

	if (s->within || ++s->parts > MULTIPART_PARTS_MAX || p->name.n == 0 ||
	        p->name.n > MULTIPART_NAME_MAX || p->filename.n > MULTIPART_NAME_MAX)
		BUG("a part that should have been refused");
	s->within = true;
	s->part = 0;
	if (s->max < p->max)
		p->max = s->max;
	s->max = p->max;
	buf_printf(&s->text, "[%zu:", p->name.n);
	buf_append(&s->text, p->name.p, p->name.n);
	buf_printf(&s->text, "|%d,%zu:", p->filename.p != NULL, p->filename.n);
	buf_append(&s->text, p->filename.p, p->filename.n);
	buf_printf(&s->text, "|%zu:", p->type.n);
	buf_append(&s->text, p->type.p, p->type.n);
	return 0;
}

static int on_data(void *ctx, struct str piece, struct error *err)
{
	struct seen *s = ctx;

	if (!s->within || piece.n == 0)
		BUG("content outside of a part, or none");
	s->part += piece.n;
	s->bytes += piece.n;
	if (s->part > s->max)
		BUG("more content than the part may have");
	buf_append(&s->text, piece.p, piece.n);
	return 0;
}

static int on_end(void *ctx, struct error *err)
{
	struct seen *s = ctx;

	if (!s->within)
		BUG("the end of no part");
	s->within = false;
	buf_puts(&s->text, "]");
	return 0;
}

static int read_all(struct seen *s, const char *p, size_t n, uint64_t max, unsigned how)
{
	const struct multipart_handler h = {s, on_begin, on_data, on_end};
	struct multipart *m;
	size_t at = 0, piece;
	int result = 0;

	*s = (struct seen){.max = max};
	buf_init(&s->text, SIZE_MAX / 2);
	if (multipart_new(STR("multipart/form-data; boundary=b"), &h, &m, NULL) < 0)
		BUG("a good type was refused");
	while (at < n && result == 0) {
		piece = how == 0 ? n : how == 1 ? 1 : (at * 2654435761u ^ how) % 17 + 1;
		piece = piece < n - at ? piece : n - at;
		char *copy = mem_strndup(p + at, piece);

		result = multipart_feed(m, copy, piece, NULL);
		free(copy);
		at += piece;
	}
	if (result == 0)
		result = multipart_finish(m, NULL);
	if (multipart_finish(m, NULL) != result)
		BUG("the end of it changes");
	if (result == 0 && s->within)
		BUG("a part without its end");
	if (s->bytes > n)
		BUG("more content than was fed");
	multipart_free(m);
	return result;
}

/* A type of any bytes. */
static void read_type(const char *p, size_t n)
{
	const struct multipart_handler h = {NULL, on_begin, on_data, on_end};
	struct buf type = BUF_INIT(SIZE_MAX / 2);
	struct multipart *m = NULL;

	buf_puts(&type, "multipart/form-data");
	buf_append(&type, p, n);
	multipart_new((struct str){type.data, type.len}, &h, &m, NULL);
	multipart_free(m);
	buf_free(&type);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct seen whole, cut;
	const char *p = (const char *)data + 3;
	uint64_t max;
	unsigned how;
	int r;

	if (n < 3)
		return 0;
	how = data[0] ? data[0] : 1;
	max = (uint64_t)data[1] << 8 | data[2];
	r = read_all(&whole, p, n - 3, max, 0);
	if (read_all(&cut, p, n - 3, max, how) != r)
		BUG("the cut changes the result");
	/* What had been told of a body that is refused may end earlier in one of them. */
	if (r == 0 &&
	        (whole.text.len != cut.text.len ||
	                memcmp(buf_cstr(&whole.text), buf_cstr(&cut.text), cut.text.len) != 0))
		BUG("the cut changes what is told");
	buf_free(&whole.text);
	buf_free(&cut.text);
	read_type(p, n - 3);
	return 0;
}
