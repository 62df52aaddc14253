/* Records of what happened, where they are sent to, and what guardrails found: see store.c. */
#include "store/check.h"

#include "base/mem.h"

#include <stdlib.h>

#define RECORD_ID_MAX 63

/* ---- records ---- */

static int check_record_id(const struct store_scope *scope, struct str id, struct error *err)
{
	int r = store_check_scope(scope, err);

	return r < 0 ? r : store_check_text(id, RECORD_ID_MAX, "generation id", err);
}

int store_records_write(struct store *s, struct str holder, const struct store_record_op *ops,
        size_t n, struct error *err)
{
	int r = store_check_text(holder, STORE_SCOPE_MAX, "holder", err);

	return r < 0 ? r : s->backend->records_write(s, holder, ops, n, err);
}

int store_record_get(struct store *s, const struct store_scope *scope, struct str id,
        struct record **ret, struct error *err)
{
	int r = check_record_id(scope, id, err);

	return r < 0 ? r : s->backend->record_get(s, scope, id, ret, err);
}

int store_record_list(struct store *s, const struct store_scope *scope,
        const struct store_record_query *q, struct store_record_list *ret, struct error *err)
{
	int r = store_check_scope(scope, err);

	if (r < 0)
		return r;
	if (q->limit < 1 || q->limit > STORE_LIMIT_MAX)
		return error_param(
		        err, ERR_INVALID, "limit", "limit must be 1 to %d", STORE_LIMIT_MAX);
	return s->backend->record_list(s, scope, q, ret, err);
}

void store_record_list_clear(struct store_record_list *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++)
		record_free(l->rows[i]);
	free(l->rows);
	*l = (struct store_record_list){0};
}

int store_record_totals(struct store *s, const struct store_scope *scope, int64_t from_ms,
        int64_t until_ms, uint32_t limit, struct store_record_total **ret, size_t *ret_n,
        struct error *err)
{
	int r = store_check_scope(scope, err);

	if (r < 0)
		return r;
	if (limit < 1 || limit > 10 * STORE_LIMIT_MAX)
		return error_param(
		        err, ERR_INVALID, "limit", "limit must be 1 to %d", 10 * STORE_LIMIT_MAX);
	return s->backend->record_totals(s, scope, from_ms, until_ms, limit, ret, ret_n, err);
}

struct store_record_total *store_record_totals_free(struct store_record_total *totals, size_t n)
{
	for (size_t i = 0; totals && i < n; i++) {
		free(totals[i].model);
		free(totals[i].key_hash);
	}
	free(totals);
	return NULL;
}

int store_record_forget(
        struct store *s, const struct store_scope *scope, struct str id, struct error *err)
{
	int r = check_record_id(scope, id, err);

	return r < 0 ? r : s->backend->record_forget(s, scope, id, err);
}

int store_records_recover(struct store *s, struct str holder, int64_t before_ms, struct error *err)
{
	return s->backend->records_recover(s, holder, before_ms, err);
}

int store_records_expire(struct store *s, int64_t before_ms, uint32_t limit, struct error *err)
{
	return s->backend->records_expire(s, before_ms, limit, err);
}

/* ---- containers that are kept running ---- */

int store_kept_change(struct store *s, const struct store_kept_change *c,
        struct store_kept_settled *ret, struct error *err)
{
	int r = store_check_container(&c->scope, c->container, err);

	if (r == 0)
		r = store_check_text(c->holder, 300, "holder", err);
	return r < 0 ? r : s->backend->kept_change(s, c, ret, err);
}

int store_kept_list(struct store *s, struct str holder, int64_t now_ms, uint32_t limit,
        struct store_kept **ret, size_t *ret_n, struct error *err)
{
	if (limit < 1 || limit > STORE_LIMIT_MAX)
		return error_param(
		        err, ERR_INVALID, "limit", "limit must be 1 to %d", STORE_LIMIT_MAX);
	return s->backend->kept_list(s, holder, now_ms, limit, ret, ret_n, err);
}

/* ---- broadcast ---- */

void store_destination_clear(struct store_destination *d)
{
	if (!d)
		return;
	free(d->account);
	free(d->workspace);
	if (d->body)
		mem_wipe(d->body, strlen(d->body));
	free(d->body);
	*d = (struct store_destination){0};
}

struct store_destination *store_destinations_free(struct store_destination *list, size_t n)
{
	for (size_t i = 0; list && i < n; i++)
		store_destination_clear(&list[i]);
	free(list);
	return NULL;
}

static int check_destination(const struct store_scope *scope, struct str id, struct error *err)
{
	int r = store_check_scope(scope, err);

	return r < 0 ? r : store_check_text(id, STORE_ID_MAX, "destination id", err);
}

int store_destination_create(struct store *s, const struct store_scope *scope,
        const struct store_destination *d, struct error *err)
{
	int r = check_destination(scope, str_of(d->id), err);

	return r < 0 ? r : s->backend->destination_create(s, scope, d, err);
}

int store_destination_get(struct store *s, const struct store_scope *scope, struct str id,
        struct store_destination *ret, struct error *err)
{
	int r = check_destination(scope, id, err);

	return r < 0 ? r : s->backend->destination_get(s, scope, id, ret, err);
}

int store_destination_list(struct store *s, const struct store_scope *scope,
        struct store_destination **ret, size_t *ret_n, struct error *err)
{
	int r = scope ? store_check_scope(scope, err) : 0;

	return r < 0 ? r : s->backend->destination_list(s, scope, ret, ret_n, err);
}

int store_destination_update(struct store *s, const struct store_scope *scope,
        const struct store_destination *d, int64_t seen_ms, struct error *err)
{
	int r = check_destination(scope, str_of(d->id), err);

	return r < 0 ? r : s->backend->destination_update(s, scope, d, seen_ms, err);
}

int store_destination_delete(
        struct store *s, const struct store_scope *scope, struct str id, struct error *err)
{
	int r = check_destination(scope, id, err);

	return r < 0 ? r : s->backend->destination_delete(s, scope, id, err);
}

int store_destinations_fix(struct store *s, const struct store_destination *list, size_t n,
        int64_t now_ms, struct error *err)
{
	return s->backend->destinations_fix(s, list, n, now_ms, err);
}

int store_outbox_read(struct store *s, int64_t destination, bool content, uint32_t limit,
        size_t most_bytes, struct store_delivery **ret, size_t *ret_n, struct error *err)
{
	if (limit < 1 || limit > STORE_LIMIT_MAX)
		return error_param(
		        err, ERR_INVALID, "limit", "limit must be 1 to %d", STORE_LIMIT_MAX);
	return s->backend->outbox_read(s, destination, content, limit, most_bytes, ret, ret_n, err);
}

struct store_delivery *store_deliveries_free(struct store_delivery *list, size_t n)
{
	for (size_t i = 0; list && i < n; i++)
		record_free(list[i].record);
	free(list);
	return NULL;
}

int store_outbox_done(struct store *s, int64_t destination, int64_t through_seq, struct error *err)
{
	return s->backend->outbox_done(s, destination, through_seq, err);
}

int store_outbox_drop(struct store *s, int64_t destination, uint32_t limit, struct error *err)
{
	return s->backend->outbox_drop(s, destination, limit, err);
}

int store_outbox_counts(
        struct store *s, struct store_outbox_count **ret, size_t *ret_n, struct error *err)
{
	return s->backend->outbox_counts(s, ret, ret_n, err);
}

/* ---- what guardrails found ---- */

void store_hit_clear(struct store_hit *h)
{
	free(h->model);
	free(h->key_hash);
	record_hit_clear(&h->found);
	*h = (struct store_hit){0};
}

void store_hit_list_clear(struct store_hit_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		store_hit_clear(&l->rows[i]);
	free(l->rows);
	*l = (struct store_hit_list){0};
}

int store_hit_list(struct store *s, const struct store_scope *scope, struct str after,
        uint32_t limit, struct store_hit_list *ret, struct error *err)
{
	int r = store_check_scope(scope, err);

	if (r < 0)
		return r;
	if (limit < 1 || limit > STORE_LIMIT_MAX)
		return error_param(
		        err, ERR_INVALID, "limit", "limit must be 1 to %d", STORE_LIMIT_MAX);
	return s->backend->hit_list(s, scope, after, limit, ret, err);
}

int store_hit_mark(struct store *s, const struct store_scope *scope, struct str id, uint32_t number,
        bool wrong, struct store_hit *ret, struct error *err)
{
	int r = check_record_id(scope, id, err);

	return r < 0 ? r : s->backend->hit_mark(s, scope, id, number, wrong, ret, err);
}
