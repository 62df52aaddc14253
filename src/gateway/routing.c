/*
 * From the names in a request to the targets that are tried.
 *
 * A bare name may be one that a provider lists itself, so the first such request waits a moment for
 * the lists (lists.h); from then on they are at hand. Then the state that the conversation holds
 * has a word: sealed state opens for one provider, model and account only, so that target comes
 * first; what a client of Anthropic's or Google's dialect holds as it came belongs to a provider of
 * that dialect. Any other target gets the conversation without it.
 */
#include "gateway/lists.h"
#include "gateway/turn_run.h"

#define STATES_MAX 8      /* items that are tried, from the last */
#define STATE_MAX  262144 /* bytes of one */

/* ---- names ---- */

static bool query_lists(void *ctx, const struct config_provider *p, struct str model)
{
	return lists_find(ctx, p, model) != NULL;
}

static void query_each(void *ctx, const struct config_provider *p,
        bool (*fn)(void *fn_ctx, struct str model), void *fn_ctx)
{
	size_t n;
	const struct provider_model *all = lists_all(ctx, p, &n);

	for (size_t i = 0; i < n && fn(fn_ctx, all[i].id); i++)
		;
}

struct route_query routing_query(
        struct gateway *g, const struct api *api, const struct conversation *c)
{
	return (struct route_query){
	        .speaks = api->speaks,
	        .model = c->model,
	        .models = c->models,
	        .n_models = c->n_models,
	        .preferences = &c->preferences,
	        .lists = query_lists,
	        .each = query_each,
	        .ctx = g->lists,
	};
}

bool routing_wait(
        struct gateway *g, const struct route_query *q, void (*then)(void *ctx), void *ctx)
{
	return route_wants_lists(g->config, q) && lists_wait(g->lists, then, ctx);
}

/* ---- state ---- */

static bool opens(const struct turn_run *t, const struct provider_target *target, struct str sealed)
{
	_cleanup_buf_ struct buf plain = BUF_INIT(STATE_MAX);

	return seal_open(t->g, str_of(target->config->name), str_of(target->model),
	        str_of(t->key->account), sealed, &plain);
}

/* The target that this state belongs to, or NULL. */
static const struct provider_target *owner_of(const struct turn_run *t, struct str opaque)
{
	bool sealed = str_starts(opaque, PROVIDER_SEALED);

	for (size_t i = 0; i < t->route.n; i++) {
		const struct provider_target *target = &t->route.targets[i];

		if (sealed ? opens(t, target, opaque)
		           : target->provider->dialect == t->request.conversation->dialect)
			return target;
	}
	return NULL;
}

/* The latest state that belongs to a target brings it to the front. */
static void pin(struct turn_run *t)
{
	const struct conversation *c = t->request.conversation;
	size_t left = STATES_MAX;

	for (size_t i = c->n_items; i-- > 0 && left > 0 && t->route.n > 1;) {
		struct str opaque = c->items[i]->opaque;
		const struct provider_target *owner;

		if (opaque.n == 0 || opaque.n > STATE_MAX)
			continue;
		left--;
		owner = owner_of(t, opaque);
		if (owner == NULL)
			continue;
		route_prefer(&t->route, (size_t)(owner - t->route.targets));
		return;
	}
}

/* ---- both ---- */

static void resolve(struct turn_run *t)
{
	struct route_query q = routing_query(t->g, t->request.api, t->request.conversation);
	struct error e;

	if (route_resolve(t->g->config, &q, &t->route, &e) < 0) {
		t->routed(t, &e);
		return;
	}
	pin(t);
	t->routed(t, NULL);
}

static void on_lists(void *ctx)
{
	struct turn_run *t = ctx;

	t->storing = false;
	resolve(t);
}

void routing_find(struct turn_run *t, void (*then)(struct turn_run *t, const struct error *err))
{
	struct route_query q = routing_query(t->g, t->request.api, t->request.conversation);

	t->routed = then;
	t->storing = routing_wait(t->g, &q, on_lists, t);
	if (!t->storing)
		resolve(t);
}
