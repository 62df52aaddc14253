/* What curl is told about a fetch, and what it tells about its end. */
#include "http/fetch.h"

#include "base/mem.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

enum {
	RECEIVE_BUFFER = 1024, /* curl's least: each open stream has one */
	UPLOAD_BUFFER = 16384,
	DNS_KEPT_S =
	        3600, /* longer than a fetch that might be sent again; we replace it each time */
};

static bool is_token(struct str s)
{
	return str_in_set(s, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
	                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
}

static int fetch_set_header(struct http_fetch *f, const char *line, struct error *err)
{
	const char *colon = strchr(line, ':'), *p;
	struct str name, value;
	_cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
	struct curl_slist *list;
	int r = 0;

	name = (struct str){line, colon ? (size_t)(colon - line) : 0};
	if (!is_token(name) || str_ieq(name, STR("content-length")) ||
	        str_ieq(name, STR("transfer-encoding")))
		return error_set(err, ERR_INVALID, "a header of the request is malformed");
	for (p = line; *p; p++)
		if (((unsigned char)*p < 0x20 && *p != '\t') || *p == 0x7f)
			return error_set(err, ERR_INVALID,
			        "the header %.*s of the request holds a control character",
			        (int)(name.n < 100 ? name.n : 100), name.p);
	value = str_trim(str_of(colon + 1));
	/* curl takes "Name:" for "leave that header out" and "Name;" for an empty one. */
	buf_append(&text, name.p, name.n);
	buf_puts(&text, value.n > 0 ? ": " : ";");
	r = buf_append(&text, value.p, value.n);
	list = r ? NULL : curl_slist_append(f->headers, buf_cstr(&text));
	if (text.data)
		mem_wipe(text.data, text.len);
	if (!list)
		return error_set(err, ERR_INVALID, "a header of the request is too large");
	f->headers = list;
	return 0;
}

static int fetch_set_headers(struct http_fetch *f, const char *const *headers, struct error *err)
{
	bool has_type = false;
	size_t i;
	int r;

	for (i = 0; headers && headers[i]; i++) {
		r = fetch_set_header(f, headers[i], err);
		if (r)
			return r;
		has_type = has_type ||
		           (strlen(headers[i]) > 13 &&
		                   str_ieq((struct str){headers[i], 13}, STR("content-type:")));
	}
	/* Without "Expect", or curl would wait for leave to send a large body. */
	f->headers = curl_slist_append(f->headers, "Expect:");
	if (!has_type)
		f->headers = curl_slist_append(f->headers, "Content-Type:");
	curl_easy_setopt(f->easy, CURLOPT_HTTPHEADER, f->headers);
	return 0;
}

static void fetch_set_method(struct http_fetch *f, const char *method)
{
	CURL *e = f->easy;

	if (strcmp(method, "HEAD") == 0) {
		curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
		return;
	}
	if (f->body || strcmp(method, "POST") == 0) {
		curl_easy_setopt(e, CURLOPT_POST, 1L);
		curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)f->body_len);
		if (f->body_len <= HTTP_FETCH_SMALL_BODY) {
			curl_easy_setopt(e, CURLOPT_POSTFIELDS, f->body ? f->body : "");
		} else {
			curl_easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, (long)UPLOAD_BUFFER);
		}
	}
	if (strcmp(method, "POST") != 0 && strcmp(method, "GET") != 0)
		curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, method);
	else if (strcmp(method, "GET") == 0 && f->body)
		curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, method);
}

static void fetch_set_options(struct http_fetch *f, const struct http_fetch_options *o)
{
	CURL *e = f->easy;

	curl_easy_setopt(e, CURLOPT_PRIVATE, (void *)f);
	curl_easy_setopt(e, CURLOPT_URL, o->url);
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(e, CURLOPT_PROXY, "");
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	/* Asks for no coding, and makes curl decode one that comes all the same. */
	curl_easy_setopt(e, CURLOPT_ACCEPT_ENCODING, "identity");
	curl_easy_setopt(e, CURLOPT_BUFFERSIZE, (long)RECEIVE_BUFFER);
	curl_easy_setopt(e, CURLOPT_DNS_CACHE_TIMEOUT, (long)DNS_KEPT_S);
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)f->connect_ms);
	curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(e, CURLOPT_ERRORBUFFER, f->failure);
	if (o->ca_file)
		curl_easy_setopt(e, CURLOPT_CAINFO, o->ca_file);
	if (o->unix_socket)
		curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, o->unix_socket);
}

/* Host and port, for resolving and for people. */
static int fetch_set_place(struct http_fetch *f, const char *host, uint64_t port, struct error *err)
{
	_cleanup_buf_ struct buf place = BUF_INIT(1024);
	size_t n = strlen(host), i;
	unsigned char raw[16];

	if (n >= HTTP_RESOLVE_NAME)
		return error_set(err, ERR_INVALID, "the host's name is too long");
	for (i = 0; i < n; i++)
		if ((unsigned char)host[i] <= 0x20 || (unsigned char)host[i] >= 0x7f)
			return error_set(err, ERR_INVALID, "the host's name must be ASCII");
	f->is_literal = host[0] == '[' || inet_pton(AF_INET, host, raw) == 1;
	f->port = (unsigned)port;
	f->host = mem_strndup(host, n);
	for (i = 0; i < n; i++)
		if (f->host[i] >= 'A' && f->host[i] <= 'Z')
			f->host[i] = (char)(f->host[i] + ('a' - 'A'));
	buf_printf(&place, "%s:%u", f->host, f->port);
	f->place = mem_strdup(buf_cstr(&place));
	return 0;
}

static int fetch_read_url(struct http_fetch *f, const char *url, struct error *err)
{
	char *scheme = NULL, *host = NULL, *port = NULL;
	CURLU *u = curl_url();
	uint64_t number = 0;
	int r;

	if (u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK) {
		curl_url_get(u, CURLUPART_SCHEME, &scheme, 0);
		curl_url_get(u, CURLUPART_HOST, &host, 0);
		curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT);
	}
	if (!scheme || !host || !port || !host[0] ||
	        (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0) ||
	        !str_to_u64(str_of(port), &number) || number == 0 || number > 65535)
		r = error_set(err, ERR_INVALID, "the address is not a valid http or https URL");
	else
		r = fetch_set_place(f, host, number, err);
	curl_free(scheme);
	curl_free(host);
	curl_free(port);
	curl_url_cleanup(u);
	return r;
}

int http_fetch_build(struct http_fetch *f, const struct http_fetch_options *o, struct error *err)
{
	int r;

	f->easy = curl_easy_init();
	if (!f->easy)
		return error_set(err, ERR_NOMEM, "no memory for a request to another server");
	if (!is_token(str_of(o->method)))
		return error_set(err, ERR_INVALID, "the request's method is malformed");
	r = fetch_read_url(f, o->url, err);
	if (r)
		return r;
	if (o->unix_socket)
		f->is_literal = true; /* nothing to resolve */
	fetch_set_options(f, o);
	fetch_set_method(f, o->method);
	return fetch_set_headers(f, o->headers, err);
}

void http_fetch_set_addresses(struct http_fetch *f, const struct http_resolve_answer *answer)
{
	_cleanup_buf_ struct buf entry = BUF_INIT(2048);

	buf_printf(&entry, "+%s:%u:%s", f->host, f->port, answer->addresses);
	f->resolve = curl_slist_append(NULL, buf_cstr(&entry));
	curl_easy_setopt(f->easy, CURLOPT_RESOLVE, f->resolve);
}

struct curl_slist *http_fetch_wipe(struct curl_slist *list)
{
	struct curl_slist *i;

	for (i = list; i; i = i->next)
		mem_wipe(i->data, strlen(i->data));
	curl_slist_free_all(list);
	return NULL;
}

void http_fetch_forget_request(struct http_fetch *f)
{
	curl_off_t sent = 0;

	curl_easy_setopt(f->easy, CURLOPT_HTTPHEADER, NULL);
	f->headers = http_fetch_wipe(f->headers);
	curl_easy_setopt(f->easy, CURLOPT_ERRORBUFFER, NULL);
	free(f->failure);
	f->failure = NULL;
	if (!f->body || curl_easy_getinfo(f->easy, CURLINFO_SIZE_UPLOAD_T, &sent) ||
	        (uint64_t)sent != f->body_len)
		return; /* an answer that came before all was sent */
	curl_easy_setopt(f->easy, CURLOPT_POSTFIELDS, NULL);
	free(f->body);
	f->body = NULL;
	f->body_len = f->body_off = 0;
}

/* ---- what went wrong, in words ---- */

static void error_of_connect(const struct http_fetch *f, struct error *err)
{
	long number = 0;

	if (f->refused) {
		error_set(err, ERR_PERMISSION, "%s may not be connected to: %s", f->place,
		        f->refused);
		return;
	}
	curl_easy_getinfo(f->easy, CURLINFO_OS_ERRNO, &number);
	error_set(err, ERR_UPSTREAM, "could not connect to %s%s%s", f->place, number ? ": " : "",
	        number ? strerror((int)number) : "");
}

void http_fetch_explain(const struct http_fetch *f, CURLcode code, struct error *err)
{
	switch ((int)code) {
	case CURLE_COULDNT_RESOLVE_HOST:
		error_set(err, ERR_UPSTREAM, "the name %s could not be resolved", f->host);
		break;
	case CURLE_COULDNT_CONNECT:
		error_of_connect(f, err);
		break;
	case CURLE_OPERATION_TIMEDOUT:
		error_set(err, ERR_TIMEOUT, "could not connect to %s within %u ms", f->place,
		        f->connect_ms);
		break;
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CIPHER:
	case CURLE_SSL_ISSUER_ERROR:
		error_set(err, ERR_UPSTREAM, "no secure connection to %s: %s", f->place,
		        f->failure && f->failure[0] ? f->failure : curl_easy_strerror(code));
		break;
	case CURLE_GOT_NOTHING:
		error_set(
		        err, ERR_UPSTREAM, "%s closed the connection without an answer", f->place);
		break;
	case CURLE_SEND_ERROR:
		error_set(err, ERR_UPSTREAM,
		        "the connection to %s was lost while the request was sent", f->place);
		break;
	case CURLE_RECV_ERROR:
	case CURLE_PARTIAL_FILE:
		error_set(err, ERR_UPSTREAM,
		        f->head_done ? "the answer of %s was cut off"
		                     : "the connection to %s was lost before it answered",
		        f->place);
		break;
	case CURLE_WRITE_ERROR:
		if (f->coded_twice)
			error_set(err, ERR_UPSTREAM,
			        "the answer of %s is compressed more than once", f->place);
		else
			error_set(err, ERR_UPSTREAM, "the headers of %s are larger than %d bytes",
			        f->place, HTTP_FETCH_HEAD_MAX);
		break;
	default:
		error_set(err, ERR_UPSTREAM, "the answer of %s cannot be read: %s", f->place,
		        curl_easy_strerror(code));
		break;
	}
}
