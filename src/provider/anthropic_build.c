/*
 * Conversation → the body of POST /messages.
 *
 * Theory of operation. System messages at the front become `system`. All else becomes messages,
 * each a list of blocks. A reply of the model (all items with one reply number, wherever they
 * stand) gives its blocks in their order to an assistant message; right after it a user message
 * begins with one tool_result for each of its calls, in the order of the calls: the API takes them
 * nowhere else. What the user says next joins that message, because roles must take turns; so a
 * message is opened when its first block is written, and closed when a block of another role comes.
 *
 * Blocks are written anew, in one fixed order of keys, and not as they came: a client replays what
 * it got in its own spelling. Members of a client's block that the conversation has no field for
 * (cache_control, citations) follow after ours, where the client speaks this dialect.
 *
 * What a model thought goes back only with its signature: a thinking block whose state does not
 * open is left out as a whole. So is thinking that nothing follows, which the API refuses at the
 * end of a reply.
 *
 * Nothing in the messages depends on where in a turn we are: that keeps prompt caches warm.
 */
#include "provider/anthropic.h"

#include "base/id.h"
#include "base/mem.h"
#include "provider/replies.h"
#include "provider/request.h"

#include <stdlib.h>

#define BODY_MAX  ((size_t)256 << 20)
#define STATE_MAX ((size_t)32 << 20)
#define TREE_MAX  ((size_t)64 << 20)
#define ID_MAX    64
#define VERSION   "2023-06-01"

static const char NO_RESULT[] = "There is no result: the call was interrupted before it finished.";

/* A call's id towards the API. Other providers give one id to many calls, which this API refuses.
 */
struct call_ref {
	struct str id;
	size_t at;
};

enum said { SAID_NOTHING, SAID_SYSTEM, SAID_USER, SAID_ASSISTANT };

struct builder {
	const struct provider_call *pc;
	const struct conversation *c;
	bool same_dialect;
	struct json_writer w;
	struct replies replies;
	uint32_t *again; /* by item index: how many calls before it had the same id */
	enum said open;  /* whose message is open */
	bool any;        /* a message was written */
	bool broken_loop;
};

/* ---- indexes ---- */

static int call_compare(const void *a, const void *b)
{
	const struct call_ref *x = a, *y = b;
	size_t n = x->id.n < y->id.n ? x->id.n : y->id.n;
	int r = n ? memcmp(x->id.p, y->id.p, n) : 0;

	if (r)
		return r;
	if (x->id.n != y->id.n)
		return x->id.n < y->id.n ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

static struct str call_id(const struct item *it)
{
	return it->call.upstream_id.n ? it->call.upstream_id : it->call.public_id;
}

static void index_items(struct builder *b)
{
	const struct conversation *c = b->c;
	struct call_ref *calls _cleanup_free_ = mem_array(c->n_items + 1, sizeof(*calls));
	size_t n_calls = 0;

	b->again = mem_array(c->n_items + 1, sizeof(*b->again));
	for (size_t i = 0; i < c->n_items; i++) {
		const struct item *it = c->items[i];

		if (it->type == ITEM_CALL)
			calls[n_calls++] = (struct call_ref){call_id(it), i};
	}
	replies_index(&b->replies, c);
	qsort(calls, n_calls, sizeof(*calls), call_compare);
	for (size_t i = 1; i < n_calls; i++)
		if (str_eq(calls[i].id, calls[i - 1].id))
			b->again[calls[i].at] = b->again[calls[i - 1].at] + 1;
}

/* ---- messages and blocks ---- */

static void close_message(struct builder *b)
{
	if (b->open == SAID_NOTHING)
		return;
	jw_end(&b->w);
	jw_end(&b->w);
	b->open = SAID_NOTHING;
}

/* Blocks of this role may be written from here on. */
static void open_message(struct builder *b, enum said who)
{
	struct json_writer *w = &b->w;

	if (b->open == who)
		return;
	close_message(b);
	b->open = who;
	b->any = true;
	jw_object(w);
	jw_kcstr(w, "role",
	        who == SAID_USER        ? "user"
	        : who == SAID_ASSISTANT ? "assistant"
	                                : "system");
	jw_key(w, "content");
	jw_array(w);
}

static bool is_one_of(struct str key, const char *const *keys)
{
	for (; *keys; keys++)
		if (str_is(key, *keys))
			return true;
	return false;
}

/* Members of the client's block besides those that were written. only: no others than these. */
static int write_more(struct builder *b, struct str raw, const char *const *known, const char *only,
        struct error *err)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	int r;

	if (!b->same_dialect || !raw.n)
		return 0;
	r = json_parse(raw, TREE_MAX, &doc, err);
	if (r < 0)
		return r;
	for (const struct json *v = json_first(json_root(doc)); v; v = json_next(v)) {
		struct buf copy _cleanup_buf_ = BUF_INIT(BODY_MAX);

		if (json_absent(v) || !json_is(json_root(doc), JSON_OBJECT) ||
		        is_one_of(json_key(v), known) || (only && !str_is(json_key(v), only)))
			continue;
		r = json_compact(json_raw(v), &copy);
		if (r < 0)
			return error_set(err, ERR_TOO_LARGE, "a block is too large to send");
		jw_key_str(&b->w, json_key(v));
		jw_raw(&b->w, (struct str){copy.data, copy.len});
	}
	return 0;
}

static int write_text(struct builder *b, struct str text, struct str raw, struct error *err)
{
	static const char *const known[] = {"type", "text", NULL};
	struct json_writer *w = &b->w;
	int r;

	jw_object(w);
	jw_kcstr(w, "type", "text");
	jw_kstr(w, "text", text);
	r = write_more(b, raw, known, NULL, err);
	jw_end(w);
	return r;
}

/* A client's block goes as it is where only this dialect knows what it may hold. */
static int write_raw_block(struct builder *b, struct str raw, struct error *err)
{
	struct buf copy _cleanup_buf_ = BUF_INIT(BODY_MAX);

	if (json_compact(raw, &copy) < 0)
		return error_set(err, ERR_TOO_LARGE, "a block is too large to send");
	jw_raw(&b->w, (struct str){copy.data, copy.len});
	return 0;
}

static bool has_raw(const struct builder *b, const struct item *it, struct str raw)
{
	return b->same_dialect && it->raw_dialect == DIALECT_ANTHROPIC && raw.n > 0;
}

static bool is_text_block(struct str raw)
{
	struct json_doc *doc _cleanup_json_ = NULL;

	return json_parse(raw, TREE_MAX, &doc, NULL) == 0 &&
	       str_is(json_str(json_get(json_root(doc), "type")), "text");
}

static bool is_content(const struct part *p)
{
	return request_is_attachment(p) ||
	       (request_is_text(p) && anthropic_says_something(p->text));
}

/* A block with one text may hold its raw form for the item instead of the part. */
static struct str raw_of(const struct builder *b, const struct item *it, const struct part *p)
{
	struct str raw =
	        p->raw.n || it->type != ITEM_MESSAGE || it->n_parts != 1 ? p->raw : it->raw;

	return has_raw(b, it, raw) ? raw : (struct str){NULL, 0};
}

static int write_part(
        struct builder *b, const struct item *it, const struct part *p, struct error *err)
{
	struct str raw = raw_of(b, it, p);

	/* A document, say, is text to others. */
	if (request_is_text(p) && (!raw.n || is_text_block(raw)))
		return write_text(b, p->text, raw, err);
	if (raw.n)
		return write_raw_block(b, raw, err);
	return anthropic_attachment_write(&b->w, p, err);
}

/* ---- the client's messages ---- */

static bool is_system(const struct item *it)
{
	return it->type == ITEM_MESSAGE && (it->role == ROLE_SYSTEM || it->role == ROLE_DEVELOPER);
}

static int write_user(struct builder *b, const struct item *it, struct error *err)
{
	for (size_t i = 0; i < it->n_parts; i++) {
		int r;

		if (!is_content(&it->parts[i]))
			continue;
		open_message(b, SAID_USER);
		r = write_part(b, it, &it->parts[i], err);
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * A system message that stands later. Clients of this dialect know which models take the role; for
 * all others the user says it, marked as what it is.
 */
static int write_late_system(struct builder *b, const struct item *it, struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < it->n_parts && r == 0; i++) {
		const struct part *p = &it->parts[i];
		struct buf text _cleanup_buf_ = BUF_INIT(BODY_MAX);

		if (!request_is_text(p) || !anthropic_says_something(p->text))
			continue;
		if (b->same_dialect) {
			open_message(b, SAID_SYSTEM);
			r = write_part(b, it, p, err);
			continue;
		}
		buf_puts(&text, "<system>\n");
		buf_append(&text, p->text.p, p->text.n);
		buf_puts(&text, "\n</system>");
		open_message(b, SAID_USER);
		r = write_text(
		        b, (struct str){buf_cstr(&text), text.len}, (struct str){NULL, 0}, err);
	}
	return r;
}

/* ---- replies ---- */

/* Has it a block that a reply may end with? */
static bool says_more(const struct builder *b, const struct item *it)
{
	if (it->type == ITEM_CALL)
		return true;
	if (it->type == ITEM_OTHER)
		return has_raw(b, it, it->raw);
	for (size_t i = 0; it->type == ITEM_MESSAGE && i < it->n_parts; i++)
		if (request_is_text(&it->parts[i]) && anthropic_says_something(it->parts[i].text))
			return true;
	return false;
}

/* Splits what provider_state() gave. False: it is not of this dialect. */
static bool read_state(const struct builder *b, const struct item *it, struct str state,
        bool *redacted, struct str *ret)
{
	*redacted = it->redacted;
	*ret = state;
	if (b->same_dialect)
		return state.n > 0;
	if (state.n < 2 ||
	        (*state.p != ANTHROPIC_STATE_SIGNATURE && *state.p != ANTHROPIC_STATE_REDACTED))
		return false;
	*redacted = *state.p == ANTHROPIC_STATE_REDACTED;
	*ret = (struct str){state.p + 1, state.n - 1};
	return true;
}

static int write_reasoning(struct builder *b, const struct item *it, bool *wrote, struct error *err)
{
	struct buf state _cleanup_buf_ = BUF_INIT(STATE_MAX);
	struct buf text _cleanup_buf_ = BUF_INIT(BODY_MAX);
	struct json_writer *w = &b->w;
	struct str bytes;
	bool redacted;

	if (!provider_state(b->pc, it, &state) ||
	        !read_state(b, it, (struct str){state.data, state.len}, &redacted, &bytes))
		return 0;
	for (size_t i = 0; i < it->n_parts; i++)
		buf_append(&text, it->parts[i].text.p, it->parts[i].text.n);
	if (buf_error(&text))
		return error_set(err, ERR_TOO_LARGE, "a reply in the history is too large to send");
	open_message(b, SAID_ASSISTANT);
	jw_object(w);
	jw_kcstr(w, "type", redacted ? "redacted_thinking" : "thinking");
	if (!redacted) {
		jw_kstr(w, "thinking", (struct str){buf_cstr(&text), text.len});
		jw_kstr(w, "signature", bytes);
	} else {
		jw_kstr(w, "data", bytes);
	}
	jw_end(w);
	*wrote = true;
	return 0;
}

/* The API takes objects only. What is none is kept inside of one. */
static int write_input(struct builder *b, struct str arguments, struct error *err)
{
	struct buf copy _cleanup_buf_ = BUF_INIT(BODY_MAX);
	struct json_doc *doc _cleanup_json_ = NULL;
	struct json_writer in;

	jw_key(&b->w, "input");
	if (!str_trim(arguments).n) {
		jw_raw(&b->w, STR("{}"));
		return 0;
	}
	if (json_parse(arguments, TREE_MAX, &doc, NULL) == 0 &&
	        json_is(json_root(doc), JSON_OBJECT)) {
		json_compact(arguments, &copy);
	} else {
		jw_init(&in, &copy);
		jw_object(&in);
		jw_kstr(&in, "invalid_arguments", arguments);
		jw_end(&in);
	}
	if (buf_error(&copy)) {
		jw_null(&b->w);
		return error_set(err, ERR_TOO_LARGE, "a call in the history is too large to send");
	}
	jw_raw(&b->w, (struct str){copy.data, copy.len});
	return 0;
}

/* Is a function of the id and of how often it was there before. */
static void write_call_id(struct builder *b, const char *key, size_t at)
{
	static const char good[] =
	        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
	struct str id = call_id(b->c->items[at]);
	char hex[65], text[ID_MAX + 16];
	uint8_t hash[32];

	if (str_in_set(id, good) && id.n <= ID_MAX) {
		str_copy(text, ID_MAX + 1, id);
	} else {
		id_sha256(id, hash);
		id_hex(hash, 16, hex);
		str_format(text, sizeof(text), "toolu_h%s", hex);
	}
	if (b->again[at])
		str_format(text + strlen(text), 16, "_%u", b->again[at]);
	jw_kcstr(&b->w, key, text);
}

static int write_call(struct builder *b, size_t at, struct error *err)
{
	static const char *const known[] = {"type", "id", "name", "input", NULL};
	const struct item *it = b->c->items[at];
	struct json_writer *w = &b->w;
	char name[129];
	int r;

	open_message(b, SAID_ASSISTANT);
	anthropic_tool_name(b->c, it->call.name, name);
	jw_object(w);
	jw_kcstr(w, "type", "tool_use");
	write_call_id(b, "id", at);
	jw_kcstr(w, "name", name);
	r = write_input(b, it->call.arguments, err);
	/* A call of ours came in a block of another kind. */
	if (r == 0 && has_raw(b, it, it->raw))
		r = write_more(b, it->raw, known, it->call.tool ? "cache_control" : NULL, err);
	jw_end(w);
	return r;
}

/* ---- results ---- */

static int write_result_parts(struct builder *b, const struct item *res, struct error *err)
{
	struct json_writer *w = &b->w;
	int r = 0;

	jw_key(w, "content");
	jw_array(w);
	for (size_t i = 0; i < res->result.n_parts && r == 0; i++)
		if (is_content(&res->result.parts[i]) || has_raw(b, res, res->result.parts[i].raw))
			r = write_part(b, res, &res->result.parts[i], err);
	if (r < 0)
		return r; /* what is open stays so */
	jw_end(w);
	return 0;
}

static int write_result_text(
        struct builder *b, const struct item *call, const struct item *res, struct error *err)
{
	const struct tool *tool = res && res->result.tool ? res->result.tool : call->call.tool;
	struct result none = {.tool = tool, .error = call->call.error};
	struct buf text _cleanup_buf_ = BUF_INIT(BODY_MAX);
	int r;

	if (!res && (!tool || !call->call.error.n))
		r = buf_puts(&text, NO_RESULT);
	else
		r = tool->result_text(res ? &res->result : &none, &text);
	jw_kstr(&b->w, "content", (struct str){buf_cstr(&text), text.len});
	return r < 0 ? error_set(err, ERR_TOO_LARGE, "a tool result is too large to send") : 0;
}

static int write_result(struct builder *b, size_t at, struct error *err)
{
	static const char *const known[] = {"type", "tool_use_id", "content", "is_error", NULL};
	const struct item *call = b->c->items[at], *res = conversation_call_result(b->c, call);
	const struct tool *tool = res && res->result.tool ? res->result.tool : call->call.tool;
	struct json_writer *w = &b->w;
	int r = 0;

	open_message(b, SAID_USER);
	jw_object(w);
	jw_kcstr(w, "type", "tool_result");
	write_call_id(b, "tool_use_id", at);
	if (!res || (tool && !res->result.n_parts))
		r = write_result_text(b, call, res, err);
	else if (res->result.n_parts)
		r = write_result_parts(b, res, err);
	if (r < 0)
		return r;
	if (res ? res->result.is_error : !call->call.error.n)
		jw_kbool(w, "is_error", true);
	if (res && has_raw(b, res, res->raw))
		r = write_more(b, res->raw, known, tool ? "cache_control" : NULL, err);
	jw_end(w);
	return r;
}

static int write_reply_item(struct builder *b, size_t at, bool *thought, struct error *err)
{
	const struct item *it = b->c->items[at];
	int r = 0;

	switch (it->type) {
	case ITEM_REASONING:
		return write_reasoning(b, it, thought, err);
	case ITEM_CALL:
		return write_call(b, at, err);
	case ITEM_OTHER:
		if (!has_raw(b, it, it->raw))
			return 0;
		open_message(b, SAID_ASSISTANT);
		return write_raw_block(b, it->raw, err);
	case ITEM_MESSAGE:
	case ITEM_RESULT:
		break;
	}
	for (size_t i = 0; i < it->n_parts && r == 0; i++) {
		if (!request_is_text(&it->parts[i]) || !anthropic_says_something(it->parts[i].text))
			continue;
		open_message(b, SAID_ASSISTANT);
		r = write_part(b, it, &it->parts[i], err);
	}
	return r;
}

/* One reply of the model, and the results of its calls. refs: its items in order. */
static int write_reply(struct builder *b, const struct reply_ref *refs, size_t n, struct error *err)
{
	bool thought = false, calls = false;
	int r = 0;

	while (n && !says_more(b, b->c->items[refs[n - 1].at]))
		n--;
	for (size_t i = 0; i < n && r == 0; i++)
		r = write_reply_item(b, refs[i].at, &thought, err);
	for (size_t i = 0; i < n && r == 0; i++) {
		if (b->c->items[refs[i].at]->type != ITEM_CALL)
			continue;
		calls = true;
		r = write_result(b, refs[i].at, err);
	}
	if (n)
		b->broken_loop = calls && !thought;
	return r;
}

static int write_item(struct builder *b, size_t at, struct error *err)
{
	const struct item *it = b->c->items[at];
	const struct reply_ref *first;
	struct reply_ref alone;
	size_t n;

	if (it->type == ITEM_RESULT)
		return 0;
	if (is_system(it))
		return write_late_system(b, it, err);
	if (!replies_holds(it)) {
		b->broken_loop = false;
		return write_user(b, it, err);
	}
	first = replies_begin(&b->replies, b->c, at, &alone, &n);
	return first ? write_reply(b, first, n, err) : 0;
}

/* ---- system ---- */

/* How many items at the front are system messages. */
static size_t count_system(const struct conversation *c)
{
	size_t n = 0;

	while (n < c->n_items && is_system(c->items[n]))
		n++;
	return n;
}

/* One plain text is a string, as most clients write it. */
static int write_system(struct builder *b, size_t n_items, struct error *err)
{
	struct json_writer *w = &b->w;
	const struct part *only = NULL;
	size_t n = 0;
	int r = 0;

	for (size_t i = 0; i < n_items; i++)
		for (size_t k = 0; k < b->c->items[i]->n_parts; k++) {
			const struct part *p = &b->c->items[i]->parts[k];

			if (!request_is_text(p) || !anthropic_says_something(p->text))
				continue;
			n++;
			only = raw_of(b, b->c->items[i], p).n ? NULL : p;
		}
	if (n == 0)
		return 0;
	jw_key(w, "system");
	if (n == 1 && only) {
		jw_str(w, only->text);
		return 0;
	}
	jw_array(w);
	for (size_t i = 0; i < n_items; i++)
		for (size_t k = 0; k < b->c->items[i]->n_parts && r == 0; k++) {
			const struct part *p = &b->c->items[i]->parts[k];

			if (request_is_text(p) && anthropic_says_something(p->text))
				r = write_part(b, b->c->items[i], p, err);
		}
	jw_end(w);
	return r;
}

static int write_messages(struct builder *b, size_t from, struct error *err)
{
	int r = 0;

	jw_key(&b->w, "messages");
	jw_array(&b->w);
	for (size_t i = from; i < b->c->n_items && r == 0; i++)
		r = write_item(b, i, err);
	if (r < 0)
		return r; /* what is open stays so */
	close_message(b);
	jw_end(&b->w);
	if (!b->any)
		return error_param(err, ERR_INVALID, "input",
		        "the input says nothing: this provider needs at least one message besides "
		        "the instructions");
	return 0;
}

/* ---- the request ---- */

static char *header(const char *name, struct str value)
{
	size_t size = strlen(name) + value.n + 3;
	char *h = mem_alloc(size);

	str_format(h, size, "%s: %.*s", name, (int)value.n, value.p);
	return h;
}

static bool is_printable(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] < ' ' || s.p[i] > '~')
			return false;
	return true;
}

static char **make_headers(const struct provider_call *pc)
{
	struct str beta = str_trim(pc->conversation->beta);
	char **h = mem_array(6, sizeof(*h));
	size_t n = 0;

	h[n++] = mem_strdup("Content-Type: application/json");
	h[n++] = mem_strdup("Accept: text/event-stream");
	h[n++] = mem_strdup("anthropic-version: " VERSION);
	if (anthropic_same_dialect(pc) && beta.n && beta.n <= 4096 && is_printable(beta))
		h[n++] = header("anthropic-beta", beta);
	if (pc->target->config->api_key)
		h[n] = header("x-api-key", str_of(pc->target->config->api_key));
	return h;
}

static int write_body(struct builder *b, struct error *err)
{
	size_t n_system = count_system(b->c);
	struct json_writer *w = &b->w;
	int r;

	jw_object(w);
	jw_kcstr(w, "model", b->pc->target->model);
	r = write_system(b, n_system, err);
	if (r == 0)
		r = write_messages(b, n_system, err);
	if (r == 0)
		r = anthropic_tools_write(w, b->pc, err);
	if (r == 0)
		r = anthropic_settings_write(w, b->pc, b->broken_loop, err);
	if (r < 0)
		return r;
	jw_kbool(w, "stream", true);
	jw_end(w);
	return jw_done(w) < 0 ? error_set(err, ERR_TOO_LARGE,
	                                "the conversation is too large to send to the provider")
	                      : 0;
}

int anthropic_relay(const struct provider_call *pc, bool streamed, struct provider_request *ret,
        struct error *err)
{
	ret->path = mem_strdup("/messages");
	ret->headers = make_headers(pc);
	return 0;
}

int anthropic_build(const struct provider_call *pc, struct provider_request *ret, struct error *err)
{
	struct buf body _cleanup_buf_ = BUF_INIT(BODY_MAX);
	struct builder b = {
	        .pc = pc, .c = pc->conversation, .same_dialect = anthropic_same_dialect(pc)};
	int r;

	jw_init(&b.w, &body);
	index_items(&b);
	r = write_body(&b, err);
	replies_free(&b.replies);
	free(b.again);
	if (r < 0)
		return r;
	ret->path = mem_strdup("/messages");
	ret->headers = make_headers(pc);
	ret->body = buf_steal(&body, &ret->body_len);
	return 0;
}
