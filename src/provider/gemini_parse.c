/*
 * The answer of streamGenerateContent → canonical events.
 *
 * Theory of operation. Bytes go through the SSE reader (or, when the first byte shows JSON, an
 * object or the array that comes without alt=sse, are kept until the end). Every event is one
 * GenerateContentResponse, and adds parts to its first candidate. A part is whole when it comes;
 * only text and thoughts go on in later parts. So there is at most one open item, a run of text or
 * of thoughts, and any other part ends it.
 *
 * A part that carries a thoughtSignature must go back unmerged, so it is always an item of its own.
 * An empty text with a signature, as streams end with, is reasoning without text: the one kind of
 * item in which every dialect can carry a state. Clients of other dialects have no place for the
 * signature of a text either; for them it is taken off the text and follows as such an empty one,
 * as the provider itself might have sent it.
 *
 * Parts of other kinds (a run of the provider's own code execution, a picture) go on raw: only
 * clients of this dialect can read them.
 *
 * A line that is no JSON is skipped. A reply has ended well only if there was a finishReason, or
 * the prompt was blocked; usage is cumulative, each field's last value stands.
 */
#include "provider/gemini.h"

#include "base/id.h"
#include "base/mem.h"
#include "provider/emitter.h"
#include "provider/framing.h"
#include "provider/usage.h"

#include <stdlib.h>

#define EVENT_MAX ((size_t)32 << 20)
#define TREE_MAX  ((size_t)64 << 20)
#define REPLY_MAX                                                                                  \
	((size_t)64 << 20) /* all text, thoughts, arguments and raw parts of one reply             \
	                    */
#define ARGS_MAX  ((size_t)4 << 20)
#define CALLS_MAX 256
#define ITEMS_MAX 10000
#define ID_MAX    1024
#define NAME_MAX  256

struct provider_parser {
	struct framing f;
	struct emitter out;
	bool texts_signed; /* the client can carry a signature on a text */
	bool begun;
	bool open; /* an item is: text or thoughts without signature, to be gone on with */
	enum item_type open_type;
	size_t n_items, n_calls, n_bytes;
	bool finish_seen;
	enum finish finish;
	char failure[96]; /* why the finishReason means that there is no answer; "" */
};

/* ---- items ---- */

static int end_open(struct provider_parser *p)
{
	struct stream_event ev = {.type = STREAM_ITEM_END, .item_type = p->open_type};

	if (!p->open)
		return 0;
	p->open = false;
	return emitter_emit(&p->out, &ev);
}

/* Begins an item; ev says what else there is of it. */
static int begin_item(struct provider_parser *p, struct stream_event *ev)
{
	int r = end_open(p);

	if (r < 0 || p->out.ended)
		return r;
	if (p->n_items == ITEMS_MAX)
		return emitter_fail_text(&p->out, "the provider's reply has too many parts");
	p->n_items++;
	ev->type = STREAM_ITEM_BEGIN;
	return emitter_emit(&p->out, ev);
}

/* Counts bytes of the reply. */
static int take(struct provider_parser *p, size_t n)
{
	if (n > REPLY_MAX - p->n_bytes)
		return emitter_fail_text(&p->out, "the provider's reply is longer than 64 MiB");
	p->n_bytes += n;
	return 0;
}

static int delta(struct provider_parser *p, enum item_type type, struct str text)
{
	struct stream_event ev = {.type = STREAM_DELTA,
	        .item_type = type,
	        .part_type = type == ITEM_REASONING ? PART_SUMMARY : PART_TEXT,
	        .text = text};

	return text.n ? emitter_emit(&p->out, &ev) : 0;
}

static int end_item(struct provider_parser *p, struct stream_event *ev, struct str signature)
{
	ev->type = STREAM_ITEM_END;
	ev->opaque = signature;
	return emitter_emit(&p->out, ev);
}

/* ---- parts ---- */

/* Text that may go on in the next part. */
static int read_run(struct provider_parser *p, enum item_type type, struct str text)
{
	struct stream_event ev = {.item_type = type};
	int r = 0;

	if (!text.n)
		return 0;
	if (!p->open || p->open_type != type)
		r = begin_item(p, &ev);
	if (r < 0 || p->out.ended)
		return r;
	p->open = true;
	p->open_type = type;
	return delta(p, type, text);
}

static int read_signed(
        struct provider_parser *p, enum item_type type, struct str text, struct str signature)
{
	struct stream_event ev = {.item_type = type};
	int r = begin_item(p, &ev);

	if (r == 0)
		r = delta(p, type, text);
	return r < 0 || p->out.ended ? r : end_item(p, &ev, signature);
}

static int read_text(struct provider_parser *p, struct str text, bool thought, struct str signature)
{
	enum item_type type = thought ? ITEM_REASONING : ITEM_MESSAGE;
	int r = 0;

	if (!signature.n)
		return read_run(p, type, text);
	if (type == ITEM_MESSAGE && !p->texts_signed) {
		r = read_run(p, type, text);
		text.n = 0;
	}
	if (r < 0 || p->out.ended)
		return r;
	return read_signed(p, text.n ? type : ITEM_REASONING, text, signature);
}

static int read_call(struct provider_parser *p, const struct json *call, struct str signature)
{
	struct stream_event ev = {.item_type = ITEM_CALL,
	        .id = json_str(json_get(call, "id")),
	        .name = json_str(json_get(call, "name"))};
	const struct json *args = json_get(call, "args");
	struct str raw = json_absent(args) ? STR("{}") : json_raw(args);
	char minted[64];
	int r;

	if (p->n_calls == CALLS_MAX)
		return emitter_fail_text(
		        &p->out, "the provider made more than 256 tool calls in one reply");
	if (raw.n > ARGS_MAX)
		return emitter_fail_text(
		        &p->out, "the provider sent a tool call with over 4 MiB of arguments");
	p->n_calls++;
	if (!ev.id.n || ev.id.n > ID_MAX) {
		id_make(minted, sizeof(minted), GEMINI_NO_ID, 20);
		ev.id = str_of(minted);
	}
	if (ev.name.n > NAME_MAX) /* nobody declared it */
		ev.name.n = 0;
	r = begin_item(p, &ev);
	if (r == 0)
		r = delta(p, ITEM_CALL, raw);
	return r < 0 || p->out.ended ? r : end_item(p, &ev, signature);
}

static int read_other(struct provider_parser *p, const struct json *part)
{
	struct stream_event ev = {.item_type = ITEM_OTHER};
	int r = begin_item(p, &ev);

	if (r < 0 || p->out.ended)
		return r;
	ev.raw = json_raw(part);
	ev.raw_dialect = DIALECT_GEMINI;
	return end_item(p, &ev, (struct str){NULL, 0});
}

/* A part with nothing but what every part may have beside its data. */
static bool is_empty(const struct json *part)
{
	for (const struct json *v = json_first(part); v; v = json_next(v))
		if (!str_is(json_key(v), "thought") && !str_is(json_key(v), "thoughtSignature") &&
		        !str_is(json_key(v), "partMetadata"))
			return false;
	return true;
}

static int read_part(struct provider_parser *p, const struct json *part)
{
	const struct json *text = json_get(part, "text"), *call = json_get(part, "functionCall");
	struct str signature = json_str(json_get(part, "thoughtSignature"));
	int r;

	if (p->out.ended || !json_is(part, JSON_OBJECT))
		return 0;
	r = take(p, json_raw(part).n);
	if (r < 0 || p->out.ended)
		return r;
	if (json_is(call, JSON_OBJECT))
		return read_call(p, call, signature);
	if (json_is(text, JSON_STRING) || is_empty(part))
		return read_text(
		        p, json_str(text), json_bool(json_get(part, "thought")), signature);
	return read_other(p, part);
}

/* ---- usage and finish ---- */

/* Its input holds what was cached; what its own tools fed back, and the thoughts, stand beside the
 * others. */
static void read_usage(struct provider_parser *p, const struct json *usage)
{
	struct usage *u = &p->out.usage;
	uint64_t prompt = 0, tool = 0, candidates = 0, thoughts = 0;
	bool given = usage_read_count(usage, "promptTokenCount", &prompt);

	given |= usage_read_count(usage, "candidatesTokenCount", &candidates);
	given |= usage_read_count(usage, "thoughtsTokenCount", &thoughts);
	if (!given)
		return;
	usage_read_count(usage, "toolUsePromptTokenCount", &tool);
	u->given = true;
	if (prompt + tool)
		u->input = prompt + tool;
	if (candidates + thoughts)
		u->output = candidates + thoughts;
	if (thoughts)
		u->reasoning = thoughts;
	usage_read_count(usage, "cachedContentTokenCount", &u->cached);
	if (u->cached > u->input)
		u->cached = u->input;
}

/* What ended the reply. Some reasons mean that the model's words could not be read. */
static void read_finish(struct provider_parser *p, struct str reason)
{
	static const char *const filters[] = {"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST",
	        "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT",
	        "IMAGE_RECITATION", "MODEL_ARMOR"};
	static const char *const failures[] = {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL",
	        "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE", "NO_IMAGE", "IMAGE_OTHER"};

	p->finish_seen = true;
	p->finish = FINISH_STOP;
	if (str_is(reason, "MAX_TOKENS") || str_is(reason, "CONTINUATION"))
		p->finish = FINISH_LENGTH;
	for (size_t i = 0; i < sizeof(filters) / sizeof(*filters); i++)
		if (str_is(reason, filters[i]))
			p->finish = FINISH_FILTER;
	for (size_t i = 0; i < sizeof(failures) / sizeof(*failures); i++)
		if (str_is(reason, failures[i]))
			str_format(p->failure, sizeof(p->failure),
			        "the provider ended the reply with %s", failures[i]);
	if (str_is(reason, "OTHER") && !p->n_items)
		str_format(p->failure, sizeof(p->failure),
		        "the provider ended the reply with OTHER, and said nothing");
}

static int begin(struct provider_parser *p, const struct json *root)
{
	struct stream_event ev = {.type = STREAM_BEGIN,
	        .id = json_str(json_get(root, "responseId")),
	        .model = json_str(json_get(root, "modelVersion"))};

	p->begun = true;
	return emitter_emit(&p->out, &ev);
}

static int finish(struct provider_parser *p)
{
	struct stream_event ev = {.type = STREAM_END};
	int r;

	if (p->failure[0])
		return emitter_fail_text(&p->out, p->failure);
	r = p->begun ? end_open(p) : begin(p, NULL);
	if (r < 0 || p->out.ended)
		return r;
	r = emitter_usage(&p->out);
	if (r < 0)
		return r;
	ev.finish = p->finish == FINISH_STOP && p->n_calls ? FINISH_CALLS : p->finish;
	return emitter_emit(&p->out, &ev);
}

/* ---- chunks ---- */

static int read_candidate(struct provider_parser *p, const struct json *candidate)
{
	const struct json *parts = json_get(json_get(candidate, "content"), "parts");
	struct str reason = json_str(json_get(candidate, "finishReason"));
	int r = 0;

	for (const struct json *v = json_first(parts); v && r == 0; v = json_next(v))
		r = read_part(p, v);
	if (r == 0 && reason.n && !str_is(reason, "FINISH_REASON_UNSPECIFIED"))
		read_finish(p, reason);
	return r;
}

static int read_chunk(struct provider_parser *p, const struct json *root)
{
	const struct json *candidates = json_get(root, "candidates");
	struct str blocked = json_str(json_get(json_get(root, "promptFeedback"), "blockReason"));
	int r = p->begun ? 0 : begin(p, root);

	if (r < 0)
		return r;
	read_usage(p, json_get(root, "usageMetadata"));
	for (const struct json *c = json_first(candidates); c && r == 0; c = json_next(c)) {
		int64_t index = 0;

		if (json_i64(json_get(c, "index"), &index) && index != 0)
			continue; /* where a client asked for several */
		r = read_candidate(p, c);
	}
	if (r == 0 && blocked.n && !str_is(blocked, "BLOCK_REASON_UNSPECIFIED") && !p->n_items) {
		p->finish_seen = true;
		p->finish = FINISH_FILTER;
	}
	return r;
}

static int read_object(struct provider_parser *p, const struct json *root)
{
	struct error err = {0};

	if (!json_is(root, JSON_OBJECT) || p->out.ended)
		return 0;
	if (!json_absent(json_get(root, "error"))) {
		gemini_error_json(root, &err);
		return emitter_fail(&p->out, &err);
	}
	/* What is no response at all, though it is JSON, must not pass for an empty one. */
	if (!json_get(root, "candidates") && !json_get(root, "promptFeedback") &&
	        !json_get(root, "usageMetadata"))
		return 0;
	p->f.good++;
	return read_chunk(p, root);
}

/* One JSON text: a response, or the array of them. False when it is none. */
static bool read_json(struct provider_parser *p, struct str text, int *ret)
{
	struct json_doc *doc _cleanup_json_ = NULL;
	const struct json *root;

	*ret = 0;
	if (json_parse(text, TREE_MAX, &doc, NULL) < 0)
		return false;
	root = json_root(doc);
	if (json_is(root, JSON_OBJECT))
		*ret = read_object(p, root);
	for (const struct json *v = json_is(root, JSON_ARRAY) ? json_first(root) : NULL;
	        v && *ret == 0; v = json_next(v))
		*ret = read_object(p, v);
	return true;
}

static int on_event(void *ctx, struct str event, struct str data)
{
	struct provider_parser *p = ctx;
	int r = 0;

	if (p->out.ended || !str_trim(data).n || str_is(str_trim(data), "[DONE]"))
		return 0;
	if (!read_json(p, data, &r))
		p->f.malformed++;
	return r;
}

/* ---- the seam ---- */

struct provider_parser *gemini_parse_open(const struct provider_call *pc, struct str content_type)
{
	struct provider_parser *p = mem_alloc(sizeof(*p));

	p->texts_signed = !pc || pc->conversation->dialect == DIALECT_GEMINI;
	framing_open(&p->f, EVENT_MAX, REPLY_MAX + EVENT_MAX, on_event, p);
	return p;
}

struct provider_parser *gemini_parse_close(struct provider_parser *p)
{
	if (!p)
		return NULL;
	framing_close(&p->f);
	free(p);
	return NULL;
}

int gemini_parse_feed(
        struct provider_parser *p, const void *data, size_t n, stream_fn fn, void *ctx)
{
	const char *fault;
	int r;

	if (!emitter_begin(&p->out, fn, ctx))
		return 0;
	fault = framing_feed(&p->f, data, n, &r);
	return fault && !p->out.ended ? emitter_fail_text(&p->out, fault) : r;
}

int gemini_parse_end(struct provider_parser *p, const struct error *cut, stream_fn fn, void *ctx)
{
	struct error err = {0};
	int r = 0;

	if (!emitter_begin(&p->out, fn, ctx))
		return 0;
	if (p->f.mode == FRAMING_JSON && !cut &&
	        !read_json(p, (struct str){buf_cstr(&p->f.body), p->f.body.len}, &r))
		p->f.malformed++;
	if (p->f.mode == FRAMING_EVENTS && !cut) /* some servers leave the last blank line out */
		r = sse_feed(p->f.sse, "\n\n", 2, &err);
	if (r < 0 || p->out.ended)
		return r;
	if (p->finish_seen)
		return finish(p);
	if (cut)
		return emitter_fail(&p->out, cut);
	return emitter_fail_text(&p->out, framing_fault(&p->f));
}
