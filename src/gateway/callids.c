/*
 * Upstream call ids that do not fit into ours (conversation.h): the public id carries a hash, the
 * row the id itself, for 30 days. Written when such a call is shown to the client, looked up when
 * it comes back in a replayed conversation. A row that is gone costs a prompt cache, nothing else:
 * the public id then goes to the upstream.
 */
#include "gateway/turn_run.h"

#include <stdlib.h>

#define KEEP_MS  ((int64_t)30 * 24 * 3600 * 1000)
#define MAX_IDS  4096 /* looked up for one request */
#define FORGET   16   /* expired rows that go for each new one, so that there never are many */
#define HASH_LEN 32

static bool is_hashed(const struct item *it, struct str *ret_hash)
{
	struct str id = it->call.public_id;

	if (it->type != ITEM_CALL || id.n < HASH_LEN)
		return false;
	*ret_hash = (struct str){id.p + id.n - HASH_LEN, HASH_LEN};
	return conversation_upstream_id(id, true).p == NULL;
}

/* ---- writing ---- */

struct put_job {
	struct gateway *g;
	const struct config_key *key;
	char *hash, *upstream_id;
};

static void put_work(void *arg)
{
	struct put_job *j = arg;
	const struct store_scope scope = {str_of(j->key->account), str_of(j->key->workspace)};
	const struct store_call_id id = {str_of(j->hash), str_of(j->upstream_id)};
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
	free(j->upstream_id);
	free(j);
}

void callids_keep(struct turn_run *t, const struct item *call)
{
	struct put_job *j;
	struct str hash;

	if (!is_hashed(call, &hash) || call->call.upstream_id.n == 0)
		return;
	j = mem_alloc(sizeof(*j));
	*j = (struct put_job){t->g, t->key, mem_strndup(hash.p, hash.n),
	        mem_strndup(call->call.upstream_id.p, call->call.upstream_id.n)};
	if (!pool_run(t->g->pool, put_work, put_done, j))
		put_done(j);
}

/* ---- reading ---- */

bool callids_needed(const struct conversation *c)
{
	struct str hash;

	for (size_t i = 0; c->has_server_tool && i < c->n_items; i++)
		if (is_hashed(c->items[i], &hash))
			return true;
	return false;
}

/* On a pool thread, while nobody else looks at the conversation. */
void callids_resolve(struct turn_run *t)
{
	struct conversation *c = t->request.conversation;
	const struct store_scope scope = {str_of(t->key->account), str_of(t->key->workspace)};
	size_t n = 0;

	for (size_t i = 0; i < c->n_items && n < MAX_IDS; i++) {
		struct str hash;
		char *id;
		size_t len;

		if (!is_hashed(c->items[i], &hash))
			continue;
		n++;
		if (store_call_id_get(t->g->store, &scope, hash, clock_wall_ms(), &id, &len, NULL) <
		        0)
			continue;
		conversation_adopt(c, id);
		c->items[i]->call.upstream_id = (struct str){id, len};
	}
}
