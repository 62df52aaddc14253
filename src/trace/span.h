/* One span after the other, as OTLP's JSON has them; what they say is in spans.c. Private to trace.
 */
#ifndef BRIG_TRACE_SPAN_H
#define BRIG_TRACE_SPAN_H

#include "trace/content.h"
#include "trace/context.h"
#include "trace/trace.h"

enum span_kind { SPAN_INTERNAL = 1, SPAN_SERVER = 2, SPAN_CLIENT = 3 };

struct spans {
	struct json_writer w;
	const struct trace_destination *d;
	const struct record *r;
	struct context context;
	struct content said;
	bool content;
	bool dropped;   /* there is content, and it is too large to go along */
	bool shortened; /* a content did not fit into its attribute of this span */
	size_t n;
	char root[17], agent[17]; /* agent: that of the root where there is none */
};

struct span {
	const char *id, *parent; /* parent NULL or "": none */
	bool remote;             /* the parent is another process's */
	struct str name;
	enum span_kind kind;
	int64_t begin_ms, end_ms;
};

/* Its object and the list of its attributes are open then. */
void span_begin(struct spans *s, const struct span *span);
/* After the attributes. text NULL: nothing went wrong. */
void span_status(struct spans *s, const char *text);
/* In the list of a span's events; the event's attributes stand between. */
void span_event_begin(struct spans *s, const char *name, int64_t ms);
void span_event_end(struct spans *s);
/* An attribute that has what was said: cut at 10,000,000 bytes, between two characters. */
void span_content(struct spans *s, const char *key, struct str value);
/* The event that says so, where a content of this span was cut; under OpenRouter's name, so that
 * one look finds both. */
void span_shortened_event(struct spans *s, int64_t ms);
/* The same after the attributes of a span that has no events of its own. */
void span_shortened(struct spans *s, int64_t ms);
/* Attributes. */
void span_kinds(struct spans *s, const char *openinference, const char *langfuse);
void span_error_type(struct spans *s, int status);

#endif
