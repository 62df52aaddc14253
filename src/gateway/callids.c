/*
 * What a call's public id cannot carry, in rows that live 30 days: written when the call is shown to
 * the client, looked up when it comes back in a replayed conversation.
 *
 *     an upstream id that does not fit into ours (conversation.h)   by the hash in the public id
 *     a provider's sealed state of the call (a thought signature)   by a hash of the public id,
 *                                                                   where the client has no place for it
 *
 * A row that is gone costs a prompt cache or what a provider had thought, nothing else: the public
 * id then goes to the upstream, and the call without its state.
 */
#include "gateway/turn_run.h"

#include "base/id.h"

#include <stdlib.h>

#define KEEP_MS  ((int64_t)30 * 24 * 3600 * 1000)
#define MAX_IDS  4096 /* looked up for one request */
#define FORGET   16   /* expired rows that go for each new one, so that there never are many */
#define HASH_LEN 32
#define STATE_MAX STORE_CALL_VALUE_MAX /* of a sealed state; a longer one is not kept */

static bool is_hashed(const struct item *it, struct str *ret_hash)
{
	struct str id = it->call.public_id;

	if (it->type != ITEM_CALL || id.n < HASH_LEN)
		return false;
	*ret_hash = (struct str){id.p + id.n - HASH_LEN, HASH_LEN};
	return conversation_upstream_id(id, true).p == NULL;
}

/* Of the row that holds a call's state. */
static void state_hash(struct str public_id, char out[HASH_LEN + 1])
{
	const struct str parts[] = {STR("state"), public_id};
	uint8_t hash[32];

	id_sha256_parts(parts, 2, hash);
	id_hex(hash, HASH_LEN / 2, out);
}

/* Gemini's clients hold a call's state themselves; no other dialect has a place for it. */
static bool state_has_row(const struct conversation *c, const struct item *it)
{
	return it->type == ITEM_CALL && it->call.public_id.n > 0 && c->dialect != DIALECT_GEMINI;
}

/* ---- writing ---- */

struct put_job {
	struct gateway *g;
	const struct config_key *key;
	char *hash, *value;
	size_t value_len;
};

static void put_work(void *arg)
{
	struct put_job *j = arg;
	const struct store_scope scope = {str_of(j->key->account), str_of(j->key->workspace)};
	const struct store_call_id id = {str_of(j->hash), {j->value, j->value_len}};
	const int64_t now = clock_wall_ms();
	struct error err;

	if (store_call_ids_put(j->g->store, &scope, &id, 1, now + KEEP_MS, &err) < 0 ||
	        store_call_ids_expire(j->g->store, now, FORGET, &err) < 0)
		log_text(LOG_ERROR, "store_failed", "%s", err.text);
}

static void put_done(void *arg)
{
	struct put_job *j = arg;

	free(j->hash);
	free(j->value);
	free(j);
}

static void put(struct turn_run *t, struct str hash, struct str value)
{
	struct put_job *j = mem_alloc(sizeof(*j));

	*j = (struct put_job){t->g, t->key, mem_strndup(hash.p, hash.n),
	        mem_strndup(value.p, value.n), value.n};
	if (!pool_run(t->g->pool, put_work, put_done, j))
		put_done(j);
}

void callids_keep(struct turn_run *t, const struct item *call)
{
	char state[HASH_LEN + 1];
	struct str hash;

	if (is_hashed(call, &hash) && call->call.upstream_id.n > 0)
		put(t, hash, call->call.upstream_id);
	if (call->opaque.n > 0 && call->opaque.n <= STATE_MAX &&
	        state_has_row(t->request.conversation, call)) {
		state_hash(call->call.public_id, state);
		put(t, str_of(state), call->opaque);
	}
}

/* ---- reading ---- */

/* Does any provider of the route give calls a state that must come back? */
static bool states_wanted(const struct turn_run *t)
{
	for (size_t i = 0; i < t->route.n; i++)
		if (provider_keeps_call_state(&t->route.targets[i]))
			return true;
	return false;
}

bool callids_needed(const struct turn_run *t)
{
	const struct conversation *c = t->request.conversation;
	bool states = states_wanted(t);
	struct str hash;

	for (size_t i = 0; i < c->n_items; i++) {
		if (c->has_server_tool && is_hashed(c->items[i], &hash))
			return true;
		if (states && c->items[i]->opaque.n == 0 && state_has_row(c, c->items[i]))
			return true;
	}
	return false;
}

static struct str get(struct turn_run *t, struct str hash)
{
	const struct store_scope scope = {str_of(t->key->account), str_of(t->key->workspace)};
	char *value;
	size_t len;

	if (store_call_id_get(t->g->store, &scope, hash, clock_wall_ms(), &value, &len, NULL) < 0)
		return (struct str){NULL, 0};
	conversation_adopt(t->request.conversation, value);
	return (struct str){value, len};
}

/* On a pool thread, while nobody else looks at the conversation. */
void callids_resolve(struct turn_run *t)
{
	struct conversation *c = t->request.conversation;
	bool states = states_wanted(t);
	size_t n = 0;

	for (size_t i = 0; i < c->n_items && n < MAX_IDS; i++) {
		struct item *it = c->items[i];
		char state[HASH_LEN + 1];
		struct str hash, found;

		if (c->has_server_tool && is_hashed(it, &hash)) {
			n++;
			found = get(t, hash);
			if (found.n > 0)
				it->call.upstream_id = found;
		}
		if (states && it->opaque.n == 0 && state_has_row(c, it)) {
			n++;
			state_hash(it->call.public_id, state);
			it->opaque = get(t, str_of(state));
		}
	}
}
