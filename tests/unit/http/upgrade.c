/* The opening handshake of WebSocket, and bytes both ways afterwards. */
#include "serve.h"

#include <unistd.h>

static int last;

static bool hook(struct record *r, struct http_exchange *x, enum hook where)
{
	const char *text = "";

	if (where == HOOK_BODY) {
		http_write(x, (struct str){r->body.data, r->body.len});
		if (str_ends((struct str){r->body.data, r->body.len}, "end"))
			http_finish(x);
		buf_reset(&r->body);
		return true;
	}
	if (where != HOOK_REQUEST)
		return false;
	last = http_upgrade_websocket(x, &text);
	if (last < 0)
		http_respond(x, -last, "text/plain", str_of(text));
	else
		assert_true(http_upgraded(x));
	return true;
}

#define LINE    "GET /w HTTP/1.1\r\nHost: a\r\n"
#define UPGRADE "Upgrade: websocket\r\nConnection: Upgrade\r\n"
#define VERSION "Sec-WebSocket-Version: 13\r\n"
#define KEY     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

static int status_of(const char *request)
{
	_cleanup_buf_ struct buf in = BUF_INIT(65536);
	int fd = socket_connect(serve.port);

	last = 1;
	assert_true(socket_send(fd, request, strlen(request)));
	LOOP_UNTIL((socket_read(fd, &in), holds(&in, "\r\n\r\n")), 60000);
	close(fd);
	return serve_status(&in);
}

static void test_handshake(void **state)
{
	static const struct {
		int status;
		const char *request;
	} cases[] = {
	        {101, LINE UPGRADE VERSION KEY "\r\n"},
	        {101, LINE "upgrade: WebSocket\r\nconnection: keep-alive , UPGRADE\r\n" VERSION KEY
	                   "\r\n"},
	        {426, LINE "\r\n"},
	        {426, LINE "Upgrade: websocket\r\n" VERSION KEY "\r\n"},
	        {426, LINE "Connection: Upgrade\r\n" VERSION KEY "\r\n"},
	        {426, LINE "Upgrade: websocket, h2c\r\nConnection: Upgrade\r\n" VERSION KEY "\r\n"},
	        {426, LINE "Upgrade: websocket\r\n" UPGRADE VERSION KEY "\r\n"},
	        {426, LINE "Upgrade: websocket\r\nConnection: Upgraded\r\n" VERSION KEY "\r\n"},
	        {426, LINE UPGRADE KEY "\r\n"},
	        {426, LINE UPGRADE KEY VERSION VERSION "\r\n"},
	        {426, LINE UPGRADE KEY "Sec-WebSocket-Version: 8\r\n\r\n"},
	        {400, LINE UPGRADE VERSION "\r\n"},
	        {400, LINE UPGRADE VERSION KEY KEY "\r\n"},
	        {400, LINE UPGRADE VERSION "Sec-WebSocket-Key: \r\n\r\n"},
	        {400, LINE UPGRADE VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=\r\n\r\n"},
	        {400, LINE UPGRADE VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZR==\r\n\r\n"},
	        {400, LINE UPGRADE VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j!Q==\r\n\r\n"},
	        {400, LINE UPGRADE VERSION KEY "Content-Length: 1\r\n\r\nx"},
	        {400, LINE UPGRADE VERSION KEY "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	        {400, "POST /w HTTP/1.1\r\nHost: a\r\n" UPGRADE VERSION KEY "\r\n"},
	        {400, "HEAD /w HTTP/1.1\r\nHost: a\r\n" UPGRADE VERSION KEY "\r\n"},
	        {400, "GET /w HTTP/1.0\r\nHost: a\r\n" UPGRADE VERSION KEY "\r\n"},
	};

	serve_start(NULL);
	serve.hook = hook;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int status = status_of(cases[i].request);

		if (status != cases[i].status)
			fail_msg("case %zu: %d, not %d", i, status, cases[i].status);
		assert_int_equal(last, status == 101 ? 0 : -status);
	}
	serve_stop();
}

/* The example of RFC 6455, 1.3; what comes with the head is the first of the bytes. */
static void test_bytes_both_ways(void **state)
{
	static const char ask[] = LINE UPGRADE VERSION KEY "\r\nraw bytes ";
	_cleanup_buf_ struct buf in = BUF_INIT(65536);
	int fd;

	serve_start(NULL);
	serve.hook = hook;
	fd = socket_connect(serve.port);
	assert_true(socket_send(fd, ask, strlen(ask)));
	LOOP_UNTIL((socket_read(fd, &in), holds(&in, "raw bytes ")), 60000);
	assert_true(holds(&in, "HTTP/1.1 101 Switching Protocols\r\n"));
	assert_true(holds(&in, "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
	assert_true(holds(&in, "\r\n\r\nraw bytes "));
	assert_false(holds(&in, "Transfer-Encoding"));
	assert_true(socket_send(fd, "to the end", 10));
	assert_true(socket_read_all(fd, &in, 60000));
	assert_true(holds(&in, "to the end"));
	close(fd);
	LOOP_UNTIL(serve.records[0]->n_gone == 1, 60000);
	assert_int_equal(serve.records[0]->why, HTTP_GONE_DONE);
	serve_stop();
}

static void test_a_client_that_goes(void **state)
{
	static const char ask[] = LINE UPGRADE VERSION KEY "\r\n";
	_cleanup_buf_ struct buf in = BUF_INIT(65536);
	int fd;

	serve_start(NULL);
	serve.hook = hook;
	fd = socket_connect(serve.port);
	assert_true(socket_send(fd, ask, strlen(ask)));
	LOOP_UNTIL((socket_read(fd, &in), holds(&in, "\r\n\r\n")), 60000);
	close(fd);
	LOOP_UNTIL(serve.records[0]->n_gone == 1, 60000);
	assert_int_equal(serve.records[0]->why, HTTP_GONE_CLIENT);
	serve_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_handshake),
	        cmocka_unit_test(test_bytes_both_ways),
	        cmocka_unit_test(test_a_client_that_goes),
	};

	return UNIT_RUN(tests);
}
