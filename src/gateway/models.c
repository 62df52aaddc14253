/*
 * GET /models: what a request can name. Aliases, the models that a provider's prices list, and
 * brig/script, which is marked as no model. A provider whose models we do not know is reached all
 * the same as provider/model.
 */
#include "gateway/internal.h"

#include "json/json.h"

struct model_row {
	char id[512];
	const char *provider;
	bool script;
};

/* Calls fn for each; stops when it returns false. */
static void models_each(
        const struct config *c, bool (*fn)(void *ctx, const struct model_row *m), void *ctx)
{
	struct model_row m;

	for (size_t i = 0; i < c->n_models; i++) {
		m = (struct model_row){.provider = "alias"};
		str_copy(m.id, sizeof(m.id), str_of(c->models[i].name));
		if (!fn(ctx, &m))
			return;
	}
	for (size_t i = 0; i < c->n_providers; i++) {
		const struct config_provider *p = &c->providers[i];

		for (size_t k = 0; k < p->n_prices; k++) {
			m = (struct model_row){.provider = p->name};
			snprintf(m.id, sizeof(m.id), "%s/%s", p->name, p->prices[k].model);
			if (!fn(ctx, &m))
				return;
		}
		if (p->dialect == DIALECT_SCRIPT) {
			m = (struct model_row){.provider = p->name, .script = true};
			snprintf(m.id, sizeof(m.id), "%s/script", p->name);
			if (!fn(ctx, &m))
				return;
		}
	}
}

static void model_write(struct json_writer *w, const struct model_row *m)
{
	jw_object(w);
	jw_kcstr(w, "id", m->id);
	jw_kcstr(w, "object", "model");
	jw_ki64(w, "created", 0);
	jw_kcstr(w, "owned_by", m->provider);
	jw_kcstr(w, "name", m->id);
	if (m->script)
		jw_kcstr(w, "description",
		        "Not a model: runs the fenced shell blocks of the last user message, for "
		        "trying out and for tests.");
	jw_end(w);
}

static bool list_row(void *ctx, const struct model_row *m)
{
	model_write(ctx, m);
	return true;
}

void models_list(struct request *r)
{
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)16 << 20);
	struct json_writer w;

	jw_init(&w, &out);
	jw_object(&w);
	jw_kcstr(&w, "object", "list");
	jw_key(&w, "data");
	jw_array(&w);
	models_each(r->g->config, list_row, &w);
	jw_end(&w);
	jw_end(&w);
	respond_json(r->x, 200, &out);
}

struct model_search {
	const char *id;
	struct buf out;
	bool found;
};

static bool search_row(void *ctx, const struct model_row *m)
{
	struct model_search *s = ctx;
	struct json_writer w;

	if (strcmp(m->id, s->id) != 0)
		return true;
	jw_init(&w, &s->out);
	model_write(&w, m);
	s->found = true;
	return false;
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
	                              : -1;
}

/*
 * The name at the end of a path. SDKs send the slashes of a name as %2F, people as they are. False:
 * a broken escape, a NUL, or longer than any name here.
 */
static bool name_decode(struct str in, char *out, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < in.n; i++) {
		int c = (unsigned char)in.p[i];

		if (c == '%') {
			if (in.n - i < 3 || hex_digit(in.p[i + 1]) < 0 ||
			        hex_digit(in.p[i + 2]) < 0)
				return false;
			c = hex_digit(in.p[i + 1]) * 16 + hex_digit(in.p[i + 2]);
			i += 2;
		}
		if (c == 0 || n + 1 >= size)
			return false;
		out[n++] = (char)c;
	}
	out[n] = 0;
	return true;
}

void models_get(struct request *r)
{
	char id[600];
	struct model_search s = {.id = id, .out = BUF_INIT(65536)};
	struct error e;

	if (name_decode(r->params[0], id, sizeof(id)))
		models_each(r->g->config, search_row, &s);
	if (s.found) {
		respond_json(r->x, 200, &s.out);
	} else {
		error_set(&e, ERR_NOT_FOUND, "There is no model with this name.");
		str_copy(e.type, sizeof(e.type), STR("model_not_found"));
		respond_error(r->x, r->under_v1, &e);
	}
	buf_free(&s.out);
}
