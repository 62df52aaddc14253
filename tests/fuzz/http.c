/*
 * The grammar of requests: the first byte chooses how the rest is cut. What is read whole and what
 * is read in pieces must agree, and what a head says about itself must lie within its bytes. The
 * body that follows is read as its head says.
 */
#include "base/error.h"
#include "http/parse.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct outcome {
	int r;
	size_t used;
	struct buf body;
};

/* The next piece's length for a way of cutting: 0 whole, 1 single bytes, else pseudo-random. */
static size_t piece_of(unsigned how, size_t at, size_t left)
{
	size_t n = how == 0 ? left : how == 1 ? 1 : (at * 2654435761u ^ how) % 17 + 1;

	return n < left ? n : left;
}

static int feed_head(
        struct http_parse_head *h, const char *p, size_t n, unsigned how, size_t *ret_used)
{
	size_t at = 0, used, piece;
	const char *text = NULL;
	int r = 0;

	http_parse_head_init(h, 2048, 16);
	while (r == 0 && at < n) {
		piece = piece_of(how, at, n - at);
		r = http_parse_head_feed(h, p + at, piece, &used, &text);
		if (used > piece || (r == 0 && used != piece) || (r < 0 && !text))
			BUG("%zu of %zu bytes, result %d", used, piece, r);
		at += used;
	}
	*ret_used = at;
	return r;
}

static void feed_chunks(const char *p, size_t n, unsigned how, struct outcome *o)
{
	struct http_parse_chunk k;
	const char *text = NULL;
	size_t at = 0, used, piece;
	struct str got;
	int r = 0;

	buf_init(&o->body, SIZE_MAX / 2);
	http_parse_chunk_init(&k);
	while (r == 0 && at < n) {
		piece = piece_of(how, at, n - at);
		r = http_parse_chunk_feed(&k, p + at, piece, &used, &got, &text);
		if (used > piece || (r == 0 && used == 0) || (r < 0 && !text))
			BUG("%zu of %zu bytes, result %d", used, piece, r);
		if (got.n > 0 && (got.p < p + at || got.p + got.n > p + at + used))
			BUG("a piece outside of what was used");
		if (got.n > 1 && how > 1 && r == 0) {
			http_parse_chunk_unread(&k, 1);
			got.n--;
			used--;
		}
		buf_append(&o->body, got.p, got.n);
		at += used;
	}
	o->r = r;
	o->used = at;
}

static void check_within(const struct http_parse_head *h, uint32_t at, uint32_t len)
{
	if ((size_t)at + len > h->bytes.len)
		BUG("%u bytes at %u of %zu", len, at, h->bytes.len);
}

static void check_head(const struct http_parse_head *h)
{
	size_t i;

	check_within(h, h->method, h->method_len);
	check_within(h, h->target, h->target_len);
	check_within(h, h->path, h->path_len);
	check_within(h, h->query, h->query_len);
	for (i = 0; i < h->n_fields; i++) {
		check_within(h, h->fields[i].name, h->fields[i].name_len);
		check_within(h, h->fields[i].value, h->fields[i].value_len);
	}
	if (h->chunked && h->has_length)
		BUG("two framings");
	if (h->minor > 0 && http_parse_head_count(h, "host") != 1)
		BUG("taken without one Host");
	if (memchr(h->bytes.data, '\0', h->bytes.len))
		BUG("a NUL in a head");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct http_parse_head a, b;
	struct outcome x, y;
	size_t a_used, b_used;
	const char *p;
	unsigned how;
	int r;

	if (n == 0)
		return 0;
	how = data[0];
	p = (const char *)data + 1;
	n--;
	r = feed_head(&a, p, n, 0, &a_used);
	if (feed_head(&b, p, n, how ? how : 1, &b_used) != r || a_used != b_used)
		BUG("the cut changes a head");
	if (r == 1) {
		check_head(&a);
		check_head(&b);
	}
	/* Also without a good head before it, or few inputs would get that far. */
	if (r != 1 || a.chunked) {
		p += r == 1 ? a_used : 0;
		n -= r == 1 ? a_used : 0;
		feed_chunks(p, n, 0, &x);
		feed_chunks(p, n, how ? how : 1, &y);
		if (x.r != y.r || x.body.len != y.body.len || (x.r != 0 && x.used != y.used) ||
		        (x.body.len > 0 && memcmp(x.body.data, y.body.data, x.body.len) != 0))
			BUG("the cut changes a body");
		buf_free(&x.body);
		buf_free(&y.body);
	}
	http_parse_head_free(&a);
	http_parse_head_free(&b);
	return 0;
}
