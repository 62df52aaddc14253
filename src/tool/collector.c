/*
 * Theory of operation: everything that is held lies in one block of memory. Its front is the head,
 * the first limit / 2 characters, which never change again. What follows the head is the tail: the
 * last limit - limit / 2 characters, kept as a ring of bytes from which whole characters are
 * dropped at the front as new ones come. While no more than `limit` characters have come nothing is
 * dropped, the ring has not wrapped, and the block simply is the text.
 *
 *     | head …………… | tail: ……… end | begin …… |
 *
 * At the end, if characters are missing, the ring is turned in place so that it begins at its first
 * character, as many more characters are dropped as the line about the missing ones takes, and the
 * line is put between. The block has a few bytes to spare for it, since its characters may take
 * more bytes than those that make room for it. So a collector holds at most four bytes a character
 * and SPARE.
 *
 * Bytes become characters one complete character at a time: up to three bytes of one that is cut
 * between two reads wait in `cut`. Hence the result does not depend on how the input was cut.
 */
#include "tool/tool.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum {
	SPARE = 64,       /* room for the line about what is missing */
	FIRST_ROOM = 256, /* what a collector begins with: most outputs are short */
};

struct collector {
	uint32_t limit, head_max, tail_max; /* characters */
	char *data;
	size_t cap;        /* bytes of data, without SPARE */
	size_t head_len;   /* bytes */
	uint32_t head;     /* characters */
	size_t ring_begin; /* offset of the ring's first byte behind the head */
	size_t ring_len;   /* bytes */
	uint32_t ring;     /* characters */
	uint64_t chars;    /* all that came */
	size_t live_len;   /* bytes of the head that were shown */
	size_t text_len;   /* after the end */
	bool ended;
	char cut[4];
	size_t n_cut;
};

struct collector *collector_new(uint32_t limit)
{
	struct collector *c = mem_alloc(sizeof(*c));

	c->limit = limit;
	c->head_max = limit / 2;
	c->tail_max = limit - c->head_max;
	return c;
}

struct collector *collector_free(struct collector *c)
{
	if (!c)
		return NULL;
	free(c->data);
	free(c);
	return NULL;
}

/* ---- the block ---- */

static void bytes_reverse(char *p, size_t n)
{
	size_t i;

	for (i = 0; i < n / 2; i++) {
		char swap = p[i];

		p[i] = p[n - 1 - i];
		p[n - 1 - i] = swap;
	}
}

/* Turns the ring so that it begins right behind the head. */
static void ring_turn(struct collector *c)
{
	char *ring = c->data + c->head_len;
	size_t size = c->cap - c->head_len;

	if (c->ring_begin == 0)
		return;
	if (c->ring_begin + c->ring_len <= size) {
		memmove(ring, ring + c->ring_begin, c->ring_len);
	} else {
		bytes_reverse(ring, c->ring_begin);
		bytes_reverse(ring + c->ring_begin, size - c->ring_begin);
		bytes_reverse(ring, size);
	}
	c->ring_begin = 0;
}

/* Makes room for n more bytes behind the ring. Never asks for more than a limit of characters can
 * take, so the caller must have dropped what the new ones push out. */
static int block_reserve(struct collector *c, size_t n)
{
	size_t need = c->head_len + c->ring_len + n;
	size_t most = (size_t)c->limit * 4;
	size_t cap = c->cap ? c->cap : FIRST_ROOM;
	char *data;

	if (need <= c->cap)
		return 0;
	while (cap < need)
		cap *= 2;
	if (cap > most)
		cap = most;
	if (cap < need)
		BUG("a collector of %u characters needs %zu bytes", c->limit, need);
	if (c->data)
		ring_turn(c);
	data = realloc(c->data, cap + SPARE);
	if (!data)
		return -ERR_NOMEM;
	c->data = data;
	c->cap = cap;
	return 0;
}

static char ring_at(const struct collector *c, size_t i)
{
	size_t size = c->cap - c->head_len;
	size_t at = c->ring_begin + i;

	return c->data[c->head_len + (at < size ? at : at - size)];
}

static size_t char_len_of(char first)
{
	unsigned char b = (unsigned char)first;

	return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

static void ring_drop(struct collector *c, uint32_t n)
{
	size_t size = c->cap - c->head_len;
	size_t len = 0;

	if (n >= c->ring) {
		c->ring_begin = 0;
		c->ring_len = 0;
		c->ring = 0;
		return;
	}
	c->ring -= n;
	while (n-- > 0)
		len += char_len_of(ring_at(c, len));
	c->ring_begin += len;
	if (c->ring_begin >= size)
		c->ring_begin -= size;
	c->ring_len -= len;
}

static void ring_put(struct collector *c, const char *p, size_t n)
{
	size_t size = c->cap - c->head_len;
	size_t at = c->ring_begin + c->ring_len;
	size_t first;

	if (at >= size)
		at -= size;
	first = n < size - at ? n : size - at;
	memcpy(c->data + c->head_len + at, p, first);
	memcpy(c->data + c->head_len, p + first, n - first);
	c->ring_len += n;
}

/* ---- characters in ---- */

/* Keeps n characters of one byte each. */
static int keep_ascii(struct collector *c, const char *p, size_t n)
{
	size_t take = c->head_max - c->head;
	int r;

	c->chars += n;
	if (take > 0) {
		if (take > n)
			take = n;
		r = block_reserve(c, take);
		if (r)
			return r;
		memcpy(c->data + c->head_len, p, take);
		c->head_len += take;
		c->head += (uint32_t)take;
		p += take;
		n -= take;
	}
	if (n > c->tail_max) {
		p += n - c->tail_max;
		n = c->tail_max;
	}
	if (n == 0)
		return 0;
	if (n > c->tail_max - c->ring)
		ring_drop(c, (uint32_t)(n - (c->tail_max - c->ring)));
	r = block_reserve(c, n);
	if (r)
		return r;
	ring_put(c, p, n);
	c->ring += (uint32_t)n;
	return 0;
}

/* Keeps one character of len bytes. */
static int keep_char(struct collector *c, const char *p, size_t len)
{
	int r;

	c->chars++;
	if (c->tail_max == 0)
		return 0;
	if (c->head == c->head_max && c->ring == c->tail_max)
		ring_drop(c, 1);
	r = block_reserve(c, len);
	if (r)
		return r;
	if (c->head < c->head_max) {
		memcpy(c->data + c->head_len, p, len);
		c->head_len += len;
		c->head++;
	} else {
		ring_put(c, p, len);
		c->ring++;
	}
	return 0;
}

static int keep_replacement(struct collector *c)
{
	return keep_char(c, "\xef\xbf\xbd", 3);
}

/* Completes the character that the last read cut, with bytes of this one. */
static int feed_cut(struct collector *c, const char *p, size_t n, size_t *ret_used)
{
	size_t used = 0;
	int r = 0;

	while (c->n_cut > 0 && used < n && r == 0) {
		c->cut[c->n_cut++] = p[used++];
		if (utf8_char_len(c->cut, c->n_cut) > 0) {
			r = keep_char(c, c->cut, c->n_cut);
			c->n_cut = 0;
		} else if (utf8_incomplete_tail(c->cut, c->n_cut) != c->n_cut) {
			/* What waited stands for one U+FFFD; the byte that broke it begins
			 * something of its own. */
			r = keep_replacement(c);
			c->n_cut = 0;
			used--;
		}
	}
	*ret_used = used;
	return r;
}

static int feed_bytes(struct collector *c, const char *p, size_t n)
{
	size_t i = 0, run, len;
	int r;

	r = feed_cut(c, p, n, &i);
	while (i < n && r == 0) {
		run = utf8_ascii_run(p + i, n - i);
		if (run > 0) {
			r = keep_ascii(c, p + i, run);
			i += run;
			continue;
		}
		len = utf8_char_len(p + i, n - i);
		if (len > 0) {
			r = keep_char(c, p + i, len);
			i += len;
		} else if (utf8_incomplete_tail(p + i, n - i) == n - i) {
			memcpy(c->cut, p + i, n - i);
			c->n_cut = n - i;
			i = n;
		} else {
			r = keep_replacement(c);
			i += utf8_subpart_len(p + i, n - i);
		}
	}
	return r;
}

int collector_feed(struct collector *c, const void *data, size_t n, struct buf *live)
{
	int r;

	if (c->ended)
		BUG("a collector that has ended is fed");
	r = feed_bytes(c, data, n);
	if (r || !live || c->live_len == c->head_len)
		return r;
	r = buf_append(live, c->data + c->live_len, c->head_len - c->live_len);
	c->live_len = c->head_len;
	return r;
}

/* ---- the end ---- */

/* Writes the line that stands for what is missing, and how many characters of the tail stay. */
static void missing_line(const struct collector *c, char line[SPARE], uint32_t *ret_tail)
{
	uint32_t room = c->limit - c->head_max;
	uint32_t tail, digits;
	size_t chars;

	/* The number in the line depends on how much of the tail stays, and that on the number's
	 * length. */
	for (digits = 1; digits <= 20; digits++) {
		tail = 0;
		str_format(line, SPARE, "\n[… %.*s characters omitted …]\n", (int)digits,
		        "00000000000000000000");
		chars = utf8_count(line, strlen(line));
		if (chars > room)
			break;
		tail = room - (uint32_t)chars;
		str_format(line, SPARE, "\n[… %llu characters omitted …]\n",
		        (unsigned long long)(c->chars - c->head_max - tail));
		if (utf8_count(line, strlen(line)) == chars) {
			*ret_tail = tail;
			return;
		}
	}
	str_format(line, SPARE, "…");
	*ret_tail = room - 1;
}

static void put_missing_line(struct collector *c)
{
	char line[SPARE];
	uint32_t tail;
	size_t len;

	missing_line(c, line, &tail);
	len = strlen(line);
	ring_drop(c, c->ring - tail);
	ring_turn(c);
	memmove(c->data + c->head_len + len, c->data + c->head_len, c->ring_len);
	memcpy(c->data + c->head_len, line, len);
	c->text_len = c->head_len + len + c->ring_len;
}

int collector_end(struct collector *c, struct buf *live)
{
	int r = 0;

	if (c->ended)
		return 0;
	if (c->n_cut > 0)
		r = keep_replacement(c);
	if (r)
		return r;
	c->n_cut = 0;
	c->ended = true;
	c->text_len = c->head_len + c->ring_len;
	if (collector_truncated(c) && c->limit > 0)
		put_missing_line(c);
	if (live && c->text_len > c->live_len)
		r = buf_append(live, c->data + c->live_len, c->text_len - c->live_len);
	return r;
}

struct str collector_text(const struct collector *c)
{
	if (!c->ended)
		BUG("the text of a collector that has not ended");
	return (struct str){c->data ? c->data : "", c->text_len};
}

uint64_t collector_chars(const struct collector *c)
{
	return c->chars;
}

bool collector_truncated(const struct collector *c)
{
	return c->chars > c->limit;
}

size_t collector_bytes_held(const struct collector *c)
{
	return sizeof(*c) + (c->data ? c->cap + SPARE : 0);
}
