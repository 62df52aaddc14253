/*
 * What the files of the SQLite backend share: the connection behind its lock, and statements. Every
 * call of the backend takes the lock first (_locked_) and gives it back when it returns; the rest
 * here is for its holder. For src/store only.
 */
#ifndef BRIG_STORE_SQLITE_H
#define BRIG_STORE_SQLITE_H

#include "store/backend.h"

#include <pthread.h>
#include <sqlite3.h>

#define SQLITE_MAIN_STATEMENTS        8
#define SQLITE_CONTAINER_STATEMENTS   16
#define SQLITE_DOCUMENT_STATEMENTS    16
#define SQLITE_NETWORK_STATEMENTS     4
#define SQLITE_RESPONSE_STATEMENTS    24
#define SQLITE_IDEMPOTENCY_STATEMENTS 16
#define SQLITE_RECORD_STATEMENTS      28
#define SQLITE_BROADCAST_STATEMENTS   16
#define SQLITE_GUARDRAIL_STATEMENTS   28
#define SQLITE_HIT_STATEMENTS         4
#define SQLITE_KEY_STATEMENTS         12
#define SQLITE_KEPT_STATEMENTS        4
#define SQLITE_RUN_NETWORK_STATEMENTS 8

struct sqlite_checkpoint;

struct sqlite {
	struct store store;
	pthread_mutex_t lock;
	sqlite3 *db;
	struct sqlite_checkpoint *checkpoint;
	sqlite3_stmt *main[SQLITE_MAIN_STATEMENTS]; /* prepared when first used: sqlite.c */
	sqlite3_stmt *containers[SQLITE_CONTAINER_STATEMENTS];    /* and sqlite_containers.c */
	sqlite3_stmt *documents[SQLITE_DOCUMENT_STATEMENTS];      /* and sqlite_documents.c */
	sqlite3_stmt *network[SQLITE_NETWORK_STATEMENTS];         /* and sqlite_network.c */
	sqlite3_stmt *responses[SQLITE_RESPONSE_STATEMENTS];      /* and sqlite_responses.c */
	sqlite3_stmt *idempotency[SQLITE_IDEMPOTENCY_STATEMENTS]; /* and sqlite_idempotency.c */
	sqlite3_stmt *records[SQLITE_RECORD_STATEMENTS];          /* and sqlite_records.c */
	sqlite3_stmt *broadcast[SQLITE_BROADCAST_STATEMENTS];     /* and sqlite_broadcast.c */
	sqlite3_stmt *guardrails[SQLITE_GUARDRAIL_STATEMENTS];    /* and sqlite_guardrails.c */
	sqlite3_stmt *hits[SQLITE_HIT_STATEMENTS];                /* and sqlite_hits.c */
	sqlite3_stmt *keys[SQLITE_KEY_STATEMENTS];                /* and sqlite_keys.c */
	sqlite3_stmt *kept[SQLITE_KEPT_STATEMENTS];               /* and sqlite_kept.c */
	sqlite3_stmt *run_network[SQLITE_RUN_NETWORK_STATEMENTS]; /* and sqlite_run_network.c */
};

struct sqlite *sqlite_lock(struct store *s);
void sqlite_unlock(struct sqlite **q);
#define _locked_ __attribute__((cleanup(sqlite_unlock)))

/* Fills err for what the connection failed at last. */
int sqlite_fail(struct sqlite *q, const char *step, struct error *err);
/* The statement in *st, prepared from sql when it is not yet, ready to be bound; NULL with err set.
 */
sqlite3_stmt *sqlite_statement(
        struct sqlite *q, sqlite3_stmt **st, const char *sql, struct error *err);
/* Texts are borrowed until the statement is reset, which every caller does before it returns.
 * {NULL, 0} is NULL. */
void sqlite_bind_str(sqlite3_stmt *st, int at, struct str s);
/* ?1, ?2, ?3 */
void sqlite_bind_key(sqlite3_stmt *st, const struct store_scope *scope, struct str id);
void sqlite_reset_statement(sqlite3_stmt *st);
/* Runs a statement that gives no rows, and resets it. Returns how many rows it changed. */
int sqlite_run(struct sqlite *q, sqlite3_stmt *st, const char *step, struct error *err);
/* The same for one that removes what is older than ?1, ?2 rows at most. st NULL: -ERR_IO, err is set. */
int sqlite_run_expiry(
        struct sqlite *q, sqlite3_stmt *st, int64_t ms, uint32_t limit, const char *step, struct error *err);
/* What a workspace holds: bytes, and where ret_n is not NULL how many rows; one without a row of this
 * holds nothing. st NULL: -ERR_IO, err is set. */
int sqlite_usage(struct sqlite *q, sqlite3_stmt *st, const struct store_scope *scope,
        const char *step, uint64_t *ret_bytes, uint64_t *ret_n, struct error *err);
/* BEGIN IMMEDIATE: waits for other writers. */
int sqlite_begin(struct sqlite *q, struct error *err);
/* Ends a transaction: commits when r is good, else takes all of it back. Returns r, or why the
 * commit failed. */
int sqlite_finish(struct sqlite *q, int r, struct error *err);
struct str sqlite_column_str(sqlite3_stmt *st, int at); /* until the next step */
char *sqlite_column_dup(sqlite3_stmt *st, int at);      /* malloc'ed; NULL for NULL */

/* ---- sqlite_checkpoint.c ---- */

/* From now on commits of db do not wait for the WAL to be emptied. */
struct sqlite_checkpoint *sqlite_checkpoint_new(sqlite3 *db, const char *path);
/* While db is open and nobody uses it. Takes NULL; returns NULL. */
struct sqlite_checkpoint *sqlite_checkpoint_free(struct sqlite_checkpoint *c);

/* ---- sqlite_containers.c: the calls of the backend's table ---- */

int sqlite_containers_create(struct store *s, const struct store_scope *scope,
        const struct store_container *c, struct store_container *ret, struct error *err);
int sqlite_containers_touch(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, const struct store_container *fresh, struct error *err);
int sqlite_containers_get(struct store *s, const struct store_scope *scope, struct str id,
        struct store_container *ret, struct error *err);
int sqlite_containers_keep(struct store *s, const struct store_scope *scope, struct str id,
        int64_t keep_until_ms, struct error *err);
int sqlite_containers_network(struct store *s, const struct store_scope *scope, struct str id,
        struct str network, struct error *err);
int sqlite_containers_mark_deleting(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct error *err);
int sqlite_containers_delete(
        struct store *s, const struct store_scope *scope, struct str id, struct error *err);
int sqlite_containers_list(struct store *s, const struct store_scope *scope,
        const struct store_list_query *query, struct store_list *ret, struct error *err);
int sqlite_containers_stale(struct store *s, int64_t keep_ms, int64_t now_ms, uint32_t limit,
        struct store_stale **ret, size_t *ret_n, struct error *err);
int sqlite_containers_expire(
        struct store *s, const struct store_stale *stale, int64_t now_ms, struct error *err);

/* ---- sqlite_documents.c ---- */

int sqlite_documents_create(struct store *s, const struct store_scope *scope,
        const struct store_document *d, uint64_t quota, store_do_fn *fn, void *ctx,
        struct error *err);
int sqlite_documents_usage(
        struct store *s, const struct store_scope *scope, uint64_t *ret, struct error *err);
int sqlite_documents_get(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_document *ret, struct error *err);
int sqlite_documents_list(struct store *s, const struct store_scope *scope,
        const struct store_document_query *query, struct store_document_list *ret,
        struct error *err);
int sqlite_documents_delete(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_document *ret, struct error *err);
int sqlite_documents_blob_used(struct store *s, struct str blob, struct error *err);
int sqlite_documents_blob_unused(
        struct store *s, struct str blob, store_do_fn *fn, void *ctx, struct error *err);
int sqlite_documents_expire(struct store *s, int64_t now_ms, uint32_t limit, struct error *err);

/* ---- sqlite_network.c ---- */

int sqlite_network_add(
        struct store *s, const struct store_network *records, size_t n, struct error *err);
int sqlite_network_list(struct store *s, const struct store_scope *scope, struct str container,
        uint32_t limit, struct store_network **ret, size_t *ret_n, struct error *err);
int sqlite_network_expire(struct store *s, int64_t before_ms, uint32_t limit, struct error *err);

/* ---- sqlite_run_network.c: within a transaction ---- */

struct record;
struct sqlite_run {
	struct store_scope scope;
	int64_t record;
	size_t number;
	struct str container;
};
/* A verdict, for the runs that have their row. */
int sqlite_run_network_add(struct sqlite *q, const struct store_network *n, struct error *err);
/* A run has its row. end_ms 0: it is under way. */
int sqlite_run_network_begin(struct sqlite *q, const struct sqlite_run *run, int64_t begin_ms,
        int64_t end_ms, struct error *err);
/* One that was under way is not any more. */
int sqlite_run_network_end(
        struct sqlite *q, const struct sqlite_run *run, int64_t end_ms, struct error *err);
/* Gives the runs of r, the record of that number, their hosts. */
int sqlite_run_network_read(struct sqlite *q, int64_t n, struct record *r, struct error *err);

/* ---- sqlite_responses.c ---- */

int sqlite_responses_put(struct store *s, const struct store_scope *scope,
        const struct store_response *r, uint64_t quota, struct error *err);
int sqlite_responses_get(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_response_text *ret, struct error *err);
int sqlite_responses_events_put(struct store *s, const struct store_scope *scope, struct str id,
        const struct store_response_events *e, uint64_t quota, struct error *err);
int sqlite_responses_events_get(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_response_events *ret, struct error *err);
int sqlite_responses_chain(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, uint64_t max_bytes, struct store_chain *ret, struct error *err);
int sqlite_responses_item(struct store *s, const struct store_scope *scope, struct str item,
        int64_t now_ms, char **ret, size_t *ret_len, struct error *err);
int sqlite_responses_delete(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct error *err);
int sqlite_responses_expire(struct store *s, int64_t now_ms, uint32_t limit, struct error *err);

/* ---- sqlite_idempotency.c ---- */

int sqlite_idempotency_claim(struct store *s, const struct store_scope *scope,
        const struct store_claim *c, struct store_answer *ret, struct error *err);
int sqlite_idempotency_finish(struct store *s, const struct store_scope *scope,
        const uint8_t key[32], const struct store_answer *a, uint64_t quota, struct error *err);
int sqlite_idempotency_release(
        struct store *s, const struct store_scope *scope, const uint8_t key[32], struct error *err);
int sqlite_idempotency_cut(
        struct store *s, const struct store_scope *scope, const uint8_t key[32], struct error *err);
int sqlite_idempotency_recover(struct store *s, struct str holder, struct error *err);
int sqlite_idempotency_expire(struct store *s, int64_t now_ms, uint32_t limit, struct error *err);

/* ---- sqlite_keys.c ---- */

int sqlite_keys_create(struct store *s, const struct store_key *k, struct error *err);
int sqlite_keys_revoke(
        struct store *s, struct str account, struct str hash, int64_t now_ms, struct error *err);
int sqlite_keys_change(
        struct store *s, unsigned members, struct store_key *k, struct error *err);
int sqlite_keys_list(struct store *s, struct str account, struct store_key **ret, size_t *ret_n,
        struct error *err);
int sqlite_keys_expire(struct store *s, int64_t before_ms, uint32_t limit, struct error *err);
int sqlite_keys_spent(struct store *s, struct str hash, const int64_t *from_days, size_t n,
        int64_t *ret, struct error *err);
int sqlite_keys_workspace_put(
        struct store *s, const struct store_workspace *w, bool fresh, struct error *err);
int sqlite_keys_workspace_list(struct store *s, struct str account, struct store_workspace **ret,
        size_t *ret_n, struct error *err);

/* ---- sqlite_records.c ---- */

int sqlite_records_write(struct store *s, struct str holder, const struct store_record_op *ops, size_t n, struct error *err);
int sqlite_records_get(struct store *s, const struct store_scope *scope, struct str id, struct record **ret, struct error *err);
int sqlite_records_list(struct store *s, const struct store_scope *scope, const struct store_record_query *query, struct store_record_list *ret, struct error *err);
int sqlite_records_totals(struct store *s, const struct store_scope *scope, int64_t from_ms,
        int64_t until_ms, uint32_t limit, struct store_record_total **ret, size_t *ret_n,
        struct error *err);
int sqlite_records_forget(struct store *s, const struct store_scope *scope, struct str id, struct error *err);
int sqlite_records_recover(struct store *s, struct str holder, int64_t before_ms, struct error *err);
int sqlite_records_expire(struct store *s, int64_t before_ms, uint32_t limit, struct error *err);
/* The row alone, within the caller's transaction. */
int sqlite_records_put(
        struct sqlite *q, struct str holder, const struct record *r, struct error *err);

/* ---- sqlite_kept.c ---- */

int sqlite_kept_change(struct store *s, const struct store_kept_change *c,
        struct store_kept_settled *ret, struct error *err);
int sqlite_kept_list(struct store *s, struct str holder, int64_t now_ms, uint32_t limit,
        struct store_kept **ret, size_t *ret_n, struct error *err);
/* For the lock's holder. The record in that row with its parts; *ret NULL: there is none. */
int sqlite_records_at(
        struct sqlite *q, int64_t n, bool content, struct record **ret, struct error *err);
size_t sqlite_records_bytes(const struct record *r); /* about what it takes: texts that may be long */

/* ---- sqlite_broadcast.c ---- */

int sqlite_broadcast_create(struct store *s, const struct store_scope *scope,
        const struct store_destination *d, struct error *err);
int sqlite_broadcast_get(struct store *s, const struct store_scope *scope, struct str id,
        struct store_destination *ret, struct error *err);
int sqlite_broadcast_list(struct store *s, const struct store_scope *scope,
        struct store_destination **ret, size_t *ret_n, struct error *err);
int sqlite_broadcast_update(struct store *s, const struct store_scope *scope,
        const struct store_destination *d, int64_t seen_ms, struct error *err);
int sqlite_broadcast_delete(
        struct store *s, const struct store_scope *scope, struct str id, struct error *err);
int sqlite_broadcast_fix(struct store *s, const struct store_destination *list, size_t n,
        int64_t now_ms, struct error *err);
int sqlite_broadcast_read(struct store *s, int64_t destination, bool content, uint32_t limit,
        size_t most_bytes, struct store_delivery **ret, size_t *ret_n, struct error *err);
int sqlite_broadcast_done(
        struct store *s, int64_t destination, int64_t through_seq, struct error *err);
int sqlite_broadcast_drop(struct store *s, int64_t destination, uint32_t limit, struct error *err);
int sqlite_broadcast_counts(
        struct store *s, struct store_outbox_count **ret, size_t *ret_n, struct error *err);

/* ---- sqlite_guardrails.c ---- */

int sqlite_guardrails_create(struct store *s, const struct store_scope *scope, const struct store_guardrail *g, uint32_t most, struct error *err);
int sqlite_guardrails_change(struct store *s, struct str account, const struct store_guardrail *g, struct str before, uint32_t most, struct error *err);
int sqlite_guardrails_get(struct store *s, struct str account, struct str id, struct store_guardrail *ret, struct error *err);
int sqlite_guardrails_list(struct store *s, const struct store_scope *scope, struct store_page page, struct store_guardrail_list *ret, struct error *err);
int sqlite_guardrails_delete(struct store *s, struct str account, struct str id, struct error *err);
int sqlite_guardrails_assign(struct store *s, struct str account, struct str id, const struct str *hashes, size_t n, int64_t now_ms, struct error *err);
int sqlite_guardrails_unassign(struct store *s, struct str account, struct str id, const struct str *hashes, size_t n, struct error *err);
int sqlite_guardrails_keys(struct store *s, const struct store_scope *scope, struct str id, struct store_page page, struct store_guardrail_key_list *ret, struct error *err);
int sqlite_guardrails_allow(struct store *s, const struct store_scope *scope, struct str phrase, int64_t now_ms, uint32_t most, struct store_phrase *ret, struct error *err);
int sqlite_guardrails_phrases(struct store *s, const struct store_scope *scope, struct store_phrase **ret, size_t *ret_n, struct error *err);
int sqlite_guardrails_disallow(struct store *s, struct str account, struct str id, struct error *err);
int sqlite_guardrails_changes(struct store *s, int64_t after, uint32_t limit, struct store_guardrail_change **ret, size_t *ret_n, struct error *err);
int sqlite_guardrails_load(struct store *s, const struct store_scope *scope, struct store_guardrails_all *ret, struct error *err);

/* ---- sqlite_hits.c ---- */

int sqlite_hits_list(struct store *s, const struct store_scope *scope, struct str after, uint32_t limit, struct store_hit_list *ret, struct error *err);
int sqlite_hits_mark(struct store *s, const struct store_scope *scope, struct str id, uint32_t number, bool wrong, struct store_hit *ret, struct error *err);

#endif
