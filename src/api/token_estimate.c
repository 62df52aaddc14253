/*
 * The rules of thumb: four ASCII characters are a token, of other characters one and a half; a
 * message or a call costs four more, a declared tool ten; an image counts as 1,500, a document
 * 1,500 for each 20 KB of it. Of base64 nothing is counted as text.
 */
#include "api/token_estimate.h"

#include "base/utf8.h"
#include "tool/tool.h"

enum {
	PER_MESSAGE = 4,
	PER_TOOL = 10,
	PER_IMAGE = 1500,
	PER_PIECE = 1500, /* of a document */
	PIECE_BYTES = 20 * 1024,
};

/* In twelfths of a token, so that short texts add up. */
static uint64_t text_twelfths(struct str s)
{
	uint64_t chars = utf8_count(s.p, s.n), ascii = 0;

	for (size_t i = 0; i < s.n; i++)
		ascii += (unsigned char)s.p[i] < 0x80;
	return ascii * 3 + (chars > ascii ? chars - ascii : 0) * 8;
}

static uint64_t part_twelfths(const struct part *p)
{
	size_t bytes = p->data.n > p->url.n ? p->data.n : p->url.n;

	switch (p->type) {
	case PART_IMAGE:
		return PER_IMAGE * 12;
	case PART_FILE:
	case PART_AUDIO:
		return (uint64_t)PER_PIECE * 12 * (1 + bytes / PIECE_BYTES);
	case PART_TEXT:
	case PART_REFUSAL:
	case PART_SUMMARY:
	case PART_REASONING:
		break;
	}
	return text_twelfths(p->text);
}

static uint64_t parts_twelfths(const struct part *parts, size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += part_twelfths(&parts[i]);
	return sum;
}

static uint64_t result_twelfths(const struct result *r)
{
	uint64_t sum = parts_twelfths(r->parts, r->n_parts) + text_twelfths(r->error);

	for (size_t i = 0; i < r->n_outputs; i++)
		sum += text_twelfths(r->outputs[i].out) + text_twelfths(r->outputs[i].err) +
		       PER_MESSAGE * 12;
	return sum;
}

static uint64_t item_twelfths(const struct item *it)
{
	uint64_t sum = PER_MESSAGE * 12 + parts_twelfths(it->parts, it->n_parts);

	if (it->type == ITEM_CALL)
		sum += text_twelfths(it->call.name) + text_twelfths(it->call.arguments);
	else if (it->type == ITEM_RESULT)
		sum += result_twelfths(&it->result);
	else if (it->type == ITEM_OTHER)
		sum += text_twelfths(it->raw);
	return sum;
}

static uint64_t tool_twelfths(const struct tool_entry *t)
{
	uint64_t sum = PER_TOOL * 12 + text_twelfths(t->name);

	if (t->tool)
		return sum + text_twelfths(str_of(t->tool->description)) +
		       text_twelfths(str_of(t->tool->schema));
	return sum + text_twelfths(t->description) +
	       text_twelfths(t->parameters.n ? t->parameters : t->raw);
}

uint64_t token_estimate(const struct conversation *c)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < c->n_items; i++)
		sum += item_twelfths(c->items[i]);
	for (size_t i = 0; i < c->n_tools; i++)
		sum += tool_twelfths(&c->tools[i]);
	return sum / 12 + 1;
}
