#include "gateway/responses_local.h"

#include <stdlib.h>

static void link_fill(
        struct store_chain_link *l, const char *id, struct str input, struct str output)
{
	str_copy(l->id, sizeof(l->id), str_of(id));
	l->input = mem_strndup(input.p, input.n);
	l->input_len = input.n;
	l->output = mem_strndup(output.p, output.n);
	l->output_len = output.n;
}

struct responses_local *responses_local_new(
        struct gateway *g, const char *id, struct str input, size_t n_input, struct str object)
{
	struct responses_local *l = NULL;
	struct responses_scan scan;

	if (input.p == NULL) {
		input = STR("[]");
		n_input = 0;
	}
	if (!responses_state_scan(object, "output", &scan))
		return NULL;

	size_t bytes = input.n + scan.list.n;

	if (scan.list.p == NULL || bytes > g->config->limits.body_bytes)
		goto out;
	if (atomic_fetch_add(&g->history_bytes, bytes) + bytes >
	        g->config->limits.in_flight_bytes) {
		atomic_fetch_sub(&g->history_bytes, bytes);
		goto out;
	}
	l = mem_alloc(sizeof(*l));
	l->g = g;
	l->charged = bytes;
	str_copy(l->id, sizeof(l->id), str_of(id));
	l->chain = (struct store_chain){
	        .links = mem_array(1, sizeof(*l->chain.links)),
	        .n = 1,
	        .n_items = n_input + scan.n,
	        .bytes = bytes,
	};
	link_fill(&l->chain.links[0], id, input, scan.list);
out:
	responses_scan_clear(&scan);
	return l;
}

struct responses_local *responses_local_free(struct responses_local *l)
{
	if (l == NULL)
		return NULL;
	atomic_fetch_sub(&l->g->history_bytes, l->charged);
	store_chain_clear(&l->chain);
	free(l);
	return NULL;
}

bool responses_local_is(const struct responses_local *l, struct str raw)
{
	char id[STORE_ID_MAX + 1];

	return l != NULL && raw.p != NULL && responses_state_text(raw, id, sizeof(id)) &&
	       strcmp(id, l->id) == 0;
}
