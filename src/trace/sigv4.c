/*
 * Theory of operation (Amazon S3 API reference, "Authenticating Requests: Using the Authorization
 * Header")
 *
 * A canonical text of the request is hashed; the hash with time and scope is signed with a key that
 * is derived from the secret by four HMACs. For S3 the path is encoded once, and the hash of the
 * body is a header. There is no query.
 */
#include "trace/sigv4.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"

#include <ctype.h>
#include <stdlib.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#define CANONICAL_MAX ((size_t)1 << 20)

struct mac {
	uint8_t b[32];
};

static struct mac hmac(const void *key, size_t key_len, struct str data)
{
	struct mac m;
	unsigned n = sizeof(m.b);

	if (!HMAC(EVP_sha256(), key, (int)key_len, (const unsigned char *)(data.n ? data.p : ""),
	            data.n, m.b, &n))
		BUG("HMAC failed");
	return m;
}

void sigv4_date(int64_t now_ms, char out[17])
{
	char iso[32];

	clock_iso8601(now_ms, iso); /* 2026-11-30T09:30:00.000Z */
	str_format(out, 17, "%.4s%.2s%.5s%.2s%.2sZ", iso, iso + 5, iso + 8, iso + 14, iso + 17);
}

void sigv4_hash(struct str body, char out[65])
{
	uint8_t hash[32];

	id_sha256(body, hash);
	id_hex(hash, sizeof(hash), out);
}

/* ---- headers by their small names, in order ---- */

struct field {
	char *name;
	struct str value;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct field *)a)->name, ((const struct field *)b)->name);
}

static char *small(struct str s)
{
	char *out = mem_strndup(s.p, s.n);

	for (size_t i = 0; i < s.n; i++)
		out[i] = (char)tolower((unsigned char)out[i]);
	return out;
}

/* The headers and the host, sorted; n_headers + 1 of them. */
static struct field *fields_of(const struct sigv4 *s)
{
	struct field *list = mem_array(s->n_headers + 1, sizeof(*list));

	for (size_t i = 0; i < s->n_headers; i++)
		list[i] = (struct field){
		        small(str_of(s->headers[i].name)), str_trim(str_of(s->headers[i].value))};
	list[s->n_headers] = (struct field){mem_strdup("host"), s->host};
	qsort(list, s->n_headers + 1, sizeof(*list), by_name);
	return list;
}

/* Runs of spaces count as one. */
static void value_write(struct buf *out, struct str value)
{
	for (size_t i = 0; i < value.n; i++)
		if (i == 0 || value.p[i] != ' ' || value.p[i - 1] != ' ')
			buf_putc(out, value.p[i]);
}

static void names_write(struct buf *out, const struct field *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		buf_puts(out, i > 0 ? ";" : "");
		buf_puts(out, list[i].name);
	}
}

static void canonical_write(
        const struct sigv4 *s, const struct field *list, size_t n, struct buf *out)
{
	char hash[65];

	buf_puts(out, s->method);
	buf_putc(out, '\n');
	buf_append(out, s->path.p, s->path.n);
	buf_puts(out, "\n\n");
	for (size_t i = 0; i < n; i++) {
		buf_puts(out, list[i].name);
		buf_putc(out, ':');
		value_write(out, list[i].value);
		buf_putc(out, '\n');
	}
	buf_putc(out, '\n');
	names_write(out, list, n);
	sigv4_hash(s->body, hash);
	buf_putc(out, '\n');
	buf_puts(out, hash);
}

/* ---- the signature ---- */

static struct mac signing_key(const struct sigv4 *s, struct str day)
{
	_cleanup_buf_ struct buf first = BUF_INIT(CANONICAL_MAX);
	struct mac m;

	buf_puts(&first, "AWS4");
	buf_append(&first, s->secret_key.p, s->secret_key.n);
	m = hmac(buf_cstr(&first), first.len, day);
	m = hmac(m.b, sizeof(m.b), s->region);
	m = hmac(m.b, sizeof(m.b), STR("s3"));
	m = hmac(m.b, sizeof(m.b), STR("aws4_request"));
	if (first.data)
		mem_wipe(first.data, first.len);
	return m;
}

int sigv4_sign(const struct sigv4 *s, struct buf *out)
{
	_cleanup_buf_ struct buf canonical = BUF_INIT(CANONICAL_MAX);
	_cleanup_buf_ struct buf text = BUF_INIT(CANONICAL_MAX);
	_cleanup_buf_ struct buf scope = BUF_INIT(4096);
	size_t n = s->n_headers + 1;
	struct field *list = fields_of(s);
	struct mac key, mac;
	char date[17], hash[65], hex[65];

	sigv4_date(s->now_ms, date);
	buf_append(&scope, date, 8);
	buf_putc(&scope, '/');
	buf_append(&scope, s->region.p, s->region.n);
	buf_puts(&scope, "/s3/aws4_request");
	canonical_write(s, list, n, &canonical);
	sigv4_hash((struct str){canonical.data, canonical.len}, hash);
	buf_printf(&text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", date, buf_cstr(&scope), hash);
	key = signing_key(s, (struct str){date, 8});
	mac = hmac(key.b, sizeof(key.b), (struct str){text.data, text.len});
	mem_wipe(&key, sizeof(key));
	id_hex(mac.b, sizeof(mac.b), hex);
	buf_puts(out, "AWS4-HMAC-SHA256 Credential=");
	buf_append(out, s->access_key_id.p, s->access_key_id.n);
	buf_printf(out, "/%s, SignedHeaders=", buf_cstr(&scope));
	names_write(out, list, n);
	buf_printf(out, ", Signature=%s", hex);
	for (size_t i = 0; i < n; i++)
		free(list[i].name);
	free(list);
	if (buf_error(&canonical) < 0)
		return buf_error(&canonical);
	return buf_error(out);
}
