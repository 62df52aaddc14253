/*
 * GET /responses/{id}/input_items: all that the model was given for a stored response, made out of
 * the rows of the responses before it.
 */
#include "gateway/responses_state_http.h"

#include "api/responses_state.h"
#include "base/id.h"

#include <stdlib.h>

#define LIMIT_DEFAULT 20
#define LIMIT_MAX     100
#define ITEM_ID_MAX   256
#define TREE_MAX      ((size_t)128 << 20)

struct ask {
	char id[STORE_ID_MAX + 1];
	uint64_t limit;
	bool ascending;
	char after[ITEM_ID_MAX]; /* "": from the beginning */
};

struct entry {
	const struct json *item; /* NULL: a user's message, all of it in text */
	const struct json *text;
	char id[48]; /* for one that has none */
};
struct items {
	struct entry *e;
	size_t n, cap;
};

static void add(struct items *l, const char *response, const struct json *item, size_t index)
{
	char number[24], hex[65];
	uint8_t hash[32];
	struct entry *e;

	mem_grow(&l->e, &l->cap, l->n, sizeof(*l->e));
	e = &l->e[l->n++];
	e->item = json_is(item, JSON_OBJECT) ? item : NULL;
	e->text = item;
	str_format(number, sizeof(number), "%zu", index);
	const struct str parts[] = {str_of(response), str_of(number)};

	id_sha256_parts(parts, 2, hash);
	id_hex(hash, sizeof(hash), hex);
	str_format(e->id, sizeof(e->id), "%s%.24s",
	        e->item != NULL ? responses_state_prefix(e->item) : "msg_", hex);
}

/* Adds the elements of one text of a chain; the tree is *doc's. */
static int add_text(struct items *l, const struct store_chain_link *link, struct str text,
        struct json_doc **doc, struct error *err)
{
	const struct json *root;
	size_t i = 0;
	int r = json_parse(text, TREE_MAX, doc, err);

	if (r < 0)
		return r;
	root = json_root(*doc);
	if (json_is(root, JSON_STRING))
		add(l, link->id, root, 0);
	for (const struct json *v = json_first(root); v; v = json_next(v))
		add(l, link->id, v, i++);
	return 0;
}

static struct str entry_id(const struct entry *e)
{
	struct str id = json_str(json_get(e->item, "id"));

	return id.p != NULL ? id : str_of(e->id);
}

static void write_entry(struct json_writer *w, const struct entry *e)
{
	if (e->item != NULL) {
		responses_state_write_item(w, e->item, e->id);
		return;
	}
	jw_object(w);
	jw_kcstr(w, "id", e->id);
	jw_kcstr(w, "type", "message");
	jw_kcstr(w, "status", "completed");
	jw_kcstr(w, "role", "user");
	jw_key(w, "content");
	jw_array(w);
	jw_object(w);
	jw_kcstr(w, "type", "input_text");
	jw_kraw(w, "text", json_raw(e->text));
	jw_end(w);
	jw_end(w);
	jw_end(w);
}

/* Entry number i in the order that was asked for. */
static const struct entry *entry_at(const struct ask *a, const struct items *l, size_t i)
{
	return &l->e[a->ascending ? i : l->n - 1 - i];
}

static int write_list(struct job *j, const struct items *l)
{
	const struct ask *a = j->own;
	struct json_writer w;
	size_t from = 0, to;

	while (a->after[0] != 0 && from < l->n && !str_is(entry_id(entry_at(a, l, from)), a->after))
		from++;
	if (a->after[0] != 0 && from++ == l->n)
		return error_param(&j->err, ERR_INVALID, "after",
		        "There is no item with the id given in 'after'.");
	to = l->n - from > a->limit ? from + (size_t)a->limit : l->n;
	buf_init(&j->out, j->g->config->limits.body_bytes * 2);
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_kcstr(&w, "object", "list");
	jw_key(&w, "data");
	jw_array(&w);
	for (size_t i = from; i < to; i++)
		write_entry(&w, entry_at(a, l, i));
	jw_end(&w);
	if (from < to) {
		jw_kstr(&w, "first_id", entry_id(entry_at(a, l, from)));
		jw_kstr(&w, "last_id", entry_id(entry_at(a, l, to - 1)));
	} else {
		jw_knull(&w, "first_id");
		jw_knull(&w, "last_id");
	}
	jw_kbool(&w, "has_more", to < l->n);
	jw_end(&w);
	return buf_error(&j->out) < 0
	               ? error_set(&j->err, ERR_TOO_LARGE, "The list is too large: use 'limit'.")
	               : 0;
}

/* All that the model was given: the chain before, and the request's own input. */
static int list(struct job *j, const struct store_chain *c)
{
	struct json_doc **docs = mem_array(2 * c->n, sizeof(*docs));
	struct items l = {0};
	int r = 0;

	for (size_t i = 0; i < c->n && r == 0; i++) {
		const struct store_chain_link *k = &c->links[i];

		r = add_text(&l, k, (struct str){k->input, k->input_len}, &docs[2 * i], &j->err);
		if (r == 0 && i + 1 < c->n)
			r = add_text(&l, k, (struct str){k->output, k->output_len},
			        &docs[2 * i + 1], &j->err);
	}
	if (r == 0)
		r = write_list(j, &l);
	for (size_t i = 0; i < 2 * c->n; i++)
		json_doc_free(docs[i]);
	free(docs);
	free(l.e);
	return r;
}

static void list_work(struct job *j)
{
	const struct ask *a = j->own;
	struct store_chain c;

	j->result = store_response_chain(j->g->reader, &j->scope, str_of(a->id), clock_wall_ms(),
	        j->g->config->limits.body_bytes, &c, &j->err);
	responses_state_http_explain(j, a->id);
	if (j->result < 0)
		return;
	j->result = list(j, &c);
	store_chain_clear(&c);
}

static int read_query(struct ask *a, struct str query, struct error *err)
{
	_cleanup_buf_ struct buf limit = BUF_INIT(64);
	_cleanup_buf_ struct buf order = BUF_INIT(64);
	_cleanup_buf_ struct buf after = BUF_INIT(ITEM_ID_MAX - 1);

	a->limit = LIMIT_DEFAULT;
	if (http_query_get(query, "limit", &limit) &&
	        (!str_to_u64((struct str){limit.data, limit.len}, &a->limit) || a->limit < 1 ||
	                a->limit > LIMIT_MAX))
		return error_param(err, ERR_INVALID, "limit", "limit must be 1 to %d.", LIMIT_MAX);
	if (http_query_get(query, "order", &order)) {
		struct str v = {order.data, order.len};

		if (!str_is(v, "asc") && !str_is(v, "desc"))
			return error_param(err, ERR_INVALID, "order", "order must be asc or desc.");
		a->ascending = str_is(v, "asc");
	}
	if (http_query_get(query, "after", &after))
		str_copy(a->after, sizeof(a->after), (struct str){after.data, after.len});
	return 0;
}

void responses_state_items_list(struct request *r)
{
	struct job *j = job_new(r, list_work, sizeof(struct ask));
	struct ask *a = j->own;
	struct error e;

	if (r->params[0].n <= STORE_ID_MAX)
		str_copy(a->id, sizeof(a->id), r->params[0]);
	if (read_query(a, j->query, &e) < 0)
		job_fail(j, &e);
	else
		job_go(j);
}
