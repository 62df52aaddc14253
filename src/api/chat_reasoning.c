/*
 * The reasoning of an earlier answer, as the client sends it back.
 *
 * reasoning_details is what brig gives out (chat_write.c) and what OpenRouter's clients keep:
 * entries with readable text, of which the last of an item carries the item's state as `signature`,
 * or entries that are nothing but state in `data`. Clients join the pieces of a stream, or not:
 * both read the same. Without it the plain text is taken, which has no state.
 */
#include "api/chat.h"

enum { DETAILS_MAX = 4096 };

struct reading {
	struct chat_parser *p;
	size_t index;       /* of the message */
	struct part *parts; /* room for all entries; items take slices of it */
	struct item *open;  /* takes more text until it has its state */
	struct str open_index;
};

static struct item *item_for(struct reading *r, struct str entry_index)
{
	struct item *it = r->open;

	if (it && str_eq(r->open_index, entry_index))
		return it;
	it = chat_messages_add(r->p, ITEM_REASONING, r->index);
	if (!it)
		return NULL;
	it->role = ROLE_ASSISTANT;
	it->parts = r->parts;
	r->open = it;
	r->open_index = entry_index;
	return it;
}

static void add_part(struct reading *r, struct item *it, enum part_type type, struct str text)
{
	if (text.n == 0)
		return;
	*r->parts++ = (struct part){.type = type, .text = text};
	it->n_parts++;
}

static int read_entry(struct reading *r, const struct json *d, const char *path)
{
	struct param_reader *in = &r->p->in;
	struct str text, summary, signature, data;
	struct item *it;
	int rc;

	if (!json_is(d, JSON_OBJECT))
		return param_fail_type(in, d, path, NULL, "an object");
	rc = param_str(in, d, path, "text", 0, &text);
	if (!rc)
		rc = param_str(in, d, path, "summary", 0, &summary);
	if (!rc)
		rc = param_str(in, d, path, "signature", 0, &signature);
	if (!rc)
		rc = param_str(in, d, path, "data", 0, &data);
	if (rc)
		return rc;
	if (data.p && json_str(json_get(d, "id")).n > 0 && !text.n && !summary.n)
		return 0; /* the state of something else: chat_messages.c */
	if (!text.n && !summary.n && !signature.n && !data.n)
		return 0;
	it = item_for(r, json_raw(json_get(d, "index")));
	if (!it)
		return -ERR_NOMEM;
	add_part(r, it, PART_REASONING, text);
	add_part(r, it, PART_SUMMARY, summary);
	if (signature.n || data.n) {
		it->opaque = signature.n ? signature : data;
		it->redacted = it->n_parts == 0;
		r->open = NULL;
	}
	return 0;
}

static int read_plain(
        struct chat_parser *p, const struct json *message, const char *path, size_t index)
{
	struct str text;
	struct item *it;
	int rc = param_str(&p->in, message, path, "reasoning_content", 0, &text);

	if (!rc && !text.n && json_is(json_get(message, "reasoning"), JSON_STRING))
		rc = param_str(&p->in, message, path, "reasoning", 0, &text);
	if (rc || !text.n)
		return rc;
	it = chat_messages_add(p, ITEM_REASONING, index);
	if (!it)
		return -ERR_NOMEM;
	it->role = ROLE_ASSISTANT;
	it->parts = conversation_parts(p->conversation, 1);
	if (!it->parts)
		return param_fail_memory(&p->in);
	it->parts[0] = (struct part){.type = PART_REASONING, .text = text};
	it->n_parts = 1;
	return 0;
}

int chat_reasoning_parse(
        struct chat_parser *p, const struct json *message, const char *path, size_t index)
{
	struct reading r = {.p = p, .index = index};
	const struct json *details;
	char inner[PARAM_PATH], each[PARAM_PATH];
	size_t i = 0;
	int rc = param_container(&p->in, message, path, "reasoning_details", JSON_ARRAY, &details);

	if (rc)
		return rc;
	if (json_count(details) == 0)
		return read_plain(p, message, path, index);
	if (json_count(details) > DETAILS_MAX)
		return param_fail(&p->in, ERR_INVALID, "array_above_max_length", path,
		        "reasoning_details", "Invalid 'reasoning_details': at most %d entries.",
		        DETAILS_MAX);
	r.parts = conversation_parts(p->conversation, json_count(details) * 2);
	if (!r.parts)
		return param_fail_memory(&p->in);
	param_join(inner, path, "reasoning_details");
	for (const struct json *d = json_first(details); d && !rc; d = json_next(d), i++) {
		param_index(each, inner, i);
		rc = read_entry(&r, d, each);
	}
	return rc;
}
