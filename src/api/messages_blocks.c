/*
 * Blocks that hold content: text, images, documents and search results, on the client's side or
 * inside a tool's result. Each keeps its own JSON (part.raw), which an Anthropic provider gets back
 * as it came; what stands in the part beside it is for the others. A document of text, or of blocks
 * of text, is text to them; a block that only Anthropic can resolve (a file's id) is a file without
 * content, which they refuse by name.
 */
#include "api/messages.h"

#include <stdlib.h>

enum { PARTS_MAX = 100000 };

/* "data:TYPE;base64,DATA": the form in which other dialects carry bytes. */
static int data_url(struct messages_parser *p, const struct json *source, const char *path,
        const char *usual, struct str *ret)
{
	struct str type, data;
	struct buf text;
	bool ok = true;
	int rc = param_str(&p->in, source, path, "media_type", 128, &type);

	if (!rc)
		rc = param_need_str(&p->in, source, path, "data", &data);
	if (!rc && !type.p && !usual)
		rc = param_fail_missing(&p->in, path, "media_type");
	if (rc)
		return rc;
	if (!type.p)
		type = str_of(usual);
	buf_init(&text, data.n + type.n + 64);
	buf_puts(&text, "data:");
	buf_append(&text, type.p, type.n);
	buf_puts(&text, ";base64,");
	buf_append(&text, data.p, data.n);
	*ret = conversation_copy(p->conversation, (struct str){text.data, text.len}, &ok);
	if (buf_error(&text))
		ok = false;
	buf_free(&text);
	return ok ? 0 : param_fail_memory(&p->in);
}

static int source_of(struct messages_parser *p, const struct json *v, const char *path,
        char ret_path[PARAM_PATH], const struct json **ret, struct str *ret_type)
{
	int rc = param_need_container(&p->in, v, path, "source", JSON_OBJECT, ret);

	param_join(ret_path, path, "source");
	return rc ? rc : param_need_str(&p->in, *ret, ret_path, "type", ret_type);
}

static int fail_source(
        struct messages_parser *p, const char *path, struct str type, const char *known)
{
	return param_fail(&p->in, ERR_INVALID, "invalid_value", path, "type",
	        "Input tag '%s' found using 'type' does not match any of the expected tags: %s",
	        param_show(type).text, known);
}

int messages_only_here(struct messages_parser *p, const char *path, const char *why)
{
	if (p->only_here)
		return 0;
	p->only_here = arena_alloc(p->conversation->arena, sizeof(*p->only_here));
	if (!p->only_here)
		return param_fail_memory(&p->in);
	error_param(p->only_here, ERR_UNSUPPORTED, path, "%s: %s", path, why);
	return 0;
}

/* A file that is stored elsewhere (the ids of ours are replaced by their content before this): its
 * id is in raw, and only its own provider knows it. */
static int file_source(struct messages_parser *p, const struct json *source, const char *path)
{
	struct str id;
	int rc = param_need_str(&p->in, source, path, "file_id", &id);

	return rc ? rc
	          : messages_only_here(p, path,
	                    "a stored file is known to its own provider alone: upload it here with "
	                    "POST /files, or send its content.");
}

static int part_image(
        struct messages_parser *p, const struct json *v, const char *path, struct part *part)
{
	const struct json *source;
	char inner[PARAM_PATH];
	struct str type;
	int rc = source_of(p, v, path, inner, &source, &type);

	part->type = PART_IMAGE;
	if (rc)
		return rc;
	if (str_is(type, "base64"))
		return data_url(p, source, inner, NULL, &part->url);
	if (str_is(type, "url"))
		return param_need_str(&p->in, source, inner, "url", &part->url);
	if (!str_is(type, "file"))
		return fail_source(p, inner, type, "'base64', 'url', 'file'");
	part->type = PART_FILE;
	return file_source(p, source, inner);
}

/* Appends the texts of blocks, one to a line. */
static void gather_text(const struct json *blocks, struct buf *out)
{
	for (const struct json *b = json_first(blocks); b; b = json_next(b)) {
		struct str text = json_str(json_get(b, "text"));

		if (text.n == 0)
			continue;
		if (out->len > 0)
			buf_putc(out, '\n');
		buf_append(out, text.p, text.n);
	}
}

/* Text with a heading of what is known of it. */
static int text_under(struct messages_parser *p, const struct json *v, const char *const *heads,
        const struct json *content, struct part *part)
{
	struct buf text, body;
	bool ok = true;

	buf_init(&text, p->in.body.n + 1024);
	buf_init(&body, p->in.body.n + 1024);
	for (; *heads; heads++) {
		struct str head = json_str(json_get(v, *heads));

		buf_append(&text, head.p, head.n);
		if (head.n > 0)
			buf_putc(&text, '\n');
	}
	if (json_is(content, JSON_STRING))
		buf_append(&body, json_str(content).p, json_str(content).n);
	else
		gather_text(content, &body);
	if (text.len > 0)
		buf_putc(&text, '\n');
	buf_append(&text, body.data, body.len);
	part->type = PART_TEXT;
	part->text =
	        conversation_copy(p->conversation, (struct str){buf_cstr(&text), text.len}, &ok);
	if (buf_error(&text) || buf_error(&body))
		ok = false;
	buf_free(&text);
	buf_free(&body);
	return ok ? 0 : param_fail_memory(&p->in);
}

static int part_document(
        struct messages_parser *p, const struct json *v, const char *path, struct part *part)
{
	static const char *const heads[] = {"title", "context", NULL};
	const struct json *source, *content;
	char inner[PARAM_PATH];
	struct str type, data;
	int rc = source_of(p, v, path, inner, &source, &type);

	part->type = PART_FILE;
	if (!rc)
		rc = param_str(&p->in, v, path, "title", 0, &part->filename);
	if (rc)
		return rc;
	if (str_is(type, "base64"))
		return data_url(p, source, inner, "application/pdf", &part->data);
	if (str_is(type, "url"))
		return param_need_str(&p->in, source, inner, "url", &part->url);
	if (str_is(type, "file"))
		return file_source(p, source, inner);
	if (str_is(type, "text")) {
		rc = param_need_str(&p->in, source, inner, "data", &data);
		return rc ? rc : text_under(p, v, heads, json_get(source, "data"), part);
	}
	if (!str_is(type, "content"))
		return fail_source(p, inner, type, "'base64', 'text', 'content', 'url', 'file'");
	content = json_get(source, "content");
	if (!json_is(content, JSON_STRING) && !json_is(content, JSON_ARRAY))
		return param_fail_type(
		        &p->in, content, inner, "content", "a string or an array of blocks");
	return text_under(p, v, heads, content, part);
}

static int part_search(
        struct messages_parser *p, const struct json *v, const char *path, struct part *part)
{
	static const char *const heads[] = {"title", "source", NULL};
	const struct json *content;
	int rc = param_need_container(&p->in, v, path, "content", JSON_ARRAY, &content);

	return rc ? rc : text_under(p, v, heads, content, part);
}

static int part_text(
        struct messages_parser *p, const struct json *v, const char *path, struct part *part)
{
	part->type = PART_TEXT;
	return param_need_str(&p->in, v, path, "text", &part->text);
}

/* A client's tool search found these tools. */
static int part_reference(
        struct messages_parser *p, const struct json *v, const char *path, struct part *part)
{
	part->type = PART_TEXT;
	return param_need_str(&p->in, v, path, "tool_name", &part->text);
}

static const struct {
	const char *type;
	int (*parse)(struct messages_parser *p, const struct json *v, const char *path,
	        struct part *part);
} part_rules[] = {
        {"text", part_text},
        {"image", part_image},
        {"document", part_document},
        {"search_result", part_search},
        {"tool_reference", part_reference},
};

int messages_part_parse(struct messages_parser *p, const struct json *v, const char *path,
        struct str type, struct part *part, bool *ret_known)
{
	part->raw = json_raw(v);
	*ret_known = true;
	for (size_t i = 0; i < sizeof(part_rules) / sizeof(*part_rules); i++)
		if (str_is(type, part_rules[i].type))
			return part_rules[i].parse(p, v, path, part);
	*ret_known = false;
	return 0;
}

int messages_part_other(
        struct messages_parser *p, const char *path, struct str type, struct part *part)
{
	char why[160];

	part->type = PART_FILE; /* without content, but for raw */
	str_format(why, sizeof(why), "this provider knows no block of type '%s'.",
	        param_show(type).text);
	return messages_only_here(p, path, why);
}

int messages_content_parse(struct messages_parser *p, const struct json *v, const char *path,
        struct part **ret, size_t *ret_n)
{
	char inner[PARAM_PATH];
	struct str type;
	bool known;
	size_t n = json_is(v, JSON_STRING) ? 1 : json_count(v), i = 0;
	int rc = 0;

	if (!json_is(v, JSON_STRING) && !json_is(v, JSON_ARRAY))
		return param_fail_type(&p->in, v, path, NULL, "a string or an array of blocks");
	if (n > PARTS_MAX)
		return param_fail(&p->in, ERR_INVALID, "invalid_value", path, NULL,
		        "at most %d blocks.", PARTS_MAX);
	*ret = conversation_parts(p->conversation, n ? n : 1);
	*ret_n = n;
	if (!*ret)
		return param_fail_memory(&p->in);
	if (json_is(v, JSON_STRING))
		return param_keep(&p->in, v, &(*ret)[0].text);
	for (v = json_first(v); v && !rc; v = json_next(v), i++) {
		messages_index(inner, path, i);
		if (!json_is(v, JSON_OBJECT))
			return param_fail_type(&p->in, v, inner, NULL, "an object");
		rc = param_need_str(&p->in, v, inner, "type", &type);
		if (!rc)
			rc = messages_part_parse(p, v, inner, type, &(*ret)[i], &known);
		if (!rc && !known)
			rc = messages_part_other(p, inner, type, &(*ret)[i]);
	}
	return rc;
}
