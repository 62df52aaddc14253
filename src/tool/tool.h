/*
 * Server tools: what brig itself runs. A tool says how it is declared to a model, checks the model's
 * arguments, and says what the model reads as its result. It runs nothing: the turn asks for commands
 * and the gateway performs them in a container.
 *
 * Limits are DESIGN section 8. The text that a model reads is a function of the result's public
 * fields only, with fixed key order and escapes, so that a replayed result reads the same.
 */
#ifndef BRIG_TOOL_TOOL_H
#define BRIG_TOOL_TOOL_H

#include "base/buf.h"
#include "base/error.h"
#include "conversation/conversation.h"
#include "json/json.h"

#include <stdbool.h>
#include <stdint.h>

/* The numbers of the server (config limits), which a request's parameters can lower. */
struct tool_limits {
	uint32_t timeout_ms, max_timeout_ms; /* 120,000 and 300,000 */
	uint32_t output_chars, max_output_chars; /* 16,384 and 65,536 */
	uint32_t commands; /* 100 */
};

#define SHELL_FILES_MAX 20 /* file_ids of one entry */

/* Who runs a shell's calls: a provider that has such a shell, else our sandbox; only the one, or only the other. */
enum shell_engine { SHELL_ENGINE_AUTO, SHELL_ENGINE_NATIVE, SHELL_ENGINE_OURS };
enum shell_environment { SHELL_CONTAINER_AUTO, SHELL_CONTAINER_REFERENCE };

/* Checked `parameters` of a shell entry. */
struct shell_settings {
	enum shell_environment environment;
	struct str container_id; /* CONTAINER_REFERENCE: 1 to 40 of [A-Za-z0-9_-] */
	uint32_t timeout_ms;     /* the request's own default and ceiling; 0: not given */
	uint32_t max_output_length;
	/* Documents to be copied into the container before its first command. */
	struct str *file_ids;
	size_t n_file_ids;
	const char *file_ids_path; /* "tools[0].parameters.environment.file_ids", for errors */
	/* What network/policy.h calls the text: NULL not given, "" disabled. */
	const char *network;
	const char *network_path; /* "tools[0].parameters.environment.network_policy", for errors */
	bool own_items;          /* brig:shell, shell: shell_call and shell_call_output; else one openrouter:shell item */
	bool openai;             /* the entry is OpenAI's own: */
	enum shell_engine engine;
	struct str native_container; /* of the provider's own shell, by reference; {NULL,0}: none */
	const char *native_path; /* what only a provider's own shell can serve: its place in the request; NULL: nothing */
	bool may_be_native;      /* a provider that has such a shell itself may run it; set by who reads the request */
	const struct error *only_native; /* why our sandbox cannot do what it asks for; NULL: it can */
};

/* Checked arguments of one call. */
struct tool_call {
	struct str *commands; /* run in order, each in an invocation of its own */
	size_t n_commands;
	uint32_t timeout_ms;  /* per command: effective, after defaults and ceilings */
	uint32_t output_chars;/* per stream and command: effective */
	bool has_timeout, has_output; /* the model gave them; else `action` shows null */
	int64_t asked_timeout, asked_output; /* as the model gave them, for `action` */
	/*
	 * bash: the commands go on where the last one of the turn ended (bash_session.h), both streams are one
	 * text, and timeout_ms and output_chars are for all of them together.
	 */
	bool session;
	bool restart; /* in a new session and a new container */
};

struct tool {
	const char *name; /* "shell": what the model calls it, unless a client function has that name */
	/* Is `type` of an entry in `tools` one of this tool's? */
	bool (*is_entry)(struct str type);
	/* Checks a whole entry of `tools` ({"type": …, "parameters": …?}); path is "tools[0]", and err->param becomes
	 * "tools[0].parameters.environment.container_id" and the like. Settings in the arena. */
	int (*settings)(struct arena *a, struct str type, const struct json *entry, const char *path, void **ret, struct error *err);
	const char *description; /* for the model, our own words */
	const char *schema;      /* JSON Schema of the arguments */
	/* Checks a call's raw arguments. err->text is what the model is told. Result in the arena. What can mean only one
	 * thing is taken although the schema says otherwise: `commands` as one string, `command` for it. */
	int (*parse)(struct arena *a, struct str arguments, const void *settings, const struct tool_limits *l, struct tool_call **ret, struct error *err);
	/* The text that the model reads for a result (outputs, or error). */
	int (*result_text)(const struct result *r, struct buf *out);
	/*
	 * The arguments as a replay gives them back where the items have no place for raw ones (brig:shell's
	 * shell_call has only `action`): fixed key order, absent where the model gave nothing. Inside a turn such
	 * a call's arguments are replaced by these, so that both read the same to the model.
	 */
	int (*write_arguments)(const struct tool_call *call, struct buf *out);
	bool (*replaces_arguments)(const void *settings);
	/* Prefixes of the public item ids of a call and of its result ("st_tmp_"; NULL: the result is no item). */
	void (*id_prefixes)(const void *settings, const char **ret_call, const char **ret_result);
};

extern const struct tool tool_shell;
extern const struct tool tool_bash;

/* The tool whose entry type this is, or NULL. */
const struct tool *tool_find(struct str entry_type);
/* The i-th of the table, or NULL behind its end. */
const struct tool *tool_at(size_t i);

/* How a command ended, as clients and models read it: {"type","exit_code"?,"signal"?,"reason"?}. */
void tool_write_outcome(struct json_writer *w, const struct command_output *o);

/* ---- collecting output ---- */

/*
 * Keeps one stream of one command within `limit` characters: bytes go in as they come, in any cut. Up
 * to the limit all is kept. Beyond it the first half and the last half remain, with one line between
 * that says how many characters are missing; all together within the limit. Invalid UTF-8 becomes
 * U+FFFD; a character that is cut between two reads is not. Never holds more than the limit.
 * `head` (limit / 2) is known to stay, so it can be shown while the command runs. Where the line does
 * not fit into the limit, one "…" stands for it.
 *
 * collector_feed and collector_end return 0, -ERR_NOMEM, or live's error; after an error the collector can
 * only be freed.
 */
struct collector;
struct collector *collector_new(uint32_t limit); /* characters; 0 keeps nothing */
struct collector *collector_free(struct collector *c);
/* What of these bytes is sure to stay at its place is appended to live (may be NULL). */
int collector_feed(struct collector *c, const void *data, size_t n, struct buf *live);
/* No more bytes. Appends to live what was not shown yet, so that all live pieces joined are the final text. */
int collector_end(struct collector *c, struct buf *live);
struct str collector_text(const struct collector *c); /* after collector_end */
uint64_t collector_chars(const struct collector *c);  /* before the cut */
bool collector_truncated(const struct collector *c);
size_t collector_bytes_held(const struct collector *c);

#endif
