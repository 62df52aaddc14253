/* What the files of destinations share. Private to trace. */
#ifndef BRIG_TRACE_TRACE_DESTINATION_H
#define BRIG_TRACE_TRACE_DESTINATION_H

#include "trace/trace.h"

/* Is that member of a type's config a secret? */
bool trace_destination_is_secret(enum trace_type type, struct str key);
/* "abcd...wxyz"; a short secret shows nothing. */
void trace_destination_mask(struct str secret, char out[16]);

#endif
