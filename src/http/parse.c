/*
 * Theory of operation: both parsers are state machines that look at each byte once, so a head sent
 * in single bytes costs the same as one sent whole. A wrong byte is refused where it stands and not
 * when the line ends. Field lines have one machine for headers and trailers (field_step), which
 * reports what happened at a byte; the head records positions from that, the chunk parser only
 * counts.
 *
 * What needs the whole head (lengths, Host, codings) is judged once, at its last line feed.
 */
#include "http/parse.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
	METHOD_MAX = 32,
	VERSION_LEN = 8,       /* "HTTP/1.1" */
	CHUNK_DIGITS_MAX = 15, /* so a size never overflows */
	CHUNK_LINE_MAX = 1024, /* extension bytes of one chunk */
	CHUNK_EXT_MAX =
	        16384, /* and of a body: each would be paid for by us and count as nothing */
	CHUNK_TRAILER_MAX = 8192, /* bytes of all trailers */
};

enum head_state {
	HEAD_START,
	HEAD_EMPTY_LF, /* one empty line before a request is allowed (RFC 9112, 2.2) */
	HEAD_START_AGAIN,
	HEAD_METHOD,
	HEAD_TARGET,
	HEAD_VERSION,
	HEAD_LINE_LF,
	HEAD_FIELDS,
	HEAD_DONE,
};

enum field_state { FIELD_START, FIELD_NAME, FIELD_VALUE, FIELD_VALUE_LF, FIELD_LAST_LF };

enum field_step {
	STEP_NONE,
	STEP_NAME,  /* this byte is a name's first */
	STEP_COLON, /* the name ended before this byte */
	STEP_LINE,  /* the value ended before this byte, a CR */
	STEP_LAST,  /* this byte ended the last, empty line */
	STEP_BAD,
};

static const char text_cr[] = "A carriage return that no line feed follows is not allowed.";
static const char text_lf[] = "A line must end in carriage return and line feed.";
static const char text_control[] = "A control character is not allowed in a request head.";
static const char text_large[] = "The request line and headers are too large.";
static const char text_chunk[] = "The chunked body is malformed.";

/* RFC 9110, 5.6.2 */
static bool is_token_char(unsigned char c)
{
	if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
		return true;
	return c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

/* RFC 9110, 5.5: visible, space, tab and obs-text. */
static bool is_value_char(unsigned char c)
{
	return (c >= 0x20 && c != 0x7f) || c == '\t';
}

/* What a URI may hold unescaped, with the square brackets that clients leave in queries. */
static bool is_target_char(unsigned char c)
{
	return c > 0x20 && c < 0x7f && strchr("\"#<>\\^`{|}", c) == NULL;
}

static int refuse(int status, const char **ret_text, const char *text)
{
	*ret_text = text;
	return -status;
}

static enum field_step field_step(uint8_t *state, unsigned char c, const char **ret_text)
{
	switch ((enum field_state) * state) {
	case FIELD_START:
		if (is_token_char(c)) {
			*state = FIELD_NAME;
			return STEP_NAME;
		}
		if (c == '\r') {
			*state = FIELD_LAST_LF;
			return STEP_NONE;
		}
		if (c == '\n')
			*ret_text = text_lf;
		else if (c == ' ' || c == '\t')
			*ret_text = "A header that goes on over several lines is not allowed.";
		else
			*ret_text = "A header's name is malformed.";
		return STEP_BAD;
	case FIELD_NAME:
		if (is_token_char(c))
			return STEP_NONE;
		if (c == ':') {
			*state = FIELD_VALUE;
			return STEP_COLON;
		}
		*ret_text = c == ' ' || c == '\t' ? "White space between a header's name and its "
		                                    "colon is not allowed."
		                                  : "A header's name is malformed.";
		return STEP_BAD;
	case FIELD_VALUE:
		if (is_value_char(c))
			return STEP_NONE;
		if (c == '\r') {
			*state = FIELD_VALUE_LF;
			return STEP_LINE;
		}
		*ret_text = c == '\n' ? text_lf : text_control;
		return STEP_BAD;
	case FIELD_VALUE_LF:
		if (c == '\n') {
			*state = FIELD_START;
			return STEP_NONE;
		}
		*ret_text = text_cr;
		return STEP_BAD;
	case FIELD_LAST_LF:
		if (c == '\n')
			return STEP_LAST;
		*ret_text = text_cr;
		return STEP_BAD;
	}
	*ret_text = text_control;
	return STEP_BAD;
}

/* ---- the head ---- */

void http_parse_head_init(struct http_parse_head *h, size_t max_bytes, size_t max_fields)
{
	memset(h, 0, sizeof(*h));
	/* Positions are 32 bits wide. */
	buf_init(&h->bytes, max_bytes < UINT32_MAX / 2 ? max_bytes : UINT32_MAX / 2);
	h->max_fields = max_fields;
}

void http_parse_head_free(struct http_parse_head *h)
{
	buf_free(&h->bytes);
	free(steal(h->fields));
	h->n_fields = h->cap_fields = 0;
	h->method_len = h->target_len = h->path_len = h->query_len = 0;
}

struct str http_parse_head_str(const struct http_parse_head *h, uint32_t at, uint32_t len)
{
	if (!h->bytes.data)
		return (struct str){NULL, 0};
	return (struct str){h->bytes.data + at, len};
}

static struct str field_name(const struct http_parse_head *h, size_t i)
{
	return http_parse_head_str(h, h->fields[i].name, h->fields[i].name_len);
}

static struct str field_value(const struct http_parse_head *h, size_t i)
{
	return http_parse_head_str(h, h->fields[i].value, h->fields[i].value_len);
}

struct str http_parse_head_field(const struct http_parse_head *h, const char *name)
{
	size_t i;

	for (i = 0; i < h->n_fields; i++)
		if (str_ieq(field_name(h, i), str_of(name)))
			return field_value(h, i);
	return (struct str){NULL, 0};
}

size_t http_parse_head_count(const struct http_parse_head *h, const char *name)
{
	size_t i, n = 0;

	for (i = 0; i < h->n_fields; i++)
		n += str_ieq(field_name(h, i), str_of(name));
	return n;
}

/* host [":" port], RFC 3986, 3.2.2 and 3.2.3; user information and an empty host are refused. */
static bool host_valid(struct str s)
{
	size_t i = 0;

	if (s.n > 0 && s.p[0] == '[') {
		for (i = 1; i < s.n && s.p[i] != ']'; i++)
			if (!strchr("0123456789abcdefABCDEF:.v", s.p[i]))
				return false;
		if (i == s.n || i == 1)
			return false;
		i++;
	} else {
		while (i < s.n && s.p[i] != ':') {
			unsigned char c = (unsigned char)s.p[i];

			if (c >= 0x7f || c == 0 || (strchr("\"#/<>?@[\\]^`{|}", c) || c <= 0x20))
				return false;
			i++;
		}
		if (i == 0)
			return false;
	}
	if (i == s.n)
		return true;
	if (s.p[i] != ':')
		return false;
	for (i++; i < s.n; i++)
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
	return true;
}

static bool method_known(struct str m)
{
	static const char *const known[] = {
	        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (str_is(m, known[i]))
			return true;
	return false;
}

/* Splits the target, whose characters are checked already, into path and query. */
static bool target_split(struct http_parse_head *h)
{
	struct str t = http_parse_head_str(h, h->target, h->target_len);
	size_t path = 0, end;

	if (str_is(t, "*")) {
		h->path = h->target;
		h->path_len = 1;
		return str_is(http_parse_head_str(h, h->method, h->method_len), "OPTIONS");
	}
	if (t.p[0] != '/') {
		size_t skip;

		if (t.n > 7 && str_ieq((struct str){t.p, 7}, STR("http://")))
			skip = 7;
		else if (t.n > 8 && str_ieq((struct str){t.p, 8}, STR("https://")))
			skip = 8;
		else
			return false;
		for (path = skip; path < t.n && t.p[path] != '/' && t.p[path] != '?'; path++)
			;
		if (!host_valid((struct str){t.p + skip, path - skip}))
			return false;
	}
	for (end = path; end < t.n && t.p[end] != '?'; end++)
		;
	h->path = h->target + (uint32_t)path;
	h->path_len = (uint32_t)(end - path);
	if (end < t.n) {
		h->query = h->target + (uint32_t)end + 1;
		h->query_len = (uint32_t)(t.n - end - 1);
	}
	return true;
}

/* The request line is whole; v is its third word. */
static int line_check(struct http_parse_head *h, struct str v, const char **ret_text)
{
	if (v.n != VERSION_LEN || memcmp(v.p, "HTTP/", 5) != 0 || v.p[5] < '0' || v.p[5] > '9' ||
	        v.p[6] != '.' || v.p[7] < '0' || v.p[7] > '9')
		return refuse(400, ret_text, "The request line's version is malformed.");
	if (v.p[5] != '1' || v.p[7] > '1')
		return refuse(
		        505, ret_text, "Only the versions 1.0 and 1.1 of HTTP are spoken here.");
	h->minor = (uint8_t)(v.p[7] - '0');
	if (!method_known(http_parse_head_str(h, h->method, h->method_len)))
		return refuse(501, ret_text, "This method is not known here.");
	if (!target_split(h))
		return refuse(400, ret_text, "The request target is malformed.");
	return 0;
}

static uint8_t coding_of(struct str v)
{
	if (v.n == 0 || str_ieq(v, STR("identity")))
		return HTTP_CODING_IDENTITY;
	if (str_ieq(v, STR("gzip")) || str_ieq(v, STR("x-gzip")))
		return HTTP_CODING_GZIP;
	if (str_ieq(v, STR("zstd")))
		return HTTP_CODING_ZSTD;
	return HTTP_CODING_UNKNOWN;
}

static bool list_has(struct str list, struct str what)
{
	size_t i, begin = 0;

	if (list.n == 0)
		return false;
	for (i = 0; i <= list.n; i++) {
		if (i < list.n && list.p[i] != ',')
			continue;
		if (str_ieq(str_trim((struct str){list.p + begin, i - begin}), what))
			return true;
		begin = i + 1;
	}
	return false;
}

static int length_check(struct http_parse_head *h, struct str v, const char **ret_text)
{
	if (h->has_length)
		return refuse(400, ret_text, "Content-Length was sent more than once.");
	if (!str_in_set(v, "0123456789"))
		return refuse(400, ret_text, "Content-Length is malformed.");
	h->has_length = true;
	if (!str_to_u64(v, &h->length))
		h->length = UINT64_MAX;
	return 0;
}

/* What a field means for the framing of this request or the next. */
static int field_check(struct http_parse_head *h, size_t i, const char **ret_text)
{
	struct str name = field_name(h, i), v = field_value(h, i);

	if (str_ieq(name, STR("content-length")))
		return length_check(h, v, ret_text);
	if (str_ieq(name, STR("transfer-encoding"))) {
		if (h->chunked || !str_ieq(v, STR("chunked")))
			return refuse(
			        400, ret_text, "The only transfer coding taken is \"chunked\".");
		if (h->minor == 0)
			return refuse(400, ret_text, "HTTP/1.0 has no transfer codings.");
		h->chunked = true;
	} else if (str_ieq(name, STR("host"))) {
		if (!host_valid(v))
			return refuse(400, ret_text, "The Host header is malformed.");
	} else if (str_ieq(name, STR("connection"))) {
		if (list_has(v, STR("close")))
			h->keep_alive = false;
	} else if (str_ieq(name, STR("expect"))) {
		if (!str_ieq(v, STR("100-continue")))
			return refuse(417, ret_text,
			        "The only expectation met here is \"100-continue\".");
		h->expect_continue = h->minor > 0;
	} else if (str_ieq(name, STR("content-encoding"))) {
		h->coding = http_parse_head_count(h, "content-encoding") > 1 ? HTTP_CODING_UNKNOWN
		                                                             : coding_of(v);
	}
	return 0;
}

static int head_check(struct http_parse_head *h, const char **ret_text)
{
	struct str method = http_parse_head_str(h, h->method, h->method_len);
	size_t i, n_hosts = http_parse_head_count(h, "host");
	int r;

	h->keep_alive =
	        h->minor > 0 || list_has(http_parse_head_field(h, "connection"), STR("keep-alive"));
	for (i = 0; i < h->n_fields; i++) {
		r = field_check(h, i, ret_text);
		if (r)
			return r;
	}
	if (n_hosts > 1)
		return refuse(400, ret_text, "The Host header was sent more than once.");
	if (n_hosts == 0 && h->minor > 0)
		return refuse(400, ret_text, "The Host header is missing.");
	if (h->chunked && h->has_length)
		return refuse(
		        400, ret_text, "Content-Length and Transfer-Encoding do not go together.");
	if (h->minor == 0 && !h->has_length &&
	        (str_is(method, "POST") || str_is(method, "PUT") || str_is(method, "PATCH")))
		return refuse(411, ret_text, "HTTP/1.0 needs a Content-Length here.");
	return 1;
}

static int fields_step(
        struct http_parse_head *h, unsigned char c, uint32_t at, const char **ret_text)
{
	struct http_parse_field *f;

	switch (field_step(&h->field_state, c, ret_text)) {
	case STEP_NONE:
		return 0;
	case STEP_NAME:
		if (h->n_fields == h->max_fields)
			return refuse(431, ret_text, "The request has too many headers.");
		mem_grow(&h->fields, &h->cap_fields, h->n_fields, sizeof(*h->fields));
		h->fields[h->n_fields].name = at;
		return 0;
	case STEP_COLON:
		f = &h->fields[h->n_fields];
		f->name_len = at - f->name;
		f->value = at + 1;
		return 0;
	case STEP_LINE:
		f = &h->fields[h->n_fields++];
		f->value_len = at - f->value; /* trimmed when the bytes are at rest */
		return 0;
	case STEP_LAST:
		h->state = HEAD_DONE;
		return 1;
	case STEP_BAD:
		return -400;
	}
	return -400;
}

/* One byte of the request line, which stands at position `at`. */
static int line_step(struct http_parse_head *h, unsigned char c, uint32_t at, const char **ret_text)
{
	switch ((enum head_state)h->state) {
	case HEAD_START:
		if (c == '\r') {
			h->state = HEAD_EMPTY_LF;
			return 0;
		}
		__attribute__((fallthrough));
	case HEAD_START_AGAIN:
		if (!is_token_char(c))
			return refuse(400, ret_text, "The request line is malformed.");
		h->mark = at;
		h->state = HEAD_METHOD;
		return 0;
	case HEAD_EMPTY_LF:
		if (c != '\n')
			return refuse(400, ret_text, text_cr);
		h->state = HEAD_START_AGAIN;
		return 0;
	case HEAD_METHOD:
		if (c == ' ') {
			h->method = h->mark;
			h->method_len = at - h->mark;
			h->mark = at + 1;
			h->state = HEAD_TARGET;
			return 0;
		}
		if (!is_token_char(c) || at - h->mark >= METHOD_MAX)
			return refuse(400, ret_text, "The request line's method is malformed.");
		return 0;
	case HEAD_TARGET:
		if (is_target_char(c))
			return 0;
		if (c != ' ' || at == h->mark)
			return refuse(400, ret_text,
			        c > 0x20 && c != 0x7f ? "The request target holds a character that "
			                                "must be percent-encoded."
			                              : "The request line is malformed.");
		h->target = h->mark;
		h->target_len = at - h->mark;
		h->mark = at + 1;
		h->state = HEAD_VERSION;
		return 0;
	case HEAD_VERSION:
		if (c == '\r') {
			h->state = HEAD_LINE_LF;
			return 0;
		}
		if (c <= 0x20 || c >= 0x7f || at - h->mark >= VERSION_LEN)
			return refuse(400, ret_text,
			        c == '\n' ? text_lf : "The request line's version is malformed.");
		return 0;
	case HEAD_LINE_LF:
		if (c != '\n')
			return refuse(400, ret_text, text_cr);
		h->state = HEAD_FIELDS;
		return 0;
	case HEAD_FIELDS:
	case HEAD_DONE:
		break;
	}
	return refuse(400, ret_text, "The request line is malformed.");
}

static void fields_trim(struct http_parse_head *h)
{
	size_t i;

	for (i = 0; i < h->n_fields; i++) {
		struct str v = str_trim(field_value(h, i));

		/* An empty value keeps its place: there is nothing to point at. */
		if (v.n > 0)
			h->fields[i].value = (uint32_t)(v.p - h->bytes.data);
		h->fields[i].value_len = (uint32_t)v.n;
	}
}

/*
 * Runs the machines over data until the request line ends, the head ends, a byte is refused or the
 * data is used up. Returns how many bytes were taken; those are not in h->bytes yet.
 */
static size_t head_run(
        struct http_parse_head *h, const char *data, size_t n, int *ret_r, const char **ret_text)
{
	size_t base = h->bytes.len, room = h->bytes.max - base, i;
	int r = 0;

	for (i = 0; i < n && r == 0; i++) {
		uint8_t state = h->state;

		if (i == room) {
			r = refuse(431, ret_text, text_large);
			break;
		}
		if (state == HEAD_FIELDS)
			r = fields_step(h, (unsigned char)data[i], (uint32_t)(base + i), ret_text);
		else
			r = line_step(h, (unsigned char)data[i], (uint32_t)(base + i), ret_text);
		if (state == HEAD_LINE_LF) {
			i++;
			break;
		}
	}
	*ret_r = r;
	return i;
}

int http_parse_head_feed(struct http_parse_head *h, const char *data, size_t n, size_t *ret_used,
        const char **ret_text)
{
	size_t used = 0, taken;
	bool in_line;
	int r = 0;

	while (r == 0 && used < n) {
		in_line = h->state != HEAD_FIELDS;
		taken = head_run(h, data + used, n - used, &r, ret_text);
		if (buf_append(&h->bytes, data + used, taken))
			return refuse(503, ret_text, "There is no memory for this request now.");
		used += taken;
		/* Judged at once, so that a refusal of what follows knows the target. */
		if (r == 0 && in_line && h->state == HEAD_FIELDS)
			r = line_check(h,
			        http_parse_head_str(
			                h, h->mark, (uint32_t)h->bytes.len - 2 - h->mark),
			        ret_text);
	}
	*ret_used = used;
	if (r != 1)
		return r;
	fields_trim(h);
	return head_check(h, ret_text);
}

/* ---- the chunked body ---- */

enum chunk_state {
	CHUNK_SIZE,
	CHUNK_EXT_NAME, /* after a ";": a name must begin */
	CHUNK_EXT,
	CHUNK_SIZE_LF,
	CHUNK_DATA,
	CHUNK_DATA_CR,
	CHUNK_DATA_LF,
	CHUNK_TRAILERS,
	CHUNK_DONE,
};

void http_parse_chunk_init(struct http_parse_chunk *k)
{
	memset(k, 0, sizeof(*k));
}

static int chunk_size_step(struct http_parse_chunk *k, unsigned char c, const char **ret_text)
{
	int digit = str_hex_digit(c);

	if (digit >= 0) {
		if (k->digits == CHUNK_DIGITS_MAX)
			return refuse(400, ret_text, "A chunk's size is too large.");
		k->digits++;
		k->left = k->left * 16 + (unsigned)digit;
		return 0;
	}
	if (k->digits == 0 || (c != '\r' && c != ';'))
		return refuse(400, ret_text, "A chunk's size is malformed.");
	k->state = c == '\r' ? CHUNK_SIZE_LF : CHUNK_EXT_NAME;
	return 0;
}

static int chunk_ext_step(struct http_parse_chunk *k, unsigned char c, const char **ret_text)
{
	if (k->line_bytes++ == CHUNK_LINE_MAX || k->ext_bytes++ == CHUNK_EXT_MAX)
		return refuse(400, ret_text, "The chunk extensions are too large.");
	if (k->state == CHUNK_EXT_NAME) {
		k->state = CHUNK_EXT;
		return is_token_char(c) ? 0 : refuse(400, ret_text, text_chunk);
	}
	if (c == '\r')
		k->state = CHUNK_SIZE_LF;
	else if (!is_value_char(c))
		return refuse(400, ret_text, text_chunk);
	return 0;
}

static int chunk_trailer_step(struct http_parse_chunk *k, unsigned char c, const char **ret_text)
{
	if (k->trailer_bytes++ == CHUNK_TRAILER_MAX)
		return refuse(431, ret_text, "The trailers are too large.");
	switch (field_step(&k->field_state, c, ret_text)) {
	case STEP_NONE:
	case STEP_NAME:
	case STEP_COLON:
	case STEP_LINE:
		return 0;
	case STEP_LAST:
		k->state = CHUNK_DONE;
		return 1;
	case STEP_BAD:
		break;
	}
	return -400;
}

static int chunk_step(struct http_parse_chunk *k, unsigned char c, const char **ret_text)
{
	switch ((enum chunk_state)k->state) {
	case CHUNK_SIZE:
		return chunk_size_step(k, c, ret_text);
	case CHUNK_EXT_NAME:
	case CHUNK_EXT:
		return chunk_ext_step(k, c, ret_text);
	case CHUNK_SIZE_LF:
		if (c != '\n')
			break;
		k->state = k->left > 0 ? CHUNK_DATA : CHUNK_TRAILERS;
		return 0;
	case CHUNK_DATA_CR:
		if (c != '\r')
			break;
		k->state = CHUNK_DATA_LF;
		return 0;
	case CHUNK_DATA_LF:
		if (c != '\n')
			break;
		k->state = CHUNK_SIZE;
		k->digits = 0;
		k->line_bytes = 0;
		return 0;
	case CHUNK_TRAILERS:
		return chunk_trailer_step(k, c, ret_text);
	case CHUNK_DATA:
	case CHUNK_DONE:
		break;
	}
	return refuse(400, ret_text, text_chunk);
}

int http_parse_chunk_feed(struct http_parse_chunk *k, const char *data, size_t n, size_t *ret_used,
        struct str *ret_piece, const char **ret_text)
{
	size_t i = 0;
	int r = 0;

	*ret_piece = (struct str){NULL, 0};
	while (i < n && r == 0 && k->state != CHUNK_DATA)
		r = chunk_step(k, (unsigned char)data[i++], ret_text);
	if (r == 0 && i < n) {
		*ret_piece = (struct str){data + i, n - i < k->left ? n - i : (size_t)k->left};
		i += ret_piece->n;
		k->left -= ret_piece->n;
		if (k->left == 0)
			k->state = CHUNK_DATA_CR;
	}
	*ret_used = i;
	return r;
}

void http_parse_chunk_unread(struct http_parse_chunk *k, size_t n)
{
	if (n == 0)
		return;
	k->left += n;
	k->state = CHUNK_DATA;
}
