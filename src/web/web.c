/*
 * Files go out with the tag of their content and `no-cache`: a browser asks each time and mostly
 * gets a 304, so a new brig never meets an old page's scripts. The policy lets the page run its own
 * scripts and reach its own server, and nothing else: not a byte of what it shows can become code,
 * load something or be sent elsewhere. Text is only ever put into it as text; trusted types make
 * the browser refuse the ways around that.
 */
#include "web/web.h"

#include "web/web_files.h"

static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; "
                             "connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
                             "form-action 'none'; frame-ancestors 'none'; "
                             "require-trusted-types-for 'script'; trusted-types 'none'";

static const struct web_file *find(struct str path)
{
	for (size_t i = 0; i < web_files_n; i++)
		if (str_is(path, web_files[i].path))
			return &web_files[i];
	return NULL;
}

/* Is token one of a list with commas, and not with ;q=0? */
static bool lists(struct str header, struct str token)
{
	while (header.n > 0) {
		size_t n = 0;

		while (n < header.n && header.p[n] != ',')
			n++;
		struct str item = str_trim((struct str){header.p, n}), rest;

		header.p += n < header.n ? n + 1 : n;
		header.n -= n < header.n ? n + 1 : n;
		if (item.n < token.n || !str_ieq((struct str){item.p, token.n}, token))
			continue;
		rest = str_trim((struct str){item.p + token.n, item.n - token.n});
		if (rest.n == 0)
			return true;
		if (rest.p[0] == ';')
			return !str_ends(rest, "q=0") && !str_ends(rest, "q=0.0");
	}
	return false;
}

static void common_headers(struct http_exchange *x, const char *etag)
{
	http_response_header(x, "ETag", etag);
	http_response_header(x, "Cache-Control", "no-cache");
	http_response_header(x, "Vary", "Accept-Encoding");
	http_response_header(x, "Content-Security-Policy", policy);
	http_response_header(x, "X-Content-Type-Options", "nosniff");
	http_response_header(x, "X-Frame-Options", "DENY");
	http_response_header(x, "Referrer-Policy", "no-referrer");
	http_response_header(x, "Cross-Origin-Opener-Policy", "same-origin");
	http_response_header(x, "Cross-Origin-Resource-Policy", "same-origin");
}

static void respond_file(struct http_exchange *x, const struct web_file *file)
{
	bool packed = lists(http_request_header(x, "accept-encoding"), STR("gzip"));
	struct str body = {(const char *)(packed ? file->packed : file->plain),
	        packed ? file->packed_len : file->plain_len};
	char etag[64];

	str_format(etag, sizeof(etag), "\"%s%s\"", file->tag, packed ? "-gz" : "");
	common_headers(x, etag);
	if (lists(http_request_header(x, "if-none-match"), str_of(etag))) {
		http_respond(x, 304, NULL, STR(""));
		return;
	}
	if (packed)
		http_response_header(x, "Content-Encoding", "gzip");
	http_respond(x, 200, file->content_type, body);
}

bool web_respond(struct http_exchange *x)
{
	const struct web_file *file = find(http_request_path(x));
	struct str method = http_request_method(x);

	if (file == NULL)
		return false;
	if (str_is(method, "GET") || str_is(method, "HEAD")) {
		respond_file(x, file);
		return true;
	}
	http_response_header(x, "Allow", "GET, HEAD");
	http_respond(x, 405, "text/plain", STR("This path takes GET and HEAD.\n"));
	return true;
}
