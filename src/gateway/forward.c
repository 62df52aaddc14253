/*
 * Requests about something that lives in another gateway of this node: passed on over that
 * gateway's unix socket, with their own headers, so that it authenticates them itself. What belongs
 * where follows from a hash; nothing is looked up.
 */
#include "gateway/internal.h"

#include "base/id.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MARK "x-brig-forwarded"
#define MARK_SIZE (sizeof(MARK ": ") + 64)

static void socket_path(const struct gateway *g, uint32_t index, char out[108])
{
	str_format(out, 108, "%s/gateway-%u.sock", g->options->state_dir, index);
}

int forward_listen(struct gateway *g, struct error *err)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd;

	if (g->options->workers < 2)
		return 0;
	if (strlen(g->options->state_dir) > 80)
		return error_set(err, ERR_INVALID,
		        "the data folder's path is too long for sockets (80 characters)");
	socket_path(g, g->options->index, sa.sun_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_errno(err, errno, "socket");
	unlink(sa.sun_path);
	if (bind(fd, (const struct sockaddr *)&sa, sizeof(sa)) < 0 ||
	        chmod(sa.sun_path, 0600) < 0 || listen(fd, 1024) < 0) {
		int e = errno;

		close(fd);
		return error_errno(err, e, "listen on %s", sa.sun_path);
	}
	return http_server_listen(g->server, fd, err);
}

static uint32_t owner_of(
        const struct gateway *g, const struct config_key *key, struct str container, struct str id)
{
	const struct str parts[] = {str_of(key->account), str_of(key->workspace), container, id};
	uint8_t hash[32];
	uint32_t n;

	id_sha256_parts(parts, 4, hash);
	memcpy(&n, hash, sizeof(n));
	return n % g->options->workers;
}

bool forward_is_ours(
        const struct gateway *g, const struct config_key *key, struct str container, struct str id)
{
	return owner_of(g, key, container, id) == g->options->index;
}

/*
 * "x-brig-forwarded: <hex>": only a gateway of this node can write it, so no client makes a request
 * stay where it does not belong. Derived from the key that all of them share.
 */
static void mark_make(const struct gateway *g, char out[MARK_SIZE])
{
	const struct str parts[] = {
	        STR("forwarded"), {(const char *)g->seal_key, sizeof(g->seal_key)}};
	uint8_t hash[32];
	char hex[65];

	id_sha256_parts(parts, 2, hash);
	id_hex(hash, sizeof(hash), hex);
	str_format(out, MARK_SIZE, MARK ": %s", hex);
}

/* One request on its way. */
struct forward {
	struct http_exchange *x; /* NULL: the client has gone */
	struct owner owner;
	struct http_fetch *fetch;
};

static void forward_free(struct forward *w)
{
	if (w->x != NULL)
		http_exchange_set_data(w->x, NULL);
	free(w);
}

static void on_head(void *ctx, struct http_fetch *f, int status)
{
	static const char *const passed[] = {"x-should-retry", "retry-after", "cache-control",
	        "x-accel-buffering"};
	struct forward *w = ctx;
	char type[128], value[256];

	str_copy(type, sizeof(type), http_fetch_header(f, "content-type"));
	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++) {
		struct str h = http_fetch_header(f, passed[i]);

		if (h.n > 0 && str_copy(value, sizeof(value), h))
			http_response_header(w->x, passed[i], value);
	}
	http_respond_start(w->x, status, type);
}

static void on_data(void *ctx, struct http_fetch *f, const void *data, size_t n)
{
	struct forward *w = ctx;

	http_write(w->x, (struct str){data, n});
	if (w->x != NULL && http_above_high_water(w->x))
		http_fetch_pause(f, true);
}

static void on_end(void *ctx, struct http_fetch *f, const struct error *err)
{
	struct forward *w = ctx;
	struct http_exchange *x = w->x;
	bool under_v1 = str_starts(http_request_path(x), "/v1/");
	struct error e;

	forward_free(w);
	if (err == NULL) {
		http_finish(x);
	} else if (http_started(x)) {
		http_abort(x);
	} else {
		error_set(&e, ERR_UNAVAILABLE,
		        "The part of this server that holds it does not answer.");
		e.retry_after_ms = 1000;
		respond_error(x, under_v1, &e);
	}
}

static void on_client_drain(void *self)
{
	struct forward *w = self;

	http_fetch_pause(w->fetch, false);
}

static void on_client_gone(void *self, enum http_gone why)
{
	struct forward *w = self;

	w->x = NULL;
	http_fetch_cancel(w->fetch);
	forward_free(w);
}

/* "Name: value" of one header of the request, or an empty string. */
static void header_copy(struct http_exchange *x, const char *name, struct buf *out)
{
	struct str v = http_request_header(x, name);

	if (v.p == NULL)
		return;
	buf_printf(out, "%s: ", name);
	buf_append(out, v.p, v.n);
}

bool forward_to_owner(struct request *r, struct str container, struct str id)
{
	static const char *const names[] = {
	        "authorization", "x-api-key", "x-goog-api-key", "content-type"};
	const struct http_fetch_handler h_template = {NULL, on_head, on_data, on_end};
	struct http_fetch_handler h = h_template;
	struct buf headers[4] = {BUF_INIT(8192), BUF_INIT(8192), BUF_INIT(8192), BUF_INIT(8192)};
	char mark[MARK_SIZE];
	const char *list[6] = {mark};
	size_t n = 1;
	uint32_t owner;
	char path[108], method[16];
	struct buf url = BUF_INIT(65536);
	struct forward *w;
	struct error e;

	if (r->g->options->workers < 2)
		return false;
	mark_make(r->g, mark);
	if (str_eq_secret(http_request_header(r->x, MARK), str_of(mark + strlen(MARK ": "))))
		return false;
	owner = owner_of(r->g, r->key, container, id);
	if (owner == r->g->options->index)
		return false;
	for (size_t i = 0; i < 4; i++) {
		header_copy(r->x, names[i], &headers[i]);
		if (headers[i].len > 0)
			list[n++] = headers[i].data;
	}
	socket_path(r->g, owner, path);
	str_copy(method, sizeof(method), http_request_method(r->x));
	buf_puts(&url, "http://brig");
	struct str target = http_request_target(r->x);

	buf_append(&url, target.p, target.n);
	struct http_fetch_options o = {
	        .method = method,
	        .url = buf_cstr(&url),
	        .headers = list,
	        .unix_socket = path,
	        .connect_timeout_ms = 2000,
	};

	o.body = request_take_body(r, &o.body_len);
	w = mem_alloc(sizeof(*w));
	w->x = r->x;
	w->owner = (struct owner){on_client_drain, on_client_gone, w};
	h.ctx = w;
	w->fetch = http_fetch_start(r->g->client, &o, &h, &e);
	if (w->fetch == NULL) {
		free(w);
		respond_error(r->x, r->under_v1, &e);
	} else {
		http_exchange_set_data(r->x, &w->owner);
	}
	for (size_t i = 0; i < 4; i++) {
		if (headers[i].data != NULL)
			mem_wipe(headers[i].data, headers[i].len);
		buf_free(&headers[i]);
	}
	buf_free(&url);
	return true;
}
