/*
 * What the files of the gateway share. One struct gateway a process; everything in it belongs to
 * the loop's thread unless said.
 *
 *     gateway.c   start, loop, drain            turns.c     performs the effects of turns
 *     route.c     paths → handlers, keys        upstream.c  one call of a turn to a provider
 *     models*.c   GET /models                   run.c       the commands of a turn's tool calls
 *     tools.c     GET /tools                    routing.c   names in a request → its targets
 *     respond.c   errors, by who asks           attempts.c  which target is asked next
 *     lists.c     models as providers tell      circuit.c, shared.c  who does not answer, for all gateways
 *     containers*.c, exec*.c direct use         seal.c      sealed state for clients to carry
 *     container_files*.c their files            upload.c    bodies taken in pieces
 *     event_log.c  streams in the background: kept, for whoever reads them
 *     row.c       rows of containers            forward.c   requests that are another gateway's
 *     keeper.c    what time makes due           saving.c    homes that are saved elsewhere
 *     network.c   policies shown, records of egress
 *     guardrails.c what requests are scanned for, before all else
 *     rulebook.c, ruleset.c, stored_guardrail.c, guardrails_http.c  by which rules
 *     job.c       requests that the pool answers
 *     keys.c, key_limits.c  who may ask, and how much; tenants.c: how that is managed
 *     broadcast*.c  traces, and where they are sent to
 *     recording.c, ledger.c  what happened, and its price; keeping.c  the price of keep_running
 *     metrics*.c, health.c  figures, and whether it is well
 */
#ifndef BRIG_GATEWAY_INTERNAL_H
#define BRIG_GATEWAY_INTERNAL_H

#include "api/api.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "blob/blob.h"
#include "config/config.h"
#include "container/container.h"
#include "gateway/gateway.h"
#include "gateway/shared.h"
#include "http/client.h"
#include "http/pool.h"
#include "http/server.h"
#include "json/json.h"
#include "provider/provider.h"
#include "store/store.h"

#include <event2/event.h>
#include <stdatomic.h>

struct turn_run;
struct upstream_link;
struct lists;
struct exec;
struct turn_sink;
struct websocket;
struct event_log;
struct rulebook;
struct ledger;
struct keys;
struct broadcast;
struct keeping;

struct gateway {
	const struct gateway_options *options;
	struct config *config;
	struct rulebook *rulebook; /* for any thread */
	struct event_base *base;
	struct pool *pool;
	struct http_server *server;
	struct http_client *client;
	struct container_client *containers;
	struct store *store;      /* for the pool's threads */
	struct store *reader;     /* for them too: reads only, which never wait for a writer */
	struct blob_store *blobs; /* for them too */
	uint8_t seal_key[32];
	struct turn_run *turns;      /* running ones, linked */
	struct exec *execs;          /* running and recently ended ones, linked */
	struct websocket *websockets; /* open ones, linked */
	struct event_log *event_logs; /* of responses that stream in the background, linked */
	struct upstream_link *links; /* fetches to providers */
	struct lists *lists;   /* of models, as providers tell them */
	struct shared *shared; /* with the other gateways of this node */
	struct keeper *keeper;
	struct keeping *keeping; /* the price of keep_running */
	struct ledger *ledger;
	struct keys *keys;
	struct metrics *metrics;
	struct broadcast *broadcast;
	struct network *network;
	struct saving *saving; /* NULL: homes are saved where they are */
	struct event *term, *term2, *grace, *drain_poll;
	atomic_size_t history_bytes; /* of stored conversations in turns */
	bool draining;
	bool store_failed;         /* when it was tried for /readyz: */
	uint64_t store_checked_ms; /* monotonic; 0: never */
	uint64_t store_asked_ms;   /* since when that is being tried; 0: it is not */
	struct error failed; /* why the loop ended, if not cleanly */
};

/*
 * What the store knows a gateway by, "host/index": its successor has the same name. Gateways of
 * other nodes may share the store. gateway.c
 */
#define GATEWAY_NAME_MAX 300
void gateway_name(uint32_t index, char out[GATEWAY_NAME_MAX]);

/* Calls recover() for the name of this gateway, and the first one for those of more gateways that
 * there may have been. The sum of its results, or its first error. At the start. gateway.c */
int gateway_recover(struct gateway *g,
        int (*recover)(struct gateway *g, struct str holder, struct error *err), struct error *err);

/* Sets err for a request for which the pool has no room. Returns -ERR_UNAVAILABLE. gateway.c */
int gateway_busy(struct error *err);

/* -ERR_UNAVAILABLE: so little of the disk is free that nothing more may be taken in. err is never
 * NULL. Any thread. gateway.c */
int gateway_check_room(const struct gateway *g, struct error *err);

/* ---- a request, once its key is known ---- */

struct request {
	struct gateway *g;
	struct http_exchange *x;
	const struct config_key *key;
	bool under_v1;
	bool streams; /* by its path: Gemini's streamGenerateContent */
	struct turn_sink *sink; /* NULL: x is answered */
	size_t charged; /* with sink: bytes of body that history_bytes counts; now the turn's */
	char *body;   /* NULL: the exchange has it still */
	size_t body_len;
	struct str params[2]; /* {…} of the route, percent-decoded is refused: only [A-Za-z0-9_.:/-]
	                         occur */
};

/* May content of this request be stored? Not after http_request_release(). body.c */
bool request_may_keep(const struct gateway *g, const struct config_key *key,
        const struct http_exchange *x);

/* May it make containers and use them? Else it is answered: the server keeps to a region, or the key
 * may not. body.c */
bool request_may_execute(struct request *r);

struct fields;
typedef void (*request_fields_fn)(struct request *r, struct fields *f);
/*
 * Calls then() with the object in the body, read as fields_open() does: from within, or from the
 * loop later, and never when the client has gone meanwhile. r and f are then()'s for the call only.
 * body.c
 */
void request_fields(struct request *r, const char *const *allowed, request_fields_fn then);
char *request_take_body(struct request *r, size_t *ret_len); /* what then() did not; free() it */

/* What an exchange's data points at: who wants to know that it drained or has gone. */
struct owner {
	void (*on_drain)(void *self);
	void (*on_gone)(void *self, enum http_gone why);
	void *self;
};

struct route_entry;
void gateway_handler(
        struct gateway *g, struct http_handler *h); /* route.c: fills the server's handler */
/* What a name in a path means: SDKs send its slashes as %2F, people as they are. False: a broken
 * escape, a NUL, or no room. */
bool route_path_decode(struct str in, char *out, size_t size);

/* ---- respond.c ---- */

/* Whose shape the answer to this request has; not after http_request_release(). */
enum dialect respond_asks(const struct http_exchange *x);
/* Answers with an error in the envelope of who asks. */
void respond_error(struct http_exchange *x, bool under_v1, const struct error *e);
/* The same where the request was released. request_id: Anthropic's, if the header was sent already;
 * else NULL. */
void respond_error_to(struct http_exchange *x, enum dialect asks, bool under_v1,
        const char *request_id, const struct error *e);
/* The same for what a guardrail blocked. */
struct guardrails_report;
void respond_blocked(struct http_exchange *x, enum dialect asks, bool under_v1,
        const char *request_id, const struct error *e, const struct guardrails_report *why);
/* The envelope alone; adds the header that goes with Anthropic's. */
void respond_error_body(struct http_exchange *x, enum dialect asks, bool under_v1,
        const char *request_id, const struct error *e, struct buf *out);
/* The header, where the error says when to come again. */
void respond_retry_after(struct http_exchange *x, const struct error *e);
void respond_json(struct http_exchange *x, int status, struct buf *body);
/* More of the text of an answer that has started with its length, as far as the client takes it;
 * *sent moves on. True: that was all, and the exchange is nobody's any more. */
#define RESPOND_PIECE 65536
bool respond_more(struct http_exchange *x, struct str text, size_t *sent);

/* ---- turns.c ---- */

void turns_handle(struct request *r, const struct api *api);

/*
 * What carries a turn's events where the exchange is not the turn's own: a WebSocket. The request's
 * body is then a response.create. Exactly one of refuse() and finish() is called, once, unless
 * turn_run_client_gone() comes first; from then on the turn knows the sink no more.
 */
struct turn_sink {
	struct turn_run *turn; /* that runs; set and cleared by turns.c */
	/* Lines of JSON, cut anywhere: each is an event. */
	void (*write)(struct turn_sink *s, struct str bytes);
	void (*refuse)(struct turn_sink *s, const struct error *e); /* nothing was written */
	void (*finish)(struct turn_sink *s);                        /* all was written */
	/* What the next turn may go on from though it is not stored; NULL: nothing. The turn takes
	 * it when it begins, and leaves what holds then. */
	struct responses_local *local;
};
/* The sink's client has drained, or has gone. turns.c */
void turn_run_client_drained(struct turn_run *t);
void turn_run_client_gone(struct turn_run *t);

/* ---- websocket.c ---- */

void websocket_open(struct request *r);
void websocket_feed(struct http_exchange *x, const void *data, size_t n);
size_t websockets_open(const struct gateway *g);
void websockets_drain(struct gateway *g); /* closes those that are idle, others after their turn */
void turns_cancel_all(struct gateway *g);
void turns_free_all(
        struct gateway *g); /* those that the loop would have freed; none has a client */
void upstream_free_links(struct gateway *g); /* the end: after the turns */

/* ---- routing.c ---- */

/* What a request asks the router; on the loop only, and good until the loop goes on. */
struct route_query routing_query(
        struct gateway *g, const struct api *api, const struct conversation *c);
/* Where the route hangs on lists that were not asked for yet. True: then() is called from the loop
 * within a few seconds, always. */
bool routing_wait(
        struct gateway *g, const struct route_query *q, void (*then)(void *ctx), void *ctx);

/* ---- other handlers ---- */

/* How many tokens a request of this api would be. token_count.c */
void token_count_handle(struct request *r, const struct api *api);
void models_list(struct request *r);
void models_get(struct request *r);
void tools_list(struct request *r);
void tools_get(struct request *r);
void responses_state_http_get(struct request *r);
void responses_state_http_delete(struct request *r);
void responses_state_http_cancel(struct request *r);
void responses_state_items_list(struct request *r);
void generations_get(struct request *r);
void generations_content(struct request *r);
void generations_forget(struct request *r);
void generations_runs(struct request *r);
void generations_list(struct request *r);
void generations_totals(struct request *r);
void generations_export(struct request *r);
void guardrails_http_list(struct request *r);
void guardrails_http_create(struct request *r);
void guardrails_http_get(struct request *r);
void guardrails_http_change(struct request *r);
void guardrails_http_delete(struct request *r);
void guardrails_http_keys(struct request *r);
void guardrails_http_assign(struct request *r);
void guardrails_http_unassign(struct request *r);
void guardrails_http_phrases(struct request *r);
void guardrails_http_allow(struct request *r);
void guardrails_http_disallow(struct request *r);
void guardrails_hits_list(struct request *r);
void guardrails_hits_mark(struct request *r);
void containers_create(struct request *r);
void containers_list(struct request *r);
void containers_get(struct request *r);
void containers_delete(struct request *r);
void containers_sleep(struct request *r);
void container_files_list(struct request *r);
bool container_files_create(struct request *r, size_t *max_body); /* a route's begin() */
void container_files_attach(struct request *r);
void container_files_get(struct request *r);
void container_files_delete(struct request *r);
void container_files_content(struct request *r);
void container_files_promote(struct request *r);
void exec_create(struct request *r);
void exec_get(struct request *r);
void exec_kill(struct request *r);
void exec_free_all(struct gateway *g);
void exec_destroy_all(struct gateway *g); /* those that are kept too; no exchange is left */
size_t exec_running(const struct gateway *g);

/* ---- row.c: what the store knows of a container ---- */

struct store_scope row_scope(const struct config_key *key);
/* A row as it is made where there is none: the configuration's limits. */
void row_default(const struct gateway *g, struct str id, struct store_container *row);
/* The supervisor's name of a container. */
void row_key(const struct config_key *key, struct str id, uint8_t ret[SUP_KEY_LEN]);
/* What to claim for a row; to be cleared. -ERR_INTERNAL: its network policy cannot be read. */
int row_spec(const struct gateway *g, const struct config_key *key,
        const struct store_container *row, struct container_spec *ret, struct error *err);
/* The hash that a live container has whose network is this (network/policy.h: the text). */
void row_policy(const struct gateway *g, const struct config_key *key, struct str id,
        struct str network, uint8_t ret[16]);
/* Whether the operator allows this key such a policy; path is for the error. */
int row_policy_within(const struct gateway *g, const struct config_key *key, struct str network,
        const char *path, struct error *err);
/* row: what there is, or row_default() and made so, for the call only. err: it could not be read.
 */
typedef void (*row_fn)(void *ctx, const struct store_container *row, const struct error *err);
/* Reads the row of a container of this workspace on the pool, and sees to it that its home is here;
 * then() is called from the loop, always. network: the row's from now on; NULL: as it is. False:
 * the pool has too much to do, and then() is not called. */
bool row_read(struct gateway *g, const struct config_key *key, struct str id, const char *network,
        row_fn then, void *ctx);
/* The container was used: its row is made or its last use set. On a pool thread. */
int row_touch(struct gateway *g, const struct config_key *key, struct str id, struct error *err);
/* The same from the loop; a failure is only logged. */
void row_touch_later(struct gateway *g, const struct config_key *key, struct str id);

/* ---- env.c: NAME=VALUE strings ---- */

#define ENV_ROW_MAX 64 /* variables that a container may have of its own */

/* Appends those of an object of string values (NULL: none) to vars at *n, in the arena; vars must
 * have room for all of it. */
int env_read(
        const struct json *env, struct arena *a, struct str *vars, size_t *n, struct error *err);
/* A container's own; vars has room for ENV_ROW_MAX. Returns how many. */
size_t env_of_row(const struct store_container *row, struct arena *a, struct str *vars);

/* ---- forward.c ---- */

/* The socket on which other gateways of this node reach this one. */
int forward_listen(struct gateway *g, struct error *err);
/* Does what has this id in this container belong to this gateway? */
bool forward_is_ours(
        const struct gateway *g, const struct config_key *key, struct str container, struct str id);
/* Passes the request to the gateway that it belongs to; false: that is this one, go on. */
bool forward_to_owner(struct request *r, struct str container, struct str id);

/* ---- keeper.c ---- */

struct keeper *keeper_start(struct gateway *g, struct error *err); /* NULL: failed */
/* Does this gateway keep the node's time, as far as it knows? k may be NULL. */
bool keeper_is_here(const struct keeper *k);
/* After the pool has ended: nothing of it is under way any more. Takes NULL; returns NULL. */
struct keeper *keeper_free(struct keeper *k);

/* ---- seal.c ---- */

int seal_key_load(struct gateway *g, struct error *err);
/* Appends "brig1.…" for bytes that only this provider, model and account may get back. */
int seal_close(const struct gateway *g, struct str provider, struct str model, struct str account,
        struct str bytes, struct buf *out);
/* The same for a compaction's summary, which every provider may get, for this account. */
int seal_close_summary(
        const struct gateway *g, struct str account, struct str text, struct buf *out);
bool seal_open_summary(
        const struct gateway *g, struct str account, struct str sealed, struct buf *out);
/* Appends the bytes; false: not sealed by us, or for another. */
bool seal_open(const struct gateway *g, struct str provider, struct str model, struct str account,
        struct str sealed, struct buf *out);

#endif
