/*
 * GET /models: what a request can name. Aliases, the models that a provider's prices list, and
 * brig/script, which is marked as no model. A provider whose models we do not know is reached all
 * the same as provider/model. A row is OpenAI's object and has the keys that OpenRouter's SDK
 * demands besides; what brig cannot know of a model is null there.
 */
#include "gateway/internal.h"

#include "json/json.h"

struct model_row {
	char id[512];
	const char *provider;
	const struct config_price *price; /* NULL: an alias, or the script */
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
			m = (struct model_row){.provider = p->name, .price = &p->prices[k]};
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

/* Dollars for one token, as text. */
static void write_price(struct json_writer *w, const char *key, struct money million)
{
	struct buf text = BUF_INIT(64);

	money_write(&text, money_mul(million, 1, 1000000));
	jw_kstr(w, key, (struct str){text.data, text.len});
	buf_free(&text);
}

static void write_pricing(struct json_writer *w, const struct model_row *m)
{
	struct money nothing = {0};

	jw_key(w, "pricing");
	jw_object(w);
	if (m->price == NULL && !m->script) {
		/* OpenRouter's word for a price that depends on where the route ends. */
		jw_kcstr(w, "prompt", "-1");
		jw_kcstr(w, "completion", "-1");
	} else {
		write_price(w, "prompt", m->price ? m->price->input : nothing);
		write_price(w, "completion", m->price ? m->price->output : nothing);
		if (m->price && m->price->has_cached)
			write_price(w, "input_cache_read", m->price->cached);
	}
	jw_end(w);
}

static void write_openrouter(struct json_writer *w, const struct model_row *m)
{
	/* What is passed on; whether a model heeds it is not known here. */
	static const char passed[] =
	        "[\"tools\",\"tool_choice\",\"parallel_tool_calls\",\"max_tokens\","
	        "\"temperature\",\"top_p\",\"presence_penalty\",\"frequency_penalty\","
	        "\"response_format\",\"reasoning\"]";
	char details[sizeof(m->id) + 16];

	jw_kcstr(w, "canonical_slug", m->id);
	jw_knull(w, "context_length");
	jw_kraw(w, "architecture",
	        STR("{\"modality\":\"text->text\",\"input_modalities\":[\"text\"],"
	            "\"output_modalities\":[\"text\"],\"instruct_type\":null}"));
	write_pricing(w, m);
	jw_kraw(w, "top_provider",
	        STR("{\"context_length\":null,\"max_completion_tokens\":null,"
	            "\"is_moderated\":false}"));
	jw_knull(w, "per_request_limits");
	jw_knull(w, "default_parameters");
	jw_knull(w, "supported_voices");
	jw_kraw(w, "supported_parameters",
	        m->script ? STR("[\"tools\",\"tool_choice\"]") : STR(passed));
	snprintf(details, sizeof(details), "/api/v1/models/%s", m->id);
	jw_key(w, "links");
	jw_object(w);
	jw_kcstr(w, "details", details);
	jw_end(w);
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
	write_openrouter(w, m);
	jw_end(w);
}

struct model_list {
	struct json_writer w;
	int64_t n;
};

static bool list_row(void *ctx, const struct model_row *m)
{
	struct model_list *l = ctx;

	model_write(&l->w, m);
	l->n++;
	return true;
}

void models_list(struct request *r)
{
	_cleanup_buf_ struct buf out = BUF_INIT((size_t)16 << 20);
	struct model_list l = {0};

	jw_init(&l.w, &out);
	jw_object(&l.w);
	jw_kcstr(&l.w, "object", "list");
	jw_key(&l.w, "data");
	jw_array(&l.w);
	models_each(r->g->config, list_row, &l);
	jw_end(&l.w);
	jw_kraw(&l.w, "links", STR("{\"next\":null}"));
	jw_ki64(&l.w, "total_count", l.n);
	jw_end(&l.w);
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

void models_get(struct request *r)
{
	char id[600];
	struct model_search s = {.id = id, .out = BUF_INIT(65536)};
	struct error e;

	if (route_path_decode(r->params[0], id, sizeof(id)))
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
