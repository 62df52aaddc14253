/* What the server does with requests that are well-formed: bodies, limits, flow, keeping
 * connections. */
#include "serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <zlib.h>
#include <zstd.h>

#define HOST    "Host: a\r\n"
#define GET(p)  "GET " p " HTTP/1.1\r\n" HOST "\r\n"
#define POST(p) "POST " p " HTTP/1.1\r\n" HOST

/* The linker puts this in sendmsg's place: one answer, one write. */
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
static size_t n_sends;

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	n_sends++;
	return __real_sendmsg(fd, msg, flags);
}

static struct http_server_options small(void)
{
	struct http_server_options o;

	http_server_options_default(&o);
	return o;
}

static void say(int fd, const char *text)
{
	assert_true(socket_send(fd, text, strlen(text)));
}

/* Reads until text has come n times. */
static void expect_times(int fd, struct buf *in, const char *text, size_t n)
{
	LOOP_UNTIL((socket_read(fd, in), count_of(in, text) >= n), 60000);
	assert_int_equal(count_of(in, text), n);
}

static void expect(int fd, struct buf *in, const char *text)
{
	expect_times(fd, in, text, 1);
}

static void expect_closed(int fd, struct buf *in)
{
	assert_true(socket_read_all(fd, in, 60000));
}

#define ASK(text)                                                                                  \
	_cleanup_buf_ struct buf in = BUF_INIT(256u << 20);                                        \
	int fd = socket_connect(serve.port);                                                       \
	say(fd, text)

/* ---- simple ---- */

static void test_one_request_one_write(void **state)
{
	serve_start(NULL);
	{
		ASK(GET("/echo"));
		n_sends = 0;
		expect(fd, &in, "\r\n\r\nempty");
		assert_int_equal(n_sends, 1);
		assert_true(str_starts(str_of(in.data), "HTTP/1.1 200 OK\r\nDate: "));
		assert_true(holds(&in, "Content-Length: 5\r\n"));
		assert_false(holds(&in, "Connection"));
		close(fd);
	}
	serve_stop();
}

static void test_head_leaves_with_the_first_piece(void **state)
{
	struct http_exchange *x;

	serve_start(NULL);
	{
		ASK(GET("/open"));
		LOOP_UNTIL(serve.n_records == 1 && serve.records[0]->n_requests == 1, 60000);
		x = serve.records[0]->x;
		n_sends = 0;
		http_respond_start(x, 200, "text/event-stream");
		http_write(x, STR("data: 1\n\n"));
		assert_int_equal(n_sends, 1);
		http_write(x, STR("data: 2\n\n"));
		assert_int_equal(n_sends, 2);
		assert_int_equal(http_pending(x), 0);
		loop_ms(10);
		assert_int_equal(n_sends, 2);
		expect(fd, &in, "\r\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n");
		http_finish(x);
		expect(fd, &in, "\r\n0\r\n\r\n");
		LOOP_UNTIL(serve.records[0]->n_gone, 60000);
		assert_int_equal(serve.records[0]->why, HTTP_GONE_DONE);
		/* A head without a piece leaves on its own. */
		say(fd, GET("/stream"));
		expect_times(fd, &in, "HTTP/1.1 200 OK", 2);
		close(fd);
	}
	serve_stop();
}

static void test_single_bytes(void **state)
{
	static const char bytes[] =
	        POST("/echo?x=%20y&key=k") "Content-Length: 5\r\nX: \t v \t\r\n\r\nhello";
	_cleanup_buf_ struct buf in = BUF_INIT(65536);
	size_t i;
	int fd;

	serve_start(NULL);
	fd = socket_connect(serve.port);
	for (i = 0; i < sizeof(bytes) - 1; i++) {
		assert_true(socket_send(fd, bytes + i, 1));
		event_base_loop(loop_base(), EVLOOP_NONBLOCK);
	}
	expect(fd, &in, "\r\n\r\nhello");
	close(fd);
	serve_stop();
}

static bool look_at_request(struct record *r, struct http_exchange *x, enum hook where)
{
	_cleanup_buf_ struct buf out = BUF_INIT(100);
	char *body;
	size_t n;

	if (where != HOOK_REQUEST)
		return false;
	assert_true(str_is(http_request_method(x), "POST"));
	assert_true(str_is(http_request_target(x), "/a/b?x=%20y+z&key=k&bad=%zz&x=2"));
	assert_true(str_is(http_request_path(x), "/a/b"));
	assert_true(str_is(http_request_query(x), "x=%20y+z&key=k&bad=%zz&x=2"));
	assert_true(http_query_get(http_request_query(x), "x", &out));
	assert_string_equal(buf_cstr(&out), " y z");
	assert_true(http_query_get(http_request_query(x), "key", &out));
	assert_string_equal(buf_cstr(&out), "k");
	assert_false(http_query_get(http_request_query(x), "bad", &out));
	assert_false(http_query_get(http_request_query(x), "no", &out));
	assert_true(str_is(http_request_header(x, "x-multi"), "v"));
	assert_int_equal(http_request_header_count(x, "X-Multi"), 2);
	assert_int_equal(http_request_header(x, "X-Empty").n, 0);
	assert_non_null(http_request_header(x, "X-Empty").p);
	assert_null(http_request_header(x, "X-None").p);
	assert_true(str_starts(str_of(http_exchange_peer(x)), "127.0.0.1:"));
	assert_true(str_is(http_request_body(x), "hello"));
	body = http_request_take_body(x, &n);
	assert_int_equal(n, 5);
	assert_string_equal(body, "hello");
	free(body);
	assert_int_equal(http_request_body(x).n, 0);
	http_request_release(x);
	assert_null(http_request_target(x).p);
	assert_null(http_request_header(x, "host").p);
	http_respond_start(x, 200, NULL);
	http_write(x, STR("seen"));
	http_finish(x);
	return true;
}

static void test_request_is_told(void **state)
{
	serve_start(NULL);
	serve.hook = look_at_request;
	{
		ASK(POST("/a/b?x=%20y+z&key=k&bad=%zz&x=2") "Content-Length: 5\r\nX-Multi: \t v "
		                                            "\t\r\nX-Empty: \r\nx-multi: "
		                                            "w\r\n\r\nhello");
		expect(fd, &in, "4\r\nseen\r\n0\r\n\r\n");
		assert_int_equal(serve.records[0]->n_requests, 1);
		close(fd);
	}
	serve_stop();
}

static void test_targets(void **state)
{
	static const struct {
		const char *line, *path;
	} cases[] = {
	        {"GET http://a/b?c HTTP/1.1", "/b"},
	        {"GET HTTP://a:80?c HTTP/1.1", "/"},
	        {"GET https://a HTTP/1.1", "/"},
	        {"GET / HTTP/1.1", "/"},
	        {"GET /v1beta/models/m:generateContent?key=k HTTP/1.1",
	                "/v1beta/models/m:generateContent"},
	        {"GET /x?include[]=a HTTP/1.1", "/x"},
	        {"OPTIONS * HTTP/1.1", "*"},
	        {"\r\nGET /after-an-empty-line HTTP/1.1", "/after-an-empty-line"},
	};
	size_t i;

	serve_start(NULL);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		_cleanup_buf_ struct buf text = BUF_INIT(1000);
		buf_printf(&text, "%s\r\nHost: [::1]:8080\r\n\r\n", cases[i].line);
		ASK(text.data);
		expect(fd, &in, "200 OK");
		assert_string_equal(serve.records[i]->path, cases[i].path);
		close(fd);
	}
	serve_stop();
}

static void test_keep_alive(void **state)
{
	size_t i;

	serve_start(NULL);
	{
		ASK("");
		for (i = 0; i < 200; i++) {
			say(fd, i % 2 ? GET("/echo") : POST("/echo") "Content-Length: 2\r\n\r\nhi");
			expect_times(fd, &in, "HTTP/1.1 200 OK\r\n", i + 1);
		}
		assert_int_equal(http_server_connections(serve.server), 1);
		assert_int_equal(http_server_open_exchanges(serve.server), 0);
		say(fd, "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n");
		expect_closed(fd, &in);
		assert_int_equal(count_of(&in, "Connection: close\r\n"), 1);
		close(fd);
	}
	serve_stop();
}

static void test_pipelining_keeps_order(void **state)
{
	serve_start(NULL);
	{
		ASK(GET("/open") POST("/echo") "Content-Length: 3\r\n\r\ntwo" POST(
		        "/echo") "Transfer-Encoding: "
		                 "chunked\r\n\r\n5\r\nthree\r\n0\r\n\r\n" GET("/open"));
		LOOP_UNTIL(serve.n_records == 1, 60000);
		loop_ms(20);
		assert_int_equal(serve.n_records, 1); /* the others wait */
		http_respond(serve.records[0]->x, 200, "text/plain", STR("one"));
		LOOP_UNTIL(serve.n_records == 4, 60000);
		http_respond(serve.records[3]->x, 200, "text/plain", STR("four"));
		expect(fd, &in, "four");
		assert_true(strstr(in.data, "one") < strstr(in.data, "two"));
		assert_true(strstr(in.data, "two") < strstr(in.data, "three"));
		assert_true(strstr(in.data, "three") < strstr(in.data, "four"));
		close(fd);
	}
	serve_stop();
}

static void test_many_pipelined(void **state)
{
	_cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
	size_t i;

	for (i = 0; i < 2000; i++)
		buf_puts(&text, GET("/echo"));
	serve_start(NULL);
	{
		ASK(text.data);
		expect_times(fd, &in, "HTTP/1.1 200 OK\r\n", 2000);
		close(fd);
	}
	serve_stop();
}

static void test_head_request(void **state)
{
	serve_start(NULL);
	{
		ASK("HEAD /echo HTTP/1.1\r\n" HOST "\r\n");
		expect(fd, &in, "Content-Length: 5\r\n");
		say(fd, "HEAD /open HTTP/1.1\r\n" HOST "\r\n");
		LOOP_UNTIL(serve.n_records == 2, 60000);
		http_respond_start(serve.records[1]->x, 200, "text/plain");
		http_write(serve.records[1]->x, STR("dropped"));
		http_finish(serve.records[1]->x);
		expect(fd, &in, "Transfer-Encoding: chunked\r\n\r\n");
		say(fd, GET("/echo"));
		expect(fd, &in, "\r\n\r\nempty");
		assert_string_equal(serve.records[0]->method, "HEAD");
		assert_false(holds(&in, "dropped"));
		close(fd);
	}
	serve_stop();
}

static void test_http_1_0(void **state)
{
	serve_start(NULL);
	{
		ASK("GET /echo HTTP/1.0\r\n\r\n");
		expect_closed(fd, &in);
		assert_true(holds(&in, "Connection: close\r\n"));
		assert_true(str_ends(str_of(in.data), "\r\n\r\nempty"));
		close(fd);
	}
	{
		ASK("POST /echo HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi");
		expect(fd, &in, "Connection: keep-alive\r\n");
		say(fd, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
		LOOP_UNTIL(serve.n_records == 3, 60000);
		http_write(serve.records[2]->x, STR("piece "));
		http_write(serve.records[2]->x, STR("by piece"));
		http_finish(serve.records[2]->x);
		expect_closed(fd, &in);
		assert_true(str_ends(str_of(in.data), "Connection: close\r\n\r\npiece by piece"));
		close(fd);
	}
	serve_stop();
}

static void test_statuses_without_body(void **state)
{
	serve_start(NULL);
	{
		ASK(GET("/open"));
		LOOP_UNTIL(serve.n_records == 1, 60000);
		http_response_header(serve.records[0]->x, "X-A", "b");
		http_respond(serve.records[0]->x, 204, NULL, (struct str){NULL, 0});
		expect(fd, &in, "HTTP/1.1 204 No Content\r\n");
		expect(fd, &in, "X-A: b\r\n");
		assert_false(holds(&in, "Content-Length"));
		say(fd, GET("/echo"));
		expect(fd, &in, "empty");
		close(fd);
	}
	serve_stop();
}

static void test_sized_answer(void **state)
{
	serve_start(NULL);
	{
		ASK(GET("/open"));
		LOOP_UNTIL(serve.n_records == 1, 60000);
		http_respond_start_length(serve.records[0]->x, 200, "a/b", 10);
		http_write(serve.records[0]->x, STR("01234"));
		http_write(serve.records[0]->x, STR("56789 and more than was said"));
		http_finish(serve.records[0]->x);
		expect(fd, &in, "Content-Length: 10\r\n\r\n0123456789");
		say(fd, GET("/open"));
		LOOP_UNTIL(serve.n_records == 2, 60000);
		http_respond_start_length(serve.records[1]->x, 200, "a/b", 10);
		http_write(serve.records[1]->x, STR("short"));
		http_finish(serve.records[1]->x);
		expect_closed(fd, &in);
		LOOP_UNTIL(serve.records[1]->n_gone, 60000);
		assert_int_equal(serve.records[0]->why, HTTP_GONE_DONE);
		assert_int_equal(serve.records[1]->why, HTTP_GONE_ABORTED);
		close(fd);
	}
	serve_stop();
}

/* ---- bodies ---- */

static void test_expect_continue(void **state)
{
	serve_start(NULL);
	{
		ASK(POST("/echo") "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
		expect(fd, &in, "HTTP/1.1 100 Continue\r\n\r\n");
		assert_false(holds(&in, "200 OK"));
		say(fd, "hello");
		expect(fd, &in, "\r\n\r\nhello");
		assert_int_equal(count_of(&in, "100 Continue"), 1);
		/* Nothing is owed for a request without a body. */
		say(fd, "GET /echo HTTP/1.1\r\n" HOST "Expect: 100-continue\r\n\r\n");
		expect(fd, &in, "empty");
		assert_int_equal(count_of(&in, "100 Continue"), 1);
		close(fd);
	}
	{
		/* Refused before it is sent: no leave, and no more requests, since the client may
		 * send the body all the same. */
		ASK(POST("/early") "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
		expect_closed(fd, &in);
		assert_int_equal(serve_status(&in), 401);
		assert_true(holds(&in, "Connection: close\r\n"));
		close(fd);
	}
	{
		ASK(POST("/echo") "Expect: 100-continue\r\nContent-Length: 999999999\r\n\r\n");
		expect_closed(fd, &in);
		assert_int_equal(serve_status(&in), 413);
		close(fd);
	}
	serve_stop();
}

static void test_chunked(void **state)
{
	serve_start(NULL);
	{
		ASK(POST("/echo") "Transfer-Encoding: Chunked\r\n\r\n"
		                  "5;ext;q=\"a b\"\r\nhello\r\n00C\r\n, world and \r\n1\r\nx\r\n"
		                  "0;last\r\nContent-Length: 5\r\nHost: b\r\n\r\n" GET("/echo"));
		expect(fd, &in, "\r\n\r\nhello, world and x");
		expect(fd, &in, "empty");
		close(fd);
	}
	serve_stop();
}

static size_t gzip_of(const void *data, size_t n, unsigned char *out, size_t room)
{
	z_stream z = {.next_in = (unsigned char *)(uintptr_t)data,
	        .avail_in = (unsigned)n,
	        .next_out = out,
	        .avail_out = (unsigned)room};

	assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	deflateEnd(&z);
	return z.total_out;
}

static void say_coded(
        int fd, const char *path, const char *coding, const void *body, size_t n, bool chunked)
{
	_cleanup_buf_ struct buf text = BUF_INIT(64 << 20);

	buf_printf(&text, "POST %s HTTP/1.1\r\n" HOST "Content-Encoding: %s\r\n", path, coding);
	if (chunked)
		buf_printf(&text, "Transfer-Encoding: chunked\r\n\r\n%zx\r\n", n);
	else
		buf_printf(&text, "Content-Length: %zu\r\n\r\n", n);
	buf_append(&text, body, n);
	if (chunked)
		buf_puts(&text, "\r\n0\r\n\r\n");
	socket_send(fd, text.data, text.len);
}

static void test_coded_bodies(void **state)
{
	static char plain[300000];
	unsigned char *coded = malloc(400000);
	size_t i, n, m;

	assert_non_null(coded);
	for (i = 0; i < sizeof(plain); i++)
		plain[i] = (char)('a' + (i * i / 7) % 23);
	serve_start(NULL);
	{
		ASK("");
		n = gzip_of(plain, 1000, coded, 400000);
		m = gzip_of(plain + 1000, sizeof(plain) - 1000, coded + n, 400000 - n);
		say_coded(fd, "/echo", "gzip", coded, n + m, false); /* two members */
		expect(fd, &in, "Content-Length: 300000\r\n");
		LOOP_UNTIL((socket_read(fd, &in), in.len > 300000), 60000);
		assert_memory_equal(in.data + in.len - 300000, plain, 300000);
		buf_reset(&in);
		say_coded(fd, "/pieces", "x-gzip", coded, n + m, true);
		LOOP_UNTIL((socket_read(fd, &in), in.len > 300000), 60000);
		assert_memory_equal(in.data + in.len - 300000, plain, 300000);
		buf_reset(&in);
		n = ZSTD_compress(coded, 400000, plain, 1000, 3);
		m = ZSTD_compress(coded + n, 400000 - n, plain + 1000, sizeof(plain) - 1000, 3);
		say_coded(fd, "/echo", "Zstd", coded, n + m, true); /* two frames */
		LOOP_UNTIL((socket_read(fd, &in), in.len > 300000), 60000);
		assert_memory_equal(in.data + in.len - 300000, plain, 300000);
		buf_reset(&in);
		say_coded(fd, "/echo", "identity", "plain", 5, false);
		expect(fd, &in, "\r\n\r\nplain");
		assert_int_equal(http_server_connections(serve.server), 1);
		close(fd);
	}
	free(coded);
	serve_stop();
}

static void test_coded_wrongly(void **state)
{
	unsigned char gz[200], zs[200];
	size_t n_gz = gzip_of("hello hello hello", 17, gz, sizeof(gz) - 10);
	size_t n_zs = ZSTD_compress(zs, sizeof(zs) - 10, "hello hello hello", 17, 3);
	const struct {
		const char *coding;
		const void *body;
		size_t n;
		int status;
	} cases[] = {
	        {"gzip", gz, n_gz - 1, 400},
	        {"gzip", gz, n_gz - 9, 400},
	        {"gzip", gz, n_gz + 3, 400}, /* with what is no member behind it */
	        {"gzip", "not gzip at all", 15, 400},
	        {"zstd", zs, n_zs - 1, 400},
	        {"zstd", zs, n_zs + 5, 400},
	        {"zstd", "not zstd at all", 15, 400},
	        {"gzip", zs, n_zs, 400},
	        {"deflate", gz, n_gz, 415},
	        {"br", gz, n_gz, 415},
	        {"gzip, gzip", gz, n_gz, 415},
	        {"gzip\r\nContent-Encoding: gzip", gz, n_gz, 415},
	        {"\"gzip\"", gz, n_gz, 415},
	};
	size_t i;

	memset(gz + n_gz, 'x', 10);
	memset(zs + n_zs, 'x', 10);
	serve_start(NULL);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ASK("");
		say_coded(fd, "/echo", cases[i].coding, cases[i].body, cases[i].n, i % 2);
		expect_closed(fd, &in);
		if (serve_status(&in) != cases[i].status)
			fail_msg("case %zu: %s", i, buf_cstr(&in));
		assert_int_equal(
		        holds(&in, "Accept-Encoding: gzip, zstd\r\n"), cases[i].status == 415);
		assert_int_equal(serve.records[i]->n_requests, 0);
		close(fd);
	}
	serve_stop();
}

static long resident_kib(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%*d %ld", &pages), 1);
	fclose(f);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void bomb(const char *coding, const void *body, size_t n)
{
	long before = resident_kib();
	ASK("");

	say_coded(fd, "/echo", coding, body, n, false);
	expect_closed(fd, &in);
	assert_int_equal(serve_status(&in), 413);
	/* The limit is 1 MiB; a zstd window is up to 8 MiB. */
	assert_true(resident_kib() - before < 48 * 1024);
	close(fd);
}

static void test_bombs(void **state)
{
	size_t plain = 1u << 30, room = 4u << 20, n;
	struct http_server_options o = small();
	unsigned char *coded = malloc(room);
	ZSTD_CCtx *zc = ZSTD_createCCtx();
	static char zeros[1 << 20];
	z_stream z = {.next_out = coded, .avail_out = (unsigned)room};
	ZSTD_outBuffer out = {coded, room, 0};
	size_t i;

	assert_non_null(coded);
	o.max_body = 1 << 20;
	serve_start(&o);
	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	for (i = 0; i < plain / sizeof(zeros) / 4; i++) {
		z.next_in = (unsigned char *)zeros;
		z.avail_in = sizeof(zeros);
		assert_int_equal(deflate(&z, Z_NO_FLUSH), Z_OK);
	}
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	n = z.total_out;
	deflateEnd(&z);
	assert_true(n < 1 << 20);
	bomb("gzip", coded, n);
	for (i = 0; i < plain / sizeof(zeros); i++) {
		ZSTD_inBuffer in = {zeros, sizeof(zeros), 0};

		while (in.pos < in.size)
			assert_false(
			        ZSTD_isError(ZSTD_compressStream2(zc, &out, &in, ZSTD_e_continue)));
	}
	ZSTD_inBuffer none = {NULL, 0, 0};
	assert_int_equal(ZSTD_compressStream2(zc, &out, &none, ZSTD_e_end), 0);
	bomb("zstd", coded, out.pos);
	/* A window larger than HTTP allows is refused before it is made. */
	ZSTD_CCtx_reset(zc, ZSTD_reset_session_and_parameters);
	ZSTD_CCtx_setParameter(zc, ZSTD_c_windowLog, 27);
	out.pos = 0;
	for (i = 0; i < 200; i++) {
		ZSTD_inBuffer in = {zeros, sizeof(zeros), 0};

		while (in.pos < in.size)
			assert_false(
			        ZSTD_isError(ZSTD_compressStream2(zc, &out, &in, ZSTD_e_continue)));
	}
	assert_int_equal(ZSTD_compressStream2(zc, &out, &none, ZSTD_e_end), 0);
	{
		ASK("");
		say_coded(fd, "/echo", "zstd", coded, out.pos, false);
		expect_closed(fd, &in);
		assert_int_equal(serve_status(&in), 400);
		close(fd);
	}
	ZSTD_freeCCtx(zc);
	free(coded);
	serve_stop();
}

static void test_body_too_large(void **state)
{
	static char body[200000];
	struct http_server_options o = small();

	o.max_body = 100000;
	serve_start(&o);
	{
		/* By its length, before a byte of it was sent. */
		ASK(POST("/echo") "Content-Length: 100001\r\n\r\n");
		expect(fd, &in, "413 Content Too Large");
		expect_closed(fd, &in);
		close(fd);
	}
	{
		/* The client sends all of it first, and still gets the answer. */
		ASK(POST("/echo") "Content-Length: 200000\r\n\r\n");
		assert_true(socket_send(fd, body, sizeof(body)));
		expect_closed(fd, &in);
		assert_int_equal(serve_status(&in), 413);
		close(fd);
	}
	{
		ASK(POST("/echo") "Transfer-Encoding: chunked\r\n\r\n186a1\r\n");
		assert_true(socket_send(fd, body, 100001));
		expect_closed(fd, &in);
		assert_int_equal(serve_status(&in), 413);
		close(fd);
	}
	{
		ASK(POST("/pieces") "Transfer-Encoding: chunked\r\n\r\n186a1\r\n");
		assert_true(socket_send(fd, body, 100001));
		expect_closed(fd, &in);
		assert_int_equal(serve_status(&in), 413);
		close(fd);
	}
	{
		/* Exactly at the limit. */
		ASK(POST("/echo") "Content-Length: 100000\r\n\r\n");
		assert_true(socket_send(fd, body, 100000));
		expect(fd, &in, "200 OK");
		close(fd);
	}
	serve.max_body = 150000; /* the handler's own limit */
	{
		ASK(POST("/pieces") "Content-Length: 150000\r\n\r\n");
		assert_true(socket_send(fd, body, 150000));
		expect(fd, &in, "200 OK");
		close(fd);
	}
	serve_stop();
}

static void test_in_flight_limit(void **state)
{
	static char body[100000];
	struct http_server_options o = small();
	int held;

	o.max_in_flight = 150000;
	serve_start(&o);
	held = socket_connect(serve.port);
	say(held, POST("/open") "Content-Length: 100000\r\n\r\n");
	assert_true(socket_send(held, body, 100000));
	LOOP_UNTIL(serve.n_records == 1 && serve.records[0]->n_requests == 1, 60000);
	{
		ASK(POST("/echo") "Content-Length: 100000\r\n\r\n");
		expect_closed(fd, &in);
		assert_int_equal(serve_status(&in), 503);
		assert_true(holds(&in, "Retry-After: 1\r\n"));
		close(fd);
	}
	{
		ASK(POST("/echo") "Transfer-Encoding: chunked\r\n\r\n186a0\r\n");
		socket_send(fd, body, 100000);
		expect_closed(fd, &in);
		assert_int_equal(serve_status(&in), 503);
		close(fd);
	}
	/* Released, the same request is taken. */
	http_respond_start(serve.records[0]->x, 200, NULL);
	http_request_release(serve.records[0]->x);
	{
		ASK(POST("/echo") "Content-Length: 100000\r\n\r\n");
		assert_true(socket_send(fd, body, 100000));
		expect(fd, &in, "200 OK");
		close(fd);
	}
	close(held);
	serve_stop();
}

/* ---- time limits ---- */

static void test_time_limits(void **state)
{
	struct http_server_options o = small();
	uint64_t begin;
	size_t i;

	o.head_timeout_ms = 600;
	o.body_timeout_ms = 1000;
	o.idle_timeout_ms = 1500;
	serve_start(&o);
	{
		/* A byte now and then does not prolong a head. */
		ASK("GET /echo HTTP/1.1\r\n");
		for (i = 0; i < 100 && socket_read(fd, &in) && in.len == 0; i++) {
			socket_send(fd, "X", 1);
			loop_ms(20);
		}
		assert_true(i < 100);
		expect_closed(fd, &in);
		assert_int_equal(serve_status(&in), 408);
		close(fd);
	}
	{
		/* But it does prolong a body. */
		ASK(POST("/echo") "Content-Length: 10\r\n\r\n");
		for (i = 0; i < 5; i++) {
			loop_ms(250);
			say(fd, "x");
		}
		assert_true(socket_read(fd, &in));
		assert_int_equal(in.len, 0);
		expect_closed(fd, &in);
		assert_int_equal(serve_status(&in), 408);
		close(fd);
	}
	{
		/* Idle, before and after a request: closed without a word. */
		ASK("");
		begin = clock_mono_ms();
		expect_closed(fd, &in);
		assert_int_equal(in.len, 0);
		assert_true(clock_mono_ms() - begin >= 1400);
		close(fd);
	}
	{
		ASK(GET("/echo"));
		expect(fd, &in, "empty");
		buf_reset(&in);
		expect_closed(fd, &in);
		assert_int_equal(in.len, 0);
		close(fd);
	}
	{
		/* An open exchange has no limit of its own. */
		ASK(GET("/open"));
		loop_ms(2000);
		http_respond(serve.records[serve.n_records - 1]->x, 200, NULL, STR("late"));
		expect(fd, &in, "late");
		/* A head that begins at the end of the idle time has its whole time. */
		loop_ms(1000);
		say(fd, "GET /echo HTTP/1.1\r\n");
		loop_ms(300);
		say(fd, HOST "\r\n");
		expect(fd, &in, "empty");
		close(fd);
	}
	serve_stop();
}

/* ---- early answers ---- */

static void test_early_answers(void **state)
{
	static char body[400000];

	serve_start(NULL);
	{
		/* A small rest is read and dropped, and the connection kept. */
		ASK(POST("/early") "Content-Length: 1000\r\n\r\n");
		expect(fd, &in, "who?");
		assert_false(holds(&in, "Connection: close"));
		assert_true(socket_send(fd, body, 1000));
		say(fd, GET("/echo"));
		expect(fd, &in, "empty");
		close(fd);
	}
	{
		ASK(POST("/early") "Content-Length: 400000\r\n\r\n");
		expect(fd, &in, "Connection: close\r\n");
		assert_true(socket_send(fd, body, sizeof(body)));
		say(fd, GET("/smuggled"));
		expect_closed(fd, &in);
		close(fd);
	}
	{
		ASK(POST("/early") "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
		expect(fd, &in, "Connection: close\r\n");
		expect_closed(fd, &in);
		close(fd);
	}
	{
		/* A coding that nobody needs to understand. */
		ASK(POST("/early") "Content-Encoding: br\r\nContent-Length: 5\r\n\r\nhello" GET(
		        "/echo"));
		expect(fd, &in, "401 Unauthorized");
		expect(fd, &in, "empty");
		close(fd);
	}
	assert_int_equal(serve_count("/smuggled"), 0);
	serve_stop();
}

static bool refuse_in_body(struct record *r, struct http_exchange *x, enum hook where)
{
	if (where != HOOK_BODY || r->n_pieces != 1 || http_started(x))
		return false;
	http_respond(x, 400, "text/plain", STR("no more"));
	return true;
}

static void test_answer_in_mid_body(void **state)
{
	static char body[1 << 20];

	serve_start(NULL);
	serve.hook = refuse_in_body;
	{
		ASK(POST("/pieces") "Content-Length: 1048576\r\n\r\n");
		socket_send(fd, body, sizeof(body));
		expect_closed(fd, &in);
		assert_int_equal(serve_status(&in), 400);
		assert_int_equal(serve.records[0]->n_pieces, 1);
		assert_int_equal(serve.records[0]->n_ends, 0);
		close(fd);
	}
	serve_stop();
}

/* ---- flow ---- */

static bool pause_in_body(struct record *r, struct http_exchange *x, enum hook where)
{
	if (where == HOOK_BODY && r->n_ends == 0)
		http_body_pause(x, true);
	return false;
}

/* n bytes of a counter, so that a lost or doubled piece shows. */
static char *counted(size_t n)
{
	char *p = malloc(n);
	size_t i;

	assert_non_null(p);
	for (i = 0; i < n; i++)
		p[i] = (char)((i >> 2) >> (8 * (i & 3)));
	return p;
}

static void test_paused_body(void **state)
{
	size_t n = 8u << 20, sent = 0, before;
	char *body = counted(n);
	struct record *r;
	uint64_t cpu, end;
	ssize_t took;

	serve_start(NULL);
	serve.hook = pause_in_body;
	{
		ASK(POST("/pieces") "Content-Length: 8388608\r\n\r\n");
		LOOP_UNTIL(serve.n_records == 1, 60000);
		r = serve.records[0];
		/* Paused after the first piece: the rest fills the kernel's buffers, nothing spins.
		 */
		cpu = cpu_ms();
		for (end = clock_mono_ms() + 300; clock_mono_ms() < end;) {
			took = send(fd, body + sent, n - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
			sent += took > 0 ? (size_t)took : 0;
			loop_once();
		}
		assert_true(cpu_ms() - cpu < 200);
		assert_int_equal(r->n_pieces, 1);
		assert_true(sent < n);
		for (end = clock_mono_ms() + 20000; r->n_ends == 0 && clock_mono_ms() < end;) {
			before = r->n_pieces;
			http_body_pause(r->x, false);
			took = send(fd, body + sent, n - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
			sent += took > 0 ? (size_t)took : 0;
			event_base_loop(loop_base(), EVLOOP_NONBLOCK);
			assert_true(r->n_pieces <= before + 1);
		}
		assert_int_equal(r->body.len, n);
		assert_memory_equal(r->body.data, body, n);
		LOOP_UNTIL((socket_read(fd, &in), in.len > n), 60000);
		close(fd);
	}
	free(body);
	serve_stop();
}

/* A few coded bytes are many pieces, with a pause after each. */
static void test_paused_coded_body(void **state)
{
	size_t n = 3u << 20, m, before, chunked;
	char *body = counted(n);
	unsigned char *coded = malloc(n);
	struct record *r;
	uint64_t end;

	assert_non_null(coded);
	serve_start(NULL);
	serve.hook = pause_in_body;
	for (chunked = 0; chunked < 2; chunked++) {
		ASK("");
		m = gzip_of(body, n, coded, n);
		say_coded(fd, "/pieces", "gzip", coded, m, chunked);
		LOOP_UNTIL(serve.n_records == chunked + 1, 60000);
		r = serve.records[chunked];
		for (end = clock_mono_ms() + 20000; r->n_ends == 0 && clock_mono_ms() < end;) {
			before = r->n_pieces;
			http_body_pause(r->x, false);
			event_base_loop(loop_base(), EVLOOP_NONBLOCK);
			assert_true(r->n_pieces <= before + 1);
		}
		assert_int_equal(r->body.len, n);
		assert_memory_equal(r->body.data, body, n);
		assert_true(r->n_pieces >= n / 16384);
		LOOP_UNTIL((socket_read(fd, &in), in.len > n), 60000);
		close(fd);
	}
	free(body);
	free(coded);
	serve_stop();
}

static void test_high_and_low_water(void **state)
{
	struct http_server_options o = small();
	char *piece = counted(65536);
	size_t n = 0, drains;
	struct record *r;

	serve_start(&o);
	{
		ASK(GET("/stream"));
		LOOP_UNTIL(serve.n_records == 1, 60000);
		r = serve.records[0];
		/* The client takes nothing: the kernel's buffers fill, then ours to high water. */
		while (!http_above_high_water(r->x)) {
			http_write(r->x, (struct str){piece, 65536});
			n += 65536;
			assert_true(n < 64u << 20);
		}
		assert_true(http_pending(r->x) > o.high_water);
		assert_true(http_pending(r->x) < o.high_water + 2 * 65536);
		loop_ms(30);
		assert_int_equal(r->n_drains, 0);
		LOOP_UNTIL((socket_read(fd, &in), r->n_drains == 1), 60000);
		assert_true(http_pending(r->x) < o.low_water);
		assert_false(http_above_high_water(r->x));
		drains = r->n_drains;
		http_write(r->x, STR("end"));
		http_finish(r->x);
		expect(fd, &in, "3\r\nend\r\n0\r\n\r\n");
		assert_int_equal(r->n_drains, drains);
		assert_true(in.len > n);
		close(fd);
	}
	free(piece);
	serve_stop();
}

static void test_large_answer(void **state)
{
	size_t n = 20u << 20;
	char *body = counted(n);

	serve_start(NULL);
	{
		ASK(GET("/open"));
		LOOP_UNTIL(serve.n_records == 1, 60000);
		http_respond(serve.records[0]->x, 200, "a/b", (struct str){body, n});
		say(fd, GET("/echo"));
		LOOP_UNTIL((socket_read(fd, &in), in.len > n && holds(&in, "empty")), 60000);
		assert_memory_equal(strstr(in.data, "\r\n\r\n") + 4, body, n);
		close(fd);
	}
	free(body);
	serve_stop();
}

static void test_stalled_client(void **state)
{
	struct http_server_options o = small();
	char *piece = counted(1 << 20);
	struct record *r;
	size_t i;

	o.write_timeout_ms = 1500;
	serve_start(&o);
	{
		ASK(GET("/stream"));
		LOOP_UNTIL(serve.n_records == 1, 60000);
		r = serve.records[0];
		for (i = 0; i < 48; i++)
			http_write(r->x, (struct str){piece, 1 << 20});
		/* A client that takes a little again and again is slow, not gone. */
		for (i = 0; i < 10; i++) {
			static char some[1 << 20];

			loop_ms(250);
			assert_true(recv(fd, some, sizeof(some), 0) > 0);
		}
		assert_int_equal(r->n_gone, 0);
		LOOP_UNTIL(r->n_gone == 1, 60000);
		assert_int_equal(r->why, HTTP_GONE_STALLED);
		close(fd);
	}
	free(piece);
	serve_stop();
}

/* ---- many connections ---- */

static void test_drain(void **state)
{
	int idle, late;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	_cleanup_buf_ struct buf more = BUF_INIT(1000);

	serve_start(NULL);
	idle = socket_connect(serve.port);
	{
		ASK(GET("/open"));
		LOOP_UNTIL(
		        serve.n_records == 1 && http_server_connections(serve.server) == 2, 60000);
		http_server_drain(serve.server);
		expect_closed(idle, &more);
		close(idle);
		late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		a.sin_port = htons((uint16_t)serve.port);
		assert_int_equal(connect(late, (struct sockaddr *)&a, sizeof(a)), -1);
		close(late);
		assert_int_equal(http_server_open_exchanges(serve.server), 1);
		http_respond(serve.records[0]->x, 200, NULL, STR("last"));
		expect_closed(fd, &in);
		assert_true(holds(&in, "Connection: close\r\n"));
		assert_true(holds(&in, "last"));
		close(fd);
	}
	LOOP_UNTIL(http_server_connections(serve.server) == 0, 60000);
	serve_stop();
}

static void test_most_connections(void **state)
{
	struct http_server_options o = small();
	_cleanup_buf_ struct buf in = BUF_INIT(65536);
	int fds[4], more;
	size_t i;

	o.max_connections = 4;
	serve_start(&o);
	for (i = 0; i < 4; i++) {
		fds[i] = socket_connect(serve.port);
		loop_ms(5);
	}
	assert_int_equal(http_server_connections(serve.server), 4);
	/* The one that was idle longest makes room. */
	more = socket_connect(serve.port);
	say(more, GET("/open"));
	LOOP_UNTIL(serve.n_records == 1, 60000);
	expect_closed(fds[0], &in);
	assert_int_equal(in.len, 0);
	assert_int_equal(http_server_connections(serve.server), 4);
	for (i = 1; i < 4; i++)
		say(fds[i], GET("/open"));
	LOOP_UNTIL(serve.n_records == 4, 60000);
	/* All are in use: the next waits until one ends. */
	close(fds[0]);
	fds[0] = socket_connect(serve.port);
	say(fds[0], GET("/echo"));
	loop_ms(50);
	assert_int_equal(serve.n_records, 4);
	close(more);
	expect(fds[0], &in, "empty");
	for (i = 0; i < 4; i++)
		close(fds[i]);
	serve_stop();
}

static void test_no_descriptors(void **state)
{
	struct rlimit before, few;
	uint64_t cpu;
	int a, b;
	_cleanup_buf_ struct buf in = BUF_INIT(65536);

	serve_start(NULL);
	a = socket_connect(serve.port);
	b = socket_connect(serve.port);
	say(a, GET("/echo"));
	say(b, GET("/echo"));
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	few.rlim_cur = (rlim_t)b + 2; /* room for one of the two */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	cpu = cpu_ms();
	loop_ms(300);
	assert_true(cpu_ms() - cpu < 150);
	assert_int_equal(serve.n_records, 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	expect(a, &in, "empty");
	expect_times(b, &in, "empty", 2);
	close(a);
	close(b);
	serve_stop();
}

static void test_thousand_streams(void **state)
{
	enum { N = 400 };
	static int fds[N];
	_cleanup_buf_ struct buf in = BUF_INIT(1 << 20);
	size_t i, gone = 0;

	serve_start(NULL);
	for (i = 0; i < N; i++) {
		fds[i] = socket_connect(serve.port);
		say(fds[i], GET("/stream"));
	}
	LOOP_UNTIL(serve.n_records == N, 60000);
	for (i = 0; i < N; i++)
		http_write(serve.records[i]->x, STR("data: x\n\n"));
	for (i = 0; i < N; i++)
		expect_times(fds[i], &in, "data: x", i + 1);
	assert_int_equal(http_server_open_exchanges(serve.server), N);
	for (i = 0; i < N; i++)
		close(fds[i]);
	LOOP_UNTIL(http_server_open_exchanges(serve.server) == 0, 60000);
	for (i = 0; i < N; i++)
		gone += serve.records[i]->why == HTTP_GONE_CLIENT;
	assert_int_equal(gone, N);
	serve_stop();
}

/* ---- mistakes of a handler ---- */

static struct http_exchange *open_x;

static void break_header(void *arg)
{
	http_response_header(open_x, "X", "a\r\nb");
}

static void break_framing(void *arg)
{
	http_response_header(open_x, "Content-Length", "1");
}

static void answer_twice(void *arg)
{
	http_respond(open_x, 200, NULL, STR("a"));
	http_respond(open_x, 200, NULL, STR("b"));
}

static void write_first(void *arg)
{
	http_write(open_x, STR("a"));
}

static void test_bugs_of_a_handler(void **state)
{
	serve_start(NULL);
	{
		ASK(GET("/open"));
		LOOP_UNTIL(serve.n_records == 1, 60000);
		open_x = serve.records[0]->x;
		assert_true(unit_aborts(break_header, NULL));
		assert_true(unit_aborts(break_framing, NULL));
		assert_true(unit_aborts(answer_twice, NULL));
		assert_true(unit_aborts(write_first, NULL));
		close(fd);
	}
	serve_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_one_request_one_write),
	        cmocka_unit_test(test_head_leaves_with_the_first_piece),
	        cmocka_unit_test(test_single_bytes),
	        cmocka_unit_test(test_request_is_told),
	        cmocka_unit_test(test_targets),
	        cmocka_unit_test(test_keep_alive),
	        cmocka_unit_test(test_pipelining_keeps_order),
	        cmocka_unit_test(test_many_pipelined),
	        cmocka_unit_test(test_head_request),
	        cmocka_unit_test(test_http_1_0),
	        cmocka_unit_test(test_statuses_without_body),
	        cmocka_unit_test(test_sized_answer),
	        cmocka_unit_test(test_expect_continue),
	        cmocka_unit_test(test_chunked),
	        cmocka_unit_test(test_coded_bodies),
	        cmocka_unit_test(test_coded_wrongly),
	        cmocka_unit_test(test_bombs),
	        cmocka_unit_test(test_body_too_large),
	        cmocka_unit_test(test_in_flight_limit),
	        cmocka_unit_test(test_time_limits),
	        cmocka_unit_test(test_early_answers),
	        cmocka_unit_test(test_answer_in_mid_body),
	        cmocka_unit_test(test_paused_body),
	        cmocka_unit_test(test_paused_coded_body),
	        cmocka_unit_test(test_high_and_low_water),
	        cmocka_unit_test(test_large_answer),
	        cmocka_unit_test(test_stalled_client),
	        cmocka_unit_test(test_drain),
	        cmocka_unit_test(test_most_connections),
	        cmocka_unit_test(test_no_descriptors),
	        cmocka_unit_test(test_thousand_streams),
	        cmocka_unit_test(test_bugs_of_a_handler),
	};

	return UNIT_RUN(tests);
}
