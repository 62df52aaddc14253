/*
 * The api seam: one dialect that clients speak. An api turns a request's body into a conversation, and
 * the turn's outputs into bytes for the client. It does no I/O and does not know what carries the
 * bytes: the gateway asks it for framed events, and an SSE carrier and a WebSocket carrier differ only in
 * struct api_carrier.
 */
#ifndef BRIG_API_API_H
#define BRIG_API_API_H

#include "base/buf.h"
#include "base/error.h"
#include "config/config.h"
#include "conversation/conversation.h"
#include "turn/turn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Seals a text into what clients carry, and opens it again: for the same account, whatever the model. Any
 * thread. Both append to out; false: it cannot be sealed, or is not ours.
 */
struct api_seal {
	bool (*close)(void *ctx, struct str text, struct buf *out);
	bool (*open)(void *ctx, struct str sealed, struct buf *out);
	void *ctx;
};

struct api_request {
	char *body;       /* malloc'ed, taken over by api->parse in every case */
	size_t body_len;
	struct str session_header; /* x-session-id */
	bool under_v1;    /* /v1 rather than /api/v1: error.code is a string or null there */
	const struct config *config;
	struct str anthropic_beta; /* the header's value, or {NULL,0} */
	/* Where the path says so (Gemini): the model, and whether the answer is streamed. */
	struct str path_model;
	bool path_stream;
	/* Streamed as one JSON array and not as server-sent events: without alt=sse. API_SSE is then that carrier. */
	bool path_array;
	/* Responses: may content be kept, and what was put in front of `input` from what is
	 * (api/responses_state.h); is previous_response_id in the input already? */
	bool may_store, has_history;
	size_t n_history; /* elements */
	const struct api_seal *seal; /* Responses: of compactions; NULL: none opens */
};

/* What a request asks for, checked. */
struct turn_request {
	const struct api *api;
	struct conversation *conversation;
	bool stream;
	bool under_v1;
	bool store;      /* the answer is to be kept; may become false until it ends */
	bool background; /* nobody waits for the answer */
	struct turn_options options;
	/* Which container (spec/openrouter.md 1.7): the session key's text as it came, "" when none or not valid. */
	char container_id[41];    /* resolved; "" when no server tool is offered */
	bool container_named;     /* by reference, session or replay: not one of this request's own */
	const struct tool_entry *shell; /* the server shell entry or NULL */
	struct api_echo *echo;    /* the api's own: what the response object repeats */
	const struct api_seal *seal; /* api_request's */
	/*
	 * For a provider that speaks this api's dialect (api/relay.h): the client's own bytes, which the conversation
	 * owns, or {NULL,0} where they must not be passed on as they are.
	 */
	struct str body;
	/* Why no provider of another dialect can serve the request, in the conversation's arena; NULL: they can. */
	const struct error *only_here;
};
void turn_request_free(struct turn_request *r);

/* Who serves it: filled by the gateway before open(). */
struct api_identity {
	char id[64];          /* "gen-…"; X-Generation-Id */
	int64_t created_s;
	const char *provider; /* name, once known */
	const char *model;    /* "provider/model" that serves, as the response shows it */
	struct money input_price, output_price, cached_price; /* for a million tokens; all zero where unknown */
	bool has_price;
	/* What earlier targets of the route took, before this one had to step in: their tokens, and what they cost. */
	struct usage earlier;
	struct money earlier_input, earlier_output;
	int64_t ended_s; /* when it ended; 0: when OUT_END is emitted */
	/* Raw JSON that the end of an answer has as `openrouter_metadata`; NULL: it has none. */
	const char *metadata;
	bool native_shell; /* the provider runs the request's shell itself */
};

/* What tokens cost at who's prices, beyond who->earlier and with what that cost. */
void api_price(const struct api_identity *who, const struct usage *u, struct money *ret_input, struct money *ret_output);
/*
 * The members of a usage object that say what a turn cost (OpenRouter's names; those of the model's
 * input and output differ by dialect), and, where it had a server tool, how often that was called.
 */
struct json_writer;
void api_write_cost(struct json_writer *j, const struct api_identity *who,
        const struct turn_totals *totals, const char *input_key, const char *output_key,
        bool has_server_tool);

enum api_carrier { API_WHOLE, API_SSE, API_WEBSOCKET };

struct api_stream;

struct api {
	const char *name; /* "responses" */
	enum dialect speaks; /* for routing a bare model name */
	/*
	 * Parses and checks. request_seed: unguessable text of this request, from which a container id is
	 * derived when nothing names one (`gen_` + 12 hex). On failure err has param and text.
	 */
	int (*parse)(struct api_request *in, struct str request_seed, struct turn_request *ret, struct error *err);
	struct api_stream *(*open)(const struct turn_request *r, const struct api_identity *who, enum api_carrier carrier);
	/*
	 * Takes one output of the turn. Small bytes are appended to out at once; a large event stays inside and
	 * api->pull must be called until api->left is 0 before the next emit. totals is for OUT_END.
	 */
	int (*emit)(struct api_stream *s, const struct turn_output *o, const struct turn_totals *totals, struct buf *out);
	size_t (*left)(const struct api_stream *s);
	int (*pull)(struct api_stream *s, struct buf *out, size_t room);
	/* What keeps an idle stream open, in this dialect's own form (SSE: ": ping" and ONE newline). */
	void (*keepalive)(struct api_stream *s, struct buf *out);
	struct api_stream *(*close)(struct api_stream *s);
	/*
	 * The response object as OUT_END `o` will make it, or, with o NULL, as it stands: appended to
	 * out, also from another thread while nothing else looks at the stream. *ret_empty: it failed
	 * before there was anything in it. NULL where the dialect has none.
	 */
	int (*object)(const struct api_stream *s, const struct turn_output *o, const struct turn_totals *totals,
		struct buf *out, bool *ret_empty);
	/* HTTP status of a whole answer that has ended (200, or the error's). After OUT_END. */
	int (*status)(const struct api_stream *s);
};

extern const struct api api_responses;
extern const struct api api_responses_compact; /* its object is `response.compaction`, never streamed or stored */
extern const struct api api_messages;
extern const struct api api_gemini;
extern const struct api api_chat;

/*
 * How the Responses stream is carried: API_SSE frames each event (`event:`, `data:`, an empty line, and `data: [DONE]`
 * at the end); API_WEBSOCKET writes each event as one line of JSON, so that the carrier cuts frames at the newlines;
 * API_WHOLE writes nothing before OUT_END. An event of up to 64 KiB is in `out` whole when emit() returns. r, who
 * and the conversation must outlive the stream. The response's id is "resp_" and what follows "gen-" in who->id.
 */

/* The envelope of /api/v1 and /v1 for everything that is no dialect of its own (containers, models, keys). */
void api_error_body(const struct error *e, bool under_v1, struct buf *out);
/* The same, under /api/v1 with error.metadata.error_type, where OpenRouter's chat completions have it. */
void api_error_body_chat(const struct error *e, bool under_v1, struct buf *out);
/* Anthropic's envelope; request_id is the answer's `request-id`, or NULL. */
void api_error_body_anthropic(const struct error *e, const char *request_id, struct buf *out);
/* Google's, with its name for the status, and details where there is something to say. */
void api_error_body_google(const struct error *e, struct buf *out);
/* "invalid_request_error" and so on: `error.type` for a code and status. */
const char *api_error_type(const struct error *e);
/* `error.code` as a string: the exact name ("unknown_parameter") or one for the status; NULL: none. */
const char *api_error_code(const struct error *e);
/* OpenRouter's `error_type` (spec/openrouter.md 8): "invalid_request", "rate_limit_exceeded", … */
const char *api_error_name(const struct error *e);
/* What the caller may read: errors of the machine itself say only that there was one. */
const char *api_error_text(const struct error *e);

/* ---- which container (pure; spec/openrouter.md 1.3 and 1.7) ---- */

/* A session key: [A-Za-z0-9_-]+, the last 20 characters count. Writes "sess_…" or leaves out[0] = 0 and returns false. */
bool api_session_container(struct str key, char out[41]);
bool api_container_id_valid(struct str id); /* 1 to 40 of [A-Za-z0-9_-] */

enum { API_SESSION_KEYS = 3 };
struct api_container_hints {
	struct str reference;   /* of container_reference, checked; {NULL,0}: none */
	/* Body session_id, header x-session-id, body prompt_cache_key: the first whose p is not NULL decides. */
	struct str session[API_SESSION_KEYS];
	struct str replayed;    /* the most recent container id in the conversation, or {NULL,0} */
	struct str request_seed;
};
/* Writes the container's id; true where the request names it (so it may live on), false where it is this request's own. */
bool api_container_choose(const struct api_container_hints *h, char out[41]);
/* Settles whether a provider's own shell may run what the entry offers: not where the request names a container
 * of ours, or puts files into one. */
void api_shell_settle(struct shell_settings *s, const struct api_container_hints *h);

/* ---- files in containers (spec/openrouter.md 4) ---- */

#define API_FILE_ID_PREFIX "cfile_"
/* Appends the id: the prefix and the path in base64url. */
int api_file_id_append(struct buf *out, struct str path);
/* Appends the path, whatever bytes it is. False: not such an id, or no room. */
bool api_file_id_read(struct str id, struct buf *ret_path);

#endif
