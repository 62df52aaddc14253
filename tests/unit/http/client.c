/*
 * The HTTP client against a server played by hand on a real socket: each case says what the peer
 * sends and when. Names are looked up by a function of the test, which can hang.
 */
#include "harness.h"

#include "http/client.h"
#include "http/resolve.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <zlib.h>

enum { PEERS_MAX = 64 };

/* ---- the peer ---- */

static struct peer {
	int listener;
	unsigned port;
	size_t n_accepted;
	struct {
		int fd;      /* -1: closed */
		bool at_end; /* the client closed */
		struct buf in;
	} conns[PEERS_MAX];
} peer;

static void peer_open(void)
{
	memset(&peer, 0, sizeof(peer));
	peer.listener = socket_listen(&peer.port);
}

static void peer_close(void)
{
	size_t i;

	for (i = 0; i < peer.n_accepted; i++) {
		if (peer.conns[i].fd >= 0)
			close(peer.conns[i].fd);
		buf_free(&peer.conns[i].in);
	}
	close(peer.listener);
}

/* Accepts and reads whatever is there. */
static void peer_look(void)
{
	size_t i;
	int fd;

	while (peer.n_accepted < PEERS_MAX &&
	        (fd = accept4(peer.listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		peer.conns[peer.n_accepted].fd = fd;
		buf_init(&peer.conns[peer.n_accepted].in, 256u << 20);
		peer.n_accepted++;
	}
	for (i = 0; i < peer.n_accepted; i++)
		if (peer.conns[i].fd >= 0 && !peer.conns[i].at_end)
			peer.conns[i].at_end = !socket_read(peer.conns[i].fd, &peer.conns[i].in);
}

static bool peer_got(size_t i, const char *text)
{
	peer_look();
	return i < peer.n_accepted && holds(&peer.conns[i].in, text);
}

static bool peer_gone(size_t i)
{
	peer_look();
	return i < peer.n_accepted && peer.conns[i].at_end;
}

static void peer_send(size_t i, const char *text)
{
	assert_true(socket_send(peer.conns[i].fd, text, strlen(text)));
}

static void peer_hang_up(size_t i)
{
	close(peer.conns[i].fd);
	peer.conns[i].fd = -1;
}

/* ---- the fetch ---- */

struct seen {
	struct http_fetch *f; /* NULL: dead */
	int status;
	char type[64];
	struct buf data;
	size_t n_data, n_heads, n_ends;
	bool ok;
	struct error err;
	uint64_t sent_ns, first_byte_ns;
	enum {
		DO_NOTHING,
		CANCEL_IN_HEAD,
		CANCEL_IN_DATA,
		PAUSE_IN_HEAD,
		PAUSE_IN_DATA,
		CANCEL_IN_END
	} what;
};

static struct pool *pool;
static struct http_client *client;

static void on_head(void *ctx, struct http_fetch *f, int status)
{
	struct seen *s = ctx;
	struct str type = http_fetch_header(f, "content-type");

	s->n_heads++;
	s->status = status;
	str_copy(s->type, sizeof(s->type), type);
	if (s->what == CANCEL_IN_HEAD)
		http_fetch_cancel(f);
	if (s->what == PAUSE_IN_HEAD)
		http_fetch_pause(f, true);
}

static void on_data(void *ctx, struct http_fetch *f, const void *data, size_t n)
{
	struct seen *s = ctx;

	s->n_data++;
	assert_int_equal(buf_append(&s->data, data, n), 0);
	if (s->what == CANCEL_IN_DATA)
		http_fetch_cancel(f);
	if (s->what == PAUSE_IN_DATA)
		http_fetch_pause(f, true);
}

static void on_end(void *ctx, struct http_fetch *f, const struct error *err)
{
	struct seen *s = ctx;

	s->n_ends++;
	s->ok = err == NULL;
	if (err)
		s->err = *err;
	s->sent_ns = http_fetch_sent_ns(f);
	s->first_byte_ns = http_fetch_first_byte_ns(f);
	if (s->what == CANCEL_IN_END)
		http_fetch_cancel(f);
	s->f = NULL;
}

static struct http_fetch_options options(const char *method, const char *url)
{
	return (struct http_fetch_options){.method = method,
	        .url = url,
	        .resolve_timeout_ms = 60000,
	        .connect_timeout_ms = 60000,
	        .first_byte_timeout_ms = 60000,
	        .idle_timeout_ms = 60000};
}

static void start(struct seen *s, const struct http_fetch_options *o)
{
	struct http_fetch_handler h = {s, on_head, on_data, on_end};
	struct error err;

	buf_init(&s->data, 256u << 20);
	s->f = http_fetch_start(client, o, &h, &err);
	if (!s->f)
		fail_msg("%s", err.text);
	assert_int_equal(s->n_ends, 0);
}

static const char *url_of(const char *path)
{
	static char url[512];

	str_format(url, sizeof(url), "http://127.0.0.1:%u%s", peer.port, path);
	return url;
}

static void start_get(struct seen *s)
{
	struct http_fetch_options o = options("GET", url_of("/x"));

	start(s, &o);
}

/* ---- cases ---- */

static void test_get(void **state)
{
	struct http_fetch_options o = options("GET", url_of("/a?b=c"));
	struct seen s = {0};

	o.headers = (const char *const[]){"Authorization: Bearer k", "X-Empty:", NULL};
	start(&s, &o);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	assert_true(holds(&peer.conns[0].in, "GET /a?b=c HTTP/1.1\r\n"));
	assert_true(holds(&peer.conns[0].in, "Authorization: Bearer k\r\n"));
	assert_true(holds(&peer.conns[0].in, "X-Empty:\r\n"));
	assert_true(holds(&peer.conns[0].in, "Accept-Encoding: identity\r\n"));
	assert_false(holds(&peer.conns[0].in, "Expect"));
	peer_send(0, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type:  text/x \r\n"
	             "Content-Length: 5\r\n\r\nhe");
	LOOP_UNTIL(s.data.len == 2, 60000);
	assert_int_equal(s.n_ends, 0);
	peer_send(0, "llo");
	LOOP_UNTIL(s.n_ends == 1, 60000);
	assert_true(s.ok);
	assert_int_equal(s.status, 200);
	assert_int_equal(s.n_heads, 1);
	assert_string_equal(s.type, "text/x");
	assert_string_equal(buf_cstr(&s.data), "hello");
	assert_true(s.sent_ns > 0 && s.first_byte_ns > s.sent_ns);
	buf_free(&s.data);
}

static void answer(size_t conn, const char *body)
{
	char head[128];

	str_format(
	        head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", strlen(body));
	peer_send(conn, head);
	peer_send(conn, body);
}

static void finish(struct seen *s)
{
	LOOP_UNTIL(s->n_ends == 1, 60000);
	loop_ms(5);
	assert_int_equal(s->n_ends, 1);
	buf_free(&s->data);
}

static char *text_body(const char *text)
{
	char *p = strdup(text);

	assert_non_null(p);
	return p;
}

static void test_post_small_is_one_packet(void **state)
{
	struct http_fetch_options o = options("POST", url_of("/p"));
	struct seen s = {0};

	o.body = text_body("{\"a\":1}");
	o.body_len = 7;
	o.headers = (const char *const[]){"Content-Type: application/json", NULL};
	start(&s, &o);
	LOOP_UNTIL(peer_got(0, "POST"), 60000);
	/* The first read that saw anything saw all of it. */
	assert_true(holds(&peer.conns[0].in, "Content-Length: 7\r\n"));
	assert_true(holds(&peer.conns[0].in, "Content-Type: application/json\r\n"));
	assert_true(holds(&peer.conns[0].in, "\r\n\r\n{\"a\":1}"));
	answer(0, "ok");
	finish(&s);
	assert_true(s.ok);
}

static void test_methods(void **state)
{
	static const struct {
		const char *method, *body, *line;
	} cases[] = {
	        {"PUT", "x", "PUT /p HTTP/1.1\r\n"},
	        {"DELETE", NULL, "DELETE /p HTTP/1.1\r\n"},
	        {"PATCH", "x", "PATCH /p HTTP/1.1\r\n"},
	        {"POST", NULL, "POST /p HTTP/1.1\r\n"},
	        {"GET", "x", "GET /p HTTP/1.1\r\n"},
	};
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct http_fetch_options o = options(cases[i].method, url_of("/p"));
		struct seen s = {0};

		o.body = cases[i].body ? text_body(cases[i].body) : NULL;
		o.body_len = cases[i].body ? 1 : 0;
		start(&s, &o);
		LOOP_UNTIL(peer_got(0, cases[i].line), 60000);
		LOOP_UNTIL(peer_got(0, cases[i].body ? "\r\n\r\nx" : "\r\n\r\n"), 60000);
		assert_false(holds(&peer.conns[0].in, "Content-Type"));
		assert_int_equal(
		        holds(&peer.conns[0].in, "Content-Length: 1"), cases[i].body != NULL);
		buf_reset(&peer.conns[0].in);
		answer(0, "ok");
		finish(&s);
		assert_true(s.ok);
	}
	assert_int_equal(peer.n_accepted, 1);
}

static void test_head_method(void **state)
{
	struct http_fetch_options o = options("HEAD", url_of("/p"));
	struct seen s = {0};

	start(&s, &o);
	LOOP_UNTIL(peer_got(0, "HEAD /p HTTP/1.1\r\n"), 60000);
	peer_send(0, "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n");
	finish(&s);
	assert_true(s.ok);
	assert_int_equal(s.n_data, 0);
}

static void test_large_upload(void **state)
{
	struct http_fetch_options o = options("POST", url_of("/p"));
	struct unit_random r = {7};
	struct seen s = {0};
	size_t n = 64u << 20, i;
	char *copy = malloc(n);
	const char *body;

	o.body = malloc(n);
	o.body_len = n;
	assert_true(copy && o.body);
	for (i = 0; i + 8 <= n; i += 8) {
		uint64_t v = unit_next(&r);

		memcpy(o.body + i, &v, 8);
	}
	memcpy(copy, o.body, n);
	start(&s, &o);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	body = strstr(buf_cstr(&peer.conns[0].in), "\r\n\r\n") + 4;
	i = (size_t)(body - buf_cstr(&peer.conns[0].in));
	LOOP_UNTIL((peer_look(), peer.conns[0].in.len == i + n), 60000);
	assert_memory_equal(peer.conns[0].in.data + i, copy, n);
	free(copy);
	answer(0, "ok");
	finish(&s);
	assert_true(s.ok);
}

static void test_connection_is_reused(void **state)
{
	size_t i;

	for (i = 0; i < 5; i++) {
		struct seen s = {0};

		start_get(&s);
		LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
		buf_reset(&peer.conns[0].in);
		answer(0, "ok");
		finish(&s);
		assert_true(s.ok);
	}
	assert_int_equal(peer.n_accepted, 1);
}

/* The kept connection ends just when the next request is on it: sent once more, on another. */
static void retry_case(size_t body_len)
{
	struct http_fetch_options o = options("POST", url_of("/p"));
	struct seen first = {0}, second = {0};
	size_t n;

	start_get(&first);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	answer(0, "ok");
	finish(&first);
	buf_reset(&peer.conns[0].in);

	o.body = calloc(1, body_len + 1);
	memset(o.body, 'b', body_len);
	o.body_len = body_len;
	start(&second, &o);
	LOOP_UNTIL(peer_got(0, "\r\n\r\nb"), 60000);
	peer_hang_up(0);
	LOOP_UNTIL(peer_got(1, "\r\n\r\n"), 60000);
	n = (size_t)(strstr(buf_cstr(&peer.conns[1].in), "\r\n\r\n") -
	             buf_cstr(&peer.conns[1].in)) +
	    4;
	LOOP_UNTIL((peer_look(), peer.conns[1].in.len == n + body_len), 60000);
	answer(1, "again");
	finish(&second);
	assert_true(second.ok);
	assert_int_equal(peer.n_accepted, 2);
}

static void test_retry_small(void **state)
{
	retry_case(10);
}

static void test_retry_large(void **state)
{
	retry_case(3000000);
}

static void test_no_retry_on_a_new_connection(void **state)
{
	struct seen s = {0};

	start_get(&s);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	peer_hang_up(0);
	finish(&s);
	assert_false(s.ok);
	assert_int_equal(s.err.code, ERR_UPSTREAM);
	assert_true(str_ends(str_of(s.err.text), "closed the connection without an answer"));
	assert_int_equal(peer.n_accepted, 1);
}

static void test_no_retry_once_something_came(void **state)
{
	struct seen first = {0}, second = {0};

	start_get(&first);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	answer(0, "ok");
	finish(&first);
	buf_reset(&peer.conns[0].in);
	start_get(&second);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	peer_send(0, "HTTP/1.1 200 OK\r\nContent-");
	loop_ms(30);
	peer_hang_up(0);
	finish(&second);
	assert_false(second.ok);
	assert_int_equal(second.err.code, ERR_UPSTREAM);
	assert_int_equal(peer.n_accepted, 1);
}

/* ---- answers that end wrongly ---- */

static void test_bad_answers(void **state)
{
	static const struct {
		const char *bytes;
		bool reset;
		const char *text; /* how the error ends */
	} cases[] = {
	        {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", false, "was cut off"},
	        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", false,
	                "was cut off"},
	        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", false,
	                "was cut off"},
	        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", false,
	                "was cut off"},
	        {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", true, "was cut off"},
	        {"HTTP/1.1 200 OK\r\n\r\nhello", true, "was cut off"},
	        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", false, NULL},
	        {"SSH-2.0-OpenSSH\r\n", false, NULL},
	        {"\x16\x03\x01", false, NULL},
	        {"<html>hello</html>", false, NULL},
	        {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nnot gzip", false, NULL},
	};
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct seen s = {0};

		start_get(&s);
		LOOP_UNTIL(peer_got(i, "\r\n\r\n"), 60000);
		peer_send(i, cases[i].bytes);
		loop_ms(20);
		if (cases[i].reset) {
			socket_reset(peer.conns[i].fd);
			peer.conns[i].fd = -1;
		} else {
			peer_hang_up(i);
		}
		finish(&s);
		if (s.ok || s.err.code != ERR_UPSTREAM)
			fail_msg("case %zu: %s", i, s.ok ? "taken for whole" : s.err.text);
		if (cases[i].text && !str_ends(str_of(s.err.text), cases[i].text))
			fail_msg("case %zu: %s", i, s.err.text);
	}
}

static void test_close_delimited(void **state)
{
	struct seen s = {0};

	start_get(&s);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	peer_send(0, "HTTP/1.0 200 OK\r\n\r\nhello");
	peer_hang_up(0);
	LOOP_UNTIL(s.n_ends == 1, 60000);
	assert_true(s.ok);
	assert_string_equal(buf_cstr(&s.data), "hello");
	buf_free(&s.data);
}

static void test_html_error_is_data(void **state)
{
	struct seen s = {0};

	start_get(&s);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	peer_send(0, "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nLocation: /x\r\n"
	             "Content-Length: 13\r\n\r\n<html></html>");
	LOOP_UNTIL(s.n_ends == 1, 60000);
	assert_true(s.ok);
	assert_int_equal(s.status, 502);
	assert_string_equal(s.type, "text/html");
	assert_string_equal(buf_cstr(&s.data), "<html></html>");
	buf_free(&s.data);
}

static void test_redirect_is_not_followed(void **state)
{
	struct seen s = {0};

	start_get(&s);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	peer_send(0, "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n");
	finish(&s);
	assert_true(s.ok);
	assert_int_equal(s.status, 302);
	assert_int_equal(peer.n_accepted, 1);
}

static void test_headers_too_large(void **state)
{
	char line[1024];
	struct seen s = {0};
	size_t i;

	memset(line, 'v', sizeof(line));
	memcpy(line, "x: ", 3);
	memcpy(line + sizeof(line) - 3, "\r\n", 3);
	start_get(&s);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	peer_send(0, "HTTP/1.1 200 OK\r\n");
	for (i = 0; i < 1000 && s.n_ends == 0; i++) {
		if (!socket_send(peer.conns[0].fd, line, strlen(line)))
			break;
		loop_once();
	}
	finish(&s);
	assert_false(s.ok);
	assert_int_equal(s.err.code, ERR_UPSTREAM);
	assert_non_null(strstr(s.err.text, "headers"));
}

static void test_single_bytes(void **state)
{
	static const char bytes[] =
	        "HTTP/1.1 200 OK\r\nContent-Type: t/x\r\nTransfer-Encoding: chunked\r\n"
	        "\r\n5;ext=1\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: x\r\n\r\n";
	struct seen s = {0};
	size_t i;

	start_get(&s);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	for (i = 0; i < sizeof(bytes) - 1; i++) {
		assert_true(socket_send(peer.conns[0].fd, bytes + i, 1));
		loop_once();
	}
	LOOP_UNTIL(s.n_ends == 1, 60000);
	assert_true(s.ok);
	assert_int_equal(s.n_heads, 1);
	assert_string_equal(s.type, "t/x");
	assert_string_equal(buf_cstr(&s.data), "hello world");
	buf_free(&s.data);
}

static void test_coded_answer_is_decoded(void **state)
{
	static const char text[] = "hello hello hello";
	unsigned char coded[128];
	char head[128];
	z_stream z = {.next_in = (unsigned char *)(uintptr_t)text,
	        .avail_in = sizeof(text) - 1,
	        .next_out = coded,
	        .avail_out = sizeof(coded)};
	struct seen s = {0};

	start_get(&s);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	str_format(head, sizeof(head),
	        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %lu\r\n\r\n",
	        z.total_out);
	peer_send(0, head);
	assert_true(socket_send(peer.conns[0].fd, coded, z.total_out));
	deflateEnd(&z);
	LOOP_UNTIL(s.n_ends == 1, 60000);
	assert_true(s.ok);
	assert_string_equal(buf_cstr(&s.data), "hello hello hello");
	buf_free(&s.data);
}

/* ---- what cannot be reached ---- */

static void test_refused(void **state)
{
	struct http_fetch_options o;
	char url[128], want[128];
	struct seen s = {0};
	unsigned port;

	close(socket_listen(&port));
	str_format(url, sizeof(url), "http://user:secret@127.0.0.1:%u/p?key=secret", port);
	str_format(
	        want, sizeof(want), "could not connect to 127.0.0.1:%u: Connection refused", port);
	o = options("GET", url);
	start(&s, &o);
	finish(&s);
	assert_false(s.ok);
	assert_int_equal(s.err.code, ERR_UPSTREAM);
	assert_string_equal(s.err.text, want);
}

static void test_not_tls(void **state)
{
	struct http_fetch_options o;
	char url[64];
	struct seen s = {0};

	str_format(url, sizeof(url), "https://127.0.0.1:%u/?key=secret", peer.port);
	o = options("GET", url);
	start(&s, &o);
	LOOP_UNTIL((peer_look(), peer.n_accepted == 1 && peer.conns[0].in.len > 0), 60000);
	peer_send(0, "HTTP/1.1 400 Bad Request\r\n\r\n");
	finish(&s);
	assert_false(s.ok);
	assert_int_equal(s.err.code, ERR_UPSTREAM);
	assert_true(str_starts(str_of(s.err.text), "no secure connection to 127.0.0.1:"));
	assert_null(strstr(s.err.text, "secret"));
}

static void refused_at_start(const char *method, const char *url, const char *header)
{
	struct http_fetch_handler h = {NULL, on_head, on_data, on_end};
	struct http_fetch_options o = options(method, url);
	const char *headers[] = {header, NULL};
	struct error err = {0};

	o.headers = headers;
	o.body = text_body("freed all the same");
	o.body_len = 18;
	if (http_fetch_start(client, &o, &h, &err))
		fail_msg("taken: %s %s %s", method, url, header ? header : "");
	assert_int_equal(err.code, ERR_INVALID);
	assert_true(err.text[0] != '\0');
	assert_null(strstr(err.text, "secret"));
}

static void test_refused_at_start(void **state)
{
	refused_at_start("GET", "ftp://127.0.0.1/secret", NULL);
	refused_at_start("GET", "file:///etc/passwd", NULL);
	refused_at_start("GET", "secret", NULL);
	refused_at_start("GET", "", NULL);
	refused_at_start("GET", "http://", NULL);
	refused_at_start("GET", "http://127.0.0.1:0/secret", NULL);
	refused_at_start("GET", "http://127.0.0.1:99999/secret", NULL);
	refused_at_start("GET", "http://ex\xc3\xa4mple/secret", NULL);
	refused_at_start("G T", "http://127.0.0.1/secret", NULL);
	refused_at_start("", "http://127.0.0.1/secret", NULL);
	refused_at_start("GET", "http://127.0.0.1/", "X: a\r\nsecret: b");
	refused_at_start("GET", "http://127.0.0.1/", "X: \x01secret");
	refused_at_start("GET", "http://127.0.0.1/", "secret");
	refused_at_start("GET", "http://127.0.0.1/", "a b: secret");
	refused_at_start("GET", "http://127.0.0.1/", "Content-Length: 5");
	refused_at_start("GET", "http://127.0.0.1/", "Transfer-Encoding: chunked");
}

/* ---- time limits ---- */

static void test_first_byte_timeout(void **state)
{
	struct http_fetch_options o = options("GET", url_of("/x"));
	struct seen s = {0};

	o.first_byte_timeout_ms = 80;
	start(&s, &o);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	finish(&s);
	assert_false(s.ok);
	assert_int_equal(s.err.code, ERR_TIMEOUT);
	assert_true(str_ends(str_of(s.err.text), "did not begin to answer within 80 ms"));
	assert_true(peer_gone(0));
}

static void test_idle_timeout(void **state)
{
	struct http_fetch_options o = options("GET", url_of("/x"));
	struct seen s = {0};
	size_t i;

	o.idle_timeout_ms = 1000;
	o.first_byte_timeout_ms = 0;
	start(&s, &o);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	loop_ms(1500);
	assert_int_equal(s.n_ends, 0); /* no limit for the first byte */
	peer_send(0, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
	for (i = 0; i < 5; i++) {
		loop_ms(250);
		peer_send(0, "x");
	}
	assert_int_equal(s.n_ends, 0);
	finish(&s);
	assert_false(s.ok);
	assert_int_equal(s.err.code, ERR_TIMEOUT);
	assert_true(str_ends(str_of(s.err.text), "sent nothing more of its answer for 1000 ms"));
}

static void test_idle_is_not_counted_while_paused(void **state)
{
	struct http_fetch_options o = options("GET", url_of("/x"));
	struct seen s = {.what = PAUSE_IN_HEAD};

	o.idle_timeout_ms = 100;
	start(&s, &o);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	answer(0, "hello");
	loop_ms(300);
	assert_int_equal(s.n_ends, 0);
	assert_int_equal(s.data.len, 0);
	http_fetch_pause(s.f, false);
	finish(&s);
	assert_true(s.ok);
}

static void test_send_timeout(void **state)
{
	struct http_fetch_options o = options("POST", url_of("/x"));
	struct seen s = {0};

	o.idle_timeout_ms = 150;
	o.body_len = 64u << 20;
	o.body = calloc(1, o.body_len);
	start(&s, &o);
	/* The peer accepts in its kernel and never reads. */
	finish(&s);
	assert_false(s.ok);
	assert_int_equal(s.err.code, ERR_TIMEOUT);
	assert_true(str_ends(str_of(s.err.text), "took no more of the request for 150 ms"));
}

static void test_connect_timeout(void **state)
{
	struct http_fetch_options o;
	struct seen s = {0};
	char url[64];

	/* A TLS handshake that nobody answers belongs to connecting. */
	str_format(url, sizeof(url), "https://127.0.0.1:%u/", peer.port);
	o = options("GET", url);
	o.connect_timeout_ms = 100;
	start(&s, &o);
	finish(&s);
	assert_false(s.ok);
	assert_int_equal(s.err.code, ERR_TIMEOUT);
	assert_non_null(strstr(s.err.text, "within 100 ms"));
}

/* ---- names ---- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned n_lookups, n_at_once, most_at_once;
	bool hang;
	const char *addresses, *failure;
} names = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void lookup_of_test(const char *host, struct http_resolve_answer *ret_answer)
{
	pthread_mutex_lock(&names.lock);
	names.n_lookups++;
	names.n_at_once++;
	if (names.n_at_once > names.most_at_once)
		names.most_at_once = names.n_at_once;
	while (names.hang)
		pthread_cond_wait(&names.changed, &names.lock);
	names.n_at_once--;
	if (names.addresses)
		str_copy(ret_answer->addresses, sizeof(ret_answer->addresses),
		        str_of(names.addresses));
	if (names.failure)
		str_copy(ret_answer->failure, sizeof(ret_answer->failure), str_of(names.failure));
	pthread_mutex_unlock(&names.lock);
}

static unsigned names_at_once(void)
{
	unsigned n;

	pthread_mutex_lock(&names.lock);
	n = names.n_at_once;
	pthread_mutex_unlock(&names.lock);
	return n;
}

static void names_hang(bool hang)
{
	pthread_mutex_lock(&names.lock);
	names.hang = hang;
	pthread_cond_broadcast(&names.changed);
	pthread_mutex_unlock(&names.lock);
}

static void names_set(const char *addresses, const char *failure)
{
	names.addresses = addresses;
	names.failure = failure;
	names.n_lookups = names.most_at_once = 0;
	http_resolve_lookup = lookup_of_test;
}

static const char *named_url(const char *host)
{
	static char url[600];

	str_format(url, sizeof(url), "http://%s:%u/x", host, peer.port);
	return url;
}

static void test_name_is_resolved_once(void **state)
{
	struct http_fetch_options o = options("GET", named_url("Provider.Test"));
	struct seen s[3] = {{0}};
	size_t i;

	names_set("127.0.0.1", NULL);
	start(&s[0], &o);
	start(&s[1], &o); /* waits for the same lookup */
	LOOP_UNTIL(peer_got(0, "\r\n\r\n") && peer_got(1, "\r\n\r\n"), 60000);
	assert_true(holds(&peer.conns[0].in, "Host: Provider.Test:") ||
	            holds(&peer.conns[0].in, "Host: provider.test:"));
	answer(0, "ok");
	answer(1, "ok");
	finish(&s[0]);
	finish(&s[1]);
	start(&s[2], &o);
	LOOP_UNTIL((peer_look(), count_of(&peer.conns[0].in, "\r\n\r\n") +
	                                         count_of(&peer.conns[1].in, "\r\n\r\n") ==
	                                 3),
	        60000);
	i = count_of(&peer.conns[0].in, "\r\n\r\n") == 2 ? 0 : 1;
	answer(i, "ok");
	finish(&s[2]);
	assert_true(s[0].ok && s[1].ok && s[2].ok);
	assert_int_equal(names.n_lookups, 1);
	assert_int_equal(peer.n_accepted, 2);
}

static void test_name_unknown(void **state)
{
	struct http_fetch_options o = options("GET", named_url("nowhere.test"));
	struct seen s = {0};

	names_set(NULL, "Name or service not known");
	start(&s, &o);
	finish(&s);
	assert_false(s.ok);
	assert_int_equal(s.err.code, ERR_UPSTREAM);
	assert_string_equal(s.err.text,
	        "the name nowhere.test could not be resolved: Name or service not known");
}

static void test_second_address_is_tried(void **state)
{
	struct http_fetch_options o = options("GET", named_url("two.test"));
	struct seen s = {0};

	names_set("[::1],127.0.0.1", NULL); /* nothing listens on ::1 */
	start(&s, &o);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	answer(0, "ok");
	finish(&s);
	assert_true(s.ok);
}

static const char *only_one(void *ctx, const struct sockaddr *a)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)a;

	++*(unsigned *)ctx;
	return a->sa_family == AF_INET && ntohl(in->sin_addr.s_addr) == INADDR_LOOPBACK ? NULL
	                                                                                : "another";
}

static void test_guard(void **state)
{
	struct http_fetch_options o;
	struct seen s[4] = {{0}};
	char url[128], want[128];
	unsigned asked = 0;

	http_client_guard(client, only_one, &asked);
	/* As the URL has it. */
	str_format(url, sizeof(url), "http://127.0.0.2:%u/x", peer.port);
	str_format(want, sizeof(want), "127.0.0.2:%u may not be connected to: another", peer.port);
	o = options("GET", url);
	start(&s[0], &o);
	finish(&s[0]);
	assert_int_equal(s[0].err.code, ERR_PERMISSION);
	assert_string_equal(s[0].err.text, want);
	/* Another spelling of it. */
	str_format(url, sizeof(url), "http://0x7f.2:%u/x", peer.port);
	start(&s[1], &o);
	finish(&s[1]);
	assert_int_equal(s[1].err.code, ERR_PERMISSION);
	/* What a name comes to. */
	names_set("127.0.0.2,[::1]", NULL);
	o = options("GET", named_url("bad.test"));
	start(&s[2], &o);
	finish(&s[2]);
	assert_int_equal(s[2].err.code, ERR_PERMISSION);
	assert_int_equal(asked, 4);
	/* Of two addresses the one that may be. */
	names_set("127.0.0.2,127.0.0.1", NULL);
	o = options("GET", named_url("both.test"));
	start(&s[3], &o);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	answer(0, "ok");
	finish(&s[3]);
	assert_true(s[3].ok);
	assert_int_equal(asked, 6);
}

static void test_system_resolver(void **state)
{
	struct http_resolve_answer a = {{0}, {0}};
	struct http_fetch_options o = options("GET", named_url("localhost"));
	struct seen s = {0};

	start(&s, &o);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	answer(0, "ok");
	finish(&s);
	assert_true(s.ok);
	http_resolve_lookup("name.invalid", &a);
	assert_true(a.failure[0] != '\0' && a.addresses[0] == '\0');
}

static void test_resolve_timeout_and_cancel(void **state)
{
	struct http_fetch_options o = options("GET", named_url("hangs.test"));
	struct seen a = {0}, b = {0}, c = {0};
	uint64_t before;

	names_set("127.0.0.1", NULL);
	names_hang(true);
	o.resolve_timeout_ms = 100;
	start(&a, &o);
	o.resolve_timeout_ms = 10000;
	start(&b, &o);
	finish(&a);
	assert_false(a.ok);
	assert_int_equal(a.err.code, ERR_TIMEOUT);
	assert_string_equal(a.err.text, "the name hangs.test was not resolved within 100 ms");
	before = clock_mono_ms();
	http_fetch_cancel(b.f);
	assert_true(clock_mono_ms() - before < 5000); /* of the resolver's 10,000 */
	loop_ms(20);
	assert_int_equal(b.n_ends, 0);
	buf_free(&b.data);
	/* Addresses need no lookup. */
	start_get(&c);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	answer(0, "ok");
	finish(&c);
	assert_true(c.ok);
	names_hang(false);
}

static void test_lookups_at_once_are_bounded(void **state)
{
	struct seen s[8] = {{0}};
	size_t i;

	/* More threads than lookups may take. */
	client = http_client_free(client);
	pool = pool_free(pool);
	pool = pool_new(loop_base(), 6);
	client = http_client_new(loop_base(), pool);
	names_set("127.0.0.1", NULL);
	names_hang(true);
	for (i = 0; i < 8; i++) {
		struct http_fetch_options o;
		char host[32];

		str_format(host, sizeof(host), "h%zu.test", i);
		o = options("GET", named_url(host));
		start(&s[i], &o);
	}
	LOOP_UNTIL(names_at_once() > 0, 60000);
	loop_ms(50);
	assert_true(names_at_once() < 6);
	/* One of those that wait in line leaves. */
	http_fetch_cancel(s[7].f);
	buf_free(&s[7].data);
	names_hang(false);
	for (i = 0; i < 7; i++)
		LOOP_UNTIL(peer_got(i, "\r\n\r\n"), 60000);
	for (i = 0; i < 7; i++)
		answer(i, "ok");
	for (i = 0; i < 7; i++)
		finish(&s[i]);
	assert_int_equal(names.n_lookups, 7);
	assert_true(names.most_at_once < 6);
}

static void test_client_freed_while_a_lookup_hangs(void **state)
{
	struct http_fetch_options o = options("GET", named_url("hangs.test"));
	struct seen s = {0};

	names_set("127.0.0.1", NULL);
	names_hang(true);
	start(&s, &o);
	loop_ms(20);
	client = http_client_free(client);
	loop_ms(20);
	names_hang(false);
	loop_ms(20);
	assert_int_equal(s.n_ends, 0);
	buf_free(&s.data);
}

static void test_unix_socket(void **state)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct http_fetch_options o = options("GET", "http://gateway.test/x");
	struct seen s = {0};
	char folder[] = "/tmp/unit-http-XXXXXX";

	names_set(NULL, "asked for a name");
	assert_non_null(mkdtemp(folder));
	str_format(a.sun_path, sizeof(a.sun_path), "%s/s", folder);
	close(peer.listener);
	peer.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(peer.listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(peer.listener, 8), 0);
	o.unix_socket = a.sun_path;
	start(&s, &o);
	LOOP_UNTIL(peer_got(0, "GET /x HTTP/1.1\r\nHost: gateway.test\r\n"), 60000);
	answer(0, "ok");
	finish(&s);
	assert_true(s.ok);
	assert_int_equal(names.n_lookups, 0);
	unlink(a.sun_path);
	rmdir(folder);
}

/* ---- pausing ---- */

static void test_pause(void **state)
{
	struct unit_random r = {99};
	struct seen s = {.what = PAUSE_IN_HEAD};
	size_t n = 4u << 20, sent = 0, before;
	char *bytes = malloc(n);
	char head[100];
	uint64_t cpu, end;
	ssize_t took;

	assert_non_null(bytes);
	for (size_t i = 0; i < n; i++)
		bytes[i] = (char)unit_next(&r);
	start_get(&s);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	str_format(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", n);
	peer_send(0, head);
	LOOP_UNTIL(s.n_heads == 1, 60000);
	/* Paused: what the peer sends fills the kernel's buffers and no more; the loop sleeps. */
	cpu = cpu_ms();
	for (end = clock_mono_ms() + 400; clock_mono_ms() < end;) {
		took = send(peer.conns[0].fd, bytes + sent, n - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
		sent += took > 0 ? (size_t)took : 0;
		loop_once();
	}
	assert_true(cpu_ms() - cpu < 200);
	assert_int_equal(s.n_data, 0);
	/* Then one piece at a time, with a pause after each. */
	s.what = PAUSE_IN_DATA;
	for (end = clock_mono_ms() + 60000; s.n_ends == 0 && clock_mono_ms() < end;) {
		before = s.n_data;
		http_fetch_pause(s.f, false);
		took = send(peer.conns[0].fd, bytes + sent, n - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
		sent += took > 0 ? (size_t)took : 0;
		event_base_loop(loop_base(), EVLOOP_NONBLOCK);
		assert_true(s.n_data <= before + 1);
	}
	LOOP_UNTIL(s.n_ends == 1, 60000);
	assert_true(s.ok);
	assert_int_equal(s.data.len, n);
	assert_memory_equal(s.data.data, bytes, n);
	free(bytes);
	buf_free(&s.data);
}

/* ---- cancelling ---- */

static void cancelled(struct seen *s)
{
	uint64_t before = clock_mono_ms();

	http_fetch_cancel(s->f);
	assert_true(clock_mono_ms() - before < 5000);
	loop_ms(20);
	assert_int_equal(s->n_ends, 0);
	buf_free(&s->data);
}

static void test_cancel_in_each_phase(void **state)
{
	struct http_fetch_options o = options("POST", url_of("/x"));
	struct seen at_once = {0}, tls = {0}, sending = {0}, waiting = {0}, reading = {0},
	            paused = {0};
	char url[64];

	start_get(&at_once);
	cancelled(&at_once);

	o.body_len = 32u << 20;
	o.body = calloc(1, o.body_len);
	start(&sending, &o);
	loop_ms(30);
	cancelled(&sending);

	start_get(&waiting);
	LOOP_UNTIL(peer_got(1, "\r\n\r\n"), 60000);
	cancelled(&waiting);
	assert_true(peer_gone(1));

	start_get(&reading);
	LOOP_UNTIL(peer_got(2, "\r\n\r\n"), 60000);
	peer_send(2, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello");
	LOOP_UNTIL(reading.data.len == 5, 60000);
	cancelled(&reading);
	assert_true(peer_gone(2));

	paused.what = PAUSE_IN_DATA;
	start_get(&paused);
	LOOP_UNTIL(peer_got(3, "\r\n\r\n"), 60000);
	peer_send(3, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello");
	LOOP_UNTIL(paused.data.len == 5, 60000);
	peer_send(3, "more");
	loop_ms(20);
	http_fetch_pause(paused.f, false); /* both asked for in one step */
	cancelled(&paused);
	assert_int_equal(paused.n_data, 1);
	assert_true(peer_gone(3));

	str_format(url, sizeof(url), "https://127.0.0.1:%u/", peer.port);
	o = options("GET", url);
	start(&tls, &o);
	LOOP_UNTIL((peer_look(), peer.n_accepted == 5 && peer.conns[4].in.len > 0), 60000);
	cancelled(&tls);
	assert_true(peer_gone(4));
}

static void test_cancel_in_callbacks(void **state)
{
	struct seen head = {.what = CANCEL_IN_HEAD}, data = {.what = CANCEL_IN_DATA},
	            end = {.what = CANCEL_IN_END};

	start_get(&head);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	answer(0, "hello");
	LOOP_UNTIL(head.n_heads == 1, 60000);
	loop_ms(20);
	assert_int_equal(head.n_data + head.n_ends, 0);
	assert_true(peer_gone(0));
	buf_free(&head.data);

	start_get(&data);
	LOOP_UNTIL(peer_got(1, "\r\n\r\n"), 60000);
	answer(1, "hello");
	LOOP_UNTIL(data.n_data == 1, 60000);
	loop_ms(20);
	assert_int_equal(data.n_ends, 0);
	buf_free(&data.data);

	start_get(&end);
	LOOP_UNTIL(peer_got(2, "\r\n\r\n"), 60000);
	answer(2, "hello");
	finish(&end);
	assert_true(end.ok);
}

/* Fetches that act on others from inside callbacks. */
static struct seen others[3];

static void start_other_in_data(void *ctx, struct http_fetch *f, const void *data, size_t n)
{
	(void)f;
	(void)data;
	(void)n;
	if (!others[1].f && others[1].n_ends == 0) {
		start_get(&others[1]);
		http_fetch_cancel(others[2].f);
		others[2].f = NULL;
	}
	(void)ctx;
}

static void test_acts_on_others_in_callbacks(void **state)
{
	struct http_fetch_handler h = {&others[0], on_head, start_other_in_data, on_end};
	struct http_fetch_options o = options("GET", url_of("/x"));
	struct error err;

	memset(others, 0, sizeof(others));
	start_get(&others[2]);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n"), 60000);
	buf_init(&others[0].data, 100);
	others[0].f = http_fetch_start(client, &o, &h, &err);
	assert_non_null(others[0].f);
	LOOP_UNTIL(peer_got(1, "\r\n\r\n"), 60000);
	peer_send(1, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc");
	LOOP_UNTIL(peer_got(2, "\r\n\r\n"), 60000);
	assert_true(peer_gone(0));
	answer(2, "ok");
	peer_send(1, "abc");
	finish(&others[0]);
	finish(&others[1]);
	assert_true(others[0].ok && others[1].ok);
	assert_int_equal(others[2].n_ends, 0);
	buf_free(&others[2].data);
}

static void test_free_with_open_fetches(void **state)
{
	struct http_fetch_options o = options("POST", url_of("/x"));
	struct seen a = {0}, b = {0}, c = {.what = PAUSE_IN_DATA};

	start_get(&a);
	start_get(&c);
	LOOP_UNTIL(peer_got(0, "\r\n\r\n") && peer_got(1, "\r\n\r\n"), 60000);
	answer(0, "hello");
	answer(1, "hello");
	loop_ms(10);
	o.body_len = 8u << 20;
	o.body = calloc(1, o.body_len);
	start(&b, &o);
	loop_ms(10);
	client = http_client_free(client);
	assert_int_equal(b.n_ends, 0);
	buf_free(&a.data);
	buf_free(&b.data);
	buf_free(&c.data);
}

static http_resolve_fn lookup_by_system;

static int setup(void **state)
{
	(void)state;
	if (!lookup_by_system)
		lookup_by_system = http_resolve_lookup;
	pool = pool_new(loop_base(), 2);
	client = http_client_new(loop_base(), pool);
	http_resolve_lookup = lookup_by_system;
	peer_open();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	client = http_client_free(client);
	pool = pool_free(pool);
	peer_close();
	loop_free();
	return 0;
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	/* A proxy named in the environment is not asked. */
	setenv("http_proxy", "http://127.0.0.1:1", 1);
	setenv("all_proxy", "http://127.0.0.1:1", 1);
	const struct CMUnitTest tests[] = {
	        CASE(test_get),
	        CASE(test_post_small_is_one_packet),
	        CASE(test_methods),
	        CASE(test_head_method),
	        CASE(test_large_upload),
	        CASE(test_connection_is_reused),
	        CASE(test_retry_small),
	        CASE(test_retry_large),
	        CASE(test_no_retry_on_a_new_connection),
	        CASE(test_no_retry_once_something_came),
	        CASE(test_bad_answers),
	        CASE(test_close_delimited),
	        CASE(test_html_error_is_data),
	        CASE(test_redirect_is_not_followed),
	        CASE(test_headers_too_large),
	        CASE(test_single_bytes),
	        CASE(test_coded_answer_is_decoded),
	        CASE(test_refused),
	        CASE(test_not_tls),
	        CASE(test_refused_at_start),
	        CASE(test_first_byte_timeout),
	        CASE(test_idle_timeout),
	        CASE(test_idle_is_not_counted_while_paused),
	        CASE(test_send_timeout),
	        CASE(test_connect_timeout),
	        CASE(test_name_is_resolved_once),
	        CASE(test_name_unknown),
	        CASE(test_second_address_is_tried),
	        CASE(test_guard),
	        CASE(test_system_resolver),
	        CASE(test_resolve_timeout_and_cancel),
	        CASE(test_lookups_at_once_are_bounded),
	        CASE(test_client_freed_while_a_lookup_hangs),
	        CASE(test_unix_socket),
	        CASE(test_pause),
	        CASE(test_cancel_in_each_phase),
	        CASE(test_cancel_in_callbacks),
	        CASE(test_acts_on_others_in_callbacks),
	        CASE(test_free_with_open_fetches),
	};

	return UNIT_RUN(tests);
}
