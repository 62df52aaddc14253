/*
 * The first byte says how large the pieces are in which the rest, the body of an answer, is fed (0:
 * whole), how it ends, and whether the client speaks the same dialect. Whatever comes, the events
 * must obey the grammar of conversation/stream.h and end exactly once; arguments and raw parts must
 * be JSON.
 */
#include "base/mem.h"
#include "provider/gemini.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct watch {
	bool begun, open, over;
	enum item_type item;
};

static void must(bool good)
{
	if (!good)
		abort();
}

static void check_json(struct str raw)
{
	struct json_doc *doc = NULL;

	must(json_parse(raw, (size_t)256 << 20, &doc, NULL) == 0);
	json_doc_free(doc);
}

static int watch_event(void *ctx, const struct stream_event *ev)
{
	struct watch *w = ctx;

	must(!w->over);
	switch (ev->type) {
	case STREAM_BEGIN:
		must(!w->begun);
		w->begun = true;
		break;
	case STREAM_ITEM_BEGIN:
		must(w->begun && !w->open);
		must(ev->item_type != ITEM_CALL || ev->id.n > 0);
		w->open = true;
		w->item = ev->item_type;
		break;
	case STREAM_DELTA:
		must(w->open && ev->text.n > 0 && ev->item_type == w->item);
		must(w->item != ITEM_OTHER);
		if (w->item == ITEM_CALL) /* they come in one piece */
			check_json(ev->text);
		break;
	case STREAM_ITEM_END:
		must(w->open && ev->item_type == w->item);
		must((w->item == ITEM_OTHER) == (ev->raw.n > 0));
		if (ev->raw.n)
			check_json(ev->raw);
		w->open = false;
		break;
	case STREAM_USAGE:
		must(ev->usage.cached <= ev->usage.input &&
		        ev->usage.reasoning <= ev->usage.output);
		break;
	case STREAM_END:
		must(w->begun && !w->open);
		w->over = true;
		break;
	case STREAM_ERROR:
		must(ev->error->text[0] != 0);
		w->over = true;
		break;
	}
	return 0;
}

static void feed(struct provider_parser *p, const uint8_t *data, size_t n, struct watch *w)
{
	/* A copy of its own size, so that reading past it is seen. */
	uint8_t *piece = malloc(n);

	must(piece != NULL);
	memcpy(piece, data, n);
	must(gemini_parse_feed(p, piece, n, watch_event, w) == 0);
	free(piece);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct conversation *c;
	struct provider_call pc = {0};
	struct provider_parser *p;
	struct error err = {0};
	struct watch w = {0};
	size_t piece;

	if (size < 2)
		return 0;
	c = conversation_new((size_t)1 << 20);
	c->dialect = data[0] & 0x20 ? DIALECT_GEMINI : DIALECT_OPENAI_RESPONSES;
	pc.conversation = c;
	p = gemini_parse_open(&pc, STR("text/event-stream"));
	piece = data[0] & 0x0f ? data[0] & 0x0f : size - 1;
	for (size_t at = 1; at < size; at += piece)
		feed(p, data + at, size - at < piece ? size - at : piece, &w);
	error_set(&err, ERR_UPSTREAM, "cut");
	must(gemini_parse_end(p, data[0] & 0x10 ? &err : NULL, watch_event, &w) == 0);
	must(w.over);
	gemini_parse_close(p);
	conversation_free(c);
	gemini_error(500, (struct str){(const char *)data + 1, size - 1}, STR("1"), &err);
	return 0;
}
