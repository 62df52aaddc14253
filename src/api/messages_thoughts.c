/* The signature of a thinking block, and what of an item's parts it carries (messages.h). */
#include "api/messages.h"

#include <stdlib.h>

#define SEALED "brig1."

enum { PARTS_MAX = 1024 };

static bool is_sealed(struct str opaque)
{
	return str_starts(opaque, SEALED);
}

void messages_signature_write(struct ropewriter *w, const struct item *it)
{
	bool plain = it->n_parts == 0 ||
	             (it->n_parts == 1 && it->parts[0].type == PART_REASONING) ||
	             it->n_parts > PARTS_MAX || !is_sealed(it->opaque);
	char word[32];

	ropewriter_str_begin(w);
	ropewriter_str_part(w, it->opaque);
	for (size_t i = 0; i < it->n_parts && !plain; i++) {
		str_format(word, sizeof(word), "%c%c%zu", i ? ',' : '~',
		        it->parts[i].type == PART_SUMMARY ? 's' : 'r', it->parts[i].text.n);
		ropewriter_str_part(w, str_of(word));
	}
	ropewriter_str_end(w);
}

/* One "s12" of the list; the rest stays in *list. False: it is none. */
static bool next_part(struct str *list, enum part_type *ret_type, size_t *ret_n)
{
	const char *comma = memchr(list->p, ',', list->n);
	struct str word = {list->p, comma ? (size_t)(comma - list->p) : list->n};
	uint64_t n;

	if (word.n < 2 || (word.p[0] != 's' && word.p[0] != 'r') ||
	        !str_to_u64((struct str){word.p + 1, word.n - 1}, &n))
		return false;
	*ret_type = word.p[0] == 's' ? PART_SUMMARY : PART_REASONING;
	*ret_n = n > SIZE_MAX / 2 ? SIZE_MAX / 2 : (size_t)n;
	list->n -= word.n + (comma ? 1 : 0);
	list->p += word.n + (comma ? 1 : 0);
	return true;
}

/* True where the list cuts the text exactly; then *ret_n parts are written, if there is room. */
static bool cut(struct str list, struct str text, struct part *parts, size_t *ret_n)
{
	const size_t gap = strlen(MESSAGES_THOUGHT_BREAK);
	enum part_type type;
	size_t len, n = 0;

	while (n < PARTS_MAX && next_part(&list, &type, &len)) {
		if (n > 0) {
			if (!str_starts(text, MESSAGES_THOUGHT_BREAK))
				return false;
			text = (struct str){text.p + gap, text.n - gap};
		}
		if (len > text.n || (len < text.n && ((unsigned char)text.p[len] & 0xc0) == 0x80))
			return false;
		if (parts)
			parts[n] = (struct part){.type = type, .text = {text.p, len}};
		text = (struct str){text.p + len, text.n - len};
		n++;
	}
	*ret_n = n;
	return n > 0 && list.n == 0 && text.n == 0;
}

int messages_signature_read(
        struct messages_parser *p, struct str signature, struct str text, struct item *it)
{
	const char *mark = is_sealed(signature) ? memchr(signature.p, '~', signature.n) : NULL;
	size_t n = 1, sealed = mark ? (size_t)(mark - signature.p) : signature.n;
	struct str list = {NULL, 0};
	bool several;

	if (mark)
		list = (struct str){mark + 1, signature.n - sealed - 1};
	if (signature.n > 0)
		it->opaque = (struct str){signature.p, sealed};
	several = mark && cut(list, text, NULL, &n);
	n = several ? n : 1;
	it->parts = conversation_parts(p->conversation, n);
	if (!it->parts)
		return param_fail_memory(&p->in);
	it->n_parts = n;
	it->parts[0] = (struct part){.type = PART_REASONING, .text = text};
	if (several)
		cut(list, text, it->parts, &n);
	return 0;
}
