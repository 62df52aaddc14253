/*
 * Guardrails over HTTP, for admin keys (docs/guardrails.md): those of the store, the keys that they
 * are assigned to, and the phrases of a workspace. Those of brig.yaml are shown beside them.
 *
 * An admin key manages the workspaces of its account. What is listed or made is its own
 * workspace's, where workspace_id names no other. Before a change is answered this gateway has it
 * in force (rulebook.h).
 */
#include "gateway/fields.h"
#include "gateway/job.h"
#include "gateway/rulebook.h"

#include "base/id.h"
#include "base/utf8.h"

#include <stdlib.h>

#define PAGE_PRESET 50
#define PAGE_MOST   100
#define OFFSET_MOST 1000000
#define HASHES_MOST 1000
#define WORKSPACE   64  /* bytes of its name at most */
#define SHOWN       200 /* bytes of a pattern that cannot be used */
#define TRIES       8
#define FIXED_ID    "config-"

/* ---- what is asked ---- */

/* A number in the query; preset where it is not there. */
static bool number_of(struct job *j, const char *name, uint64_t least, uint64_t most, uint32_t *ret)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	uint64_t n;

	if (!http_query_get(j->query, name, &b))
		return true;
	if (!str_to_u64((struct str){b.data, b.len}, &n) || n < least || n > most) {
		j->result = error_param(&j->err, ERR_INVALID, name,
		        "%s must be a whole number from %llu to %llu.", name,
		        (unsigned long long)least, (unsigned long long)most);
		return false;
	}
	*ret = (uint32_t)n;
	return true;
}

static bool page_of(struct job *j, struct store_page *ret)
{
	*ret = (struct store_page){0, PAGE_PRESET};
	return number_of(j, "offset", 0, OFFSET_MOST, &ret->offset) &&
	       number_of(j, "limit", 1, PAGE_MOST, &ret->limit);
}

static bool is_name(struct str s)
{
	return s.n >= 1 && s.n <= WORKSPACE && memchr(s.p, 0, s.n) == NULL && utf8_valid(s.p, s.n);
}

/* The workspace of the account that is meant: that of the key where none is named. name: {NULL,0}
 * or what the body says. */
static bool scope_named(struct job *j, struct str name, struct store_scope *ret)
{
	*ret = j->scope;
	if (name.p == NULL)
		return true;
	if (!is_name(name)) {
		j->result = error_param(&j->err, ERR_INVALID, "workspace_id",
		        "workspace_id must be text of 1 to %d bytes.", WORKSPACE);
		return false;
	}
	ret->workspace = name;
	return true;
}

/* The same by the query; b holds the name. */
static bool scope_of(struct job *j, struct buf *b, struct store_scope *ret)
{
	struct str name = {NULL, 0};

	if (http_query_get(j->query, "workspace_id", b))
		name = (struct str){b->len > 0 ? b->data : "", b->len};
	return scope_named(j, name, ret);
}

/* The object in the body. */
static struct json_doc *body_read(struct job *j)
{
	struct json_doc *doc = NULL;

	j->result = json_parse((struct str){j->body, j->body_len}, (size_t)64 << 20, &doc, &j->err);
	if (j->result == 0 && !json_is(json_root(doc), JSON_OBJECT)) {
		j->result = error_set(&j->err, ERR_INVALID, "The body must be a JSON object.");
		doc = json_doc_free(doc);
	}
	return doc;
}

/* ---- guardrails of brig.yaml ---- */

static bool is_shown(const struct config_guardrail *g, struct str workspace)
{
	return g->workspace == NULL || str_is(workspace, g->workspace);
}

/* The one of that id, if the workspace is under it. */
static const struct config_guardrail *fixed_find(
        const struct job *j, struct str id, struct str workspace, size_t *ret_at)
{
	const struct config *c = j->g->config;
	struct str rest = {id.p + strlen(FIXED_ID), id.n - strlen(FIXED_ID)};
	uint64_t n;

	if (!str_starts(id, FIXED_ID) || !str_to_u64(rest, &n) || n >= c->n_guardrails ||
	        !is_shown(&c->guardrails[n], workspace))
		return NULL;
	*ret_at = (size_t)n;
	return &c->guardrails[n];
}

/* What cannot be changed here is not. */
static bool may_change(struct job *j)
{
	size_t at;

	if (fixed_find(j, j->params[0], j->scope.workspace, &at) == NULL)
		return true;
	j->result = error_set(&j->err, ERR_PERMISSION,
	        "This guardrail stands in the server's configuration, and is changed only there.");
	return false;
}

/* ---- answers ---- */

static void write_fixed(struct json_writer *w, const struct config_guardrail *g, size_t at)
{
	const struct stored_guardrail s = {.g = *g};
	char id[32];

	str_format(id, sizeof(id), FIXED_ID "%zu", at);
	jw_object(w);
	jw_kcstr(w, "id", id);
	stored_guardrail_write(&s, w);
	jw_kcstr(w, "workspace_id", g->workspace);
	jw_knull(w, "created_at");
	jw_knull(w, "updated_at");
	jw_kbool(w, "read_only", true);
	jw_end(w);
}

/* A row of which the body cannot be read is shown too, so that it can be deleted. */
static void write_stored(struct json_writer *w, const struct store_guardrail *row)
{
	struct stored_guardrail s = {.description = NULL};
	struct json_doc *doc = NULL;
	struct error e;

	jw_object(w);
	jw_kcstr(w, "id", row->id);
	if (json_parse(str_of(row->body), (size_t)256 << 20, &doc, &e) == 0 &&
	        stored_guardrail_read(&s, json_root(doc), &e) == 0)
		stored_guardrail_write(&s, w);
	else
		jw_kcstr(w, "error", e.text);
	json_doc_free(doc);
	stored_guardrail_clear(&s);
	jw_kcstr(w, "workspace_id", row->workspace);
	jw_ktime(w, "created_at", row->created_ms);
	jw_ktime(w, "updated_at", row->updated_ms);
	jw_kbool(w, "read_only", false);
	jw_end(w);
}

static void answer_stored(struct job *j, int status, const struct store_guardrail *row)
{
	struct json_writer w;

	j->status = status;
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_key(&w, "data");
	write_stored(&w, row);
	jw_end(&w);
}

static void answer_member(struct job *j, const char *key, int64_t n)
{
	struct json_writer w;

	jw_init(&w, &j->out);
	jw_object(&w);
	jw_ki64(&w, key, n);
	jw_end(&w);
}

static void answer_deleted(struct job *j)
{
	struct json_writer w;

	jw_init(&w, &j->out);
	jw_object(&w);
	jw_kbool(&w, "deleted", true);
	jw_end(&w);
}

/* {"data": [ … */
static void list_begin(struct json_writer *w, struct job *j)
{
	jw_init(w, &j->out);
	jw_object(w);
	jw_key(w, "data");
	jw_array(w);
}

static void list_end(struct json_writer *w, uint64_t total)
{
	jw_end(w);
	jw_ki64(w, "total_count", (int64_t)total);
	jw_end(w);
}

/* A 400 that also shows which pattern it is about. */
static void answer_pattern(struct job *j, struct str pattern)
{
	struct str shown = {pattern.p, pattern.n < SHOWN ? pattern.n : SHOWN};
	struct json_writer w;

	shown.n -= utf8_incomplete_tail(shown.p, shown.n);
	j->status = 400;
	j->result = 0;
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_key(&w, "error");
	jw_object(&w);
	jw_kcstr(&w, "message", j->err.text);
	jw_kcstr(&w, "type", j->err.type);
	jw_kcstr(&w, "param", j->err.param);
	if (j->under_v1)
		jw_kcstr(&w, "code", j->err.type);
	else
		jw_ki64(&w, "code", 400);
	jw_key(&w, "metadata");
	jw_object(&w);
	jw_kstr(&w, "pattern", shown);
	jw_end(&w);
	jw_end(&w);
	jw_kcstr(&w, "error_type", api_error_name(&j->err));
	jw_end(&w);
}

/* ---- guardrails ---- */

static void list_work(struct job *j)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WORKSPACE * 4);
	const struct config *c = j->g->config;
	struct store_guardrail_list list = {0};
	struct store_scope scope;
	struct store_page page, rest;
	struct json_writer w;
	uint32_t fixed = 0;

	if (!page_of(j, &page) || !scope_of(j, &b, &scope))
		return;
	for (size_t i = 0; i < c->n_guardrails; i++)
		fixed += is_shown(&c->guardrails[i], scope.workspace);
	rest = page;
	rest.offset = page.offset > fixed ? page.offset - fixed : 0;
	if (page.offset < fixed)
		rest.limit =
		        page.limit > fixed - page.offset ? page.limit - (fixed - page.offset) : 0;
	j->result = store_guardrail_list(j->g->reader, &scope, rest, &list, &j->err);
	if (j->result < 0)
		return;
	list_begin(&w, j);
	for (size_t i = 0, n = 0; i < c->n_guardrails; i++) {
		if (!is_shown(&c->guardrails[i], scope.workspace))
			continue;
		if (n >= page.offset && n < (uint64_t)page.offset + page.limit)
			write_fixed(&w, &c->guardrails[i], i);
		n++;
	}
	for (size_t i = 0; i < list.n; i++)
		write_stored(&w, &list.rows[i]);
	list_end(&w, fixed + list.total);
	store_guardrail_list_clear(&list);
}

static void get_work(struct job *j)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WORKSPACE * 4);
	struct store_guardrail row = {.body = NULL};
	const struct config_guardrail *fixed;
	struct store_scope scope;
	struct json_writer w;
	size_t at;

	if (!scope_of(j, &b, &scope))
		return;
	fixed = fixed_find(j, j->params[0], scope.workspace, &at);
	if (fixed != NULL) {
		jw_init(&w, &j->out);
		jw_object(&w);
		jw_key(&w, "data");
		write_fixed(&w, fixed, at);
		jw_end(&w);
		return;
	}
	j->result =
	        store_guardrail_get(j->g->reader, j->scope.account, j->params[0], &row, &j->err);
	if (j->result == 0)
		answer_stored(j, 200, &row);
	store_guardrail_clear(&row);
}

/* The form of OpenRouter's ids. */
static void make_id(char out[STORE_ID_MAX + 1])
{
	uint8_t r[16];
	char hex[33];

	id_random(r, sizeof(r));
	r[6] = (uint8_t)((r[6] & 0x0f) | 0x40);
	r[8] = (uint8_t)((r[8] & 0x3f) | 0x80);
	id_hex(r, sizeof(r), hex);
	str_format(out, STORE_ID_MAX + 1, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12,
	        hex + 16, hex + 20);
}

/* Reads an object over what there is, checks it, and fills the row's body; false: it is refused. */
static bool row_fill(struct job *j, struct stored_guardrail *s, const struct json *object,
        struct store_guardrail *row)
{
	struct buf body = BUF_INIT(STORE_GUARDRAIL_BODY_MAX);
	struct str pattern = {NULL, 0};
	struct json_writer w;

	j->result = stored_guardrail_read(s, object, &j->err);
	if (j->result < 0)
		return false;
	j->result = stored_guardrail_check(s, &pattern, &j->err);
	if (j->result < 0) {
		answer_pattern(j, pattern);
		return false;
	}
	jw_init(&w, &body);
	jw_object(&w);
	stored_guardrail_write(s, &w);
	jw_end(&w);
	if (buf_error(&body) < 0) {
		buf_free(&body);
		j->result = error_set(&j->err, ERR_TOO_LARGE, "The guardrail is too large.");
		return false;
	}
	free(row->body);
	row->body = buf_steal(&body, NULL);
	row->n_rules = (uint32_t)s->g.n_rules;
	row->updated_ms = clock_wall_ms();
	return true;
}

/* How many rules the store may have for a workspace. */
static uint32_t rules_left(const struct job *j, struct str workspace)
{
	size_t rules, phrases;

	rulebook_fixed(j->g->rulebook, workspace, &rules, &phrases);
	return (uint32_t)(GUARD_RULES_MAX - rules);
}

static void create(struct job *j, const struct json *object)
{
	const struct json *workspace = json_get(object, "workspace_id");
	struct stored_guardrail s = {.description = NULL};
	struct store_guardrail row = {.body = NULL};
	struct str name = {NULL, 0};
	struct store_scope scope;

	if (!json_absent(workspace))
		name = json_is(workspace, JSON_STRING) ? json_str(workspace) : STR("");
	if (!scope_named(j, name, &scope))
		return;
	make_id(row.id);
	if (row_fill(j, &s, object, &row)) {
		row.created_ms = row.updated_ms;
		j->result = store_guardrail_create(
		        j->g->store, &scope, &row, rules_left(j, scope.workspace), &j->err);
		if (j->result == 0)
			j->result = rulebook_refresh(j->g->rulebook, &scope, &j->err);
		if (j->result == 0) {
			row.workspace = mem_strndup(scope.workspace.p, scope.workspace.n);
			answer_stored(j, 201, &row);
		}
	}
	stored_guardrail_clear(&s);
	store_guardrail_clear(&row);
}

static void create_work(struct job *j)
{
	struct json_doc *doc = body_read(j);

	if (doc != NULL)
		create(j, json_root(doc));
	json_doc_free(doc);
}

/* What a row is now, and what the object makes of it. */
static bool row_change(struct job *j, const struct json *object, struct store_guardrail *row)
{
	const struct json *workspace = json_get(object, "workspace_id");
	struct stored_guardrail s = {.description = NULL};
	struct json_doc *doc = NULL;
	bool ok = false;

	if (!json_absent(workspace) && !str_is(json_str(workspace), row->workspace)) {
		j->result = error_param(&j->err, ERR_INVALID, "workspace_id",
		        "The workspace of a guardrail does not change.");
		return false;
	}
	if (json_parse(str_of(row->body), (size_t)256 << 20, &doc, NULL) < 0 ||
	        stored_guardrail_read(&s, json_root(doc), NULL) < 0)
		j->result = error_set(&j->err, ERR_CONFLICT,
		        "What is stored of this guardrail cannot be read: delete it and make it "
		        "anew.");
	else
		ok = row_fill(j, &s, object, row);
	json_doc_free(doc);
	stored_guardrail_clear(&s);
	return ok;
}

/* True: somebody else has changed it meanwhile. */
static bool change_once(struct job *j, const struct json *object)
{
	struct store_guardrail row = {.body = NULL};
	char *before = NULL;

	j->result = store_guardrail_get(j->g->store, j->scope.account, j->params[0], &row, &j->err);
	if (j->result == 0) {
		const struct store_scope scope = {j->scope.account, str_of(row.workspace)};

		before = mem_strdup(row.body);
		if (row_change(j, object, &row)) {
			j->result = store_guardrail_change(j->g->store, j->scope.account, &row,
			        str_of(before), rules_left(j, scope.workspace), &j->err);
			if (j->result == -ERR_CONFLICT) {
				store_guardrail_clear(&row);
				free(before);
				return true;
			}
			if (j->result == 0)
				j->result = rulebook_refresh(j->g->rulebook, &scope, &j->err);
			if (j->result == 0)
				answer_stored(j, 200, &row);
		}
	}
	store_guardrail_clear(&row);
	free(before);
	return false;
}

static void change_work(struct job *j)
{
	struct json_doc *doc = may_change(j) ? body_read(j) : NULL;

	for (int i = 0; i < TRIES && doc != NULL && change_once(j, json_root(doc)); i++)
		;
	json_doc_free(doc);
}

static void delete_work(struct job *j)
{
	if (!may_change(j))
		return;
	j->result = store_guardrail_delete(j->g->store, j->scope.account, j->params[0], &j->err);
	if (j->result == 0)
		j->result = rulebook_refresh(j->g->rulebook, NULL, &j->err);
	if (j->result == 0)
		answer_deleted(j);
}

/* ---- keys ---- */

static void keys_work(struct job *j)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WORKSPACE * 4);
	struct store_guardrail row = {.body = NULL};
	struct store_guardrail_key_list list = {0};
	struct str id = {NULL, 0};
	struct store_scope scope;
	struct store_page page;
	struct json_writer w;
	size_t at;

	if (!page_of(j, &page) || !scope_of(j, &b, &scope))
		return;
	if (j->params[0].n > 0)
		id = j->params[0];
	/* One of brig.yaml is assigned to no key: it holds for all. */
	if (id.p != NULL && fixed_find(j, id, scope.workspace, &at) == NULL) {
		j->result = store_guardrail_get(j->g->reader, scope.account, id, &row, &j->err);
		scope.workspace = str_of(row.workspace);
	}
	if (j->result == 0)
		j->result = store_guardrail_keys(j->g->reader, &scope, id, page, &list, &j->err);
	if (j->result == 0) {
		list_begin(&w, j);
		for (size_t i = 0; i < list.n; i++) {
			jw_object(&w);
			jw_kcstr(&w, "id", list.rows[i].id);
			jw_kcstr(&w, "key_hash", list.rows[i].key_hash);
			jw_kcstr(&w, "guardrail_id", list.rows[i].guardrail);
			jw_ktime(&w, "created_at", list.rows[i].created_ms);
			jw_end(&w);
		}
		list_end(&w, list.total);
		free(list.rows);
	}
	store_guardrail_clear(&row);
}

/* A key that is known must be of that workspace; one that is not may be made later. */
static bool key_fits(const struct job *j, const struct store_key *stored, size_t n_stored,
        struct str hash, const struct store_scope *scope)
{
	const struct config *c = j->g->config;
	char hex[65];

	for (size_t i = 0; i < n_stored; i++)
		if (str_is(hash, stored[i].hash) &&
		        (!str_is(scope->account, stored[i].account) ||
		                !str_is(scope->workspace, stored[i].workspace)))
			return false;
	for (size_t i = 0; i < c->n_keys; i++) {
		const struct config_key *k = &c->keys[i];

		id_hex(k->hash, sizeof(k->hash), hex);
		if (str_is(hash, hex) && (!str_is(scope->account, k->account) ||
		                                 !str_is(scope->workspace, k->workspace)))
			return false;
	}
	return true;
}

/* The hashes of the body's key_hashes; scope: of the guardrail, NULL: whose keys they are is not
 * looked at. NULL: j has the error. */
static struct str *hashes_of(
        struct job *j, struct fields *f, const struct store_scope *scope, size_t *ret_n)
{
	const struct json *list = fields_strings(f, "key_hashes", HASHES_MOST);
	struct str *hashes = mem_array(HASHES_MOST, sizeof(*hashes));
	struct store_key *stored _cleanup_free_ = NULL;
	char param[32];
	size_t n = 0, n_stored = 0;

	if (list == NULL)
		fields_fail(f, "key_hashes", "key_hashes is missing.");
	if (scope != NULL && store_key_list(j->g->reader, (struct str){NULL, 0}, &stored, &n_stored,
	                             &f->error) < 0)
		f->failed = true;
	for (const struct json *v = json_first(list); v != NULL && !f->failed; v = json_next(v)) {
		struct str hash = json_str(v);

		str_format(param, sizeof(param), "key_hashes[%zu]", n);
		hashes[n++] = hash;
		if (hash.n != STORE_KEY_HASH || !str_in_set(hash, "0123456789abcdef"))
			fields_fail(f, param,
			        "%s must be a key's SHA-256: %d hex digits in small letters.",
			        param, STORE_KEY_HASH);
		else if (scope != NULL && !key_fits(j, stored, n_stored, hash, scope))
			fields_fail(f, param,
			        "%s is a key of another workspace than the guardrail.", param);
	}
	*ret_n = n;
	if (!f->failed)
		return hashes;
	j->err = f->error;
	j->result = -(int)f->error.code;
	free(hashes);
	return NULL;
}

static void assign(struct job *j, bool on)
{
	static const char *const allowed[] = {"key_hashes", NULL};
	struct store_guardrail row = {.body = NULL};
	struct str *hashes = NULL;
	struct fields f;
	size_t n;

	if (!may_change(j))
		return;
	fields_open(&f, (struct str){j->body, j->body_len}, allowed);
	j->result = store_guardrail_get(j->g->store, j->scope.account, j->params[0], &row, &j->err);
	const struct store_scope scope = {j->scope.account, str_of(row.workspace)};

	if (j->result == 0)
		hashes = hashes_of(j, &f, on ? &scope : NULL, &n);
	if (hashes != NULL && on)
		j->result = store_guardrail_assign(j->g->store, j->scope.account, j->params[0],
		        hashes, n, clock_wall_ms(), &j->err);
	else if (hashes != NULL)
		j->result = store_guardrail_unassign(
		        j->g->store, j->scope.account, j->params[0], hashes, n, &j->err);
	if (j->result >= 0) {
		answer_member(j, on ? "assigned_count" : "unassigned_count", j->result);
		j->result = rulebook_refresh(j->g->rulebook, &scope, &j->err);
	}
	free(hashes);
	fields_close(&f);
	store_guardrail_clear(&row);
}

static void assign_work(struct job *j)
{
	assign(j, true);
}

static void unassign_work(struct job *j)
{
	assign(j, false);
}

/* ---- phrases ---- */

static void write_phrase(
        struct json_writer *w, const struct store_phrase *p, const struct store_scope *scope)
{
	jw_object(w);
	jw_kcstr(w, "id", p->id);
	jw_kcstr(w, "phrase", p->phrase);
	jw_kstr(w, "workspace_id", scope->workspace);
	jw_ktime(w, "created_at", p->created_ms);
	jw_end(w);
}

static void phrases_work(struct job *j)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WORKSPACE * 4);
	struct store_phrase *rows = NULL;
	struct store_scope scope;
	struct json_writer w;
	size_t n = 0;

	if (!scope_of(j, &b, &scope))
		return;
	j->result = store_phrase_list(j->g->reader, &scope, &rows, &n, &j->err);
	if (j->result < 0)
		return;
	list_begin(&w, j);
	for (size_t i = 0; i < n; i++)
		write_phrase(&w, &rows[i], &scope);
	list_end(&w, n);
	free(rows);
}

static void allow(struct job *j, struct fields *f)
{
	struct str text = {NULL, 0}, name = {NULL, 0};
	size_t rules, phrases;
	struct store_phrase row;
	struct store_scope scope;
	struct json_writer w;

	fields_str(f, "phrase", STORE_PHRASE_MAX, &text);
	fields_str(f, "workspace_id", WORKSPACE, &name);
	if (text.n < STORE_PHRASE_MIN || memchr(text.p, 0, text.n) != NULL)
		fields_fail(f, "phrase", "phrase must be text of %d to %d bytes.", STORE_PHRASE_MIN,
		        STORE_PHRASE_MAX);
	if (f->failed) {
		j->err = f->error;
		j->result = -(int)f->error.code;
		return;
	}
	if (!scope_named(j, name, &scope))
		return;
	rulebook_fixed(j->g->rulebook, scope.workspace, &rules, &phrases);
	j->result = store_phrase_allow(j->g->store, &scope, text, clock_wall_ms(),
	        (uint32_t)(GUARD_PHRASES_MAX - phrases), &row, &j->err);
	if (j->result < 0)
		return;
	j->status = j->result > 0 ? 201 : 200;
	j->result = rulebook_refresh(j->g->rulebook, &scope, &j->err);
	jw_init(&w, &j->out);
	jw_object(&w);
	jw_key(&w, "data");
	write_phrase(&w, &row, &scope);
	jw_end(&w);
}

static void allow_work(struct job *j)
{
	static const char *const allowed[] = {"phrase", "workspace_id", NULL};
	struct fields f;

	fields_open(&f, (struct str){j->body, j->body_len}, allowed);
	allow(j, &f);
	fields_close(&f);
}

static void disallow_work(struct job *j)
{
	j->result = store_phrase_disallow(j->g->store, j->scope.account, j->params[0], &j->err);
	if (j->result == 0)
		j->result = rulebook_refresh(j->g->rulebook, NULL, &j->err);
	if (j->result == 0)
		answer_deleted(j);
}

/* ---- routes ---- */

void guardrails_http_list(struct request *r)
{
	job_run(r, list_work);
}

void guardrails_http_create(struct request *r)
{
	job_run(r, create_work);
}

void guardrails_http_get(struct request *r)
{
	job_run(r, get_work);
}

void guardrails_http_change(struct request *r)
{
	job_run(r, change_work);
}

void guardrails_http_delete(struct request *r)
{
	job_run(r, delete_work);
}

void guardrails_http_keys(struct request *r)
{
	job_run(r, keys_work);
}

void guardrails_http_assign(struct request *r)
{
	job_run(r, assign_work);
}

void guardrails_http_unassign(struct request *r)
{
	job_run(r, unassign_work);
}

void guardrails_http_phrases(struct request *r)
{
	job_run(r, phrases_work);
}

void guardrails_http_allow(struct request *r)
{
	job_run(r, allow_work);
}

void guardrails_http_disallow(struct request *r)
{
	job_run(r, disallow_work);
}
