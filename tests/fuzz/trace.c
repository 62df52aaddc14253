/*
 * What destinations of traces are made of, and what comes in with requests: the first byte chooses.
 * A destination that is read must be written as something that reads as the same; masked, it must
 * not hold its secrets; a patch of nothing must change nothing. A traceparent that is taken must
 * come back as itself. A record's `trace` and content may be anything, and the spans of it must be
 * JSON.
 */
#include "base/mem.h"
#include "trace/trace.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void write(struct buf *out, const struct trace_destination *d, enum trace_secrets secrets)
{
	struct json_writer w;

	jw_init(&w, out);
	jw_object(&w);
	trace_destination_write(&w, d, secrets);
	jw_end(&w);
	if (jw_done(&w) < 0)
		BUG("a destination does not fit");
}

static void check_masked(const struct trace_destination *d)
{
	_cleanup_buf_ struct buf masked = BUF_INIT((size_t)16 << 20);
	const char *const secrets[] = {d->secret_key, d->api_key, d->space_key, d->session_token};

	write(&masked, d, TRACE_MASKED);
	for (size_t i = 0; i < sizeof(secrets) / sizeof(*secrets); i++)
		if (secrets[i] && strlen(secrets[i]) > 40 && !strstr(d->name, secrets[i]) &&
		        strstr(buf_cstr(&masked), secrets[i]) && !d->filter_json)
			BUG("a secret is shown");
}

static void check_again(const struct trace_destination *d)
{
	_cleanup_buf_ struct buf first = BUF_INIT((size_t)16 << 20), second = first;
	_cleanup_json_ struct json_doc *doc = NULL, *nothing = NULL;
	struct trace_destination *again = NULL, *same = NULL;

	write(&first, d, TRACE_PLAIN);
	if (json_parse((struct str){first.data, first.len}, (size_t)64 << 20, &doc, NULL) < 0 ||
	        trace_destination_parse(json_root(doc), &again, NULL) < 0)
		BUG("a destination does not read again");
	write(&second, again, TRACE_PLAIN);
	if (first.len != second.len || memcmp(first.data, second.data, first.len) != 0)
		BUG("a destination reads as another");
	if (json_parse(STR("{}"), 65536, &nothing, NULL) < 0)
		BUG("no memory");
	if (first.len < (512 << 10) &&
	        trace_destination_patch(d, json_root(nothing), &same, NULL) < 0)
		BUG("a patch of nothing fails");
	trace_destination_free(same);
	trace_destination_free(again);
}

static void try_destination(struct str text)
{
	_cleanup_json_ struct json_doc *doc = NULL;
	struct trace_destination *d = NULL;
	struct trace_request *q = NULL;
	struct error err = {0};

	if (json_parse(text, (size_t)64 << 20, &doc, NULL) < 0)
		return;
	if (trace_destination_parse(json_root(doc), &d, &err) < 0) {
		if (err.code != ERR_INVALID || err.text[0] == '\0')
			BUG("refused without a word");
		return;
	}
	check_masked(d);
	check_again(d);
	if (trace_request_test(d, 1796030000000, &q, NULL) == 0 && (!q->url || !q->url[0]))
		BUG("a request without an address");
	trace_request_free(q);
	trace_destination_free(d);
}

static void try_parent(struct str text)
{
	struct trace_parent p, again;
	char out[56];

	if (!trace_parent_read(text, &p))
		return;
	trace_parent_write(&p, out);
	if (!trace_parent_read(str_of(out), &again) || strcmp(p.trace_id, again.trace_id) != 0 ||
	        strcmp(p.span_id, again.span_id) != 0 || p.flags != again.flags)
		BUG("a traceparent reads as another");
	if (memcmp(out + 3, text.p + 3, 50) != 0)
		BUG("a traceparent was changed");
}

static const struct trace_destination *collector(void)
{
	static struct trace_destination *d;
	_cleanup_json_ struct json_doc *doc = NULL;

	if (!d && (json_parse(STR("{\"type\":\"langfuse\",\"name\":\"f\",\"config\":{\"publicKey\":"
	                          "\"p\",\"secretKey\":\"s\"}}"),
	                   65536, &doc, NULL) < 0 ||
	                  trace_destination_parse(json_root(doc), &d, NULL) < 0))
		BUG("no destination");
	return d;
}

/* The text is the request, the answer and the `trace` of a record of each api. */
static void try_record(unsigned char which, struct str text)
{
	static const char *const apis[] = {"responses", "chat", "messages", "gemini"};
	_cleanup_json_ struct json_doc *doc = NULL;
	struct record *r = record_new();
	struct trace_request *q = NULL;
	size_t taken = 0;

	str_copy(r->id, sizeof(r->id), STR("gen-fuzz"));
	record_set(&r->api, str_of(apis[which % 4]));
	record_set(&r->request, text);
	record_set(&r->answer, text);
	record_set(&r->trace, text);
	record_set(&r->metadata, text);
	record_set(&r->traceparent, text);
	r->begin_ms = 1;
	record_add_attempt(r);
	record_add_run(r);
	record_set(&record_add_command(&r->runs[0])->out, text);
	if (trace_request_build(collector(), (const struct record *const *)&r, 1, 1, NULL, 1, &q,
	            &taken, NULL) < 0 ||
	        taken != 1)
		BUG("a record has no request");
	if (json_parse((struct str){q->body.data, q->body.len}, (size_t)256 << 20, &doc, NULL) < 0)
		BUG("spans are no JSON");
	trace_request_free(q);
	record_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct trace_answer a;
	struct str text;

	if (n == 0)
		return 0;
	text = (struct str){(const char *)data + 1, n - 1};
	if (memchr(text.p, 0, text.n))
		return 0; /* texts of records end at one */
	switch (data[0]) {
	case 'd':
		try_destination(text);
		return 0;
	case 'p':
		try_parent(text);
		return 0;
	case 'a':
		trace_answer_read(collector(), 200, text, text, 1, &a);
		trace_answer_read(collector(), 503, text, text, 1, &a);
		return 0;
	default:
		try_record(data[0], text);
		return 0;
	}
}
