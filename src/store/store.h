/*
 * What brig remembers between processes: container rows, upstream call ids that did not fit into
 * ours, and who is the node's keeper. SQLite by default; nothing outside src/store knows that.
 *
 * Every row of a tenant is keyed by account and workspace: there is no call that reads across them
 * but the keeper's. Times are milliseconds of the wall clock, given by the caller.
 *
 * Calls block (file system, and up to ten seconds for another process that writes), so they belong
 * on the thread pool, never on the loop. A store may be used by several threads: calls are made one
 * after the other. It must not be carried over a fork. Several processes may open the same path at
 * once. What a call reported as done survives the death of any process; with store_options.power it
 * survives the machine's too.
 *
 * Errors: -ERR_NOT_FOUND and -ERR_INVALID where said; -ERR_UNAVAILABLE when others kept the
 * database busy; -ERR_IO for the disk, a damaged file, or one made by a newer brig.
 */
#ifndef BRIG_STORE_STORE_H
#define BRIG_STORE_STORE_H

#include "base/error.h"
#include "base/money.h"
#include "base/str.h"
#include "record/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store;

struct store_options {
	const char *path; /* of the database file; made with mode 0600 when absent */
	bool power;       /* wait for the disk at every write (container.durability: power) */
};
/* Opens, and brings an older file up to date. */
int store_open(const struct store_options *o, struct store **ret, struct error *err);
struct store *store_close(struct store *s); /* takes NULL; returns NULL */

/* Whose rows. Both not empty. */
struct store_scope {
	struct str account, workspace;
};

/* ---- containers ---- */

#define STORE_ID_MAX   40
#define STORE_NAME_MAX 256

struct store_container {
	char id[STORE_ID_MAX + 1];
	char name[STORE_NAME_MAX + 1];
	int64_t created_ms, last_used_ms;
	int64_t keep_until_ms; /* keep_running: awake until then; 0: no */
	int64_t expires_ms;    /* after its last use; 0: as the server says */
	char image[65];
	uint32_t memory_mib, cpu_milli;
	bool deleting;  /* its files are being removed */
	char *network;  /* JSON of the network policy; NULL: disabled. These three are malloc'ed */
	char *env;      /* JSON object of the environment; NULL: empty */
	char *metadata; /* JSON object; NULL: empty */
};
/* Frees what it points at and zeroes it. Takes NULL. */
void store_container_clear(struct store_container *c);

/*
 * Makes the row unless one of that id is there: 1 made, 0 it was there. One that is being deleted
 * is not there: the new one takes its place. ret (may be NULL) is filled with the row as it stands
 * afterwards.
 */
int store_container_create(struct store *s, const struct store_scope *scope,
        const struct store_container *c, struct store_container *ret, struct error *err);
/*
 * The container was used at now_ms: sets last_used (it never goes back), or makes the row from
 * `fresh` where there is none, or one that is being deleted. 1: made.
 */
int store_container_touch(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, const struct store_container *fresh, struct error *err);
/* 0 or -ERR_NOT_FOUND. */
int store_container_get(struct store *s, const struct store_scope *scope, struct str id,
        struct store_container *ret, struct error *err);
/* 0 or -ERR_NOT_FOUND. */
int store_container_keep(struct store *s, const struct store_scope *scope, struct str id,
        int64_t keep_until_ms, struct error *err);
/* network: as in the row; empty for none. 0 or -ERR_NOT_FOUND. */
int store_container_network(struct store *s, const struct store_scope *scope, struct str id,
        struct str network, struct error *err);
/* Marks that removal has begun at now_ms, so that it is finished also after a crash. 0 or
 * -ERR_NOT_FOUND. */
int store_container_mark_deleting(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct error *err);
/* Ends a removal. 1: the row is gone, 0: there was none, or it was made anew meanwhile. */
int store_container_delete(
        struct store *s, const struct store_scope *scope, struct str id, struct error *err);

struct store_list_query {
	struct str after; /* id of the last one seen, or {NULL,0} */
	struct str name;  /* only of this name, or {NULL,0} */
	uint32_t limit;   /* 1 … 1000 */
	bool ascending;   /* by time of making, then id; default newest first */
};
struct store_list {
	struct store_container *rows;
	size_t n;
	bool has_more;
};
/* Those being deleted are left out. An unknown `after` is -ERR_INVALID with param "after". */
int store_container_list(struct store *s, const struct store_scope *scope,
        const struct store_list_query *q, struct store_list *ret, struct error *err);
void store_list_clear(struct store_list *l);

/*
 * For the keeper, over all tenants: at most `limit` containers whose last use was longer ago than
 * their own expiry or keep_ms and that are not kept at now_ms, or whose removal began over a minute
 * ago and has not ended.
 */
struct store_stale {
	char *account, *workspace; /* malloc'ed */
	char id[STORE_ID_MAX + 1];
	int64_t last_used_ms;
	bool deleting;
};
int store_container_stale(struct store *s, int64_t keep_ms, int64_t now_ms, uint32_t limit,
        struct store_stale **ret, size_t *ret_n, struct error *err);
struct store_stale *store_stale_free(struct store_stale *stale, size_t n); /* returns NULL */
/* Marks the row as being deleted only if it was not used since the list was made. 1: marked, 0: it
 * is in use again. */
int store_container_expire(
        struct store *s, const struct store_stale *stale, int64_t now_ms, struct error *err);

/* ---- what call ids cannot carry: longer ids, and a provider's sealed state of a call ---- */

#define STORE_CALL_VALUE_MAX 131072 /* bytes */

struct store_call_id {
	struct str hash;        /* 32 hex digits: those inside the public id, or of it */
	struct str upstream_id; /* or the state: 1 … STORE_CALL_VALUE_MAX bytes */
};
/* All of them or none; one that is there already lives on until expires_ms, if that is later. */
int store_call_ids_put(struct store *s, const struct store_scope *scope,
        const struct store_call_id *ids, size_t n, int64_t expires_ms, struct error *err);
/* *ret is malloc'ed and NUL-terminated. 0, or -ERR_NOT_FOUND where it is unknown or expired. */
int store_call_id_get(struct store *s, const struct store_scope *scope, struct str hash,
        int64_t now_ms, char **ret, size_t *ret_len, struct error *err);
/* For the keeper: forgets what has expired, at most `limit` rows. Returns how many. */
int store_call_ids_expire(struct store *s, int64_t now_ms, uint32_t limit, struct error *err);

/* ---- documents ---- */

#define STORE_FILENAME_MAX  1020 /* bytes: 255 characters */
#define STORE_BLOB_MAX      200
#define STORE_DOCUMENTS_MAX 1000000 /* of one workspace, empty ones too */

/*
 * A file that a workspace keeps. Ids are made so that they sort by the time of making; the content
 * is the value of that blob key, which rows of one workspace may share and others never do.
 */
struct store_document {
	char id[STORE_ID_MAX + 1];
	char filename[STORE_FILENAME_MAX + 1];
	char mime[128];
	char purpose[32];
	char blob[STORE_BLOB_MAX + 1];
	uint64_t bytes;
	int64_t created_ms;
	int64_t expires_ms; /* 0: kept for ever */
	bool downloadable;
};

/* Something outside of the store that belongs into one transaction with it. It runs under the lock
 * of all writers of all processes, so it must be short. 0 or -err with err filled. */
typedef int store_do_fn(void *ctx, struct error *err);

/*
 * Makes the row; fn, in the same transaction, makes the blob: whoever finds a blob without a row
 * meanwhile (store_document_blob_unused) finds it before or after both. Where either fails there is
 * no row. -ERR_PERMISSION, of type "storage_quota_exceeded", where the workspace would then hold
 * more than quota bytes, or STORE_DOCUMENTS_MAX documents already.
 */
int store_document_create(struct store *s, const struct store_scope *scope,
        const struct store_document *d, uint64_t quota, store_do_fn *fn, void *ctx,
        struct error *err);
/* Bytes of all documents of the workspace. */
int store_document_usage(
        struct store *s, const struct store_scope *scope, uint64_t *ret, struct error *err);
/* 0 or -ERR_NOT_FOUND, which an expired one is too. */
int store_document_get(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_document *ret, struct error *err);

struct store_document_query {
	struct str after;   /* only ids behind this one, in the list's order, or {NULL,0} */
	struct str before;  /* the last ones that stand in front of this one; not with after */
	struct str purpose; /* only of this purpose, or {NULL,0} */
	uint32_t limit;     /* 1 … 10,000 */
	bool ascending;     /* by id, which is by time of making; default newest first */
	int64_t now_ms;
};
struct store_document_list {
	struct store_document *rows;
	size_t n;
	bool has_more; /* in the direction that was asked for */
};
/* after and before need not be there any more. */
int store_document_list(struct store *s, const struct store_scope *scope,
        const struct store_document_query *q, struct store_document_list *ret, struct error *err);
void store_document_list_clear(struct store_document_list *l);
/* 0: the row is gone, and *ret is what it was; or -ERR_NOT_FOUND. Its blob stays: see below. */
int store_document_delete(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_document *ret, struct error *err);

/* Over all tenants: 1 where a row has this blob, 0 where none has. */
int store_document_blob_used(struct store *s, struct str blob, struct error *err);
/* Runs fn, which removes the blob, where no row has it, and keeps rows from coming to have it
 * meanwhile. 1: fn was run, 0: it is in use. */
int store_document_blob_unused(
        struct store *s, struct str blob, store_do_fn *fn, void *ctx, struct error *err);
/* For the keeper: removes rows whose time is over, at most `limit`. Returns how many. */
int store_documents_expire(struct store *s, int64_t now_ms, uint32_t limit, struct error *err);

/* ---- stored responses ---- */

struct store_response_item {
	struct str id;
	size_t at, len; /* in the object */
};
/*
 * An answer of the Responses API, and what its own request brought. Everything is borrowed. Ids of
 * items may be longer than STORE_ID_MAX: those are not found by store_response_item().
 */
struct store_response {
	struct str id;
	struct str previous;                     /* the one that it continues, or {NULL,0} */
	bool running;                            /* not yet at its end: the object is preliminary */
	struct str object;                       /* JSON */
	size_t output_at, output_len;            /* of the array `output` in it */
	const struct store_response_item *items; /* of that array */
	size_t n_items;
	struct str input; /* JSON: a string, or an array of items */
	size_t n_input;
	int64_t created_ms, expires_ms;
};
/*
 * Makes the row, or brings the running one of that id to its end: 1; 0: that one was deleted
 * meanwhile. Where the workspace holds more than quota bytes then, its oldest rows go.
 * -ERR_TOO_LARGE where this one alone is more.
 */
int store_response_put(struct store *s, const struct store_scope *scope,
        const struct store_response *r, uint64_t quota, struct error *err);

struct store_response_text {
	char *object; /* malloc'ed, NUL-terminated */
	size_t len;
	bool running;
};
/* 0 or -ERR_NOT_FOUND, which one that was deleted or has expired is too. */
int store_response_get(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_response_text *ret, struct error *err);

/* The events of a response that was streamed in the background: bytes of the caller's own form. */
struct store_response_events {
	char *bytes; /* malloc'ed; NULL: there are none */
	size_t len;
	int64_t from; /* the number of the first event in them */
};
/*
 * Adds them to the row of a response that has come to its end, once: 1; 0: there is no such row, or
 * it has some. They count for the quota, as in store_response_put(). bytes is borrowed.
 */
int store_response_events_put(struct store *s, const struct store_scope *scope, struct str id,
        const struct store_response_events *e, uint64_t quota, struct error *err);
/* 0 or -ERR_NOT_FOUND. */
int store_response_events_get(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_response_events *ret, struct error *err);

/* What was said from the first response of a chain to the last. */
struct store_chain_link {
	char *input, *output; /* malloc'ed JSON: a string or an array; an array */
	size_t input_len, output_len;
	char id[STORE_ID_MAX + 1];
};
struct store_chain {
	struct store_chain_link *links; /* the first one first */
	size_t n;
	size_t n_items; /* in all of them */
	uint64_t bytes;
	bool running; /* the last one has not come to its end */
};
/*
 * 0, or -ERR_NOT_FOUND, also where a row before it is there no more; -ERR_TOO_LARGE beyond
 * max_bytes.
 */
int store_response_chain(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, uint64_t max_bytes, struct store_chain *ret, struct error *err);
void store_chain_clear(struct store_chain *c);
/* The JSON of the item of that id that was given out last; malloc'ed. 0 or -ERR_NOT_FOUND. */
int store_response_item(struct store *s, const struct store_scope *scope, struct str item,
        int64_t now_ms, char **ret, size_t *ret_len, struct error *err);
/* Nobody finds it any more; its bytes stay while a later response goes on from it. 0 or
 * -ERR_NOT_FOUND. */
int store_response_delete(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct error *err);
/* For the keeper: removes at most `limit` that nobody may ask for and none goes on from. How many.
 */
int store_responses_expire(struct store *s, int64_t now_ms, uint32_t limit, struct error *err);

/* ---- idempotency keys ---- */

#define STORE_CLAIMS_MAX 1000000 /* of one workspace, within 24 hours */

/* A request that carries a key; everything is borrowed. */
struct store_claim {
	const uint8_t *key, *request; /* 32 bytes each: hashes of the key, and of what was asked */
	struct str holder; /* the gateway that will run it: one name, one process at a time */
	bool harmless;     /* it can run no command: where its process dies it may be run again */
	int64_t now_ms, expires_ms;
};
struct store_answer {
	int status;
	char type[128];
	char *headers; /* lines, or NULL */
	char *body;    /* any bytes; NULL: not kept */
	size_t len;
};
void store_answer_clear(struct store_answer *a); /* frees what it points at */
enum store_claim_state {
	STORE_CLAIM_NEW,   /* nobody has asked that: it is the caller's to run now */
	STORE_CLAIM_RUNS,  /* it is under way */
	STORE_CLAIM_DONE,  /* *ret is what was answered */
	STORE_CLAIM_CUT,   /* it broke off, and may have run commands */
	STORE_CLAIM_LOST,  /* it was answered, and the answer is not kept */
	STORE_CLAIM_OTHER, /* the key stands for another request */
};
/* A state, or -ERR_RATE where the workspace has too many. */
int store_idempotency_claim(struct store *s, const struct store_scope *scope,
        const struct store_claim *c, struct store_answer *ret, struct error *err);
/* What became of a claim of the caller's own. Of the workspace's answers those beyond quota bytes
 * are forgotten, the oldest first. 0 or an error. */
int store_idempotency_finish(struct store *s, const struct store_scope *scope,
        const uint8_t key[32], const struct store_answer *a, uint64_t quota, struct error *err);
/* As if it had not been asked. */
int store_idempotency_release(
        struct store *s, const struct store_scope *scope, const uint8_t key[32], struct error *err);
int store_idempotency_cut(
        struct store *s, const struct store_scope *scope, const uint8_t key[32], struct error *err);
/* The process of that name has died: what it ran is cut, or released where it was harmless. */
int store_idempotency_recover(struct store *s, struct str holder, struct error *err);
/* For the keeper: removes at most `limit` whose time is over. How many. */
int store_idempotency_expire(struct store *s, int64_t now_ms, uint32_t limit, struct error *err);

/* ---- records: what happened in each request, and what it cost ---- */

enum store_record_what {
	STORE_RECORD_OPEN,   /* makes the row, before anything that costs, and those of its runs */
	STORE_RECORD_BEAT,   /* it is under way: sets heartbeat, tokens, sandbox time and costs so
	                        far, and the runs that this record has */
	STORE_RECORD_SETTLE, /* all of it, whether there is a row or not */
};
struct store_record_op {
	enum store_record_what what;
	const struct record *record; /* its account, workspace and id say which row */
};
/* All of them in one transaction, or none. holder: the gateway, as for claims. */
int store_records_write(struct store *s, struct str holder, const struct store_record_op *ops,
        size_t n, struct error *err);
/* 0 or -ERR_NOT_FOUND. With attempts, runs and hits; *ret is the caller's. */
int store_record_get(struct store *s, const struct store_scope *scope, struct str id,
        struct record **ret, struct error *err);

/* Where a row stands in the order of lists, whether it is still there or not. n 0: no place. */
struct store_record_place {
	int64_t begin_ms, n;
};
struct store_record_query {
	struct str after;                 /* id of the last one seen */
	struct store_record_place behind; /* or its place; one of the two at most */
	struct str model, provider, key_hash, session, container, api, user; /* {NULL,0}: all */
	struct str hit;            /* a guardrail did that: "flag", "redact", "block"; "any" */
	struct str text;           /* occurs in the content of request, answer or commands */
	int64_t from_ms, until_ms; /* of the beginning: [from, until); until 0: no end */
	int64_t ended_from_ms;     /* have ended, not before this; 0: all */
	int status;                /* 0: all; 4 and 5: all of 4xx, 5xx; else this one */
	int state;                 /* 0: all; else enum record_state + 1 */
	uint32_t limit;            /* 1 … 1000 */
	bool parts;                /* with attempts, runs, their commands, and hits */
	bool content;              /* with content, that of parts too */
	size_t most_bytes;         /* ends after the row that reaches it; 0: no bound */
};
struct store_record_list {
	struct record **rows; /* newest first */
	size_t n;
	bool has_more;
	struct store_record_place last; /* of the last row */
};
/* An unknown `after` is -ERR_INVALID with param "after". */
int store_record_list(struct store *s, const struct store_scope *scope,
        const struct store_record_query *q, struct store_record_list *ret, struct error *err);
void store_record_list_clear(struct store_record_list *l);
/* What the requests of one day, model and key came to. */
struct store_record_total {
	int64_t day_ms; /* its beginning, UTC */
	char *model, *key_hash; /* malloc'ed, or NULL */
	uint64_t requests, sandbox_ms, input, output; /* tokens */
	int64_t total_cost, sandbox_cost; /* 10^-12 dollars */
};
/* Of those that began in [from, until), by day, model and key; at most `limit` (1 … 10,000). */
int store_record_totals(struct store *s, const struct store_scope *scope, int64_t from_ms,
        int64_t until_ms, uint32_t limit, struct store_record_total **ret, size_t *ret_n,
        struct error *err);
struct store_record_total *store_record_totals_free(
        struct store_record_total *totals, size_t n); /* returns NULL */
/* Removes the content of one, nothing else. 0 or -ERR_NOT_FOUND. */
int store_record_forget(
        struct store *s, const struct store_scope *scope, struct str id, struct error *err);
/*
 * Settles open rows at their last heartbeat, marked: those of a gateway that has gone (holder), or,
 * holder {NULL,0}, all whose heartbeat was before before_ms. Returns how many.
 */
int store_records_recover(struct store *s, struct str holder, int64_t before_ms, struct error *err);
/*
 * Containers that are kept running have records of their own (api "container"), at most one open
 * one each, which no recovery above touches: whoever bills the node's settles them.
 */
struct store_kept_change {
	struct store_scope scope;
	struct str container;
	struct str holder; /* the node that it runs on */
	struct money price_per_second;
	int state;               /* enum record_state: of the open one; RECORD_OPEN: a heartbeat */
	int64_t at_ms;           /* up to when it is priced; 0: its last heartbeat */
	const struct record *next; /* is opened where none is open then, and the container is to be
	                              kept after its begin_ms; NULL: none is */
};
/* What was settled; ret may be NULL. One that began after at_ms stays as it is. 0 or an error. */
struct store_kept_settled {
	uint64_t n, sandbox_ms;
	struct money sandbox_cost;
};
int store_kept_change(struct store *s, const struct store_kept_change *c,
        struct store_kept_settled *ret, struct error *err);
struct store_kept {
	char account[65], workspace[65], container[STORE_ID_MAX + 1];
	int64_t until_ms; /* as its row says; 0: no longer, or the container is gone */
	int64_t begin_ms; /* of its open record; 0: it has none */
	char key_hash[65]; /* of its newest record; "": nobody's */
};
/* Those with an open record of this holder, and those that are to be kept after now_ms and have
 * none; at most limit. free() *ret. */
int store_kept_list(struct store *s, struct str holder, int64_t now_ms, uint32_t limit,
        struct store_kept **ret, size_t *ret_n, struct error *err);
/* For the keeper: removes at most `limit` that began before before_ms and are not open. How many. */
int store_records_expire(struct store *s, int64_t before_ms, uint32_t limit, struct error *err);

/* ---- broadcast: where traces are sent to, and what waits to be sent ---- */

#define STORE_DESTINATIONS_MAX 5 /* of one type in a workspace */

struct store_destination {
	int64_t n; /* its number, which no other ever has; given by the store */
	char id[STORE_ID_MAX + 1];
	char type[24];
	char *account, *workspace; /* malloc'ed; NULL: every one */
	char *body;                /* JSON, secrets too; malloc'ed; NULL where fixed */
	bool enabled;              /* records that end from now on wait for it */
	bool fixed;                /* of brig.yaml, which says what it is */
	bool waiting;              /* something waits for it; read only */
	int64_t created_ms, updated_ms;
};
void store_destination_clear(struct store_destination *d); /* frees what it points at; takes NULL */
struct store_destination *store_destinations_free(
        struct store_destination *list, size_t n); /* returns NULL */
/* d's n, account and workspace are not looked at. -ERR_CONFLICT where the workspace has
 * STORE_DESTINATIONS_MAX of that type. */
int store_destination_create(struct store *s, const struct store_scope *scope,
        const struct store_destination *d, struct error *err);
/* 0 or -ERR_NOT_FOUND, which a fixed one is too. */
int store_destination_get(struct store *s, const struct store_scope *scope, struct str id,
        struct store_destination *ret, struct error *err);
/* Those of a workspace, the oldest first, without fixed ones; scope NULL: all there are. */
int store_destination_list(struct store *s, const struct store_scope *scope,
        struct store_destination **ret, size_t *ret_n, struct error *err);
/* Sets body, enabled and updated_ms of the row that has this id, if it was updated last at seen_ms.
 * 0, -ERR_NOT_FOUND, or -ERR_CONFLICT where another has changed it since. */
int store_destination_update(struct store *s, const struct store_scope *scope,
        const struct store_destination *d, int64_t seen_ms, struct error *err);
/* What waits for it is forgotten later. 0 or -ERR_NOT_FOUND. */
int store_destination_delete(
        struct store *s, const struct store_scope *scope, struct str id, struct error *err);
/* From now on exactly these are the fixed ones; for those that were there before, by id, what waits
 * goes on waiting. Of each: id, type, account, workspace, enabled. */
int store_destinations_fix(struct store *s, const struct store_destination *list, size_t n,
        int64_t now_ms, struct error *err);

/*
 * The outbox: in the transaction that ends a record a row is made for each destination that is
 * enabled and is the record's workspace's or everybody's. Rows of a destination are read and removed
 * in the order in which the records ended.
 */
struct store_delivery {
	int64_t seq;
	struct record *record; /* NULL: it is there no more */
};
/* At most `limit` rows (1 … 1000), and no more after the one with which their texts come to
 * most_bytes. content: with content, where it is stored. */
int store_outbox_read(struct store *s, int64_t destination, bool content, uint32_t limit,
        size_t most_bytes, struct store_delivery **ret, size_t *ret_n, struct error *err);
struct store_delivery *store_deliveries_free(
        struct store_delivery *list, size_t n); /* returns NULL */
/* Removes the destination's rows up to that one, with it. */
int store_outbox_done(
        struct store *s, int64_t destination, int64_t through_seq, struct error *err);
/* Removes the `limit` oldest rows of the destination; how many there were. */
int store_outbox_drop(
        struct store *s, int64_t destination, uint32_t limit, struct error *err);
/* How many rows wait for each destination, also for one that was deleted. free() *ret. */
struct store_outbox_count {
	int64_t destination;
	uint64_t rows;
};
int store_outbox_counts(
        struct store *s, struct store_outbox_count **ret, size_t *ret_n, struct error *err);

/* ---- keys and workspaces ---- */

#define STORE_KEYS_MAX       10000 /* of all accounts together, with those that were revoked of late */
#define STORE_WORKSPACES_MAX 10000
#define STORE_KEY_NAME_MAX   100
#define STORE_KEY_HASH       64 /* hex digits */

struct store_key {
	char hash[STORE_KEY_HASH + 1]; /* of SHA-256 */
	char account[65], workspace[65], name[STORE_KEY_NAME_MAX + 1];
	bool admin;
	int64_t created_ms, expires_ms, revoked_ms;   /* 0: never */
	uint32_t requests_per_minute, containers;     /* 0: no limit */
	bool has_limit;
	int64_t limit; /* 10^-12 dollars */
	uint32_t limit_reset, disabled_tools; /* numbers of the caller's, which it must not change */
};
/* -ERR_CONFLICT where there is one of that hash; -ERR_RATE where there are too many. */
int store_key_create(struct store *s, const struct store_key *k, struct error *err);
/* 0 or -ERR_NOT_FOUND. One that was revoked before stays as it was. */
int store_key_revoke(
        struct store *s, struct str account, struct str hash, int64_t now_ms, struct error *err);
/* What may be changed of a key. */
enum store_key_member {
	STORE_KEY_NAME = 1,
	STORE_KEY_EXPIRES = 2,
	STORE_KEY_REQUESTS = 4,
	STORE_KEY_CONTAINERS = 8,
	STORE_KEY_LIMIT = 16,
	STORE_KEY_RESET = 32,
	STORE_KEY_TOOLS = 64,
};
/* Sets those members of the key of k->account and k->hash, and fills k. -ERR_NOT_FOUND where it was
 * revoked too; -ERR_CONFLICT where limit_reset would stand without a limit. */
int store_key_change(struct store *s, unsigned members, struct store_key *k, struct error *err);
/* Those of an account, revoked ones too, the newest first; account {NULL,0}: all that are in force.
 * free() *ret. */
int store_key_list(struct store *s, struct str account, struct store_key **ret, size_t *ret_n,
        struct error *err);
/* For the keeper: removes at most `limit` that were revoked before before_ms. How many. */
int store_keys_expire(struct store *s, int64_t before_ms, uint32_t limit, struct error *err);

/* What a key's settled requests came to, in 10^-12 dollars: of those that began on these days or
 * later (days since 1970, UTC). Any key, of the store or not. */
int store_key_spent(struct store *s, struct str hash, const int64_t *from_days, size_t n,
        int64_t *ret, struct error *err);

struct store_workspace {
	char account[65], name[65];
	int64_t created_ms;
	bool store_content;
};
/* Makes or changes the row; it keeps its time of making. fresh: -ERR_CONFLICT where there is one.
 * -ERR_RATE where there are too many. */
int store_workspace_put(
        struct store *s, const struct store_workspace *w, bool fresh, struct error *err);
/* Those of an account, by name; account {NULL,0}: all. free() *ret. */
int store_workspace_list(struct store *s, struct str account, struct store_workspace **ret,
        size_t *ret_n, struct error *err);

/* ---- the node's keeper ---- */

/*
 * One gateway of a node runs its timers: the holder of the node's row. Takes the row, or extends
 * it, until now_ms + lease_ms, when it is free, run out, or the holder's own. holder: random, one
 * for each process. *ret_held tells whether the caller is the keeper now.
 */
int store_keeper_take(struct store *s, struct str node, struct str holder, int64_t now_ms,
        int64_t lease_ms, bool *ret_held, struct error *err);
/* Gives the row up, so that another need not wait for the lease to end. */
int store_keeper_drop(struct store *s, struct str node, struct str holder, struct error *err);

/* ---- what egress let through and refused ---- */

/* Of each container the newest so many are kept, and none that outlives it. */
#define STORE_NETWORK_MAX 1000

struct store_network {
	char account[65], workspace[65], container[STORE_ID_MAX + 1]; /* not filled by a list */
	int64_t time_ms;
	char name[256];
	char address[48];
	uint16_t port;
	bool allowed;
	char reason[33];
	uint64_t bytes_in, bytes_out;
	uint32_t more; /* like it, that were not told of */
};
/* Those of containers that have gone are dropped. They count for the runs of records in whose time
 * they are, too, for as long as those are there: the first so many hosts of a run by name. */
#define STORE_RUN_HOSTS_MAX 32
int store_network_add(
        struct store *s, const struct store_network *records, size_t n, struct error *err);
/* The newest first; free() *ret. */
int store_network_list(struct store *s, const struct store_scope *scope, struct str container,
        uint32_t limit, struct store_network **ret, size_t *ret_n, struct error *err);
/* Removes at most `limit` of those that are that old; how many. */
int store_network_expire(struct store *s, int64_t before_ms, uint32_t limit, struct error *err);

/* ---- guardrails ---- */

#define STORE_GUARDRAILS_MAX     256     /* of one workspace */
#define STORE_GUARDRAIL_BODY_MAX 8388608 /* bytes of its JSON */
#define STORE_GUARDRAIL_KEYS_MAX 100000  /* assignments of one workspace */
#define STORE_PHRASE_MIN         3       /* bytes */
#define STORE_PHRASE_MAX         1000

/* A list's part: rows in front of it are only counted. */
struct store_page {
	uint32_t offset, limit; /* limit: at most 1000 */
};

struct store_guardrail {
	char id[STORE_ID_MAX + 1];
	char *workspace, *body; /* malloc'ed, where the store fills it; body: JSON */
	uint32_t n_rules;
	int64_t created_ms, updated_ms;
};
void store_guardrail_clear(struct store_guardrail *g); /* frees what it points at */
struct store_guardrail_list {
	struct store_guardrail *rows; /* the oldest first */
	size_t n;
	uint64_t total; /* on all pages */
};
void store_guardrail_list_clear(struct store_guardrail_list *l);

/*
 * Makes one in that workspace; g->workspace is not read. -ERR_INVALID where all of the workspace
 * would then have more than `most` rules, or it has STORE_GUARDRAILS_MAX.
 */
int store_guardrail_create(struct store *s, const struct store_scope *scope,
        const struct store_guardrail *g, uint32_t most, struct error *err);
/*
 * Sets body, number of rules and updated_ms, where the body still is `before`. -ERR_CONFLICT: it
 * was changed meanwhile; -ERR_NOT_FOUND; -ERR_INVALID as above. Ids are known in their account.
 */
int store_guardrail_change(struct store *s, struct str account, const struct store_guardrail *g,
        struct str before, uint32_t most, struct error *err);
int store_guardrail_get(struct store *s, struct str account, struct str id,
        struct store_guardrail *ret, struct error *err);
int store_guardrail_list(struct store *s, const struct store_scope *scope, struct store_page page,
        struct store_guardrail_list *ret, struct error *err);
/* Its assignments go with it. 0 or -ERR_NOT_FOUND. */
int store_guardrail_delete(struct store *s, struct str account, struct str id, struct error *err);

struct store_guardrail_key {
	char id[STORE_ID_MAX + 1], guardrail[STORE_ID_MAX + 1];
	char key_hash[STORE_KEY_HASH + 1];
	int64_t created_ms;
};
struct store_guardrail_key_list {
	struct store_guardrail_key *rows; /* free() */
	size_t n;
	uint64_t total;
};
/* All of them or none: how many were not assigned before. hashes: 64 digits each. */
int store_guardrail_assign(struct store *s, struct str account, struct str id,
        const struct str *hashes, size_t n, int64_t now_ms, struct error *err);
int store_guardrail_unassign(struct store *s, struct str account, struct str id,
        const struct str *hashes, size_t n, struct error *err); /* how many were */
/* Of the workspace; of one guardrail, where id is not {NULL,0}. */
int store_guardrail_keys(struct store *s, const struct store_scope *scope, struct str id,
        struct store_page page, struct store_guardrail_key_list *ret, struct error *err);

struct store_phrase {
	char id[STORE_ID_MAX + 1];
	char phrase[STORE_PHRASE_MAX + 1];
	int64_t created_ms;
};
/* 1: it is on the list now, 0: it was (whatever its case); *ret is the row. -ERR_INVALID where the
 * workspace has `most` already. */
int store_phrase_allow(struct store *s, const struct store_scope *scope, struct str phrase,
        int64_t now_ms, uint32_t most, struct store_phrase *ret, struct error *err);
/* The oldest first; free() *ret. */
int store_phrase_list(struct store *s, const struct store_scope *scope, struct store_phrase **ret,
        size_t *ret_n, struct error *err);
int store_phrase_disallow(struct store *s, struct str account, struct str id, struct error *err);

/* A workspace whose guardrails, assignments or phrases were changed. */
struct store_guardrail_change {
	char *account, *workspace; /* malloc'ed */
	int64_t version;           /* counts up over all */
};
/* The last change of each workspace, of those after that version, in order; at most `limit`. */
int store_guardrail_changes(struct store *s, int64_t after, uint32_t limit,
        struct store_guardrail_change **ret, size_t *ret_n, struct error *err);
struct store_guardrail_change *store_guardrail_changes_free(
        struct store_guardrail_change *c, size_t n); /* returns NULL */

/* All that holds in one workspace, read at one moment. */
struct store_guardrails_all {
	int64_t version; /* of its last change; 0: none */
	struct store_guardrail *guardrails; /* the oldest first */
	size_t n_guardrails;
	struct store_guardrail_key *keys; /* by guardrail, then hash */
	size_t n_keys;
	struct store_phrase *phrases;
	size_t n_phrases;
};
int store_guardrails_load(struct store *s, const struct store_scope *scope,
        struct store_guardrails_all *ret, struct error *err);
void store_guardrails_all_clear(struct store_guardrails_all *a);

/* ---- what guardrails found ---- */

struct store_hit {
	char generation[64];
	uint32_t number; /* in its generation */
	int64_t begin_ms; /* of the generation */
	char *model, *key_hash; /* malloc'ed or NULL */
	struct record_hit found;
};
void store_hit_clear(struct store_hit *h);
struct store_hit_list {
	struct store_hit *rows;
	size_t n;
	bool has_more;
};
void store_hit_list_clear(struct store_hit_list *l);
/* Of the workspace, the newest first. after: "generation.number" of the last one seen, or {NULL,0};
 * -ERR_INVALID with param "after" where it is unknown. limit: 1 … 1000. */
int store_hit_list(struct store *s, const struct store_scope *scope, struct str after,
        uint32_t limit, struct store_hit_list *ret, struct error *err);
/* Sets or takes back the mark; *ret is the row as it is then. 0 or -ERR_NOT_FOUND. */
int store_hit_mark(struct store *s, const struct store_scope *scope, struct str id, uint32_t number,
        bool wrong, struct store_hit *ret, struct error *err);

#endif
