/*
 * GET /models and /models/{id}: what a request can name. Aliases, the models that prices list,
 * those that providers list themselves, and brig/script, which is marked as no model. A provider
 * whose models we do not know is reached all the same as provider/model.
 *
 * Whoever asks first waits a moment for the providers' lists (lists.h). Anthropic's and Google's
 * lists come in pages, each of which begins behind the name that the one before ended with;
 * OpenAI's is one.
 */
#include "gateway/models.h"

#include "gateway/internal.h"
#include "gateway/lists.h"

#include <stdlib.h>

#define ANSWER_MAX ((size_t)64 << 20)
#define TEXTS_MAX  ((size_t)32 << 20)
#define NAME_MAX   600
#define PAGE_MOST  1000

struct rows {
	struct arena *texts;
	struct models_row *of;
	size_t n, cap;
};

static void rows_free(struct rows *rows)
{
	arena_free(rows->texts);
	free(rows->of);
}
#define _cleanup_rows_ __attribute__((cleanup(rows_free)))

/* An id that does not fit any more is left out. */
static void rows_add(
        struct rows *rows, const char *provider, struct str model, struct models_row row)
{
	size_t n = strlen(provider) + 1 + model.n;
	char *id = arena_alloc(rows->texts, n + 1);

	if (id == NULL || model.n > PROVIDER_MODEL_NAME)
		return;
	str_format(id, n + 1, "%s/%.*s", provider, (int)model.n, model.p);
	row.id = (struct str){id, n};
	row.provider = provider;
	mem_grow(&rows->of, &rows->cap, rows->n, sizeof(*rows->of));
	rows->of[rows->n++] = row;
}

static bool has_price(const struct config_provider *p, struct str model)
{
	for (size_t i = 0; i < p->n_prices; i++)
		if (str_is(model, p->prices[i].model))
			return true;
	return false;
}

static void rows_add_provider(struct rows *rows, struct gateway *g, const struct config_provider *p)
{
	size_t n;
	const struct provider_model *listed = lists_all(g->lists, p, &n);

	for (size_t i = 0; i < p->n_prices; i++) {
		struct str model = str_of(p->prices[i].model);

		rows_add(rows, p->name, model,
		        (struct models_row){
		                .price = &p->prices[i], .listed = lists_find(g->lists, p, model)});
	}
	for (size_t i = 0; i < n; i++)
		if (!has_price(p, listed[i].id))
			rows_add(rows, p->name, listed[i].id,
			        (struct models_row){.listed = &listed[i]});
	if (p->dialect == DIALECT_SCRIPT)
		rows_add(rows, p->name, STR("script"), (struct models_row){.script = true});
}

static void rows_collect(struct gateway *g, struct rows *rows)
{
	const struct config *c = g->config;

	rows->texts = arena_new(TEXTS_MAX);
	for (size_t i = 0; i < c->n_models; i++) {
		mem_grow(&rows->of, &rows->cap, rows->n, sizeof(*rows->of));
		rows->of[rows->n++] = (struct models_row){
		        .id = str_of(c->models[i].name), .provider = "alias", .alias = true};
	}
	for (size_t i = 0; i < c->n_providers; i++)
		rows_add_provider(rows, g, &c->providers[i]);
}

/* ---- pages ---- */

struct page {
	size_t first, n; /* of the rows */
	bool more;
};

/* The row of this name, or rows->n. */
static size_t rows_find(const struct rows *rows, struct str id)
{
	size_t i = 0;

	while (i < rows->n && !str_eq(rows->of[i].id, id))
		i++;
	return i;
}

/* A parameter of the query; false: absent, or too long to be any name. */
static bool query_param(const struct request *r, const char *name, struct buf *out)
{
	buf_init(out, NAME_MAX);
	return http_query_get(http_request_query(r->x), name, out);
}

/* Where in the list the name of this parameter stands; *ret_given: whether there is one. */
static int cursor(const struct request *r, const struct rows *rows, const char *name,
        bool *ret_given, size_t *ret, struct error *err)
{
	_cleanup_buf_ struct buf text = {0};

	*ret_given = query_param(r, name, &text) && text.len > 0;
	if (!*ret_given)
		return 0;
	*ret = rows_find(rows, (struct str){text.data, text.len});
	if (*ret == rows->n)
		return error_param(err, ERR_INVALID, name, "%s names no model of this list.", name);
	return 0;
}

static int page_size(const struct request *r, const char *name, uint64_t preset, bool lowered,
        uint64_t *ret, struct error *err)
{
	_cleanup_buf_ struct buf text = {0};
	uint64_t n = preset;

	if (query_param(r, name, &text) && !str_to_u64((struct str){text.data, text.len}, &n))
		return error_param(err, ERR_INVALID, name, "%s must be a whole number.", name);
	if (lowered && n == 0)
		n = preset;
	if (lowered && n > PAGE_MOST)
		n = PAGE_MOST;
	if (n < 1 || n > PAGE_MOST)
		return error_param(
		        err, ERR_INVALID, name, "%s must be from 1 to %d.", name, PAGE_MOST);
	*ret = n;
	return 0;
}

/* Anthropic's: limit, after_id, before_id. */
static int page_anthropic(
        const struct request *r, const struct rows *rows, struct page *ret, struct error *err)
{
	size_t after = 0, before = rows->n;
	bool has_after, has_before;
	uint64_t limit;
	int e = page_size(r, "limit", 20, false, &limit, err);

	if (e == 0)
		e = cursor(r, rows, "after_id", &has_after, &after, err);
	if (e == 0)
		e = cursor(r, rows, "before_id", &has_before, &before, err);
	if (e < 0)
		return e;
	*ret = (struct page){.first = has_after ? after + 1 : 0};
	if (has_before && !has_after) {
		/* The page that ends before it; more: of those that stand in front. */
		ret->first = before > limit ? before - limit : 0;
		ret->n = before - ret->first;
		ret->more = ret->first > 0;
		return 0;
	}
	ret->n = before > ret->first ? before - ret->first : 0;
	ret->more = ret->n > limit;
	if (ret->more)
		ret->n = limit;
	return 0;
}

/* Google's: pageSize, which is lowered to what is allowed, and pageToken. */
static int page_google(
        const struct request *r, const struct rows *rows, struct page *ret, struct error *err)
{
	size_t after = 0;
	bool has_after;
	uint64_t size;
	int e = page_size(r, "pageSize", 50, true, &size, err);

	if (e == 0)
		e = cursor(r, rows, "pageToken", &has_after, &after, err);
	if (e < 0)
		return e;
	ret->first = has_after ? after + 1 : 0;
	ret->n = rows->n - ret->first;
	ret->more = ret->n > size;
	if (ret->more)
		ret->n = size;
	return 0;
}

/* ---- lists ---- */

static void id_or_null(struct json_writer *w, const char *key, const struct rows *rows,
        const struct page *p, size_t at)
{
	if (p->n == 0)
		jw_knull(w, key);
	else
		jw_kstr(w, key, rows->of[at].id);
}

static void write_list(
        struct json_writer *w, enum dialect asks, const struct rows *rows, const struct page *p)
{
	void (*write)(struct json_writer *, const struct models_row *) =
	        asks == DIALECT_ANTHROPIC ? models_write_anthropic
	        : asks == DIALECT_GEMINI  ? models_write_google
	                                  : models_write_openai;
	size_t end = p->first + p->n;

	jw_object(w);
	if (asks != DIALECT_ANTHROPIC && asks != DIALECT_GEMINI)
		jw_kcstr(w, "object", "list");
	jw_key(w, asks == DIALECT_GEMINI ? "models" : "data");
	jw_array(w);
	for (size_t i = p->first; i < end; i++)
		write(w, &rows->of[i]);
	jw_end(w);
	if (asks == DIALECT_ANTHROPIC) {
		jw_kbool(w, "has_more", p->more);
		id_or_null(w, "first_id", rows, p, p->first);
		id_or_null(w, "last_id", rows, p, end - 1);
	} else if (asks == DIALECT_GEMINI) {
		if (p->more)
			jw_kstr(w, "nextPageToken", rows->of[end - 1].id);
	} else {
		jw_kraw(w, "links", STR("{\"next\":null}"));
		jw_ki64(w, "total_count", (int64_t)rows->n);
	}
	jw_end(w);
}

static void answer_list(struct request *r)
{
	enum dialect asks = respond_asks(r->x);
	_cleanup_rows_ struct rows rows = {0};
	_cleanup_buf_ struct buf out = BUF_INIT(ANSWER_MAX);
	struct json_writer w;
	struct page page = {0};
	struct error e;
	int rc = 0;

	rows_collect(r->g, &rows);
	page.n = rows.n;
	if (asks == DIALECT_ANTHROPIC)
		rc = page_anthropic(r, &rows, &page, &e);
	else if (asks == DIALECT_GEMINI)
		rc = page_google(r, &rows, &page, &e);
	if (rc < 0) {
		respond_error(r->x, r->under_v1, &e);
		return;
	}
	jw_init(&w, &out);
	write_list(&w, asks, &rows, &page);
	respond_json(r->x, 200, &out);
}

/* ---- one ---- */

/* By its id; or by the name that a provider of it knows, as a request could say it. */
static const struct models_row *search(const struct rows *rows, struct str id)
{
	size_t at = rows_find(rows, id);

	for (size_t i = 0; at == rows->n && i < rows->n; i++) {
		struct str full = rows->of[i].id;
		size_t skip = strlen(rows->of[i].provider) + 1;

		if (!rows->of[i].alias && full.n == skip + id.n &&
		        memcmp(full.p + skip, id.p, id.n) == 0)
			at = i;
	}
	return at < rows->n ? &rows->of[at] : NULL;
}

static void answer_one(struct request *r)
{
	enum dialect asks = respond_asks(r->x);
	_cleanup_rows_ struct rows rows = {0};
	_cleanup_buf_ struct buf out = BUF_INIT(65536);
	const struct models_row *row = NULL;
	struct json_writer w;
	char id[NAME_MAX];
	struct error e;

	rows_collect(r->g, &rows);
	if (route_path_decode(r->params[0], id, sizeof(id)))
		row = search(&rows, str_of(id));
	if (row == NULL) {
		error_set(&e, ERR_NOT_FOUND, "There is no model with this name.");
		str_copy(e.type, sizeof(e.type), STR("model_not_found"));
		respond_error(r->x, r->under_v1, &e);
		return;
	}
	jw_init(&w, &out);
	if (asks == DIALECT_ANTHROPIC)
		models_write_anthropic(&w, row);
	else if (asks == DIALECT_GEMINI)
		models_write_google(&w, row);
	else
		models_write_openai(&w, row);
	respond_json(r->x, 200, &out);
}

/* ---- waiting for the lists ---- */

struct waiting {
	struct owner owner;
	struct request r;
	void (*answer)(struct request *r);
};

static void on_lists(void *ctx)
{
	struct waiting *wait = ctx;

	wait->answer(&wait->r);
}

static void on_drain(void *self)
{
}

static void on_gone(void *self, enum http_gone why)
{
	struct waiting *wait = self;

	lists_forget(wait->r.g->lists, wait);
	free(wait);
}

static void answer_with_lists(struct request *r, void (*answer)(struct request *r))
{
	struct waiting *wait = mem_alloc(sizeof(*wait));

	*wait = (struct waiting){{on_drain, on_gone, wait}, *r, answer};
	if (lists_wait(r->g->lists, on_lists, wait)) {
		http_exchange_set_data(r->x, &wait->owner);
		return;
	}
	free(wait);
	answer(r);
}

void models_list(struct request *r)
{
	answer_with_lists(r, answer_list);
}

void models_get(struct request *r)
{
	answer_with_lists(r, answer_one);
}
