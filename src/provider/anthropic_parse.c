/*
 * The answer of POST /messages → canonical events.
 *
 * Theory of operation. Bytes go through the SSE reader (or, when the first byte shows that the
 * server ignored `stream`, are kept until the end; then the whole message is taken apart as if its
 * blocks had come one by one). Each data line names its own type; the event field is not needed.
 *
 * Blocks wait in a queue in the order in which they began. Only the head is open towards the turn
 * and passes its pieces on at once; it ends at its content_block_stop. Anthropic has one block open
 * at a time; servers that imitate it may not, and what they send early for a later block waits in
 * it.
 *
 * A line that is no JSON is skipped. A call that was open and incomplete may now lack a piece and
 * yet read as JSON, so it is spoiled on purpose: what is left must not run.
 *
 * A reply has ended well only if the server gave a stop_reason. Usage is cumulative over
 * message_start and message_delta: each field's last value stands. It is passed on as soon as it is
 * known, so that a reply that breaks off is booked.
 */
#include "provider/anthropic_block.h"

#include "base/id.h"
#include "base/mem.h"
#include "provider/emitter.h"
#include "provider/framing.h"

#include <stdlib.h>

#define EVENT_MAX  ((size_t)16 << 20)
#define TREE_MAX   ((size_t)64 << 20)
#define REPLY_MAX  ((size_t)64 << 20) /* all that the blocks of one reply hold */
#define ARGS_MAX   ((size_t)4 << 20)
#define OPAQUE_MAX ((size_t)16 << 20)
#define RAW_MAX    ((size_t)64 << 20)
#define CALLS_MAX  256
#define BLOCKS_MAX 10000
#define ID_MAX     1024
#define NAME_MAX   256

/* Not JSON inside a string (a raw line break) and not JSON outside of one. */
static const char SPOILED[] = "\n<a piece of the stream was unreadable>\n";
static const char TOO_LONG[] = "the provider's reply is longer than 64 MiB";

struct provider_parser {
	struct framing f;
	const struct conversation *c; /* NULL: none */
	bool same_dialect;
	struct emitter out;
	bool begun;
	struct block *head, *tail;
	size_t n_blocks, n_calls, left;
	struct anthropic_usage usage;
	bool finish_seen;
	enum finish finish;
	struct buf stop_sequence;
};

/* ---- emitting ---- */

static struct str buf_str(const struct buf *b)
{
	return (struct str){b->len ? b->data : NULL, b->len};
}

static int emit_usage(struct provider_parser *p)
{
	anthropic_usage_convert(&p->usage, &p->out.usage);
	return emitter_usage(&p->out);
}

static int fail(struct provider_parser *p, const struct error *err)
{
	anthropic_usage_convert(&p->usage, &p->out.usage);
	return emitter_fail(&p->out, err);
}

static int fail_text(struct provider_parser *p, const char *text)
{
	anthropic_usage_convert(&p->usage, &p->out.usage);
	return emitter_fail_text(&p->out, text);
}

static int fail_json(struct provider_parser *p, const struct json *root)
{
	struct error err = {0};

	anthropic_error_json(root, &err);
	return fail(p, &err);
}

static int begin(struct provider_parser *p, const struct json *message)
{
	struct stream_event ev = {.type = STREAM_BEGIN,
	        .id = json_str(json_get(message, "id")),
	        .model = json_str(json_get(message, "model"))};

	p->begun = true;
	return emitter_emit(&p->out, &ev);
}

/* ---- the queue ---- */

static int begin_block(struct provider_parser *p, struct block *b)
{
	struct stream_event ev = {.type = STREAM_ITEM_BEGIN, .item_type = block_item_type(b)};
	char minted[64];

	if (b->kind == BLOCK_TOOL) {
		if (!b->id.len) {
			id_make(minted, sizeof(minted), "call_", 24);
			buf_puts(&b->id, minted);
		}
		ev.id = buf_str(&b->id);
		ev.name = buf_str(&b->name);
	}
	b->begun = true;
	return emitter_emit(&p->out, &ev);
}

static int pass_on(struct provider_parser *p, struct block *b)
{
	struct stream_event ev = {.type = STREAM_DELTA,
	        .item_type = block_item_type(b),
	        .part_type = b->kind == BLOCK_THINKING ? PART_SUMMARY : PART_TEXT,
	        .text = buf_str(&b->waiting)};
	int r = ev.text.n ? emitter_emit(&p->out, &ev) : 0;

	buf_free(&b->waiting);
	return r;
}

/* The state as it goes through the client's hands: see anthropic.h. */
static void write_opaque(struct provider_parser *p, struct block *b, struct buf *out)
{
	if (!b->opaque.len)
		return;
	if (!p->same_dialect)
		buf_putc(out, b->kind == BLOCK_REDACTED ? ANTHROPIC_STATE_REDACTED
		                                        : ANTHROPIC_STATE_SIGNATURE);
	buf_append(out, b->opaque.data, b->opaque.len);
}

static bool wants_raw(const struct provider_parser *p, const struct block *b)
{
	if (b->kind == BLOCK_OTHER)
		return true;
	return p->same_dialect && (b->citations.len || (b->kind == BLOCK_TOOL && b->first.len));
}

static int end_block(struct provider_parser *p, struct block *b)
{
	struct buf opaque _cleanup_buf_ = BUF_INIT(OPAQUE_MAX);
	struct buf raw _cleanup_buf_ = BUF_INIT(RAW_MAX);
	struct stream_event ev = {.type = STREAM_ITEM_END,
	        .item_type = block_item_type(b),
	        .redacted = b->kind == BLOCK_REDACTED,
	        .raw_dialect = DIALECT_ANTHROPIC};

	write_opaque(p, b, &opaque);
	if (buf_error(&opaque))
		return fail_text(p, "the provider's reasoning state is too large");
	if (wants_raw(p, b) && block_write_raw(b, &raw) < 0)
		return fail_text(p, "the provider's reply holds a block that is too large");
	ev.opaque = buf_str(&opaque);
	ev.raw = buf_str(&raw);
	if (b->kind == BLOCK_TOOL) {
		ev.id = buf_str(&b->id);
		ev.name = buf_str(&b->name);
	}
	return emitter_emit(&p->out, &ev);
}

/* Passes on all that may be. last: the answer has ended, so every block is complete. */
static int pump(struct provider_parser *p, bool last)
{
	while (p->head) {
		struct block *b = p->head;
		int r = b->begun ? 0 : begin_block(p, b);

		if (r == 0)
			r = pass_on(p, b);
		if (r < 0 || p->out.ended || (!b->stopped && !last))
			return r;
		r = end_block(p, b);
		p->head = b->next;
		if (!p->head)
			p->tail = NULL;
		block_free(b);
		if (r < 0 || p->out.ended)
			return r;
	}
	return 0;
}

static struct block *find_block(const struct provider_parser *p, int64_t index)
{
	struct block *found = NULL;

	for (struct block *b = p->head; b; b = b->next)
		if (b->index == index && !b->stopped)
			found = b;
	return found;
}

/* NULL: there are too many, and the reply has failed. */
static struct block *add_block(struct provider_parser *p, enum block_kind kind, int64_t index)
{
	struct block *b;

	if (p->n_blocks == BLOCKS_MAX || (kind == BLOCK_TOOL && p->n_calls == CALLS_MAX))
		return NULL;
	p->n_blocks++;
	p->n_calls += kind == BLOCK_TOOL;
	b = block_new(kind, index, &p->left);
	if (p->tail)
		p->tail->next = b;
	else
		p->head = b;
	p->tail = b;
	return b;
}

static int fail_blocks(struct provider_parser *p)
{
	return fail_text(p, p->n_calls == CALLS_MAX
	                            ? "the provider made more than 256 tool calls in one reply"
	                            : "the provider's reply has too many parts");
}

/* ---- what blocks are made of ---- */

static int add_text(struct provider_parser *p, struct block *b, struct str text)
{
	int r = block_keep(b, &b->waiting, text);

	if (r == 0 && p->same_dialect && b->kind == BLOCK_TEXT) /* citations may follow */
		r = block_keep(b, &b->kept, text);
	return r < 0 ? fail_text(p, TOO_LONG) : 0;
}

static int add_arguments(struct provider_parser *p, struct block *b, struct str text)
{
	int r;

	if (!text.n)
		return 0;
	if (text.n > ARGS_MAX - b->n_args)
		return fail_text(p, "the provider sent a tool call with over 4 MiB of arguments");
	b->n_args += text.n;
	openai_chat_args_scan(&b->scan, text);
	r = block_keep(b, &b->waiting, text);
	if (r == 0 && b->first.len)
		r = block_keep(b, &b->kept, text);
	return r < 0 ? fail_text(p, TOO_LONG) : 0;
}

/* Has the block members that no field of ours holds (caller)? */
static bool says_more(const struct json *block)
{
	static const char *const known[] = {"type", "id", "name", "input"};

	for (const struct json *v = json_first(block); v; v = json_next(v)) {
		bool ours = json_absent(v);

		for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
			ours |= str_is(json_key(v), known[i]);
		if (!ours)
			return true;
	}
	return false;
}

static int start_call(struct provider_parser *p, struct block *b, const struct json *block)
{
	struct str id = json_str(json_get(block, "id")), name = json_str(json_get(block, "name"));
	const struct json *input = json_get(block, "input");
	int r = 0;

	if (p->c)
		name = anthropic_tool_name_back(p->c, name);
	/* What is too long for us counts as not given. */
	if (id.n <= ID_MAX)
		r = block_keep(b, &b->id, id);
	if (r == 0 && name.n <= NAME_MAX)
		r = block_keep(b, &b->name, name);
	if (r == 0 && json_is(input, JSON_OBJECT) && json_count(input))
		r = block_keep(b, &b->input, json_raw(input));
	if (r == 0 && p->same_dialect && says_more(block))
		r = block_keep(b, &b->first, json_raw(block));
	return r < 0 ? fail_text(p, TOO_LONG) : 0;
}

static int add_citation(struct provider_parser *p, struct block *b, const struct json *citation)
{
	int r = 0;

	if (!p->same_dialect || !json_is(citation, JSON_OBJECT))
		return 0;
	if (b->citations.len)
		r = block_keep(b, &b->citations, STR(","));
	if (r == 0)
		r = block_keep(b, &b->citations, json_raw(citation));
	return r < 0 ? fail_text(p, TOO_LONG) : 0;
}

static int keep_opaque(struct provider_parser *p, struct block *b, struct str bytes)
{
	return block_keep(b, &b->opaque, bytes) < 0 ? fail_text(p, TOO_LONG) : 0;
}

static enum block_kind kind_of(struct str type)
{
	if (str_is(type, "text"))
		return BLOCK_TEXT;
	if (str_is(type, "thinking"))
		return BLOCK_THINKING;
	if (str_is(type, "redacted_thinking"))
		return BLOCK_REDACTED;
	return str_is(type, "tool_use") ? BLOCK_TOOL : BLOCK_OTHER;
}

static int fill_block(struct provider_parser *p, struct block *b, const struct json *block)
{
	int r = 0;

	switch (b->kind) {
	case BLOCK_TEXT:
		r = add_text(p, b, json_str(json_get(block, "text")));
		for (const struct json *c = json_first(json_get(block, "citations")); c && r == 0;
		        c = json_next(c))
			r = add_citation(p, b, c);
		return r;
	case BLOCK_THINKING:
		r = add_text(p, b, json_str(json_get(block, "thinking")));
		return r < 0 || p->out.ended
		               ? r
		               : keep_opaque(p, b, json_str(json_get(block, "signature")));
	case BLOCK_REDACTED:
		return keep_opaque(p, b, json_str(json_get(block, "data")));
	case BLOCK_TOOL:
		return start_call(p, b, block);
	case BLOCK_OTHER:
		break;
	}
	return block_keep(b, &b->first, json_raw(block)) < 0 ? fail_text(p, TOO_LONG) : 0;
}

static int start_block(struct provider_parser *p, int64_t index, const struct json *block)
{
	struct block *before = find_block(p, index), *b;

	if (!json_is(block, JSON_OBJECT))
		return 0;
	if (before)
		before->stopped = true;
	b = add_block(p, kind_of(json_str(json_get(block, "type"))), index);
	return b ? fill_block(p, b, block) : fail_blocks(p);
}

static int stop_block(struct provider_parser *p, struct block *b)
{
	int r = 0;

	if (b->kind == BLOCK_TOOL && !b->n_args)
		r = add_arguments(p, b, b->input.len ? buf_str(&b->input) : STR("{}"));
	b->stopped = true;
	return r;
}

/* ---- deltas ---- */

/* A piece for a block that never began, or has ended. */
static int stray_delta(struct provider_parser *p, int64_t index, struct str type,
        const struct json *delta, struct block **ret)
{
	enum block_kind kind = str_is(type, "thinking_delta") ? BLOCK_THINKING : BLOCK_TEXT;

	*ret = NULL;
	if (str_is(type, "input_json_delta") &&
	        str_trim(json_str(json_get(delta, "partial_json"))).n)
		return fail_text(p, "the provider added to a tool call that was complete");
	if (!str_is(type, "text_delta") && kind != BLOCK_THINKING)
		return 0;
	*ret = add_block(p, kind, index);
	return *ret ? 0 : fail_blocks(p);
}

static int read_delta(struct provider_parser *p, const struct json *root, int64_t index)
{
	const struct json *delta = json_get(root, "delta");
	struct str type = json_str(json_get(delta, "type"));
	struct block *b = find_block(p, index);
	int r = 0;

	if (!b)
		r = stray_delta(p, index, type, delta, &b);
	if (!b || r < 0 || p->out.ended)
		return r;
	switch (b->kind) {
	case BLOCK_TEXT:
		if (str_is(type, "citations_delta"))
			return add_citation(p, b, json_get(delta, "citation"));
		return add_text(p, b, json_str(json_get(delta, "text")));
	case BLOCK_THINKING:
		if (str_is(type, "signature_delta"))
			return keep_opaque(p, b, json_str(json_get(delta, "signature")));
		return add_text(p, b, json_str(json_get(delta, "thinking")));
	case BLOCK_REDACTED:
		return keep_opaque(p, b, json_str(json_get(delta, "data")));
	case BLOCK_TOOL:
		return add_arguments(p, b, json_str(json_get(delta, "partial_json")));
	case BLOCK_OTHER:
		break;
	}
	return block_merge(b, delta) < 0 ? fail_text(p, TOO_LONG) : 0;
}

/* ---- the end ---- */

static enum finish finish_of(struct str reason)
{
	if (str_is(reason, "max_tokens") || str_is(reason, "model_context_window_exceeded"))
		return FINISH_LENGTH;
	if (str_is(reason, "refusal"))
		return FINISH_FILTER;
	return str_is(reason, "pause_turn") ? FINISH_PAUSE : FINISH_STOP;
}

static void read_stop(struct provider_parser *p, const struct json *object)
{
	struct str reason = json_str(json_get(object, "stop_reason"));
	struct str sequence = json_str(json_get(object, "stop_sequence"));

	if (!reason.n)
		return;
	p->finish_seen = true;
	p->finish = finish_of(reason);
	buf_reset(&p->stop_sequence);
	if (str_is(reason, "stop_sequence"))
		buf_append(&p->stop_sequence, sequence.p, sequence.n);
}

static int finish(struct provider_parser *p)
{
	struct stream_event ev = {.type = STREAM_END};
	int r = p->begun ? 0 : begin(p, NULL);

	if (r == 0)
		r = pump(p, true);
	if (r < 0 || p->out.ended)
		return r;
	r = emit_usage(p);
	if (r < 0)
		return r;
	ev.finish = p->finish;
	if (p->n_calls && (p->finish == FINISH_STOP || p->finish == FINISH_PAUSE))
		ev.finish = FINISH_CALLS;
	ev.stop_sequence = buf_str(&p->stop_sequence);
	return emitter_emit(&p->out, &ev);
}

/* ---- events ---- */

/* A message, whole or as it starts. Blocks that it holds already are complete. */
static int read_message(struct provider_parser *p, const struct json *message)
{
	int64_t index = 0;
	int r;

	if (p->begun) /* some gateways say it twice */
		return 0;
	anthropic_usage_read(&p->usage, json_get(message, "usage"));
	r = begin(p, message);
	if (r == 0)
		r = emit_usage(p);
	for (const struct json *b = json_first(json_get(message, "content"));
	        b && r == 0 && !p->out.ended; b = json_next(b), index++) {
		struct block *made;

		r = start_block(p, index, b);
		made = find_block(p, index);
		if (r == 0 && !p->out.ended && made)
			r = stop_block(p, made);
		if (r == 0 && !p->out.ended)
			r = pump(p, false);
	}
	read_stop(p, message);
	return r;
}

static bool is_type(const struct json *root, const char *type)
{
	return str_is(json_str(json_get(root, "type")), type);
}

static int read_block_event(struct provider_parser *p, const struct json *root)
{
	struct block *b;
	int64_t index = 0;

	if (!p->begun) {
		int r = begin(p, NULL);

		if (r < 0)
			return r;
	}
	json_i64(json_get(root, "index"), &index);
	if (is_type(root, "content_block_start"))
		return start_block(p, index, json_get(root, "content_block"));
	if (is_type(root, "content_block_delta"))
		return read_delta(p, root, index);
	b = find_block(p, index);
	return b ? stop_block(p, b) : 0;
}

static int read_event(struct provider_parser *p, const struct json *root)
{
	int r = 0;

	if (is_type(root, "error") || !json_absent(json_get(root, "error")))
		return fail_json(p, root);
	if (is_type(root, "message_start")) {
		r = read_message(p, json_get(root, "message"));
	} else if (is_type(root, "message") && p->f.mode == FRAMING_JSON) {
		r = read_message(p, root);
	} else if (str_starts(json_str(json_get(root, "type")), "content_block_")) {
		r = read_block_event(p, root);
	} else if (is_type(root, "message_delta")) {
		anthropic_usage_read(&p->usage, json_get(root, "usage"));
		read_stop(p, json_get(root, "delta"));
	} else if (is_type(root, "message_stop")) {
		if (p->finish_seen)
			return finish(p);
	} else if (is_type(root, "ping") && p->head && p->head->kind == BLOCK_THINKING) {
		return emit_usage(
		        p); /* thoughts that are not shown are a sign of life all the same */
	} else {
		return 0; /* ping, and whatever comes after us */
	}
	p->f.good++;
	return r < 0 || p->out.ended ? r : pump(p, false);
}

/* A line was lost: calls whose arguments were not whole must not run. */
static int spoil(struct provider_parser *p)
{
	int r = 0;

	p->f.malformed++;
	for (struct block *b = p->head; b && r == 0 && !p->out.ended; b = b->next)
		if (b->kind == BLOCK_TOOL && !b->stopped && !b->scan.whole)
			r = add_arguments(p, b, STR(SPOILED));
	return r < 0 || p->out.ended ? r : pump(p, false);
}

static int read_data(struct provider_parser *p, struct str data, bool named_error)
{
	struct json_doc *doc _cleanup_json_ = NULL;

	if (json_parse(data, TREE_MAX, &doc, NULL) == 0 && json_is(json_root(doc), JSON_OBJECT)) {
		if (named_error && !is_type(json_root(doc), "error"))
			return fail_json(p, json_root(doc));
		return read_event(p, json_root(doc));
	}
	if (named_error)
		return fail_text(p, "the provider gave up in the middle of its answer");
	return spoil(p);
}

static int on_event(void *ctx, struct str event, struct str data)
{
	struct provider_parser *p = ctx;

	if (p->out.ended || !str_trim(data).n)
		return 0;
	if (str_is(str_trim(data),
	            "[DONE]")) /* no word of this dialect, but of those who imitate it */
		return p->finish_seen ? finish(p) : 0;
	return read_data(p, data, str_is(event, "error"));
}

/* ---- the seam ---- */

struct provider_parser *anthropic_parse_open(
        const struct provider_call *pc, struct str content_type)
{
	struct provider_parser *p = mem_alloc(sizeof(*p));

	p->c = pc ? pc->conversation : NULL;
	p->same_dialect = pc && anthropic_same_dialect(pc);
	p->left = REPLY_MAX;
	p->stop_sequence = (struct buf)BUF_INIT(EVENT_MAX);
	framing_open(&p->f, EVENT_MAX, REPLY_MAX + EVENT_MAX, on_event, p);
	return p;
}

struct provider_parser *anthropic_parse_close(struct provider_parser *p)
{
	if (!p)
		return NULL;
	while (p->head) {
		struct block *b = p->head;

		p->head = b->next;
		block_free(b);
	}
	buf_free(&p->stop_sequence);
	framing_close(&p->f);
	free(p);
	return NULL;
}

size_t anthropic_parse_malformed(const struct provider_parser *p)
{
	return p->f.malformed;
}

int anthropic_parse_feed(
        struct provider_parser *p, const void *data, size_t n, stream_fn fn, void *ctx)
{
	const char *fault;
	int r;

	if (!emitter_begin(&p->out, fn, ctx))
		return 0;
	fault = framing_feed(&p->f, data, n, &r);
	return fault && !p->out.ended ? fail_text(p, fault) : r;
}

int anthropic_parse_end(struct provider_parser *p, const struct error *cut, stream_fn fn, void *ctx)
{
	int r = 0;

	if (!emitter_begin(&p->out, fn, ctx))
		return 0;
	if (p->f.mode == FRAMING_JSON && !cut)
		r = read_data(p, buf_str(&p->f.body), false);
	if (r < 0 || p->out.ended)
		return r;
	if (p->finish_seen)
		return finish(p);
	if (cut)
		return fail(p, cut);
	return fail_text(p, framing_fault(&p->f));
}
