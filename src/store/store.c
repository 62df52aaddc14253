/* Checks what callers give, and hands on to the backend. */
#include "store/check.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>

int store_open(const struct store_options *o, struct store **ret, struct error *err)
{
	return sqlite_open(o, ret, err);
}

struct store *store_close(struct store *s)
{
	return s ? s->backend->close(s) : NULL;
}

/* ---- checks ---- */

int store_check_text(struct str s, size_t max, const char *what, struct error *err)
{
	if (!s.n || s.n > max || memchr(s.p, 0, s.n) || !utf8_valid(s.p, s.n))
		return error_set(err, ERR_INVALID, "%s must be 1 to %zu bytes of text", what, max);
	return 0;
}

int store_check_account(struct str account, struct error *err)
{
	return store_check_text(account, STORE_SCOPE_MAX, "account", err);
}

int store_check_scope(const struct store_scope *scope, struct error *err)
{
	int r = store_check_account(scope->account, err);

	return r < 0 ? r : store_check_text(scope->workspace, STORE_SCOPE_MAX, "workspace", err);
}

int store_check_container(const struct store_scope *scope, struct str id, struct error *err)
{
	int r = store_check_scope(scope, err);

	return r < 0 ? r : store_check_text(id, STORE_ID_MAX, "container id", err);
}

static int check_hash(struct str hash, struct error *err)
{
	if (hash.n != 32 || !str_in_set(hash, "0123456789abcdef"))
		return error_set(err, ERR_INVALID, "a call id's hash has 32 hex digits");
	return 0;
}

/* ---- containers ---- */

void store_container_clear(struct store_container *c)
{
	if (!c)
		return;
	free(c->network);
	free(c->env);
	free(c->metadata);
	*c = (struct store_container){0};
}

void store_list_clear(struct store_list *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++)
		store_container_clear(&l->rows[i]);
	free(l->rows);
	*l = (struct store_list){0};
}

struct store_stale *store_stale_free(struct store_stale *stale, size_t n)
{
	for (size_t i = 0; stale && i < n; i++) {
		free(stale[i].account);
		free(stale[i].workspace);
	}
	free(stale);
	return NULL;
}

int store_container_create(struct store *s, const struct store_scope *scope,
        const struct store_container *c, struct store_container *ret, struct error *err)
{
	int r = store_check_container(scope, str_of(c->id), err);

	return r < 0 ? r : s->backend->container_create(s, scope, c, ret, err);
}

int store_container_touch(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, const struct store_container *fresh, struct error *err)
{
	int r = store_check_container(scope, id, err);

	return r < 0 ? r : s->backend->container_touch(s, scope, id, now_ms, fresh, err);
}

int store_container_get(struct store *s, const struct store_scope *scope, struct str id,
        struct store_container *ret, struct error *err)
{
	int r = store_check_container(scope, id, err);

	return r < 0 ? r : s->backend->container_get(s, scope, id, ret, err);
}

int store_container_keep(struct store *s, const struct store_scope *scope, struct str id,
        int64_t keep_until_ms, struct error *err)
{
	int r = store_check_container(scope, id, err);

	return r < 0 ? r : s->backend->container_keep(s, scope, id, keep_until_ms, err);
}

int store_container_network(struct store *s, const struct store_scope *scope, struct str id,
        struct str network, struct error *err)
{
	int r = store_check_container(scope, id, err);

	return r < 0 ? r : s->backend->container_network(s, scope, id, network, err);
}

int store_container_mark_deleting(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct error *err)
{
	int r = store_check_container(scope, id, err);

	return r < 0 ? r : s->backend->container_mark_deleting(s, scope, id, now_ms, err);
}

int store_container_delete(
        struct store *s, const struct store_scope *scope, struct str id, struct error *err)
{
	int r = store_check_container(scope, id, err);

	return r < 0 ? r : s->backend->container_delete(s, scope, id, err);
}

int store_container_list(struct store *s, const struct store_scope *scope,
        const struct store_list_query *q, struct store_list *ret, struct error *err)
{
	int r = store_check_scope(scope, err);

	if (r < 0)
		return r;
	if (q->limit < 1 || q->limit > STORE_LIMIT_MAX)
		return error_param(
		        err, ERR_INVALID, "limit", "limit must be 1 to %d", STORE_LIMIT_MAX);
	return s->backend->container_list(s, scope, q, ret, err);
}

int store_container_stale(struct store *s, int64_t keep_ms, int64_t now_ms, uint32_t limit,
        struct store_stale **ret, size_t *ret_n, struct error *err)
{
	if (limit < 1 || limit > STORE_LIMIT_MAX)
		return error_param(
		        err, ERR_INVALID, "limit", "limit must be 1 to %d", STORE_LIMIT_MAX);
	return s->backend->container_stale(s, keep_ms, now_ms, limit, ret, ret_n, err);
}

int store_container_expire(
        struct store *s, const struct store_stale *stale, int64_t now_ms, struct error *err)
{
	return s->backend->container_expire(s, stale, now_ms, err);
}

/* ---- call ids ---- */

int store_call_ids_put(struct store *s, const struct store_scope *scope,
        const struct store_call_id *ids, size_t n, int64_t expires_ms, struct error *err)
{
	int r = store_check_scope(scope, err);

	for (size_t i = 0; i < n && r == 0; i++) {
		r = check_hash(ids[i].hash, err);
		if (r == 0 &&
		        (!ids[i].upstream_id.n || ids[i].upstream_id.n > STORE_CALL_VALUE_MAX))
			r = error_set(err, ERR_INVALID, "what is kept of a call has 1 to %d bytes",
			        STORE_CALL_VALUE_MAX);
	}
	if (r < 0 || n == 0)
		return r;
	return s->backend->call_ids_put(s, scope, ids, n, expires_ms, err);
}

int store_call_id_get(struct store *s, const struct store_scope *scope, struct str hash,
        int64_t now_ms, char **ret, size_t *ret_len, struct error *err)
{
	int r = store_check_scope(scope, err);

	if (r == 0)
		r = check_hash(hash, err);
	return r < 0 ? r : s->backend->call_id_get(s, scope, hash, now_ms, ret, ret_len, err);
}

int store_call_ids_expire(struct store *s, int64_t now_ms, uint32_t limit, struct error *err)
{
	return s->backend->call_ids_expire(s, now_ms, limit, err);
}

/* ---- documents ---- */

#define DOCUMENT_LIMIT_MAX 10000

static int check_document_id(const struct store_scope *scope, struct str id, struct error *err)
{
	int r = store_check_scope(scope, err);

	return r < 0 ? r : store_check_text(id, STORE_ID_MAX, "file id", err);
}

int store_document_create(struct store *s, const struct store_scope *scope,
        const struct store_document *d, uint64_t quota, store_do_fn *fn, void *ctx,
        struct error *err)
{
	int r = check_document_id(scope, str_of(d->id), err);

	if (r == 0)
		r = store_check_text(str_of(d->filename), STORE_FILENAME_MAX, "filename", err);
	if (r == 0)
		r = store_check_text(str_of(d->blob), STORE_BLOB_MAX, "blob", err);
	if (r == 0 && d->bytes > INT64_MAX / 2)
		r = error_set(err, ERR_TOO_LARGE, "a file of this size cannot be kept");
	return r < 0 ? r : s->backend->document_create(s, scope, d, quota, fn, ctx, err);
}

int store_document_usage(
        struct store *s, const struct store_scope *scope, uint64_t *ret, struct error *err)
{
	int r = store_check_scope(scope, err);

	return r < 0 ? r : s->backend->document_usage(s, scope, ret, err);
}

int store_document_get(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_document *ret, struct error *err)
{
	int r = check_document_id(scope, id, err);

	return r < 0 ? r : s->backend->document_get(s, scope, id, now_ms, ret, err);
}

int store_document_list(struct store *s, const struct store_scope *scope,
        const struct store_document_query *q, struct store_document_list *ret, struct error *err)
{
	int r = store_check_scope(scope, err);

	if (r == 0 && q->after.p)
		r = store_check_text(q->after, STORE_ID_MAX, "after", err);
	if (r == 0 && q->before.p)
		r = store_check_text(q->before, STORE_ID_MAX, "before", err);
	if (r < 0)
		return r;
	if (q->limit < 1 || q->limit > DOCUMENT_LIMIT_MAX)
		return error_param(
		        err, ERR_INVALID, "limit", "limit must be 1 to %d", DOCUMENT_LIMIT_MAX);
	return s->backend->document_list(s, scope, q, ret, err);
}

void store_document_list_clear(struct store_document_list *l)
{
	if (!l)
		return;
	free(l->rows);
	*l = (struct store_document_list){0};
}

int store_document_delete(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_document *ret, struct error *err)
{
	int r = check_document_id(scope, id, err);

	return r < 0 ? r : s->backend->document_delete(s, scope, id, now_ms, ret, err);
}

int store_document_blob_used(struct store *s, struct str blob, struct error *err)
{
	return s->backend->document_blob_used(s, blob, err);
}

int store_document_blob_unused(
        struct store *s, struct str blob, store_do_fn *fn, void *ctx, struct error *err)
{
	return s->backend->document_blob_unused(s, blob, fn, ctx, err);
}

int store_documents_expire(struct store *s, int64_t now_ms, uint32_t limit, struct error *err)
{
	return s->backend->documents_expire(s, now_ms, limit, err);
}

/* ---- responses ---- */

static int check_response_id(const struct store_scope *scope, struct str id, struct error *err)
{
	int r = store_check_scope(scope, err);

	return r < 0 ? r : store_check_text(id, STORE_ID_MAX, "response id", err);
}

int store_response_put(struct store *s, const struct store_scope *scope,
        const struct store_response *r, uint64_t quota, struct error *err)
{
	int rc = check_response_id(scope, r->id, err);

	if (rc == 0 && r->previous.p)
		rc = store_check_text(r->previous, STORE_ID_MAX, "previous response id", err);
	return rc < 0 ? rc : s->backend->response_put(s, scope, r, quota, err);
}

int store_response_get(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_response_text *ret, struct error *err)
{
	int r = check_response_id(scope, id, err);

	return r < 0 ? r : s->backend->response_get(s, scope, id, now_ms, ret, err);
}

int store_response_events_put(struct store *s, const struct store_scope *scope, struct str id,
        const struct store_response_events *e, uint64_t quota, struct error *err)
{
	int r = check_response_id(scope, id, err);

	return r < 0 ? r : s->backend->response_events_put(s, scope, id, e, quota, err);
}

int store_response_events_get(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct store_response_events *ret, struct error *err)
{
	int r = check_response_id(scope, id, err);

	return r < 0 ? r : s->backend->response_events_get(s, scope, id, now_ms, ret, err);
}

int store_response_chain(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, uint64_t max_bytes, struct store_chain *ret, struct error *err)
{
	int r = check_response_id(scope, id, err);

	return r < 0 ? r : s->backend->response_chain(s, scope, id, now_ms, max_bytes, ret, err);
}

void store_chain_clear(struct store_chain *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n; i++) {
		free(c->links[i].input);
		free(c->links[i].output);
	}
	free(c->links);
	*c = (struct store_chain){0};
}

int store_response_item(struct store *s, const struct store_scope *scope, struct str item,
        int64_t now_ms, char **ret, size_t *ret_len, struct error *err)
{
	int r = store_check_scope(scope, err);

	if (r == 0)
		r = store_check_text(item, STORE_SCOPE_MAX, "item id", err);
	return r < 0 ? r : s->backend->response_item(s, scope, item, now_ms, ret, ret_len, err);
}

int store_response_delete(struct store *s, const struct store_scope *scope, struct str id,
        int64_t now_ms, struct error *err)
{
	int r = check_response_id(scope, id, err);

	return r < 0 ? r : s->backend->response_delete(s, scope, id, now_ms, err);
}

int store_responses_expire(struct store *s, int64_t now_ms, uint32_t limit, struct error *err)
{
	return s->backend->responses_expire(s, now_ms, limit, err);
}

/* ---- idempotency keys ---- */

void store_answer_clear(struct store_answer *a)
{
	free(a->headers);
	free(a->body);
	*a = (struct store_answer){0};
}

int store_idempotency_claim(struct store *s, const struct store_scope *scope,
        const struct store_claim *c, struct store_answer *ret, struct error *err)
{
	int r = store_check_scope(scope, err);

	if (r == 0)
		r = store_check_text(c->holder, STORE_SCOPE_MAX, "holder", err);
	return r < 0 ? r : s->backend->idempotency_claim(s, scope, c, ret, err);
}

int store_idempotency_finish(struct store *s, const struct store_scope *scope,
        const uint8_t key[32], const struct store_answer *a, uint64_t quota, struct error *err)
{
	int r = store_check_scope(scope, err);

	return r < 0 ? r : s->backend->idempotency_finish(s, scope, key, a, quota, err);
}

int store_idempotency_release(
        struct store *s, const struct store_scope *scope, const uint8_t key[32], struct error *err)
{
	int r = store_check_scope(scope, err);

	return r < 0 ? r : s->backend->idempotency_release(s, scope, key, err);
}

int store_idempotency_cut(
        struct store *s, const struct store_scope *scope, const uint8_t key[32], struct error *err)
{
	int r = store_check_scope(scope, err);

	return r < 0 ? r : s->backend->idempotency_cut(s, scope, key, err);
}

int store_idempotency_recover(struct store *s, struct str holder, struct error *err)
{
	int r = store_check_text(holder, STORE_SCOPE_MAX, "holder", err);

	return r < 0 ? r : s->backend->idempotency_recover(s, holder, err);
}

int store_idempotency_expire(struct store *s, int64_t now_ms, uint32_t limit, struct error *err)
{
	return s->backend->idempotency_expire(s, now_ms, limit, err);
}

/* ---- keeper ---- */

int store_keeper_take(struct store *s, struct str node, struct str holder, int64_t now_ms,
        int64_t lease_ms, bool *ret_held, struct error *err)
{
	int r = store_check_text(node, STORE_SCOPE_MAX, "node", err);

	if (r == 0)
		r = store_check_text(holder, STORE_SCOPE_MAX, "holder", err);
	if (r < 0)
		return r;
	return s->backend->keeper_take(s, node, holder, now_ms, lease_ms, ret_held, err);
}

int store_keeper_drop(struct store *s, struct str node, struct str holder, struct error *err)
{
	int r = store_check_text(node, STORE_SCOPE_MAX, "node", err);

	if (r == 0)
		r = store_check_text(holder, STORE_SCOPE_MAX, "holder", err);
	return r < 0 ? r : s->backend->keeper_drop(s, node, holder, err);
}

int store_network_add(
        struct store *s, const struct store_network *records, size_t n, struct error *err)
{
	return s->backend->network_add(s, records, n, err);
}

int store_network_list(struct store *s, const struct store_scope *scope, struct str container,
        uint32_t limit, struct store_network **ret, size_t *ret_n, struct error *err)
{
	int r = store_check_container(scope, container, err);

	return r < 0 ? r : s->backend->network_list(s, scope, container, limit, ret, ret_n, err);
}

int store_network_expire(struct store *s, int64_t before_ms, uint32_t limit, struct error *err)
{
	return s->backend->network_expire(s, before_ms, limit, err);
}

/* ---- keys and workspaces ---- */

static int check_key_hash(struct str hash, struct error *err)
{
	if (hash.n != STORE_KEY_HASH || !str_in_set(hash, "0123456789abcdef"))
		return error_set(
		        err, ERR_INVALID, "a key's hash has %d hex digits", STORE_KEY_HASH);
	return 0;
}

int store_key_create(struct store *s, const struct store_key *k, struct error *err)
{
	const struct store_scope scope = {str_of(k->account), str_of(k->workspace)};
	int r = store_check_scope(&scope, err);

	if (r == 0)
		r = check_key_hash(str_of(k->hash), err);
	if (r == 0)
		r = store_check_text(str_of(k->name), STORE_KEY_NAME_MAX, "name", err);
	return r < 0 ? r : s->backend->key_create(s, k, err);
}

int store_key_revoke(
        struct store *s, struct str account, struct str hash, int64_t now_ms, struct error *err)
{
	int r = check_key_hash(hash, err);

	return r < 0 ? r : s->backend->key_revoke(s, account, hash, now_ms, err);
}

int store_key_change(struct store *s, unsigned members, struct store_key *k, struct error *err)
{
	int r = check_key_hash(str_of(k->hash), err);

	if (r == 0 && (members & STORE_KEY_NAME))
		r = store_check_text(str_of(k->name), STORE_KEY_NAME_MAX, "name", err);
	return r < 0 ? r : s->backend->key_change(s, members, k, err);
}

int store_key_list(struct store *s, struct str account, struct store_key **ret, size_t *ret_n,
        struct error *err)
{
	return s->backend->key_list(s, account, ret, ret_n, err);
}

int store_keys_expire(struct store *s, int64_t before_ms, uint32_t limit, struct error *err)
{
	return s->backend->keys_expire(s, before_ms, limit, err);
}

int store_key_spent(struct store *s, struct str hash, const int64_t *from_days, size_t n,
        int64_t *ret, struct error *err)
{
	int r = check_key_hash(hash, err);

	return r < 0 ? r : s->backend->key_spent(s, hash, from_days, n, ret, err);
}

int store_workspace_put(
        struct store *s, const struct store_workspace *w, bool fresh, struct error *err)
{
	const struct store_scope scope = {str_of(w->account), str_of(w->name)};
	int r = store_check_scope(&scope, err);

	return r < 0 ? r : s->backend->workspace_put(s, w, fresh, err);
}

int store_workspace_list(struct store *s, struct str account, struct store_workspace **ret,
        size_t *ret_n, struct error *err)
{
	return s->backend->workspace_list(s, account, ret, ret_n, err);
}
