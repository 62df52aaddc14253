/* The grammar alone: the result must not depend on how the bytes are cut. */
#include "harness.h"

#include "http/parse.h"

static int feed_head(
        struct http_parse_head *h, const char *bytes, size_t n, size_t cut, size_t *ret_used)
{
	const char *text = NULL;
	size_t used = 0;
	int r;

	http_parse_head_init(h, 4096, 8);
	*ret_used = 0;
	r = http_parse_head_feed(h, bytes, cut, &used, &text);
	*ret_used = used;
	if (r == 0) {
		assert_int_equal(used, cut);
		r = http_parse_head_feed(h, bytes + cut, n - cut, &used, &text);
		*ret_used += used;
	}
	assert_true(r >= 0 || (text && text[0]));
	return r;
}

static void test_head_cut_anywhere(void **state)
{
	static const char bytes[] = "POST /a%20b?c=d&e HTTP/1.1\r\nHost: a.b:80\r\n"
	                            "X-Trim:\t  v w \t\r\nX-Empty:\r\nContent-Length: 0005\r\n"
	                            "content-encoding: GZIP\r\nConnection: keep-alive , Close\r\n"
	                            "Expect: 100-Continue\r\n\r\nhello";
	struct http_parse_head h;
	size_t cut, used;

	for (cut = 0; cut < sizeof(bytes); cut++) {
		assert_int_equal(feed_head(&h, bytes, sizeof(bytes) - 1, cut, &used), 1);
		assert_int_equal(used, sizeof(bytes) - 1 - 5);
		assert_true(str_is(http_parse_head_str(&h, h.method, h.method_len), "POST"));
		assert_true(str_is(http_parse_head_str(&h, h.path, h.path_len), "/a%20b"));
		assert_true(str_is(http_parse_head_str(&h, h.query, h.query_len), "c=d&e"));
		assert_true(str_is(http_parse_head_field(&h, "x-trim"), "v w"));
		assert_true(str_is(http_parse_head_field(&h, "x-empty"), ""));
		assert_null(http_parse_head_field(&h, "x").p);
		assert_int_equal(h.length, 5);
		assert_int_equal(h.coding, HTTP_CODING_GZIP);
		assert_true(h.has_length && h.expect_continue && !h.keep_alive && !h.chunked);
		assert_int_equal(h.minor, 1);
		http_parse_head_free(&h);
	}
}

static void test_refusal_cut_anywhere(void **state)
{
	static const struct {
		const char *bytes;
		int status;
	} cases[] = {
	        {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
	        {"GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n", 400},
	        {"GET / HTTP/1.1\nHost: a\r\n\r\n", 400},
	        {"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505},
	        {"GOT / HTTP/1.1\r\nHost: a\r\n\r\n", 501},
	        {"GET / HTTP/1.1\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\n\r\n",
	                431},
	};
	struct http_parse_head h;
	size_t i, cut, used, first;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t n = strlen(cases[i].bytes);

		first = 0;
		for (cut = 0; cut <= n; cut++) {
			assert_int_equal(
			        feed_head(&h, cases[i].bytes, n, cut, &used), -cases[i].status);
			if (cut == 0)
				first = used;
			assert_int_equal(used, first); /* refused at the same byte */
			http_parse_head_free(&h);
		}
	}
}

static void test_head_of_the_largest_size(void **state)
{
	char bytes[4200];
	struct http_parse_head h;
	size_t used;

	memset(bytes, 'a', sizeof(bytes));
	memcpy(bytes, "GET / HTTP/1.1\r\nHost: ", 22);
	memcpy(bytes + 4092, "\r\n\r\n", 4);
	assert_int_equal(feed_head(&h, bytes, 4096, 2000, &used), 1);
	assert_int_equal(used, 4096);
	http_parse_head_free(&h);
	memcpy(bytes + 4092, "a\r\n\r\n", 5);
	assert_int_equal(feed_head(&h, bytes, 4097, 2000, &used), -431);
	http_parse_head_free(&h);
}

/* Feeds with cuts from a bit pattern; gives back the body, the result and what was used. */
static int feed_chunks(
        const char *bytes, size_t n, uint64_t cuts, struct buf *body, size_t *ret_used)
{
	struct http_parse_chunk k;
	const char *text = NULL;
	size_t at = 0, end, used;
	struct str piece;
	int r = 0;

	http_parse_chunk_init(&k);
	buf_reset(body);
	while (r == 0 && at < n) {
		for (end = at + 1; end < n && !(cuts >> (end % 64) & 1); end++)
			;
		r = http_parse_chunk_feed(&k, bytes + at, end - at, &used, &piece, &text);
		assert_true(used <= end - at && (used > 0 || r != 0));
		assert_true(piece.n == 0 ||
		            (piece.p >= bytes + at && piece.p + piece.n <= bytes + end));
		if (piece.n > 2 && r == 0) {
			/* Some of it is given back and comes again. */
			http_parse_chunk_unread(&k, 1);
			piece.n--;
			used--;
		}
		buf_append(body, piece.p, piece.n);
		at += used;
	}
	*ret_used = at;
	return r;
}

static void test_chunks_cut_anywhere(void **state)
{
	static const char bytes[] =
	        "5\r\nhello\r\n6;a=b;c=\"d e\"\r\n world\r\n00\r\nX: y\r\nZ:\r\n\r\nGET";
	_cleanup_buf_ struct buf body = BUF_INIT(1000);
	struct unit_random random = {5};
	size_t used, i;

	for (i = 0; i < 5000; i++) {
		uint64_t cuts = i == 0 ? 0 : i == 1 ? UINT64_MAX : unit_next(&random);

		assert_int_equal(feed_chunks(bytes, sizeof(bytes) - 1, cuts, &body, &used), 1);
		assert_string_equal(buf_cstr(&body), "hello world");
		assert_int_equal(used, sizeof(bytes) - 1 - 3);
	}
}

static void test_large_chunk_sizes(void **state)
{
	struct http_parse_chunk k;
	const char *text;
	struct str piece;
	size_t used;

	http_parse_chunk_init(&k);
	assert_int_equal(
	        http_parse_chunk_feed(&k, "fffffffffffffff\r\nx", 18, &used, &piece, &text), 0);
	assert_int_equal(piece.n, 1);
	assert_true(k.left == 0xffffffffffffffeull);
	http_parse_chunk_init(&k);
	assert_int_equal(
	        http_parse_chunk_feed(&k, "1000000000000000\r\n", 18, &used, &piece, &text), -400);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_head_cut_anywhere),
	        cmocka_unit_test(test_refusal_cut_anywhere),
	        cmocka_unit_test(test_head_of_the_largest_size),
	        cmocka_unit_test(test_chunks_cut_anywhere),
	        cmocka_unit_test(test_large_chunk_sizes),
	};

	return UNIT_RUN(tests);
}
