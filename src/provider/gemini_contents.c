/*
 * Items → `systemInstruction` and `contents`.
 *
 * Theory of operation. One pass over the items. A content is opened by the first part that goes
 * into it and closed by the first that belongs to the other side. All items of one reply of the
 * model make one content of role model; when it ends, the results of its calls follow as one
 * content of their own, in the order of the calls and with nothing beside them, which is the only
 * form that the API takes. Results are found by call id; a call without one gets an error, since
 * the API refuses a call that was never answered. What a result holds that a functionResponse
 * cannot, follows as a content of the user.
 *
 * Signatures go back on the very part that they came with. The first call of a reply must have one
 * for Gemini 3 and later; where there is none (another model's history) the API's own word for that
 * case stands in. Thoughts are sent only where they are this provider's: with a signature that
 * opens, or from a client of this dialect.
 *
 * All is a function of public fields, and of opaque state that opens, only; keys come in one fixed
 * order. That keeps prompt caches warm.
 *
 * There is no system role in `contents`. What stands before everything else is the
 * systemInstruction; a later message of that kind is told as the user's, at its place.
 */
#include "provider/gemini.h"

#include "base/mem.h"
#include "provider/request.h"

#include <stdlib.h>

#define NAME_CHARS  REQUEST_NAME_CHARS ".:"
#define TEXT_MAX    ((size_t)256 << 20)
#define STATE_MAX   ((size_t)32 << 20)
#define RESULT_TREE ((size_t)64 << 20)

static const char NO_RESULT[] = "There is no result: the call was interrupted before it finished.";
/* What the API takes for a signature on calls that it did not make itself. */
static const char NO_SIGNATURE[] = "skip_thought_signature_validator";

enum side { SIDE_NONE, SIDE_USER, SIDE_MODEL };

struct contents {
	const struct provider_call *pc;
	const struct conversation *c;
	struct json_writer *w;
	bool is_new;    /* gemini_model_is_new() */
	enum side side; /* of the content that is open */
	size_t n_contents;
	uint32_t reply;            /* that the model's content belongs to */
	bool has_call;             /* that reply has a call already */
	const struct item **calls; /* whose results are due */
	size_t n_calls, cap_calls;
};

/* ---- opening and closing ---- */

static void close_content(struct contents *b)
{
	if (b->side == SIDE_NONE)
		return;
	jw_end(b->w);
	jw_end(b->w);
	b->side = SIDE_NONE;
}

static void open_content(struct contents *b, enum side side)
{
	if (b->side == side)
		return;
	close_content(b);
	b->side = side;
	b->n_contents++;
	jw_object(b->w);
	jw_kcstr(b->w, "role", side == SIDE_MODEL ? "model" : "user");
	jw_key(b->w, "parts");
	jw_array(b->w);
}

static void write_text(struct contents *b, enum side side, struct str text)
{
	open_content(b, side);
	jw_object(b->w);
	jw_kstr(b->w, "text", text);
	jw_end(b->w);
}

/* ---- JSON that is not ours ---- */

static int ignore_event(void *ctx, const struct json_event *ev)
{
	return 0;
}

static bool is_object(struct str raw)
{
	struct str s = raw;

	while (s.n && memchr(" \t\r\n", *s.p, 4)) {
		s.p++;
		s.n--;
	}
	return str_starts(s, "{") && json_read(raw, ignore_event, NULL, NULL) == 0;
}

struct cleaner {
	struct buf *out;
	struct str text;
	size_t done; /* of text */
};

/* A string that may hold half of a surrogate pair is written anew. */
static int clean_event(void *ctx, const struct json_event *ev)
{
	struct cleaner *k = ctx;
	bool suspect = (ev->type == JSON_EV_STRING || ev->type == JSON_EV_KEY) && ev->escaped &&
	               (str_contains(ev->raw, "\\ud") || str_contains(ev->raw, "\\uD"));
	char *decoded;
	size_t n;

	if (!suspect)
		return 0;
	decoded = malloc(ev->raw.n);
	if (!decoded)
		return -ERR_NOMEM;
	n = json_unescape(ev->raw, decoded);
	buf_append(k->out, k->text.p + k->done, ev->offset - k->done);
	json_write_str(k->out, (struct str){decoded, n});
	k->done = ev->offset + ev->raw.n;
	free(decoded);
	return 0;
}

/* Text that is_object() has seen, as it is; but a lone surrogate, which the API would refuse,
 * becomes U+FFFD. */
static void write_object(struct json_writer *w, const char *key, struct str raw)
{
	struct buf clean _cleanup_buf_ = BUF_INIT(TEXT_MAX);
	struct cleaner k = {.out = &clean, .text = raw};

	jw_key(w, key);
	if ((!str_contains(raw, "\\ud") && !str_contains(raw, "\\uD")) ||
	        json_read(raw, clean_event, &k, NULL) < 0) {
		jw_raw(w, raw);
		return;
	}
	buf_append(&clean, raw.p + k.done, raw.n - k.done);
	jw_raw(w, (struct str){buf_cstr(&clean), clean.len});
}

/* ---- attachments ---- */

struct blob {
	struct str mime, data; /* data: base64; else uri */
	struct str uri;
};

static struct str mime_of_name(struct str name)
{
	static const struct {
		const char *suffix, *mime;
	} rows[] = {{".png", "image/png"}, {".jpg", "image/jpeg"}, {".jpeg", "image/jpeg"},
	        {".webp", "image/webp"}, {".heic", "image/heic"}, {".heif", "image/heif"},
	        {".gif", "image/gif"}, {".pdf", "application/pdf"}, {".txt", "text/plain"},
	        {".md", "text/markdown"}, {".csv", "text/csv"}, {".html", "text/html"},
	        {".htm", "text/html"}, {".xml", "text/xml"}, {".css", "text/css"},
	        {".js", "text/javascript"}, {".py", "text/x-python"}, {".json", "application/json"},
	        {".wav", "audio/wav"}, {".mp3", "audio/mp3"}, {".aiff", "audio/aiff"},
	        {".aac", "audio/aac"}, {".ogg", "audio/ogg"}, {".flac", "audio/flac"},
	        {".mp4", "video/mp4"}, {".mov", "video/mov"}, {".webm", "video/webm"},
	        {".mpeg", "video/mpeg"}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		size_t n = strlen(rows[i].suffix);

		if (name.n > n &&
		        str_ieq((struct str){name.p + name.n - n, n}, str_of(rows[i].suffix)))
			return str_of(rows[i].mime);
	}
	return (struct str){NULL, 0};
}

/* An address without its query. */
static struct str path_of(struct str url)
{
	size_t n = 0;

	while (n < url.n && url.p[n] != '?' && url.p[n] != '#')
		n++;
	return (struct str){url.p, n};
}

/* "data:image/png;base64,…" */
static bool read_data_url(struct str url, struct blob *ret)
{
	const char *comma = memchr(url.p, ',', url.n);
	struct str head;

	if (!comma)
		return false;
	head = (struct str){url.p + 5, (size_t)(comma - url.p) - 5};
	if (!str_ends(head, ";base64"))
		return false;
	head.n -= strlen(";base64");
	for (size_t i = 0; i < head.n; i++)
		if (head.p[i] == ';') /* a parameter of the type: the API wants the type alone */
			head.n = i;
	ret->mime = head;
	ret->data = (struct str){comma + 1, url.n - (size_t)(comma + 1 - url.p)};
	return true;
}

static struct str audio_mime(struct str format)
{
	static const char *const mimes[] = {
	        "audio/wav", "audio/mp3", "audio/aiff", "audio/aac", "audio/ogg", "audio/flac"};

	for (size_t i = 0; i < sizeof(mimes) / sizeof(*mimes); i++)
		if (str_is(format, mimes[i] + strlen("audio/")))
			return str_of(mimes[i]);
	return STR("audio/wav");
}

static int read_blob(const struct part *p, struct blob *ret, struct error *err)
{
	*ret = (struct blob){.mime = {NULL, 0}};
	if (p->type == PART_AUDIO) {
		ret->mime = audio_mime(p->detail);
		ret->data = p->data;
		return 0;
	}
	if (str_starts(p->data, "data:") || str_starts(p->url, "data:")) {
		if (read_data_url(p->data.n ? p->data : p->url, ret))
			return 0;
		return error_param(err, ERR_INVALID, "input", "A data: URL must hold base64.");
	}
	ret->mime = mime_of_name(p->filename.n ? p->filename : path_of(p->url));
	ret->data = p->data;
	ret->uri = p->url;
	if (p->data.n && !ret->mime.n)
		ret->mime = STR("application/pdf");
	return 0;
}

static void write_blob(struct json_writer *w, const struct blob *b)
{
	bool by_uri = !b->data.n;

	jw_object(w);
	jw_key(w, by_uri ? "fileData" : "inlineData");
	jw_object(w);
	if (b->mime.n)
		jw_kstr(w, "mimeType", b->mime);
	jw_kstr(w, by_uri ? "fileUri" : "data", by_uri ? b->uri : b->data);
	jw_end(w);
	jw_end(w);
}

/* ---- the client's side ---- */

static int write_client_part(
        struct contents *b, const struct item *it, const struct part *p, struct error *err)
{
	struct blob blob;
	int r;

	if (p->raw.n && it->raw_dialect == DIALECT_GEMINI) {
		open_content(b, SIDE_USER);
		jw_raw(b->w, p->raw);
		return 0;
	}
	if (request_is_text(p)) {
		if (p->text.n)
			write_text(b, SIDE_USER, p->text);
		return 0;
	}
	if (!request_is_attachment(p))
		return 0;
	r = read_blob(p, &blob, err);
	if (r < 0)
		return r;
	open_content(b, SIDE_USER);
	write_blob(b->w, &blob);
	return 0;
}

/* ---- results ---- */

/* A result that may stand in a functionResponse itself. */
static bool is_inline(const struct contents *b, const struct blob *blob)
{
	static const char *const mimes[] = {
	        "image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain", NULL};

	for (size_t i = 0; b->is_new && blob->data.n && mimes[i]; i++)
		if (str_is(blob->mime, mimes[i]))
			return true;
	return false;
}

static void write_text_result(struct json_writer *w, const char *key, struct str text)
{
	jw_key(w, "response");
	jw_object(w);
	jw_kstr(w, key, text);
	jw_end(w);
}

/* The API wants an object: where the text is one it is taken as it is. */
static void write_response_text(struct json_writer *w, struct str text, bool is_error)
{
	if (!is_error && is_object(text))
		write_object(w, "response", text);
	else
		write_text_result(w, is_error ? "error" : "output", text);
}

static void collect_text(const struct result *res, struct buf *out)
{
	for (size_t i = 0; i < res->n_parts; i++) {
		const struct part *p = &res->parts[i];

		if (!request_is_text(p) || !p->text.n)
			continue;
		if (out->len)
			buf_putc(out, '\n');
		buf_append(out, p->text.p, p->text.n);
	}
}

/* What the model reads for a call. */
static int write_response(
        struct contents *b, const struct item *call, const struct item *res, struct error *err)
{
	const struct tool *tool = res && res->result.tool ? res->result.tool : call->call.tool;
	struct buf text _cleanup_buf_ = BUF_INIT(TEXT_MAX);
	int r = 0;

	if (!res && call->call.error.n && tool) {
		struct result none = {.tool = tool, .error = call->call.error};

		r = tool->result_text(&none, &text);
	} else if (!res) {
		write_text_result(b->w, "error", STR(NO_RESULT));
		return 0;
	} else if (tool && !res->result.n_parts) {
		r = tool->result_text(&res->result, &text);
	} else if (res->raw_dialect == DIALECT_GEMINI && res->result.n_parts &&
	           res->result.parts[0].raw.n) {
		jw_kraw(b->w, "response", res->result.parts[0].raw);
		return 0;
	} else {
		collect_text(&res->result, &text);
		r = buf_error(&text);
	}
	if (r < 0)
		return error_set(err, ERR_TOO_LARGE, "a tool result is too large to send");
	write_response_text(
	        b->w, (struct str){buf_cstr(&text), text.len}, res && res->result.is_error);
	return 0;
}

/* The attachments that a functionResponse can hold (inline), or those that it cannot. */
static int write_result_blobs(
        struct contents *b, const struct item *res, bool as_inline, struct error *err)
{
	bool open = false;

	for (size_t i = 0; res && i < res->result.n_parts; i++) {
		const struct part *p = &res->result.parts[i];
		bool raw = p->raw.n && res->raw_dialect == DIALECT_GEMINI;
		struct blob blob = {.mime = {NULL, 0}};
		int r;

		if (!request_is_attachment(p))
			continue;
		r = raw ? 0 : read_blob(p, &blob, err);
		if (r < 0)
			return r;
		if ((raw || is_inline(b, &blob)) != as_inline)
			continue;
		if (!as_inline) {
			open_content(b, SIDE_USER);
		} else if (!open) {
			jw_key(b->w, "parts");
			jw_array(b->w);
			open = true;
		}
		if (raw)
			jw_raw(b->w, p->raw);
		else
			write_blob(b->w, &blob);
	}
	if (open)
		jw_end(b->w);
	return 0;
}

/* The provider's own id, or none where it gave none. */
static void write_id(struct json_writer *w, const struct item *call)
{
	struct str id = call->call.upstream_id.n ? call->call.upstream_id : call->call.public_id;

	if (id.n && !str_starts(id, GEMINI_NO_ID))
		jw_kstr(w, "id", id);
}

static int write_function_response(struct contents *b, const struct item *call, struct error *err)
{
	const struct item *res = conversation_call_result(b->c, call);
	struct json_writer *w = b->w;
	int r;

	jw_object(w);
	jw_key(w, "functionResponse");
	jw_object(w);
	write_id(w, call);
	request_write_name(w, b->c, call->call.name, NAME_CHARS, 128);
	r = write_response(b, call, res, err);
	if (r == 0)
		r = write_result_blobs(b, res, true, err);
	if (r < 0)
		return r;
	jw_end(w);
	jw_end(w);
	return 0;
}

/* The model's content is complete: its calls are answered. */
static int answer_calls(struct contents *b, struct error *err)
{
	size_t n = b->n_calls;
	int r = 0;

	if (!n)
		return 0;
	b->n_calls = 0;
	close_content(b);
	open_content(b, SIDE_USER);
	for (size_t i = 0; i < n && r == 0; i++)
		r = write_function_response(b, b->calls[i], err);
	if (r < 0)
		return r;
	close_content(b);
	for (size_t i = 0; i < n && r == 0; i++)
		r = write_result_blobs(b, conversation_call_result(b->c, b->calls[i]), false, err);
	return r;
}

/* ---- the model's side ---- */

static void write_signature(struct json_writer *w, const struct buf *signature)
{
	if (signature->len)
		jw_kstr(w, "thoughtSignature", (struct str){signature->data, signature->len});
}

/* Text parts of a message, or of thoughts; the signature belongs to the last. */
static void write_model_texts(
        struct contents *b, const struct item *it, bool thought, const struct buf *signature)
{
	size_t left = 0;

	for (size_t i = 0; i < it->n_parts; i++)
		left += it->parts[i].text.n > 0;
	if (!left && !signature->len)
		return;
	open_content(b, SIDE_MODEL);
	if (!left) {
		jw_object(b->w);
		jw_kcstr(b->w, "text", "");
		write_signature(b->w, signature);
		jw_end(b->w);
	}
	for (size_t i = 0; i < it->n_parts; i++) {
		if (!it->parts[i].text.n)
			continue;
		jw_object(b->w);
		jw_kstr(b->w, "text", it->parts[i].text);
		if (thought)
			jw_kbool(b->w, "thought", true);
		if (--left == 0)
			write_signature(b->w, signature);
		jw_end(b->w);
	}
}

/* Arguments go back as the model wrote them, except where they are no object. */
static void write_args(struct json_writer *w, struct str raw)
{
	if (is_object(raw)) {
		write_object(w, "args", raw);
		return;
	}
	jw_key(w, "args");
	jw_object(w);
	if (str_trim(raw).n)
		jw_kstr(w, "invalid_arguments", raw);
	jw_end(w);
}

static void write_call(struct contents *b, const struct item *it, const struct buf *signature)
{
	struct json_writer *w = b->w;

	open_content(b, SIDE_MODEL);
	jw_object(w);
	jw_key(w, "functionCall");
	jw_object(w);
	write_id(w, it);
	request_write_name(w, b->c, it->call.name, NAME_CHARS, 128);
	write_args(w, it->call.arguments);
	jw_end(w);
	if (!signature->len && b->is_new && !b->has_call)
		jw_kcstr(w, "thoughtSignature", NO_SIGNATURE);
	write_signature(w, signature);
	jw_end(w);
	b->has_call = true;
	mem_grow(&b->calls, &b->cap_calls, b->n_calls, sizeof(*b->calls));
	b->calls[b->n_calls++] = it;
}

static int write_model_item(struct contents *b, const struct item *it, struct error *err)
{
	struct buf signature _cleanup_buf_ = BUF_INIT(STATE_MAX);
	bool signed_here = provider_state(b->pc, it, &signature);
	int r;

	if (!signed_here)
		buf_reset(&signature);
	if (it->reply != b->reply || it->reply == REPLY_NONE) {
		r = answer_calls(b, err);
		if (r < 0)
			return r;
		b->has_call = false;
	}
	b->reply = it->reply;
	switch (it->type) {
	case ITEM_MESSAGE:
		write_model_texts(b, it, false, &signature);
		break;
	case ITEM_REASONING:
		if (signed_here || b->c->dialect == DIALECT_GEMINI)
			write_model_texts(b, it, true, &signature);
		break;
	case ITEM_CALL:
		write_call(b, it, &signature);
		break;
	case ITEM_OTHER:
		if (it->raw_dialect != DIALECT_GEMINI || !it->raw.n)
			break;
		open_content(b, SIDE_MODEL);
		jw_raw(b->w, it->raw);
		break;
	case ITEM_RESULT:
		break;
	}
	return 0;
}

/* ---- all of it ---- */

static bool is_instruction(const struct item *it)
{
	return it->type == ITEM_MESSAGE && (it->role == ROLE_SYSTEM || it->role == ROLE_DEVELOPER);
}

static bool says_text(const struct item *it)
{
	for (size_t i = 0; i < it->n_parts; i++)
		if (request_is_text(&it->parts[i]) && it->parts[i].text.n)
			return true;
	return false;
}

/* The messages at the front. Returns how many items they are. */
static size_t write_instructions(struct contents *b)
{
	const struct conversation *c = b->c;
	struct json_writer *w = b->w;
	size_t n = 0;
	bool open = false;

	while (n < c->n_items && is_instruction(c->items[n]))
		n++;
	if (n == c->n_items)
		return 0; /* there is nothing else: it is what is asked */
	for (size_t i = 0; i < n; i++) {
		const struct item *it = c->items[i];

		if (!says_text(it))
			continue;
		if (!open) {
			jw_key(w, "systemInstruction");
			jw_object(w);
			jw_key(w, "parts");
			jw_array(w);
			open = true;
		}
		for (size_t k = 0; k < it->n_parts; k++) {
			if (!request_is_text(&it->parts[k]) || !it->parts[k].text.n)
				continue;
			jw_object(w);
			jw_kstr(w, "text", it->parts[k].text);
			jw_end(w);
		}
	}
	if (open) {
		jw_end(w);
		jw_end(w);
	}
	return n;
}

static int write_item(struct contents *b, const struct item *it, struct error *err)
{
	int r;

	if (it->type == ITEM_RESULT)
		return 0;
	if (it->type != ITEM_MESSAGE || it->role == ROLE_ASSISTANT)
		return write_model_item(b, it, err);
	r = answer_calls(b, err);
	for (size_t i = 0; i < it->n_parts && r == 0; i++)
		r = write_client_part(b, it, &it->parts[i], err);
	return r;
}

int gemini_contents_write(struct json_writer *w, const struct provider_call *pc, struct error *err)
{
	struct contents b = {.pc = pc,
	        .c = pc->conversation,
	        .w = w,
	        .is_new = gemini_model_is_new(pc->target->model),
	        .reply = REPLY_NONE};
	size_t first = write_instructions(&b);
	int r = 0;

	jw_key(w, "contents");
	jw_array(w);
	for (size_t i = first; i < b.c->n_items && r == 0; i++)
		r = write_item(&b, b.c->items[i], err);
	if (r == 0)
		r = answer_calls(&b, err);
	free(b.calls);
	if (r < 0)
		return r;
	close_content(&b);
	jw_end(w);
	if (!b.n_contents)
		return error_param(
		        err, ERR_INVALID, "input", "the input says nothing: it holds no text");
	return 0;
}
