/*
 * Documents that a conversation names by their ids: the body is changed to hold their content in
 * the form in which its dialect has content inline, so that whoever reads it later (the
 * translation, a relay, a count of tokens) knows of no ids.
 *
 *     Responses   input_file, input_image {file_id}        file_data and filename, or image_url
 *     chat        file {file: {file_id}}                   file_data and filename
 *     Messages    document, image {source: {type: file}}   source base64 or text, and title
 *
 * Only the objects that name one are written anew, and all other bytes stay. Texts are scanned by
 * the guardrails as what a user wrote: in most of these forms they are Base64, where no scan of the
 * body finds anything. What is kept of the request (its record, the input of a stored response) is
 * the body before this, with the ids.
 *
 * An id that is not one of ours stays, and the api says what becomes of it.
 */
#include "gateway/documents.h"

#include "api/param.h"
#include "base/base64.h"
#include "gateway/guardrails.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define TREE_MAX ((size_t)128 << 20) /* as the apis have it */
#define PIECE    131072

struct document {
	struct store_document row;
	struct buf content; /* as it stands in the body: a JSON string */
};

struct walk {
	const struct documents_inline *in;
	struct str body;
	struct buf out; /* the new body, up to done in the old one */
	size_t done;
	struct document found[DOCUMENTS_INLINE_MAX]; /* each once, however often it is named */
	size_t n_found;
	struct error *err;
};

bool documents_inline_wanted(struct str body)
{
	return body.n > 0 && memmem(body.p, body.n, "\"" DOCUMENTS_ID_PREFIX,
	                             sizeof(DOCUMENTS_ID_PREFIX)) != NULL;
}

static int too_large(struct walk *w, const char *path)
{
	return error_param(w->err, ERR_TOO_LARGE, path,
	        "%s: with the files that it names the request is larger than the %llu bytes that "
	        "one may have.",
	        path, (unsigned long long)w->in->g->config->limits.body_bytes);
}

/* A buffer did not take it all. */
static int full(struct walk *w, const struct buf *b, const char *path)
{
	if (buf_error(b) == -ERR_NOMEM)
		return error_set(w->err, ERR_NOMEM, "The server has no memory for this request.");
	return too_large(w, path);
}

static int not_there(struct walk *w, struct str id, const char *path)
{
	return error_param(w->err, ERR_INVALID, path,
	        "%s: there is no file '%s' in this workspace, or no longer.", path,
	        param_show(id).text);
}

/* ---- one document ---- */

/* What models read as text; the types are documents_sniff.c's, which says so of UTF-8 only. */
static bool is_text(const struct store_document *d)
{
	return str_starts(str_of(d->mime), "text/") || strcmp(d->mime, "application/json") == 0 ||
	       strcmp(d->mime, "application/x-ndjson") == 0;
}

static int find(struct walk *w, struct str id, const char *path, struct document **ret)
{
	const struct store_scope scope = row_scope(w->in->key);
	struct document *d = &w->found[w->n_found];
	int r;

	for (size_t i = 0; i < w->n_found; i++)
		if (str_is(id, w->found[i].row.id)) {
			*ret = &w->found[i];
			return 0;
		}
	if (w->n_found == DOCUMENTS_INLINE_MAX)
		return error_param(w->err, ERR_INVALID, path, "%s: at most %d files in a request.",
		        path, DOCUMENTS_INLINE_MAX);
	r = store_document_get(w->in->g->reader, &scope, id, clock_wall_ms(), &d->row, w->err);
	if (r == -ERR_NOT_FOUND || r == -ERR_INVALID)
		return not_there(w, id, path);
	if (r < 0)
		return r;
	buf_init(&d->content, w->in->g->config->limits.body_bytes);
	w->n_found++;
	*ret = d;
	return 0;
}

static int read_all(struct walk *w, int fd, struct buf *out, const char *path)
{
	_cleanup_free_ char *piece = mem_alloc(PIECE);
	ssize_t n;

	while ((n = read(fd, piece, PIECE)) != 0) {
		if (n > 0 && buf_append(out, piece, (size_t)n) < 0)
			return full(w, out, path);
		if (n < 0 && errno != EINTR)
			return error_errno(w->err, errno, "a blob");
	}
	return 0;
}

static void write_content(struct walk *w, struct document *d, struct str bytes)
{
	bool anthropic = w->in->speaks == DIALECT_ANTHROPIC;

	if (anthropic && is_text(&d->row)) {
		json_write_str(&d->content, bytes);
		return;
	}
	buf_puts(&d->content, "\"");
	if (!anthropic)
		buf_printf(&d->content, "data:%s;base64,", d->row.mime);
	base64_append(&d->content, bytes.p, bytes.n);
	buf_puts(&d->content, "\"");
}

/* Reads it as it will stand in the body. */
static int read_content(struct walk *w, struct document *d, const char *path, int fd)
{
	_cleanup_buf_ struct buf raw = BUF_INIT(w->in->g->config->limits.body_bytes);
	_cleanup_buf_ struct buf redacted = BUF_INIT(w->in->g->config->limits.body_bytes);
	bool changed = false;
	int r = read_all(w, fd, &raw, path);

	if (r == 0 && is_text(&d->row))
		r = guardrails_document(w->in->rules, (struct str){buf_cstr(&raw), raw.len},
		        w->in->report, &redacted, &changed, w->err);
	if (r < 0)
		return r;
	if (changed)
		write_content(w, d, (struct str){buf_cstr(&redacted), redacted.len});
	else
		write_content(w, d, (struct str){buf_cstr(&raw), raw.len});
	return buf_error(&d->content) < 0 ? full(w, &d->content, path) : 0;
}

/* Its content, read where that has not been done. What surely does not fit is not read. */
static int need_content(struct walk *w, struct document *d, const char *path)
{
	size_t held = w->out.len + (w->body.n - w->done);
	uint64_t most = w->in->g->config->limits.body_bytes, size;
	int fd = -1, r;

	if (held > most || d->row.bytes > most - held)
		return too_large(w, path);
	if (d->content.len > 0)
		return 0;
	r = blob_get(w->in->g->blobs, str_of(d->row.blob), &fd, &size, w->err);
	if (r == -ERR_NOT_FOUND) /* it was deleted just now */
		return not_there(w, str_of(d->row.id), path);
	if (r == 0)
		r = read_content(w, d, path, fd);
	if (fd >= 0)
		close(fd);
	return r;
}

/* ---- the objects that name one ---- */

/* Writes an object in place of the old one: begin, the members that stay, what is new, jw_end(). */
static void begin(struct walk *w, struct json_writer *j, const struct json *old)
{
	size_t at = (size_t)(json_raw(old).p - w->body.p);

	if (at < w->done)
		BUG("objects are not written in their order");
	buf_append(&w->out, w->body.p + w->done, at - w->done);
	w->done = at + json_raw(old).n;
	jw_init(j, &w->out);
	jw_object(j);
}

/* All members but one, and but those of `new` that say nothing. */
static void copy_members(
        struct json_writer *j, const struct json *old, const char *but, const char *const *new)
{
	for (const struct json *m = json_first(old); m != NULL; m = json_next(m)) {
		bool skip = str_is(json_key(m), but);

		for (size_t i = 0; new[i] != NULL && !skip; i++)
			skip = json_absent(m) && str_is(json_key(m), new[i]);
		if (skip)
			continue;
		jw_key_str(j, json_key(m));
		jw_raw(j, json_raw(m));
	}
}

static void write_name(struct json_writer *j, const struct json *old, const char *key,
        const struct store_document *d)
{
	const char *slash = strrchr(d->filename, '/');

	if (json_absent(json_get(old, key)))
		jw_kcstr(j, key, slash != NULL ? slash + 1 : d->filename);
}

static struct str content_of(const struct document *d)
{
	return (struct str){d->content.data, d->content.len};
}

/* 1: an object was written. */
static int end(struct walk *w, struct json_writer *j, const char *path)
{
	jw_end(j);
	return buf_error(&w->out) < 0 ? full(w, &w->out, path) : 1;
}

static int need_image(struct walk *w, const struct document *d, const char *path)
{
	if (str_starts(str_of(d->row.mime), "image/"))
		return 0;
	return error_param(w->err, ERR_INVALID, path, "%s: the file '%s' is no image but %s.", path,
	        d->row.id, d->row.mime);
}

/* The document of that id, with its content; where an image is asked for it is one. */
static int need(struct walk *w, struct str id, bool image, const char *path, struct document **ret)
{
	int r = find(w, id, path, ret);

	if (r == 0 && image)
		r = need_image(w, *ret, path);
	return r == 0 ? need_content(w, *ret, path) : r;
}

static bool is_ours(struct str id)
{
	return str_starts(id, DOCUMENTS_ID_PREFIX);
}

/* An object of OpenAI's that has file_id: an input_image, an input_file, or a chat's `file`. */
static int write_openai(struct walk *w, const struct json *old, const char *path, bool image)
{
	static const char *const content[] = {
	        "file_data", "file_url", "image_url", "filename", NULL};
	struct str id = json_str(json_get(old, "file_id"));
	char at[PARAM_PATH];
	struct document *d;
	struct json_writer j;
	int r;

	if (!is_ours(id))
		return 0;
	param_join(at, path, "file_id");
	for (size_t i = 0; i < 3; i++)
		if (!json_absent(json_get(old, content[i])))
			return error_param(w->err, ERR_INVALID, at,
			        "%s: give either it or '%s', not both.", at, content[i]);
	r = need(w, id, image, at, &d);
	if (r < 0)
		return r;
	begin(w, &j, old);
	copy_members(&j, old, "file_id", content);
	jw_kraw(&j, image ? "image_url" : "file_data", content_of(d));
	if (!image)
		write_name(&j, old, "filename", &d->row);
	return end(w, &j, at);
}

static void write_source(struct json_writer *j, const struct document *d)
{
	bool text = is_text(&d->row);

	jw_key(j, "source");
	jw_object(j);
	jw_kcstr(j, "type", text ? "text" : "base64");
	jw_kcstr(j, "media_type", text ? "text/plain" : d->row.mime);
	jw_kraw(j, "data", content_of(d));
	jw_end(j);
}

/* A block of Anthropic's that has a source. */
static int write_anthropic(struct walk *w, const struct json *old, const char *path, bool image)
{
	static const char *const title[] = {"title", NULL};
	const struct json *source = json_get(old, "source");
	struct str id = json_str(json_get(source, "file_id"));
	char inner[PARAM_PATH], at[PARAM_PATH];
	struct document *d;
	struct json_writer j;
	int r;

	if (!is_ours(id) || !str_is(json_str(json_get(source, "type")), "file"))
		return 0;
	param_join(inner, path, "source");
	param_join(at, inner, "file_id");
	r = need(w, id, image, at, &d);
	if (r < 0)
		return r;
	begin(w, &j, old);
	copy_members(&j, old, "source", title);
	write_source(&j, d);
	if (!image)
		write_name(&j, old, "title", &d->row);
	return end(w, &j, at);
}

/* ---- where they stand ---- */

static void index_path(const struct walk *w, char out[PARAM_PATH], const char *path, size_t i)
{
	if (w->in->speaks == DIALECT_ANTHROPIC)
		str_format(out, PARAM_PATH, "%s.%zu", path, i);
	else
		param_index(out, path, i);
}

static int do_part(struct walk *w, const struct json *part, const char *path)
{
	struct str type = json_str(json_get(part, "type"));
	char inner[PARAM_PATH];

	switch (w->in->speaks) {
	case DIALECT_OPENAI_RESPONSES:
		if (str_is(type, "input_file") || str_is(type, "input_image"))
			return write_openai(w, part, path, str_is(type, "input_image"));
		break;
	case DIALECT_OPENAI_CHAT:
		param_join(inner, path, "file");
		if (str_is(type, "file"))
			return write_openai(w, json_get(part, "file"), inner, false);
		break;
	case DIALECT_ANTHROPIC:
		if (str_is(type, "document") || str_is(type, "image"))
			return write_anthropic(w, part, path, str_is(type, "image"));
		break;
	case DIALECT_GEMINI:
	case DIALECT_SCRIPT:
		break;
	}
	return 0;
}

static int do_parts(struct walk *w, const struct json *list, const char *path, int below);

/* The lists of parts in a part of Anthropic's: the content of a tool's result, and that of a
 * document whose source is blocks. Its members come in the order of the body. */
static int do_inside(struct walk *w, const struct json *part, const char *path, int below)
{
	char inner[PARAM_PATH], deeper[PARAM_PATH];
	int r = 0;

	for (const struct json *m = json_first(part); m != NULL && r == 0; m = json_next(m)) {
		if (str_is(json_key(m), "content")) {
			param_join(inner, path, "content");
			r = do_parts(w, m, inner, below);
		} else if (str_is(json_key(m), "source")) {
			param_join(inner, path, "source");
			param_join(deeper, inner, "content");
			r = do_parts(w, json_get(m, "content"), deeper, below);
		}
	}
	return r;
}

/* The parts of a list, and those in their lists so many levels below. */
static int do_parts(struct walk *w, const struct json *list, const char *path, int below)
{
	char at[PARAM_PATH];
	size_t i = 0;
	int r = 0;

	if (!json_is(list, JSON_ARRAY))
		return 0;
	for (const struct json *part = json_first(list); part != NULL && r >= 0;
	        part = json_next(part)) {
		index_path(w, at, path, i++);
		r = do_part(w, part, at);
		if (r == 0 && below > 0 && json_is(part, JSON_OBJECT))
			r = do_inside(w, part, at, below - 1);
	}
	return r < 0 ? r : 0;
}

/* An element of the conversation. Its members come in the order of the body. */
static int do_element(struct walk *w, const struct json *element, const char *path)
{
	bool responses = w->in->speaks == DIALECT_OPENAI_RESPONSES;
	char inner[PARAM_PATH];
	int r = 0;

	if (!json_is(element, JSON_OBJECT))
		return 0;
	for (const struct json *m = json_first(element); m != NULL && r == 0; m = json_next(m)) {
		if (str_is(json_key(m), "content")) {
			param_join(inner, path, "content");
			/* A document of blocks may stand in a result of a tool. */
			r = do_parts(w, m, inner, w->in->speaks == DIALECT_ANTHROPIC ? 2 : 0);
		} else if (responses && str_is(json_key(m), "output")) {
			param_join(inner, path, "output");
			r = do_parts(w, m, inner, 0);
		}
	}
	return r;
}

static const char *name_of_list(const struct walk *w)
{
	return w->in->speaks == DIALECT_OPENAI_RESPONSES ? "input" : "messages";
}

static int do_conversation(struct walk *w, const struct json *root)
{
	const struct json *list = json_get(root, name_of_list(w));
	char path[PARAM_PATH];
	size_t i = 0;
	int r = 0;

	if (!json_is(list, JSON_ARRAY))
		return 0;
	for (const struct json *v = json_first(list); v != NULL && r == 0; v = json_next(v), i++) {
		if (i < w->in->n_history)
			str_copy(path, sizeof(path), str_of(name_of_list(w)));
		else
			index_path(w, path, name_of_list(w), i - w->in->n_history);
		r = do_element(w, v, path);
	}
	return r;
}

/* The rest of the body. All bodies together are bounded, and this one has grown, or is two. */
static int finish(struct walk *w, char **ret, size_t *ret_len)
{
	const struct documents_inline *in = w->in;
	size_t grown, counted = in->keeps_body ? 0 : w->body.n,
	              most = in->g->config->limits.in_flight_bytes;

	if (buf_append(&w->out, w->body.p + w->done, w->body.n - w->done) < 0)
		return full(w, &w->out, name_of_list(w));
	grown = w->out.len > counted ? w->out.len - counted : 0;
	*in->charged += grown;
	if (atomic_fetch_add(&in->g->history_bytes, grown) + grown > most) {
		error_set(w->err, ERR_UNAVAILABLE,
		        "The files of requests take all the memory there is for them: try later.");
		w->err->retry_after_ms = 1000;
		return -ERR_UNAVAILABLE;
	}
	*ret = buf_steal(&w->out, ret_len);
	return 1;
}

int documents_inline(const struct documents_inline *in, struct str body, char **ret,
        size_t *ret_len, struct error *err)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	struct walk *w;
	int r;

	if (!documents_inline_wanted(body))
		return 0;
	r = json_parse(body, TREE_MAX, &doc, err);
	if (r < 0)
		return r == -ERR_INVALID ? 0 : r; /* the api says what is wrong */
	w = mem_alloc(sizeof(*w));
	*w = (struct walk){.in = in, .body = body, .err = err};
	buf_init(&w->out, in->g->config->limits.body_bytes);
	r = do_conversation(w, json_root(doc));
	if (r == 0 && w->done > 0)
		r = finish(w, ret, ret_len);
	buf_free(&w->out);
	for (size_t i = 0; i < w->n_found; i++)
		buf_free(&w->found[i].content);
	free(w);
	return r;
}
