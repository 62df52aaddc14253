/*
 * The rows are read where the body is parsed, and their texts put into it. The history of all
 * requests together is bounded like bodies are: a body of 100 bytes may ask for 64 MiB of it.
 */
#include "gateway/responses_past.h"

#include <stdlib.h>

#define ITEM_ID_MAX 256

void responses_past_init(struct responses_past *p, struct gateway *g, const struct config_key *key,
        const struct http_exchange *x)
{
	*p = (struct responses_past){.g = g, .key = key, .allowed = request_may_keep(g, key, x)};
}

bool responses_past_needs(struct responses_past *p, struct str body)
{
	if (!p->scanned)
		responses_state_scan(body, "input", &p->scan);
	p->scanned = true;
	p->local_used = p->local_used || responses_local_is(p->local, p->scan.previous);
	return responses_state_needs(&p->scan);
}

/* What is found is put into the body twice for a moment, and lives as long as the turn. */
static int charge(struct responses_past *p, size_t n, struct error *err)
{
	size_t most = p->g->config->limits.in_flight_bytes;

	p->charged += n;
	if (atomic_fetch_add(&p->g->history_bytes, n) + n <= most)
		return 0;
	error_set(err, ERR_UNAVAILABLE,
	        "Stored conversations take all the memory there is for them: try later.");
	err->retry_after_ms = 1000;
	return -ERR_UNAVAILABLE;
}

static int refuse_unkept(const struct responses_past *p, const char *param, struct error *err)
{
	error_param(err, ERR_INVALID, param,
	        "Nothing is stored here (%s), so there is nothing to go on from: send the items "
	        "themselves in 'input'.",
	        p->g->config->store_content && p->g->config->region == NULL
	                ? "the request says x-brig-store-content: false"
	                : "the server's operator has turned it off");
	str_copy(err->type, sizeof(err->type), STR("unsupported_parameter"));
	return -ERR_INVALID;
}

static int read_chain(struct responses_past *p, struct store_chain *ret, struct error *err)
{
	struct store_scope scope = row_scope(p->key);
	size_t most = p->g->config->limits.body_bytes;
	char id[ITEM_ID_MAX];
	int r = -ERR_NOT_FOUND;

	if (!p->allowed)
		return refuse_unkept(p, "previous_response_id", err);
	if (responses_state_text(p->scan.previous, id, sizeof(id)) && id[0] != 0 &&
	        str_copy(p->previous, sizeof(p->previous), str_of(id)))
		r = store_response_chain(
		        p->g->reader, &scope, str_of(id), clock_wall_ms(), most, ret, err);
	else
		str_copy(id, 65, p->scan.previous);
	if (r == -ERR_NOT_FOUND || r == -ERR_INVALID) {
		error_param(err, ERR_INVALID, "previous_response_id",
		        "Previous response with id '%.64s' not found.", id);
		str_copy(err->type, sizeof(err->type), STR("previous_response_not_found"));
		return -ERR_INVALID;
	}
	if (r == -ERR_TOO_LARGE)
		return error_param(err, ERR_INVALID, "previous_response_id",
		        "The conversation behind '%s' is larger than the %zu bytes that one "
		        "request may hold.",
		        id, most);
	if (r == 0 && ret->running)
		return error_param(err, ERR_INVALID, "previous_response_id",
		        "Response '%s' is still in progress.", id);
	return r < 0 ? r : charge(p, ret->bytes, err);
}

static int read_item(struct responses_past *p, const struct responses_element *e, struct str *ret,
        struct error *err)
{
	struct store_scope scope = row_scope(p->key);
	char id[ITEM_ID_MAX], param[64], *text;
	size_t len;
	int r = -ERR_NOT_FOUND;

	str_format(param, sizeof(param), "input[%zu].id", (size_t)(e - p->scan.elements));
	if (!p->allowed)
		return refuse_unkept(p, param, err);
	if (responses_state_text(e->id, id, sizeof(id)) && id[0] != 0)
		r = store_response_item(
		        p->g->reader, &scope, str_of(id), clock_wall_ms(), &text, &len, err);
	else
		id[0] = 0;
	if (r == -ERR_NOT_FOUND || r == -ERR_INVALID)
		return error_param(err, ERR_INVALID, param, "Item with id '%.64s' not found.", id);
	if (r < 0)
		return r;
	*ret = (struct str){text, len};
	return charge(p, len, err);
}

/* Texts of the items that are referenced, in order; malloc'ed, as the array is. */
static int read_items(struct responses_past *p, struct str *items, size_t *n, struct error *err)
{
	const struct responses_scan *s = &p->scan;
	int r = 0;

	for (size_t i = 0; i < s->n && r == 0; i++) {
		if (!responses_state_is_reference(&s->elements[i]))
			continue;
		items[*n] = (struct str){NULL, 0};
		r = read_item(p, &s->elements[i], &items[*n], err);
		(*n)++;
	}
	return r;
}

/* The new body takes the place of the old one. */
static int put_in(struct responses_past *p, struct api_request *in, const struct store_chain *chain,
        const struct str *items, struct str *ret_own, struct error *err)
{
	struct str body = {in->body, in->body_len};
	struct str *history = mem_array(2 * chain->n + 1, sizeof(*history));
	struct buf out = BUF_INIT(body.n + p->charged + 4096 + 64 * chain->n);
	struct responses_span own = {0, 0};
	int r;

	for (size_t i = 0; i < chain->n; i++) {
		const struct store_chain_link *l = &chain->links[i];

		history[2 * i] = (struct str){l->input, l->input_len};
		history[2 * i + 1] = (struct str){l->output, l->output_len};
	}
	r = responses_state_expand(body, &p->scan, history, 2 * chain->n, items, &out, &own);
	free(history);
	if (r < 0) {
		buf_free(&out);
		return error_set(err, ERR_NOMEM, "The server has no memory for this conversation.");
	}
	free(in->body);
	in->body = buf_steal(&out, &in->body_len);
	in->has_history = true;
	in->n_history = chain->n_items;
	*ret_own = (struct str){in->body + own.at, own.len};
	return 1;
}

int responses_past_expand(
        struct responses_past *p, struct api_request *in, struct str *ret_own, struct error *err)
{
	struct store_chain chain = {0};
	struct str *items;
	size_t n = 0;
	int r = 0;

	if (!responses_past_needs(p, (struct str){in->body, in->body_len})) {
		responses_scan_clear(&p->scan);
		return 0;
	}
	if (p->local_used)
		r = charge(p, p->local->chain.bytes, err);
	else if (p->scan.previous.p != NULL)
		r = read_chain(p, &chain, err);
	items = mem_array(p->scan.n + 1, sizeof(*items));
	if (r == 0)
		r = read_items(p, items, &n, err);
	if (r == 0)
		r = put_in(p, in, p->local_used ? &p->local->chain : &chain, items, ret_own, err);
	for (size_t i = 0; i < n; i++)
		mem_free_ptr(&items[i].p);
	free(items);
	store_chain_clear(&chain);
	responses_scan_clear(&p->scan);
	return r;
}

void responses_past_clear(struct responses_past *p)
{
	p->local = responses_local_free(p->local);
	responses_scan_clear(&p->scan);
	if (p->g != NULL)
		atomic_fetch_sub(&p->g->history_bytes, p->charged);
	p->charged = 0;
}
