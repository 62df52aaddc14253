/*
 * The provider seam: an upstream that serves models, in one dialect. A provider turns a conversation
 * into the upstream's request and its bytes into canonical stream events. It does no I/O: the gateway
 * sends and feeds.
 *
 * build() is a function of the conversation's public fields and of the sealed state it can open: the
 * messages of the next turn's first request begin, byte for byte, with those of this turn's last.
 */
#ifndef BRIG_PROVIDER_PROVIDER_H
#define BRIG_PROVIDER_PROVIDER_H

#include "base/buf.h"
#include "base/error.h"
#include "config/config.h"
#include "conversation/conversation.h"
#include "conversation/stream.h"
#include "turn/turn.h"

#include <stdbool.h>
#include <stddef.h>

/* Where one upstream call goes. */
struct provider_target {
	const struct provider *provider;
	const struct config_provider *config;
	const char *model; /* the upstream's name for it; owned by the route */
};

#define PROVIDER_SEALED "brig1." /* how sealed state begins */
/* Opens a sealed state made for this provider, model and account: appends its bytes; false: not ours. */
typedef bool (*provider_open_fn)(void *ctx, const struct provider_target *t, struct str sealed, struct buf *out);

struct provider_call {
	const struct provider_target *target;
	const struct conversation *conversation;
	const struct upstream_call *call;
	provider_open_fn open;
	void *open_ctx;
};

/*
 * An item's opaque state for this target: opened where it is sealed for it; as it is where the client's
 * dialect is the provider's own and the client brought it unsealed. False: there is none that this target
 * takes, and what depends on it must be left out. Appends to out.
 */
bool provider_state(const struct provider_call *pc, const struct item *it, struct buf *out);

/*
 * Does this target give calls an opaque state that it wants back (Gemini, in both of its dialects)? Then
 * what a client has no place for is looked up.
 */
bool provider_keeps_call_state(const struct provider_target *t);

struct provider_request {
	char *path;      /* appended to base_url: "/chat/completions"; malloc'ed */
	char **headers;  /* "Name: value", NULL-terminated, all malloc'ed; may hold the key: wiped when freed */
	char *body;      /* malloc'ed */
	size_t body_len;
};
void provider_request_free(struct provider_request *r);

struct provider_parser; /* of one reply */

struct provider {
	enum dialect dialect;
	const char *name; /* "openai-chat" */
	/* No upstream: the reply is made on the spot. Not NULL only for brig/script, which then has no other member. */
	int (*local)(const struct provider_call *pc, stream_fn emit, void *ctx, struct error *err);
	int (*build)(const struct provider_call *pc, struct provider_request *ret, struct error *err);
	/*
	 * Path and headers of a request whose body is the client's own, in this dialect (api/relay.h); as a stream or
	 * not. Leaves the body alone. NULL: no such request can be sent.
	 */
	int (*relay)(const struct provider_call *pc, bool streamed, struct provider_request *ret, struct error *err);
	/* status 200 and its content type. */
	struct provider_parser *(*open)(const struct provider_call *pc, struct str content_type);
	/* Any cut of bytes. Emits events; after STREAM_END or STREAM_ERROR further bytes are ignored. 0 or what emit returned. */
	int (*feed)(struct provider_parser *p, const void *data, size_t n, stream_fn emit, void *ctx);
	/* The body has ended (cleanly or not): emits STREAM_END or STREAM_ERROR if neither was yet. */
	int (*end)(struct provider_parser *p, const struct error *cut, stream_fn emit, void *ctx);
	struct provider_parser *(*close)(struct provider_parser *p);
	/* A status other than 200, with up to 64 KiB of its body and Retry-After: the error for our client. Never quotes
	 * HTML, keys or addresses of the upstream. */
	void (*error)(int status, struct str body, struct str retry_after, struct error *ret);
};

extern const struct provider provider_openai_chat;
extern const struct provider provider_openai_responses;
extern const struct provider provider_anthropic;
extern const struct provider provider_gemini;
extern const struct provider provider_script;
const struct provider *provider_for(enum dialect d); /* NULL: this dialect cannot be reached yet */

/*
 * Does this provider run the request's shell itself (DESIGN section 9, `engine: auto`)? The request has OpenAI's own
 * entry and names no container of ours, and the provider's dialect and native_tools have it. A shell that is the
 * client's own counts too: such a provider knows that by itself.
 */
bool provider_runs_shell(const struct provider_target *t, const struct conversation *c);
/* The settings of an entry that is a shell of the server's, or NULL. */
const struct shell_settings *provider_shell_settings(const struct tool_entry *t);
/* Can the target serve the request's shell at all? -ERR_UNSUPPORTED that names it where only a shell of the
 * provider's own would do (shell_settings.native_path) and it has none. */
int provider_check_shell(
        const struct provider_target *t, const struct conversation *c, struct error *err);

/* ---- router ---- */

struct route {
	struct provider_target *targets; /* in order of trying */
	size_t n, cap;
};
struct route_query {
	enum dialect speaks; /* what the client speaks */
	struct str model;
	const struct str *models; /* the fallback list; with an empty model the first of them counts */
	size_t n_models;
	const struct preferences *preferences; /* NULL: none */
	/*
	 * What providers list themselves, for the caller to know; NULL: nothing. each() calls fn for every
	 * model of a provider until fn returns false.
	 */
	bool (*lists)(void *ctx, const struct config_provider *p, struct str model);
	void (*each)(void *ctx, const struct config_provider *p, bool (*fn)(void *fn_ctx, struct str model),
	        void *fn_ctx);
	void *ctx;
};
/*
 * Resolves model names (DESIGN section 9): an alias; provider/model; a bare name that a provider lists, in
 * its prices or itself; else the first provider of the dialect the request speaks, then of the other one of
 * OpenAI's; else -ERR_NOT_FOUND, type "model_not_found", naming near matches. `google/` is `gemini/`. Then
 * the request's preferences order and thin out what there is.
 */
int route_resolve(const struct config *cfg, const struct route_query *q, struct route *ret, struct error *err);
/* Puts target number i before all others. */
void route_prefer(struct route *r, size_t i);
/* Would it help to know what providers list themselves? */
bool route_wants_lists(const struct config *cfg, const struct route_query *q);
void route_free(struct route *r);

#endif
