/*
 * The body of an upstream's answer, for the fuzz targets of providers. The first byte says how
 * large the pieces are in which the rest is fed (0: whole), how it ends, and whether the client
 * speaks the same dialect. Whatever comes, the events must obey the grammar of
 * conversation/stream.h and end exactly once; and what the target checks besides.
 */
#ifndef BRIG_FUZZ_UPSTREAM_H
#define BRIG_FUZZ_UPSTREAM_H

#include "provider/provider.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct upstream {
	const struct provider *provider;
	void (*check)(const struct stream_event *ev); /* NULL, or of a begun item's events */
	bool begun, open, over;
	enum item_type item;
};

static void must(bool good)
{
	if (!good)
		abort();
}

static int upstream_event(void *ctx, const struct stream_event *ev)
{
	struct upstream *u = ctx;

	must(!u->over);
	switch (ev->type) {
	case STREAM_BEGIN:
		must(!u->begun);
		u->begun = true;
		break;
	case STREAM_ITEM_BEGIN:
		must(u->begun && !u->open);
		must(ev->item_type != ITEM_CALL || ev->id.n > 0);
		u->open = true;
		u->item = ev->item_type;
		break;
	case STREAM_DELTA:
		must(u->open && ev->text.n > 0 && ev->item_type == u->item);
		must(u->item != ITEM_OTHER);
		break;
	case STREAM_ITEM_END:
		must(u->open && ev->item_type == u->item);
		must(u->item != ITEM_OTHER || ev->raw.n > 0);
		u->open = false;
		break;
	case STREAM_USAGE:
		must(ev->usage.cached <= ev->usage.input &&
		        ev->usage.reasoning <= ev->usage.output);
		break;
	case STREAM_END:
		must(u->begun && !u->open);
		u->over = true;
		break;
	case STREAM_ERROR:
		must(ev->error->text[0] != 0);
		u->over = true;
		break;
	}
	if (u->check)
		u->check(ev);
	return 0;
}

static void upstream_feed(
        struct upstream *u, struct provider_parser *p, const uint8_t *data, size_t n)
{
	/* A copy of its own size, so that reading past it is seen. */
	uint8_t *piece = malloc(n);

	must(piece != NULL);
	memcpy(piece, data, n);
	must(u->provider->feed(p, piece, n, upstream_event, u) == 0);
	free(piece);
}

static int upstream_fuzz(const struct provider *provider,
        void (*check)(const struct stream_event *ev), const uint8_t *data, size_t size)
{
	struct upstream u = {.provider = provider, .check = check};
	struct provider_call pc = {0};
	struct conversation *c;
	struct provider_parser *p;
	struct error err = {0};
	size_t piece;

	if (size < 2)
		return 0;
	c = conversation_new((size_t)1 << 20);
	c->dialect = data[0] & 0x20                             ? provider->dialect
	             : provider->dialect == DIALECT_OPENAI_CHAT ? DIALECT_ANTHROPIC
	                                                        : DIALECT_OPENAI_CHAT;
	pc.conversation = c;
	p = provider->open(&pc, STR("text/event-stream"));
	piece = data[0] & 0x0f ? data[0] & 0x0f : size - 1;
	for (size_t at = 1; at < size; at += piece)
		upstream_feed(&u, p, data + at, size - at < piece ? size - at : piece);
	error_set(&err, ERR_UPSTREAM, "cut");
	must(provider->end(p, data[0] & 0x10 ? &err : NULL, upstream_event, &u) == 0);
	must(u.over);
	provider->close(p);
	conversation_free(c);
	provider->error(500, (struct str){(const char *)data + 1, size - 1}, STR("1"), &err);
	return 0;
}

#endif
