#include "api/ropewriter.h"

/* From here on a string is borrowed: a piece of the rope costs about 64 bytes. */
enum { BORROW_FROM = 512 };
/* Many small strings together: beyond this they go to the rope too, to be pulled as room allows. */
enum { SPILL_FROM = 32 * 1024 };
/* Text that waits for the rope: everything that is not borrowed of one event, or of one item of a
 * snapshot. */
enum { TEXT_MAX = 4 * 1024 * 1024, TEXT_KEEP = 8192 };
/* So that no cut falls into the last bytes of an event: some clients lose an event whose end comes
 * in two pieces. */
enum { TAIL_TOGETHER = 64 };

void ropewriter_init(struct ropewriter *w)
{
	*w = (struct ropewriter){.err = 0};
	buf_init(&w->text, TEXT_MAX);
	jw_init(&w->json, &w->text);
}

void ropewriter_free(struct ropewriter *w)
{
	buf_free(&w->text);
	w->rope = rope_free(w->rope);
}

void ropewriter_rest(struct ropewriter *w)
{
	buf_free(&w->text);
}

void ropewriter_begin(struct ropewriter *w)
{
	if (w->text.cap > TEXT_KEEP)
		buf_free(&w->text);
	buf_reset(&w->text);
	jw_init(&w->json, &w->text);
}

static void flush(struct ropewriter *w)
{
	int rc = buf_error(&w->text);

	if (!w->rope)
		w->rope = rope_new();
	if (!rc)
		rc = rope_literal(w->rope, (struct str){w->text.data, w->text.len});
	if (rc && !w->err)
		w->err = rc;
	buf_reset(&w->text);
}

static void borrow(struct ropewriter *w, struct str s, bool escaped)
{
	int rc;

	flush(w);
	rc = escaped ? rope_escaped(w->rope, s) : rope_borrowed(w->rope, s);
	if (rc && !w->err)
		w->err = rc;
}

void ropewriter_literal(struct ropewriter *w, struct str bytes)
{
	buf_append(&w->text, bytes.p, bytes.n);
}

void ropewriter_str(struct ropewriter *w, struct str s)
{
	if (s.n < BORROW_FROM) {
		jw_str(&w->json, s);
		if (w->text.len > SPILL_FROM)
			flush(w);
		return;
	}
	jw_raw(&w->json, STR("\""));
	borrow(w, s, true);
	buf_putc(&w->text, '"');
}

void ropewriter_piece(struct ropewriter *w, struct str s)
{
	if (s.n >= BORROW_FROM)
		borrow(w, s, true);
	else
		json_write_str_part(&w->text, s);
	if (w->text.len > SPILL_FROM)
		flush(w);
}

void ropewriter_kstr(struct ropewriter *w, const char *key, struct str s)
{
	jw_key(&w->json, key);
	ropewriter_str(w, s);
}

void ropewriter_str_begin(struct ropewriter *w)
{
	jw_raw(&w->json, STR("\""));
}

void ropewriter_str_part(struct ropewriter *w, struct str s)
{
	if (s.n >= BORROW_FROM) {
		borrow(w, s, true);
		return;
	}
	json_write_str_part(&w->text, s);
	if (w->text.len > SPILL_FROM)
		flush(w);
}

void ropewriter_str_end(struct ropewriter *w)
{
	buf_putc(&w->text, '"');
}

void ropewriter_raw(struct ropewriter *w, struct str raw)
{
	if (raw.n < BORROW_FROM) {
		jw_raw(&w->json, raw);
		return;
	}
	jw_raw(&w->json, STR(""));
	borrow(w, raw, false);
}

void ropewriter_kraw(struct ropewriter *w, const char *key, struct str raw)
{
	jw_key(&w->json, key);
	ropewriter_raw(w, raw);
}

int ropewriter_pull(struct ropewriter *w, struct buf *out, size_t room)
{
	int rc;

	if (!w->err)
		w->err = buf_error(&w->text);
	if (!w->err && w->rope && rope_left(w->rope) > 0) {
		flush(w);
		rc = w->err ? w->err : rope_pull(w->rope, out, room);
		if (!rc && rope_left(w->rope) > 0 && rope_left(w->rope) <= TAIL_TOGETHER)
			rc = rope_pull(w->rope, out, TAIL_TOGETHER * 6);
		if (rope_left(w->rope) == 0)
			w->rope = rope_free(w->rope);
		return w->err = rc;
	}
	if (!w->err)
		w->err = buf_append(out, w->text.data, w->text.len);
	buf_reset(&w->text);
	return w->err;
}

size_t ropewriter_left(const struct ropewriter *w)
{
	return w->text.len + (w->rope ? rope_left(w->rope) : 0);
}
