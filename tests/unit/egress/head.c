#include "unit.h"

#include "egress/head.h"

#include <string.h>

/* The status that the head is refused with, 0: none; -1: it has no end. */
static int judge(const char *p, struct egress_head *h)
{
	const char *why = NULL;
	size_t scanned = 0;
	long end = 0;
	int status;

	/* Byte by byte and at once must agree. */
	for (size_t n = 1; n <= strlen(p) && end == 0; n++)
		end = egress_head_end(p, n, &scanned, &why);
	scanned = 0;
	assert_int_equal(egress_head_end(p, strlen(p), &scanned, &why), end);
	if (end == 0)
		return -1;
	if (end < 0)
		return 400;
	status = egress_head_read((struct str){p, (size_t)end}, h, &why);
	assert_true(status == 0 || (why && strlen(why) < 32));
	return status;
}

static void good(void **state)
{
	struct egress_head h;

	assert_int_equal(judge("GET / HTTP/1.1\r\nHost: A.b.:80\r\n\r\nrest", &h), 0);
	assert_string_equal(h.host, "a.b");
	assert_false(h.is_head || h.websocket || h.chunked || h.length);
	assert_int_equal(judge("HEAD http://a.b:80?x HTTP/1.1\r\nhost:a.b\r\nX:\r\n\r\n", &h), 0);
	assert_true(h.is_head);
	assert_int_equal(
	        judge("PUT /\xff HTTP/1.0\r\nHost: a\r\nContent-Length: 07\r\n\r\n", &h), 0);
	assert_int_equal(h.length, 7);
	assert_int_equal(
	        judge("P / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n", &h), 0);
	assert_true(h.chunked);
	assert_int_equal(
	        judge("OPTIONS * HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n", &h), 0);
	assert_true(h.websocket);
}

/* The offer of HTTP/2 goes, and nothing else. */
static void h2c(void **state)
{
	static const struct {
		const char *head, *left;
	} CASES[] = {
	        {"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "
	         "h2c\r\nHTTP2-Settings: AAMA\r\nX: upgrade\r\n\r\n",
	                "GET / HTTP/1.1\r\nHost: a\r\nX: upgrade\r\n\r\n"},
	        {"POST / HTTP/1.1\r\nHTTP2-settings:x\r\nupgrade:\tH2C \r\nconnection:close,,a , "
	         "UPGRADE\r\nContent-Length: 4\r\nHost: a\r\nconnection: b\r\n\r\n",
	                "POST / HTTP/1.1\r\nConnection:close,a\r\nContent-Length: 4\r\nHost: "
	                "a\r\nConnection:b\r\n\r\n"},
	        {"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection:\r\n\r\n",
	                "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
	};
	struct egress_head h;

	for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
		_cleanup_buf_ struct buf out = BUF_INIT(EGRESS_HEAD_MAX);

		assert_int_equal(judge(CASES[i].head, &h), 0);
		assert_true(h.h2c && !h.websocket);
		egress_head_without_h2c(str_of(CASES[i].head), &out);
		assert_string_equal(buf_cstr(&out), CASES[i].left);
	}
}

static void bad(void **state)
{
	static const struct {
		int status;
		const char *head;
	} CASES[] = {{400, "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"},
	        {400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"},
	        {400, "GET / HTTP/1.1 \r\nHost: a\r\n\r\n"},
	        {400, "GET / http/1.1\r\nHost: a\r\n\r\n"},
	        {400, "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"},
	        {400, "G(T / HTTP/1.1\r\nHost: a\r\n\r\n"},
	        {400, "GET * HTTP/1.1\r\nHost: a\r\n\r\n"},
	        {400, "GET http:// HTTP/1.1\r\nHost: a\r\n\r\n"},
	        {400, "GET http://a%2eb/ HTTP/1.1\r\nHost: a.b\r\n\r\n"},
	        {400, "GET http://a.b\\@c/ HTTP/1.1\r\nHost: a.b\r\n\r\n"},
	        {400, "GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n"},
	        {400, "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n"},
	        {400, "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n"},
	        {400, "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked,\r\n\r\n"},
	        {400, "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n"},
	        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n"},
	        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"},
	        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\n"},
	        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\n"},
	        {400, "GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n"},
	        {400, "GET / HTTP/1.1\r\nHost: .\r\n\r\n"},
	        {400, "GET / HTTP/1.1\r\nHost: .a\r\n\r\n"},
	        {400, "GET / HTTP/1.1\r\nHost: a:080\r\n\r\n"},
	        {400, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nContent-Length: "
	              "1\r\n\r\n"},
	        {520, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n\r\n"},
	        {520, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nUpgrade: h2c\r\n\r\n"},
	        {520, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c, websocket\r\n\r\n"},
	        {520, "GET / HTTP/1.1\r\nHost: a\r\nHTTP2-Settings: AAMA\r\n\r\n"},
	        {520, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nHTTP2-Settings: "
	              "AAMA\r\n\r\n"},
	        {520, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: TLS/1.0\r\n\r\n"},
	        {520, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade:\r\n\r\n"},
	        {-1, "GET / HTTP/1.1\r\nHost: a\r\n"}};
	struct egress_head h;

	for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
		if (judge(CASES[i].head, &h) != CASES[i].status)
			fail_msg("%d for %s", judge(CASES[i].head, &h), CASES[i].head);
}

/* How many bytes are the body's, or -1; the same in any cut. */
static long chunks(const char *p, size_t cut)
{
	struct egress_chunks k;
	size_t n = strlen(p), at = 0, used;
	int r = 0;

	egress_chunks_init(&k);
	while (at < n && r == 0) {
		r = egress_chunks_feed(&k, p + at, n - at < cut ? n - at : cut, &used);
		at += used;
	}
	return r < 0 ? -1 : r > 0 ? (long)at : 0;
}

static void chunked(void **state)
{
	static const struct {
		const char *body;
		long end;
	} CASES[] = {{"0\r\n\r\nGET", 5}, {"3\r\nabc\r\n0\r\nA: b\r\nC:\r\n\r\nx", 23},
	        {"00A\r\n0123456789\r\n0\r\n\r\n", 22}, {"3\r\nabc\r\n", 0}, {"3\r\nabc\n", -1},
	        {"3\nabc", -1}, {"3\rx", -1}, {"g\r\n", -1}, {"\r\n", -1}, {"-1\r\n", -1},
	        {"3 \r\n", -1}, {"3;a\r\n", -1}, {"1234567890abcdef\r\n", -1},
	        {"0\r\n a\r\n\r\n", -1}, {"0\r\na\r\n\r\n", -1}, {"0\r\n\rx", -1},
	        {"0\r\nA: \x01\r\n\r\n", -1}};

	for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
		for (size_t cut = 1; cut < 40; cut += 3)
			if (chunks(CASES[i].body, cut) != CASES[i].end)
				fail_msg("%ld for %s", chunks(CASES[i].body, cut), CASES[i].body);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(good), cmocka_unit_test(h2c),
	        cmocka_unit_test(bad), cmocka_unit_test(chunked)};

	return UNIT_RUN(tests);
}
