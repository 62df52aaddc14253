/*
 * The Gemini dialect (generateContent) as an upstream, shared by gemini_*.c only.
 *
 * Opaque state of this dialect (stream_event.opaque) is a part's thoughtSignature, as it came. One
 * item stands for one signed part, or for a run of parts without signature: a message       text
 * parts; a signature belongs to the last one reasoning       thought parts; without any text it is
 * an empty text part that carries a signature a call          one functionCall part ITEM_OTHER any
 * other part, raw, its signature within
 */
#ifndef BRIG_PROVIDER_GEMINI_H
#define BRIG_PROVIDER_GEMINI_H

#include "json/json.h"
#include "provider/provider.h"

/* Calls that came without an id get one that begins like this; it never goes back to the provider.
 */
#define GEMINI_NO_ID "noid_"

int gemini_build(const struct provider_call *pc, struct provider_request *ret, struct error *err);
/* provider.relay: see provider.h. */
int gemini_relay(const struct provider_call *pc, bool streamed, struct provider_request *ret,
        struct error *err);

struct provider_parser *gemini_parse_open(const struct provider_call *pc, struct str content_type);
int gemini_parse_feed(
        struct provider_parser *p, const void *data, size_t n, stream_fn emit, void *ctx);
int gemini_parse_end(struct provider_parser *p, const struct error *cut, stream_fn emit, void *ctx);
struct provider_parser *gemini_parse_close(struct provider_parser *p);

/* provider.error: see provider.h. */
void gemini_error(int status, struct str body, struct str retry_after, struct error *ret);
/* The same for an error object inside an answer of status 200: root is the whole JSON value. */
void gemini_error_json(const struct json *root, struct error *ret);

/* Gemini 3 and later (also by names that do not say): they demand signatures and have thinking
 * levels. */
bool gemini_model_is_new(const char *model);
/* `systemInstruction` and `contents`. */
int gemini_contents_write(struct json_writer *w, const struct provider_call *pc, struct error *err);
/* `tools` and `toolConfig`. */
int gemini_tools_write(struct json_writer *w, const struct provider_call *pc, struct error *err);
/* `generationConfig` and what else of the settings this dialect has. */
int gemini_settings_write(struct json_writer *w, const struct provider_call *pc, struct error *err);
/* The raw JSON of a member of the request that only this dialect knows; {NULL,0} where the client's
 * is another. */
struct str gemini_extra(const struct conversation *c, const char *key);

#endif
