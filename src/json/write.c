#include "json/internal.h"

#include "base/clock.h"
#include "base/utf8.h"

static bool is_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

static int write_escape(struct buf *out, unsigned char c)
{
	static const char digits[] = "0123456789abcdef";
	static const char named[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
	const char *at = memchr(named, c, sizeof(named) - 1);
	char text[6] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};

	if (at) {
		text[1] = letters[at - named];
		return buf_append(out, text, 2);
	}
	return buf_append(out, text, 6);
}

int json_escape_some(struct buf *out, const char *p, size_t n, size_t room, size_t *ret_read)
{
	size_t start = out->len, i = 0, run, len;
	int rc = 0;

	while (i < n && !rc && out->len - start < room) {
		size_t most = room - (out->len - start);

		/* A run of what is copied as it is: plain bytes and whole characters. */
		for (run = 0; i + run < n && run < most; run += len) {
			len = is_plain((unsigned char)p[i + run]) ? 1
			      : (unsigned char)p[i + run] < 0x80
			              ? 0
			              : utf8_char_len(p + i + run, n - i - run);
			if (len == 0)
				break;
		}
		if (run > 0) {
			rc = buf_append(out, p + i, run);
			len = run;
		} else if ((unsigned char)p[i] < 0x80) {
			rc = write_escape(out, (unsigned char)p[i]);
			len = 1;
		} else {
			rc = buf_append(out, "\xef\xbf\xbd", 3);
			len = utf8_subpart_len(p + i, n - i);
		}
		if (!rc)
			i += len;
	}
	*ret_read = i;
	return rc;
}

int json_write_str_part(struct buf *out, struct str s)
{
	size_t done;

	return json_escape_some(out, s.p, s.n, SIZE_MAX, &done);
}

int json_write_str(struct buf *out, struct str s)
{
	buf_putc(out, '"');
	json_write_str_part(out, s);
	return buf_putc(out, '"');
}

static bool in_object(const struct json_writer *w)
{
	return w->depth > 0 && (w->is_object[(w->depth - 1) / 64] >> ((w->depth - 1) % 64) & 1);
}

/* Before every value: the comma, and the check that an object's value has a key. */
static void before_value(struct json_writer *w)
{
	if (in_object(w) && !w->after_key)
		BUG("a JSON value in an object without a key");
	if (w->need_comma && !w->after_key) {
		if (w->depth == 0)
			BUG("a second JSON value at the top");
		buf_putc(w->out, ',');
	}
	w->after_key = false;
	w->need_comma = true;
}

static void begin(struct json_writer *w, bool object)
{
	uint64_t bit;

	if (w->depth == JSON_MAX_DEPTH)
		BUG("JSON is written deeper than %d levels", JSON_MAX_DEPTH);
	before_value(w);
	bit = UINT64_C(1) << (w->depth % 64);
	if (object)
		w->is_object[w->depth / 64] |= bit;
	else
		w->is_object[w->depth / 64] &= ~bit;
	w->depth++;
	w->need_comma = false;
	buf_putc(w->out, object ? '{' : '[');
}

void jw_init(struct json_writer *w, struct buf *out)
{
	*w = (struct json_writer){.out = out};
}

void jw_object(struct json_writer *w)
{
	begin(w, true);
}

void jw_array(struct json_writer *w)
{
	begin(w, false);
}

void jw_end(struct json_writer *w)
{
	if (w->depth == 0)
		BUG("a JSON end without a beginning");
	if (w->after_key)
		BUG("a JSON key without a value");
	buf_putc(w->out, in_object(w) ? '}' : ']');
	w->depth--;
	w->need_comma = true;
}

int jw_done(const struct json_writer *w)
{
	if (w->depth > 0)
		BUG("%d JSON ends are missing", w->depth);
	return buf_error(w->out);
}

void jw_key_str(struct json_writer *w, struct str key)
{
	if (!in_object(w) || w->after_key)
		BUG("a JSON key where none belongs");
	if (w->need_comma)
		buf_putc(w->out, ',');
	json_write_str(w->out, key);
	buf_putc(w->out, ':');
	w->after_key = true;
}

void jw_key(struct json_writer *w, const char *key)
{
	jw_key_str(w, str_of(key));
}

void jw_str(struct json_writer *w, struct str s)
{
	before_value(w);
	json_write_str(w->out, s);
}

void jw_cstr(struct json_writer *w, const char *s)
{
	if (s)
		jw_str(w, str_of(s));
	else
		jw_null(w);
}

void jw_i64(struct json_writer *w, int64_t v)
{
	before_value(w);
	buf_i64(w->out, v);
}

void jw_bool(struct json_writer *w, bool v)
{
	before_value(w);
	buf_puts(w->out, v ? "true" : "false");
}

void jw_null(struct json_writer *w)
{
	before_value(w);
	buf_puts(w->out, "null");
}

void jw_raw(struct json_writer *w, struct str raw)
{
	if (!raw.p) {
		jw_null(w);
		return;
	}
	before_value(w);
	buf_append(w->out, raw.p, raw.n);
}

void jw_kstr(struct json_writer *w, const char *key, struct str s)
{
	jw_key(w, key);
	jw_str(w, s);
}

void jw_kcstr(struct json_writer *w, const char *key, const char *s)
{
	jw_key(w, key);
	jw_cstr(w, s);
}

void jw_ki64(struct json_writer *w, const char *key, int64_t v)
{
	jw_key(w, key);
	jw_i64(w, v);
}

void jw_kbool(struct json_writer *w, const char *key, bool v)
{
	jw_key(w, key);
	jw_bool(w, v);
}

void jw_knull(struct json_writer *w, const char *key)
{
	jw_key(w, key);
	jw_null(w);
}

void jw_kraw(struct json_writer *w, const char *key, struct str raw)
{
	jw_key(w, key);
	jw_raw(w, raw);
}

void jw_kmoney(struct json_writer *w, const char *key, struct money m)
{
	_cleanup_buf_ struct buf b = BUF_INIT(48);

	money_write(&b, m);
	jw_kraw(w, key, (struct str){b.data, b.len});
}

void jw_kstr_given(struct json_writer *w, const char *key, struct str s)
{
	if (s.n)
		jw_kstr(w, key, s);
}

void jw_kraw_given(struct json_writer *w, const char *key, struct str raw)
{
	if (raw.n)
		jw_kraw(w, key, raw);
}

void jw_ktime(struct json_writer *w, const char *key, int64_t wall_ms)
{
	char text[32];

	clock_iso8601(wall_ms, text);
	jw_kcstr(w, key, wall_ms != 0 ? text : NULL);
}
