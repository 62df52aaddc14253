/*
 * Where a record's spans belong: the trace, the parent, the names that the client chose, out of the
 * request's `trace` object and the header `traceparent`. Private to trace.
 */
#ifndef BRIG_TRACE_CONTEXT_H
#define BRIG_TRACE_CONTEXT_H

#include "json/json.h"
#include "record/record.h"
#include "trace/trace.h"

struct context {
	char trace_id[33];
	char parent_id[17]; /* "": the root has none */
	uint8_t flags;      /* W3C trace flags */
	bool linked;        /* the caller's span is in another trace: */
	struct trace_parent link;

	/* The `trace` object, or NULL. */
	struct json_doc *doc;
	const struct json *trace;
};
void context_open(struct context *c, const struct record *r);
void context_close(struct context *c);

/* A text of the `trace` object; {NULL,0}: not given. */
struct str context_text(const struct context *c, const char *key);
/* Has this member of it a meaning of its own, beyond being metadata? */
bool context_is_special(struct str key);

/* The id of a span: kind and numbers say which of the record's. Never all zero. */
void context_span_id(
        const struct record *r, const char *kind, size_t first, size_t second, char out[17]);

#endif
