/*
 * Theory of operation: the reader walks the text once with a pointer. What may come next is one of
 * seven states; whether the innermost container is an object or an array is one bit of a stack of
 * JSON_MAX_DEPTH bits, so nesting costs no memory and no recursion. Strings are checked here
 * (UTF-8, control characters, escapes) but not decoded; numbers are checked and left as text. A
 * later stage may therefore rely on the raw bytes of an event: they are a valid string or number.
 */
#include "json/internal.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>

enum expect {
	EXPECT_VALUE,
	EXPECT_VALUE_OR_END, /* after [ */
	EXPECT_KEY_OR_END,   /* after { */
	EXPECT_KEY,          /* after a comma in an object */
	EXPECT_COLON,
	EXPECT_COMMA_OR_END,
	EXPECT_NOTHING, /* after the one value of the text */
};

struct reader {
	const char *begin, *p, *end;
	json_event_fn fn;
	void *ctx;
	struct error *err;
	size_t n_values;
	int depth;
	uint64_t is_object[JSON_MAX_DEPTH / 64];
};

int json_error_at(
        struct error *err, enum err code, struct str text, size_t offset, const char *fmt, ...)
{
	size_t line = 1, start = 0, i;
	char what[256];
	va_list ap;

	if (!err)
		return -(int)code;
	va_start(ap, fmt);
	if (vsnprintf(what, sizeof(what), fmt, ap) < 0)
		what[0] = '\0';
	va_end(ap);
	for (i = 0; i < offset; i++) {
		const char *newline = memchr(text.p + i, '\n', offset - i);

		if (!newline)
			break;
		i = (size_t)(newline - text.p);
		start = i + 1;
		line++;
	}
	return error_set(err, code, "%s at byte %zu (line %zu, column %zu)", what, offset, line,
	        utf8_count(text.p + start, offset - start) + 1);
}

#define FAIL(r, at, code, ...)                                                                     \
	json_error_at((r)->err, (code), (struct str){(r)->begin, (size_t)((r)->end - (r)->begin)}, \
	        (size_t)((at) - (r)->begin), __VA_ARGS__)

/* "X was expected, but …" at the reader's place, naming what is there. */
static int fail_expected(const struct reader *r, const char *what)
{
	unsigned char c;

	if (r->p == r->end)
		return FAIL(r, r->p, ERR_INVALID, "%s was expected, but the text ends", what);
	c = (unsigned char)*r->p;
	if (r->end - r->p >= 3 && memcmp(r->p, "\xef\xbb\xbf", 3) == 0)
		return FAIL(r, r->p, ERR_INVALID, "%s was expected, not a byte order mark", what);
	if (c > 0x20 && c < 0x7f)
		return FAIL(r, r->p, ERR_INVALID, "%s was expected, not '%c'", what, c);
	return FAIL(r, r->p, ERR_INVALID, "%s was expected, not the byte 0x%02x", what, c);
}

static bool in_object(const struct reader *r)
{
	return r->is_object[(r->depth - 1) / 64] >> ((r->depth - 1) % 64) & 1;
}

static int push(struct reader *r, bool object)
{
	uint64_t bit;

	if (r->depth == JSON_MAX_DEPTH)
		return FAIL(r, r->p, ERR_INVALID, "more than %d levels of arrays and objects",
		        JSON_MAX_DEPTH);
	bit = UINT64_C(1) << (r->depth % 64);
	if (object)
		r->is_object[r->depth / 64] |= bit;
	else
		r->is_object[r->depth / 64] &= ~bit;
	r->depth++;
	return 0;
}

/* Reports what lies between `from` and the reader's place. */
static int emit(struct reader *r, enum json_event_type type, const char *from, bool escaped)
{
	struct json_event ev = {
	        .type = type,
	        .offset = (size_t)(from - r->begin),
	        .raw = {from, (size_t)(r->p - from)},
	        .escaped = escaped,
	};

	return r->fn(r->ctx, &ev);
}

static void skip_space(struct reader *r)
{
	while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\t' || *r->p == '\r'))
		r->p++;
}

/* Moves over bytes of a string that need no look: printable ASCII but for the quote and backslash.
 */
static void skip_plain(struct reader *r)
{
	const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
	uint64_t word, quote, backslash;

	while (r->end - r->p >= 8) {
		memcpy(&word, r->p, 8);
		quote = word ^ ones * '"';
		backslash = word ^ ones * '\\';
		/* In each: the top bit of a byte that is below 0x20, zero, or zero. A borrow may
		 * mark a byte too many, which only ends this loop early. */
		if (((word - ones * 0x20) | (quote - ones) | (backslash - ones) | word) & tops)
			break;
		r->p += 8;
	}
	while (r->p < r->end) {
		unsigned char c = (unsigned char)*r->p;

		if (c < 0x20 || c >= 0x80 || c == '"' || c == '\\')
			break;
		r->p++;
	}
}

/* Four hex digits at p, or -1. */
static int hex4(const char *p)
{
	int v = 0, i, digit;

	for (i = 0; i < 4; i++) {
		digit = str_hex_digit(p[i]);
		if (digit < 0)
			return -1;
		v = v * 16 + digit;
	}
	return v;
}

static int read_escape(struct reader *r, bool is_key)
{
	const char *at = r->p;
	int v;

	r->p++;
	if (r->p == r->end)
		return fail_expected(r, "an escaped character");
	if (*r->p != 'u') {
		if (!memchr("\"\\/bfnrt", *r->p, 8))
			return FAIL(r, at, ERR_INVALID, "an unknown escape in a string");
		r->p++;
		return 0;
	}
	r->p++;
	v = r->end - r->p < 4 ? -1 : hex4(r->p);
	if (v < 0)
		return FAIL(r, at, ERR_INVALID, "\\u without four hexadecimal digits");
	if (v == 0 && is_key)
		return FAIL(r, at, ERR_INVALID, "a NUL character in a key");
	r->p += 4;
	return 0;
}

static int read_string(struct reader *r, bool is_key, bool *ret_escaped)
{
	const char *from = r->p;
	unsigned char c;
	size_t len;
	int rc;

	*ret_escaped = false;
	r->p++;
	for (;;) {
		skip_plain(r);
		if (r->p == r->end)
			return FAIL(r, from, ERR_INVALID,
			        "the text ends within the string that begins");
		c = (unsigned char)*r->p;
		if (c == '"') {
			r->p++;
			return 0;
		}
		if (c == '\\') {
			*ret_escaped = true;
			rc = read_escape(r, is_key);
			if (rc)
				return rc;
			continue;
		}
		if (c < 0x20)
			return FAIL(r, r->p, ERR_INVALID,
			        "the control character 0x%02x in a string must be escaped", c);
		len = utf8_char_len(r->p, (size_t)(r->end - r->p));
		if (len == 0)
			return FAIL(r, r->p, ERR_INVALID, "invalid UTF-8 in a string");
		r->p += len;
	}
}

static bool read_digits(struct reader *r)
{
	const char *from = r->p;

	while (r->p < r->end && *r->p >= '0' && *r->p <= '9')
		r->p++;
	return r->p > from;
}

static int read_number(struct reader *r)
{
	const char *from = r->p;

	if (*r->p == '-')
		r->p++;
	if (r->p < r->end && *r->p == '0') {
		r->p++;
		if (r->p < r->end && *r->p >= '0' && *r->p <= '9')
			return FAIL(r, from, ERR_INVALID, "a number with a leading zero");
	} else if (!read_digits(r)) {
		return fail_expected(r, "a digit");
	}
	if (r->p < r->end && *r->p == '.') {
		r->p++;
		if (!read_digits(r))
			return fail_expected(r, "a digit after the decimal point");
	}
	if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
		r->p++;
		if (r->p < r->end && (*r->p == '+' || *r->p == '-'))
			r->p++;
		if (!read_digits(r))
			return fail_expected(r, "a digit of the exponent");
	}
	return emit(r, JSON_EV_NUMBER, from, false);
}

static int read_word(struct reader *r, struct str word, enum json_event_type type)
{
	const char *from = r->p;

	if ((size_t)(r->end - r->p) < word.n || memcmp(r->p, word.p, word.n) != 0)
		return FAIL(r, r->p, ERR_INVALID, "an unknown word");
	r->p += word.n;
	return emit(r, type, from, false);
}

static enum expect after_value(const struct reader *r)
{
	return r->depth > 0 ? EXPECT_COMMA_OR_END : EXPECT_NOTHING;
}

static int read_begin(struct reader *r, bool object, enum expect *state)
{
	int rc = push(r, object);

	if (rc)
		return rc;
	*state = object ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
	r->p++;
	return emit(r, object ? JSON_EV_OBJECT_BEGIN : JSON_EV_ARRAY_BEGIN, r->p - 1, false);
}

static int read_end(struct reader *r, enum expect *state)
{
	bool object = in_object(r);

	r->depth--;
	*state = after_value(r);
	r->p++;
	return emit(r, object ? JSON_EV_OBJECT_END : JSON_EV_ARRAY_END, r->p - 1, false);
}

static int read_value(struct reader *r, enum expect *state)
{
	const char *from = r->p;
	bool escaped;
	int rc;

	if (++r->n_values > JSON_MAX_VALUES)
		return FAIL(r, r->p, ERR_TOO_LARGE, "more than %d values", JSON_MAX_VALUES);
	*state = after_value(r);
	switch (*r->p) {
	case '{':
		return read_begin(r, true, state);
	case '[':
		return read_begin(r, false, state);
	case '"':
		rc = read_string(r, false, &escaped);
		return rc ? rc : emit(r, JSON_EV_STRING, from, escaped);
	case 't':
		return read_word(r, STR("true"), JSON_EV_TRUE);
	case 'f':
		return read_word(r, STR("false"), JSON_EV_FALSE);
	case 'n':
		return read_word(r, STR("null"), JSON_EV_NULL);
	default:
		if (*r->p == '-' || (*r->p >= '0' && *r->p <= '9'))
			return read_number(r);
		return fail_expected(r, "a value");
	}
}

static int read_key(struct reader *r, enum expect *state)
{
	const char *from = r->p;
	bool escaped;
	int rc;

	if (*r->p != '"')
		return fail_expected(r, "a key in double quotes");
	rc = read_string(r, true, &escaped);
	if (rc)
		return rc;
	*state = EXPECT_COLON;
	return emit(r, JSON_EV_KEY, from, escaped);
}

/* A comma or the end of the container; anything else is an error. */
static int read_separator(struct reader *r, enum expect *state)
{
	bool object = in_object(r);

	if (*r->p == ',') {
		r->p++;
		*state = object ? EXPECT_KEY : EXPECT_VALUE;
		return 0;
	}
	if (*r->p == (object ? '}' : ']'))
		return read_end(r, state);
	return fail_expected(r, object ? "a comma or }" : "a comma or ]");
}

static int read_step(struct reader *r, enum expect *state)
{
	switch (*state) {
	case EXPECT_VALUE_OR_END:
		if (*r->p == ']')
			return read_end(r, state);
		return read_value(r, state);
	case EXPECT_VALUE:
		return read_value(r, state);
	case EXPECT_KEY_OR_END:
		if (*r->p == '}')
			return read_end(r, state);
		return read_key(r, state);
	case EXPECT_KEY:
		return read_key(r, state);
	case EXPECT_COLON:
		if (*r->p != ':')
			return fail_expected(r, "a colon");
		r->p++;
		*state = EXPECT_VALUE;
		return 0;
	case EXPECT_COMMA_OR_END:
		return read_separator(r, state);
	case EXPECT_NOTHING:
		break;
	}
	return FAIL(r, r->p, ERR_INVALID, "the text goes on after its value");
}

static const char *expect_name(const struct reader *r, enum expect state)
{
	switch (state) {
	case EXPECT_VALUE:
	case EXPECT_VALUE_OR_END:
		return "a value";
	case EXPECT_KEY:
	case EXPECT_KEY_OR_END:
		return "a key";
	case EXPECT_COLON:
		return "a colon";
	case EXPECT_COMMA_OR_END:
		return in_object(r) ? "a comma or }" : "a comma or ]";
	case EXPECT_NOTHING:
		break;
	}
	return "nothing";
}

int json_read(struct str text, json_event_fn fn, void *ctx, struct error *err)
{
	const char *begin = text.p ? text.p : "";
	struct reader r = {
	        .begin = begin,
	        .p = begin,
	        .end = begin + text.n,
	        .fn = fn,
	        .ctx = ctx,
	        .err = err,
	};
	enum expect state = EXPECT_VALUE;
	int rc;

	for (;;) {
		skip_space(&r);
		if (r.p == r.end)
			break;
		rc = read_step(&r, &state);
		if (rc)
			return rc;
	}
	return state == EXPECT_NOTHING ? 0 : fail_expected(&r, expect_name(&r, state));
}

size_t json_unescape(struct str raw, char *out)
{
	const char *p = raw.p + 1, *end = raw.p + raw.n - 1, *backslash;
	char *to = out;
	int c, low;

	while (p < end) {
		backslash = memchr(p, '\\', (size_t)(end - p));
		if (!backslash)
			backslash = end;
		memcpy(to, p, (size_t)(backslash - p));
		to += backslash - p;
		p = backslash;
		if (p == end)
			break;
		if (p[1] != 'u') {
			static const char from[] = "\"\\/bfnrt", value[] = "\"\\/\b\f\n\r\t";

			*to++ = value[strchr(from, p[1]) - from];
			p += 2;
			continue;
		}
		c = hex4(p + 2);
		p += 6;
		if (c >= 0xd800 && c < 0xdc00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
			low = hex4(p + 2);
			if (low >= 0xdc00 && low < 0xe000) {
				c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
				p += 6;
			}
		}
		if (c >= 0xd800 && c < 0xe000)
			c = 0xfffd;
		to += utf8_encode((uint32_t)c, to);
	}
	return (size_t)(to - out);
}
