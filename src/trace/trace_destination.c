/*
 * Theory of operation
 *
 * What a type's config holds is a table: one row says a member's name, where it goes, its kind and
 * bounds. Reading, writing, masking and what a PATCH keeps (trace_destination_patch.c) all come
 * from the same rows.
 */
#include "trace/trace_destination.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "trace/filter.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	NAME_MAX_BYTES = 200,
	TEXT_MAX = 1024,
	SECRET_MAX = 4096,
	URL_MAX = 2048,
	HEADERS_MAX = 32,
	HEADER_NAME_MAX = 100,
	REGIONS_MAX = 16,
	REGION_MAX = 32,
	HASHES_MAX = 1000,
	WORKSPACE_MAX = 64,
	MASK_SHOWN = 4,
	MASK_FROM = 16, /* shorter secrets are not shown in part */
};

/* ---- the types' configs ---- */

enum kind { TEXT, SECRET, URL, METHOD };

struct row {
	const char *key;
	size_t at; /* of a char * in struct trace_destination */
	enum kind kind;
	bool needed;
	const char *preset;
};

#define AT(member) offsetof(struct trace_destination, member)
static const struct row otel_rows[] = {{"endpoint", AT(url), URL, true, NULL}, {0}};
static const struct row webhook_rows[] = {
        {"url", AT(url), URL, true, NULL}, {"method", AT(method), METHOD, false, "POST"}, {0}};
static const struct row langfuse_rows[] = {
        {"publicKey", AT(public_key), SECRET, true, NULL},
        {"secretKey", AT(secret_key), SECRET, true, NULL},
        {"baseUrl", AT(url), URL, false, "https://us.cloud.langfuse.com"},
        {0},
};
static const struct row braintrust_rows[] = {
        {"apiKey", AT(api_key), SECRET, true, NULL},
        {"projectId", AT(project_id), TEXT, true, NULL},
        {"baseUrl", AT(url), URL, false, "https://api.braintrust.dev"},
        {0},
};
static const struct row arize_rows[] = {
        {"apiKey", AT(api_key), SECRET, true, NULL},
        {"spaceKey", AT(space_key), SECRET, true, NULL},
        {"modelId", AT(model_id), TEXT, true, NULL},
        {"baseUrl", AT(url), URL, false, "https://otlp.arize.com"},
        {0},
};
static const struct row grafana_rows[] = {
        {"apiKey", AT(api_key), SECRET, true, NULL},
        {"instanceId", AT(instance_id), TEXT, true, NULL},
        {"baseUrl", AT(url), URL, false, "https://otlp-gateway-prod-us-west-0.grafana.net"},
        {0},
};
static const struct row s3_rows[] = {
        {"bucketName", AT(bucket), TEXT, true, NULL},
        {"accessKeyId", AT(access_key_id), SECRET, true, NULL},
        {"secretAccessKey", AT(secret_key), SECRET, true, NULL},
        {"sessionToken", AT(session_token), SECRET, false, NULL},
        {"region", AT(region), TEXT, false, NULL},
        {"endpoint", AT(url), URL, false, NULL},
        {"prefix", AT(prefix), TEXT, false, "openrouter-traces"},
        {"pathTemplate", AT(path_template), TEXT, false, "{prefix}/{date}"},
        {0},
};
#undef AT

static const struct row *const type_rows[TRACE_TYPES] = {
        [TRACE_OTEL_COLLECTOR] = otel_rows,
        [TRACE_WEBHOOK] = webhook_rows,
        [TRACE_LANGFUSE] = langfuse_rows,
        [TRACE_BRAINTRUST] = braintrust_rows,
        [TRACE_ARIZE] = arize_rows,
        [TRACE_GRAFANA] = grafana_rows,
        [TRACE_S3] = s3_rows,
};

static char **member_of(const struct trace_destination *d, const struct row *row)
{
	return (char **)(void *)((char *)(uintptr_t)d + row->at);
}

static bool is_secret(const struct row *row)
{
	return row->kind == SECRET;
}

/* ---- reading ---- */

struct parser {
	struct trace_destination *d;
	struct error *err;
};

__attribute__((format(printf, 3, 4))) static int fault(
        const struct parser *p, const char *path, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	return error_param(p->err, ERR_INVALID, path, "%s%s%s", path, path[0] ? ": " : "", text);
}

static bool has_control(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f)
			return true;
	return false;
}

/* Printable ASCII; a space where allowed. */
static bool printable(struct str s, unsigned char from)
{
	for (size_t i = 0; i < s.n; i++)
		if ((unsigned char)s.p[i] < from || (unsigned char)s.p[i] >= 0x7f)
			return false;
	return true;
}

/* A text of 1 to max bytes without control characters. A number is a text too. */
static int read_text(
        const struct parser *p, const struct json *v, const char *path, size_t max, struct str *ret)
{
	struct str s = json_is(v, JSON_NUMBER) ? json_raw(v) : json_str(v);

	if (!json_is(v, JSON_STRING) && !json_is(v, JSON_NUMBER))
		return fault(p, path, "must be a text");
	if (s.n == 0)
		return fault(p, path, "is empty");
	if (s.n > max)
		return fault(p, path, "is longer than %zu bytes", max);
	if (has_control(s))
		return fault(p, path, "holds a control character");
	*ret = s;
	return 0;
}

static char *copy(struct str s)
{
	return mem_strndup(s.n > 0 ? s.p : "", s.n);
}

/* What is wrong with an address, or NULL. */
static const char *url_fault(struct str url)
{
	size_t at = str_starts(url, "https://") ? 8 : str_starts(url, "http://") ? 7 : 0;
	size_t end;

	if (at == 0)
		return "must begin with http:// or https://";
	if (!printable(url, 0x21))
		return "may hold printable ASCII without spaces only";
	for (end = at; end < url.n && !strchr("/?#", url.p[end]); end++)
		if (url.p[end] == '@')
			return "must hold no user or password; use headers";
	if (end == at || url.p[at] == ':')
		return "has no host";
	if (memchr(url.p, '#', url.n))
		return "must hold no #";
	return NULL;
}

static int read_url(const struct parser *p, const char *path, struct str s, char **ret)
{
	const char *wrong = url_fault(s);
	bool query = memchr(s.p, '?', s.n) != NULL;

	if (!wrong && query && p->d->type != TRACE_WEBHOOK && p->d->type != TRACE_OTEL_COLLECTOR)
		wrong = "must end before any ?";
	if (wrong)
		return fault(p, path, "%s", wrong);
	while (!query && p->d->type != TRACE_WEBHOOK && s.p[s.n - 1] == '/')
		s.n--;
	*ret = copy(s);
	return 0;
}

static size_t max_of(enum kind kind)
{
	return kind == SECRET ? SECRET_MAX : kind == URL ? URL_MAX : TEXT_MAX;
}

static int read_row(const struct parser *p, const struct json *v, const struct row *row)
{
	char path[80];
	struct str s = {0};
	int r;

	snprintf(path, sizeof(path), "config.%s", row->key);
	r = read_text(p, v, path, max_of(row->kind), &s);
	if (r < 0)
		return r;
	if (row->kind == URL)
		return read_url(p, path, s, member_of(p->d, row));
	if (row->kind == SECRET && !printable(s, 0x21))
		return fault(p, path, "may hold printable ASCII without spaces only");
	if (row->kind == METHOD && !str_is(s, "POST") && !str_is(s, "PUT"))
		return fault(p, path, "must be POST or PUT");
	*member_of(p->d, row) = copy(s);
	return 0;
}

/* Headers that are ours or HTTP's; the rest is the receiver's business. */
static const char *header_fault(const struct trace_destination *d, struct str name)
{
	static const char *const ours[] = {"host", "content-length", "content-type", "connection",
	        "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive",
	        "proxy-connection"};
	static const char *const signature[] = {
	        "authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"};

	if (!str_in_set(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'"
	                      "*+-.^_`|~"))
		return "is no name of a header";
	if (name.n > HEADER_NAME_MAX)
		return "is too long a name";
	for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
		if (str_ieq(name, str_of(ours[i])))
			return "is set by brig itself";
	for (size_t i = 0; d->type == TRACE_S3 && i < sizeof(signature) / sizeof(*signature); i++)
		if (str_ieq(name, str_of(signature[i])))
			return "is part of the signature";
	for (size_t i = 0; i < d->n_headers; i++)
		if (str_ieq(name, str_of(d->headers[i].name)))
			return "is there twice";
	return NULL;
}

static int read_headers(const struct parser *p, const struct json *v)
{
	struct trace_destination *d = p->d;
	char path[128];
	struct str s = {0};
	int r;

	if (json_absent(v))
		return 0;
	if (!json_is(v, JSON_OBJECT))
		return fault(p, "config.headers", "must be an object of texts");
	if (json_count(v) > HEADERS_MAX)
		return fault(p, "config.headers", "has more than %d members", HEADERS_MAX);
	d->headers = mem_array(json_count(v) + 1, sizeof(*d->headers));
	for (const struct json *c = json_first(v); c; c = json_next(c)) {
		struct str name = json_key(c);
		const char *wrong = header_fault(d, name);

		/* A name that is none is not shown. */
		snprintf(path, sizeof(path), "config.headers.%.*s",
		        wrong && !str_in_set(name, BUF_UNRESERVED) ? 0 : (int)(name.n % 128),
		        name.p);
		if (wrong)
			return fault(p, path, "%s", wrong);
		r = read_text(p, c, path, SECRET_MAX, &s);
		if (r < 0)
			return r;
		if (!printable(s, 0x20))
			return fault(p, path, "may hold printable ASCII only");
		d->headers[d->n_headers++] =
		        (struct trace_header){.name = copy(name), .value = copy(s)};
	}
	return 0;
}

static const struct row *row_of(enum trace_type type, struct str key)
{
	for (const struct row *row = type_rows[type]; row->key; row++)
		if (str_is(key, row->key))
			return row;
	return NULL;
}

bool trace_destination_is_secret(enum trace_type type, struct str key)
{
	const struct row *row = row_of(type, key);

	return row && is_secret(row);
}

static int check_s3(const struct parser *p)
{
	static const char *const names[] = {
	        "{prefix}", "{date}", "{year}", "{month}", "{day}", "{apiKeyName}"};
	const struct trace_destination *d = p->d;

	if (!str_in_set(str_of(d->bucket), "abcdefghijklmnopqrstuvwxyz0123456789.-"))
		return fault(p, "config.bucketName",
		        "may hold small letters, digits, dots and dashes only");
	if (d->region && !str_in_set(str_of(d->region), "abcdefghijklmnopqrstuvwxyz0123456789-"))
		return fault(p, "config.region", "may hold small letters, digits and dashes only");
	for (const char *at = strchr(d->path_template, '{'); at; at = strchr(at + 1, '{')) {
		bool known = false;

		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
			known |= strncmp(at, names[i], strlen(names[i])) == 0;
		if (!known)
			return fault(p, "config.pathTemplate",
			        "has a {…} that is none of {prefix}, {date}, {year}, {month}, "
			        "{day} and {apiKeyName}");
	}
	return 0;
}

static int read_config(const struct parser *p, const struct json *v)
{
	struct trace_destination *d = p->d;
	const struct row *row;
	char path[80];
	int r = 0;

	if (!json_is(v, JSON_OBJECT))
		return fault(p, "config", v ? "must be an object" : "is missing");
	for (const struct json *c = json_first(v); r == 0 && c; c = json_next(c)) {
		row = row_of(d->type, json_key(c));
		if (!row && !str_is(json_key(c), "headers"))
			return fault(p, "config", "\"%.*s\" is no member of a %s destination's",
			        (int)(json_key(c).n < 60 ? json_key(c).n : 60), json_key(c).p,
			        trace_type_name(d->type));
		if (row && !json_absent(c))
			r = read_row(p, c, row);
		else if (!row)
			r = read_headers(p, c);
	}
	for (row = type_rows[d->type]; r == 0 && row->key; row++) {
		char **member = member_of(d, row);

		snprintf(path, sizeof(path), "config.%s", row->key);
		if (!*member && row->needed)
			return fault(p, path, "is missing");
		if (!*member && row->preset)
			*member = mem_strdup(row->preset);
	}
	return r == 0 && d->type == TRACE_S3 ? check_s3(p) : r;
}

static int read_type(const struct parser *p, const struct json *v)
{
	struct str name = json_str(v);

	for (unsigned t = 0; t < TRACE_TYPES; t++) {
		if (!str_is(name, trace_type_name((enum trace_type)t)))
			continue;
		p->d->type = (enum trace_type)t;
		return 0;
	}
	return fault(p, "type",
	        v ? "is none of otel-collector, webhook, langfuse, braintrust, arize, grafana and "
	            "s3"
	          : "is missing");
}

static int read_bool(const struct parser *p, const struct json *v, const char *path, bool *member)
{
	if (!v)
		return 0;
	if (!json_is_bool(v))
		return fault(p, path, "must be true or false");
	*member = json_bool(v);
	return 0;
}

/* Kept in millionths: exact for all of 0.0001 to 1 that anybody writes. */
static int read_sampling(const struct parser *p, const struct json *v)
{
	double rate;

	p->d->sampling_ppm = 1000000;
	if (!v)
		return 0;
	if (!json_double(v, &rate) || !(rate >= 0.0001) || rate > 1)
		return fault(p, "sampling_rate", "must be a number from 0.0001 to 1");
	p->d->sampling_ppm = (uint32_t)(rate * 1000000 + 0.5);
	return 0;
}

typedef int (*entry_fn)(const struct parser *p, const char *path, struct str s, char **ret);

static int region_entry(const struct parser *p, const char *path, struct str s, char **ret)
{
	if (!str_in_set(s, "abcdefghijklmnopqrstuvwxyz0123456789-") || s.n > REGION_MAX)
		return fault(p, path, "must be global, europe, us or a server's region");
	*ret = copy(str_is(s, "eu") ? STR("europe") : s);
	return 0;
}

static int hash_entry(const struct parser *p, const char *path, struct str s, char **ret)
{
	if (s.n != 64 || !str_in_set(s, "0123456789abcdef"))
		return fault(p, path, "must be a key's hash: 64 small hex digits");
	*ret = copy(s);
	return 0;
}

static int read_list(const struct parser *p, const struct json *v, const char *path, size_t max,
        entry_fn entry, char ***list, size_t *n)
{
	char each[64];
	struct str s = {0};
	size_t i = 0;
	int r = 0;

	if (!json_is(v, JSON_ARRAY) || json_count(v) == 0)
		return fault(p, path, "must be a list with at least one entry");
	if (json_count(v) > max)
		return fault(p, path, "has more than %zu entries", max);
	*list = mem_array(json_count(v), sizeof(**list));
	for (const struct json *c = json_first(v); r == 0 && c; c = json_next(c), i++) {
		snprintf(each, sizeof(each), "%s[%zu]", path, i);
		r = read_text(p, c, each, TEXT_MAX, &s);
		if (r == 0)
			r = entry(p, each, s, &(*list)[i]);
		if (r == 0)
			*n = i + 1;
	}
	return r;
}

static int read_lists(const struct parser *p, const struct json *v)
{
	const struct json *regions = json_get(v, "regions"), *keys = json_get(v, "api_key_hashes");
	struct trace_destination *d = p->d;
	int r = 0;

	if (regions) {
		r = read_list(p, regions, "regions", REGIONS_MAX, region_entry, &d->regions,
		        &d->n_regions);
	} else {
		d->regions = mem_array(1, sizeof(*d->regions));
		d->regions[d->n_regions++] = mem_strdup("global");
	}
	if (r == 0 && !json_absent(keys))
		r = read_list(p, keys, "api_key_hashes", HASHES_MAX, hash_entry, &d->key_hashes,
		        &d->n_key_hashes);
	return r;
}

static int read_filter(const struct parser *p, const struct json *v)
{
	if (json_absent(v))
		return 0;
	p->d->filter_json = copy(json_raw(v));
	return filter_new(v, &p->d->filter, p->err);
}

static int check_members(const struct parser *p, const struct json *v)
{
	static const char *const known[] = {"type", "name", "config", "enabled", "privacy_mode",
	        "sampling_rate", "api_key_hashes", "regions", "filter_rules", "workspace_id",
	        "broadcast_generation_cost", "broadcast_generation_identity",
	        "broadcast_generation_request_context"};
	size_t i;

	if (!json_is(v, JSON_OBJECT))
		return fault(p, "", "must be an object");
	for (const struct json *c = json_first(v); c; c = json_next(c)) {
		for (i = 0; i < sizeof(known) / sizeof(*known); i++)
			if (str_is(json_key(c), known[i]))
				break;
		if (i == sizeof(known) / sizeof(*known))
			return fault(p, "", "\"%.*s\" is not known",
			        (int)(json_key(c).n < 60 ? json_key(c).n : 60), json_key(c).p);
	}
	return 0;
}

static int read_flags(const struct parser *p, const struct json *v)
{
	struct trace_destination *d = p->d;
	const struct {
		const char *key;
		bool *member;
	} flags[] = {
	        {"enabled", &d->enabled},
	        {"privacy_mode", &d->privacy_mode},
	        {"broadcast_generation_cost", &d->with_cost},
	        {"broadcast_generation_identity", &d->with_identity},
	        {"broadcast_generation_request_context", &d->with_context},
	};
	int r = 0;

	d->enabled = true;
	for (size_t i = 0; r == 0 && i < sizeof(flags) / sizeof(*flags); i++)
		r = read_bool(p, json_get(v, flags[i].key), flags[i].key, flags[i].member);
	return r;
}

static int read_all(const struct parser *p, const struct json *v)
{
	const struct json *name = json_get(v, "name"), *workspace = json_get(v, "workspace_id");
	struct str s = {0};
	int r = check_members(p, v);

	if (r == 0)
		r = read_type(p, json_get(v, "type"));
	if (r == 0 && !name)
		r = fault(p, "name", "is missing");
	if (r == 0)
		r = read_text(p, name, "name", NAME_MAX_BYTES, &s);
	if (r < 0)
		return r;
	p->d->name = copy(s);
	if (!json_absent(workspace)) {
		r = read_text(p, workspace, "workspace_id", WORKSPACE_MAX, &s);
		if (r < 0)
			return r;
		p->d->workspace = copy(s);
	}
	r = read_config(p, json_get(v, "config"));
	if (r == 0)
		r = read_flags(p, v);
	if (r == 0)
		r = read_sampling(p, json_get(v, "sampling_rate"));
	if (r == 0)
		r = read_lists(p, v);
	return r == 0 ? read_filter(p, json_get(v, "filter_rules")) : r;
}

int trace_destination_parse(const struct json *v, struct trace_destination **ret, struct error *err)
{
	struct parser p = {.d = mem_alloc(sizeof(*p.d)), .err = err};
	int r = read_all(&p, v);

	if (r < 0) {
		trace_destination_free(p.d);
		return r;
	}
	*ret = p.d;
	return 0;
}

/* ---- the end ---- */

static void wipe(char *s)
{
	if (s)
		mem_wipe(s, strlen(s));
	free(s);
}

static void free_list(char **list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(list[i]);
	free(list);
}

struct trace_destination *trace_destination_free(struct trace_destination *d)
{
	if (!d)
		return NULL;
	for (const struct row *row = type_rows[d->type]; row->key; row++)
		wipe(*member_of(d, row));
	for (size_t i = 0; i < d->n_headers; i++) {
		free(d->headers[i].name);
		wipe(d->headers[i].value);
	}
	free(d->headers);
	free(d->name);
	free(d->workspace);
	free_list(d->regions, d->n_regions);
	free_list(d->key_hashes, d->n_key_hashes);
	free(d->filter_json);
	filter_free(d->filter);
	free(d);
	return NULL;
}

/* ---- writing ---- */

void trace_destination_mask(struct str secret, char out[16])
{
	if (secret.n < MASK_FROM)
		str_format(out, 16, "***");
	else
		str_format(out, 16, "%.*s...%.*s", MASK_SHOWN, secret.p, MASK_SHOWN,
		        secret.p + secret.n - MASK_SHOWN);
}

static void write_secret(struct json_writer *w, struct str key, struct str value, bool masked)
{
	char text[16];

	jw_key_str(w, key);
	if (masked) {
		trace_destination_mask(value, text);
		jw_cstr(w, text);
	} else {
		jw_str(w, value);
	}
}

static void write_config(struct json_writer *w, const struct trace_destination *d, bool masked)
{
	jw_key(w, "config");
	jw_object(w);
	for (const struct row *row = type_rows[d->type]; row->key; row++) {
		const char *value = *member_of(d, row);

		if (value)
			write_secret(w, str_of(row->key), str_of(value), masked && is_secret(row));
	}
	if (d->n_headers > 0) {
		jw_key(w, "headers");
		jw_object(w);
		for (size_t i = 0; i < d->n_headers; i++)
			write_secret(
			        w, str_of(d->headers[i].name), str_of(d->headers[i].value), masked);
		jw_end(w);
	}
	jw_end(w);
}

static void write_texts(struct json_writer *w, const char *key, char *const *list, size_t n)
{
	jw_key(w, key);
	jw_array(w);
	for (size_t i = 0; i < n; i++)
		jw_cstr(w, list[i]);
	jw_end(w);
}

void trace_destination_write(
        struct json_writer *w, const struct trace_destination *d, enum trace_secrets secrets)
{
	jw_kcstr(w, "type", trace_type_name(d->type));
	jw_kcstr(w, "name", d->name);
	if (secrets == TRACE_PLAIN && d->workspace)
		jw_kcstr(w, "workspace_id", d->workspace);
	write_config(w, d, secrets == TRACE_MASKED);
	jw_kbool(w, "enabled", d->enabled);
	jw_kbool(w, "privacy_mode", d->privacy_mode);
	jw_kmoney(w, "sampling_rate", (struct money){(int64_t)d->sampling_ppm * 1000000});
	if (d->n_key_hashes > 0)
		write_texts(w, "api_key_hashes", d->key_hashes, d->n_key_hashes);
	else
		jw_knull(w, "api_key_hashes");
	write_texts(w, "regions", d->regions, d->n_regions);
	jw_kbool(w, "broadcast_generation_cost", d->with_cost);
	jw_kbool(w, "broadcast_generation_identity", d->with_identity);
	jw_kbool(w, "broadcast_generation_request_context", d->with_context);
	jw_kraw(w, "filter_rules", str_of(d->filter_json));
}
