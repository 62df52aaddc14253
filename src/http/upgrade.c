/*
 * The opening handshake of WebSocket (RFC 6455, 4.2). Strict: a header that is sent twice, a key
 * that is not 16 bytes in base64, or a body is refused, so that nobody between can have read
 * another request than this one.
 */
#include "http/conn.h"

#include "base/base64.h"

#include <openssl/evp.h>
#include <string.h>

enum { KEY_CHARS = 24, SHA1_BYTES = 20 };

/* Is token one of the names in a list with commas? */
static bool list_has(struct str list, const char *token)
{
	size_t begin = 0, end;

	for (; begin <= list.n; begin = end + 1) {
		for (end = begin; end < list.n && list.p[end] != ','; end++)
			;
		if (str_ieq(str_trim((struct str){list.p + begin, end - begin}), str_of(token)))
			return true;
	}
	return false;
}

/* 16 bytes: 22 characters, of which the last carries two bits only. */
static bool key_is_valid(struct str key)
{
	static const char chars[] =
	        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	return key.n == KEY_CHARS && str_in_set((struct str){key.p, KEY_CHARS - 2}, chars) &&
	       strchr("AQgw", key.p[KEY_CHARS - 3]) != NULL && key.p[KEY_CHARS - 2] == '=' &&
	       key.p[KEY_CHARS - 1] == '=';
}

static int check(const struct http_exchange *x, const char **ret_text)
{
	struct str key = http_request_header(x, "sec-websocket-key");

	if (!str_is(http_request_method(x), "GET") || x->head.minor == 0 || x->head.chunked ||
	        x->head.length > 0) {
		*ret_text = "Only a GET of HTTP/1.1 without a body opens a WebSocket.";
		return -400;
	}
	if (http_request_header_count(x, "upgrade") != 1 ||
	        !str_ieq(http_request_header(x, "upgrade"), STR("websocket")) ||
	        http_request_header_count(x, "connection") != 1 ||
	        !list_has(http_request_header(x, "connection"), "upgrade")) {
		*ret_text = "This path is for WebSocket: send `Connection: Upgrade` and `Upgrade: "
		            "websocket`, or use POST.";
		return -426;
	}
	if (http_request_header_count(x, "sec-websocket-version") != 1 ||
	        !str_is(http_request_header(x, "sec-websocket-version"), "13")) {
		*ret_text = "Sec-WebSocket-Version must be 13.";
		return -426;
	}
	if (http_request_header_count(x, "sec-websocket-key") != 1 || !key_is_valid(key)) {
		*ret_text = "Sec-WebSocket-Key must be 16 bytes in base64, sent once.";
		return -400;
	}
	return 0;
}

static void accept_of(struct str key, struct buf *out)
{
	static const char magic[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
	char text[KEY_CHARS + sizeof(magic) - 1];
	unsigned char hash[SHA1_BYTES];
	unsigned n = 0;

	memcpy(text, key.p, KEY_CHARS);
	memcpy(text + KEY_CHARS, magic, sizeof(magic) - 1);
	if (!EVP_Digest(text, sizeof(text), hash, &n, EVP_sha1(), NULL) || n != SHA1_BYTES)
		BUG("no SHA-1");
	base64_append(out, hash, sizeof(hash));
}

int http_upgrade_websocket(struct http_exchange *x, const char **ret_text)
{
	_cleanup_buf_ struct buf head = BUF_INIT(4096 + x->headers.max);
	struct http_conn *c = x->conn;
	int r = check(x, ret_text);

	if (r < 0 || x->over || c->dead)
		return r;
	if (x->started || c->state != CONN_WAIT)
		BUG("an upgrade of an exchange that is answered, or not read");
	buf_printf(&head,
	        "HTTP/1.1 101 Switching Protocols\r\nDate: %s\r\nUpgrade: websocket\r\n"
	        "Connection: Upgrade\r\nSec-WebSocket-Accept: ",
	        http_server_date(c->server));
	accept_of(http_request_header(x, "sec-websocket-key"), &head);
	buf_puts(&head, "\r\n");
	buf_append(&head, x->headers.data, x->headers.len);
	buf_puts(&head, "\r\n");
	if (buf_error(&head))
		BUG("the head of an answer is too large");
	x->started = true;
	x->status = 101;
	x->upgraded = true;
	c->close = true;
	c->state = CONN_UPGRADED;

	struct iovec iov = {head.data, head.len};

	http_conn_send(c, &iov, 1, false);
	return 0;
}

bool http_upgraded(const struct http_exchange *x)
{
	return x->upgraded;
}
