/*
 * The event stream reader: the first byte chooses how the rest is cut. Whole and in pieces it must
 * give the same events, and what it gives, written again and read again, is the same.
 */
#include "base/error.h"
#include "http/sse.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { EVENT_MAX = 4096 };

struct seen {
	struct buf text;  /* everything, for comparing */
	struct buf again; /* the events written anew */
	struct buf plain; /* the events alone */
};

static int on_event(void *ctx, struct str event, struct str data)
{
	struct seen *s = ctx;
	size_t begin = 0, i;

	buf_printf(&s->plain, "[%zu:", event.n);
	buf_append(&s->plain, event.p, event.n);
	buf_printf(&s->plain, "|%zu:", data.n);
	buf_append(&s->plain, data.p, data.n);
	buf_append(&s->text, s->plain.data, s->plain.len);
	if (memchr(data.p, '\r', data.n) || (event.p && memchr(event.p, '\r', event.n)))
		BUG("a line end within a line");
	if (event.p) {
		buf_puts(&s->again, "event: ");
		buf_append(&s->again, event.p, event.n);
		buf_putc(&s->again, '\n');
	}
	for (i = 0; i <= data.n; i++) {
		if (i < data.n && data.p[i] != '\n')
			continue;
		buf_puts(&s->again, "data: ");
		buf_append(&s->again, data.p + begin, i - begin);
		buf_putc(&s->again, '\n');
		begin = i + 1;
	}
	buf_putc(&s->again, '\n');
	return 0;
}

static void on_comment(void *ctx, struct str text)
{
	struct seen *s = ctx;

	buf_printf(&s->text, "(%zu:", text.n);
	buf_append(&s->text, text.p, text.n);
}

static int read_all(struct seen *s, const char *p, size_t n, unsigned how, bool *ret_dropped)
{
	struct sse_reader *r = sse_reader_new(EVENT_MAX, on_event, on_comment, s);
	size_t at = 0, piece;
	int result = 0;

	buf_init(&s->text, SIZE_MAX / 2);
	buf_init(&s->again, SIZE_MAX / 2);
	buf_init(&s->plain, SIZE_MAX / 2);
	while (at < n && result == 0) {
		piece = how == 0 ? n : how == 1 ? 1 : (at * 2654435761u ^ how) % 17 + 1;
		piece = piece < n - at ? piece : n - at;
		result = sse_feed(r, p + at, piece, NULL);
		at += piece;
	}
	*ret_dropped = sse_end(r);
	sse_reader_free(r);
	return result;
}

static void seen_free(struct seen *s)
{
	buf_free(&s->text);
	buf_free(&s->again);
	buf_free(&s->plain);
}

static bool same(const struct buf *a, const struct buf *b)
{
	return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct seen whole, cut, again;
	bool whole_dropped, cut_dropped, again_dropped;
	unsigned how;
	int r;

	if (n == 0)
		return 0;
	how = data[0] ? data[0] : 1;
	r = read_all(&whole, (const char *)data + 1, n - 1, 0, &whole_dropped);
	if (read_all(&cut, (const char *)data + 1, n - 1, how, &cut_dropped) != r ||
	        (r == 0 && whole_dropped != cut_dropped) || !same(&whole.text, &cut.text))
		BUG("the cut changes the events");
	if (r == 0 && (read_all(&again, whole.again.data, whole.again.len, 0, &again_dropped) ||
	                      again_dropped || !same(&whole.plain, &again.plain)))
		BUG("written and read again, the events differ");
	if (r == 0)
		seen_free(&again);
	seen_free(&whole);
	seen_free(&cut);
	return 0;
}
