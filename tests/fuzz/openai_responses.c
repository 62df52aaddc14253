/*
 * The first byte says how large the pieces are in which the rest, the body of an answer, is fed (0:
 * whole). Whatever comes, the events must obey the grammar of conversation/stream.h and end exactly
 * once.
 */
#include "base/mem.h"
#include "provider/openai_responses.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct watch {
	bool begun, open, over;
};

static void must(bool good)
{
	if (!good)
		abort();
}

static int ignore_json(void *ctx, const struct json_event *ev)
{
	return 0;
}

static void must_be_json(struct str text)
{
	must(!text.n || json_read(text, ignore_json, NULL, NULL) == 0);
	must(!text.n || !memchr(text.p, '\n', text.n));
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
		break;
	case STREAM_DELTA:
		must(w->open && ev->text.n > 0 && ev->item_type != ITEM_OTHER);
		break;
	case STREAM_ITEM_END:
		must(w->open);
		must(ev->item_type != ITEM_OTHER || ev->raw.n > 0);
		must_be_json(ev->raw);
		must_be_json(ev->opaque);
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
	must(openai_responses_parse_feed(p, piece, n, watch_event, w) == 0);
	free(piece);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct provider_parser *p;
	struct error err = {0};
	struct watch w = {0};
	size_t piece;

	if (size < 2)
		return 0;
	p = openai_responses_parse_open(NULL, STR("text/event-stream"));
	piece = data[0] & 0x0f ? data[0] & 0x0f : size - 1;
	for (size_t at = 1; at < size; at += piece)
		feed(p, data + at, size - at < piece ? size - at : piece, &w);
	error_set(&err, ERR_UPSTREAM, "cut");
	must(openai_responses_parse_end(p, data[0] & 0x10 ? &err : NULL, watch_event, &w) == 0);
	must(w.over);
	openai_responses_parse_close(p);
	return 0;
}
