/*
 * Theory of operation. A magic number at the beginning decides, where there is one. Office
 * documents are zip archives: the name of an entry tells which, so every local header that goes by
 * is looked at (the first entries are often others). All else is text or nothing: each byte is
 * checked to be UTF-8 as it comes, and the first SNIFF_SAMPLE bytes tell what sort of text it is.
 */
#include "gateway/documents_sniff.h"

#include "base/utf8.h"
#include "json/json.h"

#define OFFICE "application/vnd.openxmlformats-officedocument."

static const struct kind {
	const char *magic;
	size_t n;
	const char *at8; /* these four bytes at offset 8; NULL: any */
	const char *type;
} kinds[] = {
        {"%PDF-", 5, NULL, "application/pdf"},
        {"\x89PNG\r\n\x1a\n", 8, NULL, "image/png"},
        {"\xff\xd8\xff", 3, NULL, "image/jpeg"},
        {"GIF87a", 6, NULL, "image/gif"},
        {"GIF89a", 6, NULL, "image/gif"},
        {"RIFF", 4, "WEBP", "image/webp"},
        {"RIFF", 4, "WAVE", "audio/wav"},
        {"fLaC", 4, NULL, "audio/flac"},
        {"OggS", 4, NULL, "audio/ogg"},
        {"ID3", 3, NULL, "audio/mpeg"},
};

static const struct {
	const char *type, *extension;
} extensions[] = {
        {"application/pdf", "pdf"},
        {"image/png", "png"},
        {"image/jpeg", "jpg"},
        {"image/gif", "gif"},
        {"image/webp", "webp"},
        {"audio/wav", "wav"},
        {"audio/flac", "flac"},
        {"audio/ogg", "ogg"},
        {"audio/mpeg", "mp3"},
        {OFFICE "wordprocessingml.document", "docx"},
        {OFFICE "spreadsheetml.sheet", "xlsx"},
        {OFFICE "presentationml.presentation", "pptx"},
        {"application/json", "json"},
        {"application/x-ndjson", "jsonl"},
        {"text/csv", "csv"},
        {"text/markdown", "md"},
        {"text/plain", "txt"},
};

const char *documents_sniff_extension(const char *type)
{
	for (size_t i = 0; i < sizeof(extensions) / sizeof(extensions[0]); i++)
		if (strcmp(extensions[i].type, type) == 0)
			return extensions[i].extension;
	return NULL;
}

/* ---- while it streams by ---- */

#define ZIP_LOCAL "PK\x03\x04"
#define ZIP_NAME  30 /* where an entry's name begins */

static void look_at_entry(struct sniff *s)
{
	struct str name = {s->window + ZIP_NAME, SNIFF_ENTRY - ZIP_NAME};

	if (str_starts(name, "word"))
		s->office = OFFICE "wordprocessingml.document";
	else if (str_starts(name, "ppt/"))
		s->office = OFFICE "presentationml.presentation";
	else if (str_starts(name, "xl/"))
		s->office = OFFICE "spreadsheetml.sheet";
}

/* The window holds what may be the beginning of an entry's header. */
static void feed_zip(struct sniff *s, struct str bytes)
{
	for (size_t i = 0; i < bytes.n && s->office == NULL;) {
		if (s->n_window == 0) {
			const char *p = memchr(bytes.p + i, 'P', bytes.n - i);

			if (p == NULL)
				return;
			i = (size_t)(p - bytes.p);
		}
		s->window[s->n_window++] = bytes.p[i++];
		if (s->n_window <= 4 && s->window[s->n_window - 1] != ZIP_LOCAL[s->n_window - 1]) {
			/* "PP": the second may be the one. */
			s->n_window = s->window[s->n_window - 1] == 'P';
			s->window[0] = 'P';
		} else if (s->n_window == SNIFF_ENTRY) {
			look_at_entry(s);
			s->n_window = 0;
		}
	}
}

/* A character that was cut by the end of the last piece. Returns how many bytes it takes. */
static size_t feed_carry(struct sniff *s, struct str bytes)
{
	size_t used = 0;

	while (s->n_carry > 0 && used < bytes.n && !s->binary) {
		s->carry[s->n_carry++] = bytes.p[used++];
		if (utf8_char_len(s->carry, s->n_carry) > 0)
			s->n_carry = 0;
		else if (s->n_carry == sizeof(s->carry) ||
		         utf8_incomplete_tail(s->carry, s->n_carry) != s->n_carry)
			s->binary = true;
	}
	return used;
}

static void feed_text(struct sniff *s, struct str bytes)
{
	size_t used = feed_carry(s, bytes), tail;

	bytes = (struct str){bytes.p + used, bytes.n - used};
	if (s->binary || bytes.n == 0)
		return;
	tail = utf8_incomplete_tail(bytes.p, bytes.n);
	s->binary = memchr(bytes.p, 0, bytes.n) != NULL || !utf8_valid(bytes.p, bytes.n - tail);
	memcpy(s->carry, bytes.p + bytes.n - tail, tail);
	s->n_carry = tail;
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

void documents_sniff_feed(struct sniff *s, struct str bytes)
{
	size_t n = bytes.n < SNIFF_SAMPLE - s->n_sample ? bytes.n : SNIFF_SAMPLE - s->n_sample;

	memcpy(s->sample + s->n_sample, bytes.p, n);
	s->n_sample += n;
	s->size += bytes.n;
	for (size_t i = bytes.n; i > 0; i--)
		if (!is_space(bytes.p[i - 1])) {
			s->last = bytes.p[i - 1];
			break;
		}
	if (!s->binary)
		feed_text(s, bytes);
	if (s->office == NULL && s->n_sample > 0 &&
	        memcmp(s->sample, ZIP_LOCAL, s->n_sample < 4 ? s->n_sample : 4) == 0)
		feed_zip(s, bytes);
}

/* ---- what sort of text ---- */

static int no_event(void *ctx, const struct json_event *e)
{
	(void)ctx;
	(void)e;
	return 0;
}

static bool is_json(struct str text)
{
	text = str_trim(text);
	return text.n > 1 && (text.p[0] == '{' || text.p[0] == '[') &&
	       json_read(text, no_event, NULL, NULL) == 0;
}

/* Takes the next line off, without its end; false: there is none that is whole. */
static bool next_line(struct str *rest, bool all, struct str *ret)
{
	const char *end = rest->n > 0 ? memchr(rest->p, '\n', rest->n) : NULL;
	size_t n = end != NULL ? (size_t)(end - rest->p) : rest->n;

	if (rest->n == 0 || (end == NULL && !all))
		return false;
	*ret = (struct str){rest->p, n};
	if (ret->n > 0 && ret->p[ret->n - 1] == '\r')
		ret->n--;
	n += end != NULL;
	*rest = (struct str){rest->p + n, rest->n - n};
	return true;
}

/* Two lines or more, each a JSON object or array of its own. */
static bool is_json_lines(struct str text, bool all)
{
	struct str line;
	size_t n = 0;

	while (next_line(&text, all, &line)) {
		if (str_trim(line).n == 0)
			continue;
		if (!is_json(line))
			return false;
		n++;
	}
	return n >= 2;
}

/* Commas outside of quotes; -1: a quote is still open at the end of the line. *bare: one of them
 * has no space behind it, as none in a sentence would. */
static int count_commas(struct str line, bool *bare)
{
	bool quoted = false;
	int n = 0;

	for (size_t i = 0; i < line.n; i++) {
		quoted ^= line.p[i] == '"';
		if (line.p[i] != ',' || quoted)
			continue;
		*bare |= i + 1 == line.n || line.p[i + 1] != ' ';
		n++;
	}
	return quoted ? -1 : n;
}

/* Two lines or more, all with as many commas. */
static bool is_csv(struct str text, bool all)
{
	bool bare = false;
	struct str line;
	int columns = 0;
	size_t n = 0;

	while (n < 50 && next_line(&text, all, &line)) {
		int here = count_commas(line, &bare);

		if (here < 1 || (n > 0 && here != columns))
			return false;
		columns = here;
		n++;
	}
	return n >= 2 && bare;
}

static bool is_heading(struct str line)
{
	size_t n = 0;

	while (n < line.n && line.p[n] == '#')
		n++;
	return n >= 1 && n <= 6 && n + 1 < line.n && line.p[n] == ' ';
}

/* A heading with an empty line behind it, a fenced block, or a link. A comment of a script looks
 * like a heading, but rarely stands alone. */
static bool is_markdown(struct str text, bool all)
{
	struct str line;
	bool heading = false;
	size_t fences = 0;

	if (str_starts(text, "#!"))
		return false;
	while (next_line(&text, all, &line)) {
		if (heading && str_trim(line).n == 0)
			return true;
		heading = is_heading(line);
		fences += str_starts(line, "```");
		for (size_t i = 0; i + 6 < line.n; i++)
			if (memcmp(line.p + i, "](http", 6) == 0)
				return true;
	}
	return fences >= 2 || heading;
}

static const char *text_type(const struct sniff *s)
{
	struct str text = {s->sample, s->n_sample};
	bool all = s->size == s->n_sample;

	if (str_starts(text, "\xef\xbb\xbf"))
		text = (struct str){text.p + 3, text.n - 3};
	while (text.n > 0 && is_space(text.p[0]))
		text = (struct str){text.p + 1, text.n - 1};
	if (text.n > 0 && (text.p[0] == '{' || text.p[0] == '[')) {
		struct str whole = text;

		while (whole.n > 0 && is_space(whole.p[whole.n - 1]))
			whole.n--;
		if (all && is_json(whole))
			return "application/json";
		if (is_json_lines(text, all))
			return "application/x-ndjson";
		/* Too long to be read here: that it ends as it began must do. */
		if (!all && s->last == (text.p[0] == '{' ? '}' : ']'))
			return "application/json";
	}
	if (is_csv(text, all))
		return "text/csv";
	return is_markdown(text, all) ? "text/markdown" : "text/plain";
}

/* An MPEG frame's head: eleven set bits, version and layer (III) that exist, a bit rate. */
static bool is_mpeg_frame(const struct sniff *s)
{
	const unsigned char *p = (const unsigned char *)s->sample;

	return s->n_sample >= 4 && p[0] == 0xff && (p[1] & 0xe6) == 0xe2 && (p[1] & 0x18) != 0x08 &&
	       (p[2] & 0xf0) != 0xf0 && (p[2] & 0xf0) != 0 && (p[2] & 0x0c) != 0x0c;
}

const char *documents_sniff_type(const struct sniff *s)
{
	if (s->size == 0)
		return NULL;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (s->n_sample >= kinds[i].n &&
		        memcmp(s->sample, kinds[i].magic, kinds[i].n) == 0 &&
		        (kinds[i].at8 == NULL ||
		                (s->n_sample >= 12 && memcmp(s->sample + 8, kinds[i].at8, 4) == 0)))
			return kinds[i].type;
	if (s->office != NULL)
		return s->office;
	if (is_mpeg_frame(s))
		return "audio/mpeg";
	return s->binary || s->n_carry > 0 ? NULL : text_type(s);
}
