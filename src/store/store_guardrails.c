/* Guardrails, whom they hold for, and phrases that are allowed: see store.c. */
#include "store/check.h"

#include "base/mem.h"

#include <stdlib.h>

void store_guardrail_clear(struct store_guardrail *g)
{
	free(g->workspace);
	free(g->body);
	*g = (struct store_guardrail){0};
}

void store_guardrail_list_clear(struct store_guardrail_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		store_guardrail_clear(&l->rows[i]);
	free(l->rows);
	*l = (struct store_guardrail_list){0};
}

struct store_guardrail_change *store_guardrail_changes_free(
        struct store_guardrail_change *c, size_t n)
{
	for (size_t i = 0; c && i < n; i++) {
		free(c[i].account);
		free(c[i].workspace);
	}
	free(c);
	return NULL;
}

void store_guardrails_all_clear(struct store_guardrails_all *a)
{
	for (size_t i = 0; i < a->n_guardrails; i++)
		store_guardrail_clear(&a->guardrails[i]);
	free(a->guardrails);
	free(a->keys);
	free(a->phrases);
	*a = (struct store_guardrails_all){0};
}

static int check_id(struct str account, struct str id, struct error *err)
{
	int r = store_check_account(account, err);

	return r < 0 ? r : store_check_text(id, STORE_ID_MAX, "id", err);
}

static int check_body(const struct store_guardrail *g, struct error *err)
{
	return store_check_text(str_of(g->body), STORE_GUARDRAIL_BODY_MAX, "a guardrail", err);
}

static int check_page(struct store_page page, struct error *err)
{
	if (page.limit > STORE_LIMIT_MAX)
		return error_param(
		        err, ERR_INVALID, "limit", "limit must be at most %d", STORE_LIMIT_MAX);
	return 0;
}

int store_guardrail_create(struct store *s, const struct store_scope *scope,
        const struct store_guardrail *g, uint32_t most, struct error *err)
{
	int r = store_check_scope(scope, err);

	if (r == 0)
		r = check_id(scope->account, str_of(g->id), err);
	if (r == 0)
		r = check_body(g, err);
	return r < 0 ? r : s->backend->guardrail_create(s, scope, g, most, err);
}

int store_guardrail_change(struct store *s, struct str account, const struct store_guardrail *g,
        struct str before, uint32_t most, struct error *err)
{
	int r = check_id(account, str_of(g->id), err);

	if (r == 0)
		r = check_body(g, err);
	return r < 0 ? r : s->backend->guardrail_change(s, account, g, before, most, err);
}

int store_guardrail_get(struct store *s, struct str account, struct str id,
        struct store_guardrail *ret, struct error *err)
{
	int r = check_id(account, id, err);

	return r < 0 ? r : s->backend->guardrail_get(s, account, id, ret, err);
}

int store_guardrail_list(struct store *s, const struct store_scope *scope, struct store_page page,
        struct store_guardrail_list *ret, struct error *err)
{
	int r = store_check_scope(scope, err);

	if (r == 0)
		r = check_page(page, err);
	return r < 0 ? r : s->backend->guardrail_list(s, scope, page, ret, err);
}

int store_guardrail_delete(struct store *s, struct str account, struct str id, struct error *err)
{
	int r = check_id(account, id, err);

	return r < 0 ? r : s->backend->guardrail_delete(s, account, id, err);
}

static int check_hashes(const struct str *hashes, size_t n, struct error *err)
{
	for (size_t i = 0; i < n; i++)
		if (hashes[i].n != STORE_KEY_HASH || !str_in_set(hashes[i], "0123456789abcdef"))
			return error_set(
			        err, ERR_INVALID, "a key's hash has %d hex digits", STORE_KEY_HASH);
	return 0;
}

int store_guardrail_assign(struct store *s, struct str account, struct str id,
        const struct str *hashes, size_t n, int64_t now_ms, struct error *err)
{
	int r = check_id(account, id, err);

	if (r == 0)
		r = check_hashes(hashes, n, err);
	return r < 0 ? r : s->backend->guardrail_assign(s, account, id, hashes, n, now_ms, err);
}

int store_guardrail_unassign(struct store *s, struct str account, struct str id,
        const struct str *hashes, size_t n, struct error *err)
{
	int r = check_id(account, id, err);

	if (r == 0)
		r = check_hashes(hashes, n, err);
	return r < 0 ? r : s->backend->guardrail_unassign(s, account, id, hashes, n, err);
}

int store_guardrail_keys(struct store *s, const struct store_scope *scope, struct str id,
        struct store_page page, struct store_guardrail_key_list *ret, struct error *err)
{
	int r = store_check_scope(scope, err);

	if (r == 0)
		r = check_page(page, err);
	return r < 0 ? r : s->backend->guardrail_keys(s, scope, id, page, ret, err);
}

int store_phrase_allow(struct store *s, const struct store_scope *scope, struct str phrase,
        int64_t now_ms, uint32_t most, struct store_phrase *ret, struct error *err)
{
	int r = store_check_scope(scope, err);

	if (r == 0)
		r = store_check_text(phrase, STORE_PHRASE_MAX, "a phrase", err);
	if (r == 0 && phrase.n < STORE_PHRASE_MIN)
		r = error_set(err, ERR_INVALID, "a phrase has at least %d bytes", STORE_PHRASE_MIN);
	return r < 0 ? r : s->backend->phrase_allow(s, scope, phrase, now_ms, most, ret, err);
}

int store_phrase_list(struct store *s, const struct store_scope *scope, struct store_phrase **ret,
        size_t *ret_n, struct error *err)
{
	int r = store_check_scope(scope, err);

	return r < 0 ? r : s->backend->phrase_list(s, scope, ret, ret_n, err);
}

int store_phrase_disallow(struct store *s, struct str account, struct str id, struct error *err)
{
	int r = check_id(account, id, err);

	return r < 0 ? r : s->backend->phrase_disallow(s, account, id, err);
}

int store_guardrail_changes(struct store *s, int64_t after, uint32_t limit,
        struct store_guardrail_change **ret, size_t *ret_n, struct error *err)
{
	return s->backend->guardrail_changes(s, after, limit, ret, ret_n, err);
}

int store_guardrails_load(struct store *s, const struct store_scope *scope,
        struct store_guardrails_all *ret, struct error *err)
{
	int r = store_check_scope(scope, err);

	return r < 0 ? r : s->backend->guardrail_load(s, scope, ret, err);
}
