/*
 * Model name → where to send it. Pure: reads the configuration and what the caller knows of
 * providers' own lists, asks nobody.
 *
 * The order is DESIGN section 9's: an alias; provider/model; a name that a provider lists; the
 * provider whose dialect the request speaks; else not found, with the names that come closest.
 */
#include "provider/provider.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>

#define NAME_MAX    256
#define TARGETS_MAX 64
#define NEAR_MAX    3
#define LISTED_MAX  2000 /* names of one provider's own list that are compared */

/* ---- targets ---- */

static const struct config_provider *find_provider(const struct config *cfg, struct str name)
{
	for (size_t i = 0; i < cfg->n_providers; i++)
		if (str_is(name, cfg->providers[i].name))
			return &cfg->providers[i];
	if (str_is(name, "google")) /* what other gateways call it */
		return find_provider(cfg, STR("gemini"));
	return NULL;
}

static int add_target(
        struct route *r, const struct config_provider *p, struct str model, struct error *err)
{
	const struct provider *via = provider_for(p->dialect);
	struct provider_target *t;

	if (!via)
		return error_param(err, ERR_UNSUPPORTED, "model",
		        "provider %s speaks a dialect that this version cannot reach", p->name);
	if (via->local && !str_is(model, "script")) {
		error_param(err, ERR_NOT_FOUND, "model", "provider %s has no model but script",
		        p->name);
		if (err)
			str_copy(err->type, sizeof(err->type), STR("model_not_found"));
		return -ERR_NOT_FOUND;
	}
	for (size_t i = 0; i < r->n; i++)
		if (r->targets[i].config == p && str_is(model, r->targets[i].model))
			return 0;
	/* It answers always, and is no model: nobody wants it instead of one. */
	if (via->local && r->n)
		return error_param(err, ERR_INVALID, "models",
		        "%s/script is no model and never a fallback", p->name);
	if (r->n == TARGETS_MAX)
		return error_param(
		        err, ERR_INVALID, "models", "more than %d models to try", TARGETS_MAX);
	mem_grow(&r->targets, &r->cap, r->n, sizeof(*r->targets));
	t = &r->targets[r->n++];
	*t = (struct provider_target){
	        .provider = via, .config = p, .model = mem_strndup(model.p, model.n)};
	return 0;
}

/* ---- near matches ---- */

struct near {
	size_t distance[NEAR_MAX];
	char name[NEAR_MAX][NAME_MAX + 1];
	size_t n;
};

/* Edits (insert, delete, change, ASCII case free) from a to b; both at most NAME_MAX bytes. */
static size_t edit_distance(struct str a, struct str b)
{
	size_t row[NAME_MAX + 1];

	for (size_t j = 0; j <= b.n; j++)
		row[j] = j;
	for (size_t i = 0; i < a.n; i++) {
		size_t diagonal = row[0];

		row[0] = i + 1;
		for (size_t j = 0; j < b.n; j++) {
			struct str x = {a.p + i, 1}, y = {b.p + j, 1};
			size_t change = diagonal + !str_ieq(x, y);
			size_t best = row[j] < row[j + 1] ? row[j] + 1 : row[j + 1] + 1;

			diagonal = row[j + 1];
			row[j + 1] = change < best ? change : best;
		}
	}
	return row[b.n];
}

static bool contains(struct str s, struct str part)
{
	for (size_t i = 0; part.n && i + part.n <= s.n; i++)
		if (str_ieq((struct str){s.p + i, part.n}, part))
			return true;
	return false;
}

static void consider(struct near *near, struct str asked, struct str full, struct str shown)
{
	size_t d, i;

	if (full.n > NAME_MAX || shown.n > NAME_MAX)
		return;
	d = full.n > asked.n ? full.n - asked.n : asked.n - full.n;
	if (d <= asked.n / 3 + 1) /* else they are that far apart already */
		d = edit_distance(asked, full);
	if (d > asked.n / 3 + 1) {
		if (asked.n < 3 || !contains(full, asked))
			return;
		d = asked.n; /* "sonnet" is near "claude-sonnet-5", but after all misspellings */
	}
	for (i = 0; i < near->n; i++)
		if (str_is(shown, near->name[i]))
			return;
	for (i = near->n < NEAR_MAX ? near->n++ : NEAR_MAX; i > 0 && near->distance[i - 1] > d; i--)
		if (i < NEAR_MAX) {
			near->distance[i] = near->distance[i - 1];
			memcpy(near->name[i], near->name[i - 1], NAME_MAX + 1);
		}
	if (i < NEAR_MAX) {
		near->distance[i] = d;
		str_copy(near->name[i], NAME_MAX + 1, shown);
	}
}

/* Both "provider/model" and the model alone are compared: either may be what was meant. */
static void consider_model(
        struct near *near, struct str asked, const struct config_provider *p, struct str model)
{
	char full[2 * NAME_MAX];

	if (model.n > NAME_MAX || strlen(p->name) + 1 + model.n > NAME_MAX)
		return;
	str_format(full, sizeof(full), "%s/%.*s", p->name, (int)model.n, model.p);
	consider(near, asked, str_of(full), str_of(full));
	consider(near, asked, model, str_of(full));
}

struct listed {
	struct near *near;
	struct str asked;
	const struct config_provider *p;
	size_t left; /* that may still be looked at */
};

static bool consider_listed(void *ctx, struct str model)
{
	struct listed *l = ctx;

	consider_model(l->near, l->asked, l->p, model);
	return --l->left > 0;
}

static void find_near(
        const struct config *cfg, const struct route_query *q, struct str asked, struct near *near)
{
	const char *slash = asked.n ? memchr(asked.p, '/', asked.n) : NULL;

	for (size_t i = 0; i < cfg->n_models; i++)
		consider(near, asked, str_of(cfg->models[i].name), str_of(cfg->models[i].name));
	for (size_t i = 0; i < cfg->n_providers; i++) {
		const struct config_provider *p = &cfg->providers[i];

		for (size_t k = 0; k < p->n_prices; k++)
			consider_model(near, asked, p, str_of(p->prices[k].model));
		if (q->each) {
			struct listed l = {near, asked, p, LISTED_MAX};

			q->each(q->ctx, p, consider_listed, &l);
		}
		if (p->dialect == DIALECT_SCRIPT)
			consider_model(near, asked, p, STR("script"));
		else if (slash && edit_distance((struct str){asked.p, (size_t)(slash - asked.p)},
		                          str_of(p->name)) <= 2)
			/* "opnai/gpt-5": the model may well be right. */
			consider_model(near, asked, p,
			        (struct str){slash + 1, asked.n - (size_t)(slash + 1 - asked.p)});
	}
}

static bool split(struct str name, struct str *ret_first, struct str *ret_rest)
{
	const char *slash = memchr(name.p, '/', name.n);

	if (!slash)
		return false;
	*ret_first = (struct str){name.p, (size_t)(slash - name.p)};
	*ret_rest = (struct str){slash + 1, name.n - ret_first->n - 1};
	return true;
}

static int not_found(const struct config *cfg, const struct route_query *q, struct str model,
        const char *param, struct error *err)
{
	struct near near = {0};
	char list[256] = "", provider[96] = "";
	struct str first, rest;
	size_t len = 0;

	find_near(cfg, q, model, &near);
	for (size_t i = 0; i < near.n; i++) {
		size_t need = strlen(near.name[i]) + 2;

		if (len + need >= sizeof(list))
			break;
		str_format(list + len, sizeof(list) - len, "%s%s", len ? ", " : "", near.name[i]);
		len += strlen(list + len);
	}
	/* The usual reason: the vendor's key is not in the server's environment. */
	if (split(model, &first, &rest) && rest.n && !find_provider(cfg, first))
		str_format(provider, sizeof(provider), "; there is no provider \"%.*s\"",
		        (int)(first.n < 64 ? first.n : 64), first.p);
	error_param(err, ERR_NOT_FOUND, param, "model \"%.*s\" is not known here%s%s%s",
	        (int)(model.n < 128 ? model.n : 128), model.p, provider, len ? "; near it: " : "",
	        list);
	if (err)
		str_copy(err->type, sizeof(err->type), STR("model_not_found"));
	return -ERR_NOT_FOUND;
}

/* ---- resolving ---- */

static int add_qualified(const struct config *cfg, struct str name, struct route *r,
        bool *ret_found, struct error *err)
{
	struct str first, rest;
	const struct config_provider *p;

	*ret_found = false;
	if (!split(name, &first, &rest) || !rest.n)
		return 0;
	p = find_provider(cfg, first);
	if (!p)
		return 0;
	*ret_found = true;
	return add_target(r, p, rest, err);
}

static int add_alias(
        const struct config *cfg, const struct config_model *m, struct route *r, struct error *err)
{
	size_t before = r->n;

	for (size_t i = 0; i < m->n_route; i++) {
		bool found;
		int e = add_qualified(cfg, str_of(m->route[i]), r, &found, err);

		if (e < 0)
			return e;
		if (!found)
			return error_param(err, ERR_UNAVAILABLE, "model",
			        "the route of %s names %s, which no provider serves", m->name,
			        m->route[i]);
	}
	if (r->n == before && !before)
		return error_param(
		        err, ERR_UNAVAILABLE, "model", "the route of %s is empty", m->name);
	return 0;
}

static bool has_price(const struct config_provider *p, struct str model)
{
	for (size_t k = 0; k < p->n_prices; k++)
		if (str_is(model, p->prices[k].model))
			return true;
	return false;
}

/* What the operator wrote comes before what providers say. */
static const struct config_provider *find_listing(
        const struct config *cfg, const struct route_query *q, struct str model)
{
	for (size_t i = 0; i < cfg->n_providers; i++)
		if (has_price(&cfg->providers[i], model))
			return &cfg->providers[i];
	for (size_t i = 0; q->lists && i < cfg->n_providers; i++)
		if (q->lists(q->ctx, &cfg->providers[i], model))
			return &cfg->providers[i];
	return NULL;
}

static const struct config_provider *find_dialect(const struct config *cfg, enum dialect d)
{
	for (size_t i = 0; provider_for(d) && i < cfg->n_providers; i++)
		if (cfg->providers[i].dialect == d)
			return &cfg->providers[i];
	return NULL;
}

static const struct config_provider *find_speaker(const struct config *cfg, enum dialect speaks)
{
	const struct config_provider *p = find_dialect(cfg, speaks);

	if (!p && speaks == DIALECT_OPENAI_RESPONSES)
		p = find_dialect(cfg, DIALECT_OPENAI_CHAT);
	if (!p && speaks == DIALECT_OPENAI_CHAT)
		p = find_dialect(cfg, DIALECT_OPENAI_RESPONSES);
	return p;
}

static int check_name(struct str name, const char *param, struct error *err)
{
	if (!name.n)
		return error_param(err, ERR_INVALID, param, "the model's name is empty");
	if (name.n > NAME_MAX)
		return error_param(
		        err, ERR_INVALID, param, "a model's name has at most %d bytes", NAME_MAX);
	if (!utf8_valid(name.p, name.n))
		return error_param(err, ERR_INVALID, param, "the model's name is not UTF-8");
	for (size_t i = 0; i < name.n; i++)
		if ((unsigned char)name.p[i] <= ' ' || name.p[i] == 0x7f)
			return error_param(err, ERR_INVALID, param,
			        "the model's name holds a space or control character");
	return 0;
}

/* ---- what the request prefers ---- */

/* Its place in the list, or n. OpenRouter's names may have a variant: "deepinfra/turbo". */
static size_t place_in(const struct str *list, size_t n, const struct config_provider *p)
{
	for (size_t i = 0; i < n; i++) {
		struct str name = list[i], rest;

		split(list[i], &name, &rest);
		if (str_ieq(name, str_of(p->name)) ||
		        (str_ieq(name, STR("google")) && strcmp(p->name, "gemini") == 0))
			return i;
	}
	return n;
}

static void move_target(struct route *r, size_t from, size_t to)
{
	struct provider_target t = r->targets[from];

	memmove(&r->targets[to + 1], &r->targets[to], (from - to) * sizeof(*r->targets));
	r->targets[to] = t;
}

void route_prefer(struct route *r, size_t i)
{
	move_target(r, i, 0);
}

static bool is_wanted(const struct preferences *w, const struct config_provider *p)
{
	if (w->n_only && place_in(w->only, w->n_only, p) == w->n_only)
		return false;
	if (w->no_fallbacks && w->n_order && place_in(w->order, w->n_order, p) == w->n_order)
		return false;
	return place_in(w->ignore, w->n_ignore, p) == w->n_ignore;
}

static void drop_target(struct route *r, size_t i)
{
	mem_free_ptr(&(char *){(char *)(uintptr_t)r->targets[i].model});
	memmove(&r->targets[i], &r->targets[i + 1], (r->n - i - 1) * sizeof(*r->targets));
	r->n--;
}

static int prefer(struct route *r, const struct preferences *w, struct error *err)
{
	size_t sorted = 0;

	for (size_t i = r->n; i-- > 0;)
		if (!is_wanted(w, r->targets[i].config))
			drop_target(r, i);
	if (!r->n)
		return error_param(err, ERR_NOT_FOUND, "provider",
		        "the request's `provider` allows none of the providers that serve this "
		        "model");
	for (size_t place = 0; place < w->n_order; place++)
		for (size_t i = sorted; i < r->n; i++)
			if (place_in(w->order, w->n_order, r->targets[i].config) == place)
				move_target(r, i, sorted++);
	while (w->no_fallbacks && !w->n_order && r->n > 1)
		drop_target(r, r->n - 1);
	return 0;
}

/* ---- names ---- */

static const struct config_model *find_alias(const struct config *cfg, struct str name)
{
	for (size_t i = 0; i < cfg->n_models; i++)
		if (str_is(name, cfg->models[i].name))
			return &cfg->models[i];
	return NULL;
}

static int resolve(const struct config *cfg, const struct route_query *q, struct str name,
        const char *param, struct route *r, struct error *err)
{
	const struct config_model *alias;
	const struct config_provider *p;
	bool found;
	int e = check_name(name, param, err);

	if (e < 0)
		return e;
	alias = find_alias(cfg, name);
	if (alias)
		return add_alias(cfg, alias, r, err);
	e = add_qualified(cfg, name, r, &found, err);
	if (e < 0 || found)
		return e;
	p = find_listing(cfg, q, name);
	/* A name with a slash whose first part is no provider is more likely misspelt than bare. */
	if (!p && !memchr(name.p, '/', name.n))
		p = find_speaker(cfg, q->speaks);
	return p ? add_target(r, p, name, err) : not_found(cfg, q, name, param, err);
}

/* Where neither the configuration nor the name itself says who serves it. */
static bool is_open(const struct config *cfg, struct str name)
{
	static const struct route_query nothing = {0};
	struct str first, rest;

	if (!name.n || name.n > NAME_MAX || find_alias(cfg, name))
		return false;
	if (split(name, &first, &rest) && rest.n && find_provider(cfg, first))
		return false;
	return !find_listing(cfg, &nothing, name);
}

bool route_wants_lists(const struct config *cfg, const struct route_query *q)
{
	if (is_open(cfg, q->model))
		return true;
	for (size_t i = 0; i < q->n_models; i++)
		if (is_open(cfg, q->models[i]))
			return true;
	return false;
}

int route_resolve(
        const struct config *cfg, const struct route_query *q, struct route *ret, struct error *err)
{
	struct route r = {0};
	char param[32];
	int e = 0;

	if (q->model.n || !q->n_models)
		e = resolve(cfg, q, q->model, "model", &r, err);
	for (size_t i = 0; i < q->n_models && e == 0; i++) {
		str_format(param, sizeof(param), "models[%zu]", i);
		e = resolve(cfg, q, q->models[i], param, &r, err);
	}
	if (e == 0 && q->preferences)
		e = prefer(&r, q->preferences, err);
	if (e < 0) {
		route_free(&r);
		return e;
	}
	*ret = r;
	return 0;
}

void route_free(struct route *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->n; i++)
		mem_free_ptr(&(char *){(char *)(uintptr_t)r->targets[i].model});
	free(r->targets);
	*r = (struct route){0};
}
