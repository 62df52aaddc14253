/* What the files of the Responses dialect share and nobody else needs. */
#ifndef BRIG_API_RESPONSES_H
#define BRIG_API_RESPONSES_H

#include "api/api.h"
#include "api/param.h"
#include "api/ropewriter.h"

#include <stddef.h>
#include <stdint.h>

/* ---- the request ---- */

/* Request fields that the response object repeats as they came: raw JSON in the body, {NULL,0}
 * where absent or null. Tools are repeated from the conversation's entries. */
enum echo_field {
	ECHO_INSTRUCTIONS,
	ECHO_MAX_OUTPUT_TOKENS,
	ECHO_MAX_TOOL_CALLS,
	ECHO_METADATA,
	ECHO_PARALLEL_TOOL_CALLS,
	ECHO_PRESENCE_PENALTY,
	ECHO_PREVIOUS_RESPONSE_ID,
	ECHO_FREQUENCY_PENALTY,
	ECHO_PROMPT_CACHE_KEY,
	ECHO_PROMPT_CACHE_RETENTION,
	ECHO_SAFETY_IDENTIFIER,
	ECHO_SERVICE_TIER,
	ECHO_TEMPERATURE,
	ECHO_TEXT_VERBOSITY,
	ECHO_TOOL_CHOICE,
	ECHO_TOP_LOGPROBS,
	ECHO_TOP_P,
	ECHO_TRUNCATION,
	ECHO_USER,
	ECHO_FIELDS,
};
/* An object that is repeated: its text without the last bracket, and that bracket with the members
 * before it that a client's schema demands and the request left out. */
struct echo_object {
	struct str head, tail;
};
struct api_echo {
	struct str raw[ECHO_FIELDS];
	struct echo_object *tools; /* one for each of the conversation's */
	struct echo_object reasoning, format;
};

struct responses_parser {
	struct param_reader in;
	struct conversation *conversation;
	const struct config *config;
	const struct json *root;
	struct api_echo *echo;
	const struct tool_entry *shell; /* the server shell of this request, or NULL */
	const struct tool_entry
	        *local;          /* OpenAI's shell or local_shell that the client runs, or NULL */
	struct error *only_here; /* why only a provider of this dialect can serve it, or NULL */
	bool compact;            /* the request is for a compaction */
	const struct api_seal *seal; /* api_request's */
	bool ours;                   /* the input holds what brig gave out and no provider knows */
	size_t n_history;            /* elements of `input` that the client did not send */
	int store, background;
	struct str replayed_container; /* the most recent one in the input */
	uint32_t max_tool_calls;
	/* For messages: which element of `input` each item of the conversation came from. */
	uint32_t *input_of;
	size_t n_input_of, cap_input_of;
};

int responses_parse(struct api_request *in, struct str request_seed, struct turn_request *ret,
        struct error *err);
/* The same for a compaction: what only concerns an answer is left aside, tools too. */
int responses_parse_compact(struct api_request *in, struct str request_seed,
        struct turn_request *ret, struct error *err);
/* responses_compact.c: an item of type compaction that brig made, which is a message then. */
bool responses_compact_is_ours(const struct json *v);
int responses_compact_item(
        struct responses_parser *p, const struct json *v, const char *path, size_t index);
/* `tools`, `tool_choice` and the loop's limits. Before the input: ids there depend on the tools. */
int responses_tools_parse(struct responses_parser *p);
/* defaults: key, value, key, value, …, NULL. */
int responses_echo_object(struct responses_parser *p, const struct json *object,
        const char *const *defaults, struct echo_object *ret);
/* `input`, and the replies it cuts into. */
int responses_items_parse(struct responses_parser *p);

enum { RESPONSES_CALL_ID_MAX = 64 };

/* Only a provider of this dialect can serve the request; the first reason counts. */
int responses_only_here(struct responses_parser *p, const char *path, const char *key,
        const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* An item from input[index], or NULL with the error set. */
struct item *responses_items_add(struct responses_parser *p, enum item_type type, size_t index);
/* `id` and `status`. */
int responses_items_head(
        struct responses_parser *p, const struct json *v, const char *path, struct item *it);
/* `call_id`, which must be there. */
int responses_items_call_id(
        struct responses_parser *p, const struct json *v, const char *path, struct str *ret);
void responses_items_set_call_id(struct responses_parser *p, struct item *call, struct str id);

/* openrouter:shell, shell_call and shell_call_output. */
int responses_history_shell(
        struct responses_parser *p, const struct json *v, const char *path, size_t index);
int responses_history_call(
        struct responses_parser *p, const struct json *v, const char *path, size_t index);
int responses_history_output(
        struct responses_parser *p, const struct json *v, const char *path, size_t index);
/* local_shell_call and local_shell_call_output. */
int responses_history_local_call(
        struct responses_parser *p, const struct json *v, const char *path, size_t index);
int responses_history_local_output(
        struct responses_parser *p, const struct json *v, const char *path, size_t index);
/* Makes a result say why there is none; status: of the item that has none. */
void responses_history_no_result(struct item *result, struct str status);

/* ---- the answer ---- */

/* One item of `output`. A call of brig:shell has two. */
enum responses_slot_kind {
	SLOT_MESSAGE,
	SLOT_REASONING,
	SLOT_FUNCTION_CALL,
	SLOT_SHELL,        /* openrouter:shell: call and result */
	SLOT_SHELL_CALL,   /* brig:shell */
	SLOT_SHELL_OUTPUT, /* brig:shell */
	SLOT_LOCAL_CALL,   /* OpenAI's shell and local_shell, for the client to run */
	SLOT_OTHER,        /* as the provider wrote it */
};
enum responses_slot_state { SLOT_BEGUN, SLOT_ENDED };

struct responses_slot {
	enum responses_slot_kind kind;
	enum responses_slot_state state;
	const struct item *item;   /* message, reasoning or call */
	const struct item *result; /* of a server tool's call, once it has ended */
	const struct tool_call
	        *local; /* of a shell's call that is not ours: its commands; NULL: none */
	char id[80];
	/* While it streams: */
	uint32_t n_of[2];  /* of them: contents, summaries; each family counts its own */
	uint32_t n_begun;  /* parts that were announced */
	uint32_t n_closed; /* parts whose text was given whole */
	size_t streamed;   /* bytes of the last one that were given */
	bool is_open;      /* announced, and not done */
};

/* How an answer stands: what its object shows beside the request's own fields. */
struct responses_state {
	const struct turn_request *request;
	const struct api_identity *who;
	char id[80];
	const char *status;               /* "in_progress", … */
	int64_t completed_s;              /* 0: null */
	const char *incomplete_reason;    /* or NULL */
	const struct error *error;        /* or NULL */
	const struct turn_totals *totals; /* NULL: usage is null */
};

/* Everything of the response object before the elements of `output`, and after them. */
void responses_write_head(struct ropewriter *w, const struct responses_state *s);
void responses_write_tail(struct ropewriter *w, const struct responses_state *s);
/* One item. fresh: as it is announced, before any of its content. */
void responses_write_item(struct ropewriter *w, const struct responses_state *s,
        const struct responses_slot *slot, bool fresh);
/* responses_raw.c: what of an item is written as the provider wrote it. */
/* An item of the dialect's own. fresh: as it is announced. */
void responses_raw_item(struct ropewriter *w, const struct responses_slot *slot, bool fresh);
/* Where the item is a shell's call or output, reads what its events tell: slot->local or
 * slot->result, in c. */
void responses_raw_shell(struct conversation *c, struct responses_slot *slot);
/* `content` of a message; false: it has none of its own. */
bool responses_raw_content(struct ropewriter *w, const struct item *it);
/* The item's own text as a tree; NULL: it has none. The text lives as long as the conversation, the
 * tree is the caller's to free. */
struct json_doc *responses_raw_doc(const struct item *it);
/* A content part of a message that says something, counted as the events count; NULL: none. */
const struct json *responses_raw_part(const struct json_doc *doc, size_t number);
/* The members of a message or call that the others do not tell (phase, namespace, …). */
void responses_raw_extras(struct ropewriter *w, const struct item *it);
/* False: what another dialect alone knows, or what not even says its type, which no client can
 * read. */
bool responses_raw_is_shown(const struct item *it);
/* The id in an item's own text, or {NULL,0}; copied into out. */
void responses_raw_id(const struct item *it, char *out, size_t size);
/* The item of a call that the client is to run in a shell of its own. */
void responses_raw_local_call(struct ropewriter *w, const struct responses_slot *slot,
        const struct tool_entry *entry, bool fresh);
/* The entry of `tools` that a call of the client's belongs to, where it is such a shell; else NULL.
 */
const struct tool_entry *responses_local_entry(
        const struct conversation *c, const struct item *call);
/* The `code` of an error inside a response object or a stream: always a string. */
const char *responses_error_code(const struct error *e);
/* `action` of a shell's call; NULL: nothing yet. */
void responses_write_action(struct ropewriter *w, const struct tool_call *call);
/* A content or summary part with this text. */
void responses_write_part(struct ropewriter *w, enum part_type type, struct str text);

struct api_stream *responses_stream_open(
        const struct turn_request *r, const struct api_identity *who, enum api_carrier carrier);
int responses_stream_emit(struct api_stream *s, const struct turn_output *o,
        const struct turn_totals *totals, struct buf *out);
size_t responses_stream_left(const struct api_stream *s);
int responses_stream_pull(struct api_stream *s, struct buf *out, size_t room);
void responses_stream_keepalive(struct api_stream *s, struct buf *out);
struct api_stream *responses_stream_close(struct api_stream *s);
int responses_stream_status(const struct api_stream *s);
int responses_stream_object(const struct api_stream *s, const struct turn_output *o,
        const struct turn_totals *totals, struct buf *out, bool *ret_empty);

#endif
