/*
 * What was said, out of a record's request and answer, in the one form of the GenAI conventions
 * (gen-ai-input-messages, gen-ai-output-messages), whatever dialect it came in. Images, sounds and
 * files are named by their type and their bytes left out. Private to trace.
 */
#ifndef BRIG_TRACE_CONTENT_H
#define BRIG_TRACE_CONTENT_H

#include "base/buf.h"
#include "json/json.h"
#include "record/record.h"

#include <stdbool.h>

/* A record's content as trees; members are NULL where the record has none or it cannot be read. */
struct content {
	struct json_doc *request_doc, *answer_doc;
	const struct json *request, *answer;
	const char *api;
	const char *finish;
};
void content_open(struct content *c, const struct record *r);
void content_close(struct content *c);

/* These append JSON text and return true; false, with nothing appended: there is none. */
bool content_system(const struct content *c, struct buf *out); /* [{type, content}] */
bool content_input(const struct content *c, struct buf *out);  /* [{role, parts}] */
bool content_output(const struct content *c, struct buf *out); /* [{role, parts, finish_reason}] */

/* The texts alone, one after another, a line end between them. False: there is none. */
bool content_input_text(const struct record *r, struct buf *out);
bool content_output_text(const struct record *r, struct buf *out);

#endif
