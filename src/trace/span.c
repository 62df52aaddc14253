#include "trace/span.h"

#include "trace/otlp.h"

#include <stdio.h>

#define VALUE_MAX ((size_t)10000000) /* bytes of one attribute's content */

void span_begin(struct spans *s, const struct span *span)
{
	struct json_writer *w = &s->w;
	int64_t begin = span->begin_ms > 0 ? span->begin_ms : s->r->begin_ms;
	int64_t end = span->end_ms > 0 ? span->end_ms : s->r->end_ms;

	s->n++;
	s->shortened = false;
	jw_object(w);
	jw_kcstr(w, "traceId", s->context.trace_id);
	jw_kcstr(w, "spanId", span->id);
	if (span->parent && span->parent[0])
		jw_kcstr(w, "parentSpanId", span->parent);
	/* The low byte is W3C's; 0x100: whether the parent is remote is known, 0x200: it is. */
	jw_ki64(w, "flags", s->context.flags | 0x100 | (span->remote ? 0x200 : 0));
	jw_kstr(w, "name", span->name);
	jw_ki64(w, "kind", span->kind);
	otlp_time(w, "startTimeUnixNano", begin);
	otlp_time(w, "endTimeUnixNano", end > begin ? end : begin);
	jw_key(w, "attributes");
	jw_array(w);
}

void span_status(struct spans *s, const char *text)
{
	if (!text)
		return;
	jw_key(&s->w, "status");
	jw_object(&s->w);
	jw_kcstr(&s->w, "message", text);
	jw_ki64(&s->w, "code", 2);
	jw_end(&s->w);
}

void span_event_begin(struct spans *s, const char *name, int64_t ms)
{
	jw_object(&s->w);
	otlp_time(&s->w, "timeUnixNano", ms);
	jw_kcstr(&s->w, "name", name);
	jw_key(&s->w, "attributes");
	jw_array(&s->w);
}

void span_event_end(struct spans *s)
{
	jw_end(&s->w);
	jw_end(&s->w);
}

void span_content(struct spans *s, const char *key, struct str value)
{
	char mark[80];

	if (value.n <= VALUE_MAX) {
		otlp_str(&s->w, key, value);
		return;
	}
	value.n = VALUE_MAX;
	while (value.n > 0 && ((unsigned char)value.p[value.n] & 0xc0) == 0x80)
		value.n--;
	otlp_str(&s->w, key, value);
	snprintf(mark, sizeof(mark), "%s.truncated", key);
	otlp_bool(&s->w, mark, true);
	s->shortened = true;
}

void span_shortened_event(struct spans *s, int64_t ms)
{
	if (!s->shortened)
		return;
	span_event_begin(s, "openrouter.trace_truncated", ms);
	otlp_cstr(&s->w, "message", "A part of this trace was too large and is shortened.");
	otlp_count(&s->w, "limit", VALUE_MAX);
	span_event_end(s);
}

void span_shortened(struct spans *s, int64_t ms)
{
	if (!s->shortened)
		return;
	jw_key(&s->w, "events");
	jw_array(&s->w);
	span_shortened_event(s, ms);
	jw_end(&s->w);
}

void span_kinds(struct spans *s, const char *openinference, const char *langfuse)
{
	otlp_cstr(&s->w, "openinference.span.kind", openinference);
	otlp_cstr(&s->w, "langfuse.observation.type", langfuse);
}

void span_error_type(struct spans *s, int status)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", status);
	otlp_cstr(&s->w, "error.type", status >= 400 ? text : "_OTHER");
}
