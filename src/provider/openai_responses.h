/*
 * The Responses dialect as an upstream, shared by openai_responses_*.c only.
 *
 * Opaque state of this dialect (stream_event.opaque, always sealed by the gateway, opened by build)
 * is a reasoning item's JSON object without `type`, `status`, `summary` and `content`: its `id`,
 * its `encrypted_content`, and whatever else a server put there. The two belong together: OpenAI
 * checks that the id is the one that was encrypted.
 *
 * JSON that goes back as it came (items of the dialect's own, annotations) is always written by
 * openai_responses_copy(), so that it reads the same inside a turn and after a client has written
 * it anew.
 */
#ifndef BRIG_PROVIDER_OPENAI_RESPONSES_H
#define BRIG_PROVIDER_OPENAI_RESPONSES_H

#include "json/json.h"
#include "provider/provider.h"

/* Where a request goes, as far as it changes what may be said. */
struct openai_responses_place {
	bool openai;     /* OpenAI's own service: api.openai.com, or Azure's */
	bool openrouter; /* openrouter.ai */
};
struct openai_responses_place openai_responses_place(const struct config_provider *p);
/* Does this model think? OpenAI's older ones refuse to be asked for encrypted reasoning. */
bool openai_responses_reasons(const struct provider_target *t);

int openai_responses_build(
        const struct provider_call *pc, struct provider_request *ret, struct error *err);
/* provider.relay: see provider.h. */
int openai_responses_relay(const struct provider_call *pc, bool streamed,
        struct provider_request *ret, struct error *err);
/* The members `input` (and `instructions`, which stands before it). */
int openai_responses_input_write(
        struct json_writer *w, const struct provider_call *pc, struct error *err);
/* `tools`, `tool_choice` and `parallel_tool_calls`. */
int openai_responses_tools_write(
        struct json_writer *w, const struct provider_call *pc, struct error *err);
/* What comes from settings and from the members that only this dialect knows. */
int openai_responses_settings_write(
        struct json_writer *w, const struct provider_call *pc, struct error *err);

struct provider_parser *openai_responses_parse_open(
        const struct provider_call *pc, struct str content_type);
int openai_responses_parse_feed(
        struct provider_parser *p, const void *data, size_t n, stream_fn emit, void *ctx);
int openai_responses_parse_end(
        struct provider_parser *p, const struct error *cut, stream_fn emit, void *ctx);
struct provider_parser *openai_responses_parse_close(struct provider_parser *p);
/* Lines of the stream that were no JSON and were skipped. */
size_t openai_responses_parse_malformed(const struct provider_parser *p);

/* Takes a usage object (or NULL). Fields that it does not have keep what they had. */
void openai_responses_usage_read(struct usage *out, const struct json *u);

/* ---- JSON that goes through ---- */

/* Appends one JSON value in the form that every writer here gives it: no spaces, the fewest
 * escapes, keys in their order, numbers as they stand. value is what a reader accepted. */
void openai_responses_copy(struct json_writer *w, struct str value);
/* Writes the members of an object, but for those named in skip (NULL-terminated). */
void openai_responses_copy_members(
        struct json_writer *w, const struct json *object, const char *const *skip);
bool openai_responses_listed(struct str key, const char *const *list);

/* Did the provider's own shell run this call of ours (openai_responses_hosted.c)? */
bool openai_responses_is_hosted(const struct item *call);
/* It and its result as shell_call and shell_call_output. */
void openai_responses_hosted_write(
        struct json_writer *w, const struct item *call, const struct item *res);

#endif
