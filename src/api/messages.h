/* What the files of the Messages dialect share and nobody else needs. */
#ifndef BRIG_API_MESSAGES_H
#define BRIG_API_MESSAGES_H

#include "api/api.h"
#include "api/param.h"
#include "api/ropewriter.h"

#include <stddef.h>
#include <stdint.h>

/* ---- the request ---- */

/* What the answer needs of the request beside the conversation. */
struct api_echo {
	uint64_t estimate;  /* of the input tokens, before there is a count */
	uint32_t keep_days; /* a container's files */
};

struct messages_parser {
	struct param_reader in;
	struct conversation *conversation;
	const struct config *config;
	const struct json *root;
	const struct tool_entry *shell, *bash; /* the server tools of this request, or NULL */
	struct str replayed_container;         /* the most recent one in the messages */
	bool brings_container;                 /* `container` names one of brig's */
	bool own_words;                        /* an entry that no provider knows by its type */
	struct error *only_here;               /* what no provider of another dialect can be told */
	uint32_t max_tool_calls;
	struct stop_condition *stop; /* stop_server_tools_when */
	size_t n_stop;
	/* Which element of `messages` each item of the conversation came from. */
	uint32_t *message_of;
	size_t n_message_of, cap_message_of;
	size_t message; /* the one that is being read */
};

int messages_parse(struct api_request *in, struct str request_seed, struct turn_request *ret,
        struct error *err);
/* "PATH.N": how this API counts. */
void messages_index(char out[PARAM_PATH], const char *path, size_t n);
/* `tools`, `tool_choice` and the loop's limits. Before the messages: ids there depend on the tools.
 */
int messages_tools_parse(struct messages_parser *p);
/* `system` and `messages`, and the replies that they cut into. */
int messages_items_parse(struct messages_parser *p);

/* An item of the message that is being read, or NULL with the error set. */
struct item *messages_items_add(struct messages_parser *p, enum item_type type);
/* A string, or an array of blocks that a client's side may have: appended to parts. */
int messages_content_parse(struct messages_parser *p, const struct json *v, const char *path,
        struct part **ret, size_t *ret_n);
/* Notes that PATH is for providers of this dialect alone, and why. The first one counts. */
int messages_only_here(struct messages_parser *p, const char *path, const char *why);
/* One block of text, of an image or of a document. False in *ret_known: another type. */
int messages_part_parse(struct messages_parser *p, const struct json *v, const char *path,
        struct str type, struct part *part, bool *ret_known);
/* The text of an object, as every client would write it again: no spaces, one form of escapes. */
int messages_compact(struct messages_parser *p, const struct json *v, struct str *ret);

/* A part of another type: kept, for its own dialect. */
int messages_part_other(
        struct messages_parser *p, const char *path, struct str type, struct part *part);

/*
 * Blocks of brig's own tools, replayed. *ret_known false: the block is a provider's own, to be kept
 * as it is.
 */
int messages_history_call(
        struct messages_parser *p, const struct json *v, const char *path, bool *ret_known);
int messages_history_result(struct messages_parser *p, const struct json *v, const char *path,
        struct str type, bool *ret_known);

/* ---- ids of calls ---- */

enum { MESSAGES_ID_SIZE = 80 };
/* The id that a block shows for a call: server: srvtoolu_…, else toolu_… or as it is. */
void messages_id_show(struct str public_id, bool server, char out[MESSAGES_ID_SIZE]);
/* The call's public id inside a block's; borrowed from block_id or written to room. */
struct str messages_id_read(struct str block_id, char room[MESSAGES_ID_SIZE]);
/* Did brig give out this id for a call of its own tools? */
bool messages_id_is_ours(struct str block_id);

/* ---- reasoning ---- */

/*
 * A thinking block has one text and one signature, an item of reasoning may have several texts of
 * two kinds. What sealed state must find again stands behind it: "brig1.…~" and, joined by commas,
 * for each text "s" (summary) or "r" with its length in bytes. Left out for a single text of
 * reasoning.
 */
void messages_signature_write(struct ropewriter *w, const struct item *it);
/* Cuts the text into the parts it came from. it->opaque is set. */
int messages_signature_read(
        struct messages_parser *p, struct str signature, struct str text, struct item *it);
/* Between two texts of one block. */
#define MESSAGES_THOUGHT_BREAK "\n\n"

/* ---- the answer ---- */

enum messages_block_kind {
	BLOCK_TEXT,
	BLOCK_THINKING,
	BLOCK_REDACTED,
	BLOCK_TOOL_USE,
	BLOCK_SERVER_CALL,
	BLOCK_SERVER_RESULT,
	BLOCK_RAW, /* a block that only its own dialect knows */
};

/* How a server tool's blocks look, by its entry. */
enum messages_shape { SHAPE_OPENROUTER_SHELL, SHAPE_OPENROUTER_BASH, SHAPE_CODE_EXECUTION };

/* One block of `content`. */
struct messages_block {
	enum messages_block_kind kind;
	const struct item *item;   /* message, reasoning, call or other */
	const struct item *result; /* BLOCK_SERVER_RESULT */
	uint32_t part;             /* BLOCK_TEXT: which of the item's */
	bool is_open;              /* announced, and not stopped */
	size_t streamed;           /* bytes of text that were given */
};

struct messages_state {
	const struct turn_request *request;
	const struct api_identity *who;
	char id[80];
	const char *stop_reason; /* NULL: none yet */
	struct str stop_sequence;
	const struct turn_totals *totals;
	bool ended;
};

enum messages_shape messages_shape_of(const struct turn_request *r, const struct item *call);
/* `usage`. first: what is known when the answer begins. */
void messages_write_usage(struct ropewriter *w, const struct messages_state *s, bool first);
/* A block. fresh: as it is announced, before its deltas. */
void messages_write_block(struct ropewriter *w, const struct messages_state *s,
        const struct messages_block *b, bool fresh);
/* The members of `message_delta.delta` and of the message's end. */
void messages_write_end(struct ropewriter *w, const struct messages_state *s);
/* The message but for what follows its content; and that. */
void messages_write_head(struct ropewriter *w, const struct messages_state *s);
void messages_write_tail(struct ropewriter *w, const struct messages_state *s);
/* Is the call's input, as its block shows it, just its arguments' text? */
bool messages_input_is_plain(const struct messages_state *s, const struct item *call);
/* The input of a server tool's call, as its block shows it. */
void messages_write_input(
        struct ropewriter *w, const struct messages_state *s, const struct item *call);
/* JSON as it came, in one line. */
void messages_write_raw(struct ropewriter *w, struct str raw);
/* Is this text one JSON object? */
bool messages_is_object(struct str text);

struct api_stream *messages_stream_open(
        const struct turn_request *r, const struct api_identity *who, enum api_carrier carrier);
int messages_stream_emit(struct api_stream *s, const struct turn_output *o,
        const struct turn_totals *totals, struct buf *out);
size_t messages_stream_left(const struct api_stream *s);
int messages_stream_pull(struct api_stream *s, struct buf *out, size_t room);
void messages_stream_keepalive(struct api_stream *s, struct buf *out);
struct api_stream *messages_stream_close(struct api_stream *s);
int messages_stream_status(const struct api_stream *s);

#endif
