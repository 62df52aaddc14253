/*
 * Bad framing against the real server: what is sent, and what status must come back (0: closed
 * without an answer). Behind each case a second request is sent; it must never reach the handler,
 * and the connection must be closed by the server. Every case runs twice, sent whole and in single
 * bytes.
 */
#include "serve.h"

#include <sys/socket.h>

#define HOST     "Host: a\r\n"
#define POST     "POST /echo HTTP/1.1\r\n" HOST
#define CHUNKED  POST "Transfer-Encoding: chunked\r\n\r\n"
#define SMUGGLED "GET /smuggled HTTP/1.1\r\n" HOST "\r\n"

static const struct bad_case {
	const char *name;
	const char *bytes;
	size_t n; /* 0: strlen */
	int status;
} cases[] = {
        /* the request line */
        {"no version", "GET /echo\r\n" HOST "\r\n", 0, 400},
        {"HTTP/0.9", "GET /echo\r\n", 0, 400},
        {"bare LF after the request line", "GET /echo HTTP/1.1\n" HOST "\r\n", 0, 400},
        {"bare LF after a header", "GET /echo HTTP/1.1\r\nHost: a\n\r\n", 0, 400},
        {"bare LF for the empty line", "GET /echo HTTP/1.1\r\n" HOST "\n", 0, 400},
        {"bare CR in the request line", "GET /echo\rX HTTP/1.1\r\n" HOST "\r\n", 0, 400},
        {"bare CR in a value", "GET /echo HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", 0, 400},
        {"CR CR LF", "GET /echo HTTP/1.1\r\r\n" HOST "\r\n", 0, 400},
        {"two spaces before the target", "GET  /echo HTTP/1.1\r\n" HOST "\r\n", 0, 400},
        {"two spaces before the version", "GET /echo  HTTP/1.1\r\n" HOST "\r\n", 0, 400},
        {"space after the version", "GET /echo HTTP/1.1 \r\n" HOST "\r\n", 0, 400},
        {"tab for a space", "GET\t/echo HTTP/1.1\r\n" HOST "\r\n", 0, 400},
        {"space before the method", " GET /echo HTTP/1.1\r\n" HOST "\r\n", 0, 400},
        {"two empty lines first", "\r\n\r\nGET /echo HTTP/1.1\r\n" HOST "\r\n", 0, 400},
        {"NUL in the target", "GET /ec\0ho HTTP/1.1\r\n" HOST "\r\n", 33, 400},
        {"control byte in the target", "GET /ec\x01ho HTTP/1.1\r\n" HOST "\r\n", 0, 400},
        {"a byte above ASCII in the target", "GET /\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n", 0, 400},
        {"fragment in the target", "GET /echo#x HTTP/1.1\r\n" HOST "\r\n", 0, 400},
        {"target without a slash", "GET echo HTTP/1.1\r\n" HOST "\r\n", 0, 400},
        {"asterisk with GET", "GET * HTTP/1.1\r\n" HOST "\r\n", 0, 400},
        {"absolute target of another scheme", "GET ftp://a/echo HTTP/1.1\r\n" HOST "\r\n", 0, 400},
        {"absolute target without a host", "GET http:///echo HTTP/1.1\r\n" HOST "\r\n", 0, 400},
        {"absolute target with a user", "GET http://u@a/echo HTTP/1.1\r\n" HOST "\r\n", 0, 400},
        {"bad method", "GE{T /echo HTTP/1.1\r\n" HOST "\r\n", 0, 400},
        {"long method", "GETGETGETGETGETGETGETGETGETGETGETGETGET /echo HTTP/1.1\r\n" HOST "\r\n", 0,
                400},
        {"unknown method", "BREW /echo HTTP/1.1\r\n" HOST "\r\n", 0, 501},
        {"lower-case method", "get /echo HTTP/1.1\r\n" HOST "\r\n", 0, 501},
        {"CONNECT", "CONNECT a:443 HTTP/1.1\r\n" HOST "\r\n", 0, 501},
        {"TRACE", "TRACE /echo HTTP/1.1\r\n" HOST "\r\n", 0, 501},
        {"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, 505},
        {"HTTP/1.2", "GET /echo HTTP/1.2\r\n" HOST "\r\n", 0, 505},
        {"lower-case version", "GET /echo http/1.1\r\n" HOST "\r\n", 0, 400},
        {"version with a longer number", "GET /echo HTTP/1.10\r\n" HOST "\r\n", 0, 400},
        {"a TLS hello", "\x16\x03\x01\x02", 0, 400},
        /* headers */
        {"space before the colon", "GET /echo HTTP/1.1\r\nHost : a\r\n\r\n", 0, 400},
        {"tab before the colon", "GET /echo HTTP/1.1\r\nHost\t: a\r\n\r\n", 0, 400},
        {"no colon", "GET /echo HTTP/1.1\r\n" HOST "Nothing\r\n\r\n", 0, 400},
        {"empty name", "GET /echo HTTP/1.1\r\n" HOST ": x\r\n\r\n", 0, 400},
        {"folded header", "GET /echo HTTP/1.1\r\n" HOST "X: a\r\n b\r\n\r\n", 0, 400},
        {"folded by a tab", "GET /echo HTTP/1.1\r\n" HOST "X: a\r\n\tb\r\n\r\n", 0, 400},
        {"space before the first header", "GET /echo HTTP/1.1\r\n Host: a\r\n\r\n", 0, 400},
        {"NUL in a value", "GET /echo HTTP/1.1\r\n" HOST "X: a\0b\r\n\r\n", 39, 400},
        {"control byte in a value", "GET /echo HTTP/1.1\r\n" HOST "X: a\x07\r\n\r\n", 0, 400},
        {"DEL in a value", "GET /echo HTTP/1.1\r\n" HOST "X: a\x7f\r\n\r\n", 0, 400},
        {"quote in a name", "GET /echo HTTP/1.1\r\n" HOST "\"X\": a\r\n\r\n", 0, 400},
        {"byte above ASCII in a name", "GET /echo HTTP/1.1\r\n" HOST "X\xff: a\r\n\r\n", 0, 400},
        {"no Host", "GET /echo HTTP/1.1\r\n\r\n", 0, 400},
        {"two Hosts", "GET /echo HTTP/1.1\r\n" HOST "Host: b\r\n\r\n", 0, 400},
        {"two equal Hosts", "GET /echo HTTP/1.1\r\n" HOST HOST "\r\n", 0, 400},
        {"empty Host", "GET /echo HTTP/1.1\r\nHost:\r\n\r\n", 0, 400},
        {"user in Host", "GET /echo HTTP/1.1\r\nHost: u@a\r\n\r\n", 0, 400},
        {"path in Host", "GET /echo HTTP/1.1\r\nHost: a/b\r\n\r\n", 0, 400},
        {"two names in Host", "GET /echo HTTP/1.1\r\nHost: a b\r\n\r\n", 0, 400},
        {"letters for Host's port", "GET /echo HTTP/1.1\r\nHost: a:b\r\n\r\n", 0, 400},
        {"unknown expectation", POST "Expect: 200-ok\r\nContent-Length: 1\r\n\r\nx", 0, 417},
        /* Content-Length */
        {"two lengths", POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", 0, 400},
        {"two equal lengths", POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 0, 400},
        {"a list of lengths", POST "Content-Length: 5, 5\r\n\r\nhello", 0, 400},
        {"negative length", POST "Content-Length: -1\r\n\r\n", 0, 400},
        {"signed length", POST "Content-Length: +5\r\n\r\nhello", 0, 400},
        {"hexadecimal length", POST "Content-Length: 0x5\r\n\r\nhello", 0, 400},
        {"length with a space within", POST "Content-Length: 1 0\r\n\r\nhello", 0, 400},
        {"empty length", POST "Content-Length:\r\n\r\n", 0, 400},
        {"fractional length", POST "Content-Length: 5.0\r\n\r\nhello", 0, 400},
        {"length past 64 bits", POST "Content-Length: 18446744073709551621\r\n\r\nhello", 0, 413},
        {"HTTP/1.0 POST without a length", "POST /echo HTTP/1.0\r\n" HOST "\r\nhello", 0, 411},
        /* Transfer-Encoding */
        {"length and chunked",
                POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, 400},
        {"chunked and length",
                POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 0, 400},
        {"chunked in HTTP/1.0",
                "POST /echo HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0,
                400},
        {"gzip, chunked", POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 0, 400},
        {"chunked, identity", POST "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 0, 400},
        {"chunked twice in a list", POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 0,
                400},
        {"chunked twice",
                POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0,
                400},
        {"identity", POST "Transfer-Encoding: identity\r\n\r\n", 0, 400},
        {"xchunked", POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 0, 400},
        {"quoted chunked", POST "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 0, 400},
        {"vertical tab before chunked",
                POST "Transfer-Encoding: \x0b"
                     "chunked\r\n\r\n0\r\n\r\n",
                0, 400},
        {"space before the colon of chunked", POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
                0, 400},
        {"empty transfer coding", POST "Transfer-Encoding:\r\n\r\n", 0, 400},
        /* chunks */
        {"no chunk size", CHUNKED "\r\nhello\r\n0\r\n\r\n", 0, 400},
        {"letters for a size", CHUNKED "xyz\r\nhello\r\n0\r\n\r\n", 0, 400},
        {"0x before a size", CHUNKED "0x5\r\nhello\r\n0\r\n\r\n", 0, 400},
        {"negative size", CHUNKED "-5\r\nhello\r\n0\r\n\r\n", 0, 400},
        {"signed size", CHUNKED "+5\r\nhello\r\n0\r\n\r\n", 0, 400},
        {"space before a size", CHUNKED " 5\r\nhello\r\n0\r\n\r\n", 0, 400},
        {"space after a size", CHUNKED "5 \r\nhello\r\n0\r\n\r\n", 0, 400},
        {"size past 64 bits", CHUNKED "10000000000000005\r\nhello\r\n0\r\n\r\n", 0, 400},
        {"many zeros before a size", CHUNKED "00000000000000005\r\nhello\r\n0\r\n\r\n", 0, 400},
        {"bare LF after a size", CHUNKED "5\nhello\r\n0\r\n\r\n", 0, 400},
        {"bare CR after a size", CHUNKED "5\rhello\r\n0\r\n\r\n", 0, 400},
        {"chunk longer than its size", CHUNKED "5\r\nhello!\r\n0\r\n\r\n", 0, 400},
        {"chunk shorter than its size", CHUNKED "6\r\nhello\r\n0\r\n\r\n", 0, 400},
        {"bare LF after chunk data", CHUNKED "5\r\nhello\n0\r\n\r\n", 0, 400},
        {"extension without a name", CHUNKED "5;\r\nhello\r\n0\r\n\r\n", 0, 400},
        {"control byte in an extension", CHUNKED "5;a=\x01\r\nhello\r\n0\r\n\r\n", 0, 400},
        {"bare LF in an extension", CHUNKED "5;a\nhello\r\n0\r\n\r\n", 0, 400},
        {"space before a trailer's colon", CHUNKED "0\r\nX : a\r\n\r\n", 0, 400},
        {"folded trailer", CHUNKED "0\r\nX: a\r\n b\r\n\r\n", 0, 400},
        {"trailer without a colon", CHUNKED "0\r\nX\r\n\r\n", 0, 400},
        {"bare LF after the last chunk", CHUNKED "0\r\n\n", 0, 400},
};

static void run_case(const struct bad_case *c, bool single_bytes)
{
	_cleanup_buf_ struct buf sent = BUF_INIT(1 << 20), answer = BUF_INIT(1 << 20);
	size_t errors = serve.n_errors;
	bool closed;

	buf_append(&sent, c->bytes, c->n ? c->n : strlen(c->bytes));
	buf_puts(&sent, SMUGGLED);
	serve_ask(sent.data, sent.len, single_bytes, &answer, &closed, 3000);
	if (!closed)
		fail_msg("%s: the connection was not closed", c->name);
	if (serve_status(&answer) != c->status)
		fail_msg("%s: %d for %d", c->name, serve_status(&answer), c->status);
	if (count_of(&answer, "HTTP/1.1 ") != 1 ||
	        count_of(&answer, "Connection: close\r\n") != 1 ||
	        count_of(&answer, "Content-Type: application/json\r\n") != 1)
		fail_msg("%s: an odd answer: %s", c->name, buf_cstr(&answer));
	if (serve.n_errors != errors + 1 || serve.last_error != c->status)
		fail_msg("%s: the handler was not asked for the body", c->name);
	if (serve_count("/smuggled") > 0)
		fail_msg("%s: what followed was taken for a request", c->name);
}

static void test_bad_framing(void **state)
{
	size_t i, n, requests = 0;

	serve_start(NULL);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		run_case(&cases[i], false);
		run_case(&cases[i], true);
	}
	/* Not one of them reached on_request. */
	for (n = 0; n < serve.n_records; n++)
		requests += serve.records[n]->n_requests;
	assert_int_equal(requests, 0);
	loop_ms(10);
	assert_int_equal(http_server_open_exchanges(serve.server), 0);
	serve_stop();
}

static void bounded(const char *begin, const char *repeat, size_t times, int status)
{
	_cleanup_buf_ struct buf sent = BUF_INIT(64 << 20);
	struct bad_case c = {begin, NULL, 0, status};
	size_t i;

	buf_puts(&sent, begin);
	for (i = 0; i < times; i++)
		buf_puts(&sent, repeat);
	c.bytes = sent.data;
	c.n = sent.len;
	run_case(&c, false);
}

static void test_bounds(void **state)
{
	serve_start(NULL);
	bounded("GET /", "a", 70000, 431);
	bounded("GET /echo HTTP/1.1\r\n" HOST "X: ", "a", 70000, 431);
	bounded("GET /echo HTTP/1.1\r\n" HOST, "X: a\r\n", 120, 431);
	bounded("GET /echo HTTP/1.1\r\n" HOST "X", "a", 70000, 431);
	bounded(CHUNKED "5;a", "b", 2000, 400);
	bounded(CHUNKED, "1;ab=cdefghijklmnopqrstuvwxyz\r\nx\r\n", 2000, 400);
	bounded(CHUNKED "0\r\nX: ", "a", 9000, 431);
	bounded(CHUNKED "0\r\n", "X: a\r\n", 2000, 431);
	serve_stop();
}

/* The client goes away in the middle: nothing is answered, nothing is handled. */
static void test_cut_requests(void **state)
{
	static const char *const cut[] = {"G", "GET /echo HTTP/1.1\r\nHost", "\r", "\r\n",
	        "GET /echo HTTP/1.1\r\n" HOST "\r", POST "Content-Length: 5\r\n\r\nhell",
	        CHUNKED "5\r\nhello\r\n", CHUNKED "5\r\nhello\r\n0\r\n", CHUNKED "0\r\nX: a\r\n"};
	size_t i;

	serve_start(NULL);
	for (i = 0; i < sizeof(cut) / sizeof(cut[0]); i++) {
		_cleanup_buf_ struct buf answer = BUF_INIT(65536);
		int fd = socket_connect(serve.port);

		socket_send(fd, cut[i], strlen(cut[i]));
		loop_ms(5);
		assert_int_equal(shutdown(fd, SHUT_WR), 0);
		assert_true(socket_read_all(fd, &answer, 60000));
		assert_int_equal(answer.len, 0);
		close(fd);
	}
	for (i = 0; i < serve.n_records; i++) {
		assert_int_equal(serve.records[i]->n_requests, 0);
		assert_int_equal(serve.records[i]->n_gone, 1);
		assert_int_equal(serve.records[i]->why, HTTP_GONE_CLIENT);
	}
	assert_int_equal(serve.n_errors, 0);
	assert_int_equal(http_server_connections(serve.server), 0);
	serve_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_bad_framing),
	        cmocka_unit_test(test_bounds),
	        cmocka_unit_test(test_cut_requests),
	};

	return UNIT_RUN(tests);
}
