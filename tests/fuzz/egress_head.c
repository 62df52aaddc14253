/*
 * A container's request and a server's answer: read whole and in pieces they must mean the same.
 * What is let through as a request is also held against a plain reading: one Host, as it stands in
 * the bytes, and one length.
 */
#include "base/error.h"
#include "egress/head.h"
#include "egress/response.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* How many lines begin with the name, its case ignored, and a colon. */
static size_t fields_of(const char *p, size_t n, const char *name)
{
	size_t count = 0, len = strlen(name);

	for (size_t i = 0; i + len + 1 < n; i++)
		if (p[i] == '\n' && str_ieq((struct str){p + i + 1, len}, str_of(name)) &&
		        i + 1 + len < n && p[i + 1 + len] == ':')
			count++;
	return count;
}

static size_t body(const struct egress_head *h, const char *p, size_t n, size_t cut, int *ret_r)
{
	struct egress_chunks k;
	size_t at = 0, used;
	int r = 0;

	egress_chunks_init(&k);
	while (h->chunked && at < n && r == 0) {
		size_t piece = n - at < cut ? n - at : cut;

		r = egress_chunks_feed(&k, p + at, piece, &used);
		if (used > piece || (r == 0 && used != piece))
			BUG("%zu of %zu bytes", used, piece);
		at += used;
	}
	*ret_r = r;
	return r < 0 ? 0 : at;
}

/* Nothing of the offer is left, and the rest means the same. */
static void without_h2c(struct str head, const struct egress_head *was)
{
	_cleanup_buf_ struct buf b = BUF_INIT(EGRESS_HEAD_MAX);
	struct egress_head h;
	const char *why = NULL;

	egress_head_without_h2c(head, &b);
	if (buf_error(&b) || b.len >= head.n)
		BUG("it does not become shorter");
	if (egress_head_read((struct str){b.data, b.len}, &h, &why) != 0)
		BUG("it is not let through any more: %s", why);
	if (h.h2c || h.websocket || fields_of(b.data, b.len, "upgrade") > 0 ||
	        fields_of(b.data, b.len, "http2-settings") > 0)
		BUG("an offer is left");
	if (strcmp(h.host, was->host) != 0 || h.length != was->length ||
	        h.chunked != was->chunked || h.is_head != was->is_head)
		BUG("it means something else");
}

static void request(const char *p, size_t n, size_t cut)
{
	size_t whole = 0, pieces = 0;
	const char *why = NULL;
	struct egress_head h;
	long end = egress_head_end(p, n, &whole, &why), again = 0;
	int r, s;

	for (size_t at = 1; at <= n && again == 0; at += cut)
		again = egress_head_end(p, at + cut > n ? n : at, &pieces, &why);
	if (n > 0 && again != end)
		BUG("the cut changes a head: %ld, %ld", end, again);
	if (end <= 0 || egress_head_read((struct str){p, (size_t)end}, &h, &why) != 0)
		return;
	if (fields_of(p, (size_t)end, "host") != 1 || h.host[0] == '\0')
		BUG("not one Host");
	if (h.h2c)
		without_h2c((struct str){p, (size_t)end}, &h);
	if (fields_of(p, (size_t)end, "content-length") +
	                fields_of(p, (size_t)end, "transfer-encoding") >
	        1)
		BUG("two lengths");
	if (memchr(p, '\0', (size_t)end))
		BUG("a NUL in a head");
	p += end;
	n -= (size_t)end;
	if (body(&h, p, n, n, &r) != body(&h, p, n, cut, &s) || r != s)
		BUG("the cut changes a body");
}

static enum egress_response_result answer(const char *p, size_t n, size_t cut, size_t *ret_used)
{
	struct egress_response r = {0};
	enum egress_response_result result = EGRESS_RESPONSE_MORE;
	size_t at = 0, used;

	egress_response_begin(&r, false, true);
	while (at < n && result == EGRESS_RESPONSE_MORE) {
		result = egress_response_feed(&r, p + at, n - at < cut ? n - at : cut, &used);
		at += used;
	}
	egress_response_free(&r);
	*ret_used = at;
	return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *p = (const char *)data + 1;
	size_t cut, a, b;

	if (n < 2)
		return 0;
	cut = 1 + data[0] % 50;
	n--;
	request(p, n, cut);
	if (answer(p, n, n, &a) != answer(p, n, cut, &b) || a != b)
		BUG("the cut changes an answer");
	return 0;
}
