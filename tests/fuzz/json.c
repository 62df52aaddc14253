/*
 * Any bytes as JSON. What must hold: the reader and the tree agree; every value's raw bytes lie
 * where its offset says and are inside the text; decoded text is UTF-8; what the writer makes of a
 * tree reads back and writes the same again; and escaping in pieces gives what escaping at once
 * gives.
 */
#include "json/json.h"

#include "base/utf8.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { ROOM = 8 << 20 };

#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition))                                                                  \
			BUG("%s", #condition);                                                     \
	} while (0)

struct seen {
	struct str text;
	size_t values, last;
};

static int see(void *ctx, const struct json_event *ev)
{
	struct seen *s = ctx;

	MUST(ev->raw.p == s->text.p + ev->offset);
	MUST(ev->raw.n > 0 && ev->offset >= s->last && ev->offset + ev->raw.n <= s->text.n);
	s->last = ev->offset + ev->raw.n;
	s->values += ev->type != JSON_EV_KEY && ev->type != JSON_EV_ARRAY_END &&
	             ev->type != JSON_EV_OBJECT_END;
	return 0;
}

static void check_value(const struct json *v, struct str text)
{
	struct str raw = json_raw(v), s = json_str(v), key = json_key(v), key_raw = json_key_raw(v);
	int64_t whole;
	double d;

	MUST(raw.n > 0 && raw.p == text.p + json_offset(v) && json_offset(v) + raw.n <= text.n);
	MUST(!s.p == !json_is(v, JSON_STRING));
	MUST(utf8_valid(s.p ? s.p : "", s.n) && utf8_valid(key.p ? key.p : "", key.n));
	if (key.p) {
		MUST(key_raw.p >= text.p && key_raw.p + key_raw.n <= raw.p);
		MUST(key_raw.n >= 2 && key_raw.p[0] == '"' && key_raw.p[key_raw.n - 1] == '"');
		MUST(key.n == 0 || !memchr(key.p, 0, key.n));
	}
	if (json_i64(v, &whole)) {
		MUST(json_is(v, JSON_NUMBER) && json_double(v, &d));
		MUST((double)whole == d);
	}
}

static void write_value(struct json_writer *w, const struct json *v)
{
	switch (json_type(v)) {
	case JSON_OBJECT:
		jw_object(w);
		break;
	case JSON_ARRAY:
		jw_array(w);
		break;
	case JSON_STRING:
		jw_str(w, json_str(v));
		break;
	case JSON_NUMBER:
		jw_raw(w, json_raw(v));
		break;
	case JSON_TRUE:
	case JSON_FALSE:
		jw_bool(w, json_bool(v));
		break;
	case JSON_NULL:
		jw_null(w);
		break;
	}
}

/* Writes the tree, checking each value on the way. Returns how many there are. */
static size_t write_tree(const struct json_doc *doc, struct str text, struct buf *out)
{
	const struct json *v = json_root(doc), *up[JSON_MAX_DEPTH];
	size_t depth = 0, count = 0;
	struct json_writer w;

	jw_init(&w, out);
	while (v) {
		count++;
		check_value(v, text);
		if (json_key(v).p)
			jw_key_str(&w, json_key(v));
		write_value(&w, v);
		if (json_first(v)) {
			up[depth++] = v;
			v = json_first(v);
			continue;
		}
		if (json_is(v, JSON_ARRAY) || json_is(v, JSON_OBJECT))
			jw_end(&w);
		while (depth > 0 && !json_next(v)) {
			v = up[--depth];
			jw_end(&w);
		}
		v = depth > 0 ? json_next(v) : NULL;
	}
	MUST(jw_done(&w) == 0);
	return count;
}

static void check_tree(struct str text, const struct json_doc *doc, size_t values)
{
	_cleanup_buf_ struct buf once = BUF_INIT(ROOM), twice = BUF_INIT(ROOM);
	_cleanup_json_ struct json_doc *again = NULL;
	struct str written;

	MUST(write_tree(doc, text, &once) == values);
	written = (struct str){once.data, once.len};
	MUST(json_parse(written, ROOM, &again, NULL) == 0);
	MUST(write_tree(again, written, &twice) == values);
	MUST(str_eq(written, (struct str){twice.data, twice.len}));
}

static void check_rope(struct str text)
{
	_cleanup_buf_ struct buf whole = BUF_INIT(ROOM), pieces = BUF_INIT(ROOM);
	struct rope *r = rope_new();
	size_t room = 0, before;

	MUST(json_write_str(&whole, text) == 0);
	MUST(utf8_valid(whole.data, whole.len));
	MUST(rope_literal(r, STR("\"")) == 0 && rope_escaped(r, text) == 0);
	MUST(rope_borrowed(r, STR("\"")) == 0);
	while (rope_left(r)) {
		before = pieces.len;
		room = room * 5 % 37 + 1;
		MUST(rope_pull(r, &pieces, room) == 0);
		MUST(pieces.len > before && pieces.len - before <= room + 8);
		MUST(utf8_valid(pieces.data + before, pieces.len - before));
	}
	MUST(whole.len == pieces.len && memcmp(whole.data, pieces.data, whole.len) == 0);
	rope_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct str text = {n ? (const char *)data : "", n};
	_cleanup_json_ struct json_doc *doc = NULL;
	struct seen seen = {.text = text};
	struct error err = {0};
	int read = json_read(text, see, &seen, NULL), tree;

	if (n > 100000)
		return 0; /* ROOM is made for less */
	tree = json_parse(text, ROOM, &doc, &err);
	MUST(tree == 0 || (err.code == (enum err) - tree && err.text[0] && !doc));
	MUST(utf8_valid(err.text, strlen(err.text)) && !strchr(err.text, '\n'));
	/* Only a key that comes twice makes them differ. */
	MUST(read == tree || (read == 0 && strstr(err.text, "appears twice at byte ")));
	if (tree == 0)
		check_tree(text, doc, seen.values);
	check_rope(text);
	return 0;
}
