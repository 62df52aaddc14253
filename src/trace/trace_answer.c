/*
 * What an answer means (opentelemetry-proto, docs/specification.md, "OTLP/HTTP Response" and
 * "Retry"): only 429, 502, 503 and 504 are worth another try, and 408; of S3 also 500. A partial
 * success is a success.
 */
#include "trace/trace.h"

#include "base/utf8.h"

#include <time.h>

#define RETRY_MAX_MS UINT64_C(3600000)

static bool may_pass(const struct trace_destination *d, int status)
{
	return status == 0 || status == 408 || status == 429 || status == 502 || status == 503 ||
	       status == 504 || (d->type == TRACE_S3 && status == 500);
}

/* "Mon, 30 Nov 2026 11:00:00 GMT"; the older two forms of dates are not used by servers. */
static bool date_read(struct str s, int64_t *ret_ms)
{
	struct tm tm = {0};
	char text[40];
	const char *end;

	if (!str_copy(text, sizeof(text), s))
		return false;
	end = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
	if (!end || *end)
		return false;
	*ret_ms = (int64_t)timegm(&tm) * 1000;
	return true;
}

static uint64_t retry_after(struct str s, int64_t now_ms)
{
	uint64_t seconds, ms = 0;
	int64_t at;

	s = str_trim(s);
	if (str_in_set(s, "0123456789"))
		ms = str_to_u64(s, &seconds) && seconds < RETRY_MAX_MS / 1000 ? seconds * 1000
		                                                              : RETRY_MAX_MS;
	else if (date_read(s, &at) && at > now_ms)
		ms = (uint64_t)(at - now_ms);
	return ms < RETRY_MAX_MS ? ms : RETRY_MAX_MS;
}

/* For a line of a log: characters whole, no control characters. */
static void keep_text(struct trace_answer *a, struct str s)
{
	_cleanup_buf_ struct buf text = BUF_INIT(4 * sizeof(a->text));

	if (s.n == 0)
		return;
	utf8_append_valid(&text, s.p, s.n < sizeof(a->text) ? s.n : sizeof(a->text));
	str_copy(a->text, sizeof(a->text), (struct str){text.data, text.len});
	for (char *p = a->text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = ' ';
}

/* A 64-bit integer of OTLP's JSON: a text of digits, or a number. */
static uint64_t count_of(const struct json *v)
{
	uint64_t n;
	int64_t i;

	if (json_is(v, JSON_STRING) && str_to_u64(json_str(v), &n))
		return n;
	return json_i64(v, &i) && i > 0 ? (uint64_t)i : 0;
}

static void read_partial(struct trace_answer *a, struct str body)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	const struct json *partial;

	if (json_parse(body, (size_t)4 << 20, &doc, NULL) < 0)
		return;
	partial = json_get(json_root(doc), "partialSuccess");
	a->rejected = count_of(json_get(partial, "rejectedSpans"));
	keep_text(a, json_str(json_get(partial, "errorMessage")));
}

void trace_answer_read(const struct trace_destination *d, int status, struct str after,
        struct str body, int64_t now_ms, struct trace_answer *ret)
{
	*ret = (struct trace_answer){.verdict = TRACE_DROP};
	if (status >= 200 && status < 300) {
		ret->verdict = TRACE_DONE;
		if (d->type != TRACE_S3 && d->type != TRACE_WEBHOOK && body.n > 0)
			read_partial(ret, body);
		return;
	}
	keep_text(ret, body);
	if (status == 413) {
		ret->verdict = TRACE_SPLIT;
	} else if (may_pass(d, status)) {
		ret->verdict = TRACE_RETRY;
		ret->retry_ms = retry_after(after, now_ms);
	}
}
