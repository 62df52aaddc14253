/*
 * The JSON object in a request's body, read on the pool where it is large: a few megabytes of small
 * values take longer to read, and to free, than the loop may stand still.
 */
#include "gateway/internal.h"

#include "gateway/fields.h"

#include <stdlib.h>

#define POOL_FROM 32768

struct body_job {
	struct request r; /* r.x is NULL once the client has gone */
	struct owner owner;
	const char *const *allowed;
	request_fields_fn then;
	struct fields fields;
};

static void free_work(void *arg)
{
	struct body_job *j = arg;

	fields_close(&j->fields);
	free(j->r.body);
	free(j);
}

static void read_work(void *arg)
{
	struct body_job *j = arg;

	fields_open(&j->fields, (struct str){j->r.body, j->r.body_len}, j->allowed);
}

static void read_done(void *arg)
{
	struct body_job *j = arg;

	if (j->r.x != NULL) {
		http_exchange_set_data(j->r.x, NULL);
		j->then(&j->r, &j->fields);
	}
	if (!pool_run(j->r.g->pool, free_work, NULL, j))
		free_work(j);
}

static void on_gone(void *self, enum http_gone why)
{
	((struct body_job *)self)->r.x = NULL;
}

static void read_on_pool(struct request *r, const char *const *allowed, request_fields_fn then)
{
	struct body_job *j = mem_alloc(sizeof(*j));
	struct error e;

	*j = (struct body_job){.r = *r, .allowed = allowed, .then = then};
	j->owner = (struct owner){NULL, on_gone, j};
	j->r.body = request_take_body(r, &j->r.body_len);
	http_exchange_set_data(r->x, &j->owner);
	if (pool_run(r->g->pool, read_work, read_done, j))
		return;
	http_exchange_set_data(r->x, NULL);
	free_work(j);
	gateway_busy(&e);
	respond_error(r->x, r->under_v1, &e);
}

void request_fields(struct request *r, const char *const *allowed, request_fields_fn then)
{
	struct fields f;

	if (r->body != NULL || http_request_body(r->x).n > POOL_FROM) {
		read_on_pool(r, allowed, then);
		return;
	}
	fields_open(&f, http_request_body(r->x), allowed);
	then(r, &f);
	fields_close(&f);
}

char *request_take_body(struct request *r, size_t *ret_len)
{
	if (r->body == NULL)
		return http_request_take_body(r->x, ret_len);
	*ret_len = r->body_len;
	return steal(r->body);
}

bool request_may_keep(
        const struct gateway *g, const struct config_key *key, const struct http_exchange *x)
{
	struct str h = http_request_header(x, "x-brig-store-content");

	return g->config->store_content && g->config->region == NULL && keys_keep_content(g, key) &&
	       !str_ieq(h, STR("false")) && !str_is(h, "0");
}

bool request_may_execute(struct request *r)
{
	struct error e;

	if (r->g->config->region != NULL) {
		error_set(&e, ERR_PERMISSION,
		        "This server keeps to the region '%s', so it executes no commands: "
		        "containers cannot be made or used.",
		        r->g->config->region);
		str_copy(e.type, sizeof(e.type), STR("permission_denied"));
	} else if (r->key->disabled_tools & (1u << CONFIG_TOOL_EXEC)) {
		error_set(&e, ERR_PERMISSION,
		        "The tool 'exec' is disabled for this key: it cannot make containers, or "
		        "use "
		        "them without a model.");
		str_copy(e.type, sizeof(e.type), STR("server_tool_disabled"));
	} else {
		return true;
	}
	respond_error(r->x, r->under_v1, &e);
	return false;
}
