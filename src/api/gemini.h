/* What the files of the Gemini dialect (generateContent) share and nobody else needs. */
#ifndef BRIG_API_GEMINI_H
#define BRIG_API_GEMINI_H

#include "api/api.h"
#include "api/param.h"
#include "api/ropewriter.h"
#include "tool/tool.h"

#include <stddef.h>
#include <stdint.h>

/* ---- the request ---- */

struct api_echo {
	bool array; /* streamed as one JSON array */
};

struct gemini_parser {
	struct param_reader in;
	struct conversation *conversation;
	const struct config *config;
	const struct json *root;
	const struct tool_entry *shell; /* the server shell of this request, or NULL */
	struct str replayed_container;  /* the most recent one in the contents */
	uint32_t max_tool_calls;

	/* While contents are read: */
	struct item *run;   /* text or thoughts of the model that may go on */
	struct str *pieces; /* of it */
	size_t n_pieces, cap_pieces;
	struct str cuts;     /* how the signature of run says that its text is cut */
	struct item *said;   /* the client's message that may go on */
	struct item *result; /* of the shell's call that may go on */
	size_t first_call;   /* items from here on hold the calls that may be answered now */
	unsigned n_minted;
};

enum { GEMINI_KEY = 48 };
/*
 * This API takes every name in camelCase and in snake_case. Gives the spelling that the object has,
 * the camelCase one where it has neither.
 */
const char *gemini_parse_key(const struct json *object, const char *camel, char out[GEMINI_KEY]);
const struct json *gemini_parse_get(const struct json *object, const char *camel);
bool gemini_parse_is(struct str key, const char *camel);

int gemini_parse(struct api_request *in, struct str request_seed, struct turn_request *ret,
        struct error *err);
/* `tools` and `toolConfig`. Before the contents: ids there depend on the tools. */
int gemini_tools_parse(struct gemini_parser *p);
/* `systemInstruction` and `contents`, and the replies they cut into. */
int gemini_contents_parse(struct gemini_parser *p);
/* A Schema of this API as JSON Schema: its types are upper-case, and its counts may be strings. */
int gemini_schema_convert(struct str schema, struct buf *out);

/*
 * A thoughtSignature must be base64, since typed clients hold it as bytes. What is sealed goes as
 * base64 of the seal, with how the thoughts' text is cut into parts; a provider's own as it is. Of
 * both, what is large is borrowed: the base64 lies in room until it was pulled.
 */
void gemini_signature_write(struct ropewriter *w, const struct item *it, struct buf *room);
/* In the spelling of base64 that Google itself writes. *ret_cuts: {NULL,0}, or for cut(). */
int gemini_signature_read(
        struct param_reader *in, struct str text, struct str *ret_opaque, struct str *ret_cuts);
/* Cuts the one part of a reasoning item into what it was, where the cuts fit. */
int gemini_signature_cut(struct param_reader *in, struct str cuts, struct item *it);

/* ---- a shell's call and its results as text: gemini_code.c ---- */

/* Appends executableCode.code for a call. */
int gemini_code_write(const struct call *call, struct buf *out);
/* Appends the call's arguments that a code stands for. */
int gemini_code_read(const struct tool *tool, struct str code, struct buf *out);
/* Appends codeExecutionResult.output of a command; returns the outcome's name. */
const char *gemini_code_write_output(const struct command_output *o, struct buf *out);
void gemini_code_write_error(struct str error, struct buf *out);
/* Reads one. True: *o is set, its texts within output; false: *ret_error is, for it is an error. */
bool gemini_code_read_output(
        struct str outcome, struct str output, struct command_output *o, struct str *ret_error);

/* ---- the answer ---- */

struct api_stream *gemini_stream_open(
        const struct turn_request *r, const struct api_identity *who, enum api_carrier carrier);
int gemini_stream_emit(struct api_stream *s, const struct turn_output *o,
        const struct turn_totals *totals, struct buf *out);
size_t gemini_stream_left(const struct api_stream *s);
int gemini_stream_pull(struct api_stream *s, struct buf *out, size_t room);
void gemini_stream_keepalive(struct api_stream *s, struct buf *out);
struct api_stream *gemini_stream_close(struct api_stream *s);
int gemini_stream_status(const struct api_stream *s);

#endif
