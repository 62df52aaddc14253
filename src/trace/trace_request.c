/*
 * Theory of operation
 *
 * A body is one ExportTraceServiceRequest: the resource, one scope, and the spans of as many
 * records as fit. Each record is written by itself first and then taken or left, so that a body
 * never has to be cut. All destinations get the same spans; what differs is the address and the
 * headers, which stand together in one function for each.
 */
#include "trace/trace.h"

#include "base/base64.h"
#include "base/clock.h"
#include "base/mem.h"
#include "trace/otlp.h"
#include "trace/sigv4.h"
#include "trace/spans.h"

#include <inttypes.h>
#include <stdlib.h>

#define TEXT_MAX    ((size_t)16 << 10) /* of an address, of a header */
#define HEADERS_MAX 48                 /* 32 of the operator's and ours */
#define ENDING      "]}]}]}"

/* ---- requests ---- */

static struct trace_request *request_new(const char *method)
{
	struct trace_request *q = mem_alloc(sizeof(*q));

	q->method = method;
	q->headers = mem_array(HEADERS_MAX, sizeof(*q->headers));
	buf_init(&q->body, TRACE_BODY_MAX);
	return q;
}

static void wipe(char *s)
{
	if (s)
		mem_wipe(s, strlen(s));
	free(s);
}

struct trace_request *trace_request_free(struct trace_request *q)
{
	if (!q)
		return NULL;
	for (size_t i = 0; i < q->n_headers; i++) {
		free(q->headers[i].name);
		wipe(q->headers[i].value);
	}
	free(q->headers);
	free(q->url);
	buf_free(&q->body);
	free(q);
	return NULL;
}

/* A header of the operator's goes before one of ours with the same name, which then is left out. */
static void header(struct trace_request *q, const char *name, const char *value)
{
	for (size_t i = 0; i < q->n_headers; i++)
		if (str_ieq(str_of(q->headers[i].name), str_of(name)))
			return;
	if (q->n_headers == HEADERS_MAX)
		BUG("too many headers");
	q->headers[q->n_headers++] = (struct trace_header){mem_strdup(name), mem_strdup(value)};
}

static void header_pair(
        struct trace_request *q, const char *name, const char *first, const char *second)
{
	_cleanup_buf_ struct buf value = BUF_INIT(TEXT_MAX);

	buf_printf(&value, "%s%s", first, second);
	header(q, name, buf_cstr(&value));
	mem_wipe(value.data, value.len);
}

static void header_basic(struct trace_request *q, const char *user, const char *password)
{
	_cleanup_buf_ struct buf plain = BUF_INIT(TEXT_MAX), coded = BUF_INIT(2 * TEXT_MAX);

	buf_printf(&plain, "%s:%s", user, password);
	base64_append(&coded, plain.data, plain.len);
	header_pair(q, "Authorization", "Basic ", buf_cstr(&coded));
	mem_wipe(plain.data, plain.len);
	mem_wipe(coded.data, coded.len);
}

static void url_set(struct trace_request *q, const char *base, const char *path)
{
	struct buf url = BUF_INIT(TEXT_MAX);

	buf_printf(&url, "%s%s", base, path);
	q->url = buf_steal(&url, NULL);
}

/* ---- the destinations ---- */

static void address_otel(struct trace_request *q, const struct trace_destination *d)
{
	bool whole = strchr(d->url, '?') || str_ends(str_of(d->url), "/v1/traces");

	url_set(q, d->url, whole ? "" : "/v1/traces");
}

static void address_langfuse(struct trace_request *q, const struct trace_destination *d)
{
	url_set(q, d->url, "/api/public/otel/v1/traces");
	header_basic(q, d->public_key, d->secret_key);
	header(q, "x-langfuse-ingestion-version", "4");
}

static void address_braintrust(struct trace_request *q, const struct trace_destination *d)
{
	url_set(q, d->url, "/otel/v1/traces");
	header_pair(q, "Authorization", "Bearer ", d->api_key);
	header_pair(q, "x-bt-parent", "project_id:", d->project_id);
}

static void address_arize(struct trace_request *q, const struct trace_destination *d)
{
	url_set(q, d->url, "/v1/traces");
	header(q, "api_key", d->api_key);
	header(q, "space_id", d->space_key);
}

static void address_grafana(struct trace_request *q, const struct trace_destination *d)
{
	bool has_otlp = str_ends(str_of(d->url), "/otlp");

	url_set(q, d->url, has_otlp ? "/v1/traces" : "/otlp/v1/traces");
	header_basic(q, d->instance_id, d->api_key);
}

/* ---- S3 ---- */

/* One part of a key that a name became: no slash, and not of dots alone. */
static void key_part(struct buf *out, struct str s)
{
	bool dots = str_in_set(s, ".");

	for (size_t i = 0; i < s.n; i++)
		buf_putc(out, s.p[i] == '/' || dots ? '_' : s.p[i]);
}

static void key_variable(struct buf *out, const struct trace_destination *d, const struct record *r,
        const char *iso, struct str name)
{
	if (str_is(name, "{prefix}"))
		buf_puts(out, d->prefix);
	else if (str_is(name, "{date}"))
		buf_append(out, iso, 10);
	else if (str_is(name, "{year}"))
		buf_append(out, iso, 4);
	else if (str_is(name, "{month}"))
		buf_append(out, iso + 5, 2);
	else if (str_is(name, "{day}"))
		buf_append(out, iso + 8, 2);
	else if (r && r->key_name)
		key_part(out, str_of(r->key_name));
	else
		buf_puts(out, "unnamed");
}

/* The template with its variables, then the file; without slashes that would make an empty part. */
static void key_write(struct buf *out, const struct trace_destination *d, const struct record *r,
        const char *iso, const char *file)
{
	_cleanup_buf_ struct buf raw = BUF_INIT(TEXT_MAX);
	const char *at = d->path_template;

	while (*at) {
		const char *end = *at == '{' ? strchr(at, '}') : NULL;

		if (end) {
			key_variable(&raw, d, r, iso, (struct str){at, (size_t)(end - at) + 1});
			at = end + 1;
		} else {
			buf_putc(&raw, *at++);
		}
	}
	buf_printf(&raw, "/%s", file);
	for (size_t i = 0, from = 0; i <= raw.len; i++) {
		struct str part = {buf_cstr(&raw) + from, i - from};

		if (i < raw.len && raw.data[i] != '/')
			continue;
		from = i + 1;
		if (part.n == 0)
			continue;
		buf_putc(out, '/');
		if (str_in_set(part, "."))
			key_part(out, part);
		else
			buf_percent(out, part, BUF_UNRESERVED);
	}
}

/* Amazon's own address has the bucket in its name, where that can be a name of a certificate. */
static void s3_base(struct buf *out, const struct trace_destination *d)
{
	const char *region = d->region ? d->region : "us-east-1";

	if (d->url)
		buf_printf(out, "%s/%s", d->url, d->bucket);
	else if (strchr(d->bucket, '.'))
		buf_printf(out, "https://s3.%s.amazonaws.com/%s", region, d->bucket);
	else
		buf_printf(out, "https://%s.s3.%s.amazonaws.com", d->bucket, region);
}

/* The authority of an address as the header Host has it (without a port that goes without saying),
 * and the path. */
static void s3_split(struct str url, struct str *host, struct str *path)
{
	bool tls = str_starts(url, "https://");
	size_t from = tls ? 8 : 7, end = from;

	while (end < url.n && url.p[end] != '/')
		end++;
	*host = (struct str){url.p + from, end - from};
	*path = (struct str){url.p + end, url.n - end};
	if (str_ends(*host, tls ? ":443" : ":80"))
		host->n -= tls ? 4 : 3;
}

static int address_s3(struct trace_request *q, const struct trace_destination *d,
        const struct record *r, int64_t now_ms)
{
	_cleanup_buf_ struct buf signature = BUF_INIT(TEXT_MAX);
	struct buf url = BUF_INIT(TEXT_MAX);
	char iso[32], file[120], trace_id[33], span_id[17], date[17], hash[65];
	struct sigv4 s;
	int result;

	clock_iso8601(r ? r->end_ms : now_ms, iso);
	if (r) {
		trace_root_ids(r, trace_id, span_id);
		str_format(
		        file, sizeof(file), "%s-%" PRId64 "-%s.json", trace_id, r->end_ms, span_id);
	} else {
		str_format(file, sizeof(file), "connection-test.json");
	}
	s3_base(&url, d);
	key_write(&url, d, r, iso, file);
	result = buf_error(&url);
	q->url = buf_steal(&url, NULL);
	if (result < 0)
		return result;
	sigv4_date(now_ms, date);
	sigv4_hash((struct str){q->body.data, q->body.len}, hash);
	header(q, "x-amz-content-sha256", hash);
	header(q, "x-amz-date", date);
	if (d->session_token)
		header(q, "x-amz-security-token", d->session_token);
	s = (struct sigv4){.access_key_id = str_of(d->access_key_id),
	        .secret_key = str_of(d->secret_key),
	        .region = str_of(d->region ? d->region : "us-east-1"),
	        .method = q->method,
	        .body = {q->body.data, q->body.len},
	        .headers = q->headers,
	        .n_headers = q->n_headers,
	        .now_ms = now_ms};
	s3_split(str_of(q->url), &s.host, &s.path);
	result = sigv4_sign(&s, &signature);
	header(q, "Authorization", buf_cstr(&signature));
	return result;
}

/* r: the object's record; NULL: a test. */
static int address(struct trace_request *q, const struct trace_destination *d,
        const struct record *r, int64_t now_ms)
{
	header(q, "Content-Type", "application/json");
	for (size_t i = 0; i < d->n_headers; i++)
		header(q, d->headers[i].name, d->headers[i].value);
	switch (d->type) {
	case TRACE_OTEL_COLLECTOR:
		address_otel(q, d);
		return 0;
	case TRACE_WEBHOOK:
		url_set(q, d->url, "");
		return 0;
	case TRACE_LANGFUSE:
		address_langfuse(q, d);
		return 0;
	case TRACE_BRAINTRUST:
		address_braintrust(q, d);
		return 0;
	case TRACE_ARIZE:
		address_arize(q, d);
		return 0;
	case TRACE_GRAFANA:
		address_grafana(q, d);
		return 0;
	case TRACE_S3:
		return address_s3(q, d, r, now_ms);
	case TRACE_TYPES:
		break;
	}
	BUG("a destination of type %d", (int)d->type);
}

static const char *method_of(const struct trace_destination *d)
{
	bool put = d->type == TRACE_S3 || (d->method && strcmp(d->method, "PUT") == 0);

	return put ? "PUT" : "POST";
}

/* ---- bodies ---- */

static void resource(struct json_writer *w, const struct trace_destination *d, const char *region)
{
	jw_key(w, "resource");
	jw_object(w);
	jw_key(w, "attributes");
	jw_array(w);
	otlp_cstr(w, "service.name", "brig");
	otlp_cstr(w, "service.version", BRIG_VERSION);
	otlp_cstr(w, "brig.region", region);
	if (d->type == TRACE_ARIZE) {
		otlp_cstr(w, "openinference.project.name", d->model_id);
		otlp_cstr(w, "model_id", d->model_id);
	}
	jw_end(w);
	jw_end(w);
}

/* All that stands before the first span; ENDING closes it. */
static int beginning(struct buf *out, const struct trace_destination *d, const char *region)
{
	struct json_writer w;
	int r;

	jw_init(&w, out);
	jw_object(&w);
	jw_key(&w, "resourceSpans");
	jw_array(&w);
	jw_object(&w);
	resource(&w, d, region);
	jw_key(&w, "scopeSpans");
	jw_array(&w);
	jw_object(&w);
	jw_key(&w, "scope");
	jw_object(&w);
	jw_kcstr(&w, "name", "brig");
	jw_kcstr(&w, "version", BRIG_VERSION);
	jw_end(&w);
	jw_key(&w, "spans");
	jw_array(&w);
	for (int i = 0; i < 6; i++)
		jw_end(&w);
	r = jw_done(&w);
	if (r == 0)
		out->len -= sizeof(ENDING) - 1;
	return r;
}

/* One record's spans, without its content where that is too large. */
static int spans_of(
        struct buf *out, const struct trace_destination *d, const struct record *r, size_t *ret_n)
{
	int result = spans_write(out, d, r, true, ret_n);

	if (result != -ERR_TOO_LARGE)
		return result;
	buf_reset(out);
	return spans_write(out, d, r, false, ret_n);
}

static int fill(struct trace_request *q, const struct trace_destination *d,
        const struct record *const *records, size_t n, size_t max_bytes, size_t *taken)
{
	/* Room for what is around the spans. */
	_cleanup_buf_ struct buf spans = BUF_INIT(TRACE_BODY_MAX - (64 << 10));
	size_t count = 0;

	for (*taken = 0; *taken < n; (*taken)++) {
		int result;

		buf_reset(&spans);
		result = spans_of(&spans, d, records[*taken], &count);
		if (result < 0)
			return result;
		if (*taken > 0 && q->body.len + spans.len > max_bytes)
			break;
		if (*taken > 0)
			buf_putc(&q->body, ',');
		buf_append(&q->body, spans.data, spans.len);
		q->n_spans += count;
	}
	return buf_error(&q->body);
}

int trace_request_build(const struct trace_destination *d, const struct record *const *records,
        size_t n, size_t max_bytes, const char *region, int64_t now_ms, struct trace_request **ret,
        size_t *ret_taken, struct error *err)
{
	struct trace_request *q = request_new(method_of(d));
	size_t taken = 0;
	int result = beginning(&q->body, d, region);

	if (result == 0)
		result = fill(q, d, records, d->type == TRACE_S3 ? 1 : n,
		        max_bytes < TRACE_BODY_MAX / 2 ? max_bytes : TRACE_BODY_MAX / 2, &taken);
	if (result == 0)
		result = buf_puts(&q->body, ENDING);
	if (result == 0)
		result = address(q, d, records[0], now_ms);
	if (result < 0) {
		trace_request_free(q);
		return error_set(err, (enum err) - result, "The spans do not fit into a request.");
	}
	*ret = q;
	*ret_taken = taken;
	return 0;
}

int trace_request_test(const struct trace_destination *d, int64_t now_ms,
        struct trace_request **ret, struct error *err)
{
	struct trace_request *q = request_new(method_of(d));
	int result;

	buf_puts(&q->body, "{\"resourceSpans\":[]}");
	if (d->type == TRACE_WEBHOOK)
		header(q, "X-Test-Connection", "true");
	result = address(q, d, NULL, now_ms);
	if (result < 0) {
		trace_request_free(q);
		return error_set(err, (enum err) - result, "The address is too long.");
	}
	*ret = q;
	return 0;
}
