/* What the files of the Chat Completions dialect share and nobody else needs. */
#ifndef BRIG_API_CHAT_H
#define BRIG_API_CHAT_H

#include "api/api.h"
#include "api/param.h"
#include "api/ropewriter.h"

#include <stddef.h>
#include <stdint.h>

/* What the answer depends on besides the turn. */
struct api_echo {
	bool usage_asked;      /* stream_options.include_usage */
	bool legacy_functions; /* `functions`: a call is shown as function_call */
	bool hide_reasoning;   /* reasoning.exclude */
};

struct chat_parser {
	struct param_reader in;
	struct conversation *conversation;
	const struct config *config;
	const struct json *root;
	struct api_echo *echo;
	/* The first thing that only a provider of this dialect can serve, and why; or NULL. */
	struct error *only_here;
	/* For errors: which element of `messages` each item of the conversation came from. */
	uint32_t *message_of;
	size_t n_message_of, cap_message_of;
	struct str last_function_id; /* of the last function_call, which has no id of its own */
};

int chat_parse(struct api_request *in, struct str request_seed, struct turn_request *ret,
        struct error *err);
/* Remembers that only a provider of this dialect can serve the request. The first reason counts. */
int chat_only_here(struct chat_parser *p, const char *path, const char *key, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));
/* `tools`, `functions`, and which of them may be called. Before the messages. */
int chat_tools_parse(struct chat_parser *p);
/* `messages`, and the replies they cut into. */
int chat_messages_parse(struct chat_parser *p);
/* reasoning_details, or else the plain text, of a message of the assistant. */
int chat_reasoning_parse(
        struct chat_parser *p, const struct json *message, const char *path, size_t index);
/* An item from messages[index], or NULL with the error set. */
struct item *chat_messages_add(struct chat_parser *p, enum item_type type, size_t index);

struct api_stream *chat_stream_open(
        const struct turn_request *r, const struct api_identity *who, enum api_carrier carrier);
int chat_stream_emit(struct api_stream *s, const struct turn_output *o,
        const struct turn_totals *totals, struct buf *out);
size_t chat_stream_left(const struct api_stream *s);
int chat_stream_pull(struct api_stream *s, struct buf *out, size_t room);
void chat_stream_keepalive(struct api_stream *s, struct buf *out);
struct api_stream *chat_stream_close(struct api_stream *s);
int chat_stream_status(const struct api_stream *s);

/* What an answer is made of. */
struct chat_answer {
	const struct turn_request *request;
	const struct api_identity *who;
	const struct turn_totals *totals;
	const char *finish; /* finish_reason */
};
/* The members that every chunk and the whole answer begin with. */
void chat_write_head(struct ropewriter *w, const struct chat_answer *a, const char *object);
void chat_write_usage(struct ropewriter *w, const struct chat_answer *a);
/* The whole answer, from the conversation's items. */
void chat_write_whole(struct ropewriter *w, const struct chat_answer *a);
/* The `error` member. */
void chat_write_error(struct ropewriter *w, const struct error *e, bool under_v1);
/* An entry of reasoning_details that carries an item's opaque state. index: the item's, or -1. */
void chat_write_state(struct ropewriter *w, const struct item *it, int64_t index);

/* Entries that belong to no reasoning name in `id` what they are the state of: a call's id, or
 * this. */
#define CHAT_STATE_OF_MESSAGE "message"

#endif
