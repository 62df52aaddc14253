/*
 * Model name → where to send it. Pure: reads the configuration, asks nobody.
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

static void find_near(const struct config *cfg, struct str asked, struct near *near)
{
	const char *slash = asked.n ? memchr(asked.p, '/', asked.n) : NULL;

	for (size_t i = 0; i < cfg->n_models; i++)
		consider(near, asked, str_of(cfg->models[i].name), str_of(cfg->models[i].name));
	for (size_t i = 0; i < cfg->n_providers; i++) {
		const struct config_provider *p = &cfg->providers[i];

		for (size_t k = 0; k < p->n_prices; k++)
			consider_model(near, asked, p, str_of(p->prices[k].model));
		if (p->dialect == DIALECT_SCRIPT)
			consider_model(near, asked, p, STR("script"));
		else if (slash && edit_distance((struct str){asked.p, (size_t)(slash - asked.p)},
		                          str_of(p->name)) <= 2)
			/* "opnai/gpt-5": the model may well be right. */
			consider_model(near, asked, p,
			        (struct str){slash + 1, asked.n - (size_t)(slash + 1 - asked.p)});
	}
}

static int not_found(
        const struct config *cfg, struct str model, const char *param, struct error *err)
{
	struct near near = {0};
	char list[256] = "";
	size_t len = 0;

	find_near(cfg, model, &near);
	for (size_t i = 0; i < near.n; i++) {
		size_t need = strlen(near.name[i]) + 2;

		if (len + need >= sizeof(list))
			break;
		str_format(list + len, sizeof(list) - len, "%s%s", len ? ", " : "", near.name[i]);
		len += strlen(list + len);
	}
	error_param(err, ERR_NOT_FOUND, param, "model \"%.*s\" is not known here%s%s",
	        (int)(model.n < 128 ? model.n : 128), model.p, len ? "; near it: " : "", list);
	if (err)
		str_copy(err->type, sizeof(err->type), STR("model_not_found"));
	return -ERR_NOT_FOUND;
}

/* ---- resolving ---- */

static bool split(struct str name, struct str *ret_first, struct str *ret_rest)
{
	const char *slash = memchr(name.p, '/', name.n);

	if (!slash)
		return false;
	*ret_first = (struct str){name.p, (size_t)(slash - name.p)};
	*ret_rest = (struct str){slash + 1, name.n - ret_first->n - 1};
	return true;
}

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

static const struct config_provider *find_listing(const struct config *cfg, struct str model)
{
	for (size_t i = 0; i < cfg->n_providers; i++)
		for (size_t k = 0; k < cfg->providers[i].n_prices; k++)
			if (str_is(model, cfg->providers[i].prices[k].model))
				return &cfg->providers[i];
	return NULL;
}

static const struct config_provider *find_speaker(
        const struct config *cfg, enum dialect speaks)
{
	for (size_t i = 0; i < cfg->n_providers; i++) {
		enum dialect d = cfg->providers[i].dialect;

		if (d != DIALECT_SCRIPT && provider_for(d) &&
		        (d == speaks ||
		                (speaks == DIALECT_OPENAI_RESPONSES && d == DIALECT_OPENAI_CHAT)))
			return &cfg->providers[i];
	}
	return NULL;
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

static int resolve(const struct config *cfg, enum dialect speaks, struct str name,
        const char *param, struct route *r, struct error *err)
{
	const struct config_provider *p;
	bool found;
	int e = check_name(name, param, err);

	if (e < 0)
		return e;
	for (size_t i = 0; i < cfg->n_models; i++)
		if (str_is(name, cfg->models[i].name))
			return add_alias(cfg, &cfg->models[i], r, err);
	e = add_qualified(cfg, name, r, &found, err);
	if (e < 0 || found)
		return e;
	p = find_listing(cfg, name);
	/* A name with a slash whose first part is no provider is more likely misspelt than bare. */
	if (!p && !memchr(name.p, '/', name.n))
		p = find_speaker(cfg, speaks);
	return p ? add_target(r, p, name, err) : not_found(cfg, name, param, err);
}

int route_resolve(const struct config *cfg, enum dialect speaks, struct str model,
        const struct str *models, size_t n_models, struct route *ret, struct error *err)
{
	struct route r = {0};
	char param[32];
	int e = 0;

	if (model.n || !n_models)
		e = resolve(cfg, speaks, model, "model", &r, err);
	for (size_t i = 0; i < n_models && e == 0; i++) {
		str_format(param, sizeof(param), "models[%zu]", i);
		e = resolve(cfg, speaks, models[i], param, &r, err);
	}
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
