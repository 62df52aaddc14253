/*
 * Theory of operation: a rope is a list of pieces, pulled from the front. A literal piece carries
 * its bytes behind itself and grows while literals follow each other; the other kinds point to
 * bytes of their owner. A piece is freed as soon as it was pulled.
 */
#include "json/internal.h"

#include "base/utf8.h"

#include <stdlib.h>

/* Literals are our own punctuation and small fields: more than this is a string that should have
 * been borrowed. */
enum { ROPE_LITERAL_MAX = 4 * 1024 * 1024, LITERAL_FIRST = 256 };

enum piece_kind { PIECE_LITERAL, PIECE_BORROWED, PIECE_ESCAPED };

struct piece {
	struct piece *next;
	enum piece_kind kind;
	struct str bytes; /* what is left of it */
	size_t len, cap;  /* of data; only for a literal */
	char data[];
};

struct rope {
	struct piece *first;
	struct piece *last;
	size_t literal_bytes; /* copied and not yet freed */
	size_t left;
};

struct rope *rope_new(void)
{
	return mem_alloc(sizeof(struct rope));
}

static void rope_drop_first(struct rope *r)
{
	struct piece *piece = r->first;

	r->literal_bytes -= piece->cap;
	r->first = piece->next;
	if (!r->first)
		r->last = NULL;
	free(piece);
}

struct rope *rope_free(struct rope *r)
{
	if (!r)
		return NULL;
	while (r->first)
		rope_drop_first(r);
	free(r);
	return NULL;
}

static struct piece *rope_add(struct rope *r, enum piece_kind kind, size_t cap)
{
	struct piece *piece = malloc(sizeof(*piece) + cap);

	if (!piece)
		return NULL;
	*piece = (struct piece){.kind = kind, .cap = cap};
	if (r->last)
		r->last->next = piece;
	else
		r->first = piece;
	r->last = piece;
	r->literal_bytes += cap;
	return piece;
}

int rope_literal(struct rope *r, struct str bytes)
{
	struct piece *last = r->last;
	size_t cap;

	if (bytes.n == 0)
		return 0;
	if (!last || last->kind != PIECE_LITERAL || last->cap - last->len < bytes.n) {
		cap = bytes.n < LITERAL_FIRST ? LITERAL_FIRST : bytes.n;
		if (cap > ROPE_LITERAL_MAX - r->literal_bytes)
			return -ERR_TOO_LARGE;
		last = rope_add(r, PIECE_LITERAL, cap);
		if (!last)
			return -ERR_NOMEM;
		last->bytes.p = last->data;
	}
	memcpy(last->data + last->len, bytes.p, bytes.n);
	last->len += bytes.n;
	last->bytes.n += bytes.n;
	r->left += bytes.n;
	return 0;
}

static int rope_point(struct rope *r, enum piece_kind kind, struct str bytes)
{
	struct piece *piece;

	if (bytes.n == 0)
		return 0;
	piece = rope_add(r, kind, 0);
	if (!piece)
		return -ERR_NOMEM;
	piece->bytes = bytes;
	r->left += bytes.n;
	return 0;
}

int rope_borrowed(struct rope *r, struct str bytes)
{
	return rope_point(r, PIECE_BORROWED, bytes);
}

int rope_escaped(struct rope *r, struct str text)
{
	return rope_point(r, PIECE_ESCAPED, text);
}

size_t rope_left(const struct rope *r)
{
	return r->left;
}

/* `room` bytes of s and what the last character needs beyond. */
static size_t cut_at_char(struct str s, size_t room)
{
	size_t n = s.n < room ? s.n : room;

	while (n < s.n && n < room + 3 && ((unsigned char)s.p[n] & 0xc0) == 0x80)
		n++;
	return n;
}

int rope_pull(struct rope *r, struct buf *out, size_t room)
{
	size_t start = out->len, used;
	struct piece *piece;
	int rc = 0;

	if (room == 0)
		room = 1;
	while (r->first && !rc && out->len - start < room) {
		size_t most = room - (out->len - start);

		piece = r->first;
		if (piece->kind == PIECE_ESCAPED) {
			rc = json_escape_some(out, piece->bytes.p, piece->bytes.n, most, &used);
		} else {
			used = cut_at_char(piece->bytes, most);
			rc = buf_append(out, piece->bytes.p, used);
			used = rc ? 0 : used;
		}
		piece->bytes.p += used;
		piece->bytes.n -= used;
		r->left -= used;
		if (piece->bytes.n == 0)
			rope_drop_first(r);
	}
	return rc;
}
