/* GET /tools and /tools/{name}: the catalogue of server tools (api/catalogue.h). */
#include "gateway/internal.h"

#include "api/catalogue.h"
#include "gateway/lists.h"
#include "tool/tool.h"

#include <inttypes.h>

#define PAGE_PRESET 50
#define PAGE_MOST   1000

static bool has_shell(const struct config_provider *p)
{
	for (size_t i = 0; i < p->n_native_tools; i++)
		if (strcmp(p->native_tools[i], "shell") == 0)
			return true;
	return false;
}

static struct catalogue_server server_of(const struct gateway *g)
{
	const struct config *c = g->config;
	struct catalogue_server s = {
	        .runs = c->sandbox && c->region == NULL,
	        .region = c->region,
	        .price_per_second = c->container.price_per_second,
	};

	for (size_t i = 0; i < c->n_providers; i++) {
		const struct config_provider *p = &c->providers[i];
		size_t listed;

		if (!has_shell(p) || c->region != NULL)
			continue; /* in a region a provider's shell is no more allowed than ours */
		lists_all(g->lists, p, &listed);
		s.native_providers++;
		s.native_models += listed > p->n_prices ? listed : p->n_prices;
	}
	return s;
}

/* A number of the query, where it is given. */
static int read_number(
        struct request *r, const char *name, uint64_t most, uint64_t *ret, struct error *err)
{
	_cleanup_buf_ struct buf text = BUF_INIT(64);
	uint64_t n;

	if (!http_query_get(http_request_query(r->x), name, &text))
		return 0;
	if (!str_to_u64((struct str){text.data, text.len}, &n) || n > most)
		return error_param(err, ERR_INVALID, name,
		        "%s must be a whole number, at most %" PRIu64 ".", name, most);
	*ret = n;
	return 0;
}

void tools_list(struct request *r)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
	struct catalogue_server s = server_of(r->g);
	uint64_t offset = 0, limit = PAGE_PRESET, n = 0;
	const struct tool *t;
	struct json_writer w;
	struct error e;

	if (read_number(r, "offset", INT32_MAX, &offset, &e) < 0 ||
	        read_number(r, "limit", PAGE_MOST, &limit, &e) < 0) {
		respond_error(r->x, r->under_v1, &e);
		return;
	}
	jw_init(&w, &out);
	jw_object(&w);
	jw_key(&w, "data");
	jw_array(&w);
	for (; (t = tool_at(n)) != NULL; n++)
		if (n >= offset && n - offset < limit)
			catalogue_write(&w, t, &s);
	jw_end(&w);
	jw_ki64(&w, "total_count", (int64_t)n);
	jw_end(&w);
	respond_json(r->x, 200, &out);
}

void tools_get(struct request *r)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
	struct catalogue_server s = server_of(r->g);
	char name[256];
	struct json_writer w;
	struct error e;

	if (!route_path_decode(r->params[0], name, sizeof(name)))
		name[0] = 0;
	for (size_t i = 0; tool_at(i) != NULL; i++) {
		if (!catalogue_is_named(tool_at(i), str_of(name)))
			continue;
		jw_init(&w, &out);
		jw_object(&w);
		jw_key(&w, "data");
		catalogue_write(&w, tool_at(i), &s);
		jw_end(&w);
		respond_json(r->x, 200, &out);
		return;
	}
	error_set(&e, ERR_NOT_FOUND, "There is no server tool with this name.");
	respond_error(r->x, r->under_v1, &e);
}
