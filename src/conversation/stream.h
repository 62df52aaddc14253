/*
 * Canonical stream events: what any provider's reply looks like once translated, and what the turn
 * reads. One reply is
 *     BEGIN  (ITEM_BEGIN DELTA* ITEM_END)*  USAGE?  END      or, at any point,      ERROR
 * Items are opened one at a time: a provider whose wire interleaves calls holds the later ones back
 * until the open one is complete. Texts are borrowed for the length of the call.
 */
#ifndef BRIG_CONVERSATION_STREAM_H
#define BRIG_CONVERSATION_STREAM_H

#include "base/error.h"
#include "base/money.h"
#include "base/str.h"
#include "conversation/conversation.h"

#include <stdint.h>

enum stream_type {
	STREAM_BEGIN,      /* the upstream has accepted: id, model */
	STREAM_ITEM_BEGIN, /* item_type; a call has id and name (both may be completed at ITEM_END)
	                    */
	STREAM_DELTA,      /* part_type, part, text; for a call: the arguments' next piece */
	STREAM_ITEM_END,   /* a call: id and name once more, final; reasoning: opaque */
	STREAM_USAGE,      /* cumulative for the reply: the last one counts. May come at any time, also with
	                      nothing given: a sign of life while a provider's own tool runs */
	STREAM_END,        /* finish */
	STREAM_ERROR,      /* error: the reply is over */
};

enum finish {
	FINISH_STOP,
	FINISH_CALLS,  /* it ended with calls, whatever the upstream called it */
	FINISH_LENGTH, /* cut by the token limit */
	FINISH_FILTER, /* cut by a content filter, or refused by one */
	FINISH_PAUSE,  /* the upstream wants to be called again with what it said (pause_turn) */
};

struct usage {
	uint64_t input, cached, cache_write, output,
	        reasoning; /* input includes cached, output includes reasoning */
	bool given;        /* the upstream reported it */
	struct money cost; /* what the upstream says it charged, where it does (OpenRouter); for the
	                      record only */
	bool has_cost;
};

struct stream_event {
	enum stream_type type;
	enum item_type item_type;
	enum part_type part_type;
	uint32_t part; /* number of the part within the item, from 0; a new number begins a new part
	                */
	struct str id, model, name, text;
	struct str opaque; /* bytes that must go back to this provider unchanged, not sealed yet */
	bool redacted;     /* ITEM_END of reasoning: there is nothing but opaque */
	struct str raw;    /* ITEM_END: the whole item as the upstream wrote it, in raw_dialect; or {NULL,0} */
	enum dialect raw_dialect;
	bool awaits_client; /* ITEM_END of ITEM_OTHER: it is a call that the client must answer */
	struct str stop_sequence; /* END: the one that it stopped at, or {NULL,0} */
	struct usage usage;
	enum finish finish;
	const struct error *error;
};

/* Return 0, or a negative enum err to make the parser stop. */
typedef int (*stream_fn)(void *ctx, const struct stream_event *ev);

#endif
