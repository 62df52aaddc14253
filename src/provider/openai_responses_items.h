/*
 * The items of one reply while it comes in, between openai_responses_parse.c (which reads events
 * and says what they add) and openai_responses_items.c (which passes it on to the turn, one item
 * after the other).
 *
 * Functions that may emit return 0 or what emit returned; after that, and after the reply has
 * failed or ended, they do nothing. A reply that fails by a limit of ours has emitted STREAM_ERROR
 * and returns 0.
 */
#ifndef BRIG_PROVIDER_OPENAI_RESPONSES_ITEMS_H
#define BRIG_PROVIDER_OPENAI_RESPONSES_ITEMS_H

#include "provider/emitter.h"
#include "provider/openai_responses.h"

/* One content or summary part. */
struct responses_part {
	enum part_type type;
	int64_t index;   /* content_index or summary_index */
	size_t received; /* bytes of its text so far, */
	uint64_t hash;   /* and what they were */
};

/* Text that waits until its item is the open one. */
struct responses_piece {
	struct responses_piece *next;
	uint32_t part;
	enum part_type type;
	struct buf text;
};

struct responses_item {
	enum item_type type;
	bool has_index;
	int64_t index; /* output_index */
	struct buf id, call_id, name;
	struct responses_part *parts;
	size_t n_parts, cap_parts;
	struct responses_piece *first, *last; /* waiting */
	struct buf opaque, raw;               /* once it is complete */
	bool complete;                        /* nothing more can come for it */
	bool begun, ended;
	bool lost; /* a call of which a piece was unreadable: it must not run */
};

struct responses_items {
	struct responses_item **list; /* in the order in which they first appeared */
	size_t n, cap;
	size_t open;    /* the first that has not ended */
	size_t n_bytes; /* of the reply */
	size_t n_calls;
	struct emitter out;
};

void openai_responses_items_free(struct responses_items *s);

/* NULL: too many, and the reply has failed. */
struct responses_item *openai_responses_items_add(struct responses_items *s, enum item_type type);
int openai_responses_items_text(struct responses_items *s, struct responses_item *it,
        enum part_type type, int64_t index, struct str text);
/* The whole text of a part: what the deltas did not bring is added. */
int openai_responses_items_whole(struct responses_items *s, struct responses_item *it,
        enum part_type type, int64_t index, struct str text);
/* Takes an item as the server wrote it: what names it, and with `complete` all the rest. */
int openai_responses_items_read(
        struct responses_items *s, struct responses_item *it, const struct json *v, bool complete);
/* Passes on all that may be. last: the answer has ended, so every item is complete. */
int openai_responses_items_pump(struct responses_items *s, bool last);

/* Is an item of the dialect's own under way? */
bool openai_responses_items_at_work(const struct responses_items *s);

enum item_type openai_responses_items_type(struct str type);

#endif
