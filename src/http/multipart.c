/*
 * Theory of operation: a delimiter is CRLF, "--" and the boundary. A boundary holds no CR, so a
 * delimiter that turns out not to be one can begin anew only at a CR further on: `matched` alone,
 * the number of its bytes that the last bytes fed are, remembers what was held back, and the bytes
 * themselves are the delimiter's own.
 *
 *     START ──delimiter──▶ AFTER ──CRLF──▶ HEADERS ──empty line──▶ CONTENT ──delimiter──▶ AFTER
 *                            └────"--"──▶ CLOSED (nothing but one CRLF may follow)
 *
 * The first delimiter has no CRLF before it: START behaves as if one had been fed.
 */
#include "http/multipart.h"

#include "base/buf.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum state { START, AFTER, HEADERS, CONTENT, CLOSED };

#define TOKEN    "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define BOUNDARY "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'()+_,-./:=? "

struct multipart {
	struct multipart_handler h;
	enum state state;
	char delimiter[4 + MULTIPART_BOUNDARY_MAX];
	size_t delimiter_len;
	size_t matched; /* bytes of the delimiter that were fed last; of AFTER and CLOSED: of a pair
	                 */
	char pair;      /* the first byte behind a delimiter */
	struct buf headers;
	unsigned n_parts;
	uint64_t left; /* bytes that the part may still have */
	char name[65]; /* of the part, for errors */
	struct error failed;
};

/* ---- header values ---- */

static size_t token_len(struct str s)
{
	size_t n = 0;

	while (n < s.n && s.p[n] != 0 && strchr(TOKEN, s.p[n]) != NULL)
		n++;
	return n;
}

static void skip(struct str *s, size_t n)
{
	s->p += n;
	s->n -= n;
}

static void skip_blank(struct str *s)
{
	while (s->n > 0 && (s->p[0] == ' ' || s->p[0] == '\t'))
		skip(s, 1);
}

/* Takes a quoted string without its quotes, escapes as they stand. False: it has no end. */
static bool take_quoted(struct str *s, struct str *ret)
{
	size_t i = 1;

	while (i < s->n && s->p[i] != '"')
		i += s->p[i] == '\\' && i + 1 < s->n ? 2 : 1;
	if (i >= s->n)
		return false;
	*ret = (struct str){s->p + 1, i - 1};
	skip(s, i + 1);
	return true;
}

struct param {
	struct str name, value;
	bool quoted; /* value has its escapes */
};

/* The next `; name=value` of *s. 1: taken, 0: there is none, -1: malformed. */
static int take_param(struct str *s, struct param *ret)
{
	size_t n;

	skip_blank(s);
	if (s->n == 0)
		return 0;
	if (s->p[0] != ';')
		return -1;
	skip(s, 1);
	skip_blank(s);
	n = token_len(*s);
	ret->name = (struct str){s->p, n};
	if (n == 0 || n == s->n || s->p[n] != '=')
		return -1;
	skip(s, n + 1);
	ret->quoted = s->n > 0 && s->p[0] == '"';
	if (ret->quoted)
		return take_quoted(s, &ret->value) ? 1 : -1;
	n = token_len(*s);
	ret->value = (struct str){s->p, n};
	skip(s, n);
	return n > 0 ? 1 : -1;
}

/* Undoes what clients write for bytes that may not stand in quotes: backslashes before a quote or
 * backslash (curl, urllib3) and the three escapes of the URL standard (browsers). In place. */
static struct str unescape(char *p, size_t n)
{
	static const struct {
		const char *from;
		char to;
	} escapes[] = {{"\\\"", '"'}, {"\\\\", '\\'}, {"%22", '"'}, {"%0D", '\r'}, {"%0A", '\n'}};
	size_t in = 0, out = 0;

	while (in < n) {
		char c = p[in];
		size_t used = 1;

		for (size_t i = 0; i < sizeof(escapes) / sizeof(escapes[0]); i++) {
			struct str from = str_of(escapes[i].from);

			if (n - in < from.n || !str_ieq((struct str){p + in, from.n}, from))
				continue;
			c = escapes[i].to;
			used = from.n;
			break;
		}
		p[out++] = c;
		in += used;
	}
	return (struct str){p, out};
}

/* ---- the request's Content-Type ---- */

static int boundary_read(struct str type, char out[MULTIPART_BOUNDARY_MAX], size_t *ret_len)
{
	struct param p;
	int r;

	*ret_len = 0;
	while ((r = take_param(&type, &p)) > 0) {
		if (!str_ieq(p.name, STR("boundary")))
			continue;
		if (*ret_len > 0 || p.value.n > MULTIPART_BOUNDARY_MAX ||
		        !str_in_set(p.value, BOUNDARY) || p.value.p[p.value.n - 1] == ' ')
			return -1;
		*ret_len = p.value.n;
		memcpy(out, p.value.p, p.value.n);
	}
	return r < 0 || *ret_len == 0 ? -1 : 0;
}

int multipart_new(struct str content_type, const struct multipart_handler *h,
        struct multipart **ret, struct error *err)
{
	static const struct str form = {"multipart/form-data", 19};
	struct multipart *m;

	if (content_type.n < form.n || !str_ieq((struct str){content_type.p, form.n}, form) ||
	        (content_type.n > form.n && strchr("; \t", content_type.p[form.n]) == NULL))
		return error_set(err, ERR_MEDIA, "The body must be multipart/form-data.");
	skip(&content_type, form.n);
	m = mem_alloc(sizeof(*m));
	memcpy(m->delimiter, "\r\n--", 4);
	if (boundary_read(content_type, m->delimiter + 4, &m->delimiter_len) < 0) {
		free(m);
		return error_set(err, ERR_INVALID,
		        "The Content-Type of a multipart body needs one boundary of 1 to %d "
		        "characters.",
		        MULTIPART_BOUNDARY_MAX);
	}
	m->delimiter_len += 4;
	m->h = *h;
	m->matched = 2;
	buf_init(&m->headers, MULTIPART_HEADERS_MAX);
	*ret = m;
	return 0;
}

struct multipart *multipart_free(struct multipart *m)
{
	if (m == NULL)
		return NULL;
	buf_free(&m->headers);
	free(m);
	return NULL;
}

/* ---- a part's headers ---- */

#define refuse(m, ...) error_set(&(m)->failed, ERR_INVALID, __VA_ARGS__)

static int name_set(struct multipart *m, struct str *ret, const struct param *p)
{
	if (ret->p != NULL)
		return refuse(m, "A part of the multipart body has two names.");
	*ret = p->quoted ? unescape((char *)(uintptr_t)p->value.p, p->value.n) : p->value;
	if (ret->n > MULTIPART_NAME_MAX)
		return refuse(m, "A name in the multipart body is longer than %d bytes.",
		        MULTIPART_NAME_MAX);
	return 0;
}

static int disposition_read(struct multipart *m, struct str v, struct multipart_part *part)
{
	size_t n = token_len(v);
	struct param p;
	int r, failed = 0;

	if (part->name.p != NULL || !str_ieq((struct str){v.p, n}, STR("form-data")))
		return refuse(m, "A part of the multipart body needs one Content-Disposition, "
		                 "`form-data`.");
	skip(&v, n);
	while (failed == 0 && (r = take_param(&v, &p)) > 0) {
		if (str_ieq(p.name, STR("name")))
			failed = name_set(m, &part->name, &p);
		else if (str_ieq(p.name, STR("filename")))
			failed = name_set(m, &part->filename, &p);
		else if (str_ieq(p.name, STR("filename*")))
			failed = refuse(m, "multipart/form-data has no filename*: send the bytes "
			                   "of the name as filename.");
	}
	if (failed < 0)
		return failed;
	if (r < 0 || part->name.n == 0)
		return refuse(m, "A part of the multipart body has a malformed "
		                 "Content-Disposition or no name.");
	return 0;
}

static int header_read(struct multipart *m, struct str line, struct multipart_part *part)
{
	size_t n = token_len(line);
	struct str name = {line.p, n}, value;

	if (n == 0 || n == line.n || line.p[n] != ':')
		return refuse(m, "A part of the multipart body has a malformed header.");
	for (size_t i = n; i < line.n; i++)
		if ((unsigned char)line.p[i] < 0x20 ? line.p[i] != '\t' : line.p[i] == 0x7f)
			return refuse(m, "A header in the multipart body has a control character.");
	value = str_trim((struct str){line.p + n + 1, line.n - n - 1});
	if (str_ieq(name, STR("content-disposition")))
		return disposition_read(m, value, part);
	if (str_ieq(name, STR("content-type"))) {
		if (part->type.p != NULL)
			return refuse(m, "A part of the multipart body has two Content-Types.");
		if (value.n >= 10 && str_ieq((struct str){value.p, 10}, STR("multipart/")))
			return refuse(m, "A multipart body within a multipart body is not taken.");
		part->type = value;
	} else if (str_ieq(name, STR("content-transfer-encoding")) &&
	           !str_ieq(value, STR("binary")) && !str_ieq(value, STR("8bit")) &&
	           !str_ieq(value, STR("7bit"))) {
		return refuse(m, "The parts of a multipart body must be sent as they are, without "
		                 "a transfer encoding.");
	}
	return 0;
}

/* m->headers is whole: each line with its CRLF, the empty one too. */
static int part_begin(struct multipart *m)
{
	struct str rest = {m->headers.data, m->headers.len};
	struct multipart_part part = {.max = UINT64_MAX};
	int r;

	while (rest.n > 2) {
		const char *end = memmem(rest.p, rest.n, "\r\n", 2);
		size_t n = (size_t)(end - rest.p);

		r = header_read(m, (struct str){rest.p, n}, &part);
		if (r < 0)
			return r;
		skip(&rest, n + 2);
	}
	if (part.name.p == NULL)
		return refuse(m, "A part of the multipart body has no Content-Disposition.");
	if (part.filename.p == NULL)
		part.max = MULTIPART_FIELD_MAX;
	str_copy(m->name, sizeof(m->name), part.name);
	r = m->h.on_begin(m->h.ctx, &part, &m->failed);
	m->left = part.max;
	buf_free(&m->headers);
	m->state = CONTENT;
	/* The line that ends the headers is not the one that a delimiter begins with. */
	m->matched = 0;
	return r;
}

/* Takes bytes up to the empty line; whole is set when it has come. */
static int headers_take(struct multipart *m, const char *data, size_t n, size_t *ret_used)
{
	struct buf *b = &m->headers;
	size_t i = 0;

	while (i < n) {
		if (buf_putc(b, data[i++]) < 0)
			return refuse(m,
			        "The headers of a part of the multipart body are larger than %d "
			        "bytes.",
			        MULTIPART_HEADERS_MAX);
		if (data[i - 1] != '\n')
			continue;
		if (b->len < 2 || b->data[b->len - 2] != '\r')
			return refuse(m, "A line of the multipart body does not end in CRLF.");
		if (b->len == 2 || (b->len >= 4 && b->data[b->len - 4] == '\r' &&
		                           b->data[b->len - 3] == '\n')) {
			*ret_used = i;
			return part_begin(m);
		}
	}
	*ret_used = n;
	return 0;
}

/* ---- content ---- */

static int content_give(struct multipart *m, const char *p, size_t n)
{
	if (n == 0)
		return 0;
	if (n > m->left)
		return error_param(&m->failed, ERR_TOO_LARGE, m->name,
		        "A part of the multipart body is too large.");
	m->left -= n;
	return m->h.on_data(m->h.ctx, (struct str){p, n}, &m->failed);
}

static int delimiter_found(struct multipart *m)
{
	enum state before = m->state;

	m->matched = 0;
	m->state = AFTER;
	return before == CONTENT ? m->h.on_end(m->h.ctx, &m->failed) : 0;
}

/* Goes on with a delimiter that has begun. */
static int delimiter_go_on(struct multipart *m, const char *data, size_t n, size_t *ret_used)
{
	size_t want = m->delimiter_len - m->matched, i = 0;
	size_t held = m->matched;

	want = want < n ? want : n;
	while (i < want && data[i] == m->delimiter[held + i])
		i++;
	*ret_used = i;
	m->matched = held + i;
	if (m->matched == m->delimiter_len)
		return delimiter_found(m);
	if (i == want)
		return 0;
	m->matched = 0;
	return content_give(m, m->delimiter, held + i);
}

static int content_take(struct multipart *m, const char *data, size_t n, size_t *ret_used)
{
	const char *found, *cr;
	size_t tail;

	if (m->matched > 0)
		return delimiter_go_on(m, data, n, ret_used);
	found = memmem(data, n, m->delimiter, m->delimiter_len);
	if (found != NULL) {
		int r = content_give(m, data, (size_t)(found - data));

		*ret_used = (size_t)(found - data) + m->delimiter_len;
		return r < 0 ? r : delimiter_found(m);
	}
	/* The beginning of one may stand at the end: from its last CR on. */
	tail = n < m->delimiter_len ? n : m->delimiter_len - 1;
	cr = memrchr(data + n - tail, '\r', tail);
	tail = cr != NULL ? (size_t)(data + n - cr) : 0;
	if (tail > 0 && memcmp(cr, m->delimiter, tail) != 0)
		tail = 0;
	*ret_used = n;
	m->matched = tail;
	return content_give(m, data, n - tail);
}

/* The first delimiter, with or without a line end before it. */
static int start_take(struct multipart *m, const char *data, size_t n, size_t *ret_used)
{
	size_t i = 0;

	if (m->pair == 0 && data[0] == '\r')
		m->matched = 0;
	m->pair = data[0];
	while (i < n && m->matched < m->delimiter_len) {
		if (data[i++] != m->delimiter[m->matched++])
			return refuse(m, "The multipart body does not begin with its boundary.");
	}
	*ret_used = i;
	return m->matched == m->delimiter_len ? delimiter_found(m) : 0;
}

/* The two bytes behind a delimiter. */
static int after_take(struct multipart *m, char c)
{
	if (m->matched == 0) {
		m->pair = c;
		m->matched = 1;
		if (c == '\r' || c == '-')
			return 0;
	} else if (m->pair == '-' && c == '-') {
		m->matched = 0;
		m->state = CLOSED;
		return 0;
	} else if (m->pair == '\r' && c == '\n') {
		m->matched = 0;
		m->state = HEADERS;
		if (++m->n_parts <= MULTIPART_PARTS_MAX)
			return 0;
		return refuse(m, "A multipart body has at most %d parts.", MULTIPART_PARTS_MAX);
	}
	return refuse(m, "A boundary in the multipart body is followed by something else.");
}

static int closed_take(struct multipart *m, char c)
{
	if (m->matched < 2 && c == "\r\n"[m->matched++])
		return 0;
	return refuse(m, "Something follows the end of the multipart body.");
}

static int take(struct multipart *m, const char *data, size_t n, size_t *ret_used)
{
	*ret_used = 1;
	switch (m->state) {
	case START:
		return start_take(m, data, n, ret_used);
	case AFTER:
		return after_take(m, data[0]);
	case HEADERS:
		return headers_take(m, data, n, ret_used);
	case CONTENT:
		return content_take(m, data, n, ret_used);
	case CLOSED:
		break;
	}
	return closed_take(m, data[0]);
}

/* Keeps what a handler gave without a code from passing for success. */
static int give_failure(struct multipart *m, struct error *err)
{
	if (m->failed.code == 0)
		error_set(&m->failed, ERR_INTERNAL, "a part was refused without a reason");
	if (err != NULL)
		*err = m->failed;
	return -(int)m->failed.code;
}

int multipart_feed(struct multipart *m, const void *data, size_t n, struct error *err)
{
	const char *p = data;
	size_t used;

	if (m->failed.code != 0)
		return give_failure(m, err);
	for (; n > 0; p += used, n -= used)
		if (take(m, p, n, &used) < 0)
			return give_failure(m, err);
	return 0;
}

int multipart_finish(struct multipart *m, struct error *err)
{
	if (m->failed.code != 0)
		return give_failure(m, err);
	if (m->state == CLOSED && m->matched != 1)
		return 0;
	refuse(m, "The multipart body ends before its last boundary.");
	return give_failure(m, err);
}
