/*
 * Theory of operation
 *
 * The scan works on the body as it came and not on the conversation that is made of it: what is
 * redacted there is redacted for everybody who reads the body later, which are the translation to
 * another dialect, a relay of the client's own bytes, the response object that echoes
 * `instructions`, and what is stored for previous_response_id. Everything else of the body keeps
 * its bytes.
 *
 * The walk over the JSON tree knows as much of the dialects as it needs: which members of a request
 * hold what is said, where the elements of the conversation are and who wrote them, where results
 * of tools are, and which strings are no text (ids, addresses, Base64). An unknown member inside of
 * the conversation is text. The tree refuses double keys, so that nobody later reads another `role`
 * than is read here.
 *
 * Which rules hold is not known here: ruleset.c.
 */
#include "gateway/guardrails.h"

#include "base/log.h"
#include "base/mem.h"
#include "json/json.h"

#include <stdlib.h>
#include <string.h>

#define TREE_MAX   ((size_t)128 << 20) /* as the apis have it */
#define LOGGED_MAX 16                  /* hits of one request */
#define GROW_MAX   ((size_t)1 << 20)

/* ---- what is whose in a body ---- */

struct member {
	enum dialect dialect;
	const char *name;
	enum { SAID, LIST, TOOLS } kind;
	enum guard_author author; /* of a string; elements of a list say theirs */
};

static const struct member members[] = {
        {DIALECT_OPENAI_RESPONSES, "instructions", SAID, GUARD_OTHER},
        {DIALECT_OPENAI_RESPONSES, "prompt", SAID, GUARD_OTHER},
        {DIALECT_OPENAI_RESPONSES, "input", LIST, GUARD_USER},
        {DIALECT_OPENAI_RESPONSES, "tools", TOOLS, GUARD_OTHER},
        {DIALECT_ANTHROPIC, "system", SAID, GUARD_OTHER},
        {DIALECT_ANTHROPIC, "messages", LIST, GUARD_USER},
        {DIALECT_ANTHROPIC, "tools", TOOLS, GUARD_OTHER},
        {DIALECT_GEMINI, "systemInstruction", SAID, GUARD_OTHER},
        {DIALECT_GEMINI, "system_instruction", SAID, GUARD_OTHER},
        {DIALECT_GEMINI, "contents", LIST, GUARD_USER},
        {DIALECT_GEMINI, "tools", TOOLS, GUARD_OTHER},
        {DIALECT_OPENAI_CHAT, "messages", LIST, GUARD_USER},
        {DIALECT_OPENAI_CHAT, "prediction", SAID, GUARD_OTHER},
        {DIALECT_OPENAI_CHAT, "tools", TOOLS, GUARD_OTHER},
        {DIALECT_OPENAI_CHAT, "functions", TOOLS, GUARD_OTHER},
};

/* Members whose strings nobody reads as text. */
static bool is_no_text(const struct json *object, struct str key)
{
	static const char *const names[] = {"type", "role", "status", "id", "call_id",
	        "tool_call_id", "tool_use_id", "container_id", "file_id", "url", "image_url",
	        "file_url", "fileUri", "file_uri", "file_data", "detail", "format", "mimeType",
	        "mime_type", "media_type", "signature", "thoughtSignature", "thought_signature",
	        "encrypted_content"};

	/* Anthropic's text documents have their text where others have Base64. */
	if (str_is(key, "data"))
		return !str_is(json_str(json_get(object, "type")), "text");
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (str_is(key, names[i]))
			return true;
	return false;
}

struct frame {
	const struct json *of, *at; /* at: the next child */
	enum guard_author author;
	unsigned level; /* objects since the list: 1 is an element, 2 one of its parts */
	bool list;      /* its elements say who wrote them */
	bool plain;     /* every string is text: arguments of a call */
	bool tools;     /* only descriptions are text */
};

struct walk {
	const struct guard *guard;
	enum dialect speaks;
	struct guard_scan *scan;
	struct str body;
	struct buf out; /* up to done, once something was redacted */
	size_t done;
	struct str *own;
	size_t own_begin, own_end; /* in body, then in out */
	bool begin_moved, end_moved, changed;
	struct frame stack[JSON_MAX_DEPTH + 1];
	size_t n;
};

static enum guard_author author_of(enum dialect speaks, const struct json *element)
{
	struct str role = json_str(json_get(element, "role"));

	if (speaks == DIALECT_GEMINI)
		return str_is(role, "model") ? GUARD_OTHER : GUARD_USER;
	if (speaks == DIALECT_OPENAI_CHAT && (str_is(role, "tool") || str_is(role, "function")))
		return GUARD_TOOL;
	return str_is(role, "user") ? GUARD_USER : GUARD_OTHER;
}

/* Is the member what a tool gave? */
static bool is_tool_output(const struct walk *w, const struct frame *f, struct str key)
{
	switch (w->speaks) {
	case DIALECT_OPENAI_RESPONSES:
		return f->level == 1 && (str_is(key, "output") || str_is(key, "results")) &&
		       !json_get(f->of, "role");
	case DIALECT_ANTHROPIC:
		return f->level == 2 && str_is(key, "content") &&
		       str_ends(json_str(json_get(f->of, "type")), "tool_result");
	case DIALECT_GEMINI:
		return f->level == 2 &&
		       (str_is(key, "functionResponse") || str_is(key, "function_response") ||
		               str_is(key, "codeExecutionResult") ||
		               str_is(key, "code_execution_result"));
	case DIALECT_OPENAI_CHAT:
	case DIALECT_SCRIPT:
		break;
	}
	return false;
}

static bool is_plain(const struct walk *w, const struct frame *f, struct str key)
{
	if (w->speaks == DIALECT_ANTHROPIC)
		return f->level == 2 && str_is(key, "input");
	return w->speaks == DIALECT_GEMINI && f->level == 3 &&
	       (str_is(key, "args") || str_is(key, "response"));
}

/* ---- the scan ---- */

/* Where the own items begin or end in the new body, once all before that is written. */
static void move_own(struct walk *w, size_t upto)
{
	size_t shift = w->out.len - w->done; /* may wrap: it is added again */

	if (!w->begin_moved && w->own_begin <= upto) {
		w->own_begin += shift;
		w->begin_moved = true;
	}
	if (!w->end_moved && w->own_end <= upto) {
		w->own_end += shift;
		w->end_moved = true;
	}
}

static void replace(struct walk *w, const struct json *value, struct str text)
{
	struct str raw = json_raw(value);
	size_t at = (size_t)(raw.p - w->body.p);
	struct json_writer writer;

	move_own(w, at);
	buf_append(&w->out, w->body.p + w->done, at - w->done);
	jw_init(&writer, &w->out);
	jw_str(&writer, text);
	w->done = at + raw.n;
	w->changed = true;
}

static int scan_string(struct walk *w, const struct json *value, enum guard_author author)
{
	struct str text = json_str(value);
	struct buf redacted = BUF_INIT(4 * text.n + GROW_MAX);
	bool changed = false;
	int r = guard_text(w->guard, text, author, w->scan, &redacted, &changed);

	if (r == 0 && changed)
		replace(w, value, (struct str){redacted.data, redacted.len});
	buf_free(&redacted);
	return r < 0 ? r : buf_error(&w->out);
}

static void push(struct walk *w, const struct json *v, struct frame f)
{
	f.of = v;
	f.at = json_first(v);
	if (json_is(v, JSON_OBJECT))
		f.level++;
	w->stack[w->n++] = f;
}

/* What holds for a child of the frame, and whether it may hold text at all. */
static bool enter(
        const struct walk *w, const struct frame *f, const struct json *child, struct frame *ret)
{
	struct str key = json_key(child);

	*ret = *f;
	ret->list = false;
	if (f->list && json_is(f->of, JSON_ARRAY) && json_is(child, JSON_OBJECT))
		ret->author = author_of(w->speaks, child);
	if (!json_is(f->of, JSON_OBJECT) || f->plain)
		return true;
	if (f->tools)
		return !json_is(child, JSON_STRING) || str_is(key, "description");
	if (is_no_text(f->of, key) && json_is(child, JSON_STRING))
		return false;
	if (is_tool_output(w, f, key))
		ret->author = GUARD_TOOL;
	ret->plain = is_plain(w, f, key);
	return true;
}

static int walk_value(struct walk *w, const struct json *root, struct frame first)
{
	int r = 0;

	if (json_is(root, JSON_STRING))
		return scan_string(w, root, first.author);
	/* A list of one is its element. */
	if (first.list && json_is(root, JSON_OBJECT))
		first.author = author_of(w->speaks, root);
	w->n = 0;
	push(w, root, first);
	while (w->n > 0 && r == 0) {
		struct frame *f = &w->stack[w->n - 1], inner;
		const struct json *child = f->at;

		if (child == NULL) {
			w->n--;
			continue;
		}
		f->at = json_next(child);
		if (!enter(w, f, child, &inner))
			continue;
		if (json_is(child, JSON_STRING))
			r = scan_string(w, child, inner.author);
		else if (json_first(child) != NULL)
			push(w, child, inner);
	}
	return r;
}

static int walk_member(struct walk *w, const struct json *v)
{
	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
		const struct member *m = &members[i];

		if (m->dialect == w->speaks && str_is(json_key(v), m->name))
			return walk_value(w, v,
			        (struct frame){.author = m->author,
			                .list = m->kind == LIST,
			                .tools = m->kind == TOOLS});
	}
	return 0;
}

/* Google's countTokens may have the request inside of another. */
static bool is_inner_request(const struct walk *w, const struct json *v)
{
	return w->speaks == DIALECT_GEMINI &&
	       (str_is(json_key(v), "generateContentRequest") ||
	               str_is(json_key(v), "generate_content_request"));
}

static int walk_body(struct walk *w, const struct json *root)
{
	int r = 0;

	for (const struct json *v = json_first(root); v != NULL && r == 0; v = json_next(v)) {
		if (!is_inner_request(w, v)) {
			r = walk_member(w, v);
			continue;
		}
		for (const struct json *u = json_first(v); u != NULL && r == 0; u = json_next(u))
			r = walk_member(w, u);
	}
	return r;
}

/* The rest of the body, and the new one in place of the old. */
static int finish(struct walk *w, char **body, size_t *body_len)
{
	if (!w->changed)
		return 0;
	move_own(w, w->body.n);
	buf_append(&w->out, w->body.p + w->done, w->body.n - w->done);
	if (buf_error(&w->out) < 0)
		return buf_error(&w->out);
	free(*body);
	*body = buf_steal(&w->out, body_len);
	if (w->own != NULL && w->own->p != NULL)
		*w->own = (struct str){*body + w->own_begin, w->own_end - w->own_begin};
	return 0;
}

static int scan_failed(int r, struct error *err)
{
	if (r == -ERR_TOO_LARGE)
		return error_set(err, ERR_TOO_LARGE,
		        "With what guardrails put in its place the request is too large.");
	return error_set(err, ERR_NOMEM, "The server has no memory to scan this request.");
}

/* The first hit that blocks; NULL: only ones that are not kept do. */
static const struct guard_hit *blocking(const struct guard_scan *scan)
{
	for (size_t i = 0; i < scan->n_hits; i++)
		if (scan->hits[i].action == GUARD_BLOCK)
			return &scan->hits[i];
	return NULL;
}

static int block(const struct guardrails_report *rep, struct error *err)
{
	const struct guard_hit *hit = blocking(&rep->scan);

	if (hit != NULL && str_is(hit->rule, "regex-prompt-injection"))
		error_set(err, ERR_PERMISSION,
		        "The request was blocked: patterns of prompt injection were found in it.");
	else
		error_set(err, ERR_PERMISSION,
		        "The request was blocked by the content filter '%.*s'.",
		        hit != NULL ? (int)hit->rule.n : 0, hit != NULL ? hit->rule.p : "");
	str_copy(err->type, sizeof(err->type), STR("guardrail_blocked"));
	return -ERR_PERMISSION;
}

/* Whatever is scanned for this report is scanned by these rules. */
static void report_begin(struct guardrails_report *ret, const struct rules *rules)
{
	if (ret->set == NULL)
		ret->set = ruleset_ref(rules->set);
	ret->scan.only = rules->rules;
}

int guardrails_scan(const struct rules *rules, enum dialect speaks, char **body, size_t *body_len,
        struct str *own, struct guardrails_report *ret, struct error *err)
{
	struct json_doc *doc = NULL;
	struct walk *w;
	int r;

	if (rules->refused != NULL) {
		*err = *rules->refused;
		return -(int)err->code;
	}
	if (rules->guard == NULL)
		return 0;
	report_begin(ret, rules);
	r = json_parse((struct str){*body, *body_len}, TREE_MAX, &doc, err);
	if (r < 0)
		return r == -ERR_INVALID ? 0 : r;
	w = mem_alloc(sizeof(*w));
	*w = (struct walk){.guard = rules->guard,
	        .speaks = speaks,
	        .scan = &ret->scan,
	        .body = {*body, *body_len},
	        .out = BUF_INIT(4 * *body_len + GROW_MAX),
	        .own = own};
	if (own != NULL && own->p != NULL) {
		w->own_begin = (size_t)(own->p - *body);
		w->own_end = w->own_begin + own->n;
	}
	r = walk_body(w, json_root(doc));
	if (r == 0 && ret->scan.action != GUARD_BLOCK)
		r = finish(w, body, body_len);
	buf_free(&w->out);
	free(w);
	json_doc_free(doc);
	if (r < 0)
		return scan_failed(r, err);
	return ret->scan.action == GUARD_BLOCK ? block(ret, err) : 0;
}

int guardrails_document(const struct rules *rules, struct str text, struct guardrails_report *ret,
        struct buf *out, bool *ret_changed, struct error *err)
{
	int r;

	if (rules->guard == NULL)
		return 0;
	r = guard_text(rules->guard, text, GUARD_USER, &ret->scan, out, ret_changed);
	if (r == 0)
		r = buf_error(out);
	if (r < 0)
		return scan_failed(r, err);
	return ret->scan.action == GUARD_BLOCK ? block(ret, err) : 0;
}

/* ---- what tools give ---- */

bool guardrails_tool_output(
        const struct rules *rules, struct str text, struct guardrails_report *ret, struct buf *out)
{
	static const char withheld[] =
	        "[This output is withheld: a guardrail of the workspace blocks it.]\n";
	bool changed = false;
	int r;

	report_begin(ret, rules);
	ret->scan.action = GUARD_PASS;
	r = guard_text(rules->guard, text, GUARD_TOOL, &ret->scan, out, &changed);
	if (r == 0 && ret->scan.action != GUARD_BLOCK)
		return changed;
	buf_reset(out);
	buf_puts(out, withheld);
	return true;
}

/* ---- models and providers ---- */

static bool among(char *const *list, size_t n, struct str a, struct str b, struct str c)
{
	for (size_t i = 0; i < n; i++)
		if (str_is(a, list[i]) || str_is(b, list[i]) || str_is(c, list[i]))
			return true;
	return false;
}

static bool may_serve(
        const struct config_guardrail *g, struct str asked, const struct provider_target *t)
{
	struct buf full = BUF_INIT(4096);
	struct str provider = str_of(t->config->name), model = str_of(t->model);
	bool ok;

	buf_printf(&full, "%s/%s", t->config->name, t->model);
	struct str whole = {full.data, full.len};

	ok = (g->n_allowed_models == 0 ||
	             among(g->allowed_models, g->n_allowed_models, asked, model, whole)) &&
	     !among(g->ignored_models, g->n_ignored_models, asked, model, whole) &&
	     (g->n_allowed_providers == 0 || among(g->allowed_providers, g->n_allowed_providers,
	                                             provider, provider, provider)) &&
	     !among(g->ignored_providers, g->n_ignored_providers, provider, provider, provider);
	buf_free(&full);
	return ok;
}

int guardrails_route(
        const struct rules *rules, struct str asked, struct route *route, struct error *err)
{
	size_t n = 0;

	for (size_t i = 0; i < route->n; i++) {
		struct provider_target target = route->targets[i];
		bool ok = true;

		for (size_t k = 0; k < rules->n_members && ok; k++)
			ok = may_serve(rules->members[k], asked, &target);
		if (ok) {
			route->targets[i] = route->targets[n];
			route->targets[n++] = target;
		}
	}
	if (n == 0 && route->n > 0)
		return error_param(err, ERR_PERMISSION, "model",
		        "A guardrail of this workspace does not allow the model '%.*s'.",
		        asked.n < 200 ? (int)asked.n : 200, asked.p != NULL ? asked.p : "");
	for (; route->n > n; route->n--)
		mem_free_ptr(&(char *){(char *)(uintptr_t)route->targets[route->n - 1].model});
	return 0;
}

/* ---- what is told ---- */

void guardrails_report_clear(struct guardrails_report *r)
{
	guard_scan_clear(&r->scan);
	r->set = ruleset_unref(r->set);
}

static const char *name_of(const struct guardrails_report *r, const struct guard_hit *h)
{
	return ruleset_name_of(r->set, h->rule_index);
}

void guardrails_log(const struct guardrails_report *r, const char *id, size_t from)
{
	const struct guard_scan *s = &r->scan;
	size_t n = s->n_hits - from < LOGGED_MAX ? s->n_hits : from + LOGGED_MAX;

	for (size_t i = from; i < n; i++) {
		const struct guard_hit *h = &s->hits[i];

		LOG(LOG_WARN, "guardrail_hit", LOG_S("id", id), LOG_S("guardrail", name_of(r, h)),
		        ((struct log_field){.key = "rule", .text = h->rule}),
		        ((struct log_field){.key = "pattern", .text = h->pattern}),
		        LOG_S("action", guard_action_name(h->action)));
	}
	if (s->n_hits + s->more > n)
		LOG(LOG_WARN, "guardrail_hits", LOG_S("id", id),
		        LOG_N("more", s->n_hits + s->more - n));
}

void guardrails_record(const struct guardrails_report *r, struct record *to)
{
	for (size_t i = 0; i < r->scan.n_hits; i++) {
		const struct guard_hit *h = &r->scan.hits[i];
		struct record_hit *hit = record_add_hit(to);

		record_set(&hit->guardrail, str_of(name_of(r, h)));
		record_set(&hit->rule, h->rule);
		record_set(&hit->pattern, h->pattern);
		record_set(&hit->action, str_of(guard_action_name(h->action)));
		if (to->store_content)
			record_set(&hit->matched, h->matched);
	}
}

bool guardrails_blocked(const struct guardrails_report *r)
{
	return r->scan.action == GUARD_BLOCK;
}

bool guardrails_redacted(const struct guardrails_report *r)
{
	return r->scan.action == GUARD_REDACT;
}

static bool is_injection(const struct guard_hit *h)
{
	return str_is(h->rule, "regex-prompt-injection");
}

/* Texts that a client may see: they are its own. */
static void write_patterns(struct json_writer *w, const struct guardrails_report *r)
{
	jw_key(w, "patterns");
	jw_array(w);
	for (size_t i = 0; i < r->scan.n_hits; i++)
		if (r->scan.hits[i].action == GUARD_BLOCK)
			jw_str(w, r->scan.hits[i].matched);
	jw_end(w);
}

/* What of one kind was found, each name once. */
static void write_names(
        struct json_writer *w, const struct guardrails_report *r, bool injection, const char *key)
{
	const struct guard_hit *h = r->scan.hits;

	jw_key(w, key);
	jw_array(w);
	for (size_t i = 0; i < r->scan.n_hits; i++) {
		struct str name = injection ? h[i].pattern : h[i].rule;
		bool again = is_injection(&h[i]) != injection;

		for (size_t k = 0; k < i && !again; k++)
			again = is_injection(&h[k]) == injection &&
			        str_eq(name, injection ? h[k].pattern : h[k].rule);
		if (!again)
			jw_str(w, name);
	}
	jw_end(w);
}

/* What was done about prompt injection, or about all else; nothing where there was none. */
static void write_stage(struct json_writer *w, const struct guardrails_report *r, bool injection)
{
	static const char *const done[] = {"passed", "flagged", "redacted", "blocked"};
	const struct guard_hit *strongest = NULL;

	for (size_t i = 0; i < r->scan.n_hits; i++) {
		const struct guard_hit *h = &r->scan.hits[i];

		if (is_injection(h) == injection &&
		        (strongest == NULL || h->action > strongest->action))
			strongest = h;
	}
	if (strongest == NULL)
		return;
	jw_object(w);
	jw_kcstr(w, "type", "guardrail");
	jw_kcstr(w, "name", injection ? "regex_pi_detection" : "content-filter");
	jw_kcstr(w, "summary", name_of(r, strongest));
	jw_key(w, "data");
	jw_object(w);
	jw_kcstr(w, "action", done[strongest->action]);
	jw_kbool(w, injection ? "detected" : "flagged", true);
	jw_key(w, "engines");
	jw_array(w);
	jw_cstr(w, "regex");
	jw_end(w);
	write_names(w, r, injection, injection ? "patterns" : "matched_entity_types");
	jw_end(w);
	jw_end(w);
}

/* On request of the header X-OpenRouter-Metadata. */
char *guardrails_metadata(const struct guardrails_report *r)
{
	struct buf out = BUF_INIT(65536);
	struct json_writer w;

	if (!r->told || r->scan.n_hits == 0)
		return NULL;
	jw_init(&w, &out);
	jw_object(&w);
	jw_key(&w, "pipeline");
	jw_array(&w);
	write_stage(&w, r, true);
	write_stage(&w, r, false);
	jw_end(&w);
	jw_end(&w);
	return buf_steal(&out, NULL);
}

static void write_openai(struct json_writer *w, const struct guardrails_report *r,
        enum dialect asks, bool under_v1, const struct error *e)
{
	jw_kcstr(w, "message", api_error_text(e));
	jw_kcstr(w, "type", api_error_type(e));
	jw_knull(w, "param");
	if (under_v1)
		jw_kcstr(w, "code", api_error_code(e));
	else
		jw_ki64(w, "code", error_http_status(e));
	jw_key(w, "metadata");
	jw_object(w);
	if (asks == DIALECT_OPENAI_CHAT && !under_v1)
		jw_kcstr(w, "error_type", api_error_name(e));
	write_patterns(w, r);
	jw_end(w);
}

void guardrails_error_body(const struct guardrails_report *r, enum dialect asks, bool under_v1,
        const char *request_id, const struct error *e, struct buf *out)
{
	struct json_writer w;

	jw_init(&w, out);
	jw_object(&w);
	if (asks == DIALECT_ANTHROPIC)
		jw_kcstr(&w, "type", "error");
	jw_key(&w, "error");
	jw_object(&w);
	if (asks == DIALECT_ANTHROPIC) {
		jw_kcstr(&w, "type", "permission_error");
		jw_kcstr(&w, "message", api_error_text(e));
		jw_kcstr(&w, "error_type", api_error_name(e));
	} else if (asks == DIALECT_GEMINI) {
		jw_ki64(&w, "code", error_http_status(e));
		jw_kcstr(&w, "message", api_error_text(e));
		jw_kcstr(&w, "status", "PERMISSION_DENIED");
		jw_key(&w, "details");
		jw_array(&w);
		jw_object(&w);
		jw_kcstr(&w, "@type", "type.googleapis.com/google.rpc.ErrorInfo");
		jw_kcstr(&w, "reason", "GUARDRAIL_BLOCKED");
		jw_kcstr(&w, "domain", "brig");
		jw_end(&w);
		jw_end(&w);
	} else {
		write_openai(&w, r, asks, under_v1, e);
	}
	jw_end(&w);
	if (asks == DIALECT_ANTHROPIC)
		jw_kcstr(&w, "request_id", request_id);
	else if (asks != DIALECT_GEMINI)
		jw_kcstr(&w, "error_type", api_error_name(e));
	char *metadata _cleanup_free_ = guardrails_metadata(r);

	if (metadata != NULL)
		jw_kraw(&w, "openrouter_metadata", str_of(metadata));
	jw_end(&w);
}
