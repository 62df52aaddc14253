/*
 * Items of a reply → canonical events, one item at a time.
 *
 * Theory of operation. What comes for an item is passed on at once while it is the open one; what
 * comes for a later one waits in it. The open item ends when its server says so, or when the reply
 * does: an item that has no end of its own must not hold up those behind it, so the next one's
 * beginning ends text and reasoning.
 *
 * Servers tell an item's text up to three times: in deltas, in the event that ends the part, and in
 * the item as a whole. What came in deltas is counted and hashed, so that a whole text can be told
 * from one that a lost delta has torn: only what truly follows is added. A call whose arguments are
 * torn is spoiled on purpose: what is left must not run.
 *
 * The item as its server wrote it is passed on (raw) where it holds what the canonical events do
 * not: an item of the dialect's own, a text with citations, a call with a namespace.
 */
#include "provider/openai_responses_items.h"

#include "base/id.h"
#include "base/mem.h"

#include <stdlib.h>

#define REPLY_MAX ((size_t)64 << 20) /* all text, reasoning and arguments of one reply */
#define TREE_MAX  ((size_t)192 << 20)
#define ITEM_MAX  ((size_t)64 << 20)
#define ARGS_MAX  ((size_t)4 << 20)
#define CALLS_MAX 256
#define ITEMS_MAX 1024
#define PARTS_MAX 1024
#define ID_MAX    1024
#define NAME_MAX  256

/* Not JSON inside a string (a raw line break) and not JSON outside of one. */
static const char SPOILED[] = "\n<a piece of the stream was unreadable>\n";

static struct str buf_str(const struct buf *b)
{
	return (struct str){b->len ? b->data : NULL, b->len};
}

/* ---- items ---- */

static void item_empty(struct responses_item *it)
{
	while (it->first) {
		struct responses_piece *p = it->first;

		it->first = p->next;
		buf_free(&p->text);
		free(p);
	}
	it->last = NULL;
	buf_free(&it->opaque);
	buf_free(&it->raw);
}

void openai_responses_items_free(struct responses_items *s)
{
	for (size_t i = 0; i < s->n; i++) {
		struct responses_item *it = s->list[i];

		item_empty(it);
		buf_free(&it->id);
		buf_free(&it->call_id);
		buf_free(&it->name);
		free(it->parts);
		free(it);
	}
	free(s->list);
}

struct responses_item *openai_responses_items_add(struct responses_items *s, enum item_type type)
{
	struct responses_item *it;

	if (type == ITEM_CALL && ++s->n_calls > CALLS_MAX) {
		emitter_fail_text(
		        &s->out, "the provider made more than 256 tool calls in one reply");
		return NULL;
	}
	if (s->n == ITEMS_MAX) {
		emitter_fail_text(&s->out, "the provider's reply has too many items");
		return NULL;
	}
	it = mem_alloc(sizeof(*it));
	it->type = type;
	it->id = (struct buf)BUF_INIT(ID_MAX);
	it->call_id = (struct buf)BUF_INIT(ID_MAX);
	it->name = (struct buf)BUF_INIT(NAME_MAX);
	it->opaque = (struct buf)BUF_INIT(ITEM_MAX);
	it->raw = (struct buf)BUF_INIT(ITEM_MAX);
	mem_grow(&s->list, &s->cap, s->n, sizeof(struct responses_item *));
	s->list[s->n++] = it;
	return it;
}

bool openai_responses_items_at_work(const struct responses_items *s)
{
	for (size_t i = s->open; i < s->n; i++)
		if (s->list[i]->type == ITEM_OTHER && !s->list[i]->complete)
			return true;
	return false;
}

enum item_type openai_responses_items_type(struct str type)
{
	if (str_is(type, "message"))
		return ITEM_MESSAGE;
	if (str_is(type, "reasoning"))
		return ITEM_REASONING;
	return str_is(type, "function_call") ? ITEM_CALL : ITEM_OTHER;
}

/* ---- text ---- */

static uint64_t hash_on(uint64_t h, struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		h = (h ^ (unsigned char)s.p[i]) * 0x100000001b3u;
	return h;
}

/* Number of the part, or -1 where there are too many. */
static int64_t part_for(struct responses_item *it, enum part_type type, int64_t index)
{
	for (size_t i = it->n_parts; i-- > 0;)
		if (it->parts[i].type == type && it->parts[i].index == index)
			return (int64_t)i;
	if (it->n_parts == PARTS_MAX)
		return -1;
	mem_grow(&it->parts, &it->cap_parts, it->n_parts, sizeof(*it->parts));
	it->parts[it->n_parts] =
	        (struct responses_part){.type = type, .index = index, .hash = 0xcbf29ce484222325u};
	return (int64_t)it->n_parts++;
}

static int keep(struct responses_items *s, struct responses_item *it, uint32_t part,
        enum part_type type, struct str text)
{
	struct responses_piece *p = it->last;

	if (!p || p->part != part) {
		p = mem_alloc(sizeof(*p));
		p->part = part;
		p->type = type;
		p->text = (struct buf)BUF_INIT(REPLY_MAX);
		if (it->last)
			it->last->next = p;
		else
			it->first = p;
		it->last = p;
	}
	if (buf_append(&p->text, text.p, text.n) < 0)
		return emitter_fail_text(&s->out, "the provider's reply is too large");
	return 0;
}

int openai_responses_items_text(struct responses_items *s, struct responses_item *it,
        enum part_type type, int64_t index, struct str text)
{
	struct responses_part *part;
	int64_t number;

	if (!text.n || s->out.ended || it->ended || it->type == ITEM_OTHER)
		return 0;
	number = part_for(it, type, index);
	if (number < 0)
		return emitter_fail_text(&s->out, "the provider's reply has too many parts");
	part = &it->parts[number];
	if (text.n > REPLY_MAX - s->n_bytes)
		return emitter_fail_text(&s->out, "the provider's reply is longer than 64 MiB");
	if (it->type == ITEM_CALL && text.n > ARGS_MAX - part->received)
		return emitter_fail_text(
		        &s->out, "the provider sent a tool call with over 4 MiB of arguments");
	s->n_bytes += text.n;
	part->received += text.n;
	part->hash = hash_on(part->hash, text);
	return keep(s, it, (uint32_t)number, type, text);
}

static int spoil(struct responses_items *s, struct responses_item *it)
{
	if (it->lost)
		return 0;
	it->lost = true;
	return openai_responses_items_text(s, it, PART_TEXT, 0, STR(SPOILED));
}

int openai_responses_items_whole(struct responses_items *s, struct responses_item *it,
        enum part_type type, int64_t index, struct str text)
{
	struct responses_part *part;
	int64_t number;

	if (!text.n || s->out.ended || it->ended || it->type == ITEM_OTHER)
		return 0;
	number = part_for(it, type, index);
	if (number < 0)
		return emitter_fail_text(&s->out, "the provider's reply has too many parts");
	part = &it->parts[number];
	if (text.n >= part->received &&
	        hash_on(0xcbf29ce484222325u, (struct str){text.p, part->received}) == part->hash) {
		text.p += part->received;
		text.n -= part->received;
		return openai_responses_items_text(s, it, type, index, text);
	}
	/* What was shown was shown; but nobody runs what may be half of something. */
	return it->type == ITEM_CALL ? spoil(s, it) : 0;
}

/* ---- an item as its server wrote it ---- */

static void keep_text(struct buf *to, struct str text)
{
	if (!to->len && text.n && text.n <= to->max)
		buf_append(to, text.p, text.n);
}

/* Arguments are a JSON string; a few servers send the object itself. */
static struct str arguments_of(const struct json *v)
{
	return json_is(v, JSON_OBJECT) ? json_raw(v) : json_str(v);
}

static int read_content(struct responses_items *s, struct responses_item *it, const struct json *v)
{
	int64_t n = 0;
	int r = 0;

	for (const struct json *c = json_first(json_get(v, "content")); c && !r;
	        c = json_next(c), n++) {
		struct str type = json_str(json_get(c, "type"));

		if (it->type == ITEM_REASONING)
			r = openai_responses_items_whole(
			        s, it, PART_REASONING, n, json_str(json_get(c, "text")));
		else if (str_is(type, "refusal"))
			r = openai_responses_items_whole(
			        s, it, PART_REFUSAL, n, json_str(json_get(c, "refusal")));
		else
			r = openai_responses_items_whole(
			        s, it, PART_TEXT, n, json_str(json_get(c, "text")));
	}
	n = 0;
	if (it->type != ITEM_REASONING)
		return r;
	for (const struct json *c = json_first(json_get(v, "summary")); c && !r;
	        c = json_next(c), n++)
		r = openai_responses_items_whole(
		        s, it, PART_SUMMARY, n, json_str(json_get(c, "text")));
	return r;
}

/* Does a value say anything? */
static bool says_something(const struct json *v)
{
	return !json_absent(v) && (!json_is(v, JSON_ARRAY) || json_count(v) > 0) &&
	       (!json_is(v, JSON_OBJECT) || json_count(v) > 0);
}

static bool has_other_members(const struct json *v, const char *const *known)
{
	for (const struct json *m = json_first(v); m; m = json_next(m))
		if (!openai_responses_listed(json_key(m), known) && says_something(m))
			return true;
	return false;
}

/* Is there more in it than canonical events tell? */
static bool is_special(const struct responses_item *it, const struct json *v)
{
	static const char *const of_message[] = {"type", "id", "status", "role", "content", NULL};
	static const char *const of_part[] = {"type", "text", "refusal", NULL};
	static const char *const of_call[] = {
	        "type", "id", "status", "call_id", "name", "arguments", NULL};

	if (it->type == ITEM_OTHER)
		return true;
	if (it->type == ITEM_CALL)
		return has_other_members(v, of_call);
	if (it->type != ITEM_MESSAGE)
		return false;
	for (const struct json *c = json_first(json_get(v, "content")); c; c = json_next(c))
		if (has_other_members(c, of_part))
			return true;
	return has_other_members(v, of_message);
}

static int write_opaque(struct responses_item *it, const struct json *v)
{
	static const char *const ours[] = {"type", "status", "summary", "content", NULL};
	struct json_writer w;

	if (!json_str(json_get(v, "id")).n)
		return 0; /* without an id it cannot go back */
	jw_init(&w, &it->opaque);
	jw_object(&w);
	openai_responses_copy_members(&w, v, ours);
	jw_end(&w);
	return jw_done(&w);
}

static int complete(struct responses_items *s, struct responses_item *it, const struct json *v)
{
	int r = 0;

	if (it->type == ITEM_CALL)
		r = openai_responses_items_whole(
		        s, it, PART_TEXT, 0, arguments_of(json_get(v, "arguments")));
	else if (it->type != ITEM_OTHER)
		r = read_content(s, it, v);
	if (r < 0 || s->out.ended)
		return r;
	if (it->type == ITEM_REASONING && write_opaque(it, v) < 0)
		return emitter_fail_text(&s->out, "the provider's reasoning is too large");
	if (is_special(it, v)) {
		struct json_writer w;

		jw_init(&w, &it->raw);
		openai_responses_copy(&w, json_raw(v));
		if (buf_error(&it->raw))
			return emitter_fail_text(&s->out, "an item of the provider is too large");
	}
	it->complete = true;
	return 0;
}

int openai_responses_items_read(struct responses_items *s, struct responses_item *it,
        const struct json *v, bool is_complete)
{
	if (s->out.ended || it->ended || it->complete)
		return 0;
	keep_text(&it->id, json_str(json_get(v, "id")));
	if (it->type == ITEM_CALL && !it->begun) { /* both are fixed once they were shown */
		keep_text(&it->call_id, json_str(json_get(v, "call_id")));
		keep_text(&it->name, json_str(json_get(v, "name")));
	}
	return is_complete ? complete(s, it, v) : 0;
}

/* ---- passing on ---- */

/* The id that the turn will know the call by: the server's, unless it has none or uses it twice. */
static void settle_id(struct responses_items *s, struct responses_item *it)
{
	char minted[64];
	bool taken;

	if (!it->call_id.len)
		keep_text(&it->call_id, buf_str(&it->id)); /* some servers have but one */
	taken = !it->call_id.len;
	for (size_t i = 0; i < s->n && !taken; i++)
		taken = s->list[i] != it && s->list[i]->type == ITEM_CALL && s->list[i]->begun &&
		        str_eq(buf_str(&s->list[i]->call_id), buf_str(&it->call_id));
	if (!taken)
		return;
	id_make(minted, sizeof(minted), "call_", 24);
	buf_reset(&it->call_id);
	buf_puts(&it->call_id, minted);
}

static int begin_item(struct responses_items *s, struct responses_item *it)
{
	struct stream_event ev = {.type = STREAM_ITEM_BEGIN, .item_type = it->type};

	if (it->type == ITEM_CALL) {
		settle_id(s, it);
		ev.id = buf_str(&it->call_id);
		ev.name = buf_str(&it->name);
	}
	it->begun = true;
	return emitter_emit(&s->out, &ev);
}

static int pass_on(struct responses_items *s, struct responses_item *it)
{
	while (it->first) {
		struct responses_piece *p = it->first;
		struct stream_event ev = {.type = STREAM_DELTA,
		        .item_type = it->type,
		        .part_type = p->type,
		        .part = p->part,
		        .text = buf_str(&p->text)};
		int r = emitter_emit(&s->out, &ev);

		it->first = p->next;
		if (!it->first)
			it->last = NULL;
		buf_free(&p->text);
		free(p);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Calls of the dialect's own that are the client's to answer. */
static bool awaits_client(const struct responses_item *it)
{
	static const char *const types[] = {"apply_patch_call", "computer_call", "custom_tool_call",
	        "local_shell_call", "mcp_approval_request", NULL};
	struct json_doc *doc _cleanup_json_ = NULL;
	const struct json *root;
	struct str type;

	if (it->type != ITEM_OTHER || json_parse(buf_str(&it->raw), TREE_MAX, &doc, NULL) < 0)
		return false;
	root = json_root(doc);
	type = json_str(json_get(root, "type"));
	if (str_is(type, "shell_call"))
		return str_is(json_str(json_get(json_get(root, "environment"), "type")), "local") ||
		       json_absent(json_get(root, "environment"));
	return openai_responses_listed(type, types);
}

static int end_item(struct responses_items *s, struct responses_item *it)
{
	struct stream_event ev = {.type = STREAM_ITEM_END,
	        .item_type = it->type,
	        .opaque = buf_str(&it->opaque),
	        .raw = buf_str(&it->raw),
	        .raw_dialect = DIALECT_OPENAI_RESPONSES,
	        .awaits_client = awaits_client(it)};
	int r;

	if (it->type == ITEM_CALL) {
		ev.id = buf_str(&it->call_id);
		ev.name = buf_str(&it->name);
	}
	r = emitter_emit(&s->out, &ev);
	it->ended = true;
	item_empty(it);
	return r;
}

/* An item of the dialect's own of which only the beginning came is nobody's. */
static bool is_nothing(const struct responses_item *it)
{
	return it->type == ITEM_OTHER && !it->raw.len;
}

int openai_responses_items_pump(struct responses_items *s, bool last)
{
	while (s->open < s->n && !s->out.ended) {
		struct responses_item *it = s->list[s->open];
		bool next = s->open + 1 < s->n;
		bool over = it->complete || last ||
		            (next && (it->type == ITEM_MESSAGE || it->type == ITEM_REASONING));
		int r = 0;

		if (it->type == ITEM_OTHER && !over)
			return 0; /* begun and ended in one, when it is known whole */
		if (!it->begun && !is_nothing(it)) {
			if (it->type == ITEM_CALL && !it->name.len && !over)
				return 0;
			r = begin_item(s, it);
		}
		if (!r)
			r = pass_on(s, it);
		if (r < 0 || !over)
			return r;
		if (is_nothing(it))
			it->ended = true;
		else
			r = end_item(s, it);
		s->open++;
		if (r < 0)
			return r;
	}
	return 0;
}
