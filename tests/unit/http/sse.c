/* The event stream reader and writer: each sample whole, cut at every byte, in single bytes, at
 * random. */
#include "harness.h"

#include "http/sse.h"

#define BOM "\xef\xbb\xbf"

/* What was read, as text: [event|data] for each event, (text) for each comment. */
static void on_comment(void *ctx, struct str text)
{
	buf_printf(ctx, "(%.*s)", (int)text.n, text.p);
}

static int on_event(void *ctx, struct str event, struct str data)
{
	struct buf *out = ctx;

	assert_non_null(data.p);
	assert_true(event.p == NULL || event.n > 0);
	buf_printf(out, "[%.*s|", (int)event.n, event.p ? event.p : "");
	buf_append(out, data.p, data.n);
	return buf_putc(out, ']');
}

/* Lines are written with "\n"; the tests put the other ends in their place. */
static const struct sample {
	const char *bytes, *want;
	bool dropped; /* sse_end */
} samples[] = {
        {"", "", false},
        {"data: a\n\n", "[|a]", false},
        {"data:a\n\n", "[|a]", false},
        {"data:  a \n\n", "[| a ]", false},
        {"data\n\n", "[|]", false},
        {"data:\n\n", "[|]", false},
        {"data\ndata\n\n", "[|\n]", false},
        {"data: a\ndata: b\ndata:\ndata: c\n\n", "[|a\nb\n\nc]", false},
        {"event: x\ndata: a\n\ndata: b\n\n", "[x|a][|b]", false},
        {"event: x\nevent: y\ndata: a\n\n", "[y|a]", false},
        {"event:\ndata: a\n\n", "[|a]", false},
        {"event: x\n\ndata: a\n\n", "[|a]", false},
        {"data: a\nevent: late\n\n", "[late|a]", false},
        {": OPENROUTER PROCESSING\n\ndata: a\n\n", "(OPENROUTER PROCESSING)[|a]", false},
        {":\n:x\n:  two\ndata: a\n: within\ndata: b\n\n", "()(x)( two)(within)[|a\nb]", false},
        {"id: 1\nretry: 5\nunknown: x\nnothing\ndata: a\n\n", "[|a]", false},
        {"Data: a\ndata : b\n\n data: c\n\n", "", false},
        {"\n\n\ndata: a\n\n\n\n", "[|a]", false},
        {"data: {\"t\":\"gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80\"}\n\n",
                "[|{\"t\":\"gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80\"}]", false},
        {"data: a:b: c\n\n", "[|a:b: c]", false},
        {BOM "data: a\n\n", "[|a]", false},
        {BOM BOM "data: a\n\n", "", false},
        {BOM, "", false},
        {"\xef\xbb"
         "data: a\n\ndata: b\n\n",
                "[|b]", false},
        {"data: " BOM "\n\n", "[|" BOM "]", false},
        {"data: a\n\n" BOM "data: b\n\n", "[|a]", false},
        {"data: a\n\ndata: b\n", "[|a]", true},
        {"data: a\n\ndata: b", "[|a]", true},
        {"data: a\n\nevent: b\n", "[|a]", true},
        {"data: a\n\n: half", "[|a]", true},
        {"data: [DONE]\n\n", "[|[DONE]]", false},
};

static const char *const ends[] = {"\n", "\r", "\r\n", "mixed"};

static void put_ends(const char *text, const char *end, struct buf *out)
{
	size_t n = 0;

	buf_reset(out);
	buf_append(out, "", 0);
	for (; *text; text++) {
		if (*text != '\n')
			buf_putc(out, *text);
		else if (strcmp(end, "mixed") == 0)
			buf_puts(out, ends[n++ % 3]);
		else
			buf_puts(out, end);
	}
}

static void check(const struct sample *s, const struct buf *bytes, const size_t *cuts,
        size_t n_cuts, const char *how)
{
	_cleanup_buf_ struct buf out = BUF_INIT(65536);
	struct sse_reader *r = sse_reader_new(0, on_event, on_comment, &out);
	size_t at = 0, i, end;
	bool dropped;

	for (i = 0; i <= n_cuts; i++) {
		/* Memory of exactly that size, so that a sanitizer sees a read past it. */
		char *copy;

		end = i < n_cuts ? cuts[i] : bytes->len;
		copy = malloc(end - at + 1);
		memcpy(copy, buf_cstr(bytes) + at, end - at);
		copy = realloc(copy, end - at ? end - at : 1);
		assert_int_equal(sse_feed(r, copy, end - at, NULL), 0);
		free(copy);
		at = end;
	}
	dropped = sse_end(r);
	if (strcmp(buf_cstr(&out), s->want) != 0 || dropped != s->dropped)
		fail_msg("%s, %s: %s%s", s->bytes, how, buf_cstr(&out), dropped ? " dropped" : "");
	sse_reader_free(r);
}

static void test_samples(void **state)
{
	_cleanup_buf_ struct buf bytes = BUF_INIT(65536);
	struct unit_random random = {3};
	size_t i, e, at, round, cuts[1024];

	for (i = 0; i < sizeof(samples) / sizeof(samples[0]); i++)
		for (e = 0; e < 4; e++) {
			const struct sample *s = &samples[i];

			put_ends(s->bytes, ends[e], &bytes);
			check(s, &bytes, NULL, 0, "whole");
			for (at = 0; at <= bytes.len; at++)
				check(s, &bytes, &at, 1, "cut once");
			for (at = 0; at < bytes.len; at++)
				cuts[at] = at;
			check(s, &bytes, cuts, bytes.len, "in single bytes");
			for (round = 0; round < 20; round++) {
				size_t n = 0;

				for (at = 0; at < bytes.len; at++)
					if (unit_below(&random, 4) == 0)
						cuts[n++] = at;
				check(s, &bytes, cuts, n, "at random");
			}
		}
}

static void test_nul_bytes(void **state)
{
	static const char bytes[] = "data: a\0b\n\n";
	_cleanup_buf_ struct buf out = BUF_INIT(100);
	struct sse_reader *r = sse_reader_new(0, on_event, NULL, &out);

	assert_int_equal(sse_feed(r, bytes, sizeof(bytes) - 1, NULL), 0);
	assert_int_equal(out.len, 6);
	assert_memory_equal(out.data, "[|a\0b]", 6);
	sse_reader_free(r);
}

/* ---- bounds ---- */

static size_t n_events, n_bytes;

static int count(void *ctx, struct str event, struct str data)
{
	(void)ctx;
	(void)event;
	n_events++;
	n_bytes += data.n;
	return 0;
}

static void too_large(const char *repeat, size_t times)
{
	struct sse_reader *r = sse_reader_new(1000, count, NULL, NULL);
	struct error err = {0};
	size_t i;
	int result = 0;

	for (i = 0; i < times && result == 0; i++)
		result = sse_feed(r, repeat, strlen(repeat), &err);
	assert_int_equal(result, -ERR_TOO_LARGE);
	assert_int_equal(err.code, ERR_TOO_LARGE);
	assert_string_equal(err.text, "An event of the stream is larger than 1000 bytes.");
	/* It stays given up. */
	assert_int_equal(sse_feed(r, "\n\n", 2, &err), -ERR_TOO_LARGE);
	sse_reader_free(r);
}

static void test_bounds(void **state)
{
	struct sse_reader *r = sse_reader_new(1000, count, NULL, NULL);
	char line[1100];
	size_t i;

	too_large("data: 0123456789", 200);   /* one line without an end */
	too_large("data: 0123456789\n", 200); /* many lines */
	too_large("data\n", 2000);
	too_large(": comment ", 200);
	too_large("event: xxxxxxxxxx", 2000);
	/* The bound is for one event, not for the stream; exactly it is allowed. */
	memset(line, 'x', sizeof(line));
	memcpy(line, "data: ", 6);
	memcpy(line + 1006, "\n\n", 2);
	n_events = n_bytes = 0;
	for (i = 0; i < 100; i++)
		assert_int_equal(sse_feed(r, line, 1008, NULL), 0);
	assert_int_equal(n_events, 100);
	assert_int_equal(n_bytes, 100000);
	line[1006] = 'x';
	memcpy(line + 1007, "\n\n", 2);
	assert_int_equal(sse_feed(r, line, 1009, NULL), -ERR_TOO_LARGE);
	sse_reader_free(r);
}

/* Many short lines that end in CR cost what they are long. */
static void test_time_is_linear(void **state)
{
	size_t n = 8u << 20;
	struct sse_reader *r = sse_reader_new(0, count, NULL, NULL);
	char *bytes = malloc(n);
	uint64_t begin = cpu_ms();

	assert_non_null(bytes);
	memset(bytes, '\r', n);
	assert_int_equal(sse_feed(r, bytes, n, NULL), 0);
	assert_true(cpu_ms() - begin < 5000);
	free(bytes);
	sse_reader_free(r);
}

static int refuse(void *ctx, struct str event, struct str data)
{
	(void)event;
	(void)data;
	++*(size_t *)ctx;
	return -ERR_UPSTREAM;
}

static void test_callback_ends_it(void **state)
{
	size_t n = 0;
	struct sse_reader *r = sse_reader_new(0, refuse, NULL, &n);
	struct error err = {.code = ERR_UPSTREAM, .text = "the callback's own"};

	assert_int_equal(sse_feed(r, "data: a\n\ndata: b\n\n", 18, &err), -ERR_UPSTREAM);
	assert_int_equal(n, 1);
	assert_string_equal(err.text, "the callback's own");
	assert_int_equal(sse_feed(r, "data: c\n\n", 9, &err), -ERR_UPSTREAM);
	assert_int_equal(n, 1);
	sse_reader_free(r);
	assert_null(sse_reader_free(NULL));
}

/* ---- the writer ---- */

static void test_writer(void **state)
{
	_cleanup_buf_ struct buf out = BUF_INIT(1000);

	assert_int_equal(sse_write(&out, NULL, STR("{}")), 0);
	assert_int_equal(sse_write(&out, "message_stop", STR("{\"a\":1}")), 0);
	assert_int_equal(sse_write(&out, NULL, (struct str){"", 0}), 0);
	assert_string_equal(
	        buf_cstr(&out), "data: {}\n\nevent: message_stop\ndata: {\"a\":1}\n\ndata: \n\n");
	assert_int_equal(sse_write(&out, NULL, STR("a\nb")), -ERR_INVALID);
	assert_int_equal(sse_write(&out, NULL, STR("a\rb")), -ERR_INVALID);
	assert_int_equal(sse_write(&out, "a\ndata: x", STR("b")), -ERR_INVALID);
	assert_string_equal(
	        buf_cstr(&out), "data: {}\n\nevent: message_stop\ndata: {\"a\":1}\n\ndata: \n\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_samples),
	        cmocka_unit_test(test_nul_bytes),
	        cmocka_unit_test(test_bounds),
	        cmocka_unit_test(test_time_is_linear),
	        cmocka_unit_test(test_callback_ends_it),
	        cmocka_unit_test(test_writer),
	};

	return UNIT_RUN(tests);
}
