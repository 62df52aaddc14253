/*
 * The Anthropic Messages dialect as an upstream, shared by anthropic_*.c only.
 *
 * Opaque state of this dialect (stream_event.opaque, opened by provider_state()) is a thinking
 * block's signature or a redacted block's data. Clients of the same dialect hold it in a block that
 * says which of the two it is. For all others one letter stands before it: 's' a signature, 'd'
 * redacted data.
 */
#ifndef BRIG_PROVIDER_ANTHROPIC_H
#define BRIG_PROVIDER_ANTHROPIC_H

#include "json/json.h"
#include "provider/provider.h"

#define ANTHROPIC_STATE_SIGNATURE 's'
#define ANTHROPIC_STATE_REDACTED  'd'

/* ---- building ---- */

int anthropic_build(
        const struct provider_call *pc, struct provider_request *ret, struct error *err);
/* provider.relay: see provider.h. */
int anthropic_relay(const struct provider_call *pc, bool streamed, struct provider_request *ret,
        struct error *err);

/* Does the client speak this dialect too, so that raw texts of its request mean something here? */
static inline bool anthropic_same_dialect(const struct provider_call *pc)
{
	return pc->conversation->dialect == DIALECT_ANTHROPIC;
}

/* One content block for an image, a file or audio. -ERR_UNSUPPORTED where the API takes no such
 * thing. */
int anthropic_attachment_write(struct json_writer *w, const struct part *p, struct error *err);
/* Is there anything but space in it? The API refuses text blocks without. */
bool anthropic_says_something(struct str text);

/* tools and tool_choice. */
int anthropic_tools_write(struct json_writer *w, const struct provider_call *pc, struct error *err);
/* The name that a tool has at the API, which takes [A-Za-z0-9_-]{1,128} only; out has room for 129.
 */
void anthropic_tool_name(const struct conversation *c, struct str name, char *out);
/* And back: the declared name, or what was given. */
struct str anthropic_tool_name_back(const struct conversation *c, struct str name);

/* max_tokens, thinking and all else that comes from settings, and the client's extra members.
 * broken_loop: the last reply made calls and does not begin with thinking. */
int anthropic_settings_write(
        struct json_writer *w, const struct provider_call *pc, bool broken_loop, struct error *err);

/* ---- parsing ---- */

struct provider_parser *anthropic_parse_open(
        const struct provider_call *pc, struct str content_type);
int anthropic_parse_feed(
        struct provider_parser *p, const void *data, size_t n, stream_fn emit, void *ctx);
int anthropic_parse_end(
        struct provider_parser *p, const struct error *cut, stream_fn emit, void *ctx);
struct provider_parser *anthropic_parse_close(struct provider_parser *p);
/* Events of the stream that were no JSON and were skipped. */
size_t anthropic_parse_malformed(const struct provider_parser *p);

/* provider.error: see provider.h. */
void anthropic_error(int status, struct str body, struct str retry_after, struct error *ret);
/* The same for an error inside an answer of status 200: root is the whole event. */
void anthropic_error_json(const struct json *root, struct error *ret);

/* A reply's usage, field by field as the API counts: input without what was cached. */
struct anthropic_usage {
	uint64_t input, output, cache_read, cache_write, thinking;
	bool given;
};
/* Takes a usage object (or NULL). Counts are cumulative: fields that it does not have keep what
 * they had. */
void anthropic_usage_read(struct anthropic_usage *u, const struct json *usage);
void anthropic_usage_convert(const struct anthropic_usage *u, struct usage *ret);

#endif
