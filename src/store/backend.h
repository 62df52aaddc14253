/*
 * The seam behind store.h: one table of functions for each database. store*.c check arguments
 * before they call, so a backend may rely on what store.h says about them. For src/store only.
 */
#ifndef BRIG_STORE_BACKEND_H
#define BRIG_STORE_BACKEND_H

#include "store/store.h"

struct store_backend {
	struct store *(*close)(struct store *s);
	int (*container_create)(struct store *s, const struct store_scope *scope,
	        const struct store_container *c, struct store_container *ret, struct error *err);
	int (*container_touch)(struct store *s, const struct store_scope *scope, struct str id,
	        int64_t now_ms, const struct store_container *fresh, struct error *err);
	int (*container_get)(struct store *s, const struct store_scope *scope, struct str id,
	        struct store_container *ret, struct error *err);
	int (*container_keep)(struct store *s, const struct store_scope *scope, struct str id,
	        int64_t keep_until_ms, struct error *err);
	int (*container_network)(struct store *s, const struct store_scope *scope, struct str id,
	        struct str network, struct error *err);
	int (*container_mark_deleting)(struct store *s, const struct store_scope *scope,
	        struct str id, int64_t now_ms, struct error *err);
	int (*container_delete)(
	        struct store *s, const struct store_scope *scope, struct str id, struct error *err);
	int (*container_list)(struct store *s, const struct store_scope *scope,
	        const struct store_list_query *q, struct store_list *ret, struct error *err);
	int (*container_stale)(struct store *s, int64_t keep_ms, int64_t now_ms, uint32_t limit,
	        struct store_stale **ret, size_t *ret_n, struct error *err);
	int (*container_expire)(struct store *s, const struct store_stale *stale, int64_t now_ms,
	        struct error *err);
	int (*network_add)(
	        struct store *s, const struct store_network *records, size_t n, struct error *err);
	int (*network_list)(struct store *s, const struct store_scope *scope, struct str container,
	        uint32_t limit, struct store_network **ret, size_t *ret_n, struct error *err);
	int (*network_expire)(
	        struct store *s, int64_t before_ms, uint32_t limit, struct error *err);
	int (*call_ids_put)(struct store *s, const struct store_scope *scope,
	        const struct store_call_id *ids, size_t n, int64_t expires_ms, struct error *err);
	int (*call_id_get)(struct store *s, const struct store_scope *scope, struct str hash,
	        int64_t now_ms, char **ret, size_t *ret_len, struct error *err);
	int (*call_ids_expire)(struct store *s, int64_t now_ms, uint32_t limit, struct error *err);
	int (*key_create)(struct store *s, const struct store_key *k, struct error *err);
	int (*key_revoke)(struct store *s, struct str account, struct str hash, int64_t now_ms,
	        struct error *err);
	int (*key_change)(
	        struct store *s, unsigned members, struct store_key *k, struct error *err);
	int (*key_list)(struct store *s, struct str account, struct store_key **ret, size_t *ret_n,
	        struct error *err);
	int (*keys_expire)(struct store *s, int64_t before_ms, uint32_t limit, struct error *err);
	int (*key_spent)(struct store *s, struct str hash, const int64_t *from_days, size_t n,
	        int64_t *ret, struct error *err);
	int (*workspace_put)(
	        struct store *s, const struct store_workspace *w, bool fresh, struct error *err);
	int (*workspace_list)(struct store *s, struct str account, struct store_workspace **ret,
	        size_t *ret_n, struct error *err);
	int (*keeper_take)(struct store *s, struct str node, struct str holder, int64_t now_ms,
	        int64_t lease_ms, bool *ret_held, struct error *err);
	int (*keeper_drop)(struct store *s, struct str node, struct str holder, struct error *err);
	int (*document_create)(struct store *s, const struct store_scope *scope,
	        const struct store_document *d, uint64_t quota, store_do_fn *fn, void *ctx,
	        struct error *err);
	int (*document_usage)(
	        struct store *s, const struct store_scope *scope, uint64_t *ret, struct error *err);
	int (*document_get)(struct store *s, const struct store_scope *scope, struct str id,
	        int64_t now_ms, struct store_document *ret, struct error *err);
	int (*document_list)(struct store *s, const struct store_scope *scope,
	        const struct store_document_query *query, struct store_document_list *ret,
	        struct error *err);
	int (*document_delete)(struct store *s, const struct store_scope *scope, struct str id,
	        int64_t now_ms, struct store_document *ret, struct error *err);
	int (*document_blob_used)(struct store *s, struct str blob, struct error *err);
	int (*document_blob_unused)(
	        struct store *s, struct str blob, store_do_fn *fn, void *ctx, struct error *err);
	int (*documents_expire)(struct store *s, int64_t now_ms, uint32_t limit, struct error *err);
	int (*response_put)(struct store *s, const struct store_scope *scope,
	        const struct store_response *r, uint64_t quota, struct error *err);
	int (*response_get)(struct store *s, const struct store_scope *scope, struct str id,
	        int64_t now_ms, struct store_response_text *ret, struct error *err);
	int (*response_events_put)(struct store *s, const struct store_scope *scope, struct str id,
	        const struct store_response_events *e, uint64_t quota, struct error *err);
	int (*response_events_get)(struct store *s, const struct store_scope *scope, struct str id,
	        int64_t now_ms, struct store_response_events *ret, struct error *err);
	int (*response_chain)(struct store *s, const struct store_scope *scope, struct str id,
	        int64_t now_ms, uint64_t max_bytes, struct store_chain *ret, struct error *err);
	int (*response_item)(struct store *s, const struct store_scope *scope, struct str item,
	        int64_t now_ms, char **ret, size_t *ret_len, struct error *err);
	int (*response_delete)(struct store *s, const struct store_scope *scope, struct str id,
	        int64_t now_ms, struct error *err);
	int (*responses_expire)(struct store *s, int64_t now_ms, uint32_t limit, struct error *err);
	int (*idempotency_claim)(struct store *s, const struct store_scope *scope,
	        const struct store_claim *c, struct store_answer *ret, struct error *err);
	int (*idempotency_finish)(struct store *s, const struct store_scope *scope,
	        const uint8_t key[32], const struct store_answer *a, uint64_t quota,
	        struct error *err);
	int (*idempotency_release)(struct store *s, const struct store_scope *scope,
	        const uint8_t key[32], struct error *err);
	int (*idempotency_cut)(struct store *s, const struct store_scope *scope,
	        const uint8_t key[32], struct error *err);
	int (*idempotency_recover)(struct store *s, struct str holder, struct error *err);
	int (*idempotency_expire)(
	        struct store *s, int64_t now_ms, uint32_t limit, struct error *err);
	int (*records_write)(struct store *s, struct str holder, const struct store_record_op *ops, size_t n, struct error *err);
	int (*record_get)(struct store *s, const struct store_scope *scope, struct str id, struct record **ret, struct error *err);
	int (*record_list)(struct store *s, const struct store_scope *scope, const struct store_record_query *query, struct store_record_list *ret, struct error *err);
	int (*record_totals)(struct store *s, const struct store_scope *scope, int64_t from_ms,
        int64_t until_ms, uint32_t limit, struct store_record_total **ret, size_t *ret_n,
        struct error *err);
	int (*record_forget)(struct store *s, const struct store_scope *scope, struct str id, struct error *err);
	int (*records_recover)(struct store *s, struct str holder, int64_t before_ms, struct error *err);
	int (*kept_change)(struct store *s, const struct store_kept_change *c,
	        struct store_kept_settled *ret, struct error *err);
	int (*kept_list)(struct store *s, struct str holder, int64_t now_ms, uint32_t limit,
	        struct store_kept **ret, size_t *ret_n, struct error *err);
	int (*records_expire)(struct store *s, int64_t before_ms, uint32_t limit, struct error *err);
	int (*destination_create)(struct store *s, const struct store_scope *scope,
	        const struct store_destination *d, struct error *err);
	int (*destination_get)(struct store *s, const struct store_scope *scope, struct str id,
	        struct store_destination *ret, struct error *err);
	int (*destination_list)(struct store *s, const struct store_scope *scope,
	        struct store_destination **ret, size_t *ret_n, struct error *err);
	int (*destination_update)(struct store *s, const struct store_scope *scope,
	        const struct store_destination *d, int64_t seen_ms, struct error *err);
	int (*destination_delete)(
	        struct store *s, const struct store_scope *scope, struct str id, struct error *err);
	int (*destinations_fix)(struct store *s, const struct store_destination *list, size_t n,
	        int64_t now_ms, struct error *err);
	int (*outbox_read)(struct store *s, int64_t destination, bool content, uint32_t limit,
	        size_t most_bytes, struct store_delivery **ret, size_t *ret_n, struct error *err);
	int (*outbox_done)(
	        struct store *s, int64_t destination, int64_t through_seq, struct error *err);
	int (*outbox_drop)(
	        struct store *s, int64_t destination, uint32_t limit, struct error *err);
	int (*outbox_counts)(struct store *s, struct store_outbox_count **ret, size_t *ret_n,
	        struct error *err);
	int (*guardrail_create)(struct store *s, const struct store_scope *scope, const struct store_guardrail *g, uint32_t most, struct error *err);
	int (*guardrail_change)(struct store *s, struct str account, const struct store_guardrail *g, struct str before, uint32_t most, struct error *err);
	int (*guardrail_get)(struct store *s, struct str account, struct str id, struct store_guardrail *ret, struct error *err);
	int (*guardrail_list)(struct store *s, const struct store_scope *scope, struct store_page page, struct store_guardrail_list *ret, struct error *err);
	int (*guardrail_delete)(struct store *s, struct str account, struct str id, struct error *err);
	int (*guardrail_assign)(struct store *s, struct str account, struct str id, const struct str *hashes, size_t n, int64_t now_ms, struct error *err);
	int (*guardrail_unassign)(struct store *s, struct str account, struct str id, const struct str *hashes, size_t n, struct error *err);
	int (*guardrail_keys)(struct store *s, const struct store_scope *scope, struct str id, struct store_page page, struct store_guardrail_key_list *ret, struct error *err);
	int (*phrase_allow)(struct store *s, const struct store_scope *scope, struct str phrase, int64_t now_ms, uint32_t most, struct store_phrase *ret, struct error *err);
	int (*phrase_list)(struct store *s, const struct store_scope *scope, struct store_phrase **ret, size_t *ret_n, struct error *err);
	int (*phrase_disallow)(struct store *s, struct str account, struct str id, struct error *err);
	int (*guardrail_changes)(struct store *s, int64_t after, uint32_t limit, struct store_guardrail_change **ret, size_t *ret_n, struct error *err);
	int (*guardrail_load)(struct store *s, const struct store_scope *scope, struct store_guardrails_all *ret, struct error *err);
	int (*hit_list)(struct store *s, const struct store_scope *scope, struct str after, uint32_t limit, struct store_hit_list *ret, struct error *err);
	int (*hit_mark)(struct store *s, const struct store_scope *scope, struct str id, uint32_t number, bool wrong, struct store_hit *ret, struct error *err);
};

/* A backend's own struct begins with this. */
struct store {
	const struct store_backend *backend;
};

int sqlite_open(const struct store_options *o, struct store **ret, struct error *err);

/* Steps from one schema to the next, in order; the first is number 1. Made at build from
 * migrations/. */
struct store_migration {
	const char *name;
	const char *sql;
};
extern const struct store_migration migrations_sqlite[];
extern const unsigned migrations_sqlite_n;

#endif
