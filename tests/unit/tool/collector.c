#include "unit.h"

#include "base/buf.h"
#include "base/utf8.h"
#include "tool/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 4 * 1024 * 1024, SMALL = 1024 };

/* ---- the oracle: the whole input at once, the plainest way ---- */

static size_t char_offset(const struct buf *b, uint64_t n)
{
	size_t at = 0;

	while (n-- > 0)
		at += utf8_char_len(b->data + at, b->len - at);
	return at;
}

/* The text that must come out of input within limit characters. */
static void oracle(struct buf *out, const char *input, size_t n, uint32_t limit)
{
	struct buf clean = BUF_INIT(TEXT_MAX);
	char line[128];
	uint64_t chars, missing;
	size_t head, line_chars;

	buf_append(&clean, "", 0);
	utf8_append_valid(&clean, input, n);
	chars = utf8_count(clean.data, clean.len);
	if (chars <= limit) {
		buf_append(out, clean.data, clean.len);
		buf_free(&clean);
		return;
	}
	head = limit / 2;
	/* The fewest missing ones for which head, line and tail are exactly the limit. */
	for (missing = chars - limit; missing <= chars - head; missing++) {
		snprintf(line, sizeof(line), "\n[… %llu characters omitted …]\n",
		        (unsigned long long)missing);
		line_chars = utf8_count(line, strlen(line));
		if (head + line_chars + (chars - head - missing) <= limit)
			break;
	}
	if (missing > chars - head) {
		snprintf(line, sizeof(line), "%s", limit ? "…" : "");
		missing = limit ? chars - limit + 1 : chars;
	}
	buf_append(out, clean.data, char_offset(&clean, head));
	buf_puts(out, line);
	head = char_offset(&clean, head + missing);
	buf_append(out, clean.data + head, clean.len - head);
	buf_free(&clean);
}

/* ---- comparing ---- */

struct cut {
	struct unit_random *rnd;
	size_t piece; /* 0: random ones */
	size_t from;  /* live is asked for from this piece on */
};

static void run(const char *input, size_t n, uint32_t limit, const struct cut *cut,
        struct buf *live, struct buf *text)
{
	struct collector *c = collector_new(limit);
	size_t i, len, fed = 0, before;
	struct str final;

	for (i = 0; i < n; i += len, fed++) {
		len = cut->piece ? cut->piece : 1 + unit_below(cut->rnd, 40);
		if (len > n - i)
			len = n - i;
		before = live->len;
		assert_int_equal(
		        collector_feed(c, input + i, len, fed >= cut->from ? live : NULL), 0);
		assert_true(collector_bytes_held(c) <= (size_t)limit * 4 + SMALL);
		/* What was shown is sure to stay: the first half at most. */
		if (live->len > before)
			assert_true(utf8_count(buf_cstr(live), live->len) <= limit / 2);
		assert_true(utf8_valid(buf_cstr(live) + before, live->len - before));
	}
	assert_int_equal(collector_end(c, live), 0);
	assert_int_equal(collector_end(c, live), 0);
	final = collector_text(c);
	buf_append(text, final.p, final.n);
	assert_true(utf8_valid(final.p, final.n));
	assert_true(utf8_count(final.p, final.n) <= limit);
	assert_int_equal(collector_chars(c), utf8_count(input, n));
	assert_int_equal(collector_truncated(c), utf8_count(input, n) > limit);
	assert_null(collector_free(c));
}

static void expect(const char *input, size_t n, uint32_t limit, const struct cut *cut)
{
	struct buf want = BUF_INIT(TEXT_MAX), live = BUF_INIT(TEXT_MAX), text = BUF_INIT(TEXT_MAX);

	oracle(&want, input, n, limit);
	run(input, n, limit, cut, &live, &text);
	if (want.len != text.len || memcmp(buf_cstr(&want), buf_cstr(&text), want.len) != 0)
		fail_msg("limit %u, %zu bytes, pieces of %zu:\n%s\n--- instead of\n%s", limit, n,
		        cut->piece, buf_cstr(&text), buf_cstr(&want));
	assert_int_equal(live.len, text.len);
	assert_memory_equal(buf_cstr(&live), buf_cstr(&text), text.len);
	assert_int_equal(buf_error(&want) | buf_error(&live) | buf_error(&text), 0);
	buf_free(&want);
	buf_free(&live);
	buf_free(&text);
}

/* ---- inputs ---- */

static const char *const alphabet[] = {"a", "b", "0", "\n", "\xc3\xa4", "\xe2\x82\xac",
        "\xf0\x9f\x98\x80", "\xff", "\x80", "\xe2\x82", "\xf0\x9f\x98", "\xc3", "\xed\xa0\x80",
        "\xc0\xaf"};

enum kind { ASCII, MIXED, WIDE, ANY_BYTES, N_KINDS };

static size_t make(struct unit_random *rnd, char *out, size_t max, enum kind kind)
{
	size_t n = 0, len;

	while (n < max) {
		const char *s =
		        kind == ASCII ? alphabet[unit_below(rnd, 4)]
		        : kind == WIDE
		                ? "\xf0\x9f\x98\x80"
		                : alphabet[unit_below(rnd, sizeof(alphabet) / sizeof(alphabet[0]))];

		len = strlen(s);
		if (kind == ANY_BYTES) {
			out[n++] = (char)unit_next(rnd);
			continue;
		}
		if (len > max - n)
			break;
		memcpy(out + n, s, len);
		n += len;
	}
	return n;
}

/* Every limit from 0 to 200, inputs around it and far beyond, in several cuts. */
static void every_small_limit(void **state)
{
	struct unit_random rnd = {88172645463325252u};
	static const size_t pieces[] = {1, 2, 3, 7, 0, 100000};
	char *input = malloc(4000);
	uint32_t limit;
	size_t i, k, n, len;

	assert_non_null(input);
	for (limit = 0; limit <= 200; limit++) {
		const size_t lengths[] = {0, 1, limit > 0 ? limit - 1 : 0, limit, limit + 1,
		        limit + 2, limit + 9, limit + 40, limit * 2 + 11, 1000, 3000};

		for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			for (k = 0; k < N_KINDS; k++) {
				len = make(&rnd, input,
				        lengths[i] * (k == WIDE ? 4 : 1) > 4000
				                ? 4000
				                : lengths[i] * (k == WIDE ? 4 : 1),
				        (enum kind)k);
				n = (limit + i + k) % (sizeof(pieces) / sizeof(pieces[0]));
				expect(input, len, limit, &(struct cut){&rnd, pieces[n], 0});
				expect(input, len, limit, &(struct cut){&rnd, 1, i});
			}
		}
	}
	free(input);
}

static void random_ones(void **state)
{
	struct unit_random rnd = {0x2545f4914f6cdd1d};
	char *input = malloc(60000);
	size_t i, n;

	assert_non_null(input);
	for (i = 0; i < 400; i++) {
		n = make(&rnd, input, unit_below(&rnd, i % 8 == 0 ? 60000 : 4000),
		        (enum kind)(i % N_KINDS));
		expect(input, n, (uint32_t)unit_below(&rnd, 3000),
		        &(struct cut){&rnd, 0, unit_below(&rnd, 4)});
	}
	free(input);
}

/* The usual limit, with more than it takes, in the reads that a pipe gives. */
static void usual_limit(void **state)
{
	struct unit_random rnd = {99};
	char *input = malloc(1000000);
	size_t n, k;

	assert_non_null(input);
	for (k = 0; k < N_KINDS; k++) {
		n = make(&rnd, input, 1000000, (enum kind)k);
		expect(input, n, 16384, &(struct cut){&rnd, 4096, 0});
		expect(input, n, 65536, &(struct cut){&rnd, 65536, 0});
	}
	free(input);
}

static void known_texts(void **state)
{
	struct buf live = BUF_INIT(1000), text = BUF_INIT(1000);
	char input[200];

	memset(input, 'a', 100);
	memset(input + 100, 'z', 100);
	run(input, 200, 60, &(struct cut){.piece = 64}, &live, &text);
	/* 30 + a line of 30 + 0, and then nothing is left for the tail: the number has three
	 * digits. */
	assert_string_equal(
	        buf_cstr(&text), "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n[… 170 characters omitted …]\n");
	buf_reset(&text);
	buf_reset(&live);
	run(input, 200, 70, &(struct cut){.piece = 64}, &live, &text);
	assert_string_equal(buf_cstr(&text),
	        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n[… 160 characters omitted …]\nzzzzz");
	buf_reset(&text);
	buf_reset(&live);
	run(input, 200, 6, &(struct cut){.piece = 64}, &live, &text);
	assert_string_equal(buf_cstr(&text), "aaa…zz");
	buf_free(&text);
	buf_free(&live);
}

/* A character that is cut between two reads is one character; one that never ends is one U+FFFD. */
static void cut_characters(void **state)
{
	struct buf live = BUF_INIT(1000), text = BUF_INIT(1000);

	run("\xe2\x82\xac\xe4\xb8", 5, 10, &(struct cut){.piece = 1}, &live, &text);
	assert_string_equal(buf_cstr(&text), "\xe2\x82\xac\xef\xbf\xbd");
	buf_reset(&text);
	buf_reset(&live);
	run("\xf0\x9f"
	    "A\xf0\x9f\x98"
	    "\xf0\x9f\x98\x80",
	        10, 10, &(struct cut){.piece = 1}, &live, &text);
	assert_string_equal(buf_cstr(&text), "\xef\xbf\xbd"
	                                     "A"
	                                     "\xef\xbf\xbd"
	                                     "\xf0\x9f\x98\x80");
	buf_free(&text);
	buf_free(&live);
}

/* A NUL is a character like any other. */
static void nul_bytes(void **state)
{
	struct unit_random rnd = {5};
	char input[300] = {0};

	expect(input, sizeof(input), 1000, &(struct cut){&rnd, 7, 0});
	expect(input, sizeof(input), 100, &(struct cut){&rnd, 7, 0});
}

/* A hundred megabytes cost what the limit costs. */
static void bounded_memory(void **state)
{
	struct collector *c = collector_new(16384);
	static char block[65536];
	int i;

	memset(block, 'y', sizeof(block));
	for (i = 0; i < 1600; i++) {
		assert_int_equal(collector_feed(c, block, sizeof(block), NULL), 0);
		assert_true(collector_bytes_held(c) <= 16384 * 2 + SMALL);
	}
	assert_int_equal(collector_end(c, NULL), 0);
	assert_int_equal(
	        collector_text(c).n, 16384 + 4); /* the line's two dots take three bytes each */
	assert_int_equal(collector_chars(c), UINT64_C(1600) * 65536);
	collector_free(c);
	assert_null(collector_free(NULL));
}

/* Nobody can make a collector hold much by asking for much. */
static void lazy_memory(void **state)
{
	struct collector *c = collector_new(UINT32_MAX);

	assert_true(collector_bytes_held(c) < SMALL);
	assert_int_equal(collector_feed(c, "hello", 5, NULL), 0);
	assert_true(collector_bytes_held(c) < SMALL);
	assert_int_equal(collector_end(c, NULL), 0);
	assert_int_equal(collector_text(c).n, 5);
	collector_free(c);
}

/* Live that is full says so. */
static void live_too_small(void **state)
{
	struct collector *c = collector_new(100);
	struct buf live = BUF_INIT(3);

	assert_int_equal(collector_feed(c, "abcd", 4, &live), -ERR_TOO_LARGE);
	collector_free(c);
	buf_free(&live);
}

static void feed_after_end(void *arg)
{
	collector_end(arg, NULL);
	collector_feed(arg, "x", 1, NULL);
}

static void text_before_end(void *arg)
{
	collector_text(arg);
}

static void misuse(void **state)
{
	struct collector *c = collector_new(10);

	assert_true(unit_aborts(text_before_end, c));
	assert_true(unit_aborts(feed_after_end, c));
	collector_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_small_limit),
	        cmocka_unit_test(random_ones),
	        cmocka_unit_test(usual_limit),
	        cmocka_unit_test(known_texts),
	        cmocka_unit_test(cut_characters),
	        cmocka_unit_test(nul_bytes),
	        cmocka_unit_test(bounded_memory),
	        cmocka_unit_test(lazy_memory),
	        cmocka_unit_test(live_too_small),
	        cmocka_unit_test(misuse),
	};

	return UNIT_RUN(tests);
}
