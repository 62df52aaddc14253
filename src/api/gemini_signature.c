/*
 * The thoughtSignature of a part, and what of an item it carries.
 *
 * A sealed state is written as base64 of
 *     brig1.…            the seal
 *     brig1.…~r12,s5     and for reasoning, where it is not one summary: kinds and sizes of its
 * parts, whose texts follow each other without a mark
 */
#include "api/gemini.h"

#include "base/base64.h"
#include "base/utf8.h"

#define SEALED        "brig1."
#define SEALED_BASE64 "YnJpZzEu"

enum { STATE_MAX = 32 << 20, PARTS_MAX = 1024 };

static bool is_plain(const struct item *it)
{
	return it->type != ITEM_REASONING || it->n_parts == 0 || it->n_parts > PARTS_MAX ||
	       (it->n_parts == 1 && it->parts[0].type == PART_SUMMARY);
}

void gemini_signature_write(struct ropewriter *w, const struct item *it, struct buf *room)
{
	struct buf state _cleanup_buf_ = BUF_INIT(STATE_MAX);

	if (!it->opaque.n)
		return;
	if (!str_starts(it->opaque, SEALED)) {
		ropewriter_kstr(w, "thoughtSignature", it->opaque);
		return;
	}
	buf_append(&state, it->opaque.p, it->opaque.n);
	for (size_t i = 0; i < it->n_parts && !is_plain(it); i++)
		buf_printf(&state, "%c%c%zu", i ? ',' : '~',
		        it->parts[i].type == PART_SUMMARY ? 's' : 'r', it->parts[i].text.n);
	buf_reset(room);
	if (buf_error(&state) == 0 && base64_append(room, state.data, state.len) == 0)
		ropewriter_kstr(w, "thoughtSignature", (struct str){room->data, room->len});
}

/* Google's words that stand for a signature; they are base64 only by chance. */
static bool is_word(struct str s)
{
	return str_is(s, "skip_thought_signature_validator") ||
	       str_is(s, "context_engineering_is_the_way_to_go");
}

static void replace(char *s, size_t n, char from, char to)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] == from)
			s[i] = to;
}

/* What does not read was damaged on its way: it opens nowhere. */
static int read_sealed(
        struct param_reader *in, struct str base64, struct str *ret_opaque, struct str *ret_cuts)
{
	struct buf state _cleanup_buf_ = BUF_INIT(base64.n + 1);
	const char *mark;
	struct str all;
	bool ok = true;

	*ret_opaque = (struct str){NULL, 0};
	if (!base64_decode_url(&state, base64) || !utf8_valid(state.data, state.len))
		return 0;
	all = conversation_copy(in->conversation, (struct str){state.data, state.len}, &ok);
	if (!ok)
		return param_fail_memory(in);
	mark = memchr(all.p, '~', all.n);
	*ret_opaque = (struct str){all.p, mark ? (size_t)(mark - all.p) : all.n};
	if (mark)
		*ret_cuts = (struct str){mark + 1, all.n - ret_opaque->n - 1};
	return 0;
}

int gemini_signature_read(
        struct param_reader *in, struct str text, struct str *ret_opaque, struct str *ret_cuts)
{
	char *copy;

	*ret_opaque = *ret_cuts = (struct str){NULL, 0};
	if (!text.n)
		return 0;
	copy = arena_strndup(in->conversation->arena, text.p, text.n);
	if (!copy)
		return param_fail_memory(in);
	if (!str_starts(text, SEALED_BASE64)) {
		if (!is_word(text)) {
			replace(copy, text.n, '-', '+');
			replace(copy, text.n, '_', '/');
		}
		*ret_opaque = (struct str){copy, text.n};
		return 0;
	}
	replace(copy, text.n, '+', '-');
	replace(copy, text.n, '/', '_');
	while (text.n && copy[text.n - 1] == '=')
		text.n--;
	return read_sealed(in, (struct str){copy, text.n}, ret_opaque, ret_cuts);
}

/* ---- cutting ---- */

/* One "s12" of the list; the rest stays in *list. False: it is none. */
static bool next_cut(struct str *list, enum part_type *ret_type, uint64_t *ret_n)
{
	const char *comma = memchr(list->p, ',', list->n);
	struct str word = {list->p, comma ? (size_t)(comma - list->p) : list->n};

	if (word.n < 2 || (word.p[0] != 's' && word.p[0] != 'r') ||
	        !str_to_u64((struct str){word.p + 1, word.n - 1}, ret_n))
		return false;
	*ret_type = word.p[0] == 's' ? PART_SUMMARY : PART_REASONING;
	list->n -= word.n + (comma ? 1 : 0);
	list->p += word.n + (comma ? 1 : 0);
	return true;
}

/* True where the list cuts the text exactly; then *ret_n parts are written, if there is room for
 * them. */
static bool cut(struct str list, struct str text, struct part *parts, size_t *ret_n)
{
	enum part_type type;
	uint64_t len;
	size_t n = 0;

	while (list.n && n < PARTS_MAX && next_cut(&list, &type, &len)) {
		if (len > text.n || (len < text.n && ((unsigned char)text.p[len] & 0xc0) == 0x80))
			return false;
		if (parts)
			parts[n] = (struct part){.type = type, .text = {text.p, (size_t)len}};
		text = (struct str){text.p + len, text.n - (size_t)len};
		n++;
	}
	*ret_n = n;
	return n > 0 && list.n == 0 && text.n == 0;
}

int gemini_signature_cut(struct param_reader *in, struct str cuts, struct item *it)
{
	struct str text = it->parts[0].text;
	struct part *parts;
	size_t n;

	if (!cut(cuts, text, NULL, &n))
		return 0;
	parts = conversation_parts(in->conversation, n);
	if (!parts)
		return param_fail_memory(in);
	cut(cuts, text, parts, &n);
	it->parts = parts;
	it->n_parts = n;
	return 0;
}
