/*
 * reasoning_details, as OpenRouter streams them: an array in each delta, whose entries are pieces
 * of longer ones. What goes back must be whole entries in the same order, or signatures no longer
 * verify.
 */
#include "provider/openai_chat.h"

#include "base/mem.h"

#include <stdlib.h>

#define ENTRIES_MAX 1024
#define MEMBERS_MAX 32

struct member {
	struct buf key; /* decoded */
	struct buf raw; /* JSON text; for the joined member its decoded text so far */
	bool joined;
};

struct entry {
	struct buf type;
	struct buf index; /* raw, "" where absent */
	struct member *members;
	size_t n, cap;
};

struct openai_chat_details {
	struct entry *entries;
	size_t n, cap;
	size_t left; /* bytes that may still be kept */
};

struct openai_chat_details *openai_chat_details_new(size_t max_bytes)
{
	struct openai_chat_details *d = mem_alloc(sizeof(*d));

	d->left = max_bytes;
	return d;
}

static void clear(struct openai_chat_details *d)
{
	for (size_t i = 0; i < d->n; i++) {
		struct entry *e = &d->entries[i];

		for (size_t k = 0; k < e->n; k++) {
			buf_free(&e->members[k].key);
			buf_free(&e->members[k].raw);
		}
		free(e->members);
		buf_free(&e->type);
		buf_free(&e->index);
	}
	free(d->entries);
	d->entries = NULL;
	d->n = d->cap = 0;
}

struct openai_chat_details *openai_chat_details_free(struct openai_chat_details *d)
{
	if (d) {
		clear(d);
		free(d);
	}
	return NULL;
}

/* Each append is paid from the common budget, so the buffers themselves need no limit of their own.
 */
static int keep(struct openai_chat_details *d, struct buf *b, struct str s)
{
	if (s.n > d->left)
		return -ERR_TOO_LARGE;
	d->left -= s.n;
	return buf_append(b, s.p, s.n);
}

static bool is_joined(struct str key)
{
	return str_is(key, "text") || str_is(key, "summary") || str_is(key, "data");
}

static bool buf_is(const struct buf *b, struct str s)
{
	return str_eq((struct str){b->data, b->len}, s);
}

static struct entry *entry_for(struct openai_chat_details *d, struct str type, struct str index)
{
	struct entry *e;

	if (d->n) {
		e = &d->entries[d->n - 1];
		if (buf_is(&e->type, type) && buf_is(&e->index, index))
			return e;
	}
	if (d->n == ENTRIES_MAX)
		return NULL;
	mem_grow(&d->entries, &d->cap, d->n, sizeof(*d->entries));
	e = &d->entries[d->n++];
	*e = (struct entry){.type = BUF_INIT(SIZE_MAX / 2), .index = BUF_INIT(SIZE_MAX / 2)};
	if (keep(d, &e->type, type) < 0 || keep(d, &e->index, index) < 0)
		return NULL;
	return e;
}

static int add_member(struct openai_chat_details *d, struct entry *e, const struct json *v)
{
	struct str key = json_key(v);
	bool joined = is_joined(key) && json_is(v, JSON_STRING);
	struct member *m = NULL;

	for (size_t i = 0; i < e->n && !m; i++)
		if (buf_is(&e->members[i].key, key))
			m = &e->members[i];
	if (!m) {
		if (e->n == MEMBERS_MAX)
			return -ERR_TOO_LARGE;
		mem_grow(&e->members, &e->cap, e->n, sizeof(*e->members));
		m = &e->members[e->n++];
		*m = (struct member){.key = BUF_INIT(SIZE_MAX / 2),
		        .raw = BUF_INIT(SIZE_MAX / 2),
		        .joined = joined};
		if (keep(d, &m->key, key) < 0)
			return -ERR_TOO_LARGE;
	} else if (json_absent(v)) {
		return 0;
	} else if (!joined || !m->joined) {
		buf_free(&m->raw);
		m->joined = joined;
	}
	return keep(d, &m->raw, joined ? json_str(v) : json_raw(v));
}

int openai_chat_details_add(
        struct openai_chat_details *d, const struct json *pieces, struct buf *text)
{
	for (const struct json *p = json_first(pieces); p; p = json_next(p)) {
		struct str type = json_str(json_get(p, "type"));
		struct str index = json_raw(json_get(p, "index"));
		struct entry *e;

		if (!json_is(p, JSON_OBJECT))
			continue;
		e = entry_for(d, type, index);
		if (!e)
			return -ERR_TOO_LARGE;
		for (const struct json *v = json_first(p); v; v = json_next(v)) {
			int r = add_member(d, e, v);

			if (r < 0)
				return r;
			if (text &&
			        (str_is(json_key(v), "text") || str_is(json_key(v), "summary"))) {
				struct str s = json_str(v);

				buf_append(text, s.p, s.n);
			}
		}
	}
	return 0;
}

bool openai_chat_details_any(const struct openai_chat_details *d)
{
	return d->n > 0;
}

int openai_chat_details_write(struct openai_chat_details *d, struct buf *out)
{
	struct json_writer w;

	jw_init(&w, out);
	jw_array(&w);
	for (size_t i = 0; i < d->n; i++) {
		const struct entry *e = &d->entries[i];

		jw_object(&w);
		for (size_t k = 0; k < e->n; k++) {
			const struct member *m = &e->members[k];
			struct str raw = {m->raw.data, m->raw.len};

			jw_key_str(&w, (struct str){m->key.data, m->key.len});
			if (m->joined)
				jw_str(&w, raw);
			else
				jw_raw(&w, raw);
		}
		jw_end(&w);
	}
	jw_end(&w);
	clear(d);
	return jw_done(&w);
}
