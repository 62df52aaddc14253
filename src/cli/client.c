#include "cli/client.h"

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/folder.h"
#include "json/json.h"

#include <curl/curl.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_ERROR_BODY = 1024 * 1024 };

static volatile sig_atomic_t caught;

static void on_signal(int sig)
{
	caught = sig;
}

void client_catch_signals(void)
{
	struct sigaction a = {.sa_handler = on_signal};

	sigaction(SIGINT, &a, NULL);
	sigaction(SIGTERM, &a, NULL);
	sigaction(SIGHUP, &a, NULL);
}

int client_caught_signal(void)
{
	int sig = caught;

	caught = 0;
	return sig;
}

int client_find(struct client *c, const char *data_flag, struct error *err)
{
	const char *url = getenv("BRIG_URL"), *key = getenv("BRIG_KEY");
	char data[4096];
	size_t n;
	int r;

	memset(c, 0, sizeof(*c));
	r = cli_data_folder(data_flag, NULL, data, err);
	if (r < 0)
		return r;
	if (url && *url)
		str_copy(c->url, sizeof(c->url), str_of(url));
	else if (!folder_read_line(data, "url", c->url, sizeof(c->url)))
		return error_set(err, ERR_NOT_FOUND,
		        "no server is running on the data folder %s (start one with `brig serve`, "
		        "or set BRIG_URL)",
		        data);
	for (n = strlen(c->url); n > 0 && c->url[n - 1] == '/'; n--)
		c->url[n - 1] = '\0';
	if (key && *key)
		str_copy(c->key, sizeof(c->key), str_of(key));
	else if (!folder_read_line(data, "key", c->key, sizeof(c->key)))
		return error_set(err, ERR_AUTH,
		        "no key to be read in the data folder %s; set BRIG_KEY", data);
	return 0;
}

void client_wipe(struct client *c)
{
	mem_wipe(c->key, sizeof(c->key));
}

/* A request under way. */
struct transfer {
	CURL *curl;
	client_data_fn fn;
	void *ctx;
	struct error *err;
	int failed; /* what fn gave back */
	struct buf error_body;
	struct client_upload *upload;
	void (*progress)(void *ctx, uint64_t done, uint64_t total);
};

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
	struct transfer *t = ctx;
	long status = 0;

	n *= size;
	curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status < 200 || status > 299) {
		buf_append(&t->error_body, data, n); /* what does not fit is not needed */
		return n;
	}
	t->failed = t->fn ? t->fn(t->ctx, data, n, t->err) : 0;
	return t->failed < 0 ? 0 : n;
}

static int on_progress(
        void *ctx, curl_off_t down_total, curl_off_t down, curl_off_t up_total, curl_off_t up)
{
	const struct transfer *t = ctx;

	if (t->progress && t->upload)
		t->progress(t->ctx, (uint64_t)up, (uint64_t)up_total);
	else if (t->progress)
		t->progress(t->ctx, (uint64_t)down, (uint64_t)down_total);
	return caught != 0;
}

static size_t copy_from(struct str part, uint64_t at, char *out, size_t room)
{
	size_t n = part.n - (size_t)at;

	n = n < room ? n : room;
	memcpy(out, part.p + at, n);
	return n;
}

/* The next bytes of an upload's head, file and tail. */
static size_t on_send(char *out, size_t size, size_t n, void *ctx)
{
	struct transfer *t = ctx;
	struct client_upload *u = t->upload;
	size_t room = size * n, got = 0;
	ssize_t r = 0;

	if (u->sent < u->head.n) {
		got = copy_from(u->head, u->sent, out, room);
		u->sent += got;
		return got;
	}
	/* A signal ends a read that waits. */
	while (u->tail.n > 0 && (r = read(u->file, out, room)) < 0 && errno == EINTR && !caught)
		;
	if (r < 0 && !caught)
		t->failed = error_errno(t->err, errno, "reading the file");
	if (r < 0)
		return CURL_READFUNC_ABORT;
	got = (size_t)r;
	if (got == 0) {
		got = copy_from(u->tail, 0, out, room);
		u->tail = (struct str){u->tail.p + got, u->tail.n - got};
	}
	u->sent += got;
	return got;
}

/* The server's own words: error.message of every dialect's envelope. */
static int status_error(struct transfer *t, long status)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	struct str text = {t->error_body.data, t->error_body.len}, message = {0};
	enum err code = status == 401   ? ERR_AUTH
	                : status == 403 ? ERR_PERMISSION
	                : status == 404 ? ERR_NOT_FOUND
	                : status == 409 ? ERR_CONFLICT
	                : status == 413 ? ERR_TOO_LARGE
	                : status == 429 ? ERR_RATE
	                : status < 500  ? ERR_INVALID
	                                : ERR_UNAVAILABLE;

	if (text.p && json_parse(text, 4 * MAX_ERROR_BODY, &doc, NULL) == 0)
		message = json_str(json_get(json_get(json_root(doc), "error"), "message"));
	if (message.n)
		return error_set(t->err, code, "the server says: %.*s (HTTP %ld)", (int)message.n,
		        message.p, status);
	return error_set(t->err, code, "the server answers with HTTP %ld", status);
}

static int finish(struct transfer *t, CURLcode code, const struct client *c)
{
	long status = 0;

	if (t->failed < 0)
		return t->failed;
	if (code == CURLE_ABORTED_BY_CALLBACK || (code != CURLE_OK && caught))
		return error_set(t->err, ERR_CANCELED, "interrupted");
	curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
	if (t->upload && status >= 300) /* refused before all of it was sent */
		return status_error(t, status);
	if (code == CURLE_COULDNT_CONNECT)
		return error_set(t->err, ERR_UNAVAILABLE, "no server answers at %.200s", c->url);
	if (code != CURLE_OK)
		return error_set(
		        t->err, ERR_UNAVAILABLE, "%.200s: %s", c->url, curl_easy_strerror(code));
	return status >= 200 && status <= 299 ? 0 : status_error(t, status);
}

static void set_upload(struct transfer *t, struct curl_slist **headers)
{
	const struct client_upload *u = t->upload;
	char type[256];

	str_format(type, sizeof(type), "Content-Type: %s", u->content_type);
	*headers = curl_slist_append(*headers, type);
	curl_easy_setopt(t->curl, CURLOPT_POST, 1L);
	curl_easy_setopt(t->curl, CURLOPT_READFUNCTION, on_send);
	curl_easy_setopt(t->curl, CURLOPT_READDATA, t);
	if (u->size < 0)
		*headers = curl_slist_append(*headers, "Transfer-Encoding: chunked");
	else
		curl_easy_setopt(t->curl, CURLOPT_POSTFIELDSIZE_LARGE,
		        (curl_off_t)(u->head.n + u->tail.n) + (curl_off_t)u->size);
}

/* body: of t without an upload. */
static int perform(const struct client *c, struct transfer *t, const char *method, const char *path,
        struct str body)
{
	struct curl_slist *headers = NULL;
	_cleanup_buf_ struct buf url = BUF_INIT(65536);
	char authorization[4300];
	CURLcode code;
	int r;

	buf_printf(&url, "%s%s", c->url, path);
	if (buf_error(&url))
		return error_set(t->err, ERR_INVALID, "the path is too long");
	t->curl = curl_easy_init();
	if (!t->curl)
		return error_set(t->err, ERR_NOMEM, "no memory");
	str_format(authorization, sizeof(authorization), "Authorization: Bearer %s", c->key);
	headers = curl_slist_append(headers, authorization);
	if (body.p)
		headers = curl_slist_append(headers, "Content-Type: application/json");
	if (t->upload)
		set_upload(t, &headers);
	else
		headers = curl_slist_append(headers, "Expect:");
	curl_easy_setopt(t->curl, CURLOPT_URL, buf_cstr(&url));
	curl_easy_setopt(t->curl, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(t->curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(t->curl, CURLOPT_PROXY, "");
	curl_easy_setopt(t->curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(t->curl, CURLOPT_CONNECTTIMEOUT, 10L);
	if (body.p) {
		curl_easy_setopt(t->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.n);
		curl_easy_setopt(t->curl, CURLOPT_POSTFIELDS, body.p);
	}
	curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, t);
	curl_easy_setopt(t->curl, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(t->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
	curl_easy_setopt(t->curl, CURLOPT_XFERINFODATA, t);
	code = curl_easy_perform(t->curl);
	r = finish(t, code, c);
	curl_slist_free_all(headers);
	curl_easy_cleanup(t->curl);
	buf_free(&t->error_body);
	mem_wipe(authorization, sizeof(authorization));
	return r;
}

int client_request(const struct client *c, const char *method, const char *path, struct str body,
        client_data_fn fn, void *ctx, struct error *err)
{
	struct transfer t = {
	        .fn = fn, .ctx = ctx, .err = err, .error_body = BUF_INIT(MAX_ERROR_BODY)};

	return perform(c, &t, method, path, body);
}

int client_transfer(const struct client *c, const struct client_call *call, struct error *err)
{
	struct transfer t = {
	        .fn = call->fn,
	        .ctx = call->ctx,
	        .err = err,
	        .error_body = BUF_INIT(MAX_ERROR_BODY),
	        .upload = call->upload,
	        .progress = call->progress,
	};

	return perform(c, &t, call->method, call->path, (struct str){NULL, 0});
}

static int collect(void *ctx, const char *data, size_t n, struct error *err)
{
	if (buf_append(ctx, data, n) < 0)
		return error_set(err, ERR_TOO_LARGE, "the answer is too large");
	return 0;
}

int client_fetch(const struct client *c, const char *method, const char *path, struct str body,
        struct buf *out, struct error *err)
{
	return client_request(c, method, path, body, collect, out, err);
}
