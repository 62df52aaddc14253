/*
 * The Chat Completions dialect as an upstream, shared by openai_chat_*.c only.
 *
 * Opaque state of this dialect (stream_event.opaque, sealed by the gateway, opened by build) is a
 * JSON object of ours: reasoning {"field":"reasoning_content"|"reasoning"|"thinking","details":[…]}
 *                 how the server spelled its reasoning, and its reasoning_details as they came
 *     a call      {"extra_content":{…}}   as it came (Gemini's thought signature)
 */
#ifndef BRIG_PROVIDER_OPENAI_CHAT_H
#define BRIG_PROVIDER_OPENAI_CHAT_H

#include "json/json.h"
#include "provider/provider.h"

int openai_chat_build(
        const struct provider_call *pc, struct provider_request *ret, struct error *err);

/* provider.relay: see provider.h. */
int openai_chat_relay(const struct provider_call *pc, bool streamed, struct provider_request *ret,
        struct error *err);

struct provider_parser *openai_chat_parse_open(
        const struct provider_call *pc, struct str content_type);
int openai_chat_parse_feed(
        struct provider_parser *p, const void *data, size_t n, stream_fn emit, void *ctx);
int openai_chat_parse_end(
        struct provider_parser *p, const struct error *cut, stream_fn emit, void *ctx);
struct provider_parser *openai_chat_parse_close(struct provider_parser *p);
/* Lines of the stream that were no JSON and were skipped. */
size_t openai_chat_parse_malformed(const struct provider_parser *p);

/* provider.error: see provider.h. */
void openai_chat_error(int status, struct str body, struct str retry_after, struct error *ret);
/* The same for an error object inside an answer of status 200: root is the whole JSON value. */
void openai_chat_error_json(const struct json *root, struct error *ret);

/* Writes the members of a request that come from settings. openai, openrouter: it goes to that
 * address. */
int openai_chat_settings_write(struct json_writer *w, const struct settings *s, bool openai,
        bool openrouter, struct error *err);

/* Takes a usage object (or NULL). Fields that it does not have keep what they had. */
void openai_chat_usage_read(struct usage *out, const struct json *u);

/* Follows a call's arguments as they come. Begins zeroed. */
struct openai_chat_args {
	unsigned depth;
	bool begun, in_string, escaped;
	bool whole;  /* the object has ended */
	bool broken; /* no object, or more came after it: never whole */
};
void openai_chat_args_scan(struct openai_chat_args *s, struct str text);

/*
 * Puts pieces of reasoning_details together: consecutive pieces of the same type and index are one
 * entry whose text, summary or data is joined; other members keep their first place and take the
 * last value that is not null.
 */
struct openai_chat_details;
struct openai_chat_details *openai_chat_details_new(size_t max_bytes);
struct openai_chat_details *openai_chat_details_free(struct openai_chat_details *d);
/* pieces: the array of one delta. Text that is readable reasoning is appended to text (may be
 * NULL). */
int openai_chat_details_add(
        struct openai_chat_details *d, const struct json *pieces, struct buf *text);
bool openai_chat_details_any(const struct openai_chat_details *d);
/* Writes the array and empties d. */
int openai_chat_details_write(struct openai_chat_details *d, struct buf *out);

#endif
