/*
 * Images and files as content blocks.
 *
 * Images: a web address, or the data of one of the four types that the API reads. Files: PDF by
 * address or data; text as text; nothing else. Audio: not at all. What cannot be sent is an error
 * that says so, since leaving it out would let the model answer about what it has not seen.
 */
#include "provider/anthropic.h"

#define TEXT_MAX ((size_t)32 << 20)

bool anthropic_says_something(struct str text)
{
	for (size_t i = 0; i < text.n; i++)
		if (!memchr(" \t\r\n", text.p[i], 4))
			return true;
	return false;
}

/* "data:TYPE[;x=y]*[;base64],DATA". False: it is no such address. */
static bool split_data_url(struct str url, struct str *ret_type, bool *ret_base64, struct str *ret)
{
	const char *comma = url.n ? memchr(url.p, ',', url.n) : NULL;
	const char *semicolon;
	struct str head;

	if (!comma || url.n < 5 || !str_ieq((struct str){url.p, 5}, STR("data:")))
		return false;
	head = (struct str){url.p + 5, (size_t)(comma - url.p) - 5};
	*ret = (struct str){comma + 1, url.n - (size_t)(comma + 1 - url.p)};
	*ret_base64 = str_ends(head, ";base64");
	semicolon = head.n ? memchr(head.p, ';', head.n) : NULL;
	*ret_type = semicolon ? (struct str){head.p, (size_t)(semicolon - head.p)} : head;
	return true;
}

static bool is_web(struct str url)
{
	return str_starts(url, "https://") || str_starts(url, "http://");
}

static void write_source(struct json_writer *w, const char *type, const char *media_type,
        const char *key, struct str v)
{
	jw_key(w, "source");
	jw_object(w);
	jw_kcstr(w, "type", type);
	if (media_type)
		jw_kcstr(w, "media_type", media_type);
	jw_kstr(w, key, v);
	jw_end(w);
}

static int write_image(struct json_writer *w, const struct part *p, struct error *err)
{
	static const char *const types[] = {"image/jpeg", "image/png", "image/gif", "image/webp"};
	const char *known = NULL;
	struct str type, data;
	bool base64;

	jw_object(w);
	jw_kcstr(w, "type", "image");
	if (is_web(p->url)) {
		write_source(w, "url", NULL, "url", p->url);
		jw_end(w);
		return 0;
	}
	if (split_data_url(p->url, &type, &base64, &data) && base64) {
		if (str_ieq(type, STR("image/jpg")))
			type = STR("image/jpeg");
		for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
			if (str_ieq(type, str_of(types[i])))
				known = types[i];
	}
	if (!known)
		return error_param(err, ERR_UNSUPPORTED, "input",
		        "this provider takes an image as a web address, or as base64 data of type "
		        "image/jpeg, image/png, image/gif or image/webp");
	write_source(w, "base64", known, "data", data);
	jw_end(w);
	return 0;
}

static int digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

/* Both alphabets, with or without padding; space is skipped. */
static bool decode_base64(struct str s, struct buf *out)
{
	uint32_t bits = 0;
	int n = 0;

	while (s.n && s.p[s.n - 1] == '=')
		s.n--;
	for (size_t i = 0; i < s.n; i++) {
		int d = digit(s.p[i]);

		if (memchr(" \t\r\n", s.p[i], 4))
			continue;
		if (d < 0)
			return false;
		bits = bits << 6 | (uint32_t)d;
		n += 6;
		if (n >= 8) {
			n -= 8;
			buf_putc(out, (char)(bits >> n & 0xff));
		}
	}
	return buf_error(out) == 0;
}

static int write_text_document(
        struct json_writer *w, struct str data, bool base64, struct error *err)
{
	struct buf text _cleanup_buf_ = BUF_INIT(TEXT_MAX);

	if (base64 && !decode_base64(data, &text))
		return error_param(err, ERR_INVALID, "input", "a file's data is not valid base64");
	write_source(w, "text", "text/plain", "data",
	        base64 ? (struct str){buf_cstr(&text), text.len} : data);
	return 0;
}

/* What the API can read as text. */
static bool is_textual(struct str type)
{
	static const char *const types[] = {"application/json", "application/xml",
	        "application/yaml", "application/x-yaml", "application/javascript",
	        "application/sql"};

	if (str_starts(type, "text/"))
		return true;
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (str_ieq(type, str_of(types[i])))
			return true;
	return false;
}

/* Data without a type: by its first bytes ("%PDF-"), else by the name. */
static struct str guess_type(const struct part *p)
{
	static const char *const names[] = {".txt", ".md", ".csv", ".json", ".xml", ".yaml", ".yml",
	        ".html", ".log", ".py", ".c", ".h", ".js", ".ts", ".sql", ".sh"};

	if (str_starts(p->data, "JVBERi0"))
		return STR("application/pdf");
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (str_ends(p->filename, names[i]))
			return STR("text/plain");
	return (struct str){NULL, 0};
}

static int write_document_source(struct json_writer *w, const struct part *p, struct error *err)
{
	struct str type, data = p->data;
	bool base64 = true;

	if (!data.n && is_web(p->url)) {
		write_source(w, "url", NULL, "url", p->url);
		return 0;
	}
	if (!split_data_url(data.n ? data : p->url, &type, &base64, &data))
		type = guess_type(p);
	if (base64 && str_ieq(type, STR("application/pdf"))) {
		write_source(w, "base64", "application/pdf", "data", data);
		return 0;
	}
	if (is_textual(type))
		return write_text_document(w, data, base64, err);
	return error_param(
	        err, ERR_UNSUPPORTED, "input", "this provider reads PDF and text files only");
}

static int write_file(struct json_writer *w, const struct part *p, struct error *err)
{
	int r;

	jw_object(w);
	jw_kcstr(w, "type", "document");
	r = write_document_source(w, p, err);
	if (r < 0)
		return r;
	if (p->filename.n)
		jw_kstr(w, "title", p->filename);
	jw_end(w);
	return 0;
}

int anthropic_attachment_write(struct json_writer *w, const struct part *p, struct error *err)
{
	switch (p->type) {
	case PART_IMAGE:
		return write_image(w, p, err);
	case PART_FILE:
		return write_file(w, p, err);
	case PART_AUDIO:
		return error_param(err, ERR_UNSUPPORTED, "input", "this provider takes no audio");
	case PART_TEXT:
	case PART_REFUSAL:
	case PART_SUMMARY:
	case PART_REASONING:
		break;
	}
	return 0;
}
