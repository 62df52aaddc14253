/* A record as spans in OTLP's JSON. Private to trace. */
#ifndef BRIG_TRACE_SPANS_H
#define BRIG_TRACE_SPANS_H

#include "trace/trace.h"

/*
 * Appends the record's spans, with commas between them and no bracket around. content: also what
 * was said and run, where the record has it. 0 or the buffer's error; then out is of no use.
 */
int spans_write(struct buf *out, const struct trace_destination *d, const struct record *r,
        bool content, size_t *ret_n);

#endif
