/*
 * The conversation: what was said, in a form that belongs to no dialect.
 *
 * A list of items in the order they were said, with the tools and settings of one request. Texts
 * are struct str that live as long as the conversation: in its arena, in a body it owns, or in
 * memory it adopted. Items never move, so a pointer to one stays good. One thread at a time.
 *
 * Replies. An upstream answers a request with one reply: reasoning, messages and calls together. A
 * conversation that a client replays must cut back into the replies it came from, byte for byte, so
 * that prompt caches hit and signatures verify (DESIGN section 4). Every item of an assistant
 * carries its reply's number; in a request that offers a server tool, the ids we give out carry it
 * too: call id   s<reply>_<upstream's id>      or, where that does not fit, s<reply>h_<32 hex of
 * its hash> item id   msg_s<reply>_<random>, rs_s<reply>_<random>, … at most 40 characters of
 * [A-Za-z0-9_-]. conversation_cut_replies() puts numbers on replayed items.
 */
#ifndef BRIG_CONVERSATION_CONVERSATION_H
#define BRIG_CONVERSATION_CONVERSATION_H

#include "base/dialect.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/money.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPLY_NONE UINT32_MAX /* the item came from the client's side: no upstream reply */

enum item_type {
	ITEM_MESSAGE,   /* role, parts */
	ITEM_REASONING, /* parts (PART_SUMMARY, PART_REASONING), opaque */
	ITEM_CALL,      /* call; a tool call that a model made */
	ITEM_RESULT,    /* result; of the call with the same call id */
	ITEM_OTHER,     /* raw; what only its own dialect knows (a provider's own tool, a compaction):
	                   goes to that dialect as it is, and to no other */
};

enum role { ROLE_SYSTEM, ROLE_DEVELOPER, ROLE_USER, ROLE_ASSISTANT };

enum part_type {
	PART_TEXT,
	PART_REFUSAL,
	PART_SUMMARY,   /* of reasoning */
	PART_REASONING, /* raw reasoning text */
	PART_IMAGE,     /* url (http, https or data:) ; detail */
	PART_FILE,      /* file_data (data: or base64) or url; filename */
	PART_AUDIO,     /* data, format */
};

struct part {
	enum part_type type;
	struct str text;     /* text kinds */
	struct str url;      /* image, file */
	struct str data;     /* file, audio */
	struct str filename; /* file */
	struct str detail;   /* image: low, high, auto, original; audio: format */
	/*
	 * The part's own JSON as it came, in item.raw_dialect; {NULL,0}: none. Whoever writes that
	 * dialect takes it instead of writing the part anew, so that members which only the dialect knows
	 * (cache_control, citations, annotations) are kept.
	 */
	struct str raw;
};

/* How one command ended. */
enum outcome_type { OUTCOME_EXIT, OUTCOME_TIMEOUT };
struct command_output {
	struct str out, err; /* valid UTF-8, within the limit */
	enum outcome_type outcome;
	int exit_code;     /* OUTCOME_EXIT; 128 + signal when a signal ended it */
	struct str signal; /* "SIGKILL", or {NULL,0} */
	struct str reason; /* "memory", "init", "capacity", or {NULL,0} */
	bool out_truncated, err_truncated;
	uint64_t out_chars, err_chars; /* before the cut */
	bool done;                     /* false while it runs */
};

struct tool;      /* tool/tool.h */
struct tool_call; /* tool/tool.h: checked arguments */

struct call {
	struct str upstream_id; /* as the model's provider named it */
	struct str public_id;   /* as our client sees it */
	struct str name;        /* as the model called it */
	struct str arguments;   /* raw, as the model wrote them */
	const struct tool
	        *tool; /* not NULL: a server tool's call, which brig runs or refused to run */
	const struct tool_entry *entry; /* which entry of the request it belongs to; NULL in a
	                                   replayed item without one */
	struct tool_call *parsed;       /* not NULL: arguments were good */
	struct str error;               /* why it was not run; {NULL,0}: it was, or will be */
	struct item *result; /* set by conversation_cut_replies; use conversation_call_result() */
	struct str container_id; /* of this turn, where the provider's own shell ran it: its container */
};

/* A file that a call's commands made or changed: for the client's eyes, never the model's. */
struct result_file {
	struct str path; /* any bytes, relative to home */
};

struct result {
	struct str public_id;    /* of its call */
	const struct tool *tool; /* not NULL: made by brig: outputs or error */
	struct command_output *outputs;
	size_t n_outputs;
	struct str container_id;
	const struct result_file *files; /* the latest first; set when the call has ended */
	size_t n_files;
	struct str error; /* nothing was run, and why; or the sandbox failed in the middle */
	uint32_t max_output_length; /* echoed on shell_call_output; 0: null */
	struct part *parts;         /* a client's result: text or parts */
	size_t n_parts;
	bool is_error; /* the client says that its tool failed */
};

struct item {
	enum item_type type;
	uint32_t reply; /* REPLY_NONE, or the upstream reply it belongs to */
	bool same_reply; /* of the assistant, replayed: its dialect says that it is of the reply of the
	                    assistant's item before it, whatever the ids say */
	enum role role; /* messages */
	struct str id;  /* public item id; {NULL,0}: none was given */
	struct part *parts;
	size_t n_parts;
	struct call call;
	struct result result;
	/*
	 * What must go back to the provider unchanged, as the client holds it: sealed ("brig1.…"), or the
	 * provider's own bytes where its dialect is the client's: a thinking block's signature or a
	 * redacted block's data (redacted), Gemini's thoughtSignature of any kind of item, OpenAI's
	 * encrypted_content.
	 */
	struct str opaque;
	bool redacted; /* reasoning of which only opaque is to be had */
	/* The whole item's JSON (a block, an item, a part), as its dialect wrote it; {NULL,0}: none. */
	struct str raw;
	enum dialect raw_dialect; /* of raw and of the parts' raw */
	struct str status; /* "completed", "incomplete", "failed" or {NULL,0} */
	bool output;       /* made in this turn: part of the response */
};

enum tool_kind {
	TOOL_FUNCTION,
	TOOL_SERVER,
	TOOL_NATIVE, /* a provider's own tool: raw, in the client's dialect; its providers get it as it is, others
	                cannot serve the request: -ERR_UNSUPPORTED naming the entry and its type */
};

/* One entry of `tools`. */
struct tool_entry {
	enum tool_kind kind;
	struct str type; /* "function", "openrouter:shell", "brig:shell" */
	struct str name; /* what the model calls it; a server tool whose name a client function has
	                    is brig_<name> */
	struct str description;  /* functions */
	struct str parameters;   /* functions: raw JSON schema or {NULL,0} */
	int strict;              /* functions: -1 absent/null, 0, 1 */
	const struct tool *tool; /* server tools */
	void *settings;          /* server tools: struct shell_settings … (tool/tool.h) */
	struct str raw;          /* the entry as it came, for the echo and for its own dialect */
};

enum choice_mode { CHOICE_AUTO, CHOICE_NONE, CHOICE_REQUIRED, CHOICE_NAMED };

struct tool_choice {
	enum choice_mode mode;
	struct str name;     /* CHOICE_NAMED: the model-side name */
	bool restricted;     /* allowed_tools: only these may be called */
	struct str *allowed; /* model-side names */
	size_t n_allowed;
};

/* Settings that travel to the upstream. Numbers keep their text; {NULL,0} is "not given". */
struct settings {
	struct str max_output_tokens, temperature, top_p, top_k, presence_penalty,
	        frequency_penalty, seed, top_logprobs;
	struct str stop;             /* raw JSON */
	struct str text_format;      /* raw JSON of text.format, when it is not plain text */
	struct str verbosity;        /* text.verbosity */
	struct str reasoning_effort; /* decoded */
	struct str reasoning_summary;
	struct str thinking_budget; /* tokens to think with, at most; "0": do not think */
	int include_thoughts;       /* show the reasoning: -1 not given */
	struct str user, safety_identifier, prompt_cache_key, service_tier; /* decoded */
	struct str metadata;                                                /* raw JSON object */
	int parallel_tool_calls;                                            /* -1 not given */
};

/* A member of the request that the conversation has no field for: the client's dialect only. */
struct extra_member {
	struct str key; /* decoded */
	struct str raw; /* JSON */
};

/* Which providers the request wants, of those that could serve it: OpenRouter's `provider`. */
struct preferences {
	struct str *order, *only, *ignore; /* names of providers */
	size_t n_order, n_only, n_ignore;
	bool no_fallbacks;
};

struct conversation_index;

struct conversation {
	struct arena *arena;
	struct item **items;
	size_t n_items, cap_items;
	struct tool_entry *tools;
	size_t n_tools;
	struct tool_choice choice;
	struct settings settings;
	struct str model;   /* as the client named it */
	struct str *models; /* fallback list, in order, without the first */
	size_t n_models;
	struct preferences preferences;
	uint32_t next_reply; /* number of the next upstream reply */
	bool has_server_tool;
	enum dialect dialect; /* of the request; what raw texts of its tools and extra are written in */
	struct extra_member *extra; /* providers of that dialect add them to their request, others none */
	size_t n_extra;
	struct str beta; /* the header anthropic-beta, for providers of that dialect; {NULL,0}: none */
	struct conversation_index *index; /* replies.c */
	void **adopted;
	size_t n_adopted, cap_adopted;
};

struct conversation *conversation_new(size_t max_bytes);
struct conversation *conversation_free(struct conversation *c);
/* Takes over malloc'ed memory that items point into; freed (not wiped) with the conversation. */
void conversation_adopt(struct conversation *c, void *malloced);
/* Appends an empty item; NULL when the arena is at its maximum. */
struct item *conversation_add(struct conversation *c, enum item_type type);
/* n parts, zeroed, or NULL. */
struct part *conversation_parts(struct conversation *c, size_t n);
/* Copies text into the arena: {NULL,0} stays so; {NULL,1} is never returned: on failure .p is NULL
 * and *ok false. */
struct str conversation_copy(struct conversation *c, struct str s, bool *ok);

/* ---- replies and ids ---- */

/* Reply number that an id of ours carries, or REPLY_NONE. Takes call ids and item ids. */
uint32_t conversation_id_reply(struct str id);
/* Writes the public call id for an upstream id. marked: the request offers a server tool; else the
 * id as it is when it fits 64 characters. *ret_hashed: the upstream id did not fit, so the caller
 * keeps a row (30 days). */
void conversation_public_id(
        uint32_t reply, struct str upstream_id, bool marked, char out[65], bool *ret_hashed);
/* The upstream id inside a public one, or {NULL,0} where it is hashed (look the row up; failing
 * that use the public id). */
struct str conversation_upstream_id(struct str public_id, bool marked);
/*
 * Gives every assistant item its reply number and sets next_reply. An item with a marked id belongs
 * to that reply; an unmarked one continues the reply before it, unless something else came between:
 * a message of the client's side, a client's result, or, after a call, a message or reasoning.
 * Every result must follow a call with its id, or -ERR_INVALID naming it ("input[3].call_id").
 */
int conversation_cut_replies(struct conversation *c, struct error *err);
/*
 * A call that a provider's own shell ran, shown as one of a server tool's: what a replay brings back
 * must go to that shell again, so its upstream id is CONVERSATION_HOSTED and the provider's own.
 */
#define CONVERSATION_HOSTED "nsh_"
/* Takes public ids and upstream ids. */
bool conversation_id_is_hosted(struct str id);
/* The result of this very call, or NULL. Prefer it to conversation_find_result: ids may come back
 * in later replies. */
struct item *conversation_call_result(const struct conversation *c, const struct item *call);
/* The last result with this call id, or NULL. */
struct item *conversation_find_result(const struct conversation *c, struct str public_id);
struct item *conversation_find_call(const struct conversation *c, struct str public_id);
/* Items of reply number `reply` are not always adjacent (results stand between); iterate with this:
 * the next item of that reply at or after *index, advancing it, or NULL. */
struct item *conversation_reply_item(const struct conversation *c, uint32_t reply, size_t *index);

#endif
