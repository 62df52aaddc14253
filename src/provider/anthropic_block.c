#include "provider/anthropic_block.h"

#include "base/mem.h"

#include <stdlib.h>

#define TREE_MAX ((size_t)64 << 20)
#define RAW_MAX  ((size_t)64 << 20)

/* The budget bounds the buffers, so they need no limit of their own. */
#define UNBOUNDED (SIZE_MAX / 2)

struct block *block_new(enum block_kind kind, int64_t index, size_t *left)
{
	struct block *b = mem_alloc(sizeof(*b));
	struct buf *bufs[] = {&b->waiting, &b->kept, &b->id, &b->name, &b->opaque, &b->citations,
	        &b->first, &b->input};

	b->kind = kind;
	b->index = index;
	b->left = left;
	for (size_t i = 0; i < sizeof(bufs) / sizeof(*bufs); i++)
		buf_init(bufs[i], UNBOUNDED);
	return b;
}

struct block *block_free(struct block *b)
{
	if (!b)
		return NULL;
	struct buf *bufs[] = {&b->waiting, &b->kept, &b->id, &b->name, &b->opaque, &b->citations,
	        &b->first, &b->input};

	for (size_t i = 0; i < sizeof(bufs) / sizeof(*bufs); i++)
		buf_free(bufs[i]);
	for (size_t i = 0; i < b->n_members; i++) {
		buf_free(&b->members[i].key);
		buf_free(&b->members[i].text);
	}
	free(b);
	return NULL;
}

enum item_type block_item_type(const struct block *b)
{
	switch (b->kind) {
	case BLOCK_TEXT:
		return ITEM_MESSAGE;
	case BLOCK_THINKING:
	case BLOCK_REDACTED:
		return ITEM_REASONING;
	case BLOCK_TOOL:
		return ITEM_CALL;
	case BLOCK_OTHER:
		break;
	}
	return ITEM_OTHER;
}

int block_keep(struct block *b, struct buf *where, struct str text)
{
	if (text.n > *b->left)
		return -ERR_TOO_LARGE;
	*b->left -= text.n;
	return buf_append(where, text.p, text.n);
}

static int merge_member(struct block *b, const struct json *v)
{
	bool string = json_is(v, JSON_STRING);
	size_t i = 0;
	int r = 0;

	while (i < b->n_members &&
	        !str_eq((struct str){b->members[i].key.data, b->members[i].key.len}, json_key(v)))
		i++;
	if (i == b->n_members) {
		if (i == BLOCK_MEMBERS)
			return -ERR_TOO_LARGE;
		buf_init(&b->members[i].key, UNBOUNDED);
		buf_init(&b->members[i].text, UNBOUNDED);
		b->n_members++;
		r = block_keep(b, &b->members[i].key, json_key(v));
	}
	if (!string || b->members[i].raw)
		buf_reset(&b->members[i].text);
	b->members[i].raw = !string;
	return r < 0 ? r : block_keep(b, &b->members[i].text, string ? json_str(v) : json_raw(v));
}

int block_merge(struct block *b, const struct json *delta)
{
	int r = 0;

	if (str_is(json_str(json_get(delta, "type")), "input_json_delta"))
		return block_keep(b, &b->kept, json_str(json_get(delta, "partial_json")));
	for (const struct json *v = json_first(delta); v && r == 0; v = json_next(v))
		if (!json_absent(v) && !str_is(json_key(v), "type") &&
		        !str_is(json_key(v), "input")) /* which comes in pieces only */
			r = merge_member(b, v);
	return r;
}

/* ---- the raw form ---- */

static struct str str_of_buf(const struct buf *b)
{
	return (struct str){buf_cstr(b), b->len};
}

/* The input that came in pieces; {} where they are no object. */
static void write_input(struct json_writer *w, struct str pieces)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	struct buf copy _cleanup_buf_ = BUF_INIT(RAW_MAX);
	bool good = json_parse(pieces, TREE_MAX, &doc, NULL) == 0 &&
	            json_is(json_root(doc), JSON_OBJECT) && json_compact(pieces, &copy) == 0;

	jw_raw(w, good ? str_of_buf(&copy) : STR("{}"));
}

static int write_member(struct json_writer *w, const struct json *v)
{
	struct buf copy _cleanup_buf_ = BUF_INIT(RAW_MAX);
	int r = json_compact(json_raw(v), &copy);

	if (r < 0)
		return r;
	jw_key_str(w, json_key(v));
	jw_raw(w, str_of_buf(&copy));
	return 0;
}

static bool was_merged(const struct block *b, struct str key)
{
	for (size_t i = 0; i < b->n_members; i++)
		if (str_eq(str_of_buf(&b->members[i].key), key))
			return true;
	return false;
}

static void write_merged(struct json_writer *w, const struct block *b, const struct json *first)
{
	for (size_t i = 0; i < b->n_members; i++) {
		struct str key = str_of_buf(&b->members[i].key);
		struct buf text _cleanup_buf_ = BUF_INIT(RAW_MAX);
		struct str before = {NULL, 0};

		for (const struct json *v = json_first(first); v; v = json_next(v))
			if (str_eq(json_key(v), key))
				before = json_str(v);
		jw_key_str(w, key);
		if (b->members[i].raw) {
			jw_raw(w, str_of_buf(&b->members[i].text));
			continue;
		}
		buf_append(&text, before.p, before.n);
		buf_append(&text, b->members[i].text.data, b->members[i].text.len);
		jw_str(w, str_of_buf(&text));
	}
}

static int write_cited_text(const struct block *b, struct json_writer *w)
{
	struct buf list _cleanup_buf_ = BUF_INIT(RAW_MAX);

	buf_putc(&list, '[');
	buf_append(&list, b->citations.data, b->citations.len);
	buf_putc(&list, ']');
	jw_object(w);
	jw_kcstr(w, "type", "text");
	jw_kstr(w, "text", str_of_buf(&b->kept));
	jw_kraw(w, "citations", str_of_buf(&list));
	jw_end(w);
	return buf_error(&list) ? buf_error(&list) : jw_done(w);
}

int block_write_raw(const struct block *b, struct buf *out)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	struct json_writer w;
	int r = 0;

	jw_init(&w, out);
	if (b->kind == BLOCK_TEXT)
		return write_cited_text(b, &w);
	r = json_parse(str_of_buf(&b->first), TREE_MAX, &doc, NULL);
	if (r < 0)
		return r;
	jw_object(&w);
	for (const struct json *v = json_first(json_root(doc)); v && r == 0; v = json_next(v)) {
		if (str_is(json_key(v), "input") && b->kept.len) {
			jw_key(&w, "input");
			write_input(&w, str_of_buf(&b->kept));
		} else if (!was_merged(b, json_key(v))) {
			r = write_member(&w, v);
		}
	}
	if (r < 0)
		return r;
	write_merged(&w, b, json_root(doc));
	jw_end(&w);
	return jw_done(&w);
}
