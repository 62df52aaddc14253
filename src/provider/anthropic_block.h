/*
 * One content block of a reply while it comes, for anthropic_parse.c only. Everything that a block
 * keeps is paid from one budget of the reply.
 */
#ifndef BRIG_PROVIDER_ANTHROPIC_BLOCK_H
#define BRIG_PROVIDER_ANTHROPIC_BLOCK_H

#include "provider/anthropic.h"
#include "provider/openai_chat.h"

enum block_kind {
	BLOCK_TEXT,
	BLOCK_THINKING,
	BLOCK_REDACTED,
	BLOCK_TOOL,  /* tool_use: a call */
	BLOCK_OTHER, /* the provider's own: only its raw form counts */
};

#define BLOCK_MEMBERS 8

struct block {
	struct block *next;
	int64_t index;
	enum block_kind kind;
	bool begun;           /* shown to the turn */
	bool stopped;         /* nothing more comes for it */
	struct buf waiting;   /* text or arguments that were not passed on yet */
	struct buf kept;      /* all of them, where the raw form is wanted */
	struct buf id, name;  /* of a call */
	struct buf opaque;    /* a signature, or redacted data */
	struct buf citations; /* elements, joined by commas */
	struct buf first; /* the block as it began; of a call only with more members than ours */
	struct buf input; /* of a call: what it began with, or empty */
	size_t n_args;    /* bytes of arguments */
	struct openai_chat_args scan;
	struct {
		struct buf key, text;
		bool raw;         /* text is JSON, not a piece of a string */
	} members[BLOCK_MEMBERS]; /* what deltas brought for a block of the provider's own */
	size_t n_members;
	size_t *left; /* of the reply's budget */
};

struct block *block_new(enum block_kind kind, int64_t index, size_t *left);
struct block *block_free(struct block *b); /* takes NULL; returns NULL */
enum item_type block_item_type(const struct block *b);
/* These return 0, or -ERR_TOO_LARGE when the budget is used up. */
int block_keep(struct block *b, struct buf *where, struct str text);
/* A delta of a block of the provider's own. */
int block_merge(struct block *b, const struct json *delta);
/* Writes the whole block as the provider would have, not streamed. keep_text: of a text or a call.
 */
int block_write_raw(const struct block *b, struct buf *out);

#endif
